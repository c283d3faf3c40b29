/* Orders in near-linear time: by memory freed less memory allocated, and depth-first.
 *
 * A ready node's gain changes only when a value of its inputs loses its last but one user; the
 * user that is left then gets a new entry in the heap, and whatever is popped twice or with a key
 * of the past is skipped. */
#include "planner/solve_internal.h"

#include <string.h>

struct entry {
    int64_t key;    /* bytes after less bytes before; the least first */
    uint32_t place; /* in the published order: breaks ties */
    uint32_t node;
};

struct greedy {
    const struct ul_solve_graph *graph;
    uint32_t *waits; /* per node: inputs not yet run */
    uint32_t *left;  /* per node: users not yet run */
    uint32_t *place;
    uint8_t *done;
    struct entry *heap;
    uint32_t count;
};

static bool entry_before(const struct entry *a, const struct entry *b)
{
    if (a->key != b->key)
        return a->key < b->key;
    return a->place < b->place;
}

static void heap_push(struct greedy *g, struct entry entry)
{
    uint32_t at = g->count++;
    while (at > 0 && entry_before(&entry, &g->heap[(at - 1) / 2])) {
        g->heap[at] = g->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    g->heap[at] = entry;
}

static struct entry heap_pop(struct greedy *g)
{
    struct entry top = g->heap[0];
    struct entry last = g->heap[--g->count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= g->count)
            break;
        if (child + 1 < g->count && entry_before(&g->heap[child + 1], &g->heap[child]))
            child++;
        if (!entry_before(&g->heap[child], &last))
            break;
        g->heap[at] = g->heap[child];
        at = child;
    }
    g->heap[at] = last;
    return top;
}

static int64_t growth(const struct greedy *g, uint32_t node)
{
    const struct ul_solve_graph *graph = g->graph;
    int64_t bytes = g->left[node] > 0 ? (int64_t)graph->size_bytes[node] : 0;
    for (uint32_t i = graph->input_first[node]; i < graph->input_first[node + 1]; i++) {
        if (g->left[graph->inputs[i]] == 1)
            bytes -= (int64_t)graph->size_bytes[graph->inputs[i]];
    }
    return bytes;
}

static void node_offer(struct greedy *g, uint32_t node)
{
    heap_push(g, (struct entry){growth(g, node), g->place[node], node});
}

/* The only user of `value` that has not run, if it is ready, has got better. */
static void last_user_offer(struct greedy *g, uint32_t value)
{
    const struct ul_solve_graph *graph = g->graph;
    for (uint32_t i = graph->user_first[value]; i < graph->user_first[value + 1]; i++) {
        uint32_t user = graph->users[i];
        if (!g->done[user] && g->waits[user] == 0)
            node_offer(g, user);
    }
}

static void node_run(struct greedy *g, uint32_t node)
{
    const struct ul_solve_graph *graph = g->graph;
    g->done[node] = 1;
    for (uint32_t i = graph->input_first[node]; i < graph->input_first[node + 1]; i++) {
        if (--g->left[graph->inputs[i]] == 1)
            last_user_offer(g, graph->inputs[i]);
    }
    for (uint32_t i = graph->user_first[node]; i < graph->user_first[node + 1]; i++) {
        if (--g->waits[graph->users[i]] == 0)
            node_offer(g, graph->users[i]);
    }
}

void ul_order_greedy(struct ul_arena *scratch, const struct ul_solve_graph *graph, uint32_t *order)
{
    struct greedy g = {.graph = graph};
    g.waits = UL_NEW_ARRAY(scratch, uint32_t, graph->node_count);
    g.left = UL_NEW_ARRAY(scratch, uint32_t, graph->node_count);
    g.place = UL_NEW_ARRAY(scratch, uint32_t, graph->node_count);
    g.done = ul_arena_alloc(scratch, graph->node_count);
    /* Each node once, and once for each input that gets down to it. */
    g.heap = UL_NEW_ARRAY(scratch, struct entry,
                          graph->node_count + (uint64_t)graph->input_first[graph->node_count]);
    for (uint32_t i = 0; i < graph->node_count; i++)
        g.place[graph->order[i]] = i;
    for (uint32_t v = 0; v < graph->node_count; v++) {
        g.waits[v] = graph->input_first[v + 1] - graph->input_first[v];
        g.left[v] = graph->user_first[v + 1] - graph->user_first[v];
    }
    for (uint32_t v = 0; v < graph->node_count; v++) {
        if (g.waits[v] == 0)
            node_offer(&g, v);
    }
    uint32_t count = 0;
    while (g.count > 0) {
        struct entry top = heap_pop(&g);
        if (g.done[top.node] || top.key != growth(&g, top.node))
            continue;
        order[count++] = top.node;
        node_run(&g, top.node);
    }
    UL_ASSERT(count == graph->node_count);
}

void ul_order_depth_first(struct ul_arena *scratch, const struct ul_solve_graph *graph,
                          uint32_t *order)
{
    uint32_t *stack = UL_NEW_ARRAY(scratch, uint32_t, (uint64_t)graph->node_count + 1);
    uint32_t *next = UL_NEW_ARRAY(scratch, uint32_t, graph->node_count);
    uint8_t *seen = ul_arena_alloc(scratch, graph->node_count);
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        uint32_t root = graph->order[i];
        if (graph->user_first[root] != graph->user_first[root + 1])
            continue;
        uint32_t depth = 0;
        stack[depth++] = root;
        seen[root] = 1;
        while (depth > 0) {
            uint32_t v = stack[depth - 1];
            uint32_t at = graph->input_first[v] + next[v];
            if (at == graph->input_first[v + 1]) {
                order[count++] = v;
                depth--;
                continue;
            }
            next[v]++;
            if (!seen[graph->inputs[at]]) {
                seen[graph->inputs[at]] = 1;
                stack[depth++] = graph->inputs[at];
            }
        }
    }
    UL_ASSERT(count == graph->node_count);
}
