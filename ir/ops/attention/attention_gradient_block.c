/* SPDX-License-Identifier: Apache-2.0 */
/* A block of queries in the gradient of attention: its scores, computed again, their slopes, and
 * what these add to the gradients of queries, keys and values (attention_gradient_lower.c). */
#include "ir/ops/attention/attention_backward.h"

#include "ir/ops/norm/norm.h"

#include <math.h>
#include <string.h>

static ul_kx number(const struct ul_attention_backward *b, double value)
{
    return ul_kx_number(b->a.kernel, b->a.dtype, value);
}

/* ---- Operands ---- */

/* The scores of the block: rows along one variable, keys along another. */
static void fill_scores(const struct ul_attention_backward *b, struct ul_operand *operand,
                        uint32_t scores, uint32_t row_var, uint32_t key_var)
{
    operand->buffer = scores;
    operand->at.base = ul_kx_index_const(b->a.kernel, 0);
    operand->at.strides[row_var] = b->keys;
    operand->at.strides[key_var] = 1;
}

/* g, which has the same layout as the result. */
void ul_attention_fill_gradient(const struct ul_attention_backward *b,
                                struct ul_contraction *contraction, struct ul_operand *operand,
                                uint32_t along, uint32_t across)
{
    const struct ul_attention *shape = &b->a.shape;
    ul_kx base[4], moved[4];
    int64_t at[4][UL_CONTRACT_DIMS] = {{0}}, turned[4][UL_CONTRACT_DIMS] = {{0}};
    uint32_t rank = ul_attention_place(&b->a, shape->is_flat, b->a.head, b->a.first,
                                       ul_kx_index_const(b->a.kernel, 0), shape->value_size, base);
    at[rank == 3 ? 1 : 2][along] = 1;
    at[rank - 1][across] = 1;
    for (uint32_t d = 0; d < rank; d++) {
        uint32_t from = shape->is_flat ? d : shape->order[d];
        moved[d] = base[from];
        memcpy(turned[d], at[from], sizeof *at);
    }
    ul_lower_operand(b->a.lower, contraction, operand, b->a.node->inputs[UL_ATTENTION_GRADIENT],
                     moved, turned, 0, 0);
}

void ul_attention_fill_queries(const struct ul_attention_backward *b,
                               struct ul_contraction *contraction, struct ul_operand *operand,
                               uint32_t along, uint32_t across)
{
    const struct ul_attention *shape = &b->a.shape;
    ul_attention_fill(&b->a, contraction, operand, UL_ATTENTION_Q, shape->is_flat, b->a.head,
                      b->a.first, shape->size, along, across);
}

void ul_attention_fill_keys(const struct ul_attention_backward *b,
                            struct ul_contraction *contraction, struct ul_operand *operand,
                            enum ul_attention_input input, uint32_t along, uint32_t across)
{
    const struct ul_attention *shape = &b->a.shape;
    ul_attention_fill(&b->a, contraction, operand, input, shape->is_flat, b->a.group,
                      ul_kx_index_const(b->a.kernel, 0),
                      input == UL_ATTENTION_K ? shape->size : shape->value_size, along, across);
}

/* ---- Scores and slopes ---- */

ul_kx ul_attention_statistic_at(const struct ul_attention_backward *b, ul_kx query, ul_kx which)
{
    struct ul_kernel *k = b->a.kernel;
    const struct ul_attention *shape = &b->a.shape;
    ul_kx at = ul_kx_add(k, ul_kx_muli(k, b->a.batch, shape->heads), b->a.head);
    at = ul_kx_add(k, ul_kx_muli(k, at, shape->queries), query);
    return ul_kx_add(k, ul_kx_muli(k, at, 2), which);
}

/* Loads a statistic that is an input. The sums have the shape of the result. */
static ul_kx load_given(const struct ul_attention_backward *b, ul_kx query, int64_t which)
{
    const struct ul_attention *shape = &b->a.shape;
    ul_kx index[] = {b->a.batch, b->a.head, query, ul_kx_index_const(b->a.kernel, 0)}, moved[4];
    static const uint32_t flat[] = {0, 2, 1, 3};
    for (uint32_t d = 0; d < 4; d++)
        moved[d] = index[shape->is_flat ? flat[d] : shape->order[d]];
    uint32_t input = which == 0 ? UL_ATTENTION_GIVEN_NORMS : UL_ATTENTION_GIVEN_SUMS;
    return ul_lower_load(b->a.lower, b->a.node->inputs[input], which == 0 ? index : moved);
}

ul_kx ul_attention_statistic(const struct ul_attention_backward *b, ul_kx query, int64_t which)
{
    struct ul_kernel *k = b->a.kernel;
    if (b->has_given)
        return load_given(b, query, which);
    return ul_kx_load(k, b->statistics,
                      ul_attention_statistic_at(b, query, ul_kx_index_const(k, which)));
}

ul_kx ul_attention_score(const struct ul_attention_backward *b, ul_kx capped, ul_kx query,
                         ul_kx key)
{
    if (!ul_attention_has_bias(&b->a))
        return capped;
    return ul_attention_biased(&b->a, capped, ul_attention_bias(&b->a, query, key));
}

ul_kx ul_attention_weight(const struct ul_attention_backward *b, ul_kx score, ul_kx query)
{
    struct ul_kernel *k = b->a.kernel;
    ul_kx norm = ul_ks_let(k, ul_attention_statistic(b, query, 0));
    ul_kx weight = ul_softmax_exp(k, ul_kx_sub(k, score, norm));
    if (b->a.shape.empty != UL_NAN_IS_ZERO)
        return weight;
    ul_kx is_there = ul_kx_binary(k, UL_KX_LT, norm, number(b, INFINITY));
    return ul_kx_select(k, is_there, weight, number(b, 0));
}

/* ---- A block ---- */

static void form_scores(const struct ul_attention_backward *b)
{
    const struct ul_attention_lower *a = &b->a;
    struct ul_kernel *k = a->kernel;
    struct ul_contraction c;
    ul_contraction_init(k, &c, a->dtype, &b->rows, 1, &b->seen, 1, &a->shape.size, 1);
    ul_attention_fill_queries(b, &c, &c.a, 0, 2);
    ul_attention_fill_keys(b, &c, &c.b, UL_ATTENTION_K, 1, 2);
    ul_ks_contract(k, &c);
    ul_kx row = ul_kx_var(k, c.vars[0]), key = ul_kx_var(k, c.vars[1]);
    ul_kx x = ul_kx_mul(k, ul_kx_var(k, c.acc), number(b, a->shape.scale));
    x = ul_attention_capped(a, x);
    if (a->shape.softcap > 0)
        ul_ks_store(k, b->capped, ul_attention_score_at(&b->a, row, key), x = ul_ks_let(k, x));
    x = ul_attention_score(b, x, ul_kx_add(k, a->first, row), key);
    ul_ks_store(k, b->shares, ul_attention_score_at(&b->a, row, key), x);
    ul_ks_end(k);
}

/* Turns scores into weights, by the statistics of their queries. */
static void form_weights(const struct ul_attention_backward *b)
{
    struct ul_kernel *k = b->a.kernel;
    ul_kx row = ul_ks_for(k, b->rows, 0), key = ul_ks_for(k, b->seen, UL_FOR_PARALLEL);
    ul_kx at = ul_attention_score_at(&b->a, row, key);
    ul_kx x = ul_attention_weight(b, ul_kx_load(k, b->shares, at), ul_kx_add(k, b->a.first, row));
    ul_ks_store(k, b->shares, at, x);
    ul_ks_end(k);
    ul_ks_end(k);
}

/* Turns scores into weights. */
static void form_shares(const struct ul_attention_backward *b)
{
    struct ul_kernel *k = b->a.kernel;
    ul_kx row = ul_ks_for(k, b->rows, 0);
    ul_kx max = ul_ks_let(k, ul_attention_largest(&b->a, row, b->seen));
    if (ul_attention_may_be_empty(&b->a))
        max = ul_attention_shift(&b->a, max);
    ul_kx total = ul_ks_let(k, ul_attention_exponentials(&b->a, row, b->seen, max));
    ul_kx zero = number(b, 0);
    if (ul_attention_may_be_empty(&b->a))
        total = ul_ks_let(
            k, ul_kx_select(k, ul_kx_binary(k, UL_KX_EQ, total, zero), number(b, 1), total));
    ul_kx inverse = ul_ks_let(k, ul_kx_binary(k, UL_KX_DIV, number(b, 1), total));
    ul_kx key = ul_ks_for(k, b->seen, UL_FOR_PARALLEL);
    ul_kx x =
        ul_kx_mul(k, ul_kx_load(k, b->shares, ul_attention_score_at(&b->a, row, key)), inverse);
    if (b->a.shape.empty == UL_NAN_IS_ZERO)
        x = ul_kx_select(k, ul_kx_binary(k, UL_KX_LT, zero, total), x, zero);
    ul_ks_store(k, b->shares, ul_attention_score_at(&b->a, row, key), x);
    ul_ks_end(k);
    ul_ks_end(k);
}

/* slopes = g V^T, before some weights are dropped */
static void form_slopes(const struct ul_attention_backward *b)
{
    const struct ul_attention_lower *a = &b->a;
    struct ul_kernel *k = a->kernel;
    struct ul_contraction c;
    ul_contraction_init(k, &c, a->dtype, &b->rows, 1, &b->seen, 1, &a->shape.value_size, 1);
    ul_attention_fill_gradient(b, &c, &c.a, 0, 2);
    ul_attention_fill_keys(b, &c, &c.b, UL_ATTENTION_V, 1, 2);
    ul_ks_contract(k, &c);
    ul_kx row = ul_kx_var(k, c.vars[0]), key = ul_kx_var(k, c.vars[1]);
    ul_kx slope = ul_attention_dropped(a, ul_kx_var(k, c.acc), ul_kx_add(k, a->first, row), key);
    ul_ks_store(k, b->slopes, ul_attention_score_at(a, row, key), slope);
    ul_ks_end(k);
}

/* The slope of a score is also that of the mask there. Where several scores share an element of the
 * mask, it adds them up, in the order of batches and heads. */
static void add_mask(const struct ul_attention_backward *b, ul_kx row, ul_kx key, ul_kx slope)
{
    const struct ul_attention_lower *a = &b->a;
    struct ul_kernel *k = a->kernel;
    ul_kx zero = ul_kx_index_const(k, 0), query = ul_kx_add(k, a->first, row);
    ul_value_id mask = a->node->outputs[UL_ATTENTION_MASK_GRADIENT];
    ul_kx index[] = {b->shares_batch ? zero : a->batch, b->shares_head ? zero : a->head, query,
                     key};
    if (b->pass == UL_ATTENTION_MASKS) {
        ul_attention_store_mask(b, query, key, slope);
        return;
    }
    if (b->shares_batch || b->shares_head)
        slope = ul_kx_add(k, ul_lower_load_output(a->lower, mask, index), slope);
    ul_lower_store(a->lower, mask, index, slope);
}

/* Gives the slope of the product of a query and a key, from the slope of its score. */
static ul_kx scaled_slope(const struct ul_attention_backward *b, ul_kx slope, ul_kx capped)
{
    struct ul_kernel *k = b->a.kernel;
    double cap = b->a.shape.softcap;
    slope = ul_kx_mul(k, slope, number(b, b->a.shape.scale));
    if (!(cap > 0))
        return slope;
    ul_kx bend = ul_ks_let(k, ul_kx_mul(k, capped, number(b, 1 / cap)));
    bend = ul_kx_sub(k, number(b, 1), ul_kx_mul(k, bend, bend)); /* of cap tanh(x / cap) */
    return ul_kx_mul(k, slope, bend);
}

ul_kx ul_attention_slope(const struct ul_attention_backward *b, ul_kx weight, ul_kx capped,
                         ul_kx slope, ul_kx sum)
{
    struct ul_kernel *k = b->a.kernel;
    return scaled_slope(b, ul_ks_let(k, ul_kx_mul(k, weight, ul_kx_sub(k, slope, sum))), capped);
}

/* Turns the slopes of weights into those of the products of queries and keys. */
static void turn_slopes(const struct ul_attention_backward *b)
{
    struct ul_kernel *k = b->a.kernel;
    ul_kx row = ul_ks_for(k, b->rows, 0), sum;
    if (b->pass == UL_ATTENTION_AT_ONCE)
        sum = ul_attention_products(&b->a, row, b->seen, b->slopes);
    else
        sum = ul_attention_statistic(b, ul_kx_add(k, b->a.first, row), 1);
    sum = ul_ks_let(k, sum);
    ul_kx key = ul_ks_for(k, b->seen, UL_FOR_PARALLEL), at = ul_attention_score_at(&b->a, row, key);
    ul_kx slope = ul_kx_sub(k, ul_kx_load(k, b->slopes, at), sum);
    slope = ul_ks_let(k, ul_kx_mul(k, ul_kx_load(k, b->shares, at), slope));
    if (b->has_mask && (b->pass == UL_ATTENTION_AT_ONCE || b->pass == UL_ATTENTION_MASKS))
        add_mask(b, row, key, slope);
    bool is_capped = b->a.shape.softcap > 0;
    slope = scaled_slope(b, slope, is_capped ? ul_kx_load(k, b->capped, at) : UL_NONE);
    ul_ks_store(k, b->slopes, at, slope);
    ul_ks_end(k);
    ul_ks_end(k);
}

/* Stores the statistics of each query. The sum is 0 where the norm says that the query gives zeros.
 */
static void store_statistics(const struct ul_attention_backward *b)
{
    const struct ul_attention_lower *a = &b->a;
    struct ul_kernel *k = a->kernel;
    ul_kx row = ul_ks_for(k, b->rows, 0), query = ul_kx_add(k, a->first, row), zero = number(b, 0);
    ul_kx max = ul_ks_let(k, ul_attention_largest(a, row, b->seen));
    ul_kx shift = ul_attention_shift(a, max);
    ul_kx total = ul_ks_let(k, ul_attention_exponentials(a, row, b->seen, shift));
    ul_kx sum = ul_ks_let(k, ul_attention_products(a, row, b->seen, b->slopes));
    ul_kx norm = ul_attention_norm(a, shift, total);
    sum = ul_kx_binary(k, UL_KX_DIV, sum, total);
    if (a->shape.empty == UL_EMPTY_IS_ZERO)
        sum = ul_kx_select(k, ul_kx_binary(k, UL_KX_EQ, total, zero), zero, sum);
    else if (a->shape.empty == UL_NAN_IS_ZERO)
        sum = ul_kx_select(k, ul_kx_binary(k, UL_KX_LT, zero, total), sum, zero);
    ul_ks_store(k, b->statistics, ul_attention_statistic_at(b, query, ul_kx_index_const(k, 0)),
                norm);
    ul_ks_store(k, b->statistics, ul_attention_statistic_at(b, query, ul_kx_index_const(k, 1)),
                sum);
    ul_ks_end(k);
}

static void store_queries(const struct ul_attention_backward *b)
{
    const struct ul_attention_lower *a = &b->a;
    struct ul_kernel *k = a->kernel;
    struct ul_contraction c;
    ul_contraction_init(k, &c, a->dtype, &b->rows, 1, &a->shape.size, 1, &b->seen, 1);
    fill_scores(b, &c.a, b->slopes, 0, 2);
    ul_attention_fill_keys(b, &c, &c.b, UL_ATTENTION_K, 2, 1);
    ul_ks_contract(k, &c);
    ul_kx index[4];
    ul_kx query = ul_kx_add(k, a->first, ul_kx_var(k, c.vars[0]));
    (void)ul_attention_place(a, a->shape.is_flat, a->head, query, ul_kx_var(k, c.vars[1]),
                             a->shape.size, index);
    ul_lower_store(a->lower, a->node->outputs[0], index, ul_kx_var(k, c.acc));
    ul_ks_end(k);
}

/* Turns the weights into the factors of the values. */
static void drop_shares(const struct ul_attention_backward *b)
{
    struct ul_kernel *k = b->a.kernel;
    if (!b->a.shape.drops)
        return;
    ul_kx row = ul_ks_for(k, b->rows, 0), key = ul_ks_for(k, b->seen, UL_FOR_PARALLEL);
    ul_kx at = ul_attention_score_at(&b->a, row, key);
    ul_kx x = ul_attention_dropped(&b->a, ul_kx_load(k, b->shares, at),
                                   ul_kx_add(k, b->a.first, row), key);
    ul_ks_store(k, b->shares, at, x);
    ul_ks_end(k);
    ul_ks_end(k);
}

/* sums[key][element] += scores^T times the queries, if `is_key`, otherwise times g. */
static void add_sums(const struct ul_attention_backward *b, bool is_key)
{
    const struct ul_attention_lower *a = &b->a;
    struct ul_kernel *k = a->kernel;
    int64_t size = is_key ? a->shape.size : a->shape.value_size;
    uint32_t sums = is_key ? b->key_sums : b->value_sums;
    struct ul_contraction c;
    ul_contraction_init(k, &c, a->dtype, &b->seen, 1, &size, 1, &b->rows, 1);
    fill_scores(b, &c.a, is_key ? b->slopes : b->shares, 2, 0);
    if (is_key)
        ul_attention_fill_queries(b, &c, &c.b, 2, 1);
    else
        ul_attention_fill_gradient(b, &c, &c.b, 2, 1);
    ul_ks_contract(k, &c);
    ul_kx at = ul_kx_add(k, ul_kx_muli(k, ul_kx_var(k, c.vars[0]), size), ul_kx_var(k, c.vars[1]));
    ul_ks_store(k, sums, at, ul_kx_add(k, ul_kx_load(k, sums, at), ul_kx_var(k, c.acc)));
    ul_ks_end(k);
}

void ul_attention_lower_block(struct ul_attention_backward *b, ul_kx first, int64_t rows)
{
    UL_ASSERT(rows > 0 && rows <= b->a.max_rows && b->seen <= b->keys);
    b->a.first = first;
    b->rows = rows;
    form_scores(b);
    if (b->pass == UL_ATTENTION_AT_ONCE)
        form_shares(b);
    else if (b->pass != UL_ATTENTION_STATISTICS)
        form_weights(b);
    if (b->pass != UL_ATTENTION_VALUES)
        form_slopes(b);
    if (b->pass == UL_ATTENTION_STATISTICS)
        store_statistics(b);
    if ((b->pass & (UL_ATTENTION_QUERIES | UL_ATTENTION_KEYS | UL_ATTENTION_MASKS)) != 0)
        turn_slopes(b);
    if ((b->pass & UL_ATTENTION_VALUES) != 0) {
        drop_shares(b);
        add_sums(b, false);
    }
    if ((b->pass & UL_ATTENTION_QUERIES) != 0)
        store_queries(b);
    if ((b->pass & UL_ATTENTION_KEYS) != 0)
        add_sums(b, true);
}
