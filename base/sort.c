/* SPDX-License-Identifier: Apache-2.0 */
/* Sorts by numbers. */
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
