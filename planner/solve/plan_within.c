/* A plan for a problem and a budget: where the plan without one exceeds it, the ladder of plans
 * that cost more. */
#include "planner/solve/solve.h"
#include "planner/solve/solve_internal.h"

/* The cheapest plan within the budget, where the one without does not fit it. */
static enum ul_status plan_within(struct ul_arena *arena, const struct ul_problem *problem,
                                  const struct ul_plan_options *options, struct ul_plan *plan,
                                  struct ul_diag *diag)
{
    struct ul_plan_ladder ladder;
    struct ul_plan_rung rung;
    if (plan->reserved_bytes[0] > options->budget_bytes) {
        UL_TRY(ul_ladder_build(arena, problem, options, plan, &ladder, diag));
        ul_ladder_pick(&ladder, options->budget_bytes, &rung);
        *plan = rung.plan;
    }
    ul_plan_judge(problem, options->budget_bytes, plan);
    ul_bound_cost(problem, options->budget_bytes, plan);
    return UL_OK;
}

enum ul_status ul_plan_solve(struct ul_arena *arena, const struct ul_problem *problem,
                             const struct ul_plan_options *options, struct ul_plan *plan,
                             struct ul_diag *diag)
{
    struct ul_plan_options resolved = *options;
    ul_plan_options_resolve(&resolved);
    UL_TRY(ul_plan_without_budget(arena, problem, &resolved, plan, diag));
    return resolved.budget_bytes == 0 ? UL_OK : plan_within(arena, problem, &resolved, plan, diag);
}
