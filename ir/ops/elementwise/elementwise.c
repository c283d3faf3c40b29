/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules of elementwise operators. They take exactly the element types that ONNX gives each
 * operator, so that a kernel never meets one that it has no arithmetic for. */
#include "ir/ops/elementwise/elementwise.def"

#include "ir/ops/require.h"

static enum ul_status infer_set(struct ul_infer *infer, uint32_t set)
{
    UL_TRY(ul_require_inputs(infer));
    UL_TRY(ul_check_dtype(infer, 0, set));
    return ul_infer_elementwise(infer);
}

static enum ul_status infer_set_bool(struct ul_infer *infer, uint32_t set)
{
    UL_TRY(ul_check_dtype(infer, 0, set));
    return ul_infer_compare(infer);
}

enum ul_status ul_infer_float(struct ul_infer *infer)
{
    return infer_set(infer, UL_SET_FLOAT);
}

enum ul_status ul_infer_signed(struct ul_infer *infer)
{
    return infer_set(infer, UL_SET_FLOAT | UL_SET_SIGNED);
}

enum ul_status ul_infer_number(struct ul_infer *infer)
{
    return infer_set(infer, UL_SET_NUMBER);
}

enum ul_status ul_infer_bitwise(struct ul_infer *infer)
{
    return infer_set(infer, UL_SET_INTEGER);
}

enum ul_status ul_infer_float_test(struct ul_infer *infer)
{
    return infer_set_bool(infer, UL_SET_FLOAT | UL_SET_FLOAT8);
}

enum ul_status ul_infer_equal(struct ul_infer *infer)
{
    return infer_set_bool(infer, UL_SET_NUMBER | UL_SET_BOOL);
}

enum ul_status ul_infer_order(struct ul_infer *infer)
{
    return infer_set_bool(infer, UL_SET_NUMBER);
}

enum ul_status ul_infer_logic(struct ul_infer *infer)
{
    return infer_set_bool(infer, UL_SET_BOOL);
}

enum ul_status ul_infer_gelu(struct ul_infer *infer)
{
    static const char *const choices[] = {"none", "tanh", NULL};
    uint32_t choice;
    UL_TRY(ul_require_choice(infer, "approximate", choices, &choice));
    return ul_infer_float(infer);
}

enum ul_status ul_infer_prelu(struct ul_infer *infer)
{
    struct ul_type type;
    const struct ul_type *input = ul_infer_input(infer, 0);
    UL_TRY(ul_check_dtype(infer, 0, UL_SET_NUMBER));
    UL_TRY(ul_check_same_dtype(infer, 0, 1));
    if (!ul_broadcast(input, ul_infer_input(infer, 1), &type) || !ul_type_equal(&type, input))
        return ul_infer_invalid(infer, "the slope cannot be broadcast to the input's shape");
    return ul_infer_same(infer);
}

enum ul_status ul_infer_pow(struct ul_infer *infer)
{
    struct ul_type type;
    UL_TRY(ul_check_dtype(infer, 0, UL_SET_NUMBER));
    UL_TRY(ul_check_dtype(infer, 1, UL_SET_NUMBER));
    if (!ul_broadcast(ul_infer_input(infer, 0), ul_infer_input(infer, 1), &type))
        return ul_infer_invalid(infer, "the shapes of base and exponent cannot be broadcast");
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

enum ul_status ul_infer_clip(struct ul_infer *infer)
{
    UL_TRY(ul_check_dtype(infer, 0, UL_SET_NUMBER));
    for (uint32_t i = 1; i < 3; i++) {
        UL_TRY(ul_check_same_dtype(infer, 0, i));
        UL_TRY(ul_check_scalar(infer, i));
    }
    return ul_infer_same(infer);
}

enum ul_status ul_infer_bit_shift(struct ul_infer *infer)
{
    static const char *const choices[] = {"", "LEFT", "RIGHT", NULL};
    uint32_t choice;
    UL_TRY(ul_require_choice(infer, "direction", choices, &choice));
    if (choice == 0)
        return ul_infer_invalid(infer, "direction is missing");
    return infer_set(infer, UL_SET_INTEGER);
}

enum ul_status ul_infer_where(struct ul_infer *infer)
{
    struct ul_type type = *ul_infer_input(infer, 1);
    const struct ul_type *other = ul_infer_input(infer, 2);
    UL_TRY(ul_check_dtype(infer, 0, UL_SET_BOOL));
    UL_TRY(ul_check_dtype(infer, 1, UL_SET_ANY));
    if (type.dtype != other->dtype)
        return ul_infer_invalid(infer, "inputs 1 and 2 differ in type: %s and %s",
                                ul_dtype_get(type.dtype)->name, ul_dtype_get(other->dtype)->name);
    if (!ul_broadcast(&type, other, &type) || !ul_broadcast(&type, ul_infer_input(infer, 0), &type))
        return ul_infer_invalid(infer, "the shapes of the inputs cannot be broadcast");
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}
