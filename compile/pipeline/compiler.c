/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the compiler that makes a program from the source: the target's row names it, and this
 * machine may name another.
 *
 * Some targets find their libraries when a program starts. What these ask of the compiler's toolkit
 * is here too: the workspace of calls, and whether the library that may accompany the toolkit is
 * called. Planning and emitting need nothing of the toolkit. The target's row names the files to
 * look for, and plan.json records what was found. */
#define _XOPEN_SOURCE 700
#include "compile/compile_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct ul_target_compiler *ul_compile_compiler(const struct ul_compile *compile)
{
    const struct ul_target *target = compile->program != NULL
                                         ? compile->program->options.target
                                         : ul_target_find(compile->options.target);
    UL_ASSERT(target != NULL && target->compiler != NULL);
    return target->compiler;
}

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

/* A relative path would mean something else in the folder where make runs. */
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

/* The command from the option or the environment, or NULL. */
static const char *named_command(struct ul_compile *compile,
                                 const struct ul_target_compiler *compiler)
{
    const struct ul_options *options = &compile->options.base;
    const struct ul_option *row = ul_option_find(options->table, compiler->option);
    UL_ASSERT(row != NULL && row->kind == UL_OPTION_TEXT);
    if (ul_option_is_set(options, row))
        return ul_option_value(options, row, 0);
    const char *environment = getenv(compiler->variable);
    return environment != NULL && environment[0] != '\0' ? environment : NULL;
}

const char *ul_compile_command(struct ul_compile *compile)
{
    const struct ul_target_compiler *compiler = ul_compile_compiler(compile);
    const char *named = named_command(compile, compiler);
    if (named != NULL)
        return absolute(&compile->keep, named);
    bool is_elsewhere = compiler->fallback != NULL &&
                        program_path(&compile->keep, compiler->command) == NULL &&
                        access(compiler->fallback, X_OK) == 0;
    return is_elsewhere ? compiler->fallback : compiler->command;
}

/* The program that the command runs, or NULL. */
static const char *command_path(struct ul_compile *compile)
{
    return program_path(&compile->keep, ul_compile_command(compile));
}

bool ul_compile_has_compiler(struct ul_compile *compile)
{
    return ul_compile_compiler(compile)->toolkit == NULL || command_path(compile) != NULL;
}

enum ul_status ul_compile_require_tools(struct ul_compile *compile)
{
    const struct ul_target_compiler *compiler = ul_compile_compiler(compile);
    if (!ul_compile_has_compiler(compile))
        return ul_diag_set(&compile->diag, UL_COMPILER,
                           "target %s needs the compiler of %s, and there is no %s here; --%s or "
                           "$%s says where it is, --emit DIR needs none",
                           compile->program->options.target->traits.name, compiler->toolkit,
                           ul_compile_command(compile), compiler->option, compiler->variable);
    if (command_path(compile) == NULL)
        return ul_diag_set(&compile->diag, UL_COMPILER,
                           "%s, %s, is not here: install one (Debian: apt install gcc libc6-dev "
                           "make), or name it by --%s or $%s; --emit DIR needs none",
                           compiler->name, ul_compile_command(compile), compiler->option,
                           compiler->variable);
    if (program_path(&compile->keep, "make") == NULL)
        return ul_diag_set(&compile->diag, UL_COMPILER,
                           "there is no make here, which %s is called by: install it (Debian: apt "
                           "install make); --emit DIR needs none",
                           compiler->name);
    return UL_OK;
}

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
                        const struct ul_target_companion *companion)
{
    static const char *const headers[] = {"include", "include/x86_64-linux-gnu",
                                          "include/aarch64-linux-gnu", NULL};
    static const char *const libraries[] = {"lib64", "lib", "lib/x86_64-linux-gnu",
                                            "lib/aarch64-linux-gnu", NULL};
    if (!has_file(arena, root, headers, companion->header))
        return false;
    for (uint32_t i = 0; companion->libraries[i] != NULL; i++) {
        if (has_file(arena, root, libraries, companion->libraries[i]))
            return true;
    }
    return false;
}

/* Looks in the compiler's toolkit, and where packages of the system go. A compiler with headers in
 * its own folder links what they declare by itself. */
static bool finds_library(struct ul_compile *compile)
{
    const struct ul_target_companion *companion = ul_compile_compiler(compile)->companion;
    const char *command = command_path(compile);
    char *real = command != NULL && companion != NULL ? realpath(command, NULL) : NULL;
    if (real == NULL)
        return false;
    char *slash = strrchr(real, '/');
    *slash = '\0';
    const char *own = ul_arena_printf(&compile->keep, "%s/include/%s", real, companion->header);
    const char *root = ul_arena_printf(&compile->keep, "%s/..", real);
    bool found = has_library(&compile->keep, root, companion) ||
                 has_library(&compile->keep, "/usr", companion) || access(own, R_OK) == 0;
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
