/* SPDX-License-Identifier: Apache-2.0 */
/* What every method of recomputation does with its result, and when it stops. */
#include "planner/remat/remat_internal.h"

#include <string.h>

bool ul_remat_exhausted(struct ul_remat *remat)
{
    return (remat->first_ends && remat->cost != UINT64_MAX) || ul_effort_spent(&remat->effort);
}

void ul_remat_offer(struct ul_remat *remat, uint32_t *sequence, uint32_t count, const char *method)
{
    uint64_t peak, cost;
    count = ul_remat_prune(remat->graph, remat->budget_bytes, sequence, count);
    bool valid = ul_solve_replay(remat->graph, sequence, count, &peak, &cost);
    UL_ASSERT(valid && peak <= remat->budget_bytes);
    remat->effort.work += 64 * (uint64_t)count;
    if (peak < remat->smallest_peak_bytes)
        remat->smallest_peak_bytes = peak;
    if (cost >= remat->cost)
        return;
    remat->cost = cost;
    remat->count = count;
    remat->found_how = method;
    remat->proven_within = NULL; /* that was for a more expensive one */
    memcpy(remat->sequence, sequence, count * sizeof *sequence);
}
