/* SPDX-License-Identifier: Apache-2.0 */
/* A group must not wait for itself: no path may lead out of it and back in, views included. A
 * search along users, from group to group, looks for one; beyond MAX_VISITS it takes one for
 * granted. */
#include "passes/memory/fuse_internal.h"

enum { MAX_VISITS = 20000 };

struct search {
    struct ul_fuse *fuse;
    const struct ul_fuse_trial *trial;
    uint32_t last;   /* member: what comes after it cannot lead back */
    uint32_t *stack; /* groups to be looked at */
    uint32_t depth, capacity;
};

static bool see(struct ul_fuse *fuse, uint32_t group)
{
    if (fuse->seen[group] == fuse->seen_mark)
        return false;
    fuse->seen[group] = fuse->seen_mark;
    return true;
}

/* Puts the groups that read what is made at `position` on the stack; true when the trial reads it.
 */
static bool follow(struct search *search, uint32_t position)
{
    struct ul_fuse *fuse = search->fuse;
    bool leads_back = false;
    for (uint32_t u = fuse->user_begin[position]; u < fuse->user_begin[position + 1]; u++) {
        uint32_t user = fuse->users[u];
        uint32_t group = fuse->group_of[user];
        bool inside = ul_fuse_member(search->trial, user) != UL_FUSE_NEVER;
        leads_back = leads_back || inside;
        if (inside || fuse->groups[group].members[0] > search->last || !see(fuse, group))
            continue;
        UL_GROW(fuse->scratch, search->stack, search->depth, search->capacity);
        search->stack[search->depth++] = group;
    }
    return leads_back;
}

bool ul_fuse_has_cycle(struct ul_fuse *fuse, const struct ul_fuse_trial *trial)
{
    struct search search = {.fuse = fuse, .trial = trial, .last = trial->members[trial->count - 1]};
    UL_ASSERT(trial->count > 1);
    fuse->seen_mark++;
    for (uint32_t m = 0; m < trial->count; m++)
        (void)follow(&search, trial->members[m]);
    for (uint32_t visits = 1; search.depth > 0; visits++) {
        const struct ul_fuse_group *group = &fuse->groups[search.stack[--search.depth]];
        if (visits > MAX_VISITS)
            return true;
        for (uint32_t m = 0; m < group->count; m++) {
            if (follow(&search, group->members[m]))
                return true;
        }
    }
    return false;
}
