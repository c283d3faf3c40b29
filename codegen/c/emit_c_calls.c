/* SPDX-License-Identifier: Apache-2.0 */
/* Calls in model.c: the library that is set up for them, in the runtime's form, and a step that is
 * a call. */
#include "codegen/c/emit_c.h"
#include "codegen/program/calls_internal.h"
#include "ir/view.h"

#include <inttypes.h>

void ul_emit_c_put_library(struct ul_emitter *emitter)
{
    const struct ul_program *program = emitter->program;
    if (emitter->library == NULL)
        return;
    ul_text_printf(emitter->text,
                   "static const struct ul_library library = {\n    .name = \"%s\",\n    .isa = ",
                   emitter->library->name);
    ul_emit_string(emitter->text, program->options.isa);
    ul_text_printf(
        emitter->text,
        ",\n    .thread_count = %u,\n    .state_offset_bytes = %" PRIu64
        ",\n    .start_bytes = %" PRIu64 ",\n    .making_bytes = %" PRIu64
        ",\n    .call_count = %u,\n    .calls = calls,\n    .init = ul_library_init,\n"
        "    .done = ul_library_done,\n    .ready = ul_library_ready,\n"
        "    .implementation = ul_library_implementation,\n"
        "    .heap_bytes = ul_library_heap_bytes,\n%s%s};\n\n",
        program->options.thread_count,
        ul_emit_place(emitter, ul_program_library(program, emitter->library)->state_place, 0)
            .offset_bytes,
        emitter->options->start_bytes, emitter->options->making_bytes, emitter->call_count,
        emitter->has_tails ? "    .posts = ul_posts_run,\n" : "",
        emitter->has_scales ? "    .init_scaled = ul_library_init_scaled,\n" : "");
}

static bool same_place(const struct ul_emitter *emitter, const struct ul_program_address *a,
                       const struct ul_program_address *b, uint32_t position)
{
    struct ul_emit_place first = ul_emit_place(emitter, a->place, position);
    struct ul_emit_place second = ul_emit_place(emitter, b->place, position);
    return first.space == second.space && first.index == second.index &&
           first.offset_bytes + (uint64_t)a->offset_bytes ==
               second.offset_bytes + (uint64_t)b->offset_bytes;
}

/* The value that the library adds to is in the result's place: by the plan, or copied there. */
static void put_residual(struct ul_emitter *emitter, const struct ul_program_step *step,
                         uint32_t position, uint32_t indent)
{
    const struct ul_program_address *from = &step->args[step->arg_count - 1];
    const struct ul_program_address *to = &step->args[UL_CALL_DST];
    if (!step->has_residual || same_place(emitter, from, to, position))
        return;
    ul_text_printf(emitter->text, "%*smemcpy((void *)(", (int)(4 * indent), "");
    ul_emit_address(emitter, to, position);
    ul_text_put(emitter->text, "), (const void *)(");
    ul_emit_address(emitter, from, position);
    ul_text_printf(emitter->text, "), %" PRIu64 ");\n",
                   ul_value_bytes(emitter->program->graph, step->views[step->arg_count - 1]));
}

void ul_emit_c_put_call(struct ul_emitter *emitter, const struct ul_program_step *step,
                        uint32_t position, uint32_t indent)
{
    struct ul_text *text = emitter->text;
    int columns = (int)(4 * indent);
    ul_text_put(text, "{\n");
    put_residual(emitter, step, position, indent + 1);
    ul_text_printf(text, "%*s", columns + 4, "");
    ul_emit_call_args(emitter, step, step->arg_count - (step->has_residual ? 1 : 0), position);
    const struct ul_target_library *library = emitter->program->calls[step->kernel].library;
    ul_text_printf(text, "%*s%s_run(%s%u%s, args, ", columns + 4, "", library->symbol,
                   library->is_own ? "&calls[" : "&library, a, ",
                   ul_emit_call_number(emitter, step), library->is_own ? "]" : "");
    ul_emit_call_scratch(emitter, step, position);
    if (library->is_own)
        ul_text_printf(text, ", %u, (uint32_t)ul_team(run)",
                       emitter->program->options.thread_count);
    ul_text_printf(text, ");\n%*s}\n", columns, "");
}
