/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of Softmax and LogSoftmax: rows at once, from the result alone.
 *
 *     y = softmax x       dx = y (g - sum of g y)
 *     y = log softmax x   dx = g - exp(y) * sum of g */
#include "ir/op_names.h"
#include "ir/ops/backward.def"
#include "ir/ops/norm/norm.h"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/lanes.h"

enum { GRADIENT, RESULT };

struct row {
    struct ul_lanes lanes;
    const struct ul_node *node;
    enum ul_dtype dtype;
    bool is_log;
};

enum ul_status ul_infer_softmax_gradient(struct ul_infer *infer)
{
    const struct ul_type *type = ul_infer_input(infer, RESULT);
    UL_TRY(ul_infer_softmax(infer));
    UL_TRY(ul_check_same_dtype(infer, GRADIENT, RESULT));
    return ul_check_shape(infer, GRADIENT, type->rank, type->dims);
}

static ul_kx load(struct ul_lanes *lanes, const struct row *row, uint32_t input)
{
    return ul_kx_cast(lanes->lower->kernel, row->dtype,
                      ul_lower_load(lanes->lower, row->node->inputs[input], lanes->index));
}

static ul_kx load_term(struct ul_lanes *lanes, const void *context)
{
    const struct row *row = context;
    ul_kx g = load(lanes, row, GRADIENT);
    if (row->is_log)
        return g;
    return ul_kx_mul(lanes->lower->kernel, g, load(lanes, row, RESULT));
}

void ul_lower_softmax_gradient(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_type *type = ul_lower_output_type(lower, node, 0);
    struct row row = {.node = ul_check_node(lower, node), .dtype = ul_compute_dtype(type->dtype)};
    uint32_t mask;
    bool valid = ul_softmax_mask(row.node, type->rank, &mask);
    UL_ASSERT(valid);
    row.is_log = row.node->op == UL_OP_LogSoftmaxGradient;
    struct ul_lanes *lanes = &row.lanes;
    ul_lanes_open(lanes, lower, row.node->outputs[0], ul_lanes_all(type->rank) & ~mask);
    struct ul_lane_var sum =
        ul_lanes_reduce(lanes, mask, UL_KX_ADD, ul_kx_float(k, row.dtype, 0.0), load_term, &row);
    ul_lanes_loop(lanes, mask, UL_FOR_PARALLEL);
    ul_lanes_begin(lanes);
    ul_kx g = load(lanes, &row, GRADIENT), y = load(lanes, &row, RESULT);
    ul_kx total = ul_lanes_get(lanes, sum);
    ul_kx dx = row.is_log ? ul_kx_sub(k, g, ul_kx_mul(k, ul_kx_unary(k, UL_KX_EXP, y), total))
                          : ul_kx_mul(k, y, ul_kx_sub(k, g, total));
    ul_lower_store(lower, row.node->outputs[0], lanes->index, dx);
    ul_lanes_end(lanes);
    ul_lanes_loop_end(lanes, mask);
    ul_lanes_close(lanes);
}

enum ul_status ul_gradient_softmax(struct ul_gradient *gradient)
{
    const ul_value_id inputs[2] = {ul_gradient_of(gradient, 0), ul_gradient_output(gradient, 0)};
    bool is_log = ul_gradient_node(gradient)->op == UL_OP_LogSoftmax;
    ul_op_id op = is_log ? UL_OP_LogSoftmaxGradient : UL_OP_SoftmaxGradient;
    ul_node_id node = ul_gradient_begin_like(gradient, op, inputs, 2, 1);
    ul_gradient_give(gradient, 0, ul_build_infer(&gradient->build, node));
    return UL_OK;
}
