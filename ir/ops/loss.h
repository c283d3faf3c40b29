/* Hooks of the loss family. */
#ifndef UL_OPS_LOSS_H
#define UL_OPS_LOSS_H

#include "ir/infer.h"
#include "ir/lower.h"

/* loss.c. Input 0 is [N, C, D1 ...], input 1 the classes [N, D1 ...], input 2 the weight of each
 * class [C] or absent. */
enum ul_status ul_infer_nll_loss(struct ul_infer *infer);
enum ul_status ul_infer_cross_entropy_loss(struct ul_infer *infer);
void ul_lower_nll_loss(struct ul_lower *lower, ul_node_id node);
void ul_lower_cross_entropy_loss(struct ul_lower *lower, ul_node_id node);

#endif
