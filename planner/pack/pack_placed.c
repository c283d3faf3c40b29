/* SPDX-License-Identifier: Apache-2.0 */
/* An index of placed slabs by time.
 *
 * Problem: which placed slabs overlap a lifetime, while slabs come and go? Method: a tree over all
 * slabs, sorted by begin, has the latest end among the placed ones. Slabs that overlap [begin, end)
 * are in a prefix of the order, in the subtrees whose latest end is after the begin; other subtrees
 * are not visited. */
#include "planner/pack/pack_internal.h"

static uint32_t rank_limit(const struct ul_pack_placed *placed, uint32_t end)
{
    const struct ul_pack_problem *problem = placed->problem;
    uint32_t low = 0;
    uint32_t high = problem->slab_first[problem->buffer_count];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (problem->slabs[placed->by_begin[middle]].begin < end)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Adds all placed slabs of ranks [first, first + width) below `limit` that end after `begin`. */
static void tree_collect(struct ul_pack_placed *placed, uint32_t node, uint32_t first,
                         uint32_t width, uint32_t limit, uint32_t begin)
{
    if (first >= limit || placed->latest_end[node] <= begin)
        return;
    if (width == 1) {
        UL_ASSERT(placed->found_count < placed->leaf_count);
        placed->found[placed->found_count++] = placed->by_begin[first];
        return;
    }
    tree_collect(placed, node * 2, first, width / 2, limit, begin);
    tree_collect(placed, node * 2 + 1, first + width / 2, width / 2, limit, begin);
}

void ul_pack_placed_init(struct ul_pack_placed *placed, struct ul_arena *arena,
                         const struct ul_pack_problem *problem)
{
    uint32_t count = problem->slab_first[problem->buffer_count];
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct ul_ranked *started = UL_NEW_ARRAY(&scratch, struct ul_ranked, count);
    for (uint32_t p = 0; p < count; p++)
        started[p] = (struct ul_ranked){problem->slabs[p].begin, p};
    ul_ranked_sort(started, count);
    *placed = (struct ul_pack_placed){.problem = problem, .leaf_count = 1};
    placed->by_begin = UL_NEW_ARRAY(arena, uint32_t, count);
    placed->rank = UL_NEW_ARRAY(arena, uint32_t, count);
    for (uint32_t i = 0; i < count; i++) {
        placed->by_begin[i] = started[i].index;
        placed->rank[started[i].index] = i;
    }
    while (placed->leaf_count < count)
        placed->leaf_count *= 2;
    placed->latest_end = UL_NEW_ARRAY(arena, uint32_t, 2 * (uint64_t)placed->leaf_count);
    placed->found = UL_NEW_ARRAY(arena, uint32_t, count);
    ul_arena_done(&scratch);
}

void ul_pack_placed_add(struct ul_pack_placed *placed, uint32_t buffer)
{
    UL_ASSERT(buffer < placed->problem->buffer_count);
    const struct ul_pack_problem *problem = placed->problem;
    for (uint32_t p = problem->slab_first[buffer]; p < problem->slab_first[buffer + 1]; p++) {
        uint32_t end = problem->slabs[p].end;
        for (uint32_t node = placed->leaf_count + placed->rank[p];
             node > 0 && placed->latest_end[node] < end; node /= 2)
            placed->latest_end[node] = end;
    }
}

void ul_pack_placed_remove(struct ul_pack_placed *placed, uint32_t buffer)
{
    UL_ASSERT(buffer < placed->problem->buffer_count);
    const struct ul_pack_problem *problem = placed->problem;
    uint32_t *latest = placed->latest_end;
    for (uint32_t p = problem->slab_first[buffer]; p < problem->slab_first[buffer + 1]; p++) {
        uint32_t node = placed->leaf_count + placed->rank[p];
        latest[node] = 0;
        for (node /= 2; node > 0; node /= 2)
            latest[node] =
                latest[2 * node] > latest[2 * node + 1] ? latest[2 * node] : latest[2 * node + 1];
    }
}

void ul_pack_placed_find(struct ul_pack_placed *placed, const struct ul_pack_slab *query)
{
    UL_ASSERT(query->begin < query->end);
    placed->found_count = 0;
    tree_collect(placed, 1, 0, placed->leaf_count, rank_limit(placed, query->end), query->begin);
}
