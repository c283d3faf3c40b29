/* SPDX-License-Identifier: Apache-2.0 */
/* Interpolation as a weighted sum of a few neighbours along every dimension. */
#include "ir/kernel_build.h"
#include "ir/ops/vision/vision.h"

enum ul_dtype ul_taps_dtype(enum ul_dtype stored)
{
    enum ul_dtype dtype = ul_compute_dtype(stored);
    bool wide = dtype == UL_F64 || stored == UL_I32 || stored == UL_U32 || stored == UL_I64 ||
                stored == UL_U64;
    return wide ? UL_F64 : UL_F32;
}

ul_kx ul_kx_addf(struct ul_kernel *kernel, ul_kx a, double b)
{
    return ul_kx_add(kernel, a, ul_kx_float(kernel, ul_kx_dtype(kernel, a), b));
}

ul_kx ul_kx_mulf(struct ul_kernel *kernel, ul_kx a, double b)
{
    return ul_kx_mul(kernel, a, ul_kx_float(kernel, ul_kx_dtype(kernel, a), b));
}

ul_kx ul_kx_divf(struct ul_kernel *kernel, ul_kx a, double b)
{
    return ul_kx_binary(kernel, UL_KX_DIV, a, ul_kx_float(kernel, ul_kx_dtype(kernel, a), b));
}

/* ((a + 2) d - (a + 3)) d^2 + 1 for a distance d of at most 1. */
static ul_kx cubic_near(struct ul_kernel *kernel, double a, ul_kx d)
{
    ul_kx inner = ul_kx_addf(kernel, ul_kx_mulf(kernel, d, a + 2), -(a + 3));
    return ul_kx_addf(kernel, ul_kx_mul(kernel, inner, ul_kx_mul(kernel, d, d)), 1);
}

/* ((a d - 5 a) d + 8 a) d - 4 a for a distance d from 1 to 2. */
static ul_kx cubic_far(struct ul_kernel *kernel, double a, ul_kx d)
{
    ul_kx inner = ul_kx_addf(kernel, ul_kx_mulf(kernel, d, a), -5 * a);
    inner = ul_kx_addf(kernel, ul_kx_mul(kernel, inner, d), 8 * a);
    return ul_kx_addf(kernel, ul_kx_mul(kernel, inner, d), -4 * a);
}

void ul_taps_cubic(struct ul_kernel *kernel, double a, ul_kx ratio, ul_kx *weights)
{
    ul_kx one = ul_kx_float(kernel, ul_kx_dtype(kernel, ratio), 1);
    ul_kx rest = ul_kx_sub(kernel, one, ratio);
    weights[0] = cubic_far(kernel, a, ul_kx_add(kernel, ratio, one));
    weights[1] = cubic_near(kernel, a, ratio);
    weights[2] = cubic_near(kernel, a, rest);
    weights[3] = cubic_far(kernel, a, ul_kx_add(kernel, rest, one));
}

/* 3 (a + 2) d^2 - 2 (a + 3) d */
static ul_kx near_slope(struct ul_kernel *kernel, double a, ul_kx d)
{
    ul_kx inner = ul_kx_addf(kernel, ul_kx_mulf(kernel, d, 3 * (a + 2)), -2 * (a + 3));
    return ul_kx_mul(kernel, inner, d);
}

/* 3 a d^2 - 10 a d + 8 a */
static ul_kx far_slope(struct ul_kernel *kernel, double a, ul_kx d)
{
    ul_kx inner = ul_kx_addf(kernel, ul_kx_mulf(kernel, d, 3 * a), -10 * a);
    return ul_kx_addf(kernel, ul_kx_mul(kernel, inner, d), 8 * a);
}

void ul_taps_cubic_slopes(struct ul_kernel *kernel, double a, ul_kx ratio, ul_kx *slopes)
{
    ul_kx one = ul_kx_float(kernel, ul_kx_dtype(kernel, ratio), 1);
    ul_kx rest = ul_kx_sub(kernel, one, ratio);
    slopes[0] = far_slope(kernel, a, ul_kx_add(kernel, ratio, one));
    slopes[1] = near_slope(kernel, a, ratio);
    slopes[2] = ul_kx_unary(kernel, UL_KX_NEG, near_slope(kernel, a, rest));
    slopes[3] = ul_kx_unary(kernel, UL_KX_NEG, far_slope(kernel, a, ul_kx_add(kernel, rest, one)));
}

/* Loads one element, under the conditions of its taps. */
static ul_kx element(struct ul_lower *lower, ul_value_id value, const struct ul_taps *taps,
                     const ul_kx *index, ul_kx condition)
{
    struct ul_kernel *kernel = lower->kernel;
    ul_kx x = ul_kx_cast(kernel, taps->dtype, ul_lower_load(lower, value, index));
    if (condition == UL_NONE)
        return x;
    return ul_kx_select(kernel, condition, x, ul_kx_number(kernel, taps->dtype, 0));
}

static ul_kx sum_along(struct ul_lower *lower, ul_value_id value, const struct ul_taps *taps,
                       uint32_t d, ul_kx *index, ul_kx condition)
{
    struct ul_kernel *kernel = lower->kernel;
    if (d == taps->rank)
        return element(lower, value, taps, index, condition);
    ul_kx sum = UL_NONE;
    for (uint32_t t = 0; t < taps->counts[d]; t++) {
        ul_kx both = condition;
        if (taps->has_conditions && taps->conditions[d][t] != UL_NONE)
            both = condition == UL_NONE
                       ? taps->conditions[d][t]
                       : ul_kx_binary(kernel, UL_KX_AND, condition, taps->conditions[d][t]);
        index[d] = taps->indexes[d][t];
        ul_kx term = sum_along(lower, value, taps, d + 1, index, both);
        if (taps->weights[d][t] != UL_NONE)
            term = ul_kx_mul(kernel, taps->weights[d][t], term);
        sum = t == 0 ? term : ul_kx_add(kernel, sum, term);
    }
    return sum;
}

ul_kx ul_taps_sum(struct ul_lower *lower, ul_value_id value, const struct ul_taps *taps)
{
    ul_kx index[UL_LIMIT_RANK] = {0};
    return sum_along(lower, value, taps, 0, index, UL_NONE);
}

static void add_along(struct ul_lower *lower, ul_value_id output, const struct ul_taps *taps,
                      uint32_t d, ul_kx *index, ul_kx term)
{
    struct ul_kernel *kernel = lower->kernel;
    if (d == taps->rank) {
        ul_kx old = ul_ks_let(kernel, ul_lower_load_output(lower, output, index));
        ul_lower_store(lower, output, index, ul_kx_add(kernel, old, term));
        return;
    }
    for (uint32_t t = 0; t < taps->counts[d]; t++) {
        bool has_condition = taps->has_conditions && taps->conditions[d][t] != UL_NONE;
        ul_kx share = term;
        if (has_condition)
            ul_ks_if(kernel, taps->conditions[d][t]);
        index[d] = taps->indexes[d][t];
        if (taps->weights[d][t] != UL_NONE)
            share = ul_ks_let(kernel, ul_kx_mul(kernel, taps->weights[d][t], term));
        add_along(lower, output, taps, d + 1, index, share);
        if (has_condition)
            ul_ks_end(kernel);
    }
}

void ul_taps_add(struct ul_lower *lower, ul_value_id output, const struct ul_taps *taps, ul_kx term)
{
    ul_kx index[UL_LIMIT_RANK] = {0};
    add_along(lower, output, taps, 0, index, term);
}
