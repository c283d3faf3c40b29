/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences of a problem graph's nodes as runs of its steps.
 *
 * Problem: a rest (problem_graph.c) that does not stand behind its step is a run of the step by
 * itself, though the step before it made the value already, which only would have to be kept:
 *
 *      step, reader, rest          two runs of the step
 *      step, rest, reader          one
 *
 * Method: each rest moves back behind the run before it, or goes where that run has one, as long as
 * the live sum stays within the budget. */
#include "planner/model/problem_graph.h"

#include <string.h>

/* The node whose steps a node stands for. */
static uint32_t node_run(const struct ul_problem_graph *graph, uint32_t node)
{
    return graph->run_of[node] == UL_PLAN_NONE ? node : graph->run_of[node];
}

struct runs {
    const struct ul_problem_graph *graph;
    uint64_t budget_bytes;
    uint32_t *nodes, *trial;
    uint32_t count;
};

/* Whether a node has no steps and is a part of no run. */
static bool is_idle(const struct ul_problem_graph *graph, uint32_t node)
{
    return graph->run_of[node] == UL_PLAN_NONE &&
           graph->step_first[node] == graph->step_first[node + 1];
}

/* The position behind the last one before `at` that belongs to a run of the step; `at`: none does,
 * or nothing else ran in between. */
static uint32_t place_before(const struct runs *runs, uint32_t at)
{
    uint32_t step = runs->graph->run_of[runs->nodes[at]], p = at;
    UL_ASSERT(at < runs->count && step != UL_PLAN_NONE);
    while (p > 0 && is_idle(runs->graph, runs->nodes[p - 1]))
        p--;
    if (p > 0 && node_run(runs->graph, runs->nodes[p - 1]) == step)
        return at;
    while (p > 0 && node_run(runs->graph, runs->nodes[p - 1]) != step)
        p--;
    return p == 0 ? at : p;
}

/* Whether the run that ends before `place` has such a rest already. */
static bool has_rest(const struct runs *runs, uint32_t place, uint32_t rest)
{
    uint32_t step = runs->graph->run_of[rest];
    for (uint32_t p = place; p-- > 0 && runs->nodes[p] != step;)
        if (runs->nodes[p] == rest)
            return true;
    return false;
}

/* Moves the rest at a position back, or takes it out; false where that does not fit. */
static bool move_back(struct runs *runs, uint32_t at)
{
    uint32_t place = place_before(runs, at), rest = runs->nodes[at];
    uint64_t peak_bytes, cost;
    if (place == at)
        return false;
    UL_ASSERT(place < at); /* its step has run, which it reads */
    bool goes = has_rest(runs, place, rest);
    memcpy(runs->trial, runs->nodes, runs->count * sizeof *runs->nodes);
    if (goes) {
        memmove(&runs->trial[at], &runs->nodes[at + 1],
                (runs->count - at - 1) * sizeof *runs->nodes);
    } else {
        memmove(&runs->trial[place + 1], &runs->nodes[place], (at - place) * sizeof *runs->nodes);
        runs->trial[place] = rest;
    }
    if (!ul_solve_replay(&runs->graph->graph, runs->trial, runs->count - goes, &peak_bytes,
                         &cost) ||
        peak_bytes > runs->budget_bytes)
        return false;
    runs->count -= goes;
    memcpy(runs->nodes, runs->trial, runs->count * sizeof *runs->nodes);
    return true;
}

uint32_t *ul_problem_graph_join_runs(struct ul_arena *arena, const struct ul_problem_graph *graph,
                                     uint64_t budget_bytes, const uint32_t *nodes, uint32_t *count)
{
    struct runs runs = {.graph = graph, .budget_bytes = budget_bytes, .count = *count};
    runs.nodes = ul_arena_copy(arena, nodes, *count * sizeof *nodes);
    runs.trial = UL_NEW_ARRAY(arena, uint32_t, *count);
    for (uint32_t at = 0; at < runs.count;) {
        uint32_t before = runs.count;
        bool moved = graph->run_of[runs.nodes[at]] != UL_PLAN_NONE && move_back(&runs, at);
        at += !moved || runs.count == before;
    }
    UL_ASSERT(runs.count <= *count);
    *count = runs.count;
    return runs.nodes;
}

uint32_t *ul_problem_graph_steps(struct ul_arena *arena, const struct ul_problem_graph *graph,
                                 const uint32_t *nodes, uint32_t count, uint32_t *step_count)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t node = node_run(graph, nodes[i]);
        total += graph->step_first[node + 1] - graph->step_first[node];
    }
    UL_ASSERT(total <= UINT32_MAX);
    uint32_t *steps = UL_NEW_ARRAY(arena, uint32_t, total);
    uint32_t last = UL_PLAN_NONE; /* whose steps ran last */
    *step_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t node = node_run(graph, nodes[i]);
        uint32_t first = graph->step_first[node], end = graph->step_first[node + 1];
        if (first == end || (node != nodes[i] && node == last))
            continue;
        for (uint32_t k = first; k < end; k++)
            steps[(*step_count)++] = graph->steps[k];
        last = node;
    }
    return steps;
}
