/* SPDX-License-Identifier: Apache-2.0 */
/* Resize: every output element is a weighted sum of taps on a grid of neighbours.
 *
 * Coordinates are computed in f64, as the reference does, since rounding them decides which
 * neighbour is nearest; weights and sums in the data's compute type. With at most MAX_UNROLLED
 * taps the sum is one expression, and what an axis contributes (places and weights, the same for
 * every line across it) is tabulated in scratch first. Wider filters (antialias on shrinking axes)
 * are loops over the taps, whose weights are normalised by their sum. */
#include "ir/kernel_build.h"
#include "ir/ops/vision/resize_plan.h"

#include <math.h>

enum { MAX_UNROLLED = 64 };

static ul_kx half_pixel(struct ul_kernel *kernel, ul_kx x, double scale)
{
    return ul_kx_addf(kernel, ul_kx_divf(kernel, ul_kx_addf(kernel, x, 0.5), scale), -0.5);
}

/* Where the output's index is in the input, as an f64. */
static ul_kx source_coordinate(struct ul_kernel *kernel, const struct ul_resize_plan *plan,
                               const struct ul_resize_axis *axis, ul_kx index)
{
    ul_kx x = ul_kx_cast(kernel, UL_F64, index);
    double in = (double)axis->in;
    double out = axis->scale * in; /* before it was rounded to a whole number */
    double last = out - 1;
    bool single = last <= 0 && last >= 0;
    double span = (axis->roi_end - axis->roi_begin) * (in - 1);
    switch (plan->coordinate) {
    case RESIZE_HALF_PIXEL:
        return half_pixel(kernel, x, axis->scale);
    case RESIZE_HALF_PIXEL_SYMMETRIC:
        return ul_kx_addf(kernel, half_pixel(kernel, x, axis->scale),
                          in / 2 * (1 - (double)axis->out / out));
    case RESIZE_PYTORCH_HALF_PIXEL:
        return out > 1 ? half_pixel(kernel, x, axis->scale) : ul_kx_float(kernel, UL_F64, 0);
    case RESIZE_TF_HALF_PIXEL_FOR_NN:
        return ul_kx_divf(kernel, ul_kx_addf(kernel, x, 0.5), axis->scale);
    case RESIZE_ALIGN_CORNERS:
        return single ? ul_kx_float(kernel, UL_F64, 0)
                      : ul_kx_divf(kernel, ul_kx_mulf(kernel, x, in - 1), last);
    case RESIZE_ASYMMETRIC:
        return ul_kx_divf(kernel, x, axis->scale);
    case RESIZE_TF_CROP:
        break;
    }
    ul_kx within = single ? ul_kx_float(kernel, UL_F64, span / 2)
                          : ul_kx_divf(kernel, ul_kx_mulf(kernel, x, span), last);
    return ul_kx_addf(kernel, within, axis->roi_begin * (in - 1));
}

static ul_kx to_index(struct ul_kernel *kernel, ul_kx x)
{
    return ul_kx_cast(kernel, UL_I64, x);
}

/* The factor by which an axis grows, if that is a whole number and element i comes from element i /
 * factor; 0 otherwise. */
static int64_t whole_factor(const struct ul_resize_plan *plan, const struct ul_resize_axis *axis)
{
    int64_t factor = axis->in > 0 ? axis->out / axis->in : 0;
    bool whole = factor > 0 && axis->out == factor * axis->in && axis->scale >= (double)factor &&
                 axis->scale <= (double)factor;
    bool centred = plan->coordinate == RESIZE_HALF_PIXEL ||
                   plan->coordinate == RESIZE_HALF_PIXEL_SYMMETRIC ||
                   (plan->coordinate == RESIZE_PYTORCH_HALF_PIXEL && axis->out > 1);
    bool rounded = plan->nearest == RESIZE_PREFER_FLOOR || plan->nearest == RESIZE_PREFER_CEIL;
    bool floored = plan->coordinate == RESIZE_ASYMMETRIC && plan->nearest == RESIZE_FLOOR;
    return whole && (floored || (centred && rounded)) ? factor : 0;
}

static ul_kx nearest_index(struct ul_kernel *kernel, const struct ul_resize_plan *plan,
                           const struct ul_resize_axis *axis, ul_kx index, ul_kx x)
{
    int64_t factor = whole_factor(plan, axis);
    if (factor > 0)
        return ul_kx_divi(kernel, index, factor);
    switch (plan->nearest) {
    case RESIZE_PREFER_FLOOR:
        x = ul_kx_unary(kernel, UL_KX_CEIL, ul_kx_addf(kernel, x, -0.5));
        break;
    case RESIZE_PREFER_CEIL:
        x = ul_kx_unary(kernel, UL_KX_FLOOR, ul_kx_addf(kernel, x, 0.5));
        break;
    case RESIZE_FLOOR:
        x = ul_kx_unary(kernel, UL_KX_FLOOR, x);
        break;
    case RESIZE_CEIL:
        x = ul_kx_unary(kernel, UL_KX_CEIL, x);
        break;
    }
    return ul_kx_clamp(kernel, to_index(kernel, x), axis->in - 1);
}

/* 0 <= at < count */
static ul_kx is_inside(struct ul_kernel *kernel, ul_kx at, int64_t count)
{
    return ul_kx_binary(kernel, UL_KX_AND,
                        ul_kx_binary(kernel, UL_KX_LE, ul_kx_index_const(kernel, 0), at),
                        ul_kx_binary(kernel, UL_KX_LT, at, ul_kx_index_const(kernel, count)));
}

/* Sets weights outside to 0, and scales the others so that their sum is 1 again. */
static void exclude_outside(struct ul_kernel *kernel, const ul_kx *places, ul_kx *weights,
                            uint32_t count, int64_t in)
{
    ul_kx zero = ul_kx_float(kernel, ul_kx_dtype(kernel, weights[0]), 0);
    ul_kx sum = zero;
    for (uint32_t t = 0; t < count; t++) {
        weights[t] = ul_kx_select(kernel, is_inside(kernel, places[t], in), weights[t], zero);
        sum = ul_kx_add(kernel, sum, weights[t]);
    }
    sum = ul_ks_let(kernel, sum);
    for (uint32_t t = 0; t < count; t++)
        weights[t] = ul_kx_binary(kernel, UL_KX_DIV, weights[t], sum);
}

/* The taps of one axis whose number is small. */
static void unrolled_axis(struct ul_kernel *kernel, const struct ul_resize_plan *plan, uint32_t d,
                          ul_kx index, ul_kx x, struct ul_taps *taps)
{
    const struct ul_resize_axis *axis = &plan->axes[d];
    ul_kx *places = taps->indexes[d];
    ul_kx *weights = taps->weights[d];
    taps->counts[d] = 1;
    weights[0] = UL_NONE;
    if (axis->is_kept || plan->mode == RESIZE_NEAREST) {
        places[0] = axis->is_kept ? index : nearest_index(kernel, plan, axis, index, x);
        return;
    }
    ul_kx below = ul_ks_let(kernel, ul_kx_unary(kernel, UL_KX_FLOOR, x));
    ul_kx ratio = ul_ks_let(kernel, ul_kx_cast(kernel, taps->dtype, ul_kx_sub(kernel, x, below)));
    ul_kx base = ul_ks_let(kernel, to_index(kernel, below));
    taps->counts[d] = plan->mode == RESIZE_LINEAR ? 2 : 4;
    if (plan->mode == RESIZE_LINEAR) {
        weights[0] = ul_kx_sub(kernel, ul_kx_float(kernel, taps->dtype, 1), ratio);
        weights[1] = ratio;
    } else {
        ul_taps_cubic(kernel, plan->cubic_a, ratio, weights);
    }
    for (uint32_t t = 0; t < taps->counts[d]; t++)
        places[t] = ul_kx_addi(kernel, base, (int64_t)t + (plan->mode == RESIZE_LINEAR ? 0 : -1));
    if (plan->exclude_outside)
        exclude_outside(kernel, places, weights, taps->counts[d], axis->in);
    for (uint32_t t = 0; t < taps->counts[d]; t++) {
        weights[t] = ul_ks_let(kernel, weights[t]);
        places[t] = ul_ks_let(kernel, ul_kx_clamp(kernel, places[t], axis->in - 1));
    }
}

/* One axis of a wide filter. Tap t is at base + t, at a distance from x that is measured in units
 * of `stretch` elements. */
struct filter {
    const struct ul_resize_plan *plan;
    enum ul_dtype dtype;
    int64_t in;
    int64_t count;
    double shrink; /* 1 / stretch */
    ul_kx x, base, norm;
};

static double support(const struct ul_resize_plan *plan)
{
    return plan->mode == RESIZE_LINEAR ? 1 : 2;
}

static double shrink_of(const struct ul_resize_plan *plan, const struct ul_resize_axis *axis)
{
    return plan->antialias && axis->scale < 1 ? axis->scale : 1;
}

static int64_t tap_count(const struct ul_resize_plan *plan, const struct ul_resize_axis *axis)
{
    if (axis->is_kept || plan->mode == RESIZE_NEAREST)
        return 1;
    return (int64_t)ceil(2 * support(plan) / shrink_of(plan, axis));
}

static ul_kx filter_weight(struct ul_kernel *kernel, const struct filter *filter, ul_kx place)
{
    ul_kx away = ul_kx_sub(kernel, ul_kx_cast(kernel, UL_F64, place), filter->x);
    ul_kx d = ul_kx_cast(kernel, filter->dtype, ul_kx_mulf(kernel, away, filter->shrink));
    d = ul_ks_let(kernel, ul_kx_unary(kernel, UL_KX_ABS, d));
    ul_kx one = ul_kx_float(kernel, filter->dtype, 1);
    ul_kx two = ul_kx_float(kernel, filter->dtype, 2);
    ul_kx zero = ul_kx_float(kernel, filter->dtype, 0);
    ul_kx weight = ul_kx_sub(kernel, one, d);
    ul_kx reach = one;
    if (filter->plan->mode == RESIZE_CUBIC) {
        double a = filter->plan->cubic_a;
        ul_kx weights[4];
        ul_kx beyond[4];
        ul_taps_cubic(kernel, a, d, weights);
        ul_taps_cubic(kernel, a, ul_kx_addf(kernel, d, -1), beyond);
        weight =
            ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LE, d, one), weights[1], beyond[0]);
        reach = two;
    }
    weight = ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LT, d, reach), weight, zero);
    if (filter->plan->exclude_outside)
        weight = ul_kx_select(kernel, is_inside(kernel, place, filter->in), weight, zero);
    return weight;
}

/* Finds the first tap and the sum of the weights. */
static void filter_open(struct ul_kernel *kernel, const struct ul_resize_plan *plan, uint32_t d,
                        ul_kx x, struct filter *filter)
{
    const struct ul_resize_axis *axis = &plan->axes[d];
    double shrink = shrink_of(plan, axis);
    double reach = support(plan) / shrink;
    filter->in = axis->in;
    filter->count = tap_count(plan, axis);
    filter->shrink = shrink;
    filter->x = x;
    ul_kx first = ul_kx_unary(kernel, UL_KX_FLOOR, ul_kx_addf(kernel, x, -reach));
    filter->base = ul_ks_let(kernel, ul_kx_addi(kernel, to_index(kernel, first), 1));
    uint32_t sum = ul_ks_var(kernel, filter->dtype, ul_kx_float(kernel, filter->dtype, 0));
    ul_kx t = ul_ks_for(kernel, filter->count, UL_FOR_REDUCE);
    ul_kx place = ul_ks_let(kernel, ul_kx_add(kernel, filter->base, t));
    ul_ks_set(kernel, sum,
              ul_kx_add(kernel, ul_kx_var(kernel, sum), filter_weight(kernel, filter, place)));
    ul_ks_end(kernel);
    ul_kx zero = ul_kx_float(kernel, filter->dtype, 0);
    ul_kx none = ul_kx_binary(kernel, UL_KX_EQ, ul_kx_var(kernel, sum), zero);
    filter->norm =
        ul_ks_let(kernel, ul_kx_select(kernel, none, ul_kx_float(kernel, filter->dtype, 1),
                                       ul_kx_var(kernel, sum)));
}

static ul_kx looped_sum(struct ul_lower *lower, ul_node_id node, const struct ul_resize_plan *plan,
                        const ul_kx *index, const ul_kx *x)
{
    struct ul_kernel *kernel = lower->kernel;
    ul_value_id input = lower->graph->nodes[node].inputs[0];
    enum ul_dtype dtype = ul_taps_dtype(lower->graph->values[input].type.dtype);
    struct filter filters[UL_LIMIT_RANK];
    ul_kx from[UL_LIMIT_RANK];
    uint32_t opened = 0;
    for (uint32_t d = 0; d < plan->rank; d++) {
        filters[d] = (struct filter){.plan = plan, .dtype = dtype};
        if (!plan->axes[d].is_kept)
            filter_open(kernel, plan, d, x[d], &filters[d]);
    }
    uint32_t sum = ul_ks_var(kernel, dtype, ul_kx_float(kernel, dtype, 0));
    ul_kx weight = ul_kx_float(kernel, dtype, 1);
    for (uint32_t d = 0; d < plan->rank; d++) {
        from[d] = index[d];
        if (plan->axes[d].is_kept)
            continue;
        ul_kx t = ul_ks_for(kernel, filters[d].count, 0);
        ul_kx place = ul_ks_let(kernel, ul_kx_add(kernel, filters[d].base, t));
        ul_kx own = ul_kx_binary(kernel, UL_KX_DIV, filter_weight(kernel, &filters[d], place),
                                 filters[d].norm);
        weight = ul_ks_let(kernel, opened == 0 ? own : ul_kx_mul(kernel, weight, own));
        from[d] = ul_ks_let(kernel, ul_kx_clamp(kernel, place, plan->axes[d].in - 1));
        opened++;
    }
    ul_kx loaded = ul_kx_cast(kernel, dtype, ul_lower_load(lower, input, from));
    ul_ks_set(kernel, sum,
              ul_kx_add(kernel, ul_kx_var(kernel, sum), ul_kx_mul(kernel, weight, loaded)));
    for (uint32_t i = 0; i < opened; i++)
        ul_ks_end(kernel);
    return ul_kx_var(kernel, sum);
}

/* Rounded to nearest even and clamped to the type's range where that is an integer. */
static ul_kx to_stored(struct ul_kernel *kernel, enum ul_dtype stored, ul_kx x)
{
    if (ul_dtype_get(stored)->is_float || !ul_dtype_get(ul_kx_dtype(kernel, x))->is_float)
        return x;
    ul_kx whole = ul_kx_unary(kernel, UL_KX_ROUND, x);
    return ul_kx_cast(kernel, ul_compute_dtype(stored), ul_kx_cast(kernel, stored, whole));
}

/* The extrapolation value where a coordinate of RESIZE_TF_CROP leaves the input. */
static ul_kx extrapolate(struct ul_kernel *kernel, const struct ul_resize_plan *plan,
                         const ul_kx *x, ul_kx value)
{
    ul_kx outside = ul_kx_int(kernel, UL_BOOL, 0);
    for (uint32_t d = 0; d < plan->rank; d++) {
        if (plan->axes[d].is_kept)
            continue;
        ul_kx low = ul_kx_float(kernel, UL_F64, 0);
        ul_kx high = ul_kx_float(kernel, UL_F64, (double)(plan->axes[d].in - 1));
        outside =
            ul_kx_binary(kernel, UL_KX_OR, outside, ul_kx_binary(kernel, UL_KX_LT, x[d], low));
        outside =
            ul_kx_binary(kernel, UL_KX_OR, outside, ul_kx_binary(kernel, UL_KX_LT, high, x[d]));
    }
    ul_kx other = ul_kx_cast(kernel, ul_kx_dtype(kernel, value),
                             ul_kx_float(kernel, UL_F64, plan->extrapolation));
    return ul_kx_select(kernel, outside, other, value);
}

/* Whether the place along the axis is found without its coordinate. */
static bool is_direct(const struct ul_resize_plan *plan, const struct ul_resize_axis *axis)
{
    return axis->is_kept || (plan->mode == RESIZE_NEAREST && whole_factor(plan, axis) > 0);
}

/* Places and weights of one axis for every index: entry (tap, index) at tap * out + index. */
struct table {
    bool is_used;
    uint32_t taps;
    uint32_t places, weights; /* scratch buffers; no weights for the nearest neighbour */
};

static void table_build(struct ul_lower *lower, const struct ul_resize_plan *plan, uint32_t d,
                        enum ul_dtype dtype, struct table *table)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_resize_axis *axis = &plan->axes[d];
    struct ul_taps taps = {.dtype = dtype};
    table->taps = (uint32_t)tap_count(plan, axis);
    uint64_t count = (uint64_t)table->taps * (uint64_t)axis->out;
    table->is_used = true;
    table->places = ul_lower_scratch(lower, axis->in <= INT32_MAX ? UL_I32 : UL_I64, count);
    if (table->taps > 1)
        table->weights = ul_lower_scratch(lower, dtype, count);
    ul_kx index = ul_ks_for(kernel, axis->out, UL_FOR_PARALLEL);
    ul_kx x = ul_ks_let(kernel, source_coordinate(kernel, plan, axis, index));
    unrolled_axis(kernel, plan, d, index, x, &taps);
    for (uint32_t t = 0; t < table->taps; t++) {
        ul_kx at = ul_kx_addi(kernel, index, (int64_t)t * axis->out);
        ul_ks_store(kernel, table->places, at, taps.indexes[d][t]);
        if (table->taps > 1)
            ul_ks_store(kernel, table->weights, at, taps.weights[d][t]);
    }
    ul_ks_end(kernel);
}

static void table_read(struct ul_kernel *kernel, const struct ul_resize_plan *plan, uint32_t d,
                       const struct table *table, ul_kx index, struct ul_taps *taps)
{
    taps->counts[d] = table->taps;
    taps->weights[d][0] = UL_NONE;
    for (uint32_t t = 0; t < table->taps; t++) {
        ul_kx at = ul_kx_addi(kernel, index, (int64_t)t * plan->axes[d].out);
        ul_kx place = ul_kx_load(kernel, table->places, at);
        taps->indexes[d][t] = ul_ks_let(kernel, ul_kx_cast(kernel, UL_I64, place));
        if (table->taps > 1)
            taps->weights[d][t] = ul_ks_let(kernel, ul_kx_load(kernel, table->weights, at));
    }
}

/* For few taps: tables where an axis has enough lines to share them, then one expression. */
static void lower_unrolled(struct ul_lower *lower, ul_node_id node,
                           const struct ul_resize_plan *plan)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_node *info = &lower->graph->nodes[node];
    const struct ul_type *out = ul_lower_output_type(lower, node, 0);
    struct ul_taps taps = {.dtype = plan->mode == RESIZE_NEAREST ? ul_compute_dtype(out->dtype)
                                                                 : ul_taps_dtype(out->dtype),
                           .rank = plan->rank};
    struct table tables[UL_LIMIT_RANK] = {{0}};
    ul_kx index[UL_LIMIT_RANK];
    ul_kx x[UL_LIMIT_RANK];
    for (uint32_t d = 0; d < plan->rank; d++) {
        bool shared = ul_type_elements(out) >= 4 * (uint64_t)out->dims[d];
        if (shared && plan->coordinate != RESIZE_TF_CROP && !is_direct(plan, &plan->axes[d]))
            table_build(lower, plan, d, taps.dtype, &tables[d]);
    }
    uint32_t order[UL_LIMIT_RANK];
    ul_lower_order(lower, info->outputs[0], order);
    for (uint32_t i = 0; i < plan->rank; i++) {
        uint32_t d = order[i];
        index[d] = ul_ks_for(kernel, out->dims[d], UL_FOR_PARALLEL);
        x[d] = UL_NONE;
        if (tables[d].is_used) {
            table_read(kernel, plan, d, &tables[d], index[d], &taps);
            continue;
        }
        if (!is_direct(plan, &plan->axes[d]))
            x[d] = ul_ks_let(kernel, source_coordinate(kernel, plan, &plan->axes[d], index[d]));
        unrolled_axis(kernel, plan, d, index[d], x[d], &taps);
    }
    ul_kx value = ul_taps_sum(lower, info->inputs[0], &taps);
    if (plan->coordinate == RESIZE_TF_CROP)
        value = extrapolate(kernel, plan, x, value);
    ul_lower_store(lower, info->outputs[0], index, to_stored(kernel, out->dtype, value));
    ul_lower_close(lower, plan->rank);
}

static void lower_looped(struct ul_lower *lower, ul_node_id node, const struct ul_resize_plan *plan)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *out = ul_lower_output_type(lower, node, 0);
    ul_kx index[UL_LIMIT_RANK];
    ul_kx x[UL_LIMIT_RANK];
    ul_lower_open_as(lower, lower->graph->nodes[node].outputs[0], out->dims, index);
    for (uint32_t d = 0; d < plan->rank; d++) {
        const struct ul_resize_axis *axis = &plan->axes[d];
        x[d] = axis->is_kept ? UL_NONE
                             : ul_ks_let(kernel, source_coordinate(kernel, plan, axis, index[d]));
    }
    ul_kx value = looped_sum(lower, node, plan, index, x);
    if (plan->coordinate == RESIZE_TF_CROP)
        value = extrapolate(kernel, plan, x, value);
    ul_lower_store(lower, lower->graph->nodes[node].outputs[0], index,
                   to_stored(kernel, out->dtype, value));
    ul_lower_close(lower, plan->rank);
}

void ul_lower_resize(struct ul_lower *lower, ul_node_id node)
{
    struct ul_resize_plan plan;
    int64_t taps = 1;
    bool wide = false;
    if (ul_type_elements(ul_lower_output_type(lower, node, 0)) == 0)
        return;
    ul_resize_plan_get(lower->graph, &lower->graph->nodes[node], &plan);
    for (uint32_t d = 0; d < plan.rank; d++) {
        if (taps <= MAX_UNROLLED)
            taps *= tap_count(&plan, &plan.axes[d]);
        wide = wide || shrink_of(&plan, &plan.axes[d]) < 1;
    }
    if (plan.mode != RESIZE_NEAREST && (wide || taps > MAX_UNROLLED))
        lower_looped(lower, node, &plan);
    else
        lower_unrolled(lower, node, &plan);
}
