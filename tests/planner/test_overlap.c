/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of other resources beside those of stream 0: random problems with links and a second
 * stream, without a budget and with some, by the checker and by what the plans mean; and tiny ones
 * against a search over everything. */
#include "oracle.h"
#include "planner/model/timeline.h"
#include "planner/solve/solve.h"
#include "planner/transfer/transfer.h"
#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_STEPS = 16, TINY = 7 };

/* Gives some steps to links, or to a second stream. */
static void resources_add(struct ul_problem *problem, uint64_t *random)
{
    uint32_t rows = 1 + random_below(random, 3);
    for (uint32_t r = 1; r <= rows; r++)
        ul_problem_add_resource(
            problem, &(struct ul_plan_resource){.kind = r == 3 ? UL_PLAN_COMPUTE : UL_PLAN_LINK,
                                                .stream = r + 2,
                                                .latency_cost = random_below(random, 3)});
    for (uint32_t s = 0; s < problem->step_count; s++) {
        struct ul_plan_step *step = &problem->steps[s];
        struct ul_plan_alternative *alternatives =
            ul_arena_copy(problem->arena, step->alternatives,
                          sizeof *alternatives * (step->alternative_count + step->spare_count));
        uint32_t resource = random_below(random, 3) == 0 ? 1 + random_below(random, rows) : 0;
        for (uint32_t a = 0; a < step->alternative_count + step->spare_count; a++)
            alternatives[a].resource = resource;
        step->alternatives = alternatives;
    }
}

struct seen {
    uint32_t plans, beside, faster, smaller, changed, refused;
};

/* Changes a wait or a stream: what the checker takes then, means the same. */
static void mutants_try(const struct oracle *oracle, struct ul_arena *arena,
                        const struct ul_problem *problem, const struct ul_plan *plan,
                        struct seen *seen)
{
    for (uint32_t p = 0; p < plan->position_count; p++) {
        struct ul_plan mutant = *plan;
        struct ul_diag diag = {.status = UL_OK};
        mutant.positions =
            ul_arena_copy(arena, plan->positions, sizeof *plan->positions * plan->position_count);
        struct ul_plan_position *at = &mutant.positions[p];
        if (at->kind == UL_PLAN_WAIT && at->awaited > 0)
            at->awaited--;
        else if (at->stream > 0)
            at->stream = at->stream == 3 ? 4 : 0;
        else
            continue;
        bool accepted = ul_plan_check(arena, problem, &mutant, &diag) == UL_OK;
        seen->changed++;
        seen->refused += !accepted;
        assert_true(!accepted || oracle == NULL || oracle_accepts(oracle, &mutant));
    }
}

/* `is_read`: the oracle reads the problem, which has no regions in others. */
static void problem_try(struct ul_arena *arena, const struct ul_problem *problem, bool is_read,
                        struct seen *seen)
{
    struct ul_plan_options options = {.work_limit = 20000};
    struct ul_diag diag = {.status = UL_OK};
    struct ul_plan plan;
    struct oracle oracle;
    uint64_t cost = 0, bytes = 0, bound = ul_problem_cost_bound(problem);
    if (is_read)
        oracle_init(&oracle, arena, problem);
    for (uint32_t i = 0; i < 4; i++) {
        options.budget_bytes = i == 0 ? 0 : bytes * (10 - 2 * i) / 10 + 1;
        enum ul_status status = ul_plan_solve(arena, problem, &options, &plan, &diag);
        if (status != UL_OK)
            fail_msg("%s", diag.text);
        assert_true(!is_read || oracle_accepts(&oracle, &plan));
        assert_true(plan.cost >= bound);
        mutants_try(is_read ? &oracle : NULL, arena, problem, &plan, seen);
        struct ul_plan runs = plan;
        ul_transfer_only_runs(arena, &runs);
        ul_account_cost(arena, problem, &runs);
        assert_true(plan.cost <= runs.cost || ul_plan_has_transfers(&plan));
        assert_true(i == 0 || !plan.fits || plan.cost >= cost);
        seen->plans++;
        seen->beside += ul_plan_has_streams(&plan);
        seen->faster += plan.cost < runs.cost;
        seen->smaller += i > 0 && plan.fits && plan.reserved_bytes[0] < bytes;
        cost = i == 0 ? plan.cost : cost;
        bytes = i == 0 ? plan.reserved_bytes[0] : bytes;
    }
}

static void test_random_problems(void **state)
{
    struct seen seen = {.plans = 0};
    (void)state;
    for (uint64_t seed = 1; seed <= 70; seed++) {
        struct ul_arena arena;
        uint64_t random = seed * 31;
        ul_arena_init(&arena);
        struct ul_problem *problem = seed % 3 == 0 ? random_problem_nested(&arena, seed, MAX_STEPS)
                                                   : random_problem_more(&arena, seed, MAX_STEPS);
        resources_add(problem, &random);
        if (seed % 4 == 0)
            ul_problem_add_offload(
                problem, &(struct ul_plan_offload){.name = "other", .bandwidth_mb = 20000});
        problem_try(&arena, problem, seed % 3 != 0, &seen);
        ul_arena_done(&arena);
    }
    print_message("%u plans: %u beside, %u faster, %u smaller; %u of %u changes refused\n",
                  seen.plans, seen.beside, seen.faster, seen.smaller, seen.refused, seen.changed);
    assert_true(seen.beside > 80 && seen.faster > 80 && seen.smaller > 20);
    assert_true(seen.refused > 100 && seen.refused < seen.changed);
}

/* ---- Everything ---- */

struct tiny {
    uint32_t count;
    uint64_t cost[TINY];
    uint32_t inputs[TINY]; /* sets */
    uint32_t stream[TINY];
};

/* The least time at which all may be done, where steps of a stream other than 0 begin when stream 0
 * comes to them, and it waits for what it reads. */
static uint64_t least(const struct tiny *t, uint32_t done, const uint64_t *finish,
                      const uint64_t *clocks, uint32_t waited)
{
    uint64_t best = UINT64_MAX;
    if (done == (1u << t->count) - 1) {
        best = clocks[0];
        for (uint32_t v = 0; v < t->count; v++)
            best = finish[v] > best ? finish[v] : best;
        return best;
    }
    for (uint32_t v = 0; v < t->count; v++) {
        uint64_t ends[TINY], now[3];
        if ((done >> v & 1) != 0 || (t->inputs[v] & ~done) != 0)
            continue;
        memcpy(ends, finish, sizeof ends);
        memcpy(now, clocks, sizeof now);
        for (uint32_t u = 0; u < t->count; u++)
            if ((t->inputs[v] >> u & 1) != 0 && t->stream[u] != t->stream[v] && ends[u] > now[0])
                now[0] = ends[u];
        uint64_t *clock = &now[t->stream[v]];
        *clock = *clock > now[0] ? *clock : now[0];
        *clock = ends[v] = *clock + t->cost[v];
        uint64_t cost = least(t, done | 1u << v, ends, now, waited);
        best = cost < best ? cost : best;
    }
    return best;
}

static struct ul_problem *tiny_make(struct ul_arena *arena, uint64_t seed, struct tiny *t)
{
    uint64_t random = seed * 7919 + 5;
    struct ul_problem *problem = ul_problem_new(arena);
    memset(t, 0, sizeof *t);
    t->count = TINY - random_below(&random, 3);
    for (uint32_t r = 1; r < 3; r++)
        ul_problem_add_resource(problem,
                                &(struct ul_plan_resource){.kind = UL_PLAN_LINK, .stream = r});
    for (uint32_t v = 0; v < t->count; v++) {
        uint32_t reads[TINY], count = 0;
        t->cost[v] = 1 + random_below(&random, 6);
        t->stream[v] = random_below(&random, 2) == 0 ? 0 : 1 + random_below(&random, 2);
        for (uint32_t u = 0; u < v; u++) {
            if (random_below(&random, 3) == 0) {
                t->inputs[v] |= 1u << u;
                reads[count++] = u;
            }
        }
        struct ul_plan_value value = ul_plan_value_make("v", UL_PLAN_ACTIVATIONS, 64);
        ul_problem_add_value(problem, &value);
        const struct ul_plan_substep substep = {
            .reads = reads, .read_count = count, .writes = &v, .write_count = 1};
        const struct ul_plan_alternative alternative = {
            .substeps = &substep, .substep_count = 1, .resource = t->stream[v], .cost = t->cost[v]};
        ul_problem_add_step(problem, &(struct ul_plan_step){.name = "s",
                                                            .alternatives = &alternative,
                                                            .alternative_count = 1});
    }
    return problem;
}

static void test_everything(void **state)
{
    static const uint64_t none[TINY];
    uint32_t found = 0, tries = 300;
    (void)state;
    for (uint64_t seed = 1; seed <= tries; seed++) {
        const struct ul_plan_options options = {.work_limit = 20000};
        struct ul_diag diag = {.status = UL_OK};
        struct ul_plan plan;
        struct ul_arena arena;
        struct tiny tiny;
        ul_arena_init(&arena);
        const struct ul_problem *problem = tiny_make(&arena, seed, &tiny);
        assert_int_equal(ul_plan_solve(&arena, problem, &options, &plan, &diag), UL_OK);
        uint64_t cost = least(&tiny, 0, none, none, 0);
        assert_true(plan.cost >= cost);
        found += plan.cost == cost;
        ul_arena_done(&arena);
    }
    print_message("%u of %u plans take the least time\n", found, tries);
    assert_true(found * 10 > tries * 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_problems),
                                       cmocka_unit_test(test_everything)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
