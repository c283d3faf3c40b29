/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a planned program: what every target writes, in this order. */
#include "codegen/emit/emit_internal.h"

static enum ul_status write_text(struct ul_emitter *emitter, const char *directory,
                                 const struct ul_emit_file *file)
{
    struct ul_text text;
    ul_text_init(&text, emitter->arena);
    emitter->text = &text;
    file->put(emitter);
    const char *path = ul_arena_printf(emitter->arena, "%s/%s", directory, file->name);
    return ul_file_write(path, text.data, text.length, emitter->diag);
}

enum ul_status ul_emit_folder(struct ul_arena *arena, const struct ul_emit_language *language,
                              const struct ul_program *program, const struct ul_plan *plan,
                              const struct ul_emit_options *options, const char *directory,
                              struct ul_diag *diag)
{
    struct ul_emitter emitter = {.arena = arena,
                                 .program = program,
                                 .plan = plan,
                                 .options = options,
                                 .diag = diag,
                                 .language = language};
    ul_emit_find_scratch(&emitter);
    ul_emit_find_transfers(&emitter);
    ul_emit_find_functions(&emitter);
    ul_emit_find_entries(&emitter);
    UL_TRY(ul_emit_weights(&emitter, directory));
    for (const struct ul_emit_file *file = language->files; file->name != NULL; file++) {
        bool is_due = (!file->is_rom || program->options.weights_rom) &&
                      (!file->is_inside || ul_emit_has_weights_inside(&emitter));
        if (is_due && !(file->is_program && options->common_directory != NULL))
            UL_TRY(write_text(&emitter, directory, file));
    }
    return ul_emit_runtime(&emitter, options->common_directory != NULL ? options->common_directory
                                                                       : directory);
}
