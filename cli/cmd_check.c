/* ullage check: the independent checker on any plan.json, also an edited one. The graph is built
 * again from the options that the plan names. */
#include "cli/cli.h"

static enum ul_status check(struct ul_cli_job *job)
{
    const struct ul_cli_list *files = &job->options.files;
    if (files->count != 2)
        return ul_diag_set(&job->diag, UL_USAGE,
                           "give a model and a plan: ullage check MODEL.onnx PLAN.json");
    job->options.plan = files->items[1];
    UL_TRY(ul_cli_build(job, files->items[0]));
    UL_TRY(ul_cli_plan(job));
    if (ul_cli_is_other_model(job))
        return ul_cli_report_other_model(job);
    printf("ok: %u steps, %u live ranges, %llu bytes\n", job->plan.position_count,
           job->plan.range_count, (unsigned long long)job->plan.reserved_bytes[0]);
    return UL_OK;
}

static const enum ul_cli_option_id options[] = {UL_CLI_CONST};

const struct ul_cli_command ul_command_check = {
    .name = "check",
    .arguments = "MODEL.onnx PLAN.json [--const INPUT=FILE]",
    .summary = "Checks a plan independently of the planner that made it.",
    .run = check,
    .options = options,
    .option_count = sizeof options / sizeof *options};
