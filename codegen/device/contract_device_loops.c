/* SPDX-License-Identifier: Apache-2.0 */
/* Contractions as other statements: a thread for each sum, or parts of each sum.
 *
 * A thread for each sum. Problem: a contraction that is tiny, irregular or has one row (depthwise
 * convolution) is best formed by one thread for each sum. But neighbouring threads should have
 * neighbouring results, and in channels-last convolution these are in the next group, a loop
 * outside the contraction. Method: the contraction becomes loops over m and n around loops over k;
 * these and the independent loops around it are sorted by how far apart the results of their rounds
 * are:
 *
 *     for group: contract over row, column     ->     for row, column, group:
 *                                                         sum = 0
 *                                                         for k: sum += a * b
 *                                                         the epilogue
 *
 * so that a grid spreads it like any other nest of loops. Products are added in order of k; outside
 * of bounds operands have the same values as where it is printed as tiles.
 *
 * Parts. Problem: few sums of many products (the last layers of a convolution net) give fewer tiles
 * than a device has processors. Method: a dimension of k is cut, and parts are added in order:
 *
 *     contract over k, epilogue        ->     for part: contract over k of it: sums[part] = acc
 *                                             for m, n: acc = sums[0] + sums[1] ..., epilogue */
#include "codegen/device/contract_device.h"
#include "ir/kernel_build.h"

#include <stdlib.h>

enum { MAX_LOOPS = 8 }; /* more than grid.h takes as one */

struct loop {
    uint32_t var;
    ul_kx count;
    int64_t stride; /* between its rounds' results */
    uint32_t place; /* in the original order */
};

/* A list to which statements are appended. */
struct list {
    ul_ks first, last;
};

struct rewriter {
    struct ul_kernel *kernel;
    const struct ul_profile_device *device;
    struct ul_arena *arena;
    ul_kx *let_of; /* by old variable: its LET, or UL_NONE */
    uint32_t let_count;
    uint32_t count;
    struct loop loops[MAX_LOOPS + UL_CONTRACT_DIMS];
    struct list lets; /* names between the loops */
};

static ul_ks append(struct rewriter *r, struct list *list, enum ul_ks_kind kind, uint32_t var,
                    ul_kx value)
{
    ul_ks id = ul_ks_link(r->kernel, &list->last, kind, var, value);
    if (list->first == UL_NONE)
        list->first = id;
    return id;
}

/* ---- Places of results ---- */

/* By how much `x` grows with `var`; false where that is not constant. */
static bool add_stride(const struct rewriter *r, ul_kx x, uint32_t var, int64_t scale, int64_t *sum,
                       uint32_t depth)
{
    const struct ul_kx_data *expr = &r->kernel->exprs[x];
    int64_t factor;
    if (depth > 24)
        return false;
    switch ((int)expr->op) {
    case UL_KX_INT:
        return true;
    case UL_KX_VAR:
        if (expr->var == var)
            *sum += scale;
        else if (expr->var < r->let_count && r->let_of[expr->var] != UL_NONE)
            return add_stride(r, r->let_of[expr->var], var, scale, sum, depth + 1);
        return true;
    case UL_KX_ADD:
    case UL_KX_SUB:
        return add_stride(r, expr->a, var, scale, sum, depth + 1) &&
               add_stride(r, expr->b, var, expr->op == UL_KX_ADD ? scale : -scale, sum, depth + 1);
    case UL_KX_MUL:
        if (ul_kx_is_int(r->kernel, expr->b, &factor))
            return add_stride(r, expr->a, var, scale * factor, sum, depth + 1);
        if (ul_kx_is_int(r->kernel, expr->a, &factor))
            return add_stride(r, expr->b, var, scale * factor, sum, depth + 1);
        return false;
    default:
        return false;
    }
}

/* The index of the first store, or UL_NONE. */
static ul_kx first_store(struct rewriter *r, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE; id = r->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &r->kernel->stmts[id];
        if (stmt->kind == UL_KS_LET)
            r->let_of[stmt->var] = stmt->value;
        if (stmt->kind == UL_KS_STORE)
            return stmt->index;
    }
    return UL_NONE;
}

static int compare(const void *a, const void *b)
{
    const struct loop *x = a, *y = b;
    if (x->stride != y->stride)
        return x->stride > y->stride ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

static void order_loops(struct rewriter *r, ul_ks epilogue)
{
    ul_kx index = first_store(r, epilogue);
    for (uint32_t i = 0; i < r->count; i++) {
        int64_t stride = 0, rounds;
        if (index == UL_NONE || !add_stride(r, index, r->loops[i].var, 1, &stride, 0))
            return;
        bool moves =
            stride != 0 && (!ul_kx_is_int(r->kernel, r->loops[i].count, &rounds) || rounds > 1);
        stride = stride < 0 ? -stride : stride;
        r->loops[i].stride = moves ? stride : INT64_MAX; /* else it becomes outermost */
    }
    qsort(r->loops, r->count, sizeof *r->loops, compare);
}

/* ---- One sum ---- */

static ul_kx affine(struct rewriter *r, const struct ul_contraction *c, const struct ul_affine *at)
{
    ul_kx sum = at->base;
    for (uint32_t d = 0; d < c->m_count + c->n_count + c->k_count; d++)
        if (at->strides[d] != 0)
            sum =
                ul_kx_add(r->kernel, sum,
                          ul_kx_muli(r->kernel, ul_kx_var(r->kernel, c->vars[d]), at->strides[d]));
    return sum;
}

/* 0 <= bound < extent, for all bounds. */
static ul_kx inside(struct rewriter *r, const struct ul_contraction *c,
                    const struct ul_operand *operand)
{
    struct ul_kernel *kernel = r->kernel;
    ul_kx all = UL_NONE;
    for (uint32_t i = 0; i < operand->bound_count; i++) {
        ul_kx at = affine(r, c, &operand->bounds[i].at);
        ul_kx end = ul_kx_index_const(kernel, operand->bounds[i].extent);
        ul_kx is = ul_kx_binary(kernel, UL_KX_AND,
                                ul_kx_binary(kernel, UL_KX_LE, ul_kx_index_const(kernel, 0), at),
                                ul_kx_binary(kernel, UL_KX_LT, at, end));
        all = all == UL_NONE ? is : ul_kx_binary(kernel, UL_KX_AND, all, is);
    }
    return all;
}

/* What the operand holds, as an expression after the statements that it needs. */
static ul_kx put_operand(struct rewriter *r, struct list *list, const struct ul_contraction *c,
                         const struct ul_operand *operand)
{
    struct ul_kernel *kernel = r->kernel;
    ul_kx index = affine(r, c, &operand->at);
    struct list own = {UL_NONE, UL_NONE}, *to = operand->bound_count > 0 ? &own : list;
    ul_kx value = operand->packed == UL_DTYPE_NONE
                      ? ul_kx_load(kernel, operand->buffer, index)
                      : ul_kx_load_packed(kernel, operand->buffer, operand->packed, index);
    if (operand->transform != UL_NONE) {
        append(r, to, UL_KS_LET, operand->loaded, value);
        value = operand->transform;
    }
    value = ul_kx_cast(kernel, c->acc_dtype, value);
    if (operand->bound_count == 0)
        return value;
    uint32_t var = ul_kernel_add_var(kernel, c->acc_dtype);
    append(r, list, UL_KS_VAR, var, ul_kx_number(kernel, c->acc_dtype, operand->outside));
    append(r, to, UL_KS_SET, var, value);
    ul_ks branch = append(r, list, UL_KS_IF, UL_NONE, inside(r, c, operand));
    kernel->stmts[branch].body = own.first;
    return ul_kx_var(kernel, var);
}

/* Fused for floats: otherwise a compiler may fuse it in one kernel and not in another, and a piece
 * would not have the bits of the whole. */
static ul_kx add_product(struct ul_kernel *kernel, enum ul_dtype dtype, ul_kx a, ul_kx b,
                         uint32_t sum)
{
    if (ul_dtype_get(dtype)->is_float)
        return ul_kx_fma(kernel, a, b, ul_kx_var(kernel, sum));
    return ul_kx_binary(kernel, UL_KX_ADD, ul_kx_var(kernel, sum),
                        ul_kx_binary(kernel, UL_KX_MUL, a, b));
}

static struct list put_sum(struct rewriter *r, const struct ul_contraction *c)
{
    struct ul_kernel *kernel = r->kernel;
    struct list body = {UL_NONE, UL_NONE}, products = {UL_NONE, UL_NONE};
    uint32_t sum = ul_kernel_add_var(kernel, c->acc_dtype), first = c->m_count + c->n_count;
    append(r, &body, UL_KS_VAR, sum, ul_kx_number(kernel, c->acc_dtype, 0));
    ul_kx a = put_operand(r, &products, c, &c->a), b = put_operand(r, &products, c, &c->b);
    append(r, &products, UL_KS_SET, sum, add_product(kernel, c->acc_dtype, a, b, sum));
    for (uint32_t d = first + c->k_count; d-- > first;) {
        struct list outer = {UL_NONE, UL_NONE};
        ul_ks loop = append(r, d > first ? &outer : &body, UL_KS_FOR, c->vars[d],
                            ul_kx_index_const(kernel, c->extents[d]));
        kernel->stmts[loop].body = products.first;
        products = outer;
    }
    append(r, &body, UL_KS_LET, c->acc, ul_kx_var(kernel, sum));
    kernel->stmts[body.last].next = c->epilogue;
    return body;
}

/* ---- The nest ---- */

/* Finds the contraction at the end of loops of independent iterations that begin at `id`, with only
 * names of indexes in between, or UL_NONE; collects these loops and names. */
static ul_ks find_contraction(struct rewriter *r, ul_ks id)
{
    struct ul_kernel *kernel = r->kernel;
    r->count = 0;
    r->lets = (struct list){UL_NONE, UL_NONE};
    while (id != UL_NONE) {
        struct ul_ks_data stmt = kernel->stmts[id];
        int64_t rounds;
        if (stmt.kind == UL_KS_LET && kernel->vars[stmt.var].dtype == UL_I64 && r->count > 0) {
            append(r, &r->lets, UL_KS_LET, stmt.var, stmt.value);
            r->let_of[stmt.var] = stmt.value;
            id = stmt.next;
            continue;
        }
        if (stmt.next != UL_NONE && r->count > 0)
            return UL_NONE;
        if (stmt.kind == UL_KS_CONTRACT)
            return id;
        if (stmt.kind != UL_KS_FOR || (stmt.flags & UL_FOR_PARALLEL) == 0 ||
            r->count == MAX_LOOPS || !ul_kx_is_int(kernel, stmt.value, &rounds))
            return UL_NONE;
        r->loops[r->count] = (struct loop){.var = stmt.var, .count = stmt.value, .place = r->count};
        r->count++;
        id = stmt.body;
    }
    return UL_NONE;
}

/* Puts the loops found, and those over m and n, around the body. */
static ul_ks put_nest(struct rewriter *r, const struct ul_contraction *c, struct list body)
{
    struct ul_kernel *kernel = r->kernel;
    for (uint32_t d = 0; d < c->m_count + c->n_count; d++, r->count++)
        r->loops[r->count] = (struct loop){.var = c->vars[d],
                                           .count = ul_kx_index_const(kernel, c->extents[d]),
                                           .place = r->count};
    order_loops(r, c->epilogue);
    if (r->lets.first != UL_NONE) {
        kernel->stmts[r->lets.last].next = body.first;
        body.first = r->lets.first;
    }
    for (uint32_t i = r->count; i-- > 0;) {
        struct list outer = {UL_NONE, UL_NONE};
        ul_ks loop = append(r, &outer, UL_KS_FOR, r->loops[i].var, r->loops[i].count);
        kernel->stmts[loop].flags = UL_FOR_PARALLEL;
        kernel->stmts[loop].body = body.first;
        body = outer;
    }
    return body.first;
}

/* ---- Parts ---- */

/* The place of a sum among those of a part; neighbours are as in the result. */
static ul_kx place_of_sum(struct rewriter *r, const struct ul_contraction *c, bool along_m,
                          ul_kx partial)
{
    struct ul_kernel *kernel = r->kernel;
    uint32_t m = c->m_count, all = m + c->n_count;
    ul_kx at = partial;
    int64_t rounds;
    for (uint32_t i = 0; i < r->count; i++) {
        UL_ASSERT(ul_kx_is_int(kernel, r->loops[i].count, &rounds));
        at = ul_kx_add(kernel, ul_kx_muli(kernel, at, rounds), ul_kx_var(kernel, r->loops[i].var));
    }
    for (uint32_t i = 0; i < all; i++) {
        uint32_t d = along_m ? (i + m) % all : i;
        at =
            ul_kx_add(kernel, ul_kx_muli(kernel, at, c->extents[d]), ul_kx_var(kernel, c->vars[d]));
    }
    return at;
}

static void move_base(struct rewriter *r, struct ul_affine *at, uint32_t dim, ul_kx partial,
                      int64_t extent)
{
    at->base =
        ul_kx_add(r->kernel, at->base, ul_kx_muli(r->kernel, partial, at->strides[dim] * extent));
}

/* The contraction over part `part` of dimension `dim` of k; its epilogue stores the sum. */
static struct ul_contraction part_of(struct rewriter *r, const struct ul_contraction *c,
                                     const struct ul_contract_device_split *split, ul_kx partial,
                                     uint32_t sums, ul_kx place)
{
    struct ul_contraction own = *c;
    struct list epilogue = {UL_NONE, UL_NONE};
    own.extents[split->dim] = c->extents[split->dim] / split->partials;
    int64_t extent = own.extents[split->dim];
    move_base(r, &own.a.at, split->dim, partial, extent);
    move_base(r, &own.b.at, split->dim, partial, extent);
    for (uint32_t i = 0; i < c->a.bound_count; i++)
        move_base(r, &own.a.bounds[i].at, split->dim, partial, extent);
    for (uint32_t i = 0; i < c->b.bound_count; i++)
        move_base(r, &own.b.bounds[i].at, split->dim, partial, extent);
    own.acc = ul_kernel_add_var(r->kernel, c->acc_dtype);
    ul_ks store = append(r, &epilogue, UL_KS_STORE, UL_NONE, ul_kx_var(r->kernel, own.acc));
    r->kernel->stmts[store].buffer = sums;
    r->kernel->stmts[store].index = place;
    own.epilogue = epilogue.first;
    return own;
}

/* for part: the statement at `id`, for the part; then the loops that add parts. */
static void put_partials(struct rewriter *r, ul_ks id, ul_ks contract,
                         const struct ul_contract_device_plan *plan,
                         const struct ul_contract_device_split *split)
{
    struct ul_kernel *kernel = r->kernel;
    uint32_t which = kernel->stmts[contract].contraction;
    struct ul_contraction c = kernel->contractions[which];
    uint64_t count = (uint64_t)(split->partials * plan->base.m * plan->base.n * plan->batch);
    uint32_t sums = ul_kernel_add_buffer(kernel, UL_BUFFER_SCRATCH, c.acc_dtype, count);
    uint32_t var = ul_kernel_add_index(kernel, split->partials);
    bool along_m = plan->put_along_m;
    ul_kx partial = ul_kx_var(kernel, var), sum = UL_NONE;
    struct list body = {UL_NONE, UL_NONE}, loop = {UL_NONE, UL_NONE};
    for (int64_t i = 0; i < split->partials; i++) {
        ul_kx place = place_of_sum(r, &c, along_m, ul_kx_index_const(kernel, i));
        ul_kx value = ul_kx_load(kernel, sums, place);
        sum = i == 0 ? value : ul_kx_binary(kernel, UL_KX_ADD, sum, value);
    }
    kernel->contractions[which] =
        part_of(r, &c, split, partial, sums, place_of_sum(r, &c, along_m, partial));
    append(r, &body, UL_KS_LET, c.acc, sum);
    kernel->stmts[body.last].next = c.epilogue;
    ul_ks rest = put_nest(r, &c, body);
    kernel->stmts[rest].next = kernel->stmts[id].next;
    append(r, &loop, UL_KS_FOR, var, ul_kx_index_const(kernel, split->partials));
    ul_ks inner = append(r, &(struct list){UL_NONE, UL_NONE}, UL_KS_LET, UL_NONE, UL_NONE);
    kernel->stmts[inner] = kernel->stmts[id];
    kernel->stmts[inner].next = UL_NONE;
    kernel->stmts[id] = kernel->stmts[loop.first];
    kernel->stmts[id].flags = UL_FOR_PARALLEL;
    kernel->stmts[id].body = inner;
    kernel->stmts[id].next = rest;
}

/* Rewrites the top statement `id` to loops around single sums, or around parts of them, if it is
 * such a nest. */
static void rewrite(struct rewriter *r, ul_ks id)
{
    struct ul_kernel *kernel = r->kernel;
    struct ul_contract_device_plan plan;
    r->let_count = kernel->var_count;
    r->let_of = UL_NEW_ARRAY(r->arena, ul_kx, r->let_count);
    for (uint32_t v = 0; v < r->let_count; v++)
        r->let_of[v] = UL_NONE;
    ul_ks contract = find_contraction(r, id);
    if (contract == UL_NONE)
        return;
    const struct ul_contraction *found = &kernel->contractions[kernel->stmts[contract].contraction];
    struct ul_contraction c = *found;
    if (c.attend != NULL || r->count + c.m_count + c.n_count > MAX_LOOPS)
        return;
    ul_contract_device_plan_init(&plan, kernel, found, r->device, r->arena);
    struct ul_contract_device_split split = ul_contract_device_split(&plan, kernel, found);
    if (split.partials > 1 && r->lets.first == UL_NONE)
        put_partials(r, id, contract, &plan, &split);
    if (plan.form != UL_CONTRACT_DEVICE_EACH)
        return;
    ul_ks nest = put_nest(r, &c, put_sum(r, &c)), next = kernel->stmts[id].next;
    kernel->stmts[id] = kernel->stmts[nest];
    kernel->stmts[id].next = next;
}

const struct ul_kernel *ul_contract_device_open(const struct ul_kernel *kernel,
                                                const struct ul_profile_device *device,
                                                struct ul_arena *arena)
{
    bool any = false;
    for (uint32_t i = 0; i < kernel->contraction_count; i++)
        any = any || kernel->contractions[i].attend == NULL;
    if (!any)
        return kernel;
    struct rewriter r = {.kernel = ul_kernel_copy(kernel, arena), .device = device, .arena = arena};
    for (ul_ks id = kernel->first; id != UL_NONE; id = r.kernel->stmts[id].next)
        rewrite(&r, id);
    return r.kernel;
}
