/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that run one after another in one buffer: of random problems each is still a plan, none
 * lies on what another keeps, and what they reserve is the sum of what is kept and the largest of
 * what is left. The check of them together finds what is moved there. */
#include "planner/solve/solve.h"
#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_TENANTS = 4, STEPS = 12, ALIGN = 4096 };

struct fixture {
    struct ul_arena arena;
    struct ul_diag diag;
    uint32_t count;
    struct ul_problem *problems[MAX_TENANTS];
    struct ul_plan plans[MAX_TENANTS];
    uint32_t others[MAX_TENANTS][MAX_TENANTS];
    struct ul_plan_tenant tenants[MAX_TENANTS];
};

static void fixture_init(struct fixture *f, uint64_t seed, uint32_t count)
{
    memset(f, 0, sizeof *f);
    ul_arena_init(&f->arena);
    f->count = count;
    for (uint32_t t = 0; t < count; t++) {
        f->problems[t] = random_problem(&f->arena, seed * MAX_TENANTS + t, STEPS);
        for (uint32_t o = 0; o < count; o++) {
            struct ul_plan_value other = ul_plan_value_make("other", UL_PLAN_OTHERS, 0);
            other.persistent = true;
            f->others[t][o] = ul_problem_add_value(f->problems[t], &other);
        }
        struct ul_plan_options options = {.work_limit = 20000, .alignment_bytes = ALIGN};
        assert_int_equal(ul_plan_solve(&f->arena, f->problems[t], &options, &f->plans[t], &f->diag),
                         UL_OK);
        f->tenants[t] = (struct ul_plan_tenant){
            .problem = f->problems[t], .plan = &f->plans[t], .others = f->others[t]};
    }
}

static enum ul_status check_together(struct fixture *f)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    const struct ul_problem *problems[MAX_TENANTS];
    const struct ul_plan *plans[MAX_TENANTS];
    for (uint32_t t = 0; t < f->count; t++) {
        problems[t] = f->problems[t];
        plans[t] = &f->plans[t];
    }
    f->diag = (struct ul_diag){0};
    return ul_plan_check_shared(&f->arena, problems, plans, names, f->count, &f->diag);
}

static void check_each(struct fixture *f)
{
    for (uint32_t t = 0; t < f->count; t++) {
        f->plans[t].bounded_bytes = 0;
        if (f->plans[t].smallest_budget_bytes > f->plans[t].reserved_bytes[0])
            f->plans[t].smallest_budget_bytes = f->plans[t].reserved_bytes[0];
        enum ul_status status = ul_plan_check(&f->arena, f->problems[t], &f->plans[t], &f->diag);
        assert_string_equal(f->diag.text, "");
        assert_int_equal(status, UL_OK);
    }
}

/* The lowest range of the plan that has bytes and goes when a run ends; UL_PLAN_NONE: none does. */
static uint32_t find_passing(const struct fixture *f, uint32_t tenant)
{
    const struct ul_plan *plan = &f->plans[tenant];
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *range = &plan->ranges[r];
        if (range->space == 0 && range->size_bytes > 0 && range->class != UL_PLAN_OTHERS &&
            (range->value == UL_PLAN_NONE || !f->problems[tenant]->values[range->value].persistent))
            return r;
    }
    return UL_PLAN_NONE;
}

/* A byte of what the next plan keeps is no place for a range of this one. */
static void check_broken(struct fixture *f)
{
    uint32_t moved = find_passing(f, 0);
    uint64_t kept = ul_plan_kept_bytes(f->problems[1], &f->plans[1]);
    if (moved == UL_PLAN_NONE || kept == 0)
        return;
    struct ul_plan_range *range = &f->plans[0].ranges[moved];
    uint64_t before = range->offset_bytes;
    range->offset_bytes = ul_plan_kept_bytes(f->problems[0], &f->plans[0]);
    assert_int_equal(check_together(f), UL_MISMATCH);
    assert_non_null(strstr(f->diag.text, "of a lies on"));
    assert_non_null(strstr(f->diag.text, "which b keeps between its runs"));
    range->offset_bytes = before;
    f->plans[1].reserved_bytes[0] += ALIGN;
    assert_int_equal(check_together(f), UL_MISMATCH);
    f->plans[1].reserved_bytes[0] -= ALIGN;
    assert_int_equal(check_together(f), UL_OK);
}

static void share_seed(uint64_t seed, uint32_t count)
{
    struct fixture f;
    uint64_t kept_bytes = 0, run_bytes = 0;
    fixture_init(&f, seed, count);
    for (uint32_t t = 0; t < count; t++) {
        uint64_t kept = ul_plan_kept_bytes(f.problems[t], &f.plans[t]);
        uint64_t rest = f.plans[t].reserved_bytes[0] - kept;
        kept_bytes += kept;
        run_bytes = rest > run_bytes ? rest : run_bytes;
    }
    uint64_t shared = ul_plan_share(&f.arena, f.tenants, count);
    check_each(&f);
    enum ul_status status = check_together(&f);
    assert_string_equal(f.diag.text, "");
    assert_int_equal(status, UL_OK);
    assert_true(shared >= kept_bytes && shared <= kept_bytes + run_bytes);
    for (uint32_t t = 0; t < count; t++)
        assert_int_equal(f.plans[t].reserved_bytes[0], shared);
    assert_int_equal(ul_plan_share(&f.arena, f.tenants, count), shared); /* again: nothing moves */
    check_each(&f);
    check_broken(&f);
    ul_arena_done(&f.arena);
}

static void test_random(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 150; seed++)
        share_seed(seed, 2 + (uint32_t)(seed % (MAX_TENANTS - 1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
