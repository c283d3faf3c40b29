/* SPDX-License-Identifier: Apache-2.0 */
/* What the hooks of the norm family share. */
#ifndef UL_OPS_NORM_H
#define UL_OPS_NORM_H

#include "ir/ops/norm/norm.def"

/* norm_softmax.c. False where the axis does not exist; bit d of the mask: dimension d. */
bool ul_softmax_mask(const struct ul_node *node, uint32_t rank, uint32_t *mask);
/* Likewise: exp(x) of a score less the largest, a statement or two; 0 where that is below normal
 * numbers. A mask of -100 would make many scores so small, and on some processors a product with
 * such a number takes a hundred times as long as others. */
ul_kx ul_softmax_exp(struct ul_kernel *kernel, ul_kx x);

/* norm_layer.c: the same of MeanVarianceNormalization's axes. */
bool ul_mean_variance_mask(const struct ul_node *node, uint32_t rank, uint32_t *mask);

/* norm_group.c: does nothing and gives false unless channels are innermost in groups of several, or
 * sums are long and the target asks for parts. */
bool ul_lower_group_norm_steps(struct ul_lower *lower, ul_node_id node, int64_t groups);

/* norm_gradient_lower.c: inputs and outputs of NormalizationGradient. */
enum { UL_NORM_X, UL_NORM_G, UL_NORM_SCALE };
enum { UL_NORM_DX, UL_NORM_INVERSE, UL_NORM_MEAN };
/* The dimensions that the node's attribute `axes` names. Bit d: dimension d. */
uint32_t ul_norm_mask(const struct ul_node *node, uint32_t rank);
/* Checks inputs x and g, and gives the type of x with size 1 in the dimensions of `axes`. */
enum ul_status ul_norm_infer_kept(struct ul_infer *infer, struct ul_type *kept);
/* Checks that an input, where it is there, broadcasts to x. */
enum ul_status ul_norm_check_broadcast(struct ul_infer *infer, uint32_t input);

/* norm_sums.c: outputs of NormalizationSums. */
enum { UL_NORM_DSCALE, UL_NORM_DBIAS };
/* norm_gradient.c: the first `count` of them, from x, g, 1 / deviation, and the mean or UL_NONE,
 * summed over the dimensions of `mask`, which stay with size 1. */
void ul_gradient_norm_sums(struct ul_gradient *gradient, const ul_value_id inputs[4], uint32_t mask,
                           uint32_t count, ul_value_id sums[2]);

#endif
