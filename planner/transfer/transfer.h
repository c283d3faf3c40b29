/* SPDX-License-Identifier: Apache-2.0 */
/* What runs beside a sequence of runs: steps of other resources, and the copies of values that wait
 * in another space.
 *
 * Invariants: what is found runs the same steps, and where values move in the same order but for
 * steps of other resources; its live sum of space 0 is
 * within the limit, as ul_timeline_build and ul_account_live have it, and what lies in the other
 * space within the room there, before packing.
 * Ownership: what is found lives in the arena handed in. Units: bytes, each range rounded up to the
 * plan's alignment; costs as the problem has them.
 */
#ifndef UL_PLANNER_TRANSFER_H
#define UL_PLANNER_TRANSFER_H

#include "planner/model/effort.h"
#include "planner/model/plan.h"

struct ul_transfer {
    const struct ul_problem *problem;
    const struct ul_plan *runs; /* positions, all of stream 0 and runs, with their ranges */
    uint64_t limit_bytes;       /* of the live sum of space 0 */
    uint64_t room_bytes;        /* of the other space; UINT64_MAX: any */
    struct ul_effort effort;
    /* What is found. */
    struct ul_plan_position *positions; /* NULL: nothing */
    uint32_t position_count;
    uint64_t cost;        /* of the positions, with what transfers are waited for */
    uint64_t floor_bytes; /* no choice of values to move has a smaller live sum with these runs */
};

/* Fills what is found: the cheapest of several tries. */
void ul_transfer_place(struct ul_arena *arena, struct ul_transfer *job);
/* The runs of a plan on stream 0, without all else. */
void ul_transfer_only_runs(struct ul_arena *arena, struct ul_plan *plan);

/* transfer_overlap.c */

/* Gives `plan`, of which the positions and the alignment are known, positions that cost less where
 * steps of other resources run beside others, with the live sum of space 0 within the limit. Sets
 * the cost and the live sum, also where the positions stay. */
void ul_transfer_overlap(struct ul_arena *arena, const struct ul_problem *problem,
                         uint64_t limit_bytes, struct ul_effort *effort, struct ul_plan *plan);

#endif
