/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks written out for training: what is trained in a block, or through one, gets its gradient by
 * the rules of the operators in it.
 *
 * Method: a Loop or Scan that runs a known count becomes its rounds, one after the other
 * (unroll.c). Both branches of an If are computed, and the condition chooses the results, so that
 * the branch not taken has a gradient of 0:
 *
 *      y = If c { a = f(x) } else { b = g(x) }     a = f(x)   b = g(x)   y = Where(c, a, b)
 *
 * Left undone: loops that may end early, or run for too many rounds; those that nothing is trained
 * in stay as they are. */
#include "ir/infer.h"
#include "ir/op.h"
#include "ir/op_names.h"
#include "passes/passes_internal.h"

#include <string.h>

void ul_inline_block(const struct ul_pass *pass, ul_block_id block_id, uint32_t at,
                     ul_block_id branch_id)
{
    struct ul_graph *graph = pass->graph;
    UL_ASSERT(branch_id != block_id && at < graph->blocks[block_id].node_count);
    ul_node_id id = graph->blocks[block_id].nodes[at];
    struct ul_block *branch = &graph->blocks[branch_id];
    struct ul_block *block = &graph->blocks[block_id];
    uint32_t total = block->node_count + branch->node_count;
    ul_node_id *nodes = UL_NEW_ARRAY(graph->arena, ul_node_id, total);
    memcpy(nodes, block->nodes, at * sizeof *nodes);
    if (branch->node_count > 0)
        memcpy(nodes + at, branch->nodes, branch->node_count * sizeof *nodes);
    memcpy(nodes + at + branch->node_count, block->nodes + at,
           (block->node_count - at) * sizeof *nodes);
    block->nodes = nodes;
    block->node_count = block->node_capacity = total;
    for (uint32_t i = 0; i < branch->node_count; i++)
        graph->nodes[branch->nodes[i]].parent = block_id;
    uint32_t insert_at = at + branch->node_count;
    branch->node_count = 0;
    struct ul_node *node = &graph->nodes[id];
    uint32_t output_count = node->output_count;
    const ul_value_id *outputs = node->outputs;
    const ul_value_id *results = branch->outputs;
    for (uint32_t i = 0; i < output_count; i++) {
        struct ul_rewrite rewrite;
        ul_rewrite_init(&rewrite, graph, pass->scratch);
        if (ul_rewrite_forward(&rewrite, outputs[i], results[i])) {
            ul_rewrite_apply(&rewrite);
            continue;
        }
        /* An output of the model that is something else already: a copy that bears its name. */
        struct ul_build build = ul_build_at(graph, block_id, insert_at, "");
        ul_node_id copy = ul_build_node(&build, UL_OP_Identity, &results[i], 1, 1);
        ul_graph_exchange(graph, outputs[i], graph->nodes[copy].outputs[0]);
    }
    ul_graph_remove_node(graph, id);
}

/* ---- What is trained ---- */

/* Whether a node, or a block in it, reads a value that depends on a parameter; values that its
 * blocks compute from these are marked on the way. */
static bool reads_trained(const struct ul_graph *graph, bool *moves, ul_node_id id)
{
    const struct ul_node *node = &graph->nodes[id];
    bool reads = false;
    for (uint32_t i = 0; i < node->input_count; i++)
        reads = reads || (node->inputs[i] != UL_NONE && moves[node->inputs[i]]);
    for (uint32_t b = 0; b < node->block_count; b++) {
        const struct ul_block *block = &graph->blocks[node->blocks[b]];
        for (uint32_t p = 0; p < block->node_count; p++)
            reads = reads_trained(graph, moves, block->nodes[p]) || reads;
        for (uint32_t i = 0; i < block->output_count; i++)
            reads = reads || moves[block->outputs[i]];
    }
    return reads;
}

/* The first control node of the main block in which something is trained, from `at` on. */
static bool find_trained(const struct ul_pass *pass, uint32_t *at)
{
    const struct ul_graph *graph = pass->graph;
    bool *moves = UL_NEW_ARRAY(pass->scratch, bool, graph->value_count);
    for (uint32_t v = 0; v < graph->value_count; v++)
        moves[v] = (graph->values[v].flags & UL_VALUE_TRAINED) != 0;
    for (uint32_t p = 0; p < ul_graph_only_root(graph)->node_count; p++) {
        const struct ul_node *node = &graph->nodes[ul_graph_only_root(graph)->nodes[p]];
        bool reads = reads_trained(graph, moves, ul_graph_only_root(graph)->nodes[p]);
        if (reads && p >= *at && (ul_op_get(node->op)->flags & UL_OP_CONTROL) != 0) {
            *at = p;
            return true;
        }
        for (uint32_t i = 0; i < node->output_count; i++)
            moves[node->outputs[i]] = reads;
    }
    return false;
}

/* ---- If ---- */

/* Both branches in one block, whose outputs are chosen. */
static ul_block_id join_branches(struct ul_graph *graph, ul_node_id id)
{
    const struct ul_node node = graph->nodes[id];
    ul_block_id all = ul_graph_add_block(graph, UL_NONE);
    UL_ASSERT(node.block_count == 2);
    struct ul_build build = ul_build_last(graph, all, node.name);
    ul_value_id condition = ul_build_reshape(&build, node.inputs[0], 0, NULL);
    for (uint32_t b = 0; b < 2; b++) {
        struct ul_block *branch = &graph->blocks[node.blocks[b]];
        struct ul_block *to = &graph->blocks[all];
        uint32_t total = to->node_count + branch->node_count;
        ul_node_id *nodes = UL_NEW_ARRAY(graph->arena, ul_node_id, total + 1);
        memcpy(nodes, to->nodes, to->node_count * sizeof *nodes);
        if (branch->node_count > 0)
            memcpy(nodes + to->node_count, branch->nodes, branch->node_count * sizeof *nodes);
        to->nodes = nodes;
        to->node_count = to->node_capacity = total;
        branch->node_count = 0;
    }
    build = ul_build_last(graph, all, node.name);
    for (uint32_t i = 0; i < node.output_count; i++) {
        const ul_value_id inputs[3] = {condition, graph->blocks[node.blocks[0]].outputs[i],
                                       graph->blocks[node.blocks[1]].outputs[i]};
        const struct ul_type type = graph->values[node.outputs[i]].type;
        ul_block_add_output(graph, all, ul_build_value(&build, UL_OP_Where, inputs, 3, &type));
    }
    for (uint32_t b = 0; b < 2; b++)
        graph->blocks[node.blocks[b]].output_count = 0;
    return all;
}

/* Whether pass infer has left a branch that fails any run which takes it. */
static bool is_ruled_out(const struct ul_graph *graph, ul_block_id branch)
{
    const struct ul_value *result = &graph->values[graph->blocks[branch].outputs[0]];
    return result->kind == UL_VALUE_NODE && graph->nodes[result->producer].op == UL_OP_NoBranch;
}

/* ---- The pass ---- */

/* The block that does the same without control flow; UL_NONE: there is none. */
static ul_block_id write_out(const struct ul_pass *pass, ul_node_id id)
{
    struct ul_graph *graph = pass->graph;
    const struct ul_node node = graph->nodes[id];
    ul_block_id all = UL_NONE;
    if (node.op == UL_OP_If && !is_ruled_out(graph, node.blocks[0]) &&
        !is_ruled_out(graph, node.blocks[1]))
        return join_branches(graph, id);
    if (node.op == UL_OP_Loop && ul_unroll_is_possible(graph, id))
        all = ul_unroll_rounds(pass, id, node.blocks[0]);
    else if (node.op == UL_OP_Scan && ul_unroll_scan_is_possible(graph, id))
        all = ul_unroll_scan(pass, id);
    if (all != UL_NONE)
        ul_unroll_forget(graph, node.blocks[0]);
    return all;
}

/* Infers what was added without types. */
static enum ul_status infer_new(const struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    for (uint32_t p = 0; p < ul_graph_only_root(graph)->node_count; p++) {
        ul_node_id id = ul_graph_only_root(graph)->nodes[p];
        const struct ul_node *node = &graph->nodes[id];
        bool known = true;
        for (uint32_t i = 0; i < node->output_count; i++)
            known = known && ul_type_known(&graph->values[node->outputs[i]].type);
        if (!known)
            UL_TRY(ul_node_infer(graph, id, pass->scratch, pass->diag));
    }
    return UL_OK;
}

enum ul_status ul_pass_inline(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    for (uint32_t at = 0; find_trained(pass, &at);) {
        ul_block_id all = write_out(pass, ul_graph_only_root(graph)->nodes[at]);
        if (all == UL_NONE) {
            at++; /* the gradient says so if it matters */
            continue;
        }
        ul_inline_block(pass, 0, at, all);
        ul_graph_sweep(graph);
        UL_TRY(infer_new(pass));
    }
    return UL_OK;
}
