/* SPDX-License-Identifier: Apache-2.0 */
/* Describes the nodes after the anchor of a group as post-operations of its call.
 *
 * The nodes after the anchor must be a chain: each takes the result of the one before, alone or
 * with an operand from outside the group, and no value in between leaves the group. x * sigmoid(x),
 * which reads its start twice, is one operation:
 *
 *      Conv --> Sigmoid --> Mul        swish
 *          `---------------^
 *
 * What a GELU is of may leave the group where pass library says so: it is another result.
 *
 * Functions at the end that the program computes faster than the library are its tail: they run
 * over the result (in f32) after the library's part, and are still faster though they read it
 * again.
 *
 * Left undone: operands that are computed inside the group; slopes per channel (PRelu); tails of
 * results with gaps between their elements, and tails that continue with an operand. */
#include "codegen/program/library_internal.h"
#include "ir/op_names.h"

#include <math.h>
#include <string.h>

/* ---- nodes ---- */

static bool is_made_here(const struct ul_describer *describer, ul_value_id value)
{
    const struct ul_value *info = &describer->graph->values[value];
    for (uint32_t i = 0; info->kind == UL_VALUE_NODE && i < describer->node_count; i++) {
        if (describer->nodes[i] == info->producer)
            return true;
    }
    return false;
}

/* `number` op x, or x op `number` where `swapped` is not set. */
static bool add_scalar(struct ul_describer *describer, ul_op_id op, double number, bool swapped)
{
    switch ((int)op) {
    case UL_OP_Add:
    case UL_OP_Sum:
        return ul_describe_linear(describer, 1, number);
    case UL_OP_Sub:
        return swapped ? ul_describe_linear(describer, -1, number)
                       : ul_describe_linear(describer, 1, -number);
    case UL_OP_Mul:
        return ul_describe_linear(describer, number, 0);
    case UL_OP_Div:
        return !swapped && isnormal((float)(1 / number)) &&
               ul_describe_linear(describer, 1 / number, 0);
    case UL_OP_Max:
        return ul_describe_post(describer, UL_POST_CLIP, number, (double)INFINITY);
    case UL_OP_Min:
        return ul_describe_post(describer, UL_POST_CLIP, -(double)INFINITY, number);
    default:
        return false;
    }
}

static bool add_operand(struct ul_describer *describer, ul_op_id op, ul_value_id operand,
                        bool swapped)
{
    switch ((int)op) {
    case UL_OP_Add:
    case UL_OP_Sum:
        return ul_describe_add(describer, operand);
    case UL_OP_Sub:
        if (swapped)
            return ul_describe_linear(describer, -1, 0) && ul_describe_add(describer, operand);
        return ul_describe_binary(describer, UL_POST_SUB, operand);
    case UL_OP_Mul:
        return ul_describe_factor(describer, operand);
    case UL_OP_Div:
        return !swapped && ul_describe_binary(describer, UL_POST_DIV, operand);
    case UL_OP_Max:
        return ul_describe_binary(describer, UL_POST_MAX, operand);
    case UL_OP_Min:
        return ul_describe_binary(describer, UL_POST_MIN, operand);
    default:
        return false;
    }
}

static bool add_arithmetic(struct ul_describer *describer, const struct ul_node *node)
{
    double number;
    if (node->input_count != 2)
        return false;
    bool swapped = node->inputs[0] != describer->result;
    ul_value_id operand = node->inputs[swapped ? 0 : 1];
    if (node->inputs[swapped ? 1 : 0] != describer->result || operand == describer->result ||
        is_made_here(describer, operand))
        return false;
    if (ul_graph_get_number(describer->graph, operand, &number))
        return add_scalar(describer, node->op, number, swapped);
    return add_operand(describer, node->op, operand, swapped);
}

static bool add_clip(struct ul_describer *describer, const struct ul_node *node)
{
    double bounds[2] = {-(double)INFINITY, (double)INFINITY};
    for (uint32_t i = 1; i < 3; i++) {
        if (i < node->input_count && node->inputs[i] != UL_NONE &&
            !ul_graph_get_number(describer->graph, node->inputs[i], &bounds[i - 1]))
            return false;
    }
    return ul_describe_post(describer, UL_POST_CLIP, bounds[0], bounds[1]);
}

static bool add_function(struct ul_describer *describer, const struct ul_node *node)
{
    switch ((int)node->op) {
    case UL_OP_Relu:
        return ul_describe_post(describer, UL_POST_RELU, 0, 0);
    case UL_OP_LeakyRelu:
        return ul_describe_post(describer, UL_POST_RELU, ul_node_get_float(node, "alpha", 0.01), 0);
    case UL_OP_Clip:
        return add_clip(describer, node);
    case UL_OP_Gelu:
        return ul_describe_post(describer,
                                strcmp(ul_node_get_string(node, "approximate", "none"), "tanh") == 0
                                    ? UL_POST_GELU_TANH
                                    : UL_POST_GELU_ERF,
                                0, 0);
    case UL_OP_Swish:
        return ul_describe_post(describer, UL_POST_SWISH, ul_node_get_float(node, "alpha", 1), 0);
    case UL_OP_HardSwish:
        return ul_describe_post(describer, UL_POST_HARD_SWISH, 0, 0);
    case UL_OP_HardSigmoid:
        return ul_describe_linear(describer, ul_node_get_float(node, "alpha", 0.2),
                                  ul_node_get_float(node, "beta", 0.5)) &&
               ul_describe_post(describer, UL_POST_CLIP, 0, 1);
    case UL_OP_Sigmoid:
        return ul_describe_post(describer, UL_POST_LOGISTIC, 0, 0);
    case UL_OP_Tanh:
        return ul_describe_post(describer, UL_POST_TANH, 0, 0);
    case UL_OP_Elu:
        return ul_describe_post(describer, UL_POST_ELU, ul_node_get_float(node, "alpha", 1), 0);
    case UL_OP_Neg:
        return ul_describe_linear(describer, -1, 0);
    default:
        return false;
    }
}

/* x * sigmoid(x), and x * hardsigmoid(x) with the factors of HardSwish: `gate` and the next
 * node. */
static bool add_gated(struct ul_describer *describer, const struct ul_node *gate,
                      const struct ul_node *product)
{
    const double sixth = 1.0 / 6;
    ul_value_id x = describer->result;
    ul_value_id y = gate->outputs[0];
    bool both = product->op == UL_OP_Mul && ((product->inputs[0] == x && product->inputs[1] == y) ||
                                             (product->inputs[0] == y && product->inputs[1] == x));
    if (!both || gate->inputs[0] != x || describer->escapes[y])
        return false;
    if (gate->op == UL_OP_Sigmoid)
        return ul_describe_post(describer, UL_POST_SWISH, 1, 0);
    return gate->op == UL_OP_HardSigmoid &&
           fabs(ul_node_get_float(gate, "alpha", 0.2) - sixth) < 1e-6 &&
           ul_node_get_float(gate, "beta", 0.5) == 0.5 &&
           ul_describe_post(describer, UL_POST_HARD_SWISH, 0, 0);
}

/* Adds a product of floats to the sum over the runs of a step, in place. */
static bool add_accumulate(struct ul_describer *describer, const struct ul_node *node)
{
    struct ul_call *call = &describer->out->call;
    if (node->op != UL_OP_Accumulate || node->inputs[0] != describer->result ||
        call->kind != UL_CALL_MATMUL || call->dst.type != UL_CALL_F32 ||
        !ul_describe_is_residual(describer, node->inputs[1]))
        return false;
    ul_describe_residual(describer, node->inputs[1]);
    call->accumulates = 1;
    return ul_describe_post(describer, UL_POST_SUM, 0, 0);
}

/* Whether sums of integers become numbers of another type with the same shape. */
static bool fits(const struct ul_describer *describer, const struct ul_node *node)
{
    const struct ul_graph *graph = describer->graph;
    struct ul_type type = graph->values[describer->result].type;
    if (node->output_count != 1)
        return false;
    const struct ul_type *next = &graph->values[node->outputs[0]].type;
    if (ul_describe_is_conversion(describer, node))
        type.dtype = next->dtype;
    return ul_type_equal(next, &type);
}

/* Bytes lack their zero point here: only another Rescale can handle that. */
static bool is_described(const struct ul_describer *describer, const struct ul_node *node)
{
    enum ul_dtype dtype = describer->graph->values[describer->result].type.dtype;
    return !ul_dtype_is_8bit(dtype) || ul_describe_is_conversion(describer, node);
}

/* What leaves the group between the nodes, or UL_NONE where nothing does; a GELU's operand may. */
static ul_value_id find_kept(const struct ul_describer *describer, const struct ul_node *node,
                             bool *may_be)
{
    bool leaves = describer->escapes[describer->result];
    *may_be = !leaves || ul_node_get_int(node, "ul_keeps", 0) != 0;
    return leaves ? describer->result : UL_NONE;
}

bool ul_describe_posts(struct ul_describer *describer)
{
    for (uint32_t i = 1; i < describer->node_count; i++) {
        const struct ul_node *node = &describer->graph->nodes[describer->nodes[i]];
        const struct ul_node *next = i + 1 < describer->node_count
                                         ? &describer->graph->nodes[describer->nodes[i + 1]]
                                         : NULL;
        bool may_be_kept;
        ul_value_id kept = find_kept(describer, node, &may_be_kept);
        if (!may_be_kept || !fits(describer, node) || !is_described(describer, node))
            return false;
        if (ul_describe_is_conversion(describer, node)) {
            if (!ul_describe_conversion(describer, node))
                return false;
            describer->result = node->outputs[0];
            continue;
        }
        bool is_gate = node->op == UL_OP_Sigmoid || node->op == UL_OP_HardSigmoid;
        bool gated =
            is_gate && next != NULL && next->op == UL_OP_Mul && add_gated(describer, node, next);
        bool added = gated || (node->inputs[0] == describer->result && node->op != UL_OP_Sub &&
                               add_function(describer, node));
        if ((!added && !add_accumulate(describer, node) && !add_arithmetic(describer, node)) ||
            (kept != UL_NONE && !ul_describe_kept(describer, kept)))
            return false;
        i += gated;
        describer->result = (gated ? next : node)->outputs[0];
    }
    return true;
}

void ul_describe_tail(struct ul_call *call)
{
    if (call->dst.type != UL_CALL_F32) /* it would be rounded in between */
        return;
    while (call->tail_count < call->post_count &&
           ul_post_is_ours(call->posts[call->post_count - call->tail_count - 1].kind))
        call->tail_count++;
}
