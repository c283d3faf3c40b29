/* SPDX-License-Identifier: Apache-2.0 */
/* Replacing values and nodes. */
#include "ir/rewrite.h"

#include <string.h>

void ul_rewrite_init(struct ul_rewrite *rewrite, struct ul_graph *graph, struct ul_arena *arena)
{
    *rewrite =
        (struct ul_rewrite){.graph = graph, .arena = arena, .known_count = graph->value_count};
    rewrite->map = UL_NEW_ARRAY(arena, ul_value_id, graph->value_count);
    for (uint32_t v = 0; v < graph->value_count; v++)
        rewrite->map[v] = v;
}

/* What stands for the value now. */
static ul_value_id current(const struct ul_rewrite *rewrite, ul_value_id value)
{
    while (value < rewrite->known_count && rewrite->map[value] != value)
        value = rewrite->map[value];
    return value;
}

void ul_rewrite_replace(struct ul_rewrite *rewrite, ul_value_id value, ul_value_id with)
{
    UL_ASSERT(value < rewrite->known_count && current(rewrite, with) != value);
    rewrite->map[value] = with;
}

bool ul_rewrite_forward(struct ul_rewrite *rewrite, ul_value_id value, ul_value_id with)
{
    struct ul_graph *graph = rewrite->graph;
    const struct ul_value *old = &graph->values[value];
    with = current(rewrite, with);
    if (!ul_graph_is_output(graph, value)) {
        ul_rewrite_replace(rewrite, value, with);
        return true;
    }
    /* An output of the model keeps its name: the other value takes it over, if it has none to
     * lose. */
    struct ul_value *fresh = &graph->values[with];
    if (fresh->kind != UL_VALUE_NODE || ul_graph_is_output(graph, with) ||
        !ul_graph_is_root(graph, graph->nodes[fresh->producer].parent) || old->donor != UL_NONE ||
        old->flags != 0 || (fresh->declared != UL_DTYPE_NONE && fresh->declared != old->declared))
        return false;
    fresh->name = old->name;
    fresh->declared = old->declared;
    ul_rewrite_replace(rewrite, value, with);
    /* At once, so that the next to ask sees that it is an output now. */
    struct ul_block *root = &graph->blocks[graph->nodes[fresh->producer].parent];
    for (uint32_t i = 0; i < root->output_count; i++)
        root->outputs[i] = root->outputs[i] == value ? with : root->outputs[i];
    return true;
}

void ul_rewrite_inputs(const struct ul_rewrite *rewrite, ul_node_id id)
{
    struct ul_node *node = &rewrite->graph->nodes[id];
    for (uint32_t i = 0; i < node->input_count; i++)
        node->inputs[i] = current(rewrite, node->inputs[i]);
}

/* The end of the chain from `value`; shortens the chain. */
static ul_value_id replacement(ul_value_id *map, ul_value_id value)
{
    ul_value_id root = value;
    while (map[root] != root)
        root = map[root];
    while (map[value] != root) {
        ul_value_id next = map[value];
        map[value] = root;
        value = next;
    }
    return root;
}

/* Replaces uses in node inputs, block outputs and donors. `map` has value_count entries. */
static void replace_uses(struct ul_graph *graph, ul_value_id *map)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        struct ul_node *node = &graph->nodes[n];
        for (uint32_t i = 0; i < node->input_count; i++) {
            if (node->inputs[i] != UL_NONE)
                node->inputs[i] = replacement(map, node->inputs[i]);
        }
    }
    for (uint32_t b = 0; b < graph->block_count; b++) {
        struct ul_block *block = &graph->blocks[b];
        for (uint32_t i = 0; i < block->output_count; i++)
            block->outputs[i] = replacement(map, block->outputs[i]);
    }
    for (uint32_t v = 0; v < graph->value_count; v++) {
        if (graph->values[v].donor != UL_NONE)
            graph->values[v].donor = replacement(map, graph->values[v].donor);
    }
}

void ul_rewrite_apply(struct ul_rewrite *rewrite)
{
    struct ul_rewrite all;
    ul_rewrite_init(&all, rewrite->graph, rewrite->arena);
    UL_ASSERT(all.known_count >= rewrite->known_count);
    for (uint32_t v = 0; v < rewrite->known_count; v++)
        all.map[v] = rewrite->map[v];
    replace_uses(rewrite->graph, all.map);
    *rewrite = all;
}

void ul_node_become(struct ul_graph *graph, ul_node_id id, ul_op_id op, const ul_value_id *inputs,
                    uint32_t input_count)
{
    struct ul_node *node = &graph->nodes[id];
    UL_ASSERT(op != UL_OP_NONE && node->op != UL_OP_NONE && input_count > 0);
    node->inputs = ul_arena_copy(graph->arena, inputs, (uint64_t)input_count * sizeof *inputs);
    node->op = op;
    node->input_count = input_count;
    node->attr_count = 0;
}

void ul_graph_remove_node(struct ul_graph *graph, ul_node_id node_id)
{
    struct ul_node *node = &graph->nodes[node_id];
    node->op = UL_OP_NONE;
    node->group = UL_NONE;
    for (uint32_t i = 0; i < node->output_count; i++)
        graph->values[node->outputs[i]].kind = UL_VALUE_DEAD;
    for (uint32_t b = 0; b < node->block_count; b++) {
        struct ul_block *block = &graph->blocks[node->blocks[b]];
        for (uint32_t i = 0; i < block->input_count; i++)
            graph->values[block->inputs[i]].kind = UL_VALUE_DEAD;
        for (uint32_t i = 0; i < block->node_count; i++)
            ul_graph_remove_node(graph, block->nodes[i]);
        block->node_count = block->input_count = block->output_count = 0;
        block->owner = UL_NONE;
    }
    node->input_count = node->output_count = node->attr_count = node->block_count = 0;
}

void ul_graph_sweep(struct ul_graph *graph)
{
    for (uint32_t b = 0; b < graph->block_count; b++) {
        struct ul_block *block = &graph->blocks[b];
        uint32_t kept = 0;
        for (uint32_t i = 0; i < block->node_count; i++) {
            if (graph->nodes[block->nodes[i]].op != UL_OP_NONE)
                block->nodes[kept++] = block->nodes[i];
        }
        block->node_count = kept;
    }
}

/* Makes `output` of a node that value. */
static void set_output(struct ul_graph *graph, ul_node_id node, uint32_t output, ul_value_id value)
{
    UL_ASSERT(output < graph->nodes[node].output_count);
    graph->nodes[node].outputs[output] = value;
    graph->values[value].producer = node;
    graph->values[value].producer_output = output;
}

void ul_graph_exchange(struct ul_graph *graph, ul_value_id a, ul_value_id b)
{
    const struct ul_value one = graph->values[a], other = graph->values[b];
    UL_ASSERT(one.kind == UL_VALUE_NODE && other.kind == UL_VALUE_NODE);
    set_output(graph, one.producer, one.producer_output, b);
    set_output(graph, other.producer, other.producer_output, a);
}
