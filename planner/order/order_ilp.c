/* SPDX-License-Identifier: Apache-2.0 */
/* The order with the smallest peak as an integer program: the cross-check of the search over sets,
 * with which it shares only the core.
 *
 * Problem: an order of a core's nodes, each once, that minimises the largest live sum. Method: is
 * there an order that stays below a bound? The bounds fall, each just below the peak of the last
 * order found, until there is none.
 *   done[v][t]    node v is at position t or before it: 0 or 1, never falls, t + 1 of them are 1;
 *                 nodes that must come before v are done at t - 1
 *   begun[x][t]   value x has been touched at t: the maximum of done over what touches it
 *   ended[x][t]   nothing touches x after t: their minimum
 * x is live at t where it is begun there and not ended at t - 1; both follow from done and are
 * continuous. Ancestors and descendants narrow the positions of each node. Left undone: everything
 * that would make this fast; large cores are refused. */
#include "planner/model/problem.h"
#include "planner/order/ilp.h"
#include "planner/order/order_internal.h"

#include <math.h>
#include <string.h>

enum { NODES_MAX = 30 };

/* A variable, or a constant. */
static const uint32_t ZERO = UINT32_MAX - 1, ONE = UINT32_MAX;

struct program {
    const struct ul_order_core *core;
    struct ul_arena *arena;
    struct ul_ilp *ilp;
    uint32_t n;
    uint32_t *first, *last;             /* by node: its positions, both included */
    uint32_t *toucher_first, *touchers; /* by value */
    uint32_t *done;                     /* by node and position */
    uint32_t *begun, *ended;            /* by value and position */
    uint32_t *taken;                    /* by node and position */
    uint64_t max_bytes;
};

static uint32_t done_at(const struct program *p, uint32_t v, uint32_t t)
{
    return p->done[(uint64_t)v * p->n + t];
}

static void touchers_find(struct program *p)
{
    const struct ul_order_core *c = p->core;
    uint32_t touches = c->touch_first[p->n];
    p->toucher_first = UL_NEW_ARRAY(p->arena, uint32_t, (uint64_t)c->value_count + 2);
    p->touchers = UL_NEW_ARRAY(p->arena, uint32_t, touches);
    for (uint32_t k = 0; k < touches; k++)
        p->toucher_first[c->touches[k] + 2]++;
    for (uint32_t x = 0; x < c->value_count; x++)
        p->toucher_first[x + 2] += p->toucher_first[x + 1];
    for (uint32_t v = 0; v < p->n; v++) {
        for (uint32_t k = c->touch_first[v]; k < c->touch_first[v + 1]; k++)
            p->touchers[p->toucher_first[c->touches[k] + 1]++] = v;
    }
}

/* A node cannot be at the first positions, which the nodes before it need; likewise at the end. */
static void windows_find(struct program *p)
{
    const struct ul_order_core *c = p->core;
    bool *before = UL_NEW_ARRAY(p->arena, bool, (uint64_t)p->n * p->n);
    p->first = UL_NEW_ARRAY(p->arena, uint32_t, p->n);
    p->last = UL_NEW_ARRAY(p->arena, uint32_t, p->n);
    for (uint32_t v = 0; v < p->n; v++)
        p->last[v] = p->n - 1;
    for (uint32_t v = 0; v < p->n; v++) {
        bool *own = before + (uint64_t)v * p->n;
        for (uint32_t k = c->pred_first[v]; k < c->pred_first[v + 1]; k++) {
            uint32_t u = c->preds[k];
            own[u] = true;
            for (uint32_t w = 0; w < u; w++)
                own[w] |= before[(uint64_t)u * p->n + w];
        }
        for (uint32_t u = 0; u < v; u++) {
            p->first[v] += own[u];
            p->last[u] -= own[u];
        }
    }
}

static uint32_t variable_new(struct program *p, bool integer)
{
    return ul_ilp_add_column(p->ilp, 0, 0, 1, integer);
}

static void columns_make(struct program *p)
{
    const struct ul_order_core *c = p->core;
    p->done = UL_NEW_ARRAY(p->arena, uint32_t, (uint64_t)p->n * p->n);
    p->begun = UL_NEW_ARRAY(p->arena, uint32_t, (uint64_t)c->value_count * p->n);
    p->ended = UL_NEW_ARRAY(p->arena, uint32_t, (uint64_t)c->value_count * p->n);
    for (uint32_t v = 0; v < p->n; v++) {
        for (uint32_t t = 0; t < p->n; t++) {
            uint32_t *done = &p->done[(uint64_t)v * p->n + t];
            *done = t < p->first[v] ? ZERO : ONE;
            if (t >= p->first[v] && t < p->last[v])
                *done = variable_new(p, true);
        }
    }
    for (uint32_t x = 0; x < c->value_count; x++) {
        for (uint32_t t = 0; t < p->n; t++) {
            bool open = (c->flags[x] & UL_ORDER_OPEN) != 0;
            bool stays = (c->flags[x] & UL_ORDER_STAYS) != 0;
            p->begun[(uint64_t)x * p->n + t] = open ? ONE : variable_new(p, false);
            p->ended[(uint64_t)x * p->n + t] = stays ? ZERO : variable_new(p, false);
        }
    }
}

static void term_add(struct program *p, uint32_t code, double factor)
{
    struct ul_ilp_row *row = &p->ilp->rows[p->ilp->row_count - 1];
    if (code == ONE) {
        row->lower -= factor;
        row->upper -= factor;
    } else if (code != ZERO) {
        ul_ilp_add_term(p->ilp, code, factor);
    }
}

static void at_most(struct program *p, uint32_t a, uint32_t b)
{
    if (a == ZERO || b == ONE)
        return;
    ul_ilp_add_row(p->ilp, -INFINITY, 0);
    term_add(p, a, 1);
    term_add(p, b, -1);
}

static void order_rows(struct program *p)
{
    const struct ul_order_core *c = p->core;
    for (uint32_t v = 0; v < p->n; v++) {
        for (uint32_t t = 1; t < p->n; t++) {
            at_most(p, done_at(p, v, t - 1), done_at(p, v, t));
            for (uint32_t k = c->pred_first[v]; k < c->pred_first[v + 1]; k++)
                at_most(p, done_at(p, v, t), done_at(p, c->preds[k], t - 1));
        }
    }
    for (uint32_t t = 0; t < p->n; t++) {
        ul_ilp_add_row(p->ilp, t + 1, t + 1);
        for (uint32_t v = 0; v < p->n; v++)
            term_add(p, done_at(p, v, t), 1);
    }
}

static void value_rows(struct program *p)
{
    for (uint32_t x = 0; x < p->core->value_count; x++) {
        for (uint32_t k = p->toucher_first[x]; k < p->toucher_first[x + 1]; k++) {
            for (uint32_t t = 0; t < p->n; t++) {
                uint32_t done = done_at(p, p->touchers[k], t);
                at_most(p, done, p->begun[(uint64_t)x * p->n + t]);
                at_most(p, p->ended[(uint64_t)x * p->n + t], done);
            }
        }
    }
}

/* A node takes over bytes at t if it runs there and their value ends there. */
static void reuse_rows(struct program *p)
{
    const struct ul_order_core *c = p->core;
    p->taken = UL_NEW_ARRAY(p->arena, uint32_t, (uint64_t)p->n * p->n);
    for (uint32_t v = 0; v < p->n; v++) {
        for (uint32_t t = 0; t < p->n; t++) {
            uint32_t *taken = &p->taken[(uint64_t)v * p->n + t];
            *taken = ZERO;
            if (c->reuse_value[v] == UL_PLAN_NONE || t < p->first[v] || t > p->last[v])
                continue;
            *taken = variable_new(p, false);
            at_most(p, *taken, p->ended[(uint64_t)c->reuse_value[v] * p->n + t]);
            ul_ilp_add_row(p->ilp, -INFINITY, 0);
            term_add(p, *taken, 1);
            term_add(p, done_at(p, v, t), -1);
            if (t > 0)
                term_add(p, done_at(p, v, t - 1), 1);
        }
    }
}

static void memory_rows(struct program *p)
{
    const struct ul_order_core *c = p->core;
    double unit = (double)p->max_bytes + 1;
    for (uint32_t t = 0; t < p->n; t++) {
        ul_ilp_add_row(p->ilp, -INFINITY, (double)(p->max_bytes - c->start_bytes) / unit);
        for (uint32_t x = 0; x < c->value_count; x++) {
            double bytes = (double)c->size_bytes[x] / unit;
            if ((c->flags[x] & UL_ORDER_OPEN) == 0)
                term_add(p, p->begun[(uint64_t)x * p->n + t], bytes);
            if (t > 0)
                term_add(p, p->ended[(uint64_t)x * p->n + t - 1], -bytes);
        }
        for (uint32_t v = 0; v < p->n; v++) {
            double bytes = (double)c->working_bytes[v] / unit;
            term_add(p, done_at(p, v, t), bytes);
            if (t > 0)
                term_add(p, done_at(p, v, t - 1), -bytes);
            term_add(p, p->taken[(uint64_t)v * p->n + t], -(double)c->reuse_bytes[v] / unit);
        }
    }
}

static void order_read(const struct program *p, const double *values, uint32_t *order)
{
    uint32_t count = 0;
    for (uint32_t t = 0; t < p->n; t++) {
        for (uint32_t v = 0; v < p->n; v++) {
            uint32_t now = done_at(p, v, t);
            uint32_t before = t > 0 ? done_at(p, v, t - 1) : ZERO;
            bool is = now == ONE || (now != ZERO && values[now] > 0.5);
            bool was = before == ONE || (before != ZERO && values[before] > 0.5);
            if (is && !was && count < p->n)
                order[count++] = v;
        }
    }
    UL_ASSERT(count == p->n);
}

/* All peaks are a multiple of it. */
static uint64_t bytes_divisor(const struct ul_order_core *c)
{
    uint64_t divisor = c->start_bytes;
    uint32_t count = c->value_count + 2 * c->node_count;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t rest = i < c->value_count ? c->size_bytes[i]
                        : i % 2 != 0       ? c->working_bytes[(i - c->value_count) / 2]
                                           : c->reuse_bytes[(i - c->value_count) / 2];
        divisor = ul_size_gcd(divisor, rest);
    }
    return divisor > 0 ? divisor : 1;
}

/* Whether an order of at most max_bytes exists. */
static enum ul_order_outcome program_run(struct ul_arena *scratch, struct program *p,
                                         struct ul_effort *effort, uint32_t *order)
{
    p->ilp = ul_ilp_new(scratch);
    columns_make(p);
    order_rows(p);
    value_rows(p);
    reuse_rows(p);
    memory_rows(p);
    /* A simplex iteration goes through all of the program. */
    uint64_t each = (uint64_t)p->ilp->row_count + p->ilp->column_count;
    double seconds = ul_deadline_left(effort->deadline_seconds);
    struct ul_ilp_limits limits = {.work = (effort->work_limit - effort->work) / each + 1,
                                   .memory_bytes = (uint64_t)1 << 30,
                                   .wall_seconds = seconds < 0 ? 1e-3 : seconds};
    struct ul_ilp_result result;
    enum ul_ilp_outcome outcome = ul_ilp_solve(p->ilp, &limits, &result);
    effort->work += result.work * each;
    effort->stopped_by_time |= result.stopped_by_time;
    if (outcome == UL_ILP_INFEASIBLE)
        return UL_ORDER_PROVEN;
    if (result.values == NULL)
        return UL_ORDER_UNKNOWN;
    order_read(p, result.values, order);
    return UL_ORDER_IMPROVED;
}

enum ul_order_outcome ul_order_ilp(struct ul_arena *scratch, const struct ul_order_core *core,
                                   struct ul_effort *effort, uint64_t upper_bytes,
                                   uint64_t *lower_bytes, uint32_t *order)
{
    struct program p = {.core = core, .arena = scratch, .n = core->node_count};
    uint64_t unit = bytes_divisor(core);
    enum ul_order_outcome outcome = UL_ORDER_PROVEN;
    if (p.n > NODES_MAX || core->reversed)
        return UL_ORDER_UNKNOWN;
    touchers_find(&p);
    windows_find(&p);
    uint32_t *found = UL_NEW_ARRAY(scratch, uint32_t, p.n);
    while (upper_bytes > *lower_bytes && upper_bytes >= core->start_bytes + unit) {
        p.max_bytes = upper_bytes - unit;
        if (ul_effort_spent(effort))
            return UL_ORDER_UNKNOWN;
        enum ul_order_outcome step = program_run(scratch, &p, effort, found);
        if (step == UL_ORDER_PROVEN)
            break;
        uint64_t peak = upper_bytes;
        if (step == UL_ORDER_IMPROVED)
            peak = ul_order_core_peak(scratch, core, found, NULL, NULL);
        if (peak >= upper_bytes)
            return UL_ORDER_UNKNOWN;
        memcpy(order, found, p.n * sizeof *order);
        outcome = UL_ORDER_IMPROVED;
        upper_bytes = peak;
    }
    if (upper_bytes > *lower_bytes)
        *lower_bytes = upper_bytes;
    return outcome;
}
