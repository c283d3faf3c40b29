/* SPDX-License-Identifier: Apache-2.0 */
/* Windows over padded planes: contract_window.c finds them and a target prints them. */
#ifndef UL_CONTRACT_WINDOW_H
#define UL_CONTRACT_WINDOW_H

#include "codegen/kernel/contract_internal.h"

#define UL_WINDOW_MAX_STEP 4
#define UL_WINDOW_PAD_BYTES 256 /* sums are formed four vectors at a time */

struct ul_window_axis {
    int64_t count;                    /* outputs */
    int64_t step, unit;               /* see above */
    uint32_t bound;                   /* of the operand, or its bound_count: none */
    int64_t min;                      /* distance of the nearest tap */
    int64_t far;                      /* distance of the farthest beyond it */
    int64_t reach;                    /* the same in outputs */
    bool is_used[UL_WINDOW_MAX_STEP]; /* by remainder of the distance */
    int64_t distances[UL_CONTRACT_TAPS];
};

struct ul_window {
    struct ul_window_axis axes[2]; /* rows, columns */
    int64_t pitch, plane, strip;
};

/* False where the contraction has no such form. */
bool ul_window_read(const struct ul_contract_plan *plan, struct ul_window *window);
/* Planes into which a strip is sorted, each of window->plane elements. */
int64_t ul_window_planes(const struct ul_window *window);

#endif
