/* SPDX-License-Identifier: Apache-2.0 */
/* Makes problems of regions of a problem: the same steps and values with other numbers. */
#include "planner/model/problem_part.h"

#include "planner/model/problem_graph.h"

#include <string.h>

struct cutter {
    const struct ul_problem *whole;
    struct ul_arena scratch;
    struct ul_problem *part;
    const struct ul_problem_trees *trees;
    const struct ul_problem_tree *tree;
    const uint32_t *alternatives;
    uint32_t *region_of, *value_of; /* their numbers in the part, or UL_PLAN_NONE */
};

/* Calls `visit` for each value that a step touches. */
static void touches_visit(const struct ul_plan_step *step, void *context,
                          void (*visit)(void *context, uint32_t value))
{
    for (uint32_t a = 0; a < step->alternative_count + step->spare_count; a++) {
        for (uint32_t i = 0; i < step->alternatives[a].substep_count; i++) {
            const struct ul_plan_substep *substep = &step->alternatives[a].substeps[i];
            for (uint32_t k = 0; k < substep->read_count; k++)
                visit(context, substep->reads[k]);
            for (uint32_t k = 0; k < substep->write_count; k++)
                visit(context, substep->writes[k]);
        }
    }
}

/* ---- Trees ---- */

struct toucher {
    struct ul_problem_trees *trees;
    uint32_t step;
};

static void touch_note(void *context, uint32_t value)
{
    const struct toucher *toucher = context;
    struct ul_problem_trees *trees = toucher->trees;
    if (trees->touch_end[value] == 0)
        trees->touch_first[value] = toucher->step;
    trees->touch_end[value] = toucher->step + 1;
}

void ul_problem_trees_find(struct ul_arena *arena, const struct ul_problem *problem,
                           struct ul_problem_trees *trees)
{
    const uint32_t *tree_of = ul_problem_graph_trees(arena, problem);
    *trees = (struct ul_problem_trees){
        .trees = UL_NEW_ARRAY(arena, struct ul_problem_tree, problem->region_count),
        .touch_first = UL_NEW_ARRAY(arena, uint32_t, problem->value_count),
        .touch_end = UL_NEW_ARRAY(arena, uint32_t, problem->value_count)};
    for (uint32_t s = 0; s < problem->step_count; s++) {
        struct toucher toucher = {trees, s};
        uint32_t region = tree_of[problem->steps[s].region];
        touches_visit(&problem->steps[s], &toucher, touch_note);
        if (region == 0)
            continue;
        if (trees->count == 0 || trees->trees[trees->count - 1].region != region)
            trees->trees[trees->count++] = (struct ul_problem_tree){.region = region, .first = s};
        trees->trees[trees->count - 1].end = s + 1;
    }
}

/* ---- Parts ---- */

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

static void value_add(void *context, uint32_t v)
{
    struct cutter *c = context;
    struct ul_plan_value value = c->whole->values[v];
    uint32_t span = value.span_region;
    if (c->value_of[v] != UL_PLAN_NONE)
        return;
    bool is_outside =
        c->trees->touch_first[v] < c->tree->first || c->trees->touch_end[v] > c->tree->end;
    value.span_region = region_at(c, span);
    value.persistent =
        value.persistent || is_outside || value.live_from_start || value.live_to_end ||
        (span != UL_PLAN_NONE && (value.span_region == UL_PLAN_NONE || value.span_region == 0));
    if (value.persistent) {
        value.live_from_start = value.live_to_end = value.pinned = false;
        value.span_region = UL_PLAN_NONE;
    }
    c->value_of[v] = ul_problem_add_value(c->part, &value);
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
    for (uint32_t i = 0; i < from->predecessor_count; i++)
        if (from->predecessors[i] >= c->tree->first)
            predecessors[to.predecessor_count++] = from->predecessors[i] - c->tree->first;
    to.region = c->region_of[from->region];
    to.alternatives = alternatives;
    to.predecessors = predecessors;
    (void)ul_problem_add_step(c->part, &to);
}

struct ul_problem *ul_problem_part_make(struct ul_arena *arena, const struct ul_problem *problem,
                                        const struct ul_problem_trees *trees, uint32_t tree,
                                        const uint32_t *alternatives)
{
    struct cutter c = {.whole = problem,
                       .trees = trees,
                       .tree = &trees->trees[tree],
                       .alternatives = alternatives};
    UL_ASSERT(tree < trees->count);
    ul_arena_init(&c.scratch);
    c.part = ul_problem_new(arena);
    c.part->spaces[0] = problem->spaces[0];
    for (uint32_t i = 1; i < problem->space_count; i++) {
        uint32_t space = ul_problem_add_space(c.part, problem->spaces[i].name, 0);
        c.part->spaces[space] = problem->spaces[i];
    }
    for (uint32_t i = 1; i < problem->resource_count; i++)
        ul_problem_add_resource(c.part, &problem->resources[i]);
    regions_add(&c, c.tree->region);
    c.value_of = UL_NEW_ARRAY(&c.scratch, uint32_t, problem->value_count);
    memset(c.value_of, 0xFF, problem->value_count * sizeof *c.value_of);
    for (uint32_t s = c.tree->first; s < c.tree->end; s++) {
        touches_visit(&problem->steps[s], &c, value_add);
        step_add(&c, s);
    }
    ul_arena_done(&c.scratch);
    return c.part;
}
