/* SPDX-License-Identifier: Apache-2.0 */
/* CumSum and CumProd: running sums and products along an axis, forward or backward, with or
 * without the element itself. Sequential along the axis, parallel over the rest. */
#include "ir/ops/reduce/reduce.h"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/lanes.h"

enum ul_status ul_infer_scan_sum(struct ul_infer *infer)
{
    const struct ul_type *type = ul_infer_input(infer, 0);
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_FLOATS | UL_CHECK_WIDE_INTS));
    UL_TRY(ul_check_dtype(infer, 1, UL_CHECK_INDEXES));
    int64_t requested;
    UL_TRY(ul_check_int(infer, 1, 0, &requested));
    uint32_t axis;
    UL_TRY(ul_infer_axis(infer, requested, type->rank, &axis));
    ul_infer_set_type(infer, 0, type);
    return UL_OK;
}

static void lower_scan(struct ul_lower *lower, ul_node_id node, enum ul_kx_op combine)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *data = ul_check_node(lower, node);
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    enum ul_dtype dtype = ul_compute_dtype(type->dtype);
    int64_t requested = ul_check_get_int(lower, node, 1, 0);
    uint32_t axis = ul_check_get_axis(requested, type->rank);
    bool exclusive = ul_node_get_int(data, "exclusive", 0) != 0;
    uint32_t kept = ul_lanes_all(type->rank) & ~(1u << axis);
    struct ul_lanes lanes;
    ul_lanes_open(&lanes, lower, data->outputs[0], kept);
    struct ul_lane_var acc =
        ul_lanes_var(&lanes, dtype, ul_kx_number(k, dtype, combine == UL_KX_MUL ? 1.0 : 0.0));
    ul_lanes_loop(&lanes, 1u << axis, 0);
    if (ul_node_get_int(data, "reverse", 0) != 0)
        lanes.index[axis] =
            ul_kx_sub(k, ul_kx_index_const(k, type->dims[axis] - 1), lanes.index[axis]);
    ul_lanes_begin(&lanes);
    /* Read before the store: the output may lie over the input. */
    ul_kx x = ul_ks_let(k, ul_lower_load(lower, data->inputs[0], lanes.index));
    ul_kx before = ul_ks_let(k, ul_lanes_get(&lanes, acc));
    ul_kx after = ul_ks_let(k, ul_kx_binary(k, combine, before, x));
    ul_lower_store(lower, data->outputs[0], lanes.index, exclusive ? before : after);
    ul_lanes_set(&lanes, acc, after);
    ul_lanes_end(&lanes);
    ul_lanes_loop_end(&lanes, 1u << axis);
    ul_lanes_close(&lanes);
}

void ul_lower_cum_sum(struct ul_lower *lower, ul_node_id node)
{
    lower_scan(lower, node, UL_KX_ADD);
}

void ul_lower_cum_prod(struct ul_lower *lower, ul_node_id node)
{
    lower_scan(lower, node, UL_KX_MUL);
}
