/* Attention by blocks of queries, so that the matrix of all scores never exists:
 *
 *     for batch, head:
 *         for blocks of queries:
 *             scores = Q K^T, scaled, capped, masked      contractions; scratch, [block][keys]
 *             softmax of each row in place
 *             Y = scores V                                contractions
 *
 * Keys and values come in two parts, the cache and the new ones, each with a contraction of its
 * own; the sums over the cached values wait in scratch for those over the new ones.
 */
#include "ir/ops/attention.h"

#include <math.h>

#define BLOCK 32 /* queries */

struct attention {
    struct ul_lower *lower;
    struct ul_kernel *kernel;
    const struct ul_node *node;
    ul_node_id node_id;
    struct ul_attention shape;
    enum ul_dtype dtype;      /* computed in */
    uint32_t scores, partial; /* scratch: [BLOCK][all keys], [BLOCK][value_size] */
    ul_kx batch, head, group;
    ul_kx first; /* query of the block */
    int64_t rows;
};

static ul_kx constant(const struct attention *a, int64_t value)
{
    return ul_kx_index_const(a->kernel, value);
}

static bool has(const struct attention *a, enum ul_attention_input input)
{
    return ul_lower_has_input(a->lower, a->node_id, input);
}

static bool gives(const struct attention *a, uint32_t output)
{
    return ul_lower_has_output(a->lower, a->node_id, output);
}

static int64_t all_keys(const struct attention *a)
{
    return a->shape.past + a->shape.keys;
}

/* The index of [batch, head, position, element] in an operand, flat or split. */
static uint32_t place(const struct attention *a, bool is_flat, ul_kx head, ul_kx position,
                      ul_kx element, int64_t size, ul_kx index[4])
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

/* An operand of a contraction: position from `position` on along variable `along`, element along
 * variable `across`. */
static void fill(const struct attention *a, struct ul_contraction *contraction,
                 struct ul_operand *operand, enum ul_attention_input input, bool is_flat,
                 ul_kx head, ul_kx position, int64_t size, uint32_t along, uint32_t across)
{
    ul_kx base[4];
    int64_t at[4][UL_CONTRACT_DIMS] = {{0}};
    uint32_t rank = place(a, is_flat, head, position, constant(a, 0), size, base);
    at[rank == 3 ? 1 : 2][along] = 1;
    at[rank - 1][across] = 1;
    ul_lower_operand(a->lower, contraction, operand, a->node->inputs[input], base, at, 0, 0);
}

/* What is added to the score of query `q` and key `t`. */
static ul_kx bias_of(const struct attention *a, ul_kx q, ul_kx t)
{
    struct ul_kernel *kernel = a->kernel;
    ul_kx none = ul_kx_number(kernel, a->dtype, 0);
    ul_kx never = ul_kx_number(kernel, a->dtype, -INFINITY), bias = none;
    if (has(a, UL_ATTENTION_MASK)) {
        ul_value_id mask = a->node->inputs[UL_ATTENTION_MASK];
        const struct ul_type *type = &a->lower->graph->values[mask].type;
        int64_t length = type->dims[type->rank - 1];
        bool is_short = length < all_keys(a) && length > 0;
        ul_kx index[] = {a->batch, a->head, q,
                         is_short ? ul_kx_clamp(kernel, t, 0, length - 1) : t};
        if (length > 0) {
            bias = ul_lower_load_broadcast(a->lower, mask, index, 4);
            bias = type->dtype == UL_BOOL ? ul_kx_select(kernel, bias, none, never)
                                          : ul_kx_cast(kernel, a->dtype, bias);
        }
        if (length < all_keys(a))
            bias = ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LT, t, constant(a, length)),
                                bias, never);
    }
    if (a->shape.is_causal) {
        ul_kx last = ul_kx_addi(kernel, q, a->shape.past);
        bias = ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LE, t, last), bias, never);
    }
    if (has(a, UL_ATTENTION_LENGTHS)) {
        ul_kx length = ul_lower_load(a->lower, a->node->inputs[UL_ATTENTION_LENGTHS], &a->batch);
        bias = ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LT, t, length), bias, never);
    }
    return bias;
}

static bool has_bias(const struct attention *a)
{
    return has(a, UL_ATTENTION_MASK) || a->shape.is_causal || has(a, UL_ATTENTION_LENGTHS);
}

static void store_scores(const struct attention *a, int64_t mode, ul_kx q, ul_kx t, ul_kx x)
{
    ul_kx index[] = {a->batch, a->head, q, t};
    if (gives(a, 3) && a->shape.scores_mode == mode)
        ul_lower_store(a->lower, a->node->outputs[3], index, x);
}

/* row * all keys + t */
static ul_kx score_at(const struct attention *a, ul_kx row, ul_kx t)
{
    return ul_kx_add(a->kernel, ul_kx_muli(a->kernel, row, all_keys(a)), t);
}

/* Scores of the block against `count` keys of `input`, which are keys `from` and on. */
static void lower_scores(const struct attention *a, enum ul_attention_input input, bool is_flat,
                         int64_t from, int64_t count)
{
    struct ul_kernel *kernel = a->kernel;
    const struct ul_attention *shape = &a->shape;
    struct ul_contraction contraction;
    if (count == 0)
        return;
    ul_contraction_init(kernel, &contraction, a->dtype, &a->rows, 1, &count, 1, &shape->size, 1);
    fill(a, &contraction, &contraction.a, UL_ATTENTION_Q, shape->is_flat, a->head, a->first,
         shape->size, 0, 2);
    fill(a, &contraction, &contraction.b, input, is_flat, a->group, constant(a, 0), shape->size, 1,
         2);
    ul_ks_contract(kernel, &contraction);
    ul_kx row = ul_kx_var(kernel, contraction.vars[0]);
    ul_kx q = ul_kx_add(kernel, a->first, row);
    ul_kx t = ul_kx_addi(kernel, ul_kx_var(kernel, contraction.vars[1]), from);
    ul_kx x = ul_kx_binary(kernel, UL_KX_MUL, ul_kx_var(kernel, contraction.acc),
                           ul_kx_number(kernel, a->dtype, shape->scale));
    ul_kx plain = x;
    if (shape->softcap > 0) {
        ul_kx cap = ul_kx_number(kernel, a->dtype, shape->softcap);
        x = ul_kx_unary(kernel, UL_KX_TANH, ul_kx_binary(kernel, UL_KX_DIV, x, cap));
        x = ul_kx_binary(kernel, UL_KX_MUL, x, cap);
    }
    ul_kx capped = x;
    if (has_bias(a))
        x = ul_kx_binary(kernel, UL_KX_ADD, x, bias_of(a, q, t));
    store_scores(a, 0, q, t, plain);
    store_scores(a, 1, q, t, capped);
    store_scores(a, 2, q, t, x);
    ul_ks_store(kernel, a->scores, score_at(a, row, t), x);
    ul_ks_end(kernel);
}

static void lower_softmax(const struct attention *a)
{
    struct ul_kernel *kernel = a->kernel;
    ul_kx row = ul_ks_for(kernel, a->rows, UL_FOR_PARALLEL);
    uint32_t most = ul_ks_var(kernel, a->dtype, ul_kx_number(kernel, a->dtype, -INFINITY));
    uint32_t sum = ul_ks_var(kernel, a->dtype, ul_kx_number(kernel, a->dtype, 0));
    ul_kx t = ul_ks_for(kernel, all_keys(a), UL_FOR_REDUCE);
    ul_ks_set(kernel, most,
              ul_kx_binary(kernel, UL_KX_MAX, ul_kx_var(kernel, most),
                           ul_kx_load(kernel, a->scores, score_at(a, row, t))));
    ul_ks_end(kernel);
    t = ul_ks_for(kernel, all_keys(a), UL_FOR_REDUCE);
    ul_kx at = score_at(a, row, t);
    ul_kx e =
        ul_kx_binary(kernel, UL_KX_SUB, ul_kx_load(kernel, a->scores, at), ul_kx_var(kernel, most));
    e = ul_ks_let(kernel, ul_kx_unary(kernel, UL_KX_EXP, e));
    ul_ks_store(kernel, a->scores, at, e);
    ul_ks_set(kernel, sum, ul_kx_binary(kernel, UL_KX_ADD, ul_kx_var(kernel, sum), e));
    ul_ks_end(kernel);
    t = ul_ks_for(kernel, all_keys(a), UL_FOR_PARALLEL);
    at = score_at(a, row, t);
    ul_kx x =
        ul_kx_binary(kernel, UL_KX_DIV, ul_kx_load(kernel, a->scores, at), ul_kx_var(kernel, sum));
    x = ul_ks_let(kernel, x);
    ul_ks_store(kernel, a->scores, at, x);
    store_scores(a, 3, ul_kx_add(kernel, a->first, row), t, x);
    ul_ks_end(kernel);
    ul_ks_end(kernel);
}

/* The block's rows of scores times `count` values of `input`, which are values `from` and on.
 * Added to what is in `partial` when `adds`, kept there when `keeps`, else Y. */
static void lower_values(const struct attention *a, enum ul_attention_input input, bool is_flat,
                         int64_t from, int64_t count, bool adds, bool keeps)
{
    struct ul_kernel *kernel = a->kernel;
    const struct ul_attention *shape = &a->shape;
    struct ul_contraction contraction;
    ul_contraction_init(kernel, &contraction, a->dtype, &a->rows, 1, &shape->value_size, 1, &count,
                        1);
    contraction.a.buffer = a->scores;
    contraction.a.at.base = constant(a, from);
    contraction.a.at.strides[0] = all_keys(a);
    contraction.a.at.strides[2] = 1;
    fill(a, &contraction, &contraction.b, input, is_flat, a->group, constant(a, 0),
         shape->value_size, 2, 1);
    ul_ks_contract(kernel, &contraction);
    ul_kx row = ul_kx_var(kernel, contraction.vars[0]);
    ul_kx element = ul_kx_var(kernel, contraction.vars[1]);
    ul_kx sum = ul_kx_var(kernel, contraction.acc);
    ul_kx at = ul_kx_add(kernel, ul_kx_muli(kernel, row, shape->value_size), element);
    if (adds)
        sum = ul_kx_binary(kernel, UL_KX_ADD, ul_kx_load(kernel, a->partial, at), sum);
    ul_kx index[4];
    place(a, shape->is_flat, a->head, ul_kx_add(kernel, a->first, row), element, shape->value_size,
          index);
    if (keeps)
        ul_ks_store(kernel, a->partial, at, sum);
    else
        ul_lower_store(a->lower, a->node->outputs[0], index, sum);
    ul_ks_end(kernel);
}

/* Queries first .. first + rows - 1 of one head. */
static void lower_block(struct attention *a, ul_kx first, int64_t rows)
{
    const struct ul_attention *shape = &a->shape;
    bool has_past = shape->past > 0 && shape->keys > 0;
    a->first = first;
    a->rows = rows;
    lower_scores(a, UL_ATTENTION_PAST_K, false, 0, shape->past);
    lower_scores(a, UL_ATTENTION_K, shape->is_flat, shape->past, shape->keys);
    lower_softmax(a);
    if (shape->past > 0)
        lower_values(a, UL_ATTENTION_PAST_V, false, 0, shape->past, false, has_past);
    if (shape->keys > 0 || shape->past == 0)
        lower_values(a, UL_ATTENTION_V, shape->is_flat, shape->past, shape->keys, has_past, false);
}

/* The cache with the new keys or values behind it. */
static void lower_present(struct attention *a, uint32_t output, enum ul_attention_input past,
                          enum ul_attention_input next, int64_t size)
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
        place(a, part == 1 && shape->is_flat, index[1], index[2], index[3], size, from);
        ul_kx x = ul_lower_load(a->lower, a->node->inputs[part == 0 ? past : next], from);
        index[2] = ul_kx_addi(kernel, index[2], part == 0 ? 0 : shape->past);
        ul_lower_store(a->lower, a->node->outputs[output], index, x);
        ul_lower_close(a->lower, 4);
    }
}

void ul_lower_attention(struct ul_lower *lower, ul_node_id node_id)
{
    struct attention a = {.lower = lower,
                          .kernel = lower->kernel,
                          .node = &lower->graph->nodes[node_id],
                          .node_id = node_id};
    const struct ul_type *types[7] = {NULL};
    for (uint32_t i = 0; i < 7; i++)
        if (ul_lower_has_input(lower, node_id, i))
            types[i] = ul_lower_input_type(lower, node_id, i);
    const char *wrong = ul_attention_read(&a.shape, a.node, types);
    UL_ASSERT(wrong == NULL);
    const struct ul_attention *shape = &a.shape;
    a.dtype = ul_compute_dtype(types[UL_ATTENTION_Q]->dtype);
    lower_present(&a, 1, UL_ATTENTION_PAST_K, UL_ATTENTION_K, shape->size);
    lower_present(&a, 2, UL_ATTENTION_PAST_V, UL_ATTENTION_V, shape->value_size);
    int64_t block = shape->queries < BLOCK ? shape->queries : BLOCK;
    a.scores = ul_lower_scratch(lower, a.dtype, (uint64_t)(block * all_keys(&a)));
    a.partial = UL_NONE;
    if (shape->past > 0 && shape->keys > 0)
        a.partial = ul_lower_scratch(lower, a.dtype, (uint64_t)(block * shape->value_size));
    a.batch = ul_ks_for(lower->kernel, shape->batch, 0);
    a.group = ul_ks_for(lower->kernel, shape->groups, 0);
    int64_t shared = shape->heads / shape->groups;
    a.head = ul_kx_add(lower->kernel, ul_kx_muli(lower->kernel, a.group, shared),
                       ul_ks_for(lower->kernel, shared, 0));
    if (shape->queries >= BLOCK) {
        ul_kx index = ul_ks_for(lower->kernel, shape->queries / BLOCK, 0);
        lower_block(&a, ul_kx_muli(lower->kernel, index, BLOCK), BLOCK);
        ul_ks_end(lower->kernel);
    }
    if (shape->queries % BLOCK != 0)
        lower_block(&a, ul_kx_index_const(lower->kernel, shape->queries / BLOCK * BLOCK),
                    shape->queries % BLOCK);
    ul_lower_close(lower, 3);
}
