/* SPDX-License-Identifier: Apache-2.0 */
/* Scan-8 ran over a batch: every state and scanned input had a batch dimension first. It becomes
 * today's Scan over the batch, whose body is today's Scan over the sequence. */
#include "frontend/frontend_internal.h"
#include "ir/op.h"

#include <string.h>

static void set_directions(struct ul_old_node *node)
{
    for (uint32_t i = 0; i < node->attr_count; i++) {
        if (strcmp(node->attrs[i].name, "directions") == 0)
            node->attrs[i].name = "scan_input_directions";
    }
}

void ul_upgrade_scan_8(struct ul_old_node *node)
{
    struct ul_model_builder *builder = node->builder;
    struct ul_graph *graph = builder->graph;
    ul_op_id scan = ul_op_find("", "Scan");
    if (ul_old_input(node, 0) != UL_NONE) {
        ul_old_problem(node, "of operator set 8 with sequence lengths is not supported; export the "
                             "model with operator set 9 or newer");
        return;
    }
    if (scan == UL_OP_NONE || node->input_count < 2)
        return;
    uint32_t count = node->input_count - 1;
    ul_node_id outer =
        ul_graph_add_node(graph, builder->block, scan, ul_builder_name(builder, node->name), count,
                          node->output_count);
    ul_node_set_int(graph, outer, "num_scan_inputs", count);
    graph->nodes[outer].source = node->source;
    ul_block_id batch = ul_graph_add_block(graph, outer);
    for (uint32_t i = 0; i < count; i++) {
        ul_value_id argument =
            ul_graph_add_value(graph, graph->nodes[outer].name, UL_VALUE_ARGUMENT, NULL);
        graph->nodes[outer].inputs[i] = node->inputs[i + 1];
        node->inputs[i] = argument;
        ul_block_add_input(graph, batch, argument);
    }
    node->input_count = count;
    set_directions(node);
    ul_block_id here = builder->block;
    builder->block = batch;
    ul_old_emit_self(node);
    for (uint32_t i = 0; i < node->output_count; i++)
        ul_block_add_output(graph, batch, node->results[i]);
    builder->block = here;
    for (uint32_t i = 0; i < node->output_count; i++)
        ul_old_set_result(node, i, graph->nodes[outer].outputs[i]);
}
