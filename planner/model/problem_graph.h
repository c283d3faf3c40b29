/* SPDX-License-Identifier: Apache-2.0 */
/* A problem as an abstract graph. */
#ifndef UL_PLANNER_MODEL_PROBLEM_GRAPH_H
#define UL_PLANNER_MODEL_PROBLEM_GRAPH_H

#include "planner/model/graph.h"
#include "planner/model/problem.h"

enum ul_problem_graph_form {
    UL_PROBLEM_GRAPH_REPEATABLE, /* a step's values are one: they are recomputed together, or not at
                                    all */
    UL_PROBLEM_GRAPH_SEPARATE    /* each value dies by itself; for orders without repeats */
};
/* A problem as an abstract graph; its `order` is the file order, and ids ascend with it. A valid
 * sequence of nodes is a valid sequence of steps, and as long as in-place options are taken where
 * possible, its peak is no higher (except for values live from the start that nothing reads). */
struct ul_problem_graph {
    struct ul_solve_graph graph;
    uint32_t *step_first; /* by node: its runs of steps, node_count + 1 entries; some have none */
    uint32_t *steps;
    bool exact; /* no order of the steps (REPEATABLE: without repeats) has a smaller live sum than
                   all orders of the nodes */
};
/* A sequence of all steps in which those of a region that is one node are contiguous: how that node
 * runs them, some more than once. */
struct ul_problem_inside {
    const uint32_t *steps;
    uint32_t count;
};
/* By region: the one that is a node with all below it, or 0, whose steps are nodes of their own. */
uint32_t *ul_problem_graph_trees(struct ul_arena *arena, const struct ul_problem *problem);
/* `inside`: NULL: such a node runs its steps in file order. */
void ul_problem_graph_make(struct ul_arena *arena, const struct ul_problem *problem,
                           uint64_t alignment_bytes, enum ul_problem_graph_form form,
                           const struct ul_problem_inside *inside, struct ul_problem_graph *out);
/* The steps of a sequence of nodes, with repeats. */
uint32_t *ul_problem_graph_steps(struct ul_arena *arena, const struct ul_problem_graph *graph,
                                 const uint32_t *nodes, uint32_t count, uint32_t *step_count);

#endif
