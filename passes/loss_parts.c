/* SPDX-License-Identifier: Apache-2.0 */
/* What losses of classes are made of, whole or in pieces. */
#include "passes/loss_internal.h"

ul_value_id ul_loss_sum(struct ul_gradient *make, ul_value_id value)
{
    ul_node_id node = ul_gradient_begin(make, UL_OP_ReduceSum, &value, 1, 1);
    ul_node_set_int(make->graph, node, "keepdims", 0);
    return ul_gradient_infer(make, node);
}

static ul_value_id is_ignored(struct ul_loss_job *loss, ul_value_id targets)
{
    ul_value_id ignored =
        ul_build_number(loss->graph, "", UL_I64, 0, (double)loss->training->ignore_index);
    return ul_gradient_binary(&loss->make, UL_OP_Equal, targets, ignored);
}

ul_value_id ul_loss_count_correct(struct ul_loss_job *loss, ul_value_id scores, ul_value_id targets)
{
    struct ul_gradient *make = &loss->make;
    const int64_t ignore_index = loss->training->ignore_index;
    const bool is_class = ignore_index >= 0 && ignore_index < loss->training->class_count;
    ul_node_id best = ul_gradient_begin(make, UL_OP_ArgMax, &scores, 1, 1);
    ul_node_set_int(make->graph, best, "axis", 1);
    ul_node_set_int(make->graph, best, "keepdims", 0);
    ul_value_id equal =
        ul_gradient_binary(make, UL_OP_Equal, ul_gradient_infer(make, best), targets);
    if (is_class) /* nothing else is found where a label is ignored */
        equal = ul_gradient_binary(make, UL_OP_And, equal,
                                   ul_gradient_unary(make, UL_OP_Not, is_ignored(loss, targets)));
    return ul_loss_sum(make, ul_gradient_cast_to(make, equal, UL_I64));
}

ul_value_id ul_loss_weigh(struct ul_loss_job *loss, ul_value_id targets, ul_value_id weights,
                          enum ul_dtype dtype)
{
    struct ul_gradient *make = &loss->make;
    UL_ASSERT(ul_gradient_type(make, targets).dtype == UL_I64);
    ul_value_id none = is_ignored(loss, targets);
    ul_value_id kept = ul_gradient_cast_to(make, ul_gradient_unary(make, UL_OP_Not, none), dtype);
    if (weights != UL_NONE) {
        ul_value_id first = ul_build_number(loss->graph, "", UL_I64, 0, 0);
        ul_value_id class = ul_gradient_choose(make, none, first, targets);
        ul_value_id each = ul_gradient_binary(make, UL_OP_Gather, weights, class);
        kept = ul_gradient_binary(make, UL_OP_Mul, kept, each);
    }
    return ul_loss_sum(make, kept);
}

ul_node_id ul_loss_begin_cross_entropy(struct ul_loss_job *loss, enum ul_op op,
                                       const ul_value_id *inputs, uint32_t count)
{
    ul_node_id node = ul_gradient_begin(&loss->make, op, inputs, count, 1);
    ul_node_set_int(loss->graph, node, "ignore_index", loss->training->ignore_index);
    ul_node_set_float(loss->graph, node, "ul_label_smoothing", loss->training->label_smoothing);
    return node;
}
