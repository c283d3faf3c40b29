/* SPDX-License-Identifier: Apache-2.0 */
/* An abstract graph of values and costs, on which order and recomputation are sought. */
#ifndef UL_PLANNER_MODEL_GRAPH_H
#define UL_PLANNER_MODEL_GRAPH_H

#include "base/base.h"

struct ul_plan_offload;

/* Running node v costs `cost` and makes one value of size_bytes, live from that step through its
 * last consumer's before the next copy is made (its own step, if nobody reads it). Inputs and
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
    const struct ul_plan_offload *other; /* takes the values of all nodes; NULL: there is none */
    /* What only graphs made from a problem have; NULL and 0 elsewhere. */
    uint64_t *working_bytes; /* per node: live while it runs, and no longer */
    uint32_t *in_place;      /* per node: an input whose bytes the output takes over where no later
                                step reads that copy (the smaller of both sizes counts once), or
                                UL_PLAN_NONE */
    bool *run_once;          /* per node: may not be repeated */
    uint64_t base_bytes;     /* live throughout, part of every peak */
};

/* replay.c */

/* What every node costs once. */
uint64_t ul_solve_base_cost(const struct ul_solve_graph *graph);

/* Replays a sequence by the definition: false if a step runs before its inputs were made. */
bool ul_solve_replay(const struct ul_solve_graph *graph, const uint32_t *sequence, uint32_t count,
                     uint64_t *peak_bytes, uint64_t *cost);

#endif
