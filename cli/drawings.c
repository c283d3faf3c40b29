/* SPDX-License-Identifier: Apache-2.0 */
/* The drawings of a plan.json, for `report` and `plan`. */
#include "cli/cli.h"

enum ul_status ul_cli_read_saved(struct ul_cli_job *job, const char *path, struct ul_saved *saved)
{
    struct ul_compile *compile = &job->compile;
    struct ul_file file;
    UL_TRY(ul_file_map(&file, &compile->keep, path, &compile->diag));
    enum ul_status status = ul_saved_read(&compile->keep, (const char *)file.data,
                                          (size_t)file.size_bytes, saved, &compile->diag);
    return ul_file_close(&file, path, status, &compile->diag);
}

static enum ul_status draw_html(struct ul_cli_job *job, const struct ul_saved *saved)
{
    const struct ul_cli_options *options = &job->options;
    struct ul_saved baseline;
    struct ul_text text;
    if (options->html == NULL && options->baseline != NULL)
        return ul_diag_set(&job->compile.diag, UL_USAGE,
                           "--baseline is for the report of --html: add --html FILE, or compare by "
                           "ullage diff");
    if (options->html == NULL)
        return UL_OK;
    if (options->baseline != NULL)
        UL_TRY(ul_cli_read_saved(job, options->baseline, &baseline));
    ul_text_init(&text, &job->compile.keep);
    ul_html_put(&text, saved, options->baseline != NULL ? &baseline : NULL);
    return ul_file_write(options->html, text.data, text.length, &job->compile.diag);
}

enum ul_status ul_cli_draw(struct ul_cli_job *job, const struct ul_saved *saved)
{
    const struct ul_cli_options *options = &job->options;
    const struct {
        const char *path;
        void (*put)(struct ul_text *text, const struct ul_saved *saved);
    } forms[] = {{options->csv, ul_csv_put_values},
                 {options->csv_steps, ul_csv_put_steps},
                 {options->trace, ul_trace_put}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct ul_text text;
        if (forms[i].path == NULL)
            continue;
        ul_text_init(&text, &job->compile.keep);
        forms[i].put(&text, saved);
        UL_TRY(ul_file_write(forms[i].path, text.data, text.length, &job->compile.diag));
    }
    UL_TRY(draw_html(job, saved));
    if (ul_cli_stdout_is_taken(job))
        return UL_OK;
    struct ul_summary_style style = ul_cli_style();
    struct ul_text text;
    ul_text_init(&text, &job->compile.keep);
    ul_summary_put(&text, saved, &style);
    fwrite(text.data, 1, text.length, stdout); /* already escaped; it contains colours */
    fflush(stdout);
    return UL_OK;
}
