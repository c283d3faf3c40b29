/* SPDX-License-Identifier: Apache-2.0 */
/* Finds what the iterations of loops touch. */
#include "codegen/kernel/touch.h"
#include "ir/kernel_build.h"

static uint8_t levels_of(struct ul_touched *t, ul_kx id)
{
    if (id == UL_NONE)
        return 0;
    const struct ul_kx_data *expr = &t->kernel->exprs[id];
    if (expr->op == UL_KX_VAR)
        return t->levels[expr->var];
    if (ul_kx_operand_count(expr->op) == 0)
        return 0;
    uint8_t levels = levels_of(t, expr->a);
    if (ul_kx_operand_count(expr->op) >= 2)
        levels |= levels_of(t, expr->b);
    if (ul_kx_operand_count(expr->op) == 3)
        levels |= levels_of(t, expr->c);
    return levels;
}

static void count_loads(struct ul_touched *t, ul_kx id)
{
    if (id == UL_NONE)
        return;
    const struct ul_kx_data *expr = &t->kernel->exprs[id];
    if (ul_kx_operand_count(expr->op) == 0)
        return;
    if (expr->op == UL_KX_LOAD)
        t->uses[expr->var]++;
    count_loads(t, expr->a);
    if (ul_kx_operand_count(expr->op) >= 2)
        count_loads(t, expr->b);
    if (ul_kx_operand_count(expr->op) == 3)
        count_loads(t, expr->c);
}

static void count_operand(struct ul_touched *t, const struct ul_operand *operand)
{
    UL_ASSERT(operand->buffer < t->kernel->buffer_count);
    t->uses[operand->buffer]++;
    count_loads(t, operand->at.base);
    count_loads(t, operand->transform);
    for (uint32_t i = 0; i < operand->bound_count; i++)
        count_loads(t, operand->bounds[i].at.base);
}

ul_ks ul_ks_inside(const struct ul_kernel *kernel, const struct ul_ks_data *stmt)
{
    return stmt->kind == UL_KS_CONTRACT ? kernel->contractions[stmt->contraction].epilogue
                                        : stmt->body;
}

/* Finds the loops on which each variable depends, until nothing changes, since values are carried
 * from round to round. */
static void find_levels(struct ul_touched *t, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE; id = t->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &t->kernel->stmts[id];
        if (stmt->kind == UL_KS_LET || stmt->kind == UL_KS_VAR || stmt->kind == UL_KS_SET) {
            uint8_t levels = t->levels[stmt->var] | levels_of(t, stmt->value);
            t->changed = t->changed || levels != t->levels[stmt->var];
            t->levels[stmt->var] = levels;
        }
        find_levels(t, ul_ks_inside(t->kernel, stmt));
        find_levels(t, stmt->orelse);
    }
}

static void touch_list(struct ul_touched *t, ul_ks first);

static void touch_contraction(struct ul_touched *t, const struct ul_contraction *contraction)
{
    const struct ul_attend *attend = contraction->attend;
    count_operand(t, &contraction->a);
    count_operand(t, &contraction->b);
    if (attend == NULL)
        return;
    for (uint32_t i = 0; i < ul_attend_scores(attend); i++) {
        count_operand(t, &attend->scores[i].a);
        count_operand(t, &attend->scores[i].b);
    }
    for (uint32_t i = 0; i < ul_attend_values(attend); i++)
        count_operand(t, &attend->values[i].b);
    touch_list(t, attend->before);
    count_loads(t, attend->score);
    count_loads(t, attend->factor);
    if (attend->has_shares) {
        count_loads(t, attend->share);
        touch_list(t, attend->values[1].epilogue);
    }
    if (attend->has_norms)
        touch_list(t, attend->norms);
}

static void touch(struct ul_touched *t, ul_ks id)
{
    const struct ul_ks_data *stmt = &t->kernel->stmts[id];
    count_loads(t, stmt->value);
    count_loads(t, stmt->index);
    if (stmt->kind == UL_KS_LET || stmt->kind == UL_KS_VAR)
        t->is_declared[stmt->var] = true;
    if (stmt->kind == UL_KS_SET && !t->is_declared[stmt->var])
        t->sets_outside = true;
    if (stmt->kind == UL_KS_STORE) {
        t->uses[stmt->buffer]++;
        if (levels_of(t, stmt->index) != t->all)
            t->is_private[stmt->buffer] = true;
    }
    if (stmt->kind == UL_KS_CONTRACT)
        touch_contraction(t, &t->kernel->contractions[stmt->contraction]);
    touch_list(t, ul_ks_inside(t->kernel, stmt));
    touch_list(t, stmt->orelse);
}

static void touch_list(struct ul_touched *t, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE; id = t->kernel->stmts[id].next)
        touch(t, id);
}

static void touched_init(struct ul_touched *t, const struct ul_kernel *kernel,
                         struct ul_arena *arena)
{
    *t = (struct ul_touched){.kernel = kernel};
    t->levels = UL_NEW_ARRAY(arena, uint8_t, kernel->var_count);
    t->is_declared = UL_NEW_ARRAY(arena, bool, kernel->var_count);
    t->is_private = UL_NEW_ARRAY(arena, bool, kernel->buffer_count);
    t->uses = UL_NEW_ARRAY(arena, uint32_t, kernel->buffer_count);
}

void ul_touch_loops(struct ul_touched *t, const struct ul_kernel *kernel, const ul_ks *loops,
                    const int64_t *rounds, uint32_t count, struct ul_arena *arena)
{
    UL_ASSERT(count <= 8);
    UL_ASSERT(count > 0 && kernel->stmts[loops[0]].kind == UL_KS_FOR);
    touched_init(t, kernel, arena);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t bit = (uint8_t)(rounds[i] > 1 ? 1u << i : 0);
        t->levels[kernel->stmts[loops[i]].var] = bit;
        t->all |= bit;
    }
    do {
        t->changed = false;
        find_levels(t, kernel->stmts[loops[0]].body);
    } while (t->changed);
    touch_list(t, kernel->stmts[loops[0]].body);
}

void ul_touch_kernel(struct ul_touched *t, const struct ul_kernel *kernel, struct ul_arena *arena)
{
    touched_init(t, kernel, arena);
    touch_list(t, kernel->first);
}

bool ul_is_index_only(const struct ul_kernel *kernel, ul_kx id)
{
    UL_ASSERT(id < kernel->expr_count);
    const struct ul_kx_data *expr = &kernel->exprs[id];
    if (ul_kx_operand_count(expr->op) == 0)
        return expr->op != UL_KX_VAR || !kernel->vars[expr->var].is_mutable;
    if (expr->op == UL_KX_LOAD || expr->op == UL_KX_INDEX || !ul_is_index_only(kernel, expr->a))
        return false;
    if (ul_kx_operand_count(expr->op) >= 2 && !ul_is_index_only(kernel, expr->b))
        return false;
    return ul_kx_operand_count(expr->op) < 3 || ul_is_index_only(kernel, expr->c);
}

ul_ks ul_only_loop(const struct ul_kernel *kernel, ul_ks first)
{
    ul_ks id = first;
    while (id != UL_NONE && kernel->stmts[id].kind == UL_KS_LET &&
           ul_is_index_only(kernel, kernel->stmts[id].value))
        id = kernel->stmts[id].next;
    bool is_loop = id != UL_NONE && kernel->stmts[id].kind == UL_KS_FOR &&
                   (kernel->stmts[id].flags & UL_FOR_PARALLEL) != 0 &&
                   kernel->stmts[id].next == UL_NONE;
    UL_ASSERT(!is_loop || ul_ks_inside(kernel, &kernel->stmts[id]) != id);
    return is_loop ? id : UL_NONE;
}

/* ---- Mentions ---- */

void ul_mentions_init(struct ul_mentions *m, const struct ul_kernel *kernel, const bool *used,
                      struct ul_arena *arena)
{
    *m = (struct ul_mentions){.kernel = kernel, .used = used};
    m->vars = UL_NEW_ARRAY(arena, bool, kernel->var_count);
    m->buffers = UL_NEW_ARRAY(arena, bool, kernel->buffer_count);
}

void ul_mention_expr(struct ul_mentions *m, ul_kx id)
{
    if (id == UL_NONE)
        return;
    const struct ul_kx_data *expr = &m->kernel->exprs[id];
    if (expr->op == UL_KX_VAR)
        m->vars[expr->var] = true;
    if (expr->op == UL_KX_LOAD)
        m->buffers[expr->var] = true;
    if (ul_kx_operand_count(expr->op) == 0)
        return;
    ul_mention_expr(m, expr->a);
    if (ul_kx_operand_count(expr->op) >= 2)
        ul_mention_expr(m, expr->b);
    if (ul_kx_operand_count(expr->op) == 3)
        ul_mention_expr(m, expr->c);
}

static void mention_operand(struct ul_mentions *m, const struct ul_operand *operand)
{
    m->buffers[operand->buffer] = true;
    ul_mention_expr(m, operand->at.base);
    ul_mention_expr(m, operand->transform);
    for (uint32_t i = 0; i < operand->bound_count; i++)
        ul_mention_expr(m, operand->bounds[i].at.base);
}

static void mention_contraction(struct ul_mentions *m, const struct ul_contraction *contraction)
{
    const struct ul_attend *attend = contraction->attend;
    mention_operand(m, &contraction->a);
    mention_operand(m, &contraction->b);
    if (attend == NULL)
        return;
    for (uint32_t i = 0; i < ul_attend_scores(attend); i++) {
        mention_operand(m, &attend->scores[i].a);
        mention_operand(m, &attend->scores[i].b);
    }
    for (uint32_t i = 0; i < ul_attend_values(attend); i++)
        mention_operand(m, &attend->values[i].b);
    ul_mention_list(m, attend->before, UL_NONE);
    ul_mention_expr(m, attend->score);
    ul_mention_expr(m, attend->factor);
    if (attend->has_shares) {
        ul_mention_expr(m, attend->share);
        ul_mention_list(m, attend->values[1].epilogue, UL_NONE);
    }
    if (attend->has_norms)
        ul_mention_list(m, attend->norms, UL_NONE);
}

void ul_mention(struct ul_mentions *m, ul_ks id)
{
    UL_ASSERT(id < m->kernel->stmt_count);
    const struct ul_ks_data *stmt = &m->kernel->stmts[id];
    bool defines = stmt->kind == UL_KS_LET || stmt->kind == UL_KS_VAR || stmt->kind == UL_KS_SET;
    if (defines && !m->used[stmt->var])
        return;
    ul_mention_expr(m, stmt->value);
    ul_mention_expr(m, stmt->index);
    if (stmt->kind == UL_KS_VAR || stmt->kind == UL_KS_SET)
        m->vars[stmt->var] = true;
    if (stmt->kind == UL_KS_STORE)
        m->buffers[stmt->buffer] = true;
    if (stmt->kind == UL_KS_CONTRACT)
        mention_contraction(m, &m->kernel->contractions[stmt->contraction]);
    ul_mention_list(m, ul_ks_inside(m->kernel, stmt), UL_NONE);
    ul_mention_list(m, stmt->orelse, UL_NONE);
}

void ul_mention_list(struct ul_mentions *m, ul_ks first, ul_ks end)
{
    for (ul_ks id = first; id != end; id = m->kernel->stmts[id].next)
        ul_mention(m, id);
}
