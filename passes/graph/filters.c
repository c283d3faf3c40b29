/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of convolutions with channels innermost, and of products of integers with what is summed.
 *
 * Problem: a library computes a convolution of images with channels innermost on weights in the
 * same layout, and a model has them outermost. Where a target packs its weights at set-up it is
 * told of the layout; one whose own kernels read the same weights as its library wants them so for
 * both. Method: the weight is stored turned, and a Transpose, which is a view, gives back its
 * shape:
 *
 *      Conv(x, w [k c r s])   ->   Conv(x, Transpose(w' [k r s c]))
 *
 * Where each group has one channel, no library takes it; neighbours of a result then are in other
 * groups, and so should be those of the weight:
 *
 *      Conv(x, w [k 1 r s])   ->   Conv(x, Transpose(w' [r s 1 k]))
 *
 * A product of integers adds four neighbours of a sum at once, on tensor cores 32, and libraries
 * take both factors that way alone:
 *
 *      MatMulInteger(x, w [k n])   ->   MatMulInteger(x, Transpose(w' [n k]))
 *
 * Where a program trains, a transposed convolution of the same weight forms the gradient of the
 * source, and the optimizer works element by element. So the weight, its gradient, sums of that,
 * the states and their new values all lie in one order. They keep their shapes, so that checkpoints
 * have them as the model does; their strides change (UL_VALUE_CHANNELS_LAST):
 *
 *      Conv(x, w)   ConvTranspose(dy, w)   g = ConvWeightGradient(x, dy)   w' = Update(w, g, m)
 *
 * Left undone: weights that something else than convolutions reads; transposed convolutions, unless
 * the program trains; optimizers that look at rows of a weight. */
#include "ir/op.h"
#include "ir/op_names.h"
#include "passes/passes_internal.h"

#include <string.h>

/* Whether the weights are a convolution's; else they are a product's. */
static bool is_filter_type(const struct ul_type *type)
{
    return type->rank > 2;
}

static bool is_deep(const struct ul_type *type)
{
    return is_filter_type(type) && type->dims[1] == 1;
}

static bool is_weight(const struct ul_graph *graph, const struct ul_node *node, uint32_t input)
{
    const struct ul_type *type = &graph->values[node->inputs[input]].type;
    if (input != 1)
        return false;
    if (node->op == UL_OP_MatMulInteger)
        return type->rank == 2;
    return (node->op == UL_OP_Conv || node->op == UL_OP_ConvInteger) &&
           (!is_deep(type) || ul_node_get_int(node, "group", 1) > 1);
}

/* Per value: only convolutions read it, as their weights, and where it has one channel they have
 * groups; or only products of integers read it. */
static bool *find_filters(const struct ul_pass *pass)
{
    const struct ul_graph *graph = pass->graph;
    bool *is_filter = UL_NEW_ARRAY(pass->scratch, bool, graph->value_count);
    bool *is_other = UL_NEW_ARRAY(pass->scratch, bool, graph->value_count);
    struct ul_node_list all = ul_edit_all_nodes(graph, pass->scratch);
    for (uint32_t n = 0; n < all.count; n++) {
        const struct ul_node *node = &graph->nodes[all.nodes[n]];
        for (uint32_t i = 0; i < node->input_count; i++) {
            if (node->inputs[i] != UL_NONE)
                (is_weight(graph, node, i) ? is_filter : is_other)[node->inputs[i]] = true;
        }
    }
    for (uint32_t b = 0; b < graph->block_count; b++) {
        for (uint32_t i = 0; i < graph->blocks[b].output_count; i++)
            is_other[graph->blocks[b].outputs[i]] = true;
    }
    for (uint32_t v = 0; v < graph->value_count; v++)
        is_filter[v] = is_filter[v] && !is_other[v];
    return is_filter;
}

/* Whether turning it changes anything. */
static bool can_turn(const struct ul_graph *graph, ul_value_id id)
{
    const struct ul_value *value = &graph->values[id];
    const struct ul_tensor *tensor = ul_graph_get_constant(graph, id);
    int64_t space = 1;
    if (tensor == NULL || tensor->data == NULL || value->type.rank < 2)
        return false;
    if (!is_filter_type(&value->type))
        return value->type.dims[0] > 1 && value->type.dims[1] > 1;
    for (uint32_t d = 2; d < value->type.rank; d++)
        space *= value->type.dims[d];
    return space > 1 && value->type.dims[is_deep(&value->type) ? 0 : 1] > 1 &&
           ul_type_elements(&value->type) > 0;
}

/* The permutation that gives the weight's own dimensions from the turned one's. */
static void set_perm(const struct ul_type *type, int64_t *perm)
{
    uint32_t last = type->rank - 1;
    bool is_turned = is_deep(type) || !is_filter_type(type);
    perm[0] = is_turned ? last : 0;
    perm[1] = is_turned ? last - 1 : last;
    for (uint32_t d = 2; d < type->rank; d++)
        perm[d] = is_deep(type) ? d - 2 : d - 1;
}

static const struct ul_tensor *turn(const struct ul_pass *pass, const struct ul_tensor *tensor)
{
    const int64_t *dims = tensor->type.dims;
    size_t size = ul_dtype_get(tensor->type.dtype)->size_bytes;
    uint64_t filters = (uint64_t)dims[0], channels = (uint64_t)dims[1], space = 1;
    int64_t perm[UL_LIMIT_RANK] = {0};
    struct ul_type type = tensor->type;
    bool is_turned = is_deep(&type) || !is_filter_type(&type);
    set_perm(&tensor->type, perm);
    for (uint32_t d = 0; d < type.rank; d++)
        type.dims[perm[d]] = dims[d];
    for (uint32_t d = 2; d < type.rank; d++)
        space *= (uint64_t)dims[d];
    unsigned char *bytes =
        ul_arena_alloc(pass->scratch, ul_size_mul_or_die(ul_type_elements(&type), size));
    const unsigned char *from = tensor->data;
    for (uint64_t k = 0; k < filters; k++) {
        for (uint64_t c = 0; c < channels; c++) {
            for (uint64_t at = 0; at < space; at++, from += size) {
                uint64_t to =
                    is_turned ? (at * channels + c) * filters + k : (k * space + at) * channels + c;
                memcpy(bytes + to * size, from, size);
            }
        }
    }
    UL_ASSERT(from == (const unsigned char *)tensor->data + ul_type_bytes(&tensor->type));
    return ul_tensor_new(pass->graph->arena, &type, bytes);
}

/* The weight's own shape, from the turned one. */
static ul_value_id add_view(const struct ul_pass *pass, struct ul_build *build, ul_value_id old)
{
    int64_t perm[UL_LIMIT_RANK] = {0};
    const struct ul_value value = pass->graph->values[old];
    build->name = value.name;
    set_perm(&value.type, perm);
    return ul_build_transpose(
        build, ul_graph_add_weight(pass->graph, value.name, turn(pass, value.tensor)), perm);
}

/* ---- weights of a program that trains ---- */

/* Sets of values that lie in the same order. The head of a set knows whether a convolution reads a
 * member as its weights, and whether something needs a member in the order of the model. */
struct alike {
    const struct ul_graph *graph;
    ul_value_id *parents;
    bool *has_filter, *stays;
};

static void mark(const struct alike *alike, bool *facts, ul_value_id value)
{
    if (value != UL_NONE)
        facts[ul_edit_find_head(alike->parents, value)] = true;
}

static bool is_pointwise(const struct ul_node *node)
{
    return (ul_op_get(node->op)->flags & (UL_OP_ELEMENTWISE | UL_OP_POINTWISE)) != 0;
}

static bool same_dims(const struct ul_type *a, const struct ul_type *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0;
}

/* Joins what a node reads and writes element by element into one set. */
static void join_node(const struct alike *alike, const struct ul_node *node)
{
    const struct ul_value *values = alike->graph->values;
    ul_value_id made = node->output_count > 0 ? node->outputs[0] : UL_NONE;
    if (!is_pointwise(node) || made == UL_NONE)
        return;
    for (uint32_t i = 0; i < node->input_count + node->output_count; i++) {
        bool is_input = i < node->input_count;
        ul_value_id value = is_input ? node->inputs[i] : node->outputs[i - node->input_count];
        if (value != UL_NONE && same_dims(&values[value].type, &values[made].type))
            ul_edit_join_heads(alike->parents, made, value);
    }
}

/* Notes which order a node needs for its inputs and outputs. A sum of squares takes any order. */
static void mark_node(const struct alike *alike, const struct ul_node *node)
{
    uint32_t flags = ul_op_get(node->op)->flags;
    bool is_nested = !ul_graph_is_root(alike->graph, node->parent),
         pointwise = is_pointwise(node) && !is_nested;
    for (uint32_t i = 0; i < node->input_count; i++) {
        bool is_filter = (flags & UL_OP_CONVOLVES) != 0 && i == 1 && !is_nested;
        if (is_filter)
            mark(alike, alike->has_filter, node->inputs[i]);
        else if (!pointwise && (node->op != UL_OP_ReduceSumSquare || is_nested))
            mark(alike, alike->stays, node->inputs[i]);
    }
    for (uint32_t i = 0; i < node->output_count; i++)
        if (!pointwise && ((flags & UL_OP_CORRELATES) == 0 || is_nested))
            mark(alike, alike->stays, node->outputs[i]);
}

static void mark_edges(const struct alike *alike)
{
    const struct ul_graph *graph = alike->graph;
    for (uint32_t b = 0; b < graph->block_count; b++) {
        for (uint32_t i = 0; i < graph->blocks[b].output_count; i++) {
            ul_value_id value = graph->blocks[b].outputs[i];
            if (!ul_graph_is_root(graph, b) || graph->values[value].donor == UL_NONE)
                mark(alike, alike->stays, value);
        }
    }
    for (uint32_t v = 0; v < graph->value_count; v++)
        if (graph->values[v].kind != UL_VALUE_WEIGHT && graph->values[v].kind != UL_VALUE_NODE)
            mark(alike, alike->stays, v);
}

static void find_alike(struct alike *alike, const struct ul_pass *pass)
{
    const struct ul_graph *graph = alike->graph = pass->graph;
    struct ul_node_list all = ul_edit_all_nodes(graph, pass->scratch);
    alike->parents = UL_NEW_ARRAY(pass->scratch, ul_value_id, graph->value_count);
    alike->has_filter = UL_NEW_ARRAY(pass->scratch, bool, graph->value_count);
    alike->stays = UL_NEW_ARRAY(pass->scratch, bool, graph->value_count);
    for (uint32_t v = 0; v < graph->value_count; v++)
        alike->parents[v] = v;
    for (uint32_t n = 0; n < all.count; n++)
        join_node(alike, &graph->nodes[all.nodes[n]]);
    for (uint32_t v = 0; v < graph->value_count; v++)
        if (graph->values[v].donor != UL_NONE)
            ul_edit_join_heads(alike->parents, v, graph->values[v].donor);
    for (uint32_t n = 0; n < all.count; n++)
        mark_node(alike, &graph->nodes[all.nodes[n]]);
    mark_edges(alike);
}

static bool changes(const struct ul_type *type)
{
    int64_t space = 1;
    for (uint32_t d = 2; d < type->rank; d++)
        space *= type->dims[d];
    return type->rank > 2 && space > 1 && type->dims[1] > 1 && ul_type_elements(type) > 0;
}

static void lay_filters(const struct ul_pass *pass)
{
    struct alike alike;
    struct ul_graph *graph = pass->graph;
    find_alike(&alike, pass);
    for (uint32_t v = 0; v < graph->value_count; v++) {
        ul_value_id head = ul_edit_find_head(alike.parents, v);
        UL_ASSERT(head <= v);
        if (alike.has_filter[head] && !alike.stays[head] && changes(&graph->values[v].type))
            graph->values[v].flags |= UL_VALUE_CHANNELS_LAST;
    }
}

enum ul_status ul_pass_filters(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    const bool *is_filter = find_filters(pass);
    struct ul_build build = {.graph = graph}; /* in front of all */
    struct ul_rewrite rewrite;
    ul_rewrite_init(&rewrite, graph, pass->scratch);
    for (uint32_t v = 0; v < rewrite.known_count; v++) {
        if (!is_filter[v] || !can_turn(graph, v))
            continue;
        ul_rewrite_replace(&rewrite, v, add_view(pass, &build, v));
        graph->values[v].kind = UL_VALUE_DEAD;
    }
    ul_rewrite_apply(&rewrite);
    if (pass->options->training != NULL)
        lay_filters(pass);
    return UL_OK;
}
