/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated annealing of the weights by which a walk scores values to drop: finds sets of
 * checkpoints that no fixed formula finds.
 *
 * Method: a few values' weights change; the new walk is taken if its cost exceeds the present one
 * by no more than a random part of the overhead, which shrinks to nothing. The limit is known
 * beforehand, so expensive walks are given up early. Left undone: the order of the first runs does
 * not change. */
#include "planner/remat/remat_internal.h"

#include <math.h>
#include <string.h>

static uint64_t limit_of(uint64_t current, uint64_t base, double progress, uint64_t *random)
{
    if (current == UINT64_MAX)
        return UINT64_MAX;
    double slack = -log(ul_seed_unit(random)) * 0.04 * (1.0 - progress) * (1.0 - progress);
    return current + (uint64_t)(slack * (double)(current - base));
}

void ul_remat_anneal(struct ul_remat *remat, struct ul_walk *w, uint64_t start_cost, uint64_t work,
                     uint64_t *random)
{
    UL_ASSERT(w->graph == remat->graph);
    enum { MAX_MOVES = 4 };
    uint32_t n = w->graph->node_count;
    uint64_t from = remat->effort.work;
    uint64_t current = start_cost;
    uint64_t base = 0;
    for (uint32_t v = 0; v < n; v++)
        base += w->graph->cost[v];
    memset(w->weight, 0, n * sizeof *w->weight);
    while (remat->effort.work - from < work && !ul_remat_exhausted(remat)) {
        double progress = (double)(remat->effort.work - from) / (double)work;
        uint32_t moved[MAX_MOVES];
        double old[MAX_MOVES];
        uint32_t moves = 1 + (uint32_t)(ul_seed_next(random) % MAX_MOVES);
        for (uint32_t i = 0; i < moves; i++) {
            moved[i] = (uint32_t)(ul_seed_next(random) % n);
            old[i] = w->weight[moved[i]];
            double step = log(ul_seed_unit(random) / ul_seed_unit(random));
            w->weight[moved[i]] += 3.0 * step * (1.0 - 0.7 * progress);
        }
        w->cost_limit = limit_of(current, base, progress, random);
        uint64_t before = w->work;
        bool taken = ul_walk_run(w);
        remat->effort.work += w->work - before;
        if (taken) {
            current = w->cost;
            if (w->cost < remat->cost)
                ul_remat_offer(remat, w->sequence, w->count, "annealed walk");
            continue;
        }
        for (uint32_t i = moves; i-- > 0;)
            w->weight[moved[i]] = old[i];
    }
}
