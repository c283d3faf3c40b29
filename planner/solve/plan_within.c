/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a plan for a problem and a budget: where the plan without a budget exceeds it, a ladder of
 * plans that cost more, into which a caller may merge those of other programs before one is
 * picked. */
#include "planner/pack/placement.h"
#include "planner/solve/solve.h"
#include "planner/solve/solve_internal.h"
#include "planner/transfer/transfer.h"

static bool fits_bytes(const struct ul_plan_rung *rung, uint64_t budget_bytes)
{
    return budget_bytes == 0 || ul_rung_bytes(rung) <= budget_bytes;
}

enum ul_status ul_plan_front(struct ul_arena *arena, const struct ul_problem *problem,
                             const struct ul_plan_options *options, bool wants_ladder,
                             struct ul_plan_rung *first, struct ul_plan_ladder *ladder,
                             struct ul_diag *diag)
{
    struct ul_plan_options limited = *options;
    limited.budget_bytes = ul_plan_limit_bytes(problem, options->budget_bytes);
    *first = (struct ul_plan_rung){.overhead = options->overhead};
    *ladder = (struct ul_plan_ladder){.count = 0};
    UL_TRY(ul_plan_without_budget(arena, problem, options, &first->plan, diag));
    /* A budget does not change which values are kept, but they may wait in another space. */
    bool keeps = options->remat == UL_REMAT_KEEP && options->kept != NULL;
    if (keeps)
        UL_TRY(ul_ladder_keep(arena, problem, options, &first->plan, diag));
    bool moves = ul_problem_other_space(problem) != UL_PLAN_NONE;
    limited.finds_room = !fits_bytes(first, limited.budget_bytes);
    if (wants_ladder || ((!keeps || moves) && limited.finds_room))
        return ul_ladder_build(arena, problem, &limited, &first->plan, ladder, diag);
    first->plan.smallest_budget_bytes = ul_rung_bytes(first);
    return UL_OK;
}

void ul_plan_pick(const struct ul_problem *problem, const struct ul_plan_options *options,
                  const struct ul_plan_ladder *ladder, struct ul_plan_rung *rung)
{
    if (ladder->count == 0)
        return;
    uint64_t limit = ul_plan_limit_bytes(problem, options->budget_bytes);
    bool fits = fits_bytes(rung, limit);
    ul_ladder_pick(ladder, fits ? 0 : limit, rung);
    if (!fits && !fits_bytes(rung, limit))
        rung->plan.sufficient_room_bytes = ladder->room_bytes;
}

void ul_plan_finish(const struct ul_problem *problem, const struct ul_plan_options *options,
                    struct ul_plan_rung *rung)
{
    uint64_t limit = ul_plan_limit_bytes(problem, options->budget_bytes);
    rung->plan.bounded_bytes = ul_rung_bytes(rung);
    ul_plan_judge(problem, limit, &rung->overhead, &rung->plan);
    /* Another plan may need none of the optional values outside. */
    if (limit != 0)
        ul_bound_cost(problem, ul_plan_space_budget(&rung->overhead, NULL, limit), &rung->plan);
}

enum ul_status ul_plan_lay_out(struct ul_arena *arena, const struct ul_problem *problem,
                               const struct ul_plan_options *options, struct ul_plan *plan,
                               uint64_t *next_bytes, struct ul_diag *diag)
{
    enum { PART = 16 };
    uint64_t reserved_bytes = plan->reserved_bytes[0];
    *next_bytes = 0;
    if (problem->bank_count == 0)
        return UL_OK;
    /* Bounds of the cost know nothing of banks. */
    plan->cost_bound = 0;
    plan->cost_bound_method = NULL;
    plan->optimal_within = NULL;
    plan->optimal = reserved_bytes == plan->lower_bound_bytes;
    if (!plan->fits)
        return UL_OK;
    UL_TRY(ul_place_banks(arena, problem, options, plan, diag));
    if (!plan->fits) {
        *next_bytes = reserved_bytes - reserved_bytes / PART;
        return UL_OK;
    }
    plan->bounded_bytes = ul_plan_bounded_bytes(&options->overhead, plan);
    return ul_plan_check(arena, problem, plan, diag);
}

static enum ul_status solve_within(struct ul_arena *arena, const struct ul_problem *problem,
                                   const struct ul_plan_options *options, struct ul_plan *plan,
                                   struct ul_diag *diag)
{
    struct ul_plan_rung rung;
    struct ul_plan_ladder ladder;
    UL_TRY(ul_plan_front(arena, problem, options, false, &rung, &ladder, diag));
    ul_plan_pick(problem, options, &ladder, &rung);
    ul_plan_finish(problem, options, &rung);
    *plan = rung.plan;
    return UL_OK;
}

enum ul_status ul_plan_unlimited(struct ul_arena *arena, const struct ul_problem *problem,
                                 const struct ul_plan_options *options, struct ul_plan *plan,
                                 struct ul_diag *diag)
{
    struct ul_problem unlimited = *problem;
    struct ul_plan_options unbounded = *options;
    unlimited.spaces =
        ul_arena_copy(arena, problem->spaces, problem->space_count * sizeof *problem->spaces);
    unlimited.spaces[0].capacity_bytes = 0;
    unbounded.budget_bytes = 0;
    UL_TRY(solve_within(arena, &unlimited, &unbounded, plan, diag));
    ul_plan_judge(problem, 0, NULL, plan);
    return UL_OK;
}

enum ul_status ul_plan_solve(struct ul_arena *arena, const struct ul_problem *problem,
                             const struct ul_plan_options *options, struct ul_plan *plan,
                             struct ul_diag *diag)
{
    struct ul_plan_options limited = *options;
    uint64_t next_bytes = 0;
    for (uint32_t try = 0; try < UL_LAY_OUT_TRIES; try++) {
        UL_TRY(solve_within(arena, problem, &limited, plan, diag));
        UL_TRY(ul_plan_lay_out(arena, problem, options, plan, &next_bytes, diag));
        if (next_bytes == 0)
            break;
        limited.budget_bytes = next_bytes;
    }
    return UL_OK;
}
