/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses which steps of a finished plan run on a second stream of the same device.
 *
 * Problem: a device that runs one step at a time is partly idle where a step has work for few of
 * its multiprocessors. Branches of a network could run at the same time. But an order that is good
 * for memory lets each branch use the bytes of the branch before it, and what stream 1 touches
 * lives through a wait:
 *
 *      position  0     1      2    3      4       0     1      2     3     4     5
 *      stream 0  conv  conv a  .   conv b  .  ->  conv               conv b      wait
 *      stream 1                                         conv a                        ...
 *      a                [------)                        [--------------------------)
 *
 * Method: the plan falls into parts, with cuts where few values cross. In a part each item that may
 * share the device is on stream 0, or on stream 1 as soon as it is ready, or on stream 1 alone,
 * when nothing else is in flight. The list scheduler of transfer_overlap.c places them within the
 * limit. A search changes one item at a time while that gains; then it changes some at random, and
 * begins again. It does so for several distances between the place of an item in the plan and
 * its begin. Streams part only where the work of both, spread over the whole device, takes no
 * longer than until they meet: two steps that each fill the device gain nothing.
 *
 * Left undone: how much of the device is busy at each moment, since only the sum counts; more than
 * two streams; loops, branches and entries; plans with transfers. */
#include "planner/transfer/transfer_internal.h"

#include <string.h>

enum {
    MIN_PART = 16, /* items */
    MAX_PART = 40,
    KICKS = 100, /* changes at random, for each distance */
    KICKED = 3   /* items, each time */
};

enum state { ON_FIRST, ON_SECOND, ALONE };
enum { STATE_COUNT = ALONE + 1 };

struct share {
    struct ul_overlap o;
    struct ul_effort *effort;
    struct ul_overlap_result now; /* of the states that the search has now */
    uint8_t *states, *kept;       /* by item: an enum state */
    uint64_t random;
};

/* ---- Parts ---- */

/* By item, how many of those before it have readers from it on. */
static uint32_t *count_crossing(struct ul_overlap *o)
{
    uint32_t *last = UL_NEW_ARRAY(&o->scratch, uint32_t, o->item_count);
    uint32_t *crossing = UL_NEW_ARRAY(&o->scratch, uint32_t, (uint64_t)o->item_count + 2);
    for (uint32_t i = 0; i < o->item_count; i++)
        for (uint32_t b = 0; b < o->given[i]; b++)
            last[o->before[i].items[b]] = i;
    for (uint32_t i = 0; i < o->item_count; i++) {
        if (last[i] == 0)
            continue;
        crossing[i + 1]++;
        crossing[last[i] + 1]--;
    }
    for (uint32_t at = 1; at <= o->item_count; at++)
        crossing[at] += crossing[at - 1];
    return crossing;
}

static uint32_t find_part_end(const struct ul_overlap *o, const uint32_t *crossing, uint32_t first)
{
    uint32_t left = o->item_count - first, best = first + MIN_PART;
    if (left <= MIN_PART)
        return o->item_count;
    for (uint32_t i = best + 1; i < first + (left < MAX_PART ? left : MAX_PART); i++)
        best = crossing[i] < crossing[best] ? i : best;
    return best;
}

/* ---- The search in one part ---- */

static void put_state(struct share *s, uint32_t item, enum state state)
{
    s->states[item] = (uint8_t)state;
    s->o.items[item].is_second = state != ON_FIRST;
    s->o.items[item].is_alone = state == ALONE;
}

/* Whether an item in another state makes what the search has now cost less; if not, it keeps its
 * state. */
static bool gains(struct share *s, uint32_t item, enum state state)
{
    const enum state before = (enum state)s->states[item];
    const uint64_t cost = s->now.cost;
    if (state == before)
        return false;
    put_state(s, item, state);
    ul_overlap_try(&s->o, s->effort, &s->now);
    if (s->now.cost < cost)
        return true;
    put_state(s, item, before);
    return false;
}

static void improve(struct share *s)
{
    bool goes_on = true;
    while (goes_on && !ul_effort_spent(s->effort)) {
        goes_on = false;
        for (uint32_t i = s->o.part_first; i < s->o.part_end; i++)
            for (uint32_t state = 0; state < STATE_COUNT && s->o.items[i].may_share; state++)
                goes_on = gains(s, i, (enum state)state) || goes_on;
    }
}

/* Changes some items at random. */
static void kick(struct share *s)
{
    const uint32_t count = s->o.part_end - s->o.part_first;
    for (uint32_t i = 0; i < KICKED; i++) {
        uint32_t item = s->o.part_first + (uint32_t)(ul_seed_next(&s->random) % count);
        enum state state = (enum state)(ul_seed_next(&s->random) % STATE_COUNT);
        if (s->o.items[item].may_share)
            put_state(s, item, state);
    }
    s->now.cost = UINT64_MAX;
    ul_overlap_try(&s->o, s->effort, &s->now);
}

static void keep_best(struct share *s)
{
    const struct ul_overlap_result now = s->now;
    if (now.cost >= s->o.best.cost)
        return;
    s->now = s->o.best; /* its room, for what comes next */
    s->o.best = now;
}

static void search(struct share *s, uint64_t cost)
{
    const uint32_t first = s->o.part_first, count = s->o.part_end - first;
    uint64_t least = cost;
    for (uint32_t i = first; i < s->o.part_end; i++)
        put_state(s, i, ON_FIRST);
    s->now.cost = cost;
    for (uint32_t k = 0; k <= KICKS && !ul_effort_spent(s->effort); k++) {
        if (k > 0)
            kick(s);
        improve(s);
        bool is_kept = s->now.cost <= least;
        if (is_kept)
            memcpy(s->kept + first, s->states + first, count);
        least = is_kept ? s->now.cost : least;
        keep_best(s);
        for (uint32_t i = first; i < s->o.part_end; i++)
            put_state(s, i, (enum state)s->kept[i]);
    }
}

/* Searches the part with its share of the work that is left. */
static void search_part(struct share *s, uint64_t cost)
{
    enum { REACHES = 4 };
    static const uint32_t reaches[REACHES] = {UINT32_MAX, 1, 2, 4};
    const uint32_t left = s->o.item_count - s->o.part_first;
    if (ul_effort_spent(s->effort))
        return;
    struct ul_effort_turn whole =
        ul_effort_begin_turn(s->effort, left / (s->o.part_end - s->o.part_first));
    for (uint32_t i = 0; i < REACHES && !ul_effort_spent(s->effort); i++) {
        struct ul_effort_turn turn = ul_effort_begin_turn(s->effort, REACHES - i);
        s->o.reach = reaches[i];
        search(s, cost);
        ul_effort_end_turn(s->effort, turn);
    }
    ul_effort_end_turn(s->effort, whole);
}

/* Settles the best positions of the part. Returns their cost. */
static uint64_t settle_part(struct share *s)
{
    struct ul_overlap *o = &s->o;
    uint32_t count = o->plan->position_count, may_count = 0;
    uint32_t left = o->part_end < o->item_count ? count - o->items[o->part_end].first : 0;
    uint64_t cost = 0;
    for (uint32_t i = o->part_first; i < o->part_end; i++) {
        cost += o->items[i].cost;
        may_count += o->items[i].may_share;
    }
    o->best.cost = cost;
    if (may_count > 1)
        search_part(s, cost);
    UL_ASSERT(o->best.cost <= cost && o->best.position_count >= left);
    o->settled_count = o->best.position_count - left;
    memcpy(o->positions, o->best.positions, o->settled_count * sizeof *o->positions);
    memcpy(o->moved_to, o->best.moved_to, count * sizeof *o->moved_to);
    memset(o->new_item, 0, o->settled_count * sizeof *o->new_item);
    return o->best.cost;
}

uint32_t *ul_transfer_share(struct ul_arena *arena, const struct ul_problem *problem,
                            uint64_t limit_bytes, const struct ul_plan_streaming *sharing,
                            struct ul_effort *effort, struct ul_plan *plan)
{
    const struct ul_plan before = *plan;
    struct share s = {
        .o = {.problem = problem, .plan = &before, .limit_bytes = limit_bytes, .sharing = sharing},
        .effort = effort,
        .random = effort->seed + 1};
    uint64_t cost = 0, least = 0;
    uint32_t *moved_to = NULL;
    ul_arena_init(&s.o.scratch);
    for (uint32_t p = 0; p < before.position_count; p++)
        cost += sharing->costs[p];
    if (before.position_count > 0 && ul_overlap_make(&s.o)) {
        const uint32_t *crossing = count_crossing(&s.o);
        ul_overlap_result_init(&s.o, &s.now);
        s.states = UL_NEW_ARRAY(&s.o.scratch, uint8_t, s.o.item_count);
        s.kept = UL_NEW_ARRAY(&s.o.scratch, uint8_t, s.o.item_count);
        for (uint32_t end; s.o.part_first < s.o.item_count; s.o.part_first = end) {
            s.o.part_end = end = find_part_end(&s.o, crossing, s.o.part_first);
            least += settle_part(&s);
        }
        UL_ASSERT(least <= cost);
        if (least < cost && cost - least >= cost / 100 * sharing->least_percent) {
            ul_overlap_adopt(&s.o, arena, plan);
            moved_to =
                ul_arena_copy(arena, s.o.best.moved_to, before.position_count * sizeof *moved_to);
        }
    }
    ul_arena_done(&s.o.scratch);
    return moved_to;
}
