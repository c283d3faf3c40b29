/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what a run launches on a device: each position of the plan as its step is emitted, times
 * the rounds of the loops around it. Both sides of a branch are launched; the device decides which
 * of them does anything. */
#include "codegen/program/program.h"
#include "planner/model/plan.h"
#include "runtime/lib/ul_call.h"

static uint64_t rounds_of(const struct ul_program *program, uint32_t region)
{
    uint64_t rounds = 1;
    for (uint32_t r = region; r != UL_PLAN_NONE; r = program->regions[r].parent)
        if (program->regions[r].kind == UL_PLAN_LOOP)
            rounds = ul_size_mul_saturating(rounds, (uint64_t)program->regions[r].rounds);
    return rounds;
}

/* The number of rounds may overflow. */
static void add(uint64_t *sum, uint64_t rounds, uint64_t count)
{
    *sum = ul_size_add_saturating(*sum, ul_size_mul_saturating(rounds, count));
}

/* Whether the kernel leaves more than a tenth of the multiprocessors idle though it has much work
 * for them. Sides of tiles are powers of two, so 128 tiles count as filling 132. */
static bool is_idle(const struct ul_program *program, const struct ul_program_step *step)
{
    enum { MUCH = 1000000000 };
    const struct ul_work *work = &step->work;
    uint64_t processors = program->options.profile->device.processors;
    return work->flop_count > MUCH && work->block_count > 0 &&
           work->block_count < processors - processors / 10;
}

/* Whether the kernel takes much longer than it would on blocks for all multiprocessors. */
static bool is_narrow(const struct ul_program *program, const struct ul_program_step *step)
{
    enum { MUCH_NS = 20000 };
    const struct ul_profile *profile = program->options.profile;
    struct ul_work wide = step->work;
    uint32_t processors = profile->device.processors;
    if (wide.block_count >= processors)
        return false;
    wide.block_count = processors;
    return ul_profile_cost(profile, &step->work, &step->traffic, 1) >
           ul_profile_cost(profile, &wide, &step->traffic, 1) + MUCH_NS;
}

/* Adds the overheads of launches that a step shares, which its cost contains nevertheless. */
static void add_shared(const struct ul_program *program, const struct ul_program_step *step,
                       uint64_t shared_count, struct ul_program_launches *launches)
{
    const struct ul_profile *profile = program->options.profile;
    add(&launches->shared_ns, rounds_of(program, step->region),
        (uint64_t)(profile->overhead_ns * (double)shared_count));
}

/* Whether the call launches a kernel that writes bits of slopes before the library's. */
static bool has_mask(const struct ul_program *program, const struct ul_program_step *step)
{
    return ul_call_has_mask(program->calls[step->kernel].call) != 0;
}

/* `launch_count`: the launches that this step adds to those that it shares. */
static void add_step(const struct ul_program *program, const struct ul_program_step *step,
                     uint64_t launch_count, struct ul_program_launches *launches)
{
    const struct ul_kernel_printed *printed = &program->kernels[step->kernel].printed;
    uint64_t rounds = rounds_of(program, step->region);
    add(&launches->weigh_count, rounds, step->weigh_count);
    switch (step->kind) {
    case UL_STEP_KERNEL:
        add(&launches->launch_count, rounds, launch_count);
        add(&launches->scalar_count, rounds, printed->scalar_count);
        add(&launches->narrow_count, rounds, is_narrow(program, step));
        add(&launches->idle_count, rounds, is_idle(program, step));
        add(&launches->identity_count, rounds, printed->is_identity);
        break;
    case UL_STEP_CALL:
        add(&launches->launch_count, rounds, 1 + has_mask(program, step));
        add(&launches->call_count, rounds, 1);
        break;
    case UL_STEP_COPY:
        add(&launches->launch_count, rounds, step->copy_bytes > 0);
        add(&launches->identity_count, rounds, step->copy_bytes > 0);
        break;
    case UL_STEP_COUNTER:
    case UL_STEP_TEST:
        add(&launches->launch_count, rounds, 1);
        break;
    }
}

void ul_program_count_launches(const struct ul_program *program, const struct ul_plan *plan,
                               struct ul_program_launches *launches)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    uint32_t *joined = UL_NEW_ARRAY(&scratch, uint32_t, (uint64_t)plan->position_count + 1);
    ul_program_find_joined(program, plan, NULL, joined);
    uint64_t most = 0; /* launches of one of those that are launched together */
    *launches = (struct ul_program_launches){.launch_count = 0};
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct ul_plan_position *at = &plan->positions[p];
        launches->beside_count += at->kind == UL_PLAN_RUN && at->stream != 0;
        launches->wait_count +=
            at->kind == UL_PLAN_WAIT && plan->positions[at->awaited].kind == UL_PLAN_RUN;
        if (at->kind == UL_PLAN_RUN) {
            const struct ul_program_step *step = ul_program_step_at(program, at);
            bool is_kernel = step->kind == UL_STEP_KERNEL;
            if (step->is_spared)
                continue;
            uint64_t own = is_kernel ? program->kernels[step->kernel].printed.launch_count : 0;
            most = joined[p] > 0 ? 0 : most;
            add_step(program, step, own > most ? own - most : 0, launches);
            add_shared(program, step, own > most ? most : own, launches);
            most = own > most ? own : most;
        } else if (at->kind != UL_PLAN_WAIT) /* a transfer */
            add(&launches->launch_count, rounds_of(program, at->region), 1);
    }
    ul_arena_done(&scratch);
    UL_ASSERT(launches->call_count <= launches->launch_count);
}
