/* SPDX-License-Identifier: Apache-2.0 */
/* Concat: one loop nest for each input, so that every copy is contiguous and free of tests. */
#include "ir/ops/movement/movement.def"

#include "ir/kernel_build.h"
#include "ir/ops/require.h"
#include "ir/split_rule.h"
#include "ir/view.h"

enum ul_status ul_infer_concat(struct ul_infer *infer)
{
    uint32_t axis;
    UL_TRY(ul_require_inputs(infer));
    struct ul_type type = *ul_infer_input(infer, 0);
    if (ul_node_find_attr(infer->node, "axis") == NULL)
        return ul_infer_invalid(infer, "axis is missing");
    UL_TRY(ul_infer_axis(infer, ul_node_get_int(infer->node, "axis", 0), type.rank, &axis));
    for (uint32_t i = 1; i < infer->node->input_count; i++) {
        const struct ul_type *input = ul_infer_input(infer, i);
        UL_TRY(ul_check_same_dtype(infer, 0, i));
        UL_TRY(ul_check_rank(infer, i, type.rank, type.rank));
        for (uint32_t d = 0; d < type.rank; d++) {
            if (d != axis && input->dims[d] != type.dims[d])
                return ul_infer_invalid(
                    infer, "inputs 0 and %u differ along axis %u: %lld and %lld", (unsigned)i,
                    (unsigned)d, (long long)type.dims[d], (long long)input->dims[d]);
        }
        type.dims[axis] += input->dims[axis]; /* at most 2^16 times 2^40 */
    }
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

void ul_lower_concat(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    const struct ul_type *out = ul_lower_output_type(lower, node, 0);
    int64_t axis = ul_node_get_int(info, "axis", 0);
    uint32_t along = (uint32_t)(axis < 0 ? axis + (int64_t)out->rank : axis);
    int64_t begin = 0;
    for (uint32_t i = 0; i < info->input_count; i++) {
        const struct ul_type *in = ul_lower_input_type(lower, node, i);
        ul_kx index[UL_LIMIT_RANK];
        if (ul_type_elements(in) == 0 || ul_concat_is_placed(lower->graph, info, i)) {
            begin += in->dims[along];
            continue;
        }
        ul_lower_open_as(lower, info->outputs[0], in->dims, index);
        ul_kx x = ul_lower_load(lower, info->inputs[i], index);
        index[along] = ul_kx_addi(lower->kernel, index[along], begin);
        ul_lower_store(lower, info->outputs[0], index, x);
        ul_lower_close(lower, in->rank);
        begin += in->dims[along];
    }
}

bool ul_split_rule_concat(struct ul_split_rule *split)
{
    int64_t axis = ul_node_get_int(split->node, "axis", 0);
    axis += axis < 0 ? (int64_t)ul_split_rule_output_type(split)->rank : 0;
    if ((uint32_t)axis == split->output.axis)
        return false;
    for (uint32_t i = 0; i < split->node->input_count; i++)
        ul_split_rule_read(split, i, split->output.axis, split->output.begin, split->output.end);
    return true;
}
