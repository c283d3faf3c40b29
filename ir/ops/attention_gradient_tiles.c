/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of attention in passes, each of them a tile of rows for a block of threads where a
 * target has such tiles (struct ul_attend): scores are formed again in each, which costs products
 * but leaves blocks independent, as many as there are heads times tiles.
 *
 *     of each query: n = log of the sum of exp(s), d = sum of P dP      with P = exp(s - n)
 *     of each query: dQ = sum over keys of dS K                         dS = scale P (dP - d)
 *     of each key:   dV = sum over the group's heads and queries of P g
 *     of each key:   dK = the same of dS Q
 *     of each element of a mask whose gradient is wanted: the sum of dS / scale
 *                                                                   (attention_gradient_masks.c)
 *
 * (Dao, "FlashAttention-2", 2023, whose two passes over keys are one.) What interpreters and other
 * targets run is the same by blocks of queries with all keys. */
#include "ir/ops/attention_backward.h"

static ul_kx zero(const struct ul_attention_backward *b)
{
    return ul_kx_index_const(b->a.kernel, 0);
}

static bool is_turned(const struct ul_attention_backward *b)
{
    return b->pass == UL_ATTENTION_VALUES || b->pass == UL_ATTENTION_KEYS;
}

/* ---- As one statement ---- */

/* Fills in the products of queries and keys, and those of g and values. */
static void fill_products(const struct ul_attention_backward *b, struct ul_attend *attend)
{
    const struct ul_attention *shape = &b->a.shape;
    struct ul_contraction *scores = &attend->scores[0], *slopes = &attend->scores[1];
    uint32_t query = attend->is_turned ? 1 : 0, key = 1 - query;
    ul_contraction_init(b->a.kernel, scores, b->a.dtype, &attend->queries, 1, &attend->keys, 1,
                        &shape->size, 1);
    ul_attention_fill_queries(b, scores, query == 0 ? &scores->a : &scores->b, query, 2);
    ul_attention_fill_keys(b, scores, key == 0 ? &scores->a : &scores->b, UL_ATTENTION_K, key, 2);
    if (!attend->has_slopes)
        return;
    ul_contraction_init(b->a.kernel, slopes, b->a.dtype, &attend->queries, 1, &attend->keys, 1,
                        &shape->value_size, 1);
    ul_attention_fill_gradient(b, slopes, query == 0 ? &slopes->a : &slopes->b, query, 2);
    ul_attention_fill_keys(b, slopes, key == 0 ? &slopes->a : &slopes->b, UL_ATTENTION_V, key, 2);
}

/* Fills in the values that a pass adds up. Statistics and masks have none: nothing reads their
 * operand. */
static void fill_values(const struct ul_attention_backward *b, struct ul_attend *attend)
{
    int64_t size = b->pass == UL_ATTENTION_STATISTICS ? 2
                   : b->pass == UL_ATTENTION_MASKS    ? b->a.shape.keys
                   : b->pass == UL_ATTENTION_VALUES   ? b->a.shape.value_size
                                                      : b->a.shape.size;
    struct ul_contraction *values = &attend->values[0];
    ul_contraction_init(b->a.kernel, values, b->a.dtype, &attend->queries, 1, &size, 1,
                        &attend->keys, 1);
    if (b->pass == UL_ATTENTION_QUERIES)
        ul_attention_fill_keys(b, values, &values->b, UL_ATTENTION_K, 2, 1);
    else if (b->pass == UL_ATTENTION_KEYS)
        ul_attention_fill_queries(b, values, &values->b, 2, 1);
    else if (b->pass == UL_ATTENTION_VALUES)
        ul_attention_fill_gradient(b, values, &values->b, 2, 1);
    else
        values->b = (struct ul_operand){
            .buffer = attend->scores[0].b.buffer, .at.base = zero(b), .transform = UL_NONE};
}

/* Builds the score of a query and a key, or the weight by which the pass multiplies values. */
static ul_kx fill_score(const struct ul_attention_backward *b, const struct ul_attend *attend)
{
    struct ul_kernel *k = b->a.kernel;
    const struct ul_contraction *scores = &attend->scores[0];
    ul_kx query = ul_kx_var(k, scores->vars[attend->is_turned ? 1 : 0]);
    ul_kx key = ul_kx_var(k, scores->vars[attend->is_turned ? 0 : 1]);
    ul_kx x =
        ul_kx_mul(k, ul_kx_var(k, scores->acc), ul_kx_number(k, b->a.dtype, b->a.shape.scale));
    ul_kx capped = ul_attention_capped(&b->a, x);
    if (b->a.shape.softcap > 0)
        capped = ul_ks_let(k, capped);
    x = ul_attention_score(b, capped, query, key);
    if (b->pass == UL_ATTENTION_STATISTICS)
        return x;
    x = ul_attention_weight(b, x, query);
    if (b->pass == UL_ATTENTION_VALUES)
        return ul_attention_dropped(&b->a, x, query, key);
    ul_kx slope = ul_attention_dropped(&b->a, ul_kx_var(k, attend->scores[1].acc), query, key);
    if (b->pass == UL_ATTENTION_MASKS)
        return ul_kx_mul(k, x, ul_kx_sub(k, slope, ul_attention_statistic(b, query, 1)));
    return ul_attention_slope(b, x, capped, slope, ul_attention_statistic(b, query, 1));
}

/* Builds what statistics multiply slopes by. */
static ul_kx fill_factor(const struct ul_attention_backward *b, const struct ul_attend *attend)
{
    struct ul_kernel *k = b->a.kernel;
    const uint32_t *vars = attend->scores[0].vars;
    if (b->pass != UL_ATTENTION_STATISTICS || !b->a.shape.drops)
        return UL_NONE;
    return ul_attention_dropped(&b->a, ul_kx_number(k, b->a.dtype, 1), ul_kx_var(k, vars[0]),
                                ul_kx_var(k, vars[1]));
}

static void store_result(const struct ul_attention_backward *b, const struct ul_contraction *values)
{
    struct ul_kernel *k = b->a.kernel;
    const struct ul_attention_lower *a = &b->a;
    ul_kx row = ul_kx_var(k, values->vars[0]), element = ul_kx_var(k, values->vars[1]);
    ul_kx x = ul_kx_var(k, values->acc), index[4];
    if (b->pass == UL_ATTENTION_STATISTICS) {
        ul_ks_store(k, b->statistics, ul_attention_statistic_at(b, row, element), x);
        return;
    }
    if (b->pass == UL_ATTENTION_MASKS) {
        ul_attention_store_mask(b, row, element, x);
        return;
    }
    uint32_t output = b->pass == UL_ATTENTION_QUERIES ? 0 : b->pass == UL_ATTENTION_KEYS ? 1 : 2;
    (void)ul_attention_place(a, a->shape.is_flat, output == 0 ? a->head : a->group, row, element,
                             values->extents[1], index);
    ul_lower_store(a->lower, a->node->outputs[output], index, x);
}

void ul_attention_put_attend(struct ul_attention_backward *b)
{
    struct ul_kernel *k = b->a.kernel;
    const struct ul_attention *shape = &b->a.shape;
    int64_t shared = shape->heads / shape->groups;
    bool turned = is_turned(b), is_causal = shape->is_causal && !shape->ends_at_length;
    struct ul_attend attend = {.kind = b->pass == UL_ATTENTION_STATISTICS ? UL_ATTEND_STATISTICS
                                       : b->pass == UL_ATTENTION_MASKS    ? UL_ATTEND_EACH
                                                                          : UL_ATTEND_SUM,
                               .part_count = 1,
                               .key_counts = {turned ? shape->queries : shape->keys},
                               .queries = turned ? shape->keys : shape->queries,
                               .keys = turned ? shape->queries : shape->keys,
                               .size = shape->size,
                               .value_size = shape->value_size,
                               .reach = is_causal ? 0 : shape->queries + shape->keys,
                               .empty = shape->empty,
                               .has_slopes = b->pass != UL_ATTENTION_VALUES,
                               .is_turned = turned,
                               .rounds_weights = b->a.rounds_weights};
    b->a.first = zero(b);
    if (turned && shared > 1) {
        attend.rounds = shared;
        attend.round_var = ul_kernel_add_index(k, shared);
        b->a.head = ul_kx_add(k, ul_kx_muli(k, b->a.group, shared), ul_kx_var(k, attend.round_var));
    }
    if (b->pass == UL_ATTENTION_MASKS) {
        attend.rounds = b->rounds;
        attend.round_var = ul_kernel_add_index(k, b->rounds);
        ul_attention_set_round(b, ul_kx_var(k, attend.round_var));
    }
    fill_products(b, &attend);
    fill_values(b, &attend);
    ul_ks before = ul_ks_aside(k);
    attend.score = fill_score(b, &attend);
    attend.factor = fill_factor(b, &attend);
    ul_ks_end(k);
    attend.before = k->stmts[before].body;
    ul_ks behind = ul_ks_aside(k);
    store_result(b, &attend.values[0]);
    ul_ks_end(k);
    attend.values[0].epilogue = k->stmts[behind].body;
    ul_ks_attend(k, &attend);
}

/* ---- A pass ---- */

static void lower_pass(struct ul_attention_backward *b, enum ul_attention_pass pass)
{
    struct ul_kernel *k = b->a.kernel;
    const struct ul_attention *shape = &b->a.shape;
    int64_t shared = shape->heads / shape->groups;
    b->pass = pass;
    bool turned = is_turned(b), is_key = pass == UL_ATTENTION_KEYS;
    b->a.batch = ul_ks_for(k, shape->batch, UL_FOR_PARALLEL);
    b->a.group = ul_ks_for(k, shape->groups, UL_FOR_PARALLEL);
    if (turned)
        ul_attention_clear_sums(b, is_key);
    ul_kx of_group = ul_ks_for(k, shared, turned ? 0 : UL_FOR_PARALLEL);
    b->a.head = ul_kx_add(k, ul_kx_muli(k, b->a.group, shared), of_group);
    ul_attention_lower_blocks(b);
    if (!turned)
        ul_attention_put_attend(b);
    ul_ks_end(k);
    if (turned) {
        ul_attention_store_sums(b, is_key);
        b->a.head = b->a.group; /* of one head each */
        ul_attention_put_attend(b);
    }
    ul_lower_close(b->a.lower, 2);
}

bool ul_attention_lower_passes(struct ul_attention_backward *b)
{
    const struct ul_attention *shape = &b->a.shape;
    int64_t max = b->a.lower->traits->gradient_size;
    if (b->a.dtype != UL_F32 || shape->size > max || shape->value_size > max)
        return false;
    uint64_t queries = (uint64_t)(shape->batch * shape->heads * shape->queries);
    b->statistics = ul_lower_scratch(b->a.lower, b->a.dtype, 2 * queries);
    lower_pass(b, UL_ATTENTION_STATISTICS);
    lower_pass(b, UL_ATTENTION_QUERIES);
    lower_pass(b, UL_ATTENTION_VALUES);
    lower_pass(b, UL_ATTENTION_KEYS);
    if (b->has_mask)
        ul_attention_lower_masks(b);
    return true;
}
