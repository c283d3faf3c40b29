/* Hooks of the pool family. */
#ifndef UL_OPS_POOL_H
#define UL_OPS_POOL_H

#include "ir/geometry.h"
#include "ir/infer.h"
#include "ir/lower.h"
#include "ir/split_rule.h"

/* pool_shape.c */
enum ul_status ul_infer_max_pool(struct ul_infer *infer);
enum ul_status ul_infer_average_pool(struct ul_infer *infer);
enum ul_status ul_infer_lp_pool(struct ul_infer *infer);
enum ul_status ul_infer_global_pool(struct ul_infer *infer);

/* pool_split.c */
bool ul_split_rule_pool(struct ul_split_rule *split);
bool ul_split_rule_global_pool(struct ul_split_rule *split);

/* pool.c */
void ul_lower_max_pool(struct ul_lower *lower, ul_node_id node);
void ul_lower_average_pool(struct ul_lower *lower, ul_node_id node);
void ul_lower_lp_pool(struct ul_lower *lower, ul_node_id node);
void ul_lower_global_max_pool(struct ul_lower *lower, ul_node_id node);
void ul_lower_global_average_pool(struct ul_lower *lower, ul_node_id node);
void ul_lower_global_lp_pool(struct ul_lower *lower, ul_node_id node);

#endif
