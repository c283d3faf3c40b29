/* SPDX-License-Identifier: Apache-2.0 */
/* Scratch that a finished plan has room for (planner/solve/spares.c). */
#include "planner/solve/solve.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Three steps in a line, of which the first has 64 bytes of scratch and may have more; the last
 * result is the largest. */
static void make(struct ul_problem *problem, uint64_t last_bytes)
{
    const uint64_t sizes[] = {256, 256, last_bytes};
    for (uint32_t i = 0; i < 3; i++) {
        struct ul_plan_value value = ul_plan_value_make("v", UL_PLAN_ACTIVATIONS, sizes[i]);
        value.live_to_end = i == 2;
        (void)ul_problem_add_value(problem, &value);
    }
    const uint64_t spares[] = {64, 4096, 2048, 1024};
    for (uint32_t s = 0; s < 3; s++) {
        const uint32_t read = s - 1, written = s;
        struct ul_plan_substep substeps[4];
        struct ul_plan_alternative alternatives[4];
        for (uint32_t a = 0; a < 4; a++) {
            substeps[a] = (struct ul_plan_substep){.reads = &read,
                                                   .read_count = s > 0,
                                                   .writes = &written,
                                                   .write_count = 1,
                                                   .scratch_bytes = s == 0 ? spares[a] : 0};
            alternatives[a] = (struct ul_plan_alternative){
                .substeps = &substeps[a], .substep_count = 1, .cost = 10};
        }
        const struct ul_plan_step step = {.name = "s",
                                          .alternatives = alternatives,
                                          .alternative_count = 1,
                                          .spare_count = s == 0 ? 3 : 0};
        (void)ul_problem_add_step(problem, &step);
    }
}

/* The scratch that the first step has in the end, in an arena that is as it was. */
static uint64_t taken(uint64_t last_bytes)
{
    struct ul_arena arena;
    struct ul_plan_options options = {.budget_bytes = 0};
    struct ul_plan plan, before;
    struct ul_diag diag = {0};
    ul_arena_init(&arena);
    struct ul_problem *problem = ul_problem_new(&arena);
    make(problem, last_bytes);
    assert_int_equal(ul_plan_solve(&arena, problem, &options, &plan, &diag), UL_OK);
    before = plan;
    assert_int_equal(plan.positions[0].alternative, 0);
    assert_int_equal(ul_plan_take_spares(&arena, problem, &plan, &diag), UL_OK);
    assert_int_equal(plan.reserved_bytes[0], before.reserved_bytes[0]);
    assert_int_equal(before.positions[0].alternative, 0); /* a copy */
    uint64_t size_bytes = plan.ranges[plan.range_count - 1].size_bytes;
    assert_int_equal(
        size_bytes,
        problem->steps[0].alternatives[plan.positions[0].alternative].substeps[0].scratch_bytes);
    ul_arena_done(&arena);
    return size_bytes;
}

static void test_room(void **state)
{
    (void)state;
    assert_int_equal(taken(256), 64); /* the peak is 512: 256 are free */
    assert_int_equal(taken(1024), 1024);
    assert_int_equal(taken(2048), 2048);
    assert_int_equal(taken(4032), 2048);
    assert_int_equal(taken(4096), 4096);
    assert_int_equal(taken(100000), 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
