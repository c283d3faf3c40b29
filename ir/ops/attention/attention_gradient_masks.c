/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of masks, where the gradient of attention is formed in passes. The gradient of an
 * element is the sum of the slopes of all scores that the element was added to.
 *
 *     for parts of the rounds, for batches and heads of the mask:     independent, tiles in each
 *         for rounds: slopes of a batch and a head, which are added up
 *     for elements of the mask: the sum over parts, in order
 *
 * Rounds are the batches, or heads, or both, that share the mask. Equal
 * parts give a device enough to do where many share a small mask (windows of an image). Left
 * undone: where nothing is shared, the pass over queries could store the slopes. */
#include "ir/ops/attention/attention_backward.h"

enum { MAX_PARTS = 32, MAX_SUMS = 1 << 18 /* elements of scratch */ };

static int64_t of_batch(const struct ul_attention_backward *b)
{
    return b->shares_batch ? 1 : b->a.shape.batch;
}

static int64_t of_heads(const struct ul_attention_backward *b)
{
    return b->shares_head ? 1 : b->a.shape.heads;
}

void ul_attention_set_round(struct ul_attention_backward *b, ul_kx round)
{
    struct ul_kernel *k = b->a.kernel;
    const struct ul_attention *shape = &b->a.shape;
    ul_kx at = ul_kx_add(k, ul_kx_muli(k, b->part, b->rounds), round);
    b->a.batch = b->mask_batch;
    b->a.head = b->mask_head;
    if (b->shares_batch && b->shares_head) {
        b->a.batch = ul_kx_divi(k, at, shape->heads);
        b->a.head = ul_kx_modi(k, at, shape->heads);
    } else if (b->shares_batch) {
        b->a.batch = at;
    } else if (b->shares_head) {
        b->a.head = at;
    }
    b->a.group = ul_kx_divi(k, b->a.head, shape->heads / shape->groups);
}

static ul_kx sums_at(const struct ul_attention_backward *b, ul_kx part, const ul_kx index[4])
{
    struct ul_kernel *k = b->a.kernel;
    const int64_t dims[] = {of_batch(b), of_heads(b), b->a.shape.queries, b->keys};
    for (uint32_t d = 0; d < 4; d++)
        part = ul_kx_add(k, ul_kx_muli(k, part, dims[d]), index[d]);
    return part;
}

void ul_attention_store_mask(const struct ul_attention_backward *b, ul_kx query, ul_kx key, ul_kx x)
{
    struct ul_kernel *k = b->a.kernel;
    struct ul_lower *lower = b->a.lower;
    ul_value_id mask = b->a.node->outputs[UL_ATTENTION_MASK_GRADIENT];
    const ul_kx index[] = {b->mask_batch, b->mask_head, query, key};
    bool in_parts = b->parts > 1;
    ul_kx at = in_parts ? sums_at(b, b->part, index) : UL_NONE;
    if (b->adds) {
        ul_kx old =
            in_parts ? ul_kx_load(k, b->mask_sums, at) : ul_lower_load_output(lower, mask, index);
        x = ul_kx_add(k, old, x);
    }
    if (in_parts)
        ul_ks_store(k, b->mask_sums, at, x);
    else
        ul_lower_store(lower, mask, index, x);
}

static void clear_mask(const struct ul_attention_backward *b)
{
    struct ul_kernel *k = b->a.kernel;
    ul_kx query = ul_ks_for(k, b->a.shape.queries, UL_FOR_PARALLEL);
    ul_kx key = ul_ks_for(k, b->keys, UL_FOR_PARALLEL);
    ul_attention_store_mask(b, query, key, ul_kx_number(k, b->a.dtype, 0));
    ul_ks_end(k);
    ul_ks_end(k);
}

/* Gives the largest number of equal parts whose sums are few. */
static int64_t count_parts(const struct ul_attention_backward *b, int64_t rounds)
{
    int64_t elements = of_batch(b) * of_heads(b) * b->a.shape.queries * b->keys;
    int64_t parts = rounds < MAX_PARTS ? rounds : MAX_PARTS;
    while (parts > 1 && (rounds % parts != 0 || parts > MAX_SUMS / elements))
        parts--;
    return parts;
}

static void add_parts(const struct ul_attention_backward *b)
{
    struct ul_kernel *k = b->a.kernel;
    const int64_t dims[] = {of_batch(b), of_heads(b), b->a.shape.queries, b->keys};
    ul_kx index[4];
    ul_lower_open(b->a.lower, 4, dims, index);
    uint32_t sum = ul_ks_var(k, b->a.dtype, ul_kx_number(k, b->a.dtype, 0));
    ul_kx part = ul_ks_for(k, b->parts, 0);
    ul_kx x = ul_kx_load(k, b->mask_sums, sums_at(b, part, index));
    ul_ks_set(k, sum, ul_kx_add(k, ul_kx_var(k, sum), x));
    ul_ks_end(k);
    ul_lower_store(b->a.lower, b->a.node->outputs[UL_ATTENTION_MASK_GRADIENT], index,
                   ul_kx_var(k, sum));
    ul_lower_close(b->a.lower, 4);
}

void ul_attention_open_masks(struct ul_attention_backward *b)
{
    struct ul_kernel *k = b->a.kernel;
    const struct ul_attention *shape = &b->a.shape;
    int64_t rounds = shape->batch / of_batch(b) * (shape->heads / of_heads(b));
    UL_ASSERT(b->has_mask && rounds > 0);
    b->parts = count_parts(b, rounds);
    b->rounds = rounds / b->parts;
    if (b->parts > 1)
        b->mask_sums = ul_lower_scratch(
            b->a.lower, b->a.dtype,
            (uint64_t)(b->parts * of_batch(b) * of_heads(b) * shape->queries * b->keys));
    b->part = ul_ks_for(k, b->parts, UL_FOR_PARALLEL);
    b->mask_batch = ul_ks_for(k, of_batch(b), UL_FOR_PARALLEL);
    b->mask_head = ul_ks_for(k, of_heads(b), UL_FOR_PARALLEL);
    clear_mask(b);
}

void ul_attention_close_masks(const struct ul_attention_backward *b)
{
    ul_lower_close(b->a.lower, 3);
    if (b->parts > 1)
        add_parts(b);
}
