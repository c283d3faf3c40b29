/* SPDX-License-Identifier: Apache-2.0 */
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
 * independent; the sums of each run over its heads and blocks in order.
 *
 * A target with many processors and tiles for it forms queries', keys' and values' gradients in
 * passes of their own, each of which is spread over blocks (attention_gradient_tiles.c). */
#include "ir/ops/attention/attention_backward.h"
#include "ir/ops/backward.def"
#include "ir/ops/check.h"

enum {
    MAX_ROWS = 64,      /* of a block */
    MAX_SCORES = 16384, /* of a block */
    ROW_UNIT = 8
};

/* Checks the statistics that are inputs. Returns NULL, or what is wrong. */
static const char *check_given(const struct ul_infer *infer, const struct ul_attention *a)
{
    const struct ul_type *norms = ul_infer_input(infer, UL_ATTENTION_GIVEN_NORMS);
    const struct ul_type *sums = ul_infer_input(infer, UL_ATTENTION_GIVEN_SUMS);
    const int64_t full[] = {a->batch, a->heads, a->queries, 1};
    const int64_t flat[] = {a->batch, a->queries, a->heads, 1};
    bool fits = norms != NULL && sums != NULL && norms->dtype == UL_F32 && norms->rank == 3 &&
                sums->dtype == UL_F32 && sums->rank == 4;
    for (uint32_t d = 0; fits && d < 4; d++)
        fits = (d == 3 || norms->dims[d] == full[d]) &&
               sums->dims[d] == (a->is_flat ? flat[d] : full[a->order[d]]);
    return fits || (norms == NULL && sums == NULL) ? NULL
                                                   : "the statistics do not match Q, K and V";
}

/* Where it is there. */
static bool is_result(const struct ul_infer *infer, const struct ul_type *type)
{
    const struct ul_type *gradient = ul_infer_input(infer, UL_ATTENTION_GRADIENT);
    bool fits = type == NULL || type->rank == gradient->rank;
    for (uint32_t d = 0; type != NULL && fits && d < type->rank; d++)
        fits = type->dims[d] == gradient->dims[d];
    return fits;
}

enum ul_status ul_infer_attention_gradient(struct ul_infer *infer)
{
    const struct ul_type *types[UL_ATTENTION_INPUTS];
    struct ul_attention a;
    for (uint32_t i = 0; i < UL_ATTENTION_INPUTS; i++)
        types[i] = ul_infer_input(infer, i);
    for (uint32_t i = 0; i < 3; i++)
        UL_TRY(ul_check_dtype(infer, i, UL_CHECK_FLOATS));
    UL_TRY(ul_check_dtype(infer, UL_ATTENTION_GRADIENT, UL_CHECK_FLOATS));
    const char *wrong = ul_attention_read(&a, infer->node, types);
    if (wrong == NULL && a.past > 0)
        wrong = "there is a cache of keys";
    if (wrong == NULL && ul_infer_input(infer, UL_ATTENTION_GRADIENT) == NULL)
        wrong = "the gradient of the result is required";
    if (wrong == NULL)
        wrong = check_given(infer, &a);
    if (wrong == NULL && !is_result(infer, ul_infer_input(infer, UL_ATTENTION_GIVEN_RESULT)))
        wrong = "the result has another shape than its gradient";
    if (wrong != NULL)
        return ul_infer_invalid(infer, "%s", wrong);
    for (uint32_t i = 0; i < 3; i++)
        ul_infer_set_type(infer, i, types[i]);
    uint32_t rank;
    const int64_t *mask = ul_node_get_ints(infer->node, "ul_mask", &rank);
    if (mask != NULL)
        ul_infer_set(infer, UL_ATTENTION_MASK_GRADIENT, types[0]->dtype, rank, mask);
    return UL_OK;
}

static void size_blocks(struct ul_attention_backward *b)
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

static void store_zeros(struct ul_lower *lower, ul_node_id node, uint32_t begin)
{
    for (uint32_t i = begin; i <= UL_ATTENTION_MASK_GRADIENT; i++) {
        if (!ul_lower_has_output(lower, node, i))
            continue;
        const struct ul_type *type = ul_lower_output_type(lower, node, i);
        ul_kx index[UL_LIMIT_RANK];
        ul_lower_open(lower, type->rank, type->dims, index);
        ul_lower_store(lower, ul_check_node(lower, node)->outputs[i], index,
                       ul_kx_number(lower->kernel, ul_compute_dtype(type->dtype), 0));
        ul_lower_close(lower, type->rank);
    }
}

/* What nothing shares is independent. */
static void open_groups(struct ul_attention_backward *b)
{
    struct ul_kernel *k = b->a.kernel;
    const struct ul_attention *shape = &b->a.shape;
    uint32_t of_batch = b->shares_batch ? 0 : UL_FOR_PARALLEL;
    uint32_t of_group = b->shares_head ? 0 : UL_FOR_PARALLEL;
    if (b->shares_batch) {
        b->a.group = ul_ks_for(k, shape->groups, of_group);
        b->a.batch = ul_ks_for(k, shape->batch, of_batch);
    } else {
        b->a.batch = ul_ks_for(k, shape->batch, of_batch);
        b->a.group = ul_ks_for(k, shape->groups, of_group);
    }
}

/* Whose gradient the output of masks is. */
static void read_mask(struct ul_attention_backward *b)
{
    const struct ul_attention *shape = &b->a.shape;
    if (!ul_lower_has_output(b->a.lower, b->a.node_id, UL_ATTENTION_MASK_GRADIENT))
        return;
    const struct ul_type *type =
        ul_lower_output_type(b->a.lower, b->a.node_id, UL_ATTENTION_MASK_GRADIENT);
    UL_ASSERT(type->rank == 4);
    b->has_mask = true;
    b->shares_batch = shape->batch > 1 && type->dims[0] == 1;
    b->shares_head = shape->heads > 1 && type->dims[1] == 1;
}

void ul_lower_attention_gradient(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    struct ul_attention_backward b = {.a = {.lower = lower, .kernel = k, .node_id = node},
                                      .pass = UL_ATTENTION_AT_ONCE};
    const struct ul_attention *shape = &b.a.shape;
    const struct ul_type *types[UL_ATTENTION_INPUTS] = {NULL};
    b.a.node = ul_check_node(lower, node);
    for (uint32_t i = 0; i < UL_ATTENTION_INPUTS; i++)
        if (ul_lower_has_input(lower, node, i))
            types[i] = ul_lower_input_type(lower, node, i);
    const char *wrong = ul_attention_read(&b.a.shape, b.a.node, types);
    UL_ASSERT(wrong == NULL);
    b.a.dtype = ul_compute_dtype(types[UL_ATTENTION_Q]->dtype);
    b.a.rounds_weights = types[UL_ATTENTION_V]->dtype == b.a.dtype;
    b.keys = shape->keys;
    if (b.keys == 0 || shape->queries == 0 || shape->size == 0 || shape->value_size == 0) {
        store_zeros(lower, node, 0); /* where there is nothing to attend to, all gradients are 0 */
        return;
    }
    size_blocks(&b);
    read_mask(&b);
    if (ul_attention_lower_passes(&b))
        return;
    if (b.shares_batch || b.shares_head)
        store_zeros(lower, node, UL_ATTENTION_MASK_GRADIENT);
    open_groups(&b);
    ul_attention_clear_sums(&b, true);
    ul_attention_clear_sums(&b, false);
    int64_t shared = shape->heads / shape->groups;
    b.a.head = ul_kx_add(k, ul_kx_muli(k, b.a.group, shared), ul_ks_for(k, shared, 0));
    ul_attention_lower_blocks(&b);
    ul_ks_end(k);
    ul_attention_store_sums(&b, true);
    ul_attention_store_sums(&b, false);
    ul_lower_close(lower, 2);
}
