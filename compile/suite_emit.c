/* Several models in one arena, as source: a folder for each, and what they have in common. */
#define _XOPEN_SOURCE 700
#include "codegen/emit/emit.h"
#include "compile/compile_internal.h"
#include "compile/suite.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum ul_status emit_model(struct ul_suite *suite, uint32_t self, const char *target,
                                 const char *staged, struct ul_emit_options *emit)
{
    struct ul_suite_model *model = &suite->models[self];
    struct ul_compile *compile = model->compile;
    const char *folder = ul_arena_printf(&compile->keep, "%s/%s", staged, model->prefix);
    compile->options.prefix = model->prefix;
    UL_TRY(ul_compile_emit_options(compile, target, emit));
    emit->common_directory = staged;
    if (mkdir(folder, 0777) != 0)
        return ul_diag_set(&compile->diag, UL_IO, "%s: cannot write the folder: %s", folder,
                           strerror(errno));
    UL_TRY(compile->program->options.target->emit(&compile->keep, compile->program, &compile->plan,
                                                  emit, folder, &compile->diag));
    return ul_file_write(ul_arena_printf(&compile->keep, "%s/plan.json", folder),
                         compile->json.data, compile->json.length, &compile->diag);
}

static enum ul_status emit_all(struct ul_suite *suite, const char *target, const char *staged)
{
    struct ul_compile *command = suite->command;
    struct ul_emit_options emit;
    const char **prefixes = UL_NEW_ARRAY(&command->keep, const char *, suite->count);
    const struct ul_program_options *program = &suite->models[0].compile->program->options;
    for (uint32_t m = 0; m < suite->count; m++) {
        enum ul_status status = emit_model(suite, m, target, staged, &emit);
        prefixes[m] = suite->models[m].prefix;
        if (status == UL_OK)
            continue;
        command->diag = suite->models[m].compile->diag;
        return status;
    }
    const struct ul_plan *plan = &suite->models[0].compile->plan;
    struct ul_emit_shared shared = {.count = suite->count,
                                    .prefixes = prefixes,
                                    .arena_bytes = plan->reserved_bytes[0],
                                    .alignment_bytes = plan->alignment_bytes,
                                    .has_rom = program->weights_rom,
                                    .has_threads = program->thread_count > 1,
                                    .options = &emit};
    return program->target->emit_shared(&command->keep, &shared, staged, &command->diag);
}

/* An earlier result makes room for the new one, file by file: what else is there stays, and is in
 * the way. */
static enum ul_status remove_earlier(struct ul_suite *suite, const char *directory)
{
    static const char *const names[] = {"model.c",     "model.h",   "kernels.cu",
                                        "weights.bin", "plan.json", "rom.S"};
    struct ul_compile *command = suite->command;
    for (uint32_t m = 0; m < suite->count; m++) {
        const char *folder =
            ul_arena_printf(&command->keep, "%s/%s", directory, suite->models[m].prefix);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            (void)unlink(ul_arena_printf(&command->keep, "%s/%s", folder, names[i]));
        if (rmdir(folder) != 0 && errno != ENOENT)
            return ul_diag_set(
                &command->diag, UL_IO,
                "%s: cannot replace the folder: %s; give another folder, or empty it", folder,
                strerror(errno));
    }
    return UL_OK;
}

enum ul_status ul_suite_emit(struct ul_suite *suite, const char *directory)
{
    struct ul_compile *command = suite->command;
    struct ul_staging staging = {.is_own = ul_emit_is_runtime_file};
    UL_ASSERT(suite->report.members != NULL);
    UL_TRY(ul_staging_begin(&command->keep, directory, &staging, &command->diag));
    enum ul_status status = emit_all(suite, directory, staging.path);
    if (status == UL_OK && staging.exists)
        status = remove_earlier(suite, staging.directory);
    return ul_staging_end(&command->keep, &staging, status, &command->diag);
}
