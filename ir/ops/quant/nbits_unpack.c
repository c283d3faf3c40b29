/* SPDX-License-Identifier: Apache-2.0 */
/* Unpack: a constant of elements below 8 bits, from the bytes that ONNX stores. What reads it loads
 * a byte and takes its part of that, so the elements never lie in memory one by one. */
#include "ir/kernel_build.h"
#include "ir/ops/quant/nbits.h"

enum ul_status ul_infer_unpack(struct ul_infer *infer)
{
    const struct ul_type *x = ul_infer_input(infer, 0);
    uint32_t rank = 0;
    const int64_t *dims = ul_node_get_ints(infer->node, "shape", &rank);
    enum ul_dtype to;
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_BIT(UL_U8)));
    UL_TRY(ul_require_dtype(infer, "to", UL_DTYPE_NONE, UL_SET_FEW_BITS, &to));
    if (rank > UL_LIMIT_RANK)
        return ul_infer_invalid(infer, "shape has %u dimensions", (unsigned)rank);
    struct ul_type type = ul_type_make(to, rank, dims);
    if (!ul_type_in_limits(&type) || x->rank != 1 ||
        (uint64_t)x->dims[0] != ul_type_packed_bytes(&type))
        return ul_infer_invalid(infer, "its bytes are not those of the shape");
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

/* Finds where an element is: its byte, and which part of the byte. */
static ul_kx find_byte(struct ul_kernel *kernel, const struct ul_type *type, int64_t per,
                       const ul_kx *index, ul_kx *part)
{
    ul_kx flat = ul_kx_index_const(kernel, 0), last = flat;
    for (uint32_t d = 0; d < type->rank; d++) {
        last = type->dims[d] == 1 ? ul_kx_index_const(kernel, 0) : index[d];
        if (d + 1 < type->rank)
            flat = ul_kx_add(kernel, ul_kx_muli(kernel, flat, type->dims[d]), last);
    }
    int64_t count = type->rank == 0 ? 1 : type->dims[type->rank - 1];
    bool is_whole =
        count % per == 0; /* rows end with a byte: nothing to be divided but their own */
    ul_kx row = ul_kx_muli(kernel, flat, is_whole ? count / per : count);
    ul_kx at = is_whole ? last : ul_kx_add(kernel, row, last);
    *part = ul_kx_modi(kernel, at, per);
    at = ul_kx_divi(kernel, at, per);
    return is_whole ? ul_kx_add(kernel, row, at) : at;
}

ul_kx ul_map_unpack(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *type = ul_lower_output_type(lower, node, output);
    int64_t bits = ul_dtype_get(type->dtype)->bits;
    ul_kx part = UL_NONE, at = find_byte(kernel, type, 8 / bits, index, &part);
    UL_ASSERT(output == 0 && bits < 8);
    ul_kx byte = ul_lower_load(lower, ul_check_node(lower, node)->inputs[0], &at);
    ul_kx code = ul_nbits_part(kernel, byte, part, bits);
    return type->dtype == UL_F4E2M1 ? ul_nbits_e2m1(kernel, code) : code;
}
