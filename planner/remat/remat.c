/* SPDX-License-Identifier: Apache-2.0 */
/* Recomputation under a budget: runs the methods one after the other.
 *
 * Problem: given orders of all nodes and a budget for the live sum, repeat nodes so that the budget
 * holds, at minimum cost. Method: walks in many alternatives (remat_walk.c), then walks with
 * annealed weights (remat_anneal.c) or annealing of complete sequences (remat_search.c). Every
 * result is pruned (remat_prune.c) and replayed before it is kept. When nothing fits, the budget is
 * raised until something does. Searches stop by counted work. */
#include "planner/remat/remat_internal.h"

#include <string.h>

/* ---- Alternatives ---- */

/* The best mode for one order. */
struct alternative {
    struct ul_walk_mode mode;
    uint64_t cost;
};

/* Measured on training graphs: the first is the best and the most robust alone, each further one
 * adds most to those before it. Targets below 1 make room ahead of need. */
static const struct ul_walk_mode modes[] = {
    {1.0, 1.0, 0.5, 0.90, 1.00}, {0.0, 0.0, 0.0, 1.00, 1.00}, {0.5, 0.0, 0.0, 0.90, 0.97},
    {0.5, 1.0, 0.0, 0.80, 1.00}, {0.0, 0.0, 0.0, 0.80, 0.97}, {1.0, 0.5, 0.0, 0.97, 1.00},
    {1.0, 1.0, 1.0, 1.00, 1.00}, {1.0, 1.0, 0.5, 0.80, 1.00}, {0.5, 0.5, 0.0, 1.00, 1.00},
    {1.0, 0.5, 0.5, 0.97, 0.90}, {1.0, 2.0, 0.5, 0.80, 1.00}, {1.0, 1.0, 0.5, 0.90, 0.97},
    {2.0, 2.0, 0.5, 0.97, 1.00}, {0.5, 0.5, 0.5, 1.00, 1.00}, {1.0, 1.0, 0.5, 0.90, 0.90},
    {0.5, 0.0, 0.5, 1.00, 1.00}, {1.0, 1.0, 0.5, 0.80, 0.80}, {1.0, 0.5, 0.5, 0.97, 1.00},
    {0.0, 1.0, 2.0, 1.00, 1.00}, {2.0, 1.0, 0.0, 1.00, 1.00},
};
enum { MODES = sizeof modes / sizeof *modes };

static struct alternative alternatives_try(struct ul_remat *remat, struct ul_walk *w)
{
    struct alternative best = {.mode = modes[0], .cost = UINT64_MAX};
    memset(w->weight, 0, w->graph->node_count * sizeof *w->weight);
    w->cost_limit = UINT64_MAX;
    for (uint32_t i = 0; i < MODES && !ul_remat_exhausted(remat); i++) {
        w->mode = modes[i];
        uint64_t before = w->work;
        bool fits = ul_walk_run(w);
        remat->effort.work += w->work - before;
        if (!fits)
            continue;
        if (w->cost < best.cost)
            best = (struct alternative){w->mode, w->cost};
        if (w->cost < remat->cost)
            ul_remat_offer(remat, w->sequence, w->count, "walk");
    }
    return best;
}

/* ---- A budget that works, where the given one does not ---- */

struct finder {
    struct ul_remat *remat;
    struct ul_walk *walks;
    uint32_t walk_count;
    uint32_t *sequence; /* with the smallest peak known */
    uint32_t count;
};

static void smallest_offer(struct finder *f, uint32_t *sequence, uint32_t count)
{
    struct ul_remat *remat = f->remat;
    uint64_t peak, cost;
    bool valid = ul_solve_replay(remat->graph, sequence, count, &peak, &cost);
    UL_ASSERT(valid && peak < remat->smallest_peak_bytes);
    remat->smallest_peak_bytes = peak;
    f->count = count;
    memcpy(f->sequence, sequence, count * sizeof *sequence);
    if (peak <= remat->budget_bytes)
        ul_remat_offer(remat, sequence, count, "walk");
}

static bool walks_probe(struct finder *f, uint64_t budget_bytes)
{
    enum { TRIES = 4, LARGE = 20000 };
    uint32_t tries = f->remat->graph->node_count < LARGE ? TRIES : 1;
    for (uint32_t i = 0; i < f->walk_count * tries; i++) {
        struct ul_walk *w = &f->walks[i % f->walk_count];
        memset(w->weight, 0, w->graph->node_count * sizeof *w->weight);
        w->mode = modes[i / f->walk_count];
        w->budget_bytes = budget_bytes;
        w->cost_limit = UINT64_MAX;
        if (!ul_walk_run(w))
            continue;
        smallest_offer(f, w->sequence, w->count);
        return true;
    }
    return false;
}

static bool sequences_probe(struct finder *f, uint64_t budget_bytes, uint64_t *random)
{
    static const uint64_t max_work = 100000000;
    struct ul_remat probe = *f->remat;
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    probe.budget_bytes = budget_bytes;
    probe.cost = UINT64_MAX;
    probe.first_ends = true;
    probe.sequence = UL_NEW_ARRAY(&scratch, uint32_t, probe.capacity);
    probe.effort.work = 0;
    probe.effort.work_limit =
        probe.effort.work_limit / 16 < max_work ? probe.effort.work_limit / 16 : max_work;
    ul_remat_anneal_sequence(&probe, f->sequence, f->count,
                             (struct ul_heat){.repeats = 0.3, .over_share = 0.95},
                             probe.effort.work_limit, random);
    bool found = probe.cost != UINT64_MAX;
    if (found)
        smallest_offer(f, probe.sequence, probe.count);
    f->remat->effort.work += probe.effort.work;
    f->remat->effort.stopped_by_time = probe.effort.stopped_by_time;
    ul_arena_done(&scratch);
    return found;
}

/* Bisects between budgets that fail and budgets that work, first by walks, then by short annealings
 * of the results of walks. Neither is monotone in the budget, so this finds a small budget, not the
 * smallest. */
static void budget_find(struct ul_remat *remat, const uint32_t *order, struct ul_walk *walks,
                        uint32_t walk_count)
{
    enum { STEPS = 9, ANNEALED_STEPS = 5 };
    uint32_t n = remat->graph->node_count;
    uint64_t random = remat->effort.seed;
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct finder f = {.remat = remat, .walks = walks, .walk_count = walk_count, .count = n};
    f.sequence = UL_NEW_ARRAY(&scratch, uint32_t, remat->capacity);
    memcpy(f.sequence, order, n * sizeof *order);
    for (uint32_t phase = 0; phase < 2; phase++) {
        uint64_t low = remat->budget_bytes;
        uint32_t steps = phase == 0 ? STEPS : ANNEALED_STEPS;
        for (uint32_t step = 0; step < steps && low + 1 < remat->smallest_peak_bytes; step++) {
            uint64_t middle = low + (remat->smallest_peak_bytes - low) / 2;
            bool found =
                phase == 0 ? walks_probe(&f, middle) : sequences_probe(&f, middle, &random);
            if (!found)
                low = middle;
        }
    }
    ul_arena_done(&scratch);
}

static void anneal_all(struct ul_remat *remat, struct ul_walk *walks,
                       const struct alternative *best, uint32_t count)
{
    enum { ROUNDS = 4 };
    static const uint64_t max_work = 400000000;
    uint64_t random = remat->effort.seed;
    /* Short annealings first, on all orders; then longer ones. */
    uint64_t left = remat->effort.work < remat->effort.work_limit
                        ? remat->effort.work_limit - remat->effort.work
                        : 0;
    left = left < max_work ? left : max_work;
    uint64_t share = left / count / ((1 << ROUNDS) - 1) + 1;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < count && !ul_remat_exhausted(remat); i++) {
            walks[i].mode = best[i].mode;
            ul_remat_anneal(remat, &walks[i], best[i].cost, share << round, &random);
        }
    }
}

/* One annealing of a complete sequence: in turn from the best one but cold, which keeps most of it;
 * from a bare order; and from the best one; near the edge of the feasible or far beyond it. Where
 * there is no best one yet, from orders. */
static void sequence_anneal(struct ul_remat *remat, const uint32_t *const *orders,
                            uint32_t order_count, uint32_t round, uint64_t work, uint64_t *random)
{
    uint32_t n = remat->graph->node_count;
    const uint32_t *order = orders[order_count - 1 - round / 3 % order_count];
    bool bare = remat->cost == UINT64_MAX || round % 3 == 1;
    struct ul_heat heat = {.repeats = round % 3 == 0 ? 0.1 : 1.0,
                           .over_share = round / 3 % 2 == 0 ? 0.45 : 0.95};
    if (bare)
        heat.repeats = 1.0;
    ul_remat_anneal_sequence(remat, bare ? order : remat->sequence, bare ? n : remat->count, heat,
                             work, random);
}

/* Annealings of complete sequences, ever longer, until the work is used up or most of it has
 * changed nothing. */
static void sequences_anneal(struct ul_remat *remat, const uint32_t *const *orders,
                             uint32_t order_count)
{
    uint64_t start = remat->effort.work;
    uint64_t random = remat->effort.seed + start; /* a second call takes other random numbers */
    uint64_t base = ul_solve_base_cost(remat->graph);
    uint64_t share = 30000000 + 250000 * (uint64_t)remat->graph->node_count;
    uint64_t improved = start; /* the work at which the best was last improved */
    for (uint32_t round = 0; !ul_remat_exhausted(remat) && remat->cost > base; round++) {
        if (remat->effort.work - start > 4 * (improved - start) + 24 * share)
            break;
        uint64_t left = remat->effort.work_limit - remat->effort.work;
        uint64_t work = share << round / 3 < left ? share << round / 3 : left;
        uint64_t cost = remat->cost;
        sequence_anneal(remat, orders, order_count, round, work, &random);
        if (remat->cost < cost)
            improved = remat->effort.work;
    }
}

/* Runs walks in many alternatives, and annealings of their weights, or of complete sequences. */
static void searches_run(struct ul_remat *remat, const struct ul_remat_orders *orders, bool walk,
                         bool sequences)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct ul_walk *walks = UL_NEW_ARRAY(&scratch, struct ul_walk, orders->count);
    struct alternative *best = UL_NEW_ARRAY(&scratch, struct alternative, orders->count);
    for (uint32_t i = 0; i < orders->count; i++) {
        walks[i] = (struct ul_walk){.graph = remat->graph,
                                    .order = orders->orders[i],
                                    .budget_bytes = remat->budget_bytes,
                                    .capacity = remat->capacity};
        ul_walk_init(&walks[i], &scratch);
        if (walk)
            best[i] = alternatives_try(remat, &walks[i]);
    }
    if (sequences)
        sequences_anneal(remat, orders->orders, orders->count);
    else
        anneal_all(remat, walks, best, orders->count);
    if (remat->cost == UINT64_MAX) {
        budget_find(remat, orders->orders[orders->count - 1], walks, orders->count);
        remat->why_not = "it finds nothing within the limit";
    }
    ul_arena_done(&scratch);
}

void ul_remat_search(struct ul_remat *remat, const struct ul_remat_orders *orders)
{
    searches_run(remat, orders, true, true);
}

bool ul_remat_run_greedy(struct ul_remat *remat, const struct ul_remat_orders *orders,
                         enum ul_method_turn turn)
{
    UL_ASSERT(turn == UL_TURN_NONE);
    searches_run(remat, orders, true, false);
    return false;
}

/* Together with other methods it continues from walks. */
bool ul_remat_run_search(struct ul_remat *remat, const struct ul_remat_orders *orders,
                         enum ul_method_turn turn)
{
    searches_run(remat, orders, turn != UL_TURN_NONE, true);
    return false;
}
