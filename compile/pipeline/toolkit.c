/* SPDX-License-Identifier: Apache-2.0 */
/* For targets whose libraries are found when a program starts: what they ask of this machine, which
 * is the workspace of calls, and whether the library that may accompany the toolkit is called.
 * Planning and emitting need nothing of the toolkit here. The target's row names the files to look
 * for, and plan.json records what was found. */
#define _XOPEN_SOURCE 700
#include "compile/compile_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the library that accompanies the toolkit ---- */

static bool has_file(struct ul_arena *arena, const char *root, const char *const *folders,
                     const char *name)
{
    for (uint32_t i = 0; folders[i] != NULL; i++) {
        if (access(ul_arena_printf(arena, "%s/%s/%s", root, folders[i], name), R_OK) == 0)
            return true;
    }
    return false;
}

static bool has_library(struct ul_arena *arena, const char *root,
                        const struct ul_target_beside *beside)
{
    static const char *const headers[] = {"include", "include/x86_64-linux-gnu",
                                          "include/aarch64-linux-gnu", NULL};
    static const char *const libraries[] = {"lib64", "lib", "lib/x86_64-linux-gnu",
                                            "lib/aarch64-linux-gnu", NULL};
    if (!has_file(arena, root, headers, beside->header))
        return false;
    for (uint32_t i = 0; beside->libraries[i] != NULL; i++) {
        if (has_file(arena, root, libraries, beside->libraries[i]))
            return true;
    }
    return false;
}

/* Looks in the compiler's toolkit, and where packages of the system go. A compiler with headers in
 * its own folder links what they declare by itself. */
static bool finds_library(struct ul_compile *compile)
{
    const struct ul_target_beside *beside = ul_compile_compiler(compile)->beside;
    const char *command = ul_compile_command_path(compile);
    char *real = command != NULL && beside != NULL ? realpath(command, NULL) : NULL;
    if (real == NULL)
        return false;
    char *slash = strrchr(real, '/');
    *slash = '\0';
    const char *own = ul_arena_printf(&compile->keep, "%s/include/%s", real, beside->header);
    const char *root = ul_arena_printf(&compile->keep, "%s/..", real);
    bool found = has_library(&compile->keep, root, beside) ||
                 has_library(&compile->keep, "/usr", beside) || access(own, R_OK) == 0;
    free(real);
    return found;
}

/* ---- options ---- */

/* A workspace that the user gives is used, even if the plan gets larger. */
static void resolve_workspace(struct ul_compile *compile)
{
    struct ul_compile_options *options = &compile->options;
    const struct ul_option_table *table = options->base.table;
    bool is_new = ul_profile_device(&compile->profile).capability >= UL_PROGRAM_NEW_CAPABILITY;
    bool is_said = ul_option_is_set(&options->base, ul_option_find(table, "workspace"));
    if (!is_said)
        options->workspace_bytes = UL_PROGRAM_WORKSPACE_BYTES;
    if (!ul_option_is_set(&options->base, ul_option_find(table, "workspace-free")))
        options->workspace_free_bytes =
            !is_said && is_new ? UL_PROGRAM_NEW_WORKSPACE_BYTES : options->workspace_bytes;
}

enum ul_status ul_compile_resolve_toolkit(struct ul_compile *compile,
                                          struct ul_program_options *program)
{
    struct ul_compile_options *options = &compile->options;
    bool is_auto = options->with_cudnn == UL_CUDNN_AUTO;
    resolve_workspace(compile);
    if (is_auto)
        options->with_cudnn = finds_library(compile) ? UL_CUDNN_FOUND : UL_CUDNN_OFF;
    program->workspace_bytes = options->workspace_bytes;
    program->workspace_free_bytes = options->workspace_free_bytes;
    program->has_cudnn = options->with_cudnn != UL_CUDNN_OFF;
    program->needs_cudnn = options->with_cudnn == UL_CUDNN_ON;
    program->tf32 = options->tf32;
    compile->cudnn = program->needs_cudnn ? "on"
                     : program->has_cudnn ? "found"
                     : is_auto            ? "not found"
                                          : "off";
    return UL_OK;
}
