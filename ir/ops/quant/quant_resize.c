/* SPDX-License-Identifier: Apache-2.0 */
/* ResizeInteger: neighbours of integers, weighed by integers.
 *
 * Where floats find places and weights as they run (resize_lower.c), this reads them from
 * tables: along an axis that is resized, the element for tap t and output o is at places[t][o],
 * and its weight is weights[t][o]. The sum is one expression, so what follows is computed in the
 * same loop. */
#include "ir/geometry.h"
#include "ir/kernel_build.h"
#include "ir/ops/quant/quant.h"
#include "ir/ops/require.h"

static ul_value_id table_of(const struct ul_node *node, uint32_t d, uint32_t which)
{
    uint32_t input = 1 + 2 * d + which;
    return input < node->input_count ? node->inputs[input] : UL_NONE;
}

static bool is_weighed(const struct ul_node *node, uint32_t rank)
{
    for (uint32_t d = 0; d < rank; d++) {
        if (table_of(node, d, 1) != UL_NONE)
            return true;
    }
    return false;
}

/* Checks the tables of an axis that is resized: one of places, and one of weights with the same
 * dimensions. */
static enum ul_status infer_axis(struct ul_infer *infer, uint32_t d, struct ul_type *type,
                                 int64_t *tap_count)
{
    ul_value_id places = table_of(infer->node, d, 0), weights = table_of(infer->node, d, 1);
    if (places == UL_NONE)
        return weights == UL_NONE ? UL_OK : ul_infer_invalid(infer, "weights have no places");
    UL_TRY(ul_check_dtype(infer, 1 + 2 * d, UL_CHECK_BIT(UL_I32)));
    const struct ul_type *table = &infer->graph->values[places].type;
    if (table->rank != 2 || table->dims[0] < 1 || table->dims[0] > UL_RESIZE_TAPS / *tap_count)
        return ul_infer_invalid(infer, "places must be [taps, outputs], at most %d taps in all",
                                (int)UL_RESIZE_TAPS);
    *tap_count *= table->dims[0];
    type->dims[d] = table->dims[1];
    if (weights == UL_NONE)
        return table->dims[0] == 1 ? UL_OK : ul_infer_invalid(infer, "taps have no weights");
    UL_TRY(ul_check_dtype(infer, 2 + 2 * d, UL_CHECK_BIT(UL_I32)));
    const struct ul_type *other = &infer->graph->values[weights].type;
    if (other->rank != 2 || other->dims[0] != table->dims[0] || other->dims[1] != table->dims[1])
        return ul_infer_invalid(infer, "weights must have the dimensions of places");
    return UL_OK;
}

enum ul_status ul_infer_resize_integer(struct ul_infer *infer)
{
    struct ul_type type = *ul_infer_input(infer, 0);
    int64_t tap_count = 1;
    enum ul_dtype sum;
    UL_TRY(ul_check_dtype(infer, 0, UL_SET_INTEGER));
    UL_TRY(
        ul_require_dtype(infer, "to", UL_I32, UL_CHECK_BIT(UL_I32) | UL_CHECK_BIT(UL_I64), &sum));
    for (uint32_t d = 0; d < type.rank; d++)
        UL_TRY(infer_axis(infer, d, &type, &tap_count));
    if (is_weighed(infer->node, type.rank))
        type.dtype = sum;
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

struct sums {
    struct ul_lower *lower;
    const struct ul_node *node;
    const struct ul_type *x;
    const ul_kx *index;
    enum ul_dtype dtype;
    ul_kx from[UL_LIMIT_RANK];
};

static ul_kx load_entry(const struct sums *sums, ul_value_id table, int64_t tap, uint32_t d)
{
    const ul_kx at[2] = {ul_kx_index_const(sums->lower->kernel, tap), sums->index[d]};
    return ul_lower_load(sums->lower, table, at);
}

/* The weighted sum over the axes from `d` on; those before are at sums->from. */
static ul_kx add_taps(struct sums *sums, uint32_t d)
{
    struct ul_kernel *kernel = sums->lower->kernel;
    if (d == sums->x->rank)
        return ul_kx_cast(kernel, sums->dtype,
                          ul_lower_load(sums->lower, sums->node->inputs[0], sums->from));
    ul_value_id places = table_of(sums->node, d, 0), weights = table_of(sums->node, d, 1);
    sums->from[d] = sums->index[d];
    if (places == UL_NONE)
        return add_taps(sums, d + 1);
    ul_kx sum = UL_NONE;
    int64_t taps = sums->lower->graph->values[places].type.dims[0];
    for (int64_t t = 0; t < taps; t++) {
        ul_kx place = ul_kx_cast(kernel, UL_I64, load_entry(sums, places, t, d));
        sums->from[d] = ul_kx_clamp(kernel, place, sums->x->dims[d] - 1);
        ul_kx term = add_taps(sums, d + 1);
        if (weights != UL_NONE)
            term = ul_kx_mul(
                kernel, ul_kx_cast(kernel, sums->dtype, load_entry(sums, weights, t, d)), term);
        sum = sum == UL_NONE ? term : ul_kx_add(kernel, sum, term);
    }
    UL_ASSERT(sum != UL_NONE);
    return sum;
}

ul_kx ul_map_resize_integer(struct ul_lower *lower, ul_node_id node, uint32_t output,
                            const ul_kx *index)
{
    struct sums sums = {.lower = lower, .node = &lower->graph->nodes[node], .index = index};
    sums.x = ul_lower_input_type(lower, node, 0);
    sums.dtype = ul_compute_dtype(ul_lower_output_type(lower, node, output)->dtype);
    UL_ASSERT(output == 0);
    return add_taps(&sums, 0);
}
