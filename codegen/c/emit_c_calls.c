/* SPDX-License-Identifier: Apache-2.0 */
/* Calls in model.c: the libraries that are set up for them, in the runtime's form, and a step that
 * is a call. */
#include "codegen/c/emit_c.h"
#include "codegen/program/calls_internal.h"
#include "ir/view.h"

#include <inttypes.h>

/* What one library sets up at start: its calls follow one another in the table. */
static void put_library(struct ul_emitter *emitter, const struct ul_target_library *library)
{
    const struct ul_program *program = emitter->program;
    uint32_t first = UL_NONE, count = 0;
    bool has_tails = false, has_scales = false;
    for (uint32_t i = 0; i < emitter->call_count; i++) {
        const struct ul_program_call *call = &program->calls[emitter->calls[i]];
        if (call->library != library)
            continue;
        first = count++ == 0 ? i : first;
        has_tails = has_tails || call->call->tail_count > 0;
        has_scales = has_scales || call->call->scale_count > 0;
    }
    ul_text_printf(emitter->text,
                   "    {.name = \"%s\",\n     .plan_name = \"%s\",\n     .isa = ", library->name,
                   library->plan_name != NULL ? library->plan_name : "");
    ul_emit_string(emitter->text, program->options.isa);
    ul_text_printf(
        emitter->text,
        ",\n     .thread_count = %u,\n     .state_offset_bytes = %" PRIu64
        ",\n     .start_bytes = %" PRIu64 ",\n     .making_bytes = %" PRIu64
        ",\n     .first_call = %u,\n     .call_count = %u,\n     .calls = calls,\n",
        program->options.thread_count,
        ul_emit_place(emitter, ul_program_library(program, library)->state_place, 0).offset_bytes,
        emitter->options->start_bytes, emitter->options->making_bytes, first, count);
    static const char *const functions[] = {"init", "done", "ready", "implementation",
                                            "heap_bytes"};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        ul_text_printf(emitter->text, "     .%s = %s_%s,\n", functions[i], library->symbol,
                       functions[i]);
    ul_text_put(emitter->text, has_tails ? "     .posts = ul_posts_run,\n" : "");
    if (has_scales)
        ul_text_printf(emitter->text, "     .init_scaled = %s_init_scaled,\n", library->symbol);
    ul_text_put(emitter->text, "    },\n");
}

void ul_emit_c_put_libraries(struct ul_emitter *emitter)
{
    const struct ul_libraries *libraries = emitter->program->options.libraries;
    const uint32_t count = ul_emit_library_number(emitter, NULL);
    UL_ASSERT(count <= UL_LIBRARY_LIMIT);
    if (count == 0)
        return;
    ul_text_put(emitter->text, "static const struct ul_library libraries[] = {\n");
    for (uint32_t i = 0; i < libraries->count; i++) {
        if (ul_emit_sets_up(emitter, &libraries->rows[i]))
            put_library(emitter, &libraries->rows[i]);
    }
    ul_text_put(emitter->text, "};\n\n");
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
    ul_text_printf(text, "%*s%s_run(&", columns + 4, "", library->symbol);
    if (!library->is_own)
        ul_text_printf(text, "libraries[%u], a, ", ul_emit_library_number(emitter, library));
    ul_text_printf(text, library->is_own ? "calls[%u], args, " : "%u, args, ",
                   ul_emit_call_number(emitter, step));
    ul_emit_call_scratch(emitter, step, position);
    if (library->is_own)
        ul_text_printf(text, ", %u, (uint32_t)ul_team(run)",
                       emitter->program->options.thread_count);
    ul_text_printf(text, ");\n%*s}\n", columns, "");
}
