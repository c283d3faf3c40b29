/* SPDX-License-Identifier: Apache-2.0 */
/* First-fit packing in a fixed order of the buffers.
 *
 * Problem: give each buffer the lowest offset at which it collides with nothing placed before.
 * Method: each placed slab that overlaps its lifetime forbids an open interval of offsets; the
 * lowest allowed one is found by a sweep over them:
 *
 *     placed slabs      [####]      [######]
 *     forbidden       (---------)(------------)      (each widened below by the slab's size)
 *     allowed         ^ here     ^ or here
 *
 * The lifetimes of values that a training step keeps for its backward pass are nested around the
 * peak, and stack there without a hole if they come first. A large buffer may then find no place
 * next to the stack, since members that are gone by its time are scattered over it. The stack is
 * then sorted by it, stably, and everything is placed again: members that live with the buffer go
 * to the bottom, so that the others leave one hole on top.
 *
 *     cccc                          bbbb xxx
 *     bbbb xxx does not fit         cccc-----
 *     aaaa-----                     aaaa-----
 *
 * The last sorting counts most; earlier ones order what it leaves equal.
 *
 * Left undone: nothing is moved once placed; the exact search and repair do that. */
#include "planner/pack/pack_internal.h"

#include <string.h>

struct greedy {
    const struct ul_pack_problem *problem;
    struct ul_arena scratch;
    struct ul_pack_placed placed;
    struct ul_pack_edge *found,
        *spare; /* offsets strictly between it and its value are forbidden */
    uint32_t found_count, found_capacity, spare_capacity;
    uint64_t *offset_bytes;
};

enum by { BY_SIZE, BY_SECTION_TOTAL, BY_AREA, BY_LIFETIME, BY_BEGIN, BY_END, BY_NONE };

/* If `at_peak`, buffers that are live at the peak come first, in that order. */
static const struct order {
    const char *name;
    enum by all, peak;
} orders[] = {{"greedy: by size", BY_SIZE, BY_NONE},
              {"greedy: by section total", BY_SECTION_TOTAL, BY_NONE},
              {"greedy: by area", BY_AREA, BY_NONE},
              {"greedy: by lifetime", BY_LIFETIME, BY_NONE},
              {"greedy: by begin", BY_BEGIN, BY_NONE},
              {"greedy: by end", BY_END, BY_NONE},
              {"greedy: the peak by begin, the rest by size", BY_SIZE, BY_BEGIN},
              {"greedy: the peak by end, the rest by size", BY_SIZE, BY_END},
              {"greedy: the peak by lifetime, the rest by size", BY_SIZE, BY_LIFETIME}};
enum { ORDERS = sizeof orders / sizeof *orders, PEAK_FIRST = 6 };

static void found_add(struct greedy *g, const struct ul_pack_slab *query, uint32_t slab)
{
    const struct ul_pack_slab *placed = &g->problem->slabs[slab];
    int64_t at = (int64_t)g->offset_bytes[placed->buffer];
    int64_t lower = at + (int64_t)placed->lower_bytes - (int64_t)query->upper_bytes;
    int64_t upper = at + (int64_t)placed->upper_bytes - (int64_t)query->lower_bytes;
    if (lower >= upper || upper <= 0)
        return;
    UL_GROW(&g->scratch, g->found, g->found_count, g->found_capacity);
    g->found[g->found_count++] = (struct ul_pack_edge){lower, (uint64_t)upper};
}

static uint64_t align_up(uint64_t offset, uint64_t alignment)
{
    if (alignment <= 1)
        return offset;
    uint64_t rest = offset % alignment;
    return rest == 0 ? offset : offset + (alignment - rest);
}

static uint64_t lowest_allowed(struct greedy *g, uint32_t buffer)
{
    const struct ul_pack_problem *problem = g->problem;
    g->found_count = 0;
    for (uint32_t p = problem->slab_first[buffer]; p < problem->slab_first[buffer + 1]; p++) {
        ul_pack_placed_find(&g->placed, &problem->slabs[p]);
        for (uint32_t i = 0; i < g->placed.found_count; i++)
            found_add(g, &problem->slabs[p], g->placed.found[i]);
    }
    if (g->spare_capacity < g->found_capacity) {
        g->spare_capacity = g->found_capacity;
        g->spare = UL_NEW_ARRAY(&g->scratch, struct ul_pack_edge, g->spare_capacity);
    }
    ul_pack_edges_sort(g->found, g->spare, g->found_count);
    uint64_t alignment = problem->buffers[buffer].alignment_bytes;
    uint64_t offset = 0;
    for (uint32_t i = 0; i < g->found_count && g->found[i].offset < (int64_t)offset; i++) {
        if (g->found[i].value > offset)
            offset = align_up(g->found[i].value, alignment);
    }
    UL_ASSERT(alignment <= 1 || offset % alignment == 0);
    return offset;
}

struct key {
    uint64_t learnt, first, second, third; /* descending, except the third */
    uint32_t buffer;
    bool at_peak; /* before all others */
};

static bool key_before(const struct key *a, const struct key *b)
{
    if (a->at_peak != b->at_peak)
        return a->at_peak;
    if (a->learnt != b->learnt)
        return a->learnt > b->learnt;
    if (a->first != b->first)
        return a->first > b->first;
    if (a->second != b->second)
        return a->second > b->second;
    if (a->third != b->third)
        return a->third < b->third;
    return a->buffer < b->buffer;
}

UL_PACK_SORT(keys_sort, struct key, key_before)

static uint64_t key_of(const struct ul_pack_problem *problem, uint32_t buffer, enum by by)
{
    UL_ASSERT(by != BY_NONE && buffer < problem->buffer_count);
    const struct ul_pack_buffer *at = &problem->buffers[buffer];
    uint64_t lifetime = at->end - at->begin;
    switch (by) {
    case BY_SIZE:
        return at->size_bytes;
    case BY_SECTION_TOTAL:
        return problem->peak_bytes[buffer];
    case BY_AREA: {
        uint64_t area;
        return ul_size_mul(at->size_bytes, lifetime, &area) ? area : UINT64_MAX;
    }
    case BY_LIFETIME:
        return lifetime;
    case BY_BEGIN:
        return UINT32_MAX - at->begin;
    case BY_END:
        return at->end;
    case BY_NONE:
        break;
    }
    return 0;
}

static bool is_at_peak(const struct ul_pack_problem *problem, uint32_t buffer)
{
    const struct ul_pack_buffer *at = &problem->buffers[buffer];
    return at->begin <= problem->peak_time && problem->peak_time < at->end;
}

static struct key *keys_make(struct greedy *g, const struct order *order, const uint64_t *learnt)
{
    const struct ul_pack_problem *problem = g->problem;
    uint32_t count = problem->buffer_count;
    struct key *keys = UL_NEW_ARRAY(&g->scratch, struct key, count);
    for (uint32_t b = 0; b < count; b++) {
        const struct ul_pack_buffer *at = &problem->buffers[b];
        bool at_peak = order->peak != BY_NONE && is_at_peak(problem, b);
        keys[b] = (struct key){.learnt = learnt[b],
                               .first = key_of(problem, b, at_peak ? order->peak : order->all),
                               .second = at->size_bytes,
                               .third = at->begin,
                               .buffer = b,
                               .at_peak = at_peak};
    }
    keys_sort(keys, UL_NEW_ARRAY(&g->scratch, struct key, count), count);
    return keys;
}

/* Places buffers in the given order, pinned ones first. Returns the arena's size; adds to *work the
 * pairs of overlapping buffers that it looked at, with which its time grows. */
static uint64_t buffers_place(const struct ul_pack_problem *problem, const struct order *order,
                              const uint64_t *learnt, uint64_t *offset_bytes, uint64_t *work)
{
    struct greedy g = {.problem = problem, .offset_bytes = offset_bytes};
    ul_arena_init(&g.scratch);
    ul_pack_placed_init(&g.placed, &g.scratch, problem);
    const struct key *keys = keys_make(&g, order, learnt);
    uint64_t top = 0;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < problem->buffer_count; i++) {
            uint32_t b = keys[i].buffer;
            const struct ul_pack_buffer *buffer = &problem->buffers[b];
            if (buffer->pinned != (pass == 0))
                continue;
            offset_bytes[b] = buffer->pinned ? buffer->offset_bytes : lowest_allowed(&g, b);
            ul_pack_placed_add(&g.placed, b);
            *work += g.found_count + 1;
            uint64_t end = offset_bytes[b] + buffer->size_bytes;
            top = end > top ? end : top;
        }
    }
    ul_arena_done(&g.scratch);
    UL_ASSERT(top >= problem->bound_bytes);
    return top;
}

/* ---- Learning from buffers that end too high ---- */

/* The largest buffer that ends above the target; UL_PLAN_NONE where none does, or so many that one
 * stack cannot help them. */
static uint32_t too_high_find(const struct ul_pack_job *job, const uint64_t *offset_bytes)
{
    enum { MANY = 256 };
    const struct ul_pack_buffer *buffers = job->problem->buffers;
    uint32_t found = UL_PLAN_NONE, count = 0;
    for (uint32_t b = 0; b < job->problem->buffer_count; b++) {
        if (offset_bytes[b] + buffers[b].size_bytes <= job->target_bytes)
            continue;
        count++;
        if (found == UL_PLAN_NONE || buffers[b].size_bytes > buffers[found].size_bytes)
            found = b;
    }
    return count <= MANY ? found : UL_PLAN_NONE;
}

/* Sorts the stack by the buffer, and lets all buffers that end too high come sooner. */
static void learn(const struct ul_pack_job *job, const uint64_t *offset_bytes, uint32_t buffer,
                  uint32_t round, uint64_t *learnt)
{
    const struct ul_pack_buffer *buffers = job->problem->buffers, *high = &buffers[buffer];
    for (uint32_t b = 0; b < job->problem->buffer_count; b++) {
        bool counts = is_at_peak(job->problem, b)
                          ? buffers[b].begin < high->end && high->begin < buffers[b].end
                          : offset_bytes[b] + buffers[b].size_bytes > job->target_bytes;
        learnt[b] |= counts ? (uint64_t)1 << round : 0;
    }
}

struct trial {
    uint64_t *offset_bytes, *learnt;
    uint64_t work;
};

static void order_try(struct ul_pack_job *job, const struct order *order, struct trial *trial)
{
    enum { MAX_ROUNDS = 12, PATIENCE = 3 }; /* rounds without an improvement */
    const uint32_t count = job->problem->buffer_count;
    uint64_t least_bytes = UINT64_MAX;
    memset(trial->learnt, 0, count * sizeof *trial->learnt);
    for (uint32_t round = 0, idle = 0; round < MAX_ROUNDS && idle < PATIENCE; round++) {
        uint64_t arena_bytes =
            buffers_place(job->problem, order, trial->learnt, trial->offset_bytes, &trial->work);
        idle = arena_bytes < least_bytes ? 0 : idle + 1;
        least_bytes = arena_bytes < least_bytes ? arena_bytes : least_bytes;
        if (arena_bytes < job->arena_bytes) {
            memcpy(job->offset_bytes, trial->offset_bytes, count * sizeof *trial->offset_bytes);
            job->arena_bytes = arena_bytes;
            job->method = order->name;
        }
        uint32_t high = too_high_find(job, trial->offset_bytes);
        if (order->peak == BY_NONE || high == UL_PLAN_NONE || is_at_peak(job->problem, high) ||
            ul_effort_spent(&job->effort))
            return;
        learn(job, trial->offset_bytes, high, round, trial->learnt);
    }
}

/* Large instances get fewer orders, beginning with those that begin with the peak. */
void ul_pack_run_greedy(struct ul_pack_job *job, bool is_named)
{
    static const uint64_t max_work = 1u << 29;
    struct ul_arena scratch;
    uint32_t count = job->problem->buffer_count;
    uint32_t first = count > UL_PACK_EXACT_BUFFERS ? PEAK_FIRST : 0;
    (void)is_named;
    ul_arena_init(&scratch);
    struct trial trial = {.offset_bytes = UL_NEW_ARRAY(&scratch, uint64_t, count),
                          .learnt = UL_NEW_ARRAY(&scratch, uint64_t, count)};
    for (uint32_t i = 0; i < ORDERS && trial.work < max_work; i++) {
        order_try(job, &orders[(first + i) % ORDERS], &trial);
        if (job->arena_bytes <= job->target_bytes || ul_effort_spent(&job->effort))
            break;
    }
    ul_arena_done(&scratch);
}
