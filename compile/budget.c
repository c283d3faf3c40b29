/* Plans under a budget: the ladder when the plan without one is too large, and what stands in the
 * way when nothing fits. */
#include "compile/compile_internal.h"

#include <string.h>

static enum ul_status merge_splits(void *context, const struct ul_plan *plan,
                                   struct ul_plan_ladder *ladder)
{
    struct ul_compile *compile = context;
    UL_ASSERT(ladder == &compile->ladder);
    return ul_compile_merge_splits(compile, plan);
}

static enum ul_status apply_variant(void *context, uint32_t variant,
                                    const struct ul_problem **problem)
{
    struct ul_compile *compile = context;
    UL_TRY(ul_compile_apply_variant(compile, variant));
    *problem = compile->program->problem;
    return UL_OK;
}

static enum ul_status solve(struct ul_compile *compile)
{
    struct ul_plan_options planning = ul_compile_planning(&compile->options);
    planning.beside = ul_compile_beside(compile, compile->program);
    struct ul_plan_variants variants = {
        .context = compile, .merge = merge_splits, .apply = apply_variant};
    return ul_plan_within(&compile->keep, compile->program->problem, &planning, &variants,
                          compile->wants_ladder, &compile->plan, &compile->ladder, &compile->diag);
}

enum ul_status ul_compile_solve(struct ul_compile *compile)
{
    ul_compile_progress(compile, "planning");
    enum ul_status status = solve(compile);
    ul_compile_progress(compile, NULL);
    if (status != UL_OK)
        ul_diag_prefix(&compile->diag, compile->model.path);
    else
        ul_plan_drop_beside(&compile->keep, compile->program->problem, &compile->plan);
    return status;
}

/* ---- What does not fit ---- */

static void put_alive(struct ul_compile *compile, struct ul_text *text)
{
    enum { MAX_NAMED = 6 };
    const struct ul_plan *plan = &compile->plan;
    uint32_t *alive;
    uint64_t others = 0;
    uint32_t count = ul_report_alive(&compile->report, &compile->keep, MAX_NAMED, &alive);
    if (plan->position_count == 0)
        return;
    const struct ul_report_step *peak =
        &compile->report.steps[plan->positions[plan->peak_position].step];
    ul_text_printf(text, "\nIts peak is at step %u, %s; alive there beside %llu bytes of weights:",
                   plan->peak_position, ul_quote(&compile->keep, peak->node),
                   (unsigned long long)plan->rows.class_bytes[UL_PLAN_WEIGHTS]);
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_plan_range *range = &plan->ranges[alive[i]];
        const char *name =
            range->value == UL_PLAN_NONE
                ? "scratch"
                : ul_quote(&compile->keep, compile->report.values[range->value].name);
        if (i < MAX_NAMED)
            ul_text_printf(text, "\n  %12llu  %s", (unsigned long long)range->size_bytes, name);
        else
            others += range->size_bytes;
    }
    if (count > MAX_NAMED)
        ul_text_printf(text, "\n  %12llu  in %u more", (unsigned long long)others,
                       count - MAX_NAMED);
}

enum ul_status ul_compile_require_fit(struct ul_compile *compile)
{
    uint64_t budget = compile->options.budget_bytes;
    struct ul_plan_beside beside = ul_compile_beside(compile, compile->program);
    uint64_t reserved = compile->plan.reserved_bytes[0];
    uint64_t needed = ul_plan_bounded_bytes(&beside, &compile->plan);
    struct ul_text text;
    UL_ASSERT(compile->report.plan == &compile->plan);
    struct ul_plan_options planning = ul_compile_planning(&compile->options);
    UL_TRY(ul_plan_require_methods(&planning, &compile->plan, &compile->diag));
    if (budget == 0 || needed <= budget)
        return UL_OK;
    ul_text_init(&text, &compile->keep);
    ul_text_printf(&text, "%s does not fit the budget: it needs %llu bytes, %llu more than %llu.\n",
                   compile->report.model_name, (unsigned long long)needed,
                   (unsigned long long)(needed - budget), (unsigned long long)budget);
    if (needed != reserved)
        ul_text_printf(&text,
                       "Of these %llu are the buffer (--budget-of arena bounds that alone).\n",
                       (unsigned long long)reserved);
    ul_text_printf(&text, "The smallest budget known to work is %llu bytes",
                   (unsigned long long)compile->plan.smallest_budget_bytes);
    uint64_t floor_bytes = ul_report_floor_bytes(&compile->report);
    if (budget < floor_bytes)
        ul_text_printf(&text, "; it is proven that %llu are needed.",
                       (unsigned long long)floor_bytes);
    else
        ul_text_printf(&text, "; that nothing smaller works is not proven (at least %llu).",
                       (unsigned long long)floor_bytes);
    if (compile->plan.remat_why_not != NULL)
        ul_text_printf(&text, "\n%s",
                       ul_plan_remat_refusal(&compile->keep, &planning, &compile->plan));
    put_alive(compile, &text);
    bool is_f32 = compile->options.precision == UL_PRECISION_F32;
    ul_text_printf(&text, "\nA smaller batch or shape%s%s and --io caller make it smaller.",
                   is_f32 ? ", --precision bf16" : "",
                   ul_target_find(compile->options.target)->traits.has_rom ? ", --weights rom"
                                                                           : "");
    return ul_diag_set(&compile->diag, UL_NO_FIT, "%s", text.data);
}
