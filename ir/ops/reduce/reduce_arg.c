/* SPDX-License-Identifier: Apache-2.0 */
/* ArgMax and ArgMin: where along an axis the extreme element is. The first of equal elements
 * wins, or the last when asked for; a NaN beats every number, as in numpy. */
#include "ir/ops/reduce/reduce.h"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/partials.h"

enum ul_status ul_infer_arg(struct ul_infer *infer)
{
    const struct ul_type *type = ul_infer_input(infer, 0);
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_NUMBERS));
    uint32_t axis;
    UL_TRY(ul_infer_axis(infer, ul_node_get_int(infer->node, "axis", 0), type->rank, &axis));
    if (type->dims[axis] == 0)
        return ul_infer_invalid(infer, "axis %u has no elements to choose from", (unsigned)axis);
    bool keepdims = ul_node_get_int(infer->node, "keepdims", 1) != 0;
    int64_t dims[UL_LIMIT_RANK];
    uint32_t rank = 0;
    for (uint32_t d = 0; d < type->rank; d++) {
        if (d != axis || keepdims)
            dims[rank++] = d == axis ? 1 : type->dims[d];
    }
    ul_infer_set(infer, 0, UL_I64, rank, dims);
    return UL_OK;
}

static ul_kx is_better(struct ul_kernel *k, ul_kx x, ul_kx best, bool smallest, bool last)
{
    enum ul_kx_op compare = last ? UL_KX_LE : UL_KX_LT;
    ul_kx better = smallest ? ul_kx_binary(k, compare, x, best) : ul_kx_binary(k, compare, best, x);
    if (!ul_dtype_get(ul_kx_dtype(k, x))->is_float)
        return better;
    ul_kx nan = ul_kx_unary(k, UL_KX_ISNAN, x);
    if (!last)
        nan = ul_kx_binary(k, UL_KX_AND, nan,
                           ul_kx_unary(k, UL_KX_NOT, ul_kx_unary(k, UL_KX_ISNAN, best)));
    return ul_kx_binary(k, UL_KX_OR, better, nan);
}

static void store_arg(struct ul_lanes *lanes, ul_node_id node, uint32_t axis, bool keepdims,
                      ul_kx where)
{
    ul_kx index[UL_LIMIT_RANK];
    uint32_t rank = 0;
    for (uint32_t d = 0; d < lanes->rank; d++) {
        if (d != axis)
            index[rank++] = lanes->index[d];
        else if (keepdims)
            index[rank++] = ul_kx_index_const(lanes->lower->kernel, 0);
    }
    ul_lower_store(lanes->lower, ul_check_node(lanes->lower, node)->outputs[0], index, where);
}

/* ---- By a team of threads ---- */

/* A search for the place of the smallest or largest element along an axis of `x`. */
struct search {
    ul_value_id x;
    uint32_t axis;
    int64_t none; /* what is stored in place of elements that are not the extreme one */
    ul_kx best;   /* the extreme element */
};

static ul_kx load_element(struct ul_lanes *lanes, const void *context)
{
    const struct search *search = context;
    return ul_lower_load(lanes->lower, search->x, lanes->index);
}

static ul_kx load_place(struct ul_lanes *lanes, const void *context)
{
    const struct search *search = context;
    struct ul_kernel *k = lanes->lower->kernel;
    ul_kx x = ul_ks_let(k, load_element(lanes, context));
    ul_kx is_best = ul_kx_binary(k, UL_KX_EQ, x, search->best);
    if (ul_dtype_get(ul_kx_dtype(k, x))->is_float)
        is_best = ul_kx_binary(k, UL_KX_OR, is_best,
                               ul_kx_binary(k, UL_KX_AND, ul_kx_unary(k, UL_KX_ISNAN, x),
                                            ul_kx_unary(k, UL_KX_ISNAN, search->best)));
    return ul_kx_select(k, is_best, lanes->index[search->axis], ul_kx_index_const(k, search->none));
}

/* On a device one thread would read a long axis alone. Where the elements of the axis lie side by
 * side, a team of threads finds the extreme element, then its first place, or its last. Returns
 * false where they do not, or the axis is short. */
static bool lower_by_team(struct ul_lower *lower, ul_node_id node, uint32_t axis, bool smallest)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *data = ul_check_node(lower, node);
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    enum ul_dtype dtype = ul_compute_dtype(type->dtype);
    bool last = ul_node_get_int(data, "select_last_index", 0) != 0;
    struct search search = {
        .x = data->inputs[0], .axis = axis, .none = last ? -1 : type->dims[axis]};
    uint32_t order[UL_LIMIT_RANK];
    struct ul_lanes lanes;
    struct ul_partials best, where;
    ul_lower_order(lower, search.x, order);
    ul_lanes_init(&lanes, lower, type->rank, type->dims, order);
    if (!ul_partials_apply(&lanes, 1u << axis))
        return false;
    enum ul_dtype first = ul_dtype_get(type->dtype)->is_float ? dtype : type->dtype;
    ul_kx worst = ul_kx_cast(
        k, dtype, ul_reduce_first_value(k, smallest ? UL_REDUCE_HIGHEST : UL_REDUCE_LOWEST, first));
    ul_partials_init(&best, &lanes, 1u << axis, smallest ? UL_KX_MIN : UL_KX_MAX, worst,
                     load_element, &search);
    ul_partials_init(&where, &lanes, 1u << axis, last ? UL_KX_MAX : UL_KX_MIN,
                     ul_kx_index_const(k, search.none), load_place, &search);
    if (best.width == 1)
        return false;
    ul_partials_open(&best);
    search.best = ul_ks_let(k, ul_partials_total(&best));
    store_arg(&lanes, node, axis, ul_node_get_int(data, "keepdims", 1) != 0,
              ul_partials_total(&where));
    ul_partials_close(&best);
    return true;
}

/* ---- By a thread each ---- */

static void lower_arg(struct ul_lower *lower, ul_node_id node, bool smallest)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *data = ul_check_node(lower, node);
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    enum ul_dtype dtype = ul_compute_dtype(type->dtype);
    int64_t requested = ul_node_get_int(data, "axis", 0);
    uint32_t axis = ul_check_get_axis(requested, type->rank);
    bool last = ul_node_get_int(data, "select_last_index", 0) != 0;
    uint32_t kept = ul_lanes_all(type->rank) & ~(1u << axis);
    ul_kx zero = ul_kx_index_const(k, 0);
    struct ul_lanes lanes;
    if (lower_by_team(lower, node, axis, smallest))
        return;
    ul_lanes_open(&lanes, lower, data->inputs[0], kept);
    struct ul_lane_var best = ul_lanes_var(&lanes, dtype, ul_kx_number(k, dtype, 0.0));
    struct ul_lane_var where = ul_lanes_var(&lanes, UL_I64, zero);
    lanes.index[axis] = zero;
    ul_lanes_begin(&lanes);
    ul_lanes_set(&lanes, best, ul_lower_load(lower, data->inputs[0], lanes.index));
    ul_lanes_end(&lanes);
    ul_lanes_loop(&lanes, 1u << axis, 0);
    ul_lanes_begin(&lanes);
    ul_kx x = ul_ks_let(k, ul_lower_load(lower, data->inputs[0], lanes.index));
    ul_kx old = ul_lanes_get(&lanes, best);
    ul_kx better = ul_ks_let(k, is_better(k, x, old, smallest, last));
    ul_lanes_set(&lanes, best, ul_kx_select(k, better, x, old));
    ul_lanes_set(&lanes, where,
                 ul_kx_select(k, better, lanes.index[axis], ul_lanes_get(&lanes, where)));
    ul_lanes_end(&lanes);
    ul_lanes_loop_end(&lanes, 1u << axis);
    ul_lanes_begin(&lanes);
    store_arg(&lanes, node, axis, ul_node_get_int(data, "keepdims", 1) != 0,
              ul_lanes_get(&lanes, where));
    ul_lanes_end(&lanes);
    ul_lanes_close(&lanes);
}

void ul_lower_arg_max(struct ul_lower *lower, ul_node_id node)
{
    lower_arg(lower, node, false);
}

void ul_lower_arg_min(struct ul_lower *lower, ul_node_id node)
{
    lower_arg(lower, node, true);
}
