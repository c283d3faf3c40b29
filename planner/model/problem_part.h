/* SPDX-License-Identifier: Apache-2.0 */
/* Regions of a problem as problems of their own. */
#ifndef UL_PLANNER_MODEL_PROBLEM_PART_H
#define UL_PLANNER_MODEL_PROBLEM_PART_H

#include "planner/model/problem.h"

/* The depth to which searches look into nested regions: each level costs everything below it
 * again. */
enum { UL_PROBLEM_MAX_DEPTH = 8 };

/* Steps [first, end) of a region that is one node of the problem's graph (problem_graph.h). */
struct ul_problem_tree {
    uint32_t region, first, end;
};
struct ul_problem_trees {
    struct ul_problem_tree *trees; /* in file order */
    uint32_t count;
    uint32_t *touch_first, *touch_end; /* by value: steps in [first, end) touch it */
};
void ul_problem_trees_find(struct ul_arena *arena, const struct ul_problem *problem,
                           struct ul_problem_trees *trees);

/* The steps of a tree as a problem: step i is step first + i of the whole. A value that other steps
 * touch too, or that is live before or after them, always lives in the part, and so does one that
 * spans the whole tree, if they touch it. `alternatives`: for each step of the whole the one that
 * the part has; NULL: all. */
struct ul_problem *ul_problem_part_make(struct ul_arena *arena, const struct ul_problem *problem,
                                        const struct ul_problem_trees *trees, uint32_t tree,
                                        const uint32_t *alternatives);

#endif
