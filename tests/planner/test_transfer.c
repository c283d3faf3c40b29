/* The engine that places transfers: on random problems, with loops, branches and entries, for every
 * limit that it can meet, its plan is within the limit and the room, passes the checker, and, where
 * there are no entries, the oracle, whose streams do what they do as late as they may. */
#include "oracle.h"
#include "planner/model/timeline.h"
#include "planner/solve/solve.h"
#include "planner/solve/solve_internal.h"
#include "planner/transfer/transfer.h"
#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_STEPS = 16, PROBLEM_COUNT = 3000, LEVELS = 4 };

struct made {
    struct ul_arena arena;
    struct ul_problem *problem;
    struct ul_plan runs;
    uint64_t random;
};

struct seen {
    uint32_t plans, homes, entries, exposed, full;
};

static struct ul_plan_options options_of(void)
{
    return (struct ul_plan_options){.alignment_bytes = 64, .pack = UL_PACK_GREEDY};
}

/* Two entries, where the problem has no regions. */
static void entries_add(struct ul_problem *problem)
{
    if (problem->region_count > 1 || problem->step_count < 4)
        return;
    uint32_t first = ul_problem_add_region(problem, UL_PLAN_ENTRY, 0);
    uint32_t second = ul_problem_add_region(problem, UL_PLAN_ENTRY, 0);
    for (uint32_t s = 0; s < problem->step_count; s++)
        problem->steps[s].region = s < problem->step_count / 2 ? first : second;
}

/* Some of what is there from the start is there for ever. */
static void states_make(struct made *m)
{
    for (uint32_t v = 0; v < m->problem->value_count; v++) {
        struct ul_plan_value *value = &m->problem->values[v];
        if (!value->live_from_start || random_below(&m->random, 2) == 0)
            continue;
        value->live_from_start = false;
        value->persistent = true;
        value->class = UL_PLAN_OPTIMIZER;
    }
}

static void made_init(struct made *m, uint64_t seed)
{
    memset(m, 0, sizeof *m);
    ul_arena_init(&m->arena);
    m->random = seed * 57 + 11;
    m->problem = random_problem_more(&m->arena, seed, MAX_STEPS);
    states_make(m);
    if (seed % 3 == 0)
        entries_add(m->problem);
    struct ul_plan_space *other = &m->problem->spaces[ul_problem_add_space(m->problem, "other", 0)];
    other->transfers = true;
    other->duplex = random_below(&m->random, 2) == 0;
    other->latency_cost = random_below(&m->random, 2) * 3;
    other->bandwidth_mb = random_below(&m->random, 3) * 20000;
    uint32_t steps[MAX_STEPS];
    for (uint32_t s = 0; s < m->problem->step_count; s++)
        steps[s] = s;
    m->runs.alignment_bytes = 64;
    ul_timeline_positions(&m->arena, m->problem, steps, &m->runs);
    ul_timeline_build(&m->arena, m->problem, UL_ALIAS_ALL, &m->runs);
    ul_account_live(&m->arena, &m->runs);
}

static struct ul_transfer job_of(const struct made *m, uint64_t limit_bytes, uint64_t room_bytes)
{
    return (struct ul_transfer){.problem = m->problem,
                                .runs = &m->runs,
                                .limit_bytes = limit_bytes,
                                .room_bytes = room_bytes,
                                .effort = {.work_limit = 1 << 14, .seed = 1}};
}

static uint64_t stored_bytes(const struct ul_plan *plan)
{
    uint64_t most = 0;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        uint64_t sum = 0;
        for (uint32_t r = 0; r < plan->range_count; r++) {
            const struct ul_plan_range *range = &plan->ranges[r];
            if (range->space == 1 && range->begin <= p && p < range->end)
                sum += ul_size_align_or_die(range->size_bytes, 64);
        }
        most = sum > most ? sum : most;
    }
    return most;
}

static void plan_prove(struct made *m, const struct ul_transfer *job, const struct oracle *oracle,
                       uint64_t seed, struct seen *seen)
{
    struct ul_plan_options options = options_of();
    struct ul_diag diag = {.status = UL_OK};
    struct ul_plan plan = {.positions = job->positions, .position_count = job->position_count};
    assert_int_equal(ul_plan_complete(&m->arena, m->problem, &options, &plan, &diag), UL_OK);
    ul_plan_judge(m->problem, 0, NULL, &plan);
    if (ul_plan_check(&m->arena, m->problem, &plan, &diag) != UL_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, diag.text);
    struct ul_plan live = {
        .positions = job->positions, .position_count = job->position_count, .alignment_bytes = 64};
    ul_timeline_build(&m->arena, m->problem, UL_ALIAS_ALL, &live);
    ul_account_live(&m->arena, &live);
    if (live.order_lower_bound_bytes > job->limit_bytes)
        fail_msg("seed %llu: %llu live bytes, and the limit is %llu", (unsigned long long)seed,
                 (unsigned long long)live.order_lower_bound_bytes,
                 (unsigned long long)job->limit_bytes);
    if (job->room_bytes != UINT64_MAX && stored_bytes(&plan) > job->room_bytes)
        fail_msg("seed %llu: the room is not enough", (unsigned long long)seed);
    bool has_entries = m->problem->region_count > 1 && m->problem->regions[1].kind == UL_PLAN_ENTRY;
    if (!has_entries && !oracle_accepts(oracle, &plan))
        fail_msg("seed %llu: the oracle refuses it", (unsigned long long)seed);
    assert_int_equal(plan.cost, job->cost);
    seen->plans++;
    seen->exposed += plan.cost > ul_problem_min_cost(m->problem);
    seen->entries += has_entries;
    for (uint32_t v = 0; v < m->problem->value_count; v++)
        seen->homes += m->problem->values[v].persistent && ul_plan_home(&plan, v) == 1;
}

static void test_every_limit_is_met(void **state)
{
    (void)state;
    struct seen seen = {.plans = 0};
    for (uint64_t seed = 1; seed <= PROBLEM_COUNT; seed++) {
        struct made m;
        struct oracle oracle;
        made_init(&m, seed);
        oracle_init(&oracle, &m.arena, m.problem);
        uint64_t peak = m.runs.order_lower_bound_bytes;
        struct ul_transfer job = job_of(&m, 0, UINT64_MAX);
        ul_transfer_place(&m.arena, &job);
        uint64_t lowest = job.floor_bytes;
        for (uint32_t i = 0; i <= LEVELS && m.problem->step_count > 0; i++) {
            job = job_of(&m, lowest + (peak - lowest) * i / LEVELS, UINT64_MAX);
            ul_transfer_place(&m.arena, &job);
            assert_non_null(job.positions);
            plan_prove(&m, &job, &oracle, seed, &seen);
            job = job_of(&m, job.limit_bytes, 64 + random_below(&m.random, 20) * 64);
            ul_transfer_place(&m.arena, &job);
            seen.full += job.positions == NULL;
            if (job.positions != NULL)
                plan_prove(&m, &job, &oracle, seed, &seen);
        }
        ul_arena_done(&m.arena);
    }
    assert_true(seen.plans > PROBLEM_COUNT * LEVELS && seen.full > PROBLEM_COUNT / 4);
    assert_true(seen.homes > PROBLEM_COUNT && seen.entries > PROBLEM_COUNT);
    assert_true(seen.exposed > PROBLEM_COUNT);
}

/* A forward pass of four values of 100 bytes, each read once more on the way back. */
static struct ul_solve_result solve(struct ul_arena *arena, const char *space, uint64_t budget)
{
    static const char graph_text[] =
        "{\"format\": \"ullage-graph\", \"version\": 1, \"nodes\": ["
        "{\"id\": 0, \"bytes\": 100, \"cost\": 10}, {\"id\": 1, \"bytes\": 100, \"cost\": 10},"
        "{\"id\": 2, \"bytes\": 100, \"cost\": 10}, {\"id\": 3, \"bytes\": 100, \"cost\": 10},"
        "{\"id\": 4, \"bytes\": 10, \"cost\": 20}, {\"id\": 5, \"bytes\": 10, \"cost\": 20},"
        "{\"id\": 6, \"bytes\": 10, \"cost\": 20}, {\"id\": 7, \"bytes\": 10, \"cost\": 20}],"
        "\"edges\": [[0, 1], [1, 2], [2, 3], [3, 4], [2, 5], [4, 5], [1, 6], [5, 6], [0, 7], [6, "
        "7]],"
        "\"order\": [0, 1, 2, 3, 4, 5, 6, 7]%s}";
    struct ul_solve_graph graph;
    struct ul_solve_result result;
    struct ul_diag diag = {.status = UL_OK};
    const struct ul_solve_options options = {.budget_bytes = budget, .work_limit = 1 << 16};
    const char *text = ul_arena_printf(arena, graph_text, space);
    assert_int_equal(ul_solve_read_json(arena, text, strlen(text), &graph, &diag), UL_OK);
    assert_int_equal(ul_solve_graph_run(arena, &graph, &options, &result, &diag), UL_OK);
    return result;
}

static void test_graphs_have_a_second_space(void **state)
{
    (void)state;
    struct ul_arena arena;
    ul_arena_init(&arena);
    struct ul_solve_result alone = solve(&arena, "", 220);
    struct ul_solve_result fast =
        solve(&arena, ", \"space\": {\"bandwidth\": 10000, \"duplex\": true}", 220);
    struct ul_solve_result slow = solve(&arena, ", \"space\": {\"bandwidth\": 100}", 220);
    struct ul_solve_result full =
        solve(&arena, ", \"space\": {\"bandwidth\": 10000, \"capacity\": 99}", 220);
    assert_true(alone.fits && alone.cost > alone.base_cost && alone.positions == NULL);
    assert_true(fast.fits && fast.positions != NULL && fast.peak_bytes <= 220);
    assert_true(fast.cost < alone.cost && fast.cost >= fast.cost_bound);
    assert_true(slow.fits && slow.positions == NULL && slow.cost == alone.cost);
    assert_true(full.fits && full.positions == NULL && full.cost == alone.cost);
    struct ul_solve_result less = solve(&arena, ", \"space\": {}", 199);
    assert_true(!less.fits && less.proven);
    ul_arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_limit_is_met),
                                       cmocka_unit_test(test_graphs_have_a_second_space)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
