/* Gradients of pooling. The place of a window's largest element is found again in the input, so
 * that no places are kept; averages and norms add up what the windows that hold an element have. */
#include "ir/ops/pool.h"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/lanes.h"

#include <math.h>
#include <string.h>

/* ---- The largest ---- */

enum { X, GRADIENT };

#define OF_CHANNEL 3u /* dimensions: image, channel */

enum ul_status ul_infer_max_pool_gradient(struct ul_infer *infer)
{
    const struct ul_type *x = ul_infer_input(infer, X);
    struct ul_pool pool;
    UL_TRY(ul_check_dtype(infer, X, UL_CHECK_FLOATS));
    UL_TRY(ul_check_same_dtype(infer, X, GRADIENT));
    const char *error = ul_pool_read(infer->node, x, &pool);
    if (error != NULL)
        return ul_infer_invalid(infer, "%s", error);
    int64_t dims[UL_LIMIT_RANK] = {x->dims[0], x->dims[1]};
    memcpy(dims + 2, pool.out, pool.count * sizeof *dims);
    UL_TRY(ul_check_shape(infer, GRADIENT, x->rank, dims));
    return ul_infer_same(infer);
}

/* Windows of several channels that lie side by side, or one: the largest element so far, and where
 * it is. */
struct windows {
    struct ul_lower *lower;
    const struct ul_node *node;
    struct ul_pool pool;
    struct ul_lanes lanes;
    struct ul_lane_var best, place[UL_POOL_DIMS];
};

static void open_windows(struct windows *w)
{
    struct ul_kernel *k = w->lower->kernel;
    const struct ul_type *type = &w->lower->graph->values[w->node->inputs[GRADIENT]].type;
    enum ul_dtype dtype = ul_compute_dtype(type->dtype);
    uint32_t order[UL_LIMIT_RANK];
    ul_lower_order(w->lower, w->node->outputs[0], order);
    ul_lanes_open_order(&w->lanes, w->lower, type->rank, type->dims, order, OF_CHANNEL);
    ul_lanes_loop(&w->lanes, ul_lanes_all(type->rank) & ~OF_CHANNEL, 0); /* they meet */
    w->best = ul_lanes_var(&w->lanes, dtype, ul_kx_float(k, dtype, -(double)INFINITY));
    for (uint32_t d = 0; d < w->pool.count; d++)
        w->place[d] = ul_lanes_var(&w->lanes, UL_I32, ul_kx_int(k, UL_I32, -1));
}

/* The first of the largest, or the first NaN, in the order in which MaxPool looks. */
static void find_largest(struct windows *w)
{
    struct ul_kernel *k = w->lower->kernel;
    ul_kx at[UL_LIMIT_RANK] = {w->lanes.index[0]}, place[UL_POOL_DIMS];
    for (uint32_t d = 0; d < w->pool.count; d++) {
        ul_kx first, count, o = w->lanes.index[d + 2];
        ul_pool_taps(k, &w->pool, d, o, 0, w->pool.in[d], &first, &count);
        ul_kx tap = ul_kx_add(k, first, ul_ks_for_expr(k, count, w->pool.kernel[d], 0));
        ul_kx start = ul_kx_addi(k, ul_kx_muli(k, o, w->pool.stride[d]), -w->pool.pad_begin[d]);
        at[d + 2] = ul_ks_let(k, ul_kx_add(k, start, ul_kx_muli(k, tap, w->pool.dilation[d])));
        place[d] = ul_ks_let(k, ul_kx_cast(k, UL_I32, at[d + 2]));
    }
    ul_lanes_begin(&w->lanes);
    at[1] = w->lanes.index[1];
    ul_kx x = ul_ks_let(k, ul_lower_load(w->lower, w->node->inputs[X], at));
    ul_kx old = ul_ks_let(k, ul_lanes_get(&w->lanes, w->best));
    ul_kx old_place = ul_lanes_get(&w->lanes, w->place[0]);
    ul_kx none = ul_kx_binary(k, UL_KX_LT, old_place, ul_kx_int(k, UL_I32, 0));
    ul_kx is_number = ul_kx_binary(k, UL_KX_EQ, old, old);
    ul_kx above = ul_kx_unary(k, UL_KX_NOT, ul_kx_binary(k, UL_KX_LE, x, old)); /* or NaN */
    ul_kx better = ul_kx_binary(k, UL_KX_AND, is_number, above);
    better = ul_ks_let(k, ul_kx_binary(k, UL_KX_OR, none, better));
    ul_lanes_set(&w->lanes, w->best, ul_kx_select(k, better, x, old));
    for (uint32_t d = 0; d < w->pool.count; d++) {
        ul_kx kept = ul_lanes_get(&w->lanes, w->place[d]);
        ul_lanes_set(&w->lanes, w->place[d], ul_kx_select(k, better, place[d], kept));
    }
    ul_lanes_end(&w->lanes);
    for (uint32_t d = 0; d < w->pool.count; d++)
        ul_ks_end(k);
}

/* The largest element takes what its window hands on. */
static void hand_on(struct windows *w)
{
    struct ul_kernel *k = w->lower->kernel;
    ul_kx index[UL_LIMIT_RANK];
    ul_lanes_begin(&w->lanes);
    ul_kx found = ul_lanes_get(&w->lanes, w->place[0]);
    ul_ks_if(k, ul_kx_binary(k, UL_KX_LE, ul_kx_int(k, UL_I32, 0), found));
    memcpy(index, w->lanes.index, sizeof index);
    for (uint32_t d = 0; d < w->pool.count; d++) {
        ul_kx place = ul_kx_cast(k, UL_I64, ul_lanes_get(&w->lanes, w->place[d]));
        index[d + 2] = ul_kx_clamp(k, place, 0, w->pool.in[d] - 1);
    }
    ul_kx g = ul_lower_load(w->lower, w->node->inputs[GRADIENT], w->lanes.index);
    ul_kx old = ul_ks_let(k, ul_lower_load_output(w->lower, w->node->outputs[0], index));
    ul_lower_store(w->lower, w->node->outputs[0], index, ul_kx_add(k, old, g));
    ul_ks_end(k);
    ul_lanes_end(&w->lanes);
}

void ul_lower_max_pool_gradient(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_type *type = ul_lower_input_type(lower, node, X);
    struct windows w = {.lower = lower, .node = ul_check_node(lower, node)};
    ul_kx index[UL_LIMIT_RANK];
    const char *error = ul_pool_read(w.node, type, &w.pool);
    UL_ASSERT(error == NULL);
    ul_lower_open_as(lower, w.node->outputs[0], type->dims, index);
    ul_lower_store(lower, w.node->outputs[0], index,
                   ul_kx_float(k, ul_compute_dtype(type->dtype), 0.0));
    ul_lower_close(lower, type->rank);
    if (ul_type_elements(ul_lower_input_type(lower, node, GRADIENT)) == 0)
        return;
    open_windows(&w);
    find_largest(&w);
    hand_on(&w);
    ul_lanes_loop_end(&w.lanes, ul_lanes_all(type->rank) & ~OF_CHANNEL);
    ul_lanes_close(&w.lanes);
}

enum ul_status ul_gradient_max_pool(struct ul_gradient *gradient)
{
    const ul_value_id inputs[2] = {ul_gradient_input(gradient, 0), ul_gradient_of(gradient, 0)};
    ul_node_id node = ul_gradient_begin_like(gradient, UL_OP_MaxPoolGradient, inputs, 2, 1);
    ul_gradient_give(gradient, 0, ul_gradient_infer(gradient, node));
    return UL_OK;
}

/* ---- Sums over the windows that an element is in ---- */

/* The type of what was pooled: input_size are its spatial dimensions. */
static bool pooled_type(const struct ul_node *node, const struct ul_type *g, struct ul_type *x)
{
    uint32_t count = 0;
    const int64_t *sizes = ul_node_get_ints(node, "input_size", &count);
    *x = *g;
    if (g->rank < 3 || count != g->rank - 2)
        return false;
    memcpy(x->dims + 2, sizes, count * sizeof *sizes);
    return ul_type_in_limits(x);
}

enum ul_status ul_infer_unpool_sum(struct ul_infer *infer)
{
    const struct ul_type *g = ul_infer_input(infer, 0);
    struct ul_type x;
    struct ul_pool pool;
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_FLOATS));
    if (!pooled_type(infer->node, g, &x))
        return ul_infer_invalid(infer, "input_size gives no shape");
    const char *error = ul_pool_read(infer->node, &x, &pool);
    if (error != NULL)
        return ul_infer_invalid(infer, "%s", error);
    if (memcmp(pool.out, g->dims + 2, pool.count * sizeof *pool.out) != 0)
        return ul_infer_invalid(infer, "the windows over input_size do not give input 0");
    ul_infer_set_type(infer, 0, &x);
    return UL_OK;
}

/* Opens a loop over the windows o of dimension d that have a tap at element `at`. */
static ul_kx open_holders(struct ul_kernel *k, const struct ul_pool *pool, uint32_t d, ul_kx at)
{
    int64_t reach = (pool->kernel[d] - 1) * pool->dilation[d], stride = pool->stride[d];
    ul_kx zero = ul_kx_index_const(k, 0);
    ul_kx end = ul_kx_addi(k, at, pool->pad_begin[d]); /* the first tap of the last window */
    ul_kx first = ul_kx_divi(
        k, ul_kx_binary(k, UL_KX_MAX, ul_kx_addi(k, end, stride - 1 - reach), zero), stride);
    ul_kx last = ul_kx_binary(k, UL_KX_MIN, ul_kx_divi(k, end, stride),
                              ul_kx_index_const(k, pool->out[d] - 1));
    ul_kx count = ul_kx_addi(k, ul_kx_sub(k, last, first), 1);
    count = ul_kx_binary(k, UL_KX_MAX, count, zero);
    ul_kx o = ul_ks_let(
        k, ul_kx_add(k, first, ul_ks_for_expr(k, ul_ks_let(k, count), reach / stride + 1, 0)));
    o = ul_kx_clamp(k, o, 0, pool->out[d] - 1);
    if (pool->dilation[d] > 1) {
        ul_kx away = ul_kx_sub(k, end, ul_kx_muli(k, o, stride));
        ul_ks_if(k, ul_kx_binary(k, UL_KX_EQ, ul_kx_modi(k, away, pool->dilation[d]), zero));
    }
    return o;
}

void ul_lower_unpool_sum(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *data = ul_check_node(lower, node);
    const struct ul_type *type = ul_lower_output_type(lower, node, 0);
    enum ul_dtype dtype = ul_compute_dtype(type->dtype);
    struct ul_pool pool;
    ul_kx index[UL_LIMIT_RANK], from[UL_LIMIT_RANK];
    const char *error = ul_pool_read(data, type, &pool);
    UL_ASSERT(error == NULL);
    ul_lower_open_as(lower, data->outputs[0], type->dims, index);
    memcpy(from, index, sizeof from);
    uint32_t sum = ul_ks_var(k, dtype, ul_kx_float(k, dtype, 0.0));
    for (uint32_t d = 0; d < pool.count; d++)
        from[d + 2] = open_holders(k, &pool, d, index[d + 2]);
    ul_kx g = ul_lower_load(lower, data->inputs[0], from);
    ul_ks_set(k, sum, ul_kx_add(k, ul_kx_var(k, sum), g));
    for (uint32_t d = 0; d < pool.count; d++) {
        if (pool.dilation[d] > 1)
            ul_ks_end(k);
        ul_ks_end(k);
    }
    ul_lower_store(lower, data->outputs[0], index, ul_kx_var(k, sum));
    ul_lower_close(lower, type->rank);
}

static ul_value_id sum_holders(struct ul_gradient *gradient, ul_value_id g)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, 0));
    ul_node_id node = ul_gradient_begin_like(gradient, UL_OP_UnpoolSum, &g, 1, 1);
    ul_node_set_ints(gradient->graph, node, "input_size", type.dims + 2, type.rank - 2);
    return ul_gradient_infer(gradient, node);
}

/* Elements that a window's average is over, along one dimension. */
static int64_t count_taps(const struct ul_pool *pool, uint32_t d, int64_t o, bool with_pad)
{
    int64_t low = with_pad ? -pool->pad_begin[d] : 0, count = 0;
    int64_t high = pool->in[d] + (with_pad ? pool->pad_end[d] : 0);
    for (int64_t t = 0; t < pool->kernel[d]; t++) {
        int64_t at = o * pool->stride[d] - pool->pad_begin[d] + t * pool->dilation[d];
        count += low <= at && at < high;
    }
    return count;
}

enum ul_status ul_gradient_average_pool(struct ul_gradient *gradient)
{
    const struct ul_node *node = ul_gradient_node(gradient);
    struct ul_type type = ul_gradient_type(gradient, node->inputs[0]);
    bool with_pad = ul_node_get_int(node, "count_include_pad", 0) != 0;
    struct ul_pool pool;
    const char *error = ul_pool_read(node, &type, &pool);
    UL_ASSERT(error == NULL);
    ul_value_id g = ul_gradient_of(gradient, 0);
    for (uint32_t d = 0; d < pool.count; d++) {
        struct ul_type sizes = {.dtype = type.dtype, .rank = pool.count - d, .dims = {pool.out[d]}};
        double *numbers = UL_NEW_ARRAY(gradient->scratch, double, (uint64_t)pool.out[d] + 1);
        for (int64_t o = 0; o < pool.out[d]; o++) {
            int64_t count = count_taps(&pool, d, o, with_pad);
            numbers[o] = (double)(count > 0 ? count : 1);
        }
        for (uint32_t i = 1; i < sizes.rank; i++)
            sizes.dims[i] = 1;
        g = ul_gradient_binary(gradient, UL_OP_Div, g,
                               ul_gradient_constant(gradient, &sizes, numbers));
    }
    ul_gradient_give(gradient, 0, sum_holders(gradient, g));
    return UL_OK;
}

/* The row's texts: what a window hands on, and what an element takes of it. */
enum ul_status ul_gradient_lp_pool(struct ul_gradient *gradient)
{
    ul_value_id g = ul_gradient_expression(gradient, 0, ul_gradient_of(gradient, 0));
    g = sum_holders(gradient, g);
    ul_gradient_give(gradient, 0, ul_gradient_expression(gradient, 1, g));
    return UL_OK;
}
