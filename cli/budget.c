/* Plans under a budget: the ladder when the plan without one is too large, what stands in the way
 * when nothing fits, and the ladder as a table. */
#include "cli/cli.h"
#include "codegen/program/winograd.h"
#include "codegen/target.h"

#include <stdio.h>
#include <string.h>

static uint64_t reserved_of(const struct ul_cli_job *job)
{
    return job->plan.reserved_bytes[0];
}

/* The ladder below the plan without a budget, which job->plan is. */
static enum ul_status make_ladder(struct ul_cli_job *job)
{
    UL_TRY(ul_ladder_build(&job->keep, job->program->problem, &job->options.planning, &job->plan,
                           &job->ladder, &job->diag));
    return ul_cli_merge_splits(job, &job->plan);
}

/* Larger weights for faster convolutions are the first thing to give up. */
static enum ul_status build_direct(struct ul_cli_job *job)
{
    struct ul_program_options options = job->program->options;
    options.conv = UL_CONV_DIRECT;
    return ul_program_build(&job->keep, &job->graph, &options, &job->program, &job->diag);
}

static enum ul_status solve(struct ul_cli_job *job)
{
    struct ul_plan_options free = job->options.planning;
    uint64_t budget = job->options.planning.budget_bytes;
    struct ul_plan_rung rung;
    free.budget_bytes = 0;
    UL_TRY(ul_plan_solve(&job->keep, job->program->problem, &free, &job->plan, &job->diag));
    bool fits = budget == 0 || reserved_of(job) <= budget;
    if ((!fits || job->options.sweep) && ul_program_has_winograd(job->program) &&
        job->program->options.conv == UL_CONV_BEST) {
        job->winograd_bytes = reserved_of(job);
        UL_TRY(build_direct(job));
        UL_TRY(ul_plan_solve(&job->keep, job->program->problem, &free, &job->plan, &job->diag));
        fits = budget == 0 || reserved_of(job) <= budget;
    }
    if (fits && !job->options.sweep)
        return UL_OK;
    UL_TRY(make_ladder(job));
    ul_ladder_pick(&job->ladder, fits ? 0 : budget, &rung);
    job->plan = rung.plan;
    return ul_cli_apply_variant(job, rung.variant);
}

enum ul_status ul_cli_solve(struct ul_cli_job *job)
{
    ul_cli_progress("planning");
    enum ul_status status = solve(job);
    ul_cli_progress(NULL);
    if (status != UL_OK)
        ul_diag_prefix(&job->diag, job->model.path);
    return status;
}

/* ---- What does not fit ---- */

static void put_alive(struct ul_cli_job *job, struct ul_text *text)
{
    enum { MAX_NAMED = 6 };
    const struct ul_plan *plan = &job->plan;
    uint32_t *alive;
    uint64_t others = 0;
    uint32_t count = ul_report_alive(&job->report, &job->keep, MAX_NAMED, &alive);
    if (plan->position_count == 0)
        return;
    const struct ul_report_step *peak =
        &job->report.steps[plan->positions[plan->peak_position].step];
    ul_text_printf(text, "\nIts peak is at step %u, %s; alive there beside %llu bytes of weights:",
                   plan->peak_position, ul_quote(&job->keep, peak->node),
                   (unsigned long long)plan->rows.class_bytes[UL_PLAN_WEIGHTS]);
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_plan_range *range = &plan->ranges[alive[i]];
        const char *name = range->value == UL_PLAN_NONE
                               ? "scratch"
                               : ul_quote(&job->keep, job->report.values[range->value].name);
        if (i < MAX_NAMED)
            ul_text_printf(text, "\n  %12llu  %s", (unsigned long long)range->size_bytes, name);
        else
            others += range->size_bytes;
    }
    if (count > MAX_NAMED)
        ul_text_printf(text, "\n  %12llu  in %u more", (unsigned long long)others,
                       count - MAX_NAMED);
}

enum ul_status ul_cli_require_fit(struct ul_cli_job *job)
{
    uint64_t budget = job->options.planning.budget_bytes;
    uint64_t reserved = reserved_of(job);
    struct ul_text text;
    if (budget == 0 || reserved <= budget)
        return UL_OK;
    ul_text_init(&text, &job->keep);
    ul_text_printf(&text,
                   "%s does not fit the budget: it needs %llu bytes, %llu more than %llu.\n"
                   "The smallest budget known to work is %llu bytes",
                   job->report.model_name, (unsigned long long)reserved,
                   (unsigned long long)(reserved - budget), (unsigned long long)budget,
                   (unsigned long long)job->plan.smallest_budget_bytes);
    uint64_t floor_bytes = ul_report_floor_bytes(&job->report);
    if (budget < floor_bytes)
        ul_text_printf(&text, "; it is proven that %llu are needed.",
                       (unsigned long long)floor_bytes);
    else
        ul_text_printf(&text, "; that nothing smaller works is not proven (at least %llu).",
                       (unsigned long long)floor_bytes);
    put_alive(job, &text);
    const char *precision = job->options.precision;
    bool is_f32 = precision == NULL || strcmp(precision, "fp32") == 0;
    ul_text_printf(&text, "\nA smaller batch or shape%s%s and --io caller make it smaller.",
                   is_f32 ? ", --precision bf16" : "",
                   ul_target_find(job->options.target)->is_device ? "" : ", --weights rom");
    return ul_diag_set(&job->diag, UL_NO_FIT, "%s", text.data);
}

/* ---- The ladder as a table ---- */

static enum ul_status write_table(struct ul_cli_job *job, const char *path,
                                  void (*put)(struct ul_text *, const struct ul_report *,
                                              const struct ul_plan_ladder *))
{
    struct ul_text text;
    if (path == NULL)
        return UL_OK;
    ul_text_init(&text, &job->keep);
    put(&text, &job->report, &job->ladder);
    return ul_file_write(path, text.data, text.length, &job->diag);
}

enum ul_status ul_cli_sweep(struct ul_cli_job *job)
{
    const struct ul_cli_options *options = &job->options;
    bool json_on_stdout = options->json != NULL && strcmp(options->json, "-") == 0;
    bool csv_on_stdout = options->csv != NULL && strcmp(options->csv, "-") == 0;
    UL_TRY(write_table(job, options->json, ul_report_put_ladder_json));
    UL_TRY(write_table(job, options->csv, ul_report_put_ladder_csv));
    if (json_on_stdout || csv_on_stdout)
        return UL_OK;
    UL_TRY(write_table(job, "-", ul_report_put_ladder_text));
    if (job->winograd_bytes > 0)
        printf("Without a budget: %llu bytes, with convolutions by Winograd's method where it is "
               "faster.\nIts larger weights are the first thing that a budget takes (--conv).\n",
               (unsigned long long)job->winograd_bytes);
    return UL_OK;
}
