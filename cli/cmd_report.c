/* SPDX-License-Identifier: Apache-2.0 */
/* ullage report: draws a saved plan again. */
#include "cli/cli.h"

static enum ul_status report(struct ul_cli_job *job)
{
    struct ul_compile *compile = &job->compile;
    struct ul_saved saved;
    if (job->files.count != 1)
        return ul_diag_set(&compile->diag, UL_USAGE, "give one plan: ullage report PLAN.json");
    UL_TRY(ul_cli_read_saved(job, job->files.items[0], &saved));
    return ul_cli_draw(job, &saved);
}

static const struct ul_cli_example examples[] = {
    {"As a page that shows what changed",
     "ullage report plan.json --html report.html --baseline old.json"},
    {"Its values as a table", "ullage report plan.json --csv -"},
    {NULL, NULL}};

const struct ul_cli_command ul_command_report = {
    .name = "report",
    .arguments = "PLAN.json [--html FILE] [--csv FILE] [--trace FILE]",
    .summary = "Draws a plan that was saved with --json, without its model.",
    .details = "It shows what the file says. Whether the plan holds is a question for check, which "
               "has the model; check also names facts that it cannot know, such as the names of "
               "tool and model.",
    .group = "models",
    .endings = "json",
    .examples = examples,
    .bit = UL_IN_REPORT,
    .run = report};
