/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of Resize, axis by axis: what interpolation takes from an element goes back to it.
 * The weights are what the operator itself makes of an identity matrix along the axis; what an
 * element has an effect on lies side by side, so that they are kept as a band:
 *
 *     dx[i] = sum over t of weights[i, t] * g[first[i] + t] */
#include "ir/op_names.h"
#include "ir/ops/backward.def"
#include "ir/ops/vision/resize_plan.h"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"

#include <math.h>
#include <string.h>

enum { GRADIENT, FIRST, WEIGHTS };

enum ul_status ul_infer_band_product(struct ul_infer *infer)
{
    struct ul_type type = *ul_infer_input(infer, GRADIENT);
    const struct ul_type *weights = ul_infer_input(infer, WEIGHTS);
    uint32_t axis;
    UL_TRY(ul_check_dtype(infer, GRADIENT, UL_CHECK_FLOATS));
    UL_TRY(ul_check_same_dtype(infer, GRADIENT, WEIGHTS));
    UL_TRY(ul_check_dtype(infer, FIRST, UL_CHECK_BIT(UL_I64)));
    UL_TRY(ul_infer_axis(infer, ul_node_get_int(infer->node, "axis", 0), type.rank, &axis));
    UL_TRY(ul_check_rank(infer, WEIGHTS, 2, 2));
    UL_TRY(ul_check_range(infer, "the width of the band", weights->dims[1], 1, type.dims[axis]));
    UL_TRY(ul_check_shape(infer, FIRST, 1, &weights->dims[0]));
    type.dims[axis] = weights->dims[0];
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

void ul_lower_band_product(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *data = ul_check_node(lower, node);
    const struct ul_type *type = ul_lower_output_type(lower, node, 0);
    const struct ul_type *g = ul_lower_input_type(lower, node, GRADIENT);
    uint32_t axis = (uint32_t)ul_node_get_int(data, "axis", 0);
    int64_t width = ul_lower_input_type(lower, node, WEIGHTS)->dims[1];
    enum ul_dtype dtype = ul_compute_dtype(type->dtype);
    ul_kx index[UL_LIMIT_RANK], from[UL_LIMIT_RANK];
    ul_lower_open_as(lower, data->outputs[0], type->dims, index);
    ul_kx first = ul_lower_load(lower, data->inputs[FIRST], &index[axis]);
    first = ul_ks_let(k, ul_kx_checked_index(k, first, g->dims[axis] - width + 1, false));
    uint32_t sum = ul_ks_var(k, dtype, ul_kx_float(k, dtype, 0.0));
    ul_kx t = ul_ks_for(k, width, UL_FOR_REDUCE);
    memcpy(from, index, sizeof from);
    from[axis] = ul_kx_add(k, first, t);
    const ul_kx place[2] = {index[axis], t};
    ul_kx term = ul_kx_mul(k, ul_lower_load(lower, data->inputs[WEIGHTS], place),
                           ul_lower_load(lower, data->inputs[GRADIENT], from));
    ul_ks_set(k, sum, ul_kx_add(k, ul_kx_var(k, sum), term));
    ul_ks_end(k);
    ul_lower_store(lower, data->outputs[0], index, ul_kx_var(k, sum));
    ul_lower_close(lower, type->rank);
}

/* ---- Weights ---- */

static const struct ul_tensor *vector(const struct ul_gradient *gradient, enum ul_dtype dtype,
                                      const double *numbers, int64_t count)
{
    const struct ul_type type = {.dtype = dtype, .rank = 1, .dims = {count}};
    return ul_gradient_tensor(gradient, &type, numbers);
}

/* [in, out]: the effect of each element along an axis, found by the operator itself; NULL if that
 * is too much work. */
static const struct ul_tensor *effects(const struct ul_gradient *gradient,
                                       const struct ul_resize_plan *plan, uint32_t d)
{
    static const int64_t last[1] = {1};
    const struct ul_resize_axis *axis = &plan->axes[d];
    const struct ul_type square = {.dtype = UL_F64, .rank = 2, .dims = {axis->in, axis->in}};
    const double roi[2] = {axis->roi_begin, axis->roi_end}, scale = axis->scale;
    const struct ul_node *node = ul_gradient_node(gradient);
    bool has_sizes = node->input_count > 3 && node->inputs[3] != UL_NONE;
    double *numbers = UL_NEW_ARRAY(gradient->scratch, double, (uint64_t)(axis->in * axis->in) + 1);
    for (int64_t i = 0; i < axis->in; i++)
        numbers[i * axis->in + i] = 1;
    const struct ul_tensor *inputs[4] = {ul_gradient_tensor(gradient, &square, numbers),
                                         vector(gradient, UL_F64, roi, 2), NULL, NULL};
    if (has_sizes && plan->policy == RESIZE_STRETCH)
        inputs[3] = ul_tensor_new_ints(gradient->graph->arena, UL_I64, 1, last, &axis->out);
    else
        inputs[2] = vector(gradient, UL_F32, &scale, 1);
    const struct ul_attr changes[] = {
        {.name = "axes", .kind = UL_ATTR_INTS, .count = 1, .ints = last},
        {.name = "extrapolation_value", .kind = UL_ATTR_FLOAT, .f = 0},
        {.name = "keep_aspect_ratio_policy", .kind = UL_ATTR_STRING, .s = "stretch"}};
    const struct ul_tensor *made = ul_gradient_evaluate(gradient, inputs, 4, changes, 3);
    return made != NULL && made->type.dims[1] == axis->out ? made : NULL;
}

/* The part of each row that is not zero, as wide for every row as for the widest. */
static ul_value_id band_product(struct ul_gradient *gradient, ul_value_id g, uint32_t axis,
                                const struct ul_tensor *matrix)
{
    int64_t rows = matrix->type.dims[0], columns = matrix->type.dims[1], width = 1;
    int64_t *first = UL_NEW_ARRAY(gradient->scratch, int64_t, (uint64_t)rows + 1);
    for (int64_t i = 0; i < rows; i++) {
        int64_t begin = columns, end = 0;
        for (int64_t o = 0; o < columns; o++)
            if (fabs(ul_tensor_get_float(matrix, (uint64_t)(i * columns + o))) > 0) {
                begin = o < begin ? o : begin;
                end = o + 1;
            }
        first[i] = begin < end ? begin : 0;
        width = end - first[i] > width ? end - first[i] : width;
    }
    const struct ul_type type = {
        .dtype = ul_gradient_type(gradient, g).dtype, .rank = 2, .dims = {rows, width}};
    double *weights = UL_NEW_ARRAY(gradient->scratch, double, (uint64_t)(rows * width) + 1);
    for (int64_t i = 0; i < rows; i++) {
        first[i] = first[i] > columns - width ? columns - width : first[i];
        for (int64_t t = 0; t < width; t++)
            weights[i * width + t] =
                ul_tensor_get_float(matrix, (uint64_t)(i * columns + first[i] + t));
    }
    const ul_value_id inputs[3] = {g, ul_build_ints(gradient->graph, "", (uint32_t)rows, first),
                                   ul_build_numbers(&gradient->build, &type, weights)};
    ul_node_id node = ul_build_node(&gradient->build, UL_OP_BandProduct, inputs, 3, 1);
    ul_node_set_int(gradient->graph, node, "axis", axis);
    return ul_build_infer(&gradient->build, node);
}

enum ul_status ul_gradient_resize(struct ul_gradient *gradient)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, 0));
    struct ul_resize_plan plan;
    ul_value_id g = ul_gradient_of(gradient, 0);
    ul_resize_plan_get(gradient->graph, ul_gradient_node(gradient), &plan);
    for (uint32_t d = 0; d < type.rank; d++) {
        if (plan.axes[d].is_kept)
            continue;
        if (plan.axes[d].out == 0)
            return ul_gradient_unsupported(gradient, "has an empty result");
        const struct ul_tensor *matrix = effects(gradient, &plan, d);
        if (matrix == NULL)
            return ul_gradient_unsupported(gradient, "has no gradient rule for its sizes; say "
                                                     "scales, or smaller ones");
        g = band_product(gradient, g, d, matrix);
    }
    ul_gradient_give(gradient, 0, g);
    return UL_OK;
}
