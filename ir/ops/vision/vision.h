/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the vision family share: float arithmetic and taps. */
#ifndef UL_OPS_VISION_H
#define UL_OPS_VISION_H

#include "ir/ops/vision/vision.def"

/* f32, or f64 where an element needs more digits. */
enum ul_dtype ul_taps_dtype(enum ul_dtype stored);
/* The four weights of cubic convolution (Keys, 1981) with parameter `a` at distance `ratio` after
 * the second of them. */
void ul_taps_cubic(struct ul_kernel *kernel, double a, ul_kx ratio, ul_kx *weights);

/* The weighted sum of an input's elements on a small grid: along dimension d, `counts[d]` taps
 * at the indexes and weights given; a weight of UL_NONE is 1. Where a condition is given and does
 * not hold, the element counts as 0; its index must be in bounds all the same. */
#define UL_TAPS_MAX 4
struct ul_taps {
    enum ul_dtype dtype; /* of weights and sum */
    uint32_t rank;
    uint32_t counts[UL_LIMIT_RANK];
    ul_kx indexes[UL_LIMIT_RANK][UL_TAPS_MAX];
    ul_kx weights[UL_LIMIT_RANK][UL_TAPS_MAX];
    bool has_conditions;
    ul_kx conditions[UL_LIMIT_RANK][UL_TAPS_MAX]; /* read when has_conditions; UL_NONE: true */
};
ul_kx ul_taps_sum(struct ul_lower *lower, ul_value_id value, const struct ul_taps *taps);

/* The other way: adds the term times its weight to each element of an output that was stored. */
void ul_taps_add(struct ul_lower *lower, ul_value_id output, const struct ul_taps *taps,
                 ul_kx term);

/* How the four weights move with the ratio. */
void ul_taps_cubic_slopes(struct ul_kernel *kernel, double a, ul_kx ratio, ul_kx *slopes);

/* grid_sample.c: the taps of the element of the result at `index`, of a GridSample or its gradient,
 * whose inputs 0 and 1 are its own; `slopes` unless NULL. */
struct ul_grid_slopes {
    ul_kx weights[UL_LIMIT_RANK][UL_TAPS_MAX]; /* by the place along the dimension, in elements */
    ul_kx coordinates[UL_LIMIT_RANK];          /* the place by the coordinate that the grid has */
};
void ul_grid_taps(struct ul_lower *lower, ul_node_id node, const ul_kx *index, struct ul_taps *taps,
                  struct ul_grid_slopes *slopes);
/* Whether the result moves with the coordinates. */
bool ul_grid_is_smooth(const struct ul_node *node);

/* Arithmetic with a number. */
ul_kx ul_kx_addf(struct ul_kernel *kernel, ul_kx a, double b);
ul_kx ul_kx_mulf(struct ul_kernel *kernel, ul_kx a, double b);
ul_kx ul_kx_divf(struct ul_kernel *kernel, ul_kx a, double b);

#endif
