/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of Fourier transforms: transforms the other way. The matrix of a transform is its own
 * transpose, and what is a sum of products with numbers on the unit circle goes back with their
 * conjugates. */
#include "ir/op_names.h"
#include "ir/ops/signal/signal.def"

#include "ir/ops/check.h"

enum { SIGNAL, DFT_LENGTH, DFT_AXIS };
enum { FRAME_STEP = 1, WINDOW, FRAME_LENGTH };

static bool is_set(const struct ul_gradient *gradient, const char *name)
{
    return ul_node_get_int(ul_gradient_node(gradient), name, 0) != 0;
}

/* The constant integer of an input. */
static int64_t get_int(const struct ul_gradient *gradient, uint32_t input, int64_t otherwise)
{
    ul_value_id value = ul_gradient_input(gradient, input);
    return value == UL_NONE ? otherwise
                            : ul_tensor_get_int(gradient->graph->values[value].tensor, 0);
}

static ul_value_id transform(struct ul_gradient *gradient, ul_value_id g, uint32_t axis,
                             bool inverse, bool onesided)
{
    const int64_t at = axis;
    const ul_value_id inputs[3] = {g, UL_NONE, ul_build_ints(gradient->graph, "", 1, &at)};
    ul_node_id node = ul_build_node(&gradient->build, UL_OP_DFT, inputs, 3, 1);
    ul_node_set_int(gradient->graph, node, "inverse", inverse);
    ul_node_set_int(gradient->graph, node, "onesided", onesided);
    return ul_build_infer(&gradient->build, node);
}

/* Pads with zeros at the end, or cuts, so that a dimension is `size` long. */
static ul_value_id resized(struct ul_gradient *gradient, ul_value_id g, uint32_t axis, int64_t size)
{
    int64_t none[UL_LIMIT_RANK] = {0}, end[UL_LIMIT_RANK] = {0};
    end[axis] = size - ul_gradient_type(gradient, g).dims[axis];
    return ul_build_pad(&gradient->build, g, none, end);
}

/* Goes back through a transform of `length` elements, of whose results only the first ones are
 * there. */
static ul_value_id transform_back(struct ul_gradient *gradient, ul_value_id g, uint32_t axis,
                                  int64_t length, bool inverse)
{
    g = transform(gradient, resized(gradient, g, axis, length), axis, !inverse, false);
    return ul_build_scale(&gradient->build, g, inverse ? 1 / (double)length : (double)length);
}

/* Goes back from a real result to half a spectrum: an element that also stands for its conjugate
 * counts twice. */
static ul_value_id half_back(struct ul_gradient *gradient, ul_value_id g, uint32_t axis,
                             int64_t length)
{
    struct ul_type type;
    g = transform(gradient, g, axis, false, true);
    type = ul_gradient_type(gradient, g);
    struct ul_type shape = {.dtype = type.dtype, .rank = type.rank - axis};
    for (uint32_t d = 0; d < shape.rank; d++)
        shape.dims[d] = d == 0 ? type.dims[axis] : 1;
    double *factors = UL_NEW_ARRAY(gradient->scratch, double, (uint64_t)type.dims[axis] + 1);
    for (int64_t i = 0; i < type.dims[axis]; i++)
        factors[i] = (i > 0 && 2 * i < length ? 2.0 : 1.0) / (double)length;
    return ul_build_binary(&gradient->build, UL_OP_Mul, g,
                           ul_build_numbers(&gradient->build, &shape, factors));
}

enum ul_status ul_gradient_dft(struct ul_gradient *gradient)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, SIGNAL));
    bool inverse = is_set(gradient, "inverse"), onesided = is_set(gradient, "onesided");
    uint32_t axis = ul_check_get_axis(get_int(gradient, DFT_AXIS, -2), type.rank);
    bool is_half = inverse && onesided;
    int64_t length = is_half ? 2 * (type.dims[axis] - 1) : type.dims[axis];
    length = get_int(gradient, DFT_LENGTH, length);
    ul_value_id g = ul_gradient_of(gradient, 0);
    g = is_half ? half_back(gradient, g, axis, length)
                : transform_back(gradient, g, axis, length, inverse);
    g = resized(gradient, g, axis, type.dims[axis]);
    ul_gradient_give(gradient, SIGNAL,
                     resized(gradient, g, type.rank - 1, type.dims[type.rank - 1]));
    return UL_OK;
}

/* Adds frames up where they were taken from. */
static ul_value_id add_frames(struct ul_gradient *gradient, ul_value_id frames, int64_t step,
                              const struct ul_type *signal)
{
    struct ul_type from = ul_gradient_type(gradient, frames), flat = *signal;
    int64_t count = from.dims[1] * from.dims[2];
    struct ul_type row = {.dtype = UL_I64, .rank = 3, .dims = {1, count, 1}};
    int64_t *places = UL_NEW_ARRAY(gradient->scratch, int64_t, (uint64_t)count + 1);
    for (int64_t i = 0; i < count; i++)
        places[i] = i / from.dims[2] * step + i % from.dims[2];
    flat.dims[1] = count;
    ul_value_id list = ul_build_ints(gradient->graph, "", (uint32_t)count, places);
    list =
        ul_build_expand(&gradient->build, ul_build_reshape_to(&gradient->build, list, &row), &flat);
    const ul_value_id inputs[3] = {ul_build_zeros(&gradient->build, signal), list,
                                   ul_build_reshape_to(&gradient->build, frames, &flat)};
    ul_node_id node = ul_build_node(&gradient->build, UL_OP_ScatterElements, inputs, 3, 1);
    ul_node_set_int(gradient->graph, node, "axis", 1);
    ul_node_set_string(gradient->graph, node, "reduction", "add");
    return ul_build_infer(&gradient->build, node);
}

enum ul_status ul_gradient_stft(struct ul_gradient *gradient)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, SIGNAL));
    ul_value_id window = ul_gradient_input(gradient, WINDOW);
    int64_t length = type.dims[1];
    if (window != UL_NONE)
        length = ul_gradient_type(gradient, window).dims[0];
    length = get_int(gradient, FRAME_LENGTH, length);
    int64_t step = get_int(gradient, FRAME_STEP, 1);
    ul_value_id g = transform_back(gradient, ul_gradient_of(gradient, 0), 2, length, false);
    g = resized(gradient, g, 3, type.dims[2]);
    if (window != UL_NONE) {
        const struct ul_type column = {.dtype = type.dtype, .rank = 2, .dims = {length, 1}};
        window = resized(gradient, window, 0, length);
        g = ul_build_binary(&gradient->build, UL_OP_Mul, g,
                            ul_build_reshape_to(&gradient->build, window, &column));
    }
    ul_gradient_give(gradient, SIGNAL, add_frames(gradient, g, step, &type));
    return UL_OK;
}

/* ---- Det ---- */

/* Takes all rows (or columns) but one, for each of them: dimension `axis` becomes two. */
static ul_value_id leave_out(struct ul_gradient *gradient, ul_value_id value, uint32_t axis,
                             int64_t size)
{
    const struct ul_type shape = {.dtype = UL_I64, .rank = 2, .dims = {size, size - 1}};
    int64_t count = size * (size - 1);
    int64_t *others = UL_NEW_ARRAY(gradient->scratch, int64_t, (uint64_t)count + 1);
    for (int64_t i = 0; i < count; i++) {
        int64_t left = i / (size - 1), at = i % (size - 1);
        others[i] = at < left ? at : at + 1;
    }
    ul_value_id list = ul_build_ints(gradient->graph, "", (uint32_t)count, others);
    const ul_value_id inputs[2] = {value, ul_build_reshape_to(&gradient->build, list, &shape)};
    ul_node_id node = ul_build_node(&gradient->build, UL_OP_Gather, inputs, 2, 1);
    ul_node_set_int(gradient->graph, node, "axis", axis);
    return ul_build_infer(&gradient->build, node);
}

/* The gradient of an element is the determinant of the other rows and columns, with its sign.
 * Unlike a formula with the inverse, it also holds for singular matrices. */
enum ul_status ul_gradient_det(struct ul_gradient *gradient)
{
    enum { MAX_SIZE = 16 };
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, 0)), kept = type;
    uint32_t rows = type.rank - 2;
    int64_t size = type.dims[rows], perm[UL_LIMIT_RANK];
    kept.dims[rows] = kept.dims[rows + 1] = 1;
    ul_value_id g = ul_build_reshape_to(&gradient->build, ul_gradient_of(gradient, 0), &kept);
    if (size > MAX_SIZE || type.rank + 2 > UL_LIMIT_RANK)
        return ul_gradient_unsupported(gradient,
                                       "has a gradient rule for matrices up to %d and "
                                       "tensors up to rank %d",
                                       MAX_SIZE, UL_LIMIT_RANK - 2);
    if (size > 1) {
        ul_value_id minors = ul_gradient_input(gradient, 0);
        minors = leave_out(gradient, leave_out(gradient, minors, rows + 1, size), rows, size);
        for (uint32_t d = 0; d < type.rank + 2; d++)
            perm[d] = d;
        perm[rows + 1] = rows + 2;
        perm[rows + 2] = rows + 1;
        minors = ul_build_unary(&gradient->build, UL_OP_Det,
                                ul_build_transpose(&gradient->build, minors, perm));
        const struct ul_type board = {.dtype = type.dtype, .rank = 2, .dims = {size, size}};
        double *signs = UL_NEW_ARRAY(gradient->scratch, double, (uint64_t)(size * size));
        for (int64_t i = 0; i < size * size; i++)
            signs[i] = (i / size + i % size) % 2 == 0 ? 1 : -1;
        minors = ul_build_binary(&gradient->build, UL_OP_Mul, minors,
                                 ul_build_numbers(&gradient->build, &board, signs));
        g = ul_build_binary(&gradient->build, UL_OP_Mul, minors, g);
    }
    ul_gradient_give(gradient, 0, g);
    return UL_OK;
}
