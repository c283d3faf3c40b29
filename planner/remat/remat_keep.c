/* SPDX-License-Identifier: Apache-2.0 */
/* Recomputation with given values kept: no search, for comparison.
 *
 * Problem: given values of a forward pass are kept, as a checkpoint on every block keeps them, and
 * all others are recomputed when the backward pass needs them, whatever that takes. Method: after
 * the last forward value that the backward pass reads, values that are not kept are recomputed when
 * they are read (remat_again.c). Values after the last kept one stay: they are read at once. Values
 * that may not be recomputed are kept too. */
#include "planner/remat/remat_internal.h"

/* The place after the last node that is kept, but at most after the last one that something of the
 * backward pass reads. */
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
    bool *is_there = ul_arena_copy(&scratch, remat->is_kept, g->node_count * sizeof(bool));
    remat->count = ul_remat_make_again(g, order, remat->is_forward, find_border(remat, order),
                                       is_there, remat->sequence);
    uint64_t peak_bytes;
    bool valid = ul_solve_replay(g, remat->sequence, remat->count, &peak_bytes, &remat->cost);
    UL_ASSERT(valid);
    remat->found_how = "what it was given";
    ul_arena_done(&scratch);
    return true;
}
