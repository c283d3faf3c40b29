/* Parts of reductions: along the dimensions that stay. */
#include "ir/ops/reduce.h"

#include "ir/ops/check.h"
#include "ir/ops/lanes.h"

/* The reduced dimensions, which the rule has checked. */
static uint32_t reduced(const struct ul_split_rule *split, uint32_t rank)
{
    const struct ul_tensor *axes = NULL;
    uint32_t mask = 0;
    if (split->node->input_count > 1 && split->node->inputs[1] != UL_NONE)
        axes = split->graph->values[split->node->inputs[1]].tensor;
    if (axes == NULL || ul_type_elements(&axes->type) == 0)
        return ul_node_get_int(split->node, "noop_with_empty_axes", 0) != 0 ? 0
                                                                            : ul_lanes_all(rank);
    for (uint64_t i = 0; i < ul_type_elements(&axes->type); i++)
        mask |= 1u << ul_check_get_axis(ul_tensor_get_int(axes, i), rank);
    return mask;
}

bool ul_split_rule_reduce(struct ul_split_rule *split)
{
    uint32_t rank = ul_split_rule_input_type(split, 0)->rank;
    uint32_t mask = reduced(split, rank);
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
