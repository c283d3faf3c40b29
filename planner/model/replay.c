/* SPDX-License-Identifier: Apache-2.0 */
/* Replays a sequence of nodes by the definition of an abstract graph. */
#include "planner/model/graph.h"
#include "planner/model/problem.h"

/* One replay: by position, the copy that an output made in place takes over, and the last read. */
struct replay {
    const struct ul_solve_graph *graph;
    const uint32_t *sequence;
    uint32_t count;
    uint32_t *last;  /* last position that reads the copy made here */
    uint32_t *taken; /* position + 1 of the copy that may be taken over, or 0 */
};

/* Fills last and taken; false if a step runs before its inputs, again though it may not, or
 * never. */
static bool replay_reads(struct replay *r, struct ul_arena *scratch)
{
    const struct ul_solve_graph *graph = r->graph;
    uint32_t *made = UL_NEW_ARRAY(scratch, uint32_t, graph->node_count); /* position + 1 */
    for (uint32_t p = 0; p < r->count; p++) {
        uint32_t v = r->sequence[p];
        r->last[p] = p;
        for (uint32_t i = graph->input_first[v]; i < graph->input_first[v + 1]; i++) {
            uint32_t copy = made[graph->inputs[i]];
            if (copy == 0)
                return false;
            r->last[copy - 1] = p;
        }
        if (graph->run_once != NULL && graph->run_once[v] && made[v] > 0)
            return false;
        if (graph->in_place != NULL && graph->in_place[v] != UL_PLAN_NONE)
            r->taken[p] = made[graph->in_place[v]];
        made[v] = p + 1;
    }
    for (uint32_t v = 0; v < graph->node_count; v++) {
        if (made[v] == 0)
            return false;
    }
    return true;
}

/* Bytes that the output of position `p` shares with an input that dies there. */
static uint64_t replay_shared(const struct replay *r, uint32_t p)
{
    if (r->taken[p] == 0 || r->last[r->taken[p] - 1] != p)
        return 0;
    uint64_t from = r->graph->size_bytes[r->sequence[r->taken[p] - 1]];
    uint64_t to = r->graph->size_bytes[r->sequence[p]];
    return from < to ? from : to;
}

static uint64_t replay_peak(const struct replay *r, struct ul_arena *scratch)
{
    const struct ul_solve_graph *graph = r->graph;
    uint64_t *ends = UL_NEW_ARRAY(scratch, uint64_t, r->count);
    uint64_t live = graph->base_bytes;
    uint64_t peak = live;
    for (uint32_t p = 0; p < r->count; p++)
        ends[r->last[p]] += graph->size_bytes[r->sequence[p]];
    for (uint32_t p = 0; p < r->count; p++) {
        uint32_t v = r->sequence[p];
        live += graph->size_bytes[v];
        uint64_t here = live - replay_shared(r, p);
        here += graph->working_bytes != NULL ? graph->working_bytes[v] : 0;
        peak = here > peak ? here : peak;
        live -= ends[p];
    }
    return peak;
}

bool ul_solve_replay(const struct ul_solve_graph *graph, const uint32_t *sequence, uint32_t count,
                     uint64_t *peak_bytes, uint64_t *cost)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct replay r = {.graph = graph, .sequence = sequence, .count = count};
    r.last = UL_NEW_ARRAY(&scratch, uint32_t, count);
    r.taken = UL_NEW_ARRAY(&scratch, uint32_t, count);
    bool valid = replay_reads(&r, &scratch);
    *cost = 0;
    for (uint32_t p = 0; p < count; p++)
        *cost += graph->cost[sequence[p]];
    *peak_bytes = valid ? replay_peak(&r, &scratch) : 0;
    ul_arena_done(&scratch);
    UL_ASSERT(!valid || *peak_bytes >= graph->base_bytes);
    return valid;
}

uint64_t ul_solve_base_cost(const struct ul_solve_graph *graph)
{
    uint64_t sum = 0;
    UL_ASSERT(graph->node_count == 0 || graph->cost != NULL);
    for (uint32_t v = 0; v < graph->node_count; v++)
        sum += graph->cost[v];
    return sum;
}
