/* SPDX-License-Identifier: Apache-2.0 */
/* Reads `ullage solve`'s graph format: {"format": "ullage-graph", "version": 1, "name", "nodes":
 * [{"id", "name", "bytes", "cost"}], "edges": [[producer, consumer]], "order": [ids], "space":
 * {...}}. */
#include "planner/solve/solve.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct loader {
    struct ul_arena *arena;
    struct ul_solve_graph *graph;
    struct ul_diag *diag;
    const json_t *root;
};

static bool whole(const json_t *value, uint64_t limit, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > limit)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static enum ul_status nodes_read(struct loader *l)
{
    static const uint64_t max = (uint64_t)1 << 60;
    uint64_t total_bytes = 0, total_cost = 0;
    const json_t *nodes = json_object_get(l->root, "nodes");
    struct ul_solve_graph *g = l->graph;
    if (!json_is_array(nodes) || json_array_size(nodes) > UL_LIMIT_NODES)
        return ul_diag_set(l->diag, UL_INVALID, "\"nodes\" is missing, no array, or too long");
    g->node_count = (uint32_t)json_array_size(nodes);
    /* No schedule that runs each node 8 times and a little more costs 2^62, which means never in
     * the searches. */
    uint64_t max_cost = ((uint64_t)1 << 62) / ((uint64_t)g->node_count * 8 + 1000);
    g->names = UL_NEW_ARRAY(l->arena, const char *, g->node_count);
    g->size_bytes = UL_NEW_ARRAY(l->arena, uint64_t, g->node_count);
    g->cost = UL_NEW_ARRAY(l->arena, uint64_t, g->node_count);
    for (uint32_t i = 0; i < g->node_count; i++) {
        const json_t *node = json_array_get(nodes, i);
        uint64_t id, size_bytes, cost;
        if (!whole(json_object_get(node, "id"), UINT32_MAX, &id) || id >= g->node_count ||
            !whole(json_object_get(node, "bytes"), max, &size_bytes) ||
            !whole(json_object_get(node, "cost"), max_cost, &cost) ||
            !ul_size_add(total_bytes, size_bytes, &total_bytes) || total_bytes > max ||
            !ul_size_add(total_cost, cost, &total_cost) || total_cost > max)
            return ul_diag_set(l->diag, UL_INVALID,
                               "node %u of \"nodes\": id, bytes or cost is missing, negative or "
                               "too large; ids are 0 to the number of nodes less 1",
                               i);
        if (g->names[id] != NULL)
            return ul_diag_set(l->diag, UL_INVALID, "two nodes have the id %u", (uint32_t)id);
        const char *name = json_string_value(json_object_get(node, "name"));
        g->names[id] = ul_arena_copy_string(l->arena, name != NULL ? name : "");
        g->size_bytes[id] = size_bytes;
        g->cost[id] = cost;
    }
    return UL_OK;
}

static int pair_compare(const void *a, const void *b)
{
    const uint32_t *x = a;
    const uint32_t *y = b;
    if (x[0] != y[0])
        return x[0] < y[0] ? -1 : 1;
    return x[1] < y[1] ? -1 : x[1] > y[1];
}

/* Rows of the sorted, distinct pairs (from, to) as lists of `to` by `from`. */
static void lists_make(struct loader *l, uint32_t (*pairs)[2], uint32_t count, uint32_t **first,
                       uint32_t **list)
{
    *first = UL_NEW_ARRAY(l->arena, uint32_t, (uint64_t)l->graph->node_count + 1);
    *list = UL_NEW_ARRAY(l->arena, uint32_t, count);
    if (count > 0)
        qsort(pairs, count, sizeof *pairs, pair_compare);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0 && pair_compare(pairs[i], pairs[i - 1]) == 0)
            continue;
        (*list)[kept++] = pairs[i][1];
        (*first)[pairs[i][0] + 1] = kept;
    }
    for (uint32_t v = 0; v < l->graph->node_count; v++) {
        if ((*first)[v + 1] < (*first)[v])
            (*first)[v + 1] = (*first)[v];
    }
}

static enum ul_status edges_read(struct loader *l)
{
    const json_t *edges = json_object_get(l->root, "edges");
    struct ul_solve_graph *g = l->graph;
    if (!json_is_array(edges) || json_array_size(edges) > UL_LIMIT_VALUES)
        return ul_diag_set(l->diag, UL_INVALID, "\"edges\" is missing, no array, or too long");
    uint32_t count = (uint32_t)json_array_size(edges);
    uint32_t(*pairs)[2] = ul_arena_alloc(l->arena, sizeof *pairs * (uint64_t)count);
    for (uint32_t i = 0; i < count; i++) {
        const json_t *edge = json_array_get(edges, i);
        uint64_t from, to;
        if (json_array_size(edge) != 2 || !whole(json_array_get(edge, 0), UINT32_MAX, &from) ||
            !whole(json_array_get(edge, 1), UINT32_MAX, &to) || from >= g->node_count ||
            to >= g->node_count || from == to)
            return ul_diag_set(l->diag, UL_INVALID, "edge %u: not a pair of two nodes' ids", i);
        pairs[i][0] = (uint32_t)from;
        pairs[i][1] = (uint32_t)to;
    }
    lists_make(l, pairs, count, &g->user_first, &g->users);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t swap = pairs[i][0];
        pairs[i][0] = pairs[i][1];
        pairs[i][1] = swap;
    }
    lists_make(l, pairs, count, &g->input_first, &g->inputs);
    return UL_OK;
}

static enum ul_status order_read(struct loader *l)
{
    const json_t *order = json_object_get(l->root, "order");
    struct ul_solve_graph *g = l->graph;
    if (!json_is_array(order) || json_array_size(order) != g->node_count)
        return ul_diag_set(l->diag, UL_INVALID, "\"order\" does not name every node once");
    g->order = UL_NEW_ARRAY(l->arena, uint32_t, g->node_count);
    uint8_t *done = ul_arena_alloc(l->arena, g->node_count);
    for (uint32_t i = 0; i < g->node_count; i++) {
        uint64_t v;
        if (!whole(json_array_get(order, i), UINT32_MAX, &v) || v >= g->node_count || done[v])
            return ul_diag_set(l->diag, UL_INVALID, "\"order\" does not name every node once");
        for (uint32_t j = g->input_first[v]; j < g->input_first[v + 1]; j++) {
            if (!done[g->inputs[j]])
                return ul_diag_set(l->diag, UL_INVALID,
                                   "\"order\": node %u comes before node %u, which it reads",
                                   (uint32_t)v, g->inputs[j]);
        }
        done[v] = 1;
        g->order[i] = (uint32_t)v;
    }
    return UL_OK;
}

/* {"capacity": BYTES, "bandwidth": 10^6 bytes a second, "latency": cost, "duplex": bool}; a missing
 * member is 0, or no. */
static enum ul_status space_read(struct loader *l)
{
    static const uint64_t max = (uint64_t)1 << 40;
    const json_t *given = json_object_get(l->root, "space");
    if (given == NULL)
        return UL_OK;
    struct ul_plan_offload *space = UL_NEW(l->arena, struct ul_plan_offload);
    space->name = "other";
    struct {
        const char *key;
        uint64_t *out;
    } numbers[] = {{"capacity", &space->capacity_bytes},
                   {"bandwidth", &space->bandwidth_mb},
                   {"latency", &space->latency_cost}};
    bool is_whole = json_is_object(given);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && is_whole; i++) {
        const json_t *number = json_object_get(given, numbers[i].key);
        is_whole = number == NULL || whole(number, i == 0 ? max << 20 : max, numbers[i].out);
    }
    const json_t *duplex = json_object_get(given, "duplex");
    if (!is_whole || (duplex != NULL && !json_is_boolean(duplex)))
        return ul_diag_set(l->diag, UL_INVALID,
                           "\"space\": no object of whole numbers \"capacity\", \"bandwidth\" and "
                           "\"latency\", and a boolean \"duplex\"");
    space->duplex = json_is_true(duplex);
    l->graph->other = space;
    return UL_OK;
}

enum ul_status ul_solve_read_json(struct ul_arena *arena, const char *text, uint64_t size_bytes,
                                  struct ul_solve_graph *graph, struct ul_diag *diag)
{
    json_error_t error;
    memset(graph, 0, sizeof *graph);
    json_t *root = json_loadb(text, (size_t)size_bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        return ul_diag_set(diag, UL_INVALID,
                           "neither a problem, as plan --print-problem writes it, nor a graph in "
                           "JSON (line %d: %s)",
                           error.line, error.text);
    struct loader l = {.arena = arena, .graph = graph, .diag = diag, .root = root};
    enum ul_status status = UL_OK;
    const char *format = json_string_value(json_object_get(root, "format"));
    uint64_t version;
    if (format == NULL || strcmp(format, "ullage-graph") != 0 ||
        !whole(json_object_get(root, "version"), 1, &version) || version != 1)
        status = ul_diag_set(diag, UL_INVALID, "not an \"ullage-graph\" of version 1");
    const char *name = json_string_value(json_object_get(root, "name"));
    graph->name = ul_arena_copy_string(arena, name != NULL ? name : "");
    if (status == UL_OK)
        status = nodes_read(&l);
    if (status == UL_OK)
        status = edges_read(&l);
    if (status == UL_OK)
        status = order_read(&l);
    if (status == UL_OK)
        status = space_read(&l);
    json_decref(root);
    return status;
}
