/* SPDX-License-Identifier: Apache-2.0 */
/* Runs loops of the interpreter with their iterations side by side.
 *
 * Problem: weights of a network that are computed from weights have millions of elements, and the
 * tree walk of kernel_eval.c takes tens of nanoseconds for each node of each element's expression.
 * Method: an innermost loop of independent iterations goes in steps of LANES; each expression is
 * walked once a step, and makes an array of as many results, or one where it is the same for all.
 * Every lane's operations are those of the scalar walk, in the same order, so the bits are the
 * same.
 *
 * A loop can if its body has nothing but LET and STORE, nothing that one iteration stores is read
 * by another, and no side of a SELECT loads (a lane would load from both). What sums into one
 * variable stays scalar: lowerings keep partial sums in arrays (ops/lanes.h). */
#include "ir/kernel_eval.h"

#include <string.h>

enum { LANES = 64, MAX_DEPTH = 48 };

/* ---- Which loops ---- */

struct look {
    const struct ul_machine *machine;
    const struct ul_ks_data *loop;
    bool in_select;
};

static bool is_loop_var(const struct look *look, ul_kx id)
{
    const struct ul_kx_data *expr = &look->machine->kernel->exprs[id];
    return expr->op == UL_KX_VAR && expr->var == look->loop->var;
}

/* Whether an element belongs to one iteration: its index is the loop's variable, or a sum with
 * it. */
static bool is_own_place(const struct look *look, ul_kx index)
{
    const struct ul_kx_data *expr = &look->machine->kernel->exprs[index];
    return is_loop_var(look, index) ||
           (expr->op == UL_KX_ADD && is_loop_var(look, expr->a) != is_loop_var(look, expr->b));
}

static bool load_is_plain(const struct look *look, const struct ul_kx_data *load)
{
    if (look->in_select)
        return false;
    for (ul_ks id = look->loop->body; id != UL_NONE; id = look->machine->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &look->machine->kernel->stmts[id];
        if (stmt->kind == UL_KS_STORE && stmt->buffer == load->var && stmt->index != load->a)
            return false;
    }
    return true;
}

static bool is_plain(struct look *look, ul_kx id, uint32_t depth)
{
    const struct ul_kx_data *expr = &look->machine->kernel->exprs[id];
    if (depth > MAX_DEPTH || (expr->op == UL_KX_LOAD && !load_is_plain(look, expr)))
        return false;
    const ul_kx operands[3] = {expr->a, expr->b, expr->c};
    bool within = look->in_select, plain = true;
    for (uint32_t i = 0; plain && i < ul_kx_operand_count(expr->op); i++) {
        look->in_select = within || (expr->op == UL_KX_SELECT && i > 0);
        plain = is_plain(look, operands[i], depth + 1);
    }
    look->in_select = within;
    return plain;
}

static bool store_is_plain(struct look *look, const struct ul_ks_data *stmt)
{
    enum ul_buffer_role role = look->machine->kernel->buffers[stmt->buffer].role;
    bool shared = role == UL_BUFFER_LOCAL || role == UL_BUFFER_SCRATCH;
    return (!shared || is_own_place(look, stmt->index)) && is_plain(look, stmt->index, 0);
}

static bool loop_is_plain(struct look *look)
{
    const struct ul_ks_data *loop = look->loop;
    if ((loop->flags & (UL_FOR_PARALLEL | UL_FOR_ALONE)) == 0 || loop->body == UL_NONE)
        return false;
    for (ul_ks id = loop->body; id != UL_NONE; id = look->machine->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &look->machine->kernel->stmts[id];
        bool stores = stmt->kind == UL_KS_STORE;
        if ((!stores && stmt->kind != UL_KS_LET) || !is_plain(look, stmt->value, 0) ||
            (stores && !store_is_plain(look, stmt)))
            return false;
    }
    return true;
}

bool ul_machine_has_lanes(struct ul_machine *machine, const struct ul_ks_data *loop)
{
    struct look look = {.machine = machine, .loop = loop};
    if (!loop_is_plain(&look))
        return false;
    machine->stores[loop->var] = UL_NEW_ARRAY(machine->scratch, union ul_scalar, LANES);
    for (ul_ks id = loop->body; id != UL_NONE; id = machine->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &machine->kernel->stmts[id];
        if (stmt->kind == UL_KS_LET)
            machine->stores[stmt->var] = UL_NEW_ARRAY(machine->scratch, union ul_scalar, LANES);
    }
    return true;
}

/* ---- Expressions: `out` gets `count` results, or one, and true, where all are the same ---- */

static bool eval(struct ul_machine *machine, ul_kx id, uint32_t count, union ul_scalar *out);

static void spread(union ul_scalar *values, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        values[i] = values[0];
}

static bool eval_var(const struct ul_machine *machine, uint32_t var, uint32_t count,
                     union ul_scalar *out)
{
    if (machine->lanes[var] == NULL) {
        out[0] = machine->vars[var];
        return true;
    }
    memcpy(out, machine->lanes[var], sizeof *out * count);
    return false;
}

static bool eval_load(struct ul_machine *machine, const struct ul_kx_data *expr, uint32_t count,
                      union ul_scalar *out)
{
    const struct ul_buffer *buffer = &machine->kernel->buffers[expr->var];
    union ul_scalar index[LANES];
    bool same = eval(machine, expr->a, count, index);
    uint32_t results = same ? 1 : count;
    if (buffer->dtype != UL_F32) {
        for (uint32_t i = 0; i < results; i++)
            out[i] = ul_machine_load(machine, expr->var, index[i].i);
        return same;
    }
    const unsigned char *place = machine->places[expr->var];
    for (uint32_t i = 0; i < results; i++) {
        float loaded;
        UL_ASSERT(index[i].i >= 0 && (uint64_t)index[i].i < buffer->element_count);
        memcpy(&loaded, place + sizeof loaded * (uint64_t)index[i].i, sizeof loaded);
        out[i].f = (double)loaded;
    }
    return same;
}

/* Evaluates what comes most often, without asking for every lane what it is. */
static bool is_done_at_once(const struct ul_kx_data *expr, enum ul_dtype from, uint32_t results,
                            const union ul_scalar *a, const union ul_scalar *b,
                            union ul_scalar *out)
{
    if (from == UL_I64 && expr->op == UL_KX_ADD) {
        for (uint32_t i = 0; i < results; i++)
            out[i].i = (int64_t)((uint64_t)a[i].i + (uint64_t)b[i].i);
    } else if (from == UL_I64 && expr->op == UL_KX_MUL) {
        for (uint32_t i = 0; i < results; i++)
            out[i].i = (int64_t)((uint64_t)a[i].i * (uint64_t)b[i].i);
    } else if (from == UL_F32 && expr->op == UL_KX_ADD) {
        for (uint32_t i = 0; i < results; i++)
            out[i].f = (double)(float)(a[i].f + b[i].f);
    } else if (from == UL_F32 && expr->op == UL_KX_SUB) {
        for (uint32_t i = 0; i < results; i++)
            out[i].f = (double)(float)(a[i].f - b[i].f);
    } else if (from == UL_F32 && expr->op == UL_KX_MUL) {
        for (uint32_t i = 0; i < results; i++)
            out[i].f = (double)(float)(a[i].f * b[i].f);
    } else {
        return false;
    }
    return true;
}

static bool eval_operation(struct ul_machine *machine, const struct ul_kx_data *expr,
                           uint32_t count, union ul_scalar *out)
{
    union ul_scalar at[3][LANES];
    const ul_kx operands[3] = {expr->a, expr->b, expr->c};
    uint32_t operand_count = ul_kx_operand_count(expr->op);
    bool uniform[3] = {true, true, true};
    for (uint32_t i = 0; i < operand_count; i++)
        uniform[i] = eval(machine, operands[i], count, at[i]);
    bool same = uniform[0] && uniform[1] && uniform[2] && expr->op != UL_KX_RANDOM;
    uint32_t results = same ? 1 : count;
    for (uint32_t i = 0; i < operand_count && !same; i++) {
        if (uniform[i])
            spread(at[i], count);
    }
    enum ul_dtype from = ul_kx_dtype(machine->kernel, expr->a);
    if (operand_count == 2 && is_done_at_once(expr, from, results, at[0], at[1], out))
        return same;
    for (uint32_t i = 0; i < results; i++) {
        if (expr->op == UL_KX_SELECT)
            out[i] = at[0][i].i != 0 ? at[1][i] : at[2][i];
        else if (expr->op == UL_KX_FMA)
            out[i] = ul_machine_fma(machine, expr->dtype, at[0][i], at[1][i], at[2][i]);
        else if (operand_count == 1)
            out[i] = ul_machine_unary(machine, expr, from, at[0][i]);
        else
            out[i] = ul_machine_binary(expr, from, at[0][i], at[1][i]);
    }
    return same;
}

/* Evaluates a result for each lane. */
static void eval_each(struct ul_machine *machine, ul_kx id, uint32_t count, union ul_scalar *out)
{
    if (eval(machine, id, count, out))
        spread(out, count);
}

static void eval_fused(struct ul_machine *machine, const struct ul_kx_data *sum, ul_kx product,
                       uint32_t count, union ul_scalar *out)
{
    union ul_scalar a[LANES], b[LANES], other[LANES];
    const struct ul_kx_data *factors = &machine->kernel->exprs[product];
    const bool is_first = product == sum->a;
    eval_each(machine, factors->a, count, a);
    eval_each(machine, factors->b, count, b);
    eval_each(machine, is_first ? sum->b : sum->a, count, other);
    for (uint32_t i = 0; i < count; i++)
        out[i] = ul_machine_fused(sum, is_first, a[i], b[i], other[i]);
}

static bool eval(struct ul_machine *machine, ul_kx id, uint32_t count, union ul_scalar *out)
{
    const struct ul_kx_data *expr = &machine->kernel->exprs[id];
    switch ((int)expr->op) {
    case UL_KX_INT:
        out[0].i = expr->imm_int;
        return true;
    case UL_KX_FLOAT:
        out[0].f = expr->imm_float;
        return true;
    case UL_KX_VAR:
        return eval_var(machine, expr->var, count, out);
    case UL_KX_LOAD:
        return eval_load(machine, expr, count, out);
    default:
        break;
    }
    ul_kx product = ul_machine_fused_product(machine, id);
    if (product == UL_NONE)
        return eval_operation(machine, expr, count, out);
    eval_fused(machine, expr, product, count, out);
    return false;
}

/* ---- The loop ---- */

static void run_statement(struct ul_machine *machine, const struct ul_ks_data *stmt, uint32_t count)
{
    union ul_scalar values[LANES], index[LANES];
    if (stmt->kind == UL_KS_LET) {
        eval_each(machine, stmt->value, count, machine->lanes[stmt->var]);
        return;
    }
    UL_ASSERT(stmt->kind == UL_KS_STORE);
    eval_each(machine, stmt->value, count, values);
    eval_each(machine, stmt->index, count, index);
    for (uint32_t i = 0; i < count; i++)
        ul_machine_store(machine, stmt->buffer, index[i].i, values[i]);
}

/* Makes the variables of a loop stand for lanes, or stops that. Returns its statements, and the
 * loop itself. */
static uint64_t lanes_set(struct ul_machine *machine, const struct ul_ks_data *loop, bool on)
{
    uint64_t statements = 1;
    machine->lanes[loop->var] = on ? machine->stores[loop->var] : NULL;
    for (ul_ks id = loop->body; id != UL_NONE; id = machine->kernel->stmts[id].next, statements++) {
        const struct ul_ks_data *stmt = &machine->kernel->stmts[id];
        if (stmt->kind == UL_KS_LET)
            machine->lanes[stmt->var] = on ? machine->stores[stmt->var] : NULL;
    }
    return statements;
}

bool ul_machine_run_lanes(struct ul_machine *machine, const struct ul_ks_data *loop, int64_t count)
{
    UL_ASSERT(machine->stores[loop->var] != NULL);
    uint64_t statements = lanes_set(machine, loop, true);
    bool done = true;
    for (int64_t first = 0; first < count && done; first += LANES) {
        uint32_t width = count - first < LANES ? (uint32_t)(count - first) : LANES;
        done = machine->work_left >= statements * width;
        machine->work_left -= done ? statements * width : machine->work_left;
        for (uint32_t i = 0; i < width; i++)
            machine->lanes[loop->var][i].i = first + i;
        for (ul_ks id = loop->body; id != UL_NONE && done; id = machine->kernel->stmts[id].next)
            run_statement(machine, &machine->kernel->stmts[id], width);
    }
    (void)lanes_set(machine, loop, false);
    return done;
}
