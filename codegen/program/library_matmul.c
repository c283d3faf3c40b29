/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products as calls: src [batch .., m, k] times weights [batch .., k, n].
 *
 * Operands are taken in place, transposed or as slices, by their strides. Axes of the batch that
 * are one for all operands become one, most often with the rows, so that a constant right operand
 * is a plain matrix:
 *
 *      [1, 128, 768] x [768, 3072]  ->  [128, 768] x [768, 3072]
 *
 * Left undone: Gemm with a factor on C. */
#include "codegen/program/library_internal.h"
#include "ir/op_names.h"

#include "ir/geometry.h"

#include <string.h>

/* The operand with `rank` axes: axes of one element are added at the front, and next to a row or
 * column. */
static void widen(struct ul_call_tensor *tensor, uint32_t rank, bool is_vector, bool is_column)
{
    struct ul_call_tensor wide = {.rank = rank, .type = tensor->type};
    for (uint32_t d = 0; d < rank; d++)
        wide.dims[d] = 1;
    if (is_vector) {
        uint32_t at = is_column ? rank - 2 : rank - 1;
        wide.dims[at] = tensor->dims[0];
        wide.strides[at] = tensor->strides[0];
    }
    for (uint32_t d = 0; !is_vector && d < tensor->rank; d++) {
        wide.dims[rank - tensor->rank + d] = tensor->dims[d];
        wide.strides[rank - tensor->rank + d] = tensor->strides[d];
    }
    *tensor = wide;
}

/* The result with axes for the rows and columns that a vector operand lacks. */
static void widen_result(struct ul_call_tensor *tensor, const struct ul_matmul *matmul)
{
    struct ul_call_tensor wide = {.rank = matmul->batch.rank + 2, .type = tensor->type};
    uint32_t from = 0;
    for (uint32_t d = 0; d < wide.rank; d++) {
        bool missing = (d + 2 == wide.rank && matmul->a_is_vector) ||
                       (d + 1 == wide.rank && matmul->b_is_vector);
        wide.dims[d] = missing ? 1 : tensor->dims[from];
        wide.strides[d] = missing ? 0 : tensor->strides[from];
        from += !missing;
    }
    *tensor = wide;
}

static bool describe_result(struct ul_describer *describer, const struct ul_matmul *matmul)
{
    struct ul_call_tensor *dst = &describer->out->call.dst;
    if (matmul->a_is_vector && matmul->b_is_vector && matmul->batch.rank == 0)
        return false;
    if (!ul_describe_numbers(describer->graph, describer->out->args[UL_CALL_DST], dst))
        return false;
    widen_result(dst, matmul);
    return true;
}

bool ul_describe_matmul(struct ul_describer *describer, const struct ul_node *node)
{
    const struct ul_graph *graph = describer->graph;
    struct ul_group_call *out = describer->out;
    struct ul_matmul matmul;
    if (ul_matmul_read(&matmul, &graph->values[node->inputs[0]].type,
                       &graph->values[node->inputs[1]].type) != NULL ||
        matmul.batch.rank + 2 > UL_CALL_RANK ||
        !ul_describe_numbers(graph, node->inputs[0], &out->call.src) ||
        !ul_describe_numbers(graph, node->inputs[1], &out->call.weights) ||
        !describe_result(describer, &matmul))
        return false;
    out->call.kind = UL_CALL_MATMUL;
    if (ul_call_is_integer(&out->call) != (node->op == UL_OP_MatMulInteger) ||
        (node->op == UL_OP_MatMulInteger && !ul_describe_zeros(describer, node)))
        return false;
    out->args[UL_CALL_SRC] = node->inputs[0];
    out->args[UL_CALL_WEIGHTS] = node->inputs[1];
    widen(&out->call.src, out->call.dst.rank, matmul.a_is_vector, false);
    widen(&out->call.weights, out->call.dst.rank, matmul.b_is_vector, true);
    const int64_t dims[] = {matmul.rows, matmul.columns, matmul.depth};
    out->product_count = ul_describe_products(ul_type_elements(&matmul.batch), 3, dims);
    return true;
}

static void transpose(struct ul_call_tensor *tensor)
{
    int64_t dim = tensor->dims[0];
    int64_t stride = tensor->strides[0];
    tensor->dims[0] = tensor->dims[1];
    tensor->strides[0] = tensor->strides[1];
    tensor->dims[1] = dim;
    tensor->strides[1] = stride;
}

bool ul_describe_gemm(struct ul_describer *describer, const struct ul_node *node)
{
    const struct ul_graph *graph = describer->graph;
    struct ul_group_call *out = describer->out;
    double alpha = ul_node_get_float(node, "alpha", 1);
    double beta = ul_node_get_float(node, "beta", 1);
    bool adds = node->input_count > 2 && node->inputs[2] != UL_NONE && beta != 0;
    if (!ul_describe_tensor(graph, node->inputs[0], &out->call.src) ||
        !ul_describe_tensor(graph, node->inputs[1], &out->call.weights) ||
        !ul_describe_tensor(graph, out->args[UL_CALL_DST], &out->call.dst) || (adds && beta != 1))
        return false;
    out->call.kind = UL_CALL_MATMUL;
    out->args[UL_CALL_SRC] = node->inputs[0];
    out->args[UL_CALL_WEIGHTS] = node->inputs[1];
    if (ul_node_get_int(node, "transA", 0) != 0)
        transpose(&out->call.src);
    if (ul_node_get_int(node, "transB", 0) != 0)
        transpose(&out->call.weights);
    const int64_t dims[] = {out->call.src.dims[0], out->call.src.dims[1],
                            out->call.weights.dims[1]};
    out->product_count = ul_describe_products(1, 3, dims);
    if (alpha != 1 && !ul_describe_linear(describer, alpha, 0))
        return false;
    return !adds || ul_describe_add(describer, node->inputs[2]);
}

/* ---- the batch ---- */

static bool can_join(const struct ul_call_tensor *tensor, const struct ul_call_tensor *dst,
                     uint32_t axis)
{
    uint32_t next = axis + 1;
    if (dst->dims[axis] == 1 || dst->dims[next] == 1 ||
        (tensor->dims[axis] == 1 && tensor->dims[next] == 1))
        return true;
    return tensor->dims[axis] == dst->dims[axis] && tensor->dims[next] == dst->dims[next] &&
           tensor->strides[axis] == tensor->strides[next] * tensor->dims[next];
}

static void join(struct ul_call_tensor *tensor, uint32_t axis)
{
    uint32_t next = axis + 1;
    if (tensor->dims[next] == 1)
        tensor->strides[next] = tensor->strides[axis];
    tensor->dims[next] *= tensor->dims[axis];
    tensor->rank--;
    for (uint32_t d = axis; d < tensor->rank; d++) {
        tensor->dims[d] = tensor->dims[d + 1];
        tensor->strides[d] = tensor->strides[d + 1];
    }
    tensor->dims[tensor->rank] = 0;
    tensor->strides[tensor->rank] = 0;
}

/* Removes an axis of one element. */
static void drop(struct ul_call_tensor *tensor, uint32_t axis)
{
    for (uint32_t d = axis; d + 1 < tensor->rank; d++) {
        tensor->dims[d] = tensor->dims[d + 1];
        tensor->strides[d] = tensor->strides[d + 1];
    }
    tensor->rank--;
    tensor->dims[tensor->rank] = 0;
    tensor->strides[tensor->rank] = 0;
}

/* Whether the axis may become one with the next; with the rows only where all share one right
 * operand. */
static bool all_can_join(const struct ul_call *call, uint32_t axis)
{
    bool rows = axis + 3 == call->dst.rank;
    bool good = can_join(&call->src, &call->dst, axis) && can_join(&call->dst, &call->dst, axis) &&
                (rows ? call->weights.dims[axis] == 1 : can_join(&call->weights, &call->dst, axis));
    for (uint32_t i = 0; good && i < call->post_count; i++)
        good =
            call->posts[i].tensor.rank == 0 || can_join(&call->posts[i].tensor, &call->dst, axis);
    return good;
}

void ul_describe_join_batch(struct ul_call *call)
{
    for (uint32_t axis = call->dst.rank - 2; axis-- > 0;) {
        bool rows = axis + 3 == call->dst.rank;
        if (!all_can_join(call, axis))
            continue;
        join(&call->src, axis);
        if (rows)
            drop(&call->weights, axis);
        else
            join(&call->weights, axis);
        if (call->bias.rank > 0)
            drop(&call->bias, axis);
        for (uint32_t i = 0; i < call->post_count; i++) {
            if (call->posts[i].tensor.rank > 0)
                join(&call->posts[i].tensor, axis);
        }
        join(&call->dst, axis);
    }
    ul_describe_finalize(&call->src, call->kind);
    ul_describe_finalize(&call->weights, call->kind);
    ul_describe_finalize(&call->dst, call->kind);
    if (call->bias.rank > 0)
        ul_describe_finalize(&call->bias, call->kind);
    for (uint32_t i = 0; i < call->post_count; i++) {
        if (call->posts[i].tensor.rank > 0)
            ul_describe_finalize(&call->posts[i].tensor, call->kind);
    }
}
