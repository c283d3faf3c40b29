/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which steps of a plan share a launch: steps in a row, none of which touches bytes that
 * another one writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "codegen/program/program.h"
#include "planner/model/plan.h"

enum { BYTES = 64, MAX_STEPS = UL_PROGRAM_JOINED + 2 };
enum kernel { JOINS, STANDS_ALONE, COUNTS, WHOLE_BLOCKS, LARGE_BLOCKS, KERNELS };

/* A step reads BYTES bytes at one offset of a space and writes as many at another one. It may have
 * as much scratch at a third. */
struct job {
    uint64_t read, written, scratch;
    bool has_scratch;
    uint32_t kernel, region, space;
    bool is_left_out; /* of the entry */
};

/* Plans the jobs one after the other and compares how many steps each launch has. */
static void expect(const struct job *jobs, uint32_t count, const uint32_t *wanted)
{
    struct ul_program_kernel kernels[KERNELS] = {
        [JOINS].printed = {.joins = true, .min_threads = 96, .max_threads = 512},
        [COUNTS].printed = {.joins = true,
                            .counter_words = UL_PROGRAM_COUNTER_WORDS / 2,
                            .min_threads = 128,
                            .max_threads = 512},
        [WHOLE_BLOCKS].printed = {.joins = true, .min_threads = 128, .max_threads = 128},
        [LARGE_BLOCKS].printed = {.joins = true, .min_threads = 1024, .max_threads = 1024}};
    struct ul_program_step steps[MAX_STEPS] = {0};
    struct ul_plan_position positions[MAX_STEPS] = {0};
    struct ul_plan_range ranges[3 * MAX_STEPS] = {0};
    struct ul_problem *problem;
    struct ul_program program = {.kernels = kernels, .steps = steps, .step_count = count};
    struct ul_plan plan = {.positions = positions, .position_count = count, .ranges = ranges};
    struct ul_diag diag = {0};
    struct ul_arena arena;
    uint32_t counts[MAX_STEPS];
    bool runs[MAX_STEPS];
    ul_arena_init(&arena);
    problem = ul_problem_new(&arena);
    ul_problem_add_space(problem, "rom", 0);
    ul_problem_add_space(problem, "caller", 0);
    program.problem = problem;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t offsets[2] = {jobs[i].read, jobs[i].written};
        uint32_t values[2];
        for (uint32_t v = 0; v < 2; v++) {
            struct ul_plan_value value = ul_plan_value_make("v", UL_PLAN_ACTIVATIONS, BYTES);
            value.space = jobs[i].space;
            values[v] = ul_problem_add_value(problem, &value);
            ranges[plan.range_count++] = (struct ul_plan_range){.value = values[v],
                                                                .begin = i,
                                                                .end = i + 1,
                                                                .space = jobs[i].space,
                                                                .alias = UL_PLAN_NONE,
                                                                .offset_bytes = offsets[v],
                                                                .size_bytes = BYTES};
        }
        const struct ul_plan_substep substep = {
            .reads = &values[0], .writes = &values[1], .read_count = 1, .write_count = 1};
        const struct ul_plan_alternative way = {.substeps = &substep, .substep_count = 1};
        ul_problem_add_step(
            problem,
            &(struct ul_plan_step){.name = "s", .alternatives = &way, .alternative_count = 1});
        steps[i] = (struct ul_program_step){
            .kind = UL_STEP_KERNEL, .region = jobs[i].region, .kernel = jobs[i].kernel};
        positions[i] = (struct ul_plan_position){.kind = UL_PLAN_RUN, .step = i};
        runs[i] = !jobs[i].is_left_out;
    }
    for (uint32_t i = 0; i < count; i++)
        if (jobs[i].has_scratch)
            ranges[plan.range_count++] = (struct ul_plan_range){.value = UL_PLAN_NONE,
                                                                .begin = i,
                                                                .end = i + 1,
                                                                .alias = UL_PLAN_NONE,
                                                                .offset_bytes = jobs[i].scratch,
                                                                .size_bytes = BYTES};
    assert_int_equal(ul_plan_index_ranges(&arena, problem, &plan, &diag), UL_OK);
    ul_program_find_joined(&program, &plan, runs, counts);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(counts[i], wanted[i]);
    ul_arena_done(&arena);
}

static void steps_apart_are_one_launch(void **state)
{
    (void)state;
    const struct job jobs[] = {
        {.read = 0, .written = 64}, {.read = 0, .written = 128}, {.read = 192, .written = 256}};
    expect(jobs, 3, (const uint32_t[]){3, 0, 0});
}

/* The bytes count, not the values: these are three each time. */
static void what_another_writes_is_not_touched(void **state)
{
    (void)state;
    const struct job reader[] = {{.read = 0, .written = 64}, {.read = 127, .written = 256}};
    const struct job overwriter[] = {{.read = 0, .written = 128}, {.read = 256, .written = 63}};
    const struct job writer[] = {{.read = 0, .written = 64}, {.read = 192, .written = 127}};
    expect(reader, 2, (const uint32_t[]){1, 1});
    expect(overwriter, 2, (const uint32_t[]){1, 1});
    expect(writer, 2, (const uint32_t[]){1, 1});
    const struct job first_of_three[] = {
        {.read = 0, .written = 64}, {.read = 0, .written = 128}, {.read = 64, .written = 256}};
    expect(first_of_three, 3, (const uint32_t[]){2, 0, 1});
    const struct job then_joins[] = {
        {.read = 0, .written = 64}, {.read = 64, .written = 128}, {.read = 64, .written = 256}};
    expect(then_joins, 3, (const uint32_t[]){1, 2, 0});
}

static void scratch_is_not_shared(void **state)
{
    (void)state;
    struct job jobs[] = {{.read = 0, .written = 64},
                         {.read = 0, .written = 128, .scratch = 256, .has_scratch = true},
                         {.read = 0, .written = 192, .scratch = 320, .has_scratch = true}};
    expect(jobs, 3, (const uint32_t[]){3, 0, 0});
    jobs[2].scratch = 319; /* the scratch of the step before */
    expect(jobs, 3, (const uint32_t[]){2, 0, 1});
    jobs[2].scratch = 127; /* bytes that the first step writes */
    expect(jobs, 3, (const uint32_t[]){2, 0, 1});
    jobs[2].scratch = 0; /* bytes that all steps read */
    expect(jobs, 3, (const uint32_t[]){2, 0, 1});
}

/* A caller may pass the same buffer twice. */
static void buffers_of_a_caller_may_be_one(void **state)
{
    (void)state;
    struct job jobs[] = {{.read = 0, .written = 64, .space = UL_PROGRAM_CALLER},
                         {.read = 128, .written = 192, .space = UL_PROGRAM_CALLER}};
    expect(jobs, 2, (const uint32_t[]){1, 1});
    jobs[1].space = UL_PROGRAM_ARENA;
    expect(jobs, 2, (const uint32_t[]){2, 0});
}

static void other_kernels_and_regions_end_a_launch(void **state)
{
    (void)state;
    struct job jobs[] = {
        {.read = 0, .written = 64}, {.read = 0, .written = 128}, {.read = 0, .written = 192}};
    jobs[1].kernel = STANDS_ALONE;
    expect(jobs, 3, (const uint32_t[]){1, 1, 1});
    jobs[1].kernel = JOINS;
    jobs[1].region = 1;
    expect(jobs, 3, (const uint32_t[]){1, 1, 1});
}

static void what_an_entry_leaves_out_is_not_launched(void **state)
{
    (void)state;
    struct job jobs[] = {
        {.read = 0, .written = 64}, {.read = 64, .written = 0}, {.read = 0, .written = 192}};
    jobs[1].is_left_out = true;
    expect(jobs, 3, (const uint32_t[]){2, 1, 0});
}

static void a_launch_has_so_many_steps(void **state)
{
    (void)state;
    struct job jobs[MAX_STEPS];
    uint32_t wanted[MAX_STEPS] = {[0] = UL_PROGRAM_JOINED, [UL_PROGRAM_JOINED] = 2};
    for (uint32_t i = 0; i < MAX_STEPS; i++)
        jobs[i] = (struct job){.read = 0, .written = (uint64_t)(i + 1) * BYTES};
    expect(jobs, MAX_STEPS, wanted);
}

/* There are words for so many kernels that count blocks. */
static void kernels_of_a_launch_count_apart(void **state)
{
    (void)state;
    const struct job jobs[] = {{.read = 0, .written = 64, .kernel = COUNTS},
                               {.read = 0, .written = 128},
                               {.read = 0, .written = 192, .kernel = COUNTS},
                               {.read = 0, .written = 256, .kernel = COUNTS},
                               {.read = 0, .written = 320}};
    expect(jobs, 5, (const uint32_t[]){3, 0, 0, 2, 0});
}

/* Blocks of a launch have one size, which all of its kernels can do with. */
static void kernels_of_a_launch_have_blocks_of_one_size(void **state)
{
    (void)state;
    struct job jobs[] = {{.read = 0, .written = 64},
                         {.read = 0, .written = 128, .kernel = WHOLE_BLOCKS},
                         {.read = 0, .written = 192, .kernel = WHOLE_BLOCKS},
                         {.read = 0, .written = 256, .kernel = LARGE_BLOCKS},
                         {.read = 0, .written = 320, .kernel = LARGE_BLOCKS},
                         {.read = 0, .written = 384}};
    expect(jobs, 6, (const uint32_t[]){3, 0, 0, 2, 0, 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_apart_are_one_launch),
        cmocka_unit_test(what_another_writes_is_not_touched),
        cmocka_unit_test(scratch_is_not_shared),
        cmocka_unit_test(buffers_of_a_caller_may_be_one),
        cmocka_unit_test(other_kernels_and_regions_end_a_launch),
        cmocka_unit_test(what_an_entry_leaves_out_is_not_launched),
        cmocka_unit_test(a_launch_has_so_many_steps),
        cmocka_unit_test(kernels_of_a_launch_count_apart),
        cmocka_unit_test(kernels_of_a_launch_have_blocks_of_one_size)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
