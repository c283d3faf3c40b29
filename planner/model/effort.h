/* SPDX-License-Identifier: Apache-2.0 */
/* How much a search may do, in one place: counted work, an additional deadline, and random numbers.
 *
 * Invariants: without a deadline a search depends only on its input, its limits and its seed.
 * Units: a search counts its own work (mostly visits); a deadline is in the seconds of
 * ul_clock_seconds, and 0 is none. */
#ifndef UL_EFFORT_H
#define UL_EFFORT_H

#include <stdbool.h>
#include <stdint.h>

/* Default work of searches: for an order (plus 4096 for each step), for a packing, for a rung of a
 * ladder (less for each step beyond 400); for each program that a budget tries besides the model's
 * own an eighth of the first two. A packing alone, or an abstract graph, gets more: for its order
 * (plus 16384 for each node), and to recompute. These are plain numbers, since --help prints
 * them. */
#define UL_WORK_ORDER 67108864
#define UL_WORK_PACK 67108864
#define UL_WORK_RUNG 16777216
#define UL_WORK_PACK_ALONE 6442450944
#define UL_WORK_GRAPH_ORDER 2147483648
#define UL_WORK_GRAPH_REMAT 6000000000

struct ul_effort {
    uint64_t work, work_limit;
    double deadline_seconds; /* 0: none */
    uint64_t seed;           /* of its random numbers */
    uint32_t look_every;     /* the clock is read once for this many questions; 0 is 1 */
    uint32_t looks;
    bool stopped_by_time;
};

/* The limits of all, while a method has its turn within lower ones. */
struct ul_effort_turn {
    uint64_t work_limit;
    double deadline_seconds;
};

/* The wall clock: the only place where a search reads it. */
double ul_clock_seconds(void);
/* That many seconds from now; 0 for 0. */
double ul_deadline_after(double seconds);
/* The time until a deadline: 0 where there is none, negative where it is past. */
double ul_deadline_left(double deadline_seconds);
/* Whether the work or the time has run out. */
bool ul_effort_spent(struct ul_effort *effort);
/* Gives the next method one of `share` parts of the remaining work and time. */
struct ul_effort_turn ul_effort_begin_turn(struct ul_effort *effort, uint32_t share);
void ul_effort_end_turn(struct ul_effort *effort, struct ul_effort_turn whole);

/* The next of the random numbers that follow from *state. */
uint64_t ul_seed_next(uint64_t *state);
/* The same, in (0, 1). */
double ul_seed_unit(uint64_t *state);

#endif
