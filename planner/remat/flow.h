/* SPDX-License-Identifier: Apache-2.0 */
/* A network with capacities, and its smallest cut.
 *
 * Invariants: the largest flow is less than 2^62 (edges with more have no limit). Nodes and edges
 * are numbered in the order of their adding. Ownership: everything lives in the arena passed to
 * _init. */
#ifndef UL_PLANNER_REMAT_FLOW_H
#define UL_PLANNER_REMAT_FLOW_H

#include "base/base.h"

/* More than any useful cut. */
#define UL_FLOW_ENDLESS ((uint64_t)1 << 60)

struct ul_flow {
    uint32_t node_count, edge_count, edge_capacity;
    uint32_t *from, *to; /* by edge */
    uint64_t *capacity;  /* by edge */
    /* fixed by the first cut */
    uint32_t *arc_first; /* by node, node_count + 1 entries: edges at it, in both directions */
    uint32_t *arcs;      /* edge * 2, plus 1 if it is followed backwards */
    uint64_t *left;      /* by arc */
    uint32_t *level, *at, *path, *queue;
    uint64_t work; /* arcs looked at; counts up */
};

void ul_flow_init(struct ul_flow *flow, struct ul_arena *arena, uint32_t node_count,
                  uint32_t edge_capacity);
/* Returns the edge; its capacity may be changed between cuts. */
uint32_t ul_flow_edge(struct ul_flow *flow, uint32_t from, uint32_t to, uint64_t capacity);
/* The capacity of the smallest cut between the two. `before`: by node, whether it is before the
 * cut; the smallest cut nearest to the source is taken. Dinic, "Algorithm for solution of a problem
 * of maximum flow in networks with power estimation" (1970). */
uint64_t ul_flow_cut(struct ul_flow *flow, struct ul_arena *arena, uint32_t source, uint32_t sink,
                     bool *before);

#endif
