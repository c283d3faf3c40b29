/* SPDX-License-Identifier: Apache-2.0 */
/* The text form of a kernel: one line per buffer and statement; what is inside of a statement is
 * indented below it. Expressions are nested text: parts that are shared have names already
 * (share.c), so it grows no larger than the C that targets print. */
#include "ir/kernel_build.h"
#include "ir/kernel_text.h"

#include <inttypes.h>

struct print {
    struct ul_text *text;
    const struct ul_kernel *kernel;
    const struct ul_kernel_notes *notes; /* NULL: none */
};

static void put_dtype(struct print *print, enum ul_dtype dtype)
{
    ul_text_put(print->text, ul_dtype_get(dtype)->name);
}

/* ---- Expressions ---- */

static void put_expr(struct print *print, ul_kx id, uint32_t level);

/* The type follows where it is not the usual one. */
static void put_number(struct print *print, const struct ul_kx_data *expr)
{
    if (expr->op == UL_KX_INT)
        ul_text_printf(print->text, "%" PRId64, expr->imm_int);
    else
        ul_text_put_float(print->text, expr->imm_float, expr->dtype == UL_F32);
    if (expr->dtype != (expr->op == UL_KX_INT ? UL_I64 : UL_F32)) {
        ul_text_put(print->text, ":");
        put_dtype(print, expr->dtype);
    }
}

/* What a function takes besides its operands: a type before them, or a number after them. */
static void put_call(struct print *print, const struct ul_kx_data *expr)
{
    const ul_kx operands[3] = {expr->a, expr->b, expr->c};
    ul_text_printf(print->text, "%s(", ul_kx_op_get(expr->op)->name);
    if (expr->op == UL_KX_CAST || expr->op == UL_KX_BITCAST) {
        put_dtype(print, expr->dtype);
        ul_text_put(print->text, ", ");
    } else if (expr->op == UL_KX_ROUND_TO) {
        put_dtype(print, (enum ul_dtype)(expr->imm_int & 255));
        ul_text_put(print->text, (expr->imm_int & 256) != 0 ? " saturate, " : ", ");
    }
    for (uint32_t i = 0; i < ul_kx_operand_count(expr->op); i++) {
        ul_text_put(print->text, i == 0 ? "" : ", ");
        put_expr(print, operands[i], 0);
    }
    if (expr->op == UL_KX_INDEX || expr->op == UL_KX_RANDOM)
        ul_text_printf(print->text, ", %" PRId64, expr->imm_int);
    ul_text_put(print->text, ")");
}

static void put_infix(struct print *print, const struct ul_kx_data *expr, uint32_t level)
{
    const struct ul_kx_op_info *info = ul_kx_op_get(expr->op);
    ul_text_put(print->text, info->level < level ? "(" : "");
    put_expr(print, expr->a, info->level);
    ul_text_printf(print->text, " %s ", info->symbol);
    put_expr(print, expr->b, info->level + 1);
    ul_text_put(print->text, info->level < level ? ")" : "");
}

/* Puts parentheses where its level is lower. */
static void put_expr(struct print *print, ul_kx id, uint32_t level)
{
    const struct ul_kx_data *expr = &print->kernel->exprs[id];
    if (expr->op == UL_KX_INT || expr->op == UL_KX_FLOAT) {
        put_number(print, expr);
    } else if (expr->op == UL_KX_VAR) {
        ul_text_printf(print->text, "v%u", (unsigned)expr->var);
    } else if (expr->op == UL_KX_LOAD) {
        ul_text_printf(print->text, "b%u[", (unsigned)expr->var);
        put_expr(print, expr->a, 0);
        ul_text_put(print->text, "]");
    } else if (ul_kx_op_get(expr->op)->symbol != NULL) {
        put_infix(print, expr, level);
    } else {
        put_call(print, expr);
    }
}

/* ---- Contractions ---- */

static void put_line(struct print *print, uint32_t indent, const char *start)
{
    for (uint32_t i = 0; i < indent; i++)
        ul_text_put(print->text, "  ");
    ul_text_put(print->text, start);
}

/* "v1 < 64": a variable below `count`; " max N" where it was declared for N. */
static void put_index(struct print *print, uint32_t var, int64_t count)
{
    int64_t high = print->kernel->vars[var].high;
    if (high != (count > 0 ? count - 1 : 0))
        ul_text_printf(print->text, " max %" PRId64, high + 1);
}

/* base; 64*v1, 1*v2 */
static void put_affine(struct print *print, const struct ul_contraction *contraction,
                       const struct ul_affine *affine)
{
    const char *before = "; ";
    put_expr(print, affine->base, 0);
    for (uint32_t i = 0; i < UL_CONTRACT_DIMS; i++) {
        if (affine->strides[i] == 0)
            continue;
        ul_text_printf(print->text, "%s%" PRId64 "*v%u", before, affine->strides[i],
                       (unsigned)contraction->vars[i]);
        before = ", ";
    }
}

static void put_operand(struct print *print, const struct ul_contraction *contraction,
                        const struct ul_operand *operand, const char *name, uint32_t indent)
{
    put_line(print, indent, name);
    ul_text_printf(print->text, " b%u", (unsigned)operand->buffer);
    if (operand->packed != UL_DTYPE_NONE) {
        ul_text_put(print->text, " of ");
        put_dtype(print, operand->packed);
    }
    ul_text_put(print->text, "[");
    put_affine(print, contraction, &operand->at);
    ul_text_put(print->text, "]");
    for (uint32_t i = 0; i < operand->bound_count; i++) {
        ul_text_put(print->text, " where ");
        put_affine(print, contraction, &operand->bounds[i].at);
        ul_text_printf(print->text, " in %" PRId64, operand->bounds[i].extent);
    }
    if (operand->bound_count > 0) {
        ul_text_put(print->text, " else ");
        ul_text_put_float(print->text, operand->outside, false);
    }
    if (operand->transform != UL_NONE) {
        ul_text_printf(print->text, " as v%u ", (unsigned)operand->loaded);
        put_dtype(print, print->kernel->vars[operand->loaded].dtype);
        ul_text_put(print->text, " = ");
        put_expr(print, operand->transform, 0);
    }
    ul_text_put(print->text, "\n");
}

static void put_dims(struct print *print, const struct ul_contraction *contraction, uint32_t first,
                     uint32_t count, const char *name, uint32_t indent)
{
    if (count == 0)
        return;
    put_line(print, indent, name);
    for (uint32_t i = first; i < first + count; i++) {
        ul_text_printf(print->text, "%s v%u < %" PRId64, i == first ? "" : ",",
                       (unsigned)contraction->vars[i], contraction->extents[i]);
        put_index(print, contraction->vars[i], contraction->extents[i]);
    }
    ul_text_put(print->text, "\n");
}

static void put_list(struct print *print, ul_ks first, ul_ks end, uint32_t indent);

/* Puts what is below a line that ends with the accumulator; the values of attention have no a. */
static void put_contraction(struct print *print, const struct ul_contraction *contraction,
                            bool has_a, uint32_t indent)
{
    uint32_t m = contraction->m_count, n = contraction->n_count;
    put_dims(print, contraction, 0, m, "m", indent);
    put_dims(print, contraction, m, n, "n", indent);
    put_dims(print, contraction, m + n, contraction->k_count, "k", indent);
    if (has_a)
        put_operand(print, contraction, &contraction->a, "a", indent);
    put_operand(print, contraction, &contraction->b, "b", indent);
    if (contraction->epilogue == UL_NONE)
        return;
    put_line(print, indent, "then\n");
    put_list(print, contraction->epilogue, UL_NONE, indent + 1);
}

static void put_accumulator(struct print *print, const struct ul_contraction *contraction)
{
    ul_text_printf(print->text, " v%u ", (unsigned)contraction->acc);
    put_dtype(print, contraction->acc_dtype);
}

static void put_sums(struct print *print, const char *name,
                     const struct ul_contraction *contraction, bool has_a, uint32_t indent)
{
    put_line(print, indent, name);
    put_accumulator(print, contraction);
    ul_text_put(print->text, "\n");
    put_contraction(print, contraction, has_a, indent + 1);
}

/* Puts what a loop that is marked with attention computes. */
static void put_attend(struct print *print, const struct ul_attend *attend, uint32_t indent)
{
    static const char *const kinds[] = {"", " statistics", " sum", " each"};
    put_line(print, indent, "attend");
    ul_text_put(print->text, kinds[attend->kind]);
    ul_text_printf(print->text,
                   " queries=%" PRId64 " keys=%" PRId64 " size=%" PRId64 " value_size=%" PRId64
                   " reach=%" PRId64 "%s%s",
                   attend->queries, attend->keys, attend->size, attend->value_size, attend->reach,
                   attend->empty == UL_EMPTY_IS_ZERO ? " empty_is_zero"
                   : attend->empty == UL_NAN_IS_ZERO ? " nan_is_zero"
                                                     : "",
                   attend->rounds_weights ? " rounds_weights" : "");
    if (attend->split_keys > 0)
        ul_text_printf(print->text, " split=%" PRId64 "*v%u", attend->split_keys,
                       (unsigned)attend->split_var);
    if (attend->is_turned)
        ul_text_put(print->text, " turned");
    if (attend->rounds > 0) {
        ul_text_printf(print->text, " rounds=%" PRId64 " v%u", attend->rounds,
                       (unsigned)attend->round_var);
        put_index(print, attend->round_var, attend->rounds);
    }
    ul_text_put(print->text, "\n");
    for (uint32_t i = 0; i < attend->part_count; i++) {
        put_line(print, indent + 1, "part");
        ul_text_printf(print->text, " %" PRId64 "\n", attend->key_counts[i]);
        put_sums(print, "scores", &attend->scores[i], true, indent + 2);
        if (attend->has_slopes)
            put_sums(print, "slopes", &attend->scores[1], true, indent + 2);
        put_sums(print, "values", &attend->values[i], false, indent + 2);
        if (attend->has_shares)
            put_sums(print, "values", &attend->values[1], false, indent + 2);
    }
    put_line(print, indent + 1, "before\n");
    put_list(print, attend->before, UL_NONE, indent + 2);
    put_line(print, indent + 1, "score ");
    put_expr(print, attend->score, 0);
    ul_text_put(print->text, "\n");
    if (attend->factor != UL_NONE) {
        put_line(print, indent + 1, "factor ");
        put_expr(print, attend->factor, 0);
        ul_text_put(print->text, "\n");
    }
    if (attend->has_shares) {
        put_line(print, indent + 1, "share ");
        put_expr(print, attend->share, 0);
        ul_text_put(print->text, "\n");
    }
    if (attend->has_norms) {
        put_line(print, indent + 1, "norms ");
        ul_text_printf(print->text, "v%u v%u\n", (unsigned)attend->norm_query,
                       (unsigned)attend->norm);
        put_list(print, attend->norms, UL_NONE, indent + 2);
    }
}

/* ---- Statements ---- */

static void put_for(struct print *print, const struct ul_ks_data *stmt)
{
    const struct ul_kx_data *count = &print->kernel->exprs[stmt->value];
    ul_text_printf(print->text, "for v%u < ", (unsigned)stmt->var);
    put_expr(print, stmt->value, 0);
    put_index(print, stmt->var, count->high);
    ul_text_put(print->text, (stmt->flags & UL_FOR_PARALLEL) != 0 ? " parallel" : "");
    ul_text_put(print->text, (stmt->flags & UL_FOR_REDUCE) != 0 ? " reduce" : "");
    ul_text_put(print->text, (stmt->flags & UL_FOR_LAUNCHED) != 0 ? " launched" : "");
    ul_text_put(print->text, (stmt->flags & UL_FOR_ALONE) != 0 ? " alone" : "");
}

/* let v3 i64 in 0..99 = value; with the range where it is not that of the value. */
static void put_definition(struct print *print, const struct ul_ks_data *stmt, const char *word)
{
    const struct ul_kernel_var *var = &print->kernel->vars[stmt->var];
    const struct ul_kx_data *value = &print->kernel->exprs[stmt->value];
    ul_text_printf(print->text, "%s v%u ", word, (unsigned)stmt->var);
    put_dtype(print, var->dtype);
    if (stmt->kind == UL_KS_LET && var->dtype == UL_I64 &&
        (var->low != value->low || var->high != value->high))
        ul_text_printf(print->text, " in %" PRId64 "..%" PRId64, var->low, var->high);
    ul_text_put(print->text, " = ");
    put_expr(print, stmt->value, 0);
}

static void put_head(struct print *print, const struct ul_ks_data *stmt)
{
    switch (stmt->kind) {
    case UL_KS_FOR:
        put_for(print, stmt);
        break;
    case UL_KS_IF:
        ul_text_put(print->text, "if ");
        put_expr(print, stmt->value, 0);
        break;
    case UL_KS_LET:
        put_definition(print, stmt, "let");
        break;
    case UL_KS_VAR:
        put_definition(print, stmt, "var");
        break;
    case UL_KS_SET:
        ul_text_printf(print->text, "v%u = ", (unsigned)stmt->var);
        put_expr(print, stmt->value, 0);
        break;
    case UL_KS_STORE:
        ul_text_printf(print->text, "b%u[", (unsigned)stmt->buffer);
        put_expr(print, stmt->index, 0);
        ul_text_put(print->text, "] = ");
        put_expr(print, stmt->value, 0);
        break;
    case UL_KS_CONTRACT:
        ul_text_put(print->text, "contract");
        put_accumulator(print, &print->kernel->contractions[stmt->contraction]);
        break;
    case UL_KS_BREAK:
        ul_text_put(print->text, "break");
        break;
    }
}

/* Puts the statements inside of one. */
static void put_inside(struct print *print, const struct ul_ks_data *stmt, uint32_t indent)
{
    const struct ul_kernel *kernel = print->kernel;
    if (stmt->kind == UL_KS_CONTRACT) {
        const struct ul_contraction *contraction = &kernel->contractions[stmt->contraction];
        put_contraction(print, contraction, contraction->attend == NULL, indent);
        if (contraction->attend != NULL)
            put_attend(print, contraction->attend, indent);
    } else {
        put_list(print, stmt->body, UL_NONE, indent);
    }
    if (stmt->kind == UL_KS_FOR && (stmt->flags & UL_FOR_ATTEND) != 0)
        put_attend(print, &kernel->attends[stmt->contraction], indent - 1);
    if (stmt->kind == UL_KS_IF && stmt->orelse != UL_NONE) {
        put_line(print, indent - 1, "else\n");
        put_list(print, stmt->orelse, UL_NONE, indent);
    }
}

static void put_list(struct print *print, ul_ks first, ul_ks end, uint32_t indent)
{
    for (ul_ks id = first; id != end; id = print->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &print->kernel->stmts[id];
        put_line(print, indent, "");
        put_head(print, stmt);
        if (print->notes != NULL)
            print->notes->put(print->notes->context, print->text, id);
        ul_text_put(print->text, "\n");
        put_inside(print, stmt, indent + 1);
    }
}

void ul_kernel_print_list(struct ul_text *text, const struct ul_kernel *kernel, ul_ks first,
                          ul_ks end, uint32_t indent, const struct ul_kernel_notes *notes)
{
    struct print print = {.text = text, .kernel = kernel, .notes = notes};
    put_list(&print, first, end, indent);
}

void ul_kernel_print_statement(struct ul_text *text, const struct ul_kernel *kernel, ul_ks id)
{
    struct print print = {.text = text, .kernel = kernel};
    UL_ASSERT(id < kernel->stmt_count);
    put_head(&print, &kernel->stmts[id]);
}

/* input b0 f32[64] value=%3 view=%5 offset=128 */
static void put_buffer(struct print *print, uint32_t id)
{
    static const char *const roles[] = {[UL_BUFFER_INPUT] = "input",
                                        [UL_BUFFER_OUTPUT] = "output",
                                        [UL_BUFFER_SCRATCH] = "scratch",
                                        [UL_BUFFER_LOCAL] = "local"};
    const struct ul_buffer *buffer = &print->kernel->buffers[id];
    ul_text_printf(print->text, "%s b%u ", roles[buffer->role], (unsigned)id);
    put_dtype(print, buffer->dtype);
    ul_text_printf(print->text, "[%" PRIu64 "]", buffer->element_count);
    if (buffer->value != UL_NONE)
        ul_text_printf(print->text, " value=%%%u", (unsigned)buffer->value);
    if (buffer->view != buffer->value)
        ul_text_printf(print->text, " view=%%%u", (unsigned)buffer->view);
    if (buffer->offset_bytes != 0)
        ul_text_printf(print->text, " offset=%" PRId64, buffer->offset_bytes);
    ul_text_put(print->text, "\n");
}

void ul_kernel_print(struct ul_text *text, const struct ul_kernel *kernel)
{
    struct print print = {.text = text, .kernel = kernel};
    ul_text_put(text, "kernel\n");
    for (uint32_t i = 0; i < kernel->buffer_count; i++)
        put_buffer(&print, i);
    put_list(&print, kernel->first, UL_NONE, 0);
}
