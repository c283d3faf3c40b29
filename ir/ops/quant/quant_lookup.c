/* SPDX-License-Identifier: Apache-2.0 */
/* Lookup: a function of 8-bit integers as a table of its results. */
#include "ir/kernel_build.h"
#include "ir/ops/quant/quant.h"

enum { TABLE_SIZE = 256 };

enum ul_status ul_infer_lookup(struct ul_infer *infer)
{
    const struct ul_type *x = ul_infer_input(infer, 0), *table = ul_infer_input(infer, 1);
    if (x->dtype != UL_U8 && x->dtype != UL_I8)
        return ul_infer_invalid(infer, "what is looked up must be u8 or i8");
    if (table->rank != 1 || table->dims[0] != TABLE_SIZE)
        return ul_infer_invalid(infer, "the table must have 256 elements");
    struct ul_type type = *x;
    type.dtype = table->dtype;
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

ul_kx ul_map_lookup(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    const ul_value_id *inputs = lower->graph->nodes[node].inputs;
    int64_t low = 0, high = 0;
    bool is_known = ul_dtype_range(ul_lower_input_type(lower, node, 0)->dtype, &low, &high);
    UL_ASSERT(is_known && output == 0);
    ul_kx x = ul_kx_cast(lower->kernel, UL_I64, ul_lower_load(lower, inputs[0], index));
    ul_kx at = ul_kx_clamp(lower->kernel, ul_kx_addi(lower->kernel, x, -low), TABLE_SIZE - 1);
    return ul_lower_load(lower, inputs[1], &at);
}

bool ul_split_rule_lookup(struct ul_split_rule *split)
{
    ul_split_rule_read(split, 0, split->output.axis, split->output.begin, split->output.end);
    return true;
}
