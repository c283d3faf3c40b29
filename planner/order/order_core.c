/* SPDX-License-Identifier: Apache-2.0 */
/* The engines' form of a problem of order: made from a graph, cut into slices, reversed. */
#include "planner/model/problem.h"
#include "planner/order/order_internal.h"

#include <string.h>

enum {
    AT_START = 0,        /* positions are counted from 1 in first and last */
    LAZY_EDGES_MORE = 16 /* edges that leaving out one lazy node may add */
};

/* ---- From a graph ---- */

struct maker {
    const struct ul_solve_graph *graph;
    struct ul_arena *arena;
    struct ul_order_core *core;
    uint8_t *lazy;    /* by graph node */
    uint32_t *number; /* by graph node: its number in the core */
    uint32_t *value;  /* by graph node: its value's number in the core, or UL_PLAN_NONE */
};

static uint64_t working_of(const struct ul_solve_graph *g, uint32_t v)
{
    return g->working_bytes != NULL ? g->working_bytes[v] : 0;
}

/* Without a lazy node each of its readers waits for each of its inputs: for nodes with many inputs
 * and many readers that would be far more edges than the graph itself has. */
static bool few_edges(const struct ul_solve_graph *g, uint32_t v)
{
    uint64_t inputs = g->input_first[v + 1] - g->input_first[v];
    uint64_t users = g->user_first[v + 1] - g->user_first[v];
    return inputs * users <= inputs + users + LAZY_EDGES_MORE;
}

/* A node that needs nothing and whose run frees nothing loses nothing by waiting for the first of
 * its readers. */
static void lazy_find(struct maker *m, const uint32_t *order)
{
    const struct ul_solve_graph *g = m->graph;
    for (uint32_t i = 0; i < g->node_count; i++) {
        uint32_t v = order[i];
        bool lazy = g->size_bytes[v] > 0 && working_of(g, v) == 0 &&
                    g->user_first[v] < g->user_first[v + 1] && few_edges(g, v);
        for (uint32_t k = g->input_first[v]; k < g->input_first[v + 1] && lazy; k++)
            lazy = g->size_bytes[g->inputs[k]] == 0 && !m->lazy[g->inputs[k]];
        m->lazy[v] = lazy;
    }
}

/* Numbers values that two nodes or more touch; a value that only one node touches is part of its
 * working bytes. */
static void values_number(struct maker *m)
{
    const struct ul_solve_graph *g = m->graph;
    struct ul_order_core *c = m->core;
    c->size_bytes = UL_NEW_ARRAY(m->arena, uint64_t, g->node_count);
    c->flags = UL_NEW_ARRAY(m->arena, uint8_t, g->node_count);
    for (uint32_t v = 0; v < g->node_count; v++) {
        uint32_t users = g->user_first[v + 1] - g->user_first[v];
        uint32_t alone = m->lazy[v] ? g->users[g->user_first[v]] : v;
        m->value[v] = UL_PLAN_NONE;
        if (g->size_bytes[v] == 0)
            continue;
        if (users + !m->lazy[v] >= 2) {
            m->value[v] = c->value_count;
            c->size_bytes[c->value_count++] = g->size_bytes[v];
        } else {
            c->working_bytes[m->number[alone]] += g->size_bytes[v];
        }
    }
}

static void node_reuse(struct maker *m, uint32_t v)
{
    const struct ul_solve_graph *g = m->graph;
    struct ul_order_core *c = m->core;
    uint32_t at = m->number[v];
    uint32_t from = g->in_place != NULL ? g->in_place[v] : UL_PLAN_NONE;
    c->reuse_value[at] = UL_PLAN_NONE;
    if (from == UL_PLAN_NONE)
        return;
    uint64_t bytes = g->size_bytes[from];
    bytes = g->size_bytes[v] < bytes ? g->size_bytes[v] : bytes;
    c->reuse_value[at] = m->value[from];
    c->reuse_bytes[at] = bytes;
    /* A value that only this node reads dies here in every order. */
    if (m->value[from] == UL_PLAN_NONE && bytes > 0)
        c->working_bytes[at] -= bytes;
}

/* Fills one node's preds and touches, at the ends of the lists. */
static void node_lists(struct maker *m, uint32_t v)
{
    const struct ul_solve_graph *g = m->graph;
    struct ul_order_core *c = m->core;
    uint32_t at = m->number[v];
    uint32_t pred = c->pred_first[at];
    uint32_t touch = c->touch_first[at];
    if (m->value[v] != UL_PLAN_NONE)
        c->touches[touch++] = m->value[v];
    for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++) {
        uint32_t u = g->inputs[i];
        if (m->value[u] != UL_PLAN_NONE)
            c->touches[touch++] = m->value[u];
        if (!m->lazy[u]) {
            c->preds[pred++] = m->number[u];
            continue;
        }
        for (uint32_t k = g->input_first[u]; k < g->input_first[u + 1]; k++)
            c->preds[pred++] = m->number[g->inputs[k]];
    }
    c->pred_first[at + 1] = pred;
    c->touch_first[at + 1] = touch;
}

static uint64_t preds_count(const struct maker *m)
{
    const struct ul_solve_graph *g = m->graph;
    uint64_t count = 0;
    for (uint32_t v = 0; v < g->node_count; v++) {
        uint32_t inputs = g->input_first[v + 1] - g->input_first[v];
        uint32_t users = g->user_first[v + 1] - g->user_first[v];
        count += m->lazy[v] ? (uint64_t)inputs * users : inputs;
    }
    return count;
}

static void nodes_make(struct maker *m, const uint32_t *order)
{
    const struct ul_solve_graph *g = m->graph;
    struct ul_order_core *c = m->core;
    uint32_t n = g->node_count;
    c->nodes = UL_NEW_ARRAY(m->arena, uint32_t, n);
    for (uint32_t i = 0; i < n; i++) {
        if (m->lazy[order[i]])
            continue;
        m->number[order[i]] = c->node_count;
        c->nodes[c->node_count++] = order[i];
    }
    c->working_bytes = UL_NEW_ARRAY(m->arena, uint64_t, c->node_count);
    c->reuse_value = UL_NEW_ARRAY(m->arena, uint32_t, c->node_count);
    c->reuse_bytes = UL_NEW_ARRAY(m->arena, uint64_t, c->node_count);
    c->pred_first = UL_NEW_ARRAY(m->arena, uint32_t, (uint64_t)c->node_count + 1);
    c->touch_first = UL_NEW_ARRAY(m->arena, uint32_t, (uint64_t)c->node_count + 1);
    c->preds = UL_NEW_ARRAY(m->arena, uint32_t, preds_count(m));
    c->touches = UL_NEW_ARRAY(m->arena, uint32_t, (uint64_t)n + g->input_first[n]);
    for (uint32_t i = 0; i < c->node_count; i++)
        c->working_bytes[i] = working_of(g, c->nodes[i]);
    values_number(m);
    for (uint32_t i = 0; i < c->node_count; i++) {
        node_lists(m, c->nodes[i]);
        node_reuse(m, c->nodes[i]);
    }
}

void ul_order_core_make(struct ul_arena *arena, const struct ul_solve_graph *graph,
                        const uint32_t *order, struct ul_order_core *core)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct maker m = {.graph = graph, .arena = arena, .core = core};
    memset(core, 0, sizeof *core);
    m.lazy = ul_arena_alloc(&scratch, graph->node_count);
    m.number = UL_NEW_ARRAY(&scratch, uint32_t, graph->node_count);
    m.value = UL_NEW_ARRAY(&scratch, uint32_t, graph->node_count);
    core->start_bytes = graph->base_bytes;
    lazy_find(&m, order);
    nodes_make(&m, order);
    ul_arena_done(&scratch);
}

void ul_order_core_expand(struct ul_arena *scratch, const struct ul_solve_graph *graph,
                          const struct ul_order_core *core, const uint32_t *order,
                          uint32_t *graph_order)
{
    uint8_t *done = ul_arena_alloc(scratch, graph->node_count);
    uint32_t count = 0;
    for (uint32_t i = 0; i < core->node_count; i++) {
        uint32_t v = core->nodes[order[i]];
        for (uint32_t k = graph->input_first[v]; k < graph->input_first[v + 1]; k++) {
            uint32_t u = graph->inputs[k];
            if (!done[u])
                graph_order[count++] = u;
            done[u] = 1;
        }
        graph_order[count++] = v;
        done[v] = 1;
    }
    UL_ASSERT(count == graph->node_count);
}

/* ---- Profile ---- */

uint64_t ul_order_core_peak(struct ul_arena *scratch, const struct ul_order_core *core,
                            const uint32_t *order, uint64_t *before_bytes, uint64_t *during_bytes)
{
    uint32_t *left = UL_NEW_ARRAY(scratch, uint32_t, core->value_count);
    uint8_t *born = ul_arena_alloc(scratch, core->value_count);
    for (uint32_t i = 0; i < core->touch_first[core->node_count]; i++)
        left[core->touches[i]]++;
    for (uint32_t v = 0; v < core->value_count; v++) {
        left[v] += (core->flags[v] & UL_ORDER_STAYS) != 0;
        born[v] = (core->flags[v] & UL_ORDER_OPEN) != 0;
    }
    uint64_t live = core->start_bytes;
    uint64_t peak = live;
    for (uint32_t i = 0; i < core->node_count; i++) {
        uint32_t v = order[i];
        uint32_t take = core->reuse_value[v];
        uint64_t shared = 0;
        if (before_bytes != NULL)
            before_bytes[i] = live;
        if (take != UL_PLAN_NONE && (core->reversed ? !born[take] : left[take] == 1))
            shared = core->reuse_bytes[v];
        for (uint32_t k = core->touch_first[v]; k < core->touch_first[v + 1]; k++) {
            uint32_t value = core->touches[k];
            live += born[value] ? 0 : core->size_bytes[value];
            born[value] = 1;
        }
        uint64_t during = live + core->working_bytes[v] - shared;
        peak = during > peak ? during : peak;
        if (during_bytes != NULL)
            during_bytes[i] = during;
        for (uint32_t k = core->touch_first[v]; k < core->touch_first[v + 1]; k++)
            live -= --left[core->touches[k]] == 0 ? core->size_bytes[core->touches[k]] : 0;
    }
    UL_ASSERT(peak >= core->start_bytes);
    return peak;
}

/* ---- Slices ---- */

void ul_order_slicer_init(struct ul_arena *arena, const struct ul_order_core *core,
                          const uint32_t *order, struct ul_order_slicer *slicer)
{
    uint32_t after = core->node_count + 1;
    slicer->core = core;
    slicer->order = order;
    slicer->place = UL_NEW_ARRAY(arena, uint32_t, core->node_count);
    slicer->first = UL_NEW_ARRAY(arena, uint32_t, core->value_count);
    slicer->last = UL_NEW_ARRAY(arena, uint32_t, core->value_count);
    slicer->local = UL_NEW_ARRAY(arena, uint32_t, core->value_count);
    for (uint32_t v = 0; v < core->value_count; v++) {
        slicer->first[v] = (core->flags[v] & UL_ORDER_OPEN) != 0 ? AT_START : after;
        slicer->last[v] = (core->flags[v] & UL_ORDER_STAYS) != 0 ? after : AT_START;
        slicer->local[v] = UL_PLAN_NONE;
    }
    for (uint32_t i = 0; i < core->node_count; i++) {
        uint32_t node = order[i];
        slicer->place[node] = i;
        for (uint32_t k = core->touch_first[node]; k < core->touch_first[node + 1]; k++) {
            uint32_t v = core->touches[k];
            slicer->first[v] = i + 1 < slicer->first[v] ? i + 1 : slicer->first[v];
            slicer->last[v] = i + 1 > slicer->last[v] ? i + 1 : slicer->last[v];
        }
    }
}

static void slice_alloc(struct ul_arena *arena, const struct ul_order_slicer *s, uint32_t begin,
                        uint32_t end, struct ul_order_core *slice)
{
    const struct ul_order_core *core = s->core;
    uint64_t preds = 0;
    uint64_t touches = 0;
    for (uint32_t i = begin; i < end; i++) {
        uint32_t v = s->order[i];
        preds += core->pred_first[v + 1] - core->pred_first[v];
        touches += core->touch_first[v + 1] - core->touch_first[v];
    }
    uint64_t n = end - begin;
    slice->nodes = UL_NEW_ARRAY(arena, uint32_t, n);
    slice->working_bytes = UL_NEW_ARRAY(arena, uint64_t, n);
    slice->reuse_value = UL_NEW_ARRAY(arena, uint32_t, n);
    slice->reuse_bytes = UL_NEW_ARRAY(arena, uint64_t, n);
    slice->pred_first = UL_NEW_ARRAY(arena, uint32_t, n + 1);
    slice->touch_first = UL_NEW_ARRAY(arena, uint32_t, n + 1);
    slice->preds = UL_NEW_ARRAY(arena, uint32_t, preds);
    slice->touches = UL_NEW_ARRAY(arena, uint32_t, touches);
    slice->size_bytes = UL_NEW_ARRAY(arena, uint64_t, touches);
    slice->flags = UL_NEW_ARRAY(arena, uint8_t, touches);
}

/* Values that live before and after the slice do not matter in it. */
static void slice_touch(struct ul_order_slicer *s, uint32_t begin, uint32_t end, uint32_t value,
                        struct ul_order_core *slice)
{
    bool open = s->first[value] < begin + 1;
    bool stays = s->last[value] > end;
    if (open && stays)
        return;
    if (s->local[value] == UL_PLAN_NONE) {
        s->local[value] = slice->value_count;
        slice->size_bytes[slice->value_count] = s->core->size_bytes[value];
        slice->flags[slice->value_count++] =
            (uint8_t)((open ? UL_ORDER_OPEN : 0) | (stays ? UL_ORDER_STAYS : 0));
    }
    slice->touches[slice->touch_first[slice->node_count + 1]++] = s->local[value];
}

static void slice_node(struct ul_order_slicer *s, uint32_t begin, uint32_t end, uint32_t node,
                       struct ul_order_core *slice)
{
    const struct ul_order_core *core = s->core;
    uint32_t at = slice->node_count;
    slice->nodes[at] = node;
    slice->working_bytes[at] = core->working_bytes[node];
    slice->pred_first[at + 1] = slice->pred_first[at];
    slice->touch_first[at + 1] = slice->touch_first[at];
    for (uint32_t k = core->pred_first[node]; k < core->pred_first[node + 1]; k++) {
        uint32_t place = s->place[core->preds[k]];
        if (place >= begin)
            slice->preds[slice->pred_first[at + 1]++] = place - begin;
    }
    for (uint32_t k = core->touch_first[node]; k < core->touch_first[node + 1]; k++)
        slice_touch(s, begin, end, core->touches[k], slice);
    uint32_t take = core->reuse_value[node];
    slice->reuse_value[at] = take == UL_PLAN_NONE ? take : s->local[take];
    slice->reuse_bytes[at] = core->reuse_bytes[node];
    slice->node_count++;
}

void ul_order_slice(struct ul_arena *arena, struct ul_order_slicer *slicer, uint32_t begin,
                    uint32_t end, uint64_t start_bytes, struct ul_order_core *slice)
{
    UL_ASSERT(begin < end && end <= slicer->core->node_count);
    const struct ul_order_core *core = slicer->core;
    memset(slice, 0, sizeof *slice);
    slice->start_bytes = start_bytes;
    slice->reversed = core->reversed;
    slice_alloc(arena, slicer, begin, end, slice);
    for (uint32_t i = begin; i < end; i++)
        slice_node(slicer, begin, end, slicer->order[i], slice);
    for (uint32_t i = begin; i < end; i++) {
        uint32_t node = slicer->order[i];
        for (uint32_t k = core->touch_first[node]; k < core->touch_first[node + 1]; k++)
            slicer->local[core->touches[k]] = UL_PLAN_NONE;
    }
}

/* ---- Backwards ---- */

static void preds_reverse(struct ul_arena *arena, const struct ul_order_core *core,
                          struct ul_order_core *r)
{
    uint32_t n = core->node_count;
    r->pred_first = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)n + 2);
    r->preds = UL_NEW_ARRAY(arena, uint32_t, core->pred_first[n]);
    for (uint32_t i = 0; i < core->pred_first[n]; i++)
        r->pred_first[n - 1 - core->preds[i] + 2]++;
    for (uint32_t v = 0; v < n; v++)
        r->pred_first[v + 1] += r->pred_first[v];
    for (uint32_t v = n; v-- > 0;) {
        for (uint32_t k = core->pred_first[v]; k < core->pred_first[v + 1]; k++)
            r->preds[r->pred_first[n - 1 - core->preds[k] + 1]++] = n - 1 - v;
    }
}

void ul_order_core_reverse(struct ul_arena *arena, const struct ul_order_core *core,
                           struct ul_order_core *reversed)
{
    UL_ASSERT(core != reversed);
    uint32_t n = core->node_count;
    struct ul_order_core *r = reversed;
    *r = *core;
    r->reversed = !core->reversed;
    r->nodes = UL_NEW_ARRAY(arena, uint32_t, n);
    r->working_bytes = UL_NEW_ARRAY(arena, uint64_t, n);
    r->reuse_value = UL_NEW_ARRAY(arena, uint32_t, n);
    r->reuse_bytes = UL_NEW_ARRAY(arena, uint64_t, n);
    r->touch_first = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)n + 1);
    r->touches = UL_NEW_ARRAY(arena, uint32_t, core->touch_first[n]);
    r->flags = UL_NEW_ARRAY(arena, uint8_t, core->value_count);
    for (uint32_t v = 0; v < core->value_count; v++) {
        bool open = (core->flags[v] & UL_ORDER_OPEN) != 0;
        bool stays = (core->flags[v] & UL_ORDER_STAYS) != 0;
        r->flags[v] = (uint8_t)((stays ? UL_ORDER_OPEN : 0) | (open ? UL_ORDER_STAYS : 0));
        r->start_bytes += stays ? core->size_bytes[v] : 0;
        r->start_bytes -= open ? core->size_bytes[v] : 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t v = n - 1 - i;
        r->nodes[i] = v;
        r->working_bytes[i] = core->working_bytes[v];
        r->reuse_value[i] = core->reuse_value[v];
        r->reuse_bytes[i] = core->reuse_bytes[v];
        r->touch_first[i + 1] = r->touch_first[i];
        for (uint32_t k = core->touch_first[v]; k < core->touch_first[v + 1]; k++)
            r->touches[r->touch_first[i + 1]++] = core->touches[k];
    }
    preds_reverse(arena, core, r);
}

/* ---- Links ---- */

/* Turns lists of items (`count` of these) by node into lists of nodes by item, in the nodes'
 * order. */
static void lists_turn(struct ul_arena *arena, uint32_t node_count, const uint32_t *first,
                       const uint32_t *items, uint32_t count, uint32_t **turned_first,
                       uint32_t **turned)
{
    uint32_t *begin = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)count + 2);
    uint32_t *nodes = UL_NEW_ARRAY(arena, uint32_t, first[node_count]);
    for (uint32_t i = 0; i < first[node_count]; i++)
        begin[items[i] + 2]++;
    for (uint32_t v = 0; v < count; v++)
        begin[v + 1] += begin[v];
    for (uint32_t node = 0; node < node_count; node++) {
        for (uint32_t k = first[node]; k < first[node + 1]; k++)
            nodes[begin[items[k] + 1]++] = node;
    }
    *turned_first = begin;
    *turned = nodes;
}

void ul_order_links_make(struct ul_arena *arena, const struct ul_order_core *core,
                         struct ul_order_links *links)
{
    uint32_t n = core->node_count;
    lists_turn(arena, n, core->pred_first, core->preds, n, &links->succ_first, &links->succs);
    lists_turn(arena, n, core->touch_first, core->touches, core->value_count, &links->value_first,
               &links->value_nodes);
}
