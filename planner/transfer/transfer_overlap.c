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
 * In the end it runs on stream 0, at its old place. The cheapest result of several ways wins. Left
 * undone: the order of stream 0 stays where values move to another space; steps in a loop or a
 * branch stay on stream 0. */
#include "planner/model/timeline.h"
#include "planner/transfer/transfer_internal.h"

#include <string.h>

struct item {
    uint32_t first, end; /* positions */
    uint32_t section;
    uint32_t stream;
    uint64_t cost;
    uint64_t tail; /* the longest chain of costs that begins with it */
    bool is_asynchronous;
    bool is_done; /* placed; if it still runs, not waited for */
    bool is_in_flight;
    uint64_t finish;     /* by the clock of its stream */
    uint32_t put, until; /* new positions: the first, and the wait or the last */
};

struct overlapper {
    const struct ul_problem *problem;
    const struct ul_plan *plan; /* the old plan, with its ranges */
    struct ul_arena scratch;
    uint64_t limit_bytes;
    struct item *items;
    uint32_t item_count;
    uint32_t *item_of;           /* by position */
    struct ul_plan_list *before; /* by item: earlier ones that it depends on */
    uint32_t *given;             /* by item: how many of these hold for every try */
    bool has_copies;
    uint32_t horizon; /* how many items of stream 0 are candidates for the next one */
    bool is_by_tail;  /* the longest tail goes first, not the first item */
    /* One try. */
    uint64_t clocks[UL_LIMIT_STREAMS];
    struct ul_plan_position *positions;
    uint32_t *moved_to; /* by position: its new one */
    uint32_t *new_item; /* by new position: its item on stream 0, or the first remaining one */
    uint32_t count;
    uint32_t first_left;           /* all items before it are placed */
    struct ul_plan_list waiting;   /* asynchronous items that remain */
    struct ul_plan_list in_flight; /* in the order of their places */
    uint64_t work;
};

/* ---- Items ---- */

static bool is_asynchronous(const struct overlapper *o, const struct item *item)
{
    const struct ul_plan_position *at = &o->plan->positions[item->first];
    if (at->kind != UL_PLAN_RUN || at->stream != 0)
        return false;
    const struct ul_plan_step *step = &o->problem->steps[at->step];
    return step->alternatives[at->alternative].resource != 0 && step->region == item->section &&
           step->alternatives[at->alternative].substep_count == item->end - item->first;
}

/* Puts an item of another resource on the stream of that. */
static void item_release(const struct overlapper *o, struct item *item)
{
    item->is_asynchronous = is_asynchronous(o, item);
    if (item->is_asynchronous)
        item->stream = ul_plan_resource_at(o->problem, &o->plan->positions[item->first])->stream;
}

static void item_add(struct overlapper *o, uint32_t first, uint32_t end)
{
    struct item *item = &o->items[o->item_count];
    const struct ul_plan_position *at = &o->plan->positions[first];
    *item = (struct item){.first = first,
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
    o->item_count++;
}

/* An item that needs the result of a copy gets it at the first wait for the copy. */
static uint32_t completion(const struct overlapper *o, uint32_t p)
{
    const struct ul_plan_position *positions = o->plan->positions;
    for (uint32_t w = p; positions[p].stream != 0 && w < o->plan->position_count; w++) {
        if (positions[w].kind == UL_PLAN_WAIT && positions[w].awaited >= p &&
            positions[positions[w].awaited].stream == positions[p].stream)
            return w;
    }
    return p;
}

static void edges_make(struct overlapper *o)
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
    for (uint32_t i = o->item_count; i-- > 0;) {
        o->given[i] = o->before[i].count;
        o->items[i].tail += o->items[i].cost;
        for (uint32_t b = 0; b < o->before[i].count; b++) {
            struct item *from = &o->items[o->before[i].items[b]];
            from->tail = from->tail > o->items[i].tail ? from->tail : o->items[i].tail;
        }
    }
}

static bool items_make(struct overlapper *o)
{
    uint32_t count = o->plan->position_count, first = 0;
    bool any = false;
    o->items = UL_NEW_ARRAY(&o->scratch, struct item, count);
    o->item_of = UL_NEW_ARRAY(&o->scratch, uint32_t, count);
    for (uint32_t g = 1; g <= count; g++) {
        if (!ul_transfer_is_open(o->problem, o->plan, g))
            continue;
        item_add(o, first, g);
        any = any || o->items[o->item_count - 1].is_asynchronous;
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
    return true;
}

/* ---- One schedule ---- */

static uint32_t first_left(struct overlapper *o)
{
    while (o->first_left < o->item_count && o->items[o->first_left].is_done)
        o->first_left++;
    return o->first_left;
}

/* Waits for an asynchronous item, and so for everything that its stream began before it. */
static void put_wait(struct overlapper *o, uint32_t item)
{
    const struct item *awaited = &o->items[item];
    const struct ul_plan_resource *runner = ul_problem_runner(o->problem, awaited->stream);
    uint32_t last = awaited->put + awaited->end - awaited->first - 1;
    UL_ASSERT(awaited->is_in_flight && runner != NULL);
    o->clocks[0] = ul_size_max(o->clocks[0], awaited->finish);
    if (runner->kind == UL_PLAN_COMPUTE)
        o->clocks[0] = ul_size_add_saturating(o->clocks[0], runner->latency_cost);
    uint32_t count = 0;
    for (uint32_t k = 0; k < o->in_flight.count; k++) {
        struct item *other = &o->items[o->in_flight.items[k]];
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

/* Waits for all asynchronous items that the item depends on. */
static void put_waits(struct overlapper *o, uint32_t item)
{
    for (uint32_t i = 0; i < o->before[item].count; i++) {
        const struct item *from = &o->items[o->before[item].items[i]];
        bool follows = o->items[item].is_asynchronous && from->stream == o->items[item].stream;
        if (from->is_in_flight && !follows)
            put_wait(o, o->before[item].items[i]);
    }
}

static void waiting_remove(struct overlapper *o, uint32_t item)
{
    uint32_t k = 0;
    while (k < o->waiting.count && o->waiting.items[k] != item)
        k++;
    UL_ASSERT(k < o->waiting.count);
    o->waiting.count--;
    memmove(o->waiting.items + k, o->waiting.items + k + 1,
            (o->waiting.count - k) * sizeof *o->waiting.items);
}

static void put_item(struct overlapper *o, uint32_t i)
{
    struct item *item = &o->items[i];
    UL_ASSERT(!item->is_done);
    put_waits(o, i);
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
static uint64_t start_of(struct overlapper *o, uint32_t i)
{
    const struct item *item = &o->items[i];
    uint64_t start = o->clocks[0];
    o->work += o->before[i].count + 1;
    for (uint32_t b = 0; b < o->before[i].count; b++) {
        const struct item *from = &o->items[o->before[i].items[b]];
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
static bool goes_first(const struct overlapper *o, uint32_t item, uint32_t best)
{
    return best == UL_PLAN_NONE || (o->is_by_tail && o->items[item].tail > o->items[best].tail);
}

static void begin_ready(struct overlapper *o, uint32_t end)
{
    enum { MOST = 64 };
    uint32_t next = 0, count = o->waiting.count < MOST ? o->waiting.count : MOST;
    for (; next != UL_PLAN_NONE; count--) {
        next = UL_PLAN_NONE;
        for (uint32_t k = 0; k < count && o->waiting.items[k] < end; k++) {
            uint32_t i = o->waiting.items[k];
            if (start_of(o, i) != UINT64_MAX && goes_first(o, i, next))
                next = i;
        }
        if (next != UL_PLAN_NONE)
            put_item(o, next);
    }
}

/* The next item for stream 0 before `end`: one that need not wait, or the one that waits least. */
static uint32_t next_choose(struct overlapper *o, uint32_t end)
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

static void section_put(struct overlapper *o, uint32_t end)
{
    while (o->first_left < end) {
        begin_ready(o, end);
        if (first_left(o) < end)
            put_item(o, next_choose(o, end));
    }
    while (o->in_flight.count > 0)
        put_wait(o, o->in_flight.items[o->in_flight.count - 1]);
}

static void schedule(struct overlapper *o)
{
    memset(o->clocks, 0, sizeof o->clocks);
    o->count = o->first_left = o->waiting.count = o->in_flight.count = 0;
    for (uint32_t i = 0; i < o->item_count; i++) {
        o->items[i].is_done = o->items[i].is_in_flight = false;
        if (o->items[i].is_asynchronous)
            ul_plan_list_add(&o->scratch, &o->waiting, i);
    }
    for (uint32_t i = 0, end; i < o->item_count; i = end) {
        end = i + 1;
        while (end < o->item_count && o->items[end].section == o->items[i].section)
            end++;
        section_put(o, end);
    }
    UL_ASSERT(o->count >= o->plan->position_count && o->count <= 2 * o->plan->position_count);
}

/* ---- Within the limit ---- */

/* The bytes of values that an item keeps alive and that would otherwise not live while `other`
 * runs. */
static uint64_t kept_bytes(const struct overlapper *o, uint32_t item, uint32_t other)
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

static void put_back(struct item *item)
{
    item->is_asynchronous = false;
    item->stream = 0;
}

/* Holds back the item that keeps most alive at a new position; false where none keeps anything. */
static bool hold_back(struct overlapper *o, uint32_t position)
{
    uint32_t here = o->new_item[position], worst = UL_PLAN_NONE;
    uint64_t most = 0;
    for (uint32_t i = 0; i < o->item_count && here < o->item_count; i++) {
        const struct item *item = &o->items[i];
        bool is_there =
            item->is_asynchronous && item->put <= position && (i > here || position <= item->until);
        uint64_t bytes = is_there ? kept_bytes(o, i, here) : 0;
        worst = bytes > most ? i : worst;
        most = ul_size_max(most, bytes);
    }
    if (worst == UL_PLAN_NONE) {
        /* A range that begins or ends here could be in place on stream 0. */
        for (uint32_t i = 0; i < o->item_count && worst == UL_PLAN_NONE; i++) {
            const struct item *item = &o->items[i];
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
static void reset(struct overlapper *o)
{
    for (uint32_t i = 0; i < o->item_count; i++) {
        o->before[i].count = o->given[i];
        item_release(o, &o->items[i]);
    }
}

/* Tries one way, and keeps its result if it is the best. */
static void alternative_try(struct overlapper *o, struct ul_arena *arena, struct ul_effort *effort,
                            struct ul_plan *best)
{
    struct ul_arena live;
    bool goes_on = true;
    reset(o);
    ul_arena_init(&live);
    while (goes_on && !ul_effort_spent(effort)) {
        schedule(o);
        struct ul_plan plan = {.positions = o->positions,
                               .position_count = o->count,
                               .alignment_bytes = o->plan->alignment_bytes};
        ul_timeline_build(&live, o->problem, UL_ALIAS_ALL, &plan);
        ul_account_live(&live, &plan);
        ul_account_cost(&live, o->problem, &plan);
        effort->work += o->count + o->work;
        o->work = 0;
        bool fits = plan.order_lower_bound_bytes <= o->limit_bytes;
        bool is_better = plan.cost < best->cost ||
                         (plan.cost == best->cost &&
                          plan.order_lower_bound_bytes < best->order_lower_bound_bytes);
        if (fits && is_better) {
            best->positions = ul_arena_copy(arena, o->positions, o->count * sizeof *o->positions);
            best->position_count = o->count;
            best->cost = plan.cost;
            best->order_lower_bound_bytes = plan.order_lower_bound_bytes;
        }
        goes_on = !fits && plan.cost < best->cost && hold_back(o, plan.peak_position);
        ul_arena_reset(&live);
    }
    ul_arena_done(&live);
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
    struct overlapper o = {.problem = problem, .plan = &before, .limit_bytes = limit_bytes};
    ul_arena_init(&o.scratch);
    ul_timeline_build(&o.scratch, problem, UL_ALIAS_ALL, &before);
    ul_account_live(&o.scratch, &before);
    ul_account_cost(&o.scratch, problem, &before);
    plan->cost = before.cost;
    plan->order_lower_bound_bytes = before.order_lower_bound_bytes;
    bool any = before.position_count > 0 && items_make(&o);
    for (size_t i = 0; any && i < sizeof ways / sizeof *ways; i++) {
        o.horizon = ways[i].horizon;
        o.is_by_tail = ways[i].is_by_tail;
        if (o.horizon == 1 || !o.has_copies)
            alternative_try(&o, arena, effort, plan);
    }
    UL_ASSERT(plan->cost <= before.cost);
    ul_arena_done(&o.scratch);
}
