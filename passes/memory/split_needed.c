/* SPDX-License-Identifier: Apache-2.0 */
/* Which slice of every value of a chain one piece computes: found backwards from the piece's
 * results, each operator saying what it takes of its inputs. A value with several readers is
 * computed once, as far as any of them reads; where another is content with less, it gets a slice
 * of it. So rows around a window (the halo) are computed by two pieces: that is what a split
 * costs. */
#include "passes/memory/split.h"

bool ul_split_apply_rule(const struct ul_graph *graph, const struct ul_split_needed *needed,
                         ul_node_id id, struct ul_arena *arena, struct ul_split_rule *rule)
{
    const struct ul_node *node = &graph->nodes[id];
    *rule = (struct ul_split_rule){.graph = graph, .node = node, .arena = arena};
    rule->inputs = UL_NEW_ARRAY(arena, struct ul_slice, node->input_count);
    rule->constants = UL_NEW_ARRAY(arena, const struct ul_tensor *, node->input_count);
    rule->output = needed->needed[node->outputs[0]];
    return ul_node_split(rule);
}

/* Adds what a reader needs to what others do; false where they split it along different axes. */
static bool widen(struct ul_slice *slice, const struct ul_slice *more)
{
    if (slice->axis == UL_NONE) {
        *slice = *more;
        return true;
    }
    if (slice->axis != more->axis)
        return false;
    slice->begin = slice->begin < more->begin ? slice->begin : more->begin;
    slice->end = slice->end > more->end ? slice->end : more->end;
    return true;
}

static bool is_inside(const struct ul_graph *graph, const struct ul_split_chain *chain,
                      ul_value_id value)
{
    return graph->values[value].kind == UL_VALUE_NODE &&
           chain->inside[graph->values[value].producer];
}

/* The outputs of a node are computed together: all get the slice of the widest one. */
static bool join_outputs(const struct ul_graph *graph, const struct ul_node *node,
                         struct ul_slice *needed)
{
    struct ul_slice joined = {.axis = UL_NONE};
    for (uint32_t i = 0; i < node->output_count; i++) {
        const struct ul_slice *slice = &needed[node->outputs[i]];
        if (slice->axis != UL_NONE && !widen(&joined, slice))
            return false;
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        const struct ul_type *type = &graph->values[node->outputs[i]].type;
        if (joined.axis >= type->rank || joined.end > type->dims[joined.axis])
            return false;
        needed[node->outputs[i]] = joined;
    }
    return true;
}

/* What can only be made in blocks is made in blocks: readers take a slice of it. The chain's
 * results must be as they were asked for. */
static bool widen_outputs(struct ul_split_needed *needed, const struct ul_node *node,
                          const struct ul_split_rule *rule)
{
    const struct ul_split_chain *chain = needed->chain;
    for (uint32_t i = 0; i < node->output_count; i++) {
        struct ul_slice *slice = &needed->needed[node->outputs[i]];
        bool wider = slice->begin != rule->output.begin || slice->end != rule->output.end;
        for (uint32_t k = 0; wider && k < chain->output_count; k++) {
            if (chain->outputs[k] == node->outputs[i])
                return false;
        }
        *slice = rule->output;
    }
    return true;
}

static enum ul_status find_node_needed(struct ul_pass *pass, struct ul_split_needed *needed,
                                       ul_node_id id)
{
    const struct ul_graph *graph = pass->graph;
    const struct ul_node *node = &graph->nodes[id];
    struct ul_split_rule rule;
    if (!join_outputs(graph, node, needed->needed))
        return ul_split_fail(pass, needed->chain, id,
                             "has results that are cut along different axes");
    if (!ul_split_apply_rule(graph, needed, id, pass->scratch, &rule) ||
        !widen_outputs(needed, node, &rule))
        return ul_split_fail(pass, needed->chain, id,
                             "cannot be computed in pieces along that axis");
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] == UL_NONE || !is_inside(graph, needed->chain, node->inputs[i]))
            continue;
        if (rule.inputs[i].axis == UL_NONE)
            return ul_split_fail(pass, needed->chain, id, "needs all of a value of the chain");
        if (!widen(&needed->needed[node->inputs[i]], &rule.inputs[i]))
            return ul_split_fail(pass, needed->chain, id,
                                 "cuts a value along another axis than others do");
    }
    return UL_OK;
}

void ul_split_needed_init(struct ul_pass *pass, const struct ul_split_chain *chain,
                          struct ul_split_needed *needed)
{
    *needed = (struct ul_split_needed){.chain = chain};
    needed->needed = UL_NEW_ARRAY(pass->scratch, struct ul_slice, chain->value_count);
}

enum ul_status ul_split_find_needed(struct ul_pass *pass, int64_t begin, int64_t end,
                                    struct ul_split_needed *needed)
{
    const struct ul_graph *graph = pass->graph;
    const struct ul_split_chain *chain = needed->chain;
    for (uint32_t n = 0; n < chain->node_count; n++) {
        const struct ul_node *node = &graph->nodes[chain->nodes[n]];
        for (uint32_t i = 0; i < node->output_count; i++)
            needed->needed[node->outputs[i]].axis = UL_NONE;
    }
    for (uint32_t i = 0; i < chain->output_count; i++)
        needed->needed[chain->outputs[i]] =
            (struct ul_slice){.axis = chain->axis, .begin = begin, .end = end};
    for (uint32_t n = chain->node_count; n-- > 0;)
        UL_TRY(find_node_needed(pass, needed, chain->nodes[n]));
    return UL_OK;
}
