/* SPDX-License-Identifier: Apache-2.0 */
/* What losses of classes are made from, whole or in pieces. */
#include "ir/op_names.h"
#include "passes/training/loss_internal.h"

ul_value_id ul_loss_sum(struct ul_gradient *make, ul_value_id value)
{
    ul_node_id node = ul_build_node(&make->build, UL_OP_ReduceSum, &value, 1, 1);
    ul_node_set_int(make->graph, node, "keepdims", 0);
    return ul_build_infer(&make->build, node);
}

static ul_value_id is_ignored(struct ul_loss_job *loss, ul_value_id targets)
{
    ul_value_id ignored =
        ul_build_number(loss->graph, "", UL_I64, 0, (double)loss->training->ignore_index);
    return ul_build_binary(&loss->make.build, UL_OP_Equal, targets, ignored);
}

ul_value_id ul_loss_count_correct(struct ul_loss_job *loss, ul_value_id scores, ul_value_id targets)
{
    struct ul_gradient *make = &loss->make;
    const int64_t ignore_index = loss->training->ignore_index;
    const bool is_class = ignore_index >= 0 && ignore_index < loss->training->class_count;
    ul_node_id best = ul_build_node(&make->build, UL_OP_ArgMax, &scores, 1, 1);
    ul_node_set_int(make->graph, best, "axis", 1);
    ul_node_set_int(make->graph, best, "keepdims", 0);
    ul_value_id equal =
        ul_build_binary(&make->build, UL_OP_Equal, ul_build_infer(&make->build, best), targets);
    if (is_class) /* nothing else is found where a label is ignored */
        equal = ul_build_binary(&make->build, UL_OP_And, equal,
                                ul_build_unary(&make->build, UL_OP_Not, is_ignored(loss, targets)));
    return ul_loss_sum(make, ul_build_cast(&make->build, equal, UL_I64));
}

ul_value_id ul_loss_weigh(struct ul_loss_job *loss, ul_value_id targets, ul_value_id weights,
                          enum ul_dtype dtype)
{
    struct ul_gradient *make = &loss->make;
    UL_ASSERT(ul_gradient_type(make, targets).dtype == UL_I64);
    ul_value_id none = is_ignored(loss, targets);
    ul_value_id kept =
        ul_build_cast(&make->build, ul_build_unary(&make->build, UL_OP_Not, none), dtype);
    if (weights != UL_NONE) {
        ul_value_id first = ul_build_number(loss->graph, "", UL_I64, 0, 0);
        ul_value_id class = ul_build_choose(&make->build, none, first, targets);
        ul_value_id each = ul_build_binary(&make->build, UL_OP_Gather, weights, class);
        kept = ul_build_binary(&make->build, UL_OP_Mul, kept, each);
    }
    return ul_loss_sum(make, kept);
}

ul_node_id ul_loss_begin_cross_entropy(struct ul_loss_job *loss, ul_op_id op,
                                       const ul_value_id *inputs, uint32_t count)
{
    ul_node_id node = ul_build_node(&loss->make.build, op, inputs, count, 1);
    ul_node_set_int(loss->graph, node, "ignore_index", loss->training->ignore_index);
    ul_node_set_float(loss->graph, node, "ul_label_smoothing", loss->training->label_smoothing);
    return node;
}

uint32_t ul_loss_element_bytes(const struct ul_loss_job *loss, enum ul_dtype dtype)
{
    enum ul_dtype precision = loss->pass->options->precision;
    bool is_half = dtype == UL_F32 && ul_dtype_is_half(precision);
    return ul_dtype_get(is_half ? precision : dtype)->size_bytes;
}

ul_value_id ul_loss_begin_mean(struct ul_loss_job *loss, ul_value_id targets, ul_value_id weights,
                               enum ul_dtype dtype, ul_value_id *scale)
{
    struct ul_gradient *make = &loss->make;
    bool has_parts = loss->training->micro_batches > 1;
    ul_value_id weight = ul_loss_weigh(loss, targets, weights, dtype);
    ul_value_id mean = has_parts ? ul_build_number(loss->graph, "", dtype, 0, 1)
                                 : ul_build_unary(&make->build, UL_OP_Reciprocal, weight);
    ul_value_id loss_scale = ul_loss_scale(loss->graph, loss->training);
    *scale = mean;
    if (loss_scale != UL_NONE)
        *scale = ul_build_binary(&make->build, UL_OP_Mul, mean,
                                 ul_build_cast(&make->build, loss_scale, dtype));
    loss->weight = has_parts ? weight : UL_NONE;
    return mean;
}

bool ul_loss_find_product(struct ul_gradient *make, ul_value_id logits,
                          struct ul_loss_product *product)
{
    struct ul_graph *graph = make->graph;
    const struct ul_node node = graph->nodes[graph->values[logits].producer];
    bool is_gemm = node.op == UL_OP_Gemm;
    if (!is_gemm && node.op != UL_OP_MatMul)
        return false;
    const struct ul_type *x = &graph->values[node.inputs[0]].type;
    const struct ul_type *w = &graph->values[node.inputs[1]].type;
    *product = (struct ul_loss_product){node.inputs[0], node.inputs[1], UL_NONE};
    if (is_gemm &&
        (ul_node_get_int(&node, "transA", 0) != 0 || ul_node_get_float(&node, "alpha", 1) != 1 ||
         ul_node_get_float(&node, "beta", 1) != 1))
        return false;
    if (w->rank != 2 || x->rank < 2)
        return false;
    if (is_gemm && node.input_count > 2)
        product->bias = node.inputs[2];
    if (product->bias != UL_NONE && graph->values[product->bias].type.rank != 1)
        return false;
    const int64_t dims[2] = {(int64_t)(ul_type_elements(x) / (uint64_t)w->dims[0]), w->dims[0]};
    if (x->rank > 2)
        product->x = ul_build_reshape(&make->build, product->x, 2, dims);
    if (is_gemm && ul_node_get_int(&node, "transB", 0) != 0)
        product->w = ul_build_swap(&make->build, product->w);
    return true;
}

const ul_value_id *ul_loss_cut(struct ul_gradient *make, ul_value_id value, uint32_t axis,
                               const int64_t *sizes, uint32_t count)
{
    const ul_value_id inputs[2] = {value, ul_build_ints(make->graph, "split", count, sizes)};
    ul_node_id node = ul_build_node(&make->build, UL_OP_Split, inputs, 2, count);
    ul_node_set_int(make->graph, node, "axis", axis);
    (void)ul_build_infer(&make->build, node);
    return make->graph->nodes[node].outputs;
}
