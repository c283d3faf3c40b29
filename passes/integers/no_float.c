/* SPDX-License-Identifier: Apache-2.0 */
/* --no-float: a program without any floating point, for processors that have none.
 *
 * Problem: pass integers leaves floats where a model has them: at its edges, in scales, and in what
 * is elementwise between Dequantize and Quantize. Method: inputs and outputs become the integers on
 * the other side of the outer QuantizeLinear and DequantizeLinear; scales are in fixed point
 * (no_float_scale.c); functions of one 8-bit value are tables, where pass integers has left one
 * (integers_table.c); products of two values multiply integers (no_float_product.c), numbers of
 * each channel are factors and a term more (no_float_affine.c), softmax and LayerNormalization
 * divide them (no_float_rows.c), a Resize weighs them (no_float_resize.c). What is left in floats
 * is refused where kernels are printed (codegen/program/program.c), with the name of the node.
 * Results are at most a step from those in floats. Left undone: other normalisations, functions of
 * several values beside Add, Sub, Mul. */
#include "ir/op_names.h"
#include "passes/integers/no_float_internal.h"

static enum ul_status fail(struct ul_pass *pass, const char *what, const char *remedy)
{
    return ul_diag_set(pass->diag, UL_UNSUPPORTED, "%s; %s", what, remedy);
}

/* ---- The edges ---- */

static void set_edge(struct ul_graph *graph, ul_value_id value, const struct ul_scaled *scaled)
{
    graph->values[value].edge_scale = ul_scaled_scale(scaled, 0);
    graph->values[value].edge_zero = ul_scaled_zero(scaled, 0);
}

/* An input that all its readers quantize alike becomes what they make. */
static enum ul_status turn_input(struct ul_integers *integers, ul_value_id input)
{
    struct ul_graph *graph = integers->graph;
    struct ul_pass *pass = integers->pass;
    struct ul_scaled first = {.x = UL_NONE}, y;
    for (uint32_t id = 0; id < graph->node_count; id++) {
        const struct ul_node *node = &graph->nodes[id];
        for (uint32_t i = 0; node->op != UL_OP_NONE && i < node->input_count; i++) {
            if (node->inputs[i] != input)
                continue;
            bool is_first = first.x == UL_NONE;
            if (i != 0 || node->op != UL_OP_Quantize || !ul_integers_result(integers, node, &y) ||
                (!is_first && (!ul_scaled_same(&first, &y) ||
                               graph->values[first.x].type.dtype != graph->values[y.x].type.dtype)))
                return fail(pass,
                            ul_arena_printf(pass->scratch, "input %s is read in floats by %s",
                                            ul_quote(pass->scratch, graph->values[input].name),
                                            ul_node_describe(graph, id, pass->scratch)),
                            "for --no-float one QuantizeLinear with one scale must stand behind "
                            "each input");
            first = is_first ? y : first;
            ul_rewrite_replace(&integers->rewrite, y.x, input);
        }
    }
    if (first.x == UL_NONE)
        return UL_OK;
    graph->values[input].type.dtype = graph->values[first.x].type.dtype;
    set_edge(graph, input, &first);
    return UL_OK;
}

/* An output that is dequantized becomes the integers that it is made from. */
static enum ul_status turn_output(struct ul_integers *integers, ul_value_id output)
{
    struct ul_graph *graph = integers->graph;
    struct ul_pass *pass = integers->pass;
    struct ul_scaled x;
    if (!ul_no_float_find(integers, output, &x))
        return fail(pass,
                    ul_arena_printf(pass->scratch, "output %s is computed in floats",
                                    ul_quote(pass->scratch, graph->values[output].name)),
                    "for --no-float a DequantizeLinear with one scale must make it");
    ul_node_id id = graph->values[output].producer;
    set_edge(graph, output, &x);
    graph->values[output].type.dtype = graph->values[x.x].type.dtype;
    ul_node_become(graph, id, UL_OP_Identity, &x.x, 1);
    if (graph->values[x.x].kind == UL_VALUE_NODE && !ul_graph_is_output(graph, x.x)) {
        set_edge(graph, x.x, &x);
        (void)ul_rewrite_forward(&integers->rewrite, output, x.x);
    }
    return UL_OK;
}

static enum ul_status turn_edges(struct ul_integers *integers)
{
    struct ul_graph *graph = integers->graph;
    for (uint32_t i = 0; i < ul_graph_only_root(graph)->input_count; i++) {
        ul_value_id input = ul_graph_only_root(graph)->inputs[i];
        if (ul_dtype_get(graph->values[input].type.dtype)->is_float)
            UL_TRY(turn_input(integers, input));
    }
    for (uint32_t i = 0; i < ul_graph_only_root(graph)->output_count; i++) {
        ul_value_id output = ul_graph_only_root(graph)->outputs[i];
        if (ul_dtype_get(graph->values[output].type.dtype)->is_float)
            UL_TRY(turn_output(integers, output));
    }
    ul_rewrite_apply(&integers->rewrite);
    return UL_OK;
}

/* ---- Between them ---- */

static void turn(struct ul_integers *integers, ul_node_id id)
{
    ul_op_id op = integers->graph->nodes[id].op;
    if (op == UL_OP_Rescale)
        (void)ul_no_float_fix(integers, id);
    if (op == UL_OP_Resize)
        (void)ul_no_float_nearest(integers, id);
    if (op == UL_OP_Quantize)
        (void)(ul_integers_table(integers, id) || ul_no_float_product(integers, id) ||
               ul_no_float_affine(integers, id) || ul_no_float_softmax(integers, id) ||
               ul_no_float_layer_norm(integers, id) || ul_no_float_resize(integers, id));
}

enum ul_status ul_pass_no_float(struct ul_pass *pass)
{
    struct ul_integers integers = {.pass = pass, .graph = pass->graph};
    if (!pass->options->no_float)
        return UL_OK;
    ul_rewrite_init(&integers.rewrite, pass->graph, pass->scratch);
    integers.uses = ul_graph_count_uses(pass->graph, pass->scratch);
    integers.known_count = pass->graph->value_count;
    UL_TRY(turn_edges(&integers));
    ul_integers_walk(&integers, 0, turn);
    ul_graph_sweep(pass->graph);
    return ul_pass_dce(pass);
}
