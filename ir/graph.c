/* SPDX-License-Identifier: Apache-2.0 */
/* Building and editing graphs. Arrays grow in the arena by doubling; nodes and values never move to
 * other ids, they are only marked dead, so that handles stay good through a pass. */
#include "ir/op.h"

#include <string.h>

void ul_graph_init(struct ul_graph *graph, struct ul_arena *arena, const char *name)
{
    memset(graph, 0, sizeof *graph);
    graph->arena = arena;
    graph->name = ul_arena_copy_string(arena, name);
    ul_block_id root = ul_graph_add_block(graph, UL_NONE);
    UL_ASSERT(root == 0);
    graph->blocks[root].name = "";
    graph->root_count = 1;
}

bool ul_graph_is_root(const struct ul_graph *graph, ul_block_id block)
{
    UL_ASSERT(block < graph->block_count);
    return block < graph->root_count;
}

bool ul_graph_has_block(const struct ul_graph *graph, ul_block_id block)
{
    return ul_graph_is_root(graph, block) || graph->blocks[block].owner != UL_NONE;
}

struct ul_block *ul_graph_only_root(const struct ul_graph *graph)
{
    UL_ASSERT(graph->root_count == 1);
    return &graph->blocks[0];
}

ul_block_id ul_graph_root_of(const struct ul_graph *graph, ul_node_id node)
{
    ul_block_id block = graph->nodes[node].parent;
    while (!ul_graph_is_root(graph, block))
        block = graph->nodes[graph->blocks[block].owner].parent;
    return block;
}

static void *copy_list(struct ul_arena *arena, const void *from, uint32_t count, size_t size_bytes)
{
    return count == 0 ? NULL : ul_arena_copy(arena, from, ul_size_mul_or_die(size_bytes, count));
}

void ul_graph_copy(struct ul_graph *graph, struct ul_arena *arena, const struct ul_graph *from)
{
    *graph = *from;
    graph->arena = arena;
    graph->values = copy_list(arena, from->values, from->value_count, sizeof *from->values);
    graph->nodes = copy_list(arena, from->nodes, from->node_count, sizeof *from->nodes);
    graph->blocks = copy_list(arena, from->blocks, from->block_count, sizeof *from->blocks);
    graph->value_capacity = from->value_count;
    graph->node_capacity = from->node_count;
    graph->block_capacity = from->block_count;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        struct ul_node *node = &graph->nodes[n];
        node->inputs = copy_list(arena, node->inputs, node->input_count, sizeof *node->inputs);
        node->outputs = copy_list(arena, node->outputs, node->output_count, sizeof *node->outputs);
    }
    for (uint32_t b = 0; b < graph->block_count; b++) {
        struct ul_block *block = &graph->blocks[b];
        block->nodes = copy_list(arena, block->nodes, block->node_count, sizeof *block->nodes);
        block->inputs = copy_list(arena, block->inputs, block->input_count, sizeof *block->inputs);
        block->outputs =
            copy_list(arena, block->outputs, block->output_count, sizeof *block->outputs);
        block->node_capacity = block->node_count;
        block->input_capacity = block->input_count;
        block->output_capacity = block->output_count;
    }
}

ul_value_id ul_graph_add_value(struct ul_graph *graph, const char *name, enum ul_value_kind kind,
                               const struct ul_type *type)
{
    UL_GROW(graph->arena, graph->values, graph->value_count, graph->value_capacity);
    struct ul_value *value = &graph->values[graph->value_count];
    memset(value, 0, sizeof *value);
    value->name = ul_arena_copy_string(graph->arena, name);
    value->kind = kind;
    value->producer = UL_NONE;
    value->donor = UL_NONE;
    value->link_root = value->link_output = UL_NONE;
    value->view.base = UL_NONE;
    if (type != NULL)
        value->type = *type;
    else
        value->type.rank = UL_RANK_UNKNOWN;
    return graph->value_count++;
}

ul_value_id ul_graph_add_weight(struct ul_graph *graph, const char *name,
                                const struct ul_tensor *tensor)
{
    ul_value_id value = ul_graph_add_value(graph, name, UL_VALUE_WEIGHT, &tensor->type);
    graph->values[value].tensor = tensor;
    return value;
}

static void list_insert(struct ul_graph *graph, struct ul_block *block, uint32_t at,
                        ul_node_id node)
{
    UL_ASSERT(at <= block->node_count);
    UL_GROW(graph->arena, block->nodes, block->node_count, block->node_capacity);
    memmove(block->nodes + at + 1, block->nodes + at,
            (block->node_count - at) * sizeof *block->nodes);
    block->nodes[at] = node;
    block->node_count++;
}

ul_value_id ul_graph_add_output(struct ul_graph *graph, ul_node_id id)
{
    struct ul_node *node = &graph->nodes[id];
    uint32_t at = node->output_count;
    ul_value_id *outputs = UL_NEW_ARRAY(graph->arena, ul_value_id, (uint64_t)at + 1);
    memcpy(outputs, node->outputs, at * sizeof *outputs);
    outputs[at] =
        ul_graph_add_value(graph, ul_arena_printf(graph->arena, "%s:%u", node->name, (unsigned)at),
                           UL_VALUE_NODE, NULL);
    graph->values[outputs[at]].producer = id;
    graph->values[outputs[at]].producer_output = at;
    node->outputs = outputs;
    node->output_count = at + 1;
    return outputs[at];
}

void ul_graph_add_input(struct ul_graph *graph, ul_node_id id, ul_value_id value)
{
    struct ul_node *node = &graph->nodes[id];
    ul_value_id *inputs = UL_NEW_ARRAY(graph->arena, ul_value_id, (uint64_t)node->input_count + 1);
    memcpy(inputs, node->inputs, node->input_count * sizeof *inputs);
    inputs[node->input_count++] = value;
    node->inputs = inputs;
}

ul_node_id ul_graph_insert_node(struct ul_graph *graph, ul_block_id block, uint32_t at, ul_op_id op,
                                const char *name, uint32_t input_count, uint32_t output_count)
{
    UL_GROW(graph->arena, graph->nodes, graph->node_count, graph->node_capacity);
    ul_node_id id = graph->node_count++;
    struct ul_node *node = &graph->nodes[id];
    memset(node, 0, sizeof *node);
    node->op = op;
    node->name = ul_arena_copy_string(graph->arena, name);
    node->parent = block;
    node->group = UL_NONE;
    node->input_count = input_count;
    node->inputs = UL_NEW_ARRAY(graph->arena, ul_value_id, input_count);
    for (uint32_t i = 0; i < input_count; i++)
        node->inputs[i] = UL_NONE;
    node->output_count = output_count;
    node->outputs = UL_NEW_ARRAY(graph->arena, ul_value_id, output_count);
    for (uint32_t i = 0; i < output_count; i++) {
        const char *output_name =
            i == 0 ? name : ul_arena_printf(graph->arena, "%s:%u", name, (unsigned)i);
        node->outputs[i] = ul_graph_add_value(graph, output_name, UL_VALUE_NODE, NULL);
        graph->values[node->outputs[i]].producer = id;
        graph->values[node->outputs[i]].producer_output = i;
    }
    list_insert(graph, &graph->blocks[block], at, id);
    return id;
}

ul_node_id ul_graph_add_node(struct ul_graph *graph, ul_block_id block, ul_op_id op,
                             const char *name, uint32_t input_count, uint32_t output_count)
{
    return ul_graph_insert_node(graph, block, graph->blocks[block].node_count, op, name,
                                input_count, output_count);
}

ul_block_id ul_graph_add_block(struct ul_graph *graph, ul_node_id owner)
{
    UL_GROW(graph->arena, graph->blocks, graph->block_count, graph->block_capacity);
    ul_block_id id = graph->block_count++;
    struct ul_block *block = &graph->blocks[id];
    memset(block, 0, sizeof *block);
    block->owner = owner;
    if (owner != UL_NONE) {
        struct ul_node *node = &graph->nodes[owner];
        ul_block_id *blocks =
            UL_NEW_ARRAY(graph->arena, ul_block_id, (uint64_t)node->block_count + 1);
        if (node->block_count > 0)
            memcpy(blocks, node->blocks, node->block_count * sizeof *blocks);
        blocks[node->block_count++] = id;
        node->blocks = blocks;
    }
    return id;
}

void ul_block_add_input(struct ul_graph *graph, ul_block_id block_id, ul_value_id value)
{
    struct ul_block *block = &graph->blocks[block_id];
    UL_GROW(graph->arena, block->inputs, block->input_count, block->input_capacity);
    if (graph->values[value].kind == UL_VALUE_ARGUMENT) {
        graph->values[value].producer = block->owner;
        graph->values[value].producer_output = block->input_count;
    }
    block->inputs[block->input_count++] = value;
}

void ul_block_add_output(struct ul_graph *graph, ul_block_id block_id, ul_value_id value)
{
    struct ul_block *block = &graph->blocks[block_id];
    UL_GROW(graph->arena, block->outputs, block->output_count, block->output_capacity);
    block->outputs[block->output_count++] = value;
}

/* Attributes are few. The array is made anew at every change, since copied nodes share it. */
void ul_node_set_attr(struct ul_graph *graph, ul_node_id node_id, const struct ul_attr *attr)
{
    struct ul_node *node = &graph->nodes[node_id];
    struct ul_attr *attrs =
        UL_NEW_ARRAY(graph->arena, struct ul_attr, (uint64_t)node->attr_count + 1);
    uint32_t at = node->attr_count;
    for (uint32_t i = 0; i < node->attr_count; i++) {
        attrs[i] = node->attrs[i];
        if (strcmp(attrs[i].name, attr->name) == 0)
            at = i;
    }
    attrs[at] = *attr;
    node->attr_count += at == node->attr_count;
    node->attrs = attrs;
}

static struct ul_attr attr_make(struct ul_graph *graph, const char *name, enum ul_attr_kind kind)
{
    struct ul_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.name = ul_arena_copy_string(graph->arena, name);
    attr.kind = kind;
    return attr;
}

void ul_node_set_int(struct ul_graph *graph, ul_node_id node, const char *name, int64_t value)
{
    struct ul_attr attr = attr_make(graph, name, UL_ATTR_INT);
    attr.i = value;
    ul_node_set_attr(graph, node, &attr);
}

void ul_node_set_float(struct ul_graph *graph, ul_node_id node, const char *name, double value)
{
    struct ul_attr attr = attr_make(graph, name, UL_ATTR_FLOAT);
    attr.f = value;
    ul_node_set_attr(graph, node, &attr);
}

void ul_node_set_string(struct ul_graph *graph, ul_node_id node, const char *name,
                        const char *value)
{
    struct ul_attr attr = attr_make(graph, name, UL_ATTR_STRING);
    attr.s = ul_arena_copy_string(graph->arena, value);
    ul_node_set_attr(graph, node, &attr);
}

void ul_node_set_ints(struct ul_graph *graph, ul_node_id node, const char *name,
                      const int64_t *values, uint32_t count)
{
    struct ul_attr attr = attr_make(graph, name, UL_ATTR_INTS);
    attr.ints = ul_arena_copy(graph->arena, values, ul_size_mul_or_die(sizeof *values, count));
    attr.count = count;
    ul_node_set_attr(graph, node, &attr);
}

void ul_node_remove_attr(struct ul_graph *graph, ul_node_id node_id, const char *name)
{
    struct ul_node *node = &graph->nodes[node_id];
    struct ul_attr *attrs = UL_NEW_ARRAY(graph->arena, struct ul_attr, node->attr_count);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < node->attr_count; i++) {
        if (strcmp(node->attrs[i].name, name) != 0)
            attrs[kept++] = node->attrs[i];
    }
    node->attr_count = kept;
    node->attrs = attrs;
}

uint32_t *ul_graph_count_uses(const struct ul_graph *graph, struct ul_arena *arena)
{
    uint32_t *uses = UL_NEW_ARRAY(arena, uint32_t, graph->value_count);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct ul_node *node = &graph->nodes[n];
        for (uint32_t i = 0; i < node->input_count; i++) {
            if (node->inputs[i] != UL_NONE)
                uses[node->inputs[i]]++;
        }
    }
    for (uint32_t b = 0; b < graph->block_count; b++) {
        const struct ul_block *block = &graph->blocks[b];
        for (uint32_t i = 0; i < block->output_count; i++)
            uses[block->outputs[i]]++;
    }
    return uses;
}

bool ul_graph_is_output(const struct ul_graph *graph, ul_value_id value)
{
    for (uint32_t r = 0; r < graph->root_count; r++) {
        const struct ul_block *root = &graph->blocks[r];
        for (uint32_t i = 0; i < root->output_count; i++) {
            if (root->outputs[i] == value)
                return true;
        }
    }
    return false;
}

/* A weight of the model, in whatever block it is read. */
static ul_value_id find_weight(const struct ul_graph *graph, const char *name)
{
    for (ul_value_id v = 0; v < graph->value_count; v++) {
        if (graph->values[v].kind == UL_VALUE_WEIGHT && strcmp(graph->values[v].name, name) == 0)
            return v;
    }
    return UL_NONE;
}

static ul_value_id find_named(const struct ul_graph *graph, const ul_value_id *values,
                              uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(graph->values[values[i]].name, name) == 0)
            return values[i];
    }
    return UL_NONE;
}

enum ul_status ul_graph_donate(struct ul_graph *graph, const char *output, const char *input,
                               struct ul_diag *diag)
{
    const struct ul_block *block = ul_graph_only_root(graph);
    ul_value_id out = find_named(graph, block->outputs, block->output_count, output);
    ul_value_id in = find_named(graph, block->inputs, block->input_count, input);
    if (in == UL_NONE)
        in = find_weight(graph, input);
    if (out == UL_NONE || in == UL_NONE)
        return ul_diag_set(diag, UL_USAGE, "--donate %s=%s: there is no %s %s",
                           ul_quote(graph->arena, output), ul_quote(graph->arena, input),
                           out == UL_NONE ? "output" : "input or weight",
                           ul_quote(graph->arena, out == UL_NONE ? output : input));
    if (graph->values[out].donor != UL_NONE || (graph->values[in].flags & UL_VALUE_PERSISTENT) != 0)
        return ul_diag_set(
            diag, UL_USAGE, "--donate %s=%s: %s is donated already", ul_quote(graph->arena, output),
            ul_quote(graph->arena, input),
            ul_quote(graph->arena, graph->values[out].donor != UL_NONE ? output : input));
    graph->values[out].donor = in;
    graph->values[in].flags |= UL_VALUE_PERSISTENT;
    return UL_OK;
}

const struct ul_tensor *ul_graph_get_constant(const struct ul_graph *graph, ul_value_id value)
{
    const uint32_t varies = UL_VALUE_PERSISTENT | UL_VALUE_INDEPENDENT;
    bool is_open = value == UL_NONE || (graph->values[value].flags & varies) != 0;
    return is_open ? NULL : graph->values[value].tensor;
}

bool ul_graph_get_number(const struct ul_graph *graph, ul_value_id value, double *number)
{
    const struct ul_tensor *tensor = ul_graph_get_constant(graph, value);
    const struct ul_dtype_info *dtype = tensor == NULL ? NULL : ul_dtype_get(tensor->type.dtype);
    if (dtype == NULL || !(dtype->is_float || dtype->is_integer) ||
        (tensor->data != NULL && ul_type_elements(&tensor->type) != 1))
        return false; /* equal elements are kept as one */
    *number = ul_tensor_get_float(tensor, 0);
    return true;
}

struct ul_node *ul_graph_maker(const struct ul_graph *graph, ul_value_id value)
{
    const struct ul_value *made = &graph->values[value];
    return made->kind == UL_VALUE_NODE ? &graph->nodes[made->producer] : NULL;
}

uint32_t ul_node_kernel(const struct ul_graph *graph, ul_node_id node)
{
    uint32_t group = graph->nodes[node].group;
    UL_ASSERT(group == UL_NONE || group < graph->node_count);
    return group == UL_NONE ? node : graph->node_count + group;
}

const struct ul_attr *ul_node_find_attr(const struct ul_node *node, const char *name)
{
    for (uint32_t i = 0; i < node->attr_count; i++) {
        if (strcmp(node->attrs[i].name, name) == 0)
            return &node->attrs[i];
    }
    return NULL;
}

int64_t ul_node_get_int(const struct ul_node *node, const char *name, int64_t otherwise)
{
    const struct ul_attr *attr = ul_node_find_attr(node, name);
    return attr != NULL && attr->kind == UL_ATTR_INT ? attr->i : otherwise;
}

double ul_node_get_float(const struct ul_node *node, const char *name, double otherwise)
{
    const struct ul_attr *attr = ul_node_find_attr(node, name);
    return attr != NULL && attr->kind == UL_ATTR_FLOAT ? attr->f : otherwise;
}

const char *ul_node_get_string(const struct ul_node *node, const char *name, const char *otherwise)
{
    const struct ul_attr *attr = ul_node_find_attr(node, name);
    return attr != NULL && attr->kind == UL_ATTR_STRING ? attr->s : otherwise;
}

const int64_t *ul_node_get_ints(const struct ul_node *node, const char *name, uint32_t *count)
{
    const struct ul_attr *attr = ul_node_find_attr(node, name);
    bool found = attr != NULL && attr->kind == UL_ATTR_INTS;
    *count = found ? attr->count : 0;
    return found ? attr->ints : NULL;
}

const char *ul_node_describe(const struct ul_graph *graph, ul_node_id node_id,
                             struct ul_arena *arena)
{
    const struct ul_node *node = &graph->nodes[node_id];
    return ul_arena_printf(arena, "node %u %s (%s)", (unsigned)node_id, ul_quote(arena, node->name),
                           ul_op_get(node->op)->name);
}
