/* SPDX-License-Identifier: Apache-2.0 */
/* The equation of an Einsum. */
#ifndef UL_OPS_MATMUL_EINSUM_H
#define UL_OPS_MATMUL_EINSUM_H

#include "ir/ops/matmul/matmul.h"

#define UL_EINSUM_LABELS 40 /* below the 64 nested loops of a kernel */

/* One operand, or the result, as labels of its dimensions. */
struct ul_einsum_term {
    uint32_t rank;
    uint32_t labels[UL_LIMIT_RANK]; /* numbers of ul_einsum.symbols */
};
struct ul_einsum {
    uint32_t label_count;
    uint32_t symbols[UL_EINSUM_LABELS];
    int64_t extents[UL_EINSUM_LABELS];
    uint32_t term_count;
    struct ul_einsum_term *terms; /* operands */
    struct ul_einsum_term result;
};

/* matmul_einsum.c: reads a node that its rule has accepted. */
void ul_einsum_read(const struct ul_graph *graph, const struct ul_node *node,
                    struct ul_arena *arena, struct ul_einsum *einsum);

#endif
