/* SPDX-License-Identifier: Apache-2.0 */
/* Packing the ranges of a plan. */
#ifndef UL_PLANNER_PACK_PLACEMENT_H
#define UL_PLANNER_PACK_PLACEMENT_H

#include "planner/model/plan.h"

/* Finds offsets for every range of the plan, by `method`; sets reserved_bytes, pack_method and
 * packing_proven. */
enum ul_status ul_place_ranges(struct ul_arena *arena, const struct ul_problem *problem,
                               const struct ul_plan_options *options, struct ul_plan *plan,
                               struct ul_diag *diag) UL_MUST_CHECK;

#endif
