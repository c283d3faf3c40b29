/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of the interpreter on single scalars.
 *
 * f32 arithmetic rounds after every operation but for products that are fused. + - * / and sqrt of
 * floats done in double round once, since double carries more than twice the digits. The other
 * functions are those that printed C calls: the runtime's own, or libm's float forms. */
#include "ir/kernel_eval.h"

#define UL_ADD_PRODUCT(a, b, c) ((a) * (b) + (c)) /* whatever processor this is built for */
#include "runtime/lib/ul_scalar.h"

#include <math.h>

static union ul_scalar of_int(enum ul_dtype dtype, int64_t value)
{
    union ul_scalar out = {.i = value};
    switch ((int)dtype) {
    case UL_BOOL:
        out.i = value != 0;
        break;
    case UL_U8:
    case UL_I8:
    case UL_U16:
    case UL_I16:
    case UL_I32:
    case UL_U32:
    case UL_U4:
    case UL_I4:
    case UL_U2:
    case UL_I2: {
        unsigned char bytes[8];
        ul_element_put_int(bytes, dtype, value);
        out.i = ul_element_get_int(bytes, dtype);
        break;
    }
    default:
        break;
    }
    return out;
}

static union ul_scalar of_float(enum ul_dtype dtype, double value)
{
    return (union ul_scalar){.f = dtype == UL_F32 ? (double)(float)value : value};
}

union ul_scalar ul_machine_load(const struct ul_machine *machine, uint32_t buffer_id, int64_t index)
{
    const struct ul_buffer *buffer = &machine->kernel->buffers[buffer_id];
    UL_ASSERT(index >= 0 && (uint64_t)index < buffer->element_count);
    const unsigned char *place =
        machine->places[buffer_id] + (uint64_t)index * ul_dtype_get(buffer->dtype)->size_bytes;
    if (ul_dtype_get(buffer->dtype)->is_float)
        return (union ul_scalar){.f = ul_element_get_float(place, buffer->dtype)};
    return (union ul_scalar){.i = ul_element_get_int(place, buffer->dtype)};
}

void ul_machine_store(const struct ul_machine *machine, uint32_t buffer_id, int64_t index,
                      union ul_scalar value)
{
    const struct ul_buffer *buffer = &machine->kernel->buffers[buffer_id];
    const struct ul_dtype_info *info = ul_dtype_get(buffer->dtype);
    UL_ASSERT(index >= 0 && (uint64_t)index < buffer->element_count);
    unsigned char *place = machine->places[buffer_id] + (uint64_t)index * info->size_bytes;
    if (info->is_float)
        ul_element_put_float(place, buffer->dtype, value.f);
    else
        ul_element_put_int(place, buffer->dtype, value.i);
}

static double round_even(double value)
{
    double whole = floor(value);
    double part = value - whole;
    if (part < 0.5)
        return copysign(whole, value);
    if (part > 0.5)
        return copysign(whole + 1, value);
    return copysign(fmod(whole, 2) == 0 ? whole : whole + 1, value);
}

/* libm in the width of the type. */
#define WIDTH(function, x) (dtype == UL_F32 ? (double)function##f((float)(x)) : function(x))

static double float_unary(const struct ul_machine_functions *functions, enum ul_kx_op op,
                          enum ul_dtype dtype, double x)
{
    switch ((int)op) {
    case UL_KX_NEG:
        return -x;
    case UL_KX_ABS:
        return fabs(x);
    case UL_KX_SQRT:
        return sqrt(x);
    case UL_KX_EXP:
        return dtype == UL_F32 ? (double)functions->exp((float)x) : exp(x);
    case UL_KX_EXPM1:
        return WIDTH(expm1, x);
    case UL_KX_LOG:
        return dtype == UL_F32 ? (double)functions->log((float)x) : log(x);
    case UL_KX_LOG1P:
        return WIDTH(log1p, x);
    case UL_KX_SIN:
        return WIDTH(sin, x);
    case UL_KX_COS:
        return WIDTH(cos, x);
    case UL_KX_TAN:
        return WIDTH(tan, x);
    case UL_KX_ASIN:
        return WIDTH(asin, x);
    case UL_KX_ACOS:
        return WIDTH(acos, x);
    case UL_KX_ATAN:
        return WIDTH(atan, x);
    case UL_KX_SINH:
        return WIDTH(sinh, x);
    case UL_KX_COSH:
        return WIDTH(cosh, x);
    case UL_KX_TANH:
        return dtype == UL_F32 ? (double)functions->tanh((float)x) : tanh(x);
    case UL_KX_ASINH:
        return WIDTH(asinh, x);
    case UL_KX_ACOSH:
        return WIDTH(acosh, x);
    case UL_KX_ATANH:
        return WIDTH(atanh, x);
    case UL_KX_ERF:
        return dtype == UL_F32 ? (double)functions->erf((float)x) : erf(x);
    case UL_KX_FLOOR:
        return floor(x);
    case UL_KX_CEIL:
        return ceil(x);
    case UL_KX_TRUNC:
        return trunc(x);
    case UL_KX_ROUND:
        return isfinite(x) ? round_even(x) : x;
    default:
        UL_ASSERT(false);
        return 0;
    }
}

static int64_t int_unary(enum ul_kx_op op, int64_t x)
{
    switch ((int)op) {
    case UL_KX_NEG:
        return (int64_t)(0 - (uint64_t)x);
    case UL_KX_BITNOT:
        return ~x;
    case UL_KX_NOT:
        return x == 0;
    case UL_KX_ABS:
        return x < 0 ? (int64_t)(0 - (uint64_t)x) : x;
    default:
        return x; /* rounding an integer changes nothing */
    }
}

static double float_mod(double a, double b)
{
    double remainder = fmod(a, b);
    if (remainder != 0 && (remainder < 0) != (b < 0))
        remainder += b;
    return remainder;
}

static double float_binary(enum ul_kx_op op, enum ul_dtype dtype, double a, double b)
{
    switch ((int)op) {
    case UL_KX_ADD:
        return a + b;
    case UL_KX_SUB:
        return a - b;
    case UL_KX_MUL:
        return a * b;
    case UL_KX_DIV:
        return a / b;
    case UL_KX_MOD:
        return float_mod(a, b);
    case UL_KX_FMOD:
        return fmod(a, b);
    case UL_KX_MIN:
        return isnan(a) || a < b ? a : b;
    case UL_KX_MAX:
        return isnan(a) || a > b ? a : b;
    case UL_KX_POW:
        return dtype == UL_F32 ? (double)powf((float)a, (float)b) : pow(a, b);
    case UL_KX_ATAN2:
        return dtype == UL_F32 ? (double)atan2f((float)a, (float)b) : atan2(a, b);
    default:
        UL_ASSERT(false);
        return 0;
    }
}

static int64_t int_power(int64_t base, int64_t exponent)
{
    uint64_t result = 1;
    uint64_t factor = (uint64_t)base;
    if (exponent < 0)
        return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1)
            result *= factor;
        factor *= factor;
    }
    return (int64_t)result;
}

static int64_t int_divide(enum ul_kx_op op, bool is_unsigned, int64_t a, int64_t b)
{
    if (b == 0)
        return 0;
    if (is_unsigned)
        return op == UL_KX_DIV ? (int64_t)((uint64_t)a / (uint64_t)b)
                               : (int64_t)((uint64_t)a % (uint64_t)b);
    if (b == -1)
        return op == UL_KX_DIV ? (int64_t)(0 - (uint64_t)a) : 0;
    if (op == UL_KX_DIV)
        return a / b;
    int64_t remainder = a % b;
    bool adjust = op == UL_KX_MOD && remainder != 0 && (remainder < 0) != (b < 0);
    return adjust ? remainder + b : remainder;
}

static int64_t int_shift(enum ul_kx_op op, enum ul_dtype dtype, int64_t a, int64_t b)
{
    bool negative = ul_dtype_get(dtype)->is_signed && a < 0;
    if (b < 0 || b >= 64)
        return op == UL_KX_SHR && negative ? -1 : 0;
    if (op == UL_KX_SHL)
        return (int64_t)((uint64_t)a << b);
    return negative ? (int64_t) ~(~(uint64_t)a >> b) : (int64_t)((uint64_t)a >> b);
}

static int64_t int_binary(enum ul_kx_op op, enum ul_dtype dtype, int64_t a, int64_t b)
{
    bool is_unsigned = dtype == UL_U64;
    bool less = is_unsigned ? (uint64_t)a < (uint64_t)b : a < b;
    switch ((int)op) {
    case UL_KX_ADD:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case UL_KX_SUB:
        return (int64_t)((uint64_t)a - (uint64_t)b);
    case UL_KX_MUL:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case UL_KX_DIV:
    case UL_KX_MOD:
    case UL_KX_FMOD:
        return int_divide(op, is_unsigned, a, b);
    case UL_KX_MIN:
        return less ? a : b;
    case UL_KX_MAX:
        return less ? b : a;
    case UL_KX_POW:
        return int_power(a, b);
    case UL_KX_AND:
        return a & b;
    case UL_KX_OR:
        return a | b;
    case UL_KX_XOR:
        return a ^ b;
    case UL_KX_SHL:
    case UL_KX_SHR:
        return int_shift(op, dtype, a, b);
    default:
        UL_ASSERT(false);
        return 0;
    }
}

static bool compare(enum ul_kx_op op, enum ul_dtype dtype, union ul_scalar a, union ul_scalar b)
{
    if (ul_dtype_is_wide(dtype)) {
        bool equal = a.f <= b.f && a.f >= b.f;
        if (op == UL_KX_LT)
            return a.f < b.f;
        if (op == UL_KX_LE)
            return a.f <= b.f;
        return op == UL_KX_EQ ? equal : !equal;
    }
    bool less = dtype == UL_U64 ? (uint64_t)a.i < (uint64_t)b.i : a.i < b.i;
    if (op == UL_KX_LT)
        return less;
    if (op == UL_KX_LE)
        return less || a.i == b.i;
    return (a.i == b.i) == (op == UL_KX_EQ);
}

static union ul_scalar saturate(enum ul_dtype to, double value)
{
    static const double two63 = 9223372036854775808.0;
    const struct ul_dtype_info *info = ul_dtype_get(to);
    unsigned bits = info->bits;
    if (isnan(value))
        return (union ul_scalar){.i = 0};
    if (to == UL_U64) {
        uint64_t whole = value <= 0 ? 0 : value >= 2 * two63 ? UINT64_MAX : (uint64_t)value;
        return (union ul_scalar){.i = (int64_t)whole};
    }
    double top = ldexp(1, (int)(info->is_signed ? bits - 1 : bits));
    double bottom = info->is_signed ? -top : 0;
    if (value <= bottom)
        return (union ul_scalar){.i = info->is_signed ? -(int64_t)(top / 2) * 2 : 0};
    if (value >= top)
        return (union ul_scalar){.i = (int64_t)((uint64_t)(top / 2) * 2 - 1)};
    return (union ul_scalar){.i = (int64_t)value};
}

union ul_scalar ul_machine_cast(enum ul_dtype from, enum ul_dtype to, union ul_scalar value)
{
    if (ul_dtype_is_wide(from) && ul_dtype_is_wide(to))
        return of_float(to, value.f);
    if (ul_dtype_is_wide(from))
        return to == UL_BOOL ? (union ul_scalar){.i = !(value.f >= 0 && value.f <= 0)}
                             : saturate(to, value.f);
    if (to == UL_F32)
        return (union ul_scalar){.f = from == UL_U64 ? (double)(float)(uint64_t)value.i
                                                     : (double)(float)value.i};
    if (to == UL_F64)
        return (union ul_scalar){.f = from == UL_U64 ? (double)(uint64_t)value.i : (double)value.i};
    return of_int(to, value.i);
}

static union ul_scalar bitcast(enum ul_dtype from, enum ul_dtype to, union ul_scalar value)
{
    unsigned char bytes[8];
    if (ul_dtype_is_wide(from))
        ul_element_put_float(bytes, from, value.f);
    else
        ul_element_put_int(bytes, from, value.i);
    if (ul_dtype_is_wide(to))
        return (union ul_scalar){.f = ul_element_get_float(bytes, to)};
    return (union ul_scalar){.i = ul_element_get_int(bytes, to)};
}

static double round_to(int64_t immediate, double value)
{
    unsigned char bytes[8];
    enum ul_dtype storage = (enum ul_dtype)(immediate & 255);
    double max = ul_dtype_largest(storage);
    if ((immediate & 256) != 0 && !isnan(value)) {
        value = value > max ? max : value < -max ? -max : value;
        if (storage == UL_F8E8M0 && value == 0)
            value = 0x1p-127;
    }
    ul_element_put_float(bytes, storage, value);
    return ul_element_get_float(bytes, storage);
}

/* Philox4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011); word 0. */
static uint32_t philox(uint64_t counter, uint64_t seed)
{
    uint32_t x[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * x[0];
        uint64_t p1 = (uint64_t)0xCD9E8D57u * x[2];
        uint32_t y0 = (uint32_t)(p1 >> 32) ^ x[1] ^ key[0];
        uint32_t y2 = (uint32_t)(p0 >> 32) ^ x[3] ^ key[1];
        x[1] = (uint32_t)p1;
        x[3] = (uint32_t)p0;
        x[0] = y0;
        x[2] = y2;
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return x[0];
}

static union ul_scalar clamp_index(struct ul_machine *machine, int64_t index, int64_t count)
{
    if (index >= 0 && index < count)
        return (union ul_scalar){.i = index};
    machine->reported = true;
    return (union ul_scalar){.i = index < 0 ? 0 : count - 1};
}

union ul_scalar ul_machine_unary(struct ul_machine *machine, const struct ul_kx_data *expr,
                                 enum ul_dtype from, union ul_scalar a)
{
    switch ((int)expr->op) {
    case UL_KX_INDEX:
        return clamp_index(machine, a.i, expr->imm_int);
    case UL_KX_CAST:
        return ul_machine_cast(from, expr->dtype, a);
    case UL_KX_BITCAST:
        return bitcast(from, expr->dtype, a);
    case UL_KX_ROUND_TO:
        return (union ul_scalar){.f = round_to(expr->imm_int, a.f)};
    case UL_KX_ISNAN:
        return (union ul_scalar){.i = ul_dtype_is_wide(from) && isnan(a.f)};
    case UL_KX_ISINF:
        return (union ul_scalar){.i = ul_dtype_is_wide(from) && isinf(a.f)};
    case UL_KX_RANDOM:
        return (union ul_scalar){.i = philox((uint64_t)a.i, (uint64_t)expr->imm_int)};
    default:
        break;
    }
    if (ul_dtype_is_wide(expr->dtype))
        return of_float(expr->dtype, float_unary(machine->functions, expr->op, expr->dtype, a.f));
    return of_int(expr->dtype, int_unary(expr->op, a.i));
}

union ul_scalar ul_machine_binary(const struct ul_kx_data *expr, enum ul_dtype from,
                                  union ul_scalar a, union ul_scalar b)
{
    if (expr->op >= UL_KX_LT && expr->op <= UL_KX_NE)
        return (union ul_scalar){.i = compare(expr->op, from, a, b)};
    if (ul_dtype_is_wide(from))
        return of_float(from, float_binary(expr->op, from, a.f, b.f));
    return of_int(from, int_binary(expr->op, from, a.i, b.i));
}

static union ul_scalar fuse(enum ul_dtype dtype, double a, double b, double c)
{
    return (union ul_scalar){.f = dtype == UL_F32 ? (double)fmaf((float)a, (float)b, (float)c)
                                                  : fma(a, b, c)};
}

union ul_scalar ul_machine_fma(const struct ul_machine *machine, enum ul_dtype dtype,
                               union ul_scalar a, union ul_scalar b, union ul_scalar c)
{
    if (!ul_dtype_is_wide(dtype))
        return of_int(dtype, (int64_t)((uint64_t)c.i + (uint64_t)a.i * (uint64_t)b.i));
    if (machine->kernel->rounds_products)
        return of_float(dtype, c.f + of_float(dtype, a.f * b.f).f);
    return fuse(dtype, a.f, b.f, c.f);
}

union ul_scalar ul_machine_fused(const struct ul_kx_data *sum, bool is_first, union ul_scalar a,
                                 union ul_scalar b, union ul_scalar c)
{
    const bool is_difference = sum->op == UL_KX_SUB;
    return fuse(sum->dtype, is_difference && !is_first ? -a.f : a.f, b.f,
                is_difference && is_first ? -c.f : c.f);
}

ul_kx ul_machine_fused_product(const struct ul_machine *machine, ul_kx sum)
{
    return machine->kernel->rounds_products ? UL_NONE : ul_kx_fused_product(machine->kernel, sum);
}

const struct ul_machine_functions ul_functions_rounded = {
    .exp = ul_exp_f32, .log = ul_log_f32, .tanh = ul_tanh_f32, .erf = ul_erf_f32};
