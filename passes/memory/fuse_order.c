/* SPDX-License-Identifier: Apache-2.0 */
/* Puts groups in an order in which each comes after what it needs, as near to the old one as can
 * be: among those that are ready, the one whose anchor (or last node) was first comes next. */
#include <string.h>

#include "passes/memory/fuse_internal.h"

static uint32_t group_key(const struct ul_fuse *fuse, const struct ul_fuse_group *group)
{
    for (uint32_t i = 0; i < group->count; i++) {
        if (!ul_op_is_map(ul_fuse_node(fuse, group->members[i])->op))
            return group->members[i];
    }
    return group->members[group->count - 1];
}

/* How many reads of each group come from other groups. */
static uint32_t *count_waits(const struct ul_fuse *fuse)
{
    uint32_t *waits = UL_NEW_ARRAY(fuse->scratch, uint32_t, fuse->block->node_count);
    for (uint32_t p = 0; p < fuse->block->node_count; p++) {
        for (uint32_t u = fuse->user_begin[p]; u < fuse->user_begin[p + 1]; u++) {
            if (fuse->group_of[fuse->users[u]] != fuse->group_of[p])
                waits[fuse->group_of[fuse->users[u]]]++;
        }
    }
    return waits;
}

/* Puts the group's nodes next. Returns their count. */
static uint32_t emit(struct ul_fuse *fuse, const struct ul_fuse_group *group, ul_node_id *out)
{
    for (uint32_t i = 0; i < group->count; i++) {
        out[i] = fuse->block->nodes[group->members[i]];
        fuse->graph->nodes[out[i]].group = group->count > 1 ? fuse->group_count : UL_NONE;
    }
    fuse->group_count += group->count > 1;
    return group->count;
}

/* Groups that waited for this one alone are ready. */
static void release(const struct ul_fuse *fuse, const struct ul_fuse_group *group, uint32_t *waits,
                    struct ul_heap *ready)
{
    for (uint32_t m = 0; m < group->count; m++) {
        uint32_t p = group->members[m];
        for (uint32_t u = fuse->user_begin[p]; u < fuse->user_begin[p + 1]; u++) {
            uint32_t other = fuse->group_of[fuse->users[u]];
            if (other != fuse->group_of[p] && --waits[other] == 0)
                ul_heap_push(fuse->scratch, ready, group_key(fuse, &fuse->groups[other]), other);
        }
    }
}

void ul_fuse_reorder(struct ul_fuse *fuse)
{
    uint32_t total = fuse->block->node_count;
    uint32_t *waits = count_waits(fuse);
    struct ul_heap ready = {.count = 0}; /* groups by their keys */
    ul_node_id *out = UL_NEW_ARRAY(fuse->scratch, ul_node_id, total);
    uint32_t out_count = 0;
    uint32_t before = 0; /* where the last step was judged to run */
    for (uint32_t p = 0; p < total; p++) {
        uint32_t group = fuse->group_of[p];
        if (fuse->groups[group].members[0] == p && waits[group] == 0)
            ul_heap_push(fuse->scratch, &ready, group_key(fuse, &fuse->groups[group]), group);
    }
    while (ready.count > 0) {
        const struct ul_fuse_group *group = &fuse->groups[ul_heap_pop(&ready).index];
        bool is_view = fuse->is_view[group->members[0]];
        fuse->keeps_account = fuse->keeps_account && (is_view || group->runs_at >= before);
        before = is_view ? before : group->runs_at;
        out_count += emit(fuse, group, out + out_count);
        release(fuse, group, waits, &ready);
    }
    UL_ASSERT(out_count == total); /* no cycles */
    if (total > 0)
        memcpy(fuse->block->nodes, out, total * sizeof *out);
}
