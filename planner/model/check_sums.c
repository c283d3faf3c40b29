/* SPDX-License-Identifier: Apache-2.0 */
/* The checker's second half: the plan's claims about its sums, costs and bound. */
#include "planner/model/check.h"

#include <stdlib.h>

bool ul_checker_has(const uint32_t *ids, uint32_t count, uint32_t id)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] == id)
            return true;
    }
    return false;
}

bool ul_checker_may_leave(const struct ul_checker *c, uint32_t value)
{
    const struct ul_plan_value *v = &c->problem->values[value];
    if (!v->persistent || v->optional || v->pinned || v->stays || v->span_region != UL_PLAN_NONE)
        return false;
    for (uint32_t r = 0; r < c->problem->resource_count; r++) {
        if (c->problem->resources[r].kind == UL_PLAN_ENGINE)
            return true;
    }
    return false;
}

const struct ul_plan_resource *ul_checker_engine(const struct ul_checker *c, uint32_t space,
                                                 bool loads)
{
    const struct ul_plan_resource *rows = c->problem->resources, *first = NULL, *last = NULL;
    for (uint32_t r = c->problem->resource_count; r-- > 0;) {
        if (rows[r].kind != UL_PLAN_ENGINE || rows[r].space != space)
            continue;
        first = &rows[r];
        last = last == NULL ? first : last;
    }
    return loads ? last : first;
}

uint32_t ul_checker_entry(const struct ul_checker *c, uint32_t region)
{
    while (region != 0 && c->problem->regions[region].kind != UL_PLAN_ENTRY)
        region = c->problem->regions[region].parent;
    return region;
}

static uint64_t round_up(const struct ul_checker *c, uint64_t size_bytes)
{
    uint64_t mask = c->plan->alignment_bytes - 1;
    return (size_bytes + mask) & ~mask;
}

uint64_t ul_checker_range_bytes(const struct ul_checker *c, uint32_t range)
{
    return round_up(c, c->plan->ranges[range].size_bytes);
}

uint64_t ul_checker_range_alignment(const struct ul_checker *c, uint32_t range)
{
    const struct ul_plan_range *at = &c->plan->ranges[range];
    uint64_t own = at->value == UL_PLAN_NONE
                       ? c->problem->steps[c->plan->positions[at->begin].step]
                             .alternatives[c->plan->positions[at->begin].alternative]
                             .substeps[c->plan->positions[at->begin].substep]
                             .scratch_alignment_bytes
                       : c->problem->values[at->value].alignment_bytes;
    return own > c->plan->alignment_bytes ? own : c->plan->alignment_bytes;
}

/* ---- Bytes ---- */

static enum ul_status live_sum_check(const struct ul_checker *c)
{
    const struct ul_plan *plan = c->plan;
    uint64_t *delta = UL_NEW_ARRAY(c->scratch, uint64_t, (uint64_t)c->length + 1);
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *range = &plan->ranges[r];
        uint32_t begin = range->begin + (range->alias != UL_PLAN_NONE);
        if (range->space != 0 || begin >= range->end)
            continue;
        delta[begin] += ul_checker_range_bytes(c, r);
        delta[range->end] -= ul_checker_range_bytes(c, r);
    }
    uint64_t sum = 0, max = 0;
    uint32_t peak = 0;
    for (uint32_t p = 0; p < c->length; p++) {
        sum += delta[p];
        if (sum > max) {
            max = sum;
            peak = p;
        }
    }
    if (max != plan->order_lower_bound_bytes || peak != plan->peak_position)
        FAIL(c, "\"peak_step\": the largest live sum is %llu at position %u, not %llu at %u.",
             (unsigned long long)max, peak, (unsigned long long)plan->order_lower_bound_bytes,
             plan->peak_position);
    return UL_OK;
}

static enum ul_status rows_check(const struct ul_checker *c)
{
    const struct ul_plan *plan = c->plan;
    uint64_t by_class[UL_PLAN_CLASS_COUNT] = {0};
    uint64_t alignment = 0, total = plan->rows.holes_bytes + plan->rows.alignment_bytes;
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *range = &plan->ranges[r];
        bool handover = range->alias != UL_PLAN_NONE && range->begin == plan->peak_position;
        if (range->space != 0 || plan->peak_position < range->begin ||
            plan->peak_position >= range->end)
            continue;
        const struct ul_plan_range *bytes = handover ? &plan->ranges[range->alias] : range;
        by_class[range->class] += bytes->size_bytes;
        alignment +=
            ul_checker_range_bytes(c, (uint32_t)(bytes - plan->ranges)) - bytes->size_bytes;
        if (handover) {
            by_class[bytes->class] -= bytes->size_bytes;
            alignment -= ul_checker_range_bytes(c, range->alias) - bytes->size_bytes;
        }
    }
    for (uint32_t k = 0; k < UL_PLAN_CLASS_COUNT; k++) {
        if (by_class[k] != plan->rows.class_bytes[k])
            FAIL(c, "row \"%s\" is %llu, but at the peak, position %u, %llu bytes are of it.",
                 ul_plan_class_name((enum ul_plan_class)k),
                 (unsigned long long)plan->rows.class_bytes[k], plan->peak_position,
                 (unsigned long long)by_class[k]);
        total += plan->rows.class_bytes[k];
    }
    if (alignment != plan->rows.alignment_bytes)
        FAIL(c, "row \"alignment\" is %llu, but at the peak, position %u, it is %llu.",
             (unsigned long long)plan->rows.alignment_bytes, plan->peak_position,
             (unsigned long long)alignment);
    if (total != plan->reserved_bytes[0])
        FAIL(c, "the rows do not add up to what is reserved: %llu, not %llu.",
             (unsigned long long)total, (unsigned long long)plan->reserved_bytes[0]);
    return UL_OK;
}

/* ---- A packing that is claimed to be the smallest ---- */

/* A range, with those that take over its bytes. */
struct block {
    uint64_t size_bytes, alignment_bytes, offset_bytes;
    uint32_t begin, end;
    uint32_t index; /* breaks ties */
};

static int block_compare(const void *a, const void *b)
{
    const struct block *x = a;
    const struct block *y = b;
    if (x->size_bytes != y->size_bytes)
        return x->size_bytes > y->size_bytes ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

enum { MAX_RANGES = 2000 };
static const uint64_t MAX_BYTES = (uint64_t)1 << 48; /* of a range, so that no sum overflows */

/* The blocks of space 0 that have bytes; UL_PLAN_NONE where one is pinned, or sums may overflow. */
static uint32_t blocks_make(const struct ul_checker *c, struct block *blocks)
{
    const struct ul_plan *plan = c->plan;
    uint32_t *head = UL_NEW_ARRAY(c->scratch, uint32_t, plan->range_count);
    uint32_t count = 0;
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *range = &plan->ranges[r];
        for (head[r] = r; plan->ranges[head[r]].alias != UL_PLAN_NONE;)
            head[r] = plan->ranges[head[r]].alias;
        blocks[r] = (struct block){.begin = UINT32_MAX, .index = r};
        if (range->value != UL_PLAN_NONE && c->problem->values[range->value].pinned)
            return UL_PLAN_NONE;
    }
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *range = &plan->ranges[r];
        struct block *block = &blocks[head[r]];
        uint64_t bytes = range->space == 0 ? ul_checker_range_bytes(c, r) : 0;
        if (bytes > MAX_BYTES)
            return UL_PLAN_NONE;
        block->size_bytes = bytes > block->size_bytes ? bytes : block->size_bytes;
        block->begin = range->begin < block->begin ? range->begin : block->begin;
        block->end = range->end > block->end ? range->end : block->end;
        uint64_t alignment = ul_checker_range_alignment(c, r);
        block->alignment_bytes =
            alignment > block->alignment_bytes ? alignment : block->alignment_bytes;
    }
    for (uint32_t r = 0; r < plan->range_count; r++) {
        if (blocks[r].size_bytes > 0)
            blocks[count++] = blocks[r];
    }
    return count;
}

/* Finds the lowest place that does not overlap the blocks before it; each collision moves it up. */
static void block_place(struct block *blocks, uint32_t at)
{
    struct block *block = &blocks[at];
    for (uint32_t i = 0; i < at; i++) {
        const struct block *other = &blocks[i];
        uint64_t end = other->offset_bytes + other->size_bytes;
        if (other->begin >= block->end || block->begin >= other->end ||
            block->offset_bytes >= end ||
            other->offset_bytes >= block->offset_bytes + block->size_bytes)
            continue;
        block->offset_bytes =
            (end + block->alignment_bytes - 1) / block->alignment_bytes * block->alignment_bytes;
        i = UINT32_MAX; /* start again from the first */
    }
}

/* Places blocks by size, each as low as possible: this packing must not be smaller than one that is
 * claimed to be the smallest. */
static enum ul_status packing_check(const struct ul_checker *c)
{
    const struct ul_plan *plan = c->plan;
    uint64_t top = 0;
    if (!plan->packing_proven || plan->range_count > MAX_RANGES ||
        plan->reserved_bytes[0] == plan->order_lower_bound_bytes)
        return UL_OK;
    struct block *blocks = UL_NEW_ARRAY(c->scratch, struct block, plan->range_count);
    uint32_t count = blocks_make(c, blocks);
    if (count == UL_PLAN_NONE)
        return UL_OK;
    qsort(blocks, count, sizeof *blocks, block_compare);
    for (uint32_t i = 0; i < count; i++) {
        block_place(blocks, i);
        uint64_t end = blocks[i].offset_bytes + blocks[i].size_bytes;
        top = end > top ? end : top;
    }
    if (top < plan->reserved_bytes[0])
        FAIL(c, "\"proven\": largest first, these ranges take only %llu bytes.",
             (unsigned long long)top);
    return UL_OK;
}

/* ---- Costs ---- */

/* The cost of a wait for a run: the latency of its stream's row, if that computes; if the stream
 * has no row, that of the first other row that computes. */
static uint64_t wait_duration(const struct ul_checker *c, const struct ul_plan_position *awaited)
{
    uint64_t cost = 0;
    for (uint32_t r = c->problem->resource_count; awaited->kind == UL_PLAN_RUN && r-- > 1;) {
        const struct ul_plan_resource *row = &c->problem->resources[r];
        cost = row->kind == UL_PLAN_COMPUTE ? row->latency_cost : cost;
    }
    for (uint32_t r = 1; awaited->kind == UL_PLAN_RUN && r < c->problem->resource_count; r++) {
        const struct ul_plan_resource *row = &c->problem->resources[r];
        if (row->kind != UL_PLAN_ENGINE && row->stream == awaited->stream)
            cost = row->kind == UL_PLAN_COMPUTE ? row->latency_cost : 0;
    }
    return cost;
}

/* The time of a position alone: a run at its first substep; a transfer by its engine; a wait for a
 * run the cost of waiting. */
static uint64_t duration_of(const struct ul_checker *c, const struct ul_plan_position *at)
{
    uint64_t scaled, sum;
    if (at->kind == UL_PLAN_RUN)
        return at->substep > 0 ? 0 : c->problem->steps[at->step].alternatives[at->alternative].cost;
    if (at->kind == UL_PLAN_WAIT)
        return wait_duration(c, &c->plan->positions[at->awaited]);
    const struct ul_plan_resource *engine = ul_checker_engine(c, at->space, at->loads);
    if (engine->bandwidth_mb == 0)
        return engine->latency_cost;
    if (!ul_size_mul(c->problem->values[at->value].size_bytes, 1000, &scaled))
        scaled = UINT64_MAX;
    return ul_size_add(scaled / engine->bandwidth_mb, engine->latency_cost, &sum) ? sum
                                                                                  : UINT64_MAX;
}

/* When the last position of stream 0 ends. */
static uint64_t finish_of(const struct ul_checker *c)
{
    uint64_t *end = UL_NEW_ARRAY(c->scratch, uint64_t, c->plan->position_count);
    uint64_t stream_end[UL_LIMIT_STREAMS] = {0};
    for (uint32_t p = 0; p < c->plan->position_count; p++) {
        const struct ul_plan_position *at = &c->plan->positions[p];
        uint32_t queue = at->stream; /* runs of stream 0 on another resource wait there too */
        if (at->kind == UL_PLAN_RUN && at->stream == 0)
            queue =
                c->problem
                    ->resources[c->problem->steps[at->step].alternatives[at->alternative].resource]
                    .stream;
        uint64_t begin = stream_end[0];
        if (stream_end[at->stream] > begin)
            begin = stream_end[at->stream];
        if (stream_end[queue] > begin)
            begin = stream_end[queue];
        if (at->kind == UL_PLAN_WAIT && end[at->awaited] > begin)
            begin = end[at->awaited];
        if (!ul_size_add(begin, duration_of(c, at), &end[p]))
            end[p] = UINT64_MAX;
        stream_end[at->stream] = stream_end[queue] = end[p];
    }
    return stream_end[0];
}

/* Checks claims about the cost under a budget; `steps_cost` is every step once by its fastest
 * alternative, for the resource with the most work. The planner alone claims a bound above that. */
static enum ul_status cost_bound_check(const struct ul_checker *c, uint64_t steps_cost)
{
    const struct ul_plan *plan = c->plan;
    if (plan->cost_bound == 0)
        return UL_OK;
    if (plan->cost_bound < steps_cost)
        FAIL(c, "\"cost_bound\" is below the %llu that every step takes once.",
             (unsigned long long)steps_cost);
    if (plan->cost_bound_method != NULL && plan->cost_bound == steps_cost)
        FAIL(c, "\"cost_bound_method\" names what proves no more than every step once.");
    if (plan->fits && plan->cost_bound > plan->cost)
        FAIL(c, "\"cost_bound\": the bound of the cost is above the cost.");
    if (plan->optimal && !(plan->fits && plan->cost_bound == plan->cost))
        FAIL(c, "\"optimal\" contradicts the cost and its bound.");
    if (plan->optimal && c->problem->base_cost != 0)
        FAIL(c, "\"optimal\" of one rewriting of a program, which no bound is about.");
    if (!plan->optimal && plan->fits && plan->cost_bound == plan->cost &&
        c->problem->base_cost == 0)
        FAIL(c, "\"optimal\" is not said of a plan that costs just the bound.");
    if (plan->cost_bound > steps_cost && !(plan->fits && plan->cost_bound_method != NULL))
        FAIL(c,
             "\"cost_bound\" is above the %llu that every step takes once, and no method of a "
             "plan that fits proves it.",
             (unsigned long long)steps_cost);
    return UL_OK;
}

uint32_t ul_checker_cheapest(const struct ul_plan_step *step)
{
    uint32_t cheapest = 0;
    for (uint32_t a = 1; a < step->alternative_count; a++) {
        const struct ul_plan_alternative *at = &step->alternatives[a];
        const struct ul_plan_alternative *best = &step->alternatives[cheapest];
        if (at->cost < best->cost ||
            (at->cost == best->cost && best->other_bits && !at->other_bits))
            cheapest = a;
    }
    return cheapest;
}

/* The time of the steps that only one resource can run, for the busiest one. */
static uint64_t busiest_cost(const struct ul_checker *c)
{
    uint64_t *sums = UL_NEW_ARRAY(c->scratch, uint64_t, c->problem->resource_count), most = 0;
    for (uint32_t s = 0; s < c->problem->step_count; s++) {
        const struct ul_plan_step *step = &c->problem->steps[s];
        const struct ul_plan_alternative *first = step->alternatives;
        uint64_t min = first->cost;
        for (uint32_t a = 1; a < step->alternative_count; a++) {
            min = first[a].cost < min ? first[a].cost : min;
            min = first[a].resource != first->resource ? 0 : min;
        }
        sums[first->resource] += min;
    }
    for (uint32_t r = 0; r < c->problem->resource_count; r++)
        most = sums[r] > most ? sums[r] : most;
    return most;
}

static enum ul_status cost_check(const struct ul_checker *c)
{
    uint64_t cost = finish_of(c), base = 0;
    for (uint32_t s = 0; s < c->problem->step_count; s++) {
        const struct ul_plan_step *step = &c->problem->steps[s];
        uint64_t min = UINT64_MAX;
        for (uint32_t a = 0; a < step->alternative_count; a++)
            min = step->alternatives[a].cost < min ? step->alternatives[a].cost : min;
        base += min;
    }
    uint64_t steps_cost = busiest_cost(c);
    cost = ul_size_add_saturating(cost, c->bank_cost);
    base = ul_size_add_saturating(base, c->least_bank_cost);
    if (c->problem->base_cost != 0)
        base = c->problem->base_cost;
    if (cost != c->plan->cost || base != c->plan->base_cost)
        FAIL(c, "the costs do not add up.");
    return cost_bound_check(c, steps_cost);
}

/* ---- The bound over all plans ---- */

/* Whether a value is counted where a substep touches it. Outputs that may be in an input's place
 * are free; values that always live are counted elsewhere; so are values that the substep has
 * touched before. */
static bool counts_in_substep(const struct ul_checker *c, const struct ul_plan_substep *substep,
                              uint32_t touched, bool leaves)
{
    bool is_read = touched < substep->read_count;
    uint32_t value =
        is_read ? substep->reads[touched] : substep->writes[touched - substep->read_count];
    const struct ul_plan_value *v = &c->problem->values[value];
    if (v->space != 0 || (leaves ? !ul_checker_may_leave(c, value) : v->persistent))
        return false;
    for (uint32_t i = 0; i < substep->in_place_count; i++) {
        if (!leaves && substep->in_place[i].output == value)
            return false;
    }
    if (is_read)
        return !ul_checker_has(substep->reads, touched, value);
    return !ul_checker_has(substep->reads, substep->read_count, value) &&
           !ul_checker_has(substep->writes, touched - substep->read_count, value);
}

/* Includes what the substep touches of values that may be at home elsewhere, or `kept_bytes` of
 * it. */
static uint64_t substep_bytes(const struct ul_checker *c, const struct ul_plan_substep *substep,
                              uint64_t kept_bytes)
{
    uint64_t bytes = substep->scratch_space == 0 ? round_up(c, substep->scratch_bytes) : 0;
    uint64_t leaving = 0;
    for (uint32_t i = 0; i < substep->read_count + substep->write_count; i++) {
        uint32_t value =
            i < substep->read_count ? substep->reads[i] : substep->writes[i - substep->read_count];
        if (counts_in_substep(c, substep, i, false))
            bytes += round_up(c, c->problem->values[value].size_bytes);
        if (counts_in_substep(c, substep, i, true))
            leaving += round_up(c, c->problem->values[value].size_bytes);
    }
    return bytes + (leaving > kept_bytes ? leaving : kept_bytes);
}

/* All that is live when an entry (or the root, if there is none) begins, or when it ends. */
static uint64_t ends_bytes(const struct ul_checker *c, uint64_t *always)
{
    uint64_t bytes = 0;
    *always = 0;
    for (uint32_t r = 0; r < c->problem->region_count; r++) {
        uint64_t start = 0, end = 0;
        for (uint32_t i = 0; i < c->problem->value_count && ul_checker_entry(c, r) == r; i++) {
            const struct ul_plan_value *v = &c->problem->values[i];
            uint64_t size = v->space == 0 ? round_up(c, v->size_bytes) : 0;
            *always +=
                r == 0 && v->persistent && !v->optional && !ul_checker_may_leave(c, i) ? size : 0;
            if (c->entry[i] != r || v->persistent)
                continue;
            start += v->live_from_start ? size : 0;
            end += v->live_to_end ? size : 0;
        }
        bytes = start > bytes ? start : bytes;
        bytes = end > bytes ? end : bytes;
    }
    return bytes;
}

struct optional_parts {
    uint64_t *seen; /* by value: the round that met it last */
    uint64_t round;
    uint64_t *readers; /* by value: steps that may read it; 0 while that is counted */
};

/* Visits each optional value of space 0 that an alternative reads, once in each round: counts its
 * readers or, where they are known, returns the sum of their even parts. */
static uint64_t parts_meet(const struct ul_checker *c, struct optional_parts *parts,
                           const struct ul_plan_alternative *alternative, bool is_count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < alternative->substep_count; i++) {
        for (uint32_t k = 0; k < alternative->substeps[i].read_count; k++) {
            uint32_t v = alternative->substeps[i].reads[k];
            const struct ul_plan_value *value = &c->problem->values[v];
            if (!value->optional || value->space != 0 || parts->seen[v] == parts->round)
                continue;
            parts->seen[v] = parts->round;
            if (is_count)
                parts->readers[v]++;
            else
                sum += round_up(c, value->size_bytes) / parts->readers[v];
        }
    }
    return sum;
}

/* What optional values take in any plan: each step reads at least those of one alternative, and
 * each step that may read a value has an even part of it. */
static uint64_t optional_bytes(const struct ul_checker *c)
{
    struct optional_parts parts = {.round = 0};
    uint64_t bytes = 0;
    parts.seen = UL_NEW_ARRAY(c->scratch, uint64_t, c->problem->value_count);
    parts.readers = UL_NEW_ARRAY(c->scratch, uint64_t, c->problem->value_count);
    for (uint32_t s = 0; s < c->problem->step_count; s++) {
        parts.round++;
        for (uint32_t a = 0; a < c->problem->steps[s].alternative_count; a++)
            (void)parts_meet(c, &parts, &c->problem->steps[s].alternatives[a], true);
    }
    for (uint32_t s = 0; s < c->problem->step_count; s++) {
        uint64_t least = UINT64_MAX;
        for (uint32_t a = 0; a < c->problem->steps[s].alternative_count; a++) {
            parts.round++;
            uint64_t part = parts_meet(c, &parts, &c->problem->steps[s].alternatives[a], false);
            least = part < least ? part : least;
        }
        bytes += least;
    }
    return bytes;
}

/* Whether the plan is only an order: every step once, by its cheapest alternative. */
static bool is_an_order(const struct ul_checker *c)
{
    for (uint32_t p = 0; p < c->plan->position_count; p++) {
        const struct ul_plan_position *at = &c->plan->positions[p];
        if (at->kind != UL_PLAN_RUN || at->stream != 0 || at->copy > 0)
            return false;
        if (at->alternative != ul_checker_cheapest(&c->problem->steps[at->step]))
            return false;
    }
    return true;
}

/* What lives at each position of the order of the file. */
struct file_order {
    uint32_t length;
    uint32_t *begin, *end; /* by value: positions that touch it, half-open */
    uint32_t *region;      /* by value: the loop or entry around the first step that touches it */
    bool *crosses;         /* by value: a step in another one, or in none, touches it too */
    uint64_t *scratch;     /* by position */
};

static void file_order_note(struct file_order *order, uint32_t value, uint32_t region)
{
    if (order->end[value] == 0) {
        order->begin[value] = order->length;
        order->region[value] = region;
    }
    order->crosses[value] |= order->region[value] != region;
    order->end[value] = order->length + 1;
}

/* The innermost loop or entry around the region, or 0. */
static uint32_t loop_around(const struct ul_problem *problem, uint32_t region)
{
    while (region != 0 && problem->regions[region].kind != UL_PLAN_LOOP &&
           problem->regions[region].kind != UL_PLAN_ENTRY)
        region = problem->regions[region].parent;
    return region;
}

static void file_order_walk(const struct ul_checker *c, struct file_order *order)
{
    for (uint32_t s = 0; s < c->problem->step_count; s++) {
        const struct ul_plan_step *step = &c->problem->steps[s];
        const struct ul_plan_alternative *way = &step->alternatives[ul_checker_cheapest(step)];
        uint32_t region = loop_around(c->problem, step->region);
        for (uint32_t i = 0; i < way->substep_count; i++) {
            const struct ul_plan_substep *substep = &way->substeps[i];
            for (uint32_t k = 0; k < substep->read_count; k++)
                file_order_note(order, substep->reads[k], region);
            for (uint32_t k = 0; k < substep->write_count; k++)
                file_order_note(order, substep->writes[k], region);
            order->scratch[order->length++] =
                substep->scratch_space == 0 ? round_up(c, substep->scratch_bytes) : 0;
        }
    }
}

/* The largest live sum of the file's order where nothing takes over an input. Some order needs no
 * more, so no bound over all orders is above it. A value that may not live in one interval, since
 * it crosses a loop or an entry, counts at every position. */
static uint64_t file_order_bytes(const struct ul_checker *c)
{
    struct file_order order = {.length = 0};
    uint32_t count = c->problem->value_count, room = 1;
    for (uint32_t s = 0; s < c->problem->step_count; s++) {
        const struct ul_plan_step *step = &c->problem->steps[s];
        room += step->alternatives[ul_checker_cheapest(step)].substep_count;
    }
    order.begin = UL_NEW_ARRAY(c->scratch, uint32_t, count);
    order.end = UL_NEW_ARRAY(c->scratch, uint32_t, count);
    order.region = UL_NEW_ARRAY(c->scratch, uint32_t, count);
    order.crosses = UL_NEW_ARRAY(c->scratch, bool, count);
    order.scratch = UL_NEW_ARRAY(c->scratch, uint64_t, room);
    uint64_t *change = UL_NEW_ARRAY(c->scratch, uint64_t, (uint64_t)room + 1);
    file_order_walk(c, &order);
    for (uint32_t v = 0; v < count; v++) {
        const struct ul_plan_value *value = &c->problem->values[v];
        bool is_wide = value->persistent || value->span_region != UL_PLAN_NONE ||
                       value->live_from_start || value->live_to_end || order.end[v] == 0 ||
                       order.crosses[v];
        uint64_t bytes = value->space == 0 ? round_up(c, value->size_bytes) : 0;
        change[is_wide ? 0 : order.begin[v]] += bytes;
        change[is_wide ? room : order.end[v]] -= bytes;
    }
    uint64_t sum = 0, most = 0;
    for (uint32_t p = 0; p < room; p++) {
        sum += change[p];
        uint64_t live = sum + order.scratch[p];
        most = live > most ? live : most;
    }
    return most;
}

/* A bound over all orders is neither above this plan's order nor above the file's. */
static enum ul_status orders_bound_check(const struct ul_checker *c)
{
    const struct ul_plan *plan = c->plan;
    uint64_t of_file = file_order_bytes(c);
    if (plan->orders_lower_bound_bytes > of_file &&
        plan->orders_lower_bound_bytes > plan->lower_bound_bytes)
        FAIL(c, "\"orders_lower_bound_bytes\" is %llu, but the file's order needs at most %llu.",
             (unsigned long long)plan->orders_lower_bound_bytes, (unsigned long long)of_file);
    if (plan->orders_lower_bound_bytes > plan->order_lower_bound_bytes && is_an_order(c))
        FAIL(c, "\"orders_lower_bound_bytes\" is %llu, but this order needs only %llu.",
             (unsigned long long)plan->orders_lower_bound_bytes,
             (unsigned long long)plan->order_lower_bound_bytes);
    return UL_OK;
}

/* The part of values that may be at home elsewhere for which no other space has room. */
static uint64_t kept_bytes(const struct ul_checker *c)
{
    uint64_t leaving = 0;
    for (uint32_t v = 0; v < c->problem->value_count; v++) {
        if (c->problem->values[v].space == 0 && ul_checker_may_leave(c, v))
            leaving += round_up(c, c->problem->values[v].size_bytes);
    }
    for (uint32_t s = 0; s < c->problem->space_count; s++) {
        uint64_t capacity = c->problem->spaces[s].capacity_bytes;
        if (ul_checker_engine(c, s, false) != NULL)
            leaving -= capacity == 0 || capacity > leaving ? leaving : capacity;
    }
    return leaving;
}

/* What the neediest step touches, by its least needy alternative, in addition to all persistent
 * values; or all inputs, or all outputs. */
static enum ul_status bound_check(const struct ul_checker *c)
{
    uint64_t always, kept = kept_bytes(c), ends = ends_bytes(c, &always) + kept;
    uint64_t bound = ends;
    always += optional_bytes(c);
    for (uint32_t s = 0; s < c->problem->step_count; s++) {
        const struct ul_plan_step *step = &c->problem->steps[s];
        uint64_t min = UINT64_MAX;
        for (uint32_t a = 0; a < step->alternative_count; a++) {
            uint64_t max = 0;
            for (uint32_t i = 0; i < step->alternatives[a].substep_count; i++) {
                uint64_t bytes = substep_bytes(c, &step->alternatives[a].substeps[i], kept);
                max = bytes > max ? bytes : max;
            }
            min = max < min ? max : min;
        }
        bound = min > bound ? min : bound;
    }
    if (c->plan->lower_bound_bytes != always + bound)
        FAIL(c, "the lower bound is %llu, not %llu.", (unsigned long long)(always + bound),
             (unsigned long long)c->plan->lower_bound_bytes);
    /* Another rewriting of the program may need less, except for what is live at its ends. Budgets
     * of a process bound more than that, but not rows of tables that are never looked up. */
    uint64_t bounded = c->plan->bounded_bytes;
    bool is_of_space = bounded == 0 || bounded == c->plan->reserved_bytes[0];
    if ((is_of_space && c->plan->smallest_budget_bytes < always + ends) ||
        c->plan->smallest_budget_bytes > (bounded == 0 ? c->plan->reserved_bytes[0] : bounded))
        FAIL(c,
             "\"smallest_budget_bytes\" is above what is bounded, or below the %llu bytes of "
             "what always lives, inputs and outputs.",
             (unsigned long long)(always + ends));
    return orders_bound_check(c);
}

enum ul_status ul_checker_sums(const struct ul_checker *c)
{
    UL_TRY(live_sum_check(c));
    UL_TRY(rows_check(c));
    UL_TRY(packing_check(c));
    UL_TRY(cost_check(c));
    return bound_check(c);
}
