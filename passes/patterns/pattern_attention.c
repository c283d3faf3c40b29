/* SPDX-License-Identifier: Apache-2.0 */
/* Attention spelled out: MatMul(Softmax(Q K^T * scale + masks), V), and the Transpose after it.
 *
 *      [batch, heads, queries, depth]   Q --\                  V --\
 *                                            MatMul .. Softmax -- MatMul -- Transpose
 *      [batch, heads, depth, keys]   K^T --/  scale, masks, Reshape
 *
 * The scores may change shape on the way as long as queries and keys stay the last dimensions:
 * masks are brought to the shape that the scores are seen in. Masks: what is added to the scores,
 * or a Where with a number so low that a score added to it changes nothing. Those that hide exactly
 * the later keys become an attribute where a hidden key counts for nothing in any row: by -inf, or
 * by such a number where nothing else can hide what the query sees. A Where that puts zeros in
 * place of NaN after the Softmax (queries that see no key) becomes an attribute too, and a Drop of
 * the weights, in front of the second product, an operand: what it draws does not depend on who
 * draws it. Keys and values that are repeated for several heads are taken as they were before. The
 * lowest number of f16 is no such number, but means -inf alone, where each row is known to keep a
 * key. So does -10000, which converters to f16 write for it: a row whose kept scores are all below
 * that sees them still, where the model sees what it hides; no scale stands between it and the
 * Softmax. A Where that hides by a finite number must be nearest to the product: what is added
 * before it it would replace. Scores that are NaN or infinite where a Where hides them stay hidden
 * in the model alone. */
#include "ir/infer.h"
#include "ir/op.h"
#include "ir/op_names.h"
#include "passes/patterns/pattern_internal.h"

#include <math.h>
#include <string.h>

enum { MASKS = 2, LEVELS = 6, RANK = 4, MASK_NODES = 256, INPUTS = 9 };

/* An addition to the scores, or a condition on them. */
struct mask {
    ul_value_id value;
    bool is_condition;
    bool hides_true; /* a condition: where it holds, the score is `low` */
    double low;
    struct ul_type level; /* the scores' type there */
    bool is_f16;          /* in the model */
};

struct attention {
    ul_value_id q, k, v; /* k as the MatMul reads it: [.., depth, keys] */
    double scale;
    uint32_t mask_count;
    struct mask masks[MASKS];
    bool is_causal, nan_is_zero;
    bool is_f16;           /* the model has it as f16, whose lowest number is */
    ul_node_id drop;       /* of weights; UL_NONE: there is none */
    struct ul_type scores; /* [batch, heads, queries, keys] */
    int64_t value_depth, groups;
};

/* ---- From the Softmax back to the first MatMul ---- */

/* Whether the value depends on a parameter that is trained; where it takes more than `left` nodes
 * to tell, it counts as one that does. */
static bool is_trained(const struct ul_graph *graph, ul_value_id value, uint32_t *left)
{
    const struct ul_value *info = &graph->values[value];
    if (info->kind != UL_VALUE_NODE || *left == 0)
        return (info->flags & UL_VALUE_TRAINED) != 0 || *left == 0;
    const struct ul_node *node = &graph->nodes[info->producer];
    --*left;
    for (uint32_t i = 0; i < node->input_count; i++)
        if (node->inputs[i] != UL_NONE && is_trained(graph, node->inputs[i], left))
            return true;
    return false;
}

static bool add_mask(struct ul_pattern *pattern, struct attention *a, const struct mask *mask)
{
    uint32_t left = MASK_NODES;
    const struct ul_type *type = ul_pattern_type(pattern, mask->value);
    struct ul_type full = mask->level, own = *type, both;
    own.dtype = full.dtype;
    /* A mask that is learned has a gradient, which is to be smaller than the scores. */
    if (pattern->pass->options->training != NULL &&
        ul_type_elements(type) > ul_type_elements(&full) / 2 &&
        is_trained(pattern->graph, mask->value, &left))
        return false;
    if (a->mask_count == MASKS || a->scale < 1 || a->scale > 1 || type->rank == 0 ||
        type->dims[type->rank - 1] != full.dims[full.rank - 1] ||
        !ul_broadcast(&full, &own, &both) || !ul_type_equal(&both, &full) ||
        (!mask->is_condition && type->dtype != full.dtype))
        return false;
    a->masks[a->mask_count++] = *mask;
    a->is_f16 = a->is_f16 || mask->is_f16;
    return true;
}

static bool find_product(struct ul_pattern *pattern, struct attention *a, ul_value_id scores,
                         uint32_t level);

static bool is_f16(const struct ul_graph *graph, const struct ul_node *node)
{
    return graph->values[node->outputs[0]].declared == UL_F16;
}

/* scores = product + mask, either way round */
static bool through_add(struct ul_pattern *pattern, struct attention *a, const struct ul_node *node,
                        uint32_t level)
{
    struct attention saved = *a;
    uint32_t members = pattern->member_count;
    for (uint32_t i = 0; i < 2; i++) {
        struct mask mask = {.value = node->inputs[1 - i],
                            .level = *ul_pattern_type(pattern, node->outputs[0]),
                            .is_f16 = is_f16(pattern->graph, node)};
        *a = saved;
        pattern->member_count = members;
        if (ul_type_equal(ul_pattern_type(pattern, node->inputs[i]), &mask.level) &&
            add_mask(pattern, a, &mask) && find_product(pattern, a, node->inputs[i], level))
            return true;
    }
    return false;
}

/* scores = condition ? product : low, or the other way round */
static bool through_where(struct ul_pattern *pattern, struct attention *a,
                          const struct ul_node *node, uint32_t level)
{
    struct mask mask = {.value = node->inputs[0],
                        .is_condition = true,
                        .level = *ul_pattern_type(pattern, node->outputs[0]),
                        .is_f16 = is_f16(pattern->graph, node)};
    mask.hides_true = ul_graph_get_number(pattern->graph, node->inputs[1], &mask.low);
    if (!mask.hides_true && !ul_graph_get_number(pattern->graph, node->inputs[2], &mask.low))
        return false;
    ul_value_id next = node->inputs[mask.hides_true ? 2 : 1];
    return ul_type_equal(ul_pattern_type(pattern, next), &mask.level) && mask.low < 0 &&
           add_mask(pattern, a, &mask) && find_product(pattern, a, next, level);
}

/* A Reshape that leaves queries and keys where they are. */
static bool through_reshape(struct ul_pattern *pattern, struct attention *a, ul_value_id scores,
                            uint32_t level)
{
    const struct ul_value *made = &pattern->graph->values[scores];
    if (made->kind != UL_VALUE_NODE)
        return false;
    const struct ul_node *node =
        ul_pattern_match(pattern, scores, pattern->graph->nodes[made->producer].op);
    if (node == NULL || !ul_edit_is_reshape(node->op))
        return false;
    const struct ul_type *from = ul_pattern_type(pattern, node->inputs[0]), *to = &made->type;
    for (uint32_t d = 1; d <= 2; d++)
        if (from->rank < d || to->rank < d || from->dims[from->rank - d] != to->dims[to->rank - d])
            return false;
    return find_product(pattern, a, node->inputs[0], level);
}

static bool find_product(struct ul_pattern *pattern, struct attention *a, ul_value_id scores,
                         uint32_t level)
{
    if (level == 0)
        return false;
    if (ul_pattern_unscale(pattern, &scores, &a->scale))
        return find_product(pattern, a, scores, level - 1);
    const struct ul_node *node = ul_pattern_match(pattern, scores, UL_OP_MatMul);
    if (node != NULL) {
        a->q = node->inputs[0];
        a->k = node->inputs[1];
        return true;
    }
    node = ul_pattern_match(pattern, scores, UL_OP_Add);
    if (node != NULL)
        return through_add(pattern, a, node, level - 1);
    node = ul_pattern_match(pattern, scores, UL_OP_Where);
    if (node != NULL)
        return through_where(pattern, a, node, level - 1);
    return through_reshape(pattern, a, scores, level - 1);
}

/* ---- Shapes ---- */

/* Batch and heads: those of the product, or those at a mask's level that tells them apart. */
static bool read_shape(struct ul_pattern *pattern, struct attention *a, ul_value_id product)
{
    const struct ul_type *type = ul_pattern_type(pattern, product);
    if (type->rank < 2 || type->rank > RANK)
        return false;
    a->scores = (struct ul_type){.dtype = type->dtype, .rank = RANK, .dims = {1, 1}};
    for (uint32_t d = 0; d < type->rank; d++)
        a->scores.dims[RANK - type->rank + d] = type->dims[d];
    for (uint32_t m = 0; m < a->mask_count && type->rank == 3; m++) {
        const struct ul_type *level = &a->masks[m].level;
        if (level->rank == RANK && level->dims[0] * level->dims[1] == type->dims[0])
            a->scores = *level;
    }
    return true;
}

/* The dimensions before the last two are as in the product (`heads` may be fewer). */
static bool fits(const struct ul_pattern *pattern, const struct attention *a, ul_value_id product,
                 ul_value_id operand, bool may_share)
{
    const struct ul_type *type = ul_pattern_type(pattern, product);
    const struct ul_type *own = ul_pattern_type(pattern, operand);
    if (own->rank != type->rank || own->dtype != a->scores.dtype)
        return false;
    for (uint32_t d = 0; d + 2 < type->rank; d++) {
        bool is_heads = type->rank == RANK && d == 1;
        if (own->dims[d] != type->dims[d] && !(is_heads && may_share && own->dims[d] == 1))
            return false;
    }
    return true;
}

static bool read_operands(struct ul_pattern *pattern, struct attention *a, ul_value_id product)
{
    if (!read_shape(pattern, a, product) || !fits(pattern, a, product, a->q, false) ||
        !fits(pattern, a, product, a->k, true) || !fits(pattern, a, product, a->v, true))
        return false;
    const struct ul_type *q = ul_pattern_type(pattern, a->q), *k = ul_pattern_type(pattern, a->k);
    const struct ul_type *v = ul_pattern_type(pattern, a->v);
    uint32_t rank = q->rank;
    if (q->dims[rank - 2] != a->scores.dims[2] || q->dims[rank - 1] != k->dims[rank - 2] ||
        k->dims[rank - 1] != a->scores.dims[3] || v->dims[rank - 2] != a->scores.dims[3])
        return false;
    a->value_depth = v->dims[v->rank - 1];
    a->groups = k->rank == RANK ? k->dims[1] : a->scores.dims[1];
    return k->rank != RANK || k->dims[1] == v->dims[1];
}

/* The dimensions of the mask before its last two, in the shape of the scores. Where one of those
 * covers several dimensions of the mask's level, the mask must have all of them or none. */
static bool mask_dims(const struct attention *a, const struct mask *mask, const struct ul_type *own,
                      struct ul_type *out)
{
    const struct ul_type *level = &mask->level;
    uint32_t at = 0, lead = level->rank - 2, missing = level->rank - own->rank;
    *out = a->scores;
    out->dtype = own->dtype;
    for (uint32_t d = 0; d < RANK; d++) {
        if (d >= 2) {
            uint32_t from = level->rank - RANK + d;
            out->dims[d] = from < missing ? 1 : own->dims[from - missing];
            continue;
        }
        int64_t covered = 1, taken = 1;
        while (at < lead && (covered < a->scores.dims[d] || level->dims[at] == 1)) {
            covered *= level->dims[at];
            taken *= at < missing ? 1 : own->dims[at - missing];
            at++;
        }
        if (covered != a->scores.dims[d] || (taken != 1 && taken != covered))
            return false;
        out->dims[d] = taken;
    }
    return at == lead;
}

/* ---- Masks ---- */

/* The number that is added for a query and a key. */
static double mask_at(const struct mask *mask, const struct ul_tensor *tensor, uint64_t index)
{
    if (!mask->is_condition)
        return ul_tensor_get_float(tensor, index);
    bool is_true = ul_tensor_get_int(tensor, index) != 0;
    return is_true == mask->hides_true ? mask->low : 0;
}

/* What a constant mask does. */
struct mask_facts {
    bool is_causal;    /* lowers the keys after the query, and no others */
    bool leaves_a_key; /* in each row */
    double min;        /* is_causal: the one nearest to 0 of the numbers added to those */
};

static struct mask_facts look_at(const struct attention *a, const struct mask *mask,
                                 const struct ul_tensor *tensor)
{
    int64_t queries = a->scores.dims[2], keys = a->scores.dims[3];
    uint64_t count = ul_type_elements(&tensor->type);
    bool by_query = tensor->type.rank >= 2 && tensor->type.dims[tensor->type.rank - 2] == queries;
    struct mask_facts facts = {
        .is_causal = by_query && queries == keys, .leaves_a_key = true, .min = -INFINITY};
    bool leaves = false;
    UL_ASSERT(queries > 0 && keys > 0);
    for (uint64_t i = 0; i < count; i++) {
        int64_t key = (int64_t)(i % (uint64_t)keys);
        int64_t query = (int64_t)(i / (uint64_t)keys % (uint64_t)queries);
        double number = mask_at(mask, tensor, i);
        bool is_shown = number >= 0 && number <= 0;
        leaves = (key > 0 && leaves) || is_shown;
        facts.leaves_a_key = facts.leaves_a_key && (key + 1 < keys || leaves);
        facts.is_causal = facts.is_causal && (key <= query ? is_shown : number < 0);
        facts.min = key > query ? fmax(facts.min, number) : facts.min;
    }
    return facts;
}

/* Whether a score added to it is lost, even among the digits of f64. */
static bool swallows(double number)
{
    return number <= -1e30;
}

/* About the lowest number of the scores' type. */
static bool is_lowest(const struct attention *a, double number)
{
    enum { LOW = -10000 }; /* what converters to f16 take for the lowest number */
    return swallows(number) || (a->is_f16 && number <= LOW) ||
           (a->scores.dtype == UL_F16 && number <= -65504);
}

/* False: the mask cannot be added. Drops it where the scores are causal by it. */
static bool resolve_mask(struct ul_pattern *pattern, struct attention *a, uint32_t m, bool *drops)
{
    const struct mask *mask = &a->masks[m];
    const struct ul_type *own = ul_pattern_type(pattern, mask->value);
    const struct ul_tensor *tensor = ul_graph_get_constant(pattern->graph, mask->value);
    struct ul_type dims;
    struct mask_facts facts = {0};
    *drops = false;
    if (!mask_dims(a, mask, own, &dims))
        return false;
    if (tensor != NULL && ul_type_elements(own) > 0 && ul_type_elements(&a->scores) > 0)
        facts = look_at(a, mask, tensor);
    bool is_alone = a->mask_count == 1, is_nearest = m + 1 == a->mask_count;
    bool is_low = mask->is_condition ? is_lowest(a, facts.min) : swallows(facts.min);
    *drops = facts.is_causal && (isinf(facts.min) || (is_alone && is_low));
    return !mask->is_condition || isinf(mask->low) || (is_nearest && swallows(mask->low)) ||
           (is_alone && facts.leaves_a_key && is_lowest(a, mask->low));
}

static bool resolve_masks(struct ul_pattern *pattern, struct attention *a)
{
    uint32_t kept = 0;
    UL_ASSERT(a->mask_count <= MASKS);
    for (uint32_t m = 0; m < a->mask_count; m++) {
        bool drops;
        if (!resolve_mask(pattern, a, m, &drops))
            return false;
        a->is_causal = a->is_causal || drops;
        if (!drops)
            a->masks[kept++] = a->masks[m];
    }
    a->mask_count = kept;
    return true;
}

/* ---- Building ---- */

/* A new node before the root. */
static ul_value_id insert(struct ul_pattern *pattern, ul_op_id op, const ul_value_id *inputs,
                          uint32_t count, const struct ul_type *type)
{
    struct ul_build build = ul_build_before(pattern->graph, pattern->root);
    for (uint32_t i = 0; i < count; i++)
        ul_pattern_use(pattern, inputs[i]);
    return ul_build_value(&build, op, inputs, count, type);
}

static ul_value_id shape_weight(struct ul_pattern *pattern, const struct ul_type *type)
{
    return ul_build_ints(pattern->graph, "shape", type->rank, type->dims);
}

static ul_value_id reshaped(struct ul_pattern *pattern, ul_value_id value,
                            const struct ul_type *type)
{
    if (ul_type_equal(ul_pattern_type(pattern, value), type))
        return value;
    ul_value_id inputs[] = {value, shape_weight(pattern, type)};
    return insert(pattern, UL_OP_Reshape, inputs, 2, type);
}

/* What is added to the scores, in their shape. */
static ul_value_id build_mask(struct ul_pattern *pattern, const struct attention *a,
                              const struct mask *mask)
{
    const struct ul_type own = *ul_pattern_type(pattern, mask->value);
    struct ul_type dims, summand = own;
    ul_value_id value = mask->value;
    bool fits_shape = mask_dims(a, mask, &own, &dims);
    UL_ASSERT(fits_shape);
    summand.dtype = dims.dtype = a->scores.dtype;
    if (mask->is_condition) {
        ul_value_id zero = ul_build_number(pattern->graph, "number", a->scores.dtype, 0, 0);
        double number = swallows(mask->low) ? mask->low : -INFINITY; /* a score may outweigh it */
        ul_value_id low = ul_build_number(pattern->graph, "number", a->scores.dtype, 0, number);
        ul_value_id inputs[] = {value, mask->hides_true ? low : zero,
                                mask->hides_true ? zero : low};
        value = insert(pattern, UL_OP_Where, inputs, 3, &summand);
    }
    return reshaped(pattern, value, &dims);
}

/* The operand without numbers as factors; these go into the scale. */
static ul_value_id unscaled(struct ul_pattern *pattern, struct attention *a, ul_value_id value)
{
    while (ul_pattern_uses(pattern, value) == 1 && ul_pattern_unscale(pattern, &value, &a->scale))
        continue;
    return value;
}

/* K, from what the MatMul reads: the Transpose in front of it exchanges the last two dimensions,
 * and goes where it undoes just that. */
static ul_value_id turned(struct ul_pattern *pattern, struct attention *a)
{
    const struct ul_type type = *ul_pattern_type(pattern, a->k);
    uint32_t rank = type.rank, count;
    int64_t perm[UL_LIMIT_RANK];
    ul_value_id from = a->k;
    for (uint32_t d = 0; d < rank; d++)
        perm[d] = d;
    const struct ul_node *node = ul_pattern_maker(pattern, from, UL_OP_Transpose);
    const int64_t *own = node == NULL ? NULL : ul_node_get_ints(node, "perm", &count);
    if (own != NULL) {
        memcpy(perm, own, rank * sizeof *perm);
        if (ul_pattern_uses(pattern, from) == 1)
            ul_pattern_match(pattern, from, UL_OP_Transpose);
        from = node->inputs[0];
    }
    int64_t last = perm[rank - 1];
    perm[rank - 1] = perm[rank - 2];
    perm[rank - 2] = last;
    bool is_same = true;
    struct ul_type out = type;
    for (uint32_t d = 0; d < rank; d++) {
        is_same = is_same && perm[d] == d;
        out.dims[d] = ul_pattern_type(pattern, from)->dims[perm[d]];
    }
    if (is_same)
        return unscaled(pattern, a, from);
    ul_value_id made = insert(pattern, UL_OP_Transpose, &from, 1, &out);
    ul_node_set_ints(pattern->graph, pattern->graph->values[made].producer, "perm", perm, rank);
    return made;
}

static ul_value_id split_heads(struct ul_pattern *pattern, const struct attention *a,
                               ul_value_id value, int64_t heads)
{
    const struct ul_type *own = ul_pattern_type(pattern, value);
    UL_ASSERT(own->rank >= 2 && heads > 0);
    struct ul_type type = {.dtype = own->dtype, .rank = RANK, .dims = {a->scores.dims[0], heads}};
    memcpy(type.dims + 2, own->dims + own->rank - 2, 2 * sizeof *type.dims);
    return reshaped(pattern, value, &type);
}

/* The order in which the root stores the result's dimensions. */
static bool read_order(const struct ul_node *root, uint32_t rank, int64_t perm[RANK])
{
    uint32_t count = 0;
    const int64_t *own =
        root->op == UL_OP_Transpose ? ul_node_get_ints(root, "perm", &count) : NULL;
    for (uint32_t d = 0; d < RANK; d++)
        perm[d] = d;
    if (root->op != UL_OP_Transpose)
        return true;
    if (own == NULL || count != rank)
        return false;
    /* The first dimension, where there are fewer than four, stands for batch and heads (and
     * queries). */
    uint32_t at = 0;
    for (uint32_t d = 0; d < rank; d++)
        for (int64_t i = own[d] == 0 ? 0 : own[d] + RANK - rank; i <= own[d] + RANK - rank; i++)
            perm[at++] = i;
    return true;
}

/* The value that `value`, [batch, heads, length, size], repeats for several heads in a row; or
 * `value` itself. */
static ul_value_id before_repeat(const struct ul_pattern *pattern, ul_value_id value)
{
    const struct ul_node *flat = ul_pattern_maker(pattern, value, UL_OP_Reshape);
    const struct ul_node *expand =
        flat == NULL ? NULL : ul_pattern_maker(pattern, flat->inputs[0], UL_OP_Expand);
    if (expand == NULL)
        return value;
    const struct ul_type *all = ul_pattern_type(pattern, value);
    const struct ul_type *each = ul_pattern_type(pattern, flat->inputs[0]);
    const struct ul_type *one = ul_pattern_type(pattern, expand->inputs[0]);
    const struct ul_node *wide = ul_pattern_maker(pattern, expand->inputs[0], UL_OP_Unsqueeze);
    if (wide == NULL)
        wide = ul_pattern_maker(pattern, expand->inputs[0], UL_OP_Reshape);
    if (wide == NULL || all->rank != RANK || each->rank != RANK + 1 || one->rank != RANK + 1 ||
        one->dims[2] != 1)
        return value;
    const struct ul_type *source = ul_pattern_type(pattern, wide->inputs[0]);
    for (uint32_t d = 0; d <= RANK; d++) {
        uint32_t at = d > 2 ? d - 1 : d;
        if (d == 2)
            continue;
        if (one->dims[d] != each->dims[d] || source->rank != RANK ||
            source->dims[at] != one->dims[d] || (d != 1 && all->dims[at] != one->dims[d]))
            return value;
    }
    return wide->inputs[0];
}

/* Takes keys and values of fewer heads, where both are repeated alike. */
static void share_heads(const struct ul_pattern *pattern, struct attention *a, ul_value_id *k,
                        ul_value_id *v)
{
    ul_value_id few_k = before_repeat(pattern, *k), few_v = before_repeat(pattern, *v);
    const struct ul_type *type = ul_pattern_type(pattern, few_k);
    if (few_k == *k || few_v == *v || a->groups != a->scores.dims[1] ||
        type->dims[1] != ul_pattern_type(pattern, few_v)->dims[1])
        return;
    *k = few_k;
    *v = few_v;
    a->groups = type->dims[1];
}

static void build(struct ul_pattern *pattern, struct attention *a, const int64_t perm[RANK])
{
    struct ul_graph *graph = pattern->graph;
    const int64_t full[RANK] = {a->scores.dims[0], a->scores.dims[1], a->scores.dims[2],
                                a->value_depth};
    struct ul_type type = {.dtype = a->scores.dtype, .rank = RANK};
    for (uint32_t d = 0; d < RANK; d++) {
        UL_ASSERT(perm[d] >= 0 && perm[d] < RANK);
        type.dims[d] = full[perm[d]];
    }
    struct ul_node drop = {0};
    ul_value_id inputs[INPUTS] = {UL_NONE, UL_NONE, UL_NONE, UL_NONE, UL_NONE,
                                  UL_NONE, UL_NONE, UL_NONE, UL_NONE};
    if (a->drop != UL_NONE)
        drop = graph->nodes[a->drop];
    a->q = unscaled(pattern, a, a->q);
    a->k = unscaled(pattern, a, a->k);
    ul_value_id keys = turned(pattern, a);
    share_heads(pattern, a, &keys, &a->v);
    inputs[0] = split_heads(pattern, a, a->q, a->scores.dims[1]);
    inputs[1] = split_heads(pattern, a, keys, a->groups);
    inputs[2] = split_heads(pattern, a, a->v, a->groups);
    if (a->mask_count > 0)
        inputs[3] = build_mask(pattern, a, &a->masks[0]);
    if (a->mask_count > 1)
        inputs[7] = build_mask(pattern, a, &a->masks[1]);
    uint32_t count = a->mask_count == 2 ? 8 : 3 + a->mask_count;
    if (a->drop != UL_NONE) {
        inputs[8] = drop.inputs[1];
        count = INPUTS;
    }
    ul_node_id node = pattern->root;
    ul_value_id out = graph->nodes[pattern->root].outputs[0];
    if (ul_type_equal(ul_pattern_type(pattern, out), &type)) {
        ul_pattern_replace(pattern, UL_OP_FusedAttention, inputs, count);
    } else {
        ul_value_id made = insert(pattern, UL_OP_FusedAttention, inputs, count, &type);
        ul_value_id shape[] = {made, shape_weight(pattern, ul_pattern_type(pattern, out))};
        node = graph->values[made].producer;
        ul_pattern_replace(pattern, UL_OP_Reshape, shape, 2);
    }
    ul_node_set_float(graph, node, "scale", a->scale);
    if (a->is_causal)
        ul_node_set_int(graph, node, "is_causal", 1);
    if (a->nan_is_zero)
        ul_node_set_int(graph, node, "nan_is_zero", 1);
    if (a->drop != UL_NONE) {
        ul_node_set_float(graph, node, "ratio", ul_node_get_float(&drop, "ratio", 0.5));
        ul_op_copy_seed(graph, node, &drop);
    }
    if (perm[0] != 0 || perm[1] != 1 || perm[2] != 2)
        ul_node_set_ints(graph, node, "perm", perm, RANK);
}

/* V and the result beside Q and K, with tiles for a part of the result, take no more room than the
 * scores did. */
static bool uses_less(const struct attention *a)
{
    int64_t queries = a->scores.dims[2], keys = a->scores.dims[3];
    return 2 * queries * a->value_depth + keys * a->value_depth <= queries * keys;
}

/* The Softmax that the second product reads: directly, by Where(IsNaN(weights), 0, weights), or by
 * a Drop of either. */
static const struct ul_node *match_softmax(struct ul_pattern *pattern, struct attention *a,
                                           ul_value_id weights)
{
    double zero;
    const struct ul_node *drop = ul_pattern_match(pattern, weights, UL_OP_Drop);
    if (drop != NULL) {
        a->drop = (ul_node_id)(drop - pattern->graph->nodes);
        weights = drop->inputs[0];
    }
    const struct ul_node *where = ul_pattern_match(pattern, weights, UL_OP_Where);
    const struct ul_node *test =
        where == NULL ? NULL : ul_pattern_match(pattern, where->inputs[0], UL_OP_IsNaN);
    if (where == NULL)
        return ul_pattern_match(pattern, weights, UL_OP_Softmax);
    if (test == NULL || test->inputs[0] != where->inputs[2] ||
        !ul_graph_get_number(pattern->graph, where->inputs[1], &zero) || zero < 0 || zero > 0 ||
        !ul_type_equal(ul_pattern_type(pattern, weights),
                       ul_pattern_type(pattern, where->inputs[2])))
        return NULL;
    a->nan_is_zero = true;
    return ul_pattern_match(pattern, where->inputs[2], UL_OP_Softmax);
}

static bool is_closed(const struct ul_pattern *pattern, const struct attention *a)
{
    ul_value_id operands[3 + MASKS] = {a->q, a->k, a->v};
    for (uint32_t m = 0; m < a->mask_count; m++)
        operands[3 + m] = a->masks[m].value;
    return ul_pattern_is_closed(pattern, operands, 3 + a->mask_count);
}

bool ul_pattern_attention(struct ul_pattern *pattern, ul_node_id root)
{
    const struct ul_node *node = &pattern->graph->nodes[root];
    int64_t perm[RANK];
    struct attention a = {.scale = 1, .drop = UL_NONE};
    if (node->op != UL_OP_Transpose && node->op != UL_OP_MatMul)
        return false;
    ul_pattern_begin(pattern, root);
    const struct ul_node *last = node;
    if (node->op == UL_OP_Transpose)
        last = ul_pattern_match(pattern, node->inputs[0], UL_OP_MatMul);
    if (last == NULL)
        return false;
    a.v = last->inputs[1];
    const struct ul_node *softmax = match_softmax(pattern, &a, last->inputs[0]);
    if (softmax == NULL)
        return false;
    uint32_t rank = ul_pattern_type(pattern, last->inputs[0])->rank;
    int64_t axis = ul_node_get_int(softmax, "axis", -1);
    if ((axis != -1 && axis != (int64_t)rank - 1) ||
        !find_product(pattern, &a, softmax->inputs[0], LEVELS) ||
        !read_operands(pattern, &a, last->inputs[0]) || !resolve_masks(pattern, &a) ||
        !read_order(node, rank, perm) || !is_closed(pattern, &a) ||
        (pattern->only_less && !uses_less(&a)))
        return false;
    pattern->may_match_more = pattern->may_match_more || !uses_less(&a);
    build(pattern, &a, perm);
    return true;
}
