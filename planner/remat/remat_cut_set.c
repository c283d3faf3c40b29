/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the values of a forward pass that are kept where bytes have a price: a smallest cut.
 *
 * Problem: each value of the forward pass that the backward pass needs is either kept, at its
 * bytes' price, or recomputed once, at its cost, which needs its operands too. Which set costs
 * least? Method: each value has two nodes of a network; statements after the cut hold.
 *
 *      source --cost--> (v runs again) ----price of its bytes--> (v is needed) --> sink, if the
 *                              ^                                                    backward pass
 *                              +--- (u is needed), u being read by v                reads v
 *
 * Edges without a label have infinite capacity, and so has the cost of a node that may not run
 * again. Equal parts, such as the layers of a network, would all change at one price; with costs
 * that rise or fall slightly along the order, they change one after the other. After the
 * partitioner of PyTorch (He, Yu, "Transcending Runtime-Memory Tradeoffs in Checkpointing by being
 * Fusion Aware", MLSys 2023), which keeps all costly work from running again except for what a
 * knapsack allows. Left undone: bytes count only where backward begins, and only those that are
 * kept. */
#include "planner/remat/remat_internal.h"

#include <math.h>

#define NO_EDGE UINT32_MAX

/* Where most bytes wait for a reader: backward is assumed to begin there if the forward pass is not
 * given. */
static uint32_t widest_position(const struct ul_cut_set *c, struct ul_arena *arena)
{
    const struct ul_solve_graph *g = c->graph;
    uint64_t *ends = UL_NEW_ARRAY(arena, uint64_t, g->node_count);
    uint64_t live = 0, max = 0;
    uint32_t widest = 0;
    for (uint32_t p = 0; p < g->node_count; p++) {
        uint32_t v = c->order[p], last = p;
        for (uint32_t i = g->user_first[v]; i < g->user_first[v + 1]; i++)
            last = c->place[g->users[i]] > last ? c->place[g->users[i]] : last;
        ends[last] += g->size_bytes[v];
        live += g->size_bytes[v] - ends[p];
        widest = live > max ? p + 1 : widest;
        max = live > max ? live : max;
    }
    return widest;
}

/* Whether something of the backward pass reads it at a position or later. */
static bool is_read_from(const struct ul_cut_set *c, uint32_t v, uint32_t position)
{
    const struct ul_solve_graph *g = c->graph;
    bool any = false;
    for (uint32_t i = g->user_first[v]; i < g->user_first[v + 1]; i++)
        any = any || (!c->is_forward[g->users[i]] && c->place[g->users[i]] >= position);
    return any;
}

static void find_forward(struct ul_cut_set *c, struct ul_arena *arena, const bool *is_forward)
{
    const struct ul_solve_graph *g = c->graph;
    uint32_t widest = is_forward == NULL ? widest_position(c, arena) : 0;
    c->is_forward = UL_NEW_ARRAY(arena, bool, g->node_count);
    for (uint32_t v = 0; v < g->node_count; v++)
        c->is_forward[v] = is_forward == NULL ? c->place[v] < widest : is_forward[v];
    for (uint32_t v = 0; v < g->node_count; v++) {
        bool is_last = c->is_forward[v] && c->place[v] >= c->border && g->size_bytes[v] > 0;
        if (is_last && is_read_from(c, v, 0))
            c->border = c->place[v] + 1;
    }
}

static bool may_repeat(const struct ul_cut_set *c, uint32_t v)
{
    return c->graph->run_once == NULL || !c->graph->run_once[v];
}

/* Whether it is live, or is made before the border, and takes bytes. */
static bool is_inside(const struct ul_cut_set *c, uint32_t v)
{
    return c->is_forward[v] && c->place[v] < c->border && c->graph->size_bytes[v] > 0;
}

/* Node 2 v says after the cut that value v runs again, and node 2 v + 1 that it is needed. */
static void network_make(struct ul_cut_set *c, struct ul_arena *arena)
{
    const struct ul_solve_graph *g = c->graph;
    uint32_t n = g->node_count, source = 2 * n, sink = 2 * n + 1;
    ul_flow_init(&c->flow, arena, 2 * n + 2, 3 * n + g->input_first[n]);
    c->kept_edge = UL_NEW_ARRAY(arena, uint32_t, n);
    c->cost_edge = UL_NEW_ARRAY(arena, uint32_t, n);
    for (uint32_t v = 0; v < n; v++) {
        c->kept_edge[v] = c->cost_edge[v] = NO_EDGE;
        if (!is_inside(c, v))
            continue;
        c->kept_edge[v] = ul_flow_edge(&c->flow, 2 * v, 2 * v + 1, 0);
        c->cost_edge[v] = ul_flow_edge(&c->flow, source, 2 * v, 0);
        if (is_read_from(c, v, c->border))
            ul_flow_edge(&c->flow, 2 * v + 1, sink, UL_FLOW_ENDLESS);
        for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1] && may_repeat(c, v); i++) {
            if (is_inside(c, g->inputs[i]))
                ul_flow_edge(&c->flow, 2 * g->inputs[i] + 1, 2 * v, UL_FLOW_ENDLESS);
        }
    }
}

void ul_cut_set_init(struct ul_cut_set *set, struct ul_arena *arena,
                     const struct ul_solve_graph *graph, const uint32_t *order,
                     const bool *is_forward)
{
    uint32_t n = graph->node_count;
    *set = (struct ul_cut_set){.graph = graph, .order = order, .arena = arena};
    set->place = UL_NEW_ARRAY(arena, uint32_t, n);
    for (uint32_t p = 0; p < n; p++)
        set->place[order[p]] = p;
    find_forward(set, arena, is_forward);
    network_make(set, arena);
    set->is_before = UL_NEW_ARRAY(arena, bool, 2 * (uint64_t)n + 2);
    set->is_kept = UL_NEW_ARRAY(arena, bool, n);
    for (uint32_t v = 0; v < n; v++) {
        set->cost_sum += (double)graph->cost[v];
        set->bytes_sum += (double)graph->size_bytes[v];
    }
}

uint64_t ul_cut_set_at(struct ul_cut_set *set, double price_exponent, double slope)
{
    /* of capacities: every cost adds up to this */
    const double scale = (double)((uint64_t)1 << 34);
    const struct ul_solve_graph *g = set->graph;
    uint32_t n = g->node_count;
    uint64_t kept_bytes = 0;
    UL_ASSERT(price_exponent <= UL_CUT_DEAREST && slope > -1);
    for (uint32_t v = 0; v < n; v++) {
        if (set->kept_edge[v] == NO_EDGE)
            continue;
        double bytes = (double)g->size_bytes[v] / set->bytes_sum * exp2(price_exponent);
        double tilt = 1 + slope * (double)set->place[v] / (double)set->border;
        double cost = set->cost_sum > 0 ? (double)g->cost[v] / set->cost_sum * tilt : 0;
        /* One more, so that among sets of equal cost the cut prefers fewer values. */
        set->flow.capacity[set->kept_edge[v]] = (uint64_t)(bytes * scale) + 1;
        set->flow.capacity[set->cost_edge[v]] =
            may_repeat(set, v) ? (uint64_t)(cost * scale) : UL_FLOW_ENDLESS;
    }
    ul_flow_cut(&set->flow, set->arena, 2 * n, 2 * n + 1, set->is_before);
    for (uint32_t v = 0; v < n; v++) {
        set->is_kept[v] =
            set->kept_edge[v] != NO_EDGE && set->is_before[2 * v] && !set->is_before[2 * v + 1];
        kept_bytes += set->is_kept[v] ? g->size_bytes[v] : 0;
    }
    return kept_bytes;
}
