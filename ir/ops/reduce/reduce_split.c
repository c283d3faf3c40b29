/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of reductions: along the dimensions that stay. */
#include "ir/ops/reduce/reduce.h"

#include "ir/ops/lanes.h"

bool ul_split_rule_reduce(struct ul_split_rule *split)
{
    uint32_t rank = ul_split_rule_input_type(split, 0)->rank;
    uint32_t mask = ul_reduce_mask(split->graph, split->node);
    uint32_t axis = split->output.axis;
    bool keepdims = ul_node_get_int(split->node, "keepdims", 1) != 0;
    /* The dimension of the input that became the output's. */
    for (uint32_t d = 0; !keepdims && d <= axis && d < rank; d++)
        axis += mask >> d & 1u;
    if (axis >= rank || (mask >> axis & 1u) != 0 ||
        !ul_split_rule_keeps_lanes(split, split->node->inputs[0], axis))
        return false;
    ul_split_rule_read(split, 0, axis, split->output.begin, split->output.end);
    return true;
}
