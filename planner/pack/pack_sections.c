/* SPDX-License-Identifier: Apache-2.0 */
/* Brings a packing problem into the exact search's form.
 *
 * Only times at which the set of live buffers is maximal matter: between a begin and the next end.
 * Two buffers overlap if and only if they share such a section, so each lifetime becomes a run of
 * sections:
 *
 *     a   [------)                 sections     |     |
 *     b      [-------)             a: [0,1)  b: [0,2)  c: [1,2)
 *     c            [----)
 *
 * Bytes are divided by their greatest common divisor. Where even that leaves more than 31 bits,
 * sizes are rounded up to a coarser unit; and a gap that is not a plain narrowing is filled.
 * Packings are still valid then, but there are no proofs (`exact` is false). */
#include "planner/pack/pack_search.h"

#include <stdlib.h>
#include <string.h>

struct event {
    uint32_t time;
    bool begins;
    uint32_t buffer;
};

static int event_compare(const void *a, const void *b)
{
    const struct event *x = a;
    const struct event *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    if (x->begins != y->begins)
        return (int)x->begins - (int)y->begins; /* ends first: lifetimes are half-open */
    return x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
}

static uint64_t unit_choose(const struct ul_pack_problem *problem, bool *exact)
{
    uint64_t unit = 0;
    uint64_t total = 0;
    for (uint32_t b = 0; b < problem->buffer_count; b++) {
        const struct ul_pack_buffer *buffer = &problem->buffers[b];
        total += buffer->size_bytes + buffer->alignment_bytes;
        unit = ul_size_gcd(unit, buffer->size_bytes);
        if (buffer->pinned)
            unit = ul_size_gcd(unit, buffer->offset_bytes);
        if (buffer->alignment_bytes > 1)
            unit = ul_size_gcd(unit, buffer->alignment_bytes);
        for (uint32_t p = problem->slab_first[b]; p < problem->slab_first[b + 1]; p++)
            unit = ul_size_gcd(unit, problem->slabs[p].upper_bytes);
    }
    if (unit == 0)
        unit = 1;
    /* The bound, not the total, must fit; a search never looks above twice the bound. */
    uint64_t max = problem->bound_bytes > total / 4 ? problem->bound_bytes : total / 4;
    max = problem->bound_bytes < max ? problem->bound_bytes : max;
    while (max / unit >= (uint64_t)1 << 29) {
        unit *= 2;
        *exact = false;
    }
    return unit;
}

static uint32_t section_find(const uint32_t *times, uint32_t count, uint32_t time)
{
    uint32_t low = 0;
    while (low < count) {
        uint32_t middle = low + (count - low) / 2;
        if (times[middle] < time)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

/* Times of the maximal sections: each begin that an end follows. */
static uint32_t *times_make(struct ul_arena *arena, const struct ul_pack_problem *problem,
                            uint32_t *count)
{
    uint32_t slabs = problem->slab_first[problem->buffer_count];
    struct event *events = UL_NEW_ARRAY(arena, struct event, 2 * (uint64_t)slabs);
    for (uint32_t p = 0; p < slabs; p++) {
        events[2 * p] = (struct event){problem->slabs[p].begin, true, 0};
        events[2 * p + 1] = (struct event){problem->slabs[p].end, false, 0};
    }
    if (slabs > 0)
        qsort(events, 2 * (size_t)slabs, sizeof *events, event_compare);
    uint32_t *times = UL_NEW_ARRAY(arena, uint32_t, slabs);
    *count = 0;
    for (uint32_t i = 0; i + 1 < 2 * slabs; i++) {
        if (events[i].begins && !events[i + 1].begins)
            times[(*count)++] = events[i].time;
    }
    return times;
}

static int32_t units(const struct ul_pack_sections *s, uint64_t bytes)
{
    return (int32_t)((bytes + s->unit_bytes - 1) / s->unit_bytes);
}

static void buffer_convert(const struct ul_pack_problem *problem, struct ul_pack_sections *s,
                           const uint32_t *times, uint32_t b)
{
    const struct ul_pack_buffer *buffer = &problem->buffers[b];
    uint32_t at = s->count;
    uint32_t step = s->step_first[at];
    s->id[at] = b;
    s->size[at] = units(s, buffer->size_bytes);
    s->pin[at] = buffer->pinned ? units(s, buffer->offset_bytes) : -1;
    s->alignment[at] = 1;
    if (buffer->alignment_bytes > 1 && !buffer->pinned)
        s->alignment[at] = units(s, buffer->alignment_bytes);
    s->aligned = s->aligned || s->alignment[at] > 1;
    uint32_t time = buffer->begin;
    for (uint32_t p = problem->slab_first[b]; p < problem->slab_first[b + 1]; p++) {
        const struct ul_pack_slab *slab = &problem->slabs[p];
        if (slab->begin != time || slab->lower_bytes != 0)
            s->exact = false;
        time = slab->end;
        s->step_begin[step] = (int32_t)section_find(times, s->section_count, slab->begin);
        s->step_end[step] = (int32_t)section_find(times, s->section_count, slab->end);
        s->step_size[step] = units(s, slab->upper_bytes);
        s->stepped = s->stepped || s->step_size[step] != s->size[at];
        step += s->step_begin[step] < s->step_end[step];
    }
    s->exact = s->exact && time == buffer->end;
    s->begin[at] = s->step_begin[s->step_first[at]];
    s->end[at] = s->step_end[step - 1];
    s->step_first[++s->count] = step;
}

/* Above this many (buffer, section) pairs the lists are left out: backtracking, which needs them,
 * is hopeless there anyway. */
static const uint64_t max_members = 1u << 24;

static void bound_make(struct ul_arena *arena, struct ul_pack_sections *s)
{
    int32_t *change = UL_NEW_ARRAY(arena, int32_t, (uint64_t)s->section_count + 1);
    for (uint32_t i = 0; i < s->step_first[s->count]; i++) {
        change[s->step_begin[i]] += s->step_size[i];
        change[s->step_end[i]] -= s->step_size[i];
    }
    int32_t sum = 0;
    for (uint32_t t = 0; t < s->section_count; t++) {
        sum += change[t];
        s->bound = sum > s->bound ? sum : s->bound;
    }
}

static void members_make(struct ul_arena *arena, struct ul_pack_sections *s)
{
    uint64_t pairs = 0;
    for (uint32_t i = 0; i < s->step_first[s->count]; i++)
        pairs += (uint64_t)(s->step_end[i] - s->step_begin[i]);
    if (pairs > max_members)
        return;
    s->member_first = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)s->section_count + 1);
    for (uint32_t i = 0; i < s->step_first[s->count]; i++) {
        for (int32_t t = s->step_begin[i]; t < s->step_end[i]; t++)
            s->member_first[t + 1]++;
    }
    for (uint32_t t = 0; t < s->section_count; t++)
        s->member_first[t + 1] += s->member_first[t];
    s->members = UL_NEW_ARRAY(arena, uint32_t, pairs);
    s->member_size = UL_NEW_ARRAY(arena, int32_t, pairs);
    uint32_t *next =
        ul_arena_copy(arena, s->member_first, sizeof *next * ((uint64_t)s->section_count + 1));
    for (uint32_t b = 0; b < s->count; b++) {
        for (uint32_t i = s->step_first[b]; i < s->step_first[b + 1]; i++) {
            for (int32_t t = s->step_begin[i]; t < s->step_end[i]; t++) {
                s->members[next[t]] = b;
                s->member_size[next[t]++] = s->step_size[i];
            }
        }
    }
}

struct shape {
    int32_t begin, end, size, alignment;
    uint32_t steps, buffer;
};

static int shape_compare(const void *a, const void *b)
{
    const struct shape *x = a;
    const struct shape *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    if (x->size != y->size)
        return x->size < y->size ? -1 : 1;
    if (x->alignment != y->alignment)
        return x->alignment < y->alignment ? -1 : 1;
    if (x->steps != y->steps)
        return x->steps < y->steps ? -1 : 1;
    return x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
}

static void twins_find(struct ul_arena *arena, struct ul_pack_sections *s)
{
    struct shape *shapes = UL_NEW_ARRAY(arena, struct shape, s->count);
    for (uint32_t b = 0; b < s->count; b++)
        shapes[b] = (struct shape){s->begin[b],
                                   s->end[b],
                                   s->size[b],
                                   s->alignment[b],
                                   s->step_first[b + 1] - s->step_first[b],
                                   b};
    if (s->count > 0)
        qsort(shapes, s->count, sizeof *shapes, shape_compare);
    s->twin = UL_NEW_ARRAY(arena, uint32_t, s->count);
    for (uint32_t i = 0; i < s->count; i++) {
        const struct shape *x = &shapes[i];
        s->twin[x->buffer] = UL_PLAN_NONE;
        if (i == 0 || x->steps != 1)
            continue;
        const struct shape *y = x - 1;
        if (s->pin[x->buffer] < 0 && s->pin[y->buffer] < 0 && y->steps == 1 &&
            y->begin == x->begin && y->end == x->end && y->size == x->size &&
            y->alignment == x->alignment)
            s->twin[x->buffer] = y->buffer;
    }
}

/* The problem's buffers by begin, so that a run of sections is a range of them. */
static const struct event *order_make(struct ul_arena *arena, const struct ul_pack_problem *problem)
{
    struct event *order = UL_NEW_ARRAY(arena, struct event, problem->buffer_count);
    for (uint32_t b = 0; b < problem->buffer_count; b++) {
        uint32_t first = problem->slab_first[b];
        bool empty = first == problem->slab_first[b + 1];
        order[b] = (struct event){empty ? 0 : problem->slabs[first].begin, true, b};
    }
    if (problem->buffer_count > 0)
        qsort(order, problem->buffer_count, sizeof *order, event_compare);
    return order;
}

/* For each buffer, those that share a section with it: a later one begins before it ends. */
static void overlaps_make(struct ul_arena *arena, struct ul_pack_sections *s)
{
    s->overlap_first = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)s->count + 1);
    for (uint32_t b = 0; b < s->count; b++) {
        for (uint32_t c = b + 1; c < s->count && s->begin[c] < s->end[b]; c++) {
            s->overlap_first[b + 1]++;
            s->overlap_first[c + 1]++;
        }
    }
    for (uint32_t b = 0; b < s->count; b++)
        s->overlap_first[b + 1] += s->overlap_first[b];
    s->overlaps = UL_NEW_ARRAY(arena, int32_t, s->overlap_first[s->count]);
    uint32_t *next =
        ul_arena_copy(arena, s->overlap_first, sizeof *next * ((uint64_t)s->count + 1));
    for (uint32_t b = 0; b < s->count; b++) {
        for (uint32_t c = b + 1; c < s->count && s->begin[c] < s->end[b]; c++) {
            s->overlaps[next[b]++] = (int32_t)c;
            s->overlaps[next[c]++] = (int32_t)b;
        }
    }
}

bool ul_pack_sections_make(struct ul_arena *arena, const struct ul_pack_problem *problem,
                           struct ul_pack_sections *sections)
{
    memset(sections, 0, sizeof *sections);
    struct ul_pack_sections *s = sections;
    s->exact = true;
    s->unit_bytes = unit_choose(problem, &s->exact);
    bool pinned = false;
    for (uint32_t b = 0; b < problem->buffer_count; b++)
        pinned = pinned || problem->buffers[b].pinned;
    if (pinned && !s->exact)
        return false; /* rounded up, pinned buffers could collide */
    uint32_t *times = times_make(arena, problem, &s->section_count);
    uint32_t slabs = problem->slab_first[problem->buffer_count];
    s->id = UL_NEW_ARRAY(arena, uint32_t, problem->buffer_count);
    s->begin = UL_NEW_ARRAY(arena, int32_t, problem->buffer_count);
    s->end = UL_NEW_ARRAY(arena, int32_t, problem->buffer_count);
    s->size = UL_NEW_ARRAY(arena, int32_t, problem->buffer_count);
    s->alignment = UL_NEW_ARRAY(arena, int32_t, problem->buffer_count);
    s->step_first = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)problem->buffer_count + 1);
    s->step_begin = UL_NEW_ARRAY(arena, int32_t, slabs);
    s->step_end = UL_NEW_ARRAY(arena, int32_t, slabs);
    s->step_size = UL_NEW_ARRAY(arena, int32_t, slabs);
    s->pin = UL_NEW_ARRAY(arena, int32_t, problem->buffer_count);
    const struct event *order = order_make(arena, problem);
    for (uint32_t i = 0; i < problem->buffer_count; i++) {
        uint32_t b = order[i].buffer;
        if (problem->slab_first[b] < problem->slab_first[b + 1])
            buffer_convert(problem, s, times, b);
    }
    if (s->count == 0 || (pinned && !s->exact))
        return false; /* filled, they could too */
    bound_make(arena, s);
    members_make(arena, s);
    overlaps_make(arena, s);
    twins_find(arena, s);
    UL_ASSERT(s->count <= problem->buffer_count && s->unit_bytes > 0);
    return true;
}
