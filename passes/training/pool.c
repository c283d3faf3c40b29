/* SPDX-License-Identifier: Apache-2.0 */
/* Maps that keep the order of numbers, after the max-pooling that they feed.
 *
 * Problem: in the backward pass of x -> Relu -> MaxPool, the gradient of Relu looks at its result
 * in all places, which is as large as x; so it is kept, or made once more from what x is made of.
 * Method: the largest of relu(x) is relu of the largest x, but for the sign of a zero, so the two
 * change places:
 *
 *      Conv -> Relu -> MaxPool             Conv -> MaxPool -> Relu
 *
 * and Relu's gradient looks at what the next node reads anyway. Only of what MaxPool alone reads,
 * where no window is empty (the lowest number stays what it is), nor places are asked for (equal
 * numbers). Left undone: inference, which neither needs fewer bytes for it nor measurably less
 * time; GlobalMaxPool, whose gradient reads what it pools. */
#include "ir/geometry.h"
#include "ir/op.h"
#include "ir/op_names.h"
#include "passes/passes_internal.h"

/* Each window of dimension d has a tap inside the input. */
static bool has_taps(const struct ul_pool *pool, uint32_t d)
{
    UL_ASSERT(d < pool->count);
    for (int64_t o = 0; o < pool->out[d]; o++) {
        int64_t at = o * pool->stride[d] - pool->pad_begin[d], t = 0;
        while (t < pool->kernel[d] && at + t * pool->dilation[d] < 0)
            t++;
        if (t == pool->kernel[d] || at + t * pool->dilation[d] >= pool->in[d])
            return false;
    }
    return true;
}

/* Keeps the order of its first input's elements, without a rounding that could change it. */
static bool keeps_order(const struct ul_node *node)
{
    const char *unless_negative = ul_op_get(node->op)->monotone;
    return unless_negative != NULL && node->output_count == 1 && node->inputs[0] != UL_NONE &&
           !(ul_node_get_float(node, unless_negative, 0) < 0);
}

/* The node in front of the pooling that can run after it, or UL_NONE. */
static ul_node_id find_map(const struct ul_graph *graph, const uint32_t *uses, ul_node_id pooling)
{
    const struct ul_node *node = &graph->nodes[pooling];
    const struct ul_value *value = &graph->values[node->inputs[0]];
    struct ul_pool pool;
    if (node->op != UL_OP_MaxPool || node->output_count != 1 || value->kind != UL_VALUE_NODE ||
        uses[node->inputs[0]] != 1)
        return UL_NONE;
    const struct ul_node *map = &graph->nodes[value->producer];
    if (map->parent != node->parent || !keeps_order(map) ||
        !ul_type_equal(&graph->values[map->inputs[0]].type, &value->type) ||
        ul_pool_read(node, &value->type, &pool) != NULL)
        return UL_NONE;
    for (uint32_t d = 0; d < pool.count; d++)
        if (!has_taps(&pool, d))
            return UL_NONE;
    return value->producer;
}

/* The pooling before the map, as a node of its own, which it gives; the map where it was. */
static ul_node_id change_places(struct ul_graph *graph, ul_node_id map, ul_node_id pooling)
{
    const struct ul_node old = graph->nodes[map]; /* the array moves */
    const struct ul_type type = graph->values[graph->nodes[pooling].outputs[0]].type;
    UL_ASSERT(ul_type_known(&type) && graph->nodes[pooling].input_count == 1);
    struct ul_build build = ul_build_before(graph, pooling);
    ul_node_id moved = ul_build_like(&build, pooling, old.inputs);
    ul_value_id made = graph->nodes[moved].outputs[0];
    graph->values[made].type = type;
    ul_node_become(graph, pooling, old.op, old.inputs, old.input_count);
    graph->nodes[pooling].inputs[0] = made;
    graph->nodes[pooling].attrs = old.attrs;
    graph->nodes[pooling].attr_count = old.attr_count;
    graph->nodes[pooling].name = old.name;
    graph->nodes[pooling].source = old.source;
    ul_graph_remove_node(graph, map);
    return moved;
}

enum ul_status ul_pass_pool(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    const struct ul_node_list order = ul_edit_all_nodes(graph, pass->scratch);
    const uint32_t *uses = ul_graph_count_uses(graph, pass->scratch);
    for (uint32_t n = 0; n < order.count; n++) {
        ul_node_id pooling = order.nodes[n];
        for (ul_node_id map = find_map(graph, uses, pooling); map != UL_NONE;
             map = find_map(graph, uses, pooling))
            pooling = change_places(graph, map, pooling);
    }
    ul_graph_sweep(graph);
    return UL_OK;
}
