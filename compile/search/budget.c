/* SPDX-License-Identifier: Apache-2.0 */
/* Plans under a budget: the ladder, when the plan without a budget is too large, with plans of
 * other programs of the model (alternatives.h), and the reasons when nothing fits. */
#include "compile/search/alternatives.h"
#include "compile/search/tries.h"

#include <string.h>

/* ---- Alternatives ---- */

/* Tries all rows, unless the user disabled their pass. */
static enum ul_status try_all(struct ul_alternatives *alternatives)
{
    const struct ul_compile *compile = alternatives->compile;
    for (const struct ul_try *row = ul_tries; row->kind != NULL; row++)
        if (row->vary != NULL && row->applies(compile) &&
            !ul_texts_have(&compile->options.no_passes, row->kind))
            UL_TRY(row->vary(alternatives));
    return UL_OK;
}

static void report_alternatives(const struct ul_alternatives *alternatives)
{
    struct ul_compile *compile = alternatives->compile;
    struct ul_report_alternative *rows =
        UL_NEW_ARRAY(&compile->keep, struct ul_report_alternative, alternatives->count);
    for (uint32_t i = 0; i < alternatives->count; i++) {
        const struct ul_alternative *alternative = &alternatives->items[i];
        const struct ul_alternative_form *form = &alternative->form;
        rows[i] = (struct ul_report_alternative){.split_count = form->splits.count,
                                                 .splits = form->splits.items,
                                                 .row_major_count = form->row_major.count,
                                                 .row_major = form->row_major.items,
                                                 .inside_count = form->inside.count,
                                                 .inside = form->inside.items,
                                                 .process = alternative->process};
        if (alternative->is_adopted)
            ul_compile_describe_alternative(compile, &alternative->graph, alternative->program,
                                            &alternative->plan, &rows[i]);
    }
    compile->report.alternatives = rows;
}

/* Merges the plans of other programs into the ladder; the one that is picked becomes the
 * compile's. */
static enum ul_status choose_alternative(struct ul_compile *compile,
                                         const struct ul_plan_options *planning,
                                         struct ul_plan_rung *rung)
{
    struct ul_alternatives alternatives;
    UL_TRY(ul_alternatives_begin(&alternatives, compile, &rung->plan));
    enum ul_status status = try_all(&alternatives);
    report_alternatives(&alternatives);
    if (status == UL_OK) {
        ul_plan_pick(compile->program->problem, planning, &compile->ladder, rung);
        status = ul_alternatives_adopt(&alternatives, rung->alternative);
    }
    ul_alternatives_end(&alternatives);
    return status;
}

static enum ul_status solve(struct ul_compile *compile)
{
    struct ul_plan_options planning = ul_compile_planning(compile);
    struct ul_plan_rung rung;
    UL_TRY(ul_compile_read_kept(compile, &planning.kept));
    if (compile->options.checkpoint != NULL)
        planning.remat = planning.kept != NULL ? UL_REMAT_KEEP : UL_REMAT_NONE;
    UL_TRY(ul_plan_front(&compile->keep, compile->program->problem, &planning,
                         compile->wants_ladder, &rung, &compile->ladder, &compile->diag));
    /* the values to keep are named by steps of this program, and so are the steps of all sizes */
    if (compile->ladder.count > 0 && planning.kept == NULL &&
        !ul_compile_has_ranges(&compile->options) && planning.pack != UL_PACK_NONE &&
        rung.plan.position_count > 0)
        UL_TRY(choose_alternative(compile, &planning, &rung));
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
    compile->plan.bounded_bytes = ul_plan_bounded_bytes(&planning.overhead, &compile->plan);
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

/* Groups steps that may share a launch. Where there is no room for all of them, fewer may be
 * grouped. */
static enum ul_status gather(struct ul_compile *compile, const struct ul_plan_options *planning)
{
    uint64_t launches = launch_count(compile);
    UL_TRY(gather_kinds(compile, planning, true));
    return launch_count(compile) < launches ? UL_OK : gather_kinds(compile, planning, false);
}

/* Lets branches run at the same time. */
static enum ul_status stream(struct ul_compile *compile, const struct ul_plan_options *planning)
{
    enum { LEAST_PERCENT = 5 };
    const struct ul_program *program = compile->program;
    if (!program->options.target->traits.has_streams ||
        compile->options.streams == UL_STREAMS_ONE || !ul_plan_only_runs(&compile->plan))
        return UL_OK;
    struct ul_plan_streaming streaming =
        ul_program_streaming(program, &compile->plan, &compile->keep);
    streaming.least_percent = compile->options.streams == UL_STREAMS_TWO ? 0 : LEAST_PERCENT;
    return ul_plan_stream(&compile->keep, program->problem, planning, &streaming, &compile->plan,
                          &compile->diag);
}

/* Changes the order of the plan for fewer launches and for streams, unless the user named one. */
static enum ul_status rearrange(struct ul_compile *compile)
{
    const struct ul_plan_options planning = ul_compile_planning(compile);
    if (planning.order != UL_ORDER_BEST || planning.pack == UL_PACK_NONE)
        return UL_OK;
    UL_TRY(gather(compile, &planning));
    return stream(compile, &planning);
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
    ul_footprint_count_overhead(compile->program, ul_compile_is_process(compile));
    return UL_OK;
}

/* What a solve leaves in a compile. */
struct solved {
    struct ul_compile_options options;
    struct ul_graph graph;
    struct ul_program *program;
    struct ul_plan plan;
    struct ul_plan_ladder ladder;
    const struct ul_report_alternative *alternatives;
};

static struct solved keep_solved(const struct ul_compile *compile)
{
    return (struct solved){compile->options, compile->graph,  compile->program,
                           compile->plan,    compile->ladder, compile->report.alternatives};
}

static void restore_solved(struct ul_compile *compile, const struct solved *solved)
{
    compile->options = solved->options;
    compile->graph = solved->graph;
    compile->program = solved->program;
    compile->plan = solved->plan;
    compile->ladder = solved->ladder;
    compile->report.alternatives = solved->alternatives;
}

/* Whether there is a limit, a budget or the room of the spaces, that the plan keeps. */
static bool is_within(const struct ul_compile *compile)
{
    const struct ul_plan_options planning = ul_compile_planning(compile);
    return planning.budget_bytes > 0 &&
           ul_plan_bounded_bytes(&planning.overhead, &compile->plan) <= planning.budget_bytes;
}

/* Whether the plan without pass once, which the compile holds, is better than the one with it. */
static bool is_better_without(const struct ul_compile *compile, const struct solved *with)
{
    const struct ul_plan *plan = &compile->plan;
    if (ul_compile_planning(compile).budget_bytes > 0)
        return is_within(compile) || plan->smallest_budget_bytes < with->plan.smallest_budget_bytes;
    return with->plan.reserved_bytes[0] >
           plan->reserved_bytes[0] + plan->rows.class_bytes[UL_PLAN_WEIGHTS] / UL_ONCE_PART;
}

/* Pass once follows the order of the file and does not know what a library packs: constants that it
 * computes may take more bytes in a plan than the steps that make them. Plans without a budget show
 * whether they take hardly more. What does not fit is tried without the pass. */
static enum ul_status solve_either(struct ul_compile *compile, const struct solved *first)
{
    bool differs = false;
    UL_TRY(solve(compile));
    if (is_within(compile) || compile->options.train || compile->options.pack == UL_PACK_NONE ||
        compile->options.time_limit_seconds > 0 ||
        ul_texts_have(&compile->options.no_passes, "once") ||
        ul_compile_has_ranges(&compile->options) || compile->before_layout.node_count == 0 ||
        !ul_once_has_codes(&compile->before_layout))
        return UL_OK;
    const struct solved with = keep_solved(compile);
    restore_solved(compile, first);
    UL_TRY(build_without_once(compile, &differs));
    if (differs)
        UL_TRY(solve(compile));
    if (!differs || !is_better_without(compile, &with))
        restore_solved(compile, &with);
    return UL_OK;
}

/* Lays the plan out in the spaces, if there are any; tries smaller plans if it does not fit. */
static enum ul_status solve_laid_out(struct ul_compile *compile)
{
    const struct solved first = keep_solved(compile);
    for (uint32_t try = 1;; try++) {
        uint64_t next_bytes;
        UL_TRY(solve_either(compile, &first));
        struct ul_plan_options planning = ul_compile_planning(compile);
        UL_TRY(ul_plan_lay_out(&compile->keep, compile->program->problem, &planning, &compile->plan,
                               &next_bytes, &compile->diag));
        if (next_bytes == 0 || try == UL_LAY_OUT_TRIES)
            return UL_OK;
        restore_solved(compile, &first);
        compile->banks_bytes = next_bytes;
    }
}

enum ul_status ul_compile_solve(struct ul_compile *compile)
{
    ul_compile_progress(compile, "planning");
    enum ul_status status = solve_laid_out(compile);
    if (status == UL_OK)
        status = rearrange(compile);
    if (status == UL_OK) {
        ul_plan_drop_overhead(&compile->keep, compile->program->problem, &compile->plan);
        status = take_spares(compile);
    }
    ul_compile_progress(compile, NULL);
    if (status != UL_OK)
        ul_diag_prefix(&compile->diag, compile->model.path);
    return status;
}

/* ---- Plans that do not fit ---- */

static enum ul_status require_offload(struct ul_compile *compile)
{
    const struct ul_program_offload *offload = &compile->program->options.offload;
    uint64_t reserved = offload->exists ? compile->plan.reserved_bytes[UL_PROGRAM_OFFLOAD] : 0;
    if (offload->capacity_bytes == 0 || reserved <= offload->capacity_bytes)
        return UL_OK;
    return ul_diag_set(&compile->diag, UL_NO_FIT, "%s",
                       ul_report_offload_refusal(&compile->report, reserved,
                                                 offload->capacity_bytes, &compile->keep));
}

/* What makes a plan smaller and was not asked for yet, as far as no plan says it. */
static uint32_t list_remedies(const struct ul_compile_options *options,
                              const char *remedies[UL_REFUSAL_REMEDIES])
{
    bool has_rom = !options->train && options->weights != UL_WEIGHTS_ROM &&
                   ul_target_find(options->target)->traits.has_rom;
    uint32_t count = 0;
    if (options->precision == UL_PRECISION_F32 && !options->no_float)
        remedies[count++] = "--precision bf16";
    if (has_rom)
        remedies[count++] = "--weights rom";
    if (options->train)
        remedies[count++] = "--micro-batches";
    if (options->train && !ul_compile_offloads(options))
        remedies[count++] = "--offload";
    if (options->io != UL_IO_CALLER)
        remedies[count++] = "--io caller";
    return count;
}

static enum ul_status require_spaces(struct ul_compile *compile, struct ul_refusal *refusal)
{
    const struct ul_problem *problem = compile->program->problem;
    if (problem->bank_count == 0 || compile->plan.bank_count > 0)
        return UL_OK;
    refusal->remedy_count = list_remedies(&compile->options, refusal->remedies);
    return ul_diag_set(&compile->diag, UL_NO_FIT, "%s",
                       ul_report_bank_refusal(&compile->report, refusal, compile->sufficient_bytes,
                                              &compile->keep));
}

enum ul_status ul_compile_require_fit(struct ul_compile *compile)
{
    const struct ul_plan_options planning = ul_compile_planning(compile);
    const struct ul_program_offload *offload = &compile->program->options.offload;
    struct ul_refusal refusal = {
        .budget_bytes = compile->options.budget_bytes,
        .needed_bytes = ul_plan_bounded_bytes(&planning.overhead, &compile->plan),
        .offload_budget_bytes = offload->exists ? offload->capacity_bytes : 0,
        .keeps = compile->options.checkpoint != NULL};
    UL_ASSERT(compile->report.plan == &compile->plan);
    UL_TRY(ul_plan_require_methods(&planning, &compile->plan, &compile->diag));
    UL_TRY(require_offload(compile));
    UL_TRY(require_spaces(compile, &refusal));
    if (refusal.budget_bytes == 0 || refusal.needed_bytes <= refusal.budget_bytes)
        return UL_OK;
    if (compile->plan.remat_why_not != NULL)
        refusal.method = ul_plan_remat_refusal(&compile->keep, &planning, &compile->plan);
    refusal.remedy_count = list_remedies(&compile->options, refusal.remedies);
    return ul_diag_set(&compile->diag, UL_NO_FIT, "%s",
                       ul_report_refusal(&compile->report, &refusal, &compile->keep));
}
