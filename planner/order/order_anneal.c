/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated annealing of an order: a node moves to another place, together with the nodes that must
 * move with it.
 *
 * Problem: beams and windows end where every better order is far from the best one. Graphs without
 * much structure (for example random ones) have many orders like that. Method: a node and a place
 * before or after it are drawn. The node goes there; nodes in between that it waits for go before
 * it (or those that wait for it go after it), each group in its old order; so every draw is an
 * order. The energy of an order is the excess of its live sums over a mark a little below the best
 * peak, summed over positions, so that many paths lead across a plateau of peaks. A move that
 * increases it stays with a probability that falls as the search cools.
 *
 *     position   1   2   3   4   5            1   2   3   4   5
 *     before     a   b   c   v   d            c waits for a, v for c: v goes to the front
 *     after      a   c   v   b   d
 *
 * Source: Kirkpatrick, Gelatt and Vecchi, "Optimization by simulated annealing", Science 1983. */
#include "planner/model/problem.h"
#include "planner/order/order_internal.h"

#include <math.h>
#include <string.h>

enum {
    AT_START = 0,  /* positions count from 1 */
    FARTHEST = 64, /* a move, in positions */
    BATCH = 64,    /* moves at one temperature */
};
/* Fractions of the peak: where energy begins, and the first and last temperature. */
static const double mark_share = 0.98, hot_share = 0.05, cold_share = 0.002;

/* A value's first and last position. */
struct span {
    uint32_t first, last;
    uint32_t last_node; /* or UL_PLAN_NONE: it stays */
};

/* A new order for the nodes at positions [begin, end]. */
struct move {
    uint32_t begin, end;
};

/* For the current move: places are those after it; fields that begin with new_ are valid in its
 * range. */
struct annealer {
    const struct ul_order_core *core;
    struct ul_order_links links;
    uint64_t random;
    uint64_t work;
    uint32_t *place;            /* by node */
    uint32_t *node_at, *new_at; /* by position */
    uint64_t *during_bytes, *new_during_bytes;
    uint64_t *after_bytes, *new_after_bytes;
    uint8_t *taken; /* by node: it moves together with the drawn one */
    uint64_t best_bytes;
    uint32_t *best;      /* an order */
    uint32_t as_high;    /* positions whose live sum is at least best_bytes */
    uint64_t mark_bytes; /* live sums up to it have no energy */
    double temperature;
};

static uint32_t below(struct annealer *a, uint32_t limit)
{
    return (uint32_t)((ul_seed_next(&a->random) >> 32) * limit >> 32);
}

/* ---- A move ---- */

/* Whether the node waits for one that moves along, or one of these for it. */
static bool is_bound(struct annealer *a, uint32_t node, bool later)
{
    const uint32_t *first = later ? a->core->pred_first : a->links.succ_first;
    const uint32_t *nodes = later ? a->core->preds : a->links.succs;
    uint32_t k = first[node];
    while (k < first[node + 1] && !a->taken[nodes[k]])
        k++;
    a->work += k - first[node] + 2;
    return k < first[node + 1];
}

/* Writes the range's new order: nodes that move along go to its end, or to its beginning. */
static void move_write(struct annealer *a, const struct move *m, uint32_t taken_count, bool later)
{
    uint32_t taken_to = later ? m->end + 1 - taken_count : m->begin;
    uint32_t left_to = later ? m->begin : m->begin + taken_count;
    for (uint32_t p = m->begin; p <= m->end; p++) {
        uint32_t node = a->node_at[p];
        uint32_t to = a->taken[node] ? taken_to++ : left_to++;
        a->new_at[to] = node;
        a->place[node] = to;
        a->taken[node] = 0;
    }
    UL_ASSERT((later ? taken_to : left_to) == m->end + 1);
}

/* Draws a move; false where it changes nothing. Nodes that move along and are at the far end of the
 * range stay where they are, so the range ends before them. */
static bool move_draw(struct annealer *a, struct move *m)
{
    uint32_t node = below(a, a->core->node_count);
    uint32_t drawn = 1 + below(a, 1 + below(a, FARTHEST)); /* mostly near */
    bool later = below(a, 2) == 0;
    uint32_t at = a->place[node];
    uint32_t room = later ? a->core->node_count - at : at - 1;
    uint32_t left_count = 0;
    uint32_t far = 0;
    a->taken[node] = 1;
    for (uint32_t i = 1; i <= drawn && i <= room; i++) {
        uint32_t other = a->node_at[later ? at + i : at - i];
        a->taken[other] = is_bound(a, other, later);
        far = a->taken[other] ? far : i;
        left_count += !a->taken[other];
    }
    for (uint32_t i = far + 1; i <= drawn && i <= room; i++)
        a->taken[a->node_at[later ? at + i : at - i]] = 0;
    *m = (struct move){later ? at : at - far, later ? at + far : at};
    move_write(a, m, far + 1 - left_count, later);
    return far > 0;
}

static struct span span_find(struct annealer *a, uint32_t value)
{
    const struct ul_order_core *c = a->core;
    const uint32_t *first = a->links.value_first;
    struct span span = {c->node_count + 1, AT_START, UL_PLAN_NONE};
    for (uint32_t i = first[value]; i < first[value + 1]; i++) {
        uint32_t node = a->links.value_nodes[i];
        uint32_t position = a->place[node];
        span.first = position < span.first ? position : span.first;
        if (position > span.last) {
            span.last = position;
            span.last_node = node;
        }
    }
    a->work += first[value + 1] - first[value];
    if ((c->flags[value] & UL_ORDER_OPEN) != 0)
        span.first = AT_START;
    if ((c->flags[value] & UL_ORDER_STAYS) != 0) {
        span.last = c->node_count + 1;
        span.last_node = UL_PLAN_NONE;
    }
    return span;
}

/* The live sums at the new node at `position` and after it, from the sum before it. */
static void step_sums(struct annealer *a, uint32_t position, uint64_t live_bytes)
{
    const struct ul_order_core *c = a->core;
    uint32_t node = a->new_at[position];
    uint64_t dies = 0;
    uint64_t reused = 0;
    for (uint32_t k = c->touch_first[node]; k < c->touch_first[node + 1]; k++) {
        uint32_t value = c->touches[k];
        struct span span = span_find(a, value);
        live_bytes += span.first == position ? c->size_bytes[value] : 0;
        dies += span.last == position ? c->size_bytes[value] : 0;
        if (c->reuse_value[node] == value && span.last_node == node)
            reused = c->reuse_bytes[node];
    }
    a->new_during_bytes[position] = live_bytes + c->working_bytes[node] - reused;
    a->new_after_bytes[position] = live_bytes - dies;
}

static void move_sums(struct annealer *a, const struct move *m)
{
    uint64_t live_bytes = a->after_bytes[m->begin - 1];
    for (uint32_t p = m->begin; p <= m->end; p++) {
        step_sums(a, p, live_bytes);
        live_bytes = a->new_after_bytes[p];
    }
    UL_ASSERT(live_bytes == a->after_bytes[m->end]);
}

static double energy_of(const struct annealer *a, uint64_t bytes)
{
    return bytes > a->mark_bytes ? (double)(bytes - a->mark_bytes) : 0;
}

static bool move_stays(struct annealer *a, const struct move *m)
{
    double more = 0;
    for (uint32_t p = m->begin; p <= m->end; p++)
        more += energy_of(a, a->new_during_bytes[p]) - energy_of(a, a->during_bytes[p]);
    return more <= 0 || more < -a->temperature * log(ul_seed_unit(&a->random));
}

static void move_apply(struct annealer *a, const struct move *m)
{
    for (uint32_t p = m->begin; p <= m->end; p++) {
        a->as_high += a->new_during_bytes[p] >= a->best_bytes;
        a->as_high -= a->during_bytes[p] >= a->best_bytes;
        a->node_at[p] = a->new_at[p];
        a->during_bytes[p] = a->new_during_bytes[p];
        a->after_bytes[p] = a->new_after_bytes[p];
    }
}

static void move_undo(struct annealer *a, const struct move *m)
{
    for (uint32_t p = m->begin; p <= m->end; p++)
        a->place[a->node_at[p]] = p;
}

/* ---- The search ---- */

/* The current order is the best so far. */
static void best_keep(struct annealer *a)
{
    uint32_t n = a->core->node_count;
    memcpy(a->best, a->node_at + 1, n * sizeof *a->best);
    a->best_bytes = 0;
    a->as_high = 0;
    for (uint32_t p = 1; p <= n; p++) {
        uint64_t bytes = a->during_bytes[p];
        if (bytes > a->best_bytes)
            a->as_high = 0;
        a->best_bytes = bytes > a->best_bytes ? bytes : a->best_bytes;
        a->as_high += bytes == a->best_bytes;
    }
    a->mark_bytes = (uint64_t)((double)a->best_bytes * mark_share);
    a->work += n;
}

static void annealer_init(struct annealer *a, struct ul_arena *scratch, uint32_t *order)
{
    uint32_t n = a->core->node_count;
    uint64_t places = (uint64_t)n + 1;
    ul_order_links_make(scratch, a->core, &a->links);
    a->place = UL_NEW_ARRAY(scratch, uint32_t, n);
    a->node_at = UL_NEW_ARRAY(scratch, uint32_t, places);
    a->new_at = UL_NEW_ARRAY(scratch, uint32_t, places);
    a->during_bytes = UL_NEW_ARRAY(scratch, uint64_t, places);
    a->new_during_bytes = UL_NEW_ARRAY(scratch, uint64_t, places);
    a->after_bytes = UL_NEW_ARRAY(scratch, uint64_t, places);
    a->new_after_bytes = UL_NEW_ARRAY(scratch, uint64_t, places);
    a->taken = ul_arena_alloc(scratch, n);
    a->best = order;
    for (uint32_t i = 0; i < n; i++) {
        a->new_at[i + 1] = order[i];
        a->place[order[i]] = i + 1;
    }
    a->after_bytes[0] = a->core->start_bytes;
    for (uint32_t p = 1; p <= n; p++) {
        step_sums(a, p, a->after_bytes[p - 1]);
        a->after_bytes[p] = a->new_after_bytes[p];
    }
    move_apply(a, &(struct move){1, n});
    best_keep(a);
}

static void batch_run(struct annealer *a)
{
    for (uint32_t i = 0; i < BATCH; i++) {
        struct move m;
        if (!move_draw(a, &m))
            continue;
        move_sums(a, &m);
        if (move_stays(a, &m))
            move_apply(a, &m);
        else
            move_undo(a, &m);
        if (a->as_high == 0)
            best_keep(a);
    }
    a->work += BATCH;
}

void ul_order_anneal(const struct ul_order_core *core, struct ul_effort *effort,
                     uint64_t enough_bytes, uint64_t seed, uint32_t *order)
{
    UL_ASSERT(core->node_count > 0 && !core->reversed);
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct annealer a = {.core = core, .random = seed};
    annealer_init(&a, &scratch, order);
    double hot = (double)a.best_bytes * hot_share;
    double all = (double)effort->work_limit - (double)effort->work;
    uint64_t from = effort->work;
    while (a.best_bytes > enough_bytes && !ul_effort_spent(effort)) {
        double progress = (double)(effort->work - from) / all;
        a.temperature = hot * pow(cold_share / hot_share, progress);
        batch_run(&a);
        effort->work += a.work;
        a.work = 0;
    }
    UL_ASSERT(ul_order_core_peak(&scratch, core, order, NULL, NULL) == a.best_bytes);
    ul_arena_done(&scratch);
}
