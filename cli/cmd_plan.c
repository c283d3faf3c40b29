/* ullage plan: the plan without code, as a summary or as plan.json. */
#include "cli/cli.h"

#include <string.h>

static enum ul_status plan(struct ul_cli_job *job)
{
    const struct ul_cli_options *options = &job->options;
    if (options->files.count != 1)
        return ul_diag_set(&job->diag, UL_USAGE, "give one model: ullage plan MODEL.onnx");
    if (options->sweep && options->planning.budget_bytes != 0)
        return ul_diag_set(&job->diag, UL_USAGE,
                           "--sweep shows all budgets down to the least that is met: leave "
                           "--budget out, or leave --sweep out for the plan of one budget");
    UL_TRY(ul_cli_build(job, options->files.items[0]));
    if (job->program == NULL)
        return UL_OK;
    if (options->csv != NULL && !options->sweep)
        return ul_diag_set(&job->diag, UL_USAGE, "--csv writes the table of --sweep: give both");
    if (options->csv != NULL && options->json != NULL && strcmp(options->csv, options->json) == 0)
        return ul_diag_set(&job->diag, UL_USAGE, "--csv %s --json %s: not both to one place",
                           options->csv, options->json);
    UL_TRY(ul_cli_plan(job));
    if (options->sweep)
        return ul_cli_sweep(job);
    bool on_stdout = options->json != NULL && strcmp(options->json, "-") == 0;
    if (options->json != NULL)
        UL_TRY(ul_file_write(options->json, job->json.data, job->json.length, &job->diag));
    if (!on_stdout) {
        struct ul_text text;
        ul_text_init(&text, &job->keep);
        ul_report_put_text(&text, &job->report);
        fwrite(text.data, 1, text.length, stdout);
        fflush(stdout);
    }
    return ul_cli_require_fit(job);
}

static const enum ul_cli_option_id options[] = {
    UL_CLI_JSON,        UL_CLI_TARGET,     UL_CLI_THREADS,   UL_CLI_ISA,        UL_CLI_CONV,
    UL_CLI_PRECISION,   UL_CLI_DIM,        UL_CLI_SHAPE,     UL_CLI_CONST,      UL_CLI_SWEEP,
    UL_CLI_CSV,         UL_CLI_REMAT,      UL_CLI_BUDGET,    UL_CLI_ALIGN,      UL_CLI_ORDER,
    UL_CLI_PACK,        UL_CLI_TIME_LIMIT, UL_CLI_SEED,      UL_CLI_PROFILE,    UL_CLI_PLAN,
    UL_CLI_KEEP_INPUTS, UL_CLI_WEIGHTS,    UL_CLI_IO,        UL_CLI_NO_PASS,    UL_CLI_SPLIT,
    UL_CLI_PRINT_AFTER, UL_CLI_STOP_AFTER, UL_CLI_WORKSPACE, UL_CLI_WITH_CUDNN, UL_CLI_TF32,
    UL_CLI_NVCC};

const struct ul_cli_command ul_command_plan = {
    .name = "plan",
    .arguments = "MODEL.onnx [options]",
    .summary = "Says how many bytes a model needs, of which kinds, and where the peak is.",
    .run = plan,
    .options = options,
    .option_count = sizeof options / sizeof *options};
