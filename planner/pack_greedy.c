/* First-fit packing in a fixed order of the buffers.
 *
 * Problem: give each buffer the lowest offset at which it collides with nothing placed before.
 * Method: the pieces, sorted by begin, carry a tree of the latest end among the placed ones, so
 * that the placed pieces which overlap a lifetime are found without visiting the others. Each
 * forbids an open interval of offsets; the lowest allowed one is found by a sweep over them:
 *
 *     placed pieces      [####]      [######]
 *     forbidden       (---------)(------------)      (each widened below by the piece's size)
 *     allowed         ^ here     ^ or here
 *
 * Left undone: nothing is moved once placed; that is the exact search's affair. */
#include "planner/pack_internal.h"

#include <string.h>

struct forbidden {
    int64_t lower, upper; /* offsets strictly between are not allowed */
};

struct greedy {
    const struct ul_pack_problem *problem;
    struct ul_arena scratch;
    uint32_t *by_begin;   /* pieces sorted by begin */
    uint32_t *rank;       /* inverse of by_begin */
    uint32_t *placed_end; /* tree over ranks: latest end among placed pieces */
    uint32_t leaf_count;
    struct forbidden *found;
    uint32_t found_count, found_capacity;
    const struct ul_pack_piece *query;
    uint64_t *offset_bytes;
};

static const char *const order_names[UL_PACK_GREEDY_ORDERS] = {
    "greedy by size",     "greedy by section total", "greedy by area",
    "greedy by lifetime", "greedy by begin",         "greedy by end"};

const char *ul_pack_greedy_name(uint32_t order)
{
    UL_ASSERT(order < UL_PACK_GREEDY_ORDERS);
    return order_names[order];
}

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

static void found_add(struct greedy *g, uint32_t piece)
{
    const struct ul_pack_piece *placed = &g->problem->pieces[piece];
    int64_t at = (int64_t)g->offset_bytes[placed->buffer];
    int64_t lower = at + (int64_t)placed->lower_bytes - (int64_t)g->query->upper_bytes;
    int64_t upper = at + (int64_t)placed->upper_bytes - (int64_t)g->query->lower_bytes;
    if (lower >= upper)
        return;
    UL_GROW(&g->scratch, g->found, g->found_count, g->found_capacity);
    g->found[g->found_count++] = (struct forbidden){lower, upper};
}

/* All placed pieces of ranks [first, first + width) below `limit` that end after the query
 * begins. */
static void tree_collect(struct greedy *g, uint32_t node, uint32_t first, uint32_t width,
                         uint32_t limit)
{
    if (first >= limit || g->placed_end[node] <= g->query->begin)
        return;
    if (width == 1) {
        found_add(g, g->by_begin[first]);
        return;
    }
    tree_collect(g, node * 2, first, width / 2, limit);
    tree_collect(g, node * 2 + 1, first + width / 2, width / 2, limit);
}

static uint32_t rank_limit(const struct greedy *g, uint32_t end)
{
    uint32_t low = 0;
    uint32_t high = g->problem->piece_first[g->problem->buffer_count];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (g->problem->pieces[g->by_begin[middle]].begin < end)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
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
    for (uint32_t p = problem->piece_first[buffer]; p < problem->piece_first[buffer + 1]; p++) {
        g->query = &problem->pieces[p];
        tree_collect(g, 1, 0, g->leaf_count, rank_limit(g, g->query->end));
    }
    forbidden_sort(g->found, g->found_count);
    uint64_t alignment = problem->buffers[buffer].alignment_bytes;
    uint64_t offset = 0;
    for (uint32_t i = 0; i < g->found_count && g->found[i].lower < (int64_t)offset; i++) {
        if (g->found[i].upper > (int64_t)offset)
            offset = align_up((uint64_t)g->found[i].upper, alignment);
    }
    return offset;
}

static void placed_mark(struct greedy *g, uint32_t buffer)
{
    const struct ul_pack_problem *problem = g->problem;
    for (uint32_t p = problem->piece_first[buffer]; p < problem->piece_first[buffer + 1]; p++) {
        uint32_t end = problem->pieces[p].end;
        for (uint32_t node = g->leaf_count + g->rank[p]; node > 0 && g->placed_end[node] < end;
             node /= 2)
            g->placed_end[node] = end;
    }
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

/* A merge sort: stable by construction and independent of the C library. */
static void keys_sort(struct key *keys, struct key *spare, uint32_t count)
{
    for (uint32_t width = 1; width < count; width *= 2) {
        for (uint32_t at = 0; at < count; at += 2 * width) {
            uint32_t middle = at + width < count ? at + width : count;
            uint32_t end = middle + width < count ? middle + width : count;
            uint32_t i = at, j = middle;
            for (uint32_t k = at; k < end; k++)
                spare[k] = i < middle && (j == end || !key_before(&keys[j], &keys[i])) ? keys[i++]
                                                                                       : keys[j++];
        }
        memcpy(keys, spare, sizeof *keys * count);
    }
}

static uint64_t key_of(const struct ul_pack_problem *problem, uint32_t buffer, uint32_t order)
{
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

/* Pieces sorted by begin, by the same sort. */
static void ranks_make(struct greedy *g)
{
    const struct ul_pack_problem *problem = g->problem;
    uint32_t count = problem->piece_first[problem->buffer_count];
    struct key *keys = UL_NEW_ARRAY(&g->scratch, struct key, count);
    for (uint32_t p = 0; p < count; p++)
        keys[p] = (struct key){.third = problem->pieces[p].begin, .buffer = p};
    keys_sort(keys, UL_NEW_ARRAY(&g->scratch, struct key, count), count);
    g->by_begin = UL_NEW_ARRAY(&g->scratch, uint32_t, count);
    g->rank = UL_NEW_ARRAY(&g->scratch, uint32_t, count);
    for (uint32_t i = 0; i < count; i++) {
        g->by_begin[i] = keys[i].buffer;
        g->rank[keys[i].buffer] = i;
    }
    for (g->leaf_count = 1; g->leaf_count < count; g->leaf_count *= 2)
        continue;
    g->placed_end = UL_NEW_ARRAY(&g->scratch, uint32_t, 2 * (uint64_t)g->leaf_count);
}

uint64_t ul_pack_greedy(const struct ul_pack_problem *problem, uint32_t order,
                        uint64_t *offset_bytes, uint64_t *work)
{
    struct greedy g = {.problem = problem, .offset_bytes = offset_bytes};
    ul_arena_init(&g.scratch);
    ranks_make(&g);
    const struct key *keys = keys_make(&g, order);
    uint64_t top = 0;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < problem->buffer_count; i++) {
            uint32_t b = keys[i].buffer;
            const struct ul_pack_buffer *buffer = &problem->buffers[b];
            if (buffer->pinned != (pass == 0))
                continue;
            offset_bytes[b] = buffer->pinned ? buffer->offset_bytes : lowest_allowed(&g, b);
            placed_mark(&g, b);
            *work += g.found_count + 1;
            uint64_t end = offset_bytes[b] + buffer->size_bytes;
            top = end > top ? end : top;
        }
    }
    ul_arena_done(&g.scratch);
    return top;
}
