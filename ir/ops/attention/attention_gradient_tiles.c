/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of attention in passes, each of them a tile of rows for a block of threads where a
 * target has such tiles (struct ul_attend): scores are formed again in each, which costs products
 * but leaves blocks independent, as many as there are heads times tiles.
 *
 *     of each query: n = log of the sum of exp(s), d = sum of P dP      with P = exp(s - n)
 *     of each query: dQ = sum over keys of dS K                         dS = scale P (dP - d)
 *     of each key:   dV = sum over the group's heads and queries of P g
 *                    dK = the same of dS Q
 *     of each element of a mask whose gradient is wanted: the sum of dS / scale
 *                                                                   (attention_gradient_masks.c)
 *
 * (Dao, "FlashAttention-2", 2023.) The first pass is left out where the forward pass saves n, since
 * the sum of P dP is the sum of g Y. dV and dK are formed in one pass, or in two where heads are so
 * wide that the target cannot hold both sums. Interpreters and other targets run the same by blocks
 * of queries with all keys. */
#include "ir/ops/attention/attention_backward.h"

static ul_kx zero(const struct ul_attention_backward *b)
{
    return ul_kx_index_const(b->a.kernel, 0);
}

static bool is_turned(const struct ul_attention_backward *b)
{
    return (b->pass & UL_ATTENTION_BOTH) != 0;
}

/* ---- As one statement ---- */

/* Fills in the products of queries and keys, and those of g and the values. */
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

/* Fills in the values that are added up to a result of `pass`. Statistics and masks have none;
 * nothing reads their operand. */
static void fill_values(const struct ul_attention_backward *b, const struct ul_attend *attend,
                        enum ul_attention_pass pass, struct ul_contraction *values)
{
    int64_t size = pass == UL_ATTENTION_STATISTICS ? 2
                   : pass == UL_ATTENTION_MASKS    ? b->a.shape.keys
                   : pass == UL_ATTENTION_VALUES   ? b->a.shape.value_size
                                                   : b->a.shape.size;
    ul_contraction_init(b->a.kernel, values, b->a.dtype, &attend->queries, 1, &size, 1,
                        &attend->keys, 1);
    if (pass == UL_ATTENTION_QUERIES)
        ul_attention_fill_keys(b, values, &values->b, UL_ATTENTION_K, 2, 1);
    else if (pass == UL_ATTENTION_KEYS)
        ul_attention_fill_queries(b, values, &values->b, 2, 1);
    else if (pass == UL_ATTENTION_VALUES)
        ul_attention_fill_gradient(b, values, &values->b, 2, 1);
    else
        values->b = (struct ul_operand){
            .buffer = attend->scores[0].b.buffer, .at.base = zero(b), .transform = UL_NONE};
}

/* Builds the score of a query and a key, or the weight by which the pass multiplies values, and the
 * weight of a second result. */
static void fill_score(const struct ul_attention_backward *b, struct ul_attend *attend)
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
    attend->score = ul_attention_score(b, capped, query, key);
    if (b->pass == UL_ATTENTION_STATISTICS)
        return;
    ul_kx weight = ul_attention_weight(b, attend->score, query);
    if (b->pass == UL_ATTENTION_VALUES) {
        attend->score = ul_attention_dropped(&b->a, weight, query, key);
        return;
    }
    if (attend->has_shares) {
        weight = ul_ks_let(k, weight);
        attend->share = ul_attention_dropped(&b->a, weight, query, key);
    }
    ul_kx slope = ul_attention_dropped(&b->a, ul_kx_var(k, attend->scores[1].acc), query, key);
    ul_kx sum = ul_attention_statistic(b, query, 1);
    attend->score = b->pass == UL_ATTENTION_MASKS
                        ? ul_kx_mul(k, weight, ul_kx_sub(k, slope, sum))
                        : ul_attention_slope(b, weight, capped, slope, sum);
}

/* Builds the factor of the slopes in the statistics. */
static ul_kx fill_factor(const struct ul_attention_backward *b, const struct ul_attend *attend)
{
    struct ul_kernel *k = b->a.kernel;
    const uint32_t *vars = attend->scores[0].vars;
    if (b->pass != UL_ATTENTION_STATISTICS || !b->a.shape.drops)
        return UL_NONE;
    return ul_attention_dropped(&b->a, ul_kx_number(k, b->a.dtype, 1), ul_kx_var(k, vars[0]),
                                ul_kx_var(k, vars[1]));
}

/* Builds the statements that store a result of `pass`. */
static void store_result(const struct ul_attention_backward *b, enum ul_attention_pass pass,
                         const struct ul_contraction *values)
{
    struct ul_kernel *k = b->a.kernel;
    const struct ul_attention_lower *a = &b->a;
    ul_kx row = ul_kx_var(k, values->vars[0]), element = ul_kx_var(k, values->vars[1]);
    ul_kx x = ul_kx_var(k, values->acc), index[4];
    if (pass == UL_ATTENTION_STATISTICS) {
        ul_ks_store(k, b->statistics, ul_attention_statistic_at(b, row, element), x);
        return;
    }
    if (pass == UL_ATTENTION_MASKS) {
        ul_attention_store_mask(b, row, element, x);
        return;
    }
    uint32_t output = pass == UL_ATTENTION_QUERIES ? 0 : pass == UL_ATTENTION_KEYS ? 1 : 2;
    (void)ul_attention_place(a, a->shape.is_flat, output == 0 ? a->head : a->group, row, element,
                             values->extents[1], index);
    ul_lower_store(a->lower, a->node->outputs[output], index, x);
}

/* Fills in a result of the pass. */
static void fill_result(const struct ul_attention_backward *b, const struct ul_attend *attend,
                        enum ul_attention_pass pass, struct ul_contraction *values)
{
    struct ul_kernel *k = b->a.kernel;
    fill_values(b, attend, pass, values);
    ul_ks behind = ul_ks_aside(k);
    store_result(b, pass, values);
    ul_ks_end(k);
    values->epilogue = k->stmts[behind].body;
}

/* Writes the pass a second time, as one statement, which is the body of the innermost open loop. */
static void put_attend(struct ul_attention_backward *b)
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
                               .has_shares = b->pass == UL_ATTENTION_BOTH,
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
    ul_ks before = ul_ks_aside(k);
    fill_score(b, &attend);
    attend.factor = fill_factor(b, &attend);
    ul_ks_end(k);
    attend.before = k->stmts[before].body;
    fill_result(b, &attend, attend.has_shares ? UL_ATTENTION_KEYS : b->pass, &attend.values[0]);
    if (attend.has_shares)
        fill_result(b, &attend, UL_ATTENTION_VALUES, &attend.values[1]);
    ul_ks_attend(k, &attend);
}

/* ---- A pass ---- */

static void lower_pass(struct ul_attention_backward *b, enum ul_attention_pass pass)
{
    struct ul_kernel *k = b->a.kernel;
    const struct ul_attention *shape = &b->a.shape;
    int64_t shared = shape->heads / shape->groups;
    b->pass = pass;
    bool turned = is_turned(b);
    b->a.batch = ul_ks_for(k, shape->batch, UL_FOR_PARALLEL);
    b->a.group = ul_ks_for(k, shape->groups, UL_FOR_PARALLEL);
    if ((pass & UL_ATTENTION_KEYS) != 0)
        ul_attention_clear_sums(b, true);
    if ((pass & UL_ATTENTION_VALUES) != 0)
        ul_attention_clear_sums(b, false);
    ul_kx of_group = ul_ks_for(k, shared, turned ? 0 : UL_FOR_PARALLEL);
    b->a.head = ul_kx_add(k, ul_kx_muli(k, b->a.group, shared), of_group);
    ul_attention_lower_blocks(b);
    if (!turned)
        put_attend(b);
    ul_ks_end(k);
    if ((pass & UL_ATTENTION_KEYS) != 0)
        ul_attention_store_sums(b, true);
    if ((pass & UL_ATTENTION_VALUES) != 0)
        ul_attention_store_sums(b, false);
    if (turned) {
        b->a.head = b->a.group; /* of one head each */
        put_attend(b);
    }
    ul_lower_close(b->a.lower, 2);
}

static void lower_masks(struct ul_attention_backward *b)
{
    b->pass = UL_ATTENTION_MASKS;
    ul_attention_open_masks(b);
    b->adds = true;
    ul_attention_set_round(b, ul_ks_for(b->a.kernel, b->rounds, 0));
    ul_attention_lower_blocks(b);
    ul_ks_end(b->a.kernel);
    b->adds = false;
    put_attend(b);
    ul_attention_close_masks(b);
}

bool ul_attention_lower_passes(struct ul_attention_backward *b)
{
    const struct ul_attention *shape = &b->a.shape;
    const struct ul_target_traits *traits = b->a.lower->traits;
    int64_t size = shape->size > shape->value_size ? shape->size : shape->value_size;
    if (b->a.dtype != UL_F32 || size > traits->gradient_size)
        return false;
    uint64_t queries = (uint64_t)(shape->batch * shape->heads * shape->queries);
    b->has_given = ul_lower_has_input(b->a.lower, b->a.node_id, UL_ATTENTION_GIVEN_NORMS);
    if (!b->has_given) {
        b->statistics = ul_lower_scratch(b->a.lower, b->a.dtype, 2 * queries);
        lower_pass(b, UL_ATTENTION_STATISTICS);
    }
    lower_pass(b, UL_ATTENTION_QUERIES);
    if (!b->has_mask && size <= traits->gradient_joined) {
        lower_pass(b, UL_ATTENTION_BOTH);
        return true;
    }
    lower_pass(b, UL_ATTENTION_VALUES);
    lower_pass(b, UL_ATTENTION_KEYS);
    if (b->has_mask)
        lower_masks(b);
    return true;
}
