/* Which nodes need no kernel, because their outputs are views that the views pass has laid out. */
#include "ir/ir.h"

static bool view_equal(const struct ul_view *a, const struct ul_view *b, const struct ul_type *type)
{
    if (a->base != b->base || a->offset_bytes != b->offset_bytes)
        return false;
    for (uint32_t d = 0; d < type->rank; d++) {
        if (type->dims[d] > 1 && a->strides[d] != b->strides[d])
            return false;
    }
    return true;
}

/* Moves `slice` of a Concat's output from one operand's place to that of the next. */
static void slice_next(const struct ul_graph *graph, const struct ul_node *node, uint32_t input,
                       struct ul_view *slice)
{
    const struct ul_type *type = &graph->values[node->inputs[input]].type;
    int64_t axis = ul_node_get_int(node, "axis", 0);
    axis += axis < 0 ? (int64_t)type->rank : 0;
    slice->offset_bytes +=
        type->dims[axis] * slice->strides[axis] * (int64_t)ul_dtype_get(type->dtype)->size_bytes;
}

static bool lies_in(const struct ul_graph *graph, ul_value_id operand, const struct ul_view *slice)
{
    const struct ul_value *value = &graph->values[operand];
    return value->view.base != UL_NONE && view_equal(&value->view, slice, &value->type);
}

struct ul_view ul_concat_slice(const struct ul_graph *graph, const struct ul_node *node,
                               uint32_t input)
{
    struct ul_view slice = graph->values[node->outputs[0]].view;
    for (uint32_t i = 0; slice.base != UL_NONE && i < input; i++)
        slice_next(graph, node, i, &slice);
    return slice;
}

bool ul_concat_is_placed(const struct ul_graph *graph, const struct ul_node *node, uint32_t input)
{
    struct ul_view slice = ul_concat_slice(graph, node, input);
    return lies_in(graph, node->inputs[input], &slice);
}

/* Every operand of the Concat already lies in its slice of the output. */
static bool concat_is_view(const struct ul_graph *graph, const struct ul_node *node)
{
    struct ul_view slice = graph->values[node->outputs[0]].view;
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (!lies_in(graph, node->inputs[i], &slice))
            return false;
        slice_next(graph, node, i, &slice);
    }
    return true;
}

bool ul_node_is_view(const struct ul_graph *graph, ul_node_id id)
{
    const struct ul_node *node = &graph->nodes[id];
    ul_view_fn *hook = ul_op_get(node->op)->view;
    if (node->input_count == 0 || node->inputs[0] == UL_NONE)
        return false;
    if (node->op == UL_OP_Concat)
        return concat_is_view(graph, node);
    if (hook == NULL)
        return false;
    const struct ul_view *input = &graph->values[node->inputs[0]].view;
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (node->outputs[i] == UL_NONE)
            continue;
        const struct ul_value *output = &graph->values[node->outputs[i]];
        struct ul_view expected = {.base = UL_NONE};
        if (output->view.base == UL_NONE || output->view.base == node->outputs[i] ||
            !hook(graph, node, i, input, &expected) ||
            !view_equal(&output->view, &expected, &output->type))
            return false;
    }
    return true;
}
