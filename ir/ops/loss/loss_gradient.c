/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of losses. */
#include "ir/op_names.h"
#include "ir/ops/loss/loss.def"

#include <string.h>

/* Targets as the losses see them. */
struct targets {
    struct ul_type type;
    ul_value_id classes; /* 0 in place of ignored ones */
    ul_value_id weights; /* of each target, 0 where it is ignored; UL_NONE: all are 1 */
};

static struct targets read_targets(struct ul_gradient *gradient)
{
    const struct ul_attr *ignore = ul_node_find_attr(ul_gradient_node(gradient), "ignore_index");
    ul_value_id scores = ul_gradient_input(gradient, 0), weights = ul_gradient_input(gradient, 2);
    struct targets t = {.classes = ul_gradient_input(gradient, 1), .weights = UL_NONE};
    enum ul_dtype dtype = ul_gradient_type(gradient, scores).dtype;
    ul_value_id none = UL_NONE;
    t.type = ul_gradient_type(gradient, t.classes);
    if (ignore != NULL) {
        ul_value_id number =
            ul_build_number(gradient->graph, "", t.type.dtype, 0, (double)ignore->i);
        none = ul_build_binary(&gradient->build, UL_OP_Equal, t.classes, number);
        number = ul_build_number(gradient->graph, "", t.type.dtype, 0, 0);
        t.classes = ul_build_choose(&gradient->build, none, number, t.classes);
    }
    if (weights != UL_NONE)
        t.weights = ul_build_binary(&gradient->build, UL_OP_Gather, weights, t.classes);
    if (none == UL_NONE)
        return t;
    if (weights != UL_NONE)
        t.weights = ul_build_choose(&gradient->build, none,
                                    ul_build_number_like(&gradient->build, scores, 0), t.weights);
    else
        t.weights = ul_build_cast(&gradient->build,
                                  ul_build_unary(&gradient->build, UL_OP_Not, none), dtype);
    return t;
}

/* The sum of the weights of all targets, which a mean is divided by. */
static ul_value_id total_weight(struct ul_gradient *gradient, const struct targets *t,
                                enum ul_dtype dtype)
{
    struct ul_type scalar = {.dtype = dtype, .rank = 0};
    if (t->weights == UL_NONE)
        return ul_build_number(gradient->graph, "", dtype, 0, (double)ul_type_elements(&t->type));
    ul_value_id sum = ul_build_sum(&gradient->build, t->weights, (1u << t->type.rank) - 1);
    return ul_build_reshape_to(&gradient->build, sum, &scalar);
}

static bool is_mean(const struct ul_gradient *gradient)
{
    const char *reduction = ul_node_get_string(ul_gradient_node(gradient), "reduction", "mean");
    return strcmp(reduction, "mean") == 0;
}

/* -weight of each target at its class, zeros elsewhere. */
enum ul_status ul_gradient_nll(struct ul_gradient *gradient)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, 0));
    struct targets t = read_targets(gradient);
    struct ul_type row = type;
    ul_value_id g = ul_build_unary(&gradient->build, UL_OP_Neg, ul_gradient_of(gradient, 0));
    row.dims[1] = 1;
    if (is_mean(gradient))
        g = ul_build_binary(&gradient->build, UL_OP_Div, g, total_weight(gradient, &t, type.dtype));
    if (t.weights != UL_NONE)
        g = ul_build_binary(&gradient->build, UL_OP_Mul, g, t.weights);
    t.type.dtype = type.dtype;
    g = ul_build_reshape_to(&gradient->build, ul_build_expand(&gradient->build, g, &t.type), &row);
    const ul_value_id inputs[3] = {ul_build_zeros(&gradient->build, &type),
                                   ul_build_reshape_to(&gradient->build, t.classes, &row), g};
    ul_node_id node = ul_build_node(&gradient->build, UL_OP_ScatterElements, inputs, 3, 1);
    ul_node_set_int(gradient->graph, node, "axis", 1);
    ul_gradient_give(gradient, 0, ul_build_infer(&gradient->build, node));
    return UL_OK;
}

/* Gives the gradient of the second result, the logarithms of probabilities. */
static void give_logarithms(struct ul_gradient *gradient)
{
    const ul_value_id inputs[2] = {ul_gradient_of(gradient, 1), ul_gradient_output(gradient, 1)};
    ul_node_id node = ul_build_node(&gradient->build, UL_OP_LogSoftmaxGradient, inputs, 2, 1);
    ul_node_set_int(gradient->graph, node, "axis", 1);
    ul_gradient_give(gradient, 0, ul_build_infer(&gradient->build, node));
}

enum ul_status ul_gradient_cross_entropy(struct ul_gradient *gradient)
{
    ul_value_id scores = ul_gradient_input(gradient, 0), g = ul_gradient_of(gradient, 0);
    if (ul_gradient_of(gradient, 1) != UL_NONE)
        give_logarithms(gradient);
    if (g == UL_NONE)
        return UL_OK;
    if (is_mean(gradient)) {
        struct targets t = read_targets(gradient);
        enum ul_dtype dtype = ul_gradient_type(gradient, scores).dtype;
        g = ul_build_binary(&gradient->build, UL_OP_Div, g, total_weight(gradient, &t, dtype));
    }
    const ul_value_id inputs[4] = {scores, ul_gradient_input(gradient, 1),
                                   ul_gradient_input(gradient, 2), g};
    const struct ul_node old = *ul_gradient_node(gradient);
    ul_node_id node = ul_build_node(&gradient->build, UL_OP_CrossEntropyGradient, inputs, 4, 1);
    for (uint32_t i = 0; i < old.attr_count; i++)
        if (strcmp(old.attrs[i].name, "reduction") != 0)
            ul_node_set_attr(gradient->graph, node, &old.attrs[i]);
    ul_gradient_give(gradient, 0, ul_build_infer(&gradient->build, node));
    return UL_OK;
}
