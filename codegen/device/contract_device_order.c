/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the order of k in which sums are formed.
 *
 * Problem: a convolution's k is (channel, row, column of the window), while channels-last input has
 * neighbouring channels; threads that read along k as it is would fetch 32 bytes for every 4.
 * Method: k's dimension whose stride is 1 in an operand that has no other such dimension becomes
 * the innermost. Where the other operand has its neighbours along another dimension (weights as
 * [channel][row][column]), a part of it does:
 *
 *     (channel, row, column)  ->  (channel / 16, row, column, channel % 16)
 *
 * so that the tile reads whole runs of 16 channels; elements between two channels of a weight are
 * read soon after, from the cache. The order depends only on extents and strides. */
#include "codegen/device/contract_device.h"

#include <string.h>

enum { RUN = 16 };

static bool is_unit(const struct ul_contraction *c, const struct ul_operand *operand, uint32_t d)
{
    return c->extents[d] > 1 && operand->at.strides[d] == 1;
}

/* A dimension in [first, first + count) along which the operand has its neighbours; else
 * UL_CONTRACT_DIMS. */
static uint32_t unit_dim(const struct ul_contraction *c, const struct ul_operand *operand,
                         uint32_t first, uint32_t count)
{
    for (uint32_t d = first; d < first + count; d++)
        if (is_unit(c, operand, d))
            return d;
    return UL_CONTRACT_DIMS;
}

/* The dimension of k that becomes the innermost, or UL_CONTRACT_DIMS. */
static uint32_t find_inner(const struct ul_contraction *c)
{
    uint32_t m = c->m_count, n = c->n_count, k = c->k_count, last = m + n + k - 1;
    uint32_t d = UL_CONTRACT_DIMS;
    if (unit_dim(c, &c->b, m, n) == UL_CONTRACT_DIMS)
        d = unit_dim(c, &c->b, m + n, k);
    if (d == UL_CONTRACT_DIMS && unit_dim(c, &c->a, 0, m) == UL_CONTRACT_DIMS)
        d = unit_dim(c, &c->a, m + n, k);
    return d == last ? UL_CONTRACT_DIMS : d;
}

static void set_dim(struct ul_affine *to, uint32_t at, const struct ul_affine *from, uint32_t d,
                    int64_t scale)
{
    to->strides[at] = from->strides[d] * scale;
}

/* Dimension `at` of `to` is dimension d of `from`, with steps of `scale` of its steps. */
static void put_dim(struct ul_contraction *to, uint32_t at, const struct ul_contraction *from,
                    uint32_t d, int64_t extent, int64_t scale)
{
    to->vars[at] = from->vars[d];
    to->extents[at] = extent;
    set_dim(&to->a.at, at, &from->a.at, d, scale);
    set_dim(&to->b.at, at, &from->b.at, d, scale);
    for (uint32_t i = 0; i < from->a.bound_count; i++)
        set_dim(&to->a.bounds[i].at, at, &from->a.bounds[i].at, d, scale);
    for (uint32_t i = 0; i < from->b.bound_count; i++)
        set_dim(&to->b.bounds[i].at, at, &from->b.bounds[i].at, d, scale);
}

void ul_contract_device_order(struct ul_contract_device_plan *plan, const struct ul_kernel *kernel,
                              const struct ul_contraction *from, struct ul_arena *arena)
{
    struct ul_contract_plan given;
    struct ul_contraction *to = &plan->contraction;
    ul_contract_plan_init(&given, kernel, from, arena);
    *to = *from;
    if (given.k == 0 || from->k_count == 0)
        return;
    uint32_t inner = find_inner(from), first = from->m_count + from->n_count, at = first;
    if (inner == UL_CONTRACT_DIMS || given.a_uses.is_mentioned[inner] ||
        given.b_uses.is_mentioned[inner])
        return;
    int64_t extent = from->extents[inner], run = extent;
    bool is_shared = is_unit(from, &from->a, inner) && is_unit(from, &from->b, inner);
    if (!is_shared && extent % RUN == 0 && first + from->k_count < UL_CONTRACT_DIMS)
        run = RUN;
    if (run < extent)
        put_dim(to, at++, from, inner, extent / run, run);
    for (uint32_t d = first; d < first + from->k_count; d++)
        if (d != inner)
            put_dim(to, at++, from, d, from->extents[d], 1);
    put_dim(to, at++, from, inner, run, 1);
    to->k_count = at - first;
}
