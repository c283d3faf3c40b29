/* What a target whose libraries are found at a program's start asks of this machine: the workspace
 * of calls, whether cuDNN is called. To plan and to emit needs nothing of CUDA here; whether cuDNN
 * stands beside the toolkit is looked up by the names of files, and plan.json says what was found.
 */
#define _XOPEN_SOURCE 700
#include "compile/compile_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* In the toolkit that the compiler is of, or where the system keeps what it was given as packages.
 * A compiler that has headers in its own folder links what they declare by itself. */
static bool finds_cudnn(struct ul_compile *compile)
{
    const char *command = ul_compile_command_path(compile);
    char *real = command != NULL ? realpath(command, NULL) : NULL;
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
