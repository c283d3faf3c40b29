/* SPDX-License-Identifier: Apache-2.0 */
/* Indexes as sums of loop variables with factors. */
#include "codegen/device/grid.h"
#include "ir/kernel_build.h"

static void add_index(const struct ul_kernel *kernel, const ul_ks *definitions,
                      struct ul_grid_index *to, ul_kx id, int64_t factor)
{
    static const int64_t far = (int64_t)1 << 40;
    const struct ul_kx_data *expr = &kernel->exprs[id];
    int64_t number, max;
    to->is_known = to->is_known && factor > -far && factor < far;
    if (!to->is_known)
        return;
    if (ul_kx_is_int(kernel, id, &number)) {
        to->is_known = number > -far && number < far &&
                       !__builtin_mul_overflow(number, factor, &number) &&
                       !__builtin_add_overflow(to->constant, number, &to->constant);
    } else if (expr->op == UL_KX_VAR && definitions[expr->var] != UL_NONE) {
        add_index(kernel, definitions, to, kernel->stmts[definitions[expr->var]].value, factor);
    } else if (expr->op == UL_KX_VAR) {
        const struct ul_kernel_var *var = &kernel->vars[expr->var];
        to->is_known = !var->is_mutable && var->low == 0 && to->count < UL_GRID_TERMS &&
                       var->high < far && !__builtin_mul_overflow(var->high, factor, &max);
        if (to->is_known) {
            to->vars[to->count] = expr->var;
            to->factors[to->count] = factor;
            to->highs[to->count++] = var->high;
        }
    } else if (expr->op == UL_KX_ADD || expr->op == UL_KX_SUB) {
        add_index(kernel, definitions, to, expr->a, factor);
        add_index(kernel, definitions, to, expr->b, expr->op == UL_KX_ADD ? factor : -factor);
    } else if (expr->op == UL_KX_MUL && ul_kx_is_int(kernel, expr->b, &number) && number > -far &&
               number < far && !__builtin_mul_overflow(factor, number, &number)) {
        add_index(kernel, definitions, to, expr->a, number);
    } else {
        to->is_known = false;
    }
}

struct ul_grid_index ul_grid_index_of(const struct ul_kernel *kernel, const ul_ks *definitions,
                                      ul_kx index)
{
    struct ul_grid_index affine = {.is_known = true};
    add_index(kernel, definitions, &affine, index, 1);
    UL_ASSERT(affine.count <= UL_GRID_TERMS);
    return affine;
}

const ul_ks *ul_grid_definitions(const struct ul_kernel *kernel, struct ul_arena *arena)
{
    ul_ks *definitions = UL_NEW_ARRAY(arena, ul_ks, kernel->var_count);
    for (uint32_t i = 0; i < kernel->var_count; i++)
        definitions[i] = UL_NONE;
    for (ul_ks id = 0; id < kernel->stmt_count; id++) {
        if (kernel->stmts[id].kind == UL_KS_LET)
            definitions[kernel->stmts[id].var] = id;
    }
    return definitions;
}
