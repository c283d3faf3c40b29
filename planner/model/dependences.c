/* SPDX-License-Identifier: Apache-2.0 */
/* Finds which positions of a finished plan depend on which earlier ones.
 *
 * A read comes after the write of its value. A write comes after every earlier read and write of
 * its value. A save reads its value, and a load writes it. A run of a step comes after the run
 * before it and the runs of its predecessors. Left undone: dependences that follow from the places
 * of ranges. */
#include "planner/model/timeline.h"

#include <string.h>

struct finder {
    struct ul_arena *arena;
    const struct ul_problem *problem;
    const struct ul_plan *plan;
    struct ul_plan_list *before;
    uint32_t *writers;            /* by value: the last position that writes it */
    struct ul_plan_list *readers; /* by value: the positions that have read it since */
    uint32_t *runs;               /* by step: the last position that runs it */
};

void ul_plan_list_add(struct ul_arena *arena, struct ul_plan_list *list, uint32_t item)
{
    UL_GROW(arena, list->items, list->count, list->capacity);
    list->items[list->count++] = item;
}

static void add_edge(struct finder *f, uint32_t from, uint32_t to)
{
    if (from == UL_PLAN_NONE || from == to)
        return;
    UL_ASSERT(from < to);
    ul_plan_list_add(f->arena, &f->before[to], from);
}

static void add_touches(struct finder *f, uint32_t p, const struct ul_plan_substep *substep)
{
    for (uint32_t i = 0; i < substep->read_count; i++) {
        add_edge(f, f->writers[substep->reads[i]], p);
        ul_plan_list_add(f->arena, &f->readers[substep->reads[i]], p);
    }
    for (uint32_t i = 0; i < substep->write_count; i++) {
        struct ul_plan_list *readers = &f->readers[substep->writes[i]];
        add_edge(f, f->writers[substep->writes[i]], p);
        for (uint32_t r = 0; r < readers->count; r++)
            add_edge(f, readers->items[r], p);
        readers->count = 0;
        f->writers[substep->writes[i]] = p;
    }
}

static void add_predecessors(struct finder *f, uint32_t p)
{
    uint32_t step = f->plan->positions[p].step;
    const struct ul_plan_step *of = &f->problem->steps[step];
    for (uint32_t i = 0; i < of->predecessor_count; i++)
        add_edge(f, f->runs[of->predecessors[i]], p);
    add_edge(f, f->runs[step], p);
    f->runs[step] = p;
}

void ul_plan_find_before(struct ul_arena *arena, const struct ul_problem *problem,
                         const struct ul_plan *plan, struct ul_plan_list *before)
{
    struct finder f = {.arena = arena,
                       .problem = problem,
                       .plan = plan,
                       .before = before,
                       .writers = UL_NEW_ARRAY(arena, uint32_t, problem->value_count),
                       .readers = UL_NEW_ARRAY(arena, struct ul_plan_list, problem->value_count),
                       .runs = UL_NEW_ARRAY(arena, uint32_t, problem->step_count)};
    memset(f.writers, 0xFF, problem->value_count * sizeof *f.writers);
    memset(f.runs, 0xFF, problem->step_count * sizeof *f.runs);
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct ul_plan_position *at = &plan->positions[p];
        const struct ul_plan_substep copy = {.reads = &at->value,
                                             .read_count = !at->loads,
                                             .writes = &at->value,
                                             .write_count = at->loads};
        if (at->kind == UL_PLAN_RUN) {
            add_touches(&f, p, ul_substep_at(problem, at));
            add_predecessors(&f, p);
        } else if (at->kind != UL_PLAN_WAIT) {
            add_touches(&f, p, &copy);
        }
    }
}
