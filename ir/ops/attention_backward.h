/* SPDX-License-Identifier: Apache-2.0 */
/* What the files share that lower the gradient of attention: all of it
 * (attention_gradient_lower.c), a block of its queries (attention_gradient_block.c). */
#ifndef UL_OPS_ATTENTION_BACKWARD_H
#define UL_OPS_ATTENTION_BACKWARD_H

#include "ir/kernel_build.h"
#include "ir/ops/attention.h"

enum { UL_ATTENTION_GRADIENT = UL_ATTENTION_INPUTS }; /* input */

struct ul_attention_backward {
    struct ul_attention_lower a;
    int64_t keys, rows;
    int64_t seen;                    /* of the keys, by the block */
    uint32_t shares, slopes, capped; /* scratch: [rows][keys] */
    uint32_t key_sums, value_sums;   /* scratch: [keys][size], [keys][value_size] */
    /* The gradient of masks is wanted: of one for all batches, for all heads. */
    bool has_mask, shares_batch, shares_head;
};

/* Output of MaskedAttentionGradient: of what is added to scores, [1 or batch, 1 or heads, queries,
 * keys]. */
enum { UL_ATTENTION_MASK_GRADIENT = 3 };

/* Queries first .. first + rows - 1 of a head with the keys that they see: stores their gradient,
 * adds to the sums of keys and values. */
void ul_attention_lower_block(struct ul_attention_backward *b, ul_kx first, int64_t rows);

#endif
