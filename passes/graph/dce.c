/* SPDX-License-Identifier: Apache-2.0 */
/* Dead code: what no output of the model depends on.
 *
 * Method: a work list from the model's outputs backwards; a live node with nested blocks keeps
 * the outputs of its blocks. Optional outputs at the end of a node that nobody uses are dropped, so
 * that lowering does not compute them. Left undone: carried values of a Loop that only feed
 * themselves. */
#include "ir/op.h"
#include "passes/passes_internal.h"

struct dce {
    struct ul_graph *graph;
    bool *value_live;
    ul_value_id *work;
    uint32_t work_count;
};

static void mark(struct dce *dce, ul_value_id value)
{
    if (value == UL_NONE || dce->value_live[value])
        return;
    UL_ASSERT(dce->work_count < dce->graph->value_count);
    dce->value_live[value] = true;
    dce->work[dce->work_count++] = value;
}

static void mark_all(struct dce *dce, bool *node_live)
{
    const struct ul_graph *graph = dce->graph;
    for (uint32_t r = 0; r < graph->root_count; r++) {
        const struct ul_block *root = &graph->blocks[r];
        for (uint32_t i = 0; i < root->output_count; i++)
            mark(dce, root->outputs[i]);
    }
    while (dce->work_count > 0) {
        const struct ul_value *value = &graph->values[dce->work[--dce->work_count]];
        if (value->kind != UL_VALUE_NODE || node_live[value->producer])
            continue;
        const struct ul_node *node = &graph->nodes[value->producer];
        node_live[value->producer] = true;
        for (uint32_t i = 0; i < node->input_count; i++)
            mark(dce, node->inputs[i]);
        for (uint32_t b = 0; b < node->block_count; b++) {
            const struct ul_block *block = &graph->blocks[node->blocks[b]];
            for (uint32_t i = 0; i < block->output_count; i++)
                mark(dce, block->outputs[i]);
        }
    }
}

static void trim_outputs(struct dce *dce, ul_node_id id)
{
    struct ul_node *node = &dce->graph->nodes[id];
    const struct ul_op_info *row = ul_op_get(node->op);
    if (row->max_outputs == UL_LIMIT_NODE_INPUTS)
        return; /* Split, If, Loop, Scan: the number of their outputs has a meaning */
    while (node->output_count > row->min_outputs &&
           !dce->value_live[node->outputs[node->output_count - 1]])
        dce->graph->values[node->outputs[--node->output_count]].kind = UL_VALUE_DEAD;
}

enum ul_status ul_pass_dce(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    struct dce dce = {.graph = graph};
    dce.value_live = UL_NEW_ARRAY(pass->scratch, bool, graph->value_count);
    dce.work = UL_NEW_ARRAY(pass->scratch, ul_value_id, graph->value_count);
    bool *node_live = UL_NEW_ARRAY(pass->scratch, bool, graph->node_count);
    mark_all(&dce, node_live);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (graph->nodes[n].op == UL_OP_NONE)
            continue;
        if (node_live[n])
            trim_outputs(&dce, n);
        else
            ul_graph_remove_node(graph, n);
    }
    ul_graph_sweep(graph);
    for (uint32_t v = 0; v < graph->value_count; v++) {
        if (graph->values[v].kind == UL_VALUE_WEIGHT && !dce.value_live[v])
            graph->values[v].kind = UL_VALUE_DEAD;
    }
    return UL_OK;
}
