/* Gradients of losses. */
#include "ir/ops/hooks.h"

#include <string.h>

/* The weights of all targets: what a mean is divided by. */
static ul_value_id total_weight(struct ul_gradient *gradient, ul_value_id scores)
{
    const struct ul_attr *ignore = ul_node_find_attr(ul_gradient_node(gradient), "ignore_index");
    ul_value_id targets = ul_gradient_input(gradient, 1), weights = ul_gradient_input(gradient, 2);
    struct ul_type type = ul_gradient_type(gradient, targets);
    enum ul_dtype dtype = ul_gradient_type(gradient, scores).dtype;
    ul_value_id none = UL_NONE, each = UL_NONE;
    if (ignore != NULL)
        none = ul_gradient_binary(
            gradient, UL_OP_Equal, targets,
            ul_build_number(gradient->graph, "", type.dtype, 0, (double)ignore->i));
    if (weights == UL_NONE && none == UL_NONE)
        return ul_build_number(gradient->graph, "", dtype, 0, (double)ul_type_elements(&type));
    if (weights != UL_NONE) {
        if (none != UL_NONE)
            targets = ul_gradient_choose(
                gradient, none, ul_build_number(gradient->graph, "", type.dtype, 0, 0), targets);
        each = ul_gradient_binary(gradient, UL_OP_Gather, weights, targets);
        if (none != UL_NONE)
            each =
                ul_gradient_choose(gradient, none, ul_gradient_number(gradient, scores, 0), each);
    } else {
        each = ul_gradient_cast_to(gradient, ul_gradient_unary(gradient, UL_OP_Not, none), dtype);
    }
    struct ul_type scalar = {.dtype = dtype, .rank = 0};
    return ul_gradient_reshape(gradient, ul_gradient_sum(gradient, each, (1u << type.rank) - 1),
                               &scalar);
}

enum ul_status ul_gradient_cross_entropy(struct ul_gradient *gradient)
{
    const char *reduction = ul_node_get_string(ul_gradient_node(gradient), "reduction", "mean");
    ul_value_id scores = ul_gradient_input(gradient, 0), g = ul_gradient_of(gradient, 0);
    bool is_mean = strcmp(reduction, "mean") == 0;
    if (ul_gradient_of(gradient, 1) != UL_NONE)
        return ul_gradient_unsupported(gradient, "its second output, the logarithms of "
                                                 "probabilities, has no gradient rule; use "
                                                 "LogSoftmax");
    if (g == UL_NONE)
        return UL_OK;
    if (is_mean)
        g = ul_gradient_binary(gradient, UL_OP_Div, g, total_weight(gradient, scores));
    const ul_value_id inputs[4] = {scores, ul_gradient_input(gradient, 1),
                                   ul_gradient_input(gradient, 2), g};
    const struct ul_node old = *ul_gradient_node(gradient);
    ul_node_id node = ul_gradient_begin(gradient, UL_OP_CrossEntropyGradient, inputs, 4, 1);
    for (uint32_t i = 0; i < old.attr_count; i++)
        if (strcmp(old.attrs[i].name, "reduction") != 0)
            ul_node_set_attr(gradient->graph, node, &old.attrs[i]);
    ul_gradient_give(gradient, 0, ul_gradient_infer(gradient, node));
    return UL_OK;
}
