/* The cheapest schedule within a budget, over all orders and all recomputations.
 *
 * Problem: run every node at least once, repeat any node anywhere, never hold more than the
 * budget; the cost of the repeats is to be least.
 * Method: best first (A*) over states: what has run at least once, and what is resident.
 *  - A resident value is dropped only when the next run does not fit, and then a smallest set of
 *    values is; every schedule can be put so, since holding more is never worse.
 *  - What no first run to come descends from is dropped at once.
 *  - Among states that have run the same, one that holds more at no more cost dominates.
 *  - A first run that fits and leaves nothing behind is made at once, alone. So is one that
 *    frees at least what it makes, when dropping an input of it before (the one reason to make
 *    it later) would cost more than the cutoff allows.
 *  - remat_exact_bound.c says what a state must still pay; what reaches the cost of the schedule
 *    known already is left out.
 * The search ends with the cheapest schedule, or the proof that none is cheaper than the one
 * known (or none at all), or out of states, with the least that remains open as a bound.
 * Left undone: values made in place, more than 1024 nodes: such graphs are answered UNKNOWN. */
#include "planner/remat_exact.h"

#include <string.h>

struct state {
    uint64_t cost;  /* of the repeats so far */
    uint64_t bound; /* of the repeats of any schedule through here */
    uint32_t parent;
    uint32_t next; /* among states that have run the same; UL_PLAN_NONE ends */
    uint32_t runs; /* where its runs are listed */
    uint16_t run_count;
    uint16_t done_count;
    bool dominated;
};

struct open_state {
    uint64_t bound;
    uint32_t done_count;
    uint32_t state;
};

/* A state in the making. */
struct draft {
    uint64_t *done, *resident;
    uint64_t live_bytes, cost, bound;
    uint32_t done_count;
    uint32_t parent;
    uint16_t *runs;
    uint32_t run_count;
};

struct search {
    struct ul_remat_exact *job;
    struct exact_problem problem;
    struct exact_bound *bound;
    struct ul_arena *arena;
    uint64_t *sets; /* per state: done, resident */
    struct state *states;
    uint32_t state_count;
    uint32_t *table; /* open addressing on what has run: first state of the list + 1 */
    uint32_t table_size, table_used;
    struct open_state *open;
    uint32_t open_count;
    uint16_t *runs;
    uint32_t run_count, run_capacity;
    struct draft base, draft;
    uint32_t *droppable;
    uint32_t droppable_count;
    uint32_t *dropped;
    uint32_t run_now; /* the step for which room is made */
    uint64_t limit; /* cost of repeats that is known to do */
    uint64_t threshold; /* successors with a higher bound wait */
    uint64_t beyond;    /* the least bound of those that wait */
    uint32_t best;  /* the state of the cheapest schedule found */
};

static bool open_before(const struct open_state *a, const struct open_state *b)
{
    if (a->bound != b->bound)
        return a->bound < b->bound;
    if (a->done_count != b->done_count)
        return a->done_count > b->done_count;
    return a->state > b->state;
}

static void open_push(struct search *s, struct open_state entry)
{
    uint32_t at = s->open_count++;
    while (at > 0 && open_before(&entry, &s->open[(at - 1) / 2])) {
        s->open[at] = s->open[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    s->open[at] = entry;
}

static struct open_state open_pop(struct search *s)
{
    struct open_state top = s->open[0];
    struct open_state last = s->open[--s->open_count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= s->open_count)
            break;
        if (child + 1 < s->open_count && open_before(&s->open[child + 1], &s->open[child]))
            child++;
        if (!open_before(&s->open[child], &last))
            break;
        s->open[at] = s->open[child];
        at = child;
    }
    s->open[at] = last;
    return top;
}

static uint64_t *state_done(const struct search *s, uint32_t state)
{
    return s->sets + (size_t)state * 2 * s->problem.words;
}

static uint64_t *state_resident(const struct search *s, uint32_t state)
{
    return state_done(s, state) + s->problem.words;
}

static uint64_t set_hash(const uint64_t *set, uint32_t words)
{
    uint64_t hash = UINT64_C(0x9E3779B97F4A7C15);
    for (uint32_t i = 0; i < words; i++) {
        hash ^= set[i];
        hash *= UINT64_C(0xBF58476D1CE4E5B9);
        hash ^= hash >> 29;
    }
    return hash;
}

/* Where the list of what has run `done` starts, or is to start. */
static uint32_t *table_at(struct search *s, const uint64_t *done)
{
    uint32_t words = s->problem.words;
    uint32_t mask = s->table_size - 1;
    uint32_t at = (uint32_t)set_hash(done, words) & mask;
    while (s->table[at] != 0 &&
           memcmp(state_done(s, s->table[at] - 1), done, words * sizeof *done) != 0)
        at = (at + 1) & mask;
    return &s->table[at];
}

static void table_grow(struct search *s)
{
    const uint32_t *old = s->table;
    uint32_t old_size = s->table_size;
    s->table_size = old_size == 0 ? 1024 : old_size * 2;
    s->table = UL_NEW_ARRAY(s->arena, uint32_t, s->table_size);
    for (uint32_t i = 0; i < old_size; i++) {
        if (old[i] != 0)
            *table_at(s, state_done(s, old[i] - 1)) = old[i];
    }
}

/* Whether a known state is as good as the draft; marks those that the draft beats. */
static bool is_dominated(struct search *s, const struct draft *d, uint32_t *first)
{
    uint32_t words = s->problem.words;
    uint32_t *link = first;
    for (uint32_t at = *first; at != UL_PLAN_NONE; at = *link) {
        struct state *known = &s->states[at];
        s->job->work++;
        if (known->cost <= d->cost && set_within(d->resident, state_resident(s, at), words))
            return true;
        if (known->cost >= d->cost && set_within(state_resident(s, at), d->resident, words)) {
            known->dominated = true;
            *link = known->next;
        } else {
            link = &known->next;
        }
    }
    return false;
}

static void state_keep(struct search *s, const struct draft *d)
{
    uint32_t words = s->problem.words;
    uint32_t *entry = table_at(s, d->done);
    uint32_t first = *entry != 0 ? *entry - 1 : UL_PLAN_NONE;
    if (is_dominated(s, d, &first)) {
        *entry = first + 1;
        return;
    }
    uint32_t at = s->state_count++;
    memcpy(state_done(s, at), d->done, words * sizeof *d->done);
    memcpy(state_resident(s, at), d->resident, words * sizeof *d->resident);
    s->states[at] = (struct state){.cost = d->cost,
                                   .bound = d->bound,
                                   .parent = d->parent,
                                   .next = first,
                                   .runs = s->run_count,
                                   .run_count = (uint16_t)d->run_count,
                                   .done_count = (uint16_t)d->done_count};
    for (uint32_t i = 0; i < d->run_count; i++) {
        UL_GROW(s->arena, s->runs, s->run_count, s->run_capacity);
        s->runs[s->run_count++] = d->runs[i];
    }
    s->table_used += *entry == 0;
    *entry = at + 1;
    if (s->table_used * 2 > s->table_size)
        table_grow(s);
    if (d->done_count == s->problem.count) {
        if (d->cost < s->limit) {
            s->limit = d->cost;
            s->best = at;
        }
        return;
    }
    open_push(s, (struct open_state){d->bound, d->done_count, at});
}

static void draft_init(struct search *s, struct draft *d)
{
    d->done = UL_NEW_ARRAY(s->arena, uint64_t, s->problem.words);
    d->resident = UL_NEW_ARRAY(s->arena, uint64_t, s->problem.words);
    d->runs = UL_NEW_ARRAY(s->arena, uint16_t, s->problem.count + 1);
}

static void draft_copy(const struct search *s, struct draft *to, const struct draft *from)
{
    size_t bytes = s->problem.words * sizeof *to->done;
    memcpy(to->done, from->done, bytes);
    memcpy(to->resident, from->resident, bytes);
    to->live_bytes = from->live_bytes;
    to->cost = from->cost;
    to->bound = from->bound;
    to->done_count = from->done_count;
    to->parent = from->parent;
    to->run_count = 0;
}

static void draft_drop(const struct search *s, struct draft *d, uint32_t bit)
{
    set_remove(d->resident, bit);
    d->live_bytes -= s->problem.size[bit];
}

/* Runs `bit`, for which there is room, and drops what nothing to come descends from. */
static void draft_run(const struct search *s, struct draft *d, uint32_t bit)
{
    const struct exact_problem *p = &s->problem;
    bool first = !set_has(d->done, bit);
    d->runs[d->run_count++] = (uint16_t)bit;
    set_add(d->resident, bit);
    d->live_bytes += p->size[bit];
    if (!first) {
        d->cost += p->repeat[bit];
        return;
    }
    set_add(d->done, bit);
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

static bool is_ready(const struct search *s, const struct draft *d, uint32_t bit)
{
    const struct exact_problem *p = &s->problem;
    return !set_has(d->resident, bit) &&
           set_within(p->inputs + (size_t)bit * p->words, d->resident, p->words);
}

/* Whether the first run of `bit`, ready and with room, may be made at once and alone. */
static bool is_forced(const struct search *s, struct draft *d, uint32_t bit)
{
    const struct exact_problem *p = &s->problem;
    const uint64_t *inputs = p->inputs + (size_t)bit * p->words;
    if (p->size[bit] == 0 || set_within(p->after + (size_t)bit * p->words, d->done, p->words))
        return true;
    uint64_t freed = 0;
    uint64_t least = EXACT_NEVER;
    set_add(d->done, bit);
    for (uint32_t i = 0; i < p->words; i++) {
        for (uint64_t left = inputs[i]; left != 0; left &= left - 1) {
            uint32_t input = i * 64 + word_lowest(left);
            if (p->size[input] == 0 ||
                !set_within(p->after + (size_t)input * p->words, d->done, p->words))
                continue;
            freed += p->size[input];
            least = p->repeat[input] < least ? p->repeat[input] : least;
        }
    }
    set_remove(d->done, bit);
    return freed >= p->size[bit] && d->bound + least >= s->limit;
}

/* Raises the draft's bound; false if that is above the threshold, which is noted. */
static bool draft_bound(struct search *s, struct draft *d)
{
    struct exact_sets sets = {d->done, d->resident};
    if (d->cost >= s->limit)
        return false;
    uint64_t limit = s->threshold < s->limit ? s->threshold + 1 : s->limit;
    if (d->bound < limit && d->cost < limit) {
        uint64_t floor = d->bound > d->cost ? d->bound - d->cost : 0;
        uint64_t rest =
            exact_bound_get(s->bound, sets, floor, limit - d->cost, &s->job->work);
        if (d->cost + rest > d->bound)
            d->bound = d->cost + rest;
    } else if (d->cost > d->bound) {
        d->bound = d->cost;
    }
    if (d->bound > s->threshold && d->bound < s->beyond)
        s->beyond = d->bound;
    return d->bound <= s->threshold && d->bound < s->limit;
}

/* Makes what is forced after a run, and keeps the state if it is below the cutoff. */
static void draft_settle(struct search *s, struct draft *d)
{
    const struct exact_problem *p = &s->problem;
    if (!draft_bound(s, d))
        return;
    for (uint32_t at = 0; at < p->count; at++) {
        uint32_t bit = p->ranked[at];
        if (set_has(d->done, bit) || !is_ready(s, d, bit) ||
            d->live_bytes + p->step[bit] > p->capacity || !is_forced(s, d, bit))
            continue;
        draft_run(s, d, bit);
        if (!draft_bound(s, d))
            return;
        at = UINT32_MAX;
    }
    if (s->state_count < s->job->state_limit)
        state_keep(s, d);
}

/* Whether the values dropped yet and one of `size` bytes more free `wanted` bytes, and would
 * without one of them: such sets are not smallest. */
static bool is_wasteful(const struct search *s, uint32_t count, uint64_t size, uint64_t wanted)
{
    for (uint32_t i = 0; i < count && size >= wanted; i++) {
        if (s->problem.size[s->dropped[i]] <= size - wanted)
            return true;
    }
    return false;
}

/* Drops smallest sets of the droppable values from `from` on until `wanted` bytes are free. */
static void drops_try(struct search *s, uint32_t from, uint32_t count, uint64_t wanted)
{
    const struct exact_problem *p = &s->problem;
    if (wanted == 0) {
        draft_copy(s, &s->draft, &s->base);
        draft_run(s, &s->draft, s->run_now);
        draft_settle(s, &s->draft);
        return;
    }
    for (uint32_t i = from; i < s->droppable_count; i++) {
        uint32_t bit = s->droppable[i];
        uint64_t size = p->size[bit];
        if (is_wasteful(s, count, size, wanted))
            continue;
        draft_drop(s, &s->base, bit);
        s->dropped[count] = bit;
        uint64_t bound = s->base.bound;
        if (draft_bound(s, &s->base))
            drops_try(s, i + 1, count + 1, size < wanted ? wanted - size : 0);
        s->base.bound = bound;
        set_add(s->base.resident, bit);
        s->base.live_bytes += size;
    }
}

static void run_try(struct search *s, uint32_t bit)
{
    const struct exact_problem *p = &s->problem;
    const uint64_t *inputs = p->inputs + (size_t)bit * p->words;
    uint64_t need = s->base.live_bytes + p->step[bit];
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
    drops_try(s, 0, 0, need > p->capacity ? need - p->capacity : 0);
}

static void state_expand(struct search *s, uint32_t at)
{
    uint64_t slack = (s->limit - s->states[at].bound) / 16;
    s->threshold = s->states[at].bound + slack;
    s->beyond = EXACT_NEVER;
    const struct exact_problem *p = &s->problem;
    const struct state *state = &s->states[at];
    struct draft *d = &s->base;
    memcpy(d->done, state_done(s, at), p->words * sizeof *d->done);
    memcpy(d->resident, state_resident(s, at), p->words * sizeof *d->resident);
    d->cost = state->cost;
    d->bound = state->bound;
    d->done_count = state->done_count;
    d->parent = at;
    d->live_bytes = 0;
    for (uint32_t bit = 0; bit < p->count; bit++)
        d->live_bytes += set_has(d->resident, bit) ? p->size[bit] : 0;
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t bit = p->ranked[i];
        if (!is_ready(s, d, bit))
            continue;
        if (set_has(d->done, bit) &&
            (p->repeat[bit] >= EXACT_NEVER ||
             set_within(p->after + (size_t)bit * p->words, d->done, p->words)))
            continue;
        run_try(s, bit);
    }
    if (s->beyond < s->limit) {
        s->states[at].bound = s->beyond;
        open_push(s, (struct open_state){s->beyond, s->states[at].done_count, at});
    }
}

static void search_init(struct search *s)
{
    struct exact_problem *p = &s->problem;
    uint64_t most = (uint64_t)s->job->state_limit + 1;
    s->bound = exact_bound_new(s->arena, p);
    s->sets = UL_NEW_ARRAY(s->arena, uint64_t, most * 2 * p->words);
    s->states = UL_NEW_ARRAY(s->arena, struct state, most);
    s->open = UL_NEW_ARRAY(s->arena, struct open_state, most);
    s->droppable = UL_NEW_ARRAY(s->arena, uint32_t, p->count);
    s->dropped = UL_NEW_ARRAY(s->arena, uint32_t, p->count);
    draft_init(s, &s->base);
    draft_init(s, &s->draft);
    table_grow(s);
}

/* The runs that lead to a state, as nodes of the graph. */
static void sequence_write(struct search *s, uint32_t at)
{
    struct ul_remat_exact *job = s->job;
    uint32_t count = 0;
    for (uint32_t i = at; i != UL_PLAN_NONE; i = s->states[i].parent)
        count += s->states[i].run_count;
    job->sequence = UL_NEW_ARRAY(job->arena, uint32_t, count);
    job->count = count;
    for (; at != UL_PLAN_NONE; at = s->states[at].parent) {
        const struct state *state = &s->states[at];
        for (uint32_t i = state->run_count; i-- > 0;)
            job->sequence[--count] = s->problem.node[s->runs[state->runs + i]];
    }
}

void ul_remat_exact_run(struct ul_remat_exact *job)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct search s = {.job = job, .arena = &scratch, .best = UL_PLAN_NONE};
    job->outcome = UL_REMAT_UNKNOWN;
    job->repeat_bound = 0;
    if (!exact_problem_make(&scratch, job->graph, job->budget_bytes, &s.problem)) {
        ul_arena_done(&scratch);
        return;
    }
    s.limit = job->repeat_limit < EXACT_NEVER ? job->repeat_limit : EXACT_NEVER;
    search_init(&s);
    s.draft.parent = UL_PLAN_NONE;
    s.threshold = EXACT_NEVER;
    draft_settle(&s, &s.draft);
    uint64_t open_bound = s.limit;
    while (s.open_count > 0 && s.state_count < job->state_limit) {
        struct open_state top = open_pop(&s);
        if (top.bound >= s.limit)
            break;
        if (s.states[top.state].dominated)
            continue;
        open_bound = top.bound;
        job->expanded++;
        state_expand(&s, top.state);
    }
    job->states = s.state_count;
    bool finished = s.state_count < job->state_limit;
    job->repeat_bound = finished ? s.limit : open_bound;
    if (s.best != UL_PLAN_NONE) {
        sequence_write(&s, s.best);
        job->repeat_cost = s.limit;
        job->outcome = finished ? UL_REMAT_OPTIMAL : UL_REMAT_IMPROVED;
    } else if (finished) {
        job->outcome = UL_REMAT_NONE_CHEAPER;
    }
    ul_arena_done(&scratch);
}
