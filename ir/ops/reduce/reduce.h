/* SPDX-License-Identifier: Apache-2.0 */
/* The reduction that pooling over everything shares. */
#ifndef UL_OPS_REDUCE_H
#define UL_OPS_REDUCE_H

#include "ir/ops/reduce/reduce.def"

/* What a reduction does: after(combine of before(x) over the set). */
enum ul_reduce_first { UL_REDUCE_ZERO, UL_REDUCE_ONE, UL_REDUCE_LOWEST, UL_REDUCE_HIGHEST };
struct ul_reduce_rule {
    enum ul_reduce_first first; /* the value of the empty set, before `after` */
    enum ul_kx_op combine;
    double p; /* for an Lp norm */
    ul_kx (*before)(struct ul_kernel *kernel, const struct ul_reduce_rule *rule, ul_kx x);
    /* `count` is the size of the set. */
    ul_kx (*after)(struct ul_kernel *kernel, const struct ul_reduce_rule *rule, ul_kx acc,
                   int64_t count);
};
/* Reduces input 0 of `node` over the dimensions of `mask` into output 0. */
void ul_reduce_lower(struct ul_lower *lower, ul_node_id node, uint32_t mask, bool keepdims,
                     const struct ul_reduce_rule *rule);
extern const struct ul_reduce_rule ul_reduce_mean_rule;
extern const struct ul_reduce_rule ul_reduce_max_rule;
extern const struct ul_reduce_rule ul_reduce_norm_rule; /* p = 2; copy it for another p */
/* The number that combining starts with, in a compute type. */
ul_kx ul_reduce_first_value(struct ul_kernel *kernel, enum ul_reduce_first first,
                            enum ul_dtype dtype);
/* |x|^p and the p-th root, with the cheap forms for 1 and 2. */
ul_kx ul_reduce_power(struct ul_kernel *kernel, ul_kx x, double p);
ul_kx ul_reduce_root(struct ul_kernel *kernel, ul_kx x, double p);

/* The dimensions that a reduction goes over, once its rule has checked them. */
uint32_t ul_reduce_mask(const struct ul_graph *graph, const struct ul_node *node);

#endif
