/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients that the model itself asks for (Gradient of ai.onnx.preview.training, gradient
 * operators of onnxruntime), as nodes in the place of the one that asks.
 *
 *      x -> [f] -> y                          x -> [f] -> y
 *      dx = Derivative(y, dy; x)              dx = rule of f (dy, x)
 *
 * Method: what makes y is collected backwards from it as far as the values that the derivative is
 * taken by and those that do not change: these count as independent, whatever makes them. Nodes in
 * between that depend on the former are visited from the last to the first (reverse.h). Where other
 * values are given to take it at, the nodes in between are copied first, over these.
 *
 * Until then such values are no constants (UL_VALUE_INDEPENDENT): folding would leave nothing of
 * what depends on them to differentiate. Left undone: a Derivative in a loop or in a branch that is
 * not decided, or through one. */
#include "ir/op_names.h"
#include "passes/training/reverse.h"

#include "ir/infer.h"
#include "ir/op.h"

#include <string.h>

struct derive {
    struct ul_pass *pass;
    struct ul_graph *graph;
    ul_node_id node;
    uint32_t x_count, z_count;
    const ul_value_id *xs; /* the derivative is taken by these; after them come those that stay */
    /* Between them and y, in the order of the block. */
    ul_node_id *list;
    uint32_t count, capacity;
};

static void put_between(struct derive *derive, const bool *stops, bool *seen, ul_value_id value)
{
    const struct ul_graph *graph = derive->graph;
    if (value == UL_NONE || stops[value] || graph->values[value].kind != UL_VALUE_NODE)
        return;
    ul_node_id node = graph->values[value].producer;
    if (seen[node] || !ul_graph_is_root(graph, graph->nodes[node].parent))
        return;
    seen[node] = true;
    UL_GROW(derive->pass->scratch, derive->list, derive->count, derive->capacity);
    derive->list[derive->count++] = node;
}

/* Finds the nodes that lead to y, then puts them in the block's order. */
static void find_between(struct derive *derive, const bool *stops, ul_value_id y)
{
    struct ul_graph *graph = derive->graph;
    struct ul_arena *scratch = derive->pass->scratch;
    bool *seen = UL_NEW_ARRAY(scratch, bool, graph->node_count);
    derive->count = 0;
    put_between(derive, stops, seen, y);
    for (uint32_t next = 0; next < derive->count; next++) {
        const struct ul_node *node = &graph->nodes[derive->list[next]];
        for (uint32_t i = 0; i < node->input_count; i++)
            put_between(derive, stops, seen, node->inputs[i]);
    }
    const struct ul_block *block = ul_graph_only_root(graph);
    uint32_t sorted = 0;
    for (uint32_t p = 0; p < block->node_count && sorted < derive->count; p++)
        if (seen[block->nodes[p]])
            derive->list[sorted++] = block->nodes[p];
    UL_ASSERT(sorted == derive->count);
}

static bool *mark_stops(const struct derive *derive)
{
    bool *stops = UL_NEW_ARRAY(derive->pass->scratch, bool, derive->graph->value_count);
    for (uint32_t i = 0; i < derive->x_count + derive->z_count; i++)
        stops[derive->xs[i]] = true;
    return stops;
}

static struct ul_build build_here(const struct derive *derive)
{
    return ul_build_before(derive->graph, derive->node);
}

/* Copies the node, with what stands for its inputs, where that differs; maps its outputs. */
static enum ul_status copy_node(const struct derive *derive, struct ul_build *build,
                                ul_value_id *map, ul_node_id id)
{
    struct ul_graph *graph = derive->graph;
    const struct ul_node old = graph->nodes[id];
    ul_value_id *inputs = UL_NEW_ARRAY(derive->pass->scratch, ul_value_id, old.input_count);
    bool differs = false;
    for (uint32_t i = 0; i < old.input_count; i++) {
        inputs[i] = old.inputs[i] == UL_NONE ? UL_NONE : map[old.inputs[i]];
        differs = differs || inputs[i] != old.inputs[i];
    }
    if (!differs)
        return UL_OK;
    if (old.block_count > 0)
        return ul_diag_set(derive->pass->diag, UL_UNSUPPORTED,
                           "%s: %s is evaluated again at other values, and has graphs inside; give "
                           "the values that xs and zs name",
                           ul_node_describe(graph, derive->node, derive->pass->scratch),
                           ul_node_describe(graph, id, derive->pass->scratch));
    ul_node_id copy = ul_build_like(build, id, inputs);
    for (uint32_t i = 0; i < old.output_count; i++) {
        ul_value_id made = graph->nodes[copy].outputs[i];
        graph->values[made].type = graph->values[old.outputs[i]].type;
        map[old.outputs[i]] = made;
    }
    return UL_OK;
}

/* Where values are given to take the derivative at, the node asks for the derivative of a copy of y
 * over these values, which then lose their names. */
static enum ul_status move_to_values(struct derive *derive)
{
    struct ul_graph *graph = derive->graph;
    uint32_t named = derive->x_count + derive->z_count;
    const struct ul_node *node = &graph->nodes[derive->node];
    if (node->input_count == 2 + named)
        return UL_OK;
    UL_ASSERT(node->input_count == 2 + 2 * named);
    ul_value_id y = node->inputs[0], *inputs = node->inputs;
    ul_value_id *map = UL_NEW_ARRAY(derive->pass->scratch, ul_value_id, graph->value_count);
    for (uint32_t v = 0; v < graph->value_count; v++)
        map[v] = v;
    for (uint32_t i = 0; i < named; i++) {
        ul_value_id at = inputs[2 + named + i];
        if (!ul_type_equal(&graph->values[at].type, &graph->values[derive->xs[i]].type))
            return ul_diag_set(derive->pass->diag, UL_INVALID,
                               "%s: input %u is of another type than %s, whose value it is to be",
                               ul_node_describe(graph, derive->node, derive->pass->scratch),
                               (unsigned)i,
                               ul_quote(derive->pass->scratch, graph->values[derive->xs[i]].name));
        map[derive->xs[i]] = at;
    }
    find_between(derive, mark_stops(derive), y);
    struct ul_build build = build_here(derive);
    for (uint32_t i = 0; i < derive->count; i++)
        UL_TRY(copy_node(derive, &build, map, derive->list[i]));
    inputs[0] = map[y];
    memmove(inputs + 2, inputs + 2 + named, named * sizeof *inputs);
    graph->nodes[derive->node].input_count = 2 + named;
    return UL_OK;
}

/* Each output is what was found, or zeros where y does not depend on the value. */
static void finish(struct derive *derive, struct ul_reverse *reverse)
{
    struct ul_graph *graph = derive->graph;
    struct ul_rewrite rewrite;
    ul_rewrite_init(&rewrite, graph, derive->pass->scratch);
    for (uint32_t i = 0; i < graph->nodes[derive->node].output_count; i++) {
        ul_value_id output = graph->nodes[derive->node].outputs[i];
        ul_value_id found = reverse->gradients[derive->xs[i]];
        const struct ul_value old = graph->values[output];
        reverse->rule.build.name = old.name;
        if (found == UL_NONE)
            found = ul_build_zeros(&reverse->rule.build, &old.type);
        /* Outputs of the model keep their names, and what they overwrite. */
        ul_value_id copy =
            ul_build_value(&reverse->rule.build, UL_OP_Identity, &found, 1, &old.type);
        graph->values[copy].name = old.name;
        graph->values[copy].flags |= old.flags;
        graph->values[copy].donor = old.donor;
        ul_rewrite_replace(&rewrite, output, copy);
    }
    ul_rewrite_apply(&rewrite);
    ul_graph_remove_node(graph, derive->node);
}

static enum ul_status write_out(struct derive *derive)
{
    struct ul_graph *graph = derive->graph;
    struct ul_reverse reverse;
    UL_TRY(move_to_values(derive));
    ul_reverse_init(&reverse, derive->pass, 0);
    const struct ul_node node = graph->nodes[derive->node];
    reverse.suffix = ul_arena_printf(derive->pass->scratch, "%s", node.name);
    reverse.asked_by = ul_node_describe(graph, derive->node, derive->pass->scratch);
    reverse.stops = mark_stops(derive);
    ul_gradient_set_node(&reverse.rule, derive->node);
    ul_gradient_set_place(&reverse.rule, build_here(derive));
    for (uint32_t i = 0; i < derive->x_count; i++)
        reverse.wanted[derive->xs[i]] = true;
    for (uint32_t i = 0; i < derive->z_count; i++)
        reverse.wanted[derive->xs[derive->x_count + i]] = false;
    find_between(derive, reverse.stops, node.inputs[0]);
    for (uint32_t i = 0; i < derive->count; i++)
        ul_reverse_want(&reverse, derive->list[i]);
    ul_value_id seed = node.inputs[1];
    if (seed == UL_NONE) {
        const struct ul_type type = ul_gradient_type(&reverse.rule, node.inputs[0]);
        seed = ul_build_number_like(&reverse.rule.build, node.inputs[0], 1);
        seed = ul_build_expand(&reverse.rule.build, seed, &type);
    }
    if (reverse.wanted[node.inputs[0]])
        reverse.gradients[node.inputs[0]] = seed;
    for (uint32_t i = derive->count; i-- > 0;)
        UL_TRY(ul_reverse_visit(&reverse, derive->list[i]));
    finish(derive, &reverse);
    return UL_OK;
}

static enum ul_status check_block(const struct ul_pass *pass, ul_block_id block)
{
    const struct ul_graph *graph = pass->graph;
    for (uint32_t p = 0; p < graph->blocks[block].node_count; p++) {
        ul_node_id id = graph->blocks[block].nodes[p];
        const struct ul_node *node = &graph->nodes[id];
        if (!ul_graph_is_root(graph, block) && node->op == UL_OP_Derivative)
            return ul_diag_set(pass->diag, UL_UNSUPPORTED,
                               "%s: a gradient inside of a loop or branch is not supported; take "
                               "it out of there",
                               ul_node_describe(graph, id, pass->scratch));
        for (uint32_t b = 0; b < node->block_count; b++)
            UL_TRY(check_block(pass, node->blocks[b]));
    }
    return UL_OK;
}

enum ul_status ul_pass_derive(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    bool any = false;
    UL_TRY(check_block(pass, 0));
    for (uint32_t p = 0; p < ul_graph_only_root(graph)->node_count; p++) {
        ul_node_id id = ul_graph_only_root(graph)->nodes[p];
        if (graph->nodes[id].op != UL_OP_Derivative)
            continue;
        struct derive derive = {.pass = pass, .graph = graph, .node = id};
        const struct ul_node *node = &graph->nodes[id];
        uint32_t count = node->input_count - 2;
        derive.x_count = (uint32_t)ul_node_get_int(node, "ul_xs", 0);
        bool has_values = ul_node_get_int(node, "ul_values", 0) != 0;
        derive.z_count = (has_values ? count / 2 : count) - derive.x_count;
        derive.xs = node->inputs + 2;
        UL_TRY(write_out(&derive));
        any = true;
        while (ul_graph_only_root(graph)->nodes[p] != id)
            p++; /* behind what was built */
    }
    for (uint32_t v = 0; v < graph->value_count; v++) {
        any = any || (graph->values[v].flags & UL_VALUE_INDEPENDENT) != 0;
        graph->values[v].flags &= ~(uint32_t)UL_VALUE_INDEPENDENT;
    }
    ul_graph_sweep(graph);
    return any ? ul_pass_infer(pass) : UL_OK;
}
