/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the text form of a kernel. Expressions are taken as they are written, nothing is folded; a
 * variable or buffer is known from the line that declares it, so that every expression has its type
 * at once. The verifier, which runs at the end, checks what else must hold, scopes above all. */
#include "ir/kernel_build.h"
#include "ir/kernel_text.h"

#include <ctype.h>
#include <string.h>

/* More than any kernel of ours has: expressions are walked by recursion. */
enum { DEPTH = 1024, MAX_OPERATIONS = 4096 };

struct parse {
    struct ul_scan scan;
    struct ul_kernel *kernel;
    unsigned *lines; /* by statement */
    uint32_t line_count, line_capacity;
    uint64_t id_limit;        /* keeps a short text from asking for gigabytes of empty variables */
    uint32_t depth;           /* of parentheses and operands */
    uint32_t operation_count; /* of the current expression */
};

static bool is_computed(enum ul_dtype dtype)
{
    const struct ul_dtype_info *info = ul_dtype_get(dtype);
    return info->is_float || info->is_integer || dtype == UL_BOOL;
}

static enum ul_status read_dtype(struct parse *parse, enum ul_dtype *dtype)
{
    char name[16];
    size_t length = 0;
    ul_scan_skip_blanks(&parse->scan);
    while (isalnum((unsigned char)parse->scan.at[length]))
        length++;
    *dtype = UL_DTYPE_NONE;
    if (length < sizeof name) {
        memcpy(name, parse->scan.at, length);
        name[length] = '\0';
        *dtype = ul_dtype_find(name);
    }
    if (*dtype == UL_DTYPE_NONE || !is_computed(*dtype))
        return ul_scan_fail(&parse->scan, "an element type that kernels compute with");
    parse->scan.at += length;
    return UL_OK;
}

/* Reads the type of a variable or an expression: none that is only used in memory. */
static enum ul_status read_compute_dtype(struct parse *parse, enum ul_dtype *dtype)
{
    UL_TRY(read_dtype(parse, dtype));
    if (ul_dtype_get(*dtype)->is_float && *dtype != UL_F32 && *dtype != UL_F64)
        return ul_scan_fail(&parse->scan, "f32, f64, bool or an integer before this");
    return UL_OK;
}

/* ---- Variables and buffers ---- */

static bool is_declared(const struct parse *parse, uint32_t var)
{
    return var < parse->kernel->var_count && parse->kernel->vars[var].dtype != UL_DTYPE_NONE;
}

static enum ul_status read_var(struct parse *parse, uint32_t *var)
{
    UL_TRY(ul_scan_expect(&parse->scan, "v"));
    UL_TRY(ul_scan_u32(&parse->scan, parse->id_limit, var));
    return is_declared(parse, *var)
               ? UL_OK
               : ul_scan_fail(&parse->scan, "a variable that is declared before this");
}

static enum ul_status read_new_var(struct parse *parse, uint32_t *var)
{
    UL_TRY(ul_scan_expect(&parse->scan, "v"));
    UL_TRY(ul_scan_u32(&parse->scan, parse->id_limit, var));
    return is_declared(parse, *var)
               ? ul_scan_fail(&parse->scan, "a variable that is not yet declared before this")
               : UL_OK;
}

static void declare(struct parse *parse, uint32_t var, const struct ul_kernel_var *info)
{
    while (parse->kernel->var_count <= var)
        ul_kernel_add_var(parse->kernel, UL_DTYPE_NONE);
    parse->kernel->vars[var] = *info;
}

/* " max N": what a loop over [0, count) was declared for, else count. */
static enum ul_status declare_index(struct parse *parse, uint32_t var, int64_t count)
{
    if (ul_scan_accept_word(&parse->scan, "max"))
        UL_TRY(ul_scan_int(&parse->scan, &count));
    declare(parse, var,
            &(struct ul_kernel_var){.dtype = UL_I64, .high = count > 0 ? count - 1 : 0});
    return UL_OK;
}

static enum ul_status read_buffer(struct parse *parse, uint32_t *buffer)
{
    UL_TRY(ul_scan_expect(&parse->scan, "b"));
    UL_TRY(ul_scan_u32(&parse->scan, UINT32_MAX, buffer));
    return *buffer < parse->kernel->buffer_count
               ? UL_OK
               : ul_scan_fail(&parse->scan, "a buffer that is declared before this");
}

/* ---- Expressions ---- */

static enum ul_status add_operation(struct parse *parse, const struct ul_kx_data *expr, ul_kx *out)
{
    if (parse->operation_count++ == MAX_OPERATIONS)
        return ul_scan_fail(&parse->scan, "an expression of fewer operations");
    *out = ul_kx_as_is(parse->kernel, expr);
    return ul_kx_agrees(parse->kernel, *out)
               ? UL_OK
               : ul_scan_fail(&parse->scan, "operands of the right types before this");
}

static enum ul_status read_expr(struct parse *parse, uint32_t level, ul_kx *out);

/* 12, -3:i32, 0.5, inf:f64 */
static enum ul_status read_number(struct parse *parse, ul_kx *out)
{
    const char *at = parse->scan.at;
    size_t digits = strspn(at, "-0123456789");
    bool is_float = at[digits] != '\0' && strchr(".ein", at[digits]) != NULL;
    enum ul_dtype dtype = is_float ? UL_F32 : UL_I64;
    int64_t whole = 0;
    double number = 0;
    if (is_float)
        UL_TRY(ul_scan_float(&parse->scan, &number));
    else
        UL_TRY(ul_scan_int(&parse->scan, &whole));
    if (*parse->scan.at == ':') {
        parse->scan.at++;
        UL_TRY(read_compute_dtype(parse, &dtype));
    }
    if (ul_dtype_get(dtype)->is_float != is_float)
        return ul_scan_fail(&parse->scan, "a number of that type before this");
    *out = is_float ? ul_kx_float(parse->kernel, dtype, number)
                    : ul_kx_int(parse->kernel, dtype, whole);
    return UL_OK;
}

/* The type before the operands of a function that has one. */
static enum ul_status read_call_type(struct parse *parse, struct ul_kx_data *expr)
{
    if (expr->op == UL_KX_CAST || expr->op == UL_KX_BITCAST)
        UL_TRY(read_compute_dtype(parse, &expr->dtype));
    else if (expr->op == UL_KX_ROUND_TO) {
        enum ul_dtype storage;
        UL_TRY(read_dtype(parse, &storage));
        expr->imm_int = (int64_t)storage;
        if (ul_scan_accept_word(&parse->scan, "saturate"))
            expr->imm_int |= 256;
    } else {
        return UL_OK;
    }
    return ul_scan_expect(&parse->scan, ",");
}

static enum ul_status read_call(struct parse *parse, enum ul_kx_op op, ul_kx *out)
{
    struct ul_kx_data expr = {.op = op};
    ul_kx operands[3] = {0, 0, 0};
    UL_TRY(ul_scan_expect(&parse->scan, "("));
    UL_TRY(read_call_type(parse, &expr));
    for (uint32_t i = 0; i < ul_kx_operand_count(op); i++) {
        if (i > 0)
            UL_TRY(ul_scan_expect(&parse->scan, ","));
        UL_TRY(read_expr(parse, 0, &operands[i]));
    }
    if (op == UL_KX_INDEX || op == UL_KX_RANDOM) {
        UL_TRY(ul_scan_expect(&parse->scan, ","));
        UL_TRY(ul_scan_int(&parse->scan, &expr.imm_int));
    }
    UL_TRY(ul_scan_expect(&parse->scan, ")"));
    expr.a = operands[0];
    expr.b = operands[1];
    expr.c = operands[2];
    return add_operation(parse, &expr, out);
}

static enum ul_status read_load(struct parse *parse, ul_kx *out)
{
    uint32_t buffer;
    ul_kx index;
    UL_TRY(read_buffer(parse, &buffer));
    UL_TRY(ul_scan_expect(&parse->scan, "["));
    UL_TRY(read_expr(parse, 0, &index));
    UL_TRY(ul_scan_expect(&parse->scan, "]"));
    if (ul_kx_dtype(parse->kernel, index) != UL_I64)
        return ul_scan_fail(&parse->scan, "an index of type i64 before this");
    *out = ul_kx_load(parse->kernel, buffer, index);
    return UL_OK;
}

static enum ul_status read_primary(struct parse *parse, ul_kx *out)
{
    struct ul_scan *scan = &parse->scan;
    enum ul_kx_op op;
    size_t length = 0;
    if (ul_scan_accept(scan, "(")) {
        UL_TRY(read_expr(parse, 0, out));
        return ul_scan_expect(scan, ")");
    }
    while (isalnum((unsigned char)scan->at[length]) || scan->at[length] == '_' ||
           (length == 0 && *scan->at == '!'))
        length++;
    if (ul_kx_op_find(scan->at, length, &op)) {
        scan->at += length;
        return read_call(parse, op, out);
    }
    if (*scan->at == 'b')
        return read_load(parse, out);
    if (*scan->at != '\0' && strchr("-0123456789in", *scan->at) != NULL)
        return read_number(parse, out);
    uint32_t var;
    if (*scan->at != 'v')
        return ul_scan_fail(scan, "an operand");
    UL_TRY(read_var(parse, &var));
    *out = ul_kx_var(parse->kernel, var);
    return UL_OK;
}

/* Accepts the infix operation at the cursor, of at least this level, and goes past it. */
static bool accept_infix(struct parse *parse, uint32_t level, enum ul_kx_op *out)
{
    ul_scan_skip_blanks(&parse->scan);
    size_t length = strspn(parse->scan.at, "+-*/%&|^<>=!");
    for (enum ul_kx_op op = UL_KX_ADD; op <= UL_KX_NE; op++) {
        const struct ul_kx_op_info *info = ul_kx_op_get(op);
        if (info->symbol == NULL || info->level < level || strlen(info->symbol) != length ||
            memcmp(info->symbol, parse->scan.at, length) != 0)
            continue;
        parse->scan.at += length;
        *out = op;
        return true;
    }
    return false;
}

static enum ul_status read_infix(struct parse *parse, uint32_t level, ul_kx *out)
{
    enum ul_kx_op op = UL_KX_ADD;
    UL_TRY(read_primary(parse, out));
    while (accept_infix(parse, level, &op)) {
        struct ul_kx_data expr = {.op = op, .a = *out};
        UL_TRY(read_expr(parse, ul_kx_op_get(op)->level + 1, &expr.b));
        UL_TRY(add_operation(parse, &expr, out));
    }
    return UL_OK;
}

static enum ul_status read_expr(struct parse *parse, uint32_t level, ul_kx *out)
{
    if (parse->depth == DEPTH)
        return ul_scan_fail(&parse->scan, "an expression that is nested less deep");
    if (parse->depth++ == 0)
        parse->operation_count = 0;
    ul_scan_skip_blanks(&parse->scan);
    enum ul_status status = read_infix(parse, level, out);
    parse->depth--;
    return status;
}

/* ---- Statements ---- */

static enum ul_status read_list(struct parse *parse, uint32_t indent, ul_ks *first);

/* Whether a line with this indentation begins with the word; if so, goes past it. */
static bool accept_at(struct parse *parse, uint32_t indent, const char *word)
{
    struct ul_scan before = parse->scan;
    if (ul_scan_indent(&before) == indent && ul_scan_accept_word(&parse->scan, word))
        return true;
    parse->scan = before;
    return false;
}

static enum ul_status expect_at(struct parse *parse, uint32_t indent, const char *word)
{
    return accept_at(parse, indent, word) ? UL_OK : ul_scan_fail(&parse->scan, word);
}

static struct ul_ks_data *stmt_of(struct parse *parse, ul_ks id)
{
    return &parse->kernel->stmts[id];
}

static enum ul_status read_attend(struct parse *parse, uint32_t indent, struct ul_attend *attend);

static enum ul_status read_for(struct parse *parse, uint32_t indent, ul_ks id)
{
    struct ul_scan *scan = &parse->scan;
    uint32_t var;
    ul_kx count;
    UL_TRY(read_new_var(parse, &var));
    UL_TRY(ul_scan_expect(scan, "<"));
    UL_TRY(read_expr(parse, 0, &count));
    UL_TRY(declare_index(parse, var, parse->kernel->exprs[count].high));
    uint32_t flags = 0;
    if (ul_scan_accept_word(scan, "parallel"))
        flags |= UL_FOR_PARALLEL;
    if (ul_scan_accept_word(scan, "reduce"))
        flags |= UL_FOR_REDUCE;
    if (ul_scan_accept_word(scan, "launched"))
        flags |= UL_FOR_LAUNCHED;
    if (ul_scan_accept_word(scan, "alone"))
        flags |= UL_FOR_ALONE;
    UL_TRY(ul_scan_end_line(scan));
    ul_ks body;
    UL_TRY(read_list(parse, indent + 2, &body));
    struct ul_ks_data *stmt = stmt_of(parse, id);
    stmt->var = var;
    stmt->value = count;
    stmt->flags = flags;
    stmt->body = body;
    if (!accept_at(parse, indent, "attend"))
        return UL_OK;
    struct ul_attend attend = {0};
    UL_TRY(read_attend(parse, indent, &attend));
    ul_ks_mark_attend(parse->kernel, id, &attend);
    return UL_OK;
}

static enum ul_status read_if(struct parse *parse, uint32_t indent, ul_ks id)
{
    ul_kx condition;
    ul_ks body, orelse = UL_NONE;
    UL_TRY(read_expr(parse, 0, &condition));
    UL_TRY(ul_scan_end_line(&parse->scan));
    UL_TRY(read_list(parse, indent + 2, &body));
    if (accept_at(parse, indent, "else")) {
        UL_TRY(ul_scan_end_line(&parse->scan));
        UL_TRY(read_list(parse, indent + 2, &orelse));
    }
    stmt_of(parse, id)->value = condition;
    stmt_of(parse, id)->body = body;
    stmt_of(parse, id)->orelse = orelse;
    return UL_OK;
}

/* v3 i64 in 0..99 = value */
static enum ul_status read_definition(struct parse *parse, ul_ks id, bool is_mutable)
{
    uint32_t var;
    ul_kx value;
    struct ul_kernel_var info = {.is_mutable = is_mutable};
    bool has_range = false;
    UL_TRY(read_new_var(parse, &var));
    UL_TRY(read_compute_dtype(parse, &info.dtype));
    if (!is_mutable && ul_scan_accept_word(&parse->scan, "in")) {
        has_range = true;
        UL_TRY(ul_scan_int(&parse->scan, &info.low));
        UL_TRY(ul_scan_expect(&parse->scan, ".."));
        UL_TRY(ul_scan_int(&parse->scan, &info.high));
    }
    UL_TRY(ul_scan_expect(&parse->scan, "="));
    UL_TRY(read_expr(parse, 0, &value));
    if (is_mutable) {
        info.low = -UL_KX_RANGE_MAX;
        info.high = UL_KX_RANGE_MAX;
    } else if (!has_range) {
        info.low = parse->kernel->exprs[value].low;
        info.high = parse->kernel->exprs[value].high;
    }
    declare(parse, var, &info);
    stmt_of(parse, id)->var = var;
    stmt_of(parse, id)->value = value;
    return ul_scan_end_line(&parse->scan);
}

static enum ul_status read_set(struct parse *parse, ul_ks id)
{
    uint32_t var;
    ul_kx value;
    UL_TRY(read_var(parse, &var));
    UL_TRY(ul_scan_expect(&parse->scan, "="));
    UL_TRY(read_expr(parse, 0, &value));
    stmt_of(parse, id)->var = var;
    stmt_of(parse, id)->value = value;
    return ul_scan_end_line(&parse->scan);
}

static enum ul_status read_store(struct parse *parse, ul_ks id)
{
    uint32_t buffer;
    ul_kx index, value;
    UL_TRY(read_buffer(parse, &buffer));
    UL_TRY(ul_scan_expect(&parse->scan, "["));
    UL_TRY(read_expr(parse, 0, &index));
    UL_TRY(ul_scan_expect(&parse->scan, "]"));
    UL_TRY(ul_scan_expect(&parse->scan, "="));
    UL_TRY(read_expr(parse, 0, &value));
    stmt_of(parse, id)->buffer = buffer;
    stmt_of(parse, id)->index = index;
    stmt_of(parse, id)->value = value;
    return ul_scan_end_line(&parse->scan);
}

/* ---- Contractions ---- */

/* Reads v1 < 64, v2 < 8: as many as there are, from *count on. */
static enum ul_status read_dims(struct parse *parse, struct ul_contraction *contraction,
                                uint32_t *count)
{
    uint32_t first = contraction->m_count + contraction->n_count + contraction->k_count;
    do {
        uint32_t at = first + *count;
        if (at == UL_CONTRACT_DIMS)
            return ul_scan_fail(&parse->scan, "fewer dimensions");
        UL_TRY(read_new_var(parse, &contraction->vars[at]));
        UL_TRY(ul_scan_expect(&parse->scan, "<"));
        UL_TRY(ul_scan_int(&parse->scan, &contraction->extents[at]));
        UL_TRY(declare_index(parse, contraction->vars[at], contraction->extents[at]));
        ++*count;
    } while (ul_scan_accept(&parse->scan, ","));
    return ul_scan_end_line(&parse->scan);
}

/* base; 64*v1, 1*v2 */
static enum ul_status read_affine(struct parse *parse, const struct ul_contraction *contraction,
                                  struct ul_affine *affine)
{
    uint32_t count = contraction->m_count + contraction->n_count + contraction->k_count;
    UL_TRY(read_expr(parse, 0, &affine->base));
    for (bool more = ul_scan_accept(&parse->scan, ";"); more;
         more = ul_scan_accept(&parse->scan, ",")) {
        int64_t stride;
        uint32_t var, dim = 0;
        UL_TRY(ul_scan_int(&parse->scan, &stride));
        UL_TRY(ul_scan_expect(&parse->scan, "*"));
        UL_TRY(read_var(parse, &var));
        while (dim < count && contraction->vars[dim] != var)
            dim++;
        if (dim == count)
            return ul_scan_fail(&parse->scan, "a variable of the contraction before this");
        affine->strides[dim] = stride;
    }
    return UL_OK;
}

static enum ul_status read_transform(struct parse *parse, struct ul_operand *operand)
{
    struct ul_kernel_var info = {.low = -UL_KX_RANGE_MAX, .high = UL_KX_RANGE_MAX};
    UL_TRY(read_new_var(parse, &operand->loaded));
    UL_TRY(read_compute_dtype(parse, &info.dtype));
    declare(parse, operand->loaded, &info);
    UL_TRY(ul_scan_expect(&parse->scan, "="));
    return read_expr(parse, 0, &operand->transform);
}

static enum ul_status read_packed(struct parse *parse, struct ul_operand *operand)
{
    UL_TRY(read_dtype(parse, &operand->packed));
    if (!ul_dtype_get(operand->packed)->is_integer || ul_dtype_get(operand->packed)->bits >= 8)
        return ul_scan_fail(&parse->scan, "integers of 2 or 4 bits");
    return UL_OK;
}

static enum ul_status read_operand(struct parse *parse, const struct ul_contraction *contraction,
                                   struct ul_operand *operand)
{
    const uint32_t bounds = sizeof operand->bounds / sizeof *operand->bounds;
    UL_TRY(read_buffer(parse, &operand->buffer));
    if (ul_scan_accept_word(&parse->scan, "of"))
        UL_TRY(read_packed(parse, operand));
    UL_TRY(ul_scan_expect(&parse->scan, "["));
    UL_TRY(read_affine(parse, contraction, &operand->at));
    UL_TRY(ul_scan_expect(&parse->scan, "]"));
    while (ul_scan_accept_word(&parse->scan, "where")) {
        if (operand->bound_count == bounds)
            return ul_scan_fail(&parse->scan, "fewer bounds");
        struct ul_operand_bound *bound = &operand->bounds[operand->bound_count++];
        UL_TRY(read_affine(parse, contraction, &bound->at));
        UL_TRY(ul_scan_expect(&parse->scan, "in"));
        UL_TRY(ul_scan_int(&parse->scan, &bound->extent));
    }
    if (operand->bound_count > 0) {
        UL_TRY(ul_scan_expect(&parse->scan, "else"));
        UL_TRY(ul_scan_float(&parse->scan, &operand->outside));
    }
    if (ul_scan_accept_word(&parse->scan, "as"))
        UL_TRY(read_transform(parse, operand));
    return ul_scan_end_line(&parse->scan);
}

/* Reads a contraction from the accumulator on; the values of attention have no a. */
static enum ul_status read_contraction(struct parse *parse, uint32_t indent, bool has_a,
                                       struct ul_contraction *contraction)
{
    *contraction = ul_contraction_blank();
    UL_TRY(read_new_var(parse, &contraction->acc));
    UL_TRY(read_compute_dtype(parse, &contraction->acc_dtype));
    declare(parse, contraction->acc,
            &(struct ul_kernel_var){
                .dtype = contraction->acc_dtype, .low = -UL_KX_RANGE_MAX, .high = UL_KX_RANGE_MAX});
    UL_TRY(ul_scan_end_line(&parse->scan));
    if (accept_at(parse, indent, "m"))
        UL_TRY(read_dims(parse, contraction, &contraction->m_count));
    if (accept_at(parse, indent, "n"))
        UL_TRY(read_dims(parse, contraction, &contraction->n_count));
    if (accept_at(parse, indent, "k"))
        UL_TRY(read_dims(parse, contraction, &contraction->k_count));
    if (has_a) {
        UL_TRY(expect_at(parse, indent, "a"));
        UL_TRY(read_operand(parse, contraction, &contraction->a));
    }
    UL_TRY(expect_at(parse, indent, "b"));
    UL_TRY(read_operand(parse, contraction, &contraction->b));
    if (!accept_at(parse, indent, "then"))
        return UL_OK;
    UL_TRY(ul_scan_end_line(&parse->scan));
    return read_list(parse, indent + 2, &contraction->epilogue);
}

static enum ul_status read_contract(struct parse *parse, uint32_t indent, ul_ks id)
{
    struct ul_contraction contraction;
    UL_TRY(read_contraction(parse, indent + 2, true, &contraction));
    stmt_of(parse, id)->contraction = ul_kernel_add_contraction(parse->kernel, &contraction);
    return UL_OK;
}

static enum ul_status read_part(struct parse *parse, uint32_t indent, struct ul_attend *attend)
{
    uint32_t part = attend->part_count;
    if (part == (attend->kind == UL_ATTEND_RESULT ? UL_ATTEND_PARTS : 1))
        return ul_scan_fail(&parse->scan, "fewer parts");
    attend->part_count++;
    UL_TRY(ul_scan_int(&parse->scan, &attend->key_counts[part]));
    UL_TRY(ul_scan_end_line(&parse->scan));
    UL_TRY(expect_at(parse, indent + 2, "scores"));
    UL_TRY(read_contraction(parse, indent + 4, true, &attend->scores[part]));
    attend->has_slopes = attend->kind != UL_ATTEND_RESULT && accept_at(parse, indent + 2, "slopes");
    if (attend->has_slopes)
        UL_TRY(read_contraction(parse, indent + 4, true, &attend->scores[1]));
    UL_TRY(expect_at(parse, indent + 2, "values"));
    UL_TRY(read_contraction(parse, indent + 4, false, &attend->values[part]));
    attend->has_shares = attend->kind == UL_ATTEND_SUM && accept_at(parse, indent + 2, "values");
    return attend->has_shares ? read_contraction(parse, indent + 4, false, &attend->values[1])
                              : UL_OK;
}

/* Reads the statements that store the norm of a query. */
static enum ul_status read_norms(struct parse *parse, uint32_t indent, struct ul_attend *attend)
{
    attend->has_norms = attend->kind == UL_ATTEND_RESULT && accept_at(parse, indent, "norms");
    if (!attend->has_norms)
        return UL_OK;
    UL_TRY(read_new_var(parse, &attend->norm_query));
    UL_TRY(declare_index(parse, attend->norm_query, attend->queries));
    UL_TRY(read_new_var(parse, &attend->norm));
    declare(parse, attend->norm,
            &(struct ul_kernel_var){.dtype = attend->scores[0].acc_dtype,
                                    .low = -UL_KX_RANGE_MAX,
                                    .high = UL_KX_RANGE_MAX});
    UL_TRY(ul_scan_end_line(&parse->scan));
    return read_list(parse, indent + 2, &attend->norms);
}

/* Reads the score of a query and a key, its factor, and the weight of the second result. */
static enum ul_status read_weights(struct parse *parse, uint32_t indent, struct ul_attend *attend)
{
    UL_TRY(expect_at(parse, indent, "score"));
    UL_TRY(read_expr(parse, 0, &attend->score));
    UL_TRY(ul_scan_end_line(&parse->scan));
    attend->factor = UL_NONE;
    if (accept_at(parse, indent, "factor")) {
        UL_TRY(read_expr(parse, 0, &attend->factor));
        UL_TRY(ul_scan_end_line(&parse->scan));
    }
    if (!attend->has_shares)
        return UL_OK;
    UL_TRY(expect_at(parse, indent, "share"));
    UL_TRY(read_expr(parse, 0, &attend->share));
    return ul_scan_end_line(&parse->scan);
}

static enum ul_status read_attend(struct parse *parse, uint32_t indent, struct ul_attend *attend)
{
    struct ul_scan *scan = &parse->scan;
    const struct {
        const char *key;
        int64_t *value;
    } numbers[] = {{"queries=", &attend->queries},
                   {"keys=", &attend->keys},
                   {"size=", &attend->size},
                   {"value_size=", &attend->value_size},
                   {"reach=", &attend->reach}};
    attend->kind = ul_scan_accept_word(scan, "statistics") ? UL_ATTEND_STATISTICS
                   : ul_scan_accept_word(scan, "sum")      ? UL_ATTEND_SUM
                   : ul_scan_accept_word(scan, "each")     ? UL_ATTEND_EACH
                                                           : UL_ATTEND_RESULT;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        UL_TRY(ul_scan_expect(scan, numbers[i].key));
        UL_TRY(ul_scan_int(scan, numbers[i].value));
    }
    if (ul_scan_accept_word(scan, "empty_is_zero"))
        attend->empty = UL_EMPTY_IS_ZERO;
    else if (ul_scan_accept_word(scan, "nan_is_zero"))
        attend->empty = UL_NAN_IS_ZERO;
    attend->rounds_weights = ul_scan_accept_word(scan, "rounds_weights");
    attend->is_turned = ul_scan_accept_word(scan, "turned");
    if (ul_scan_accept(scan, "rounds=")) {
        UL_TRY(ul_scan_int(scan, &attend->rounds));
        UL_TRY(read_new_var(parse, &attend->round_var));
        UL_TRY(declare_index(parse, attend->round_var, attend->rounds));
    }
    UL_TRY(ul_scan_end_line(scan));
    while (accept_at(parse, indent + 2, "part"))
        UL_TRY(read_part(parse, indent + 2, attend));
    UL_TRY(expect_at(parse, indent + 2, "before"));
    UL_TRY(ul_scan_end_line(scan));
    UL_TRY(read_list(parse, indent + 4, &attend->before));
    UL_TRY(read_weights(parse, indent + 2, attend));
    return read_norms(parse, indent + 2, attend);
}

/* ---- Lists ---- */

static ul_ks add(struct parse *parse, ul_ks *last, enum ul_ks_kind kind)
{
    UL_GROW(parse->kernel->arena, parse->lines, parse->line_count, parse->line_capacity);
    parse->lines[parse->line_count++] = parse->scan.line;
    return ul_ks_link(parse->kernel, last, kind, UL_NONE, UL_NONE);
}

static enum ul_status read_statement(struct parse *parse, uint32_t indent, ul_ks *last)
{
    struct ul_scan *scan = &parse->scan;
    if (ul_scan_accept_word(scan, "for"))
        return read_for(parse, indent, add(parse, last, UL_KS_FOR));
    if (ul_scan_accept_word(scan, "if"))
        return read_if(parse, indent, add(parse, last, UL_KS_IF));
    if (ul_scan_accept_word(scan, "let"))
        return read_definition(parse, add(parse, last, UL_KS_LET), false);
    if (ul_scan_accept_word(scan, "var"))
        return read_definition(parse, add(parse, last, UL_KS_VAR), true);
    if (ul_scan_accept_word(scan, "contract"))
        return read_contract(parse, indent, add(parse, last, UL_KS_CONTRACT));
    if (ul_scan_accept_word(scan, "break")) {
        add(parse, last, UL_KS_BREAK);
        return ul_scan_end_line(scan);
    }
    if (*scan->at == 'v')
        return read_set(parse, add(parse, last, UL_KS_SET));
    if (*scan->at == 'b')
        return read_store(parse, add(parse, last, UL_KS_STORE));
    return ul_scan_fail(scan, "a statement");
}

/* Reads the lines with this indentation; the first one is UL_NONE where there is none. */
static enum ul_status read_list(struct parse *parse, uint32_t indent, ul_ks *first)
{
    ul_ks last = UL_NONE;
    *first = UL_NONE;
    if (indent > 2 * UL_LIMIT_NESTING)
        return ul_scan_fail(&parse->scan, "statements that are nested less deep");
    while (*parse->scan.at != '\0' && ul_scan_indent(&parse->scan) == indent) {
        const char *at = parse->scan.at + indent;
        if (strncmp(at, "else", 4) == 0 || strncmp(at, "attend", 6) == 0)
            break;
        uint32_t next = parse->kernel->stmt_count;
        parse->scan.at = at;
        UL_TRY(read_statement(parse, indent, &last));
        *first = *first == UL_NONE ? next : *first;
    }
    return UL_OK;
}

/* input b0 f32[64] value=%3 view=%5 offset=128, after the role. */
static enum ul_status read_declaration(struct parse *parse, enum ul_buffer_role role)
{
    struct ul_scan *scan = &parse->scan;
    uint32_t id = UL_NONE;
    enum ul_dtype dtype;
    int64_t count;
    UL_TRY(ul_scan_expect(scan, "b"));
    UL_TRY(ul_scan_u32(scan, UINT32_MAX, &id));
    if (id != parse->kernel->buffer_count)
        return ul_scan_fail(scan, "the next number of a buffer before this");
    UL_TRY(read_dtype(parse, &dtype));
    UL_TRY(ul_scan_expect(scan, "["));
    UL_TRY(ul_scan_int(scan, &count));
    UL_TRY(ul_scan_expect(scan, "]"));
    if (count < 0 || (uint64_t)count > UL_LIMIT_TENSOR_BYTES)
        return ul_scan_fail(scan, "a number of elements within the limits before this");
    ul_kernel_add_buffer(parse->kernel, role, dtype, (uint64_t)count);
    struct ul_buffer *buffer = &parse->kernel->buffers[id];
    if (ul_scan_accept(scan, "value=%"))
        UL_TRY(ul_scan_u32(scan, UL_NONE, &buffer->value));
    buffer->view = buffer->value;
    if (ul_scan_accept(scan, "view=%"))
        UL_TRY(ul_scan_u32(scan, UL_NONE, &buffer->view));
    if (ul_scan_accept(scan, "offset="))
        UL_TRY(ul_scan_int(scan, &buffer->offset_bytes));
    return ul_scan_end_line(scan);
}

static enum ul_status verify(struct parse *parse)
{
    ul_ks broken;
    char line[32];
    struct ul_diag *diag = parse->scan.diag;
    enum ul_status status = ul_kernel_verify(parse->kernel, parse->kernel->arena, &broken, diag);
    if (status == UL_OK || broken == UL_NONE)
        return status;
    UL_ASSERT(broken < parse->line_count);
    snprintf(line, sizeof line, "line %u", parse->lines[broken]);
    ul_diag_prefix(diag, line);
    return status;
}

static enum ul_status read_kernel(struct parse *parse)
{
    static const struct {
        const char *word;
        enum ul_buffer_role role;
    } roles[] = {{"input", UL_BUFFER_INPUT},
                 {"output", UL_BUFFER_OUTPUT},
                 {"scratch", UL_BUFFER_SCRATCH},
                 {"local", UL_BUFFER_LOCAL}};
    enum { ROLES = sizeof roles / sizeof *roles };
    struct ul_scan *scan = &parse->scan;
    UL_TRY(ul_scan_expect(scan, "kernel"));
    UL_TRY(ul_scan_end_line(scan));
    for (size_t i = 0; i < ROLES;) {
        if (accept_at(parse, 0, roles[i].word)) {
            UL_TRY(read_declaration(parse, roles[i].role));
            i = 0;
        } else {
            i++;
        }
    }
    UL_TRY(read_list(parse, 0, &parse->kernel->first));
    if (*scan->at != '\0')
        return ul_scan_fail(scan, "a statement of this block");
    return verify(parse);
}

enum ul_status ul_kernel_parse(struct ul_kernel *kernel, struct ul_arena *arena, const char *text,
                               struct ul_diag *diag)
{
    enum { SPARE_IDS = 1 << 16 };
    struct parse parse = {.kernel = kernel, .id_limit = strlen(text) + SPARE_IDS};
    if (parse.id_limit > UL_NONE)
        parse.id_limit = UL_NONE;
    ul_kernel_init(kernel, arena);
    ul_scan_init(&parse.scan, arena, text, diag);
    return read_kernel(&parse);
}

enum ul_status ul_kernel_check_text(const struct ul_kernel *kernel, struct ul_arena *scratch,
                                    struct ul_diag *diag)
{
    struct ul_kernel again;
    struct ul_text first, second;
    ul_text_init(&first, scratch);
    ul_text_init(&second, scratch);
    ul_kernel_print(&first, kernel);
    UL_TRY(ul_kernel_parse(&again, scratch, first.data, diag));
    ul_kernel_print(&second, &again);
    if (strcmp(first.data, second.data) == 0)
        return UL_OK;
    return ul_diag_set(diag, UL_INTERNAL, "the kernel's text does not survive a round trip");
}

void ul_kernel_verify_or_die(const struct ul_kernel *kernel, bool check_text,
                             struct ul_arena *scratch, const char *maker)
{
    struct ul_diag diag = {.status = UL_OK};
    enum ul_status status = ul_kernel_verify(kernel, scratch, NULL, &diag);
    if (status == UL_OK && check_text)
        status = ul_kernel_check_text(kernel, scratch, &diag);
    if (status == UL_OK)
        return;
    ul_diag_prefix(&diag, maker);
    ul_assert_fail(diag.text, __FILE__, __LINE__);
}
