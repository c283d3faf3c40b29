/* SPDX-License-Identifier: Apache-2.0 */
/* A walk along an order that stays within a budget by dropping values and recomputing them.
 *
 * Problem: given an order of all nodes and a budget for the live sum, decide what to drop and what
 * to repeat. Method: before a node runs, dropped values that it needs are recomputed from those
 * that still exist; values needed at once are locked. When the budget is full, the unlocked value
 * of the lowest score is dropped (ul_walk_mode); values dropped needlessly stay, once enough is
 * free. Scores only grow while a value waits for its next use, so a heap of old scores, renewed at
 * the top, finds the minimum in logarithmic time. The value of a node that may run only once, and
 * values that can be made only from such a value after it is gone, are kept while something may
 * need them. Source of the score: Kirisame et al., "Dynamic Tensor Rematerialization" (ICLR 2021),
 * with the known next use in place of staleness. */
#include "planner/remat/remat_internal.h"

#include <math.h>
#include <string.h>

enum {
    RESIDENT = 1,
    RAN = 2,
    FIXED = 4, /* cannot be recomputed */
    LOST = 8,  /* cannot be recomputed, and is gone */
    SEEN = 16
};

/* ---- The heap of values that may be dropped ---- */

static bool before(const struct ul_walk *w, uint32_t a, uint32_t b)
{
    return w->key[a] < w->key[b] || (!(w->key[a] > w->key[b]) && a < b);
}

static void heap_place(struct ul_walk *w, uint32_t at, uint32_t v)
{
    w->heap[at] = v;
    w->heap_at[v] = at + 1;
}

static void heap_up(struct ul_walk *w, uint32_t at)
{
    uint32_t v = w->heap[at];
    while (at > 0 && before(w, v, w->heap[(at - 1) / 2])) {
        heap_place(w, at, w->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_place(w, at, v);
}

static void heap_down(struct ul_walk *w, uint32_t at)
{
    uint32_t v = w->heap[at];
    for (uint32_t child = 2 * at + 1; child < w->heap_count; child = 2 * at + 1) {
        if (child + 1 < w->heap_count && before(w, w->heap[child + 1], w->heap[child]))
            child++;
        if (!before(w, w->heap[child], v))
            break;
        heap_place(w, at, w->heap[child]);
        at = child;
    }
    heap_place(w, at, v);
}

static void heap_remove(struct ul_walk *w, uint32_t v)
{
    if (w->heap_at[v] == 0)
        return;
    uint32_t at = w->heap_at[v] - 1;
    uint32_t last = w->heap[--w->heap_count];
    w->heap_at[v] = 0;
    if (last == v)
        return;
    heap_place(w, at, last);
    heap_up(w, at);
    heap_down(w, w->heap_at[last] - 1);
}

/* ---- Values ---- */

/* The position of the next first run that reads `v`, or UL_PLAN_NONE. */
static uint32_t next_use_of(struct ul_walk *w, uint32_t v)
{
    while (w->next_use[v] < w->use_first[v + 1] && w->uses[w->next_use[v]] < w->now)
        w->next_use[v]++;
    return w->next_use[v] < w->use_first[v + 1] ? w->uses[w->next_use[v]] : UL_PLAN_NONE;
}

static double score_of(struct ul_walk *w, uint32_t v)
{
    uint32_t next = next_use_of(w, v);
    uint32_t distance = next == UL_PLAN_NONE ? w->graph->node_count : next - w->now;
    return w->value[v] - w->mode.distance_power * w->log_distance[distance];
}

/* Moves `v` in the heap to where its present score belongs, or out if it may not be dropped. */
static void heap_renew(struct ul_walk *w, uint32_t v)
{
    bool held = (w->state[v] & FIXED) != 0 && next_use_of(w, v) != UL_PLAN_NONE;
    if ((w->state[v] & RESIDENT) == 0 || w->locks[v] > 0 || w->graph->size_bytes[v] == 0 || held) {
        heap_remove(w, v);
        return;
    }
    w->key[v] = score_of(w, v);
    if (w->heap_at[v] == 0)
        heap_place(w, w->heap_count++, v);
    heap_up(w, w->heap_at[v] - 1);
    heap_down(w, w->heap_at[v] - 1);
    w->work += 4;
}

static void resident_add(struct ul_walk *w, uint32_t v)
{
    w->state[v] |= RESIDENT;
    w->live_bytes += w->graph->size_bytes[v];
    heap_renew(w, v);
}

static void resident_drop(struct ul_walk *w, uint32_t v)
{
    w->state[v] &= (uint8_t)~RESIDENT;
    w->live_bytes -= w->graph->size_bytes[v];
    heap_remove(w, v);
}

static void lock(struct ul_walk *w, uint32_t v)
{
    if (w->locks[v]++ == 0)
        heap_remove(w, v);
}

static void unlock(struct ul_walk *w, uint32_t v)
{
    if (--w->locks[v] == 0)
        heap_renew(w, v);
}

/* Whether something reads `v` after the present position of the order. */
static bool read_later(struct ul_walk *w, uint32_t v)
{
    uint32_t next = next_use_of(w, v);
    return next != UL_PLAN_NONE && (next > w->now || w->next_use[v] + 1 < w->use_first[v + 1]);
}

/* Whether `v`, which cannot be recomputed, may go: unless recomputing something that was dropped
 * and is read later needs it. If it goes, what is made from it cannot be recomputed either. */
static bool fixed_lose(struct ul_walk *w, uint32_t v)
{
    const struct ul_solve_graph *g = w->graph;
    uint32_t count = 0;
    bool needed = read_later(w, v);
    w->stack[count++] = v;
    w->state[v] |= SEEN;
    for (uint32_t at = 0; at < count && !needed; at++) {
        for (uint32_t i = g->user_first[w->stack[at]]; i < g->user_first[w->stack[at] + 1]; i++) {
            uint32_t user = g->users[i];
            if ((w->state[user] & (RAN | RESIDENT | LOST | SEEN)) != RAN)
                continue;
            w->state[user] |= SEEN;
            w->stack[count++] = user;
            needed = needed || w->locks[user] > 0 || next_use_of(w, user) != UL_PLAN_NONE;
        }
    }
    w->work += count;
    for (uint32_t at = 0; at < count; at++) {
        uint32_t gone = w->stack[at];
        w->state[gone] &= (uint8_t)~SEEN;
        if (needed)
            continue;
        w->state[gone] |= LOST;
        for (uint32_t i = g->user_first[gone]; i < g->user_first[gone + 1]; i++) {
            uint32_t user = g->users[i];
            if ((w->state[user] & (RESIDENT | FIXED)) != RESIDENT)
                continue;
            w->state[user] |= FIXED;
            heap_renew(w, user);
        }
    }
    return !needed;
}

/* The next value to drop, out of the heap, or UL_PLAN_NONE. A bound on the renewals keeps this
 * logarithmic; the top is good enough then. */
static uint32_t victim_pop(struct ul_walk *w)
{
    enum { RENEWALS = 64 };
    for (uint32_t tries = 0; w->heap_count > 0; tries++) {
        uint32_t v = w->heap[0];
        double score = tries < RENEWALS ? score_of(w, v) : w->key[v];
        w->work += 2;
        if (score > w->key[v]) {
            w->key[v] = score;
            heap_down(w, 0);
            continue;
        }
        heap_remove(w, v);
        if ((w->state[v] & FIXED) == 0 || fixed_lose(w, v))
            return v;
    }
    return UL_PLAN_NONE;
}

/* Drops values of the lowest scores until `need_bytes` more fit, down to the mode's target if
 * possible. */
static bool room_make(struct ul_walk *w, uint64_t need_bytes)
{
    double share = w->now < w->peak_position ? w->mode.target_before : w->mode.target_after;
    uint64_t target = w->budget_bytes;
    if (share < 1.0)
        target = (uint64_t)(share * (double)target);
    uint32_t count = 0;
    while (w->live_bytes + need_bytes > target) {
        uint32_t v = victim_pop(w);
        if (v == UL_PLAN_NONE)
            break;
        resident_drop(w, v);
        w->victims[count++] = v;
    }
    for (uint32_t i = count; i-- > 0;) {
        uint32_t v = w->victims[i];
        if ((w->state[v] & LOST) == 0 &&
            w->live_bytes + w->graph->size_bytes[v] + need_bytes <= target)
            resident_add(w, v);
    }
    return w->live_bytes + need_bytes <= w->budget_bytes;
}

/* A value that nothing reads any more goes at once, unless it cannot be recomputed: that waits for
 * need. */
static void used_renew(struct ul_walk *w, uint32_t v)
{
    if ((w->state[v] & RESIDENT) == 0 || w->locks[v] > 0)
        return;
    if ((w->state[v] & FIXED) == 0 && next_use_of(w, v) == UL_PLAN_NONE)
        resident_drop(w, v);
    else
        heap_renew(w, v);
}

/* ---- Running ---- */

/* The input whose bytes the output of `v` could take over, if only `v` needs it now. */
static uint32_t taken_by(const struct ul_walk *w, uint32_t v)
{
    if (w->graph->in_place == NULL || w->graph->in_place[v] == UL_PLAN_NONE)
        return UL_PLAN_NONE;
    uint32_t u = w->graph->in_place[v];
    return w->locks[u] == 1 ? u : UL_PLAN_NONE;
}

/* Whether the output of `v` may take over the fixed value `u`, with `v` as good as made. */
static bool fixed_reused(struct ul_walk *w, uint32_t u, uint32_t v)
{
    w->state[v] |= RESIDENT;
    bool goes = fixed_lose(w, u);
    w->state[v] &= (uint8_t)~RESIDENT;
    return goes;
}

/* Makes room for running `v`; *taken: the input whose bytes its output takes over, or none. */
static bool run_fits(struct ul_walk *w, uint32_t v, uint32_t *taken)
{
    const struct ul_solve_graph *g = w->graph;
    uint64_t need = g->size_bytes[v] + (g->working_bytes != NULL ? g->working_bytes[v] : 0);
    uint32_t u = taken_by(w, v);
    uint64_t shared = 0;
    if (u != UL_PLAN_NONE)
        shared = g->size_bytes[u] < g->size_bytes[v] ? g->size_bytes[u] : g->size_bytes[v];
    bool fixed = u != UL_PLAN_NONE && (w->state[u] & FIXED) != 0;
    *taken = UL_PLAN_NONE;
    if (u != UL_PLAN_NONE && !fixed && !read_later(w, u)) {
        *taken = u;
        return room_make(w, need - shared);
    }
    if (room_make(w, need))
        return true;
    /* As a last resort the input is given up though it is or may be read again. */
    if (u == UL_PLAN_NONE || w->live_bytes + need - shared > w->budget_bytes ||
        (fixed && !fixed_reused(w, u, v)))
        return false;
    *taken = u;
    return true;
}

static bool frame_push(struct ul_walk *w, uint32_t *depth, uint32_t v)
{
    const struct ul_solve_graph *g = w->graph;
    if ((w->state[v] & LOST) != 0 || ((w->state[v] & RAN) != 0 && (w->state[v] & FIXED) != 0))
        return false;
    for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++)
        lock(w, g->inputs[i]);
    w->frame_node[*depth] = v;
    w->frame_next[(*depth)++] = g->input_first[v];
    return true;
}

static bool frame_run(struct ul_walk *w, uint32_t v)
{
    const struct ul_solve_graph *g = w->graph;
    uint32_t taken;
    if (!run_fits(w, v, &taken) || w->count == w->capacity)
        return false;
    w->sequence[w->count++] = v;
    w->cost += g->cost[v];
    w->work += 8;
    w->state[v] |= RAN;
    if (g->run_once != NULL && g->run_once[v])
        w->state[v] |= FIXED;
    for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++) {
        uint32_t u = g->inputs[i];
        if ((w->state[u] & LOST) != 0)
            w->state[v] |= FIXED;
        unlock(w, u);
    }
    if (taken != UL_PLAN_NONE)
        resident_drop(w, taken);
    resident_add(w, v);
    return w->cost <= w->cost_limit;
}

/* Runs `goal`, and before it what it needs. */
static bool node_run(struct ul_walk *w, uint32_t goal)
{
    const struct ul_solve_graph *g = w->graph;
    uint32_t depth = 0;
    if (!frame_push(w, &depth, goal))
        return false;
    while (depth > 0) {
        uint32_t v = w->frame_node[depth - 1];
        uint32_t *next = &w->frame_next[depth - 1];
        while (*next < g->input_first[v + 1] && (w->state[g->inputs[*next]] & RESIDENT) != 0)
            ++*next;
        bool going = true;
        if (*next < g->input_first[v + 1])
            going = frame_push(w, &depth, g->inputs[*next]);
        else if (--depth, true)
            going = frame_run(w, v);
        if (!going || w->cost + g->cost[goal] > w->cost_limit)
            return false;
    }
    return true;
}

static void walk_reset(struct ul_walk *w)
{
    uint32_t n = w->graph->node_count;
    memcpy(w->next_use, w->use_first, n * sizeof *w->next_use);
    memset(w->state, 0, n);
    memset(w->locks, 0, n * sizeof *w->locks);
    memset(w->heap_at, 0, n * sizeof *w->heap_at);
    for (uint32_t v = 0; v < n; v++)
        w->value[v] = w->weight[v] + w->mode.cost_power * w->log_cost[v] -
                      w->mode.bytes_power * w->log_bytes[v];
    w->heap_count = 0;
    w->live_bytes = w->graph->base_bytes;
    w->count = 0;
    w->cost = 0;
    w->work += n;
}

bool ul_walk_run(struct ul_walk *w)
{
    const struct ul_solve_graph *g = w->graph;
    walk_reset(w);
    UL_ASSERT(w->count == 0);
    if (w->live_bytes > w->budget_bytes)
        return false;
    for (uint32_t p = 0; p < g->node_count; p++) {
        uint32_t first = w->count;
        w->now = p;
        if (!node_run(w, w->order[p]))
            return false;
        w->now = p + 1;
        for (uint32_t s = first; s < w->count; s++) {
            uint32_t ran = w->sequence[s];
            used_renew(w, ran);
            for (uint32_t i = g->input_first[ran]; i < g->input_first[ran + 1]; i++)
                used_renew(w, g->inputs[i]);
        }
    }
    return true;
}

/* ---- Set-up ---- */

static void uses_make(struct ul_walk *w, struct ul_arena *arena)
{
    const struct ul_solve_graph *g = w->graph;
    uint32_t n = g->node_count;
    w->use_first = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)n + 1);
    w->uses = UL_NEW_ARRAY(arena, uint32_t, g->input_first[n]);
    memcpy(w->use_first, g->user_first, ((size_t)n + 1) * sizeof *w->use_first);
    memcpy(w->next_use, w->use_first, n * sizeof *w->next_use);
    for (uint32_t p = 0; p < n; p++) {
        uint32_t v = w->order[p];
        for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++)
            w->uses[w->next_use[g->inputs[i]]++] = p;
    }
}

/* Where the order, run once, has the most alive. */
static uint32_t peak_find(const struct ul_walk *w)
{
    const struct ul_solve_graph *g = w->graph;
    uint64_t live = 0, max = 0;
    uint32_t peak = 0;
    for (uint32_t p = 0; p < g->node_count; p++) {
        uint32_t v = w->order[p];
        live += g->size_bytes[v];
        if (live > max) {
            max = live;
            peak = p;
        }
        for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++) {
            uint32_t u = g->inputs[i];
            live -= w->uses[w->use_first[u + 1] - 1] == p ? g->size_bytes[u] : 0;
        }
        live -= w->use_first[v] == w->use_first[v + 1] ? g->size_bytes[v] : 0;
    }
    return peak;
}

void ul_walk_init(struct ul_walk *w, struct ul_arena *arena)
{
    const struct ul_solve_graph *g = w->graph;
    uint32_t n = g->node_count;
    w->next_use = UL_NEW_ARRAY(arena, uint32_t, n);
    uses_make(w, arena);
    w->peak_position = peak_find(w);
    w->state = ul_arena_alloc(arena, n);
    w->locks = UL_NEW_ARRAY(arena, uint32_t, n);
    w->heap = UL_NEW_ARRAY(arena, uint32_t, n);
    w->heap_at = UL_NEW_ARRAY(arena, uint32_t, n);
    w->key = UL_NEW_ARRAY(arena, double, n);
    w->value = UL_NEW_ARRAY(arena, double, n);
    w->weight = UL_NEW_ARRAY(arena, double, n);
    w->victims = UL_NEW_ARRAY(arena, uint32_t, n);
    w->stack = UL_NEW_ARRAY(arena, uint32_t, n);
    w->frame_node = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)n + 1);
    w->frame_next = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)n + 1);
    w->sequence = UL_NEW_ARRAY(arena, uint32_t, w->capacity);
    w->log_cost = UL_NEW_ARRAY(arena, double, n);
    w->log_bytes = UL_NEW_ARRAY(arena, double, n);
    w->log_distance = UL_NEW_ARRAY(arena, double, (uint64_t)n + 1);
    for (uint32_t v = 0; v < n; v++) {
        w->log_cost[v] = log(1.0 + (double)g->cost[v]);
        w->log_bytes[v] = log(1.0 + (double)g->size_bytes[v]);
    }
    for (uint32_t d = 0; d <= n; d++)
        w->log_distance[d] = log(1.0 + (double)d);
    UL_ASSERT(w->peak_position < n);
}
