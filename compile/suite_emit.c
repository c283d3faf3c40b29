/* SPDX-License-Identifier: Apache-2.0 */
/* Several models in one arena, as source: a folder for each, and what they have in common. */
#define _XOPEN_SOURCE 700
#include "codegen/emit/emit.h"
#include "compile/compile_internal.h"
#include "compile/suite.h"

#include <dirent.h>
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

/* ---- over an earlier result ---- */

static const char *const own_names[] = {"model.c",     "model.h",   "library.c", "kernels.cu",
                                        "weights.bin", "plan.json", "rom.S"};
enum { OWN_COUNT = sizeof own_names / sizeof *own_names };

static bool is_own(const char *name)
{
    bool found = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
    for (int i = 0; i < OWN_COUNT; i++)
        found = found || strcmp(name, own_names[i]) == 0;
    return found;
}

/* What is there of somebody else stays, and is in the way. */
static enum ul_status check_earlier(struct ul_suite *suite, const char *folder)
{
    struct ul_compile *command = suite->command;
    DIR *entries = opendir(folder);
    const char *other = NULL;
    if (entries == NULL && errno == ENOENT)
        return UL_OK;
    if (entries == NULL)
        return ul_diag_set(&command->diag, UL_IO, "%s: cannot replace the folder: %s", folder,
                           strerror(errno));
    for (struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
        if (!is_own(entry->d_name))
            other = ul_arena_copy_string(&command->keep, entry->d_name);
    }
    closedir(entries);
    if (other == NULL)
        return UL_OK;
    return ul_diag_set(&command->diag, UL_IO,
                       "%s: cannot replace the folder, which holds %s; give another folder, or "
                       "move that away",
                       folder, ul_quote(&command->keep, other));
}

static enum ul_status remove_earlier(struct ul_suite *suite, const char *directory)
{
    struct ul_arena *keep = &suite->command->keep;
    for (uint32_t m = 0; m < suite->count; m++)
        UL_TRY(check_earlier(suite,
                             ul_arena_printf(keep, "%s/%s", directory, suite->models[m].prefix)));
    for (uint32_t m = 0; m < suite->count; m++) {
        const char *folder = ul_arena_printf(keep, "%s/%s", directory, suite->models[m].prefix);
        for (int i = 0; i < OWN_COUNT; i++)
            (void)unlink(ul_arena_printf(keep, "%s/%s", folder, own_names[i]));
        (void)rmdir(folder); /* else the new one cannot take its place, which is said then */
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
