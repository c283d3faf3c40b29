/* Gradient rules of the attention family. */
#include "ir/ops/attention.h"

enum ul_status ul_gradient_attention(struct ul_gradient *gradient)
{
    ul_value_id inputs[UL_ATTENTION_INPUTS + 1];
    for (uint32_t i = 0; i < UL_ATTENTION_INPUTS; i++)
        inputs[i] = ul_gradient_input(gradient, i);
    if (inputs[UL_ATTENTION_PAST_K] != UL_NONE)
        return ul_gradient_unsupported(gradient, "has a cache of keys, which is for inference");
    for (uint32_t i = 1; i < 4; i++)
        if (ul_gradient_of(gradient, i) != UL_NONE)
            return ul_gradient_unsupported(gradient, "its scores and caches as results have no "
                                                     "gradient rule");
    if (ul_gradient_wanted(gradient, UL_ATTENTION_MASK) ||
        ul_gradient_wanted(gradient, UL_ATTENTION_BIAS))
        return ul_gradient_unsupported(gradient, "its mask has no gradient rule; --freeze what the "
                                                 "mask is made from");
    inputs[UL_ATTENTION_INPUTS] = ul_gradient_of(gradient, 0);
    ul_node_id node = ul_gradient_begin_like(gradient, UL_OP_AttentionGradient, inputs,
                                             UL_ATTENTION_INPUTS + 1, 3);
    (void)ul_gradient_infer(gradient, node);
    for (uint32_t i = 0; i < 3; i++)
        if (ul_gradient_wanted(gradient, i))
            ul_gradient_give(gradient, i, gradient->graph->nodes[node].outputs[i]);
    return UL_OK;
}

/* Positions are turned back by the same angles. */
enum ul_status ul_gradient_rotary(struct ul_gradient *gradient)
{
    ul_value_id inputs[4];
    uint32_t count = ul_gradient_node(gradient)->input_count;
    for (uint32_t i = 1; i < count; i++)
        inputs[i] = ul_gradient_input(gradient, i);
    inputs[0] = ul_gradient_of(gradient, 0);
    inputs[2] = ul_gradient_unary(gradient, UL_OP_Neg, inputs[2]);
    ul_node_id node = ul_gradient_begin_like(gradient, UL_OP_RotaryEmbedding, inputs, count, 1);
    ul_gradient_give(gradient, 0, ul_gradient_infer(gradient, node));
    return UL_OK;
}
