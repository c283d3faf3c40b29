/* ullage check: the independent checker on any plan.json, also an edited one. The graph is built
 * again from the options that the plan names. */
#include "cli/cli.h"

#include <string.h>

/* Puts the plan's options where the command line's own would stand. */
static enum ul_status take_options(struct ul_cli_job *job, const struct ul_report_header *header)
{
    for (uint32_t i = 0; i < header->option_count; i++) {
        const struct ul_report_option *option = &header->options[i];
        if (strcmp(option->name, "dim") == 0)
            ul_cli_list_add(&job->keep, &job->options.dims, option->value);
        else if (strcmp(option->name, "shape") == 0)
            ul_cli_list_add(&job->keep, &job->options.shapes, option->value);
        else if (strcmp(option->name, "no-pass") == 0)
            ul_cli_list_add(&job->keep, &job->options.no_passes, option->value);
        else if (strcmp(option->name, "keep-inputs") == 0)
            job->options.keep_inputs = true;
        else if (strcmp(option->name, "weights") == 0)
            job->options.weights = option->value;
        else if (strcmp(option->name, "io") == 0)
            job->options.io = option->value;
        else if (strcmp(option->name, "const") != 0)
            return ul_diag_set(&job->diag, UL_UNSUPPORTED, "option %s is not known",
                               ul_quote(&job->keep, option->name));
    }
    job->options.target = header->target;
    return UL_OK;
}

static enum ul_status read_header(struct ul_cli_job *job, const char *path,
                                  struct ul_report_header *header)
{
    struct ul_file file;
    UL_TRY(ul_file_map(&file, &job->keep, path, &job->diag));
    enum ul_status status = ul_report_read_header(&job->keep, (const char *)file.data,
                                                  (size_t)file.size_bytes, header, &job->diag);
    ul_file_unmap(&file);
    if (status == UL_OK)
        status = take_options(job, header);
    if (status != UL_OK)
        ul_diag_prefix(&job->diag, path);
    return status;
}

static enum ul_status check(struct ul_cli_job *job)
{
    const struct ul_cli_list *files = &job->options.files;
    if (files->count != 2)
        return ul_diag_set(&job->diag, UL_USAGE,
                           "give a model and a plan: ullage check MODEL.onnx PLAN.json");
    struct ul_report_header header;
    UL_TRY(read_header(job, files->items[1], &header));
    UL_TRY(ul_cli_build(job, files->items[0]));
    if (strcmp(header.model_sha256, job->model.sha256) != 0)
        return ul_diag_set(&job->diag, UL_MISMATCH, "%s: was made for another model (SHA-256 %s)",
                           files->items[1], ul_quote(&job->keep, header.model_sha256));
    job->options.plan = files->items[1];
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
