/* SPDX-License-Identifier: Apache-2.0 */
/* The live sums of a sequence of steps before there is a plan, kept up to date while steps are
 * merged.
 *
 * Purpose: a pass that rewrites a program asks what its live sums are, and whether two steps may
 * become one. The sums are those of ul_account_live for the plan that runs the sequence, with every
 * possible in-place option taken. Invariants: a position keeps its number; positions that were
 * merged into another are empty. Ownership: everything lives in the arena; the sequence is
 * borrowed, merged substeps are copied. Units: bytes of space 0, each range rounded up to the
 * alignment. */
#ifndef UL_PLANNER_LIVE_H
#define UL_PLANNER_LIVE_H

#include "planner/model/problem.h"

struct ul_live;

/* A sequence that runs once: one substep at every position, in order. */
struct ul_live_sequence {
    const struct ul_plan_value *values;
    const struct ul_plan_region *regions; /* region 0 is the root */
    const struct ul_plan_substep *substeps;
    const uint32_t *region_of; /* by position */
    uint32_t value_count, region_count, position_count;
};

/* Positions of one region become one, at `at`, which is one of them. */
struct ul_live_merge {
    const uint32_t *positions; /* ascending, none of them empty */
    uint32_t position_count;
    uint32_t at;
    /* What the one position touches: the values that the merged ones touched, except those that
     * nothing else needs any more. */
    const struct ul_plan_substep *substep;
};

struct ul_live *ul_live_new(struct ul_arena *arena, const struct ul_live_sequence *sequence,
                            uint64_t alignment_bytes);
/* The live sum at a position; at an empty one, what lives through it. Without steps, inputs and
 * outputs live at position 0. */
uint64_t ul_live_bytes(const struct ul_live *live, uint32_t position);
/* The first position of the largest sum. */
uint32_t ul_live_peak(const struct ul_live *live);
/* Merges where that costs no bytes: the live sums must not grow at a position that stays, and at
 * `at` not beyond the largest of the merged ones. Small sums may grow: those far below what the
 * neediest step needs by itself, which no plan can avoid. Since the order is not final, values that
 * begin earlier than before may not take more than values that vanish, unless the one step needs no
 * more by itself than one of those did. False: nothing has changed. */
bool ul_live_merge(struct ul_live *live, const struct ul_live_merge *merge);

#endif
