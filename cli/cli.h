/* The command line: one file a subcommand, the only callers of all folders.
 *
 * Invariants: a command returns its exit code; results go to standard output, everything else to
 * standard error; an error is one message that names the file, the node and the remedy.
 * Ownership: a command owns its arenas and ends them.
 */
#ifndef UL_CLI_H
#define UL_CLI_H

#include "codegen/program/library.h"
#include "codegen/program/program.h"
#include "codegen/program/target.h"
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "report/report.h"

/* options.c: one table of options for all commands, each command taking some of them. */

enum ul_cli_option_id {
    UL_CLI_OUTPUT,
    UL_CLI_EMIT,
    UL_CLI_JSON,
    UL_CLI_TARGET,
    UL_CLI_DIM,
    UL_CLI_SHAPE,
    UL_CLI_CONST,
    UL_CLI_BUDGET,
    UL_CLI_ALIGN,
    UL_CLI_ORDER,
    UL_CLI_REMAT,
    UL_CLI_PACK,
    UL_CLI_TIME_LIMIT,
    UL_CLI_SEED,
    UL_CLI_PLAN,
    UL_CLI_KEEP_INPUTS,
    UL_CLI_WEIGHTS,
    UL_CLI_IO,
    UL_CLI_CC,
    UL_CLI_CFLAGS,
    UL_CLI_MARCH,
    UL_CLI_PREFIX,
    UL_CLI_NO_PASS,
    UL_CLI_SPLIT,
    UL_CLI_PRINT_AFTER,
    UL_CLI_STOP_AFTER,
    UL_CLI_RTOL,
    UL_CLI_ATOL,
    UL_CLI_NORM,
    UL_CLI_CAPACITY,
    UL_CLI_BUDGET_FRACTION,
    UL_CLI_SWEEP,
    UL_CLI_CSV,
    UL_CLI_PROFILE,
    UL_CLI_LIST,
    UL_CLI_THREADS,
    UL_CLI_ISA,
    UL_CLI_CONV,
    UL_CLI_PRECISION,
    UL_CLI_WORKSPACE,
    UL_CLI_WITH_CUDNN,
    UL_CLI_TF32,
    UL_CLI_NVCC,
    UL_CLI_OPTION_COUNT
};

/* A growing list of words. */
struct ul_cli_list {
    uint32_t count, capacity;
    const char **items;
};

struct ul_cli_options {
    struct ul_arena *arena;
    struct ul_cli_list files; /* what is no option */
    const char *output, *emit, *json, *target, *plan, *cc, *cflags, *march, *prefix, *weights, *io;
    const char *print_after, *stop_after, *rtol, *atol, *norm;
    const char *capacity, *budget_fraction;
    const char *remat; /* as typed, or NULL */
    const char *csv;
    const char *threads, *isa; /* as typed, or from the plan; NULL: this machine's */
    const char *conv, *precision;
    const char *workspace, *with_cudnn, *nvcc; /* as typed, the first two or from the plan */
    const char *profile, *profile_text,
        *profile_sha256; /* the last two: of a profile from a file */
    struct ul_cli_list dims, shapes, consts, no_passes, splits;
    struct ul_plan_options planning;
    bool sweep;
    bool keep_inputs, list, tf32;
    bool given[UL_CLI_OPTION_COUNT]; /* on the command line, not by a plan */
};

struct ul_cli_job;

/* What a command takes and says of itself. `run` gets a job whose options are parsed; its errors
 * are in the job's diag. */
struct ul_cli_command {
    const char *name;
    const char *arguments; /* "MODEL.onnx -o PROGRAM [options]" */
    const char *summary;   /* one sentence */
    const char *details;   /* more for its help, or NULL */
    enum ul_status (*run)(struct ul_cli_job *job);
    const enum ul_cli_option_id *options;
    uint32_t option_count;
};

/* Reads the arguments after the command's name. UL_USAGE with the wrong word. When --help was
 * given, prints it and sets *helped. */
enum ul_status ul_cli_parse(const struct ul_cli_command *command, int argc, char **argv,
                            struct ul_cli_options *options, bool *helped,
                            struct ul_diag *diag) UL_MUST_CHECK;
void ul_cli_help(const struct ul_cli_command *command);
const char *ul_cli_option_name(enum ul_cli_option_id id); /* without dashes */
void ul_cli_list_add(struct ul_arena *arena, struct ul_cli_list *list, const char *item);

/* pipeline.c: from a model file to a checked plan. */

struct ul_cli_job {
    struct ul_arena keep, scratch;
    struct ul_cli_options options;
    struct ul_diag diag;
    struct ul_graph graph;
    struct ul_onnx_model model;
    bool loaded;
    struct ul_profile profile;
    const struct ul_target_library *library; /* of the target; NULL: it has none */
    struct ul_program *program;
    struct ul_report_header plan_header; /* of options.plan where that is given */
    struct ul_plan plan;
    struct ul_plan_ladder ladder; /* empty where the plan without a budget does */
    uint64_t winograd_bytes; /* reserved by the plan that this one gave up for a budget, or 0 */
    struct ul_report report;
    struct ul_text json; /* plan.json */
    char plan_sha256[65];
};

void ul_cli_job_init(struct ul_cli_job *job);
void ul_cli_job_done(struct ul_cli_job *job);
/* Loads with the --dim, --shape and --const that were given. */
enum ul_status ul_cli_load(struct ul_cli_job *job, const char *model_path) UL_MUST_CHECK;
/* Loads, runs the passes, builds the program; what is not said of the graph is taken from the
 * --plan FILE, if there is one; with --stop-after prints the graph instead, and the
 * job has no program. */
enum ul_status ul_cli_build(struct ul_cli_job *job, const char *model_path) UL_MUST_CHECK;
/* Plans and checks (or reads --plan FILE and checks it), and writes plan.json's text. */
enum ul_status ul_cli_plan(struct ul_cli_job *job) UL_MUST_CHECK;
/* Emits into `directory`, which is made where it does not exist. */
enum ul_status ul_cli_emit(struct ul_cli_job *job, const char *directory) UL_MUST_CHECK;
/* Runs make in `directory` and moves the program to `output`. */
enum ul_status ul_cli_make(struct ul_cli_job *job, const char *directory,
                           const char *output) UL_MUST_CHECK;
/* A fresh folder below TMPDIR, and its removal with all that is in it. */
enum ul_status ul_cli_temporary(struct ul_arena *arena, const char **directory,
                                struct ul_diag *diag) UL_MUST_CHECK;
void ul_cli_remove_tree(const char *directory);
/* The end of what ul_cli_temporary began, during which Ctrl-C waits. */
void ul_cli_remove_temporary(const char *directory);
/* One line on a terminal that says what is going on; NULL clears it. */
void ul_cli_progress(const char *what);
/* Path of a file that comes with the program: installed beside it, or in the source. */
const char *ul_cli_data_file(struct ul_arena *arena, const char *name);
/* Runs a program and waits; its exit code, or -1 where it could not start or was killed. What it
 * prints goes to the file `capture` unless that is NULL. A stop (Ctrl-C) goes to all that the
 * program started; then this one ends by it as soon as no temporary folder is left. */
int ul_cli_execute(const char *const *argv, const char *capture);

/* budget.c */

/* Plans: without a budget, or, where that is too much, the cheapest plan of the ladder that fits;
 * with --sweep the ladder is made anyway. */
enum ul_status ul_cli_solve(struct ul_cli_job *job) UL_MUST_CHECK;
/* UL_NO_FIT when the plan exceeds the budget: the shortfall, the smallest budget known to work, the
 * peak and what is alive there. */
enum ul_status ul_cli_require_fit(struct ul_cli_job *job) UL_MUST_CHECK;
/* The ladder as a table: to --json, --csv, else to standard output. */
enum ul_status ul_cli_sweep(struct ul_cli_job *job) UL_MUST_CHECK;

/* splits.c: merges into job->ladder the plans of programs that compute chains in pieces; and makes
 * the job's program the one of a rung's variant. `free_plan` is the plan without a budget. */
enum ul_status ul_cli_merge_splits(struct ul_cli_job *job,
                                   const struct ul_plan *free_plan) UL_MUST_CHECK;
enum ul_status ul_cli_apply_variant(struct ul_cli_job *job, uint32_t variant) UL_MUST_CHECK;

/* fit.c: the target, the default where none is named; UL_USAGE when an option was given that it has
 * no use for. */
enum ul_status ul_cli_fit_target(struct ul_cli_job *job) UL_MUST_CHECK;
/* Whether a target has a use for an option; it may for one that nobody knows. */
bool ul_cli_option_fits(const char *name, const struct ul_target *target);

/* cuda.c */

/* What compiles target cuda: --nvcc, $NVCC, nvcc, or where the toolkit usually is; and whether it
 * is there. */
const char *ul_cli_nvcc(struct ul_cli_job *job);
bool ul_cli_has_nvcc(struct ul_cli_job *job);
/* Fills in what only target cuda has a use for; every target refuses what means nothing. */
enum ul_status ul_cli_apply_cuda(struct ul_cli_job *job,
                                 struct ul_program_options *program) UL_MUST_CHECK;
/* How the job's program stands to cuDNN: "on", "found", "not found" or "off"; NULL: not at all. */
const char *ul_cli_cudnn(const struct ul_cli_job *job);
/* Adds up to three options for plan.json. */
enum { UL_CLI_CUDA_OPTIONS = 3 };
void ul_cli_describe_cuda(struct ul_cli_job *job, struct ul_report_option *list, uint32_t *count);

/* targets.c: UL_USAGE when a result would go over an input, over another result, or into a folder
 * that holds something else; UL_IO when it has no folder to go to. */
enum ul_status ul_cli_check_targets(struct ul_cli_job *job) UL_MUST_CHECK;
/* The same of one folder; `option` is what named it. */
enum ul_status ul_cli_check_folder(struct ul_cli_job *job, const char *option,
                                   const char *path) UL_MUST_CHECK;

/* plan_file.c: reads the head of options.plan, and takes from it what the command line leaves out.
 */
enum ul_status ul_cli_read_plan(struct ul_cli_job *job) UL_MUST_CHECK;
/* Whether the model that was read is another than the plan's; and UL_MISMATCH that says so. */
bool ul_cli_is_other_model(const struct ul_cli_job *job);
enum ul_status ul_cli_report_other_model(struct ul_cli_job *job) UL_MUST_CHECK;
/* The options that the plan was made with, as they are typed: "--dim N=1"; NULL when the command
 * has none of its own that make another graph. */
const char *ul_cli_plan_options(struct ul_cli_job *job);

/* profile_option.c: fills job->profile from --profile, the plan, or the default. */
enum ul_status ul_cli_read_profile(struct ul_cli_job *job) UL_MUST_CHECK;
/* Adds up to three options for plan.json. */
enum { UL_CLI_PROFILE_OPTIONS = 3 };
void ul_cli_describe_profile(struct ul_cli_job *job, struct ul_report_option *list,
                             uint32_t *count);

/* tensor_file.c: a constant for --const from .npy or ONNX .pb. */
enum ul_status ul_cli_read_tensor(struct ul_arena *arena, const char *path,
                                  const struct ul_tensor **tensor,
                                  struct ul_diag *diag) UL_MUST_CHECK;

extern const struct ul_cli_command ul_command_compile, ul_command_plan, ul_command_check,
    ul_command_verify, ul_command_inspect, ul_command_pack, ul_command_solve, ul_command_profile;

#endif
