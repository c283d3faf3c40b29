/* SPDX-License-Identifier: Apache-2.0 */
/* Post-operations and operands of a call that is being described.
 *
 * An operand is a value from outside the group. It becomes the bias where there is one element for
 * each channel and it is the first; it is added in the place of the result where it has the
 * result's layout (the residual); otherwise it is read in place. A factor that comes first after
 * sums of integers is the scale of their product, which the library applies without another
 * operation. */
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

/* oneDNN 2.6 computes a function that occurs twice in one call with the constants of the first (its
 * convolutions and products by brgemm). */
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

/* Constants that are not finite are left to our kernels. */
bool ul_describe_post(struct ul_describer *describer, enum ul_post_kind kind, double alpha,
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

/* Two in a row become one, except two shifts, which may be for rounding: x + 12582912 - 12582912 is
 * the nearest whole number; and except factors that are out of range only together. */
bool ul_describe_linear(struct ul_describer *describer, double alpha, double beta)
{
    struct ul_call *call = &describer->out->call;
    struct ul_post *last = call->post_count == 0 ? NULL : &call->posts[call->post_count - 1];
    if (alpha == 1 && beta == 0)
        return true;
    if (ul_call_is_integer(call) && call->post_count == 0 && !ul_call_is_scaled(call) &&
        beta == 0 && isnormal((float)alpha)) {
        call->scale = (float)alpha;
        return true;
    }
    if (last == NULL || last->kind != UL_POST_LINEAR)
        return ul_describe_post(describer, UL_POST_LINEAR, alpha, beta);
    double slope = (double)last->alpha * alpha;
    double shift = (double)last->beta * alpha + beta;
    if ((last->beta != 0 && beta != 0) || !isnormal((float)slope) || !isfinite((float)shift))
        return false;
    call->post_count--;
    return ul_describe_post(describer, UL_POST_LINEAR, slope, shift);
}

/* ---- operands ---- */

/* The operand with the axes of the result; axes that it lacks have one element. */
static bool describe_operand(const struct ul_describer *describer, ul_value_id value,
                             struct ul_call_tensor *tensor)
{
    const struct ul_graph *graph = describer->graph;
    uint32_t rank = describer->out->call.dst.rank;
    struct ul_call_tensor given;
    if (graph->values[describer->result].type.rank != rank ||
        !ul_describe_numbers(graph, value, &given) || given.rank > rank)
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

/* One element for each channel, contiguous. */
static bool lies_along_channels(const struct ul_call *call, const struct ul_call_tensor *operand)
{
    bool is_matrix = call->kind == UL_CALL_MATMUL || call->kind == UL_CALL_NBITS;
    uint32_t channel = is_matrix ? operand->rank - 1 : 1;
    for (uint32_t d = 0; d < operand->rank; d++) {
        if (operand->dims[d] != (d == channel ? call->dst.dims[channel] : 1))
            return false;
    }
    return operand->strides[channel] == 1;
}

static bool is_bias(const struct ul_call *call, const struct ul_call_tensor *operand)
{
    bool supports_bias = call->kind == UL_CALL_CONVOLUTION || call->kind == UL_CALL_DECONVOLUTION ||
                         call->kind == UL_CALL_MATMUL || call->kind == UL_CALL_NBITS;
    bool has_type = operand->type == UL_CALL_F32 || operand->type == call->dst.type ||
                    (ul_call_is_integer(call) && operand->type == UL_CALL_I32);
    return supports_bias && has_type && call->bias.rank == 0 && call->post_count == 0 &&
           !ul_call_is_scaled(call) && lies_along_channels(call, operand);
}

static void set_bias(struct ul_group_call *out, ul_value_id value,
                     const struct ul_call_tensor *operand)
{
    struct ul_call *call = &out->call;
    out->args[UL_CALL_BIAS] = value;
    call->bias = *operand;
    if (call->kind == UL_CALL_MATMUL || call->kind == UL_CALL_NBITS)
        return;
    memset(&call->bias, 0, sizeof call->bias);
    call->bias.rank = 1;
    call->bias.type = operand->type;
    call->bias.dims[0] = call->dst.dims[1];
    call->bias.strides[0] = 1;
}

/* Whether it fills its base, from the first byte on. */
static bool covers_base(const struct ul_graph *graph, ul_value_id value)
{
    const struct ul_value *info = &graph->values[value];
    return info->view.offset_bytes == 0 &&
           ul_type_elements(&info->type) == ul_type_elements(&graph->values[info->view.base].type);
}

/* Whether it has no gaps: its bytes can be copied as one block. */
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

/* A piece of a chain may get a slice of the residual copied to its slice of the result: the library
 * works as before the split. */
static bool may_be_summed(const struct ul_describer *describer, ul_value_id value)
{
    const struct ul_graph *graph = describer->graph;
    return covers_base(graph, value) ||
           (ul_node_is_piece(graph, describer->nodes[0]) && is_dense(graph, value));
}

/* A weight must not change, unless the result is stored over it. */
static bool may_be_overwritten(const struct ul_graph *graph, ul_value_id operand,
                               ul_value_id result)
{
    ul_value_id base = graph->values[operand].view.base;
    return graph->values[base].kind != UL_VALUE_WEIGHT || graph->values[result].donor == base;
}

/* Whether the operand has the result's layout, so that the result may overwrite it. */
bool ul_describe_is_residual(const struct ul_describer *describer, ul_value_id value)
{
    const struct ul_graph *graph = describer->graph;
    const struct ul_group_call *out = describer->out;
    const struct ul_value *operand = &graph->values[value];
    const struct ul_value *result = &graph->values[out->args[UL_CALL_DST]];
    bool is_product = out->call.kind == UL_CALL_CONVOLUTION ||
                      out->call.kind == UL_CALL_DECONVOLUTION || out->call.kind == UL_CALL_MATMUL ||
                      out->call.kind == UL_CALL_NBITS;
    if (!describer->sums || !is_product || out->residual != UL_NONE ||
        operand->storage != result->storage || operand->type.rank != result->type.rank ||
        !may_be_overwritten(graph, value, out->args[UL_CALL_DST]) ||
        !may_be_summed(describer, value) || !may_be_summed(describer, out->args[UL_CALL_DST]))
        return false;
    for (uint32_t d = 0; d < operand->type.rank; d++) {
        if (operand->type.dims[d] != result->type.dims[d] ||
            (operand->type.dims[d] > 1 && operand->view.strides[d] != result->view.strides[d]))
            return false;
    }
    return true;
}

bool ul_describe_binary(struct ul_describer *describer, enum ul_post_kind kind, ul_value_id value)
{
    struct ul_call_tensor operand;
    if (!describe_operand(describer, value, &operand) || operand.type > UL_CALL_BF16)
        return false;
    struct ul_post *post = post_new(describer, kind);
    if (post == NULL)
        return false;
    post->tensor = operand;
    describer->out->args[describer->out->arg_count++] = value;
    return true;
}

bool ul_describe_kept(struct ul_describer *describer, ul_value_id value)
{
    struct ul_group_call *out = describer->out;
    struct ul_post *last = &out->call.posts[out->call.post_count - 1];
    if (out->call.post_count == 0 || last->kind != UL_POST_GELU_TANH ||
        out->arg_count != UL_CALL_FIRST_POST || out->residual != UL_NONE ||
        !describe_operand(describer, value, &last->tensor))
        return false;
    out->args[out->arg_count++] = value;
    return true;
}

void ul_describe_residual(struct ul_describer *describer, ul_value_id operand)
{
    struct ul_group_call *out = describer->out;
    UL_ASSERT(out->residual == UL_NONE);
    out->residual = operand;
    out->copies_residual = !covers_base(describer->graph, operand) ||
                           !covers_base(describer->graph, out->args[UL_CALL_DST]);
}

/* Whether it is a constant with one element for each channel, like a bias. */
static bool is_scale(const struct ul_describer *describer, ul_value_id value)
{
    const struct ul_graph *graph = describer->graph;
    const struct ul_call *call = &describer->out->call;
    const struct ul_value *base = &graph->values[graph->values[value].view.base];
    struct ul_call_tensor operand;
    return ul_call_is_integer(call) && call->post_count == 0 && !ul_call_is_scaled(call) &&
           base->kind == UL_VALUE_WEIGHT && (base->flags & UL_VALUE_PERSISTENT) == 0 &&
           describe_operand(describer, value, &operand) && operand.type == UL_CALL_F32 &&
           lies_along_channels(call, &operand);
}

bool ul_describe_factor(struct ul_describer *describer, ul_value_id value)
{
    struct ul_call *call = &describer->out->call;
    double number;
    if (ul_graph_get_number(describer->graph, value, &number))
        return ul_describe_linear(describer, number, 0);
    if (!is_scale(describer, value))
        return ul_describe_binary(describer, UL_POST_MUL, value);
    call->scale_count = call->dst.dims[call->kind == UL_CALL_MATMUL ? call->dst.rank - 1 : 1];
    call->scales_value = value + 1;
    describer->scales = value;
    return true;
}

/* False: it is not one per channel, or not the first. */
static bool describe_bias(struct ul_describer *describer, ul_value_id operand)
{
    struct ul_call_tensor tensor;
    if (!describe_operand(describer, operand, &tensor) || !is_bias(&describer->out->call, &tensor))
        return false;
    set_bias(describer->out, operand, &tensor);
    return true;
}

bool ul_describe_add(struct ul_describer *describer, ul_value_id operand)
{
    const struct ul_call *call = &describer->out->call;
    double number;
    if (describer->graph->values[describer->result].type.dtype == UL_I32)
        return describe_bias(describer, operand);
    if (ul_graph_get_number(describer->graph, operand, &number))
        return ul_describe_linear(describer, 1, number);
    if (describe_bias(describer, operand))
        return true;
    if (ul_describe_is_residual(describer, operand)) {
        ul_describe_residual(describer, operand);
        return ul_describe_post(describer, UL_POST_SUM, ul_call_is_integer(call) ? 1 : 0, 0);
    }
    return ul_describe_binary(describer, UL_POST_ADD, operand);
}
