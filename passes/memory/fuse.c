/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: which nodes one kernel computes.
 *
 * Problem: a value that only the next node reads need not exist in memory. Method: nodes in order;
 * each is merged with the group of one producer after the other, the latest first, where one kernel
 * can compute both (fuse_rules.c), no step needs a byte more (fuse_bytes.c), and no path leads out
 * of the group and back into it (fuse_cycles.c). The block's order then changes as little as
 * possible (fuse_order.c), which is not what the bytes were judged by where groups wait for each
 * other: should the live sum have grown, the grouping is made anew from neighbours only, or not at
 * all. Left undone: loops of two anchors; results of several shapes; random numbers inlined. */
#include <string.h>

#include "passes/memory/fuse_internal.h"

enum { MAX_READERS = 7 }; /* groups that are merged at once with the one they read */

static bool can_join(const struct ul_fuse *fuse, uint32_t position)
{
    const struct ul_node *node = ul_fuse_node(fuse, position);
    return !fuse->is_view[position] &&
           (ul_op_get(node->op)->flags & (UL_OP_CONTROL | UL_OP_RANDOM)) == 0;
}

/* No node between the first and the last member needs a kernel. */
static bool is_adjacent(const struct ul_fuse *fuse, const struct ul_fuse_trial *trial)
{
    for (uint32_t p = trial->members[0]; p < trial->members[trial->count - 1]; p++) {
        if (!fuse->is_view[p] && ul_fuse_member(trial, p) == UL_FUSE_NEVER)
            return false;
    }
    return true;
}

static bool try_merge(struct ul_fuse *fuse, const uint32_t *groups, uint32_t count)
{
    struct ul_fuse_trial trial;
    uint32_t runs_at;
    if (!ul_fuse_trial_init(fuse, &trial, groups, count) || !ul_fuse_is_legal(fuse, &trial) ||
        (fuse->neighbours_only && !is_adjacent(fuse, &trial)) || ul_fuse_has_cycle(fuse, &trial) ||
        ul_fuse_loses_call(fuse, &trial, groups, count) ||
        !ul_fuse_merge_bytes(fuse, &trial, groups, count, &runs_at))
        return false;
    ul_fuse_join(fuse, &trial, groups, count, runs_at);
    return true;
}

/* Merges the group of `made` with those of all its readers: one by one they would cost bytes, since
 * what is made would still be stored. Tried when the last reader comes up. */
static void merge_readers(struct ul_fuse *fuse, uint32_t made, uint32_t position)
{
    uint32_t groups[MAX_READERS + 1];
    uint32_t count = 0;
    groups[count++] = fuse->group_of[made];
    for (uint32_t u = fuse->user_begin[made]; u < fuse->user_begin[made + 1]; u++) {
        uint32_t user = fuse->users[u];
        bool known = false;
        if (user > position || !can_join(fuse, user))
            return;
        for (uint32_t g = 0; g < count; g++)
            known = known || groups[g] == fuse->group_of[user];
        if (known)
            continue;
        if (count == MAX_READERS + 1)
            return;
        groups[count++] = fuse->group_of[user];
    }
    if (count > 2)
        (void)try_merge(fuse, groups, count);
}

/* Merges the group at `position` with those of all makers of what it reads: one by one they would
 * cost bytes, since what they read would live on beside what the others store. */
static void merge_makers(struct ul_fuse *fuse, uint32_t position)
{
    const struct ul_node *node = ul_fuse_node(fuse, position);
    uint32_t groups[MAX_READERS + 1];
    uint32_t count = 0;
    groups[count++] = fuse->group_of[position];
    for (uint32_t i = 0; i < node->input_count; i++) {
        uint32_t made = ul_fuse_maker(fuse, node->inputs[i]);
        bool known = made == UL_FUSE_NEVER || !can_join(fuse, made);
        for (uint32_t g = 0; !known && g < count; g++)
            known = groups[g] == fuse->group_of[made];
        if (known)
            continue;
        if (count == MAX_READERS + 1)
            return;
        groups[count++] = fuse->group_of[made];
    }
    if (count > 2)
        (void)try_merge(fuse, groups, count);
}

/* What only one node packs is made by that node's kernel, if that has one, and not stored by an
 * earlier one. */
static bool is_packed(const struct ul_fuse *fuse, uint32_t position)
{
    uint32_t first = fuse->user_begin[position], end = fuse->user_begin[position + 1];
    return end == first + 1 &&
           (ul_op_get(ul_fuse_node(fuse, fuse->users[first])->op)->flags & UL_OP_PACKS) != 0;
}

/* What makes larger elements waits for its reader and is made as that reads it, so that the smaller
 * ones are stored. Elementwise operators of one operand that make larger integers do so as well. */
static bool widens(const struct ul_fuse *fuse, uint32_t position)
{
    const struct ul_node *node = ul_fuse_node(fuse, position);
    const struct ul_op_info *row = ul_op_get(node->op);
    if ((row->flags & UL_OP_WIDENS) != 0)
        return true;
    if ((row->flags & UL_OP_ELEMENTWISE) == 0 || node->input_count != 1)
        return false;
    const struct ul_dtype_info *from =
        ul_dtype_get(fuse->graph->values[node->inputs[0]].type.dtype);
    const struct ul_dtype_info *to = ul_dtype_get(fuse->graph->values[node->outputs[0]].type.dtype);
    return from->is_integer && to->is_integer && to->size_bytes > from->size_bytes;
}

static void merge_inputs(struct ul_fuse *fuse, uint32_t position)
{
    const struct ul_node *node = ul_fuse_node(fuse, position);
    uint32_t below = UL_FUSE_NEVER;
    for (uint32_t turn = 0; turn < node->input_count; turn++) {
        /* The latest maker that has not been tried yet. */
        uint32_t latest = UL_FUSE_NEVER;
        for (uint32_t i = 0; i < node->input_count; i++) {
            uint32_t made = ul_fuse_maker(fuse, node->inputs[i]);
            if (made != UL_FUSE_NEVER && made < below && (latest == UL_FUSE_NEVER || made > latest))
                latest = made;
        }
        if (latest == UL_FUSE_NEVER)
            break;
        below = latest;
        uint32_t pair[2] = {fuse->group_of[latest], fuse->group_of[position]};
        if (can_join(fuse, latest) && pair[0] != pair[1] && !try_merge(fuse, pair, 2))
            merge_readers(fuse, latest, position);
    }
    merge_makers(fuse, position);
}

/* True: the largest live sum has not grown. */
static bool fuse_all(struct ul_pass *pass, bool neighbours_only)
{
    struct ul_graph *graph = pass->graph;
    struct ul_arena *scratch = pass->scratch;
    struct ul_fuse fuse = {.pass = pass,
                           .graph = graph,
                           .scratch = scratch,
                           .neighbours_only = neighbours_only,
                           .keeps_account = true};
    fuse.position = UL_NEW_ARRAY(scratch, uint32_t, graph->node_count);
    fuse.block_output = UL_NEW_ARRAY(scratch, bool, graph->value_count);
    ul_steps_init(&fuse.steps, graph, NULL, NULL, scratch);
    fuse.escapes = fuse.steps.escapes;
    fuse.live = ul_steps_live(&fuse.steps);
    uint64_t before_bytes = ul_live_bytes(fuse.live, ul_live_peak(fuse.live));
    for (uint32_t b = 0; b < graph->block_count; b++) {
        if (!ul_graph_has_block(graph, b))
            continue;
        ul_fuse_begin_block(&fuse, b);
        for (uint32_t p = 0; p < fuse.block->node_count; p++) {
            if (can_join(&fuse, p) && !is_packed(&fuse, p) && !widens(&fuse, p))
                merge_inputs(&fuse, p);
        }
        for (uint32_t p = 0; p < fuse.block->node_count; p++) {
            if (can_join(&fuse, p) && widens(&fuse, p))
                merge_inputs(&fuse, p);
        }
        ul_fuse_reorder(&fuse);
    }
    uint64_t after_bytes = fuse.keeps_account ? ul_live_bytes(fuse.live, ul_live_peak(fuse.live))
                                              : ul_steps_peak_bytes(graph, scratch);
    return after_bytes <= before_bytes;
}

/* Restores order and groups; `order` has the nodes of all blocks, one block after the other. */
static void restore(struct ul_graph *graph, const ul_node_id *order)
{
    for (uint32_t b = 0; b < graph->block_count; b++) {
        struct ul_block *block = &graph->blocks[b];
        for (uint32_t n = 0; n < block->node_count; n++) {
            block->nodes[n] = *order++;
            graph->nodes[block->nodes[n]].group = UL_NONE;
        }
    }
}

enum ul_status ul_pass_fuse(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    ul_node_id *order = UL_NEW_ARRAY(pass->scratch, ul_node_id, graph->node_count);
    uint32_t count = 0;
    for (uint32_t b = 0; b < graph->block_count; b++) {
        for (uint32_t n = 0; n < graph->blocks[b].node_count; n++)
            order[count++] = graph->blocks[b].nodes[n];
    }
    if (fuse_all(pass, false))
        return UL_OK;
    restore(graph, order);
    if (!fuse_all(pass, true))
        restore(graph, order);
    return UL_OK;
}
