/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient rules of the attention family. */
#include "ir/ops/attention_backward.h"

enum { MASKS = 2 };
static const uint32_t masks[MASKS] = {UL_ATTENTION_MASK, UL_ATTENTION_BIAS};

/* The least shape that has the gradients of the masks that are wanted: [batch, heads, queries,
 * keys], where one is for all 1 in place of the first two. False: none is wanted. */
static bool wants_mask(const struct ul_gradient *gradient, const struct ul_attention *a,
                       int64_t shape[4])
{
    bool wanted = false;
    shape[0] = shape[1] = 1;
    shape[2] = a->queries;
    shape[3] = a->keys;
    for (uint32_t i = 0; i < MASKS; i++) {
        if (!ul_gradient_wanted(gradient, masks[i]))
            continue;
        struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, masks[i]));
        wanted = true;
        if (type.rank == 4 && type.dims[0] > 1)
            shape[0] = a->batch;
        if (type.rank >= 3 && type.dims[type.rank - 3] > 1)
            shape[1] = a->heads;
    }
    return wanted;
}

/* Keys behind the end of a mask are hidden. */
static bool is_whole(const struct ul_gradient *gradient, uint32_t mask, int64_t keys)
{
    if (!ul_gradient_wanted(gradient, mask))
        return true;
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, mask));
    return type.dims[type.rank - 1] == keys || type.dims[type.rank - 1] == 1;
}

enum ul_status ul_gradient_attention(struct ul_gradient *gradient)
{
    ul_value_id inputs[UL_ATTENTION_INPUTS + 1];
    const struct ul_type *types[UL_ATTENTION_INPUTS];
    struct ul_attention a;
    int64_t mask[4];
    for (uint32_t i = 0; i < UL_ATTENTION_INPUTS; i++)
        inputs[i] = ul_gradient_input(gradient, i);
    if (inputs[UL_ATTENTION_PAST_K] != UL_NONE)
        return ul_gradient_unsupported(gradient, "has a cache of keys, which is for inference");
    for (uint32_t i = 1; i < 4; i++)
        if (ul_gradient_of(gradient, i) != UL_NONE)
            return ul_gradient_unsupported(gradient, "its scores and caches as results have no "
                                                     "gradient rule");
    inputs[UL_ATTENTION_INPUTS] = ul_gradient_of(gradient, 0);
    for (uint32_t i = 0; i < UL_ATTENTION_INPUTS; i++)
        types[i] = inputs[i] != UL_NONE ? &gradient->graph->values[inputs[i]].type : NULL;
    const char *wrong = ul_attention_read(&a, ul_gradient_node(gradient), types);
    UL_ASSERT(wrong == NULL);
    bool has_mask = wants_mask(gradient, &a, mask);
    if (!is_whole(gradient, UL_ATTENTION_MASK, a.keys) ||
        !is_whole(gradient, UL_ATTENTION_BIAS, a.keys))
        return ul_gradient_unsupported(gradient, "its mask is trained and shorter than the keys");
    enum ul_op op = has_mask ? UL_OP_MaskedAttentionGradient : UL_OP_AttentionGradient;
    ul_node_id node =
        ul_gradient_begin_like(gradient, op, inputs, UL_ATTENTION_INPUTS + 1, has_mask ? 4 : 3);
    if (has_mask)
        ul_node_set_ints(gradient->graph, node, "ul_mask", mask, 4);
    ul_node_set_int(gradient->graph, node, "empty_is_zero", a.empty == UL_EMPTY_IS_ZERO);
    if (a.drops) {
        const struct ul_node old = *ul_gradient_node(gradient);
        ul_op_copy_seed(gradient->graph, node, &old);
    }
    (void)ul_gradient_infer(gradient, node);
    const ul_value_id *made = gradient->graph->nodes[node].outputs;
    for (uint32_t i = 0; i < 3; i++)
        if (ul_gradient_wanted(gradient, i))
            ul_gradient_give(gradient, i, made[i]);
    for (uint32_t i = 0; i < MASKS && has_mask; i++)
        if (ul_gradient_wanted(gradient, masks[i]))
            ul_gradient_give_broadcast(gradient, masks[i], made[UL_ATTENTION_MASK_GRADIENT]);
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
