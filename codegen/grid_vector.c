/* Elements that a thread takes at once: where the innermost loop of the items is contiguous in
 * memory, a load or store of up to 16 bytes instead of one for each element.
 *
 *     y[768 i + j] = x[768 i + j] + b[j]     4 f32 at j = 4 q; 768 and the loop's rounds divide by
 * 4
 *
 * The body must be names and stores alone, all stores contiguous in the loop, and nothing be loaded
 * that it stores. Loads that are not contiguous are done element by element. Whether the buffers
 * are aligned shows when the kernel runs. */
#include "codegen/grid.h"

#include "codegen/touch.h"

/* A test that wants vectors everywhere sets it to 1. */
#ifndef UL_VECTOR_LEAST_THREADS
#define UL_VECTOR_LEAST_THREADS (132 * 128) /* fewer are not worth it: the device is not full */
#endif

struct vectors {
    const struct ul_kernel *kernel;
    const struct ul_phase *phase;
    struct ul_arena *arena;
    uint32_t var;  /* of the innermost loop */
    int64_t width; /* elements */
};

static bool is_of_body(const struct vectors *v, uint32_t var)
{
    for (ul_ks id = v->phase->first; id != v->phase->end; id = v->kernel->stmts[id].next) {
        if (v->kernel->stmts[id].var == var)
            return true;
    }
    return false;
}

static bool names_body(const struct vectors *v, ul_kx id)
{
    const struct ul_kx_data *expr = &v->kernel->exprs[id];
    if (expr->op == UL_KX_VAR)
        return expr->var == v->var || is_of_body(v, expr->var);
    if (ul_kx_operand_count(expr->op) == 0)
        return false;
    return names_body(v, expr->a) ||
           (ul_kx_operand_count(expr->op) >= 2 && names_body(v, expr->b)) ||
           (ul_kx_operand_count(expr->op) == 3 && names_body(v, expr->c));
}

/* Is factor * expression a multiple of the width, but for the loop's variable, whose factor is
 * added to `own`? */
static bool is_even(const struct vectors *v, ul_kx id, int64_t factor, int64_t *own)
{
    const struct ul_kx_data *expr = &v->kernel->exprs[id];
    int64_t number;
    if (ul_kx_is_int(v->kernel, id, &number))
        return number % v->width == 0 || factor % v->width == 0 ||
               (number % v->width) * (factor % v->width) % v->width == 0;
    if (expr->op == UL_KX_VAR && expr->var == v->var) {
        *own += factor;
        return true;
    }
    if (expr->op == UL_KX_ADD || expr->op == UL_KX_SUB)
        return is_even(v, expr->a, factor, own) &&
               is_even(v, expr->b, expr->op == UL_KX_ADD ? factor : -factor, own);
    if (expr->op == UL_KX_MUL && ul_kx_is_int(v->kernel, expr->b, &number) &&
        !__builtin_mul_overflow(factor, number, &number))
        return is_even(v, expr->a, number, own);
    return !names_body(v, id) && factor % v->width == 0;
}

bool ul_grid_is_contiguous(const struct ul_kernel *kernel, const struct ul_phase *phase,
                           ul_kx index)
{
    struct vectors v = {.kernel = kernel, .phase = phase, .width = phase->vector};
    v.var = kernel->stmts[phase->items.loops[phase->items.count - 1]].var;
    int64_t own = 0;
    return is_even(&v, index, 1, &own) && own == 1;
}

/* What a body loads; sizes only of what differs from round to round. */
static void find_loads(const struct vectors *v, ul_kx id, const bool *is_stored,
                       uint64_t *most_bytes, bool *meets)
{
    const struct ul_kx_data *expr = &v->kernel->exprs[id];
    if (ul_kx_operand_count(expr->op) == 0)
        return;
    if (expr->op == UL_KX_LOAD) {
        uint64_t bytes = ul_dtype_get(v->kernel->buffers[expr->var].dtype)->size_bytes;
        if (names_body(v, expr->a) && bytes > *most_bytes)
            *most_bytes = bytes;
        *meets = *meets || is_stored[expr->var];
    }
    find_loads(v, expr->a, is_stored, most_bytes, meets);
    if (ul_kx_operand_count(expr->op) >= 2)
        find_loads(v, expr->b, is_stored, most_bytes, meets);
    if (ul_kx_operand_count(expr->op) == 3)
        find_loads(v, expr->c, is_stored, most_bytes, meets);
}

/* The buffers that the body stores to, each once; false where it is not of the kind. */
static bool find_stores(const struct vectors *v, bool *is_stored, uint64_t *most_bytes)
{
    for (ul_ks id = v->phase->first; id != v->phase->end; id = v->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &v->kernel->stmts[id];
        if (stmt->kind != UL_KS_LET && stmt->kind != UL_KS_STORE)
            return false;
        if (stmt->kind != UL_KS_STORE)
            continue;
        uint64_t bytes = ul_dtype_get(v->kernel->buffers[stmt->buffer].dtype)->size_bytes;
        if (is_stored[stmt->buffer])
            return false;
        is_stored[stmt->buffer] = true;
        *most_bytes = bytes > *most_bytes ? bytes : *most_bytes;
    }
    return true;
}

/* The bytes of the largest element; 0 where the body is not of the kind. */
static uint64_t element_bytes(const struct vectors *v)
{
    bool *is_stored = UL_NEW_ARRAY(v->arena, bool, v->kernel->buffer_count);
    uint64_t most = 0;
    bool meets = false;
    if (!find_stores(v, is_stored, &most))
        return 0;
    for (ul_ks id = v->phase->first; id != v->phase->end; id = v->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &v->kernel->stmts[id];
        find_loads(v, stmt->value, is_stored, &most, &meets);
        if (stmt->kind == UL_KS_STORE)
            find_loads(v, stmt->index, is_stored, &most, &meets);
    }
    return meets ? 0 : most;
}

uint32_t ul_grid_vector(const struct ul_phase *phase, const struct ul_kernel *kernel,
                        struct ul_arena *arena)
{
    enum { PACK_BYTES = 16 };
    struct vectors v = {.kernel = kernel, .phase = phase, .arena = arena};
    if (phase->items.count == 0 || phase->kind != UL_PHASE_EACH)
        return 1;
    uint32_t last = phase->items.count - 1;
    v.var = kernel->stmts[phase->items.loops[last]].var;
    uint64_t bytes = element_bytes(&v);
    if (bytes == 0)
        return 1;
    v.width = (int64_t)(PACK_BYTES / bytes);
    if (v.width < 2 || phase->items.rounds[last] % v.width != 0 ||
        phase->items.total / v.width < UL_VECTOR_LEAST_THREADS)
        return 1;
    bool stores = false;
    for (ul_ks id = phase->first; id != phase->end; id = kernel->stmts[id].next) {
        int64_t own = 0;
        if (kernel->stmts[id].kind != UL_KS_STORE)
            continue;
        if (!is_even(&v, kernel->stmts[id].index, 1, &own) || own != 1)
            return 1;
        stores = true;
    }
    return stores ? (uint32_t)v.width : 1;
}
