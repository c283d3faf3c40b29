/* --profile NAME|FILE: the device whose time counts. A plan names it and, where it came from a
 * file, holds it, so that `check` finds the same costs on any machine. */
#include "cli/cli.h"
#include "codegen/target.h"

#include <string.h>

static enum ul_status read_text(struct ul_cli_job *job, const char *text, size_t length)
{
    return ul_profile_read_json(&job->keep, text, length, &job->profile, &job->diag);
}

static enum ul_status read_file(struct ul_cli_job *job, const char *path)
{
    struct ul_file file;
    struct ul_text text;
    if (ul_file_map(&file, &job->keep, path, &job->diag) != UL_OK) {
        job->diag = (struct ul_diag){0};
        return ul_diag_set(&job->diag, UL_IO,
                           "--profile %s: neither a file that can be read nor a name that ullage "
                           "profile --list knows",
                           path);
    }
    char *hex = ul_arena_alloc(&job->keep, 65);
    ul_hash_hex(file.data, file.size_bytes, hex);
    enum ul_status status = read_text(job, (const char *)file.data, (size_t)file.size_bytes);
    ul_file_unmap(&file);
    if (status != UL_OK) {
        ul_diag_prefix(&job->diag, path);
        return status;
    }
    ul_text_init(&text, &job->keep);
    ul_profile_put_json(&text, &job->profile, true);
    job->options.profile_text = text.data;
    job->options.profile_sha256 = hex;
    return UL_OK;
}

enum ul_status ul_cli_read_profile(struct ul_cli_job *job)
{
    struct ul_cli_options *options = &job->options;
    const char *name =
        options->profile != NULL ? options->profile : ul_target_find(options->target)->profile;
    if (options->profile_text != NULL) {
        enum ul_status status =
            read_text(job, options->profile_text, strlen(options->profile_text));
        if (status != UL_OK)
            ul_diag_prefix(&job->diag, "the plan's profile");
        return status;
    }
    const struct ul_profile *known = ul_profile_find(name);
    if (known == NULL)
        return read_file(job, name);
    job->profile = *known;
    return UL_OK;
}

void ul_cli_describe_profile(struct ul_cli_job *job, struct ul_report_option *list, uint32_t *count)
{
    const struct ul_cli_options *options = &job->options;
    list[(*count)++] = (struct ul_report_option){.name = "profile", .value = job->profile.name};
    if (options->profile_text == NULL)
        return;
    if (options->profile_sha256 != NULL)
        list[(*count)++] =
            (struct ul_report_option){.name = "profile-sha256", .value = options->profile_sha256};
    list[(*count)++] =
        (struct ul_report_option){.name = "profile-text", .value = options->profile_text};
}
