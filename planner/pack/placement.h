/* SPDX-License-Identifier: Apache-2.0 */
/* Packing the ranges of a plan. */
#ifndef UL_PLANNER_PACK_PLACEMENT_H
#define UL_PLANNER_PACK_PLACEMENT_H

#include "planner/model/plan.h"
#include "planner/pack/pack.h"

/* The ranges of a space as the packer sees them. */
struct ul_placement {
    struct ul_arena *arena;
    const struct ul_problem *problem;
    struct ul_plan *plan;
    uint32_t *next;  /* by range: the range that takes its bytes over, or UL_PLAN_NONE */
    uint32_t *heads; /* by buffer: the first range of its chain */
    struct ul_pack_buffer *buffers;
    uint32_t buffer_count;
    bool holds_all; /* a capacity is for all buffers, those that always live too */
};

/* placement.c */

/* What the offset of a range of space 0 is a multiple of: the plan's alignment, or more. */
uint64_t ul_range_alignment(const struct ul_problem *problem, const struct ul_plan *plan,
                            const struct ul_plan_range *range);
void ul_placement_begin(struct ul_placement *placement, struct ul_arena *arena,
                        const struct ul_problem *problem, struct ul_plan *plan);
/* Makes a buffer for each chain of a space. */
void ul_placement_take(struct ul_placement *placement, uint32_t space);
/* Finds offsets for the buffers; changes their order, with their heads. Sets the method of `pack`.
 */
enum ul_status ul_placement_pack(struct ul_placement *placement, enum ul_plan_pack method,
                                 struct ul_pack_options *pack, struct ul_pack_result *result,
                                 struct ul_diag *diag) UL_MUST_CHECK;

/* Finds offsets for every range of the plan, by `method`; sets reserved_bytes, pack_method and
 * packing_proven. Banks are not considered. */
enum ul_status ul_place_ranges(struct ul_arena *arena, const struct ul_problem *problem,
                               const struct ul_plan_options *options, struct ul_plan *plan,
                               struct ul_diag *diag) UL_MUST_CHECK;

/* banks.c */

/* Lays the ranges of space 0 out in the banks of the problem, at the lowest cost found for moving
 * bytes, and sets what depends on that in the plan. Where they have no room, `fits` is false, and
 * nothing else of the plan changes. */
enum ul_status ul_place_banks(struct ul_arena *arena, const struct ul_problem *problem,
                              const struct ul_plan_options *options, struct ul_plan *plan,
                              struct ul_diag *diag) UL_MUST_CHECK;
/* By bank, the smallest capacity found with which the plan fits while the others stay unchanged; 0:
 * there is none. */
enum ul_status ul_banks_suffice(struct ul_arena *arena, const struct ul_problem *problem,
                                const struct ul_plan_options *options, const struct ul_plan *plan,
                                uint64_t *capacity_bytes, struct ul_diag *diag) UL_MUST_CHECK;

#endif
