/* SPDX-License-Identifier: Apache-2.0 */
/* Which positions read each live range, and where the forward pass ends.
 *
 * A read sees the copy of the value that is alive there. One walk over the positions counts the
 * readers of each range; a second notes them, in order. */
#include "report/report.h"

struct walk {
    const struct ul_problem *problem;
    const struct ul_plan *plan;
    uint32_t *counts; /* per range */
    uint32_t *positions;
    const uint32_t *first; /* NULL during the walk that counts */
};

static void note_range(struct walk *walk, const struct ul_plan_range *range, uint32_t position)
{
    uint32_t id = (uint32_t)(range - walk->plan->ranges);
    if (walk->first != NULL)
        walk->positions[walk->first[id] + walk->counts[id]] = position;
    walk->counts[id]++;
}

static void note_reader(struct walk *walk, uint32_t value, uint32_t position)
{
    const struct ul_plan_range *range =
        ul_plan_find_range(walk->problem, walk->plan, value, position);
    if (range != NULL)
        note_range(walk, range, position);
}

/* A load reads the newest copy in the other space. */
static void note_load(struct walk *walk, const struct ul_plan_position *at, uint32_t position)
{
    const struct ul_plan *plan = walk->plan;
    for (uint32_t r = plan->value_ranges[at->value + 1]; r-- > plan->value_ranges[at->value];) {
        const struct ul_plan_range *range = &plan->ranges[r];
        if (range->space != at->space || position < range->begin || position >= range->end)
            continue;
        note_range(walk, range, position);
        return;
    }
}

/* A range that a position reads twice has one reader there. */
static void walk_positions(struct walk *walk)
{
    const struct ul_problem *problem = walk->problem;
    for (uint32_t p = 0; p < walk->plan->position_count; p++) {
        const struct ul_plan_position *at = &walk->plan->positions[p];
        if (at->kind == UL_PLAN_COPY && !at->loads)
            note_reader(walk, at->value, p);
        if (at->kind == UL_PLAN_COPY && at->loads)
            note_load(walk, at, p);
        if (at->kind != UL_PLAN_RUN)
            continue;
        const struct ul_plan_substep *substep =
            &problem->steps[at->step].alternatives[at->alternative].substeps[at->substep];
        for (uint32_t i = 0; i < substep->read_count; i++)
            if (!ul_ids_have(substep->reads, i, substep->reads[i]))
                note_reader(walk, substep->reads[i], p);
    }
}

/* In file order the backward pass comes after the forward pass, some of whose values are not
 * kept. */
static uint32_t count_forward(struct ul_arena *arena, const struct ul_problem *problem)
{
    const bool *is_forward = ul_problem_find_forward(arena, problem);
    uint32_t count = is_forward != NULL ? problem->step_count : 0;
    while (count > 0 && !is_forward[count - 1])
        count--;
    return count;
}

void ul_report_find_readers(const struct ul_report *report, struct ul_arena *arena,
                            struct ul_report_readers *readers)
{
    const struct ul_plan *plan = report->plan;
    uint32_t *first = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)plan->range_count + 1);
    struct walk walk = {.problem = report->problem, .plan = plan};
    walk.counts = UL_NEW_ARRAY(arena, uint32_t, plan->range_count);
    walk_positions(&walk);
    for (uint32_t i = 0; i < plan->range_count; i++) {
        first[i + 1] = first[i] + walk.counts[i];
        walk.counts[i] = 0;
    }
    walk.positions = UL_NEW_ARRAY(arena, uint32_t, first[plan->range_count]);
    walk.first = first;
    walk_positions(&walk);
    readers->first = first;
    readers->positions = walk.positions;
    readers->forward_count = count_forward(arena, report->problem);
}
