/* SPDX-License-Identifier: Apache-2.0 */
/* Gives free bytes of a plan to scratch.
 *
 * Problem: a step may use more scratch than it is planned with, but not at the price of a larger
 * arena. Method: once a plan is made, each step that runs once and has spare alternatives
 * (problem.h) gets the largest whose scratch fits into the free bytes at its position, at the
 * lowest such place.
 *
 *      reserved ---------------------------------
 *               | live   |          | live      |       the scratch of step p moves into the
 *               |--------|  free    |-----------|       gap and grows
 *      0        | live   |----------| live      |
 *                         step p
 *
 * Invariants: reserved bytes, positions and all other ranges stay unchanged. Left undone: gaps are
 * as the packing left them; another packing may have larger ones. */
#include "planner/model/timeline.h"
#include "planner/solve/solve.h"

#include <stdlib.h>

struct extent {
    uint64_t begin, end;
};

static int extent_compare(const void *left, const void *right)
{
    const struct extent *a = left, *b = right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->end != b->end ? (a->end < b->end ? -1 : 1) : 0;
}

/* Lists the extents of space 0 taken by others while a range of scratch lives, by offset; returns
 * their number. On another stream than 0 scratch lives through the wait for its step. */
static uint32_t list_taken(const struct ul_plan *plan, uint32_t scratch, struct extent *taken)
{
    uint32_t count = 0, begin = plan->ranges[scratch].begin, end = plan->ranges[scratch].end;
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *range = &plan->ranges[r];
        if (r == scratch || range->space != 0 || end <= range->begin || begin >= range->end)
            continue;
        uint64_t size_bytes = ul_size_align_or_die(range->size_bytes, plan->alignment_bytes);
        taken[count++] = (struct extent){range->offset_bytes, range->offset_bytes + size_bytes};
    }
    qsort(taken, count, sizeof *taken, extent_compare);
    return count;
}

/* The lowest free place; UINT64_MAX: there is none. */
static uint64_t find_place(const struct ul_plan *plan, const struct extent *taken, uint32_t count,
                           const struct ul_plan_substep *substep)
{
    uint64_t alignment = substep->scratch_alignment_bytes > plan->alignment_bytes
                             ? substep->scratch_alignment_bytes
                             : plan->alignment_bytes;
    uint64_t size_bytes = ul_size_align_or_die(substep->scratch_bytes, plan->alignment_bytes);
    uint64_t begin = 0, reserved_bytes = plan->reserved_bytes[0];
    for (uint32_t i = 0; i < count; i++) {
        if (begin <= taken[i].begin && size_bytes <= taken[i].begin - begin)
            return begin;
        if (taken[i].end > begin)
            begin = ul_size_align_or_die(taken[i].end, alignment);
    }
    return begin <= reserved_bytes && size_bytes <= reserved_bytes - begin ? begin : UINT64_MAX;
}

/* The range of a position's scratch in space 0; UL_PLAN_NONE: there is none. */
static uint32_t find_scratch(const struct ul_plan *plan, uint32_t position)
{
    for (uint32_t r = plan->range_count; r-- > 0 && plan->ranges[r].value == UL_PLAN_NONE;) {
        if (plan->ranges[r].begin == position && plan->ranges[r].space == 0)
            return r;
    }
    return UL_PLAN_NONE;
}

static void take_spare(const struct ul_problem *problem, struct ul_plan *plan, uint32_t position,
                       struct extent *taken)
{
    struct ul_plan_position *at = &plan->positions[position];
    const struct ul_plan_step *step = &problem->steps[at->step];
    uint32_t range = find_scratch(plan, position);
    uint32_t best = UL_PLAN_NONE;
    uint64_t best_bytes = range == UL_PLAN_NONE ? 0 : plan->ranges[range].size_bytes, place = 0;
    if (range == UL_PLAN_NONE)
        return;
    uint32_t count = list_taken(plan, range, taken);
    for (uint32_t a = step->alternative_count; a < step->alternative_count + step->spare_count;
         a++) {
        const struct ul_plan_substep *substep = &step->alternatives[a].substeps[0];
        if (substep->scratch_bytes <= best_bytes || substep->scratch_space != 0)
            continue;
        uint64_t found = find_place(plan, taken, count, substep);
        if (found == UINT64_MAX)
            continue;
        best = a;
        best_bytes = substep->scratch_bytes;
        place = found;
    }
    if (best == UL_PLAN_NONE)
        return;
    at->alternative = best;
    plan->ranges[range].size_bytes = best_bytes;
    plan->ranges[range].offset_bytes = place;
}

enum ul_status ul_plan_take_spares(struct ul_arena *arena, const struct ul_problem *problem,
                                   struct ul_plan *plan, struct ul_diag *diag)
{
    uint32_t *run_counts = UL_NEW_ARRAY(arena, uint32_t, problem->step_count);
    struct extent *taken = UL_NEW_ARRAY(arena, struct extent, plan->range_count);
    plan->positions =
        ul_arena_copy(arena, plan->positions, sizeof *plan->positions * plan->position_count);
    plan->ranges = ul_arena_copy(arena, plan->ranges, sizeof *plan->ranges * plan->range_count);
    for (uint32_t p = 0; p < plan->position_count; p++) {
        if (plan->positions[p].kind == UL_PLAN_RUN)
            run_counts[plan->positions[p].step]++;
    }
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct ul_plan_position *at = &plan->positions[p];
        if (at->kind == UL_PLAN_RUN && at->alternative == 0 && run_counts[at->step] == 1 &&
            problem->steps[at->step].spare_count > 0)
            take_spare(problem, plan, p, taken);
    }
    ul_account_live(arena, plan);
    uint64_t counted = plan->rows.alignment_bytes;
    for (uint32_t k = 0; k < UL_PLAN_CLASS_COUNT; k++)
        counted += plan->rows.class_bytes[k];
    UL_ASSERT(counted <= plan->reserved_bytes[0]);
    plan->rows.holes_bytes = plan->reserved_bytes[0] - counted;
    return ul_plan_check(arena, problem, plan, diag);
}
