/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which to build a graph's nodes.
 *
 * ONNX asks files to be topologically sorted, and nearly all are: one pass confirms it. Otherwise
 * the nodes are sorted by Kahn's method with the smallest file index first, so that the result
 * departs from the file as little as it must; nodes that remain hold a cycle, which is reported
 * with their names. A node also depends on what its nested graphs capture. */
#include "frontend/frontend_internal.h"

#include <string.h>

struct edges {
    struct ul_model_builder *builder;
    Onnx__NodeProto *const *nodes;
    uint32_t node_count;
    struct ul_names producers; /* output name -> node */
    uint32_t *first;           /* node -> its edges; node_count + 1 entries */
    uint32_t edge_count, edge_capacity;
    uint32_t *from; /* the producer that an edge comes from; edges are grouped by consumer */
    bool sorted;
};

/* Names that a nested graph defines hide those outside. */
struct hidden {
    const struct hidden *outer;
    struct ul_names names;
};

static bool is_hidden(const struct hidden *hidden, const char *name)
{
    for (; hidden != NULL; hidden = hidden->outer) {
        if (ul_names_find(&hidden->names, name) != UL_NONE)
            return true;
    }
    return false;
}

static void add_use(struct edges *edges, uint32_t consumer, const struct hidden *hidden,
                    const char *name)
{
    uint32_t producer = ul_names_find(&edges->producers, name);
    if (producer == UL_NONE || is_hidden(hidden, name))
        return;
    if (producer >= consumer)
        edges->sorted = false;
    UL_GROW(edges->builder->scratch, edges->from, edges->edge_count, edges->edge_capacity);
    edges->from[edges->edge_count++] = producer;
}

static void hide(struct hidden *hidden, const char *name)
{
    if (name != NULL)
        (void)!ul_names_add(&hidden->names, name, 0);
}

static void hide_own(struct hidden *hidden, const Onnx__GraphProto *graph)
{
    for (size_t i = 0; i < graph->n_input; i++)
        hide(hidden, graph->input[i]->name);
    for (size_t i = 0; i < graph->n_initializer; i++)
        hide(hidden, graph->initializer[i]->name);
    for (size_t i = 0; i < graph->n_node; i++) {
        for (size_t k = 0; k < graph->node[i]->n_output; k++)
            hide(hidden, graph->node[i]->output[k]);
    }
}

/* The wire scan has bounded the depth of this recursion. */
static void add_uses(struct edges *edges, uint32_t consumer, const struct hidden *hidden,
                     const Onnx__NodeProto *node)
{
    for (size_t i = 0; i < node->n_input; i++)
        add_use(edges, consumer, hidden, node->input[i]);
    for (size_t i = 0; i < node->n_attribute; i++) {
        const Onnx__GraphProto *graph = node->attribute[i]->g;
        if (graph == NULL)
            continue;
        struct hidden inner = {.outer = hidden};
        ul_names_init(&inner.names, edges->builder->scratch);
        hide_own(&inner, graph);
        for (size_t k = 0; k < graph->n_node; k++)
            add_uses(edges, consumer, &inner, graph->node[k]);
        for (size_t k = 0; k < graph->n_output; k++) {
            if (graph->output[k]->name != NULL)
                add_use(edges, consumer, &inner, graph->output[k]->name);
        }
    }
}

static enum ul_status index_producers(struct edges *edges)
{
    struct ul_model_builder *builder = edges->builder;
    ul_names_init(&edges->producers, builder->scratch);
    for (uint32_t i = 0; i < edges->node_count; i++) {
        const Onnx__NodeProto *node = edges->nodes[i];
        for (size_t k = 0; k < node->n_output; k++) {
            const char *name = node->output[k];
            if (name[0] != '\0' && !ul_names_add(&edges->producers, name, i))
                return ul_diag_set(builder->diag, UL_INVALID,
                                   "%s: its output %s is also the output of another node",
                                   ul_builder_describe(builder, node->name, node->op_type),
                                   ul_quote(builder->scratch, name));
        }
    }
    return UL_OK;
}

/* Follows unbuilt producers from an unbuilt node until one repeats: that is a cycle. */
static enum ul_status report_cycle(const struct edges *edges, const uint32_t *waits)
{
    struct ul_arena *scratch = edges->builder->scratch;
    uint32_t *seen = UL_NEW_ARRAY(scratch, uint32_t, edges->node_count);
    uint32_t at = 0;
    while (waits[at] == 0)
        at++;
    for (uint32_t step = 1; seen[at] == 0; step++) {
        seen[at] = step;
        uint32_t edge = edges->first[at];
        while (waits[edges->from[edge]] == 0)
            edge++;
        at = edges->from[edge];
    }
    struct ul_text text;
    ul_text_init(&text, scratch);
    uint32_t begin = at;
    enum { NAMED = 8 };
    for (uint32_t named = 0; named == 0 || at != begin; named++) {
        const Onnx__NodeProto *node = edges->nodes[at];
        if (named < NAMED)
            ul_text_printf(&text, "%s%s", named == 0 ? "" : ", which needs ",
                           ul_builder_describe(edges->builder, node->name, node->op_type));
        else if (named == NAMED)
            ul_text_put(&text, ", and so on");
        uint32_t edge = edges->first[at];
        while (waits[edges->from[edge]] == 0)
            edge++;
        at = edges->from[edge];
    }
    return ul_diag_set(edges->builder->diag, UL_INVALID,
                       "the graph has a cycle: %s, which needs the first again", text.data);
}

/* The consumers of every node, as a second array of edges. */
static void reverse_edges(const struct edges *edges, uint32_t *begin, uint32_t *to)
{
    for (uint32_t e = 0; e < edges->edge_count; e++)
        begin[edges->from[e] + 1]++;
    for (uint32_t i = 0; i < edges->node_count; i++)
        begin[i + 1] += begin[i];
    uint32_t *next = UL_NEW_ARRAY(edges->builder->scratch, uint32_t, edges->node_count);
    for (uint32_t i = 0; i < edges->node_count; i++) {
        for (uint32_t e = edges->first[i]; e < edges->first[i + 1]; e++) {
            uint32_t from = edges->from[e];
            to[begin[from] + next[from]++] = i;
        }
    }
}

static enum ul_status sort_nodes(const struct edges *edges, const uint32_t **order)
{
    struct ul_arena *scratch = edges->builder->scratch;
    uint32_t count = edges->node_count;
    uint32_t *begin = UL_NEW_ARRAY(scratch, uint32_t, (uint64_t)count + 1);
    uint32_t *to = UL_NEW_ARRAY(scratch, uint32_t, edges->edge_count);
    uint32_t *waits = UL_NEW_ARRAY(scratch, uint32_t, count);
    uint32_t *sorted = UL_NEW_ARRAY(scratch, uint32_t, count);
    struct ul_heap ready = {.count = 0}; /* by place in the file */
    uint32_t done = 0;
    reverse_edges(edges, begin, to);
    for (uint32_t i = 0; i < count; i++) {
        waits[i] = edges->first[i + 1] - edges->first[i];
        if (waits[i] == 0)
            ul_heap_push(scratch, &ready, i, i);
    }
    while (ready.count > 0) {
        uint32_t node = ul_heap_pop(&ready).index;
        sorted[done++] = node;
        for (uint32_t e = begin[node]; e < begin[node + 1]; e++) {
            if (--waits[to[e]] == 0)
                ul_heap_push(scratch, &ready, to[e], to[e]);
        }
    }
    if (done < count)
        return report_cycle(edges, waits);
    *order = sorted;
    return UL_OK;
}

static enum ul_status collect_edges(struct edges *edges)
{
    UL_TRY(index_producers(edges));
    edges->first = UL_NEW_ARRAY(edges->builder->scratch, uint32_t, (uint64_t)edges->node_count + 1);
    for (uint32_t i = 0; i < edges->node_count; i++) {
        edges->first[i] = edges->edge_count;
        add_uses(edges, i, NULL, edges->nodes[i]);
    }
    edges->first[edges->node_count] = edges->edge_count;
    return UL_OK;
}

enum ul_status ul_order_nodes(struct ul_model_builder *builder, size_t node_count,
                              Onnx__NodeProto *const *nodes, const uint32_t **order)
{
    *order = NULL;
    if (node_count > UL_LIMIT_NODES)
        return ul_diag_set(builder->diag, UL_UNSUPPORTED,
                           "a graph of %zu nodes is above the limit of %u", node_count,
                           UL_LIMIT_NODES);
    struct edges edges = {
        .builder = builder, .nodes = nodes, .node_count = (uint32_t)node_count, .sorted = true};
    UL_TRY(collect_edges(&edges));
    if (edges.sorted)
        return UL_OK;
    return sort_nodes(&edges, order);
}

/* Finds the nodes that the values of --output need. Returns false where names do not show that: a
 * function makes one of the values, or a Gradient reads values by name. */
static bool find_needed(const struct edges *edges, bool *needed)
{
    const struct ul_frontend_options *options = edges->builder->options;
    uint32_t *open = UL_NEW_ARRAY(edges->builder->scratch, uint32_t, edges->node_count);
    uint32_t open_count = 0;
    for (uint32_t i = 0; i < options->output_count; i++) {
        uint32_t producer = ul_names_find(&edges->producers, options->outputs[i]);
        if (producer == UL_NONE)
            return false;
        if (!needed[producer])
            open[open_count++] = producer;
        needed[producer] = true;
    }
    while (open_count > 0) {
        uint32_t node = open[--open_count];
        if (edges->nodes[node]->op_type != NULL &&
            strcmp(edges->nodes[node]->op_type, "Gradient") == 0)
            return false;
        for (uint32_t e = edges->first[node]; e < edges->first[node + 1]; e++) {
            if (!needed[edges->from[e]])
                open[open_count++] = edges->from[e];
            needed[edges->from[e]] = true;
        }
    }
    return true;
}

enum ul_status ul_order_cut(struct ul_model_builder *builder, Onnx__GraphProto *graph)
{
    if (builder->options->output_count == 0 || graph->n_node > UL_LIMIT_NODES)
        return UL_OK;
    struct edges edges = {
        .builder = builder, .nodes = graph->node, .node_count = (uint32_t)graph->n_node};
    UL_TRY(collect_edges(&edges));
    bool *needed = UL_NEW_ARRAY(builder->scratch, bool, graph->n_node);
    if (!find_needed(&edges, needed))
        return UL_OK;
    size_t kept = 0;
    for (size_t i = 0; i < graph->n_node; i++) {
        if (needed[i])
            graph->node[kept++] = graph->node[i];
    }
    graph->n_node = kept;
    return UL_OK;
}
