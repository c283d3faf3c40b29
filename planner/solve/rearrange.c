/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the positions of a finished plan in another order, if the plan then reserves no more.
 *
 * Problem: an order that lets more run at once keeps values longer, and whether they still fit
 * shows only when ranges are packed again. Method: the caller arranges positions so that live sums
 * stay below a limit, at first below the reserved bytes. Where the packed ranges take more than
 * that, the caller tries again with a lower limit. Left undone: plans with transfers. */
#include "planner/solve/solve.h"
#include "planner/solve/solve_internal.h"

enum { SHARES = 16 }; /* of the bytes between those that always live and the reserved ones */

static uint64_t persistent_bytes(const struct ul_problem *problem, const struct ul_plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *range = &plan->ranges[r];
        if (range->space == 0 && range->value != UL_PLAN_NONE &&
            problem->values[range->value].persistent)
            bytes += ul_size_align_or_die(range->size_bytes, plan->alignment_bytes);
    }
    return bytes;
}

enum ul_status ul_plan_rearrange(struct ul_arena *arena, const struct ul_problem *problem,
                                 const struct ul_plan_options *options, uint32_t tries,
                                 ul_plan_arrange_fn *arrange, const void *context,
                                 struct ul_plan *plan, bool *is_other, struct ul_diag *diag)
{
    uint64_t reserved = plan->reserved_bytes[0], always = persistent_bytes(problem, plan);
    struct ul_plan_options resolved = *options;
    *is_other = false;
    if (!ul_plan_only_runs(plan) || plan->position_count == 0)
        return UL_OK;
    ul_plan_options_resolve(&resolved);
    resolved.alignment_bytes = plan->alignment_bytes;
    UL_ASSERT(always <= reserved && tries <= SHARES);
    for (uint32_t try = 0; try < tries; try++) {
        struct ul_plan other = *plan;
        uint64_t limit_bytes = reserved - (reserved - always) / SHARES * try;
        const struct ul_plan_span *spans = arrange(context, arena, limit_bytes, &other);
        if (spans == NULL)
            return UL_OK;
        UL_TRY(ul_plan_complete_spans(arena, problem, &resolved, spans, &other, diag));
        if (other.reserved_bytes[0] > reserved)
            continue;
        other.bounded_bytes = ul_plan_bounded_bytes(&options->overhead, &other);
        if (other.bounded_bytes < other.smallest_budget_bytes)
            other.smallest_budget_bytes = other.bounded_bytes;
        *plan = other;
        *is_other = true;
        return UL_OK;
    }
    return UL_OK;
}
