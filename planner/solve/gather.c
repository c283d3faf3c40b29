/* SPDX-License-Identifier: Apache-2.0 */
/* Brings steps together that may share a launch.
 *
 * Problem: a device can run small steps in one launch where they follow one another and none
 * touches bytes that another one writes. An order that is good for memory keeps such steps apart:
 * each is between two products, and its results take over bytes of the step before it. Method: the
 * groups of a finished plan move. At first each position is a group of its own. A group moves to
 * another one, earlier or later, as long as it stays after everything that it depends on, and
 * before everything that depends on it. While a group runs, all values that its members touch live:
 *
 *      position  0      1         2        3      4               0      1        2      3
 *                sum a  update a  product  sum b  update b   ->   sum a  product  sum b  update a,
 * b grad a    [-------------)                                  [-------------------------------)
 *
 * A group moves only where the live sums stay below the bytes that the plan reserves. The ranges
 * are then packed with these longer lifetimes. If that takes more bytes than the plan, groups move
 * again with less room. In the end the ranges get the lifetimes of the new order back, and keep
 * their offsets: so the results of a member do not overlap anything that the others touch, as one
 * launch needs it. Left undone: steps with parts; plans with transfers. */
#include "planner/model/timeline.h"
#include "planner/solve/solve.h"
#include "planner/solve/solve_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_WAY = 512,  /* positions that a group moves at most */
    MAX_PASSES = 4, /* over all groups */
    TRIES = 3       /* each with less room than the one before */
};

/* The lifetime of a range, in times: [begin, end). */
struct life {
    uint32_t begin, end;
    bool is_first, is_last; /* whether a touch begins it, and whether one ends it */
    uint64_t size_bytes;
    struct ul_plan_list touches; /* positions */
};

struct gather {
    struct ul_arena arena;
    const struct ul_problem *problem;
    const struct ul_plan *plan;
    const struct ul_plan_gathering *gathering;
    uint32_t count;              /* of positions, and of times */
    struct ul_plan_list *before; /* by position: the earlier positions that it depends on */
    struct ul_plan_list *behind;
    struct ul_plan_list *lives;  /* by position: what it touches */
    struct life *ranges;         /* by range of the plan */
    uint32_t *time;              /* by position */
    struct ul_plan_list *groups; /* by time: the positions of its group */
    uint64_t *live_bytes;
    uint64_t limit_bytes;
};

static void add(struct gather *g, struct ul_plan_list *list, uint32_t item)
{
    ul_plan_list_add(&g->arena, list, item);
}

/* ---- Dependences ---- */

static void find_edges(struct gather *g)
{
    ul_plan_find_before(&g->arena, g->problem, g->plan, g->before);
    /* A position that takes over bytes comes after all others that touch them. */
    for (uint32_t r = 0; r < g->plan->range_count; r++) {
        const struct ul_plan_range *range = &g->plan->ranges[r];
        const struct ul_plan_list *touches =
            range->alias == UL_PLAN_NONE ? NULL : &g->ranges[range->alias].touches;
        for (uint32_t i = 0; touches != NULL && i < touches->count; i++)
            if (touches->items[i] != range->begin)
                add(g, &g->before[range->begin], touches->items[i]);
    }
    for (uint32_t p = 0; p < g->count; p++)
        for (uint32_t i = 0; i < g->before[p].count; i++)
            add(g, &g->behind[g->before[p].items[i]], p);
}

/* ---- Lifetimes ---- */

static void touch(struct gather *g, uint32_t p, uint32_t value)
{
    const struct ul_plan_range *range = ul_plan_find_range(g->problem, g->plan, value, p);
    uint32_t r = range == NULL ? UL_PLAN_NONE : (uint32_t)(range - g->plan->ranges);
    if (range == NULL || range->space != 0 || g->problem->values[value].persistent)
        return;
    struct ul_plan_list *touches = &g->ranges[r].touches;
    if (touches->count > 0 && touches->items[touches->count - 1] == p)
        return;
    add(g, touches, p);
    add(g, &g->lives[p], r);
}

/* A range that takes over bytes counts from the next time on. */
static uint32_t begin_of(const struct gather *g, uint32_t range, uint32_t begin)
{
    return begin + (g->plan->ranges[range].alias != UL_PLAN_NONE);
}

static void add_bytes(struct gather *g, uint32_t range, bool adds)
{
    const struct life *life = &g->ranges[range];
    for (uint32_t t = begin_of(g, range, life->begin); t < life->end; t++)
        g->live_bytes[t] =
            adds ? g->live_bytes[t] + life->size_bytes : g->live_bytes[t] - life->size_bytes;
}

static void find_lives(struct gather *g)
{
    const struct ul_plan *plan = g->plan;
    for (uint32_t p = 0; p < g->count; p++) {
        const struct ul_plan_substep *substep = ul_substep_at(g->problem, &plan->positions[p]);
        for (uint32_t i = 0; i < substep->read_count; i++)
            touch(g, p, substep->reads[i]);
        for (uint32_t i = 0; i < substep->write_count; i++)
            touch(g, p, substep->writes[i]);
    }
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *range = &plan->ranges[r];
        struct life *life = &g->ranges[r];
        const struct ul_plan_list *touches = &life->touches;
        if (range->value == UL_PLAN_NONE && range->space == 0) {
            add(g, &life->touches, range->begin);
            add(g, &g->lives[range->begin], r);
        }
        life->begin = range->begin;
        life->end = range->end;
        life->size_bytes = ul_size_align_or_die(range->size_bytes, plan->alignment_bytes);
        life->is_first = touches->count > 0 && touches->items[0] == range->begin;
        life->is_last = touches->count > 0 && touches->items[touches->count - 1] + 1 == range->end;
        if (range->space == 0)
            add_bytes(g, r, true);
    }
}

/* Sets the lifetime of a range by the times of the positions that touch it. */
static void time_life(const struct gather *g, struct life *life)
{
    uint32_t first = UL_PLAN_NONE, last = 0;
    for (uint32_t i = 0; i < life->touches.count; i++) {
        uint32_t t = g->time[life->touches.items[i]];
        first = t < first ? t : first;
        last = t > last ? t : last;
    }
    life->begin = life->is_first ? first : life->begin;
    life->end = life->is_last ? last + 1 : life->end;
}

/* ---- Moves ---- */

/* Moves the members of a group to another time. Returns false where the live sums then exceed the
 * limit. */
static bool set_time(struct gather *g, const struct ul_plan_list *group, uint32_t to)
{
    uint32_t from = g->time[group->items[0]];
    bool is_within = true;
    for (uint32_t m = 0; m < group->count; m++)
        g->time[group->items[m]] = to;
    for (uint32_t m = 0; m < group->count; m++) {
        const struct ul_plan_list *lives = &g->lives[group->items[m]];
        for (uint32_t i = 0; i < lives->count; i++) {
            struct life *life = &g->ranges[lives->items[i]];
            add_bytes(g, lives->items[i], false);
            time_life(g, life);
            add_bytes(g, lives->items[i], true);
        }
    }
    for (uint32_t t = from < to ? from : to; t <= (from < to ? to : from); t++)
        is_within = is_within && g->live_bytes[t] <= g->limit_bytes;
    return is_within;
}

/* The first and the last time at which the group could run. */
static void find_span(const struct gather *g, const struct ul_plan_list *group, uint32_t *first,
                      uint32_t *last)
{
    uint32_t at = g->time[group->items[0]];
    const struct ul_plan_position *positions = g->plan->positions;
    uint32_t region = g->problem->steps[positions[group->items[0]].step].region;
    *first = at;
    *last = at;
    while (*first > 0 && at - *first < MAX_WAY &&
           g->problem->steps[positions[*first - 1].step].region == region)
        --*first;
    while (*last + 1 < g->count && *last - at < MAX_WAY &&
           g->problem->steps[positions[*last + 1].step].region == region)
        ++*last;
    for (uint32_t m = 0; m < group->count; m++) {
        const struct ul_plan_list *before = &g->before[group->items[m]];
        const struct ul_plan_list *behind = &g->behind[group->items[m]];
        for (uint32_t i = 0; i < before->count; i++)
            *first = g->time[before->items[i]] >= *first ? g->time[before->items[i]] + 1 : *first;
        for (uint32_t i = 0; i < behind->count; i++)
            *last = g->time[behind->items[i]] <= *last ? g->time[behind->items[i]] - 1 : *last;
    }
}

/* Whether the position may share a launch. The parts of a step stay together, so they may not. */
static bool shares(const struct gather *g, uint32_t p)
{
    const struct ul_plan_position *at = &g->plan->positions[p];
    return g->gathering->kinds[p] != 0 &&
           g->problem->steps[at->step].alternatives[at->alternative].substep_count == 1;
}

static bool may_take(const struct gather *g, const struct ul_plan_list *group,
                     const struct ul_plan_list *other)
{
    const uint32_t *kinds = g->gathering->kinds;
    return other->count > 0 && shares(g, other->items[0]) &&
           kinds[group->items[0]] == kinds[other->items[0]] &&
           group->count + other->count <= g->gathering->most;
}

static bool move_to(struct gather *g, uint32_t from, uint32_t to)
{
    struct ul_plan_list *group = &g->groups[from];
    if (!may_take(g, group, &g->groups[to]))
        return false;
    if (!set_time(g, group, to)) {
        (void)set_time(g, group, from);
        return false;
    }
    for (uint32_t m = 0; m < group->count; m++)
        add(g, &g->groups[to], group->items[m]);
    group->count = 0;
    return true;
}

/* Moves a group to the nearest group with room for it. Later groups come first. */
static bool move_group(struct gather *g, uint32_t at)
{
    uint32_t first, last;
    const struct ul_plan_list *group = &g->groups[at];
    if (group->count == 0 || !shares(g, group->items[0]))
        return false;
    find_span(g, group, &first, &last);
    for (uint32_t t = at + 1; t <= last; t++)
        if (move_to(g, at, t))
            return true;
    for (uint32_t t = at; t-- > first;)
        if (move_to(g, at, t))
            return true;
    return false;
}

/* ---- The plan ---- */

static void init(struct gather *g)
{
    uint32_t count = g->count;
    g->before = UL_NEW_ARRAY(&g->arena, struct ul_plan_list, count);
    g->behind = UL_NEW_ARRAY(&g->arena, struct ul_plan_list, count);
    g->lives = UL_NEW_ARRAY(&g->arena, struct ul_plan_list, count);
    g->groups = UL_NEW_ARRAY(&g->arena, struct ul_plan_list, count);
    g->time = UL_NEW_ARRAY(&g->arena, uint32_t, count);
    g->live_bytes = UL_NEW_ARRAY(&g->arena, uint64_t, (uint64_t)count + 2);
    g->ranges = UL_NEW_ARRAY(&g->arena, struct life, g->plan->range_count);
    for (uint32_t p = 0; p < count; p++) {
        g->time[p] = p;
        add(g, &g->groups[p], p);
    }
    find_lives(g);
    find_edges(g);
}

static int compare_positions(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

/* Orders the positions by their groups. `spans` gets, for each position, the begin and the end of
 * its group. */
static void put_positions(struct gather *g, struct ul_arena *arena, struct ul_plan *other,
                          struct ul_plan_span *spans)
{
    other->positions = UL_NEW_ARRAY(arena, struct ul_plan_position, g->count);
    uint32_t next = 0;
    for (uint32_t t = 0; t < g->count; t++) {
        struct ul_plan_list *group = &g->groups[t];
        uint32_t begin = next, end = next + group->count;
        if (group->count > 0)
            qsort(group->items, group->count, sizeof *group->items, compare_positions);
        for (uint32_t m = 0; m < group->count; m++) {
            spans[next] = (struct ul_plan_span){begin, end};
            other->positions[next++] = g->plan->positions[group->items[m]];
        }
    }
    UL_ASSERT(next == g->count);
}

/* Brings groups together once. False: no group has moved. */
static bool gather(struct gather *g, struct ul_arena *arena, struct ul_plan *other,
                   struct ul_plan_span *spans)
{
    bool is_any = false, moves = true;
    init(g);
    for (uint32_t pass = 0; moves && pass < MAX_PASSES; pass++) {
        moves = false;
        for (uint32_t t = 0; t < g->count; t++)
            moves = move_group(g, t) || moves;
        is_any = is_any || moves;
    }
    if (is_any)
        put_positions(g, arena, other, spans);
    return is_any;
}

static const struct ul_plan_span *arrange(const void *context, struct ul_arena *arena,
                                          uint64_t limit_bytes, struct ul_plan *other)
{
    struct gather g = *(const struct gather *)context;
    g.limit_bytes = limit_bytes;
    struct ul_plan_span *spans = UL_NEW_ARRAY(arena, struct ul_plan_span, g.count);
    ul_arena_init(&g.arena);
    bool is_any = gather(&g, arena, other, spans);
    ul_arena_done(&g.arena);
    return is_any ? spans : NULL;
}

enum ul_status ul_plan_gather(struct ul_arena *arena, const struct ul_problem *problem,
                              const struct ul_plan_options *options,
                              const struct ul_plan_gathering *gathering, struct ul_plan *plan,
                              struct ul_diag *diag)
{
    const struct ul_plan before = *plan;
    const struct gather g = {.problem = problem,
                             .plan = &before,
                             .gathering = gathering,
                             .count = before.position_count};
    bool is_other;
    UL_TRY(ul_plan_rearrange(arena, problem, options, TRIES, arrange, &g, plan, &is_other, diag));
    return is_other ? ul_plan_check(arena, problem, plan, diag) : UL_OK;
}
