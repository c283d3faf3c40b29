/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the parts of an axis, which fill it, as the results of one Split.
 *
 *      qkv [3,S,B,E] -> Gather 0: q; Gather 1: k; Gather 2: v       qkv -> Split: q, k, v
 *      h [B,S,2E]    -> Slice 0 to E: a; Slice E to 2E: b           h   -> Split: a, b
 *
 * Problem: in the forward pass both are views. In the backward pass each Gather or Slice adds its
 * gradient to a whole tensor of zeros, so that this is written once for each part, and in f32, as
 * sums are. The gradient of a Split is a Concat, and its operands are formed in place.
 * Method: a part is recognised by the view that it would be. Left undone: parts that leave gaps or
 * overlap. */
#include "ir/build.h"
#include "ir/op.h"
#include "ir/op_names.h"
#include "ir/rewrite.h"
#include "ir/view.h"
#include "passes/passes_internal.h"
#include "passes/training/reverse.h"

#include <stdlib.h>

/* A node that gives elements [begin, end) along one axis of a value. */
struct part {
    ul_value_id whole;
    uint32_t axis;
    int64_t begin, end;
    uint32_t place; /* of the node, in execution order */
    ul_node_id node;
};

struct parts {
    struct ul_graph *graph;
    struct ul_rewrite rewrite;
    struct part *items;
    uint32_t count;
};

/* Gives the only axis along which the result of the node is shorter than its input. UL_NONE: there
 * is none, or there are several. */
static uint32_t find_axis(const struct ul_node *node, const struct ul_type *whole,
                          const struct ul_type *type)
{
    uint32_t axis = UL_NONE, count = 0;
    if (node->op == UL_OP_Gather && type->rank + 1 == whole->rank) {
        int64_t said = ul_node_get_int(node, "axis", 0);
        return (uint32_t)(said < 0 ? said + whole->rank : said);
    }
    for (uint32_t d = 0; type->rank == whole->rank && d < whole->rank; d++) {
        axis = type->dims[d] != whole->dims[d] ? d : axis;
        count += type->dims[d] != whole->dims[d];
    }
    return count == 1 ? axis : UL_NONE;
}

/* Whether the view has the strides of the whole value, in steps of one. */
static bool has_strides(const struct ul_view *view, const struct ul_type *type,
                        const struct ul_view *own, uint32_t own_rank, uint32_t axis)
{
    for (uint32_t d = 0; d < type->rank; d++) {
        uint32_t from = type->rank < own_rank && d >= axis ? d + 1 : d;
        if (type->dims[d] > 1 && view->strides[d] != own->strides[from])
            return false;
    }
    return true;
}

static bool read_part(const struct ul_graph *graph, ul_node_id id, struct part *part)
{
    const struct ul_node *node = &graph->nodes[id];
    if ((node->op != UL_OP_Gather && node->op != UL_OP_Slice) || node->inputs[0] == UL_NONE)
        return false;
    const struct ul_value *whole = &graph->values[node->inputs[0]];
    const struct ul_type *type = &graph->values[node->outputs[0]].type;
    struct ul_view own = ul_view_own(graph, node->inputs[0]), view;
    if (whole->kind != UL_VALUE_NODE || !ul_reverse_takes(whole->type.dtype) ||
        ul_type_elements(type) == 0 || !ul_op_get(node->op)->view(graph, node, 0, &own, &view))
        return false;
    uint32_t axis = find_axis(node, &whole->type, type);
    if (axis == UL_NONE || !has_strides(&view, type, &own, whole->type.rank, axis))
        return false;
    *part = (struct part){.whole = node->inputs[0], .axis = axis, .node = id};
    part->begin = (int64_t)view.offset_bytes /
                  (own.strides[axis] * (int64_t)ul_value_element_bytes(graph, part->whole));
    part->end = part->begin + (type->rank < whole->type.rank ? 1 : type->dims[axis]);
    UL_ASSERT(part->begin >= 0 && part->end <= whole->type.dims[axis]);
    return true;
}

static int compare(const void *left, const void *right)
{
    const struct part *a = left, *b = right;
    if (a->whole != b->whole)
        return a->whole < b->whole ? -1 : 1;
    if (a->axis != b->axis)
        return a->axis < b->axis ? -1 : 1;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

static void find_parts(struct parts *parts, struct ul_arena *arena)
{
    struct ul_node_list order = ul_edit_all_nodes(parts->graph, arena);
    parts->items = UL_NEW_ARRAY(arena, struct part, order.count);
    for (uint32_t n = 0; n < order.count; n++) {
        struct part *part = &parts->items[parts->count];
        if (!read_part(parts->graph, order.nodes[n], part))
            continue;
        part->place = n;
        parts->count++;
    }
    qsort(parts->items, parts->count, sizeof *parts->items, compare);
}

/* Whether the parts [first, end), all along one axis, fill that axis in order. */
static bool fills(const struct parts *parts, uint32_t first, uint32_t end)
{
    const struct ul_graph *graph = parts->graph;
    const struct part *at = &parts->items[first];
    int64_t next = 0;
    for (uint32_t i = first; i < end; i++) {
        const struct part *part = &parts->items[i];
        if (part->begin != next ||
            graph->nodes[part->node].parent != graph->nodes[at->node].parent ||
            ul_graph_is_output(graph, graph->nodes[part->node].outputs[0]))
            return false;
        next = part->end;
    }
    return end - first > 1 && next == graph->values[at->whole].type.dims[at->axis];
}

static void split(struct parts *parts, uint32_t first, uint32_t count, struct ul_arena *scratch)
{
    struct ul_graph *graph = parts->graph;
    const struct part *items = &parts->items[first], *earliest = items;
    int64_t *sizes = UL_NEW_ARRAY(scratch, int64_t, count);
    UL_ASSERT(count > 1 && items->begin == 0);
    for (uint32_t i = 0; i < count; i++) {
        sizes[i] = items[i].end - items[i].begin;
        earliest = items[i].place < earliest->place ? &items[i] : earliest;
    }
    struct ul_build build = ul_build_before(graph, earliest->node);
    const ul_value_id inputs[2] = {items->whole, ul_build_ints(graph, "sizes", count, sizes)};
    ul_node_id made = ul_build_node(&build, UL_OP_Split, inputs, 2, count);
    ul_node_set_int(graph, made, "axis", items->axis);
    for (uint32_t i = 0; i < count; i++) {
        ul_value_id part = graph->nodes[made].outputs[i];
        ul_value_id old = graph->nodes[items[i].node].outputs[0];
        const struct ul_type type = graph->values[old].type;
        graph->values[part].type = graph->values[items->whole].type;
        graph->values[part].type.dims[items->axis] = sizes[i];
        if (type.rank != graph->values[part].type.rank)
            part = ul_build_reshape(&build, part, type.rank, type.dims);
        ul_rewrite_replace(&parts->rewrite, old, part);
    }
}

enum ul_status ul_pass_parts(struct ul_pass *pass)
{
    struct parts parts = {.graph = pass->graph};
    ul_rewrite_init(&parts.rewrite, pass->graph, pass->scratch);
    find_parts(&parts, pass->scratch);
    for (uint32_t first = 0, end; first < parts.count; first = end) {
        end = first + 1;
        while (end < parts.count && parts.items[end].whole == parts.items[first].whole &&
               parts.items[end].axis == parts.items[first].axis)
            end++;
        if (fills(&parts, first, end) && end - first <= UL_LIMIT_NODE_INPUTS)
            split(&parts, first, end - first, pass->scratch);
    }
    ul_rewrite_apply(&parts.rewrite);
    return UL_OK;
}
