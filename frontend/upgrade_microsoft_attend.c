/* SPDX-License-Identifier: Apache-2.0 */
/* What com.microsoft's attention operators come to: Attention of ai.onnx, which makes no matrix of
 * scores, with masks that are added to the scores.
 *
 * onnxruntime's CPU adds mask_filter_value (-10000) where its masks say so rather than leaving the
 * key out, which matters where a query sees no key at all: so is it here. Where a filter or a bias
 * of -inf leaves none, Attention and MultiHeadAttention give NaN there, GroupQueryAttention zeros.
 */
#include "frontend/upgrade_microsoft.h"
#include "ir/op.h"

ul_value_id ul_microsoft_add_masks(struct ul_old_node *node, ul_value_id a, ul_value_id b)
{
    if (a == UL_NONE || b == UL_NONE)
        return a == UL_NONE ? b : a;
    return ul_old_emit_two(node, "Add", a, b);
}

/* 0 where `keep` (a bool) is, the filter's number elsewhere; as [batch, 1, rows, keys]. */
static ul_value_id filter(struct ul_old_node *node, ul_value_id keep, enum ul_dtype dtype,
                          int64_t batch, int64_t rows, int64_t keys)
{
    const int64_t dims[] = {batch, 1, rows, keys};
    double number = ul_old_float(node, "mask_filter_value", -10000);
    ul_value_id inputs[3] = {keep, ul_old_const_float(node, dtype, 0),
                             ul_old_const_float(node, dtype, number)};
    return ul_old_emit_reshape(node, ul_old_emit(node, "Where", 3, inputs, 0, NULL), 4, dims);
}

/* Keys in front of an end, and from a begin on where `bounds` has twice the batch's numbers. */
static ul_value_id between(struct ul_old_node *node, ul_value_id bounds, bool has_begin,
                           int64_t batch, int64_t keys)
{
    const int64_t column[] = {batch, 1};
    ul_value_id at = ul_old_emit_cast(node, ul_old_const_range(node, keys), UL_I32);
    ul_value_id ends = has_begin ? ul_old_emit_slice(node, bounds, 0, 0, batch) : bounds;
    ends = ul_old_emit_reshape(node, ends, 2, column);
    ul_value_id keep = ul_old_emit_two(node, "Less", at, ends);
    if (!has_begin)
        return keep;
    ul_value_id begins = ul_old_emit_slice(node, bounds, 0, batch, 2 * batch);
    begins = ul_old_emit_reshape(node, begins, 2, column);
    return ul_old_emit_two(node, "And", keep, ul_old_emit_two(node, "GreaterOrEqual", at, begins));
}

ul_value_id ul_microsoft_mask(struct ul_old_node *node, uint32_t index, enum ul_dtype dtype,
                              int64_t batch, int64_t queries, int64_t keys)
{
    struct ul_type type;
    ul_value_id mask = ul_old_input(node, index);
    if (!ul_old_shape(node, index, UINT32_MAX, &type))
        return UL_NONE;
    if (type.rank == 1 && (type.dims[0] == batch || type.dims[0] == 2 * batch)) {
        ul_value_id keep = between(node, mask, type.dims[0] != batch, batch, keys);
        return filter(node, keep, dtype, batch, 1, keys);
    }
    bool is_row = type.rank == 2 && type.dims[0] == batch && type.dims[1] == keys;
    bool is_each =
        type.rank == 3 && type.dims[0] == batch && type.dims[1] == queries && type.dims[2] == keys;
    if (is_row || is_each) {
        ul_value_id zero = ul_old_const_int(node, ul_old_dtype(node, index), 0);
        ul_value_id keep = ul_old_emit_two(node, "Greater", mask, zero);
        return filter(node, keep, dtype, batch, is_row ? 1 : queries, keys);
    }
    if ((type.rank == 1 && type.dims[0] == 3 * batch + 2) || type.rank == 4)
        ul_old_problem(node, "with a mask of this form, which onnxruntime takes on GPUs only, is "
                             "not supported; export the model with a mask of shape [batch, "
                             "total_sequence_length]");
    else
        ul_old_invalid(node, "the mask's shape is none of [batch], [2 * batch], [batch, "
                             "total_sequence_length] and [batch, sequence_length, "
                             "total_sequence_length]");
    return UL_NONE;
}

/* [batch, heads, length, size] as [batch, length, heads * size]. */
static ul_value_id flatten(struct ul_old_node *node, const struct ul_microsoft_attend *attend,
                           ul_value_id y)
{
    const int64_t perm[] = {0, 2, 1, 3};
    const int64_t dims[] = {attend->batch, attend->queries, attend->heads * attend->value_size};
    return ul_old_emit_reshape(node, ul_old_emit_transpose(node, y, 4, perm), 3, dims);
}

void ul_microsoft_attend(struct ul_old_node *node, struct ul_microsoft_attend *attend)
{
    struct ul_graph *graph = node->builder->graph;
    ul_value_id inputs[7] = {attend->q,      attend->k,      attend->v,      attend->mask,
                             attend->past_k, attend->past_v, attend->lengths};
    uint32_t count = 7;
    while (inputs[count - 1] == UL_NONE)
        count--;
    uint32_t outputs = attend->has_scores ? 4 : 3;
    ul_node_id id = ul_old_emit_node(node, "Attention", count, inputs, outputs);
    if (!attend->is_split) {
        ul_node_set_int(graph, id, "q_num_heads", attend->heads);
        ul_node_set_int(graph, id, "kv_num_heads", attend->groups);
    }
    if (!attend->empty_is_zero)
        ul_node_set_int(graph, id, "empty_is_zero", 0);
    if (attend->is_causal)
        ul_node_set_int(graph, id, "is_causal", 1);
    if (attend->scale > 0 || attend->scale < 0)
        ul_node_set_float(graph, id, "scale", attend->scale);
    if (attend->softcap > 0)
        ul_node_set_float(graph, id, "softcap", attend->softcap);
    if (attend->has_scores)
        ul_node_set_int(graph, id, "qk_matmul_output_mode", attend->scores_mode);
    const ul_value_id *results = graph->nodes[id].outputs;
    attend->y = results[0];
    attend->present_k = results[1];
    attend->present_v = results[2];
    attend->scores = attend->has_scores ? results[3] : UL_NONE;
    if (attend->is_split)
        attend->y = flatten(node, attend, attend->y);
}
