/* SPDX-License-Identifier: Apache-2.0 */
/* ullage diff: compares two plans; its exit code is a gate for continuous integration. */
#include "cli/cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Reads "2%" or "2" as a fraction. */
static enum ul_status read_limit(struct ul_cli_job *job, double *limit)
{
    const char *text = job->options.fail_above;
    char *end = NULL;
    double percent = strtod(text, &end);
    end += *end == '%';
    if (end == text || *end != '\0' || !isfinite(percent) || percent < 0)
        return ul_diag_set(&job->compile.diag, UL_USAGE,
                           "--fail-above %s: give a percentage of the old plan's bytes, like 2%%",
                           ul_option_shown(&job->compile.keep, text));
    *limit = percent / 100;
    return UL_OK;
}

/* The value that grew most. */
static const struct ul_diff_value *find_cause(const struct ul_diff *diff)
{
    for (uint32_t i = 0; i < diff->value_count; i++)
        if (diff->values[i].new_bytes > diff->values[i].old_bytes)
            return &diff->values[i];
    return NULL;
}

static enum ul_status judge(struct ul_cli_job *job, const struct ul_diff *diff, double limit)
{
    struct ul_arena *keep = &job->compile.keep;
    const struct ul_diff_value *cause = find_cause(diff);
    const char *why = "";
    if (diff->growth <= limit)
        return UL_OK;
    if (cause != NULL)
        why = ul_arena_printf(
            keep, "; most by %s, %s%s%s, %s more", ul_quote(keep, cause->name),
            cause->op == NULL ? "which is given" : "made by ",
            cause->op == NULL ? "" : ul_quote(keep, cause->op),
            cause->op == NULL ? "" : ul_arena_printf(keep, " %s", ul_quote(keep, cause->node)),
            ul_size_exact(keep, cause->new_bytes - cause->old_bytes));
    return ul_diag_set(&job->compile.diag, UL_MISMATCH,
                       "the plan grew by %.2f %%, --fail-above allows %s%s", 100 * diff->growth,
                       ul_option_shown(keep, job->options.fail_above), why);
}

static enum ul_status compare(struct ul_cli_job *job)
{
    struct ul_compile *compile = &job->compile;
    struct ul_saved old, new;
    struct ul_diff diff;
    struct ul_text text;
    double limit = INFINITY;
    if (job->files.count != 2)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "give two plans: ullage diff OLD.json NEW.json");
    if (job->options.fail_above != NULL)
        UL_TRY(read_limit(job, &limit));
    UL_TRY(ul_cli_read_saved(job, job->files.items[0], &old));
    UL_TRY(ul_cli_read_saved(job, job->files.items[1], &new));
    ul_diff_make(&compile->keep, &old, &new, &diff);
    if (job->options.json != NULL) {
        ul_text_init(&text, &compile->keep);
        ul_diff_put_json(&text, &diff);
        UL_TRY(ul_file_write(job->options.json, text.data, text.length, &compile->diag));
    }
    if (!ul_cli_stdout_is_taken(job)) {
        ul_text_init(&text, &compile->keep);
        ul_diff_put_text(&text, &diff, ul_cli_line_columns());
        ul_cli_print(&text);
    }
    return judge(job, &diff, limit);
}

static const struct ul_cli_example examples[] = {
    {"What grew", "ullage diff old.json plan.json"},
    {"A gate for continuous integration", "ullage diff old.json plan.json --fail-above 2%"},
    {NULL, NULL}};

const struct ul_cli_command ul_command_diff = {
    .name = "diff",
    .arguments = "OLD.json NEW.json [--fail-above 2%]",
    .summary = "Says what grew from one plan to another, by class and by value.",
    .details = "The plans are files that plan and compile write with --json. With --fail-above "
               "PERCENT the exit code is 6 if the new plan reserves over PERCENT more than the old "
               "one, and the message names the value and the operator that grew most: a gate for "
               "continuous integration.",
    .group = "models",
    .endings = "json",
    .examples = examples,
    .bit = UL_IN_DIFF,
    .run = compare};
