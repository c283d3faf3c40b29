/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes and shapes of Attention. */
#include "ir/infer.h"
#include "ir/op_names.h"
#include "ir/ops/attention/attention.def"
#include "ir/ops/attention/attention.h"
#include "ir/ops/random/random.h"

#include <math.h>

int64_t ul_attention_total(const struct ul_attention *attention)
{
    return attention->past + attention->keys;
}

bool ul_attention_is_fused(const struct ul_node *node)
{
    return node->op == UL_OP_FusedAttention;
}

uint32_t ul_attention_norms(const struct ul_node *node)
{
    return ul_attention_is_fused(node) && node->output_count > UL_ATTENTION_NORMS
               ? node->outputs[UL_ATTENTION_NORMS]
               : UL_NONE;
}

static const char *read_flat(struct ul_attention *a, const struct ul_node *node,
                             const struct ul_type *q, const struct ul_type *k,
                             const struct ul_type *v)
{
    a->heads = ul_node_get_int(node, "q_num_heads", 0);
    a->groups = ul_node_get_int(node, "kv_num_heads", 0);
    if (a->heads < 1 || a->groups < 1)
        return "q_num_heads and kv_num_heads must be given for operands of rank 3";
    if (q->dims[2] % a->heads != 0 || k->dims[2] % a->groups != 0 || v->dims[2] % a->groups != 0)
        return "the hidden sizes are no multiples of the numbers of heads";
    a->queries = q->dims[1];
    a->keys = k->dims[1];
    a->size = q->dims[2] / a->heads;
    a->value_size = v->dims[2] / a->groups;
    if (k->dims[2] / a->groups != a->size)
        return "the heads of Q and K differ in size";
    return v->dims[1] != a->keys ? "K and V differ in length" : NULL;
}

static const char *read_split(struct ul_attention *a, const struct ul_type *q,
                              const struct ul_type *k, const struct ul_type *v)
{
    a->heads = q->dims[1];
    a->groups = k->dims[1];
    a->queries = q->dims[2];
    a->keys = k->dims[2];
    a->size = q->dims[3];
    a->value_size = v->dims[3];
    if (k->dims[3] != a->size)
        return "the heads of Q and K differ in size";
    if (v->dims[1] != a->groups)
        return "K and V differ in heads";
    return v->dims[2] != a->keys ? "K and V differ in length" : NULL;
}

static bool is_cache(const struct ul_attention *a, const struct ul_type *type, int64_t size)
{
    return type->rank == 4 && type->dims[0] == a->batch && type->dims[1] == a->groups &&
           type->dims[3] == size;
}

static const char *read_past(struct ul_attention *a, const struct ul_type *key,
                             const struct ul_type *value)
{
    if (key == NULL && value == NULL)
        return NULL;
    if (key == NULL || value == NULL)
        return "past_key and past_value must be given together";
    if (!is_cache(a, key, a->size) || !is_cache(a, value, a->value_size) ||
        key->dims[2] != value->dims[2])
        return "the shape of past_key or past_value does not match K and V";
    a->past = key->dims[2];
    return NULL;
}

/* The mask broadcasts to (batch, heads, queries, keys); its last dimension may be shorter. */
static const char *check_mask(const struct ul_attention *a, const struct ul_type *mask)
{
    const int64_t full[] = {a->batch, a->heads, a->queries};
    if (mask == NULL)
        return NULL;
    if (mask->rank < 1 || mask->rank > 4)
        return "the mask must have at most rank 4";
    for (uint32_t d = 0; d + 1 < mask->rank; d++) {
        int64_t dim = mask->dims[d];
        if (dim != 1 && dim != full[d + 4 - mask->rank])
            return "the mask does not broadcast to the scores";
    }
    if (mask->dims[mask->rank - 1] > ul_attention_total(a))
        return "the mask is longer than the keys";
    return NULL;
}

/* Reads the order of the output: FusedAttention stores it as a Transpose after it would. */
static const char *read_order(struct ul_attention *a, const struct ul_node *node)
{
    uint32_t count, seen = 0;
    const int64_t *perm = ul_node_get_ints(node, "perm", &count);
    for (uint32_t d = 0; d < 4; d++)
        a->order[d] = d;
    if (perm == NULL || node->op == UL_OP_Attention)
        return NULL;
    if (count != 4 || a->is_flat)
        return "perm must have four entries, and the operands rank 4";
    for (uint32_t d = 0; d < 4; d++) {
        if (perm[d] < 0 || perm[d] > 3 || (seen >> perm[d] & 1u) != 0)
            return "perm is no permutation";
        seen |= 1u << perm[d];
        a->order[d] = (uint32_t)perm[d];
    }
    return NULL;
}

/* What a query that sees no key gives. Attention of ai.onnx gives zeros; frontend/ sets an
 * attribute where it makes an Attention from an operator that gives something else. */
static enum ul_attention_empty read_empty(const struct ul_node *node)
{
    if (ul_node_get_int(node, "nan_is_zero", 0) != 0)
        return UL_NAN_IS_ZERO;
    bool is_zero = ul_node_get_int(node, "empty_is_zero", node->op == UL_OP_Attention) != 0;
    return is_zero ? UL_EMPTY_IS_ZERO : UL_EMPTY_IS_NAN;
}

const char *ul_attention_read(struct ul_attention *attention, const struct ul_node *node,
                              const struct ul_type *const types[UL_ATTENTION_INPUTS])
{
    const struct ul_type *q = types[UL_ATTENTION_Q], *k = types[UL_ATTENTION_K];
    const struct ul_type *v = types[UL_ATTENTION_V], *lengths = types[UL_ATTENTION_LENGTHS];
    *attention = (struct ul_attention){.is_flat = q->rank == 3};
    if (q->rank != k->rank || q->rank != v->rank || (q->rank != 3 && q->rank != 4))
        return "Q, K and V must all have rank 3 or rank 4";
    attention->batch = q->dims[0];
    if (k->dims[0] != q->dims[0] || v->dims[0] != q->dims[0])
        return "Q, K and V differ in batch size";
    const char *wrong =
        attention->is_flat ? read_flat(attention, node, q, k, v) : read_split(attention, q, k, v);
    if (wrong != NULL)
        return wrong;
    if (attention->groups == 0 || attention->heads % attention->groups != 0)
        return "the heads of Q are no multiple of the heads of K and V";
    wrong = read_past(attention, types[UL_ATTENTION_PAST_K], types[UL_ATTENTION_PAST_V]);
    if (wrong == NULL)
        wrong = check_mask(attention, types[UL_ATTENTION_MASK]);
    if (wrong == NULL)
        wrong = check_mask(attention, types[UL_ATTENTION_BIAS]);
    if (wrong == NULL)
        wrong = read_order(attention, node);
    if (wrong != NULL)
        return wrong;
    attention->drops = types[UL_ATTENTION_STEP_KEY] != NULL;
    attention->ratio = ul_node_get_float(node, "ratio", 0.5);
    if (attention->drops && !ul_random_is_ratio(attention->ratio))
        return "ratio must be at least 0 and below 1";
    if (lengths != NULL && (lengths->rank != 1 || lengths->dims[0] != attention->batch))
        return "nonpad_kv_seqlen must have one number for each sequence of the batch";
    double size = attention->size > 0 ? (double)attention->size : 1.0;
    attention->scale = ul_node_get_float(node, "scale", 1.0 / sqrt(size));
    attention->softcap = ul_node_get_float(node, "softcap", 0);
    attention->is_causal = ul_node_get_int(node, "is_causal", 0) != 0;
    attention->ends_at_length = lengths != NULL && attention->past == 0;
    attention->empty = read_empty(node);
    attention->scores_mode = ul_node_get_int(node, "qk_matmul_output_mode", 0);
    if (attention->scores_mode < 0 || attention->scores_mode > 3)
        return "qk_matmul_output_mode must be 0, 1, 2 or 3";
    return NULL;
}

static enum ul_status check_types(const struct ul_infer *infer, const struct ul_type *const *types)
{
    for (uint32_t i = 0; i < 3; i++)
        if (!ul_dtype_is_real(types[i]->dtype))
            return ul_infer_unsupported(
                infer, "Attention is computed in f16, bf16, f32 and f64, not in %s",
                ul_dtype_get(types[i]->dtype)->name);
    const struct ul_type *past_k = types[UL_ATTENTION_PAST_K];
    const struct ul_type *past_v = types[UL_ATTENTION_PAST_V];
    const struct ul_type *lengths = types[UL_ATTENTION_LENGTHS];
    const struct ul_type *key = types[UL_ATTENTION_STEP_KEY];
    enum ul_dtype q = types[0]->dtype, v = types[2]->dtype;
    if (types[1]->dtype != q || (past_k != NULL && past_k->dtype != q) ||
        (past_v != NULL && past_v->dtype != v))
        return ul_infer_invalid(infer, "Q, K and the caches differ in type");
    if (lengths != NULL && lengths->dtype != UL_I64)
        return ul_infer_invalid(infer, "nonpad_kv_seqlen must be int64");
    if (key != NULL && (key->dtype != UL_I64 || key->rank != 0))
        return ul_infer_invalid(infer, "the key of the step must be an int64");
    return UL_OK;
}

enum ul_status ul_infer_attention(struct ul_infer *infer)
{
    const struct ul_type *types[UL_ATTENTION_INPUTS];
    struct ul_attention a;
    for (uint32_t i = 0; i < UL_ATTENTION_INPUTS; i++)
        types[i] = ul_infer_input(infer, i);
    UL_TRY(check_types(infer, types));
    const char *wrong = ul_attention_read(&a, infer->node, types);
    if (wrong != NULL)
        return ul_infer_invalid(infer, "%s", wrong);
    int64_t all = ul_attention_total(&a), hidden = a.heads * a.value_size;
    int64_t full[] = {a.batch, a.heads, a.queries, a.value_size};
    int64_t y[] = {full[a.order[0]], full[a.order[1]], full[a.order[2]], full[a.order[3]]};
    int64_t flat[] = {a.batch, a.queries, hidden};
    int64_t key[] = {a.batch, a.groups, all, a.size};
    int64_t value[] = {a.batch, a.groups, all, a.value_size};
    int64_t scores[] = {a.batch, a.heads, a.queries, all};
    const int64_t *const dims[] = {a.is_flat ? flat : y, key, value, scores};
    bool is_fused = ul_attention_is_fused(infer->node);
    uint32_t count = infer->node->output_count;
    for (uint32_t o = 0; o < (is_fused ? 1 : count); o++)
        ul_infer_set(infer, o, types[o == 2 ? 2 : 0]->dtype, o == 0 && a.is_flat ? 3 : 4, dims[o]);
    if (is_fused && count > UL_ATTENTION_NORMS)
        ul_infer_set(infer, UL_ATTENTION_NORMS, UL_F32, 3, full);
    return UL_OK;
}
