/* SPDX-License-Identifier: Apache-2.0 */
/* Expand and Tile: elements that are in the output more than once. */
#include "ir/ops/movement/movement.def"

#include "ir/kernel_build.h"
#include "ir/ops/require.h"
#include "ir/split_rule.h"

#include <string.h>

enum ul_status ul_infer_expand(struct ul_infer *infer)
{
    const struct ul_type *input = ul_infer_input(infer, 0);
    const int64_t *wanted;
    uint32_t count;
    UL_TRY(ul_check_rank(infer, 1, 1, 1));
    UL_TRY(ul_infer_ints(infer, 1, &wanted, &count));
    UL_TRY(ul_require_dims(infer, wanted, count));
    struct ul_type shape = ul_type_make(input->dtype, count, wanted);
    struct ul_type type;
    if (!ul_broadcast(input, &shape, &type))
        return ul_infer_invalid(infer, "the input cannot be broadcast to the shape");
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

ul_kx ul_map_expand(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    return ul_lower_load_broadcast(lower, lower->graph->nodes[node].inputs[0], index,
                                   ul_lower_output_type(lower, node, output)->rank);
}

bool ul_view_expand(const struct ul_graph *graph, const struct ul_node *node, uint32_t output,
                    const struct ul_view *input, struct ul_view *view)
{
    const struct ul_type *in = &graph->values[node->inputs[0]].type;
    const struct ul_type *out = &graph->values[node->outputs[output]].type;
    uint32_t shift = out->rank - in->rank;
    *view = (struct ul_view){.base = input->base, .offset_bytes = input->offset_bytes};
    for (uint32_t d = shift; d < out->rank; d++)
        view->strides[d] = in->dims[d - shift] == out->dims[d] ? input->strides[d - shift] : 0;
    return true;
}

enum ul_status ul_infer_tile(struct ul_infer *infer)
{
    struct ul_type type = *ul_infer_input(infer, 0);
    const int64_t *repeats;
    uint32_t count;
    UL_TRY(ul_infer_ints(infer, 1, &repeats, &count));
    if (count != type.rank)
        return ul_infer_invalid(infer, "%u repeats are given for a tensor of rank %u",
                                (unsigned)count, (unsigned)type.rank);
    for (uint32_t d = 0; d < count; d++) {
        int64_t max = type.dims[d] > 0 ? UL_LIMIT_DIM / type.dims[d] : UL_LIMIT_DIM;
        UL_TRY(ul_check_range(infer, "an entry of repeats", repeats[d], 0, max));
        type.dims[d] *= repeats[d];
    }
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

ul_kx ul_map_tile(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    const struct ul_type *in = ul_lower_input_type(lower, node, 0);
    ul_kx from[UL_LIMIT_RANK];
    (void)output;
    for (uint32_t d = 0; d < in->rank; d++)
        from[d] = ul_kx_modi(lower->kernel, index[d], in->dims[d] > 0 ? in->dims[d] : 1);
    return ul_lower_load(lower, lower->graph->nodes[node].inputs[0], from);
}

bool ul_split_rule_expand(struct ul_split_rule *split)
{
    const struct ul_type *out = ul_split_rule_output_type(split);
    int64_t dims[UL_LIMIT_RANK];
    int64_t rank = (int64_t)out->rank;
    for (uint32_t d = 0; d < out->rank; d++)
        dims[d] = d == split->output.axis ? split->output.end - split->output.begin : out->dims[d];
    split->constants[1] = ul_tensor_new_ints(split->arena, UL_I64, 1, &rank, dims);
    ul_split_rule_read_broadcast(split, 0);
    return true;
}
