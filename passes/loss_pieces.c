/* SPDX-License-Identifier: Apache-2.0 */
/* The loss over a vocabulary in pieces: neither the logits nor their gradient ever stand whole.
 *
 * Problem: logits y = x w of some thousand tokens over a large vocabulary, and their gradient, are
 * by far the largest values of a language model. Method: rows are cut into pieces of at most
 * PIECE_BYTES of logits, whatever the budget. Since the loss's own gradient is known, 1 over the
 * weight of all labels, each piece goes forward and back before the next one begins:
 *
 *      y_k = x_k w    loss += losses of y_k    dy_k    dx_k = dy_k w^T    dw += x_k^T dy_k
 *
 * WithGradients says of the loss what its gradients are. Left undone: logits that something else
 * reads too, or that come from another operator. */
#include "passes/loss_internal.h"

#include "ir/gradient.h"
#include "ir/op.h"

enum { PIECE_BYTES = 32 << 20 };

struct pieces {
    struct ul_loss_job *loss;
    struct ul_gradient *make;
    ul_value_id x, w, bias; /* [rows, depth], [depth, classes], or UL_NONE */
    ul_value_id targets, weights;
    ul_value_id scale; /* of gradients: 1 over the weight of all labels, and the loss scale */
    ul_value_id sum, correct, dw, dbias;
};

/* x and w of a product that makes the logits. */
static bool find_product(struct pieces *p, ul_value_id logits)
{
    struct ul_graph *graph = p->make->graph;
    const struct ul_node node = graph->nodes[graph->values[logits].producer];
    if (node.op == UL_OP_MatMul) {
        const struct ul_type *x = &graph->values[node.inputs[0]].type;
        const struct ul_type *w = &graph->values[node.inputs[1]].type;
        if (w->rank != 2 || x->rank < 2)
            return false;
        const int64_t dims[2] = {(int64_t)(ul_type_elements(x) / (uint64_t)w->dims[0]), w->dims[0]};
        p->x = x->rank == 2 ? node.inputs[0]
                            : ul_build_reshape(&p->make->build, node.inputs[0], 2, dims);
        p->w = node.inputs[1];
        return true;
    }
    if (node.op != UL_OP_Gemm || ul_node_get_int(&node, "transA", 0) != 0 ||
        ul_node_get_float(&node, "alpha", 1) != 1 || ul_node_get_float(&node, "beta", 1) != 1)
        return false;
    p->x = node.inputs[0];
    p->w = node.inputs[1];
    p->bias = node.input_count > 2 ? node.inputs[2] : UL_NONE;
    if (p->bias != UL_NONE && graph->values[p->bias].type.rank != 1)
        return false;
    if (ul_node_get_int(&node, "transB", 0) != 0)
        p->w = ul_gradient_swap(p->make, p->w);
    return true;
}

static void add_to(struct pieces *p, ul_value_id *sum, ul_value_id more)
{
    *sum = *sum == UL_NONE ? more : ul_gradient_binary(p->make, UL_OP_Add, *sum, more);
}

/* Forward and back; the gradient of the piece's rows. */
static ul_value_id add_piece(struct pieces *p, ul_value_id x, ul_value_id targets)
{
    struct ul_gradient *make = p->make;
    ul_value_id y = ul_gradient_binary(make, UL_OP_MatMul, x, p->w);
    if (p->bias != UL_NONE)
        y = ul_gradient_binary(make, UL_OP_Add, y, p->bias);
    const ul_value_id inputs[4] = {y, targets, p->weights, p->scale};
    ul_node_id node = ul_loss_begin_cross_entropy(p->loss, UL_OP_SoftmaxCrossEntropyLoss, inputs,
                                                  p->weights != UL_NONE ? 3 : 2);
    ul_node_set_string(make->graph, node, "reduction", "sum");
    add_to(p, &p->sum, ul_gradient_infer(make, node));
    add_to(p, &p->correct, ul_loss_count_correct(p->loss, y, targets));
    node = ul_loss_begin_cross_entropy(p->loss, UL_OP_CrossEntropyGradient, inputs, 4);
    ul_value_id dy = ul_gradient_infer(make, node);
    add_to(p, &p->dw, ul_gradient_binary(make, UL_OP_MatMul, ul_gradient_swap(make, x), dy));
    if (p->bias != UL_NONE) {
        struct ul_type type = ul_gradient_type(make, p->bias);
        add_to(p, &p->dbias, ul_gradient_reshape(make, ul_gradient_sum(make, dy, 1), &type));
    }
    return ul_gradient_binary(make, UL_OP_MatMul, dy, ul_gradient_swap(make, p->w));
}

/* The rows of each piece as a Split. */
static const struct ul_node *cut(struct pieces *p, ul_value_id value, const int64_t *sizes,
                                 uint32_t count)
{
    struct ul_graph *graph = p->make->graph;
    const ul_value_id inputs[2] = {value, ul_build_ints(graph, "split", count, sizes)};
    ul_node_id node = ul_gradient_begin(p->make, UL_OP_Split, inputs, 2, count);
    ul_node_set_int(graph, node, "axis", 0);
    (void)ul_gradient_infer(p->make, node);
    return &graph->nodes[node];
}

static ul_value_id add_pieces(struct pieces *p, int64_t rows, int64_t piece)
{
    struct ul_gradient *make = p->make;
    uint32_t count = (uint32_t)((rows + piece - 1) / piece);
    int64_t *sizes = UL_NEW_ARRAY(make->scratch, int64_t, count);
    ul_value_id *parts = UL_NEW_ARRAY(make->scratch, ul_value_id, count);
    for (uint32_t i = 0; i < count; i++)
        sizes[i] = i + 1 < count ? piece : rows - piece * (count - 1);
    const ul_value_id *x = cut(p, p->x, sizes, count)->outputs;
    const ul_value_id *targets = cut(p, p->targets, sizes, count)->outputs;
    for (uint32_t i = 0; i < count; i++)
        parts[i] = add_piece(p, x[i], targets[i]);
    return ul_gradient_concat(make, parts, count, 0);
}

bool ul_loss_add_pieces(struct ul_loss_job *loss, ul_value_id logits, ul_value_id targets,
                        ul_value_id weights)
{
    struct ul_graph *graph = loss->graph;
    struct ul_gradient *make = &loss->make;
    const struct ul_type type = graph->values[logits].type;
    struct pieces p = {.loss = loss,
                       .make = make,
                       .bias = UL_NONE,
                       .targets = targets,
                       .weights = weights,
                       .sum = UL_NONE,
                       .correct = UL_NONE,
                       .dw = UL_NONE,
                       .dbias = UL_NONE};
    int64_t classes = type.dims[type.rank - 1];
    int64_t rows = (int64_t)(ul_type_elements(&type) / (uint64_t)classes);
    int64_t piece = PIECE_BYTES / (classes * ul_dtype_get(type.dtype)->size_bytes);
    const uint32_t *uses = ul_graph_count_uses(graph, loss->pass->scratch);
    bool has_parts = loss->training->micro_batches > 1;
    piece = piece < 1 ? 1 : piece;
    if (rows <= piece || uses[logits] > 1 || !find_product(&p, logits))
        return false;
    make->flags = UL_VALUE_BACKWARD;
    piece = (rows + (rows + piece - 1) / piece - 1) / ((rows + piece - 1) / piece); /* evenly */
    loss->training->piece_count = (uint32_t)((rows + piece - 1) / piece);
    loss->training->piece_bytes =
        (uint64_t)piece * (uint64_t)classes * ul_dtype_get(type.dtype)->size_bytes;
    ul_value_id weight = ul_loss_weigh(loss, targets, weights, type.dtype);
    p.scale = has_parts ? ul_build_number(graph, "", type.dtype, 0, 1)
                        : ul_gradient_unary(make, UL_OP_Reciprocal, weight);
    ul_value_id mean = p.scale, loss_scale = ul_loss_scale(graph, loss->training);
    if (loss_scale != UL_NONE)
        p.scale = ul_gradient_binary(make, UL_OP_Mul, mean,
                                     ul_gradient_cast_to(make, loss_scale, type.dtype));
    ul_value_id dx = add_pieces(&p, rows, piece);
    ul_value_id value = ul_gradient_binary(make, UL_OP_Mul, p.sum, mean);
    const ul_value_id inputs[7] = {value, p.x, dx, p.w, p.dw, p.bias, p.dbias};
    loss->sum = ul_gradient_node_of(make, UL_OP_WithGradients, inputs, p.bias != UL_NONE ? 7 : 5);
    loss->weight = has_parts ? weight : UL_NONE;
    make->flags = 0;
    loss->correct = p.correct;
    return true;
}
