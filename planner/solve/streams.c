/* SPDX-License-Identifier: Apache-2.0 */
/* Lets branches that do not depend on each other run at the same time, on two streams.
 *
 * Problem: a device that runs one step at a time is partly idle where a step has work for few of
 * its multiprocessors. Branches of a network could run at the same time. But an order that is good
 * for memory lets each branch use the bytes of the branch before it. Method: a window is a run of
 * positions of a finished plan. The positions of a window fall into parts that do not depend on
 * each other. Some parts go to stream 1 and come first, the others stay on stream 0, and a wait
 * ends the window. Everything that stream 1 touches lives through the wait:
 *
 *      position  0     1      2    3      4       0     1      2     3     4     5
 *      stream 0  conv  conv a  .   conv b  .  ->  conv               conv b      wait
 *      stream 1                                         conv a                        ...
 *      a                [------)                        [--------------------------)
 *
 * A window takes as long as its longest stream. It counts only where the work of both streams,
 * spread over the whole device, takes no longer than that: so two steps that each fill the device
 * never count as a gain. Dynamic programming over the positions chooses the fastest set of windows,
 * as far as the live bytes stay below those that the plan reserves. Then ranges are packed again.
 * If that takes more bytes, windows are chosen again with less room. Left undone: more than two
 * streams; waits inside a window; loops, branches and entries; plans with transfers. */
#include "planner/model/timeline.h"
#include "planner/solve/solve.h"
#include "planner/solve/solve_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_WINDOW = 96, /* positions */
    TRIES = 4        /* each with less room than the one before */
};

/* Positions of a window that depend on each other. */
struct part {
    uint64_t cost;
    uint32_t root; /* number of its first position within the window */
    bool is_beside;
};

/* A window of positions [begin, end), and which of them run on stream 1. */
struct window {
    uint32_t begin;
    bool *is_beside;
};

struct streams {
    struct ul_arena arena;
    const struct ul_problem *problem;
    const struct ul_plan *plan;
    const struct ul_plan_streaming *streaming;
    uint64_t limit_bytes;
    uint32_t count;
    struct ul_plan_list *before; /* by position: the earlier positions that it depends on */
    uint32_t *counted; /* by position that counts: the one before that does, or UL_PLAN_NONE */
    struct ul_plan_list *touched; /* by position: the ranges that it touches */
    uint64_t *live_bytes;
    uint64_t *best_cost;     /* by number of positions: the least cost of the first ones */
    struct window *windows;  /* by number of positions: the window that they end with */
    uint32_t *ranges;        /* that a window touches */
    uint32_t *seen;          /* by range: the stamp of the window that touched it last */
    bool *is_overhead_range; /* by range that a window touches: stream 1 does */
    uint32_t stamp;
};

static void add(struct streams *s, struct ul_plan_list *list, uint32_t item)
{
    ul_plan_list_add(&s->arena, list, item);
}

/* Finds what each position depends on. Those that share a launch stay together. */
static void find_edges(struct streams *s)
{
    ul_plan_find_before(&s->arena, s->problem, s->plan, s->before);
    for (uint32_t p = 0; p < s->count; p++)
        if (s->streaming->groups[p] != p)
            add(s, &s->before[p], s->streaming->groups[p]);
}

/* ---- Live bytes ---- */

/* A range that takes over bytes counts from the next position on. */
static uint32_t counted_begin(const struct ul_plan_range *range)
{
    return range->begin + (range->alias != UL_PLAN_NONE);
}

static uint64_t padded_bytes(const struct streams *s, uint32_t range)
{
    return ul_size_align_or_die(s->plan->ranges[range].size_bytes, s->plan->alignment_bytes);
}

static void touch(struct streams *s, uint32_t p, uint32_t value)
{
    const struct ul_plan_range *range = ul_plan_find_range(s->problem, s->plan, value, p);
    if (range != NULL && range->space == 0 && !s->problem->values[value].persistent)
        add(s, &s->touched[p], (uint32_t)(range - s->plan->ranges));
}

static void find_touches(struct streams *s)
{
    const struct ul_plan *plan = s->plan;
    for (uint32_t p = 0; p < s->count; p++) {
        const struct ul_plan_substep *substep = ul_substep_at(s->problem, &plan->positions[p]);
        for (uint32_t i = 0; i < substep->read_count; i++)
            touch(s, p, substep->reads[i]);
        for (uint32_t i = 0; i < substep->write_count; i++)
            touch(s, p, substep->writes[i]);
    }
    for (uint32_t r = 0; r < plan->range_count; r++) {
        if (plan->ranges[r].space == 0 && plan->ranges[r].value == UL_PLAN_NONE)
            add(s, &s->touched[plan->ranges[r].begin], r);
    }
    s->live_bytes = ul_account_live_sums(&s->arena, plan);
}

/* Lists the ranges that a window touches, and whether stream 1 touches them. Returns their
 * number. */
static uint32_t list_ranges(struct streams *s, uint32_t begin, uint32_t end, const bool *is_beside)
{
    uint32_t count = 0;
    s->stamp++;
    for (uint32_t p = begin; p < end; p++) {
        for (uint32_t i = 0; i < s->touched[p].count; i++) {
            uint32_t r = s->touched[p].items[i];
            if (s->seen[r] != s->stamp) {
                s->ranges[count++] = r;
                s->seen[r] = s->stamp;
                s->is_overhead_range[r] = false;
            }
            s->is_overhead_range[r] = s->is_overhead_range[r] || is_beside[p - begin];
        }
    }
    return count;
}

/* Whether the live bytes stay within the limit. Ranges that stream 1 touches live through the whole
 * window; those that only stream 0 touches live as long as they do in the plan. */
static bool has_room(struct streams *s, uint32_t begin, uint32_t end, const bool *is_beside)
{
    uint64_t change[MAX_WINDOW + 1] = {0}, bytes = s->live_bytes[begin];
    uint32_t count = list_ranges(s, begin, end, is_beside);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t r = s->ranges[i];
        const struct ul_plan_range *range = &s->plan->ranges[r];
        bool is_taken = range->alias != UL_PLAN_NONE && !s->is_overhead_range[r] &&
                        (s->seen[range->alias] != s->stamp || !s->is_overhead_range[range->alias]);
        uint64_t size_bytes = padded_bytes(s, r);
        if (counted_begin(range) <= begin && begin < range->end)
            bytes -= size_bytes;
        uint32_t from = range->begin < begin || s->is_overhead_range[r] ? begin : range->begin;
        uint32_t to = range->end > end || s->is_overhead_range[r] ? end : range->end;
        from += is_taken && from == range->begin;
        if (from < to) {
            change[from - begin] += size_bytes;
            change[to - begin] -= size_bytes;
        }
    }
    for (uint32_t p = begin; p < end; p++) {
        bytes += change[p - begin];
        if (bytes > s->limit_bytes)
            return false;
    }
    return true;
}

/* ---- Windows ---- */

static uint32_t find_root(uint32_t *parents, uint32_t i)
{
    while (parents[i] != i)
        i = parents[i] = parents[parents[i]];
    return i;
}

static void join(uint32_t *parents, uint32_t first, uint32_t second)
{
    uint32_t a = find_root(parents, first), b = find_root(parents, second);
    parents[a > b ? a : b] = a < b ? a : b;
}

/* Joins the parts that a position depends on, and those that count as it does. The first position
 * of a part is its root. */
static void join_parts(const struct streams *s, uint32_t begin, uint32_t p, uint32_t *parents)
{
    uint32_t counted = s->counted[p];
    parents[p - begin] = p - begin;
    for (uint32_t i = 0; i < s->before[p].count; i++)
        if (s->before[p].items[i] >= begin)
            join(parents, s->before[p].items[i] - begin, p - begin);
    if (counted != UL_PLAN_NONE && counted >= begin)
        join(parents, counted - begin, p - begin);
}

/* Finds for each position that counts the one before it that does. */
static void find_counted(struct streams *s)
{
    const bool *counts = s->streaming->counts;
    uint32_t last = UL_PLAN_NONE;
    s->counted = UL_NEW_ARRAY(&s->arena, uint32_t, s->count);
    for (uint32_t p = 0; p < s->count; p++) {
        bool is_counting = counts != NULL && counts[p];
        s->counted[p] = is_counting ? last : UL_PLAN_NONE;
        last = is_counting ? p : last;
    }
}

static int compare_parts(const void *left, const void *right)
{
    const struct part *a = left, *b = right;
    if (a->cost != b->cost)
        return a->cost > b->cost ? -1 : 1;
    return a->root < b->root ? -1 : a->root > b->root;
}

/* Shares the parts among two streams, the longest one first. Returns the time of the window then;
 * UINT64_MAX: it does not have two parts, or too much work for the device. */
static uint64_t share_parts(const struct streams *s, uint32_t begin, uint32_t end,
                            uint32_t *parents, struct part *parts, uint32_t *part_count)
{
    uint64_t costs[MAX_WINDOW] = {0}, sums[2] = {0}, busy = 0, longest;
    uint32_t count = 0;
    for (uint32_t p = begin; p < end; p++) {
        costs[find_root(parents, p - begin)] += s->streaming->costs[p];
        busy += s->streaming->busy_costs[p];
    }
    for (uint32_t i = 0; i < end - begin; i++)
        if (parents[i] == i)
            parts[count++] = (struct part){.cost = costs[i], .root = i};
    *part_count = count;
    if (count < 2)
        return UINT64_MAX;
    qsort(parts, count, sizeof *parts, compare_parts);
    for (uint32_t i = 0; i < count; i++) {
        parts[i].is_beside = sums[1] < sums[0];
        sums[parts[i].is_beside] += parts[i].cost;
    }
    longest = sums[0] > sums[1] ? sums[0] : sums[1];
    return busy > longest || sums[1] == 0 ? UINT64_MAX : longest + s->streaming->fork_cost;
}

/* Marks the positions of stream 1; `other`: the streams change places. */
static void mark_beside(uint32_t length, uint32_t *parents, const struct part *parts,
                        uint32_t part_count, bool other, bool *is_beside)
{
    bool is_part_beside[MAX_WINDOW];
    for (uint32_t i = 0; i < part_count; i++)
        is_part_beside[parts[i].root] = parts[i].is_beside != other;
    for (uint32_t i = 0; i < length; i++)
        is_beside[i] = is_part_beside[find_root(parents, i)];
}

/* Makes the window the best one that ends there, if it is faster and has room. */
static void try_window(struct streams *s, uint32_t begin, uint32_t end, uint32_t *parents)
{
    struct part parts[MAX_WINDOW];
    bool is_beside[MAX_WINDOW];
    uint32_t part_count;
    uint64_t cost = share_parts(s, begin, end, parents, parts, &part_count);
    if (cost == UINT64_MAX || s->best_cost[begin] + cost >= s->best_cost[end])
        return;
    for (uint32_t way = 0; way < 2; way++) {
        mark_beside(end - begin, parents, parts, part_count, way != 0, is_beside);
        if (!has_room(s, begin, end, is_beside))
            continue;
        s->best_cost[end] = s->best_cost[begin] + cost;
        s->windows[end] = (struct window){
            begin, ul_arena_copy(&s->arena, is_beside, (end - begin) * sizeof *is_beside)};
        return;
    }
}

/* Whether a window may begin or end before a position: parts of a step stay together, and positions
 * that share a launch. */
static bool is_cut(const struct streams *s, uint32_t p)
{
    return p == s->count || (s->plan->positions[p].substep == 0 && s->streaming->groups[p] == p);
}

static bool may_run_beside(const struct streams *s, uint32_t p)
{
    return s->streaming->may[p] && s->problem->steps[s->plan->positions[p].step].region == 0;
}

static void choose_windows(struct streams *s)
{
    uint32_t parents[MAX_WINDOW];
    for (uint32_t p = 0; p < s->count; p++) {
        s->best_cost[p + 1] = s->best_cost[p] + s->streaming->costs[p];
        s->windows[p + 1] = (struct window){p, NULL};
    }
    for (uint32_t begin = 0; begin < s->count; begin++) {
        uint64_t alone = s->best_cost[begin] + s->streaming->costs[begin];
        if (alone < s->best_cost[begin + 1]) {
            s->best_cost[begin + 1] = alone;
            s->windows[begin + 1] = (struct window){begin, NULL};
        }
        if (!is_cut(s, begin))
            continue;
        for (uint32_t p = begin; p < s->count && p - begin < MAX_WINDOW && may_run_beside(s, p);
             p++) {
            join_parts(s, begin, p, parents);
            if (is_cut(s, p + 1))
                try_window(s, begin, p + 1, parents);
        }
    }
}

/* ---- The plan ---- */

static void put_position(const struct streams *s, struct ul_plan *other, struct ul_plan_span *spans,
                         uint32_t p, uint32_t stream)
{
    uint32_t group = s->streaming->groups[p], to = other->position_count;
    uint32_t first = to - (p - group); /* those of a group follow each other */
    other->positions[to] = s->plan->positions[p];
    other->positions[to].stream = stream;
    for (uint32_t i = first; i <= to; i++)
        spans[i] = (struct ul_plan_span){first, to + 1};
    other->position_count++;
}

static void put_window(const struct streams *s, struct ul_plan *other, struct ul_plan_span *spans,
                       uint32_t begin, uint32_t end, const bool *is_beside)
{
    uint32_t awaited = UL_PLAN_NONE;
    for (uint32_t p = begin; is_beside != NULL && p < end; p++) {
        if (!is_beside[p - begin])
            continue;
        awaited = other->position_count;
        put_position(s, other, spans, p, 1);
    }
    for (uint32_t p = begin; p < end; p++)
        if (is_beside == NULL || !is_beside[p - begin])
            put_position(s, other, spans, p, 0);
    if (awaited == UL_PLAN_NONE)
        return;
    uint32_t to = other->position_count++;
    spans[to] = (struct ul_plan_span){to, to + 1};
    other->positions[to] = (struct ul_plan_position){.kind = UL_PLAN_WAIT, .awaited = awaited};
}

static struct ul_plan_span *put_positions(const struct streams *s, struct ul_arena *arena,
                                          struct ul_plan *other)
{
    uint32_t *ends = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)s->count + 1), count = 0;
    struct ul_plan_span *spans = UL_NEW_ARRAY(arena, struct ul_plan_span, (uint64_t)2 * s->count);
    other->positions = UL_NEW_ARRAY(arena, struct ul_plan_position, (uint64_t)2 * s->count);
    other->position_count = 0;
    for (uint32_t end = s->count; end > 0; end = s->windows[end].begin)
        ends[count++] = end;
    while (count-- > 0) {
        const struct window *window = &s->windows[ends[count]];
        put_window(s, other, spans, window->begin, ends[count], window->is_beside);
    }
    UL_ASSERT(other->position_count >= s->count);
    return spans;
}

static void init(struct streams *s)
{
    uint32_t count = s->count;
    s->before = UL_NEW_ARRAY(&s->arena, struct ul_plan_list, count);
    s->touched = UL_NEW_ARRAY(&s->arena, struct ul_plan_list, count);
    s->best_cost = UL_NEW_ARRAY(&s->arena, uint64_t, (uint64_t)count + 1);
    s->windows = UL_NEW_ARRAY(&s->arena, struct window, (uint64_t)count + 1);
    s->ranges = UL_NEW_ARRAY(&s->arena, uint32_t, s->plan->range_count);
    s->seen = UL_NEW_ARRAY(&s->arena, uint32_t, s->plan->range_count);
    s->is_overhead_range = UL_NEW_ARRAY(&s->arena, bool, s->plan->range_count);
    find_counted(s);
    find_touches(s);
    find_edges(s);
}

/* Chooses windows, and puts the positions of the plan in their order; NULL: they gain too little.
 */
static struct ul_plan_span *choose(struct streams *s, struct ul_arena *arena, struct ul_plan *other)
{
    uint64_t cost = 0;
    init(s);
    for (uint32_t p = 0; p < s->count; p++)
        cost += s->streaming->costs[p];
    choose_windows(s);
    UL_ASSERT(s->best_cost[s->count] <= cost);
    uint64_t gain = cost - s->best_cost[s->count];
    if (gain == 0 || gain < cost / 100 * s->streaming->least_percent)
        return NULL;
    return put_positions(s, arena, other);
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

static const struct ul_plan_span *arrange(const void *context, struct ul_arena *arena,
                                          uint64_t limit_bytes, struct ul_plan *other)
{
    struct streams s = *(const struct streams *)context;
    s.limit_bytes = limit_bytes;
    ul_arena_init(&s.arena);
    const struct ul_plan_span *spans = choose(&s, arena, other);
    ul_arena_done(&s.arena);
    return spans;
}

enum ul_status ul_plan_stream(struct ul_arena *arena, const struct ul_problem *problem,
                              const struct ul_plan_options *options,
                              const struct ul_plan_streaming *streaming, struct ul_plan *plan,
                              struct ul_diag *diag)
{
    const struct ul_plan before = *plan;
    const struct streams s = {.problem = problem,
                              .plan = &before,
                              .streaming = streaming,
                              .count = before.position_count};
    bool is_other;
    UL_TRY(ul_plan_rearrange(arena, problem, options, TRIES, arrange, &s, plan, &is_other, diag));
    if (!is_other)
        return UL_OK;
    set_cost(arena, problem, plan);
    return ul_plan_check(arena, problem, plan, diag);
}
