/* SPDX-License-Identifier: Apache-2.0 */
/* Rewrites of com.microsoft's operators, by family; upgrade_microsoft.c has the rows. Inputs that a
 * row requires are present. */
#ifndef UL_FRONTEND_UPGRADE_MICROSOFT_H
#define UL_FRONTEND_UPGRADE_MICROSOFT_H

#include "frontend/old_emit.h"
#include "frontend/rows.h"

/* upgrade_microsoft_qlinear.c: operators between DequantizeLinear and QuantizeLinear. */
ul_upgrade_fn ul_microsoft_qlinear_softmax, ul_microsoft_qlinear_concat;
/* upgrade_microsoft_lstm.c */
ul_upgrade_fn ul_microsoft_dynamic_lstm;
/* upgrade_microsoft_training.c: gradients. */
ul_upgrade_fn ul_microsoft_loss, ul_microsoft_loss_grad, ul_microsoft_batch_norm,
    ul_microsoft_concat_training, ul_microsoft_broadcast_axes, ul_microsoft_split_training,
    ul_microsoft_mixed_precision_scale, ul_microsoft_reduce_all_l2, ul_microsoft_pass_through;
/* The sum of squares of all elements of all values, as one number; UL_NONE where there are no
 * values. */
ul_value_id ul_microsoft_square_sum(struct ul_old_node *node, const ul_value_id *values,
                                    uint32_t count);
/* upgrade_microsoft_optimizer.c: operators that overwrite what they read. */
ul_upgrade_fn ul_microsoft_accumulate, ul_microsoft_accumulate_once, ul_microsoft_sgd,
    ul_microsoft_adamw, ul_microsoft_clip_norm;

#endif
