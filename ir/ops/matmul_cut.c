/* Parts of matrix products: along the batch, the rows, or the columns of the result. What is summed
 * over stays whole. */
#include "ir/ops/matmul.h"
#include "ir/split_rule.h"

/* The batch dimension of one operand that the result's `axis` comes from. */
static void take_batch(struct ul_cut *cut, uint32_t input)
{
    const struct ul_type *type = ul_cut_input_type(cut, input);
    uint32_t from_last = ul_cut_output_type(cut)->rank - cut->output.axis;
    if (from_last > type->rank || type->dims[type->rank - from_last] == 1)
        return;
    ul_cut_take(cut, input, type->rank - from_last, cut->output.begin, cut->output.end);
}

bool ul_cut_matmul(struct ul_cut *cut)
{
    const struct ul_type *out = ul_cut_output_type(cut);
    uint32_t a_rank = ul_cut_input_type(cut, 0)->rank;
    uint32_t b_rank = ul_cut_input_type(cut, 1)->rank;
    /* With a vector the result lacks a dimension: few are worth it. */
    if (a_rank < 2 || b_rank < 2)
        return false;
    if (cut->output.axis + 2 == out->rank) {
        ul_cut_take(cut, 0, a_rank - 2, cut->output.begin, cut->output.end);
    } else if (cut->output.axis + 1 == out->rank) {
        ul_cut_take(cut, 1, b_rank - 1, cut->output.begin, cut->output.end);
    } else {
        take_batch(cut, 0);
        take_batch(cut, 1);
    }
    return true;
}

bool ul_cut_gemm(struct ul_cut *cut)
{
    bool trans_a = ul_node_get_int(cut->node, "transA", 0) != 0;
    bool trans_b = ul_node_get_int(cut->node, "transB", 0) != 0;
    if (cut->output.axis == 0)
        ul_cut_take(cut, 0, trans_a ? 1 : 0, cut->output.begin, cut->output.end);
    else
        ul_cut_take(cut, 1, trans_b ? 0 : 1, cut->output.begin, cut->output.end);
    ul_cut_take_broadcast(cut, 2);
    return true;
}
