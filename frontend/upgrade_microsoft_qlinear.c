/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of com.microsoft on quantized tensors: DequantizeLinear, the operator of ai.onnx, and
 * QuantizeLinear. What computes in integers is found where all quantized models are read, in
 * passes/. Those with channels last are turned as integers. */
#include "frontend/upgrade_microsoft.h"

#include <string.h>

/* The tensor `x` with the scale at `scale` and the zero point behind it, as floats. */
static ul_value_id dequantize_value(struct ul_old_node *node, ul_value_id x, uint32_t scale,
                                    int64_t axis)
{
    ul_value_id inputs[3] = {x, ul_old_input(node, scale), ul_old_input(node, scale + 1)};
    struct ul_int_attr attr = {"axis", axis};
    return ul_old_emit(node, "DequantizeLinear", inputs[2] == UL_NONE ? 2 : 3, inputs, 1, &attr);
}

static ul_value_id dequantize(struct ul_old_node *node, uint32_t first)
{
    return dequantize_value(node, ul_old_input(node, first), first + 1, 1);
}

/* Where there is no zero point it is a 0 of the type of the operator's first tensor. */
static ul_value_id quantize_value(struct ul_old_node *node, ul_value_id x, uint32_t scale,
                                  uint32_t tensor)
{
    ul_value_id inputs[3] = {x, ul_old_input(node, scale), ul_old_input(node, scale + 1)};
    if (inputs[2] == UL_NONE)
        inputs[2] = ul_old_const_int(node, ul_old_dtype(node, tensor), 0);
    return ul_old_emit(node, "QuantizeLinear", 3, inputs, 0, NULL);
}

static void finish(struct ul_old_node *node, ul_value_id x, uint32_t scale, uint32_t tensor)
{
    ul_old_set_result(node, 0, quantize_value(node, x, scale, tensor));
    node->finished = true;
}

void ul_microsoft_qlinear_binary(struct ul_old_node *node)
{
    const char *op = strcmp(node->op, "QLinearAdd") == 0 ? "Add" : "Mul";
    finish(node, ul_old_emit_two(node, op, dequantize(node, 0), dequantize(node, 3)), 6, 0);
}

/* Operator `op` with the node's attributes over `x`, beside the node; UL_NONE after a problem. */
static ul_value_id emit_inner(struct ul_old_node *node, const char *op, ul_value_id x)
{
    struct ul_old_node inner = *node;
    inner.inputs = NULL;
    inner.input_count = inner.input_capacity = 0;
    inner.results = UL_NEW_ARRAY(node->builder->scratch, ul_value_id, node->declared_count);
    for (uint32_t i = 0; i < node->declared_count; i++)
        inner.results[i] = UL_NONE;
    int64_t opset = ul_old_int(node, "opset", UL_FRONTEND_OPSET_MAX);
    ul_old_become(&inner, op);
    ul_old_remove_attr(&inner, "channels_last");
    ul_old_remove_attr(&inner, "opset");
    node->attr_count = inner.attr_count;
    ul_old_set_input(&inner, 0, x);
    if (strcmp(op, "Softmax") == 0 && opset < 13)
        ul_upgrade_softmax(&inner);
    if (!inner.finished)
        ul_old_emit_self(&inner);
    node->finished = true;
    return inner.emitted == UL_NONE ? UL_NONE : inner.results[0];
}

/* Operators of one quantized tensor, which do to its floats what the operator of ai.onnx does. */
void ul_microsoft_qlinear_unary(struct ul_old_node *node)
{
    ul_value_id y = emit_inner(node, node->op + strlen("QLinear"), dequantize(node, 0));
    if (y != UL_NONE)
        finish(node, y, 3, 0);
}

/* Moves the channels of `x` from the last place to the second, or back. */
static ul_value_id move_channels(struct ul_old_node *node, ul_value_id x, uint32_t rank,
                                 bool to_second)
{
    int64_t perm[UL_LIMIT_RANK] = {0};
    for (uint32_t d = 1; d < rank; d++)
        perm[d] =
            to_second ? (int64_t)(d == 1 ? rank - 1 : d - 1) : (int64_t)(d == rank - 1 ? 1 : d + 1);
    return ul_old_emit_transpose(node, x, rank, perm);
}

/* Turns input 0 where the channels are last; false where its rank is not good. */
static bool turn_input(struct ul_old_node *node, bool is_last, uint32_t *rank)
{
    struct ul_type type;
    const uint32_t ranks = ~7u; /* batch, channels and some space */
    *rank = 0;
    if (!is_last)
        return true;
    if (!ul_old_shape(node, 0, ranks, &type))
        return false;
    *rank = type.rank;
    ul_old_set_input(node, 0, move_channels(node, node->inputs[0], type.rank, true));
    return true;
}

static void turn_result(struct ul_old_node *node, ul_value_id y, uint32_t rank)
{
    ul_old_set_result(node, 0, rank == 0 ? y : move_channels(node, y, rank, false));
    node->finished = true;
}

void ul_microsoft_qlinear_pool(struct ul_old_node *node)
{
    uint32_t rank;
    if (!turn_input(node, ul_old_int(node, "channels_last", 0) != 0, &rank))
        return;
    ul_value_id y = emit_inner(node, node->op + strlen("QLinear"), dequantize(node, 0));
    if (y != UL_NONE)
        turn_result(node, quantize_value(node, y, 3, 0), rank);
}

void ul_microsoft_nhwc_max_pool(struct ul_old_node *node)
{
    uint32_t rank;
    if (!turn_input(node, true, &rank))
        return;
    ul_value_id y = emit_inner(node, "MaxPool", node->inputs[0]);
    if (y != UL_NONE)
        turn_result(node, y, rank);
}

/* As that of ai.onnx, but for the place of the channels. */
void ul_microsoft_qlinear_conv(struct ul_old_node *node)
{
    uint32_t rank;
    if (!turn_input(node, ul_old_int(node, "channels_last", 0) != 0, &rank))
        return;
    ul_old_remove_attr(node, "channels_last");
    ul_old_become(node, "QLinearConv");
    ul_old_emit_self(node);
    if (node->emitted != UL_NONE)
        turn_result(node, node->results[0], rank);
}

void ul_microsoft_qlinear_concat(struct ul_old_node *node)
{
    uint32_t count = (node->input_count - 2) / 3;
    ul_value_id *parts = UL_NEW_ARRAY(node->builder->scratch, ul_value_id, count);
    struct ul_int_attr axis = {"axis", ul_old_int(node, "axis", 0)};
    if ((node->input_count - 2) % 3 != 0) {
        ul_old_invalid(node, "each tensor must have a scale and a zero point");
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        parts[i] = dequantize(node, 2 + 3 * i);
    finish(node, ul_old_emit(node, "Concat", count, parts, 1, &axis), 0, 2);
}

void ul_microsoft_qlinear_where(struct ul_old_node *node)
{
    ul_value_id inputs[3] = {ul_old_input(node, 0), dequantize(node, 1), dequantize(node, 4)};
    finish(node, ul_old_emit(node, "Where", 3, inputs, 0, NULL), 7, 1);
}

void ul_microsoft_qlinear_mean(struct ul_old_node *node)
{
    const struct ul_attr *axes = ul_old_attr(node, "axes");
    struct ul_int_attr keep = {"keepdims", ul_old_int(node, "keepdims", 1)};
    bool has_axes = axes != NULL && axes->kind == UL_ATTR_INTS && axes->count > 0;
    ul_value_id inputs[2] = {dequantize(node, 0), UL_NONE};
    if (has_axes)
        inputs[1] = ul_old_const_ints(node, axes->ints, axes->count);
    finish(node, ul_old_emit(node, "ReduceMean", has_axes ? 2 : 1, inputs, 1, &keep), 3, 0);
}

/* The bias of QGemm, whose scale is that of the products. */
static ul_value_id gemm_bias(struct ul_old_node *node)
{
    struct ul_type type;
    if (!ul_old_shape(node, 6, 7, &type))
        return UL_NONE;
    ul_value_id scale = ul_old_emit_two(node, "Mul", ul_old_input(node, 1), ul_old_input(node, 4));
    ul_value_id inputs[2] = {ul_old_input(node, 6), scale};
    struct ul_int_attr axis = {"axis", type.rank == 0 ? 0 : (int64_t)type.rank - 1};
    return ul_old_emit(node, "DequantizeLinear", 2, inputs, 1, &axis);
}

/* alpha * (A * B + C): beside alpha, Gemm's beta is the same number. */
void ul_microsoft_qgemm(struct ul_old_node *node)
{
    bool turn_b = ul_old_int(node, "transB", 0) != 0;
    double alpha = ul_old_float(node, "alpha", 1);
    struct ul_int_attr turns[2] = {{"transA", ul_old_int(node, "transA", 0)}, {"transB", turn_b}};
    ul_value_id inputs[3] = {dequantize(node, 0),
                             dequantize_value(node, ul_old_input(node, 3), 4, turn_b ? 0 : 1),
                             UL_NONE};
    if (ul_old_has_input(node, 6)) {
        inputs[2] = gemm_bias(node);
        if (inputs[2] == UL_NONE)
            return;
    }
    ul_value_id y = ul_old_emit(node, "Gemm", inputs[2] == UL_NONE ? 2 : 3, inputs, 2, turns);
    ul_old_emitted_float(node, y, "alpha", alpha);
    ul_old_emitted_float(node, y, "beta", alpha);
    if (ul_old_has_input(node, 7)) {
        finish(node, y, 7, 0);
        return;
    }
    ul_old_set_result(node, 0, y);
    node->finished = true;
}
