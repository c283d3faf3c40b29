/* SPDX-License-Identifier: Apache-2.0 */
/* Adds to a sequence of runs what runs at the same time: steps on other resources, and copies of
 * values that wait in another space.
 *
 * Invariants: the result runs the same steps, and where values move in the same order except for
 * steps on other resources; its live sum in space 0, by ul_timeline_build and ul_account_live, is
 * within the limit, and its bytes in the other space are within the room there, before packing.
 * Ownership: the result lives in the arena passed in. Units: bytes, each range rounded up to the
 * plan's alignment; costs as in the problem. */
#ifndef UL_PLANNER_TRANSFER_H
#define UL_PLANNER_TRANSFER_H

#include "planner/model/effort.h"
#include "planner/model/plan.h"

struct ul_transfer_search {
    const struct ul_problem *problem;
    const struct ul_plan *runs; /* positions, all runs on stream 0, with their ranges */
    uint64_t limit_bytes;       /* for the live sum of space 0 */
    uint64_t room_bytes;        /* in the other space; UINT64_MAX: any */
    struct ul_effort effort;
    /* The result. */
    struct ul_plan_position *positions; /* NULL: nothing */
    uint32_t position_count;
    uint64_t cost;        /* of the positions, including waits for transfers */
    uint64_t floor_bytes; /* no choice of values to move has a smaller live sum with these runs */
};

/* Fills the result: the cheapest of several tries. */
void ul_transfer_place(struct ul_arena *arena, struct ul_transfer_search *job);
/* Moves the runs of a plan to stream 0 and removes everything else. */
void ul_transfer_only_runs(struct ul_arena *arena, struct ul_plan *plan);

/* transfer_overlap.c */

/* Gives `plan`, whose positions and alignment are known, positions that cost less where steps on
 * other resources run at the same time, with the live sum of space 0 within the limit. Sets the
 * cost and the live sum, also where the positions stay. */
void ul_transfer_overlap(struct ul_arena *arena, const struct ul_problem *problem,
                         uint64_t limit_bytes, struct ul_effort *effort, struct ul_plan *plan);

/* transfer_share.c */

/* What two streams would gain for a plan, by position. */
struct ul_plan_streaming {
    const bool *may;       /* it may run at the same time as others */
    const bool *counts;    /* no two of these may run at the same time; NULL: any may */
    const uint64_t *costs; /* its time, with a shared launch counted once */
    /* the time that its work would take on the whole device, at most that */
    const uint64_t *busy_costs;
    const uint32_t *groups; /* the first of those that share its launch, or itself */
    uint64_t fork_cost;     /* for two streams that part and meet again */
    uint32_t least_percent; /* the least gain, as a part of the plan's cost */
};
/* Lets positions of a plan that has only runs run on stream 1, at the same time as others, where
 * that gains enough, with the live sum of space 0 within the limit. Returns the new position of
 * each old one; NULL: too little is gained, and the plan stays. */
uint32_t *ul_transfer_share(struct ul_arena *arena, const struct ul_problem *problem,
                            uint64_t limit_bytes, const struct ul_plan_streaming *sharing,
                            struct ul_effort *effort, struct ul_plan *plan);

#endif
