/* SPDX-License-Identifier: Apache-2.0 */
/* The ranges of spaces outside a plan's own: each value there gets one, through the whole plan, one
 * after the other; an optional value only if a position reads it. */
#include "planner/model/plan.h"
#include "planner/model/timeline.h"

static bool is_beside(const struct ul_problem *problem, uint32_t value)
{
    return problem->spaces[problem->values[value].space].is_overhead;
}

static struct ul_plan_range range_of(const struct ul_problem *problem, const struct ul_plan *plan,
                                     uint32_t value)
{
    const struct ul_plan_value *of = &problem->values[value];
    return (struct ul_plan_range){.value = value,
                                  .end = plan->position_count > 0 ? plan->position_count : 1,
                                  .space = of->space,
                                  .alias = UL_PLAN_NONE,
                                  .class = of->class,
                                  .offset_bytes = plan->reserved_bytes[of->space],
                                  .size_bytes = of->size_bytes};
}

/* `is_read`: by value; NULL: no value outside gets a range. */
static void ranges_remake(struct ul_arena *arena, const struct ul_problem *problem,
                          const bool *is_read, struct ul_plan *plan)
{
    struct ul_plan_range *ranges = UL_NEW_ARRAY(arena, struct ul_plan_range,
                                                (uint64_t)plan->range_count + problem->value_count);
    uint32_t *first = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)problem->value_count + 1);
    uint32_t *moved = UL_NEW_ARRAY(arena, uint32_t, plan->range_count);
    uint32_t count = 0, from = 0;
    for (uint32_t v = 0; v <= problem->value_count; v++) {
        bool beside = v < problem->value_count && is_beside(problem, v);
        uint32_t end = v < problem->value_count ? plan->value_ranges[v + 1] : plan->range_count;
        first[v] = count;
        for (; from < end; from++) {
            moved[from] = count;
            if (!beside)
                ranges[count++] = plan->ranges[from];
        }
        if (!beside || is_read == NULL || (problem->values[v].optional && !is_read[v]))
            continue;
        ranges[count] = range_of(problem, plan, v);
        plan->reserved_bytes[ranges[count].space] +=
            ul_size_align_or_die(ranges[count].size_bytes, plan->alignment_bytes);
        count++;
    }
    for (uint32_t r = 0; r < count; r++) {
        if (ranges[r].alias != UL_PLAN_NONE && ranges[r].alias < plan->range_count)
            ranges[r].alias = moved[ranges[r].alias];
    }
    plan->ranges = ranges;
    plan->range_count = count;
    plan->value_ranges = first;
}

void ul_plan_place_overhead(struct ul_arena *arena, const struct ul_problem *problem,
                            struct ul_plan *plan)
{
    UL_ASSERT(plan->space_count == problem->space_count);
    for (uint32_t s = 0; s < plan->space_count; s++)
        plan->reserved_bytes[s] = problem->spaces[s].is_overhead ? 0 : plan->reserved_bytes[s];
    ranges_remake(arena, problem, ul_plan_reads(arena, problem, plan), plan);
    ul_plan_sum_overhead(problem, plan);
}

void ul_plan_drop_overhead(struct ul_arena *arena, const struct ul_problem *problem,
                           struct ul_plan *plan)
{
    UL_ASSERT(plan->space_count == problem->space_count);
    ranges_remake(arena, problem, NULL, plan);
}
