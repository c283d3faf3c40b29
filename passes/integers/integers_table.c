/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of one 8-bit value as tables of 256.
 *
 * What is elementwise between one Dequantize and the Quantize, constants beside it, depends on one
 * integer: it is computed for all 256 of them, by the very operators, and looked up. So are
 * integers that change their scale, where machines look up vectors of bytes: three times as fast. A
 * table of what was looked up is a table of what that was made from:
 *
 *      x -> Lookup -> Dequantize -> Mul -> Quantize      x -> Lookup
 *       `-> Dequantize -----------' */
#include "ir/infer.h"
#include "ir/op.h"
#include "ir/op_names.h"
#include "passes/integers/integers_internal.h"

enum { TABLE_SIZE = 256, MAX_VISITS = 256 }; /* a value that is read twice counts twice */

/* ---- tables ---- */

/* The only integers that `value` depends on, elementwise; counts the values that it looks at. */
static bool find_source(const struct ul_integers *integers, ul_value_id value, ul_value_id *source,
                        uint32_t *visits)
{
    double number;
    struct ul_scaled x;
    if (++*visits > MAX_VISITS)
        return false;
    if (value == UL_NONE || ul_graph_get_number(integers->graph, value, &number))
        return true;
    const struct ul_node *node = ul_integers_maker(integers, value);
    if (node == NULL)
        return false;
    if (ul_integers_find(integers, value, &x) && x.count == 1) {
        const struct ul_node *maker = ul_integers_maker(integers, x.x);
        ul_value_id from = maker != NULL && maker->op == UL_OP_Lookup ? maker->inputs[0] : x.x;
        bool fits = ul_integers_is_8bit(integers, x.x) && (*source == UL_NONE || *source == from);
        *source = from;
        return fits;
    }
    const uint32_t flags = UL_OP_ELEMENTWISE | UL_OP_RANDOM;
    if ((ul_op_get(node->op)->flags & flags) != UL_OP_ELEMENTWISE || node->output_count != 1)
        return false;
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (!find_source(integers, node->inputs[i], source, visits))
            return false;
    }
    return true;
}

/* `value` for each of the source's values; UL_NONE where an operator is not folded. */
static ul_value_id tabulate(struct ul_integers *integers, ul_value_id value, ul_value_id source,
                            ul_value_id all)
{
    struct ul_graph *graph = integers->graph;
    double number;
    if (value == source)
        return all;
    if (value == UL_NONE)
        return UL_NONE;
    if (ul_graph_get_number(graph, value, &number))
        return ul_edit_add_numbers(graph, graph->values[value].name,
                                   graph->values[value].type.dtype, &number, 1, 0);
    if (ul_graph_get_constant(graph, value) != NULL)
        return value; /* another table */
    const struct ul_node node = *ul_integers_maker(integers, value);
    ul_value_id *inputs =
        ul_arena_copy(integers->pass->scratch, node.inputs, node.input_count * sizeof *inputs);
    for (uint32_t i = 0; i < node.input_count; i++) {
        inputs[i] = tabulate(integers, node.inputs[i], source, all);
        if (inputs[i] == UL_NONE && node.inputs[i] != UL_NONE)
            return UL_NONE;
    }
    ul_value_id made = ul_integers_add(integers, node.op, inputs, node.input_count, &node);
    ul_node_id id = graph->values[made].producer;
    if (!ul_node_fold(graph, id, integers->pass->scratch))
        return UL_NONE;
    ul_edit_make_weight(graph, made);
    ul_graph_remove_node(graph, id);
    return made;
}

/* 8-bit integers that are rescaled by one factor, as where networks concatenate. */
static ul_value_id find_rescaled(const struct ul_integers *integers, ul_node_id id)
{
    enum { X = 1, OPERANDS = 4 };
    const struct ul_node *node = &integers->graph->nodes[id];
    double number;
    if (node->op != UL_OP_Rescale || node->input_count > OPERANDS ||
        !ul_integers_is_8bit(integers, node->inputs[X]))
        return UL_NONE;
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (i != X && node->inputs[i] != UL_NONE &&
            !ul_graph_get_number(integers->graph, node->inputs[i], &number))
            return UL_NONE;
    }
    return node->inputs[X];
}

bool ul_integers_table(struct ul_integers *integers, ul_node_id id)
{
    struct ul_graph *graph = integers->graph;
    ul_value_id result = graph->nodes[id].outputs[0], source = find_rescaled(integers, id);
    uint32_t visits = 0;
    if (!ul_integers_is_8bit(integers, result) ||
        (source == UL_NONE && !find_source(integers, result, &source, &visits)) ||
        source == UL_NONE || ul_graph_get_constant(graph, source) != NULL ||
        ul_type_elements(&graph->values[source].type) !=
            ul_type_elements(&graph->values[result].type) ||
        graph->values[source].type.rank != graph->values[result].type.rank)
        return false;
    enum ul_dtype dtype = graph->values[source].type.dtype;
    double values[TABLE_SIZE];
    for (uint32_t i = 0; i < TABLE_SIZE; i++)
        values[i] = (double)i - (dtype == UL_I8 ? TABLE_SIZE / 2 : 0);
    ul_value_id all =
        ul_edit_add_numbers(graph, ul_arena_printf(graph->arena, "%s.all", integers->build.name),
                            dtype, values, TABLE_SIZE, 1);
    ul_value_id table = tabulate(integers, result, source, all);
    if (table == UL_NONE || graph->values[table].type.rank != 1)
        return false;
    const ul_value_id inputs[2] = {source, table};
    ul_integers_become(integers, id, UL_OP_Lookup, inputs, 2, NULL);
    return true;
}
