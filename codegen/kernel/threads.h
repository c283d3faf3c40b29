/* SPDX-License-Identifier: Apache-2.0 */
/* How a kernel is spread over threads: the schedule that print_c.c prints and cost.c counts.
 *
 * A region is a statement that threads share: a loop of independent iterations, together with the
 * loops directly inside it where that makes the shares even, or a contraction. Its items go to
 * threads in contiguous runs, so the work of each thread depends only on their number. Invariants:
 * regions do not nest; an iteration's results do not depend on the thread that forms them; each sum
 * is formed by one thread. What only the iteration itself uses (a scratch row, a local array) is
 * private: each thread has its own. Ownership: everything lives in the arena given. Nothing
 * fails. */
#ifndef UL_THREADS_H
#define UL_THREADS_H

#include "ir/kernel.h"

/* Waiting threads start together, and wait for each other, within this time. */
#ifndef UL_REGION_NS
#define UL_REGION_NS 3000.0
#endif

enum { UL_REGION_LEVELS = 4 };

struct ul_region {
    uint32_t shares;      /* threads that get items, at least 2 */
    int64_t item_count;   /* more than 1 */
    uint32_t level_count; /* loops, outermost first; 0: a contraction */
    ul_ks levels[UL_REGION_LEVELS];
    int64_t counts[UL_REGION_LEVELS];
    int64_t piece;    /* iterations of the last level that are one item */
    bool *is_private; /* by buffer; NULL for a contraction */
};

struct ul_threads {
    uint32_t count;                   /* of the program */
    const struct ul_region **regions; /* by statement; NULL: not shared */
    bool *is_private;                 /* by buffer: private in the region that uses it */
    uint32_t shares;                  /* the most of any region; 1: there is none */
};

/* threads.c */

/* Chooses the regions for that many threads; with 1 there are none. */
void ul_threads_init(struct ul_threads *threads, const struct ul_kernel *kernel, uint32_t count,
                     struct ul_arena *arena);

/* cost.c, for threads.c: nanoseconds that a statement takes on a core of the default profile. */
double ul_statement_ns(const struct ul_kernel *kernel, ul_ks statement, struct ul_arena *scratch);

#endif
