/* What follows the anchor of a group, as post-operations of its call.
 *
 * The nodes behind the anchor must be a chain: each takes what the one before made, alone or with
 * an operand from outside of the group, and nothing in between leaves the group. x * sigmoid(x),
 * which reads its start twice, is one operation:
 *
 *      Conv --> Sigmoid --> Mul        swish
 *          `---------------^
 *
 * Functions at the end that the program computes faster than the library are its tail: they run
 * over the result (in f32), behind the library's part, and pay for reading it once more.
 *
 * Left undone: operands that are computed inside the group; slopes per channel (PRelu); tails of
 * results with gaps between their elements, and tails that go on with an operand.
 */
#include "codegen/program/library_internal.h"

#include <math.h>
#include <string.h>

static struct ul_post *post_new(struct ul_describer *describer, enum ul_post_kind kind)
{
    struct ul_call *call = &describer->out->call;
    if (call->post_count == UL_CALL_POSTS)
        return NULL;
    struct ul_post *post = &call->posts[call->post_count++];
    post->kind = kind;
    return post;
}

/* oneDNN 2.6 computes a function that occurs twice in one call by the constants of the first one
 * (its convolutions and products by brgemm). */
static bool has_other_constants(const struct ul_call *call, enum ul_post_kind kind, float alpha,
                                float beta)
{
    for (uint32_t i = 0; i < call->post_count; i++) {
        const struct ul_post *post = &call->posts[i];
        if (post->kind == kind && (post->alpha != alpha || post->beta != beta))
            return true;
    }
    return false;
}

/* Constants that are no numbers are left to our kernels. */
static bool add_post(struct ul_describer *describer, enum ul_post_kind kind, double alpha,
                     double beta)
{
    if (isnan(alpha) || isnan(beta) ||
        has_other_constants(&describer->out->call, kind, (float)alpha, (float)beta))
        return false;
    struct ul_post *post = post_new(describer, kind);
    if (post == NULL)
        return false;
    post->alpha = (float)alpha;
    post->beta = (float)beta;
    return true;
}

/* Two in a row are one, except two shifts, for rounding may be their purpose: x + 12582912 -
 * 12582912 is the nearest whole number; and factors that only together are out of range. */
bool ul_describe_linear(struct ul_describer *describer, double alpha, double beta)
{
    struct ul_call *call = &describer->out->call;
    struct ul_post *last = call->post_count == 0 ? NULL : &call->posts[call->post_count - 1];
    if (alpha == 1 && beta == 0)
        return true;
    if (last == NULL || last->kind != UL_POST_LINEAR)
        return add_post(describer, UL_POST_LINEAR, alpha, beta);
    double slope = (double)last->alpha * alpha;
    double shift = (double)last->beta * alpha + beta;
    if ((last->beta != 0 && beta != 0) || !isnormal((float)slope) || !isfinite((float)shift))
        return false;
    call->post_count--;
    return add_post(describer, UL_POST_LINEAR, slope, shift);
}

/* ---- operands ---- */

/* The operand with the axes of the result, those that it has not as one element. */
static bool describe_operand(const struct ul_describer *describer, ul_value_id value,
                             struct ul_call_tensor *tensor)
{
    const struct ul_graph *graph = describer->graph;
    uint32_t rank = describer->out->call.dst.rank;
    struct ul_call_tensor given;
    if (graph->values[describer->result].type.rank != rank ||
        !ul_describe_tensor(graph, value, &given) || given.rank > rank)
        return false;
    memset(tensor, 0, sizeof *tensor);
    tensor->rank = rank;
    tensor->type = given.type;
    for (uint32_t d = 0; d < rank; d++) {
        bool missing = d < rank - given.rank;
        tensor->dims[d] = missing ? 1 : given.dims[d - (rank - given.rank)];
        tensor->strides[d] = missing ? 0 : given.strides[d - (rank - given.rank)];
    }
    return true;
}

static bool is_made_here(const struct ul_describer *describer, ul_value_id value)
{
    const struct ul_value *info = &describer->graph->values[value];
    for (uint32_t i = 0; info->kind == UL_VALUE_NODE && i < describer->node_count; i++) {
        if (describer->nodes[i] == info->producer)
            return true;
    }
    return false;
}

static bool is_bias(const struct ul_call *call, const struct ul_call_tensor *operand)
{
    uint32_t channel = call->kind == UL_CALL_MATMUL ? operand->rank - 1 : 1;
    bool supports_bias = call->kind == UL_CALL_CONVOLUTION || call->kind == UL_CALL_DECONVOLUTION ||
                         call->kind == UL_CALL_MATMUL;
    for (uint32_t d = 0; d < operand->rank; d++) {
        if (operand->dims[d] != (d == channel ? call->dst.dims[channel] : 1))
            return false;
    }
    return supports_bias && (operand->type == UL_CALL_F32 || operand->type == call->dst.type) &&
           call->bias.rank == 0 && call->post_count == 0 && operand->strides[channel] == 1;
}

static void set_bias(struct ul_group_call *out, ul_value_id value,
                     const struct ul_call_tensor *operand)
{
    struct ul_call *call = &out->call;
    out->args[UL_CALL_BIAS] = value;
    call->bias = *operand;
    if (call->kind == UL_CALL_MATMUL)
        return;
    memset(&call->bias, 0, sizeof call->bias);
    call->bias.rank = 1;
    call->bias.dims[0] = call->dst.dims[1];
    call->bias.strides[0] = 1;
}

/* All of its base, from the first byte on. */
static bool covers_base(const struct ul_graph *graph, ul_value_id value)
{
    const struct ul_value *info = &graph->values[value];
    return info->view.offset_bytes == 0 &&
           ul_type_elements(&info->type) == ul_type_elements(&graph->values[info->view.base].type);
}

/* Without gaps: its bytes can be copied as one block. */
static bool is_dense(const struct ul_graph *graph, ul_value_id value)
{
    const struct ul_value *info = &graph->values[value];
    uint64_t last = 0;
    for (uint32_t d = 0; d < info->type.rank; d++) {
        int64_t step = info->type.dims[d] > 1 ? info->view.strides[d] : 0;
        last += (uint64_t)(info->type.dims[d] - 1) * (uint64_t)step;
    }
    return last + 1 == ul_type_elements(&info->type);
}

/* A piece of a chain may have a slice of the residual copied to its slice of the result: for the
 * library that is as it was whole. */
static bool may_be_summed(const struct ul_describer *describer, ul_value_id value)
{
    const struct ul_graph *graph = describer->graph;
    return covers_base(graph, value) ||
           (ul_node_is_piece(graph, describer->nodes[0]) && is_dense(graph, value));
}

/* The operand lies as the result will, so that the one may be written over the other. */
static bool is_residual(const struct ul_describer *describer, ul_value_id value)
{
    const struct ul_graph *graph = describer->graph;
    const struct ul_group_call *out = describer->out;
    const struct ul_value *operand = &graph->values[value];
    const struct ul_value *result = &graph->values[out->args[UL_CALL_DST]];
    bool is_product = out->call.kind == UL_CALL_CONVOLUTION ||
                      out->call.kind == UL_CALL_DECONVOLUTION || out->call.kind == UL_CALL_MATMUL;
    if (!describer->sums || !is_product || out->residual != UL_NONE ||
        operand->storage != result->storage || operand->type.rank != result->type.rank ||
        graph->values[operand->view.base].kind == UL_VALUE_WEIGHT ||
        !may_be_summed(describer, value) || !may_be_summed(describer, out->args[UL_CALL_DST]))
        return false;
    for (uint32_t d = 0; d < operand->type.rank; d++) {
        if (operand->type.dims[d] != result->type.dims[d] ||
            (operand->type.dims[d] > 1 && operand->view.strides[d] != result->view.strides[d]))
            return false;
    }
    return true;
}

static bool add_binary(struct ul_describer *describer, enum ul_post_kind kind, ul_value_id value)
{
    struct ul_call_tensor operand;
    if (!describe_operand(describer, value, &operand))
        return false;
    struct ul_post *post = post_new(describer, kind);
    if (post == NULL)
        return false;
    post->tensor = operand;
    describer->out->args[describer->out->arg_count++] = value;
    return true;
}

bool ul_describe_add(struct ul_describer *describer, ul_value_id operand)
{
    struct ul_call_tensor tensor;
    double number;
    if (ul_graph_get_number(describer->graph, operand, &number))
        return ul_describe_linear(describer, 1, number);
    if (describe_operand(describer, operand, &tensor) && is_bias(&describer->out->call, &tensor)) {
        set_bias(describer->out, operand, &tensor);
        return true;
    }
    if (is_residual(describer, operand)) {
        struct ul_group_call *out = describer->out;
        out->residual = operand;
        out->copies_residual = !covers_base(describer->graph, operand) ||
                               !covers_base(describer->graph, out->args[UL_CALL_DST]);
        return add_post(describer, UL_POST_SUM, 0, 0);
    }
    return add_binary(describer, UL_POST_ADD, operand);
}

/* ---- nodes ---- */

/* `number` op x, or x op `number` where `swapped` is not set. */
static bool add_scalar(struct ul_describer *describer, enum ul_op op, double number, bool swapped)
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
        return add_post(describer, UL_POST_CLIP, number, (double)INFINITY);
    case UL_OP_Min:
        return add_post(describer, UL_POST_CLIP, -(double)INFINITY, number);
    default:
        return false;
    }
}

static bool add_operand(struct ul_describer *describer, enum ul_op op, ul_value_id operand,
                        bool swapped)
{
    switch ((int)op) {
    case UL_OP_Add:
    case UL_OP_Sum:
        return ul_describe_add(describer, operand);
    case UL_OP_Sub:
        if (swapped)
            return ul_describe_linear(describer, -1, 0) && ul_describe_add(describer, operand);
        return add_binary(describer, UL_POST_SUB, operand);
    case UL_OP_Mul:
        return add_binary(describer, UL_POST_MUL, operand);
    case UL_OP_Div:
        return !swapped && add_binary(describer, UL_POST_DIV, operand);
    case UL_OP_Max:
        return add_binary(describer, UL_POST_MAX, operand);
    case UL_OP_Min:
        return add_binary(describer, UL_POST_MIN, operand);
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
    return add_post(describer, UL_POST_CLIP, bounds[0], bounds[1]);
}

static bool add_function(struct ul_describer *describer, const struct ul_node *node)
{
    switch ((int)node->op) {
    case UL_OP_Relu:
        return add_post(describer, UL_POST_RELU, 0, 0);
    case UL_OP_LeakyRelu:
        return add_post(describer, UL_POST_RELU, ul_node_get_float(node, "alpha", 0.01), 0);
    case UL_OP_Clip:
        return add_clip(describer, node);
    case UL_OP_Gelu:
        return add_post(describer,
                        strcmp(ul_node_get_string(node, "approximate", "none"), "tanh") == 0
                            ? UL_POST_GELU_TANH
                            : UL_POST_GELU_ERF,
                        0, 0);
    case UL_OP_Swish:
        return add_post(describer, UL_POST_SWISH, ul_node_get_float(node, "alpha", 1), 0);
    case UL_OP_HardSwish:
        return add_post(describer, UL_POST_HARD_SWISH, 0, 0);
    case UL_OP_HardSigmoid:
        return ul_describe_linear(describer, ul_node_get_float(node, "alpha", 0.2),
                                  ul_node_get_float(node, "beta", 0.5)) &&
               add_post(describer, UL_POST_CLIP, 0, 1);
    case UL_OP_Sigmoid:
        return add_post(describer, UL_POST_LOGISTIC, 0, 0);
    case UL_OP_Tanh:
        return add_post(describer, UL_POST_TANH, 0, 0);
    case UL_OP_Elu:
        return add_post(describer, UL_POST_ELU, ul_node_get_float(node, "alpha", 1), 0);
    case UL_OP_Neg:
        return ul_describe_linear(describer, -1, 0);
    default:
        return false;
    }
}

/* x * sigmoid(x), and x * hardsigmoid(x) with the factors of HardSwish: `gate` and the next node.
 */
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
        return add_post(describer, UL_POST_SWISH, 1, 0);
    return gate->op == UL_OP_HardSigmoid &&
           fabs(ul_node_get_float(gate, "alpha", 0.2) - sixth) < 1e-6 &&
           ul_node_get_float(gate, "beta", 0.5) == 0.5 &&
           add_post(describer, UL_POST_HARD_SWISH, 0, 0);
}

static bool same_type(const struct ul_describer *describer, ul_value_id value)
{
    return ul_type_equal(&describer->graph->values[value].type,
                         &describer->graph->values[describer->result].type);
}

bool ul_describe_posts(struct ul_describer *describer)
{
    for (uint32_t i = 1; i < describer->node_count; i++) {
        const struct ul_node *node = &describer->graph->nodes[describer->nodes[i]];
        const struct ul_node *next = i + 1 < describer->node_count
                                         ? &describer->graph->nodes[describer->nodes[i + 1]]
                                         : NULL;
        if (describer->escapes[describer->result] || node->output_count != 1 ||
            !same_type(describer, node->outputs[0]))
            return false;
        bool is_gate = node->op == UL_OP_Sigmoid || node->op == UL_OP_HardSigmoid;
        bool gated =
            is_gate && next != NULL && next->op == UL_OP_Mul && add_gated(describer, node, next);
        bool added = gated || (node->inputs[0] == describer->result && node->op != UL_OP_Sub &&
                               add_function(describer, node));
        if (!added && !add_arithmetic(describer, node))
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
