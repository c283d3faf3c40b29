/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of products: with Y = A B, dA = dY B^T and dB = A^T dY; a factor that was repeated over
 * a batch has the sum of the batch's, which is one longer product where it is a matrix. */
#include "ir/op_names.h"
#include "ir/ops/matmul/matmul.h"

/* Turns the batch in front of a matrix into rows of it. */
static ul_value_id flatten(struct ul_gradient *gradient, ul_value_id value)
{
    struct ul_type type = ul_gradient_type(gradient, value);
    struct ul_type flat = {.dtype = type.dtype, .rank = 2, .dims = {1, type.dims[type.rank - 1]}};
    for (uint32_t d = 0; d + 1 < type.rank; d++)
        flat.dims[0] *= type.dims[d];
    return ul_build_reshape_to(&gradient->build, value, &flat);
}

/* Turns vectors into matrices: a first operand into one row, a second one into one column. */
static ul_value_id as_matrix(struct ul_gradient *gradient, ul_value_id value, bool is_row)
{
    struct ul_type type = ul_gradient_type(gradient, value);
    struct ul_type matrix = {.dtype = type.dtype, .rank = 2, .dims = {1, 1}};
    if (type.rank != 1)
        return value;
    matrix.dims[is_row ? 1 : 0] = type.dims[0];
    return ul_build_reshape_to(&gradient->build, value, &matrix);
}

/* The result's gradient with the dimensions that vectors lack. */
static ul_value_id full_result(struct ul_gradient *gradient, ul_value_id g, bool a_is_vector,
                               bool b_is_vector)
{
    struct ul_type from = ul_gradient_type(gradient, g), type = from;
    uint32_t batch = from.rank - (a_is_vector ? 0 : 1) - (b_is_vector ? 0 : 1);
    type.rank = batch + 2;
    type.dims[batch] = a_is_vector ? 1 : from.dims[batch];
    type.dims[batch + 1] = b_is_vector ? 1 : from.dims[from.rank - 1];
    return ul_build_reshape_to(&gradient->build, g, &type);
}

static void give_factor(struct ul_gradient *gradient, uint32_t input, ul_value_id share)
{
    ul_value_id value = ul_gradient_input(gradient, input);
    struct ul_type type = ul_gradient_type(gradient, value);
    struct ul_type from = ul_gradient_type(gradient, share);
    if (type.rank == 1) { /* the batch of a vector's, then the vector itself */
        share = ul_build_sum(&gradient->build, share, (1u << (from.rank - 2)) - 1);
        ul_gradient_give(gradient, input, ul_build_reshape_to(&gradient->build, share, &type));
        return;
    }
    ul_gradient_give_broadcast(gradient, input, share);
}

/* dB = A^T dY. Where B is a transposed matrix, as exporters write weights, it is (dY^T A)^T: the
 * weight's own gradient then has the weight's layout, and its update reads both along their
 * rows. */
static ul_value_id second_factor(struct ul_gradient *gradient, ul_value_id a, ul_value_id g)
{
    const struct ul_value *b = &gradient->graph->values[ul_gradient_input(gradient, 1)];
    bool is_turned = b->kind == UL_VALUE_NODE && b->type.rank == 2 &&
                     gradient->graph->nodes[b->producer].op == UL_OP_Transpose;
    if (!is_turned)
        return ul_build_binary(&gradient->build, UL_OP_MatMul, ul_build_swap(&gradient->build, a),
                               g);
    return ul_build_swap(&gradient->build, ul_build_binary(&gradient->build, UL_OP_MatMul,
                                                           ul_build_swap(&gradient->build, g), a));
}

enum ul_status ul_gradient_matmul(struct ul_gradient *gradient)
{
    ul_value_id a = ul_gradient_input(gradient, 0), b = ul_gradient_input(gradient, 1);
    uint32_t a_rank = ul_gradient_type(gradient, a).rank;
    uint32_t b_rank = ul_gradient_type(gradient, b).rank;
    ul_value_id g = full_result(gradient, ul_gradient_of(gradient, 0), a_rank == 1, b_rank == 1);
    a = as_matrix(gradient, a, true);
    b = as_matrix(gradient, b, false);
    if (ul_gradient_wanted(gradient, 1)) {
        bool is_flat = b_rank <= 2;
        ul_value_id rows = is_flat ? flatten(gradient, a) : a;
        ul_value_id results = is_flat ? flatten(gradient, g) : g;
        give_factor(gradient, 1, second_factor(gradient, rows, results));
    }
    if (ul_gradient_wanted(gradient, 0))
        give_factor(
            gradient, 0,
            ul_build_binary(&gradient->build, UL_OP_MatMul, g, ul_build_swap(&gradient->build, b)));
    return UL_OK;
}

/* op(a) op(b) times alpha, each factor as it is or transposed. */
static ul_value_id product(struct ul_gradient *gradient, ul_value_id a, bool a_turned,
                           ul_value_id b, bool b_turned, double alpha)
{
    const ul_value_id inputs[2] = {a, b};
    ul_node_id node = ul_build_node(&gradient->build, UL_OP_Gemm, inputs, 2, 1);
    ul_node_set_int(gradient->graph, node, "transA", a_turned);
    ul_node_set_int(gradient->graph, node, "transB", b_turned);
    ul_node_set_float(gradient->graph, node, "alpha", alpha);
    return ul_build_infer(&gradient->build, node);
}

enum ul_status ul_gradient_gemm(struct ul_gradient *gradient)
{
    const struct ul_node *node = ul_gradient_node(gradient);
    ul_value_id a = node->inputs[0], b = node->inputs[1];
    bool a_turned = ul_node_get_int(node, "transA", 0) != 0;
    bool b_turned = ul_node_get_int(node, "transB", 0) != 0;
    double alpha = ul_node_get_float(node, "alpha", 1.0),
           beta = ul_node_get_float(node, "beta", 1.0);
    ul_value_id g = ul_gradient_of(gradient, 0);
    if (ul_gradient_wanted(gradient, 1))
        ul_gradient_give(gradient, 1,
                         b_turned ? product(gradient, g, true, a, a_turned, alpha)
                                  : product(gradient, a, !a_turned, g, false, alpha));
    if (ul_gradient_wanted(gradient, 2))
        ul_gradient_give_broadcast(gradient, 2,
                                   beta != 1.0 ? ul_build_scale(&gradient->build, g, beta) : g);
    if (ul_gradient_wanted(gradient, 0))
        ul_gradient_give(gradient, 0,
                         a_turned ? product(gradient, b, b_turned, g, true, alpha)
                                  : product(gradient, g, false, b, !b_turned, alpha));
    return UL_OK;
}
