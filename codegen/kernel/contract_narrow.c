/* SPDX-License-Identifier: Apache-2.0 */
/* Finds contractions that multiply narrow integers, and their widths.
 *
 * Problem: an i32 sum of products of bytes needs neither operands nor multipliers of 32 bits.
 * Method: an operand that is stored in 8 bits and used unchanged keeps 8 bits; one whose transform,
 * such as subtracting a zero-point, stays within 16 bits by the ranges of its parts takes 16. Both
 * take the wider of the two (runtime/lib/ul_contract_int.h). The schedule may limit this: windows,
 * streamed rows and dot products take only bytes as they are stored. Packed integers of 2 and 4
 * bits are unpacked into panels of bytes, with their zero-point subtracted where there is one. Left
 * undone: sums in 64 bits, whose products are formed in 64. */
#include "codegen/kernel/contract_internal.h"
#include "codegen/kernel/range.h"
#include "ir/kernel_build.h"

/* Whether elements are used as they are stored, apart from a change of type. */
static bool is_as_stored(const struct ul_kernel *kernel, const struct ul_operand *operand)
{
    if (operand->transform == UL_NONE)
        return true;
    const struct ul_kx_data *expr = &kernel->exprs[operand->transform];
    if (expr->op == UL_KX_CAST && (expr->dtype == UL_I32 || expr->dtype == UL_U32))
        expr = &kernel->exprs[expr->a];
    return expr->op == UL_KX_VAR && expr->var == operand->loaded;
}

/* The operand's width; UL_CONTRACT_WIDE: more than 16 bits. */
static enum ul_contract_width width_of(const struct ul_kernel *kernel,
                                       const struct ul_operand *operand)
{
    struct ul_integer_range range;
    enum ul_dtype stored = ul_operand_dtype(kernel, operand);
    bool as_stored = is_as_stored(kernel, operand);
    bool is_known = as_stored ? ul_range_stored(stored, &range)
                              : ul_range_find(kernel, operand, operand->transform, &range);
    if (!is_known)
        return UL_CONTRACT_WIDE;
    if (operand->bound_count > 0) {
        UL_ASSERT(operand->outside >= (double)INT32_MIN && operand->outside <= (double)INT32_MAX);
        int64_t outside = (int64_t)operand->outside;
        range.low = outside < range.low ? outside : range.low;
        range.high = outside > range.high ? outside : range.high;
    }
    bool is_byte = stored == UL_U8 ? range.low >= 0 && range.high <= UINT8_MAX
                                   : range.low >= INT8_MIN && range.high <= INT8_MAX;
    if (operand->packed != UL_DTYPE_NONE && is_byte)
        return UL_CONTRACT_I8; /* a panel has it in any case */
    if (as_stored && is_byte && (stored == UL_U8 || stored == UL_I8))
        return stored == UL_U8 ? UL_CONTRACT_U8 : UL_CONTRACT_I8;
    return range.low >= INT16_MIN && range.high <= INT16_MAX ? UL_CONTRACT_I16 : UL_CONTRACT_WIDE;
}

void ul_contract_narrow_find(struct ul_contract_plan *plan, const struct ul_kernel *kernel)
{
    const struct ul_contraction *c = plan->contraction;
    plan->a_width = plan->b_width = UL_CONTRACT_WIDE;
    if (c->acc_dtype != UL_I32 && c->acc_dtype != UL_U32)
        return;
    enum ul_contract_width a = width_of(kernel, &c->a), b = width_of(kernel, &c->b);
    if (a == UL_CONTRACT_WIDE || b == UL_CONTRACT_WIDE)
        return;
    if (a == UL_CONTRACT_I16 || b == UL_CONTRACT_I16)
        a = b = UL_CONTRACT_I16;
    plan->a_width = a;
    plan->b_width = b;
}

bool ul_contract_is_bytes(const struct ul_contract_plan *plan)
{
    return plan->a_width == UL_CONTRACT_U8 || plan->a_width == UL_CONTRACT_I8;
}

bool ul_contract_stores_bytes(const struct ul_contract_plan *plan, const struct ul_operand *operand)
{
    return ul_contract_is_bytes(plan) && operand->packed == UL_DTYPE_NONE;
}

bool ul_contract_closes_rows(const struct ul_contract_plan *plan)
{
    return plan->schedule == UL_CONTRACT_WINDOW && ul_contract_is_bytes(plan) &&
           plan->out_n.count == 1;
}

static const char *type_of(enum ul_contract_width width, const char *wide)
{
    switch (width) {
    case UL_CONTRACT_U8:
        return "uint8_t";
    case UL_CONTRACT_I8:
        return "int8_t";
    case UL_CONTRACT_I16:
        return "int16_t";
    case UL_CONTRACT_WIDE:
        break;
    }
    return wide;
}

void ul_contract_narrow_set(struct ul_contract_plan *plan, bool is_narrow)
{
    static const char *const bytes[2][2] = {{"u8u8", "u8i8"}, {"i8u8", "i8i8"}};
    if (!is_narrow)
        plan->a_width = plan->b_width = UL_CONTRACT_WIDE;
    plan->products = plan->tag;
    plan->group = 1;
    plan->packed_bytes = plan->element_bytes;
    if (plan->a_width == UL_CONTRACT_I16) {
        plan->products = "i16";
        plan->group = UL_CONTRACT_GROUP_BYTES / 2;
        plan->packed_bytes = 2;
    } else if (plan->a_width != UL_CONTRACT_WIDE) {
        plan->products = bytes[plan->a_width == UL_CONTRACT_I8][plan->b_width == UL_CONTRACT_I8];
        plan->group = UL_CONTRACT_GROUP_BYTES;
        plan->packed_bytes = 1;
    }
    plan->a_type = type_of(plan->a_width, plan->type);
    plan->b_type = type_of(plan->b_width, plan->type);
    UL_ASSERT((plan->a_width == UL_CONTRACT_WIDE) == (plan->b_width == UL_CONTRACT_WIDE));
}
