/* SPDX-License-Identifier: Apache-2.0 */
/* Recomputation with the values of a forward pass that smallest cuts keep.
 *
 * Problem: which values of the forward pass are kept for the backward pass, so that a budget holds
 * at the least cost? Method: try the sets that are best at some price of a byte (remat_cut_set.c),
 * from keeping everything to keeping as little as possible. A range of prices with the same set at
 * both ends is left, others are halved. Each set becomes sequences: values that it does not keep
 * are recomputed when they are read (remat_again.c), or walks along the order make room as it is
 * needed and drop the set's values last. The bytes of a sequence decide: a small set runs long
 * parts again at once, so its peak may well be above that of a larger one. Left undone: sets that
 * are best at no price, between two that are. */
#include "planner/remat/remat_internal.h"

#include <string.h>

struct cutter {
    struct ul_remat *remat;
    struct ul_cut_set set;
    struct ul_walk walk;
    double slope;
    uint32_t *sequence;
    bool *is_there;
    struct ul_arena *arena;
    bool **tried; /* sets already offered for this order */
    uint32_t tried_count, tried_capacity;
};

/* Whether the set differs from all that were offered: most prices have the same few. */
static bool set_is_new(struct cutter *c)
{
    const size_t size = c->remat->graph->node_count * sizeof *c->set.is_kept;
    for (uint32_t i = 0; i < c->tried_count; i++)
        if (memcmp(c->tried[i], c->set.is_kept, size) == 0)
            return false;
    UL_GROW(c->arena, c->tried, c->tried_count, c->tried_capacity);
    c->tried[c->tried_count++] = ul_arena_copy(c->arena, c->set.is_kept, size);
    return true;
}

/* Offers walks that make room as it is needed, and drop the cut's values last. */
static void walks_offer(struct cutter *c)
{
    static const struct ul_walk_mode modes[] = {
        {1.0, 1.0, 0.5, 0.90, 1.00}, {0.0, 0.0, 0.0, 1.00, 1.00}, {0.5, 1.0, 0.0, 0.80, 1.00}};
    const double kept_weight = 12; /* a logarithm, like all of a score */
    struct ul_walk *w = &c->walk;
    for (uint32_t v = 0; v < c->remat->graph->node_count; v++)
        w->weight[v] = c->set.is_kept[v] ? kept_weight : 0;
    for (uint32_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        uint64_t before = w->work;
        w->mode = modes[i];
        w->cost_limit = c->remat->cost;
        bool fits = ul_walk_run(w);
        c->remat->effort.work += w->work - before;
        if (fits && w->cost < c->remat->cost)
            ul_remat_offer(c->remat, w->sequence, w->count, "smallest cut, walk");
    }
}

/* Offers the best set at a price; returns the bytes that it keeps. */
static uint64_t price_offer(struct cutter *c, double price)
{
    struct ul_remat *remat = c->remat;
    const struct ul_solve_graph *g = remat->graph;
    uint64_t before = c->set.flow.work, peak_bytes, cost;
    uint64_t kept_bytes = ul_cut_set_at(&c->set, price, c->slope);
    remat->effort.work += c->set.flow.work - before;
    if (!set_is_new(c))
        return kept_bytes;
    memcpy(c->is_there, c->set.is_kept, g->node_count * sizeof *c->is_there);
    uint32_t count = ul_remat_make_again(g, c->set.order, c->set.is_forward, c->set.border,
                                         c->is_there, c->sequence);
    bool valid = ul_solve_replay(g, c->sequence, count, &peak_bytes, &cost);
    UL_ASSERT(valid);
    remat->effort.work += count;
    if (peak_bytes <= remat->budget_bytes)
        ul_remat_offer(remat, c->sequence, count, "smallest cut");
    walks_offer(c);
    return kept_bytes;
}

/* Offers the best sets between two prices, at whose ends these bytes are kept. */
static void prices_offer(struct cutter *c, double low, double high, uint64_t low_bytes,
                         uint64_t high_bytes)
{
    const double finest = 0.5; /* at most 7 of these calls are nested */
    double middle = (low + high) / 2;
    if (low_bytes == high_bytes || high - low <= finest || ul_remat_exhausted(c->remat))
        return;
    uint64_t bytes = price_offer(c, middle);
    prices_offer(c, low, middle, low_bytes, bytes);
    prices_offer(c, middle, high, bytes, high_bytes);
}

static void order_try(struct ul_remat *remat, const uint32_t *order)
{
    static const double slopes[] = {0.05, -0.05};
    const struct ul_solve_graph *g = remat->graph;
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct cutter c = {.remat = remat, .arena = &scratch};
    c.walk = (struct ul_walk){.graph = g,
                              .order = order,
                              .budget_bytes = remat->budget_bytes,
                              .capacity = remat->capacity};
    ul_walk_init(&c.walk, &scratch);
    ul_cut_set_init(&c.set, &scratch, g, order, remat->is_forward);
    c.is_there = UL_NEW_ARRAY(&scratch, bool, g->node_count);
    c.sequence = UL_NEW_ARRAY(&scratch, uint32_t, 2 * (uint64_t)g->node_count);
    for (uint32_t i = 0; i < sizeof slopes / sizeof *slopes; i++) {
        c.slope = slopes[i];
        uint64_t all_bytes = price_offer(&c, -UL_CUT_DEAREST);
        prices_offer(&c, -UL_CUT_DEAREST, UL_CUT_DEAREST, all_bytes,
                     price_offer(&c, UL_CUT_DEAREST));
    }
    ul_arena_done(&scratch);
}

bool ul_remat_run_cut(struct ul_remat *remat, const struct ul_remat_orders *orders,
                      enum ul_method_turn turn)
{
    UL_ASSERT(orders->count > 0 && remat->capacity >= 2 * (uint64_t)remat->graph->node_count);
    if (turn != UL_TURN_NONE && remat->is_forward == NULL)
        return false;
    for (uint32_t i = 0; i < orders->count; i++)
        order_try(remat, orders->orders[i]);
    if (turn == UL_TURN_NONE && remat->cost == UINT64_MAX)
        remat->why_not = "nothing that it keeps is small enough";
    return false;
}
