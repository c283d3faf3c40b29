/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient rules of the attention family.
 *
 * A target that forms attention's gradient in tiles makes the scores again in each pass. It also
 * needs two numbers for each query: the norm and the sum of P dP. The forward pass can store the
 * norm, and the sum of P dP equals the sum of g Y, so that no pass over all keys has to find them.
 * That is done only where the backward pass reads the result Y anyway, for its product with trained
 * weights: else Y would have to be kept, which costs more memory than the time is worth. */
#include "ir/op_names.h"
#include "ir/ops/attention/attention.def"
#include "ir/ops/attention/attention_backward.h"

enum { MASKS = 2 };
static const uint32_t masks[MASKS] = {UL_ATTENTION_MASK, UL_ATTENTION_BIAS};

/* Gives the smallest shape that has the gradients of the wanted masks: [batch, heads, queries,
 * keys], with 1 for either of the first two that all share. Returns false if no mask is wanted. */
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

/* Whether the mask covers all keys: those after its end would be hidden. */
static bool is_whole(const struct ul_gradient *gradient, uint32_t mask, int64_t keys)
{
    if (!ul_gradient_wanted(gradient, mask))
        return true;
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, mask));
    return type.dims[type.rank - 1] == keys || type.dims[type.rank - 1] == 1;
}

/* Whether the backward pass reads the value as it is, with the same dimensions or with others. */
static bool is_kept(const struct ul_gradient *gradient, ul_value_id value)
{
    const struct ul_graph *graph = gradient->graph;
    bool *is_same = UL_NEW_ARRAY(gradient->scratch, bool, graph->value_count);
    is_same[value] = true;
    for (uint32_t p = 0; p < ul_graph_only_root(graph)->node_count; p++) {
        const struct ul_node *node = &graph->nodes[ul_graph_only_root(graph)->nodes[p]];
        bool reads = false;
        for (uint32_t i = 0; i < node->input_count; i++)
            reads = reads || (node->inputs[i] != UL_NONE && is_same[node->inputs[i]]);
        if (!reads)
            continue;
        if ((graph->values[node->outputs[0]].flags & UL_VALUE_BACKWARD) != 0)
            return true;
        if ((ul_op_get(node->op)->flags & UL_OP_RESHAPES) != 0)
            is_same[node->outputs[0]] = true;
    }
    return false;
}

/* Whether the target forms this gradient in tiles, and the forward pass can store the statistics
 * for it. */
static bool has_statistics(const struct ul_gradient *gradient, const struct ul_attention *a)
{
    const struct ul_node *node = ul_gradient_node(gradient);
    int64_t max = gradient->traits->gradient_size;
    bool is_saved = node->op == UL_OP_FusedAttention && node->output_count > UL_ATTENTION_NORMS;
    return (gradient->build.flags & UL_VALUE_BACKWARD) != 0 && a->size <= max &&
           a->value_size <= max && a->size > 0 && a->value_size > 0 && a->queries > 0 &&
           a->keys > 0 && ul_gradient_type(gradient, node->inputs[0]).dtype != UL_F64 &&
           (node->output_count == 1 || is_saved) && is_kept(gradient, node->outputs[0]);
}

/* Gives the norms of queries. The forward pass stores them from now on. */
static ul_value_id save_norms(struct ul_gradient *gradient, const struct ul_attention *a)
{
    struct ul_graph *graph = gradient->graph;
    const int64_t dims[] = {a->batch, a->heads, a->queries};
    ul_node_id node = gradient->node;
    if (graph->nodes[node].output_count > UL_ATTENTION_NORMS)
        return graph->nodes[node].outputs[UL_ATTENTION_NORMS];
    graph->nodes[node].op = UL_OP_FusedAttention;
    ul_node_set_int(graph, node, "empty_is_zero", a->empty == UL_EMPTY_IS_ZERO);
    ul_value_id norms = ul_graph_add_output(graph, node);
    graph->values[norms].type = ul_type_make(UL_F32, 3, dims);
    return norms;
}

/* Gives the sum of g Y for each query, in f32. */
static ul_value_id sum_results(struct ul_gradient *gradient, const struct ul_attention *a,
                               ul_value_id g)
{
    ul_value_id y = ul_gradient_output(gradient, 0);
    struct ul_type type = ul_gradient_type(gradient, y);
    uint32_t element = 3;
    if (a->is_flat) {
        const int64_t dims[] = {a->batch, a->queries, a->heads, a->value_size};
        type = ul_type_make(type.dtype, 4, dims);
        y = ul_build_reshape_to(&gradient->build, y, &type);
        g = ul_build_reshape_to(&gradient->build, g, &type);
    } else {
        for (uint32_t d = 0; d < 4; d++)
            element = a->order[d] == 3 ? d : element;
    }
    if (type.dtype != UL_F32) {
        y = ul_build_cast(&gradient->build, y, UL_F32);
        g = ul_build_cast(&gradient->build, g, UL_F32);
    }
    return ul_build_sum(&gradient->build, ul_build_binary(&gradient->build, UL_OP_Mul, g, y),
                        1u << element);
}

enum ul_status ul_gradient_attention(struct ul_gradient *gradient)
{
    ul_value_id inputs[UL_ATTENTION_GRADIENT_INPUTS];
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
    inputs[UL_ATTENTION_GRADIENT] = ul_gradient_of(gradient, 0);
    for (uint32_t i = 0; i < UL_ATTENTION_INPUTS; i++)
        types[i] = inputs[i] != UL_NONE ? &gradient->graph->values[inputs[i]].type : NULL;
    const char *wrong = ul_attention_read(&a, ul_gradient_node(gradient), types);
    UL_ASSERT(wrong == NULL);
    bool has_mask = wants_mask(gradient, &a, mask);
    if (!is_whole(gradient, UL_ATTENTION_MASK, a.keys) ||
        !is_whole(gradient, UL_ATTENTION_BIAS, a.keys))
        return ul_gradient_unsupported(gradient, "its mask is trained and shorter than the keys");
    ul_op_id op = has_mask ? UL_OP_MaskedAttentionGradient : UL_OP_AttentionGradient;
    uint32_t count = UL_ATTENTION_GIVEN_NORMS;
    if (!has_mask && has_statistics(gradient, &a)) {
        inputs[count++] = save_norms(gradient, &a);
        inputs[count++] = sum_results(gradient, &a, inputs[UL_ATTENTION_GRADIENT]);
    }
    ul_node_id node = ul_gradient_begin_like(gradient, op, inputs, count, has_mask ? 4 : 3);
    if (has_mask)
        ul_node_set_ints(gradient->graph, node, "ul_mask", mask, 4);
    ul_node_set_int(gradient->graph, node, "empty_is_zero", a.empty == UL_EMPTY_IS_ZERO);
    if (a.drops) {
        const struct ul_node old = *ul_gradient_node(gradient);
        ul_op_copy_seed(gradient->graph, node, &old);
    }
    (void)ul_build_infer(&gradient->build, node);
    const ul_value_id *made = gradient->graph->nodes[node].outputs;
    for (uint32_t i = 0; i < 3; i++)
        if (ul_gradient_wanted(gradient, i))
            ul_gradient_give(gradient, i, made[i]);
    for (uint32_t i = 0; i < MASKS && has_mask; i++)
        if (ul_gradient_wanted(gradient, masks[i]))
            ul_gradient_give_broadcast(gradient, masks[i], made[UL_ATTENTION_MASK_GRADIENT]);
    return UL_OK;
}

/* Turns positions back by the same angles. */
enum ul_status ul_gradient_rotary(struct ul_gradient *gradient)
{
    ul_value_id inputs[4];
    uint32_t count = ul_gradient_node(gradient)->input_count;
    for (uint32_t i = 1; i < count; i++)
        inputs[i] = ul_gradient_input(gradient, i);
    inputs[0] = ul_gradient_of(gradient, 0);
    inputs[2] = ul_build_unary(&gradient->build, UL_OP_Neg, inputs[2]);
    ul_node_id node = ul_gradient_begin_like(gradient, UL_OP_RotaryEmbedding, inputs, count, 1);
    ul_gradient_give(gradient, 0, ul_build_infer(&gradient->build, node));
    return UL_OK;
}
