/* SPDX-License-Identifier: Apache-2.0 */
/* The checker's part for banks: each range lies in one of them, and moving bytes costs what the
 * plan says. */
#include "planner/model/check.h"

static const char *bank_name(const struct ul_checker *c, uint32_t bank)
{
    const char *name = c->problem->banks[bank].name;
    return name == NULL ? "(unnamed)" : ul_word_quote(c->scratch, name);
}

static const char *range_name(const struct ul_checker *c, uint32_t r)
{
    uint32_t value = c->plan->ranges[r].value;
    const char *name = value == UL_PLAN_NONE ? "scratch" : c->problem->values[value].name;
    return ul_arena_printf(c->scratch, "range %u (%s)", r,
                           name == NULL ? "(unnamed)" : ul_word_quote(c->scratch, name));
}

/* ---- Banks of ranges ---- */

/* A range is in one bank as a whole, and the bank accepts its kind of content. */
static enum ul_status in_bank_check(const struct ul_checker *c, uint32_t r, uint64_t *tops)
{
    const struct ul_plan_range *range = &c->plan->ranges[r];
    uint64_t end = range->offset_bytes + ul_checker_range_bytes(c, r);
    if (range->size_bytes == 0) /* it is nowhere */
        return UL_OK;
    for (uint32_t b = 0; b < c->plan->bank_count; b++) {
        const struct ul_plan_bank_place *place = &c->plan->banks[b];
        if (range->offset_bytes < place->begin_bytes ||
            end - place->begin_bytes > place->size_bytes)
            continue;
        if (c->problem->banks[b].weights && range->class != UL_PLAN_WEIGHTS)
            FAIL(c, "%s: lies in bank %s, which is for weights.", range_name(c, r),
                 bank_name(c, b));
        if (b > 0 && range->value != UL_PLAN_NONE && c->problem->values[range->value].in_first_bank)
            FAIL(c, "%s: has to lie in the first bank.", range_name(c, r));
        tops[b] = end - place->begin_bytes > tops[b] ? end - place->begin_bytes : tops[b];
        return UL_OK;
    }
    FAIL(c, "%s: at %llu it lies in no bank as a whole.", range_name(c, r),
         (unsigned long long)range->offset_bytes);
}

/* Banks follow each other, contain their ranges, and have room for them. */
static enum ul_status layout_check(const struct ul_checker *c)
{
    const struct ul_plan *plan = c->plan;
    uint64_t behind = 0;
    uint64_t *tops = UL_NEW_ARRAY(c->scratch, uint64_t, c->problem->bank_count);
    if (plan->bank_count == 0)
        return UL_OK;
    if (plan->bank_count != c->problem->bank_count)
        FAIL(c, "the plan has %u banks, and the problem %u.", plan->bank_count,
             c->problem->bank_count);
    for (uint32_t b = 0; b < plan->bank_count; b++) {
        const struct ul_plan_bank_place *place = &plan->banks[b];
        if (place->begin_bytes < behind || place->size_bytes > UINT64_MAX >> 8 ||
            !ul_size_add(place->begin_bytes, place->size_bytes, &behind) ||
            (b == 0 && place->begin_bytes != 0))
            FAIL(c, "bank %s: begins inside the one before it, or beyond all bytes.",
                 bank_name(c, b));
        if (plan->fits && place->size_bytes > c->problem->banks[b].capacity_bytes)
            FAIL(c, "bank %s: holds %llu bytes, above its capacity of %llu.", bank_name(c, b),
                 (unsigned long long)place->size_bytes,
                 (unsigned long long)c->problem->banks[b].capacity_bytes);
    }
    for (uint32_t r = 0; r < plan->range_count; r++)
        if (plan->ranges[r].space == 0)
            UL_TRY(in_bank_check(c, r, tops));
    for (uint32_t b = 0; b < plan->bank_count; b++)
        if (tops[b] != plan->banks[b].size_bytes)
            FAIL(c, "bank %s: holds %llu bytes, but its ranges need %llu.", bank_name(c, b),
                 (unsigned long long)plan->banks[b].size_bytes, (unsigned long long)tops[b]);
    return UL_OK;
}

/* ---- What is moved ---- */

static uint64_t moved_by(const struct ul_checker *c, const struct ul_plan_substep *substep,
                         uint32_t i)
{
    uint32_t touched = substep->read_count + substep->write_count;
    if (substep->traffic != NULL)
        return substep->traffic[i];
    if (i == touched)
        return substep->scratch_bytes > UINT64_MAX / 2 ? UINT64_MAX : 2 * substep->scratch_bytes;
    uint32_t value =
        i < substep->read_count ? substep->reads[i] : substep->writes[i - substep->read_count];
    return c->problem->values[value].size_bytes;
}

/* The range of space 0 that has touch `i` of a position, or NULL. */
static const struct ul_plan_range *touched_range(const struct ul_checker *c,
                                                 const uint32_t *scratch_ranges, uint32_t p,
                                                 uint32_t value)
{
    const struct ul_plan *plan = c->plan;
    const struct ul_plan_range *found = NULL;
    if (value == UL_PLAN_NONE)
        return scratch_ranges[p] == UL_PLAN_NONE ? NULL : &plan->ranges[scratch_ranges[p]];
    for (uint32_t r = plan->value_ranges[value]; r < plan->value_ranges[value + 1]; r++)
        if (plan->ranges[r].space == 0 && plan->ranges[r].begin <= p && p < plan->ranges[r].end)
            found = &plan->ranges[r];
    return found;
}

static uint32_t touched_value(const struct ul_plan_substep *substep, uint32_t i)
{
    if (i < substep->read_count)
        return substep->reads[i];
    return i < substep->read_count + substep->write_count ? substep->writes[i - substep->read_count]
                                                          : UL_PLAN_NONE;
}

/* Adds the bytes that the position of a run moves to the sums of their banks. */
static void moves_add(const struct ul_checker *c, const uint32_t *scratch_ranges, uint32_t p,
                      uint64_t *moved)
{
    const struct ul_plan_position *at = &c->plan->positions[p];
    const struct ul_plan_substep *substep =
        &c->problem->steps[at->step].alternatives[at->alternative].substeps[at->substep];
    for (uint32_t i = 0; i <= substep->read_count + substep->write_count; i++) {
        const struct ul_plan_range *range =
            touched_range(c, scratch_ranges, p, touched_value(substep, i));
        uint32_t b = range == NULL ? 0 : c->plan->bank_count;
        while (b > 0 && (c->plan->banks[b - 1].size_bytes == 0 ||
                         range->offset_bytes < c->plan->banks[b - 1].begin_bytes))
            b--;
        if (b > 0)
            moved[b - 1] = ul_size_add_saturating(moved[b - 1], moved_by(c, substep, i));
    }
}

static uint64_t *moved_of(const struct ul_checker *c)
{
    const struct ul_plan *plan = c->plan;
    uint64_t *moved = UL_NEW_ARRAY(c->scratch, uint64_t, plan->bank_count);
    uint32_t *scratch_ranges = UL_NEW_ARRAY(c->scratch, uint32_t, plan->position_count);
    for (uint32_t p = 0; p < plan->position_count; p++)
        scratch_ranges[p] = UL_PLAN_NONE;
    for (uint32_t r = 0; r < plan->range_count; r++)
        if (plan->ranges[r].value == UL_PLAN_NONE && plan->ranges[r].space == 0)
            scratch_ranges[plan->ranges[r].begin] = r;
    for (uint32_t p = 0; p < plan->position_count; p++)
        if (plan->positions[p].kind == UL_PLAN_RUN)
            moves_add(c, scratch_ranges, p, moved);
    return moved;
}

/* The bytes that the fastest ways of all steps move to and from space 0. */
static uint64_t least_moved(const struct ul_checker *c)
{
    uint64_t sum = 0;
    for (uint32_t s = 0; s < c->problem->step_count; s++) {
        const struct ul_plan_step *step = &c->problem->steps[s];
        const struct ul_plan_alternative *way = &step->alternatives[ul_checker_cheapest(step)];
        for (uint32_t k = 0; k < way->substep_count; k++) {
            const struct ul_plan_substep *substep = &way->substeps[k];
            for (uint32_t i = 0; i <= substep->read_count + substep->write_count; i++) {
                uint32_t value = touched_value(substep, i);
                uint32_t space = value == UL_PLAN_NONE ? substep->scratch_space
                                                       : c->problem->values[value].space;
                sum = ul_size_add_saturating(sum, space == 0 ? moved_by(c, substep, i) : 0);
            }
        }
    }
    return sum;
}

static uint64_t moving_cost(const struct ul_plan_bank *bank, uint64_t bytes)
{
    uint64_t scaled;
    if (!ul_size_mul(bytes, 1000, &scaled))
        scaled = UINT64_MAX;
    if (bank->bandwidth_mb == 0)
        return 0;
    return scaled / bank->bandwidth_mb + (scaled % bank->bandwidth_mb > 0);
}

static enum ul_status moves_check(struct ul_checker *c)
{
    const struct ul_plan *plan = c->plan;
    if (plan->bank_count == 0)
        return UL_OK;
    uint64_t all = least_moved(c);
    c->least_bank_cost = UINT64_MAX;
    for (uint32_t b = 0; b < c->problem->bank_count; b++) {
        uint64_t own = moving_cost(&c->problem->banks[b], all);
        c->least_bank_cost = own < c->least_bank_cost ? own : c->least_bank_cost;
    }
    const uint64_t *moved = moved_of(c);
    for (uint32_t b = 0; b < plan->bank_count; b++)
        c->bank_cost =
            ul_size_add_saturating(c->bank_cost, moving_cost(&c->problem->banks[b], moved[b]));
    if (c->bank_cost != plan->bank_cost)
        FAIL(c, "what is moved to and from banks costs %llu, not %llu.",
             (unsigned long long)c->bank_cost, (unsigned long long)plan->bank_cost);
    if (plan->bank_cost_bound > plan->bank_cost)
        FAIL(c, "the bound of what is moved to and from banks is above its cost.");
    return UL_OK;
}

enum ul_status ul_checker_banks(struct ul_checker *c)
{
    if (c->problem->bank_count == 0 && c->plan->bank_count == 0)
        return UL_OK;
    UL_TRY(layout_check(c));
    return moves_check(c);
}
