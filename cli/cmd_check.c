/* SPDX-License-Identifier: Apache-2.0 */
/* ullage check: the independent checker, for any plan, even an edited one. The graph is built again
 * from the options that a plan.json names; a problem in text needs no model. */
#include "cli/cli.h"

static enum ul_status read_json(struct ul_compile *compile, const struct ul_problem *problem,
                                const char *text, size_t length)
{
    struct ul_saved *said = &compile->plan_header;
    UL_TRY(ul_report_read_header(&compile->keep, text, length, said, &compile->diag));
    return ul_report_read_plan(&compile->keep, said, problem, &compile->plan, &compile->diag);
}

static enum ul_status read_plan(struct ul_compile *compile, const struct ul_problem *problem,
                                const char *path)
{
    struct ul_file file;
    UL_TRY(ul_file_map(&file, &compile->keep, path, &compile->diag));
    const char *text = (const char *)file.data;
    enum ul_status status = ul_plan_is_text(text, file.size_bytes)
                                ? ul_plan_parse(&compile->keep, text, file.size_bytes, problem,
                                                &compile->plan, &compile->diag)
                                : read_json(compile, problem, text, (size_t)file.size_bytes);
    if (status == UL_OK)
        status = ul_plan_check(&compile->keep, problem, &compile->plan, &compile->diag);
    return ul_file_close(&file, path, status, &compile->diag);
}

static enum ul_status check_models(struct ul_compile *compile, const struct ul_texts *models,
                                   const char *path, struct ul_report_words *words)
{
    compile->options.plan = path;
    UL_TRY(ul_compile_build_roots(compile, models));
    UL_TRY(ul_compile_plan(compile));
    if (ul_compile_is_other_model(compile))
        return ul_compile_report_other_model(compile);
    UL_TRY(ul_compile_check_process(compile));
    return ul_compile_check_said(compile, ul_compile_note(compile).sample_count, words);
}

/* Checks a plan of the problem in text or, where that is NULL, of the models. `prefix` begins the
 * line that reports success. */
static enum ul_status check_plan(struct ul_compile *compile, const struct ul_texts *models,
                                 const struct ul_problem *problem, const char *path,
                                 const char *prefix)
{
    struct ul_report_words words = {.planners = ""};
    UL_TRY(problem != NULL ? read_plan(compile, problem, path)
                           : check_models(compile, models, path, &words));
    const struct ul_plan *plan = &compile->plan;
    ul_cli_say(stdout, "%sok: %u step%s, %u live range%s, %s\n", prefix, plan->position_count,
               ul_plural(plan->position_count), plan->range_count, ul_plural(plan->range_count),
               ul_size_exact(&compile->keep, plan->reserved_bytes[0]));
    if (words.planners[0] != '\0') {
        ul_cli_say(stdout, "%sthe planner's word: %s\n", prefix, words.planners);
        ul_cli_say(stdout, "%sas it was given: %s\n", prefix, words.given);
        ul_cli_say(stdout, "%sas it was chosen: %s\n", prefix, words.chosen);
    }
    return UL_OK;
}

/* Each of several plans has a compile of its own, so that nothing remains from the plan before. */
static enum ul_status check_several(struct ul_cli_job *job, const struct ul_texts *models,
                                    const struct ul_problem *problem)
{
    struct ul_compile *common = &job->compile;
    uint32_t plan_count = job->files.count - 1, refused = 0;
    enum ul_status highest = UL_OK;
    for (uint32_t i = 1; i <= plan_count; i++) {
        struct ul_compile compile;
        const char *path = job->files.items[i];
        ul_compile_init(&compile);
        ul_options_copy(&compile.options.base, &common->options.base, sizeof compile.options);
        enum ul_status status = check_plan(&compile, models, problem, path,
                                           ul_arena_printf(&compile.keep, "%s: ", path));
        if (status != UL_OK)
            ul_cli_say(stderr, "ullage: error: %s\n", compile.diag.text);
        refused += status != UL_OK;
        highest = status > highest ? status : highest;
        ul_compile_done(&compile);
    }
    return refused == 0 ? UL_OK
                        : ul_diag_set(&common->diag, highest, "%u of %u plans %s not accepted",
                                      refused, plan_count, refused == 1 ? "was" : "were");
}

static enum ul_status check(struct ul_cli_job *job)
{
    struct ul_compile *compile = &job->compile;
    const char *const *files = job->files.items;
    struct ul_problem *problem;
    UL_TRY(ul_cli_check_names(job));
    if (job->files.count < 2)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "give a model and a plan: ullage check MODEL.onnx PLAN.json");
    /* One model and its plans, or the models of one plan. */
    const struct ul_texts models = {.count = job->options.shared ? job->files.count - 1 : 1,
                                    .items = job->files.items};
    if (job->options.shared && models.count < 2)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--shared is for a plan of several models: give these, then the plan");
    UL_TRY(ul_cli_read_problem(job, files[0], &problem));
    if (job->files.count > models.count + 1)
        return check_several(job, &models, problem);
    return check_plan(compile, &models, problem, files[models.count], "");
}

static const struct ul_cli_example examples[] = {
    {"A plan that was kept, or edited", "ullage check model.onnx plan.json"}, {NULL, NULL}};

const struct ul_cli_command ul_command_check = {
    .name = "check",
    .arguments = "MODEL.onnx|PROBLEM PLAN... [--const INPUT=FILE] [--shared]",
    .summary = "Checks plans independently of the planner that made them.",
    .details =
        "With --shared all files but the last are models, and the last is their plan. Several "
        "plans are judged one by one, in lines that begin with their names, and the exit code is "
        "the highest of theirs. Some facts of a plan follow from no model and are compared only "
        "with the rest of the plan; check names them: results that a search found; inputs, even "
        "the names of the tool and of the file; and choices, such as how long a range is kept.",
    .group = "models",
    .endings = "",
    .examples = examples,
    .bit = UL_IN_CHECK,
    .run = check};
