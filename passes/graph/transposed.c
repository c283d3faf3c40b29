/* SPDX-License-Identifier: Apache-2.0 */
/* A transposed convolution whose windows do not overlap, as a matrix product.
 *
 * Problem: where the kernel is as large as the stride, each result depends on one place of the
 * input alone, but a convolution backwards runs at a tenth of a product's speed. Method: with
 * channels innermost the results of row i of all windows are one product, and lie as the image
 * does, so that everything but the product is a view (kernel s by t, n images of h by w):
 *
 *      x [n c h w] -> Transpose, Reshape -> [n h, 1, w, c]
 *      MatMul with [s, c, t m]           -> [n h, s, w, t m]
 *      Add of the bias, what follows     -> the same
 *      Reshape, Transpose                -> [n, m, h s, w t]
 *
 * Elementwise nodes after it whose other operands are constants of one element or one for each
 * channel move in front of the views, where they fuse with the product. Left undone: other than two
 * dimensions of space; padding; groups. */
#include "ir/op.h"
#include "ir/op_names.h"
#include "passes/passes_internal.h"

#include <string.h>

struct rewrite {
    struct ul_pass *pass;
    struct ul_graph *graph;
    struct ul_followers followers;
    /* the current node */
    struct ul_build build;
    int64_t n, c, h, w, m, s, t; /* as above */
};

/* Whether all of its numbers are `number`, or the attribute is absent. */
static bool all_are(const struct ul_node *node, const char *attribute, int64_t number)
{
    uint32_t count;
    const int64_t *ints = ul_node_get_ints(node, attribute, &count);
    for (uint32_t i = 0; ints != NULL && i < count; i++) {
        if (ints[i] != number)
            return false;
    }
    return true;
}

static bool fits(struct rewrite *r, const struct ul_node *node)
{
    const struct ul_graph *graph = r->graph;
    const struct ul_tensor *weight = ul_graph_get_constant(graph, node->inputs[1]);
    const struct ul_type *x = &graph->values[node->inputs[0]].type;
    const struct ul_type *y = &graph->values[node->outputs[0]].type;
    uint32_t count;
    const int64_t *strides = ul_node_get_ints(node, "strides", &count);
    if (x->rank != 4 || x->dtype != UL_F32 || weight == NULL || strides == NULL || count != 2 ||
        ul_type_elements(x) == 0 || ul_node_get_int(node, "group", 1) != 1 ||
        !all_are(node, "pads", 0) || !all_are(node, "output_padding", 0) ||
        !all_are(node, "dilations", 1))
        return false;
    if (node->input_count > 2 && node->inputs[2] != UL_NONE &&
        ul_graph_get_constant(graph, node->inputs[2]) == NULL)
        return false;
    r->n = x->dims[0];
    r->c = x->dims[1];
    r->h = x->dims[2];
    r->w = x->dims[3];
    r->m = weight->type.dims[1];
    r->s = weight->type.dims[2];
    r->t = weight->type.dims[3];
    /* Whatever else is said about padding, this leaves none. */
    return strides[0] == r->s && strides[1] == r->t && y->dims[1] == r->m &&
           y->dims[2] == r->h * r->s && y->dims[3] == r->w * r->t;
}

/* ---- Constants ---- */

static ul_value_id add_constant(struct rewrite *r, uint32_t rank, const int64_t *dims,
                                const float *numbers)
{
    struct ul_type type = ul_type_make(UL_F32, rank, dims);
    return ul_graph_add_weight(r->graph, r->build.name,
                               ul_tensor_new(r->graph->arena, &type, numbers));
}

/* [c m s t] as [s, c, t m]. */
static ul_value_id turn_weight(struct rewrite *r, ul_value_id value)
{
    const struct ul_tensor *tensor = r->graph->values[value].tensor;
    uint64_t count = ul_type_elements(&tensor->type);
    float *numbers = UL_NEW_ARRAY(r->pass->scratch, float, count);
    uint64_t at = 0;
    for (int64_t i = 0; i < r->s; i++) {
        for (int64_t c = 0; c < r->c; c++) {
            for (int64_t j = 0; j < r->t; j++) {
                for (int64_t m = 0; m < r->m; m++)
                    numbers[at++] = (float)ul_tensor_get_float(
                        tensor, (uint64_t)(((c * r->m + m) * r->s + i) * r->t + j));
            }
        }
    }
    UL_ASSERT(at == count);
    int64_t dims[3] = {r->s, r->c, r->t * r->m};
    return add_constant(r, 3, dims, numbers);
}

/* One number for each channel, repeated t times. */
static ul_value_id repeat(void *context, ul_value_id value)
{
    struct rewrite *r = context;
    const struct ul_tensor *tensor = r->graph->values[value].tensor;
    int64_t count = r->t * r->m;
    UL_ASSERT(ul_type_elements(&tensor->type) == (uint64_t)r->m);
    float *numbers = UL_NEW_ARRAY(r->pass->scratch, float, (uint64_t)count);
    for (int64_t i = 0; i < count; i++)
        numbers[i] = (float)ul_tensor_get_float(tensor, (uint64_t)(i % r->m));
    return add_constant(r, 1, &count, numbers);
}

/* ---- Nodes ---- */

static ul_value_id add_product(struct rewrite *r, const struct ul_node *node)
{
    static const int64_t to_last[4] = {0, 2, 3, 1};
    const int64_t rows[4] = {r->n * r->h, 1, r->w, r->c};
    const int64_t result[4] = {r->n * r->h, r->s, r->w, r->t * r->m};
    const struct ul_type type = ul_type_make(UL_F32, 4, result);
    ul_value_id weight = turn_weight(r, node->inputs[1]);
    ul_value_id bias = UL_NONE;
    if (node->input_count > 2 && node->inputs[2] != UL_NONE)
        bias = repeat(r, node->inputs[2]);
    ul_value_id x = ul_build_transpose(&r->build, node->inputs[0], to_last);
    const ul_value_id factors[2] = {ul_build_reshape(&r->build, x, 4, rows), weight};
    const ul_value_id terms[2] = {ul_build_value(&r->build, UL_OP_MatMul, factors, 2, &type), bias};
    return bias == UL_NONE ? terms[0] : ul_build_value(&r->build, UL_OP_Add, terms, 2, &type);
}

static void rewrite_node(struct rewrite *r, ul_node_id id)
{
    static const int64_t to_second[4] = {0, 3, 1, 2};
    struct ul_graph *graph = r->graph;
    struct ul_node node = graph->nodes[id];
    int64_t image[4] = {r->n, r->h * r->s, r->w * r->t, r->m};
    r->build = ul_build_before(graph, id);
    ul_value_id last = node.outputs[0];
    ul_value_id product = ul_followers_move(&r->followers, &r->build, &last, add_product(r, &node));
    ul_value_id y = ul_build_reshape(&r->build, product, 4, image);
    y = ul_build_transpose(&r->build, y, to_second);
    UL_ASSERT(ul_type_equal(&graph->values[y].type, &graph->values[last].type));
    graph->values[y].name = graph->values[last].name;
    struct ul_rewrite rewrite;
    ul_rewrite_init(&rewrite, graph, r->pass->scratch);
    (void)ul_rewrite_forward(&rewrite, last, y);
    ul_rewrite_apply(&rewrite);
}

enum ul_status ul_pass_transposed(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    struct rewrite r = {.pass = pass, .graph = graph};
    struct ul_node_list order = ul_edit_all_nodes(graph, pass->scratch);
    r.followers = ul_followers_new(graph, pass->scratch, repeat, &r);
    for (uint32_t n = 0; n < order.count; n++) {
        ul_node_id id = order.nodes[n];
        if (graph->nodes[id].op != UL_OP_ConvTranspose || !fits(&r, &graph->nodes[id]))
            continue;
        r.followers.channels = r.m;
        rewrite_node(&r, id);
    }
    return UL_OK;
}
