/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated annealing of a complete sequence: its order together with its repeats.
 *
 * Method: a schedule (remat_schedule.c) is changed a little; the change stays if cost plus a
 * penalty for bytes above the budget grows by no more than a random amount, which shrinks. The
 * penalty rises while the budget is exceeded too often and falls otherwise, so that the search
 * stays near the edge of the feasible. The changes are:
 *   drop    a repeat, and repeats that only it read
 *   repeat  a value directly before a reader, with what it needs and lacks, so that it need
 *           not be kept across a slot above the budget
 *   move    a run, between what it reads and its readers
 *   swap    a drop, then repeats elsewhere to make up for it
 * Source: the moves are those of retention intervals (Bartan et al., "Moccasin", ICML 2023), free
 * of a fixed order. */
#include "planner/remat/remat_internal.h"

#include <math.h>
#include <string.h>

struct annealer {
    struct ul_remat *remat;
    struct ul_schedule schedule;
    uint64_t *random;
    uint64_t base_cost;
    struct ul_heat heat;
    double temperature, penalty;
    uint64_t offer_due; /* work at which a long sequence may be offered again */
    bool crowded;
    uint32_t chain_left; /* repeats that one change may still insert */
};

static uint32_t below(struct annealer *a, uint32_t limit)
{
    return (uint32_t)((ul_seed_next(a->random) >> 32) * limit >> 32);
}

static bool chance(struct annealer *a, uint32_t percent)
{
    return below(a, 100) < percent;
}

static bool may_repeat(const struct annealer *a, uint32_t v)
{
    return a->schedule.graph->run_once == NULL || !a->schedule.graph->run_once[v];
}

static bool reads_at(const struct ul_touches *t, uint32_t at)
{
    return at < t->count && t->at[at] % 2 == 1;
}

/* ---- Drop ---- */

/* Removes the run in `slot`, and before it what was made only for it. */
static bool run_drop(struct annealer *a, uint32_t slot)
{
    struct ul_schedule *s = &a->schedule;
    const struct ul_solve_graph *g = s->graph;
    uint32_t v = s->node_at[slot];
    if (!ul_schedule_remove(s, slot))
        return false;
    for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++) {
        uint32_t u = g->inputs[i];
        const struct ul_touches *t = &s->touches[u];
        uint32_t at = ul_schedule_find(s, u, slot);
        if (s->run_count[u] > 1 && at > 0 && t->at[at - 1] % 2 == 0 && !reads_at(t, at))
            run_drop(a, t->at[at - 1] / 2);
    }
    return true;
}

static bool change_drop(struct annealer *a)
{
    struct ul_schedule *s = &a->schedule;
    if (s->repeated_count == 0)
        return false;
    uint32_t v = s->repeated[below(a, s->repeated_count)];
    const struct ul_touches *t = &s->touches[v];
    uint32_t pick = below(a, s->run_count[v]);
    for (uint32_t i = 0; i < t->count; i++) {
        if (t->at[i] % 2 == 0 && pick-- == 0)
            return run_drop(a, t->at[i] / 2);
    }
    return false;
}

/* ---- Repeat ---- */

/* Whether it is better to recompute `u` before `slot` than to keep it from its touch at index `at`
 * - 1. */
static bool better_again(struct annealer *a, uint32_t u, uint32_t at, uint32_t slot)
{
    struct ul_schedule *s = &a->schedule;
    if (!may_repeat(a, u) || a->chain_left == 0)
        return false;
    uint32_t after = s->touches[u].at[at - 1] / 2 + 1;
    int64_t max = ul_schedule_max(s, after, slot);
    bool fits = max + (int64_t)s->graph->size_bytes[u] <= s->budget_bytes;
    return chance(a, fits ? 15 : 90);
}

/* Runs `v` directly before the step in *reader, which may be moved. */
static bool run_repeat(struct annealer *a, uint32_t v, uint32_t *reader)
{
    struct ul_schedule *s = &a->schedule;
    const struct ul_solve_graph *g = s->graph;
    if (a->chain_left == 0)
        return false;
    a->chain_left--;
    for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++) {
        uint32_t u = g->inputs[i];
        uint32_t at = ul_schedule_find(s, u, *reader);
        if (at == 0)
            return false;
        if (!reads_at(&s->touches[u], at) && better_again(a, u, at, *reader) &&
            !run_repeat(a, u, reader))
            return false;
    }
    uint32_t slot = ul_schedule_open(s, reader);
    a->crowded = a->crowded || slot == UL_PLAN_NONE;
    return slot != UL_PLAN_NONE && ul_schedule_insert(s, slot, v);
}

/* A slot above the budget, or UL_PLAN_NONE. */
static uint32_t slot_over(struct annealer *a)
{
    struct ul_schedule *s = &a->schedule;
    uint32_t block_count = s->slot_count >> s->block_shift;
    uint32_t block = below(a, block_count);
    for (uint32_t i = 0; i < block_count; i++, block = (block + 1) % block_count) {
        if (!(s->block_excess[block] > 0))
            continue;
        uint32_t mask = (1u << s->block_shift) - 1;
        uint32_t slot = below(a, mask + 1);
        for (uint32_t j = 0; j <= mask; j++, slot = (slot + 1) & mask) {
            uint32_t here = (block << s->block_shift) + slot;
            if (s->live[here] + s->block_live[block] > s->budget_bytes)
                return here;
        }
    }
    return UL_PLAN_NONE;
}

/* A value that is kept across `slot` without being used there: *at is its next read; or
 * UL_PLAN_NONE. Among several one at random, mostly the cheapest to repeat per byte. */
static uint32_t idle_at(struct annealer *a, uint32_t slot, uint32_t *at)
{
    enum { TRIES = 32 };
    struct ul_schedule *s = &a->schedule;
    const struct ul_solve_graph *g = s->graph;
    uint32_t best = UL_PLAN_NONE;
    uint32_t wanted = 1 + below(a, 8);
    for (uint32_t i = 0; i < TRIES && wanted > 0; i++) {
        uint32_t v = below(a, g->node_count);
        uint32_t next = ul_schedule_find(s, v, slot);
        if (next == 0 || !reads_at(&s->touches[v], next) || s->touches[v].at[next] / 2 == slot ||
            g->size_bytes[v] == 0 || !may_repeat(a, v))
            continue;
        wanted--;
        if (best != UL_PLAN_NONE && (double)g->cost[v] * (double)g->size_bytes[best] >=
                                        (double)g->cost[best] * (double)g->size_bytes[v])
            continue;
        best = v;
        *at = next;
    }
    return best;
}

static uint32_t idle_anywhere(struct annealer *a, uint32_t *at)
{
    struct ul_schedule *s = &a->schedule;
    uint32_t v = below(a, s->graph->node_count);
    const struct ul_touches *t = &s->touches[v];
    *at = t->count > 1 ? 1 + below(a, t->count - 1) : 0;
    return *at > 0 && reads_at(t, *at) && may_repeat(a, v) ? v : UL_PLAN_NONE;
}

static bool change_repeat(struct annealer *a)
{
    struct ul_schedule *s = &a->schedule;
    uint32_t at;
    uint32_t over = s->over_count > 0 && chance(a, 80) ? slot_over(a) : UL_PLAN_NONE;
    uint32_t v = over != UL_PLAN_NONE ? idle_at(a, over, &at) : idle_anywhere(a, &at);
    if (v == UL_PLAN_NONE)
        return false;
    uint32_t reader = s->touches[v].at[at] / 2;
    if (chance(a, 15)) { /* earlier than needed */
        uint32_t after = over != UL_PLAN_NONE ? over : s->touches[v].at[at - 1] / 2;
        reader = after + 1 + below(a, reader - after);
        while (s->node_at[reader] == UL_PLAN_NONE)
            reader++;
    }
    a->chain_left = 40;
    return run_repeat(a, v, &reader);
}

static bool change_swap(struct annealer *a)
{
    if (!change_drop(a))
        return false;
    for (uint32_t tries = 1 + below(a, 3); tries > 0 && a->schedule.over_count > 0; tries--) {
        uint32_t mark = a->schedule.log_count;
        if (!change_repeat(a))
            ul_schedule_undo(&a->schedule, mark);
    }
    return true;
}

/* ---- Move ---- */

/* The slots (*low, *high) in which the run of `v` in `slot` reads and serves the same copies. */
static void move_range(const struct annealer *a, uint32_t v, uint32_t slot, uint32_t *low,
                       uint32_t *high)
{
    const struct ul_schedule *s = &a->schedule;
    const struct ul_solve_graph *g = s->graph;
    const struct ul_touches *own = &s->touches[v];
    uint32_t at = ul_schedule_find(s, v, slot);
    *low = at > 0 ? own->at[at - 1] / 2 : 0;
    *high = at + 1 < own->count ? own->at[at + 1] / 2 : s->slot_count - 1;
    for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++) {
        const struct ul_touches *t = &s->touches[g->inputs[i]];
        uint32_t input = ul_schedule_find(s, g->inputs[i], slot);
        while (input > 0 && t->at[input - 1] % 2 == 1)
            input--;
        uint32_t made = input > 0 ? t->at[input - 1] / 2 : 0;
        *low = made > *low ? made : *low;
    }
}

static uint32_t step_any(struct annealer *a)
{
    struct ul_schedule *s = &a->schedule;
    for (;;) {
        uint32_t slot = below(a, s->slot_count);
        if (s->node_at[slot] != UL_PLAN_NONE)
            return slot;
    }
}

/* Moves the run in `slot` to directly before the step in *target. */
static bool run_move(struct annealer *a, uint32_t slot, uint32_t *target)
{
    struct ul_schedule *s = &a->schedule;
    uint32_t v = s->node_at[slot];
    uint32_t order = ul_schedule_find(s, v, slot);
    bool earlier = *target <= slot;
    uint32_t place = ul_schedule_open(s, target);
    a->crowded = a->crowded || place == UL_PLAN_NONE;
    if (place == UL_PLAN_NONE || !ul_schedule_insert(s, place, v))
        return false;
    uint32_t old = s->touches[v].at[order + (earlier ? 1 : 0)];
    UL_ASSERT(old % 2 == 0);
    return ul_schedule_remove(s, old / 2);
}

static bool change_move(struct annealer *a)
{
    struct ul_schedule *s = &a->schedule;
    uint32_t slot = step_any(a);
    uint32_t v = s->node_at[slot];
    uint32_t low, high;
    move_range(a, v, slot, &low, &high);
    if (high <= low + 2)
        return false;
    uint32_t target = low + 1 + below(a, high - low);
    if (chance(a, 50)) { /* near */
        uint32_t reach = 1 + s->slot_count / s->step_count * 4;
        uint32_t from = slot > low + reach ? slot - reach : low + 1;
        uint32_t to = slot + reach < high ? slot + reach : high;
        target = from + below(a, to - from + 1);
    }
    while (target < s->slot_count && s->node_at[target] == UL_PLAN_NONE)
        target++;
    if (target == s->slot_count || target > high || target == slot)
        return false;
    return run_move(a, slot, &target);
}

/* Removes a value from a slot above the budget: makes it after the slot, or lets its last reader
 * run before. */
static bool change_clear(struct annealer *a)
{
    struct ul_schedule *s = &a->schedule;
    uint32_t at;
    uint32_t over = s->over_count > 0 ? slot_over(a) : UL_PLAN_NONE;
    uint32_t v = over != UL_PLAN_NONE ? idle_at(a, over, &at) : UL_PLAN_NONE;
    if (v == UL_PLAN_NONE)
        return false;
    const struct ul_touches *t = &s->touches[v];
    bool made = t->at[at - 1] % 2 == 0;
    bool last = !reads_at(t, at + 1);
    uint32_t low, high, slot;
    if (made && (!last || chance(a, 50))) {
        slot = t->at[at - 1] / 2;
        low = over + 1;
        high = t->at[at] / 2;
    } else if (last) {
        slot = t->at[at] / 2;
        move_range(a, s->node_at[slot], slot, &low, &high);
        low++;
        high = over;
    } else {
        return false;
    }
    if (high < low)
        return false;
    uint32_t target = low + below(a, high - low + 1);
    while (target < s->slot_count && s->node_at[target] == UL_PLAN_NONE)
        target++;
    return target < s->slot_count && target != slot && target <= high && run_move(a, slot, &target);
}

/* ---- Annealing ---- */

static double energy_of(const struct annealer *a)
{
    double cost = (double)a->schedule.cost - (double)a->base_cost;
    return cost + (a->schedule.over_count > 0 ? a->penalty * a->schedule.excess : 0.0);
}

/* Offering a long sequence costs as much as many changes, so not every small gain is offered. */
static void best_keep(struct annealer *a, bool at_once)
{
    enum { SHORT = 2000 };
    struct ul_schedule *s = &a->schedule;
    if (s->over_count > 0 || s->cost >= a->remat->cost ||
        (!at_once && s->step_count > SHORT && s->work < a->offer_due &&
         a->remat->cost != UINT64_MAX))
        return;
    uint32_t count = ul_schedule_store(s, s->spare);
    ul_remat_offer(a->remat, s->spare, count, "annealed sequence");
    a->offer_due = s->work + 1000 * (uint64_t)count;
}

static void change_try(struct annealer *a)
{
    struct ul_schedule *s = &a->schedule;
    double limit = energy_of(a) - a->temperature * log(ul_seed_unit(a->random));
    uint32_t kind = below(a, 100);
    bool changed;
    if (kind < 5)
        changed = change_drop(a);
    else if (kind < 15)
        changed = change_repeat(a);
    else if (kind < 45)
        changed = change_swap(a);
    else if (kind < 60)
        changed = change_clear(a);
    else
        changed = change_move(a);
    if (!changed || energy_of(a) > limit) {
        ul_schedule_undo(s, 0);
        return;
    }
    s->log_count = 0;
    best_keep(a, false);
}

static void spread_again(struct annealer *a)
{
    struct ul_schedule *s = &a->schedule;
    uint32_t count = ul_schedule_store(s, s->spare);
    ul_schedule_load(s, s->spare, count);
    a->crowded = false;
}

/* The penalty follows the fraction of changes that left an excess: at first that of the heat, so
 * that the search crosses infeasible sequences; at the end less than half. */
static void penalty_adapt(struct annealer *a, uint32_t over, uint32_t of, double progress)
{
    static const double last = 0.4;
    double wanted = a->heat.over_share + (last - a->heat.over_share) * progress;
    double share = (double)over / of;
    if (share > wanted + 0.25 * (1.0 - wanted))
        a->penalty *= 1.05;
    else if (share < wanted - 0.15)
        a->penalty /= 1.05;
}

static void anneal_once(struct annealer *a, double hot, double cold, uint64_t work)
{
    enum { BATCH = 100 };
    struct ul_schedule *s = &a->schedule;
    uint64_t from = a->remat->effort.work;
    uint32_t batches = 0;
    while (a->remat->effort.work - from < work && !ul_remat_exhausted(a->remat)) {
        double progress = (double)(a->remat->effort.work - from) / (double)work;
        a->temperature = hot * pow(cold / hot, progress);
        uint64_t before = s->work;
        uint32_t over = 0;
        for (uint32_t i = 0; i < BATCH && s->work - before <= work / 16; i++) {
            change_try(a);
            over += s->over_count > 0;
        }
        penalty_adapt(a, over, BATCH, progress);
        if (a->crowded || ++batches % 100 == 0)
            spread_again(a);
        a->remat->effort.work += s->work - before + BATCH * 50;
    }
    for (uint32_t i = 0; i < BATCH * BATCH && s->over_count > 0; i++)
        change_try(a);
    best_keep(a, true);
}

void ul_remat_anneal_sequence(struct ul_remat *remat, const uint32_t *sequence, uint32_t count,
                              struct ul_heat heat, uint64_t work, uint64_t *random)
{
    UL_ASSERT(count >= remat->graph->node_count);
    const struct ul_solve_graph *g = remat->graph;
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct annealer a = {.remat = remat, .random = random, .heat = heat};
    a.schedule = (struct ul_schedule){
        .graph = g, .arena = &scratch, .budget_bytes = (int64_t)remat->budget_bytes};
    double bytes = 1;
    for (uint32_t v = 0; v < g->node_count; v++) {
        a.base_cost += g->cost[v];
        bytes += (double)g->size_bytes[v];
    }
    ul_schedule_init(&a.schedule, count + g->node_count + 64);
    ul_schedule_load(&a.schedule, sequence, count);
    double scale = 1 + (double)a.base_cost / g->node_count;
    if (count > g->node_count && a.schedule.cost > a.base_cost)
        scale = (double)(a.schedule.cost - a.base_cost) / (count - g->node_count);
    a.penalty = scale / (bytes / g->node_count) * 0.1;
    anneal_once(&a, scale * heat.repeats, scale * heat.repeats * 0.01, work);
    ul_arena_done(&scratch);
}
