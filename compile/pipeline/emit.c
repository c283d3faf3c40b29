/* SPDX-License-Identifier: Apache-2.0 */
/* From a plan to source, and with make to an executable. */
#define _XOPEN_SOURCE 700
#include "codegen/emit/emit.h"
#include "compile/compile_internal.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The folder of data next to the program, or NULL. */
static const char *data_beside(struct ul_arena *arena)
{
    char *self = ul_arena_alloc(arena, PATH_MAX);
    ssize_t length = readlink("/proc/self/exe", self, PATH_MAX - 1);
    if (length <= 0)
        return NULL;
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    const char *installed = ul_arena_printf(arena, "%s/../share/ullage", self);
    return access(installed, R_OK) == 0 ? installed : NULL;
}

const char *ul_compile_installed_directory(struct ul_arena *arena)
{
    const char *beside = data_beside(arena);
    if (beside != NULL)
        return beside;
    return access(ULLAGE_SOURCE_DIR, R_OK) == 0 ? NULL : ULLAGE_DATA_DIR;
}

static const char *runtime_directory(struct ul_compile *compile)
{
    const char *set = getenv("ULLAGE_RUNTIME");
    const char *installed = ul_compile_installed_directory(&compile->keep);
    if (compile->options.runtime_dir != NULL)
        return compile->options.runtime_dir;
    if (set != NULL)
        return set;
    if (installed != NULL)
        return ul_arena_printf(&compile->keep, "%s/runtime", installed);
    return ULLAGE_SOURCE_DIR "/runtime";
}

bool ul_compile_is_prefix(const char *name)
{
    const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    size_t length = strlen(name);
    return length > 0 && length < 64 && strchr(letters, name[0]) != NULL &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") ==
               length;
}

/* make strips '-', '@' or '+' from the beginning of a command, and may then ignore its failure. */
static bool is_command(const char *words)
{
    /* strchr also finds the end of the text */
    return strchr("-@+", words[strspn(words, " \t")]) == NULL;
}

/* The command that compiles the program, for the Makefile. */
static enum ul_status compiler_choice(struct ul_compile *compile, const char **command)
{
    const struct ul_target_compiler *compiler = ul_compile_compiler(compile);
    *command = ul_compile_command(compile);
    if (is_command(*command))
        return UL_OK;
    return ul_diag_set(&compile->diag, UL_USAGE, "--%s \"%s\" ($%s without it): expected a command",
                       compiler->option, *command, compiler->variable);
}

static bool is_within(const char *directory, const char *outer)
{
    char *inner_path = realpath(directory, NULL);
    char *outer_path = realpath(outer, NULL);
    size_t length = outer_path == NULL ? 0 : strlen(outer_path);
    bool within = inner_path != NULL && outer_path != NULL &&
                  strncmp(inner_path, outer_path, length) == 0 &&
                  (inner_path[length] == '/' || inner_path[length] == '\0');
    free(inner_path);
    free(outer_path);
    return within;
}

/* Finds a step of stream 0 that counts blocks at the same time as a step of stream 1 may.
 * UL_PLAN_NONE: there is none. */
static uint32_t find_counting(const struct ul_compile *compile, const struct ul_plan *plan)
{
    /* the last step of stream 1 that counts and is not waited for */
    uint32_t beside = UL_PLAN_NONE;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct ul_plan_position *at = &plan->positions[p];
        if (at->kind == UL_PLAN_WAIT && beside != UL_PLAN_NONE && at->awaited >= beside)
            beside = UL_PLAN_NONE;
        if (!ul_program_counts_blocks(compile->program, at))
            continue;
        if (at->stream == 0 && beside != UL_PLAN_NONE)
            return p;
        beside = at->stream == 0 ? beside : p;
    }
    return UL_PLAN_NONE;
}

/* The first stream on which no value moves. */
static uint32_t free_stream(const struct ul_plan *plan)
{
    uint32_t stream = 1;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct ul_plan_position *at = &plan->positions[p];
        if (at->kind == UL_PLAN_COPY && at->stream == stream) {
            stream++;
            p = UINT32_MAX; /* from the first again */
        }
    }
    return stream;
}

/* Steps have two streams, and transfers use others. */
static enum ul_status check_streams(struct ul_compile *compile, const struct ul_plan *plan)
{
    uint32_t counting = find_counting(compile, plan), second = free_stream(plan);
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct ul_plan_position *at = &plan->positions[p];
        if (at->kind == UL_PLAN_RUN && at->stream != 0 && at->stream != second)
            return ul_diag_set(&compile->diag, UL_UNSUPPORTED,
                               "--plan %s: position %u, %s, is on stream %u: steps have two "
                               "streams here, 0 and %u; give it one of these",
                               compile->options.plan, p,
                               ul_program_step_at(compile->program, at)->name, at->stream, second);
    }
    if (counting != UL_PLAN_NONE)
        return ul_diag_set(
            &compile->diag, UL_UNSUPPORTED,
            "--plan %s: position %u, %s, adds up parts of a sum while a step beside it does; put "
            "the wait for stream %u before it",
            compile->options.plan, counting,
            ul_program_step_at(compile->program, &plan->positions[counting])->name, second);
    return UL_OK;
}

/* Finds the oneDNN of this installation for compilers, which do not look there by themselves. */
static void find_onednn(struct ul_compile *compile, struct ul_emit_options *emit)
{
    struct ul_arena *arena = &compile->keep;
    const char *installed = ul_compile_installed_directory(arena);
    if (installed == NULL ||
        access(ul_arena_printf(arena, "%s/onednn/include", installed), R_OK) != 0)
        return;
    emit->library_cflags = ul_arena_printf(arena, " -I'%s/onednn/include'", installed);
    emit->library_links = ul_arena_printf(
        arena, " -L'%s/onednn/lib' -Xlinker -rpath -Xlinker '%s/onednn/lib'", installed, installed);
}

/* The prefix names files of a library alone, next to these. */
static bool is_taken(const char *prefix)
{
    static const char *const names[] = {"library", "weights", "rom", "kernels"};
    bool taken = strncmp(prefix, "ul_", 3) == 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        taken = taken || strcmp(prefix, names[i]) == 0;
    return taken;
}

/* What the emitter is told of the compile, whose source goes to the folder. */
static enum ul_status emit_options(struct ul_compile *compile, const char *directory,
                                   struct ul_emit_options *emit)
{
    const struct ul_compile_options *options = &compile->options;
    const char *march = options->march != NULL ? options->march : "native";
    bool is_plain = ul_compile_word("march", march) == UL_MARCH_NONE;
    struct ul_footprint footprint;
    UL_ASSERT(compile->program != NULL && compile->plan.reserved_bytes != NULL);
    ul_footprint_count(compile->program, &compile->plan, ul_compile_is_process(compile),
                       &footprint);
    const char *prefix = options->prefix != NULL ? options->prefix : "model";
    prefix =
        ul_compile_is_shared(compile) ? UL_ROOTS_PREFIX : prefix; /* --prefix names the models */
    *emit = (struct ul_emit_options){.prefix = prefix,
                                     .model_sha256 = compile->model.sha256,
                                     .plan_sha256 = compile->plan_sha256,
                                     .runtime_dir = runtime_directory(compile),
                                     .cflags = options->cflags != NULL ? options->cflags : "-O3",
                                     .march = is_plain ? NULL : march,
                                     .library_cflags = ULLAGE_ONEDNN_CFLAGS,
                                     .library_links = ULLAGE_ONEDNN_LIBS,
                                     .start_bytes = footprint.start_bytes,
                                     .making_bytes = footprint.making_bytes,
                                     .is_library_alone = compile->is_library_alone,
                                     .weights_beside = options->weights == UL_WEIGHTS_FILE};
    if (!ul_compile_is_prefix(emit->prefix))
        return ul_diag_set(&compile->diag, UL_USAGE, "--prefix %s: expected a C identifier",
                           emit->prefix);
    find_onednn(compile, emit);
    if (strcmp(emit->prefix, "ul") == 0)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--prefix ul: names of the runtime begin so; give another name");
    if (emit->is_library_alone && is_taken(emit->prefix))
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--prefix %s: files of the library would be named as others of its "
                           "folder; give another name",
                           emit->prefix);
    UL_TRY(compiler_choice(compile, &emit->cc));
    if (is_within(directory, emit->runtime_dir))
        return ul_diag_set(&compile->diag, UL_IO,
                           "%s: that is the runtime's own folder; give another one", directory);
    return UL_OK;
}

enum ul_status ul_compile_emit(struct ul_compile *compile, const char *directory)
{
    struct ul_emit_options emit;
    struct ul_staging staging = {.is_own = ul_emit_is_runtime_file};
    UL_TRY(emit_options(compile, directory, &emit));
    const struct ul_plan plan = ul_program_settle(compile->program, &compile->plan, &compile->keep);
    UL_TRY(check_streams(compile, &plan));
    UL_TRY(ul_staging_begin(&compile->keep, directory, &staging, &compile->diag));
    enum ul_status status = compile->program->options.target->emit(
        &compile->keep, compile->program, &plan, &emit, staging.path, &compile->diag);
    return ul_staging_end(&compile->keep, &staging, status, &compile->diag);
}

/* "RUNTIME=libul_runtime.a" where the runtime was compiled together with ullage, or NULL. With
 * another C compiler than the default, or another runtime, the source compiles its own. */
static const char *runtime_library(struct ul_compile *compile)
{
    const char *installed = ul_compile_installed_directory(&compile->keep);
    const char *library = NULL;
#ifdef ULLAGE_BUILT_RUNTIME
    library = ULLAGE_BUILT_RUNTIME;
#endif
    if (compile->options.cc != NULL || compile->options.runtime_dir != NULL ||
        getenv("CC") != NULL || getenv("ULLAGE_RUNTIME") != NULL)
        return NULL;
    if (installed != NULL)
        library = ul_arena_printf(&compile->keep, "%s/../../lib/ullage/libul_runtime.a", installed);
    if (library == NULL || access(library, R_OK) != 0)
        return NULL;
    return ul_arena_printf(&compile->keep, "RUNTIME=%s", library);
}

/* Copies a file of the folder to `to`. */
static enum ul_status copy_file(struct ul_compile *compile, const char *directory, const char *name,
                                const char *to, struct ul_file_writer *writer)
{
    struct ul_file file;
    const char *from = ul_arena_printf(&compile->keep, "%s/%s", directory, name);
    UL_TRY(ul_file_map(&file, &compile->keep, from, &compile->diag));
    enum ul_status status = ul_file_begin(writer, to, &compile->diag);
    if (status == UL_OK) {
        fwrite(file.data, 1, (size_t)file.size_bytes, writer->stream);
        if (fflush(writer->stream) != 0 || ferror(writer->stream)) {
            status =
                ul_diag_set(&compile->diag, UL_IO, "%s: cannot write: %s", to, strerror(errno));
            ul_file_abandon(writer);
        }
    }
    ul_file_unmap(&file);
    return status;
}

/* The path next to the program; for a link, next to its target. */
static const char *beside_program(struct ul_compile *compile, const char *output)
{
    char *real = realpath(output, NULL);
    const char *path = ul_arena_printf(&compile->keep, "%s.weights", real != NULL ? real : output);
    free(real);
    return path;
}

/* Moves the result to `output`, with its file of weights next to it: both or neither. */
static enum ul_status move_results(struct ul_compile *compile, const char *directory,
                                   const char *goal, const char *output)
{
    struct ul_file_writer program, weights;
    bool is_beside = compile->options.weights == UL_WEIGHTS_FILE;
    UL_TRY(copy_file(compile, directory, goal, output, &program));
    enum ul_status status = UL_OK;
    if (is_beside)
        status =
            copy_file(compile, directory, "weights.bin", beside_program(compile, output), &weights);
    if (is_beside && status == UL_OK)
        status = ul_file_commit(&weights, &compile->diag);
    if (status == UL_OK)
        return ul_file_commit(&program, &compile->diag);
    ul_file_abandon(&program);
    return status;
}

/* Adds up the sizes of the folder's files. A program is not much larger than its source. */
static uint64_t count_bytes(struct ul_arena *arena, const char *directory)
{
    enum { LEAST = 1 << 16 };
    uint64_t bytes = LEAST;
    DIR *folder = opendir(directory);
    if (folder == NULL)
        return bytes;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        struct stat info;
        if (stat(ul_arena_printf(arena, "%s/%s", directory, entry->d_name), &info) == 0 &&
            S_ISREG(info.st_mode))
            bytes += (uint64_t)info.st_size;
    }
    closedir(folder);
    return bytes;
}

/* Makes the goal in the folder, and copies the result to `output`. */
static enum ul_status make(struct ul_compile *compile, const char *directory, const char *goal,
                           const char *variable, const char *output)
{
    const char *const argv[] = {"make", "-s", "-j2", "-C", directory, goal, variable, NULL};
    const struct ul_target_compiler *compiler = ul_compile_compiler(compile);
    UL_TRY(ul_compile_require_tools(compile));
    ul_compile_progress(
        compile, ul_arena_printf(&compile->keep, "compiling the kernels with %s", compiler->name));
    int code = ul_process_run(argv, NULL);
    ul_compile_progress(compile, NULL);
    if (code != 0)
        UL_TRY(ul_process_check(&compile->keep, "make", code,
                                ul_arena_printf(&compile->keep, "%s/%s", directory, goal),
                                count_bytes(&compile->keep, directory), &compile->diag));
    if (code != 0)
        return ul_diag_set(&compile->diag, UL_COMPILER,
                           "%s failed (its messages are above); --emit DIR keeps the source, --%s "
                           "and --cflags choose another compiler",
                           compiler->toolkit != NULL ? ul_compile_command(compile) : compiler->name,
                           compiler->option);
    UL_TRY(move_results(compile, directory, goal, output));
    struct stat info;
    if (stat(output, &info) == 0 && S_ISREG(info.st_mode))
        chmod(output, info.st_mode | ((info.st_mode & 0444) >> 2));
    return UL_OK;
}

enum ul_status ul_compile_make(struct ul_compile *compile, const char *directory,
                               const char *output)
{
    return make(compile, directory, "program", runtime_library(compile), output);
}

/* The name of the library for programs that are linked with it: its file's, unless make would take
 * that for -lNAME. */
static const char *library_name(struct ul_compile *compile, const char *output)
{
    const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-";
    const char *prefix = compile->options.prefix != NULL ? compile->options.prefix : "model";
    const char *name = ul_file_name(output);
    bool is_plain = name[strspn(name, letters)] == '\0' && strncmp(name, "lib", 3) == 0 &&
                    strstr(name, ".so") != NULL;
    return is_plain ? name : ul_arena_printf(&compile->keep, "lib%s.so", prefix);
}

enum ul_status ul_compile_make_library(struct ul_compile *compile, const char *directory,
                                       const char *output)
{
    const char *name = library_name(compile, output);
    return make(compile, directory, name, ul_arena_printf(&compile->keep, "SONAME=%s", name),
                output);
}
