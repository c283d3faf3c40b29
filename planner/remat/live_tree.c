/* SPDX-License-Identifier: Apache-2.0 */
/* Live bytes over the positions of a sequence, in a segment tree: adding to a range and finding its
 * maximum take logarithmic time, however long the sequence is. */
#include "planner/remat/remat_internal.h"

void ul_live_tree_init(struct ul_live_tree *p, struct ul_arena *arena, uint32_t capacity)
{
    p->leaf_count = 1;
    while (p->leaf_count < capacity)
        p->leaf_count *= 2;
    p->max = UL_NEW_ARRAY(arena, int64_t, (uint64_t)p->leaf_count * 2);
    p->added = UL_NEW_ARRAY(arena, int64_t, (uint64_t)p->leaf_count * 2);
}

void ul_live_tree_fill(struct ul_live_tree *p, const int64_t *values, uint32_t count)
{
    UL_ASSERT(count <= p->leaf_count);
    for (uint32_t i = 0; i < p->leaf_count; i++) {
        p->max[p->leaf_count + i] = i < count ? values[i] : 0;
        p->added[p->leaf_count + i] = 0;
    }
    for (uint32_t i = p->leaf_count; i-- > 1;) {
        p->max[i] = ul_max(p->max[2 * i], p->max[2 * i + 1]);
        p->added[i] = 0;
    }
}

/* Renews the maxima above leaf `i`. */
static void path_renew(struct ul_live_tree *p, uint32_t i)
{
    for (i /= 2; i > 0; i /= 2)
        p->max[i] = ul_max(p->max[2 * i], p->max[2 * i + 1]) + p->added[i];
}

void ul_live_tree_add(struct ul_live_tree *p, uint32_t begin, uint32_t end, int64_t bytes)
{
    UL_ASSERT(end <= p->leaf_count);
    if (begin >= end)
        return;
    uint32_t left = begin + p->leaf_count, right = end + p->leaf_count;
    for (uint32_t l = left, r = right; l < r; l /= 2, r /= 2) {
        if (l % 2 == 1) {
            p->max[l] += bytes;
            p->added[l++] += bytes;
        }
        if (r % 2 == 1) {
            p->max[--r] += bytes;
            p->added[r] += bytes;
        }
    }
    path_renew(p, left);
    path_renew(p, right - 1);
}

int64_t ul_live_tree_max(const struct ul_live_tree *p, uint32_t begin, uint32_t end)
{
    UL_ASSERT(end <= p->leaf_count);
    if (begin >= end)
        return 0;
    int64_t left_max = INT64_MIN, right_max = INT64_MIN;
    uint32_t l = begin + p->leaf_count, r = end - 1 + p->leaf_count;
    /* Both ends climb together; an addition above a part counts for it on the way up. */
    left_max = p->max[l];
    right_max = p->max[r];
    while (l / 2 != r / 2) {
        if (l % 2 == 0)
            left_max = ul_max(left_max, p->max[l + 1]);
        if (r % 2 == 1)
            right_max = ul_max(right_max, p->max[r - 1]);
        l /= 2;
        r /= 2;
        left_max += p->added[l];
        right_max += p->added[r];
    }
    int64_t max = ul_max(left_max, right_max);
    for (l /= 2; l > 0; l /= 2)
        max += p->added[l];
    return max;
}
