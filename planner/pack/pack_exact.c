/* SPDX-License-Identifier: Apache-2.0 */
/* Runs exact searches until the packing is proven optimal, fits, or the work is used up.
 *
 * Problem: no single order suits every instance: each finds some packings at once and gets lost on
 * others. And no single capacity suits the search for the smallest one, since a capacity far below
 * the optimum, or just below it, may take for ever to refute. Method: there is a ladder of
 * capacities between the bound and the best packing known. One rung is always the bound: instances
 * often reach it. The others are below the best found, the nearer to it the longer nothing is
 * found. Every rung has one search for each order; all of them run in turn, and resume where they
 * stopped. A packing that is found removes the rungs at or above it; a refutation removes those at
 * or below it and raises the bound. A single dive at the bound comes first, before repairs are
 * tried too. */
#include "planner/pack/pack_search.h"

#include <string.h>

/* The orders that do not learn refute; those that learn find packings, each on other instances. */
enum { LEVELS = 4, STATIC_KEYS = 3, LANES = STATIC_KEYS + UL_PACK_LEARNING_KEYS };
static const uint32_t lane_shares[LANES] = {1, 1, 1, 8, 2, 2};
static const uint64_t first_slice = 1u << 14;
static const uint64_t longest_slice = 1u << 19;
static const uint64_t min_patience = 1u << 24;

struct level {
    struct ul_arena arena;
    struct ul_pack_search *searches[LANES];
    int32_t capacity;
    uint64_t slice;
    uint32_t turns;
    bool open;
};

struct exact {
    struct ul_pack_job *job;
    struct ul_pack_sections sections;
    struct ul_arena arena;
    struct level levels[LEVELS];
    int32_t low, high; /* units: the smallest capacity still possible, and one that is reached */
    uint64_t patience; /* work without a change after which a nearer rung is set */
};

/* ---- Settling: offsets in bytes from a packing in units ---- */

/* Drops the buffers in the order of their offsets, by their exact sizes: this regains what rounding
 * up to units lost. */
static void offsets_finalize(struct exact *x, const int32_t *offsets)
{
    const struct ul_pack_sections *s = &x->sections;
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct ul_ranked *order = UL_NEW_ARRAY(&scratch, struct ul_ranked, s->count);
    for (uint32_t i = 0; i < s->count; i++)
        order[i] = (struct ul_ranked){(uint64_t)offsets[i], i};
    ul_ranked_sort(order, s->count);
    uint64_t *floor = UL_NEW_ARRAY(&scratch, uint64_t, s->section_count);
    uint64_t *trial = UL_NEW_ARRAY(&scratch, uint64_t, x->job->problem->buffer_count);
    uint64_t top = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t at = order[i].index;
        const struct ul_pack_buffer *buffer = &x->job->problem->buffers[s->id[at]];
        uint64_t offset = 0;
        for (int32_t t = s->begin[at]; t < s->end[at]; t++)
            offset = floor[t] > offset ? floor[t] : offset;
        if (buffer->pinned)
            offset = buffer->offset_bytes;
        else if (buffer->alignment_bytes > 1 && offset % buffer->alignment_bytes != 0)
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
    UL_ASSERT(top >= x->job->problem->bound_bytes);
    if (top < x->job->arena_bytes) {
        x->job->arena_bytes = top;
        memcpy(x->job->offset_bytes, trial, sizeof *trial * x->job->problem->buffer_count);
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
    return x->low >= x->high || x->job->arena_bytes <= x->job->target_bytes;
}

static void level_close(struct level *level)
{
    if (level->open)
        ul_arena_done(&level->arena);
    level->open = false;
}

static void levels_close(struct exact *x, int32_t from, int32_t to)
{
    for (uint32_t i = 0; i < LEVELS; i++) {
        if (x->levels[i].capacity >= from && x->levels[i].capacity <= to)
            level_close(&x->levels[i]);
    }
}

/* Does nothing if the rung exists, or if there is no place for it. */
static void level_open(struct exact *x, int32_t capacity)
{
    struct level *level = NULL;
    for (uint32_t i = 0; i < LEVELS; i++) {
        if (!x->levels[i].open)
            level = &x->levels[i];
        else if (x->levels[i].capacity == capacity)
            return;
    }
    if (level == NULL)
        return;
    UL_ASSERT(!level->open);
    ul_arena_init(&level->arena);
    for (uint32_t i = 0; i < LANES; i++) {
        uint32_t key = i < STATIC_KEYS ? i : UL_PACK_KEYS + i - STATIC_KEYS;
        level->searches[i] = ul_pack_search_new(&level->arena, &x->sections, capacity, key, false);
    }
    level->capacity = capacity;
    level->slice = first_slice;
    level->turns = 0;
    level->open = true;
}

/* The highest rung, or NULL if there is none above the bound's. */
static struct level *level_highest(struct exact *x)
{
    struct level *highest = NULL;
    for (uint32_t i = 0; i < LEVELS; i++) {
        struct level *level = &x->levels[i];
        if (level->open && level->capacity > (highest != NULL ? highest->capacity : x->low))
            highest = level;
    }
    return highest;
}

/* The first rung above the bound's is a quarter of the way down to it, each further one halfway up
 * from there. */
static void capacities_set(struct exact *x, bool impatient)
{
    int32_t last = x->high - 1;
    if (x->job->options->capacity_bytes != 0) {
        level_open(x, last);
        return;
    }
    level_open(x, x->low);
    const struct level *highest = level_highest(x);
    if (highest == NULL)
        level_open(x, last - (last - x->low) / 4);
    else if (impatient && highest->capacity < last)
        level_open(x, highest->capacity + (last - highest->capacity + 1) / 2);
}

/* True if the ladder has changed. */
static bool search_finish(struct exact *x, const struct level *level,
                          const struct ul_pack_search *search, enum ul_pack_outcome outcome)
{
    UL_ASSERT(level->open);
    if (outcome == UL_PACK_OPEN)
        return false;
    if (outcome == UL_PACK_REFUTED) {
        x->low = level->capacity + 1 > x->low ? level->capacity + 1 : x->low;
        levels_close(x, INT32_MIN, x->low - 1);
        return true;
    }
    const int32_t *offsets = ul_pack_search_offsets(search);
    offsets_finalize(x, offsets);
    int32_t height = offsets_height(x, offsets);
    x->high = height < x->high ? height : x->high;
    levels_close(x, x->high, INT32_MAX);
    return true;
}

/* One slice for every order of the rung. True if the ladder has changed. */
static bool level_run(struct exact *x, struct level *level)
{
    UL_ASSERT(level != NULL && level->open);
    for (uint32_t i = 0; i < LANES && !ul_effort_spent(&x->job->effort); i++) {
        uint64_t slice = lane_shares[i] * level->slice;
        struct ul_pack_search *search = level->searches[i];
        enum ul_pack_outcome outcome = ul_pack_search_run(search, slice, &x->job->effort.work);
        if (search_finish(x, level, search, outcome))
            return true;
    }
    if (level->slice < longest_slice)
        level->slice *= 2;
    return false;
}

/* After this many turns a rung gets fewer. */
static bool is_its_turn(struct level *level)
{
    enum { FIRST_TURNS = 10, SELDOM = 4 };
    level->turns++;
    return level->turns < FIRST_TURNS || level->turns % SELDOM == 0;
}

/* One turn of the ladder: each other rung, and after it the highest. True if the ladder has
 * changed. */
static bool capacities_turn(struct exact *x)
{
    struct level *highest = level_highest(x);
    bool alone = true;
    for (uint32_t i = 0; i < LEVELS; i++) {
        struct level *level = &x->levels[i];
        if (!level->open || level == highest)
            continue;
        alone = false;
        if (is_its_turn(level) && level_run(x, level))
            return true;
        if (highest != NULL && level_run(x, highest))
            return true;
    }
    return alone && level_run(x, highest);
}

static void capacities_run(struct exact *x)
{
    uint64_t changed_at = x->job->effort.work;
    x->patience = min_patience;
    capacities_set(x, false);
    while (!settled_enough(x) && !ul_effort_spent(&x->job->effort)) {
        bool changed = capacities_turn(x);
        uint64_t since = x->job->effort.work - changed_at;
        bool impatient = !changed && since > x->patience;
        if (changed) {
            x->patience = 2 * since > min_patience ? 2 * since : min_patience;
            changed_at = x->job->effort.work;
        } else if (impatient) {
            x->patience *= 2;
        }
        if (!settled_enough(x))
            capacities_set(x, impatient);
    }
    levels_close(x, INT32_MIN, INT32_MAX);
}

/* ---- Dives ---- */

/* One dive for each order at this capacity, until one succeeds. */
static void dives_at(struct exact *x, int32_t capacity)
{
    for (uint32_t key = 0;
         key < UL_PACK_KEYS && !ul_effort_spent(&x->job->effort) && !settled_enough(x); key++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_pack_search *search =
            ul_pack_search_new(&arena, &x->sections, capacity, key, true);
        enum ul_pack_outcome outcome = UL_PACK_OPEN;
        while (outcome == UL_PACK_OPEN && !ul_effort_spent(&x->job->effort))
            outcome = ul_pack_search_run(search, longest_slice, &x->job->effort.work);
        if (outcome == UL_PACK_FOUND) {
            const int32_t *offsets = ul_pack_search_offsets(search);
            offsets_finalize(x, offsets);
            int32_t height = offsets_height(x, offsets);
            x->high = height < x->high ? height : x->high;
        }
        ul_arena_done(&arena);
        if (x->high <= capacity)
            return;
    }
}

/* A dive at the bound; a second one would have the same result. */
static void bound_dive(struct exact *x)
{
    if (x->job->options->capacity_bytes == 0 && !x->job->has_dived)
        dives_at(x, x->low);
    x->job->has_dived = true;
}

/* ---- The search ---- */

/* False where the instance cannot be brought into the search's form. */
static bool exact_init(struct exact *x, struct ul_pack_job *job)
{
    uint64_t capacity = job->options->capacity_bytes;
    *x = (struct exact){.job = job};
    ul_arena_init(&x->arena);
    if (!ul_pack_sections_make(&x->arena, job->problem, &x->sections))
        return false;
    uint64_t unit = x->sections.unit_bytes;
    uint64_t high = (job->arena_bytes + unit - 1) / unit;
    if (capacity != 0 && capacity / unit + 1 < high)
        high = capacity / unit + 1;
    x->high = high < INT32_MAX / 2 ? (int32_t)high : INT32_MAX / 2;
    x->low = x->sections.bound;
    if (x->high <= x->low && !x->sections.exact)
        x->high = x->low + 1;
    return true;
}

static void search_run(struct ul_pack_job *job)
{
    struct ul_pack_problem *problem = job->problem;
    struct exact *x = UL_NEW(problem->arena, struct exact);
    if (exact_init(x, job)) {
        bound_dive(x);
        capacities_run(x);
        uint64_t bound = (uint64_t)x->low * x->sections.unit_bytes;
        if (x->sections.exact && bound > problem->bound_bytes)
            problem->bound_bytes = bound;
    }
    ul_arena_done(&x->arena);
    UL_ASSERT(problem->bound_bytes <= job->arena_bytes);
}

void ul_pack_dive(struct ul_pack_job *job)
{
    struct exact *x = UL_NEW(job->problem->arena, struct exact);
    uint64_t before = job->arena_bytes;
    UL_ASSERT(before > job->target_bytes);
    if (job->problem->buffer_count > UL_PACK_EXACT_BUFFERS)
        return;
    if (exact_init(x, job))
        bound_dive(x);
    ul_arena_done(&x->arena);
    if (job->arena_bytes < before)
        job->method = "exact";
}

/* Names the result where only this method was asked: it has to improve on first-fit or to prove
 * it. */
static void result_name(struct ul_pack_job *job, bool is_better)
{
    bool large = job->problem->buffer_count > UL_PACK_EXACT_BUFFERS;
    if (is_better)
        return;
    job->method = "exact: nothing below first-fit";
    if (job->arena_bytes <= job->problem->bound_bytes)
        return;
    job->method = ul_method_get(UL_METHOD_PACK, UL_PACK_EXACT)->name;
    job->why_not = large ? "there are too many buffers for it"
                         : "it is out of work before it finds or proves a packing";
}

/* An instance that cannot be brought into the search's form keeps its packing. */
void ul_pack_run_exact(struct ul_pack_job *job, bool is_named)
{
    uint64_t before = job->arena_bytes;
    bool meets = before <= job->target_bytes;
    if (!meets && job->problem->buffer_count <= UL_PACK_EXACT_BUFFERS)
        search_run(job);
    if (job->arena_bytes < before)
        job->method = "exact";
    if (is_named && meets)
        job->method = "exact: first-fit meets the bound";
    else if (is_named)
        result_name(job, job->arena_bytes < before);
}
