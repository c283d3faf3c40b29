/* SPDX-License-Identifier: Apache-2.0 */
/* ullage plan: makes a plan without code, as a summary or as plan.json. */
#include "cli/cli.h"
#include "ir/text.h"

#include <string.h>

/* Whether there are lists of values, or several models. */
static bool has_table(const struct ul_cli_job *job)
{
    return job->options.sweep && !job->options.shared &&
           (job->axes.count > 0 || job->files.count > 1);
}

static enum ul_status check_options(struct ul_cli_job *job)
{
    const struct ul_cli_options *options = &job->options;
    struct ul_diag *diag = &job->compile.diag;
    UL_TRY(ul_cli_check_shared(job, options->sweep));
    UL_TRY(ul_cli_check_names(job));
    if (job->files.count == 0)
        return ul_diag_set(diag, UL_USAGE, "give one model: ullage plan MODEL.onnx");
    if (has_table(job) && job->files.count > 1 && job->compile.options.quantize_activations != NULL)
        return ul_diag_set(diag, UL_USAGE,
                           "--quantize-activations has data of one model: give one");
    if (options->sweep && job->compile.options.plan != NULL)
        return ul_diag_set(diag, UL_USAGE,
                           "--sweep is for making a plan: it takes no --plan; leave one of them "
                           "out");
    if (options->sweep && !has_table(job) &&
        (job->compile.options.budget_bytes != 0 || job->compile.options.device != NULL))
        return ul_diag_set(
            diag, UL_USAGE,
            "--sweep shows all budgets down to the least that is met: leave "
            "--budget out (or --device), give several to compare (--budget A,B), or leave --sweep "
            "out for the plan of one budget");
    if (options->sweep && !has_table(job) && job->compile.options.spaces.count > 0)
        return ul_diag_set(diag, UL_USAGE,
                           "--sweep shows plans of ever smaller budgets, and with --space the "
                           "capacities are the budget: leave one of them out");
    if (!options->sweep && ul_compile_offloads(&job->compile.options) &&
        job->compile.options.plan == NULL && job->compile.options.budget_bytes == 0 &&
        job->compile.options.device == NULL)
        return ul_diag_set(diag, UL_USAGE,
                           "--offload: values leave the buffer for a budget: give --budget SIZE, "
                           "or --sweep for all of them");
    if (options->advice == UL_ADVICE_ON && options->sweep)
        return ul_diag_set(diag, UL_USAGE,
                           "--advice on is of one plan, and --sweep makes many: leave one out");
    if (options->advice == UL_ADVICE_ON && job->compile.options.plan != NULL)
        return ul_diag_set(diag, UL_USAGE,
                           "--advice on makes plans to compare, and --plan gives one: leave one of "
                           "them out");
    if (options->advice == UL_ADVICE_ON && strcmp(job->files.items[0], "-") == 0)
        return ul_diag_set(diag, UL_USAGE,
                           "--advice on reads the model once for each plan: give a file");
    if (options->sweep && (options->csv_steps != NULL || options->trace != NULL ||
                           options->html != NULL || options->baseline != NULL))
        return ul_diag_set(diag, UL_USAGE,
                           "--html, --baseline, --csv-steps and --trace are of one plan: leave "
                           "--sweep out");
    return UL_OK;
}

/* ---- the ladder as a table: to --json, to --csv, or to standard output ---- */

static enum ul_status write_table(struct ul_cli_job *job, const char *path,
                                  void (*put)(struct ul_text *, const struct ul_report *,
                                              const struct ul_plan_ladder *))
{
    struct ul_compile *compile = &job->compile;
    struct ul_text text;
    if (path == NULL)
        return UL_OK;
    ul_text_init(&text, &compile->keep);
    put(&text, &compile->report, &compile->ladder);
    return ul_file_write(path, text.data, text.length, &compile->diag);
}

static enum ul_status write_sweep(struct ul_cli_job *job)
{
    const struct ul_cli_options *options = &job->options;
    UL_TRY(write_table(job, options->json, ul_report_put_ladder_json));
    UL_TRY(write_table(job, options->csv, ul_report_put_ladder_csv));
    if (ul_cli_stdout_is_taken(job))
        return UL_OK;
    return write_table(job, "-", ul_report_put_ladder_text);
}

/* ---- lists of values: a table of plans ---- */

static enum ul_status write_cases(struct ul_cli_job *job, const char *path,
                                  const struct ul_saved_table *table,
                                  void (*put)(struct ul_text *, const struct ul_saved_table *))
{
    struct ul_text text;
    if (path == NULL)
        return UL_OK;
    ul_text_init(&text, &job->compile.keep);
    put(&text, table);
    return ul_file_write(path, text.data, text.length, &job->compile.diag);
}

static enum ul_status plan_cases(struct ul_cli_job *job)
{
    struct ul_saved_table table;
    struct ul_text text;
    UL_TRY(ul_compile_table(&job->compile, &job->files, &job->axes, &table));
    UL_TRY(write_cases(job, job->options.json, &table, ul_report_put_table_json));
    UL_TRY(write_cases(job, job->options.csv, &table, ul_report_put_table_csv));
    if (ul_cli_stdout_is_taken(job))
        return UL_OK;
    ul_text_init(&text, &job->compile.keep);
    ul_report_put_table_text(&text, &table, ul_cli_line_columns());
    ul_cli_print(&text);
    return UL_OK;
}

/* ---- one plan ---- */

/* Writes the problem that was planned: that of the program which a budget has chosen, with its
 * splits. */
static enum ul_status write_problem(struct ul_cli_job *job)
{
    struct ul_compile *compile = &job->compile;
    struct ul_text text;
    if (job->options.print_problem == NULL)
        return UL_OK;
    ul_text_init(&text, &compile->keep);
    ul_problem_print(&text, compile->program->problem);
    return ul_file_write(job->options.print_problem, text.data, text.length, &compile->diag);
}

/* Whether advice has a reader: a page, or text on standard output without files; a script that
 * writes files would wait for it. A given plan has no options of its own to change, and a model
 * from a pipe cannot be read again. */
static bool wants_advice(const struct ul_cli_job *job)
{
    const struct ul_compile *compile = &job->compile;
    const struct ul_cli_options *options = &job->options;
    bool is_text = options->json == NULL && options->csv == NULL && options->csv_steps == NULL &&
                   options->trace == NULL && options->print_problem == NULL;
    bool can = compile->options.plan == NULL && compile->options.stop_after == NULL &&
               !options->shared && !options->sweep && strcmp(job->files.items[0], "-") != 0;
    if (options->advice != UL_ADVICE_AUTO)
        return options->advice == UL_ADVICE_ON;
    return can && (is_text || options->html != NULL);
}

/* Whether anything other than plan.json is written; for a large model that takes as long again. */
static bool is_drawn(const struct ul_cli_job *job)
{
    const struct ul_cli_options *options = &job->options;
    return !ul_cli_stdout_is_taken(job) || options->csv != NULL || options->csv_steps != NULL ||
           options->trace != NULL || options->html != NULL || options->baseline != NULL;
}

/* plan.json has advice only where that was asked for, so that its bytes do not depend on other
 * outputs. Everything else is drawn from it, as report does. */
static enum ul_status write_plan(struct ul_cli_job *job)
{
    struct ul_compile *compile = &job->compile;
    struct ul_saved saved;
    if (wants_advice(job)) {
        ul_compile_advise(compile, job->files.items[0]);
        compile->report.ladder = &compile->ladder;
    }
    if (job->options.advice == UL_ADVICE_ON || job->options.html != NULL)
        ul_compile_put_json(compile);
    if (job->options.json != NULL)
        UL_TRY(ul_file_write(job->options.json, compile->json.data, compile->json.length,
                             &compile->diag));
    if (!is_drawn(job))
        return UL_OK;
    if (compile->report.facts.has_remedies)
        ul_compile_put_json(compile);
    UL_TRY(ul_saved_read(&compile->keep, compile->json.data, compile->json.length, &saved,
                         &compile->diag));
    saved.is_checked = true; /* true of each plan that is made, or mapped onto a program */
    return ul_cli_draw(job, &saved);
}

static enum ul_status plan(struct ul_cli_job *job)
{
    struct ul_compile *compile = &job->compile;
    const struct ul_cli_options *options = &job->options;
    UL_TRY(check_options(job));
    compile->is_library = options->library || options->shared;
    if (!options->shared)
        UL_TRY(ul_cli_quantize(job, &job->files.items[0]));
    if (has_table(job))
        return plan_cases(job);
    compile->wants_ladder = options->sweep || wants_advice(job);
    compile->keeps_read = wants_advice(job);
    if (!options->shared)
        UL_TRY(ul_compile_find_largest(compile, job->files.items[0]));
    UL_TRY(ul_compile_build_roots(compile, &job->files));
    if (compile->program == NULL) { /* --stop-after */
        struct ul_text text;
        ul_text_init(&text, &compile->keep);
        ul_graph_print(&text, &compile->graph);
        ul_cli_print(&text);
        return UL_OK;
    }
    UL_TRY(ul_compile_plan(compile));
    ul_cli_put_notice(job);
    UL_TRY(write_problem(job));
    if (options->sweep)
        return write_sweep(job);
    UL_TRY(write_plan(job));
    UL_TRY(ul_compile_suffice(compile));
    return ul_compile_require_fit(compile);
}

static const struct ul_cli_example examples[] = {
    {"What it needs, and what would make it smaller", "ullage plan model.onnx"},
    {"What ever less memory costs in time", "ullage plan model.onnx --sweep"},
    {"The longest sequence that fits",
     "ullage plan bert.onnx --dim N=1 --max-dim S:8 --budget 8MiB"},
    {"To be kept, and as a page", "ullage plan model.onnx --json plan.json --html plan.html"},
    {NULL, NULL}};

const struct ul_cli_command ul_command_plan = {
    .name = "plan",
    .arguments = "MODEL.onnx [options]",
    .summary = "Says how many bytes a model needs, of which kinds, and where the peak is.",
    .details = "Several models, which run one after another, are planned into one arena: ullage "
               "plan A.onnx B.onnx --shared. With --sweep each is planned alone, and --device NAME "
               "shows the largest that fits.",
    .group = "models",
    .endings = "onnx",
    .examples = examples,
    .bit = UL_IN_PLAN,
    .run = plan};
