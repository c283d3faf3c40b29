/* SPDX-License-Identifier: Apache-2.0 */
/* Removes needless repeats from a sequence.
 *
 * Problem: a walk drops values before it knows how much room there will be, and repeats values that
 * could have been kept. Method: a repeat of v can be removed if the copy before it can be kept from
 * its last read until now:
 *
 *     v made    last read          v again          last read
 *     [---------]                  [----------------]
 *     [---------xxxxxxxxxxxxxxxxxxx-----------------]
 *
 * that is, if there is room for its bytes all through x. The most expensive repeats are tried
 * first; copies that nothing reads then are removed too; until nothing changes. Left undone: the
 * room that the inputs of a removed repeat leave counts only in the next round. */
#include "planner/remat/remat_internal.h"

#include <stdlib.h>

struct repeat {
    uint64_t cost;
    uint32_t at, earlier; /* positions of the run and of the one before */
};

struct pruner {
    const struct ul_solve_graph *graph;
    int64_t budget_bytes;
    uint32_t *sequence;
    uint32_t count;
    uint32_t *made;   /* by node: position + 1 of the newest copy */
    uint32_t *last;   /* by position: last read of the copy made there */
    uint32_t *onward; /* by position: from where its copy is kept on, if the run was removed */
    uint8_t *gone;
    int64_t *live;
    struct repeat *repeats;
    uint32_t repeat_count;
    struct ul_live_tree live_tree;
};

static void reads_find(struct pruner *p)
{
    const struct ul_solve_graph *g = p->graph;
    for (uint32_t v = 0; v < g->node_count; v++)
        p->made[v] = 0;
    p->repeat_count = 0;
    for (uint32_t at = 0; at < p->count; at++) {
        uint32_t v = p->sequence[at];
        p->last[at] = at;
        p->gone[at] = 0;
        for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++)
            p->last[p->made[g->inputs[i]] - 1] = at;
        if (p->made[v] > 0)
            p->repeats[p->repeat_count++] = (struct repeat){g->cost[v], at, p->made[v] - 1};
        p->made[v] = at + 1;
    }
}

static void live_tree_make(struct pruner *p)
{
    const struct ul_solve_graph *g = p->graph;
    for (uint32_t at = 0; at <= p->count; at++)
        p->live[at] = 0;
    for (uint32_t at = 0; at < p->count; at++) {
        uint32_t v = p->sequence[at];
        int64_t bytes = (int64_t)g->size_bytes[v];
        p->live[at] += bytes;
        p->live[p->last[at] + 1] -= bytes;
        p->made[v] = 0;
    }
    int64_t sum = (int64_t)g->base_bytes;
    for (uint32_t at = 0; at < p->count; at++) {
        uint32_t v = p->sequence[at];
        sum += p->live[at];
        p->live[at] = sum;
        if (g->working_bytes != NULL)
            p->live[at] += (int64_t)g->working_bytes[v];
        if (g->in_place != NULL && g->in_place[v] != UL_PLAN_NONE) {
            uint32_t u = g->in_place[v];
            uint64_t min =
                g->size_bytes[u] < g->size_bytes[v] ? g->size_bytes[u] : g->size_bytes[v];
            bool dies = p->made[u] > 0 && p->last[p->made[u] - 1] == at;
            p->live[at] -= dies ? (int64_t)min : 0;
        }
        p->made[v] = at + 1;
    }
    ul_live_tree_fill(&p->live_tree, p->live, p->count);
}

static int repeat_compare(const void *a, const void *b)
{
    const struct repeat *x = a;
    const struct repeat *y = b;
    if (x->cost != y->cost)
        return x->cost > y->cost ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* The run that made the copy for position `at`, now that some are removed. */
static uint32_t holder(struct pruner *p, uint32_t at)
{
    while (p->gone[at])
        at = p->onward[at];
    return at;
}

/* A copy that was taken over in place at its last read shares no bytes there once it lives on, so
 * the check includes that position. */
static bool repeats_drop(struct pruner *p)
{
    bool changed = false;
    if (p->repeat_count > 0)
        qsort(p->repeats, p->repeat_count, sizeof *p->repeats, repeat_compare);
    for (uint32_t i = 0; i < p->repeat_count; i++) {
        const struct repeat *r = &p->repeats[i];
        uint32_t from = holder(p, r->earlier);
        int64_t bytes = (int64_t)p->graph->size_bytes[p->sequence[r->at]];
        bool in_place = p->graph->in_place != NULL;
        uint32_t begin = p->last[from] + (in_place ? 0 : 1);
        if (p->last[r->at] > r->at &&
            ul_live_tree_max(&p->live_tree, begin, r->at) + bytes > p->budget_bytes)
            continue;
        changed = true;
        p->gone[r->at] = 1;
        p->onward[r->at] = from;
        if (p->last[r->at] == r->at) /* nothing reads it */
            continue;
        ul_live_tree_add(&p->live_tree, begin, r->at, bytes);
        p->last[from] = p->last[r->at];
    }
    return changed;
}

static void sequence_close(struct pruner *p)
{
    uint32_t kept = 0;
    for (uint32_t at = 0; at < p->count; at++) {
        if (!p->gone[at])
            p->sequence[kept++] = p->sequence[at];
    }
    p->count = kept;
}

uint32_t ul_remat_prune(const struct ul_solve_graph *graph, uint64_t budget_bytes,
                        uint32_t *sequence, uint32_t count)
{
    enum { ROUNDS = 8 };
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct pruner p = {.graph = graph,
                       .budget_bytes = (int64_t)budget_bytes,
                       .sequence = sequence,
                       .count = count};
    p.made = UL_NEW_ARRAY(&scratch, uint32_t, graph->node_count);
    p.last = UL_NEW_ARRAY(&scratch, uint32_t, count);
    p.onward = UL_NEW_ARRAY(&scratch, uint32_t, count);
    p.gone = ul_arena_alloc(&scratch, count);
    p.live = UL_NEW_ARRAY(&scratch, int64_t, (uint64_t)count + 1);
    p.repeats = UL_NEW_ARRAY(&scratch, struct repeat, count);
    ul_live_tree_init(&p.live_tree, &scratch, count);
    bool changed = count > graph->node_count;
    for (uint32_t round = 0; round < ROUNDS && changed; round++) {
        reads_find(&p);
        live_tree_make(&p);
        changed = repeats_drop(&p);
        sequence_close(&p);
    }
    ul_arena_done(&scratch);
    UL_ASSERT(p.count <= count);
    return p.count;
}
