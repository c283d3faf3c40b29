/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of whole numbers, found from the leaves up: enough for zero-points, which are elements of
 * a few bits, and for what is made from them. Names are followed to their one definition. */
#include "codegen/kernel/range.h"
#include "ir/kernel_build.h"

#include <math.h>

enum { MAX_DEPTH = 24 };

bool ul_range_stored(enum ul_dtype dtype, struct ul_integer_range *range)
{
    *range = (struct ul_integer_range){0};
    return ul_dtype_range(dtype, &range->low, &range->high);
}

/* Whether the type holds every whole number of the range. */
static bool holds(enum ul_dtype dtype, const struct ul_integer_range *range)
{
    static const int64_t exact_f32 = (int64_t)1 << 24;
    switch ((int)dtype) {
    case UL_F32:
        return range->low >= -exact_f32 && range->high <= exact_f32;
    case UL_U32:
    case UL_U64:
        return range->low >= 0 && range->high <= INT32_MAX;
    case UL_F64:
    case UL_I32:
    case UL_I64:
        return range->low >= INT32_MIN && range->high <= INT32_MAX;
    default: {
        struct ul_integer_range all;
        return ul_range_stored(dtype, &all) && range->low >= all.low && range->high <= all.high;
    }
    }
}

/* The range after a cast to a narrow integer. */
static bool wraps(enum ul_dtype dtype, struct ul_integer_range *range)
{
    return ul_dtype_get(dtype)->bits < 16 && ul_range_stored(dtype, range);
}

static bool number_range(const struct ul_kx_data *expr, struct ul_integer_range *range)
{
    double value = expr->op == UL_KX_INT ? (double)expr->imm_int : expr->imm_float;
    if (!(value >= (double)INT32_MIN && value <= (double)INT32_MAX) || floor(value) < value)
        return false;
    *range = (struct ul_integer_range){(int64_t)value, (int64_t)value};
    return true;
}

/* The definition of an immutable name, or UL_NONE. */
static ul_kx definition_of(const struct ul_kernel *kernel, uint32_t var)
{
    for (ul_ks s = 0; !kernel->vars[var].is_mutable && s < kernel->stmt_count; s++)
        if (kernel->stmts[s].kind == UL_KS_LET && kernel->stmts[s].var == var)
            return kernel->stmts[s].value;
    return UL_NONE;
}

static bool find(const struct ul_kernel *kernel, const struct ul_operand *operand, ul_kx x,
                 uint32_t depth, struct ul_integer_range *range)
{
    struct ul_integer_range a, b;
    if (x == UL_NONE || depth > MAX_DEPTH)
        return false;
    const struct ul_kx_data *expr = &kernel->exprs[x];
    switch ((int)expr->op) {
    case UL_KX_INT:
    case UL_KX_FLOAT:
        return number_range(expr, range);
    case UL_KX_VAR:
        if (operand != NULL && expr->var == operand->loaded)
            return ul_range_stored(ul_operand_dtype(kernel, operand), range);
        return find(kernel, operand, definition_of(kernel, expr->var), depth + 1, range);
    case UL_KX_LOAD:
        return ul_range_stored(kernel->buffers[expr->var].dtype, range);
    case UL_KX_CAST:
        return (find(kernel, operand, expr->a, depth + 1, range) && holds(expr->dtype, range)) ||
               wraps(expr->dtype, range);
    case UL_KX_ADD:
    case UL_KX_SUB:
        if (!find(kernel, operand, expr->a, depth + 1, &a) ||
            !find(kernel, operand, expr->b, depth + 1, &b))
            return false;
        *range = expr->op == UL_KX_ADD ? (struct ul_integer_range){a.low + b.low, a.high + b.high}
                                       : (struct ul_integer_range){a.low - b.high, a.high - b.low};
        return holds(expr->dtype, range);
    default:
        return false;
    }
}

bool ul_range_find(const struct ul_kernel *kernel, const struct ul_operand *operand, ul_kx x,
                   struct ul_integer_range *range)
{
    bool is_found = find(kernel, operand, x, 0, range);
    UL_ASSERT(!is_found || range->low <= range->high);
    return is_found;
}

static bool is_small_bound(const struct ul_kernel *kernel, ul_kx bound)
{
    static const int64_t far = (int64_t)1 << 22;
    struct ul_integer_range range;
    return ul_range_find(kernel, NULL, bound, &range) && range.low >= -far && range.high <= far;
}

bool ul_range_is_quantized(const struct ul_kernel *kernel, ul_kx x)
{
    UL_ASSERT(x < kernel->expr_count);
    const struct ul_kx_data *expr = &kernel->exprs[x];
    if (expr->op != UL_KX_CAST || expr->dtype != UL_I32)
        return false;
    const struct ul_kx_data *min = &kernel->exprs[expr->a];
    if (min->op != UL_KX_MIN || min->dtype != UL_F32)
        return false;
    const struct ul_kx_data *max = &kernel->exprs[min->a];
    return max->op == UL_KX_MAX && kernel->exprs[max->a].op == UL_KX_ROUND &&
           is_small_bound(kernel, max->b) && is_small_bound(kernel, min->b);
}
