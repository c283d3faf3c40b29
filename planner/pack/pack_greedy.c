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
 * Left undone: nothing is moved once placed; that is the exact search's and repair's affair. */
#include "planner/pack/pack_internal.h"

#include <string.h>

struct forbidden {
    int64_t lower, upper; /* offsets strictly between are not allowed */
};

struct greedy {
    const struct ul_pack_problem *problem;
    struct ul_arena scratch;
    struct ul_pack_placed placed;
    struct forbidden *found;
    uint32_t found_count, found_capacity;
    uint64_t *offset_bytes;
};

enum { ORDERS = 6 };
static const char *const order_names[ORDERS] = {"greedy: by size",  "greedy: by section total",
                                                "greedy: by area",  "greedy: by lifetime",
                                                "greedy: by begin", "greedy: by end"};

static void forbidden_sort(struct forbidden *a, int64_t count)
{
    while (count > 16) {
        int64_t x = a[0].lower, y = a[count / 2].lower, z = a[count - 1].lower;
        int64_t pivot = x < y ? (y < z ? y : (x < z ? z : x)) : (x < z ? x : (y < z ? z : y));
        int64_t i = 0, j = count - 1;
        while (i <= j) {
            while (a[i].lower < pivot)
                i++;
            while (a[j].lower > pivot)
                j--;
            if (i <= j) {
                struct forbidden swap = a[i];
                a[i++] = a[j];
                a[j--] = swap;
            }
        }
        /* The smaller side by recursion, so that its depth stays logarithmic. */
        if (j + 1 < count - i) {
            forbidden_sort(a, j + 1);
            a += i;
            count -= i;
        } else {
            forbidden_sort(a + i, count - i);
            count = j + 1;
        }
    }
    for (int64_t i = 1; i < count; i++) {
        struct forbidden moving = a[i];
        int64_t j = i;
        for (; j > 0 && a[j - 1].lower > moving.lower; j--)
            a[j] = a[j - 1];
        a[j] = moving;
    }
}

static void found_add(struct greedy *g, const struct ul_pack_slab *query, uint32_t slab)
{
    const struct ul_pack_slab *placed = &g->problem->slabs[slab];
    int64_t at = (int64_t)g->offset_bytes[placed->buffer];
    int64_t lower = at + (int64_t)placed->lower_bytes - (int64_t)query->upper_bytes;
    int64_t upper = at + (int64_t)placed->upper_bytes - (int64_t)query->lower_bytes;
    if (lower >= upper)
        return;
    UL_GROW(&g->scratch, g->found, g->found_count, g->found_capacity);
    g->found[g->found_count++] = (struct forbidden){lower, upper};
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
    forbidden_sort(g->found, g->found_count);
    uint64_t alignment = problem->buffers[buffer].alignment_bytes;
    uint64_t offset = 0;
    for (uint32_t i = 0; i < g->found_count && g->found[i].lower < (int64_t)offset; i++) {
        if (g->found[i].upper > (int64_t)offset)
            offset = align_up((uint64_t)g->found[i].upper, alignment);
    }
    UL_ASSERT(alignment <= 1 || offset % alignment == 0);
    return offset;
}

struct key {
    uint64_t first, second, third; /* descending, descending, ascending */
    uint32_t buffer;
};

static bool key_before(const struct key *a, const struct key *b)
{
    if (a->first != b->first)
        return a->first > b->first;
    if (a->second != b->second)
        return a->second > b->second;
    if (a->third != b->third)
        return a->third < b->third;
    return a->buffer < b->buffer;
}

UL_PACK_SORT(keys_sort, struct key, key_before)

static uint64_t key_of(const struct ul_pack_problem *problem, uint32_t buffer, uint32_t order)
{
    UL_ASSERT(order < ORDERS && buffer < problem->buffer_count);
    const struct ul_pack_buffer *at = &problem->buffers[buffer];
    uint64_t lifetime = at->end - at->begin;
    switch (order) {
    case 0:
        return at->size_bytes;
    case 1:
        return problem->peak_bytes[buffer];
    case 2: {
        uint64_t area;
        return ul_size_mul(at->size_bytes, lifetime, &area) ? area : UINT64_MAX;
    }
    case 3:
        return lifetime;
    case 4:
        return UINT32_MAX - at->begin;
    default:
        return at->end;
    }
}

static struct key *keys_make(struct greedy *g, uint32_t order)
{
    const struct ul_pack_problem *problem = g->problem;
    uint32_t count = problem->buffer_count;
    struct key *keys = UL_NEW_ARRAY(&g->scratch, struct key, count);
    for (uint32_t b = 0; b < count; b++)
        keys[b] = (struct key){.first = key_of(problem, b, order),
                               .second = problem->buffers[b].size_bytes,
                               .third = problem->buffers[b].begin,
                               .buffer = b};
    keys_sort(keys, UL_NEW_ARRAY(&g->scratch, struct key, count), count);
    return keys;
}

/* In the given one of the orders, pinned buffers first. Returns the arena's size; adds the pairs of
 * overlapping buffers that it looked at, which is what its time grows with, to *work. */
static uint64_t buffers_place(const struct ul_pack_problem *problem, uint32_t order,
                              uint64_t *offset_bytes, uint64_t *work)
{
    struct greedy g = {.problem = problem, .offset_bytes = offset_bytes};
    ul_arena_init(&g.scratch);
    ul_pack_placed_init(&g.placed, &g.scratch, problem);
    const struct key *keys = keys_make(&g, order);
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

void ul_pack_run_greedy(struct ul_pack_job *job, bool is_named)
{
    static const uint64_t max_work = 1u << 26; /* huge instances get fewer orders */
    struct ul_arena scratch;
    uint32_t count = job->problem->buffer_count;
    uint64_t work = 0;
    (void)is_named;
    ul_arena_init(&scratch);
    uint64_t *trial = UL_NEW_ARRAY(&scratch, uint64_t, count);
    for (uint32_t order = 0; order < ORDERS && work < max_work; order++) {
        uint64_t arena_bytes = buffers_place(job->problem, order, trial, &work);
        if (arena_bytes < job->arena_bytes) {
            memcpy(job->offset_bytes, trial, count * sizeof *trial);
            job->arena_bytes = arena_bytes;
            job->method = order_names[order];
        }
        if (job->arena_bytes <= job->target_bytes || ul_effort_spent(&job->effort))
            break;
    }
    ul_arena_done(&scratch);
}
