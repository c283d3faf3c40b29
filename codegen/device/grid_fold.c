/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of partial results: an array that is halved until one element is left,
 *
 *     for j < 16: p[j] = p[j] + p[j + 16]
 *     for j < 8:  p[j] = p[j] + p[j + 8]  ...  down to p[0]
 *
 * where the team has as many threads as the array has elements, each in a thread's register: then
 * the team folds registers, and every thread has the total. The order of additions is the team's, a
 * fixed tree. The fold is found only where nothing other than p[0] is read after it. */
#include "codegen/device/grid.h"
#include "ir/kernel_build.h"

#include <string.h>

struct folder {
    const struct ul_kernel *kernel;
    const uint32_t *uses; /* by buffer, in the whole kernel */
    struct ul_phase *phase;
    struct ul_arena *arena;
};

static const struct ul_ks_data *stmt_get(const struct folder *f, ul_ks id)
{
    return &f->kernel->stmts[id];
}

static bool is_load(const struct folder *f, ul_kx id, uint32_t buffer, uint32_t var, int64_t offset)
{
    const struct ul_kx_data *load = &f->kernel->exprs[id];
    if (load->op != UL_KX_LOAD || load->var != buffer)
        return false;
    const struct ul_kx_data *index = &f->kernel->exprs[load->a];
    int64_t number;
    if (offset == 0)
        return index->op == UL_KX_VAR && index->var == var;
    return index->op == UL_KX_ADD && f->kernel->exprs[index->a].op == UL_KX_VAR &&
           f->kernel->exprs[index->a].var == var && ul_kx_is_int(f->kernel, index->b, &number) &&
           number == offset;
}

/* Whether the statement is a step of a fold. */
static bool match_step(const struct folder *f, ul_ks id, struct ul_grid_fold *fold)
{
    int64_t half;
    if (id == UL_NONE || stmt_get(f, id)->kind != UL_KS_FOR ||
        (stmt_get(f, id)->flags & UL_FOR_PARALLEL) == 0 ||
        !ul_kx_is_int(f->kernel, stmt_get(f, id)->value, &half) || half < 1)
        return false;
    uint32_t var = stmt_get(f, id)->var;
    ul_ks body = stmt_get(f, id)->body;
    if (body == UL_NONE || stmt_get(f, body)->kind != UL_KS_STORE ||
        stmt_get(f, body)->next != UL_NONE)
        return false;
    const struct ul_ks_data *store = stmt_get(f, body);
    const struct ul_kx_data *index = &f->kernel->exprs[store->index];
    const struct ul_kx_data *value = &f->kernel->exprs[store->value];
    *fold =
        (struct ul_grid_fold){.buffer = store->buffer, .value = store->value, .width = 2 * half};
    return index->op == UL_KX_VAR && index->var == var && ul_kx_operand_count(value->op) == 2 &&
           is_load(f, value->a, store->buffer, var, 0) &&
           is_load(f, value->b, store->buffer, var, half);
}

/* The statement after a complete fold that begins here, or `id` itself. */
static ul_ks match_fold(const struct folder *f, ul_ks id, struct ul_grid_fold *fold)
{
    struct ul_grid_fold step;
    ul_ks at = id;
    if (!match_step(f, id, fold) || (fold->width & (fold->width - 1)) != 0)
        return id;
    enum ul_kx_op op = f->kernel->exprs[fold->value].op;
    for (int64_t width = fold->width; width >= 2; width /= 2) {
        if (!match_step(f, at, &step) || step.width != width || step.buffer != fold->buffer ||
            f->kernel->exprs[step.value].op != op)
            return id;
        at = stmt_get(f, at)->next;
    }
    UL_ASSERT((fold->width & (fold->width - 1)) == 0);
    return at;
}

/* Counts loads and stores of the array; false where a constant index is not `allowed`. */
static bool count_loads(const struct folder *f, ul_kx id, uint32_t buffer, bool after,
                        uint32_t *count)
{
    if (id == UL_NONE)
        return true;
    const struct ul_kx_data *expr = &f->kernel->exprs[id];
    int64_t number;
    if (ul_kx_operand_count(expr->op) == 0)
        return true;
    if (expr->op == UL_KX_LOAD && expr->var == buffer) {
        (*count)++;
        bool is_constant = ul_kx_is_int(f->kernel, expr->a, &number);
        if (is_constant != after || (after && number != 0))
            return false;
    }
    if (!count_loads(f, expr->a, buffer, after, count))
        return false;
    if (ul_kx_operand_count(expr->op) >= 2 && !count_loads(f, expr->b, buffer, after, count))
        return false;
    return ul_kx_operand_count(expr->op) < 3 || count_loads(f, expr->c, buffer, after, count);
}

/* Statements before the fold must touch elements by lanes; statements after it must read element
 * 0. */
static bool count_list(const struct folder *f, ul_ks first, ul_ks end, uint32_t buffer, bool after,
                       uint32_t *count)
{
    for (ul_ks id = first; id != end; id = stmt_get(f, id)->next) {
        const struct ul_ks_data *stmt = stmt_get(f, id);
        if (stmt->kind == UL_KS_CONTRACT)
            continue; /* its accesses are not counted, and so are missing */
        if (stmt->kind == UL_KS_STORE && stmt->buffer == buffer) {
            (*count)++;
            if (after)
                return false;
        }
        if (!count_loads(f, stmt->value, buffer, after, count) ||
            !count_loads(f, stmt->index, buffer, after, count) ||
            !count_list(f, stmt->body, UL_NONE, buffer, after, count) ||
            !count_list(f, stmt->orelse, UL_NONE, buffer, after, count))
            return false;
    }
    return true;
}

static void find_folds(struct folder *f, ul_ks first, ul_ks end)
{
    for (ul_ks id = first; id != end;) {
        struct ul_grid_fold fold;
        uint32_t count = 0;
        ul_ks behind = match_fold(f, id, &fold);
        if (behind == id) {
            find_folds(f, stmt_get(f, id)->body, UL_NONE);
            find_folds(f, stmt_get(f, id)->orelse, UL_NONE);
            id = stmt_get(f, id)->next;
            continue;
        }
        for (int64_t width = fold.width; width >= 2; width /= 2)
            count += 3;
        if (fold.width == f->phase->team &&
            f->kernel->buffers[fold.buffer].role == UL_BUFFER_LOCAL &&
            f->kernel->buffers[fold.buffer].element_count == (uint64_t)fold.width &&
            count_list(f, first, id, fold.buffer, false, &count) &&
            count_list(f, behind, end, fold.buffer, true, &count) &&
            count == f->uses[fold.buffer]) {
            UL_ASSERT(!f->phase->is_folded[fold.buffer]);
            f->phase->folds[id] = ul_arena_copy(f->arena, &fold, sizeof fold);
            f->phase->is_folded[fold.buffer] = true;
            f->phase->modes[id] = UL_TEAM_FOLD;
            for (ul_ks step = stmt_get(f, id)->next; step != behind; step = stmt_get(f, step)->next)
                f->phase->modes[step] = UL_TEAM_NOTHING;
        }
        id = behind;
    }
}

void ul_grid_find_folds(struct ul_phase *phase, const struct ul_kernel *kernel,
                        const uint32_t *uses, struct ul_arena *arena)
{
    struct folder folder = {.kernel = kernel, .uses = uses, .phase = phase, .arena = arena};
    find_folds(&folder, phase->first, phase->end);
}

int64_t ul_grid_fold_width(const struct ul_kernel *kernel, ul_ks first, ul_ks end)
{
    struct folder folder = {.kernel = kernel};
    int64_t widest = 0;
    for (ul_ks id = first; id != end; id = kernel->stmts[id].next) {
        struct ul_grid_fold fold;
        int64_t inner = match_fold(&folder, id, &fold) != id ? fold.width : 0;
        int64_t body = ul_grid_fold_width(kernel, kernel->stmts[id].body, UL_NONE);
        int64_t orelse = ul_grid_fold_width(kernel, kernel->stmts[id].orelse, UL_NONE);
        inner = body > inner ? body : inner;
        inner = orelse > inner ? orelse : inner;
        widest = inner > widest ? inner : widest;
    }
    return widest;
}
