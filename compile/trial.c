/* Another compile of the same model with an option changed, to learn what its plan takes. */
#include "compile/compile_internal.h"

struct trial {
    const struct ul_compile *compile;
    const char *what; /* is tried */
    char doing[96];
};

static void tell(void *context, const char *what)
{
    struct trial *trial = context;
    if (what != NULL)
        snprintf(trial->doing, sizeof trial->doing, "%s: %s", trial->what, what);
    ul_compile_progress(trial->compile, what != NULL ? trial->doing : NULL);
}

/* The predicted time of a step: of so many runs, the last of which updates. */
static uint64_t step_cost(struct ul_compile *compile)
{
    const struct ul_plan *plan = &compile->plan;
    uint32_t parts = compile->options.train ? compile->training.micro_batches : 1;
    if (parts <= 1)
        return plan->cost;
    uint64_t cost = 0;
    bool *runs = UL_NEW_ARRAY(&compile->keep, bool, plan->position_count);
    ul_program_mark_entry(compile->program, plan, UL_PROGRAM_ACCUMULATE, &compile->keep, runs);
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct ul_plan_position *at = &plan->positions[p];
        const struct ul_plan_step *step = &compile->program->problem->steps[at->step];
        if (runs[p] && at->substep == 0)
            cost += step->alternatives[at->alternative].cost;
    }
    return plan->cost + (parts - 1) * cost;
}

enum ul_status ul_compile_try(const struct ul_compile *compile, const char *model_path,
                              const char *what,
                              void (*change)(const void *context, struct ul_compile *trial),
                              const void *context, struct ul_compile_tried *tried,
                              struct ul_diag *diag)
{
    struct ul_compile other;
    struct trial trial = {.compile = compile, .what = what};
    *tried = (struct ul_compile_tried){.is_planned = false};
    ul_compile_init(&other);
    ul_options_copy(&other.options.base, &compile->options.base, sizeof other.options);
    other.is_library = compile->is_library;
    other.progress = tell;
    other.progress_context = &trial;
    other.options.stop_after = NULL;
    change(context, &other);
    enum ul_status status = ul_compile_build(&other, model_path);
    tried->has_batch_statistics = other.training.has_batch_statistics;
    if (status == UL_OK)
        status = ul_compile_plan(&other);
    if (status == UL_OK) {
        struct ul_plan_beside beside = ul_compile_beside(&other, other.program);
        const struct ul_block *root = &other.graph.blocks[0];
        tried->is_planned = true;
        tried->needed_bytes = ul_plan_bounded_bytes(&beside, &other.plan);
        tried->step_cost = step_cost(&other);
        tried->repeats = other.plan.cost > other.plan.base_cost;
        if (root->input_count > 0 && other.graph.values[root->inputs[0]].type.rank > 0)
            tried->sample_count = other.graph.values[root->inputs[0]].type.dims[0];
        status = ul_compile_require_fit(&other);
    }
    *diag = other.diag;
    ul_compile_done(&other);
    return status;
}
