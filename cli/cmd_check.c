/* ullage check: the independent checker on any plan, also an edited one. The graph is built again
 * from the options that a plan.json names; a problem in text needs no model. */
#include "cli/cli.h"

static enum ul_status read_plan(struct ul_cli_job *job, const struct ul_problem *problem)
{
    struct ul_compile *compile = &job->compile;
    const char *path = job->files.items[1];
    struct ul_file file;
    UL_TRY(ul_file_map(&file, &compile->keep, path, &compile->diag));
    const char *text = (const char *)file.data;
    enum ul_status status = ul_plan_is_text(text, file.size_bytes)
                                ? ul_plan_parse(&compile->keep, text, file.size_bytes, problem,
                                                &compile->plan, &compile->diag)
                                : ul_report_read_plan(&compile->keep, text, (size_t)file.size_bytes,
                                                      problem, &compile->plan, &compile->diag);
    if (status == UL_OK)
        status = ul_plan_check(&compile->keep, problem, &compile->plan, &compile->diag);
    ul_file_unmap(&file);
    if (status != UL_OK)
        ul_diag_prefix(&compile->diag, path);
    return status;
}

static enum ul_status check_model(struct ul_cli_job *job)
{
    struct ul_compile *compile = &job->compile;
    compile->options.plan = job->files.items[1];
    UL_TRY(ul_compile_build(compile, job->files.items[0]));
    UL_TRY(ul_compile_plan(compile));
    return ul_compile_is_other_model(compile) ? ul_compile_report_other_model(compile) : UL_OK;
}

static enum ul_status check(struct ul_cli_job *job)
{
    struct ul_compile *compile = &job->compile;
    struct ul_problem *problem;
    if (job->files.count != 2)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "give a model and a plan: ullage check MODEL.onnx PLAN.json");
    UL_TRY(ul_cli_read_problem(job, job->files.items[0], &problem));
    UL_TRY(problem != NULL ? read_plan(job, problem) : check_model(job));
    printf("ok: %u step%s, %u live range%s, %llu bytes\n", compile->plan.position_count,
           ul_plural(compile->plan.position_count), compile->plan.range_count,
           ul_plural(compile->plan.range_count),
           (unsigned long long)compile->plan.reserved_bytes[0]);
    return UL_OK;
}

const struct ul_cli_command ul_command_check = {
    .name = "check",
    .arguments = "MODEL.onnx|PROBLEM PLAN [--const INPUT=FILE]",
    .summary = "Checks a plan independently of the planner that made it.",
    .group = "models",
    .bit = UL_IN_CHECK,
    .run = check};
