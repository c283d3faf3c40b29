/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers against a search over everything: tiny graphs with a second space, of all bandwidths
 * and capacities. The search goes through all states (what has run, is here, is there, is under way
 * and for how long) by the clocks of plan.h, so that it knows the least cost of all placements of
 * saves, loads and waits, for one order, or over all orders and repeats too. What is found is never
 * below that, bounds are never above, and how often what is found is the least is counted. */
#include "planner/model/timeline.h"
#include "planner/solve/solve.h"
#include "planner/transfer/transfer.h"
#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MAX = 8, PROGRAMS = 3, TABLE = 1 << 18, LATEST = 400 };

struct tiny {
    uint32_t count;
    uint64_t size[MAX], cost[MAX];
    uint32_t inputs[MAX]; /* sets */
    struct ul_plan_offload space;
};

static uint64_t transfer_cost(const struct tiny *t, uint32_t v)
{
    uint64_t scaled = t->size[v] * 1000;
    return t->space.latency_cost +
           (t->space.bandwidth_mb == 0 ? 0 : scaled / t->space.bandwidth_mb);
}

/* Every node reads the one before it and perhaps an earlier one, as a way back does. */
static void tiny_make(struct tiny *t, uint64_t seed, uint32_t most)
{
    uint64_t random = seed * 7919 + 3;
    memset(t, 0, sizeof *t);
    t->count = most - random_below(&random, 3);
    for (uint32_t v = 0; v < t->count; v++) {
        t->size[v] = 1 + random_below(&random, most > 6 ? 3 : 6);
        t->cost[v] = 1 + random_below(&random, 6);
        if (v > 0)
            t->inputs[v] |= 1u << (random_below(&random, 4) > 0 ? v - 1 : random_below(&random, v));
        if (2 * v > t->count)
            t->inputs[v] |= 1u << (t->count - 1 - v);
        else if (v > 1 && random_below(&random, 3) == 0)
            t->inputs[v] |= 1u << random_below(&random, v);
    }
    t->space = (struct ul_plan_offload){.name = "other",
                                        .duplex = random_below(&random, 2) == 0,
                                        .latency_cost = random_below(&random, 2),
                                        .bandwidth_mb = random_below(&random, 5) * 250};
    if (random_below(&random, 2) == 0)
        t->space.capacity_bytes = 1 + random_below(&random, 6);
}

/* ---- All states ---- */

/* Sets of values, and how long what is under way still takes. */
struct state {
    uint8_t done, here, there, saving, loading;
    uint8_t rest[MAX];
};

struct entry {
    struct state state;
    uint32_t cost, next; /* of those of one cost; entries count from 1 */
};

struct everything {
    const struct tiny *t;
    uint64_t limit_bytes;
    bool is_free; /* orders and repeats too */
    uint64_t known_cost;
    struct entry *entries;
    uint32_t entry_count;
    uint32_t *table;
    uint32_t first[LATEST + 1];
};

static uint64_t bytes_of(const struct tiny *t, uint32_t set)
{
    uint64_t sum = 0;
    for (uint32_t v = 0; v < t->count; v++)
        sum += (set >> v & 1) != 0 ? t->size[v] : 0;
    return sum;
}

static uint64_t rest_cost(const struct tiny *t, uint32_t done)
{
    uint64_t cost = 0;
    for (uint32_t v = 0; v < t->count; v++)
        cost += (done >> v & 1) != 0 ? 0 : t->cost[v];
    return cost;
}

/* Whether something that did not run yet reads the value, perhaps by way of repeats. */
static bool has_use(const struct everything *e, const struct state *s, uint32_t v)
{
    const struct tiny *t = e->t;
    uint32_t from = 1u << v;
    bool found = false;
    for (uint32_t u = v + 1; u < t->count; u++) {
        bool reads = (t->inputs[u] & from) != 0;
        found = found || (reads && (s->done >> u & 1) == 0);
        from |= reads && e->is_free ? 1u << u : 0;
    }
    return found;
}

static void offer(struct everything *e, struct state state, uint64_t cost)
{
    uint64_t words[2] = {0}, hash;
    for (uint32_t v = 0; v < e->t->count; v++) {
        uint8_t bit = (uint8_t)(1u << v);
        if (((state.saving | state.loading) & bit) != 0 || has_use(e, &state, v))
            continue;
        state.here &= (uint8_t)~bit;
        state.there &= (uint8_t)~bit;
    }
    memcpy(words, &state, sizeof state);
    hash = words[0] * UINT64_C(0x9E3779B97F4A7C15) ^ words[1] * UINT64_C(0xBF58476D1CE4E5B9);
    hash = (hash ^ (hash >> 29)) * UINT64_C(0x94D049BB133111EB);
    uint32_t at = (uint32_t)(hash >> 40) % TABLE;
    while (e->table[at] != 0 && memcmp(&e->entries[e->table[at]].state, &state, sizeof state) != 0)
        at = (at + 1) % TABLE;
    cost += rest_cost(e->t, state.done); /* the least first, with what surely is to come */
    if (cost > e->known_cost)
        return;
    assert_true(cost <= LATEST);
    if (e->table[at] != 0 && e->entries[e->table[at]].cost <= cost)
        return;
    assert_true(e->entry_count + 1 < TABLE / 2); /* one that is met again, cheaper, is a new one */
    uint32_t made = ++e->entry_count;
    e->entries[made] =
        (struct entry){.state = state, .cost = (uint32_t)cost, .next = e->first[cost]};
    e->first[cost] = e->table[at] = made;
}

/* Goes on by some time; what ends in it is waited for at once, which costs nothing. */
static struct state later(const struct tiny *t, struct state s, uint64_t time)
{
    for (uint32_t v = 0; v < t->count; v++) {
        s.rest[v] = s.rest[v] > time ? (uint8_t)(s.rest[v] - time) : 0;
        if (s.rest[v] == 0) {
            s.saving &= (uint8_t) ~(1u << v);
            s.loading &= (uint8_t) ~(1u << v);
        }
    }
    return s;
}

/* When the stream of saves, or of loads, is free. */
static uint64_t stream_rest(const struct tiny *t, const struct state *s, bool loads)
{
    uint32_t set = loads ? s->loading : s->saving;
    uint64_t rest = 0;
    if (!t->space.duplex)
        set = s->loading | s->saving;
    for (uint32_t v = 0; v < t->count; v++)
        rest = (set >> v & 1) != 0 && s->rest[v] > rest ? s->rest[v] : rest;
    return rest;
}

/* Whether `set` is a smallest set of those that may go, without which so many bytes have room. */
static bool makes_room(const struct tiny *t, uint32_t set, uint32_t may_go, uint32_t all,
                       uint64_t bytes, uint64_t limit_bytes)
{
    uint64_t left = bytes_of(t, all & ~set) + bytes;
    bool is_smallest = (set & ~may_go) == 0 && left <= limit_bytes;
    for (uint32_t v = 0; v < t->count && is_smallest; v++)
        is_smallest = (set >> v & 1) == 0 || left + t->size[v] > limit_bytes;
    return is_smallest;
}

/* Whatever is dropped for it: that is never done earlier than it has to be. */
static void save_expand(struct everything *e, const struct state *s, uint64_t cost, uint32_t v)
{
    const struct tiny *t = e->t;
    uint64_t capacity = t->space.capacity_bytes == 0 ? UINT64_MAX : t->space.capacity_bytes;
    for (uint32_t set = 0; set < 1u << t->count; set++) {
        struct state next = *s;
        if (!makes_room(t, set, s->there & ~(uint32_t)(s->saving | s->loading), s->there,
                        t->size[v], capacity))
            continue;
        next.there = (uint8_t)((s->there & ~set) | 1u << v);
        next.saving |= (uint8_t)(1u << v);
        next.rest[v] = (uint8_t)(stream_rest(t, s, false) + transfer_cost(t, v));
        offer(e, later(t, next, 0), cost);
    }
}

static void load_expand(struct everything *e, const struct state *s, uint64_t cost, uint32_t v)
{
    const struct tiny *t = e->t;
    for (uint32_t set = 0; set < 1u << t->count; set++) {
        struct state next = *s;
        if (!makes_room(t, set, s->here & ~(uint32_t)(s->saving | s->loading), s->here, t->size[v],
                        e->limit_bytes))
            continue;
        next.here = (uint8_t)((s->here & ~set) | 1u << v);
        next.loading |= (uint8_t)(1u << v);
        next.rest[v] = (uint8_t)(stream_rest(t, s, true) + transfer_cost(t, v));
        offer(e, later(t, next, 0), cost);
    }
}

static void run_expand(struct everything *e, const struct state *s, uint64_t cost, uint32_t v)
{
    const struct tiny *t = e->t;
    uint32_t busy = s->saving | s->loading | t->inputs[v], may_go = s->here & ~busy;
    for (uint32_t set = 0; set < 1u << t->count; set++) {
        if (!makes_room(t, set, may_go, s->here, t->size[v], e->limit_bytes))
            continue;
        struct state next = later(t, *s, t->cost[v]);
        next.done |= (uint8_t)(1u << v);
        next.here = (uint8_t)((next.here & ~set) | 1u << v);
        offer(e, next, cost + t->cost[v]);
    }
}

static void expand(struct everything *e, const struct state *s, uint64_t cost)
{
    const struct tiny *t = e->t;
    for (uint32_t v = 0; v < t->count; v++) {
        uint32_t bit = 1u << v;
        bool is_next = e->is_free || s->done == bit - 1;
        bool is_busy = ((s->saving | s->loading) & bit) != 0;
        if (is_next && (s->here & bit) == 0 &&
            (t->inputs[v] & ~(uint32_t)(s->here & ~s->loading)) == 0)
            run_expand(e, s, cost, v);
        if (is_busy)
            offer(e, later(t, *s, s->rest[v]), cost + s->rest[v]);
        else if ((s->here & bit) != 0 && (s->there & bit) == 0)
            save_expand(e, s, cost, v);
        else if ((s->here & bit) == 0 && (s->there & bit) != 0)
            load_expand(e, s, cost, v);
    }
}

/* The least cost within the limit and the capacity, or UINT64_MAX; `known_cost`: of one that is, or
 * UINT64_MAX. */
static uint64_t least_cost(const struct tiny *t, uint64_t limit_bytes, bool is_free,
                           uint64_t known_cost)
{
    static struct entry entries[TABLE / 2];
    static uint32_t table[TABLE];
    uint64_t found = UINT64_MAX;
    struct everything e = {.t = t,
                           .limit_bytes = limit_bytes,
                           .is_free = is_free,
                           .known_cost = known_cost,
                           .entries = entries,
                           .table = table};
    memset(table, 0, sizeof table);
    offer(&e, (struct state){.done = 0}, 0);
    for (uint32_t cost = 0; cost <= LATEST && found == UINT64_MAX; cost++) {
        while (e.first[cost] != 0 && found == UINT64_MAX) {
            const struct entry entry = e.entries[e.first[cost]];
            e.first[cost] = entry.next;
            bool is_idle = entry.state.saving == 0 && entry.state.loading == 0;
            if (entry.state.done == (1u << t->count) - 1 && is_idle)
                found = cost;
            else
                expand(&e, &entry.state, cost - rest_cost(t, entry.state.done));
        }
    }
    return found;
}

/* ---- One order ---- */

static struct ul_problem *problem_make(struct ul_arena *arena, const struct tiny *t)
{
    struct ul_problem *problem = ul_problem_new(arena);
    ul_problem_add_offload(problem, &t->space);
    for (uint32_t v = 0; v < t->count; v++) {
        struct ul_plan_value value = ul_plan_value_make("v", UL_PLAN_ACTIVATIONS, t->size[v]);
        ul_problem_add_value(problem, &value);
    }
    for (uint32_t v = 0; v < t->count; v++) {
        uint32_t reads[MAX], count = 0;
        for (uint32_t i = 0; i < v; i++) {
            if ((t->inputs[v] >> i & 1) != 0)
                reads[count++] = i;
        }
        add_simple_step(problem, "s", 0, t->cost[v],
                        &(struct ul_plan_substep){
                            .reads = reads, .read_count = count, .writes = &v, .write_count = 1});
    }
    return problem;
}

struct seen {
    uint32_t tries, found, least, missed;
    uint32_t above;  /* that cost more than every node once, */
    uint32_t bounds; /* and whose bound says so */
    uint32_t plans, least_plans, plan_bounds;
};

static void order_try(const struct tiny *t, uint64_t seed, struct seen *seen)
{
    struct ul_arena arena;
    uint32_t steps[MAX];
    ul_arena_init(&arena);
    struct ul_problem *problem = problem_make(&arena, t);
    struct ul_plan runs = {.alignment_bytes = 1};
    for (uint32_t s = 0; s < t->count; s++)
        steps[s] = s;
    ul_timeline_positions(&arena, problem, steps, &runs);
    ul_timeline_build(&arena, problem, UL_ALIAS_ALL, &runs);
    ul_account_live(&arena, &runs);
    uint64_t capacity = t->space.capacity_bytes, base = ul_problem_min_cost(problem);
    uint64_t bytes = runs.order_lower_bound_bytes;
    for (bool more = true; more; bytes--) {
        struct ul_transfer_search job = {.problem = problem,
                                         .runs = &runs,
                                         .limit_bytes = bytes,
                                         .room_bytes = capacity == 0 ? UINT64_MAX : capacity,
                                         .effort = {.work_limit = 1 << 14, .seed = 1}};
        ul_transfer_place(&arena, &job);
        uint64_t least = least_cost(t, bytes, false, job.positions != NULL ? job.cost : UINT64_MAX);
        more = bytes >= job.floor_bytes && bytes > 1;
        if (job.positions != NULL && job.cost < least)
            fail_msg("seed %llu, %llu bytes: costs %llu, and all others %llu and more",
                     (unsigned long long)seed, (unsigned long long)bytes,
                     (unsigned long long)job.cost, (unsigned long long)least);
        assert_true(least == UINT64_MAX || (least >= base && bytes >= job.floor_bytes));
        assert_true(least != UINT64_MAX || capacity != 0 || bytes < job.floor_bytes);
        assert_true(capacity != 0 || (job.positions != NULL) == (least != UINT64_MAX));
        seen->tries += least != UINT64_MAX;
        seen->found += job.positions != NULL;
        seen->least += job.positions != NULL && job.cost == least;
        seen->above += least != UINT64_MAX && least > base;
        seen->missed += least != UINT64_MAX && job.positions == NULL;
    }
    ul_arena_done(&arena);
}

static void test_an_order_is_served_as_well_as_any(void **state)
{
    (void)state;
    enum { COUNT = 200, MOST = 7 };
    struct seen seen = {.tries = 0};
    for (uint64_t seed = 1; seed <= COUNT; seed++) {
        struct tiny t;
        tiny_make(&t, seed, MOST);
        order_try(&t, seed, &seen);
    }
    /* As it is now: 514 of 520 found, 502 of the least cost. */
    assert_true(seen.tries > 500 && seen.above > seen.tries / 3);
    assert_true(seen.missed <= seen.tries / 50 && seen.least >= seen.found - seen.found / 25);
}

/* ---- All orders and repeats ---- */

static void lists_make(struct ul_arena *arena, const struct tiny *t, struct ul_solve_graph *g,
                       bool users)
{
    uint32_t *first = UL_NEW_ARRAY(arena, uint32_t, t->count + 1), count = 0;
    uint32_t *list = UL_NEW_ARRAY(arena, uint32_t, MAX * MAX);
    for (uint32_t v = 0; v < t->count; v++) {
        for (uint32_t i = 0; i < t->count; i++) {
            bool is_edge = ((users ? t->inputs[i] >> v : t->inputs[v] >> i) & 1) != 0;
            if (is_edge)
                list[count++] = i;
        }
        first[v + 1] = count;
    }
    *(users ? &g->user_first : &g->input_first) = first;
    *(users ? &g->users : &g->inputs) = list;
}

static void graph_make(struct ul_arena *arena, const struct tiny *t, struct ul_solve_graph *g)
{
    *g = (struct ul_solve_graph){.name = "tiny", .node_count = t->count, .other = &t->space};
    g->names = UL_NEW_ARRAY(arena, const char *, t->count);
    g->size_bytes = ul_arena_copy(arena, t->size, t->count * sizeof *t->size);
    g->cost = ul_arena_copy(arena, t->cost, t->count * sizeof *t->cost);
    g->order = UL_NEW_ARRAY(arena, uint32_t, t->count);
    for (uint32_t v = 0; v < t->count; v++) {
        g->names[v] = "node";
        g->order[v] = v;
    }
    lists_make(arena, t, g, false);
    lists_make(arena, t, g, true);
}

/* The same as a program: its packed plan, and what that says of all others. */
static void program_try(struct ul_arena *arena, const struct tiny *t, uint64_t seed, uint64_t bytes,
                        uint64_t least, struct seen *seen)
{
    const struct ul_plan_options options = {
        .budget_bytes = bytes, .alignment_bytes = 1, .work_limit = 1 << 12};
    struct ul_plan plan;
    struct ul_diag diag = {.status = UL_OK};
    struct ul_problem *problem = problem_make(arena, t);
    assert_int_equal(ul_plan_solve(arena, problem, &options, &plan, &diag), UL_OK);
    if (plan.cost_bound > least || (plan.fits && plan.cost < least))
        fail_msg("seed %llu, %llu bytes: a plan of %llu, bound %llu, and the least is %llu",
                 (unsigned long long)seed, (unsigned long long)bytes, (unsigned long long)plan.cost,
                 (unsigned long long)plan.cost_bound, (unsigned long long)least);
    assert_true(!plan.optimal || plan.cost == least);
    seen->plans += plan.fits;
    seen->least_plans += plan.fits && plan.cost == least;
    seen->plan_bounds += plan.fits && plan.cost_bound > plan.base_cost;
}

static void graph_try(const struct tiny *t, uint64_t seed, struct seen *seen)
{
    struct ul_arena arena;
    struct ul_solve_graph graph;
    struct ul_solve_result result;
    struct ul_diag diag = {.status = UL_OK};
    uint64_t peak, cost;
    ul_arena_init(&arena);
    graph_make(&arena, t, &graph);
    bool valid = ul_solve_replay(&graph, graph.order, graph.node_count, &peak, &cost);
    assert_true(valid);
    for (uint64_t bytes = peak; bytes > 1; bytes--) {
        const struct ul_solve_options options = {.budget_bytes = bytes, .work_limit = 1 << 14};
        assert_int_equal(ul_solve_graph_run(&arena, &graph, &options, &result, &diag), UL_OK);
        uint64_t least = least_cost(t, bytes, true, result.fits ? result.cost : UINT64_MAX);
        if (least != UINT64_MAX && result.cost_bound > least)
            fail_msg("seed %llu, %llu bytes: %llu is above the least cost, %llu",
                     (unsigned long long)seed, (unsigned long long)bytes,
                     (unsigned long long)result.cost_bound, (unsigned long long)least);
        assert_true(!result.fits || result.cost >= least);
        assert_true(!result.optimal || result.cost == least);
        assert_true(result.fits || !result.proven || least == UINT64_MAX);
        seen->tries += least != UINT64_MAX;
        seen->found += result.fits;
        seen->least += result.fits && result.cost == least;
        seen->missed += least != UINT64_MAX && !result.fits;
        seen->above += least != UINT64_MAX && least > result.base_cost;
        seen->bounds += result.cost_bound > result.base_cost;
        if (seed % PROGRAMS == 0)
            program_try(&arena, t, seed, bytes, least, seen);
        if (least == UINT64_MAX)
            break;
    }
    ul_arena_done(&arena);
}

static void test_graphs_are_served_as_well_as_any(void **state)
{
    (void)state;
    enum { COUNT = 150, MOST = 6 };
    struct seen seen = {.tries = 0};
    for (uint64_t seed = 1; seed <= COUNT; seed++) {
        struct tiny t;
        tiny_make(&t, seed, MOST);
        graph_try(&t, seed, &seen);
    }
    /* As it is now: 424 of 427 found, 412 of the least cost; 152 of the 181 that cost more than
     * every node once have a bound that says so. */
    assert_true(seen.tries > 400 && seen.above > seen.tries / 3);
    assert_true(seen.missed <= seen.tries / 50 && seen.least >= seen.found - seen.found / 25);
    assert_true(seen.bounds >= seen.above / 2);
    assert_true(seen.plans > 100 && seen.least_plans >= seen.plans - seen.plans / 25);
    assert_true(seen.plan_bounds > seen.plans / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_an_order_is_served_as_well_as_any),
                                       cmocka_unit_test(test_graphs_are_served_as_well_as_any)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
