/* SPDX-License-Identifier: Apache-2.0 */
/* Where the elements of values are, and which nodes need no kernel, because their outputs are views
 * that the views pass has laid out. */
#include "ir/view.h"
#include "ir/op.h"

enum ul_dtype ul_value_storage(const struct ul_graph *graph, ul_value_id id)
{
    const struct ul_value *value = &graph->values[id];
    return value->storage == UL_DTYPE_NONE ? value->type.dtype : value->storage;
}

struct ul_type ul_value_edge_type(const struct ul_graph *graph, ul_value_id id)
{
    struct ul_type type = graph->values[id].type;
    if (graph->values[id].declared != UL_DTYPE_NONE)
        type.dtype = graph->values[id].declared;
    return type;
}

const char *ul_kept_get(enum ul_kept kept)
{
    static const char *const words[UL_KEPT_COUNT] = {
        [UL_KEPT_NOT] = "not",         [UL_KEPT_EDGE] = "edge",
        [UL_KEPT_STATE] = "state",     [UL_KEPT_GRADIENT] = "gradient",
        [UL_KEPT_RANGE] = "range",     [UL_KEPT_EXACT] = "exact",
        [UL_KEPT_DECIDES] = "decides", [UL_KEPT_VECTOR] = "vector",
        [UL_KEPT_ELEMENT] = "element", [UL_KEPT_SUMS] = "sums",
        [UL_KEPT_BLOCK] = "block",     [UL_KEPT_DECLARED] = "declared"};
    UL_ASSERT(kept < UL_KEPT_COUNT);
    return words[kept];
}

void ul_value_store_as(struct ul_graph *graph, ul_value_id value, ul_value_id like)
{
    graph->values[value].storage = graph->values[like].storage;
    graph->values[value].kept = graph->values[like].kept;
}

uint32_t ul_value_element_bytes(const struct ul_graph *graph, ul_value_id id)
{
    return ul_dtype_get(ul_value_storage(graph, id))->size_bytes;
}

uint64_t ul_value_bytes(const struct ul_graph *graph, ul_value_id id)
{
    return ul_size_mul_or_die(ul_type_elements(&graph->values[id].type),
                              ul_value_element_bytes(graph, id));
}

struct ul_view ul_view_own(const struct ul_graph *graph, ul_value_id value)
{
    const struct ul_type *type = &graph->values[value].type;
    struct ul_view view = {.base = value};
    bool last = (graph->values[value].flags & UL_VALUE_CHANNELS_LAST) != 0 && type->rank > 2;
    int64_t stride = last ? type->dims[1] : 1;
    for (uint32_t d = type->rank; d-- > (last ? 2u : 0u);) {
        view.strides[d] = stride;
        stride *= type->dims[d];
    }
    if (last) {
        view.strides[1] = 1;
        view.strides[0] = stride;
    }
    return view;
}

bool ul_view_is_dense(const struct ul_type *type, const struct ul_view *view)
{
    int64_t stride = 1;
    if (ul_type_elements(type) == 0)
        return true;
    for (uint32_t d = type->rank; d-- > 0;) {
        if (type->dims[d] == 1)
            continue;
        if (view->strides[d] != stride)
            return false;
        stride *= type->dims[d];
    }
    return true;
}

void ul_view_order(const struct ul_type *type, const struct ul_view *view, uint32_t *order)
{
    uint32_t places[UL_LIMIT_RANK];
    uint32_t count = 0;
    bool known = view->base != UL_NONE;
    for (uint32_t d = 0; d < type->rank; d++) {
        order[d] = d;
        known = known && (type->dims[d] == 1 || view->strides[d] != 0);
        if (type->dims[d] != 1)
            places[count++] = d;
    }
    /* Sorts by insertion, among the places of dimensions longer than 1. */
    for (uint32_t i = 1; known && i < count; i++) {
        uint32_t d = order[places[i]];
        uint32_t at = i;
        for (; at > 0 &&
               ul_magnitude(view->strides[order[places[at - 1]]]) < ul_magnitude(view->strides[d]);
             at--)
            order[places[at]] = order[places[at - 1]];
        order[places[at]] = d;
    }
}

static bool view_equal(const struct ul_view *a, const struct ul_view *b, const struct ul_type *type)
{
    if (a->base != b->base || a->offset_bytes != b->offset_bytes)
        return false;
    for (uint32_t d = 0; d < type->rank; d++) {
        if (type->dims[d] > 1 && a->strides[d] != b->strides[d])
            return false;
    }
    return true;
}

/* Moves `slice` of a Concat's output from one operand's place to that of the next. */
static void slice_next(const struct ul_graph *graph, const struct ul_node *node, uint32_t input,
                       struct ul_view *slice)
{
    const struct ul_type *type = &graph->values[node->inputs[input]].type;
    int64_t axis = ul_node_get_int(node, "axis", 0);
    axis += axis < 0 ? (int64_t)type->rank : 0;
    slice->offset_bytes += type->dims[axis] * slice->strides[axis] *
                           (int64_t)ul_value_element_bytes(graph, node->inputs[input]);
}

static bool lies_in(const struct ul_graph *graph, ul_value_id operand, const struct ul_view *slice)
{
    const struct ul_value *value = &graph->values[operand];
    return value->view.base != UL_NONE && view_equal(&value->view, slice, &value->type);
}

struct ul_view ul_concat_slice(const struct ul_graph *graph, const struct ul_node *node,
                               uint32_t input)
{
    struct ul_view slice = graph->values[node->outputs[0]].view;
    for (uint32_t i = 0; slice.base != UL_NONE && i < input; i++)
        slice_next(graph, node, i, &slice);
    return slice;
}

bool ul_concat_is_placed(const struct ul_graph *graph, const struct ul_node *node, uint32_t input)
{
    struct ul_view slice = ul_concat_slice(graph, node, input);
    return lies_in(graph, node->inputs[input], &slice);
}

/* Every operand of the Concat already lies in its slice of the output. */
static bool concat_is_view(const struct ul_graph *graph, const struct ul_node *node)
{
    struct ul_view slice = graph->values[node->outputs[0]].view;
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (!lies_in(graph, node->inputs[i], &slice))
            return false;
        slice_next(graph, node, i, &slice);
    }
    return true;
}

bool ul_node_is_view(const struct ul_graph *graph, ul_node_id id)
{
    const struct ul_node *node = &graph->nodes[id];
    ul_view_fn *hook = ul_op_get(node->op)->view;
    if (node->input_count == 0 || node->inputs[0] == UL_NONE)
        return false;
    if ((ul_op_get(node->op)->flags & UL_OP_JOINS) != 0)
        return concat_is_view(graph, node);
    if (hook == NULL)
        return false;
    const struct ul_view *input = &graph->values[node->inputs[0]].view;
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (node->outputs[i] == UL_NONE)
            continue;
        const struct ul_value *output = &graph->values[node->outputs[i]];
        struct ul_view expected = {.base = UL_NONE};
        if (output->view.base == UL_NONE || !hook(graph, node, i, input, &expected) ||
            !view_equal(&output->view, &expected, &output->type))
            return false;
    }
    return true;
}

bool *ul_graph_escapes(const struct ul_graph *graph, struct ul_arena *arena)
{
    bool *escapes = UL_NEW_ARRAY(arena, bool, graph->value_count);
    for (uint32_t b = 0; b < graph->block_count; b++) {
        const struct ul_block *block = &graph->blocks[b];
        for (uint32_t i = 0; i < block->output_count; i++)
            escapes[block->outputs[i]] = true;
        for (uint32_t n = 0; n < block->node_count; n++) {
            const struct ul_node *node = &graph->nodes[block->nodes[n]];
            for (uint32_t i = 0; i < node->input_count; i++) {
                if (node->inputs[i] == UL_NONE)
                    continue;
                const struct ul_value *input = &graph->values[node->inputs[i]];
                bool same = input->kind == UL_VALUE_NODE && node->group != UL_NONE &&
                            graph->nodes[input->producer].group == node->group;
                if (!same || ul_node_is_view(graph, block->nodes[n]))
                    escapes[node->inputs[i]] = true;
            }
        }
    }
    return escapes;
}
