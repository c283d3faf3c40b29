/* A kernel as C99.
 *
 * Every statement becomes a line or a loop; expressions are printed nested, since the lowering
 * names what is used twice. Integer arithmetic goes through the runtime's helpers where it could
 * overflow; index arithmetic, whose range is known, is plain. Loops whose iterations are
 * independent and which hold no other loop are marked for the vectoriser. */
#include "codegen/codegen.h"

#include "codegen/contract.h"
#include "codegen/threads.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

struct printer {
    struct ul_text *text;
    const struct ul_kernel *kernel;
    bool *used;                       /* variables that something reads */
    ul_ks *definitions;               /* variable -> first LET or VAR, to follow uses */
    const struct ul_threads *threads; /* NULL: one */
    const struct ul_region *region;   /* that is being printed, or NULL */
    uint64_t *offsets_bytes;          /* of scratch buffers in the step's scratch, or a thread's */
    uint64_t own_offset_bytes;        /* of the first thread's scratch */
    uint64_t own_bytes;               /* of each thread's; rounded up where there are more */
    uint64_t contract_offset_bytes;   /* in a thread's */
    uint64_t scratch_bytes;
};

static const char *storage_type(enum ul_dtype dtype)
{
    switch (dtype) {
    case UL_F32:
        return "float";
    case UL_F64:
        return "double";
    case UL_U8:
    case UL_U4:
    case UL_BOOL:
    case UL_F8E4M3FN:
    case UL_F8E4M3FNUZ:
    case UL_F8E5M2:
    case UL_F8E5M2FNUZ:
        return "uint8_t";
    case UL_I8:
    case UL_I4:
        return "int8_t";
    case UL_U16:
    case UL_F16:
    case UL_BF16:
        return "uint16_t";
    case UL_I16:
        return "int16_t";
    case UL_I32:
        return "int32_t";
    case UL_U32:
        return "uint32_t";
    case UL_I64:
        return "int64_t";
    case UL_U64:
        return "uint64_t";
    case UL_DTYPE_NONE:
    case UL_STRING:
    case UL_C64:
    case UL_C128:
    case UL_F4E2M1:
    case UL_DTYPE_COUNT:
        break;
    }
    return NULL;
}

/* Truth values are int, so that comparisons convert to nothing. */
static const char *compute_type(enum ul_dtype dtype)
{
    return dtype == UL_BOOL ? "int" : storage_type(dtype);
}

/* "i32" and the like: the tag of the runtime's helpers. */
static const char *tag(enum ul_dtype dtype)
{
    return ul_dtype_get(dtype)->name;
}

static bool is_float(enum ul_dtype dtype)
{
    return dtype == UL_F32 || dtype == UL_F64;
}

static void put_expr(struct printer *printer, ul_kx id);

static void put_int(struct printer *printer, enum ul_dtype dtype, int64_t value)
{
    struct ul_text *text = printer->text;
    if (dtype == UL_U64)
        ul_text_printf(text, "UINT64_C(%" PRIu64 ")", (uint64_t)value);
    else if (dtype == UL_U32 || dtype == UL_U8 || dtype == UL_U16)
        ul_text_printf(text, "%" PRIu32 "u", (uint32_t)value);
    else if (value == INT64_MIN)
        ul_text_put(text, "INT64_MIN");
    else if (value == INT32_MIN)
        ul_text_put(text, "INT32_MIN");
    else if (value > INT32_MAX || value < INT32_MIN)
        ul_text_printf(text, value < 0 ? "(-INT64_C(%" PRId64 "))" : "INT64_C(%" PRId64 ")",
                       value < 0 ? -value : value);
    else
        ul_text_printf(text, value < 0 ? "(%" PRId64 ")" : "%" PRId64, value);
}

static void put_float(struct printer *printer, enum ul_dtype dtype, double value)
{
    struct ul_text *text = printer->text;
    const char *suffix = dtype == UL_F32 ? "f" : "";
    const char *cast = dtype == UL_F32 ? "" : "(double)";
    if (isnan(value)) {
        ul_text_printf(text, "%sNAN", cast);
    } else if (isinf(value)) {
        ul_text_printf(text, value < 0 ? "(-%sINFINITY)" : "%sINFINITY", cast);
    } else {
        char digits[64];
        snprintf(digits, sizeof digits, dtype == UL_F32 ? "%.9g" : "%.17g", value);
        bool plain = strpbrk(digits, ".e") == NULL;
        ul_text_printf(text, signbit(value) ? "(%s%s%s)" : "%s%s%s", digits, plain ? ".0" : "",
                       suffix);
    }
}

static void put_call(struct printer *printer, const char *function, ul_kx a, ul_kx b)
{
    ul_text_printf(printer->text, "%s(", function);
    put_expr(printer, a);
    if (b != UL_NONE) {
        ul_text_put(printer->text, ", ");
        put_expr(printer, b);
    }
    ul_text_put(printer->text, ")");
}

/* helper_tag(a, b) */
static void put_helper(struct printer *printer, const char *helper, enum ul_dtype dtype, ul_kx a,
                       ul_kx b)
{
    char name[48];
    snprintf(name, sizeof name, "ul_%s_%s", helper, tag(dtype));
    put_call(printer, name, a, b);
}

static void put_infix(struct printer *printer, const char *symbol, ul_kx a, ul_kx b)
{
    ul_text_put(printer->text, "(");
    put_expr(printer, a);
    ul_text_printf(printer->text, " %s ", symbol);
    put_expr(printer, b);
    ul_text_put(printer->text, ")");
}

/* The decoding function of a small float, or NULL. */
static const char *decoder(enum ul_dtype dtype)
{
    switch ((int)dtype) {
    case UL_F16:
        return "ul_f16_to_f32";
    case UL_BF16:
        return "ul_bf16_to_f32";
    case UL_F8E4M3FN:
        return "ul_f8e4m3fn_to_f32";
    case UL_F8E4M3FNUZ:
        return "ul_f8e4m3fnuz_to_f32";
    case UL_F8E5M2:
        return "ul_f8e5m2_to_f32";
    case UL_F8E5M2FNUZ:
        return "ul_f8e5m2fnuz_to_f32";
    default:
        return NULL;
    }
}

/* Opens a call of the encoding function; the text after the argument closes it. */
static const char *put_encoder(struct printer *printer, enum ul_dtype dtype, bool saturate)
{
    if (dtype == UL_F16 || dtype == UL_BF16) {
        ul_text_printf(printer->text, "ul_f32_to_%s(", dtype == UL_F16 ? "f16" : "bf16");
        return ")";
    }
    const char *name = decoder(dtype); /* ul_<name>_to_f32 */
    UL_ASSERT(name != NULL);
    ul_text_printf(printer->text, "ul_f32_to_%.*s(", (int)(strlen(name) - strlen("ul__to_f32")),
                   name + strlen("ul_"));
    return saturate ? ", 1)" : ", 0)";
}

static void put_load_text(struct printer *printer, uint32_t buffer, const char *index)
{
    enum ul_dtype dtype = printer->kernel->buffers[buffer].dtype;
    const char *decode = decoder(dtype);
    if (decode != NULL)
        ul_text_printf(printer->text, "%s(b%u[%s])", decode, buffer, index);
    else
        ul_text_printf(printer->text, "b%u[%s]", buffer, index);
}

static void put_load(struct printer *printer, const struct ul_kx_data *expr)
{
    const char *decode = decoder(printer->kernel->buffers[expr->var].dtype);
    if (decode != NULL)
        ul_text_printf(printer->text, "%s(", decode);
    ul_text_printf(printer->text, "b%u[", expr->var);
    put_expr(printer, expr->a);
    ul_text_put(printer->text, decode != NULL ? "])" : "]");
}

static void put_cast(struct printer *printer, const struct ul_kx_data *expr)
{
    enum ul_dtype from = ul_kx_dtype(printer->kernel, expr->a);
    struct ul_text *text = printer->text;
    if (is_float(from) && !is_float(expr->dtype)) {
        char name[48];
        enum ul_dtype to = expr->dtype == UL_U4   ? UL_U8
                           : expr->dtype == UL_I4 ? UL_I8
                                                  : expr->dtype;
        snprintf(name, sizeof name, "ul_%s_to_%s", tag(from), to == UL_BOOL ? "bool" : tag(to));
        put_call(printer, name, expr->a, UL_NONE);
        return;
    }
    if (expr->dtype == UL_BOOL || expr->dtype == UL_U4 || expr->dtype == UL_I4) {
        ul_text_put(text, expr->dtype == UL_I4 ? "((((int32_t)" : "((");
        put_expr(printer, expr->a);
        ul_text_put(text, expr->dtype == UL_BOOL ? ") != 0)"
                          : expr->dtype == UL_U4 ? ") & 15u)"
                                                 : " & 15) ^ 8) - 8)");
        return;
    }
    ul_text_printf(text, "(%s)", compute_type(expr->dtype));
    put_expr(printer, expr->a);
}

static void put_bitcast(struct printer *printer, const struct ul_kx_data *expr)
{
    enum ul_dtype from = ul_kx_dtype(printer->kernel, expr->a);
    if (is_float(from) == is_float(expr->dtype)) {
        ul_text_printf(printer->text, "(%s)", compute_type(expr->dtype));
        put_expr(printer, expr->a);
        return;
    }
    const char *width = ul_dtype_get(from)->size_bytes == 4 ? "32" : "64";
    if (is_float(from))
        ul_text_printf(printer->text, "(%s)ul_f%s_bits(", compute_type(expr->dtype), width);
    else
        ul_text_printf(printer->text, "ul_f%s_from_bits((uint%s_t)", width, width);
    put_expr(printer, expr->a);
    ul_text_put(printer->text, ")");
}

static void put_round_to(struct printer *printer, const struct ul_kx_data *expr)
{
    enum ul_dtype storage = (enum ul_dtype)(expr->imm_int & 255);
    bool saturate = (expr->imm_int & 256) != 0;
    ul_text_printf(printer->text, "%s(", decoder(storage));
    bool clamp = saturate && (storage == UL_F16 || storage == UL_BF16);
    const char *close = put_encoder(printer, storage, saturate);
    if (clamp)
        ul_text_put(printer->text, "ul_min_f32(ul_max_f32(");
    put_expr(printer, expr->a);
    if (clamp)
        ul_text_printf(printer->text, ", -%.9gf), %.9gf)", ul_dtype_largest(storage),
                       ul_dtype_largest(storage));
    ul_text_printf(printer->text, "%s)", close);
}

/* The C function of a one-operand function, by type; NULL where it is no function. */
static const char *function_of(enum ul_kx_op op, enum ul_dtype dtype)
{
    static const struct {
        enum ul_kx_op op;
        const char *f32, *f64;
    } functions[] = {
        {UL_KX_ABS, "fabsf", "fabs"},
        {UL_KX_SQRT, "sqrtf", "sqrt"},
        {UL_KX_EXP, "ul_exp_f32", "exp"},
        {UL_KX_EXPM1, "expm1f", "expm1"},
        {UL_KX_LOG, "ul_log_f32", "log"},
        {UL_KX_LOG1P, "log1pf", "log1p"},
        {UL_KX_SIN, "sinf", "sin"},
        {UL_KX_COS, "cosf", "cos"},
        {UL_KX_TAN, "tanf", "tan"},
        {UL_KX_ASIN, "asinf", "asin"},
        {UL_KX_ACOS, "acosf", "acos"},
        {UL_KX_ATAN, "atanf", "atan"},
        {UL_KX_SINH, "sinhf", "sinh"},
        {UL_KX_COSH, "coshf", "cosh"},
        {UL_KX_TANH, "ul_tanh_f32", "tanh"},
        {UL_KX_ASINH, "asinhf", "asinh"},
        {UL_KX_ACOSH, "acoshf", "acosh"},
        {UL_KX_ATANH, "atanhf", "atanh"},
        {UL_KX_ERF, "ul_erf_f32", "erf"},
        {UL_KX_FLOOR, "floorf", "floor"},
        {UL_KX_CEIL, "ceilf", "ceil"},
        {UL_KX_TRUNC, "truncf", "trunc"},
        {UL_KX_ROUND, "ul_round_even_f32", "ul_round_even_f64"},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (functions[i].op == op)
            return dtype == UL_F32 ? functions[i].f32 : functions[i].f64;
    }
    return NULL;
}

static void put_unary(struct printer *printer, const struct ul_kx_data *expr)
{
    enum ul_dtype from = ul_kx_dtype(printer->kernel, expr->a);
    struct ul_text *text = printer->text;
    if (expr->op == UL_KX_ISNAN || expr->op == UL_KX_ISINF) {
        ul_text_put(text, !is_float(from)           ? "(0 * (int)"
                          : expr->op == UL_KX_ISNAN ? "(isnan("
                                                    : "(isinf(");
        put_expr(printer, expr->a);
        ul_text_put(text, is_float(from) ? ") != 0)" : ")");
        return;
    }
    if (is_float(from) && expr->op != UL_KX_NEG) {
        const char *function = function_of(expr->op, from);
        UL_ASSERT(function != NULL);
        put_call(printer, function, expr->a, UL_NONE);
        return;
    }
    if (expr->op == UL_KX_NOT || expr->op == UL_KX_BITNOT || is_float(from)) {
        ul_text_put(text, expr->op == UL_KX_NOT ? "(!" : expr->op == UL_KX_BITNOT ? "(~" : "(-");
        put_expr(printer, expr->a);
        ul_text_put(text, ")");
        return;
    }
    if (from != UL_BOOL && (expr->op == UL_KX_ABS || expr->op == UL_KX_NEG))
        put_helper(printer, expr->op == UL_KX_ABS ? "abs" : "neg", from, expr->a, UL_NONE);
    else
        put_expr(printer, expr->a); /* rounding an integer changes nothing */
}

/* Index arithmetic: the range is known to stay far from overflow. */
static bool is_plain(const struct printer *printer, const struct ul_kx_data *expr)
{
    static const int64_t far = (int64_t)1 << 61;
    const struct ul_kx_data *a = &printer->kernel->exprs[expr->a];
    const struct ul_kx_data *b = &printer->kernel->exprs[expr->b];
    bool bounded = a->low > -far && a->high < far && b->low > -far && b->high < far &&
                   expr->low > -far && expr->high < far;
    if (expr->dtype != UL_I64 || !bounded)
        return false;
    if (expr->op == UL_KX_MOD)
        return a->low >= 0 && b->low > 0;
    return expr->op != UL_KX_DIV || b->low > 0;
}

static const char *infix_of(enum ul_kx_op op, enum ul_dtype from)
{
    switch ((int)op) {
    case UL_KX_ADD:
        return "+";
    case UL_KX_SUB:
        return "-";
    case UL_KX_MUL:
        return "*";
    case UL_KX_DIV:
        return "/";
    case UL_KX_MOD:
        return is_float(from) ? NULL : "%";
    case UL_KX_AND:
        return from == UL_BOOL ? "&&" : "&";
    case UL_KX_OR:
        return from == UL_BOOL ? "||" : "|";
    case UL_KX_XOR:
        return from == UL_BOOL ? "!=" : "^";
    case UL_KX_LT:
        return "<";
    case UL_KX_LE:
        return "<=";
    case UL_KX_EQ:
        return "==";
    case UL_KX_NE:
        return "!=";
    default:
        return NULL;
    }
}

static const char *helper_of(enum ul_kx_op op)
{
    switch ((int)op) {
    case UL_KX_ADD:
        return "add";
    case UL_KX_SUB:
        return "sub";
    case UL_KX_MUL:
        return "mul";
    case UL_KX_DIV:
        return "div";
    case UL_KX_MOD:
        return "mod";
    case UL_KX_FMOD:
        return "fmod";
    case UL_KX_MIN:
        return "min";
    case UL_KX_MAX:
        return "max";
    case UL_KX_POW:
        return "pow";
    case UL_KX_SHL:
        return "shl";
    case UL_KX_SHR:
        return "shr";
    default:
        return NULL;
    }
}

static bool is_exact(enum ul_kx_op op)
{
    return op >= UL_KX_AND && op <= UL_KX_NE && op != UL_KX_SHL && op != UL_KX_SHR;
}

static void put_binary(struct printer *printer, const struct ul_kx_data *expr)
{
    enum ul_dtype from = ul_kx_dtype(printer->kernel, expr->a);
    const char *infix = infix_of(expr->op, from);
    if (expr->op == UL_KX_ATAN2) {
        put_call(printer, from == UL_F32 ? "atan2f" : "atan2", expr->a, expr->b);
        return;
    }
    if (is_float(from) && expr->op == UL_KX_POW) {
        put_call(printer, from == UL_F32 ? "powf" : "pow", expr->a, expr->b);
        return;
    }
    if (is_float(from) && expr->op == UL_KX_FMOD) {
        put_call(printer, from == UL_F32 ? "fmodf" : "fmod", expr->a, expr->b);
        return;
    }
    bool plain = is_float(from) || is_exact(expr->op) || is_plain(printer, expr);
    if (infix != NULL && plain) {
        put_infix(printer, infix, expr->a, expr->b);
        return;
    }
    put_helper(printer, helper_of(expr->op), from == UL_BOOL ? UL_I32 : from, expr->a, expr->b);
}

static void put_select(struct printer *printer, const struct ul_kx_data *expr)
{
    ul_text_put(printer->text, "(");
    put_expr(printer, expr->a);
    ul_text_put(printer->text, " ? ");
    put_expr(printer, expr->b);
    ul_text_put(printer->text, " : ");
    put_expr(printer, expr->c);
    ul_text_put(printer->text, ")");
}

static void put_expr(struct printer *printer, ul_kx id)
{
    const struct ul_kx_data *expr = &printer->kernel->exprs[id];
    struct ul_text *text = printer->text;
    switch ((int)expr->op) {
    case UL_KX_INT:
        put_int(printer, expr->dtype, expr->imm_int);
        return;
    case UL_KX_FLOAT:
        put_float(printer, expr->dtype, expr->imm_float);
        return;
    case UL_KX_VAR:
        ul_text_printf(text, "v%u", expr->var);
        return;
    case UL_KX_LOAD:
        put_load(printer, expr);
        return;
    case UL_KX_CAST:
        put_cast(printer, expr);
        return;
    case UL_KX_BITCAST:
        put_bitcast(printer, expr);
        return;
    case UL_KX_ROUND_TO:
        put_round_to(printer, expr);
        return;
    case UL_KX_SELECT:
        put_select(printer, expr);
        return;
    case UL_KX_INDEX:
        ul_text_put(text, "ul_bound(run, ");
        put_expr(printer, expr->a);
        ul_text_printf(text, ", %" PRId64 ")", expr->imm_int);
        return;
    case UL_KX_RANDOM:
        ul_text_printf(text, "ul_random_draw(UINT64_C(%" PRIu64 "), 0, 0, ",
                       (uint64_t)expr->imm_int);
        put_expr(printer, expr->a);
        ul_text_put(text, ").words[0]");
        return;
    case UL_KX_FMA:
        ul_text_put(text, "(");
        put_infix(printer, "*", expr->a, expr->b);
        ul_text_put(text, " + ");
        put_expr(printer, expr->c);
        ul_text_put(text, ")");
        return;
    default:
        break;
    }
    if (expr->op < UL_KX_ADD)
        put_unary(printer, expr);
    else
        put_binary(printer, expr);
}

/* What is used: variables that stores, conditions and counts read, and what those are made of. */

static void use_expr(struct printer *printer, ul_kx id);

static void use_var(struct printer *printer, uint32_t var)
{
    if (printer->used[var])
        return;
    printer->used[var] = true;
    const struct ul_kernel *kernel = printer->kernel;
    for (ul_ks id = 0; kernel->vars[var].is_mutable && id < kernel->stmt_count; id++) {
        const struct ul_ks_data *stmt = &kernel->stmts[id];
        if ((stmt->kind == UL_KS_SET || stmt->kind == UL_KS_VAR) && stmt->var == var)
            use_expr(printer, stmt->value);
    }
    if (printer->definitions[var] != UL_NONE)
        use_expr(printer, kernel->stmts[printer->definitions[var]].value);
}

static void use_expr(struct printer *printer, ul_kx id)
{
    if (id == UL_NONE)
        return;
    const struct ul_kx_data *expr = &printer->kernel->exprs[id];
    if (expr->op == UL_KX_INT || expr->op == UL_KX_FLOAT)
        return;
    if (expr->op == UL_KX_VAR) {
        use_var(printer, expr->var);
        return;
    }
    use_expr(printer, expr->a);
    if (ul_kx_operand_count(expr->op) >= 2)
        use_expr(printer, expr->b);
    if (ul_kx_operand_count(expr->op) == 3)
        use_expr(printer, expr->c);
}

static void find_used(struct printer *printer)
{
    const struct ul_kernel *kernel = printer->kernel;
    memset(printer->definitions, 0xFF, kernel->var_count * sizeof *printer->definitions);
    for (ul_ks id = 0; id < kernel->stmt_count; id++) {
        if (kernel->stmts[id].kind == UL_KS_LET)
            printer->definitions[kernel->stmts[id].var] = id;
    }
    for (ul_ks id = 0; id < kernel->stmt_count; id++) {
        const struct ul_ks_data *stmt = &kernel->stmts[id];
        if (stmt->kind == UL_KS_LET || stmt->kind == UL_KS_SET || stmt->kind == UL_KS_VAR)
            continue;
        use_expr(printer, stmt->value);
        use_expr(printer, stmt->index);
    }
    for (uint32_t i = 0; i < kernel->contraction_count; i++) {
        const struct ul_contraction *contraction = &kernel->contractions[i];
        const struct ul_operand *operands[2] = {&contraction->a, &contraction->b};
        for (uint32_t k = 0; k < 2; k++) {
            use_expr(printer, operands[k]->at.base);
            use_expr(printer, operands[k]->transform);
            for (uint32_t b = 0; b < operands[k]->bound_count; b++)
                use_expr(printer, operands[k]->bounds[b].at.base);
        }
    }
}

/* Statements */

static void put_list(struct printer *printer, ul_ks first, uint32_t indent);

static void put_indent(struct printer *printer, uint32_t indent)
{
    ul_text_printf(printer->text, "%*s", (int)(4 * indent), "");
}

static void put_store(struct printer *printer, const struct ul_ks_data *stmt)
{
    enum ul_dtype dtype = printer->kernel->buffers[stmt->buffer].dtype;
    ul_text_printf(printer->text, "b%u[", stmt->buffer);
    put_expr(printer, stmt->index);
    ul_text_put(printer->text, "] = ");
    const char *close = "";
    if (decoder(dtype) != NULL) {
        close = put_encoder(printer, dtype, false);
    } else if (ul_compute_dtype(dtype) != dtype || dtype == UL_BOOL) {
        ul_text_printf(printer->text, "(%s)(", storage_type(dtype));
        close = ")";
    }
    put_expr(printer, stmt->value);
    ul_text_printf(printer->text, "%s;\n", close);
}

/* for (int64_t v = first; v < last; v++) { body } */
static void put_loop(struct printer *printer, const struct ul_ks_data *stmt, const char *first,
                     const char *last, uint32_t indent)
{
    put_indent(printer, indent);
    if ((stmt->flags & UL_FOR_PARALLEL) != 0 && !ul_ks_holds_loop(printer->kernel, stmt->body)) {
        ul_text_put(printer->text, "UL_IVDEP\n");
        put_indent(printer, indent);
    }
    ul_text_printf(printer->text, "for (int64_t v%u = %s; v%u < ", stmt->var, first, stmt->var);
    if (last != NULL)
        ul_text_put(printer->text, last);
    else
        put_expr(printer, stmt->value);
    ul_text_printf(printer->text, "; v%u++) {\n", stmt->var);
    put_list(printer, stmt->body, indent + 1);
    put_indent(printer, indent);
    ul_text_put(printer->text, "}\n");
}

static void put_if(struct printer *printer, const struct ul_ks_data *stmt, uint32_t indent)
{
    ul_text_put(printer->text, "if (");
    put_expr(printer, stmt->value);
    ul_text_put(printer->text, ") {\n");
    put_list(printer, stmt->body, indent + 1);
    put_indent(printer, indent);
    if (stmt->orelse != UL_NONE) {
        ul_text_put(printer->text, "} else {\n");
        put_list(printer, stmt->orelse, indent + 1);
        put_indent(printer, indent);
    }
    ul_text_put(printer->text, "}\n");
}

static void contract_expression(void *context, ul_kx expression)
{
    put_expr(context, expression);
}

static void contract_statements(void *context, ul_ks first, uint32_t indent)
{
    put_list(context, first, indent);
}

static void contract_load(void *context, uint32_t buffer, const char *index)
{
    put_load_text(context, buffer, index);
}

static bool has_threads(const struct printer *printer)
{
    return printer->threads != NULL && printer->threads->parts > 1;
}

static const struct ul_region *region_of(const struct printer *printer, ul_ks id)
{
    return has_threads(printer) ? printer->threads->regions[id] : NULL;
}

/* Scratch that no other thread writes, from `offset` on. */
static const char *own_scratch(const struct printer *printer, bool in_region, uint64_t offset_bytes)
{
    uint64_t offset = printer->own_offset_bytes + offset_bytes;
    if (!in_region)
        return ul_arena_printf(printer->text->arena, "(scratch + %" PRIu64 ")", offset);
    return ul_arena_printf(printer->text->arena,
                           "(scratch + %" PRIu64 " + t_part.thread * %" PRIu64 ")", offset,
                           printer->own_bytes);
}

static void put_contraction(struct printer *printer, ul_ks id, uint32_t indent)
{
    const struct ul_region *region = region_of(printer, id);
    bool in_region = region != NULL || printer->region != NULL;
    struct ul_contract_printer contract = {
        .text = printer->text,
        .kernel = printer->kernel,
        .context = printer,
        .put_expression = contract_expression,
        .put_statements = contract_statements,
        .put_load = contract_load,
        .scratch = own_scratch(printer, in_region, printer->contract_offset_bytes),
        .parts = region == NULL ? 1 : region->parts};
    uint32_t which = printer->kernel->stmts[id].contraction;
    ul_contract_print_c(&contract, &printer->kernel->contractions[which], indent);
}

static void put_definition(struct printer *printer, const struct ul_ks_data *stmt, uint32_t indent)
{
    if (!printer->used[stmt->var])
        return;
    const struct ul_kernel_var *var = &printer->kernel->vars[stmt->var];
    put_indent(printer, indent);
    if (stmt->kind != UL_KS_SET)
        ul_text_printf(printer->text, "%s%s ", stmt->kind == UL_KS_LET ? "const " : "",
                       compute_type(var->dtype));
    ul_text_printf(printer->text, "v%u = ", stmt->var);
    put_expr(printer, stmt->value);
    ul_text_put(printer->text, ";\n");
}

/* Regions */

/* What each thread has of its own: rows of scratch, local arrays. */
static void put_private(struct printer *printer, const struct ul_region *region, uint32_t indent)
{
    for (uint32_t i = 0; i < printer->kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &printer->kernel->buffers[i];
        const char *type = storage_type(buffer->dtype);
        if (!region->is_private[i])
            continue;
        put_indent(printer, indent);
        if (buffer->role == UL_BUFFER_LOCAL)
            ul_text_printf(printer->text, "%s b%u[%" PRIu64 "];\n", type, i, buffer->element_count);
        else
            ul_text_printf(printer->text, "%s *b%u = UL_AT(%s, %s, 0);\n", type, i, type,
                           own_scratch(printer, true, printer->offsets_bytes[i]));
    }
}

/* From an item to the variable of a level, of which `below` items make one round. */
static void put_level(struct printer *printer, const struct ul_region *region, uint32_t level,
                      int64_t below, uint32_t indent)
{
    bool repeats = false;
    for (uint32_t i = 0; i < level; i++)
        repeats = repeats || region->counts[i] > 1;
    const struct ul_ks_data *loop = &printer->kernel->stmts[region->levels[level]];
    if (!printer->used[loop->var])
        return;
    put_indent(printer, indent);
    ul_text_printf(printer->text, "const int64_t v%u = t_item", loop->var);
    if (below > 1)
        ul_text_printf(printer->text, " / %" PRId64, below);
    if (repeats)
        ul_text_printf(printer->text, " %% %" PRId64, region->counts[level]);
    ul_text_put(printer->text, ";\n");
}

/* The names of indexes that stand before the next level's loop. */
static void put_names(struct printer *printer, const struct ul_ks_data *loop, uint32_t indent)
{
    for (ul_ks id = loop->body; printer->kernel->stmts[id].kind == UL_KS_LET;
         id = printer->kernel->stmts[id].next)
        put_definition(printer, &printer->kernel->stmts[id], indent);
}

/* The last level: one of its rounds, or a piece of them. */
static void put_item(struct printer *printer, const struct ul_region *region, uint32_t indent)
{
    uint32_t last = region->level_count - 1;
    const struct ul_ks_data *loop = &printer->kernel->stmts[region->levels[last]];
    int64_t count = region->counts[last];
    int64_t pieces = (count + region->piece - 1) / region->piece;
    if (region->piece == 1) {
        put_level(printer, region, last, 1, indent);
        put_list(printer, loop->body, indent);
    } else if (pieces == 1) {
        put_loop(printer, loop, "0", NULL, indent);
    } else {
        put_indent(printer, indent);
        ul_text_put(printer->text, "const int64_t t_low = t_item");
        if (last > 0)
            ul_text_printf(printer->text, " %% %" PRId64, pieces);
        ul_text_printf(printer->text, " * %" PRId64 ";\n", region->piece);
        put_indent(printer, indent);
        ul_text_printf(printer->text,
                       "const int64_t t_high = ul_least(t_low + %" PRId64 ", %" PRId64 ");\n",
                       region->piece, count);
        put_loop(printer, loop, "t_low", "t_high", indent);
    }
}

static void put_items(struct printer *printer, const struct ul_region *region, uint32_t indent)
{
    uint32_t last = region->level_count - 1;
    int64_t below = region->piece == 1 ? region->counts[last]
                                       : (region->counts[last] + region->piece - 1) / region->piece;
    if (last == 0 && region->piece == 1) {
        const struct ul_ks_data *loop = &printer->kernel->stmts[region->levels[0]];
        put_loop(printer, loop, "t_part.begin", "t_part.end", indent);
        return;
    }
    put_indent(printer, indent);
    ul_text_put(printer->text,
                "for (int64_t t_item = t_part.begin; t_item < t_part.end; t_item++) {\n");
    for (uint32_t i = 1; i < last; i++)
        below *= region->counts[i];
    for (uint32_t i = 0; i < last; i++) {
        put_level(printer, region, i, below, indent + 1);
        put_names(printer, &printer->kernel->stmts[region->levels[i]], indent + 1);
        below = i + 1 < last ? below / region->counts[i + 1] : below;
    }
    put_item(printer, region, indent + 1);
    put_indent(printer, indent);
    ul_text_put(printer->text, "}\n");
}

static void put_region(struct printer *printer, const struct ul_region *region, uint32_t indent)
{
    put_indent(printer, indent);
    ul_text_put(printer->text, "UL_PARALLEL(run)\n");
    put_indent(printer, indent);
    ul_text_put(printer->text, "{\n");
    put_indent(printer, indent + 1);
    ul_text_printf(printer->text,
                   "const struct ul_part t_part = ul_part(%" PRId64 ", %" PRIu32 ");\n",
                   region->item_count, region->parts);
    printer->region = region;
    put_private(printer, region, indent + 1);
    put_items(printer, region, indent + 1);
    printer->region = NULL;
    put_indent(printer, indent);
    ul_text_put(printer->text, "}\n");
}

static void put_list(struct printer *printer, ul_ks first, uint32_t indent)
{
    for (ul_ks id = first; id != UL_NONE; id = printer->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &printer->kernel->stmts[id];
        if (stmt->kind == UL_KS_LET || stmt->kind == UL_KS_SET || stmt->kind == UL_KS_VAR) {
            put_definition(printer, stmt, indent);
        } else if (stmt->kind == UL_KS_CONTRACT) {
            put_contraction(printer, id, indent);
        } else if (stmt->kind == UL_KS_FOR && region_of(printer, id) != NULL) {
            put_region(printer, region_of(printer, id), indent);
        } else if (stmt->kind == UL_KS_FOR) {
            put_loop(printer, stmt, "0", NULL, indent);
        } else {
            put_indent(printer, indent);
            if (stmt->kind == UL_KS_IF)
                put_if(printer, stmt, indent);
            else if (stmt->kind == UL_KS_STORE)
                put_store(printer, stmt);
            else
                ul_text_put(printer->text, "break;\n");
        }
    }
}

static bool is_private(const struct printer *printer, uint32_t buffer)
{
    return has_threads(printer) && printer->threads->is_private[buffer];
}

/* Puts scratch arrays one after the other from 0 on; gives the bytes. */
static uint64_t place_arrays(struct printer *printer, bool private_ones)
{
    const struct ul_kernel *kernel = printer->kernel;
    uint64_t total = 0;
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &kernel->buffers[i];
        if (buffer->role != UL_BUFFER_SCRATCH || is_private(printer, i) != private_ones)
            continue;
        printer->offsets_bytes[i] = total;
        uint64_t bytes =
            ul_size_mul_or_die(buffer->element_count, ul_dtype_get(buffer->dtype)->size_bytes);
        total = ul_size_align_or_die(ul_size_add_or_die(total, bytes), UL_PLAN_ALIGN_BYTES);
    }
    return total;
}

/* Scratch arrays that threads share, then what each has of its own: arrays, and the room that
 * contractions need (one thread works on one at a time, so they share it). */
static void place_scratch(struct printer *printer)
{
    const struct ul_kernel *kernel = printer->kernel;
    uint64_t contract = 0;
    printer->own_offset_bytes = place_arrays(printer, false);
    printer->contract_offset_bytes = place_arrays(printer, true);
    for (uint32_t i = 0; i < kernel->contraction_count; i++) {
        uint64_t bytes = ul_contract_scratch_bytes(kernel, &kernel->contractions[i]);
        contract = bytes > contract ? bytes : contract;
    }
    printer->own_bytes = ul_size_add_or_die(printer->contract_offset_bytes, contract);
    uint64_t all = printer->own_bytes;
    if (has_threads(printer)) {
        printer->own_bytes = ul_size_align_or_die(printer->own_bytes, UL_PLAN_ALIGN_BYTES);
        all = ul_size_mul_or_die(printer->own_bytes, printer->threads->parts);
    }
    printer->scratch_bytes = ul_size_add_or_die(printer->own_offset_bytes, all);
}

static void put_parameters(struct printer *printer)
{
    const struct ul_kernel *kernel = printer->kernel;
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &kernel->buffers[i];
        if (buffer->role == UL_BUFFER_INPUT || buffer->role == UL_BUFFER_OUTPUT)
            ul_text_printf(printer->text, "%s%s *b%u, ",
                           buffer->role == UL_BUFFER_INPUT ? "const " : "",
                           storage_type(buffer->dtype), i);
    }
    if (printer->scratch_bytes > 0)
        ul_text_put(printer->text, "unsigned char *scratch, ");
    ul_text_put(printer->text, "struct ul_run *run)\n{\n    (void)run;\n");
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &kernel->buffers[i];
        const char *type = storage_type(buffer->dtype);
        if (is_private(printer, i))
            continue;
        if (buffer->role == UL_BUFFER_SCRATCH)
            ul_text_printf(printer->text, "    %s *b%u = UL_AT(%s, scratch, %" PRIu64 ");\n", type,
                           i, type, printer->offsets_bytes[i]);
        else if (buffer->role == UL_BUFFER_LOCAL)
            ul_text_printf(printer->text, "    %s b%u[%" PRIu64 "];\n", type, i,
                           buffer->element_count);
    }
}

enum ul_status ul_kernel_print_c(struct ul_text *text, const struct ul_kernel *kernel,
                                 const struct ul_threads *threads, uint64_t *scratch_bytes,
                                 struct ul_diag *diag)
{
    struct printer printer = {.text = text, .kernel = kernel, .threads = threads};
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        enum ul_dtype dtype = kernel->buffers[i].dtype;
        if (storage_type(dtype) == NULL)
            return ul_diag_set(diag, UL_UNSUPPORTED,
                               "target c has no type %s; cast the tensor to a wider one",
                               ul_dtype_get(dtype)->name);
    }
    printer.used = UL_NEW_ARRAY(text->arena, bool, kernel->var_count);
    printer.definitions = UL_NEW_ARRAY(text->arena, ul_ks, kernel->var_count);
    printer.offsets_bytes = UL_NEW_ARRAY(text->arena, uint64_t, kernel->buffer_count);
    find_used(&printer);
    place_scratch(&printer);
    put_parameters(&printer);
    put_list(&printer, kernel->first, 1);
    ul_text_put(text, "}\n");
    *scratch_bytes = printer.scratch_bytes;
    return UL_OK;
}
