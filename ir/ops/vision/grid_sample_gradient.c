/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of GridSample: what was interpolated from elements is added to them, one channel at a
 * time in the order of the results; the gradient of a coordinate is the sum over channels of how
 * the result moves with it. Also the gradient of AffineGrid, whose result is a product with
 * constant places. */
#include "ir/kernel_build.h"
#include "ir/op_names.h"
#include "ir/ops/backward.def"
#include "ir/ops/check.h"
#include "ir/ops/vision/vision.h"

#include <string.h>

enum { X, GRID, GRADIENT };

/* The operator says whether the result is the gradient of X or of GRID. */
enum ul_status ul_infer_grid_sample_gradient(struct ul_infer *infer)
{
    bool is_grid = infer->node->op == UL_OP_GridGradient;
    UL_TRY(ul_check_dtype(infer, X, UL_CHECK_FLOATS));
    UL_TRY(ul_check_same_dtype(infer, X, GRADIENT));
    ul_infer_set_type(infer, 0, ul_infer_input(infer, is_grid ? GRID : X));
    return UL_OK;
}

void ul_lower_grid_sample_gradient(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *data = ul_check_node(lower, node);
    const struct ul_type *x = ul_lower_input_type(lower, node, X);
    const struct ul_type *g = ul_lower_input_type(lower, node, GRADIENT);
    struct ul_taps taps;
    ul_kx index[UL_LIMIT_RANK];
    ul_lower_open(lower, x->rank, x->dims, index);
    ul_lower_store(lower, data->outputs[0], index, ul_kx_float(k, ul_compute_dtype(x->dtype), 0.0));
    ul_lower_close(lower, x->rank);
    if (ul_type_elements(g) == 0)
        return;
    for (uint32_t d = 0; d < g->rank; d++)
        index[d] = ul_ks_for(k, g->dims[d], d < 2 ? UL_FOR_PARALLEL : 0);
    ul_grid_taps(lower, node, index, &taps, NULL);
    ul_kx term = ul_ks_let(k, ul_lower_load(lower, data->inputs[GRADIENT], index));
    ul_taps_add(lower, data->outputs[0], &taps, term);
    for (uint32_t d = 0; d < g->rank; d++)
        ul_ks_end(k);
}

void ul_lower_grid_gradient(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *data = ul_check_node(lower, node);
    const struct ul_type *g = ul_lower_input_type(lower, node, GRADIENT);
    const struct ul_type *grid = ul_lower_output_type(lower, node, 0);
    uint32_t sums[UL_LIMIT_RANK];
    ul_kx index[UL_LIMIT_RANK], place[UL_LIMIT_RANK];
    if (ul_type_elements(grid) == 0)
        return;
    ul_lower_open(lower, grid->rank - 1, grid->dims, place);
    index[0] = place[0];
    for (uint32_t d = 2; d < g->rank; d++)
        index[d] = place[d - 1];
    enum ul_dtype dtype = ul_taps_dtype(ul_lower_input_type(lower, node, X)->dtype);
    for (uint32_t d = 2; d < g->rank; d++)
        sums[d] = ul_ks_var(k, dtype, ul_kx_float(k, dtype, 0.0));
    index[1] = ul_ks_for(k, g->dims[1], 0);
    struct ul_taps taps;
    struct ul_grid_slopes slopes;
    ul_grid_taps(lower, node, index, &taps, &slopes);
    ul_kx share = ul_kx_cast(k, dtype, ul_lower_load(lower, data->inputs[GRADIENT], index));
    share = ul_ks_let(k, share);
    for (uint32_t d = 2; d < g->rank; d++) {
        struct ul_taps moved = taps;
        memcpy(moved.weights[d], slopes.weights[d], sizeof moved.weights[d]);
        ul_kx slope =
            ul_kx_mul(k, ul_taps_sum(lower, data->inputs[X], &moved), slopes.coordinates[d]);
        ul_ks_set(k, sums[d], ul_kx_add(k, ul_kx_var(k, sums[d]), ul_kx_mul(k, share, slope)));
    }
    ul_ks_end(k);
    for (uint32_t d = 2; d < g->rank; d++) {
        place[grid->rank - 1] = ul_kx_index_const(k, (int64_t)(g->rank - 1 - d));
        ul_lower_store(lower, data->outputs[0], place,
                       ul_kx_cast(k, ul_compute_dtype(grid->dtype), ul_kx_var(k, sums[d])));
    }
    ul_lower_close(lower, grid->rank - 1);
}

enum ul_status ul_gradient_grid_sample(struct ul_gradient *gradient)
{
    ul_value_id inputs[3] = {ul_gradient_input(gradient, X), ul_gradient_input(gradient, GRID),
                             ul_gradient_of(gradient, 0)};
    struct ul_type type = ul_gradient_type(gradient, inputs[X]);
    if (ul_gradient_wanted(gradient, GRID) && ul_grid_is_smooth(ul_gradient_node(gradient))) {
        ul_node_id node = ul_gradient_begin_like(gradient, UL_OP_GridGradient, inputs, 3, 1);
        ul_gradient_give(gradient, GRID, ul_build_infer(&gradient->build, node));
    }
    if (ul_gradient_wanted(gradient, X)) {
        inputs[X] =
            ul_build_zeros(&gradient->build, &type); /* which takes no bytes: for its type */
        ul_node_id node = ul_gradient_begin_like(gradient, UL_OP_GridSampleGradient, inputs, 3, 1);
        ul_gradient_give(gradient, X, ul_build_infer(&gradient->build, node));
    }
    return UL_OK;
}

/* ---- AffineGrid ---- */

/* grid[p, i] = sum over j of theta[i, j] places[p, j], where the places are the grid of the
 * identity, followed by 1. */
enum ul_status ul_gradient_affine_grid(struct ul_gradient *gradient)
{
    struct ul_type theta = ul_gradient_type(gradient, ul_gradient_input(gradient, 0));
    struct ul_type grid = ul_gradient_type(gradient, ul_gradient_output(gradient, 0));
    int64_t space = theta.dims[1], batch = theta.dims[0], count = 1;
    struct ul_type one = {.dtype = theta.dtype, .rank = 3, .dims = {1, space, space + 1}};
    double *identity = UL_NEW_ARRAY(gradient->scratch, double, (uint64_t)(space * (space + 1)));
    for (int64_t i = 0; i < space; i++)
        identity[i * (space + 1) + i] = 1;
    int64_t size[5] = {1, 1};
    for (int64_t d = 0; d < space; d++)
        count *= size[d + 2] = grid.dims[d + 1];
    const int64_t entries = space + 2;
    const struct ul_tensor *inputs[2] = {
        ul_gradient_tensor(gradient, &one, identity),
        ul_tensor_new_ints(gradient->scratch, UL_I64, 1, &entries, size)};
    const struct ul_tensor *made = ul_gradient_evaluate(gradient, inputs, 2, NULL, 0);
    if (made == NULL)
        return ul_gradient_unsupported(gradient, "is too large for its gradient rule");
    const struct ul_type flat = {.dtype = theta.dtype, .rank = 2, .dims = {count, space + 1}};
    double *places = UL_NEW_ARRAY(gradient->scratch, double, (uint64_t)(count * (space + 1)) + 1);
    for (int64_t p = 0; p < count; p++) {
        for (int64_t j = 0; j < space; j++)
            places[p * (space + 1) + j] = ul_tensor_get_float(made, (uint64_t)(p * space + j));
        places[p * (space + 1) + space] = 1;
    }
    const struct ul_type rows = {.dtype = theta.dtype, .rank = 3, .dims = {batch, count, space}};
    ul_value_id g = ul_build_reshape_to(&gradient->build, ul_gradient_of(gradient, 0), &rows);
    ul_gradient_give(gradient, 0,
                     ul_build_binary(&gradient->build, UL_OP_MatMul,
                                     ul_build_swap(&gradient->build, g),
                                     ul_build_numbers(&gradient->build, &flat, places)));
    return UL_OK;
}
