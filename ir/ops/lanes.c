/* SPDX-License-Identifier: Apache-2.0 */
/* Loops over outputs with carried state; see lanes.h. */
#include "ir/ops/lanes.h"

#include "ir/kernel_build.h"
#include "ir/ops/partials.h"

#include <string.h>

uint32_t ul_lanes_all(uint32_t rank)
{
    return (1u << rank) - 1u;
}

int64_t ul_lanes_product(const int64_t *dims, uint32_t rank, uint32_t mask)
{
    int64_t product = 1;
    for (uint32_t d = 0; d < rank; d++) {
        if ((mask >> d & 1u) != 0)
            product *= dims[d];
    }
    return product;
}

/* The innermost dimension that is longer than 1, or UL_NONE. */
static uint32_t contiguous(uint32_t rank, const int64_t *dims, const uint32_t *order)
{
    for (uint32_t i = rank; i-- > 0;) {
        if (dims[order[i]] != 1)
            return order[i];
    }
    return UL_NONE;
}

/* Picks the dimension to make lanes of. */
static uint32_t pick(uint32_t rank, const int64_t *dims, const uint32_t *order, uint32_t kept)
{
    uint32_t last = contiguous(rank, dims, order);
    if (last == UL_NONE || (kept >> last & 1u) == 0)
        return UL_NONE;
    for (uint32_t d = 0; d < rank; d++) {
        if (d != last && (kept >> d & 1u) == 0 && dims[d] > 1)
            return last;
    }
    return UL_NONE;
}

static void open_block(struct ul_lanes *lanes, int64_t max)
{
    struct ul_kernel *k = lanes->lower->kernel;
    int64_t size = lanes->dims[lanes->lane_dim];
    lanes->width = size < max ? size : max;
    if (size <= max) {
        lanes->first = ul_kx_index_const(k, 0);
        lanes->count = ul_kx_index_const(k, size);
        return;
    }
    ul_kx block = ul_ks_for(k, (size + max - 1) / max, UL_FOR_PARALLEL);
    lanes->open_loops++;
    lanes->first = ul_ks_let(k, ul_kx_muli(k, block, max));
    if (size % max == 0) {
        lanes->count = ul_kx_index_const(k, max);
        return;
    }
    ul_kx left = ul_kx_sub(k, ul_kx_index_const(k, size), lanes->first);
    lanes->count = ul_ks_let(k, ul_kx_binary(k, UL_KX_MIN, left, ul_kx_index_const(k, max)));
}

static void open_along(struct ul_lanes *lanes, struct ul_lower *lower, uint32_t rank,
                       const int64_t *dims, const uint32_t *order, uint32_t kept, uint32_t lane_dim,
                       int64_t max)
{
    *lanes = (struct ul_lanes){.lower = lower, .rank = rank, .lane_dim = lane_dim};
    memcpy(lanes->dims, dims, rank * sizeof *dims);
    memcpy(lanes->order, order, rank * sizeof *order);
    for (uint32_t d = 0; d < UL_LIMIT_RANK; d++)
        lanes->index[d] = ul_kx_index_const(lower->kernel, 0);
    for (uint32_t i = 0; i < rank; i++) {
        uint32_t d = order[i];
        if ((kept >> d & 1u) == 0 || d == lane_dim)
            continue;
        lanes->index[d] = ul_ks_for(lower->kernel, dims[d], UL_FOR_PARALLEL);
        lanes->open_loops++;
    }
    if (lane_dim != UL_NONE)
        open_block(lanes, max);
}

void ul_lanes_init(struct ul_lanes *lanes, struct ul_lower *lower, uint32_t rank,
                   const int64_t *dims, const uint32_t *order)
{
    open_along(lanes, lower, rank, dims, order, 0, UL_NONE, 1);
}

void ul_lanes_open(struct ul_lanes *lanes, struct ul_lower *lower, ul_value_id value, uint32_t kept)
{
    const struct ul_type *type = &lower->graph->values[value].type;
    uint32_t order[UL_LIMIT_RANK];
    ul_lower_order(lower, value, order);
    open_along(lanes, lower, type->rank, type->dims, order, kept,
               pick(type->rank, type->dims, order, kept), UL_LANES_MAX);
}

void ul_lanes_open_order(struct ul_lanes *lanes, struct ul_lower *lower, uint32_t rank,
                         const int64_t *dims, const uint32_t *order, uint32_t kept)
{
    uint32_t rows[UL_LIMIT_RANK];
    for (uint32_t d = 0; d < rank; d++)
        rows[d] = order == NULL ? d : order[d];
    open_along(lanes, lower, rank, dims, rows, kept, pick(rank, dims, rows, kept), UL_LANES_MAX);
}

void ul_lanes_open_along(struct ul_lanes *lanes, struct ul_lower *lower, ul_value_id value,
                         uint32_t kept, uint32_t lane_dim, int64_t max)
{
    const struct ul_type *type = &lower->graph->values[value].type;
    uint32_t order[UL_LIMIT_RANK];
    ul_lower_order(lower, value, order);
    open_along(lanes, lower, type->rank, type->dims, order, kept, lane_dim, max);
}

void ul_lanes_close(struct ul_lanes *lanes)
{
    for (; lanes->open_loops > 0; lanes->open_loops--)
        ul_ks_end(lanes->lower->kernel);
}

void ul_lanes_loop(struct ul_lanes *lanes, uint32_t mask, uint32_t flags)
{
    /* With lanes, the carried state is in arrays, which no schedule recombines. */
    if (lanes->lane_dim != UL_NONE)
        flags &= ~(uint32_t)UL_FOR_REDUCE;
    for (uint32_t i = 0; i < lanes->rank; i++) {
        uint32_t d = lanes->order[i];
        if ((mask >> d & 1u) != 0)
            lanes->index[d] = ul_ks_for(lanes->lower->kernel, lanes->dims[d], flags);
    }
}

void ul_lanes_loop_end(struct ul_lanes *lanes, uint32_t mask)
{
    for (uint32_t d = 0; d < lanes->rank; d++) {
        if ((mask >> d & 1u) != 0)
            ul_ks_end(lanes->lower->kernel);
    }
}

void ul_lanes_begin(struct ul_lanes *lanes)
{
    if (lanes->lane_dim == UL_NONE)
        return;
    struct ul_kernel *k = lanes->lower->kernel;
    lanes->lane = ul_ks_for_expr(k, lanes->count, lanes->width, UL_FOR_PARALLEL);
    lanes->index[lanes->lane_dim] = ul_kx_add(k, lanes->first, lanes->lane);
}

void ul_lanes_begin_range(struct ul_lanes *lanes, ul_kx low, ul_kx high)
{
    UL_ASSERT(lanes->lane_dim != UL_NONE);
    struct ul_kernel *k = lanes->lower->kernel;
    ul_kx count = ul_kx_binary(k, UL_KX_MAX, ul_kx_sub(k, high, low), ul_kx_index_const(k, 0));
    ul_kx step = ul_ks_for_expr(k, count, lanes->width, UL_FOR_PARALLEL);
    lanes->lane = ul_kx_add(k, low, step);
    lanes->index[lanes->lane_dim] = ul_kx_add(k, lanes->first, lanes->lane);
}

void ul_lanes_end(struct ul_lanes *lanes)
{
    if (lanes->lane_dim != UL_NONE)
        ul_ks_end(lanes->lower->kernel);
}

struct ul_lane_var ul_lanes_var(struct ul_lanes *lanes, enum ul_dtype dtype, ul_kx first)
{
    struct ul_kernel *k = lanes->lower->kernel;
    struct ul_lane_var var = {.dtype = dtype};
    if (lanes->lane_dim == UL_NONE) {
        var.id = ul_ks_var(k, ul_compute_dtype(dtype), first);
        return var;
    }
    var.id = ul_lower_local(lanes->lower, dtype, lanes->width > 0 ? (uint64_t)lanes->width : 1);
    ul_lanes_begin(lanes);
    ul_lanes_set(lanes, var, first);
    ul_lanes_end(lanes);
    return var;
}

ul_kx ul_lanes_get(const struct ul_lanes *lanes, struct ul_lane_var var)
{
    struct ul_kernel *k = lanes->lower->kernel;
    return lanes->lane_dim == UL_NONE ? ul_kx_var(k, var.id) : ul_kx_load(k, var.id, lanes->lane);
}

void ul_lanes_set(const struct ul_lanes *lanes, struct ul_lane_var var, ul_kx value)
{
    struct ul_kernel *k = lanes->lower->kernel;
    if (lanes->lane_dim == UL_NONE)
        ul_ks_set(k, var.id, value);
    else
        ul_ks_store(k, var.id, lanes->lane, value);
}

/* The dimension along which to make partial results, or UL_NONE. */
static uint32_t partial_dim(const struct ul_lanes *lanes, uint32_t mask)
{
    uint32_t last = contiguous(lanes->rank, lanes->dims, lanes->order);
    if (lanes->lane_dim != UL_NONE || last == UL_NONE || (mask >> last & 1u) == 0 ||
        lanes->dims[last] < UL_LANES_MAX)
        return UL_NONE;
    return last;
}

/* How many partial results to make: more of them where threads share a long sum. It depends on the
 * sum alone, so that a part of a tensor has the same sums. */
static int64_t partial_count(const struct ul_lanes *lanes, uint32_t mask, uint32_t dim)
{
    enum { EACH = 4 }; /* terms for each partial result, at least */
    int64_t count = UL_LANES_MAX;
    int64_t terms = ul_lanes_product(lanes->dims, lanes->rank, mask);
    while (2 * count <= lanes->lower->traits->partial_count && 2 * count <= lanes->dims[dim] &&
           2 * EACH * count <= terms)
        count *= 2;
    return count;
}

/* partial[j] = partial[j] combined with the term at index[dim] = first + j, for j in [0, count) */
static void add_partials(struct ul_lanes *lanes, uint32_t partial, uint32_t dim, ul_kx first,
                         int64_t count, enum ul_kx_op combine, ul_lanes_term_fn *term,
                         const void *context)
{
    struct ul_kernel *k = lanes->lower->kernel;
    ul_kx j = ul_ks_for(k, count, UL_FOR_PARALLEL);
    lanes->index[dim] = ul_kx_add(k, first, j);
    ul_kx x = term(lanes, context);
    ul_ks_store(k, partial, j, ul_kx_binary(k, combine, ul_kx_load(k, partial, j), x));
    ul_ks_end(k);
}

ul_kx ul_lanes_fold(struct ul_kernel *k, uint32_t partial, int64_t count, enum ul_kx_op combine)
{
    for (int64_t half = count / 2; half > 0; half /= 2) {
        ul_kx j = ul_ks_for(k, half, UL_FOR_PARALLEL);
        ul_kx other = ul_kx_load(k, partial, ul_kx_addi(k, j, half));
        ul_ks_store(k, partial, j, ul_kx_binary(k, combine, ul_kx_load(k, partial, j), other));
        ul_ks_end(k);
    }
    return ul_kx_load(k, partial, ul_kx_index_const(k, 0));
}

/* Adds terms along `dim` into partial results, which outer dimensions add to. */
static struct ul_lane_var reduce_partial(struct ul_lanes *lanes, uint32_t mask, uint32_t dim,
                                         enum ul_kx_op combine, ul_kx first, ul_lanes_term_fn *term,
                                         const void *context)
{
    struct ul_kernel *k = lanes->lower->kernel;
    enum ul_dtype dtype = ul_kx_dtype(k, first);
    int64_t count = partial_count(lanes, mask, dim);
    uint32_t partial = ul_lower_local(lanes->lower, dtype, (uint64_t)count);
    ul_kx j = ul_ks_for(k, count, UL_FOR_PARALLEL);
    ul_ks_store(k, partial, j, first);
    ul_ks_end(k);
    int64_t blocks = lanes->dims[dim] / count;
    int64_t rest = lanes->dims[dim] % count;
    ul_lanes_loop(lanes, mask & ~(1u << dim), 0);
    ul_kx block = ul_ks_for(k, blocks, 0);
    add_partials(lanes, partial, dim, ul_kx_muli(k, block, count), count, combine, term, context);
    ul_ks_end(k);
    if (rest > 0)
        add_partials(lanes, partial, dim, ul_kx_index_const(k, blocks * count), rest, combine, term,
                     context);
    ul_lanes_loop_end(lanes, mask & ~(1u << dim));
    return ul_lanes_var(lanes, dtype, ul_lanes_fold(k, partial, count, combine));
}

/* Reduces loop by loop, each with a result of its own, so that long sums stay precise, over the
 * dimensions of `mask` from place `at` of the order on. */
static uint32_t reduce_nested(struct ul_lanes *lanes, uint32_t mask, uint32_t at,
                              enum ul_kx_op combine, ul_kx first, ul_lanes_term_fn *term,
                              const void *context)
{
    struct ul_kernel *k = lanes->lower->kernel;
    while (at < lanes->rank && (mask >> lanes->order[at] & 1u) == 0)
        at++;
    uint32_t acc = ul_ks_var(k, ul_kx_dtype(k, first), first);
    if (at < lanes->rank)
        lanes->index[lanes->order[at]] = ul_ks_for(k, lanes->dims[lanes->order[at]], UL_FOR_REDUCE);
    bool innermost = true;
    for (uint32_t i = at + 1; i < lanes->rank; i++)
        innermost = innermost && (mask >> lanes->order[i] & 1u) == 0;
    ul_kx x = innermost
                  ? term(lanes, context)
                  : ul_kx_var(k, reduce_nested(lanes, mask, at + 1, combine, first, term, context));
    ul_ks_set(k, acc, ul_kx_binary(k, combine, ul_kx_var(k, acc), x));
    if (at < lanes->rank)
        ul_ks_end(k);
    return acc;
}

struct ul_lane_var ul_lanes_reduce(struct ul_lanes *lanes, uint32_t mask, enum ul_kx_op combine,
                                   ul_kx first, ul_lanes_term_fn *term, const void *context)
{
    enum ul_dtype dtype = ul_kx_dtype(lanes->lower->kernel, first);
    uint32_t dim = partial_dim(lanes, mask);
    if (lanes->in_parts && ul_partials_apply(lanes, mask)) {
        struct ul_partials parts;
        ul_partials_init(&parts, lanes, mask, combine, first, term, context);
        return ul_lanes_var(lanes, dtype, ul_partials_total(&parts));
    }
    if (dim != UL_NONE)
        return reduce_partial(lanes, mask, dim, combine, first, term, context);
    if (lanes->lane_dim == UL_NONE)
        return (struct ul_lane_var){
            .dtype = dtype, .id = reduce_nested(lanes, mask, 0, combine, first, term, context)};
    struct ul_lane_var acc = ul_lanes_var(lanes, dtype, first);
    ul_lanes_loop(lanes, mask, 0);
    ul_lanes_begin(lanes);
    ul_kx x = term(lanes, context);
    ul_lanes_set(lanes, acc,
                 ul_kx_binary(lanes->lower->kernel, combine, ul_lanes_get(lanes, acc), x));
    ul_lanes_end(lanes);
    ul_lanes_loop_end(lanes, mask);
    return acc;
}
