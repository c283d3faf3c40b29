/* SPDX-License-Identifier: Apache-2.0 */
/* Optional values: what one implementation of steps needs for ever and another does not, such as
 * weights in a layout of its own. They are there as soon as one step is run that way. Units: bytes,
 * rounded up to the alignment. */
#ifndef UL_PLANNER_MODEL_OPTIONAL_H
#define UL_PLANNER_MODEL_OPTIONAL_H

#include "planner/model/problem.h"

/* Per value: its bytes by the number of steps that may read it, rounded down; 0 of what is not
 * optional, or neither in space 0 nor, with `with_beside`, in one beside it. */
uint64_t *ul_optional_shares(struct ul_arena *arena, const struct ul_problem *problem,
                             uint64_t alignment_bytes, bool with_beside);
/* The shares of what the alternative reads. */
uint64_t ul_optional_need(const struct ul_plan_alternative *alternative, const uint64_t *shares);
/* What optional values take of space 0 in any plan, at least. */
uint64_t ul_optional_bound(struct ul_arena *arena, const struct ul_problem *problem,
                           uint64_t alignment_bytes);
/* Whether two alternatives read the same optional values. */
bool ul_optional_is_alike(const struct ul_problem *problem, const struct ul_plan_alternative *a,
                          const struct ul_plan_alternative *b);

#endif
