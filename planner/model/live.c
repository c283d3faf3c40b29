/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps live sums up to date while steps are merged.
 *
 * Problem: the timeline and the account read a whole plan; a pass that tries thousands of merges
 * can only afford what a merge changes. Method: each value has the list of positions that touch it,
 * from which its range follows as in planner/model/timeline.c: from the first touch to the last,
 * and over all of a loop that it crosses. A merge changes the ranges of values that the merged
 * positions touch, and so the takeovers where these ranges begin or end:
 *
 *     position   0   1   2   3                 0   1   2   3
 *     a          [-------)                     [-----------)     read at 1, then at 2
 *     b              [-------)           ->                      gone
 *     c                  [-------)                     [-------)
 *     sum        a  a+b b+c  c                 a   a  a+c  c
 *
 * The difference is a short list of steps up and down, which is compared with the current sums.
 * Left undone: steps that run twice. */
#include "planner/model/live.h"

#include <string.h>

#include "planner/model/timeline.h"

/* Live sums are small up to this fraction of what the neediest step needs by itself, which no plan
 * can avoid: a merge may add to them. */
enum { SMALL = 4 };

struct range {
    uint32_t begin, end; /* begin UL_PLAN_NONE: never live */
    bool is_alias;       /* it has another's bytes: it counts from the position after `begin` */
    bool is_taken;       /* another takes its bytes over at the end */
};

struct old_range {
    uint32_t value;
    struct range range;
};

struct old_touch {
    uint32_t index, position;
};

/* The change of the sum from `position` on. */
struct edge {
    uint32_t position;
    uint64_t bytes; /* modulo 2^64: may be a decrease */
};

struct ul_live {
    struct ul_live_sequence sequence; /* before all merges */
    struct ul_arena *arena;
    const struct ul_plan_substep **substeps; /* by position; NULL: empty */
    uint32_t *regions;                       /* by position */
    uint32_t *next;                          /* by position: towards the next that is not empty */
    uint32_t *region_begin, *region_end;
    bool has_loops;
    /* touches[touch_first[v]] up to touch_first[v + 1]: positions that touch value v, or none. */
    uint32_t *touch_first, *touches;
    uint64_t *padded_bytes; /* by value: 0 where it is in another space */
    struct range *ranges;   /* by value */
    uint64_t *sums_bytes;   /* by position, without its scratch */
    uint64_t small_bytes;   /* live sums up to this do not count */
    uint64_t alignment_bytes;
    /* Values that the current merge changed, before the change. */
    uint32_t *value_marks, *position_marks; /* the last merge that visited them */
    uint32_t mark;
    struct old_range *old_ranges;
    uint32_t old_range_count, old_range_capacity;
    struct old_touch *old_touches;
    uint32_t old_touch_count, old_touch_capacity;
    const struct ul_plan_substep **old_substeps; /* in the order of the merge's positions */
    uint32_t old_substep_count, old_substep_capacity;
    struct edge *edges; /* what it adds to the sums, in order of position */
    uint32_t edge_count, edge_capacity;
};

/* ---- Ranges ---- */

static void range_cover(struct range *range, uint32_t begin, uint32_t end)
{
    if (range->begin == UL_PLAN_NONE || range->begin > begin)
        range->begin = begin;
    if (range->end < end)
        range->end = end;
}

/* The innermost region that contains both. */
static uint32_t region_around(const struct ul_plan_region *regions, uint32_t a, uint32_t b)
{
    while (a != b) {
        if (a > b)
            a = regions[a].parent;
        else
            b = regions[b].parent;
    }
    return a;
}

/* The innermost region that contains all touches of the value; the root where it lives beyond. */
static uint32_t home_of(const struct ul_live *live, uint32_t value)
{
    const struct ul_plan_value *at = &live->sequence.values[value];
    uint32_t home = at->span_region;
    if (at->live_from_start || at->live_to_end || at->persistent)
        return 0;
    for (uint32_t t = live->touch_first[value]; t < live->touch_first[value + 1]; t++) {
        if (live->touches[t] == UL_PLAN_NONE)
            continue;
        uint32_t region = live->sequence.region_of[live->touches[t]];
        home = home == UL_PLAN_NONE ? region : region_around(live->sequence.regions, home, region);
    }
    return home;
}

/* A touch in a loop below the value's home keeps the value through the outermost such loop. */
static void range_touch(const struct ul_live *live, struct range *range, uint32_t home,
                        uint32_t position)
{
    range_cover(range, position, position + 1);
    for (uint32_t r = live->sequence.region_of[position]; live->has_loops && r != home;
         r = live->sequence.regions[r].parent) {
        if (live->sequence.regions[r].kind == UL_PLAN_LOOP)
            range_cover(range, live->region_begin[r], live->region_end[r]);
    }
}

static struct range range_of(const struct ul_live *live, uint32_t value)
{
    const struct ul_plan_value *at = &live->sequence.values[value];
    struct range range = {.begin = UL_PLAN_NONE};
    uint32_t length = live->sequence.position_count > 0 ? live->sequence.position_count : 1;
    uint32_t home = live->has_loops ? home_of(live, value) : 0;
    for (uint32_t t = live->touch_first[value]; t < live->touch_first[value + 1]; t++) {
        if (live->touches[t] != UL_PLAN_NONE)
            range_touch(live, &range, home, live->touches[t]);
    }
    if (at->live_from_start || at->persistent || (at->live_to_end && range.begin == UL_PLAN_NONE))
        range_cover(&range, 0, 1);
    if (at->live_to_end || at->persistent)
        range.end = length;
    if (range.begin != UL_PLAN_NONE && at->span_region != UL_PLAN_NONE &&
        live->region_end[at->span_region] > 0)
        range_cover(&range, live->region_begin[at->span_region], live->region_end[at->span_region]);
    return range;
}

/* ---- Takeovers ---- */

/* Notes a value's range before the merge changes it. */
static struct range *range_change(struct ul_live *live, uint32_t value)
{
    if (live->value_marks[value] != live->mark) {
        live->value_marks[value] = live->mark;
        UL_GROW(live->arena, live->old_ranges, live->old_range_count, live->old_range_capacity);
        live->old_ranges[live->old_range_count++] =
            (struct old_range){.value = value, .range = live->ranges[value]};
    }
    return &live->ranges[value];
}

static bool there_before(const struct ul_plan_value *value)
{
    return value->live_from_start || value->persistent;
}

/* Whether a loop around `position` runs it again and then needs what came in from before it. */
static bool is_needed_again(const struct ul_live *live, uint32_t position, uint32_t value)
{
    uint32_t r = live->sequence.region_of[position];
    for (; live->has_loops && r != UL_PLAN_NONE; r = live->sequence.regions[r].parent) {
        if (live->sequence.regions[r].kind == UL_PLAN_LOOP &&
            (there_before(&live->sequence.values[value]) ||
             live->ranges[value].begin < live->region_begin[r]))
            return true;
    }
    return false;
}

static bool can_take_over(const struct ul_live *live, uint32_t position,
                          const struct ul_plan_substep *substep,
                          const struct ul_plan_in_place *option)
{
    const struct ul_plan_value *out = &live->sequence.values[option->output];
    const struct ul_plan_value *in = &live->sequence.values[option->input];
    const struct range *to = &live->ranges[option->output];
    const struct range *from = &live->ranges[option->input];
    return out->space == in->space && out->size_bytes <= in->size_bytes && !out->pinned &&
           !there_before(out) && !in->live_to_end && !in->persistent && to->begin == position &&
           from->end == position + 1 && (from->begin < position || there_before(in)) &&
           !to->is_alias && !from->is_taken &&
           !ul_ids_have(substep->writes, substep->write_count, option->input) &&
           !is_needed_again(live, position, option->input);
}

/* Applies all options at a position anew: they concern only what begins or ends there. */
static void options_apply(struct ul_live *live, uint32_t position)
{
    const struct ul_plan_substep *substep = live->substeps[position];
    for (uint32_t i = 0; i < substep->in_place_count; i++) {
        const struct ul_plan_in_place *option = &substep->in_place[i];
        if (live->ranges[option->output].begin == position)
            range_change(live, option->output)->is_alias = false;
        if (live->ranges[option->input].end == position + 1)
            range_change(live, option->input)->is_taken = false;
    }
    for (uint32_t i = 0; i < substep->in_place_count; i++) {
        if (!can_take_over(live, position, substep, &substep->in_place[i]))
            continue;
        live->ranges[substep->in_place[i].output].is_alias = true;
        live->ranges[substep->in_place[i].input].is_taken = true;
    }
}

/* ---- A merge ---- */

static bool is_merged(const struct ul_live_merge *merge, uint32_t position)
{
    for (uint32_t i = 0; i < merge->position_count; i++) {
        if (merge->positions[i] == position)
            return true;
    }
    return false;
}

static bool substep_touches(const struct ul_plan_substep *substep, uint32_t value)
{
    return ul_ids_have(substep->reads, substep->read_count, value) ||
           ul_ids_have(substep->writes, substep->write_count, value);
}

/* The touches of a value after the merge. */
static void touches_merge(struct ul_live *live, const struct ul_live_merge *merge, uint32_t value)
{
    uint32_t at = substep_touches(merge->substep, value) ? merge->at : UL_PLAN_NONE;
    if (live->value_marks[value] == live->mark)
        return;
    (void)range_change(live, value);
    for (uint32_t t = live->touch_first[value]; t < live->touch_first[value + 1]; t++) {
        if (live->touches[t] == UL_PLAN_NONE || !is_merged(merge, live->touches[t]))
            continue;
        UL_GROW(live->arena, live->old_touches, live->old_touch_count, live->old_touch_capacity);
        live->old_touches[live->old_touch_count++] = (struct old_touch){t, live->touches[t]};
        live->touches[t] = at;
    }
}

/* Replaces the merged substeps by one, and finds the ranges of what they touched. */
static void ranges_merge(struct ul_live *live, const struct ul_live_merge *merge)
{
    for (uint32_t i = 0; i < merge->position_count; i++) {
        const struct ul_plan_substep *substep = live->substeps[merge->positions[i]];
        for (uint32_t k = 0; k < substep->read_count; k++)
            touches_merge(live, merge, substep->reads[k]);
        for (uint32_t k = 0; k < substep->write_count; k++)
            touches_merge(live, merge, substep->writes[k]);
    }
    for (uint32_t i = 0; i < merge->position_count; i++) {
        UL_GROW(live->arena, live->old_substeps, live->old_substep_count,
                live->old_substep_capacity);
        live->old_substeps[live->old_substep_count++] = live->substeps[merge->positions[i]];
        live->substeps[merge->positions[i]] = NULL;
    }
    live->substeps[merge->at] = merge->substep;
    for (uint32_t i = 0; i < live->old_range_count; i++) {
        uint32_t value = live->old_ranges[i].value;
        live->ranges[value] = range_of(live, value);
    }
}

static void options_apply_once(struct ul_live *live, uint32_t position)
{
    if (position >= live->sequence.position_count || live->substeps[position] == NULL ||
        live->position_marks[position] == live->mark)
        return;
    live->position_marks[position] = live->mark;
    options_apply(live, position);
}

/* Updates takeovers where changed ranges begin and end, before and after the change. */
static void takeovers_merge(struct ul_live *live, const struct ul_live_merge *merge)
{
    uint32_t count = live->old_range_count;
    options_apply_once(live, merge->at);
    for (uint32_t i = 0; i < count; i++) {
        struct range before = live->old_ranges[i].range;
        struct range after = live->ranges[live->old_ranges[i].value];
        options_apply_once(live, before.begin);
        options_apply_once(live, before.end - 1);
        options_apply_once(live, after.begin);
        options_apply_once(live, after.end - 1);
    }
}

static uint32_t counted_begin(const struct range *range)
{
    return range->begin + range->is_alias;
}

/* Keeps them in order of position: there are few. */
static void edge_add(struct ul_live *live, uint32_t position, uint64_t bytes)
{
    UL_GROW(live->arena, live->edges, live->edge_count, live->edge_capacity);
    uint32_t at = live->edge_count++;
    for (; at > 0 && live->edges[at - 1].position > position; at--)
        live->edges[at] = live->edges[at - 1];
    live->edges[at] = (struct edge){.position = position, .bytes = bytes};
}

static void edges_add(struct ul_live *live, const struct range *range, uint64_t bytes)
{
    uint32_t begin = counted_begin(range);
    if (range->begin == UL_PLAN_NONE || begin >= range->end || bytes == 0)
        return;
    edge_add(live, begin, bytes);
    edge_add(live, range->end, 0 - bytes);
}

/* What the merge adds to the sums, as steps up and down in order of position. */
static void edges_find(struct ul_live *live)
{
    live->edge_count = 0;
    for (uint32_t i = 0; i < live->old_range_count; i++) {
        uint32_t value = live->old_ranges[i].value;
        edges_add(live, &live->old_ranges[i].range, 0 - live->padded_bytes[value]);
        edges_add(live, &live->ranges[value], live->padded_bytes[value]);
    }
}

/* The first position from `position` on that is not empty. */
static uint32_t next_step(struct ul_live *live, uint32_t position)
{
    while (live->next[position] != position) {
        live->next[position] = live->next[live->next[position]];
        position = live->next[position];
    }
    return position;
}

/* With the scratch of the substep that runs there. */
static uint64_t bytes_with(const struct ul_live *live, uint32_t position,
                           const struct ul_plan_substep *substep)
{
    uint64_t bytes = live->sums_bytes[position];
    if (substep == NULL || substep->scratch_space != 0)
        return bytes;
    return bytes + ul_size_align_or_die(substep->scratch_bytes, live->alignment_bytes);
}

/* Whether the output may take over some input that ends. */
static bool has_option(const struct ul_live *live, const struct ul_plan_substep *substep,
                       uint32_t output)
{
    for (uint32_t i = 0; i < substep->in_place_count; i++) {
        const struct ul_plan_value *input = &live->sequence.values[substep->in_place[i].input];
        if (substep->in_place[i].output == output && !input->live_to_end && !input->persistent)
            return true;
    }
    return false;
}

/* Everything that the substep touches, as ul_account_bound counts it. */
static uint64_t need_of(const struct ul_live *live, const struct ul_plan_substep *substep)
{
    uint64_t need = 0;
    for (uint32_t i = 0; i < substep->read_count; i++)
        need += live->padded_bytes[substep->reads[i]];
    for (uint32_t i = 0; i < substep->write_count; i++) {
        uint32_t value = substep->writes[i];
        if (!ul_ids_have(substep->reads, substep->read_count, value) &&
            !has_option(live, substep, value))
            need += live->padded_bytes[value];
    }
    if (substep->scratch_space == 0)
        need += ul_size_align_or_die(substep->scratch_bytes, live->alignment_bytes);
    return need;
}

/* Found at the first merge: callers that only read the sums need not pay for it. */
static void small_find(struct ul_live *live)
{
    uint64_t bound_bytes = 0;
    for (uint32_t p = 0; live->small_bytes == 0 && p < live->sequence.position_count; p++) {
        uint64_t need = need_of(live, &live->sequence.substeps[p]);
        bound_bytes = need > bound_bytes ? need : bound_bytes;
    }
    if (bound_bytes > 0)
        live->small_bytes = bound_bytes / SMALL + 1;
}

/* Whether `added` bytes in [begin, end) exceed the limit at a step that remains after the merge. */
static bool exceeds(struct ul_live *live, const struct ul_live_merge *merge,
                    const struct edge *edges, uint64_t added)
{
    for (uint32_t p = next_step(live, edges[0].position); p < edges[1].position;
         p = next_step(live, p + 1)) {
        if (!is_merged(merge, p) &&
            bytes_with(live, p, live->substeps[p]) + added > live->small_bytes)
            return true;
    }
    return false;
}

/* Whether the one step needs more by itself than each of those that it replaces. */
static bool need_grows(const struct ul_live *live, const struct ul_live_merge *merge)
{
    uint64_t max_bytes = 0;
    for (uint32_t i = 0; i < merge->position_count; i++) {
        uint64_t bytes = need_of(live, live->old_substeps[i]);
        max_bytes = bytes > max_bytes ? bytes : max_bytes;
    }
    return need_of(live, merge->substep) > max_bytes;
}

static bool sums_grow(struct ul_live *live, const struct ul_live_merge *merge)
{
    uint64_t added = 0;
    uint64_t at_bytes = bytes_with(live, merge->at, merge->substep);
    uint64_t max_bytes = live->small_bytes;
    for (uint32_t i = 0; i < merge->position_count; i++) {
        uint64_t bytes = bytes_with(live, merge->positions[i], live->old_substeps[i]);
        max_bytes = bytes > max_bytes ? bytes : max_bytes;
    }
    for (uint32_t e = 0; e + 1 < live->edge_count; e++) {
        added += live->edges[e].bytes;
        if (live->edges[e].position <= merge->at && merge->at < live->edges[e + 1].position)
            at_bytes += added;
        if ((int64_t)added > 0 && exceeds(live, merge, &live->edges[e], added))
            return true;
    }
    return at_bytes > max_bytes;
}

/* Whether another step writes the value too: the planner chooses which of them comes first. */
static bool has_other_writer(const struct ul_live *live, const struct ul_live_merge *merge,
                             uint32_t value)
{
    for (uint32_t t = live->touch_first[value]; t < live->touch_first[value + 1]; t++) {
        uint32_t position = live->touches[t];
        if (position != UL_PLAN_NONE && position != merge->at &&
            ul_ids_have(live->substeps[position]->writes, live->substeps[position]->write_count,
                        value))
            return true;
    }
    return false;
}

/* Whether values that begin earlier than before take more than values that vanish: in another order
 * that costs bytes, even where it does not in this one. */
static bool begins_more(const struct ul_live *live, const struct ul_live_merge *merge)
{
    uint64_t earlier_bytes = 0;
    uint64_t gone_bytes = 0;
    for (uint32_t i = 0; i < live->old_range_count; i++) {
        uint32_t value = live->old_ranges[i].value;
        const struct range *before = &live->old_ranges[i].range;
        const struct range *after = &live->ranges[value];
        if (after->begin == UL_PLAN_NONE)
            gone_bytes += live->padded_bytes[value];
        else if (after->begin < before->begin && !has_other_writer(live, merge, value))
            earlier_bytes += live->padded_bytes[value];
    }
    return earlier_bytes > gone_bytes;
}

static void merge_undo(struct ul_live *live, const struct ul_live_merge *merge)
{
    for (uint32_t i = 0; i < live->old_range_count; i++)
        live->ranges[live->old_ranges[i].value] = live->old_ranges[i].range;
    for (uint32_t i = 0; i < live->old_touch_count; i++)
        live->touches[live->old_touches[i].index] = live->old_touches[i].position;
    for (uint32_t i = 0; i < merge->position_count; i++)
        live->substeps[merge->positions[i]] = live->old_substeps[i];
}

static const struct ul_plan_substep *substep_copy(struct ul_arena *arena,
                                                  const struct ul_plan_substep *substep)
{
    struct ul_plan_substep *copy = ul_arena_copy(arena, substep, sizeof *substep);
    copy->reads = ul_arena_copy(arena, copy->reads, copy->read_count * sizeof *copy->reads);
    copy->writes = ul_arena_copy(arena, copy->writes, copy->write_count * sizeof *copy->writes);
    copy->in_place =
        ul_arena_copy(arena, copy->in_place, copy->in_place_count * sizeof *copy->in_place);
    return copy;
}

static void sums_add(struct ul_live *live)
{
    uint64_t added = 0;
    for (uint32_t e = 0; e + 1 < live->edge_count; e++) {
        added += live->edges[e].bytes;
        for (uint32_t p = live->edges[e].position; added != 0 && p < live->edges[e + 1].position;
             p++)
            live->sums_bytes[p] += added;
    }
}

static void merge_keep(struct ul_live *live, const struct ul_live_merge *merge)
{
    live->substeps[merge->at] = substep_copy(live->arena, merge->substep);
    sums_add(live);
    for (uint32_t i = 0; i < merge->position_count; i++) {
        if (merge->positions[i] != merge->at)
            live->next[merge->positions[i]] = merge->positions[i] + 1;
    }
}

static bool is_valid(const struct ul_live *live, const struct ul_live_merge *merge)
{
    for (uint32_t i = 0; i < merge->position_count; i++) {
        uint32_t position = merge->positions[i];
        if (position >= live->sequence.position_count || live->substeps[position] == NULL ||
            live->sequence.region_of[position] != live->sequence.region_of[merge->at] ||
            (i > 0 && position <= merge->positions[i - 1]))
            return false;
    }
    return is_merged(merge, merge->at);
}

bool ul_live_merge(struct ul_live *live, const struct ul_live_merge *merge)
{
    UL_ASSERT(is_valid(live, merge));
    live->mark++;
    live->old_range_count = live->old_touch_count = live->old_substep_count = 0;
    ranges_merge(live, merge);
    takeovers_merge(live, merge);
    edges_find(live);
    small_find(live);
    bool costs = sums_grow(live, merge) || (begins_more(live, merge) && need_grows(live, merge));
    if (costs)
        merge_undo(live, merge);
    else
        merge_keep(live, merge);
    return !costs;
}

uint64_t ul_live_bytes(const struct ul_live *live, uint32_t position)
{
    UL_ASSERT(position == 0 || position < live->sequence.position_count);
    return bytes_with(live, position, live->substeps[position]);
}

uint32_t ul_live_peak(const struct ul_live *live)
{
    uint32_t peak = 0;
    for (uint32_t p = 1; p < live->sequence.position_count; p++) {
        if (ul_live_bytes(live, p) > ul_live_bytes(live, peak))
            peak = p;
    }
    return peak;
}

/* ---- The problem ---- */

static void positions_take(struct ul_live *live)
{
    uint32_t count = live->sequence.position_count;
    live->substeps = UL_NEW_ARRAY(live->arena, const struct ul_plan_substep *, (uint64_t)count + 1);
    live->next = UL_NEW_ARRAY(live->arena, uint32_t, (uint64_t)count + 1);
    live->position_marks = UL_NEW_ARRAY(live->arena, uint32_t, count);
    for (uint32_t p = 0; p < count; p++) {
        live->substeps[p] = &live->sequence.substeps[p];
        live->next[p] = p;
    }
    live->next[count] = count;
}

static void regions_locate(struct ul_live *live)
{
    const struct ul_live_sequence *sequence = &live->sequence;
    live->region_begin = UL_NEW_ARRAY(live->arena, uint32_t, sequence->region_count);
    live->region_end = UL_NEW_ARRAY(live->arena, uint32_t, sequence->region_count);
    for (uint32_t r = 0; r < sequence->region_count; r++)
        live->has_loops = live->has_loops || sequence->regions[r].kind == UL_PLAN_LOOP;
    for (uint32_t p = 0; p < live->sequence.position_count; p++) {
        for (uint32_t r = live->sequence.region_of[p]; r != UL_PLAN_NONE;
             r = sequence->regions[r].parent) {
            if (live->region_end[r] == 0)
                live->region_begin[r] = p;
            live->region_end[r] = p + 1;
        }
    }
}

/* Lists by counting: touch_first[v] moves from the end of the list of v to its beginning. */
static void touches_list(struct ul_live *live)
{
    uint32_t *first = UL_NEW_ARRAY(live->arena, uint32_t, (uint64_t)live->sequence.value_count + 1);
    for (uint32_t p = 0; p < live->sequence.position_count; p++) {
        for (uint32_t i = 0; i < live->substeps[p]->read_count; i++)
            first[live->substeps[p]->reads[i]]++;
        for (uint32_t i = 0; i < live->substeps[p]->write_count; i++)
            first[live->substeps[p]->writes[i]]++;
    }
    for (uint32_t v = 0; v < live->sequence.value_count; v++)
        first[v + 1] += first[v];
    live->touches = UL_NEW_ARRAY(live->arena, uint32_t, first[live->sequence.value_count]);
    for (uint32_t p = live->sequence.position_count; p-- > 0;) {
        for (uint32_t i = 0; i < live->substeps[p]->read_count; i++)
            live->touches[--first[live->substeps[p]->reads[i]]] = p;
        for (uint32_t i = 0; i < live->substeps[p]->write_count; i++)
            live->touches[--first[live->substeps[p]->writes[i]]] = p;
    }
    live->touch_first = first;
}

static void ranges_find(struct ul_live *live)
{
    const struct ul_live_sequence *sequence = &live->sequence;
    live->ranges = UL_NEW_ARRAY(live->arena, struct range, sequence->value_count);
    live->padded_bytes = UL_NEW_ARRAY(live->arena, uint64_t, sequence->value_count);
    live->value_marks = UL_NEW_ARRAY(live->arena, uint32_t, sequence->value_count);
    for (uint32_t v = 0; v < sequence->value_count; v++) {
        const struct ul_plan_value *value = &sequence->values[v];
        live->ranges[v] = range_of(live, v);
        live->value_marks[v] = live->mark; /* nothing to undo */
        if (value->space == 0)
            live->padded_bytes[v] = ul_size_align_or_die(value->size_bytes, live->alignment_bytes);
    }
    for (uint32_t p = 0; p < live->sequence.position_count; p++)
        options_apply(live, p);
}

static void sums_find(struct ul_live *live)
{
    uint64_t live_bytes = 0;
    live->sums_bytes =
        UL_NEW_ARRAY(live->arena, uint64_t, (uint64_t)live->sequence.position_count + 2);
    for (uint32_t v = 0; v < live->sequence.value_count; v++) {
        const struct range *range = &live->ranges[v];
        uint32_t begin = counted_begin(range);
        if (range->begin == UL_PLAN_NONE || begin >= range->end)
            continue;
        live->sums_bytes[begin] += live->padded_bytes[v];
        live->sums_bytes[range->end] -= live->padded_bytes[v];
    }
    for (uint32_t p = 0; p <= live->sequence.position_count; p++) {
        live_bytes += live->sums_bytes[p];
        live->sums_bytes[p] = live_bytes;
    }
}

struct ul_live *ul_live_new(struct ul_arena *arena, const struct ul_live_sequence *sequence,
                            uint64_t alignment_bytes)
{
    struct ul_live *live = UL_NEW(arena, struct ul_live);
    UL_ASSERT(alignment_bytes > 0 && sequence->region_count > 0);
    *live = (struct ul_live){
        .sequence = *sequence, .arena = arena, .alignment_bytes = alignment_bytes, .mark = 1};
    positions_take(live);
    regions_locate(live);
    touches_list(live);
    ranges_find(live);
    sums_find(live);
    return live;
}
