/* SPDX-License-Identifier: Apache-2.0 */
/* A sequence of steps that can be edited anywhere, with its live bytes always known.
 *
 * Problem: a local search tries a million small changes; replaying the complete sequence for each
 * is too slow, and so is shifting positions whenever a step is inserted. Method: steps are in slots
 * with gaps between them, so that positions are stable. For each node the slots that touch its
 * value are listed; between two neighbouring touches,
 *
 *     make ..... read ===== read ..... make        ===== or ..... : live exactly where the
 *     [=========][=========]           [           touch on the right end is a read
 *
 * so that inserting or removing one touch changes the live bytes of at most one range of slots.
 * Slots are grouped into blocks with a sum for the complete block and its maximum; the excess over
 * the budget is renewed where the maximum is above it. An output made in place shares bytes with
 * its input at a slot where that input's next touch is no read. */
#include "planner/remat/remat_internal.h"

#include <string.h>

static const int64_t empty_bytes = (int64_t)1 << 61;

enum { SPREAD = 3, REACH = 96 };

/* Steps of a block that have not been counted. */
#define UNCOUNTED UINT32_MAX

/* ---- Live bytes ---- */

static int64_t slots_max(const struct ul_schedule *s, uint32_t begin, uint32_t end)
{
    int64_t max = INT64_MIN / 2;
    for (uint32_t i = begin; i < end; i++)
        max = s->live[i] > max ? s->live[i] : max;
    return max;
}

/* `max` is the largest of its slots. */
static void block_renew(struct ul_schedule *s, uint32_t block, int64_t max)
{
    uint32_t begin = block << s->block_shift;
    uint32_t end = (block + 1) << s->block_shift;
    s->block_max[block] = max;
    double before = s->block_excess[block];
    int64_t room = s->budget_bytes - s->block_live[block];
    int64_t excess = 0;
    for (uint32_t i = begin; i < end && max > room; i++)
        excess += s->live[i] > room ? s->live[i] - room : 0;
    s->block_steps[block] = max > room ? UNCOUNTED : 0;
    if ((excess > 0) != (before > 0))
        s->over_count += excess > 0 ? 1 : UINT32_MAX;
    s->excess += (double)excess - before;
    s->block_excess[block] = (double)excess;
    s->work += end - begin;
}

/* The steps of a block that has an excess, and the smallest of them. */
static void steps_count(struct ul_schedule *s, uint32_t block)
{
    uint32_t end = (block + 1) << s->block_shift;
    s->block_min[block] = INT64_MAX;
    s->block_steps[block] = 0;
    for (uint32_t i = block << s->block_shift; i < end; i++) {
        bool is_step = s->live[i] > -empty_bytes / 2;
        if (is_step && s->live[i] < s->block_min[block])
            s->block_min[block] = s->live[i];
        s->block_steps[block] += is_step;
    }
}

/* All slots of a block at once. */
static void block_add(struct ul_schedule *s, uint32_t block, int64_t bytes)
{
    s->block_live[block] += bytes;
    s->work++;
    int64_t room = s->budget_bytes - s->block_live[block];
    if (s->block_steps[block] == UNCOUNTED)
        steps_count(s, block);
    if (s->block_steps[block] > 0 && s->block_min[block] > room &&
        s->block_min[block] > room + bytes) { /* every step was and is above the budget */
        double more = (double)bytes * s->block_steps[block];
        s->block_excess[block] += more;
        s->excess += more;
    } else if (s->block_excess[block] > 0 ||
               s->block_max[block] + s->block_live[block] > s->budget_bytes)
        block_renew(s, block, s->block_max[block]);
}

/* Some slots of a block. All of it is looked at only where its largest one became smaller. */
static void slots_add(struct ul_schedule *s, uint32_t begin, uint32_t end, int64_t bytes)
{
    uint32_t block = begin >> s->block_shift;
    int64_t largest = INT64_MIN, max = s->block_max[block];
    for (uint32_t i = begin; i < end; i++) {
        largest = s->live[i] > largest ? s->live[i] : largest;
        s->live[i] += bytes;
    }
    if (bytes < 0 && largest == max)
        max = slots_max(s, block << s->block_shift, (block + 1) << s->block_shift);
    else
        max = largest + bytes > max ? largest + bytes : max;
    block_renew(s, block, max);
}

static void range_add(struct ul_schedule *s, uint32_t begin, uint32_t end, int64_t bytes)
{
    if (begin >= end || bytes == 0)
        return;
    uint32_t mask = (1u << s->block_shift) - 1;
    while (begin < end) {
        uint32_t block = begin >> s->block_shift;
        uint32_t stop = (block + 1) << s->block_shift;
        stop = stop < end ? stop : end;
        if ((begin & mask) == 0 && stop - begin == mask + 1) {
            block_add(s, block, bytes);
        } else {
            slots_add(s, begin, stop, bytes);
        }
        begin = stop;
    }
}

int64_t ul_schedule_max(const struct ul_schedule *s, uint32_t begin, uint32_t end)
{
    UL_ASSERT(begin <= end && end <= s->slot_count);
    int64_t max = 0;
    uint32_t mask = (1u << s->block_shift) - 1;
    while (begin < end) {
        uint32_t block = begin >> s->block_shift;
        uint32_t stop = (block + 1) << s->block_shift;
        stop = stop < end ? stop : end;
        int64_t here;
        if ((begin & mask) == 0 && stop - begin == mask + 1) {
            here = s->block_max[block];
        } else {
            here = slots_max(s, begin, stop);
        }
        here += s->block_live[block];
        max = here > max ? here : max;
        begin = stop;
    }
    return max;
}

/* ---- Touches ---- */

static bool is_read(uint32_t touch)
{
    return touch % 2 == 1;
}

uint32_t ul_schedule_find(const struct ul_schedule *s, uint32_t node, uint32_t slot)
{
    UL_ASSERT(node < s->graph->node_count);
    const struct ul_touches *t = &s->touches[node];
    uint32_t low = 0, high = t->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (t->at[middle] / 2 < slot)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint64_t min_of(const struct ul_solve_graph *g, uint32_t a, uint32_t b)
{
    return g->size_bytes[a] < g->size_bytes[b] ? g->size_bytes[a] : g->size_bytes[b];
}

/* Renews whether the output in `slot` takes over its input's bytes. */
static void share_renew(struct ul_schedule *s, uint32_t slot)
{
    uint32_t v = s->node_at[slot];
    uint32_t u = s->graph->in_place[v];
    if (u == UL_PLAN_NONE)
        return;
    uint32_t next = ul_schedule_find(s, u, slot + 1);
    bool shares = next == s->touches[u].count || !is_read(s->touches[u].at[next]);
    if (shares == s->shared[slot])
        return;
    int64_t bytes = (int64_t)min_of(s->graph, u, v);
    s->shared[slot] = shares;
    range_add(s, slot, slot + 1, shares ? -bytes : bytes);
}

/* The touch of `node` before index `at` may have become the last of its copy, or may no longer be
 * it. */
static void share_renew_before(struct ul_schedule *s, uint32_t node, uint32_t at)
{
    if (s->graph->in_place == NULL || at == 0 || !is_read(s->touches[node].at[at - 1]))
        return;
    uint32_t slot = s->touches[node].at[at - 1] / 2;
    if (s->node_at[slot] != UL_PLAN_NONE && s->graph->in_place[s->node_at[slot]] == node)
        share_renew(s, slot);
}

/* Adds the touch at index `at` of `node` to the live bytes, times `sign`. */
static void touch_count(struct ul_schedule *s, uint32_t node, uint32_t at, int64_t sign)
{
    const struct ul_touches *t = &s->touches[node];
    int64_t bytes = (int64_t)s->graph->size_bytes[node] * sign;
    uint32_t slot = t->at[at] / 2;
    uint32_t after = at > 0 ? t->at[at - 1] / 2 + 1 : 0;
    bool live = at + 1 < t->count && is_read(t->at[at + 1]);
    if (is_read(t->at[at])) {
        if (!live)
            range_add(s, after, slot + 1, bytes);
    } else if (live && at > 0) {
        range_add(s, after, slot, -bytes);
    } else {
        range_add(s, slot, slot + 1, bytes);
    }
}

static void touch_add(struct ul_schedule *s, uint32_t node, uint32_t slot, bool reads)
{
    struct ul_touches *t = &s->touches[node];
    uint32_t at = ul_schedule_find(s, node, slot);
    UL_GROW(s->arena, t->at, t->count, t->capacity);
    memmove(t->at + at + 1, t->at + at, (t->count - at) * sizeof *t->at);
    t->at[at] = slot * 2 + reads;
    t->count++;
    s->work += 4;
    touch_count(s, node, at, 1);
    share_renew_before(s, node, at);
}

static void touch_drop(struct ul_schedule *s, uint32_t node, uint32_t slot)
{
    struct ul_touches *t = &s->touches[node];
    uint32_t at = ul_schedule_find(s, node, slot);
    touch_count(s, node, at, -1);
    t->count--;
    memmove(t->at + at, t->at + at + 1, (t->count - at) * sizeof *t->at);
    s->work += 4;
    share_renew_before(s, node, at);
}

/* ---- Edits ---- */

static void log_add(struct ul_schedule *s, enum ul_edit_kind kind, uint32_t slot, uint32_t other)
{
    UL_GROW(s->arena, s->log, s->log_count, s->log_capacity);
    s->log[s->log_count++] = (struct ul_edit){kind, slot, other};
}

static void run_counted(struct ul_schedule *s, uint32_t v, bool more)
{
    s->run_count[v] += more ? 1 : UINT32_MAX;
    s->step_count += more ? 1 : UINT32_MAX;
    s->cost += more ? s->graph->cost[v] : -s->graph->cost[v];
    if (more && s->run_count[v] == 2) {
        s->repeated_at[v] = s->repeated_count;
        s->repeated[s->repeated_count++] = v;
    } else if (!more && s->run_count[v] == 1) {
        uint32_t last = s->repeated[--s->repeated_count];
        s->repeated[s->repeated_at[v]] = last;
        s->repeated_at[last] = s->repeated_at[v];
    }
}

static int64_t working_of(const struct ul_schedule *s, uint32_t v)
{
    return s->graph->working_bytes != NULL ? (int64_t)s->graph->working_bytes[v] : 0;
}

static void step_put(struct ul_schedule *s, uint32_t slot, uint32_t v)
{
    const struct ul_solve_graph *g = s->graph;
    s->node_at[slot] = v;
    s->shared[slot] = false;
    range_add(s, slot, slot + 1, empty_bytes + working_of(s, v));
    for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++)
        touch_add(s, g->inputs[i], slot, true);
    touch_add(s, v, slot, false);
    if (g->in_place != NULL)
        share_renew(s, slot);
    run_counted(s, v, true);
}

static void step_take(struct ul_schedule *s, uint32_t slot)
{
    const struct ul_solve_graph *g = s->graph;
    uint32_t v = s->node_at[slot];
    if (s->shared[slot])
        range_add(s, slot, slot + 1, (int64_t)min_of(g, g->in_place[v], v));
    s->shared[slot] = false;
    s->node_at[slot] = UL_PLAN_NONE;
    touch_drop(s, v, slot);
    for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++)
        touch_drop(s, g->inputs[i], slot);
    range_add(s, slot, slot + 1, -empty_bytes - working_of(s, v));
    run_counted(s, v, false);
}

bool ul_schedule_insert(struct ul_schedule *s, uint32_t slot, uint32_t v)
{
    UL_ASSERT(slot < s->slot_count && v < s->graph->node_count);
    const struct ul_solve_graph *g = s->graph;
    if (s->step_count == s->step_capacity ||
        (g->run_once != NULL && g->run_once[v] && s->run_count[v] > 1))
        return false;
    for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++) {
        const struct ul_touches *t = &s->touches[g->inputs[i]];
        if (t->count == 0 || t->at[0] / 2 >= slot)
            return false;
    }
    step_put(s, slot, v);
    log_add(s, UL_EDIT_INSERT, slot, v);
    return true;
}

bool ul_schedule_remove(struct ul_schedule *s, uint32_t slot)
{
    UL_ASSERT(s->node_at[slot] != UL_PLAN_NONE);
    uint32_t v = s->node_at[slot];
    const struct ul_touches *t = &s->touches[v];
    uint32_t at = ul_schedule_find(s, v, slot);
    if (s->run_count[v] < 2 || (at == 0 && is_read(t->at[1])))
        return false;
    step_take(s, slot);
    log_add(s, UL_EDIT_REMOVE, slot, v);
    return true;
}

static int64_t live_get(const struct ul_schedule *s, uint32_t slot)
{
    return s->live[slot] + s->block_live[slot >> s->block_shift];
}

static void live_set(struct ul_schedule *s, uint32_t slot, int64_t bytes)
{
    uint32_t block = slot >> s->block_shift;
    slots_add(s, slot, slot + 1, bytes - s->block_live[block] - s->live[slot]);
}

/* Renames the touch of `node` in a slot; returns its bytes if that copy is not read later. */
static int64_t touch_shift(struct ul_schedule *s, uint32_t node, uint32_t from, uint32_t to)
{
    struct ul_touches *t = &s->touches[node];
    uint32_t at = ul_schedule_find(s, node, from);
    t->at[at] = to * 2 + t->at[at] % 2;
    bool ends = at + 1 == t->count || !is_read(t->at[at + 1]);
    return ends ? (int64_t)s->graph->size_bytes[node] : 0;
}

/* Moves a step to the empty slot next to it: only what spans the two changes. */
static void step_shift(struct ul_schedule *s, uint32_t from, uint32_t to)
{
    const struct ul_solve_graph *g = s->graph;
    uint32_t v = s->node_at[from];
    int64_t here = live_get(s, from);
    int64_t across = here - working_of(s, v);
    if (s->shared[from])
        across += (int64_t)min_of(g, g->in_place[v], v);
    int64_t ending = touch_shift(s, v, from, to);
    for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++)
        ending += touch_shift(s, g->inputs[i], from, to);
    across -= to < from ? ending : (int64_t)g->size_bytes[v];
    s->node_at[to] = v;
    s->node_at[from] = UL_PLAN_NONE;
    s->shared[to] = s->shared[from];
    s->shared[from] = false;
    live_set(s, to, here);
    live_set(s, from, across - empty_bytes);
    s->work += 8;
}

static void step_move(struct ul_schedule *s, uint32_t from, uint32_t to)
{
    step_shift(s, from, to);
    log_add(s, UL_EDIT_SHIFT, from, to);
}

uint32_t ul_schedule_open(struct ul_schedule *s, uint32_t *slot)
{
    UL_ASSERT(*slot < s->slot_count);
    uint32_t at = *slot;
    uint32_t low = at;
    while (low > 0 && at - low < REACH && s->node_at[low - 1] == UL_PLAN_NONE)
        low--;
    if (low < at)
        return low + (at - low) / 2;
    uint32_t left = at;
    while (left > 0 && at - left < REACH && s->node_at[left - 1] != UL_PLAN_NONE)
        left--;
    uint32_t right = at;
    while (right < s->slot_count && right - at < REACH && s->node_at[right] != UL_PLAN_NONE)
        right++;
    bool left_empty = left > 0 && s->node_at[left - 1] == UL_PLAN_NONE;
    bool right_empty = right < s->slot_count && s->node_at[right] == UL_PLAN_NONE;
    s->work += right - left;
    if (left_empty && (!right_empty || at - left <= right - at)) {
        for (uint32_t i = left; i < at; i++)
            step_move(s, i, i - 1);
        return at - 1;
    }
    if (!right_empty)
        return UL_PLAN_NONE;
    for (uint32_t i = right; i > at; i--)
        step_move(s, i - 1, i);
    *slot = at + 1;
    return at;
}

void ul_schedule_undo(struct ul_schedule *s, uint32_t log_count)
{
    UL_ASSERT(log_count <= s->log_count);
    while (s->log_count > log_count) {
        struct ul_edit edit = s->log[--s->log_count];
        if (edit.kind == UL_EDIT_INSERT)
            step_take(s, edit.slot);
        else if (edit.kind == UL_EDIT_REMOVE)
            step_put(s, edit.slot, edit.other);
        else
            step_shift(s, edit.other, edit.slot);
    }
}

/* ---- Complete sequences ---- */

void ul_schedule_init(struct ul_schedule *s, uint32_t step_capacity)
{
    UL_ASSERT(step_capacity >= s->graph->node_count);
    uint32_t n = s->graph->node_count;
    s->step_capacity = step_capacity;
    s->block_shift = 4;
    while ((1u << (2 * s->block_shift)) < step_capacity)
        s->block_shift++;
    uint32_t block_count = ((step_capacity * SPREAD) >> s->block_shift) + 1;
    s->slot_count = block_count << s->block_shift;
    s->node_at = UL_NEW_ARRAY(s->arena, uint32_t, s->slot_count);
    s->shared = UL_NEW_ARRAY(s->arena, bool, s->slot_count);
    s->live = UL_NEW_ARRAY(s->arena, int64_t, s->slot_count);
    s->block_live = UL_NEW_ARRAY(s->arena, int64_t, block_count);
    s->block_max = UL_NEW_ARRAY(s->arena, int64_t, block_count);
    s->block_min = UL_NEW_ARRAY(s->arena, int64_t, block_count);
    s->block_steps = UL_NEW_ARRAY(s->arena, uint32_t, block_count);
    s->block_excess = UL_NEW_ARRAY(s->arena, double, block_count);
    s->touches = UL_NEW_ARRAY(s->arena, struct ul_touches, n);
    s->run_count = UL_NEW_ARRAY(s->arena, uint32_t, n);
    s->repeated = UL_NEW_ARRAY(s->arena, uint32_t, n);
    s->repeated_at = UL_NEW_ARRAY(s->arena, uint32_t, n);
    s->spare = UL_NEW_ARRAY(s->arena, uint32_t, step_capacity);
}

void ul_schedule_load(struct ul_schedule *s, const uint32_t *sequence, uint32_t count)
{
    uint32_t n = s->graph->node_count;
    uint32_t block_count = s->slot_count >> s->block_shift;
    UL_ASSERT(count <= s->step_capacity);
    for (uint32_t v = 0; v < n; v++) {
        s->touches[v].count = 0;
        s->run_count[v] = 0;
    }
    s->repeated_count = 0;
    s->step_count = 0;
    s->cost = 0;
    s->over_count = 0;
    s->excess = 0;
    s->log_count = 0;
    memset(s->shared, 0, s->slot_count * sizeof *s->shared);
    for (uint32_t i = 0; i < s->slot_count; i++) {
        s->node_at[i] = UL_PLAN_NONE;
        s->live[i] = -empty_bytes;
    }
    for (uint32_t b = 0; b < block_count; b++) {
        s->block_live[b] = (int64_t)s->graph->base_bytes;
        s->block_max[b] = -empty_bytes;
        s->block_steps[b] = 0;
        s->block_excess[b] = 0;
    }
    /* In order of time, every touch is the last one of its node. */
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = (uint32_t)(((uint64_t)i * 2 + 1) * s->slot_count / ((uint64_t)count * 2));
        step_put(s, slot, sequence[i]);
    }
}

uint32_t ul_schedule_store(const struct ul_schedule *s, uint32_t *sequence)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->slot_count; i++) {
        if (s->node_at[i] != UL_PLAN_NONE)
            sequence[count++] = s->node_at[i];
    }
    UL_ASSERT(count == s->step_count);
    return count;
}
