/* SPDX-License-Identifier: Apache-2.0 */
/* Scans along other axes than the first.
 *
 * Problem: a program takes the slices of a scanned value one after the other, so they must lie one
 * after the other. Method: Transposes around the node; those in front come before the body is
 * inferred, the others after it, when the rank of the slices is known:
 *
 *      s -> Transpose -> Scan along axis 0 -> Transpose -> y
 *
 * Left undone: taking slices with strides, which would spare the copies. */
#include "ir/op_names.h"
#include "passes/passes_internal.h"

/* The axis of value `index` of a list that may be absent; false when it is out of range. */
static bool axis_of(const struct ul_node *node, const char *attribute, uint32_t index,
                    uint32_t rank, uint32_t *axis)
{
    uint32_t count;
    const int64_t *axes = ul_node_get_ints(node, attribute, &count);
    *axis = 0;
    if (axes == NULL)
        return true;
    if (index >= count || axes[index] < -(int64_t)rank || axes[index] >= (int64_t)rank)
        return false;
    *axis = (uint32_t)(axes[index] < 0 ? axes[index] + (int64_t)rank : axes[index]);
    return true;
}

/* A Transpose that moves dimension `from` to place `to`. */
static ul_node_id transpose(struct ul_build *build, ul_value_id value, uint32_t rank, uint32_t from,
                            uint32_t to)
{
    int64_t perm[UL_LIMIT_RANK];
    UL_ASSERT(rank <= UL_LIMIT_RANK && from < rank && to < rank);
    ul_node_id id = ul_build_node(build, UL_OP_Transpose, &value, 1, 1);
    uint32_t next = 0;
    for (uint32_t d = 0; d < rank; d++) {
        next += next == from;
        perm[d] = d == to ? from : next++;
    }
    ul_node_set_ints(build->graph, id, "perm", perm, rank);
    return id;
}

bool ul_scan_axes_to_front(struct ul_graph *graph, ul_block_id block, uint32_t at, bool *changed)
{
    ul_node_id id = graph->blocks[block].nodes[at];
    struct ul_build build = ul_build_at(graph, block, at, graph->nodes[id].name);
    uint32_t scanned = (uint32_t)ul_node_get_int(&graph->nodes[id], "num_scan_inputs", 0);
    uint32_t first = graph->nodes[id].input_count - scanned;
    for (uint32_t i = 0; i < scanned; i++) {
        ul_value_id input = graph->nodes[id].inputs[first + i];
        uint32_t axis;
        uint32_t rank = input == UL_NONE ? 0 : graph->values[input].type.rank;
        if (!axis_of(&graph->nodes[id], "scan_input_axes", i, rank, &axis))
            return false;
        if (axis == 0)
            continue;
        ul_node_id moved = transpose(&build, input, rank, axis, 0);
        graph->nodes[id].inputs[first + i] = graph->nodes[moved].outputs[0];
        *changed = true;
    }
    ul_node_remove_attr(graph, id, "scan_input_axes");
    return true;
}

bool ul_scan_axes_to_place(struct ul_graph *graph, ul_block_id block, uint32_t at, bool *changed)
{
    ul_node_id id = graph->blocks[block].nodes[at];
    uint32_t scanned = (uint32_t)ul_node_get_int(&graph->nodes[id], "num_scan_inputs", 0);
    uint32_t first = graph->nodes[id].input_count - scanned;
    for (uint32_t i = first; i < graph->nodes[id].output_count; i++) {
        ul_value_id output = graph->nodes[id].outputs[i];
        uint32_t axis;
        uint32_t rank = graph->values[output].type.rank;
        if (!axis_of(&graph->nodes[id], "scan_output_axes", i - first, rank, &axis))
            return false;
        if (axis == 0)
            continue;
        /* The Transpose makes the value that all know; the Scan gets the other. */
        struct ul_build build = ul_build_at(graph, block, at + 1, graph->nodes[id].name);
        ul_node_id moved = transpose(&build, output, rank, 0, axis);
        ul_value_id stacked = graph->nodes[moved].outputs[0];
        graph->values[stacked].type = graph->values[output].type;
        graph->nodes[moved].inputs[0] = stacked;
        ul_graph_exchange(graph, output, stacked);
        *changed = true;
    }
    ul_node_remove_attr(graph, id, "scan_output_axes");
    return true;
}
