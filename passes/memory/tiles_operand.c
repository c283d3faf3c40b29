/* SPDX-License-Identifier: Apache-2.0 */
/* Operands of tiles that are light work of the forward pass: each tile makes its own.
 *
 *      h = a w1;  y = Gelu(h);  z = y w2           y' = Gelu(h), after the forward pass
 *      dw2 = y^T dz                                dw2 = y'^T dz
 *
 * Problem: y is read forwards and, much later, by the gradient alone; h is kept for the gradient of
 * Gelu anyway. Method: the product gets a copy of the map of its own. The copy's columns are cut
 * with the product's, so that no more than a tile's part of y' ever exists. Left undone: maps of
 * several large values; maps that one kernel computes with others. */
#include "ir/op.h"
#include "ir/view.h"
#include "passes/memory/tiles.h"

enum {
    MAX_VIEWS = 4, /* between the map's result and the product */
    SMALL = 16     /* an input is small if it is smaller than the result by that factor */
};

/* An operand of a product: the map that makes it, and the views from there on, the last one
 * first. */
struct operand {
    ul_node_id map, views[MAX_VIEWS];
    uint32_t view_count;
};

/* A map of the forward pass that is a kernel of its own, with bytes of its own. */
static bool is_lone_map(const struct ul_graph *graph, ul_node_id id)
{
    const struct ul_node *node = &graph->nodes[id];
    uint32_t flags = ul_op_get(node->op)->flags;
    return (flags & UL_OP_ELEMENTWISE) != 0 && (flags & (UL_OP_RANDOM | UL_OP_CONTROL)) == 0 &&
           node->output_count == 1 && ul_graph_is_root(graph, node->parent) &&
           node->group == UL_NONE && !ul_edit_is_backward(graph, node) &&
           graph->values[node->outputs[0]].view.base == node->outputs[0];
}

static bool find_map(const struct ul_graph *graph, ul_value_id value, struct operand *operand)
{
    operand->view_count = 0;
    while (value != UL_NONE && graph->values[value].kind == UL_VALUE_NODE) {
        ul_node_id made = graph->values[value].producer;
        if (!ul_node_is_view(graph, made)) {
            operand->map = made;
            return is_lone_map(graph, made);
        }
        if (operand->view_count == MAX_VIEWS || graph->nodes[made].output_count != 1)
            return false;
        operand->views[operand->view_count++] = made;
        value = graph->nodes[made].inputs[0];
    }
    return false;
}

/* Whether a node of the backward pass other than `but`, from `from` on in the block, reads the
 * value. */
static bool is_read_backwards(const struct ul_graph *graph, ul_value_id value, uint32_t from,
                              ul_node_id but)
{
    const struct ul_block *block = ul_graph_only_root(graph);
    for (uint32_t n = from; n < block->node_count; n++) {
        ul_node_id id = block->nodes[n];
        if (id != but && !ul_node_is_view(graph, id) &&
            ul_edit_is_backward(graph, &graph->nodes[id]) && ul_donate_reads(graph, id, value))
            return true;
    }
    return false;
}

/* Whether all that the map reads is there at `place` anyway. */
static bool is_kept(const struct ul_graph *graph, ul_node_id map, uint32_t place)
{
    const struct ul_node *node = &graph->nodes[map];
    uint64_t elements = ul_type_elements(&graph->values[node->outputs[0]].type);
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] == UL_NONE)
            continue;
        const struct ul_value *read = &graph->values[node->inputs[i]];
        if (read->kind == UL_VALUE_NODE && ul_type_elements(&read->type) > elements / SMALL &&
            !is_read_backwards(graph, read->view.base, place, UL_NONE))
            return false;
    }
    return true;
}

/* Where the step of a node begins in its block. */
static uint32_t find_place(const struct ul_graph *graph, ul_node_id id)
{
    const struct ul_block *block = ul_graph_only_root(graph);
    uint32_t group = graph->nodes[id].group;
    for (uint32_t n = 0; n < block->node_count; n++) {
        if (block->nodes[n] == id ||
            (group != UL_NONE && graph->nodes[block->nodes[n]].group == group))
            return n;
    }
    UL_ASSERT(false);
    return 0;
}

/* A copy of the node that reads `input` in the place of `old`. */
static ul_value_id copy_node(struct ul_graph *graph, struct ul_build *build, ul_node_id id,
                             ul_value_id old, ul_value_id input)
{
    const struct ul_node node = graph->nodes[id]; /* the array moves */
    ul_value_id *inputs =
        ul_arena_copy(graph->arena, node.inputs, node.input_count * sizeof *inputs);
    for (uint32_t i = 0; i < node.input_count; i++)
        inputs[i] = inputs[i] == old ? input : inputs[i];
    ul_node_id copy = ul_build_like(build, id, inputs);
    ul_value_id made = graph->nodes[copy].outputs[0];
    struct ul_value *value = &graph->values[made];
    const struct ul_value *from = &graph->values[node.outputs[0]];
    value->type = from->type;
    value->view = from->view;
    ul_value_store_as(graph, made, node.outputs[0]);
    value->flags |= UL_VALUE_BACKWARD | (from->flags & UL_VALUE_ROUNDED);
    return made;
}

ul_node_id ul_tiles_own_operand(struct ul_graph *graph, ul_node_id product, uint32_t input)
{
    uint32_t place = find_place(graph, product);
    struct operand operand;
    if (!find_map(graph, graph->nodes[product].inputs[input], &operand) ||
        !is_kept(graph, operand.map, place) ||
        is_read_backwards(graph, graph->nodes[operand.map].outputs[0], 0, product))
        return product;
    struct ul_build build = ul_build_before(graph, ul_graph_only_root(graph)->nodes[place]);
    ul_value_id old = graph->nodes[operand.map].outputs[0];
    ul_value_id base = copy_node(graph, &build, operand.map, UL_NONE, UL_NONE), made = base;
    graph->values[base].view.base = base;
    for (uint32_t v = operand.view_count; v-- > 0;) {
        made = copy_node(graph, &build, operand.views[v], old, made);
        graph->values[made].view.base = base;
        old = graph->nodes[operand.views[v]].outputs[0];
    }
    UL_ASSERT(old == graph->nodes[product].inputs[input]);
    graph->nodes[product].inputs[input] = made;
    return graph->values[base].producer;
}

void ul_tiles_drop_operand(struct ul_graph *graph, ul_node_id product, uint32_t input,
                           ul_node_id map, ul_value_id value)
{
    ul_node_id last = graph->values[graph->nodes[product].inputs[input]].producer;
    graph->nodes[product].inputs[input] = value;
    for (bool is_map = false; !is_map;) {
        ul_value_id read = graph->nodes[last].inputs[0];
        is_map = last == map;
        ul_graph_remove_node(graph, last);
        UL_ASSERT(is_map || graph->values[read].kind == UL_VALUE_NODE);
        last = is_map ? last : graph->values[read].producer;
    }
    ul_graph_sweep(graph);
}
