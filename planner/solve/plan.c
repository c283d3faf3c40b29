/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the planner's pipeline without a budget: verify, order, live ranges and aliases, offsets,
 * sums, check. */
#include "planner/model/timeline.h"
#include "planner/order/order.h"
#include "planner/pack/placement.h"
#include "planner/solve/solve.h"
#include "planner/solve/solve_internal.h"
#include "planner/transfer/transfer.h"

#include <string.h>

/* Lets a range that begins or ends inside a span live through the whole span. A range that takes
 * over bytes of another keeps the position of the handover. */
static void widen(const struct ul_plan_span *spans, struct ul_plan *plan)
{
    for (uint32_t r = 0; r < plan->range_count; r++) {
        struct ul_plan_range *range = &plan->ranges[r];
        if (range->alias == UL_PLAN_NONE)
            range->begin = spans[range->begin].begin;
        range->end = spans[range->end - 1].end;
    }
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *range = &plan->ranges[r];
        if (range->alias != UL_PLAN_NONE)
            plan->ranges[range->alias].end = range->begin + 1;
    }
}

/* Finds offsets for the ranges. `spans` may be NULL, or as in ul_plan_complete_spans. */
static enum ul_status place(struct ul_arena *arena, const struct ul_problem *problem,
                            const struct ul_plan_options *options, const struct ul_plan_span *spans,
                            struct ul_plan *plan, struct ul_diag *diag)
{
    struct ul_plan_range *ranges = plan->ranges;
    if (spans == NULL)
        return ul_place_ranges(arena, problem, options, plan, diag);
    plan->ranges = ul_arena_copy(arena, ranges, plan->range_count * sizeof *ranges);
    widen(spans, plan);
    UL_TRY(ul_place_ranges(arena, problem, options, plan, diag));
    for (uint32_t r = 0; r < plan->range_count; r++)
        ranges[r].offset_bytes = plan->ranges[r].offset_bytes;
    plan->ranges = ranges;
    return UL_OK;
}

/* One candidate: ranges, offsets and sums for the positions that `plan` already has. */
static enum ul_status candidate_make(struct ul_arena *arena, const struct ul_problem *problem,
                                     const struct ul_plan_options *options, enum ul_alias_mode mode,
                                     const struct ul_plan_span *spans, struct ul_plan *plan,
                                     struct ul_diag *diag)
{
    plan->alignment_bytes = options->alignment_bytes;
    plan->space_count = problem->space_count;
    plan->reserved_bytes = UL_NEW_ARRAY(arena, uint64_t, problem->space_count);
    ul_timeline_build(arena, problem, mode, plan);
    UL_TRY(place(arena, problem, options, spans, plan, diag));
    ul_plan_sum_overhead(problem, plan);
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

/* Whether leaving out the aliases that shrink would change anything. */
static bool has_shrinking_alias(const struct ul_plan *plan)
{
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *range = &plan->ranges[r];
        if (range->alias != UL_PLAN_NONE &&
            ul_size_align_or_die(range->size_bytes, plan->alignment_bytes) <
                ul_size_align_or_die(plan->ranges[range->alias].size_bytes, plan->alignment_bytes))
            return true;
    }
    return false;
}

enum ul_status ul_plan_complete_spans(struct ul_arena *arena, const struct ul_problem *problem,
                                      const struct ul_plan_options *options,
                                      const struct ul_plan_span *spans, struct ul_plan *plan,
                                      struct ul_diag *diag)
{
    UL_TRY(candidate_make(arena, problem, options, UL_ALIAS_ALL, spans, plan, diag));
    plan->packing_proven = plan->reserved_bytes[0] == plan->order_lower_bound_bytes;
    return UL_OK;
}

enum ul_status ul_plan_complete(struct ul_arena *arena, const struct ul_problem *problem,
                                const struct ul_plan_options *options, struct ul_plan *plan,
                                struct ul_diag *diag)
{
    struct ul_plan other = *plan;
    enum ul_alias_mode mode = options->pack == UL_PACK_NONE ? UL_ALIAS_NONE : UL_ALIAS_ALL;
    UL_TRY(candidate_make(arena, problem, options, mode, NULL, plan, diag));
    if (mode == UL_ALIAS_ALL && plan->reserved_bytes[0] > plan->order_lower_bound_bytes &&
        has_shrinking_alias(plan)) {
        UL_TRY(candidate_make(arena, problem, options, UL_ALIAS_EQUAL, NULL, &other, diag));
        if (plan_better(&other, plan))
            *plan = other;
    }
    ul_account_cost(arena, problem, plan);
    plan->lower_bound_bytes = ul_account_bound(arena, problem, options->alignment_bytes);
    UL_ASSERT(plan->lower_bound_bytes <= plan->order_lower_bound_bytes);
    plan->optimal = plan->reserved_bytes[0] == plan->lower_bound_bytes;
    plan->smallest_budget_bytes = plan->reserved_bytes[0];
    return UL_OK;
}

static enum ul_status order_plan(struct ul_arena *arena, const struct ul_problem *problem,
                                 const struct ul_plan_options *options,
                                 const struct ul_order_choice *choice, struct ul_plan *plan,
                                 struct ul_diag *diag)
{
    ul_timeline_positions(arena, problem, choice->steps, plan);
    plan->order_method = choice->method;
    plan->order_why_not = choice->why_not;
    plan->stopped_by_time = choice->stopped_by_time;
    plan->remat_method = "none";
    return ul_plan_complete(arena, problem, options, plan, diag);
}

/* The plan with minimum memory, and among those the one with minimum cost. */
static enum ul_status best_order_plan(struct ul_arena *arena, const struct ul_problem *problem,
                                      const struct ul_plan_options *options, struct ul_plan *plan,
                                      struct ul_diag *diag)
{
    struct ul_order_choice choice;
    ul_order_problem(arena, problem, options, &choice);
    UL_TRY(order_plan(arena, problem, options, &choice, plan, diag));
    uint64_t orders_lower_bytes = choice.orders_lower_bytes;
    plan->orders_lower_bound_bytes = orders_lower_bytes;
    if (choice.is_file || options->order != UL_ORDER_BEST)
        return UL_OK;
    /* An order that packs worse than the file order gains nothing. */
    struct ul_plan_options file = *options;
    struct ul_plan other = {.position_count = 0};
    file.order = UL_ORDER_FILE;
    ul_order_problem(arena, problem, &file, &choice);
    if (plan->reserved_bytes[0] > choice.live_bytes)
        UL_TRY(order_plan(arena, problem, options, &choice, &other, diag));
    if (other.ranges != NULL && !plan_better(plan, &other))
        *plan = other;
    plan->orders_lower_bound_bytes = orders_lower_bytes;
    return UL_OK;
}

/* Lets steps on other resources run at the same time as others, at the least cost, and then within
 * the fewest bytes for that cost, found by halving. */
static enum ul_status resources_use(struct ul_arena *arena, const struct ul_problem *problem,
                                    const struct ul_plan_options *options, struct ul_plan *plan,
                                    struct ul_diag *diag)
{
    enum { HALVINGS = 6, WORK = 1 << 22, STEP_WORK = 1 << 12 };
    struct ul_plan best = *plan;
    struct ul_effort effort = {.work_limit = options->work_limit};
    if (effort.work_limit == 0)
        effort.work_limit = WORK + STEP_WORK * (uint64_t)plan->position_count;
    uint64_t low = plan->order_lower_bound_bytes, unit = options->alignment_bytes;
    ul_transfer_overlap(arena, problem, UINT64_MAX, &effort, &best);
    for (uint32_t i = 0; i <= HALVINGS && best.order_lower_bound_bytes > low; i++) {
        struct ul_plan other = *plan;
        uint64_t high = best.order_lower_bound_bytes - unit;
        uint64_t limit = i == 0 || low > high ? low : low + (high - low) / 2;
        effort.work = 0;
        ul_transfer_overlap(arena, problem, limit, &effort, &other);
        if (other.cost > best.cost)
            low = limit + unit;
        else
            best = other;
    }
    plan->positions = best.positions;
    plan->position_count = best.position_count;
    return ul_plan_complete(arena, problem, options, plan, diag);
}

enum ul_status ul_plan_without_budget(struct ul_arena *arena, const struct ul_problem *problem,
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
    UL_TRY(best_order_plan(arena, problem, &resolved, plan, diag));
    if (ul_problem_is_asynchronous(problem))
        UL_TRY(resources_use(arena, problem, &resolved, plan, diag));
    ul_plan_judge(problem, 0, NULL, plan);
    return ul_plan_check(arena, problem, plan, diag);
}

enum ul_status ul_plan_unfold(struct ul_arena *arena, const struct ul_problem *problem,
                              struct ul_plan *plan, struct ul_diag *diag)
{
    const struct ul_plan_options options = {.pack = UL_PACK_NONE,
                                            .alignment_bytes = plan->alignment_bytes};
    struct ul_plan unfolded = {.order_method = plan->order_method, .remat_method = "none"};
    struct ul_plan runs = *plan;
    ul_transfer_only_runs(arena, &runs);
    unfolded.positions = runs.positions;
    for (uint32_t p = 0; p < runs.position_count; p++) {
        if (runs.positions[p].copy == 0)
            unfolded.positions[unfolded.position_count++] = runs.positions[p];
    }
    UL_ASSERT(unfolded.position_count >= problem->step_count);
    unfolded.orders_lower_bound_bytes = plan->orders_lower_bound_bytes;
    UL_TRY(ul_plan_complete(arena, problem, &options, &unfolded, diag));
    ul_plan_judge(problem, 0, NULL, &unfolded);
    *plan = unfolded;
    return ul_plan_check(arena, problem, plan, diag);
}
