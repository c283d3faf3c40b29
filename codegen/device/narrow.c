/* SPDX-License-Identifier: Apache-2.0 */
/* Finds indexes that fit 32 bits, in which a graphics processor computes faster: loop variables,
 * queries and keys of attention, and names of sums and products of them, as far as every expression
 * that C would then compute in 32 bits stays in range. Values from data or from contractions keep
 * their width. */
#include "codegen/device/grid.h"
#include "ir/kernel_build.h"

#include <string.h>

enum { MARGIN = 1 << 21 }; /* what a loop may add to a variable after its last round */

struct narrower {
    const struct ul_kernel *kernel;
    bool *is_short;    /* by variable */
    uint8_t *verdicts; /* by expression: 0 unknown, 1 wide, 2 short */
    bool fails;
};

static bool fits(int64_t low, int64_t high)
{
    return low >= INT32_MIN + MARGIN && high <= INT32_MAX - MARGIN;
}

static bool is_short(struct narrower *n, ul_kx id);

/* Whether C would compute the expression, of type i64, in 32 bits. */
static bool is_short_here(struct narrower *n, const struct ul_kx_data *expr)
{
    switch ((int)expr->op) {
    case UL_KX_INT:
        return fits(expr->imm_int, expr->imm_int);
    case UL_KX_VAR:
        return n->is_short[expr->var];
    case UL_KX_ADD:
    case UL_KX_SUB:
    case UL_KX_MUL:
    case UL_KX_DIV:
    case UL_KX_MOD:
    case UL_KX_AND:
    case UL_KX_OR:
    case UL_KX_XOR:
        return is_short(n, expr->a) && is_short(n, expr->b);
    case UL_KX_SELECT:
        return is_short(n, expr->b) && is_short(n, expr->c);
    default:
        return false;
    }
}

static bool is_short(struct narrower *n, ul_kx id)
{
    const struct ul_kx_data *expr = &n->kernel->exprs[id];
    if (n->verdicts[id] == 0) {
        bool verdict = expr->dtype == UL_I64 && is_short_here(n, expr);
        n->verdicts[id] = verdict ? 2 : 1;
        n->fails = n->fails || (verdict && !fits(expr->low, expr->high));
    }
    return n->verdicts[id] == 2;
}

static void look_at(struct narrower *n, ul_kx id)
{
    if (id == UL_NONE || n->verdicts[id] != 0)
        return;
    const struct ul_kx_data *expr = &n->kernel->exprs[id];
    if (ul_kx_operand_count(expr->op) >= 1)
        look_at(n, expr->a);
    if (ul_kx_operand_count(expr->op) >= 2)
        look_at(n, expr->b);
    if (ul_kx_operand_count(expr->op) == 3)
        look_at(n, expr->c);
    (void)is_short(n, id);
}

static void look_at_operand(struct narrower *n, const struct ul_operand *operand)
{
    look_at(n, operand->at.base);
    look_at(n, operand->transform);
    for (uint32_t i = 0; i < operand->bound_count; i++)
        look_at(n, operand->bounds[i].at.base);
}

/* The variables in which a contraction's result and attention's scores are printed; after the
 * elements of attention's result a part has its total and largest. */
static void name_contraction(struct narrower *n, const struct ul_contraction *c)
{
    const struct ul_attend *attend = c->attend;
    for (uint32_t d = 0; d < c->m_count + c->n_count + c->k_count; d++)
        n->is_short[c->vars[d]] = fits(0, c->extents[d]);
    if (attend == NULL)
        return;
    UL_ASSERT(attend->queries >= 0 && attend->keys >= 0 && attend->value_size >= 0);
    const uint32_t *scores = attend->scores[0].vars, *values = attend->values[0].vars;
    n->is_short[scores[0]] = n->is_short[values[0]] = fits(0, attend->queries);
    n->is_short[scores[1]] = fits(0, attend->keys);
    n->is_short[values[1]] =
        fits(0, attend->kind == UL_ATTEND_EACH ? attend->keys : attend->value_size + 2);
    for (uint32_t d = 0; d < 3 && attend->has_shares; d++)
        n->is_short[attend->values[1].vars[d]] = fits(0, attend->values[1].extents[d]);
    if (attend->has_norms)
        n->is_short[attend->norm_query] = fits(0, attend->queries);
    if (attend->rounds > 0)
        n->is_short[attend->round_var] = fits(0, attend->rounds);
}

/* Statements are numbered in the order of their making: a name comes before its uses. Loops may be
 * made around existing statements. */
const bool *ul_narrow(const struct ul_kernel *kernel, struct ul_arena *arena)
{
    struct narrower n = {.kernel = kernel};
    n.is_short = UL_NEW_ARRAY(arena, bool, kernel->var_count);
    n.verdicts = UL_NEW_ARRAY(arena, uint8_t, kernel->expr_count);
    for (uint32_t i = 0; i < kernel->contraction_count; i++)
        name_contraction(&n, &kernel->contractions[i]);
    for (ul_ks id = 0; id < kernel->stmt_count; id++)
        if (kernel->stmts[id].kind == UL_KS_FOR)
            n.is_short[kernel->stmts[id].var] = fits(0, kernel->vars[kernel->stmts[id].var].high);
    for (ul_ks id = 0; id < kernel->stmt_count; id++) {
        const struct ul_ks_data *stmt = &kernel->stmts[id];
        look_at(&n, stmt->value);
        look_at(&n, stmt->index);
        if (stmt->kind == UL_KS_LET)
            n.is_short[stmt->var] =
                kernel->exprs[stmt->value].dtype == UL_I64 && is_short(&n, stmt->value);
    }
    for (uint32_t i = 0; i < kernel->contraction_count; i++) {
        look_at_operand(&n, &kernel->contractions[i].a);
        look_at_operand(&n, &kernel->contractions[i].b);
        const struct ul_attend *attend = kernel->contractions[i].attend;
        if (attend == NULL)
            continue;
        look_at(&n, attend->score);
        look_at(&n, attend->factor);
        if (attend->has_shares)
            look_at(&n, attend->share);
    }
    if (n.fails)
        memset(n.is_short, 0, kernel->var_count * sizeof *n.is_short);
    return n.is_short;
}
