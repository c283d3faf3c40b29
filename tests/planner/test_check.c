/* SPDX-License-Identifier: Apache-2.0 */
/* The checker against plans that were edited: which takeovers of bytes it refuses. */
#include "planner/model/timeline.h"
#include "planner/solve/solve.h"
#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { X, Y, STATE, FIRST, SECOND, OUT, VALUE_COUNT };

/* Step 0 reads X and Y, writes FIRST and SECOND, and a share of STATE, each perhaps in place of an
 * input; step 1 reads FIRST and STATE. */
struct fixture {
    struct ul_arena arena;
    struct ul_problem *problem;
    struct ul_plan plan;
    struct ul_diag diag;
};

static void steps_add(struct ul_problem *problem, uint64_t scratch_bytes)
{
    static const uint32_t reads[] = {X, Y}, writes[] = {FIRST, SECOND, STATE};
    static const uint32_t last_reads[] = {FIRST, STATE}, last_writes[] = {OUT};
    static const struct ul_plan_in_place options[] = {{FIRST, X},  {FIRST, Y}, {SECOND, X},
                                                      {SECOND, Y}, {STATE, X}, {STATE, Y}};
    const struct ul_plan_substep first = {.reads = reads,
                                          .writes = writes,
                                          .in_place = options,
                                          .read_count = 2,
                                          .write_count = 3,
                                          .in_place_count = 6};
    const struct ul_plan_substep last = {.reads = last_reads,
                                         .writes = last_writes,
                                         .read_count = 2,
                                         .write_count = 1,
                                         .scratch_bytes = scratch_bytes};
    add_simple_step(problem, "first", 0, 1, &first);
    add_simple_step(problem, "last", 0, 1, &last);
}

static void fixture_init_with(struct fixture *f, bool is_state_there, uint64_t scratch_bytes)
{
    static const char *const names[VALUE_COUNT] = {"x", "y", "state", "first", "second", "out"};
    memset(f, 0, sizeof *f);
    ul_arena_init(&f->arena);
    f->problem = ul_problem_new(&f->arena);
    for (uint32_t v = 0; v < VALUE_COUNT; v++) {
        struct ul_plan_value value = ul_plan_value_make(names[v], UL_PLAN_ACTIVATIONS, 64);
        value.live_from_start = v == X || v == Y || (v == STATE && is_state_there);
        value.live_to_end = v == OUT;
        ul_problem_add_value(f->problem, &value);
    }
    steps_add(f->problem, scratch_bytes);
    struct ul_plan_options options = {.pack = UL_PACK_GREEDY};
    assert_int_equal(ul_plan_solve(&f->arena, f->problem, &options, &f->plan, &f->diag), UL_OK);
    assert_int_equal(f->plan.ranges[f->plan.value_ranges[FIRST]].alias, f->plan.value_ranges[X]);
    assert_int_equal(f->plan.ranges[f->plan.value_ranges[SECOND]].alias, f->plan.value_ranges[Y]);
}

static void fixture_init(struct fixture *f, bool is_state_there)
{
    fixture_init_with(f, is_state_there, 0);
}

/* The value takes over the bytes of `from` at position 0. */
static void reuse_operands(struct fixture *f, uint32_t value, uint32_t from)
{
    struct ul_plan_range *range = &f->plan.ranges[f->plan.value_ranges[value]];
    uint32_t source = f->plan.value_ranges[from];
    range->alias = source;
    range->offset_bytes = f->plan.ranges[source].offset_bytes;
}

static void assert_refused(struct fixture *f, const char *why)
{
    assert_int_equal(ul_plan_check(&f->arena, f->problem, &f->plan, &f->diag), UL_MISMATCH);
    if (strstr(f->diag.text, why) == NULL)
        fail_msg("refused for another reason: %s", f->diag.text);
    ul_arena_done(&f->arena);
}

static void test_one_input_is_taken_over_once(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, false);
    reuse_operands(&f, SECOND,
                   X); /* as FIRST does; nothing reads it, so they share position 0 alone */
    assert_refused(&f, "both take over");
}

/* Both would have to be there before position 0. */
static void test_what_is_there_takes_nothing_over(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, true);
    struct ul_plan_range *second = &f.plan.ranges[f.plan.value_ranges[SECOND]];
    second->alias = UL_PLAN_NONE;
    second->offset_bytes = f.plan.ranges[f.plan.value_ranges[STATE]].offset_bytes;
    f.plan.ranges[f.plan.value_ranges[OUT]].offset_bytes = second->offset_bytes;
    reuse_operands(&f, STATE, Y);
    assert_refused(&f, "may not be in place of");
}

/* Scratch belongs to its position alone: it has no second copy. */
static void test_scratch_has_no_copies(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init_with(&f, false, 64);
    struct ul_plan_range *scratch = &f.plan.ranges[f.plan.range_count - 1];
    assert_int_equal(scratch->value, UL_PLAN_NONE);
    scratch->copy = 1;
    assert_refused(&f, "scratch differs");
}

/* Where first-fit takes less than what is reserved, the packing is not the least one. */
static void test_packing_that_is_not_the_least(void **state)
{
    (void)state;
    struct ul_arena arena;
    ul_arena_init(&arena);
    struct ul_problem *problem = ul_problem_new(&arena);
    uint32_t last = 0;
    for (uint32_t i = 0; i < 5; i++) {
        struct ul_plan_value value = ul_plan_value_make("v", UL_PLAN_ACTIVATIONS, 64 + 64 * i);
        value.live_from_start = i == 0;
        value.live_to_end = i == 4;
        uint32_t made = ul_problem_add_value(problem, &value);
        struct ul_plan_substep substep = {
            .reads = &last, .writes = &made, .read_count = 1, .write_count = 1};
        if (i > 0)
            add_simple_step(problem, "s", 0, 1, &substep);
        last = made;
    }
    for (enum ul_plan_pack pack = UL_PACK_BEST; pack < UL_PACK_COUNT; pack++) {
        struct ul_plan plan;
        struct ul_diag diag = {.status = UL_OK};
        struct ul_plan_options options = {.pack = pack};
        assert_int_equal(ul_plan_solve(&arena, problem, &options, &plan, &diag), UL_OK);
        plan.packing_proven = true;
        enum ul_status status = ul_plan_check(&arena, problem, &plan, &diag);
        assert_int_equal(status, pack == UL_PACK_NONE ? UL_MISMATCH : UL_OK);
        if (pack == UL_PACK_NONE)
            assert_string_equal(diag.text,
                                "\"proven\": largest first, these ranges take only 576 bytes.");
    }
    ul_arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_input_is_taken_over_once),
        cmocka_unit_test(test_what_is_there_takes_nothing_over),
        cmocka_unit_test(test_scratch_has_no_copies),
        cmocka_unit_test(test_packing_that_is_not_the_least),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
