/* SPDX-License-Identifier: Apache-2.0 */
/* Resize: the size that it gives, and the scale of each axis. */
#include "ir/ops/vision/resize_plan.h"

#include "ir/ops/require.h"

#include <math.h>

static const char *const modes[] = {"nearest", "linear", "cubic", NULL};
static const char *const coordinates[] = {
    "half_pixel",    "half_pixel_symmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn",
    "align_corners", "asymmetric",           "tf_crop_and_resize", NULL};
static const char *const nearest_modes[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                            "ceil", NULL};
static const char *const policies[] = {"stretch", "not_larger", "not_smaller", NULL};

/* The constant of an input, or NULL where it is absent or empty. */
static const struct ul_tensor *constant(const struct ul_graph *graph, const struct ul_node *node,
                                        uint32_t input)
{
    if (input >= node->input_count || node->inputs[input] == UL_NONE)
        return NULL;
    const struct ul_tensor *tensor = graph->values[node->inputs[input]].tensor;
    return tensor == NULL || ul_type_elements(&tensor->type) == 0 ? NULL : tensor;
}

/* The axes that the inputs refer to; all axes where the attribute is missing. */
static uint32_t axes_get(const struct ul_node *node, uint32_t rank, uint32_t *axes)
{
    uint32_t count;
    const int64_t *ints = ul_node_get_ints(node, "axes", &count);
    if (ints == NULL)
        count = rank;
    for (uint32_t i = 0; i < count; i++) {
        int64_t axis = ints == NULL ? (int64_t)i : ints[i];
        axes[i] = (uint32_t)(axis < 0 ? axis + (int64_t)rank : axis);
    }
    return count;
}

/* With an aspect ratio to keep, all axes get the scale of the tightest (or loosest) axis. */
static void keep_ratio(struct ul_resize_plan *plan, const uint32_t *axes, uint32_t count)
{
    double scale = plan->axes[axes[0]].scale;
    for (uint32_t i = 1; i < count; i++) {
        double other = plan->axes[axes[i]].scale;
        scale = plan->policy == RESIZE_NOT_LARGER ? fmin(scale, other) : fmax(scale, other);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct ul_resize_axis *axis = &plan->axes[axes[i]];
        double out = floor(scale * (double)axis->in + 0.5);
        axis->scale = scale;
        axis->out = out < (double)UL_LIMIT_DIM ? (int64_t)out : UL_LIMIT_DIM + 1;
    }
}

static void axis_sizes(struct ul_resize_plan *plan, const uint32_t *axes, uint32_t count,
                       const struct ul_tensor *scales, const struct ul_tensor *sizes)
{
    for (uint32_t i = 0; i < count; i++) {
        struct ul_resize_axis *axis = &plan->axes[axes[i]];
        if (sizes != NULL) {
            axis->out = ul_tensor_get_int(sizes, i);
            axis->scale = (double)axis->out / (double)(axis->in > 0 ? axis->in : 1);
        } else {
            /* Computed in f32, as in ONNX's own shape inference. */
            float scale = (float)ul_tensor_get_float(scales, i);
            float out = floorf((float)axis->in * scale);
            axis->scale = (double)scale;
            axis->out = out < (float)UL_LIMIT_DIM ? (int64_t)out : UL_LIMIT_DIM + 1;
        }
    }
    if (sizes != NULL && plan->policy != RESIZE_STRETCH && count > 0)
        keep_ratio(plan, axes, count);
}

static void axis_rois(struct ul_resize_plan *plan, const uint32_t *axes, uint32_t count,
                      const struct ul_tensor *roi)
{
    for (uint32_t i = 0; i < count && roi != NULL; i++) {
        plan->axes[axes[i]].roi_begin = ul_tensor_get_float(roi, i);
        plan->axes[axes[i]].roi_end = ul_tensor_get_float(roi, (uint64_t)i + count);
    }
}

static bool is_number(double a, double b)
{
    return a >= b && a <= b;
}

void ul_resize_plan_get(const struct ul_graph *graph, const struct ul_node *node,
                        struct ul_resize_plan *plan)
{
    const struct ul_type *type = &graph->values[node->inputs[0]].type;
    uint32_t axes[UL_LIMIT_RANK];
    uint32_t count = axes_get(node, type->rank, axes);
    *plan = (struct ul_resize_plan){
        .mode = (enum resize_mode)ul_node_choice(node, "mode", modes),
        .coordinate = (enum resize_coordinate)ul_node_choice(node, "coordinate_transformation_mode",
                                                             coordinates),
        .nearest = (enum resize_nearest)ul_node_choice(node, "nearest_mode", nearest_modes),
        .policy = (enum resize_policy)ul_node_choice(node, "keep_aspect_ratio_policy", policies),
        .antialias = ul_node_get_int(node, "antialias", 0) != 0,
        .exclude_outside = ul_node_get_int(node, "exclude_outside", 0) != 0,
        .cubic_a = ul_node_get_float(node, "cubic_coeff_a", -0.75),
        .extrapolation = ul_node_get_float(node, "extrapolation_value", 0),
        .rank = type->rank,
    };
    for (uint32_t d = 0; d < type->rank; d++)
        plan->axes[d] = (struct ul_resize_axis){
            .in = type->dims[d], .out = type->dims[d], .scale = 1, .roi_end = 1};
    axis_sizes(plan, axes, count, constant(graph, node, 2), constant(graph, node, 3));
    if (plan->coordinate == RESIZE_TF_CROP)
        axis_rois(plan, axes, count, constant(graph, node, 1));
    for (uint32_t d = 0; d < type->rank; d++) {
        struct ul_resize_axis *axis = &plan->axes[d];
        axis->is_kept = axis->in == axis->out && is_number(axis->scale, 1) &&
                        is_number(axis->roi_begin, 0) && is_number(axis->roi_end, 1);
    }
}

static enum ul_status check_count(const struct ul_infer *infer, uint32_t input, uint64_t wanted)
{
    const struct ul_tensor *tensor = constant(infer->graph, infer->node, input);
    if (tensor == NULL || ul_type_elements(&tensor->type) == wanted)
        return UL_OK;
    return ul_infer_invalid(infer, "input %u has %llu elements, but %llu are expected",
                            (unsigned)input, (unsigned long long)ul_type_elements(&tensor->type),
                            (unsigned long long)wanted);
}

static enum ul_status check_numbers(const struct ul_infer *infer)
{
    const struct ul_tensor *scales = constant(infer->graph, infer->node, 2);
    const struct ul_tensor *sizes = constant(infer->graph, infer->node, 3);
    const struct ul_tensor *roi = constant(infer->graph, infer->node, 1);
    if ((scales == NULL) == (sizes == NULL))
        return ul_infer_invalid(infer, "one of scales and sizes must be given");
    for (uint64_t i = 0; scales != NULL && i < ul_type_elements(&scales->type); i++) {
        double scale = ul_tensor_get_float(scales, i);
        if (!(scale > 0) || isinf(scale))
            return ul_infer_invalid(infer, "the scale %g is not above 0 and finite", scale);
    }
    for (uint64_t i = 0; sizes != NULL && i < ul_type_elements(&sizes->type); i++)
        UL_TRY(ul_check_range(infer, "a size", ul_tensor_get_int(sizes, i), 0, UL_LIMIT_DIM));
    for (uint64_t i = 0; roi != NULL && i < ul_type_elements(&roi->type); i++) {
        if (!(fabs(ul_tensor_get_float(roi, i)) <= 0x1p20))
            return ul_infer_invalid(infer, "roi has an entry that is not within 2^20 of 0");
    }
    return UL_OK;
}

static enum ul_status check_attributes(const struct ul_infer *infer, uint32_t *coordinate)
{
    uint32_t mode;
    uint32_t unused;
    UL_TRY(ul_require_choice(infer, "mode", modes, &mode));
    UL_TRY(ul_require_choice(infer, "coordinate_transformation_mode", coordinates, coordinate));
    UL_TRY(ul_require_choice(infer, "nearest_mode", nearest_modes, &unused));
    UL_TRY(ul_require_choice(infer, "keep_aspect_ratio_policy", policies, &unused));
    if (mode != RESIZE_NEAREST)
        UL_TRY(ul_check_dtype(infer, 0, UL_SET_NUMBER));
    if (mode == RESIZE_NEAREST && ul_node_get_int(infer->node, "antialias", 0) != 0)
        return ul_infer_invalid(infer, "antialias needs the mode \"linear\" or \"cubic\"");
    return UL_OK;
}

enum ul_status ul_infer_resize(struct ul_infer *infer)
{
    struct ul_type type = *ul_infer_input(infer, 0);
    uint32_t coordinate, count, set;
    const int64_t *axes = ul_node_get_ints(infer->node, "axes", &count);
    UL_TRY(check_attributes(infer, &coordinate));
    UL_TRY(ul_require_axes(infer, axes, axes == NULL ? 0 : count, type.rank, &set));
    count = axes == NULL ? type.rank : count;
    if (coordinate == RESIZE_TF_CROP) {
        UL_TRY(ul_check_dtype(infer, 1, UL_SET_FLOAT));
        UL_TRY(ul_require_constant(infer, 1));
        UL_TRY(check_count(infer, 1, 2 * (uint64_t)count));
    }
    UL_TRY(ul_check_dtype(infer, 2, UL_CHECK_BIT(UL_F32)));
    UL_TRY(ul_require_constant(infer, 2));
    UL_TRY(check_count(infer, 2, count));
    UL_TRY(ul_check_dtype(infer, 3, UL_CHECK_BIT(UL_I64)));
    UL_TRY(ul_require_constant(infer, 3));
    UL_TRY(check_count(infer, 3, count));
    UL_TRY(check_numbers(infer));
    struct ul_resize_plan plan;
    ul_resize_plan_get(infer->graph, infer->node, &plan);
    for (uint32_t d = 0; d < type.rank; d++) {
        UL_TRY(ul_check_range(infer, "a size", plan.axes[d].out, 0, UL_LIMIT_DIM));
        if (plan.axes[d].in == 0 && plan.axes[d].out > 0)
            return ul_infer_invalid(infer, "axis %u is empty, so it cannot get %lld elements",
                                    (unsigned)d, (long long)plan.axes[d].out);
        type.dims[d] = plan.axes[d].out;
    }
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

/* Splits along a dimension that stays as it is: the scales do not depend on how long it is. */
bool ul_split_rule_resize(struct ul_split_rule *split)
{
    struct ul_resize_plan plan;
    ul_resize_plan_get(split->graph, split->node, &plan);
    if (!plan.axes[split->output.axis].is_kept || constant(split->graph, split->node, 3) != NULL)
        return false;
    ul_split_rule_read(split, 0, split->output.axis, split->output.begin, split->output.end);
    return true;
}
