/* SPDX-License-Identifier: Apache-2.0 */
/* Where the elements of each value are.
 *
 * `own` gives every value dense bytes of its own, and puts a copy in front of those outputs of the
 * model that could have none: an input, a weight, or a value that is an output already. `views`
 * then lets outputs of movements (rows with a view hook) lie in the bytes of their input's base, so
 * that the node needs no kernel:
 *
 *      base    [ x0 x1 x2 | x3 x4 x5 ]
 *      Slice              [ ........ ]   offset 3 elements, the base's strides
 *
 * A node's outputs become views all together or not at all. No views: what the model returns; and
 * what is at a block's edge, unless the view is dense. Left undone: a small view keeps the whole
 * base alive; copying it would sometimes lower the peak. */
#include "ir/op.h"
#include "ir/view.h"
#include "passes/passes_internal.h"

uint32_t *ul_views_needs(const struct ul_graph *graph, struct ul_arena *arena)
{
    uint32_t *needs = UL_NEW_ARRAY(arena, uint32_t, graph->value_count);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct ul_node *node = &graph->nodes[n];
        if (node->block_count == 0)
            continue;
        for (uint32_t i = 0; i < node->input_count; i++) {
            if (node->inputs[i] != UL_NONE)
                needs[node->inputs[i]] |= UL_LAYOUT_DENSE;
        }
        for (uint32_t b = 0; b < node->block_count; b++) {
            const struct ul_block *block = &graph->blocks[node->blocks[b]];
            for (uint32_t i = 0; i < block->output_count; i++)
                needs[block->outputs[i]] |= UL_LAYOUT_DENSE;
        }
    }
    for (uint32_t r = 0; r < graph->root_count; r++)
        for (uint32_t i = 0; i < graph->blocks[r].output_count; i++)
            needs[graph->blocks[r].outputs[i]] |= UL_LAYOUT_OWN;
    return needs;
}

static bool output_view(const struct ul_graph *graph, const struct ul_node *node, uint32_t output,
                        uint32_t need, struct ul_view *view)
{
    const struct ul_value *value = &graph->values[node->outputs[output]];
    const struct ul_view *input = &graph->values[node->inputs[0]].view;
    if ((need & UL_LAYOUT_OWN) != 0 || value->donor != UL_NONE ||
        (value->flags & UL_VALUE_PERSISTENT) != 0 ||
        !ul_op_get(node->op)->view(graph, node, output, input, view))
        return false;
    return need == UL_LAYOUT_ANY || ul_view_is_dense(&value->type, view);
}

static void node_views(struct ul_graph *graph, const struct ul_node *node, const uint32_t *needs,
                       const bool *fixed, bool movements)
{
    bool all = movements && ul_op_get(node->op)->view != NULL && node->input_count > 0 &&
               node->inputs[0] != UL_NONE;
    struct ul_view view;
    for (uint32_t i = 0; all && i < node->output_count; i++)
        all = (fixed == NULL || !fixed[node->outputs[i]]) &&
              output_view(graph, node, i, needs[node->outputs[i]], &view);
    for (uint32_t i = 0; i < node->output_count; i++) {
        ul_value_id output = node->outputs[i];
        if (fixed != NULL && fixed[output])
            continue;
        view = ul_view_own(graph, output);
        if (all)
            (void)output_view(graph, node, i, needs[output], &view);
        graph->values[output].view = view;
    }
}

void ul_views_compute(struct ul_graph *graph, const struct ul_node_list *order,
                      const uint32_t *needs, const bool *fixed, bool movements)
{
    for (uint32_t n = 0; n < order->count; n++)
        node_views(graph, &graph->nodes[order->nodes[n]], needs, fixed, movements);
}

enum ul_status ul_pass_views(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    struct ul_node_list order = ul_edit_all_nodes(graph, pass->scratch);
    ul_views_compute(graph, &order, ul_views_needs(graph, pass->scratch), NULL, true);
    return UL_OK;
}

/* The output at `index` of the root gets bytes of its own. */
static void copy_output(struct ul_graph *graph, ul_block_id root, uint32_t index)
{
    ul_value_id value = graph->blocks[root].outputs[index];
    struct ul_build build = ul_build_last(graph, root, graph->values[value].name);
    ul_value_id copy = ul_build_copy(&build, value);
    graph->values[copy].donor = graph->values[value].donor;
    graph->values[value].donor = UL_NONE;
    graph->blocks[root].outputs[index] = copy;
}

static void own_outputs(struct ul_graph *graph, ul_block_id root, bool *is_output)
{
    const struct ul_block *block = &graph->blocks[root];
    for (uint32_t i = 0; i < block->output_count; i++) {
        ul_value_id value = block->outputs[i];
        if (graph->values[value].kind != UL_VALUE_NODE || is_output[value])
            copy_output(graph, root, i);
        else
            is_output[value] = true;
    }
    for (uint32_t i = 0; i < block->output_count; i++)
        UL_ASSERT(graph->values[block->outputs[i]].kind == UL_VALUE_NODE);
}

enum ul_status ul_pass_own(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    bool *is_output = UL_NEW_ARRAY(pass->scratch, bool, graph->value_count);
    for (uint32_t r = 0; r < graph->root_count; r++)
        own_outputs(graph, r, is_output);
    for (uint32_t v = 0; v < graph->value_count; v++) {
        if (graph->values[v].kind != UL_VALUE_DEAD)
            graph->values[v].view = ul_view_own(graph, v);
    }
    return UL_OK;
}
