/* ullage check: the independent checker on any plan.json, also an edited one. The graph is built
 * again from the options that the plan names. */
#include "cli/cli.h"

#include <string.h>

static enum ul_status check(struct ul_cli_job *job)
{
    const struct ul_cli_list *files = &job->options.files;
    if (files->count != 2)
        return ul_diag_set(&job->diag, UL_USAGE,
                           "give a model and a plan: ullage check MODEL.onnx PLAN.json");
    job->options.plan = files->items[1];
    enum ul_status status = ul_cli_build(job, files->items[0]);
    /* Another model may fail in any way with this plan's options; that it is another says more. */
    bool is_read = job->loaded && job->model.sha256[0] != '\0';
    if (is_read && strcmp(job->plan_header.model_sha256, job->model.sha256) != 0) {
        job->diag = (struct ul_diag){0};
        return ul_diag_set(&job->diag, UL_MISMATCH, "%s: was made for another model (SHA-256 %s)",
                           files->items[1], ul_quote(&job->keep, job->plan_header.model_sha256));
    }
    UL_TRY(status);
    UL_TRY(ul_cli_plan(job));
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
