/* SPDX-License-Identifier: Apache-2.0 */
/* What the hooks of the random family share. */
#ifndef UL_OPS_RANDOM_H
#define UL_OPS_RANDOM_H

#include "ir/ops/random/random.def"

/* The seed of a node: its attribute's bits, or a hash of an output's name; another one in each
 * round of a loop that was unrolled (ul_round). */
int64_t ul_random_seed(const struct ul_graph *graph, const struct ul_node *node);
/* The position of the element at `index`, as a counter. */
ul_kx ul_random_position(struct ul_kernel *kernel, const struct ul_type *type, const ul_kx *index);
/* In [0, 1), with 24 bits (f32) or 53 (f64); uses draw 2 * position + which. */
ul_kx ul_random_unit(struct ul_kernel *kernel, enum ul_dtype dtype, ul_kx position, uint32_t which,
                     int64_t seed);

/* drop.c: whether Drop takes this ratio. */
bool ul_random_is_ratio(double ratio);
/* Gives the result of Drop for x at a position: 0 where it is dropped, else x / (1 - ratio). Where
 * the key of the step is below 0, it is x itself. */
ul_kx ul_random_drop(struct ul_kernel *kernel, ul_kx x, ul_kx key, ul_kx position, int64_t seed,
                     double ratio);

#endif
