/* SPDX-License-Identifier: Apache-2.0 */
/* Groups and trials of a block: who makes and reads what, and what a union of groups contains. */
#include <string.h>

#include "ir/view.h"
#include "passes/memory/fuse_internal.h"

const struct ul_node *ul_fuse_node(const struct ul_fuse *fuse, uint32_t position)
{
    UL_ASSERT(position < fuse->block->node_count);
    return &fuse->graph->nodes[fuse->block->nodes[position]];
}

uint32_t ul_fuse_maker(const struct ul_fuse *fuse, ul_value_id value)
{
    if (value == UL_NONE || fuse->graph->values[value].kind != UL_VALUE_NODE)
        return UL_FUSE_NEVER;
    ul_node_id producer = fuse->graph->values[value].producer;
    bool here = &fuse->graph->blocks[fuse->graph->nodes[producer].parent] == fuse->block;
    return here ? fuse->position[producer] : UL_FUSE_NEVER;
}

/* ---- Trials ---- */

uint32_t ul_fuse_member(const struct ul_fuse_trial *trial, uint32_t position)
{
    for (uint32_t i = 0; i < trial->count; i++) {
        if (trial->members[i] == position)
            return i;
    }
    return UL_FUSE_NEVER;
}

/* The members of both, ascending. */
static bool trial_add(struct ul_fuse_trial *trial, const struct ul_fuse_group *group)
{
    uint32_t merged[UL_FUSE_NODES];
    uint32_t i = 0;
    uint32_t k = 0;
    if (trial->count + group->count > UL_FUSE_NODES)
        return false;
    while (i < trial->count || k < group->count) {
        bool old = k == group->count || (i < trial->count && trial->members[i] < group->members[k]);
        uint32_t at = i + k;
        merged[at] = old ? trial->members[i++] : group->members[k++];
    }
    trial->count += group->count;
    memcpy(trial->members, merged, trial->count * sizeof *merged);
    return true;
}

bool ul_fuse_trial_init(const struct ul_fuse *fuse, struct ul_fuse_trial *trial,
                        const uint32_t *groups, uint32_t count)
{
    trial->count = 0;
    trial->anchor = UL_FUSE_NEVER;
    for (uint32_t g = 0; g < count; g++) {
        if (!trial_add(trial, &fuse->groups[groups[g]]))
            return false;
    }
    for (uint32_t i = 0; i < trial->count; i++) {
        bool is_anchor = !ul_op_is_map(ul_fuse_node(fuse, trial->members[i])->op);
        if (is_anchor && trial->anchor != UL_FUSE_NEVER)
            return false;
        if (is_anchor)
            trial->anchor = i;
        trial->hang[i] = UL_NONE;
        trial->front[i] = false;
    }
    return true;
}

static bool reads(const struct ul_node *node, ul_value_id value)
{
    /* A node with blocks may read it inside: it counts as a reader of all that it needs. */
    bool found = node->block_count > 0;
    for (uint32_t i = 0; !found && i < node->input_count; i++)
        found = node->inputs[i] == value;
    return found;
}

/* Something outside of the trial needs what is made at `made_at`. */
static bool escapes(const struct ul_fuse *fuse, const struct ul_fuse_trial *trial, uint32_t made_at,
                    ul_value_id value)
{
    if (fuse->block_output[value])
        return true;
    for (uint32_t u = fuse->user_begin[made_at]; u < fuse->user_begin[made_at + 1]; u++) {
        uint32_t user = fuse->users[u];
        if (ul_fuse_member(trial, user) == UL_FUSE_NEVER && reads(ul_fuse_node(fuse, user), value))
            return true;
    }
    return false;
}

void ul_fuse_mark_escapes(struct ul_fuse *fuse, const struct ul_fuse_trial *trial)
{
    for (uint32_t i = 0; i < trial->count; i++) {
        const struct ul_node *node = ul_fuse_node(fuse, trial->members[i]);
        for (uint32_t k = 0; k < node->output_count; k++) {
            if (node->outputs[k] != UL_NONE)
                fuse->escapes[node->outputs[k]] =
                    escapes(fuse, trial, trial->members[i], node->outputs[k]);
        }
    }
}

void ul_fuse_join(struct ul_fuse *fuse, const struct ul_fuse_trial *trial, const uint32_t *groups,
                  uint32_t count, uint32_t runs_at)
{
    UL_ASSERT(count > 1 && ul_fuse_member(trial, runs_at) != UL_FUSE_NEVER);
    for (uint32_t i = 0; i < trial->count; i++)
        fuse->group_of[trial->members[i]] = groups[0];
    fuse->groups[groups[0]] =
        (struct ul_fuse_group){.members = ul_arena_copy(fuse->scratch, trial->members,
                                                        trial->count * sizeof *trial->members),
                               .count = trial->count,
                               .runs_at = runs_at};
}

/* ---- The block ---- */

/* Positions of this block that make what is read, as they come up. */
struct reads {
    uint32_t *makers; /* NULL: they are counted only */
    uint32_t count;
};

static void add_read(struct reads *reads, uint32_t made)
{
    if (made == UL_FUSE_NEVER)
        return;
    if (reads->makers != NULL)
        reads->makers[reads->count] = made;
    reads->count++;
}

/* What the node, or what is nested in it, reads. */
static void add_reads(struct ul_fuse *fuse, ul_node_id id, uint32_t position, struct reads *reads)
{
    const struct ul_node *node = &fuse->graph->nodes[id];
    fuse->position[id] = position;
    for (uint32_t i = 0; i < node->input_count; i++)
        add_read(reads, ul_fuse_maker(fuse, node->inputs[i]));
    for (uint32_t b = 0; b < node->block_count; b++) {
        const struct ul_block *block = &fuse->graph->blocks[node->blocks[b]];
        for (uint32_t n = 0; n < block->node_count; n++)
            add_reads(fuse, block->nodes[n], position, reads);
        for (uint32_t i = 0; i < block->output_count; i++) {
            uint32_t made = ul_fuse_maker(fuse, block->outputs[i]);
            if (made != position)
                add_read(reads, made);
        }
    }
}

/* A reader of an input comes before the node whose output overwrites it (donate.c). */
static void add_overwrites(const struct ul_fuse *fuse, uint32_t position, struct reads *reads)
{
    const struct ul_node *node = ul_fuse_node(fuse, position);
    for (uint32_t i = 0; i < node->output_count; i++) {
        ul_value_id output = node->outputs[i];
        ul_value_id donor = output == UL_NONE ? UL_NONE : fuse->graph->values[output].donor;
        for (uint32_t p = 0; donor != UL_NONE && p < position; p++) {
            if (ul_donate_reads(fuse->graph, fuse->block->nodes[p], donor))
                add_read(reads, p);
        }
    }
}

/* users[] by counting: for each position, the positions that read what it makes. */
static void find_users(struct ul_fuse *fuse)
{
    const struct ul_block *block = fuse->block;
    struct reads reads = {.count = 0};
    for (uint32_t p = 0; p < block->node_count; p++)
        fuse->position[block->nodes[p]] = p;
    for (uint32_t p = 0; p < block->node_count; p++) {
        add_reads(fuse, block->nodes[p], p, &reads);
        add_overwrites(fuse, p, &reads);
    }
    uint32_t *readers = UL_NEW_ARRAY(fuse->scratch, uint32_t, reads.count);
    reads.makers = UL_NEW_ARRAY(fuse->scratch, uint32_t, reads.count);
    fuse->users = UL_NEW_ARRAY(fuse->scratch, uint32_t, reads.count);
    fuse->user_begin = UL_NEW_ARRAY(fuse->scratch, uint32_t, (uint64_t)block->node_count + 2);
    reads.count = 0;
    for (uint32_t p = 0; p < block->node_count; p++) {
        uint32_t before = reads.count;
        add_reads(fuse, block->nodes[p], p, &reads);
        add_overwrites(fuse, p, &reads);
        for (uint32_t i = before; i < reads.count; i++) {
            readers[i] = p;
            fuse->user_begin[reads.makers[i] + 2]++;
        }
    }
    for (uint32_t p = 0; p < block->node_count; p++)
        fuse->user_begin[p + 2] += fuse->user_begin[p + 1];
    for (uint32_t i = 0; i < reads.count; i++)
        fuse->users[fuse->user_begin[reads.makers[i] + 1]++] = readers[i];
}

void ul_fuse_begin_block(struct ul_fuse *fuse, ul_block_id id)
{
    struct ul_graph *graph = fuse->graph;
    fuse->block = &graph->blocks[id];
    uint32_t total = fuse->block->node_count;
    uint32_t *alone = UL_NEW_ARRAY(fuse->scratch, uint32_t, total);
    fuse->group_of = UL_NEW_ARRAY(fuse->scratch, uint32_t, total);
    fuse->groups = UL_NEW_ARRAY(fuse->scratch, struct ul_fuse_group, total);
    fuse->seen = UL_NEW_ARRAY(fuse->scratch, uint32_t, total);
    fuse->is_view = UL_NEW_ARRAY(fuse->scratch, bool, total);
    fuse->seen_mark = 0;
    for (uint32_t p = 0; p < total; p++) {
        alone[p] = p;
        fuse->group_of[p] = p;
        fuse->groups[p] = (struct ul_fuse_group){.members = &alone[p], .count = 1, .runs_at = p};
        fuse->is_view[p] = ul_node_is_view(graph, fuse->block->nodes[p]);
    }
    for (uint32_t i = 0; i < fuse->block->output_count; i++)
        fuse->block_output[fuse->block->outputs[i]] = true;
    find_users(fuse);
}
