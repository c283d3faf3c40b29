/* SPDX-License-Identifier: Apache-2.0 */
/* GridSample reads elements at places that a grid of coordinates in [-1, 1] names; AffineGrid makes
 * such grids. */
#include "ir/ops/vision/vision.h"

#include "ir/kernel_build.h"
#include "ir/ops/require.h"

enum grid_mode { GRID_LINEAR, GRID_NEAREST, GRID_CUBIC };
/* The names of opset 20, followed by those of opset 16. */
static const char *const grid_modes[] = {"linear", "nearest", "cubic", "bilinear", "bicubic", NULL};
static const enum grid_mode grid_mode_of[] = {GRID_LINEAR, GRID_NEAREST, GRID_CUBIC, GRID_LINEAR,
                                              GRID_CUBIC};
enum grid_padding { GRID_ZEROS, GRID_BORDER, GRID_REFLECTION };
static const char *const grid_paddings[] = {"zeros", "border", "reflection", NULL};

enum ul_status ul_infer_grid_sample(struct ul_infer *infer)
{
    const struct ul_type *input = ul_infer_input(infer, 0);
    const struct ul_type *grid = ul_infer_input(infer, 1);
    uint32_t mode;
    uint32_t unused;
    UL_TRY(ul_require_choice(infer, "mode", grid_modes, &mode));
    UL_TRY(ul_require_choice(infer, "padding_mode", grid_paddings, &unused));
    if (grid_mode_of[mode] != GRID_NEAREST)
        UL_TRY(ul_check_dtype(infer, 0, UL_SET_NUMBER));
    UL_TRY(ul_check_dtype(infer, 1, UL_SET_FLOAT));
    if (input->rank < 3 || input->rank > 5)
        return ul_infer_unsupported(infer, "the input has rank %u; supported are 3 to 5",
                                    (unsigned)input->rank);
    UL_TRY(ul_check_rank(infer, 1, input->rank, input->rank));
    uint32_t space = input->rank - 2;
    if (grid->dims[0] != input->dims[0] || grid->dims[input->rank - 1] != (int64_t)space)
        return ul_infer_invalid(infer, "the grid must hold %u coordinates for each of %lld images",
                                (unsigned)space, (long long)input->dims[0]);
    struct ul_type type = *input;
    for (uint32_t d = 0; d < space; d++) {
        type.dims[d + 2] = grid->dims[d + 1];
        if (input->dims[d + 2] == 0)
            return ul_infer_invalid(infer, "axis %u is empty", (unsigned)d + 2);
    }
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

struct grid {
    enum grid_mode mode;
    enum grid_padding padding;
    bool align_corners;
};

static struct grid grid_get(const struct ul_node *node)
{
    return (struct grid){
        .mode = grid_mode_of[ul_node_choice(node, "mode", grid_modes)],
        .padding = (enum grid_padding)ul_node_choice(node, "padding_mode", grid_paddings),
        .align_corners = ul_node_get_int(node, "align_corners", 0) != 0,
    };
}

static ul_kx clamp_float(struct ul_kernel *kernel, ul_kx x, double low, double high)
{
    ul_kx bottom = ul_kx_float(kernel, ul_kx_dtype(kernel, x), low);
    ul_kx top = ul_kx_float(kernel, ul_kx_dtype(kernel, x), high);
    x = ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LT, x, bottom), bottom, x);
    return ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LT, top, x), top, x);
}

/* Mirrors x at `low` and `high` until it is between them; leaves it untouched where it already
 * is. */
static ul_kx reflect_float(struct ul_kernel *kernel, ul_kx x, double low, double high)
{
    enum ul_dtype dtype = ul_kx_dtype(kernel, x);
    double range = high - low;
    if (!(range > 0))
        return ul_kx_float(kernel, dtype, low);
    ul_kx folded = ul_kx_binary(kernel, UL_KX_MOD, ul_kx_addf(kernel, x, -low),
                                ul_kx_float(kernel, dtype, 2 * range));
    ul_kx mirrored = ul_kx_sub(kernel, ul_kx_float(kernel, dtype, 2 * range), folded);
    folded =
        ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LT, mirrored, folded), mirrored, folded);
    ul_kx bottom = ul_kx_float(kernel, dtype, low);
    ul_kx top = ul_kx_float(kernel, dtype, high);
    ul_kx inside = ul_kx_binary(kernel, UL_KX_AND, ul_kx_binary(kernel, UL_KX_LE, bottom, x),
                                ul_kx_binary(kernel, UL_KX_LE, x, top));
    return ul_kx_select(kernel, inside, x, ul_kx_addf(kernel, folded, low));
}

/* The coordinate in elements along a dimension of `size`, moved as the padding asks. */
static ul_kx coordinate(struct ul_kernel *kernel, const struct grid *grid, ul_kx normal,
                        int64_t size)
{
    double count = (double)size;
    ul_kx above = ul_kx_addf(kernel, normal, 1);
    ul_kx x =
        grid->align_corners
            ? ul_kx_mulf(kernel, ul_kx_mulf(kernel, above, 0.5), count - 1)
            : ul_kx_mulf(kernel, ul_kx_addf(kernel, ul_kx_mulf(kernel, above, count), -1), 0.5);
    if (grid->mode == GRID_NEAREST)
        x = ul_kx_unary(kernel, UL_KX_ROUND, x);
    x = ul_ks_let(kernel, x);
    /* Far outside, all taps are 0, or the border's; clamped to nearer places, indexes cannot
     * overflow. For cubic interpolation each tap stops at the border by itself, as in torch and
     * onnxruntime; ONNX's reference moves the place there first. */
    if (grid->padding != GRID_REFLECTION)
        return clamp_float(kernel, x, -4, count + 3);
    return grid->align_corners ? reflect_float(kernel, x, 0, count - 1)
                               : reflect_float(kernel, x, -0.5, count - 0.5);
}

/* A tap's place in [0, size). */
static ul_kx reflect_index(struct ul_kernel *kernel, const struct grid *grid, ul_kx at,
                           int64_t size)
{
    int64_t period = grid->align_corners ? 2 * (size - 1) : 2 * size;
    if (size == 1)
        return ul_kx_index_const(kernel, 0);
    ul_kx folded = ul_kx_modi(kernel, at, period);
    ul_kx mirrored = ul_kx_sub(
        kernel, ul_kx_index_const(kernel, grid->align_corners ? period : period - 1), folded);
    return ul_kx_binary(kernel, UL_KX_MIN, folded, mirrored);
}

static void axis_taps(struct ul_kernel *kernel, const struct grid *grid, ul_kx x, int64_t size,
                      uint32_t d, struct ul_taps *taps)
{
    static const uint32_t counts[] = {2, 1, 4};
    ul_kx below = ul_ks_let(kernel, ul_kx_unary(kernel, UL_KX_FLOOR, x));
    ul_kx ratio = ul_ks_let(kernel, ul_kx_cast(kernel, taps->dtype, ul_kx_sub(kernel, x, below)));
    ul_kx base = ul_ks_let(kernel, ul_kx_cast(kernel, UL_I64, below));
    taps->counts[d] = counts[grid->mode];
    taps->weights[d][0] = UL_NONE;
    if (grid->mode == GRID_LINEAR) {
        taps->weights[d][0] = ul_kx_sub(kernel, ul_kx_float(kernel, taps->dtype, 1), ratio);
        taps->weights[d][1] = ratio;
    } else if (grid->mode == GRID_CUBIC) {
        ul_taps_cubic(kernel, -0.75, ratio, taps->weights[d]);
    }
    for (uint32_t t = 0; t < taps->counts[d]; t++) {
        ul_kx at = ul_kx_addi(kernel, base, (int64_t)t - (grid->mode == GRID_CUBIC ? 1 : 0));
        ul_kx inside = ul_kx_binary(
            kernel, UL_KX_AND, ul_kx_binary(kernel, UL_KX_LE, ul_kx_index_const(kernel, 0), at),
            ul_kx_binary(kernel, UL_KX_LT, at, ul_kx_index_const(kernel, size)));
        taps->conditions[d][t] = grid->padding == GRID_ZEROS ? ul_ks_let(kernel, inside) : UL_NONE;
        if (grid->padding == GRID_REFLECTION)
            at = reflect_index(kernel, grid, at, size);
        taps->indexes[d][t] = ul_ks_let(kernel, ul_kx_clamp(kernel, at, size - 1));
        if (taps->weights[d][t] != UL_NONE)
            taps->weights[d][t] = ul_ks_let(kernel, taps->weights[d][t]);
    }
}

/* How far x moves with the coordinate, taking into account what the padding does to it. */
static ul_kx coordinate_slope(struct ul_kernel *kernel, const struct grid *grid, ul_kx normal,
                              int64_t size)
{
    double count = (double)size, factor = (grid->align_corners ? count - 1 : count) / 2;
    double edge = grid->align_corners ? 0 : 0.5, range = count - 1 + 2 * edge;
    enum ul_dtype dtype = ul_kx_dtype(kernel, normal);
    ul_kx one = ul_kx_float(kernel, dtype, factor);
    if (grid->padding != GRID_REFLECTION ||
        !(range > 0)) /* beyond a border the weights' slopes cancel */
        return one;
    ul_kx low = ul_kx_float(kernel, dtype, -edge);
    ul_kx middle = ul_kx_float(kernel, dtype, (count - 1) / 2);
    ul_kx x = ul_ks_let(kernel, ul_kx_add(kernel, ul_kx_mul(kernel, normal, one), middle));
    ul_kx folded = ul_kx_binary(kernel, UL_KX_MOD, ul_kx_sub(kernel, x, low),
                                ul_kx_float(kernel, dtype, 2 * range));
    ul_kx turned = ul_kx_binary(kernel, UL_KX_LT, ul_kx_float(kernel, dtype, range), folded);
    return ul_kx_select(kernel, turned, ul_kx_float(kernel, dtype, -factor), one);
}

/* How the weights of an axis move with x. */
static void axis_slopes(struct ul_kernel *kernel, const struct grid *grid, ul_kx x,
                        enum ul_dtype dtype, ul_kx *slopes)
{
    ul_kx below = ul_kx_unary(kernel, UL_KX_FLOOR, x);
    ul_kx ratio = ul_ks_let(kernel, ul_kx_cast(kernel, dtype, ul_kx_sub(kernel, x, below)));
    if (grid->mode == GRID_CUBIC) {
        ul_taps_cubic_slopes(kernel, -0.75, ratio, slopes);
        return;
    }
    slopes[0] = ul_kx_float(kernel, dtype, -1);
    slopes[1] = ul_kx_float(kernel, dtype, 1);
}

bool ul_grid_is_smooth(const struct ul_node *node)
{
    return grid_get(node).mode != GRID_NEAREST;
}

void ul_grid_taps(struct ul_lower *lower, ul_node_id node, const ul_kx *index, struct ul_taps *taps,
                  struct ul_grid_slopes *slopes)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *in = ul_lower_input_type(lower, node, 0);
    struct grid grid = grid_get(info);
    enum ul_dtype dtype =
        grid.mode == GRID_NEAREST ? ul_compute_dtype(in->dtype) : ul_taps_dtype(in->dtype);
    ul_kx at[UL_LIMIT_RANK];
    *taps = (struct ul_taps){.dtype = dtype, .rank = in->rank, .has_conditions = true};
    at[0] = index[0];
    for (uint32_t d = 2; d < in->rank; d++)
        at[d - 1] = index[d];
    for (uint32_t d = 0; d < 2; d++) {
        taps->counts[d] = 1;
        taps->indexes[d][0] = index[d];
        taps->weights[d][0] = UL_NONE;
        taps->conditions[d][0] = UL_NONE;
    }
    for (uint32_t d = 2; d < in->rank; d++) {
        /* The grid names the innermost dimension first. */
        at[in->rank - 1] = ul_kx_index_const(kernel, (int64_t)(in->rank - 1 - d));
        ul_kx normal = ul_lower_load(lower, info->inputs[1], at);
        ul_kx x = ul_ks_let(kernel, coordinate(kernel, &grid, normal, in->dims[d]));
        axis_taps(kernel, &grid, x, in->dims[d], d, taps);
        if (slopes == NULL)
            continue;
        axis_slopes(kernel, &grid, x, dtype, slopes->weights[d]);
        slopes->coordinates[d] =
            ul_kx_cast(kernel, dtype, coordinate_slope(kernel, &grid, normal, in->dims[d]));
    }
}

void ul_lower_grid_sample(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *out = ul_lower_output_type(lower, node, 0);
    struct ul_taps taps;
    ul_kx index[UL_LIMIT_RANK];
    if (ul_type_elements(out) == 0)
        return;
    ul_lower_open(lower, out->rank, out->dims, index);
    ul_grid_taps(lower, node, index, &taps, NULL);
    ul_kx value = ul_taps_sum(lower, info->inputs[0], &taps);
    ul_lower_store(lower, info->outputs[0], index,
                   ul_kx_cast(kernel, ul_compute_dtype(out->dtype), value));
    ul_lower_close(lower, out->rank);
}

enum ul_status ul_infer_affine_grid(struct ul_infer *infer)
{
    const struct ul_type *theta = ul_infer_input(infer, 0);
    const int64_t *size;
    uint32_t count;
    UL_TRY(ul_check_dtype(infer, 0, UL_SET_FLOAT));
    UL_TRY(ul_infer_ints(infer, 1, &size, &count));
    if (count != 4 && count != 5)
        return ul_infer_invalid(infer, "the size has %u entries, but must have 4 or 5",
                                (unsigned)count);
    for (uint32_t d = 0; d < count; d++)
        UL_TRY(ul_check_range(infer, "a size", size[d], 0, UL_LIMIT_DIM));
    int64_t space = (int64_t)count - 2;
    int64_t wanted[3] = {size[0], space, space + 1};
    UL_TRY(ul_check_shape(infer, 0, 3, wanted));
    int64_t dims[5] = {size[0]};
    for (uint32_t d = 2; d < count; d++)
        dims[d - 1] = size[d];
    dims[count - 1] = space;
    ul_infer_set(infer, 0, theta->dtype, count, dims);
    return UL_OK;
}

/* Row k of a batch's matrix times (x, y, [z,] 1), where x is along the innermost dimension. */
ul_kx ul_map_affine_grid(struct ul_lower *lower, ul_node_id node, uint32_t output,
                         const ul_kx *index)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *out = ul_lower_output_type(lower, node, output);
    bool align_corners = ul_node_get_int(info, "align_corners", 0) != 0;
    uint32_t space = out->rank - 2;
    ul_kx at[3] = {index[0], index[out->rank - 1], ul_kx_index_const(kernel, (int64_t)space)};
    ul_kx sum = ul_lower_load(lower, info->inputs[0], at);
    enum ul_dtype dtype = ul_kx_dtype(kernel, sum);
    for (uint32_t k = 0; k < space; k++) {
        uint32_t d = space - k; /* the output's dimension that x (k = 0), y or z runs along */
        double size = (double)out->dims[d];
        double step = align_corners ? (size > 1 ? 2 / (size - 1) : 0) : (size > 0 ? 2 / size : 0);
        ul_kx place = ul_kx_cast(kernel, dtype, index[d]);
        place =
            ul_kx_addf(kernel, ul_kx_mulf(kernel, place, step), align_corners ? -1 : step / 2 - 1);
        at[2] = ul_kx_index_const(kernel, (int64_t)k);
        sum = ul_kx_add(kernel, sum,
                        ul_kx_mul(kernel, ul_lower_load(lower, info->inputs[0], at), place));
    }
    return sum;
}
