/* SPDX-License-Identifier: Apache-2.0 */
/* Integers between DequantizeLinear and QuantizeLinear.
 *
 * Problem: exporters and quantizers write a network of integers as floats between these two, or
 * with operators that stand for all three (QLinearConv). Method: one walk in execution order, in
 * which
 *
 * - products and convolutions of scaled integers become sums of integers, a bias and a factor
 *   (integers_sums.c): ConvInteger, MatMulInteger, ConvTransposeInteger -> Add -> Cast -> Mul;
 * - a QuantizeLinear of sums of such, through Relu and Clip, becomes one Rescale
 *   (integers_rescale.c), which fuses after them;
 * - movements are done on integers (integers_move.c);
 * - functions of one 8-bit value become tables (integers_table.c), and means sums and a Rescale
 *   (integers_mean.c), in a walk at the end.
 *
 *      x --> DequantizeLinear --.                              x -.
 *      w --> DequantizeLinear --> Conv --> Relu --> Quantize   w --> ConvInteger -->
 *                                                          Add --> Rescale
 *
 * All else keeps its form: an elementwise operator of two values, a Softmax between the two is one
 * kernel that loads and stores integers. Numbers differ from those of the floats by a step of the
 * result at most, where a sum lies next to the middle of two. What is left of constants that would
 * be small as floats is folded, as inference would have. */
#include "ir/infer.h"
#include "ir/op.h"
#include "ir/op_names.h"
#include "passes/integers/integers_internal.h"

static void rewrite(struct ul_integers *integers, ul_node_id id)
{
    switch ((int)integers->graph->nodes[id].op) {
    case UL_OP_Conv:
    case UL_OP_ConvTranspose:
    case UL_OP_MatMul:
    case UL_OP_Gemm:
        (void)ul_integers_product(integers, id);
        break;
    case UL_OP_QLinearConv:
    case UL_OP_QLinearMatMul:
        (void)ul_integers_qlinear(integers, id);
        break;
    case UL_OP_ConvInteger:
    case UL_OP_MatMulInteger:
        (void)ul_integers_shift(integers, id);
        break;
    case UL_OP_QuantizeLinear:
        (void)(ul_integers_rescale(integers, id) || ul_integers_move_quantize(integers, id));
        break;
    default:
        (void)ul_integers_move(integers, id);
        break;
    }
}

/* Whether it has less than a byte an element, and more than a few bytes. */
static bool is_worth_packing(const struct ul_type *type)
{
    enum { FEW_ELEMENTS = 64 };
    return ul_dtype_get(type->dtype)->bits < 8 && ul_type_elements(type) > FEW_ELEMENTS;
}

/* Folding stores the elements in 16 bits; a kernel that computes them for itself does not round. */
static bool rounds(const struct ul_graph *graph, const struct ul_node *node)
{
    const struct ul_type *type = &graph->values[node->outputs[0]].type;
    return ul_dtype_is_half(type->dtype) && ul_type_elements(type) > 1;
}

/* Folds what widens constants, up to so many bytes of results. */
static bool fold(struct ul_integers *integers, ul_node_id id)
{
    enum { SMALL_BYTES = 4096 };
    struct ul_graph *graph = integers->graph;
    const struct ul_node *node = &graph->nodes[id];
    if ((ul_op_get(node->op)->flags & UL_OP_WIDENS) == 0 ||
        is_worth_packing(&graph->values[node->inputs[0]].type) || rounds(graph, node) ||
        ul_type_bytes(&graph->values[node->outputs[0]].type) > SMALL_BYTES ||
        ul_graph_get_constant(graph, node->inputs[0]) == NULL ||
        !ul_node_fold(graph, id, integers->pass->scratch))
        return false;
    ul_edit_make_weight(graph, node->outputs[0]);
    ul_graph_remove_node(graph, id);
    return true;
}

/* Appends the dimensions of x after the scales' axis, so that they broadcast. */
static ul_value_id spread(struct ul_integers *integers, ul_value_id scales, uint32_t trailing)
{
    const struct ul_type *type = &integers->graph->values[scales].type;
    int64_t dims[UL_LIMIT_RANK] = {(int64_t)ul_type_elements(type)};
    UL_ASSERT(trailing < UL_LIMIT_RANK && type->rank == 1);
    for (uint32_t d = 1; d <= trailing; d++)
        dims[d] = 1;
    const struct ul_tensor *constant = ul_graph_get_constant(integers->graph, scales);
    if (trailing > 0 && constant != NULL && ul_dtype_get(type->dtype)->bits < 8) {
        struct ul_tensor *own = UL_NEW(integers->graph->arena, struct ul_tensor);
        *own = *constant; /* a view of it would keep it from being packed */
        own->type = ul_type_make(type->dtype, trailing + 1, dims);
        return ul_graph_add_weight(integers->graph, integers->graph->values[scales].name, own);
    }
    return trailing == 0 ? scales : ul_build_reshape(&integers->build, scales, trailing + 1, dims);
}

/* Makes elementwise nodes of QuantizeLinear and DequantizeLinear whose scales are no blocks. */
static void broadcast(struct ul_integers *integers, ul_node_id id)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_node node = graph->nodes[id];
    if ((node.op != UL_OP_QuantizeLinear && node.op != UL_OP_DequantizeLinear) ||
        ul_node_get_int(&node, "block_size", 0) != 0)
        return;
    const struct ul_type x = graph->values[node.inputs[0]].type;
    const struct ul_type scale = graph->values[node.inputs[1]].type;
    ul_value_id inputs[3] = {node.inputs[0], node.inputs[1],
                             node.input_count > 2 ? node.inputs[2] : UL_NONE};
    if (ul_type_elements(&scale) != 1) {
        int64_t axis = ul_node_get_int(&node, "axis", 1);
        axis = x.rank == 1 ? 0 : axis < 0 ? axis + (int64_t)x.rank : axis;
        uint32_t trailing = x.rank - 1 - (uint32_t)axis;
        for (uint32_t i = 1; i < 3; i++)
            inputs[i] = inputs[i] == UL_NONE ? UL_NONE : spread(integers, inputs[i], trailing);
    } else if (scale.rank > x.rank) {
        return;
    }
    ul_op_id op = node.op == UL_OP_QuantizeLinear ? UL_OP_Quantize : UL_OP_Dequantize;
    ul_integers_become(integers, id, op, inputs, inputs[2] == UL_NONE ? 2 : 3, &node);
}

/* Each reader widens integers for itself, so that it can fuse that. */
static void share_out(struct ul_integers *integers, ul_node_id id)
{
    struct ul_graph *graph = integers->graph;
    for (uint32_t i = 0; i < graph->nodes[id].input_count; i++) {
        ul_value_id value = graph->nodes[id].inputs[i];
        const struct ul_node *maker = value == UL_NONE ? NULL : ul_integers_maker(integers, value);
        if (maker == NULL || value >= integers->known_count || integers->uses[value] < 2 ||
            (ul_op_get(maker->op)->flags & UL_OP_WIDENS) == 0)
            continue;
        const struct ul_node from = *maker;
        ul_value_id own = ul_integers_add(integers, from.op, from.inputs, from.input_count, &from);
        graph->nodes[id].inputs[i] = own;
        integers->uses[value]--;
    }
}

/* What is left is folded, made elementwise, or stays; dce removes what nothing reads. */
static void finish(struct ul_integers *integers, ul_node_id id)
{
    share_out(integers, id);
    const struct ul_node *node = &integers->graph->nodes[id];
    bool is_read =
        node->op != UL_OP_NONE && node->output_count == 1 && integers->uses[node->outputs[0]] > 0;
    if (is_read && !fold(integers, id))
        broadcast(integers, id);
}

static void end_floats(struct ul_integers *integers, ul_node_id id)
{
    ul_op_id op = integers->graph->nodes[id].op;
    if (op == UL_OP_Rescale)
        (void)ul_integers_table(integers, id);
    else if (op == UL_OP_Quantize)
        (void)(ul_integers_table(integers, id) || ul_integers_mean(integers, id));
}

void ul_integers_walk(struct ul_integers *integers, ul_block_id block,
                      void (*visit)(struct ul_integers *, ul_node_id))
{
    struct ul_graph *graph = integers->graph;
    for (uint32_t at = 0; at < graph->blocks[block].node_count; at++) {
        ul_node_id id = graph->blocks[block].nodes[at];
        ul_rewrite_inputs(&integers->rewrite, id);
        for (uint32_t b = 0; b < graph->nodes[id].block_count; b++)
            ul_integers_walk(integers, graph->nodes[id].blocks[b], visit);
        integers->build = ul_build_at(graph, block, at, graph->nodes[id].name);
        visit(integers, id);
        UL_ASSERT(integers->build.at >= at);
        at = integers->build.at;
    }
}

enum ul_status ul_pass_integers(struct ul_pass *pass)
{
    struct ul_integers integers = {.pass = pass, .graph = pass->graph};
    ul_rewrite_init(&integers.rewrite, pass->graph, pass->scratch);
    integers.uses = ul_graph_count_uses(pass->graph, pass->scratch);
    integers.known_count = pass->graph->value_count;
    ul_integers_walk(&integers, 0, rewrite);
    ul_rewrite_apply(&integers.rewrite);
    integers.uses = ul_graph_count_uses(pass->graph, pass->scratch);
    integers.known_count = pass->graph->value_count;
    ul_integers_walk(&integers, 0, finish);
    ul_integers_walk(&integers, 0, end_floats);
    ul_graph_sweep(pass->graph);
    return UL_OK;
}
