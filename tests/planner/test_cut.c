/* SPDX-License-Identifier: Apache-2.0 */
/* What smallest cuts keep, checked against every set, for a network and for a forward pass at a
 * price; and the plans that they make for random problems. */
#include "oracle.h"
#include "planner/remat/remat_internal.h"
#include "planner/solve/solve.h"
#include "planner/solve/solve_internal.h"
#include "random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- Networks ---- */

static uint64_t cut_capacity(const struct ul_flow *flow, uint32_t before)
{
    uint64_t sum = 0;
    for (uint32_t e = 0; e < flow->edge_count; e++)
        if ((before >> flow->from[e] & 1) != 0 && (before >> flow->to[e] & 1) == 0)
            sum += flow->capacity[e];
    return sum;
}

/* Cuts twice, the second time with other capacities: the cut takes least, and of all least cuts it
 * is the nearest to the source. */
static void test_networks_are_cut_at_least(void **state)
{
    (void)state;
    enum { NODES_MAX = 8, EDGES_MAX = 20 };
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct ul_arena arena;
        struct ul_flow flow;
        uint64_t random = seed * 31 + 7;
        ul_arena_init(&arena);
        uint32_t n = 2 + random_below(&random, NODES_MAX - 1);
        uint32_t edges = random_below(&random, EDGES_MAX);
        bool *is_before = UL_NEW_ARRAY(&arena, bool, n);
        ul_flow_init(&flow, &arena, n, EDGES_MAX);
        for (uint32_t e = 0; e < edges; e++)
            ul_flow_edge(&flow, random_below(&random, n), random_below(&random, n), 0);
        for (uint32_t round = 0; round < 2; round++) {
            uint64_t best = UINT64_MAX;
            uint32_t nearest = UINT32_MAX;
            for (uint32_t e = 0; e < edges; e++)
                flow.capacity[e] = random_below(&random, 6);
            uint64_t found = ul_flow_cut(&flow, &arena, 0, n - 1, is_before);
            for (uint32_t set = 1; set < 1u << (n - 1); set += 2) {
                uint64_t sum = cut_capacity(&flow, set);
                nearest = sum < best ? set : sum == best ? nearest & set : nearest;
                best = sum < best ? sum : best;
            }
            assert_int_equal(found, best);
            for (uint32_t v = 0; v < n; v++)
                assert_int_equal(is_before[v], nearest >> v & 1);
        }
        ul_arena_done(&arena);
    }
}

/* ---- Sets ---- */

enum { FORWARD_MAX = 9 };

/* Forward nodes that read one or two before them, and backward nodes that read the one before and
 * some of the forward ones. */
static void make_graph(struct ul_arena *arena, uint64_t seed, uint32_t forward,
                       struct ul_solve_graph *graph)
{
    uint64_t random = seed * 17 + 3;
    struct ul_text text;
    struct ul_diag diag = {.status = UL_OK};
    ul_text_init(&text, arena);
    ul_text_put(&text, "{\"format\":\"ullage-graph\",\"version\":1,\"name\":\"g\",\"nodes\":[");
    for (uint32_t v = 0; v < 2 * forward; v++)
        ul_text_printf(&text, "%s{\"id\":%u,\"name\":\"n\",\"bytes\":%u,\"cost\":%u}",
                       v > 0 ? "," : "", v, random_below(&random, 20), random_below(&random, 30));
    ul_text_printf(&text, "],\"edges\":[[%u,%u]", forward - 1, forward);
    for (uint32_t v = 1; v < 2 * forward; v++) {
        bool back = v >= forward;
        uint32_t near = back ? 2 * forward - 1 - v : v - 1;
        uint32_t far = random_below(&random, back ? forward : v);
        if (v != forward)
            ul_text_printf(&text, ",[%u,%u]", v - 1, v);
        if (back && near != v - 1)
            ul_text_printf(&text, ",[%u,%u]", near, v);
        if (far != near && far != v - 1 && random_below(&random, 3) == 0)
            ul_text_printf(&text, ",[%u,%u]", far, v);
    }
    ul_text_put(&text, "],\"order\":[");
    for (uint32_t v = 0; v < 2 * forward; v++)
        ul_text_printf(&text, "%s%u", v > 0 ? "," : "", v);
    ul_text_put(&text, "]}");
    enum ul_status status = ul_solve_read_json(arena, text.data, text.length, graph, &diag);
    assert_string_equal(diag.text, "");
    assert_int_equal(status, UL_OK);
}

/* What a set takes: its bytes at a price, and what else is needed at its cost. INFINITY: it would
 * have something run again that may not. */
static double set_cost(const struct ul_solve_graph *g, uint32_t forward, const bool *once,
                       uint32_t kept, double price)
{
    uint32_t needed = 0;
    double sum = 0;
    for (uint32_t v = 2 * forward; v-- > 0;) {
        bool is_inside = v < forward && g->size_bytes[v] > 0;
        bool again = is_inside && (needed >> v & 1) != 0 && (kept >> v & 1) == 0;
        sum += is_inside && (kept >> v & 1) != 0 ? price * (double)g->size_bytes[v] : 0;
        sum += again ? (double)g->cost[v] : 0;
        if (again && once[v])
            return INFINITY;
        for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++)
            needed |= again || v >= forward ? 1u << g->inputs[i] : 0;
    }
    return sum;
}

static void test_sets_take_least(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct ul_arena arena;
        struct ul_solve_graph graph;
        struct ul_cut_set set;
        bool is_forward[2 * FORWARD_MAX] = {false}, once[2 * FORWARD_MAX] = {false};
        ul_arena_init(&arena);
        uint32_t forward = 3 + (uint32_t)(seed % (FORWARD_MAX - 2));
        make_graph(&arena, seed, forward, &graph);
        for (uint32_t v = 0; v < forward; v++) {
            is_forward[v] = true;
            once[v] = (seed + v) % 7 == 0;
        }
        graph.run_once = once;
        ul_cut_set_init(&set, &arena, &graph, graph.order, is_forward);
        for (int32_t exponent = -8; exponent <= 8; exponent++) {
            double price = exp2(exponent) * set.cost_sum / set.bytes_sum, best = INFINITY;
            uint64_t bytes = ul_cut_set_at(&set, exponent, 0), kept_bytes = 0;
            uint32_t kept = 0;
            for (uint32_t v = 0; v < forward; v++) {
                kept |= set.is_kept[v] ? 1u << v : 0;
                kept_bytes += set.is_kept[v] ? graph.size_bytes[v] : 0;
            }
            for (uint32_t other = 0; other < 1u << forward; other++)
                best = fmin(best, set_cost(&graph, forward, once, other, price));
            double found = set_cost(&graph, forward, once, kept, price);
            assert_int_equal(bytes, kept_bytes);
            assert_true(isfinite(found) && found <= best + 1e-6 * (1 + best));
        }
        ul_arena_done(&arena);
    }
}

/* Without a word on what is forward it is found where most bytes wait; what comes out replays. */
static void test_sequences_hold_the_budget(void **state)
{
    (void)state;
    uint32_t found = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct ul_arena arena;
        struct ul_solve_graph graph;
        uint64_t whole, peak, base, cost;
        ul_arena_init(&arena);
        make_graph(&arena, seed, FORWARD_MAX, &graph);
        assert_true(ul_solve_replay(&graph, graph.order, graph.node_count, &whole, &base));
        for (uint32_t tenths = 10; tenths >= 6; tenths--) {
            const uint32_t *const orders[] = {graph.order};
            struct ul_remat remat = {.graph = &graph,
                                     .budget_bytes = whole * tenths / 10,
                                     .capacity = graph.node_count * 8 + 1000,
                                     .effort = {.work_limit = 1 << 20},
                                     .cost = UINT64_MAX,
                                     .smallest_peak_bytes = whole};
            remat.sequence = UL_NEW_ARRAY(&arena, uint32_t, remat.capacity);
            ul_remat_run_cut(&remat, &(struct ul_remat_orders){.orders = orders, .count = 1},
                             UL_TURN_NONE);
            if (tenths == 10)
                assert_int_equal(remat.cost, base);
            if (remat.cost == UINT64_MAX) {
                assert_non_null(remat.why_not);
                continue;
            }
            assert_true(ul_solve_replay(&graph, remat.sequence, remat.count, &peak, &cost));
            assert_true(peak <= remat.budget_bytes && cost == remat.cost);
            found += cost > base;
        }
        ul_arena_done(&arena);
    }
    assert_true(found > 50);
}

/* ---- Plans ---- */

static void plan_check(struct ul_arena *arena, const struct ul_problem *problem,
                       enum ul_plan_remat remat, uint64_t budget_bytes, uint32_t *repeats)
{
    struct oracle oracle;
    struct ul_plan plan;
    struct ul_diag diag = {.status = UL_OK};
    struct ul_plan_options options = {
        .remat = remat, .budget_bytes = budget_bytes, .work_limit = 20000};
    enum ul_status status = ul_plan_solve(arena, problem, &options, &plan, &diag);
    assert_string_equal(diag.text, "");
    assert_int_equal(status, UL_OK);
    oracle_init(&oracle, arena, problem);
    assert_true(oracle_accepts(&oracle, &plan));
    *repeats += plan.fits && plan.position_count > problem->step_count;
}

/* Problems of all kinds, some of whose values are said to be kept for a backward pass. */
static void test_plans_mean_the_same(void **state)
{
    (void)state;
    uint32_t repeats = 0;
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct ul_arena arena;
        struct ul_plan whole;
        struct ul_diag diag = {.status = UL_OK};
        const struct ul_plan_options options = {.work_limit = 20000};
        uint64_t random = seed * 3 + 1;
        ul_arena_init(&arena);
        struct ul_problem *problem = random_problem(&arena, seed, 24);
        for (uint32_t v = 0; v < problem->value_count; v++)
            if (problem->values[v].class == UL_PLAN_ACTIVATIONS && random_below(&random, 3) == 0)
                problem->values[v].class = UL_PLAN_SAVED;
        assert_int_equal(ul_plan_without_budget(&arena, problem, &options, &whole, &diag), UL_OK);
        for (uint32_t tenths = 9; tenths >= 5; tenths -= 2) {
            uint64_t budget = whole.reserved_bytes[0] * tenths / 10;
            plan_check(&arena, problem, UL_REMAT_CUT, budget, &repeats);
            plan_check(&arena, problem, UL_REMAT_BEST, budget, &repeats);
        }
        ul_arena_done(&arena);
    }
    assert_true(repeats > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_networks_are_cut_at_least),
        cmocka_unit_test(test_sets_take_least),
        cmocka_unit_test(test_sequences_hold_the_budget),
        cmocka_unit_test(test_plans_mean_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
