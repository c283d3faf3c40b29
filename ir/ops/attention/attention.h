/* SPDX-License-Identifier: Apache-2.0 */
/* What the hooks of the attention family share. */
#ifndef UL_OPS_ATTENTION_H
#define UL_OPS_ATTENTION_H

#include "ir/geometry.h"
#include "ir/ops/hooks.h"

/* attention_shape.c: FusedAttention, not one of ai.onnx. */
bool ul_attention_is_fused(const struct ul_node *node);

/* An attention while it is lowered. */
struct ul_attention_lower {
    struct ul_lower *lower;
    struct ul_kernel *kernel;
    const struct ul_node *node;
    ul_node_id node_id;
    struct ul_attention shape;
    enum ul_dtype dtype; /* the type it is computed in */
    bool rounds_weights;
    int64_t max_rows, max_keys;
    bool is_whole;                   /* scores of all keys are kept at once */
    int64_t pitch;                   /* of a row of scores */
    uint32_t scores, waiting;        /* scratch: [rows][pitch], [rows][value_size] */
    uint32_t largest, sums, factors; /* scratch: [rows] */
    uint32_t lanes;                  /* local: [UL_ATTENTION_LANES] */
    ul_kx batch, head, group;
    ul_kx first; /* the first query of the block */
    int64_t rows;
};

/* attention.c: what the gradient shares. */

/* The index of [batch, head, position, element] in an operand, flat or split; its rank. */
uint32_t ul_attention_place(const struct ul_attention_lower *attention, bool is_flat, ul_kx head,
                            ul_kx position, ul_kx element, int64_t size, ul_kx index[4]);
/* Fills an operand of a contraction: position from `position` on along variable `along`, element
 * along variable `across`. */
void ul_attention_fill(const struct ul_attention_lower *attention,
                       struct ul_contraction *contraction, struct ul_operand *operand,
                       enum ul_attention_input input, bool is_flat, ul_kx head, ul_kx position,
                       int64_t size, uint32_t along, uint32_t across);
/* What is added to the score of query `q` and key `t`; UL_NONE where nothing is. */
ul_kx ul_attention_bias(const struct ul_attention_lower *attention, ul_kx q, ul_kx t);
/* The score x with the bias that is added to it; UL_NONE where there is none. */
ul_kx ul_attention_biased(const struct ul_attention_lower *attention, ul_kx x, ul_kx bias);
/* Whether rows that see no key are possible, and give zeros. */
bool ul_attention_may_be_empty(const struct ul_attention_lower *attention);
bool ul_attention_has_bias(const struct ul_attention_lower *attention);
/* Gives x, a multiple of the weight of query `q` and key `t`, or 0 where that weight is dropped.
 * Weights that stay count for more instead. */
ul_kx ul_attention_dropped(const struct ul_attention_lower *attention, ul_kx x, ul_kx q, ul_kx t);
/* The score after the soft cap. */
ul_kx ul_attention_capped(const struct ul_attention_lower *attention, ul_kx x);
/* Gives the norm of a query, the logarithm of its sum of exp(score), from what was subtracted from
 * the scores and from the sum of the exponentials of the differences. A query that sees no key has
 * norm 0 where it is to give zeros. A query with a NaN has norm infinity where a NaN is to give
 * zeros, so that its weights are 0. */
ul_kx ul_attention_norm(const struct ul_attention_lower *attention, ul_kx shift, ul_kx total);

/* attention_turn.c: whether a factor of FusedRotary has one element for each pair of x. */
bool ul_turn_is_paired(const struct ul_type *factor, const struct ul_type *x);

/* attention_rows.c: about the scores of a block, [rows][pitch], in `lanes`, a local of
 * UL_ATTENTION_LANES. */
enum { UL_ATTENTION_VECTOR = 16, UL_ATTENTION_LANES = 32 };

ul_kx ul_attention_score_at(const struct ul_attention_lower *attention, ul_kx row, ul_kx column);
/* A NaN may be lost here, but not in the exponentials. */
ul_kx ul_attention_larger(const struct ul_attention_lower *attention, ul_kx x, ul_kx y);
/* What is subtracted from the scores of a row whose largest is `max`: nothing from -inf. */
ul_kx ul_attention_shift(const struct ul_attention_lower *attention, ul_kx max);
/* Over the row's first `count` columns: the largest score; the sum of the exponentials of scores
 * less `shift`, which replace the scores; the sum of scores times what lies there in `times`. */
ul_kx ul_attention_largest(const struct ul_attention_lower *attention, ul_kx row, int64_t count);
ul_kx ul_attention_exponentials(const struct ul_attention_lower *attention, ul_kx row,
                                int64_t count, ul_kx shift);
ul_kx ul_attention_products(const struct ul_attention_lower *attention, ul_kx row, int64_t count,
                            uint32_t times);

#endif
