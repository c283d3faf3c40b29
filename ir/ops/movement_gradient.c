/* Gradients of movements: back where the elements came from; what was read more than once adds up.
 */
#include "ir/ops/hooks.h"

enum ul_status ul_gradient_reshape_of(struct ul_gradient *gradient)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, 0));
    ul_gradient_give(gradient, 0,
                     ul_gradient_reshape(gradient, ul_gradient_of(gradient, 0), &type));
    return UL_OK;
}

enum ul_status ul_gradient_transpose(struct ul_gradient *gradient)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, 0));
    int64_t back[UL_LIMIT_RANK];
    uint32_t count = 0;
    const int64_t *perm = ul_node_get_ints(ul_gradient_node(gradient), "perm", &count);
    for (uint32_t d = 0; d < type.rank; d++)
        back[count != 0 ? perm[d] : type.rank - 1 - d] = d;
    ul_value_id made = ul_build_transpose(&gradient->build, ul_gradient_of(gradient, 0), back);
    gradient->graph->values[made].flags |= UL_VALUE_BACKWARD;
    ul_gradient_give(gradient, 0, made);
    return UL_OK;
}
