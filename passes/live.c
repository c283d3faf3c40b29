/* The live sum of a graph with views: an estimate that decides between layouts and groupings, of
 * the same kind as the planner's, but cheap enough to be asked thousands of times.
 *
 *      position        0   1   2   3
 *      base a          [-------)            from its first write to its last touch
 *      base b              [-------)
 *      in place: an elementwise output takes over an operand of its size that ends there
 *
 * Positions are steps: nodes that need a kernel; nodes of one group, which stand together, are
 * one. A value read in a nested block that it was not made in lives to the end of the block's
 * owner. Weights are the same in every layout and are not counted. */
#include "ir/op.h"
#include "ir/view.h"
#include "passes/passes_internal.h"

#include <string.h>

struct live {
    const struct ul_graph *graph;
    uint32_t *begin, *end; /* per value, of bases: first and last position */
    uint32_t *position;    /* per node */
    uint32_t position_count;
};

static bool counts(const struct ul_graph *graph, ul_value_id base)
{
    return graph->values[base].kind != UL_VALUE_WEIGHT;
}

static ul_value_id base_of(const struct ul_graph *graph, ul_value_id value)
{
    return graph->values[value].view.base;
}

static void touch(struct live *live, ul_value_id base, uint32_t position)
{
    if (live->begin[base] > position)
        live->begin[base] = position;
    if (live->end[base] < position)
        live->end[base] = position;
}

/* The position at which the run of a block that `reader` stands in, but not the owner of `base`,
 * ends: that of the owner of the outermost such block. */
static uint32_t reach(const struct live *live, ul_node_id reader, ul_value_id value)
{
    const struct ul_graph *graph = live->graph;
    const struct ul_value *info = &graph->values[value];
    ul_block_id home = info->kind == UL_VALUE_NODE ? graph->nodes[info->producer].parent : 0;
    uint32_t position = live->position[reader];
    ul_block_id block = graph->nodes[reader].parent;
    if (info->kind == UL_VALUE_ARGUMENT)
        return position;
    while (block != home && graph->blocks[block].owner != UL_NONE) {
        position = live->position[graph->blocks[block].owner];
        block = graph->nodes[graph->blocks[block].owner].parent;
    }
    return position;
}

static void number_steps(struct live *live, const struct ul_node_list *order)
{
    const struct ul_graph *graph = live->graph;
    uint32_t group = UL_NONE;
    uint32_t next = 0;
    for (uint32_t n = 0; n < order->count; n++) {
        const struct ul_node *node = &graph->nodes[order->nodes[n]];
        bool same = group != UL_NONE && node->group == group;
        /* A view has no step; it gets that of what comes next. */
        if (!same && n > 0 && !ul_node_is_view(graph, order->nodes[n - 1]))
            next++;
        group = node->group;
        live->position[order->nodes[n]] = next;
    }
    live->position_count = next + 1;
}

static void touch_block_edges(struct live *live, ul_node_id id)
{
    const struct ul_graph *graph = live->graph;
    const struct ul_node *node = &graph->nodes[id];
    for (uint32_t b = 0; b < node->block_count; b++) {
        const struct ul_block *block = &graph->blocks[node->blocks[b]];
        uint32_t first =
            block->node_count > 0 ? live->position[block->nodes[0]] : live->position[id];
        for (uint32_t i = 0; i < block->input_count; i++) {
            touch(live, base_of(graph, block->inputs[i]), first);
            touch(live, base_of(graph, block->inputs[i]), live->position[id]);
        }
        for (uint32_t i = 0; i < block->output_count; i++)
            touch(live, base_of(graph, block->outputs[i]), live->position[id]);
    }
}

/* Inside a group a value that only the group uses has no bytes. */
static bool is_inside(const struct ul_graph *graph, const bool *escapes, ul_value_id value)
{
    const struct ul_value *info = &graph->values[value];
    return info->kind == UL_VALUE_NODE && !escapes[value] &&
           graph->nodes[info->producer].group != UL_NONE;
}

bool *ul_live_escapes(const struct ul_graph *graph, const struct ul_node_list *order,
                      struct ul_arena *scratch)
{
    bool *escapes = UL_NEW_ARRAY(scratch, bool, graph->value_count);
    for (uint32_t b = 0; b < graph->block_count; b++) {
        for (uint32_t i = 0; i < graph->blocks[b].output_count; i++)
            escapes[graph->blocks[b].outputs[i]] = true;
    }
    for (uint32_t n = 0; n < order->count; n++) {
        const struct ul_node *node = &graph->nodes[order->nodes[n]];
        for (uint32_t i = 0; i < node->input_count; i++) {
            if (node->inputs[i] == UL_NONE)
                continue;
            const struct ul_value *input = &graph->values[node->inputs[i]];
            if (input->kind != UL_VALUE_NODE || node->group == UL_NONE ||
                graph->nodes[input->producer].group != node->group)
                escapes[node->inputs[i]] = true;
        }
    }
    return escapes;
}

static void touch_all(struct live *live, const struct ul_node_list *order, const bool *escapes)
{
    const struct ul_graph *graph = live->graph;
    for (uint32_t n = 0; n < order->count; n++) {
        ul_node_id id = order->nodes[n];
        const struct ul_node *node = &graph->nodes[id];
        touch_block_edges(live, id);
        for (uint32_t i = 0; i < node->output_count; i++) {
            if (!is_inside(graph, escapes, node->outputs[i]))
                touch(live, base_of(graph, node->outputs[i]), live->position[id]);
        }
        for (uint32_t i = 0; i < node->input_count; i++) {
            ul_value_id input = node->inputs[i];
            if (input == UL_NONE || is_inside(graph, escapes, input))
                continue;
            touch(live, base_of(graph, input), live->position[id]);
            touch(live, base_of(graph, input), reach(live, id, input));
        }
    }
    const struct ul_block *main_block = &graph->blocks[0];
    for (uint32_t i = 0; i < main_block->input_count; i++)
        touch(live, base_of(graph, main_block->inputs[i]), 0);
    for (uint32_t i = 0; i < main_block->output_count; i++)
        touch(live, base_of(graph, main_block->outputs[i]), live->position_count - 1);
}

/* Whether a base that is read at the position may be taken over by one as large that begins there.
 */
static bool can_be_reused(const struct live *live, ul_value_id base, ul_value_id output,
                          uint32_t at, const bool *reused)
{
    const struct ul_graph *graph = live->graph;
    return counts(graph, base) && live->end[base] == at && live->begin[base] < at &&
           !reused[base] && ul_value_bytes(graph, base) == ul_value_bytes(graph, output);
}

/* Elementwise outputs that take over an operand: they begin one position later, as if the operand
 * had lived on. Each operand is taken over once. */
static void reuse_operands(struct live *live, const struct ul_node_list *order, bool *reused)
{
    const struct ul_graph *graph = live->graph;
    for (uint32_t n = 0; n < order->count; n++) {
        ul_node_id id = order->nodes[n];
        const struct ul_node *node = &graph->nodes[id];
        if ((ul_op_get(node->op)->flags & UL_OP_ELEMENTWISE) == 0)
            continue;
        ul_value_id output = node->outputs[0];
        uint32_t at = live->position[id];
        if (base_of(graph, output) != output || live->begin[output] != at)
            continue;
        for (uint32_t i = 0; i < node->input_count; i++) {
            ul_value_id base =
                node->inputs[i] == UL_NONE ? UL_NONE : base_of(graph, node->inputs[i]);
            if (base == UL_NONE || !can_be_reused(live, base, output, at, reused))
                continue;
            reused[base] = true;
            live->begin[output] = at + 1;
            break;
        }
    }
}

/* The value that the facts speak of: itself, or what it is a piece of. */
static ul_value_id origin_of(const struct ul_graph *graph, const struct ul_live_facts *facts,
                             ul_value_id id)
{
    const struct ul_value *value = &graph->values[id];
    if (id < facts->graph->value_count)
        return id;
    if (value->kind != UL_VALUE_NODE)
        return UL_NONE;
    int64_t from = ul_node_get_int(&graph->nodes[value->producer], "ul_part_of", -1);
    if (from < 0 || from >= facts->graph->node_count)
        return UL_NONE;
    return facts->graph->nodes[from].outputs[value->producer_output];
}

/* The base that `output` takes over among what nodes [begin, end) of one step read, or UL_NONE. */
static ul_value_id taken_over(const struct live *live, const struct ul_node_list *order,
                              uint32_t begin, uint32_t end, const struct ul_live_facts *facts,
                              ul_value_id output, const bool *reused)
{
    const struct ul_graph *graph = live->graph;
    ul_value_id origin = origin_of(graph, facts, output);
    uint32_t at = live->position[order->nodes[end - 1]];
    if (origin == UL_NONE || base_of(graph, output) != output || live->begin[output] != at)
        return UL_NONE;
    const struct ul_split_facts *kernels = facts->kernels;
    for (uint32_t f = kernels->first[origin]; f < kernels->first[origin + 1]; f++) {
        for (uint32_t n = begin; n < end; n++) {
            const struct ul_node *node = &graph->nodes[order->nodes[n]];
            for (uint32_t i = 0; i < node->input_count; i++) {
                ul_value_id base =
                    node->inputs[i] == UL_NONE ? UL_NONE : base_of(graph, node->inputs[i]);
                if (base != UL_NONE && origin_of(graph, facts, base) == kernels->inputs[f] &&
                    can_be_reused(live, base, output, at, reused))
                    return base;
            }
        }
    }
    return UL_NONE;
}

/* The same by facts of kernels. */
static void reuse_by_facts(struct live *live, const struct ul_node_list *order,
                           const struct ul_live_facts *facts, bool *reused)
{
    const struct ul_graph *graph = live->graph;
    for (uint32_t begin = 0, end; begin < order->count; begin = end) {
        uint32_t group = graph->nodes[order->nodes[begin]].group;
        for (end = begin + 1; group != UL_NONE && end < order->count; end++) {
            if (graph->nodes[order->nodes[end]].group != group)
                break;
        }
        for (uint32_t n = begin; n < end; n++) {
            const struct ul_node *node = &graph->nodes[order->nodes[n]];
            for (uint32_t i = 0; i < node->output_count; i++) {
                ul_value_id base =
                    taken_over(live, order, begin, end, facts, node->outputs[i], reused);
                if (base == UL_NONE)
                    continue;
                reused[base] = true;
                live->begin[node->outputs[i]]++;
            }
        }
    }
}

void ul_live_find(const struct ul_graph *graph, const struct ul_node_list *order,
                  const struct ul_live_facts *facts, struct ul_arena *scratch,
                  struct ul_live *found)
{
    *found = (struct ul_live){.position_count = 0};
    if (order->count == 0)
        return;
    struct live live = {.graph = graph};
    live.begin = UL_NEW_ARRAY(scratch, uint32_t, graph->value_count);
    live.end = UL_NEW_ARRAY(scratch, uint32_t, graph->value_count);
    live.position = UL_NEW_ARRAY(scratch, uint32_t, graph->node_count);
    memset(live.begin, 0xFF, graph->value_count * sizeof *live.begin);
    number_steps(&live, order);
    touch_all(&live, order, ul_live_escapes(graph, order, scratch));
    bool *reused = UL_NEW_ARRAY(scratch, bool, graph->value_count);
    if (facts == NULL)
        reuse_operands(&live, order, reused);
    else
        reuse_by_facts(&live, order, facts, reused);
    int64_t *change = UL_NEW_ARRAY(scratch, int64_t, (uint64_t)live.position_count + 2);
    for (uint32_t v = 0; v < graph->value_count; v++) {
        if (live.begin[v] > live.end[v] || !counts(graph, v))
            continue;
        int64_t size_bytes = (int64_t)ul_value_bytes(graph, v);
        change[live.begin[v]] += size_bytes;
        change[live.end[v] + 1] -= size_bytes;
    }
    found->positions = live.position;
    found->position_count = live.position_count;
    found->sums_bytes = UL_NEW_ARRAY(scratch, uint64_t, live.position_count);
    int64_t sum = 0;
    for (uint32_t p = 0; p < live.position_count; p++) {
        sum += change[p];
        found->sums_bytes[p] = (uint64_t)sum;
        if (found->sums_bytes[p] > found->sums_bytes[found->peak])
            found->peak = p;
    }
}

uint64_t ul_live_peak(const struct ul_graph *graph, const struct ul_node_list *order,
                      struct ul_arena *scratch)
{
    struct ul_live live;
    ul_live_find(graph, order, NULL, scratch, &live);
    return live.position_count == 0 ? 0 : live.sums_bytes[live.peak];
}
