/* SPDX-License-Identifier: Apache-2.0 */
/* One output channel over a window of few taps: depthwise convolution.
 *
 * A strip of the input is copied to scratch with its padding, so that every tap of every output
 * exists; a stride is removed by sorting rows and columns into planes by their remainder. Then
 * output i of the strip, counted along the padded pitch, is the sum over taps of weight * planes[i
 * + offset(tap)]: one loop over long contiguous runs, without conditions.
 *
 *     stride 2:  x x x x x x     plane 0: x . x . x .     tap kx reads plane kx % 2
 *                                plane 1: . x . x . x     at distance kx / 2
 *
 * Each of the (at most two) axes has coordinate = base + step * n + its taps' distances; an element
 * is at the operand's base + unit * (coordinate - base) summed over the axes. */
#include "codegen/kernel/contract_window.h"

#define STRIP_BYTES 32768 /* planes and sums of one strip: a usual first-level cache */

/* The bound that moves with contraction dimension `n`; false when there is more than one. */
static bool find_bound(const struct ul_operand *b, uint32_t n, uint32_t *bound)
{
    *bound = b->bound_count;
    for (uint32_t i = 0; i < b->bound_count; i++) {
        if (b->bounds[i].at.strides[n] == 0)
            continue;
        if (*bound != b->bound_count)
            return false;
        *bound = i;
    }
    return true;
}

/* The axis along which dimension `k` of the taps moves; 2: none, or both. */
static uint32_t axis_of(const struct ul_operand *b, const struct ul_window *window, uint32_t k,
                        int64_t row_stride)
{
    bool moves[2], is_free[2];
    for (uint32_t a = 0; a < 2; a++) {
        is_free[a] = window->axes[a].bound == b->bound_count;
        moves[a] = !is_free[a] && b->bounds[window->axes[a].bound].at.strides[k] != 0;
    }
    if (moves[0] || moves[1])
        return moves[0] && moves[1] ? 2 : moves[0] ? 0 : 1;
    if (is_free[0] && is_free[1])
        return ul_magnitude(b->at.strides[k]) >= ul_magnitude(row_stride) ? 0 : 1;
    return is_free[0] ? 0 : is_free[1] ? 1 : 2;
}

/* Step and unit of an axis along dimension `n` whose taps are the dimensions with
 * axis_by_k[k] == a; false when addresses do not follow the coordinate. */
static bool set_axis(const struct ul_contraction *c, struct ul_window_axis *axis, uint32_t n,
                     uint32_t a, const uint32_t *axis_by_k, uint32_t first_k)
{
    const struct ul_operand *b = &c->b;
    int64_t stride = b->at.strides[n];
    if (axis->bound < b->bound_count) {
        const struct ul_affine *at = &b->bounds[axis->bound].at;
        axis->step = at->strides[n];
        if (axis->step < 1 || stride % axis->step != 0)
            return false;
        axis->unit = stride / axis->step;
        if (axis->unit == 0) /* broadcast */
            return false;
        for (uint32_t k = 0; k < c->k_count; k++)
            if (axis_by_k[k] == a &&
                b->at.strides[first_k + k] != axis->unit * at->strides[first_k + k])
                return false;
        return axis->step <= UL_WINDOW_MAX_STEP;
    }
    axis->unit = stride;
    for (uint32_t k = 0; k < c->k_count; k++)
        if (axis_by_k[k] == a)
            axis->unit = ul_gcd(axis->unit, b->at.strides[first_k + k]);
    if (axis->unit == 0)
        return false;
    axis->step = stride / axis->unit;
    return axis->step >= 1 && axis->step <= UL_WINDOW_MAX_STEP;
}

/* Distances of the taps along their axes, from which reach and remainders follow. */
static void set_taps(const struct ul_contract_plan *plan, struct ul_window *window,
                     const uint32_t *axis_by_k, uint32_t first_k)
{
    const struct ul_contraction *c = plan->contraction;
    for (int64_t tap = 0; tap < plan->k; tap++) {
        int64_t rest = tap, sums[2] = {0, 0};
        for (uint32_t k = c->k_count; k-- > 0;) {
            int64_t extent = c->extents[first_k + k], value = rest % extent;
            rest /= extent;
            if (axis_by_k[k] < 2)
                sums[axis_by_k[k]] +=
                    value * (c->b.at.strides[first_k + k] / window->axes[axis_by_k[k]].unit);
        }
        for (uint32_t a = 0; a < 2; a++)
            window->axes[a].distances[tap] = sums[a];
    }
    for (uint32_t a = 0; a < 2; a++) {
        struct ul_window_axis *axis = &window->axes[a];
        axis->min = axis->distances[0];
        for (int64_t tap = 1; tap < plan->k; tap++)
            if (axis->distances[tap] < axis->min)
                axis->min = axis->distances[tap];
        for (int64_t tap = 0; tap < plan->k; tap++) {
            int64_t distance = axis->distances[tap] - axis->min;
            axis->is_used[distance % axis->step] = true;
            axis->far = distance > axis->far ? distance : axis->far;
        }
        axis->reach = axis->far / axis->step;
    }
}

static int64_t planes_of(const struct ul_window_axis *axis)
{
    int64_t count = 0;
    for (int64_t r = 0; r < axis->step; r++)
        count += axis->is_used[r];
    return count;
}

int64_t ul_window_planes(const struct ul_window *window)
{
    return planes_of(&window->axes[0]) * planes_of(&window->axes[1]);
}

/* The bytes of an element of the planes; a sum may be wider. */
static int64_t plane_bytes(const struct ul_contract_plan *plan)
{
    return ul_contract_is_bytes(plan) ? 1 : plan->element_bytes;
}

/* Sets sizes; false when not even one row fits. */
static bool set_strip(const struct ul_contract_plan *plan, struct ul_window *window)
{
    const struct ul_window_axis *rows = &window->axes[0], *columns = &window->axes[1];
    int64_t max = STRIP_BYTES - 2 * UL_WINDOW_PAD_BYTES;
    int64_t planes = ul_window_planes(window) * plane_bytes(plan);
    if (columns->count > max || columns->reach > max || rows->reach > max)
        return false;
    window->pitch = columns->count + columns->reach;
    /* planes * (strip + reach) * pitch + sums * strip * pitch <= max, all in bytes */
    int64_t fit = (max / window->pitch - planes * rows->reach) / (planes + plan->element_bytes);
    if (fit < 1)
        return false;
    window->strip = fit < rows->count ? fit : rows->count;
    window->plane = (window->strip + rows->reach) * window->pitch;
    return true;
}

bool ul_window_read(const struct ul_contract_plan *plan, struct ul_window *window)
{
    const struct ul_contraction *c = plan->contraction;
    const struct ul_contract_dims *n = &plan->b_n;
    uint32_t first_k = c->m_count + c->n_count, axis_by_k[UL_CONTRACT_DIMS];
    *window = (struct ul_window){0};
    if (plan->m != 1 || plan->k > UL_CONTRACT_TAPS || n->count > 2 ||
        c->b.packed != UL_DTYPE_NONE ||
        (!ul_contract_is_bytes(plan) &&
         (c->b.transform != UL_NONE || !plan->b_same || c->b.outside != 0)))
        return false;
    uint32_t column = n->carrier[n->count - 1], row = n->carrier[0];
    window->axes[0] =
        (struct ul_window_axis){.count = 1, .step = 1, .unit = 1, .bound = c->b.bound_count};
    window->axes[1].count = n->extents[n->count - 1];
    if (n->count == 2) {
        window->axes[0].count = n->extents[0];
        if (!find_bound(&c->b, row, &window->axes[0].bound))
            return false;
    }
    if (!find_bound(&c->b, column, &window->axes[1].bound))
        return false;
    uint32_t used = 0;
    for (uint32_t a = 0; a < 2; a++)
        used += window->axes[a].bound < c->b.bound_count ? 1 : 0;
    if (used != c->b.bound_count || (used == 2 && window->axes[0].bound == window->axes[1].bound))
        return false;
    for (uint32_t k = 0; k < c->k_count; k++) {
        axis_by_k[k] = 3;
        if (c->extents[first_k + k] == 1)
            continue;
        axis_by_k[k] =
            n->count == 1 ? 1 : axis_of(&c->b, window, first_k + k, c->b.at.strides[row]);
        if (axis_by_k[k] == 2)
            return false;
    }
    if (n->count == 2 && !set_axis(c, &window->axes[0], row, 0, axis_by_k, first_k))
        return false;
    if (!set_axis(c, &window->axes[1], column, 1, axis_by_k, first_k))
        return false;
    set_taps(plan, window, axis_by_k, first_k);
    return set_strip(plan, window);
}

/* The bytes of planes and of sums. */
static void set_bytes(struct ul_contract_plan *plan, const struct ul_window *window)
{
    int64_t planes = ul_window_planes(window);
    int64_t panel = planes * window->plane * plane_bytes(plan) + UL_WINDOW_PAD_BYTES;
    int64_t sums = window->strip * window->pitch * plan->element_bytes + UL_WINDOW_PAD_BYTES;
    plan->panel_bytes = (panel + 63) / 64 * 64;
    plan->sums_bytes = (sums + 63) / 64 * 64;
    bool is_stored = plan->a_plain || ul_contract_stores_bytes(plan, &plan->contraction->a);
    plan->packs_a = !is_stored || plan->a_k.count > 1 ||
                    plan->contraction->a.at.strides[plan->a_k.carrier[0]] != 1;
    plan->depth = plan->k;
    plan->strips = (window->axes[0].count + window->strip - 1) / window->strip;
    if (plan->packs_a)
        plan->a_bytes = (plan->k * plane_bytes(plan) + 63) / 64 * 64;
}

bool ul_contract_window_size(struct ul_contract_plan *plan)
{
    struct ul_window window;
    if (!ul_window_read(plan, &window))
        return false;
    set_bytes(plan, &window);
    return true;
}
