/* The cheapest schedule within a budget, over all orders and all recomputations, from its end.
 *
 * Problem: that of remat_exact.c; where the memory is tight late, far fewer states lead there
 * from the end than from the start.
 * Method: least cost first over states: what still has to run before (every node of it at least
 * once), and what is wanted: values that the runs after read and that none of them makes. A step
 * back is the first run of a node whose users have all run, or a repeat of a value that is wanted,
 * which then is wanted no more while the inputs of the run are.
 *  - Among states with the same still to run, one that wants less at no more cost dominates.
 *  - A first run after which no more bytes are wanted is made at once, alone: its users never run
 *    again, so that wherever a schedule has it instead, it can be moved here; repeats of its
 *    inputs, or of itself, then serve it too or fall away.
 *  - So is a chain of first runs that ends with no more bytes wanted than it began with, having
 *    wanted more in between. Each but the first waits for the one before; none of them is wanted
 *    at the start, or else a repeat of it costs too much: before the chain, it would gain what the
 *    chain counts on.
 * Low cutoffs of the cost come first: they make the search small, and prove that nothing is below.
 * An output takes over an input's bytes where that input is not wanted after the run; a first run
 * moved to a later place keeps no more bytes alive for that than its own value would.
 * Left undone: more than 1024 nodes: such graphs are answered UNKNOWN. */
#include "planner/remat/remat.h"
#include "planner/remat/remat_exact.h"

#include <string.h>

/* A state in the making. */
struct draft {
    uint64_t *open, *wanted;
    uint64_t live_bytes; /* wanted */
    uint64_t cost;
    uint32_t done_count;
    uint32_t parent;
    uint16_t *runs; /* the last one first */
    uint32_t run_count;
};

struct search {
    struct ul_remat_exact *job;
    const struct exact_problem *problem;
    struct ul_arena *arena;
    struct exact_store store; /* its sets: what is not open, what is not wanted */
    uint64_t *not_open, *not_wanted;
    uint16_t *runs;
    uint32_t run_count, run_capacity;
    struct draft base, next, trial;
    uint64_t limit; /* schedules whose repeats cost as much are not wanted */
    uint32_t best;  /* the state of the cheapest schedule found */
};

/* Out of states, work or time. */
static bool is_over(struct search *s)
{
    return s->store.state_count >= s->job->state_limit || ul_effort_spent(&s->job->effort);
}

/* ---- Drafts ---- */

static void draft_init(struct search *s, struct draft *d)
{
    d->open = UL_NEW_ARRAY(s->arena, uint64_t, s->problem->words);
    d->wanted = UL_NEW_ARRAY(s->arena, uint64_t, s->problem->words);
    d->runs = UL_NEW_ARRAY(s->arena, uint16_t, s->problem->count + 1);
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
    uint64_t bytes = d->live_bytes - (set_has(d->wanted, bit) ? p->size[bit] : 0);
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
    bool takes = p->taken[bit] > 0 && !set_has(d->wanted, p->take[bit]);
    uint64_t bytes = p->step[bit] - (takes ? p->taken[bit] : 0);
    return bytes_before(s, d, bit) + bytes <= p->capacity;
}

/* Whether no run of `bit` after its first one can be of use. */
static bool is_ready(struct search *s, const struct draft *d, uint32_t bit)
{
    const struct exact_problem *p = s->problem;
    s->job->effort.work++;
    return set_has(d->open, bit) &&
           !set_meets(p->users + (size_t)bit * p->words, d->open, p->words);
}

static void draft_run(const struct search *s, struct draft *d, uint32_t bit, bool first)
{
    const struct exact_problem *p = s->problem;
    const uint64_t *inputs = p->inputs + (size_t)bit * p->words;
    d->live_bytes = bytes_before(s, d, bit);
    d->runs[d->run_count++] = (uint16_t)bit;
    set_remove(d->wanted, bit);
    for (uint32_t i = 0; i < p->words; i++)
        d->wanted[i] |= inputs[i];
    if (first) {
        set_remove(d->open, bit);
        d->done_count++;
    } else {
        d->cost += p->repeat[bit];
    }
}

/* ---- What is made at once ---- */

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
                (set_has(d->wanted, bit) && d->cost + p->repeat[bit] < s->limit))
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
    uint32_t at = exact_store_add(&s->store, s->not_open, d->done_count, s->not_wanted, d->cost);
    if (at == UL_PLAN_NONE)
        return;
    struct exact_state *state = &s->store.states[at];
    state->bound = d->cost;
    state->parent = d->parent;
    state->runs = s->run_count;
    state->run_count = (uint16_t)d->run_count;
    for (uint32_t i = 0; i < d->run_count; i++) {
        UL_GROW(s->arena, s->runs, s->run_count, s->run_capacity);
        s->runs[s->run_count++] = d->runs[i];
    }
    if (d->done_count < s->problem->count) {
        exact_store_push(&s->store, at);
    } else {
        s->limit = d->cost;
        s->best = at;
    }
}

static void state_load(const struct search *s, struct draft *d, uint32_t at)
{
    const struct exact_problem *p = s->problem;
    const struct exact_state *state = &s->store.states[at];
    const struct exact_group *group = &s->store.groups[state->group];
    const uint64_t *not_wanted = s->store.resident + (size_t)at * p->words;
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
        d->live_bytes += set_has(d->wanted, bit) ? p->size[bit] : 0;
}

/* The state before a run of `bit`, and before what is then made at once. */
static void run_try(struct search *s, uint32_t bit, bool first)
{
    draft_copy(s, &s->next, &s->base);
    draft_run(s, &s->next, bit, first);
    while (draft_force(s, &s->next))
        continue;
    if (s->next.cost < s->limit && !is_over(s))
        state_keep(s, &s->next);
}

static void state_expand(struct search *s, uint32_t at)
{
    const struct exact_problem *p = s->problem;
    const struct draft *d = &s->base;
    state_load(s, &s->base, at);
    for (uint32_t i = p->count; i-- > 0 && !is_over(s);) {
        uint32_t bit = p->ranked[i];
        bool first = is_ready(s, d, bit);
        if (!first && (!set_has(d->wanted, bit) || p->repeat[bit] >= s->limit - d->cost))
            continue;
        if (has_room(s, d, bit))
            run_try(s, bit, first);
    }
}

static void search_init(struct search *s)
{
    const struct exact_problem *p = s->problem;
    exact_store_init(&s->store, s->arena, p->words, s->job->state_limit);
    s->not_open = UL_NEW_ARRAY(s->arena, uint64_t, p->words);
    s->not_wanted = UL_NEW_ARRAY(s->arena, uint64_t, p->words);
    draft_init(s, &s->base);
    draft_init(s, &s->next);
    draft_init(s, &s->trial);
    for (uint32_t bit = 0; bit < p->count; bit++)
        set_add(s->next.open, bit);
    s->next.parent = UL_PLAN_NONE;
    while (draft_force(s, &s->next))
        continue;
    state_keep(s, &s->next);
}

/* ---- The whole ---- */

/* The runs from a state on, as nodes of the graph. */
static void sequence_write(struct search *s, uint32_t best)
{
    struct ul_remat_exact *job = s->job;
    uint32_t count = 0;
    for (uint32_t at = best; at != UL_PLAN_NONE; at = s->store.states[at].parent)
        count += s->store.states[at].run_count;
    job->sequence = UL_NEW_ARRAY(job->arena, uint32_t, count);
    job->count = 0;
    for (uint32_t at = best; at != UL_PLAN_NONE; at = s->store.states[at].parent) {
        const struct exact_state *state = &s->store.states[at];
        for (uint32_t i = state->run_count; i-- > 0;)
            job->sequence[job->count++] = s->problem->node[s->runs[state->runs + i]];
    }
}

/* One search for schedules below `limit`. */
static void rung_run(struct ul_remat_exact *job, const struct exact_problem *problem,
                     uint64_t limit)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct search s = {.job = job, .problem = problem, .arena = &scratch, .limit = limit};
    s.best = UL_PLAN_NONE;
    search_init(&s);
    uint64_t open_bound = 0;
    while (!is_over(&s)) {
        uint32_t at = exact_store_pop(&s.store);
        if (at == UL_PLAN_NONE || s.store.states[at].bound >= s.limit)
            break;
        open_bound = s.store.states[at].bound;
        job->expanded++;
        state_expand(&s, at);
        job->effort.work += s.store.looked / 64;
        s.store.looked = 0;
    }
    bool finished = !is_over(&s);
    job->states += s.store.state_count;
    uint64_t bound = finished ? s.limit : open_bound;
    job->repeat_bound = bound > job->repeat_bound ? bound : job->repeat_bound;
    job->outcome = finished ? UL_REMAT_NONE_CHEAPER : UL_REMAT_UNKNOWN;
    if (s.best != UL_PLAN_NONE) {
        sequence_write(&s, s.best);
        job->repeat_cost = s.limit;
        job->outcome = finished ? UL_REMAT_OPTIMAL : UL_REMAT_IMPROVED;
    }
    ul_arena_done(&scratch);
}

void ul_remat_backward_run(struct ul_remat_exact *job)
{
    enum { FIRST_SHARE = 1024 };
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct exact_problem p;
    job->outcome = UL_REMAT_UNKNOWN;
    job->repeat_bound = 0;
    uint64_t limit = job->repeat_limit < EXACT_NEVER ? job->repeat_limit : EXACT_NEVER;
    bool served = exact_problem_make(&scratch, job->graph, job->budget_bytes, &p);
    bool open = served && !p.impossible && limit > 0;
    if (served && !open)
        job->outcome = UL_REMAT_NONE_CHEAPER;
    uint64_t rung = open ? p.cost_sum / FIRST_SHARE + 1 : 0;
    while (open) {
        rung = rung < limit && rung <= p.cost_sum ? rung : limit;
        rung_run(job, &p, rung);
        open = job->outcome == UL_REMAT_NONE_CHEAPER && rung < limit;
        rung *= open ? 2 : 1;
    }
    ul_arena_done(&scratch);
    UL_ASSERT(job->sequence == NULL || job->repeat_cost <= job->repeat_limit);
}
