/* SPDX-License-Identifier: Apache-2.0 */
/* Naming what an expression uses more than once.
 *
 * Problem: expressions are hash-consed graphs, but they are printed as nested text, where a part
 * that is used twice is written (and, unless the C compiler notices, computed) twice; nested
 * sharing grows exponentially. Method: before a value is bound by a LET, every float or narrow
 * integer part of it with two uses or more is bound by a LET of its own, operands first. Where
 * there can be no LET, products among those parts are marked as rounded: a name would have rounded
 * them. Left undone: i64 parts are indexes, which in-place analysis compares as expressions, and
 * bools are conditions, which vectorise better inside their select. */
#include "ir/kernel_build.h"

#include <string.h>

/* Makes room for the marks of all expressions; old marks count as stale by their epoch. */
static void marks_grow(struct ul_kernel *kernel)
{
    if (kernel->expr_count <= kernel->mark_capacity)
        return;
    uint32_t capacity = kernel->expr_capacity;
    struct ul_kx_mark *marks = UL_NEW_ARRAY(kernel->arena, struct ul_kx_mark, capacity);
    if (kernel->mark_capacity > 0)
        memcpy(marks, kernel->marks, kernel->mark_capacity * sizeof *marks);
    kernel->marks = marks;
    kernel->mark_capacity = capacity;
}

/* Counts the operands that can be named: that of a load is an index. */
static uint32_t operand_count(const struct ul_kx_data *expr)
{
    return expr->op == UL_KX_LOAD ? 0 : ul_kx_operand_count(expr->op);
}

static bool is_nameable(const struct ul_kx_data *expr)
{
    return ul_kx_operand_count(expr->op) > 0 && expr->dtype != UL_I64 && expr->dtype != UL_BOOL;
}

/* Counts the uses of everything under `id`; true when some part would get a name. */
static bool count_uses(struct ul_kernel *kernel, ul_kx id)
{
    struct ul_kx_mark *mark = &kernel->marks[id];
    const struct ul_kx_data *expr = &kernel->exprs[id];
    if (mark->epoch == kernel->mark_epoch) {
        mark->uses++;
        return is_nameable(expr);
    }
    *mark = (struct ul_kx_mark){.epoch = kernel->mark_epoch, .uses = 1, .as = UL_NONE};
    const ul_kx operands[3] = {expr->a, expr->b, expr->c};
    bool found = false;
    for (uint32_t i = 0, count = operand_count(expr); i < count; i++)
        found = count_uses(kernel, operands[i]) || found;
    return found;
}

/* The same expression over named parts; where there can be no names, over rounded ones. */
static ul_kx rebuild(struct ul_kernel *kernel, ul_kx id, bool names)
{
    struct ul_kx_data expr = kernel->exprs[id]; /* the array may move below */
    if (kernel->marks[id].as != UL_NONE)
        return kernel->marks[id].as;
    ul_kx operands[3] = {expr.a, expr.b, expr.c};
    bool changed = false;
    for (uint32_t i = 0, count = operand_count(&expr); i < count; i++) {
        ul_kx operand = rebuild(kernel, operands[i], names);
        changed = changed || operand != operands[i];
        operands[i] = operand;
    }
    ul_kx built = changed ? ul_kx_rebuild(kernel, id, operands[0], operands[1], operands[2]) : id;
    if (kernel->marks[id].uses > 1 && is_nameable(&expr))
        built = names ? ul_ks_name(kernel, built) : ul_kx_round_product(kernel, built);
    kernel->marks[id].as = built;
    return built;
}

static ul_kx share(struct ul_kernel *kernel, ul_kx value, bool names)
{
    marks_grow(kernel);
    kernel->mark_epoch++;
    return count_uses(kernel, value) ? rebuild(kernel, value, names) : value;
}

ul_kx ul_kx_round_shared(struct ul_kernel *kernel, ul_kx value)
{
    return share(kernel, value, false);
}

ul_kx ul_ks_let(struct ul_kernel *kernel, ul_kx value)
{
    return ul_ks_name(kernel, share(kernel, value, true));
}
