/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution as a contraction for each batch and group: m = output channels, n = output pixels,
 * k = (input channel, kernel position). Depthwise convolution is the case of one row. */
#include "ir/kernel_build.h"
#include "ir/ops/conv/conv.h"

#include <string.h>

void ul_operand_subtract(struct ul_lower *lower, struct ul_contraction *contraction,
                         struct ul_operand *operand, ul_value_id zero, ul_kx channel)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *type = &lower->graph->values[zero].type;
    bool single = ul_type_elements(type) == 1;
    ul_kx index[UL_LIMIT_RANK];
    for (uint32_t d = 0; d < type->rank; d++)
        index[d] = ul_kx_index_const(kernel, 0);
    if (!single)
        index[0] = channel;
    ul_kx value = ul_kx_cast(kernel, contraction->acc_dtype, ul_lower_load(lower, zero, index));
    if (single)
        value = ul_ks_let(kernel, value);
    ul_kx loaded = operand->transform;
    if (loaded == UL_NONE)
        loaded = ul_kx_cast(kernel, contraction->acc_dtype, ul_kx_var(kernel, operand->loaded));
    operand->transform = ul_kx_binary(kernel, UL_KX_SUB, loaded, value);
}

bool ul_conv_can_leave(const struct ul_conv *conv, uint32_t d)
{
    int64_t last = (conv->out[d] - 1) * conv->stride[d] - conv->pad_begin[d] +
                   (conv->kernel[d] - 1) * conv->dilation[d];
    return conv->pad_begin[d] > 0 || last >= conv->in[d];
}

static void fill_input(struct ul_lower *lower, struct ul_contraction *contraction,
                       const struct ul_conv *conv, const struct ul_conv_operands *operands,
                       ul_kx batch, ul_kx group)
{
    struct ul_kernel *kernel = lower->kernel;
    int64_t coefficients[2 + UL_CONV_SPATIAL][UL_CONTRACT_DIMS] = {{0}};
    uint32_t n0 = 1, k0 = 1 + conv->spatial, checked = 0;
    ul_kx base[2 + UL_CONV_SPATIAL] = {batch, ul_kx_muli(kernel, group, conv->in_channels)};
    coefficients[1][k0] = 1;
    for (uint32_t d = 0; d < conv->spatial; d++) {
        base[2 + d] = ul_kx_index_const(kernel, -conv->pad_begin[d]);
        coefficients[2 + d][n0 + d] = conv->stride[d];
        coefficients[2 + d][k0 + 1 + d] = conv->dilation[d];
        checked |= ul_conv_can_leave(conv, d) ? 1u << (2 + d) : 0;
    }
    ul_lower_operand(lower, contraction, &contraction->b, operands->x, base, coefficients, checked,
                     operands->pad_value);
}

static void fill_weight(struct ul_lower *lower, struct ul_contraction *contraction,
                        const struct ul_conv *conv, ul_value_id w, ul_kx group)
{
    struct ul_kernel *kernel = lower->kernel;
    int64_t coefficients[2 + UL_CONV_SPATIAL][UL_CONTRACT_DIMS] = {{0}};
    uint32_t k0 = 1 + conv->spatial;
    ul_kx base[2 + UL_CONV_SPATIAL] = {ul_kx_muli(kernel, group, conv->out_channels)};
    coefficients[0][0] = 1;
    for (uint32_t d = 0; d <= conv->spatial; d++) {
        base[1 + d] = ul_kx_index_const(kernel, 0);
        coefficients[1 + d][k0 + d] = 1;
    }
    ul_lower_operand(lower, contraction, &contraction->a, w, base, coefficients, 0, 0);
}

ul_kx ul_conv_open(struct ul_lower *lower, const struct ul_conv *conv,
                   const struct ul_conv_operands *operands, ul_kx index[2 + UL_CONV_SPATIAL])
{
    struct ul_kernel *kernel = lower->kernel;
    struct ul_contraction contraction;
    int64_t k_extents[1 + UL_CONV_SPATIAL] = {conv->in_channels};
    memcpy(k_extents + 1, conv->kernel, sizeof conv->kernel);
    ul_kx batch = ul_ks_for(kernel, conv->batch, UL_FOR_PARALLEL);
    ul_kx group = ul_ks_for(kernel, conv->groups, UL_FOR_PARALLEL);
    ul_contraction_init(kernel, &contraction, operands->acc_dtype, &conv->out_channels, 1,
                        conv->out, conv->spatial, k_extents, 1 + conv->spatial);
    fill_weight(lower, &contraction, conv, operands->w, group);
    fill_input(lower, &contraction, conv, operands, batch, group);
    ul_kx channel = ul_kx_add(kernel, ul_kx_muli(kernel, group, conv->out_channels),
                              ul_kx_var(kernel, contraction.vars[0]));
    if (operands->w_zero != UL_NONE)
        ul_operand_subtract(lower, &contraction, &contraction.a, operands->w_zero, channel);
    if (operands->x_zero != UL_NONE)
        ul_operand_subtract(lower, &contraction, &contraction.b, operands->x_zero, channel);
    index[0] = batch;
    index[1] = channel;
    for (uint32_t d = 0; d < conv->spatial; d++)
        index[2 + d] = ul_kx_var(kernel, contraction.vars[1 + d]);
    ul_ks_contract(kernel, &contraction);
    return ul_kx_var(kernel, contraction.acc);
}

void ul_conv_close(struct ul_lower *lower)
{
    ul_ks_end(lower->kernel); /* the epilogue */
    ul_ks_end(lower->kernel); /* group */
    ul_ks_end(lower->kernel); /* batch */
}

/* The checks that Conv, ConvTranspose and DeformConv share: types of x, w and the bias. */
enum ul_status ul_conv_check_types(const struct ul_infer *infer, uint32_t bias_input)
{
    const struct ul_type *x = ul_infer_input(infer, 0), *w = ul_infer_input(infer, 1);
    const struct ul_type *bias = ul_infer_input(infer, bias_input);
    if (!ul_dtype_is_real(x->dtype))
        return ul_infer_unsupported(infer, "%s is computed in f16, bf16, f32 and f64, not in %s",
                                    ul_op_get(infer->node->op)->name, ul_dtype_get(x->dtype)->name);
    if (w->dtype != x->dtype || (bias != NULL && bias->dtype != x->dtype))
        return ul_infer_invalid(infer, "input, weight and bias differ in type");
    return UL_OK;
}

enum ul_status ul_conv_check_bias(const struct ul_infer *infer, const struct ul_conv *conv,
                                  uint32_t bias_input)
{
    const struct ul_type *bias = ul_infer_input(infer, bias_input);
    if (bias == NULL)
        return UL_OK;
    if (bias->rank != 1 || bias->dims[0] != conv->groups * conv->out_channels)
        return ul_infer_invalid(infer, "the bias must have one number for each output channel");
    return UL_OK;
}

enum ul_status ul_conv_infer(struct ul_infer *infer, ul_conv_read_fn *read)
{
    const struct ul_type *x = ul_infer_input(infer, 0), *w = ul_infer_input(infer, 1);
    struct ul_conv conv;
    UL_TRY(ul_conv_check_types(infer, 2));
    const char *wrong = read(&conv, infer->node, x, w);
    if (wrong != NULL)
        return ul_infer_invalid(infer, "%s", wrong);
    UL_TRY(ul_conv_check_bias(infer, &conv, 2));
    struct ul_type type = ul_conv_result(&conv, x->dtype);
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

enum ul_status ul_infer_conv(struct ul_infer *infer)
{
    return ul_conv_infer(infer, ul_conv_read);
}

ul_kx ul_conv_add_bias(struct ul_lower *lower, ul_node_id node, uint32_t bias_input, ul_kx channel,
                       ul_kx sum)
{
    if (!ul_lower_has_input(lower, node, bias_input))
        return sum;
    ul_value_id bias = lower->graph->nodes[node].inputs[bias_input];
    return ul_kx_binary(lower->kernel, UL_KX_ADD, sum, ul_lower_load(lower, bias, &channel));
}

void ul_lower_conv(struct ul_lower *lower, ul_node_id node_id)
{
    const struct ul_node *node = &lower->graph->nodes[node_id];
    const struct ul_type *x = ul_lower_input_type(lower, node_id, 0);
    struct ul_conv conv;
    const char *wrong = ul_conv_read(&conv, node, x, ul_lower_input_type(lower, node_id, 1));
    UL_ASSERT(wrong == NULL);
    struct ul_conv_operands operands = {.acc_dtype = ul_compute_dtype(x->dtype),
                                        .x = node->inputs[0],
                                        .w = node->inputs[1],
                                        .x_zero = UL_NONE,
                                        .w_zero = UL_NONE};
    ul_kx index[2 + UL_CONV_SPATIAL];
    ul_kx sum = ul_conv_open(lower, &conv, &operands, index);
    sum = ul_conv_add_bias(lower, node_id, 2, index[1], sum);
    ul_lower_store(lower, node->outputs[0], index, sum);
    ul_conv_close(lower);
}
