/* SPDX-License-Identifier: Apache-2.0 */
/* LRN (division by the squares of neighbouring channels) and LpNormalization. */
#include "ir/ops/norm/norm.h"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/lanes.h"
#include "ir/ops/reduce/reduce.h"

#include <string.h>

enum ul_status ul_infer_lrn(struct ul_infer *infer)
{
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_FLOATS));
    UL_TRY(ul_check_rank(infer, 0, 2, UL_LIMIT_RANK));
    int64_t size = ul_node_get_int(infer->node, "size", 0);
    UL_TRY(ul_check_range(infer, "size", size, 1, UL_LIMIT_DIM));
    return ul_infer_same(infer);
}

enum ul_status ul_infer_lp_norm(struct ul_infer *infer)
{
    const struct ul_type *type = ul_infer_input(infer, 0);
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_FLOATS));
    uint32_t axis;
    UL_TRY(ul_infer_axis(infer, ul_node_get_int(infer->node, "axis", -1), type->rank, &axis));
    UL_TRY(ul_check_range(infer, "p", ul_node_get_int(infer->node, "p", 2), 1, 2));
    return ul_infer_same(infer);
}

/* x^beta; the exponent 3/4, which the networks that use LRN have, is computed without a call of
 * pow. */
static ul_kx power(struct ul_kernel *k, ul_kx x, double beta)
{
    if (beta == 1.0)
        return x;
    if (beta != 0.5 && beta != 0.75)
        return ul_kx_binary(k, UL_KX_POW, x, ul_kx_float(k, ul_kx_dtype(k, x), beta));
    ul_kx root = ul_kx_unary(k, UL_KX_SQRT, x);
    return beta == 0.5 ? root : ul_kx_mul(k, root, ul_kx_unary(k, UL_KX_SQRT, root));
}

/* Channels max(0, c - below) to min(C - 1, c + above). */
struct neighbours {
    int64_t below, above;
};

static void add_square(struct ul_lanes *lanes, ul_value_id input, const ul_kx *index,
                       struct ul_lane_var sum)
{
    struct ul_kernel *k = lanes->lower->kernel;
    ul_kx x = ul_ks_let(k, ul_lower_load(lanes->lower, input, index));
    ul_lanes_set(lanes, sum, ul_kx_add(k, ul_lanes_get(lanes, sum), ul_kx_mul(k, x, x)));
}

/* Adds the neighbours where lanes run along a dimension other than the channels. */
static void add_across(struct ul_lanes *lanes, ul_value_id input, const struct neighbours *near,
                       struct ul_lane_var sum)
{
    struct ul_kernel *k = lanes->lower->kernel;
    int64_t channels = lanes->dims[1];
    ul_kx channel = lanes->index[1];
    ul_kx low = ul_ks_let(k, ul_kx_binary(k, UL_KX_MAX, ul_kx_addi(k, channel, -near->below),
                                          ul_kx_index_const(k, 0)));
    ul_kx high = ul_kx_binary(k, UL_KX_MIN, ul_kx_addi(k, channel, near->above + 1),
                              ul_kx_index_const(k, channels));
    ul_kx count = ul_ks_let(k, ul_kx_sub(k, high, low));
    ul_kx step = ul_ks_for_expr(k, count, near->below + near->above + 1,
                                lanes->lane_dim == UL_NONE ? UL_FOR_REDUCE : 0u);
    lanes->index[1] = ul_ks_let(k, ul_kx_add(k, low, step));
    ul_lanes_begin(lanes);
    add_square(lanes, input, lanes->index, sum);
    ul_lanes_end(lanes);
    ul_ks_end(k);
    lanes->index[1] = channel;
}

/* Adds the neighbours where lanes are channels: to those whose neighbour at a distance exists. */
static void add_along(struct ul_lanes *lanes, ul_value_id input, const struct neighbours *near,
                      struct ul_lane_var sum)
{
    struct ul_kernel *k = lanes->lower->kernel;
    ul_kx step = ul_ks_for(k, near->below + near->above + 1, 0);
    ul_kx away = ul_ks_let(k, ul_kx_addi(k, step, -near->below));
    ul_kx first = ul_kx_add(k, lanes->first, away);
    ul_kx low = ul_kx_binary(k, UL_KX_MAX, ul_kx_sub(k, ul_kx_index_const(k, 0), first),
                             ul_kx_index_const(k, 0));
    ul_kx high = ul_kx_binary(
        k, UL_KX_MIN, ul_kx_sub(k, ul_kx_index_const(k, lanes->dims[1]), first), lanes->count);
    ul_lanes_begin_range(lanes, ul_ks_let(k, low), ul_ks_let(k, high));
    ul_kx index[UL_LIMIT_RANK];
    memcpy(index, lanes->index, sizeof index);
    index[1] = ul_kx_add(k, index[1], away);
    add_square(lanes, input, index, sum);
    ul_lanes_end(lanes);
    ul_ks_end(k);
}

void ul_lower_lrn(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *data = ul_check_node(lower, node);
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    enum ul_dtype dtype = ul_compute_dtype(type->dtype);
    int64_t size = ul_node_get_int(data, "size", 1);
    double alpha = ul_node_get_float(data, "alpha", (double)1e-4f) / (double)size;
    double bias = ul_node_get_float(data, "bias", 1.0);
    struct ul_lanes lanes;
    int64_t channels = type->dims[1];
    struct neighbours near = {(size - 1) / 2 < channels ? (size - 1) / 2 : channels,
                              size / 2 < channels ? size / 2 : channels};
    uint32_t order[UL_LIMIT_RANK];
    ul_lower_order(lower, data->outputs[0], order);
    ul_lanes_open_along(&lanes, lower, data->outputs[0], ul_lanes_all(type->rank),
                        type->rank > 2 ? order[type->rank - 1] : UL_NONE, UL_LANES_MAX);
    struct ul_lane_var sum = ul_lanes_var(&lanes, dtype, ul_kx_float(k, dtype, 0.0));
    if (lanes.lane_dim == 1)
        add_along(&lanes, data->inputs[0], &near, sum);
    else
        add_across(&lanes, data->inputs[0], &near, sum);
    ul_lanes_begin(&lanes);
    ul_kx scaled = ul_kx_mul(k, ul_lanes_get(&lanes, sum), ul_kx_float(k, dtype, alpha));
    ul_kx divisor = power(k, ul_kx_add(k, scaled, ul_kx_float(k, dtype, bias)),
                          ul_node_get_float(data, "beta", 0.75));
    ul_kx x = ul_lower_load(lower, data->inputs[0], lanes.index);
    ul_lower_store(lower, data->outputs[0], lanes.index, ul_kx_binary(k, UL_KX_DIV, x, divisor));
    ul_lanes_end(&lanes);
    ul_lanes_close(&lanes);
}

struct lp_term {
    ul_value_id input;
    double p;
};

static ul_kx load_power(struct ul_lanes *lanes, const void *context)
{
    const struct lp_term *term = context;
    struct ul_kernel *k = lanes->lower->kernel;
    ul_kx x = ul_lower_load(lanes->lower, term->input, lanes->index);
    return ul_reduce_power(k, ul_ks_let(k, x), term->p);
}

/* x / |x|_p along the axis; 0 where the norm is 0. */
void ul_lower_lp_norm(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *data = ul_check_node(lower, node);
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    enum ul_dtype dtype = ul_compute_dtype(type->dtype);
    struct lp_term term = {.input = data->inputs[0], .p = (double)ul_node_get_int(data, "p", 2)};
    uint32_t mask = 1u << ul_check_get_axis(ul_node_get_int(data, "axis", -1), type->rank);
    uint32_t kept = ul_lanes_all(type->rank) & ~mask;
    ul_kx zero = ul_kx_float(k, dtype, 0.0);
    struct ul_lanes lanes;
    ul_lanes_open(&lanes, lower, data->outputs[0], kept);
    struct ul_lane_var norm = ul_lanes_reduce(&lanes, mask, UL_KX_ADD, zero, load_power, &term);
    ul_lanes_begin(&lanes);
    ul_lanes_set(&lanes, norm, ul_reduce_root(k, ul_lanes_get(&lanes, norm), term.p));
    ul_lanes_end(&lanes);
    ul_lanes_loop(&lanes, mask, UL_FOR_PARALLEL);
    ul_lanes_begin(&lanes);
    ul_kx length = ul_lanes_get(&lanes, norm);
    ul_kx x = ul_lower_load(lower, data->inputs[0], lanes.index);
    ul_kx y = ul_kx_select(k, ul_kx_binary(k, UL_KX_EQ, length, zero), zero,
                           ul_kx_binary(k, UL_KX_DIV, x, length));
    ul_lower_store(lower, data->outputs[0], lanes.index, y);
    ul_lanes_end(&lanes);
    ul_lanes_loop_end(&lanes, mask);
    ul_lanes_close(&lanes);
}
