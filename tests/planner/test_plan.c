/* SPDX-License-Identifier: Apache-2.0 */
/* Live ranges, aliases, regions, sums: known cases, then random ones through the checker. */
#include "planner/solve/solve.h"
#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
    struct ul_arena arena;
    struct ul_problem *problem;
    struct ul_plan plan;
    struct ul_diag diag;
};

static void fixture_init(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    ul_arena_init(&f->arena);
    f->problem = ul_problem_new(&f->arena);
}

static uint32_t value(struct fixture *f, enum ul_plan_class class, uint64_t size_bytes)
{
    struct ul_plan_value v = ul_plan_value_make("v", class, size_bytes);
    v.live_from_start = class == UL_PLAN_INPUTS;
    v.live_to_end = class == UL_PLAN_OUTPUTS;
    v.persistent = class == UL_PLAN_WEIGHTS;
    return ul_problem_add_value(f->problem, &v);
}

/* A step that reads `in` (and `also`, unless none) and writes `out`, perhaps in place of `in`. */
static void step(struct fixture *f, uint32_t region, uint32_t in, uint32_t also, uint32_t out,
                 bool in_place)
{
    uint32_t reads[2] = {in, also};
    struct ul_plan_in_place option = {out, in};
    struct ul_plan_substep substep = {.reads = reads,
                                      .writes = &out,
                                      .in_place = &option,
                                      .read_count = also == UL_PLAN_NONE ? 1 : 2,
                                      .write_count = 1,
                                      .in_place_count = in_place};
    add_simple_step(f->problem, "s", region, 1, &substep);
}

static void solve_ordered(struct fixture *f, enum ul_plan_pack pack, enum ul_plan_order order)
{
    struct ul_plan_options options = {.pack = pack, .order = order, .work_limit = 20000};
    enum ul_status status = ul_plan_solve(&f->arena, f->problem, &options, &f->plan, &f->diag);
    assert_string_equal(f->diag.text, "");
    assert_int_equal(status, UL_OK);
}

static void solve(struct fixture *f, enum ul_plan_pack pack)
{
    solve_ordered(f, pack, UL_ORDER_BEST);
}

static const struct ul_plan_range *range(const struct fixture *f, uint32_t v)
{
    return &f->plan.ranges[f->plan.value_ranges[v]];
}

static void assert_lifetime(const struct fixture *f, uint32_t v, uint32_t begin, uint32_t end)
{
    assert_int_equal(range(f, v)->begin, begin);
    assert_int_equal(range(f, v)->end, end);
}

static void test_chain_in_place(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    uint32_t x = value(&f, UL_PLAN_INPUTS, 640);
    uint32_t w = value(&f, UL_PLAN_WEIGHTS, 100);
    uint32_t a = value(&f, UL_PLAN_ACTIVATIONS, 640);
    uint32_t y = value(&f, UL_PLAN_OUTPUTS, 300);
    step(&f, 0, x, w, a, true);
    step(&f, 0, a, UL_PLAN_NONE, y, true);
    solve(&f, UL_PACK_BEST);
    /* 640 for the chain and 128 for the weights: the peak is the first step. */
    assert_int_equal(f.plan.reserved_bytes[0], 768);
    assert_int_equal(f.plan.rows.class_bytes[UL_PLAN_WEIGHTS], 100);
    assert_int_equal(f.plan.rows.class_bytes[UL_PLAN_ACTIVATIONS], 640);
    assert_int_equal(f.plan.rows.class_bytes[UL_PLAN_INPUTS], 0);
    assert_int_equal(f.plan.rows.alignment_bytes, 28);
    assert_int_equal(f.plan.rows.holes_bytes, 0);
    assert_int_equal(range(&f, y)->offset_bytes, range(&f, x)->offset_bytes);
    assert_true(f.plan.optimal);
    solve(&f, UL_PACK_NONE);
    assert_int_equal(f.plan.reserved_bytes[0], 640 + 128 + 640 + 320);
    assert_int_equal(range(&f, a)->alias, UL_PLAN_NONE);
    ul_arena_done(&f.arena);
}

static void test_output_is_not_overwritten(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    uint32_t x = value(&f, UL_PLAN_INPUTS, 64);
    uint32_t y = value(&f, UL_PLAN_OUTPUTS, 64);
    uint32_t z = value(&f, UL_PLAN_OUTPUTS, 64);
    step(&f, 0, x, UL_PLAN_NONE, y, true);
    step(&f, 0, y, UL_PLAN_NONE, z, true);
    solve(&f, UL_PACK_BEST);
    assert_int_equal(range(&f, y)->alias, f.plan.value_ranges[x]);
    assert_int_equal(range(&f, z)->alias, UL_PLAN_NONE);
    assert_int_equal(f.plan.reserved_bytes[0], 128);
    ul_arena_done(&f.arena);
}

static void test_loop_keeps_what_it_needs_again(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    uint32_t loop = ul_problem_add_region(f.problem, UL_PLAN_LOOP, 0);
    uint32_t x = value(&f, UL_PLAN_INPUTS, 64);
    uint32_t a = value(&f, UL_PLAN_ACTIVATIONS, 64);
    uint32_t b = value(&f, UL_PLAN_ACTIVATIONS, 64);
    uint32_t c = value(&f, UL_PLAN_ACTIVATIONS, 64);
    uint32_t y = value(&f, UL_PLAN_OUTPUTS, 64);
    step(&f, 0, x, UL_PLAN_NONE, a, false);
    step(&f, loop, a, UL_PLAN_NONE, b, true);
    step(&f, loop, b, UL_PLAN_NONE, c, true);
    step(&f, 0, c, UL_PLAN_NONE, y, true);
    solve(&f, UL_PACK_BEST);
    assert_lifetime(&f, a, 0, 3); /* through the loop */
    assert_lifetime(&f, b, 1, 3); /* inside */
    assert_lifetime(&f, c, 1, 4); /* leaves the loop */
    assert_int_equal(range(&f, b)->alias, UL_PLAN_NONE);
    assert_int_equal(range(&f, c)->alias, UL_PLAN_NONE);
    assert_int_equal(f.plan.reserved_bytes[0], 192);
    ul_arena_done(&f.arena);
}

static void test_slices_live_from_the_first_write(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    uint32_t x = value(&f, UL_PLAN_INPUTS, 64);
    uint32_t joined = value(&f, UL_PLAN_ACTIVATIONS, 128);
    uint32_t y = value(&f, UL_PLAN_OUTPUTS, 64);
    step(&f, 0, x, UL_PLAN_NONE, joined, false);
    step(&f, 0, x, UL_PLAN_NONE, joined, false);
    step(&f, 0, joined, UL_PLAN_NONE, y, false);
    solve(&f, UL_PACK_GREEDY);
    assert_lifetime(&f, joined, 0, 3);
    assert_int_equal(f.plan.reserved_bytes[0], 192);
    ul_arena_done(&f.arena);
}

static void test_pinned_and_empty(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    struct ul_plan_value v = ul_plan_value_make("state", UL_PLAN_WEIGHTS, 10);
    v.persistent = true;
    v.pinned = true;
    v.pinned_offset_bytes = 128;
    uint32_t state_value = ul_problem_add_value(f.problem, &v);
    uint32_t x = value(&f, UL_PLAN_INPUTS, 64);
    solve(&f, UL_PACK_BEST);
    assert_int_equal(range(&f, state_value)->offset_bytes, 128);
    assert_int_equal(range(&f, x)->offset_bytes, 0);
    assert_int_equal(f.plan.reserved_bytes[0], 192);
    assert_int_equal(f.plan.rows.holes_bytes, 64);
    ul_arena_done(&f.arena);
}

static void test_bad_problems_are_refused(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    uint32_t a = value(&f, UL_PLAN_ACTIVATIONS, 64);
    uint32_t b = value(&f, UL_PLAN_ACTIVATIONS, 64);
    step(&f, 0, a, UL_PLAN_NONE, b, false);
    struct ul_plan_options options = {.alignment_bytes = 0};
    assert_int_equal(ul_plan_solve(&f.arena, f.problem, &options, &f.plan, &f.diag), UL_INVALID);
    assert_non_null(strstr(f.diag.text, "before it is written"));
    f.problem->values[a].live_from_start = true;
    f.problem->values[a].size_bytes = UINT64_MAX / 2;
    memset(&f.diag, 0, sizeof f.diag);
    assert_int_equal(ul_plan_solve(&f.arena, f.problem, &options, &f.plan, &f.diag), UL_INVALID);
    options.alignment_bytes = 3;
    memset(&f.diag, 0, sizeof f.diag);
    assert_int_equal(ul_plan_solve(&f.arena, f.problem, &options, &f.plan, &f.diag), UL_USAGE);
    ul_arena_done(&f.arena);
}

static void test_random_plans_pass_the_checker(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct fixture f;
        fixture_init(&f);
        f.problem = random_problem(&f.arena, seed, 30);
        solve(&f, UL_PACK_NONE);
        uint64_t none = f.plan.reserved_bytes[0];
        solve_ordered(&f, UL_PACK_BEST, UL_ORDER_FILE);
        uint64_t file = f.plan.reserved_bytes[0];
        solve(&f, UL_PACK_BEST);
        assert_true(f.plan.reserved_bytes[0] <= none);
        assert_true(f.plan.reserved_bytes[0] <= file);
        assert_true(f.plan.order_lower_bound_bytes <= f.plan.reserved_bytes[0]);
        assert_true(f.plan.lower_bound_bytes <= f.plan.order_lower_bound_bytes);
        ul_arena_done(&f.arena);
    }
}

/* ---- Mutations ---- */

struct mutant {
    struct ul_plan plan;
    struct ul_plan_position positions[64];
    struct ul_plan_range ranges[256];
    uint64_t reserved_bytes[4];
    uint32_t kind;
};

static void mutant_copy(struct mutant *m, const struct ul_plan *plan)
{
    m->plan = *plan;
    memcpy(m->positions, plan->positions, plan->position_count * sizeof *plan->positions);
    memcpy(m->ranges, plan->ranges, plan->range_count * sizeof *plan->ranges);
    memcpy(m->reserved_bytes, plan->reserved_bytes, plan->space_count * sizeof(uint64_t));
    m->plan.positions = m->positions;
    m->plan.ranges = m->ranges;
    m->plan.reserved_bytes = m->reserved_bytes;
}

static bool needs(const struct ul_problem *problem, uint32_t later, uint32_t earlier)
{
    const struct ul_plan_substep *a = problem->steps[earlier].alternatives[0].substeps;
    const struct ul_plan_substep *b = problem->steps[later].alternatives[0].substeps;
    for (uint32_t i = 0; i < a->write_count; i++) {
        for (uint32_t j = 0; j < b->read_count; j++) {
            if (a->writes[i] == b->reads[j])
                return true;
        }
    }
    return false;
}

/* Changes one thing such that the plan no longer means what it should; false if the draw found
 * nothing to change. */
static bool mutate(struct mutant *m, const struct ul_problem *problem, uint64_t *state)
{
    struct ul_plan *plan = &m->plan;
    if (plan->position_count < 2 || plan->range_count == 0)
        return false;
    struct ul_plan_range *r = &plan->ranges[random_below(state, plan->range_count)];
    uint32_t p = random_below(state, plan->position_count - 1);
    m->kind = random_below(state, 10);
    switch (m->kind) {
    case 0: /* over another live range, or beyond the arena */
        if (r->size_bytes == 0)
            return false;
        r->offset_bytes += (uint64_t)64 << random_below(state, 8);
        if (r->offset_bytes + r->size_bytes <= plan->reserved_bytes[0]) {
            for (uint32_t i = 0; i < plan->range_count; i++) {
                const struct ul_plan_range *o = &plan->ranges[i];
                if (o != r && o->begin < r->end && r->begin < o->end &&
                    o->offset_bytes < r->offset_bytes + r->size_bytes &&
                    r->offset_bytes < o->offset_bytes + o->size_bytes)
                    return true;
            }
            return r->alias != UL_PLAN_NONE;
        }
        return true;
    case 1: /* dies too early */
        if (r->begin + 1 >= r->end)
            return false;
        r->end--;
        return true;
    case 2: /* is born too late */
        if (r->begin + 1 >= r->end)
            return false;
        r->begin++;
        return true;
    case 3:
        r->offset_bytes += 8;
        return true;
    case 4:
        r->size_bytes += 1;
        return true;
    case 5: /* a step runs before what it needs */
        if (!needs(problem, plan->positions[p + 1].step, plan->positions[p].step) ||
            plan->positions[p].step == plan->positions[p + 1].step)
            return false;
        {
            struct ul_plan_position swap = plan->positions[p];
            plan->positions[p] = plan->positions[p + 1];
            plan->positions[p + 1] = swap;
        }
        return true;
    case 6: /* a step is lost, another runs twice */
        if (plan->positions[p].step == plan->positions[p + 1].step)
            return false;
        plan->positions[p] = plan->positions[p + 1];
        return true;
    case 7:
        plan->reserved_bytes[0] -= 64;
        return true;
    case 8: /* in place of something else */
        if (r->alias != UL_PLAN_NONE || r->begin == 0)
            return false;
        r->alias = random_below(state, plan->range_count);
        return true;
    default:
        plan->rows.class_bytes[random_below(state, UL_PLAN_CLASS_COUNT)] += 1;
        return true;
    }
}

static void test_checker_rejects_mutants(void **state)
{
    (void)state;
    uint32_t tried = 0;
    for (uint64_t seed = 0; tried < 12000; seed++) {
        struct fixture f;
        fixture_init(&f);
        f.problem = random_problem(&f.arena, seed, 24);
        solve(&f, UL_PACK_BEST);
        uint64_t draw = seed;
        for (uint32_t i = 0; i < 12; i++) {
            struct mutant m;
            assert_true(f.plan.position_count <= 64 && f.plan.range_count <= 256);
            mutant_copy(&m, &f.plan);
            uint64_t before = draw;
            if (!mutate(&m, f.problem, &draw))
                continue;
            struct ul_diag diag = {.status = UL_OK};
            if (ul_plan_check(&f.arena, f.problem, &m.plan, &diag) != UL_MISMATCH)
                fail_msg("seed %llu, draw %llu: a mutant of kind %u passed",
                         (unsigned long long)seed, (unsigned long long)before, m.kind);
            tried++;
        }
        ul_arena_done(&f.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_in_place),
        cmocka_unit_test(test_output_is_not_overwritten),
        cmocka_unit_test(test_loop_keeps_what_it_needs_again),
        cmocka_unit_test(test_slices_live_from_the_first_write),
        cmocka_unit_test(test_pinned_and_empty),
        cmocka_unit_test(test_bad_problems_are_refused),
        cmocka_unit_test(test_random_plans_pass_the_checker),
        cmocka_unit_test(test_checker_rejects_mutants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
