/* Elements that a thread takes at once: where the innermost loop of the items, or of a loop that a
 * team shares, is contiguous in memory, a load or store of 16 bytes instead of one an element.
 *
 *     y[768 i + j] = x[768 i + j] + b[j]     4 f32 at j = 4 q; 768 and the loop's rounds divide by
 * 4
 *
 * The body must be names and stores alone, all stores contiguous in the loop, and nothing be loaded
 * that another round stores, or that this one stored before: all loads come first. Loads that are
 * not contiguous are done element by element. Whether the buffers are aligned shows when the kernel
 * runs. */
#include "codegen/cuda/grid.h"

#include "codegen/kernel/touch.h"
#include "ir/kernel_build.h"

#include <string.h>

struct vectors {
    const struct ul_kernel *kernel;
    struct ul_arena *arena;
    ul_ks body;      /* of the innermost loop */
    uint32_t var;    /* of that loop */
    int64_t width;   /* elements */
    bool *is_stored; /* by buffer: by a statement that was looked at */
};

static struct vectors vectors_of(const struct ul_kernel *kernel, const struct ul_nest *nest)
{
    UL_ASSERT(nest->count > 0);
    const struct ul_ks_data *loop = &kernel->stmts[nest->loops[nest->count - 1]];
    return (struct vectors){.kernel = kernel, .body = loop->body, .var = loop->var};
}

static bool is_of_body(const struct vectors *v, uint32_t var)
{
    for (ul_ks id = v->body; id != UL_NONE; id = v->kernel->stmts[id].next) {
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

bool ul_grid_is_contiguous(const struct ul_kernel *kernel, const struct ul_nest *nest, ul_kx index)
{
    UL_ASSERT(nest->vector > 0);
    struct vectors v = vectors_of(kernel, nest);
    v.width = nest->vector;
    int64_t own = 0;
    return is_even(&v, index, 1, &own) && own == 1;
}

static bool is_same(const struct ul_kernel *kernel, ul_kx a, ul_kx b)
{
    const struct ul_kx_data *x = &kernel->exprs[a], *y = &kernel->exprs[b];
    int64_t p, q;
    if (a == b || x->op != y->op || x->dtype != y->dtype)
        return a == b;
    if (x->op == UL_KX_VAR)
        return x->var == y->var && !kernel->vars[x->var].is_mutable;
    if (ul_kx_operand_count(x->op) == 2 && x->op != UL_KX_INDEX)
        return is_same(kernel, x->a, y->a) && is_same(kernel, x->b, y->b);
    return ul_kx_is_int(kernel, a, &p) && ul_kx_is_int(kernel, b, &q) && p == q;
}

/* What a body loads; sizes only of what differs from round to round. What it stores to, it may load
 * only where it stores, and before. */
static void find_loads(const struct vectors *v, ul_kx id, const ul_kx *stored_at,
                       uint64_t *max_bytes, bool *fits)
{
    const struct ul_kx_data *expr = &v->kernel->exprs[id];
    if (ul_kx_operand_count(expr->op) == 0)
        return;
    if (expr->op == UL_KX_LOAD && names_body(v, expr->a)) {
        const struct ul_buffer *buffer = &v->kernel->buffers[expr->var];
        uint64_t bytes = ul_dtype_get(buffer->dtype)->size_bytes;
        *max_bytes = bytes > *max_bytes ? bytes : *max_bytes;
        *fits = *fits && buffer->role != UL_BUFFER_LOCAL; /* a register, maybe */
    }
    if (expr->op == UL_KX_LOAD && stored_at[expr->var] != UL_NONE)
        *fits =
            *fits && !v->is_stored[expr->var] && is_same(v->kernel, expr->a, stored_at[expr->var]);
    find_loads(v, expr->a, stored_at, max_bytes, fits);
    if (ul_kx_operand_count(expr->op) >= 2)
        find_loads(v, expr->b, stored_at, max_bytes, fits);
    if (ul_kx_operand_count(expr->op) == 3)
        find_loads(v, expr->c, stored_at, max_bytes, fits);
}

/* The buffers that the body stores to, each once; false where it is not of the kind. */
static bool find_stores(const struct vectors *v, ul_kx *stored_at, uint64_t *max_bytes)
{
    bool any = false;
    for (ul_ks id = v->body; id != UL_NONE; id = v->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &v->kernel->stmts[id];
        if (stmt->kind != UL_KS_LET && stmt->kind != UL_KS_STORE)
            return false;
        if (stmt->kind != UL_KS_STORE)
            continue;
        const struct ul_buffer *buffer = &v->kernel->buffers[stmt->buffer];
        uint64_t bytes = ul_dtype_get(buffer->dtype)->size_bytes;
        if (stored_at[stmt->buffer] != UL_NONE || buffer->role == UL_BUFFER_LOCAL)
            return false;
        stored_at[stmt->buffer] = stmt->index;
        any = true;
        *max_bytes = bytes > *max_bytes ? bytes : *max_bytes;
    }
    return any;
}

/* The bytes of the largest element; 0 where the body is not of the kind. */
static uint64_t element_bytes(struct vectors *v)
{
    ul_kx *stored_at = UL_NEW_ARRAY(v->arena, ul_kx, v->kernel->buffer_count);
    uint64_t max = 0;
    bool fits = true;
    v->is_stored = UL_NEW_ARRAY(v->arena, bool, v->kernel->buffer_count);
    memset(stored_at, 0xFF, v->kernel->buffer_count * sizeof *stored_at);
    if (!find_stores(v, stored_at, &max))
        return 0;
    for (ul_ks id = v->body; id != UL_NONE; id = v->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &v->kernel->stmts[id];
        find_loads(v, stmt->value, stored_at, &max, &fits);
        if (stmt->kind == UL_KS_STORE) {
            find_loads(v, stmt->index, stored_at, &max, &fits);
            v->is_stored[stmt->buffer] = true;
        }
    }
    return fits ? max : 0;
}

/* Are vectors of the width stored whole? */
static bool fits_width(struct vectors *v, const struct ul_nest *nest, int64_t width)
{
    UL_ASSERT(width > 0);
    v->width = width;
    if (nest->rounds[nest->count - 1] % width != 0)
        return false;
    for (ul_ks id = v->body; id != UL_NONE; id = v->kernel->stmts[id].next) {
        int64_t own = 0;
        if (v->kernel->stmts[id].kind == UL_KS_STORE &&
            (!is_even(v, v->kernel->stmts[id].index, 1, &own) || own != 1))
            return false;
    }
    return true;
}

uint32_t ul_grid_vector(const struct ul_nest *nest, const struct ul_kernel *kernel, int64_t threads,
                        struct ul_arena *arena)
{
    enum { PACK_BYTES = 16, MAX_BYTES = 32 };
    struct vectors v = vectors_of(kernel, nest);
    v.arena = arena;
    uint64_t bytes = element_bytes(&v);
    if (bytes == 0 || bytes > PACK_BYTES / 2)
        return 1;
    int64_t width = (int64_t)(PACK_BYTES / bytes);
    if (!fits_width(&v, nest, width))
        return 1;
    while (threads > 0 && nest->total / width > threads &&
           2 * width * (int64_t)bytes <= MAX_BYTES && fits_width(&v, nest, 2 * width))
        width *= 2;
    UL_ASSERT(nest->rounds[nest->count - 1] % width == 0);
    return (uint32_t)width;
}
