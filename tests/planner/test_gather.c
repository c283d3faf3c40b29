/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that may share a launch, brought together in a finished plan (planner/solve/gather.c). */
#include "planner/solve/solve.h"

#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { MOST = 4, PAIRS = 3 };

static bool touches(const uint32_t *ids, uint32_t count, const struct ul_problem *problem,
                    const struct ul_plan *plan, uint32_t at, const struct ul_plan_range *other)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_plan_range *range = ul_plan_find_range(problem, plan, ids[i], at);
        if (range != NULL && other != NULL && range->space == other->space &&
            range->offset_bytes < other->offset_bytes + other->size_bytes &&
            other->offset_bytes < range->offset_bytes + range->size_bytes)
            return true;
    }
    return false;
}

static const struct ul_plan_substep *substep_at(const struct ul_problem *problem,
                                                const struct ul_plan *plan, uint32_t p)
{
    const struct ul_plan_position *at = &plan->positions[p];
    return &problem->steps[at->step].alternatives[at->alternative].substeps[at->substep];
}

/* Whether one position writes bytes that the other one touches. */
static bool clash(const struct ul_problem *problem, const struct ul_plan *plan, uint32_t writer,
                  uint32_t other)
{
    const struct ul_plan_substep *w = substep_at(problem, plan, writer);
    const struct ul_plan_substep *o = substep_at(problem, plan, other);
    for (uint32_t i = 0; i < w->write_count; i++) {
        const struct ul_plan_range *range = ul_plan_find_range(problem, plan, w->writes[i], writer);
        if (touches(o->reads, o->read_count, problem, plan, other, range) ||
            touches(o->writes, o->write_count, problem, plan, other, range))
            return true;
    }
    return false;
}

/* Counts launches. Each launch takes as many positions in a row as it may. */
static uint32_t count_launches(const struct ul_problem *problem, const struct ul_plan *plan,
                               const bool *steps_share)
{
    uint32_t launches = 0, first = 0, count = 0;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        uint32_t step = plan->positions[p].step;
        bool joins =
            steps_share[step] && count > 0 && count < MOST &&
            problem->steps[step].region == problem->steps[plan->positions[first].step].region;
        for (uint32_t i = first; joins && i < p; i++)
            joins = !clash(problem, plan, i, p) && !clash(problem, plan, p, i);
        count = joins ? count + 1 : steps_share[step];
        first = joins ? first : p;
        launches += !joins;
    }
    return launches;
}

/* Brings steps together, and gives the number of launches that this saves. */
static uint32_t gather(struct ul_arena *arena, const struct ul_problem *problem,
                       const bool *steps_share, struct ul_plan *plan)
{
    const struct ul_plan_options options = {.budget_bytes = 0};
    struct ul_diag diag = {0};
    uint32_t *kinds = UL_NEW_ARRAY(arena, uint32_t, plan->position_count);
    for (uint32_t p = 0; p < plan->position_count; p++)
        kinds[p] = steps_share[plan->positions[p].step];
    const struct ul_plan_gathering gathering = {.kinds = kinds, .most = MOST};
    const uint64_t reserved_bytes = plan->reserved_bytes[0], cost = plan->cost;
    const uint32_t launches = count_launches(problem, plan, steps_share);
    assert_int_equal(ul_plan_gather(arena, problem, &options, &gathering, plan, &diag), UL_OK);
    assert_true(plan->reserved_bytes[0] <= reserved_bytes);
    assert_int_equal(plan->cost, cost);
    const uint32_t now = count_launches(problem, plan, steps_share);
    assert_true(now <= launches);
    return launches - now;
}

/* Makes pairs of a step that copies a weight and a product. A product reads the copy of its pair
 * and the result of the product before it. All results are `large_bytes` long. */
static uint32_t launches_of_pairs(uint64_t large_bytes)
{
    struct ul_arena arena;
    struct ul_plan_options options = {.order = UL_ORDER_FILE};
    struct ul_plan plan;
    struct ul_diag diag = {0};
    bool steps_share[2 * PAIRS];
    ul_arena_init(&arena);
    struct ul_problem *problem = ul_problem_new(&arena);
    for (uint32_t i = 0; i < 2 * PAIRS; i++) {
        bool is_product = i % 2 == 1;
        struct ul_plan_value value =
            ul_plan_value_make("v", UL_PLAN_ACTIVATIONS, is_product ? large_bytes : 256);
        value.live_to_end = i + 1 == 2 * PAIRS;
        const uint32_t reads[2] = {i - 1, i - 2};
        const struct ul_plan_substep substep = {.reads = reads,
                                                .read_count = !is_product ? 0
                                                              : i > 1     ? 2
                                                                          : 1,
                                                .writes = &i,
                                                .write_count = 1};
        const struct ul_plan_alternative alternative = {
            .substeps = &substep, .substep_count = 1, .cost = 10};
        const struct ul_plan_step step = {
            .name = "s", .alternatives = &alternative, .alternative_count = 1};
        (void)ul_problem_add_value(problem, &value);
        (void)ul_problem_add_step(problem, &step);
        steps_share[i] = !is_product;
    }
    assert_int_equal(ul_plan_solve(&arena, problem, &options, &plan, &diag), UL_OK);
    (void)gather(&arena, problem, steps_share, &plan);
    uint32_t launches = count_launches(problem, &plan, steps_share);
    ul_arena_done(&arena);
    return launches;
}

/* The second product is the peak: it reads a copy and a large value, and writes a large value.
 * Another copy has room only beside the first product, which reads no large value, and only where
 * large values are larger than copies. */
static void test_pairs(void **state)
{
    (void)state;
    assert_int_equal(launches_of_pairs(4096), PAIRS + 2);
    assert_int_equal(launches_of_pairs(64), PAIRS + 3);
}

/* Whether the step has one part, so that it can share a launch. */
static bool is_simple(const struct ul_plan_step *step)
{
    bool is_simple = true;
    for (uint32_t a = 0; a < step->alternative_count; a++)
        is_simple = is_simple && step->alternatives[a].substep_count == 1;
    return is_simple;
}

static void test_random(void **state)
{
    uint32_t fewer = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 80; seed++) {
        struct ul_arena arena;
        struct ul_plan_options options = {.budget_bytes = 0};
        struct ul_plan plan;
        struct ul_diag diag = {0};
        ul_arena_init(&arena);
        struct ul_problem *problem = random_problem(&arena, seed, 24);
        bool *steps_share = UL_NEW_ARRAY(&arena, bool, problem->step_count);
        uint64_t numbers = seed;
        for (uint32_t s = 0; s < problem->step_count; s++)
            steps_share[s] = random_below(&numbers, 3) > 0 && is_simple(&problem->steps[s]);
        assert_int_equal(ul_plan_solve(&arena, problem, &options, &plan, &diag), UL_OK);
        if (seed % 8 == 0) { /* some steps run again */
            options.budget_bytes = plan.reserved_bytes[0] - plan.reserved_bytes[0] / 8;
            assert_int_equal(ul_plan_solve(&arena, problem, &options, &plan, &diag), UL_OK);
        }
        fewer += gather(&arena, problem, steps_share, &plan);
        ul_arena_done(&arena);
    }
    assert_true(fewer > 50); /* of 80 problems */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
