/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax, LogSoftmax and Hardmax over an axis, or over all dimensions from it on. */
#include "ir/ops/norm/norm.h"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/lanes.h"

#include <math.h>

bool ul_softmax_mask(const struct ul_node *node, uint32_t rank, uint32_t *mask)
{
    bool flatten = ul_node_get_int(node, "ul_flatten_axis", 0) != 0;
    int64_t axis = ul_node_get_int(node, "axis", -1);
    int64_t max = flatten ? (int64_t)rank : (int64_t)rank - 1;
    if (axis < -(int64_t)rank || axis > max)
        return false;
    uint32_t at = (uint32_t)(axis < 0 ? axis + (int64_t)rank : axis);
    *mask = flatten ? ul_lanes_all(rank) & ~ul_lanes_all(at) : 1u << at;
    return true;
}

enum ul_status ul_infer_softmax(struct ul_infer *infer)
{
    const struct ul_type *type = ul_infer_input(infer, 0);
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_FLOATS));
    uint32_t mask;
    if (!ul_softmax_mask(infer->node, type->rank, &mask))
        return ul_infer_invalid(infer, "axis %lld does not exist in a tensor of rank %u",
                                (long long)ul_node_get_int(infer->node, "axis", -1),
                                (unsigned)type->rank);
    ul_infer_set_type(infer, 0, type);
    return UL_OK;
}

struct softmax {
    struct ul_lanes lanes;
    ul_value_id input, output;
    enum ul_dtype dtype;
    uint32_t mask;
    struct ul_lane_var max; /* of the row */
};

static void softmax_open(struct softmax *s, struct ul_lower *lower, ul_node_id node)
{
    const struct ul_node *data = ul_check_node(lower, node);
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    s->input = data->inputs[0];
    s->output = data->outputs[0];
    s->dtype = ul_compute_dtype(type->dtype);
    bool valid = ul_softmax_mask(data, type->rank, &s->mask);
    UL_ASSERT(valid);
    uint32_t kept = ul_lanes_all(type->rank) & ~s->mask;
    ul_lanes_open(&s->lanes, lower, data->outputs[0], kept);
}

static ul_kx load_score(struct ul_lanes *lanes, const void *context)
{
    const struct softmax *s = context;
    return ul_lower_load(lanes->lower, s->input, lanes->index);
}

static void row_max(struct softmax *s)
{
    ul_kx lowest = ul_kx_float(s->lanes.lower->kernel, s->dtype, -(double)INFINITY);
    s->max = ul_lanes_reduce(&s->lanes, s->mask, UL_KX_MAX, lowest, load_score, s);
}

static ul_kx shifted(struct ul_lanes *lanes, const struct softmax *s)
{
    return ul_kx_sub(lanes->lower->kernel, load_score(lanes, s), ul_lanes_get(lanes, s->max));
}

ul_kx ul_softmax_exp(struct ul_kernel *kernel, ul_kx x)
{
    enum ul_dtype dtype = ul_kx_dtype(kernel, x);
    ul_kx least = ul_kx_float(kernel, dtype, dtype == UL_F64 ? -708.0 : -87.0);
    x = ul_ks_let(kernel, x);
    ul_kx is_tiny = ul_ks_let(kernel, ul_kx_binary(kernel, UL_KX_LT, x, least));
    ul_kx bounded = ul_kx_select(kernel, is_tiny, least, x);
    /* It gets a name because otherwise gcc drops the bound, computes subnormal numbers in vectors,
     * and takes twice the time. */
    ul_kx e = ul_ks_let(kernel, ul_kx_unary(kernel, UL_KX_EXP, bounded));
    return ul_kx_select(kernel, is_tiny, ul_kx_float(kernel, dtype, 0.0), e);
}

static ul_kx load_exp(struct ul_lanes *lanes, const void *context)
{
    return ul_softmax_exp(lanes->lower->kernel, shifted(lanes, context));
}

static ul_kx store_exp(struct ul_lanes *lanes, const void *context)
{
    const struct softmax *s = context;
    ul_kx x = ul_ks_let(lanes->lower->kernel, load_exp(lanes, context));
    ul_lower_store(lanes->lower, s->output, lanes->index, x);
    return x;
}

/* The last pass gives the element its value, from the row's sum `sum` or what was computed from
 * it. */
typedef ul_kx finish_fn(struct ul_lanes *lanes, const struct softmax *s, ul_kx sum);

static void finish_row(struct softmax *s, struct ul_lane_var sum, finish_fn *finish)
{
    struct ul_lanes *lanes = &s->lanes;
    ul_lanes_loop(lanes, s->mask, UL_FOR_PARALLEL);
    ul_lanes_begin(lanes);
    ul_kx y = finish(lanes, s, ul_lanes_get(lanes, sum));
    ul_lower_store(lanes->lower, s->output, lanes->index, y);
    ul_lanes_end(lanes);
    ul_lanes_loop_end(lanes, s->mask);
    ul_lanes_close(lanes);
}

static ul_kx scale_exp(struct ul_lanes *lanes, const struct softmax *s, ul_kx scale)
{
    return ul_kx_mul(lanes->lower->kernel, load_exp(lanes, s), scale);
}

static ul_kx scale_stored(struct ul_lanes *lanes, const struct softmax *s, ul_kx scale)
{
    ul_kx x = ul_lower_load_output(lanes->lower, s->output, lanes->index);
    return ul_kx_mul(lanes->lower->kernel, x, scale);
}

static ul_kx subtract(struct ul_lanes *lanes, const struct softmax *s, ul_kx log_sum)
{
    return ul_kx_sub(lanes->lower->kernel, shifted(lanes, s), log_sum);
}

/* Exponentials are computed once and kept in the output, unless something is fused after it. */
void ul_lower_softmax(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    struct softmax s;
    softmax_open(&s, lower, node);
    struct ul_lanes *lanes = &s.lanes;
    row_max(&s);
    bool keeps = ul_lower_is_final(lower, s.output);
    ul_kx zero = ul_kx_float(k, s.dtype, 0.0);
    struct ul_lane_var sum =
        ul_lanes_reduce(lanes, s.mask, UL_KX_ADD, zero, keeps ? store_exp : load_exp, &s);
    ul_lanes_begin(lanes);
    ul_kx one = ul_kx_float(k, s.dtype, 1.0);
    ul_lanes_set(lanes, sum, ul_kx_binary(k, UL_KX_DIV, one, ul_lanes_get(lanes, sum)));
    ul_lanes_end(lanes);
    finish_row(&s, sum, keeps ? scale_stored : scale_exp);
}

void ul_lower_log_softmax(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    struct softmax s;
    softmax_open(&s, lower, node);
    struct ul_lanes *lanes = &s.lanes;
    row_max(&s);
    ul_kx zero = ul_kx_float(k, s.dtype, 0.0);
    struct ul_lane_var sum = ul_lanes_reduce(lanes, s.mask, UL_KX_ADD, zero, load_exp, &s);
    ul_lanes_begin(lanes);
    ul_lanes_set(lanes, sum, ul_kx_unary(k, UL_KX_LOG, ul_lanes_get(lanes, sum)));
    ul_lanes_end(lanes);
    finish_row(&s, sum, subtract);
}

/* Gives 1 at the first largest element of a row, otherwise 0: the first that equals the maximum, or
 * the first NaN, since the maximum is then NaN. */
void ul_lower_hardmax(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    struct softmax s;
    softmax_open(&s, lower, node);
    struct ul_lanes *lanes = &s.lanes;
    row_max(&s);
    struct ul_lane_var found = ul_lanes_var(lanes, UL_BOOL, ul_kx_int(k, UL_BOOL, 0));
    ul_lanes_loop(lanes, s.mask, 0);
    ul_lanes_begin(lanes);
    ul_kx x = ul_ks_let(k, ul_lower_load(lower, s.input, lanes->index));
    ul_kx is_max =
        ul_kx_binary(k, UL_KX_OR, ul_kx_binary(k, UL_KX_EQ, x, ul_lanes_get(lanes, s.max)),
                     ul_kx_unary(k, UL_KX_ISNAN, x));
    ul_kx before = ul_ks_let(k, ul_lanes_get(lanes, found));
    ul_kx here =
        ul_ks_let(k, ul_kx_binary(k, UL_KX_AND, is_max, ul_kx_unary(k, UL_KX_NOT, before)));
    ul_lanes_set(lanes, found, ul_kx_binary(k, UL_KX_OR, before, here));
    ul_lower_store(
        lower, s.output, lanes->index,
        ul_kx_select(k, here, ul_kx_float(k, s.dtype, 1.0), ul_kx_float(k, s.dtype, 0.0)));
    ul_lanes_end(lanes);
    ul_lanes_loop_end(lanes, s.mask);
    ul_lanes_close(lanes);
}
