/* SPDX-License-Identifier: Apache-2.0 */
/* Orders: problems as graphs, and every method against all orders of small random graphs. */
#include "planner/model/problem_graph.h"
#include "planner/model/timeline.h"
#include "planner/order/order.h"
#include "planner/order/order_internal.h"
#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- Problems as graphs ---- */

/* Some steps may run more than once. */
static uint64_t live_sum_of(struct ul_arena *arena, const struct ul_problem *problem,
                            const uint32_t *steps, uint32_t count)
{
    struct ul_plan plan;
    memset(&plan, 0, sizeof plan);
    plan.alignment_bytes = 64;
    ul_timeline_sequence(arena, problem, steps, count, NULL, &plan);
    ul_timeline_build(arena, problem, UL_ALIAS_ALL, &plan);
    ul_account_live(arena, &plan);
    return plan.order_lower_bound_bytes;
}

static uint64_t live_sum(struct ul_arena *arena, const struct ul_problem *problem,
                         const uint32_t *steps)
{
    return live_sum_of(arena, problem, steps, problem->step_count);
}

static void random_order(struct ul_arena *arena, const struct ul_solve_graph *g, uint64_t *state,
                         uint32_t *order)
{
    uint32_t *waits = UL_NEW_ARRAY(arena, uint32_t, g->node_count);
    uint32_t *ready = UL_NEW_ARRAY(arena, uint32_t, g->node_count);
    uint32_t ready_count = 0;
    for (uint32_t v = 0; v < g->node_count; v++) {
        waits[v] = g->input_first[v + 1] - g->input_first[v];
        if (waits[v] == 0)
            ready[ready_count++] = v;
    }
    for (uint32_t count = 0; count < g->node_count; count++) {
        assert_true(ready_count > 0);
        uint32_t at = random_below(state, ready_count);
        uint32_t v = ready[at];
        ready[at] = ready[--ready_count];
        order[count] = v;
        for (uint32_t i = g->user_first[v]; i < g->user_first[v + 1]; i++) {
            if (--waits[g->users[i]] == 0)
                ready[ready_count++] = g->users[i];
        }
    }
}

/* The nodes that are no steps, where they cost nothing: what is made for a step just before it,
 * what only marks that something is over right after. */
struct tidy {
    const struct ul_problem_graph *pg;
    uint8_t *done;
    uint32_t *order;
    uint32_t count;
};

static bool is_step(const struct ul_problem_graph *pg, uint32_t node)
{
    return pg->step_first[node] < pg->step_first[node + 1] || pg->run_of[node] != UL_PLAN_NONE;
}

static void tidy_run(struct tidy *t, uint32_t node)
{
    const struct ul_solve_graph *g = &t->pg->graph;
    if (t->done[node])
        return;
    for (uint32_t i = g->input_first[node]; i < g->input_first[node + 1]; i++)
        tidy_run(t, g->inputs[i]);
    if (t->done[node])
        return;
    t->done[node] = 1;
    t->order[t->count++] = node;
    for (uint32_t v = 0; v < g->node_count; v++) {
        bool now = !t->done[v] && !is_step(t->pg, v) && g->size_bytes[v] == 0;
        for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++)
            now = now && t->done[g->inputs[i]];
        if (now)
            tidy_run(t, v);
    }
}

/* Inputs that nobody reads are live in the first position, which no node knows. */
static uint64_t unread_bytes(struct ul_arena *arena, const struct ul_problem *problem)
{
    uint8_t *touched = ul_arena_alloc(arena, problem->value_count);
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < problem->step_count; s++) {
        const struct ul_plan_substep *substep = problem->steps[s].alternatives[0].substeps;
        for (uint32_t i = 0; i < substep->read_count; i++)
            touched[substep->reads[i]] = 1;
        for (uint32_t i = 0; i < substep->write_count; i++)
            touched[substep->writes[i]] = 1;
    }
    for (uint32_t v = 0; v < problem->value_count; v++) {
        if (problem->values[v].live_from_start && !touched[v])
            bytes += ul_size_align_or_die(problem->values[v].size_bytes, 64);
    }
    return bytes;
}

static void test_problem_graphs_keep_live_sums(void **state)
{
    (void)state;
    uint32_t exact = 0, again = 0;
    for (uint64_t seed = 0; seed < 6000; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_problem *problem = seed % 2 == 0 ? random_problem(&arena, seed, 14)
                                                   : random_problem_more(&arena, seed, 14);
        uint64_t unread = unread_bytes(&arena, problem);
        struct ul_plan_options options = {.alignment_bytes = 64};
        struct ul_order_choice choice;
        ul_order_problem(&arena, problem, &options, &choice);
        assert_int_equal(live_sum(&arena, problem, choice.steps), choice.live_bytes);
        for (int form = 0; form < 2; form++) {
            struct ul_problem_graph pg;
            ul_problem_graph_make(&arena, problem, 64, (enum ul_problem_graph_form)form, NULL, &pg);
            uint32_t n = pg.graph.node_count;
            uint32_t *order = UL_NEW_ARRAY(&arena, uint32_t, n);
            uint64_t draw = seed;
            if (pg.exact && unread == 0)
                assert_int_equal(choice.live_bytes, choice.orders_lower_bytes);
            for (int i = 0; i < 4; i++) {
                uint64_t peak, tidy_peak, cost;
                uint32_t step_count;
                memcpy(order, pg.graph.order, n * sizeof *order);
                if (i > 0)
                    random_order(&arena, &pg.graph, &draw, order);
                assert_true(ul_solve_replay(&pg.graph, order, n, &peak, &cost));
                uint32_t *steps = ul_problem_graph_steps(&arena, &pg, order, n, &step_count);
                bool is_once = step_count == problem->step_count;
                assert_true(is_once || form == UL_PROBLEM_GRAPH_REPEATABLE);
                uint64_t live = live_sum_of(&arena, problem, steps, step_count);
                assert_true(live <= peak + unread);
                assert_true(i > 0 || is_once);
                assert_true(!is_once || choice.orders_lower_bytes <= live);
                assert_true(i > 0 || choice.live_bytes <= live);
                assert_true(!pg.exact || !is_once || unread > 0 || choice.live_bytes <= live);
                struct tidy t = {.pg = &pg, .done = ul_arena_alloc(&arena, n)};
                t.order = UL_NEW_ARRAY(&arena, uint32_t, n);
                for (uint32_t k = 0; k < n; k++)
                    if (is_step(&pg, order[k]))
                        tidy_run(&t, order[k]);
                for (uint32_t k = 0; k < n; k++)
                    tidy_run(&t, order[k]);
                assert_int_equal(t.count, n);
                assert_true(ul_solve_replay(&pg.graph, t.order, n, &tidy_peak, &cost));
                assert_true(tidy_peak <= peak);
                assert_true(live <= tidy_peak + unread);
                if (pg.exact && is_once && unread == 0)
                    assert_int_equal(live, tidy_peak);
                again += !is_once;
                exact += pg.exact;
            }
        }
        ul_arena_done(&arena);
    }
    assert_true(exact > 4000 && again > 100);
}

/* An order with some nodes again, each behind what it reads and before the end, which is last. */
static uint32_t random_repeats(const struct ul_solve_graph *g, uint64_t *state,
                               const uint32_t *order, uint32_t *sequence)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < g->node_count; i++) {
        sequence[count++] = order[i];
        while (i + 1 < g->node_count && random_below(state, 3) == 0 && count < 3 * g->node_count) {
            uint32_t v = order[random_below(state, i + 1)];
            if (!g->run_once[v])
                sequence[count++] = v;
        }
    }
    return count;
}

static void test_problem_graphs_repeat(void **state)
{
    (void)state;
    uint32_t joined = 0, taken_out = 0;
    for (uint64_t seed = 0; seed < 6000; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_problem *problem = random_problem(&arena, seed, 14);
        struct ul_problem_graph pg;
        uint64_t unread = unread_bytes(&arena, problem), draw = seed;
        ul_problem_graph_make(&arena, problem, 64, UL_PROBLEM_GRAPH_REPEATABLE, NULL, &pg);
        uint32_t n = pg.graph.node_count, once;
        uint32_t *order = UL_NEW_ARRAY(&arena, uint32_t, n);
        uint32_t *sequence = UL_NEW_ARRAY(&arena, uint32_t, 4 * (uint64_t)n);
        random_order(&arena, &pg.graph, &draw, order);
        const uint32_t *settled =
            ul_problem_graph_join_runs(&arena, &pg, UINT64_MAX, order, (once = n, &once));
        (void)ul_problem_graph_steps(&arena, &pg, settled, once, &once);
        assert_int_equal(once, problem->step_count);
        uint32_t count = random_repeats(&pg.graph, &draw, order, sequence);
        uint64_t budget, peak, cost, before;
        assert_true(ul_solve_replay(&pg.graph, sequence, count, &budget, &before));
        for (uint32_t more = 0; more < 2; more++) {
            uint32_t step_count, node_count = count;
            const uint32_t *nodes =
                ul_problem_graph_join_runs(&arena, &pg, budget * (1 + more), sequence, &node_count);
            assert_true(ul_solve_replay(&pg.graph, nodes, node_count, &peak, &cost));
            assert_true(peak <= budget * (1 + more) && cost <= before);
            uint32_t *steps = ul_problem_graph_steps(&arena, &pg, nodes, node_count, &step_count);
            assert_true(live_sum_of(&arena, problem, steps, step_count) <= peak + unread);
            joined += memcmp(nodes, sequence, node_count * sizeof *nodes) != 0;
            taken_out += node_count < count;
        }
        ul_arena_done(&arena);
    }
    assert_true(joined > 1000 && taken_out > 100);
}

/* ---- Orders of small graphs, against all there are ---- */

enum { MAX_NODES = 14, ANNEAL_WORK = 1 << 18 };

static void graph_users(struct ul_arena *arena, struct ul_solve_graph *g)
{
    uint32_t n = g->node_count;
    g->user_first = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)n + 1);
    g->users = UL_NEW_ARRAY(arena, uint32_t, g->input_first[n]);
    uint32_t count = 0;
    for (uint32_t v = 0; v < n; v++) {
        for (uint32_t u = v + 1; u < n; u++) {
            for (uint32_t i = g->input_first[u]; i < g->input_first[u + 1]; i++) {
                if (g->inputs[i] == v)
                    g->users[count++] = u;
            }
        }
        g->user_first[v + 1] = count;
    }
}

/* A graph with everything in it that a problem's may have. */
static void make_graph(struct ul_arena *arena, uint64_t seed, uint32_t n, struct ul_solve_graph *g)
{
    uint64_t state = seed * 101 + 13;
    bool extras = seed % 4 != 0;
    uint32_t reach = 2 + random_below(&state, n);
    memset(g, 0, sizeof *g);
    g->node_count = n;
    g->size_bytes = UL_NEW_ARRAY(arena, uint64_t, n);
    g->cost = UL_NEW_ARRAY(arena, uint64_t, n);
    g->order = UL_NEW_ARRAY(arena, uint32_t, n);
    g->input_first = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)n + 1);
    g->inputs = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)n * n);
    g->working_bytes = extras ? UL_NEW_ARRAY(arena, uint64_t, n) : NULL;
    g->in_place = extras ? UL_NEW_ARRAY(arena, uint32_t, n) : NULL;
    g->base_bytes = extras ? random_below(&state, 20) : 0;
    uint32_t count = 0;
    for (uint32_t v = 0; v < n; v++) {
        g->order[v] = v;
        g->size_bytes[v] = random_below(&state, 5) == 0 ? 0 : random_below(&state, 30);
        for (uint32_t u = v > reach ? v - reach : 0; u < v; u++) {
            if (random_below(&state, 3) == 0)
                g->inputs[count++] = u;
        }
        g->input_first[v + 1] = count;
        if (!extras)
            continue;
        uint32_t inputs = count - g->input_first[v];
        g->working_bytes[v] = random_below(&state, 3) == 0 ? random_below(&state, 20) : 0;
        g->in_place[v] = inputs > 0 && random_below(&state, 2) == 0
                             ? g->inputs[count - 1 - random_below(&state, inputs)]
                             : UL_PLAN_NONE;
    }
    graph_users(arena, g);
}

/* The live sum while `v` runs with the nodes of `done` run before, and after it in *after. */
static uint64_t step_bytes(const struct ul_solve_graph *g, uint32_t done, uint32_t v,
                           uint64_t *after)
{
    uint64_t during = g->base_bytes + (g->working_bytes != NULL ? g->working_bytes[v] : 0);
    *after = g->base_bytes;
    for (uint32_t u = 0; u < g->node_count; u++) {
        if (u != v && (done >> u & 1) == 0)
            continue;
        bool needed = u == v;
        bool needed_after = false;
        bool needed_by_v = false;
        for (uint32_t i = g->user_first[u]; i < g->user_first[u + 1]; i++) {
            needed = needed || (done >> g->users[i] & 1) == 0;
            needed_by_v = needed_by_v || g->users[i] == v;
            needed_after = needed_after || ((done >> g->users[i] & 1) == 0 && g->users[i] != v);
        }
        during += needed ? g->size_bytes[u] : 0;
        *after += needed_after ? g->size_bytes[u] : 0;
        if (needed_by_v && !needed_after && g->in_place != NULL && g->in_place[v] == u)
            during -= g->size_bytes[u] < g->size_bytes[v] ? g->size_bytes[u] : g->size_bytes[v];
    }
    return during;
}

static uint32_t inputs_of(const struct ul_solve_graph *g, uint32_t v)
{
    uint32_t mask = 0;
    for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++)
        mask |= 1u << g->inputs[i];
    return mask;
}

/* The least peak over all orders, by all sets. */
static uint64_t min_peak(const struct ul_solve_graph *g)
{
    static uint64_t best[1u << MAX_NODES];
    uint32_t n = g->node_count;
    memset(best, 0xFF, sizeof *best << n);
    best[0] = g->base_bytes;
    for (uint32_t done = 0; done < 1u << n; done++) {
        for (uint32_t v = 0; v < n && best[done] != UINT64_MAX; v++) {
            uint32_t inputs = inputs_of(g, v);
            uint64_t after;
            if ((done >> v & 1) != 0 || (inputs & done) != inputs)
                continue;
            uint64_t peak = step_bytes(g, done, v, &after);
            peak = peak > best[done] ? peak : best[done];
            if (peak < best[done | 1u << v])
                best[done | 1u << v] = peak;
        }
    }
    return best[(1u << n) - 1];
}

/* These keep the order that they make, be it worse than the published one. */
static bool makes_own(enum ul_plan_order method)
{
    return method == UL_ORDER_GREEDY || method == UL_ORDER_DFS || method == UL_ORDER_BEAM;
}

static void test_orders_are_the_best_there_are(void **state)
{
    (void)state;
    uint32_t open[UL_ORDER_SEARCH + 1] = {0};
    for (uint64_t seed = 0; seed < 6000; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_solve_graph graph;
        uint32_t n = 1 + (uint32_t)(seed % (seed % 16 == 0 ? MAX_NODES : 9));
        make_graph(&arena, seed, n, &graph);
        uint64_t min = min_peak(&graph);
        uint64_t peak, cost;
        assert_true(ul_solve_replay(&graph, graph.order, n, &peak, &cost));
        uint64_t published = peak;
        for (enum ul_plan_order method = UL_ORDER_BEST; method <= UL_ORDER_SEARCH; method++) {
            struct ul_order_run run = {.graph = &graph, .method = method};
            if (method == UL_ORDER_ANNEAL && seed % 8 != 0)
                continue;
            if (method == UL_ORDER_ANNEAL) /* it does not know when it is done */
                run.effort.work_limit = ANNEAL_WORK;
            ul_order_run(&arena, &run);
            assert_true(ul_solve_replay(&graph, run.order, n, &peak, &cost));
            assert_int_equal(peak, run.peak_bytes);
            assert_true(min <= peak && (peak <= published || makes_own(method)));
            assert_true(run.lower_bytes <= min);
            if (method == UL_ORDER_BEST || method == UL_ORDER_DP)
                assert_int_equal(peak, min);
            if (method == UL_ORDER_BEST)
                assert_int_equal(run.lower_bytes, min);
            open[method] += peak > min;
        }
        ul_arena_done(&arena);
    }
    assert_true(open[UL_ORDER_FILE] > open[UL_ORDER_GREEDY]);
    assert_true(open[UL_ORDER_GREEDY] > open[UL_ORDER_BEAM]);
    assert_int_equal(open[UL_ORDER_ANNEAL], 0);
}

/* In graphs too large to try all orders, with takeovers, seeds change which orders are found, but
 * not that they are valid, nor what their peaks are. */
static void test_seeds_draw(void **state)
{
    (void)state;
    enum { NODES = 100, SEEDS = 3 };
    uint32_t differ = 0;
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_solve_graph graph;
        uint64_t published, peak, cost;
        const uint32_t *first = NULL;
        make_graph(&arena, seed, NODES, &graph);
        assert_true(ul_solve_replay(&graph, graph.order, NODES, &published, &cost));
        for (uint64_t draw = 0; draw <= SEEDS; draw++) {
            struct ul_order_run run = {
                .graph = &graph,
                .method = UL_ORDER_ANNEAL,
                .effort = {.work_limit = (uint64_t)NODES << 15, .seed = draw % SEEDS}};
            ul_order_run(&arena, &run);
            assert_true(ul_solve_replay(&graph, run.order, NODES, &peak, &cost));
            assert_true(peak == run.peak_bytes && peak <= published);
            first = first == NULL ? run.order : first;
            bool same = memcmp(first, run.order, NODES * sizeof *first) == 0;
            assert_true(same || draw % SEEDS != 0);
            differ += !same;
        }
        ul_arena_done(&arena);
    }
    assert_true(differ > 12);
}

static void test_orders_are_the_same_every_time(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_solve_graph graph;
        make_graph(&arena, seed, 60, &graph);
        struct ul_order_run first = {.graph = &graph, .effort = {.work_limit = 1 << 20}};
        struct ul_order_run second = first;
        ul_order_run(&arena, &first);
        ul_order_run(&arena, &second);
        assert_memory_equal(first.order, second.order, 60 * sizeof *first.order);
        assert_int_equal(first.lower_bytes, second.lower_bytes);
        ul_arena_done(&arena);
    }
}

static void test_runs_are_remembered(void **state)
{
    (void)state;
    enum { NODES = 60 };
    struct ul_arena arena;
    struct ul_solve_graph graph, other;
    ul_arena_init(&arena);
    struct ul_order_memo *memo = ul_order_memo_new(&arena);
    make_graph(&arena, 1, NODES, &graph);
    make_graph(&arena, 1, NODES, &other);
    const struct ul_order_run asked = {.graph = &graph, .effort = {.work_limit = 1 << 20}};
    struct ul_order_run alone = asked, first = asked, again = asked, larger = asked;
    ul_order_run(&arena, &alone);
    ul_order_memo_run(memo, &arena, &first);
    uint32_t *user_first = other.user_first;
    other.user_first = NULL; /* who runs it again falls over this */
    again.graph = &other;    /* an equal one */
    ul_order_memo_run(memo, &arena, &again);
    assert_ptr_equal(again.graph, &other);
    assert_memory_equal(again.order, alone.order, NODES * sizeof *alone.order);
    assert_int_equal(again.peak_bytes, alone.peak_bytes);
    assert_int_equal(again.lower_bytes, alone.lower_bytes);
    assert_int_equal(again.effort.work, first.effort.work);
    assert_string_equal(again.method_name, alone.method_name);
    other.user_first = user_first;
    other.size_bytes[NODES / 2] += 1 << 20;
    larger.graph = &other;
    ul_order_memo_run(memo, &arena, &larger);
    assert_true(larger.peak_bytes > alone.peak_bytes);
    ul_arena_done(&arena);
}

/* The least peak of a core, by exact search. */
static uint64_t core_min(struct ul_arena *arena, const struct ul_order_core *core)
{
    struct ul_effort effort = {.work_limit = UINT64_MAX};
    uint32_t *order = UL_NEW_ARRAY(arena, uint32_t, core->node_count);
    uint64_t lower = 0;
    assert_int_equal(ul_order_downsets(arena, core, &effort, 1 << 20, UINT64_MAX, &lower, order),
                     UL_ORDER_IMPROVED);
    assert_int_equal(ul_order_core_peak(arena, core, order, NULL, NULL), lower);
    return lower;
}

/* Too large to try all orders: forwards, backwards and in parts must agree. */
static void test_both_ways_and_parts_agree(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_solve_graph graph;
        struct ul_order_core core, reversed, twice;
        make_graph(&arena, seed, 24 + (uint32_t)(seed % 8), &graph);
        ul_order_core_make(&arena, &graph, graph.order, &core);
        ul_order_core_reverse(&arena, &core, &reversed);
        ul_order_core_reverse(&arena, &reversed, &twice);
        assert_int_equal(twice.start_bytes, core.start_bytes);
        uint64_t min = core_min(&arena, &core);
        assert_int_equal(core_min(&arena, &reversed), min);
        struct ul_order_run run = {.graph = &graph};
        ul_order_run(&arena, &run);
        assert_int_equal(run.peak_bytes, min);
        assert_int_equal(run.lower_bytes, min);
        ul_arena_done(&arena);
    }
}

/* With hardly any work allowed, whatever is found must still be right. */
static void test_orders_of_larger_graphs_are_valid(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_solve_graph graph;
        uint32_t n = 100 + (uint32_t)(seed * 7 % 300);
        make_graph(&arena, seed, n, &graph);
        uint64_t published, peak, cost;
        assert_true(ul_solve_replay(&graph, graph.order, n, &published, &cost));
        for (enum ul_plan_order method = UL_ORDER_BEST; method <= UL_ORDER_SEARCH; method++) {
            struct ul_order_run run = {
                .graph = &graph, .method = method, .effort = {.work_limit = 300000}};
            ul_order_run(&arena, &run);
            assert_true(ul_solve_replay(&graph, run.order, n, &peak, &cost));
            assert_int_equal(peak, run.peak_bytes);
            assert_true(run.lower_bytes <= peak && (peak <= published || makes_own(method)));
        }
        ul_arena_done(&arena);
    }
}

/* Sources without bytes, a value that reads them all, and as many readers of that value. */
static void test_cores_stay_as_small_as_graphs(void **state)
{
    (void)state;
    enum { SOURCES = 20000, NODES = 2 * SOURCES + 1 };
    struct ul_arena arena;
    ul_arena_init(&arena);
    struct ul_solve_graph g;
    memset(&g, 0, sizeof g);
    g.node_count = NODES;
    g.size_bytes = UL_NEW_ARRAY(&arena, uint64_t, NODES);
    g.cost = UL_NEW_ARRAY(&arena, uint64_t, NODES);
    g.order = UL_NEW_ARRAY(&arena, uint32_t, NODES);
    g.input_first = UL_NEW_ARRAY(&arena, uint32_t, NODES + 1);
    g.inputs = UL_NEW_ARRAY(&arena, uint32_t, NODES);
    g.user_first = UL_NEW_ARRAY(&arena, uint32_t, NODES + 1);
    g.users = UL_NEW_ARRAY(&arena, uint32_t, NODES);
    g.size_bytes[SOURCES] = 8;
    for (uint32_t v = 0; v < NODES; v++) {
        g.order[v] = v;
        if (v < SOURCES)
            g.inputs[v] = v;
        else if (v > SOURCES)
            g.inputs[v - 1] = SOURCES;
        g.input_first[v + 1] = v < SOURCES ? 0 : v;
        g.user_first[v + 1] = v < SOURCES ? v + 1 : 2 * SOURCES;
        if (v < SOURCES)
            g.users[v] = SOURCES;
        else if (v > SOURCES)
            g.users[v - 1] = v;
    }
    struct ul_order_core core;
    ul_order_core_make(&arena, &g, g.order, &core);
    assert_true(core.pred_first[core.node_count] <= g.input_first[NODES] + NODES);
    ul_arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_problem_graphs_keep_live_sums),
        cmocka_unit_test(test_problem_graphs_repeat),
        cmocka_unit_test(test_orders_are_the_best_there_are),
        cmocka_unit_test(test_both_ways_and_parts_agree),
        cmocka_unit_test(test_orders_of_larger_graphs_are_valid),
        cmocka_unit_test(test_cores_stay_as_small_as_graphs),
        cmocka_unit_test(test_orders_are_the_same_every_time),
        cmocka_unit_test(test_runs_are_remembered),
        cmocka_unit_test(test_seeds_draw),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
