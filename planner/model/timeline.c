/* SPDX-License-Identifier: Apache-2.0 */
/* Makes live ranges and alias decisions from an order of positions.
 *
 * Problem: each (value, copy) is live from the position that first writes it through the last that
 * touches it. Regions change that: a loop runs its positions again, so a value that is touched both
 * inside and outside it must survive all of it.
 *
 *     position   0   1   2   3   4   5
 *     loop               [-------)
 *     a          w           r            live [0, 4) stretched to [0, 5)
 *     b                  w   r            live [2, 4): only inside
 *
 * Method: one walk over the positions for begin and end, one for the loops, one for in-place
 * options, in order of position, each input taken over at most once. Left undone: a value of an If
 * that both branches write stays live between the two writes. */
#include "planner/model/timeline.h"

#include <string.h>

struct timeline {
    const struct ul_problem *problem;
    struct ul_plan *plan;
    struct ul_arena scratch;
    uint32_t *until;   /* by position: the last one at whose time it may still run */
    uint32_t *copies;  /* by value: copies written so far */
    uint32_t *counts;  /* by value: its ranges so far, including loaded and saved ones */
    uint32_t *current; /* by value: which of them is the newest in its own space */
    uint32_t *entry;   /* by value: the only entry that touches it, or 0 */
    uint32_t *home;  /* by value: for persistent ones, the space from which it is loaded first; else
                        its own */
    bool *is_absent; /* by value: optional, and nothing reads it */
    uint32_t *taken; /* by range: the range that took its bytes over, or UL_PLAN_NONE */
    uint32_t *region_begin, *region_end; /* by region: its positions */
};

const struct ul_plan_substep *ul_substep_at(const struct ul_problem *problem,
                                            const struct ul_plan_position *position)
{
    UL_ASSERT(position->step < problem->step_count);
    return &problem->steps[position->step]
                .alternatives[position->alternative]
                .substeps[position->substep];
}

bool *ul_plan_reads(struct ul_arena *arena, const struct ul_problem *problem,
                    const struct ul_plan *plan)
{
    bool *is_read = UL_NEW_ARRAY(arena, bool, problem->value_count);
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct ul_plan_position *at = &plan->positions[p];
        const struct ul_plan_step *step =
            at->step < problem->step_count ? &problem->steps[at->step] : NULL;
        /* A plan that was read may say anything; the checker finds what is not allowed. */
        if (at->kind != UL_PLAN_RUN || step == NULL ||
            at->alternative >= step->alternative_count + step->spare_count ||
            at->substep >= step->alternatives[at->alternative].substep_count)
            continue;
        const struct ul_plan_substep *substep = ul_substep_at(problem, at);
        for (uint32_t i = 0; i < substep->read_count; i++)
            is_read[substep->reads[i]] = true;
    }
    return is_read;
}

void ul_timeline_sequence(struct ul_arena *arena, const struct ul_problem *problem,
                          const uint32_t *steps, uint32_t step_count, const uint32_t *alternatives,
                          struct ul_plan *plan)
{
    UL_ASSERT(step_count >= problem->step_count);
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

/* ---- Ranges from positions ---- */

static uint32_t timeline_length(const struct ul_plan *plan)
{
    return plan->position_count > 0 ? plan->position_count : 1;
}

/* What another stream does ends with the first wait for it or for something after it there. */
static void until_fill(struct timeline *t)
{
    const struct ul_plan *plan = t->plan;
    t->until = UL_NEW_ARRAY(&t->scratch, uint32_t, plan->position_count);
    for (uint32_t p = 0; p < plan->position_count; p++)
        t->until[p] = plan->positions[p].stream == 0 ? p : timeline_length(plan) - 1;
    uint32_t awaited[UL_LIMIT_STREAMS] = {0}; /* by stream: all before this */
    for (uint32_t w = 0; w < plan->position_count; w++) {
        if (plan->positions[w].kind != UL_PLAN_WAIT)
            continue;
        uint32_t last = plan->positions[w].awaited;
        uint32_t stream = plan->positions[last].stream;
        UL_ASSERT(last < w && stream < UL_LIMIT_STREAMS);
        for (; awaited[stream] <= last; awaited[stream]++) {
            if (plan->positions[awaited[stream]].stream == stream)
                t->until[awaited[stream]] = w;
        }
    }
}

static void absent_fill(struct timeline *t)
{
    t->is_absent = ul_plan_reads(&t->scratch, t->problem, t->plan);
    for (uint32_t v = 0; v < t->problem->value_count; v++)
        t->is_absent[v] = t->problem->values[v].optional && !t->is_absent[v];
}

/* A persistent value that a load touches first lives in the other space, as range 0. */
static void homes_fill(struct timeline *t)
{
    const struct ul_plan *plan = t->plan;
    bool *is_known = UL_NEW_ARRAY(&t->scratch, bool, t->problem->value_count);
    t->home = UL_NEW_ARRAY(&t->scratch, uint32_t, t->problem->value_count);
    for (uint32_t v = 0; v < t->problem->value_count; v++)
        t->home[v] = t->problem->values[v].space;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct ul_plan_position *at = &plan->positions[p];
        if (at->kind != UL_PLAN_COPY || is_known[at->value])
            continue;
        is_known[at->value] = true;
        const struct ul_plan_value *value = &t->problem->values[at->value];
        if (at->loads && value->persistent && ul_value_may_move(value))
            t->home[at->value] = at->space;
    }
}

static bool is_away(const struct timeline *t, uint32_t value)
{
    return t->home[value] != t->problem->values[value].space;
}

static bool there_from_start(const struct ul_plan_value *value)
{
    return value->live_from_start || value->persistent;
}

static void counts_reset(struct timeline *t)
{
    for (uint32_t v = 0; v < t->problem->value_count; v++) {
        bool is_there = there_from_start(&t->problem->values[v]) && !t->is_absent[v];
        t->copies[v] = t->counts[v] = is_there;
        t->current[v] = 0;
    }
}

/* The range of a write: a first write, and a recomputation that does not read the value, make a new
 * one. */
static uint32_t range_written(struct timeline *t, const struct ul_plan_position *position,
                              const struct ul_plan_substep *substep, uint32_t value)
{
    if (t->copies[value] == 0 || (position->copy >= t->copies[value] &&
                                  !ul_ids_have(substep->reads, substep->read_count, value))) {
        t->copies[value]++;
        t->current[value] = t->counts[value]++;
    }
    return t->current[value];
}

/* Counts the ranges that the positions make. */
static void ranges_count(struct timeline *t)
{
    counts_reset(t);
    for (uint32_t p = 0; p < t->plan->position_count; p++) {
        const struct ul_plan_position *position = &t->plan->positions[p];
        if (position->kind == UL_PLAN_COPY && (position->loads || !is_away(t, position->value)))
            t->counts[position->value]++;
        if (position->kind != UL_PLAN_RUN)
            continue;
        const struct ul_plan_substep *substep = ul_substep_at(t->problem, position);
        for (uint32_t i = 0; i < substep->write_count; i++)
            range_written(t, position, substep, substep->writes[i]);
    }
    for (uint32_t v = 0; v < t->problem->value_count; v++)
        t->counts[v] += t->counts[v] == 0 && t->problem->values[v].live_to_end;
}

static bool has_scratch(const struct timeline *t, const struct ul_plan_position *position)
{
    return position->kind == UL_PLAN_RUN && ul_substep_at(t->problem, position)->scratch_bytes > 0;
}

static struct ul_plan_range range_of_value(const struct timeline *t, uint32_t value, uint32_t copy)
{
    const struct ul_plan_value *of = &t->problem->values[value];
    return (struct ul_plan_range){.value = value,
                                  .copy = copy,
                                  .begin = UL_PLAN_NONE,
                                  .space = of->space,
                                  .alias = UL_PLAN_NONE,
                                  .class = of->class,
                                  .size_bytes = of->size_bytes};
}

static uint32_t ranges_new(struct timeline *t, struct ul_arena *arena)
{
    const struct ul_problem *problem = t->problem;
    struct ul_plan *plan = t->plan;
    plan->value_ranges = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)problem->value_count + 1);
    uint32_t count = 0;
    for (uint32_t v = 0; v < problem->value_count; v++) {
        plan->value_ranges[v] = count;
        count += t->counts[v];
    }
    plan->value_ranges[problem->value_count] = count;
    uint32_t scratch_count = 0;
    for (uint32_t p = 0; p < plan->position_count; p++)
        scratch_count += has_scratch(t, &plan->positions[p]);
    plan->range_count = count + scratch_count;
    plan->ranges = UL_NEW_ARRAY(arena, struct ul_plan_range, plan->range_count);
    for (uint32_t v = 0; v < problem->value_count; v++) {
        for (uint32_t r = plan->value_ranges[v]; r < plan->value_ranges[v + 1]; r++)
            plan->ranges[r] = range_of_value(t, v, r - plan->value_ranges[v]);
        if (is_away(t, v))
            plan->ranges[plan->value_ranges[v]].space = t->home[v];
    }
    return count;
}

static void range_touch(struct timeline *t, uint32_t value, uint32_t index, uint32_t position)
{
    struct ul_plan_range *range = &t->plan->ranges[t->plan->value_ranges[value] + index];
    if (range->begin == UL_PLAN_NONE)
        range->begin = position;
    if (range->end <= t->until[position])
        range->end = t->until[position] + 1;
}

static void run_touch(struct timeline *t, uint32_t p)
{
    const struct ul_plan_position *position = &t->plan->positions[p];
    const struct ul_plan_substep *substep = ul_substep_at(t->problem, position);
    for (uint32_t i = 0; i < substep->read_count; i++) {
        if (t->counts[substep->reads[i]] > 0)
            range_touch(t, substep->reads[i], t->current[substep->reads[i]], p);
    }
    for (uint32_t i = 0; i < substep->write_count; i++) {
        uint32_t index = range_written(t, position, substep, substep->writes[i]);
        range_touch(t, substep->writes[i], index, p);
    }
}

/* The new range of a save is in the other space, or is the value's home range there; that of a load
 * is the one that steps see. */
static void transfer_touch(struct timeline *t, uint32_t p)
{
    const struct ul_plan_position *position = &t->plan->positions[p];
    uint32_t v = position->value;
    struct ul_plan_range *ranges = t->plan->ranges + t->plan->value_ranges[v];
    uint32_t from = t->current[v];
    if (!position->loads && is_away(t, v)) {
        range_touch(t, v, from, p);
        range_touch(t, v, 0, p);
        return;
    }
    if (position->loads) {
        from = t->counts[v];
        while (from > 0 && ranges[from - 1].space != position->space)
            from--;
        from -= from > 0;
        t->current[v] = t->counts[v];
    } else {
        ranges[t->counts[v]].space = position->space;
    }
    if (from < t->counts[v])
        range_touch(t, v, from, p);
    range_touch(t, v, t->counts[v]++, p);
}

/* Lets everything that a position touches live through it, and makes the scratch ranges. */
static void ranges_touch(struct timeline *t, uint32_t next_scratch)
{
    struct ul_plan *plan = t->plan;
    counts_reset(t);
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct ul_plan_position *position = &plan->positions[p];
        if (position->kind == UL_PLAN_RUN)
            run_touch(t, p);
        else if (position->kind != UL_PLAN_WAIT)
            transfer_touch(t, p);
        if (!has_scratch(t, position))
            continue;
        const struct ul_plan_substep *substep = ul_substep_at(t->problem, position);
        plan->ranges[next_scratch++] = (struct ul_plan_range){.value = UL_PLAN_NONE,
                                                              .begin = p,
                                                              .end = t->until[p] + 1,
                                                              .space = substep->scratch_space,
                                                              .alias = UL_PLAN_NONE,
                                                              .class = UL_PLAN_SCRATCH,
                                                              .size_bytes = substep->scratch_bytes};
    }
}

static void flags_apply(struct timeline *t)
{
    struct ul_plan *plan = t->plan;
    for (uint32_t v = 0; v < t->problem->value_count; v++) {
        const struct ul_plan_value *value = &t->problem->values[v];
        uint32_t first = plan->value_ranges[v];
        if (first == plan->value_ranges[v + 1])
            continue;
        struct ul_plan_range *range = &plan->ranges[first];
        struct ul_plan_range *last = &plan->ranges[first + (is_away(t, v) ? 0 : t->current[v])];
        bool inside = t->entry[v] != 0;
        if (there_from_start(value) || range->begin == UL_PLAN_NONE)
            range->begin = inside ? t->region_begin[t->entry[v]] : 0;
        if (range->end <= range->begin)
            range->end = range->begin + 1;
        if (value->live_to_end || value->persistent)
            last->end = inside ? t->region_end[t->entry[v]] : timeline_length(plan);
        if (value->span_region != UL_PLAN_NONE && t->region_end[value->span_region] > 0) {
            if (range->begin > t->region_begin[value->span_region])
                range->begin = t->region_begin[value->span_region];
            if (last->end < t->region_end[value->span_region])
                last->end = t->region_end[value->span_region];
        }
    }
}

/* Whether the first copy is live before position 0, or the last one after the end; a value that is
 * at home in another space is copied back, so that nothing takes its bytes over. */
static bool there_before(const struct timeline *t, const struct ul_plan_range *range)
{
    return range->copy == 0 && there_from_start(&t->problem->values[range->value]);
}

static bool there_after(const struct timeline *t, const struct ul_plan_range *range)
{
    const struct ul_plan_value *value = &t->problem->values[range->value];
    return is_away(t, range->value) ||
           (range->copy == t->current[range->value] && (value->live_to_end || value->persistent));
}

/* ---- Regions ---- */

static void regions_locate(struct timeline *t)
{
    const struct ul_plan_region *regions = t->problem->regions;
    for (uint32_t r = 0; r < t->problem->region_count; r++)
        t->region_begin[r] = UL_PLAN_NONE;
    for (uint32_t p = 0; p < t->plan->position_count; p++) {
        const struct ul_plan_position *position = &t->plan->positions[p];
        uint32_t r = position->kind == UL_PLAN_RUN ? t->problem->steps[position->step].region
                                                   : position->region;
        for (; r != UL_PLAN_NONE; r = regions[r].parent) {
            if (t->region_begin[r] == UL_PLAN_NONE)
                t->region_begin[r] = p;
            t->region_end[r] = p + 1;
        }
    }
}

/* Stretches the range of one touch over every loop around `position` that it crosses. Inner loops
 * come first, so that an outer one sees the stretched range. A value that crosses an entry, whose
 * calls come in any order, always lives. */
static void range_stretch(struct timeline *t, uint32_t value, uint32_t position)
{
    struct ul_plan *plan = t->plan;
    const struct ul_plan_range *found = ul_plan_find_range(t->problem, plan, value, position);
    if (found == NULL)
        return;
    struct ul_plan_range *range = &plan->ranges[found - plan->ranges];
    uint32_t region = t->problem->steps[plan->positions[position].step].region;
    for (; region != UL_PLAN_NONE; region = t->problem->regions[region].parent) {
        enum ul_plan_region_kind kind = t->problem->regions[region].kind;
        uint32_t begin = t->region_begin[region];
        uint32_t end = t->region_end[region];
        bool inside = range->begin >= begin && range->end <= end;
        if (kind == UL_PLAN_LOOP && (!inside || there_before(t, range) || there_after(t, range))) {
            range->begin = range->begin < begin ? range->begin : begin;
            range->end = range->end > end ? range->end : end;
        } else if (kind == UL_PLAN_ENTRY && !inside) {
            range->begin = 0;
            range->end = timeline_length(plan);
        }
    }
}

static void regions_apply(struct timeline *t)
{
    struct ul_plan *plan = t->plan;
    bool any = false;
    for (uint32_t r = 0; r < t->problem->region_count; r++)
        any = any || t->problem->regions[r].kind == UL_PLAN_LOOP ||
              t->problem->regions[r].kind == UL_PLAN_ENTRY;
    for (uint32_t p = 0; any && p < plan->position_count; p++) {
        if (plan->positions[p].kind != UL_PLAN_RUN)
            continue;
        const struct ul_plan_substep *substep = ul_substep_at(t->problem, &plan->positions[p]);
        for (uint32_t i = 0; i < substep->read_count; i++)
            range_stretch(t, substep->reads[i], p);
        for (uint32_t i = 0; i < substep->write_count; i++)
            range_stretch(t, substep->writes[i], p);
    }
}

/* ---- Takeovers ---- */

/* The range of `value` that begins at `position`, or UL_PLAN_NONE. */
static uint32_t range_born(const struct ul_plan *plan, uint32_t value, uint32_t position)
{
    for (uint32_t r = plan->value_ranges[value]; r < plan->value_ranges[value + 1]; r++) {
        if (plan->ranges[r].begin == position)
            return r;
    }
    return UL_PLAN_NONE;
}

/* The range of `value` that was live before `position` and that nothing needs after it. */
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

/* Whether a loop or entry around `position` runs it again and then needs what came in from before
 * it. */
static bool needed_again(const struct timeline *t, uint32_t position, uint32_t range)
{
    uint32_t region = t->problem->steps[t->plan->positions[position].step].region;
    for (; region != UL_PLAN_NONE; region = t->problem->regions[region].parent) {
        bool before = t->plan->ranges[range].begin < t->region_begin[region];
        if (t->problem->regions[region].kind == UL_PLAN_ENTRY && before)
            return true;
        if (t->problem->regions[region].kind == UL_PLAN_LOOP &&
            (before || there_before(t, &t->plan->ranges[range])))
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
        if (plan->positions[p].kind != UL_PLAN_RUN || plan->positions[p].stream != 0)
            continue;
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
    t.counts = UL_NEW_ARRAY(&t.scratch, uint32_t, problem->value_count);
    t.current = UL_NEW_ARRAY(&t.scratch, uint32_t, problem->value_count);
    t.region_begin = UL_NEW_ARRAY(&t.scratch, uint32_t, problem->region_count);
    t.region_end = UL_NEW_ARRAY(&t.scratch, uint32_t, problem->region_count);
    t.entry = ul_value_entries(&t.scratch, problem);
    absent_fill(&t);
    homes_fill(&t);
    until_fill(&t);
    ranges_count(&t);
    uint32_t first_scratch = ranges_new(&t, arena);
    ranges_touch(&t, first_scratch);
    regions_locate(&t);
    flags_apply(&t);
    regions_apply(&t);
    if (mode != UL_ALIAS_NONE)
        aliases_choose(&t, mode);
    ul_arena_done(&t.scratch);
}
