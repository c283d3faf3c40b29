/* SPDX-License-Identifier: Apache-2.0 */
/* Which products the C compiler adds without rounding them first.
 *
 * Problem: generated programs are compiled with -ffp-contract=fast. On a processor with fused
 * multiply-add a product that is added is rounded with the sum, once. The interpreter has to round
 * in the same places, or a folded constant differs from what a program computes.
 *
 * Method: the rules of GCC (convert_mult_to_fma in tree-ssa-math-opts.cc). A product is fused where
 * all that use it are sums or differences in its own basic block, for which a list of statements
 * stands here. Where both operands of a sum are products, the one that is computed first is fused.
 * A product that a loop moves out in front of itself is in another block than the sum that stays.
 *
 * Left undone: negated products; equal products that are two expressions. */
#include "ir/kernel_eval.h"

struct binding {
    ul_kx value;
    uint32_t list;
};

struct look {
    const struct ul_kernel *kernel;
    struct ul_fused *fused;  /* per expression */
    struct ul_fused *second; /* the same, where both operands of a sum are products */
    uint32_t *list_of;       /* per expression: the list that it was met in last, from 1 on */
    uint32_t *place;         /* per expression: in the order in which they are computed */
    bool *varies;            /* per expression: from one iteration of its list's loop to the next */
    bool *is_rounded;        /* per product: something asks for its value */
    struct binding *bindings; /* per variable, of LET */
    uint32_t list, list_count, loop_var, placed;
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
        if (is_twice || (look->varies[id] && !look->varies[product])) {
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
    look->place[id] = look->placed++;
    if (is_sum(expr)) {
        note_sum(look, id);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        note_value_use(look, operands[i]);
}

/* A loop's variable makes what its list computes vary; without one all does. */
static void visit_list(struct look *look, ul_ks first, uint32_t loop_var);

static void visit_lists_of(struct look *look, const struct ul_ks_data *stmt)
{
    const uint32_t list = look->list, loop_var = look->loop_var;
    if (stmt->kind == UL_KS_CONTRACT) {
        const struct ul_contraction *contraction = &look->kernel->contractions[stmt->contraction];
        visit_list(look, contraction->epilogue, UL_NONE);
    } else {
        visit_list(look, stmt->body, stmt->kind == UL_KS_FOR ? stmt->var : UL_NONE);
        visit_list(look, stmt->orelse, UL_NONE);
    }
    look->list = list;
    look->loop_var = loop_var;
}

static void visit_list(struct look *look, ul_ks first, uint32_t loop_var)
{
    look->list = ++look->list_count;
    look->loop_var = loop_var;
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
    visit_list(&look, kernel->first, UL_NONE);
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
