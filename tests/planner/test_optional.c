/* SPDX-License-Identifier: Apache-2.0 */
/* Optional values: what one way of a step needs for ever and another does not. Plans have those
 * that they read and no others, ladders give up the cheapest cost for a byte first, and the checker
 * believes neither a range too many nor one too few. */
#include "planner/model/optional.h"
#include "planner/solve/solve.h"
#include "planner/solve/solve_internal.h"
#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { UNIT = UL_PLAN_ALIGN_BYTES };

struct fixture {
    struct ul_arena arena;
    struct ul_problem *problem;
    struct ul_diag diag;
    uint32_t x; /* what every step reads */
};

static void fixture_init(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    ul_arena_init(&f->arena);
    f->problem = ul_problem_new(&f->arena);
    struct ul_plan_value x = ul_plan_value_make("x", UL_PLAN_INPUTS, UNIT);
    x.live_from_start = true;
    f->x = ul_problem_add_value(f->problem, &x);
}

static uint32_t form(struct fixture *f, uint64_t units, uint32_t space)
{
    struct ul_plan_value value = ul_plan_value_make("w", UL_PLAN_WEIGHTS, units * UNIT);
    value.persistent = true;
    value.optional = true;
    value.space = space;
    return ul_problem_add_value(f->problem, &value);
}

/* A step that reads x and, by each way, one of these. */
static void step(struct fixture *f, uint32_t way_count, const uint32_t *forms,
                 const uint64_t *costs)
{
    enum { MAX_WAYS = 3 };
    struct ul_plan_substep substeps[MAX_WAYS];
    struct ul_plan_alternative ways[MAX_WAYS];
    uint32_t reads[MAX_WAYS][2];
    struct ul_plan_value y = ul_plan_value_make("y", UL_PLAN_ACTIVATIONS, 1);
    uint32_t written = ul_problem_add_value(f->problem, &y);
    for (uint32_t i = 0; i < way_count; i++) {
        reads[i][0] = f->x;
        reads[i][1] = forms[i];
        substeps[i] = (struct ul_plan_substep){
            .reads = reads[i], .read_count = 2, .writes = &written, .write_count = 1};
        ways[i] = (struct ul_plan_alternative){
            .name = "way", .substeps = &substeps[i], .substep_count = 1, .cost = costs[i]};
    }
    struct ul_plan_step added = {.name = "s", .alternatives = ways, .alternative_count = way_count};
    ul_problem_add_step(f->problem, &added);
}

static struct ul_plan plan_within(struct fixture *f, uint64_t budget_bytes,
                                  const struct ul_process_overhead *overhead)
{
    struct ul_plan plan;
    struct ul_plan_options options = {.budget_bytes = budget_bytes, .work_limit = 20000};
    if (overhead != NULL)
        options.overhead = *overhead;
    enum ul_status status = ul_plan_solve(&f->arena, f->problem, &options, &plan, &f->diag);
    assert_string_equal(f->diag.text, "");
    assert_int_equal(status, UL_OK);
    return plan;
}

static uint32_t range_count(const struct ul_plan *plan, uint32_t value)
{
    return plan->value_ranges[value + 1] - plan->value_ranges[value];
}

/* Two steps with a large form each: 10 a byte unit for the one, 3 for the other. */
static void test_the_cheapest_byte_goes_first(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    uint32_t dear[] = {form(&f, 16, 0), form(&f, 9, 0)};
    uint32_t cheap[] = {form(&f, 16, 0), form(&f, 9, 0)};
    step(&f, 2, dear, (const uint64_t[]){100, 170});
    step(&f, 2, cheap, (const uint64_t[]){100, 121});
    struct ul_plan plan = plan_within(&f, 0, NULL);
    assert_int_equal(plan.reserved_bytes[0], (32 + 2) * UNIT);
    assert_int_equal(plan.cost, 200);
    assert_int_equal(plan.lower_bound_bytes, (18 + 2) * UNIT);
    plan = plan_within(&f, (32 + 1) * UNIT, NULL);
    assert_true(plan.fits);
    assert_int_equal(plan.reserved_bytes[0], (25 + 2) * UNIT);
    assert_int_equal(plan.cost, 221);
    assert_int_equal(range_count(&plan, dear[0]), 1);
    assert_int_equal(range_count(&plan, dear[1]), 0);
    assert_int_equal(range_count(&plan, cheap[0]), 0);
    assert_int_equal(range_count(&plan, cheap[1]), 1);
    plan = plan_within(&f, (18 + 2) * UNIT, NULL);
    assert_true(plan.fits);
    assert_int_equal(plan.cost, 291);
    assert_false(plan_within(&f, (18 + 1) * UNIT, NULL).fits);
    ul_arena_done(&f.arena);
}

/* What two steps share is there until both do without it, and its bound is not counted twice. */
static void test_what_is_shared_counts_once(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    uint32_t ways[] = {form(&f, 16, 0), form(&f, 9, 0)};
    step(&f, 2, ways, (const uint64_t[]){100, 150});
    step(&f, 2, ways, (const uint64_t[]){100, 150});
    struct ul_plan plan = plan_within(&f, 0, NULL);
    assert_int_equal(plan.reserved_bytes[0], (16 + 2) * UNIT);
    assert_int_equal(ul_optional_bound(&f.arena, f.problem, UNIT), 2 * (9 * UNIT / 2));
    plan = plan_within(&f, (16 + 1) * UNIT, NULL);
    assert_true(plan.fits);
    assert_int_equal(plan.reserved_bytes[0], (9 + 2) * UNIT);
    assert_int_equal(plan.cost, 300);
    ul_arena_done(&f.arena);
}

/* A plan takes as much stack as the deepest of its ways, with what is beside. */
static void test_the_deepest_stack_counts(void **state)
{
    (void)state;
    struct fixture f;
    const struct ul_process_overhead process = {.has_spaces = true, .run_bytes = 1000};
    fixture_init(&f);
    uint32_t kept = ul_problem_add_space(f.problem, "kept", 0);
    f.problem->spaces[kept].is_overhead = true;
    uint32_t ways[] = {form(&f, 2, kept), form(&f, 1, 0)};
    step(&f, 2, ways, (const uint64_t[]){100, 150});
    step(&f, 2, ways, (const uint64_t[]){100, 150});
    ul_problem_set_stacks(f.problem, 0, (const uint64_t[]){7000, 30});
    ul_problem_set_stacks(f.problem, 1, (const uint64_t[]){6000, 40});
    struct ul_plan plan = plan_within(&f, 0, &process);
    assert_int_equal(plan.overhead_bytes, 2 * UNIT + 7000);
    assert_int_equal(plan.bounded_bytes, (2 + 2) * UNIT + 8000);
    plan = plan_within(&f, 7000, &process);
    assert_true(plan.fits);
    assert_int_equal(plan.cost, 300);
    assert_int_equal(plan.bounded_bytes, (1 + 2) * UNIT + 1040);
    assert_int_equal(plan_within(&f, 7000, NULL).cost, 200);
    ul_arena_done(&f.arena);
}

/* The process's last bytes are needed without the reserved bytes, as far as these have been given
 * back. */
static void test_last_bytes(void **state)
{
    (void)state;
    const struct ul_process_overhead process = {.has_spaces = true,
                                                .run_bytes = 1000,
                                                .last_bytes = 300,
                                                .held_bytes = 100,
                                                .unread_bytes = 50};
    static const uint64_t cases[][2] = {{0, 1000},   {50, 1000},   {150, 1100}, {151, 1101},
                                        {154, 1103}, {1350, 2000}, {2000, 2650}};
    uint64_t reserved[1];
    struct ul_plan plan = {.space_count = 1, .reserved_bytes = reserved};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        reserved[0] = cases[i][0];
        assert_int_equal(ul_plan_bounded_bytes(&process, &plan), cases[i][1]);
    }
    assert_int_equal(ul_plan_space_budget(&process, &plan, 1099), 149);
    assert_int_equal(ul_plan_space_budget(&process, &plan, 1103), 154);
    assert_int_equal(ul_plan_space_budget(&process, &plan, 2650), 2000);
}

/* What a library keeps is in a space of its own, and counts where the budget includes it. */
static void test_spaces_beside(void **state)
{
    (void)state;
    struct fixture f;
    const struct ul_process_overhead process = {
        .has_spaces = true, .run_bytes = 1000, .start_space = 1, .start_bytes = 9000};
    fixture_init(&f);
    uint32_t kept = ul_problem_add_space(f.problem, "kept", 0);
    f.problem->spaces[kept].is_overhead = true;
    uint32_t ways[] = {form(&f, 50, kept), form(&f, 1, 0)};
    step(&f, 2, ways, (const uint64_t[]){100, 150});
    struct ul_plan plan = plan_within(&f, 0, &process);
    assert_int_equal(plan.reserved_bytes[0], 2 * UNIT);
    assert_int_equal(plan.overhead_bytes, 50 * UNIT);
    assert_int_equal(plan.bounded_bytes, 50 * UNIT + 9000); /* while it starts */
    struct ul_process_overhead loaded = process;
    loaded.load_bytes = 50 * UNIT + 9001; /* before anything is kept */
    assert_int_equal(ul_plan_bounded_bytes(&loaded, &plan), 50 * UNIT + 9001);
    assert_int_equal(plan_within(&f, 3 * UNIT, NULL).cost, 100);
    plan = plan_within(&f, 40 * UNIT, &process);
    assert_true(plan.fits);
    assert_int_equal(plan.cost, 150);
    assert_int_equal(plan.overhead_bytes, 0);
    assert_int_equal(plan.bounded_bytes, 3 * UNIT + 1000);
    /* Without the ranges it says as much, and they come back. */
    struct ul_plan whole = plan_within(&f, 0, &process);
    struct ul_plan bare = ul_plan_keep(&f.arena, f.problem, &whole);
    ul_plan_drop_overhead(&f.arena, f.problem, &bare);
    assert_int_equal(bare.range_count, whole.range_count - 1);
    assert_int_equal(bare.overhead_bytes, whole.overhead_bytes);
    ul_plan_place_overhead(&f.arena, f.problem, &bare);
    assert_int_equal(ul_plan_check(&f.arena, f.problem, &bare, &f.diag), UL_OK);
    assert_int_equal(bare.range_count, whole.range_count);
    ul_arena_done(&f.arena);
}

/* ---- Against all choices ---- */

enum { STEPS = 7, WAYS = 3 };

struct choices {
    struct fixture f;
    uint64_t units[STEPS][WAYS], costs[STEPS][WAYS];
};

static void choices_make(struct choices *c, uint64_t seed)
{
    uint64_t state = seed * 91 + 3;
    fixture_init(&c->f);
    for (uint32_t s = 0; s < STEPS; s++) {
        uint32_t forms[WAYS];
        for (uint32_t w = 0; w < WAYS; w++) {
            c->units[s][w] = 1 + random_below(&state, 30);
            c->costs[s][w] = 1 + random_below(&state, 200);
            forms[w] = form(&c->f, c->units[s][w], 0);
        }
        step(&c->f, WAYS, forms, c->costs[s]);
    }
}

/* The least that a choice costs where each unit costs so much too. */
static uint64_t least_cost(const struct choices *c, uint64_t price)
{
    uint64_t sum = 0;
    for (uint32_t s = 0; s < STEPS; s++) {
        uint64_t least = UINT64_MAX;
        for (uint32_t w = 0; w < WAYS; w++) {
            uint64_t cost = c->costs[s][w] + price * c->units[s][w];
            least = cost < least ? cost : least;
        }
        sum += least;
    }
    return sum;
}

/* Whatever a unit is worth, some rung is as good as the best of all choices. */
static void test_rungs_are_the_best_choices(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct choices c;
        struct ul_plan_ladder ladder;
        struct ul_plan_options options = {.work_limit = 20000};
        choices_make(&c, seed);
        assert_int_equal(
            ul_ladder_build(&c.f.arena, c.f.problem, &options, NULL, &ladder, &c.f.diag), UL_OK);
        for (uint64_t price = 0; price < 300; price += 1 + price / 8) {
            uint64_t best = UINT64_MAX;
            for (uint32_t i = 0; i < ladder.count; i++) {
                uint64_t units = ladder.rungs[i].plan.reserved_bytes[0] / UNIT - 2;
                uint64_t cost = ladder.rungs[i].plan.cost + price * units;
                best = cost < best ? cost : best;
            }
            assert_int_equal(best, least_cost(&c, price));
        }
        ul_arena_done(&c.f.arena);
    }
}

/* What is left out for what another program has is what the front of both has no use for. */
static void test_what_is_known_changes_no_front(void **state)
{
    (void)state;
    uint32_t spared = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct choices c, other;
        struct ul_plan_ladder known, all, fewer, fronts[2];
        const struct ul_plan_options options = {.work_limit = 20000};
        struct ul_arena *arena = &c.f.arena;
        choices_make(&c, seed);
        choices_make(&other, seed + 1000);
        struct ul_plan base = plan_within(&c.f, 0, NULL);
        assert_int_equal(ul_ladder_build(arena, other.f.problem, &options, NULL, &known, &c.f.diag),
                         UL_OK);
        assert_int_equal(
            ul_ladder_spread(arena, c.f.problem, &options, &base, NULL, &all, &c.f.diag), UL_OK);
        assert_int_equal(
            ul_ladder_spread(arena, c.f.problem, &options, &base, &known, &fewer, &c.f.diag),
            UL_OK);
        fronts[0] = fronts[1] = known;
        ul_ladder_merge(arena, &fronts[0], &all, 1);
        ul_ladder_merge(arena, &fronts[1], &fewer, 1);
        spared += all.count - fewer.count;
        assert_int_equal(fronts[0].count, fronts[1].count);
        for (uint32_t i = 0; i < fronts[0].count; i++) {
            const struct ul_plan_rung *one = &fronts[0].rungs[i], *two = &fronts[1].rungs[i];
            assert_int_equal(one->alternative, two->alternative);
            assert_int_equal(one->plan.reserved_bytes[0], two->plan.reserved_bytes[0]);
            assert_int_equal(one->plan.cost, two->plan.cost);
        }
        ul_arena_done(&other.f.arena);
        ul_arena_done(arena);
    }
    assert_true(spared > 0);
}

/* ---- The checker ---- */

static void refuse(struct fixture *f, const struct ul_plan *plan, const char *why)
{
    f->diag = (struct ul_diag){0};
    assert_int_equal(ul_plan_check(&f->arena, f->problem, plan, &f->diag), UL_MISMATCH);
    if (strstr(f->diag.text, why) == NULL)
        fail_msg("%s, not %s", f->diag.text, why);
}

static void test_the_checker_wants_what_is_read_and_no_more(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    uint32_t forms[] = {form(&f, 4, 0), form(&f, 2, 0)};
    step(&f, 2, forms, (const uint64_t[]){10, 20});
    struct ul_plan good = plan_within(&f, 0, NULL);
    assert_int_equal(ul_plan_check(&f.arena, f.problem, &good, &f.diag), UL_OK);
    /* The other way, and the range of the first. */
    struct ul_plan plan = ul_plan_keep(&f.arena, f.problem, &good);
    plan.positions[0].alternative = 1;
    refuse(&f, &plan, "has no range");
    /* The range of what nothing reads beside the one that is read. */
    plan = ul_plan_keep(&f.arena, f.problem, &good);
    uint32_t more = plan.value_ranges[forms[1]];
    struct ul_plan_range *ranges = UL_NEW_ARRAY(&f.arena, struct ul_plan_range, 8);
    memcpy(ranges, plan.ranges, more * sizeof *ranges);
    memcpy(ranges + more + 1, plan.ranges + more, (plan.range_count - more) * sizeof *ranges);
    ranges[more] = plan.ranges[plan.value_ranges[forms[0]]];
    ranges[more].value = forms[1];
    ranges[more].size_bytes = (uint64_t)2 * UNIT;
    ranges[more].offset_bytes = plan.reserved_bytes[0];
    plan.reserved_bytes[0] += (uint64_t)2 * UNIT;
    plan.ranges = ranges;
    plan.range_count++;
    for (uint32_t v = forms[1] + 1; v <= f.problem->value_count; v++)
        plan.value_ranges[v]++;
    refuse(&f, &plan, "has a copy that nothing makes");
    /* The range goes; the sums are not even looked at. */
    plan = ul_plan_keep(&f.arena, f.problem, &good);
    uint32_t at = plan.value_ranges[forms[0]];
    memmove(plan.ranges + at, plan.ranges + at + 1,
            (plan.range_count - at - 1) * sizeof *plan.ranges);
    plan.range_count--;
    for (uint32_t v = forms[0] + 1; v <= f.problem->value_count; v++)
        plan.value_ranges[v]--;
    refuse(&f, &plan, "has no range");
    plan = ul_plan_keep(&f.arena, f.problem, &good);
    plan.lower_bound_bytes += UNIT;
    refuse(&f, &plan, "lower bound");
    ul_arena_done(&f.arena);
}

/* Implementations may differ in the last bits: what runs again runs the same way. */
static void test_what_runs_again_runs_the_same_way(void **state)
{
    (void)state;
    struct fixture f;
    struct ul_plan_options options = {.alignment_bytes = UNIT};
    fixture_init(&f);
    uint32_t forms[] = {form(&f, 4, 0), form(&f, 2, 0)};
    step(&f, 2, forms, (const uint64_t[]){10, 20});
    for (uint32_t way = 0; way < 2; way++) {
        struct ul_plan_position positions[] = {{.step = 0},
                                               {.step = 0, .alternative = way, .copy = 1}};
        struct ul_plan plan = {.positions = positions,
                               .position_count = 2,
                               .order_method = "file",
                               .remat_method = "none"};
        assert_int_equal(ul_plan_complete(&f.arena, f.problem, &options, &plan, &f.diag), UL_OK);
        ul_plan_judge(f.problem, 0, NULL, &plan);
        if (way > 0)
            refuse(&f, &plan, "runs again another way");
        else
            assert_int_equal(ul_plan_check(&f.arena, f.problem, &plan, &f.diag), UL_OK);
    }
    ul_arena_done(&f.arena);
}

static void test_problems_that_mean_nothing(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    uint32_t forms[] = {form(&f, 4, 0), form(&f, 2, 0)};
    step(&f, 2, forms, (const uint64_t[]){10, 20});
    f.problem->values[forms[0]].live_to_end = true;
    assert_int_equal(ul_problem_verify(f.problem, &f.diag), UL_INVALID);
    f.problem->values[forms[0]].live_to_end = false;
    f.problem->values[forms[0]].persistent = false;
    assert_int_equal(ul_problem_verify(f.problem, &f.diag), UL_INVALID);
    f.problem->values[forms[0]].persistent = true;
    assert_int_equal(ul_problem_verify(f.problem, &f.diag), UL_OK);
    struct ul_plan_substep writes = {.writes = forms, .write_count = 1};
    add_simple_step(f.problem, "writer", 0, 1, &writes);
    assert_int_equal(ul_problem_verify(f.problem, &f.diag), UL_INVALID);
    ul_arena_done(&f.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_cheapest_byte_goes_first),
        cmocka_unit_test(test_what_is_shared_counts_once),
        cmocka_unit_test(test_last_bytes),
        cmocka_unit_test(test_spaces_beside),
        cmocka_unit_test(test_the_deepest_stack_counts),
        cmocka_unit_test(test_rungs_are_the_best_choices),
        cmocka_unit_test(test_what_is_known_changes_no_front),
        cmocka_unit_test(test_the_checker_wants_what_is_read_and_no_more),
        cmocka_unit_test(test_what_runs_again_runs_the_same_way),
        cmocka_unit_test(test_problems_that_mean_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
