/* LRN (division by the squares of neighbouring channels) and LpNormalization. */
#include "ir/ops/norm.h"

#include "ir/ops/check.h"
#include "ir/ops/lanes.h"
#include "ir/ops/reduce.h"

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

/* x^beta; 3/4, which the networks that use LRN have, without a call of pow. */
static ul_kx power(struct ul_kernel *k, ul_kx x, double beta)
{
    if (beta == 1.0)
        return x;
    if (beta != 0.5 && beta != 0.75)
        return ul_kx_binary(k, UL_KX_POW, x, ul_kx_float(k, ul_kx_dtype(k, x), beta));
    ul_kx root = ul_kx_unary(k, UL_KX_SQRT, x);
    return beta == 0.5 ? root : ul_kx_mul(k, root, ul_kx_unary(k, UL_KX_SQRT, root));
}

/* Adds the squares of channels max(0, c - (size-1)/2) to min(C-1, c + size/2). */
static void add_squares(struct ul_lanes *lanes, ul_value_id input, int64_t size,
                        struct ul_lane_var sum)
{
    struct ul_kernel *k = lanes->lower->kernel;
    int64_t channels = lanes->dims[1];
    int64_t below = (size - 1) / 2 < channels ? (size - 1) / 2 : channels;
    int64_t above = size / 2 < channels ? size / 2 : channels;
    ul_kx channel = lanes->index[1];
    ul_kx low = ul_ks_let(
        k, ul_kx_binary(k, UL_KX_MAX, ul_kx_addi(k, channel, -below), ul_kx_index_const(k, 0)));
    ul_kx high = ul_kx_binary(k, UL_KX_MIN, ul_kx_addi(k, channel, above + 1),
                              ul_kx_index_const(k, channels));
    ul_kx count = ul_ks_let(k, ul_kx_sub(k, high, low));
    ul_kx step = ul_ks_for_expr(k, count, below + above + 1,
                                lanes->lane_dim == UL_NONE ? UL_FOR_REDUCE : 0u);
    lanes->index[1] = ul_ks_let(k, ul_kx_add(k, low, step));
    ul_lanes_begin(lanes);
    ul_kx x = ul_ks_let(k, ul_lower_load(lanes->lower, input, lanes->index));
    ul_lanes_set(lanes, sum, ul_kx_add(k, ul_lanes_get(lanes, sum), ul_kx_mul(k, x, x)));
    ul_lanes_end(lanes);
    ul_ks_end(k);
    lanes->index[1] = channel;
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
    ul_lanes_open(&lanes, lower, type->rank, type->dims, ul_lanes_all(type->rank),
                  type->rank > 2 ? type->rank - 1 : UL_NONE);
    struct ul_lane_var sum = ul_lanes_var(&lanes, dtype, ul_kx_float(k, dtype, 0.0));
    add_squares(&lanes, data->inputs[0], size, sum);
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
    ul_lanes_open(&lanes, lower, type->rank, type->dims, kept,
                  ul_lanes_pick(type->rank, type->dims, kept));
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
