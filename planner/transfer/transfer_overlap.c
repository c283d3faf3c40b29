/* SPDX-License-Identifier: Apache-2.0 */
/* Lets steps on other resources run at the same time as the steps after them.
 *
 * Problem: an all-reduce on a link does not need the resources that compute. It may begin as soon
 * as its inputs are there, and no step has to wait for it before its result is read:
 *
 *     position  0    1    2       3       4            0    1    2    3       4    5
 *     stream 0  g1   g2   reduce  update1 update2      g1        g2   update2 wait update1
 *     stream 1                                              reduce [----------)
 *
 * Method: the positions form items: positions that stay together, such as a loop, are one. A list
 * scheduler keeps a clock for each stream. It begins asynchronous items as soon as they are ready;
 * stream 0 takes its next item, or one of the next few where that one would have to wait. Such a
 * schedule keeps more bytes alive. Where the live sum exceeds the limit, the item in flight there
 * that keeps most is held back: it begins after the step there, or the wait for it comes earlier.
 * In the end it runs on stream 0, at its old place. The cheapest result of several ways wins. Where
 * steps share a device (transfer_share.c), the caller says which are asynchronous. Left
 * undone: the order of stream 0 stays where values move to another space; steps in a region within
 * the root or an entry stay on stream 0, since a wait is in the root or an entry. */
#include "planner/transfer/transfer_internal.h"

#include <string.h>

/* ---- Items ---- */

static bool is_asynchronous(const struct ul_overlap *o, const struct ul_overlap_item *item)
{
    if (o->sharing != NULL)
        return item->is_second;
    const struct ul_plan_position *at = &o->plan->positions[item->first];
    if (at->kind != UL_PLAN_RUN || at->stream != 0)
        return false;
    const struct ul_plan_step *step = &o->problem->steps[at->step];
    return step->alternatives[at->alternative].resource != 0 && step->region == item->section &&
           step->alternatives[at->alternative].substep_count == item->end - item->first;
}

/* Puts an item of another resource on the stream of that, and one that shares the device on the
 * stream that is chosen for it. */
static void item_release(const struct ul_overlap *o, struct ul_overlap_item *item)
{
    item->is_asynchronous = is_asynchronous(o, item);
    if (o->sharing != NULL)
        item->stream = item->is_second;
    else if (item->is_asynchronous)
        item->stream = ul_plan_resource_at(o->problem, &o->plan->positions[item->first])->stream;
}

/* What an item is where steps share the device. */
static void item_share(const struct ul_overlap *o, struct ul_overlap_item *item)
{
    const struct ul_plan_streaming *sharing = o->sharing;
    item->may_share = true;
    item->cost = 0;
    for (uint32_t p = item->first; p < item->end; p++) {
        item->cost += sharing->costs[p];
        item->busy_cost += sharing->busy_costs[p];
        item->may_share = item->may_share && sharing->may[p] &&
                          o->problem->steps[o->plan->positions[p].step].region == 0;
        item->counts = item->counts || (sharing->counts != NULL && sharing->counts[p]);
    }
}

static void item_add(struct ul_overlap *o, uint32_t first, uint32_t end)
{
    struct ul_overlap_item *item = &o->items[o->item_count];
    const struct ul_plan_position *at = &o->plan->positions[first];
    *item = (struct ul_overlap_item){.first = first,
                                     .end = end,
                                     .section = ul_transfer_section(o->problem, at),
                                     .stream = at->stream};
    item_release(o, item);
    for (uint32_t p = first; p < end; p++) {
        const struct ul_plan_position *run = &o->plan->positions[p];
        o->item_of[p] = o->item_count;
        o->has_copies = o->has_copies || run->kind != UL_PLAN_RUN;
        item->cost += ul_plan_cost_at(o->problem, run);
    }
    if (o->sharing != NULL)
        item_share(o, item);
    o->item_count++;
}

/* An item that needs the result of a copy gets it at the first wait for the copy. */
static uint32_t completion(const struct ul_overlap *o, uint32_t p)
{
    const struct ul_plan_position *positions = o->plan->positions;
    for (uint32_t w = p; positions[p].stream != 0 && w < o->plan->position_count; w++) {
        if (positions[w].kind == UL_PLAN_WAIT && positions[w].awaited >= p &&
            positions[positions[w].awaited].stream == positions[p].stream)
            return w;
    }
    return p;
}

/* No two items that count may run at the same time. */
static void counting_add(struct ul_overlap *o)
{
    uint32_t last = UL_PLAN_NONE;
    for (uint32_t i = 0; i < o->item_count; i++) {
        if (!o->items[i].counts)
            continue;
        if (last != UL_PLAN_NONE && !ul_ids_have(o->before[i].items, o->before[i].count, last))
            ul_plan_list_add(&o->scratch, &o->before[i], last);
        last = i;
    }
}

static void edges_make(struct ul_overlap *o)
{
    uint32_t count = o->plan->position_count;
    struct ul_plan_list *before = UL_NEW_ARRAY(&o->scratch, struct ul_plan_list, count);
    ul_plan_find_before(&o->scratch, o->problem, o->plan, before);
    for (uint32_t p = 0; p < count; p++) {
        uint32_t to = o->item_of[p];
        for (uint32_t i = 0; i < before[p].count; i++) {
            uint32_t done = completion(o, before[p].items[i]);
            uint32_t from = o->item_of[done < p ? done : before[p].items[i]];
            if (from != to && !ul_ids_have(o->before[to].items, o->before[to].count, from))
                ul_plan_list_add(&o->scratch, &o->before[to], from);
        }
    }
    counting_add(o);
    for (uint32_t i = o->item_count; i-- > 0;) {
        o->given[i] = o->before[i].count;
        o->items[i].tail += o->items[i].cost;
        for (uint32_t b = 0; b < o->before[i].count; b++) {
            struct ul_overlap_item *from = &o->items[o->before[i].items[b]];
            from->tail = from->tail > o->items[i].tail ? from->tail : o->items[i].tail;
        }
    }
}

void ul_overlap_result_init(struct ul_overlap *o, struct ul_overlap_result *result)
{
    uint64_t count = o->plan->position_count;
    result->positions = UL_NEW_ARRAY(&o->scratch, struct ul_plan_position, 2 * count);
    result->moved_to = UL_NEW_ARRAY(&o->scratch, uint32_t, count);
}

bool ul_overlap_make(struct ul_overlap *o)
{
    uint32_t count = o->plan->position_count, first = 0;
    bool any = false;
    o->items = UL_NEW_ARRAY(&o->scratch, struct ul_overlap_item, count);
    o->item_of = UL_NEW_ARRAY(&o->scratch, uint32_t, count);
    for (uint32_t g = 1; g <= count; g++) {
        bool is_shared = o->sharing != NULL && g < count && o->sharing->groups[g] != g;
        if (is_shared || !ul_transfer_is_open(o->problem, o->plan, g))
            continue;
        item_add(o, first, g);
        any = any || o->items[o->item_count - 1].is_asynchronous ||
              o->items[o->item_count - 1].may_share;
        first = g;
    }
    if (!any)
        return false;
    o->before = UL_NEW_ARRAY(&o->scratch, struct ul_plan_list, o->item_count);
    o->given = UL_NEW_ARRAY(&o->scratch, uint32_t, o->item_count);
    o->moved_to = UL_NEW_ARRAY(&o->scratch, uint32_t, count);
    o->new_item = UL_NEW_ARRAY(&o->scratch, uint32_t, 2 * (uint64_t)count);
    o->positions = UL_NEW_ARRAY(&o->scratch, struct ul_plan_position, 2 * (uint64_t)count);
    edges_make(o);
    o->part_end = o->item_count;
    o->horizon = 1;
    o->reach = UINT32_MAX;
    ul_overlap_result_init(o, &o->best);
    memcpy(o->best.positions, o->plan->positions, count * sizeof *o->plan->positions);
    o->best.position_count = count;
    for (uint32_t p = 0; p < count; p++)
        o->best.moved_to[p] = p;
    return true;
}

/* ---- One schedule ---- */

static uint32_t first_left(struct ul_overlap *o)
{
    while (o->first_left < o->item_count && o->items[o->first_left].is_done)
        o->first_left++;
    return o->first_left;
}

/* Waits for an asynchronous item, and so for everything that its stream began before it. Streams
 * that share the device meet: the wait is for all that is in flight, and the work of what ran since
 * they parted, spread over the whole device, must not have taken longer. */
static void put_wait(struct ul_overlap *o, uint32_t item)
{
    const struct ul_overlap_item *awaited =
        &o->items[o->sharing != NULL ? o->in_flight.items[o->in_flight.count - 1] : item];
    const struct ul_plan_resource *runner = ul_problem_runner(o->problem, awaited->stream);
    uint32_t last = awaited->put + awaited->end - awaited->first - 1;
    UL_ASSERT(awaited->is_in_flight && runner != NULL);
    o->clocks[0] = ul_size_max(o->clocks[0], awaited->finish);
    if (o->sharing != NULL && ul_size_add_saturating(o->parted, o->busy_cost) > o->clocks[0])
        o->clocks[0] = UINT64_MAX; /* no such schedule */
    if (runner->kind == UL_PLAN_COMPUTE)
        o->clocks[0] = ul_size_add_saturating(o->clocks[0], runner->latency_cost);
    uint32_t count = 0;
    for (uint32_t k = 0; k < o->in_flight.count; k++) {
        struct ul_overlap_item *other = &o->items[o->in_flight.items[k]];
        other->is_in_flight = other->stream != awaited->stream || other->put > last;
        if (other->is_in_flight)
            o->in_flight.items[count++] = o->in_flight.items[k];
        else
            other->until = o->count;
    }
    o->in_flight.count = count;
    o->new_item[o->count] = first_left(o);
    o->positions[o->count++] = (struct ul_plan_position){
        .kind = UL_PLAN_WAIT, .awaited = last, .region = awaited->section};
}

/* Waits for all asynchronous items that the item depends on. False: there are none. */
static bool put_waits(struct ul_overlap *o, uint32_t item)
{
    const uint32_t count = o->count;
    while (o->items[item].is_alone && o->in_flight.count > 0)
        put_wait(o, o->in_flight.items[0]);
    for (uint32_t i = 0; i < o->before[item].count; i++) {
        const struct ul_overlap_item *from = &o->items[o->before[item].items[i]];
        bool follows = o->items[item].is_asynchronous && from->stream == o->items[item].stream;
        if (from->is_in_flight && !follows)
            put_wait(o, o->before[item].items[i]);
    }
    return o->count > count;
}

static void waiting_remove(struct ul_overlap *o, uint32_t item)
{
    uint32_t k = 0;
    while (k < o->waiting.count && o->waiting.items[k] != item)
        k++;
    UL_ASSERT(k < o->waiting.count);
    o->waiting.count--;
    memmove(o->waiting.items + k, o->waiting.items + k + 1,
            (o->waiting.count - k) * sizeof *o->waiting.items);
}

static void put_item(struct ul_overlap *o, uint32_t i)
{
    struct ul_overlap_item *item = &o->items[i];
    UL_ASSERT(!item->is_done);
    (void)put_waits(o, i);
    item->put = o->count;
    for (uint32_t p = item->first; p < item->end; p++) {
        struct ul_plan_position *at = &o->positions[o->count];
        *at = o->plan->positions[p];
        at->stream = item->is_asynchronous ? item->stream : at->stream;
        at->awaited = at->kind == UL_PLAN_WAIT ? o->moved_to[at->awaited] : at->awaited;
        o->moved_to[p] = o->count;
        o->new_item[o->count++] = item->is_asynchronous ? first_left(o) : i;
        if (at->kind == UL_PLAN_WAIT)
            o->clocks[0] = ul_size_max(o->clocks[0],
                                       o->items[o->item_of[o->plan->positions[p].awaited]].finish);
    }
    uint64_t *clock = &o->clocks[item->stream];
    if (o->in_flight.count == 0) {
        o->parted = ul_size_max(*clock, o->clocks[0]);
        o->busy_cost = 0;
    }
    o->busy_cost += item->busy_cost;
    *clock = item->finish = ul_size_add_saturating(ul_size_max(*clock, o->clocks[0]), item->cost);
    item->is_done = true;
    item->is_in_flight = item->is_asynchronous;
    item->until = o->count - 1;
    if (item->is_asynchronous) {
        waiting_remove(o, i);
        ul_plan_list_add(&o->scratch, &o->in_flight, i);
    }
}

/* When the item could begin on its stream; UINT64_MAX: an item before it remains, or an
 * asynchronous item would have to wait for one. */
static uint64_t start_of(struct ul_overlap *o, uint32_t i)
{
    const struct ul_overlap_item *item = &o->items[i];
    uint64_t start = o->clocks[0];
    o->work += o->before[i].count + 1;
    if (item->is_alone && o->in_flight.count > 0)
        return UINT64_MAX;
    for (uint32_t b = 0; b < o->before[i].count; b++) {
        const struct ul_overlap_item *from = &o->items[o->before[i].items[b]];
        if (!from->is_done)
            return UINT64_MAX;
        if (!from->is_in_flight || (item->is_asynchronous && from->stream == item->stream))
            continue;
        if (item->is_asynchronous && from->finish > start)
            return UINT64_MAX;
        start = ul_size_max(start, from->finish);
    }
    return start;
}

/* Whether an item that could begin goes before the best one so far. */
static bool goes_first(const struct ul_overlap *o, uint32_t item, uint32_t best)
{
    return best == UL_PLAN_NONE || (o->is_by_tail && o->items[item].tail > o->items[best].tail);
}

static void begin_ready(struct ul_overlap *o, uint32_t end)
{
    enum { MOST = 64 };
    uint32_t next = 0, count = o->waiting.count < MOST ? o->waiting.count : MOST;
    for (; next != UL_PLAN_NONE; count--) {
        next = UL_PLAN_NONE;
        for (uint32_t k = 0; k < count && o->waiting.items[k] < end; k++) {
            uint32_t i = o->waiting.items[k];
            if (i - first_left(o) >= o->reach)
                break;
            if (start_of(o, i) != UINT64_MAX && goes_first(o, i, next))
                next = i;
        }
        if (next != UL_PLAN_NONE)
            put_item(o, next);
    }
}

/* The next item for stream 0 before `end`: one that need not wait, or the one that waits least. */
static uint32_t next_choose(struct ul_overlap *o, uint32_t end)
{
    uint64_t least_start = UINT64_MAX;
    uint32_t best = UL_PLAN_NONE, least = o->first_left, seen = 0;
    for (uint32_t i = o->first_left; i < end && seen < o->horizon; i++) {
        if (o->items[i].is_done || o->items[i].is_asynchronous)
            continue;
        uint64_t start = start_of(o, i);
        seen++;
        least = start < least_start ? i : least;
        least_start = start < least_start ? start : least_start;
        if (start <= o->clocks[0] && goes_first(o, i, best))
            best = i;
    }
    return best != UL_PLAN_NONE ? best : least;
}

static void section_put(struct ul_overlap *o, uint32_t end)
{
    while (o->first_left < end) {
        begin_ready(o, end);
        if (first_left(o) == end)
            break;
        uint32_t next = next_choose(o, end);
        if (o->sharing == NULL || !put_waits(o, next)) /* after a wait more may be ready */
            put_item(o, next);
    }
    while (o->in_flight.count > 0)
        put_wait(o, o->in_flight.items[o->in_flight.count - 1]);
}

static void schedule(struct ul_overlap *o)
{
    memset(o->clocks, 0, sizeof o->clocks);
    o->waiting.count = o->in_flight.count = 0;
    o->count = o->settled_count;
    o->first_left = o->part_first;
    for (uint32_t i = o->part_first; i < o->part_end; i++) {
        o->items[i].is_done = o->items[i].is_in_flight = false;
        if (o->items[i].is_asynchronous)
            ul_plan_list_add(&o->scratch, &o->waiting, i);
    }
    for (uint32_t i = o->part_first, end; i < o->part_end; i = end) {
        end = i + 1;
        while (end < o->part_end && o->items[end].section == o->items[i].section)
            end++;
        section_put(o, end);
    }
}

/* What follows the part stays as it is. */
static void rest_put(struct ul_overlap *o)
{
    uint32_t p =
        o->part_end < o->item_count ? o->items[o->part_end].first : o->plan->position_count;
    for (; p < o->plan->position_count; p++) {
        o->positions[o->count] = o->plan->positions[p];
        o->moved_to[p] = o->count;
        o->new_item[o->count++] = o->item_of[p];
    }
    UL_ASSERT(o->count >= o->plan->position_count && o->count <= 2 * o->plan->position_count);
}

/* ---- Within the limit ---- */

/* The bytes of values that an item keeps alive and that would otherwise not live while `other`
 * runs. */
static uint64_t kept_bytes(const struct ul_overlap *o, uint32_t item, uint32_t other)
{
    uint64_t bytes = 0;
    uint32_t there = o->items[other].first;
    for (uint32_t p = o->items[item].first; p < o->items[item].end; p++) {
        const struct ul_plan_substep *substep = ul_substep_at(o->problem, &o->plan->positions[p]);
        bytes += substep->scratch_space == 0 ? substep->scratch_bytes : 0;
        for (uint32_t i = 0; i < substep->read_count + substep->write_count; i++) {
            uint32_t v = i < substep->read_count ? substep->reads[i]
                                                 : substep->writes[i - substep->read_count];
            const struct ul_plan_range *range = ul_plan_find_range(o->problem, o->plan, v, p);
            bool lives =
                range == NULL || range->space != 0 || (range->begin <= there && there < range->end);
            bytes += lives ? 0 : range->size_bytes;
        }
    }
    return bytes;
}

static void put_back(struct ul_overlap_item *item)
{
    item->is_asynchronous = false;
    item->stream = 0;
}

/* Holds back the item that keeps most alive at a new position; false where none keeps anything. */
static bool hold_back(struct ul_overlap *o, uint32_t position)
{
    uint32_t here = o->new_item[position], worst = UL_PLAN_NONE;
    uint64_t most = 0;
    for (uint32_t i = o->part_first; i < o->part_end && here < o->part_end; i++) {
        const struct ul_overlap_item *item = &o->items[i];
        bool is_there =
            item->is_asynchronous && item->put <= position && (i > here || position <= item->until);
        uint64_t bytes = is_there ? kept_bytes(o, i, here) : 0;
        worst = bytes > most ? i : worst;
        most = ul_size_max(most, bytes);
    }
    if (worst == UL_PLAN_NONE) {
        /* A range that begins or ends here could be in place on stream 0. */
        for (uint32_t i = o->part_first; i < o->part_end && worst == UL_PLAN_NONE; i++) {
            const struct ul_overlap_item *item = &o->items[i];
            if (item->is_asynchronous && item->put <= position && position <= item->until)
                worst = i;
        }
        if (worst != UL_PLAN_NONE)
            put_back(&o->items[worst]);
        return worst != UL_PLAN_NONE;
    }
    struct ul_plan_list *before = &o->before[worst > here ? worst : here];
    uint32_t from = worst > here ? here : worst;
    if (ul_ids_have(before->items, before->count, from))
        put_back(&o->items[worst]);
    else
        ul_plan_list_add(&o->scratch, before, from);
    return true;
}

/* Makes asynchronous items asynchronous again, with only their first dependences. */
static void reset(struct ul_overlap *o)
{
    for (uint32_t i = o->part_first; i < o->part_end; i++) {
        o->before[i].count = o->given[i];
        item_release(o, &o->items[i]);
    }
}

/* Sets the live sum and the cost of a schedule; of one that shares the device, the cost of the part
 * alone, as the clocks say. Returns the position with the most bytes. */
static uint32_t measure(struct ul_overlap *o, struct ul_arena *live, uint64_t *cost,
                        uint64_t *live_bytes)
{
    struct ul_plan plan = {.positions = o->positions,
                           .position_count = o->count,
                           .alignment_bytes = o->plan->alignment_bytes};
    ul_timeline_build(live, o->problem, UL_ALIAS_ALL, &plan);
    ul_account_live(live, &plan);
    if (o->sharing == NULL) {
        ul_account_cost(live, o->problem, &plan);
        *cost = plan.cost;
    }
    *live_bytes = plan.order_lower_bound_bytes;
    return plan.peak_position;
}

static void result_keep(const struct ul_overlap *o, uint64_t cost, uint64_t live_bytes,
                        struct ul_overlap_result *best)
{
    memcpy(best->positions, o->positions, o->count * sizeof *o->positions);
    memcpy(best->moved_to, o->moved_to, o->plan->position_count * sizeof *o->moved_to);
    best->position_count = o->count;
    best->cost = cost;
    best->live_bytes = live_bytes;
}

void ul_overlap_try(struct ul_overlap *o, struct ul_effort *effort, struct ul_overlap_result *best)
{
    struct ul_arena live;
    bool goes_on = true;
    reset(o);
    ul_arena_init(&live);
    while (goes_on && !ul_effort_spent(effort)) {
        schedule(o);
        uint64_t cost = o->clocks[0], live_bytes;
        effort->work += o->work;
        o->work = 0;
        if (o->sharing != NULL && cost >= best->cost)
            break;
        rest_put(o);
        uint32_t peak = measure(o, &live, &cost, &live_bytes);
        effort->work += o->count;
        bool fits = live_bytes <= o->limit_bytes;
        bool is_better = cost < best->cost || (cost == best->cost && live_bytes < best->live_bytes);
        if (fits && is_better)
            result_keep(o, cost, live_bytes, best);
        goes_on = !fits && cost < best->cost && hold_back(o, peak);
        ul_arena_reset(&live);
    }
    ul_arena_done(&live);
}

void ul_overlap_adopt(const struct ul_overlap *o, struct ul_arena *arena, struct ul_plan *plan)
{
    plan->position_count = o->best.position_count;
    plan->positions =
        ul_arena_copy(arena, o->best.positions, o->best.position_count * sizeof *o->best.positions);
    plan->cost = o->best.cost;
    plan->order_lower_bound_bytes = o->best.live_bytes;
}

void ul_transfer_overlap(struct ul_arena *arena, const struct ul_problem *problem,
                         uint64_t limit_bytes, struct ul_effort *effort, struct ul_plan *plan)
{
    static const struct {
        uint32_t horizon;
        bool is_by_tail;
    } ways[] = {{1, false},  {1, true},  {4, false}, {16, false},
                {64, false}, {16, true}, {64, true}};
    struct ul_plan before = *plan;
    struct ul_overlap o = {.problem = problem, .plan = &before, .limit_bytes = limit_bytes};
    ul_arena_init(&o.scratch);
    ul_timeline_build(&o.scratch, problem, UL_ALIAS_ALL, &before);
    ul_account_live(&o.scratch, &before);
    ul_account_cost(&o.scratch, problem, &before);
    plan->cost = before.cost;
    plan->order_lower_bound_bytes = before.order_lower_bound_bytes;
    bool any = before.position_count > 0 && ul_overlap_make(&o);
    o.best.cost = before.cost;
    o.best.live_bytes = before.order_lower_bound_bytes;
    for (size_t i = 0; any && i < sizeof ways / sizeof *ways; i++) {
        o.horizon = ways[i].horizon;
        o.is_by_tail = ways[i].is_by_tail;
        if (o.horizon == 1 || !o.has_copies)
            ul_overlap_try(&o, effort, &o.best);
    }
    UL_ASSERT(o.best.cost <= before.cost);
    if (any)
        ul_overlap_adopt(&o, arena, plan);
    ul_arena_done(&o.scratch);
}
