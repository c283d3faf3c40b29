/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of pass integers share.
 *
 * Scaled integers are (x - zero) * scale: what a DequantizeLinear of constants makes of x.
 * Ownership: everything is the pass's; constants that it makes are the graph's. */
#ifndef UL_INTEGERS_INTERNAL_H
#define UL_INTEGERS_INTERNAL_H

#include "passes/passes_internal.h"

struct ul_integers {
    struct ul_pass *pass;
    struct ul_graph *graph;
    struct ul_rewrite rewrite;
    uint32_t *uses; /* of values below known_count; later ones have one reader */
    uint32_t known_count;
    struct ul_build build; /* in front of the node that is looked at */
};

struct ul_scaled {
    ul_value_id x, scale, zero; /* zero: UL_NONE where there is none */
    const struct ul_tensor
        *scales;                   /* one, or one for each index of an axis of x; finite, above 0 */
    const struct ul_tensor *zeros; /* as many; NULL: none */
    uint32_t count, axis;
};

/* integers_scaled.c */

const struct ul_node *ul_integers_maker(const struct ul_integers *integers, ul_value_id value);
bool ul_integers_is_read_once(const struct ul_integers *integers, ul_value_id value);
/* `x` with constants `scale` and `zero` as the operators have them; `axis` counts where these are
 * more than one number. False: integers cannot be computed with them. */
bool ul_integers_scale(const struct ul_integers *integers, ul_value_id x, ul_value_id scale,
                       ul_value_id zero, int64_t axis, struct ul_scaled *scaled);
/* The value is the result of a DequantizeLinear, or of an elementwise Dequantize with one scale, in
 * f32. */
bool ul_integers_find(const struct ul_integers *integers, ul_value_id value,
                      struct ul_scaled *scaled);
bool ul_integers_is_8bit(const struct ul_integers *integers, ul_value_id value);
double ul_scaled_scale(const struct ul_scaled *scaled, uint64_t index);
int64_t ul_scaled_zero(const struct ul_scaled *scaled, uint64_t index);
bool ul_scaled_same(const struct ul_scaled *a, const struct ul_scaled *b);
/* Adds a node in front of the one that is looked at, with the attributes of `attrs` (NULL: none)
 * and its type inferred; gives its only output. */
ul_value_id ul_integers_add(struct ul_integers *integers, ul_op_id op, const ul_value_id *inputs,
                            uint32_t input_count, const struct ul_node *attrs);
/* The same in two steps, for attributes that are set in between. */
ul_node_id ul_integers_begin(struct ul_integers *integers, ul_op_id op, const ul_value_id *inputs,
                             uint32_t input_count, const struct ul_node *attrs);
ul_value_id ul_integers_end(struct ul_integers *integers, ul_node_id id);
/* The value as `dtype`. */
ul_value_id ul_integers_cast(struct ul_integers *integers, ul_value_id value, enum ul_dtype dtype);
/* Makes the node compute `op`, with the attributes `attrs` of another node or none. */
void ul_integers_become(struct ul_integers *integers, ul_node_id id, ul_op_id op,
                        const ul_value_id *inputs, uint32_t input_count,
                        const struct ul_node *attrs);

/* What is quantized, and its scale: one number. */
bool ul_integers_result(const struct ul_integers *integers, const struct ul_node *quantize,
                        struct ul_scaled *y);
/* The node becomes a Rescale of `sum` with a factor for each of its elements along the last
 * dimensions of `type`, or one. */
void ul_integers_become_rescale(struct ul_integers *integers, ul_node_id id, ul_value_id sum,
                                const struct ul_scaled *y, const struct ul_type *type,
                                const double *factors);

/* integers.c: hands over the nodes one by one, and says where new ones go. */
void ul_integers_walk(struct ul_integers *integers, ul_block_id block,
                      void (*visit)(struct ul_integers *, ul_node_id));

/* integers_sums.c: the node becomes sums of integers and what follows them; false: it has no such
 * form. */
bool ul_integers_product(struct ul_integers *integers, ul_node_id id);
bool ul_integers_qlinear(struct ul_integers *integers, ul_node_id id);
bool ul_integers_shift(struct ul_integers *integers, ul_node_id id);

/* integers_rescale.c: a QuantizeLinear of sums of scaled integers becomes one Rescale. */
bool ul_integers_rescale(struct ul_integers *integers, ul_node_id id);

/* integers_table.c: a Quantize of a function of one 8-bit value becomes a Lookup. */
bool ul_integers_table(struct ul_integers *integers, ul_node_id id);

/* integers_mean.c: a Quantize of a mean of 8-bit integers becomes a Rescale of their sum. */
bool ul_integers_mean(struct ul_integers *integers, ul_node_id id);

/* integers_move.c: what only moves elements moves integers. */
bool ul_integers_move(struct ul_integers *integers, ul_node_id id);
/* Does so with what a QuantizeLinear reads; new ones in front of it are handed to
 * ul_integers_rescale. */
bool ul_integers_move_quantize(struct ul_integers *integers, ul_node_id id);

#endif
