/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes and shapes of convolutions: what fits together, and the size of the result. */
#include "ir/ops/conv/conv.h"

#include <string.h>

/* Reads `count` ints of attribute `name` into `out`, each within [low, UL_LIMIT_DIM]. If the
 * attribute is absent, all are `otherwise`. */
static bool read_ints(const struct ul_node *node, const char *name, uint32_t count, int64_t low,
                      int64_t otherwise, int64_t *out)
{
    uint32_t given = 0;
    const int64_t *ints = ul_node_get_ints(node, name, &given);
    if (given != 0 && given != count)
        return false;
    for (uint32_t d = 0; d < count; d++) {
        out[d] = given ? ints[d] : otherwise;
        if (given && (out[d] < low || out[d] > UL_LIMIT_DIM))
            return false;
    }
    return true;
}

static bool is_auto(const struct ul_node *node, const char *mode)
{
    return strcmp(ul_node_get_string(node, "auto_pad", "NOTSET"), mode) == 0;
}

static bool known_auto_pad(const struct ul_node *node)
{
    return is_auto(node, "NOTSET") || is_auto(node, "") || is_auto(node, "VALID") ||
           is_auto(node, "SAME_UPPER") || is_auto(node, "SAME_LOWER");
}

/* Reads strides, dilations, pads and kernel sizes; `w` is the weight, with the kernel from dim 2
 * on. */
static const char *read_attributes(struct ul_conv *conv, const struct ul_node *node,
                                   const struct ul_type *w)
{
    uint32_t spatial = conv->spatial;
    int64_t pads[2 * UL_CONV_SPATIAL];
    if (!read_ints(node, "strides", spatial, 1, 1, conv->stride))
        return "strides must be one positive number for each spatial dimension";
    if (!read_ints(node, "dilations", spatial, 1, 1, conv->dilation))
        return "dilations must be one positive number for each spatial dimension";
    if (!read_ints(node, "pads", 2 * spatial, 0, 0, pads))
        return "pads must be two numbers, not negative, for each spatial dimension";
    if (!known_auto_pad(node))
        return "auto_pad must be NOTSET, SAME_UPPER, SAME_LOWER or VALID";
    bool explicit_pads = is_auto(node, "NOTSET") || is_auto(node, "");
    for (uint32_t d = 0; d < spatial; d++) {
        conv->pad_begin[d] = explicit_pads ? pads[d] : 0;
        conv->pad_end[d] = explicit_pads ? pads[spatial + d] : 0;
        conv->kernel[d] = w->dims[2 + d];
        if (conv->kernel[d] < 1)
            return "the kernel has an empty dimension";
        if (conv->dilation[d] > UL_LIMIT_DIM / conv->kernel[d])
            return "the dilated kernel is too large";
    }
    int64_t kernel[UL_CONV_SPATIAL];
    if (!read_ints(node, "kernel_shape", spatial, 0, 0, kernel))
        return "kernel_shape must be one number for each spatial dimension";
    for (uint32_t d = 0; d < spatial; d++)
        if (kernel[d] != 0 && kernel[d] != conv->kernel[d])
            return "kernel_shape differs from the shape of the weight";
    return NULL;
}

/* Reads ranks, groups and channels; `w_in` and `w_out` say which dimension of the weight counts the
 * input channels of one group and which one the output channels. */
static const char *read_channels(struct ul_conv *conv, const struct ul_node *node,
                                 const struct ul_type *x, const struct ul_type *w)
{
    if (x->rank < 3 || x->rank > 2 + UL_CONV_SPATIAL)
        return "the input must have rank 3, 4 or 5";
    if (w->rank != x->rank)
        return "the weight must have the rank of the input";
    conv->spatial = x->rank - 2;
    conv->batch = x->dims[0];
    conv->groups = ul_node_get_int(node, "group", 1);
    if (conv->groups < 1)
        return "group must be positive";
    if (x->dims[1] % conv->groups != 0)
        return "the input channels are no multiple of group";
    conv->in_channels = x->dims[1] / conv->groups;
    for (uint32_t d = 0; d < conv->spatial; d++)
        conv->in[d] = x->dims[2 + d];
    return NULL;
}

/* Sets the pads of SAME modes and the output size of one dimension. */
static const char *finish_dimension(struct ul_conv *conv, const struct ul_node *node, uint32_t d)
{
    int64_t extent = (conv->kernel[d] - 1) * conv->dilation[d] + 1;
    bool upper = is_auto(node, "SAME_UPPER");
    if (upper || is_auto(node, "SAME_LOWER")) {
        int64_t out = conv->in[d] == 0 ? 0 : (conv->in[d] - 1) / conv->stride[d] + 1;
        int64_t total = out == 0 ? 0 : (out - 1) * conv->stride[d] + extent - conv->in[d];
        total = total < 0 ? 0 : total;
        conv->pad_begin[d] = upper ? total / 2 : total - total / 2;
        conv->pad_end[d] = total - conv->pad_begin[d];
    }
    int64_t padded = conv->in[d] + conv->pad_begin[d] + conv->pad_end[d];
    if (padded < extent)
        return "the kernel is larger than the padded input";
    conv->out[d] = (padded - extent) / conv->stride[d] + 1;
    return NULL;
}

const char *ul_conv_read(struct ul_conv *conv, const struct ul_node *node, const struct ul_type *x,
                         const struct ul_type *w)
{
    *conv = (struct ul_conv){0};
    const char *wrong = read_channels(conv, node, x, w);
    if (wrong == NULL)
        wrong = read_attributes(conv, node, w);
    if (wrong != NULL)
        return wrong;
    if (w->dims[1] != conv->in_channels)
        return "the weight's input channels do not match the input";
    if (w->dims[0] % conv->groups != 0)
        return "the output channels are no multiple of group";
    conv->out_channels = w->dims[0] / conv->groups;
    for (uint32_t d = 0; d < conv->spatial; d++) {
        wrong = finish_dimension(conv, node, d);
        if (wrong != NULL)
            return wrong;
    }
    return NULL;
}

/* Sets the result's size along one dimension. Where it is `wanted` (not negative), the pads follow
 * from it as ONNX ConvTranspose says, and a result larger than what the kernel reaches ends in
 * zeros. */
static const char *finish_transposed(struct ul_conv *conv, const struct ul_node *node, uint32_t d,
                                     int64_t output_padding, int64_t wanted)
{
    if (conv->in[d] < 1)
        return "the input has an empty spatial dimension";
    if (conv->stride[d] > UL_LIMIT_DIM / conv->in[d])
        return "the result is too large";
    int64_t full = conv->stride[d] * (conv->in[d] - 1) + output_padding +
                   (conv->kernel[d] - 1) * conv->dilation[d] + 1;
    bool upper = is_auto(node, "SAME_UPPER"), lower = is_auto(node, "SAME_LOWER");
    if (wanted < 0 && (upper || lower))
        wanted = conv->in[d] * conv->stride[d];
    if (wanted >= 0) {
        int64_t total = full > wanted ? full - wanted : 0;
        conv->pad_begin[d] = upper ? total / 2 : total - total / 2;
        conv->pad_end[d] = total - conv->pad_begin[d];
        conv->out[d] = wanted;
        return NULL;
    }
    conv->out[d] = full - conv->pad_begin[d] - conv->pad_end[d];
    return conv->out[d] < 1 ? "the pads leave nothing of the result" : NULL;
}

const char *ul_conv_transpose_read(struct ul_conv *conv, const struct ul_node *node,
                                   const struct ul_type *x, const struct ul_type *w)
{
    *conv = (struct ul_conv){0};
    const char *wrong = read_channels(conv, node, x, w);
    if (wrong == NULL)
        wrong = read_attributes(conv, node, w);
    if (wrong != NULL)
        return wrong;
    if (w->dims[0] != x->dims[1])
        return "the weight's input channels do not match the input";
    conv->out_channels = w->dims[1];
    int64_t padding[UL_CONV_SPATIAL], wanted[UL_CONV_SPATIAL];
    if (!read_ints(node, "output_padding", conv->spatial, 0, 0, padding))
        return "output_padding must be one number for each spatial dimension";
    if (!read_ints(node, "output_shape", conv->spatial, 0, -1, wanted))
        return "output_shape must be one number for each spatial dimension";
    for (uint32_t d = 0; d < conv->spatial; d++) {
        wrong = finish_transposed(conv, node, d, padding[d], wanted[d]);
        if (wrong != NULL)
            return wrong;
    }
    return NULL;
}

struct ul_type ul_conv_result(const struct ul_conv *conv, enum ul_dtype dtype)
{
    struct ul_type type = {.dtype = dtype, .rank = 2 + conv->spatial};
    type.dims[0] = conv->batch;
    type.dims[1] = conv->groups * conv->out_channels;
    for (uint32_t d = 0; d < conv->spatial; d++)
        type.dims[2 + d] = conv->out[d];
    return type;
}
