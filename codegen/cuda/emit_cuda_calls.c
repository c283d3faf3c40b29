/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of a device's libraries in model.c: the libraries in the runtime's form, and a step that is
 * a call. */
#include "codegen/cuda/emit_cuda.h"
#include "codegen/program/calls_internal.h"

#include <inttypes.h>

void ul_emit_cuda_put_libraries(struct ul_emitter *emitter)
{
    const struct ul_libraries *libraries = emitter->program->options.libraries;
    struct ul_text list;
    ul_text_init(&list, emitter->arena);
    for (uint32_t i = 0; i < libraries->count; i++) {
        if (!ul_emit_sets_up(emitter, &libraries->rows[i]))
            continue;
        const char *name = libraries->rows[i].table;
        ul_text_printf(emitter->text, "extern const struct ul_device_library %s;\n", name);
        ul_text_printf(&list, "%s&%s", list.length == 0 ? "" : ", ", name);
    }
    ul_text_printf(emitter->text,
                   "static const struct ul_device_library *const libraries[] = {%s};\n\n",
                   list.data);
}

void ul_emit_cuda_put_call(struct ul_emitter *emitter, const struct ul_program_step *step,
                           uint32_t position, uint32_t indent)
{
    struct ul_text *text = emitter->text;
    int columns = (int)(4 * indent);
    ul_text_printf(text, "{\n%*s", columns + 4, "");
    ul_emit_call_args(emitter, step, step->arg_count, position);
    const struct ul_target_library *library = emitter->program->calls[step->kernel].library;
    ul_text_printf(text, "%*s%s%s_run(&at, %u, %u, args, ", columns + 4, "",
                   step->own != NULL ? "if (!" : "", library->symbol,
                   ul_emit_library_number(emitter, library), ul_emit_call_number(emitter, step));
    ul_emit_call_scratch(emitter, step, position);
    ul_text_put(text, step->own != NULL ? "))\n" : ");\n");
    if (step->own != NULL) {
        ul_text_printf(text, "%*s", columns + 8, "");
        emitter->language->put_step(emitter, step->own, position, indent + 2);
    }
    ul_text_printf(text, "%*s}\n", columns, "");
}

void ul_emit_cuda_put_spared(struct ul_emitter *emitter, const struct ul_program_step *step,
                             uint32_t position, uint32_t indent)
{
    const struct ul_plan_position *positions = emitter->plan->positions;
    uint32_t at = position;
    while (at > 0 &&
           (positions[at - 1].kind != UL_PLAN_RUN || positions[at - 1].step != step->spared_by))
        at--;
    UL_ASSERT(at > 0);
    const struct ul_program_step *call = ul_program_step_at(emitter->program, &positions[at - 1]);
    const struct ul_target_library *library = emitter->program->calls[call->kernel].library;
    ul_text_printf(emitter->text, "if (!%s_did_more(&at, %u, %u))\n%*s", library->symbol,
                   ul_emit_library_number(emitter, library), ul_emit_call_number(emitter, call),
                   (int)(4 * indent + 4), "");
}

/* Makes the first step with the call a function of its own, by kernels of ours. False: there is
 * none that needs timing. */
static bool put_own(struct ul_emitter *emitter, uint32_t call)
{
    const struct ul_program *program = emitter->program;
    for (uint32_t p = 0; p < emitter->plan->position_count; p++) {
        const struct ul_plan_position *at = &emitter->plan->positions[p];
        if (at->kind != UL_PLAN_RUN)
            continue;
        const struct ul_program_step *step = ul_program_step_at(program, at);
        if (step->kind != UL_STEP_CALL || step->own == NULL ||
            program->calls[step->kernel].call->kind != UL_CALL_ATTENTION_GRADIENT ||
            ul_emit_call_number(emitter, step) != call)
            continue;
        ul_text_printf(emitter->text,
                       "static void own%u(struct ul_cuda_run *run)\n{\n"
                       "    unsigned char *a = run->arena;\n"
                       "    struct ul_cuda_step at = ul_cuda_at(run, %u, UL_CUDA_ALWAYS);\n    ",
                       call, p);
        emitter->language->put_step(emitter, step->own, p, 1);
        ul_text_put(emitter->text, "}\n\n");
        return true;
    }
    return false;
}

const char *ul_emit_cuda_put_own(struct ul_emitter *emitter)
{
    struct ul_text list;
    bool is_found = false;
    ul_text_init(&list, emitter->arena);
    for (uint32_t i = 0; i < emitter->call_count && !emitter->program->options.io_caller; i++) {
        bool is_own = put_own(emitter, i);
        ul_text_printf(&list, is_own ? "%sown%u" : "%sNULL", i == 0 ? "" : ", ", i);
        is_found = is_found || is_own;
    }
    if (is_found)
        ul_text_printf(emitter->text,
                       "static void (*const own[])(struct ul_cuda_run *) = {%s};\n\n", list.data);
    return is_found ? "own" : "NULL";
}
