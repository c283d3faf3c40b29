/* SPDX-License-Identifier: Apache-2.0 */
/* Building kernels: hash-consed expressions with smart constructors, and statement lists.
 *
 * The constructors fold constants and use the ranges of i64 expressions to drop divisions,
 * remainders and clamps that change nothing; that is all the index simplification there is. */
#include "ir/kernel_build.h"

#include <math.h>
#include <string.h>

enum { FIRST_TABLE_SIZE = 256 };

void ul_kernel_init(struct ul_kernel *kernel, struct ul_arena *arena)
{
    memset(kernel, 0, sizeof *kernel);
    kernel->arena = arena;
    kernel->first = UL_NONE;
    kernel->open_count = 1;
    kernel->open_owner[0] = UL_NONE;
    kernel->open_last[0] = UL_NONE;
}

struct ul_kernel *ul_kernel_copy(const struct ul_kernel *kernel, struct ul_arena *arena)
{
    struct ul_kernel *copy = ul_arena_copy(arena, kernel, sizeof *kernel);
    copy->arena = arena;
    copy->vars = ul_arena_copy(arena, kernel->vars, kernel->var_count * sizeof *kernel->vars);
    copy->var_capacity = kernel->var_count;
    copy->exprs = ul_arena_copy(arena, kernel->exprs, kernel->expr_count * sizeof *kernel->exprs);
    copy->expr_capacity = kernel->expr_count;
    copy->expr_table = ul_arena_copy(arena, kernel->expr_table,
                                     kernel->expr_table_size * sizeof *kernel->expr_table);
    copy->stmts = ul_arena_copy(arena, kernel->stmts, kernel->stmt_count * sizeof *kernel->stmts);
    copy->stmt_capacity = kernel->stmt_count;
    copy->buffers =
        ul_arena_copy(arena, kernel->buffers, kernel->buffer_count * sizeof *kernel->buffers);
    copy->buffer_capacity = kernel->buffer_count;
    copy->contractions = ul_arena_copy(arena, kernel->contractions,
                                       kernel->contraction_count * sizeof *kernel->contractions);
    copy->contraction_capacity = kernel->contraction_count;
    copy->marks = NULL;
    copy->mark_capacity = 0;
    return copy;
}

uint32_t ul_kernel_add_buffer(struct ul_kernel *kernel, enum ul_buffer_role role,
                              enum ul_dtype dtype, uint64_t element_count)
{
    UL_GROW(kernel->arena, kernel->buffers, kernel->buffer_count, kernel->buffer_capacity);
    kernel->buffers[kernel->buffer_count] = (struct ul_buffer){.role = role,
                                                               .dtype = dtype,
                                                               .element_count = element_count,
                                                               .value = UL_NONE,
                                                               .view = UL_NONE};
    return kernel->buffer_count++;
}

enum ul_dtype ul_compute_dtype(enum ul_dtype dtype)
{
    switch (dtype) {
    case UL_U8:
    case UL_U16:
    case UL_U4:
    case UL_U2:
        return UL_U32;
    case UL_I8:
    case UL_I16:
    case UL_I4:
    case UL_I2:
        return UL_I32;
    case UL_F16:
    case UL_BF16:
    case UL_F8E4M3FN:
    case UL_F8E4M3FNUZ:
    case UL_F8E5M2:
    case UL_F8E5M2FNUZ:
    case UL_F4E2M1:
    case UL_F6E2M3:
    case UL_F6E3M2:
    case UL_F8E8M0:
        return UL_F32;
    case UL_F32:
    case UL_F64:
    case UL_I32:
    case UL_I64:
    case UL_U32:
    case UL_U64:
    case UL_BOOL:
        return dtype;
    case UL_DTYPE_NONE:
    case UL_STRING:
    case UL_C64:
    case UL_C128:
    case UL_DTYPE_COUNT:
        break;
    }
    UL_ASSERT(dtype == UL_DTYPE_COUNT); /* a type that kernels do not compute with */
    return UL_DTYPE_NONE;
}

enum ul_dtype ul_operand_dtype(const struct ul_kernel *kernel, const struct ul_operand *operand)
{
    UL_ASSERT(operand->buffer < kernel->buffer_count);
    return operand->packed != UL_DTYPE_NONE ? operand->packed
                                            : kernel->buffers[operand->buffer].dtype;
}

static bool is_float(enum ul_dtype dtype)
{
    return ul_dtype_get(dtype)->is_float;
}

static uint64_t float_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Hash-consing */

static uint32_t expr_hash(const struct ul_kx_data *expr)
{
    uint64_t parts[] = {(uint64_t)expr->op | (uint64_t)expr->dtype << 32,
                        (uint64_t)expr->a << 32 | expr->b, (uint64_t)expr->c << 32 | expr->var,
                        (uint64_t)expr->imm_int, float_bits(expr->imm_float)};
    uint64_t hash = 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        hash = (hash ^ parts[i]) * 0xFF51AFD7ED558CCDu;
        hash ^= hash >> 32;
    }
    return (uint32_t)hash;
}

static bool expr_equal(const struct ul_kx_data *a, const struct ul_kx_data *b)
{
    return a->op == b->op && a->dtype == b->dtype && a->a == b->a && a->b == b->b && a->c == b->c &&
           a->var == b->var && a->imm_int == b->imm_int &&
           float_bits(a->imm_float) == float_bits(b->imm_float);
}

static void table_insert(struct ul_kernel *kernel, ul_kx id)
{
    uint32_t mask = kernel->expr_table_size - 1;
    uint32_t slot = expr_hash(&kernel->exprs[id]) & mask;
    while (kernel->expr_table[slot] != UL_NONE)
        slot = (slot + 1) & mask;
    kernel->expr_table[slot] = id;
}

static void table_grow(struct ul_kernel *kernel)
{
    uint32_t size = kernel->expr_table_size == 0 ? FIRST_TABLE_SIZE : kernel->expr_table_size * 2;
    kernel->expr_table = UL_NEW_ARRAY(kernel->arena, uint32_t, size);
    kernel->expr_table_size = size;
    memset(kernel->expr_table, 0xFF, size * sizeof *kernel->expr_table);
    for (ul_kx id = 0; id < kernel->expr_count; id++)
        table_insert(kernel, id);
}

static ul_kx expr_new(struct ul_kernel *kernel, const struct ul_kx_data *expr)
{
    if (2 * (kernel->expr_count + 1) > kernel->expr_table_size)
        table_grow(kernel);
    uint32_t mask = kernel->expr_table_size - 1;
    for (uint32_t slot = expr_hash(expr) & mask;; slot = (slot + 1) & mask) {
        ul_kx id = kernel->expr_table[slot];
        if (id == UL_NONE)
            break;
        if (expr_equal(&kernel->exprs[id], expr))
            return id;
    }
    UL_GROW(kernel->arena, kernel->exprs, kernel->expr_count, kernel->expr_capacity);
    kernel->exprs[kernel->expr_count] = *expr;
    table_insert(kernel, kernel->expr_count);
    return kernel->expr_count++;
}

/* Ranges of i64 expressions, saturated. */

__extension__ typedef __int128 wide_int; /* products of two i64 */

static int64_t clamp_range(wide_int value)
{
    if (value > UL_KX_RANGE_MAX)
        return UL_KX_RANGE_MAX;
    return value < -UL_KX_RANGE_MAX ? -UL_KX_RANGE_MAX : (int64_t)value;
}

static void range_mul(const struct ul_kx_data *a, const struct ul_kx_data *b,
                      struct ul_kx_data *out)
{
    wide_int corners[4] = {(wide_int)a->low * b->low, (wide_int)a->low * b->high,
                           (wide_int)a->high * b->low, (wide_int)a->high * b->high};
    wide_int low = corners[0];
    wide_int high = corners[0];
    for (int i = 1; i < 4; i++) {
        low = corners[i] < low ? corners[i] : low;
        high = corners[i] > high ? corners[i] : high;
    }
    out->low = clamp_range(low);
    out->high = clamp_range(high);
}

uint64_t ul_buffer_bytes(const struct ul_buffer *buffer)
{
    return ul_size_mul_or_die(buffer->element_count, ul_dtype_get(buffer->dtype)->size_bytes);
}

static int64_t min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void range_set(const struct ul_kernel *kernel, struct ul_kx_data *expr)
{
    const struct ul_kx_data *a = &kernel->exprs[expr->a];
    const struct ul_kx_data *b = &kernel->exprs[expr->b];
    bool bounded = a->low > -UL_KX_RANGE_MAX && a->high < UL_KX_RANGE_MAX;
    expr->low = -UL_KX_RANGE_MAX;
    expr->high = UL_KX_RANGE_MAX;
    if (expr->dtype != UL_I64)
        return;
    if (expr->op == UL_KX_ADD) {
        expr->low = clamp_range((wide_int)a->low + b->low);
        expr->high = clamp_range((wide_int)a->high + b->high);
    } else if (expr->op == UL_KX_SUB) {
        expr->low = clamp_range((wide_int)a->low - b->high);
        expr->high = clamp_range((wide_int)a->high - b->low);
    } else if (expr->op == UL_KX_MUL) {
        range_mul(a, b, expr);
    } else if (expr->op == UL_KX_DIV && b->op == UL_KX_INT && b->imm_int > 0 && bounded) {
        expr->low = a->low / b->imm_int;
        expr->high = a->high / b->imm_int;
    } else if (expr->op == UL_KX_MOD && b->op == UL_KX_INT && b->imm_int > 0) {
        expr->low = 0;
        expr->high = b->imm_int - 1;
    } else if (expr->op == UL_KX_MIN) {
        expr->low = min(a->low, b->low);
        expr->high = min(a->high, b->high);
    } else if (expr->op == UL_KX_MAX) {
        expr->low = ul_max(a->low, b->low);
        expr->high = ul_max(a->high, b->high);
    }
}

/* Leaves */

ul_kx ul_kx_int(struct ul_kernel *kernel, enum ul_dtype dtype, int64_t value)
{
    UL_ASSERT(!is_float(dtype));
    struct ul_kx_data expr = {.op = UL_KX_INT, .dtype = dtype, .imm_int = value};
    expr.low = value < -UL_KX_RANGE_MAX ? -UL_KX_RANGE_MAX : min(value, UL_KX_RANGE_MAX);
    expr.high = value > UL_KX_RANGE_MAX ? UL_KX_RANGE_MAX : ul_max(value, -UL_KX_RANGE_MAX);
    return expr_new(kernel, &expr);
}

ul_kx ul_kx_index_const(struct ul_kernel *kernel, int64_t value)
{
    return ul_kx_int(kernel, UL_I64, value);
}

ul_kx ul_kx_float(struct ul_kernel *kernel, enum ul_dtype dtype, double value)
{
    UL_ASSERT(dtype == UL_F32 || dtype == UL_F64);
    struct ul_kx_data expr = {.op = UL_KX_FLOAT, .dtype = dtype, .imm_float = value};
    if (dtype == UL_F32 && !isnan(value))
        expr.imm_float = (double)(float)value;
    return expr_new(kernel, &expr);
}

ul_kx ul_kx_number(struct ul_kernel *kernel, enum ul_dtype dtype, double value)
{
    if (is_float(dtype))
        return ul_kx_float(kernel, dtype, value);
    return ul_kx_int(kernel, dtype, (int64_t)value);
}

ul_kx ul_kx_var(struct ul_kernel *kernel, uint32_t var)
{
    const struct ul_kernel_var *info = &kernel->vars[var];
    struct ul_kx_data expr = {
        .op = UL_KX_VAR, .dtype = info->dtype, .var = var, .low = info->low, .high = info->high};
    return expr_new(kernel, &expr);
}

ul_kx ul_kx_load(struct ul_kernel *kernel, uint32_t buffer, ul_kx index)
{
    UL_ASSERT(buffer < kernel->buffer_count && ul_kx_dtype(kernel, index) == UL_I64);
    struct ul_kx_data expr = {.op = UL_KX_LOAD,
                              .dtype = ul_compute_dtype(kernel->buffers[buffer].dtype),
                              .a = index,
                              .var = buffer,
                              .low = -UL_KX_RANGE_MAX,
                              .high = UL_KX_RANGE_MAX};
    return expr_new(kernel, &expr);
}

ul_kx ul_kx_load_packed(struct ul_kernel *kernel, uint32_t buffer, enum ul_dtype dtype, ul_kx index)
{
    const struct ul_dtype_info *info = ul_dtype_get(dtype);
    int64_t bits = info->bits, per = 8 / bits;
    UL_ASSERT(info->is_integer && bits < 8 && kernel->buffers[buffer].dtype == UL_U8);
    ul_kx byte =
        ul_kx_cast(kernel, UL_U32, ul_kx_load(kernel, buffer, ul_kx_divi(kernel, index, per)));
    ul_kx shift =
        ul_kx_cast(kernel, UL_U32, ul_kx_muli(kernel, ul_kx_modi(kernel, index, per), bits));
    ul_kx code = ul_kx_binary(kernel, UL_KX_SHR, byte, shift);
    code = ul_kx_binary(kernel, UL_KX_AND, code, ul_kx_int(kernel, UL_U32, (1 << bits) - 1));
    if (!info->is_signed)
        return code;
    ul_kx sign = ul_kx_int(kernel, UL_I32, 1 << (bits - 1));
    code = ul_kx_binary(kernel, UL_KX_XOR, ul_kx_cast(kernel, UL_I32, code), sign);
    return ul_kx_binary(kernel, UL_KX_SUB, code, sign);
}

enum ul_dtype ul_kx_dtype(const struct ul_kernel *kernel, ul_kx a)
{
    UL_ASSERT(a < kernel->expr_count);
    return kernel->exprs[a].dtype;
}

uint32_t ul_kx_operand_count(enum ul_kx_op op)
{
    if (op < UL_KX_LOAD)
        return 0;
    if (op < UL_KX_ADD || op == UL_KX_INDEX || op == UL_KX_RANDOM)
        return 1;
    return op < UL_KX_SELECT ? 2 : 3;
}

static bool is_float_product(const struct ul_kernel *kernel, ul_kx id)
{
    const struct ul_kx_data *expr = &kernel->exprs[id];
    return expr->op == UL_KX_MUL && (expr->dtype == UL_F32 || expr->dtype == UL_F64);
}

ul_kx ul_kx_round_product(struct ul_kernel *kernel, ul_kx a)
{
    return is_float_product(kernel, a) ? ul_kx_round_to(kernel, ul_kx_dtype(kernel, a), false, a)
                                       : a;
}

bool ul_kx_rounds_to_itself(const struct ul_kx_data *expr)
{
    return expr->op == UL_KX_ROUND_TO && (enum ul_dtype)(expr->imm_int & 255) == expr->dtype;
}

ul_kx ul_kx_fused_product(const struct ul_kernel *kernel, ul_kx sum)
{
    const struct ul_kx_data *expr = &kernel->exprs[sum];
    if (expr->op != UL_KX_ADD && expr->op != UL_KX_SUB)
        return UL_NONE;
    return is_float_product(kernel, expr->a)   ? expr->a
           : is_float_product(kernel, expr->b) ? expr->b
                                               : UL_NONE;
}

bool ul_kx_is_int(const struct ul_kernel *kernel, ul_kx a, int64_t *value)
{
    *value = kernel->exprs[a].imm_int;
    return kernel->exprs[a].op == UL_KX_INT;
}

bool ul_kx_factor(const struct ul_kernel *kernel, ul_kx id, uint32_t var, int64_t *factor)
{
    const struct ul_kx_data *expr = &kernel->exprs[id];
    int64_t a;
    int64_t b;
    *factor = 0;
    if (expr->op == UL_KX_INT)
        return true;
    if (expr->op == UL_KX_VAR) {
        *factor = expr->var == var;
        return true;
    }
    if (expr->op == UL_KX_ADD || expr->op == UL_KX_SUB) {
        if (!ul_kx_factor(kernel, expr->a, var, &a) || !ul_kx_factor(kernel, expr->b, var, &b))
            return false;
        return expr->op == UL_KX_ADD ? !__builtin_add_overflow(a, b, factor)
                                     : !__builtin_sub_overflow(a, b, factor);
    }
    return expr->op == UL_KX_MUL && ul_kx_is_int(kernel, expr->b, &b) &&
           ul_kx_factor(kernel, expr->a, var, &a) && !__builtin_mul_overflow(a, b, factor);
}

/* Operations */

static bool gives_bool(enum ul_kx_op op)
{
    return op == UL_KX_LT || op == UL_KX_LE || op == UL_KX_EQ || op == UL_KX_NE ||
           op == UL_KX_NOT || op == UL_KX_ISNAN || op == UL_KX_ISINF;
}

ul_kx ul_kx_unary(struct ul_kernel *kernel, enum ul_kx_op op, ul_kx a)
{
    enum ul_dtype dtype = ul_kx_dtype(kernel, a);
    int64_t value;
    if (dtype == UL_I64 && ul_kx_is_int(kernel, a, &value) && op == UL_KX_NEG && value != INT64_MIN)
        return ul_kx_int(kernel, dtype, -value);
    if (op == UL_KX_NOT && ul_kx_is_int(kernel, a, &value))
        return ul_kx_int(kernel, UL_BOOL, value == 0);
    struct ul_kx_data expr = {.op = op,
                              .dtype = gives_bool(op) ? UL_BOOL : dtype,
                              .a = a,
                              .low = -UL_KX_RANGE_MAX,
                              .high = UL_KX_RANGE_MAX};
    return expr_new(kernel, &expr);
}

/* Folds two i64 constants; false where the result is left to run time. */
static bool fold_ints(enum ul_kx_op op, int64_t a, int64_t b, int64_t *out)
{
    wide_int wide = 0;
    switch ((int)op) {
    case UL_KX_ADD:
        wide = (wide_int)a + b;
        break;
    case UL_KX_SUB:
        wide = (wide_int)a - b;
        break;
    case UL_KX_MUL:
        wide = (wide_int)a * b;
        break;
    case UL_KX_DIV:
        wide = b == 0 ? 0 : (wide_int)a / b;
        break;
    case UL_KX_MOD:
        wide = b == 0 ? 0 : (wide_int)a % b;
        if (wide != 0 && (wide < 0) != (b < 0))
            wide += b;
        break;
    case UL_KX_MIN:
        wide = min(a, b);
        break;
    case UL_KX_MAX:
        wide = ul_max(a, b);
        break;
    default:
        return false;
    }
    *out = (int64_t)wide;
    return wide >= INT64_MIN && wide <= INT64_MAX;
}

static bool fold_compare(enum ul_kx_op op, const struct ul_kx_data *a, const struct ul_kx_data *b,
                         bool *out)
{
    if (a->dtype != UL_I64 || a->low <= -UL_KX_RANGE_MAX || a->high >= UL_KX_RANGE_MAX ||
        b->low <= -UL_KX_RANGE_MAX || b->high >= UL_KX_RANGE_MAX)
        return false;
    if (op == UL_KX_LT || op == UL_KX_LE) {
        bool always = op == UL_KX_LT ? a->high < b->low : a->high <= b->low;
        bool never = op == UL_KX_LT ? a->low >= b->high : a->low > b->high;
        *out = always;
        return always || never;
    }
    if (op == UL_KX_EQ || op == UL_KX_NE) {
        bool apart = a->high < b->low || b->high < a->low;
        bool same = a->low == a->high && b->low == b->high && a->low == b->low;
        *out = (op == UL_KX_EQ) == same;
        return apart || same;
    }
    return false;
}

/* Index identities: x + 0, x * 1, x * 0, x / 1, x mod n within range, clamps within range. True
 * and the simpler expression in *out. */
static bool simplify_index(struct ul_kernel *kernel, enum ul_kx_op op, ul_kx a, ul_kx b, ul_kx *out)
{
    const struct ul_kx_data *left = &kernel->exprs[a];
    const struct ul_kx_data *right = &kernel->exprs[b];
    bool constant = right->op == UL_KX_INT;
    int64_t n = right->imm_int;
    *out = a;
    if (op == UL_KX_MIN && left->high <= right->low)
        return true;
    if (op == UL_KX_MAX && left->low >= right->high)
        return true;
    if ((op == UL_KX_MIN && right->high <= left->low) ||
        (op == UL_KX_MAX && right->low >= left->high)) {
        *out = b;
        return true;
    }
    if (!constant)
        return false;
    if (((op == UL_KX_ADD || op == UL_KX_SUB) && n == 0) ||
        ((op == UL_KX_MUL || op == UL_KX_DIV) && n == 1) ||
        (op == UL_KX_MOD && left->low >= 0 && left->high < n))
        return true;
    if ((op == UL_KX_MUL && n == 0) || (op == UL_KX_MOD && n == 1) ||
        (op == UL_KX_DIV && n > 0 && left->low > -n && left->high < n)) {
        *out = ul_kx_int(kernel, UL_I64, 0);
        return true;
    }
    return false;
}

/* (x*m + y) / n and mod n where n divides m and 0 <= y < n: the shape of every flattened and
 * unflattened index. */
static bool split_sum(struct ul_kernel *kernel, enum ul_kx_op op, ul_kx a, int64_t n, ul_kx *out)
{
    struct ul_kx_data sum = kernel->exprs[a];
    if (n <= 0 || sum.low < 0)
        return false;
    ul_kx product = sum.op == UL_KX_ADD ? sum.a : a;
    ul_kx rest = sum.op == UL_KX_ADD ? sum.b : ul_kx_int(kernel, UL_I64, 0);
    for (int swap = 0; swap < 2; swap++) {
        struct ul_kx_data term = kernel->exprs[product];
        struct ul_kx_data other = kernel->exprs[rest];
        int64_t m;
        if (term.op == UL_KX_MUL && ul_kx_is_int(kernel, term.b, &m) && m > 0 && m % n == 0 &&
            term.low >= 0 && other.low >= 0) {
            if (op == UL_KX_MOD)
                *out = ul_kx_modi(kernel, rest, n);
            else
                *out = ul_kx_add(kernel, ul_kx_muli(kernel, term.a, m / n),
                                 ul_kx_divi(kernel, rest, n));
            return true;
        }
        ul_kx other_id = product;
        product = rest;
        rest = other_id;
    }
    return false;
}

static bool simplify_i64(struct ul_kernel *kernel, enum ul_kx_op op, ul_kx *a, ul_kx *b, ul_kx *out)
{
    int64_t x;
    int64_t y;
    bool left = ul_kx_is_int(kernel, *a, &x);
    bool right = ul_kx_is_int(kernel, *b, &y);
    int64_t folded;
    if (left && right && fold_ints(op, x, y, &folded)) {
        *out = ul_kx_int(kernel, UL_I64, folded);
        return true;
    }
    if (left && !right &&
        (op == UL_KX_ADD || op == UL_KX_MUL || op == UL_KX_MIN || op == UL_KX_MAX)) {
        ul_kx swapped = *a;
        *a = *b;
        *b = swapped;
        y = x;
        right = true;
    }
    if (simplify_index(kernel, op, *a, *b, out))
        return true;
    struct ul_kx_data inner = kernel->exprs[*a];
    int64_t z;
    /* (x op c1) op c2 for + and *: one constant. */
    if (right && (op == UL_KX_ADD || op == UL_KX_MUL) && inner.op == op &&
        ul_kx_is_int(kernel, inner.b, &z) && fold_ints(op, z, y, &folded)) {
        *out = ul_kx_binary(kernel, op, inner.a, ul_kx_int(kernel, UL_I64, folded));
        return true;
    }
    return right && (op == UL_KX_DIV || op == UL_KX_MOD) && split_sum(kernel, op, *a, y, out);
}

ul_kx ul_kx_binary(struct ul_kernel *kernel, enum ul_kx_op op, ul_kx a, ul_kx b)
{
    enum ul_dtype dtype = ul_kx_dtype(kernel, a);
    UL_ASSERT(dtype == ul_kx_dtype(kernel, b) || op == UL_KX_SHL || op == UL_KX_SHR);
    ul_kx simpler;
    bool known;
    if (dtype == UL_I64 && simplify_i64(kernel, op, &a, &b, &simpler))
        return simpler;
    if (fold_compare(op, &kernel->exprs[a], &kernel->exprs[b], &known))
        return ul_kx_int(kernel, UL_BOOL, known);
    int64_t value;
    if (dtype == UL_BOOL && (op == UL_KX_AND || op == UL_KX_OR)) {
        if (ul_kx_is_int(kernel, a, &value))
            return (value != 0) == (op == UL_KX_AND) ? b : a;
        if (ul_kx_is_int(kernel, b, &value))
            return (value != 0) == (op == UL_KX_AND) ? a : b;
    }
    struct ul_kx_data expr = {.op = op, .dtype = gives_bool(op) ? UL_BOOL : dtype, .a = a, .b = b};
    range_set(kernel, &expr);
    return expr_new(kernel, &expr);
}

ul_kx ul_kx_select(struct ul_kernel *kernel, ul_kx condition, ul_kx yes, ul_kx no)
{
    int64_t value;
    UL_ASSERT(ul_kx_dtype(kernel, condition) == UL_BOOL);
    UL_ASSERT(ul_kx_dtype(kernel, yes) == ul_kx_dtype(kernel, no));
    if (ul_kx_is_int(kernel, condition, &value))
        return value != 0 ? yes : no;
    if (yes == no)
        return yes;
    struct ul_kx_data expr = {
        .op = UL_KX_SELECT, .dtype = ul_kx_dtype(kernel, yes), .a = condition, .b = yes, .c = no};
    expr.low = min(kernel->exprs[yes].low, kernel->exprs[no].low);
    expr.high = ul_max(kernel->exprs[yes].high, kernel->exprs[no].high);
    return expr_new(kernel, &expr);
}

ul_kx ul_kx_fma(struct ul_kernel *kernel, ul_kx a, ul_kx b, ul_kx c)
{
    UL_ASSERT(is_float(ul_kx_dtype(kernel, a)));
    struct ul_kx_data expr = {
        .op = UL_KX_FMA, .dtype = ul_kx_dtype(kernel, a), .a = a, .b = b, .c = c};
    return expr_new(kernel, &expr);
}

ul_kx ul_kx_cast(struct ul_kernel *kernel, enum ul_dtype dtype, ul_kx a)
{
    enum ul_dtype from = ul_kx_dtype(kernel, a);
    int64_t value;
    UL_ASSERT(!is_float(dtype) || dtype == UL_F32 || dtype == UL_F64);
    if (from == dtype)
        return a;
    if (kernel->exprs[a].op == UL_KX_FLOAT && is_float(dtype))
        return ul_kx_float(kernel, dtype, kernel->exprs[a].imm_float);
    if (ul_kx_is_int(kernel, a, &value) && value >= 0 && value < 128)
        return dtype == UL_BOOL ? ul_kx_int(kernel, dtype, value != 0)
                                : ul_kx_number(kernel, dtype, (double)value);
    struct ul_kx_data expr = {
        .op = UL_KX_CAST, .dtype = dtype, .a = a, .low = -UL_KX_RANGE_MAX, .high = UL_KX_RANGE_MAX};
    return expr_new(kernel, &expr);
}

ul_kx ul_kx_bitcast(struct ul_kernel *kernel, enum ul_dtype dtype, ul_kx a)
{
    UL_ASSERT(ul_dtype_get(dtype)->size_bytes == ul_dtype_get(ul_kx_dtype(kernel, a))->size_bytes);
    struct ul_kx_data expr = {.op = UL_KX_BITCAST,
                              .dtype = dtype,
                              .a = a,
                              .low = -UL_KX_RANGE_MAX,
                              .high = UL_KX_RANGE_MAX};
    return ul_kx_dtype(kernel, a) == dtype ? a : expr_new(kernel, &expr);
}

ul_kx ul_kx_round_to(struct ul_kernel *kernel, enum ul_dtype storage, bool saturate, ul_kx a)
{
    enum ul_dtype dtype = ul_kx_dtype(kernel, a);
    UL_ASSERT(dtype == UL_F32 || (dtype == UL_F64 && storage == UL_F64));
    struct ul_kx_data expr = {.op = UL_KX_ROUND_TO,
                              .dtype = dtype,
                              .a = a,
                              .imm_int = (int64_t)storage | (saturate ? 256 : 0)};
    return expr_new(kernel, &expr);
}

ul_kx ul_kx_checked_index(struct ul_kernel *kernel, ul_kx a, int64_t bound, bool wrap_negative)
{
    UL_ASSERT(bound > 0);
    ul_kx index = ul_kx_cast(kernel, UL_I64, a);
    if (wrap_negative && kernel->exprs[index].low < 0) {
        ul_kx negative = ul_kx_binary(kernel, UL_KX_LT, index, ul_kx_index_const(kernel, 0));
        index = ul_kx_select(kernel, negative, ul_kx_addi(kernel, index, bound), index);
    }
    if (kernel->exprs[index].low >= 0 && kernel->exprs[index].high < bound)
        return index;
    struct ul_kx_data expr = {.op = UL_KX_INDEX,
                              .dtype = UL_I64,
                              .a = index,
                              .imm_int = bound,
                              .low = 0,
                              .high = bound - 1};
    return expr_new(kernel, &expr);
}

ul_kx ul_kx_clamp(struct ul_kernel *kernel, ul_kx a, int64_t high)
{
    ul_kx above = ul_kx_binary(kernel, UL_KX_MAX, a, ul_kx_index_const(kernel, 0));
    return ul_kx_binary(kernel, UL_KX_MIN, above, ul_kx_index_const(kernel, high));
}

ul_kx ul_kx_random(struct ul_kernel *kernel, ul_kx counter, int64_t seed)
{
    struct ul_kx_data expr = {.op = UL_KX_RANDOM,
                              .dtype = UL_U32,
                              .a = ul_kx_cast(kernel, UL_U64, counter),
                              .imm_int = seed};
    return expr_new(kernel, &expr);
}

ul_kx ul_kx_add(struct ul_kernel *kernel, ul_kx a, ul_kx b)
{
    return ul_kx_binary(kernel, UL_KX_ADD, a, b);
}

ul_kx ul_kx_sub(struct ul_kernel *kernel, ul_kx a, ul_kx b)
{
    return ul_kx_binary(kernel, UL_KX_SUB, a, b);
}

ul_kx ul_kx_mul(struct ul_kernel *kernel, ul_kx a, ul_kx b)
{
    return ul_kx_binary(kernel, UL_KX_MUL, a, b);
}

ul_kx ul_kx_addi(struct ul_kernel *kernel, ul_kx a, int64_t b)
{
    return ul_kx_add(kernel, a, ul_kx_index_const(kernel, b));
}

ul_kx ul_kx_muli(struct ul_kernel *kernel, ul_kx a, int64_t b)
{
    return ul_kx_mul(kernel, a, ul_kx_index_const(kernel, b));
}

ul_kx ul_kx_divi(struct ul_kernel *kernel, ul_kx a, int64_t b)
{
    UL_ASSERT(b > 0);
    ul_kx divisor = ul_kx_index_const(kernel, b);
    if (kernel->exprs[a].low >= 0)
        return ul_kx_binary(kernel, UL_KX_DIV, a, divisor);
    ul_kx remainder = ul_kx_binary(kernel, UL_KX_MOD, a, divisor);
    return ul_kx_binary(kernel, UL_KX_DIV, ul_kx_sub(kernel, a, remainder), divisor);
}

ul_kx ul_kx_modi(struct ul_kernel *kernel, ul_kx a, int64_t b)
{
    UL_ASSERT(b > 0);
    return ul_kx_binary(kernel, UL_KX_MOD, a, ul_kx_index_const(kernel, b));
}

ul_kx ul_kx_rebuild(struct ul_kernel *kernel, ul_kx id, ul_kx a, ul_kx b, ul_kx c)
{
    struct ul_kx_data expr = kernel->exprs[id];
    expr.a = a;
    expr.b = b;
    expr.c = c;
    return expr_new(kernel, &expr);
}

static enum ul_dtype as_is_dtype(const struct ul_kernel *kernel, const struct ul_kx_data *expr)
{
    switch ((int)expr->op) {
    case UL_KX_CAST:
    case UL_KX_BITCAST:
        return expr->dtype;
    case UL_KX_INDEX:
        return UL_I64;
    case UL_KX_RANDOM:
        return UL_U32;
    case UL_KX_SELECT:
        return ul_kx_dtype(kernel, expr->b);
    default:
        return gives_bool(expr->op) ? UL_BOOL : ul_kx_dtype(kernel, expr->a);
    }
}

ul_kx ul_kx_as_is(struct ul_kernel *kernel, const struct ul_kx_data *operation)
{
    struct ul_kx_data expr = *operation;
    UL_ASSERT(expr.op > UL_KX_LOAD && expr.op <= UL_KX_FMA);
    expr.dtype = as_is_dtype(kernel, operation);
    range_set(kernel, &expr);
    if (expr.op == UL_KX_INDEX) {
        expr.low = 0;
        expr.high = expr.imm_int - 1;
    } else if (expr.op == UL_KX_SELECT) {
        expr.low = min(kernel->exprs[expr.b].low, kernel->exprs[expr.c].low);
        expr.high = ul_max(kernel->exprs[expr.b].high, kernel->exprs[expr.c].high);
    }
    return expr_new(kernel, &expr);
}

/* Statements */

static ul_ks stmt_new(struct ul_kernel *kernel, const struct ul_ks_data *stmt)
{
    UL_GROW(kernel->arena, kernel->stmts, kernel->stmt_count, kernel->stmt_capacity);
    ul_ks id = kernel->stmt_count++;
    kernel->stmts[id] = *stmt;
    kernel->stmts[id].next = UL_NONE;
    return id;
}

static ul_ks stmt_append(struct ul_kernel *kernel, const struct ul_ks_data *stmt)
{
    ul_ks id = stmt_new(kernel, stmt);
    uint32_t top = kernel->open_count - 1;
    ul_ks last = kernel->open_last[top];
    ul_ks owner = kernel->open_owner[top];
    if (last != UL_NONE)
        kernel->stmts[last].next = id;
    else if (owner == UL_NONE)
        kernel->first = id;
    else if (kernel->stmts[owner].kind == UL_KS_CONTRACT)
        kernel->contractions[kernel->stmts[owner].contraction].epilogue = id;
    else if (kernel->stmts[owner].kind == UL_KS_IF && kernel->stmts[owner].flags != 0)
        kernel->stmts[owner].orelse = id;
    else
        kernel->stmts[owner].body = id;
    kernel->open_last[top] = id;
    return id;
}

static struct ul_ks_data stmt_blank(enum ul_ks_kind kind)
{
    struct ul_ks_data stmt = {.kind = kind,
                              .var = UL_NONE,
                              .buffer = UL_NONE,
                              .value = UL_NONE,
                              .index = UL_NONE,
                              .body = UL_NONE,
                              .orelse = UL_NONE,
                              .contraction = UL_NONE};
    return stmt;
}

ul_ks ul_ks_link(struct ul_kernel *kernel, ul_ks *last, enum ul_ks_kind kind, uint32_t var,
                 ul_kx value)
{
    struct ul_ks_data stmt = stmt_blank(kind);
    stmt.var = var;
    stmt.value = value;
    ul_ks id = stmt_new(kernel, &stmt);
    if (*last != UL_NONE)
        kernel->stmts[*last].next = id;
    *last = id;
    return id;
}

static void list_open(struct ul_kernel *kernel, ul_ks owner)
{
    UL_ASSERT(kernel->open_count < sizeof kernel->open_owner / sizeof *kernel->open_owner);
    kernel->open_owner[kernel->open_count] = owner;
    kernel->open_last[kernel->open_count] = UL_NONE;
    kernel->open_count++;
}

static uint32_t var_new(struct ul_kernel *kernel, enum ul_dtype dtype, int64_t low, int64_t high,
                        bool is_mutable)
{
    UL_GROW(kernel->arena, kernel->vars, kernel->var_count, kernel->var_capacity);
    kernel->vars[kernel->var_count] =
        (struct ul_kernel_var){.dtype = dtype, .low = low, .high = high, .is_mutable = is_mutable};
    return kernel->var_count++;
}

uint32_t ul_kernel_add_var(struct ul_kernel *kernel, enum ul_dtype dtype)
{
    return var_new(kernel, dtype, -UL_KX_RANGE_MAX, UL_KX_RANGE_MAX, true);
}

uint32_t ul_kernel_add_index(struct ul_kernel *kernel, int64_t count)
{
    return var_new(kernel, UL_I64, 0, count > 0 ? count - 1 : 0, false);
}

ul_kx ul_ks_name(struct ul_kernel *kernel, ul_kx value)
{
    struct ul_kx_data expr = kernel->exprs[value];
    bool mutable_var = expr.op == UL_KX_VAR && kernel->vars[expr.var].is_mutable;
    if (expr.op == UL_KX_INT || expr.op == UL_KX_FLOAT || (expr.op == UL_KX_VAR && !mutable_var))
        return value;
    struct ul_ks_data stmt = stmt_blank(UL_KS_LET);
    stmt.var = var_new(kernel, expr.dtype, expr.low, expr.high, false);
    stmt.value = value;
    stmt_append(kernel, &stmt);
    if (expr.op == UL_KX_INDEX && expr.imm_int == 1)
        return value; /* a 0 by another name would be one without the check that it is used for */
    return ul_kx_var(kernel, stmt.var);
}

uint32_t ul_ks_var(struct ul_kernel *kernel, enum ul_dtype dtype, ul_kx first)
{
    UL_ASSERT(ul_kx_dtype(kernel, first) == dtype);
    struct ul_ks_data stmt = stmt_blank(UL_KS_VAR);
    stmt.var = ul_kernel_add_var(kernel, dtype);
    stmt.value = first;
    stmt_append(kernel, &stmt);
    return stmt.var;
}

void ul_ks_set(struct ul_kernel *kernel, uint32_t var, ul_kx value)
{
    UL_ASSERT(kernel->vars[var].is_mutable &&
              kernel->vars[var].dtype == ul_kx_dtype(kernel, value));
    if (kernel->exprs[value].op == UL_KX_VAR && kernel->exprs[value].var == var)
        return; /* it has one */
    struct ul_ks_data stmt = stmt_blank(UL_KS_SET);
    stmt.var = var;
    stmt.value = value;
    stmt_append(kernel, &stmt);
}

void ul_ks_store(struct ul_kernel *kernel, uint32_t buffer, ul_kx index, ul_kx value)
{
    UL_ASSERT(ul_kx_dtype(kernel, index) == UL_I64);
    struct ul_ks_data stmt = stmt_blank(UL_KS_STORE);
    stmt.buffer = buffer;
    stmt.index = index;
    stmt.value = ul_kx_cast(kernel, ul_compute_dtype(kernel->buffers[buffer].dtype), value);
    stmt_append(kernel, &stmt);
}

void ul_ks_break(struct ul_kernel *kernel)
{
    struct ul_ks_data stmt = stmt_blank(UL_KS_BREAK);
    stmt_append(kernel, &stmt);
}

ul_kx ul_ks_for(struct ul_kernel *kernel, int64_t count, uint32_t flags)
{
    return ul_ks_for_expr(kernel, ul_kx_index_const(kernel, count), count, flags);
}

ul_kx ul_ks_for_expr(struct ul_kernel *kernel, ul_kx count, int64_t max_count, uint32_t flags)
{
    struct ul_ks_data stmt = stmt_blank(UL_KS_FOR);
    stmt.flags = flags;
    stmt.value = count;
    stmt.var = ul_kernel_add_index(kernel, max_count);
    list_open(kernel, stmt_append(kernel, &stmt));
    return ul_kx_var(kernel, stmt.var);
}

void ul_ks_if(struct ul_kernel *kernel, ul_kx condition)
{
    UL_ASSERT(ul_kx_dtype(kernel, condition) == UL_BOOL);
    struct ul_ks_data stmt = stmt_blank(UL_KS_IF);
    stmt.value = condition;
    list_open(kernel, stmt_append(kernel, &stmt));
}

void ul_ks_else(struct ul_kernel *kernel)
{
    ul_ks owner = kernel->open_owner[kernel->open_count - 1];
    UL_ASSERT(owner != UL_NONE && kernel->stmts[owner].kind == UL_KS_IF);
    kernel->stmts[owner].flags = 1; /* the open list now is the other branch */
    kernel->open_last[kernel->open_count - 1] = UL_NONE;
}

void ul_ks_end(struct ul_kernel *kernel)
{
    UL_ASSERT(kernel->open_count > 1);
    ul_ks owner = kernel->open_owner[--kernel->open_count];
    if (kernel->stmts[owner].kind == UL_KS_IF)
        kernel->stmts[owner].flags = 0;
}

bool ul_ks_holds_loop(const struct ul_kernel *kernel, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE; id = kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &kernel->stmts[id];
        if (stmt->kind == UL_KS_FOR || stmt->kind == UL_KS_CONTRACT ||
            ul_ks_holds_loop(kernel, stmt->body) || ul_ks_holds_loop(kernel, stmt->orelse))
            return true;
    }
    return false;
}

static void contraction_vars(struct ul_kernel *kernel, struct ul_contraction *contraction,
                             uint32_t first, const int64_t *extents, uint32_t count)
{
    UL_ASSERT(first + count <= UL_CONTRACT_DIMS);
    for (uint32_t i = 0; i < count; i++) {
        contraction->extents[first + i] = extents[i];
        contraction->vars[first + i] = ul_kernel_add_index(kernel, extents[i]);
    }
}

struct ul_contraction ul_contraction_blank(void)
{
    const struct ul_operand none = {.transform = UL_NONE};
    return (struct ul_contraction){.a = none, .b = none, .epilogue = UL_NONE};
}

void ul_contraction_init(struct ul_kernel *kernel, struct ul_contraction *contraction,
                         enum ul_dtype acc_dtype, const int64_t *m_extents, uint32_t m_count,
                         const int64_t *n_extents, uint32_t n_count, const int64_t *k_extents,
                         uint32_t k_count)
{
    *contraction = ul_contraction_blank();
    contraction->m_count = m_count;
    contraction->n_count = n_count;
    contraction->k_count = k_count;
    contraction_vars(kernel, contraction, 0, m_extents, m_count);
    contraction_vars(kernel, contraction, m_count, n_extents, n_count);
    contraction_vars(kernel, contraction, m_count + n_count, k_extents, k_count);
    contraction->acc_dtype = acc_dtype;
    contraction->acc = var_new(kernel, acc_dtype, -UL_KX_RANGE_MAX, UL_KX_RANGE_MAX, false);
}

uint32_t ul_kernel_add_contraction(struct ul_kernel *kernel,
                                   const struct ul_contraction *contraction)
{
    UL_GROW(kernel->arena, kernel->contractions, kernel->contraction_count,
            kernel->contraction_capacity);
    kernel->contractions[kernel->contraction_count] = *contraction;
    return kernel->contraction_count++;
}

void ul_ks_contract(struct ul_kernel *kernel, const struct ul_contraction *contraction)
{
    struct ul_ks_data stmt = stmt_blank(UL_KS_CONTRACT);
    stmt.contraction = ul_kernel_add_contraction(kernel, contraction);
    list_open(kernel, stmt_append(kernel, &stmt));
}

ul_ks ul_ks_aside(struct ul_kernel *kernel)
{
    UL_GROW(kernel->arena, kernel->stmts, kernel->stmt_count, kernel->stmt_capacity);
    ul_ks id = kernel->stmt_count++;
    kernel->stmts[id] = stmt_blank(UL_KS_IF);
    kernel->stmts[id].next = UL_NONE;
    list_open(kernel, id);
    return id;
}

void ul_ks_mark_attend(struct ul_kernel *kernel, ul_ks loop, const struct ul_attend *attend)
{
    UL_ASSERT(loop < kernel->stmt_count && kernel->stmts[loop].kind == UL_KS_FOR);
    UL_GROW(kernel->arena, kernel->attends, kernel->attend_count, kernel->attend_capacity);
    kernel->attends[kernel->attend_count] = *attend;
    kernel->stmts[loop].flags |= UL_FOR_ATTEND;
    kernel->stmts[loop].contraction = kernel->attend_count++;
}

void ul_ks_attend(struct ul_kernel *kernel, const struct ul_attend *attend)
{
    ul_ks_mark_attend(kernel, kernel->open_owner[kernel->open_count - 1], attend);
}
