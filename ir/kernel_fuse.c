/* SPDX-License-Identifier: Apache-2.0 */
/* Which products the C compiler adds without rounding them first.
 *
 * Problem: generated programs are compiled with -ffp-contract=fast. On a processor with fused
 * multiply-add a product that is added is rounded with the sum, once. The interpreter has to round
 * in the same places, or a folded constant differs from what a program computes.
 *
 * Method: the rules of GCC (convert_mult_to_fma in tree-ssa-math-opts.cc). A list of statements
 * stands for a basic block. A product is fused in all sums that use it, or it is rounded. It is
 * rounded if something else asks for its value, if a sum is in another block, or if an earlier
 * product has taken one of its sums already. A product that the compiler hoists out of a loop is in
 * another block than the sum that stays; a loop of one round is no loop.
 *
 * Left undone: negated products; equal products that are two expressions; products of loop indexes,
 * which GCC computes, and rounds, where it unrolls the loops; what other compilers do,
 * and GCC below -O2, where it fuses nothing (ul_compile_rounds_products looks for that). */
#include "ir/kernel_eval.h"

struct binding {
    ul_kx value;
    uint32_t list;
};

struct look {
    const struct ul_kernel *kernel;
    struct ul_fused *fused;  /* per expression */
    struct ul_fused *second; /* the later product, where both operands of a sum are products */
    uint32_t *list_of;       /* per expression: the list that it was met in last, from 1 on */
    uint32_t *place;         /* per expression: in the order in which they are computed */
    bool *varies;            /* per expression: from one iteration of its list's loop to the next */
    bool *is_rounded;        /* per product: something asks for its value */
    struct binding *bindings; /* per variable, of LET */
    uint32_t list, list_count, loop_var, placed;
    bool is_loop; /* the list runs again and again; without a loop_var all variables vary in it */
};

static bool is_product(const struct look *look, ul_kx id)
{
    const struct ul_kx_data *expr = &look->kernel->exprs[id];
    return expr->op == UL_KX_MUL && ul_machine_is_float(expr->dtype);
}

static bool is_sum(const struct ul_kx_data *expr)
{
    return (expr->op == UL_KX_ADD || expr->op == UL_KX_SUB) && ul_machine_is_float(expr->dtype);
}

/* The product that an operand is, by itself or by name; UL_NONE: none that could be fused. */
static struct ul_fused product_of(const struct look *look, ul_kx id)
{
    const struct ul_fused none = {.product = UL_NONE, .var = UL_NONE};
    const struct ul_kx_data *expr = &look->kernel->exprs[id];
    if (is_product(look, id))
        return (struct ul_fused){.product = id, .var = UL_NONE};
    if (expr->op != UL_KX_VAR || look->bindings[expr->var].list == 0 ||
        !is_product(look, look->bindings[expr->var].value))
        return none;
    const struct binding *binding = &look->bindings[expr->var];
    if (binding->list != look->list) {
        look->is_rounded[binding->value] = true;
        return none;
    }
    return (struct ul_fused){.product = binding->value, .var = expr->var};
}

static void note_value_use(const struct look *look, ul_kx id)
{
    struct ul_fused found = product_of(look, id);
    if (found.product != UL_NONE)
        look->is_rounded[found.product] = true;
}

static void note_sum(const struct look *look, ul_kx id)
{
    const struct ul_kx_data *expr = &look->kernel->exprs[id];
    struct ul_fused left = product_of(look, expr->a), right = product_of(look, expr->b);
    bool is_twice = left.product != UL_NONE && left.product == right.product;
    struct ul_fused *both[2] = {&left, &right};
    right.is_right = true;
    for (uint32_t i = 0; i < 2; i++) {
        ul_kx product = both[i]->product;
        if (product == UL_NONE)
            continue;
        if (is_twice || (look->is_loop && look->varies[id] && !look->varies[product])) {
            look->is_rounded[product] = true;
            both[i]->product = UL_NONE;
        }
    }
    bool is_left_first =
        right.product == UL_NONE ||
        (left.product != UL_NONE && look->place[left.product] < look->place[right.product]);
    look->fused[id] = is_left_first ? left : right;
    look->second[id] = is_left_first ? right : left;
}

static bool leaf_varies(const struct look *look, const struct ul_kx_data *expr)
{
    if (expr->op != UL_KX_VAR)
        return false;
    const struct binding *binding = &look->bindings[expr->var];
    return look->loop_var == UL_NONE || expr->var == look->loop_var ||
           look->kernel->vars[expr->var].is_mutable ||
           (binding->list == look->list && look->varies[binding->value]);
}

static void visit(struct look *look, ul_kx id)
{
    const struct ul_kx_data *expr = &look->kernel->exprs[id];
    if (look->list_of[id] == look->list)
        return;
    const bool was_met = look->list_of[id] != 0;
    look->list_of[id] = look->list;
    const ul_kx operands[3] = {expr->a, expr->b, expr->c};
    uint32_t count = ul_kx_operand_count(expr->op);
    bool is_read =
        expr->op == UL_KX_LOAD && look->kernel->buffers[expr->var].role == UL_BUFFER_INPUT;
    bool varies = leaf_varies(look, expr) || (expr->op == UL_KX_LOAD && !is_read);
    for (uint32_t i = 0; i < count; i++) {
        visit(look, operands[i]);
        varies = varies || look->varies[operands[i]];
    }
    look->varies[id] = varies;
    if (!was_met)
        look->place[id] = look->placed++;
    if (is_sum(expr)) {
        note_sum(look, id);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        note_value_use(look, operands[i]);
}

static bool is_one_round(const struct look *look, const struct ul_ks_data *loop)
{
    const struct ul_kx_data *count = &look->kernel->exprs[loop->value];
    return count->op == UL_KX_INT && count->imm_int == 1;
}

static void visit_statements(struct look *look, ul_ks first);

static void visit_list(struct look *look, ul_ks first, bool is_loop, uint32_t loop_var)
{
    const struct look outer = *look;
    look->list = ++look->list_count;
    look->is_loop = is_loop;
    look->loop_var = loop_var;
    visit_statements(look, first);
    look->list = outer.list;
    look->is_loop = outer.is_loop;
    look->loop_var = outer.loop_var;
}

static void visit_lists_of(struct look *look, const struct ul_ks_data *stmt)
{
    if (stmt->kind == UL_KS_CONTRACT) {
        visit_list(look, look->kernel->contractions[stmt->contraction].epilogue, true, UL_NONE);
    } else if (stmt->kind == UL_KS_FOR && is_one_round(look, stmt)) {
        visit_statements(look, stmt->body);
    } else if (stmt->kind == UL_KS_FOR) {
        visit_list(look, stmt->body, true, stmt->var);
    } else {
        visit_list(look, stmt->body, false, UL_NONE);
        visit_list(look, stmt->orelse, false, UL_NONE);
    }
}

static void visit_statements(struct look *look, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE; id = look->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &look->kernel->stmts[id];
        if (stmt->kind == UL_KS_STORE)
            visit(look, stmt->index);
        if (stmt->value != UL_NONE) {
            visit(look, stmt->value);
            if (stmt->kind == UL_KS_LET)
                look->bindings[stmt->var] = (struct binding){stmt->value, look->list};
            else
                note_value_use(look, stmt->value);
        }
        visit_lists_of(look, stmt);
    }
}

/* In the order in which products are computed: one that is fused rounds those that come later in
 * its sums. `sum_of` has the first sum that a product is the earlier one of, `next` the others. */
static void decide(struct look *look, struct ul_arena *arena)
{
    const uint32_t count = look->kernel->expr_count;
    ul_kx *by_place = UL_NEW_ARRAY(arena, ul_kx, count);
    ul_kx *sum_of = UL_NEW_ARRAY(arena, ul_kx, count), *next = UL_NEW_ARRAY(arena, ul_kx, count);
    for (ul_kx id = 0; id < count; id++)
        by_place[id] = sum_of[id] = next[id] = UL_NONE;
    for (ul_kx id = 0; id < count; id++) {
        ul_kx earlier = look->fused[id].product;
        if (look->list_of[id] != 0)
            by_place[look->place[id]] = id;
        if (earlier == UL_NONE || look->second[id].product == UL_NONE)
            continue;
        next[id] = sum_of[earlier];
        sum_of[earlier] = id;
    }
    for (uint32_t place = 0; place < count; place++) {
        ul_kx product = by_place[place];
        if (product == UL_NONE || look->is_rounded[product])
            continue;
        for (ul_kx sum = sum_of[product]; sum != UL_NONE; sum = next[sum])
            look->is_rounded[look->second[sum].product] = true;
    }
}

struct ul_fused *ul_machine_find_fused(const struct ul_kernel *kernel, struct ul_arena *arena,
                                       bool *keeps_factors)
{
    struct look look = {.kernel = kernel};
    look.fused = UL_NEW_ARRAY(arena, struct ul_fused, kernel->expr_count);
    look.second = UL_NEW_ARRAY(arena, struct ul_fused, kernel->expr_count);
    look.list_of = UL_NEW_ARRAY(arena, uint32_t, kernel->expr_count);
    look.place = UL_NEW_ARRAY(arena, uint32_t, kernel->expr_count);
    look.varies = UL_NEW_ARRAY(arena, bool, kernel->expr_count);
    look.is_rounded = UL_NEW_ARRAY(arena, bool, kernel->expr_count);
    look.bindings = UL_NEW_ARRAY(arena, struct binding, kernel->var_count);
    for (uint32_t i = 0; i < kernel->expr_count; i++)
        look.fused[i].product = look.second[i].product = UL_NONE;
    visit_list(&look, kernel->first, false, UL_NONE);
    decide(&look, arena);
    for (uint32_t i = 0; i < kernel->expr_count; i++) {
        struct ul_fused *fused = &look.fused[i];
        if (fused->product != UL_NONE && look.is_rounded[fused->product])
            *fused = look.second[i];
        if (fused->product != UL_NONE && look.is_rounded[fused->product])
            fused->product = UL_NONE;
        if (fused->product != UL_NONE && fused->var != UL_NONE)
            keeps_factors[fused->var] = true;
    }
    return look.fused;
}
