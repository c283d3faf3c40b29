/* Parts of normalisations: along every dimension that no statistic is taken over. */
#include "ir/ops/norm.h"

#include "ir/ops/check.h"

/* The same part of the input; the statistics of a set are formed as in the whole. */
static bool take_same(struct ul_cut *cut)
{
    if (!ul_cut_keeps_lanes(cut, cut->node->outputs[0], cut->output.axis))
        return false;
    ul_cut_take(cut, 0, cut->output.axis, cut->output.begin, cut->output.end);
    return true;
}

bool ul_cut_softmax(struct ul_cut *cut)
{
    uint32_t mask;
    if (!ul_softmax_mask(cut->node, ul_cut_output_type(cut)->rank, &mask) ||
        (mask >> cut->output.axis & 1u) != 0)
        return false;
    return take_same(cut);
}

bool ul_cut_layer_norm(struct ul_cut *cut)
{
    uint32_t rank = ul_cut_output_type(cut)->rank;
    uint32_t axis = ul_check_get_axis(ul_node_get_int(cut->node, "axis", -1), rank);
    if (cut->output.axis >= axis)
        return false;
    for (uint32_t i = 1; i < cut->node->input_count; i++)
        ul_cut_take_broadcast(cut, i);
    return take_same(cut);
}

bool ul_cut_instance_norm(struct ul_cut *cut)
{
    return cut->output.axis == 0 && take_same(cut);
}

bool ul_cut_batch_norm(struct ul_cut *cut)
{
    if (cut->output.axis == 1)
        return false;
    ul_cut_take(cut, 0, cut->output.axis, cut->output.begin, cut->output.end);
    return true;
}

bool ul_cut_lrn(struct ul_cut *cut)
{
    return cut->output.axis != 1 && take_same(cut);
}

bool ul_cut_lp_norm(struct ul_cut *cut)
{
    uint32_t rank = ul_cut_output_type(cut)->rank;
    if (ul_check_get_axis(ul_node_get_int(cut->node, "axis", -1), rank) == cut->output.axis)
        return false;
    return take_same(cut);
}
