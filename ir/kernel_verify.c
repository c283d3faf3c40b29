/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the invariants of kernel.h: every expression once, for its type; then the statements in
 * their order, for what is in scope, where accesses lie, and which rounds of a loop they tell
 * apart.
 *
 *      for v0 < 8 parallel             an index of an output is known by the loops that it hangs
 *        for v1 < 4                    on: where it leaves out v0, eight rounds that may run at
 *          b1[4 * v0 + v1] = ...       the same time store to one place
 *
 * An index is followed through names as a sum of loop variables times constants. Where it is that,
 * and every round of the loops runs, its minimum and maximum are met: outside of the buffer is
 * an error. For any other index only a range is known, which may be too wide: it is an error when
 * all of it is outside.
 *
 *      for v0 < 8                      a condition on one loop variable narrows its values, and so
 *        if v0 + 1 < 8                 does a bound of an operand: here 0 to 6 are met
 *          b1[v0] = b0[v0 + 1]
 *
 * Left undone: accesses behind any other condition, or where a loop may have been left. */
#include "ir/kernel_build.h"
#include "ir/kernel_text.h"

#include <stdlib.h>
#include <string.h>

enum { TERMS = 24, DEPTH = 2 * UL_LIMIT_NESTING };

/* What is known of a variable in scope. */
enum var_state { VAR_UNKNOWN, VAR_PAST, VAR_NAME, VAR_LOOP, VAR_MUTABLE };

/* What a variable could be before a condition narrowed it. */
struct narrowed {
    uint32_t var;
    int64_t low, high;
};

struct verify {
    const struct ul_kernel *kernel;
    struct ul_diag *diag;
    struct ul_arena *scratch;
    uint8_t *states;        /* by variable: enum var_state */
    bool *is_whole;         /* by variable of a loop: all of its range is met */
    ul_kx *values;          /* by variable that is a name: for which value */
    int64_t *lows, *highs;  /* by variable of a loop: which values it may have here */
    struct narrowed *trail; /* undone after their conditions */
    uint32_t trail_count, trail_capacity;
    uint64_t *var_loops;  /* by variable: loops that its value depends on, by their depth */
    uint64_t *expr_loops; /* by expression of the current statement, the same */
    uint32_t *seen;       /* by expression: the statement that looked at it last, plus 1 */
    uint32_t *scope;      /* variables in scope, in order */
    uint32_t scope_count; /* how many there are */
    bool *is_written;     /* by buffer */
    ul_ks statement;      /* the current one; UL_NONE: none */
    uint32_t epoch;
    uint32_t depth;      /* of loops */
    uint64_t parallel;   /* loops with rounds that may run at the same time */
    uint32_t conditions; /* around the statement: it may not run */
    bool is_empty;       /* a loop around the statement has no round */
    bool in_sequential;  /* the innermost loop may be left */
};

static enum ul_status fail(struct verify *v, const char *what)
{
    if (v->statement == UL_NONE)
        return ul_diag_set(v->diag, UL_INVALID, "the kernel %s", what);
    struct ul_text text;
    ul_text_init(&text, v->scratch);
    ul_kernel_print_statement(&text, v->kernel, v->statement);
    return ul_diag_set(v->diag, UL_INVALID, "the statement '%.200s' %s", text.data, what);
}

static enum ul_status fail_expr(struct verify *v, ul_kx id, const char *what)
{
    return ul_diag_set(v->diag, UL_INVALID, "expression %u of the kernel %s", (unsigned)id, what);
}

/* ---- Expressions by themselves ---- */

static bool is_compared(enum ul_kx_op op)
{
    return op == UL_KX_LT || op == UL_KX_LE || op == UL_KX_EQ || op == UL_KX_NE;
}

/* Whether the type is the one that an operation of one operand gives. */
static bool unary_agrees(const struct ul_kernel *kernel, const struct ul_kx_data *expr)
{
    enum ul_dtype a = ul_kx_dtype(kernel, expr->a);
    switch ((int)expr->op) {
    case UL_KX_NOT:
        return expr->dtype == UL_BOOL && a == UL_BOOL;
    case UL_KX_ISNAN:
    case UL_KX_ISINF:
        return expr->dtype == UL_BOOL;
    case UL_KX_BITCAST:
        return ul_dtype_get(expr->dtype)->size_bytes == ul_dtype_get(a)->size_bytes;
    case UL_KX_CAST:
        return true;
    case UL_KX_ROUND_TO: {
        int64_t storage = expr->imm_int & 255;
        return expr->dtype == a && (a == UL_F32 || (a == UL_F64 && storage == UL_F64)) &&
               storage < UL_DTYPE_COUNT && ul_dtype_get((enum ul_dtype)storage)->is_float;
    }
    case UL_KX_INDEX:
        return expr->dtype == UL_I64 && a == UL_I64 && expr->imm_int > 0;
    case UL_KX_RANDOM:
        return expr->dtype == UL_U32 && a == UL_U64;
    default:
        return expr->dtype == a;
    }
}

bool ul_kx_agrees(const struct ul_kernel *kernel, ul_kx id)
{
    const struct ul_kx_data *expr = &kernel->exprs[id];
    uint32_t count = ul_kx_operand_count(expr->op);
    if (expr->op == UL_KX_INT)
        return !ul_dtype_is_wide(expr->dtype);
    if (expr->op == UL_KX_FLOAT)
        return ul_dtype_is_wide(expr->dtype);
    if (expr->op == UL_KX_VAR)
        return kernel->vars[expr->var].dtype == expr->dtype;
    if (expr->op == UL_KX_LOAD)
        return ul_kx_dtype(kernel, expr->a) == UL_I64 &&
               expr->dtype == ul_compute_dtype(kernel->buffers[expr->var].dtype);
    if (count == 1)
        return unary_agrees(kernel, expr);
    enum ul_dtype a = ul_kx_dtype(kernel, expr->a), b = ul_kx_dtype(kernel, expr->b);
    if (expr->op == UL_KX_SELECT)
        return a == UL_BOOL && b == expr->dtype && ul_kx_dtype(kernel, expr->c) == expr->dtype;
    if (expr->op == UL_KX_FMA)
        return ul_dtype_is_wide(a) && a == b && a == expr->dtype &&
               ul_kx_dtype(kernel, expr->c) == a;
    if (expr->op == UL_KX_SHL || expr->op == UL_KX_SHR)
        return expr->dtype == a && !ul_dtype_is_wide(a) && !ul_dtype_is_wide(b);
    return a == b && expr->dtype == (is_compared(expr->op) ? UL_BOOL : a);
}

static bool is_compute_dtype(enum ul_dtype dtype)
{
    return dtype > UL_DTYPE_NONE && dtype < UL_DTYPE_COUNT &&
           (ul_dtype_is_wide(dtype) || dtype == UL_BOOL || ul_dtype_get(dtype)->is_integer);
}

/* Operands come before what is made from them, so there are no cycles. */
static enum ul_status check_expr(struct verify *v, ul_kx id)
{
    const struct ul_kernel *kernel = v->kernel;
    const struct ul_kx_data *expr = &kernel->exprs[id];
    if ((unsigned)expr->op > UL_KX_FMA || !is_compute_dtype(expr->dtype))
        return fail_expr(v, id, "has no operation or no type");
    const ul_kx operands[3] = {expr->a, expr->b, expr->c};
    uint32_t count = expr->op == UL_KX_LOAD ? 1 : ul_kx_operand_count(expr->op);
    for (uint32_t i = 0; i < count; i++) {
        if (operands[i] >= id)
            return fail_expr(v, id, "uses one that comes later");
    }
    if (expr->op == UL_KX_VAR && expr->var >= kernel->var_count)
        return fail_expr(v, id, "is a variable that the kernel does not have");
    if (expr->op == UL_KX_LOAD && expr->var >= kernel->buffer_count)
        return fail_expr(v, id, "loads from a buffer that the kernel does not have");
    return ul_kx_agrees(kernel, id) ? UL_OK : fail_expr(v, id, "has operands of the wrong type");
}

static enum ul_status check_buffer(struct verify *v, uint32_t id)
{
    enum { MAX_LOCAL = 1024 }; /* elements: of the widest fold of a device's team */
    const struct ul_buffer *buffer = &v->kernel->buffers[id];
    if ((unsigned)buffer->role > UL_BUFFER_LOCAL || buffer->dtype <= UL_DTYPE_NONE ||
        buffer->dtype >= UL_DTYPE_COUNT)
        return fail(v, "has a buffer without a role or a type");
    if (buffer->role == UL_BUFFER_LOCAL &&
        (buffer->element_count == 0 || buffer->element_count > MAX_LOCAL))
        return fail(v, "has a local array that is empty or too large");
    return UL_OK;
}

/* ---- Where accesses lie ---- */

/* The values of an index, as a sum over loops. */
struct reach {
    uint32_t count;
    uint32_t vars[TERMS];
    int64_t factors[TERMS];
    int64_t low, high;
    bool is_known;
    bool is_met; /* low and high are values that it has */
};

static void reach_move(struct reach *reach, int64_t factor, int64_t low, int64_t high)
{
    int64_t a, b;
    if (low <= -UL_KX_RANGE_MAX || high >= UL_KX_RANGE_MAX ||
        __builtin_mul_overflow(factor, low, &a) || __builtin_mul_overflow(factor, high, &b) ||
        __builtin_add_overflow(reach->low, a < b ? a : b, &reach->low) ||
        __builtin_add_overflow(reach->high, a < b ? b : a, &reach->high))
        reach->is_known = false;
}

static void reach_var(struct reach *reach, uint32_t var, int64_t factor)
{
    for (uint32_t i = 0; i < reach->count; i++) {
        if (reach->vars[i] != var)
            continue;
        if (__builtin_add_overflow(reach->factors[i], factor, &reach->factors[i]))
            reach->is_known = false;
        return;
    }
    if (reach->count == TERMS) {
        reach->is_known = false;
        return;
    }
    reach->vars[reach->count] = var;
    reach->factors[reach->count++] = factor;
}

/* Whether a name stands for all values that its variable may have. Blocking a loop names it again,
 * more narrowly. */
static bool is_transparent(const struct verify *v, uint32_t var)
{
    const struct ul_kernel_var *info = &v->kernel->vars[var];
    if (v->states[var] != VAR_NAME || v->values[var] == UL_NONE)
        return false;
    const struct ul_kx_data *value = &v->kernel->exprs[v->values[var]];
    return info->low <= value->low && info->high >= value->high;
}

static void reach_expr(const struct verify *v, struct reach *reach, ul_kx id, int64_t factor,
                       uint32_t depth)
{
    const struct ul_kx_data *expr = &v->kernel->exprs[id];
    int64_t times;
    if (expr->op == UL_KX_INT) {
        reach_move(reach, factor, expr->imm_int, expr->imm_int);
    } else if (expr->op == UL_KX_VAR && depth < DEPTH && is_transparent(v, expr->var)) {
        reach_expr(v, reach, v->values[expr->var], factor, depth + 1);
    } else if (expr->op == UL_KX_VAR) {
        reach_var(reach, expr->var, factor);
    } else if (expr->op == UL_KX_ADD && depth < DEPTH) {
        reach_expr(v, reach, expr->a, factor, depth + 1);
        reach_expr(v, reach, expr->b, factor, depth + 1);
    } else if (expr->op == UL_KX_SUB && factor != INT64_MIN && depth < DEPTH) {
        reach_expr(v, reach, expr->a, factor, depth + 1);
        reach_expr(v, reach, expr->b, -factor, depth + 1);
    } else if (expr->op == UL_KX_MUL && depth < DEPTH && ul_kx_is_int(v->kernel, expr->b, &times) &&
               !__builtin_mul_overflow(factor, times, &times)) {
        reach_expr(v, reach, expr->a, times, depth + 1);
    } else {
        reach->is_met = false;
        reach_move(reach, factor, expr->low, expr->high);
    }
}

static void reach_close(const struct verify *v, struct reach *reach)
{
    for (uint32_t i = 0; i < reach->count; i++) {
        uint32_t id = reach->vars[i];
        const struct ul_kernel_var *var = &v->kernel->vars[id];
        bool is_loop = v->states[id] == VAR_LOOP;
        if (reach->factors[i] == 0)
            continue;
        reach->is_met = reach->is_met && is_loop && v->is_whole[id];
        reach_move(reach, reach->factors[i], is_loop ? v->lows[id] : var->low,
                   is_loop ? v->highs[id] : var->high);
    }
}

static enum ul_status check_reach(struct verify *v, const struct reach *reach, uint32_t buffer,
                                  uint64_t count)
{
    int64_t last = count > INT64_MAX ? INT64_MAX : (int64_t)count - 1;
    bool leaves = reach->low < 0 || reach->high > last;
    bool is_outside = reach->high < 0 || reach->low > last;
    if (!reach->is_known || v->conditions > 0 || !(reach->is_met ? leaves : is_outside))
        return UL_OK;
    return fail(v, ul_arena_printf(v->scratch, "leaves buffer %u: indexes %lld to %lld of %llu",
                                   (unsigned)buffer, (long long)reach->low, (long long)reach->high,
                                   (unsigned long long)count));
}

static enum ul_status check_access(struct verify *v, uint32_t buffer, ul_kx index)
{
    struct reach reach = {.is_known = true, .is_met = true};
    reach_expr(v, &reach, index, 1, 0);
    reach_close(v, &reach);
    return check_reach(v, &reach, buffer, v->kernel->buffers[buffer].element_count);
}

/* ---- Expressions in a statement ---- */

static enum ul_status check_load(struct verify *v, const struct ul_kx_data *expr)
{
    const struct ul_buffer *buffer = &v->kernel->buffers[expr->var];
    if (buffer->role != UL_BUFFER_INPUT && !v->is_written[expr->var])
        return fail(v, ul_arena_printf(v->scratch, "loads from buffer %u before it is stored to",
                                       (unsigned)expr->var));
    return check_access(v, expr->var, expr->a);
}

/* Both sides of a select may be evaluated, but what one of them loads may be behind its condition:
 * `conditions` says so. */
static enum ul_status check_use(struct verify *v, ul_kx id)
{
    const struct ul_kx_data *expr = &v->kernel->exprs[id];
    if (v->seen[id] == v->epoch)
        return UL_OK;
    v->seen[id] = v->epoch;
    uint64_t loops = 0;
    const ul_kx operands[3] = {expr->a, expr->b, expr->c};
    uint32_t count = expr->op == UL_KX_LOAD ? 1 : ul_kx_operand_count(expr->op);
    for (uint32_t i = 0; i < count; i++) {
        bool is_choice = expr->op == UL_KX_SELECT && i > 0;
        v->conditions += is_choice;
        UL_TRY(check_use(v, operands[i]));
        v->conditions -= is_choice;
        loops |= v->expr_loops[operands[i]];
    }
    if (expr->op == UL_KX_VAR) {
        if (v->states[expr->var] <= VAR_PAST)
            return fail(v, ul_arena_printf(v->scratch, "uses v%u where it is not declared",
                                           (unsigned)expr->var));
        loops = v->var_loops[expr->var];
    }
    if (expr->op == UL_KX_LOAD)
        UL_TRY(check_load(v, expr));
    v->expr_loops[id] = loops;
    return UL_OK;
}

static enum ul_status use(struct verify *v, ul_kx id, enum ul_dtype dtype)
{
    if (id >= v->kernel->expr_count)
        return fail(v, "lacks an expression");
    if (ul_kx_dtype(v->kernel, id) != dtype)
        return fail(v, "has an expression of the wrong type");
    return check_use(v, id);
}

/* ---- Scopes ---- */

static enum ul_status declare(struct verify *v, uint32_t var, enum var_state state, ul_kx value)
{
    if (var >= v->kernel->var_count)
        return fail(v, "declares a variable that the kernel does not have");
    if (v->states[var] != VAR_UNKNOWN)
        return fail(v, "declares a variable again");
    v->states[var] = (uint8_t)state;
    v->values[var] = value;
    v->var_loops[var] = state == VAR_MUTABLE                    ? UINT64_MAX
                        : state == VAR_NAME && value != UL_NONE ? v->expr_loops[value]
                                                                : 0;
    v->scope[v->scope_count++] = var;
    return UL_OK;
}

static void leave_scope(struct verify *v, uint32_t count)
{
    UL_ASSERT(count <= v->scope_count);
    while (v->scope_count > count)
        v->states[v->scope[--v->scope_count]] = VAR_UNKNOWN;
}

/* A variable in [0, count), or up to *count where that is not constant. */
static enum ul_status declare_index(struct verify *v, uint32_t var, int64_t count, bool is_whole,
                                    bool is_parallel)
{
    UL_TRY(declare(v, var, VAR_LOOP, UL_NONE));
    const struct ul_kernel_var *info = &v->kernel->vars[var];
    if (info->dtype != UL_I64 || info->low != 0 || info->high < 0)
        return fail(v, "has a variable that cannot count");
    if (count > 0 && count - 1 > info->high)
        return fail(v, "counts beyond the range of its variable");
    v->lows[var] = info->low;
    v->highs[var] = info->high;
    v->is_whole[var] = is_whole && count > 0 && info->high == count - 1;
    uint64_t bit = (uint64_t)1 << (v->depth < 63 ? v->depth : 63);
    v->var_loops[var] = bit;
    v->parallel &= ~bit;
    if (is_parallel && info->high > 0 && v->depth < 63)
        v->parallel |= bit;
    v->depth++;
    return UL_OK;
}

/* ---- Statements ---- */

static enum ul_status check_list(struct verify *v, ul_ks first);

/* Whether the loop may be left before its last round. */
static bool holds_break(const struct ul_kernel *kernel, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE; id = kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &kernel->stmts[id];
        if (stmt->kind == UL_KS_BREAK)
            return true;
        if (stmt->kind == UL_KS_IF &&
            (holds_break(kernel, stmt->body) || holds_break(kernel, stmt->orelse)))
            return true;
    }
    return false;
}

/* What is set inside of loops, and undone after them. */
struct inside {
    uint32_t scope_count, depth, conditions, trail_count;
    uint64_t parallel;
    bool is_empty, in_sequential;
};

static struct inside enter(const struct verify *v)
{
    return (struct inside){.scope_count = v->scope_count,
                           .depth = v->depth,
                           .conditions = v->conditions,
                           .trail_count = v->trail_count,
                           .parallel = v->parallel,
                           .is_empty = v->is_empty,
                           .in_sequential = v->in_sequential};
}

static void leave(struct verify *v, const struct inside *inside)
{
    leave_scope(v, inside->scope_count);
    while (v->trail_count > inside->trail_count) {
        const struct narrowed *old = &v->trail[--v->trail_count];
        v->lows[old->var] = old->low;
        v->highs[old->var] = old->high;
    }
    v->depth = inside->depth;
    v->conditions = inside->conditions;
    v->parallel = inside->parallel;
    v->is_empty = inside->is_empty;
    v->in_sequential = inside->in_sequential;
}

/* ---- Conditions ---- */

static int64_t divide_down(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* The sum is in [low, high] from here on. What is not a sum of one loop variable may have any
 * value: it narrows nothing, and what follows may not run. */
static void narrow(struct verify *v, const struct reach *sum, int64_t low, int64_t high)
{
    uint32_t at = UL_NONE;
    uint32_t count = 0;
    for (uint32_t i = 0; i < sum->count; i++) {
        at = sum->factors[i] != 0 ? i : at;
        count += sum->factors[i] != 0;
    }
    bool is_fixed = sum->is_known && sum->low == sum->high && sum->low > -UL_KX_RANGE_MAX &&
                    sum->low < UL_KX_RANGE_MAX;
    if (!is_fixed || count != 1 || v->states[sum->vars[at]] != VAR_LOOP) {
        v->conditions++;
        return;
    }
    uint32_t var = sum->vars[at];
    int64_t factor = sum->factors[at];
    int64_t below = factor > 0 ? low - sum->low : sum->low - high;
    int64_t above = factor > 0 ? high - sum->low : sum->low - low;
    factor = factor > 0 ? factor : -factor;
    below = -divide_down(-below, factor);
    above = divide_down(above, factor);
    UL_GROW(v->scratch, v->trail, v->trail_count, v->trail_capacity);
    v->trail[v->trail_count++] = (struct narrowed){var, v->lows[var], v->highs[var]};
    v->lows[var] = below > v->lows[var] ? below : v->lows[var];
    v->highs[var] = above < v->highs[var] ? above : v->highs[var];
    v->conditions += v->lows[var] > v->highs[var]; /* it never runs */
}

/* What follows runs only where the condition is `wanted`. */
static void assume(struct verify *v, ul_kx id, bool wanted)
{
    const struct ul_kx_data *expr = &v->kernel->exprs[id];
    struct reach sum = {.is_known = true, .is_met = true};
    if (expr->op == UL_KX_NOT) {
        assume(v, expr->a, !wanted);
    } else if (expr->op == (wanted ? UL_KX_AND : UL_KX_OR) && expr->dtype == UL_BOOL) {
        assume(v, expr->a, wanted);
        assume(v, expr->b, wanted);
    } else if ((expr->op == UL_KX_LT || expr->op == UL_KX_LE ||
                expr->op == (wanted ? UL_KX_EQ : UL_KX_NE)) &&
               ul_kx_dtype(v->kernel, expr->a) == UL_I64) {
        reach_expr(v, &sum, expr->a, 1, 0);
        reach_expr(v, &sum, expr->b, -1, 0);
        bool is_less = expr->op == UL_KX_LT || expr->op == UL_KX_LE;
        int64_t edge = expr->op == UL_KX_LT ? -1 : 0;
        int64_t low = is_less && wanted ? -UL_KX_RANGE_MAX : is_less ? edge + 1 : 0;
        narrow(v, &sum, low, is_less && !wanted ? UL_KX_RANGE_MAX : edge);
    } else {
        v->conditions++;
    }
}

static enum ul_status check_attend(struct verify *v, const struct ul_attend *attend);

static enum ul_status check_for(struct verify *v, const struct ul_ks_data *stmt)
{
    int64_t count;
    bool is_parallel = (stmt->flags & UL_FOR_PARALLEL) != 0;
    const uint32_t ordered = UL_FOR_REDUCE | UL_FOR_LAUNCHED;
    if (is_parallel && (stmt->flags & ordered) != 0)
        return fail(v, "is parallel and has an order");
    if ((stmt->flags & UL_FOR_ALONE) != 0 && (is_parallel || (stmt->flags & ordered) != 0))
        return fail(v, "is one thread's without an order, and something else too");
    UL_TRY(use(v, stmt->value, UL_I64));
    bool is_constant = ul_kx_is_int(v->kernel, stmt->value, &count);
    if (!is_constant)
        count = v->kernel->exprs[stmt->value].low;
    bool can_break = !is_parallel && holds_break(v->kernel, stmt->body);
    struct inside inside = enter(v);
    UL_TRY(declare_index(v, stmt->var, count, is_constant && !can_break, is_parallel));
    v->conditions += count <= 0;
    v->is_empty = v->is_empty || (is_constant && count <= 0);
    v->in_sequential = !is_parallel;
    ul_ks statement = v->statement;
    UL_TRY(check_list(v, stmt->body));
    if ((stmt->flags & UL_FOR_ATTEND) != 0) {
        v->statement = statement;
        if (stmt->contraction >= v->kernel->attend_count)
            return fail(v, "says what attention it is, which the kernel does not have");
        UL_TRY(check_attend(v, &v->kernel->attends[stmt->contraction]));
    }
    leave(v, &inside);
    return UL_OK;
}

static enum ul_status check_if(struct verify *v, const struct ul_ks_data *stmt)
{
    struct inside inside = enter(v);
    UL_TRY(use(v, stmt->value, UL_BOOL));
    assume(v, stmt->value, true);
    UL_TRY(check_list(v, stmt->body));
    leave(v, &inside);
    assume(v, stmt->value, false);
    UL_TRY(check_list(v, stmt->orelse));
    leave(v, &inside);
    return UL_OK;
}

static enum ul_status check_definition(struct verify *v, const struct ul_ks_data *stmt)
{
    if (stmt->var >= v->kernel->var_count)
        return fail(v, "sets a variable that the kernel does not have");
    const struct ul_kernel_var *var = &v->kernel->vars[stmt->var];
    UL_TRY(use(v, stmt->value, var->dtype));
    if (stmt->kind == UL_KS_LET)
        return declare(v, stmt->var, VAR_NAME, stmt->value);
    if (!var->is_mutable)
        return fail(v, "sets a variable that never changes");
    if (stmt->kind == UL_KS_VAR)
        return declare(v, stmt->var, VAR_MUTABLE, UL_NONE);
    return v->states[stmt->var] == VAR_MUTABLE ? UL_OK : fail(v, "sets what is not declared so");
}

/* Whether the index is the same in another round of `at`, a parallel loop, together with a round of
 * `other`: one of the factors is a multiple of the other, and the loop is long enough. */
static bool rounds_meet(const struct verify *v, const struct reach *sum, uint32_t at,
                        uint32_t other)
{
    const uint64_t loop = v->var_loops[sum->vars[at]], beside = v->var_loops[sum->vars[other]];
    const int64_t factor = sum->factors[at], by = sum->factors[other];
    const int64_t last = v->highs[sum->vars[at]] - v->lows[sum->vars[at]];
    const int64_t other_last = v->highs[sum->vars[other]] - v->lows[sum->vars[other]];
    bool at_once = (loop & v->parallel) != 0 && (beside > loop || (beside & v->parallel) != 0);
    if (at == other || !at_once || factor == 0 || by == 0 || factor == INT64_MIN ||
        by == INT64_MIN || last < 1 || other_last < 1)
        return false;
    return (factor % by == 0 && llabs(factor / by) <= other_last) ||
           (by % factor == 0 && llabs(by / factor) <= last);
}

/* Whether two rounds store to one place, as far as an index tells that is a sum over whole
 * loops. */
static bool stores_twice(const struct verify *v, ul_kx index)
{
    struct reach sum = {.is_known = true, .is_met = true};
    reach_expr(v, &sum, index, 1, 0);
    for (uint32_t i = 0; i < sum.count; i++)
        sum.is_met = sum.is_met && v->states[sum.vars[i]] == VAR_LOOP && v->is_whole[sum.vars[i]];
    if (!sum.is_known || !sum.is_met || v->conditions > 0)
        return false;
    for (uint32_t i = 0; i < sum.count; i++) {
        for (uint32_t k = 0; k < sum.count; k++) {
            if (rounds_meet(v, &sum, i, k))
                return true;
        }
    }
    return false;
}

/* Rounds that may run at the same time store to an output at places of their own, as far as indexes
 * tell that are sums over loops: a store that combines what several rounds give belongs in a loop
 * that is not parallel. For indexes in the data, and those with a division, the lowering vouches;
 * scratch that a round shares with no other is private to it (codegen/kernel/touch.h). */
static enum ul_status check_store(struct verify *v, const struct ul_ks_data *stmt)
{
    if (stmt->buffer >= v->kernel->buffer_count)
        return fail(v, "stores to a buffer that the kernel does not have");
    const struct ul_buffer *buffer = &v->kernel->buffers[stmt->buffer];
    if (buffer->role == UL_BUFFER_INPUT)
        return fail(v, "stores to an input");
    UL_TRY(use(v, stmt->value, ul_compute_dtype(buffer->dtype)));
    UL_TRY(use(v, stmt->index, UL_I64));
    UL_TRY(check_access(v, stmt->buffer, stmt->index));
    v->is_written[stmt->buffer] = true;
    if (buffer->role == UL_BUFFER_OUTPUT && !v->is_empty &&
        ((v->parallel & ~v->expr_loops[stmt->index]) != 0 || stores_twice(v, stmt->index)))
        return fail(v, "stores to one place in several rounds of a parallel loop");
    return UL_OK;
}

/* ---- Contractions ---- */

static struct reach reach_affine(const struct verify *v, const struct ul_contraction *contraction,
                                 const struct ul_affine *affine)
{
    struct reach reach = {.is_known = true, .is_met = true};
    reach_expr(v, &reach, affine->base, 1, 0);
    for (uint32_t i = 0; i < UL_CONTRACT_DIMS; i++) {
        if (affine->strides[i] != 0)
            reach_var(&reach, contraction->vars[i], affine->strides[i]);
    }
    return reach;
}

/* Checks what is made from an element, which may read others. */
static enum ul_status check_transform(struct verify *v, const struct ul_contraction *contraction,
                                      const struct ul_operand *operand)
{
    const struct ul_kernel *kernel = v->kernel;
    if (operand->transform == UL_NONE)
        return UL_OK;
    UL_TRY(declare(v, operand->loaded, VAR_NAME, UL_NONE));
    if (kernel->vars[operand->loaded].dtype != ul_compute_dtype(ul_operand_dtype(kernel, operand)))
        return fail(v, "has an operand that is loaded as another type");
    v->epoch++;
    return use(v, operand->transform, contraction->acc_dtype);
}

/* Checks an operand: it is read, and transformed, only within its bounds. */
static enum ul_status check_operand(struct verify *v, const struct ul_contraction *contraction,
                                    const struct ul_operand *operand)
{
    const struct ul_kernel *kernel = v->kernel;
    if (operand->buffer >= kernel->buffer_count ||
        operand->bound_count > sizeof operand->bounds / sizeof *operand->bounds)
        return fail(v, "has an operand without a buffer");
    const struct ul_buffer *buffer = &kernel->buffers[operand->buffer];
    if (buffer->role != UL_BUFFER_INPUT && !v->is_written[operand->buffer])
        return fail(v, "has an operand that is not yet stored");
    if (operand->packed != UL_DTYPE_NONE &&
        (buffer->dtype != UL_U8 || !ul_dtype_get(operand->packed)->is_integer ||
         ul_dtype_get(operand->packed)->bits >= 8))
        return fail(v, "has a packed operand that is not integers of 2 or 4 bits in bytes");
    struct inside inside = enter(v);
    UL_TRY(use(v, operand->at.base, UL_I64));
    for (uint32_t i = 0; i < operand->bound_count; i++) {
        UL_TRY(use(v, operand->bounds[i].at.base, UL_I64));
        struct reach bound = reach_affine(v, contraction, &operand->bounds[i].at);
        narrow(v, &bound, 0, operand->bounds[i].extent - 1);
    }
    struct reach reach = reach_affine(v, contraction, &operand->at);
    reach_close(v, &reach);
    uint64_t per = operand->packed == UL_DTYPE_NONE ? 1 : 8 / ul_dtype_get(operand->packed)->bits;
    UL_TRY(check_reach(v, &reach, operand->buffer, per * buffer->element_count));
    UL_TRY(check_transform(v, contraction, operand));
    leave(v, &inside);
    v->epoch++;
    return UL_OK;
}

static enum ul_status check_dims(struct verify *v, const struct ul_contraction *c)
{
    if (c->m_count > UL_CONTRACT_DIMS || c->n_count > UL_CONTRACT_DIMS ||
        c->k_count > UL_CONTRACT_DIMS || c->m_count + c->n_count + c->k_count > UL_CONTRACT_DIMS)
        return fail(v, "has too many dimensions");
    for (uint32_t i = 0; i < c->m_count + c->n_count + c->k_count; i++) {
        UL_TRY(declare_index(v, c->vars[i], c->extents[i], true, i < c->m_count + c->n_count));
        v->conditions += c->extents[i] <= 0;
        v->is_empty = v->is_empty || c->extents[i] <= 0;
    }
    return UL_OK;
}

/* Checks sums; leaves their variables in scope, but for those of k. */
static enum ul_status check_sums(struct verify *v, const struct ul_contraction *c, bool has_a)
{
    UL_TRY(check_dims(v, c));
    uint32_t outer_count = c->m_count + c->n_count;
    if (has_a)
        UL_TRY(check_operand(v, c, &c->a));
    UL_TRY(check_operand(v, c, &c->b));
    for (uint32_t i = outer_count; i < outer_count + c->k_count; i++)
        v->states[c->vars[i]] = VAR_PAST;
    UL_TRY(declare(v, c->acc, VAR_NAME, UL_NONE));
    return v->kernel->vars[c->acc].dtype == c->acc_dtype
               ? UL_OK
               : fail(v, "has an accumulator of another type");
}

/* Checks the second product of the same rows and columns. */
static enum ul_status check_slopes(struct verify *v, const struct ul_attend *attend)
{
    const struct ul_contraction *first = &attend->scores[0], *second = &attend->scores[1];
    for (uint32_t d = 0; d < 2; d++)
        if (second->extents[d] != first->extents[d])
            return fail(v, "has attention with two products that differ in size");
    return check_sums(v, second, true);
}

/* Checks what is done with the scores of a part's keys; the first part's names stand for all. */
static enum ul_status check_scores(struct verify *v, const struct ul_attend *attend, uint32_t part)
{
    struct inside inside = enter(v);
    v->epoch++;
    UL_TRY(check_sums(v, &attend->scores[part], true));
    if (attend->has_slopes)
        UL_TRY(check_slopes(v, attend));
    if (part == 0) {
        UL_TRY(check_list(v, attend->before));
        v->epoch++;
        UL_TRY(use(v, attend->score, attend->scores[0].acc_dtype));
        if (attend->factor != UL_NONE)
            UL_TRY(use(v, attend->factor, attend->scores[0].acc_dtype));
        if (attend->has_shares)
            UL_TRY(use(v, attend->share, attend->scores[0].acc_dtype));
    }
    leave(v, &inside);
    return UL_OK;
}

static enum ul_status check_values(struct verify *v, const struct ul_attend *attend, uint32_t part)
{
    struct inside inside = enter(v);
    v->epoch++;
    UL_TRY(check_sums(v, &attend->values[part], false));
    UL_TRY(check_list(v, attend->values[part].epilogue));
    leave(v, &inside);
    return UL_OK;
}

static enum ul_status check_norms(struct verify *v, const struct ul_attend *attend)
{
    struct inside inside = enter(v);
    v->epoch++;
    UL_TRY(declare_index(v, attend->norm_query, attend->queries, true, true));
    UL_TRY(declare(v, attend->norm, VAR_NAME, UL_NONE));
    UL_TRY(check_list(v, attend->norms));
    leave(v, &inside);
    return UL_OK;
}

static enum ul_status check_attend(struct verify *v, const struct ul_attend *attend)
{
    ul_ks statement = v->statement;
    struct inside inside = enter(v);
    if (attend->part_count == 0 || attend->part_count > UL_ATTEND_PARTS)
        return fail(v, "has attention without keys");
    if (attend->kind != UL_ATTEND_RESULT && attend->part_count > 1)
        return fail(v, "has sums of attention in parts");
    if (attend->kind == UL_ATTEND_STATISTICS && !attend->has_slopes)
        return fail(v, "has statistics of attention without a second product");
    if (attend->kind == UL_ATTEND_EACH && !attend->has_slopes)
        return fail(v, "has each score of attention without a second product");
    if (attend->kind == UL_ATTEND_SUM && attend->has_slopes &&
        attend->values[0].b.buffer != attend->scores[0].b.buffer)
        return fail(v, "has sums of attention with slopes, but of other values");
    if (attend->has_shares &&
        (!attend->has_slopes || attend->values[1].b.buffer != attend->scores[1].b.buffer))
        return fail(v, "has a second sum of attention, but not of what its slopes are of");
    if (attend->rounds > 0)
        UL_TRY(declare_index(v, attend->round_var, attend->rounds, true, false));
    for (uint32_t i = 0; i < attend->part_count; i++) {
        if (attend->key_counts[i] < 0 || attend->key_counts[i] > attend->keys)
            return fail(v, "has attention to more keys than there are");
        UL_TRY(check_scores(v, attend, i));
        v->statement = statement;
        UL_TRY(check_values(v, attend, i));
        v->statement = statement;
    }
    if (attend->has_shares)
        UL_TRY(check_values(v, attend, 1));
    v->statement = statement;
    if (attend->has_norms)
        UL_TRY(check_norms(v, attend));
    v->statement = statement;
    leave(v, &inside);
    return UL_OK;
}

static enum ul_status check_contraction(struct verify *v, const struct ul_contraction *contraction)
{
    if (contraction->attend != NULL)
        return check_attend(v, contraction->attend);
    struct inside inside = enter(v);
    UL_TRY(check_sums(v, contraction, true));
    v->in_sequential = false;
    UL_TRY(check_list(v, contraction->epilogue));
    leave(v, &inside);
    return UL_OK;
}

static enum ul_status check_statement(struct verify *v, ul_ks id)
{
    const struct ul_ks_data *stmt = &v->kernel->stmts[id];
    v->statement = id;
    v->epoch++;
    switch (stmt->kind) {
    case UL_KS_FOR:
        return check_for(v, stmt);
    case UL_KS_IF:
        return check_if(v, stmt);
    case UL_KS_LET:
    case UL_KS_SET:
    case UL_KS_VAR:
        return check_definition(v, stmt);
    case UL_KS_STORE:
        return check_store(v, stmt);
    case UL_KS_CONTRACT:
        if (stmt->contraction >= v->kernel->contraction_count)
            return fail(v, "is one that the kernel does not have");
        return check_contraction(v, &v->kernel->contractions[stmt->contraction]);
    case UL_KS_BREAK:
        return v->in_sequential ? UL_OK : fail(v, "leaves no loop that has an order");
    }
    return fail(v, "is none");
}

static enum ul_status check_list(struct verify *v, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE; id = v->kernel->stmts[id].next) {
        if (id >= v->kernel->stmt_count)
            return fail(v, "is followed by one that the kernel does not have");
        UL_TRY(check_statement(v, id));
        /* What follows may not run, here and, until the loop is left, around. */
        const struct ul_ks_data *stmt = &v->kernel->stmts[id];
        v->conditions += stmt->kind == UL_KS_IF && (holds_break(v->kernel, stmt->body) ||
                                                    holds_break(v->kernel, stmt->orelse));
    }
    return UL_OK;
}

static enum ul_status check_all(struct verify *v)
{
    const struct ul_kernel *kernel = v->kernel;
    for (uint32_t i = 0; i < kernel->buffer_count; i++)
        UL_TRY(check_buffer(v, i));
    for (ul_kx id = 0; id < kernel->expr_count; id++)
        UL_TRY(check_expr(v, id));
    UL_TRY(check_list(v, kernel->first));
    v->statement = UL_NONE;
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &kernel->buffers[i];
        if (buffer->role == UL_BUFFER_OUTPUT && buffer->element_count > 0 && !v->is_written[i])
            return fail(v, "has an output that nothing is stored to");
    }
    return UL_OK;
}

enum ul_status ul_kernel_verify(const struct ul_kernel *kernel, struct ul_arena *scratch,
                                ul_ks *broken, struct ul_diag *diag)
{
    struct verify v = {.kernel = kernel, .scratch = scratch, .diag = diag, .statement = UL_NONE};
    v.states = UL_NEW_ARRAY(scratch, uint8_t, kernel->var_count);
    v.is_whole = UL_NEW_ARRAY(scratch, bool, kernel->var_count);
    v.lows = UL_NEW_ARRAY(scratch, int64_t, kernel->var_count);
    v.highs = UL_NEW_ARRAY(scratch, int64_t, kernel->var_count);
    v.values = UL_NEW_ARRAY(scratch, ul_kx, kernel->var_count);
    v.var_loops = UL_NEW_ARRAY(scratch, uint64_t, kernel->var_count);
    v.scope = UL_NEW_ARRAY(scratch, uint32_t, kernel->var_count);
    v.expr_loops = UL_NEW_ARRAY(scratch, uint64_t, kernel->expr_count);
    v.seen = UL_NEW_ARRAY(scratch, uint32_t, kernel->expr_count);
    v.is_written = UL_NEW_ARRAY(scratch, bool, kernel->buffer_count);
    enum ul_status status = check_all(&v);
    if (broken != NULL)
        *broken = v.statement;
    return status;
}
