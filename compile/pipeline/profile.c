/* SPDX-License-Identifier: Apache-2.0 */
/* --profile NAME|FILE: the device whose times count; --device NAME|FILE: its memory counts too. A
 * plan names it and, where it came from a file, contains it, so that `check` finds the same costs
 * on any machine. */
#include "compile/compile_internal.h"

#include <string.h>

static enum ul_status read_text(struct ul_compile *compile, const char *text, size_t length)
{
    return ul_profile_read_json(&compile->keep, text, length, &compile->profile, &compile->diag);
}

static enum ul_status read_file(struct ul_compile *compile, const char *path)
{
    struct ul_file file;
    struct ul_text text;
    struct ul_nearest nearest = {.word = path};
    for (uint32_t i = 0; i < ul_profile_count(); i++)
        ul_nearest_offer(&nearest, ul_profile_at(i)->name);
    if (ul_file_map(&file, &compile->keep, path, &compile->diag) != UL_OK) {
        compile->diag = (struct ul_diag){0};
        return ul_diag_set(&compile->diag, UL_IO,
                           "--%s %s: neither a file that can be read nor a name that ullage "
                           "profile --list knows%s",
                           compile->options.device != NULL ? "device" : "profile",
                           ul_option_shown(&compile->keep, path),
                           ul_nearest_text(&compile->keep, &nearest, ""));
    }
    char *hex = ul_arena_alloc(&compile->keep, 65);
    ul_hash_hex(file.data, file.size_bytes, hex);
    enum ul_status status = read_text(compile, (const char *)file.data, (size_t)file.size_bytes);
    UL_TRY(ul_file_close(&file, path, status, &compile->diag));
    ul_text_init(&text, &compile->keep);
    ul_profile_put_json(&text, &compile->profile, true);
    compile->options.profile = compile->profile.name;
    compile->options.profile_text = text.data;
    compile->options.profile_sha256 = hex;
    return UL_OK;
}

static bool is_for_gpu(const char *target)
{
    return ul_target_find(target)->traits.finds_libraries;
}

/* A device is a profile and a budget: all of its memory, or less where that is given. */
static enum ul_status check_device(struct ul_compile *compile)
{
    struct ul_compile_options *options = &compile->options;
    const struct ul_profile *profile = &compile->profile;
    const char *name = ul_option_shown(&compile->keep, profile->name);
    bool is_gpu = profile->device.processors > 0, for_gpu = is_for_gpu(options->target);
    if (is_gpu != for_gpu)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--device %s is %s graphics processor, and target %s is %s one; give "
                           "--target %s",
                           name, is_gpu ? "a" : "no", options->target, for_gpu ? "for" : "not for",
                           is_gpu ? "cuda" : "cpu or c");
    if (profile->memory_bytes == 0)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--device %s does not say how much memory it has: add \"memory_bytes\" "
                           "to the profile, or give --profile and --budget",
                           name);
    if (options->budget_bytes == 0 || options->budget_bytes > profile->memory_bytes)
        options->budget_bytes = profile->memory_bytes;
    compile->report.facts.has_device = true;
    compile->report.facts.device =
        (struct ul_saved_device){.name = profile->name, .memory_bytes = profile->memory_bytes};
    return UL_OK;
}

/* Reads a profile that the plan contains, under its name. */
static enum ul_status read_planned(struct ul_compile *compile, const char *name)
{
    const char *text = compile->options.profile_text;
    enum ul_status status = read_text(compile, text, strlen(text));
    if (status == UL_OK && strcmp(compile->profile.name, name) != 0)
        status = ul_diag_set(&compile->diag, UL_MISMATCH, "it is called %s, not %s",
                             ul_quote(&compile->keep, compile->profile.name),
                             ul_quote(&compile->keep, name));
    if (status != UL_OK)
        ul_diag_prefix(&compile->diag, ul_arena_printf(&compile->keep, "%s: the plan's profile",
                                                       compile->options.plan));
    return status;
}

static enum ul_status read_profile(struct ul_compile *compile)
{
    struct ul_compile_options *options = &compile->options;
    const char *name = options->profile != NULL ? options->profile
                                                : ul_target_find(options->target)->traits.profile;
    if (options->profile_text != NULL)
        return read_planned(compile, name);
    const struct ul_profile *known = ul_profile_find(name);
    if (known == NULL)
        return read_file(compile, name);
    compile->profile = *known;
    options->profile = known->name;
    return UL_OK;
}

enum ul_status ul_compile_read_profile(struct ul_compile *compile)
{
    struct ul_compile_options *options = &compile->options;
    UL_ASSERT(options->target != NULL);
    if (options->device == NULL)
        return read_profile(compile);
    if (options->profile != NULL || options->plan != NULL)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--device says which device a plan is made for, and so does %s: leave "
                           "one of them out",
                           options->plan != NULL ? "--plan" : "--profile");
    options->profile = options->device;
    UL_TRY(read_profile(compile));
    return check_device(compile);
}
