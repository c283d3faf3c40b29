/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers for a sequence of runs: which values wait in another space, and when they are copied.
 *
 * Invariants: the result runs the same steps in the same order; its live sum in space 0, by
 * ul_timeline_build and ul_account_live, is within the limit, and its bytes in the other space are
 * within the room there, before packing. Ownership: the result lives in the arena passed in. Units:
 * bytes, each range rounded up to the plan's alignment; costs as in the problem. */
#ifndef UL_PLANNER_TRANSFER_H
#define UL_PLANNER_TRANSFER_H

#include "planner/model/effort.h"
#include "planner/model/plan.h"

struct ul_transfer {
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

/* The space that values of space 0 are moved to, or UL_PLAN_NONE. */
uint32_t ul_transfer_space(const struct ul_problem *problem);
/* Fills the result: the cheapest of several tries. */
void ul_transfer_place(struct ul_arena *arena, struct ul_transfer *job);

#endif
