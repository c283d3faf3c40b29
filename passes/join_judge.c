/* What joined products cost, seen in the graphs that the rows behind make with and without them.
 *
 * A part leaves its set where the rows behind had fused more with it than its bias, where a view of
 * its result is a copy among others, or where its numbers are stored otherwise in company. A set
 * is dissolved that is no call of the library where a part was one, or that lives through a step
 * that needs more bytes, with the call's scratch, than any did. Should there be more steps or fewer
 * calls than the sets explain, nothing is joined. */
#include "ir/view.h"
#include "passes/join_internal.h"

#include <string.h>

/* ---- What will be ---- */

/* Nodes [begin, end) of the order are one step: its call, if it is one. */
static void find_call(const struct ul_pass *pass, struct ul_join_future *future, uint32_t begin,
                      uint32_t end, const bool *escapes)
{
    const struct ul_passes_options *options = pass->options;
    const ul_node_id *nodes = &future->order.nodes[begin];
    uint32_t position = future->live.positions[nodes[0]];
    uint64_t scratch_bytes = 0;
    if (ul_node_is_view(&future->graph, nodes[0]) ||
        !options->is_call(options->library, &future->graph, nodes, end - begin, escapes,
                          &scratch_bytes))
        return;
    future->call_count++;
    future->need_bytes[position] = ul_size_add_or_die(future->need_bytes[position], scratch_bytes);
    for (uint32_t n = begin; n < end; n++)
        future->is_call[future->order.nodes[n]] = true;
}

enum ul_status ul_join_dry_run(const struct ul_join *join, struct ul_join_future *future)
{
    const struct ul_pass *pass = join->pass;
    struct ul_graph *graph = &future->graph;
    *future = (struct ul_join_future){.peak_bytes = 0};
    UL_TRY(ul_pass_dry_run(pass, pass->graph, graph));
    future->order = ul_edit_all_nodes(graph, pass->scratch);
    ul_live_find(graph, &future->order, NULL, pass->scratch, &future->live);
    future->need_bytes = ul_arena_copy(pass->scratch, future->live.sums_bytes,
                                       future->live.position_count * sizeof(uint64_t));
    future->is_call = UL_NEW_ARRAY(pass->scratch, bool, graph->node_count);
    future->group_sizes = UL_NEW_ARRAY(pass->scratch, uint32_t, graph->node_count);
    const bool *escapes = ul_live_escapes(graph, &future->order, pass->scratch);
    for (uint32_t begin = 0, end; begin < future->order.count; begin = end) {
        uint32_t group = graph->nodes[future->order.nodes[begin]].group;
        for (end = begin + 1; group != UL_NONE && end < future->order.count &&
                              graph->nodes[future->order.nodes[end]].group == group;)
            end++;
        if (group != UL_NONE)
            future->group_sizes[group] += end - begin;
        if (pass->options->is_call != NULL)
            find_call(pass, future, begin, end, escapes);
    }
    for (uint32_t p = 0; p < future->live.position_count; p++)
        if (future->need_bytes[p] > future->peak_bytes)
            future->peak_bytes = future->need_bytes[p];
    return UL_OK;
}

/* ---- Judging ---- */

struct judge {
    struct ul_join *join;
    uint32_t node_count; /* of the graph before */
    const struct ul_join_future *before, *after;
    uint32_t *set_of, *part_of; /* per value before: the part that it is, or is a view of */
    uint32_t *set_ends;         /* per set: the last position after that reads a result */
};

static uint32_t group_size(const struct ul_join_future *future, ul_node_id node)
{
    uint32_t group = future->graph.nodes[node].group;
    return group == UL_NONE ? 1 : future->group_sizes[group];
}

/* More is computed with the product, or its sum, than those two. */
static bool is_fused(const struct ul_join_future *before, const struct ul_join_part *part)
{
    if (part->sum == UL_NONE)
        return group_size(before, part->product) > 1;
    const struct ul_node *nodes = before->graph.nodes;
    bool together = nodes[part->product].group != UL_NONE &&
                    nodes[part->product].group == nodes[part->sum].group;
    return group_size(before, part->product) > (together ? 2 : 1) ||
           group_size(before, part->sum) > (together ? 2 : 1);
}

static bool same_storage(const struct judge *judge, ul_value_id before, ul_value_id after)
{
    return before == UL_NONE || ul_value_storage(&judge->before->graph, before) ==
                                    ul_value_storage(&judge->after->graph, after);
}

static void judge_part(const struct judge *judge, const struct ul_join_set *set,
                       struct ul_join_part *part, ul_value_id result)
{
    if (is_fused(judge->before, part) ||
        (judge->before->is_call[part->product] && !judge->after->is_call[set->product]) ||
        !ul_node_is_view(&judge->after->graph, set->split) ||
        !same_storage(judge, part->result, result) ||
        !same_storage(judge, part->weight, set->weight) ||
        !same_storage(judge, part->bias, set->bias))
        part->leaves = true;
}

/* What the node made a view of, or read in place, it copies among others. */
static bool copies_more(const struct judge *judge, ul_node_id id, uint32_t input)
{
    const struct ul_graph *before = &judge->before->graph, *after = &judge->after->graph;
    const struct ul_node *node = &before->nodes[id];
    if (id >= judge->node_count)
        return false;
    if (after->nodes[id].op != node->op)
        return true;
    if (node->op == UL_OP_Concat)
        return ul_concat_is_placed(before, node, input) &&
               !ul_concat_is_placed(after, &after->nodes[id], input);
    return ul_node_is_view(before, id) && !ul_node_is_view(after, id);
}

/* From results through their views to what reads them. */
static void judge_readers(struct judge *judge)
{
    const struct ul_graph *before = &judge->before->graph;
    const struct ul_node_list *order = &judge->before->order;
    for (uint32_t n = 0; n < order->count; n++) {
        ul_node_id id = order->nodes[n];
        const struct ul_node *node = &before->nodes[id];
        for (uint32_t i = 0; i < node->input_count; i++) {
            uint32_t s = node->inputs[i] == UL_NONE ? UL_NONE : judge->set_of[node->inputs[i]];
            if (s == UL_NONE)
                continue;
            uint32_t p = judge->part_of[node->inputs[i]];
            if (copies_more(judge, id, i))
                judge->join->sets[s].parts[p].leaves = true;
            if (id < judge->node_count && judge->after->live.positions[id] > judge->set_ends[s])
                judge->set_ends[s] = judge->after->live.positions[id];
            for (uint32_t k = 0; i == 0 && ul_node_is_view(before, id) && k < node->output_count;
                 k++) {
                judge->set_of[node->outputs[k]] = s;
                judge->part_of[node->outputs[k]] = p;
            }
        }
    }
}

static void judge_bytes(const struct judge *judge)
{
    const struct ul_join_future *after = judge->after;
    for (uint32_t s = 0; s < judge->join->set_count; s++) {
        struct ul_join_set *set = &judge->join->sets[s];
        bool needs_more = false;
        for (uint32_t p = after->live.positions[set->product]; p <= judge->set_ends[s]; p++)
            needs_more = needs_more || after->need_bytes[p] > judge->before->peak_bytes;
        for (uint32_t p = 0; needs_more && p < set->count; p++)
            set->parts[p].leaves = true;
    }
}

static uint32_t count_leaving(const struct ul_join *join)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < join->set_count; s++)
        for (uint32_t p = 0; p < join->sets[s].count; p++)
            count += join->sets[s].parts[p].leaves;
    return count;
}

/* There are as many steps fewer as parts are not counted, and no more calls less. */
static bool is_explained(const struct judge *judge)
{
    const struct ul_join_future *before = judge->before, *after = judge->after;
    uint32_t fewer = 0;
    for (uint32_t s = 0; s < judge->join->set_count; s++)
        fewer += judge->join->sets[s].count - 1;
    return after->peak_bytes <= before->peak_bytes &&
           after->live.position_count + fewer <= before->live.position_count &&
           after->call_count + fewer >= before->call_count;
}

static void leave_all(struct ul_join *join)
{
    for (uint32_t s = 0; s < join->set_count; s++)
        for (uint32_t p = 0; p < join->sets[s].count; p++)
            join->sets[s].parts[p].leaves = true;
}

bool ul_join_judge(struct ul_join *join, uint32_t node_count, const struct ul_join_future *before,
                   const struct ul_join_future *after)
{
    struct ul_arena *scratch = join->pass->scratch;
    uint32_t value_count = before->graph.value_count;
    struct judge judge = {.join = join, .node_count = node_count, .before = before, .after = after};
    judge.set_of = UL_NEW_ARRAY(scratch, uint32_t, value_count);
    judge.part_of = UL_NEW_ARRAY(scratch, uint32_t, value_count);
    judge.set_ends = UL_NEW_ARRAY(scratch, uint32_t, join->set_count);
    memset(judge.set_of, 0xFF, value_count * sizeof *judge.set_of);
    for (uint32_t s = 0; s < join->set_count; s++) {
        struct ul_join_set *set = &join->sets[s];
        for (uint32_t p = 0; p < set->count; p++) {
            judge.set_of[set->parts[p].result] = s;
            judge.part_of[set->parts[p].result] = p;
            judge_part(&judge, set, &set->parts[p], after->graph.nodes[set->split].outputs[p]);
        }
    }
    judge_readers(&judge);
    if (count_leaving(join) == 0)
        judge_bytes(&judge);
    if (count_leaving(join) == 0 && !is_explained(&judge))
        leave_all(join);
    return count_leaving(join) == 0;
}
