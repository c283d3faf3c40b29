/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts as orders: plans of random problems are restacked, and their ranges get other sizes. No
 * two ranges that live at the same time may share bytes then. A layout that lacks a pair is
 * refused, or needs none. */
#include "planner/pack/stacking.h"
#include "planner/solve/solve.h"
#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { PROBLEMS = 400, MAX_STEPS = 30, SIZES = 8 };

struct case_of {
    struct ul_arena arena;
    struct ul_problem *problem;
    struct ul_plan plan;
    struct ul_plan_stacking stacking;
    uint64_t *bytes, *offsets;
    uint64_t random;
};

static void make_case(struct case_of *c, uint64_t seed)
{
    struct ul_plan_options options = {.remat = UL_REMAT_NONE};
    struct ul_diag diag = {.status = UL_OK};
    memset(c, 0, sizeof *c);
    ul_arena_init(&c->arena);
    c->random = seed;
    c->problem = random_problem(&c->arena, seed, MAX_STEPS);
    assert_int_equal(ul_plan_solve(&c->arena, c->problem, &options, &c->plan, &diag), UL_OK);
    uint64_t before = c->plan.reserved_bytes[0];
    ul_plan_restack(&c->arena, c->problem, &c->plan);
    enum ul_status status = ul_plan_check(&c->arena, c->problem, &c->plan, &diag);
    assert_string_equal(diag.text, "");
    assert_int_equal(status, UL_OK);
    assert_true(c->plan.reserved_bytes[0] >= c->plan.order_lower_bound_bytes);
    assert_true(c->plan.reserved_bytes[0] <=
                2 * before); /* holes between what stays are given up */
    assert_int_equal(ul_plan_stack(&c->arena, c->problem, &c->plan, &c->stacking, &diag), UL_OK);
    c->bytes = UL_NEW_ARRAY(&c->arena, uint64_t, c->plan.range_count);
    c->offsets = UL_NEW_ARRAY(&c->arena, uint64_t, c->stacking.slot_count + 1);
}

/* Whether ranges of other slots are apart, for bytes as they are. */
static bool is_apart(struct case_of *c)
{
    const struct ul_plan *plan = &c->plan;
    uint64_t reserved = ul_plan_unstack(&c->stacking, plan, c->bytes, c->offsets);
    for (uint32_t i = 0; i < plan->range_count; i++) {
        uint32_t s = c->stacking.slots[i];
        if (s == UL_PLAN_NONE)
            continue;
        assert_true(c->offsets[s] >= c->stacking.floor_bytes);
        assert_true(c->offsets[s] + c->bytes[i] <= reserved);
        for (uint32_t k = 0; k < i; k++) {
            uint32_t t = c->stacking.slots[k];
            bool together = plan->ranges[i].begin < plan->ranges[k].end &&
                            plan->ranges[k].begin < plan->ranges[i].end;
            if (t != UL_PLAN_NONE && s != t && together &&
                c->offsets[s] < c->offsets[t] + c->bytes[k] &&
                c->offsets[t] < c->offsets[s] + c->bytes[i])
                return false;
        }
    }
    return true;
}

/* Draws bytes of at most as many as the plan has. */
static void draw_bytes(struct case_of *c)
{
    for (uint32_t i = 0; i < c->plan.range_count; i++)
        c->bytes[i] = ul_size_align_or_die(
            random_below(&c->random, (uint32_t)c->plan.ranges[i].size_bytes + 1),
            c->plan.alignment_bytes);
}

static void test_ranges_of_any_size_are_apart(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= PROBLEMS; seed++) {
        struct case_of c;
        struct ul_diag diag = {.status = UL_OK};
        make_case(&c, seed);
        assert_int_equal(ul_plan_check_stacking(&c.arena, c.problem, &c.plan, &c.stacking, &diag),
                         UL_OK);
        for (uint32_t i = 0; i < c.plan.range_count; i++)
            c.bytes[i] = ul_size_align_or_die(c.plan.ranges[i].size_bytes, c.plan.alignment_bytes);
        assert_true(is_apart(&c));
        assert_int_equal(ul_plan_unstack(&c.stacking, &c.plan, c.bytes, c.offsets),
                         c.plan.reserved_bytes[0]);
        for (uint32_t n = 0; n < SIZES; n++) {
            draw_bytes(&c);
            assert_true(is_apart(&c));
        }
        ul_arena_done(&c.arena);
    }
}

static void test_missing_pairs_are_refused(void **state)
{
    (void)state;
    uint32_t refused = 0, accepted = 0;
    for (uint64_t seed = 1; seed <= PROBLEMS; seed++) {
        struct case_of c;
        struct ul_diag diag = {.status = UL_OK};
        make_case(&c, seed);
        if (c.stacking.pair_count == 0) {
            ul_arena_done(&c.arena);
            continue;
        }
        uint32_t lost = random_below(&c.random, c.stacking.pair_count);
        memmove(&c.stacking.pairs[lost], &c.stacking.pairs[lost + 1],
                (c.stacking.pair_count - lost - 1) * sizeof *c.stacking.pairs);
        c.stacking.pair_count--;
        if (ul_plan_check_stacking(&c.arena, c.problem, &c.plan, &c.stacking, &diag) != UL_OK) {
            refused++;
        } else {
            accepted++;
            for (uint32_t n = 0; n < SIZES; n++) {
                draw_bytes(&c);
                assert_true(is_apart(&c));
            }
        }
        ul_arena_done(&c.arena);
    }
    assert_true(refused > PROBLEMS / 2);
    assert_true(accepted < refused / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranges_of_any_size_are_apart),
                                       cmocka_unit_test(test_missing_pairs_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
