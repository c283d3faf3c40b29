/* Hooks of the pool family, and the geometry of sliding windows. */
#ifndef UL_OPS_POOL_H
#define UL_OPS_POOL_H

#include "ir/lower.h"

#define UL_POOL_DIMS (UL_LIMIT_RANK - 2)

/* Where the windows of a pooling operator lie, per spatial dimension, in elements: window o covers
 * o * stride - pad_begin + t * dilation for t in [0, kernel). */
struct ul_pool {
    uint32_t count; /* of spatial dimensions */
    int64_t in[UL_POOL_DIMS], out[UL_POOL_DIMS];
    int64_t kernel[UL_POOL_DIMS], stride[UL_POOL_DIMS], dilation[UL_POOL_DIMS];
    int64_t pad_begin[UL_POOL_DIMS], pad_end[UL_POOL_DIMS];
};

/* pool_shape.c: reads kernel_shape, strides, dilations, pads, auto_pad and ceil_mode for an input
 * of shape `type`. NULL when all is well, else what is wrong. */
const char *ul_pool_read(const struct ul_node *node, const struct ul_type *type,
                         struct ul_pool *pool);
enum ul_status ul_infer_max_pool(struct ul_infer *infer);
enum ul_status ul_infer_average_pool(struct ul_infer *infer);
enum ul_status ul_infer_lp_pool(struct ul_infer *infer);
enum ul_status ul_infer_global_pool(struct ul_infer *infer);

/* pool_cut.c */
bool ul_cut_pool(struct ul_cut *cut);
bool ul_cut_global_pool(struct ul_cut *cut);

/* pool.c */
void ul_lower_max_pool(struct ul_lower *lower, ul_node_id node);
void ul_lower_average_pool(struct ul_lower *lower, ul_node_id node);
void ul_lower_lp_pool(struct ul_lower *lower, ul_node_id node);
void ul_lower_global_max_pool(struct ul_lower *lower, ul_node_id node);
void ul_lower_global_average_pool(struct ul_lower *lower, ul_node_id node);
void ul_lower_global_lp_pool(struct ul_lower *lower, ul_node_id node);

#endif
