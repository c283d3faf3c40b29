/* Gradients of reductions: every element has its share of that of the result. */
#include "ir/ops/hooks.h"

#include "ir/ops/reduce.h"

/* The result's gradient with the reduced dimensions as 1. */
static ul_value_id kept_dims(struct ul_gradient *gradient, ul_value_id g, double *count)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, 0));
    struct ul_type whole = type;
    uint32_t mask = ul_reduce_mask(gradient->graph, ul_gradient_node(gradient));
    *count = 1;
    for (uint32_t d = 0; d < type.rank; d++) {
        if ((mask & 1u << d) == 0)
            continue;
        *count *= (double)type.dims[d];
        whole.dims[d] = 1;
    }
    return ul_gradient_reshape(gradient, g, &whole);
}

enum ul_status ul_gradient_reduce_sum(struct ul_gradient *gradient)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, 0));
    bool is_mean = ul_gradient_node(gradient)->op == UL_OP_ReduceMean;
    double count;
    ul_value_id g = kept_dims(gradient, ul_gradient_of(gradient, 0), &count);
    if (is_mean)
        g = ul_gradient_scale(gradient, g, 1 / count);
    ul_gradient_give(gradient, 0, ul_gradient_expand(gradient, g, &type));
    return UL_OK;
}
