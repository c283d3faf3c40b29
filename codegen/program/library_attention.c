/* SPDX-License-Identifier: Apache-2.0 */
/* Attention and its gradient as calls: queries, keys and values by strides, [batch, head, position,
 * element].
 *
 * Operands of rank 3 have their heads along the last axis; the result may be stored in another
 * order of axes (FusedAttention). Masks are floats that are added to scores:
 *
 *      mask [1, 1, q, k], or [k] and the like      [b, 1, q, k]: broadcast by dims of 1
 *
 * Left undone: caches of keys and values, lengths, masks of bool or shorter than the keys, a soft
 * cap, weights that are dropped, scores as a result; zeros where a query sees no key, unless no
 * mask or a constant one lets it always see one. Gradients are also left out with fewer heads of
 * keys than of queries, with results that nothing reads, or without norms. */
#include "codegen/program/library_internal.h"

#include "ir/geometry.h"

enum { RANK = 4 };

/* The axes of a flat tensor, [batch, position, head * element], or those of a split one. */
static bool describe_operand(struct ul_describer *describer, ul_value_id value, bool is_flat,
                             int64_t heads, struct ul_call_tensor *tensor)
{
    if (!ul_describe_tensor(describer->graph, value, tensor) ||
        tensor->rank != (is_flat ? RANK - 1 : RANK))
        return false;
    if (!is_flat)
        return true;
    int64_t size = tensor->dims[2] / heads, step = tensor->strides[2];
    tensor->rank = RANK;
    tensor->dims[3] = size;
    tensor->strides[3] = step;
    tensor->dims[2] = tensor->dims[1];
    tensor->strides[2] = tensor->strides[1];
    tensor->dims[1] = heads;
    tensor->strides[1] = size * step;
    return true;
}

/* Describes the result, or its gradient, which has the same layout. */
static bool describe_result(struct ul_describer *describer, const struct ul_attention *attention,
                            ul_value_id value, struct ul_call_tensor *dst)
{
    struct ul_call_tensor stored;
    if (!describe_operand(describer, value, attention->is_flat, attention->heads, &stored))
        return false;
    *dst = stored;
    for (uint32_t d = 0; !attention->is_flat && d < RANK; d++) {
        dst->dims[attention->order[d]] = stored.dims[d];
        dst->strides[attention->order[d]] = stored.strides[d];
    }
    return true;
}

/* Describes the norms, which a gradient reads: one f32 for each query, contiguous. */
static bool describe_norms(struct ul_describer *describer, ul_value_id value)
{
    struct ul_group_call *out = describer->out;
    struct ul_call_tensor *norms = &out->call.attention.norms;
    if (!ul_describe_tensor(describer->graph, value, norms) || norms->type != UL_CALL_F32 ||
        norms->rank != RANK - 1)
        return false;
    norms->rank = RANK;
    norms->dims[3] = norms->strides[3] = 1;
    ul_describe_finalize(norms, UL_CALL_ATTENTION);
    out->args[UL_CALL_ARG_NORMS] = value;
    out->arg_count = UL_CALL_ARG_NORMS + 1;
    return true;
}

/* Returns false for a mask that is not added to the scores of all keys. */
static bool describe_mask(struct ul_describer *describer, ul_value_id value, int64_t keys)
{
    struct ul_group_call *out = describer->out;
    struct ul_call_attention *attention = &out->call.attention;
    struct ul_call_tensor mask, *wide = &attention->masks[attention->mask_count];
    if (!ul_describe_tensor(describer->graph, value, &mask) || mask.rank > RANK ||
        mask.dims[mask.rank - 1] != keys)
        return false;
    uint32_t first = RANK - mask.rank;
    *wide = (struct ul_call_tensor){.rank = RANK, .type = mask.type};
    for (uint32_t d = 0; d < RANK; d++) {
        wide->dims[d] = d < first ? 1 : mask.dims[d - first];
        wide->strides[d] = d < first ? 0 : mask.strides[d - first];
    }
    ul_describe_finalize(wide, UL_CALL_ATTENTION);
    out->args[UL_CALL_ARG_MASKS + attention->mask_count++] = value;
    return true;
}

/* Whether the mask is constant, and lets each query see a key; where it is causal, one of the keys
 * before it. */
static bool leaves_keys(const struct ul_graph *graph, ul_value_id value, bool is_causal)
{
    const double finite = -6e4; /* in all types in which it may be stored */
    const struct ul_tensor *mask = ul_graph_get_constant(graph, value);
    if (mask == NULL || !ul_dtype_get(mask->type.dtype)->is_float)
        return false;
    uint64_t count = ul_type_elements(&mask->type);
    uint64_t row = mask->type.rank > 0 ? (uint64_t)mask->type.dims[mask->type.rank - 1] : 1;
    bool leaves = false;
    for (uint64_t i = 0; i < count; i++) {
        bool is_seen = ul_tensor_get_float(mask, i) > finite;
        leaves = (i % row > 0 && leaves) || is_seen;
        if ((is_causal && !is_seen) || ((i + 1) % row == 0 && !leaves))
            return false;
    }
    return true;
}

/* Whether the library's result is right where a query may see no key. */
static bool handles_empty(const struct ul_graph *graph, const struct ul_node *node,
                          const struct ul_attention *attention,
                          const struct ul_type *const types[UL_ATTENTION_INPUTS])
{
    if (attention->empty == UL_EMPTY_IS_NAN)
        return true;
    return types[UL_ATTENTION_BIAS] == NULL &&
           (types[UL_ATTENTION_MASK] == NULL ||
            leaves_keys(graph, node->inputs[UL_ATTENTION_MASK], attention->is_causal));
}

static bool is_supported(const struct ul_attention *attention,
                         const struct ul_type *const types[UL_ATTENTION_INPUTS])
{
    return types[UL_ATTENTION_PAST_K] == NULL && types[UL_ATTENTION_LENGTHS] == NULL &&
           attention->softcap == 0 && !attention->drops;
}

/* Describes the operands that attention and its gradient share. */
static bool describe_operands(struct ul_describer *describer, const struct ul_node *node,
                              struct ul_attention *a)
{
    const struct ul_graph *graph = describer->graph;
    struct ul_group_call *out = describer->out;
    struct ul_call *call = &out->call;
    const struct ul_type *types[UL_ATTENTION_INPUTS] = {NULL};
    for (uint32_t i = 0; i < node->input_count && i < UL_ATTENTION_INPUTS; i++)
        types[i] = node->inputs[i] == UL_NONE ? NULL : &graph->values[node->inputs[i]].type;
    if (ul_attention_read(a, node, types) != NULL || !is_supported(a, types) ||
        !handles_empty(graph, node, a, types) ||
        !describe_operand(describer, node->inputs[UL_ATTENTION_Q], a->is_flat, a->heads,
                          &call->src) ||
        !describe_operand(describer, node->inputs[UL_ATTENTION_K], a->is_flat, a->groups,
                          &call->weights) ||
        !describe_operand(describer, node->inputs[UL_ATTENTION_V], a->is_flat, a->groups,
                          &call->attention.values))
        return false;
    ul_describe_finalize(&call->weights, UL_CALL_ATTENTION);
    ul_describe_finalize(&call->attention.values, UL_CALL_ATTENTION);
    call->attention.scale = (float)a->scale;
    call->attention.is_causal = a->is_causal;
    out->args[UL_CALL_SRC] = node->inputs[UL_ATTENTION_Q];
    out->args[UL_CALL_WEIGHTS] = node->inputs[UL_ATTENTION_K];
    out->args[UL_CALL_ARG_VALUES] = node->inputs[UL_ATTENTION_V];
    static const enum ul_attention_input masks[] = {UL_ATTENTION_MASK, UL_ATTENTION_BIAS};
    for (uint32_t i = 0; i < UL_CALL_MASKS; i++) {
        if (types[masks[i]] != NULL && !describe_mask(describer, node->inputs[masks[i]], a->keys))
            return false;
    }
    out->arg_count = UL_CALL_ARG_MASKS + call->attention.mask_count;
    return true;
}

bool ul_describe_attention(struct ul_describer *describer, const struct ul_node *node)
{
    struct ul_group_call *out = describer->out;
    struct ul_attention a;
    ul_value_id norms = ul_attention_norms(node);
    for (uint32_t i = 1; i < node->output_count; i++) {
        if (node->outputs[i] != UL_NONE && node->outputs[i] != norms)
            return false;
    }
    out->call.kind = UL_CALL_ATTENTION;
    if (!describe_operands(describer, node, &a) ||
        !describe_result(describer, &a, out->args[UL_CALL_DST], &out->call.dst))
        return false;
    const int64_t products[] = {a.batch, a.heads, a.queries, a.keys, a.size + a.value_size};
    out->product_count = ul_describe_products(1, 5, products);
    return norms == UL_NONE || describe_norms(describer, norms);
}

/* Describes what the gradient reads and writes in addition to operands of attention. */
static bool describe_gradients(struct ul_describer *describer, const struct ul_node *node,
                               const struct ul_attention *a)
{
    struct ul_group_call *out = describer->out;
    struct ul_call_attention *attention = &out->call.attention;
    ul_value_id result = node->inputs[UL_ATTENTION_GIVEN_RESULT];
    ul_value_id gradient = node->inputs[UL_ATTENTION_GRADIENT];
    if (!describe_norms(describer, node->inputs[UL_ATTENTION_GIVEN_NORMS]) ||
        !describe_result(describer, a, result, &attention->result) ||
        !describe_result(describer, a, gradient, &attention->gradient) ||
        !describe_operand(describer, node->outputs[0], a->is_flat, a->heads, &out->call.dst) ||
        !describe_operand(describer, node->outputs[1], a->is_flat, a->groups,
                          &attention->key_gradient) ||
        !describe_operand(describer, node->outputs[2], a->is_flat, a->groups,
                          &attention->value_gradient))
        return false;
    struct ul_call_tensor *tensors[] = {&attention->result, &attention->gradient,
                                        &attention->key_gradient, &attention->value_gradient};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        ul_describe_finalize(tensors[i], UL_CALL_ATTENTION);
    out->args[UL_CALL_ARG_RESULT] = result;
    out->args[UL_CALL_ARG_GRADIENT] = gradient;
    out->args[UL_CALL_ARG_KEY_GRADIENT] = node->outputs[1];
    out->args[UL_CALL_ARG_VALUE_GRADIENT] = node->outputs[2];
    out->arg_count = UL_CALL_ARG_VALUE_GRADIENT + 1;
    return true;
}

bool ul_describe_attention_gradient(struct ul_describer *describer, const struct ul_node *node)
{
    struct ul_group_call *out = describer->out;
    struct ul_attention a;
    if (describer->node_count != 1 || node->input_count <= UL_ATTENTION_GIVEN_RESULT)
        return false;
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (node->outputs[i] == UL_NONE)
            return false;
    }
    out->call.kind = UL_CALL_ATTENTION_GRADIENT;
    if (!describe_operands(describer, node, &a) || a.heads != a.groups ||
        !describe_gradients(describer, node, &a))
        return false;
    /* One product for each of queries', keys' and values' gradients, for scores and for their
     * slopes. */
    const int64_t products[] = {a.batch, a.heads, a.queries, a.keys, 3 * a.size + 2 * a.value_size};
    out->product_count = ul_describe_products(1, 5, products);
    return true;
}
