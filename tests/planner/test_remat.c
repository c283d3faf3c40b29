/* SPDX-License-Identifier: Apache-2.0 */
/* Recomputation within a budget against exhaustive search on small random graphs, with scratch,
 * in-place takeovers, nodes that run once and a base; and its parts against plain versions. */
#include "planner/remat/remat_internal.h"
#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { NODES = 7, SETS = 1 << NODES };

/* Each node reads some of the `reach` before it, in file order. */
static void make_graph(struct ul_arena *arena, uint64_t seed, uint32_t n, uint32_t reach,
                       struct ul_solve_graph *g)
{
    uint64_t state = seed * 977 + 5;
    memset(g, 0, sizeof *g);
    g->node_count = n;
    g->size_bytes = UL_NEW_ARRAY(arena, uint64_t, n);
    g->cost = UL_NEW_ARRAY(arena, uint64_t, n);
    g->order = UL_NEW_ARRAY(arena, uint32_t, n);
    g->input_first = UL_NEW_ARRAY(arena, uint32_t, n + 1);
    g->user_first = UL_NEW_ARRAY(arena, uint32_t, n + 2);
    g->inputs = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)n * reach);
    g->users = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)n * reach);
    uint32_t count = 0;
    for (uint32_t v = 0; v < n; v++) {
        g->order[v] = v;
        g->size_bytes[v] = random_below(&state, 9);
        g->cost[v] = random_below(&state, 5);
        for (uint32_t u = v > reach ? v - reach : 0; u < v; u++) {
            if (random_below(&state, reach) >= 2)
                continue;
            g->inputs[count++] = u;
            g->user_first[u + 2]++;
        }
        g->input_first[v + 1] = count;
    }
    for (uint32_t v = 0; v < n; v++)
        g->user_first[v + 2] += g->user_first[v + 1];
    for (uint32_t v = 0; v < n; v++) {
        for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++)
            g->users[g->user_first[g->inputs[i] + 1]++] = v;
    }
}

/* Half of the graphs have what only graphs made from a problem have. */
static void add_options(struct ul_arena *arena, uint64_t seed, struct ul_solve_graph *g)
{
    uint64_t state = seed * 31 + 1;
    if (seed % 2 == 0)
        return;
    g->base_bytes = random_below(&state, 10);
    g->working_bytes = UL_NEW_ARRAY(arena, uint64_t, g->node_count);
    g->in_place = UL_NEW_ARRAY(arena, uint32_t, g->node_count);
    g->run_once = UL_NEW_ARRAY(arena, bool, g->node_count);
    for (uint32_t v = 0; v < g->node_count; v++) {
        uint32_t inputs = g->input_first[v + 1] - g->input_first[v];
        g->working_bytes[v] = random_below(&state, 3) == 0 ? random_below(&state, 5) : 0;
        g->run_once[v] = random_below(&state, 4) == 0;
        g->in_place[v] = UL_PLAN_NONE;
        if (inputs > 0 && random_below(&state, 2) == 0)
            g->in_place[v] = g->inputs[g->input_first[v] + random_below(&state, inputs)];
    }
}

static uint64_t mask_bytes(const struct ul_solve_graph *g, uint32_t mask)
{
    uint64_t sum = g->base_bytes;
    for (uint32_t v = 0; v < NODES; v++)
        sum += (mask >> v & 1) != 0 ? g->size_bytes[v] : 0;
    return sum;
}

static uint64_t best[SETS][SETS];

static bool reach_state(uint32_t done, uint32_t live, uint64_t cost)
{
    bool better = cost < best[done][live];
    if (better)
        best[done][live] = cost;
    return better;
}

static bool run_node(const struct ul_solve_graph *g, uint64_t budget, uint32_t done, uint32_t live,
                     uint32_t v)
{
    uint32_t bit = 1u << v;
    uint32_t inputs = 0;
    for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++)
        inputs |= 1u << g->inputs[i];
    if ((live & bit) != 0 || (inputs & live) != inputs ||
        ((done & bit) != 0 && g->run_once != NULL && g->run_once[v]))
        return false;
    uint64_t need = mask_bytes(g, live | bit);
    need += g->working_bytes != NULL ? g->working_bytes[v] : 0;
    uint64_t cost = best[done][live] + g->cost[v];
    bool changed = need <= budget && reach_state(done | bit, live | bit, cost);
    if (g->in_place == NULL || g->in_place[v] == UL_PLAN_NONE)
        return changed;
    uint32_t u = g->in_place[v];
    need -= g->size_bytes[u] < g->size_bytes[v] ? g->size_bytes[u] : g->size_bytes[v];
    return (need <= budget && reach_state(done | bit, (live | bit) & ~(1u << u), cost)) || changed;
}

/* The least cost within `budget` over all sequences, or UINT64_MAX: cheapest way to each pair of
 * (run at least once, resident), dropping being free. */
static uint64_t exhaustive_cost(const struct ul_solve_graph *g, uint64_t budget)
{
    memset(best, 0xFF, sizeof best);
    best[0][0] = 0;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t done = 0; done < SETS; done++) {
            for (uint32_t live = SETS; live-- > 0;) {
                for (uint32_t v = 0; v < NODES && best[done][live] != UINT64_MAX; v++) {
                    if ((live >> v & 1) != 0 &&
                        reach_state(done, live & ~(1u << v), best[done][live]))
                        changed = true;
                    if (run_node(g, budget, done, live, v))
                        changed = true;
                }
            }
        }
    }
    return best[SETS - 1][0];
}

static struct ul_remat search(struct ul_arena *arena, const struct ul_solve_graph *g,
                              uint64_t budget, uint64_t work)
{
    uint64_t peak, cost;
    assert_true(ul_solve_replay(g, g->order, g->node_count, &peak, &cost));
    struct ul_remat remat = {.graph = g,
                             .budget_bytes = budget,
                             .effort = {.work_limit = work},
                             .capacity = g->node_count * 8 + 1000,
                             .cost = UINT64_MAX,
                             .smallest_peak_bytes = peak};
    remat.sequence = UL_NEW_ARRAY(arena, uint32_t, remat.capacity);
    const uint32_t *const orders[] = {g->order};
    ul_remat_search(&remat, &(struct ul_remat_orders){.orders = orders, .count = 1});
    return remat;
}

static void test_search_against_exhaustive(void **unused)
{
    (void)unused;
    uint32_t feasible = 0, found = 0, min_found = 0;
    for (uint64_t seed = 0; seed < 120; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_solve_graph g;
        make_graph(&arena, seed, NODES, NODES, &g);
        add_options(&arena, seed, &g);
        uint64_t peak, cost;
        assert_true(ul_solve_replay(&g, g.order, NODES, &peak, &cost));
        uint64_t order_peak = peak;
        for (uint64_t budget = peak > 4 ? peak - 4 : 1; budget <= order_peak; budget++) {
            uint64_t min = exhaustive_cost(&g, budget);
            struct ul_remat remat = search(&arena, &g, budget, 30000);
            feasible += min != UINT64_MAX;
            found += remat.cost != UINT64_MAX;
            min_found += remat.cost != UINT64_MAX && remat.cost == min;
            assert_true(exhaustive_cost(&g, remat.smallest_peak_bytes) != UINT64_MAX);
            if (remat.cost == UINT64_MAX)
                continue;
            assert_true(remat.cost >= min);
            assert_true(ul_solve_replay(&g, remat.sequence, remat.count, &peak, &cost));
            assert_true(peak <= budget && cost == remat.cost);
        }
        ul_arena_done(&arena);
    }
    print_message("%u feasible, %u found, %u at the least cost\n", feasible, found, min_found);
    assert_true(found * 100 >= feasible * 98);
    assert_true(min_found * 100 >= feasible * 95);
}

/* Wider and longer, beyond exhaustive search: whatever is found must replay. */
static void test_long_graphs(void **unused)
{
    (void)unused;
    uint32_t found = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_solve_graph g;
        make_graph(&arena, seed, 60, 12, &g);
        add_options(&arena, seed, &g);
        uint64_t peak, cost;
        assert_true(ul_solve_replay(&g, g.order, g.node_count, &peak, &cost));
        struct ul_remat once = search(&arena, &g, peak - 2, 1);
        struct ul_remat remat = search(&arena, &g, peak - 2, 300000);
        struct ul_remat again = search(&arena, &g, peak - 2, 300000);
        assert_true(remat.cost <= once.cost);
        assert_int_equal(remat.count, again.count);
        assert_memory_equal(remat.sequence, again.sequence, remat.count * sizeof(uint32_t));
        if (remat.cost != UINT64_MAX) {
            found++;
            assert_true(ul_solve_replay(&g, remat.sequence, remat.count, &peak, &cost));
        }
        ul_arena_done(&arena);
    }
    assert_true(found >= 40);
}

static uint32_t step_slot(const struct ul_schedule *s, uint64_t *state)
{
    for (;;) {
        uint32_t slot = random_below(state, s->slot_count);
        if (s->node_at[slot] != UL_PLAN_NONE)
            return slot;
    }
}

/* The schedule's sums are those of a replay of what it stores. */
static void compare_schedule(const struct ul_schedule *s, uint32_t *sequence)
{
    uint64_t peak, cost;
    uint32_t count = ul_schedule_store(s, sequence);
    assert_int_equal(count, s->step_count);
    struct ul_solve_graph repeatable = *s->graph;
    repeatable.run_once = NULL;
    assert_true(ul_solve_replay(&repeatable, sequence, count, &peak, &cost));
    assert_int_equal(cost, s->cost);
    assert_true((uint64_t)ul_schedule_max(s, 0, s->slot_count) == peak);
    assert_int_equal(s->over_count > 0, (int64_t)peak > s->budget_bytes);
}

static void edit_once(struct ul_schedule *s, uint64_t *state)
{
    uint32_t slot = step_slot(s, state);
    if (random_below(state, 2) == 0) {
        ul_schedule_remove(s, slot);
        return;
    }
    uint32_t place = ul_schedule_open(s, &slot);
    if (place != UL_PLAN_NONE)
        ul_schedule_insert(s, place, random_below(state, s->graph->node_count));
}

static void test_schedule_against_replay(void **unused)
{
    (void)unused;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_solve_graph g;
        make_graph(&arena, seed, 30, 6, &g);
        add_options(&arena, seed, &g);
        uint64_t peak, cost;
        assert_true(ul_solve_replay(&g, g.order, g.node_count, &peak, &cost));
        struct ul_schedule s = {
            .graph = &g, .arena = &arena, .budget_bytes = (int64_t)peak - 3 + (int64_t)seed % 7};
        ul_schedule_init(&s, 120);
        ul_schedule_load(&s, g.order, g.node_count);
        uint32_t before[120], after[120];
        uint64_t state = seed;
        for (uint32_t round = 0; round < 150; round++) {
            compare_schedule(&s, before);
            uint32_t count = s.step_count;
            s.log_count = 0;
            for (uint32_t edits = 1 + random_below(&state, 5); edits > 0; edits--)
                edit_once(&s, &state);
            compare_schedule(&s, after);
            if (random_below(&state, 3) > 0)
                continue;
            ul_schedule_undo(&s, 0);
            compare_schedule(&s, after);
            assert_int_equal(s.step_count, count);
            assert_memory_equal(before, after, count * sizeof *before);
        }
        ul_arena_done(&arena);
    }
}

static void test_profile(void **unused)
{
    (void)unused;
    enum { LENGTH = 37 };
    struct ul_arena arena;
    ul_arena_init(&arena);
    uint64_t state = 1;
    int64_t plain[LENGTH];
    struct ul_live_tree profile;
    ul_live_tree_init(&profile, &arena, LENGTH);
    for (uint32_t i = 0; i < LENGTH; i++)
        plain[i] = random_below(&state, 100);
    ul_live_tree_fill(&profile, plain, LENGTH);
    for (uint32_t round = 0; round < 2000; round++) {
        uint32_t begin = random_below(&state, LENGTH);
        uint32_t end = begin + random_below(&state, LENGTH - begin + 1);
        int64_t bytes = (int64_t)random_below(&state, 100) - 50;
        ul_live_tree_add(&profile, begin, end, bytes);
        for (uint32_t i = begin; i < end; i++)
            plain[i] += bytes;
        begin = random_below(&state, LENGTH);
        end = begin + 1 + random_below(&state, LENGTH - begin);
        int64_t max = plain[begin];
        for (uint32_t i = begin; i < end; i++)
            max = plain[i] > max ? plain[i] : max;
        assert_true(ul_live_tree_max(&profile, begin, end) == max);
    }
    ul_arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_search_against_exhaustive),
        cmocka_unit_test(test_long_graphs),
        cmocka_unit_test(test_schedule_against_replay),
        cmocka_unit_test(test_profile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
