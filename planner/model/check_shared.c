/* SPDX-License-Identifier: Apache-2.0 */
/* The independent check of plans that share a buffer: by addresses alone, without a look at how
 * they were laid out. A byte that a plan keeps between its runs is touched by no other plan, at any
 * position; so what a run finds is what the last run of its own left, whatever ran in between. */
#include "planner/model/plan.h"

#include <stdlib.h>

/* Bytes of a plan, first and behind the last. */
struct extent {
    uint64_t begin, end;
    uint32_t plan, range;
};

static int extent_compare(const void *a, const void *b)
{
    const struct extent *x = a;
    const struct extent *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->plan != y->plan)
        return x->plan < y->plan ? -1 : 1;
    return x->range < y->range ? -1 : x->range > y->range;
}

static const char *name_of(struct ul_arena *scratch, const struct ul_problem *problem,
                           const struct ul_plan *plan, uint32_t range)
{
    uint32_t value = plan->ranges[range].value;
    if (value == UL_PLAN_NONE)
        return ul_arena_printf(scratch, "scratch of position %u", plan->ranges[range].begin);
    const char *name = problem->values[value].name;
    return name != NULL ? ul_quote(scratch, name) : "(unnamed)";
}

/* Whether the bytes outlast the runs of the plan. */
static bool outlasts(const struct ul_problem *problem, const struct ul_plan_range *range)
{
    return range->value != UL_PLAN_NONE && problem->values[range->value].persistent;
}

/* All ranges of all plans in space 0 that have bytes, but for what stands for other plans. */
static struct extent *list_extents(struct ul_arena *scratch,
                                   const struct ul_problem *const *problems,
                                   const struct ul_plan *const *plans, uint32_t count,
                                   bool outlasting, uint32_t *length)
{
    uint64_t all = 0;
    *length = 0;
    for (uint32_t p = 0; p < count; p++)
        all += plans[p]->range_count;
    struct extent *extents = UL_NEW_ARRAY(scratch, struct extent, all);
    for (uint32_t p = 0; p < count; p++) {
        for (uint32_t r = 0; r < plans[p]->range_count; r++) {
            const struct ul_plan_range *range = &plans[p]->ranges[r];
            if (range->space != 0 || range->size_bytes == 0 || range->class == UL_PLAN_OTHERS ||
                (outlasting && !outlasts(problems[p], range)))
                continue;
            extents[(*length)++] = (struct extent){.begin = range->offset_bytes,
                                                   .end = range->offset_bytes + range->size_bytes,
                                                   .plan = p,
                                                   .range = r};
        }
    }
    if (*length > 0)
        qsort(extents, *length, sizeof *extents, extent_compare);
    return extents;
}

enum ul_status ul_plan_check_shared(struct ul_arena *scratch,
                                    const struct ul_problem *const *problems,
                                    const struct ul_plan *const *plans, const char *const *names,
                                    uint32_t count, struct ul_diag *diag)
{
    uint32_t kept_count, used_count, first = 0;
    const struct extent *kept = list_extents(scratch, problems, plans, count, true, &kept_count);
    const struct extent *used = list_extents(scratch, problems, plans, count, false, &used_count);
    for (uint32_t p = 1; p < count; p++)
        if (plans[p]->reserved_bytes[0] != plans[0]->reserved_bytes[0])
            return ul_diag_set(diag, UL_MISMATCH, "%s reserves %llu bytes and %s %llu.", names[0],
                               (unsigned long long)plans[0]->reserved_bytes[0], names[p],
                               (unsigned long long)plans[p]->reserved_bytes[0]);
    for (uint32_t k = 1; k < kept_count; k++)
        if (kept[k].begin < kept[k - 1].end)
            return ul_diag_set(
                diag, UL_MISMATCH, "%s of %s and %s of %s are kept in the same bytes.",
                name_of(scratch, problems[kept[k - 1].plan], plans[kept[k - 1].plan],
                        kept[k - 1].range),
                names[kept[k - 1].plan],
                name_of(scratch, problems[kept[k].plan], plans[kept[k].plan], kept[k].range),
                names[kept[k].plan]);
    /* What is kept is disjoint now: of a range only those count that it meets. */
    for (uint32_t u = 0; u < used_count; u++) {
        while (first < kept_count && kept[first].end <= used[u].begin)
            first++;
        for (uint32_t k = first; k < kept_count && kept[k].begin < used[u].end; k++)
            if (kept[k].plan != used[u].plan)
                return ul_diag_set(
                    diag, UL_MISMATCH, "%s of %s lies on %s, which %s keeps between its runs.",
                    name_of(scratch, problems[used[u].plan], plans[used[u].plan], used[u].range),
                    names[used[u].plan],
                    name_of(scratch, problems[kept[k].plan], plans[kept[k].plan], kept[k].range),
                    names[kept[k].plan]);
    }
    return UL_OK;
}
