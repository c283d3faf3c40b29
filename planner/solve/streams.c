/* SPDX-License-Identifier: Apache-2.0 */
/* Lets branches of a finished plan run at the same time, on two streams, if the plan then reserves
 * no more. transfer/transfer_share.c chooses them; ranges are packed again. */
#include "planner/model/timeline.h"
#include "planner/solve/solve.h"
#include "planner/solve/solve_internal.h"

enum {
    TRIES = 4,      /* each with less room than the one before */
    WORK = 4000000, /* with this for each position: */
    POSITION_WORK = 40000
};

struct streams {
    const struct ul_problem *problem;
    const struct ul_plan *plan;
    const struct ul_plan_streaming *streaming;
};

/* Positions that share a launch follow each other, and run at the same time. */
static const struct ul_plan_span *arrange(const void *context, struct ul_arena *arena,
                                          uint64_t limit_bytes, struct ul_plan *other)
{
    const struct streams *s = context;
    const uint32_t *groups = s->streaming->groups;
    struct ul_effort effort = {.work_limit =
                                   WORK + (uint64_t)POSITION_WORK * s->plan->position_count};
    const uint32_t *moved_to =
        ul_transfer_share(arena, s->problem, limit_bytes, s->streaming, &effort, other);
    if (moved_to == NULL)
        return NULL;
    struct ul_plan_span *spans = UL_NEW_ARRAY(arena, struct ul_plan_span, other->position_count);
    for (uint32_t p = 0; p < other->position_count; p++)
        spans[p] = (struct ul_plan_span){p, p + 1};
    for (uint32_t p = 0; p < s->plan->position_count; p++) {
        uint32_t first = moved_to[groups[p]], end = moved_to[p] + 1;
        UL_ASSERT(end - first == p - groups[p] + 1);
        for (uint32_t i = first; i < end; i++)
            spans[i] = (struct ul_plan_span){first, end};
    }
    return spans;
}

/* Proofs about the cost hold for plans with one stream. */
static void set_cost(struct ul_arena *arena, const struct ul_problem *problem, struct ul_plan *plan)
{
    ul_account_cost(arena, problem, plan);
    plan->cost_bound = 0;
    plan->cost_bound_method = NULL;
    plan->optimal_within = NULL;
    plan->optimal = plan->reserved_bytes[0] == plan->lower_bound_bytes;
}

enum ul_status ul_plan_stream(struct ul_arena *arena, const struct ul_problem *problem,
                              const struct ul_plan_options *options,
                              const struct ul_plan_streaming *streaming, struct ul_plan *plan,
                              struct ul_diag *diag)
{
    const struct ul_plan before = *plan;
    const struct streams s = {.problem = problem, .plan = &before, .streaming = streaming};
    bool is_other;
    UL_TRY(ul_plan_rearrange(arena, problem, options, TRIES, arrange, &s, plan, &is_other, diag));
    if (!is_other)
        return UL_OK;
    set_cost(arena, problem, plan);
    return ul_plan_check(arena, problem, plan, diag);
}
