/* SPDX-License-Identifier: Apache-2.0 */
/* Slices of convolutions: along the batch, or along a spatial dimension with the rows around it
 * that the kernel reaches; the padding stays at the outer slices. Channels are not split: the
 * weights would have to be.
 *
 * The products of a sum keep their order, since k runs over (channel, kernel position) whatever the
 * slice; a position in the padding of the whole is in the padding of the slice. */
#include "ir/ops/conv/conv.h"
#include "ir/split_rule.h"

/* Sets the slice's own pads; those of the other dimensions stay as they are. */
static void set_pads(struct ul_split_rule *split, const struct ul_conv *conv, uint32_t d,
                     int64_t begin, int64_t end)
{
    int64_t pads[2 * UL_CONV_SPATIAL];
    for (uint32_t i = 0; i < conv->spatial; i++) {
        pads[i] = i == d ? begin : conv->pad_begin[i];
        pads[conv->spatial + i] = i == d ? end : conv->pad_end[i];
    }
    ul_split_rule_set_ints(split, "pads", pads, 2 * conv->spatial);
    if (ul_node_find_attr(split->node, "auto_pad") != NULL)
        ul_split_rule_set_string(split, "auto_pad", "NOTSET");
}

static bool split_conv(struct ul_split_rule *split, uint32_t w_input)
{
    struct ul_conv conv;
    const char *wrong = ul_conv_read(&conv, split->node, ul_split_rule_input_type(split, 0),
                                     ul_split_rule_input_type(split, w_input));
    if (wrong != NULL || split->output.axis == 1)
        return false;
    if (split->output.axis == 0) {
        ul_split_rule_read(split, 0, 0, split->output.begin, split->output.end);
        return true;
    }
    uint32_t d = split->output.axis - 2;
    struct ul_split_rule_window window = {.stride = conv.stride[d],
                                          .reach = (conv.kernel[d] - 1) * conv.dilation[d] + 1,
                                          .pad_begin = conv.pad_begin[d],
                                          .in = conv.in[d]};
    if (!ul_split_rule_window(split, &window))
        return false;
    ul_split_rule_read(split, 0, split->output.axis, window.low, window.high);
    set_pads(split, &conv, d, window.slice_begin, window.slice_end);
    return true;
}

bool ul_split_rule_conv(struct ul_split_rule *split)
{
    return split_conv(split, 1);
}

bool ul_split_rule_qlinear_conv(struct ul_split_rule *split)
{
    return split_conv(split, 3);
}

/* Output o takes inputs i with 0 <= o + pad - i * stride <= (kernel - 1) * dilation. The slice's
 * first input becomes its input 0, which moves the outputs by `low * stride`. */
bool ul_split_rule_conv_transpose(struct ul_split_rule *split)
{
    struct ul_conv conv;
    const char *wrong = ul_conv_transpose_read(
        &conv, split->node, ul_split_rule_input_type(split, 0), ul_split_rule_input_type(split, 1));
    if (wrong != NULL || split->output.axis == 1)
        return false;
    if (split->output.axis == 0) {
        ul_split_rule_read(split, 0, 0, split->output.begin, split->output.end);
        return true;
    }
    uint32_t d = split->output.axis - 2;
    int64_t stride = conv.stride[d], reach = (conv.kernel[d] - 1) * conv.dilation[d];
    int64_t first = split->output.begin + conv.pad_begin[d] - reach;
    int64_t low = first > 0 ? (first + stride - 1) / stride : 0;
    int64_t high = (split->output.end - 1 + conv.pad_begin[d]) / stride + 1;
    high = high < conv.in[d] ? high : conv.in[d];
    int64_t begin = split->output.begin + conv.pad_begin[d] - low * stride;
    int64_t full = stride * (high - low - 1) + reach + 1 - begin;
    int64_t end = full - (split->output.end - split->output.begin);
    if (low >= high || begin < 0 || end < 0)
        return false;
    /* The pads now say everything: the attributes that gave the whole its size are removed. */
    int64_t padding[UL_CONV_SPATIAL] = {0};
    uint32_t count = 0;
    const int64_t *given = ul_node_get_ints(split->node, "output_padding", &count);
    if (ul_node_find_attr(split->node, "output_shape") != NULL)
        return false;
    for (uint32_t i = 0; i < count && i < conv.spatial; i++)
        padding[i] = i == d ? 0 : given[i];
    if (count > 0)
        ul_split_rule_set_ints(split, "output_padding", padding, conv.spatial);
    ul_split_rule_read(split, 0, split->output.axis, low, high);
    set_pads(split, &conv, d, begin, end);
    return true;
}
