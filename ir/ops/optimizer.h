/* Hooks of the optimizer family (domain ai.onnx.preview.training): R (learning rate), T (update
 * count), then n each of the parameters X, the gradients G and the states; outputs are the new X
 * and states. All are maps, so that a parameter's update is one kernel, in place. */
#ifndef UL_OPS_OPTIMIZER_H
#define UL_OPS_OPTIMIZER_H

#include "ir/infer.h"
#include "ir/lower.h"

/* optimizer.c */
enum ul_status ul_infer_adagrad(struct ul_infer *infer);
enum ul_status ul_infer_adam(struct ul_infer *infer);
enum ul_status ul_infer_momentum(struct ul_infer *infer);
ul_kx ul_map_adagrad(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index);
ul_kx ul_map_adam(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index);
ul_kx ul_map_momentum(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index);

#endif
