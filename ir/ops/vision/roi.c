/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling inside regions whose corners are data: RoiAlign and MaxRoiPool. A region's batch index
 * and its number of samples are checked at run time. */
#include "ir/op_names.h"
#include "ir/ops/backward.def"
#include "ir/ops/vision/vision.h"

#include "ir/kernel_build.h"
#include "ir/ops/require.h"

#include <math.h>

static const char *const roi_offsets[] = {"half_pixel", "output_half_pixel", NULL};
static const char *const roi_modes[] = {"avg", "max", NULL};

enum ul_status ul_infer_roi_align(struct ul_infer *infer)
{
    const struct ul_type *input = ul_infer_input(infer, 0);
    const struct ul_type *rois = ul_infer_input(infer, 1);
    int64_t height = ul_node_get_int(infer->node, "output_height", 1);
    int64_t width = ul_node_get_int(infer->node, "output_width", 1);
    int64_t ratio = ul_node_get_int(infer->node, "sampling_ratio", 0);
    uint32_t unused;
    UL_TRY(ul_check_rank(infer, 0, 4, 4));
    UL_TRY(ul_check_rank(infer, 1, 2, 2));
    UL_TRY(ul_check_dtype(infer, 0, UL_SET_FLOAT));
    UL_TRY(ul_check_same_dtype(infer, 0, 1));
    UL_TRY(ul_check_dtype(infer, 2, UL_CHECK_INDEXES));
    int64_t wanted[2] = {rois->dims[0], 4};
    UL_TRY(ul_check_shape(infer, 1, 2, wanted));
    UL_TRY(ul_check_shape(infer, 2, 1, wanted));
    UL_TRY(ul_require_choice(infer, "coordinate_transformation_mode", roi_offsets, &unused));
    UL_TRY(ul_require_choice(infer, "mode", roi_modes, &unused));
    UL_TRY(ul_check_range(infer, "output_height", height, 1, UL_LIMIT_DIM));
    UL_TRY(ul_check_range(infer, "output_width", width, 1, UL_LIMIT_DIM));
    UL_TRY(ul_check_range(infer, "sampling_ratio", ratio, 0, 1 << 20));
    if (rois->dims[0] > 0 && ul_type_elements(input) == 0)
        return ul_infer_invalid(infer, "the input is empty");
    int64_t dims[4] = {rois->dims[0], input->dims[1], height, width};
    ul_infer_set(infer, 0, input->dtype, 4, dims);
    return UL_OK;
}

/* One direction of a region: where it begins, how large an output bin is, how many samples a bin
 * has, and how far apart these are. */
struct roi_axis {
    int64_t size; /* of the input */
    ul_kx begin, bin, count, step;
};

static ul_kx roi_corner(struct ul_lower *lower, ul_node_id node, ul_kx roi, int64_t corner)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    bool half = ul_node_choice(info, "coordinate_transformation_mode", roi_offsets) == 0;
    ul_kx index[2] = {roi, ul_kx_index_const(kernel, corner)};
    ul_kx x = ul_lower_load(lower, info->inputs[1], index);
    x = ul_kx_mulf(kernel, x, ul_node_get_float(info, "spatial_scale", 1));
    return ul_ks_let(kernel, half ? ul_kx_addf(kernel, x, -0.5) : x);
}

static struct roi_axis roi_axis_get(struct ul_lower *lower, ul_node_id node, ul_kx roi,
                                    int64_t corner, int64_t size, int64_t bins)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    bool half = ul_node_choice(info, "coordinate_transformation_mode", roi_offsets) == 0;
    int64_t ratio = ul_node_get_int(info, "sampling_ratio", 0);
    struct roi_axis axis = {.size = size, .begin = roi_corner(lower, node, roi, corner)};
    ul_kx extent = ul_kx_sub(kernel, roi_corner(lower, node, roi, corner + 2), axis.begin);
    enum ul_dtype dtype = ul_kx_dtype(kernel, extent);
    if (!half) {
        ul_kx one = ul_kx_float(kernel, dtype, 1);
        extent = ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LT, extent, one), one, extent);
    }
    axis.bin = ul_ks_let(kernel, ul_kx_divf(kernel, extent, (double)bins));
    if (ratio > 0) {
        axis.count = ul_kx_index_const(kernel, ratio);
    } else {
        /* A region that needs far more samples than the input has elements is in no image. */
        int64_t max = 4 * size + 64;
        ul_kx count = ul_kx_cast(kernel, UL_I64, ul_kx_unary(kernel, UL_KX_CEIL, axis.bin));
        ul_kx zero = ul_kx_index_const(kernel, 0);
        axis.count = ul_ks_let(
            kernel, ul_kx_checked_index(kernel, ul_kx_binary(kernel, UL_KX_MAX, count, zero),
                                        max + 1, false));
    }
    axis.step = ul_ks_let(
        kernel, ul_kx_binary(kernel, UL_KX_DIV, axis.bin, ul_kx_cast(kernel, dtype, axis.count)));
    return axis;
}

/* Opens the loop over a bin's samples along one direction. */
static ul_kx roi_axis_open(struct ul_lower *lower, ul_node_id node, const struct roi_axis *axis,
                           uint32_t flags)
{
    int64_t ratio = ul_node_get_int(&lower->graph->nodes[node], "sampling_ratio", 0);
    int64_t max = ratio > 0 ? ratio : 4 * axis->size + 64;
    return ul_ks_for_expr(lower->kernel, axis->count, max, flags);
}

/* The two neighbours of a sample and their weights; all weights are 0 outside the input. */
struct roi_sample {
    ul_kx low, high, low_weight, high_weight;
};

static struct roi_sample roi_sample_get(struct ul_kernel *kernel, const struct roi_axis *axis,
                                        ul_kx bin, ul_kx sample)
{
    enum ul_dtype dtype = ul_kx_dtype(kernel, axis->bin);
    ul_kx zero = ul_kx_float(kernel, dtype, 0);
    ul_kx one = ul_kx_float(kernel, dtype, 1);
    ul_kx last = ul_kx_float(kernel, dtype, (double)(axis->size - 1));
    ul_kx begin = ul_kx_add(kernel, axis->begin,
                            ul_kx_mul(kernel, ul_kx_cast(kernel, dtype, bin), axis->bin));
    ul_kx within = ul_kx_addf(kernel, ul_kx_cast(kernel, dtype, sample), 0.5);
    ul_kx x = ul_ks_let(kernel, ul_kx_add(kernel, begin, ul_kx_mul(kernel, within, axis->step)));
    ul_kx inside = ul_ks_let(
        kernel,
        ul_kx_binary(
            kernel, UL_KX_AND, ul_kx_binary(kernel, UL_KX_LE, ul_kx_float(kernel, dtype, -1), x),
            ul_kx_binary(kernel, UL_KX_LE, x, ul_kx_float(kernel, dtype, (double)axis->size))));
    x = ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LT, x, zero), zero, x);
    x = ul_ks_let(kernel, ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LT, last, x), last, x));
    ul_kx below = ul_ks_let(kernel, ul_kx_unary(kernel, UL_KX_FLOOR, x));
    ul_kx ratio = ul_kx_sub(kernel, x, below);
    struct roi_sample result;
    ul_kx base = ul_kx_clamp(kernel, ul_kx_cast(kernel, UL_I64, below), axis->size - 1);
    result.low = ul_ks_let(kernel, base);
    result.high =
        ul_ks_let(kernel, ul_kx_clamp(kernel, ul_kx_addi(kernel, result.low, 1), axis->size - 1));
    result.high_weight = ul_ks_let(kernel, ul_kx_select(kernel, inside, ratio, zero));
    result.low_weight =
        ul_ks_let(kernel, ul_kx_select(kernel, inside, ul_kx_sub(kernel, one, ratio), zero));
    return result;
}

/* Combines the four weighted corners: adds them up or takes the largest. */
static ul_kx roi_value(struct ul_lower *lower, ul_value_id input, const ul_kx *plane,
                       const struct roi_sample *y, const struct roi_sample *x, enum ul_kx_op op)
{
    struct ul_kernel *kernel = lower->kernel;
    ul_kx result = UL_NONE;
    for (uint32_t corner = 0; corner < 4; corner++) {
        bool below = corner >= 2;
        bool right = corner % 2 != 0;
        ul_kx index[4] = {plane[0], plane[1], below ? y->high : y->low, right ? x->high : x->low};
        ul_kx weight = ul_kx_mul(kernel, below ? y->high_weight : y->low_weight,
                                 right ? x->high_weight : x->low_weight);
        ul_kx term = ul_kx_mul(kernel, weight, ul_lower_load(lower, input, index));
        result = corner == 0 ? term : ul_kx_binary(kernel, op, result, term);
    }
    return result;
}

void ul_lower_roi_align(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *in = ul_lower_input_type(lower, node, 0);
    const struct ul_type *out = ul_lower_output_type(lower, node, 0);
    bool average = ul_node_choice(info, "mode", roi_modes) == 0;
    enum ul_dtype dtype = ul_compute_dtype(in->dtype);
    ul_kx index[4];
    if (ul_type_elements(out) == 0)
        return;
    ul_lower_open(lower, 4, out->dims, index);
    ul_kx batch = ul_kx_checked_index(kernel, ul_lower_load(lower, info->inputs[2], index),
                                      in->dims[0], false);
    ul_kx plane[2] = {ul_ks_let(kernel, batch), index[1]};
    struct roi_axis y = roi_axis_get(lower, node, index[0], 1, in->dims[2], out->dims[2]);
    struct roi_axis x = roi_axis_get(lower, node, index[0], 0, in->dims[3], out->dims[3]);
    ul_kx nothing = ul_kx_float(kernel, dtype, average ? 0 : -(double)INFINITY);
    uint32_t result = ul_ks_var(kernel, dtype, nothing);
    struct roi_sample row =
        roi_sample_get(kernel, &y, index[2], roi_axis_open(lower, node, &y, UL_FOR_REDUCE));
    struct roi_sample column =
        roi_sample_get(kernel, &x, index[3], roi_axis_open(lower, node, &x, UL_FOR_REDUCE));
    enum ul_kx_op op = average ? UL_KX_ADD : UL_KX_MAX;
    ul_ks_set(kernel, result,
              ul_kx_binary(kernel, op, ul_kx_var(kernel, result),
                           roi_value(lower, info->inputs[0], plane, &row, &column, op)));
    ul_ks_end(kernel);
    ul_ks_end(kernel);
    ul_kx samples = ul_kx_mul(kernel, y.count, x.count);
    ul_kx none = ul_kx_binary(kernel, UL_KX_EQ, samples, ul_kx_index_const(kernel, 0));
    ul_kx value = ul_kx_var(kernel, result);
    if (average) {
        ul_kx one = ul_kx_index_const(kernel, 1);
        ul_kx count = ul_kx_cast(kernel, dtype, ul_kx_binary(kernel, UL_KX_MAX, samples, one));
        value = ul_kx_binary(kernel, UL_KX_DIV, value, count);
    } else {
        value = ul_kx_select(kernel, none, ul_kx_float(kernel, dtype, 0), value);
    }
    ul_lower_store(lower, info->outputs[0], index, value);
    ul_lower_close(lower, 4);
}

enum ul_status ul_infer_max_roi_pool(struct ul_infer *infer)
{
    const struct ul_type *input = ul_infer_input(infer, 0);
    const struct ul_type *rois = ul_infer_input(infer, 1);
    uint32_t count;
    const int64_t *pooled = ul_node_get_ints(infer->node, "pooled_shape", &count);
    UL_TRY(ul_check_rank(infer, 0, 4, 4));
    UL_TRY(ul_check_rank(infer, 1, 2, 2));
    UL_TRY(ul_check_dtype(infer, 0, UL_SET_FLOAT));
    UL_TRY(ul_check_same_dtype(infer, 0, 1));
    int64_t wanted[2] = {rois->dims[0], 5};
    UL_TRY(ul_check_shape(infer, 1, 2, wanted));
    if (count != 2)
        return ul_infer_invalid(infer, "pooled_shape must have two entries");
    UL_TRY(ul_check_range(infer, "pooled_shape", pooled[0], 1, UL_LIMIT_DIM));
    UL_TRY(ul_check_range(infer, "pooled_shape", pooled[1], 1, UL_LIMIT_DIM));
    if (rois->dims[0] > 0 && ul_type_elements(input) == 0)
        return ul_infer_invalid(infer, "the input is empty");
    int64_t dims[4] = {rois->dims[0], input->dims[1], pooled[0], pooled[1]};
    ul_infer_set(infer, 0, input->dtype, 4, dims);
    return UL_OK;
}

/* The elements [begin, begin + count) of one bin along one direction. */
struct bin {
    ul_kx begin, count;
};

/* Rounds a corner to whole elements, halves away from 0. */
static ul_kx whole_corner(struct ul_lower *lower, ul_node_id node, ul_kx roi, int64_t corner)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    ul_kx index[2] = {roi, ul_kx_index_const(kernel, corner)};
    ul_kx x = ul_kx_mulf(kernel, ul_lower_load(lower, info->inputs[1], index),
                         ul_node_get_float(info, "spatial_scale", 1));
    ul_kx half = ul_kx_float(kernel, ul_kx_dtype(kernel, x), 0.5);
    ul_kx zero = ul_kx_float(kernel, ul_kx_dtype(kernel, x), 0);
    half = ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LT, x, zero),
                        ul_kx_unary(kernel, UL_KX_NEG, half), half);
    return ul_ks_let(kernel, ul_kx_unary(kernel, UL_KX_TRUNC, ul_kx_add(kernel, x, half)));
}

static ul_kx bin_edge(struct ul_kernel *kernel, enum ul_kx_op rounding, ul_kx bin, ul_kx extent,
                      ul_kx begin, int64_t size)
{
    ul_kx edge = ul_kx_mul(kernel, ul_kx_cast(kernel, ul_kx_dtype(kernel, extent), bin), extent);
    edge = ul_kx_add(kernel, ul_kx_unary(kernel, rounding, edge), begin);
    return ul_kx_clamp(kernel, ul_kx_cast(kernel, UL_I64, edge), size);
}

static struct bin bin_get(struct ul_lower *lower, ul_node_id node, ul_kx roi, int64_t corner,
                          int64_t size, ul_kx bin, int64_t bins)
{
    struct ul_kernel *kernel = lower->kernel;
    ul_kx begin = whole_corner(lower, node, roi, corner);
    ul_kx end = whole_corner(lower, node, roi, corner + 2);
    ul_kx extent = ul_kx_addf(kernel, ul_kx_sub(kernel, end, begin), 1);
    ul_kx one = ul_kx_float(kernel, ul_kx_dtype(kernel, extent), 1);
    extent = ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LT, extent, one), one, extent);
    extent = ul_ks_let(kernel, ul_kx_divf(kernel, extent, (double)bins));
    ul_kx first = bin_edge(kernel, UL_KX_FLOOR, bin, extent, begin, size);
    ul_kx last = bin_edge(kernel, UL_KX_CEIL, ul_kx_addi(kernel, bin, 1), extent, begin, size);
    struct bin result = {.begin = ul_ks_let(kernel, first)};
    result.count =
        ul_ks_let(kernel, ul_kx_clamp(kernel, ul_kx_sub(kernel, last, result.begin), size));
    return result;
}

/* The bins as in Fast R-CNN (Girshick, 2015): corners rounded, bins that may overlap by one. */
void ul_lower_max_roi_pool(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *in = ul_lower_input_type(lower, node, 0);
    const struct ul_type *out = ul_lower_output_type(lower, node, 0);
    enum ul_dtype dtype = ul_compute_dtype(in->dtype);
    ul_kx index[4];
    if (ul_type_elements(out) == 0)
        return;
    ul_lower_open(lower, 4, out->dims, index);
    ul_kx at[2] = {index[0], ul_kx_index_const(kernel, 0)};
    ul_kx batch = ul_kx_cast(kernel, UL_I64, ul_lower_load(lower, info->inputs[1], at));
    batch = ul_ks_let(kernel, ul_kx_checked_index(kernel, batch, in->dims[0], false));
    struct bin y = bin_get(lower, node, index[0], 2, in->dims[2], index[2], out->dims[2]);
    struct bin x = bin_get(lower, node, index[0], 1, in->dims[3], index[3], out->dims[3]);
    uint32_t result = ul_ks_var(kernel, dtype, ul_kx_float(kernel, dtype, -(double)INFINITY));
    ul_kx row = ul_ks_for_expr(kernel, y.count, in->dims[2], UL_FOR_REDUCE);
    ul_kx column = ul_ks_for_expr(kernel, x.count, in->dims[3], UL_FOR_REDUCE);
    ul_kx from[4] = {batch, index[1],
                     ul_kx_clamp(kernel, ul_kx_add(kernel, y.begin, row), in->dims[2] - 1),
                     ul_kx_clamp(kernel, ul_kx_add(kernel, x.begin, column), in->dims[3] - 1)};
    ul_ks_set(kernel, result,
              ul_kx_binary(kernel, UL_KX_MAX, ul_kx_var(kernel, result),
                           ul_lower_load(lower, info->inputs[0], from)));
    ul_ks_end(kernel);
    ul_ks_end(kernel);
    ul_kx zero = ul_kx_index_const(kernel, 0);
    ul_kx none = ul_kx_binary(kernel, UL_KX_EQ, ul_kx_mul(kernel, y.count, x.count), zero);
    ul_lower_store(
        lower, info->outputs[0], index,
        ul_kx_select(kernel, none, ul_kx_float(kernel, dtype, 0), ul_kx_var(kernel, result)));
    ul_lower_close(lower, 4);
}

/* ---- Gradients: regions of an image may meet, so that they follow each other ---- */

/* Stores zeros, then opens loops over the elements of g, with channels in parallel. Four ends close
 * them. */
static void open_regions(struct ul_lower *lower, ul_node_id node, const struct ul_type *g,
                         ul_kx *index)
{
    static const uint32_t order[4] = {1, 0, 2, 3};
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *in = ul_lower_output_type(lower, node, 0);
    ul_lower_open(lower, 4, in->dims, index);
    ul_lower_store(lower, lower->graph->nodes[node].outputs[0], index,
                   ul_kx_float(kernel, ul_compute_dtype(in->dtype), 0));
    ul_lower_close(lower, 4);
    for (uint32_t i = 0; i < 4; i++)
        index[order[i]] = ul_ks_for(kernel, g->dims[order[i]], i == 0 ? UL_FOR_PARALLEL : 0);
}

static void add_at(struct ul_lower *lower, ul_node_id node, const ul_kx *place, ul_kx x)
{
    ul_value_id output = lower->graph->nodes[node].outputs[0];
    ul_kx old = ul_ks_let(lower->kernel, ul_lower_load_output(lower, output, place));
    ul_lower_store(lower, output, place, ul_kx_add(lower->kernel, old, x));
}

/* Inputs: those of the operator, the first of which only tells its type, then g. */
void ul_lower_roi_align_gradient(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *in = ul_lower_output_type(lower, node, 0);
    const struct ul_type *g = ul_lower_input_type(lower, node, 3);
    enum ul_dtype dtype = ul_compute_dtype(in->dtype);
    ul_kx index[4];
    open_regions(lower, node, g, index);
    ul_kx batch = ul_kx_checked_index(kernel, ul_lower_load(lower, info->inputs[2], index),
                                      in->dims[0], false);
    batch = ul_ks_let(kernel, batch);
    struct roi_axis y = roi_axis_get(lower, node, index[0], 1, in->dims[2], g->dims[2]);
    struct roi_axis x = roi_axis_get(lower, node, index[0], 0, in->dims[3], g->dims[3]);
    ul_kx samples = ul_kx_binary(kernel, UL_KX_MAX, ul_kx_mul(kernel, y.count, x.count),
                                 ul_kx_index_const(kernel, 1));
    ul_kx share = ul_kx_binary(kernel, UL_KX_DIV, ul_lower_load(lower, info->inputs[3], index),
                               ul_kx_cast(kernel, dtype, samples));
    share = ul_ks_let(kernel, share);
    struct roi_sample row = roi_sample_get(kernel, &y, index[2], roi_axis_open(lower, node, &y, 0));
    struct roi_sample column =
        roi_sample_get(kernel, &x, index[3], roi_axis_open(lower, node, &x, 0));
    for (uint32_t corner = 0; corner < 4; corner++) {
        bool below = corner >= 2, right = corner % 2 != 0;
        ul_kx place[4] = {batch, index[1], below ? row.high : row.low,
                          right ? column.high : column.low};
        ul_kx weight = ul_kx_mul(kernel, below ? row.high_weight : row.low_weight,
                                 right ? column.high_weight : column.low_weight);
        add_at(lower, node, place, ul_kx_mul(kernel, weight, share));
    }
    for (uint32_t i = 0; i < 6; i++)
        ul_ks_end(kernel);
}

/* Inputs are x, rois and g: each element of g goes to the first of the largest elements of its
 * bin. */
void ul_lower_max_roi_gradient(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *in = ul_lower_input_type(lower, node, 0);
    const struct ul_type *g = ul_lower_input_type(lower, node, 2);
    ul_kx index[4], zero = ul_kx_index_const(kernel, 0);
    open_regions(lower, node, g, index);
    ul_kx at[2] = {index[0], zero};
    ul_kx batch = ul_kx_cast(kernel, UL_I64, ul_lower_load(lower, info->inputs[1], at));
    batch = ul_ks_let(kernel, ul_kx_checked_index(kernel, batch, in->dims[0], false));
    struct bin y = bin_get(lower, node, index[0], 2, in->dims[2], index[2], g->dims[2]);
    struct bin x = bin_get(lower, node, index[0], 1, in->dims[3], index[3], g->dims[3]);
    uint32_t best = ul_ks_var(kernel, ul_compute_dtype(in->dtype),
                              ul_kx_float(kernel, ul_compute_dtype(in->dtype), -(double)INFINITY));
    uint32_t row = ul_ks_var(kernel, UL_I64, ul_kx_index_const(kernel, -1));
    uint32_t column = ul_ks_var(kernel, UL_I64, zero);
    ul_kx down = ul_ks_for_expr(kernel, y.count, in->dims[2], 0);
    ul_kx along = ul_ks_for_expr(kernel, x.count, in->dims[3], 0);
    ul_kx place[4] = {batch, index[1],
                      ul_kx_clamp(kernel, ul_kx_add(kernel, y.begin, down), in->dims[2] - 1),
                      ul_kx_clamp(kernel, ul_kx_add(kernel, x.begin, along), in->dims[3] - 1)};
    ul_kx value = ul_ks_let(kernel, ul_lower_load(lower, info->inputs[0], place));
    ul_kx none = ul_kx_binary(kernel, UL_KX_LT, ul_kx_var(kernel, row), zero);
    ul_ks_if(kernel, ul_kx_binary(kernel, UL_KX_OR, none,
                                  ul_kx_binary(kernel, UL_KX_LT, ul_kx_var(kernel, best), value)));
    ul_ks_set(kernel, best, value);
    ul_ks_set(kernel, row, place[2]);
    ul_ks_set(kernel, column, place[3]);
    for (uint32_t i = 0; i < 3; i++)
        ul_ks_end(kernel);
    ul_ks_if(kernel, ul_kx_binary(kernel, UL_KX_LE, zero, ul_kx_var(kernel, row)));
    place[2] = ul_kx_clamp(kernel, ul_kx_var(kernel, row), in->dims[2] - 1);
    place[3] = ul_kx_clamp(kernel, ul_kx_var(kernel, column), in->dims[3] - 1);
    add_at(lower, node, place, ul_lower_load(lower, info->inputs[2], index));
    for (uint32_t i = 0; i < 5; i++)
        ul_ks_end(kernel);
}

enum ul_status ul_gradient_roi_align(struct ul_gradient *gradient)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, 0));
    if (ul_node_choice(ul_gradient_node(gradient), "mode", roi_modes) != 0)
        return ul_gradient_unsupported(gradient, "the mode max has no gradient rule");
    const ul_value_id inputs[4] = {ul_build_zeros(&gradient->build, &type),
                                   ul_gradient_input(gradient, 1), ul_gradient_input(gradient, 2),
                                   ul_gradient_of(gradient, 0)};
    ul_node_id node = ul_gradient_begin_like(gradient, UL_OP_RoiAlignGradient, inputs, 4, 1);
    ul_gradient_give(gradient, 0, ul_build_infer(&gradient->build, node));
    return UL_OK;
}

enum ul_status ul_gradient_max_roi_pool(struct ul_gradient *gradient)
{
    const ul_value_id inputs[3] = {ul_gradient_input(gradient, 0), ul_gradient_input(gradient, 1),
                                   ul_gradient_of(gradient, 0)};
    ul_node_id node = ul_gradient_begin_like(gradient, UL_OP_MaxRoiPoolGradient, inputs, 3, 1);
    ul_gradient_give(gradient, 0, ul_build_infer(&gradient->build, node));
    return UL_OK;
}
