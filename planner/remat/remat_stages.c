/* SPDX-License-Identifier: Apache-2.0 */
/* A graph by the positions of an order: stage t runs its t-th node for the first time. Shared by
 * the methods that keep an order of first runs. */
#include "planner/remat/remat_stages.h"

static void readers_make(struct ul_arena *arena, struct ul_stages *s)
{
    uint32_t edges = s->input_first[s->count];
    s->reader_first = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)s->count + 2);
    s->readers = UL_NEW_ARRAY(arena, uint32_t, edges);
    for (uint32_t e = 0; e < edges; e++)
        s->reader_first[s->inputs[e] + 2]++;
    for (uint32_t i = 0; i < s->count; i++)
        s->reader_first[i + 2] += s->reader_first[i + 1];
    for (uint32_t i = 0; i < s->count; i++) {
        for (uint32_t e = s->input_first[i]; e < s->input_first[i + 1]; e++)
            s->readers[s->reader_first[s->inputs[e] + 1]++] = i;
    }
}

void ul_stages_init(struct ul_arena *arena, const struct ul_solve_graph *graph,
                    const uint32_t *order, struct ul_stages *stages)
{
    UL_ASSERT(graph->node_count > 0);
    uint32_t n = graph->node_count;
    *stages = (struct ul_stages){.count = n, .gap = n};
    stages->size_bytes = UL_NEW_ARRAY(arena, uint64_t, n);
    stages->working_bytes = UL_NEW_ARRAY(arena, uint64_t, n);
    stages->cost = UL_NEW_ARRAY(arena, uint64_t, n);
    stages->place = UL_NEW_ARRAY(arena, uint32_t, n);
    stages->touch = UL_NEW_ARRAY(arena, uint32_t, n);
    stages->input_first = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)n + 1);
    stages->inputs = UL_NEW_ARRAY(arena, uint32_t, graph->input_first[n]);
    for (uint32_t i = 0; i < n; i++) {
        stages->place[order[i]] = stages->touch[i] = i;
        stages->size_bytes[i] = graph->size_bytes[order[i]];
        stages->cost[i] = graph->cost[order[i]];
        if (graph->working_bytes != NULL)
            stages->working_bytes[i] = graph->working_bytes[order[i]];
    }
    uint32_t count = 0;
    for (uint32_t t = 0; t < n; t++) {
        uint32_t v = order[t];
        for (uint32_t e = graph->input_first[v]; e < graph->input_first[v + 1]; e++) {
            uint32_t i = stages->inputs[count++] = stages->place[graph->inputs[e]];
            if (stages->touch[i] + 1 >= t)
                stages->touch[i] = t;
            else if (stages->gap == n)
                stages->gap = t;
        }
        stages->input_first[t + 1] = count;
    }
    readers_make(arena, stages);
}
