/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling over sliding windows, and over everything.
 *
 * Per output block (lanes along the last dimension, or along the channels where they lie innermost)
 * the taps of the window are visited in order. Taps outside of the input are never visited: outer
 * dimensions loop over the range of taps that is inside, and for each tap of a dimension that is
 * lanes the range of lanes for which it is inside is computed, so that inner loops have neither
 * branches nor clamps. */
#include "ir/ops/pool/pool.h"
#include "ir/op_names.h"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/lanes.h"
#include "ir/ops/reduce/reduce.h"

struct windows {
    struct ul_lanes lanes;
    struct ul_pool pool;
    ul_value_id input;
    uint32_t last; /* the spatial dimension that the lanes run along, or their number: channels */
    ul_kx first_tap[UL_POOL_DIMS]; /* of outer dimensions: taps inside the input */
    ul_kx tap_count[UL_POOL_DIMS];
    bool numbers_taps;
    ul_kx number;               /* of the tap in its window, in row-major order */
    ul_kx index[UL_LIMIT_RANK]; /* input coordinates of the tap */
};

/* ceil(a / b), at least 0. */
static ul_kx ceil_div(struct ul_kernel *k, ul_kx a, int64_t b)
{
    ul_kx up = ul_kx_addi(k, a, b - 1);
    return ul_kx_divi(k, ul_kx_binary(k, UL_KX_MAX, up, ul_kx_index_const(k, 0)), b);
}

/* Whether every window is inside the input. */
static bool always_inside(const struct ul_pool *pool, uint32_t d)
{
    int64_t reach = (pool->kernel[d] - 1) * pool->dilation[d];
    return pool->pad_begin[d] == 0 && (pool->out[d] - 1) * pool->stride[d] + reach < pool->in[d];
}

/* The taps t of window `o` with o * stride - pad + t * dilation in [low, high). */
static void count_taps(struct ul_kernel *k, const struct ul_pool *pool, uint32_t d, ul_kx o,
                       int64_t low, int64_t high, ul_kx *first, ul_kx *count)
{
    ul_kx start = ul_kx_addi(k, ul_kx_muli(k, o, pool->stride[d]), -pool->pad_begin[d]);
    ul_kx to_low = ul_kx_sub(k, ul_kx_index_const(k, low), start);
    ul_kx to_high = ul_kx_sub(k, ul_kx_index_const(k, high), start);
    *first = ceil_div(k, to_low, pool->dilation[d]);
    ul_kx end = ul_kx_binary(k, UL_KX_MIN, ceil_div(k, to_high, pool->dilation[d]),
                             ul_kx_index_const(k, pool->kernel[d]));
    *count = ul_kx_binary(k, UL_KX_MAX, ul_kx_sub(k, end, *first), ul_kx_index_const(k, 0));
}

int64_t ul_pool_channels_at_once(int64_t channels)
{
    for (int64_t count = 64; count > 32; count -= 16) {
        if (channels % count == 0)
            return count;
    }
    return channels % 32 == 0 ? 32 : 64;
}

static void windows_open(struct windows *w, struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_type *out = ul_lower_output_type(lower, node, 0);
    w->input = ul_check_node(lower, node)->inputs[0];
    const char *error =
        ul_pool_read(ul_check_node(lower, node), ul_lower_input_type(lower, node, 0), &w->pool);
    UL_ASSERT(error == NULL);
    ul_value_id output = ul_check_node(lower, node)->outputs[0];
    uint32_t order[UL_LIMIT_RANK];
    ul_lower_order(lower, output, order);
    bool channels = order[out->rank - 1] == 1 && out->rank > 2;
    w->last = channels ? w->pool.count : w->pool.count - 1;
    ul_lanes_open_along(&w->lanes, lower, output, ul_lanes_all(out->rank),
                        channels ? 1 : out->rank - 1,
                        channels ? ul_pool_channels_at_once(out->dims[1]) : UL_LANES_MAX);
    for (uint32_t d = 0; d < w->last; d++) {
        w->first_tap[d] = ul_kx_index_const(k, 0);
        w->tap_count[d] = ul_kx_index_const(k, w->pool.kernel[d]);
        if (always_inside(&w->pool, d))
            continue;
        count_taps(k, &w->pool, d, w->lanes.index[d + 2], 0, w->pool.in[d], &w->first_tap[d],
                   &w->tap_count[d]);
        w->first_tap[d] = ul_ks_let(k, w->first_tap[d]);
        w->tap_count[d] = ul_ks_let(k, w->tap_count[d]);
    }
    w->index[0] = w->lanes.index[0];
    w->index[1] = w->lanes.index[1];
}

static ul_kx tap_coordinate(const struct windows *w, uint32_t d, ul_kx tap)
{
    struct ul_kernel *k = w->lanes.lower->kernel;
    const struct ul_pool *pool = &w->pool;
    ul_kx start =
        ul_kx_addi(k, ul_kx_muli(k, w->lanes.index[d + 2], pool->stride[d]), -pool->pad_begin[d]);
    return ul_kx_add(k, start, ul_kx_muli(k, tap, pool->dilation[d]));
}

static void set_number(struct windows *w, ul_kx number)
{
    struct ul_kernel *k = w->lanes.lower->kernel;
    if (w->numbers_taps)
        w->number = ul_ks_let(k, ul_kx_cast(k, UL_I32, number));
}

/* Opens the loops over taps and, innermost, over the lanes for which the tap is inside. */
static void taps_open(struct windows *w)
{
    struct ul_kernel *k = w->lanes.lower->kernel;
    const struct ul_pool *pool = &w->pool;
    ul_kx number = ul_kx_index_const(k, 0);
    for (uint32_t d = 0; d < w->last; d++) {
        ul_kx step = ul_ks_for_expr(k, w->tap_count[d], pool->kernel[d], 0);
        ul_kx tap = ul_kx_add(k, w->first_tap[d], step);
        w->index[d + 2] = ul_ks_let(k, tap_coordinate(w, d, tap));
        number = ul_kx_add(k, ul_kx_muli(k, number, pool->kernel[d]), tap);
    }
    if (w->last == pool->count) {
        set_number(w, number);
        ul_lanes_begin(&w->lanes);
        w->index[1] = w->lanes.index[1];
        return;
    }
    ul_kx tap = ul_ks_for(k, pool->kernel[w->last], 0);
    set_number(w, ul_kx_add(k, ul_kx_muli(k, number, pool->kernel[w->last]), tap));
    if (always_inside(pool, w->last)) {
        ul_lanes_begin(&w->lanes);
    } else {
        /* The outputs o with 0 <= o * stride + offset < in. */
        ul_kx offset =
            ul_kx_addi(k, ul_kx_muli(k, tap, pool->dilation[w->last]), -pool->pad_begin[w->last]);
        ul_kx minus = ul_kx_sub(k, ul_kx_index_const(k, 0), offset);
        ul_kx low = ceil_div(k, minus, pool->stride[w->last]);
        ul_kx high = ceil_div(k, ul_kx_addi(k, minus, pool->in[w->last]), pool->stride[w->last]);
        low =
            ul_kx_binary(k, UL_KX_MAX, ul_kx_sub(k, low, w->lanes.first), ul_kx_index_const(k, 0));
        high = ul_kx_binary(k, UL_KX_MIN, ul_kx_sub(k, high, w->lanes.first), w->lanes.count);
        ul_lanes_begin_range(&w->lanes, ul_ks_let(k, low), ul_ks_let(k, high));
    }
    w->index[w->last + 2] = tap_coordinate(w, w->last, tap);
}

static void taps_close(struct windows *w)
{
    ul_lanes_end(&w->lanes);
    for (uint32_t d = 0; d < w->pool.count; d++)
        ul_ks_end(w->lanes.lower->kernel);
}

/* max pool */

/* The tap's place in the input counted in elements, spatial dimensions in row-major or (storage
 * order 1) column-major order. */
static ul_kx flat_place(const struct windows *w, bool column_major)
{
    struct ul_kernel *k = w->lanes.lower->kernel;
    const struct ul_type *type = &w->lanes.lower->graph->values[w->input].type;
    int64_t size = ul_lanes_product(w->pool.in, w->pool.count, ul_lanes_all(w->pool.count));
    ul_kx plane = ul_kx_add(k, ul_kx_muli(k, w->index[0], type->dims[1]), w->index[1]);
    ul_kx place = ul_kx_index_const(k, 0);
    for (uint32_t i = 0; i < w->pool.count; i++) {
        uint32_t d = column_major ? w->pool.count - 1 - i : i;
        place = ul_kx_add(k, ul_kx_muli(k, place, w->pool.in[d]), w->index[d + 2]);
    }
    return ul_kx_add(k, ul_kx_muli(k, plane, size), place);
}

/* The first tap that lies inside, where it is the same in all lanes; -1 else. */
static ul_kx first_number(const struct windows *w)
{
    struct ul_kernel *k = w->lanes.lower->kernel;
    bool known = w->last == w->pool.count || always_inside(&w->pool, w->last);
    ul_kx number = ul_kx_index_const(k, 0);
    for (uint32_t d = 0; d < w->last; d++)
        number = ul_kx_add(k, ul_kx_muli(k, number, w->pool.kernel[d]), w->first_tap[d]);
    if (w->last < w->pool.count)
        number = ul_kx_muli(k, number, w->pool.kernel[w->last]);
    return known ? ul_kx_cast(k, UL_I32, number) : ul_kx_int(k, UL_I32, -1);
}

/* Finds the first of the largest elements, or the first NaN, and where it is: its place in the
 * input, or its tap. */
static void max_with_places(struct windows *w, struct ul_lane_var best, ul_node_id node)
{
    struct ul_lanes *lanes = &w->lanes;
    struct ul_lower *lower = lanes->lower;
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *data = ul_check_node(lower, node);
    bool column_major = ul_node_get_int(data, "storage_order", 0) != 0;
    enum ul_dtype dtype = w->numbers_taps ? UL_I32 : UL_I64;
    ul_kx first = w->numbers_taps ? first_number(w) : ul_kx_index_const(k, -1);
    int64_t fixed;
    struct ul_lane_var where = ul_lanes_var(lanes, dtype, first);
    taps_open(w);
    ul_kx x = ul_ks_let(k, ul_lower_load(lower, w->input, w->index));
    ul_kx old = ul_ks_let(k, ul_lanes_get(lanes, best));
    ul_kx place = ul_ks_let(k, ul_lanes_get(lanes, where));
    ul_kx better = ul_kx_unary(k, UL_KX_NOT, ul_kx_binary(k, UL_KX_LE, x, old)); /* or NaN */
    if (ul_dtype_get(best.dtype)->is_float)
        better = ul_kx_binary(k, UL_KX_AND, ul_kx_binary(k, UL_KX_EQ, old, old), better);
    if (ul_kx_is_int(k, first, &fixed) && fixed < 0) {
        ul_kx none = ul_kx_binary(k, UL_KX_LT, place, ul_kx_int(k, dtype, 0));
        better = ul_kx_binary(k, UL_KX_OR, none, better);
    }
    better = ul_ks_let(k, better);
    ul_lanes_set(lanes, best, ul_kx_select(k, better, x, old));
    ul_kx here = w->numbers_taps ? w->number : flat_place(w, column_major);
    ul_lanes_set(lanes, where, ul_kx_select(k, better, here, place));
    taps_close(w);
    /* A window without any tap names element 0, so that an operator that unpools it stays in
     * bounds. */
    ul_lanes_begin(lanes);
    ul_kx result = ul_kx_binary(k, UL_KX_MAX, ul_lanes_get(lanes, where), ul_kx_int(k, dtype, 0));
    ul_lower_store(lower, data->outputs[1], lanes->index, result);
    ul_lanes_end(lanes);
}

void ul_lower_max_pool(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    enum ul_dtype stored = ul_lower_input_type(lower, node, 0)->dtype;
    enum ul_dtype dtype = ul_compute_dtype(stored);
    /* Intermediate integers stay as narrow as in memory: more of them fit into a vector. */
    enum ul_dtype kept = ul_dtype_get(stored)->is_float ? dtype : stored;
    struct windows w = {.numbers_taps = ul_check_node(lower, node)->op == UL_OP_MaxPoolTaps};
    windows_open(&w, lower, node);
    ul_kx lowest = ul_kx_cast(k, dtype, ul_reduce_first_value(k, UL_REDUCE_LOWEST, kept));
    struct ul_lane_var best = ul_lanes_var(&w.lanes, kept, lowest);
    if (ul_lower_has_output(lower, node, 1)) {
        max_with_places(&w, best, node);
    } else {
        taps_open(&w);
        ul_kx x = ul_lower_load(lower, w.input, w.index);
        ul_lanes_set(&w.lanes, best, ul_kx_binary(k, UL_KX_MAX, ul_lanes_get(&w.lanes, best), x));
        taps_close(&w);
    }
    ul_lanes_begin(&w.lanes);
    ul_lower_store(lower, ul_check_node(lower, node)->outputs[0], w.lanes.index,
                   ul_lanes_get(&w.lanes, best));
    ul_lanes_end(&w.lanes);
    ul_lanes_close(&w.lanes);
}

/* average and Lp pool */

/* The number of taps of the window at the lanes' index that count: those inside the input, or
 * inside the padded input, which ceil_mode may leave. */
static ul_kx window_size(const struct windows *w, bool with_pad)
{
    struct ul_kernel *k = w->lanes.lower->kernel;
    const struct ul_pool *pool = &w->pool;
    ul_kx size = ul_kx_index_const(k, 1);
    for (uint32_t d = 0; d < pool->count; d++) {
        int64_t low = with_pad ? -pool->pad_begin[d] : 0;
        int64_t high = pool->in[d] + (with_pad ? pool->pad_end[d] : 0);
        int64_t reach = (pool->out[d] - 1) * pool->stride[d] - pool->pad_begin[d] +
                        (pool->kernel[d] - 1) * pool->dilation[d];
        ul_kx first;
        ul_kx count = ul_kx_index_const(k, pool->kernel[d]);
        if (reach >= high || -pool->pad_begin[d] < low)
            count_taps(k, pool, d, w->lanes.index[d + 2], low, high, &first, &count);
        size = ul_kx_mul(k, size, count);
    }
    return size;
}

void ul_lower_average_pool(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *data = ul_check_node(lower, node);
    enum ul_dtype dtype = ul_compute_dtype(ul_lower_input_type(lower, node, 0)->dtype);
    struct windows w = {.numbers_taps = false};
    windows_open(&w, lower, node);
    struct ul_lane_var sum = ul_lanes_var(&w.lanes, dtype, ul_kx_float(k, dtype, 0.0));
    taps_open(&w);
    ul_kx x = ul_lower_load(lower, w.input, w.index);
    ul_lanes_set(&w.lanes, sum, ul_kx_add(k, ul_lanes_get(&w.lanes, sum), x));
    taps_close(&w);
    ul_lanes_begin(&w.lanes);
    bool with_pad = ul_node_get_int(data, "count_include_pad", 0) != 0;
    /* A window that is all padding averages to 0. */
    ul_kx size = ul_kx_binary(k, UL_KX_MAX, window_size(&w, with_pad), ul_kx_index_const(k, 1));
    size = ul_kx_cast(k, dtype, size);
    ul_lower_store(lower, data->outputs[0], w.lanes.index,
                   ul_kx_binary(k, UL_KX_DIV, ul_lanes_get(&w.lanes, sum), size));
    ul_lanes_end(&w.lanes);
    ul_lanes_close(&w.lanes);
}

void ul_lower_lp_pool(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *data = ul_check_node(lower, node);
    enum ul_dtype dtype = ul_compute_dtype(ul_lower_input_type(lower, node, 0)->dtype);
    double p = (double)ul_node_get_int(data, "p", 2);
    struct windows w = {.numbers_taps = false};
    windows_open(&w, lower, node);
    struct ul_lane_var sum = ul_lanes_var(&w.lanes, dtype, ul_kx_float(k, dtype, 0.0));
    taps_open(&w);
    ul_kx x = ul_ks_let(k, ul_lower_load(lower, w.input, w.index));
    ul_lanes_set(&w.lanes, sum,
                 ul_kx_add(k, ul_lanes_get(&w.lanes, sum), ul_reduce_power(k, x, p)));
    taps_close(&w);
    ul_lanes_begin(&w.lanes);
    ul_lower_store(lower, data->outputs[0], w.lanes.index,
                   ul_reduce_root(k, ul_lanes_get(&w.lanes, sum), p));
    ul_lanes_end(&w.lanes);
    ul_lanes_close(&w.lanes);
}

/* over everything */

static void lower_global(struct ul_lower *lower, ul_node_id node, const struct ul_reduce_rule *rule)
{
    uint32_t rank = ul_lower_input_type(lower, node, 0)->rank;
    ul_reduce_lower(lower, node, ul_lanes_all(rank) & ~3u, true, rule);
}

void ul_lower_global_max_pool(struct ul_lower *lower, ul_node_id node)
{
    lower_global(lower, node, &ul_reduce_max_rule);
}

void ul_lower_global_average_pool(struct ul_lower *lower, ul_node_id node)
{
    lower_global(lower, node, &ul_reduce_mean_rule);
}

void ul_lower_global_lp_pool(struct ul_lower *lower, ul_node_id node)
{
    struct ul_reduce_rule rule = ul_reduce_norm_rule;
    rule.p = (double)ul_node_get_int(ul_check_node(lower, node), "p", 2);
    lower_global(lower, node, &rule);
}
