/* SPDX-License-Identifier: Apache-2.0 */
/* The cheapest schedule within a budget, over all orders and all recomputations, from its end.
 *
 * Problem: as in remat_exact.c; where the memory is tight late, far fewer states lead there from
 * the end than from the start.
 * Method: least cost first over states: the nodes that still have to run before (each at least
 * once), and the wanted values, which later runs read and none of them makes. A step back is the
 * first run of a node whose users have all run, or a repeat of a wanted value; the value is then
 * no longer wanted, and the inputs of the run are.
 *  - Among states with the same nodes still to run, one that wants less at no more cost dominates.
 *  - A first run after which no more bytes are wanted is the only successor of its state: its users
 *    never run again, so it can be moved here from any place in a schedule; repeats of its inputs,
 *    or of itself, then also serve it or disappear.
 *  - The same holds for a chain of first runs that ends with no more bytes wanted than it began
 *    with, but wants more in between. Each but the first waits for the one before. None of them is
 *    wanted at the start, unless its repeat costs too much: before the chain, it would gain what
 *    the chain counts on.
 * Low cutoffs of the cost come first: they make the search small, and prove that nothing is below.
 * An output takes over an input's bytes where that input is not wanted after the run; a first run
 * that moves to a later place keeps no more bytes alive for that than its own value would.
 * Left undone: more than 1024 nodes: such graphs are answered UNKNOWN. */
#include "planner/remat/remat.h"
#include "planner/remat/remat_exact.h"

#include <string.h>

/* A state in the making. */
struct draft {
    uint64_t *open, *wanted;
    uint64_t live_bytes; /* bytes of wanted values */
    uint64_t cost;
    uint32_t done_count;
    uint32_t parent;
    uint16_t *runs; /* the last one first */
    uint32_t run_count;
};

struct search {
    /* their sets: nodes that are not open, values that are not wanted */
    struct exact_search *states;
    const struct exact_problem *problem;
    uint64_t *not_open, *not_wanted;
    struct draft base, next, trial;
};

/* ---- Drafts ---- */

static void draft_init(struct search *s, struct draft *d)
{
    d->open = UL_NEW_ARRAY(s->states->arena, uint64_t, s->problem->words);
    d->wanted = UL_NEW_ARRAY(s->states->arena, uint64_t, s->problem->words);
    d->runs = UL_NEW_ARRAY(s->states->arena, uint16_t, s->problem->count + 1);
}

static void draft_copy(const struct search *s, struct draft *to, const struct draft *from)
{
    size_t bytes = s->problem->words * sizeof *to->open;
    memcpy(to->open, from->open, bytes);
    memcpy(to->wanted, from->wanted, bytes);
    memcpy(to->runs, from->runs, from->run_count * sizeof *to->runs);
    to->live_bytes = from->live_bytes;
    to->cost = from->cost;
    to->done_count = from->done_count;
    to->parent = from->parent;
    to->run_count = from->run_count;
}

/* The wanted bytes before a run of `bit` that is the last run so far. */
static uint64_t bytes_before(const struct search *s, const struct draft *d, uint32_t bit)
{
    const struct exact_problem *p = s->problem;
    const uint64_t *inputs = p->inputs + (size_t)bit * p->words;
    uint64_t bytes = d->live_bytes - (ul_bits_have(d->wanted, bit) ? p->size[bit] : 0);
    for (uint32_t i = 0; i < p->words; i++) {
        for (uint64_t left = inputs[i] & ~d->wanted[i]; left != 0; left &= left - 1)
            bytes += p->size[i * 64 + word_lowest(left)];
    }
    return bytes;
}

/* Whether that run is within the budget. */
static bool has_room(const struct search *s, const struct draft *d, uint32_t bit)
{
    const struct exact_problem *p = s->problem;
    bool takes = p->taken[bit] > 0 && !ul_bits_have(d->wanted, p->take[bit]);
    uint64_t bytes = p->step[bit] - (takes ? p->taken[bit] : 0);
    return bytes_before(s, d, bit) + bytes <= p->capacity;
}

/* Whether no run of `bit` after its first one can be useful. */
static bool is_ready(struct search *s, const struct draft *d, uint32_t bit)
{
    const struct exact_problem *p = s->problem;
    s->states->job->effort.work++;
    return ul_bits_have(d->open, bit) &&
           !set_meets(p->users + (size_t)bit * p->words, d->open, p->words);
}

static void draft_run(const struct search *s, struct draft *d, uint32_t bit, bool first)
{
    const struct exact_problem *p = s->problem;
    const uint64_t *inputs = p->inputs + (size_t)bit * p->words;
    d->live_bytes = bytes_before(s, d, bit);
    d->runs[d->run_count++] = (uint16_t)bit;
    ul_bits_remove(d->wanted, bit);
    for (uint32_t i = 0; i < p->words; i++)
        d->wanted[i] |= inputs[i];
    if (first) {
        ul_bits_remove(d->open, bit);
        d->done_count++;
    } else {
        d->cost += p->repeat[bit];
    }
}

/* ---- Runs that are made at once ---- */

/* The input of `last` to run before it in a chain from `d`: the one after which least is wanted. */
static uint32_t chain_next(struct search *s, const struct draft *d, uint32_t last)
{
    const struct exact_problem *p = s->problem;
    const uint64_t *inputs = p->inputs + (size_t)last * p->words;
    uint32_t best = UL_PLAN_NONE;
    uint64_t best_bytes = UINT64_MAX;
    for (uint32_t i = 0; i < p->words; i++) {
        for (uint64_t left = inputs[i]; left != 0; left &= left - 1) {
            uint32_t bit = i * 64 + word_lowest(left);
            if (!is_ready(s, &s->trial, bit) || !has_room(s, &s->trial, bit) ||
                (ul_bits_have(d->wanted, bit) && d->cost + p->repeat[bit] < s->states->limit))
                continue;
            uint64_t bytes = bytes_before(s, &s->trial, bit);
            if (bytes < best_bytes) {
                best = bit;
                best_bytes = bytes;
            }
        }
    }
    return best;
}

/* Whether a chain that starts with `bit`, in s->trial after, may be made at once. */
static bool chain_find(struct search *s, const struct draft *d, uint32_t bit)
{
    enum { LENGTH = 24 };
    draft_copy(s, &s->trial, d);
    for (uint32_t i = 0; i < LENGTH && bit != UL_PLAN_NONE; i++) {
        draft_run(s, &s->trial, bit, true);
        if (s->trial.live_bytes <= d->live_bytes)
            return true;
        bit = chain_next(s, d, bit);
    }
    return false;
}

/* Makes one run or chain that may be made at once, single runs first; false if there is none. */
static bool draft_force(struct search *s, struct draft *d)
{
    const struct exact_problem *p = s->problem;
    for (uint32_t at = p->count; at-- > 0;) {
        uint32_t bit = p->ranked[at];
        if (is_ready(s, d, bit) && bytes_before(s, d, bit) <= d->live_bytes &&
            has_room(s, d, bit)) {
            draft_run(s, d, bit, true);
            return true;
        }
    }
    for (uint32_t at = p->count; at-- > 0;) {
        uint32_t bit = p->ranked[at];
        if (is_ready(s, d, bit) && has_room(s, d, bit) && chain_find(s, d, bit)) {
            draft_copy(s, d, &s->trial);
            return true;
        }
    }
    return false;
}

/* ---- States ---- */

static void state_keep(struct search *s, const struct draft *d)
{
    for (uint32_t i = 0; i < s->problem->words; i++) {
        s->not_open[i] = ~d->open[i];
        s->not_wanted[i] = ~d->wanted[i];
    }
    exact_search_keep(s->states, &(struct exact_draft){.done = s->not_open,
                                                       .resident = s->not_wanted,
                                                       .cost = d->cost,
                                                       .bound = d->cost,
                                                       .done_count = d->done_count,
                                                       .parent = d->parent,
                                                       .runs = d->runs,
                                                       .run_count = d->run_count});
}

static void state_load(const struct search *s, struct draft *d, uint32_t at)
{
    const struct exact_problem *p = s->problem;
    const struct exact_state *state = &s->states->store.states[at];
    const struct exact_group *group = &s->states->store.groups[state->group];
    const uint64_t *not_wanted = s->states->store.resident + (size_t)at * p->words;
    for (uint32_t i = 0; i < p->words; i++) {
        d->open[i] = ~group->done[i];
        d->wanted[i] = ~not_wanted[i];
    }
    d->cost = state->cost;
    d->done_count = group->done_count;
    d->parent = at;
    d->run_count = 0;
    d->live_bytes = 0;
    for (uint32_t bit = 0; bit < p->count; bit++)
        d->live_bytes += ul_bits_have(d->wanted, bit) ? p->size[bit] : 0;
}

/* The state before a run of `bit`, and before what is then made at once. */
static void run_try(struct search *s, uint32_t bit, bool first)
{
    draft_copy(s, &s->next, &s->base);
    draft_run(s, &s->next, bit, first);
    while (draft_force(s, &s->next))
        continue;
    if (s->next.cost < s->states->limit && !exact_search_is_over(s->states))
        state_keep(s, &s->next);
}

static void state_expand(void *engine, uint32_t at)
{
    struct search *s = engine;
    const struct exact_problem *p = s->problem;
    const struct draft *d = &s->base;
    state_load(s, &s->base, at);
    for (uint32_t i = p->count; i-- > 0 && !exact_search_is_over(s->states);) {
        uint32_t bit = p->ranked[i];
        bool first = is_ready(s, d, bit);
        if (!first &&
            (!ul_bits_have(d->wanted, bit) || p->repeat[bit] >= s->states->limit - d->cost))
            continue;
        if (has_room(s, d, bit))
            run_try(s, bit, first);
    }
}

static void *search_begin(struct exact_search *states)
{
    struct search *s = UL_NEW(states->arena, struct search);
    const struct exact_problem *p = states->problem;
    s->states = states;
    s->problem = p;
    s->not_open = UL_NEW_ARRAY(states->arena, uint64_t, p->words);
    s->not_wanted = UL_NEW_ARRAY(states->arena, uint64_t, p->words);
    draft_init(s, &s->base);
    draft_init(s, &s->next);
    draft_init(s, &s->trial);
    for (uint32_t bit = 0; bit < p->count; bit++)
        ul_bits_add(s->next.open, bit);
    s->next.parent = UL_PLAN_NONE;
    while (draft_force(s, &s->next))
        continue;
    state_keep(s, &s->next);
    return s;
}

/* ---- The whole ---- */

static const struct exact_engine from_end = {.begin = search_begin,
                                             .expand = state_expand,
                                             .name = "exact search from the end",
                                             .is_backwards = true};

void ul_remat_backward_run(struct ul_remat_exact *job)
{
    enum { FIRST_SHARE = 1024 };
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct exact_problem p;
    job->outcome = UL_REMAT_UNKNOWN;
    job->repeat_bound = 0;
    job->bound_method = NULL;
    uint64_t limit = job->repeat_limit < EXACT_NEVER ? job->repeat_limit : EXACT_NEVER;
    bool served = exact_problem_make(&scratch, job->graph, job->budget_bytes, &p);
    bool open = served && !p.impossible && limit > 0;
    if (served && !open)
        job->outcome = UL_REMAT_NONE_CHEAPER;
    uint64_t rung = open ? p.cost_sum / FIRST_SHARE + 1 : 0;
    while (open) {
        rung = rung < limit && rung <= p.cost_sum ? rung : limit;
        exact_search_run(job, &p, rung, &from_end);
        open = job->outcome == UL_REMAT_NONE_CHEAPER && rung < limit;
        rung *= open ? 2 : 1;
    }
    ul_arena_done(&scratch);
    UL_ASSERT(job->sequence == NULL || job->repeat_cost <= job->repeat_limit);
}
