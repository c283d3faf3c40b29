/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds the depth of the stack below a caller of the program.
 *
 *     model_run > run_steps > k7 > ...        the deepest kernel, with what it calls
 *     model_init > ul_run_pack_section        if weights are read into the buffer
 *     model_save, model_load                  trained parameters, in pieces
 *
 * A plan takes the stack of the deepest alternative that its steps run: a kernel, or a library's
 * call, for which the profile has an estimate. The target gives the stack of a kernel
 * (ul_target.stack_bytes); the frames around it are the same for all programs. tests/e2e/stack.py
 * compares the sum with gcc's frames and a painted stack. The caller's own function that reads
 * weights comes on top. */
#include "codegen/program/program_internal.h"
#include "codegen/program/target.h"
#include "planner/model/plan.h"

enum {
    ENTRY_BYTES = 240, /* model_run; model_init without weights */
    STEPS_BYTES = 160, /* run_steps */
    REGION_BYTES = 32, /* for each loop or branch around a step */
    TEAM_BYTES = 384,  /* for a kernel whose loops threads share: they run another function */
    MATH_BYTES = 256,  /* of the C library */
    READ_WEIGHTS_BYTES = 10240, /* a piece of them on its way to its layout */
    TRAIN_BYTES = 1024,         /* model_train_step, before model_run: pointers to all inputs */
    CHECKPOINT_BYTES = 5120     /* a piece of it, its head, the C library's memcpy */
};

static uint32_t region_depth(const struct ul_program *program)
{
    uint32_t deepest = 0;
    for (uint32_t i = 0; i < program->region_count; i++) {
        uint32_t depth = 0;
        for (uint32_t r = i; program->regions[r].parent != UL_PLAN_NONE;
             r = program->regions[r].parent)
            depth++;
        deepest = depth > deepest ? depth : deepest;
    }
    return deepest;
}

/* Whether some weight comes from the file: not all come from a number. */
static bool reads_weights(const struct ul_program *program)
{
    for (uint32_t i = 0; i < program->place_count; i++) {
        const struct ul_program_place *place = &program->places[i];
        if ((place->kind != UL_PLACE_VALUE && place->kind != UL_PLACE_DONATED) ||
            program->problem->values[i].space != UL_PROGRAM_ARENA)
            continue;
        const struct ul_value *value = &program->graph->values[place->value];
        if (value->kind == UL_VALUE_WEIGHT && (value->tensor->data != NULL || place->pack != NULL))
            return true;
    }
    return false;
}

/* Frames that all alternatives of steps share. */
struct frames {
    uint64_t around_bytes; /* of the functions around a kernel */
    uint64_t other_bytes;  /* before and between runs: weights are read, a checkpoint is written */
    uint64_t library_bytes;
    bool has_team;
    const uint64_t *kernel_bytes; /* by kernel */
};

static struct frames frames_make(struct ul_arena *arena, const struct ul_program *program)
{
    const struct ul_target *target = program->options.target;
    uint64_t *kernel_bytes = UL_NEW_ARRAY(arena, uint64_t, program->kernel_count);
    bool has_team = program->options.thread_count > 1;
    bool trains = program->options.training != NULL;
    uint64_t checkpoint_bytes = trains ? CHECKPOINT_BYTES : 0;
    UL_ASSERT(target->stack_bytes != NULL);
    for (uint32_t i = 0; i < program->kernel_count; i++)
        kernel_bytes[i] = target->stack_bytes(program->kernels[i].ir);
    return (struct frames){
        .around_bytes = STEPS_BYTES + (uint64_t)REGION_BYTES * region_depth(program) +
                        (has_team ? TEAM_BYTES : 0) + (trains ? TRAIN_BYTES : 0) + MATH_BYTES,
        .other_bytes = reads_weights(program) || program->options.offload.exists
                           ? READ_WEIGHTS_BYTES
                           : checkpoint_bytes,
        .library_bytes = ul_profile_process(program->options.profile)->stack_bytes,
        .has_team = has_team,
        .kernel_bytes = kernel_bytes};
}

/* The stack while a step runs by this alternative; NULL: what is there in any case. */
static uint64_t alternative_bytes(const struct frames *frames,
                                  const struct ul_program_step *alternative)
{
    uint64_t deepest = 0;
    bool is_call = alternative != NULL && alternative->kind == UL_STEP_CALL;
    if (alternative != NULL && alternative->kind == UL_STEP_KERNEL)
        deepest = frames->kernel_bytes[alternative->kernel];
    if (alternative != NULL && alternative->own != NULL &&
        frames->kernel_bytes[alternative->own->kernel] > deepest)
        deepest = frames->kernel_bytes[alternative->own->kernel];
    uint64_t run = frames->around_bytes + deepest;
    return ENTRY_BYTES + (run > frames->other_bytes ? run : frames->other_bytes) +
           (is_call || frames->has_team ? frames->library_bytes : 0);
}

uint64_t ul_program_min_stack_bytes(const struct ul_program *program)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct frames frames = frames_make(&scratch, program);
    uint64_t bytes = alternative_bytes(&frames, NULL);
    ul_arena_done(&scratch);
    return bytes;
}

uint64_t ul_program_stack_bytes(const struct ul_program *program, const struct ul_plan *plan,
                                uint64_t *library_bytes)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct frames frames = frames_make(&scratch, program);
    uint64_t deepest = alternative_bytes(&frames, NULL);
    *library_bytes = frames.has_team ? frames.library_bytes : 0;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        if (plan->positions[p].kind != UL_PLAN_RUN)
            continue;
        const struct ul_program_step *alternative =
            ul_program_step_at(program, &plan->positions[p]);
        uint64_t bytes = alternative_bytes(&frames, alternative);
        deepest = bytes > deepest ? bytes : deepest;
        if (alternative->kind == UL_STEP_CALL)
            *library_bytes = frames.library_bytes;
    }
    ul_arena_done(&scratch);
    UL_ASSERT(*library_bytes <= deepest);
    return deepest;
}

void ul_program_count_stacks(const struct ul_program *program, bool counts)
{
    struct ul_problem *problem = program->problem;
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct frames frames = {.has_team = false};
    if (counts)
        frames = frames_make(&scratch, program);
    for (uint32_t s = 0; s < problem->step_count; s++) {
        uint64_t bytes[UL_STEP_ALTERNATIVES] = {0};
        UL_ASSERT(problem->steps[s].alternative_count <= UL_STEP_ALTERNATIVES);
        for (uint32_t a = 0; a < problem->steps[s].alternative_count && counts; a++) {
            const struct ul_plan_position at = {.step = s, .alternative = a};
            bytes[a] = program->options.thread_count *
                       (alternative_bytes(&frames, ul_program_step_at(program, &at)) -
                        alternative_bytes(&frames, NULL));
        }
        ul_problem_set_stacks(problem, s, bytes);
    }
    ul_arena_done(&scratch);
}
