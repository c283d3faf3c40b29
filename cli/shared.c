/* SPDX-License-Identifier: Apache-2.0 */
/* --shared: several models in one arena, for `plan` and `compile`. */
#include "cli/cli.h"

#include <string.h>

/* Results that are of one plan. */
static enum ul_status refuse_results(struct ul_cli_job *job)
{
    static const char *const taken[] = {"shared", "json", "emit"};
    for (uint32_t i = 0; i < ul_cli_option_table.count; i++) {
        const struct ul_option *row = &ul_cli_option_table.rows[i];
        bool is_taken = !ul_option_is_given(&job->options.base, row);
        for (size_t k = 0; k < sizeof taken / sizeof *taken; k++)
            is_taken = is_taken || strcmp(row->name, taken[k]) == 0;
        if (!is_taken && strcmp(row->name, "out") == 0)
            return ul_diag_set(
                &job->compile.diag, UL_USAGE,
                "-o makes a program of one model; --shared --emit DIR makes a library "
                "of several, which your program calls");
        if (!is_taken)
            return ul_diag_set(
                &job->compile.diag, UL_USAGE,
                "--%s is of one plan: leave out that, or --shared (plan.json of each "
                "model is in the folder of compile --shared --emit)",
                row->name);
    }
    return UL_OK;
}

enum ul_status ul_cli_require_shared(struct ul_cli_job *job, const char *command)
{
    if (job->files.count < 2)
        return UL_OK;
    return ul_diag_set(&job->compile.diag, UL_USAGE,
                       "ullage %s takes one model; --shared takes several, which run one after "
                       "another in one arena",
                       command);
}

static enum ul_status plan_suite(struct ul_cli_job *job, struct ul_suite *suite, bool prints)
{
    struct ul_text text;
    UL_TRY(refuse_results(job));
    UL_TRY(ul_suite_build(suite, &job->compile, &job->files));
    UL_TRY(ul_suite_plan(suite));
    if (job->options.json != NULL)
        UL_TRY(ul_file_write(job->options.json, suite->json.data, suite->json.length,
                             &job->compile.diag));
    if (prints && !ul_cli_stdout_is_taken(job)) {
        ul_text_init(&text, &job->compile.keep);
        ul_report_put_suite_text(&text, &suite->report, ul_cli_line_columns());
        ul_cli_print(&text);
    }
    return ul_suite_require_fit(suite);
}

enum ul_status ul_cli_plan_shared(struct ul_cli_job *job)
{
    struct ul_suite suite = {.count = 0};
    enum ul_status status = plan_suite(job, &suite, true);
    ul_suite_done(&suite);
    return status;
}

static enum ul_status compile_suite(struct ul_cli_job *job, struct ul_suite *suite)
{
    struct ul_arena *keep = &job->compile.keep;
    if (job->options.emit == NULL && job->options.output == NULL)
        return ul_diag_set(&job->compile.diag, UL_USAGE,
                           "--shared: say where the library goes: --emit DIR");
    UL_TRY(plan_suite(job, suite, false));
    UL_TRY(ul_suite_emit(suite, job->options.emit));
    uint64_t reserved = ul_report_suite_reserved(&suite->report);
    ul_cli_say(stderr, "%s: %u models share %s\n", job->options.emit, suite->count,
               ul_size_exact(keep, reserved));
    return UL_OK;
}

enum ul_status ul_cli_compile_shared(struct ul_cli_job *job)
{
    struct ul_suite suite = {.count = 0};
    enum ul_status status = compile_suite(job, &suite);
    ul_suite_done(&suite);
    return status;
}
