/* SPDX-License-Identifier: Apache-2.0 */
/* Variants of a program, and the ladders of all of them as one.
 *
 * Problem: choosing the layout of a graph, the chains to split and the work inside products is a
 * search over programs, and each program has to be lowered and planned to be judged. Method:
 * splits.c, layouts.c and inside.c say what to try. The plans of all variants are merged into the
 * ladder, and variants at the front also add rungs with recomputation. */
#include "compile/search/variants.h"
#include "planner/model/optional.h"

#include <string.h>

enum {
    MAX_LADDERS = 4,        /* variants that are also searched with recomputation */
    MAX_STEPS = 100 * 1000, /* in all variants together */
    WORK_SHARE = 8          /* with many variants, each search gets this much less */
};

/* Leaves what remains of a time limit for the next part of the search; false: nothing remains. */
bool ul_variants_have_time(struct ul_variants *variants)
{
    if (variants->effort.deadline_seconds <= 0)
        return true;
    variants->planning.time_limit_seconds = ul_deadline_left(variants->effort.deadline_seconds);
    variants->effort.stopped_by_time |= variants->planning.time_limit_seconds <= 0;
    return variants->planning.time_limit_seconds > 0;
}

static uint64_t reserved_of(const struct ul_variant *variant)
{
    return variant->lean.reserved_bytes[0];
}

/* Smaller, or as small and cheaper. */
static bool is_better(const struct ul_variant *a, const struct ul_variant *b)
{
    if (reserved_of(a) != reserved_of(b))
        return reserved_of(a) < reserved_of(b);
    return a->lean.cost < b->lean.cost;
}

/* ---- One variant ---- */

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

/* The planner's options for a variant's plan without a budget. */
static struct ul_plan_options plan_options(const struct ul_variants *variants,
                                           const struct ul_problem *problem)
{
    enum { WORK_PER_STEP = 512 };
    struct ul_plan_options planning = variants->planning;
    if (planning.order == UL_ORDER_BEST) /* a method that is named has to find something */
        planning.work_limit =
            UL_WORK_ORDER / WORK_SHARE + WORK_PER_STEP * (uint64_t)problem->step_count;
    return planning;
}

/* Shows what splits can reach where scratch does not hide it. */
static enum ul_status plan_lean(struct ul_variants *variants, struct ul_arena *arena,
                                struct ul_variant *variant, struct ul_diag *diag)
{
    struct ul_problem lean = *variant->program->problem;
    bool differs = false;
    lean.steps = ul_arena_copy(arena, lean.steps, lean.step_count * sizeof *lean.steps);
    lean.base_cost = variant->plan.base_cost;
    for (uint32_t s = 0; s < lean.step_count; s++) {
        differs = differs || lean.steps[s].alternative_count > 1;
        lean.steps[s].alternatives += leanest_of(&lean, &lean.steps[s]);
        lean.steps[s].alternative_count = 1;
        lean.steps[s].spare_count = 0;
    }
    variant->lean = variant->plan;
    if (!differs)
        return UL_OK;
    const struct ul_plan_options planning = plan_options(variants, &lean);
    UL_TRY(ul_plan_solve(arena, &lean, &planning, &variant->lean, diag));
    for (uint32_t p = 0; p < variant->lean.position_count; p++) {
        struct ul_plan_position *at = &variant->lean.positions[p];
        at->alternative =
            leanest_of(variant->program->problem, &variant->program->problem->steps[at->step]);
    }
    /* Bounds are those of all alternatives of steps. */
    variant->lean.lower_bound_bytes = variant->plan.lower_bound_bytes;
    uint64_t orders = variant->plan.orders_lower_bound_bytes;
    uint64_t own = variant->lean.order_lower_bound_bytes;
    variant->lean.orders_lower_bound_bytes = orders < own ? orders : own;
    variant->lean.optimal = variant->lean.reserved_bytes[0] == variant->lean.lower_bound_bytes;
    return UL_OK;
}

static bool is_same(const struct ul_texts *a, const struct ul_texts *b)
{
    bool same = a->count == b->count;
    for (uint32_t i = 0; same && i < a->count; i++)
        same = strcmp(a->items[i], b->items[i]) == 0;
    return same;
}

/* The variant with these texts, or UL_NONE. */
static uint32_t find(const struct ul_variants *variants, const struct ul_variation *wanted)
{
    for (uint32_t i = 0; i < variants->count; i++) {
        const struct ul_variation *variation = &variants->items[i].variation;
        if (is_same(&variation->row_major, &wanted->row_major) &&
            is_same(&variation->splits, &wanted->splits) &&
            is_same(&variation->inside, &wanted->inside))
            return i;
    }
    return UL_NONE;
}

/* The variant with the same layout, not split and with nothing inside. */
static uint32_t find_whole(const struct ul_variants *variants, const struct ul_variation *variation)
{
    const struct ul_variation whole = {.row_major = variation->row_major};
    return find(variants, &whole);
}

/* The graph as it is laid out, before chains are split. */
static enum ul_status lay_out(struct ul_variants *variants, struct ul_variant *variant,
                              struct ul_diag *diag)
{
    const struct ul_variation *variation = &variant->variation;
    uint32_t whole = find_whole(variants, variation);
    UL_ASSERT(whole != UL_NONE || variation->splits.count + variation->inside.count == 0);
    if (whole == UL_NONE)
        return ul_compile_lay_out(variants->compile, variant->arena, &variant->graph,
                                  &variation->row_major, diag);
    ul_graph_copy(&variant->graph, variant->arena, &variants->items[whole].graph);
    return UL_OK;
}

static enum ul_status build_variant(struct ul_variants *variants, struct ul_variant *variant,
                                    struct ul_diag *diag)
{
    const struct ul_variation *variation = &variant->variation;
    const struct ul_program *base = variants->compile->program;
    struct ul_program_options options = base->options;
    uint32_t whole = find_whole(variants, variation);
    if (options.base == NULL)
        options.base = base;
    options.whole = whole == UL_NONE ? NULL : variants->items[whole].program;
    UL_TRY(lay_out(variants, variant, diag));
    UL_TRY(ul_compile_move_inside(variants->compile, &variant->graph, &variation->inside, diag));
    UL_TRY(ul_compile_split(variants->compile, &variant->graph, &variation->splits, diag));
    UL_TRY(ul_program_build(variant->arena, &variant->graph, &options, &variant->program, diag));
    const struct ul_problem *problem = variant->program->problem;
    const struct ul_plan_options planning = plan_options(variants, problem);
    UL_TRY(ul_plan_solve(variant->arena, problem, &planning, &variant->plan, diag));
    return plan_lean(variants, variant->arena, variant, diag);
}

enum ul_status ul_variants_try(struct ul_variants *variants, const struct ul_variation *variation)
{
    struct ul_variant *variant = &variants->items[variants->count];
    struct ul_diag diag = {0};
    if (find(variants, variation) != UL_NONE || variants->count == UL_MAX_VARIANTS ||
        variants->steps > MAX_STEPS)
        return UL_OK;
    *variant = (struct ul_variant){.variation = *variation};
    ul_arena_init(&variant->own);
    variant->arena = variation->inside.count > 0 ? &variants->compile->keep : &variant->own;
    enum ul_status status = build_variant(variants, variant, &diag);
    if (status == UL_OK) {
        variants->steps += variant->program->step_count;
        variants->count++;
        return UL_OK;
    }
    ul_arena_done(&variant->own);
    if (status == UL_UNSUPPORTED || status == UL_USAGE)
        return UL_OK;
    variants->compile->diag = diag;
    return status;
}

/* ---- One ladder ---- */

/* Whether no other variant is as small and as cheap. */
static bool is_in_front(const struct ul_variants *variants, uint32_t index)
{
    const struct ul_variant *variant = &variants->items[index];
    for (uint32_t i = 0; i < variants->count; i++) {
        const struct ul_variant *other = &variants->items[i];
        bool as_good =
            reserved_of(other) <= reserved_of(variant) && other->lean.cost <= variant->lean.cost;
        bool better = reserved_of(other) < reserved_of(variant) ||
                      other->lean.cost < variant->lean.cost || i < index;
        if (i != index && as_good && better)
            return false;
    }
    return true;
}

/* Merges a plan, and the same order with fewer optional values. The variants' arenas end before the
 * ladder does, so what the ladder holds belongs to the compile. */
static enum ul_status merge_plan(struct ul_variants *variants, uint32_t index,
                                 const struct ul_plan *plan)
{
    struct ul_compile *compile = variants->compile;
    const struct ul_problem *problem = variants->items[index].program->problem;
    struct ul_plan base = ul_plan_keep(&compile->keep, problem, plan);
    struct ul_plan_ladder ladder = {.count = 0};
    if (!ul_variants_have_time(variants))
        return UL_OK;
    ul_plan_place_beside(&compile->keep, problem, &base);
    UL_TRY(ul_ladder_spread(&compile->keep, problem, &variants->planning, &base, &compile->ladder,
                            &ladder, &compile->diag));
    ul_ladder_merge(&compile->keep, &compile->ladder, &ladder, index);
    return UL_OK;
}

/* Counts the process of a variant, as far as a ladder of its plans depends on it. */
static void count_variant(struct ul_variants *variants, uint32_t index)
{
    const struct ul_program *program = variants->items[index].program;
    if (index > 0)
        ul_footprint_count_beside(program, ul_compile_is_process(variants->compile));
    variants->processes[index] =
        ul_footprint_beside(program, ul_compile_is_process(variants->compile));
    variants->planning.beside = ul_compile_beside(variants->compile, program);
}

/* Whether a method of recomputation that was named can be used for the variant: no other may
 * replace it, and the plans record that it was asked for. */
static bool is_served(struct ul_variants *variants, struct ul_variant *variant)
{
    struct ul_arena *keep = &variants->compile->keep;
    const struct ul_problem *problem = variant->program->problem;
    if (ul_ladder_refusal(keep, problem, &variants->planning, &variant->plan) != NULL)
        return false;
    variant->lean.remat_method = variant->plan.remat_method;
    return true;
}

static enum ul_status merge_plans(struct ul_variants *variants, uint32_t index)
{
    count_variant(variants, index);
    UL_TRY(merge_plan(variants, index, &variants->items[index].plan));
    return merge_plan(variants, index, &variants->items[index].lean);
}

/* The bytes below which plans of a variant with light work inside may be useful: with more room,
 * recomputation takes less time. The ends of the ladder are the same for every budget. */
static uint64_t deep_bytes(const struct ul_plan_ladder *ladder)
{
    enum { DEEP = 8 };
    UL_ASSERT(ladder->count > 0);
    uint64_t first = ul_rung_bytes(&ladder->rungs[0]);
    uint64_t last = ul_rung_bytes(&ladder->rungs[ladder->count - 1]);
    return last + (first - last) / DEEP;
}

/* Merges plans with recomputations. */
static enum ul_status merge_ladder(struct ul_variants *variants, uint32_t index)
{
    struct ul_compile *compile = variants->compile;
    const struct ul_program *program = variants->items[index].program;
    struct ul_plan_options planning = variants->planning;
    struct ul_plan_ladder ladder = {.count = 0};
    if (!ul_variants_have_time(variants))
        return UL_OK;
    planning.budget_bytes = variants->budget_bytes;
    planning.beside = ul_compile_beside(compile, program);
    if (variants->items[index].variation.inside.count > 0)
        planning.below_bytes = deep_bytes(&compile->ladder);
    struct ul_plan base =
        ul_plan_keep(&compile->keep, program->problem, &variants->items[index].plan);
    ul_plan_place_beside(&compile->keep, program->problem, &base);
    UL_TRY(ul_ladder_build(&compile->keep, program->problem, &planning, &base, &ladder,
                           &compile->diag));
    ul_ladder_merge(&compile->keep, &compile->ladder, &ladder, index);
    return UL_OK;
}

enum ul_status ul_variants_merge(struct ul_variants *variants, uint32_t index)
{
    UL_ASSERT(index > 0 && index < variants->count);
    if (!is_served(variants, &variants->items[index]))
        return UL_OK;
    UL_TRY(merge_plans(variants, index));
    return merge_ladder(variants, index);
}

enum ul_status ul_variants_merge_front(struct ul_variants *variants)
{
    uint32_t *front = variants->front, count = 0;
    for (uint32_t i = 1; i < variants->count; i++) {
        if (is_in_front(variants, i) && is_served(variants, &variants->items[i]))
            front[count++] = i;
    }
    for (uint32_t i = 0; i < count; i++)
        UL_TRY(merge_plans(variants, front[i]));
    for (uint32_t i = 0; i + 1 < count; i++) {
        for (uint32_t k = i + 1; k < count; k++) {
            if (is_better(&variants->items[front[k]], &variants->items[front[i]])) {
                uint32_t other = front[i];
                front[i] = front[k];
                front[k] = other;
            }
        }
    }
    uint32_t ladders = count < MAX_LADDERS ? count : MAX_LADDERS;
    for (uint32_t i = 0; i < ladders; i++) {
        uint32_t index = front[(uint64_t)i * (count - 1) / (ladders < 2 ? 1 : ladders - 1)];
        UL_TRY(merge_ladder(variants, index));
    }
    variants->front_count = count;
    return UL_OK;
}

enum ul_status ul_variants_begin(struct ul_variants *variants, struct ul_compile *compile,
                                 const struct ul_plan *free_plan)
{
    *variants = (struct ul_variants){.compile = compile, .planning = ul_compile_planning(compile)};
    variants->budget_bytes = variants->planning.budget_bytes;
    variants->planning.budget_bytes = 0;
    variants->effort.deadline_seconds = ul_deadline_after(variants->planning.time_limit_seconds);
    variants->items = UL_NEW_ARRAY(&compile->keep, struct ul_variant, UL_MAX_VARIANTS);
    variants->items[0] = (struct ul_variant){.graph = compile->graph,
                                             .program = compile->program,
                                             .plan = *free_plan,
                                             .variation = {.row_major = compile->options.row_major,
                                                           .splits = compile->options.splits,
                                                           .inside = compile->options.inside}};
    variants->count = 1;
    count_variant(variants, 0);
    return plan_lean(variants, &compile->keep, &variants->items[0], &compile->diag);
}

/* Keeps the graph of the first program, with which others were compared: the compile is about to
 * hold another. */
static void set_aside(struct ul_compile *compile)
{
    struct ul_graph *graph = UL_NEW(&compile->keep, struct ul_graph);
    *graph = compile->graph;
    compile->program->graph = graph;
}

static void keep_memory(struct ul_compile *compile, struct ul_variant *variant)
{
    if (variant->arena != &variant->own || variant->is_adopted)
        return;
    UL_GROW(&compile->keep, compile->adopted, compile->adopted_count, compile->adopted_capacity);
    compile->adopted[compile->adopted_count++] = &variant->own;
    variant->is_adopted = true;
}

/* Runs the variant's passes again on the compile's graph, for the output of --print-after: nothing
 * else that is tried is printed. */
static enum ul_status print_passes(struct ul_compile *compile, const struct ul_variation *variation)
{
    const struct ul_graph *first = compile->program->graph;
    bool lays_out = variation->row_major.count > 0 && compile->options.row_major.count == 0;
    if (compile->dump == NULL || compile->options.print_after == NULL)
        return UL_OK;
    if (lays_out)
        UL_TRY(ul_compile_lay_out(compile, &compile->keep, &compile->graph, &variation->row_major,
                                  &compile->diag));
    else
        ul_graph_copy(&compile->graph, &compile->keep, first);
    UL_TRY(ul_compile_move_inside(compile, &compile->graph, &variation->inside, &compile->diag));
    return ul_compile_split(compile, &compile->graph, &variation->splits, &compile->diag);
}

enum ul_status ul_variants_adopt(struct ul_variants *variants, uint32_t index)
{
    struct ul_compile *compile = variants->compile;
    struct ul_variant *variant = &variants->items[index];
    if (index == 0)
        return UL_OK;
    uint32_t whole = find_whole(variants, &variant->variation);
    keep_memory(compile, variant);
    if (whole != 0 && whole != UL_NONE) /* the program in pieces has the same calls */
        keep_memory(compile, &variants->items[whole]);
    set_aside(compile);
    UL_TRY(print_passes(compile, &variant->variation));
    compile->graph = variant->graph;
    compile->program = variant->program;
    compile->program->graph = &compile->graph;
    compile->options.row_major = variant->variation.row_major;
    compile->options.splits = variant->variation.splits;
    compile->options.inside = variant->variation.inside;
    return UL_OK;
}

void ul_variants_end(struct ul_variants *variants)
{
    struct ul_compile *compile = variants->compile;
    for (uint32_t i = 0; variants->effort.stopped_by_time && i < compile->ladder.count; i++)
        compile->ladder.rungs[i].plan.stopped_by_time = true;
    for (uint32_t i = 1; i < variants->count; i++)
        if (!variants->items[i].is_adopted)
            ul_arena_done(&variants->items[i].own);
}
