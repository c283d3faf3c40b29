/* SPDX-License-Identifier: Apache-2.0 */
/* The exact search's form of a graph and a budget: everything as bit sets, made once. */
#include "planner/model/problem.h"
#include "planner/remat/remat_exact.h"

#include <stdlib.h>

enum { MAX_NODES = 1024 };

struct rank {
    double cost_per_byte;
    uint32_t node;
};

static int rank_compare(const void *a, const void *b)
{
    const struct rank *x = a;
    const struct rank *y = b;
    if (x->cost_per_byte < y->cost_per_byte || x->cost_per_byte > y->cost_per_byte)
        return x->cost_per_byte < y->cost_per_byte ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* Numbers the values; `bit_of` is the inverse of problem->node. */
static void bits_number(struct exact_problem *p, struct ul_arena *arena,
                        const struct ul_solve_graph *g, uint32_t *bit_of)
{
    struct rank *ranks = UL_NEW_ARRAY(arena, struct rank, p->count);
    for (uint32_t v = 0; v < p->count; v++) {
        bool once = g->run_once != NULL && g->run_once[v];
        double cost = once ? 1e30 : (double)g->cost[v];
        double size = (double)g->size_bytes[v];
        ranks[v] = (struct rank){.cost_per_byte = size > 0 ? cost / size : 1e300, .node = v};
    }
    qsort(ranks, p->count, sizeof *ranks, rank_compare);
    for (uint32_t bit = 0; bit < p->count; bit++) {
        uint32_t v = ranks[bit].node;
        bool once = g->run_once != NULL && g->run_once[v];
        bit_of[v] = bit;
        p->node[bit] = v;
        p->size[bit] = g->size_bytes[v];
        p->repeat[bit] = once ? EXACT_NEVER : g->cost[v];
        p->step[bit] = g->size_bytes[v] + (g->working_bytes != NULL ? g->working_bytes[v] : 0);
        if (once)
            continue;
        p->cost_unit = ul_size_gcd(p->cost_unit, g->cost[v]);
        p->cost_sum += g->cost[v];
    }
    if (p->cost_unit == 0)
        p->cost_unit = 1;
}

/* Finds what each run may take over. */
static void takes_find(struct exact_problem *p, const struct ul_solve_graph *g,
                       const uint32_t *bit_of)
{
    for (uint32_t bit = 0; bit < p->count && g->in_place != NULL; bit++) {
        uint32_t input = g->in_place[p->node[bit]];
        if (input == UL_PLAN_NONE)
            continue;
        p->take[bit] = bit_of[input];
        p->taken[bit] = g->size_bytes[input] < p->size[bit] ? g->size_bytes[input] : p->size[bit];
    }
}

static uint64_t *row(uint64_t *sets, const struct exact_problem *p, uint32_t bit)
{
    return sets + (size_t)bit * p->words;
}

static void set_join(uint64_t *to, const uint64_t *from, uint32_t words)
{
    for (uint32_t i = 0; i < words; i++)
        to[i] |= from[i];
}

static void relations_make(struct exact_problem *p, const struct ul_solve_graph *g,
                           const uint32_t *bit_of)
{
    for (uint32_t at = 0; at < p->count; at++) {
        uint32_t v = g->order[at];
        uint32_t bit = bit_of[v];
        p->ranked[at] = bit;
        for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++) {
            uint32_t input = bit_of[g->inputs[i]];
            ul_bits_add(row(p->inputs, p, bit), input);
            ul_bits_add(row(p->users, p, input), bit);
            ul_bits_add(row(p->before, p, bit), input);
            set_join(row(p->before, p, bit), row(p->before, p, input), p->words);
        }
    }
    for (uint32_t bit = 0; bit < p->count; bit++) {
        for (uint32_t other = 0; other < p->count; other++) {
            if (ul_bits_have(row(p->before, p, bit), other))
                ul_bits_add(row(p->after, p, other), bit);
        }
    }
}

/* What a run leaves to others, and what others may want of it. */
static void rooms_make(struct exact_problem *p)
{
    for (uint32_t at = 0; at < p->count; at++) {
        uint32_t bit = p->ranked[at];
        uint64_t need = p->step[bit] - p->taken[bit];
        uint64_t wanted = 0;
        for (uint32_t other = 0; other < p->count; other++) {
            if (ul_bits_have(row(p->inputs, p, bit), other)) {
                need += p->size[other];
                continue;
            }
            if (other == bit || ul_bits_have(row(p->after, p, bit), other) ||
                !set_meets(row(p->users, p, other), row(p->after, p, bit), p->words))
                continue;
            ul_bits_add(row(p->beyond, p, bit), other);
            wanted += p->size[other];
        }
        if (need > p->capacity) {
            p->impossible = true;
            return;
        }
        p->room[bit] = p->capacity - need;
        if (wanted > p->room[bit])
            p->tight[p->tight_count++] = bit;
    }
}

bool exact_problem_make(struct ul_arena *arena, const struct ul_solve_graph *graph,
                        uint64_t budget_bytes, struct exact_problem *problem)
{
    uint32_t n = graph->node_count;
    if (n == 0 || n > MAX_NODES)
        return false;
    *problem = (struct exact_problem){.count = n, .words = (n + 63) / 64};
    problem->impossible = budget_bytes < graph->base_bytes;
    if (problem->impossible)
        return true;
    problem->capacity = budget_bytes - graph->base_bytes;
    problem->node = UL_NEW_ARRAY(arena, uint32_t, n);
    problem->ranked = UL_NEW_ARRAY(arena, uint32_t, n);
    problem->tight = UL_NEW_ARRAY(arena, uint32_t, n);
    problem->size = UL_NEW_ARRAY(arena, uint64_t, n);
    problem->repeat = UL_NEW_ARRAY(arena, uint64_t, n);
    problem->step = UL_NEW_ARRAY(arena, uint64_t, n);
    problem->take = UL_NEW_ARRAY(arena, uint32_t, n);
    problem->taken = UL_NEW_ARRAY(arena, uint64_t, n);
    problem->room = UL_NEW_ARRAY(arena, uint64_t, n);
    uint64_t **const sets[] = {&problem->inputs, &problem->users, &problem->before, &problem->after,
                               &problem->beyond};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        *sets[i] = UL_NEW_ARRAY(arena, uint64_t, (uint64_t)n * problem->words);
    uint32_t *bit_of = UL_NEW_ARRAY(arena, uint32_t, n);
    bits_number(problem, arena, graph, bit_of);
    takes_find(problem, graph, bit_of);
    relations_make(problem, graph, bit_of);
    rooms_make(problem);
    UL_ASSERT(problem->count > 0);
    return true;
}
