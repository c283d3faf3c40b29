/* SPDX-License-Identifier: Apache-2.0 */
/* Sorts the edges over which searches for an offset sweep.
 *
 * Problem: every placement sorts the offsets at which slabs that overlap a buffer begin or end, in
 * large instances thousands of them, and does little else. Method: a few are sorted by insertion;
 * more by digits of eleven bits of the distance from the lowest, from the last digit to the first.
 * There are no unpredictable branches. */
#include "planner/pack/pack_internal.h"

enum { FEW = 24, DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

static void insert_all(struct ul_pack_edge *edges, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        struct ul_pack_edge moving = edges[i];
        uint32_t j = i;
        for (; j > 0 && edges[j - 1].offset > moving.offset; j--)
            edges[j] = edges[j - 1];
        edges[j] = moving;
    }
}

/* Moves all to `to`, by one digit. */
static void digit_sort(const struct ul_pack_edge *from, struct ul_pack_edge *to, uint32_t count,
                       int64_t lowest, uint32_t shift)
{
    uint32_t places[DIGITS] = {0};
    for (uint32_t i = 0; i < count; i++)
        places[((uint64_t)(from[i].offset - lowest) >> shift) % DIGITS]++;
    uint32_t at = 0;
    for (uint32_t d = 0; d < DIGITS; d++) {
        uint32_t here = places[d];
        places[d] = at;
        at += here;
    }
    for (uint32_t i = 0; i < count; i++)
        to[places[((uint64_t)(from[i].offset - lowest) >> shift) % DIGITS]++] = from[i];
}

void ul_pack_edges_sort(struct ul_pack_edge *edges, struct ul_pack_edge *spare, uint32_t count)
{
    if (count <= FEW) {
        insert_all(edges, count);
        return;
    }
    int64_t lowest = edges[0].offset, highest = lowest;
    for (uint32_t i = 1; i < count; i++) {
        lowest = edges[i].offset < lowest ? edges[i].offset : lowest;
        highest = edges[i].offset > highest ? edges[i].offset : highest;
    }
    struct ul_pack_edge *from = edges, *to = spare;
    uint64_t range = (uint64_t)(highest - lowest);
    for (uint32_t shift = 0; shift < 64 && range >> shift != 0; shift += DIGIT_BITS) {
        digit_sort(from, to, count, lowest, shift);
        struct ul_pack_edge *swap = from;
        from = to;
        to = swap;
    }
    if (from != edges)
        memcpy(edges, from, sizeof *edges * count);
}
