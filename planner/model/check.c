/* SPDX-License-Identifier: Apache-2.0 */
/* The independent checker: replays a plan against its problem and trusts none of its claims.
 *
 * Method: each value's content is a sum of keys, one for each write to its current copy. A step's
 * read must find exactly the writes that come before the step in file order; so, by induction over
 * the positions, every step computes what it does in file order. A transfer copies the content.
 * What another stream does is done when stream 0 has waited for it; until then nothing may write
 * what it reads, or touch what it writes. Bytes are safe if the lifetimes are long enough (checked
 * against the touches and loops found here), and no two ranges that are live together overlap (a
 * sweep over time with the live ones by address). It shares no code with the planner except the
 * types, and names for messages. */
#include "planner/model/check.h"

#include <stdlib.h>
#include <string.h>

/* ---- Names for messages ---- */

/* The name, quoted where it holds what could move a terminal's cursor. */
static const char *shown(const struct ul_checker *c, const char *name)
{
    const char *at = name;
    while (at != NULL && *at >= ' ' && *at <= '~')
        at++;
    return name == NULL ? "(unnamed)" : *at == '\0' ? name : ul_quote(c->scratch, name);
}

static const char *value_name(const struct ul_checker *c, uint32_t value)
{
    return value == UL_PLAN_NONE ? "scratch" : shown(c, c->problem->values[value].name);
}

static const char *step_name(const struct ul_checker *c, uint32_t step)
{
    return shown(c, c->problem->steps[step].name);
}

/* "position 3, step NAME"; its positions are known to be well formed. */
static const char *place(const struct ul_checker *c, uint32_t p)
{
    const struct ul_plan_position *at = &c->plan->positions[p];
    if (p >= c->plan->position_count)
        return ul_arena_printf(c->scratch, "position %u", p);
    if (at->kind == UL_PLAN_RUN)
        return ul_arena_printf(c->scratch, "position %u, step %s", p, step_name(c, at->step));
    if (at->kind == UL_PLAN_WAIT)
        return ul_arena_printf(c->scratch, "position %u, a wait", p);
    return ul_arena_printf(c->scratch, "position %u, a %s of %s", p,
                           ul_plan_word(ul_plan_word_of(at->kind, at->loads)),
                           value_name(c, at->value));
}

/* "range 3 (NAME)"; for scratch the name of its step. */
static const char *range_name(const struct ul_checker *c, uint32_t r)
{
    const struct ul_plan_range *range = &c->plan->ranges[r];
    if (range->value == UL_PLAN_NONE && range->begin < c->plan->position_count)
        return ul_arena_printf(c->scratch, "range %u (scratch of %s)", r, place(c, range->begin));
    return ul_arena_printf(c->scratch, "range %u (%s)", r, value_name(c, range->value));
}

static uint64_t key_of(uint32_t step)
{
    /* splitmix64's finaliser: sums of different sets of keys are not equal by accident. */
    uint64_t x = ((uint64_t)step + 1) * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

static const struct ul_plan_substep *substep_of(const struct ul_checker *c, uint32_t position)
{
    const struct ul_plan_position *at = &c->plan->positions[position];
    return &c->problem->steps[at->step].alternatives[at->alternative].substeps[at->substep];
}

/* ---- Positions: indexes in range, runs complete, copies counted, regions contiguous ---- */

static bool is_run(const struct ul_checker *c, uint32_t p)
{
    return c->plan->positions[p].kind == UL_PLAN_RUN;
}

/* A step runs where others wait for it, or on the stream of its resource; a stream that belongs to
 * another resource runs nothing else. */
static enum ul_status resource_shape(const struct ul_checker *c, uint32_t p)
{
    const struct ul_plan_position *at = &c->plan->positions[p];
    uint32_t own = c->problem->steps[at->step].alternatives[at->alternative].resource;
    for (uint32_t r = 1; at->stream != 0 && r < c->problem->resource_count; r++) {
        const struct ul_plan_resource *row = &c->problem->resources[r];
        if (row->kind != UL_PLAN_ENGINE && (row->stream == at->stream) != (r == own) &&
            (own != 0 || row->kind == UL_PLAN_LINK))
            FAIL(c, "position %u: step %s runs on stream %u, which is not that of its resource.", p,
                 step_name(c, at->step), at->stream);
    }
    return UL_OK;
}

/* `ways`: by step, the alternative of its first run. Alternatives may differ in the last bits of
 * their results, so a step that runs again must use the same one. */
static enum ul_status run_shape(const struct ul_checker *c, uint32_t p, uint32_t *runs,
                                uint32_t *ways)
{
    const struct ul_plan_position *at = &c->plan->positions[p];
    if (at->step >= c->problem->step_count)
        FAIL(c, "position %u: unknown step.", p);
    const struct ul_plan_step *step = &c->problem->steps[at->step];
    if (at->alternative >= step->alternative_count + step->spare_count ||
        at->substep >= step->alternatives[at->alternative].substep_count)
        FAIL(c, "position %u: step %s has no such alternative or part.", p, step_name(c, at->step));
    UL_TRY(resource_shape(c, p));
    if (at->substep == 0) {
        if (at->copy != runs[at->step])
            FAIL(c, "position %u: step %s is run %u, not %u.", p, step_name(c, at->step),
                 runs[at->step], at->copy);
        ways[at->step] = runs[at->step]++ == 0 ? at->alternative : ways[at->step];
        if (at->alternative != ways[at->step])
            FAIL(c, "position %u: step %s runs again another way than first.", p,
                 step_name(c, at->step));
    } else {
        const struct ul_plan_position *before = p > 0 ? at - 1 : NULL;
        if (before == NULL || before->kind != UL_PLAN_RUN || before->stream != at->stream ||
            before->step != at->step || before->copy != at->copy ||
            before->alternative != at->alternative || before->substep + 1 != at->substep)
            FAIL(c, "position %u: part %u of step %s does not follow part %u.", p, at->substep,
                 step_name(c, at->step), at->substep - 1);
    }
    bool is_last = at->substep + 1 == step->alternatives[at->alternative].substep_count;
    if (!is_last && (p + 1 == c->plan->position_count || !is_run(c, p + 1) ||
                     (at + 1)->substep != at->substep + 1))
        FAIL(c, "position %u: step %s stops half-way.", p, step_name(c, at->step));
    return UL_OK;
}

/* A value that always lives has no second copy unless it is at home elsewhere, and a value that
 * spans a region is not moved. */
static enum ul_status transfer_shape(const struct ul_checker *c, uint32_t p)
{
    const struct ul_plan_position *at = &c->plan->positions[p];
    if (at->value >= c->problem->value_count || at->space >= c->problem->space_count)
        FAIL(c, "position %u: unknown value or space.", p);
    const struct ul_plan_value *value = &c->problem->values[at->value];
    bool leaves = value->persistent && ul_checker_may_leave(c, at->value);
    if (at->loads && leaves && c->away[at->value] == UL_PLAN_NONE)
        c->away[at->value] = at->space;
    if (value->persistent && c->away[at->value] != at->space)
        FAIL(c, "position %u: value %s is not at home in space %u.", p, value_name(c, at->value),
             at->space);
    if (at->space == value->space || value->stays || value->span_region != UL_PLAN_NONE)
        FAIL(c, "position %u: value %s may not move so.", p, value_name(c, at->value));
    const struct ul_plan_resource *engine = ul_checker_engine(c, at->space, at->loads);
    if (engine == NULL)
        FAIL(c, "position %u: space %u takes no transfers.", p, at->space);
    if (at->stream != 0 && at->stream != engine->stream)
        FAIL(c, "position %u: the engine of space %u copies on stream %u, not on %u.", p, at->space,
             engine->stream, at->stream);
    return UL_OK;
}

static enum ul_status position_shape(const struct ul_checker *c, uint32_t p, uint32_t *runs,
                                     uint32_t *ways)
{
    const struct ul_plan_position *at = &c->plan->positions[p];
    if (at->stream >= UL_LIMIT_STREAMS || (unsigned)at->kind > UL_PLAN_WAIT)
        FAIL(c, "position %u: unknown kind or stream.", p);
    if (at->kind == UL_PLAN_RUN)
        return run_shape(c, p, runs, ways);
    if (at->region >= c->problem->region_count ||
        (at->region != 0 && c->problem->regions[at->region].kind != UL_PLAN_ENTRY))
        FAIL(c, "position %u: belongs to no entry.", p);
    if (at->kind != UL_PLAN_WAIT)
        return transfer_shape(c, p);
    if (at->stream != 0 || at->awaited >= p || (c->plan->positions[at->awaited]).stream == 0)
        FAIL(c, "position %u: waits for nothing that another stream does before it.", p);
    return UL_OK;
}

static enum ul_status positions_check(const struct ul_checker *c)
{
    uint32_t *runs = UL_NEW_ARRAY(c->scratch, uint32_t, c->problem->step_count);
    uint32_t *ways = UL_NEW_ARRAY(c->scratch, uint32_t, c->problem->step_count);
    for (uint32_t p = 0; p < c->plan->position_count; p++)
        UL_TRY(position_shape(c, p, runs, ways));
    for (uint32_t s = 0; s < c->problem->step_count; s++) {
        if (runs[s] == 0)
            FAIL(c, "step %s never runs.", step_name(c, s));
    }
    return UL_OK;
}

static uint32_t region_at(const struct ul_checker *c, uint32_t p)
{
    const struct ul_plan_position *at = &c->plan->positions[p];
    return at->kind == UL_PLAN_RUN ? c->problem->steps[at->step].region : at->region;
}

static enum ul_status regions_check(struct ul_checker *c)
{
    const struct ul_plan_region *regions = c->problem->regions;
    uint32_t *count = UL_NEW_ARRAY(c->scratch, uint32_t, c->problem->region_count);
    for (uint32_t p = 0; p < c->plan->position_count; p++) {
        for (uint32_t r = region_at(c, p); r != UL_PLAN_NONE; r = regions[r].parent) {
            if (count[r]++ == 0)
                c->first[r] = p;
            c->last[r] = p + 1;
        }
    }
    for (uint32_t r = 0; r < c->problem->region_count; r++) {
        if (count[r] != c->last[r] - c->first[r])
            FAIL(c, "region %u: its positions are not contiguous.", r);
    }
    return UL_OK;
}

/* ---- Streams and entries ---- */

static enum ul_status stream_check(struct ul_checker *c, uint32_t p)
{
    uint32_t until = c->until[p];
    if (until == UL_PLAN_NONE)
        FAIL(c, "position %u: nothing waits for it.", p);
    if (ul_checker_entry(c, region_at(c, p)) != ul_checker_entry(c, region_at(c, until)))
        FAIL(c, "position %u: another entry waits for it.", p);
    for (uint32_t r = region_at(c, p); r != UL_PLAN_NONE; r = c->problem->regions[r].parent) {
        enum ul_plan_region_kind kind = c->problem->regions[r].kind;
        if (until != p && (kind == UL_PLAN_LOOP || kind == UL_PLAN_BRANCH))
            FAIL(c, "position %u: runs on beside loop or branch %u.", p, r);
    }
    return UL_OK;
}

/* A wait for a position also waits for all earlier positions of its stream. */
static enum ul_status streams_check(struct ul_checker *c)
{
    const struct ul_plan *plan = c->plan;
    uint32_t seen[UL_LIMIT_STREAMS] = {0}; /* by stream: positions from here on are not awaited */
    for (uint32_t p = 0; p < plan->position_count; p++)
        c->until[p] = plan->positions[p].stream == 0 ? p : UL_PLAN_NONE;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct ul_plan_position *at = &plan->positions[p];
        if (at->kind != UL_PLAN_WAIT)
            continue;
        uint32_t stream = plan->positions[at->awaited].stream;
        for (; seen[stream] <= at->awaited; seen[stream]++) {
            if (plan->positions[seen[stream]].stream == stream)
                c->until[seen[stream]] = p;
        }
    }
    for (uint32_t p = 0; p < plan->position_count; p++) {
        c->stream_count = plan->positions[p].stream < c->stream_count
                              ? c->stream_count
                              : plan->positions[p].stream + 1;
        UL_TRY(stream_check(c, p));
    }
    uint64_t uses = (uint64_t)plan->range_count * c->stream_count;
    c->read_until = UL_NEW_ARRAY(c->scratch, uint32_t, uses);
    c->written_until = UL_NEW_ARRAY(c->scratch, uint32_t, uses);
    return UL_OK;
}

static void entry_touch(struct ul_checker *c, const uint32_t *values, uint32_t count,
                        uint32_t entry)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *at = &c->entry[values[i]];
        *at = *at == UL_PLAN_NONE || *at == entry ? entry : 0;
    }
}

static void entries_fill(struct ul_checker *c)
{
    const struct ul_problem *problem = c->problem;
    for (uint32_t v = 0; v < problem->value_count; v++)
        c->entry[v] = UL_PLAN_NONE;
    for (uint32_t s = 0; s < problem->step_count; s++) {
        const struct ul_plan_step *step = &problem->steps[s];
        for (uint32_t a = 0; a < step->alternative_count + step->spare_count; a++)
            for (uint32_t i = 0; i < step->alternatives[a].substep_count; i++) {
                const struct ul_plan_substep *substep = &step->alternatives[a].substeps[i];
                entry_touch(c, substep->reads, substep->read_count,
                            ul_checker_entry(c, step->region));
                entry_touch(c, substep->writes, substep->write_count,
                            ul_checker_entry(c, step->region));
            }
    }
    for (uint32_t v = 0; v < problem->value_count; v++) {
        if (c->entry[v] == UL_PLAN_NONE || problem->values[v].persistent)
            c->entry[v] = 0;
    }
}

static void reads_fill(struct ul_checker *c)
{
    c->is_read = UL_NEW_ARRAY(c->scratch, bool, c->problem->value_count);
    for (uint32_t p = 0; p < c->plan->position_count; p++) {
        const struct ul_plan_substep *substep = is_run(c, p) ? substep_of(c, p) : NULL;
        for (uint32_t i = 0; substep != NULL && i < substep->read_count; i++)
            c->is_read[substep->reads[i]] = true;
    }
}

/* An optional value that nothing reads is nowhere. */
static bool always_lives(const struct ul_checker *c, uint32_t value)
{
    const struct ul_plan_value *v = &c->problem->values[value];
    return v->persistent && (!v->optional || c->is_read[value]);
}

/* Where a value that is live from the start, or to the end, begins and ends. */
static uint32_t start_of(const struct ul_checker *c, uint32_t value)
{
    return c->entry[value] == 0 ? 0 : c->first[c->entry[value]];
}

static uint32_t end_of(const struct ul_checker *c, uint32_t value)
{
    return c->entry[value] == 0 ? c->length : c->last[c->entry[value]];
}

/* ---- Ranges ---- */

static enum ul_status range_shape(const struct ul_checker *c, uint32_t r)
{
    const struct ul_plan_range *range = &c->plan->ranges[r];
    bool scratch = range->value == UL_PLAN_NONE;
    if (!scratch && range->value >= c->problem->value_count)
        FAIL(c, "range %u: unknown value.", r);
    const char *name = value_name(c, range->value);
    if (range->begin >= range->end || range->end > c->length)
        FAIL(c, "range %u (%s): its lifetime from %u to %u is empty or leaves the %u positions.", r,
             name, range->begin, range->end, c->length);
    if (range->space >= c->problem->space_count || (unsigned)range->class >= UL_PLAN_CLASS_COUNT ||
        (range->alias != UL_PLAN_NONE && range->alias >= c->plan->range_count))
        FAIL(c, "range %u (%s): unknown space, class or alias.", r, name);
    uint64_t end;
    if (!ul_size_add(range->offset_bytes, range->size_bytes, &end) || end > UINT64_MAX / 4)
        FAIL(c, "range %u (%s): its offset overflows.", r, name);
    if (scratch) {
        if (range->begin >= c->plan->position_count || !is_run(c, range->begin) ||
            range->end != c->until[range->begin] + 1)
            FAIL(c, "range %u: scratch that does not live for its position, from %u to %u.", r,
                 range->begin, range->end);
        const struct ul_plan_substep *substep = substep_of(c, range->begin);
        if (range->size_bytes != substep->scratch_bytes)
            FAIL(c, "%s: has %llu bytes, and its step asks for %llu.", range_name(c, r),
                 (unsigned long long)range->size_bytes, (unsigned long long)substep->scratch_bytes);
        if (range->space != substep->scratch_space || range->class != UL_PLAN_SCRATCH ||
            range->alias != UL_PLAN_NONE || range->copy != 0)
            FAIL(c, "%s: scratch differs from what its step asks for.", range_name(c, r));
    } else {
        const struct ul_plan_value *value = &c->problem->values[range->value];
        if (range->size_bytes != value->size_bytes)
            FAIL(c, "range %u (%s): has %llu bytes, and the value has %llu.", r, name,
                 (unsigned long long)range->size_bytes, (unsigned long long)value->size_bytes);
        if (range->class != value->class)
            FAIL(c, "range %u (%s): is of class %s, and the value of %s.", r, name,
                 ul_plan_class_name(range->class), ul_plan_class_name(value->class));
        if (value->pinned && range->space == value->space &&
            range->offset_bytes != value->pinned_offset_bytes)
            FAIL(c, "range %u (%s): is not where it is pinned.", r, name);
    }
    if (range->offset_bytes % ul_checker_range_alignment(c, r) != 0)
        FAIL(c, "%s: its offset %llu is no multiple of %llu.", range_name(c, r),
             (unsigned long long)range->offset_bytes,
             (unsigned long long)ul_checker_range_alignment(c, r));
    return UL_OK;
}

/* Ranges of values come first, by (value, copy), then scratch by position, one for each that needs
 * it. */
static enum ul_status ranges_check(const struct ul_checker *c)
{
    const struct ul_plan *plan = c->plan;
    uint32_t next = 0;
    for (uint32_t v = 0; v < c->problem->value_count; v++) {
        if (plan->value_ranges[v] != next || plan->value_ranges[v + 1] < next ||
            plan->value_ranges[v + 1] > plan->range_count)
            FAIL(c, "value %s: its ranges are not where they should be.", value_name(c, v));
        for (; next < plan->value_ranges[v + 1]; next++) {
            const struct ul_plan_range *range = &plan->ranges[next];
            if (range->value != v || range->copy != next - plan->value_ranges[v])
                FAIL(c, "range %u: does not belong to value %s.", next, value_name(c, v));
            if (range->copy > 0 && range->begin < (range - 1)->begin)
                FAIL(c, "range %u (%s): copies out of order.", next, value_name(c, v));
        }
    }
    for (uint32_t p = 0; p < plan->position_count; p++) {
        if (!is_run(c, p) || substep_of(c, p)->scratch_bytes == 0)
            continue;
        if (next >= plan->range_count || plan->ranges[next].value != UL_PLAN_NONE ||
            plan->ranges[next].begin != p)
            FAIL(c, "%s: its scratch of %llu bytes has no range.", place(c, p),
                 (unsigned long long)substep_of(c, p)->scratch_bytes);
        next++;
    }
    if (next != plan->range_count)
        FAIL(c, "range %u: is of no use to any position.", next);
    for (uint32_t r = 0; r < plan->range_count; r++)
        UL_TRY(range_shape(c, r));
    return UL_OK;
}

/* ---- Replay ---- */

/* What each read of each step must see: the keys of all earlier writers in file order. */
static void wanted_fill(struct ul_checker *c)
{
    const struct ul_problem *problem = c->problem;
    uint64_t *mark = UL_NEW_ARRAY(c->scratch, uint64_t, problem->value_count);
    for (uint32_t s = 0; s < problem->step_count; s++) {
        const struct ul_plan_step *step = &problem->steps[s];
        uint64_t reads = 0;
        for (uint32_t a = 0; a < step->alternative_count + step->spare_count; a++)
            for (uint32_t i = 0; i < step->alternatives[a].substep_count; i++)
                reads += step->alternatives[a].substeps[i].read_count;
        c->wanted[s] = UL_NEW_ARRAY(c->scratch, uint64_t, reads);
        reads = 0;
        for (uint32_t a = 0; a < step->alternative_count + step->spare_count; a++)
            for (uint32_t i = 0; i < step->alternatives[a].substep_count; i++) {
                const struct ul_plan_substep *substep = &step->alternatives[a].substeps[i];
                for (uint32_t j = 0; j < substep->read_count; j++)
                    c->wanted[s][reads++] = c->expected[substep->reads[j]];
            }
        for (uint32_t a = 0; a < step->alternative_count + step->spare_count; a++)
            for (uint32_t i = 0; i < step->alternatives[a].substep_count; i++) {
                const struct ul_plan_substep *substep = &step->alternatives[a].substeps[i];
                for (uint32_t j = 0; j < substep->write_count; j++) {
                    if (mark[substep->writes[j]] != (uint64_t)s + 1)
                        c->expected[substep->writes[j]] += key_of(s);
                    mark[substep->writes[j]] = (uint64_t)s + 1;
                }
            }
    }
}

/* Where in wanted[step] the reads of a substep start. */
static uint64_t wanted_index(const struct ul_plan_step *step, const struct ul_plan_position *at)
{
    uint64_t index = 0;
    for (uint32_t a = 0; a <= at->alternative; a++) {
        uint32_t substeps =
            a == at->alternative ? at->substep : step->alternatives[a].substep_count;
        for (uint32_t i = 0; i < substeps; i++)
            index += step->alternatives[a].substeps[i].read_count;
    }
    return index;
}

/* Whether an earlier substep of the same run wrote `value`: its key is then in the content. */
static bool written_by_run(const struct ul_checker *c, uint32_t position, uint32_t value)
{
    uint32_t substep = c->plan->positions[position].substep;
    for (uint32_t back = 1; back <= substep; back++) {
        const struct ul_plan_substep *earlier = substep_of(c, position - back);
        if (ul_checker_has(earlier->writes, earlier->write_count, value))
            return true;
    }
    return false;
}

/* Checks that `p` may use the range now: the range is live, also while `p` runs on; and another
 * stream that still uses it only reads it, as `p` does. */
static enum ul_status range_use(struct ul_checker *c, uint32_t p, uint32_t value, uint32_t r,
                                bool writes)
{
    const struct ul_plan_range *range = r == UL_PLAN_NONE ? NULL : &c->plan->ranges[r];
    uint32_t stream = c->plan->positions[p].stream;
    if (range == NULL)
        FAIL(c, "%s: touches %s, which is not live: no range begins there or before.", place(c, p),
             value_name(c, value));
    if (p < range->begin || c->until[p] >= range->end)
        FAIL(c, "%s: touches %s, which is not live: range %u is from %u to %u.", place(c, p),
             value_name(c, value), r, range->begin, range->end);
    uint32_t *read_until = &c->read_until[(uint64_t)r * c->stream_count];
    uint32_t *written_until = &c->written_until[(uint64_t)r * c->stream_count];
    for (uint32_t s = 0; s < c->stream_count; s++) {
        if (s != stream && (written_until[s] > p || (writes && read_until[s] > p)))
            FAIL(c, "%s: touches %s, which another stream still uses.", place(c, p),
                 value_name(c, value));
    }
    (writes ? written_until : read_until)[stream] = c->until[p] + 1;
    return UL_OK;
}

/* Begins the next of the value's ranges here, in that space. */
static enum ul_status range_begin(struct ul_checker *c, uint32_t p, uint32_t value, uint32_t space,
                                  uint32_t *out)
{
    uint32_t r = c->begun[value];
    if (r >= c->plan->value_ranges[value + 1] || c->plan->ranges[r].begin != p ||
        c->plan->ranges[r].space != space)
        FAIL(c, "%s: makes a copy of %s that has no range.", place(c, p), value_name(c, value));
    c->begun[value]++;
    *out = r;
    return UL_OK;
}

static enum ul_status read_check(struct ul_checker *c, uint32_t p, uint32_t value, uint64_t wanted)
{
    uint32_t r = c->current[value];
    uint32_t step = c->plan->positions[p].step;
    if (r == UL_PLAN_NONE)
        FAIL(c, "position %u: step %s reads %s, which is not live.", p, step_name(c, step),
             value_name(c, value));
    UL_TRY(range_use(c, p, value, r, false));
    if (written_by_run(c, p, value))
        wanted += key_of(step);
    if (c->content[r] != wanted)
        FAIL(c, "position %u: step %s reads %s, which does not hold what it holds in file order.",
             p, step_name(c, step), value_name(c, value));
    return UL_OK;
}

static enum ul_status write_check(struct ul_checker *c, uint32_t p, uint32_t value, bool also_read)
{
    const struct ul_plan *plan = c->plan;
    uint32_t step = plan->positions[p].step;
    uint32_t r = c->current[value];
    bool again = written_by_run(c, p, value);
    uint32_t next = c->begun[value];
    bool fresh = next < plan->value_ranges[value + 1] && plan->ranges[next].begin <= p;
    if (fresh && (also_read || again || plan->ranges[next].begin != p) && r != UL_PLAN_NONE)
        FAIL(c, "%s: range %u, a copy of %s, begins where none is made.", place(c, p), next,
             value_name(c, value));
    if (fresh && c->away[value] != UL_PLAN_NONE)
        FAIL(c, "%s: writes %s, which is not loaded.", place(c, p), value_name(c, value));
    if (fresh && plan->ranges[next].space != c->problem->values[value].space)
        FAIL(c, "%s: makes %s in space %u, and its own is %u.", place(c, p), value_name(c, value),
             plan->ranges[next].space, c->problem->values[value].space);
    if (fresh) {
        r = c->current[value] = next;
        c->begun[value]++;
    }
    UL_TRY(range_use(c, p, value, r, true));
    if (!again)
        c->content[r] += key_of(step);
    return UL_OK;
}

static enum ul_status run_replay(struct ul_checker *c, uint32_t p, const uint8_t *done)
{
    const struct ul_plan_position *at = &c->plan->positions[p];
    const struct ul_plan_step *step = &c->problem->steps[at->step];
    const struct ul_plan_substep *substep = substep_of(c, p);
    for (uint32_t i = 0; i < step->predecessor_count; i++) {
        if (!done[step->predecessors[i]])
            FAIL(c, "position %u: step %s runs before step %s.", p, step_name(c, at->step),
                 step_name(c, step->predecessors[i]));
    }
    uint64_t index = wanted_index(step, at);
    for (uint32_t i = 0; i < substep->read_count; i++)
        UL_TRY(read_check(c, p, substep->reads[i], c->wanted[at->step][index + i]));
    for (uint32_t i = 0; i < substep->write_count; i++) {
        uint32_t value = substep->writes[i];
        if (ul_checker_has(substep->writes, i, value))
            continue;
        UL_TRY(
            write_check(c, p, value, ul_checker_has(substep->reads, substep->read_count, value)));
    }
    return UL_OK;
}

/* A save reads the copy that steps see, a load the newest one in the other space. A value that is
 * at home there has one. */
static enum ul_status transfer_replay(struct ul_checker *c, uint32_t p)
{
    const struct ul_plan_position *at = &c->plan->positions[p];
    bool saves = !at->loads;
    uint32_t own = c->problem->values[at->value].space;
    uint32_t from = c->current[at->value];
    uint32_t to = UL_PLAN_NONE;
    if (!saves) {
        from = c->begun[at->value];
        while (from > c->plan->value_ranges[at->value] &&
               c->plan->ranges[from - 1].space != at->space)
            from--;
        from = from > c->plan->value_ranges[at->value] ? from - 1 : UL_PLAN_NONE;
    }
    UL_TRY(range_use(c, p, at->value, from, false));
    if (saves && c->away[at->value] != UL_PLAN_NONE)
        to = c->plan->value_ranges[at->value];
    else
        UL_TRY(range_begin(c, p, at->value, saves ? at->space : own, &to));
    UL_TRY(range_use(c, p, at->value, to, true));
    c->content[to] = c->content[from];
    if (!saves)
        c->current[at->value] = to;
    return UL_OK;
}

/* Sets what is live before position 0. */
static enum ul_status start_replay(struct ul_checker *c, uint32_t v)
{
    const struct ul_plan *plan = c->plan;
    const struct ul_plan_value *value = &c->problem->values[v];
    bool there = value->live_from_start || always_lives(c, v);
    uint32_t r = plan->value_ranges[v];
    c->begun[v] = r;
    c->current[v] = UL_PLAN_NONE;
    if (!there)
        return UL_OK;
    if (r == plan->value_ranges[v + 1])
        FAIL(c, "value %s: has no range.", value_name(c, v));
    bool is_away = c->away[v] != UL_PLAN_NONE;
    if (plan->ranges[r].begin > start_of(c, v) ||
        plan->ranges[r].space != (is_away ? c->away[v] : value->space))
        FAIL(c, "value %s: is not live from the start.", value_name(c, v));
    if (value->persistent && !is_away && plan->value_ranges[v + 1] != r + 1)
        FAIL(c, "value %s: is persistent and has several copies.", value_name(c, v));
    c->current[v] = is_away ? UL_PLAN_NONE : r;
    c->begun[v]++;
    return UL_OK;
}

static enum ul_status end_replay(const struct ul_checker *c, uint32_t v)
{
    const struct ul_plan_value *value = &c->problem->values[v];
    uint32_t r = c->away[v] != UL_PLAN_NONE ? c->plan->value_ranges[v] : c->current[v];
    if (c->begun[v] != c->plan->value_ranges[v + 1])
        FAIL(c, "value %s: has a copy that nothing makes.", value_name(c, v));
    if (!value->live_to_end && !always_lives(c, v))
        return UL_OK;
    if (r == UL_PLAN_NONE)
        FAIL(c, "value %s: has no range.", value_name(c, v));
    if (c->plan->ranges[r].end < end_of(c, v))
        FAIL(c, "value %s: is not live to the end.", value_name(c, v));
    if (c->content[r] != c->expected[v])
        FAIL(c, "value %s: does not end with what it holds in file order.", value_name(c, v));
    return UL_OK;
}

/* Where an entry begins or ends, no copy of a value that is at home elsewhere may remain in the
 * arena. */
static enum ul_status homes_leave(struct ul_checker *c, uint32_t p)
{
    for (uint32_t v = 0; v < c->problem->value_count; v++) {
        uint32_t r = c->current[v];
        if (c->away[v] == UL_PLAN_NONE || r == UL_PLAN_NONE)
            continue;
        if (c->content[r] != c->content[c->plan->value_ranges[v]])
            FAIL(c, "%s: what is written of %s is not saved before the entry ends.", place(c, p),
                 value_name(c, v));
        c->current[v] = UL_PLAN_NONE;
    }
    return UL_OK;
}

static enum ul_status replay_check(struct ul_checker *c)
{
    uint8_t *done = ul_arena_alloc(c->scratch, c->problem->step_count);
    for (uint32_t v = 0; v < c->problem->value_count; v++)
        UL_TRY(start_replay(c, v));
    wanted_fill(c);
    for (uint32_t p = 0; p < c->plan->position_count; p++) {
        const struct ul_plan_position *at = &c->plan->positions[p];
        if (p > 0 &&
            ul_checker_entry(c, region_at(c, p)) != ul_checker_entry(c, region_at(c, p - 1)))
            UL_TRY(homes_leave(c, p - 1));
        if (at->kind == UL_PLAN_RUN) {
            UL_TRY(run_replay(c, p, done));
            done[at->step] = 1;
        } else if (at->kind != UL_PLAN_WAIT) {
            UL_TRY(transfer_replay(c, p));
        }
    }
    if (c->plan->position_count > 0)
        UL_TRY(homes_leave(c, c->plan->position_count - 1));
    for (uint32_t v = 0; v < c->problem->value_count; v++)
        UL_TRY(end_replay(c, v));
    return UL_OK;
}

/* ---- Loops and entries ---- */

/* A value that a position touches and that a loop around it needs in other rounds must live through
 * the loop; a value that an entry leaves for other calls must always live, as one copy. */
static enum ul_status touch_in_region(const struct ul_checker *c, const struct ul_plan_range *range,
                                      uint32_t region)
{
    enum ul_plan_region_kind kind = c->problem->regions[region].kind;
    const struct ul_plan_value *v = &c->problem->values[range->value];
    const uint32_t *ranges = &c->plan->value_ranges[range->value];
    bool outside = v->persistent || (v->live_from_start && range->copy == 0) ||
                   (v->live_to_end && range == &c->plan->ranges[c->current[range->value]]);
    bool inside = range->begin >= c->first[region] && range->end <= c->last[region];
    bool covers = range->begin <= c->first[region] && range->end >= c->last[region];
    if (kind == UL_PLAN_LOOP && (outside || !inside) && !covers)
        FAIL(c, "value %s: crosses loop %u and does not live through it.",
             value_name(c, range->value), region);
    if (kind == UL_PLAN_ENTRY && !inside &&
        (range->begin != 0 || range->end != c->length || ranges[1] - ranges[0] != 1))
        FAIL(c, "value %s: crosses entry %u and does not always live.", value_name(c, range->value),
             region);
    return UL_OK;
}

static enum ul_status touch_check(const struct ul_checker *c, uint32_t p, uint32_t value)
{
    const struct ul_plan *plan = c->plan;
    const struct ul_plan_range *range = NULL;
    for (uint32_t r = plan->value_ranges[value]; r < plan->value_ranges[value + 1]; r++) {
        if (plan->ranges[r].begin <= p && p < plan->ranges[r].end &&
            plan->ranges[r].space == c->problem->values[value].space)
            range = &plan->ranges[r];
    }
    uint32_t region = region_at(c, p);
    for (; range != NULL && region != UL_PLAN_NONE; region = c->problem->regions[region].parent)
        UL_TRY(touch_in_region(c, range, region));
    return UL_OK;
}

static enum ul_status touches_check(const struct ul_checker *c)
{
    for (uint32_t p = 0; p < c->plan->position_count; p++) {
        if (!is_run(c, p))
            continue;
        const struct ul_plan_substep *substep = substep_of(c, p);
        for (uint32_t i = 0; i < substep->read_count; i++)
            UL_TRY(touch_check(c, p, substep->reads[i]));
        for (uint32_t i = 0; i < substep->write_count; i++)
            UL_TRY(touch_check(c, p, substep->writes[i]));
    }
    for (uint32_t v = 0; v < c->problem->value_count; v++) {
        uint32_t region = c->problem->values[v].span_region;
        uint32_t r = c->plan->value_ranges[v];
        uint32_t end = c->plan->value_ranges[v + 1];
        if (region == UL_PLAN_NONE || r == end || c->last[region] == 0)
            continue;
        if (c->plan->ranges[r].begin > c->first[region] ||
            c->plan->ranges[end - 1].end < c->last[region])
            FAIL(c, "value %s: does not live through its region.", value_name(c, v));
    }
    return UL_OK;
}

/* ---- Bytes ---- */

static enum ul_status alias_check(const struct ul_checker *c, uint32_t r)
{
    const struct ul_plan_range *to = &c->plan->ranges[r];
    if (to->alias == UL_PLAN_NONE)
        return UL_OK;
    const struct ul_plan_range *from = &c->plan->ranges[to->alias];
    const char *name = value_name(c, to->value);
    if (from->value == UL_PLAN_NONE || from->space != to->space ||
        from->space != c->problem->values[from->value].space)
        FAIL(c, "range %u (%s): cannot take over %s, which is in another space, or scratch.", r,
             name, range_name(c, to->alias));
    if (from->offset_bytes != to->offset_bytes || from->size_bytes < to->size_bytes)
        FAIL(c,
             "range %u (%s): cannot take over %s: that has %llu bytes at %llu, and this %llu at "
             "%llu.",
             r, name, range_name(c, to->alias), (unsigned long long)from->size_bytes,
             (unsigned long long)from->offset_bytes, (unsigned long long)to->size_bytes,
             (unsigned long long)to->offset_bytes);
    uint32_t p = to->begin;
    bool option = false;
    if (p < c->plan->position_count && is_run(c, p) && c->until[p] == p) {
        const struct ul_plan_substep *substep = substep_of(c, p);
        for (uint32_t i = 0; i < substep->in_place_count; i++)
            option =
                option || (substep->in_place[i].output == to->value &&
                           substep->in_place[i].input == from->value &&
                           !ul_checker_has(substep->writes, substep->write_count, from->value));
    }
    const struct ul_plan_value *input = &c->problem->values[from->value];
    bool newest = to->alias == c->current[from->value];
    bool earlier = from->begin < p || (input->live_from_start && from->copy == 0);
    const struct ul_plan_value *output = &c->problem->values[to->value];
    bool there = output->persistent || (output->live_from_start && to->copy == 0);
    if (!option || !earlier || there || from->end != p + 1 || input->persistent ||
        (input->live_to_end && newest))
        FAIL(c, "range %u (%s): may not be in place of %s at %s.", r, name,
             value_name(c, from->value), place(c, p));
    for (uint32_t region = region_at(c, p); region != UL_PLAN_NONE;
         region = c->problem->regions[region].parent) {
        enum ul_plan_region_kind kind = c->problem->regions[region].kind;
        bool before = from->begin < c->first[region];
        if ((kind == UL_PLAN_LOOP && (before || input->live_from_start)) ||
            (kind == UL_PLAN_ENTRY && before))
            FAIL(c, "range %u (%s): overwrites %s at %s, which is needed again.", r, name,
                 value_name(c, from->value), place(c, p));
    }
    return UL_OK;
}

/* The sweep below sees the result of a handover from the position after it on: two outputs in place
 * of one input would overwrite each other at the position itself, and would never meet in the sweep
 * if one of them is not used later. */
static enum ul_status aliases_check(const struct ul_checker *c)
{
    const struct ul_plan *plan = c->plan;
    uint32_t *taker = UL_NEW_ARRAY(c->scratch, uint32_t, plan->range_count);
    for (uint32_t r = 0; r < plan->range_count; r++)
        taker[r] = UL_PLAN_NONE;
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *to = &plan->ranges[r];
        UL_TRY(alias_check(c, r));
        if (to->alias == UL_PLAN_NONE)
            continue;
        if (taker[to->alias] != UL_PLAN_NONE)
            FAIL(c, "%s and %s both take over range %u (%s) at %s.",
                 range_name(c, taker[to->alias]), range_name(c, r), to->alias,
                 value_name(c, plan->ranges[to->alias].value), place(c, to->begin));
        taker[to->alias] = r;
    }
    return UL_OK;
}

struct entry {
    uint32_t time; /* begin */
    uint32_t range;
};

static int entry_compare(const void *a, const void *b)
{
    const struct entry *x = a;
    const struct entry *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return x->range < y->range ? -1 : x->range > y->range;
}

/* Index of the first live range at or above `offset`. */
static uint32_t live_find(const struct ul_checker *c, const uint32_t *live, uint32_t count,
                          uint64_t offset)
{
    uint32_t low = 0;
    while (low < count) {
        uint32_t middle = low + (count - low) / 2;
        if (c->plan->ranges[live[middle]].offset_bytes < offset)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

static enum ul_status live_insert(const struct ul_checker *c, uint32_t *live, uint32_t *count,
                                  uint32_t r)
{
    const struct ul_plan_range *range = &c->plan->ranges[r];
    uint32_t at = live_find(c, live, *count, range->offset_bytes);
    uint32_t clash = UL_PLAN_NONE;
    if (at < *count &&
        c->plan->ranges[live[at]].offset_bytes < range->offset_bytes + ul_checker_range_bytes(c, r))
        clash = live[at];
    if (at > 0 &&
        c->plan->ranges[live[at - 1]].offset_bytes + ul_checker_range_bytes(c, live[at - 1]) >
            range->offset_bytes)
        clash = live[at - 1];
    if (clash != UL_PLAN_NONE)
        FAIL(c, "%s at %llu and %s at %llu overlap at %s.", range_name(c, clash),
             (unsigned long long)c->plan->ranges[clash].offset_bytes, range_name(c, r),
             (unsigned long long)range->offset_bytes, place(c, range->begin));
    memmove(live + at + 1, live + at, (*count - at) * sizeof *live);
    live[at] = r;
    (*count)++;
    return UL_OK;
}

/* A range in place of another one occupies bytes of its own from the position after the
 * handover. */
static enum ul_status space_sweep(const struct ul_checker *c, uint32_t space, struct entry *begins,
                                  struct entry *ends, uint32_t *live)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < c->plan->range_count; r++) {
        const struct ul_plan_range *range = &c->plan->ranges[r];
        uint32_t begin = range->begin + (range->alias != UL_PLAN_NONE);
        if (range->space != space || begin >= range->end || range->size_bytes == 0)
            continue;
        begins[count] = (struct entry){begin, r};
        ends[count++] = (struct entry){range->end, r};
    }
    qsort(begins, count, sizeof *begins, entry_compare);
    qsort(ends, count, sizeof *ends, entry_compare);
    uint32_t live_count = 0;
    uint32_t ended = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (; ended < count && ends[ended].time <= begins[i].time; ended++) {
            uint32_t at =
                live_find(c, live, live_count, c->plan->ranges[ends[ended].range].offset_bytes);
            UL_ASSERT(at < live_count && live[at] == ends[ended].range);
            live_count--;
            memmove(live + at, live + at + 1, (live_count - at) * sizeof *live);
        }
        UL_TRY(live_insert(c, live, &live_count, begins[i].range));
    }
    return UL_OK;
}

static enum ul_status bytes_check(const struct ul_checker *c)
{
    const struct ul_plan *plan = c->plan;
    struct entry *begins = UL_NEW_ARRAY(c->scratch, struct entry, plan->range_count);
    struct entry *ends = UL_NEW_ARRAY(c->scratch, struct entry, plan->range_count);
    uint32_t *live = UL_NEW_ARRAY(c->scratch, uint32_t, (uint64_t)plan->range_count + 1);
    UL_TRY(aliases_check(c));
    for (uint32_t space = 0; space < c->problem->space_count; space++) {
        UL_TRY(space_sweep(c, space, begins, ends, live));
        uint64_t top = 0;
        for (uint32_t r = 0; r < plan->range_count; r++) {
            if (plan->ranges[r].space == space &&
                plan->ranges[r].offset_bytes + ul_checker_range_bytes(c, r) > top)
                top = plan->ranges[r].offset_bytes + ul_checker_range_bytes(c, r);
        }
        if (top != plan->reserved_bytes[space])
            FAIL(c, "space %u: reserves %llu bytes, but its ranges need %llu.", space,
                 (unsigned long long)plan->reserved_bytes[space], (unsigned long long)top);
        uint64_t capacity = c->problem->spaces[space].capacity_bytes;
        bool has_banks = space == 0 && plan->bank_count > 0; /* which have capacities each */
        if (plan->fits && capacity != 0 && top > capacity && !has_banks)
            FAIL(c, "space %u: does not fit its capacity, as the plan says.", space);
    }
    return UL_OK;
}

enum ul_status ul_plan_check(struct ul_arena *scratch, const struct ul_problem *problem,
                             const struct ul_plan *plan, struct ul_diag *diag)
{
    struct ul_checker c = {.problem = problem, .plan = plan, .scratch = scratch, .diag = diag};
    c.length = plan->position_count > 0 ? plan->position_count : 1;
    if (plan->space_count != problem->space_count || plan->alignment_bytes == 0 ||
        (plan->alignment_bytes & (plan->alignment_bytes - 1)) != 0 ||
        plan->alignment_bytes > (uint64_t)1 << 30)
        FAIL(&c, "the plan's spaces or alignment are not those of the problem.");
    c.expected = UL_NEW_ARRAY(scratch, uint64_t, problem->value_count);
    c.wanted = UL_NEW_ARRAY(scratch, uint64_t *, problem->step_count);
    c.content = UL_NEW_ARRAY(scratch, uint64_t, plan->range_count);
    c.current = UL_NEW_ARRAY(scratch, uint32_t, problem->value_count);
    c.begun = UL_NEW_ARRAY(scratch, uint32_t, problem->value_count);
    c.entry = UL_NEW_ARRAY(scratch, uint32_t, problem->value_count);
    c.away = UL_NEW_ARRAY(scratch, uint32_t, problem->value_count);
    for (uint32_t v = 0; v < problem->value_count; v++)
        c.away[v] = UL_PLAN_NONE;
    c.until = UL_NEW_ARRAY(scratch, uint32_t, plan->position_count);
    c.first = UL_NEW_ARRAY(scratch, uint32_t, problem->region_count);
    c.last = UL_NEW_ARRAY(scratch, uint32_t, problem->region_count);
    UL_TRY(positions_check(&c));
    UL_TRY(regions_check(&c));
    UL_TRY(streams_check(&c));
    entries_fill(&c);
    reads_fill(&c);
    UL_TRY(ranges_check(&c));
    UL_TRY(replay_check(&c));
    UL_TRY(touches_check(&c));
    UL_TRY(bytes_check(&c));
    UL_TRY(ul_checker_banks(&c));
    return ul_checker_sums(&c);
}
