/* SPDX-License-Identifier: Apache-2.0 */
/* The engine that places transfers: on random problems, with loops, branches and entries, for every
 * limit that it can meet, its plan is within the limit and the room, passes the checker, and, where
 * there are no entries, the oracle, whose streams do what they do as late as they may. Then what is
 * changed in one place of such a plan: the checker refuses it, or it still means the same. */
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

/* Some of what is there from the start stays there for ever. */
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
    struct ul_plan_offload other = {.name = "other"};
    other.duplex = random_below(&m->random, 2) == 0;
    other.latency_cost = random_below(&m->random, 2) * 3;
    other.bandwidth_mb = random_below(&m->random, 3) * 20000;
    ul_problem_add_offload(m->problem, &other);
    uint32_t steps[MAX_STEPS];
    for (uint32_t s = 0; s < m->problem->step_count; s++)
        steps[s] = s;
    m->runs.alignment_bytes = 64;
    ul_timeline_positions(&m->arena, m->problem, steps, &m->runs);
    ul_timeline_build(&m->arena, m->problem, UL_ALIAS_ALL, &m->runs);
    ul_account_live(&m->arena, &m->runs);
}

static struct ul_transfer_search job_of(const struct made *m, uint64_t limit_bytes,
                                        uint64_t room_bytes)
{
    return (struct ul_transfer_search){.problem = m->problem,
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

static void plan_prove(struct made *m, const struct ul_transfer_search *job,
                       const struct oracle *oracle, uint64_t seed, struct seen *seen)
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
        seen->homes += m->problem->values[v].persistent &&
                       plan.ranges[plan.value_ranges[v]].space == 1; /* loaded first */
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
        struct ul_transfer_search job = job_of(&m, 0, UINT64_MAX);
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

/* ---- Plans with one thing changed ---- */

struct mutant {
    struct ul_problem *problem;
    struct ul_plan *plan;
};

static bool is_transfer(const struct ul_plan_position *at)
{
    return at->kind == UL_PLAN_COPY;
}

/* Everything after the position comes one earlier. */
static void position_remove(struct ul_plan *plan, uint32_t p)
{
    plan->position_count--;
    memmove(plan->positions + p, plan->positions + p + 1,
            (plan->position_count - p) * sizeof *plan->positions);
    for (uint32_t q = p; q < plan->position_count; q++)
        plan->positions[q].awaited -= plan->positions[q].awaited > p;
    for (uint32_t r = 0; r < plan->range_count; r++) {
        plan->ranges[r].begin -= plan->ranges[r].begin > p;
        plan->ranges[r].end -= plan->ranges[r].end > p;
    }
    plan->peak_position -= plan->peak_position > p;
}

static bool wait_lose(struct mutant *m, uint32_t p)
{
    bool is_wait = m->plan->positions[p].kind == UL_PLAN_WAIT;
    if (is_wait)
        position_remove(m->plan, p);
    return is_wait;
}

static bool wait_for_earlier(struct mutant *m, uint32_t p)
{
    struct ul_plan_position *at = &m->plan->positions[p];
    uint32_t q = at->awaited;
    if (at->kind != UL_PLAN_WAIT)
        return false;
    while (q-- > 0 && m->plan->positions[q].stream != m->plan->positions[at->awaited].stream)
        ;
    at->awaited = q;
    return q != UINT32_MAX;
}

static bool wait_later(struct mutant *m, uint32_t p)
{
    struct ul_plan_position *at = &m->plan->positions[p];
    if (at->kind != UL_PLAN_WAIT || p + 1 == m->plan->position_count || at[1].kind != UL_PLAN_RUN)
        return false;
    const struct ul_plan_position wait = *at;
    *at = at[1];
    at[1] = wait;
    return true;
}

static bool load_before_save(struct mutant *m, uint32_t p)
{
    struct ul_plan_position *at = m->plan->positions;
    uint32_t q = p + 1;
    while (q < m->plan->position_count &&
           (at[q].kind != UL_PLAN_COPY || !at[q].loads || at[q].value != at[p].value))
        q++;
    if (at[p].kind != UL_PLAN_COPY || at[p].loads || q == m->plan->position_count)
        return false;
    const struct ul_plan_position save = at[p];
    at[p] = at[q];
    at[q] = save;
    for (uint32_t r = 0; r < m->plan->range_count; r++) {
        struct ul_plan_range *range = &m->plan->ranges[r];
        if (range->value == save.value)
            range->begin = range->begin == p ? q : range->begin == q ? p : range->begin;
    }
    return true;
}

static bool transfer_lose(struct mutant *m, uint32_t p)
{
    bool is = is_transfer(&m->plan->positions[p]);
    if (is)
        position_remove(m->plan, p);
    return is;
}

static bool stream_none(struct mutant *m, uint32_t p)
{
    bool is = is_transfer(&m->plan->positions[p]);
    m->plan->positions[p].stream = 0;
    return is;
}

static bool stream_other(struct mutant *m, uint32_t p)
{
    struct ul_plan_position *at = &m->plan->positions[p];
    bool is = is_transfer(at);
    at->stream = is ? 3 - at->stream : at->stream;
    return is;
}

static bool value_other(struct mutant *m, uint32_t p)
{
    struct ul_plan_position *at = &m->plan->positions[p];
    at->value = (at->value + 1) % m->problem->value_count;
    return is_transfer(at) && m->problem->value_count > 1;
}

static bool kind_other(struct mutant *m, uint32_t p)
{
    struct ul_plan_position *at = &m->plan->positions[p];
    bool is = is_transfer(at);
    at->loads = !at->loads;
    return is;
}

static bool space_other(struct mutant *m, uint32_t p)
{
    bool is = is_transfer(&m->plan->positions[p]);
    m->plan->positions[p].space = 0;
    return is;
}

static bool entry_other(struct mutant *m, uint32_t p)
{
    struct ul_plan_position *at = &m->plan->positions[p];
    bool is = at->kind != UL_PLAN_RUN && m->problem->region_count > 2 && at->region != 0;
    at->region = 3 - at->region;
    return is && m->problem->regions[at->region].kind == UL_PLAN_ENTRY;
}

static bool stays(struct mutant *m, uint32_t p)
{
    bool is = is_transfer(&m->plan->positions[p]);
    if (is)
        m->problem->values[m->plan->positions[p].value].stays = true;
    return is;
}

/* Whether the range is of a value that moves. */
static bool moves(const struct mutant *m, uint32_t r)
{
    uint32_t value = m->plan->ranges[r].value;
    for (uint32_t p = 0; p < m->plan->position_count; p++) {
        if (is_transfer(&m->plan->positions[p]) && m->plan->positions[p].value == value)
            return true;
    }
    return false;
}

static bool offset_shift(struct mutant *m, uint32_t r)
{
    m->plan->ranges[r].offset_bytes += 64;
    return moves(m, r);
}

static bool offset_of_other(struct mutant *m, uint32_t r)
{
    uint32_t other = (r + 1) % m->plan->range_count;
    m->plan->ranges[r].offset_bytes = m->plan->ranges[other].offset_bytes;
    return moves(m, r);
}

static bool range_late(struct mutant *m, uint32_t r)
{
    m->plan->ranges[r].begin++;
    return moves(m, r);
}

static bool range_short(struct mutant *m, uint32_t r)
{
    m->plan->ranges[r].end--;
    return moves(m, r);
}

static bool home_other(struct mutant *m, uint32_t r)
{
    struct ul_plan_range *range = &m->plan->ranges[r];
    range->space = 1 - range->space;
    return moves(m, r);
}

/* Changes the plan as a whole, once. */
static bool capacity_less(struct mutant *m, uint32_t at)
{
    m->problem->spaces[1].capacity_bytes = m->plan->reserved_bytes[1] - 1;
    return at == 0 && m->plan->reserved_bytes[1] > 64;
}

static bool reserved_less(struct mutant *m, uint32_t at)
{
    m->plan->reserved_bytes[1] -= 64;
    return at == 0 && m->plan->reserved_bytes[1] < UINT64_MAX - 64;
}

static bool time_less(struct mutant *m, uint32_t at)
{
    m->plan->cost--;
    return at == 0 && m->plan->cost < UINT64_MAX;
}

static bool transfers_none(struct mutant *m, uint32_t at)
{
    m->problem->resource_count = 1;
    return at == 0 && m->plan->reserved_bytes[1] > 0;
}

static const struct {
    const char *name;
    bool (*make)(struct mutant *m, uint32_t at); /* false: not at this position, or range */
    bool is_always;                              /* refused, whatever the oracle says */
    bool is_of_range;                            /* not of a position; or of the plan, at 0 */
} kinds[] = {{"a wait is lost", wait_lose, false, false},
             {"a wait is for something earlier", wait_for_earlier, false, false},
             {"a wait comes later", wait_later, false, false},
             {"a load comes before its save", load_before_save, true, false},
             {"a transfer is lost", transfer_lose, true, false},
             {"a transfer is done at once", stream_none, false, false},
             {"a transfer is on another stream", stream_other, false, false},
             {"a transfer is of another value", value_other, true, false},
             {"a save is a load", kind_other, true, false},
             {"a transfer is to its own space", space_other, true, false},
             {"a transfer is of another entry", entry_other, true, false},
             {"a value that stays moves", stays, true, false},
             {"a range lies elsewhere", offset_shift, false, true},
             {"a range lies on another", offset_of_other, false, true},
             {"a range begins late", range_late, false, true},
             {"a range is short", range_short, true, true},
             {"a range is in the other space", home_other, true, true},
             {"the other space is too small", capacity_less, true, true},
             {"the other space reserves less", reserved_less, true, true},
             {"nothing is waited for", time_less, true, true},
             {"the space takes no transfers", transfers_none, true, true}};
enum { KIND_COUNT = sizeof kinds / sizeof *kinds };

static struct mutant mutant_of(struct ul_arena *arena, const struct made *m,
                               const struct ul_plan *from)
{
    struct mutant made = {UL_NEW(arena, struct ul_problem), UL_NEW(arena, struct ul_plan)};
    *made.problem = *m->problem;
    made.problem->values = ul_arena_copy(arena, m->problem->values,
                                         m->problem->value_count * sizeof *m->problem->values);
    made.problem->spaces = ul_arena_copy(arena, m->problem->spaces,
                                         m->problem->space_count * sizeof *m->problem->spaces);
    *made.plan = *from;
    made.plan->positions =
        ul_arena_copy(arena, from->positions, from->position_count * sizeof *from->positions);
    made.plan->ranges =
        ul_arena_copy(arena, from->ranges, from->range_count * sizeof *from->ranges);
    made.plan->reserved_bytes = ul_arena_copy(arena, from->reserved_bytes,
                                              from->space_count * sizeof *from->reserved_bytes);
    return made;
}

static void mutants_try(struct made *m, const struct oracle *oracle, const struct ul_plan *from,
                        uint64_t seed, uint32_t *refused)
{
    uint32_t most =
        from->position_count > from->range_count ? from->position_count : from->range_count;
    bool has_entries = m->problem->region_count > 1 && m->problem->regions[1].kind == UL_PLAN_ENTRY;
    for (uint32_t i = 0; i < KIND_COUNT * most; i++) {
        uint32_t kind = i % KIND_COUNT, at = i / KIND_COUNT;
        struct ul_diag diag = {.status = UL_OK};
        struct ul_arena scratch;
        if (at >= (kinds[kind].is_of_range ? from->range_count : from->position_count))
            continue;
        ul_arena_init(&scratch);
        struct mutant mutant = mutant_of(&scratch, m, from);
        bool is_made = kinds[kind].make(&mutant, at);
        bool is_refused =
            is_made && ul_plan_check(&scratch, mutant.problem, mutant.plan, &diag) == UL_MISMATCH;
        bool may_pass =
            !kinds[kind].is_always && (has_entries || oracle_accepts(oracle, mutant.plan));
        if (is_made && !is_refused && !may_pass)
            fail_msg("seed %llu: %s, at %u, and passes", (unsigned long long)seed, kinds[kind].name,
                     at);
        refused[kind] += is_refused;
        ul_arena_done(&scratch);
    }
}

static void test_each_change_is_refused(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    uint32_t refused[KIND_COUNT] = {0};
    for (uint64_t seed = 1; seed <= COUNT; seed++) {
        struct made m;
        struct oracle oracle;
        struct ul_plan_options options = options_of();
        struct ul_diag diag = {.status = UL_OK};
        made_init(&m, seed);
        oracle_init(&oracle, &m.arena, m.problem);
        struct ul_transfer_search job = job_of(&m, 0, UINT64_MAX);
        ul_transfer_place(&m.arena, &job);
        job = job_of(&m, job.floor_bytes, UINT64_MAX);
        if (m.problem->step_count > 0)
            ul_transfer_place(&m.arena, &job);
        struct ul_plan plan = {.positions = job.positions, .position_count = job.position_count};
        if (job.positions != NULL) {
            assert_int_equal(ul_plan_complete(&m.arena, m.problem, &options, &plan, &diag), UL_OK);
            ul_plan_judge(m.problem, 0, NULL, &plan);
            mutants_try(&m, &oracle, &plan, seed, refused);
        }
        ul_arena_done(&m.arena);
    }
    for (uint32_t kind = 0; kind < KIND_COUNT; kind++) {
        if (refused[kind] < COUNT / 10)
            fail_msg("%s: refused %u times", kinds[kind].name, refused[kind]);
    }
}

/* ---- Plans that are refused ---- */

static struct ul_plan plan_within(struct made *m, uint64_t budget_bytes, uint64_t capacity_bytes)
{
    struct ul_plan_options options = options_of();
    struct ul_diag diag = {.status = UL_OK};
    struct ul_plan plan;
    options.budget_bytes = budget_bytes;
    options.work_limit = 1 << 10;
    m->problem->spaces[1].capacity_bytes = capacity_bytes;
    assert_int_equal(ul_plan_solve(&m->arena, m->problem, &options, &plan, &diag), UL_OK);
    return plan;
}

/* What a plan that does not fit says would be enough is enough, to the byte. */
static void refusal_prove(struct made *m, const struct ul_plan *refused, uint64_t budget_bytes,
                          uint64_t capacity_bytes)
{
    uint64_t room = refused->sufficient_room_bytes, least = refused->smallest_budget_bytes;
    assert_true(plan_within(m, least, capacity_bytes).fits);
    assert_false(plan_within(m, least - 1, capacity_bytes).fits);
    if (room == 0) {
        assert_false(plan_within(m, budget_bytes, 0).fits);
        return;
    }
    assert_true(room > capacity_bytes && plan_within(m, budget_bytes, room).fits);
    assert_false(plan_within(m, budget_bytes, room - 1).fits);
}

static void test_refusals_say_what_suffices(void **state)
{
    (void)state;
    enum { COUNT = 60, WANTED = 10 };
    uint32_t of_room = 0, of_budget = 0;
    for (uint64_t seed = 1; seed <= COUNT; seed++) {
        struct made m;
        made_init(&m, seed);
        struct ul_transfer_search job = job_of(&m, 0, UINT64_MAX);
        ul_transfer_place(&m.arena, &job);
        uint64_t peak = m.runs.order_lower_bound_bytes, capacity = 64 + seed % 3 * 64;
        uint64_t budget = peak - (peak - job.floor_bytes) * (seed % 4 + 2) / 4;
        if (m.problem->step_count > 0 && job.floor_bytes < peak) {
            struct ul_plan plan = plan_within(&m, budget, capacity);
            if (!plan.fits)
                refusal_prove(&m, &plan, budget, capacity);
            of_room += !plan.fits && plan.sufficient_room_bytes > 0;
            of_budget += !plan.fits && plan.sufficient_room_bytes == 0;
        }
        ul_arena_done(&m.arena);
    }
    assert_true(of_room >= WANTED && of_budget >= WANTED);
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
                                       cmocka_unit_test(test_each_change_is_refused),
                                       cmocka_unit_test(test_refusals_say_what_suffices),
                                       cmocka_unit_test(test_graphs_have_a_second_space)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
