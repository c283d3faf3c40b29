/* SPDX-License-Identifier: Apache-2.0 */
/* Slices of normalisations: along every dimension that no statistic is taken over. */
#include "ir/ops/norm/norm.h"

#include "ir/ops/check.h"

/* Takes the same slice of the input; the statistics of a set are formed as in the whole. */
static bool read_same(struct ul_split_rule *split)
{
    if (!ul_split_rule_keeps_lanes(split, split->node->outputs[0], split->output.axis))
        return false;
    ul_split_rule_read(split, 0, split->output.axis, split->output.begin, split->output.end);
    return true;
}

bool ul_split_rule_softmax(struct ul_split_rule *split)
{
    uint32_t mask;
    if (!ul_softmax_mask(split->node, ul_split_rule_output_type(split)->rank, &mask) ||
        (mask >> split->output.axis & 1u) != 0)
        return false;
    return read_same(split);
}

bool ul_split_rule_layer_norm(struct ul_split_rule *split)
{
    uint32_t rank = ul_split_rule_output_type(split)->rank;
    uint32_t axis = ul_check_get_axis(ul_node_get_int(split->node, "axis", -1), rank);
    if (split->output.axis >= axis)
        return false;
    for (uint32_t i = 1; i < split->node->input_count; i++)
        ul_split_rule_read_broadcast(split, i);
    return read_same(split);
}

bool ul_split_rule_instance_norm(struct ul_split_rule *split)
{
    return split->output.axis == 0 && read_same(split);
}

bool ul_split_rule_batch_norm(struct ul_split_rule *split)
{
    if (split->output.axis == 1)
        return false;
    ul_split_rule_read(split, 0, split->output.axis, split->output.begin, split->output.end);
    return true;
}

bool ul_split_rule_lrn(struct ul_split_rule *split)
{
    return split->output.axis != 1 && read_same(split);
}

bool ul_split_rule_lp_norm(struct ul_split_rule *split)
{
    uint32_t rank = ul_split_rule_output_type(split)->rank;
    if (ul_check_get_axis(ul_node_get_int(split->node, "axis", -1), rank) == split->output.axis)
        return false;
    return read_same(split);
}
