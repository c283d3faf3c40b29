/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of pooling: each element gets what the windows that hold it pass on. Windows of MaxPool
 * pass it on to the tap that the forward pass found; averages and norms pass it on to all taps. */
#include "ir/op_names.h"
#include "ir/ops/backward.def"
#include "ir/ops/pool/pool.h"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/lanes.h"

#include <string.h>

enum { GRADIENT, TAPS };

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
    const struct ul_type *g = ul_infer_input(infer, GRADIENT);
    struct ul_type x;
    struct ul_pool pool;
    UL_TRY(ul_check_dtype(infer, GRADIENT, UL_CHECK_FLOATS));
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

enum ul_status ul_infer_max_pool_gradient(struct ul_infer *infer)
{
    const struct ul_type *g = ul_infer_input(infer, GRADIENT);
    UL_TRY(ul_check_dtype(infer, TAPS, UL_CHECK_BIT(UL_U8) | UL_CHECK_BIT(UL_I32)));
    UL_TRY(ul_check_shape(infer, TAPS, g->rank, g->dims));
    return ul_infer_unpool_sum(infer);
}

/* Opens a loop over the windows o of dimension d that have a tap at element `at`; `tap` is which of
 * their taps that is. */
static ul_kx open_holders(struct ul_kernel *k, const struct ul_pool *pool, uint32_t d, ul_kx at,
                          ul_kx *tap)
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
    o = ul_kx_clamp(k, o, pool->out[d] - 1);
    ul_kx away = ul_kx_sub(k, end, ul_kx_muli(k, o, stride));
    if (pool->dilation[d] > 1)
        ul_ks_if(k, ul_kx_binary(k, UL_KX_EQ, ul_kx_modi(k, away, pool->dilation[d]), zero));
    *tap = ul_kx_divi(k, away, pool->dilation[d]);
    return o;
}

/* What each window at `from` passes on: to the tap that it names, where it names one. */
static ul_kx handed_on(struct ul_lower *lower, const struct ul_node *node, const ul_kx *from,
                       ul_kx tap)
{
    struct ul_kernel *k = lower->kernel;
    ul_kx g = ul_lower_load(lower, node->inputs[GRADIENT], from);
    if (node->op != UL_OP_MaxPoolGradient)
        return g;
    ul_kx named = ul_kx_cast(k, UL_I32, ul_lower_load(lower, node->inputs[TAPS], from));
    enum ul_dtype dtype = ul_compute_dtype(lower->graph->values[node->inputs[GRADIENT]].type.dtype);
    return ul_kx_select(k, ul_kx_binary(k, UL_KX_EQ, named, tap), g, ul_kx_float(k, dtype, 0.0));
}

/* Opens lanes of channels where these are side by side, otherwise one element at a time. */
static void open_elements(struct ul_lanes *lanes, struct ul_lower *lower, ul_value_id value)
{
    const struct ul_type *type = &lower->graph->values[value].type;
    uint32_t order[UL_LIMIT_RANK];
    ul_lower_order(lower, value, order);
    bool channels = order[type->rank - 1] == 1;
    ul_lanes_open_along(lanes, lower, value, ul_lanes_all(type->rank), channels ? 1 : UL_NONE,
                        ul_pool_channels_at_once(type->dims[1]));
}

void ul_lower_unpool(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *data = ul_check_node(lower, node);
    const struct ul_type *type = ul_lower_output_type(lower, node, 0);
    enum ul_dtype dtype = ul_compute_dtype(type->dtype);
    struct ul_lanes lanes;
    struct ul_pool pool;
    ul_kx from[UL_LIMIT_RANK], flat = ul_kx_index_const(k, 0), tap;
    const char *error = ul_pool_read(data, type, &pool);
    UL_ASSERT(error == NULL);
    open_elements(&lanes, lower, data->outputs[0]);
    struct ul_lane_var sum = ul_lanes_var(&lanes, dtype, ul_kx_float(k, dtype, 0.0));
    for (uint32_t d = 0; d < pool.count; d++) {
        from[d + 2] = open_holders(k, &pool, d, lanes.index[d + 2], &tap);
        flat = ul_kx_add(k, ul_kx_muli(k, flat, pool.kernel[d]), tap);
    }
    flat = ul_ks_let(k, ul_kx_cast(k, UL_I32, flat));
    ul_lanes_begin(&lanes);
    from[0] = lanes.index[0];
    from[1] = lanes.index[1];
    ul_kx share = handed_on(lower, data, from, flat);
    ul_lanes_set(&lanes, sum, ul_kx_add(k, ul_lanes_get(&lanes, sum), share));
    ul_lanes_end(&lanes);
    for (uint32_t d = 0; d < pool.count; d++) {
        if (pool.dilation[d] > 1)
            ul_ks_end(k);
        ul_ks_end(k);
    }
    ul_lanes_begin(&lanes);
    ul_lower_store(lower, data->outputs[0], lanes.index, ul_lanes_get(&lanes, sum));
    ul_lanes_end(&lanes);
    ul_lanes_close(&lanes);
}

static ul_value_id unpool(struct ul_gradient *gradient, ul_op_id op, const ul_value_id *inputs,
                          uint32_t input_count)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, 0));
    ul_node_id node = ul_gradient_begin_like(gradient, op, inputs, input_count, 1);
    ul_node_set_ints(gradient->graph, node, "input_size", type.dims + 2, type.rank - 2);
    return ul_build_infer(&gradient->build, node);
}

/* ---- The largest ---- */

/* Gives the taps that the forward pass found; where it counts places in the input, they are
 * searched for once more. */
static ul_value_id find_taps(struct ul_gradient *gradient)
{
    struct ul_graph *graph = gradient->graph;
    struct ul_node *node = &graph->nodes[gradient->node];
    ul_node_id taps = gradient->node;
    if (node->op == UL_OP_MaxPoolTaps)
        return node->outputs[1];
    if (node->output_count > 1)
        taps = ul_gradient_begin_like(gradient, UL_OP_MaxPoolTaps, node->inputs, 1, 2);
    else
        ul_graph_add_output(graph, taps);
    graph->nodes[taps].op = UL_OP_MaxPoolTaps;
    ul_build_infer(&gradient->build, taps);
    return graph->nodes[taps].outputs[1];
}

enum ul_status ul_gradient_max_pool(struct ul_gradient *gradient)
{
    const ul_value_id inputs[2] = {ul_gradient_of(gradient, 0), find_taps(gradient)};
    ul_gradient_give(gradient, 0, unpool(gradient, UL_OP_MaxPoolGradient, inputs, 2));
    return UL_OK;
}

/* ---- Averages and norms ---- */

/* The number of elements that a window's average is over, along one dimension. */
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
        g = ul_build_binary(&gradient->build, UL_OP_Div, g,
                            ul_build_numbers(&gradient->build, &sizes, numbers));
    }
    ul_gradient_give(gradient, 0, unpool(gradient, UL_OP_UnpoolSum, &g, 1));
    return UL_OK;
}

/* By the row's texts: what a window passes on, and what an element takes from it. */
enum ul_status ul_gradient_lp_pool(struct ul_gradient *gradient)
{
    ul_value_id g = ul_gradient_expression(gradient, 0, ul_gradient_of(gradient, 0));
    g = unpool(gradient, UL_OP_UnpoolSum, &g, 1);
    ul_gradient_give(gradient, 0, ul_gradient_expression(gradient, 1, g));
    return UL_OK;
}
