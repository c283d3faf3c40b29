/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that add a loss share. */
#ifndef UL_PASSES_LOSS_INTERNAL_H
#define UL_PASSES_LOSS_INTERNAL_H

#include "ir/gradient.h"
#include "ir/training.h"
#include "passes/update.h"

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
/* How many targets that count are the class of the largest score: [rows, classes, ...] and
 * [rows, ...]. */
ul_value_id ul_loss_count_correct(struct ul_loss_job *loss, ul_value_id scores,
                                  ul_value_id targets);
/* The weights of all targets that count; `weights` of classes, or UL_NONE. */
ul_value_id ul_loss_weigh(struct ul_loss_job *loss, ul_value_id targets, ul_value_id weights,
                          enum ul_dtype dtype);
/* A cross-entropy, or its gradient, with what the options say; before it is inferred. */
ul_node_id ul_loss_begin_cross_entropy(struct ul_loss_job *loss, enum ul_op op,
                                       const ul_value_id *inputs, uint32_t count);

/* loss_pieces.c: cross-entropy of logits [..., classes], which a product makes and nothing else
 * reads, with their targets [rows], in pieces. False: it is not worth it, or not such a product. */
bool ul_loss_add_pieces(struct ul_loss_job *loss, ul_value_id logits, ul_value_id targets,
                        ul_value_id weights);

#endif
