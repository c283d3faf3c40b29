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
 * Method: an elementwise node of the backward pass gets its own copies of the cheap maps that make
 * y, from one value of y's size that the backward pass reads then or later, and from small ones
 * (statistics and biases along channels). Fusing makes one kernel of the copies and the node, which
 * loads c instead of y. Not where a product of the backward pass, or another node that is no map,
 * reads y as well: it lives until then anyway.
 *
 * Where such a node's result is summed, and all that reads it reads c as well, each of them gets a
 * node of its own, too: it is made as it is loaded, twice, and neither stored nor loaded.
 *
 *      dn = y <= 0 ? 0 : g                           sums of (y' <= 0 ? 0 : g) and c
 *      sums of dn and c                              dc = rule of Normalize (y'' <= 0 ? 0 : g, c,
 *      dc = rule of Normalize (dn, c, sums)                                  sums)
 *
 * Left undone: maps of several large values (residual sums), which need not live at the same time.
 */
#include "ir/op.h"
#include "passes/shared/maps.h"

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
    return ul_graph_is_root(graph, node->parent) && ul_maps_is_map(node) &&
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

enum { MAX_LOADERS = 2 };

static bool has_input(const struct ul_node *node, ul_value_id value)
{
    for (uint32_t i = 0; i < node->input_count; i++)
        if (node->inputs[i] == value)
            return true;
    return false;
}

/* Finds the nodes that read what is made at `place`. Returns their number; or 0 where fewer than
 * two read it, where one of them cannot load it as it is made or does not read `large` too, or
 * where none adds it up. */
static uint32_t find_loaders(const struct again *again, const struct ul_node_list *order,
                             uint32_t place, ul_value_id large, ul_node_id loaders[MAX_LOADERS])
{
    const struct ul_graph *graph = again->graph;
    ul_value_id value = graph->nodes[order->nodes[place]].outputs[0];
    uint32_t count = 0;
    bool any_sums = false;
    for (uint32_t p = place + 1; p <= again->last_reader[value]; p++) {
        const struct ul_node *node = &graph->nodes[order->nodes[p]];
        bool sums = (ul_op_get(node->op)->flags & UL_OP_LOADS_ONCE) != 0;
        if (!has_input(node, value))
            continue;
        if (count == MAX_LOADERS || !ul_graph_is_root(graph, node->parent) ||
            !(sums || ul_maps_is_map(node)) || !has_input(node, large))
            return 0;
        loaders[count++] = order->nodes[p];
        any_sums = any_sums || sums;
    }
    return any_sums && count > 1 ? count : 0;
}

/* Whether the node has one more operand of its size, besides weights, which nothing reads later. If
 * a copy of the node runs later, that operand lives as long as the result would have, in as many
 * bytes. */
static bool ends_operands(const struct again *again, const struct ul_node *node, uint32_t input,
                          uint32_t place)
{
    const struct ul_graph *graph = again->graph;
    const struct ul_type *type = &graph->values[node->outputs[0]].type;
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->input_count; i++) {
        ul_value_id id = node->inputs[i];
        if (i == input || id == UL_NONE || graph->values[id].kind == UL_VALUE_WEIGHT)
            continue;
        if (!ul_type_same_dims(&graph->values[id].type, type) || id >= again->known_count ||
            again->last_reader[id] != place)
            return false;
        count++;
    }
    return count == 1;
}

static void replace_input(struct ul_graph *graph, ul_node_id id, ul_value_id old, ul_value_id now)
{
    struct ul_node *node = &graph->nodes[id];
    for (uint32_t i = 0; i < node->input_count; i++)
        if (node->inputs[i] == old)
            node->inputs[i] = now;
}

/* Gives each reader of the node at `place` a node of its own. */
static void repeat(const struct again *again, const struct ul_node_list *order, uint32_t place)
{
    struct ul_graph *graph = again->graph;
    ul_node_id id = order->nodes[place], loaders[MAX_LOADERS];
    const struct ul_node node = graph->nodes[id];
    struct ul_maps maps;
    for (uint32_t i = 0; i < node.input_count; i++) {
        ul_value_id y = node.inputs[i];
        if (y == UL_NONE || y >= again->known_count || graph->values[y].kind != UL_VALUE_NODE ||
            (graph->values[y].flags & UL_VALUE_BACKWARD) != 0 ||
            !ul_maps_is_map(&graph->nodes[graph->values[y].producer]) ||
            !ul_maps_find(graph, y, &maps) || maps.count == UL_MAPS_MAX ||
            !ends_operands(again, &node, i, place))
            continue;
        uint32_t count = find_loaders(again, order, place, maps.large, loaders);
        if (count == 0 || ul_graph_is_output(graph, node.outputs[0]))
            continue;
        for (uint32_t k = 1; k < count; k++) {
            struct ul_maps all = maps;
            all.nodes[all.count++] = id;
            replace_input(graph, loaders[k], node.outputs[0],
                          ul_maps_copy(graph, &all, loaders[k]));
        }
        ul_value_id made = ul_maps_copy(graph, &maps, id);
        graph->nodes[id].inputs[i] = made;
        return;
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
        if (!ul_graph_is_root(graph, graph->nodes[id].parent) ||
            !ul_edit_is_backward(graph, &graph->nodes[id]) || !ul_maps_is_map(&graph->nodes[id]))
            continue;
        repeat(&again, &order, n);
        for (uint32_t i = 0; i < graph->nodes[id].input_count; i++) {
            if (!find_maps(&again, &graph->nodes[id], i, n, &maps))
                continue;
            ul_value_id made = ul_maps_copy(graph, &maps, id);
            graph->nodes[id].inputs[i] = made;
        }
    }
    return UL_OK;
}
