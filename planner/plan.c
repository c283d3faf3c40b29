/* The planner's pipeline: verify, order, live ranges and aliases, offsets, sums, check. */
#include "planner/planner_internal.h"

#include <string.h>

void ul_plan_options_resolve(struct ul_plan_options *options)
{
    if (options->alignment_bytes == 0)
        options->alignment_bytes = UL_PLAN_ALIGN_BYTES;
}

const struct ul_plan_range *ul_plan_find_range(const struct ul_plan *plan, uint32_t value,
                                               uint32_t position)
{
    for (uint32_t r = plan->value_ranges[value + 1]; r-- > plan->value_ranges[value];) {
        if (plan->ranges[r].begin <= position && position < plan->ranges[r].end)
            return &plan->ranges[r];
    }
    return NULL;
}

static void costs_sum(const struct ul_problem *problem, struct ul_plan *plan)
{
    plan->cost = 0;
    plan->base_cost = 0;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct ul_plan_position *at = &plan->positions[p];
        if (at->part == 0)
            plan->cost += problem->steps[at->step].alternatives[at->alternative].cost;
    }
    for (uint32_t s = 0; s < problem->step_count; s++) {
        const struct ul_plan_step *step = &problem->steps[s];
        uint64_t least = step->alternatives[0].cost;
        for (uint32_t i = 1; i < step->alternative_count; i++)
            least = step->alternatives[i].cost < least ? step->alternatives[i].cost : least;
        plan->base_cost += least;
    }
}

/* One candidate: ranges, offsets and sums for the positions that `plan` already has. */
static enum ul_status candidate_make(struct ul_arena *arena, const struct ul_problem *problem,
                                     const struct ul_plan_options *options, enum ul_alias_mode mode,
                                     struct ul_plan *plan, struct ul_diag *diag)
{
    plan->alignment_bytes = options->alignment_bytes;
    plan->space_count = problem->space_count;
    plan->reserved_bytes = UL_NEW_ARRAY(arena, uint64_t, problem->space_count);
    ul_timeline_build(arena, problem, mode, plan);
    UL_TRY(ul_layout_ranges(arena, problem, options, plan, diag));
    ul_account_live(arena, plan);
    uint64_t counted = plan->rows.alignment_bytes;
    for (uint32_t c = 0; c < UL_PLAN_CLASS_COUNT; c++)
        counted += plan->rows.class_bytes[c];
    UL_ASSERT(plan->reserved_bytes[0] >= counted);
    plan->rows.holes_bytes = plan->reserved_bytes[0] - counted;
    return UL_OK;
}

static bool plan_better(const struct ul_plan *a, const struct ul_plan *b)
{
    return a->reserved_bytes[0] < b->reserved_bytes[0];
}

static void verdict_fill(struct ul_arena *arena, const struct ul_problem *problem,
                         const struct ul_plan_options *options, struct ul_plan *plan)
{
    costs_sum(problem, plan);
    uint64_t reserved = plan->reserved_bytes[0];
    plan->lower_bound_bytes = ul_account_bound(arena, problem, options->alignment_bytes);
    UL_ASSERT(plan->lower_bound_bytes <= plan->order_lower_bound_bytes);
    plan->optimal = reserved == plan->lower_bound_bytes;
    plan->smallest_budget_bytes = reserved;
    plan->fits = options->budget_bytes == 0 || reserved <= options->budget_bytes;
    for (uint32_t s = 0; s < problem->space_count; s++) {
        uint64_t capacity = problem->spaces[s].capacity_bytes;
        if (capacity != 0 && plan->reserved_bytes[s] > capacity)
            plan->fits = false;
    }
}

/* The better of the alias modes for one order. */
static enum ul_status order_plan(struct ul_arena *arena, const struct ul_problem *problem,
                                 const struct ul_plan_options *options,
                                 const struct ul_order_choice *choice, struct ul_plan *plan,
                                 struct ul_diag *diag)
{
    ul_timeline_positions(arena, problem, choice->steps, plan);
    plan->order_method = choice->method;
    plan->remat_method = "none";
    struct ul_plan other = *plan;
    if (options->pack == UL_PACK_NONE)
        return candidate_make(arena, problem, options, UL_ALIAS_NONE, plan, diag);
    UL_TRY(candidate_make(arena, problem, options, UL_ALIAS_ALL, plan, diag));
    if (plan->reserved_bytes[0] == plan->order_lower_bound_bytes)
        return UL_OK;
    UL_TRY(candidate_make(arena, problem, options, UL_ALIAS_EQUAL, &other, diag));
    if (plan_better(&other, plan))
        *plan = other;
    return UL_OK;
}

enum ul_status ul_plan_solve(struct ul_arena *arena, const struct ul_problem *problem,
                             const struct ul_plan_options *options, struct ul_plan *plan,
                             struct ul_diag *diag)
{
    struct ul_plan_options resolved = *options;
    ul_plan_options_resolve(&resolved);
    uint64_t alignment = resolved.alignment_bytes;
    if ((alignment & (alignment - 1)) != 0 || alignment > (uint64_t)1 << 20)
        return ul_diag_set(diag, UL_USAGE, "The alignment must be a power of two up to 1 MiB.");
    UL_TRY(ul_problem_verify(problem, diag));
    memset(plan, 0, sizeof *plan);
    struct ul_order_choice choice;
    ul_order_problem(arena, problem, &resolved, &choice);
    UL_TRY(order_plan(arena, problem, &resolved, &choice, plan, diag));
    if (strcmp(choice.method, "file") != 0) {
        /* What packs worse than the file order is no gain. */
        struct ul_plan_options file = resolved;
        struct ul_plan other = {.position_count = 0};
        file.order = UL_ORDER_FILE;
        ul_order_problem(arena, problem, &file, &choice);
        if (plan->reserved_bytes[0] > choice.live_bytes)
            UL_TRY(order_plan(arena, problem, &resolved, &choice, &other, diag));
        if (other.ranges != NULL && !plan_better(plan, &other))
            *plan = other;
    }
    verdict_fill(arena, problem, &resolved, plan);
    return ul_plan_check(arena, problem, plan, diag);
}
