/* SPDX-License-Identifier: Apache-2.0 */
/* Truths packed 8 to a byte, and unpacked. Where the packed dimension is not the innermost in
 * memory, both are loops over whole rows with the same bit of each byte. */
#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/training/training.def"

enum { BITS = 8 };

/* Reads the dimension that is packed, which must be one of `rank` dimensions. */
static enum ul_status read_axis(const struct ul_infer *infer, uint32_t rank, int64_t *axis)
{
    *axis = ul_node_get_int(infer->node, "axis", -1);
    if (*axis < 0 || *axis >= (int64_t)rank)
        return ul_infer_invalid(infer, "axis %lld of %u dimensions", (long long)*axis,
                                (unsigned)rank);
    return UL_OK;
}

static int64_t byte_count(int64_t size)
{
    return size / BITS + (size % BITS != 0);
}

enum ul_status ul_infer_pack_bits(struct ul_infer *infer)
{
    struct ul_type type = *ul_infer_input(infer, 0);
    int64_t axis;
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_BIT(UL_BOOL)));
    UL_TRY(read_axis(infer, type.rank, &axis));
    type.dims[axis] = byte_count(type.dims[axis]);
    ul_infer_set(infer, 0, UL_U8, type.rank, type.dims);
    return UL_OK;
}

enum ul_status ul_infer_unpack_bits(struct ul_infer *infer)
{
    struct ul_type type = *ul_infer_input(infer, 0);
    int64_t size = ul_node_get_int(infer->node, "size", -1), axis;
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_BIT(UL_U8)));
    UL_TRY(read_axis(infer, type.rank, &axis));
    if (size < 0 || byte_count(size) != type.dims[axis])
        return ul_infer_invalid(infer, "%lld bits do not take %lld bytes", (long long)size,
                                (long long)type.dims[axis]);
    type.dims[axis] = size;
    ul_infer_set(infer, 0, UL_BOOL, type.rank, type.dims);
    return UL_OK;
}

/* Bits after the last one repeat the last. */
ul_kx ul_map_pack_bits(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_node *info = ul_check_node(lower, node);
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    int64_t axis = ul_node_get_int(info, "axis", -1);
    enum ul_dtype dtype = ul_compute_dtype(UL_U8);
    ul_kx at[UL_LIMIT_RANK], byte = UL_NONE;
    UL_ASSERT(output == 0 && axis >= 0 && axis < (int64_t)type->rank);
    for (uint32_t d = 0; d < type->rank; d++)
        at[d] = index[d];
    for (int64_t bit = 0; bit < BITS; bit++) {
        ul_kx place = ul_kx_addi(kernel, ul_kx_muli(kernel, index[axis], BITS), bit);
        if (type->dims[axis] % BITS != 0)
            place = ul_kx_clamp(kernel, place, type->dims[axis] - 1);
        at[axis] = place;
        ul_kx truth = ul_lower_load(lower, info->inputs[0], at);
        ul_kx set = ul_kx_select(kernel, truth, ul_kx_int(kernel, dtype, (int64_t)1 << bit),
                                 ul_kx_int(kernel, dtype, 0));
        byte = byte == UL_NONE ? set : ul_kx_binary(kernel, UL_KX_OR, byte, set);
    }
    return byte;
}

ul_kx ul_map_unpack_bits(struct ul_lower *lower, ul_node_id node, uint32_t output,
                         const ul_kx *index)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_node *info = ul_check_node(lower, node);
    uint32_t rank = ul_lower_input_type(lower, node, 0)->rank;
    int64_t axis = ul_node_get_int(info, "axis", -1);
    ul_kx at[UL_LIMIT_RANK];
    UL_ASSERT(output == 0 && axis >= 0 && axis < (int64_t)rank);
    for (uint32_t d = 0; d < rank; d++)
        at[d] = index[d];
    at[axis] = ul_kx_divi(kernel, index[axis], BITS);
    ul_kx byte = ul_lower_load(lower, info->inputs[0], at);
    enum ul_dtype dtype = ul_kx_dtype(kernel, byte);
    ul_kx bit = ul_kx_cast(kernel, dtype, ul_kx_modi(kernel, index[axis], BITS));
    ul_kx mask = ul_kx_binary(kernel, UL_KX_SHL, ul_kx_int(kernel, dtype, 1), bit);
    ul_kx masked = ul_kx_binary(kernel, UL_KX_AND, byte, mask);
    return ul_kx_binary(kernel, UL_KX_NE, masked, ul_kx_int(kernel, dtype, 0));
}
