/* SPDX-License-Identifier: Apache-2.0 */
/* What a group costs in bytes, by the planner's account of all steps (planner/model/live.h).
 *
 *     x, y read at         1   2   3                 3
 *     a = Exp(x)           w-------r      one step:  in registers
 *     b = Exp(y)               w---r                 in registers
 *     c = a + b                    w                 x and y live until here instead
 *
 * A group runs where its anchor does, or its last node, as soon as its operands are there: so an
 * input may live longer than before, as far as values that vanish make room for it. */
#include "passes/memory/fuse_internal.h"

/* The first position at which everything that the trial reads is there. */
static uint32_t ready_at(const struct ul_fuse *fuse, const struct ul_fuse_trial *trial)
{
    uint32_t ready = 0;
    for (uint32_t i = 0; i < trial->count; i++) {
        const struct ul_node *node = ul_fuse_node(fuse, trial->members[i]);
        for (uint32_t k = 0; k < node->input_count; k++) {
            uint32_t made = ul_fuse_maker(fuse, node->inputs[k]);
            if (made == UL_FUSE_NEVER || ul_fuse_member(trial, made) != UL_FUSE_NEVER)
                continue;
            uint32_t at = fuse->groups[fuse->group_of[made]].runs_at;
            ready = at + 1 > ready ? at + 1 : ready;
        }
    }
    return ready;
}

/* Where one of the groups runs: that of the anchor, or the last, or the next one after all
 * inputs. */
static uint32_t place_of(const struct ul_fuse *fuse, const struct ul_fuse_trial *trial,
                         const uint32_t *groups, uint32_t count)
{
    uint32_t ready = ready_at(fuse, trial);
    uint32_t last = 0;
    uint32_t best = UL_FUSE_NEVER;
    for (uint32_t g = 0; g < count; g++) {
        uint32_t at = fuse->groups[groups[g]].runs_at;
        last = at > last ? at : last;
    }
    uint32_t wanted = last;
    if (trial->anchor != UL_FUSE_NEVER)
        wanted = fuse->groups[fuse->group_of[trial->members[trial->anchor]]].runs_at;
    for (uint32_t g = 0; g < count; g++) {
        uint32_t at = fuse->groups[groups[g]].runs_at;
        if (at >= wanted && at >= ready && at < best)
            best = at;
    }
    return best == UL_FUSE_NEVER ? last : best;
}

static uint32_t step_of(const struct ul_fuse *fuse, uint32_t position)
{
    return fuse->steps.step_of[fuse->block->nodes[position]];
}

bool ul_fuse_merge_bytes(struct ul_fuse *fuse, const struct ul_fuse_trial *trial,
                         const uint32_t *groups, uint32_t count, uint32_t *runs_at)
{
    ul_node_id nodes[UL_FUSE_NODES];
    uint32_t positions[UL_FUSE_NODES];
    UL_ASSERT(count > 1 && count <= trial->count);
    for (uint32_t i = 0; i < trial->count; i++)
        nodes[i] = fuse->block->nodes[trial->members[i]];
    for (uint32_t g = 0; g < count; g++) {
        uint32_t step = step_of(fuse, fuse->groups[groups[g]].runs_at);
        uint32_t at = g;
        for (; at > 0 && positions[at - 1] > step; at--)
            positions[at] = positions[at - 1];
        positions[at] = step;
    }
    ul_fuse_mark_escapes(fuse, trial);
    *runs_at = place_of(fuse, trial, groups, count);
    struct ul_plan_substep substep = ul_steps_touch(&fuse->steps, nodes, trial->count);
    struct ul_live_merge merge = {.positions = positions,
                                  .position_count = count,
                                  .at = step_of(fuse, *runs_at),
                                  .substep = &substep};
    return ul_live_merge(fuse->live, &merge);
}
