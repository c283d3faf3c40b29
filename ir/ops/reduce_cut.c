/* Parts of reductions: along the dimensions that stay. */
#include "ir/ops/reduce.h"

#include "ir/ops/check.h"
#include "ir/ops/lanes.h"

/* The reduced dimensions, which the rule has checked. */
static uint32_t reduced(const struct ul_cut *cut, uint32_t rank)
{
    const struct ul_tensor *axes = NULL;
    uint32_t mask = 0;
    if (cut->node->input_count > 1 && cut->node->inputs[1] != UL_NONE)
        axes = cut->graph->values[cut->node->inputs[1]].tensor;
    if (axes == NULL || ul_type_elements(&axes->type) == 0)
        return ul_node_get_int(cut->node, "noop_with_empty_axes", 0) != 0 ? 0 : ul_lanes_all(rank);
    for (uint64_t i = 0; i < ul_type_elements(&axes->type); i++)
        mask |= 1u << ul_check_get_axis(ul_tensor_get_int(axes, i), rank);
    return mask;
}

bool ul_cut_reduce(struct ul_cut *cut)
{
    uint32_t rank = ul_cut_input_type(cut, 0)->rank;
    uint32_t mask = reduced(cut, rank);
    uint32_t axis = cut->output.axis;
    bool keepdims = ul_node_get_int(cut->node, "keepdims", 1) != 0;
    /* The dimension of the input that became the output's. */
    for (uint32_t d = 0; !keepdims && d <= axis && d < rank; d++)
        axis += mask >> d & 1u;
    if (axis >= rank || (mask >> axis & 1u) != 0 ||
        !ul_cut_keeps_lanes(cut, cut->node->inputs[0], axis))
        return false;
    ul_cut_take(cut, 0, axis, cut->output.begin, cut->output.end);
    return true;
}
