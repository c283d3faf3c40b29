/* SPDX-License-Identifier: Apache-2.0 */
/* A channel of zeros for images of three that a program rounds to 16 bits.
 *
 * Problem: the channels of an image lie side by side, three of 16 bits, so that only every other
 * pixel begins at a multiple of a word: a convolution on tensor cores reads them one by one.
 * Method: a fourth channel is added, and its weights are zeros; the step that makes the image's 16
 * bits writes it as well.
 *
 *      Conv(x [n 3 h w], w [k 3 r s])   ->   Conv(Pad(x) [n 4 h w], w' [k 4 r s])
 *
 * Windows that are whole words as they are stay (patches of 4 by 4, 16 by 16).
 * Left undone: weights that are trained; images of one and two channels, and those that no step
 * rounds, for which the zeros would be a step of their own. */
#include "ir/op_names.h"
#include "passes/passes_internal.h"

#include <string.h>

enum { CHANNELS = 3, WORD = 4 };

/* An input of the model in f32, which a step rounds to 16 bits. */
static bool is_rounded(const struct ul_pass *pass, ul_value_id id)
{
    const struct ul_value *value = &pass->graph->values[id];
    return value->kind == UL_VALUE_INPUT && value->type.dtype == UL_F32 &&
           value->declared == UL_DTYPE_NONE && ul_dtype_is_half(pass->options->precision);
}

static bool is_stem(const struct ul_pass *pass, const struct ul_node *node)
{
    const struct ul_graph *graph = pass->graph;
    if (node->op != UL_OP_Conv || ul_node_get_int(node, "group", 1) != 1)
        return false;
    const struct ul_type *x = &graph->values[node->inputs[0]].type;
    const struct ul_tensor *weight = ul_graph_get_constant(graph, node->inputs[1]);
    if (x->rank != 4 || x->dims[1] != CHANNELS || weight == NULL || weight->data == NULL ||
        ul_type_elements(&weight->type) == 0 || !is_rounded(pass, node->inputs[0]))
        return false;
    uint32_t count = 0;
    const int64_t *strides = ul_node_get_ints(node, "strides", &count);
    int64_t width = weight->type.dims[3], stride = count == 2 ? strides[1] : 1;
    return width > 1 && (width % WORD != 0 || stride % WORD != 0);
}

/* The weight with one more channel, of zeros. */
static const struct ul_tensor *widen(const struct ul_pass *pass, const struct ul_tensor *tensor)
{
    struct ul_type type = tensor->type;
    type.dims[1] = WORD;
    uint64_t filters = (uint64_t)type.dims[0];
    uint64_t size_bytes = ul_type_bytes(&type), to = size_bytes / filters;
    uint64_t from = ul_type_bytes(&tensor->type) / filters;
    unsigned char *bytes = ul_arena_alloc(pass->scratch, size_bytes);
    memset(bytes, 0, size_bytes);
    for (uint64_t k = 0; k < filters; k++)
        memcpy(bytes + k * to, (const unsigned char *)tensor->data + k * from, from);
    UL_ASSERT(to > from);
    return ul_tensor_new(pass->graph->arena, &type, bytes);
}

static void pad(struct ul_pass *pass, ul_node_id id)
{
    struct ul_graph *graph = pass->graph;
    struct ul_build build = ul_build_before(graph, id);
    ul_value_id x = graph->nodes[id].inputs[0], w = graph->nodes[id].inputs[1];
    const struct ul_value image = graph->values[x], weight = graph->values[w];
    const int64_t pads[8] = {[5] = WORD - CHANNELS};
    struct ul_type type = image.type;
    type.dims[1] = WORD;
    const ul_value_id inputs[2] = {x, ul_build_ints(graph, image.name, 8, pads)};
    ul_value_id padded = ul_build_value(&build, UL_OP_Pad, inputs, 2, &type);
    ul_value_id widened =
        ul_graph_add_weight(graph, weight.name, widen(pass, ul_graph_get_constant(graph, w)));
    graph->values[widened].declared = weight.declared;
    graph->nodes[id].inputs[0] = padded;
    graph->nodes[id].inputs[1] = widened;
}

enum ul_status ul_pass_stem(struct ul_pass *pass)
{
    struct ul_node_list all = ul_edit_all_nodes(pass->graph, pass->scratch);
    for (uint32_t n = 0; n < all.count; n++)
        if (is_stem(pass, &pass->graph->nodes[all.nodes[n]]))
            pad(pass, all.nodes[n]);
    return UL_OK;
}
