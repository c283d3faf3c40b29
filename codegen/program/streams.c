/* SPDX-License-Identifier: Apache-2.0 */
/* Computes what two streams would gain for a program on a device: which steps may run at the same
 * time as others, and how much of the device each of them keeps busy.
 *
 * A step keeps a device busy as long as its work takes all multiprocessors and the memory's whole
 * rate. It takes longer where a launch has fewer blocks than there are multiprocessors, and for the
 * launch itself. The rest of its time is what a step on the other stream can use:
 *
 *      step     launch | work of 20 blocks on 132 multiprocessors
 *      cost     1500   | 6600 ns
 *      busy              1000 ns
 *
 * A library's product counts as busy for all of its waves, since its tiles are not known.
 *
 * Left undone: effects of two kernels on each other's caches. */
#include "codegen/program/program.h"
#include "codegen/program/target.h"
#include "planner/solve/solve.h"

/* The time that the full device would take for the work, without the launches. */
static uint64_t busy_cost(const struct ul_program *program, const struct ul_program_step *step,
                          uint64_t cost)
{
    const struct ul_profile *profile = program->options.profile;
    struct ul_work wide = step->work;
    uint64_t launches = wide.launch_count > 0 ? wide.launch_count : 1;
    wide.block_count = 0;
    uint64_t busy = ul_profile_cost(profile, &wide, &step->traffic, step->rounds);
    uint64_t overhead = (uint64_t)(profile->overhead_ns * (double)launches);
    overhead = ul_size_mul_saturating(overhead, step->rounds);
    busy = busy > overhead ? busy - overhead : 1;
    return busy < cost ? busy : cost;
}

/* Whether a buffer of the caller is written: it may be one that another step reads. */
static bool writes_callers(const struct ul_program *program, const struct ul_plan_substep *substep)
{
    for (uint32_t i = 0; i < substep->write_count; i++)
        if (program->problem->values[substep->writes[i]].space == UL_PROGRAM_CALLER)
            return true;
    return false;
}

/* Whether the step at a position may run at the same time as others, on a stream of its own. */
static bool may_run_beside(const struct ul_program *program, const struct ul_plan_position *at)
{
    if (at->kind != UL_PLAN_RUN)
        return false;
    const struct ul_program_step *step = ul_program_step_at(program, at);
    const struct ul_plan_step *planned = &program->problem->steps[at->step];
    bool is_plain = step->kind == UL_STEP_KERNEL || step->kind == UL_STEP_CALL;
    bool meets = step->kind == UL_STEP_KERNEL && program->kernels[step->kernel].printed.meets;
    meets = meets || (step->own != NULL && program->kernels[step->own->kernel].printed.meets);
    return program->options.target->traits.has_streams && step->region == 0 &&
           (is_plain || step->kind == UL_STEP_COPY) && !meets &&
           !writes_callers(program, &planned->alternatives[at->alternative].substeps[at->substep]);
}

/* Puts the runs of a stream in [begin, end) on stream 0. */
static void settle(struct ul_plan_position *positions, uint32_t begin, uint32_t end,
                   uint32_t stream)
{
    for (uint32_t p = begin; p < end; p++)
        if (positions[p].kind == UL_PLAN_RUN && positions[p].stream == stream)
            positions[p].stream = 0;
}

/* Runs of a stream follow each other, so one that moves to stream 0 would come too late for one
 * that does not. So all of them move, between two places where nothing runs on the stream, or
 * none. */
static void settle_stream(const struct ul_program *program, uint32_t stream,
                          struct ul_plan_position *positions, uint32_t count)
{
    uint32_t begin = 0, last = UL_PLAN_NONE;
    bool may = true;
    for (uint32_t p = 0; p < count; p++) {
        const struct ul_plan_position *at = &positions[p];
        if (at->kind == UL_PLAN_RUN && at->stream == stream) {
            begin = last == UL_PLAN_NONE ? p : begin;
            last = p;
            may = may && may_run_beside(program, at);
        }
        if (at->kind != UL_PLAN_WAIT || last == UL_PLAN_NONE || at->awaited < last ||
            positions[at->awaited].stream != stream)
            continue;
        if (!may)
            settle(positions, begin, p, stream);
        last = UL_PLAN_NONE;
        may = true;
    }
}

struct ul_plan ul_program_settle(const struct ul_program *program, const struct ul_plan *plan,
                                 struct ul_arena *arena)
{
    struct ul_plan settled = *plan;
    settled.positions =
        ul_arena_copy(arena, plan->positions, plan->position_count * sizeof *plan->positions);
    for (uint32_t stream = 1; stream < UL_LIMIT_STREAMS && ul_plan_has_streams(plan); stream++)
        settle_stream(program, stream, settled.positions, plan->position_count);
    return settled;
}

bool ul_program_counts_blocks(const struct ul_program *program, const struct ul_plan_position *at)
{
    if (at->kind != UL_PLAN_RUN)
        return false;
    const struct ul_program_step *step = ul_program_step_at(program, at);
    bool counts =
        step->kind == UL_STEP_KERNEL && program->kernels[step->kernel].printed.counter_words > 0;
    return counts ||
           (step->own != NULL && program->kernels[step->own->kernel].printed.counter_words > 0);
}

struct ul_plan_streaming ul_program_streaming(const struct ul_program *program,
                                              const struct ul_plan *plan, struct ul_arena *arena)
{
    uint64_t count = (uint64_t)plan->position_count + 1;
    bool *may = UL_NEW_ARRAY(arena, bool, count), *counts = UL_NEW_ARRAY(arena, bool, count);
    uint64_t *costs = UL_NEW_ARRAY(arena, uint64_t, count);
    uint64_t *busy_costs = UL_NEW_ARRAY(arena, uint64_t, count);
    uint32_t *groups = UL_NEW_ARRAY(arena, uint32_t, count);
    uint32_t *joined = UL_NEW_ARRAY(arena, uint32_t, count), group = 0;
    uint64_t launch = (uint64_t)program->options.profile->overhead_ns;
    const struct ul_plan_resource *second = ul_problem_runner(program->problem, 1);
    ul_program_find_joined(program, plan, NULL, joined);
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct ul_plan_position *at = &plan->positions[p];
        group = joined[p] > 0 ? p : group;
        groups[p] = group;
        may[p] = may_run_beside(program, at);
        counts[p] = ul_program_counts_blocks(program, at);
        if (at->kind != UL_PLAN_RUN || at->substep > 0)
            continue;
        uint64_t cost = program->problem->steps[at->step].alternatives[at->alternative].cost;
        bool is_shared = joined[p] == 0; /* the launch */
        costs[p] = is_shared && cost > launch ? cost - launch : cost;
        busy_costs[p] = busy_cost(program, ul_program_step_at(program, at), costs[p]);
    }
    return (struct ul_plan_streaming){.may = may,
                                      .counts = counts,
                                      .costs = costs,
                                      .busy_costs = busy_costs,
                                      .groups = groups,
                                      .fork_cost = second->latency_cost};
}
