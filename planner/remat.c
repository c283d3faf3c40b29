/* Recomputation under a budget: a weighted greedy, annealed.
 *
 * Problem: given an order of all nodes and a budget for the live sum, repeat nodes so that the
 * budget holds, at the least cost.
 * Method: walk the order. What a node needs and what was dropped is run again first, from what is
 * still there. When the budget is full, the value goes whose cost / (bytes x distance to its next
 * use) is least, by three exponents; those dropped needlessly, once enough is free, stay. Each
 * value's cost carries a weight; simulated annealing on the weights then finds the checkpoint set
 * that no fixed formula hits. Every sequence is judged by replaying it.
 * Source of the score: Kirisame et al., "Dynamic Tensor Rematerialization" (ICLR 2021), with the
 * known next use in place of staleness.
 * Left undone: the order of the first runs stays as given. */
#include "planner/solve_internal.h"

#include <math.h>
#include <string.h>
#include <time.h>

struct walk {
    struct ul_remat *remat;
    const struct ul_solve_graph *graph;
    const uint32_t *order;
    uint32_t *use_first; /* per node: positions of its users in the order, ascending */
    uint32_t *uses;
    uint32_t *next_use; /* per node: index into uses */
    uint8_t *resident;
    uint32_t *locks;
    uint32_t *resident_list, *resident_at;
    uint32_t resident_count;
    uint64_t live_bytes;
    uint32_t now;
    double *weight; /* logarithms, added to the score */
    double *log_cost, *log_bytes;
    double cost_power, bytes_power, distance_power;
    uint32_t *sequence;
    uint32_t count, capacity;
    uint64_t cost;
    uint64_t cost_limit; /* dearer walks are given up */
    uint32_t *victims;
    uint32_t depth;
};

static uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/* In (0, 1). */
static double random_unit(uint64_t *state)
{
    return ((double)(random_next(state) >> 11) + 0.5) / 9007199254740992.0;
}

static void resident_add(struct walk *w, uint32_t v)
{
    w->resident[v] = 1;
    w->resident_at[v] = w->resident_count;
    w->resident_list[w->resident_count++] = v;
    w->live_bytes += w->graph->size_bytes[v];
}

static void resident_drop(struct walk *w, uint32_t v)
{
    uint32_t last = w->resident_list[--w->resident_count];
    w->resident_list[w->resident_at[v]] = last;
    w->resident_at[last] = w->resident_at[v];
    w->resident[v] = 0;
    w->live_bytes -= w->graph->size_bytes[v];
}

/* The position of the next first run that reads `v`, or UL_PLAN_NONE. */
static uint32_t next_use_of(struct walk *w, uint32_t v)
{
    while (w->next_use[v] < w->use_first[v + 1] && w->uses[w->next_use[v]] < w->now)
        w->next_use[v]++;
    return w->next_use[v] < w->use_first[v + 1] ? w->uses[w->next_use[v]] : UL_PLAN_NONE;
}

static double score_of(struct walk *w, uint32_t v)
{
    uint32_t next = next_use_of(w, v);
    double distance = next == UL_PLAN_NONE ? (double)w->graph->node_count : (double)(next - w->now);
    return w->weight[v] + w->cost_power * w->log_cost[v] - w->bytes_power * w->log_bytes[v] -
           w->distance_power * log(1.0 + distance);
}

/* Drops what scores least until `need_bytes` more fit. What has no next use and no lock is gone
 * already, so that every victim costs a recomputation. */
static bool room_make(struct walk *w, uint64_t need_bytes)
{
    uint64_t budget = w->remat->budget_bytes;
    if (w->live_bytes + need_bytes <= budget)
        return true;
    uint32_t victim_count = 0;
    while (w->live_bytes + need_bytes > budget) {
        uint32_t best = UL_PLAN_NONE;
        double least = 0;
        for (uint32_t i = 0; i < w->resident_count; i++) {
            uint32_t v = w->resident_list[i];
            if (w->locks[v] > 0 || w->graph->size_bytes[v] == 0)
                continue;
            double score = score_of(w, v);
            if (best == UL_PLAN_NONE || score < least || (!(score > least) && v < best)) {
                best = v;
                least = score;
            }
        }
        w->remat->work += w->resident_count;
        if (best == UL_PLAN_NONE)
            return false;
        resident_drop(w, best);
        w->victims[victim_count++] = best;
    }
    for (uint32_t i = victim_count; i-- > 0;) {
        uint32_t v = w->victims[i];
        if (w->live_bytes + w->graph->size_bytes[v] + need_bytes <= budget)
            resident_add(w, v);
    }
    return true;
}

static void dead_drop(struct walk *w, uint32_t v)
{
    if (w->resident[v] && w->locks[v] == 0 && next_use_of(w, v) == UL_PLAN_NONE)
        resident_drop(w, v);
}

/* Runs `v`, and before it what it needs; its inputs are locked meanwhile. */
static bool node_run(struct walk *w, uint32_t v)
{
    const struct ul_solve_graph *g = w->graph;
    uint32_t first = g->input_first[v], end = g->input_first[v + 1];
    if (w->count == w->capacity || w->cost + g->cost[v] > w->cost_limit || w->depth > 2000)
        return false;
    w->depth++;
    for (uint32_t i = first; i < end; i++)
        w->locks[g->inputs[i]]++;
    for (uint32_t i = first; i < end; i++) {
        if (!w->resident[g->inputs[i]] && !node_run(w, g->inputs[i]))
            return false;
    }
    w->depth--;
    if (!room_make(w, g->size_bytes[v]) || w->count == w->capacity)
        return false;
    w->sequence[w->count++] = v;
    w->cost += g->cost[v];
    w->remat->work += 8;
    resident_add(w, v);
    for (uint32_t i = first; i < end; i++)
        w->locks[g->inputs[i]]--;
    return w->cost <= w->cost_limit;
}

static void walk_reset(struct walk *w)
{
    uint32_t n = w->graph->node_count;
    memcpy(w->next_use, w->use_first, n * sizeof *w->next_use);
    memset(w->resident, 0, n);
    memset(w->locks, 0, n * sizeof *w->locks);
    w->resident_count = 0;
    w->live_bytes = 0;
    w->count = 0;
    w->cost = 0;
    w->depth = 0;
}

static bool walk_run(struct walk *w)
{
    walk_reset(w);
    const struct ul_solve_graph *g = w->graph;
    for (uint32_t p = 0; p < g->node_count; p++) {
        uint32_t v = w->order[p];
        uint32_t before = w->count;
        w->now = p;
        if (!node_run(w, v))
            return false;
        w->now = p + 1;
        for (uint32_t s = before; s < w->count; s++) {
            uint32_t ran = w->sequence[s];
            dead_drop(w, ran);
            for (uint32_t i = g->input_first[ran]; i < g->input_first[ran + 1]; i++)
                dead_drop(w, g->inputs[i]);
        }
    }
    return true;
}

/* Leaves out every run whose value can as well be kept from before, the dearest first. */
static void repeats_prune(struct walk *w)
{
    const struct ul_solve_graph *g = w->graph;
    for (uint32_t tries = 0; tries < 64; tries++) {
        uint32_t best = UL_PLAN_NONE;
        memset(w->resident, 0, g->node_count);
        for (uint32_t p = 0; p < w->count; p++) {
            uint32_t v = w->sequence[p];
            bool again = w->resident[v] != 0;
            w->resident[v] = 1;
            if (!again || (best != UL_PLAN_NONE && g->cost[v] <= g->cost[w->sequence[best]]))
                continue;
            uint64_t peak, cost;
            memmove(w->sequence + p, w->sequence + p + 1, (w->count - p - 1) * sizeof(uint32_t));
            bool fits = ul_solve_replay(g, w->sequence, w->count - 1, &peak, &cost) &&
                        peak <= w->remat->budget_bytes;
            memmove(w->sequence + p + 1, w->sequence + p, (w->count - p - 1) * sizeof(uint32_t));
            w->sequence[p] = v;
            if (fits)
                best = p;
        }
        if (best == UL_PLAN_NONE)
            return;
        w->count--;
        memmove(w->sequence + best, w->sequence + best + 1, (w->count - best) * sizeof(uint32_t));
    }
}

/* Keeps the walk's sequence if it is the cheapest within the budget. */
static void walk_offer(struct walk *w)
{
    struct ul_remat *remat = w->remat;
    uint64_t peak, cost;
    repeats_prune(w);
    bool valid = ul_solve_replay(w->graph, w->sequence, w->count, &peak, &cost);
    UL_ASSERT(valid && peak <= remat->budget_bytes);
    if (peak < remat->smallest_peak_bytes)
        remat->smallest_peak_bytes = peak;
    if (cost >= remat->cost)
        return;
    remat->cost = cost;
    remat->count = w->count;
    memcpy(remat->sequence, w->sequence, w->count * sizeof *w->sequence);
}

static bool exhausted(struct ul_remat *remat)
{
    if (remat->work >= remat->work_limit)
        return true;
    if (remat->deadline_seconds > 0) {
        struct timespec now;
        timespec_get(&now, TIME_UTC);
        if ((double)now.tv_sec + (double)now.tv_nsec * 1e-9 >= remat->deadline_seconds)
            remat->stopped_by_time = true;
    }
    return remat->stopped_by_time;
}

/* The exponents that did best, and its cost. */
struct variant {
    double powers[3];
    uint64_t cost;
};

static void powers_set(struct walk *w, const double *powers)
{
    w->cost_power = powers[0];
    w->bytes_power = powers[1];
    w->distance_power = powers[2];
}

static struct variant variants_try(struct walk *w)
{
    static const double steps[] = {0.0, 0.5, 1.0, 2.0};
    struct variant best = {.powers = {1, 1, 1}, .cost = UINT64_MAX};
    memset(w->weight, 0, w->graph->node_count * sizeof *w->weight);
    w->cost_limit = UINT64_MAX;
    for (uint32_t i = 0; i < 64 && !exhausted(w->remat); i++) {
        const double powers[3] = {steps[i % 4], steps[i / 4 % 4], steps[i / 16]};
        powers_set(w, powers);
        if (!walk_run(w))
            continue;
        uint64_t cost = w->cost;
        if (cost < best.cost) {
            best.cost = cost;
            memcpy(best.powers, powers, sizeof best.powers);
        }
        if (cost < w->remat->cost)
            walk_offer(w);
    }
    return best;
}

/* The walk's cost may exceed the current one by a share of the excess over the base cost; the
 * share shrinks to nothing. */
static uint64_t limit_of(uint64_t current, uint64_t base, double progress, uint64_t *random)
{
    if (current == UINT64_MAX)
        return UINT64_MAX;
    double slack = -log(random_unit(random)) * 0.04 * (1.0 - progress) * (1.0 - progress);
    return current + (uint64_t)(slack * (double)(current - base));
}

/* One annealing from the given exponents: a few weights move, the walk judges. */
static void anneal(struct walk *w, const struct variant *start, uint64_t work, uint64_t *random)
{
    struct ul_remat *remat = w->remat;
    uint32_t n = w->graph->node_count;
    uint64_t from = remat->work;
    uint64_t current = start->cost;
    uint64_t base = 0;
    for (uint32_t v = 0; v < n; v++)
        base += w->graph->cost[v];
    memset(w->weight, 0, n * sizeof *w->weight);
    powers_set(w, start->powers);
    while (remat->work - from < work && !exhausted(remat)) {
        double progress = (double)(remat->work - from) / (double)work;
        uint32_t moved[4];
        double old[4];
        uint32_t moves = 1 + (uint32_t)(random_next(random) % 4);
        for (uint32_t i = 0; i < moves; i++) {
            moved[i] = (uint32_t)(random_next(random) % n);
            old[i] = w->weight[moved[i]];
            w->weight[moved[i]] +=
                3.0 * log(random_unit(random) / random_unit(random)) * (1.0 - 0.7 * progress);
        }
        w->cost_limit = limit_of(current, base, progress, random);
        bool taken = walk_run(w);
        remat->work += 4 * (uint64_t)n;
        if (taken) {
            current = w->cost;
            if (w->cost < remat->cost)
                walk_offer(w);
            continue;
        }
        for (uint32_t i = moves; i-- > 0;)
            w->weight[moved[i]] = old[i];
    }
}

static void uses_make(struct walk *w, struct ul_arena *scratch)
{
    const struct ul_solve_graph *g = w->graph;
    w->use_first = UL_NEW_ARRAY(scratch, uint32_t, (uint64_t)g->node_count + 1);
    w->uses = UL_NEW_ARRAY(scratch, uint32_t, g->input_first[g->node_count]);
    memcpy(w->use_first, g->user_first, ((size_t)g->node_count + 1) * sizeof *w->use_first);
    uint32_t *next = UL_NEW_ARRAY(scratch, uint32_t, g->node_count);
    memcpy(next, w->use_first, g->node_count * sizeof *next);
    for (uint32_t p = 0; p < g->node_count; p++) {
        uint32_t v = w->order[p];
        for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++)
            w->uses[next[g->inputs[i]]++] = p;
    }
}

static void walk_init(struct walk *w, struct ul_arena *scratch)
{
    const struct ul_solve_graph *g = w->graph;
    uint32_t n = g->node_count;
    uses_make(w, scratch);
    w->next_use = UL_NEW_ARRAY(scratch, uint32_t, n);
    w->resident = ul_arena_alloc(scratch, n);
    w->locks = UL_NEW_ARRAY(scratch, uint32_t, n);
    w->resident_list = UL_NEW_ARRAY(scratch, uint32_t, n);
    w->resident_at = UL_NEW_ARRAY(scratch, uint32_t, n);
    w->victims = UL_NEW_ARRAY(scratch, uint32_t, n);
    w->weight = UL_NEW_ARRAY(scratch, double, n);
    w->log_cost = UL_NEW_ARRAY(scratch, double, n);
    w->log_bytes = UL_NEW_ARRAY(scratch, double, n);
    w->capacity = w->remat->capacity;
    w->sequence = UL_NEW_ARRAY(scratch, uint32_t, w->capacity);
    for (uint32_t v = 0; v < n; v++) {
        w->log_cost[v] = log(1.0 + (double)g->cost[v]);
        w->log_bytes[v] = log(1.0 + (double)g->size_bytes[v]);
    }
}

void ul_remat_search(struct ul_remat *remat, const uint32_t *const *orders, uint32_t order_count)
{
    enum { ROUNDS = 4 };
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct walk *walks = UL_NEW_ARRAY(&scratch, struct walk, order_count);
    struct variant *best = UL_NEW_ARRAY(&scratch, struct variant, order_count);
    uint64_t random = remat->seed;
    for (uint32_t i = 0; i < order_count; i++) {
        walks[i] = (struct walk){.remat = remat, .graph = remat->graph, .order = orders[i]};
        walk_init(&walks[i], &scratch);
        best[i] = variants_try(&walks[i]);
    }
    /* Short annealings first, on all orders; then longer ones. */
    uint64_t share = (remat->work_limit - remat->work) / order_count / ((1 << ROUNDS) - 1) + 1;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < order_count && !exhausted(remat); i++)
            anneal(&walks[i], &best[i], share << round, &random);
    }
    ul_arena_done(&scratch);
}
