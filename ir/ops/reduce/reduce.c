/* SPDX-License-Identifier: Apache-2.0 */
/* The Reduce operators: combine the elements of each set of dimensions into one.
 *
 * A rule (reduce.h) says what is done to each element, how elements combine and what is done to
 * the result; the loops are the same for all. 16-bit floats combine in f32. Integer means truncate
 * and integer roots and logarithms are taken in f64, as the reference (numpy) does. */
#include "ir/ops/reduce/reduce.h"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/partials.h"

#include <math.h>
#include <string.h>

/* Shape */

static enum ul_status reduce_mask(struct ul_infer *infer, uint32_t rank, uint32_t *mask)
{
    const struct ul_type *axes_type = ul_infer_input(infer, 1);
    const int64_t *axes = NULL;
    uint32_t count = 0;
    /* An empty list of axes needs no value. */
    if (axes_type != NULL && ul_type_elements(axes_type) > 0) {
        UL_TRY(ul_check_rank(infer, 1, 0, 1));
        UL_TRY(ul_infer_ints(infer, 1, &axes, &count));
    }
    if (count == 0) {
        bool keep_all = ul_node_get_int(infer->node, "noop_with_empty_axes", 0) != 0;
        *mask = keep_all ? 0 : ul_lanes_all(rank);
        return UL_OK;
    }
    *mask = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t axis;
        UL_TRY(ul_infer_axis(infer, axes[i], rank, &axis));
        if ((*mask >> axis & 1u) != 0)
            return ul_infer_invalid(infer, "axis %u is listed twice", (unsigned)axis);
        *mask |= 1u << axis;
    }
    return UL_OK;
}

static void set_reduced(struct ul_infer *infer, enum ul_dtype dtype, uint32_t mask, bool keepdims)
{
    const struct ul_type *type = ul_infer_input(infer, 0);
    int64_t dims[UL_LIMIT_RANK];
    uint32_t rank = 0;
    for (uint32_t d = 0; d < type->rank; d++) {
        bool reduced = (mask >> d & 1u) != 0;
        if (!reduced || keepdims)
            dims[rank++] = reduced ? 1 : type->dims[d];
    }
    ul_infer_set(infer, 0, dtype, rank, dims);
}

static enum ul_status infer_reduce(struct ul_infer *infer, uint32_t allowed)
{
    const struct ul_type *type = ul_infer_input(infer, 0);
    UL_TRY(ul_check_dtype(infer, 0, allowed));
    uint32_t mask;
    UL_TRY(reduce_mask(infer, type->rank, &mask));
    set_reduced(infer, type->dtype, mask, ul_node_get_int(infer->node, "keepdims", 1) != 0);
    return UL_OK;
}

enum ul_status ul_infer_reduce(struct ul_infer *infer)
{
    return infer_reduce(infer, UL_CHECK_FLOATS | UL_CHECK_WIDE_INTS);
}

enum ul_status ul_infer_reduce_extreme(struct ul_infer *infer)
{
    return infer_reduce(infer, UL_CHECK_NUMBERS | UL_CHECK_BIT(UL_BOOL));
}

/* Rules */

static bool is_float(struct ul_kernel *k, ul_kx x)
{
    return ul_dtype_get(ul_kx_dtype(k, x))->is_float;
}

/* Roots and logarithms of integers are computed as floats. */
static ul_kx as_float(struct ul_kernel *k, ul_kx x)
{
    return is_float(k, x) ? x : ul_kx_cast(k, UL_F64, x);
}

static ul_kx limit_int(struct ul_kernel *k, enum ul_dtype dtype, bool highest)
{
    const struct ul_dtype_info *info = ul_dtype_get(dtype);
    unsigned bits = (unsigned)info->size_bytes * 8u;
    if (!info->is_signed)
        return ul_kx_int(k, dtype, highest ? (int64_t)(UINT64_MAX >> (64u - bits)) : 0);
    int64_t max = (int64_t)(UINT64_MAX >> (65u - bits));
    return ul_kx_int(k, dtype, highest ? max : -max - 1);
}

ul_kx ul_reduce_first_value(struct ul_kernel *kernel, enum ul_reduce_first first,
                            enum ul_dtype dtype)
{
    if (first == UL_REDUCE_ZERO || first == UL_REDUCE_ONE)
        return ul_kx_number(kernel, dtype, first == UL_REDUCE_ONE ? 1.0 : 0.0);
    bool highest = first == UL_REDUCE_HIGHEST;
    if (dtype == UL_BOOL)
        return ul_kx_int(kernel, UL_BOOL, highest ? 1 : 0);
    if (ul_dtype_get(dtype)->is_float)
        return ul_kx_float(kernel, dtype, highest ? (double)INFINITY : -(double)INFINITY);
    return limit_int(kernel, dtype, highest);
}

ul_kx ul_reduce_power(struct ul_kernel *kernel, ul_kx x, double p)
{
    if (p == 2.0)
        return ul_kx_mul(kernel, x, x);
    ul_kx positive = ul_kx_unary(kernel, UL_KX_ABS, x);
    if (p == 1.0)
        return positive;
    return ul_kx_binary(kernel, UL_KX_POW, positive,
                        ul_kx_number(kernel, ul_kx_dtype(kernel, x), p));
}

ul_kx ul_reduce_root(struct ul_kernel *kernel, ul_kx x, double p)
{
    if (p == 1.0)
        return x;
    x = as_float(kernel, x);
    if (p == 2.0)
        return ul_kx_unary(kernel, UL_KX_SQRT, x);
    return ul_kx_binary(kernel, UL_KX_POW, x,
                        ul_kx_number(kernel, ul_kx_dtype(kernel, x), 1.0 / p));
}

static ul_kx before_norm(struct ul_kernel *k, const struct ul_reduce_rule *rule, ul_kx x)
{
    return ul_reduce_power(k, x, rule->p);
}

static ul_kx after_norm(struct ul_kernel *k, const struct ul_reduce_rule *rule, ul_kx acc,
                        int64_t count)
{
    (void)count;
    return ul_reduce_root(k, acc, rule->p);
}

static ul_kx after_mean(struct ul_kernel *k, const struct ul_reduce_rule *rule, ul_kx acc,
                        int64_t count)
{
    (void)rule;
    enum ul_dtype dtype = ul_kx_dtype(k, acc);
    ul_kx divisor =
        is_float(k, acc) ? ul_kx_float(k, dtype, (double)count) : ul_kx_int(k, dtype, count);
    return ul_kx_binary(k, UL_KX_DIV, acc, divisor);
}

static ul_kx after_log(struct ul_kernel *k, const struct ul_reduce_rule *rule, ul_kx acc,
                       int64_t count)
{
    (void)rule;
    (void)count;
    return ul_kx_unary(k, UL_KX_LOG, as_float(k, acc));
}

const struct ul_reduce_rule ul_reduce_mean_rule = {
    .first = UL_REDUCE_ZERO, .combine = UL_KX_ADD, .after = after_mean};
const struct ul_reduce_rule ul_reduce_max_rule = {.first = UL_REDUCE_LOWEST, .combine = UL_KX_MAX};

const struct ul_reduce_rule ul_reduce_norm_rule = {
    .combine = UL_KX_ADD, .p = 2.0, .before = before_norm, .after = after_norm};

/* Loops */

/* The output's coordinates: reduced dimensions are 0 or gone. */
static void reduced_index(struct ul_lanes *lanes, uint32_t mask, bool keepdims, ul_kx *index)
{
    uint32_t rank = 0;
    for (uint32_t d = 0; d < lanes->rank; d++) {
        bool reduced = (mask >> d & 1u) != 0;
        if (reduced && keepdims)
            index[rank++] = ul_kx_index_const(lanes->lower->kernel, 0);
        else if (!reduced)
            index[rank++] = lanes->index[d];
    }
}

static void store_reduced(struct ul_lanes *lanes, ul_node_id node, uint32_t mask, bool keepdims,
                          ul_kx x)
{
    struct ul_kernel *k = lanes->lower->kernel;
    enum ul_dtype dtype = ul_lower_output_type(lanes->lower, node, 0)->dtype;
    ul_kx index[UL_LIMIT_RANK];
    reduced_index(lanes, mask, keepdims, index);
    ul_lower_store(lanes->lower, ul_check_node(lanes->lower, node)->outputs[0], index,
                   ul_kx_cast(k, ul_compute_dtype(dtype), x));
}

static enum ul_kx_op combine_op(const struct ul_reduce_rule *rule, enum ul_dtype dtype)
{
    if (dtype != UL_BOOL)
        return rule->combine;
    return rule->combine == UL_KX_MAX ? UL_KX_OR : UL_KX_AND;
}

struct reduce_term {
    const struct ul_reduce_rule *rule;
    ul_value_id input;
};

static ul_kx load_term(struct ul_lanes *lanes, const void *context)
{
    const struct reduce_term *term = context;
    struct ul_kernel *k = lanes->lower->kernel;
    ul_kx x = ul_lower_load(lanes->lower, term->input, lanes->index);
    return term->rule->before == NULL ? x : term->rule->before(k, term->rule, ul_ks_let(k, x));
}

struct reduction {
    struct ul_lower *lower;
    ul_node_id node;
    const struct ul_type *type;
    const struct ul_reduce_rule *rule;
    uint32_t mask;
    bool keepdims;
    ul_kx first;
    enum ul_kx_op combine;
    struct reduce_term term;
};

static void finish(struct ul_lanes *lanes, const struct reduction *r, ul_kx result)
{
    int64_t terms = ul_lanes_product(r->type->dims, r->type->rank, r->mask);
    if (r->rule->after != NULL)
        result = r->rule->after(r->lower->kernel, r->rule, result, terms);
    store_reduced(lanes, r->node, r->mask, r->keepdims, result);
}

/* Reduces in parts on a device; returns false where sums are too short for it. */
static bool reduce_in_parts(const struct reduction *r)
{
    struct ul_lanes lanes;
    uint32_t order[UL_LIMIT_RANK];
    ul_lower_order(r->lower, r->term.input, order);
    ul_lanes_init(&lanes, r->lower, r->type->rank, r->type->dims, order);
    if (!ul_partials_apply(&lanes, r->mask))
        return false;
    lanes.joined = ul_lower_joined(r->lower, r->term.input, order);
    struct ul_partials partials;
    ul_partials_init(&partials, &lanes, r->mask, r->combine, r->first, load_term, &r->term);
    ul_partials_store(&partials);
    ul_partials_open(&partials);
    finish(&lanes, r, ul_partials_total(&partials));
    ul_partials_close(&partials);
    return true;
}

static void reduce_in_lanes(const struct reduction *r)
{
    uint32_t kept = ul_lanes_all(r->type->rank) & ~r->mask;
    struct ul_lanes lanes;
    ul_lanes_open(&lanes, r->lower, r->term.input, kept);
    struct ul_lane_var acc =
        ul_lanes_reduce(&lanes, r->mask, r->combine, r->first, load_term, &r->term);
    ul_lanes_begin(&lanes);
    finish(&lanes, r, ul_lanes_get(&lanes, acc));
    ul_lanes_end(&lanes);
    ul_lanes_close(&lanes);
}

void ul_reduce_lower(struct ul_lower *lower, ul_node_id node, uint32_t mask, bool keepdims,
                     const struct ul_reduce_rule *rule)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    enum ul_dtype dtype = ul_compute_dtype(type->dtype);
    /* Limits of the stored type, not of the wider one that it is computed in. */
    enum ul_dtype first_dtype = ul_dtype_get(type->dtype)->is_float ? dtype : type->dtype;
    const struct reduction r = {
        .lower = lower,
        .node = node,
        .type = type,
        .rule = rule,
        .mask = mask,
        .keepdims = keepdims,
        .first = ul_kx_cast(k, dtype, ul_reduce_first_value(k, rule->first, first_dtype)),
        .combine = combine_op(rule, dtype),
        .term = {.rule = rule, .input = ul_check_node(lower, node)->inputs[0]}};
    if (!reduce_in_parts(&r))
        reduce_in_lanes(&r);
}

uint32_t ul_reduce_mask(const struct ul_graph *graph, const struct ul_node *node)
{
    uint32_t rank = graph->values[node->inputs[0]].type.rank, mask = 0;
    const struct ul_tensor *axes = NULL;
    if (node->input_count > 1 && node->inputs[1] != UL_NONE)
        axes = graph->values[node->inputs[1]].tensor;
    if (axes == NULL || ul_type_elements(&axes->type) == 0)
        return ul_node_get_int(node, "noop_with_empty_axes", 0) != 0 ? 0 : ul_lanes_all(rank);
    for (uint64_t i = 0; i < ul_type_elements(&axes->type); i++)
        mask |= 1u << ul_check_get_axis(ul_tensor_get_int(axes, i), rank);
    return mask;
}

static bool node_keepdims(const struct ul_lower *lower, ul_node_id node)
{
    return ul_node_get_int(ul_check_node(lower, node), "keepdims", 1) != 0;
}

static void lower_rule(struct ul_lower *lower, ul_node_id node, const struct ul_reduce_rule *rule)
{
    ul_reduce_lower(lower, node, ul_reduce_mask(lower->graph, ul_check_node(lower, node)),
                    node_keepdims(lower, node), rule);
}

void ul_lower_reduce_sum(struct ul_lower *lower, ul_node_id node)
{
    struct ul_reduce_rule rule = {.first = UL_REDUCE_ZERO, .combine = UL_KX_ADD};
    lower_rule(lower, node, &rule);
}

void ul_lower_reduce_mean(struct ul_lower *lower, ul_node_id node)
{
    lower_rule(lower, node, &ul_reduce_mean_rule);
}

void ul_lower_reduce_max(struct ul_lower *lower, ul_node_id node)
{
    lower_rule(lower, node, &ul_reduce_max_rule);
}

void ul_lower_reduce_min(struct ul_lower *lower, ul_node_id node)
{
    struct ul_reduce_rule rule = {.first = UL_REDUCE_HIGHEST, .combine = UL_KX_MIN};
    lower_rule(lower, node, &rule);
}

void ul_lower_reduce_prod(struct ul_lower *lower, ul_node_id node)
{
    struct ul_reduce_rule rule = {.first = UL_REDUCE_ONE, .combine = UL_KX_MUL};
    lower_rule(lower, node, &rule);
}

void ul_lower_reduce_l1(struct ul_lower *lower, ul_node_id node)
{
    struct ul_reduce_rule rule = {.combine = UL_KX_ADD, .p = 1.0, .before = before_norm};
    lower_rule(lower, node, &rule);
}

void ul_lower_reduce_l2(struct ul_lower *lower, ul_node_id node)
{
    lower_rule(lower, node, &ul_reduce_norm_rule);
}

void ul_lower_reduce_log_sum(struct ul_lower *lower, ul_node_id node)
{
    struct ul_reduce_rule rule = {.combine = UL_KX_ADD, .after = after_log};
    lower_rule(lower, node, &rule);
}

void ul_lower_reduce_sum_square(struct ul_lower *lower, ul_node_id node)
{
    struct ul_reduce_rule rule = {.combine = UL_KX_ADD, .p = 2.0, .before = before_norm};
    lower_rule(lower, node, &rule);
}

/* log(sum(exp(x - m))) + m with m = max(x): exp cannot overflow. An infinite m is not subtracted,
 * since the difference would be NaN. */
struct exp_term {
    ul_value_id input;
    enum ul_dtype dtype;
    struct ul_lane_var max;
};

static ul_kx load_float(struct ul_lanes *lanes, const void *context)
{
    const struct exp_term *term = context;
    return ul_kx_cast(lanes->lower->kernel, term->dtype,
                      ul_lower_load(lanes->lower, term->input, lanes->index));
}

static ul_kx load_exp(struct ul_lanes *lanes, const void *context)
{
    const struct exp_term *term = context;
    struct ul_kernel *k = lanes->lower->kernel;
    ul_kx x = ul_kx_sub(k, load_float(lanes, context), ul_lanes_get(lanes, term->max));
    return ul_kx_unary(k, UL_KX_EXP, x);
}

static void log_sum_exp(struct ul_lanes *lanes, ul_node_id node, uint32_t mask, bool keepdims)
{
    struct ul_lower *lower = lanes->lower;
    struct ul_kernel *k = lower->kernel;
    enum ul_dtype loaded = ul_compute_dtype(ul_lower_input_type(lower, node, 0)->dtype);
    struct exp_term term = {.input = ul_check_node(lower, node)->inputs[0],
                            .dtype = ul_dtype_get(loaded)->is_float ? loaded : UL_F64};
    ul_kx zero = ul_kx_float(k, term.dtype, 0.0);
    ul_kx lowest = ul_kx_float(k, term.dtype, -(double)INFINITY);
    term.max = ul_lanes_reduce(lanes, mask, UL_KX_MAX, lowest, load_float, &term);
    ul_lanes_begin(lanes);
    ul_kx infinite = ul_kx_unary(k, UL_KX_ISINF, ul_lanes_get(lanes, term.max));
    ul_lanes_set(lanes, term.max, ul_kx_select(k, infinite, zero, ul_lanes_get(lanes, term.max)));
    ul_lanes_end(lanes);
    struct ul_lane_var sum = ul_lanes_reduce(lanes, mask, UL_KX_ADD, zero, load_exp, &term);
    ul_lanes_begin(lanes);
    ul_kx result = ul_kx_unary(k, UL_KX_LOG, ul_lanes_get(lanes, sum));
    result = ul_kx_add(k, result, ul_lanes_get(lanes, term.max));
    store_reduced(lanes, node, mask, keepdims, result);
    ul_lanes_end(lanes);
}

void ul_lower_reduce_log_sum_exp(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    uint32_t mask = ul_reduce_mask(lower->graph, ul_check_node(lower, node));
    uint32_t kept = ul_lanes_all(type->rank) & ~mask;
    struct ul_lanes lanes;
    ul_lanes_open(&lanes, lower, ul_check_node(lower, node)->inputs[0], kept);
    log_sum_exp(&lanes, node, mask, node_keepdims(lower, node));
    ul_lanes_close(&lanes);
}
