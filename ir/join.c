/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs of one root each as one graph.
 *
 *     ids of a graph    [ 0 ... n )
 *     in the joined     [ base ... base + n )
 *
 * Blocks alone are placed otherwise: the root of graph i is block i of the joined graph, and nested
 * blocks follow behind all roots.
 *
 * Left undone: equal constants stay two values, which pass cse makes one. */
#include "ir/graph.h"

#include <string.h>

struct join {
    struct ul_graph *graph;
    const struct ul_graph *from;
    const char *name;
    ul_block_id root;
    uint32_t value_base, node_base, block_base;
};

static ul_value_id value_of(const struct join *join, ul_value_id value)
{
    return value == UL_NONE ? UL_NONE : join->value_base + value;
}

static ul_block_id block_of(const struct join *join, ul_block_id block)
{
    return block == 0 ? join->root : join->block_base + block - 1;
}

static ul_value_id *values_of(const struct join *join, const ul_value_id *values, uint32_t count)
{
    ul_value_id *moved = UL_NEW_ARRAY(join->graph->arena, ul_value_id, count);
    for (uint32_t i = 0; i < count; i++)
        moved[i] = value_of(join, values[i]);
    return moved;
}

static const char *name_of(const struct join *join, const char *name)
{
    return ul_arena_printf(join->graph->arena, "%s/%s", join->name, name);
}

static void add_value(const struct join *join, const struct ul_value *from)
{
    struct ul_value value = *from;
    if (value.kind != UL_VALUE_WEIGHT)
        value.name = name_of(join, value.name);
    if (value.producer != UL_NONE)
        value.producer += join->node_base;
    value.donor = value_of(join, value.donor);
    value.view.base = value_of(join, value.view.base);
    UL_GROW(join->graph->arena, join->graph->values, join->graph->value_count,
            join->graph->value_capacity);
    join->graph->values[join->graph->value_count++] = value;
}

static void add_node(const struct join *join, const struct ul_node *from)
{
    struct ul_node node = *from;
    node.name = name_of(join, node.name);
    node.inputs = values_of(join, from->inputs, from->input_count);
    node.outputs = values_of(join, from->outputs, from->output_count);
    node.blocks = UL_NEW_ARRAY(join->graph->arena, ul_block_id, from->block_count);
    for (uint32_t b = 0; b < from->block_count; b++)
        node.blocks[b] = block_of(join, from->blocks[b]);
    node.parent = block_of(join, from->parent);
    node.group = from->group == UL_NONE ? UL_NONE : from->group + join->node_base;
    UL_GROW(join->graph->arena, join->graph->nodes, join->graph->node_count,
            join->graph->node_capacity);
    join->graph->nodes[join->graph->node_count++] = node;
}

static void set_block(const struct join *join, ul_block_id id)
{
    const struct ul_block *from = &join->from->blocks[id];
    struct ul_block *block = &join->graph->blocks[block_of(join, id)];
    ul_node_id *nodes = UL_NEW_ARRAY(join->graph->arena, ul_node_id, from->node_count);
    for (uint32_t i = 0; i < from->node_count; i++)
        nodes[i] = join->node_base + from->nodes[i];
    *block =
        (struct ul_block){.name = id == 0 ? join->name : NULL,
                          .owner = from->owner == UL_NONE ? UL_NONE : from->owner + join->node_base,
                          .node_count = from->node_count,
                          .node_capacity = from->node_count,
                          .nodes = nodes,
                          .input_count = from->input_count,
                          .input_capacity = from->input_count,
                          .inputs = values_of(join, from->inputs, from->input_count),
                          .output_count = from->output_count,
                          .output_capacity = from->output_count,
                          .outputs = values_of(join, from->outputs, from->output_count)};
}

static void add_graph(struct ul_graph *graph, const struct ul_graph *from, ul_block_id root)
{
    const struct join join = {.graph = graph,
                              .from = from,
                              .name = graph->blocks[root].name,
                              .root = root,
                              .value_base = graph->value_count,
                              .node_base = graph->node_count,
                              .block_base = graph->block_count};
    UL_ASSERT(from->root_count == 1);
    for (uint32_t v = 0; v < from->value_count; v++)
        add_value(&join, &from->values[v]);
    for (uint32_t n = 0; n < from->node_count; n++)
        add_node(&join, &from->nodes[n]);
    for (uint32_t b = 1; b < from->block_count; b++)
        (void)ul_graph_add_block(graph, UL_NONE);
    for (uint32_t b = 0; b < from->block_count; b++)
        set_block(&join, b);
}

enum ul_dtype ul_graph_declared(const struct ul_graph *graph)
{
    for (uint32_t v = 0; v < graph->value_count; v++) {
        if (ul_dtype_is_half(graph->values[v].declared))
            return graph->values[v].declared;
    }
    return UL_DTYPE_NONE;
}

/* Has a graph that declares nothing say that its values are f32, which another's 16 bits are not
 * for. */
static void declare_floats(struct ul_graph *graph, uint32_t begin, uint32_t end)
{
    for (uint32_t v = begin; v < end; v++) {
        if (graph->values[v].kind != UL_VALUE_DEAD && graph->values[v].type.dtype == UL_F32)
            graph->values[v].declared = UL_F32;
    }
}

void ul_graph_join(struct ul_graph *graph, struct ul_arena *arena,
                   const struct ul_graph *const *from, const char *const *names, uint32_t count)
{
    UL_ASSERT(count > 0);
    ul_graph_init(graph, arena, from[0]->name);
    graph->rounds_products = from[0]->rounds_products;
    graph->check_text = from[0]->check_text;
    for (uint32_t r = 1; r < count; r++)
        (void)ul_graph_add_block(graph, UL_NONE);
    graph->root_count = count;
    for (uint32_t r = 0; r < count; r++)
        graph->blocks[r].name = ul_arena_copy_string(arena, names[r]);
    bool is_any = false;
    for (uint32_t r = 0; r < count; r++)
        is_any = is_any || ul_graph_declared(from[r]) != UL_DTYPE_NONE;
    for (uint32_t r = 0; r < count; r++) {
        uint32_t begin = graph->value_count;
        add_graph(graph, from[r], r);
        if (is_any && ul_graph_declared(from[r]) == UL_DTYPE_NONE)
            declare_floats(graph, begin, graph->value_count);
    }
}

static uint32_t find_named(const struct ul_graph *graph, ul_block_id root,
                           const ul_value_id *values, uint32_t count, const char *name)
{
    uint32_t found = 0;
    while (found < count &&
           strcmp(ul_root_plain_name(graph, root, graph->values[values[found]].name), name) != 0)
        found++;
    return found < count ? found : UL_NONE;
}

static enum ul_status refuse_types(const struct ul_graph *graph, ul_value_id input,
                                   ul_value_id output, struct ul_diag *diag)
{
    struct ul_arena *arena = graph->arena;
    const struct ul_value *read = &graph->values[input], *made = &graph->values[output];
    return ul_diag_set(diag, UL_USAGE, "%s cannot be %s where it lies: that is %s, not %s",
                       ul_quote(arena, read->name), ul_quote(arena, made->name),
                       ul_type_text(arena, &made->type), ul_type_text(arena, &read->type));
}

enum ul_status ul_graph_link(struct ul_graph *graph, ul_block_id root, const char *input,
                             ul_block_id from, const char *output, struct ul_diag *diag)
{
    const struct ul_block *reader = &graph->blocks[root], *writer = &graph->blocks[from];
    uint32_t in = find_named(graph, root, reader->inputs, reader->input_count, input);
    uint32_t out = find_named(graph, from, writer->outputs, writer->output_count, output);
    UL_ASSERT(root < graph->root_count && from < graph->root_count);
    if (in == UL_NONE || out == UL_NONE)
        return ul_diag_set(diag, UL_USAGE, "%s has no %s %s",
                           in == UL_NONE ? reader->name : writer->name,
                           in == UL_NONE ? "input" : "output",
                           ul_quote(graph->arena, in == UL_NONE ? input : output));
    struct ul_value *value = &graph->values[reader->inputs[in]];
    if (root == from || value->link_root != UL_NONE)
        return ul_diag_set(diag, UL_USAGE,
                           root == from ? "%s is of the same model: --donate is for that"
                                        : "%s is linked already",
                           ul_quote(graph->arena, value->name));
    const struct ul_value *made = &graph->values[writer->outputs[out]];
    bool is_constant = made->kind == UL_VALUE_WEIGHT;
    bool is_weight = is_constant ||
                     (made->donor != UL_NONE && graph->values[made->donor].kind == UL_VALUE_WEIGHT);
    if (is_weight)
        return ul_diag_set(diag, UL_UNSUPPORTED,
                           "%s %s, which no input can be linked to; leave the link out",
                           ul_quote(graph->arena, made->name),
                           is_constant ? "is a constant" : "overwrites a weight");
    if (!ul_type_equal(&value->type, &made->type))
        return refuse_types(graph, reader->inputs[in], writer->outputs[out], diag);
    if (value->declared != made->declared || value->edge_scale != made->edge_scale ||
        value->edge_zero != made->edge_zero)
        return ul_diag_set(diag, UL_USAGE,
                           "%s cannot be %s where it lies: they are stored in two "
                           "ways",
                           ul_quote(graph->arena, value->name), ul_quote(graph->arena, made->name));
    value->link_root = from;
    value->link_output = out;
    return UL_OK;
}

ul_value_id ul_graph_linked(const struct ul_graph *graph, ul_value_id input)
{
    const struct ul_value *value = &graph->values[input];
    UL_ASSERT(value->link_root < graph->root_count);
    return graph->blocks[value->link_root].outputs[value->link_output];
}

static bool mark_pair(bool *linked, ul_value_id a, ul_value_id b)
{
    bool is_new = linked[a] != linked[b];
    linked[a] = linked[b] = linked[a] || linked[b];
    return is_new;
}

bool *ul_graph_find_linked(const struct ul_graph *graph, struct ul_arena *arena)
{
    bool *linked = UL_NEW_ARRAY(arena, bool, graph->value_count);
    bool is_any = false, is_new = true;
    for (uint32_t v = 0; v < graph->value_count; v++) {
        if (graph->values[v].kind != UL_VALUE_INPUT || graph->values[v].link_root == UL_NONE)
            continue;
        linked[v] = linked[ul_graph_linked(graph, v)] = is_any = true;
    }
    while (is_any && is_new) {
        is_new = false;
        for (uint32_t v = 0; v < graph->value_count; v++) {
            const struct ul_value *value = &graph->values[v];
            if (value->kind == UL_VALUE_NODE && value->donor != UL_NONE)
                is_new = mark_pair(linked, v, value->donor) || is_new;
        }
    }
    return is_any ? linked : NULL;
}

const char *ul_root_plain_name(const struct ul_graph *graph, ul_block_id root, const char *name)
{
    size_t length = strlen(graph->blocks[root].name);
    UL_ASSERT(root < graph->root_count);
    bool has_prefix = graph->root_count > 1 &&
                      strncmp(name, graph->blocks[root].name, length) == 0 && name[length] == '/';
    return has_prefix ? name + length + 1 : name;
}
