/* SPDX-License-Identifier: Apache-2.0 */
/* The cheapest schedule within a budget, over all orders and all recomputations.
 *
 * Problem: run every node at least once, repeat any node anywhere, never hold more than the
 * budget; the cost of the repeats must be minimal.
 * Method: best first (A*) over states: the nodes that have run, and the values that are resident.
 *  - Resident values are dropped only when the next run does not fit, and then a smallest set of
 *    them; every schedule can be written so, since holding more is never worse.
 *  - A value from which no remaining first run descends is dropped at once.
 *  - Among states that have run the same, one that holds more at no more cost dominates.
 *  - A first run that fits and leaves nothing behind is the only successor of its state. So is one
 *    that frees at least as much as it makes, if dropping one of its inputs before (the only reason
 *    to run it later) would cost more than the cutoff allows.
 *  - A run whose output may take over an input's bytes is tried with all other bytes free, and with
 *    that input dropped by the run.
 *  - remat_exact_bound.c bounds the cost that a state must still pay; states that reach the cost of
 *    the known schedule are left out.
 * The search ends with the cheapest schedule, or with the proof that none is cheaper than the known
 * one (or that none exists), or without states left, with the least open cost as a bound.
 * Left undone: more than 1024 nodes: such graphs are answered UNKNOWN. */
#include "planner/remat/remat_exact.h"
#include "planner/remat/remat.h"

#include <string.h>

struct search {
    struct exact_search *states;
    const struct exact_problem *problem;
    struct exact_bound *bound;
    struct exact_draft base, draft;
    uint32_t *droppable;
    uint32_t droppable_count;
    uint32_t *dropped;
    uint64_t *useful, *useful_base;
    uint32_t run_now; /* the step for which room is made */
    bool takes;       /* it takes over its input's bytes, which is dropped there */
};

static void draft_copy(const struct search *s, struct exact_draft *to,
                       const struct exact_draft *from)
{
    size_t bytes = s->problem->words * sizeof *to->done;
    memcpy(to->done, from->done, bytes);
    memcpy(to->resident, from->resident, bytes);
    to->live_bytes = from->live_bytes;
    to->cost = from->cost;
    to->bound = from->bound;
    to->done_count = from->done_count;
    to->parent = from->parent;
    to->run_count = 0;
}

static void draft_drop(const struct search *s, struct exact_draft *d, uint32_t bit)
{
    ul_bits_remove(d->resident, bit);
    d->live_bytes -= s->problem->size[bit];
}

/* Runs `bit`, for which there is room, and drops what nothing to come descends from. */
static void draft_run(const struct search *s, struct exact_draft *d, uint32_t bit)
{
    const struct exact_problem *p = s->problem;
    bool first = !ul_bits_have(d->done, bit);
    d->runs[d->run_count++] = (uint16_t)bit;
    ul_bits_add(d->resident, bit);
    d->live_bytes += p->size[bit];
    if (!first) {
        d->cost += p->repeat[bit];
        return;
    }
    ul_bits_add(d->done, bit);
    d->done_count++;
    if (set_within(p->after + (size_t)bit * p->words, d->done, p->words))
        draft_drop(s, d, bit);
    const uint64_t *before = p->before + (size_t)bit * p->words;
    for (uint32_t i = 0; i < p->words; i++) {
        for (uint64_t left = before[i] & d->resident[i]; left != 0; left &= left - 1) {
            uint32_t other = i * 64 + word_lowest(left);
            if (set_within(p->after + (size_t)other * p->words, d->done, p->words))
                draft_drop(s, d, other);
        }
    }
}

static bool is_ready(const struct search *s, const struct exact_draft *d, uint32_t bit)
{
    const struct exact_problem *p = s->problem;
    return !ul_bits_have(d->resident, bit) &&
           set_within(p->inputs + (size_t)bit * p->words, d->resident, p->words);
}

/* Whether it is the first run and the last use of an input that it may take over. */
static bool is_last_use(const struct search *s, struct exact_draft *d, uint32_t bit)
{
    const struct exact_problem *p = s->problem;
    if (p->taken[bit] == 0 || ul_bits_have(d->done, bit))
        return false;
    ul_bits_add(d->done, bit);
    bool last = set_within(p->after + (size_t)p->take[bit] * p->words, d->done, p->words);
    ul_bits_remove(d->done, bit);
    return last;
}

/* What a run needs in addition to resident values, without dropping anything useful. */
static uint64_t step_bytes(const struct search *s, struct exact_draft *d, uint32_t bit)
{
    return s->problem->step[bit] - (is_last_use(s, d, bit) ? s->problem->taken[bit] : 0);
}

/* Whether the first run of `bit`, which is ready and has room, may be made at once and alone. */
static bool is_forced(const struct search *s, struct exact_draft *d, uint32_t bit)
{
    const struct exact_problem *p = s->problem;
    const uint64_t *inputs = p->inputs + (size_t)bit * p->words;
    if (p->size[bit] == 0 || set_within(p->after + (size_t)bit * p->words, d->done, p->words))
        return true;
    uint64_t freed = 0;
    uint64_t min = EXACT_NEVER;
    ul_bits_add(d->done, bit);
    for (uint32_t i = 0; i < p->words; i++) {
        for (uint64_t left = inputs[i]; left != 0; left &= left - 1) {
            uint32_t input = i * 64 + word_lowest(left);
            if (p->size[input] == 0 ||
                !set_within(p->after + (size_t)input * p->words, d->done, p->words))
                continue;
            freed += p->size[input];
            min = p->repeat[input] < min ? p->repeat[input] : min;
        }
    }
    ul_bits_remove(d->done, bit);
    return freed >= p->size[bit] && d->bound + min >= s->states->limit;
}

/* Raises the draft's bound; false once that reaches the cutoff. */
static bool draft_bound(struct search *s, struct exact_draft *d)
{
    struct exact_sets sets = {d->done, d->resident};
    if (d->cost >= s->states->limit || d->bound >= s->states->limit)
        return false;
    uint64_t floor = d->bound > d->cost ? d->bound - d->cost : 0;
    uint64_t rest = exact_bound_get(s->bound, sets, floor, s->states->limit - d->cost,
                                    &s->states->job->effort.work);
    if (d->cost + rest > d->bound)
        d->bound = d->cost + rest;
    return d->bound < s->states->limit;
}

/* Drops what no schedule below the cutoff can use. */
static void draft_clear(struct search *s, struct exact_draft *d)
{
    const struct exact_problem *p = s->problem;
    struct exact_sets sets = {d->done, d->resident};
    exact_bound_useful(s->bound, sets, s->states->limit - d->cost, s->useful);
    for (uint32_t i = 0; i < p->words; i++) {
        for (uint64_t left = d->resident[i] & ~s->useful[i]; left != 0; left &= left - 1)
            draft_drop(s, d, i * 64 + word_lowest(left));
    }
}

/* Makes forced runs after a run, and keeps the state if it is below the cutoff. */
static void draft_finalize(struct search *s, struct exact_draft *d)
{
    const struct exact_problem *p = s->problem;
    if (!draft_bound(s, d))
        return;
    for (uint32_t at = 0; at < p->count; at++) {
        uint32_t bit = p->ranked[at];
        if (ul_bits_have(d->done, bit) || !is_ready(s, d, bit) ||
            d->live_bytes + step_bytes(s, d, bit) > p->capacity || !is_forced(s, d, bit))
            continue;
        draft_run(s, d, bit);
        if (!draft_bound(s, d))
            return;
        at = UINT32_MAX;
    }
    draft_clear(s, d);
    if (!exact_search_is_over(s->states))
        exact_search_keep(s->states, d);
}

/* Whether the values dropped so far and one of `size` bytes free `wanted` bytes, and would without
 * one of them: such sets are not smallest. */
static bool is_wasteful(const struct search *s, uint32_t count, uint64_t size, uint64_t wanted)
{
    for (uint32_t i = 0; i < count && size >= wanted; i++) {
        if (s->problem->size[s->dropped[i]] <= size - wanted)
            return true;
    }
    return false;
}

/* Whether `wanted` bytes of the droppable values from `from` on can go below the cutoff; the base's
 * bound was made just before. */
static bool room_is_payable(const struct search *s, uint32_t from, uint64_t wanted)
{
    struct exact_sets sets = {s->base.done, s->base.resident};
    if (wanted == 0)
        return true;
    return s->base.cost + exact_bound_room(s->bound, sets, s->run_now, s->droppable + from,
                                           s->droppable_count - from, wanted) <
           s->states->limit;
}

/* Drops smallest sets of the droppable values from `from` on until `wanted` bytes are free. */
static void drops_try(struct search *s, uint32_t from, uint32_t count, uint64_t wanted)
{
    const struct exact_problem *p = s->problem;
    if (wanted == 0) {
        draft_copy(s, &s->draft, &s->base);
        draft_run(s, &s->draft, s->run_now);
        if (s->takes && ul_bits_have(s->draft.resident, p->take[s->run_now]))
            draft_drop(s, &s->draft, p->take[s->run_now]);
        draft_finalize(s, &s->draft);
        return;
    }
    for (uint32_t i = from; i < s->droppable_count && !exact_search_is_over(s->states); i++) {
        uint32_t bit = s->droppable[i];
        uint64_t size = p->size[bit];
        if (is_wasteful(s, count, size, wanted))
            continue;
        draft_drop(s, &s->base, bit);
        s->dropped[count] = bit;
        uint64_t bound = s->base.bound;
        uint64_t rest = size < wanted ? wanted - size : 0;
        if (draft_bound(s, &s->base) && room_is_payable(s, i + 1, rest))
            drops_try(s, i + 1, count + 1, rest);
        s->base.bound = bound;
        ul_bits_add(s->base.resident, bit);
        s->base.live_bytes += size;
    }
}

/* Runs `bit`, which needs that many bytes, dropping whatever makes room. */
static void run_within(struct search *s, uint32_t bit, uint64_t need)
{
    const struct exact_problem *p = s->problem;
    const uint64_t *inputs = p->inputs + (size_t)bit * p->words;
    s->run_now = bit;
    s->droppable_count = 0;
    if (need > p->capacity) {
        for (uint32_t i = 0; i < p->words; i++) {
            for (uint64_t left = s->base.resident[i] & ~inputs[i]; left != 0; left &= left - 1) {
                if (p->size[i * 64 + word_lowest(left)] > 0)
                    s->droppable[s->droppable_count++] = i * 64 + word_lowest(left);
            }
        }
    }
    uint64_t wanted = need > p->capacity ? need - p->capacity : 0;
    if (wanted == 0 || (draft_bound(s, &s->base) && room_is_payable(s, 0, wanted)))
        drops_try(s, 0, 0, wanted);
}

static void run_try(struct search *s, uint32_t bit)
{
    const struct exact_problem *p = s->problem;
    uint64_t need = s->base.live_bytes + step_bytes(s, &s->base, bit);
    s->takes = false;
    run_within(s, bit, need);
    s->takes = need > p->capacity && p->taken[bit] > 0 && !is_last_use(s, &s->base, bit);
    if (s->takes)
        run_within(s, bit, need - p->taken[bit]);
}

static void state_load(const struct search *s, struct exact_draft *d, uint32_t at)
{
    const struct exact_problem *p = s->problem;
    const struct exact_state *state = &s->states->store.states[at];
    const struct exact_group *group = &s->states->store.groups[state->group];
    memcpy(d->done, group->done, p->words * sizeof *d->done);
    memcpy(d->resident, s->states->store.resident + (size_t)at * p->words,
           p->words * sizeof *d->resident);
    d->cost = state->cost;
    d->bound = state->bound;
    d->done_count = group->done_count;
    d->parent = at;
    d->live_bytes = 0;
    for (uint32_t bit = 0; bit < p->count; bit++)
        d->live_bytes += ul_bits_have(d->resident, bit) ? p->size[bit] : 0;
}

static void state_expand(void *engine, uint32_t at)
{
    struct search *s = engine;
    const struct exact_problem *p = s->problem;
    struct exact_draft *d = &s->base;
    state_load(s, d, at);
    struct exact_sets sets = {d->done, d->resident};
    exact_bound_useful(s->bound, sets, s->states->limit - d->cost, s->useful_base);
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t bit = p->ranked[i];
        if (!is_ready(s, d, bit))
            continue;
        if (ul_bits_have(d->done, bit) && !ul_bits_have(s->useful_base, bit))
            continue;
        run_try(s, bit);
    }
}

static void *search_begin(struct exact_search *states)
{
    struct search *s = UL_NEW(states->arena, struct search);
    const struct exact_problem *p = states->problem;
    s->states = states;
    s->problem = p;
    s->bound = exact_bound_new(states->arena, p);
    s->droppable = UL_NEW_ARRAY(states->arena, uint32_t, p->count);
    s->dropped = UL_NEW_ARRAY(states->arena, uint32_t, p->count);
    s->useful = UL_NEW_ARRAY(states->arena, uint64_t, p->words);
    s->useful_base = UL_NEW_ARRAY(states->arena, uint64_t, p->words);
    exact_draft_init(states, &s->base);
    exact_draft_init(states, &s->draft);
    draft_finalize(s, &s->draft);
    return s;
}

/* The cost of the repeats of every schedule. */
static uint64_t root_bound(struct ul_remat_exact *job, const struct exact_problem *problem,
                           uint64_t limit)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    uint64_t *none = UL_NEW_ARRAY(&scratch, uint64_t, problem->words);
    struct exact_sets sets = {none, none};
    struct exact_bound *bound = exact_bound_new(&scratch, problem);
    uint64_t min = exact_bound_get(bound, sets, 0, limit, &job->effort.work);
    ul_arena_done(&scratch);
    return min;
}

static const struct exact_engine from_start = {
    .begin = search_begin, .expand = state_expand, .name = "exact search from the start"};

/* Low cutoffs first: they make the search small, and prove that nothing is below. */
static void ladder_run(struct ul_remat_exact *job, const struct exact_problem *problem)
{
    uint64_t limit = job->repeat_limit < EXACT_NEVER ? job->repeat_limit : EXACT_NEVER;
    uint64_t min = root_bound(job, problem, limit);
    uint64_t step = limit < EXACT_NEVER && limit > min ? (limit - min) / 8 : min / 8;
    step = step > problem->cost_unit ? step : problem->cost_unit;
    job->repeat_bound = min < limit ? min : limit;
    job->bound_method = min > 0 ? "values that the neediest steps leave no room for" : NULL;
    for (;;) {
        uint64_t rung = job->repeat_bound + step;
        if (rung >= limit || rung > problem->cost_sum)
            rung = limit;
        exact_search_run(job, problem, rung, &from_start);
        if (job->outcome != UL_REMAT_NONE_CHEAPER || rung == limit)
            return;
        step *= 2;
    }
}

void ul_remat_exact_run(struct ul_remat_exact *job)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct exact_problem problem;
    job->outcome = UL_REMAT_UNKNOWN;
    job->repeat_bound = 0;
    job->bound_method = NULL;
    if (exact_problem_make(&scratch, job->graph, job->budget_bytes, &problem)) {
        if (problem.impossible)
            job->outcome = UL_REMAT_NONE_CHEAPER;
        else
            ladder_run(job, &problem);
    }
    ul_arena_done(&scratch);
    UL_ASSERT(job->sequence == NULL || job->repeat_cost <= job->repeat_limit);
}
