/* Hooks of the sort family. */
#ifndef UL_OPS_SORT_H
#define UL_OPS_SORT_H

#include "ir/infer.h"
#include "ir/lower.h"

/* sort_topk.c */
enum ul_status ul_infer_top_k(struct ul_infer *infer);
void ul_lower_top_k(struct ul_lower *lower, ul_node_id node);
/* sort_nms.c */
enum ul_status ul_infer_non_max_suppression(struct ul_infer *infer);

#endif
