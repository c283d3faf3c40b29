/* Reshapes behind the elementwise nodes that follow them.
 *
 * Problem: fusion ends at a view, since what follows has other coordinates. Exporters flatten rows
 * for a product and unflatten them before the bias, the activation or the residual is applied.
 * Method: from such a reshape on, as long as the one reader of its result is an elementwise node
 * that could as well be computed in the shape before, the two change places:
 *
 *      Gemm -> Reshape -> Gelu -> Add          Gemm -> Gelu -> Add -> Reshape
 *                                  ^                            ^
 *                               residual                 Reshape of the residual
 *
 * Operands: one element; a row along the last axis, where that is the same in both shapes; and the
 * full shape, where a reshape of the operand needs no copy. A Transpose that moves axes of one
 * element alone is a reshape as well.
 * Bytes: what is stored is the same, with other coordinates. Not moved: what the model returns, as
 * a view cannot be returned. Left undone: operands that lie along other axes than the last. */
#include "ir/op.h"
#include "passes/passes_internal.h"

#include <string.h>

struct sink {
    struct ul_graph *graph;
    uint32_t *uses;       /* per value that stood when the pass began */
    ul_node_id *readers;  /* the same: one of the nodes that read it */
    uint32_t known_count; /* of these */
};

static const struct ul_type *type_of(const struct sink *sink, ul_value_id value)
{
    return &sink->graph->values[value].type;
}

static const struct ul_node *maker(const struct sink *sink, ul_value_id value)
{
    const struct ul_value *info = &sink->graph->values[value];
    return info->kind == UL_VALUE_NODE ? &sink->graph->nodes[info->producer] : NULL;
}

static bool same_dims(const struct ul_type *a, const struct ul_type *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0;
}

/* Made by a kernel that what follows may become part of. */
static bool is_computed(const struct sink *sink, ul_value_id value)
{
    const uint32_t alone = UL_OP_CONTROL | UL_OP_RANDOM | UL_OP_COMBINES | UL_OP_JOINS;
    const struct ul_node *node = maker(sink, value);
    return node != NULL && ul_op_get(node->op)->view == NULL &&
           (ul_op_get(node->op)->flags & alone) == 0;
}

enum fit { FITS_NOT, FITS_AS_IT_IS, FITS_RESHAPED };

/* An operand in a shape that has as many elements as the result, with other axes. */
static enum fit fit_of(const struct sink *sink, ul_value_id operand, const struct ul_type *result,
                       const struct ul_type *shape)
{
    const struct ul_type *own = type_of(sink, operand);
    uint64_t count = ul_type_elements(own);
    if (own->rank <= shape->rank) {
        bool is_row = own->rank > 0 && shape->rank > 0 && result->rank > 0 &&
                      count == (uint64_t)own->dims[own->rank - 1] &&
                      own->dims[own->rank - 1] == result->dims[result->rank - 1] &&
                      own->dims[own->rank - 1] == shape->dims[shape->rank - 1];
        if (count == 1 || is_row)
            return FITS_AS_IT_IS;
    }
    return same_dims(own, result) && ul_edit_is_dense(sink->graph, operand) ? FITS_RESHAPED
                                                                            : FITS_NOT;
}

/* The node that alone reads `value` and can be computed in the other shape, or UL_NONE. Random
 * numbers go by coordinates and names. */
static ul_node_id follower(const struct sink *sink, ul_value_id value, const struct ul_type *shape)
{
    const struct ul_graph *graph = sink->graph;
    if (value >= sink->known_count || sink->uses[value] != 1)
        return UL_NONE;
    ul_node_id id = sink->readers[value];
    const struct ul_node *node = id == UL_NONE ? NULL : &graph->nodes[id];
    const uint32_t flags = UL_OP_ELEMENTWISE | UL_OP_RANDOM;
    if (node == NULL || (ul_op_get(node->op)->flags & flags) != UL_OP_ELEMENTWISE ||
        node->output_count != 1 || node->parent != maker(sink, value)->parent ||
        ul_type_elements(shape) == 0)
        return UL_NONE;
    const struct ul_value *out = &graph->values[node->outputs[0]];
    UL_ASSERT(ul_type_known(&out->type));
    if (!ul_type_equal(&out->type, type_of(sink, value)) || out->donor != UL_NONE ||
        (out->flags & UL_VALUE_PERSISTENT) != 0 || ul_graph_is_output(graph, node->outputs[0]))
        return UL_NONE;
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] != UL_NONE && node->inputs[i] != value &&
            fit_of(sink, node->inputs[i], &out->type, shape) == FITS_NOT)
            return UL_NONE;
    }
    return id;
}

/* ---- Changing places ---- */

/* The operand with the dimensions of `shape`, by a node where it has not. */
static ul_value_id reshaped(const struct sink *sink, struct ul_build *build, ul_value_id operand,
                            const struct ul_type *shape)
{
    const struct ul_node *from = maker(sink, operand);
    if (from != NULL && ul_edit_is_reshape(from->op) &&
        same_dims(type_of(sink, from->inputs[0]), shape))
        return from->inputs[0];
    return ul_build_reshape(build, operand, shape->rank, shape->dims);
}

/* A node like the reader, before it and in the shape that `reshape` starts from; the reader becomes
 * the reshape, whose node goes. */
static void change_places(struct sink *sink, ul_node_id reshape, ul_node_id reader)
{
    struct ul_graph *graph = sink->graph;
    ul_value_id before = graph->nodes[reshape].inputs[0], after = graph->nodes[reshape].outputs[0];
    const struct ul_type shape = *type_of(sink, before), result = *type_of(sink, after);
    UL_ASSERT(graph->nodes[reader].output_count == 1);
    UL_ASSERT(ul_type_elements(&shape) == ul_type_elements(&result));
    struct ul_build build = ul_build_before(graph, reader);
    uint32_t count = graph->nodes[reader].input_count;
    ul_value_id *inputs =
        ul_arena_copy(graph->arena, graph->nodes[reader].inputs, count * sizeof *inputs);
    for (uint32_t i = 0; i < count; i++) {
        if (inputs[i] == after)
            inputs[i] = before;
        else if (inputs[i] != UL_NONE && fit_of(sink, inputs[i], &result, &shape) == FITS_RESHAPED)
            inputs[i] = reshaped(sink, &build, inputs[i], &shape);
    }
    ul_node_id moved = ul_build_like(&build, reader, inputs);
    ul_value_id made = graph->nodes[moved].outputs[0];
    graph->values[made].type = ul_type_make(result.dtype, shape.rank, shape.dims);
    const struct ul_node *old = &graph->nodes[reshape];
    ul_node_become(graph, reader, old->op, old->inputs, old->input_count);
    graph->nodes[reader].inputs[0] = made;
    graph->nodes[reader].attrs = old->attrs;
    graph->nodes[reader].attr_count = old->attr_count;
    ul_graph_remove_node(graph, reshape);
}

/* ---- Transposes ---- */

/* Axes of more than one element stay in their order. */
static bool keeps_order(const struct sink *sink, const struct ul_node *node)
{
    const struct ul_type *type = type_of(sink, node->inputs[0]);
    uint32_t count;
    const int64_t *perm = ul_node_get_ints(node, "perm", &count);
    int64_t last = -1;
    if (perm == NULL || count != type->rank)
        return false;
    for (uint32_t d = 0; d < count; d++) {
        UL_ASSERT(perm[d] >= 0 && perm[d] < (int64_t)count);
        if (type->dims[perm[d]] == 1)
            continue;
        if (perm[d] < last)
            return false;
        last = perm[d];
    }
    return true;
}

/* Writes a Transpose behind what is computed, or behind the reshape of that, as one reshape. */
static void as_reshape(struct sink *sink, ul_node_id id)
{
    struct ul_graph *graph = sink->graph;
    const struct ul_node *node = &graph->nodes[id];
    if (node->op != UL_OP_Transpose || !keeps_order(sink, node) ||
        node->inputs[0] >= sink->known_count || sink->uses[node->inputs[0]] != 1)
        return;
    ul_value_id source = node->inputs[0];
    const struct ul_node *before = maker(sink, source);
    bool joins = before != NULL && ul_edit_is_reshape(before->op);
    source = joins ? before->inputs[0] : source;
    if (!is_computed(sink, source))
        return;
    const struct ul_type type = *type_of(sink, node->outputs[0]);
    const ul_value_id inputs[2] = {source, ul_build_ints(graph, "shape", type.rank, type.dims)};
    if (joins)
        ul_graph_remove_node(graph, graph->values[node->inputs[0]].producer);
    ul_node_become(graph, id, UL_OP_Reshape, inputs, 2);
}

/* ---- The walk ---- */

enum ul_status ul_pass_sink(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    struct sink sink = {.graph = graph};
    struct ul_node_list order = ul_edit_all_nodes(graph, pass->scratch);
    sink.known_count = graph->value_count;
    sink.uses = ul_graph_count_uses(graph, pass->scratch);
    sink.readers = ul_edit_find_readers(graph, pass->scratch);
    for (uint32_t n = 0; n < order.count; n++) {
        /* The reader becomes the reshape, which may go on from there when its turn comes. */
        ul_node_id id = order.nodes[n];
        as_reshape(&sink, id);
        const struct ul_node *node = &graph->nodes[id];
        if (!ul_edit_is_reshape(node->op) || node->output_count != 1 ||
            (node->inputs[0] < sink.known_count && sink.uses[node->inputs[0]] != 1) ||
            !is_computed(&sink, node->inputs[0]))
            continue;
        ul_node_id reader = follower(&sink, node->outputs[0], type_of(&sink, node->inputs[0]));
        if (reader != UL_NONE)
            change_places(&sink, id, reader);
    }
    ul_graph_sweep(graph);
    return UL_OK;
}
