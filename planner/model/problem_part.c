/* SPDX-License-Identifier: Apache-2.0 */
/* A region of a problem as a problem of its own: the same steps and values under other numbers. */
#include "planner/model/problem_part.h"

#include <string.h>

struct cutter {
    const struct ul_problem *whole;
    struct ul_arena scratch;
    struct ul_problem *part;
    const uint32_t *alternatives;
    uint32_t *steps;   /* per step of the part: the whole's */
    uint32_t *step_of; /* the other way; UL_PLAN_NONE: it is outside */
    uint32_t *region_of, *value_of;
    bool *is_outside; /* per value: others touch it too */
};

/* The region's number in the part, or UL_PLAN_NONE. */
static uint32_t region_at(const struct cutter *c, uint32_t region)
{
    return region == UL_PLAN_NONE ? UL_PLAN_NONE : c->region_of[region];
}

static void regions_add(struct cutter *c, uint32_t root)
{
    const struct ul_problem *whole = c->whole;
    c->region_of = UL_NEW_ARRAY(&c->scratch, uint32_t, whole->region_count);
    memset(c->region_of, 0xFF, whole->region_count * sizeof *c->region_of);
    c->region_of[root] = 0;
    for (uint32_t r = root + 1; r < whole->region_count; r++) {
        uint32_t parent = region_at(c, whole->regions[r].parent);
        if (parent != UL_PLAN_NONE)
            c->region_of[r] = ul_problem_add_region(c->part, whole->regions[r].kind, parent);
    }
}

static void value_add(struct cutter *c, uint32_t v)
{
    struct ul_plan_value value = c->whole->values[v];
    uint32_t span = value.span_region;
    if (c->value_of[v] != UL_PLAN_NONE)
        return;
    value.span_region = region_at(c, span);
    value.persistent =
        value.persistent || c->is_outside[v] || value.live_from_start || value.live_to_end ||
        (span != UL_PLAN_NONE && (value.span_region == UL_PLAN_NONE || value.span_region == 0));
    if (value.persistent) {
        value.live_from_start = value.live_to_end = value.pinned = false;
        value.span_region = UL_PLAN_NONE;
    }
    c->value_of[v] = ul_problem_add_value(c->part, &value);
}

/* Calls `visit` for each value that the step touches in an alternative that counts. */
static void touches_visit(struct cutter *c, uint32_t s, bool is_inside,
                          void (*visit)(struct cutter *c, uint32_t value, bool is_inside))
{
    const struct ul_plan_step *step = &c->whole->steps[s];
    for (uint32_t a = 0; a < step->alternative_count + step->spare_count; a++) {
        for (uint32_t i = 0; i < step->alternatives[a].substep_count; i++) {
            const struct ul_plan_substep *substep = &step->alternatives[a].substeps[i];
            for (uint32_t k = 0; k < substep->read_count; k++)
                visit(c, substep->reads[k], is_inside);
            for (uint32_t k = 0; k < substep->write_count; k++)
                visit(c, substep->writes[k], is_inside);
        }
    }
}

static void outside_mark(struct cutter *c, uint32_t value, bool is_inside)
{
    c->is_outside[value] |= !is_inside;
}

static void inside_add(struct cutter *c, uint32_t value, bool is_inside)
{
    if (is_inside)
        value_add(c, value);
}

static void values_add(struct cutter *c)
{
    const struct ul_problem *whole = c->whole;
    c->value_of = UL_NEW_ARRAY(&c->scratch, uint32_t, whole->value_count);
    memset(c->value_of, 0xFF, whole->value_count * sizeof *c->value_of);
    c->is_outside = UL_NEW_ARRAY(&c->scratch, bool, whole->value_count);
    for (uint32_t s = 0; s < whole->step_count; s++)
        touches_visit(c, s, c->region_of[whole->steps[s].region] != UL_PLAN_NONE, outside_mark);
    for (uint32_t s = 0; s < whole->step_count; s++)
        touches_visit(c, s, c->region_of[whole->steps[s].region] != UL_PLAN_NONE, inside_add);
}

static uint32_t *ids_map(struct cutter *c, const uint32_t *ids, uint32_t count,
                         const uint32_t *numbers)
{
    uint32_t *mapped = UL_NEW_ARRAY(&c->scratch, uint32_t, count);
    for (uint32_t i = 0; i < count; i++)
        mapped[i] = numbers[ids[i]];
    return mapped;
}

static struct ul_plan_substep substep_map(struct cutter *c, const struct ul_plan_substep *from)
{
    struct ul_plan_substep to = *from;
    struct ul_plan_in_place *in_place =
        UL_NEW_ARRAY(&c->scratch, struct ul_plan_in_place, from->in_place_count);
    to.reads = ids_map(c, from->reads, from->read_count, c->value_of);
    to.writes = ids_map(c, from->writes, from->write_count, c->value_of);
    for (uint32_t i = 0; i < from->in_place_count; i++)
        in_place[i] = (struct ul_plan_in_place){c->value_of[from->in_place[i].output],
                                                c->value_of[from->in_place[i].input]};
    to.in_place = in_place;
    return to;
}

static struct ul_plan_alternative alternative_map(struct cutter *c,
                                                  const struct ul_plan_alternative *from)
{
    struct ul_plan_alternative to = *from;
    struct ul_plan_substep *substeps =
        UL_NEW_ARRAY(&c->scratch, struct ul_plan_substep, from->substep_count);
    for (uint32_t i = 0; i < from->substep_count; i++)
        substeps[i] = substep_map(c, &from->substeps[i]);
    to.substeps = substeps;
    return to;
}

static void step_add(struct cutter *c, uint32_t s)
{
    const struct ul_plan_step *from = &c->whole->steps[s];
    struct ul_plan_step to = *from;
    uint32_t first = c->alternatives != NULL ? c->alternatives[s] : 0;
    to.alternative_count = c->alternatives != NULL ? 1 : from->alternative_count;
    to.spare_count = 0;
    struct ul_plan_alternative *alternatives =
        UL_NEW_ARRAY(&c->scratch, struct ul_plan_alternative, to.alternative_count);
    for (uint32_t a = 0; a < to.alternative_count; a++)
        alternatives[a] = alternative_map(c, &from->alternatives[first + a]);
    uint32_t *predecessors = UL_NEW_ARRAY(&c->scratch, uint32_t, from->predecessor_count);
    to.predecessor_count = 0;
    for (uint32_t i = 0; i < from->predecessor_count; i++) {
        uint32_t before = c->step_of[from->predecessors[i]];
        if (before != UL_PLAN_NONE)
            predecessors[to.predecessor_count++] = before;
    }
    to.region = c->region_of[from->region];
    to.alternatives = alternatives;
    to.predecessors = predecessors;
    c->step_of[s] = ul_problem_add_step(c->part, &to);
    c->steps[c->step_of[s]] = s;
}

void ul_problem_part_make(struct ul_arena *arena, const struct ul_problem *problem, uint32_t region,
                          const uint32_t *alternatives, struct ul_problem_part *part)
{
    struct cutter c = {.whole = problem, .alternatives = alternatives};
    UL_ASSERT(region > 0 && region < problem->region_count);
    ul_arena_init(&c.scratch);
    c.part = ul_problem_new(arena);
    c.part->spaces[0] = problem->spaces[0];
    for (uint32_t i = 1; i < problem->space_count; i++) {
        uint32_t space = ul_problem_add_space(c.part, problem->spaces[i].name, 0);
        c.part->spaces[space] = problem->spaces[i];
    }
    c.steps = UL_NEW_ARRAY(arena, uint32_t, problem->step_count);
    c.step_of = UL_NEW_ARRAY(&c.scratch, uint32_t, problem->step_count);
    memset(c.step_of, 0xFF, problem->step_count * sizeof *c.step_of);
    regions_add(&c, region);
    values_add(&c);
    for (uint32_t s = 0; s < problem->step_count; s++)
        if (c.region_of[problem->steps[s].region] != UL_PLAN_NONE)
            step_add(&c, s);
    *part = (struct ul_problem_part){c.part, c.steps};
    ul_arena_done(&c.scratch);
}
