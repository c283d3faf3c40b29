/* What target cuda asks of this machine: nvcc, the workspace of library calls, whether cuDNN is
 * called. To plan and to emit needs nothing of CUDA on this machine; whether cuDNN stands beside
 * the toolkit is looked up by the names of files, and plan.json says what was found. */
#define _XOPEN_SOURCE 700
#include "compile/compile_internal.h"

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

const char *ul_compile_nvcc(struct ul_compile *compile)
{
    const char *environment = getenv("NVCC");
    if (compile->options.nvcc != NULL)
        return absolute(&compile->keep, compile->options.nvcc);
    if (environment != NULL && environment[0] != '\0')
        return absolute(&compile->keep, environment);
    bool usual = program_path(&compile->keep, "nvcc") == NULL && access(USUAL_NVCC, X_OK) == 0;
    return usual ? USUAL_NVCC : "nvcc";
}

bool ul_compile_has_nvcc(struct ul_compile *compile)
{
    return program_path(&compile->keep, ul_compile_nvcc(compile)) != NULL;
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
static bool finds_cudnn(struct ul_compile *compile)
{
    const char *nvcc = program_path(&compile->keep, ul_compile_nvcc(compile));
    char *real = nvcc != NULL ? realpath(nvcc, NULL) : NULL;
    if (real == NULL)
        return false;
    char *slash = strrchr(real, '/');
    *slash = '\0';
    bool found = has_cudnn(&compile->keep, ul_arena_printf(&compile->keep, "%s/..", real)) ||
                 has_cudnn(&compile->keep, "/usr") ||
                 access(ul_arena_printf(&compile->keep, "%s/include/cudnn.h", real), R_OK) == 0;
    free(real);
    return found;
}

/* ---- options ---- */

enum ul_status ul_compile_resolve_cuda(struct ul_compile *compile,
                                       struct ul_program_options *program)
{
    struct ul_compile_options *options = &compile->options;
    const struct ul_option *workspace = ul_option_find(options->base.table, "workspace");
    bool is_auto = options->with_cudnn == UL_CUDNN_AUTO;
    if (program->weights_rom)
        return ul_diag_set(&compile->diag, UL_UNSUPPORTED,
                           "--weights rom: target %s keeps weights in the memory of its device; "
                           "use arena (in the program's file) or file (beside it)",
                           program->target->name);
    if (!ul_option_is_set(&options->base, workspace))
        options->workspace_bytes = UL_PROGRAM_WORKSPACE_BYTES;
    if (is_auto)
        options->with_cudnn = finds_cudnn(compile) ? UL_CUDNN_FOUND : UL_CUDNN_OFF;
    program->workspace_bytes = options->workspace_bytes;
    program->has_cudnn = options->with_cudnn != UL_CUDNN_OFF;
    program->needs_cudnn = options->with_cudnn == UL_CUDNN_ON;
    program->tf32 = options->tf32;
    compile->cudnn = program->needs_cudnn ? "on"
                     : program->has_cudnn ? "found"
                     : is_auto            ? "not found"
                                          : "off";
    return UL_OK;
}
