/* SPDX-License-Identifier: Apache-2.0 */
/* Plans laid out in banks: what is found against every choice of banks for tiny problems, its bound
 * against all of these, and the checker against plans that say something wrong of banks. */
#include "oracle.h"
#include "planner/pack/placement.h"
#include "planner/solve/solve.h"
#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_CHAINS = 12 };

static void banks_make(struct ul_problem *problem, uint64_t seed, uint64_t peak_bytes)
{
    static const uint64_t rates[] = {8000, 2000, 500};
    static const char *const names[] = {"dtcm", "sram", "flash"};
    struct ul_plan_bank banks[3];
    uint64_t random = seed * 977 + 5;
    uint32_t count = 2 + random_below(&random, 2);
    for (uint32_t b = 0; b < count; b++) {
        uint64_t part = 1 + random_below(&random, 8);
        banks[b] = (struct ul_plan_bank){.name = names[b],
                                         .capacity_bytes = peak_bytes * part / 6 + 64,
                                         .bandwidth_mb = rates[b],
                                         .weights = b == 2 && random_below(&random, 2) == 0};
    }
    if (random_below(&random, 4) == 0)
        banks[1].bandwidth_mb = 0;
    ul_problem_set_banks(problem, banks, count);
}

/* ---- Chains, found by themselves ---- */

struct chains {
    uint32_t count;
    struct ul_pack_buffer buffers[MAX_CHAINS];
    uint64_t moved[MAX_CHAINS];
    bool is_weights[MAX_CHAINS];
    bool is_pinned;
};

static uint64_t padded(const struct ul_plan *plan, uint64_t bytes)
{
    return (bytes + plan->alignment_bytes - 1) / plan->alignment_bytes * plan->alignment_bytes;
}

static uint64_t moved_of(const struct ul_problem *problem, const struct ul_plan *plan, uint32_t r)
{
    const struct ul_plan_range *range = &plan->ranges[r];
    uint64_t bytes = 0;
    for (uint32_t p = range->begin; p < range->end && p < plan->position_count; p++) {
        const struct ul_plan_position *at = &plan->positions[p];
        const struct ul_plan_substep *substep =
            &problem->steps[at->step].alternatives[at->alternative].substeps[at->substep];
        if (range->value == UL_PLAN_NONE)
            return 2 * range->size_bytes;
        if (ul_plan_find_range(problem, plan, range->value, p) != range)
            continue;
        for (uint32_t i = 0; i < substep->read_count; i++)
            bytes += substep->reads[i] == range->value ? range->size_bytes : 0;
        for (uint32_t i = 0; i < substep->write_count; i++)
            bytes += substep->writes[i] == range->value ? range->size_bytes : 0;
    }
    return bytes;
}

/* False: more than are gone through. */
static bool chains_make(const struct ul_problem *problem, const struct ul_plan *plan,
                        struct chains *chains)
{
    memset(chains, 0, sizeof *chains);
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *head = &plan->ranges[r];
        if (head->space != 0 || head->alias != UL_PLAN_NONE)
            continue;
        if (chains->count == MAX_CHAINS)
            return false;
        struct ul_pack_buffer *buffer = &chains->buffers[chains->count];
        *buffer = (struct ul_pack_buffer){.begin = head->begin,
                                          .end = head->end,
                                          .size_bytes = padded(plan, head->size_bytes),
                                          .alignment_bytes = plan->alignment_bytes};
        chains->is_weights[chains->count] = true;
        for (uint32_t k = 0; k < plan->range_count; k++) {
            uint32_t top = k;
            while (plan->ranges[top].alias != UL_PLAN_NONE)
                top = plan->ranges[top].alias;
            if (top != r)
                continue;
            const struct ul_plan_range *range = &plan->ranges[k];
            uint64_t alignment =
                range->value == UL_PLAN_NONE ? 0 : problem->values[range->value].alignment_bytes;
            buffer->alignment_bytes =
                alignment > buffer->alignment_bytes ? alignment : buffer->alignment_bytes;
            buffer->end = range->end > buffer->end ? range->end : buffer->end;
            chains->moved[chains->count] += moved_of(problem, plan, k);
            chains->is_weights[chains->count] =
                chains->is_weights[chains->count] && range->class == UL_PLAN_WEIGHTS;
            chains->is_pinned = chains->is_pinned || (range->value != UL_PLAN_NONE &&
                                                      problem->values[range->value].pinned);
        }
        chains->count++;
    }
    return true;
}

static uint64_t cost_of(const struct ul_problem *problem, const struct chains *chains,
                        const uint32_t *banks)
{
    uint64_t moved[UL_LIMIT_BANKS] = {0}, cost = 0;
    for (uint32_t i = 0; i < chains->count; i++)
        moved[banks[i]] += chains->moved[i];
    for (uint32_t b = 0; b < problem->bank_count; b++) {
        uint64_t rate = problem->banks[b].bandwidth_mb;
        cost += rate == 0 ? 0 : (moved[b] * 1000 + rate - 1) / rate;
    }
    return cost;
}

static bool can_pack(struct ul_arena *arena, const struct ul_problem *problem,
                     const struct chains *chains, const uint32_t *banks)
{
    for (uint32_t b = 0; b < problem->bank_count; b++) {
        struct ul_pack_buffer own[MAX_CHAINS];
        struct ul_diag diag = {.status = UL_OK};
        struct ul_pack_options options = {.capacity_bytes = problem->banks[b].capacity_bytes,
                                          .work_limit = 1 << 14};
        struct ul_pack_result result;
        uint32_t count = 0;
        for (uint32_t i = 0; i < chains->count; i++) {
            if (banks[i] == b && problem->banks[b].weights && !chains->is_weights[i])
                return false;
            if (banks[i] == b)
                own[count++] = chains->buffers[i];
        }
        assert_int_equal(ul_pack_solve(arena, own, count, &options, &result, &diag), UL_OK);
        if (!result.fits)
            return false;
    }
    return true;
}

/* The least cost of all choices that can be packed; UINT64_MAX: none can. */
static uint64_t least_cost(struct ul_arena *arena, const struct ul_problem *problem,
                           const struct chains *chains, uint64_t known)
{
    uint32_t banks[MAX_CHAINS] = {0};
    uint64_t least = UINT64_MAX;
    for (;;) {
        uint64_t cost = cost_of(problem, chains, banks);
        if (cost < least && cost < known && can_pack(arena, problem, chains, banks))
            least = cost;
        uint32_t i = 0;
        while (i < chains->count && ++banks[i] == problem->bank_count)
            banks[i++] = 0;
        if (i == chains->count)
            return least;
    }
}

/* ---- Tests ---- */

static void plan_free(struct ul_arena *arena, struct ul_problem *problem, struct ul_plan *plan)
{
    struct ul_plan_options options = {.alignment_bytes = 16, .work_limit = 4000};
    struct ul_diag diag = {.status = UL_OK};
    problem->banks = NULL;
    problem->bank_count = 0;
    problem->spaces[0].capacity_bytes = 0;
    assert_int_equal(ul_plan_solve(arena, problem, &options, plan, &diag), UL_OK);
}

static void test_against_all_choices(void **state)
{
    uint32_t compared = 0, fitted = 0;
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct ul_arena arena;
        struct ul_plan_options options = {.alignment_bytes = 16, .work_limit = 4000};
        struct ul_diag diag = {.status = UL_OK};
        struct ul_plan plan;
        struct chains chains;
        ul_arena_init(&arena);
        struct ul_problem *problem = random_problem(&arena, seed, 6);
        plan_free(&arena, problem, &plan);
        bool is_tiny = chains_make(problem, &plan, &chains) && !chains.is_pinned;
        banks_make(problem, seed, plan.reserved_bytes[0]);
        struct ul_plan unlaid = ul_plan_keep(&arena, problem, &plan);
        ul_plan_judge(problem, 0, NULL, &plan);
        if (is_tiny && plan.fits) {
            assert_int_equal(ul_place_banks(&arena, problem, &options, &plan, &diag), UL_OK);
            uint64_t found = plan.fits ? plan.bank_cost : UINT64_MAX;
            uint64_t least = least_cost(&arena, problem, &chains, found);
            assert_int_equal(least, UINT64_MAX); /* nothing is cheaper that can be packed */
            assert_true(!plan.fits || plan.bank_cost_bound <= plan.bank_cost);
            assert_true(!plan.fits || plan.cost == unlaid.cost + plan.bank_cost);
            compared++;
            fitted += plan.fits;
        }
        ul_arena_done(&arena);
    }
    assert_true(compared > 100 && fitted > 60);
}

/* Bounds of larger problems, what the plans compute, and their text. */
static void test_larger(void **state)
{
    uint32_t fitted = 0;
    double gaps = 0;
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct ul_arena arena;
        struct ul_plan_options options = {.alignment_bytes = 16, .work_limit = 4000};
        struct ul_diag diag = {.status = UL_OK};
        struct ul_plan plan, again;
        struct oracle oracle;
        struct ul_text text, copy;
        struct ul_problem *parsed;
        ul_arena_init(&arena);
        struct ul_problem *problem = random_problem(&arena, seed, 40);
        plan_free(&arena, problem, &plan);
        banks_make(problem, seed, plan.reserved_bytes[0]);
        assert_int_equal(ul_plan_solve(&arena, problem, &options, &plan, &diag), UL_OK);
        if (plan.fits) {
            oracle_init(&oracle, &arena, problem);
            assert_true(oracle_accepts(&oracle, &plan));
            fitted++;
            gaps += plan.bank_cost == 0
                        ? 0
                        : (double)(plan.bank_cost - plan.bank_cost_bound) / (double)plan.bank_cost;
        }
        ul_text_init(&text, &arena);
        ul_text_init(&copy, &arena);
        ul_problem_print(&text, problem);
        assert_int_equal(ul_problem_parse(&arena, text.data, text.length, &parsed, &diag), UL_OK);
        ul_problem_print(&copy, parsed);
        assert_string_equal(text.data, copy.data);
        ul_text_init(&text, &arena);
        ul_text_init(&copy, &arena);
        ul_plan_print(&text, &plan);
        assert_int_equal(ul_plan_parse(&arena, text.data, text.length, parsed, &again, &diag),
                         UL_OK);
        assert_int_equal(ul_plan_check(&arena, parsed, &again, &diag), UL_OK);
        ul_plan_print(&copy, &again);
        assert_string_equal(text.data, copy.data);
        ul_arena_done(&arena);
    }
    assert_true(fitted > 25);
    assert_true(gaps / fitted < 0.05);
}

static void expect_refused(struct ul_arena *arena, const struct ul_problem *problem,
                           const struct ul_plan *plan, const char *why)
{
    struct ul_diag diag = {.status = UL_OK};
    assert_int_equal(ul_plan_check(arena, problem, plan, &diag), UL_MISMATCH);
    assert_non_null(strstr(diag.text, why));
}

/* Two values that live together, weights, and a bank for each. */
static struct ul_problem *small_problem(struct ul_arena *arena)
{
    static const char text[] = "problem 1\n"
                               "space 0 \"arena\" capacity 4480\n"
                               "bank 0 \"dtcm\" capacity 320 bandwidth 8000\n"
                               "bank 1 \"sram\" capacity 64 bandwidth 2000\n"
                               "bank 2 \"flash\" capacity 4096 bandwidth 500 weights\n"
                               "value 0 \"x\" inputs 64 from-start\n"
                               "value 1 \"w\" weights 1024 persistent\n"
                               "value 2 \"h\" other_activations 128\n"
                               "value 3 \"y\" outputs 64 to-end\n"
                               "value 4 \"books\" scratch 24 persistent first-bank\n"
                               "step 0 \"first\"\n  alternative cost 5\n"
                               "    substep reads 0 1 writes 2 scratch 64 traffic 64 1024 128 999\n"
                               "step 1 \"last\"\n  alternative cost 5\n"
                               "    substep reads 2 writes 3\n";
    struct ul_problem *problem;
    struct ul_diag diag = {.status = UL_OK};
    assert_int_equal(ul_problem_parse(arena, text, sizeof text - 1, &problem, &diag), UL_OK);
    return problem;
}

static void test_checker(void **state)
{
    struct ul_arena arena;
    struct ul_plan_options options = {.alignment_bytes = 64};
    struct ul_diag diag = {.status = UL_OK};
    struct ul_plan plan, edited;
    (void)state;
    ul_arena_init(&arena);
    struct ul_problem *problem = small_problem(&arena);
    assert_int_equal(ul_plan_solve(&arena, problem, &options, &plan, &diag), UL_OK);
    assert_true(plan.fits && plan.bank_count == 3);
    /* 1024 bytes of weights at 500, all else at 8000 */
    assert_int_equal(plan.bank_cost, 2048 + (64 + 128 + 999 + 128 + 64 + 7) / 8);
    assert_int_equal(plan.bank_cost_bound, plan.bank_cost);
    assert_int_equal(plan.cost, 10 + plan.bank_cost);
    edited = ul_plan_keep(&arena, problem, &plan);
    edited.bank_cost--;
    expect_refused(&arena, problem, &edited, "costs");
    edited = ul_plan_keep(&arena, problem, &plan);
    edited.bank_cost_bound = edited.bank_cost + 1;
    expect_refused(&arena, problem, &edited, "bound");
    edited = ul_plan_keep(&arena, problem, &plan);
    edited.banks[0].size_bytes -= 64; /* a range reaches out of it */
    expect_refused(&arena, problem, &edited, "lies in no bank as a whole");
    edited = ul_plan_keep(&arena, problem, &plan);
    edited.banks[2].size_bytes += 64;
    expect_refused(&arena, problem, &edited, "its ranges need 1024");
    edited = ul_plan_keep(&arena, problem, &plan);
    edited.banks[2].begin_bytes = 0;
    expect_refused(&arena, problem, &edited, "begins inside the one before it");
    edited = ul_plan_keep(&arena, problem, &plan);
    edited.banks[0].size_bytes = edited.reserved_bytes[0]; /* all in the first */
    edited.banks[1].begin_bytes = edited.banks[2].begin_bytes = edited.reserved_bytes[0];
    edited.banks[1].size_bytes = edited.banks[2].size_bytes = 0;
    expect_refused(&arena, problem, &edited, "above its capacity");
    edited = ul_plan_keep(&arena, problem, &plan);
    edited.banks[0].size_bytes = edited.banks[1].size_bytes = 0; /* all in the last */
    edited.banks[1].begin_bytes = edited.banks[2].begin_bytes = 0;
    edited.banks[2].size_bytes = edited.reserved_bytes[0];
    expect_refused(&arena, problem, &edited, "which is for weights");
    ul_arena_done(&arena);
}

/* Where banks have no room, capacities that do are found, and they do. */
static void test_sufficient(void **state)
{
    uint32_t tried = 0;
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct ul_arena arena;
        struct ul_plan_options options = {.alignment_bytes = 16, .work_limit = 4000};
        struct ul_diag diag = {.status = UL_OK};
        struct ul_plan plan;
        uint64_t capacities[UL_LIMIT_BANKS];
        ul_arena_init(&arena);
        struct ul_problem *problem = random_problem(&arena, seed, 12);
        plan_free(&arena, problem, &plan);
        banks_make(problem, seed, plan.reserved_bytes[0] / 3 + 1);
        struct ul_plan laid = ul_plan_keep(&arena, problem, &plan);
        assert_int_equal(ul_place_banks(&arena, problem, &options, &laid, &diag), UL_OK);
        if (!laid.fits) {
            assert_int_equal(ul_banks_suffice(&arena, problem, &options, &plan, capacities, &diag),
                             UL_OK);
            for (uint32_t b = 0; b < problem->bank_count; b++) {
                struct ul_plan_bank banks[UL_LIMIT_BANKS];
                memcpy(banks, problem->banks, problem->bank_count * sizeof *banks);
                if (capacities[b] == 0)
                    continue;
                assert_true(capacities[b] > banks[b].capacity_bytes);
                banks[b].capacity_bytes = capacities[b];
                struct ul_problem wider = *problem;
                ul_problem_set_banks(&wider, banks, problem->bank_count);
                laid = ul_plan_keep(&arena, problem, &plan);
                assert_int_equal(ul_place_banks(&arena, &wider, &options, &laid, &diag), UL_OK);
                assert_true(laid.fits);
                assert_int_equal(ul_plan_check(&arena, &wider, &laid, &diag), UL_OK);
                tried++;
            }
        }
        ul_arena_done(&arena);
    }
    assert_true(tried > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_all_choices),
        cmocka_unit_test(test_larger),
        cmocka_unit_test(test_checker),
        cmocka_unit_test(test_sufficient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
