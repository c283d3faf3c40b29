/* SPDX-License-Identifier: Apache-2.0 */
/* A network with capacities, and its smallest cut.
 *
 * Invariants: what can flow sums to less than 2^62 (edges of more are without a limit). Nodes and
 * edges are numbered as they were put in. Ownership: all of it lives in the arena that _init is
 * handed. */
#ifndef UL_PLANNER_REMAT_FLOW_H
#define UL_PLANNER_REMAT_FLOW_H

#include "base/base.h"

/* More than any cut that is sought. */
#define UL_FLOW_ENDLESS ((uint64_t)1 << 60)

struct ul_flow {
    uint32_t node_count, edge_count, edge_capacity;
    uint32_t *from, *to; /* per edge */
    uint64_t *capacity;  /* per edge */
    /* fixed by the first cut */
    uint32_t *arc_first; /* per node, node_count + 1 entries: edges at it, both ways */
    uint32_t *arcs;      /* edge * 2, and 1 more where it is gone along backwards */
    uint64_t *left;      /* per arc */
    uint32_t *level, *at, *path, *queue;
    uint64_t work; /* arcs looked at; counts up */
};

void ul_flow_init(struct ul_flow *flow, struct ul_arena *arena, uint32_t node_count,
                  uint32_t edge_capacity);
/* Returns the edge; its capacity may be changed between cuts. */
uint32_t ul_flow_edge(struct ul_flow *flow, uint32_t from, uint32_t to, uint64_t capacity);
/* The capacity of the smallest cut between the two. `before`: per node, whether it lies before the
 * cut, which of all smallest ones is the nearest to the source. Dinic, "Algorithm for solution of a
 * problem of maximum flow in networks with power estimation" (1970). */
uint64_t ul_flow_cut(struct ul_flow *flow, struct ul_arena *arena, uint32_t source, uint32_t sink,
                     bool *before);

#endif
