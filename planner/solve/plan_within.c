/* SPDX-License-Identifier: Apache-2.0 */
/* A plan for a problem and a budget: where the plan without one exceeds it, the ladder of plans
 * that cost more. */
#include "planner/solve/solve.h"
#include "planner/solve/solve_internal.h"
#include "planner/transfer/transfer.h"

static bool fits_bytes(const struct ul_plan *plan, const struct ul_plan_options *options)
{
    return options->budget_bytes == 0 ||
           ul_plan_bounded_bytes(&options->beside, plan) <= options->budget_bytes;
}

/* The ladder below `plan`, the one without a budget, and its rung within the budget; what is beside
 * that one. */
static enum ul_status ladder_pick(struct ul_arena *arena, const struct ul_problem **problem,
                                  struct ul_plan_options *options,
                                  const struct ul_plan_variants *variants, struct ul_plan *plan,
                                  struct ul_plan_ladder *ladder, struct ul_diag *diag)
{
    struct ul_plan_rung rung;
    bool fits = fits_bytes(plan, options);
    options->finds_room = !fits;
    UL_TRY(ul_ladder_build(arena, *problem, options, plan, ladder, diag));
    if (variants->merge != NULL)
        UL_TRY(variants->merge(variants->context, plan, ladder));
    ul_ladder_pick(ladder, fits ? 0 : options->budget_bytes, &rung);
    *plan = rung.plan;
    if (!fits && !fits_bytes(plan, options))
        plan->sufficient_room_bytes = ladder->room_bytes;
    options->beside = rung.beside;
    UL_ASSERT(rung.variant == 0 || variants->apply != NULL);
    return rung.variant == 0 ? UL_OK : variants->apply(variants->context, rung.variant, problem);
}

enum ul_status ul_plan_within(struct ul_arena *arena, const struct ul_problem *problem,
                              const struct ul_plan_options *options,
                              const struct ul_plan_variants *variants, bool wants_ladder,
                              struct ul_plan *plan, struct ul_plan_ladder *ladder,
                              struct ul_diag *diag)
{
    static const struct ul_plan_variants none = {.context = NULL};
    struct ul_plan_options limited = *options;
    limited.budget_bytes = ul_plan_limit_bytes(problem, options->budget_bytes);
    const struct ul_problem *planned = problem;
    UL_TRY(ul_plan_without_budget(arena, planned, options, plan, diag));
    /* What is to be kept, no budget changes, but that it may wait in another space. */
    bool keeps = options->remat == UL_REMAT_KEEP && options->kept != NULL;
    if (keeps)
        UL_TRY(ul_ladder_keep(arena, planned, options, plan, diag));
    bool moves = ul_transfer_space(planned) != UL_PLAN_NONE;
    if (wants_ladder || ((!keeps || moves) && !fits_bytes(plan, &limited)))
        UL_TRY(
            ladder_pick(arena, &planned, &limited, keeps ? &none : variants, plan, ladder, diag));
    else
        plan->smallest_budget_bytes = ul_plan_bounded_bytes(&limited.beside, plan);
    plan->bounded_bytes = ul_plan_bounded_bytes(&limited.beside, plan);
    ul_plan_judge(planned, limited.budget_bytes, &limited.beside, plan);
    /* Of what is beside, optional values may all be absent. */
    if (limited.budget_bytes != 0)
        ul_bound_cost(planned, ul_plan_space_budget(&limited.beside, NULL, limited.budget_bytes),
                      plan);
    return UL_OK;
}

enum ul_status ul_plan_solve(struct ul_arena *arena, const struct ul_problem *problem,
                             const struct ul_plan_options *options, struct ul_plan *plan,
                             struct ul_diag *diag)
{
    static const struct ul_plan_variants none = {.context = NULL};
    struct ul_plan_ladder ladder;
    return ul_plan_within(arena, problem, options, &none, false, plan, &ladder, diag);
}
