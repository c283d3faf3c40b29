/* SPDX-License-Identifier: Apache-2.0 */
/* Cast, CastLike and BitCast.
 *
 * ONNX leaves floats out of an integer's range undefined; here they saturate, NaN gives 0, and
 * only integers below 8 bits wrap, as ONNX's node tests have it. Integers wrap. Floats are rounded
 * to nearest even, once, also when the kernel goes on computing in f32. */
#include "ir/ops/elementwise/elementwise.def"

#include "ir/kernel_build.h"
#include "ir/ops/require.h"

static const char *const round_modes[] = {"up", "down", "nearest", NULL};

enum { UP, DOWN, NEAREST }; /* to an f8e8m0 */

static enum ul_status infer_cast_to(struct ul_infer *infer, enum ul_dtype dtype)
{
    struct ul_type type = *ul_infer_input(infer, 0);
    uint32_t mode;
    UL_TRY(ul_check_dtype(infer, 0, UL_SET_ANY));
    if (dtype == UL_F8E8M0)
        UL_TRY(ul_require_choice(infer, "round_mode", round_modes, &mode));
    type.dtype = dtype;
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

enum ul_status ul_infer_cast(struct ul_infer *infer)
{
    enum ul_dtype to;
    UL_TRY(ul_require_dtype(infer, "to", UL_DTYPE_NONE, UL_SET_ANY, &to));
    return infer_cast_to(infer, to);
}

enum ul_status ul_infer_cast_like(struct ul_infer *infer)
{
    UL_TRY(ul_check_dtype(infer, 1, UL_SET_ANY));
    return infer_cast_to(infer, ul_infer_input(infer, 1)->dtype);
}

static ul_kx u32_op(struct ul_kernel *kernel, enum ul_kx_op op, ul_kx a, int64_t b)
{
    return ul_kx_binary(kernel, op, a, ul_kx_int(kernel, UL_U32, b));
}

/* Casts towards zero, then takes the low bits, sign-extended where the type is signed. */
static ul_kx cast_to_few_bits(struct ul_kernel *kernel, const struct ul_dtype_info *to, ul_kx x)
{
    ul_kx bits = ul_kx_cast(kernel, UL_I32, x);
    int64_t mask = ((int64_t)1 << to->bits) - 1;
    bits = ul_kx_binary(kernel, UL_KX_AND, bits, ul_kx_int(kernel, UL_I32, mask));
    if (!to->is_signed)
        return ul_kx_cast(kernel, UL_U32, bits);
    ul_kx sign = ul_kx_int(kernel, UL_I32, (mask >> 1) + 1);
    bits = ul_kx_binary(kernel, UL_KX_XOR, bits, sign);
    return ul_kx_binary(kernel, UL_KX_SUB, bits, sign);
}

/* Gives a power of two next to x, the one towards zero or the nearest, through the bits of an f32.
 * An f8e8m0 holds it exactly; its smallest, 2^-127, is subnormal in f32. */
static ul_kx to_power_of_two(struct ul_kernel *kernel, bool nearest, ul_kx x)
{
    ul_kx bits = u32_op(kernel, UL_KX_AND, ul_kx_bitcast(kernel, UL_U32, x), 0x7FFFFFFF);
    ul_kx is_small = u32_op(kernel, UL_KX_LT, bits, 0x800000);
    ul_kx is_number = u32_op(kernel, UL_KX_LT, bits, 0x7F800000);
    ul_kx small = bits, large = bits;
    if (nearest) {
        small = u32_op(kernel, UL_KX_ADD, small, 0x200000);
        large = u32_op(kernel, UL_KX_ADD, large, 0x400000);
    }
    small = u32_op(kernel, UL_KX_AND, small, 0xC00000);
    large = u32_op(kernel, UL_KX_AND, large, 0x7F800000);
    ul_kx power = ul_kx_bitcast(kernel, UL_F32, ul_kx_select(kernel, is_small, small, large));
    return ul_kx_select(kernel, is_number, power, x);
}

static ul_kx build_cast(struct ul_kernel *kernel, enum ul_dtype dtype, bool saturate, ul_kx x)
{
    enum ul_dtype compute = ul_compute_dtype(dtype);
    const struct ul_dtype_info *info = ul_dtype_get(dtype);
    if (info->is_integer && info->bits < 8)
        return cast_to_few_bits(kernel, info, x);
    if (dtype == compute)
        return ul_kx_cast(kernel, dtype, x);
    if (compute != UL_F32)
        return ul_kx_cast(kernel, compute, ul_kx_cast(kernel, dtype, x));
    bool small = !ul_dtype_is_half(dtype);
    return ul_kx_round_to(kernel, dtype, saturate && small, ul_kx_cast(kernel, UL_F32, x));
}

ul_kx ul_map_cast(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    bool saturate = ul_node_get_int(info, "saturate", 1) != 0;
    const struct ul_type *from = ul_lower_input_type(lower, node, 0);
    const struct ul_type *to = ul_lower_output_type(lower, node, output);
    ul_kx x = ul_lower_load(lower, info->inputs[0], index);
    if (from->dtype == to->dtype)
        return x;
    if (to->dtype == UL_F8E8M0) {
        uint32_t mode = ul_node_choice(info, "round_mode", round_modes);
        x = ul_kx_cast(lower->kernel, UL_F32, x);
        x = mode == UP ? x : to_power_of_two(lower->kernel, mode == NEAREST, x);
    }
    return build_cast(lower->kernel, to->dtype, saturate, x);
}

enum ul_status ul_infer_bit_cast(struct ul_infer *infer)
{
    static const uint32_t known = UL_SET_NUMBER | UL_SET_BOOL;
    struct ul_type type = *ul_infer_input(infer, 0);
    enum ul_dtype to;
    UL_TRY(ul_check_dtype(infer, 0, known));
    UL_TRY(ul_require_dtype(infer, "to", UL_DTYPE_NONE, known, &to));
    const struct ul_dtype_info *from_info = ul_dtype_get(type.dtype);
    const struct ul_dtype_info *to_info = ul_dtype_get(to);
    if (from_info->size_bytes != to_info->size_bytes)
        return ul_infer_invalid(infer, "%s and %s differ in size", from_info->name, to_info->name);
    type.dtype = to;
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

/* Gives the 16 bits of an f16, from the f32 that holds its value exactly. */
static ul_kx f16_bits(struct ul_kernel *kernel, ul_kx x)
{
    ul_kx bits = ul_kx_bitcast(kernel, UL_U32, x);
    ul_kx sign = u32_op(kernel, UL_KX_AND, u32_op(kernel, UL_KX_SHR, bits, 16), 0x8000);
    ul_kx magnitude = u32_op(kernel, UL_KX_AND, bits, 0x7FFFFFFF);
    ul_kx upper = u32_op(kernel, UL_KX_SHR, magnitude, 13);
    /* Exponent bias 127 to 15; infinity and NaN keep their mantissa; below 2^-14 the value is a
     * whole number of 2^-24. */
    ul_kx normal = u32_op(kernel, UL_KX_SUB, upper, 112 << 10);
    ul_kx special = u32_op(kernel, UL_KX_OR, u32_op(kernel, UL_KX_AND, upper, 0x3FF), 0x7C00);
    ul_kx scaled = ul_kx_mul(kernel, ul_kx_bitcast(kernel, UL_F32, magnitude),
                             ul_kx_float(kernel, UL_F32, 0x1p24));
    ul_kx tiny = u32_op(kernel, UL_KX_LT, magnitude, 0x38800000);
    ul_kx half =
        ul_kx_select(kernel, u32_op(kernel, UL_KX_LT, magnitude, 0x7F800000), normal, special);
    half = ul_kx_select(kernel, tiny, ul_kx_cast(kernel, UL_U32, scaled), half);
    return ul_kx_binary(kernel, UL_KX_OR, sign, half);
}

static ul_kx f16_from_bits(struct ul_kernel *kernel, ul_kx bits)
{
    ul_kx sign = u32_op(kernel, UL_KX_SHL, u32_op(kernel, UL_KX_AND, bits, 0x8000), 16);
    ul_kx upper = u32_op(kernel, UL_KX_SHL, u32_op(kernel, UL_KX_AND, bits, 0x7FFF), 13);
    ul_kx special = u32_op(kernel, UL_KX_OR, upper, 0x7F800000);
    ul_kx scaled = ul_kx_mul(kernel, ul_kx_bitcast(kernel, UL_F32, upper),
                             ul_kx_float(kernel, UL_F32, 0x1p112));
    ul_kx magnitude = ul_kx_select(kernel, u32_op(kernel, UL_KX_LT, upper, 0x7C00 << 13),
                                   ul_kx_bitcast(kernel, UL_U32, scaled), special);
    return ul_kx_bitcast(kernel, UL_F32, ul_kx_binary(kernel, UL_KX_OR, sign, magnitude));
}

/* Only the type of the other input counts: it may have any shape. */
bool ul_split_rule_cast_like(struct ul_split_rule *split)
{
    ul_split_rule_read_broadcast(split, 0);
    return true;
}

/* Casts two bytes, through their bits as a u32. */
static ul_kx bit_cast_16(struct ul_kernel *kernel, enum ul_dtype from, enum ul_dtype to, ul_kx x)
{
    if (from == UL_F16)
        x = f16_bits(kernel, x);
    else if (from == UL_BF16)
        x = u32_op(kernel, UL_KX_SHR, ul_kx_bitcast(kernel, UL_U32, x), 16);
    x = u32_op(kernel, UL_KX_AND, ul_kx_cast(kernel, UL_U32, x), 0xFFFF);
    if (to == UL_F16)
        return f16_from_bits(kernel, x);
    if (to == UL_BF16)
        return ul_kx_bitcast(kernel, UL_F32, u32_op(kernel, UL_KX_SHL, x, 16));
    return build_cast(kernel, to, true, x);
}

ul_kx ul_map_bit_cast(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    enum ul_dtype from = ul_lower_input_type(lower, node, 0)->dtype;
    enum ul_dtype to = ul_lower_output_type(lower, node, output)->dtype;
    ul_kx x = ul_lower_load(lower, lower->graph->nodes[node].inputs[0], index);
    if (from == to)
        return x;
    if (ul_dtype_get(to)->size_bytes >= 4)
        return ul_kx_bitcast(lower->kernel, to, x);
    if (ul_dtype_get(to)->size_bytes == 2)
        return bit_cast_16(lower->kernel, from, to, x);
    return build_cast(lower->kernel, to, true, x);
}
