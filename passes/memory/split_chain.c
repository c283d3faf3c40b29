/* SPDX-License-Identifier: Apache-2.0 */
/* The chain of a split: which steps lie on the paths from its first to its last, whether they can
 * be copied, and which of their results are needed outside. */
#include "ir/op.h"
#include "ir/view.h"
#include "passes/memory/split.h"
#include "passes/shared/maps.h"

#include <stdlib.h>
#include <string.h>

/* Visits what a node or anything nested in it reads: says whether one of the values is marked, or,
 * with `mark`, marks them all. */
static bool visit_reads(const struct ul_graph *graph, ul_node_id id, bool *marks, bool mark)
{
    const struct ul_node *node = &graph->nodes[id];
    bool found = false;
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] == UL_NONE)
            continue;
        found = found || marks[node->inputs[i]];
        marks[node->inputs[i]] = marks[node->inputs[i]] || mark;
    }
    for (uint32_t b = 0; b < node->block_count; b++) {
        const struct ul_block *block = &graph->blocks[node->blocks[b]];
        for (uint32_t n = 0; n < block->node_count; n++)
            found = visit_reads(graph, block->nodes[n], marks, mark) || found;
        for (uint32_t i = 0; i < block->output_count; i++) {
            found = found || marks[block->outputs[i]];
            marks[block->outputs[i]] = marks[block->outputs[i]] || mark;
        }
    }
    return found;
}

static bool visit_outputs(const struct ul_graph *graph, ul_node_id id, bool *marks, bool mark)
{
    const struct ul_node *node = &graph->nodes[id];
    bool found = false;
    for (uint32_t i = 0; i < node->output_count; i++) {
        found = found || marks[node->outputs[i]];
        marks[node->outputs[i]] = marks[node->outputs[i]] || mark;
    }
    return found;
}

/* ---- necks ---- */

/* Per node of the block from `from` to the end of the step: of what the step made before, it reads
 * only what node `from - 1` makes. */
static bool reads_neck_alone(const struct ul_graph *graph, const ul_node_id *nodes, uint32_t begin,
                             uint32_t from, uint32_t end)
{
    for (uint32_t n = from; n < end; n++) {
        const struct ul_node *node = &graph->nodes[nodes[n]];
        for (uint32_t i = 0; i < node->input_count; i++) {
            const struct ul_value *value =
                node->inputs[i] == UL_NONE ? NULL : &graph->values[node->inputs[i]];
            for (uint32_t m = begin; value != NULL && m + 1 < from; m++) {
                if (value->kind == UL_VALUE_NODE && value->producer == nodes[m])
                    return false;
            }
        }
    }
    return true;
}

/* The nodes of the block from `from` to the end of the step form products of the value, or do not
 * read it. */
static bool is_multiplied(const struct ul_graph *graph, const ul_node_id *nodes, uint32_t from,
                          uint32_t end, ul_value_id value)
{
    for (uint32_t n = from; n < end; n++) {
        const struct ul_node *node = &graph->nodes[nodes[n]];
        bool multiplies = (ul_op_get(node->op)->flags & UL_OP_MULTIPLIES) != 0;
        for (uint32_t i = 0; i < node->input_count; i++) {
            if (node->inputs[i] == value && (!multiplies || i > 1))
                return false;
        }
    }
    return true;
}

/* The bits that would be stored there are those that the whole step computes with. */
static bool is_neck(const struct ul_graph *graph, const ul_node_id *nodes, uint32_t begin,
                    uint32_t n, uint32_t end)
{
    const struct ul_node *node = &graph->nodes[nodes[n]];
    ul_value_id last = graph->nodes[nodes[end - 1]].outputs[0];
    return node->output_count == 1 && !ul_node_is_view(graph, nodes[n]) &&
           ul_value_bytes(graph, node->outputs[0]) < ul_value_bytes(graph, last) &&
           reads_neck_alone(graph, nodes, begin, n + 1, end) &&
           (ul_maps_is_closed(node) || is_multiplied(graph, nodes, n + 1, end, node->outputs[0]));
}

uint32_t ul_split_find_neck(const struct ul_graph *graph, const ul_node_id *nodes, uint32_t begin,
                            uint32_t end)
{
    UL_ASSERT(begin < end);
    for (uint32_t n = begin; n + 1 < end; n++) {
        if (is_neck(graph, nodes, begin, n, end))
            return n;
    }
    return UL_NONE;
}

/* The step that holds the node: [*begin, result) of its block. */
static uint32_t find_step(const struct ul_graph *graph, const struct ul_block *block,
                          ul_node_id node, uint32_t *begin)
{
    for (uint32_t n = 0; n < block->node_count;) {
        *begin = n;
        uint32_t end = ul_steps_end(graph, block->nodes, block->node_count, n);
        while (n < end && block->nodes[n] != node)
            n++;
        if (n < end)
            return end;
    }
    UL_ASSERT(false);
    return 0;
}

/* What comes after the neck of a step becomes a step of its own, where the neck is `last`, or comes
 * before `first`. */
static void cut_step(struct ul_graph *graph, ul_node_id node, bool is_first)
{
    const struct ul_block *block = &graph->blocks[graph->nodes[node].parent];
    uint32_t begin = 0;
    uint32_t end = find_step(graph, block, node, &begin);
    uint32_t neck = ul_split_find_neck(graph, block->nodes, begin, end);
    if (neck == UL_NONE || block->nodes[is_first ? neck + 1 : neck] != node)
        return;
    uint32_t group = ul_edit_last_group(graph) + 1;
    for (uint32_t n = neck + 1; n < end; n++)
        graph->nodes[block->nodes[n]].group = group;
}

void ul_split_cut_ends(struct ul_graph *graph, const struct ul_split *split)
{
    UL_ASSERT(split->first < graph->node_count && split->last < graph->node_count);
    cut_step(graph, split->first, true);
    cut_step(graph, split->last, false);
}

/* ---- the chain ---- */

/* Marks the steps that need the first one, itself included. */
static void mark_forward(struct ul_pass *pass, struct ul_split_chain *chain)
{
    const struct ul_graph *graph = pass->graph;
    const struct ul_block *block = &graph->blocks[chain->block];
    bool *values = UL_NEW_ARRAY(pass->scratch, bool, graph->value_count);
    for (uint32_t begin = 0, end; begin < block->node_count; begin = end) {
        bool reached = false;
        end = ul_steps_end(graph, block->nodes, block->node_count, begin);
        for (uint32_t n = begin; n < end; n++)
            reached = block->nodes[n] == chain->split->first ||
                      visit_reads(graph, block->nodes[n], values, false) || reached;
        for (uint32_t n = begin; reached && n < end; n++) {
            chain->inside[block->nodes[n]] = true;
            (void)visit_outputs(graph, block->nodes[n], values, true);
        }
    }
}

/* Keeps only the marks of those that the last one needs, itself included. */
static void keep_backward(struct ul_pass *pass, struct ul_split_chain *chain)
{
    const struct ul_graph *graph = pass->graph;
    const struct ul_block *block = &graph->blocks[chain->block];
    bool *values = UL_NEW_ARRAY(pass->scratch, bool, graph->value_count);
    uint32_t *begins = UL_NEW_ARRAY(pass->scratch, uint32_t, (uint64_t)block->node_count + 1);
    uint32_t step_count = 0;
    for (uint32_t begin = 0; begin < block->node_count; step_count++) {
        begins[step_count] = begin;
        begin = ul_steps_end(graph, block->nodes, block->node_count, begin);
    }
    begins[step_count] = block->node_count;
    for (uint32_t s = step_count; s-- > 0;) {
        bool needed = false;
        for (uint32_t n = begins[s]; n < begins[s + 1]; n++)
            needed = block->nodes[n] == chain->split->last ||
                     visit_outputs(graph, block->nodes[n], values, false) || needed;
        for (uint32_t n = begins[s]; n < begins[s + 1]; n++) {
            chain->inside[block->nodes[n]] = chain->inside[block->nodes[n]] && needed;
            if (needed)
                (void)visit_reads(graph, block->nodes[n], values, true);
        }
    }
}

/* Per value: something outside of the chain needs it. */
static bool *find_escapes(struct ul_pass *pass, const struct ul_split_chain *chain)
{
    const struct ul_graph *graph = pass->graph;
    bool *escapes = UL_NEW_ARRAY(pass->scratch, bool, graph->value_count);
    for (uint32_t b = 0; b < graph->block_count; b++) {
        for (uint32_t i = 0; i < graph->blocks[b].output_count; i++)
            escapes[graph->blocks[b].outputs[i]] = true;
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct ul_node *node = &graph->nodes[n];
        for (uint32_t i = 0; !chain->inside[n] && i < node->input_count; i++) {
            if (node->inputs[i] != UL_NONE)
                escapes[node->inputs[i]] = true;
        }
    }
    return escapes;
}

enum ul_status ul_split_fail(struct ul_pass *pass, const struct ul_split_chain *chain,
                             ul_node_id node, const char *why)
{
    return ul_diag_set(pass->diag, UL_UNSUPPORTED, "%s: %s %s",
                       ul_quote(pass->scratch, chain->split->text),
                       ul_node_describe(pass->graph, node, pass->scratch), why);
}

static bool is_last_step(const struct ul_graph *graph, const struct ul_split *split,
                         ul_node_id node)
{
    uint32_t group = graph->nodes[split->last].group;
    return node == split->last || (group != UL_NONE && graph->nodes[node].group == group);
}

static enum ul_status check_value(struct ul_pass *pass, struct ul_split_chain *chain,
                                  ul_node_id node, ul_value_id id, bool escapes)
{
    const struct ul_value *value = &pass->graph->values[id];
    bool is_placed = value->donor != UL_NONE && !chain->split->defines;
    if (is_placed || (value->flags & UL_VALUE_PERSISTENT) != 0)
        return ul_split_fail(pass, chain, node, "makes a value with a place of its own");
    if (!escapes)
        return UL_OK;
    if (!is_last_step(pass->graph, chain->split, node))
        return ul_split_fail(pass, chain, node, "makes what is needed outside of the chain");
    if (ul_node_is_view(pass->graph, node))
        return ul_split_fail(pass, chain, node, "only views its input: the chain ends before it");
    chain->outputs[chain->output_count++] = id;
    return UL_OK;
}

/* What is made outside must not lie in a value that goes with the chain (a Concat of it). */
static enum ul_status check_bases(struct ul_pass *pass, const struct ul_split_chain *chain)
{
    const struct ul_graph *graph = pass->graph;
    for (uint32_t v = 0; v < graph->value_count; v++) {
        const struct ul_value *value = &graph->values[v];
        if (value->kind == UL_VALUE_DEAD || value->view.base == UL_NONE || value->view.base == v ||
            (value->kind == UL_VALUE_NODE && chain->inside[value->producer]))
            continue;
        const struct ul_value *base = &graph->values[value->view.base];
        bool stays = base->kind != UL_VALUE_NODE || !chain->inside[base->producer];
        for (uint32_t i = 0; !stays && i < chain->output_count; i++)
            stays = chain->outputs[i] == value->view.base;
        if (!stays)
            return ul_split_fail(pass, chain, base->producer,
                                 "holds what is made outside of the chain");
    }
    return UL_OK;
}

static enum ul_status collect(struct ul_pass *pass, struct ul_split_chain *chain)
{
    const struct ul_graph *graph = pass->graph;
    const struct ul_block *block = &graph->blocks[chain->block];
    const bool *escapes = find_escapes(pass, chain);
    uint64_t output_count = 0;
    chain->nodes = UL_NEW_ARRAY(pass->scratch, ul_node_id, block->node_count);
    for (uint32_t n = 0; n < block->node_count; n++) {
        if (chain->inside[block->nodes[n]]) {
            chain->nodes[chain->node_count++] = block->nodes[n];
            output_count += graph->nodes[block->nodes[n]].output_count;
        }
    }
    chain->outputs = UL_NEW_ARRAY(pass->scratch, ul_value_id, output_count);
    for (uint32_t n = 0; n < chain->node_count; n++) {
        const struct ul_node *node = &graph->nodes[chain->nodes[n]];
        if (node->block_count > 0)
            return ul_split_fail(pass, chain, chain->nodes[n], "has blocks, which cannot be cut");
        for (uint32_t i = 0; i < node->output_count; i++)
            UL_TRY(check_value(pass, chain, chain->nodes[n], node->outputs[i],
                               escapes[node->outputs[i]]));
    }
    if (chain->output_count == 0)
        return ul_diag_set(pass->diag, UL_USAGE, "%s: no way leads from its first to its last node",
                           ul_quote(pass->scratch, chain->split->text));
    return UL_OK;
}

enum ul_status ul_split_set_axis(struct ul_pass *pass, struct ul_split_chain *chain)
{
    const struct ul_split *split = chain->split;
    const struct ul_type *type = &pass->graph->values[chain->outputs[0]].type;
    char *end = NULL;
    unsigned long axis = strtoul(split->axis, &end, 10);
    if (strcmp(split->axis, "batch") == 0)
        axis = 0;
    else if (strcmp(split->axis, "rows") == 0)
        axis = type->rank < 2 ? type->rank : type->rank - 2;
    else if (*end != '\0' || split->axis[0] < '0' || split->axis[0] > '9')
        axis = UL_NONE;
    if (axis >= type->rank)
        return ul_diag_set(pass->diag, UL_USAGE,
                           "%s: expected batch, rows or the number of one of %u axes",
                           ul_quote(pass->scratch, split->text), (unsigned)type->rank);
    chain->axis = (uint32_t)axis;
    chain->extent = type->dims[axis];
    if (split->piece_count < 2 || split->piece_count > chain->extent)
        return ul_diag_set(pass->diag, UL_USAGE,
                           "%s: axis %u has %lld elements, of which it makes no %lld pieces",
                           ul_quote(pass->scratch, split->text), (unsigned)chain->axis,
                           (long long)chain->extent, (long long)split->piece_count);
    for (uint32_t i = 1; i < chain->output_count; i++) {
        const struct ul_type *other = &pass->graph->values[chain->outputs[i]].type;
        if (!ul_type_same_dims(other, type))
            return ul_split_fail(pass, chain, split->last,
                                 "is in a step with results of several shapes");
    }
    return UL_OK;
}

enum ul_status ul_split_find_chain(struct ul_pass *pass, const struct ul_split *split,
                                   struct ul_split_chain *chain)
{
    const struct ul_graph *graph = pass->graph;
    *chain = (struct ul_split_chain){.split = split,
                                     .block = graph->nodes[split->first].parent,
                                     .value_count = graph->value_count};
    chain->inside = UL_NEW_ARRAY(pass->scratch, bool, graph->node_count);
    if (graph->nodes[split->last].parent != chain->block)
        return ul_diag_set(pass->diag, UL_USAGE, "%s: its nodes stand in different blocks",
                           ul_quote(pass->scratch, split->text));
    mark_forward(pass, chain);
    keep_backward(pass, chain);
    UL_TRY(collect(pass, chain));
    return check_bases(pass, chain);
}
