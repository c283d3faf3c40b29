/* SPDX-License-Identifier: Apache-2.0 */
/* Tries several ways to choose and to time transfers; the cheapest wins, by the timeline's own
 * clocks. */
#include "planner/transfer/transfer.h"

#include "planner/model/timeline.h"
#include "planner/transfer/transfer_internal.h"

/* Without noise first: by hidden time, by cost, and by the last position beyond the limit, as it
 * comes. */
static const struct ul_transfer_alternative plain_alternatives[] = {
    {.cost_weight = 1, .exposed_weight = 4},
    {.cost_weight = 1, .exposed_weight = 64, .is_first = true},
    {.cost_weight = 0.1, .exposed_weight = 1},
    {.cost_weight = 1, .exposed_weight = 0},
};
enum { PLAIN_COUNT = sizeof plain_alternatives / sizeof *plain_alternatives };

static const double leads[] = {1, 2, 0.5, 0};
enum { LEAD_COUNT = sizeof leads / sizeof *leads };

struct trial {
    struct ul_transfer_search *job;
    struct ul_arena *arena;
    struct ul_transfer_model *model;
    bool *chosen;
    uint64_t *live_bytes;
    bool is_asynchronous; /* steps may run at the same time as others, too */
};

static void schedule_try(struct trial *t, const struct ul_transfer_alternative *alternative)
{
    struct ul_arena scratch;
    struct ul_transfer_search *job = t->job;
    struct ul_plan plan = {.position_count = 0};
    ul_arena_init(&scratch);
    plan.alignment_bytes = job->runs->alignment_bytes;
    ul_transfer_schedule(&scratch, t->model, alternative, job->limit_bytes, t->chosen,
                         t->live_bytes, &plan);
    if (t->is_asynchronous)
        ul_transfer_overlap(&scratch, job->problem, job->limit_bytes, &job->effort, &plan);
    else
        ul_account_cost(&scratch, job->problem, &plan);
    job->effort.work += plan.position_count;
    if (job->positions == NULL || plan.cost < job->cost) {
        job->cost = plan.cost;
        job->position_count = plan.position_count;
        job->positions =
            ul_arena_copy(t->arena, plan.positions, plan.position_count * sizeof *plan.positions);
    }
    ul_arena_done(&scratch);
}

static bool alternative_try(struct trial *t, struct ul_transfer_alternative alternative)
{
    struct ul_transfer_search *job = t->job;
    if (!ul_transfer_choose(t->model, &alternative, job->limit_bytes, job->room_bytes, &job->effort,
                            t->chosen, t->live_bytes))
        return false;
    for (uint32_t i = 0; i < LEAD_COUNT; i++) {
        alternative.lead = leads[i];
        schedule_try(t, &alternative);
    }
    return true;
}

static uint64_t runs_cost(const struct ul_transfer_model *model)
{
    return model->time[model->count];
}

/* Draws continue while there is work, as long as something is not hidden. */
static void ways_try(struct trial *t)
{
    enum { DRAWS = 24 };
    struct ul_transfer_search *job = t->job;
    bool found = false;
    for (uint32_t i = 0; i < PLAIN_COUNT + DRAWS; i++) {
        struct ul_transfer_alternative alternative = plain_alternatives[i % PLAIN_COUNT];
        alternative.noise = i < PLAIN_COUNT ? 0 : (double)(i / PLAIN_COUNT) / 2;
        found = alternative_try(t, alternative) || found;
        if (i + 1 >= PLAIN_COUNT && !found)
            return;
        if ((found && job->cost == runs_cost(t->model)) || ul_effort_spent(&job->effort))
            return;
    }
}

/* Where nothing moves, the job is only its runs. */
static void overlap_try(struct ul_arena *arena, struct ul_transfer_search *job)
{
    struct ul_plan plan = *job->runs;
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    ul_account_live(&scratch, &plan);
    ul_arena_done(&scratch);
    job->floor_bytes = plan.order_lower_bound_bytes;
    if (job->floor_bytes > job->limit_bytes)
        return;
    ul_transfer_overlap(arena, job->problem, job->limit_bytes, &job->effort, &plan);
    job->positions = plan.positions;
    job->position_count = plan.position_count;
    job->cost = plan.cost;
}

void ul_transfer_only_runs(struct ul_arena *arena, struct ul_plan *plan)
{
    const struct ul_plan_position *positions = plan->positions;
    uint32_t count = plan->position_count;
    plan->positions = UL_NEW_ARRAY(arena, struct ul_plan_position, count);
    plan->position_count = 0;
    for (uint32_t p = 0; p < count; p++) {
        if (positions[p].kind != UL_PLAN_RUN)
            continue;
        plan->positions[plan->position_count] = positions[p];
        plan->positions[plan->position_count++].stream = 0;
    }
}

void ul_transfer_place(struct ul_arena *arena, struct ul_transfer_search *job)
{
    struct ul_arena scratch;
    uint32_t space = ul_problem_other_space(job->problem);
    ul_arena_init(&scratch);
    struct ul_transfer_model model = {
        .arena = &scratch, .problem = job->problem, .runs = job->runs, .space = space};
    struct trial trial = {.job = job,
                          .arena = arena,
                          .model = &model,
                          .is_asynchronous = ul_problem_is_asynchronous(job->problem)};
    job->positions = NULL;
    job->cost = UINT64_MAX;
    job->floor_bytes = UINT64_MAX;
    if (space != UL_PLAN_NONE && job->runs->position_count > 0) {
        ul_transfer_model_make(&model);
        job->floor_bytes = ul_transfer_floor(&model);
        trial.chosen = UL_NEW_ARRAY(&scratch, bool, model.item_count);
        trial.live_bytes = UL_NEW_ARRAY(&scratch, uint64_t, model.count);
        if (job->floor_bytes <= job->limit_bytes)
            ways_try(&trial);
    } else if (job->runs->position_count > 0) {
        overlap_try(arena, job);
    }
    ul_arena_done(&scratch);
}
