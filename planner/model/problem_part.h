/* SPDX-License-Identifier: Apache-2.0 */
/* A region of a problem as a problem of its own. */
#ifndef UL_PLANNER_MODEL_PROBLEM_PART_H
#define UL_PLANNER_MODEL_PROBLEM_PART_H

#include "planner/model/problem.h"

struct ul_problem_part {
    struct ul_problem *problem;
    uint32_t *steps; /* per step of the part, in file order: the whole's step */
};
/* The steps of a region below the root and of its own regions. A value that other steps touch too,
 * or that is there before or after them, always lives in the part. `alternatives`: of each step of
 * the whole the one that the part has; NULL: all. Values that no step of the part touches are left
 * out, and so is what spans the whole region. */
void ul_problem_part_make(struct ul_arena *arena, const struct ul_problem *problem, uint32_t region,
                          const uint32_t *alternatives, struct ul_problem_part *part);

#endif
