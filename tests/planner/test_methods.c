/* SPDX-License-Identifier: Apache-2.0 */
/* Every method of order and of recomputation by itself: never worse than the published order, the
 * same bytes every time, sequences that replay to what is said of them, and plans that name it. */
#include "planner/pack/pack.h"
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

/* These keep the order that they make, be it worse than the published one. */
static bool makes_own(enum ul_plan_order order)
{
    return order == UL_ORDER_GREEDY || order == UL_ORDER_DFS || order == UL_ORDER_BEAM;
}

/* A plan calls a method by its row's name, and perhaps says more after a colon. */
static void assert_names(enum ul_method_kind kind, uint32_t constant, const char *said)
{
    const char *name = ul_method_get(kind, constant)->name;
    size_t length = strlen(name);
    if (strncmp(said, name, length) != 0 || (said[length] != '\0' && said[length] != ':'))
        fail_msg("\"%s\" does not name \"%s\"", said, name);
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
    assert_true(first.peak_bytes <= first.order_peak_bytes || makes_own(options->order));
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
        for (enum ul_plan_order order = UL_ORDER_BEST; order < UL_ORDER_COUNT; order++) {
            struct ul_solve_options options = {.order = order, .work_limit = 1 << 24};
            struct ul_solve_result result = run_twice(&arena, &graph, &options);
            assert_int_equal(result.cost, result.base_cost);
            assert_int_equal(result.recomputes, 0);
            if (order != UL_ORDER_BEST)
                assert_names(UL_METHOD_ORDER, order, result.method);
            if (order == UL_ORDER_FILE)
                assert_int_equal(result.peak_bytes, result.order_peak_bytes);
        }
        ul_arena_done(&arena);
    }
}

static void test_recomputations(void **state)
{
    (void)state;
    uint32_t fitted[UL_REMAT_COUNT] = {0};
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_solve_graph graph;
        uint64_t peak, cost, min = UINT64_MAX, proven = UINT64_MAX;
        make_graph(&arena, seed, &graph);
        assert_true(ul_solve_replay(&graph, graph.order, graph.node_count, &peak, &cost));
        for (enum ul_plan_remat remat = UL_REMAT_BEST; remat < UL_REMAT_COUNT; remat++) {
            struct ul_solve_options options = {
                .remat = remat, .budget_bytes = peak * 7 / 10, .work_limit = 1 << 16};
            struct ul_solve_result result = run_twice(&arena, &graph, &options);
            assert_int_equal(result.fits, result.peak_bytes <= options.budget_bytes);
            if (remat != UL_REMAT_BEST && remat != UL_REMAT_NONE)
                assert_names(UL_METHOD_REMAT, remat, result.method);
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

/* ---- The methods that plans name ---- */

/* Forward steps in a chain and the steps back, each of which reads its forward step's input;
 * `skips`: every step reads a value of the very first too, so that it is no chain of blocks. */
static struct ul_problem *make_training(struct ul_arena *arena, uint32_t depth, bool skips)
{
    struct ul_problem *problem = ul_problem_new(arena);
    struct ul_plan_value input = ul_plan_value_make("x", UL_PLAN_INPUTS, 64);
    uint32_t *forward = UL_NEW_ARRAY(arena, uint32_t, depth + 1);
    input.live_from_start = true;
    forward[0] = ul_problem_add_value(problem, &input);
    uint32_t last = forward[0];
    for (uint32_t i = 0; i < 2 * depth; i++) {
        bool back = i >= depth;
        struct ul_plan_value value =
            ul_plan_value_make("v", UL_PLAN_ACTIVATIONS, back ? 64 : 1024 + 64 * (i % 3));
        value.live_to_end = i + 1 == 2 * depth;
        uint32_t made = ul_problem_add_value(problem, &value);
        uint32_t reads[3] = {last};
        struct ul_plan_substep substep = {
            .reads = reads, .writes = &made, .read_count = 1, .write_count = 1};
        if (back && !skips)
            reads[substep.read_count++] = forward[2 * depth - 1 - i];
        else if (back)
            reads[substep.read_count++] = forward[i - depth];
        add_simple_step(problem, "s", 0, 10 + i % 7, &substep);
        last = made;
        if (!back)
            forward[i + 1] = made;
    }
    return problem;
}

static struct ul_plan plan_by(struct ul_arena *arena, const struct ul_problem *problem,
                              enum ul_plan_remat remat, uint64_t budget_bytes)
{
    struct ul_plan plan;
    struct ul_diag diag = {.status = UL_OK};
    struct ul_plan_options options = {.remat = remat, .budget_bytes = budget_bytes};
    enum ul_status status = ul_plan_solve(arena, problem, &options, &plan, &diag);
    assert_string_equal(diag.text, "");
    assert_int_equal(status, UL_OK);
    return plan;
}

/* A plan within a budget names the engine that made it, and each engine has its own words. */
static void test_named_methods_run(void **state)
{
    (void)state;
    static const char *const words[UL_REMAT_COUNT] = {[UL_REMAT_GREEDY] = "walk",
                                                      [UL_REMAT_SEARCH] = "annealed sequence",
                                                      [UL_REMAT_CHAIN] = "checkpoints on a chain",
                                                      [UL_REMAT_ILP] = "integer program",
                                                      [UL_REMAT_CUT] = "smallest cut",
                                                      [UL_REMAT_EXACT] = "computed and resident"};
    struct ul_arena arena;
    ul_arena_init(&arena);
    struct ul_problem *problem = make_training(&arena, 10, false);
    uint64_t whole = plan_by(&arena, problem, UL_REMAT_NONE, 0).reserved_bytes[0];
    uint64_t budget = whole * 7 / 10;
    struct ul_plan best = plan_by(&arena, problem, UL_REMAT_BEST, budget);
    assert_true(best.fits && best.cost > best.base_cost);
    assert_true(best.cost_bound > ul_problem_min_cost(problem));
    assert_string_equal(best.cost_bound_method, "exact search from the end");
    for (enum ul_plan_remat remat = UL_REMAT_NONE; remat < UL_REMAT_COUNT; remat++) {
        struct ul_plan plan = plan_by(&arena, problem, remat, budget);
        assert_names(UL_METHOD_REMAT, remat, plan.remat_method);
        assert_int_equal(plan.fits, words[remat] != NULL);
        if (words[remat] == NULL)
            continue;
        assert_non_null(strstr(plan.remat_method, words[remat]));
        assert_true(plan.cost >= plan.base_cost && plan.cost_bound <= best.cost);
    }
    ul_arena_done(&arena);
}

/* The third and the sixth of ten forward steps are kept, so that four before the sixth run again,
 * once. */
static void test_given_values_are_kept(void **state)
{
    (void)state;
    enum { DEPTH = 10 };
    struct ul_arena arena;
    struct ul_diag diag = {.status = UL_OK};
    struct ul_plan plan;
    bool is_forward[2 * DEPTH] = {false}, is_kept[2 * DEPTH] = {false};
    const struct ul_plan_kept kept = {.is_forward = is_forward, .is_kept = is_kept};
    const struct ul_plan_options options = {.remat = UL_REMAT_KEEP, .kept = &kept};
    ul_arena_init(&arena);
    struct ul_problem *problem = make_training(&arena, DEPTH, false);
    uint64_t whole = plan_by(&arena, problem, UL_REMAT_NONE, 0).reserved_bytes[0];
    for (uint32_t s = 0; s < DEPTH; s++)
        is_forward[s] = true;
    is_kept[2] = is_kept[5] = true;
    assert_int_equal(ul_plan_solve(&arena, problem, &options, &plan, &diag), UL_OK);
    assert_names(UL_METHOD_REMAT, UL_REMAT_KEEP, plan.remat_method);
    assert_int_equal(plan.position_count, 2 * DEPTH + 4);
    for (uint32_t p = 0; p < plan.position_count; p++)
        assert_true(plan.positions[p].copy == 0 ||
                    (plan.positions[p].step < 6 && plan.positions[p].step % 3 != 2));
    assert_true(plan.reserved_bytes[0] < whole);
    is_kept[2] = is_kept[5] = false; /* nothing to begin from: nothing is made again */
    assert_int_equal(ul_plan_solve(&arena, problem, &options, &plan, &diag), UL_OK);
    assert_int_equal(plan.position_count, 2 * DEPTH);
    assert_int_equal(plan.reserved_bytes[0], whole);
    ul_arena_done(&arena);
}

/* A named method that does not apply is not replaced: the plan does not fit, and names the
 * method. */
static void test_named_method_is_not_replaced(void **state)
{
    (void)state;
    struct ul_arena arena;
    ul_arena_init(&arena);
    struct ul_problem *problem = make_training(&arena, 10, true);
    uint64_t budget = plan_by(&arena, problem, UL_REMAT_NONE, 0).reserved_bytes[0] * 9 / 10;
    assert_true(plan_by(&arena, problem, UL_REMAT_BEST, budget).fits);
    struct ul_plan plan = plan_by(&arena, problem, UL_REMAT_CHAIN, budget);
    assert_false(plan.fits);
    assert_string_equal(plan.remat_method, "chain");
    ul_arena_done(&arena);
}

/* Values that are large until the step after shrinks them; in the file, all large ones come first.
 */
static struct ul_problem *make_wide(struct ul_arena *arena, uint32_t width)
{
    struct ul_problem *problem = ul_problem_new(arena);
    struct ul_plan_value input = ul_plan_value_make("x", UL_PLAN_INPUTS, 64);
    input.live_from_start = true;
    uint32_t x = ul_problem_add_value(problem, &input);
    uint32_t *large = UL_NEW_ARRAY(arena, uint32_t, width);
    for (uint32_t i = 0; i < 2 * width; i++) {
        bool shrinks = i >= width;
        struct ul_plan_value value =
            ul_plan_value_make("v", UL_PLAN_ACTIVATIONS, shrinks ? 64 : 4096);
        value.live_to_end = shrinks;
        uint32_t made = ul_problem_add_value(problem, &value);
        struct ul_plan_substep substep = {.reads = shrinks ? &large[i - width] : &x,
                                          .writes = &made,
                                          .read_count = 1,
                                          .write_count = 1};
        add_simple_step(problem, "s", 0, 10, &substep);
        if (!shrinks)
            large[i] = made;
    }
    return problem;
}

static struct ul_plan plan_with(struct ul_arena *arena, const struct ul_problem *problem,
                                const struct ul_plan_options *options)
{
    struct ul_plan plan;
    struct ul_diag diag = {.status = UL_OK};
    enum ul_status status = ul_plan_solve(arena, problem, options, &plan, &diag);
    assert_string_equal(diag.text, "");
    assert_int_equal(status, UL_OK);
    return plan;
}

/* Each order that is named says so in its own words, with an order below the file's. */
static void test_named_orders_run(void **state)
{
    (void)state;
    static const char *const words[UL_ORDER_COUNT] = {[UL_ORDER_GREEDY] = "greedy",
                                                      [UL_ORDER_DFS] = "depth-first",
                                                      [UL_ORDER_DP] = "downsets",
                                                      [UL_ORDER_BEAM] = "beam",
                                                      [UL_ORDER_ANNEAL] = "moved at random",
                                                      [UL_ORDER_SEARCH] = "windows",
                                                      [UL_ORDER_ILP] = "integer program"};
    struct ul_arena arena;
    ul_arena_init(&arena);
    struct ul_problem *wide = make_wide(&arena, 4);
    struct ul_plan_options options = {.order = UL_ORDER_FILE};
    uint64_t file_bytes = plan_with(&arena, wide, &options).reserved_bytes[0];
    for (options.order = UL_ORDER_GREEDY; options.order < UL_ORDER_COUNT; options.order++) {
        struct ul_plan plan = plan_with(&arena, wide, &options);
        assert_names(UL_METHOD_ORDER, options.order, plan.order_method);
        assert_non_null(strstr(plan.order_method, words[options.order]));
        assert_true(plan.fits && plan.reserved_bytes[0] < file_bytes);
    }
    ul_arena_done(&arena);
}

/* No order of a chain is better than the file's; a search that may do hardly any work finds
 * none. */
static void test_named_orders_are_not_replaced(void **state)
{
    (void)state;
    struct ul_arena arena;
    ul_arena_init(&arena);
    struct ul_problem *chain = make_training(&arena, 4, false);
    struct ul_plan_options options = {.order = UL_ORDER_DP};
    struct ul_plan plan = plan_with(&arena, chain, &options);
    assert_true(plan.fits);
    assert_string_equal(plan.order_method, "dp: no order below the file's");
    for (options.order = UL_ORDER_GREEDY; options.order < UL_ORDER_COUNT; options.order++) {
        plan = plan_with(&arena, chain, &options);
        assert_names(UL_METHOD_ORDER, options.order, plan.order_method);
        bool keeps = strstr(plan.order_method, "no order below the file's") != NULL;
        assert_true(plan.fits && keeps == !makes_own(options.order));
    }
    options.order = UL_ORDER_DP;
    options.work_limit = 1;
    struct ul_diag diag = {.status = UL_OK};
    plan = plan_with(&arena, make_wide(&arena, 8), &options);
    assert_false(plan.fits);
    assert_string_equal(plan.order_method, "dp");
    assert_int_equal(ul_plan_require_methods(&options, &plan, &diag), UL_NO_FIT);
    assert_non_null(strstr(diag.text, "--order dp: it is out of work"));
    ul_arena_done(&arena);
}

/* The order that was named is what runs, be it worse than the file's. */
static void test_named_order_may_be_worse(void **state)
{
    (void)state;
    uint32_t worse[UL_ORDER_COUNT] = {0};
    for (uint64_t seed = 0; seed < 16; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_problem *problem = random_problem(&arena, seed, 12);
        struct ul_plan_options options = {.order = UL_ORDER_FILE};
        uint64_t file_bytes = plan_with(&arena, problem, &options).order_lower_bound_bytes;
        for (options.order = UL_ORDER_GREEDY; options.order < UL_ORDER_COUNT; options.order++) {
            struct ul_plan plan = plan_with(&arena, problem, &options);
            assert_names(UL_METHOD_ORDER, options.order, plan.order_method);
            worse[options.order] += plan.order_lower_bound_bytes > file_bytes;
        }
        ul_arena_done(&arena);
    }
    assert_true(worse[UL_ORDER_GREEDY] > 0 && worse[UL_ORDER_DFS] > 0);
    assert_int_equal(worse[UL_ORDER_DP] + worse[UL_ORDER_SEARCH] + worse[UL_ORDER_ILP], 0);
}

static void test_named_packings(void **state)
{
    (void)state;
    uint32_t searched = 0, refused = 0;
    for (uint64_t seed = 0; seed < 64; seed++) {
        enum { COUNT = 60 };
        struct ul_arena arena;
        struct ul_diag diag = {.status = UL_OK};
        struct ul_pack_buffer buffers[COUNT] = {{.begin = 0}};
        uint64_t random = seed;
        ul_arena_init(&arena);
        for (uint32_t b = 0; b < COUNT; b++) {
            buffers[b].begin = random_below(&random, 20);
            buffers[b].end = buffers[b].begin + 1 + random_below(&random, 9);
            buffers[b].size_bytes = 1 + random_below(&random, 30);
        }
        for (uint32_t work = 0; work < 2; work++) {
            struct ul_pack_options options = {.method = UL_PACK_GREEDY, .work_limit = work};
            struct ul_pack_result first, exact;
            assert_int_equal(ul_pack_solve(&arena, buffers, COUNT, &options, &first, &diag), UL_OK);
            assert_names(UL_METHOD_PACK, UL_PACK_GREEDY, first.method);
            assert_null(first.why_not);
            options.method = UL_PACK_EXACT;
            assert_int_equal(ul_pack_solve(&arena, buffers, COUNT, &options, &exact, &diag), UL_OK);
            assert_names(UL_METHOD_PACK, UL_PACK_EXACT, exact.method);
            assert_true(exact.arena_bytes <= first.arena_bytes);
            assert_true(exact.optimal == (exact.why_not == NULL));
            options.method = UL_PACK_REPAIR;
            struct ul_pack_result repair;
            assert_int_equal(ul_pack_solve(&arena, buffers, COUNT, &options, &repair, &diag),
                             UL_OK);
            assert_names(UL_METHOD_PACK, UL_PACK_REPAIR, repair.method);
            assert_true(repair.arena_bytes <= first.arena_bytes && repair.why_not == NULL);
            searched += exact.arena_bytes < first.arena_bytes;
            refused += exact.why_not != NULL;
        }
        ul_arena_done(&arena);
    }
    assert_true(searched > 0 && refused > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_recomputations),
        cmocka_unit_test(test_named_methods_run),
        cmocka_unit_test(test_given_values_are_kept),
        cmocka_unit_test(test_named_method_is_not_replaced),
        cmocka_unit_test(test_named_orders_run),
        cmocka_unit_test(test_named_orders_are_not_replaced),
        cmocka_unit_test(test_named_order_may_be_worse),
        cmocka_unit_test(test_named_packings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
