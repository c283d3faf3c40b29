/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that read at indexes that are data. Such an index is clamped, and reported at run time
 * if it is out of range; a negative one counts from the end. */
#include "ir/ops/movement/movement.def"

#include "ir/kernel_build.h"
#include "ir/ops/require.h"
#include "ir/split_rule.h"
#include "ir/view.h"

/* An index from the data, for a dimension of `dim` elements. An empty dimension is only met where
 * the output is empty too, and then nothing is loaded. */
static ul_kx data_index(struct ul_lower *lower, ul_value_id value, const ul_kx *at, int64_t dim)
{
    return ul_kx_checked_index(lower->kernel, ul_lower_load(lower, value, at), dim > 0 ? dim : 1,
                               true);
}

/* Checks that the dimension is not empty: then no index could be right. */
static enum ul_status check_not_empty(const struct ul_infer *infer, const struct ul_type *out,
                                      int64_t dim, uint32_t axis)
{
    if (dim > 0 || !ul_type_in_limits(out) || ul_type_elements(out) == 0)
        return UL_OK;
    return ul_infer_invalid(infer, "axis %u is empty, so no index into it exists", (unsigned)axis);
}

static uint32_t axis_get(const struct ul_node *node, uint32_t rank)
{
    int64_t axis = ul_node_get_int(node, "axis", 0);
    return (uint32_t)(axis < 0 ? axis + (int64_t)rank : axis);
}

enum ul_status ul_infer_gather(struct ul_infer *infer)
{
    const struct ul_type *data = ul_infer_input(infer, 0);
    const struct ul_type *indices = ul_infer_input(infer, 1);
    uint32_t axis;
    UL_TRY(ul_check_dtype(infer, 1, UL_CHECK_INDEXES));
    UL_TRY(ul_infer_axis(infer, ul_node_get_int(infer->node, "axis", 0), data->rank, &axis));
    if (data->rank - 1 + indices->rank > UL_LIMIT_RANK)
        return ul_infer_unsupported(infer, "the output would have more than %u dimensions",
                                    (unsigned)UL_LIMIT_RANK);
    struct ul_type type = {.dtype = data->dtype};
    for (uint32_t d = 0; d < axis; d++)
        type.dims[type.rank++] = data->dims[d];
    for (uint32_t d = 0; d < indices->rank; d++)
        type.dims[type.rank++] = indices->dims[d];
    for (uint32_t d = axis + 1; d < data->rank; d++)
        type.dims[type.rank++] = data->dims[d];
    UL_TRY(check_not_empty(infer, &type, data->dims[axis], axis));
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

ul_kx ul_map_gather(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    const struct ul_type *data = ul_lower_input_type(lower, node, 0);
    uint32_t index_rank = ul_lower_input_type(lower, node, 1)->rank;
    uint32_t axis = axis_get(info, data->rank);
    ul_kx from[UL_LIMIT_RANK];
    (void)output;
    for (uint32_t d = 0; d < axis; d++)
        from[d] = index[d];
    for (uint32_t d = axis + 1; d < data->rank; d++)
        from[d] = index[d + index_rank - 1];
    from[axis] = data_index(lower, info->inputs[1], index + axis, data->dims[axis]);
    return ul_lower_load(lower, info->inputs[0], from);
}

/* Index `i` of a constant, counted from the front; false where it is out of range. */
static bool constant_index(const struct ul_tensor *indices, uint64_t i, int64_t dim, int64_t *at)
{
    *at = ul_tensor_get_int(indices, i);
    *at += *at < 0 ? dim : 0;
    return *at >= 0 && *at < dim;
}

/* A single known index, or several at equal distances, are a slice. */
bool ul_view_gather(const struct ul_graph *graph, const struct ul_node *node, uint32_t output,
                    const struct ul_view *input, struct ul_view *view)
{
    const struct ul_type *data = &graph->values[node->inputs[0]].type;
    const struct ul_tensor *indices = graph->values[node->inputs[1]].tensor;
    uint32_t axis = axis_get(node, data->rank), rank = 0;
    int64_t first, second, at;
    (void)output;
    if (indices == NULL || indices->type.rank > 1 || ul_type_elements(&indices->type) == 0 ||
        !constant_index(indices, 0, data->dims[axis], &first))
        return false;
    uint64_t count = ul_type_elements(&indices->type);
    if (!constant_index(indices, count > 1 ? 1 : 0, data->dims[axis], &second))
        return false;
    for (uint64_t i = 2; i < count; i++)
        if (!constant_index(indices, i, data->dims[axis], &at) ||
            at != first + (int64_t)i * (second - first))
            return false;
    *view = *input;
    view->offset_bytes +=
        first * input->strides[axis] * (int64_t)ul_value_element_bytes(graph, node->inputs[0]);
    for (uint32_t d = 0; d < axis; d++)
        view->strides[rank++] = input->strides[d];
    if (indices->type.rank == 1)
        view->strides[rank++] = (second - first) * input->strides[axis];
    for (uint32_t d = axis + 1; d < data->rank; d++)
        view->strides[rank++] = input->strides[d];
    return true;
}

enum ul_status ul_infer_gather_elements(struct ul_infer *infer)
{
    const struct ul_type *data = ul_infer_input(infer, 0);
    struct ul_type type = *ul_infer_input(infer, 1);
    uint32_t axis;
    UL_TRY(ul_check_dtype(infer, 1, UL_CHECK_INDEXES));
    UL_TRY(ul_check_rank(infer, 1, data->rank, data->rank));
    UL_TRY(ul_infer_axis(infer, ul_node_get_int(infer->node, "axis", 0), data->rank, &axis));
    type.dtype = data->dtype;
    for (uint32_t d = 0; d < data->rank; d++) {
        if (d != axis && type.dims[d] > data->dims[d])
            return ul_infer_invalid(infer, "axis %u has %lld indices for %lld elements",
                                    (unsigned)d, (long long)type.dims[d], (long long)data->dims[d]);
    }
    UL_TRY(check_not_empty(infer, &type, data->dims[axis], axis));
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

ul_kx ul_map_gather_elements(struct ul_lower *lower, ul_node_id node, uint32_t output,
                             const ul_kx *index)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    const struct ul_type *data = ul_lower_input_type(lower, node, 0);
    uint32_t axis = axis_get(info, data->rank);
    ul_kx from[UL_LIMIT_RANK];
    (void)output;
    for (uint32_t d = 0; d < data->rank; d++)
        from[d] = index[d];
    from[axis] = data_index(lower, info->inputs[1], index, data->dims[axis]);
    return ul_lower_load(lower, info->inputs[0], from);
}

enum ul_status ul_infer_gather_nd(struct ul_infer *infer)
{
    const struct ul_type *data = ul_infer_input(infer, 0);
    const struct ul_type *indices = ul_infer_input(infer, 1);
    int64_t batch = ul_node_get_int(infer->node, "batch_dims", 0);
    UL_TRY(ul_check_dtype(infer, 1, UL_CHECK_INDEXES));
    UL_TRY(ul_check_rank(infer, 0, 1, UL_LIMIT_RANK));
    UL_TRY(ul_check_rank(infer, 1, 1, UL_LIMIT_RANK));
    uint32_t max = data->rank < indices->rank ? data->rank : indices->rank;
    UL_TRY(ul_check_range(infer, "batch_dims", batch, 0, (int64_t)max - 1));
    uint32_t first = (uint32_t)batch;
    int64_t depth = indices->dims[indices->rank - 1];
    UL_TRY(ul_check_range(infer, "the last dimension of the indices", depth, 1,
                          (int64_t)(data->rank - first)));
    uint32_t rank = indices->rank - 1 + data->rank - first - (uint32_t)depth;
    if (rank > UL_LIMIT_RANK)
        return ul_infer_unsupported(infer, "the output would have more than %u dimensions",
                                    (unsigned)UL_LIMIT_RANK);
    struct ul_type type = {.dtype = data->dtype};
    for (uint32_t d = 0; d + 1 < indices->rank; d++)
        type.dims[type.rank++] = indices->dims[d];
    for (uint32_t d = first + (uint32_t)depth; d < data->rank; d++)
        type.dims[type.rank++] = data->dims[d];
    for (uint32_t d = 0; d < first; d++) {
        if (data->dims[d] != indices->dims[d])
            return ul_infer_invalid(infer, "batch dimension %u differs: %lld and %lld", (unsigned)d,
                                    (long long)data->dims[d], (long long)indices->dims[d]);
    }
    for (uint32_t d = first; d < first + (uint32_t)depth; d++)
        UL_TRY(check_not_empty(infer, &type, data->dims[d], d));
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

ul_kx ul_map_gather_nd(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    const struct ul_type *data = ul_lower_input_type(lower, node, 0);
    const struct ul_type *indices = ul_lower_input_type(lower, node, 1);
    uint32_t batch = (uint32_t)ul_node_get_int(info, "batch_dims", 0);
    uint32_t last = indices->rank - 1;
    uint32_t depth = (uint32_t)indices->dims[last];
    ul_kx at[UL_LIMIT_RANK];
    ul_kx from[UL_LIMIT_RANK];
    (void)output;
    for (uint32_t d = 0; d < last; d++)
        at[d] = index[d];
    for (uint32_t d = 0; d < data->rank; d++) {
        if (d < batch) {
            from[d] = index[d];
        } else if (d < batch + depth) {
            at[last] = ul_kx_index_const(lower->kernel, (int64_t)(d - batch));
            from[d] = data_index(lower, info->inputs[1], at, data->dims[d]);
        } else {
            from[d] = index[last + d - batch - depth];
        }
    }
    return ul_lower_load(lower, info->inputs[0], from);
}

enum ul_status ul_infer_reverse_sequence(struct ul_infer *infer)
{
    const struct ul_type *input = ul_infer_input(infer, 0);
    int64_t time = ul_node_get_int(infer->node, "time_axis", 0);
    int64_t batch = ul_node_get_int(infer->node, "batch_axis", 1);
    UL_TRY(ul_check_rank(infer, 0, 2, UL_LIMIT_RANK));
    UL_TRY(ul_check_dtype(infer, 1, UL_CHECK_INDEXES));
    UL_TRY(ul_check_range(infer, "time_axis", time, 0, 1));
    UL_TRY(ul_check_range(infer, "batch_axis", batch, 0, 1));
    if (time == batch)
        return ul_infer_invalid(infer, "time_axis and batch_axis are both %lld", (long long)time);
    UL_TRY(ul_check_shape(infer, 1, 1, &input->dims[batch]));
    return ul_infer_same(infer);
}

ul_kx ul_map_reverse_sequence(struct ul_lower *lower, ul_node_id node, uint32_t output,
                              const ul_kx *index)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *type = ul_lower_output_type(lower, node, output);
    uint32_t time = (uint32_t)ul_node_get_int(info, "time_axis", 0);
    int64_t steps = type->dims[time] > 0 ? type->dims[time] : 1;
    ul_kx length =
        ul_kx_cast(kernel, UL_I64, ul_lower_load(lower, info->inputs[1], &index[1 - time]));
    ul_kx mirrored = ul_kx_sub(kernel, ul_kx_addi(kernel, length, -1), index[time]);
    ul_kx reversed = ul_kx_binary(kernel, UL_KX_LT, index[time], length);
    ul_kx from[UL_LIMIT_RANK];
    for (uint32_t d = 0; d < type->rank; d++)
        from[d] = index[d];
    from[time] = ul_kx_checked_index(kernel, ul_kx_select(kernel, reversed, mirrored, index[time]),
                                     steps, false);
    return ul_lower_load(lower, info->inputs[0], from);
}

/* Split along a dimension of the data that is not indexed, or along one of the indexes. */
bool ul_split_rule_gather(struct ul_split_rule *split)
{
    uint32_t index_rank = ul_split_rule_input_type(split, 1)->rank;
    uint32_t axis = axis_get(split->node, ul_split_rule_input_type(split, 0)->rank);
    uint32_t at = split->output.axis;
    if (at >= axis && at < axis + index_rank)
        ul_split_rule_read(split, 1, at - axis, split->output.begin, split->output.end);
    else
        ul_split_rule_read(split, 0, at < axis ? at : at - index_rank + 1, split->output.begin,
                           split->output.end);
    return true;
}
