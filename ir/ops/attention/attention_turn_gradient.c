/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient rule of FusedRotary. */
#include "ir/gradient.h"
#include "ir/op_names.h"
#include "ir/ops/attention/attention.def"
#include "ir/ops/attention/attention.h"

/* The pairs of FusedRotary as an axis of two: [rows, 2, pairs], or [rows, pairs, 2]. */
static ul_value_id by_pairs(struct ul_gradient *gradient, ul_value_id value, bool is_interleaved)
{
    struct ul_type type = ul_gradient_type(gradient, value);
    struct ul_type split = {.dtype = type.dtype, .rank = 3, .dims = {1}};
    int64_t pairs = type.dims[type.rank - 1] / 2;
    for (uint32_t d = 0; d + 1 < type.rank; d++)
        split.dims[0] *= type.dims[d];
    split.dims[1] = is_interleaved ? pairs : 2;
    split.dims[2] = is_interleaved ? 2 : pairs;
    return ul_build_reshape_to(&gradient->build, value, &split);
}

/* Exchanges the two elements of each pair; a factor that has one element for both stays as it
 * is. */
static ul_value_id swap_pairs(struct ul_gradient *gradient, ul_value_id factor, int64_t size,
                              bool is_interleaved)
{
    struct ul_type type = ul_gradient_type(gradient, factor);
    uint32_t axis = is_interleaved ? 2 : 1;
    if (type.rank == 0 || type.dims[type.rank - 1] != size)
        return factor;
    ul_value_id split = by_pairs(gradient, factor, is_interleaved);
    const ul_value_id sides[2] = {ul_build_slice(&gradient->build, split, axis, 1, 2),
                                  ul_build_slice(&gradient->build, split, axis, 0, 1)};
    return ul_build_reshape_to(&gradient->build,
                               ul_build_concat(&gradient->build, sides, 2, axis, NULL), &type);
}

/* Gives cos or sin its gradient: where a factor has one element for each pair, it takes the sum of
 * both. */
static void give_factor(struct ul_gradient *gradient, uint32_t input, ul_value_id share,
                        bool is_interleaved)
{
    struct ul_type type = ul_gradient_type(gradient, share);
    struct ul_type factor = ul_gradient_type(gradient, ul_gradient_input(gradient, input));
    if (ul_turn_is_paired(&factor, &type)) {
        ul_value_id split = by_pairs(gradient, share, is_interleaved);
        type.dims[type.rank - 1] /= 2;
        split = ul_build_sum(&gradient->build, split, is_interleaved ? 1u << 2 : 1u << 1);
        share = ul_build_reshape_to(&gradient->build, split, &type);
    }
    ul_gradient_give_broadcast(gradient, input, share);
}

/* With R the turn of each pair by a right angle, whose transpose is -R:
 *
 *      y = x cos + (R x) sin,   dx = g cos - R (g sin) = g cos + (R g) sin',
 *      dcos = g x,              dsin = g (R x)
 *
 * where sin' is -sin with the two elements of each pair changed about. */
enum ul_status ul_gradient_turn(struct ul_gradient *gradient)
{
    const ul_value_id x = ul_gradient_input(gradient, 0), g = ul_gradient_of(gradient, 0);
    const ul_value_id cosine = ul_gradient_input(gradient, 1),
                      sine = ul_gradient_input(gradient, 2);
    struct ul_type type = ul_gradient_type(gradient, x);
    bool is_interleaved = ul_node_get_int(ul_gradient_node(gradient), "interleaved", 0) != 0;
    if (ul_gradient_wanted(gradient, 0)) {
        ul_value_id back = swap_pairs(gradient, sine, type.dims[type.rank - 1], is_interleaved);
        const ul_value_id inputs[3] = {g, cosine,
                                       ul_build_unary(&gradient->build, UL_OP_Neg, back)};
        ul_node_id node = ul_gradient_begin_like(gradient, UL_OP_FusedRotary, inputs, 3, 1);
        ul_gradient_give(gradient, 0, ul_build_infer(&gradient->build, node));
    }
    if (ul_gradient_wanted(gradient, 1))
        give_factor(gradient, 1, ul_build_binary(&gradient->build, UL_OP_Mul, g, x),
                    is_interleaved);
    if (ul_gradient_wanted(gradient, 2)) {
        const ul_value_id inputs[3] = {x, ul_build_number_like(&gradient->build, x, 0),
                                       ul_build_number_like(&gradient->build, x, 1)};
        ul_node_id node = ul_gradient_begin_like(gradient, UL_OP_FusedRotary, inputs, 3, 1);
        ul_value_id turned = ul_build_infer(&gradient->build, node);
        give_factor(gradient, 2, ul_build_binary(&gradient->build, UL_OP_Mul, g, turned),
                    is_interleaved);
    }
    return UL_OK;
}
