/* SPDX-License-Identifier: Apache-2.0 */
/* The account that is kept while steps are merged against the timeline and the account of a whole
 * plan: the same sums before any merge, and after each one as in a problem that has one step there
 * from the start; where that problem needs more by far, a merge is refused, and where it needs no
 * more, it is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/model/live.h"
#include "planner/model/timeline.h"
#include "random.h"

/* Every step of a problem once, in file order, each by its cheapest alternative. */
static struct ul_live_sequence live_problem(struct ul_arena *arena,
                                            const struct ul_problem *problem)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < problem->step_count; s++) {
        const struct ul_plan_step *step = &problem->steps[s];
        count += step->alternatives[ul_step_cheapest(step)].substep_count;
    }
    struct ul_plan_substep *substeps = UL_NEW_ARRAY(arena, struct ul_plan_substep, count);
    uint32_t *region_of = UL_NEW_ARRAY(arena, uint32_t, count);
    count = 0;
    for (uint32_t s = 0; s < problem->step_count; s++) {
        const struct ul_plan_step *step = &problem->steps[s];
        const struct ul_plan_alternative *way = &step->alternatives[ul_step_cheapest(step)];
        for (uint32_t i = 0; i < way->substep_count; i++, count++) {
            substeps[count] = way->substeps[i];
            region_of[count] = step->region;
        }
    }
    return (struct ul_live_sequence){.values = problem->values,
                                     .regions = problem->regions,
                                     .substeps = substeps,
                                     .region_of = region_of,
                                     .value_count = problem->value_count,
                                     .region_count = problem->region_count,
                                     .position_count = count};
}

enum { ALIGN = 64, MAX_STEPS = 24 };

/* The live sums of a problem's file order by timeline and account; NULL: it is no valid order. */
static uint64_t *account_sums(struct ul_arena *arena, const struct ul_problem *problem,
                              enum ul_alias_mode mode, uint32_t *count)
{
    struct ul_plan plan = {.alignment_bytes = ALIGN};
    struct ul_diag diag = {0};
    uint32_t *steps = UL_NEW_ARRAY(arena, uint32_t, problem->step_count);
    if (ul_problem_verify(problem, &diag) != UL_OK)
        return NULL;
    for (uint32_t s = 0; s < problem->step_count; s++)
        steps[s] = s;
    ul_timeline_positions(arena, problem, steps, &plan);
    ul_timeline_build(arena, problem, mode, &plan);
    ul_account_live(arena, &plan);
    uint64_t *sums = UL_NEW_ARRAY(arena, uint64_t, (uint64_t)plan.position_count + 1);
    uint64_t max_bytes = 0;
    for (uint32_t p = 0; p < plan.position_count; p++) {
        for (uint32_t r = 0; r < plan.range_count; r++) {
            const struct ul_plan_range *range = &plan.ranges[r];
            if (range->space == 0 && p < range->end &&
                p >= range->begin + (range->alias != UL_PLAN_NONE))
                sums[p] += ul_size_align_or_die(range->size_bytes, ALIGN);
        }
        max_bytes = sums[p] > max_bytes ? sums[p] : max_bytes;
    }
    if (plan.position_count > 0)
        assert_int_equal(max_bytes, plan.order_lower_bound_bytes);
    *count = plan.position_count;
    return sums;
}

static void test_sums(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        struct ul_arena arena;
        uint32_t count = 0;
        ul_arena_init(&arena);
        const struct ul_problem *problem = random_problem(&arena, seed, MAX_STEPS);
        const uint64_t *sums = account_sums(&arena, problem, UL_ALIAS_ALL, &count);
        const struct ul_live_sequence sequence = live_problem(&arena, problem);
        struct ul_live *live = ul_live_new(&arena, &sequence, ALIGN);
        uint64_t peak_bytes = 0;
        for (uint32_t p = 0; sums != NULL && p < count; p++) {
            assert_int_equal(ul_live_bytes(live, p), sums[p]);
            peak_bytes = sums[p] > peak_bytes ? sums[p] : peak_bytes;
        }
        if (count > 0)
            assert_int_equal(sums[ul_live_peak(live)], peak_bytes);
        ul_arena_done(&arena);
    }
}

/* ---- Merges ---- */

/* A problem whose steps have one substep each, and what has been merged so far. */
struct merged {
    struct ul_arena *arena;
    const struct ul_problem *problem;
    const struct ul_plan_substep **substeps; /* per step; NULL: merged into another */
};

static void merged_init(struct merged *m, struct ul_arena *arena, const struct ul_problem *problem)
{
    *m = (struct merged){.arena = arena, .problem = problem};
    m->substeps = UL_NEW_ARRAY(arena, const struct ul_plan_substep *, problem->step_count);
    for (uint32_t s = 0; s < problem->step_count; s++)
        m->substeps[s] = problem->steps[s].alternatives[0].substeps;
}

static bool is_touched(const struct ul_problem *problem, uint32_t value)
{
    for (uint32_t s = 0; s < problem->step_count; s++) {
        const struct ul_plan_substep *substep = problem->steps[s].alternatives[0].substeps;
        if (ul_ids_have(substep->reads, substep->read_count, value) ||
            ul_ids_have(substep->writes, substep->write_count, value))
            return true;
    }
    return false;
}

/* The problem with one step where there were several; `step_at` per old step: the new one. Inputs
 * that nobody reads live at the first position, whose number merges change: they are left out. */
static struct ul_problem *merged_problem(const struct merged *m, uint32_t *step_at)
{
    struct ul_problem *problem = ul_problem_new(m->arena);
    for (uint32_t v = 0; v < m->problem->value_count; v++) {
        struct ul_plan_value value = m->problem->values[v];
        value.live_from_start = value.live_from_start && is_touched(m->problem, v);
        ul_problem_add_value(problem, &value);
    }
    for (uint32_t r = 1; r < m->problem->region_count; r++)
        ul_problem_add_region(problem, m->problem->regions[r].kind, m->problem->regions[r].parent);
    for (uint32_t s = 0; s < m->problem->step_count; s++) {
        if (m->substeps[s] != NULL)
            step_at[s] =
                add_simple_step(problem, "s", m->problem->steps[s].region, 1, m->substeps[s]);
    }
    return problem;
}

/* Only these steps touch the value, and it need not leave them. */
static bool is_inside(const struct merged *m, uint32_t value, const uint32_t *steps, uint32_t count)
{
    const struct ul_plan_value *at = &m->problem->values[value];
    if (at->live_from_start || at->live_to_end || at->persistent)
        return false;
    for (uint32_t s = 0; s < m->problem->step_count; s++) {
        if (m->substeps[s] == NULL || ul_ids_have(steps, count, s))
            continue;
        if (ul_ids_have(m->substeps[s]->reads, m->substeps[s]->read_count, value) ||
            ul_ids_have(m->substeps[s]->writes, m->substeps[s]->write_count, value))
            return false;
    }
    return true;
}

static uint32_t add_ids(const struct merged *m, const uint32_t *steps, uint32_t step_count,
                        const uint32_t *from, uint32_t from_count, uint32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < from_count; i++) {
        if (!is_inside(m, from[i], steps, step_count) && !ul_ids_have(ids, count, from[i]))
            ids[count++] = from[i];
    }
    return count;
}

static struct ul_plan_substep *merge_substeps(const struct merged *m, const uint32_t *steps,
                                              uint32_t count)
{
    enum { MAX_IDS = 256 };
    struct ul_plan_substep *substep = UL_NEW(m->arena, struct ul_plan_substep);
    uint32_t *reads = UL_NEW_ARRAY(m->arena, uint32_t, MAX_IDS);
    uint32_t *writes = UL_NEW_ARRAY(m->arena, uint32_t, MAX_IDS);
    struct ul_plan_in_place *in_place = UL_NEW_ARRAY(m->arena, struct ul_plan_in_place, MAX_IDS);
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_plan_substep *one = m->substeps[steps[i]];
        substep->read_count =
            add_ids(m, steps, count, one->reads, one->read_count, reads, substep->read_count);
        substep->write_count =
            add_ids(m, steps, count, one->writes, one->write_count, writes, substep->write_count);
        if (one->scratch_bytes > substep->scratch_bytes)
            substep->scratch_bytes = one->scratch_bytes;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_plan_substep *one = m->substeps[steps[i]];
        for (uint32_t k = 0; k < one->in_place_count; k++) {
            if (ul_ids_have(writes, substep->write_count, one->in_place[k].output) &&
                ul_ids_have(reads, substep->read_count, one->in_place[k].input))
                in_place[substep->in_place_count++] = one->in_place[k];
        }
    }
    substep->reads = reads;
    substep->writes = writes;
    substep->in_place = in_place;
    return substep;
}

/* Up to three steps of one region; 0: too few. */
static uint32_t choose_steps(const struct merged *m, uint64_t *state, uint32_t *steps)
{
    uint32_t count = 0;
    if (m->problem->step_count == 0)
        return 0;
    uint32_t s = random_below(state, m->problem->step_count);
    uint32_t region = m->problem->steps[s].region;
    for (; s < m->problem->step_count && count < 3; s++) {
        if (m->substeps[s] != NULL && m->problem->steps[s].region == region &&
            random_below(state, 3) > 0)
            steps[count++] = s;
    }
    return count > 1 ? count : 0;
}

static void compare(const struct merged *m, const struct ul_live *live)
{
    uint32_t count = 0;
    uint32_t *step_at = UL_NEW_ARRAY(m->arena, uint32_t, m->problem->step_count);
    const uint64_t *sums = account_sums(m->arena, merged_problem(m, step_at), UL_ALIAS_ALL, &count);
    assert_non_null(sums);
    for (uint32_t s = 0; s < m->problem->step_count; s++) {
        if (m->substeps[s] != NULL)
            assert_int_equal(ul_live_bytes(live, s), sums[step_at[s]]);
    }
}

/* Whether the problem with the merge needs more somewhere than the one without, and more than what
 * is called small. */
static bool costs(const struct merged *m, const struct merged *after,
                  const struct ul_live_merge *merge, uint64_t small_bytes)
{
    uint32_t count = 0;
    uint32_t *old_at = UL_NEW_ARRAY(m->arena, uint32_t, m->problem->step_count);
    uint32_t *new_at = UL_NEW_ARRAY(m->arena, uint32_t, m->problem->step_count);
    const uint64_t *old_sums =
        account_sums(m->arena, merged_problem(m, old_at), UL_ALIAS_ALL, &count);
    const uint64_t *new_sums =
        account_sums(m->arena, merged_problem(after, new_at), UL_ALIAS_ALL, &count);
    uint64_t max_bytes = small_bytes;
    for (uint32_t i = 0; i < merge->position_count; i++) {
        uint64_t bytes = old_sums[old_at[merge->positions[i]]];
        max_bytes = bytes > max_bytes ? bytes : max_bytes;
    }
    for (uint32_t s = 0; s < m->problem->step_count; s++) {
        if (after->substeps[s] != NULL && s != merge->at &&
            new_sums[new_at[s]] > old_sums[old_at[s]] && new_sums[new_at[s]] > small_bytes)
            return true;
    }
    return new_sums[new_at[merge->at]] > max_bytes;
}

static bool is_valid(const struct merged *m)
{
    struct ul_diag diag = {0};
    uint32_t *step_at = UL_NEW_ARRAY(m->arena, uint32_t, m->problem->step_count);
    return ul_problem_verify(merged_problem(m, step_at), &diag) == UL_OK;
}

enum outcome { NOT_TRIED, REFUSED, MERGED };

static enum outcome try_merge(struct merged *m, struct ul_live *live, uint64_t *state)
{
    uint32_t steps[3];
    uint32_t count = choose_steps(m, state, steps);
    if (count == 0)
        return NOT_TRIED;
    struct merged after = *m;
    struct ul_live_merge merge = {.positions = steps, .position_count = count};
    merge.at = steps[random_below(state, count)];
    merge.substep = merge_substeps(m, steps, count);
    after.substeps = ul_arena_copy(m->arena, m->substeps,
                                   m->problem->step_count * sizeof(struct ul_plan_substep *));
    for (uint32_t i = 0; i < count; i++)
        after.substeps[steps[i]] = NULL;
    after.substeps[merge.at] = merge.substep;
    if (!is_valid(&after))
        return NOT_TRIED;
    /* What begins earlier may be a reason, too, where the one step runs before the last. */
    bool may_begin_earlier = merge.at != steps[count - 1];
    uint64_t peak_bytes = ul_live_bytes(live, ul_live_peak(live));
    bool grows = costs(m, &after, &merge, 0);
    bool grows_much = costs(m, &after, &merge, peak_bytes / 4 + 1);
    bool refused = !ul_live_merge(live, &merge);
    assert_true(!grows_much || refused);
    assert_true(grows || !refused || may_begin_earlier);
    if (!refused)
        *m = after;
    compare(m, live);
    return refused ? REFUSED : MERGED;
}

static void test_merges(void **state)
{
    (void)state;
    uint32_t counts[3] = {0};
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        struct ul_arena arena;
        struct merged m;
        uint64_t random = seed;
        uint32_t count = 0;
        ul_arena_init(&arena);
        merged_init(&m, &arena, random_problem(&arena, seed, MAX_STEPS));
        uint32_t *step_at = UL_NEW_ARRAY(&arena, uint32_t, m.problem->step_count);
        const struct ul_problem *simple = merged_problem(&m, step_at);
        if (account_sums(&arena, simple, UL_ALIAS_ALL, &count) != NULL) {
            const struct ul_live_sequence sequence = live_problem(&arena, simple);
            struct ul_live *live = ul_live_new(&arena, &sequence, ALIGN);
            compare(&m, live);
            for (uint32_t i = 0; i < 6; i++)
                counts[try_merge(&m, live, &random)]++;
        }
        ul_arena_done(&arena);
    }
    assert_true(counts[REFUSED] > 1000);
    assert_true(counts[MERGED] > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_merges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
