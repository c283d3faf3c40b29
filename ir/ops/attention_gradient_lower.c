/* The gradient of attention by blocks of queries with all keys that they see, so that the matrix of
 * all scores never exists: a block's scores are computed again. Where queries see no later keys,
 * blocks go in a few bands, each with the keys up to its last query. With P the weights, g the
 * gradient of Y = P V, for each row of a block:
 *
 *     dP = g V^T      dS = P (dP - sum of P dP), less where a cap bends the scores
 *     dQ = scale dS K
 *     dK += scale dS^T Q      dV += P^T g      over the blocks of all heads that share the keys
 *
 * (Dao et al., "FlashAttention", 2022, with whole rows.) Batches and groups of heads are
 * independent; the sums of each run over its heads and blocks in order. */
#include "ir/kernel_build.h"
#include "ir/ops/attention.h"
#include "ir/ops/check.h"

#include <math.h>
#include <string.h>

enum {
    GRADIENT = UL_ATTENTION_INPUTS, /* input */
    MAX_ROWS = 64,                  /* of a block */
    MAX_SCORES = 16384,             /* of a block */
    ROW_UNIT = 8,
    MAX_BANDS = 4
};

struct backward {
    struct ul_attention_lower a;
    int64_t keys, rows;
    int64_t seen;                    /* of the keys, by the block */
    uint32_t shares, slopes, capped; /* scratch: [rows][keys] */
    uint32_t key_sums, value_sums;   /* scratch: [keys][size], [keys][value_size] */
};

enum ul_status ul_infer_attention_gradient(struct ul_infer *infer)
{
    const struct ul_type *types[UL_ATTENTION_INPUTS];
    struct ul_attention a;
    for (uint32_t i = 0; i < UL_ATTENTION_INPUTS; i++)
        types[i] = ul_infer_input(infer, i);
    for (uint32_t i = 0; i < 3; i++)
        UL_TRY(ul_check_dtype(infer, i, UL_CHECK_FLOATS));
    UL_TRY(ul_check_dtype(infer, GRADIENT, UL_CHECK_FLOATS));
    const char *wrong = ul_attention_read(&a, infer->node, types);
    if (wrong == NULL && a.past > 0)
        wrong = "there is a cache of keys";
    if (wrong == NULL && ul_infer_input(infer, GRADIENT) == NULL)
        wrong = "the gradient of the result is required";
    if (wrong != NULL)
        return ul_infer_invalid(infer, "%s", wrong);
    for (uint32_t i = 0; i < 3; i++)
        ul_infer_set_type(infer, i, types[i]);
    return UL_OK;
}

static ul_kx number(const struct backward *b, double value)
{
    return ul_kx_number(b->a.kernel, b->a.dtype, value);
}

/* ---- Operands ---- */

/* Scores of the block: rows along one variable, keys along another. */
static void fill_scores(const struct backward *b, struct ul_operand *operand, uint32_t scores,
                        uint32_t row_var, uint32_t key_var)
{
    operand->buffer = scores;
    operand->at.base = ul_kx_index_const(b->a.kernel, 0);
    operand->at.strides[row_var] = b->keys;
    operand->at.strides[key_var] = 1;
}

/* g, which lies as the result does. */
static void fill_gradient(const struct backward *b, struct ul_contraction *contraction,
                          struct ul_operand *operand, uint32_t along, uint32_t across)
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
    ul_lower_operand(b->a.lower, contraction, operand, b->a.node->inputs[GRADIENT], moved, turned,
                     0, 0);
}

static void fill_queries(const struct backward *b, struct ul_contraction *contraction,
                         struct ul_operand *operand, uint32_t along, uint32_t across)
{
    const struct ul_attention *shape = &b->a.shape;
    ul_attention_fill(&b->a, contraction, operand, UL_ATTENTION_Q, shape->is_flat, b->a.head,
                      b->a.first, shape->size, along, across);
}

static void fill_keys(const struct backward *b, struct ul_contraction *contraction,
                      struct ul_operand *operand, enum ul_attention_input input, uint32_t along,
                      uint32_t across)
{
    const struct ul_attention *shape = &b->a.shape;
    ul_attention_fill(&b->a, contraction, operand, input, shape->is_flat, b->a.group,
                      ul_kx_index_const(b->a.kernel, 0),
                      input == UL_ATTENTION_K ? shape->size : shape->value_size, along, across);
}

/* ---- A block ---- */

static void form_scores(const struct backward *b)
{
    const struct ul_attention_lower *a = &b->a;
    struct ul_kernel *k = a->kernel;
    struct ul_contraction c;
    ul_contraction_init(k, &c, a->dtype, &b->rows, 1, &b->seen, 1, &a->shape.size, 1);
    fill_queries(b, &c, &c.a, 0, 2);
    fill_keys(b, &c, &c.b, UL_ATTENTION_K, 1, 2);
    ul_ks_contract(k, &c);
    ul_kx row = ul_kx_var(k, c.vars[0]), key = ul_kx_var(k, c.vars[1]);
    ul_kx x = ul_kx_mul(k, ul_kx_var(k, c.acc), number(b, a->shape.scale));
    x = ul_attention_capped(a, x);
    if (a->shape.softcap > 0)
        ul_ks_store(k, b->capped, ul_attention_score_at(&b->a, row, key), x = ul_ks_let(k, x));
    if (ul_attention_has_bias(a))
        x = ul_kx_add(k, x, ul_attention_bias(a, ul_kx_add(k, a->first, row), key));
    ul_ks_store(k, b->shares, ul_attention_score_at(&b->a, row, key), x);
    ul_ks_end(k);
}

/* Scores become weights. */
static void form_shares(const struct backward *b)
{
    struct ul_kernel *k = b->a.kernel;
    ul_kx row = ul_ks_for(k, b->rows, 0);
    ul_kx max = ul_ks_let(k, ul_attention_largest(&b->a, row, b->seen));
    ul_kx total = ul_ks_let(k, ul_attention_exponentials(&b->a, row, b->seen, max));
    ul_kx zero = number(b, 0);
    ul_kx inverse = ul_ks_let(k, ul_kx_binary(k, UL_KX_DIV, number(b, 1), total));
    ul_kx key = ul_ks_for(k, b->seen, UL_FOR_PARALLEL);
    ul_kx x =
        ul_kx_mul(k, ul_kx_load(k, b->shares, ul_attention_score_at(&b->a, row, key)), inverse);
    if (b->a.shape.empty_is_zero)
        x = ul_kx_select(k, ul_kx_binary(k, UL_KX_LT, zero, total), x, zero);
    ul_ks_store(k, b->shares, ul_attention_score_at(&b->a, row, key), x);
    ul_ks_end(k);
    ul_ks_end(k);
}

/* slopes = g V^T */
static void form_slopes(const struct backward *b)
{
    const struct ul_attention_lower *a = &b->a;
    struct ul_kernel *k = a->kernel;
    struct ul_contraction c;
    ul_contraction_init(k, &c, a->dtype, &b->rows, 1, &b->seen, 1, &a->shape.value_size, 1);
    fill_gradient(b, &c, &c.a, 0, 2);
    fill_keys(b, &c, &c.b, UL_ATTENTION_V, 1, 2);
    ul_ks_contract(k, &c);
    ul_kx at = ul_attention_score_at(&b->a, ul_kx_var(k, c.vars[0]), ul_kx_var(k, c.vars[1]));
    ul_ks_store(k, b->slopes, at, ul_kx_var(k, c.acc));
    ul_ks_end(k);
}

/* Slopes of weights become those of the products of queries and keys. */
static void turn_slopes(const struct backward *b)
{
    struct ul_kernel *k = b->a.kernel;
    double cap = b->a.shape.softcap;
    ul_kx row = ul_ks_for(k, b->rows, 0);
    ul_kx sum = ul_ks_let(k, ul_attention_products(&b->a, row, b->seen, b->slopes));
    ul_kx key = ul_ks_for(k, b->seen, UL_FOR_PARALLEL), at = ul_attention_score_at(&b->a, row, key);
    ul_kx slope = ul_kx_sub(k, ul_kx_load(k, b->slopes, at), sum);
    slope = ul_kx_mul(k, ul_kx_mul(k, ul_kx_load(k, b->shares, at), slope),
                      number(b, b->a.shape.scale));
    if (cap > 0) { /* of cap tanh(x / cap): 1 - tanh^2 */
        ul_kx bend = ul_ks_let(k, ul_kx_mul(k, ul_kx_load(k, b->capped, at), number(b, 1 / cap)));
        bend = ul_kx_sub(k, number(b, 1), ul_kx_mul(k, bend, bend));
        slope = ul_kx_mul(k, slope, bend);
    }
    ul_ks_store(k, b->slopes, at, slope);
    ul_ks_end(k);
    ul_ks_end(k);
}

static void store_queries(const struct backward *b)
{
    const struct ul_attention_lower *a = &b->a;
    struct ul_kernel *k = a->kernel;
    struct ul_contraction c;
    ul_contraction_init(k, &c, a->dtype, &b->rows, 1, &a->shape.size, 1, &b->seen, 1);
    fill_scores(b, &c.a, b->slopes, 0, 2);
    fill_keys(b, &c, &c.b, UL_ATTENTION_K, 2, 1);
    ul_ks_contract(k, &c);
    ul_kx index[4];
    ul_kx query = ul_kx_add(k, a->first, ul_kx_var(k, c.vars[0]));
    (void)ul_attention_place(a, a->shape.is_flat, a->head, query, ul_kx_var(k, c.vars[1]),
                             a->shape.size, index);
    ul_lower_store(a->lower, a->node->outputs[0], index, ul_kx_var(k, c.acc));
    ul_ks_end(k);
}

/* sums[key][element] += scores^T times what `is_key` says: queries, or g. */
static void add_sums(const struct backward *b, bool is_key)
{
    const struct ul_attention_lower *a = &b->a;
    struct ul_kernel *k = a->kernel;
    int64_t size = is_key ? a->shape.size : a->shape.value_size;
    uint32_t sums = is_key ? b->key_sums : b->value_sums;
    struct ul_contraction c;
    ul_contraction_init(k, &c, a->dtype, &b->seen, 1, &size, 1, &b->rows, 1);
    fill_scores(b, &c.a, is_key ? b->slopes : b->shares, 2, 0);
    if (is_key)
        fill_queries(b, &c, &c.b, 2, 1);
    else
        fill_gradient(b, &c, &c.b, 2, 1);
    ul_ks_contract(k, &c);
    ul_kx at = ul_kx_add(k, ul_kx_muli(k, ul_kx_var(k, c.vars[0]), size), ul_kx_var(k, c.vars[1]));
    ul_ks_store(k, sums, at, ul_kx_add(k, ul_kx_load(k, sums, at), ul_kx_var(k, c.acc)));
    ul_ks_end(k);
}

static void lower_block(struct backward *b, ul_kx first, int64_t rows)
{
    b->a.first = first;
    b->rows = rows;
    form_scores(b);
    form_shares(b);
    form_slopes(b);
    add_sums(b, false);
    turn_slopes(b);
    store_queries(b);
    add_sums(b, true);
}

/* ---- All of it ---- */

static void clear_sums(const struct backward *b, uint32_t sums, int64_t size)
{
    struct ul_kernel *k = b->a.kernel;
    ul_kx at = ul_ks_for(k, b->keys * size, UL_FOR_PARALLEL);
    ul_ks_store(k, sums, at, number(b, 0));
    ul_ks_end(k);
}

static void store_sums(const struct backward *b, uint32_t output, uint32_t sums, int64_t size)
{
    const struct ul_attention_lower *a = &b->a;
    struct ul_kernel *k = a->kernel;
    ul_kx index[4];
    ul_kx key = ul_ks_for(k, b->keys, UL_FOR_PARALLEL);
    ul_kx element = ul_ks_for(k, size, UL_FOR_PARALLEL);
    ul_kx at = ul_kx_add(k, ul_kx_muli(k, key, size), element);
    (void)ul_attention_place(a, a->shape.is_flat, a->group, key, element, size, index);
    ul_lower_store(a->lower, a->node->outputs[output], index, ul_kx_load(k, sums, at));
    ul_ks_end(k);
    ul_ks_end(k);
}

/* Keys that the queries below `end` see. */
static int64_t seen_below(const struct backward *b, int64_t end)
{
    return b->a.shape.is_causal && end < b->keys ? end : b->keys;
}

static void lower_blocks(struct backward *b)
{
    struct ul_kernel *k = b->a.kernel;
    int64_t queries = b->a.shape.queries, rows = b->a.max_rows, whole = queries / rows, done = 0;
    int64_t bands = b->a.shape.is_causal ? MAX_BANDS : 1;
    bands = bands < whole ? bands : whole;
    for (int64_t band = 1; band <= bands; band++) {
        int64_t end = whole * band / bands;
        ul_kx block = ul_kx_addi(k, ul_ks_for(k, end - done, 0), done);
        b->seen = seen_below(b, end * rows);
        lower_block(b, ul_kx_muli(k, block, rows), rows);
        ul_ks_end(k);
        done = end;
    }
    b->seen = seen_below(b, queries);
    if (queries % rows > 0)
        lower_block(b, ul_kx_index_const(k, whole * rows), queries % rows);
}

static void size_blocks(struct backward *b)
{
    struct ul_lower *lower = b->a.lower;
    const struct ul_attention *shape = &b->a.shape;
    int64_t rows = MAX_SCORES / b->keys / ROW_UNIT * ROW_UNIT;
    rows = rows < ROW_UNIT ? ROW_UNIT : rows > MAX_ROWS ? MAX_ROWS : rows;
    b->a.max_rows = rows < shape->queries ? rows : shape->queries;
    uint64_t count = (uint64_t)(b->a.max_rows * b->keys);
    b->shares = ul_lower_scratch(lower, b->a.dtype, count);
    b->a.scores = b->shares;
    b->a.pitch = b->keys;
    b->a.lanes = ul_lower_local(lower, b->a.dtype, UL_ATTENTION_LANES);
    b->slopes = ul_lower_scratch(lower, b->a.dtype, count);
    if (shape->softcap > 0)
        b->capped = ul_lower_scratch(lower, b->a.dtype, count);
    b->key_sums = ul_lower_scratch(lower, b->a.dtype, (uint64_t)(b->keys * shape->size));
    b->value_sums = ul_lower_scratch(lower, b->a.dtype, (uint64_t)(b->keys * shape->value_size));
}

/* Where there is nothing to attend to, nothing flows. */
static void store_zeros(struct ul_lower *lower, ul_node_id node)
{
    for (uint32_t i = 0; i < 3; i++) {
        const struct ul_type *type = ul_lower_output_type(lower, node, i);
        ul_kx index[UL_LIMIT_RANK];
        ul_lower_open(lower, type->rank, type->dims, index);
        ul_lower_store(lower, ul_check_node(lower, node)->outputs[i], index,
                       ul_kx_number(lower->kernel, ul_compute_dtype(type->dtype), 0));
        ul_lower_close(lower, type->rank);
    }
}

void ul_lower_attention_gradient(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    struct backward b = {.a = {.lower = lower, .kernel = k, .node_id = node}};
    const struct ul_attention *shape = &b.a.shape;
    const struct ul_type *types[UL_ATTENTION_INPUTS] = {NULL};
    b.a.node = ul_check_node(lower, node);
    for (uint32_t i = 0; i < UL_ATTENTION_INPUTS; i++)
        if (ul_lower_has_input(lower, node, i))
            types[i] = ul_lower_input_type(lower, node, i);
    const char *wrong = ul_attention_read(&b.a.shape, b.a.node, types);
    UL_ASSERT(wrong == NULL);
    b.a.dtype = ul_compute_dtype(types[UL_ATTENTION_Q]->dtype);
    b.keys = shape->keys;
    if (b.keys == 0 || shape->queries == 0 || shape->size == 0 || shape->value_size == 0) {
        store_zeros(lower, node);
        return;
    }
    size_blocks(&b);
    b.a.batch = ul_ks_for(k, shape->batch, UL_FOR_PARALLEL);
    b.a.group = ul_ks_for(k, shape->groups, UL_FOR_PARALLEL);
    clear_sums(&b, b.key_sums, shape->size);
    clear_sums(&b, b.value_sums, shape->value_size);
    int64_t shared = shape->heads / shape->groups;
    b.a.head = ul_kx_add(k, ul_kx_muli(k, b.a.group, shared), ul_ks_for(k, shared, 0));
    lower_blocks(&b);
    ul_ks_end(k);
    store_sums(&b, 1, b.key_sums, shape->size);
    store_sums(&b, 2, b.value_sums, shape->value_size);
    ul_lower_close(lower, 2);
}
