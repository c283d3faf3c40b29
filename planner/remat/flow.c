/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the smallest cut of a network, by the largest flow through it.
 *
 * Problem: cut a network so that the sum of cut capacities is least. Method: Dinic's algorithm.
 * Levels are distances from the source along edges with capacity left. Flow is sent along edges
 * from one level to the next until nothing more passes; then levels are made again. When the sink
 * has no level, the nodes with a level are before the cut. */
#include "planner/remat/flow.h"

#include <string.h>

void ul_flow_init(struct ul_flow *flow, struct ul_arena *arena, uint32_t node_count,
                  uint32_t edge_capacity)
{
    UL_ASSERT(node_count >= 2);
    *flow = (struct ul_flow){.node_count = node_count, .edge_capacity = edge_capacity};
    flow->from = UL_NEW_ARRAY(arena, uint32_t, edge_capacity);
    flow->to = UL_NEW_ARRAY(arena, uint32_t, edge_capacity);
    flow->capacity = UL_NEW_ARRAY(arena, uint64_t, edge_capacity);
}

uint32_t ul_flow_edge(struct ul_flow *flow, uint32_t from, uint32_t to, uint64_t capacity)
{
    UL_ASSERT(flow->edge_count < flow->edge_capacity && flow->arcs == NULL);
    UL_ASSERT(from < flow->node_count && to < flow->node_count && capacity <= UL_FLOW_ENDLESS);
    flow->from[flow->edge_count] = from;
    flow->to[flow->edge_count] = to;
    flow->capacity[flow->edge_count] = capacity;
    return flow->edge_count++;
}

static void arcs_make(struct ul_flow *f, struct ul_arena *arena)
{
    uint32_t n = f->node_count;
    f->arc_first = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)n + 2);
    f->arcs = UL_NEW_ARRAY(arena, uint32_t, 2 * (uint64_t)f->edge_count);
    f->left = UL_NEW_ARRAY(arena, uint64_t, 2 * (uint64_t)f->edge_count);
    f->level = UL_NEW_ARRAY(arena, uint32_t, n);
    f->at = UL_NEW_ARRAY(arena, uint32_t, n);
    f->path = UL_NEW_ARRAY(arena, uint32_t, n);
    f->queue = UL_NEW_ARRAY(arena, uint32_t, n);
    for (uint32_t e = 0; e < f->edge_count; e++) {
        f->arc_first[f->from[e] + 2]++;
        f->arc_first[f->to[e] + 2]++;
    }
    for (uint32_t v = 0; v < n; v++)
        f->arc_first[v + 2] += f->arc_first[v + 1];
    for (uint32_t e = 0; e < f->edge_count; e++) {
        f->arcs[f->arc_first[f->from[e] + 1]++] = 2 * e;
        f->arcs[f->arc_first[f->to[e] + 1]++] = 2 * e + 1;
    }
}

static uint32_t arc_end(const struct ul_flow *f, uint32_t arc)
{
    return arc % 2 == 0 ? f->to[arc / 2] : f->from[arc / 2];
}

/* False if the sink cannot be reached. */
static bool levels_make(struct ul_flow *f, uint32_t source, uint32_t sink)
{
    uint32_t count = 0;
    memset(f->level, 0, f->node_count * sizeof *f->level);
    f->level[source] = 1;
    f->queue[count++] = source;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t v = f->queue[i];
        for (uint32_t a = f->arc_first[v]; a < f->arc_first[v + 1]; a++) {
            uint32_t end = arc_end(f, f->arcs[a]);
            if (f->left[f->arcs[a]] == 0 || f->level[end] != 0)
                continue;
            f->level[end] = f->level[v] + 1;
            f->queue[count++] = end;
        }
        f->work += f->arc_first[v + 1] - f->arc_first[v];
    }
    return f->level[sink] != 0;
}

/* The next arc from `node` that may lead to the sink, or false. */
static bool arc_next(struct ul_flow *f, uint32_t node)
{
    for (; f->at[node] < f->arc_first[node + 1]; f->at[node]++) {
        uint32_t arc = f->arcs[f->at[node]];
        f->work++;
        if (f->left[arc] > 0 && f->level[arc_end(f, arc)] == f->level[node] + 1)
            return true;
    }
    return false;
}

/* Sends what passes along the path; returns the depth from which the path can be continued. */
static uint32_t path_send(struct ul_flow *f, uint32_t depth, uint64_t *sent)
{
    uint64_t least = UINT64_MAX;
    uint32_t from = 0;
    for (uint32_t i = 0; i < depth; i++)
        least = f->left[f->path[i]] < least ? f->left[f->path[i]] : least;
    for (uint32_t i = depth; i-- > 0;) {
        f->left[f->path[i]] -= least;
        f->left[f->path[i] ^ 1] += least;
        from = f->left[f->path[i]] == 0 ? i : from;
    }
    *sent += least;
    return from;
}

/* Sends all that passes along edges from one level to the next. */
static uint64_t levels_send(struct ul_flow *f, uint32_t source, uint32_t sink)
{
    uint64_t sent = 0;
    uint32_t depth = 0, node = source;
    memcpy(f->at, f->arc_first, f->node_count * sizeof *f->at);
    for (;;) {
        if (node == sink) {
            depth = path_send(f, depth, &sent);
            node = arc_end(f, f->path[depth] ^ 1);
        } else if (arc_next(f, node)) {
            f->path[depth] = f->arcs[f->at[node]];
            node = arc_end(f, f->path[depth++]);
        } else if (depth == 0) {
            return sent;
        } else {
            node = arc_end(f, f->path[--depth] ^ 1);
            f->at[node]++;
        }
    }
}

uint64_t ul_flow_cut(struct ul_flow *flow, struct ul_arena *arena, uint32_t source, uint32_t sink,
                     bool *before)
{
    uint64_t sent = 0;
    UL_ASSERT(source < flow->node_count && sink < flow->node_count && source != sink);
    if (flow->arcs == NULL)
        arcs_make(flow, arena);
    for (uint32_t e = 0; e < flow->edge_count; e++) {
        UL_ASSERT(flow->capacity[e] <= UL_FLOW_ENDLESS);
        flow->left[2 * e] = flow->capacity[e];
        flow->left[2 * e + 1] = 0;
    }
    while (levels_make(flow, source, sink))
        sent += levels_send(flow, source, sink);
    for (uint32_t v = 0; v < flow->node_count; v++)
        before[v] = flow->level[v] != 0;
    UL_ASSERT(before[source] && !before[sink]);
    return sent;
}
