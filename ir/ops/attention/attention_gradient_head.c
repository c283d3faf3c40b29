/* SPDX-License-Identifier: Apache-2.0 */
/* A head in the gradient of attention: all blocks of its queries, and the sums over those
 * blocks. */
#include "ir/ops/attention/attention_backward.h"

enum { MAX_BANDS = 4 };

void ul_attention_clear_sums(const struct ul_attention_backward *b, bool is_key)
{
    struct ul_kernel *k = b->a.kernel;
    uint32_t sums = is_key ? b->key_sums : b->value_sums;
    int64_t size = is_key ? b->a.shape.size : b->a.shape.value_size;
    ul_kx at = ul_ks_for(k, b->keys * size, UL_FOR_PARALLEL);
    ul_ks_store(k, sums, at, ul_kx_number(k, b->a.dtype, 0));
    ul_ks_end(k);
}

void ul_attention_store_sums(const struct ul_attention_backward *b, bool is_key)
{
    const struct ul_attention_lower *a = &b->a;
    uint32_t output = is_key ? 1 : 2, sums = is_key ? b->key_sums : b->value_sums;
    int64_t size = is_key ? a->shape.size : a->shape.value_size;
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

/* The keys that the queries below `end` see; the gradient of a mask is zero for the others. */
static int64_t seen_below(const struct ul_attention_backward *b, int64_t end)
{
    bool is_known = b->a.shape.is_causal && !b->a.shape.ends_at_length && !b->has_mask;
    return is_known && end < b->keys ? end : b->keys;
}

void ul_attention_lower_blocks(struct ul_attention_backward *b)
{
    struct ul_kernel *k = b->a.kernel;
    int64_t queries = b->a.shape.queries, rows = b->a.max_rows, whole = queries / rows, done = 0;
    int64_t bands = b->a.shape.is_causal ? MAX_BANDS : 1;
    bands = bands < whole ? bands : whole;
    for (int64_t band = 1; band <= bands; band++) {
        int64_t end = whole * band / bands;
        ul_kx block = ul_kx_addi(k, ul_ks_for(k, end - done, 0), done);
        b->seen = seen_below(b, end * rows);
        ul_attention_lower_block(b, ul_kx_muli(k, block, rows), rows);
        ul_ks_end(k);
        done = end;
    }
    b->seen = seen_below(b, queries);
    if (queries % rows > 0)
        ul_attention_lower_block(b, ul_kx_index_const(k, whole * rows), queries % rows);
}
