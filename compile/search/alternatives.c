/* SPDX-License-Identifier: Apache-2.0 */
/* Alternatives of a program, and the ladders of all of them as one.
 *
 * Problem: choosing the layout of a graph, the chains to split and the work inside products is a
 * search over programs, and each program has to be lowered and planned to be judged. Method:
 * splits.c, layouts.c and inside.c say what to try. The plans of all alternatives are merged into
 * the ladder, and alternatives at the front also add rungs with recomputation. */
#include "compile/search/alternatives.h"
#include "planner/model/optional.h"

#include <string.h>

enum {
    MAX_LADDERS = 4,        /* alternatives that are also searched with recomputation */
    MAX_STEPS = 100 * 1000, /* in all alternatives together */
    WORK_SHARE = 8          /* with many alternatives, each search gets this much less */
};

/* Leaves what remains of a time limit for the next part of the search; false: nothing remains. */
bool ul_alternatives_have_time(struct ul_alternatives *alternatives)
{
    if (alternatives->effort.deadline_seconds <= 0)
        return true;
    alternatives->planning.time_limit_seconds =
        ul_deadline_left(alternatives->effort.deadline_seconds);
    alternatives->effort.stopped_by_time |= alternatives->planning.time_limit_seconds <= 0;
    return alternatives->planning.time_limit_seconds > 0;
}

static uint64_t reserved_of(const struct ul_alternative *alternative)
{
    return alternative->lean.reserved_bytes[0];
}

/* Smaller, or as small and cheaper. */
static bool is_better(const struct ul_alternative *a, const struct ul_alternative *b)
{
    if (reserved_of(a) != reserved_of(b))
        return reserved_of(a) < reserved_of(b);
    return a->lean.cost < b->lean.cost;
}

/* ---- One alternative ---- */

/* The alternative of a step with the least scratch, the first of those that read the same optional
 * values as the first. */
static uint32_t leanest_of(const struct ul_problem *problem, const struct ul_plan_step *step)
{
    uint32_t leanest = 0;
    for (uint32_t a = 1; a < step->alternative_count; a++) {
        if (step->alternatives[a].substeps[0].scratch_bytes <
                step->alternatives[leanest].substeps[0].scratch_bytes &&
            ul_optional_is_alike(problem, &step->alternatives[0], &step->alternatives[a]))
            leanest = a;
    }
    return leanest;
}

/* The planner's options for an alternative's plan without a budget. */
static struct ul_plan_options plan_options(const struct ul_alternatives *alternatives,
                                           const struct ul_problem *problem)
{
    enum { WORK_PER_STEP = 512 };
    struct ul_plan_options planning = alternatives->planning;
    if (planning.order == UL_ORDER_BEST) /* a method that is named has to find something */
        planning.work_limit =
            UL_WORK_ORDER / WORK_SHARE + WORK_PER_STEP * (uint64_t)problem->step_count;
    return planning;
}

/* Shows what splits can reach where scratch does not hide it. */
static enum ul_status plan_lean(struct ul_alternatives *alternatives, struct ul_arena *arena,
                                struct ul_alternative *alternative, struct ul_diag *diag)
{
    struct ul_problem lean = *alternative->program->problem;
    bool differs = false;
    lean.steps = ul_arena_copy(arena, lean.steps, lean.step_count * sizeof *lean.steps);
    lean.base_cost = alternative->plan.base_cost;
    for (uint32_t s = 0; s < lean.step_count; s++) {
        differs = differs || lean.steps[s].alternative_count > 1;
        lean.steps[s].alternatives += leanest_of(&lean, &lean.steps[s]);
        lean.steps[s].alternative_count = 1;
        lean.steps[s].spare_count = 0;
    }
    alternative->lean = alternative->plan;
    if (!differs)
        return UL_OK;
    const struct ul_plan_options planning = plan_options(alternatives, &lean);
    UL_TRY(ul_plan_unlimited(arena, &lean, &planning, &alternative->lean, diag));
    for (uint32_t p = 0; p < alternative->lean.position_count; p++) {
        struct ul_plan_position *at = &alternative->lean.positions[p];
        at->alternative = leanest_of(alternative->program->problem,
                                     &alternative->program->problem->steps[at->step]);
    }
    /* Bounds are those of all alternatives of steps. */
    alternative->lean.lower_bound_bytes = alternative->plan.lower_bound_bytes;
    uint64_t orders = alternative->plan.orders_lower_bound_bytes;
    uint64_t own = alternative->lean.order_lower_bound_bytes;
    alternative->lean.orders_lower_bound_bytes = orders < own ? orders : own;
    alternative->lean.optimal =
        alternative->lean.reserved_bytes[0] == alternative->lean.lower_bound_bytes;
    return UL_OK;
}

static bool is_same(const struct ul_texts *a, const struct ul_texts *b)
{
    bool same = a->count == b->count;
    for (uint32_t i = 0; same && i < a->count; i++)
        same = strcmp(a->items[i], b->items[i]) == 0;
    return same;
}

/* The alternative with these texts, or NULL. */
static struct ul_alternative *find(const struct ul_alternatives *alternatives,
                                   const struct ul_alternative_form *wanted)
{
    for (uint32_t i = 0; i < alternatives->count; i++) {
        const struct ul_alternative_form *form = &alternatives->items[i].form;
        if (is_same(&form->row_major, &wanted->row_major) &&
            is_same(&form->splits, &wanted->splits) && is_same(&form->inside, &wanted->inside))
            return &alternatives->items[i];
    }
    return NULL;
}

/* The alternative with the same layout, not split and with nothing inside. */
static struct ul_alternative *find_unsplit(const struct ul_alternatives *alternatives,
                                           const struct ul_alternative_form *form)
{
    const struct ul_alternative_form unsplit = {.row_major = form->row_major};
    return find(alternatives, &unsplit);
}

static enum ul_status build_alternative(struct ul_alternatives *alternatives,
                                        struct ul_alternative *alternative, struct ul_diag *diag)
{
    struct ul_compile *compile = alternatives->compile;
    struct ul_arena *arena = &alternative->arena;
    struct ul_graph *graph = &alternative->graph;
    const struct ul_alternative_form *form = &alternative->form;
    const struct ul_alternative *unsplit = find_unsplit(alternatives, form);
    struct ul_program_options options = compile->program->options;
    UL_ASSERT(unsplit != NULL || form->splits.count + form->inside.count == 0);
    if (options.baseline == NULL)
        options.baseline = compile->program;
    options.unsplit = unsplit == NULL ? NULL : unsplit->program;
    if (unsplit == NULL)
        UL_TRY(ul_compile_lay_out(compile, arena, graph, &form->row_major, diag));
    else
        ul_graph_copy(graph, arena, &unsplit->graph);
    UL_TRY(ul_compile_move_inside(compile, graph, &form->inside, diag));
    UL_TRY(ul_compile_split(compile, graph, &form->splits, diag));
    UL_TRY(ul_program_build(arena, graph, &options, &alternative->program, diag));
    const struct ul_problem *problem = alternative->program->problem;
    const struct ul_plan_options planning = plan_options(alternatives, problem);
    UL_TRY(ul_plan_unlimited(arena, problem, &planning, &alternative->plan, diag));
    return plan_lean(alternatives, arena, alternative, diag);
}

/* Makes an alternative's memory the compile's. */
static void adopt_memory(struct ul_compile *compile, struct ul_alternative *alternative)
{
    if (alternative->is_adopted)
        return;
    UL_GROW(&compile->keep, compile->adopted, compile->adopted_count, compile->adopted_capacity);
    compile->adopted[compile->adopted_count++] = &alternative->arena;
    alternative->is_adopted = true;
}

enum ul_status ul_alternatives_try(struct ul_alternatives *alternatives,
                                   const struct ul_alternative_form *form)
{
    struct ul_alternative *alternative = &alternatives->items[alternatives->count];
    struct ul_diag diag = {0};
    if (find(alternatives, form) != NULL || alternatives->count == UL_MAX_ALTERNATIVES ||
        alternatives->steps > MAX_STEPS)
        return UL_OK;
    *alternative = (struct ul_alternative){.form = *form};
    ul_arena_init(&alternative->arena);
    enum ul_status status = build_alternative(alternatives, alternative, &diag);
    if (status == UL_OK) {
        alternatives->steps += alternative->program->step_count;
        alternatives->count++;
        if (form->inside.count > 0)
            adopt_memory(alternatives->compile, alternative);
        return UL_OK;
    }
    ul_arena_done(&alternative->arena);
    if (status == UL_UNSUPPORTED || status == UL_USAGE)
        return UL_OK;
    alternatives->compile->diag = diag;
    return status;
}

/* ---- One ladder ---- */

/* Whether no other alternative is as small and as cheap. */
static bool is_in_front(const struct ul_alternatives *alternatives, uint32_t index)
{
    const struct ul_alternative *alternative = &alternatives->items[index];
    for (uint32_t i = 0; i < alternatives->count; i++) {
        const struct ul_alternative *other = &alternatives->items[i];
        bool as_good = reserved_of(other) <= reserved_of(alternative) &&
                       other->lean.cost <= alternative->lean.cost;
        bool better = reserved_of(other) < reserved_of(alternative) ||
                      other->lean.cost < alternative->lean.cost || i < index;
        if (i != index && as_good && better)
            return false;
    }
    return true;
}

/* Counts what an alternative takes outside its buffer, on which its ladders depend. The compile
 * keeps ladders longer than the alternatives' arenas, so it gets the plans from which they are
 * made. */
static void count_alternative(struct ul_alternatives *alternatives, uint32_t index)
{
    struct ul_compile *compile = alternatives->compile;
    struct ul_alternative *alternative = &alternatives->items[index];
    const struct ul_program *program = alternative->program;
    struct ul_plan *plans[] = {&alternative->plan, &alternative->lean};
    bool is_process = ul_compile_is_process(compile);
    if (index > 0)
        ul_footprint_count_overhead(program, is_process);
    alternative->process = ul_footprint_overhead(program, is_process);
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        *plans[i] = ul_plan_keep(&compile->keep, program->problem, plans[i]);
        ul_plan_place_overhead(&compile->keep, program->problem, plans[i]);
    }
}

/* Whether a method of recomputation that was named can be used for the alternative: no other may
 * replace it, and the plans record that it was asked for. */
static bool is_served(struct ul_alternatives *alternatives, struct ul_alternative *alternative)
{
    struct ul_arena *keep = &alternatives->compile->keep;
    const struct ul_problem *problem = alternative->program->problem;
    if (ul_ladder_refusal(keep, problem, &alternatives->planning, &alternative->plan) != NULL)
        return false;
    alternative->lean.remat_method = alternative->plan.remat_method;
    return true;
}

/* The bytes below which plans of an alternative with light work inside may be useful: with more
 * room, recomputation takes less time. The ends of the ladder are the same for every budget. */
static uint64_t deep_bytes(const struct ul_plan_ladder *ladder)
{
    enum { DEEP = 8 };
    UL_ASSERT(ladder->count > 0);
    uint64_t first = ul_rung_bytes(&ladder->rungs[0]);
    uint64_t last = ul_rung_bytes(&ladder->rungs[ladder->count - 1]);
    return last + (first - last) / DEEP;
}

/* Merges an alternative's plan with the same order and fewer optional values, or, if it `repeats`
 * steps, with recomputations. */
static enum ul_status merge_plan(struct ul_alternatives *alternatives, uint32_t index,
                                 const struct ul_plan *plan, bool repeats)
{
    struct ul_compile *compile = alternatives->compile;
    const struct ul_alternative *alternative = &alternatives->items[index];
    const struct ul_problem *problem = alternative->program->problem;
    struct ul_plan_ladder ladder = {.count = 0};
    if (!ul_alternatives_have_time(alternatives))
        return UL_OK;
    struct ul_plan_options planning = alternatives->planning;
    planning.overhead = ul_compile_overhead(compile, alternative->program);
    if (repeats) {
        planning.budget_bytes = alternatives->budget_bytes;
        if (alternative->form.inside.count > 0)
            planning.below_bytes = deep_bytes(&compile->ladder);
        UL_TRY(ul_ladder_build(&compile->keep, problem, &planning, plan, &ladder, &compile->diag));
    } else {
        UL_TRY(ul_ladder_spread(&compile->keep, problem, &planning, plan, &compile->ladder, &ladder,
                                &compile->diag));
    }
    ul_ladder_merge(&compile->keep, &compile->ladder, &ladder, index);
    return UL_OK;
}

static enum ul_status merge_plans(struct ul_alternatives *alternatives, uint32_t index)
{
    const struct ul_alternative *alternative = &alternatives->items[index];
    count_alternative(alternatives, index);
    UL_TRY(merge_plan(alternatives, index, &alternative->plan, false));
    return merge_plan(alternatives, index, &alternative->lean, false);
}

enum ul_status ul_alternatives_add(struct ul_alternatives *alternatives,
                                   const struct ul_alternative_form *form)
{
    uint32_t index = alternatives->count;
    if (!ul_alternatives_have_time(alternatives))
        return UL_OK;
    UL_TRY(ul_alternatives_try(alternatives, form));
    if (alternatives->count == index || !is_served(alternatives, &alternatives->items[index]))
        return UL_OK;
    UL_TRY(merge_plans(alternatives, index));
    return merge_plan(alternatives, index, &alternatives->items[index].plan, true);
}

enum ul_status ul_alternatives_merge_front(struct ul_alternatives *alternatives)
{
    const struct ul_alternative *items = alternatives->items;
    uint32_t *front = alternatives->front, count = 0;
    for (uint32_t i = 1; i < alternatives->count; i++) {
        if (!is_in_front(alternatives, i) || !is_served(alternatives, &alternatives->items[i]))
            continue;
        uint32_t at = count++;
        for (; at > 0 && is_better(&items[i], &items[front[at - 1]]); at--)
            front[at] = front[at - 1];
        front[at] = i;
        UL_TRY(merge_plans(alternatives, i));
    }
    uint32_t ladders = count < MAX_LADDERS ? count : MAX_LADDERS;
    for (uint32_t i = 0; i < ladders; i++) {
        uint32_t index = front[(uint64_t)i * (count - 1) / (ladders < 2 ? 1 : ladders - 1)];
        UL_TRY(merge_plan(alternatives, index, &items[index].plan, true));
    }
    alternatives->front_count = count;
    return UL_OK;
}

enum ul_status ul_alternatives_begin(struct ul_alternatives *alternatives,
                                     struct ul_compile *compile, const struct ul_plan *free_plan)
{
    *alternatives =
        (struct ul_alternatives){.compile = compile, .planning = ul_compile_planning(compile)};
    alternatives->budget_bytes = alternatives->planning.budget_bytes;
    alternatives->planning.budget_bytes = 0;
    alternatives->effort.deadline_seconds =
        ul_deadline_after(alternatives->planning.time_limit_seconds);
    alternatives->items = UL_NEW_ARRAY(&compile->keep, struct ul_alternative, UL_MAX_ALTERNATIVES);
    alternatives->items[0] =
        (struct ul_alternative){.graph = compile->graph,
                                .program = compile->program,
                                .plan = *free_plan,
                                .form = {.row_major = compile->options.row_major,
                                         .splits = compile->options.splits,
                                         .inside = compile->options.inside}};
    alternatives->count = 1;
    UL_TRY(plan_lean(alternatives, &compile->keep, &alternatives->items[0], &compile->diag));
    count_alternative(alternatives, 0);
    return UL_OK;
}

/* Runs the alternative's passes again on the compile's graph, for the output of --print-after:
 * nothing else that is tried is printed. */
static enum ul_status print_passes(struct ul_compile *compile,
                                   const struct ul_alternative_form *form)
{
    const struct ul_graph *first = compile->program->graph;
    bool lays_out = form->row_major.count > 0 && compile->options.row_major.count == 0;
    if (compile->dump == NULL || compile->options.print_after == NULL)
        return UL_OK;
    if (lays_out)
        UL_TRY(ul_compile_lay_out(compile, &compile->keep, &compile->graph, &form->row_major,
                                  &compile->diag));
    else
        ul_graph_copy(&compile->graph, &compile->keep, first);
    UL_TRY(ul_compile_move_inside(compile, &compile->graph, &form->inside, &compile->diag));
    return ul_compile_split(compile, &compile->graph, &form->splits, &compile->diag);
}

enum ul_status ul_alternatives_adopt(struct ul_alternatives *alternatives, uint32_t index)
{
    struct ul_compile *compile = alternatives->compile;
    struct ul_alternative *alternative = &alternatives->items[index];
    if (index == 0)
        return UL_OK;
    struct ul_alternative *unsplit = find_unsplit(alternatives, &alternative->form);
    adopt_memory(compile, alternative);
    if (unsplit != &alternatives->items[0] && unsplit != NULL)
        adopt_memory(compile, unsplit); /* the program in pieces has the same calls */
    /* the first program, with which others were compared, keeps its graph */
    compile->program->graph = ul_arena_copy(&compile->keep, &compile->graph, sizeof compile->graph);
    UL_TRY(print_passes(compile, &alternative->form));
    compile->graph = alternative->graph;
    compile->program = alternative->program;
    compile->program->graph = &compile->graph;
    compile->options.row_major = alternative->form.row_major;
    compile->options.splits = alternative->form.splits;
    compile->options.inside = alternative->form.inside;
    return UL_OK;
}

void ul_alternatives_end(struct ul_alternatives *alternatives)
{
    struct ul_compile *compile = alternatives->compile;
    for (uint32_t i = 0; alternatives->effort.stopped_by_time && i < compile->ladder.count; i++)
        compile->ladder.rungs[i].plan.stopped_by_time = true;
    for (uint32_t i = 1; i < alternatives->count; i++)
        if (!alternatives->items[i].is_adopted)
            ul_arena_done(&alternatives->items[i].arena);
}
