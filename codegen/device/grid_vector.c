/* SPDX-License-Identifier: Apache-2.0 */
/* Elements that a thread takes at once: where the innermost loop of the items, or of a loop that a
 * team shares, is contiguous in memory, it loads or stores 16 bytes instead of one element.
 *
 *     y[768 i + j] = x[768 i + j] + b[j]     4 f32 at j = 4 q; 768 and the loop's rounds divide by
 * 4
 *
 * The body must consist of names and stores; all stores must be contiguous in the loop; and nothing
 * may be loaded that another round stores, or that this round stored before, since all loads come
 * first. Loads that are not contiguous are done element by element. Whether the buffers are aligned
 * is known when the kernel runs.
 *
 * The body of items may also have loops and branches, the same for all elements of a thread, and
 * sums, one for each: neighbouring channels of a depthwise convolution or of a pooling.
 *
 *     for r, s                 the products of 4 channels by 2 loads of 4 elements
 *         if inside
 *             sum += w[c + 64 (3 r + s)] * x[c + 64 (28 (i + r) + j + s)]
 *
 * Inside these, everything that differs must be contiguous; otherwise one element for each thread
 * is better, since its neighbours load the neighbouring elements. */
#include "codegen/device/grid.h"

#include "codegen/kernel/touch.h"
#include "ir/kernel_build.h"

#include <string.h>

struct vectors {
    const struct ul_kernel *kernel;
    struct ul_arena *arena;
    ul_ks body;       /* of the innermost loop */
    bool *varies;     /* by variable: differs from round to round of that loop */
    bool *is_stored;  /* by buffer: a statement seen so far stores to it */
    bool is_of_items; /* it may have loops and branches */
    bool has_loops;
};

uint32_t ul_nest_var(const struct ul_nest *nest, const struct ul_kernel *kernel)
{
    UL_ASSERT(nest->epilogue != NULL || nest->count > 0);
    return nest->epilogue != NULL ? nest->along : kernel->stmts[nest->loops[nest->count - 1]].var;
}

ul_ks ul_nest_body(const struct ul_nest *nest, const struct ul_kernel *kernel)
{
    UL_ASSERT(nest->epilogue != NULL || nest->count > 0);
    return nest->epilogue != NULL ? nest->epilogue->epilogue
                                  : kernel->stmts[nest->loops[nest->count - 1]].body;
}

/* Whether it differs from round to round. */
static bool differs(const struct ul_kernel *kernel, const bool *varies, ul_kx id)
{
    const struct ul_kx_data *expr = &kernel->exprs[id];
    uint32_t count = ul_kx_operand_count(expr->op);
    if (expr->op == UL_KX_VAR)
        return varies[expr->var];
    return (count >= 1 && differs(kernel, varies, expr->a)) ||
           (count >= 2 && differs(kernel, varies, expr->b)) ||
           (count == 3 && differs(kernel, varies, expr->c));
}

/* Finds what differs among the names of a list; false where the list does not fit. */
static bool find_varying(struct vectors *v, ul_ks first, bool is_top)
{
    for (ul_ks id = first; id != UL_NONE; id = v->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &v->kernel->stmts[id];
        bool is_inner = stmt->kind == UL_KS_FOR || stmt->kind == UL_KS_IF;
        if (stmt->kind == UL_KS_LET)
            v->varies[stmt->var] = differs(v->kernel, v->varies, stmt->value);
        else if (stmt->kind == UL_KS_STORE ? !is_top : !v->is_of_items)
            return false;
        else if (stmt->kind == UL_KS_VAR)
            v->varies[stmt->var] = true;
        else if (is_inner &&
                 (differs(v->kernel, v->varies, stmt->value) ||
                  !find_varying(v, stmt->body, false) || !find_varying(v, stmt->orelse, false)))
            return false;
        else if (!is_inner && stmt->kind != UL_KS_SET && stmt->kind != UL_KS_STORE)
            return false;
        v->has_loops = v->has_loops || is_inner;
    }
    return true;
}

/* Whether factor * expression is a multiple of the width, apart from the variable of the innermost
 * loop, whose factor is added to `own`. */
static bool is_even(const struct ul_kernel *kernel, const struct ul_nest *nest, ul_kx id,
                    int64_t factor, int64_t *own)
{
    const struct ul_kx_data *expr = &kernel->exprs[id];
    int64_t number = expr->low, width = nest->vector;
    bool is_known = expr->op == UL_KX_VAR && number == expr->high; /* of a loop of one round */
    if (is_known || ul_kx_is_int(kernel, id, &number))
        return number % width == 0 || factor % width == 0 ||
               (number % width) * (factor % width) % width == 0;
    if (expr->op == UL_KX_VAR && expr->var == ul_nest_var(nest, kernel)) {
        *own += factor;
        return true;
    }
    if (expr->op == UL_KX_ADD || expr->op == UL_KX_SUB)
        return is_even(kernel, nest, expr->a, factor, own) &&
               is_even(kernel, nest, expr->b, expr->op == UL_KX_ADD ? factor : -factor, own);
    if (expr->op == UL_KX_MUL && ul_kx_is_int(kernel, expr->b, &number) &&
        !__builtin_mul_overflow(factor, number, &number))
        return is_even(kernel, nest, expr->a, number, own);
    return !differs(kernel, nest->varies, id) && factor % width == 0;
}

/* Whether the elements at the index are contiguous, the first at a multiple of the vector. */
bool ul_grid_is_contiguous(const struct ul_kernel *kernel, const struct ul_nest *nest, ul_kx index)
{
    UL_ASSERT(nest->vector > 0 && nest->varies != NULL);
    int64_t own = 0;
    return is_even(kernel, nest, index, 1, &own) && own == 1;
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

/* The bytes of the largest element that an expression loads and that differs. */
static void find_bytes(const struct vectors *v, ul_kx id, uint64_t *max_bytes)
{
    const struct ul_kx_data *expr = &v->kernel->exprs[id];
    uint32_t count = ul_kx_operand_count(expr->op);
    if (expr->op == UL_KX_LOAD && differs(v->kernel, v->varies, expr->a)) {
        uint64_t bytes = ul_dtype_get(v->kernel->buffers[expr->var].dtype)->size_bytes;
        *max_bytes = bytes > *max_bytes ? bytes : *max_bytes;
    }
    if (count >= 1)
        find_bytes(v, expr->a, max_bytes);
    if (count >= 2)
        find_bytes(v, expr->b, max_bytes);
    if (count == 3)
        find_bytes(v, expr->c, max_bytes);
}

/* Checks what a body loads: elements that it also stores only at the place where it stores them,
 * and before. */
static void find_loads(const struct vectors *v, ul_kx id, const ul_kx *stored_at, bool *fits)
{
    const struct ul_kx_data *expr = &v->kernel->exprs[id];
    if (ul_kx_operand_count(expr->op) == 0)
        return;
    if (expr->op == UL_KX_LOAD && differs(v->kernel, v->varies, expr->a))
        /* it may be a register */
        *fits = *fits && v->kernel->buffers[expr->var].role != UL_BUFFER_LOCAL;
    if (expr->op == UL_KX_LOAD && stored_at[expr->var] != UL_NONE)
        *fits =
            *fits && !v->is_stored[expr->var] && is_same(v->kernel, expr->a, stored_at[expr->var]);
    find_loads(v, expr->a, stored_at, fits);
    if (ul_kx_operand_count(expr->op) >= 2)
        find_loads(v, expr->b, stored_at, fits);
    if (ul_kx_operand_count(expr->op) == 3)
        find_loads(v, expr->c, stored_at, fits);
}

static void find_list_loads(const struct vectors *v, ul_ks first, const ul_kx *stored_at,
                            uint64_t *max_bytes, bool *fits)
{
    for (ul_ks id = first; id != UL_NONE; id = v->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &v->kernel->stmts[id];
        find_bytes(v, stmt->value, max_bytes);
        find_loads(v, stmt->value, stored_at, fits);
        find_list_loads(v, stmt->body, stored_at, max_bytes, fits);
        find_list_loads(v, stmt->orelse, stored_at, max_bytes, fits);
        if (stmt->kind == UL_KS_STORE) {
            find_bytes(v, stmt->index, max_bytes);
            find_loads(v, stmt->index, stored_at, fits);
            v->is_stored[stmt->buffer] = true;
        }
    }
}

/* The buffers that the body stores to, each once; false where the body does not fit. */
static bool find_stores(const struct vectors *v, ul_kx *stored_at, uint64_t *max_bytes)
{
    bool any = false;
    for (ul_ks id = v->body; id != UL_NONE; id = v->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &v->kernel->stmts[id];
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

/* The bytes of the largest element; 0 where the body does not fit. */
static uint64_t element_bytes(struct vectors *v)
{
    ul_kx *stored_at = UL_NEW_ARRAY(v->arena, ul_kx, v->kernel->buffer_count);
    uint64_t max = 0;
    bool fits = true;
    v->is_stored = UL_NEW_ARRAY(v->arena, bool, v->kernel->buffer_count);
    memset(stored_at, 0xFF, v->kernel->buffer_count * sizeof *stored_at);
    if (!find_varying(v, v->body, true) || !find_stores(v, stored_at, &max))
        return 0;
    find_list_loads(v, v->body, stored_at, &max, &fits);
    return fits ? max : 0;
}

/* Whether everything that an expression loads is contiguous. */
static bool loads_packs(const struct vectors *v, const struct ul_nest *nest, ul_kx id)
{
    const struct ul_kx_data *expr = &v->kernel->exprs[id];
    uint32_t count = ul_kx_operand_count(expr->op);
    if (expr->op == UL_KX_LOAD && differs(v->kernel, v->varies, expr->a) &&
        !ul_grid_is_contiguous(v->kernel, nest, expr->a))
        return false;
    return (count < 1 || loads_packs(v, nest, expr->a)) &&
           (count < 2 || loads_packs(v, nest, expr->b)) &&
           (count < 3 || loads_packs(v, nest, expr->c));
}

/* Whether everything stored is contiguous, and everything that loops and branches load. */
static bool is_contiguous(const struct vectors *v, const struct ul_nest *nest, ul_ks first,
                          bool is_top)
{
    for (ul_ks id = first; id != UL_NONE; id = v->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &v->kernel->stmts[id];
        if ((stmt->kind == UL_KS_STORE && !ul_grid_is_contiguous(v->kernel, nest, stmt->index)) ||
            (!is_top && !loads_packs(v, nest, stmt->value)) ||
            !is_contiguous(v, nest, stmt->body, false) ||
            !is_contiguous(v, nest, stmt->orelse, false))
            return false;
    }
    return true;
}

static bool fits_width(const struct vectors *v, struct ul_nest *nest, int64_t width)
{
    UL_ASSERT(width > 0);
    nest->vector = (uint32_t)width;
    return nest->rounds[nest->count - 1] % width == 0 && is_contiguous(v, nest, v->body, true);
}

/* The bytes of the largest element that loops and branches load. */
static uint64_t inner_bytes(const struct vectors *v, ul_ks first, bool is_top)
{
    uint64_t max = 0;
    for (ul_ks id = first; id != UL_NONE; id = v->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &v->kernel->stmts[id];
        uint64_t bodies[] = {inner_bytes(v, stmt->body, false),
                             inner_bytes(v, stmt->orelse, false)};
        if (!is_top)
            find_bytes(v, stmt->value, &max);
        max = bodies[0] > max ? bodies[0] : max;
        max = bodies[1] > max ? bodies[1] : max;
    }
    return max;
}

enum { PACK_BYTES = 16, MAX_BYTES = 32, MIN_SUMS = 4, MAX_SUMS = 8 };

/* Analyses the nest's body; returns the bytes of its largest element, 0 where it has no vectors. */
static uint64_t init(struct vectors *v, const struct ul_nest *nest, bool is_of_items)
{
    v->body = ul_nest_body(nest, v->kernel);
    v->is_of_items = is_of_items;
    v->varies = UL_NEW_ARRAY(v->arena, bool, v->kernel->var_count);
    v->varies[ul_nest_var(nest, v->kernel)] = true;
    if (nest->epilogue != NULL)
        v->varies[nest->epilogue->acc] = true;
    uint64_t bytes = element_bytes(v);
    return bytes <= PACK_BYTES / 2 ? bytes : 0;
}

struct ul_nest ul_grid_vector(const struct ul_nest *nest, const struct ul_kernel *kernel,
                              int64_t threads, struct ul_arena *arena)
{
    struct vectors v = {.kernel = kernel, .arena = arena};
    struct ul_nest packs = *nest, wider;
    uint64_t bytes = init(&v, nest, false);
    if (bytes == 0)
        return *nest;
    int64_t width = (int64_t)(PACK_BYTES / bytes);
    packs.varies = v.varies;
    if (!fits_width(&v, &packs, width))
        return *nest;
    for (wider = packs; nest->total / width > threads && 2 * width * (int64_t)bytes <= MAX_BYTES &&
                        fits_width(&v, &wider, 2 * width);
         width *= 2)
        packs = wider;
    UL_ASSERT(nest->rounds[nest->count - 1] % packs.vector == 0);
    return packs;
}

struct ul_nest ul_grid_vector_items(const struct ul_nest *nest, const struct ul_kernel *kernel,
                                    int64_t min_items, struct ul_arena *arena)
{
    struct vectors v = {.kernel = kernel, .arena = arena};
    struct ul_nest packs = *nest;
    uint64_t bytes = init(&v, nest, true);
    if (bytes == 0)
        return *nest;
    int64_t width = (int64_t)(PACK_BYTES / bytes), min = width;
    if (v.has_loops) { /* statements around them may have longer elements */
        uint64_t inner = inner_bytes(&v, v.body, true);
        width = inner > 0 ? (int64_t)(PACK_BYTES / inner) : width;
        width = width < MAX_SUMS ? width : MAX_SUMS;
        min = width < MIN_SUMS ? width : MIN_SUMS;
    }
    packs.varies = v.varies;
    for (; width >= min; width /= 2)
        if (nest->total / width >= min_items && fits_width(&v, &packs, width))
            return packs;
    return *nest;
}

bool ul_grid_epilogue(struct ul_nest *nest, const struct ul_kernel *kernel,
                      const struct ul_contraction *contraction, uint32_t along, int64_t rounds,
                      int64_t width, struct ul_arena *arena)
{
    struct vectors v = {.kernel = kernel, .arena = arena};
    UL_ASSERT(width > 1 && along < kernel->var_count);
    *nest = (struct ul_nest){.epilogue = contraction,
                             .along = along,
                             .count = 1,
                             .rounds = {rounds},
                             .total = rounds,
                             .shift = UL_NONE};
    bool has_packs = init(&v, nest, false) > 0;
    nest->varies = v.varies;
    return has_packs && fits_width(&v, nest, width);
}
