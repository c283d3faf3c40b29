/* A ladder of plans: ever less memory at ever more cost.
 *
 * Invariant: the first rung is the plan without a budget; from the second on the arena falls and
 * the cost rises strictly, and no rung costs less than the first. The first rung within a budget is
 * then the cheapest, and a smaller budget never gets a larger arena or a cheaper plan. */
#include "planner/planner_internal.h"

#include <string.h>

/* ---- The front ---- */

static uint64_t reserved_of(const struct ul_plan_rung *rung)
{
    return rung->plan.reserved_bytes[0];
}

/* Where a rung of so many bytes and that cost belongs, or `count` if another is as good. */
static bool rung_place(const struct ul_plan_ladder *ladder, const struct ul_plan_rung *rung,
                       uint32_t *place)
{
    uint32_t at = 0;
    while (at < ladder->count && reserved_of(&ladder->rungs[at]) > reserved_of(rung))
        at++;
    *place = at;
    if (ladder->count == 0)
        return true;
    if (at == 0 || rung->plan.cost < ladder->rungs[0].plan.cost)
        return false;
    /* Those from `at` on are as small: one of them that costs no more makes this one useless. */
    return at == ladder->count || ladder->rungs[at].plan.cost > rung->plan.cost;
}

/* Puts the rung in its place and drops those above that cost no less; the first stays. */
static void rung_add(struct ul_arena *arena, struct ul_plan_ladder *ladder,
                     const struct ul_plan_rung *rung)
{
    uint32_t at;
    if (!rung_place(ladder, rung, &at))
        return;
    uint32_t keep = at;
    while (keep > 1 && ladder->rungs[keep - 1].plan.cost >= rung->plan.cost)
        keep--;
    uint32_t rest = at;
    if (rest < ladder->count && reserved_of(&ladder->rungs[rest]) == reserved_of(rung))
        rest++; /* as small and dearer */
    struct ul_plan_rung *rungs =
        UL_NEW_ARRAY(arena, struct ul_plan_rung, (uint64_t)ladder->count + 1);
    uint32_t count = 0;
    for (uint32_t i = 0; i < keep; i++)
        rungs[count++] = ladder->rungs[i];
    rungs[count++] = *rung;
    for (uint32_t i = rest; i < ladder->count; i++)
        rungs[count++] = ladder->rungs[i];
    ladder->rungs = rungs;
    ladder->count = count;
}

void ul_ladder_merge(struct ul_arena *arena, struct ul_plan_ladder *ladder,
                     const struct ul_plan_ladder *other, uint32_t variant)
{
    for (uint32_t i = 0; i < other->count; i++) {
        struct ul_plan_rung rung = other->rungs[i];
        rung.variant = variant;
        rung_add(arena, ladder, &rung);
    }
}

void ul_ladder_pick(const struct ul_plan_ladder *ladder, uint64_t budget_bytes,
                    struct ul_plan_rung *rung)
{
    UL_ASSERT(ladder->count > 0);
    uint32_t at = 0;
    while (at + 1 < ladder->count && budget_bytes != 0 &&
           reserved_of(&ladder->rungs[at]) > budget_bytes)
        at++;
    *rung = ladder->rungs[at];
    rung->plan.smallest_budget_bytes = reserved_of(&ladder->rungs[ladder->count - 1]);
    if (budget_bytes != 0 && reserved_of(rung) > budget_bytes)
        rung->plan.fits = false;
}

enum ul_status ul_ladder_build(struct ul_arena *arena, const struct ul_problem *problem,
                               const struct ul_plan_options *options, const struct ul_plan *base,
                               struct ul_plan_ladder *ladder, struct ul_diag *diag)
{
    struct ul_plan_rung first = {.variant = 0};
    *ladder = (struct ul_plan_ladder){.count = 0};
    if (base != NULL) {
        first.plan = *base;
    } else {
        struct ul_plan_options free = *options;
        free.budget_bytes = 0;
        UL_TRY(ul_plan_solve(arena, problem, &free, &first.plan, diag));
    }
    rung_add(arena, ladder, &first);
    return UL_OK;
}
