/* SPDX-License-Identifier: Apache-2.0 */
/* A graph as steps of the planner's.
 *
 * Problem: passes decide by bytes before there is a program. Method: the graph is walked as
 * codegen/program/program.c walks it, and each step says what it touches; the planner finds what is
 * live when. Loops are regions between the copies over their edges:
 *
 *     outer           loop                                    outer
 *     carried values  slices -> body -> carried values,  ->   results
 *     are filled      are read          rows are written      are copied
 *
 * Left undone: counters and tests of loops, copies that carried values need to change places, the
 * scratch of kernels (that of a library's calls is counted where it is asked for), places for
 * constants; kernels that are no map but may store on what they read. */
#include "passes/shared/steps.h"

#include <string.h>

#include "ir/op.h"
#include "ir/view.h"

enum { MAX_EDGES = 5 }; /* steps at the edges of one block */

static ul_value_id base_of(const struct ul_graph *graph, ul_value_id value)
{
    return graph->values[value].view.base;
}

/* ---- What leaves its group ---- */

/* ---- The steps of a block ---- */

uint32_t ul_steps_end(const struct ul_graph *graph, const ul_node_id *nodes, uint32_t count,
                      uint32_t begin)
{
    UL_ASSERT(begin < count);
    uint32_t group = graph->nodes[nodes[begin]].group;
    uint32_t end = begin + 1;
    while (group != UL_NONE && end < count && graph->nodes[nodes[end]].group == group)
        end++;
    return end;
}

static uint32_t add_region(struct ul_steps *steps, enum ul_plan_region_kind kind, uint32_t parent)
{
    UL_GROW(steps->arena, steps->regions, steps->region_count, steps->region_capacity);
    steps->regions[steps->region_count] = (struct ul_plan_region){.kind = kind, .parent = parent};
    return steps->region_count++;
}

/* Adds the step of these nodes; what it touches is copied. */
static void add_substep(struct ul_steps *steps, const ul_node_id *nodes, uint32_t count,
                        uint32_t region, const struct ul_plan_substep *substep,
                        const struct ul_graph_step *step)
{
    uint32_t id = steps->step_count++;
    UL_ASSERT(id < steps->step_capacity);
    uint32_t *ids =
        UL_NEW_ARRAY(steps->arena, uint32_t, substep->read_count + substep->write_count);
    for (uint32_t i = 0; i < substep->read_count; i++)
        ids[i] = substep->reads[i];
    for (uint32_t i = 0; i < substep->write_count; i++)
        ids[substep->read_count + i] = substep->writes[i];
    steps->substeps[id] = *substep;
    steps->substeps[id].reads = ids;
    steps->substeps[id].writes = ids + substep->read_count;
    if (substep->in_place_count > 0)
        steps->substeps[id].in_place = ul_arena_copy(
            steps->arena, substep->in_place, substep->in_place_count * sizeof *substep->in_place);
    steps->region_of[id] = region;
    steps->steps[id] = *step;
    for (uint32_t n = 0; n < count; n++)
        steps->step_of[nodes[n]] = id;
}

static void add_step(struct ul_steps *steps, const ul_node_id *nodes, uint32_t count,
                     uint32_t region)
{
    const struct ul_passes_options *target = steps->target;
    struct ul_plan_substep substep = ul_steps_touch(steps, nodes, count);
    struct ul_graph_step step = {.node_count = count};
    uint64_t scratch_bytes = 0;
    step.is_call = target != NULL && target->is_call != NULL &&
                   target->is_call(target->library, steps->graph, nodes, count, steps->escapes,
                                   &scratch_bytes);
    substep.scratch_bytes = step.is_call ? scratch_bytes : 0;
    add_substep(steps, nodes, count, region, &substep, &step);
}

/* Adds a step that copies values over a block's edge, or tests them; the node's step is the last
 * one of these. */
static void add_edge(struct ul_steps *steps, ul_node_id node, uint32_t region,
                     const ul_value_id *from, uint32_t from_count, const ul_value_id *to,
                     uint32_t to_count)
{
    struct ul_plan_substep substep = ul_steps_copy(steps, from, from_count, to, to_count);
    add_substep(steps, &node, 1, region, &substep, &(struct ul_graph_step){.node_count = 0});
}

static void add_block(struct ul_steps *steps, ul_block_id id, uint32_t region);

static void add_if(struct ul_steps *steps, ul_node_id id, uint32_t region)
{
    const struct ul_node *node = &steps->graph->nodes[id];
    uint32_t whole = add_region(steps, UL_PLAN_SEQUENCE, region);
    for (uint32_t b = 0; b < node->block_count; b++) {
        const struct ul_block *block = &steps->graph->blocks[node->blocks[b]];
        uint32_t branch = add_region(steps, UL_PLAN_BRANCH, whole);
        add_edge(steps, id, branch, node->inputs, node->input_count, NULL, 0);
        add_block(steps, node->blocks[b], branch);
        add_edge(steps, id, branch, block->outputs, block->output_count, node->outputs,
                 node->output_count);
    }
}

/* Loop and Scan: what is carried comes before what is sliced, except for the number of the round
 * and the condition of a Loop, which come first of all. */
static void add_loop(struct ul_steps *steps, ul_node_id id, uint32_t region)
{
    const struct ul_node *node = &steps->graph->nodes[id];
    const struct ul_block *body = &steps->graph->blocks[node->blocks[0]];
    uint32_t first = (ul_op_get(node->op)->flags & UL_OP_COUNTS) != 0 ? 2 : 0;
    uint32_t slices = (uint32_t)ul_node_get_int(node, "num_scan_inputs", 0);
    uint32_t carried = node->input_count - slices; /* where they end, among inputs and arguments */
    uint32_t results = carried - first < node->output_count ? carried - first : node->output_count;
    UL_ASSERT(first <= carried && carried <= body->input_count);
    add_edge(steps, id, region, node->inputs, carried, body->inputs, carried);
    uint32_t loop = add_region(steps, UL_PLAN_LOOP, region);
    add_edge(steps, id, loop, node->inputs + carried, slices, body->inputs + carried,
             body->input_count - carried);
    add_block(steps, node->blocks[0], loop);
    add_edge(steps, id, loop, body->outputs, body->output_count, node->outputs + results,
             node->output_count - results);
    add_edge(steps, id, loop, NULL, 0, body->inputs, carried);
    add_edge(steps, id, region, body->inputs, carried, node->outputs, results);
}

static void add_block(struct ul_steps *steps, ul_block_id id, uint32_t region)
{
    const struct ul_graph *graph = steps->graph;
    const struct ul_block *block = &graph->blocks[id];
    for (uint32_t begin = 0, end; begin < block->node_count; begin = end) {
        const struct ul_node *node = &graph->nodes[block->nodes[begin]];
        end = ul_steps_end(graph, block->nodes, block->node_count, begin);
        if (ul_node_is_view(graph, block->nodes[begin]))
            continue;
        uint32_t flags = ul_op_get(node->op)->flags;
        if ((flags & UL_OP_CONTROL) == 0)
            add_step(steps, block->nodes + begin, end - begin, region);
        else if ((flags & UL_OP_BRANCHES) != 0)
            add_if(steps, block->nodes[begin], region);
        else
            add_loop(steps, block->nodes[begin], region);
    }
}

static void add_root(struct ul_steps *steps, ul_block_id id, uint32_t region)
{
    const struct ul_graph *graph = steps->graph;
    const struct ul_block *root = &graph->blocks[id];
    for (uint32_t i = 0; i < root->input_count; i++)
        (void)ul_steps_value(steps, base_of(graph, root->inputs[i]));
    add_block(steps, id, region);
    for (uint32_t i = 0; i < root->output_count; i++) {
        uint32_t value = ul_steps_value(steps, base_of(graph, root->outputs[i]));
        if (value != UL_NONE)
            steps->values[value].live_to_end = true;
    }
}

void ul_steps_init(struct ul_steps *steps, const struct ul_graph *graph,
                   const struct ul_step_facts *facts, const struct ul_passes_options *target,
                   struct ul_arena *arena)
{
    *steps = (struct ul_steps){.graph = graph, .facts = facts, .target = target, .arena = arena};
    steps->escapes = ul_graph_escapes(graph, arena);
    steps->step_of = UL_NEW_ARRAY(arena, uint32_t, graph->node_count);
    steps->value_of = UL_NEW_ARRAY(arena, uint32_t, graph->value_count);
    memset(steps->step_of, 0xFF, graph->node_count * sizeof *steps->step_of);
    memset(steps->value_of, 0xFF, graph->value_count * sizeof *steps->value_of);
    for (uint32_t b = 0; b < graph->block_count; b++)
        steps->step_capacity += graph->blocks[b].node_count + MAX_EDGES;
    steps->substeps = UL_NEW_ARRAY(arena, struct ul_plan_substep, steps->step_capacity);
    steps->region_of = UL_NEW_ARRAY(arena, uint32_t, steps->step_capacity);
    steps->steps = UL_NEW_ARRAY(arena, struct ul_graph_step, steps->step_capacity);
    uint32_t whole = add_region(steps, UL_PLAN_SEQUENCE, UL_PLAN_NONE);
    for (uint32_t r = 0; r < graph->root_count; r++)
        add_root(steps, r,
                 graph->root_count == 1 ? whole : add_region(steps, UL_PLAN_ENTRY, whole));
}

struct ul_live *ul_steps_live(const struct ul_steps *steps)
{
    const struct ul_live_sequence sequence = {.values = steps->values,
                                              .regions = steps->regions,
                                              .substeps = steps->substeps,
                                              .region_of = steps->region_of,
                                              .value_count = steps->value_count,
                                              .region_count = steps->region_count,
                                              .position_count = steps->step_count};
    return ul_live_new(steps->arena, &sequence, UL_PLAN_ALIGN_BYTES);
}

struct ul_step_peaks ul_steps_find_peaks(const struct ul_steps *steps, const bool *is_left_out)
{
    struct ul_step_peaks peaks = {.live = ul_steps_live(steps)};
    for (uint32_t s = 0; s < steps->step_count; s++) {
        uint64_t live_bytes = is_left_out[s] ? 0 : ul_live_bytes(peaks.live, s);
        uint64_t touched = is_left_out[s] ? 0 : ul_steps_touched_bytes(steps, s);
        peaks.peak_bytes = live_bytes > peaks.peak_bytes ? live_bytes : peaks.peak_bytes;
        peaks.needy_bytes = touched > peaks.needy_bytes ? touched : peaks.needy_bytes;
    }
    return peaks;
}

uint64_t ul_steps_peak_bytes(const struct ul_graph *graph, struct ul_arena *scratch)
{
    struct ul_steps steps;
    ul_steps_init(&steps, graph, NULL, NULL, scratch);
    const struct ul_live *live = ul_steps_live(&steps);
    return ul_live_bytes(live, ul_live_peak(live));
}

void ul_steps_drop_persistent(struct ul_steps *steps)
{
    const struct ul_graph *graph = steps->graph;
    for (uint32_t v = 0; v < steps->value_count; v++) {
        if (steps->values[v].persistent)
            steps->values[v].size_bytes = 0;
    }
    for (uint32_t i = 0; i < graph->value_count; i++) {
        const struct ul_value *value = &graph->values[i];
        bool is_update = value->kind == UL_VALUE_NODE && value->donor != UL_NONE;
        uint32_t v = is_update ? steps->value_of[value->view.base] : UL_NONE;
        if (v != UL_NONE)
            steps->values[v].size_bytes = 0;
    }
}

uint64_t ul_steps_touched_bytes(const struct ul_steps *steps, uint32_t step)
{
    const struct ul_plan_substep *substep = &steps->substeps[step];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < substep->read_count; i++)
        bytes += steps->values[substep->reads[i]].size_bytes;
    for (uint32_t i = 0; i < substep->write_count; i++) {
        if (!ul_ids_have(substep->reads, substep->read_count, substep->writes[i]))
            bytes += steps->values[substep->writes[i]].size_bytes;
    }
    return bytes;
}
