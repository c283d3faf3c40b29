/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a planned program: what every target writes, in this order. */
#include "codegen/emit/emit_internal.h"

static enum ul_status write_text(struct ul_emitter *emitter, const char *directory,
                                 const char *stem, const struct ul_emit_file *file)
{
    struct ul_text text;
    ul_text_init(&text, emitter->arena);
    emitter->text = &text;
    file->put(emitter);
    ul_emit_add_includes(emitter, text.data, text.length);
    const char *path = ul_arena_printf(emitter->arena, "%s/%s%s", directory,
                                       file->is_suffix ? stem : "", file->name);
    return ul_file_write(path, text.data, text.length, emitter->diag);
}

/* Writes one header; for a program of several models, one more for each of them. */
static enum ul_status write_headers(struct ul_emitter *emitter, const char *directory,
                                    const struct ul_emit_file *file)
{
    const struct ul_graph *graph = emitter->program->graph;
    bool has_roots = ul_emit_model_count(emitter) > 1;
    emitter->part = has_roots ? UL_EMIT_PROGRAM : UL_EMIT_BOTH;
    UL_TRY(write_text(emitter, directory, ul_emit_stem(emitter), file));
    emitter->part = has_roots ? UL_EMIT_ROOT : UL_EMIT_BOTH;
    for (; has_roots && emitter->root < graph->root_count; emitter->root++)
        UL_TRY(write_text(emitter, directory, graph->blocks[emitter->root].name, file));
    emitter->part = UL_EMIT_BOTH;
    emitter->root = ul_emit_first_model(emitter);
    return UL_OK;
}

/* Files of a library that are the same on all targets. */
static const struct ul_emit_file library_files[] = {
    {.name = "library.c", .put = ul_emit_library_c},
    {.name = "weights.S", .put = ul_emit_weights_s, .is_inside = true},
    {.name = "CMakeLists.txt", .put = ul_emit_cmakelists, .is_alone = true},
    {.name = "-config.cmake", .put = ul_emit_cmake_config, .is_alone = true, .is_suffix = true},
    {.name = ".pc", .put = ul_emit_pkg_config, .is_alone = true, .is_suffix = true},
    {.name = NULL}};

static bool is_due(const struct ul_emitter *emitter, const struct ul_emit_file *file)
{
    const struct ul_emit_options *options = emitter->options;
    return (!file->is_rom || emitter->program->options.weights_rom) &&
           (!file->is_inside || ul_emit_has_weights_inside(emitter)) &&
           (!file->is_alone || options->is_library_alone) &&
           (!file->is_program || !options->is_library_alone);
}

static enum ul_status write_files(struct ul_emitter *emitter, const char *directory,
                                  const struct ul_emit_file *files)
{
    for (const struct ul_emit_file *file = files; file->name != NULL; file++) {
        if (is_due(emitter, file))
            UL_TRY(file->is_header ? write_headers(emitter, directory, file)
                                   : write_text(emitter, directory, ul_emit_stem(emitter), file));
    }
    return UL_OK;
}

enum ul_status ul_emit_folder(struct ul_arena *arena, const struct ul_emit_language *language,
                              const struct ul_program *program, const struct ul_plan *plan,
                              const struct ul_emit_options *options, const char *directory,
                              struct ul_diag *diag)
{
    struct ul_emit_names included = {.count = 0};
    struct ul_emitter emitter = {.arena = arena,
                                 .program = program,
                                 .plan = plan,
                                 .options = options,
                                 .diag = diag,
                                 .included = &included,
                                 .part = UL_EMIT_BOTH,
                                 .language = language};
    emitter.root = ul_emit_first_model(&emitter);
    ul_emit_find_scratch(&emitter);
    ul_emit_find_transfers(&emitter);
    ul_emit_find_functions(&emitter);
    ul_emit_find_entries(&emitter);
    UL_TRY(ul_emit_find_sources(&emitter));
    UL_TRY(ul_emit_weights(&emitter, directory));
    UL_TRY(write_files(&emitter, directory, language->files));
    UL_TRY(write_files(&emitter, directory, library_files));
    return ul_emit_runtime(&emitter, directory);
}
