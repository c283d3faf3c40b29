/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of TopK goes back to where the elements were. */
#include "ir/op_names.h"
#include "ir/ops/sort/sort.def"

#include "ir/ops/check.h"

enum ul_status ul_gradient_top_k(struct ul_gradient *gradient)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, 0));
    const struct ul_node *node = ul_gradient_node(gradient);
    uint32_t axis = ul_check_get_axis(ul_node_get_int(node, "axis", -1), type.rank);
    ul_value_id places = ul_gradient_output(gradient, 1);
    if (places == UL_NONE) {
        const ul_value_id inputs[2] = {node->inputs[0], node->inputs[1]};
        ul_node_id again =
            ul_gradient_begin_like(gradient, ul_gradient_node(gradient)->op, inputs, 2, 2);
        (void)ul_build_infer(&gradient->build, again);
        places = gradient->graph->nodes[again].outputs[1];
    }
    const ul_value_id inputs[3] = {ul_build_zeros(&gradient->build, &type), places,
                                   ul_gradient_of(gradient, 0)};
    if (inputs[2] == UL_NONE)
        return UL_OK;
    ul_node_id made = ul_build_node(&gradient->build, UL_OP_ScatterElements, inputs, 3, 1);
    ul_node_set_int(gradient->graph, made, "axis", axis);
    ul_gradient_give(gradient, 0, ul_build_infer(&gradient->build, made));
    return UL_OK;
}
