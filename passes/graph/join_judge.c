/* SPDX-License-Identifier: Apache-2.0 */
/* What joined products cost, seen in the graphs that later passes make with and without them.
 *
 * A member leaves its set where later passes had fused more with it than its bias, where a view of
 * its result is a copy among others, or where its numbers are stored in another way in the set. A
 * set is dissolved that is no call of the library where a member was one, or that lives through a
 * step that needs more bytes, with the call's scratch, than any did. Should there be more steps or
 * fewer calls than the sets explain, nothing is joined. */
#include "ir/op.h"
#include "ir/view.h"
#include "passes/graph/join_internal.h"

#include <string.h>

/* ---- What will be ---- */

enum ul_status ul_join_dry_run(const struct ul_join *join, struct ul_join_future *future)
{
    const struct ul_pass *pass = join->pass;
    *future = (struct ul_join_future){.peak_bytes = 0};
    UL_TRY(pass->dry_run(pass, pass->graph, &future->graph));
    ul_steps_init(&future->steps, &future->graph, NULL, pass->options, pass->scratch);
    future->live = ul_steps_live(&future->steps);
    future->peak_bytes = ul_live_bytes(future->live, ul_live_peak(future->live));
    for (uint32_t s = 0; s < future->steps.step_count; s++)
        future->call_count += future->steps.steps[s].is_call;
    return UL_OK;
}

/* The step that computes the node, or NULL. */
static const struct ul_graph_step *step_of(const struct ul_join_future *future, ul_node_id node)
{
    uint32_t step = future->steps.step_of[node];
    return step == UL_NONE ? NULL : &future->steps.steps[step];
}

static bool is_call(const struct ul_join_future *future, ul_node_id node)
{
    const struct ul_graph_step *step = step_of(future, node);
    return step != NULL && step->is_call;
}

/* ---- Judging ---- */

struct judge {
    struct ul_join *join;
    uint32_t node_count; /* of the graph before */
    const struct ul_join_future *before, *after;
    uint32_t *set_of, *member_of; /* per value before: the member that it is, or that it is a
                                     view of */
    uint32_t *set_ends;           /* per set: the last position after that reads a result */
};

static uint32_t group_size(const struct ul_join_future *future, ul_node_id node)
{
    const struct ul_graph_step *step = step_of(future, node);
    return step == NULL ? 1 : step->node_count;
}

/* More nodes than these two are computed together with the product, or its sum. */
static bool is_fused(const struct ul_join_future *before, const struct ul_join_member *member)
{
    if (member->sum == UL_NONE)
        return group_size(before, member->product) > 1;
    const struct ul_node *nodes = before->graph.nodes;
    bool together = nodes[member->product].group != UL_NONE &&
                    nodes[member->product].group == nodes[member->sum].group;
    return group_size(before, member->product) > (together ? 2 : 1) ||
           group_size(before, member->sum) > (together ? 2 : 1);
}

static bool same_storage(const struct judge *judge, ul_value_id before, ul_value_id after)
{
    return before == UL_NONE || ul_value_storage(&judge->before->graph, before) ==
                                    ul_value_storage(&judge->after->graph, after);
}

static void judge_member(const struct judge *judge, const struct ul_join_set *set,
                         struct ul_join_member *member, ul_value_id result)
{
    if (is_fused(judge->before, member) ||
        (is_call(judge->before, member->product) && !is_call(judge->after, set->product)) ||
        !ul_node_is_view(&judge->after->graph, set->split) ||
        !same_storage(judge, member->result, result) ||
        !same_storage(judge, member->weight, set->weight) ||
        !same_storage(judge, member->bias, set->bias))
        member->leaves = true;
}

/* The node made a view of it or read it in place; now it copies it. */
static bool copies_more(const struct judge *judge, ul_node_id id, uint32_t input)
{
    const struct ul_graph *before = &judge->before->graph, *after = &judge->after->graph;
    const struct ul_node *node = &before->nodes[id];
    if (id >= judge->node_count)
        return false;
    if (after->nodes[id].op != node->op)
        return true;
    if ((ul_op_get(node->op)->flags & UL_OP_JOINS) != 0)
        return ul_concat_is_placed(before, node, input) &&
               !ul_concat_is_placed(after, &after->nodes[id], input);
    return ul_node_is_view(before, id) && !ul_node_is_view(after, id);
}

/* Goes from results through their views to what reads them. */
static void judge_readers(struct judge *judge)
{
    const struct ul_graph *before = &judge->before->graph;
    struct ul_node_list order = ul_edit_all_nodes(before, judge->join->pass->scratch);
    for (uint32_t n = 0; n < order.count; n++) {
        ul_node_id id = order.nodes[n];
        const struct ul_node *node = &before->nodes[id];
        for (uint32_t i = 0; i < node->input_count; i++) {
            uint32_t s = node->inputs[i] == UL_NONE ? UL_NONE : judge->set_of[node->inputs[i]];
            if (s == UL_NONE)
                continue;
            uint32_t p = judge->member_of[node->inputs[i]];
            if (copies_more(judge, id, i))
                judge->join->sets[s].members[p].leaves = true;
            uint32_t end = id < judge->node_count ? judge->after->steps.step_of[id] : UL_NONE;
            if (end != UL_NONE && end > judge->set_ends[s])
                judge->set_ends[s] = end;
            for (uint32_t k = 0; i == 0 && ul_node_is_view(before, id) && k < node->output_count;
                 k++) {
                judge->set_of[node->outputs[k]] = s;
                judge->member_of[node->outputs[k]] = p;
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
        for (uint32_t p = after->steps.step_of[set->product]; p <= judge->set_ends[s]; p++)
            needs_more = needs_more || ul_live_bytes(after->live, p) > judge->before->peak_bytes;
        for (uint32_t p = 0; needs_more && p < set->count; p++)
            set->members[p].leaves = true;
    }
}

static uint32_t count_leaving(const struct ul_join *join)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < join->set_count; s++)
        for (uint32_t p = 0; p < join->sets[s].count; p++)
            count += join->sets[s].members[p].leaves;
    return count;
}

/* There are fewer steps by as many as the members that no longer count, and no more calls are gone
 * than these explain. */
static bool is_explained(const struct judge *judge)
{
    const struct ul_join_future *before = judge->before, *after = judge->after;
    uint32_t fewer = 0;
    for (uint32_t s = 0; s < judge->join->set_count; s++)
        fewer += judge->join->sets[s].count - 1;
    return after->peak_bytes <= before->peak_bytes &&
           after->steps.step_count + fewer <= before->steps.step_count &&
           after->call_count + fewer >= before->call_count;
}

static void leave_all(struct ul_join *join)
{
    for (uint32_t s = 0; s < join->set_count; s++)
        for (uint32_t p = 0; p < join->sets[s].count; p++)
            join->sets[s].members[p].leaves = true;
}

bool ul_join_judge(struct ul_join *join, uint32_t node_count, const struct ul_join_future *before,
                   const struct ul_join_future *after)
{
    struct ul_arena *scratch = join->pass->scratch;
    uint32_t value_count = before->graph.value_count;
    struct judge judge = {.join = join, .node_count = node_count, .before = before, .after = after};
    judge.set_of = UL_NEW_ARRAY(scratch, uint32_t, value_count);
    judge.member_of = UL_NEW_ARRAY(scratch, uint32_t, value_count);
    judge.set_ends = UL_NEW_ARRAY(scratch, uint32_t, join->set_count);
    memset(judge.set_of, 0xFF, value_count * sizeof *judge.set_of);
    for (uint32_t s = 0; s < join->set_count; s++) {
        struct ul_join_set *set = &join->sets[s];
        for (uint32_t p = 0; p < set->count; p++) {
            judge.set_of[set->members[p].result] = s;
            judge.member_of[set->members[p].result] = p;
            judge_member(&judge, set, &set->members[p], after->graph.nodes[set->split].outputs[p]);
        }
    }
    judge_readers(&judge);
    if (count_leaving(join) == 0)
        judge_bytes(&judge);
    if (count_leaving(join) == 0 && !is_explained(&judge))
        leave_all(join);
    return count_leaving(join) == 0;
}
