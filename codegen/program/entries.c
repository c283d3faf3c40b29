/* SPDX-License-Identifier: Apache-2.0 */
/* The entry points of a program, with their inputs and outputs.
 *
 * A root is called as a whole. A program that trains also has slices of its root, which leave out
 * steps that their outputs do not depend on: an evaluation needs only the loss. Since the plan
 * keeps every value in place until its very last reader, leaving steps out disturbs nothing:
 *
 *      step      forward   loss   backward   accumulate   update
 *      run          x        x       x           x          x
 *      evaluate     x        x
 *      accumulate   x        x       x           x
 *      begin        x        x       x           x
 *
 * The last two differ only in calls of a library, which cannot read the number of the run in its
 * step: in `begin` they do not add to the old sums. */
#include "codegen/program/program_internal.h"
#include "ir/training.h"
#include "planner/model/plan.h"

#include <string.h>

/* All numbers below `count` for which `kept` equals `wanted`. */
static const uint32_t *numbers(struct ul_program_builder *builder, const bool *kept, bool wanted,
                               uint32_t count, uint32_t *found)
{
    uint32_t *list = UL_NEW_ARRAY(builder->arena, uint32_t, count);
    *found = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (kept[i] == wanted)
            list[(*found)++] = i;
    }
    return list;
}

/* Whether an evaluation makes the output of that number. */
static bool is_result(const struct ul_program_builder *builder, uint32_t number)
{
    const struct ul_training *training = builder->options->training;
    bool found = false;
    for (uint32_t i = 0; i < training->result_count; i++)
        found = found || training->results[i] == number;
    return found;
}

/* Whether it is no update: neither a parameter nor a state that waits for the end of the step. */
static bool is_no_update(const struct ul_program_builder *builder, uint32_t number)
{
    const struct ul_graph *graph = builder->graph;
    ul_value_id donor = graph->values[ul_graph_only_root(graph)->outputs[number]].donor;
    uint32_t flags = donor != UL_NONE ? graph->values[donor].flags : 0;
    return (flags & (UL_VALUE_TRAINED | UL_VALUE_OPTIMIZER | UL_VALUE_GUARDED)) == 0;
}

/* A slice of the root of a program that trains. */
static void add_slice(struct ul_program_builder *builder, uint32_t entry, const char *name,
                      const char *steps,
                      bool (*makes)(const struct ul_program_builder *builder, uint32_t number))
{
    const struct ul_block *root = ul_graph_only_root(builder->graph);
    bool *made = UL_NEW_ARRAY(builder->arena, bool, root->output_count);
    struct ul_program_entry *added = &builder->program->entries[entry];
    const struct ul_program_entry *run = &builder->program->entries[UL_PROGRAM_RUN];
    UL_ASSERT(builder->program->entry_count == entry);
    for (uint32_t i = 0; i < root->output_count; i++)
        made[i] = makes(builder, i);
    builder->program->entry_count++;
    added->name = name;
    added->steps = steps;
    added->inputs = run->inputs;
    added->input_count = run->input_count;
    added->outputs = numbers(builder, made, true, root->output_count, &added->output_count);
}

/* The name of a root's entry, as an identifier of C. */
static const char *name_of(struct ul_program_builder *builder, ul_block_id root, const char *name)
{
    const struct ul_graph *graph = builder->graph;
    return graph->root_count == 1
               ? name
               : ul_arena_printf(builder->arena, "%s_%s", graph->blocks[root].name, name);
}

static void add_root(struct ul_program_builder *builder, ul_block_id id)
{
    struct ul_program *program = builder->program;
    const struct ul_block *root = &builder->graph->blocks[id];
    struct ul_program_entry *set_up =
        &program->entries[id * UL_PROGRAM_ROOT_ENTRIES + UL_PROGRAM_SET_UP];
    struct ul_program_entry *run = &program->entries[id * UL_PROGRAM_ROOT_ENTRIES + UL_PROGRAM_RUN];
    bool *kept = UL_NEW_ARRAY(builder->arena, bool, root->input_count);
    bool *made = UL_NEW_ARRAY(builder->arena, bool, root->output_count);
    UL_ASSERT(run->name == NULL);
    set_up->root = run->root = id;
    set_up->name = set_up->steps = name_of(builder, id, "set_up");
    run->name = run->steps = name_of(builder, id, "run");
    for (uint32_t i = 0; i < root->input_count; i++) {
        uint32_t place = program->value_places[root->inputs[i]];
        const struct ul_plan_value *value = &program->problem->values[place];
        kept[i] = value->persistent && value->space == UL_PROGRAM_ARENA;
    }
    set_up->inputs = numbers(builder, kept, true, root->input_count, &set_up->input_count);
    run->inputs = numbers(builder, kept, false, root->input_count, &run->input_count);
    run->outputs = numbers(builder, made, false, root->output_count, &run->output_count);
    UL_ASSERT(set_up->input_count + run->input_count == root->input_count);
    program->entry_count += UL_PROGRAM_ROOT_ENTRIES;
}

void ul_entry_add_all(struct ul_program_builder *builder)
{
    struct ul_program *program = builder->program;
    uint32_t root_count = builder->graph->root_count;
    uint64_t max = (uint64_t)root_count * UL_PROGRAM_ROOT_ENTRIES;
    max = max > UL_PROGRAM_SLICES_END ? max : UL_PROGRAM_SLICES_END;
    program->entries = UL_NEW_ARRAY(builder->arena, struct ul_program_entry, max);
    for (uint32_t r = 0; r < root_count; r++)
        add_root(builder, r);
    if (builder->options->training == NULL)
        return;
    add_slice(builder, UL_PROGRAM_EVALUATE, "evaluate", "evaluate", is_result);
    if (builder->options->training->micro_batches <= 1)
        return;
    add_slice(builder, UL_PROGRAM_ACCUMULATE, "accumulate", "accumulate", is_no_update);
    add_slice(builder, UL_PROGRAM_BEGIN, "begin", "accumulate", is_no_update);
}

/* ---- Steps of an entry ----
 *
 * A transfer of a value is needed where what it moves is read later; so is the wait for it. */

struct slice {
    const struct ul_program *program;
    const struct ul_plan *plan;
    bool *wanted; /* by place */
    bool *runs;   /* by position */
};

static const struct ul_plan_substep *substep_at(const struct slice *slice, uint32_t position)
{
    const struct ul_plan_position *at = &slice->plan->positions[position];
    UL_ASSERT(at->kind == UL_PLAN_RUN);
    const struct ul_plan_step *step = &slice->program->problem->steps[at->step];
    return &step->alternatives[at->alternative].substeps[at->substep];
}

/* The outermost region around a position, below the root; or the root. */
static uint32_t region_around(const struct slice *slice, uint32_t position)
{
    const struct ul_program_region *regions = slice->program->regions;
    uint32_t region = ul_program_region_at(slice->program, &slice->plan->positions[position]);
    while (region != 0 && regions[region].parent != 0)
        region = regions[region].parent;
    return region;
}

static bool makes_wanted(const struct slice *slice, uint32_t position)
{
    const struct ul_plan_position *at = &slice->plan->positions[position];
    if (at->kind != UL_PLAN_RUN)
        return at->kind != UL_PLAN_WAIT && slice->wanted[at->value];
    const struct ul_plan_substep *substep = substep_at(slice, position);
    bool any = false;
    for (uint32_t i = 0; i < substep->write_count; i++)
        any = any || slice->wanted[substep->writes[i]];
    return any;
}

static void take(struct slice *slice, uint32_t position)
{
    slice->runs[position] = true;
    if (slice->plan->positions[position].kind != UL_PLAN_RUN)
        return;
    const struct ul_plan_substep *substep = substep_at(slice, position);
    for (uint32_t i = 0; i < substep->read_count; i++)
        slice->wanted[substep->reads[i]] = true;
}

/* Walks backwards: takes steps that make wanted values, and then wants what they read. Loops and
 * branches are taken as a whole. */
static void take_needed(struct slice *slice)
{
    for (uint32_t end = slice->plan->position_count; end > 0;) {
        uint32_t begin = end - 1, region = region_around(slice, begin);
        bool any = makes_wanted(slice, begin);
        while (region != 0 && begin > 0 && region_around(slice, begin - 1) == region)
            any = makes_wanted(slice, --begin) || any;
        for (uint32_t p = end; any && p-- > begin;)
            take(slice, p);
        end = begin;
    }
}

/* Takes the waits for transfers that are taken. */
static void take_waits(struct slice *slice)
{
    const struct ul_plan_position *positions = slice->plan->positions;
    uint32_t seen[UL_LIMIT_STREAMS] = {0}; /* by stream: positions before it are waited for */
    for (uint32_t w = 0; w < slice->plan->position_count; w++) {
        if (positions[w].kind != UL_PLAN_WAIT)
            continue;
        uint32_t last = positions[w].awaited, stream = positions[last].stream;
        UL_ASSERT(last < w && stream < UL_LIMIT_STREAMS);
        for (; seen[stream] <= last; seen[stream]++) {
            if (positions[seen[stream]].stream == stream && slice->runs[seen[stream]])
                slice->runs[w] = true;
        }
    }
}

/* Whether no step changes a weight that the entry does not make. */
static bool leaves_states(const struct slice *slice, const bool *made)
{
    for (uint32_t p = 0; p < slice->plan->position_count; p++) {
        if (!slice->runs[p] || slice->plan->positions[p].kind != UL_PLAN_RUN)
            continue;
        const struct ul_plan_substep *substep = substep_at(slice, p);
        for (uint32_t i = 0; i < substep->write_count; i++) {
            uint32_t place = substep->writes[i];
            if (slice->program->places[place].kind == UL_PLACE_DONATED && !made[place])
                return false;
        }
    }
    return true;
}

static uint32_t run_of(const struct ul_program_entry *entry)
{
    return entry->root * UL_PROGRAM_ROOT_ENTRIES + UL_PROGRAM_RUN;
}

/* Marks all steps of a root, with the transfers of its values. */
static void mark_root(struct slice *slice, ul_block_id root)
{
    const struct ul_program *program = slice->program;
    bool is_only = program->graph->root_count == 1;
    for (uint32_t p = 0; p < slice->plan->position_count; p++)
        slice->runs[p] = is_only || region_around(slice, p) == program->root_regions[root];
}

void ul_program_mark_entry(const struct ul_program *program, const struct ul_plan *plan,
                           uint32_t entry, struct ul_arena *arena, bool *runs)
{
    const struct ul_program_entry *info = &program->entries[entry];
    const struct ul_block *root = &program->graph->blocks[info->root];
    struct slice slice = {.program = program, .plan = plan, .runs = runs};
    bool *made = UL_NEW_ARRAY(arena, bool, program->place_count);
    UL_ASSERT(entry < program->entry_count);
    memset(runs, 0, plan->position_count * sizeof *runs);
    if (entry == run_of(info)) {
        mark_root(&slice, info->root);
        return;
    }
    slice.wanted = UL_NEW_ARRAY(arena, bool, program->place_count);
    for (uint32_t i = 0; i < info->output_count; i++) {
        ul_value_id base = program->graph->values[root->outputs[info->outputs[i]]].view.base;
        made[program->value_places[base]] = true;
        slice.wanted[program->value_places[base]] = true;
    }
    take_needed(&slice);
    take_waits(&slice);
    UL_ASSERT(leaves_states(&slice, made));
}
