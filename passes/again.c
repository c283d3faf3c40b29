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
#include "passes/passes_internal.h"

#include <string.h>

enum {
    MAX_MAPS = 4, /* that are computed again for one operand */
    SMALL = 16    /* a value is small that is so much smaller than the result */
};

struct again {
    struct ul_graph *graph;
    uint32_t known_count;  /* values that stood when the pass began */
    uint32_t *last_reader; /* per value: place of the last node of the backward pass; 0: none */
    bool *is_operand;      /* per value: nodes of the backward pass that are no maps read it */
};

/* The maps behind an operand, each behind what it reads. */
struct maps {
    ul_node_id nodes[MAX_MAPS];
    uint32_t count;
    ul_value_id large; /* what they are made of; UL_NONE: not found yet */
};

static bool is_map(const struct ul_node *node)
{
    const uint32_t other = UL_OP_COSTLY_MAP | UL_OP_RANDOM | UL_OP_CONTROL;
    uint32_t flags = ul_op_get(node->op)->flags;
    return (flags & UL_OP_ELEMENTWISE) != 0 && (flags & other) == 0 && node->output_count == 1 &&
           ul_op_get(node->op)->view == NULL;
}

static bool is_constant(const struct ul_value *value)
{
    return value->kind == UL_VALUE_WEIGHT;
}

static bool is_listed(const struct maps *maps, ul_node_id map)
{
    for (uint32_t i = 0; i < maps->count; i++)
        if (maps->nodes[i] == map)
            return true;
    return false;
}

/* Adds the maps that make `value`, which the node at `place` reads. `depth`: of them one behind the
 * other. */
static bool add_maps(const struct again *again, struct maps *maps, ul_value_id id, uint32_t place,
                     uint32_t depth)
{
    const struct ul_graph *graph = again->graph;
    const struct ul_value *value = &graph->values[id];
    const struct ul_node *node = &graph->nodes[value->producer];
    uint64_t elements = ul_type_elements(&value->type);
    UL_ASSERT(value->kind == UL_VALUE_NODE && is_map(node));
    if (is_listed(maps, value->producer))
        return true;
    if (depth == MAX_MAPS)
        return false;
    for (uint32_t i = 0; i < node->input_count; i++) {
        ul_value_id input = node->inputs[i];
        if (input == UL_NONE || is_constant(&graph->values[input]))
            continue;
        const struct ul_value *read = &graph->values[input];
        bool is_small = ul_type_elements(&read->type) <= elements / SMALL;
        bool is_made = read->kind == UL_VALUE_NODE && read->donor == UL_NONE;
        if (!is_small && is_made && is_map(&graph->nodes[read->producer])) {
            if (!add_maps(again, maps, input, place, depth + 1))
                return false;
            continue;
        }
        if (!is_small && maps->large != UL_NONE && maps->large != input)
            return false;
        if (!is_small)
            maps->large = input;
        if (!is_small && again->last_reader[input] < place)
            return false;
    }
    if (maps->count == MAX_MAPS)
        return false;
    maps->nodes[maps->count++] = value->producer;
    return true;
}

/* An operand that is worth its own maps. */
static bool find_maps(const struct again *again, const struct ul_node *reader, uint32_t input,
                      uint32_t place, struct maps *maps)
{
    const struct ul_graph *graph = again->graph;
    ul_value_id id = reader->inputs[input];
    *maps = (struct maps){.large = UL_NONE};
    if (id == UL_NONE || id >= again->known_count || again->is_operand[id])
        return false;
    const struct ul_value *value = &graph->values[id];
    if (value->kind != UL_VALUE_NODE || (value->flags & UL_VALUE_BACKWARD) != 0)
        return false;
    const struct ul_node *node = &graph->nodes[value->producer];
    return node->parent == 0 && is_map(node) &&
           ul_type_elements(&value->type) ==
               ul_type_elements(&graph->values[reader->outputs[0]].type) &&
           add_maps(again, maps, id, place, 0) && maps->large != UL_NONE;
}

/* Copies of the maps in front of the reader; gives the last one's result. */
static ul_value_id copy_maps(struct ul_graph *graph, const struct maps *maps, ul_node_id reader)
{
    struct ul_build build = ul_build_before(graph, reader);
    ul_value_id made[MAX_MAPS];
    for (uint32_t m = 0; m < maps->count; m++) {
        const struct ul_node old = graph->nodes[maps->nodes[m]]; /* the array moves */
        ul_value_id *inputs =
            ul_arena_copy(graph->arena, old.inputs, old.input_count * sizeof *inputs);
        for (uint32_t i = 0; i < old.input_count; i++)
            for (uint32_t k = 0; k < m; k++)
                if (inputs[i] == graph->nodes[maps->nodes[k]].outputs[0])
                    inputs[i] = made[k];
        made[m] = ul_build_value(&build, old.op, inputs, old.input_count,
                                 &graph->values[old.outputs[0]].type);
        graph->values[made[m]].flags |= UL_VALUE_BACKWARD;
        struct ul_node *copy = &graph->nodes[graph->values[made[m]].producer];
        copy->attrs = old.attrs;
        copy->attr_count = old.attr_count;
        copy->source = graph->nodes[reader].source;
    }
    return made[maps->count - 1];
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
            again->is_operand[node->inputs[i]] |= !is_map(node);
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
        struct maps maps;
        if (graph->nodes[id].parent != 0 || !ul_edit_is_backward(graph, &graph->nodes[id]) ||
            !is_map(&graph->nodes[id]))
            continue;
        for (uint32_t i = 0; i < graph->nodes[id].input_count; i++) {
            if (!find_maps(&again, &graph->nodes[id], i, n, &maps))
                continue;
            ul_value_id made = copy_maps(graph, &maps, id);
            graph->nodes[id].inputs[i] = made;
        }
    }
    return UL_OK;
}
