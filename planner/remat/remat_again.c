/* SPDX-License-Identifier: Apache-2.0 */
/* Recomputes values that are not kept when they are read.
 *
 * Problem: when the backward pass begins, some values of the forward pass are kept, the others are
 * not. What runs again, and when? Method: the order of first runs stays. After the border, before a
 * node of the backward pass that reads a missing value, that value is recomputed once, with
 * everything that this needs; from there it lives until its last reader.
 *
 *      a  b [c] d  e [f] g | g'  f'  d  e  e'  d'  a  b  b'  a'       kept: c, f */
#include "planner/remat/remat_internal.h"

struct maker {
    const struct ul_solve_graph *graph;
    bool *is_there;
    uint32_t *stack, *next;
    uint32_t *sequence;
    uint32_t count;
};

/* Recomputes what `node` reads, inputs first. */
static void make_inputs(struct maker *m, uint32_t node)
{
    const struct ul_solve_graph *g = m->graph;
    uint32_t depth = 0;
    m->stack[depth] = node;
    m->next[depth++] = g->input_first[node];
    while (depth > 0) {
        uint32_t top = m->stack[depth - 1];
        if (m->next[depth - 1] == g->input_first[top + 1]) {
            if (--depth > 0)
                m->sequence[m->count++] = top;
            continue;
        }
        uint32_t input = g->inputs[m->next[depth - 1]++];
        if (m->is_there[input])
            continue;
        m->is_there[input] = true;
        m->stack[depth] = input;
        m->next[depth++] = g->input_first[input];
    }
}

uint32_t ul_remat_make_again(const struct ul_solve_graph *graph, const uint32_t *order,
                             const bool *is_forward, uint32_t border, bool *is_there,
                             uint32_t *sequence)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct maker m = {.graph = graph, .is_there = is_there, .sequence = sequence};
    m.stack = UL_NEW_ARRAY(&scratch, uint32_t, (uint64_t)graph->node_count + 1);
    m.next = UL_NEW_ARRAY(&scratch, uint32_t, (uint64_t)graph->node_count + 1);
    for (uint32_t p = 0; p < graph->node_count; p++) {
        uint32_t v = order[p];
        bool stays = p >= border || !is_forward[v] || graph->size_bytes[v] == 0 ||
                     (graph->run_once != NULL && graph->run_once[v]);
        is_there[v] = is_there[v] || stays;
    }
    for (uint32_t p = 0; p < graph->node_count; p++) {
        if (p >= border && !is_forward[order[p]])
            make_inputs(&m, order[p]);
        m.sequence[m.count++] = order[p];
    }
    ul_arena_done(&scratch);
    UL_ASSERT(m.count >= graph->node_count && m.count <= 2 * (uint64_t)graph->node_count);
    return m.count;
}
