/* Recomputation by what is to be kept: no search, for comparison.
 *
 * Problem: of a forward pass some values are to be kept, as a checkpoint on every block keeps them,
 * and all others made again when the backward pass comes to them, whatever that takes.
 * Method: the order of first runs stays. Behind the last forward value that the backward pass
 * reads, a node that reads a value that is not kept has it made again first, with all that this
 * takes, once; from there it lives until its last reader. What lies behind the last kept value
 * stays where it is: it is read at once.
 *
 *      a  b [c] d  e [f] g | g'  f'  d  e  e'  d'  a  b  b'  a'       kept: c, f
 *
 * What may not run again is kept too. */
#include "planner/remat/remat_internal.h"

#include <string.h>

struct keeper {
    const struct ul_solve_graph *graph;
    bool *made; /* per node: again, or there is no need to */
    uint32_t *stack, *next;
    uint32_t *sequence;
    uint32_t count;
};

/* The place behind the last node that is kept, but at most behind the last one that something of
 * the backward pass reads. */
static uint32_t find_border(const struct ul_remat *remat, const uint32_t *order)
{
    const struct ul_solve_graph *g = remat->graph;
    uint32_t last_kept = 0, last_read = 0;
    for (uint32_t p = 0; p < g->node_count; p++) {
        uint32_t v = order[p];
        bool is_read = false;
        for (uint32_t i = g->user_first[v]; i < g->user_first[v + 1]; i++)
            is_read = is_read || !remat->is_forward[g->users[i]];
        last_read = remat->is_forward[v] && is_read ? p + 1 : last_read;
        last_kept = remat->is_kept[v] ? p + 1 : last_kept;
    }
    return last_kept < last_read ? last_kept : last_read;
}

/* Makes again what `node` reads, inputs first. */
static void make_inputs(struct keeper *k, uint32_t node)
{
    const struct ul_solve_graph *g = k->graph;
    uint32_t depth = 0;
    k->stack[depth] = node;
    k->next[depth++] = g->input_first[node];
    while (depth > 0) {
        uint32_t top = k->stack[depth - 1];
        if (k->next[depth - 1] == g->input_first[top + 1]) {
            if (--depth > 0)
                k->sequence[k->count++] = top;
            continue;
        }
        uint32_t input = g->inputs[k->next[depth - 1]++];
        if (k->made[input])
            continue;
        k->made[input] = true;
        k->stack[depth] = input;
        k->next[depth++] = g->input_first[input];
    }
}

bool ul_remat_run_keep(struct ul_remat *remat, const struct ul_remat_orders *orders,
                       enum ul_method_turn turn)
{
    const struct ul_solve_graph *g = remat->graph;
    const uint32_t *order = orders->orders[0];
    UL_ASSERT(turn == UL_TURN_NONE);
    if (remat->is_kept == NULL) {
        remat->why_not = "nothing is said of what it is to keep";
        return false;
    }
    UL_ASSERT(remat->capacity >= 2 * (uint64_t)g->node_count);
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct keeper k = {.graph = g, .sequence = remat->sequence};
    k.made = UL_NEW_ARRAY(&scratch, bool, g->node_count);
    k.stack = UL_NEW_ARRAY(&scratch, uint32_t, (uint64_t)g->node_count + 1);
    k.next = UL_NEW_ARRAY(&scratch, uint32_t, (uint64_t)g->node_count + 1);
    uint32_t border = find_border(remat, order);
    for (uint32_t p = 0; p < g->node_count; p++) {
        uint32_t v = order[p];
        k.made[v] = p >= border || remat->is_kept[v] || !remat->is_forward[v] ||
                    g->size_bytes[v] == 0 || (g->run_once != NULL && g->run_once[v]);
    }
    for (uint32_t p = 0; p < g->node_count; p++) {
        if (p >= border && !remat->is_forward[order[p]])
            make_inputs(&k, order[p]);
        k.sequence[k.count++] = order[p];
    }
    uint64_t peak_bytes;
    bool valid = ul_solve_replay(g, k.sequence, k.count, &peak_bytes, &remat->cost);
    UL_ASSERT(valid);
    remat->count = k.count;
    remat->found_how = "what it was given";
    ul_arena_done(&scratch);
    return true;
}
