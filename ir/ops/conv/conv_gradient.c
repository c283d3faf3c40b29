/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of convolutions. With y = conv(x, w): the input's is the transposed convolution of the
 * result's gradient by the same filters, that of the filters a sum over all places of the window:
 *
 *     dw[co, ci, k] = sum over batch and output pixels p of x[n, ci, p * stride + k * dilation -
 *                     pad] * dy[n, co, p]
 *
 * which is one product: rows are output channels, columns input channels and places of the window,
 * terms images and pixels. A transposed convolution has the roles of x and dy exchanged. */
#include "ir/op_names.h"
#include "ir/ops/conv/conv.h"
#include "ir/ops/training/training.def"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/partials.h"

#include <string.h>

/* The type of the filters whose gradient the node computes. */
static bool filter_type(const struct ul_node *node, const struct ul_type *x,
                        const struct ul_type *dy, struct ul_type *w)
{
    uint32_t count = 0;
    const int64_t *kernel = ul_node_get_ints(node, "kernel_shape", &count);
    int64_t groups = ul_node_get_int(node, "group", 1);
    if (x->rank < 3 || x->rank > 2 + UL_CONV_SPATIAL || dy->rank != x->rank ||
        count != x->rank - 2 || groups < 1)
        return false;
    *w = *x;
    w->dims[0] = dy->dims[1];
    w->dims[1] = x->dims[1] / groups;
    memcpy(w->dims + 2, kernel, count * sizeof *kernel);
    return true;
}

enum ul_status ul_infer_weight_gradient(struct ul_infer *infer)
{
    const struct ul_type *x = ul_infer_input(infer, 0), *dy = ul_infer_input(infer, 1);
    struct ul_type w;
    struct ul_conv conv;
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_FLOATS));
    UL_TRY(ul_check_same_dtype(infer, 0, 1));
    if (!filter_type(infer->node, x, dy, &w))
        return ul_infer_invalid(infer, "kernel_shape, group and ranks do not fit together");
    const char *wrong = ul_conv_read(&conv, infer->node, x, &w);
    if (wrong != NULL)
        return ul_infer_invalid(infer, "%s", wrong);
    const struct ul_type result = ul_conv_result(&conv, x->dtype);
    if (!ul_type_equal(&result, dy))
        return ul_infer_invalid(infer,
                                "the gradient has not the shape of the convolution's result");
    ul_infer_set_type(infer, 0, &w);
    return UL_OK;
}

/* Output channels are those of the result's gradient; with groups, input channels would have to be
 * cut too. */
bool ul_split_rule_weight_gradient(struct ul_split_rule *split)
{
    if (split->output.axis != 0 || ul_node_get_int(split->node, "group", 1) != 1)
        return false;
    ul_split_rule_read(split, 1, 1, split->output.begin, split->output.end);
    return true;
}

/* x, with n = (input channel, window) and k = (image, pixel). */
static void fill_x(struct ul_lower *lower, struct ul_contraction *contraction,
                   const struct ul_conv *conv, ul_value_id x, ul_kx group)
{
    struct ul_kernel *kernel = lower->kernel;
    int64_t at[2 + UL_CONV_SPATIAL][UL_CONTRACT_DIMS] = {{0}};
    uint32_t n0 = 1, k0 = 2 + conv->spatial, checked = 0;
    ul_kx base[2 + UL_CONV_SPATIAL] = {ul_kx_index_const(kernel, 0),
                                       ul_kx_muli(kernel, group, conv->in_channels)};
    at[0][k0] = 1;
    at[1][n0] = 1;
    for (uint32_t d = 0; d < conv->spatial; d++) {
        base[2 + d] = ul_kx_index_const(kernel, -conv->pad_begin[d]);
        at[2 + d][k0 + 1 + d] = conv->stride[d];
        at[2 + d][n0 + 1 + d] = conv->dilation[d];
        checked |= ul_conv_can_leave(conv, d) ? 1u << (2 + d) : 0;
    }
    ul_lower_operand(lower, contraction, &contraction->b, x, base, at, checked, 0);
}

/* dy, with m = output channel. */
static void fill_dy(struct ul_lower *lower, struct ul_contraction *contraction,
                    const struct ul_conv *conv, ul_value_id dy, ul_kx group)
{
    struct ul_kernel *kernel = lower->kernel;
    int64_t at[2 + UL_CONV_SPATIAL][UL_CONTRACT_DIMS] = {{0}};
    uint32_t k0 = 2 + conv->spatial;
    ul_kx base[2 + UL_CONV_SPATIAL] = {ul_kx_index_const(kernel, 0),
                                       ul_kx_muli(kernel, group, conv->out_channels)};
    at[0][k0] = 1;
    at[1][0] = 1;
    for (uint32_t d = 0; d < conv->spatial; d++) {
        base[2 + d] = ul_kx_index_const(kernel, 0);
        at[2 + d][k0 + 1 + d] = 1;
    }
    ul_lower_operand(lower, contraction, &contraction->a, dy, base, at, 0, 0);
}

/* ---- Depthwise, on a device ---- */

/* Problem: with one channel of the source in each group there are few sums, a window for each
 * filter, and each sum runs over all pixels of a batch. Method: form sums in parts (partials.h),
 * many filters side by side where these are innermost. */
struct depthwise {
    const struct ul_conv *conv;
    ul_value_id x, dy;
    enum ul_dtype dtype;
};

/* Gives one product of a sum. The lanes' dimensions are the batch, the filters, the pixels of the
 * result and the positions in the window. */
static ul_kx load_product(struct ul_lanes *lanes, const void *context)
{
    const struct depthwise *depthwise = context;
    const struct ul_conv *conv = depthwise->conv;
    struct ul_kernel *k = lanes->lower->kernel;
    ul_kx at[2 + UL_CONV_SPATIAL] = {lanes->index[0],
                                     ul_kx_divi(k, lanes->index[1], conv->out_channels)};
    ul_kx inside = UL_NONE, zero = ul_kx_index_const(k, 0);
    for (uint32_t d = 0; d < conv->spatial; d++) {
        ul_kx place =
            ul_kx_addi(k, ul_kx_muli(k, lanes->index[2 + d], conv->stride[d]), -conv->pad_begin[d]);
        ul_kx tap = lanes->index[2 + conv->spatial + d];
        place = ul_kx_add(k, place, ul_kx_muli(k, tap, conv->dilation[d]));
        at[2 + d] = place;
        if (!ul_conv_can_leave(conv, d))
            continue;
        ul_kx is_in =
            ul_kx_binary(k, UL_KX_AND, ul_kx_binary(k, UL_KX_LE, zero, place),
                         ul_kx_binary(k, UL_KX_LT, place, ul_kx_index_const(k, conv->in[d])));
        inside = inside == UL_NONE ? is_in : ul_kx_binary(k, UL_KX_AND, inside, is_in);
        at[2 + d] = ul_kx_clamp(k, place, conv->in[d] - 1);
    }
    ul_kx x = ul_kx_cast(k, depthwise->dtype, ul_lower_load(lanes->lower, depthwise->x, at));
    ul_kx g =
        ul_kx_cast(k, depthwise->dtype, ul_lower_load(lanes->lower, depthwise->dy, lanes->index));
    if (inside != UL_NONE)
        x = ul_kx_select(k, inside, x, ul_kx_float(k, depthwise->dtype, 0.0));
    return ul_kx_mul(k, x, g);
}

/* Orders the lanes' dimensions as memory does; where the filters are innermost, the positions in
 * the window are outside of them. */
static void order_dims(const struct ul_conv *conv, const uint32_t *of_x, uint32_t *order)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < 2 + conv->spatial; i++) {
        bool is_last = of_x[i] == 1 && i == 1 + conv->spatial;
        if (!is_last)
            order[count++] = of_x[i];
        for (uint32_t d = 0; d < conv->spatial && of_x[i] == 1; d++)
            order[count++] = 2 + conv->spatial + d;
        if (is_last)
            order[count++] = 1;
    }
}

/* Returns false if the gradient is not of this kind, or too small to be worth it. */
static bool lower_depthwise(struct ul_lower *lower, ul_node_id node, const struct ul_conv *conv)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *info = ul_check_node(lower, node);
    struct depthwise depthwise = {conv, info->inputs[0], info->inputs[1],
                                  ul_compute_dtype(ul_lower_input_type(lower, node, 0)->dtype)};
    int64_t dims[UL_LIMIT_RANK] = {conv->batch, conv->groups * conv->out_channels};
    uint32_t of_x[UL_LIMIT_RANK], order[UL_LIMIT_RANK], rank = 2 + 2 * conv->spatial;
    struct ul_lanes lanes;
    struct ul_partials partials;
    if (conv->in_channels != 1 || conv->groups == 1 || rank > UL_LIMIT_RANK)
        return false;
    memcpy(dims + 2, conv->out, conv->spatial * sizeof *dims);
    memcpy(dims + 2 + conv->spatial, conv->kernel, conv->spatial * sizeof *dims);
    ul_lower_order(lower, depthwise.x, of_x);
    order_dims(conv, of_x, order);
    uint32_t mask = ul_lanes_all(2 + conv->spatial) & ~2u;
    ul_lanes_init(&lanes, lower, rank, dims, order);
    if (!ul_partials_apply(&lanes, mask))
        return false;
    ul_partials_init(&partials, &lanes, mask, UL_KX_ADD, ul_kx_float(k, depthwise.dtype, 0.0),
                     load_product, &depthwise);
    if (!ul_partials_are_stored(&partials))
        return false;
    ul_partials_store(&partials);
    ul_partials_open(&partials);
    ul_kx index[UL_LIMIT_RANK] = {lanes.index[1], ul_kx_index_const(k, 0)};
    for (uint32_t d = 0; d < conv->spatial; d++)
        index[2 + d] = lanes.index[2 + conv->spatial + d];
    ul_lower_store(lower, info->outputs[0], index, ul_partials_total(&partials));
    ul_partials_close(&partials);
    return true;
}

void ul_lower_weight_gradient(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_node *info = ul_check_node(lower, node);
    const struct ul_type *x = ul_lower_input_type(lower, node, 0);
    const struct ul_type *w = ul_lower_output_type(lower, node, 0);
    struct ul_conv conv;
    const char *wrong = ul_conv_read(&conv, info, x, w);
    UL_ASSERT(wrong == NULL);
    if (lower_depthwise(lower, node, &conv))
        return;
    struct ul_contraction contraction;
    int64_t n[1 + UL_CONV_SPATIAL] = {conv.in_channels}, k[1 + UL_CONV_SPATIAL] = {conv.batch};
    memcpy(n + 1, conv.kernel, sizeof conv.kernel);
    memcpy(k + 1, conv.out, sizeof conv.out);
    ul_kx group = ul_ks_for(kernel, conv.groups, UL_FOR_PARALLEL);
    ul_contraction_init(kernel, &contraction, ul_compute_dtype(x->dtype), &conv.out_channels, 1, n,
                        1 + conv.spatial, k, 1 + conv.spatial);
    fill_dy(lower, &contraction, &conv, info->inputs[1], group);
    fill_x(lower, &contraction, &conv, info->inputs[0], group);
    ul_kx index[2 + UL_CONV_SPATIAL] = {ul_kx_add(kernel,
                                                  ul_kx_muli(kernel, group, conv.out_channels),
                                                  ul_kx_var(kernel, contraction.vars[0]))};
    for (uint32_t d = 0; d <= conv.spatial; d++)
        index[1 + d] = ul_kx_var(kernel, contraction.vars[1 + d]);
    ul_ks_contract(kernel, &contraction);
    ul_lower_store(lower, info->outputs[0], index, ul_kx_var(kernel, contraction.acc));
    ul_ks_end(kernel);
    ul_lower_close(lower, 1);
}

/* ---- Rules ---- */

/* Sets the convolution's numbers as attributes, with explicit pads. */
static void set_attributes(struct ul_graph *graph, ul_node_id node, const struct ul_conv *conv)
{
    int64_t pads[2 * UL_CONV_SPATIAL];
    memcpy(pads, conv->pad_begin, conv->spatial * sizeof *pads);
    memcpy(pads + conv->spatial, conv->pad_end, conv->spatial * sizeof *pads);
    ul_node_set_ints(graph, node, "strides", conv->stride, conv->spatial);
    ul_node_set_ints(graph, node, "dilations", conv->dilation, conv->spatial);
    ul_node_set_ints(graph, node, "pads", pads, 2 * conv->spatial);
    ul_node_set_ints(graph, node, "kernel_shape", conv->kernel, conv->spatial);
    ul_node_set_int(graph, node, "group", conv->groups);
}

static ul_value_id conv_node(struct ul_gradient *gradient, ul_op_id op, const struct ul_conv *conv,
                             ul_value_id a, ul_value_id b)
{
    const ul_value_id inputs[2] = {a, b};
    ul_node_id node = ul_build_node(&gradient->build, op, inputs, 2, 1);
    set_attributes(gradient->graph, node, conv);
    return ul_build_infer(&gradient->build, node);
}

/* Gives the bias its gradient, a sum over images and pixels. */
static void give_bias(struct ul_gradient *gradient, const struct ul_conv *conv, ul_value_id g)
{
    struct ul_type type;
    if (!ul_gradient_wanted(gradient, 2))
        return;
    type = ul_gradient_type(gradient, ul_gradient_input(gradient, 2));
    ul_value_id sum = ul_build_sum(&gradient->build, g, ((1u << (2 + conv->spatial)) - 1) & ~2u);
    ul_gradient_give(gradient, 2, ul_build_reshape_to(&gradient->build, sum, &type));
}

enum ul_status ul_gradient_conv(struct ul_gradient *gradient)
{
    ul_value_id g = ul_gradient_of(gradient, 0);
    ul_value_id x = ul_gradient_input(gradient, 0), w = ul_gradient_input(gradient, 1);
    struct ul_type x_type = ul_gradient_type(gradient, x), w_type = ul_gradient_type(gradient, w);
    struct ul_conv conv;
    const char *wrong = ul_conv_read(&conv, ul_gradient_node(gradient), &x_type, &w_type);
    UL_ASSERT(wrong == NULL);
    if (ul_gradient_wanted(gradient, 1))
        ul_gradient_give(gradient, 1, conv_node(gradient, UL_OP_ConvWeightGradient, &conv, x, g));
    give_bias(gradient, &conv, g);
    if (!ul_gradient_wanted(gradient, 0))
        return UL_OK;
    const ul_value_id inputs[2] = {g, w};
    ul_node_id node = ul_build_node(&gradient->build, UL_OP_ConvTranspose, inputs, 2, 1);
    int64_t rest[UL_CONV_SPATIAL]; /* pixels at the end that no window began at */
    for (uint32_t d = 0; d < conv.spatial; d++)
        rest[d] = (conv.in[d] + conv.pad_begin[d] + conv.pad_end[d] -
                   ((conv.kernel[d] - 1) * conv.dilation[d] + 1)) %
                  conv.stride[d];
    set_attributes(gradient->graph, node, &conv);
    ul_node_set_ints(gradient->graph, node, "output_padding", rest, conv.spatial);
    ul_gradient_give(gradient, 0, ul_build_infer(&gradient->build, node));
    return UL_OK;
}

enum ul_status ul_gradient_conv_transpose(struct ul_gradient *gradient)
{
    ul_value_id g = ul_gradient_of(gradient, 0);
    ul_value_id x = ul_gradient_input(gradient, 0), w = ul_gradient_input(gradient, 1);
    struct ul_type x_type = ul_gradient_type(gradient, x), w_type = ul_gradient_type(gradient, w);
    struct ul_type g_type = ul_gradient_type(gradient, g);
    struct ul_conv conv, back;
    const char *wrong = ul_conv_transpose_read(&conv, ul_gradient_node(gradient), &x_type, &w_type);
    UL_ASSERT(wrong == NULL);
    back = conv; /* seen as a convolution from the result to the input */
    for (uint32_t d = 0; d < conv.spatial; d++) {
        int64_t extent = (conv.kernel[d] - 1) * conv.dilation[d] + 1;
        int64_t steps =
            (g_type.dims[2 + d] + conv.pad_begin[d] + conv.pad_end[d] - extent) / conv.stride[d];
        if (steps + 1 != conv.in[d])
            return ul_gradient_unsupported(gradient,
                                           "has an output_shape beyond its windows, which has no "
                                           "gradient rule; say pads and output_padding instead");
    }
    give_bias(gradient, &conv, g);
    if (ul_gradient_wanted(gradient, 1))
        ul_gradient_give(gradient, 1, conv_node(gradient, UL_OP_ConvWeightGradient, &back, g, x));
    if (ul_gradient_wanted(gradient, 0))
        ul_gradient_give(gradient, 0, conv_node(gradient, UL_OP_Conv, &back, g, w));
    return UL_OK;
}
