/* SPDX-License-Identifier: Apache-2.0 */
/* The sums of a plan: live bytes by position, the rows of the table, and the bounds.
 *
 * A range that takes over another's bytes counts from the position after the one where both are
 * live, since the older range, which is longer, already holds the bytes there:
 *
 *     position   0   1   2   3   4
 *     x          [-------)           x counts at 0 and 1
 *     y (x)          [-----------)   y counts at 2 and 3 */
#include "planner/model/optional.h"
#include "planner/model/timeline.h"

static uint32_t counted_begin(const struct ul_plan_range *range)
{
    return range->alias == UL_PLAN_NONE ? range->begin : range->begin + 1;
}

static uint64_t padded(const struct ul_plan *plan, uint64_t size_bytes)
{
    return ul_size_align_or_die(size_bytes, plan->alignment_bytes);
}

static void rows_fill(struct ul_arena *scratch, struct ul_plan *plan)
{
    uint32_t peak = plan->peak_position;
    /* At the peak the newest member of a chain gives the class, the oldest one the bytes. */
    uint32_t *taker = UL_NEW_ARRAY(scratch, uint32_t, plan->range_count);
    for (uint32_t r = 0; r < plan->range_count; r++)
        taker[r] = r;
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *range = &plan->ranges[r];
        if (range->alias != UL_PLAN_NONE && range->begin == peak)
            taker[range->alias] = r;
    }
    plan->rows = (struct ul_plan_rows){.alignment_bytes = 0};
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *range = &plan->ranges[r];
        if (range->space != 0 || peak < counted_begin(range) || peak >= range->end)
            continue;
        plan->rows.class_bytes[plan->ranges[taker[r]].class] += range->size_bytes;
        plan->rows.alignment_bytes += padded(plan, range->size_bytes) - range->size_bytes;
    }
}

static uint32_t timeline_length(const struct ul_plan *plan)
{
    return plan->position_count > 0 ? plan->position_count : 1;
}

uint64_t *ul_account_live_sums(struct ul_arena *arena, const struct ul_plan *plan)
{
    UL_ASSERT(plan->alignment_bytes > 0);
    uint32_t length = timeline_length(plan);
    uint64_t *sums = UL_NEW_ARRAY(arena, uint64_t, (uint64_t)length + 1);
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *range = &plan->ranges[r];
        if (range->space != 0 || counted_begin(range) >= range->end)
            continue;
        sums[counted_begin(range)] += padded(plan, range->size_bytes);
        sums[range->end] -= padded(plan, range->size_bytes);
    }
    for (uint32_t p = 1; p < length; p++)
        sums[p] += sums[p - 1];
    return sums;
}

void ul_account_live(struct ul_arena *arena, struct ul_plan *plan)
{
    const uint64_t *sums = ul_account_live_sums(arena, plan);
    plan->order_lower_bound_bytes = 0;
    plan->peak_position = 0;
    for (uint32_t p = 0; p < timeline_length(plan); p++) {
        if (sums[p] > plan->order_lower_bound_bytes) {
            plan->order_lower_bound_bytes = sums[p];
            plan->peak_position = p;
        }
    }
    rows_fill(arena, plan);
}

/* ---- Cost ---- */

static uint64_t wait_cost(const struct ul_problem *problem, const struct ul_plan_position *awaited)
{
    const struct ul_plan_resource *runner = ul_problem_runner(problem, awaited->stream);
    bool joins = awaited->kind == UL_PLAN_RUN && runner != NULL && runner->kind == UL_PLAN_COMPUTE;
    return joins ? runner->latency_cost : 0;
}

static uint64_t position_cost(const struct ul_problem *problem, const struct ul_plan *plan,
                              const struct ul_plan_position *position)
{
    return position->kind == UL_PLAN_WAIT ? wait_cost(problem, &plan->positions[position->awaited])
                                          : ul_plan_cost_at(problem, position);
}

/* Streams run at the same time: each has a clock, and a wait sets that of stream 0 to the time when
 * what it waits for is done. A run of stream 0 on another resource occupies both. */
struct ul_account_span *ul_account_spans(struct ul_arena *arena, const struct ul_problem *problem,
                                         const struct ul_plan *plan)
{
    uint64_t clocks[UL_LIMIT_STREAMS] = {0};
    struct ul_account_span *spans =
        UL_NEW_ARRAY(arena, struct ul_account_span, plan->position_count);
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct ul_plan_position *at = &plan->positions[p];
        bool is_elsewhere = at->kind == UL_PLAN_RUN && at->stream == 0;
        uint64_t *clock = &clocks[at->stream];
        uint64_t *queue = is_elsewhere ? &clocks[ul_plan_resource_at(problem, at)->stream] : clock;
        *clock = *clock > clocks[0] ? *clock : clocks[0];
        *clock = *clock > *queue ? *clock : *queue;
        spans[p].begin = *clock;
        if (at->kind == UL_PLAN_WAIT && spans[at->awaited].end > *clock)
            *clock = spans[at->awaited].end;
        *clock = ul_size_add_saturating(*clock, position_cost(problem, plan, at));
        *queue = *clock;
        spans[p].end = *clock;
    }
    return spans;
}

void ul_account_cost(struct ul_arena *arena, const struct ul_problem *problem, struct ul_plan *plan)
{
    const struct ul_account_span *spans = ul_account_spans(arena, problem, plan);
    plan->cost = 0;
    for (uint32_t p = 0; p < plan->position_count; p++)
        plan->cost = plan->positions[p].stream == 0 ? spans[p].end : plan->cost;
    plan->base_cost = problem->base_cost;
    if (problem->base_cost != 0)
        return;
    plan->base_cost = ul_problem_min_cost(problem);
    if (plan->bank_count > 0)
        plan->base_cost =
            ul_size_add_saturating(plan->base_cost, ul_problem_min_moving_cost(problem));
}

/* ---- What is moved ---- */

static void moved_add(const struct ul_problem *problem, const struct ul_plan *plan, uint32_t p,
                      uint64_t *moved_bytes)
{
    const struct ul_plan_substep *substep = ul_substep_at(problem, &plan->positions[p]);
    for (uint32_t i = 0; i < substep->read_count + substep->write_count; i++) {
        uint32_t value =
            i < substep->read_count ? substep->reads[i] : substep->writes[i - substep->read_count];
        if (problem->values[value].space != 0)
            continue;
        const struct ul_plan_range *range = ul_plan_find_range(problem, plan, value, p);
        if (range == NULL)
            continue;
        uint64_t *bytes = &moved_bytes[range - plan->ranges];
        *bytes = ul_size_add_saturating(*bytes, ul_substep_moves(problem, substep, i));
    }
}

uint64_t *ul_account_moved(struct ul_arena *arena, const struct ul_problem *problem,
                           const struct ul_plan *plan)
{
    uint64_t *moved_bytes = UL_NEW_ARRAY(arena, uint64_t, plan->range_count);
    for (uint32_t p = 0; p < plan->position_count; p++)
        if (plan->positions[p].kind == UL_PLAN_RUN)
            moved_add(problem, plan, p, moved_bytes);
    for (uint32_t r = plan->value_ranges[problem->value_count]; r < plan->range_count; r++) {
        const struct ul_plan_substep *substep =
            ul_substep_at(problem, &plan->positions[plan->ranges[r].begin]);
        if (plan->ranges[r].space == 0)
            moved_bytes[r] =
                ul_substep_moves(problem, substep, substep->read_count + substep->write_count);
    }
    return moved_bytes;
}

/* ---- The bound over everything ---- */

/* A persistent value that may be at home in another space is in space 0 where a step touches it;
 * elsewhere, it counts as far as the other space has no room for it. */
struct bound {
    const struct ul_problem *problem;
    uint64_t alignment_bytes;
    uint64_t *seen; /* by value: stamp of the last substep that counted it */
    uint64_t stamp;
    bool is_beside; /* persistent values are counted elsewhere */
    /* of values that may be elsewhere, at least this much is here at any time */
    uint64_t kept_bytes;
};

static bool may_be_elsewhere(const struct ul_problem *problem, const struct ul_plan_value *value)
{
    return ul_problem_other_space(problem) != UL_PLAN_NONE && value->persistent &&
           ul_value_may_move(value);
}

/* UINT64_MAX: without limit. */
static uint64_t room_elsewhere(const struct ul_problem *problem)
{
    uint64_t room = 0;
    for (uint32_t s = 0; s < problem->space_count; s++) {
        uint64_t capacity = problem->spaces[s].capacity_bytes;
        if (ul_problem_engine(problem, s, false) != NULL)
            room = ul_size_add_saturating(room, capacity == 0 ? UINT64_MAX : capacity);
    }
    return room;
}

/* Adds a value that the substep has not touched before to what it needs, or to what it touches of
 * values that may be elsewhere. */
static void bound_count(struct bound *b, uint32_t value, uint64_t *need, uint64_t *elsewhere)
{
    const struct ul_plan_value *at = &b->problem->values[value];
    if (at->space != 0 || b->seen[value] == b->stamp)
        return;
    b->seen[value] = b->stamp;
    uint64_t bytes = ul_size_align_or_die(at->size_bytes, b->alignment_bytes);
    if (!at->persistent)
        *need += bytes;
    else if (!b->is_beside && may_be_elsewhere(b->problem, at))
        *elsewhere += bytes;
}

/* Bytes of everything that one substep touches, less the most that in-place could save. */
static uint64_t substep_need(struct bound *b, const struct ul_plan_substep *substep)
{
    uint64_t need = 0, elsewhere = 0;
    b->stamp++;
    for (uint32_t i = 0; i < substep->in_place_count; i++) {
        /* An output that may have an input's bytes is assumed to have them, at no cost. */
        uint32_t output = substep->in_place[i].output;
        if (!b->problem->values[output].persistent)
            b->seen[output] = b->stamp;
    }
    for (uint32_t i = 0; i < substep->read_count; i++)
        bound_count(b, substep->reads[i], &need, &elsewhere);
    for (uint32_t i = 0; i < substep->write_count; i++)
        bound_count(b, substep->writes[i], &need, &elsewhere);
    if (substep->scratch_space == 0)
        need += ul_size_align_or_die(substep->scratch_bytes, b->alignment_bytes);
    return need + (elsewhere > b->kept_bytes ? elsewhere : b->kept_bytes);
}

static uint64_t alternative_need(struct bound *b, const struct ul_plan_alternative *alternative)
{
    uint64_t max = 0;
    for (uint32_t i = 0; i < alternative->substep_count; i++) {
        uint64_t need = substep_need(b, &alternative->substeps[i]);
        max = need > max ? need : max;
    }
    return max;
}

static uint64_t step_need(struct bound *b, const struct ul_plan_step *step)
{
    uint64_t min = UINT64_MAX;
    for (uint32_t i = 0; i < step->alternative_count; i++) {
        uint64_t need = alternative_need(b, &step->alternatives[i]);
        min = need < min ? need : min;
    }
    return min;
}

uint64_t **ul_account_needs(struct ul_arena *arena, const struct ul_problem *problem,
                            uint64_t alignment_bytes)
{
    UL_ASSERT(alignment_bytes > 0);
    struct bound b = {.problem = problem, .alignment_bytes = alignment_bytes, .is_beside = true};
    b.seen = UL_NEW_ARRAY(arena, uint64_t, problem->value_count);
    uint64_t **needs = UL_NEW_ARRAY(arena, uint64_t *, problem->step_count);
    for (uint32_t s = 0; s < problem->step_count; s++) {
        const struct ul_plan_step *step = &problem->steps[s];
        needs[s] = UL_NEW_ARRAY(arena, uint64_t, step->alternative_count);
        for (uint32_t a = 0; a < step->alternative_count; a++)
            needs[s][a] = alternative_need(&b, &step->alternatives[a]);
    }
    return needs;
}

/* What is live together before an entry's first step, or after its last. Persistent values that may
 * be elsewhere are counted in *elsewhere. */
static uint64_t ends_need(struct ul_arena *arena, const struct ul_problem *problem,
                          uint64_t alignment_bytes, uint64_t *persistent, uint64_t *elsewhere)
{
    const uint32_t *entries = ul_value_entries(arena, problem);
    uint64_t *at_start = UL_NEW_ARRAY(arena, uint64_t, problem->region_count);
    uint64_t *at_end = UL_NEW_ARRAY(arena, uint64_t, problem->region_count);
    uint64_t max = 0;
    for (uint32_t v = 0; v < problem->value_count; v++) {
        const struct ul_plan_value *value = &problem->values[v];
        uint64_t bytes = ul_size_align_or_die(value->size_bytes, alignment_bytes);
        if (value->space != 0)
            continue;
        if (may_be_elsewhere(problem, value))
            *elsewhere += bytes;
        else if (value->persistent)
            *persistent += value->optional ? 0 : bytes;
        else if (value->live_from_start)
            at_start[entries[v]] += bytes;
        if (value->live_to_end && !value->persistent)
            at_end[entries[v]] += bytes;
    }
    for (uint32_t r = 0; r < problem->region_count; r++) {
        max = at_start[r] > max ? at_start[r] : max;
        max = at_end[r] > max ? at_end[r] : max;
    }
    return max;
}

/* What always lives in space 0, and the ends; of values that may be elsewhere, the part without
 * room there. */
static uint64_t ends_bound(struct ul_arena *arena, const struct ul_problem *problem,
                           uint64_t alignment_bytes, uint64_t *persistent, uint64_t *kept_bytes)
{
    uint64_t elsewhere = 0, room = room_elsewhere(problem);
    *persistent = ul_optional_bound(arena, problem, alignment_bytes);
    uint64_t ends = ends_need(arena, problem, alignment_bytes, persistent, &elsewhere);
    *kept_bytes = elsewhere > room ? elsewhere - room : 0;
    return ends + *kept_bytes;
}

uint64_t ul_account_ends_bound(struct ul_arena *arena, const struct ul_problem *problem,
                               uint64_t alignment_bytes)
{
    uint64_t persistent, kept;
    uint64_t ends = ends_bound(arena, problem, alignment_bytes, &persistent, &kept);
    return persistent + ends;
}

uint64_t ul_account_bound(struct ul_arena *arena, const struct ul_problem *problem,
                          uint64_t alignment_bytes)
{
    UL_ASSERT(alignment_bytes > 0);
    struct bound b = {.problem = problem, .alignment_bytes = alignment_bytes};
    uint64_t persistent;
    b.seen = UL_NEW_ARRAY(arena, uint64_t, problem->value_count);
    uint64_t max = ends_bound(arena, problem, alignment_bytes, &persistent, &b.kept_bytes);
    for (uint32_t s = 0; s < problem->step_count; s++) {
        uint64_t need = step_need(&b, &problem->steps[s]);
        max = need > max ? need : max;
    }
    return persistent + max;
}
