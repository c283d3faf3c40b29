/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise nodes after a node that is rewritten, moved onto its replacement.
 *
 * Problem: the replacement may hold its results in another order, which movements after it put
 * right; an elementwise node after these is another pass over memory. Method: nodes whose other
 * operands are constants of one element, or of one for each channel, compute the same on the
 * replacement, in front of the movements, where they fuse with it. */
#include "ir/op.h"
#include "passes/passes_internal.h"

struct ul_followers ul_followers_new(const struct ul_graph *graph, struct ul_arena *arena,
                                     ul_followers_repeat_fn *repeat, void *context)
{
    return (struct ul_followers){.uses = ul_graph_count_uses(graph, arena),
                                 .readers = ul_edit_find_readers(graph, arena),
                                 .known_count = graph->value_count,
                                 .repeat = repeat,
                                 .context = context};
}

/* The constant has one number for each channel of results [n, channels, ...]. */
static bool is_per_channel(const struct ul_followers *followers, const struct ul_type *results,
                           const struct ul_type *type)
{
    uint32_t channel = results->rank - 1; /* from the end: axis 1 */
    return type->rank >= channel && type->rank <= results->rank &&
           ul_type_elements(type) == (uint64_t)followers->channels &&
           type->dims[type->rank - channel] == followers->channels;
}

/* The node that alone reads `value` and can move, or UL_NONE. Random numbers depend on coordinates,
 * so they cannot. */
static ul_node_id find_next(const struct ul_followers *followers, const struct ul_build *build,
                            ul_value_id value)
{
    const struct ul_graph *graph = build->graph;
    if (value >= followers->known_count || followers->uses[value] != 1 ||
        ul_graph_is_output(graph, value))
        return UL_NONE;
    ul_node_id id = followers->readers[value];
    const struct ul_node *node = id == UL_NONE ? NULL : &graph->nodes[id];
    const uint32_t flags = UL_OP_ELEMENTWISE | UL_OP_RANDOM;
    if (node == NULL || (ul_op_get(node->op)->flags & flags) != UL_OP_ELEMENTWISE ||
        node->parent != build->block || node->output_count != 1 ||
        graph->values[node->outputs[0]].donor != UL_NONE ||
        !ul_type_equal(&graph->values[value].type, &graph->values[node->outputs[0]].type))
        return UL_NONE;
    for (uint32_t i = 0; i < node->input_count; i++) {
        ul_value_id input = node->inputs[i];
        const struct ul_tensor *tensor = ul_graph_get_constant(graph, input);
        if (input == UL_NONE || input == value)
            continue;
        bool single = tensor != NULL && ul_type_elements(&tensor->type) == 1;
        if (tensor == NULL || tensor->type.dtype != UL_F32 ||
            (!single && !is_per_channel(followers, &graph->values[value].type, &tensor->type)))
            return UL_NONE;
    }
    return id;
}

/* Adds the same node on the replacement. */
static ul_value_id move(const struct ul_followers *followers, struct ul_build *build, ul_node_id id,
                        ul_value_id from, ul_value_id made)
{
    struct ul_graph *graph = build->graph;
    const struct ul_type type = graph->values[made].type;
    ul_node_id moved = ul_build_like(build, id, graph->nodes[id].inputs);
    for (uint32_t i = 0; i < graph->nodes[moved].input_count; i++) {
        ul_value_id input = graph->nodes[moved].inputs[i];
        if (input == from)
            input = made;
        else if (input != UL_NONE && ul_type_elements(&graph->values[input].type) > 1)
            input = followers->repeat(followers->context, input);
        graph->nodes[moved].inputs[i] = input;
    }
    ul_value_id output = graph->nodes[moved].outputs[0];
    graph->values[output].type = type;
    return output;
}

ul_value_id ul_followers_move(const struct ul_followers *followers, struct ul_build *build,
                              ul_value_id *last, ul_value_id made)
{
    UL_ASSERT(followers->channels > 0);
    for (ul_node_id next = find_next(followers, build, *last); next != UL_NONE;
         next = find_next(followers, build, *last)) {
        made = move(followers, build, next, *last, made);
        *last = build->graph->nodes[next].outputs[0];
    }
    return made;
}
