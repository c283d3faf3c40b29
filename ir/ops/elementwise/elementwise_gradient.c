/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of elementwise operators that the texts in their rows cannot state alone. */
#include "ir/op_names.h"
#include "ir/ops/elementwise/elementwise.def"

#include <string.h>

enum ul_status ul_gradient_gelu(struct ul_gradient *gradient)
{
    const char *approximate = ul_node_get_string(ul_gradient_node(gradient), "approximate", "none");
    uint32_t text = strcmp(approximate, "tanh") == 0 ? 1 : 0;
    ul_gradient_give(gradient, 0,
                     ul_gradient_expression(gradient, text, ul_gradient_of(gradient, 0)));
    return UL_OK;
}

/* Tells the sides apart by the result, whose sign a negative slope turns around. */
enum ul_status ul_gradient_leaky_relu(struct ul_gradient *gradient)
{
    double alpha = ul_node_get_float(ul_gradient_node(gradient), "alpha", 0.01);
    ul_gradient_give(
        gradient, 0,
        ul_gradient_expression(gradient, alpha < 0 ? 1 : 0, ul_gradient_of(gradient, 0)));
    return UL_OK;
}

/* Decided by the result: where it equals a bound, it cannot be told whether the input did, so no
 * gradient flows there. */
enum ul_status ul_gradient_clip(struct ul_gradient *gradient)
{
    bool has_low = ul_gradient_input(gradient, 1) != UL_NONE;
    bool has_high = ul_gradient_input(gradient, 2) != UL_NONE;
    ul_value_id g = ul_gradient_of(gradient, 0);
    if (!ul_gradient_wanted(gradient, 0))
        return UL_OK;
    if (has_low || has_high)
        g = ul_gradient_expression(gradient, has_low && has_high ? 0 : has_low ? 1 : 2, g);
    ul_gradient_give(gradient, 0, g);
    return UL_OK;
}

/* Sum and Mean: the gradient is the same for every input. */
enum ul_status ul_gradient_sum_of(struct ul_gradient *gradient)
{
    const struct ul_node *node = ul_gradient_node(gradient);
    uint32_t count = node->input_count;
    double factor = node->op == UL_OP_Mean ? 1.0 / count : 1.0;
    ul_value_id g = ul_gradient_of(gradient, 0);
    if (factor < 1.0)
        g = ul_build_scale(&gradient->build, g, factor);
    for (uint32_t i = 0; i < count; i++)
        if (ul_gradient_wanted(gradient, i))
            ul_gradient_give_broadcast(gradient, i, g);
    return UL_OK;
}

/* Where input i is the result, as a number: 1 or 0. */
static ul_value_id is_chosen(struct ul_gradient *gradient, uint32_t input, ul_value_id y)
{
    ul_value_id equal =
        ul_build_binary(&gradient->build, UL_OP_Equal, ul_gradient_input(gradient, input), y);
    return ul_build_cast(&gradient->build, equal, ul_gradient_type(gradient, y).dtype);
}

/* Max and Min: the gradient goes to the inputs that equal the result, in equal parts. */
enum ul_status ul_gradient_extremes(struct ul_gradient *gradient)
{
    uint32_t count = ul_gradient_node(gradient)->input_count;
    ul_value_id y = ul_gradient_output(gradient, 0), g = ul_gradient_of(gradient, 0), sum = UL_NONE;
    for (uint32_t i = 0; count > 1 && i < count; i++) {
        ul_value_id chosen = is_chosen(gradient, i, y);
        sum = sum == UL_NONE ? chosen : ul_build_binary(&gradient->build, UL_OP_Add, sum, chosen);
    }
    if (count > 1)
        g = ul_build_binary(&gradient->build, UL_OP_Div, g, sum);
    for (uint32_t i = 0; i < count; i++) {
        if (!ul_gradient_wanted(gradient, i))
            continue;
        ul_value_id share =
            count > 1 ? ul_build_binary(&gradient->build, UL_OP_Mul, g, is_chosen(gradient, i, y))
                      : g;
        ul_gradient_give_broadcast(gradient, i, share);
    }
    return UL_OK;
}

enum ul_status ul_gradient_cast(struct ul_gradient *gradient)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, 0));
    if (ul_gradient_wanted(gradient, 0))
        ul_gradient_give(gradient, 0,
                         ul_build_cast(&gradient->build, ul_gradient_of(gradient, 0), type.dtype));
    return UL_OK;
}
