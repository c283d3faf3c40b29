/* SPDX-License-Identifier: Apache-2.0 */
/* Several models in one arena.
 *
 * Problem: a budget is for all of them, but what a plan may take depends on what the plans of the
 * others keep between runs, which is known once they are made. Method: each model is planned by a
 * compile of its own, in whose problem the others stand as values that always live (planner/solve/
 * share.c lays them out). Without a budget, once each is enough. With one, each is planned again
 * within it, beside what the others kept so far; where a plan then keeps more than the others were
 * told, so that some do not fit any more, all begin from the smallest plan that each is known to
 * have, and one after the other takes the fastest with which all still fit:
 *
 *     without a budget      what each keeps
 *     within it             done, where all fit
 *     the smallest of each  what they reserve is the smallest budget that is known to work
 *     one after the other   the fastest with which all fit
 *
 * Left undone: trades of one model's kept bytes for another's time beyond that. */
#include "compile/suite.h"
#include "compile/compile_internal.h"

#include <string.h>

/* ---- one model ---- */

struct trial {
    const struct ul_suite *suite;
    uint32_t model;
    char doing[160];
};

static void tell(void *context, const char *what)
{
    struct trial *trial = context;
    if (what != NULL)
        snprintf(trial->doing, sizeof trial->doing, "%.60s: %s",
                 trial->suite->models[trial->model].prefix, what);
    ul_compile_progress(trial->suite->command, what != NULL ? trial->doing : NULL);
}

/* What stands for each model in the plans of this one; for itself the runs of the others, which are
 * known last. */
static void say_others(const struct ul_suite *suite, uint32_t self, struct ul_compile *compile)
{
    for (uint32_t m = 0; m < suite->count; m++) {
        const struct ul_suite_model *model = &suite->models[m];
        struct ul_named_size size = {.name = "runs of other models", .rank = 2};
        if (m != self) {
            size.name = ul_arena_printf(&compile->keep, "kept by %s", model->prefix);
            size.dims[0] = (int64_t)model->kept_bytes;
            size.dims[1] = (int64_t)model->beside_bytes;
        }
        ul_named_sizes_add(&compile->keep, &compile->options.others, &size);
    }
}

static struct ul_compile *new_compile(const struct ul_suite *suite, uint32_t self,
                                      uint64_t budget_bytes, struct trial *trial)
{
    const struct ul_compile *command = suite->command;
    const struct ul_suite_model *model = &suite->models[self];
    struct ul_compile *compile = UL_NEW(&suite->command->keep, struct ul_compile);
    *trial = (struct trial){.suite = suite, .model = self};
    ul_compile_init(compile);
    ul_options_copy(&compile->options.base, &command->options.base, sizeof compile->options);
    compile->options.dims = model->dims;
    compile->options.shapes = model->shapes;
    compile->options.consts = model->consts;
    compile->options.donations = model->donations;
    compile->options.budget_bytes = budget_bytes;
    compile->is_library = true;
    compile->progress = tell;
    compile->progress_context = trial;
    say_others(suite, self, compile);
    return compile;
}

/* The same file compiled again must be the same: it is read anew. */
static enum ul_status plan_model(struct ul_suite *suite, uint32_t self, uint64_t budget_bytes,
                                 struct ul_compile **planned)
{
    struct trial trial;
    struct ul_compile *compile = new_compile(suite, self, budget_bytes, &trial);
    enum ul_status status = ul_compile_build(compile, suite->models[self].path);
    if (status == UL_OK)
        status = ul_compile_plan(compile);
    if (status == UL_OK)
        status = ul_compile_require_methods(compile);
    compile->progress = NULL;
    if (status == UL_OK) {
        *planned = compile;
        return UL_OK;
    }
    suite->command->diag = compile->diag;
    ul_compile_done(compile);
    return status;
}

static void take(struct ul_suite_model *model, struct ul_compile *compile)
{
    if (model->compile != NULL)
        ul_compile_done(model->compile);
    model->compile = compile;
}

/* ---- all of them in one arena ---- */

/* The place in the arena that stands for a model; behind it that of what it has beside. */
static uint32_t place_of(const struct ul_compile *compile, uint32_t model)
{
    return compile->program->first_other + 2 * model;
}

/* Beside the arena, of its own. */
static uint64_t own_beside_bytes(const struct ul_suite *suite, const struct ul_compile *compile)
{
    uint64_t bytes = compile->plan.reserved_bytes[UL_PROGRAM_KEPT];
    for (uint32_t m = 0; m < suite->count; m++)
        bytes -= ul_size_align_or_die(
            compile->program->problem->values[place_of(compile, m) + 1].size_bytes,
            compile->plan.alignment_bytes);
    return bytes;
}

/* What was proven of the cost was so of other bytes of the others. */
static void weaken_bound(const struct ul_problem *problem, struct ul_plan *plan)
{
    if (plan->cost_bound == 0)
        return;
    plan->cost_bound = ul_problem_min_cost(problem);
    plan->cost_bound_method = NULL;
    plan->optimal_within = NULL;
    plan->optimal = plan->fits && plan->cost == plan->cost_bound && problem->base_cost == 0;
}

/* What the plan says of other models becomes what they take, and the plan is checked as any is. */
static enum ul_status update_plan(struct ul_suite *suite, uint32_t self)
{
    struct ul_compile *compile = suite->models[self].compile;
    struct ul_problem *problem = compile->program->problem;
    struct ul_plan *plan = &compile->plan;
    struct ul_plan_beside beside = ul_compile_beside(compile, compile->program);
    uint64_t before = beside.has_spaces ? plan->beside_bytes : 0;
    for (uint32_t m = 0; m < suite->count; m++) {
        uint32_t place = place_of(compile, m);
        uint64_t beside_bytes = m == self ? 0 : suite->models[m].beside_bytes;
        problem->values[place + 1].size_bytes = beside_bytes;
        compile->options.others.items[m].dims[0] = (int64_t)problem->values[place].size_bytes;
        compile->options.others.items[m].dims[1] = (int64_t)beside_bytes;
    }
    ul_plan_place_beside(&compile->keep, problem, plan);
    plan->smallest_budget_bytes += (beside.has_spaces ? plan->beside_bytes : 0) - before;
    plan->bounded_bytes = ul_plan_bounded_bytes(&beside, plan);
    if (plan->smallest_budget_bytes > plan->bounded_bytes)
        plan->smallest_budget_bytes = plan->bounded_bytes;
    ul_plan_judge(problem, suite->command->options.budget_bytes, &beside, plan);
    weaken_bound(problem, plan);
    UL_TRY(ul_plan_check(&compile->scratch, problem, plan, &compile->diag));
    ul_plan_drop_beside(&compile->keep, problem, plan);
    return UL_OK;
}

static enum ul_status check_together(struct ul_suite *suite)
{
    struct ul_arena *arena = &suite->command->scratch;
    const struct ul_problem **problems =
        UL_NEW_ARRAY(arena, const struct ul_problem *, suite->count);
    const struct ul_plan **plans = UL_NEW_ARRAY(arena, const struct ul_plan *, suite->count);
    const char **names = UL_NEW_ARRAY(arena, const char *, suite->count);
    for (uint32_t m = 0; m < suite->count; m++) {
        problems[m] = suite->models[m].compile->program->problem;
        plans[m] = &suite->models[m].compile->plan;
        names[m] = suite->models[m].prefix;
    }
    return ul_plan_check_shared(arena, problems, plans, names, suite->count, &suite->command->diag);
}

/* Lays the plans that there are into one arena. */
static enum ul_status lay_out(struct ul_suite *suite)
{
    struct ul_arena *arena = &suite->command->scratch;
    struct ul_plan_tenant *tenants = UL_NEW_ARRAY(arena, struct ul_plan_tenant, suite->count);
    suite->fits = true;
    for (uint32_t m = 0; m < suite->count; m++) {
        struct ul_suite_model *model = &suite->models[m];
        uint32_t *others = UL_NEW_ARRAY(arena, uint32_t, suite->count);
        for (uint32_t o = 0; o < suite->count; o++)
            others[o] = place_of(model->compile, o);
        tenants[m] = (struct ul_plan_tenant){.problem = model->compile->program->problem,
                                             .plan = &model->compile->plan,
                                             .others = others};
        model->kept_bytes = ul_plan_kept_bytes(tenants[m].problem, tenants[m].plan);
        model->beside_bytes = own_beside_bytes(suite, model->compile);
    }
    ul_plan_share(arena, tenants, suite->count);
    for (uint32_t m = 0; m < suite->count; m++) {
        enum ul_status status = update_plan(suite, m);
        suite->fits = suite->fits && suite->models[m].compile->plan.fits;
        if (status == UL_OK)
            continue;
        suite->command->diag = suite->models[m].compile->diag;
        ul_diag_prefix(&suite->command->diag, suite->models[m].path);
        return status;
    }
    UL_TRY(check_together(suite));
    ul_arena_reset(arena);
    return UL_OK;
}

/* ---- a budget ---- */

static enum ul_status plan_all(struct ul_suite *suite, uint64_t budget_bytes)
{
    for (uint32_t m = 0; m < suite->count; m++) {
        struct ul_compile *compile;
        UL_TRY(plan_model(suite, m, budget_bytes, &compile));
        take(&suite->models[m], compile);
    }
    return lay_out(suite);
}

/* The largest that one of the models, with what the others keep, has of what the budget bounds. */
static uint64_t needed_bytes(const struct ul_suite *suite)
{
    uint64_t max = 0;
    for (uint32_t m = 0; m < suite->count; m++) {
        uint64_t bytes = suite->models[m].compile->plan.bounded_bytes;
        max = bytes > max ? bytes : max;
    }
    return max;
}

/* Of each model the plan of the smallest budget that is known to work beside what the others keep
 * in plans without one: these do not depend on the budget that was asked for. */
static enum ul_status plan_smallest(struct ul_suite *suite)
{
    struct ul_compile **smallest =
        UL_NEW_ARRAY(&suite->command->keep, struct ul_compile *, suite->count);
    enum ul_status status = UL_OK;
    for (uint32_t m = 0; status == UL_OK && m < suite->count; m++) {
        struct ul_compile *tried;
        status = plan_model(suite, m, 1, &tried);
        if (status != UL_OK)
            break;
        uint64_t budget_bytes = tried->plan.smallest_budget_bytes;
        ul_compile_done(tried);
        status = plan_model(suite, m, budget_bytes, &smallest[m]);
    }
    for (uint32_t m = 0; m < suite->count; m++) {
        if (smallest[m] != NULL)
            take(&suite->models[m], smallest[m]);
    }
    UL_TRY(status);
    UL_TRY(lay_out(suite));
    suite->smallest_budget_bytes = needed_bytes(suite);
    return UL_OK;
}

/* One after the other takes the fastest plan with which all still fit. */
static enum ul_status relax(struct ul_suite *suite)
{
    UL_ASSERT(suite->fits);
    for (uint32_t m = 0; m < suite->count; m++) {
        struct ul_suite_model *model = &suite->models[m];
        struct ul_compile *smallest = model->compile;
        UL_TRY(plan_model(suite, m, suite->command->options.budget_bytes, &model->compile));
        enum ul_status status = lay_out(suite);
        bool is_kept = status == UL_OK && suite->fits;
        struct ul_compile *dropped = is_kept ? smallest : model->compile;
        model->compile = is_kept ? model->compile : smallest;
        ul_compile_done(dropped);
        UL_TRY(status);
        if (!is_kept)
            UL_TRY(lay_out(suite));
    }
    return UL_OK;
}

static enum ul_status plan_within(struct ul_suite *suite)
{
    struct ul_suite_model *models = suite->models;
    UL_TRY(plan_all(suite, 0));
    uint64_t budget_bytes = suite->command->options.budget_bytes;
    uint64_t(*kept)[2] = ul_arena_alloc(&suite->command->keep, suite->count * sizeof *kept);
    suite->smallest_budget_bytes = needed_bytes(suite);
    for (uint32_t m = 0; m < suite->count; m++) {
        kept[m][0] = models[m].kept_bytes;
        kept[m][1] = models[m].beside_bytes;
    }
    if (budget_bytes == 0)
        return UL_OK;
    UL_TRY(plan_all(suite, budget_bytes));
    if (suite->fits) {
        suite->smallest_budget_bytes = needed_bytes(suite);
        return UL_OK;
    }
    for (uint32_t m = 0; m < suite->count; m++) {
        models[m].kept_bytes = kept[m][0];
        models[m].beside_bytes = kept[m][1];
    }
    UL_TRY(plan_smallest(suite));
    return suite->fits ? relax(suite) : UL_OK;
}

/* ---- what is said of it ---- */

static void describe(struct ul_suite *suite)
{
    struct ul_arena *arena = &suite->command->keep;
    struct ul_report_member *members = UL_NEW_ARRAY(arena, struct ul_report_member, suite->count);
    for (uint32_t m = 0; m < suite->count; m++) {
        struct ul_suite_model *model = &suite->models[m];
        struct ul_compile *compile = model->compile;
        compile->options.budget_bytes = suite->command->options.budget_bytes;
        ul_compile_describe(compile);
        ul_compile_put_json(compile);
        members[m] = (struct ul_report_member){
            .prefix = model->prefix,
            .report = &compile->report,
            .plan_json = compile->json.data,
            .kept_bytes = model->kept_bytes,
            .room_bytes = compile->program->problem->values[place_of(compile, m)].size_bytes};
    }
    suite->report = (struct ul_report_suite){.count = suite->count,
                                             .members = members,
                                             .fits = suite->fits,
                                             .needed_bytes = needed_bytes(suite),
                                             .smallest_budget_bytes = suite->smallest_budget_bytes};
    ul_text_init(&suite->json, arena);
    ul_report_put_suite_json(&suite->json, &suite->report);
}

enum ul_status ul_suite_plan(struct ul_suite *suite)
{
    UL_ASSERT(suite->models != NULL);
    UL_TRY(plan_within(suite));
    describe(suite);
    return UL_OK;
}

enum ul_status ul_suite_require_fit(struct ul_suite *suite)
{
    struct ul_compile *command = suite->command;
    struct ul_arena *keep = &command->keep;
    uint64_t budget_bytes = command->options.budget_bytes;
    const struct ul_report_suite *report = &suite->report;
    UL_ASSERT(report->members != NULL);
    if (suite->fits)
        return UL_OK;
    struct ul_text text;
    ul_text_init(&text, &command->keep);
    ul_text_printf(
        &text,
        "the models do not fit the budget of %s: together they need %s, %s more.\n"
        "The smallest budget known to work is %s; whether a smaller one works, with steps split or "
        "laid out otherwise, is not known.\n"
        "Of the arena of %s they keep between runs:",
        ul_size_exact(keep, budget_bytes), ul_size_exact(keep, report->needed_bytes),
        ul_size_exact(keep, report->needed_bytes - budget_bytes),
        ul_size_exact(keep, report->smallest_budget_bytes),
        ul_size_exact(keep, ul_report_suite_reserved(report)));
    for (uint32_t m = 0; m < suite->count; m++)
        ul_text_printf(&text, "\n  %10s %13llu bytes  %s",
                       ul_size_format(keep, suite->models[m].kept_bytes),
                       (unsigned long long)suite->models[m].kept_bytes, suite->models[m].path);
    uint32_t largest = ul_report_suite_largest(report);
    const struct ul_report *peak = report->members[largest].report;
    ul_text_printf(&text, "\nThe largest run is that of %s", suite->models[largest].path);
    if (peak->plan->position_count > 0)
        ul_text_printf(
            &text, ", at step %u, %s", peak->plan->peak_position,
            ul_quote(&command->keep, ul_report_step_at(peak, peak->plan->peak_position).node));
    ul_text_put(&text, ".");
    ul_compile_put_remedies(&text, &command->options);
    return ul_diag_set(&command->diag, UL_NO_FIT, "%s", text.data);
}

void ul_suite_done(struct ul_suite *suite)
{
    for (uint32_t m = 0; suite->models != NULL && m < suite->count; m++) {
        if (suite->models[m].compile != NULL)
            ul_compile_done(suite->models[m].compile);
        suite->models[m].compile = NULL;
    }
}
