/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of normalisations that smaller operators can express: by given statistics, by
 * neighbouring channels, by a norm. */
#include "ir/op_names.h"
#include "ir/ops/norm/norm.h"

#include "ir/ops/check.h"

/* ---- BatchNormalization with given statistics: a map ---- */

/* A vector of channels, repeated along the dimensions after them. */
static ul_value_id per_channel(struct ul_gradient *gradient, ul_value_id value, uint32_t rank,
                               enum ul_dtype dtype)
{
    struct ul_type type = ul_gradient_type(gradient, value), shape = {.dtype = type.dtype};
    shape.rank = rank > 1 ? rank - 1 : 1;
    shape.dims[0] = type.dims[0];
    for (uint32_t d = 1; d < shape.rank; d++)
        shape.dims[d] = 1;
    value = ul_build_reshape_to(&gradient->build, value, &shape);
    return type.dtype != dtype ? ul_build_cast(&gradient->build, value, dtype) : value;
}

static void give_channels(struct ul_gradient *gradient, uint32_t input, ul_value_id share)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, input));
    struct ul_type from = ul_gradient_type(gradient, share);
    uint32_t all = (1u << from.rank) - 1, mask = from.rank > 1 ? all & ~2u : all;
    share =
        ul_build_reshape_to(&gradient->build, ul_build_sum(&gradient->build, share, mask), &type);
    if (from.dtype != type.dtype)
        share = ul_build_cast(&gradient->build, share, type.dtype);
    ul_gradient_give(gradient, input, share);
}

enum ul_status ul_gradient_batch_norm(struct ul_gradient *gradient)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, 0));
    double epsilon = ul_node_get_float(ul_gradient_node(gradient), "epsilon", (double)1e-5f);
    ul_value_id g = ul_gradient_of(gradient, 0), x = ul_gradient_input(gradient, 0);
    ul_value_id in[5];
    for (uint32_t i = 1; i < 5; i++)
        in[i] = per_channel(gradient, ul_gradient_input(gradient, i), type.rank, type.dtype);
    ul_value_id deviation =
        ul_build_unary(&gradient->build, UL_OP_Sqrt,
                       ul_build_binary(&gradient->build, UL_OP_Add, in[4],
                                       ul_build_number_like(&gradient->build, in[4], epsilon)));
    if (ul_gradient_wanted(gradient, 2))
        give_channels(gradient, 2, g);
    g = ul_build_binary(&gradient->build, UL_OP_Div, g, deviation);
    if (ul_gradient_wanted(gradient, 1)) {
        x = ul_build_binary(&gradient->build, UL_OP_Sub, x, in[3]);
        give_channels(gradient, 1, ul_build_binary(&gradient->build, UL_OP_Mul, g, x));
    }
    if (ul_gradient_wanted(gradient, 0))
        ul_gradient_give(gradient, 0, ul_build_binary(&gradient->build, UL_OP_Mul, g, in[1]));
    return UL_OK;
}

/* ---- LRN ---- */

/* The sum over neighbouring channels, divided by `size`: an average that includes its padding. */
static ul_value_id average_near(struct ul_gradient *gradient, ul_value_id value, int64_t size,
                                bool turned)
{
    struct ul_type type = ul_gradient_type(gradient, value), plane = type;
    int64_t below = (size - 1) / 2, above = size / 2;
    const int64_t kernel[2] = {size, 1};
    const int64_t pads[4] = {turned ? above : below, 0, turned ? below : above, 0};
    plane.rank = 4;
    plane.dims[0] = type.dims[0];
    plane.dims[1] = 1;
    plane.dims[2] = type.dims[1];
    plane.dims[3] = 1;
    for (uint32_t d = 2; d < type.rank; d++)
        plane.dims[3] *= type.dims[d];
    value = ul_build_reshape_to(&gradient->build, value, &plane);
    ul_node_id node = ul_build_node(&gradient->build, UL_OP_AveragePool, &value, 1, 1);
    ul_node_set_ints(gradient->graph, node, "kernel_shape", kernel, 2);
    ul_node_set_ints(gradient->graph, node, "pads", pads, 4);
    ul_node_set_int(gradient->graph, node, "count_include_pad", 1);
    return ul_build_reshape_to(&gradient->build, ul_build_infer(&gradient->build, node), &type);
}

static ul_value_id power(struct ul_gradient *gradient, ul_value_id base, double exponent)
{
    return ul_build_binary(&gradient->build, UL_OP_Pow, base,
                           ul_build_number_like(&gradient->build, base, exponent));
}

/* With d = bias + alpha * average of x^2:
 *     dx = g d^-beta - 2 alpha beta x * average of g x d^(-beta - 1) */
enum ul_status ul_gradient_lrn(struct ul_gradient *gradient)
{
    const struct ul_node *node = ul_gradient_node(gradient);
    int64_t size = ul_node_get_int(node, "size", 1);
    double alpha = ul_node_get_float(node, "alpha", (double)1e-4f);
    double beta = ul_node_get_float(node, "beta", 0.75);
    double bias = ul_node_get_float(node, "bias", 1.0);
    ul_value_id g = ul_gradient_of(gradient, 0), x = ul_gradient_input(gradient, 0);
    ul_value_id square = ul_build_binary(&gradient->build, UL_OP_Mul, x, x);
    ul_value_id near = average_near(gradient, square, size, false);
    ul_value_id d =
        ul_build_binary(&gradient->build, UL_OP_Add, ul_build_scale(&gradient->build, near, alpha),
                        ul_build_number_like(&gradient->build, x, bias));
    ul_value_id term = ul_build_binary(&gradient->build, UL_OP_Mul, g, x);
    term = ul_build_binary(&gradient->build, UL_OP_Mul, term, power(gradient, d, -beta - 1));
    term = average_near(gradient, term, size, true);
    term = ul_build_binary(&gradient->build, UL_OP_Mul, x,
                           ul_build_scale(&gradient->build, term, 2 * alpha * beta));
    ul_value_id own = ul_build_binary(&gradient->build, UL_OP_Mul, g, power(gradient, d, -beta));
    ul_gradient_give(gradient, 0, ul_build_binary(&gradient->build, UL_OP_Sub, own, term));
    return UL_OK;
}

/* ---- LpNormalization ---- */

/* With y = x / n: dx = (g - dn * sum of g y) / n, where dn is y for the square norm and the sign of
 * x for the sum of magnitudes; dx is 0 where the norm is 0. */
enum ul_status ul_gradient_lp_norm(struct ul_gradient *gradient)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, 0));
    const struct ul_node *node = ul_gradient_node(gradient);
    bool is_square = ul_node_get_int(node, "p", 2) == 2;
    const int64_t axis = ul_check_get_axis(ul_node_get_int(node, "axis", -1), type.rank);
    ul_value_id g = ul_gradient_of(gradient, 0), y = ul_gradient_output(gradient, 0);
    ul_value_id x = ul_gradient_input(gradient, 0);
    ul_value_id norm =
        ul_build_binary(&gradient->build, is_square ? UL_OP_ReduceL2 : UL_OP_ReduceL1, x,
                        ul_build_ints(gradient->graph, "", 1, &axis));
    ul_value_id zero = ul_build_number_like(&gradient->build, x, 0);
    ul_value_id sum = ul_build_sum(&gradient->build,
                                   ul_build_binary(&gradient->build, UL_OP_Mul, g, y), 1u << axis);
    ul_value_id dn = is_square ? y : ul_build_unary(&gradient->build, UL_OP_Sign, x);
    ul_value_id share = ul_build_binary(&gradient->build, UL_OP_Sub, g,
                                        ul_build_binary(&gradient->build, UL_OP_Mul, dn, sum));
    ul_value_id none = ul_build_binary(&gradient->build, UL_OP_Equal, norm, zero);
    share = ul_build_binary(&gradient->build, UL_OP_Div, share, norm);
    ul_gradient_give(gradient, 0, ul_build_choose(&gradient->build, none, zero, share));
    return UL_OK;
}
