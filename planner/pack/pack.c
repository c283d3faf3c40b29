/* SPDX-License-Identifier: Apache-2.0 */
/* The packer's entry: checks the buffers, bounds the arena from below, and lets the method that is
 * asked for find offsets. */
#include "planner/model/effort.h"
#include "planner/model/method.h"
#include "planner/pack/pack_internal.h"

#include <string.h>

static enum ul_status buffer_verify(const struct ul_pack_buffer *buffer, uint32_t index,
                                    uint64_t *total_bytes, struct ul_diag *diag)
{
    if (buffer->begin >= buffer->end)
        return ul_diag_set(diag, UL_INVALID, "buffer %u: its lifetime is empty.", index);
    uint64_t offset = buffer->pinned ? buffer->offset_bytes : 0;
    if (!ul_size_add(*total_bytes, buffer->size_bytes, total_bytes) ||
        !ul_size_add(*total_bytes, buffer->alignment_bytes, total_bytes) ||
        !ul_size_add(*total_bytes, offset, total_bytes) || *total_bytes > (uint64_t)1 << 61)
        return ul_diag_set(diag, UL_INVALID, "buffer %u: the sizes together overflow.", index);
    uint32_t at = buffer->begin;
    for (uint32_t i = 0; i < buffer->gap_count; i++) {
        const struct ul_pack_gap *gap = &buffer->gaps[i];
        if (gap->begin < at || gap->end <= gap->begin || gap->end > buffer->end ||
            gap->window_lower_bytes > gap->window_upper_bytes ||
            gap->window_upper_bytes > buffer->size_bytes)
            return ul_diag_set(diag, UL_INVALID,
                               "buffer %u: gap %u is out of order or outside of it.", index, i);
        at = gap->end;
    }
    return UL_OK;
}

static void slab_add(struct ul_pack_problem *problem, uint32_t *count, uint32_t buffer,
                     struct ul_pack_slab slab)
{
    if (slab.begin >= slab.end || slab.lower_bytes >= slab.upper_bytes)
        return;
    slab.buffer = buffer;
    problem->slabs[(*count)++] = slab;
}

static void slabs_make(struct ul_pack_problem *problem)
{
    uint64_t max = 0;
    for (uint32_t b = 0; b < problem->buffer_count; b++)
        max += 2 * (uint64_t)problem->buffers[b].gap_count + 1;
    problem->slabs = UL_NEW_ARRAY(problem->arena, struct ul_pack_slab, max);
    problem->slab_first =
        UL_NEW_ARRAY(problem->arena, uint32_t, (uint64_t)problem->buffer_count + 1);
    uint32_t count = 0;
    for (uint32_t b = 0; b < problem->buffer_count; b++) {
        const struct ul_pack_buffer *buffer = &problem->buffers[b];
        problem->slab_first[b] = count;
        uint32_t at = buffer->begin;
        for (uint32_t i = 0; i < buffer->gap_count; i++) {
            const struct ul_pack_gap *gap = &buffer->gaps[i];
            slab_add(problem, &count, b,
                     (struct ul_pack_slab){at, gap->begin, b, 0, buffer->size_bytes});
            slab_add(problem, &count, b,
                     (struct ul_pack_slab){gap->begin, gap->end, b, gap->window_lower_bytes,
                                           gap->window_upper_bytes});
            at = gap->end;
        }
        slab_add(problem, &count, b,
                 (struct ul_pack_slab){at, buffer->end, b, 0, buffer->size_bytes});
    }
    problem->slab_first[problem->buffer_count] = count;
}

/* ---- Live sums ---- */

struct event {
    uint32_t time;
    uint64_t change_bytes; /* modulo 2^64 */
};

static bool event_before(const struct event *a, const struct event *b)
{
    return a->time < b->time;
}
UL_PACK_SORT(events_sort, struct event, event_before)

/* Distinct times with the live sum from each until the next; returns how many. */
static uint32_t sums_make(const struct ul_pack_problem *problem, struct ul_arena *scratch,
                          struct event **sums)
{
    uint32_t slabs = problem->slab_first[problem->buffer_count];
    struct event *events = UL_NEW_ARRAY(scratch, struct event, 2 * (uint64_t)slabs);
    for (uint32_t p = 0; p < slabs; p++) {
        const struct ul_pack_slab *slab = &problem->slabs[p];
        uint64_t bytes = slab->upper_bytes - slab->lower_bytes;
        events[2 * p] = (struct event){slab->begin, bytes};
        events[2 * p + 1] = (struct event){slab->end, 0 - bytes};
    }
    struct event *spare = UL_NEW_ARRAY(scratch, struct event, 2 * (uint64_t)slabs);
    events_sort(events, spare, 2 * slabs);
    uint32_t count = 0;
    uint64_t live = 0;
    for (uint32_t i = 0; i < 2 * slabs; i++) {
        live += events[i].change_bytes;
        if (i + 1 < 2 * slabs && events[i + 1].time == events[i].time)
            continue;
        events[count++] = (struct event){events[i].time, live};
    }
    *sums = events;
    return count;
}

static uint32_t sums_find(const struct event *sums, uint32_t count, uint32_t time)
{
    uint32_t low = 0;
    while (low < count) {
        uint32_t middle = low + (count - low) / 2;
        if (sums[middle].time < time)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

static uint64_t tree_max(const uint64_t *tree, uint32_t leaves, uint32_t begin, uint32_t end)
{
    UL_ASSERT(begin <= end && end <= leaves);
    uint64_t max = 0;
    for (begin += leaves, end += leaves; begin < end; begin /= 2, end /= 2) {
        if (begin % 2 == 1) {
            max = tree[begin] > max ? tree[begin] : max;
            begin++;
        }
        if (end % 2 == 1) {
            end--;
            max = tree[end] > max ? tree[end] : max;
        }
    }
    return max;
}

static void bounds_make(struct ul_pack_problem *problem)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct event *sums;
    uint32_t count = sums_make(problem, &scratch, &sums);
    uint64_t *tree = UL_NEW_ARRAY(&scratch, uint64_t, 2 * (uint64_t)count + 2);
    uint64_t max = 0;
    for (uint32_t i = 0; i < count; i++) {
        tree[count + i] = sums[i].change_bytes;
        if (tree[count + i] > max) {
            max = tree[count + i];
            problem->peak_time = sums[i].time;
        }
    }
    for (uint32_t i = count; i-- > 1;)
        tree[i] = tree[2 * i] > tree[2 * i + 1] ? tree[2 * i] : tree[2 * i + 1];
    problem->peak_bytes = UL_NEW_ARRAY(problem->arena, uint64_t, problem->buffer_count);
    problem->bound_bytes = count > 0 ? tree_max(tree, count, 0, count) : 0;
    for (uint32_t b = 0; b < problem->buffer_count; b++) {
        const struct ul_pack_buffer *buffer = &problem->buffers[b];
        uint32_t begin = sums_find(sums, count, buffer->begin);
        uint32_t end = sums_find(sums, count, buffer->end);
        problem->peak_bytes[b] = tree_max(tree, count, begin, end);
        uint64_t min = buffer->size_bytes + (buffer->pinned ? buffer->offset_bytes : 0);
        if (min > problem->bound_bytes)
            problem->bound_bytes = min;
    }
    ul_arena_done(&scratch);
    UL_ASSERT(problem->bound_bytes >= max);
}

/* ---- Pinned buffers ---- */

static bool slabs_collide(const struct ul_pack_problem *problem, uint32_t a, uint32_t b)
{
    for (uint32_t i = problem->slab_first[a]; i < problem->slab_first[a + 1]; i++) {
        for (uint32_t j = problem->slab_first[b]; j < problem->slab_first[b + 1]; j++) {
            const struct ul_pack_slab *x = &problem->slabs[i];
            const struct ul_pack_slab *y = &problem->slabs[j];
            uint64_t at_x = problem->buffers[a].offset_bytes;
            uint64_t at_y = problem->buffers[b].offset_bytes;
            if (x->begin < y->end && y->begin < x->end &&
                at_x + x->lower_bytes < at_y + y->upper_bytes &&
                at_y + y->lower_bytes < at_x + x->upper_bytes)
                return true;
        }
    }
    return false;
}

static enum ul_status pinned_verify(const struct ul_pack_problem *problem, struct ul_diag *diag)
{
    uint32_t *pinned = UL_NEW_ARRAY(problem->arena, uint32_t, problem->buffer_count);
    uint32_t count = 0;
    for (uint32_t b = 0; b < problem->buffer_count; b++) {
        const struct ul_pack_buffer *buffer = &problem->buffers[b];
        if (!buffer->pinned)
            continue;
        if (buffer->alignment_bytes > 1 && buffer->offset_bytes % buffer->alignment_bytes != 0)
            return ul_diag_set(diag, UL_INVALID, "buffer %u: pinned off its alignment.", b);
        for (uint32_t i = 0; i < count; i++) {
            if (slabs_collide(problem, pinned[i], b))
                return ul_diag_set(diag, UL_INVALID, "buffers %u and %u: pinned onto each other.",
                                   pinned[i], b);
        }
        pinned[count++] = b;
    }
    return UL_OK;
}

/* ---- The result ---- */

static void result_fill(const struct ul_pack_job *job, struct ul_pack_result *result)
{
    uint64_t bound = job->problem->bound_bytes, capacity = job->options->capacity_bytes;
    bool fits = capacity == 0 || job->arena_bytes <= capacity;
    bool optimal = job->arena_bytes == bound;
    *result = (struct ul_pack_result){.arena_bytes = job->arena_bytes,
                                      .lower_bound_bytes = bound,
                                      .optimal = optimal,
                                      .fits = fits,
                                      .proven = capacity == 0 ? optimal : fits || bound > capacity,
                                      .stopped_by_time = job->effort.stopped_by_time,
                                      .work = job->effort.work,
                                      .method = job->method,
                                      .why_not = job->why_not};
    UL_ASSERT(result->arena_bytes >= result->lower_bound_bytes);
}

/* Runs the rows that join, one after the other, until the best packing is good enough; or the one
 * that is named, after those that give it a packing to start from. */
static void methods_run(struct ul_pack_job *job)
{
#define WORD(constant, name, ...) {UL_TURN_NONE, NULL},
#define ROW(constant, name, run, turns, ...) {turns, run},
    static const struct {
        unsigned turns;
        ul_pack_method *run;
    } rows[] = {UL_PACK_METHODS(WORD, ROW)};
#undef ROW
#undef WORD
    enum ul_plan_pack named = job->options->method;
    UL_ASSERT(named < UL_PACK_COUNT);
    for (uint32_t m = 0; m < UL_PACK_COUNT; m++) {
        bool starts = rows[m].turns == UL_TURN_FIRST && rows[named].turns != UL_TURN_FIRST &&
                      rows[named].run != rows[m].run;
        bool joins = rows[m].turns != UL_TURN_NONE && named == UL_PACK_BEST;
        bool settled = job->arena_bytes <= job->target_bytes ||
                       (job->arena_bytes != UINT64_MAX && ul_effort_spent(&job->effort));
        if (m == named && rows[m].run != NULL)
            rows[m].run(job, true);
        else if ((joins || starts) && !settled)
            rows[m].run(job, false);
    }
}

enum ul_status ul_pack_solve(struct ul_arena *arena, struct ul_pack_buffer *buffers,
                             uint32_t buffer_count, const struct ul_pack_options *options,
                             struct ul_pack_result *result, struct ul_diag *diag)
{
    UL_ASSERT((buffers != NULL || buffer_count == 0) && options->method < UL_PACK_COUNT);
    double deadline = ul_deadline_after(options->time_limit_seconds);
    uint64_t total_bytes = 0;
    for (uint32_t b = 0; b < buffer_count; b++)
        UL_TRY(buffer_verify(&buffers[b], b, &total_bytes, diag));
    struct ul_pack_problem problem = {
        .arena = arena, .buffers = buffers, .buffer_count = buffer_count};
    slabs_make(&problem);
    UL_TRY(pinned_verify(&problem, diag));
    bounds_make(&problem);
    uint64_t work_limit = options->work_limit != 0 ? options->work_limit : UL_WORK_PACK;
    struct ul_pack_job job = {.problem = &problem,
                              .options = options,
                              .effort = {.work_limit = work_limit, .deadline_seconds = deadline},
                              .target_bytes = problem.bound_bytes,
                              .arena_bytes = UINT64_MAX,
                              .offset_bytes = UL_NEW_ARRAY(arena, uint64_t, buffer_count)};
    if (options->capacity_bytes > job.target_bytes)
        job.target_bytes = options->capacity_bytes;
    methods_run(&job);
    for (uint32_t b = 0; b < buffer_count; b++)
        buffers[b].offset_bytes = job.offset_bytes[b];
    result_fill(&job, result);
    return UL_OK;
}
