/* SPDX-License-Identifier: Apache-2.0 */
/* An abstract graph of values and costs, on which order and recomputation are searched. */
#ifndef UL_PLANNER_MODEL_GRAPH_H
#define UL_PLANNER_MODEL_GRAPH_H

#include "base/base.h"

struct ul_plan_offload;

/* Running node v costs `cost` and makes one value of size_bytes, live from that step through its
 * last consumer's before the next copy is made (its own step, if nothing reads it). Inputs and
 * output of a step are live together. */
struct ul_solve_graph {
    const char *name;
    uint32_t node_count;
    const char **names;
    uint64_t *size_bytes;
    uint64_t *cost;
    uint32_t *input_first; /* node_count + 1 entries */
    uint32_t *inputs;
    uint32_t *user_first; /* node_count + 1 entries */
    uint32_t *users;
    uint32_t *order;                     /* the published one */
    const struct ul_plan_offload *other; /* takes the values of all nodes; NULL: none does */
    /* Only in graphs made from a problem; NULL and 0 elsewhere. */
    uint64_t *working_bytes; /* by node: live only while it runs */
    /* by node: an input whose bytes the output takes over where no later step reads that copy (the
     * smaller of both sizes counts once), or UL_PLAN_NONE */
    uint32_t *in_place;
    bool *run_once;      /* by node: may not be repeated */
    uint64_t base_bytes; /* always live, part of every peak */
};

/* replay.c */

/* The cost of running every node once. */
uint64_t ul_solve_base_cost(const struct ul_solve_graph *graph);

/* Replays a sequence by the definition: false if a step runs before its inputs were made. */
bool ul_solve_replay(const struct ul_solve_graph *graph, const uint32_t *sequence, uint32_t count,
                     uint64_t *peak_bytes, uint64_t *cost);

#endif
