/* SPDX-License-Identifier: Apache-2.0 */
/* The checker against mutated plans: what it accepts must mean what it should.
 *
 * Plans with recomputed steps, parts, aliases, scratch and regions are made from random problems;
 * each is changed in one place, in its fields or coherently (another sequence, with ranges and
 * offsets made anew for it). The oracle runs the mutant on symbolic bytes; the sums that a plan
 * claims are compared with those of the plan that it came from. */
#include "oracle.h"
#include "planner/model/timeline.h"
#include "planner/solve/solve_internal.h"
#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_STEPS = 22, MAX_RUNS = 64, WANTED_MUTANTS = 12000 };

/* What the mutated plans had, to show that each feature was mutated often. */
enum feature { RECOMPUTED, PARTS, ALIASES, SCRATCH, REGIONS, FEATURE_COUNT };

struct maker {
    struct ul_arena arena;
    struct ul_problem *problem;
    struct oracle oracle;
    uint64_t random;
    uint32_t steps[MAX_RUNS];
    uint32_t step_count;
    struct ul_plan plan;
};

static struct ul_plan_options options_of(void)
{
    return (struct ul_plan_options){.alignment_bytes = 64, .pack = UL_PACK_GREEDY};
}

/* ---- Plans from sequences ---- */

/* Weights have no second copy, and regions stay whole. */
static bool may_repeat(const struct ul_problem *problem, uint32_t step)
{
    const struct ul_plan_substep *substep = &problem->steps[step].alternatives[0].substeps[0];
    for (uint32_t i = 0; i < substep->write_count; i++) {
        if (problem->values[substep->writes[i]].persistent)
            return false;
    }
    return problem->steps[step].region == 0;
}

/* Runs a step of the root sequence again somewhere after its first run. */
static void sequence_repeat(struct maker *m)
{
    if (m->step_count == 0 || m->step_count + 1 >= MAX_RUNS)
        return;
    uint32_t from = random_below(&m->random, m->step_count);
    uint32_t to = from + 1 + random_below(&m->random, m->step_count - from);
    uint32_t step = m->steps[from];
    uint32_t before = m->problem->steps[m->steps[to - 1]].region;
    bool inside =
        to < m->step_count && before != 0 && m->problem->steps[m->steps[to]].region == before;
    if (!may_repeat(m->problem, step) || inside)
        return;
    memmove(m->steps + to + 1, m->steps + to, (m->step_count - to) * sizeof *m->steps);
    m->steps[to] = step;
    m->step_count++;
}

static void sequence_swap(struct maker *m)
{
    if (m->step_count < 2)
        return;
    uint32_t at = random_below(&m->random, m->step_count - 1);
    uint32_t step = m->steps[at];
    m->steps[at] = m->steps[at + 1];
    m->steps[at + 1] = step;
}

static void sequence_drop(struct maker *m)
{
    if (m->step_count == 0)
        return;
    uint32_t at = random_below(&m->random, m->step_count);
    m->step_count--;
    memmove(m->steps + at, m->steps + at + 1, (m->step_count - at) * sizeof *m->steps);
}

/* Every step runs, and after something wrote what it reads: less has no live ranges. */
static bool sequence_is_sound(struct maker *m)
{
    const struct ul_problem *problem = m->problem;
    bool *runs = UL_NEW_ARRAY(&m->arena, bool, problem->step_count);
    bool *written = UL_NEW_ARRAY(&m->arena, bool, problem->value_count);
    for (uint32_t v = 0; v < problem->value_count; v++)
        written[v] = problem->values[v].live_from_start || problem->values[v].persistent;
    for (uint32_t i = 0; i < m->step_count; i++) {
        const struct ul_plan_substep *substep =
            problem->steps[m->steps[i]].alternatives[0].substeps;
        runs[m->steps[i]] = true;
        for (uint32_t k = 0; k < substep->read_count; k++) {
            if (!written[substep->reads[k]])
                return false;
        }
        for (uint32_t k = 0; k < substep->write_count; k++)
            written[substep->writes[k]] = true;
    }
    for (uint32_t s = 0; s < problem->step_count; s++) {
        if (!runs[s])
            return false;
    }
    return true;
}

/* Ranges and offsets for a sequence; false if it is so wrong that it has none. */
static bool sequence_plan(struct maker *m, const uint32_t *alternatives, struct ul_plan *plan)
{
    struct ul_plan_options options = options_of();
    struct ul_diag diag = {.status = UL_OK};
    if (!sequence_is_sound(m))
        return false;
    memset(plan, 0, sizeof *plan);
    ul_timeline_sequence(&m->arena, m->problem, m->steps, m->step_count, alternatives, plan);
    if (ul_plan_complete(&m->arena, m->problem, &options, plan, &diag) != UL_OK)
        return false;
    ul_plan_judge(m->problem, 0, NULL, plan);
    return true;
}

static bool is_accepted(struct maker *m, const struct ul_plan *plan)
{
    struct ul_diag diag = {.status = UL_OK};
    return ul_plan_check(&m->arena, m->problem, plan, &diag) == UL_OK;
}

/* A plan that the checker accepts, with recomputations where they do no harm. */
static void maker_init(struct maker *m, uint64_t seed)
{
    memset(m, 0, sizeof *m);
    ul_arena_init(&m->arena);
    m->random = seed;
    m->problem = random_problem_more(&m->arena, seed, MAX_STEPS);
    oracle_init(&m->oracle, &m->arena, m->problem);
    uint32_t *alternatives = UL_NEW_ARRAY(&m->arena, uint32_t, m->problem->step_count);
    for (uint32_t s = 0; s < m->problem->step_count; s++) {
        m->steps[m->step_count++] = s;
        alternatives[s] = random_below(&m->random, m->problem->steps[s].alternative_count);
    }
    assert_true(sequence_plan(m, alternatives, &m->plan));
    assert_true(is_accepted(m, &m->plan));
    for (uint32_t tries = 0; tries < 16; tries++) {
        uint32_t before[MAX_RUNS];
        uint32_t count = m->step_count;
        struct ul_plan plan;
        memcpy(before, m->steps, sizeof before);
        if (random_below(&m->random, 4) == 0)
            sequence_swap(m);
        else
            sequence_repeat(m);
        bool made = sequence_plan(m, alternatives, &plan);
        if (made && is_accepted(m, &plan)) {
            if (!oracle_accepts(&m->oracle, &plan))
                fail_msg("seed %llu: a plan with another meaning passed", (unsigned long long)seed);
            m->plan = plan;
        } else {
            memcpy(m->steps, before, sizeof before);
            m->step_count = count;
        }
    }
    if (!oracle_accepts(&m->oracle, &m->plan))
        fail_msg("seed %llu: the oracle refuses a good plan", (unsigned long long)seed);
}

static void features_count(const struct maker *m, uint32_t *features)
{
    const struct ul_plan *plan = &m->plan;
    bool found[FEATURE_COUNT] = {false};
    for (uint32_t p = 0; p < plan->position_count; p++) {
        found[RECOMPUTED] = found[RECOMPUTED] || plan->positions[p].copy > 0;
        found[PARTS] = found[PARTS] || plan->positions[p].substep > 0;
        found[REGIONS] = found[REGIONS] || m->problem->steps[plan->positions[p].step].region != 0;
    }
    for (uint32_t r = 0; r < plan->range_count; r++) {
        found[ALIASES] = found[ALIASES] || plan->ranges[r].alias != UL_PLAN_NONE;
        found[SCRATCH] = found[SCRATCH] || plan->ranges[r].value == UL_PLAN_NONE;
    }
    for (uint32_t f = 0; f < FEATURE_COUNT; f++)
        features[f] += found[f];
}

/* ---- Mutations of fields ---- */

static struct ul_plan plan_copy(struct maker *m)
{
    struct ul_plan plan = m->plan;
    plan.positions = UL_NEW_ARRAY(&m->arena, struct ul_plan_position,
                                  (size_t)plan.position_count + 1); /* one may be added */
    memcpy(plan.positions, m->plan.positions, plan.position_count * sizeof *plan.positions);
    plan.ranges = ul_arena_copy(&m->arena, plan.ranges, plan.range_count * sizeof *plan.ranges);
    plan.reserved_bytes = ul_arena_copy(&m->arena, plan.reserved_bytes,
                                        plan.space_count * sizeof *plan.reserved_bytes);
    return plan;
}

static void range_move(struct maker *m, struct ul_plan *plan, struct ul_plan_range *range)
{
    uint64_t blocks = plan->reserved_bytes[range->space] / 64 + 1;
    switch (random_below(&m->random, 4)) {
    case 0:
        range->offset_bytes += (uint64_t)64 << random_below(&m->random, 8);
        break;
    case 1:
        range->offset_bytes += 8;
        break;
    case 2:
        range->offset_bytes =
            plan->ranges[random_below(&m->random, plan->range_count)].offset_bytes;
        break;
    default:
        range->offset_bytes = (uint64_t)64 * random_below(&m->random, (uint32_t)blocks);
        break;
    }
}

/* An in-place option is taken, whatever speaks against it: the input is needed later, another
 * output has its bytes already, the output was there from the start. */
static void takeover_force(struct maker *m, struct ul_plan *plan)
{
    uint32_t start = random_below(&m->random, plan->position_count);
    for (uint32_t i = 0; i < plan->position_count; i++) {
        uint32_t p = (start + i) % plan->position_count;
        const struct ul_plan_substep *substep = ul_substep_at(m->problem, &plan->positions[p]);
        if (substep->in_place_count == 0)
            continue;
        const struct ul_plan_in_place *option =
            &substep->in_place[random_below(&m->random, substep->in_place_count)];
        const struct ul_plan_range *from = ul_plan_find_range(m->problem, plan, option->input, p);
        uint32_t to = plan->value_ranges[option->output];
        while (to < plan->value_ranges[option->output + 1] && plan->ranges[to].begin != p)
            to++;
        if (from == NULL || to == plan->value_ranges[option->output + 1])
            continue;
        plan->ranges[to].alias = (uint32_t)(from - plan->ranges);
        plan->ranges[to].offset_bytes = from->offset_bytes;
        return;
    }
}

static void range_mutate(struct maker *m, struct ul_plan *plan)
{
    struct ul_plan_range *range = &plan->ranges[random_below(&m->random, plan->range_count)];
    struct ul_plan_range *other = &plan->ranges[random_below(&m->random, plan->range_count)];
    uint64_t offset_bytes = range->offset_bytes;
    switch (random_below(&m->random, 11)) {
    case 0:
    case 1:
        random_shift_range(&m->random, range);
        break;
    case 2:
        range->size_bytes += random_below(&m->random, 2) == 0 ? 1 : UINT64_MAX;
        break;
    case 3:
        range->alias = range->alias != UL_PLAN_NONE ? UL_PLAN_NONE
                                                    : random_below(&m->random, plan->range_count);
        break;
    case 4:
        range->class = (enum ul_plan_class)random_below(&m->random, UL_PLAN_CLASS_COUNT);
        break;
    case 5:
        range->value = random_below(&m->random, m->problem->value_count);
        break;
    case 6: /* two ranges change places */
        range->offset_bytes = other->offset_bytes;
        other->offset_bytes = offset_bytes;
        break;
    case 7:
        takeover_force(m, plan);
        break;
    default:
        range_move(m, plan, range);
        break;
    }
}

static void position_mutate(struct maker *m, struct ul_plan *plan)
{
    uint32_t p = random_below(&m->random, plan->position_count);
    uint32_t q = random_below(&m->random, plan->position_count);
    struct ul_plan_position *at = &plan->positions[p];
    struct ul_plan_position swap = *at;
    switch (random_below(&m->random, 7)) {
    case 0: /* two positions change places */
        *at = plan->positions[q];
        plan->positions[q] = swap;
        break;
    case 1: /* neighbours do */
        if (p + 1 < plan->position_count) {
            *at = at[1];
            at[1] = swap;
        }
        break;
    case 2: /* one is lost, the others follow earlier */
        plan->position_count--;
        memmove(at, at + 1, (plan->position_count - p) * sizeof *at);
        break;
    case 3: /* one runs instead of another */
        *at = plan->positions[q];
        break;
    case 4:
        at->step = random_below(&m->random, m->problem->step_count);
        break;
    case 5:
        at->alternative += 1;
        break;
    default:
        at->substep += 1;
        break;
    }
}

static void claim_mutate(struct maker *m, struct ul_plan *plan)
{
    uint64_t change = random_below(&m->random, 2) == 0 ? 64 : (uint64_t)0 - 64;
    uint64_t *const claims[] = {&plan->reserved_bytes[0], &plan->rows.alignment_bytes,
                                &plan->rows.holes_bytes,  &plan->order_lower_bound_bytes,
                                &plan->lower_bound_bytes, &plan->cost,
                                &plan->base_cost};
    enum { CLAIM_COUNT = sizeof claims / sizeof *claims };
    uint32_t claim = random_below(&m->random, CLAIM_COUNT + 2);
    if (claim < CLAIM_COUNT)
        *claims[claim] += change;
    else if (claim == CLAIM_COUNT)
        plan->rows.class_bytes[random_below(&m->random, UL_PLAN_CLASS_COUNT)] += change;
    else
        plan->peak_position += 1;
}

static bool claims_hold(const struct ul_plan *plan, const struct ul_plan *original)
{
    return plan->reserved_bytes[0] == original->reserved_bytes[0] &&
           memcmp(&plan->rows, &original->rows, sizeof plan->rows) == 0 &&
           plan->order_lower_bound_bytes == original->order_lower_bound_bytes &&
           plan->lower_bound_bytes == original->lower_bound_bytes && plan->cost == original->cost &&
           plan->base_cost == original->base_cost && plan->peak_position == original->peak_position;
}

/* Another sequence, and everything that follows from it made anew. */
static bool sequence_mutate(struct maker *m, struct ul_plan *plan)
{
    uint32_t before[MAX_RUNS];
    uint32_t count = m->step_count;
    memcpy(before, m->steps, sizeof before);
    for (uint32_t i = 1 + random_below(&m->random, 2); i > 0; i--) {
        switch (random_below(&m->random, 3)) {
        case 0:
            sequence_repeat(m);
            break;
        case 1:
            sequence_swap(m);
            break;
        default:
            sequence_drop(m);
            break;
        }
    }
    bool made = sequence_plan(m, NULL, plan);
    memcpy(m->steps, before, sizeof before);
    m->step_count = count;
    return made;
}

/* Returns whether the mutant means something different from the plan. */
static bool mutant_try(struct maker *m, uint64_t seed)
{
    struct ul_plan plan;
    uint64_t draw = m->random;
    bool differs;
    switch (random_below(&m->random, 4)) {
    case 0:
        plan = plan_copy(m);
        claim_mutate(m, &plan);
        differs = !claims_hold(&plan, &m->plan);
        break;
    case 1:
        plan = plan_copy(m);
        position_mutate(m, &plan);
        differs = !oracle_accepts(&m->oracle, &plan);
        break;
    case 2:
        plan = plan_copy(m);
        range_mutate(m, &plan);
        differs = !oracle_accepts(&m->oracle, &plan);
        break;
    default:
        if (!sequence_mutate(m, &plan))
            return false;
        differs = !oracle_accepts(&m->oracle, &plan);
        break;
    }
    if (differs && is_accepted(m, &plan))
        fail_msg("seed %llu, draw %llu: a mutant with another meaning passed",
                 (unsigned long long)seed, (unsigned long long)draw);
    return differs;
}

static void test_mutants_are_refused(void **state)
{
    (void)state;
    enum { MUTANTS_EACH = 24 };
    uint32_t changed = 0;
    uint32_t features[FEATURE_COUNT] = {0};
    for (uint64_t seed = 1; changed < WANTED_MUTANTS; seed++) {
        struct maker m;
        maker_init(&m, seed);
        for (uint32_t i = 0; i < MUTANTS_EACH && m.plan.position_count > 1; i++) {
            if (!mutant_try(&m, seed))
                continue;
            changed++;
            features_count(&m, features);
        }
        ul_arena_done(&m.arena);
    }
    for (uint32_t f = 0; f < FEATURE_COUNT; f++)
        assert_true(features[f] >= WANTED_MUTANTS / 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mutants_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
