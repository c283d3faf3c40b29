/* SPDX-License-Identifier: Apache-2.0 */
/* Optional values: data that one alternative of steps needs throughout and another does not, such
 * as weights in a layout of its own. A plan has them if one step runs by that alternative. Units:
 * bytes, rounded up to the alignment. */
#ifndef UL_PLANNER_MODEL_OPTIONAL_H
#define UL_PLANNER_MODEL_OPTIONAL_H

#include "planner/model/problem.h"

/* By value: its bytes divided by the number of steps that may read it, rounded down; 0 for values
 * that are not optional, and for those in another space than 0 (with `with_beside`, than 0 and
 * those outside the plan's own). */
uint64_t *ul_optional_shares(struct ul_arena *arena, const struct ul_problem *problem,
                             uint64_t alignment_bytes, bool with_overhead);
/* The shares of the values that the alternative reads. */
uint64_t ul_optional_need(const struct ul_plan_alternative *alternative, const uint64_t *shares);
/* The least that optional values take of space 0 in any plan. */
uint64_t ul_optional_bound(struct ul_arena *arena, const struct ul_problem *problem,
                           uint64_t alignment_bytes);
/* Whether two alternatives read the same optional values. */
bool ul_optional_is_alike(const struct ul_problem *problem, const struct ul_plan_alternative *a,
                          const struct ul_plan_alternative *b);

#endif
