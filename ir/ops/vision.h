/* Hooks of the vision family, and what its files share: float arithmetic and taps. */
#ifndef UL_OPS_VISION_H
#define UL_OPS_VISION_H

#include "ir/lower.h"
#include "ir/op.h"
#include "ir/split_rule.h"

/* resize.c (what is asked for), resize_lower.c (how it is computed) */

ul_infer_fn ul_infer_resize;
ul_lower_fn ul_lower_resize;

/* grid_sample.c: GridSample, AffineGrid */

ul_infer_fn ul_infer_grid_sample, ul_infer_affine_grid;
ul_lower_fn ul_lower_grid_sample;
ul_map_fn ul_map_affine_grid;

/* roi.c: RoiAlign, MaxRoiPool */

ul_infer_fn ul_infer_roi_align, ul_infer_max_roi_pool;
ul_lower_fn ul_lower_roi_align, ul_lower_max_roi_pool;

/* col2im.c */

ul_infer_fn ul_infer_col2im;
ul_lower_fn ul_lower_col2im;

/* taps.c */

/* f32, or f64 where an element needs more digits. */
enum ul_dtype ul_taps_dtype(enum ul_dtype stored);
/* The four weights of cubic convolution (Keys, 1981) with parameter `a` at distance `ratio` behind
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

/* Arithmetic with a number. */
ul_kx ul_kx_addf(struct ul_kernel *kernel, ul_kx a, double b);
ul_kx ul_kx_mulf(struct ul_kernel *kernel, ul_kx a, double b);
ul_kx ul_kx_divf(struct ul_kernel *kernel, ul_kx a, double b);

/* resize.c */
bool ul_split_rule_resize(struct ul_split_rule *split);

#endif
