/* SPDX-License-Identifier: Apache-2.0 */
/* The exact search for recomputation against a search over all pairs of sets, and on graphs made
 * like training. */
#include "planner/remat/remat.h"
#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MAX = 8, SETS = 1 << MAX, SEEDS = 500 };

static void graph_alloc(struct ul_arena *arena, struct ul_solve_graph *g, uint32_t n,
                        uint32_t max_edges)
{
    memset(g, 0, sizeof *g);
    g->node_count = n;
    g->size_bytes = UL_NEW_ARRAY(arena, uint64_t, n);
    g->cost = UL_NEW_ARRAY(arena, uint64_t, n);
    g->input_first = UL_NEW_ARRAY(arena, uint32_t, n + 1);
    g->user_first = UL_NEW_ARRAY(arena, uint32_t, n + 1);
    g->inputs = UL_NEW_ARRAY(arena, uint32_t, max_edges);
    g->users = UL_NEW_ARRAY(arena, uint32_t, max_edges);
    g->order = UL_NEW_ARRAY(arena, uint32_t, n);
    for (uint32_t v = 0; v < n; v++)
        g->order[v] = v;
}

/* Lists the users from the inputs. */
static void users_make(struct ul_solve_graph *g)
{
    uint32_t count = 0;
    for (uint32_t u = 0; u < g->node_count; u++) {
        g->user_first[u] = count;
        for (uint32_t v = 0; v < g->node_count; v++) {
            for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++) {
                if (g->inputs[i] == u)
                    g->users[count++] = v;
            }
        }
    }
    g->user_first[g->node_count] = count;
}

/* Every node reads one or two earlier ones, near or far; odd seeds mirror half of the nodes. */
static void make_random(struct ul_arena *arena, uint64_t seed, struct ul_solve_graph *g)
{
    uint64_t state = seed * 977 + 5;
    uint32_t n = MAX - random_below(&state, 3);
    graph_alloc(arena, g, n, 3 * n);
    uint32_t sizes = 2 + random_below(&state, 12), costs = 1 + random_below(&state, 7);
    uint32_t count = 0;
    for (uint32_t v = 0; v < n; v++) {
        g->size_bytes[v] = random_below(&state, sizes);
        g->cost[v] = random_below(&state, costs) * (1 + seed % 3);
        bool mirror = seed % 2 == 1 && v > n / 2;
        uint32_t first = count;
        if (mirror)
            g->inputs[count++] = n - 1 - v;
        if (v > 0 && (!mirror || n - 1 - v != v - 1))
            g->inputs[count++] = random_below(&state, 4) > 0 ? v - 1 : random_below(&state, v);
        if (count == first + 2 && g->inputs[first] == g->inputs[first + 1])
            count--;
        if (!mirror && v > 2 && random_below(&state, 3) == 0 && g->inputs[first] > 0)
            g->inputs[count++] = random_below(&state, g->inputs[first]);
        g->input_first[v + 1] = count;
    }
    users_make(g);
    if (seed % 4 < 2)
        return;
    g->base_bytes = random_below(&state, 4);
    g->working_bytes = UL_NEW_ARRAY(arena, uint64_t, n);
    g->run_once = UL_NEW_ARRAY(arena, bool, n);
    for (uint32_t v = 0; v < n; v++) {
        g->working_bytes[v] = random_below(&state, 3) == 0 ? random_below(&state, 5) : 0;
        g->run_once[v] = random_below(&state, 5) == 0;
    }
}

/* Outputs that may take over an input's bytes, those of some nodes. */
static void in_place_make(struct ul_arena *arena, uint64_t seed, struct ul_solve_graph *g)
{
    uint64_t state = seed * 31 + 1;
    g->in_place = UL_NEW_ARRAY(arena, uint32_t, g->node_count);
    for (uint32_t v = 0; v < g->node_count; v++) {
        uint32_t count = g->input_first[v + 1] - g->input_first[v];
        g->in_place[v] = UL_PLAN_NONE;
        if (count > 0 && random_below(&state, 3) > 0)
            g->in_place[v] = g->inputs[g->input_first[v] + random_below(&state, count)];
    }
}

static uint32_t inputs_of(const struct ul_solve_graph *g, uint32_t v)
{
    uint32_t mask = 0;
    for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++)
        mask |= 1u << g->inputs[i];
    return mask;
}

static uint64_t bytes_of(const struct ul_solve_graph *g, uint32_t mask)
{
    uint64_t sum = g->base_bytes;
    for (uint32_t v = 0; v < g->node_count; v++)
        sum += (mask >> v & 1) != 0 ? g->size_bytes[v] : 0;
    return sum;
}

/* The cheapest way to each pair of (run at least once, resident), dropping being free. */
struct table {
    uint64_t cost[SETS][SETS];
    bool queued[SETS][SETS];
    uint32_t queue[SETS * SETS];
    uint32_t head, length;
};

static void table_offer(struct table *t, uint32_t done, uint32_t live, uint64_t cost)
{
    if (t->cost[done][live] <= cost)
        return;
    t->cost[done][live] = cost;
    if (t->queued[done][live])
        return;
    t->queued[done][live] = true;
    t->queue[(t->head + t->length++) % (SETS * SETS)] = done * SETS + live;
}

static uint64_t shared_bytes(const struct ul_solve_graph *g, uint32_t u, uint32_t v)
{
    return g->size_bytes[u] < g->size_bytes[v] ? g->size_bytes[u] : g->size_bytes[v];
}

/* The least cost within `budget` over all sequences; UINT64_MAX: there is none. */
static uint64_t exhaustive(const struct ul_solve_graph *g, uint64_t budget)
{
    static struct table t;
    uint32_t all = (1u << g->node_count) - 1;
    memset(&t, 0, sizeof t);
    memset(t.cost, 0xFF, sizeof t.cost);
    table_offer(&t, 0, 0, 0);
    while (t.length > 0) {
        uint32_t done = t.queue[t.head] / SETS, live = t.queue[t.head] % SETS;
        t.head = (t.head + 1) % (SETS * SETS);
        t.length--;
        t.queued[done][live] = false;
        uint64_t cost = t.cost[done][live];
        uint64_t bytes = bytes_of(g, live);
        for (uint32_t v = 0; v < g->node_count; v++) {
            uint32_t bit = 1u << v, inputs = inputs_of(g, v);
            uint64_t work = g->working_bytes != NULL ? g->working_bytes[v] : 0;
            uint64_t need = bytes + g->size_bytes[v] + work;
            uint32_t taken = g->in_place != NULL ? g->in_place[v] : UL_PLAN_NONE;
            if ((live & bit) != 0) {
                table_offer(&t, done, live & ~bit, cost);
                continue;
            }
            if ((inputs & live) != inputs ||
                ((done & bit) != 0 && g->run_once != NULL && g->run_once[v]))
                continue;
            if (need <= budget)
                table_offer(&t, done | bit, live | bit, cost + g->cost[v]);
            if (taken != UL_PLAN_NONE && need - shared_bytes(g, taken, v) <= budget)
                table_offer(&t, done | bit, (live | bit) & ~(1u << taken), cost + g->cost[v]);
        }
    }
    return t.cost[all][0];
}

static uint64_t base_cost(const struct ul_solve_graph *g)
{
    uint64_t sum = 0;
    for (uint32_t v = 0; v < g->node_count; v++)
        sum += g->cost[v];
    return sum;
}

static void check_sequence(const struct ul_remat_exact *job)
{
    uint64_t peak, cost;
    assert_true(ul_solve_replay(job->graph, job->sequence, job->count, &peak, &cost));
    assert_true(peak <= job->budget_bytes);
    assert_int_equal(cost, base_cost(job->graph) + job->repeat_cost);
}

typedef void exact_engine(struct ul_remat_exact *job);

/* Whether what the search says about a budget and a limit agrees with the least cost. */
static void check_engine(struct ul_arena *arena, const struct ul_solve_graph *g, uint64_t budget,
                         uint64_t min, uint64_t limit, uint64_t work, exact_engine *engine)
{
    struct ul_remat_exact job = {.graph = g,
                                 .arena = arena,
                                 .budget_bytes = budget,
                                 .repeat_limit = limit,
                                 .state_limit = 20000,
                                 .effort = {.work_limit = work}};
    uint64_t repeats = min == UINT64_MAX ? UINT64_MAX : min - base_cost(g);
    engine(&job);
    if (job.sequence != NULL)
        check_sequence(&job);
    if (repeats < limit)
        assert_true(job.repeat_bound <= repeats);
    if (work != UINT64_MAX && job.outcome == UL_REMAT_UNKNOWN)
        return;
    if (repeats >= limit) {
        assert_int_equal(job.outcome, UL_REMAT_NONE_CHEAPER);
    } else if (work == UINT64_MAX || job.outcome != UL_REMAT_IMPROVED) {
        assert_int_equal(job.outcome, UL_REMAT_OPTIMAL);
        assert_int_equal(job.repeat_cost, repeats);
        assert_int_equal(job.repeat_bound, repeats);
    }
}

static void check_budget(struct ul_arena *arena, const struct ul_solve_graph *g, uint64_t budget,
                         uint64_t min, uint64_t limit, uint64_t work)
{
    check_engine(arena, g, budget, min, limit, work, ul_remat_exact_run);
    check_engine(arena, g, budget, min, limit, work, ul_remat_backward_run);
}

static void compare_all(bool in_place)
{
    uint32_t infeasible = 0, dear = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_solve_graph g;
        uint64_t peak, cost;
        make_random(&arena, seed, &g);
        if (in_place)
            in_place_make(&arena, seed, &g);
        assert_true(ul_solve_replay(&g, g.order, g.node_count, &peak, &cost));
        for (uint64_t less = 1; less <= 9 && less <= peak; less++) {
            uint64_t budget = peak - less;
            uint64_t min = exhaustive(&g, budget);
            uint64_t repeats = min == UINT64_MAX ? 20 : min - base_cost(&g);
            infeasible += min == UINT64_MAX;
            dear += min != UINT64_MAX && repeats > 0;
            check_budget(&arena, &g, budget, min, UINT64_MAX, UINT64_MAX);
            check_budget(&arena, &g, budget, min, UINT64_MAX, 40);
            check_budget(&arena, &g, budget, min, repeats + 1, UINT64_MAX);
            check_budget(&arena, &g, budget, min, repeats, UINT64_MAX);
            if (min == UINT64_MAX)
                break;
        }
        ul_arena_done(&arena);
    }
    assert_true(infeasible > SEEDS / 10 && dear > SEEDS / 10);
}

static void test_equals_exhaustive_search(void **state)
{
    (void)state;
    compare_all(false);
}

static void test_in_place_equals_exhaustive_search(void **state)
{
    (void)state;
    compare_all(true);
}

/* Forward steps in a chain, some with a skip, and the steps back, as in training. */
static void make_training(struct ul_arena *arena, uint64_t seed, uint32_t depth,
                          struct ul_solve_graph *g)
{
    uint64_t state = seed * 131 + 7;
    uint32_t n = 2 * depth + 1;
    graph_alloc(arena, g, n, 5 * n);
    uint32_t count = 0;
    for (uint32_t v = 0; v < n; v++) {
        uint32_t twin = v <= depth ? v : n - 1 - v;
        g->size_bytes[v] = (uint64_t)1024 << random_below(&state, 4);
        if (v > depth)
            g->size_bytes[v] = g->size_bytes[twin];
        g->cost[v] = v == depth ? 1 : 10 + random_below(&state, 90);
        if (v > depth + 1 || (v > depth && twin > 0))
            g->inputs[count++] = twin;
        if (v > depth && twin > 0)
            g->inputs[count++] = twin - 1;
        if (v > 0)
            g->inputs[count++] = v - 1;
        if (v > 3 && v <= depth && random_below(&state, 3) == 0)
            g->inputs[count++] = v - 3;
        g->input_first[v + 1] = count;
    }
    users_make(g);
}

static void test_training_graphs(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_solve_graph g;
        uint64_t peak, cost;
        make_training(&arena, seed, 12, &g);
        assert_true(ul_solve_replay(&g, g.order, g.node_count, &peak, &cost));
        struct ul_remat_exact job = {.graph = &g,
                                     .arena = &arena,
                                     .budget_bytes = peak * 3 / 4,
                                     .repeat_limit = UINT64_MAX,
                                     .state_limit = 20000,
                                     .effort = {.work_limit = 3000000}};
        ul_remat_exact_run(&job);
        assert_int_equal(job.outcome, UL_REMAT_OPTIMAL);
        check_sequence(&job);
        ul_arena_done(&arena);
    }
}

static void test_what_is_not_served(void **state)
{
    (void)state;
    enum { TOO_MANY = 1025 };
    struct ul_arena arena;
    ul_arena_init(&arena);
    struct ul_solve_graph g;
    graph_alloc(&arena, &g, TOO_MANY, 1);
    struct ul_remat_exact job = {.graph = &g,
                                 .arena = &arena,
                                 .budget_bytes = 1000,
                                 .repeat_limit = UINT64_MAX,
                                 .state_limit = 100,
                                 .effort = {.work_limit = 100}};
    ul_remat_exact_run(&job);
    assert_int_equal(job.outcome, UL_REMAT_UNKNOWN);
    ul_arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_exhaustive_search),
        cmocka_unit_test(test_in_place_equals_exhaustive_search),
        cmocka_unit_test(test_training_graphs),
        cmocka_unit_test(test_what_is_not_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
