/* Orders: problems as graphs, and every method against all orders of small random graphs. */
#include "planner/planner_internal.h"
#include "planner/solve_internal.h"
#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- Problems as graphs ---- */

static uint64_t live_sum(struct ul_arena *arena, const struct ul_problem *problem,
                         const uint32_t *steps)
{
    struct ul_plan plan;
    memset(&plan, 0, sizeof plan);
    plan.alignment_bytes = 64;
    ul_timeline_positions(arena, problem, steps, &plan);
    ul_timeline_build(arena, problem, UL_ALIAS_ALL, &plan);
    ul_account_live(arena, &plan);
    return plan.order_lower_bound_bytes;
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
    return pg->step_first[node] < pg->step_first[node + 1];
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
        const struct ul_plan_part *part = problem->steps[s].alternatives[0].parts;
        for (uint32_t i = 0; i < part->read_count; i++)
            touched[part->reads[i]] = 1;
        for (uint32_t i = 0; i < part->write_count; i++)
            touched[part->writes[i]] = 1;
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
    uint32_t exact = 0;
    for (uint64_t seed = 0; seed < 4000; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_problem *problem = random_problem(&arena, seed, 14);
        uint64_t unread = unread_bytes(&arena, problem);
        for (int form = 0; form < 2; form++) {
            struct ul_problem_graph pg;
            ul_problem_graph_make(&arena, problem, 64, (enum ul_problem_graph_form)form, &pg);
            uint32_t n = pg.graph.node_count;
            uint32_t *order = UL_NEW_ARRAY(&arena, uint32_t, n);
            uint64_t draw = seed;
            for (int i = 0; i < 4; i++) {
                uint64_t peak, tidy_peak, cost;
                uint32_t step_count;
                memcpy(order, pg.graph.order, n * sizeof *order);
                if (i > 0)
                    random_order(&arena, &pg.graph, &draw, order);
                assert_true(ul_solve_replay(&pg.graph, order, n, &peak, &cost));
                uint32_t *steps = ul_problem_graph_steps(&arena, &pg, order, n, &step_count);
                assert_int_equal(step_count, problem->step_count);
                uint64_t live = live_sum(&arena, problem, steps);
                assert_true(live <= peak + unread);
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
                if (pg.exact && unread == 0)
                    assert_int_equal(live, tidy_peak);
                exact += pg.exact;
            }
        }
        ul_arena_done(&arena);
    }
    assert_true(exact > 4000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_problem_graphs_keep_live_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
