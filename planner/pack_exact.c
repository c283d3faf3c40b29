/* Runs exact searches until the packing is proven optimal, fits, or the work is used up.
 *
 * Problem: no single order suits every instance: each finds some packings at once and loses
 * itself on others; and no single capacity suits the search for the least one, since a capacity
 * far below the optimum, or just below it, may take for ever to refute.
 * Method: a ladder of capacities between the bound and the best packing known. On every rung one
 * search for each order; all run in turn for equal slices of work, and resume where they stopped.
 * A packing found removes the rungs at or above it; a refutation those at or below it and raises
 * the bound. The ladder is then set again in what is left.
 * Instances too large to backtrack in get single dives, one for each order and rung, instead. */
#include "planner/pack_exact.h"
#include "planner/pack_search.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RUNGS = 4, FIRST_KEYS = 3, SEARCH_BUFFERS = 2000 };
static const uint64_t first_slice = 1u << 15;
static const uint64_t longest_slice = 1u << 21;

struct runner {
    struct ul_arena arena;
    struct ul_pack_search *search;
    int32_t capacity;
    uint32_t key;
    bool open;
};

struct exact {
    const struct ul_pack_problem *problem;
    struct ul_pack_exact *state;
    struct ul_pack_sections sections;
    struct ul_arena arena;
    struct runner runners[RUNGS * (UL_PACK_KEYS + UL_PACK_LEARNING_KEYS)];
    uint32_t runner_count;
    int32_t low, high; /* units: the least capacity still possible, and one that is reached */
    uint64_t best_bytes;
};

static double seconds_now(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool exhausted(struct exact *x)
{
    struct ul_pack_exact *state = x->state;
    if (state->work >= state->work_limit)
        return true;
    if (state->deadline_seconds > 0 && seconds_now() >= state->deadline_seconds) {
        state->stopped_by_time = true;
        return true;
    }
    return false;
}

static void runner_close(struct runner *runner)
{
    if (runner->open)
        ul_arena_done(&runner->arena);
    runner->open = false;
}

static void runners_close(struct exact *x, int32_t from, int32_t to)
{
    for (uint32_t i = 0; i < x->runner_count; i++) {
        if (x->runners[i].capacity >= from && x->runners[i].capacity <= to)
            runner_close(&x->runners[i]);
    }
}

static bool runner_exists(const struct exact *x, int32_t capacity, uint32_t key)
{
    for (uint32_t i = 0; i < x->runner_count; i++) {
        const struct runner *runner = &x->runners[i];
        if (runner->open && runner->capacity == capacity && runner->key == key)
            return true;
    }
    return false;
}

static void runner_open(struct exact *x, int32_t capacity, uint32_t key)
{
    if (runner_exists(x, capacity, key))
        return;
    uint32_t slot = 0;
    while (slot < x->runner_count && x->runners[slot].open)
        slot++;
    if (slot == RUNGS * (UL_PACK_KEYS + UL_PACK_LEARNING_KEYS))
        return;
    x->runner_count += slot == x->runner_count;
    struct runner *runner = &x->runners[slot];
    ul_arena_init(&runner->arena);
    runner->search = ul_pack_search_new(&runner->arena, &x->sections, capacity, key, false);
    runner->capacity = capacity;
    runner->key = key;
    runner->open = true;
}

/* ---- Settling: offsets in bytes from a packing in units ---- */

struct settled {
    int32_t offset;
    uint32_t buffer;
};

static int settled_compare(const void *a, const void *b)
{
    const struct settled *x = a;
    const struct settled *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
}

/* Drops the buffers in the order of their offsets, by their exact sizes: where units were rounded
 * up this gains back what rounding lost. */
static void offsets_settle(struct exact *x, const int32_t *offsets)
{
    const struct ul_pack_sections *s = &x->sections;
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct settled *order = UL_NEW_ARRAY(&scratch, struct settled, s->count);
    for (uint32_t i = 0; i < s->count; i++)
        order[i] = (struct settled){offsets[i], i};
    qsort(order, s->count, sizeof *order, settled_compare);
    uint64_t *floor = UL_NEW_ARRAY(&scratch, uint64_t, s->section_count);
    uint64_t *trial = UL_NEW_ARRAY(&scratch, uint64_t, x->problem->buffer_count);
    uint64_t top = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t at = order[i].buffer;
        const struct ul_pack_buffer *buffer = &x->problem->buffers[s->id[at]];
        uint64_t offset = 0;
        for (int32_t t = s->begin[at]; t < s->end[at]; t++)
            offset = floor[t] > offset ? floor[t] : offset;
        if (buffer->alignment_bytes > 1 && offset % buffer->alignment_bytes != 0)
            offset += buffer->alignment_bytes - offset % buffer->alignment_bytes;
        trial[s->id[at]] = offset;
        for (uint32_t j = s->step_first[at]; j < s->step_first[at + 1]; j++) {
            uint64_t size = (uint64_t)s->step_size[j] * s->unit_bytes;
            size = size < buffer->size_bytes ? size : buffer->size_bytes;
            for (int32_t t = s->step_begin[j]; t < s->step_end[j]; t++)
                floor[t] = offset + size;
        }
        uint64_t end = offset + buffer->size_bytes;
        top = end > top ? end : top;
    }
    if (top < x->best_bytes) {
        x->best_bytes = top;
        x->state->found = true;
        x->state->arena_bytes = top;
        memcpy(x->state->offset_bytes, trial, sizeof *trial * x->problem->buffer_count);
    }
    ul_arena_done(&scratch);
}

static int32_t offsets_height(const struct exact *x, const int32_t *offsets)
{
    int32_t top = 0;
    for (uint32_t i = 0; i < x->sections.count; i++)
        top = offsets[i] + x->sections.size[i] > top ? offsets[i] + x->sections.size[i] : top;
    return top;
}

/* ---- The ladder ---- */

static bool settled_enough(const struct exact *x)
{
    return x->low >= x->high || x->best_bytes <= x->state->target_bytes;
}

static void rung_set(struct exact *x, int32_t capacity, uint32_t keys)
{
    for (uint32_t key = 0; key < keys; key++)
        runner_open(x, capacity, key);
    for (uint32_t key = 0; key < UL_PACK_LEARNING_KEYS; key++)
        runner_open(x, capacity, UL_PACK_KEYS + key);
}

static void ladder_set(struct exact *x, uint32_t keys)
{
    if (x->state->capacity_bytes != 0) {
        rung_set(x, x->high - 1, keys);
        return;
    }
    int32_t last = x->high - 1;
    const int32_t rungs[RUNGS] = {x->low, x->low + (last - x->low) / 4,
                                  x->low + (last - x->low) / 2, last};
    for (uint32_t i = 0; i < RUNGS; i++) {
        if (rungs[i] <= last)
            rung_set(x, rungs[i], keys);
    }
}

/* True if the ladder has changed. */
static bool runner_finish(struct exact *x, struct runner *runner, enum ul_pack_outcome outcome)
{
    if (outcome == UL_PACK_OPEN)
        return false;
    if (outcome == UL_PACK_FOUND) {
        const int32_t *offsets = ul_pack_search_offsets(runner->search);
        offsets_settle(x, offsets);
        int32_t height = offsets_height(x, offsets);
        x->high = height < x->high ? height : x->high;
        runners_close(x, x->high, INT32_MAX);
    } else {
        x->low = runner->capacity + 1 > x->low ? runner->capacity + 1 : x->low;
        runners_close(x, INT32_MIN, x->low - 1);
    }
    return true;
}

static void ladder_run(struct exact *x)
{
    uint32_t keys = FIRST_KEYS;
    ladder_set(x, keys);
    uint64_t slice = first_slice;
    while (!settled_enough(x) && !exhausted(x)) {
        bool changed = false;
        for (uint32_t i = 0; i < x->runner_count && !changed && !exhausted(x); i++) {
            struct runner *runner = &x->runners[i];
            if (runner->open)
                changed = runner_finish(x, runner,
                                        ul_pack_search_run(runner->search, slice, &x->state->work));
        }
        if (!changed && slice < longest_slice)
            slice *= 2;
        if (slice == longest_slice)
            keys = UL_PACK_KEYS;
        if (!settled_enough(x))
            ladder_set(x, keys);
    }
    runners_close(x, INT32_MIN, INT32_MAX);
}

/* ---- Dives ---- */

/* One dive for each order at this capacity, until one arrives. */
static void dives_at(struct exact *x, int32_t capacity)
{
    for (uint32_t key = 0; key < UL_PACK_KEYS && !exhausted(x) && !settled_enough(x); key++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_pack_search *search =
            ul_pack_search_new(&arena, &x->sections, capacity, key, true);
        enum ul_pack_outcome outcome = UL_PACK_OPEN;
        while (outcome == UL_PACK_OPEN && !exhausted(x))
            outcome = ul_pack_search_run(search, longest_slice, &x->state->work);
        if (outcome == UL_PACK_FOUND) {
            const int32_t *offsets = ul_pack_search_offsets(search);
            offsets_settle(x, offsets);
            int32_t height = offsets_height(x, offsets);
            x->high = height < x->high ? height : x->high;
        }
        ul_arena_done(&arena);
        if (x->high <= capacity)
            return;
    }
}

/* From the bound upward in growing steps; then between the last failure and the first success. */
static void dives_run(struct exact *x)
{
    enum { REFINEMENTS = 4 };
    int32_t step = (x->high - 1 - x->low) / 16;
    int32_t failed = x->low;
    for (int32_t capacity = x->low; capacity < x->high && !settled_enough(x);) {
        dives_at(x, capacity);
        if (exhausted(x) || step == 0)
            return;
        if (x->high > capacity)
            failed = capacity;
        capacity += step;
        step *= 2;
    }
    for (uint32_t i = 0; i < REFINEMENTS && !settled_enough(x) && !exhausted(x); i++) {
        int32_t middle = failed + (x->high - failed) / 2;
        if (middle <= failed || middle >= x->high)
            return;
        dives_at(x, middle);
        if (x->high > middle)
            failed = middle;
    }
}

void ul_pack_exact(const struct ul_pack_problem *problem, struct ul_pack_exact *state)
{
    struct exact *x = UL_NEW(problem->arena, struct exact);
    x->problem = problem;
    x->state = state;
    x->best_bytes = state->arena_bytes;
    ul_arena_init(&x->arena);
    if (ul_pack_sections_make(&x->arena, problem, &x->sections)) {
        uint64_t unit = x->sections.unit_bytes;
        uint64_t high = (state->arena_bytes + unit - 1) / unit;
        if (state->capacity_bytes != 0 && state->capacity_bytes / unit + 1 < high)
            high = state->capacity_bytes / unit + 1;
        x->high = high < INT32_MAX / 2 ? (int32_t)high : INT32_MAX / 2;
        x->low = x->sections.bound;
        if (x->high <= x->low && !x->sections.exact)
            x->high = x->low + 1;
        uint64_t visits = (uint64_t)x->sections.count * x->sections.count;
        if (x->sections.count > SEARCH_BUFFERS) {
            if (visits < state->work_limit / 4)
                dives_run(x);
        } else {
            if (state->capacity_bytes == 0)
                dives_at(x, x->low);
            ladder_run(x);
        }
        uint64_t bound = (uint64_t)x->low * unit;
        if (x->sections.exact && bound > state->bound_bytes)
            state->bound_bytes = bound;
    }
    ul_arena_done(&x->arena);
}
