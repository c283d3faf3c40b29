/* How deep the stack gets below a caller of the program, at most.
 *
 *     model_run > run_steps > k7 > ...        the deepest kernel, with what it calls
 *     model_init > ul_run_pack_section        where weights are read into the buffer
 *
 * What a kernel takes its target says (ul_target.stack_bytes); the frames around it are the same
 * for all programs. tests/e2e/stack.py holds the sum against gcc's frames and a painted stack. What
 * the caller's own function that reads weights takes comes on top. */
#include "codegen/program/program_internal.h"
#include "codegen/program/target.h"

enum {
    ENTRY_BYTES = 240, /* model_run; model_init but for weights */
    STEPS_BYTES = 160, /* run_steps */
    REGION_BYTES = 32, /* of it, for each loop or branch around a step */
    TEAM_BYTES = 384,  /* of a kernel whose loops threads share: they run another function */
    MATH_BYTES = 256,  /* of the C library */
    READ_WEIGHTS_BYTES = 10240, /* a piece of them on its way to its layout */
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

/* Some weight comes from the file, not all from a number. */
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

uint64_t ul_program_stack_bytes(const struct ul_program *program)
{
    const struct ul_target *target = program->options.target;
    uint64_t deepest = 0;
    UL_ASSERT(target->stack_bytes != NULL);
    for (uint32_t i = 0; i < program->kernel_count; i++) {
        uint64_t bytes = target->stack_bytes(program->kernels[i].ir);
        deepest = bytes > deepest ? bytes : deepest;
    }
    uint64_t run = STEPS_BYTES + (uint64_t)REGION_BYTES * region_depth(program) + deepest +
                   (program->options.thread_count > 1 ? TEAM_BYTES : 0) + MATH_BYTES;
    return ENTRY_BYTES +
           (reads_weights(program) && run < READ_WEIGHTS_BYTES ? READ_WEIGHTS_BYTES : run);
}

uint64_t ul_program_library_stack_bytes(const struct ul_program *program)
{
    bool has_library = program->call_count > 0 || program->options.thread_count > 1;
    return has_library ? ul_profile_process(program->options.profile)->stack_bytes : 0;
}
