/* SPDX-License-Identifier: Apache-2.0 */
/* Neighbouring places of a window in one thread: what they share is loaded once.
 *
 * Problem: sums over a window in which a thread has some channels (grid_vector.c) load an element
 * of the input for each place of the window that reaches it, and each weight for each result.
 * Method: where a round of the sum's innermost loop moves the loads as a step of the result's
 * position does, a thread has `count` results along it, and for each row of the window
 *
 *     for k: sum += w[k] x[s p + k]     ->     w[0] w[1] w[2] in registers
 *                                              x[s p + i] for each i, once, and for each result r
 *                                                  sum[r] += w[i - s r] x, if that is a weight
 *
 * so that each sum has the same products in the same order. The count must divide the number of
 * positions, so that nothing is loaded that no result needs.
 *
 * Left undone: windows with gaps (dilation), loops of more than MAX_ROUNDS. */
#include "codegen/device/grid.h"

#include "codegen/kernel/touch.h"
#include "ir/kernel_build.h"

enum { MAX_ROUNDS = 8, MAX_COUNT = 4, MAX_STRIDE = 2 };

struct slide {
    const struct ul_kernel *kernel;
    uint32_t position, round; /* variables: of the results, and of the innermost loop of the sum */
    int64_t stride;           /* rounds between a position and the next; 0: not known yet */
    bool *is_inside;          /* by variable: named in that loop */
};

/* Whether it names `var`, or one of `vars`. */
static bool mentions(const struct slide *s, ul_kx id, const bool *vars, uint32_t var)
{
    const struct ul_kx_data *expr = &s->kernel->exprs[id];
    uint32_t count = ul_kx_operand_count(expr->op);
    if (expr->op == UL_KX_VAR)
        return expr->var == var || (vars != NULL && vars[expr->var]);
    return (count >= 1 && mentions(s, expr->a, vars, var)) ||
           (count >= 2 && mentions(s, expr->b, vars, var)) ||
           (count == 3 && mentions(s, expr->c, vars, var));
}

/* By how much the expression grows with `var`; false where that is not constant. */
static bool growth(const struct slide *s, ul_kx id, uint32_t var, int64_t factor, int64_t *sum)
{
    const struct ul_kx_data *expr = &s->kernel->exprs[id];
    int64_t number;
    if (!mentions(s, id, NULL, var))
        return true;
    if (expr->op == UL_KX_VAR)
        *sum += factor;
    else if (expr->op == UL_KX_ADD || expr->op == UL_KX_SUB)
        return growth(s, expr->a, var, factor, sum) &&
               growth(s, expr->b, var, expr->op == UL_KX_ADD ? factor : -factor, sum);
    else if (expr->op == UL_KX_MUL && ul_kx_is_int(s->kernel, expr->b, &number) &&
             !__builtin_mul_overflow(factor, number, &number))
        return growth(s, expr->a, var, number, sum);
    else
        return false;
    return true;
}

/* Whether a step of the position in the index is as many rounds as everywhere. */
static bool slides_index(struct slide *s, ul_kx id)
{
    int64_t by_position = 0, by_round = 0;
    if (!growth(s, id, s->position, 1, &by_position) || !growth(s, id, s->round, 1, &by_round))
        return false;
    if (by_position == 0 && by_round == 0)
        return true;
    if (by_round == 0 || by_position % by_round != 0)
        return false;
    if (s->stride == 0)
        s->stride = by_position / by_round;
    return s->stride * by_round == by_position;
}

/* The same for all that an expression loads and compares. */
static bool slides(struct slide *s, ul_kx id)
{
    const struct ul_kx_data *expr = &s->kernel->exprs[id];
    uint32_t count = ul_kx_operand_count(expr->op);
    if (!mentions(s, id, NULL, s->position) && !mentions(s, id, NULL, s->round))
        return true;
    if (expr->op == UL_KX_LOAD)
        return slides_index(s, expr->a);
    if (expr->op == UL_KX_LT || expr->op == UL_KX_LE)
        return slides_index(s, expr->a) && slides_index(s, expr->b);
    if (count == 0 || (expr->op != UL_KX_AND && s->kernel->exprs[id].dtype == UL_I64))
        return false;
    return slides(s, expr->a) && (count < 2 || slides(s, expr->b)) &&
           (count < 3 || slides(s, expr->c));
}

/* The same for a statement, and for the contents of a branch; notes which names there are. */
static bool take_statement(struct slide *s, const struct ul_ks_data *stmt)
{
    if (stmt->kind == UL_KS_VAR || stmt->kind == UL_KS_LET || stmt->kind == UL_KS_SET) {
        s->is_inside[stmt->var] = true;
        return slides(s, stmt->value);
    }
    if (stmt->kind != UL_KS_IF || stmt->orelse != UL_NONE || !slides(s, stmt->value))
        return false;
    for (ul_ks id = stmt->body; id != UL_NONE; id = s->kernel->stmts[id].next)
        if (s->kernel->stmts[id].kind == UL_KS_IF || !take_statement(s, &s->kernel->stmts[id]))
            return false;
    return true;
}

/* Whether sum += a * b is all that the loop does. One factor depends on what its statements name
 * and on the position, the other on neither. */
static bool takes_loop(struct slide *s, struct ul_slide *to)
{
    const struct ul_kernel *kernel = s->kernel;
    ul_ks id = kernel->stmts[to->inner].body;
    for (; id != UL_NONE && kernel->stmts[id].next != UL_NONE; id = kernel->stmts[id].next)
        if (!take_statement(s, &kernel->stmts[id]))
            return false;
    if (id == UL_NONE || kernel->stmts[id].kind != UL_KS_SET || kernel->stmts[id].var != to->sum)
        return false;
    const struct ul_kx_data *add = &kernel->exprs[kernel->stmts[id].value];
    if (add->op != UL_KX_FMA || add->dtype != UL_F32 || kernel->exprs[add->c].op != UL_KX_VAR ||
        kernel->exprs[add->c].var != to->sum)
        return false;
    bool a_moves = mentions(s, add->a, s->is_inside, s->position);
    bool b_moves = mentions(s, add->b, s->is_inside, s->position);
    if (a_moves == b_moves)
        return false;
    to->moving = a_moves ? add->a : add->b;
    to->fixed = a_moves ? add->b : add->a;
    to->last = id;
    return slides(s, to->moving) && s->stride >= 1 && s->stride <= MAX_STRIDE;
}

/* Finds the loops of a sum that is the body apart from the epilogue; returns the innermost loop. */
static ul_ks find_inner(const struct ul_kernel *kernel, ul_ks body, uint32_t *sum)
{
    if (body == UL_NONE || kernel->stmts[body].kind != UL_KS_VAR ||
        ul_kx_operand_count(kernel->exprs[kernel->stmts[body].value].op) != 0 ||
        kernel->exprs[kernel->stmts[body].value].op == UL_KX_VAR)
        return UL_NONE;
    *sum = kernel->stmts[body].var;
    ul_ks loop = kernel->stmts[body].next;
    if (loop == UL_NONE || kernel->stmts[loop].kind != UL_KS_FOR)
        return UL_NONE;
    for (ul_ks id = kernel->stmts[loop].next; id != UL_NONE; id = kernel->stmts[id].next)
        if (kernel->stmts[id].kind != UL_KS_LET && kernel->stmts[id].kind != UL_KS_STORE)
            return UL_NONE;
    for (;;) {
        ul_ks inside = kernel->stmts[loop].body;
        if (inside == UL_NONE || kernel->stmts[inside].kind != UL_KS_FOR)
            return loop;
        if (kernel->stmts[inside].next != UL_NONE)
            return UL_NONE;
        loop = inside;
    }
}

void ul_grid_slide(struct ul_nest *nest, const struct ul_kernel *kernel, int64_t min_items,
                   struct ul_arena *arena)
{
    struct ul_slide found = {.count = 0};
    UL_ASSERT(nest->epilogue == NULL && nest->count > 0);
    found.inner = find_inner(kernel, ul_nest_body(nest, kernel), &found.sum);
    if (nest->vector <= 1 || nest->count < 2 || found.inner == UL_NONE ||
        !ul_kx_is_int(kernel, kernel->stmts[found.inner].value, &found.rounds) ||
        found.rounds < 2 || found.rounds > MAX_ROUNDS)
        return;
    for (uint32_t i = nest->count - 1; i-- > 0;) {
        struct slide s = {.kernel = kernel,
                          .position = kernel->stmts[nest->loops[i]].var,
                          .round = kernel->stmts[found.inner].var};
        s.is_inside = UL_NEW_ARRAY(arena, bool, kernel->var_count);
        if (!takes_loop(&s, &found))
            continue;
        found.loop = i;
        found.stride = s.stride;
        for (uint32_t count = MAX_COUNT; count > 1; count /= 2) {
            if (nest->rounds[i] % count != 0 || nest->total / nest->vector / count < min_items)
                continue;
            found.count = count;
            nest->slide = found;
            return;
        }
    }
}
