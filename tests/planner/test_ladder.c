/* SPDX-License-Identifier: Apache-2.0 */
/* Ladders of plans: a cheap skip is run again, a lean alternative is taken where it is needed, and
 * on random problems a smaller budget never gets a larger arena, a cheaper plan, or another
 * meaning. */
#include "oracle.h"
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
    struct ul_diag diag;
    struct ul_plan_options options;
    struct ul_plan_ladder ladder;
};

static void fixture_init(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    ul_arena_init(&f->arena);
    f->problem = ul_problem_new(&f->arena);
    f->options.work_limit = 20000;
}

static uint32_t value(struct fixture *f, enum ul_plan_class class, uint64_t size_bytes)
{
    struct ul_plan_value v = ul_plan_value_make("v", class, size_bytes);
    v.live_from_start = class == UL_PLAN_INPUTS;
    v.live_to_end = class == UL_PLAN_OUTPUTS;
    return ul_problem_add_value(f->problem, &v);
}

static void step(struct fixture *f, uint64_t cost, uint32_t in, uint32_t also, uint32_t out)
{
    uint32_t reads[2] = {in, also};
    struct ul_plan_substep substep = {.reads = reads,
                                      .writes = &out,
                                      .read_count = also == UL_PLAN_NONE ? 1 : 2,
                                      .write_count = 1};
    add_simple_step(f->problem, "s", 0, cost, &substep);
}

static struct ul_plan plan_within(struct fixture *f, uint64_t budget_bytes)
{
    struct ul_plan plan;
    struct ul_plan_options options = f->options;
    options.budget_bytes = budget_bytes;
    enum ul_status status = ul_plan_solve(&f->arena, f->problem, &options, &plan, &f->diag);
    assert_string_equal(f->diag.text, "");
    assert_int_equal(status, UL_OK);
    return plan;
}

/* x -> skip (cheap, large) -> down -> deep (needs 1024 alone) -> up + skip -> y */
static void test_skip_is_run_again(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    uint32_t x = value(&f, UL_PLAN_INPUTS, 64);
    uint32_t skip = value(&f, UL_PLAN_ACTIVATIONS, 512);
    uint32_t down = value(&f, UL_PLAN_ACTIVATIONS, 64);
    uint32_t deep = value(&f, UL_PLAN_ACTIVATIONS, 960);
    uint32_t up = value(&f, UL_PLAN_ACTIVATIONS, 64);
    uint32_t y = value(&f, UL_PLAN_OUTPUTS, 64);
    step(&f, 3, x, UL_PLAN_NONE, skip);
    step(&f, 100, skip, UL_PLAN_NONE, down);
    step(&f, 100, down, UL_PLAN_NONE, deep);
    step(&f, 100, deep, UL_PLAN_NONE, up);
    step(&f, 100, up, skip, y);
    struct ul_plan plan = plan_within(&f, 0);
    assert_int_equal(plan.reserved_bytes[0], 512 + 64 + 960);
    assert_int_equal(plan.cost, 403);
    plan = plan_within(&f, 1500);
    /* x lives until the skip is made again. */
    assert_true(plan.fits);
    assert_int_equal(plan.reserved_bytes[0], 64 + 64 + 960);
    assert_int_equal(plan.cost, 406);
    assert_int_equal(plan.base_cost, 403);
    assert_int_equal(plan.position_count, 6);
    assert_int_equal(plan.lower_bound_bytes, 1024);
    plan = plan_within(&f, 1024);
    assert_false(plan.fits);
    assert_int_equal(plan.smallest_budget_bytes, 1088);
    f.options.remat = UL_REMAT_NONE;
    plan = plan_within(&f, 1500);
    assert_false(plan.fits);
    assert_int_equal(plan.position_count, 5);
    ul_arena_done(&f.arena);
}

/* A step that reads the gradient and updates the state in place. */
static void update(struct fixture *f, uint32_t gradient, uint32_t state_value)
{
    uint32_t reads[2] = {gradient, state_value};
    struct ul_plan_substep substep = {
        .reads = reads, .writes = &state_value, .read_count = 2, .write_count = 1};
    add_simple_step(f->problem, "update", 0, 1, &substep);
}

/* Layers of a net that is trained: what reads a weight may run again, until the weight changes,
 * which it does in parts, each as soon as its part of the gradient is there.
 *      a1 = x w1, a2 = a1 w2 ... g2 = g3 w3, d3 = a2 g3, w3 -= d3 ... */
static void check_readers_of_states(uint32_t parts)
{
    enum { LAYERS = 12, BYTES = 640 };
    struct fixture f;
    uint32_t weights[LAYERS], made[LAYERS + 1];
    fixture_init(&f);
    made[0] = value(&f, UL_PLAN_INPUTS, BYTES);
    for (uint32_t i = 0; i < LAYERS; i++) {
        weights[i] = value(&f, UL_PLAN_WEIGHTS, 64);
        f.problem->values[weights[i]].persistent = true;
        made[i + 1] = value(&f, UL_PLAN_ACTIVATIONS, BYTES);
        step(&f, 10, made[i], weights[i], made[i + 1]);
    }
    uint32_t gradient = value(&f, UL_PLAN_ACTIVATIONS, BYTES);
    step(&f, 1, made[LAYERS], UL_PLAN_NONE, gradient);
    for (uint32_t i = LAYERS; i-- > 0;) {
        uint32_t before = value(&f, UL_PLAN_ACTIVATIONS, BYTES);
        step(&f, 10, gradient, weights[i], before);
        for (uint32_t part = 0; part < parts; part++) {
            uint32_t of_weight = value(&f, UL_PLAN_GRADIENTS, 64);
            step(&f, 10, made[i], gradient, of_weight);
            update(&f, of_weight, weights[i]);
        }
        gradient = before;
    }
    uint64_t whole = plan_within(&f, 0).reserved_bytes[0];
    assert_true(whole > (LAYERS + 1) * BYTES);
    struct ul_plan plan = plan_within(&f, whole * 6 / 10);
    assert_true(plan.fits);
    assert_true(plan.cost > plan.base_cost && plan.cost < plan.base_cost * 5 / 4);
    ul_arena_done(&f.arena);
}

static void test_readers_of_states_run_again(void **state)
{
    (void)state;
    check_readers_of_states(1);
    check_readers_of_states(3);
}

/* Layers of a net that is trained: with copies, products read a copy of the weight, which lives for
 * one step.
 *      a1 = x w1, a2 = a1 w2 ... d = g a2, w2 -= d, v2 -= d a1, g = d v2 ... */
static void check_late_readers(bool with_copies, uint32_t tenths)
{
    enum { LAYERS = 12, BYTES = 640 };
    struct fixture f;
    uint32_t weights[2 * LAYERS], made[LAYERS + 1];
    fixture_init(&f);
    made[0] = value(&f, UL_PLAN_INPUTS, BYTES);
    for (uint32_t i = 0; i < 2 * LAYERS; i++) {
        weights[i] = value(&f, UL_PLAN_WEIGHTS, 64);
        f.problem->values[weights[i]].persistent = true;
    }
    for (uint32_t i = 0; i < LAYERS; i++) {
        uint32_t factor = weights[2 * i];
        if (with_copies) {
            factor = value(&f, UL_PLAN_ACTIVATIONS, BYTES);
            step(&f, 1, weights[2 * i], UL_PLAN_NONE, factor);
        }
        made[i + 1] = value(&f, UL_PLAN_ACTIVATIONS, BYTES);
        step(&f, 10, made[i], factor, made[i + 1]);
    }
    uint32_t gradient = value(&f, UL_PLAN_ACTIVATIONS, BYTES);
    step(&f, 1, made[LAYERS], UL_PLAN_NONE, gradient);
    for (uint32_t i = LAYERS; i-- > 0;) {
        uint32_t both = value(&f, UL_PLAN_ACTIVATIONS, 2 * BYTES);
        uint32_t before = value(&f, UL_PLAN_ACTIVATIONS, BYTES);
        step(&f, 10, gradient, made[i + 1], both);
        update(&f, both, weights[2 * i]);
        step(&f, 10, both, made[i], before);
        update(&f, both, weights[2 * i + 1]);
        gradient = before;
    }
    uint64_t whole = plan_within(&f, 0).reserved_bytes[0];
    struct ul_plan plan = plan_within(&f, whole * tenths / 10);
    assert_true(plan.fits);
    assert_true(plan.cost > plan.base_cost && plan.cost < plan.base_cost * 5 / 4);
    ul_arena_done(&f.arena);
}

/* What would read a weight after its update may be had by keeping a value that lives for three
 * steps, or one that lives from the forward pass on, which is smaller: the former is kept. The copy
 * of a weight lives for one step, but would live from the forward pass on if it ran only once. */
static void test_short_lives_are_kept(void **state)
{
    (void)state;
    check_late_readers(false, 7);
    check_late_readers(true, 7);
}

/* The end reads what is live there, and may not have it made again of what was updated before:
 *      a = x w, out = a, g = a, d = x g, w -= d */
static void test_end_reads_before_updates(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    uint32_t x = value(&f, UL_PLAN_INPUTS, 64);
    uint32_t weight = value(&f, UL_PLAN_WEIGHTS, 64);
    f.problem->values[weight].persistent = true;
    uint32_t a = value(&f, UL_PLAN_ACTIVATIONS, 640);
    uint32_t out = value(&f, UL_PLAN_OUTPUTS, 320);
    uint32_t g = value(&f, UL_PLAN_ACTIVATIONS, 640);
    uint32_t deep = value(&f, UL_PLAN_ACTIVATIONS, 960);
    uint32_t d = value(&f, UL_PLAN_GRADIENTS, 64);
    step(&f, 1, x, weight, a);
    step(&f, 1, a, UL_PLAN_NONE, out);
    step(&f, 1, a, UL_PLAN_NONE, g);
    step(&f, 1, g, UL_PLAN_NONE, deep);
    step(&f, 1, deep, x, d);
    update(&f, d, weight);
    uint64_t whole = plan_within(&f, 0).reserved_bytes[0];
    for (uint64_t budget = whole; budget > 0; budget -= 64)
        (void)plan_within(&f, budget); /* the checker takes it */
    ul_arena_done(&f.arena);
}

/* The skip is the first slice of a value whose rest is written after the deep step. */
static void test_slice_is_written_again(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    uint32_t x = value(&f, UL_PLAN_INPUTS, 64);
    uint32_t joined = value(&f, UL_PLAN_ACTIVATIONS, 512);
    uint32_t down = value(&f, UL_PLAN_ACTIVATIONS, 64);
    uint32_t deep = value(&f, UL_PLAN_ACTIVATIONS, 960);
    uint32_t up = value(&f, UL_PLAN_ACTIVATIONS, 64);
    uint32_t y = value(&f, UL_PLAN_OUTPUTS, 64);
    step(&f, 3, x, UL_PLAN_NONE, joined);
    step(&f, 100, joined, UL_PLAN_NONE, down);
    step(&f, 100, down, UL_PLAN_NONE, deep);
    step(&f, 100, deep, UL_PLAN_NONE, up);
    step(&f, 100, up, UL_PLAN_NONE, joined);
    step(&f, 100, joined, UL_PLAN_NONE, y);
    assert_int_equal(plan_within(&f, 0).reserved_bytes[0], 512 + 64 + 960);
    struct ul_plan plan = plan_within(&f, 1500);
    assert_true(plan.fits);
    assert_int_equal(plan.reserved_bytes[0], 64 + 64 + 960);
    assert_int_equal(plan.cost, plan.base_cost + 3);
    assert_int_equal(plan.value_ranges[joined + 1] - plan.value_ranges[joined], 2);
    ul_arena_done(&f.arena);
}

static void test_alternative_of_less_scratch(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    uint32_t x = value(&f, UL_PLAN_INPUTS, 64);
    uint32_t y = value(&f, UL_PLAN_OUTPUTS, 64);
    struct ul_plan_substep substep = {.reads = &x, .writes = &y, .read_count = 1, .write_count = 1};
    struct ul_plan_substep fast = substep, middle = substep, small = substep;
    fast.scratch_bytes = 4096;
    middle.scratch_bytes = 1024;
    small.scratch_bytes = 128;
    const struct ul_plan_alternative alternatives[] = {
        {.name = "middle", .substeps = &middle, .substep_count = 1, .cost = 20},
        {.name = "fast", .substeps = &fast, .substep_count = 1, .cost = 10},
        {.name = "small", .substeps = &small, .substep_count = 1, .cost = 30}};
    struct ul_plan_step step_of = {
        .name = "s", .alternatives = alternatives, .alternative_count = 3};
    ul_problem_add_step(f.problem, &step_of);
    assert_int_equal(plan_within(&f, 0).reserved_bytes[0], 128 + 4096);
    assert_int_equal(plan_within(&f, 4000).reserved_bytes[0], 128 + 1024);
    assert_int_equal(plan_within(&f, 4000).cost, 20);
    assert_int_equal(plan_within(&f, 300).reserved_bytes[0], 128 + 128);
    assert_int_equal(plan_within(&f, 300).cost, 30);
    assert_int_equal(plan_within(&f, 300).base_cost, 10);
    assert_false(plan_within(&f, 255).fits);
    ul_arena_done(&f.arena);
}

/* What has other bits is taken for its bytes alone: not first, and not for as much time. */
static void test_other_bits_are_for_bytes_alone(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    uint32_t x = value(&f, UL_PLAN_INPUTS, 64);
    uint32_t y = value(&f, UL_PLAN_OUTPUTS, 64);
    struct ul_plan_substep large = {.reads = &x, .writes = &y, .read_count = 1, .write_count = 1};
    struct ul_plan_substep small = large;
    large.scratch_bytes = 4096;
    small.scratch_bytes = 128;
    const struct ul_plan_alternative alternatives[] = {
        {.name = "other", .substeps = &small, .substep_count = 1, .cost = 10, .other_bits = true},
        {.name = "dear", .substeps = &large, .substep_count = 1, .cost = 20},
        {.name = "own", .substeps = &large, .substep_count = 1, .cost = 10}};
    struct ul_plan_step step_of = {
        .name = "s", .alternatives = alternatives, .alternative_count = 3};
    ul_problem_add_step(f.problem, &step_of);
    assert_int_equal(plan_within(&f, 0).positions[0].alternative, 2);
    assert_int_equal(plan_within(&f, 128 + 4096).positions[0].alternative, 2);
    assert_int_equal(plan_within(&f, 4096).positions[0].alternative, 0);
    assert_int_equal(plan_within(&f, 4096).cost, 10);
    ul_arena_done(&f.arena);
}

/* ---- Random problems ---- */

struct tally {
    uint32_t ladders, recomputed, other_ways;
};

static void assert_front(const struct fixture *f, uint64_t seed, struct tally *tally)
{
    struct oracle oracle;
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    oracle_init(&oracle, &scratch, f->problem);
    bool recomputed = false, other_way = false;
    for (uint32_t i = 0; i < f->ladder.count; i++) {
        const struct ul_plan *plan = &f->ladder.rungs[i].plan;
        const struct ul_plan *before = &f->ladder.rungs[i > 0 ? i - 1 : 0].plan;
        struct ul_diag diag = {.status = UL_OK};
        if (ul_plan_check(&scratch, f->problem, plan, &diag) != UL_OK)
            fail_msg("seed %llu, rung %u: %s", (unsigned long long)seed, i, diag.text);
        if (!oracle_accepts(&oracle, plan))
            fail_msg("seed %llu, rung %u: another meaning", (unsigned long long)seed, i);
        assert_true(plan->lower_bound_bytes <= plan->reserved_bytes[0]);
        assert_true(plan->cost >= f->ladder.rungs[0].plan.cost);
        if (i > 0)
            assert_true(plan->reserved_bytes[0] < before->reserved_bytes[0]);
        if (i > 1)
            assert_true(plan->cost > before->cost);
        for (uint32_t p = 0; p < plan->position_count; p++) {
            recomputed = recomputed || plan->positions[p].copy > 0;
            other_way = other_way || plan->positions[p].alternative == 2;
        }
    }
    tally->ladders += f->ladder.count > 1;
    tally->recomputed += recomputed;
    tally->other_ways += other_way;
    ul_arena_done(&scratch);
}

/* From the arena without a budget down to the bound and below it in steps of 2 %. */
static void assert_sweep(const struct fixture *f)
{
    const struct ul_plan *first = &f->ladder.rungs[0].plan;
    const struct ul_plan *last = &f->ladder.rungs[f->ladder.count - 1].plan;
    uint64_t largest = UINT64_MAX;
    uint64_t cost = 0;
    for (uint32_t percent = 100; percent > 0; percent -= 2) {
        uint64_t budget = first->reserved_bytes[0] * percent / 100;
        struct ul_plan_rung rung;
        if (budget == 0)
            break;
        ul_ladder_pick(&f->ladder, budget, &rung);
        assert_true(rung.plan.reserved_bytes[0] <= largest);
        assert_true(rung.plan.cost >= cost);
        assert_int_equal(rung.plan.fits, rung.plan.reserved_bytes[0] <= budget);
        assert_int_equal(rung.plan.fits, budget >= last->reserved_bytes[0]);
        assert_int_equal(rung.plan.smallest_budget_bytes, last->reserved_bytes[0]);
        largest = rung.plan.reserved_bytes[0];
        cost = rung.plan.cost;
    }
}

static void test_random_ladders(void **state)
{
    (void)state;
    struct tally tally = {.ladders = 0};
    for (uint64_t seed = 0; seed < 120; seed++) {
        struct fixture f;
        struct ul_plan_ladder again;
        fixture_init(&f);
        f.problem = random_problem(&f.arena, seed, 30);
        f.options.remat = seed % 8 == 7 ? UL_REMAT_NONE : UL_REMAT_BEST;
        assert_int_equal(ul_ladder_build(&f.arena, f.problem, &f.options, NULL, &f.ladder, &f.diag),
                         UL_OK);
        assert_front(&f, seed, &tally);
        assert_sweep(&f);
        uint64_t middle = f.ladder.rungs[f.ladder.count / 2].plan.reserved_bytes[0];
        if (f.problem->step_count > 0)
            assert_int_equal(plan_within(&f, middle + 1).cost,
                             f.ladder.rungs[f.ladder.count / 2].plan.cost);
        assert_int_equal(ul_ladder_build(&f.arena, f.problem, &f.options, NULL, &again, &f.diag),
                         UL_OK);
        assert_int_equal(again.count, f.ladder.count);
        for (uint32_t i = 0; i < again.count; i++)
            assert_int_equal(again.rungs[i].plan.reserved_bytes[0],
                             f.ladder.rungs[i].plan.reserved_bytes[0]);
        ul_arena_done(&f.arena);
    }
    assert_true(tally.ladders >= 25);
    assert_true(tally.recomputed >= 18);
    assert_true(tally.other_ways >= 3);
}

static void test_merged_ladders_are_fronts(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct fixture f;
        struct ul_plan_ladder other, merged;
        fixture_init(&f);
        f.problem = random_problem(&f.arena, seed, 30);
        assert_int_equal(ul_ladder_build(&f.arena, f.problem, &f.options, NULL, &f.ladder, &f.diag),
                         UL_OK);
        struct ul_problem *rewritten = random_problem(&f.arena, seed + 1000, 30);
        assert_int_equal(ul_ladder_build(&f.arena, rewritten, &f.options, NULL, &other, &f.diag),
                         UL_OK);
        merged = f.ladder;
        ul_ladder_merge(&f.arena, &merged, &other, 1);
        assert_int_equal(merged.rungs[0].alternative, 0);
        for (uint32_t i = 1; i < merged.count; i++) {
            const struct ul_plan *plan = &merged.rungs[i].plan;
            assert_true(plan->reserved_bytes[0] < merged.rungs[i - 1].plan.reserved_bytes[0]);
            assert_true(i == 1 || plan->cost > merged.rungs[i - 1].plan.cost);
        }
        /* Nothing is lost: what either has within a budget, the merged one has no dearer. */
        for (uint32_t i = 0; i < other.count; i++) {
            struct ul_plan_rung rung;
            if (other.rungs[i].plan.cost < f.ladder.rungs[0].plan.cost ||
                other.rungs[i].plan.reserved_bytes[0] == 0)
                continue;
            ul_ladder_pick(&merged, other.rungs[i].plan.reserved_bytes[0], &rung);
            assert_true(rung.plan.fits);
            assert_true(rung.plan.cost <= other.rungs[i].plan.cost);
        }
        ul_arena_done(&f.arena);
    }
}

static const enum ul_plan_region_kind entry_kind = UL_PLAN_ENTRY;

/* All steps of the root sequence inside a region in `depth` - 1 others, `count` times, over the
 * same persistent values.
 */
static struct ul_problem *in_regions(struct ul_arena *arena, const struct ul_problem *from,
                                     const enum ul_plan_region_kind *kinds, uint32_t depth,
                                     uint32_t count)
{
    struct ul_problem *to = ul_problem_new(arena);
    uint32_t *values = UL_NEW_ARRAY(arena, uint32_t, from->value_count);
    for (uint32_t e = 0; e < count; e++) {
        uint32_t entry = 0;
        for (uint32_t i = 0; i < depth; i++)
            entry = ul_problem_add_region(to, kinds[i], entry);
        uint32_t first = to->step_count;
        for (uint32_t v = 0; v < from->value_count; v++)
            if (e == 0 || !from->values[v].persistent)
                values[v] = ul_problem_add_value(to, &from->values[v]);
        for (uint32_t s = 0; s < from->step_count; s++) {
            uint32_t at = ul_problem_add_step(to, &from->steps[s]);
            struct ul_plan_step *step = &to->steps[at];
            step->region = entry;
            for (uint32_t i = 0; i < step->predecessor_count; i++)
                ((uint32_t *)step->predecessors)[i] += first;
            for (uint32_t a = 0; a < step->alternative_count; a++) {
                for (uint32_t i = 0; i < step->alternatives[a].substep_count; i++) {
                    const struct ul_plan_substep *substep = &step->alternatives[a].substeps[i];
                    for (uint32_t k = 0; k < substep->read_count; k++)
                        ((uint32_t *)substep->reads)[k] = values[substep->reads[k]];
                    for (uint32_t k = 0; k < substep->write_count; k++)
                        ((uint32_t *)substep->writes)[k] = values[substep->writes[k]];
                    struct ul_plan_in_place *in_place =
                        (struct ul_plan_in_place *)substep->in_place;
                    for (uint32_t k = 0; k < substep->in_place_count; k++)
                        in_place[k] = (struct ul_plan_in_place){values[in_place[k].output],
                                                                values[in_place[k].input]};
                }
            }
        }
    }
    return to;
}

/* Two entries over the same persistent values reserve what one does, as large and as small. False:
 * what no step touches is of neither. */
static bool assert_twice_as_once(struct fixture *f)
{
    struct ul_problem *twice = in_regions(&f->arena, f->problem, &entry_kind, 1, 2);
    const uint32_t *entries = ul_value_entries(&f->arena, twice);
    const struct ul_plan_ladder *once = &f->ladder;
    struct ul_plan_ladder both;
    for (uint32_t v = 0; v < twice->value_count; v++)
        if (entries[v] == 0 && !twice->values[v].persistent)
            return false;
    assert_int_equal(ul_ladder_build(&f->arena, twice, &f->options, NULL, &both, &f->diag), UL_OK);
    assert_int_equal(both.rungs[0].plan.reserved_bytes[0], once->rungs[0].plan.reserved_bytes[0]);
    assert_int_equal(both.rungs[both.count - 1].plan.reserved_bytes[0],
                     once->rungs[once->count - 1].plan.reserved_bytes[0]);
    for (uint32_t i = 0; i < both.count; i++)
        assert_int_equal(ul_plan_check(&f->arena, twice, &both.rungs[i].plan, &f->diag), UL_OK);
    return true;
}

static void test_entries_are_like_the_root(void **state)
{
    (void)state;
    uint32_t ladders = 0, twins = 0;
    for (uint64_t seed = 1; seed < 120; seed += 2) {
        struct fixture f;
        struct ul_plan_ladder inside;
        fixture_init(&f);
        f.problem = random_problem(&f.arena, seed, 30);
        struct ul_problem *wrapped = in_regions(&f.arena, f.problem, &entry_kind, 1, 1);
        assert_int_equal(ul_ladder_build(&f.arena, f.problem, &f.options, NULL, &f.ladder, &f.diag),
                         UL_OK);
        assert_int_equal(ul_ladder_build(&f.arena, wrapped, &f.options, NULL, &inside, &f.diag),
                         UL_OK);
        assert_int_equal(inside.count, f.ladder.count);
        for (uint32_t i = 0; i < inside.count; i++) {
            const struct ul_plan *plan = &inside.rungs[i].plan;
            assert_int_equal(plan->reserved_bytes[0], f.ladder.rungs[i].plan.reserved_bytes[0]);
            assert_int_equal(plan->cost, f.ladder.rungs[i].plan.cost);
            assert_int_equal(ul_plan_check(&f.arena, wrapped, plan, &f.diag), UL_OK);
        }
        ladders += inside.count > 1;
        twins += assert_twice_as_once(&f);
        ul_arena_done(&f.arena);
    }
    assert_true(ladders >= 12);
    assert_true(twins >= 12);
}

/* What is there before or after a loop lives all through it, so that less can be gained than
 * outside; but what its steps make for each other is made again there. So it is in loops and
 * branches that are in others. */
static void test_steps_of_regions_run_again(void **state)
{
    static const struct {
        enum ul_plan_region_kind kinds[3];
        uint32_t depth, recomputed; /* so many plans at least run a step again */
    } cases[] = {{{UL_PLAN_LOOP}, 1, 10},
                 {{UL_PLAN_LOOP, UL_PLAN_LOOP}, 2, 10},
                 {{UL_PLAN_SEQUENCE, UL_PLAN_BRANCH}, 2, 5},
                 {{UL_PLAN_ENTRY, UL_PLAN_SEQUENCE, UL_PLAN_BRANCH}, 3, 5}};
    (void)state;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tally tally = {.ladders = 0};
        for (uint64_t seed = 1; seed < 120; seed += 2) {
            struct fixture f;
            fixture_init(&f);
            const struct ul_problem *plain = random_problem(&f.arena, seed, 30);
            f.problem = in_regions(&f.arena, plain, cases[i].kinds, cases[i].depth, 1);
            assert_int_equal(
                ul_ladder_build(&f.arena, f.problem, &f.options, NULL, &f.ladder, &f.diag), UL_OK);
            assert_front(&f, seed, &tally);
            ul_arena_done(&f.arena);
        }
        assert_true(tally.recomputed >= cases[i].recomputed);
    }
}

/* Plans of problems with nested regions are valid, and none claims more than there is. */
static void test_nested_regions(void **state)
{
    (void)state;
    uint32_t entries = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct fixture f;
        fixture_init(&f);
        f.problem = random_problem_nested(&f.arena, seed, 24);
        assert_int_equal(ul_ladder_build(&f.arena, f.problem, &f.options, NULL, &f.ladder, &f.diag),
                         UL_OK);
        for (uint32_t i = 0; i < f.ladder.count; i++) {
            const struct ul_plan *plan = &f.ladder.rungs[i].plan;
            if (ul_plan_check(&f.arena, f.problem, plan, &f.diag) != UL_OK)
                fail_msg("seed %llu, rung %u: %s", (unsigned long long)seed, i, f.diag.text);
        }
        for (uint32_t r = 0; r < f.problem->region_count; r++)
            entries += f.problem->regions[r].kind == UL_PLAN_ENTRY;
        ul_arena_done(&f.arena);
    }
    assert_true(entries >= 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_skip_is_run_again),
        cmocka_unit_test(test_readers_of_states_run_again),
        cmocka_unit_test(test_short_lives_are_kept),
        cmocka_unit_test(test_end_reads_before_updates),
        cmocka_unit_test(test_slice_is_written_again),
        cmocka_unit_test(test_alternative_of_less_scratch),
        cmocka_unit_test(test_other_bits_are_for_bytes_alone),
        cmocka_unit_test(test_random_ladders),
        cmocka_unit_test(test_entries_are_like_the_root),
        cmocka_unit_test(test_steps_of_regions_run_again),
        cmocka_unit_test(test_nested_regions),
        cmocka_unit_test(test_merged_ladders_are_fronts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
