/* SPDX-License-Identifier: Apache-2.0 */
/* Orders and recomputation against exhaustive search on small random graphs. */
#include "planner/solve/solve.h"
#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { NODES = 6, SETS = 1 << NODES };

/* A random graph through the JSON reader, so that this is tested as well. */
static void make_graph(struct ul_arena *arena, uint64_t seed, struct ul_solve_graph *graph)
{
    uint64_t state = seed * 131 + 3;
    struct ul_text text;
    ul_text_init(&text, arena);
    ul_text_put(&text, "{\"format\":\"ullage-graph\",\"version\":1,\"name\":\"g\",\"nodes\":[");
    for (uint32_t v = 0; v < NODES; v++)
        ul_text_printf(&text, "%s{\"id\":%u,\"name\":\"n\",\"bytes\":%u,\"cost\":%u}",
                       v > 0 ? "," : "", v, random_below(&state, 9), random_below(&state, 5));
    ul_text_put(&text, "],\"edges\":[");
    bool first = true;
    for (uint32_t v = 1; v < NODES; v++) {
        for (uint32_t u = 0; u < v; u++) {
            if (random_below(&state, 5) >= 2)
                continue;
            ul_text_printf(&text, "%s[%u,%u]", first ? "" : ",", u, v);
            first = false;
        }
    }
    ul_text_put(&text, "],\"order\":[0,1,2,3,4,5]}");
    struct ul_diag diag = {.status = UL_OK};
    enum ul_status status = ul_solve_read_json(arena, text.data, text.length, graph, &diag);
    assert_string_equal(diag.text, "");
    assert_int_equal(status, UL_OK);
}

static uint32_t input_mask(const struct ul_solve_graph *g, uint32_t v)
{
    uint32_t mask = 0;
    for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++)
        mask |= 1u << g->inputs[i];
    return mask;
}

static uint64_t mask_bytes(const struct ul_solve_graph *g, uint32_t mask)
{
    uint64_t sum = 0;
    for (uint32_t v = 0; v < NODES; v++)
        sum += (mask >> v & 1) != 0 ? g->size_bytes[v] : 0;
    return sum;
}

/* The least cost within `budget` over all sequences: cheapest way to each pair of (run at least
 * once, resident), dropping being free. UINT64_MAX: there is none. */
static uint64_t exhaustive_cost(const struct ul_solve_graph *g, uint64_t budget)
{
    static uint64_t best[SETS][SETS];
    memset(best, 0xFF, sizeof best);
    best[0][0] = 0;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t done = 0; done < SETS; done++) {
            for (uint32_t live = SETS; live-- > 0;) {
                uint64_t cost = best[done][live];
                if (cost == UINT64_MAX)
                    continue;
                for (uint32_t v = 0; v < NODES; v++) {
                    uint32_t bit = 1u << v;
                    if ((live & bit) != 0 && best[done][live & ~bit] > cost) {
                        best[done][live & ~bit] = cost;
                        changed = true;
                    }
                    uint32_t inputs = input_mask(g, v);
                    if ((live & bit) != 0 || (inputs & live) != inputs ||
                        mask_bytes(g, live | bit) > budget)
                        continue;
                    if (best[done | bit][live | bit] > cost + g->cost[v]) {
                        best[done | bit][live | bit] = cost + g->cost[v];
                        changed = true;
                    }
                }
            }
        }
    }
    return best[SETS - 1][0];
}

/* The least peak over the orders of every node once. */
static uint64_t exhaustive_peak(const struct ul_solve_graph *g, uint32_t *order, uint32_t count,
                                uint64_t best)
{
    if (count == NODES) {
        uint64_t peak, cost;
        assert_true(ul_solve_replay(g, order, NODES, &peak, &cost));
        return peak < best ? peak : best;
    }
    uint32_t done = 0;
    for (uint32_t i = 0; i < count; i++)
        done |= 1u << order[i];
    for (uint32_t v = 0; v < NODES; v++) {
        uint32_t inputs = input_mask(g, v);
        if ((done >> v & 1) != 0 || (inputs & done) != inputs)
            continue;
        order[count] = v;
        best = exhaustive_peak(g, order, count + 1, best);
    }
    return best;
}

static void test_orders_are_optimal(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 500; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_solve_graph graph;
        make_graph(&arena, seed, &graph);
        uint32_t order[NODES];
        uint64_t min = exhaustive_peak(&graph, order, 0, UINT64_MAX);
        struct ul_solve_options options = {.seed = 0};
        struct ul_solve_result result;
        ul_solve_run(&arena, &graph, &options, &result);
        assert_int_equal(result.peak_bytes, min);
        assert_true(result.optimal || result.optimal_within != NULL);
        for (enum ul_plan_order method = UL_ORDER_FILE; method <= UL_ORDER_BEAM; method++) {
            options.order = method;
            ul_solve_run(&arena, &graph, &options, &result);
            assert_true(result.peak_bytes >= min);
            bool makes_own = method != UL_ORDER_FILE && method != UL_ORDER_DP;
            assert_true(makes_own || result.peak_bytes <= result.order_peak_bytes);
            assert_true(result.lower_bound_bytes <= min);
        }
        ul_arena_done(&arena);
    }
}

static void test_budgets_are_kept(void **state)
{
    (void)state;
    uint32_t solved = 0, feasible = 0;
    for (uint64_t seed = 0; seed < 150; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_solve_graph graph;
        make_graph(&arena, seed, &graph);
        uint64_t peak, cost;
        assert_true(ul_solve_replay(&graph, graph.order, NODES, &peak, &cost));
        for (uint64_t budget = peak > 3 ? peak - 3 : 1; budget <= peak; budget++) {
            uint64_t min = exhaustive_cost(&graph, budget);
            struct ul_solve_options options = {.budget_bytes = budget, .work_limit = 20000};
            struct ul_solve_result result;
            ul_solve_run(&arena, &graph, &options, &result);
            assert_true(ul_solve_replay(&graph, result.order, result.order_count, &peak, &cost));
            assert_int_equal(peak, result.peak_bytes);
            assert_int_equal(cost, result.cost);
            assert_int_equal(result.fits, peak <= budget);
            feasible += min != UINT64_MAX;
            solved += result.fits && result.cost == min;
            if (result.fits)
                assert_true(result.cost >= min);
            else if (result.proven)
                assert_true(min == UINT64_MAX);
            if (result.fits && result.optimal)
                assert_int_equal(result.cost, min);
        }
        ul_arena_done(&arena);
    }
    assert_true(solved * 100 >= feasible * 90);
}

static void test_bad_graphs_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "", "{", "[]", "{\"format\":\"ullage-graph\",\"version\":2}",
        "{\"format\":\"ullage-graph\",\"version\":1,\"nodes\":[{\"id\":1,\"bytes\":1,\"cost\":1}],"
        "\"edges\":[],\"order\":[0]}",
        "{\"format\":\"ullage-graph\",\"version\":1,\"nodes\":[{\"id\":0,\"bytes\":-1,\"cost\":1}],"
        "\"edges\":[],\"order\":[0]}",
        "{\"format\":\"ullage-graph\",\"version\":1,\"nodes\":[{\"id\":0,\"bytes\":1,\"cost\":1}],"
        "\"edges\":[[0,0]],\"order\":[0]}",
        "{\"format\":\"ullage-graph\",\"version\":1,\"nodes\":[{\"id\":0,\"bytes\":1,\"cost\":1}],"
        "\"edges\":[],\"order\":[]}",
        /* repeats of it would cost more than 64 bits hold */
        "{\"format\":\"ullage-graph\",\"version\":1,\"nodes\":[{\"id\":0,\"bytes\":1,"
        "\"cost\":1152921504606846976}],\"edges\":[],\"order\":[0]}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_solve_graph graph;
        struct ul_diag diag = {.status = UL_OK};
        assert_int_equal(ul_solve_read_json(&arena, texts[i], strlen(texts[i]), &graph, &diag),
                         UL_INVALID);
        assert_true(diag.text[0] != '\0');
        ul_arena_done(&arena);
    }
}

/* A chain of six and its way back, which reads the chain in reverse. */
static const char chain_text[] =
    "{\"format\":\"ullage-graph\",\"version\":1,\"nodes\":["
    "{\"id\":0,\"bytes\":10,\"cost\":1},{\"id\":1,\"bytes\":10,\"cost\":1},"
    "{\"id\":2,\"bytes\":10,\"cost\":1},{\"id\":3,\"bytes\":10,\"cost\":1},"
    "{\"id\":4,\"bytes\":10,\"cost\":1},{\"id\":5,\"bytes\":10,\"cost\":1},"
    "{\"id\":6,\"bytes\":5,\"cost\":1},{\"id\":7,\"bytes\":5,\"cost\":1},"
    "{\"id\":8,\"bytes\":5,\"cost\":1},{\"id\":9,\"bytes\":5,\"cost\":1},"
    "{\"id\":10,\"bytes\":5,\"cost\":1},{\"id\":11,\"bytes\":5,\"cost\":1}],"
    "\"edges\":[[0,1],[1,2],[2,3],[3,4],[4,5],[5,6],[4,7],[6,7],[3,8],[7,8],[2,9],[8,9],[1,10],"
    "[9,10],[0,11],[10,11]],\"order\":[0,1,2,3,4,5,6,7,8,9,10,11]}";

/* Below what a step needs (20) and below what any schedule needs (25), both are proven, and the
 * smallest budget named is one that works. */
static void test_misfits_name_what_works(void **state)
{
    (void)state;
    struct ul_arena arena;
    ul_arena_init(&arena);
    struct ul_solve_graph graph;
    struct ul_diag diag = {.status = UL_OK};
    assert_int_equal(ul_solve_read_json(&arena, chain_text, sizeof chain_text - 1, &graph, &diag),
                     UL_OK);
    for (uint64_t budget = 19; budget <= 25; budget += 3) {
        struct ul_solve_options options = {.budget_bytes = budget};
        struct ul_solve_result result;
        ul_solve_run(&arena, &graph, &options, &result);
        assert_true(result.proven);
        assert_true(result.fits == (budget == 25));
        assert_int_equal(result.smallest_budget_bytes, 25);
        assert_true(result.cost_bound <= result.cost);
    }
    ul_arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders_are_optimal),
        cmocka_unit_test(test_budgets_are_kept),
        cmocka_unit_test(test_bad_graphs_are_refused),
        cmocka_unit_test(test_misfits_name_what_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
