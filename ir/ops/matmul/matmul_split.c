/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of matrix products: along the batch, the rows, or the columns of the result. What is summed
 * over stays whole. */
#include "ir/ops/matmul/matmul.h"
#include "ir/split_rule.h"

bool ul_split_rule_matmul(struct ul_split_rule *split)
{
    const struct ul_type *out = ul_split_rule_output_type(split);
    uint32_t a_rank = ul_split_rule_input_type(split, 0)->rank;
    uint32_t b_rank = ul_split_rule_input_type(split, 1)->rank;
    /* With a vector the result lacks a dimension; such products are rarely worth splitting. */
    if (a_rank < 2 || b_rank < 2)
        return false;
    if (split->output.axis + 2 == out->rank) {
        ul_split_rule_read(split, 0, a_rank - 2, split->output.begin, split->output.end);
    } else if (split->output.axis + 1 == out->rank) {
        ul_split_rule_read(split, 1, b_rank - 1, split->output.begin, split->output.end);
    } else {
        ul_split_rule_read_broadcast(split, 0);
        ul_split_rule_read_broadcast(split, 1);
    }
    return true;
}

/* Zero-points for each row or column would have to be cut as well. */
bool ul_split_rule_matmul_integer(struct ul_split_rule *split)
{
    for (uint32_t i = 2; i < split->node->input_count; i++) {
        if (split->node->inputs[i] != UL_NONE &&
            ul_type_elements(ul_split_rule_input_type(split, i)) != 1)
            return false;
    }
    return ul_split_rule_matmul(split);
}

bool ul_split_rule_gemm(struct ul_split_rule *split)
{
    bool trans_a = ul_node_get_int(split->node, "transA", 0) != 0;
    bool trans_b = ul_node_get_int(split->node, "transB", 0) != 0;
    if (split->output.axis == 0)
        ul_split_rule_read(split, 0, trans_a ? 1 : 0, split->output.begin, split->output.end);
    else
        ul_split_rule_read(split, 1, trans_b ? 0 : 1, split->output.begin, split->output.end);
    ul_split_rule_read_broadcast(split, 2);
    return true;
}
