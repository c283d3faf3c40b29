/* Runs repairs until the packing fits, or the work is used up.
 *
 * Problem: a repair neither ends nor proves; which capacity should it try?
 * Method: one rung at the least capacity worth having, one a part of the way down to it from the
 * best packing known, a smaller part whenever nothing is found. On each rung one repair that is
 * anchored in the largest section and one that is not; the first ends sooner, and gets more. */
#include "planner/pack/pack_exact.h"

#include <string.h>

enum { RUNGS = 2, LANES = 2, ANCHORED_SHARE = 4 };
static const uint64_t slice = 1u << 20;

struct rung {
    struct ul_arena arena;
    struct ul_pack_repair *repairs[LANES]; /* NULL: does not go on */
    uint64_t capacity_bytes;
    bool open;
};

struct ladder {
    const struct ul_pack_problem *problem;
    struct ul_pack_effort *effort;
    struct rung rungs[RUNGS];
    uint64_t part; /* the nearer rung lies this part of the way below the best */
};

static void rung_close(struct rung *rung)
{
    if (rung->open)
        ul_arena_done(&rung->arena);
    rung->open = false;
}

static void rung_open(struct ladder *l, struct rung *rung, uint64_t capacity_bytes)
{
    if (rung->open && rung->capacity_bytes == capacity_bytes)
        return;
    rung_close(rung);
    ul_arena_init(&rung->arena);
    for (uint32_t i = 0; i < LANES; i++)
        rung->repairs[i] = ul_pack_repair_new(&rung->arena, l->problem, capacity_bytes,
                                              l->effort->offset_bytes, i == 0);
    rung->capacity_bytes = capacity_bytes;
    rung->open = true;
}

static void packing_take(struct ladder *l, const uint64_t *offset_bytes)
{
    const struct ul_pack_problem *problem = l->problem;
    uint64_t top = 0;
    for (uint32_t b = 0; b < problem->buffer_count; b++) {
        uint64_t end = offset_bytes[b] + problem->buffers[b].size_bytes;
        top = end > top ? end : top;
    }
    if (top >= l->effort->arena_bytes)
        return;
    memcpy(l->effort->offset_bytes, offset_bytes, sizeof *offset_bytes * problem->buffer_count);
    l->effort->arena_bytes = top;
    l->effort->found = true;
}

/* True if something better was found. */
static bool rung_run(struct ladder *l, struct rung *rung)
{
    for (uint32_t i = 0; i < LANES && !ul_pack_exhausted(l->effort); i++) {
        if (rung->repairs[i] == NULL)
            continue;
        uint64_t work = i == 0 ? ANCHORED_SHARE * slice : slice;
        enum ul_pack_outcome outcome = ul_pack_repair_run(rung->repairs[i], work, &l->effort->work);
        if (outcome == UL_PACK_REFUTED)
            rung->repairs[i] = NULL;
        if (outcome != UL_PACK_FOUND)
            continue;
        packing_take(l, ul_pack_repair_offsets(rung->repairs[i]));
        rung_close(rung);
        return true;
    }
    return false;
}

static void rungs_set(struct ladder *l)
{
    uint64_t above = l->effort->arena_bytes - l->effort->target_bytes;
    uint64_t below = above / l->part;
    rung_open(l, &l->rungs[0], l->effort->target_bytes);
    rung_open(l, &l->rungs[1], l->effort->arena_bytes - (below > 0 ? below : 1));
}

void ul_pack_repair(const struct ul_pack_problem *problem, struct ul_pack_effort *effort,
                    uint64_t most_work)
{
    enum { FIRST_PART = 2, LAST_PART = 4096 };
    static const uint64_t patience = 1u << 24;
    struct ladder l = {.problem = problem, .effort = effort, .part = FIRST_PART};
    uint64_t started_at = effort->work;
    uint64_t changed_at = effort->work;
    while (effort->arena_bytes > effort->target_bytes && !ul_pack_exhausted(effort) &&
           effort->work - started_at < most_work) {
        rungs_set(&l);
        uint64_t before = effort->work;
        bool found = rung_run(&l, &l.rungs[0]) || rung_run(&l, &l.rungs[1]);
        bool idle = !found && effort->work == before; /* no repair goes on */
        if (idle && l.part >= LAST_PART)
            break;
        if (found) {
            changed_at = effort->work;
            l.part = l.part > FIRST_PART ? l.part / 2 : FIRST_PART;
        } else if (idle || (effort->work - changed_at > patience && l.part < LAST_PART)) {
            changed_at = effort->work;
            l.part *= 2;
        }
    }
    for (uint32_t i = 0; i < RUNGS; i++)
        rung_close(&l.rungs[i]);
}
