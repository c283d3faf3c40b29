/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds from below the cost of every schedule of a graph within a budget, where values may wait in
 * another space.
 *
 * Problem: a value that is gone comes back by a run or by a copy; copies run at the same time as
 * runs, which may hide their cost. Method: at the first run of a step, values that were made before
 * it and are read after it have to be gone as far as there is no room for them. They are saved
 * before the step begins, and loaded or recomputed after it:
 *
 *     stream 0   runs before, C  | step | runs after, D, and again, R
 *     copies     saves, S  -->   |      |   -->  loads, L
 *
 * The time before the step is at least that of the runs, and at least that of the saves, counted
 * from when the first saved value can have been made; so it is at least (1 - w) C + w (r + S), for
 * any weight w from 0 to 1. The same holds for the time after the step, until the last loaded value
 * is read. Such weights give everything that may be gone a price, and the least sum of those that
 * must go is a covering knapsack, bounded by its fractions. Left undone: several steps at once; the
 * room of the other space; persistent values. */
#include "planner/model/problem.h"
#include "planner/remat/remat.h"
#include "planner/remat/remat_exact.h"

#include <stdlib.h>

enum { WEIGHTS = 6 };
static const double weights[WEIGHTS] = {0, 1.0 / 16, 1.0 / 4, 1.0 / 2, 3.0 / 4, 1};

/* A value that may be gone while a step runs: the price of a byte, by a copy or the cheaper way, or
 * by a run only. */
struct gone {
    double price, run_price;
    uint64_t size_bytes;
};

struct bounder {
    const struct ul_bound_transfers *job;
    const struct exact_problem *problem;
    uint64_t *first_cost; /* by bit: of all that comes before its first run ends */
    uint64_t *last_cost;  /* by bit: of its first run and all that comes after it */
    struct gone *gone;
    uint32_t gone_count;
    uint64_t bound;
};

static uint64_t cost_of(const struct bounder *b, uint32_t bit)
{
    return b->job->graph->cost[b->problem->node[bit]];
}

static uint64_t set_cost(const struct bounder *b, const uint64_t *set)
{
    uint64_t cost = 0;
    for (uint32_t bit = 0; bit < b->problem->count; bit++)
        cost += ul_bits_have(set, bit) ? cost_of(b, bit) : 0;
    return cost;
}

/* For a value by its bytes, without bytes that alignment may have added. */
static uint64_t copy_cost(const struct bounder *b, uint32_t bit)
{
    uint64_t bytes = b->problem->size[bit], padding = b->job->alignment_bytes - 1;
    bytes = bytes > padding ? bytes - padding : 0;
    return ul_resource_cost(b->job->engine, bytes);
}

/* ---- One step ---- */

/* Whether the value may have to be gone at the first run of the step. */
static bool may_be_gone(const struct exact_problem *p, uint32_t step, uint32_t value)
{
    return p->size[value] > 0 && ul_bits_have(p->beyond + (size_t)step * p->words, value) &&
           ul_bits_have(p->before + (size_t)step * p->words, value);
}

/* By how much values that may be gone exceed the step's room. */
static uint64_t excess_of(const struct exact_problem *p, uint32_t step)
{
    uint64_t sum = 0;
    for (uint32_t bit = 0; bit < p->count; bit++)
        sum += may_be_gone(p, step, bit) ? p->size[bit] : 0;
    return sum > p->room[step] ? sum - p->room[step] : 0;
}

/* When the first of the values that may be gone is made, and how long before the end the last is
 * read, counting only runs that must happen. */
static void ends_find(const struct bounder *b, uint32_t step, uint64_t *made, uint64_t *read)
{
    const struct exact_problem *p = b->problem;
    *made = *read = UINT64_MAX;
    for (uint32_t bit = 0; bit < p->count; bit++) {
        if (!may_be_gone(p, step, bit))
            continue;
        *made = b->first_cost[bit] < *made ? b->first_cost[bit] : *made;
        for (uint32_t user = 0; user < p->count; user++) {
            bool reads = ul_bits_have(p->users + (size_t)bit * p->words, user) &&
                         ul_bits_have(p->after + (size_t)step * p->words, user);
            *read = reads && b->last_cost[user] < *read ? b->last_cost[user] : *read;
        }
    }
}

static void gone_make(struct bounder *b, uint32_t step, double before, double behind)
{
    const struct exact_problem *p = b->problem;
    b->gone_count = 0;
    for (uint32_t bit = 0; bit < p->count; bit++) {
        if (!may_be_gone(p, step, bit))
            continue;
        double copy = (double)copy_cost(b, bit) * (before + behind);
        double run = p->repeat[bit] < EXACT_NEVER ? (double)p->repeat[bit] * (1 - behind)
                                                  : (double)EXACT_NEVER;
        double size = (double)p->size[bit];
        b->gone[b->gone_count++] = (struct gone){.price = (copy < run ? copy : run) / size,
                                                 .run_price = run / size,
                                                 .size_bytes = p->size[bit]};
    }
}

static int price_compare(const void *a, const void *b)
{
    const struct gone *x = a;
    const struct gone *y = b;
    return (x->price > y->price) - (x->price < y->price);
}

static int run_price_compare(const void *a, const void *b)
{
    const struct gone *x = a;
    const struct gone *y = b;
    return (x->run_price > y->run_price) - (x->run_price < y->run_price);
}

/* The least cost of removing that many bytes, with fractions. */
static double cover(struct bounder *b, uint64_t bytes, bool only_runs)
{
    double cost = 0;
    qsort(b->gone, b->gone_count, sizeof *b->gone, only_runs ? run_price_compare : price_compare);
    for (uint32_t i = 0; i < b->gone_count && bytes > 0; i++) {
        const struct gone *gone = &b->gone[i];
        uint64_t part = gone->size_bytes < bytes ? gone->size_bytes : bytes;
        cost += (only_runs ? gone->run_price : gone->price) * (double)part;
        bytes -= part;
    }
    return cost;
}

/* The least cost of all schedules by these weights; runs that need neither come before nor after
 * the step may be on the cheaper side. */
static double weighed(struct bounder *b, uint32_t step, uint64_t excess, double before,
                      double behind)
{
    const struct exact_problem *p = b->problem;
    uint64_t made, read;
    double ancestors = (double)set_cost(b, p->before + (size_t)step * p->words);
    double descendants = (double)set_cost(b, p->after + (size_t)step * p->words);
    double own = (double)cost_of(b, step);
    double others = (double)ul_solve_base_cost(b->job->graph) - ancestors - descendants - own;
    double runs = ancestors * (1 - before) + own + descendants * (1 - behind) +
                  others * (1 - (before > behind ? before : behind));
    ends_find(b, step, &made, &read);
    gone_make(b, step, before, behind);
    double moved = cover(b, excess, false) + (double)made * before + (double)read * behind;
    double again = cover(b, excess, true);
    return runs + (moved < again ? moved : again);
}

static void step_try(struct bounder *b, uint32_t step)
{
    uint64_t excess = excess_of(b->problem, step);
    for (uint32_t i = 0; i < WEIGHTS * WEIGHTS && excess > 0; i++) {
        double cost = weighed(b, step, excess, weights[i / WEIGHTS], weights[i % WEIGHTS]);
        cost = cost * (1 - 1e-12) - 1e-6; /* errs only downward */
        double known = (double)b->job->known_cost;
        uint64_t bound = cost >= known ? b->job->known_cost : cost > 0 ? (uint64_t)cost : 0;
        bound += (double)bound < cost && cost < known;
        b->bound = bound > b->bound ? bound : b->bound;
    }
}

/* ---- Steps ---- */

static void costs_make(struct bounder *b, struct ul_arena *arena)
{
    const struct exact_problem *p = b->problem;
    b->first_cost = UL_NEW_ARRAY(arena, uint64_t, p->count);
    b->last_cost = UL_NEW_ARRAY(arena, uint64_t, p->count);
    for (uint32_t bit = 0; bit < p->count; bit++) {
        b->first_cost[bit] = set_cost(b, p->before + (size_t)bit * p->words) + cost_of(b, bit);
        b->last_cost[bit] = set_cost(b, p->after + (size_t)bit * p->words) + cost_of(b, bit);
    }
}

/* Among the steps that may lack room for all that is read after them, those that lack most. */
static uint32_t steps_choose(const struct exact_problem *p, uint32_t most, uint32_t *steps)
{
    uint64_t excess[64];
    uint32_t count = 0;
    UL_ASSERT(most < sizeof excess / sizeof *excess);
    for (uint32_t i = 0; i < p->tight_count; i++) {
        uint64_t bytes = excess_of(p, p->tight[i]);
        uint32_t at = count;
        for (; at > 0 && excess[at - 1] < bytes; at--) {
            steps[at] = steps[at - 1];
            excess[at] = excess[at - 1];
        }
        steps[at] = p->tight[i];
        excess[at] = bytes;
        count += count < most;
    }
    return count;
}

uint64_t ul_bound_transfers(const struct ul_bound_transfers *job, const char **method)
{
    enum { STEPS = 16 };
    struct ul_arena scratch;
    struct exact_problem problem;
    uint32_t steps[STEPS + 1];
    uint64_t base_cost = ul_solve_base_cost(job->graph);
    struct bounder b = {.job = job, .problem = &problem, .bound = base_cost};
    UL_ASSERT(job->alignment_bytes > 0 && base_cost <= job->known_cost);
    ul_arena_init(&scratch);
    if (exact_problem_make(&scratch, job->graph, job->budget_bytes, &problem) &&
        !problem.impossible) {
        b.gone = UL_NEW_ARRAY(&scratch, struct gone, problem.count);
        costs_make(&b, &scratch);
        uint32_t count = steps_choose(&problem, STEPS, steps);
        for (uint32_t i = 0; i < count; i++)
            step_try(&b, steps[i]);
    }
    *method = b.bound > base_cost ? "what the neediest steps leave no room for, copied or run again"
                                  : NULL;
    ul_arena_done(&scratch);
    return b.bound;
}
