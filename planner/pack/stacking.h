/* SPDX-License-Identifier: Apache-2.0 */
/* Who lies below whom: a layout without offsets, which other sizes of the ranges turn into offsets.
 *
 * Ranges of space 0 that take over each other's bytes have one slot. Where
 * ranges of two slots live at the same time, one slot is below the other. An offset is the longest
 * path of bytes to its slot from what always lives, so that no two ranges that live at the same
 * time share bytes, whatever their sizes. */
#ifndef UL_PLANNER_PACK_STACKING_H
#define UL_PLANNER_PACK_STACKING_H

#include "planner/model/plan.h"

/* A range that the ranges of a slot lie above. */
struct ul_plan_below {
    uint32_t range, slot;
};

struct ul_plan_stacking {
    uint64_t floor_bytes; /* of what always lives, at offsets that do not change */
    uint32_t slot_count;
    uint64_t *alignments; /* by slot: its offset is a multiple of it, which is one of the plan's */
    uint32_t *slots;      /* by range of the plan; UL_PLAN_NONE: its offset does not change */
    /* In order of slots. A slot lies above those with smaller numbers alone. Pairs that follow from
     * others are left out. */
    struct ul_plan_below *pairs;
    uint32_t pair_count;
};

/* Takes the layout of a plan. Fails where something lies below what always lives: UL_UNSUPPORTED.
 */
enum ul_status ul_plan_stack(struct ul_arena *arena, const struct ul_problem *problem,
                             const struct ul_plan *plan, struct ul_plan_stacking *stacking,
                             struct ul_diag *diag) UL_MUST_CHECK;
/* Moves what always lives to the bottom of the plan's space 0, in its order, and the rest on top of
 * it, as low as its order allows; sets the sums that follow. `bounded` bytes of the plan, and the
 * smallest budget, change by as much. The caller checks the plan. */
void ul_plan_restack(struct ul_arena *arena, const struct ul_problem *problem,
                     struct ul_plan *plan);
/* The offsets of slots, for `bytes` of each range of the plan, aligned; returns what is reserved.
 */
uint64_t ul_plan_unstack(const struct ul_plan_stacking *stacking, const struct ul_plan *plan,
                         const uint64_t *bytes, uint64_t *offsets);
/* Proves the layout for all sizes: any two ranges of different slots that live at the same time are
 * ordered, by pairs that lead from one to the other. Shares no code with what makes it.
 * UL_MISMATCH: two are not. */
enum ul_status ul_plan_check_stacking(struct ul_arena *scratch, const struct ul_problem *problem,
                                      const struct ul_plan *plan,
                                      const struct ul_plan_stacking *stacking,
                                      struct ul_diag *diag) UL_MUST_CHECK;

#endif
