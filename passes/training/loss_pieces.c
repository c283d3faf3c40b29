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
#include "ir/op_names.h"
#include "passes/training/loss_internal.h"

#include "ir/gradient.h"
#include "ir/op.h"

enum { PIECE_BYTES = 32 << 20 };

struct pieces {
    struct ul_loss_job *loss;
    struct ul_gradient *make;
    struct ul_loss_product product;
    ul_value_id targets, weights;
    ul_value_id scale; /* of gradients: 1 over the weight of all labels, and the loss scale */
    ul_value_id sum, correct, dw, dbias;
};

static void add_to(struct pieces *p, ul_value_id *sum, ul_value_id more)
{
    *sum = *sum == UL_NONE ? more : ul_build_binary(&p->make->build, UL_OP_Add, *sum, more);
}

/* Forward and back; the gradient of the piece's rows. */
static ul_value_id add_piece(struct pieces *p, ul_value_id x, ul_value_id targets)
{
    struct ul_gradient *make = p->make;
    ul_value_id y = ul_build_binary(&make->build, UL_OP_MatMul, x, p->product.w);
    if (p->product.bias != UL_NONE)
        y = ul_build_binary(&make->build, UL_OP_Add, y, p->product.bias);
    const ul_value_id inputs[4] = {y, targets, p->weights, p->scale};
    ul_node_id node = ul_loss_begin_cross_entropy(p->loss, UL_OP_SoftmaxCrossEntropyLoss, inputs,
                                                  p->weights != UL_NONE ? 3 : 2);
    ul_node_set_string(make->graph, node, "reduction", "sum");
    add_to(p, &p->sum, ul_build_infer(&make->build, node));
    add_to(p, &p->correct, ul_loss_count_correct(p->loss, y, targets));
    node = ul_loss_begin_cross_entropy(p->loss, UL_OP_CrossEntropyGradient, inputs, 4);
    ul_value_id dy = ul_build_infer(&make->build, node);
    add_to(p, &p->dw,
           ul_build_binary(&make->build, UL_OP_MatMul, ul_build_swap(&make->build, x), dy));
    if (p->product.bias != UL_NONE) {
        struct ul_type type = ul_gradient_type(make, p->product.bias);
        add_to(p, &p->dbias,
               ul_build_reshape_to(&make->build, ul_build_sum(&make->build, dy, 1), &type));
    }
    return ul_build_binary(&make->build, UL_OP_MatMul, dy,
                           ul_build_swap(&make->build, p->product.w));
}

static ul_value_id add_pieces(struct pieces *p, int64_t rows, int64_t piece)
{
    struct ul_gradient *make = p->make;
    uint32_t count = (uint32_t)((rows + piece - 1) / piece);
    int64_t *sizes = UL_NEW_ARRAY(make->scratch, int64_t, count);
    ul_value_id *parts = UL_NEW_ARRAY(make->scratch, ul_value_id, count);
    for (uint32_t i = 0; i < count; i++)
        sizes[i] = i + 1 < count ? piece : rows - piece * (count - 1);
    const ul_value_id *x = ul_loss_cut(make, p->product.x, 0, sizes, count);
    const ul_value_id *targets = ul_loss_cut(make, p->targets, 0, sizes, count);
    for (uint32_t i = 0; i < count; i++)
        parts[i] = add_piece(p, x[i], targets[i]);
    return ul_build_concat(&make->build, parts, count, 0, NULL);
}

bool ul_loss_add_pieces(struct ul_loss_job *loss, ul_value_id logits, ul_value_id targets,
                        ul_value_id weights)
{
    struct ul_graph *graph = loss->graph;
    struct ul_gradient *make = &loss->make;
    const struct ul_type type = graph->values[logits].type;
    struct pieces p = {.loss = loss,
                       .make = make,
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
    piece = piece < 1 ? 1 : piece;
    if (rows <= piece || uses[logits] > 1 || !ul_loss_find_product(make, logits, &p.product))
        return false;
    make->build.flags = UL_VALUE_BACKWARD;
    piece = (rows + (rows + piece - 1) / piece - 1) / ((rows + piece - 1) / piece); /* evenly */
    loss->training->piece_count = (uint32_t)((rows + piece - 1) / piece);
    loss->training->piece_bytes =
        (uint64_t)piece * (uint64_t)classes * ul_loss_element_bytes(loss, type.dtype);
    ul_value_id mean = ul_loss_begin_mean(loss, targets, weights, type.dtype, &p.scale);
    ul_value_id dx = add_pieces(&p, rows, piece);
    ul_value_id value = ul_build_binary(&make->build, UL_OP_Mul, p.sum, mean);
    const ul_value_id inputs[7] = {value, p.product.x,    dx,     p.product.w,
                                   p.dw,  p.product.bias, p.dbias};
    loss->sum = ul_build_value(&make->build, UL_OP_WithGradients, inputs,
                               p.product.bias != UL_NONE ? 7 : 5, NULL);
    make->build.flags = 0;
    loss->correct = p.correct;
    return true;
}
