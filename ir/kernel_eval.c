/* SPDX-License-Identifier: Apache-2.0 */
/* The interpreter of kernels: constant folding and the operators' quick tests run on it.
 *
 * A tree walk over expressions and statements with one frame of variables; innermost loops whose
 * iterations are independent go in lanes (kernel_eval_lanes.c). Operations on scalars are in
 * kernel_eval_scalar.c. */
#include "ir/kernel_eval.h"

#include <string.h>

static union ul_scalar eval(struct ul_machine *machine, ul_kx id);

static union ul_scalar eval_fused(struct ul_machine *machine, const struct ul_kx_data *sum,
                                  ul_kx product)
{
    const struct ul_kx_data *factors = &machine->kernel->exprs[product];
    const bool is_first = product == sum->a;
    union ul_scalar a = eval(machine, factors->a), b = eval(machine, factors->b);
    return ul_machine_fused(sum, is_first, a, b, eval(machine, is_first ? sum->b : sum->a));
}

static union ul_scalar eval(struct ul_machine *machine, ul_kx id)
{
    const struct ul_kx_data *expr = &machine->kernel->exprs[id];
    switch ((int)expr->op) {
    case UL_KX_INT:
        return (union ul_scalar){.i = expr->imm_int};
    case UL_KX_FLOAT:
        return (union ul_scalar){.f = expr->imm_float};
    case UL_KX_VAR:
        return machine->vars[expr->var];
    case UL_KX_LOAD:
        return ul_machine_load(machine, expr->var, eval(machine, expr->a).i);
    case UL_KX_SELECT:
        return eval(machine, eval(machine, expr->a).i != 0 ? expr->b : expr->c);
    case UL_KX_FMA: {
        union ul_scalar a = eval(machine, expr->a), b = eval(machine, expr->b);
        return ul_machine_fma(machine, expr->dtype, a, b, eval(machine, expr->c));
    }
    default:
        break;
    }
    ul_kx product = ul_machine_fused_product(machine, id);
    if (product != UL_NONE)
        return eval_fused(machine, expr, product);
    enum ul_dtype from = ul_kx_dtype(machine->kernel, expr->a);
    union ul_scalar a = eval(machine, expr->a);
    if (ul_kx_operand_count(expr->op) == 1)
        return ul_machine_unary(machine, expr, from, a);
    return ul_machine_binary(expr, from, a, eval(machine, expr->b));
}

static bool run_list(struct ul_machine *machine, ul_ks first);

static int64_t affine(struct ul_machine *machine, const struct ul_contraction *contraction,
                      const struct ul_affine *at)
{
    int64_t sum = eval(machine, at->base).i;
    uint32_t count = contraction->m_count + contraction->n_count + contraction->k_count;
    for (uint32_t i = 0; i < count; i++)
        sum += at->strides[i] * machine->vars[contraction->vars[i]].i;
    return sum;
}

/* The integer of 2 or 4 bits at `part` of a byte. */
static int64_t packed_part(unsigned byte, enum ul_dtype dtype, unsigned part)
{
    unsigned bits = ul_dtype_get(dtype)->bits;
    int64_t code = byte >> bits * part & ((1u << bits) - 1), sign = (int64_t)1 << (bits - 1);
    return ul_dtype_get(dtype)->is_signed ? (code ^ sign) - sign : code;
}

static union ul_scalar operand_load(struct ul_machine *machine,
                                    const struct ul_contraction *contraction,
                                    const struct ul_operand *operand)
{
    const struct ul_buffer *buffer = &machine->kernel->buffers[operand->buffer];
    enum ul_dtype dtype = ul_compute_dtype(ul_operand_dtype(machine->kernel, operand));
    for (uint32_t i = 0; i < operand->bound_count; i++) {
        int64_t at = affine(machine, contraction, &operand->bounds[i].at);
        if (at < 0 || at >= operand->bounds[i].extent)
            return ul_dtype_is_wide(contraction->acc_dtype)
                       ? (union ul_scalar){.f = operand->outside}
                       : (union ul_scalar){.i = (int64_t)operand->outside};
    }
    int64_t index = affine(machine, contraction, &operand->at);
    int64_t per = operand->packed == UL_DTYPE_NONE ? 1 : 8 / ul_dtype_get(operand->packed)->bits;
    UL_ASSERT(index >= 0 && (uint64_t)(index / per) < buffer->element_count);
    const unsigned char *place = machine->places[operand->buffer] +
                                 (uint64_t)(index / per) * ul_dtype_get(buffer->dtype)->size_bytes;
    union ul_scalar loaded;
    if (per > 1)
        loaded.i = packed_part(*place, operand->packed, (unsigned)(index % per));
    else if (ul_dtype_is_wide(dtype))
        loaded.f = ul_element_get_float(place, buffer->dtype);
    else
        loaded.i = ul_element_get_int(place, buffer->dtype);
    if (operand->transform == UL_NONE)
        return ul_machine_cast(dtype, contraction->acc_dtype, loaded);
    machine->vars[operand->loaded] = loaded;
    return eval(machine, operand->transform);
}

/* Steps the variables [first, first + count) like an odometer; false after the last. */
static bool advance(struct ul_machine *machine, const struct ul_contraction *contraction,
                    uint32_t first, uint32_t count)
{
    for (uint32_t i = first + count; i-- > first;) {
        int64_t *value = &machine->vars[contraction->vars[i]].i;
        if (++*value < contraction->extents[i])
            return true;
        *value = 0;
    }
    return false;
}

static bool contraction_empty(const struct ul_contraction *contraction, uint32_t first,
                              uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        if (contraction->extents[i] <= 0)
            return true;
    }
    return false;
}

static bool run_contraction(struct ul_machine *machine, const struct ul_contraction *contraction)
{
    uint32_t outer = contraction->m_count + contraction->n_count;
    enum ul_dtype dtype = contraction->acc_dtype;
    bool no_terms = contraction_empty(contraction, outer, contraction->k_count);
    if (contraction_empty(contraction, 0, outer))
        return true;
    for (uint32_t i = 0; i < outer + contraction->k_count; i++)
        machine->vars[contraction->vars[i]].i = 0;
    do {
        union ul_scalar sum;
        memset(&sum, 0, sizeof sum);
        while (!no_terms) {
            union ul_scalar a = operand_load(machine, contraction, &contraction->a);
            union ul_scalar b = operand_load(machine, contraction, &contraction->b);
            sum = ul_machine_fma(machine, dtype, a, b, sum);
            if (machine->work_left == 0)
                return false;
            machine->work_left--;
            if (!advance(machine, contraction, outer, contraction->k_count))
                break;
        }
        machine->vars[contraction->acc] = sum;
        if (!run_list(machine, contraction->epilogue))
            return false;
    } while (advance(machine, contraction, 0, outer));
    return true;
}

static bool run_for(struct ul_machine *machine, ul_ks id)
{
    const struct ul_ks_data *stmt = &machine->kernel->stmts[id];
    int64_t count = eval(machine, stmt->value).i;
    if (machine->loops[id] == UL_LOOP_UNKNOWN)
        machine->loops[id] = ul_machine_has_lanes(machine, stmt) ? UL_LOOP_LANES : UL_LOOP_SCALAR;
    if (machine->loops[id] == UL_LOOP_LANES)
        return ul_machine_run_lanes(machine, stmt, count);
    for (int64_t i = 0; i < count && !machine->breaking; i++) {
        machine->vars[stmt->var].i = i;
        if (!run_list(machine, stmt->body))
            return false;
    }
    machine->breaking = false;
    return true;
}

static bool run_statement(struct ul_machine *machine, ul_ks id)
{
    const struct ul_ks_data *stmt = &machine->kernel->stmts[id];
    switch (stmt->kind) {
    case UL_KS_FOR:
        return run_for(machine, id);
    case UL_KS_IF:
        return run_list(machine, eval(machine, stmt->value).i != 0 ? stmt->body : stmt->orelse);
    case UL_KS_LET:
    case UL_KS_SET:
    case UL_KS_VAR:
        machine->vars[stmt->var] = eval(machine, stmt->value);
        return true;
    case UL_KS_STORE: {
        union ul_scalar value = eval(machine, stmt->value);
        ul_machine_store(machine, stmt->buffer, eval(machine, stmt->index).i, value);
        return true;
    }
    case UL_KS_CONTRACT:
        return run_contraction(machine, &machine->kernel->contractions[stmt->contraction]);
    case UL_KS_BREAK:
        machine->breaking = true;
        return true;
    }
    return false;
}

static bool run_list(struct ul_machine *machine, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE && !machine->breaking;
         id = machine->kernel->stmts[id].next) {
        if (machine->work_left == 0)
            return false;
        machine->work_left--;
        if (!run_statement(machine, id))
            return false;
    }
    return true;
}

bool ul_kernel_eval(const struct ul_kernel *kernel, unsigned char *const *buffers,
                    uint64_t *work_left, struct ul_arena *scratch, bool *report)
{
    struct ul_machine machine = {.kernel = kernel, .work_left = *work_left, .scratch = scratch};
    *report = false;
    machine.vars = UL_NEW_ARRAY(scratch, union ul_scalar, kernel->var_count);
    machine.functions = kernel->rounds_products ? &ul_functions_rounded : &ul_functions_fused;
    machine.lanes = UL_NEW_ARRAY(scratch, union ul_scalar *, kernel->var_count);
    machine.stores = UL_NEW_ARRAY(scratch, union ul_scalar *, kernel->var_count);
    machine.loops = UL_NEW_ARRAY(scratch, unsigned char, kernel->stmt_count);
    machine.places = UL_NEW_ARRAY(scratch, unsigned char *, kernel->buffer_count);
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &kernel->buffers[i];
        if (buffer->role == UL_BUFFER_INPUT || buffer->role == UL_BUFFER_OUTPUT) {
            machine.places[i] = buffers[i] + buffer->offset_bytes;
            continue;
        }
        /* Scratch counts as work: the sizes come from a model that nobody vouches for. */
        uint64_t size_bytes = ul_buffer_bytes(buffer);
        if (size_bytes > machine.work_left) {
            *work_left = 0;
            return false;
        }
        machine.work_left -= size_bytes;
        machine.places[i] = ul_arena_alloc(scratch, size_bytes);
    }
    bool done = run_list(&machine, kernel->first);
    *work_left = machine.work_left;
    *report = machine.reported;
    return done;
}
