/* SPDX-License-Identifier: Apache-2.0 */
/* May an output lie on an input?
 *
 * Method: each load of the input is held against each store to the output. The pair is safe when
 * (a) both have the same index, and the load comes first: no other iteration stores that element;
 * or (b) every iteration of the loops that they share has a row of elements to itself, in which the
 * load stands in an earlier statement than the store, or reads another part:
 *
 *     for i, j:                            index = 130 (128 i + j) + r, r in [0, 130)
 *         for t: sum = sum + exp(in[130 (128 i + j) + t])
 *         for u: out[130 (128 i + j) + u] = exp(in[...]) / sum
 *
 * Rows are apart when the loads and stores agree in the factors of the shared loops' variables,
 * what is left lies in [0, r), and the factors are far enough apart that no two iterations meet;
 * or (c) the target says that a contraction takes in all of b before its first result is stored, or
 * all that a column is made of, and other columns lie in other elements (a convolution of 1 x 1):
 *
 *     b[h k + n] for k, n in [0, h)          out[h m + n]          column n: what is n modulo h
 *
 * Left undone: other rows that interleave (a softmax over an outer axis). */
#include "ir/in_place.h"
#include "ir/kernel_build.h"

#include <string.h>

enum { MAX_LOOPS = 64 };

struct access {
    uint32_t buffer;
    ul_kx index;                              /* UL_NONE: unknown */
    uint32_t position;                        /* of the statement, in text order */
    uint32_t depth;                           /* how many statements enclose it */
    const ul_ks *path;                        /* these statements, outermost first */
    const struct ul_contraction *contraction; /* the contraction whose b it reads, in an order
                                                 that is known */
    enum ul_contract_reads reads;
};

struct ul_accesses {
    const struct ul_kernel *kernel;
    struct ul_arena *arena;
    ul_contract_reads_fn *reads; /* NULL: no order is known */
    struct access *loads, *stores;
    uint32_t load_count, load_capacity, store_count, store_capacity;
    uint32_t position, depth;
    ul_ks path[MAX_LOOPS];
    ul_kx *definitions; /* of variables that LET binds; UL_NONE for others */
};

/* Collecting */

static struct access access_here(const struct ul_accesses *a, uint32_t buffer, ul_kx index)
{
    return (struct access){.buffer = buffer,
                           .index = index,
                           .position = a->position,
                           .depth = a->depth,
                           .path = ul_arena_copy(a->arena, a->path, a->depth * sizeof *a->path)};
}

static void add_load(struct ul_accesses *a, uint32_t buffer, ul_kx index)
{
    UL_GROW(a->arena, a->loads, a->load_count, a->load_capacity);
    a->loads[a->load_count++] = access_here(a, buffer, index);
}

static void add_store(struct ul_accesses *a, uint32_t buffer, ul_kx index)
{
    UL_GROW(a->arena, a->stores, a->store_count, a->store_capacity);
    a->stores[a->store_count++] = access_here(a, buffer, index);
}

static void collect_expr(struct ul_accesses *a, ul_kx id)
{
    if (id == UL_NONE)
        return;
    const struct ul_kx_data *expr = &a->kernel->exprs[id];
    if (ul_kx_operand_count(expr->op) == 0)
        return;
    collect_expr(a, expr->a);
    if (expr->op == UL_KX_LOAD)
        add_load(a, expr->var, expr->a);
    if (ul_kx_operand_count(expr->op) >= 2)
        collect_expr(a, expr->b);
    if (ul_kx_operand_count(expr->op) == 3)
        collect_expr(a, expr->c);
}

/* A contraction reads its operands, and what their transforms read, at more than one index. */
static void collect_contraction(struct ul_accesses *a, const struct ul_contraction *contraction)
{
    uint32_t before = a->load_count;
    add_load(a, contraction->a.buffer, UL_NONE);
    add_load(a, contraction->b.buffer, UL_NONE);
    collect_expr(a, contraction->a.transform);
    collect_expr(a, contraction->b.transform);
    for (uint32_t i = before; i < a->load_count; i++)
        a->loads[i].index = UL_NONE;
    a->loads[before + 1].contraction = contraction;
    if (a->reads != NULL)
        a->loads[before + 1].reads = a->reads(a->kernel, contraction);
}

/* Where a loop's rounds are also given as attention, queries may be cut and ordered in another way
 * than in its body: scores read their operands at more than one index. */
static void collect_attend(struct ul_accesses *a, const struct ul_attend *attend)
{
    uint32_t before = a->load_count;
    for (ul_ks id = attend->before; id != UL_NONE; id = a->kernel->stmts[id].next)
        collect_expr(a, a->kernel->stmts[id].value);
    collect_expr(a, attend->score);
    collect_expr(a, attend->factor);
    if (attend->has_shares)
        collect_expr(a, attend->share);
    for (uint32_t i = before; i < a->load_count; i++)
        a->loads[i].index = UL_NONE;
}

static void collect_list(struct ul_accesses *a, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE; id = a->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &a->kernel->stmts[id];
        a->position++;
        collect_expr(a, stmt->value);
        collect_expr(a, stmt->index);
        if (stmt->kind == UL_KS_STORE)
            add_store(a, stmt->buffer, stmt->index);
        if (stmt->kind == UL_KS_LET)
            a->definitions[stmt->var] = stmt->value;
        UL_ASSERT(a->depth < MAX_LOOPS);
        a->path[a->depth++] = id;
        if (stmt->kind == UL_KS_CONTRACT) {
            collect_contraction(a, &a->kernel->contractions[stmt->contraction]);
            collect_list(a, a->kernel->contractions[stmt->contraction].epilogue);
        }
        if (stmt->kind == UL_KS_FOR && (stmt->flags & UL_FOR_ATTEND) != 0)
            collect_attend(a, &a->kernel->attends[stmt->contraction]);
        collect_list(a, stmt->body);
        collect_list(a, stmt->orelse);
        a->depth--;
    }
}

struct ul_accesses *ul_accesses_new(const struct ul_kernel *kernel, ul_contract_reads_fn *reads,
                                    struct ul_arena *arena)
{
    struct ul_accesses *a = UL_NEW(arena, struct ul_accesses);
    a->reads = reads;
    a->kernel = kernel;
    a->arena = arena;
    a->definitions = UL_NEW_ARRAY(arena, ul_kx, kernel->var_count);
    for (uint32_t i = 0; i < kernel->var_count; i++)
        a->definitions[i] = UL_NONE;
    collect_list(a, kernel->first);
    return a;
}

/* Indexes */

/* Whether the expression has one value as long as its variables' lists are open. */
static bool is_fixed(const struct ul_kernel *kernel, ul_kx id)
{
    const struct ul_kx_data *expr = &kernel->exprs[id];
    if (expr->op == UL_KX_VAR)
        return !kernel->vars[expr->var].is_mutable;
    if (ul_kx_operand_count(expr->op) == 0)
        return true;
    if (expr->op == UL_KX_LOAD || !is_fixed(kernel, expr->a))
        return false;
    if (ul_kx_operand_count(expr->op) >= 2 && !is_fixed(kernel, expr->b))
        return false;
    return ul_kx_operand_count(expr->op) < 3 || is_fixed(kernel, expr->c);
}

/* An index as sum of factors[i] * (variable of shared loop i) + a rest in [low, high]. */
struct row_index {
    uint32_t loop_count;
    const uint32_t *vars;
    int64_t factors[MAX_LOOPS];
    int64_t low, high;
};

/* Larger numbers are not worked with, so that sums stay in range. */
#define MAX_NUMBER ((int64_t)1 << 50)

static bool is_small(int64_t value)
{
    return value >= -MAX_NUMBER && value <= MAX_NUMBER;
}

static bool add_rest(struct row_index *row, int64_t low, int64_t high, int64_t factor)
{
    int64_t ends[2];
    if (!is_small(low) || !is_small(high) || __builtin_mul_overflow(low, factor, &ends[0]) ||
        __builtin_mul_overflow(high, factor, &ends[1]))
        return false;
    row->low += ends[0] < ends[1] ? ends[0] : ends[1];
    row->high += ends[0] < ends[1] ? ends[1] : ends[0];
    return is_small(row->low) && is_small(row->high);
}

/* Adds factor * expression; false when a number becomes too large. */
static bool add_to_row(const struct ul_accesses *a, struct row_index *row, ul_kx id, int64_t factor)
{
    const struct ul_kernel *kernel = a->kernel;
    const struct ul_kx_data *expr = &kernel->exprs[id];
    int64_t number;
    if (!is_small(factor))
        return false;
    for (uint32_t i = 0; expr->op == UL_KX_VAR && i < row->loop_count; i++) {
        if (row->vars[i] == expr->var) {
            row->factors[i] += factor;
            return is_small(row->factors[i]);
        }
    }
    if (expr->op == UL_KX_VAR && a->definitions[expr->var] != UL_NONE)
        return add_to_row(a, row, a->definitions[expr->var], factor);
    if (expr->op == UL_KX_ADD)
        return add_to_row(a, row, expr->a, factor) && add_to_row(a, row, expr->b, factor);
    if (expr->op == UL_KX_SUB)
        return add_to_row(a, row, expr->a, factor) && add_to_row(a, row, expr->b, -factor);
    if (expr->op == UL_KX_MUL && ul_kx_is_int(kernel, expr->b, &number))
        return !__builtin_mul_overflow(factor, number, &factor) &&
               add_to_row(a, row, expr->a, factor);
    return add_rest(row, expr->low, expr->high, factor);
}

/* Whether the rows of `width` elements, at the sums of factor * variable, are apart. */
static bool rows_apart(const struct ul_kernel *kernel, const struct row_index *row, int64_t width)
{
    bool done[MAX_LOOPS] = {false};
    int64_t reach = width;
    for (uint32_t round = 0; round < row->loop_count; round++) {
        uint32_t min = row->loop_count;
        for (uint32_t i = 0; i < row->loop_count; i++) {
            if (!done[i] && (min == row->loop_count || row->factors[i] < row->factors[min]))
                min = i;
        }
        done[min] = true;
        const struct ul_kernel_var *var = &kernel->vars[row->vars[min]];
        int64_t steps = var->high - var->low;
        int64_t spread;
        if (steps == 0)
            continue;
        if (row->factors[min] < reach ||
            __builtin_mul_overflow(row->factors[min], steps, &spread) || !is_small(spread))
            return false;
        reach += spread;
    }
    return true;
}

/* Pairs */

/* The loops that enclose both, as rows' variables, and the contraction whose order the schedule
 * chooses. */
struct shared {
    uint32_t vars[MAX_LOOPS + UL_CONTRACT_DIMS];
    uint32_t count;
    const struct ul_contraction *contraction; /* NULL: none encloses both */
};

static void shared_find(const struct ul_accesses *a, const struct access *load,
                        const struct access *store, struct shared *shared)
{
    *shared = (struct shared){.count = 0};
    for (uint32_t i = 0; i < load->depth && i < store->depth; i++) {
        const struct ul_ks_data *stmt = &a->kernel->stmts[load->path[i]];
        if (load->path[i] != store->path[i])
            break;
        if (stmt->kind == UL_KS_CONTRACT)
            shared->contraction = &a->kernel->contractions[stmt->contraction];
        if (stmt->kind == UL_KS_FOR)
            shared->vars[shared->count++] = stmt->var;
    }
}

/* Adds all places of b that a contraction reads. A bound that moves alone says where its coordinate
 * ends: with `unit` elements from one to the next, the index is unit * coordinate and a rest. */
static bool add_operand(const struct ul_accesses *a, struct row_index *row,
                        const struct ul_contraction *c)
{
    const struct ul_operand *b = &c->b;
    int64_t units[sizeof b->bounds / sizeof *b->bounds] = {0};
    if (!add_to_row(a, row, b->at.base, 1))
        return false;
    for (uint32_t d = 0; d < c->m_count + c->n_count + c->k_count; d++) {
        uint32_t moving = b->bound_count;
        int64_t stride = b->at.strides[d], step = 0;
        for (uint32_t i = 0; i < b->bound_count; i++) {
            if (b->bounds[i].at.strides[d] == 0)
                continue;
            if (moving < b->bound_count)
                return false;
            moving = i;
            step = b->bounds[i].at.strides[d];
        }
        if (moving == b->bound_count && !add_rest(row, 0, c->extents[d] - 1, stride))
            return false;
        if (moving == b->bound_count || c->extents[d] == 1)
            continue;
        if (stride % step != 0 || (units[moving] != 0 && units[moving] != stride / step))
            return false;
        units[moving] = stride / step;
    }
    for (uint32_t i = 0; i < b->bound_count; i++)
        if (!add_to_row(a, row, b->bounds[i].at.base, -units[i]) ||
            !add_rest(row, 0, b->bounds[i].extent - 1, units[i]))
            return false;
    return true;
}

/* Whether what is stored for each column is stored where no other column is read. Columns agree in
 * where they begin, do not meet, and all else is a multiple of what they reach over. */
static bool columns_apart(const struct ul_accesses *a, const struct shared *shared,
                          const struct access *store)
{
    const struct ul_contraction *c = shared->contraction;
    struct shared all = *shared;
    struct row_index rows[2] = {{.vars = all.vars}, {.vars = all.vars}},
                     columns = {.loop_count = 0};
    uint32_t loops = shared->count, m = c->m_count, n = c->n_count;
    if (c->b.bound_count > 0 || loops + m + n > MAX_LOOPS)
        return false;
    memcpy(all.vars + loops, c->vars, (m + n) * sizeof *all.vars);
    rows[0].loop_count = rows[1].loop_count = loops + m + n;
    if (!add_to_row(a, &rows[0], c->b.at.base, 1) || !add_to_row(a, &rows[1], store->index, 1) ||
        rows[0].low != rows[0].high || rows[1].low != rows[1].high)
        return false;
    int64_t period = rows[1].low - rows[0].low, reach = 1;
    for (uint32_t d = 0; d < m; d++)
        if (c->extents[d] > 1)
            period = ul_gcd(ul_gcd(period, rows[1].factors[loops + d]), c->b.at.strides[d]);
    for (uint32_t d = m + n; d < m + n + c->k_count; d++)
        if (c->extents[d] > 1)
            period = ul_gcd(period, c->b.at.strides[d]);
    columns.vars = c->vars + m;
    columns.loop_count = n;
    for (uint32_t d = m; d < m + n; d++) {
        int64_t stride = c->b.at.strides[d];
        if (c->extents[d] > 1 && (stride <= 0 || stride != rows[1].factors[loops + d]))
            return false;
        columns.factors[d - m] = stride;
        if (c->extents[d] > 1 && !add_rest(&columns, 0, c->extents[d] - 1, stride))
            return false;
    }
    reach += columns.high;
    return (period == 0 || reach <= period) && rows_apart(a->kernel, &columns, 1);
}

/* Below a contraction, the schedule decides when a load from another place than its b happens. */
static bool reads_first(const struct ul_accesses *a, const struct shared *shared,
                        const struct access *load, const struct access *store, bool same_view)
{
    if (shared->contraction == NULL)
        return true;
    if (load->contraction != shared->contraction)
        return false;
    switch (load->reads) {
    case UL_CONTRACT_READS_WHOLE:
        return true;
    case UL_CONTRACT_READS_COLUMN:
        return same_view && columns_apart(a, shared, store);
    case UL_CONTRACT_READS_ANY:
        break;
    }
    return false;
}

/* Whether no earlier iteration stores what the load reads. */
static bool comes_before(const struct ul_accesses *a, const struct access *load,
                         const struct access *store, bool same_view)
{
    struct shared shared;
    shared_find(a, load, store, &shared);
    if (!reads_first(a, &shared, load, store, same_view))
        return false;
    bool earlier = load->position < store->position;
    if (earlier && shared.count == 0)
        return true; /* nothing of the first statement runs after the second has begun */
    struct row_index rows[2] = {{.vars = shared.vars, .loop_count = shared.count},
                                {.vars = shared.vars, .loop_count = shared.count}};
    bool is_known = load->reads != UL_CONTRACT_READS_ANY
                        ? add_operand(a, &rows[0], load->contraction)
                    : load->index != UL_NONE ? add_to_row(a, &rows[0], load->index, 1)
                                             : false;
    if (!same_view || !is_known || !add_to_row(a, &rows[1], store->index, 1) ||
        memcmp(rows[0].factors, rows[1].factors, sizeof rows[0].factors) != 0)
        return false;
    bool other_part = rows[0].high < rows[1].low || rows[1].high < rows[0].low;
    int64_t low = rows[0].low < rows[1].low ? rows[0].low : rows[1].low;
    int64_t high = rows[0].high > rows[1].high ? rows[0].high : rows[1].high;
    return (earlier || other_part) && rows_apart(a->kernel, &rows[0], high - low + 1);
}

static bool is_safe(const struct ul_accesses *a, const struct access *load,
                    const struct access *store, bool same_view)
{
    if (same_view && load->index == store->index && load->position <= store->position &&
        is_fixed(a->kernel, load->index))
        return true;
    return comes_before(a, load, store, same_view);
}

bool ul_accesses_may_overwrite(const struct ul_accesses *a, uint32_t output, uint32_t input)
{
    const struct ul_buffer *buffers = a->kernel->buffers;
    const struct ul_buffer *in = &buffers[input];
    bool stored = false;
    for (uint32_t s = 0; s < a->store_count; s++) {
        const struct access *store = &a->stores[s];
        /* What another output stores under the input would be overwritten too. */
        if (buffers[store->buffer].value == in->value)
            return false;
        if (store->buffer != output)
            continue;
        stored = true;
        for (uint32_t l = 0; l < a->load_count; l++) {
            const struct ul_buffer *loaded = &buffers[a->loads[l].buffer];
            bool same_view = loaded->offset_bytes == in->offset_bytes && loaded->dtype == in->dtype;
            if (loaded->value == in->value && !is_safe(a, &a->loads[l], store, same_view))
                return false;
        }
    }
    return stored;
}
