/* SPDX-License-Identifier: Apache-2.0 */
/* DeformConv: convolution whose kernel positions are moved by offsets that are data.
 *
 * For each output row and up to COLUMNS of its pixels, the samples (bilinear, zero outside of the
 * input) of every channel and kernel position go to scratch, once for all output channels; then
 * each group is a contraction over them. Only two spatial dimensions, as in every known model.
 */
#include "ir/kernel_build.h"
#include "ir/ops/conv/conv.h"

#define COLUMNS 16 /* output pixels sampled at a time */

struct deform {
    struct ul_lower *lower;
    struct ul_kernel *kernel;
    const struct ul_node *node;
    ul_node_id node_id;
    struct ul_conv conv;
    int64_t offset_groups;
    int64_t columns; /* of one block: COLUMNS, or fewer */
    enum ul_dtype dtype;
    uint32_t samples; /* scratch: [channel][kernel y][kernel x][column] */
};

enum { OFFSET = 2, BIAS = 3, MASK = 4 };

static enum ul_status check_offsets(const struct ul_infer *infer, const struct ul_conv *conv)
{
    const struct ul_type *offset = ul_infer_input(infer, OFFSET);
    const struct ul_type *mask = ul_infer_input(infer, MASK);
    int64_t groups = ul_node_get_int(infer->node, "offset_group", 1);
    if (groups < 1 || groups > UL_LIMIT_DIM || conv->groups * conv->in_channels % groups != 0)
        return ul_infer_invalid(infer, "offset_group must divide the input channels");
    int64_t taps = conv->kernel[0] * conv->kernel[1];
    const int64_t dims[] = {conv->batch, 0, conv->out[0], conv->out[1]};
    for (uint32_t d = 0; d < 4; d++) {
        if (offset->rank != 4 || (mask != NULL && mask->rank != 4))
            return ul_infer_invalid(infer, "offset and mask must have rank 4");
        if (d != 1 && (offset->dims[d] != dims[d] || (mask != NULL && mask->dims[d] != dims[d])))
            return ul_infer_invalid(infer, "offset or mask does not have the result's size");
    }
    if (offset->dims[1] % 2 != 0 || offset->dims[1] / 2 % taps != 0 ||
        offset->dims[1] / 2 / taps != groups)
        return ul_infer_invalid(infer, "offset must have two channels for each kernel position");
    if (mask != NULL && (mask->dims[1] % taps != 0 || mask->dims[1] / taps != groups))
        return ul_infer_invalid(infer, "mask must have one channel for each kernel position");
    return UL_OK;
}

enum ul_status ul_infer_deform_conv(struct ul_infer *infer)
{
    const struct ul_type *x = ul_infer_input(infer, 0), *w = ul_infer_input(infer, 1);
    struct ul_conv conv;
    UL_TRY(ul_conv_check_types(infer, BIAS));
    if (x->rank != 4)
        return ul_infer_unsupported(infer, "DeformConv is computed on images (rank 4) only");
    if (ul_infer_input(infer, OFFSET)->dtype != x->dtype ||
        (ul_infer_input(infer, MASK) != NULL && ul_infer_input(infer, MASK)->dtype != x->dtype))
        return ul_infer_invalid(infer, "input, offset and mask differ in type");
    const char *wrong = ul_conv_read(&conv, infer->node, x, w);
    if (wrong == NULL && (conv.in[0] == 0 || conv.in[1] == 0))
        wrong = "the input has an empty spatial dimension";
    if (wrong != NULL)
        return ul_infer_invalid(infer, "%s", wrong);
    UL_TRY(ul_conv_check_bias(infer, &conv, BIAS));
    UL_TRY(check_offsets(infer, &conv));
    struct ul_type type = ul_conv_result(&conv, x->dtype);
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

/* Input element (y, x), which are whole numbers as floats, times its weight; 0 outside. */
static ul_kx corner(const struct deform *d, ul_kx batch, ul_kx channel, ul_kx y, ul_kx x,
                    ul_kx weight)
{
    struct ul_kernel *kernel = d->kernel;
    ul_kx at[4] = {batch, channel, y, x}, inside = UL_NONE;
    ul_kx none = ul_kx_number(kernel, d->dtype, 0);
    for (uint32_t s = 0; s < 2; s++) {
        ul_kx last = ul_kx_number(kernel, d->dtype, (double)(d->conv.in[s] - 1));
        ul_kx low = ul_kx_binary(kernel, UL_KX_LE, none, at[2 + s]);
        ul_kx high = ul_kx_binary(kernel, UL_KX_LE, at[2 + s], last);
        ul_kx both = ul_kx_binary(kernel, UL_KX_AND, low, high);
        inside = inside == UL_NONE ? both : ul_kx_binary(kernel, UL_KX_AND, inside, both);
        at[2 + s] = ul_kx_clamp(kernel, ul_kx_cast(kernel, UL_I64, at[2 + s]), d->conv.in[s] - 1);
    }
    ul_kx value = ul_lower_load(d->lower, d->node->inputs[0], at);
    return ul_kx_select(kernel, inside, ul_kx_binary(kernel, UL_KX_MUL, value, weight), none);
}

/* Samples the input at the fractional place (y, x). */
static ul_kx sample(const struct deform *d, ul_kx batch, ul_kx channel, const ul_kx place[2])
{
    struct ul_kernel *kernel = d->kernel;
    ul_kx low[2], high[2], far[2], near[2], one = ul_kx_number(kernel, d->dtype, 1);
    for (uint32_t s = 0; s < 2; s++) {
        low[s] = ul_ks_let(kernel, ul_kx_unary(kernel, UL_KX_FLOOR, place[s]));
        high[s] = ul_kx_binary(kernel, UL_KX_ADD, low[s], one);
        far[s] = ul_ks_let(kernel, ul_kx_binary(kernel, UL_KX_SUB, place[s], low[s]));
        near[s] = ul_kx_binary(kernel, UL_KX_SUB, one, far[s]);
    }
    ul_kx sum = UL_NONE;
    for (uint32_t c = 0; c < 4; c++) {
        ul_kx weight = ul_kx_binary(kernel, UL_KX_MUL, c < 2 ? near[0] : far[0],
                                    c % 2 == 0 ? near[1] : far[1]);
        ul_kx part = corner(d, batch, channel, c < 2 ? low[0] : high[0],
                            c % 2 == 0 ? low[1] : high[1], weight);
        sum = sum == UL_NONE ? part : ul_kx_binary(kernel, UL_KX_ADD, sum, part);
    }
    return sum;
}

/* Puts the samples of all channels and kernel positions for the block's columns into scratch. */
static void lower_samples(const struct deform *d, ul_kx batch, ul_kx row, ul_kx first)
{
    struct ul_kernel *kernel = d->kernel;
    const struct ul_conv *conv = &d->conv;
    int64_t channels = conv->groups * conv->in_channels, taps = conv->kernel[0] * conv->kernel[1];
    ul_kx channel = ul_ks_for(kernel, channels, UL_FOR_PARALLEL), tap[2];
    tap[0] = ul_ks_for(kernel, conv->kernel[0], UL_FOR_PARALLEL);
    tap[1] = ul_ks_for(kernel, conv->kernel[1], UL_FOR_PARALLEL);
    ul_kx column = ul_ks_for(kernel, d->columns, UL_FOR_PARALLEL);
    ul_kx out[2] = {row, ul_kx_clamp(kernel, ul_kx_add(kernel, first, column), conv->out[1] - 1)};
    ul_kx group = ul_kx_divi(kernel, channel, channels / d->offset_groups), place[2];
    ul_kx flat = ul_kx_add(kernel, ul_kx_muli(kernel, tap[0], conv->kernel[1]), tap[1]);
    flat = ul_kx_add(kernel, ul_kx_muli(kernel, group, taps), flat);
    for (uint32_t s = 0; s < 2; s++) {
        ul_kx at[4] = {batch, ul_kx_addi(kernel, ul_kx_muli(kernel, flat, 2), s), out[0], out[1]};
        ul_kx start = ul_kx_muli(kernel, out[s], conv->stride[s]);
        start = ul_kx_add(kernel, ul_kx_addi(kernel, start, -conv->pad_begin[s]),
                          ul_kx_muli(kernel, tap[s], conv->dilation[s]));
        place[s] = ul_kx_binary(kernel, UL_KX_ADD, ul_kx_cast(kernel, d->dtype, start),
                                ul_lower_load(d->lower, d->node->inputs[OFFSET], at));
        place[s] = ul_ks_let(kernel, place[s]);
    }
    ul_kx value = sample(d, batch, channel, place);
    if (ul_lower_has_input(d->lower, d->node_id, MASK)) {
        ul_kx at[4] = {batch, flat, out[0], out[1]};
        value = ul_kx_binary(kernel, UL_KX_MUL, value,
                             ul_lower_load(d->lower, d->node->inputs[MASK], at));
    }
    ul_kx to = ul_kx_add(kernel, ul_kx_muli(kernel, channel, conv->kernel[0]), tap[0]);
    to = ul_kx_add(kernel, ul_kx_muli(kernel, to, conv->kernel[1]), tap[1]);
    to = ul_kx_add(kernel, ul_kx_muli(kernel, to, d->columns), column);
    ul_ks_store(kernel, d->samples, to, value);
    for (uint32_t i = 0; i < 4; i++)
        ul_ks_end(kernel);
}

static void lower_sums(const struct deform *d, ul_kx batch, ul_kx row, ul_kx first)
{
    struct ul_kernel *kernel = d->kernel;
    const struct ul_conv *conv = &d->conv;
    int64_t k_extents[] = {conv->in_channels, conv->kernel[0], conv->kernel[1]};
    int64_t taps = conv->kernel[0] * conv->kernel[1], w_at[4][UL_CONTRACT_DIMS] = {{0}};
    ul_kx group = ul_ks_for(kernel, conv->groups, UL_FOR_PARALLEL);
    struct ul_contraction contraction;
    ul_contraction_init(kernel, &contraction, d->dtype, &conv->out_channels, 1, &d->columns, 1,
                        k_extents, 3);
    ul_kx zero = ul_kx_index_const(kernel, 0);
    ul_kx channel = ul_kx_muli(kernel, group, conv->out_channels);
    ul_kx base[] = {channel, zero, zero, zero};
    w_at[0][0] = w_at[1][2] = w_at[2][3] = w_at[3][4] = 1;
    ul_lower_operand(d->lower, &contraction, &contraction.a, d->node->inputs[1], base, w_at, 0, 0);
    contraction.b.buffer = d->samples;
    contraction.b.at.base = ul_kx_muli(kernel, group, conv->in_channels * taps * d->columns);
    contraction.b.at.strides[1] = 1;
    contraction.b.at.strides[2] = taps * d->columns;
    contraction.b.at.strides[3] = conv->kernel[1] * d->columns;
    contraction.b.at.strides[4] = d->columns;
    ul_ks_contract(kernel, &contraction);
    channel = ul_kx_add(kernel, channel, ul_kx_var(kernel, contraction.vars[0]));
    ul_kx column = ul_kx_add(kernel, first, ul_kx_var(kernel, contraction.vars[1]));
    ul_kx index[] = {batch, channel, row, column};
    bool is_cut = conv->out[1] % d->columns != 0;
    if (is_cut)
        ul_ks_if(kernel,
                 ul_kx_binary(kernel, UL_KX_LT, column, ul_kx_index_const(kernel, conv->out[1])));
    ul_kx sum =
        ul_conv_add_bias(d->lower, d->node_id, BIAS, channel, ul_kx_var(kernel, contraction.acc));
    ul_lower_store(d->lower, d->node->outputs[0], index, sum);
    if (is_cut)
        ul_ks_end(kernel);
    ul_ks_end(kernel);
    ul_ks_end(kernel);
}

void ul_lower_deform_conv(struct ul_lower *lower, ul_node_id node_id)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *x = ul_lower_input_type(lower, node_id, 0);
    struct deform d = {.lower = lower,
                       .kernel = kernel,
                       .node = &lower->graph->nodes[node_id],
                       .node_id = node_id,
                       .dtype = ul_compute_dtype(x->dtype)};
    const char *wrong = ul_conv_read(&d.conv, d.node, x, ul_lower_input_type(lower, node_id, 1));
    UL_ASSERT(wrong == NULL);
    d.offset_groups = ul_node_get_int(d.node, "offset_group", 1);
    d.columns = d.conv.out[1] < COLUMNS ? d.conv.out[1] : COLUMNS;
    uint64_t taps = (uint64_t)(d.conv.kernel[0] * d.conv.kernel[1]);
    uint64_t channels = (uint64_t)(d.conv.groups * d.conv.in_channels);
    d.samples = ul_lower_scratch(lower, d.dtype, channels * taps * (uint64_t)d.columns);
    ul_kx batch = ul_ks_for(kernel, d.conv.batch, 0);
    ul_kx row = ul_ks_for(kernel, d.conv.out[0], 0);
    ul_kx block = ul_ks_for(kernel, (d.conv.out[1] - 1) / d.columns + 1, 0);
    ul_kx first = ul_ks_let(kernel, ul_kx_muli(kernel, block, d.columns));
    lower_samples(&d, batch, row, first);
    lower_sums(&d, batch, row, first);
    ul_lower_close(lower, 3);
}
