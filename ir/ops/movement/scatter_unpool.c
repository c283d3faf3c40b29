/* SPDX-License-Identifier: Apache-2.0 */
/* MaxUnpool: zeros, and each element at the place that MaxPool took it from. Places are counted in
 * the shape that the window attributes imply; a larger output_shape holds it in its first corner,
 * as in the reference. */
#include "ir/op_names.h"
#include "ir/ops/movement/scatter.def"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/lanes.h"

#include <string.h>

enum { X, PLACES, OUTPUT_SHAPE };

/* Gives the shape that was pooled; false when the attributes give none. */
static bool unpooled(const struct ul_node *node, const struct ul_type *x, struct ul_type *out)
{
    int64_t kernel[UL_LIMIT_RANK];
    int64_t strides[UL_LIMIT_RANK];
    int64_t pads[2 * UL_LIMIT_RANK];
    uint32_t count = x->rank - 2;
    if (!ul_check_read_ints(node, "kernel_shape", count, 0, 1, kernel) ||
        !ul_check_read_ints(node, "strides", count, 1, 1, strides) ||
        !ul_check_read_ints(node, "pads", 2 * count, 0, 0, pads))
        return false;
    *out = *x;
    for (uint32_t d = 0; d < count; d++) {
        int64_t steps = x->dims[d + 2] - 1;
        if (steps > UL_LIMIT_DIM / strides[d])
            return false;
        int64_t size = steps * strides[d] - pads[d] - pads[count + d] + kernel[d];
        if (size < 0)
            return false;
        out->dims[d + 2] = size;
    }
    return ul_type_in_limits(out);
}

static enum ul_status given_shape(struct ul_infer *infer, const struct ul_type *min)
{
    const int64_t *dims;
    uint32_t count;
    UL_TRY(ul_check_rank(infer, OUTPUT_SHAPE, 1, 1));
    UL_TRY(ul_infer_ints(infer, OUTPUT_SHAPE, &dims, &count));
    if (count != min->rank)
        return ul_infer_invalid(infer, "output_shape has %u entries for rank %u", (unsigned)count,
                                (unsigned)min->rank);
    for (uint32_t d = 0; d < count; d++) {
        if (dims[d] < min->dims[d] || dims[d] > UL_LIMIT_DIM)
            return ul_infer_invalid(infer, "output_shape[%u] is %lld, but the windows cover %lld",
                                    (unsigned)d, (long long)dims[d], (long long)min->dims[d]);
    }
    ul_infer_set(infer, 0, min->dtype, count, dims);
    return UL_OK;
}

enum ul_status ul_infer_max_unpool(struct ul_infer *infer)
{
    const struct ul_type *x = ul_infer_input(infer, X);
    UL_TRY(ul_check_dtype(infer, X, UL_CHECK_FLOATS));
    UL_TRY(ul_check_dtype(infer, PLACES, UL_CHECK_INDEXES));
    UL_TRY(ul_check_rank(infer, X, 3, UL_LIMIT_RANK));
    UL_TRY(ul_check_shape(infer, PLACES, x->rank, x->dims));
    struct ul_type out;
    if (!unpooled(infer->node, x, &out))
        return ul_infer_invalid(infer, "kernel_shape, strides and pads give no output shape");
    if (ul_type_elements(x) > 0 && ul_type_elements(&out) == 0)
        return ul_infer_invalid(infer, "the output would be empty, but the input is not");
    if (ul_infer_input(infer, OUTPUT_SHAPE) != NULL)
        return given_shape(infer, &out);
    ul_infer_set_type(infer, 0, &out);
    return UL_OK;
}

void ul_lower_max_unpool(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *info = ul_check_node(lower, node);
    const struct ul_type *x = ul_lower_input_type(lower, node, X);
    const struct ul_type *out = ul_lower_output_type(lower, node, 0);
    enum ul_dtype dtype = ul_compute_dtype(x->dtype);
    struct ul_type pooled;
    bool valid = unpooled(info, x, &pooled);
    UL_ASSERT(valid);
    ul_kx index[UL_LIMIT_RANK];
    ul_lower_open(lower, out->rank, out->dims, index);
    ul_lower_store(lower, info->outputs[0], index, ul_kx_float(k, dtype, 0.0));
    ul_lower_close(lower, out->rank);
    if (ul_type_elements(x) == 0)
        return;
    for (uint32_t d = 0; d < x->rank; d++)
        index[d] = ul_ks_for(k, x->dims[d], 0);
    ul_kx place = ul_lower_load(lower, info->inputs[PLACES], index);
    place = ul_ks_let(k, ul_kx_checked_index(k, place, (int64_t)ul_type_elements(&pooled), false));
    ul_kx target[UL_LIMIT_RANK];
    ul_kx rest = place;
    for (uint32_t d = x->rank; d-- > 0;) {
        target[d] = d == 0 ? rest : ul_kx_modi(k, rest, pooled.dims[d]);
        rest = d == 0 ? rest : ul_kx_divi(k, rest, pooled.dims[d]);
    }
    ul_lower_store(lower, info->outputs[0], target, ul_lower_load(lower, info->inputs[X], index));
    for (uint32_t d = 0; d < x->rank; d++)
        ul_ks_end(k);
}

/* Reads back from the places, which are counted in the shape that was pooled. */
enum ul_status ul_gradient_max_unpool(struct ul_gradient *gradient)
{
    struct ul_type x = ul_gradient_type(gradient, ul_gradient_input(gradient, X)), pooled;
    bool valid = unpooled(ul_gradient_node(gradient), &x, &pooled);
    UL_ASSERT(valid);
    ul_value_id g = ul_gradient_of(gradient, 0);
    for (uint32_t d = 0; d < x.rank; d++)
        if (ul_gradient_type(gradient, g).dims[d] != pooled.dims[d])
            g = ul_build_slice(&gradient->build, g, d, 0, pooled.dims[d]);
    struct ul_type flat = {
        .dtype = x.dtype, .rank = 1, .dims = {(int64_t)ul_type_elements(&pooled)}};
    g = ul_build_reshape_to(&gradient->build, g, &flat);
    ul_gradient_give(
        gradient, X,
        ul_build_binary(&gradient->build, UL_OP_Gather, g, ul_gradient_input(gradient, PLACES)));
    return UL_OK;
}
