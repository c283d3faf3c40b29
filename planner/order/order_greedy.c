/* SPDX-License-Identifier: Apache-2.0 */
/* Orders in near-linear time: by memory freed minus memory allocated, and depth-first.
 *
 * The amount that a ready node adds to the live sum changes only when a value that it touches is
 * born, or has no other toucher left. Ready touchers then get a new entry in the heap, and entries
 * that are popped twice or with an old key are skipped. */
#include "planner/order/order_internal.h"

#include <string.h>

struct greedy {
    const struct ul_order_core *core;
    struct ul_order_links links;
    uint32_t *waits; /* by node: preds that have not run */
    uint32_t *left;  /* by value: touches to come, plus one if it stays */
    uint8_t *born;   /* by value */
    uint8_t *done;
    struct ul_heap ready; /* by growth, then by number: nodes are numbered along an order */
};

/* The bytes after the node minus those before it, as a rank. */
static uint64_t growth(const struct greedy *g, uint32_t node)
{
    const struct ul_order_core *c = g->core;
    int64_t bytes = 0;
    for (uint32_t k = c->touch_first[node]; k < c->touch_first[node + 1]; k++) {
        uint32_t value = c->touches[k];
        bytes += g->born[value] ? 0 : (int64_t)c->size_bytes[value];
        bytes -= g->left[value] == 1 ? (int64_t)c->size_bytes[value] : 0;
    }
    return (uint64_t)bytes + (UINT64_C(1) << 63);
}

static void node_offer(struct greedy *g, struct ul_arena *scratch, uint32_t node)
{
    ul_heap_push(scratch, &g->ready, growth(g, node), node);
}

/* Renews the entries of ready nodes that touch `value`: they have become better. */
static void value_offer(struct greedy *g, struct ul_arena *scratch, uint32_t value)
{
    for (uint32_t i = g->links.value_first[value]; i < g->links.value_first[value + 1]; i++) {
        uint32_t node = g->links.value_nodes[i];
        if (!g->done[node] && g->waits[node] == 0)
            node_offer(g, scratch, node);
    }
}

static void node_run(struct greedy *g, struct ul_arena *scratch, uint32_t node)
{
    const struct ul_order_core *c = g->core;
    g->done[node] = 1;
    for (uint32_t k = c->touch_first[node]; k < c->touch_first[node + 1]; k++) {
        uint32_t value = c->touches[k];
        bool fresh = !g->born[value];
        g->born[value] = 1;
        if (--g->left[value] == 1 || fresh)
            value_offer(g, scratch, value);
    }
    for (uint32_t i = g->links.succ_first[node]; i < g->links.succ_first[node + 1]; i++) {
        if (--g->waits[g->links.succs[i]] == 0)
            node_offer(g, scratch, g->links.succs[i]);
    }
}

static void left_make(struct greedy *g, struct ul_arena *scratch)
{
    const struct ul_order_core *c = g->core;
    const uint32_t *first = g->links.value_first;
    g->left = UL_NEW_ARRAY(scratch, uint32_t, c->value_count);
    g->born = ul_arena_alloc(scratch, c->value_count);
    for (uint32_t v = 0; v < c->value_count; v++) {
        g->left[v] = first[v + 1] - first[v] + ((c->flags[v] & UL_ORDER_STAYS) != 0);
        g->born[v] = (c->flags[v] & UL_ORDER_OPEN) != 0;
    }
}

void ul_order_greedy(struct ul_arena *scratch, const struct ul_order_core *core, uint32_t *order)
{
    struct greedy g = {.core = core};
    ul_order_links_make(scratch, core, &g.links);
    left_make(&g, scratch);
    g.waits = UL_NEW_ARRAY(scratch, uint32_t, core->node_count);
    g.done = ul_arena_alloc(scratch, core->node_count);
    for (uint32_t v = 0; v < core->node_count; v++)
        g.waits[v] = core->pred_first[v + 1] - core->pred_first[v];
    for (uint32_t v = 0; v < core->node_count; v++) {
        if (g.waits[v] == 0)
            node_offer(&g, scratch, v);
    }
    uint32_t count = 0;
    while (g.ready.count > 0) {
        struct ul_ranked top = ul_heap_pop(&g.ready);
        if (g.done[top.index] || top.rank != growth(&g, top.index))
            continue;
        order[count++] = top.index;
        node_run(&g, scratch, top.index);
    }
    UL_ASSERT(count == core->node_count);
}

void ul_order_depth_first(struct ul_arena *scratch, const struct ul_order_core *core,
                          uint32_t *order)
{
    uint32_t n = core->node_count;
    uint32_t *stack = UL_NEW_ARRAY(scratch, uint32_t, (uint64_t)n + 1);
    uint32_t *next = UL_NEW_ARRAY(scratch, uint32_t, n);
    uint8_t *seen = ul_arena_alloc(scratch, n);
    uint8_t *is_pred = ul_arena_alloc(scratch, n);
    uint32_t count = 0;
    for (uint32_t i = 0; i < core->pred_first[n]; i++)
        is_pred[core->preds[i]] = 1;
    for (uint32_t root = 0; root < n; root++) {
        if (is_pred[root])
            continue;
        uint32_t depth = 0;
        stack[depth++] = root;
        seen[root] = 1;
        while (depth > 0) {
            uint32_t v = stack[depth - 1];
            uint32_t at = core->pred_first[v] + next[v];
            if (at == core->pred_first[v + 1]) {
                order[count++] = v;
                depth--;
                continue;
            }
            next[v]++;
            if (!seen[core->preds[at]]) {
                seen[core->preds[at]] = 1;
                stack[depth++] = core->preds[at];
            }
        }
    }
    UL_ASSERT(count == n);
}
