/* SPDX-License-Identifier: Apache-2.0 */
/* Sorts by numbers, and keeps heaps of what is sorted so. */
#include "base/base.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    const struct ul_ranked *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

void ul_ranked_sort(struct ul_ranked *items, uint64_t count)
{
    qsort(items, count, sizeof *items, compare);
}

void ul_heap_push(struct ul_arena *arena, struct ul_heap *heap, uint64_t rank, uint32_t index)
{
    const struct ul_ranked item = {.rank = rank, .index = index};
    UL_GROW(arena, heap->items, heap->count, heap->capacity);
    uint32_t at = heap->count++;
    for (; at > 0 && compare(&item, &heap->items[(at - 1) / 2]) < 0; at = (at - 1) / 2)
        heap->items[at] = heap->items[(at - 1) / 2];
    heap->items[at] = item;
}

struct ul_ranked ul_heap_pop(struct ul_heap *heap)
{
    UL_ASSERT(heap->count > 0);
    const struct ul_ranked top = heap->items[0], last = heap->items[--heap->count];
    uint32_t at = 0;
    for (uint32_t child = 1; child < heap->count; child = 2 * at + 1) {
        if (child + 1 < heap->count && compare(&heap->items[child + 1], &heap->items[child]) < 0)
            child++;
        if (compare(&heap->items[child], &last) >= 0)
            break;
        heap->items[at] = heap->items[child];
        at = child;
    }
    heap->items[at] = last;
    return top;
}
