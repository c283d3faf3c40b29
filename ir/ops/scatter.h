/* Hooks of the scatter family: outputs that start as a copy and are then updated in places.
 *
 * Updates are combined in a fixed order, that of the updates in memory; indexes out of range are
 * clamped and reported. The copy is in place where the input's bytes may be taken. */
#ifndef UL_OPS_SCATTER_H
#define UL_OPS_SCATTER_H

#include "ir/infer.h"
#include "ir/lower.h"

/* scatter.c */
enum ul_status ul_infer_scatter_elements(struct ul_infer *infer);
enum ul_status ul_infer_scatter_nd(struct ul_infer *infer);
void ul_lower_scatter_elements(struct ul_lower *lower, ul_node_id node);
void ul_lower_scatter_nd(struct ul_lower *lower, ul_node_id node);

/* scatter_cache.c */
enum ul_status ul_infer_tensor_scatter(struct ul_infer *infer);
ul_kx ul_map_tensor_scatter(struct ul_lower *lower, ul_node_id node, uint32_t output,
                            const ul_kx *index);

/* scatter_unpool.c */
enum ul_status ul_infer_max_unpool(struct ul_infer *infer);
void ul_lower_max_unpool(struct ul_lower *lower, ul_node_id node);

#endif
