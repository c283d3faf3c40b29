/* SPDX-License-Identifier: Apache-2.0 */
/* Finds loops that look up neighbouring bytes in a table of 256.
 *
 * Problem: no compiler vectorizes a load whose place another load gives, but machines can look up
 * the bytes of a whole vector at once. Method: find the form that ir/ops/quant/quant_lookup.c gives
 * such a loop, and clamp its index to the table's ends whether that changes anything or not. Left
 * undone: loops that also compute with the result. */
#include "codegen/kernel/lookup.h"
#include "ir/kernel_build.h"

enum { TABLE_SIZE = 256 };

/* What the loop's body binds to the variable; UL_NONE: nothing. */
static ul_kx bound_to(const struct ul_kernel *kernel, const struct ul_ks_data *loop, uint32_t var)
{
    for (ul_ks id = loop->body; id != UL_NONE; id = kernel->stmts[id].next)
        if (kernel->stmts[id].kind == UL_KS_LET && kernel->stmts[id].var == var)
            return kernel->stmts[id].value;
    return UL_NONE;
}

/* The expression under names and casts between integers; these keep bytes that are stored as they
 * were loaded. */
static const struct ul_kx_data *strip(const struct ul_kernel *kernel, const struct ul_ks_data *loop,
                                      ul_kx id)
{
    for (;;) {
        const struct ul_kx_data *expr = &kernel->exprs[id];
        ul_kx inner = UL_NONE;
        if (expr->op == UL_KX_VAR)
            inner = bound_to(kernel, loop, expr->var);
        else if (expr->op == UL_KX_CAST && ul_dtype_get(expr->dtype)->is_integer &&
                 ul_dtype_get(ul_kx_dtype(kernel, expr->a))->is_integer)
            inner = expr->a;
        if (inner == UL_NONE)
            return expr;
        id = inner;
    }
}

/* Whether elements are contiguous, and the index depends only on names of outer loops and this
 * loop's variable. */
static bool moves_by_one(const struct ul_kernel *kernel, const struct ul_ks_data *loop, ul_kx index)
{
    int64_t factor;
    for (ul_ks id = loop->body; id != UL_NONE; id = kernel->stmts[id].next)
        if (kernel->stmts[id].kind == UL_KS_LET &&
            (!ul_kx_factor(kernel, index, kernel->stmts[id].var, &factor) || factor != 0))
            return false;
    return ul_kx_factor(kernel, index, loop->var, &factor) && factor == 1;
}

/* min(max(x + shift, 0), 255) -> x and shift */
static const struct ul_kx_data *strip_clamp(const struct ul_kernel *kernel,
                                            const struct ul_ks_data *loop, ul_kx id, int64_t *shift)
{
    const struct ul_kx_data *min = &kernel->exprs[id];
    const struct ul_kx_data *max = min->op == UL_KX_MIN ? &kernel->exprs[min->a] : NULL;
    int64_t low, high;
    if (max == NULL || max->op != UL_KX_MAX || !ul_kx_is_int(kernel, min->b, &high) ||
        !ul_kx_is_int(kernel, max->b, &low) || low != 0 || high != TABLE_SIZE - 1)
        return NULL;
    const struct ul_kx_data *sum = &kernel->exprs[max->a];
    *shift = 0;
    if (sum->op == UL_KX_ADD && ul_kx_is_int(kernel, sum->b, shift))
        return strip(kernel, loop, sum->a);
    return strip(kernel, loop, max->a);
}

/* The only store, which must come last, after names. */
static const struct ul_ks_data *only_store(const struct ul_kernel *kernel,
                                           const struct ul_ks_data *loop)
{
    ul_ks id = loop->body;
    while (id != UL_NONE && kernel->stmts[id].kind == UL_KS_LET)
        id = kernel->stmts[id].next;
    bool is_only =
        id != UL_NONE && kernel->stmts[id].kind == UL_KS_STORE && kernel->stmts[id].next == UL_NONE;
    return is_only ? &kernel->stmts[id] : NULL;
}

bool ul_lookup_find(const struct ul_kernel *kernel, const struct ul_ks_data *loop,
                    struct ul_lookup *lookup)
{
    UL_ASSERT(loop->kind == UL_KS_FOR);
    const struct ul_ks_data *store = only_store(kernel, loop);
    int64_t shift;
    if (store == NULL || (loop->flags & UL_FOR_PARALLEL) == 0 ||
        !moves_by_one(kernel, loop, store->index))
        return false;
    const struct ul_kx_data *looked = strip(kernel, loop, store->value);
    const struct ul_buffer *to = &kernel->buffers[store->buffer];
    if (looked->op != UL_KX_LOAD || kernel->buffers[looked->var].dtype != to->dtype ||
        kernel->buffers[looked->var].element_count != TABLE_SIZE ||
        ul_dtype_get(to->dtype)->size_bytes != 1 || !ul_dtype_get(to->dtype)->is_integer)
        return false;
    const struct ul_kx_data *from = strip_clamp(kernel, loop, looked->a, &shift);
    if (from == NULL || from->op != UL_KX_LOAD || !moves_by_one(kernel, loop, from->a))
        return false;
    enum ul_dtype dtype = kernel->buffers[from->var].dtype;
    *lookup = (struct ul_lookup){.table = looked->var,
                                 .from = from->var,
                                 .to = store->buffer,
                                 .from_index = from->a,
                                 .to_index = store->index,
                                 .is_signed = dtype == UL_I8};
    UL_ASSERT(lookup->table != lookup->to);
    return (dtype == UL_U8 && shift == 0) || (dtype == UL_I8 && shift == TABLE_SIZE / 2);
}
