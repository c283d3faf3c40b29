/* SPDX-License-Identifier: Apache-2.0 */
/* What a Resize asks for, axis by axis: made by resize.c, used by resize_lower.c. */
#ifndef UL_OPS_RESIZE_PLAN_H
#define UL_OPS_RESIZE_PLAN_H

#include "ir/ops/vision/vision.h"

enum resize_mode { RESIZE_NEAREST, RESIZE_LINEAR, RESIZE_CUBIC };
enum resize_coordinate {
    RESIZE_HALF_PIXEL,
    RESIZE_HALF_PIXEL_SYMMETRIC,
    RESIZE_PYTORCH_HALF_PIXEL,
    RESIZE_TF_HALF_PIXEL_FOR_NN, /* opset 11 and 12 only */
    RESIZE_ALIGN_CORNERS,
    RESIZE_ASYMMETRIC,
    RESIZE_TF_CROP
};
enum resize_nearest { RESIZE_PREFER_FLOOR, RESIZE_PREFER_CEIL, RESIZE_FLOOR, RESIZE_CEIL };
enum resize_policy { RESIZE_STRETCH, RESIZE_NOT_LARGER, RESIZE_NOT_SMALLER };

struct ul_resize_axis {
    int64_t in, out;
    double scale;
    double roi_begin, roi_end; /* for RESIZE_TF_CROP, in units of the axis */
    bool is_kept;              /* every element stays where it is */
};

struct ul_resize_plan {
    enum resize_mode mode;
    enum resize_coordinate coordinate;
    enum resize_nearest nearest;
    enum resize_policy policy;
    bool antialias, exclude_outside;
    double cubic_a, extrapolation;
    uint32_t rank;
    struct ul_resize_axis axes[UL_LIMIT_RANK];
};

/* Reads a node whose rule has accepted it. */
void ul_resize_plan_get(const struct ul_graph *graph, const struct ul_node *node,
                        struct ul_resize_plan *plan);

#endif
