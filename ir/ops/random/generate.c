/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that follow from shapes, coordinates and a few numbers. */
#include "ir/ops/movement/movement.def"

#include "ir/kernel_build.h"
#include "ir/ops/require.h"

#include <math.h>

/* A number of any dtype in the type it is computed in. */
static ul_kx number_of(struct ul_kernel *kernel, const struct ul_tensor *tensor)
{
    enum ul_dtype dtype = ul_compute_dtype(tensor->type.dtype);
    if (ul_dtype_get(dtype)->is_float)
        return ul_kx_float(kernel, dtype, ul_tensor_get_float(tensor, 0));
    return ul_kx_int(kernel, dtype, ul_tensor_get_int(tensor, 0));
}

static int64_t shape_bound(int64_t bound, uint32_t rank)
{
    bound += bound < 0 ? (int64_t)rank : 0;
    return bound < 0 ? 0 : bound > (int64_t)rank ? (int64_t)rank : bound;
}

enum ul_status ul_infer_shape(struct ul_infer *infer)
{
    const struct ul_type *input = ul_infer_input(infer, 0);
    int64_t begin = shape_bound(ul_node_get_int(infer->node, "start", 0), input->rank);
    int64_t end =
        shape_bound(ul_node_get_int(infer->node, "end", (int64_t)input->rank), input->rank);
    ul_infer_set_ints(infer, 0, 1, input->dims + begin, end > begin ? (uint32_t)(end - begin) : 0);
    return UL_OK;
}

enum ul_status ul_infer_size(struct ul_infer *infer)
{
    int64_t count = (int64_t)ul_type_elements(ul_infer_input(infer, 0));
    ul_infer_set_ints(infer, 0, 0, &count, 1);
    return UL_OK;
}

/* The attribute's tensor of one element, or NULL. */
static const struct ul_tensor *fill_value(const struct ul_node *node)
{
    const struct ul_attr *attr = ul_node_find_attr(node, "value");
    return attr != NULL && attr->kind == UL_ATTR_TENSOR ? attr->tensor : NULL;
}

enum ul_status ul_infer_constant_of_shape(struct ul_infer *infer)
{
    const struct ul_tensor *value = fill_value(infer->node);
    const int64_t *dims;
    uint32_t count;
    UL_TRY(ul_check_rank(infer, 0, 1, 1));
    UL_TRY(ul_infer_ints(infer, 0, &dims, &count));
    UL_TRY(ul_require_dims(infer, dims, count));
    if (value == NULL && ul_node_find_attr(infer->node, "value") != NULL)
        return ul_infer_invalid(infer, "value is not a tensor");
    if (value != NULL && (!ul_type_known(&value->type) || !ul_type_in_limits(&value->type) ||
                          ul_type_elements(&value->type) != 1))
        return ul_infer_invalid(infer, "value must have one element");
    if (value != NULL && (UL_SET_ANY >> value->type.dtype & 1u) == 0)
        return ul_infer_unsupported(infer, "value is of type %s",
                                    ul_dtype_get(value->type.dtype)->name);
    struct ul_type type = ul_type_make(value == NULL ? UL_F32 : value->type.dtype, count, dims);
    ul_infer_set_type(infer, 0, &type);
    if (!ul_type_in_limits(&type))
        return UL_OK; /* reported by the caller */
    unsigned char element[sizeof value->splat] = {0};
    if (value != NULL)
        ul_tensor_read(value, 0, 1, element);
    infer->graph->values[infer->node->outputs[0]].tensor =
        ul_tensor_new_splat(infer->graph->arena, &type, element);
    return UL_OK;
}

ul_kx ul_map_constant_of_shape(struct ul_lower *lower, ul_node_id node, uint32_t output,
                               const ul_kx *index)
{
    const struct ul_tensor *value = fill_value(&lower->graph->nodes[node]);
    (void)output;
    (void)index;
    return value == NULL ? ul_kx_float(lower->kernel, UL_F32, 0) : number_of(lower->kernel, value);
}

/* How many of the numbers begin, begin + step ... come before end. */
static bool count_ints(int64_t begin, int64_t end, int64_t step, uint64_t *count)
{
    bool up = step > 0;
    *count = 0;
    if (step == 0)
        return false;
    if (up ? begin >= end : begin <= end)
        return true;
    uint64_t span = up ? (uint64_t)end - (uint64_t)begin : (uint64_t)begin - (uint64_t)end;
    *count = (span - 1) / (up ? (uint64_t)step : 0 - (uint64_t)step) + 1;
    return true;
}

static bool count_floats(double begin, double end, double step, uint64_t *count)
{
    double whole = ceil((end - begin) / step);
    *count = 0;
    if (isnan(whole) || (step >= 0 && step <= 0) || whole > (double)UL_LIMIT_DIM)
        return false;
    if (whole > 0)
        *count = (uint64_t)whole;
    return true;
}

enum ul_status ul_infer_range(struct ul_infer *infer)
{
    const struct ul_tensor *numbers[3];
    enum ul_dtype dtype = ul_infer_input(infer, 0)->dtype;
    UL_TRY(ul_check_dtype(infer, 0, UL_SET_FLOAT | UL_CHECK_INDEXES | UL_CHECK_BIT(UL_I16)));
    for (uint32_t i = 0; i < 3; i++) {
        UL_TRY(ul_check_same_dtype(infer, 0, i));
        UL_TRY(ul_check_scalar(infer, i));
        UL_TRY(ul_require_constant(infer, i));
        numbers[i] = ul_infer_tensor(infer, i);
    }
    uint64_t count;
    bool good =
        ul_dtype_get(dtype)->is_float
            ? count_floats(ul_tensor_get_float(numbers[0], 0), ul_tensor_get_float(numbers[1], 0),
                           ul_tensor_get_float(numbers[2], 0), &count)
            : count_ints(ul_tensor_get_int(numbers[0], 0), ul_tensor_get_int(numbers[1], 0),
                         ul_tensor_get_int(numbers[2], 0), &count);
    if (!good || count > (uint64_t)UL_LIMIT_DIM)
        return ul_infer_invalid(infer, "start, limit and delta describe no range of a finite "
                                       "length below 2^40");
    int64_t dims[1] = {(int64_t)count};
    ul_infer_set(infer, 0, dtype, 1, dims);
    return UL_OK;
}

ul_kx ul_map_range(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    ul_kx begin = number_of(kernel, lower->graph->values[info->inputs[0]].tensor);
    ul_kx step = number_of(kernel, lower->graph->values[info->inputs[2]].tensor);
    (void)output;
    ul_kx along = ul_kx_cast(kernel, ul_kx_dtype(kernel, step), index[0]);
    return ul_kx_add(kernel, begin, ul_kx_mul(kernel, along, step));
}

enum ul_status ul_infer_one_hot(struct ul_infer *infer)
{
    static const int64_t pair[1] = {2};
    const struct ul_type *indices = ul_infer_input(infer, 0);
    uint32_t axis;
    UL_TRY(ul_check_dtype(infer, 0, UL_SET_NUMBER));
    UL_TRY(ul_check_dtype(infer, 1, UL_SET_NUMBER));
    UL_TRY(ul_check_scalar(infer, 1));
    UL_TRY(ul_require_constant(infer, 1));
    UL_TRY(ul_check_shape(infer, 2, 1, pair));
    if (indices->rank + 1 > UL_LIMIT_RANK)
        return ul_infer_unsupported(infer, "the output would have more than %u dimensions",
                                    (unsigned)UL_LIMIT_RANK);
    UL_TRY(
        ul_infer_axis(infer, ul_node_get_int(infer->node, "axis", -1), indices->rank + 1, &axis));
    int64_t depth = ul_tensor_get_int(ul_infer_tensor(infer, 1), 0);
    UL_TRY(ul_check_range(infer, "depth", depth, 0, UL_LIMIT_DIM));
    struct ul_type type = {.dtype = ul_infer_input(infer, 2)->dtype};
    for (uint32_t d = 0; d <= indices->rank; d++)
        type.dims[type.rank++] = d < axis    ? indices->dims[d]
                                 : d == axis ? depth
                                             : indices->dims[d - 1];
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

ul_kx ul_map_one_hot(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *type = ul_lower_output_type(lower, node, output);
    int64_t requested = ul_node_get_int(info, "axis", -1);
    uint32_t axis = (uint32_t)(requested < 0 ? requested + (int64_t)type->rank : requested);
    ul_kx at[UL_LIMIT_RANK];
    for (uint32_t d = 0; d + 1 < type->rank; d++)
        at[d] = index[d < axis ? d : d + 1];
    ul_kx hot = ul_kx_cast(kernel, UL_I64, ul_lower_load(lower, info->inputs[0], at));
    ul_kx zero = ul_kx_index_const(kernel, 0);
    ul_kx one = ul_kx_index_const(kernel, 1);
    ul_kx negative = ul_kx_binary(kernel, UL_KX_LT, hot, zero);
    hot = ul_kx_select(kernel, negative, ul_kx_addi(kernel, hot, type->dims[axis]), hot);
    return ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_EQ, hot, index[axis]),
                        ul_lower_load(lower, info->inputs[2], &one),
                        ul_lower_load(lower, info->inputs[2], &zero));
}

enum ul_status ul_infer_eye_like(struct ul_infer *infer)
{
    struct ul_type type = *ul_infer_input(infer, 0);
    UL_TRY(ul_check_rank(infer, 0, 2, 2));
    UL_TRY(ul_require_dtype(infer, "dtype", type.dtype, UL_SET_NUMBER | UL_SET_BOOL, &type.dtype));
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

ul_kx ul_map_eye_like(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    static const int64_t far = UL_LIMIT_DIM + 1; /* no diagonal of a matrix */
    struct ul_kernel *kernel = lower->kernel;
    enum ul_dtype dtype = ul_compute_dtype(ul_lower_output_type(lower, node, output)->dtype);
    int64_t k = ul_node_get_int(&lower->graph->nodes[node], "k", 0);
    k = k > far ? far : k < -far ? -far : k;
    ul_kx on = ul_kx_binary(kernel, UL_KX_EQ, ul_kx_addi(kernel, index[0], k), index[1]);
    return ul_kx_select(kernel, on, ul_kx_number(kernel, dtype, 1), ul_kx_number(kernel, dtype, 0));
}

enum ul_status ul_infer_trilu(struct ul_infer *infer)
{
    UL_TRY(ul_check_rank(infer, 0, 2, UL_LIMIT_RANK));
    UL_TRY(ul_check_dtype(infer, 1, UL_CHECK_INDEXES));
    UL_TRY(ul_check_scalar(infer, 1));
    return ul_infer_same(infer);
}

ul_kx ul_map_trilu(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *type = ul_lower_output_type(lower, node, output);
    ul_kx zero = ul_kx_index_const(kernel, 0);
    ul_kx k = zero;
    if (ul_lower_has_input(lower, node, 1))
        k = ul_kx_cast(kernel, UL_I64, ul_lower_load(lower, info->inputs[1], &zero));
    ul_kx above = ul_kx_sub(kernel, index[type->rank - 1], index[type->rank - 2]);
    ul_kx kept = ul_node_get_int(info, "upper", 1) != 0 ? ul_kx_binary(kernel, UL_KX_LE, k, above)
                                                        : ul_kx_binary(kernel, UL_KX_LE, above, k);
    return ul_kx_select(kernel, kept, ul_lower_load(lower, info->inputs[0], index),
                        ul_kx_number(kernel, ul_compute_dtype(type->dtype), 0));
}
