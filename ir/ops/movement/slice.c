/* SPDX-License-Identifier: Apache-2.0 */
/* Slice and Split: a box out of a tensor, in steps that may run backwards. */
#include "ir/ops/movement/movement.h"

#include "ir/kernel_build.h"
#include "ir/ops/require.h"
#include "ir/split_rule.h"
#include "ir/view.h"

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* One axis. Where Python would find nothing before the first element, ONNX clamps the start of a
 * backward slice to that element. */
static void slice_axis(struct ul_box *box, uint32_t axis, int64_t dim, int64_t begin, int64_t end,
                       int64_t step)
{
    begin += begin < 0 ? dim : 0;
    end += end < 0 ? dim : 0;
    uint64_t span = 0;
    if (dim == 0) {
        begin = 0;
    } else if (step > 0) {
        begin = clamp(begin, 0, dim);
        end = clamp(end, 0, dim);
        span = end > begin ? (uint64_t)(end - begin) : 0;
    } else {
        begin = clamp(begin, 0, dim - 1);
        end = clamp(end, -1, dim - 1);
        span = begin > end ? (uint64_t)(begin - end) : 0;
    }
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    uint64_t count = span == 0 ? 0 : (span - 1) / stride + 1;
    box->count[axis] = (int64_t)count;
    /* With fewer than two elements the step means nothing and may be absurd. */
    box->step[axis] = count > 1 ? step : 1;
    box->begin[axis] = count > 0 ? begin : 0;
}

static enum ul_status slice_rule(const struct ul_infer *infer, const struct ul_type *input,
                                 struct ul_box *box)
{
    const int64_t *lists[4]; /* starts, ends, axes, steps */
    uint32_t counts[4];
    uint32_t seen = 0;
    for (uint32_t i = 0; i < 4; i++)
        UL_TRY(ul_infer_ints(infer, i + 1, &lists[i], &counts[i]));
    for (uint32_t i = 1; i < 4; i++) {
        if (lists[i] != NULL && counts[i] != counts[0])
            return ul_infer_invalid(infer, "input %u has %u entries, but starts has %u",
                                    (unsigned)i + 1, (unsigned)counts[i], (unsigned)counts[0]);
    }
    for (uint32_t d = 0; d < input->rank; d++) {
        box->begin[d] = 0;
        box->step[d] = 1;
        box->count[d] = input->dims[d];
    }
    for (uint32_t i = 0; i < counts[0]; i++) {
        uint32_t axis;
        int64_t step = lists[3] == NULL ? 1 : lists[3][i];
        UL_TRY(
            ul_infer_axis(infer, lists[2] == NULL ? (int64_t)i : lists[2][i], input->rank, &axis));
        if ((seen >> axis & 1u) != 0)
            return ul_infer_invalid(infer, "axis %u is named twice", (unsigned)axis);
        if (step == 0)
            return ul_infer_invalid(infer, "the step of axis %u is 0", (unsigned)axis);
        seen |= 1u << axis;
        slice_axis(box, axis, input->dims[axis], lists[0][i], lists[1][i], step);
    }
    return UL_OK;
}

enum ul_status ul_infer_slice(struct ul_infer *infer)
{
    const struct ul_type *input = ul_infer_input(infer, 0);
    struct ul_box box;
    UL_TRY(slice_rule(infer, input, &box));
    ul_infer_set(infer, 0, input->dtype, input->rank, box.count);
    return UL_OK;
}

static int64_t constant(const struct ul_graph *graph, const struct ul_node *node, uint32_t input,
                        uint64_t at, int64_t otherwise)
{
    if (input >= node->input_count || node->inputs[input] == UL_NONE)
        return otherwise;
    return ul_tensor_get_int(graph->values[node->inputs[input]].tensor, at);
}

/* Gives the same box again, from constants that the rule has checked. */
void ul_slice_box(const struct ul_graph *graph, const struct ul_node *node, struct ul_box *box)
{
    const struct ul_type *input = &graph->values[node->inputs[0]].type;
    uint64_t count = ul_type_elements(&graph->values[node->inputs[1]].type);
    for (uint32_t d = 0; d < input->rank; d++) {
        box->begin[d] = 0;
        box->step[d] = 1;
        box->count[d] = input->dims[d];
    }
    for (uint64_t i = 0; i < count; i++) {
        int64_t axis = constant(graph, node, 3, i, (int64_t)i);
        uint32_t d = (uint32_t)(axis < 0 ? axis + (int64_t)input->rank : axis);
        slice_axis(box, d, input->dims[d], constant(graph, node, 1, i, 0),
                   constant(graph, node, 2, i, 0), constant(graph, node, 4, i, 1));
    }
}

static ul_kx box_load(struct ul_lower *lower, ul_node_id node, const struct ul_box *box,
                      const ul_kx *index)
{
    uint32_t rank = ul_lower_input_type(lower, node, 0)->rank;
    ul_kx from[UL_LIMIT_RANK];
    for (uint32_t d = 0; d < rank; d++)
        from[d] = ul_kx_addi(lower->kernel, ul_kx_muli(lower->kernel, index[d], box->step[d]),
                             box->begin[d]);
    return ul_lower_load(lower, lower->graph->nodes[node].inputs[0], from);
}

static void box_view(const struct ul_graph *graph, ul_value_id value, const struct ul_box *box,
                     const struct ul_view *input, struct ul_view *view)
{
    const struct ul_type *type = &graph->values[value].type;
    int64_t size_bytes = (int64_t)ul_value_element_bytes(graph, value);
    *view = *input;
    for (uint32_t d = 0; d < type->rank; d++) {
        view->offset_bytes += box->begin[d] * input->strides[d] * size_bytes;
        view->strides[d] *= box->step[d];
    }
}

ul_kx ul_map_slice(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    struct ul_box box;
    (void)output;
    ul_slice_box(lower->graph, &lower->graph->nodes[node], &box);
    return box_load(lower, node, &box, index);
}

bool ul_view_slice(const struct ul_graph *graph, const struct ul_node *node, uint32_t output,
                   const struct ul_view *input, struct ul_view *view)
{
    struct ul_box box;
    (void)output;
    ul_slice_box(graph, node, &box);
    box_view(graph, node->inputs[0], &box, input, view);
    return true;
}

/* The sizes of the parts along the axis: as given, or equal with a smaller last one. */
static enum ul_status split_size(const struct ul_infer *infer, const int64_t *sizes,
                                 uint32_t output, int64_t dim, int64_t *begin, int64_t *size)
{
    int64_t parts = (int64_t)infer->node->output_count;
    int64_t chunk = dim / parts + (dim % parts != 0);
    *size = sizes != NULL ? sizes[output] : chunk;
    if (sizes == NULL && *begin + chunk > dim)
        *size = dim - *begin;
    if (*size < 0 || *size > dim - *begin)
        return ul_infer_invalid(infer, "part %u would have %lld of the %lld elements that are left",
                                (unsigned)output, (long long)*size, (long long)(dim - *begin));
    *begin += *size;
    return UL_OK;
}

enum ul_status ul_infer_split(struct ul_infer *infer)
{
    struct ul_type type = *ul_infer_input(infer, 0);
    uint32_t parts = infer->node->output_count;
    const int64_t *sizes;
    uint32_t count;
    uint32_t axis;
    int64_t begin = 0;
    UL_TRY(ul_infer_axis(infer, ul_node_get_int(infer->node, "axis", 0), type.rank, &axis));
    UL_TRY(ul_infer_ints(infer, 1, &sizes, &count));
    if (sizes != NULL && count != parts)
        return ul_infer_invalid(infer, "%u sizes are given for %u outputs", (unsigned)count,
                                (unsigned)parts);
    int64_t requested = ul_node_get_int(infer->node, "num_outputs", (int64_t)parts);
    if (requested != (int64_t)parts)
        return ul_infer_invalid(infer, "num_outputs is %lld, but there are %u outputs",
                                (long long)requested, (unsigned)parts);
    int64_t dim = type.dims[axis];
    for (uint32_t i = 0; i < parts; i++) {
        UL_TRY(split_size(infer, sizes, i, dim, &begin, &type.dims[axis]));
        ul_infer_set_type(infer, i, &type);
    }
    if (begin != dim)
        return ul_infer_invalid(infer, "the sizes add up to %lld, but axis %u has %lld elements",
                                (long long)begin, (unsigned)axis, (long long)dim);
    return UL_OK;
}

static void split_box(const struct ul_graph *graph, const struct ul_node *node, uint32_t output,
                      struct ul_box *box)
{
    const struct ul_type *input = &graph->values[node->inputs[0]].type;
    int64_t axis = ul_node_get_int(node, "axis", 0);
    uint32_t d = (uint32_t)(axis < 0 ? axis + (int64_t)input->rank : axis);
    int64_t parts = (int64_t)node->output_count;
    int64_t chunk = input->dims[d] / parts + (input->dims[d] % parts != 0);
    for (uint32_t i = 0; i < input->rank; i++) {
        box->begin[i] = 0;
        box->step[i] = 1;
        box->count[i] = graph->values[node->outputs[output]].type.dims[i];
    }
    for (uint32_t i = 0; i < output; i++)
        box->begin[d] += constant(graph, node, 1, i, chunk);
    if (box->begin[d] > input->dims[d])
        box->begin[d] = input->dims[d];
}

ul_kx ul_map_split(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    struct ul_box box;
    split_box(lower->graph, &lower->graph->nodes[node], output, &box);
    return box_load(lower, node, &box, index);
}

bool ul_view_split(const struct ul_graph *graph, const struct ul_node *node, uint32_t output,
                   const struct ul_view *input, struct ul_view *view)
{
    struct ul_box box;
    split_box(graph, node, output, &box);
    box_view(graph, node->inputs[0], &box, input, view);
    return true;
}

/* Along a dimension that is taken whole, everything that the node says of it holds for a part
 * too. */
bool ul_split_rule_slice(struct ul_split_rule *split)
{
    const struct ul_type *input = ul_split_rule_input_type(split, 0);
    uint32_t axis = split->output.axis;
    struct ul_box box;
    for (uint32_t i = 1; i < split->node->input_count; i++) {
        if (split->node->inputs[i] != UL_NONE &&
            split->graph->values[split->node->inputs[i]].tensor == NULL)
            return false;
    }
    ul_slice_box(split->graph, split->node, &box);
    uint64_t count = ul_type_elements(ul_split_rule_input_type(split, 1));
    for (uint64_t i = 0; i < count; i++) {
        int64_t named = constant(split->graph, split->node, 3, i, (int64_t)i);
        if (named == (int64_t)axis || named + (int64_t)input->rank == (int64_t)axis)
            return false;
    }
    ul_split_rule_read(split, 0, axis, split->output.begin, split->output.end);
    return true;
}

bool ul_split_rule_split(struct ul_split_rule *split)
{
    int64_t axis = ul_node_get_int(split->node, "axis", 0);
    axis += axis < 0 ? (int64_t)ul_split_rule_output_type(split)->rank : 0;
    if ((uint32_t)axis == split->output.axis)
        return false;
    ul_split_rule_read(split, 0, split->output.axis, split->output.begin, split->output.end);
    return true;
}
