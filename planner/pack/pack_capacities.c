/* SPDX-License-Identifier: Apache-2.0 */
/* Runs repairs until the packing fits or the work is used up.
 *
 * Problem: a repair neither ends nor proves; which capacity should it try? Method: one rung is at
 * the smallest capacity worth having, another a part of the way down to it from the best packing
 * known, a smaller part whenever nothing is found. Each rung has one repair that is anchored in the
 * largest section and one that is not; the first ends sooner, and gets more work. Large instances
 * are also tried with other anchors, on the lower rung: which one works is not known beforehand. */
#include "planner/pack/pack_internal.h"

#include <string.h>

static const struct lane {
    enum ul_pack_anchor anchor;
    uint32_t share;
    bool large; /* only for large instances */
} lanes[] = {{UL_PACK_AS_STARTED, 4, false},
             {UL_PACK_UNANCHORED, 1, false},
             {UL_PACK_BY_BEGIN, 4, true},
             {UL_PACK_BY_END, 4, true},
             {UL_PACK_BY_LIFETIME, 4, true}};
enum { LEVELS = 2, LANES = sizeof lanes / sizeof *lanes };
static const uint64_t slice = 1u << 20;

struct level {
    struct ul_arena arena;
    struct ul_pack_repair *repairs[LANES]; /* NULL: it has ended */
    uint64_t capacity_bytes;
    bool open;
};

struct capacities {
    struct ul_pack_job *job;
    struct level levels[LEVELS];
    uint64_t share; /* the nearer rung is below the best by the distance divided by this */
};

static void level_close(struct level *level)
{
    if (level->open)
        ul_arena_done(&level->arena);
    level->open = false;
}

static void level_open(struct capacities *l, struct level *level, uint64_t capacity_bytes)
{
    if (level->open && level->capacity_bytes == capacity_bytes)
        return;
    level_close(level);
    ul_arena_init(&level->arena);
    bool large = l->job->problem->buffer_count > UL_PACK_EXACT_BUFFERS;
    for (uint32_t i = 0; i < LANES; i++) {
        level->repairs[i] = NULL;
        if (!lanes[i].large || (large && capacity_bytes == l->job->target_bytes))
            level->repairs[i] = ul_pack_repair_new(&level->arena, l->job->problem, capacity_bytes,
                                                   l->job->offset_bytes, lanes[i].anchor);
    }
    level->capacity_bytes = capacity_bytes;
    level->open = true;
}

static void packing_accept(struct capacities *l, const uint64_t *offset_bytes)
{
    const struct ul_pack_problem *problem = l->job->problem;
    uint64_t top = 0;
    for (uint32_t b = 0; b < problem->buffer_count; b++) {
        uint64_t end = offset_bytes[b] + problem->buffers[b].size_bytes;
        top = end > top ? end : top;
    }
    if (top >= l->job->arena_bytes)
        return;
    memcpy(l->job->offset_bytes, offset_bytes, sizeof *offset_bytes * problem->buffer_count);
    l->job->arena_bytes = top;
}

/* True if something better was found. */
static bool level_run(struct capacities *l, struct level *level)
{
    for (uint32_t i = 0; i < LANES && !ul_effort_spent(&l->job->effort); i++) {
        if (level->repairs[i] == NULL)
            continue;
        enum ul_pack_outcome outcome =
            ul_pack_repair_run(level->repairs[i], lanes[i].share * slice, &l->job->effort.work);
        if (outcome == UL_PACK_REFUTED)
            level->repairs[i] = NULL;
        if (outcome != UL_PACK_FOUND)
            continue;
        packing_accept(l, ul_pack_repair_offsets(level->repairs[i]));
        level_close(level);
        return true;
    }
    return false;
}

static void levels_set(struct capacities *l)
{
    uint64_t above = l->job->arena_bytes - l->job->target_bytes;
    uint64_t below = above / l->share;
    level_open(l, &l->levels[0], l->job->target_bytes);
    level_open(l, &l->levels[1], l->job->arena_bytes - (below > 0 ? below : 1));
}

/* Runs until the target is met or that much work is done. */
static void capacities_run(struct ul_pack_job *job, uint64_t max_work)
{
    enum { FIRST_PART = 2, LAST_PART = 4096 };
    static const uint64_t patience = 1u << 24;
    struct capacities l = {.job = job, .share = FIRST_PART};
    struct ul_effort *effort = &job->effort;
    uint64_t started_at = effort->work;
    uint64_t changed_at = effort->work;
    while (job->arena_bytes > job->target_bytes && !ul_effort_spent(effort) &&
           effort->work - started_at < max_work) {
        levels_set(&l);
        uint64_t before = effort->work;
        bool found = level_run(&l, &l.levels[0]) || level_run(&l, &l.levels[1]);
        bool idle = !found && effort->work == before; /* no repair continues */
        if (idle && l.share >= LAST_PART)
            break;
        if (found) {
            changed_at = effort->work;
            l.share = l.share > FIRST_PART ? l.share / 2 : FIRST_PART;
        } else if (idle || (effort->work - changed_at > patience && l.share < LAST_PART)) {
            changed_at = effort->work;
            l.share *= 2;
        }
    }
    for (uint32_t i = 0; i < LEVELS; i++)
        level_close(&l.levels[i]);
}

/* Runs on its own where the exact search cannot represent the instance exactly, or takes long:
 * after its dive, which is short and often succeeds, or without it where the exact search cannot be
 * used at all. */
void ul_pack_run_repair(struct ul_pack_job *job, bool is_named)
{
    enum { SMALL = 400 };
    static const uint64_t max_work = (uint64_t)480 << 20, a_little = 1u << 22;
    const struct ul_pack_problem *problem = job->problem;
    bool large = problem->buffer_count > UL_PACK_EXACT_BUFFERS;
    bool plain = true;
    for (uint32_t b = 0; b < problem->buffer_count; b++)
        plain = plain && !problem->buffers[b].pinned && problem->buffers[b].gap_count == 0;
    if (!is_named && !large && plain && problem->buffer_count <= SMALL)
        return;
    if (!is_named)
        ul_pack_dive(job);
    uint64_t before = job->arena_bytes;
    uint64_t quarter = job->effort.work_limit / 4;
    uint64_t allowed = quarter < a_little ? quarter : a_little;
    if (large || is_named)
        allowed = job->options->time_limit_seconds > 0 ? UINT64_MAX : max_work;
    capacities_run(job, allowed);
    UL_ASSERT(job->arena_bytes <= before && job->arena_bytes >= problem->bound_bytes);
    if (job->arena_bytes < before)
        job->method = "repair";
    else if (is_named)
        job->method = "repair: no packing below first-fit";
}
