/* SPDX-License-Identifier: Apache-2.0 */
/* Rescale: sums of integers in scales of their own, as integers in another scale. */
#include "ir/kernel_build.h"
#include "ir/ops/quant/quant.h"

enum { FIRST_TERM = 1, TERM_INPUTS = 3, MAX_SHIFT = 62 }; /* x, factor, x_zero */

static bool is_summed(enum ul_dtype dtype)
{
    int64_t low, high;
    return dtype == UL_I32 || dtype == UL_I64 || ul_dtype_range(dtype, &low, &high);
}

static bool is_fixed(const struct ul_node *node)
{
    return ul_node_find_attr(node, "shift") != NULL;
}

static enum ul_status check_term(const struct ul_infer *infer, uint32_t first, struct ul_type *type)
{
    const struct ul_type *x = ul_infer_input(infer, first);
    const struct ul_type *factor = ul_infer_input(infer, first + 1);
    const struct ul_type *zero = ul_infer_input(infer, first + 2);
    enum ul_dtype wanted = is_fixed(infer->node) ? UL_I32 : UL_F32;
    if (x == NULL || factor == NULL || !is_summed(x->dtype) || factor->dtype != wanted)
        return ul_infer_invalid(infer, "a term must be integers and an %s factor",
                                ul_dtype_get(wanted)->name);
    if (zero != NULL && (zero->dtype != x->dtype || ul_type_elements(zero) != 1))
        return ul_infer_invalid(infer, "a zero-point must be one number of its operand's type");
    struct ul_type sum = *type;
    if (!ul_broadcast(type, x, &sum) || !ul_broadcast(&sum, factor, type))
        return ul_infer_invalid(infer, "terms do not broadcast");
    return UL_OK;
}

enum ul_status ul_infer_rescale(struct ul_infer *infer)
{
    const struct ul_type *zero = ul_infer_input(infer, 0);
    uint32_t count = infer->node->input_count;
    int64_t low, high;
    struct ul_type type = {.rank = 0};
    if (!ul_dtype_range(zero->dtype, &low, &high) || ul_type_elements(zero) != 1)
        return ul_infer_invalid(infer, "the result's zero-point must be one integer of 4 to 16 "
                                       "bits");
    if ((count - FIRST_TERM) % TERM_INPUTS == 1)
        return ul_infer_invalid(infer, "a term has no factor");
    int64_t min = ul_node_get_int(infer->node, "low", low);
    int64_t max = ul_node_get_int(infer->node, "high", high);
    int64_t shift = ul_node_get_int(infer->node, "shift", 1);
    if (shift < 1 || shift > MAX_SHIFT)
        return ul_infer_invalid(infer, "shift must be 1 to %d", MAX_SHIFT);
    if (min < low || max > high || min > max)
        return ul_infer_invalid(infer, "low and high must be a range of the result's type");
    for (uint32_t first = FIRST_TERM; first < count; first += TERM_INPUTS)
        UL_TRY(check_term(infer, first, &type));
    type.dtype = zero->dtype;
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

/* x - x_zero, in f32, or in i64 for fixed point. */
static ul_kx load_difference(struct ul_lower *lower, ul_node_id node, uint32_t first,
                             const ul_kx *index, uint32_t rank)
{
    struct ul_kernel *kernel = lower->kernel;
    const ul_value_id *inputs = lower->graph->nodes[node].inputs;
    ul_kx x = ul_lower_load_broadcast(lower, inputs[first], index, rank);
    if (ul_kx_dtype(kernel, x) == UL_U32)
        x = ul_kx_cast(kernel, UL_I32, x);
    if (ul_lower_has_input(lower, node, first + 2)) {
        ul_kx zero = ul_lower_load_scalar(lower, inputs[first + 2]);
        x = ul_kx_binary(kernel, UL_KX_SUB, x, ul_kx_cast(kernel, ul_kx_dtype(kernel, x), zero));
    }
    return ul_kx_cast(kernel, is_fixed(&lower->graph->nodes[node]) ? UL_I64 : UL_F32, x);
}

/* The largest number of zero bits at the end of any of a term's factors; MAX_SHIFT: the factors are
 * not known. */
static int64_t common_zeros(const struct ul_lower *lower, ul_value_id factors)
{
    const struct ul_tensor *tensor = ul_graph_get_constant(lower->graph, factors);
    int64_t most = 0;
    if (tensor == NULL)
        return MAX_SHIFT;
    for (uint64_t i = 0; i < ul_type_elements(&tensor->type); i++) {
        int64_t zeros = 0, factor = ul_tensor_get_int(tensor, i);
        while (factor != 0 && factor % 2 == 0) {
            factor /= 2;
            zeros++;
        }
        most = zeros > most ? zeros : most;
    }
    return most;
}

/* Whether a sum can lie exactly halfway between two results. x * factor does where x is a multiple
 * of the power of 2 that the factor lacks for a half: only simple factors have such an x. */
static bool has_ties(const struct ul_lower *lower, ul_node_id id, int64_t shift)
{
    const struct ul_node *node = &lower->graph->nodes[id];
    for (uint32_t first = FIRST_TERM; first < node->input_count; first += TERM_INPUTS) {
        const struct ul_type *x = &lower->graph->values[node->inputs[first]].type;
        int64_t bits = (int64_t)ul_dtype_get(x->dtype)->bits;
        if (shift - 1 - common_zeros(lower, node->inputs[first + 1]) <= bits)
            return true;
    }
    return false;
}

/* The sum of terms in units of 2 ^ -shift, as an i64 in the result's units, with ties to even.
 * Where there may be ties, a little less than a half is added, and a whole half where the whole
 * part is odd. */
static ul_kx fixed_sum(struct ul_lower *lower, ul_node_id id, const ul_kx *index, uint32_t rank)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_node *node = &lower->graph->nodes[id];
    int64_t shift = ul_node_get_int(node, "shift", 1);
    ul_kx bits = ul_kx_int(kernel, UL_I64, shift), sum = UL_NONE;
    int64_t half = (int64_t)1 << (shift - 1);
    for (uint32_t first = FIRST_TERM; first < node->input_count; first += TERM_INPUTS) {
        ul_kx x = load_difference(lower, id, first, index, rank);
        ul_kx factor = ul_lower_load_broadcast(lower, node->inputs[first + 1], index, rank);
        ul_kx term = ul_kx_binary(kernel, UL_KX_MUL, x, ul_kx_cast(kernel, UL_I64, factor));
        sum = sum == UL_NONE ? term : ul_kx_binary(kernel, UL_KX_ADD, sum, term);
    }
    UL_ASSERT(sum != UL_NONE);
    ul_kx rest = ul_kx_int(kernel, UL_I64, half);
    if (has_ties(lower, id, shift)) {
        ul_kx whole = ul_kx_binary(kernel, UL_KX_SHR, sum, bits);
        rest = ul_kx_binary(kernel, UL_KX_AND, whole, ul_kx_int(kernel, UL_I64, 1));
        rest = ul_kx_add(kernel, rest, ul_kx_int(kernel, UL_I64, half - 1));
    }
    return ul_kx_binary(kernel, UL_KX_SHR, ul_kx_binary(kernel, UL_KX_ADD, sum, rest), bits);
}

/* Whether there are two roundings or one, as with a fused addition, is one decision of the printer
 * for all kernels: the bits are the same wherever a term is computed. */
static ul_kx float_sum(struct ul_lower *lower, ul_node_id id, const ul_kx *index, uint32_t rank)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_node *node = &lower->graph->nodes[id];
    ul_kx sum = UL_NONE;
    UL_ASSERT(node->input_count > FIRST_TERM + 1);
    for (uint32_t first = FIRST_TERM; first < node->input_count; first += TERM_INPUTS) {
        ul_kx x = load_difference(lower, id, first, index, rank);
        ul_kx factor = ul_lower_load_broadcast(lower, node->inputs[first + 1], index, rank);
        sum = sum == UL_NONE ? ul_kx_binary(kernel, UL_KX_MUL, x, factor)
                             : ul_kx_fma(kernel, x, factor, sum);
    }
    return sum;
}

ul_kx ul_map_rescale(struct ul_lower *lower, ul_node_id node_id, uint32_t output,
                     const ul_kx *index)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_node *node = &lower->graph->nodes[node_id];
    const struct ul_type *type = ul_lower_output_type(lower, node_id, output);
    int64_t low = 0, high = 0;
    bool is_known = ul_dtype_range(type->dtype, &low, &high);
    UL_ASSERT(is_known);
    low = ul_node_get_int(node, "low", low);
    high = ul_node_get_int(node, "high", high);
    ul_kx zero = ul_kx_cast(kernel, UL_I32, ul_lower_load_scalar(lower, node->inputs[0]));
    ul_kx sum = is_fixed(node) ? fixed_sum(lower, node_id, index, type->rank)
                               : float_sum(lower, node_id, index, type->rank);
    ul_kx result = ul_quantize_within(kernel, sum, zero, low, high);
    return ul_kx_cast(kernel, ul_compute_dtype(type->dtype), result);
}
