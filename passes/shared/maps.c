/* SPDX-License-Identifier: Apache-2.0 */
/* Cheap maps that lead to a value, to be computed again from what they read. */
#include "passes/shared/maps.h"
#include "ir/op.h"

#include <string.h>

enum { SMALL = 16 }; /* a value is small if it is smaller than the result by that factor */

bool ul_maps_is_map(const struct ul_node *node)
{
    const uint32_t other = UL_OP_COSTLY_MAP | UL_OP_RANDOM | UL_OP_CONTROL;
    uint32_t flags = ul_op_get(node->op)->flags;
    return (flags & UL_OP_ELEMENTWISE) != 0 && (flags & other) == 0 && node->output_count == 1 &&
           ul_op_get(node->op)->view == NULL;
}

/* The last operation of the expression is no product: nothing that follows is fused with one. */
static bool ends_in_no_product(const char *text)
{
    uint32_t depth = 0;
    bool adds = false;
    if (strcmp(text, "a") == 0 || strcmp(text, "-a") == 0)
        return false; /* it hands on what may be a product */
    if (strchr(text, '*') == NULL)
        return true;
    for (const char *at = text; *at != '\0'; at++) {
        depth += *at == '(';
        depth -= *at == ')';
        if (*at == '?' || *at == '[')
            return false; /* branches and attributes are not examined */
        adds = adds || (depth == 0 && at > text && (*at == '+' || *at == '-') && at[-1] == ' ');
    }
    return adds;
}

bool ul_maps_is_closed(const struct ul_node *node)
{
    const struct ul_op_info *row = ul_op_get(node->op);
    if (row->expression != NULL)
        return ends_in_no_product(row->expression);
    return row->monotone != NULL && row->monotone[0] == '\0'; /* one of its operands */
}

static bool is_constant(const struct ul_value *value)
{
    return value->kind == UL_VALUE_WEIGHT;
}

static bool is_listed(const struct ul_maps *maps, ul_node_id map)
{
    for (uint32_t i = 0; i < maps->count; i++)
        if (maps->nodes[i] == map)
            return true;
    return false;
}

/* Adds the maps that make `id`. `depth`: how many of them are one after the other. */
static bool add_maps(const struct ul_graph *graph, struct ul_maps *maps, ul_value_id id,
                     uint32_t depth)
{
    const struct ul_value *value = &graph->values[id];
    const struct ul_node *node = &graph->nodes[value->producer];
    uint64_t elements = ul_type_elements(&value->type);
    UL_ASSERT(value->kind == UL_VALUE_NODE && ul_maps_is_map(node));
    if (is_listed(maps, value->producer))
        return true;
    if (depth == UL_MAPS_MAX)
        return false;
    for (uint32_t i = 0; i < node->input_count; i++) {
        ul_value_id input = node->inputs[i];
        if (input == UL_NONE || is_constant(&graph->values[input]))
            continue;
        const struct ul_value *read = &graph->values[input];
        bool is_small = ul_type_elements(&read->type) <= elements / SMALL;
        bool is_made = read->kind == UL_VALUE_NODE && read->donor == UL_NONE;
        if (!is_small && is_made && ul_maps_is_map(&graph->nodes[read->producer])) {
            if (!add_maps(graph, maps, input, depth + 1))
                return false;
            continue;
        }
        if (!is_small && maps->large != UL_NONE && maps->large != input)
            return false;
        if (!is_small)
            maps->large = input;
    }
    if (maps->count == UL_MAPS_MAX)
        return false;
    maps->nodes[maps->count++] = value->producer;
    return true;
}

bool ul_maps_find(const struct ul_graph *graph, ul_value_id value, struct ul_maps *maps)
{
    *maps = (struct ul_maps){.large = UL_NONE};
    return add_maps(graph, maps, value, 0) && maps->large != UL_NONE;
}

ul_value_id ul_maps_copy(struct ul_graph *graph, const struct ul_maps *maps, ul_node_id reader)
{
    struct ul_build build = ul_build_before(graph, reader);
    ul_value_id made[UL_MAPS_MAX];
    UL_ASSERT(maps->count > 0 && maps->count <= UL_MAPS_MAX);
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
