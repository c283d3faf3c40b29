/* SPDX-License-Identifier: Apache-2.0 */
/* Branches of a finished plan on two streams (planner/transfer/transfer_share.c), and the checker's
 * proof that none of them touches what another one still uses. */
#include "planner/model/timeline.h"
#include "planner/solve/solve.h"

#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { BRANCHES = 2, LENGTH = 3, BYTES = 256, COST = 100 };

struct made {
    struct ul_arena arena;
    struct ul_problem *problem;
    struct ul_plan plan;
    struct ul_diag diag;
};

static uint32_t add_step(struct ul_problem *problem, const uint32_t *reads, uint32_t read_count,
                         uint64_t size_bytes, bool live_to_end)
{
    struct ul_plan_value value = ul_plan_value_make("v", UL_PLAN_ACTIVATIONS, size_bytes);
    value.live_to_end = live_to_end;
    uint32_t write = ul_problem_add_value(problem, &value);
    const struct ul_plan_substep substep = {
        .reads = reads, .read_count = read_count, .writes = &write, .write_count = 1};
    (void)add_simple_step(problem, "s", 0, COST, &substep);
    return write;
}

/* A step, branches of LENGTH steps that read its result, and a step that reads all of their
 * results. Another large step at the beginning reserves `room_bytes`. */
static void make_branches(struct made *m, uint64_t room_bytes)
{
    const struct ul_plan_options options = {.order = UL_ORDER_FILE};
    uint32_t results[BRANCHES];
    memset(m, 0, sizeof *m);
    ul_arena_init(&m->arena);
    m->problem = ul_problem_new(&m->arena);
    (void)add_step(m->problem, NULL, 0, room_bytes, false);
    uint32_t from = add_step(m->problem, NULL, 0, BYTES, false);
    for (uint32_t b = 0; b < BRANCHES; b++) {
        results[b] = from;
        for (uint32_t i = 0; i < LENGTH; i++)
            results[b] = add_step(m->problem, &results[b], 1, BYTES, false);
    }
    (void)add_step(m->problem, results, BRANCHES, BYTES, true);
    assert_int_equal(ul_plan_solve(&m->arena, m->problem, &options, &m->plan, &m->diag), UL_OK);
}

/* The row of stream 1, added where there is none. */
static struct ul_plan_resource *second_of(struct ul_problem *problem)
{
    if (problem->resource_count == 1)
        ul_problem_add_resource(problem,
                                &(struct ul_plan_resource){.kind = UL_PLAN_COMPUTE, .stream = 1});
    return &problem->resources[1];
}

/* With the plan's own costs, of which `busy_percent` keep the device busy. */
static void stream(struct made *m, uint32_t busy_percent, uint32_t least_percent)
{
    const struct ul_plan_options options = {.budget_bytes = 0};
    uint32_t count = m->plan.position_count;
    bool *may = UL_NEW_ARRAY(&m->arena, bool, count);
    uint64_t *costs = UL_NEW_ARRAY(&m->arena, uint64_t, count);
    uint64_t *busy = UL_NEW_ARRAY(&m->arena, uint64_t, count);
    uint32_t *groups = UL_NEW_ARRAY(&m->arena, uint32_t, count);
    for (uint32_t p = 0; p < count; p++) {
        const struct ul_plan_position *at = &m->plan.positions[p];
        may[p] = true;
        groups[p] = p;
        costs[p] =
            at->substep > 0 ? 0 : m->problem->steps[at->step].alternatives[at->alternative].cost;
        busy[p] = costs[p] * busy_percent / 100;
    }
    const struct ul_plan_streaming streaming = {.may = may,
                                                .costs = costs,
                                                .busy_costs = busy,
                                                .groups = groups,
                                                .fork_cost = second_of(m->problem)->latency_cost,
                                                .least_percent = least_percent};
    uint64_t reserved_bytes = m->plan.reserved_bytes[0], cost = m->plan.cost;
    assert_int_equal(
        ul_plan_stream(&m->arena, m->problem, &options, &streaming, &m->plan, &m->diag), UL_OK);
    assert_true(m->plan.reserved_bytes[0] <= reserved_bytes);
    assert_true(m->plan.cost <= cost);
}

static void test_branches(void **state)
{
    struct made m;
    (void)state;
    make_branches(&m, 16 * BYTES);
    second_of(m.problem)->latency_cost = 7;
    uint64_t cost = m.plan.cost;
    stream(&m, 50, 5);
    assert_true(ul_plan_has_streams(&m.plan));
    assert_int_equal(m.plan.cost, cost - LENGTH * COST + 7);
    for (uint32_t p = 2; p < 2 + LENGTH; p++)
        assert_int_equal(m.plan.positions[p].stream, 1);
    const struct ul_plan_position *wait = &m.plan.positions[2 + 2 * LENGTH];
    assert_int_equal(wait->kind, UL_PLAN_WAIT);
    assert_int_equal(wait->awaited, 1 + LENGTH);
    for (uint32_t r = 0; r < m.plan.range_count; r++) /* what stream 1 makes lives to the wait */
        assert_true(m.plan.ranges[r].begin < 2 || m.plan.ranges[r].begin >= 2 + LENGTH ||
                    m.plan.ranges[r].end > 2 + 2 * LENGTH);
    ul_arena_done(&m.arena);
}

/* No gain: the device is busy, the gain is small beside the rest, or no bytes are left. */
static void test_no_gain(void **state)
{
    struct made m;
    (void)state;
    make_branches(&m, 16 * BYTES);
    stream(&m, 100, 0); /* full steps */
    assert_false(ul_plan_has_streams(&m.plan));
    stream(&m, 50, 34); /* 3 of 9 */
    assert_false(ul_plan_has_streams(&m.plan));
    stream(&m, 50, 33);
    assert_true(ul_plan_has_streams(&m.plan));
    ul_arena_done(&m.arena);
    make_branches(&m, 16 * BYTES);
    second_of(m.problem)->latency_cost = 3 * COST;
    stream(&m, 50, 0);
    assert_false(ul_plan_has_streams(&m.plan));
    ul_arena_done(&m.arena);
    make_branches(&m, BYTES);
    stream(&m, 50, 34);
    assert_false(ul_plan_has_streams(&m.plan));
    ul_arena_done(&m.arena);
}

/* The scratch of a step on stream 1 lives through the wait: a larger one does not fit where others
 * are placed before then. */
static void test_spares(void **state)
{
    struct made m;
    uint32_t spares = 0;
    (void)state;
    for (uint64_t spare_bytes = 2 * BYTES; spare_bytes <= 16 * BYTES; spare_bytes += BYTES) {
        make_branches(&m, 16 * BYTES);
        for (uint32_t s = 2; s < 2 + BRANCHES * LENGTH; s++) {
            struct ul_plan_step *step = &m.problem->steps[s];
            const struct ul_plan_alternative *first = &step->alternatives[0];
            struct ul_plan_alternative *both =
                UL_NEW_ARRAY(&m.arena, struct ul_plan_alternative, 2);
            for (uint32_t a = 0; a < 2; a++) {
                struct ul_plan_substep *substep = UL_NEW(&m.arena, struct ul_plan_substep);
                *substep = first->substeps[0];
                substep->scratch_bytes = a == 0 ? BYTES / 4 : spare_bytes;
                both[a] = *first;
                both[a].substeps = substep;
            }
            step->alternatives = both;
            step->spare_count = 1;
        }
        const struct ul_plan_options options = {.order = UL_ORDER_FILE};
        assert_int_equal(ul_plan_solve(&m.arena, m.problem, &options, &m.plan, &m.diag), UL_OK);
        stream(&m, 50, 5);
        assert_true(ul_plan_has_streams(&m.plan));
        assert_int_equal(ul_plan_take_spares(&m.arena, m.problem, &m.plan, &m.diag), UL_OK);
        for (uint32_t p = 0; p < m.plan.position_count; p++)
            spares += m.plan.positions[p].stream == 1 && m.plan.positions[p].alternative == 1;
        ul_arena_done(&m.arena);
    }
    assert_true(spares > 0);
}

/* ---- A proof of our own ---- */

/* Fills what is done for sure when each position begins. */
static bool *find_before(struct ul_arena *arena, const struct ul_plan *plan)
{
    uint32_t n = plan->position_count;
    bool *before = UL_NEW_ARRAY(arena, bool, (uint64_t)n *n);
    for (uint32_t p = 0; p < n; p++)
        for (uint32_t q = 0; q < p; q++) {
            const struct ul_plan_position *at = &plan->positions[p];
            bool is = plan->positions[q].stream == 0 || plan->positions[q].stream == at->stream ||
                      (at->kind == UL_PLAN_WAIT && q == at->awaited);
            before[p * n + q] = before[p * n + q] || is;
            for (uint32_t r = 0; is && r < q; r++)
                before[p * n + r] = before[p * n + r] || before[q * n + r];
        }
    return before;
}

static bool overlap(const struct made *m, uint32_t p, uint32_t a, uint32_t q, uint32_t b)
{
    const struct ul_plan_range *x = ul_plan_find_range(m->problem, &m->plan, a, p);
    const struct ul_plan_range *y = ul_plan_find_range(m->problem, &m->plan, b, q);
    return x != NULL && y != NULL && x->space == y->space &&
           x->offset_bytes < y->offset_bytes + y->size_bytes &&
           y->offset_bytes < x->offset_bytes + x->size_bytes;
}

/* Whether a position writes bytes that the other one touches. */
static bool clash(const struct made *m, uint32_t writer, uint32_t other)
{
    if (m->plan.positions[writer].kind != UL_PLAN_RUN ||
        m->plan.positions[other].kind != UL_PLAN_RUN)
        return false;
    const struct ul_plan_substep *w = ul_substep_at(m->problem, &m->plan.positions[writer]);
    const struct ul_plan_substep *o = ul_substep_at(m->problem, &m->plan.positions[other]);
    bool clashes = false;
    for (uint32_t i = 0; i < w->write_count; i++) {
        for (uint32_t k = 0; k < o->read_count; k++)
            clashes = clashes || overlap(m, writer, w->writes[i], other, o->reads[k]);
        for (uint32_t k = 0; k < o->write_count; k++)
            clashes = clashes || overlap(m, writer, w->writes[i], other, o->writes[k]);
    }
    return clashes;
}

static bool is_ordered(struct made *m)
{
    uint32_t n = m->plan.position_count;
    const bool *before = find_before(&m->arena, &m->plan);
    for (uint32_t p = 0; p < n; p++)
        for (uint32_t q = 0; q < p; q++)
            if (!before[p * n + q] && (clash(m, p, q) || clash(m, q, p)))
                return false;
    return true;
}

static bool is_accepted(struct made *m)
{
    return ul_plan_check(&m->arena, m->problem, &m->plan, &m->diag) == UL_OK;
}

/* Lets a wait be one for the first position of stream 1, and leaves all lifetimes as they are. */
static void forget_wait(struct ul_plan *plan, uint32_t wait)
{
    plan->positions[wait].awaited = UL_PLAN_NONE;
    for (uint32_t p = 0; p < wait && plan->positions[wait].awaited == UL_PLAN_NONE; p++)
        if (plan->positions[p].stream == 1)
            plan->positions[wait].awaited = p;
}

static void test_mutations(void **state)
{
    uint32_t streamed = 0, forgotten = 0, clashing = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        const struct ul_plan_options options = {.budget_bytes = 0};
        struct made m = {.diag = {0}};
        uint64_t numbers = seed;
        ul_arena_init(&m.arena);
        m.problem = random_problem_more(&m.arena, seed, 24);
        second_of(m.problem)->latency_cost = random_below(&numbers, 2);
        assert_int_equal(ul_plan_solve(&m.arena, m.problem, &options, &m.plan, &m.diag), UL_OK);
        stream(&m, 1, 0);
        assert_true(is_ordered(&m));
        streamed += ul_plan_has_streams(&m.plan);
        const struct ul_plan_position *whole = ul_arena_copy(
            &m.arena, m.plan.positions, m.plan.position_count * sizeof *m.plan.positions);
        for (uint32_t p = 0; p < m.plan.position_count; p++) {
            struct ul_plan_position *at = &m.plan.positions[p];
            if (at->kind == UL_PLAN_WAIT)
                forget_wait(&m.plan, p);
            else if (at->kind == UL_PLAN_RUN)
                at->stream = 1 - at->stream;
            bool is_same = at->awaited == whole[p].awaited && at->stream == whole[p].stream;
            forgotten += at->kind == UL_PLAN_WAIT && !is_same && !is_accepted(&m);
            clashing += !is_ordered(&m);
            assert_true(is_ordered(&m) || !is_accepted(&m));
            *at = whole[p];
        }
        assert_true(is_accepted(&m));
        ul_arena_done(&m.arena);
    }
    assert_true(streamed > 20 && forgotten > 10 && clashing > 100);
}

/* The message names the step and the value. */
static void test_message(void **state)
{
    struct made m;
    (void)state;
    make_branches(&m, 16 * BYTES);
    second_of(m.problem)->latency_cost = 7;
    stream(&m, 50, 5);
    uint32_t wait = 2 + 2 * LENGTH;
    m.plan.positions[wait].awaited = 2; /* the first of the branch, not its last */
    assert_false(is_accepted(&m));
    assert_non_null(strstr(m.diag.text, "nothing waits for it"));
    ul_arena_done(&m.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_branches), cmocka_unit_test(test_no_gain),
        cmocka_unit_test(test_spares),   cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
