/* SPDX-License-Identifier: Apache-2.0 */
/* Integer programs: the solver's process, orders against the search over sets, recomputation
 * against exhaustive search in the reduced form. */
#include "planner/order/ilp.h"
#include "planner/order/order.h"
#include "planner/order/order_internal.h"
#include "planner/remat/remat_stages.h"
#include "random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { NODES_MAX = 9 };

/* ---- The solver ---- */

/* A knapsack: as much value as fits, by random weights. */
static struct ul_ilp *make_knapsack(struct ul_arena *arena, uint64_t seed, uint32_t count,
                                    double capacity)
{
    uint64_t state = seed + 1;
    struct ul_ilp *ilp = ul_ilp_new(arena);
    for (uint32_t i = 0; i < count; i++)
        ul_ilp_add_column(ilp, -(double)(1 + random_below(&state, 30)), 0, 1, true);
    ul_ilp_add_row(ilp, -INFINITY, capacity);
    for (uint32_t i = 0; i < count; i++)
        ul_ilp_add_term(ilp, i, 1 + random_below(&state, 20));
    return ilp;
}

static double exhaustive_knapsack(const struct ul_ilp *ilp, double capacity)
{
    double best = 0;
    for (uint32_t set = 0; set < 1u << ilp->column_count; set++) {
        double cost = 0, weight = 0;
        for (uint32_t i = 0; i < ilp->column_count; i++) {
            if ((set >> i & 1) == 0)
                continue;
            cost += ilp->columns[i].cost;
            weight += ilp->term_factors[i];
        }
        if (weight <= capacity && cost < best)
            best = cost;
    }
    return best;
}

static void test_programs_are_solved(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        double capacity = 20 + (double)(seed % 50);
        struct ul_ilp *ilp = make_knapsack(&arena, seed, 10, capacity);
        struct ul_ilp_limits limits = {.memory_bytes = (uint64_t)1 << 28};
        struct ul_ilp_result result;
        double best = exhaustive_knapsack(ilp, capacity);
        assert_int_equal(ul_ilp_solve(ilp, &limits, &result), UL_ILP_OPTIMAL);
        assert_true(fabs(result.cost - best) < 1e-6);
        assert_true(fabs(result.bound - best) < 1e-6);
        assert_int_equal(ul_ilp_relax(ilp, &limits, &result), UL_ILP_OPTIMAL);
        assert_true(result.bound <= best + 1e-6);
        assert_non_null(result.reduced_costs);
        ul_ilp_add_row(ilp, 1, INFINITY); /* nothing of nothing is at least 1 */
        assert_int_equal(ul_ilp_solve(ilp, &limits, &result), UL_ILP_INFEASIBLE);
        assert_null(result.values);
        ul_arena_done(&arena);
    }
}

/* A hard one, far beyond any limit: equality knapsacks of large numbers. */
static struct ul_ilp *make_hard(struct ul_arena *arena)
{
    uint64_t state = 7;
    struct ul_ilp *ilp = ul_ilp_new(arena);
    for (uint32_t i = 0; i < 60; i++)
        ul_ilp_add_column(ilp, 1 + random_below(&state, 100), 0, 1, true);
    for (uint32_t r = 0; r < 5; r++) {
        ul_ilp_add_row(ilp, 15000, 15000);
        for (uint32_t i = 0; i < 60; i++)
            ul_ilp_add_term(ilp, i, 1 + random_below(&state, 1000));
    }
    return ilp;
}

static void test_limits_stop_the_solver(void **state)
{
    (void)state;
    struct ul_arena arena;
    ul_arena_init(&arena);
    struct ul_ilp *ilp = make_hard(&arena);
    struct ul_ilp_result first, second;
    struct ul_ilp_limits counted = {.work = 2000, .memory_bytes = (uint64_t)1 << 28};
    assert_int_equal(ul_ilp_solve(ilp, &counted, &first), UL_ILP_UNKNOWN);
    assert_false(first.stopped_by_time);
    assert_int_equal(ul_ilp_solve(ilp, &counted, &second), UL_ILP_UNKNOWN);
    assert_true(first.work == second.work && first.work >= 2000);
    assert_memory_equal(&first.bound, &second.bound, sizeof first.bound);
    /* What a relaxation did before the limit counts as well. */
    struct ul_ilp_limits few = {.work = 3, .memory_bytes = (uint64_t)1 << 28};
    assert_int_equal(ul_ilp_relax(ilp, &few, &first), UL_ILP_UNKNOWN);
    assert_true(first.work >= 3);
    struct ul_ilp_limits timed = {.wall_seconds = 0.2, .memory_bytes = (uint64_t)1 << 28};
    assert_int_equal(ul_ilp_solve(ilp, &timed, &first), UL_ILP_UNKNOWN);
    assert_true(first.stopped_by_time);
    struct ul_ilp_limits narrow = {.memory_bytes = (uint64_t)1 << 20};
    assert_int_equal(ul_ilp_solve(ilp, &narrow, &first), UL_ILP_UNKNOWN);
    assert_false(first.stopped_by_time);
    /* Nobody is left behind. */
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    ul_arena_done(&arena);
}

/* ---- Graphs ---- */

/* Random nodes in the order 0, 1, ...; with features: scratch, takeovers, a base, effects. */
static void make_graph(struct ul_arena *arena, uint64_t seed, uint32_t n, bool features,
                       struct ul_solve_graph *g)
{
    uint64_t state = seed * 31 + 11;
    *g = (struct ul_solve_graph){.name = "g", .node_count = n};
    g->size_bytes = UL_NEW_ARRAY(arena, uint64_t, n);
    g->cost = UL_NEW_ARRAY(arena, uint64_t, n);
    g->order = UL_NEW_ARRAY(arena, uint32_t, n);
    g->input_first = UL_NEW_ARRAY(arena, uint32_t, n + 1);
    g->user_first = UL_NEW_ARRAY(arena, uint32_t, n + 2);
    g->inputs = UL_NEW_ARRAY(arena, uint32_t, n * n);
    g->users = UL_NEW_ARRAY(arena, uint32_t, n * n);
    uint32_t edges = 0;
    for (uint32_t v = 0; v < n; v++) {
        g->order[v] = v;
        g->size_bytes[v] = random_below(&state, 9);
        g->cost[v] = random_below(&state, 7);
        for (uint32_t u = 0; u < v; u++) {
            if (random_below(&state, 5) < 2)
                g->inputs[edges++] = u;
        }
        g->input_first[v + 1] = edges;
    }
    for (uint32_t e = 0; e < edges; e++)
        g->user_first[g->inputs[e] + 2]++;
    for (uint32_t v = 0; v < n; v++)
        g->user_first[v + 2] += g->user_first[v + 1];
    for (uint32_t v = 0; v < n; v++) {
        for (uint32_t e = g->input_first[v]; e < g->input_first[v + 1]; e++)
            g->users[g->user_first[g->inputs[e] + 1]++] = v;
    }
    if (!features)
        return;
    g->base_bytes = random_below(&state, 5);
    g->working_bytes = UL_NEW_ARRAY(arena, uint64_t, n);
    g->in_place = UL_NEW_ARRAY(arena, uint32_t, n);
    g->run_once = UL_NEW_ARRAY(arena, bool, n);
    for (uint32_t v = 0; v < n; v++) {
        uint32_t inputs = g->input_first[v + 1] - g->input_first[v];
        g->working_bytes[v] = random_below(&state, 2) * random_below(&state, 6);
        g->run_once[v] = random_below(&state, 6) == 0;
        g->in_place[v] = UL_PLAN_NONE;
        if (inputs > 0 && random_below(&state, 2) == 0)
            g->in_place[v] = g->inputs[g->input_first[v] + random_below(&state, inputs)];
    }
}

static void test_orders_agree(void **state)
{
    (void)state;
    uint32_t better = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_solve_graph graph;
        make_graph(&arena, seed, 2 + (uint32_t)(seed % (NODES_MAX - 1)), seed % 2 == 0, &graph);
        struct ul_order_run sets = {.graph = &graph, .method = UL_ORDER_DP};
        struct ul_order_run program = {.graph = &graph, .method = UL_ORDER_ILP};
        uint64_t peak, cost;
        ul_order_run(&arena, &sets);
        ul_order_run(&arena, &program);
        assert_int_equal(program.peak_bytes, sets.peak_bytes);
        assert_int_equal(program.lower_bytes, sets.lower_bytes);
        assert_true(ul_solve_replay(&graph, graph.order, graph.node_count, &peak, &cost));
        better += program.peak_bytes < peak;
        ul_arena_done(&arena);
    }
    assert_true(better > 50);
}

/* ---- Recomputation ---- */

enum { PAIRS_MAX = 14 };

/* The cheapest sequence of the reduced form within the budget: every choice of what runs again in
 * which stage. */
struct rerun {
    uint32_t stage, node;
};

static uint32_t reruns_list(const struct ul_solve_graph *g, struct rerun *reruns)
{
    struct ul_arena arena;
    struct ul_stages stages;
    uint32_t count = 0;
    ul_arena_init(&arena);
    ul_stages_init(&arena, g, g->order, &stages);
    for (uint32_t t = stages.gap; t < g->node_count; t++) {
        for (uint32_t i = 0; i < t; i++) {
            if (t > stages.touch[i] + 1 && count <= PAIRS_MAX)
                reruns[count++] = (struct rerun){t, i};
        }
    }
    ul_arena_done(&arena);
    return count;
}

static uint64_t exhaustive_reduced(const struct ul_solve_graph *g, const struct rerun *reruns,
                                   uint32_t count, uint64_t budget)
{
    uint64_t best = UINT64_MAX;
    for (uint32_t choice = 0; choice < 1u << count; choice++) {
        uint32_t sequence[NODES_MAX + PAIRS_MAX];
        uint32_t length = 0;
        for (uint32_t t = 0; t < g->node_count; t++) {
            for (uint32_t k = 0; k < count; k++) {
                if (reruns[k].stage == t && (choice >> k & 1) != 0)
                    sequence[length++] = reruns[k].node;
            }
            sequence[length++] = t;
        }
        uint64_t peak, cost;
        bool valid = ul_solve_replay(g, sequence, length, &peak, &cost);
        if (valid && peak <= budget && cost < best)
            best = cost;
    }
    return best;
}

static void check_reduced(struct ul_arena *arena, const struct ul_solve_graph *g, uint64_t budget,
                          uint64_t best, uint64_t cutoff)
{
    struct ul_ilp_limits limits = {.memory_bytes = (uint64_t)1 << 28};
    struct ul_remat_ilp task = {.graph = g,
                                .order = g->order,
                                .budget_bytes = budget,
                                .cutoff_cost = cutoff,
                                .node_limit = NODES_MAX,
                                .column_limit = 10000,
                                .limits = &limits};
    if (!ul_remat_ilp(arena, &task)) {
        assert_true(budget <= g->base_bytes);
        return;
    }
    assert_true(task.proven);
    assert_int_equal(task.sequence != NULL, best < cutoff);
    if (task.sequence == NULL)
        return;
    uint64_t peak, cost;
    assert_true(ul_solve_replay(g, task.sequence, task.count, &peak, &cost));
    assert_true(peak <= budget);
    assert_int_equal(cost, best);
    assert_int_equal(task.cost, best);
}

static void test_reduced_form_is_exact(void **state)
{
    (void)state;
    uint32_t recomputed = 0, barred = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_solve_graph graph;
        struct rerun reruns[PAIRS_MAX + 1];
        uint64_t peak, base;
        make_graph(&arena, seed, 5 + (uint32_t)(seed % 3), seed % 2 == 0, &graph);
        assert_true(ul_solve_replay(&graph, graph.order, graph.node_count, &peak, &base));
        uint32_t count = reruns_list(&graph, reruns);
        for (uint64_t budget = peak; count <= PAIRS_MAX && budget + 6 > peak && budget > 0;
             budget -= 2) {
            uint64_t best = exhaustive_reduced(&graph, reruns, count, budget);
            recomputed += best != UINT64_MAX && best > base;
            barred += best == UINT64_MAX;
            check_reduced(&arena, &graph, budget, best, UINT64_MAX);
            if (best != UINT64_MAX) {
                check_reduced(&arena, &graph, budget, best, best);
                check_reduced(&arena, &graph, budget, best, best + 1);
                check_reduced(&arena, &graph, budget, best, best + 5);
            }
            if (budget < 2)
                break;
        }
        ul_arena_done(&arena);
    }
    assert_true(recomputed > 50 && barred > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs_are_solved),
        cmocka_unit_test(test_limits_stop_the_solver),
        cmocka_unit_test(test_orders_agree),
        cmocka_unit_test(test_reduced_form_is_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
