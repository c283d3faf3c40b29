/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions as nested text: the lowering names what is used twice. Integer arithmetic goes
 * through the runtime's helpers where it could overflow; index arithmetic, whose range is known, is
 * plain. */
#include "codegen/kernel/print_expr.h"
#include "codegen/kernel/range.h"
#include "ir/kernel_build.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

const char *ul_storage_type(enum ul_dtype dtype)
{
    switch (dtype) {
    case UL_F32:
        return "float";
    case UL_F64:
        return "double";
    case UL_U8:
    case UL_U4:
    case UL_U2:
    case UL_F4E2M1:
    case UL_F6E2M3:
    case UL_F6E3M2:
    case UL_BOOL:
    case UL_F8E4M3FN:
    case UL_F8E4M3FNUZ:
    case UL_F8E5M2:
    case UL_F8E5M2FNUZ:
    case UL_F8E8M0:
        return "uint8_t";
    case UL_I8:
    case UL_I4:
    case UL_I2:
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
    case UL_DTYPE_COUNT:
        break;
    }
    return NULL;
}

/* Truth values are int, so that comparisons need no conversion. */
const char *ul_c_type(enum ul_dtype dtype)
{
    return dtype == UL_BOOL ? "int" : ul_storage_type(dtype);
}

/* "i32" and the like: the tag of the runtime's helpers. */
static const char *tag(enum ul_dtype dtype)
{
    return ul_dtype_get(dtype)->name;
}

static void put_int(const struct ul_expr_printer *printer, enum ul_dtype dtype, int64_t value)
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

static void put_float(const struct ul_expr_printer *printer, enum ul_dtype dtype, double value)
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

static void put_call(const struct ul_expr_printer *printer, const char *function, ul_kx a, ul_kx b)
{
    ul_text_printf(printer->text, "%s(", function);
    ul_put_expr(printer, a);
    if (b != UL_NONE) {
        ul_text_put(printer->text, ", ");
        ul_put_expr(printer, b);
    }
    ul_text_put(printer->text, ")");
}

/* helper_tag(a, b) */
static void put_helper(const struct ul_expr_printer *printer, const char *helper,
                       enum ul_dtype dtype, ul_kx a, ul_kx b)
{
    char name[48];
    snprintf(name, sizeof name, "ul_%s_%s", helper, tag(dtype));
    put_call(printer, name, a, b);
}

static void put_infix(const struct ul_expr_printer *printer, const char *symbol, ul_kx a, ul_kx b)
{
    ul_text_put(printer->text, "(");
    ul_put_expr(printer, a);
    ul_text_printf(printer->text, " %s ", symbol);
    ul_put_expr(printer, b);
    ul_text_put(printer->text, ")");
}

/* The decoding function of a small float, or NULL. */
static const char *ul_decoder_name(enum ul_dtype dtype)
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
    case UL_F4E2M1:
        return "ul_f4e2m1_to_f32";
    case UL_F6E2M3:
        return "ul_f6e2m3_to_f32";
    case UL_F6E3M2:
        return "ul_f6e3m2_to_f32";
    case UL_F8E8M0:
        return "ul_f8e8m0_to_f32";
    default:
        return NULL;
    }
}

/* Opens a call of the encoding function; the text after the argument closes it. */
static const char *put_encoder(const struct ul_expr_printer *printer, enum ul_dtype dtype,
                               bool saturate)
{
    if (ul_dtype_is_half(dtype)) {
        ul_text_printf(printer->text, "ul_f32_to_%s(", dtype == UL_F16 ? "f16" : "bf16");
        return ")";
    }
    const char *name = ul_decoder_name(dtype); /* ul_<name>_to_f32 */
    UL_ASSERT(name != NULL);
    ul_text_printf(printer->text, "ul_f32_to_%.*s(", (int)(strlen(name) - strlen("ul__to_f32")),
                   name + strlen("ul_"));
    return saturate ? ", 1)" : ", 0)";
}

void ul_put_load(const struct ul_expr_printer *printer, uint32_t buffer, const char *index)
{
    UL_ASSERT(buffer < printer->kernel->buffer_count);
    enum ul_dtype dtype = printer->kernel->buffers[buffer].dtype;
    const char *decode = ul_decoder_name(dtype);
    if (decode != NULL)
        ul_text_printf(printer->text, "%s(b%u[%s])", decode, buffer, index);
    else
        ul_text_printf(printer->text, "b%u[%s]", buffer, index);
}

/* buffer[index], as it is stored. */
static void put_element(const struct ul_expr_printer *printer, uint32_t buffer, ul_kx index)
{
    UL_ASSERT(buffer < printer->kernel->buffer_count);
    ul_text_printf(printer->text, "b%u", buffer);
    if (printer->is_scalar != NULL && printer->is_scalar[buffer])
        return;
    ul_text_put(printer->text, "[");
    ul_put_expr(printer, index);
    ul_text_put(printer->text, "]");
}

static void put_load(const struct ul_expr_printer *printer, const struct ul_kx_data *expr)
{
    const char *decode = ul_decoder_name(printer->kernel->buffers[expr->var].dtype);
    if (decode != NULL)
        ul_text_printf(printer->text, "%s(", decode);
    ul_kx id = (ul_kx)(expr - printer->kernel->exprs);
    if (printer->elements != NULL && printer->elements[id] != NULL)
        ul_text_put(printer->text, printer->elements[id]);
    else
        put_element(printer, expr->var, expr->a);
    if (decode != NULL)
        ul_text_put(printer->text, ")");
}

/* Rounds, bounds and casts at once, since bounds that are whole numbers may come before the
 * rounding. */
static void put_quantize(const struct ul_expr_printer *printer, const struct ul_kx_data *expr)
{
    const struct ul_kernel *kernel = printer->kernel;
    const struct ul_kx_data *min = &kernel->exprs[expr->a], *max = &kernel->exprs[min->a];
    ul_text_put(printer->text, "ul_quantize_f32(");
    ul_put_expr(printer, kernel->exprs[max->a].a);
    ul_text_put(printer->text, ", ");
    ul_put_expr(printer, max->b);
    ul_text_put(printer->text, ", ");
    ul_put_expr(printer, min->b);
    ul_text_put(printer->text, ")");
}

static void put_cast(const struct ul_expr_printer *printer, const struct ul_kx_data *expr)
{
    enum ul_dtype from = ul_kx_dtype(printer->kernel, expr->a);
    struct ul_text *text = printer->text;
    if (ul_range_is_quantized(printer->kernel, (ul_kx)(expr - printer->kernel->exprs))) {
        put_quantize(printer, expr);
        return;
    }
    const struct ul_dtype_info *info = ul_dtype_get(expr->dtype);
    bool is_few = info->bits < 8;
    if (ul_dtype_is_wide(from) && !ul_dtype_is_wide(expr->dtype)) {
        char name[48];
        enum ul_dtype to = !is_few ? expr->dtype : info->is_signed ? UL_I8 : UL_U8;
        snprintf(name, sizeof name, "ul_%s_to_%s", tag(from), to == UL_BOOL ? "bool" : tag(to));
        put_call(printer, name, expr->a, UL_NONE);
        return;
    }
    if (expr->dtype == UL_BOOL || is_few) {
        unsigned mask = (1u << info->bits) - 1, sign = (mask >> 1) + 1;
        ul_text_put(text, is_few && info->is_signed ? "((((int32_t)" : "((");
        ul_put_expr(printer, expr->a);
        if (!is_few)
            ul_text_put(text, ") != 0)");
        else if (info->is_signed)
            ul_text_printf(text, " & %u) ^ %u) - %u)", mask, sign, sign);
        else
            ul_text_printf(text, ") & %uu)", mask);
        return;
    }
    ul_text_printf(text, "(%s)", ul_c_type(expr->dtype));
    ul_put_expr(printer, expr->a);
}

static void put_bitcast(const struct ul_expr_printer *printer, const struct ul_kx_data *expr)
{
    UL_ASSERT(ul_dtype_get(ul_kx_dtype(printer->kernel, expr->a))->size_bytes ==
              ul_dtype_get(expr->dtype)->size_bytes);
    enum ul_dtype from = ul_kx_dtype(printer->kernel, expr->a);
    if (ul_dtype_is_wide(from) == ul_dtype_is_wide(expr->dtype)) {
        ul_text_printf(printer->text, "(%s)", ul_c_type(expr->dtype));
        ul_put_expr(printer, expr->a);
        return;
    }
    const char *width = ul_dtype_get(from)->size_bytes == 4 ? "32" : "64";
    if (ul_dtype_is_wide(from))
        ul_text_printf(printer->text, "(%s)ul_f%s_bits(", ul_c_type(expr->dtype), width);
    else
        ul_text_printf(printer->text, "ul_f%s_from_bits((uint%s_t)", width, width);
    ul_put_expr(printer, expr->a);
    ul_text_put(printer->text, ")");
}

static void put_round_to(const struct ul_expr_printer *printer, const struct ul_kx_data *expr)
{
    enum ul_dtype storage = (enum ul_dtype)(expr->imm_int & 255);
    if (ul_kx_rounds_to_itself(expr)) {
        ul_put_expr(printer, expr->a);
        return;
    }
    UL_ASSERT(ul_decoder_name(storage) != NULL);
    bool saturate = (expr->imm_int & 256) != 0;
    ul_text_printf(printer->text, "%s(", ul_decoder_name(storage));
    bool clamp = saturate && ul_dtype_is_half(storage);
    const char *close = put_encoder(printer, storage, saturate);
    if (clamp)
        ul_text_put(printer->text, "ul_min_f32(ul_max_f32(");
    ul_put_expr(printer, expr->a);
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

static void put_unary(const struct ul_expr_printer *printer, const struct ul_kx_data *expr)
{
    enum ul_dtype from = ul_kx_dtype(printer->kernel, expr->a);
    struct ul_text *text = printer->text;
    if (expr->op == UL_KX_ISNAN || expr->op == UL_KX_ISINF) {
        ul_text_put(text, !ul_dtype_is_wide(from)   ? "(0 * (int)"
                          : expr->op == UL_KX_ISNAN ? "(isnan("
                                                    : "(isinf(");
        ul_put_expr(printer, expr->a);
        ul_text_put(text, ul_dtype_is_wide(from) ? ") != 0)" : ")");
        return;
    }
    if (ul_dtype_is_wide(from) && expr->op != UL_KX_NEG) {
        const char *function = function_of(expr->op, from);
        UL_ASSERT(function != NULL);
        put_call(printer, function, expr->a, UL_NONE);
        return;
    }
    if (expr->op == UL_KX_NOT || expr->op == UL_KX_BITNOT || ul_dtype_is_wide(from)) {
        ul_text_put(text, expr->op == UL_KX_NOT ? "(!" : expr->op == UL_KX_BITNOT ? "(~" : "(-");
        ul_put_expr(printer, expr->a);
        ul_text_put(text, ")");
        return;
    }
    if (from != UL_BOOL && (expr->op == UL_KX_ABS || expr->op == UL_KX_NEG))
        put_helper(printer, expr->op == UL_KX_ABS ? "abs" : "neg", from, expr->a, UL_NONE);
    else
        ul_put_expr(printer, expr->a); /* rounding an integer changes nothing */
}

/* Index arithmetic: its range is known to be far from overflow. */
static bool is_plain(const struct ul_expr_printer *printer, const struct ul_kx_data *expr)
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
        return ul_dtype_is_wide(from) ? NULL : "%";
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

static void put_binary(const struct ul_expr_printer *printer, const struct ul_kx_data *expr)
{
    enum ul_dtype from = ul_kx_dtype(printer->kernel, expr->a);
    const char *infix = infix_of(expr->op, from);
    if (expr->op == UL_KX_ATAN2) {
        put_call(printer, from == UL_F32 ? "atan2f" : "atan2", expr->a, expr->b);
        return;
    }
    if (ul_dtype_is_wide(from) && expr->op == UL_KX_POW) {
        put_call(printer, from == UL_F32 ? "powf" : "pow", expr->a, expr->b);
        return;
    }
    if (ul_dtype_is_wide(from) && expr->op == UL_KX_FMOD) {
        put_call(printer, from == UL_F32 ? "fmodf" : "fmod", expr->a, expr->b);
        return;
    }
    bool plain = ul_dtype_is_wide(from) || is_exact(expr->op) || is_plain(printer, expr);
    if (infix != NULL && plain) {
        put_infix(printer, infix, expr->a, expr->b);
        return;
    }
    put_helper(printer, helper_of(expr->op), from == UL_BOOL ? UL_I32 : from, expr->a, expr->b);
}

/* a * b + c; `negated` puts a minus sign before its first or last operand. */
static void put_fma(const struct ul_expr_printer *printer, enum ul_dtype dtype, ul_kx a, ul_kx b,
                    ul_kx c, const char *negated)
{
    struct ul_text *text = printer->text;
    ul_text_put(text, !printer->fuses   ? (dtype == UL_F64 ? "fma(" : "fmaf(")
                      : dtype == UL_F64 ? "ul_fma_f64("
                                        : "ul_fma_f32(");
    ul_text_put(text, negated[0] == 'a' ? "-" : "");
    ul_put_expr(printer, a);
    ul_text_put(text, ", ");
    ul_put_expr(printer, b);
    ul_text_put(text, negated[0] == 'c' ? ", -" : ", ");
    ul_put_expr(printer, c);
    ul_text_put(text, ")");
}

static void put_sum(const struct ul_expr_printer *printer, const struct ul_kx_data *sum,
                    ul_kx product)
{
    const struct ul_kx_data *factors = &printer->kernel->exprs[product];
    const bool is_first = product == sum->a;
    const char *negated = sum->op == UL_KX_ADD ? "" : is_first ? "c" : "a";
    put_fma(printer, sum->dtype, factors->a, factors->b, is_first ? sum->b : sum->a, negated);
}

static void put_select(const struct ul_expr_printer *printer, const struct ul_kx_data *expr)
{
    ul_text_put(printer->text, "(");
    ul_put_expr(printer, expr->a);
    ul_text_put(printer->text, " ? ");
    ul_put_expr(printer, expr->b);
    ul_text_put(printer->text, " : ");
    ul_put_expr(printer, expr->c);
    ul_text_put(printer->text, ")");
}

/* x, where the index is x or, if that is negative, x + bound: an index that may count from the end;
 * else UL_NONE. */
static ul_kx find_wrapped(const struct ul_kernel *kernel, ul_kx index, int64_t bound)
{
    const struct ul_kx_data *select = &kernel->exprs[index];
    int64_t zero, added;
    if (select->op != UL_KX_SELECT)
        return UL_NONE;
    ul_kx x = select->c;
    const struct ul_kx_data *less = &kernel->exprs[select->a], *sum = &kernel->exprs[select->b];
    bool fits = less->op == UL_KX_LT && less->a == x && ul_kx_is_int(kernel, less->b, &zero) &&
                zero == 0 && sum->op == UL_KX_ADD && sum->a == x &&
                ul_kx_is_int(kernel, sum->b, &added) && added == bound;
    return fits ? x : UL_NONE;
}

/* A report of an index out of range shows the index in the data. */
static void put_index(const struct ul_expr_printer *printer, const struct ul_kx_data *expr)
{
    ul_kx wrapped = find_wrapped(printer->kernel, expr->a, expr->imm_int);
    bool is_named = printer->names != NULL && printer->names[expr->a] != NULL;
    bool wraps = wrapped != UL_NONE && !is_named;
    ul_text_put(printer->text, wraps ? "ul_index(run, " : "ul_bound(run, ");
    ul_put_expr(printer, wraps ? wrapped : expr->a);
    ul_text_printf(printer->text, ", %" PRId64 ")", expr->imm_int);
}

void ul_put_expr(const struct ul_expr_printer *printer, ul_kx id)
{
    const struct ul_kx_data *expr = &printer->kernel->exprs[id];
    struct ul_text *text = printer->text;
    if (printer->names != NULL && printer->names[id] != NULL) {
        ul_text_put(text, printer->names[id]);
        return;
    }
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
        put_index(printer, expr);
        return;
    case UL_KX_RANDOM:
        ul_text_printf(text, "ul_random_draw(UINT64_C(%" PRIu64 "), 0, 0, ",
                       (uint64_t)expr->imm_int);
        ul_put_expr(printer, expr->a);
        ul_text_put(text, ").words[0]");
        return;
    case UL_KX_FMA:
        put_fma(printer, expr->dtype, expr->a, expr->b, expr->c, "");
        return;
    default:
        break;
    }
    ul_kx product = printer->fuses ? ul_kx_fused_product(printer->kernel, id) : UL_NONE;
    if (product != UL_NONE) {
        put_sum(printer, expr, product);
        return;
    }
    if (expr->op < UL_KX_ADD)
        put_unary(printer, expr);
    else
        put_binary(printer, expr);
}

/* Used variables: those that stores, conditions and counts read, and those from which they are
 * made. */

struct uses {
    const struct ul_kernel *kernel;
    bool *used;
    ul_ks *definitions; /* variable -> first LET, to follow uses */
};

static void use_expr(struct uses *uses, ul_kx id);

static void use_var(struct uses *uses, uint32_t var)
{
    if (uses->used[var])
        return;
    uses->used[var] = true;
    const struct ul_kernel *kernel = uses->kernel;
    for (ul_ks id = 0; kernel->vars[var].is_mutable && id < kernel->stmt_count; id++) {
        const struct ul_ks_data *stmt = &kernel->stmts[id];
        if ((stmt->kind == UL_KS_SET || stmt->kind == UL_KS_VAR) && stmt->var == var)
            use_expr(uses, stmt->value);
    }
    if (uses->definitions[var] != UL_NONE)
        use_expr(uses, kernel->stmts[uses->definitions[var]].value);
}

static void use_expr(struct uses *uses, ul_kx id)
{
    if (id == UL_NONE)
        return;
    const struct ul_kx_data *expr = &uses->kernel->exprs[id];
    if (expr->op == UL_KX_INT || expr->op == UL_KX_FLOAT)
        return;
    if (expr->op == UL_KX_VAR) {
        use_var(uses, expr->var);
        return;
    }
    use_expr(uses, expr->a);
    if (ul_kx_operand_count(expr->op) >= 2)
        use_expr(uses, expr->b);
    if (ul_kx_operand_count(expr->op) == 3)
        use_expr(uses, expr->c);
}

static void use_operand(struct uses *uses, const struct ul_operand *operand)
{
    use_expr(uses, operand->at.base);
    use_expr(uses, operand->transform);
    for (uint32_t b = 0; b < operand->bound_count; b++)
        use_expr(uses, operand->bounds[b].at.base);
}

static void use_contraction(struct uses *uses, const struct ul_contraction *contraction)
{
    const struct ul_attend *attend = contraction->attend;
    use_operand(uses, &contraction->a);
    use_operand(uses, &contraction->b);
    if (attend == NULL)
        return;
    for (uint32_t i = 0; i < ul_attend_scores(attend); i++) {
        use_operand(uses, &attend->scores[i].a);
        use_operand(uses, &attend->scores[i].b);
    }
    for (uint32_t i = 0; i < ul_attend_values(attend); i++)
        use_operand(uses, &attend->values[i].b);
    use_expr(uses, attend->score);
    use_expr(uses, attend->factor);
    if (attend->has_shares)
        use_expr(uses, attend->share);
}

static void find_used(struct uses *uses)
{
    const struct ul_kernel *kernel = uses->kernel;
    memset(uses->definitions, 0xFF, kernel->var_count * sizeof *uses->definitions);
    for (ul_ks id = 0; id < kernel->stmt_count; id++) {
        if (kernel->stmts[id].kind == UL_KS_LET)
            uses->definitions[kernel->stmts[id].var] = id;
    }
    for (ul_ks id = 0; id < kernel->stmt_count; id++) {
        const struct ul_ks_data *stmt = &kernel->stmts[id];
        if (stmt->kind == UL_KS_LET || stmt->kind == UL_KS_SET || stmt->kind == UL_KS_VAR)
            continue;
        use_expr(uses, stmt->value);
        use_expr(uses, stmt->index);
    }
    for (uint32_t i = 0; i < kernel->contraction_count; i++)
        use_contraction(uses, &kernel->contractions[i]);
}

void ul_expr_printer_init(struct ul_expr_printer *printer, struct ul_text *text,
                          const struct ul_kernel *kernel)
{
    struct uses uses = {.kernel = kernel};
    uses.used = UL_NEW_ARRAY(text->arena, bool, kernel->var_count);
    uses.definitions = UL_NEW_ARRAY(text->arena, ul_ks, kernel->var_count);
    find_used(&uses);
    *printer = (struct ul_expr_printer){.text = text, .kernel = kernel, .used = uses.used};
}

/* Statements */

void ul_put_indent(const struct ul_expr_printer *printer, uint32_t indent)
{
    ul_text_printf(printer->text, "%*s", (int)(4 * indent), "");
}

void ul_put_line(const struct ul_expr_printer *printer, uint32_t indent, const char *format, ...)
{
    va_list args;
    ul_put_indent(printer, indent);
    va_start(args, format);
    ul_text_vprintf(printer->text, format, args);
    va_end(args);
}

const char *ul_expr_text(const struct ul_expr_printer *printer, ul_kx id)
{
    struct ul_expr_printer apart = *printer;
    struct ul_text text;
    ul_text_init(&text, printer->text->arena);
    apart.text = &text;
    ul_put_expr(&apart, id);
    return text.data;
}

void ul_put_store(const struct ul_expr_printer *printer, const struct ul_ks_data *stmt)
{
    enum ul_dtype dtype = printer->kernel->buffers[stmt->buffer].dtype;
    if (printer->store_to != NULL)
        ul_text_put(printer->text, printer->store_to);
    else
        put_element(printer, stmt->buffer, stmt->index);
    ul_text_put(printer->text, " = ");
    const char *close = "";
    if (ul_decoder_name(dtype) != NULL) {
        close = put_encoder(printer, dtype, false);
    } else if (ul_compute_dtype(dtype) != dtype || dtype == UL_BOOL) {
        ul_text_printf(printer->text, "(%s)(", ul_storage_type(dtype));
        close = ")";
    }
    ul_put_expr(printer, stmt->value);
    ul_text_printf(printer->text, "%s;\n", close);
}

void ul_put_definition(const struct ul_expr_printer *printer, const struct ul_ks_data *stmt,
                       uint32_t indent)
{
    if (!printer->used[stmt->var])
        return;
    const struct ul_kernel_var *var = &printer->kernel->vars[stmt->var];
    ul_put_indent(printer, indent);
    bool is_short = printer->is_short != NULL && printer->is_short[stmt->var];
    if (stmt->kind != UL_KS_SET)
        ul_text_printf(printer->text, "%s%s ", stmt->kind == UL_KS_LET ? "const " : "",
                       is_short ? "int32_t" : ul_c_type(var->dtype));
    ul_text_printf(printer->text, "v%u = ", stmt->var);
    ul_put_expr(printer, stmt->value);
    ul_text_put(printer->text, ";\n");
}
