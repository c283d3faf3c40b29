/* ullage check: the independent checker on any plan.json, also an edited one. The graph is built
 * again from the options that the plan names. */
#include "cli/cli.h"

static enum ul_status check(struct ul_cli_job *job)
{
    struct ul_compile *compile = &job->compile;
    if (job->files.count != 2)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "give a model and a plan: ullage check MODEL.onnx PLAN.json");
    compile->options.plan = job->files.items[1];
    UL_TRY(ul_compile_build(compile, job->files.items[0]));
    UL_TRY(ul_compile_plan(compile));
    if (ul_compile_is_other_model(compile))
        return ul_compile_report_other_model(compile);
    printf("ok: %u steps, %u live ranges, %llu bytes\n", compile->plan.position_count,
           compile->plan.range_count, (unsigned long long)compile->plan.reserved_bytes[0]);
    return UL_OK;
}

const struct ul_cli_command ul_command_check = {
    .name = "check",
    .arguments = "MODEL.onnx PLAN.json [--const INPUT=FILE]",
    .summary = "Checks a plan independently of the planner that made it.",
    .group = "models",
    .bit = UL_IN_CHECK,
    .run = check};
