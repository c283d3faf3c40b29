/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by blocks of queries and tiles of keys, so that the matrix of all scores never exists:
 *
 *     for batch, head, block of queries:                  independent
 *         for tiles of keys:
 *             scores = Q K^T, scaled, capped, masked      contraction; scratch [block][tile]
 *             of each row: the largest so far, exponentials in place, their sum
 *             Y = Y * (what the rise of the largest takes back) + scores V      contraction
 *         Y / sums
 *
 * (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al.,
 * "FlashAttention", 2022.) Few keys are one tile, and then Y needs no place to wait in.
 * Keys and values come in two parts, the cache and the new ones; a part has tiles of its own, and
 * contractions of its own where all scores of a row are kept.
 * What a query gives that sees no key is an enum of ir/geometry.h. Where it is zeros, a key that
 * the masks hide has the score -inf whatever the product is, so that a query of NaN that sees none
 * gives zeros too, and nothing is subtracted from a row of -inf. */
#include "ir/ops/attention/attention.h"
#include "ir/kernel_build.h"
#include "ir/lower.h"
#include "ir/ops/attention/attention.def"
#include "ir/ops/random/random.h"

#include <math.h>

enum {
    MAX_ROWS = 128,              /* of a block */
    MAX_KEYS = 256,              /* of a tile */
    MAX_SCORES = 16384,          /* of a tile */
    RESULT_SHARE = 8,            /* a tile has at most a share of the result's elements */
    ROW_UNIT = 8,                /* rows that a contraction takes at once */
    VECTOR = UL_ATTENTION_VECTOR /* rows of scores are filled up to a multiple of it with -inf */
};

/* Keys from `begin` on of a part, which are keys `from` and on of all. */
struct tile {
    enum ul_attention_input keys, values;
    bool is_flat;
    ul_kx begin, from;
    int64_t count;
    int64_t column; /* of the first one's scores */
};

static ul_kx constant(const struct ul_attention_lower *a, int64_t value)
{
    return ul_kx_index_const(a->kernel, value);
}

static ul_kx number(const struct ul_attention_lower *a, double value)
{
    return ul_kx_number(a->kernel, a->dtype, value);
}

static bool has(const struct ul_attention_lower *a, enum ul_attention_input input)
{
    return ul_lower_has_input(a->lower, a->node_id, input);
}

/* Whether the node has the output, one of those that ai.onnx has beside the result. FusedAttention
 * has none of them. */
static bool gives(const struct ul_attention_lower *a, uint32_t output)
{
    return !ul_attention_is_fused(a->node) && ul_lower_has_output(a->lower, a->node_id, output);
}

static bool gives_norms(const struct ul_attention_lower *a)
{
    return ul_attention_is_fused(a->node) &&
           ul_lower_has_output(a->lower, a->node_id, UL_ATTENTION_NORMS);
}

uint32_t ul_attention_place(const struct ul_attention_lower *a, bool is_flat, ul_kx head,
                            ul_kx position, ul_kx element, int64_t size, ul_kx index[4])
{
    index[0] = a->batch;
    if (!is_flat) {
        index[1] = head;
        index[2] = position;
        index[3] = element;
        return 4;
    }
    index[1] = position;
    index[2] = ul_kx_add(a->kernel, ul_kx_muli(a->kernel, head, size), element);
    return 3;
}

void ul_attention_fill(const struct ul_attention_lower *a, struct ul_contraction *contraction,
                       struct ul_operand *operand, enum ul_attention_input input, bool is_flat,
                       ul_kx head, ul_kx position, int64_t size, uint32_t along, uint32_t across)
{
    ul_kx base[4];
    int64_t at[4][UL_CONTRACT_DIMS] = {{0}};
    uint32_t rank = ul_attention_place(a, is_flat, head, position, constant(a, 0), size, base);
    at[rank == 3 ? 1 : 2][along] = 1;
    at[rank - 1][across] = 1;
    ul_lower_operand(a->lower, contraction, operand, a->node->inputs[input], base, at, 0, 0);
}

/* ---- What is added to the score of query `q` and key `t` ---- */

static ul_kx load_mask(const struct ul_attention_lower *a, enum ul_attention_input input, ul_kx q,
                       ul_kx t)
{
    struct ul_kernel *kernel = a->kernel;
    ul_value_id mask = a->node->inputs[input];
    const struct ul_type *type = &a->lower->graph->values[mask].type;
    int64_t length = type->dims[type->rank - 1];
    bool is_short = length < ul_attention_total(&a->shape) && length > 0;
    ul_kx never = number(a, -INFINITY), bias = number(a, 0);
    ul_kx index[] = {a->batch, a->head, q, is_short ? ul_kx_clamp(kernel, t, length - 1) : t};
    if (length > 0) {
        bias = ul_lower_load_broadcast(a->lower, mask, index, 4);
        bias = type->dtype == UL_BOOL ? ul_kx_select(kernel, bias, number(a, 0), never)
                                      : ul_kx_cast(kernel, a->dtype, bias);
    }
    if (length < ul_attention_total(&a->shape))
        bias = ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LT, t, constant(a, length)), bias,
                            never);
    return bias;
}

/* Loads how many keys of the sequence count. */
static ul_kx length_of(const struct ul_attention_lower *a)
{
    return ul_lower_load(a->lower, a->node->inputs[UL_ATTENTION_LENGTHS], &a->batch);
}

/* The last key that query `q` sees in causal attention. */
static ul_kx last_seen(const struct ul_attention_lower *a, ul_kx q)
{
    if (!a->shape.ends_at_length)
        return ul_kx_addi(a->kernel, q, a->shape.past);
    return ul_kx_add(a->kernel, ul_kx_addi(a->kernel, q, -a->shape.queries), length_of(a));
}

ul_kx ul_attention_bias(const struct ul_attention_lower *a, ul_kx q, ul_kx t)
{
    struct ul_kernel *kernel = a->kernel;
    ul_kx never = number(a, -INFINITY), bias = number(a, 0);
    if (has(a, UL_ATTENTION_MASK))
        bias = load_mask(a, UL_ATTENTION_MASK, q, t);
    if (has(a, UL_ATTENTION_BIAS))
        bias = ul_kx_binary(kernel, UL_KX_ADD, bias, load_mask(a, UL_ATTENTION_BIAS, q, t));
    if (a->shape.is_causal) {
        ul_kx last = last_seen(a, q);
        bias = ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LE, t, last), bias, never);
    }
    if (has(a, UL_ATTENTION_LENGTHS)) {
        ul_kx length = length_of(a);
        bias = ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LT, t, length), bias, never);
    }
    return bias;
}

bool ul_attention_has_bias(const struct ul_attention_lower *a)
{
    return has(a, UL_ATTENTION_MASK) || has(a, UL_ATTENTION_BIAS) || a->shape.is_causal ||
           has(a, UL_ATTENTION_LENGTHS);
}

bool ul_attention_may_be_empty(const struct ul_attention_lower *a)
{
    return a->shape.empty == UL_EMPTY_IS_ZERO &&
           (has(a, UL_ATTENTION_MASK) || has(a, UL_ATTENTION_BIAS) || has(a, UL_ATTENTION_LENGTHS));
}

ul_kx ul_attention_biased(const struct ul_attention_lower *a, ul_kx x, ul_kx bias)
{
    if (bias == UL_NONE)
        return x;
    if (!ul_attention_may_be_empty(a))
        return ul_kx_binary(a->kernel, UL_KX_ADD, x, bias);
    ul_kx never = number(a, -INFINITY);
    bias = ul_ks_name(a->kernel, bias);
    return ul_kx_select(a->kernel, ul_kx_binary(a->kernel, UL_KX_EQ, bias, never), never,
                        ul_kx_binary(a->kernel, UL_KX_ADD, x, bias));
}

/* ---- Weights that are dropped ---- */

ul_kx ul_attention_dropped(const struct ul_attention_lower *a, ul_kx x, ul_kx q, ul_kx t)
{
    const struct ul_attention *shape = &a->shape;
    if (!shape->drops)
        return x;
    const struct ul_type weights = {
        .rank = 4, .dims = {shape->batch, shape->heads, shape->queries, ul_attention_total(shape)}};
    const ul_kx index[] = {a->batch, a->head, q, t};
    ul_kx key = ul_lower_load(a->lower, a->node->inputs[UL_ATTENTION_STEP_KEY], NULL);
    ul_kx position = ul_random_position(a->kernel, &weights, index);
    int64_t seed = ul_random_seed(a->lower->graph, a->node);
    return ul_random_drop(a->kernel, x, key, position, seed, shape->ratio);
}

/* ---- Scores ---- */

static void store_scores(const struct ul_attention_lower *a, int64_t mode, ul_kx q, ul_kx t,
                         ul_kx x)
{
    ul_kx index[] = {a->batch, a->head, q, t};
    if (gives(a, 3) && a->shape.scores_mode == mode)
        ul_lower_store(a->lower, a->node->outputs[3], index, x);
}

ul_kx ul_attention_capped(const struct ul_attention_lower *a, ul_kx x)
{
    if (!(a->shape.softcap > 0))
        return x;
    ul_kx cap = number(a, a->shape.softcap);
    x = ul_kx_unary(a->kernel, UL_KX_TANH, ul_kx_binary(a->kernel, UL_KX_DIV, x, cap));
    return ul_kx_binary(a->kernel, UL_KX_MUL, x, cap);
}

static void lower_scores(const struct ul_attention_lower *a, const struct tile *tile)
{
    struct ul_kernel *kernel = a->kernel;
    const struct ul_attention *shape = &a->shape;
    struct ul_contraction contraction;
    ul_contraction_init(kernel, &contraction, a->dtype, &a->rows, 1, &tile->count, 1, &shape->size,
                        1);
    ul_attention_fill(a, &contraction, &contraction.a, UL_ATTENTION_Q, shape->is_flat, a->head,
                      a->first, shape->size, 0, 2);
    ul_attention_fill(a, &contraction, &contraction.b, tile->keys, tile->is_flat, a->group,
                      tile->begin, shape->size, 1, 2);
    ul_ks_contract(kernel, &contraction);
    ul_kx row = ul_kx_var(kernel, contraction.vars[0]);
    ul_kx column = ul_kx_var(kernel, contraction.vars[1]);
    ul_kx q = ul_kx_add(kernel, a->first, row), t = ul_kx_add(kernel, tile->from, column);
    ul_kx plain = ul_kx_binary(kernel, UL_KX_MUL, ul_kx_var(kernel, contraction.acc),
                               number(a, shape->scale));
    ul_kx x = ul_attention_capped(a, plain), capped = x;
    ul_kx bias = ul_attention_has_bias(a) ? ul_attention_bias(a, q, t) : UL_NONE;
    store_scores(a, 0, q, t, plain);
    store_scores(a, 1, q, t, capped);
    store_scores(a, 2, q, t, bias == UL_NONE ? x : ul_kx_binary(kernel, UL_KX_ADD, x, bias));
    x = ul_attention_biased(a, x, bias);
    column = ul_kx_addi(kernel, column, tile->column);
    ul_ks_store(kernel, a->scores, ul_attention_score_at(a, row, column), x);
    ul_ks_end(kernel);
}

/* ---- Softmax of a tile ---- */

/* Fills up the columns after the last key, so that vectors are full. */
static void fill_up(const struct ul_attention_lower *a, ul_kx row, int64_t count, int64_t padded)
{
    struct ul_kernel *kernel = a->kernel;
    if (padded == count)
        return;
    ul_kx column = ul_kx_addi(kernel, ul_ks_for(kernel, padded - count, UL_FOR_PARALLEL), count);
    ul_ks_store(kernel, a->scores, ul_attention_score_at(a, row, column), number(a, -INFINITY));
    ul_ks_end(kernel);
}

/* Stores the probabilities themselves, which an output asks for. */
static void store_shares(const struct ul_attention_lower *a, ul_kx row, int64_t count,
                         ul_kx inverse)
{
    struct ul_kernel *kernel = a->kernel;
    if (!gives(a, 3) || a->shape.scores_mode != 3)
        return;
    ul_kx t = ul_ks_for(kernel, count, UL_FOR_PARALLEL);
    ul_kx x = ul_kx_load(kernel, a->scores, ul_attention_score_at(a, row, t));
    store_scores(a, 3, ul_kx_add(kernel, a->first, row), t,
                 ul_kx_binary(kernel, UL_KX_MUL, x, inverse));
    ul_ks_end(kernel);
}

ul_kx ul_attention_norm(const struct ul_attention_lower *a, ul_kx shift, ul_kx total)
{
    struct ul_kernel *kernel = a->kernel;
    ul_kx zero = number(a, 0);
    ul_kx norm = ul_kx_add(kernel, shift, ul_kx_unary(kernel, UL_KX_LOG, total));
    if (a->shape.empty == UL_EMPTY_IS_ZERO)
        return ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_EQ, total, zero), zero, norm);
    if (a->shape.empty == UL_NAN_IS_ZERO)
        return ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LT, zero, total), norm,
                            number(a, INFINITY));
    return norm;
}

/* Stores the norm of a query, where a gradient asks for it. */
static void store_norm(const struct ul_attention_lower *a, ul_kx row, ul_kx norm)
{
    ul_kx index[] = {a->batch, a->head, ul_kx_add(a->kernel, a->first, row)};
    ul_lower_store(a->lower, a->node->outputs[UL_ATTENTION_NORMS], index, norm);
}

/* One over the sum of a row's weights. A row that sees no key has the sum 0, and all its weights
 * are 0: any finite factor gives zeros, so 1 is taken. Where a Where turns NaN into zeros, a row
 * whose sum is NaN gets the factor 0. */
static ul_kx inverse_of(const struct ul_attention_lower *a, ul_kx sum)
{
    if (ul_attention_may_be_empty(a))
        sum = ul_kx_select(a->kernel, ul_kx_binary(a->kernel, UL_KX_EQ, sum, number(a, 0)),
                           number(a, 1), sum);
    ul_kx inverse = ul_kx_binary(a->kernel, UL_KX_DIV, number(a, 1), sum);
    if (a->shape.empty != UL_NAN_IS_ZERO)
        return inverse;
    ul_kx is_sum = ul_kx_binary(a->kernel, UL_KX_LT, number(a, 0), sum);
    return ul_kx_select(a->kernel, is_sum, inverse, number(a, 0));
}

/* x times what inverse_of gave. x may hold NaN where the row has no sum. */
static ul_kx divided(const struct ul_attention_lower *a, ul_kx x, ul_kx inverse)
{
    x = ul_kx_binary(a->kernel, UL_KX_MUL, x, inverse);
    if (a->shape.empty != UL_NAN_IS_ZERO)
        return x;
    ul_kx is_sum = ul_kx_binary(a->kernel, UL_KX_LT, number(a, 0), inverse);
    return ul_kx_select(a->kernel, is_sum, x, number(a, 0));
}

/* One row over all keys: stores the exponentials, and one over their sum in factors[row]. */
static void whole_row(const struct ul_attention_lower *a, ul_kx row, int64_t count, int64_t padded)
{
    struct ul_kernel *kernel = a->kernel;
    if (count == 0) {
        ul_ks_store(kernel, a->factors, row, number(a, 1));
        if (gives_norms(a))
            store_norm(a, row, number(a, 0));
        return;
    }
    ul_kx max = ul_attention_largest(a, row, padded);
    if (ul_attention_may_be_empty(a) || gives_norms(a))
        max = ul_attention_shift(a, max);
    ul_kx sum = ul_attention_exponentials(a, row, padded, max);
    if (gives_norms(a))
        store_norm(a, row, ul_attention_norm(a, max, sum = ul_ks_let(kernel, sum)));
    ul_kx inverse = ul_ks_let(kernel, inverse_of(a, sum));
    store_shares(a, row, count, inverse);
    ul_ks_store(kernel, a->factors, row, inverse);
}

/* One row over one of several tiles. While all scores are -inf nothing is subtracted from them. */
static void next_row(const struct ul_attention_lower *a, ul_kx row, int64_t padded)
{
    struct ul_kernel *kernel = a->kernel;
    ul_kx before = ul_ks_name(kernel, ul_kx_load(kernel, a->largest, row));
    ul_kx max = ul_attention_largest(a, row, padded);
    max = ul_ks_let(kernel, ul_attention_larger(a, before, max));
    ul_kx shift = ul_attention_shift(a, max);
    ul_kx factor = ul_kx_unary(kernel, UL_KX_EXP, ul_kx_binary(kernel, UL_KX_SUB, before, shift));
    factor = ul_ks_let(kernel, factor);
    ul_kx sum = ul_attention_exponentials(a, row, padded, shift);
    ul_kx old = ul_kx_binary(kernel, UL_KX_MUL, ul_kx_load(kernel, a->sums, row), factor);
    ul_ks_store(kernel, a->sums, row, ul_kx_binary(kernel, UL_KX_ADD, old, sum));
    ul_ks_store(kernel, a->largest, row, max);
    ul_ks_store(kernel, a->factors, row, factor);
}

/* Turns the weights of keys `from` and on, which are summed already, into the factors of the
 * values. */
static void drop_weights(const struct ul_attention_lower *a, ul_kx row, ul_kx from, int64_t count)
{
    struct ul_kernel *kernel = a->kernel;
    if (!a->shape.drops)
        return;
    ul_kx column = ul_ks_for(kernel, count, UL_FOR_PARALLEL);
    ul_kx at = ul_attention_score_at(a, row, column);
    ul_kx x =
        ul_attention_dropped(a, ul_kx_load(kernel, a->scores, at), ul_kx_add(kernel, a->first, row),
                             ul_kx_add(kernel, from, column));
    ul_ks_store(kernel, a->scores, at, x);
    ul_ks_end(kernel);
}

static void lower_softmax(const struct ul_attention_lower *a, ul_kx from, int64_t count)
{
    struct ul_kernel *kernel = a->kernel;
    int64_t padded = (count + VECTOR - 1) / VECTOR * VECTOR;
    ul_kx row = ul_ks_for(kernel, a->rows, 0);
    fill_up(a, row, count, padded);
    if (a->is_whole)
        whole_row(a, row, count, padded);
    else
        next_row(a, row, padded);
    drop_weights(a, row, from, count);
    ul_ks_end(kernel);
}

/* ---- Values ---- */

static void store_result(const struct ul_attention_lower *a, ul_kx row, ul_kx element, ul_kx x)
{
    const struct ul_attention *shape = &a->shape;
    ul_kx index[4], moved[4];
    uint32_t rank =
        ul_attention_place(a, shape->is_flat, a->head, ul_kx_add(a->kernel, a->first, row), element,
                           shape->value_size, index);
    for (uint32_t d = 0; d < rank; d++)
        moved[d] = index[shape->is_flat ? d : shape->order[d]];
    ul_lower_store(a->lower, a->node->outputs[0], moved, x);
}

/* Where the sums of a row are kept until they are complete. */
static ul_kx wait_at(const struct ul_attention_lower *a, ul_kx row, ul_kx element)
{
    return ul_kx_add(a->kernel, ul_kx_muli(a->kernel, row, a->shape.value_size), element);
}

/* Multiplies the tile's scores by its values. The product is the result where the tile is the last
 * of a whole row; otherwise it is kept for more. */
static void lower_values(const struct ul_attention_lower *a, const struct tile *tile, bool is_first,
                         bool is_last)
{
    struct ul_kernel *kernel = a->kernel;
    const struct ul_attention *shape = &a->shape;
    struct ul_contraction contraction;
    ul_contraction_init(kernel, &contraction, a->dtype, &a->rows, 1, &shape->value_size, 1,
                        &tile->count, 1);
    contraction.a.buffer = a->scores;
    contraction.a.at.base = constant(a, tile->column);
    contraction.a.at.strides[0] = a->pitch;
    contraction.a.at.strides[2] = 1;
    ul_attention_fill(a, &contraction, &contraction.b, tile->values, tile->is_flat, a->group,
                      tile->begin, shape->value_size, 2, 1);
    ul_ks_contract(kernel, &contraction);
    ul_kx row = ul_kx_var(kernel, contraction.vars[0]);
    ul_kx element = ul_kx_var(kernel, contraction.vars[1]);
    ul_kx sum = ul_kx_var(kernel, contraction.acc);
    ul_kx factor = ul_kx_load(kernel, a->factors, row), at = wait_at(a, row, element);
    ul_kx old = is_first ? UL_NONE : ul_kx_load(kernel, a->waiting, at);
    if (!a->is_whole)
        old = ul_kx_binary(kernel, UL_KX_MUL, old, factor);
    if (old != UL_NONE)
        sum = ul_kx_binary(kernel, UL_KX_ADD, old, sum);
    if (is_last)
        store_result(a, row, element, divided(a, sum, factor));
    else
        ul_ks_store(kernel, a->waiting, at, sum);
    ul_ks_end(kernel);
}

/* ---- A block of queries ---- */

static void lower_tile(const struct ul_attention_lower *a, const struct tile *tile)
{
    struct ul_kernel *kernel = a->kernel;
    bool skips = a->shape.is_causal && !gives(a, 3);
    if (skips) {
        ul_kx last = last_seen(a, ul_kx_addi(kernel, a->first, a->rows - 1));
        ul_ks_if(kernel, ul_kx_binary(kernel, UL_KX_LE, tile->from, last));
    }
    lower_scores(a, tile);
    lower_softmax(a, tile->from, tile->count);
    lower_values(a, tile, false, false);
    if (skips)
        ul_ks_end(kernel);
}

static struct tile tile_of(const struct ul_attention_lower *a, bool is_past)
{
    return (struct tile){.keys = is_past ? UL_ATTENTION_PAST_K : UL_ATTENTION_K,
                         .values = is_past ? UL_ATTENTION_PAST_V : UL_ATTENTION_V,
                         .is_flat = !is_past && a->shape.is_flat};
}

/* Takes a part tile by tile; the part's first key is key `from` of all keys. */
static void lower_part(const struct ul_attention_lower *a, bool is_past, int64_t from,
                       int64_t count)
{
    struct ul_kernel *kernel = a->kernel;
    int64_t whole = count / a->max_keys, rest = count % a->max_keys;
    struct tile tile = tile_of(a, is_past);
    if (whole > 0) {
        tile.begin = ul_kx_muli(kernel, ul_ks_for(kernel, whole, 0), a->max_keys);
        tile.from = ul_kx_addi(kernel, tile.begin, from);
        tile.count = a->max_keys;
        lower_tile(a, &tile);
        ul_ks_end(kernel);
    }
    if (rest > 0) {
        tile.begin = constant(a, whole * a->max_keys);
        tile.from = ul_kx_addi(kernel, tile.begin, from);
        tile.count = rest;
        lower_tile(a, &tile);
    }
}

/* Takes all keys at once: the scores of both parts are side by side. */
static void lower_whole(const struct ul_attention_lower *a)
{
    const struct ul_attention *shape = &a->shape;
    struct tile past = tile_of(a, true), next = tile_of(a, false);
    past.begin = past.from = next.begin = constant(a, 0);
    past.count = shape->past;
    next.from = constant(a, shape->past);
    next.count = shape->keys;
    next.column = shape->past;
    if (shape->past > 0)
        lower_scores(a, &past);
    if (shape->keys > 0)
        lower_scores(a, &next);
    lower_softmax(a, constant(a, 0), ul_attention_total(&a->shape));
    bool has_next = shape->keys > 0 || shape->past == 0;
    if (shape->past > 0)
        lower_values(a, &past, true, !has_next);
    if (has_next)
        lower_values(a, &next, shape->past == 0, true);
}

static void begin_rows(const struct ul_attention_lower *a)
{
    struct ul_kernel *kernel = a->kernel;
    ul_kx row = ul_ks_for(kernel, a->rows, UL_FOR_PARALLEL);
    ul_ks_store(kernel, a->largest, row, number(a, -INFINITY));
    ul_ks_store(kernel, a->sums, row, number(a, 0));
    ul_ks_end(kernel);
    ul_kx at = ul_ks_for(kernel, a->rows * a->shape.value_size, UL_FOR_PARALLEL);
    ul_ks_store(kernel, a->waiting, at, number(a, 0));
    ul_ks_end(kernel);
}

static void end_rows(const struct ul_attention_lower *a)
{
    struct ul_kernel *kernel = a->kernel;
    ul_kx row = ul_ks_for(kernel, a->rows, 0);
    ul_kx sum = ul_kx_load(kernel, a->sums, row);
    if (gives_norms(a)) {
        ul_kx max = ul_ks_let(kernel, ul_kx_load(kernel, a->largest, row));
        store_norm(a, row, ul_attention_norm(a, ul_attention_shift(a, max), sum));
    }
    ul_kx inverse = ul_ks_let(kernel, inverse_of(a, sum));
    ul_kx element = ul_ks_for(kernel, a->shape.value_size, UL_FOR_PARALLEL);
    ul_kx x = ul_kx_load(kernel, a->waiting, wait_at(a, row, element));
    store_result(a, row, element, divided(a, x, inverse));
    ul_ks_end(kernel);
    ul_ks_end(kernel);
}

/* Queries first .. first + rows - 1 of one head. */
static void lower_block(struct ul_attention_lower *a, ul_kx first, int64_t rows)
{
    a->first = first;
    a->rows = rows;
    if (a->is_whole) {
        lower_whole(a);
        return;
    }
    begin_rows(a);
    lower_part(a, true, 0, a->shape.past);
    lower_part(a, false, a->shape.past, a->shape.keys);
    end_rows(a);
}

/* Stores the cache followed by the new keys or values. */
static void lower_present(struct ul_attention_lower *a, uint32_t output,
                          enum ul_attention_input past, enum ul_attention_input next, int64_t size)
{
    struct ul_kernel *kernel = a->kernel;
    const struct ul_attention *shape = &a->shape;
    if (!gives(a, output))
        return;
    for (uint32_t part = 0; part < 2; part++) {
        int64_t dims[] = {shape->batch, shape->groups, part == 0 ? shape->past : shape->keys, size};
        if (dims[2] == 0)
            continue;
        ul_kx index[4], from[4];
        ul_lower_open(a->lower, 4, dims, index);
        a->batch = index[0];
        ul_attention_place(a, part == 1 && shape->is_flat, index[1], index[2], index[3], size,
                           from);
        ul_kx x = ul_lower_load(a->lower, a->node->inputs[part == 0 ? past : next], from);
        index[2] = ul_kx_addi(kernel, index[2], part == 0 ? 0 : shape->past);
        ul_lower_store(a->lower, a->node->outputs[output], index, x);
        ul_lower_close(a->lower, 4);
    }
}

/* Cuts `total` into the fewest parts of at most `most`, all of about the same length. */
static int64_t even_part(int64_t total, int64_t max, int64_t unit)
{
    if (total <= max)
        return total;
    int64_t parts = (total + max - 1) / max;
    return ul_round_up((total + parts - 1) / parts, unit);
}

static bool is_whole(const struct ul_attention_lower *a, const struct ul_attention *shape)
{
    bool wants_shares = gives(a, 3) && shape->scores_mode == 3;
    return wants_shares || ul_attention_total(shape) <= MAX_KEYS;
}

/* The keys of a tile. */
static int64_t tile_keys(const struct ul_attention_lower *a, const struct ul_attention *shape)
{
    int64_t longest = shape->past > shape->keys ? shape->past : shape->keys;
    return is_whole(a, shape) ? ul_attention_total(shape) : even_part(longest, MAX_KEYS, VECTOR);
}

static int64_t pitch_of(int64_t keys)
{
    return ul_round_up(keys > 0 ? keys : 1, VECTOR);
}

/* The most rows that a block may have. */
static int64_t block_rows(const struct ul_attention_lower *a, const struct ul_attention *shape)
{
    int64_t max = shape->batch * shape->heads * shape->queries * shape->value_size / RESULT_SHARE;
    max = max < MAX_SCORES ? max : MAX_SCORES;
    int64_t rows = max / pitch_of(tile_keys(a, shape)) / ROW_UNIT * ROW_UNIT;
    return rows < ROW_UNIT ? ROW_UNIT : rows > MAX_ROWS ? MAX_ROWS : rows;
}

/* The node's shape with the largest sizes; false: sizes are fixed. */
static bool read_largest(const struct ul_attention_lower *a, struct ul_attention *shape)
{
    const struct ul_graph *largest = a->lower->graph->largest;
    const struct ul_type *types[UL_ATTENTION_INPUTS] = {NULL};
    if (largest == NULL || a->node_id >= largest->node_count)
        return false;
    const struct ul_node *node = &largest->nodes[a->node_id];
    if (node->op != a->node->op || node->input_count != a->node->input_count)
        return false;
    for (uint32_t i = 0; i < node->input_count && i < UL_ATTENTION_INPUTS; i++)
        if (node->inputs[i] != UL_NONE)
            types[i] = &largest->values[node->inputs[i]].type;
    return ul_attention_read(shape, node, types) == NULL;
}

/* Chooses the sizes of blocks and tiles, and makes room for them. */
static void size_blocks(struct ul_attention_lower *a)
{
    struct ul_lower *lower = a->lower;
    const struct ul_attention *shape = &a->shape;
    struct ul_attention largest;
    a->is_whole = is_whole(a, shape);
    a->max_keys = tile_keys(a, shape);
    a->pitch = pitch_of(a->max_keys);
    if (read_largest(a, &largest))
        a->max_rows = block_rows(a, &largest);
    else
        a->max_rows = even_part(shape->queries, block_rows(a, shape), ROW_UNIT);
    uint64_t count = (uint64_t)a->max_rows;
    a->scores = ul_lower_scratch(lower, a->dtype, count * (uint64_t)a->pitch);
    a->factors = ul_lower_scratch(lower, a->dtype, count);
    a->lanes = ul_lower_local(lower, a->dtype, UL_ATTENTION_LANES);
    if (!a->is_whole || (shape->past > 0 && shape->keys > 0))
        a->waiting = ul_lower_scratch(lower, a->dtype, count * (uint64_t)shape->value_size);
    if (a->is_whole)
        return;
    a->largest = ul_lower_scratch(lower, a->dtype, count);
    a->sums = ul_lower_scratch(lower, a->dtype, count);
}

static void lower_blocks(struct ul_attention_lower *a)
{
    struct ul_kernel *kernel = a->kernel;
    int64_t whole = a->shape.queries / a->max_rows, rest = a->shape.queries % a->max_rows;
    if (whole > 0) {
        ul_kx index = ul_ks_for(kernel, whole, UL_FOR_PARALLEL);
        lower_block(a, ul_kx_muli(kernel, index, a->max_rows), a->max_rows);
        ul_ks_end(kernel);
    }
    if (rest > 0)
        lower_block(a, ul_kx_index_const(kernel, whole * a->max_rows), rest);
}

/* ---- All of it in one statement, for targets with a form of their own ---- */

/* Fills in the operands of part `part` of the keys, from its first key on. */
static void attend_part(const struct ul_attention_lower *a, struct ul_attend *attend, bool is_past,
                        int64_t count)
{
    const struct ul_attention *shape = &a->shape;
    uint32_t part = attend->part_count++;
    struct tile tile = tile_of(a, is_past);
    struct ul_contraction *scores = &attend->scores[part], *values = &attend->values[part];
    ul_kx zero = constant(a, 0);
    int64_t keys = part == 0 ? attend->keys : count;
    ul_contraction_init(a->kernel, scores, a->dtype, &shape->queries, 1, &keys, 1, &shape->size, 1);
    ul_contraction_init(a->kernel, values, a->dtype, &shape->queries, 1, &shape->value_size, 1,
                        &keys, 1);
    ul_attention_fill(a, scores, &scores->a, UL_ATTENTION_Q, shape->is_flat, a->head, zero,
                      shape->size, 0, 2);
    ul_attention_fill(a, scores, &scores->b, tile.keys, tile.is_flat, a->group, zero, shape->size,
                      1, 2);
    ul_attention_fill(a, values, &values->b, tile.values, tile.is_flat, a->group, zero,
                      shape->value_size, 2, 1);
    scores->extents[1] = values->extents[2] = attend->key_counts[part] = count;
}

/* Gives the factor of a weight that has already been added to the sums. */
static ul_kx attend_factor(const struct ul_attention_lower *a, const struct ul_contraction *scores)
{
    ul_kx row = ul_kx_var(a->kernel, scores->vars[0]), key = ul_kx_var(a->kernel, scores->vars[1]);
    return a->shape.drops ? ul_attention_dropped(a, number(a, 1), row, key) : UL_NONE;
}

static ul_kx attend_score(const struct ul_attention_lower *a, const struct ul_contraction *scores)
{
    ul_kx row = ul_kx_var(a->kernel, scores->vars[0]), key = ul_kx_var(a->kernel, scores->vars[1]);
    ul_kx x = ul_kx_binary(a->kernel, UL_KX_MUL, ul_kx_var(a->kernel, scores->acc),
                           number(a, a->shape.scale));
    x = ul_attention_capped(a, x);
    ul_kx bias = ul_attention_has_bias(a) ? ul_attention_bias(a, row, key) : UL_NONE;
    return ul_attention_biased(a, x, bias);
}

/* Fills in the statements that store the norm of a query. */
static void attend_norms(const struct ul_attention_lower *a, struct ul_attend *attend)
{
    attend->has_norms = true;
    attend->norm_query = ul_kernel_add_index(a->kernel, attend->queries);
    attend->norm = ul_kernel_add_var(a->kernel, a->dtype);
    ul_ks behind = ul_ks_aside(a->kernel);
    store_norm(a, ul_kx_var(a->kernel, attend->norm_query), ul_kx_var(a->kernel, attend->norm));
    ul_ks_end(a->kernel);
    attend->norms = a->kernel->stmts[behind].body;
}

/* Marks the innermost open loop, over heads. */
static void lower_attend(struct ul_attention_lower *a)
{
    struct ul_kernel *kernel = a->kernel;
    const struct ul_attention *shape = &a->shape;
    if (gives(a, 3) || ul_attention_total(&a->shape) == 0)
        return;
    struct ul_attend attend = {.queries = shape->queries,
                               .keys = ul_attention_total(&a->shape),
                               .size = shape->size,
                               .value_size = shape->value_size,
                               .reach = shape->is_causal && !shape->ends_at_length
                                            ? shape->past
                                            : ul_attention_total(&a->shape),
                               .empty = shape->empty,
                               .rounds_weights = a->rounds_weights};
    if (shape->past > 0)
        attend_part(a, &attend, true, shape->past);
    if (shape->keys > 0)
        attend_part(a, &attend, false, shape->keys);
    ul_ks before = ul_ks_aside(kernel);
    attend.score = attend_score(a, &attend.scores[0]);
    attend.factor = attend_factor(a, &attend.scores[0]);
    ul_ks_end(kernel);
    attend.before = kernel->stmts[before].body;
    ul_ks behind = ul_ks_aside(kernel);
    a->first = constant(a, 0);
    store_result(a, ul_kx_var(kernel, attend.values[0].vars[0]),
                 ul_kx_var(kernel, attend.values[0].vars[1]),
                 ul_kx_var(kernel, attend.values[0].acc));
    ul_ks_end(kernel);
    attend.values[0].epilogue = kernel->stmts[behind].body;
    if (gives_norms(a))
        attend_norms(a, &attend);
    ul_ks_attend(kernel, &attend);
}

void ul_lower_attention(struct ul_lower *lower, ul_node_id node_id)
{
    struct ul_attention_lower a = {.lower = lower,
                                   .kernel = lower->kernel,
                                   .node = &lower->graph->nodes[node_id],
                                   .node_id = node_id};
    const struct ul_type *types[UL_ATTENTION_INPUTS] = {NULL};
    for (uint32_t i = 0; i < UL_ATTENTION_INPUTS; i++)
        if (ul_lower_has_input(lower, node_id, i))
            types[i] = ul_lower_input_type(lower, node_id, i);
    const char *wrong = ul_attention_read(&a.shape, a.node, types);
    UL_ASSERT(wrong == NULL);
    const struct ul_attention *shape = &a.shape;
    a.dtype = ul_compute_dtype(types[UL_ATTENTION_Q]->dtype);
    a.rounds_weights = types[UL_ATTENTION_V]->dtype == a.dtype;
    lower_present(&a, 1, UL_ATTENTION_PAST_K, UL_ATTENTION_K, shape->size);
    lower_present(&a, 2, UL_ATTENTION_PAST_V, UL_ATTENTION_V, shape->value_size);
    if (shape->queries == 0 || shape->value_size == 0)
        return;
    size_blocks(&a);
    a.batch = ul_ks_for(lower->kernel, shape->batch, UL_FOR_PARALLEL);
    a.group = ul_ks_for(lower->kernel, shape->groups, UL_FOR_PARALLEL);
    int64_t shared = shape->heads / shape->groups;
    a.head = ul_kx_add(lower->kernel, ul_kx_muli(lower->kernel, a.group, shared),
                       ul_ks_for(lower->kernel, shared, UL_FOR_PARALLEL));
    lower_blocks(&a);
    lower_attend(&a);
    ul_lower_close(lower, 3);
}
