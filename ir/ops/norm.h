/* Hooks of the norm family: what divides by a statistic of its input. */
#ifndef UL_OPS_NORM_H
#define UL_OPS_NORM_H

#include "ir/infer.h"
#include "ir/lower.h"
#include "ir/split_rule.h"

/* norm_softmax.c. False where the axis does not exist; bit d of the mask: dimension d. */
bool ul_softmax_mask(const struct ul_node *node, uint32_t rank, uint32_t *mask);
/* The attribute "ul_flatten_axis" (1: set by the frontend below opset 13) means:
 * normalise over all dimensions from `axis` on, as if the input were 2-d. */
enum ul_status ul_infer_softmax(struct ul_infer *infer);
void ul_lower_softmax(struct ul_lower *lower, ul_node_id node);
void ul_lower_log_softmax(struct ul_lower *lower, ul_node_id node);
void ul_lower_hardmax(struct ul_lower *lower, ul_node_id node);

/* norm_split.c */
bool ul_split_rule_softmax(struct ul_split_rule *split);
bool ul_split_rule_layer_norm(struct ul_split_rule *split); /* over what lies behind an axis */
bool ul_split_rule_instance_norm(
    struct ul_split_rule *split); /* over channels and space: along the batch */
bool ul_split_rule_batch_norm(struct ul_split_rule *split); /* a map with numbers per channel */
bool ul_split_rule_lrn(struct ul_split_rule *split);
bool ul_split_rule_lp_norm(struct ul_split_rule *split);

/* norm_batch.c. With training_mode = 1 a node becomes ullage::BatchNormalizationTraining during
 * inference of shapes: the one is a map, which fuses, the other needs statistics. */
enum ul_status ul_infer_batch_norm(struct ul_infer *infer);
ul_kx ul_map_batch_norm(struct ul_lower *lower, ul_node_id node, uint32_t output,
                        const ul_kx *index);
void ul_lower_batch_norm_training(struct ul_lower *lower, ul_node_id node);

/* norm_layer.c */
enum ul_status ul_infer_instance_norm(struct ul_infer *infer);
enum ul_status ul_infer_layer_norm(struct ul_infer *infer);
enum ul_status ul_infer_group_norm(struct ul_infer *infer);
enum ul_status ul_infer_rms_norm(struct ul_infer *infer);
enum ul_status ul_infer_mean_variance_norm(struct ul_infer *infer);
void ul_lower_instance_norm(struct ul_lower *lower, ul_node_id node);
void ul_lower_layer_norm(struct ul_lower *lower, ul_node_id node);
void ul_lower_group_norm(struct ul_lower *lower, ul_node_id node);
void ul_lower_rms_norm(struct ul_lower *lower, ul_node_id node);
void ul_lower_mean_variance_norm(struct ul_lower *lower, ul_node_id node);

/* norm_local.c */
enum ul_status ul_infer_lrn(struct ul_infer *infer);
enum ul_status ul_infer_lp_norm(struct ul_infer *infer);
void ul_lower_lrn(struct ul_lower *lower, ul_node_id node);
void ul_lower_lp_norm(struct ul_lower *lower, ul_node_id node);

/* norm_group.c: does nothing and gives false unless channels lie innermost in groups of several,
 * or sums are long and the target asks for parts. */
bool ul_lower_group_norm_steps(struct ul_lower *lower, ul_node_id node, int64_t groups);

#endif
