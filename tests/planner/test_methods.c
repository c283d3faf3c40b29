/* Every method of order and of recomputation by itself: never worse than the published order, the
 * same bytes every time, sequences that replay to what is said of them. */
#include "planner/solve/solve.h"
#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { FORWARD_MAX = 10 };

/* Forward nodes that read the one before them and perhaps an older one, and backward nodes that
 * read what their forward nodes did. */
static void make_text(struct ul_text *text, uint64_t seed, uint32_t forward)
{
    uint64_t state = seed * 19 + 3;
    uint32_t n = 2 * forward + 1;
    ul_text_put(text, "{\"format\":\"ullage-graph\",\"version\":1,\"name\":\"g\",\"nodes\":[");
    for (uint32_t v = 0; v < n; v++)
        ul_text_printf(text, "%s{\"id\":%u,\"name\":\"n\",\"bytes\":%u,\"cost\":%u}",
                       v > 0 ? "," : "", v, v == forward ? 1 : random_below(&state, 20),
                       random_below(&state, 9));
    ul_text_put(text, "],\"edges\":[");
    ul_text_printf(text, "[%u,%u]", forward - 1, forward);
    for (uint32_t v = 1; v < forward; v++) {
        uint32_t other = random_below(&state, v);
        ul_text_printf(text, ",[%u,%u],[%u,%u]", v - 1, v, v - 1, n - 1 - v);
        if (other != v - 1 && random_below(&state, 3) == 0)
            ul_text_printf(text, ",[%u,%u]", other, v);
    }
    for (uint32_t v = 0; v < forward; v++)
        ul_text_printf(text, ",[%u,%u],[%u,%u]", v, n - 1 - v, n - 2 - v, n - 1 - v);
    ul_text_put(text, "],\"order\":[");
    for (uint32_t v = 0; v < n; v++)
        ul_text_printf(text, "%s%u", v > 0 ? "," : "", v);
    ul_text_put(text, "]}");
}

static void make_graph(struct ul_arena *arena, uint64_t seed, struct ul_solve_graph *graph)
{
    struct ul_text text;
    struct ul_diag diag = {.status = UL_OK};
    ul_text_init(&text, arena);
    make_text(&text, seed, 4 + (uint32_t)(seed % (FORWARD_MAX - 3)));
    enum ul_status status = ul_solve_read_json(arena, text.data, text.length, graph, &diag);
    assert_string_equal(diag.text, "");
    assert_int_equal(status, UL_OK);
}

static struct ul_solve_result run_twice(struct ul_arena *arena, const struct ul_solve_graph *graph,
                                        const struct ul_solve_options *options)
{
    struct ul_solve_result first, second;
    uint64_t peak, cost;
    ul_solve_run(arena, graph, options, &first);
    ul_solve_run(arena, graph, options, &second);
    assert_int_equal(first.order_count, second.order_count);
    assert_memory_equal(first.order, second.order, first.order_count * sizeof *first.order);
    assert_string_equal(first.method, second.method);
    assert_int_equal(first.optimal, second.optimal);
    assert_int_equal(first.cost_bound, second.cost_bound);
    assert_true(ul_solve_replay(graph, first.order, first.order_count, &peak, &cost));
    assert_int_equal(peak, first.peak_bytes);
    assert_int_equal(cost, first.cost);
    assert_true(first.peak_bytes <= first.order_peak_bytes);
    assert_true(first.lower_bound_bytes <= first.peak_bytes);
    assert_true(first.cost_bound <= first.cost);
    assert_false(first.stopped_by_time);
    return first;
}

static void test_orders(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_solve_graph graph;
        make_graph(&arena, seed, &graph);
        for (enum ul_plan_order order = UL_ORDER_BEST; order <= UL_ORDER_ILP; order++) {
            struct ul_solve_options options = {.order = order, .work_limit = 1 << 24};
            struct ul_solve_result result = run_twice(&arena, &graph, &options);
            assert_int_equal(result.cost, result.base_cost);
            assert_int_equal(result.recomputes, 0);
            if (order == UL_ORDER_FILE)
                assert_int_equal(result.peak_bytes, result.order_peak_bytes);
        }
        ul_arena_done(&arena);
    }
}

static void test_recomputations(void **state)
{
    (void)state;
    uint32_t fitted[UL_REMAT_ILP + 1] = {0};
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_solve_graph graph;
        uint64_t peak, cost, min = UINT64_MAX, proven = UINT64_MAX;
        make_graph(&arena, seed, &graph);
        assert_true(ul_solve_replay(&graph, graph.order, graph.node_count, &peak, &cost));
        for (enum ul_plan_remat remat = UL_REMAT_BEST; remat <= UL_REMAT_ILP; remat++) {
            struct ul_solve_options options = {
                .remat = remat, .budget_bytes = peak * 7 / 10, .work_limit = 1 << 16};
            struct ul_solve_result result = run_twice(&arena, &graph, &options);
            assert_int_equal(result.fits, result.peak_bytes <= options.budget_bytes);
            fitted[remat] += result.fits;
            if (result.fits && result.cost < min)
                min = result.cost;
            if (result.fits && result.optimal)
                proven = result.cost;
            assert_false(result.optimal && result.optimal_within != NULL);
        }
        assert_true(proven == UINT64_MAX || proven == min);
        ul_arena_done(&arena);
    }
    assert_true(fitted[UL_REMAT_NONE] < fitted[UL_REMAT_GREEDY]);
    assert_true(fitted[UL_REMAT_CHAIN] > 0);
    assert_true(fitted[UL_REMAT_ILP] >= fitted[UL_REMAT_GREEDY]);
    assert_true(fitted[UL_REMAT_BEST] >= fitted[UL_REMAT_ILP]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_recomputations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
