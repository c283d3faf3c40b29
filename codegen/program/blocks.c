/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks in order, control flow as regions of steps.
 *
 * A Loop or Scan runs its body's steps once in each round. A carried value has bytes of its own
 * that live as long as the loop: they are filled before it, read by the body, and refilled at the
 * end of each round; where one carried value takes over another, copies go through a temporary so
 * that they act at once. Slices of scanned inputs and outputs are addressed by the round. Both
 * branches of an If write the bytes of its outputs.
 *
 *      copy init -> carried | loop: counter, slices in, body, slices out, refill | copy -> outputs
 */
#include "codegen/program/program_internal.h"
#include "ir/op.h"
#include "ir/view.h"

static enum ul_status add_block(struct ul_program_builder *builder, ul_block_id block,
                                uint32_t region);

static uint32_t region_add(struct ul_program_builder *builder, enum ul_plan_region_kind kind,
                           uint32_t parent)
{
    struct ul_program *program = builder->program;
    UL_GROW(builder->arena, program->regions, program->region_count, program->region_capacity);
    program->regions[program->region_count] =
        (struct ul_program_region){.kind = kind,
                                   .parent = parent,
                                   .condition = ul_place_address(UL_PLAN_NONE, 0),
                                   .flag = UL_PLAN_NONE};
    uint32_t id =
        parent == UL_PLAN_NONE ? 0 : ul_problem_add_region(program->problem, kind, parent);
    UL_ASSERT(id == program->region_count);
    return program->region_count++;
}

/* ---- Steps without a function ---- */

static uint64_t bytes_of(const struct ul_program_builder *builder, ul_value_id value)
{
    return ul_value_bytes(builder->graph, value);
}

static ul_value_id base_of(const struct ul_program_builder *builder, ul_value_id value)
{
    return builder->graph->values[value].view.base;
}

/* One end of a copy: an address, and the value whose bytes it has, or some of them. */
struct end {
    struct ul_program_address at;
    ul_value_id value;
};

/* Values at block edges are dense, and own their bytes or are densely placed in another value (the
 * views pass sees to it): an address describes them. */
static struct end end_of(struct ul_program_builder *builder, ul_value_id value)
{
    return (struct end){.at = ul_place_value_address(builder, value), .value = value};
}

static void copy_add(struct ul_program_builder *builder, ul_node_id node, const char *what,
                     uint32_t region, struct end from, struct end to, uint64_t copy_bytes)
{
    struct ul_program_step step = {.kind = UL_STEP_COPY,
                                   .node = node,
                                   .kernel = UL_NONE,
                                   .kept_place = UL_PLAN_NONE,
                                   .arg_count = 2,
                                   .copy_bytes = copy_bytes,
                                   .op = what};
    UL_ASSERT(copy_bytes > 0);
    ul_step_init_args(builder, &step, 2);
    step.name = ul_step_name(builder, builder->graph->nodes[node].name);
    step.args[0] = from.at;
    step.args[1] = to.at;
    step.written[1] = true;
    step.views[0] = from.value;
    step.views[1] = to.value;
    ul_step_add(builder, &step, region);
}

static void copy_value(struct ul_program_builder *builder, ul_node_id node, const char *what,
                       uint32_t region, ul_value_id from, ul_value_id to)
{
    if (bytes_of(builder, to) == 0)
        return;
    struct end source = end_of(builder, from);
    copy_add(builder, node, what, region, source, end_of(builder, to), bytes_of(builder, to));
}

/* A step that writes or reads one value at a region's start. */
static void mark_add(struct ul_program_builder *builder, enum ul_step_kind kind, ul_node_id node,
                     uint32_t region, ul_value_id value)
{
    struct ul_program_step step = {
        .kind = kind, .node = node, .kernel = UL_NONE, .kept_place = UL_PLAN_NONE, .arg_count = 1};
    ul_step_init_args(builder, &step, 1);
    step.op = ul_op_get(builder->graph->nodes[node].op)->name;
    step.name = ul_step_name(builder, builder->graph->nodes[node].name);
    step.args[0] = ul_place_value_address(builder, value);
    step.written[0] = kind == UL_STEP_COUNTER;
    step.views[0] = value;
    if (kind == UL_STEP_TEST) {
        builder->tests[region] = builder->program->step_count;
        builder->program->regions[region].flag = builder->program->flag_count++;
    }
    ul_step_add(builder, &step, region);
}

/* ---- If ---- */

static enum ul_status add_if(struct ul_program_builder *builder, ul_node_id id, uint32_t region)
{
    const struct ul_node *node = &builder->graph->nodes[id];
    uint32_t whole = region_add(builder, UL_PLAN_SEQUENCE, region);
    for (uint32_t b = 0; b < 2; b++) {
        const struct ul_block *block = &builder->graph->blocks[node->blocks[b]];
        uint32_t branch = region_add(builder, UL_PLAN_BRANCH, whole);
        builder->program->regions[branch].condition =
            ul_place_value_address(builder, node->inputs[0]);
        builder->program->regions[branch].negated = b == 1;
        mark_add(builder, UL_STEP_TEST, id, branch, node->inputs[0]);
        UL_TRY(add_block(builder, node->blocks[b], branch));
        for (uint32_t i = 0; i < node->output_count; i++) {
            if (node->outputs[i] != UL_NONE)
                copy_value(builder, id, "If", branch, block->outputs[i], node->outputs[i]);
        }
    }
    return UL_OK;
}

/* ---- Loop and Scan ---- */

struct loop {
    ul_node_id id;
    const struct ul_node *node;
    const struct ul_block *body;
    uint32_t region; /* of the loop */
    uint32_t outer;  /* region around it */
    uint32_t carried_count;
    uint32_t first_input;    /* of the carried values among node inputs */
    uint32_t first_argument; /* among body inputs */
    uint32_t first_result;   /* among body outputs */
    uint32_t scan_inputs;
    int64_t rounds;
};

/* Whether one of the carried values before `index` is in the place of the value that becomes its
 * own. */
static bool is_overwritten(const struct ul_program_builder *builder, const ul_value_id *from,
                           const ul_value_id *to, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++) {
        if (base_of(builder, from[index]) == base_of(builder, to[i]))
            return true;
    }
    return false;
}

/* body outputs -> carried values, all at once. */
static void refill(struct ul_program_builder *builder, const struct loop *loop)
{
    const ul_value_id *from = loop->body->outputs + loop->first_result;
    const ul_value_id *to = loop->body->inputs + loop->first_argument;
    struct end *kept = UL_NEW_ARRAY(builder->arena, struct end, loop->carried_count);
    for (uint32_t i = 0; i < loop->carried_count; i++) {
        kept[i].value = UL_NONE;
        if (bytes_of(builder, to[i]) == 0 || !is_overwritten(builder, from, to, i))
            continue;
        struct end source = end_of(builder, from[i]);
        kept[i].value = to[i];
        kept[i].at = ul_place_address(ul_place_add_temporary(builder, to[i]), 0);
        copy_add(builder, loop->id, "Loop", loop->region, source, kept[i],
                 bytes_of(builder, to[i]));
    }
    for (uint32_t i = 0; i < loop->carried_count; i++) {
        if (bytes_of(builder, to[i]) == 0)
            continue;
        struct end source = kept[i].value != UL_NONE ? kept[i] : end_of(builder, from[i]);
        struct end carried = end_of(builder, to[i]);
        if (source.at.place != carried.at.place)
            copy_add(builder, loop->id, "Loop", loop->region, source, carried,
                     bytes_of(builder, to[i]));
    }
}

static bool is_backwards(const struct loop *loop, const char *attribute, uint32_t index)
{
    uint32_t count;
    const int64_t *directions = ul_node_get_ints(loop->node, attribute, &count);
    return index < count && directions[index] != 0;
}

/* The slice of `whole` along axis 0 for the loop's round, with the size of `slice`. */
static struct end slice_of(struct ul_program_builder *builder, const struct loop *loop,
                           ul_value_id whole, ul_value_id slice, bool backwards)
{
    struct end end = end_of(builder, whole);
    int64_t stride = (int64_t)bytes_of(builder, slice);
    end.at.loop = loop->region;
    end.at.stride_bytes = backwards ? -stride : stride;
    end.at.offset_bytes += backwards ? stride * (loop->rounds - 1) : 0;
    return end;
}

static void loop_enter(struct ul_program_builder *builder, struct loop *loop)
{
    const struct ul_node *node = loop->node;
    for (uint32_t i = 0; i < loop->carried_count; i++)
        copy_value(builder, loop->id, "Loop", loop->outer, node->inputs[loop->first_input + i],
                   loop->body->inputs[loop->first_argument + i]);
    loop->region = region_add(builder, UL_PLAN_LOOP, loop->outer);
    builder->program->regions[loop->region].rounds = loop->rounds;
}

static void loop_slices(struct ul_program_builder *builder, const struct loop *loop)
{
    for (uint32_t i = 0; i < loop->scan_inputs; i++) {
        ul_value_id slice = loop->body->inputs[loop->carried_count + i];
        ul_value_id whole = loop->node->inputs[loop->carried_count + i];
        if (bytes_of(builder, slice) == 0)
            continue;
        struct end from =
            slice_of(builder, loop, whole, slice, is_backwards(loop, "scan_input_directions", i));
        copy_add(builder, loop->id, "Scan", loop->region, from, end_of(builder, slice),
                 bytes_of(builder, slice));
    }
}

static void loop_leave(struct ul_program_builder *builder, const struct loop *loop)
{
    const struct ul_node *node = loop->node;
    const struct ul_block *body = loop->body;
    for (uint32_t i = loop->carried_count; i < node->output_count; i++) {
        ul_value_id slice = body->outputs[loop->first_result + i];
        if (node->outputs[i] == UL_NONE || bytes_of(builder, slice) == 0)
            continue;
        struct end from = end_of(builder, slice);
        struct end to =
            slice_of(builder, loop, node->outputs[i], slice,
                     is_backwards(loop, "scan_output_directions", i - loop->carried_count));
        copy_add(builder, loop->id, "Scan", loop->region, from, to, bytes_of(builder, slice));
    }
    refill(builder, loop);
    for (uint32_t i = 0; i < loop->carried_count && i < node->output_count; i++) {
        if (node->outputs[i] != UL_NONE)
            copy_value(builder, loop->id, "Loop", loop->outer,
                       body->inputs[loop->first_argument + i], node->outputs[i]);
    }
}

static enum ul_status add_scan(struct ul_program_builder *builder, ul_node_id id, uint32_t region)
{
    const struct ul_node *node = &builder->graph->nodes[id];
    struct loop loop = {.id = id, .node = node, .outer = region};
    loop.body = &builder->graph->blocks[node->blocks[0]];
    loop.scan_inputs = (uint32_t)ul_node_get_int(node, "num_scan_inputs", 0);
    UL_ASSERT(loop.scan_inputs <= node->input_count);
    loop.carried_count = node->input_count - loop.scan_inputs;
    if (loop.scan_inputs > 0)
        loop.rounds = builder->graph->values[node->inputs[loop.carried_count]].type.dims[0];
    loop_enter(builder, &loop);
    loop_slices(builder, &loop);
    UL_TRY(add_block(builder, node->blocks[0], loop.region));
    loop_leave(builder, &loop);
    return UL_OK;
}

static enum ul_status add_loop(struct ul_program_builder *builder, ul_node_id id, uint32_t region)
{
    const struct ul_node *node = &builder->graph->nodes[id];
    struct loop loop = {
        .id = id, .node = node, .outer = region, .first_argument = 2, .first_result = 1};
    loop.body = &builder->graph->blocks[node->blocks[0]];
    loop.carried_count = node->input_count - 2;
    loop.first_input = 2;
    loop.rounds = ul_node_get_int(node, "ul_trip_count", 0); /* fixed by shape inference */
    ul_value_id condition = loop.body->inputs[1];
    bool conditional = !ul_loop_is_counted(builder->graph, node);
    if (conditional && node->inputs[1] != UL_NONE)
        copy_value(builder, id, "Loop", region, node->inputs[1], condition);
    loop_enter(builder, &loop);
    if (conditional)
        mark_add(builder, UL_STEP_TEST, id, loop.region, condition);
    mark_add(builder, UL_STEP_COUNTER, id, loop.region, loop.body->inputs[0]);
    UL_TRY(add_block(builder, node->blocks[0], loop.region));
    if (conditional)
        copy_value(builder, id, "Loop", loop.region, loop.body->outputs[0], condition);
    loop_leave(builder, &loop);
    return UL_OK;
}

/* ---- Blocks ---- */

static enum ul_status add_control(struct ul_program_builder *builder, ul_node_id id,
                                  uint32_t region)
{
    uint32_t flags = ul_op_get(builder->graph->nodes[id].op)->flags;
    if ((flags & UL_OP_BRANCHES) != 0)
        return add_if(builder, id, region);
    return (flags & UL_OP_COUNTS) != 0 ? add_loop(builder, id, region)
                                       : add_scan(builder, id, region);
}

/* Adds a group, and after it the node whose sums its call may form, wherever that node is. */
static enum ul_status add_group(struct ul_program_builder *builder, const ul_node_id *nodes,
                                uint32_t count, uint32_t region)
{
    const struct ul_calls *calls = &builder->calls;
    ul_node_id last = nodes[count - 1];
    if (calls->is_behind[last])
        return UL_OK;
    UL_TRY(ul_group_add(builder, nodes, count, region));
    if (calls->spares[last] != UL_NONE)
        UL_TRY(ul_group_add(builder, &calls->spares[last], 1, region));
    if (calls->reader_of[last] != UL_NONE)
        UL_TRY(ul_group_add(builder, &calls->reader_of[last], 1, region));
    return UL_OK;
}

static enum ul_status add_block(struct ul_program_builder *builder, ul_block_id block_id,
                                uint32_t region)
{
    const struct ul_graph *graph = builder->graph;
    const struct ul_block *block = &graph->blocks[block_id];
    ul_node_id *nodes = UL_NEW_ARRAY(builder->arena, ul_node_id, block->node_count);
    for (uint32_t at = 0; at < block->node_count;) {
        const struct ul_node *node = &graph->nodes[block->nodes[at]];
        uint32_t count = ul_group_next(graph, block, &at, nodes);
        if (count == 0)
            continue;
        if ((ul_op_get(node->op)->flags & UL_OP_CONTROL) != 0) {
            UL_TRY(add_control(builder, nodes[0], region));
            continue;
        }
        UL_TRY(add_group(builder, nodes, count, region));
    }
    return UL_OK;
}

/* Finds the inputs that no node of a root reads: its first step reads them, so that they live when
 * its runs begin, but not during runs of another root. */
static void find_unread(struct ul_program_builder *builder, ul_block_id id)
{
    const struct ul_graph *graph = builder->graph;
    const struct ul_block *root = &graph->blocks[id];
    const uint32_t *uses = ul_graph_count_uses(graph, builder->arena);
    uint32_t *unread = UL_NEW_ARRAY(builder->arena, uint32_t, root->input_count);
    builder->unread_count = 0;
    for (uint32_t i = 0; i < root->input_count; i++) {
        if (uses[root->inputs[i]] == 0)
            unread[builder->unread_count++] = ul_place_of(builder, root->inputs[i]);
    }
    builder->unread = unread;
}

enum ul_status ul_block_add_roots(struct ul_program_builder *builder)
{
    const struct ul_graph *graph = builder->graph;
    struct ul_program *program = builder->program;
    UL_ASSERT(program->region_count == 0 && program->step_count == 0);
    uint32_t whole = region_add(builder, UL_PLAN_SEQUENCE, UL_PLAN_NONE);
    program->root_regions = UL_NEW_ARRAY(builder->arena, uint32_t, graph->root_count);
    for (uint32_t r = 0; r < graph->root_count; r++) {
        bool is_only = graph->root_count == 1;
        program->root_regions[r] = is_only ? whole : region_add(builder, UL_PLAN_ENTRY, whole);
        if (!is_only)
            find_unread(builder, r);
        UL_TRY(add_block(builder, r, program->root_regions[r]));
    }
    return UL_OK;
}
