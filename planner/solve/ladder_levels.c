/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the optional values that a plan gives up: fewer and fewer bytes at more and more cost.
 *
 * Problem: among a step's alternatives, one wants its weights in a larger form, another keeps
 * memory of a library, a third neither; each takes bytes at every position. Which steps take the
 * slower way first? Method: a price for a byte, from 0 up. At a price, each step takes the
 * alternative that is cheapest with the price of its share of optional bytes. The choice changes
 * where a step's lower convex hull of bytes and cost has an edge, so all choices are the edges of
 * all hulls in order of their slopes:
 *
 *     cost |x                  step 1: x to y at 2 a byte, y to z at 5
 *          |   y               step 2: u to v at 3
 *          |        z          levels: x u, y u, y v, z v
 *          +---------- fewer bytes
 *
 * Where there are many edges, some levels are taken, evenly by bytes. A budget decides which bytes
 * count, those of space 0 only or also those outside it. Levels are made for both kinds, so that a
 * plan found for a budget of one kind is among those of the other. Left undone: a value that
 * several steps share saves nothing until the last of them gives it up; choices between the
 * hulls. */
#include "planner/model/optional.h"
#include "planner/model/timeline.h"
#include "planner/solve/solve_internal.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_EDGES = 16 }; /* levels in addition to the first, for one kind of bytes */

/* A step's change to an alternative with fewer bytes. */
struct edge {
    uint32_t step, index;
    uint64_t most_bytes; /* that the step needs after the change */
    uint64_t saved_bytes;
    double price; /* of a byte */
};

static int by_price(const void *left, const void *right)
{
    const struct edge *a = left, *b = right;
    if (a->price != b->price)
        return a->price < b->price ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* The next alternative after `from` along the hull, or `from` at its end. */
static uint32_t hull_next(const struct ul_plan_step *step, const uint64_t *needs, uint32_t from,
                          double *price)
{
    uint32_t next = from;
    for (uint32_t a = 0; a < step->alternative_count; a++) {
        if (needs[a] >= needs[from])
            continue;
        double more = (double)step->alternatives[a].cost - (double)step->alternatives[from].cost;
        double each = (more > 0 ? more : 0) / (double)(needs[from] - needs[a]);
        if (next == from || each < *price || (each <= *price && needs[a] < needs[next])) {
            next = a;
            *price = each;
        }
    }
    return next;
}

static uint32_t edges_make(const struct ul_problem *problem, uint64_t *const *needs,
                           struct edge *edges)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < problem->step_count; s++) {
        const struct ul_plan_step *step = &problem->steps[s];
        double price = 0;
        uint32_t at = ul_step_cheapest(step);
        uint32_t next = hull_next(step, needs[s], at, &price);
        for (; next != at; next = hull_next(step, needs[s], at, &price)) {
            edges[count] = (struct edge){.step = s,
                                         .index = count,
                                         .most_bytes = needs[s][next],
                                         .saved_bytes = needs[s][at] - needs[s][next],
                                         .price = price};
            count++;
            at = next;
        }
    }
    return count;
}

/* Takes a level after each edge that brings the saved bytes to the next even part of all. */
static void levels_take(struct ul_arena *arena, const struct ul_problem *problem, uint64_t **needs,
                        const struct edge *edges, uint32_t edge_count,
                        struct ul_ladder_levels *levels)
{
    uint64_t size = problem->step_count * sizeof(uint64_t);
    uint64_t all_bytes = 0, saved_bytes = 0;
    uint64_t *most = ul_arena_copy(arena, levels->items[0].most, size);
    uint32_t count = 0;
    for (uint32_t e = 0; e < edge_count; e++)
        all_bytes += edges[e].saved_bytes;
    for (uint32_t e = 0; e < edge_count; e++) {
        saved_bytes += edges[e].saved_bytes;
        most[edges[e].step] = edges[e].most_bytes;
        double part = (double)saved_bytes / (double)all_bytes * MAX_EDGES;
        bool is_last = e + 1 == edge_count;
        bool is_early = part < (double)count + 1 || count == MAX_EDGES - 1;
        if (edge_count > MAX_EDGES && !is_last && is_early)
            continue;
        UL_ASSERT(count < MAX_EDGES);
        count++;
        levels->items[levels->count++] =
            (struct ul_ladder_level){.needs = needs, .most = ul_arena_copy(arena, most, size)};
    }
}

static void levels_add(struct ul_arena *arena, const struct ul_problem *problem,
                       uint64_t alignment_bytes, bool with_overhead,
                       struct ul_ladder_levels *levels)
{
    uint64_t *shares = ul_optional_shares(arena, problem, alignment_bytes, with_overhead);
    uint64_t **needs = UL_NEW_ARRAY(arena, uint64_t *, problem->step_count);
    uint64_t alternative_count = 0;
    /* No step goes another way for a value that is smaller than its padding. */
    for (uint32_t v = 0; v < problem->value_count; v++)
        shares[v] = problem->values[v].size_bytes < alignment_bytes ? 0 : shares[v];
    for (uint32_t s = 0; s < problem->step_count; s++) {
        const struct ul_plan_step *step = &problem->steps[s];
        needs[s] = UL_NEW_ARRAY(arena, uint64_t, step->alternative_count);
        for (uint32_t a = 0; a < step->alternative_count; a++)
            needs[s][a] = ul_optional_need(&step->alternatives[a], shares);
        alternative_count += step->alternative_count;
    }
    struct edge *edges = UL_NEW_ARRAY(arena, struct edge, alternative_count);
    uint32_t edge_count = edges_make(problem, needs, edges);
    UL_ASSERT(edge_count < alternative_count || edge_count == 0);
    if (edge_count == 0)
        return;
    qsort(edges, edge_count, sizeof *edges, by_price);
    levels_take(arena, problem, needs, edges, edge_count, levels);
}

static bool has_beside(const struct ul_problem *problem)
{
    bool has = false;
    for (uint32_t s = 0; s < problem->space_count; s++)
        has = has || problem->spaces[s].is_overhead;
    return has;
}

void ul_ladder_levels_make(struct ul_arena *arena, const struct ul_problem *problem,
                           uint64_t alignment_bytes, struct ul_ladder_levels *levels)
{
    levels->items = UL_NEW_ARRAY(arena, struct ul_ladder_level, 1 + 2 * MAX_EDGES);
    levels->items[0].most = UL_NEW_ARRAY(arena, uint64_t, problem->step_count);
    for (uint32_t s = 0; s < problem->step_count; s++)
        levels->items[0].most[s] = UINT64_MAX;
    levels->count = 1;
    levels_add(arena, problem, alignment_bytes, false, levels);
    if (has_beside(problem))
        levels_add(arena, problem, alignment_bytes, true, levels);
}

void ul_ladder_level_map(const struct ul_problem *problem, const struct ul_ladder_levels *levels,
                         uint32_t level, uint64_t *const *needs, const uint32_t *alternatives,
                         uint32_t *mapped)
{
    const struct ul_ladder_level *at = &levels->items[level];
    UL_ASSERT(level < levels->count);
    for (uint32_t s = 0; s < problem->step_count; s++) {
        const struct ul_plan_step *step = &problem->steps[s];
        uint32_t from = alternatives[s], best = from;
        bool stays = level == 0 || at->needs[s][from] <= at->most[s];
        for (uint32_t a = 0; a < step->alternative_count && !stays; a++) {
            bool has_room = at->needs[s][a] <= at->most[s];
            bool had_room = at->needs[s][best] <= at->most[s];
            bool is_lean = needs[s][a] <= needs[s][from];
            bool was_lean = needs[s][best] <= needs[s][from];
            bool is_cheaper =
                ul_alternative_is_cheaper(&step->alternatives[a], &step->alternatives[best]);
            bool is_better =
                !had_room || (is_lean && !was_lean) || (is_lean == was_lean && is_cheaper);
            best = has_room && is_better ? a : best;
        }
        mapped[s] = best;
    }
}
