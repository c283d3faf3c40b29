/* What target cuda asks of the command line: nvcc, the workspace of library calls, whether cuDNN is
 * called. To plan and to emit needs nothing of CUDA on this machine; whether cuDNN stands beside
 * the toolkit is looked up by the names of files, and plan.json says what was found. */
#define _XOPEN_SOURCE 700
#include "cli/cli.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- nvcc ---- */

#define USUAL_NVCC "/usr/local/cuda/bin/nvcc"

/* The path of the program that a command's first word names, or NULL. */
static const char *program_path(struct ul_arena *arena, const char *command)
{
    const char *word = command + strspn(command, " \t");
    const char *name = ul_arena_printf(arena, "%.*s", (int)strcspn(word, " \t"), word);
    if (strchr(name, '/') != NULL)
        return access(name, X_OK) == 0 ? name : NULL;
    const char *folders = getenv("PATH");
    for (const char *at = folders; at != NULL && name[0] != '\0'; at = strchr(at, ':')) {
        at += *at == ':';
        size_t length = strcspn(at, ":");
        const char *path = ul_arena_printf(arena, "%.*s/%s", length == 0 ? 1 : (int)length,
                                           length == 0 ? "." : at, name);
        if (access(path, X_OK) == 0)
            return path;
    }
    return NULL;
}

/* A path from here means something else in the folder that make runs in. */
static const char *absolute(struct ul_arena *arena, const char *command)
{
    const char *word = command + strspn(command, " \t");
    size_t length = strcspn(word, " \t");
    const char *name = ul_arena_printf(arena, "%.*s", (int)length, word);
    char *real = name[0] != '/' && strchr(name, '/') != NULL ? realpath(name, NULL) : NULL;
    if (real == NULL)
        return command;
    const char *whole = ul_arena_printf(arena, "%s%s", real, word + length);
    free(real);
    return whole;
}

const char *ul_cli_nvcc(struct ul_cli_job *job)
{
    const char *environment = getenv("NVCC");
    if (job->options.nvcc != NULL)
        return absolute(&job->keep, job->options.nvcc);
    if (environment != NULL && environment[0] != '\0')
        return absolute(&job->keep, environment);
    bool usual = program_path(&job->keep, "nvcc") == NULL && access(USUAL_NVCC, X_OK) == 0;
    return usual ? USUAL_NVCC : "nvcc";
}

bool ul_cli_has_nvcc(struct ul_cli_job *job)
{
    return program_path(&job->keep, ul_cli_nvcc(job)) != NULL;
}

/* ---- cuDNN ---- */

static bool has_file(struct ul_arena *arena, const char *root, const char *const *folders,
                     uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++) {
        if (access(ul_arena_printf(arena, "%s/%s/%s", root, folders[i], name), R_OK) == 0)
            return true;
    }
    return false;
}

static bool has_cudnn(struct ul_arena *arena, const char *root)
{
    static const char *const headers[] = {"include", "include/x86_64-linux-gnu",
                                          "include/aarch64-linux-gnu"};
    static const char *const libraries[] = {"lib64", "lib", "lib/x86_64-linux-gnu",
                                            "lib/aarch64-linux-gnu"};
    return has_file(arena, root, headers, sizeof headers / sizeof *headers, "cudnn.h") &&
           (has_file(arena, root, libraries, sizeof libraries / sizeof *libraries, "libcudnn.so") ||
            has_file(arena, root, libraries, sizeof libraries / sizeof *libraries,
                     "libcudnn.so.9"));
}

/* In the toolkit that nvcc is of, or where the system keeps what it was given as packages. What has
 * headers in its own folder links what they declare by itself: tests/cuda_emulation/nvcc. */
static bool finds_cudnn(struct ul_cli_job *job)
{
    const char *nvcc = program_path(&job->keep, ul_cli_nvcc(job));
    char *real = nvcc != NULL ? realpath(nvcc, NULL) : NULL;
    if (real == NULL)
        return false;
    char *slash = strrchr(real, '/');
    *slash = '\0';
    bool found = has_cudnn(&job->keep, ul_arena_printf(&job->keep, "%s/..", real)) ||
                 has_cudnn(&job->keep, "/usr") ||
                 access(ul_arena_printf(&job->keep, "%s/include/cudnn.h", real), R_OK) == 0;
    free(real);
    return found;
}

/* ---- options ---- */

enum ul_status ul_cli_apply_cuda(struct ul_cli_job *job, struct ul_program_options *program)
{
    const struct ul_cli_options *given = &job->options;
    const char *cudnn = given->with_cudnn != NULL ? given->with_cudnn : "auto";
    bool on = strcmp(cudnn, "on") == 0;
    bool found = strcmp(cudnn, "found") == 0; /* by the plan that says so */
    bool automatic = strcmp(cudnn, "auto") == 0;
    program->workspace_bytes = UL_PROGRAM_WORKSPACE_BYTES;
    if (given->workspace != NULL && !ul_size_parse(given->workspace, &program->workspace_bytes))
        return ul_diag_set(&job->diag, UL_USAGE,
                           "--workspace %s: expected a size: 64MiB, 64M, 65536, 0",
                           given->workspace);
    if (!on && !found && !automatic && strcmp(cudnn, "off") != 0)
        return ul_diag_set(&job->diag, UL_USAGE, "--with-cudnn %s: expected auto, on or off",
                           cudnn);
    if (!program->target->is_device)
        return UL_OK;
    if (program->weights_rom)
        return ul_diag_set(&job->diag, UL_UNSUPPORTED,
                           "--weights rom: target %s keeps weights in the memory of its device; "
                           "use arena (in the program's file) or file (beside it)",
                           program->target->name);
    program->has_cudnn = on || found || (automatic && finds_cudnn(job));
    program->needs_cudnn = on;
    program->tf32 = given->tf32;
    return UL_OK;
}

const char *ul_cli_cudnn(const struct ul_cli_job *job)
{
    const struct ul_program_options *program = &job->program->options;
    const char *given = job->options.with_cudnn;
    if (!program->target->is_device)
        return NULL;
    if (program->has_cudnn)
        return program->needs_cudnn ? "on" : "found";
    return given == NULL || strcmp(given, "auto") == 0 ? "not found" : "off";
}

void ul_cli_describe_cuda(struct ul_cli_job *job, struct ul_report_option *list, uint32_t *count)
{
    const struct ul_program_options *program = &job->program->options;
    if (!program->target->is_device)
        return;
    list[(*count)++] = (struct ul_report_option){
        .name = "workspace",
        .value = ul_arena_printf(&job->keep, "%" PRIu64, program->workspace_bytes)};
    list[(*count)++] = (struct ul_report_option){.name = "with-cudnn",
                                                 .value = program->needs_cudnn ? "on"
                                                          : program->has_cudnn ? "found"
                                                                               : "off"};
    if (program->tf32)
        list[(*count)++] = (struct ul_report_option){.name = "tf32", .value = ""};
}
