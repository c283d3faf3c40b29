/* SPDX-License-Identifier: Apache-2.0 */
/* A problem as an abstract graph. */
#ifndef UL_PLANNER_MODEL_PROBLEM_GRAPH_H
#define UL_PLANNER_MODEL_PROBLEM_GRAPH_H

#include "planner/model/graph.h"
#include "planner/model/problem.h"

enum ul_problem_graph_form {
    UL_PROBLEM_GRAPH_REPEATABLE, /* steps may run again, which makes all their values again */
    UL_PROBLEM_GRAPH_SEPARATE    /* each value dies by itself; for orders without repeats */
};
/* A problem as an abstract graph; its `order` is the file order, and ids ascend with it. A valid
 * sequence of nodes is a valid sequence of steps, and as long as in-place options are taken where
 * possible, its peak is no higher (except for values live from the start that nothing reads). */
struct ul_problem_graph {
    struct ul_solve_graph graph;
    uint32_t *step_first; /* by node: its runs of steps, node_count + 1 entries; some have none */
    uint32_t *steps;
    uint32_t *run_of; /* by node that only holds one more value of a step: that step's node, else
                         UL_PLAN_NONE. Elsewhere than behind that node, it is a run of the step */
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
/* problem_runs.c */

/* The sequence of nodes with rests behind their steps, as far as it stays within the budget so. */
uint32_t *ul_problem_graph_join_runs(struct ul_arena *arena, const struct ul_problem_graph *graph,
                                     uint64_t budget_bytes, const uint32_t *nodes, uint32_t *count);
/* The steps of a sequence of nodes, with repeats. */
uint32_t *ul_problem_graph_steps(struct ul_arena *arena, const struct ul_problem_graph *graph,
                                 const uint32_t *nodes, uint32_t count, uint32_t *step_count);

#endif
