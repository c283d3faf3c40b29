/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints on chains against every set of them, on small chains; speed on long ones. */
#include "planner/remat/remat.h"
#include "planner/solve/solve.h"
#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { LENGTH_MAX = 9 };

struct builder {
    struct ul_arena *arena;
    struct ul_text edges;
    struct ul_text nodes;
    uint32_t count;
};

static void builder_init(struct builder *b, struct ul_arena *arena)
{
    *b = (struct builder){.arena = arena};
    ul_text_init(&b->edges, arena);
    ul_text_init(&b->nodes, arena);
}

static uint32_t node_put(struct builder *b, uint32_t bytes, uint32_t cost)
{
    ul_text_printf(&b->nodes, "%s{\"id\":%u,\"name\":\"n\",\"bytes\":%u,\"cost\":%u}",
                   b->count > 0 ? "," : "", b->count, bytes, cost);
    return b->count++;
}

static void edge_put(struct builder *b, uint32_t from, uint32_t to)
{
    ul_text_printf(&b->edges, "%s[%u,%u]", b->edges.length > 0 ? "," : "", from, to);
}

static void graph_read(struct builder *b, struct ul_solve_graph *graph)
{
    struct ul_text text;
    ul_text_init(&text, b->arena);
    ul_text_printf(&text,
                   "{\"format\":\"ullage-graph\",\"version\":1,\"name\":\"g\",\"nodes\":[%s],"
                   "\"edges\":[%s],\"order\":[",
                   b->nodes.data, b->edges.length > 0 ? b->edges.data : "");
    for (uint32_t v = 0; v < b->count; v++)
        ul_text_printf(&text, "%s%u", v > 0 ? "," : "", v);
    ul_text_put(&text, "]}");
    struct ul_diag diag = {.status = UL_OK};
    enum ul_status status = ul_solve_read_json(b->arena, text.data, text.length, graph, &diag);
    assert_string_equal(diag.text, "");
    assert_int_equal(status, UL_OK);
}

/* Nodes 0 to length - 1 in a chain, a loss, and backward: each step reads the gradient before it,
 * its node's value and, as a rule, its node's input. */
static void make_chain(struct ul_arena *arena, uint64_t seed, uint32_t length, uint32_t max_bytes,
                       struct ul_solve_graph *graph)
{
    uint64_t state = seed * 77 + 5;
    struct builder b;
    builder_init(&b, arena);
    for (uint32_t i = 0; i < length; i++) {
        uint32_t v = node_put(&b, 1 + random_below(&state, max_bytes), random_below(&state, 20));
        if (i > 0)
            edge_put(&b, v - 1, v);
    }
    uint32_t gradient = node_put(&b, 1, 1);
    edge_put(&b, length - 1, gradient);
    for (uint32_t i = length; i-- > 0;) {
        uint32_t v = node_put(&b, 1 + random_below(&state, max_bytes), random_below(&state, 20));
        edge_put(&b, gradient, v);
        edge_put(&b, i, v);
        if (i > 0 && (i == length - 1 || random_below(&state, 4) > 0))
            edge_put(&b, i - 1, v);
        gradient = v;
    }
    graph_read(&b, graph);
}

static bool reads(const struct ul_solve_graph *g, uint32_t v, uint32_t first, uint32_t last)
{
    for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++) {
        if (g->inputs[i] >= first && g->inputs[i] <= last)
            return true;
    }
    return false;
}

/* Every run of dropped nodes runs again before the first backward step that reads one of them. */
static uint32_t chain_sequence(const struct ul_solve_graph *g, uint32_t length, uint32_t kept,
                               uint32_t *sequence)
{
    uint32_t count = 0;
    uint32_t again = 0;
    for (uint32_t t = 0; t < g->node_count; t++) {
        for (uint32_t i = length; t > length && i-- > 0;) {
            uint32_t first = i, last = i;
            if ((kept >> i & 1) != 0)
                continue;
            while (first > 0 && (kept >> (first - 1) & 1) == 0)
                first--;
            i = first;
            if ((again >> last & 1) != 0 || !reads(g, t, first, last))
                continue;
            again |= 1u << last;
            for (uint32_t k = first; k <= last; k++)
                sequence[count++] = k;
        }
        sequence[count++] = t;
    }
    return count;
}

static uint64_t exhaustive_cost(const struct ul_solve_graph *g, uint32_t length, uint64_t budget)
{
    uint64_t best = UINT64_MAX;
    for (uint32_t kept = 0; kept < 1u << length; kept++) {
        uint32_t sequence[3 * (2 * LENGTH_MAX + 1)];
        uint32_t count = chain_sequence(g, length, kept, sequence);
        uint64_t peak, cost;
        assert_true(ul_solve_replay(g, sequence, count, &peak, &cost));
        if (peak <= budget && cost < best)
            best = cost;
    }
    return best;
}

static struct ul_remat chain_run(struct ul_arena *arena, const struct ul_solve_graph *graph,
                                 uint64_t budget)
{
    struct ul_remat remat = {.graph = graph,
                             .budget_bytes = budget,
                             .capacity = graph->node_count * 8 + 1000,
                             .cost = UINT64_MAX};
    remat.sequence = UL_NEW_ARRAY(arena, uint32_t, remat.capacity);
    const uint32_t *const orders[] = {graph->order};
    ul_remat_run_chain(&remat, &(struct ul_remat_orders){.orders = orders, .count = 1},
                       UL_TURN_NONE);
    return remat;
}

static void test_chains_are_optimal(void **state)
{
    (void)state;
    uint32_t found = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_solve_graph graph;
        uint32_t length = 3 + (uint32_t)(seed % (LENGTH_MAX - 2));
        make_chain(&arena, seed, length, 12, &graph);
        uint64_t peak, base;
        assert_true(ul_solve_replay(&graph, graph.order, graph.node_count, &peak, &base));
        for (uint64_t budget = peak; budget > peak / 3; budget -= 1 + peak / 20) {
            struct ul_remat remat = chain_run(&arena, &graph, budget);
            uint64_t best = exhaustive_cost(&graph, length, budget);
            assert_int_equal(remat.cost, best);
            found += best != UINT64_MAX && best > base;
            if (best != UINT64_MAX)
                assert_non_null(remat.proven_within);
        }
        ul_arena_done(&arena);
    }
    assert_true(found > 1000);
}

/* Blocks of a residual network: a value goes round three nodes and is added to their result. */
static void make_residual(struct ul_arena *arena, uint64_t seed, uint32_t block_count,
                          struct ul_solve_graph *graph)
{
    uint64_t state = seed * 5 + 1;
    struct builder b;
    builder_init(&b, arena);
    uint32_t *ends = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)block_count + 1);
    ends[0] = node_put(&b, 10, 5);
    for (uint32_t k = 0; k < block_count; k++) {
        uint32_t v = ends[k];
        for (uint32_t i = 0; i < 3; i++) {
            uint32_t next = node_put(&b, 5 + random_below(&state, 30), random_below(&state, 9));
            edge_put(&b, v, next);
            v = next;
        }
        ends[k + 1] = node_put(&b, 10, 2);
        edge_put(&b, v, ends[k + 1]);
        edge_put(&b, ends[k], ends[k + 1]);
    }
    uint32_t gradient = node_put(&b, 1, 1);
    edge_put(&b, ends[block_count], gradient);
    for (uint32_t k = block_count; k-- > 0;) {
        uint32_t add = node_put(&b, 10, 1);
        edge_put(&b, gradient, add);
        edge_put(&b, ends[k + 1], add);
        uint32_t inner = add;
        for (uint32_t i = 3; i-- > 0;) {
            uint32_t next = node_put(&b, 10, 3);
            edge_put(&b, inner, next);
            edge_put(&b, ends[k] + 1 + i, next);
            edge_put(&b, i > 0 ? ends[k] + i : ends[k], next);
            inner = next;
        }
        gradient = node_put(&b, 10, 1);
        edge_put(&b, add, gradient);
        edge_put(&b, inner, gradient);
    }
    graph_read(&b, graph);
}

/* Less than the values of all blocks, more than those of their ends. */
static void test_residual_blocks_are_found(void **state)
{
    (void)state;
    for (uint32_t block_count = 4; block_count <= 256; block_count *= 4) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_solve_graph graph;
        uint64_t peak, base, after, cost;
        make_residual(&arena, block_count, block_count, &graph);
        assert_true(ul_solve_replay(&graph, graph.order, graph.node_count, &peak, &base));
        uint64_t budget = block_count == 256 ? peak / 6
                          : block_count == 4 ? peak * 4 / 5
                                             : peak / 2;
        struct ul_remat remat = chain_run(&arena, &graph, budget);
        assert_true(remat.cost != UINT64_MAX && remat.cost > base && remat.cost < base * 2);
        assert_true(ul_solve_replay(&graph, remat.sequence, remat.count, &after, &cost));
        assert_true(after <= budget && cost == remat.cost);
        ul_arena_done(&arena);
    }
}

/* 1000 blocks; a graph without a chain yields nothing. */
static void test_long_chains_are_fast(void **state)
{
    (void)state;
    struct ul_arena arena;
    ul_arena_init(&arena);
    struct ul_solve_graph graph;
    uint64_t peak, base, after, cost, last = 0;
    make_chain(&arena, 1, 1000, 1000, &graph);
    assert_true(ul_solve_replay(&graph, graph.order, graph.node_count, &peak, &base));
    for (uint64_t substep = 2; substep <= 12; substep += 5) {
        struct ul_remat remat = chain_run(&arena, &graph, peak / substep);
        assert_true(remat.cost != UINT64_MAX && remat.cost > last);
        assert_true(ul_solve_replay(&graph, remat.sequence, remat.count, &after, &cost));
        assert_true(after <= peak / substep);
        last = remat.cost;
    }
    ul_arena_done(&arena);
}

/* Sizes at which doubles no longer tell the budget from what is kept. */
static void test_huge_sizes_are_told_apart(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_solve_graph graph;
        uint64_t peak, base;
        make_chain(&arena, seed, 5, 12, &graph);
        for (uint32_t v = 0; v < 5; v++)
            graph.size_bytes[v] <<= 56;
        assert_true(ul_solve_replay(&graph, graph.order, graph.node_count, &peak, &base));
        assert_int_equal(chain_run(&arena, &graph, peak).cost, base);
        ul_arena_done(&arena);
    }
}

static void test_others_yield_nothing(void **state)
{
    (void)state;
    struct ul_arena arena;
    ul_arena_init(&arena);
    struct ul_solve_graph graph;
    struct builder b;
    builder_init(&b, &arena);
    for (uint32_t v = 0; v < 12; v++) {
        node_put(&b, 5, 1);
        for (uint32_t u = 0; u < v; u++)
            edge_put(&b, u, v);
    }
    graph_read(&b, &graph);
    struct ul_remat remat = chain_run(&arena, &graph, 55);
    assert_true(remat.cost == UINT64_MAX);
    assert_null(remat.found_by);
    ul_arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chains_are_optimal),
        cmocka_unit_test(test_residual_blocks_are_found),
        cmocka_unit_test(test_long_chains_are_fast),
        cmocka_unit_test(test_huge_sizes_are_told_apart),
        cmocka_unit_test(test_others_yield_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
