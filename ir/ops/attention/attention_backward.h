/* SPDX-License-Identifier: Apache-2.0 */
/* What the files share that lower the gradient of attention: all of it
 * (attention_gradient_lower.c), a head (attention_gradient_head.c), a block of its queries
 * (attention_gradient_block.c); or all of it in passes, for targets that have tiles for each pass
 * (attention_gradient_tiles.c, attention_gradient_masks.c). */
#ifndef UL_OPS_ATTENTION_BACKWARD_H
#define UL_OPS_ATTENTION_BACKWARD_H

#include "ir/kernel_build.h"
#include "ir/ops/attention/attention.h"

/* What is formed for a block: all at once; or some of it, from statistics of each query: the
 * logarithm of the sum of its exponentials and the sum of P dP. */
enum ul_attention_pass {
    UL_ATTENTION_STATISTICS = 1,
    UL_ATTENTION_QUERIES = 2,
    UL_ATTENTION_KEYS = 4,
    UL_ATTENTION_VALUES = 8,
    UL_ATTENTION_MASKS = 16,
    UL_ATTENTION_BOTH = UL_ATTENTION_KEYS | UL_ATTENTION_VALUES,
    UL_ATTENTION_AT_ONCE = UL_ATTENTION_QUERIES | UL_ATTENTION_BOTH
};

struct ul_attention_backward {
    struct ul_attention_lower a;
    enum ul_attention_pass pass;
    bool has_given;      /* whether the statistics are inputs */
    uint32_t statistics; /* else their scratch [batch][heads][queries][2]; AT_ONCE has none */
    int64_t keys, rows;
    int64_t seen;                    /* how many of the keys the block sees */
    uint32_t shares, slopes, capped; /* scratch: [rows][keys] */
    uint32_t key_sums, value_sums;   /* scratch: [keys][size], [keys][value_size] */
    /* The gradient of masks is wanted, and one mask serves all batches, or all heads. */
    bool has_mask, shares_batch, shares_head;
    /* For MASKS. Each part has `rounds` rounds of scores that share an element of the mask; `adds`
     * says whether a store adds to what is there. Then come the batch and the head of the mask, and
     * scratch [parts][1 or batch][1 or heads][queries][keys], which a single part does without. */
    int64_t parts, rounds;
    bool adds;
    ul_kx part, mask_batch, mask_head;
    uint32_t mask_sums;
};

/* The output of MaskedAttentionGradient for what is added to scores, [1 or batch, 1 or heads,
 * queries, keys]. */
enum { UL_ATTENTION_MASK_GRADIENT = 3 };

/* attention_gradient_block.c. Queries first .. first + rows - 1 of a head with the keys that they
 * see: stores their gradient, adds to the sums of keys and values; or one of these. */
void ul_attention_lower_block(struct ul_attention_backward *b, ul_kx first, int64_t rows);
/* Fill in an operand of a contraction from query `first` and key 0 on: its rows lie along one
 * variable, its elements along another. */
void ul_attention_fill_gradient(const struct ul_attention_backward *b,
                                struct ul_contraction *contraction, struct ul_operand *operand,
                                uint32_t along, uint32_t across);
void ul_attention_fill_queries(const struct ul_attention_backward *b,
                               struct ul_contraction *contraction, struct ul_operand *operand,
                               uint32_t along, uint32_t across);
void ul_attention_fill_keys(const struct ul_attention_backward *b,
                            struct ul_contraction *contraction, struct ul_operand *operand,
                            enum ul_attention_input input, uint32_t along, uint32_t across);
/* Gives the score of a query and a key whose product, within the soft cap, is `capped`. */
ul_kx ul_attention_score(const struct ul_attention_backward *b, ul_kx capped, ul_kx query,
                         ul_kx key);
/* Gives the weight of a score by the statistics of its query. */
ul_kx ul_attention_weight(const struct ul_attention_backward *b, ul_kx score, ul_kx query);
/* Gives the slope of the product of a query and a key. `weight` and `capped` are computed from that
 * product, `slope` is the slope of the weight, and `sum` the statistic of the query. */
ul_kx ul_attention_slope(const struct ul_attention_backward *b, ul_kx weight, ul_kx capped,
                         ul_kx slope, ul_kx sum);
/* Gives number 0 or 1 of the statistics of a query, and its place in scratch. */
ul_kx ul_attention_statistic(const struct ul_attention_backward *b, ul_kx query, int64_t which);
ul_kx ul_attention_statistic_at(const struct ul_attention_backward *b, ul_kx query, ul_kx which);

/* attention_gradient_head.c. The first one lowers all blocks of queries of a head; the others clear
 * the sums before the blocks, and store them after. */
void ul_attention_lower_blocks(struct ul_attention_backward *b);
void ul_attention_clear_sums(const struct ul_attention_backward *b, bool is_key);
void ul_attention_store_sums(const struct ul_attention_backward *b, bool is_key);

/* attention_gradient_masks.c. The first opens the loops over parts, batches and heads around the
 * pass that forms the gradient of masks, and stores zeros to add to; the second closes them and
 * adds up the parts. The third says which round is formed next. The last stores the slope of a
 * score, or adds it to the sum of its part. */
void ul_attention_open_masks(struct ul_attention_backward *b);
void ul_attention_close_masks(const struct ul_attention_backward *b);
void ul_attention_set_round(struct ul_attention_backward *b, ul_kx round);
void ul_attention_store_mask(const struct ul_attention_backward *b, ul_kx query, ul_kx key,
                             ul_kx x);

/* attention_gradient_tiles.c. Lowers the gradient in passes. Returns false, and lowers nothing,
 * where the target has none. */
bool ul_attention_lower_passes(struct ul_attention_backward *b);

#endif
