/* From an order of positions to live ranges and alias decisions.
 *
 * Problem: each (value, copy) is live from the position that first writes it through the last
 * that touches it. Regions bend that: a loop runs its positions again, so what is touched both
 * inside and outside of it must survive the whole of it.
 *
 *     position   0   1   2   3   4   5
 *     loop               [-------)
 *     a          w           r            live [0, 4) stretched to [0, 5)
 *     b                  w   r            live [2, 4): only inside
 *
 * Method: one walk over the positions for begin and end, one for the loops, one for in-place
 * options, in order of position, each input taken over at most once.
 * Left undone: a value of an If that both branches write stays live between the two writes. */
#include "planner/model/timeline.h"

#include <string.h>

struct timeline {
    const struct ul_problem *problem;
    struct ul_plan *plan;
    struct ul_arena scratch;
    uint32_t *copies; /* per value: copies so far */
    uint32_t *taken;  /* per range: the range that took its bytes over, or UL_PLAN_NONE */
    uint32_t *loop_begin, *loop_end; /* per region: its positions */
};

const struct ul_plan_substep *ul_substep_at(const struct ul_problem *problem,
                                            const struct ul_plan_position *position)
{
    UL_ASSERT(position->step < problem->step_count);
    return &problem->steps[position->step]
                .alternatives[position->alternative]
                .substeps[position->substep];
}

uint32_t ul_step_cheapest(const struct ul_plan_step *step)
{
    UL_ASSERT(step->alternative_count > 0);
    uint32_t best = 0;
    for (uint32_t i = 1; i < step->alternative_count; i++) {
        if (step->alternatives[i].cost < step->alternatives[best].cost)
            best = i;
    }
    return best;
}

void ul_timeline_sequence(struct ul_arena *arena, const struct ul_problem *problem,
                          const uint32_t *steps, uint32_t step_count, const uint32_t *alternatives,
                          struct ul_plan *plan)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    uint32_t *runs = UL_NEW_ARRAY(&scratch, uint32_t, problem->step_count);
    uint32_t count = 0;
    for (uint32_t i = 0; i < step_count; i++) {
        const struct ul_plan_step *step = &problem->steps[steps[i]];
        uint32_t a = alternatives != NULL ? alternatives[steps[i]] : ul_step_cheapest(step);
        count += step->alternatives[a].substep_count;
    }
    plan->positions = UL_NEW_ARRAY(arena, struct ul_plan_position, count);
    plan->position_count = count;
    count = 0;
    for (uint32_t i = 0; i < step_count; i++) {
        const struct ul_plan_step *step = &problem->steps[steps[i]];
        uint32_t a = alternatives != NULL ? alternatives[steps[i]] : ul_step_cheapest(step);
        uint32_t copy = runs[steps[i]]++;
        for (uint32_t substep = 0; substep < step->alternatives[a].substep_count; substep++)
            plan->positions[count++] = (struct ul_plan_position){
                .step = steps[i], .alternative = a, .substep = substep, .copy = copy};
    }
    ul_arena_done(&scratch);
}

void ul_timeline_positions(struct ul_arena *arena, const struct ul_problem *problem,
                           const uint32_t *steps, struct ul_plan *plan)
{
    ul_timeline_sequence(arena, problem, steps, problem->step_count, NULL, plan);
}

/* The copy of `value` that a write at `position` goes to: a recomputation that does not read the
 * value makes a fresh one. */
static uint32_t written_copy(const struct ul_plan_substep *substep,
                             const struct ul_plan_position *position, uint32_t copies,
                             uint32_t value)
{
    if (copies == 0)
        return 0;
    if (position->copy < copies || ul_ids_have(substep->reads, substep->read_count, value))
        return copies - 1;
    return position->copy;
}

/* How many copies of each value the positions make; those that exist from the start have one. */
static void copies_count(struct timeline *t)
{
    const struct ul_problem *problem = t->problem;
    for (uint32_t v = 0; v < problem->value_count; v++) {
        const struct ul_plan_value *value = &problem->values[v];
        t->copies[v] = value->live_from_start || value->live_to_end || value->persistent;
    }
    for (uint32_t p = 0; p < t->plan->position_count; p++) {
        const struct ul_plan_position *position = &t->plan->positions[p];
        const struct ul_plan_substep *substep = ul_substep_at(problem, position);
        for (uint32_t i = 0; i < substep->write_count; i++) {
            uint32_t v = substep->writes[i];
            uint32_t copy = written_copy(substep, position, t->copies[v], v);
            if (copy >= t->copies[v])
                t->copies[v] = copy + 1;
        }
    }
}

static uint32_t ranges_new(struct timeline *t, struct ul_arena *arena)
{
    const struct ul_problem *problem = t->problem;
    struct ul_plan *plan = t->plan;
    plan->value_ranges = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)problem->value_count + 1);
    uint32_t count = 0;
    for (uint32_t v = 0; v < problem->value_count; v++) {
        plan->value_ranges[v] = count;
        count += t->copies[v];
    }
    plan->value_ranges[problem->value_count] = count;
    uint32_t scratch_count = 0;
    for (uint32_t p = 0; p < plan->position_count; p++)
        scratch_count += ul_substep_at(problem, &plan->positions[p])->scratch_bytes > 0;
    plan->range_count = count + scratch_count;
    plan->ranges = UL_NEW_ARRAY(arena, struct ul_plan_range, plan->range_count);
    for (uint32_t v = 0; v < problem->value_count; v++) {
        for (uint32_t r = plan->value_ranges[v]; r < plan->value_ranges[v + 1]; r++)
            plan->ranges[r] = (struct ul_plan_range){.value = v,
                                                     .copy = r - plan->value_ranges[v],
                                                     .begin = UL_PLAN_NONE,
                                                     .space = problem->values[v].space,
                                                     .alias = UL_PLAN_NONE,
                                                     .class = problem->values[v].class,
                                                     .size_bytes = problem->values[v].size_bytes};
    }
    return count;
}

static void range_touch(struct ul_plan_range *range, uint32_t position)
{
    if (range->begin == UL_PLAN_NONE)
        range->begin = position;
    if (range->end <= position)
        range->end = position + 1;
}

/* Calls range_touch for everything that each position touches, and makes the scratch ranges. */
static void ranges_touch(struct timeline *t, uint32_t next_scratch)
{
    struct ul_plan *plan = t->plan;
    for (uint32_t v = 0; v < t->problem->value_count; v++)
        t->copies[v] = t->problem->values[v].live_from_start || t->problem->values[v].persistent;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct ul_plan_substep *substep = ul_substep_at(t->problem, &plan->positions[p]);
        for (uint32_t i = 0; i < substep->read_count; i++) {
            uint32_t v = substep->reads[i];
            if (t->copies[v] > 0)
                range_touch(&plan->ranges[plan->value_ranges[v] + t->copies[v] - 1], p);
        }
        for (uint32_t i = 0; i < substep->write_count; i++) {
            uint32_t v = substep->writes[i];
            uint32_t copy = written_copy(substep, &plan->positions[p], t->copies[v], v);
            if (copy >= t->copies[v])
                t->copies[v] = copy + 1;
            range_touch(&plan->ranges[plan->value_ranges[v] + copy], p);
        }
        if (substep->scratch_bytes > 0)
            plan->ranges[next_scratch++] =
                (struct ul_plan_range){.value = UL_PLAN_NONE,
                                       .begin = p,
                                       .end = p + 1,
                                       .space = substep->scratch_space,
                                       .alias = UL_PLAN_NONE,
                                       .class = UL_PLAN_SCRATCH,
                                       .size_bytes = substep->scratch_bytes};
    }
}

static uint32_t timeline_length(const struct ul_plan *plan)
{
    return plan->position_count > 0 ? plan->position_count : 1;
}

static void flags_apply(struct timeline *t)
{
    struct ul_plan *plan = t->plan;
    for (uint32_t v = 0; v < t->problem->value_count; v++) {
        const struct ul_plan_value *value = &t->problem->values[v];
        uint32_t first = plan->value_ranges[v];
        uint32_t end = plan->value_ranges[v + 1];
        if (first == end)
            continue;
        struct ul_plan_range *range = &plan->ranges[first];
        if (value->live_from_start || value->persistent || range->begin == UL_PLAN_NONE)
            range->begin = 0;
        if (range->end <= range->begin)
            range->end = range->begin + 1;
        if (value->live_to_end || value->persistent)
            plan->ranges[end - 1].end = timeline_length(plan);
        if (value->span_region != UL_PLAN_NONE && t->loop_end[value->span_region] > 0) {
            if (range->begin > t->loop_begin[value->span_region])
                range->begin = t->loop_begin[value->span_region];
            if (plan->ranges[end - 1].end < t->loop_end[value->span_region])
                plan->ranges[end - 1].end = t->loop_end[value->span_region];
        }
    }
}

/* Whether the first copy is there before position 0, or the last one after the end. */
static bool there_before(const struct timeline *t, const struct ul_plan_range *range)
{
    const struct ul_plan_value *value = &t->problem->values[range->value];
    return range->copy == 0 && (value->live_from_start || value->persistent);
}

static bool there_after(const struct timeline *t, const struct ul_plan_range *range)
{
    const struct ul_plan_value *value = &t->problem->values[range->value];
    const uint32_t *first = &t->plan->value_ranges[range->value];
    return range->copy + 1 == first[1] - first[0] && (value->live_to_end || value->persistent);
}

static void regions_locate(struct timeline *t)
{
    const struct ul_plan_region *regions = t->problem->regions;
    for (uint32_t r = 0; r < t->problem->region_count; r++)
        t->loop_begin[r] = UL_PLAN_NONE;
    for (uint32_t p = 0; p < t->plan->position_count; p++) {
        uint32_t r = t->problem->steps[t->plan->positions[p].step].region;
        for (; r != UL_PLAN_NONE; r = regions[r].parent) {
            if (t->loop_begin[r] == UL_PLAN_NONE)
                t->loop_begin[r] = p;
            t->loop_end[r] = p + 1;
        }
    }
}

/* Stretches the range of one touch over every loop around `position` that it crosses. Inner loops
 * come first, so that an outer one sees the stretched range. */
static void range_stretch(struct timeline *t, uint32_t value, uint32_t position)
{
    struct ul_plan *plan = t->plan;
    struct ul_plan_range *range = NULL;
    for (uint32_t r = plan->value_ranges[value]; r < plan->value_ranges[value + 1]; r++) {
        if (plan->ranges[r].begin <= position && position < plan->ranges[r].end)
            range = &plan->ranges[r];
    }
    if (range == NULL)
        return;
    uint32_t region = t->problem->steps[plan->positions[position].step].region;
    for (; region != UL_PLAN_NONE; region = t->problem->regions[region].parent) {
        uint32_t begin = t->loop_begin[region];
        uint32_t end = t->loop_end[region];
        if (t->problem->regions[region].kind != UL_PLAN_LOOP ||
            (range->begin >= begin && range->end <= end && !there_before(t, range) &&
             !there_after(t, range)))
            continue;
        range->begin = range->begin < begin ? range->begin : begin;
        range->end = range->end > end ? range->end : end;
    }
}

static void loops_apply(struct timeline *t)
{
    struct ul_plan *plan = t->plan;
    bool any = false;
    for (uint32_t r = 0; r < t->problem->region_count; r++)
        any = any || t->problem->regions[r].kind == UL_PLAN_LOOP;
    for (uint32_t p = 0; any && p < plan->position_count; p++) {
        const struct ul_plan_substep *substep = ul_substep_at(t->problem, &plan->positions[p]);
        for (uint32_t i = 0; i < substep->read_count; i++)
            range_stretch(t, substep->reads[i], p);
        for (uint32_t i = 0; i < substep->write_count; i++)
            range_stretch(t, substep->writes[i], p);
    }
}

/* The range of `value` that begins at `position`, or UL_PLAN_NONE. */
static uint32_t range_born(const struct ul_plan *plan, uint32_t value, uint32_t position)
{
    for (uint32_t r = plan->value_ranges[value]; r < plan->value_ranges[value + 1]; r++) {
        if (plan->ranges[r].begin == position)
            return r;
    }
    return UL_PLAN_NONE;
}

/* The range of `value` that was there before `position` and that nothing needs after it. */
static uint32_t range_dying(const struct timeline *t, uint32_t value, uint32_t position)
{
    const struct ul_plan *plan = t->plan;
    for (uint32_t r = plan->value_ranges[value]; r < plan->value_ranges[value + 1]; r++) {
        const struct ul_plan_range *range = &plan->ranges[r];
        if (range->end == position + 1 && (range->begin < position || there_before(t, range)))
            return there_after(t, range) ? UL_PLAN_NONE : r;
    }
    return UL_PLAN_NONE;
}

/* Whether a loop around `position` runs it again and needs then what came in from before it. */
static bool needed_again(const struct timeline *t, uint32_t position, uint32_t range)
{
    uint32_t region = t->problem->steps[t->plan->positions[position].step].region;
    for (; region != UL_PLAN_NONE; region = t->problem->regions[region].parent) {
        if (t->problem->regions[region].kind == UL_PLAN_LOOP &&
            (there_before(t, &t->plan->ranges[range]) ||
             t->plan->ranges[range].begin < t->loop_begin[region]))
            return true;
    }
    return false;
}

static void option_apply(struct timeline *t, enum ul_alias_mode mode, uint32_t position,
                         const struct ul_plan_substep *substep,
                         const struct ul_plan_in_place *option)
{
    struct ul_plan *plan = t->plan;
    const struct ul_plan_value *out = &t->problem->values[option->output];
    const struct ul_plan_value *in = &t->problem->values[option->input];
    if (out->space != in->space || out->size_bytes > in->size_bytes || out->pinned ||
        out->live_from_start || out->persistent ||
        ul_ids_have(substep->writes, substep->write_count,
                    option->input)) /* updated: both would be written */
        return;
    uint64_t unit = plan->alignment_bytes;
    if (mode == UL_ALIAS_EQUAL &&
        ul_size_align_or_die(out->size_bytes, unit) != ul_size_align_or_die(in->size_bytes, unit))
        return;
    uint32_t to = range_born(plan, option->output, position);
    uint32_t from = range_dying(t, option->input, position);
    if (to == UL_PLAN_NONE || from == UL_PLAN_NONE || plan->ranges[to].alias != UL_PLAN_NONE ||
        t->taken[from] != UL_PLAN_NONE || needed_again(t, position, from))
        return;
    plan->ranges[to].alias = from;
    t->taken[from] = to;
}

static void aliases_choose(struct timeline *t, enum ul_alias_mode mode)
{
    struct ul_plan *plan = t->plan;
    t->taken = UL_NEW_ARRAY(&t->scratch, uint32_t, plan->range_count);
    for (uint32_t r = 0; r < plan->range_count; r++)
        t->taken[r] = UL_PLAN_NONE;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct ul_plan_substep *substep = ul_substep_at(t->problem, &plan->positions[p]);
        for (uint32_t i = 0; i < substep->in_place_count; i++)
            option_apply(t, mode, p, substep, &substep->in_place[i]);
    }
}

void ul_timeline_build(struct ul_arena *arena, const struct ul_problem *problem,
                       enum ul_alias_mode mode, struct ul_plan *plan)
{
    struct timeline t = {.problem = problem, .plan = plan};
    ul_arena_init(&t.scratch);
    t.copies = UL_NEW_ARRAY(&t.scratch, uint32_t, problem->value_count);
    t.loop_begin = UL_NEW_ARRAY(&t.scratch, uint32_t, problem->region_count);
    t.loop_end = UL_NEW_ARRAY(&t.scratch, uint32_t, problem->region_count);
    copies_count(&t);
    uint32_t first_scratch = ranges_new(&t, arena);
    ranges_touch(&t, first_scratch);
    regions_locate(&t);
    flags_apply(&t);
    loops_apply(&t);
    if (mode != UL_ALIAS_NONE)
        aliases_choose(&t, mode);
    ul_arena_done(&t.scratch);
}
