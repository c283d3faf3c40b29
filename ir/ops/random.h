/* Hooks of the random family. Numbers are counter-based: a draw is a function of the node's seed
 * and the element's position, so recomputing it, or another order, gives the same number. */
#ifndef UL_OPS_RANDOM_H
#define UL_OPS_RANDOM_H

#include "ir/kernel.h"
#include "ir/op.h"

/* random.c */

ul_infer_fn ul_infer_random, ul_infer_random_like, ul_infer_bernoulli, ul_infer_multinomial;
ul_map_fn ul_map_random_uniform, ul_map_random_normal, ul_map_bernoulli;
ul_lower_fn ul_lower_multinomial;

/* dropout.c */

ul_infer_fn ul_infer_dropout;
ul_map_fn ul_map_dropout;
ul_view_fn ul_view_dropout;

/* random.c: what dropout.c shares */

/* The seed of a node: its attribute's bits, or a hash of an output's name. */
int64_t ul_random_seed(const struct ul_graph *graph, const struct ul_node *node);
/* The position of the element at `index`, as a counter. */
ul_kx ul_random_position(struct ul_kernel *kernel, const struct ul_type *type, const ul_kx *index);
/* In [0, 1), with 24 bits (f32) or 53 (f64); uses draw 2 * position + which. */
ul_kx ul_random_unit(struct ul_kernel *kernel, enum ul_dtype dtype, ul_kx position, uint32_t which,
                     int64_t seed);

#endif
