/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of a program as text: what each computes, how the target spreads it, and its name in
 * emitted text. */
#include "codegen/program/program.h"
#include "codegen/program/target.h"
#include "ir/kernel_text.h"

#include <inttypes.h>
#include <string.h>

static bool runs(const struct ul_program_step *step, uint32_t kernel)
{
    bool found = (step->kind == UL_STEP_KERNEL && step->kernel == kernel) ||
                 (step->own != NULL && step->own->kernel == kernel);
    for (uint32_t i = 0; i < step->alternative_count; i++)
        found = found || runs(&step->alternatives[i], kernel);
    return found;
}

/* The first step that runs it describes it. */
static const struct ul_program_step *step_of(const struct ul_program *program, uint32_t kernel)
{
    for (uint32_t s = 0; s < program->step_count; s++) {
        if (runs(&program->steps[s], kernel))
            return &program->steps[s];
    }
    return NULL;
}

static uint32_t call_count(const struct ul_program *program, uint32_t kernel)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < program->step_count; s++)
        count += runs(&program->steps[s], kernel);
    return count;
}

/* For equal kernels, values and their offsets are those of the first. */
static void put_kernel(struct ul_text *text, const struct ul_program *program, uint32_t id)
{
    const struct ul_program_kernel *kernel = &program->kernels[id];
    UL_ASSERT(kernel->ir != NULL);
    const struct ul_program_step *step = step_of(program, id);
    const struct ul_target *target = program->options.target;
    uint32_t count = call_count(program, id);
    ul_text_printf(text, "# %s: ", kernel->name);
    if (step != NULL) {
        ul_text_printf(text, "%s ", step->op);
        ul_text_quote(text, step->name, strlen(step->name));
    }
    ul_text_printf(text, ", %u step%s, %" PRIu64 " bytes of scratch\n", (unsigned)count,
                   ul_plural(count), kernel->printed.scratch_bytes);
    ul_kernel_print(text, kernel->ir);
    ul_text_printf(text, "schedule of target %s, emitted as %s\n", target->traits.name,
                   kernel->name);
    target->print_schedule(text, kernel->ir, &program->options);
    ul_text_put(text, "\n");
}

void ul_program_print_kernels(struct ul_text *text, const struct ul_program *program)
{
    for (uint32_t i = 0; i < program->kernel_count; i++)
        put_kernel(text, program, i);
}
