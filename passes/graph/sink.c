/* SPDX-License-Identifier: Apache-2.0 */
/* Reshapes and Transposes, moved after the elementwise nodes that follow them.
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
 * element alone is a reshape as well, and reshapes one after another are one; of another Transpose,
 * an operand of full shape is one after the same Transpose, or, where channels lie innermost, what
 * a convolution makes.
 * Bytes: what is stored is the same, with other coordinates. Not moved: what the model returns, as
 * a view cannot be returned. Left undone: operands that lie along other axes than the last. */
#include "ir/op.h"
#include "ir/op_names.h"
#include "passes/passes_internal.h"

#include <string.h>

struct sink {
    struct ul_graph *graph;
    uint32_t *uses;       /* per value that existed when the pass began */
    ul_node_id *readers;  /* likewise: one of the nodes that read it */
    uint32_t known_count; /* how many values these have */
    bool channels_last;   /* convolutions keep channels innermost */
};

static const struct ul_type *type_of(const struct sink *sink, ul_value_id value)
{
    return &sink->graph->values[value].type;
}

/* A kernel makes it that what follows may become part of. */
static bool is_computed(const struct sink *sink, ul_value_id value)
{
    const uint32_t alone = UL_OP_CONTROL | UL_OP_RANDOM | UL_OP_COMBINES | UL_OP_JOINS;
    const struct ul_node *node = ul_graph_maker(sink->graph, value);
    return node != NULL && ul_op_get(node->op)->view == NULL &&
           (ul_op_get(node->op)->flags & alone) == 0;
}

enum fit { FITS_NOT, FITS_AS_IT_IS, FITS_RESHAPED };

static bool same_transpose(const struct ul_node *a, const struct ul_node *b)
{
    uint32_t a_count, b_count;
    const int64_t *a_perm = ul_node_get_ints(a, "perm", &a_count);
    const int64_t *b_perm = ul_node_get_ints(b, "perm", &b_count);
    return a->op == UL_OP_Transpose && b->op == UL_OP_Transpose && a_count == b_count &&
           memcmp(a_perm, b_perm, a_count * sizeof *a_perm) == 0;
}

/* An operand of the result's shape in front of the Transpose. */
static bool is_turned(const struct sink *sink, const struct ul_node *transpose, ul_value_id operand)
{
    const struct ul_node *from = ul_graph_maker(sink->graph, operand);
    return from != NULL &&
           (same_transpose(from, transpose) ||
            (sink->channels_last && (ul_op_get(from->op)->flags & UL_OP_CONVOLVES) != 0));
}

/* How an operand in front of `move` fits, which has as many elements as the result, and other
 * axes. */
static enum fit fit_of(const struct sink *sink, const struct ul_node *move, ul_value_id operand)
{
    const struct ul_type *result = type_of(sink, move->outputs[0]);
    const struct ul_type *shape = type_of(sink, move->inputs[0]), *own = type_of(sink, operand);
    uint64_t count = ul_type_elements(own);
    if (move->op == UL_OP_Transpose && (count != 1 || own->rank > shape->rank))
        return ul_type_same_dims(own, result) && is_turned(sink, move, operand) ? FITS_RESHAPED
                                                                                : FITS_NOT;
    if (own->rank <= shape->rank) {
        bool is_row = own->rank > 0 && shape->rank > 0 && result->rank > 0 &&
                      count == (uint64_t)own->dims[own->rank - 1] &&
                      own->dims[own->rank - 1] == result->dims[result->rank - 1] &&
                      own->dims[own->rank - 1] == shape->dims[shape->rank - 1];
        if (count == 1 || is_row)
            return FITS_AS_IT_IS;
    }
    return ul_type_same_dims(own, result) && ul_edit_is_dense(sink->graph, operand) ? FITS_RESHAPED
                                                                                    : FITS_NOT;
}

/* The node that alone reads what `move` makes and can be computed in front of it, or UL_NONE.
 * Random numbers depend on coordinates and names, so they cannot. */
static ul_node_id follower(const struct sink *sink, const struct ul_node *move)
{
    const struct ul_graph *graph = sink->graph;
    ul_value_id value = move->outputs[0];
    if (value >= sink->known_count || sink->uses[value] != 1)
        return UL_NONE;
    ul_node_id id = sink->readers[value];
    const struct ul_node *node = id == UL_NONE ? NULL : &graph->nodes[id];
    const uint32_t flags = UL_OP_ELEMENTWISE | UL_OP_RANDOM;
    if (node == NULL || (ul_op_get(node->op)->flags & flags) != UL_OP_ELEMENTWISE ||
        node->output_count != 1 || node->parent != move->parent ||
        ul_type_elements(type_of(sink, value)) == 0)
        return UL_NONE;
    const struct ul_value *out = &graph->values[node->outputs[0]];
    UL_ASSERT(ul_type_known(&out->type));
    if (!ul_type_equal(&out->type, type_of(sink, value)) || out->donor != UL_NONE ||
        (out->flags & UL_VALUE_PERSISTENT) != 0 || ul_graph_is_output(graph, node->outputs[0]))
        return UL_NONE;
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] != UL_NONE && node->inputs[i] != value &&
            fit_of(sink, move, node->inputs[i]) == FITS_NOT)
            return UL_NONE;
    }
    return id;
}

/* ---- Changing places ---- */

/* The value has one more reader. */
static ul_value_id read_again(struct sink *sink, ul_value_id value)
{
    if (value < sink->known_count)
        sink->uses[value]++;
    return value;
}

/* The operand as it is in front of `move`; a new node makes it where there is none yet. */
static ul_value_id reshaped(struct sink *sink, struct ul_build *build, ul_value_id operand,
                            const struct ul_node *move)
{
    const struct ul_node *from = ul_graph_maker(sink->graph, operand);
    const struct ul_type *shape = type_of(sink, move->inputs[0]);
    uint32_t count;
    const int64_t *perm = ul_node_get_ints(move, "perm", &count);
    int64_t back[UL_LIMIT_RANK];
    if (move->op == UL_OP_Transpose) {
        for (uint32_t d = 0; d < count; d++)
            back[perm[d]] = d;
        return same_transpose(from, move) ? read_again(sink, from->inputs[0])
                                          : ul_build_transpose(build, operand, back);
    }
    if (from != NULL && ul_edit_is_reshape(from->op) &&
        ul_type_same_dims(type_of(sink, from->inputs[0]), shape))
        return read_again(sink, from->inputs[0]);
    return ul_build_reshape(build, operand, shape->rank, shape->dims);
}

/* Makes a node like the reader, in front of it and in the shape that the movement `id` starts from;
 * the reader becomes the movement, whose node goes. */
static void change_places(struct sink *sink, ul_node_id id, ul_node_id reader)
{
    struct ul_graph *graph = sink->graph;
    const struct ul_node move = graph->nodes[id];
    ul_value_id before = move.inputs[0], after = move.outputs[0];
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
        else if (inputs[i] != UL_NONE && fit_of(sink, &move, inputs[i]) == FITS_RESHAPED)
            inputs[i] = reshaped(sink, &build, inputs[i], &move);
    }
    ul_node_id moved = ul_build_like(&build, reader, inputs);
    ul_value_id made = graph->nodes[moved].outputs[0];
    graph->values[made].type = ul_type_make(result.dtype, shape.rank, shape.dims);
    ul_node_become(graph, reader, move.op, move.inputs, move.input_count);
    graph->nodes[reader].inputs[0] = made;
    graph->nodes[reader].attrs = move.attrs;
    graph->nodes[reader].attr_count = move.attr_count;
    ul_graph_remove_node(graph, id);
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

/* Writes a Transpose after what is computed, or after the reshape of that, as one reshape. */
static void as_reshape(struct sink *sink, ul_node_id id)
{
    struct ul_graph *graph = sink->graph;
    const struct ul_node *node = &graph->nodes[id];
    if (node->op != UL_OP_Transpose || !keeps_order(sink, node) ||
        node->inputs[0] >= sink->known_count || sink->uses[node->inputs[0]] != 1)
        return;
    ul_value_id source = node->inputs[0];
    const struct ul_node *before = ul_graph_maker(sink->graph, source);
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

/* A reshape of a reshape that nothing else reads becomes one reshape. */
static void join_reshapes(struct sink *sink, ul_node_id id)
{
    struct ul_graph *graph = sink->graph;
    const struct ul_node *node = &graph->nodes[id];
    if (!ul_edit_is_reshape(node->op) || node->output_count != 1)
        return;
    ul_value_id source = node->inputs[0];
    const struct ul_node *before = ul_graph_maker(sink->graph, source);
    if (before == NULL || !ul_edit_is_reshape(before->op) || source >= sink->known_count ||
        sink->uses[source] != 1)
        return;
    const struct ul_type type = *type_of(sink, node->outputs[0]);
    const ul_value_id inputs[2] = {before->inputs[0],
                                   ul_build_ints(graph, "shape", type.rank, type.dims)};
    UL_ASSERT(ul_type_elements(type_of(sink, inputs[0])) == ul_type_elements(&type));
    ul_graph_remove_node(graph, graph->values[source].producer);
    ul_node_become(graph, id, UL_OP_Reshape, inputs, 2);
    ul_node_set_int(graph, id, "allowzero", 1);
    if (inputs[0] < sink->known_count)
        sink->readers[inputs[0]] = id;
}

/* ---- The walk ---- */

static bool is_movement(const struct ul_node *node)
{
    return ul_edit_is_reshape(node->op) ||
           (node->op == UL_OP_Transpose && ul_node_find_attr(node, "perm") != NULL);
}

enum ul_status ul_pass_sink(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    struct sink sink = {.graph = graph, .channels_last = pass->traits->channels_last};
    struct ul_node_list order = ul_edit_all_nodes(graph, pass->scratch);
    sink.known_count = graph->value_count;
    sink.uses = ul_graph_count_uses(graph, pass->scratch);
    sink.readers = ul_edit_find_readers(graph, pass->scratch);
    for (uint32_t n = 0; n < order.count; n++) {
        /* The reader becomes the reshape, which may go on from there when its turn comes. */
        ul_node_id id = order.nodes[n];
        as_reshape(&sink, id);
        join_reshapes(&sink, id);
        const struct ul_node *node = &graph->nodes[id];
        if (!is_movement(node) || node->output_count != 1 ||
            (node->inputs[0] < sink.known_count && sink.uses[node->inputs[0]] != 1) ||
            !is_computed(&sink, node->inputs[0]))
            continue;
        ul_node_id reader = follower(&sink, node);
        if (reader != UL_NONE)
            change_places(&sink, id, reader);
    }
    ul_graph_sweep(graph);
    return UL_OK;
}
