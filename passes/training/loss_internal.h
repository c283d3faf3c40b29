/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that add a loss share. */
#ifndef UL_PASSES_LOSS_INTERNAL_H
#define UL_PASSES_LOSS_INTERNAL_H

#include "ir/gradient.h"
#include "ir/training.h"
#include "passes/training/update.h"

/* The loss is `sum` over `weight`; UL_NONE: `sum` is a mean already. */
struct ul_loss_job {
    struct ul_pass *pass;
    struct ul_graph *graph;
    struct ul_training *training;
    struct ul_gradient make; /* what nodes are built with */
    ul_value_id sum, weight;
    ul_value_id correct; /* UL_NONE: labels are no classes */
};

/* loss_parts.c */

/* The sum of all elements. */
ul_value_id ul_loss_sum(struct ul_gradient *make, ul_value_id value);
/* How many of the targets that count are the class of the largest score: [rows, classes, ...] and
 * [rows, ...]. */
ul_value_id ul_loss_count_correct(struct ul_loss_job *loss, ul_value_id scores,
                                  ul_value_id targets);
/* The weights of all targets that count; `weights` of classes, or UL_NONE. */
ul_value_id ul_loss_weigh(struct ul_loss_job *loss, ul_value_id targets, ul_value_id weights,
                          enum ul_dtype dtype);
/* Begins a cross-entropy, or its gradient, with what the options say; its type is not inferred
 * yet. */
ul_node_id ul_loss_begin_cross_entropy(struct ul_loss_job *loss, ul_op_id op,
                                       const ul_value_id *inputs, uint32_t count);

/* Bytes of a logit in memory, by the options' precision. */
uint32_t ul_loss_element_bytes(const struct ul_loss_job *loss, enum ul_dtype dtype);
/* The factor of a sum of losses: 1 over the weight of all labels, or 1 where the runs of a step are
 * added up, in which case the job's weight is set. `scale` is that of gradients, with the loss
 * scale. */
ul_value_id ul_loss_begin_mean(struct ul_loss_job *loss, ul_value_id targets, ul_value_id weights,
                               enum ul_dtype dtype, ul_value_id *scale);
/* The product that makes logits: x [rows, depth], w [depth, classes], bias [classes] or UL_NONE. */
struct ul_loss_product {
    ul_value_id x, w, bias;
};
/* Finds the product, with nodes that bring its operands into these shapes. False: it is another
 * operator. */
bool ul_loss_find_product(struct ul_gradient *make, ul_value_id logits,
                          struct ul_loss_product *product);
/* The parts of a value along an axis, as a Split. */
const ul_value_id *ul_loss_cut(struct ul_gradient *make, ul_value_id value, uint32_t axis,
                               const int64_t *sizes, uint32_t count);

/* loss_pieces.c: cross-entropy in pieces, from logits [..., classes] that a product makes and
 * nothing else reads, with their targets [rows]. False: it is not worth it, or the product is
 * another one. */
bool ul_loss_add_pieces(struct ul_loss_job *loss, ul_value_id logits, ul_value_id targets,
                        ul_value_id weights);

/* loss_tiles.c: the same with classes in tiles, where that takes fewer bytes and less time; without
 * weights of classes. */
bool ul_loss_add_tiles(struct ul_loss_job *loss, ul_value_id logits, ul_value_id targets);

#endif
