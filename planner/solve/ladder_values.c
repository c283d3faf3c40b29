/* SPDX-License-Identifier: Apache-2.0 */
/* Rewrites a problem so that a value that several steps write is one value for each of them.
 *
 * Problem: in the abstract graph a node makes its whole value. So no writer of a value that is
 * updated, or written by slices (a Concat whose producers write into it), could run again, and a
 * skip connection would have to be kept. Method: each write makes a value of its own, in the place
 * of the one before it:
 *
 *     s: write slice of v              s: writes v.1
 *     r: read the slice                r: reads v.1, must come before t, and runs once
 *     t: write the rest of v           t: reads v.1, writes v (in place of v.1)
 *     u: read v                        u: reads v
 *
 * s, and s and t together, may now be run again. Plans consist of the original problem's steps: a
 * sequence whose reads there would see wrong contents is not a plan, and the checker refuses it.
 * Left undone: writers of a value keep their file order; steps in loops and branches keep their
 * values. */
#include "planner/model/problem_graph.h"
#include "planner/solve/solve_internal.h"

#include <string.h>

struct splitter {
    struct ul_arena *arena;
    const struct ul_problem *from;
    struct ul_problem *to;
    uint32_t *writers; /* by value of `from`: steps that write it */
    /* by value: how many were written so far; 0 for values that are not rewritten */
    uint32_t *versions;
    uint32_t *current;  /* by value: the version that a read finds now */
    uint32_t **readers; /* by value: steps that read the current version, until the next write */
    uint32_t *reader_count, *reader_capacity;
    bool *splits;          /* by value */
    const uint32_t *trees; /* by region; 0: its steps are nodes of the graph */
};

static const struct ul_plan_substep *substep_of(const struct splitter *s, uint32_t step)
{
    return s->from->steps[step].alternatives[0].substeps;
}

static bool is_plain(const struct splitter *s, const struct ul_plan_step *step)
{
    return s->trees[step->region] == 0 && step->alternatives[0].substep_count == 1;
}

/* Chooses values with several writers in the root sequence or in one entry, each with one substep
 * that writes no other such value. */
static void values_choose(struct splitter *s)
{
    const struct ul_problem *from = s->from;
    const uint32_t *entries = ul_value_entries(s->arena, from);
    for (uint32_t i = 0; i < from->step_count; i++) {
        const struct ul_plan_substep *substep = substep_of(s, i);
        for (uint32_t k = 0; k < substep->write_count; k++)
            s->writers[substep->writes[k]] += !ul_ids_have(substep->writes, k, substep->writes[k]);
    }
    for (uint32_t v = 0; v < from->value_count; v++) {
        const struct ul_plan_value *value = &from->values[v];
        s->splits[v] = s->writers[v] > 1 && value->space == 0 && !value->live_from_start &&
                       !value->persistent && !value->pinned && !value->never_recompute &&
                       value->span_region == UL_PLAN_NONE;
    }
    for (uint32_t i = 0; i < from->step_count; i++) {
        const struct ul_plan_step *step = &from->steps[i];
        bool plain = is_plain(s, step);
        for (uint32_t p = 0; p < step->alternatives[0].substep_count; p++) {
            const struct ul_plan_substep *substep = &step->alternatives[0].substeps[p];
            uint32_t shared = 0;
            for (uint32_t k = 0; k < substep->write_count; k++)
                shared += s->writers[substep->writes[k]] > 1;
            for (uint32_t k = 0; k < substep->read_count; k++)
                s->splits[substep->reads[k]] &= plain && step->region == entries[substep->reads[k]];
            for (uint32_t k = 0; k < substep->write_count; k++)
                s->splits[substep->writes[k]] &=
                    plain && shared <= 1 && step->region == entries[substep->writes[k]];
        }
    }
}

static uint32_t version_add(struct splitter *s, uint32_t value)
{
    if (++s->versions[value] == s->writers[value])
        return value; /* the last is the value itself */
    struct ul_plan_value version = s->from->values[value];
    version.live_to_end = false;
    return ul_problem_add_value(s->to, &version);
}

/* Notes that a step reads a version that another step will change: it must come before that step,
 * and only then reads the right contents. */
static void reader_note(struct splitter *s, uint32_t value, uint32_t step)
{
    UL_GROW(s->arena, s->readers[value], s->reader_count[value], s->reader_capacity[value]);
    s->readers[value][s->reader_count[value]++] = step;
}

struct rewriting {
    struct ul_plan_substep substep;
    uint32_t *reads, *writes, *predecessors;
    struct ul_plan_in_place *in_place;
    uint32_t predecessor_count;
    bool runs_once;
};

static void rewriting_init(struct splitter *s, struct rewriting *r, uint32_t step)
{
    const struct ul_plan_step *from = &s->from->steps[step];
    const struct ul_plan_substep *substep = substep_of(s, step);
    uint64_t max = from->predecessor_count;
    for (uint32_t i = 0; i < substep->write_count; i++)
        max += s->reader_count[substep->writes[i]];
    r->substep = *substep;
    r->substep.read_count = r->substep.write_count = r->substep.in_place_count = 0;
    r->reads =
        UL_NEW_ARRAY(s->arena, uint32_t, (uint64_t)substep->read_count + substep->write_count);
    r->writes = UL_NEW_ARRAY(s->arena, uint32_t, substep->write_count);
    r->in_place = UL_NEW_ARRAY(s->arena, struct ul_plan_in_place,
                               (uint64_t)substep->in_place_count + substep->write_count);
    r->predecessors = UL_NEW_ARRAY(s->arena, uint32_t, max);
    r->predecessor_count = from->predecessor_count;
    r->runs_once = false;
    if (from->predecessor_count > 0)
        memcpy(r->predecessors, from->predecessors,
               from->predecessor_count * sizeof *r->predecessors);
}

static void reads_rewrite(struct splitter *s, struct rewriting *r, uint32_t step)
{
    const struct ul_plan_substep *substep = substep_of(s, step);
    for (uint32_t i = 0; i < substep->read_count; i++) {
        uint32_t v = substep->reads[i];
        r->reads[r->substep.read_count++] = s->current[v];
        bool changes = s->splits[v] && s->versions[v] < s->writers[v];
        if (!changes || ul_ids_have(substep->writes, substep->write_count, v))
            continue;
        reader_note(s, v, step);
        r->runs_once = true;
    }
}

static void writes_rewrite(struct splitter *s, struct rewriting *r, uint32_t step)
{
    const struct ul_plan_substep *substep = substep_of(s, step);
    for (uint32_t i = 0; i < substep->write_count; i++) {
        uint32_t v = substep->writes[i];
        uint32_t before = s->current[v];
        if (!s->splits[v] || ul_ids_have(substep->writes, i, v)) {
            r->writes[r->substep.write_count++] = s->current[v];
            continue;
        }
        bool first = s->versions[v] == 0;
        s->current[v] = version_add(s, v);
        r->writes[r->substep.write_count++] = s->current[v];
        if (first)
            continue;
        if (!ul_ids_have(substep->reads, substep->read_count, v))
            r->reads[r->substep.read_count++] = before;
        r->in_place[r->substep.in_place_count++] =
            (struct ul_plan_in_place){.output = s->current[v], .input = before};
        for (uint32_t k = 0; k < s->reader_count[v]; k++)
            r->predecessors[r->predecessor_count++] = s->readers[v][k];
        s->reader_count[v] = 0;
    }
}

/* The step's own options, except those that the value's other writers rule out. */
static void options_rewrite(struct splitter *s, struct rewriting *r, uint32_t step)
{
    const struct ul_plan_substep *substep = substep_of(s, step);
    for (uint32_t i = 0; i < substep->in_place_count; i++) {
        uint32_t out = substep->in_place[i].output;
        uint32_t in = substep->in_place[i].input;
        bool later = s->splits[out] && s->versions[out] > 1;
        bool needed = s->splits[in] && (s->versions[in] < s->writers[in] ||
                                        ul_ids_have(substep->writes, substep->write_count, in));
        if (!later && !needed)
            r->in_place[r->substep.in_place_count++] =
                (struct ul_plan_in_place){.output = s->current[out], .input = s->current[in]};
    }
}

static void step_rewrite(struct splitter *s, uint32_t step)
{
    struct rewriting r;
    struct ul_plan_step *to = &s->to->steps[step];
    rewriting_init(s, &r, step);
    reads_rewrite(s, &r, step);
    writes_rewrite(s, &r, step);
    options_rewrite(s, &r, step);
    struct ul_plan_substep *substep = UL_NEW(s->arena, struct ul_plan_substep);
    struct ul_plan_alternative *alternative = UL_NEW(s->arena, struct ul_plan_alternative);
    *substep = r.substep;
    substep->reads = r.reads;
    substep->writes = r.writes;
    substep->in_place = r.in_place;
    *alternative = to->alternatives[0];
    alternative->substeps = substep;
    to->alternatives = alternative;
    to->predecessors = r.predecessors;
    to->predecessor_count = r.predecessor_count;
    for (uint32_t i = 0; i < substep->write_count && r.runs_once; i++)
        s->to->values[substep->writes[i]].never_recompute = true;
}

bool ul_ladder_values(struct ul_arena *arena, const struct ul_problem *from, struct ul_problem *to)
{
    UL_ASSERT(from != to);
    struct splitter s = {.arena = arena, .from = from, .to = to};
    bool any = false;
    s.writers = UL_NEW_ARRAY(arena, uint32_t, from->value_count);
    s.versions = UL_NEW_ARRAY(arena, uint32_t, from->value_count);
    s.current = UL_NEW_ARRAY(arena, uint32_t, from->value_count);
    s.readers = UL_NEW_ARRAY(arena, uint32_t *, from->value_count);
    s.reader_count = UL_NEW_ARRAY(arena, uint32_t, from->value_count);
    s.reader_capacity = UL_NEW_ARRAY(arena, uint32_t, from->value_count);
    s.splits = UL_NEW_ARRAY(arena, bool, from->value_count);
    *to = *from;
    to->arena = arena;
    to->values = ul_arena_copy(arena, from->values, from->value_count * sizeof *from->values);
    to->value_capacity = from->value_count;
    to->steps = ul_arena_copy(arena, from->steps, from->step_count * sizeof *from->steps);
    s.trees = ul_problem_graph_trees(arena, from);
    values_choose(&s);
    for (uint32_t v = 0; v < from->value_count; v++) {
        s.current[v] = v;
        any = any || s.splits[v];
    }
    for (uint32_t i = 0; i < from->step_count && any; i++) {
        if (is_plain(&s, &from->steps[i]))
            step_rewrite(&s, i);
    }
    return any;
}
