/* SPDX-License-Identifier: Apache-2.0 */
/* Constants of less than 8 bits stay packed where they can be.
 *
 * Problem: an element of 2 or 4 bits takes a byte of its own in the buffer, so that a kernel finds
 * it at an index. Products and tables read theirs packed by operators of their own (nbits.c); most
 * other readers of such a constant are maps, after which a convolution may come. Method: after
 * fusion, when it is known which kernel a reader is part of, the constant becomes the bytes that
 * ONNX stores, and each of its readers has an Unpack in its own group, which the kernel computes as
 * it loads:
 *
 *      [ Dequantize(w) + Mul ]             ->   [ Unpack(w') + Dequantize + Mul ]
 *      [ Cast(w) + ConvInteger ]           ->   [ Unpack(w') + Cast + ConvInteger ]
 *
 * where an operand of a contraction is read packed itself (struct ul_operand).
 *
 * Left undone: elements of 6 bits; floats of 4 bits that lead to a contraction in the same kernel;
 * what is read by an operator that is no map; constants with views, and those at the edges of
 * blocks: these have a byte each, as the row of weights by type says. */
#include "ir/op.h"
#include "ir/op_names.h"
#include "ir/view.h"
#include "passes/passes_internal.h"

struct packed {
    struct ul_graph *graph;
    struct ul_node_list nodes;
    uint32_t *mark;       /* per value: the reader that it depends on, as a place in `nodes` */
    uint32_t known_count; /* of values; later ones are made by an Unpack */
    uint32_t next_group;  /* nothing is in it yet */
};

static void find_groups(struct packed *packed, struct ul_arena *scratch)
{
    const struct ul_graph *graph = packed->graph;
    packed->known_count = graph->value_count;
    packed->mark = UL_NEW_ARRAY(scratch, uint32_t, graph->value_count);
    for (ul_value_id v = 0; v < graph->value_count; v++)
        packed->mark[v] = UL_NONE;
    for (uint32_t n = 0; n < packed->nodes.count; n++) {
        uint32_t group = graph->nodes[packed->nodes.nodes[n]].group;
        UL_ASSERT(group == UL_NONE || group < graph->node_count);
        if (group != UL_NONE && group >= packed->next_group)
            packed->next_group = group + 1;
    }
}

/* Whether the anchor of its kernel reads what depends on the node at `first`. The nodes of a group
 * are side by side. */
static bool leads_to_anchor(const struct packed *packed, uint32_t first)
{
    const struct ul_graph *graph = packed->graph;
    uint32_t group = graph->nodes[packed->nodes.nodes[first]].group;
    for (uint32_t n = first; group != UL_NONE && n < packed->nodes.count; n++) {
        const struct ul_node *node = &graph->nodes[packed->nodes.nodes[n]];
        bool hangs = n == first;
        if (node->group != group)
            return false;
        for (uint32_t i = 0; i < node->input_count; i++)
            hangs = hangs || (node->inputs[i] < packed->known_count &&
                              packed->mark[node->inputs[i]] == first);
        if (hangs && !ul_op_is_map(node->op))
            return true;
        for (uint32_t k = 0; hangs && k < node->output_count; k++) {
            if (node->outputs[k] != UL_NONE)
                packed->mark[node->outputs[k]] = first;
        }
    }
    return false;
}

static bool reads(const struct ul_node *node, ul_value_id value)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] == value)
            return true;
    }
    return false;
}

/* Whether all its readers are maps, none of which makes an anchor's operand in the same kernel,
 * unless that is of integers. */
static bool is_read_by_maps(const struct packed *packed, ul_value_id value)
{
    const struct ul_graph *graph = packed->graph;
    bool is_integer = ul_dtype_get(graph->values[value].type.dtype)->is_integer;
    for (uint32_t n = 0; n < packed->nodes.count; n++) {
        ul_node_id id = packed->nodes.nodes[n];
        const struct ul_node *node = &graph->nodes[id];
        if (reads(node, value) && (!ul_op_is_map(node->op) || ul_node_is_view(graph, id) ||
                                   (!is_integer && leads_to_anchor(packed, n))))
            return false;
    }
    return true;
}

static bool is_edge(const struct ul_graph *graph, ul_value_id value)
{
    for (uint32_t b = 0; b < graph->block_count; b++) {
        for (uint32_t i = 0; i < graph->blocks[b].output_count; i++) {
            if (graph->blocks[b].outputs[i] == value)
                return true;
        }
    }
    return false;
}

static bool has_views(const struct ul_graph *graph, ul_value_id value)
{
    for (ul_value_id v = 0; v < graph->value_count; v++) {
        if (v != value && graph->values[v].kind != UL_VALUE_DEAD &&
            graph->values[v].view.base == value)
            return true;
    }
    return false;
}

static bool can_pack(const struct packed *packed, ul_value_id value)
{
    const struct ul_graph *graph = packed->graph;
    const struct ul_tensor *tensor = ul_graph_get_constant(graph, value);
    uint32_t bits = tensor == NULL ? 8 : ul_dtype_get(tensor->type.dtype)->bits;
    if (bits >= 8 || 8 % bits != 0 || ul_edit_weight_bytes(graph, value) == 0)
        return false;
    return !is_edge(graph, value) && !has_views(graph, value) && is_read_by_maps(packed, value);
}

/* Adds an Unpack in front of the node, in its group, which exists from now on. */
static ul_value_id add_unpack(struct packed *packed, ul_node_id reader, ul_value_id value,
                              const struct ul_type *type)
{
    struct ul_graph *graph = packed->graph;
    struct ul_build build = ul_build_before(graph, reader);
    ul_value_id made = ul_build_value(&build, UL_OP_Unpack, &value, 1, type);
    ul_node_id unpack = graph->values[made].producer;
    ul_node_set_int(graph, unpack, "to", (int64_t)type->dtype);
    ul_node_set_ints(graph, unpack, "shape", type->dims, type->rank);
    graph->values[made].view = ul_view_own(graph, made);
    if (graph->nodes[reader].group == UL_NONE)
        graph->nodes[reader].group = packed->next_group++;
    graph->nodes[unpack].group = graph->nodes[reader].group;
    return made;
}

static void pack(struct packed *packed, ul_value_id value)
{
    struct ul_graph *graph = packed->graph;
    const struct ul_tensor *tensor = graph->values[value].tensor;
    const struct ul_type type = tensor->type;
    int64_t size = (int64_t)ul_type_packed_bytes(&type);
    struct ul_tensor *bytes = UL_NEW(graph->arena, struct ul_tensor);
    unsigned char *data = ul_arena_alloc(graph->arena, (uint64_t)size);
    ul_tensor_pack(tensor, data);
    *bytes = (struct ul_tensor){.type = ul_type_make(UL_U8, 1, &size), .data = data};
    graph->values[value].tensor = bytes;
    graph->values[value].type = bytes->type;
    graph->values[value].view = ul_view_own(graph, value);
    for (uint32_t n = 0; n < packed->nodes.count; n++) {
        ul_node_id id = packed->nodes.nodes[n];
        if (!reads(&graph->nodes[id], value))
            continue;
        ul_value_id made = add_unpack(packed, id, value, &type);
        for (uint32_t i = 0; i < graph->nodes[id].input_count; i++) {
            if (graph->nodes[id].inputs[i] == value)
                graph->nodes[id].inputs[i] = made;
        }
    }
}

enum ul_status ul_pass_packed(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    struct packed packed = {.graph = graph, .nodes = ul_edit_all_nodes(graph, pass->scratch)};
    find_groups(&packed, pass->scratch);
    for (ul_value_id value = 0; value < packed.known_count; value++) {
        if (can_pack(&packed, value))
            pack(&packed, value);
    }
    return UL_OK;
}
