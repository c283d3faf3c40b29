/* SPDX-License-Identifier: Apache-2.0 */
/* Light results of the forward pass, computed again where the backward pass looks at them.
 *
 * Problem: the gradient of Relu looks at y, which is as large as what it is made of. Where that is
 * kept for the backward pass anyway, y need not be, nor be made again in memory for it:
 *
 *      c = Conv;  y = Relu(Normalize(c))             y' = Relu(Normalize(c))
 *      dn = y <= 0 ? 0 : g                           dn = y' <= 0 ? 0 : g
 *      dc = rule of Normalize (dn, c)                dc = rule of Normalize (dn, c)
 *
 * Method: an elementwise node of the backward pass gets its own copies of the cheap maps that y is
 * made by, of one value of y's size that the backward pass reads then or later, and of small ones
 * (statistics and biases along channels). Fusing makes one kernel of the copies and the node, which
 * loads c instead of y. Not where a product of the backward pass, or another node that is no map,
 * reads y as well: it lives until then anyway. Left undone: maps of several large values (residual
 * sums), which need not live at the same time. */
#include "ir/op.h"
#include "passes/maps.h"

struct again {
    struct ul_graph *graph;
    uint32_t known_count;  /* values that stood when the pass began */
    uint32_t *last_reader; /* per value: place of the last node of the backward pass; 0: none */
    bool *is_operand;      /* per value: nodes of the backward pass that are no maps read it */
};

/* An operand that is worth its own maps. */
static bool find_maps(const struct again *again, const struct ul_node *reader, uint32_t input,
                      uint32_t place, struct ul_maps *maps)
{
    const struct ul_graph *graph = again->graph;
    ul_value_id id = reader->inputs[input];
    if (id == UL_NONE || id >= again->known_count || again->is_operand[id])
        return false;
    const struct ul_value *value = &graph->values[id];
    if (value->kind != UL_VALUE_NODE || (value->flags & UL_VALUE_BACKWARD) != 0)
        return false;
    const struct ul_node *node = &graph->nodes[value->producer];
    return node->parent == 0 && ul_maps_is_map(node) &&
           ul_type_elements(&value->type) ==
               ul_type_elements(&graph->values[reader->outputs[0]].type) &&
           ul_maps_find(graph, id, maps) && again->last_reader[maps->large] >= place;
}

static void find_readers(struct again *again, const struct ul_node_list *order)
{
    for (uint32_t n = 0; n < order->count; n++) {
        const struct ul_node *node = &again->graph->nodes[order->nodes[n]];
        for (uint32_t i = 0; ul_edit_is_backward(again->graph, node) && i < node->input_count;
             i++) {
            if (node->inputs[i] == UL_NONE)
                continue;
            again->last_reader[node->inputs[i]] = n;
            again->is_operand[node->inputs[i]] |= !ul_maps_is_map(node);
        }
    }
}

enum ul_status ul_pass_again(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    const struct ul_node_list order = ul_edit_all_nodes(graph, pass->scratch);
    struct again again = {.graph = graph, .known_count = graph->value_count};
    again.last_reader = UL_NEW_ARRAY(pass->scratch, uint32_t, graph->value_count);
    again.is_operand = UL_NEW_ARRAY(pass->scratch, bool, graph->value_count);
    find_readers(&again, &order);
    for (uint32_t n = 0; n < order.count; n++) {
        ul_node_id id = order.nodes[n];
        struct ul_maps maps;
        if (graph->nodes[id].parent != 0 || !ul_edit_is_backward(graph, &graph->nodes[id]) ||
            !ul_maps_is_map(&graph->nodes[id]))
            continue;
        for (uint32_t i = 0; i < graph->nodes[id].input_count; i++) {
            if (!find_maps(&again, &graph->nodes[id], i, n, &maps))
                continue;
            ul_value_id made = ul_maps_copy(graph, &maps, id);
            graph->nodes[id].inputs[i] = made;
        }
    }
    return UL_OK;
}
