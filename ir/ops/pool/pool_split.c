/* SPDX-License-Identifier: Apache-2.0 */
/* Slices of pooling: along batch and channels, or along a spatial dimension with the rows around it
 * that the windows reach; the padding stays at the outer slices. Taps are visited in order, and
 * those outside never, so that a slice combines what the whole does. */
#include "ir/geometry.h"
#include "ir/ops/pool/pool.def"

static void set_pads(struct ul_split_rule *split, const struct ul_pool *pool, uint32_t d,
                     int64_t begin, int64_t end)
{
    int64_t pads[2 * UL_POOL_DIMS];
    for (uint32_t i = 0; i < pool->count; i++) {
        pads[i] = i == d ? begin : pool->pad_begin[i];
        pads[pool->count + i] = i == d ? end : pool->pad_end[i];
    }
    ul_split_rule_set_ints(split, "pads", pads, 2 * pool->count);
    if (ul_node_find_attr(split->node, "auto_pad") != NULL)
        ul_split_rule_set_string(split, "auto_pad", "NOTSET");
}

/* With ceil_mode the windows of another dimension may extend past its end, which pads cannot
 * express. */
static bool hangs_over(const struct ul_pool *pool, uint32_t d)
{
    int64_t reach = (pool->kernel[d] - 1) * pool->dilation[d] + 1;
    return (pool->out[d] - 1) * pool->stride[d] + reach >
           pool->in[d] + pool->pad_begin[d] + pool->pad_end[d];
}

bool ul_split_rule_pool(struct ul_split_rule *split)
{
    const struct ul_node *node = split->node;
    struct ul_pool pool;
    /* Places in the input are counted in the whole input. */
    if (node->output_count > 1 ||
        ul_pool_read(node, ul_split_rule_input_type(split, 0), &pool) != NULL)
        return false;
    if (split->output.axis < 2) {
        ul_split_rule_read(split, 0, split->output.axis, split->output.begin, split->output.end);
        return true;
    }
    uint32_t d = split->output.axis - 2;
    struct ul_split_rule_window window = {.stride = pool.stride[d],
                                          .reach = (pool.kernel[d] - 1) * pool.dilation[d] + 1,
                                          .pad_begin = pool.pad_begin[d],
                                          .in = pool.in[d]};
    if (!ul_split_rule_window(split, &window))
        return false;
    /* What extends past the padding does not count, while the slice's padding would. */
    if (ul_node_get_int(node, "count_include_pad", 0) != 0 && hangs_over(&pool, d))
        return false;
    bool ceil_mode = ul_node_get_int(node, "ceil_mode", 0) != 0;
    for (uint32_t i = 0; ceil_mode && i < pool.count; i++) {
        if (i != d && hangs_over(&pool, i))
            return false;
    }
    ul_split_rule_read(split, 0, split->output.axis, window.low, window.high);
    set_pads(split, &pool, d, window.slice_begin, window.slice_end);
    if (ceil_mode)
        ul_split_rule_set_int(split, "ceil_mode", 0);
    return true;
}

bool ul_split_rule_global_pool(struct ul_split_rule *split)
{
    if (split->output.axis > 1 ||
        !ul_split_rule_keeps_lanes(split, split->node->inputs[0], split->output.axis))
        return false;
    ul_split_rule_read(split, 0, split->output.axis, split->output.begin, split->output.end);
    return true;
}
