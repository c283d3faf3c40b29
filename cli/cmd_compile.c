/* ullage compile: a model file becomes an executable, or with --emit a folder of source. */
#include "cli/cli.h"

#include <string.h>

/* Without nvcc the source is what there is to give: where --emit says, or beside the program. */
static enum ul_status leave_source(struct ul_cli_job *job)
{
    const struct ul_cli_options *options = &job->options;
    bool is_stream = strcmp(options->output, "-") == 0;
    const char *directory = options->emit;
    if (directory == NULL) {
        directory =
            is_stream ? "program.cuda" : ul_arena_printf(&job->keep, "%s.cuda", options->output);
        UL_TRY(ul_cli_check_folder(job, "-o: the source goes to", directory));
    }
    UL_TRY(ul_cli_emit(job, directory));
    return ul_diag_set(&job->diag, UL_COMPILER,
                       "target %s needs the CUDA Toolkit's compiler, and there is no %s here; the "
                       "source is in %s, and make -C %s NVCC=nvcc builds it where the toolkit is "
                       "(--nvcc or $NVCC says where nvcc is on this machine)",
                       options->target, ul_cli_nvcc(job), directory, directory);
}

static enum ul_status build_program(struct ul_cli_job *job)
{
    const struct ul_cli_options *options = &job->options;
    const char *directory = options->emit;
    if (options->output != NULL && job->program->options.target->is_device && !ul_cli_has_nvcc(job))
        return leave_source(job);
    if (directory == NULL)
        UL_TRY(ul_cli_temporary(&job->keep, &directory, &job->diag));
    enum ul_status status = ul_cli_emit(job, directory);
    if (status == UL_OK && options->output != NULL)
        status = ul_cli_make(job, directory, options->output);
    if (options->emit == NULL)
        ul_cli_remove_temporary(directory);
    return status;
}

static enum ul_status compile(struct ul_cli_job *job)
{
    const struct ul_cli_options *options = &job->options;
    if (options->files.count != 1 || (options->output == NULL && options->emit == NULL))
        return ul_diag_set(&job->diag, UL_USAGE,
                           "give one model and where the result goes: ullage compile MODEL.onnx "
                           "-o PROGRAM, or --emit DIR");
    UL_TRY(ul_cli_build(job, options->files.items[0]));
    UL_TRY(ul_cli_plan(job));
    if (options->json != NULL)
        UL_TRY(ul_file_write(options->json, job->json.data, job->json.length, &job->diag));
    UL_TRY(ul_cli_require_fit(job));
    UL_TRY(build_program(job));
    uint64_t reserved = job->plan.reserved_bytes[0];
    fprintf(stderr, "%s: reserves %s = %llu bytes, %u steps, %u kernels\n",
            options->output != NULL ? options->output : options->emit,
            ul_size_format(&job->keep, reserved), (unsigned long long)reserved,
            job->plan.position_count, job->program->kernel_count);
    return UL_OK;
}

static const enum ul_cli_option_id options[] = {
    UL_CLI_OUTPUT,      UL_CLI_EMIT,       UL_CLI_JSON,      UL_CLI_TARGET,  UL_CLI_THREADS,
    UL_CLI_ISA,         UL_CLI_CONV,       UL_CLI_PRECISION, UL_CLI_DIM,     UL_CLI_SHAPE,
    UL_CLI_CONST,       UL_CLI_BUDGET,     UL_CLI_ALIGN,     UL_CLI_ORDER,   UL_CLI_REMAT,
    UL_CLI_PACK,        UL_CLI_TIME_LIMIT, UL_CLI_SEED,      UL_CLI_PROFILE, UL_CLI_PLAN,
    UL_CLI_KEEP_INPUTS, UL_CLI_WEIGHTS,    UL_CLI_IO,        UL_CLI_CC,      UL_CLI_CFLAGS,
    UL_CLI_MARCH,       UL_CLI_PREFIX,     UL_CLI_NO_PASS,   UL_CLI_SPLIT,   UL_CLI_PRINT_AFTER,
    UL_CLI_WORKSPACE,   UL_CLI_WITH_CUDNN, UL_CLI_TF32,      UL_CLI_NVCC};

const struct ul_cli_command ul_command_compile = {
    .name = "compile",
    .arguments = "MODEL.onnx -o PROGRAM [options]",
    .summary = "Compiles a model into a program that runs in one preallocated buffer.",
    .run = compile,
    .options = options,
    .option_count = sizeof options / sizeof *options};
