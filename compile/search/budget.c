/* SPDX-License-Identifier: Apache-2.0 */
/* Plans under a budget: the ladder, when the plan without a budget is too large, with plans of
 * other programs of the model (variants.h), and the reasons when nothing fits. */
#include "compile/search/variants.h"

#include <string.h>

/* ---- Variants ---- */

static bool is_disabled(const struct ul_compile *compile, const char *pass)
{
    for (uint32_t i = 0; i < compile->options.no_passes.count; i++) {
        if (strcmp(compile->options.no_passes.items[i], pass) == 0)
            return true;
    }
    return false;
}

/* Tries all rows, unless the user disabled their pass. */
static enum ul_status try_all(struct ul_variants *variants)
{
    const struct ul_compile *compile = variants->compile;
    for (const struct ul_try *row = ul_tries; row->kind != NULL; row++)
        if (row->vary != NULL && row->applies(compile) && !is_disabled(compile, row->kind))
            UL_TRY(row->vary(variants));
    return UL_OK;
}

static void report_variants(const struct ul_variants *variants)
{
    struct ul_compile *compile = variants->compile;
    struct ul_report_variant *rows =
        UL_NEW_ARRAY(&compile->keep, struct ul_report_variant, variants->count);
    for (uint32_t i = 0; i < variants->count; i++) {
        const struct ul_variant *variant = &variants->items[i];
        const struct ul_variation *variation = &variant->variation;
        rows[i] = (struct ul_report_variant){.split_count = variation->splits.count,
                                             .splits = variation->splits.items,
                                             .row_major_count = variation->row_major.count,
                                             .row_major = variation->row_major.items,
                                             .inside_count = variation->inside.count,
                                             .inside = variation->inside.items,
                                             .process = variants->processes[i]};
        if (variant->arena == &compile->keep)
            ul_compile_describe_variant(compile, &variant->graph, variant->program, &variant->plan,
                                        &rows[i]);
    }
    compile->report.variants = rows;
}

/* Merges the plans of other programs into the ladder; the one that is picked becomes the
 * compile's. */
static enum ul_status choose_variant(struct ul_compile *compile,
                                     const struct ul_plan_options *planning,
                                     struct ul_plan_rung *rung)
{
    struct ul_variants variants;
    UL_TRY(ul_variants_begin(&variants, compile, &rung->plan));
    enum ul_status status = try_all(&variants);
    report_variants(&variants);
    if (status == UL_OK) {
        ul_plan_pick(compile->program->problem, planning, &compile->ladder, rung);
        status = ul_variants_adopt(&variants, rung->variant);
    }
    ul_variants_end(&variants);
    return status;
}

static enum ul_status solve(struct ul_compile *compile)
{
    struct ul_plan_options planning = ul_compile_planning(compile);
    struct ul_plan_rung rung;
    planning.beside = ul_compile_beside(compile, compile->program);
    UL_TRY(ul_compile_read_kept(compile, &planning.kept));
    if (compile->options.checkpoint != NULL)
        planning.remat = planning.kept != NULL ? UL_REMAT_KEEP : UL_REMAT_NONE;
    UL_TRY(ul_plan_front(&compile->keep, compile->program->problem, &planning,
                         compile->wants_ladder, &rung, &compile->ladder, &compile->diag));
    /* the values to keep are named by steps of this program */
    if (compile->ladder.count > 0 && planning.kept == NULL && planning.pack != UL_PACK_NONE &&
        rung.plan.position_count > 0)
        UL_TRY(choose_variant(compile, &planning, &rung));
    else
        ul_plan_pick(compile->program->problem, &planning, &compile->ladder, &rung);
    ul_plan_finish(compile->program->problem, &planning, &rung);
    compile->plan = rung.plan;
    return UL_OK;
}

/* Gives free scratch to steps that can use it. Without reuse nothing is free: there they run as in
 * the plan with reuse, so that the bits are the same. */
static enum ul_status take_spares(struct ul_compile *compile)
{
    const struct ul_problem *problem = compile->program->problem;
    struct ul_plan_options planning = ul_compile_planning(compile);
    struct ul_plan_beside beside = ul_compile_beside(compile, compile->program);
    bool has_spares = false;
    for (uint32_t s = 0; s < problem->step_count; s++)
        has_spares = has_spares || problem->steps[s].spare_count > 0;
    if (!has_spares)
        return UL_OK;
    if (planning.pack != UL_PACK_NONE)
        return ul_plan_take_spares(&compile->keep, problem, &compile->plan, &compile->diag);
    planning.pack = UL_PACK_BEST;
    UL_TRY(ul_plan_solve(&compile->keep, problem, &planning, &compile->plan, &compile->diag));
    UL_TRY(ul_plan_take_spares(&compile->keep, problem, &compile->plan, &compile->diag));
    UL_TRY(ul_plan_unfold(&compile->keep, problem, &compile->plan, &compile->diag));
    compile->plan.bounded_bytes = ul_plan_bounded_bytes(&beside, &compile->plan);
    compile->plan.smallest_budget_bytes = compile->plan.bounded_bytes;
    return UL_OK;
}

static uint64_t launch_count(const struct ul_compile *compile)
{
    struct ul_program_launches launches;
    ul_program_count_launches(compile->program, &compile->plan, &launches);
    return launches.launch_count;
}

/* Groups steps that may share a launch; `teams`: also those whose kernels have teams. */
static enum ul_status gather_kinds(struct ul_compile *compile,
                                   const struct ul_plan_options *planning, bool teams)
{
    const struct ul_plan *plan = &compile->plan;
    uint32_t *kinds = UL_NEW_ARRAY(&compile->keep, uint32_t, plan->position_count);
    bool is_any = false;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        kinds[p] = ul_program_join_kind(compile->program, &plan->positions[p], teams);
        is_any = is_any || kinds[p] != 0;
    }
    const struct ul_plan_gathering gathering = {.kinds = kinds, .most = UL_PROGRAM_JOINED};
    return is_any ? ul_plan_gather(&compile->keep, compile->program->problem, planning, &gathering,
                                   &compile->plan, &compile->diag)
                  : UL_OK;
}

/* Sets the bytes that a budget bounds, for a plan that had reserved so many bytes before it was
 * rearranged. */
static void set_bounded(struct ul_compile *compile, uint64_t reserved_bytes)
{
    struct ul_plan_beside beside = ul_compile_beside(compile, compile->program);
    struct ul_plan *plan = &compile->plan;
    if (plan->reserved_bytes[0] == reserved_bytes)
        return;
    plan->bounded_bytes = ul_plan_bounded_bytes(&beside, plan);
    if (plan->bounded_bytes < plan->smallest_budget_bytes)
        plan->smallest_budget_bytes = plan->bounded_bytes;
}

/* Groups steps that may share a launch, unless the user named an order. Where there is no room for
 * all of them, fewer may be grouped. */
static enum ul_status gather(struct ul_compile *compile)
{
    const struct ul_plan_options planning = ul_compile_planning(compile);
    const struct ul_plan *plan = &compile->plan;
    if (planning.order != UL_ORDER_BEST || planning.pack == UL_PACK_NONE)
        return UL_OK;
    uint64_t reserved_bytes = plan->reserved_bytes[0], launches = launch_count(compile);
    UL_TRY(gather_kinds(compile, &planning, true));
    if (launch_count(compile) >= launches)
        UL_TRY(gather_kinds(compile, &planning, false));
    set_bounded(compile, reserved_bytes);
    return UL_OK;
}

/* Lets branches run at the same time, unless the user named an order. */
static enum ul_status stream(struct ul_compile *compile)
{
    enum { LEAST_PERCENT = 5 };
    const struct ul_plan_options planning = ul_compile_planning(compile);
    const struct ul_plan *plan = &compile->plan;
    const struct ul_program *program = compile->program;
    if (!program->options.target->traits.has_streams || planning.order != UL_ORDER_BEST ||
        planning.pack == UL_PACK_NONE || compile->options.streams == UL_STREAMS_ONE ||
        !ul_plan_only_runs(plan))
        return UL_OK;
    struct ul_plan_streaming streaming = ul_program_streaming(program, plan, &compile->keep);
    uint64_t reserved_bytes = plan->reserved_bytes[0];
    streaming.least_percent = compile->options.streams == UL_STREAMS_TWO ? 0 : LEAST_PERCENT;
    UL_TRY(ul_plan_stream(&compile->keep, program->problem, &planning, &streaming, &compile->plan,
                          &compile->diag));
    set_bounded(compile, reserved_bytes);
    return UL_OK;
}

static bool is_within(const struct ul_compile *compile)
{
    struct ul_plan_beside beside = ul_compile_beside(compile, compile->program);
    uint64_t budget = compile->options.budget_bytes;
    return budget == 0 || ul_plan_bounded_bytes(&beside, &compile->plan) <= budget;
}

/* Counts the nodes of all roots, without those of nested blocks. */
static uint32_t count_nodes(const struct ul_graph *graph)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < graph->root_count; r++)
        count += graph->blocks[r].node_count;
    return count;
}

/* Builds the program without pass once. `differs`: it is another program; else nothing is built. */
static enum ul_status build_without_once(struct ul_compile *compile, bool *differs)
{
    const uint32_t before = count_nodes(&compile->graph);
    struct ul_program_options options = compile->program->options;
    struct ul_graph *graph = UL_NEW(&compile->keep, struct ul_graph);
    ul_texts_add(&compile->keep, &compile->options.no_passes, "once");
    UL_TRY(ul_compile_lay_out(compile, &compile->keep, graph, &compile->options.row_major,
                              &compile->diag));
    *differs = count_nodes(graph) != before;
    if (!*differs)
        return UL_OK;
    compile->graph = *graph;
    UL_TRY(ul_program_build(&compile->keep, &compile->graph, &options, &compile->program,
                            &compile->diag));
    ul_compile_count_beside(compile, compile->program);
    return UL_OK;
}

/* What a solve leaves in a compile. */
struct solved {
    struct ul_compile_options options;
    struct ul_graph graph;
    struct ul_program *program;
    struct ul_plan plan;
    struct ul_plan_ladder ladder;
    const struct ul_report_variant *variants;
};

static struct solved keep_solved(const struct ul_compile *compile)
{
    return (struct solved){compile->options, compile->graph,  compile->program,
                           compile->plan,    compile->ladder, compile->report.variants};
}

static void restore_solved(struct ul_compile *compile, const struct solved *solved)
{
    compile->options = solved->options;
    compile->graph = solved->graph;
    compile->program = solved->program;
    compile->plan = solved->plan;
    compile->ladder = solved->ladder;
    compile->report.variants = solved->variants;
}

/* Whether the plan without pass once, which the compile holds, is better than the one with it. */
static bool is_better_without(const struct ul_compile *compile, const struct solved *with)
{
    const struct ul_plan *plan = &compile->plan;
    if (compile->options.budget_bytes > 0)
        return is_within(compile) || plan->smallest_budget_bytes < with->plan.smallest_budget_bytes;
    return with->plan.reserved_bytes[0] >
           plan->reserved_bytes[0] + plan->rows.class_bytes[UL_PLAN_WEIGHTS] / UL_ONCE_PART;
}

/* Pass once follows the order of the file and does not know what a library packs: constants that it
 * computes may take more bytes in a plan than the steps that make them. Plans without a budget show
 * whether they take hardly more. What does not fit is tried without the pass. */
static enum ul_status solve_either(struct ul_compile *compile)
{
    const struct solved first = keep_solved(compile);
    bool differs = false;
    UL_TRY(solve(compile));
    if ((compile->options.budget_bytes > 0 && is_within(compile)) || compile->options.train ||
        compile->options.pack == UL_PACK_NONE || compile->options.time_limit_seconds > 0 ||
        is_disabled(compile, "once") || compile->before_layout.node_count == 0 ||
        !ul_once_has_codes(&compile->before_layout))
        return UL_OK;
    const struct solved with = keep_solved(compile);
    restore_solved(compile, &first);
    UL_TRY(build_without_once(compile, &differs));
    if (differs)
        UL_TRY(solve(compile));
    if (!differs || !is_better_without(compile, &with))
        restore_solved(compile, &with);
    return UL_OK;
}

enum ul_status ul_compile_solve(struct ul_compile *compile)
{
    ul_compile_progress(compile, "planning");
    enum ul_status status = solve_either(compile);
    if (status == UL_OK)
        status = gather(compile);
    if (status == UL_OK)
        status = stream(compile);
    if (status == UL_OK) {
        ul_plan_drop_beside(&compile->keep, compile->program->problem, &compile->plan);
        status = take_spares(compile);
    }
    ul_compile_progress(compile, NULL);
    if (status != UL_OK)
        ul_diag_prefix(&compile->diag, compile->model.path);
    return status;
}

/* ---- Plans that do not fit ---- */

/* "    12.34 MiB      12939428 bytes  what" */
static void put_size(struct ul_text *text, uint64_t bytes, const char *what)
{
    ul_text_printf(text, "\n  %10s %13llu bytes  %s", ul_size_format(text->arena, bytes),
                   (unsigned long long)bytes, what);
}

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
    uint64_t state_bytes = plan->rows.class_bytes[UL_PLAN_OPTIMIZER];
    uint64_t always_bytes = plan->rows.class_bytes[UL_PLAN_WEIGHTS] + state_bytes;
    ul_text_printf(text, "\nIts peak is at step %u, %s; alive there", plan->peak_position,
                   ul_quote(&compile->keep, peak->node));
    if (always_bytes > 0)
        ul_text_printf(text, " beside %s of weights%s", ul_size_exact(&compile->keep, always_bytes),
                       state_bytes > 0 ? " and optimizer's state" : "");
    ul_text_put(text, ":");
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_plan_range *range = &plan->ranges[alive[i]];
        const char *name =
            range->value == UL_PLAN_NONE
                ? "scratch"
                : ul_quote(&compile->keep, compile->report.values[range->value].name);
        if (i < MAX_NAMED)
            put_size(text, range->size_bytes, name);
        else
            others += range->size_bytes;
    }
    if (count > MAX_NAMED)
        put_size(text, others, ul_arena_printf(text->arena, "in %u more", count - MAX_NAMED));
}

/* UL_NO_FIT with why, where a method that was named does not serve. */
static enum ul_status require_methods(struct ul_compile *compile)
{
    struct ul_plan_options planning = ul_compile_planning(compile);
    return ul_plan_require_methods(&planning, &compile->plan, &compile->diag);
}

static enum ul_status require_offload(struct ul_compile *compile)
{
    const struct ul_program_offload *offload = &compile->program->options.offload;
    uint64_t reserved = offload->exists ? compile->plan.reserved_bytes[UL_PROGRAM_OFFLOAD] : 0;
    if (offload->capacity_bytes == 0 || reserved <= offload->capacity_bytes)
        return UL_OK;
    return ul_diag_set(&compile->diag, UL_NO_FIT,
                       "%s does not fit: it offloads %s, %s more than --offload-budget",
                       compile->report.facts.model, ul_size_exact(&compile->keep, reserved),
                       ul_size_exact(&compile->keep, reserved - offload->capacity_bytes));
}

/* Says what would help other than a larger budget, where offloaded values are bounded. */
static void put_room(struct ul_compile *compile, struct ul_text *text)
{
    const struct ul_program_offload *offload = &compile->program->options.offload;
    uint64_t room = compile->plan.sufficient_room_bytes;
    if (!offload->exists || offload->capacity_bytes == 0)
        return;
    if (room > 0)
        ul_text_printf(
            text,
            "\nThat is with --offload-budget %llu: with --offload-budget %llu (%s) a plan "
            "is within the budget.",
            (unsigned long long)offload->capacity_bytes, (unsigned long long)room,
            ul_size_format(text->arena, room));
    else
        ul_text_printf(text,
                       "\nThat is with --offload-budget %llu: no more of it is known to meet the "
                       "budget.",
                       (unsigned long long)offload->capacity_bytes);
}

/* Says how far the plan is from fitting, and which budgets are known to work or not to work. */
static void put_shortfall(struct ul_compile *compile, struct ul_text *text, uint64_t needed)
{
    struct ul_arena *keep = &compile->keep;
    uint64_t budget = compile->options.budget_bytes, reserved = compile->plan.reserved_bytes[0];
    uint64_t floor_bytes = ul_report_floor_bytes(&compile->report);
    ul_text_printf(text, "%s does not fit the budget of %s: it needs %s, %s more.\n",
                   compile->report.facts.model, ul_size_exact(keep, budget),
                   ul_size_exact(keep, needed), ul_size_exact(keep, needed - budget));
    if (needed != reserved)
        ul_text_printf(text, "The buffer is %s of these (--budget-of arena bounds only that).\n",
                       ul_size_exact(keep, reserved));
    ul_text_printf(text, "The smallest budget known to work is %s",
                   ul_size_exact(keep, compile->plan.smallest_budget_bytes));
    if (budget < floor_bytes) {
        ul_text_printf(text, "; it is proven that at least %s are needed.",
                       ul_size_exact(keep, floor_bytes));
    } else {
        /* The report can only say that no plan of this program is smaller. */
        ul_text_put(text, "; whether a smaller one works, with steps split or laid out otherwise, "
                          "is not known");
        if (floor_bytes > 0)
            ul_text_printf(text, ", but none below %s does", ul_size_exact(keep, floor_bytes));
        ul_text_put(text, ".");
    }
}

/* A line of what makes a plan smaller and was not asked for yet, as far as no plan says it. */
static void put_remedies(struct ul_text *text, const struct ul_compile_options *options)
{
    bool has_rom = !options->train && options->weights != UL_WEIGHTS_ROM &&
                   ul_target_find(options->target)->traits.has_rom;
    const char *const remedies[] = {
        options->precision == UL_PRECISION_F32 && !options->no_float ? "--precision bf16" : NULL,
        has_rom ? "--weights rom" : NULL, options->train ? "--micro-batches" : NULL,
        options->train && !ul_compile_offloads(options) ? "--offload" : NULL,
        options->io != UL_IO_CALLER ? "--io caller" : NULL};
    enum { REMEDIES = sizeof remedies / sizeof *remedies };
    uint32_t left = 0, put = 0;
    for (uint32_t i = 0; i < REMEDIES; i++)
        left += remedies[i] != NULL;
    ul_text_put(text, "\nA smaller batch or shape");
    for (uint32_t i = 0; i < REMEDIES; i++)
        if (remedies[i] != NULL)
            ul_text_printf(text, "%s%s", ++put == left ? " and " : ", ", remedies[i]);
    ul_text_put(text, left > 0 ? " make it smaller." : " makes it smaller.");
}

enum ul_status ul_compile_require_fit(struct ul_compile *compile)
{
    uint64_t budget = compile->options.budget_bytes;
    struct ul_plan_beside beside = ul_compile_beside(compile, compile->program);
    uint64_t needed = ul_plan_bounded_bytes(&beside, &compile->plan);
    struct ul_text text;
    UL_ASSERT(compile->report.plan == &compile->plan);
    struct ul_plan_options planning = ul_compile_planning(compile);
    UL_TRY(require_methods(compile));
    UL_TRY(require_offload(compile));
    if (budget == 0 || needed <= budget)
        return UL_OK;
    ul_text_init(&text, &compile->keep);
    put_shortfall(compile, &text, needed);
    put_room(compile, &text);
    if (compile->plan.remat_why_not != NULL)
        ul_text_printf(&text, "\n%s",
                       ul_plan_remat_refusal(&compile->keep, &planning, &compile->plan));
    if (compile->options.checkpoint != NULL)
        ul_text_put(&text,
                    "\nThat is with what --checkpoint keeps: without it the planner chooses.");
    put_alive(compile, &text);
    put_remedies(&text, &compile->options);
    return ul_diag_set(&compile->diag, UL_NO_FIT, "%s", text.data);
}
