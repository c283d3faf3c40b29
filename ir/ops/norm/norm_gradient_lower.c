/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of a normalisation's input, as one kernel; see norm_gradient.c. */
#include "ir/ops/backward.def"
#include "ir/ops/norm/norm.h"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/norm/norm_moments.h"

#include <string.h>

#define DEFAULT_EPSILON ((double)1e-5f)

uint32_t ul_norm_mask(const struct ul_node *node, uint32_t rank)
{
    uint32_t count = 0, mask = 0;
    const int64_t *axes = ul_node_get_ints(node, "axes", &count);
    for (uint32_t i = 0; i < count; i++)
        mask |= 1u << ul_check_get_axis(axes[i], rank);
    return mask;
}

enum ul_status ul_norm_infer_kept(struct ul_infer *infer, struct ul_type *kept)
{
    const struct ul_type *type = ul_infer_input(infer, UL_NORM_X);
    uint32_t count = 0;
    const int64_t *axes = ul_node_get_ints(infer->node, "axes", &count);
    UL_TRY(ul_check_dtype(infer, UL_NORM_X, UL_CHECK_FLOATS));
    UL_TRY(ul_check_shape(infer, UL_NORM_G, type->rank, type->dims));
    *kept = *type;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t axis;
        UL_TRY(ul_infer_axis(infer, axes[i], type->rank, &axis));
        kept->dims[axis] = 1;
    }
    return UL_OK;
}

enum ul_status ul_norm_check_broadcast(struct ul_infer *infer, uint32_t input)
{
    const struct ul_type *type = ul_infer_input(infer, UL_NORM_X);
    const struct ul_type *given = ul_infer_input(infer, input);
    struct ul_type both;
    if (given != NULL && (!ul_broadcast(type, given, &both) || !ul_type_same_dims(&both, type)))
        return ul_infer_invalid(infer, "input %u does not broadcast to input 0", (unsigned)input);
    return UL_OK;
}

enum ul_status ul_infer_norm_gradient(struct ul_infer *infer)
{
    struct ul_type kept;
    UL_TRY(ul_norm_infer_kept(infer, &kept));
    UL_TRY(ul_norm_check_broadcast(infer, UL_NORM_SCALE));
    ul_infer_set_type(infer, UL_NORM_DX, ul_infer_input(infer, UL_NORM_X));
    ul_infer_set_type(infer, UL_NORM_INVERSE, &kept);
    ul_infer_set_type(infer, UL_NORM_MEAN, &kept);
    return UL_OK;
}

struct norm {
    struct ul_moments m;
    const struct ul_node *node;
    ul_node_id id;
    bool is_centred;
};

/* Loads h and n at the loops' coordinates. */
static ul_kx load_scaled(const struct norm *n)
{
    struct ul_lower *lower = n->m.lanes.lower;
    struct ul_kernel *k = lower->kernel;
    ul_kx index[UL_LIMIT_RANK];
    memcpy(index, n->m.lanes.index, sizeof index);
    ul_kx g = ul_kx_cast(k, n->m.dtype, ul_lower_load(lower, n->node->inputs[UL_NORM_G], index));
    if (!ul_lower_has_input(lower, n->id, UL_NORM_SCALE))
        return g;
    ul_kx scale =
        ul_lower_load_broadcast(lower, n->node->inputs[UL_NORM_SCALE], index, n->m.lanes.rank);
    return ul_kx_mul(k, g, ul_kx_cast(k, n->m.dtype, scale));
}

static ul_kx load_normal(const struct norm *n)
{
    struct ul_kernel *k = n->m.lanes.lower->kernel;
    ul_kx index[UL_LIMIT_RANK];
    ul_kx x = ul_moments_load(&n->m, index);
    if (n->is_centred)
        x = ul_kx_sub(k, x, ul_lanes_get(&n->m.lanes, n->m.mean));
    return ul_kx_mul(k, x, ul_lanes_get(&n->m.lanes, n->m.spread));
}

static ul_kx scaled_term(struct ul_lanes *lanes, const void *context)
{
    (void)lanes; /* they are the context's own */
    return load_scaled(context);
}

static ul_kx product_term(struct ul_lanes *lanes, const void *context)
{
    return ul_kx_mul(lanes->lower->kernel, load_scaled(context), load_normal(context));
}

static struct ul_lane_var sum(struct norm *n, ul_lanes_term_fn *term)
{
    ul_kx zero = ul_kx_float(n->m.lanes.lower->kernel, n->m.dtype, 0.0);
    return ul_lanes_reduce(&n->m.lanes, n->m.mask, UL_KX_ADD, zero, term, n);
}

/* Leaves 1 / deviation in `spread`. */
static void form_statistics(struct norm *n)
{
    struct ul_lanes *lanes = &n->m.lanes;
    struct ul_kernel *k = lanes->lower->kernel;
    if (n->is_centred)
        ul_moments_mean(&n->m);
    ul_moments_spread(&n->m, n->is_centred);
    double outside = ul_node_get_float(n->node, "outside", 0);
    if (!(outside > 0)) {
        ul_moments_invert(&n->m, ul_node_get_float(n->node, "epsilon", DEFAULT_EPSILON));
        return;
    }
    ul_lanes_begin(lanes);
    ul_kx deviation = ul_kx_unary(k, UL_KX_SQRT, ul_lanes_get(lanes, n->m.spread));
    deviation = ul_kx_add(k, deviation, ul_kx_float(k, n->m.dtype, outside));
    ul_lanes_set(lanes, n->m.spread,
                 ul_kx_binary(k, UL_KX_DIV, ul_kx_float(k, n->m.dtype, 1.0), deviation));
    ul_lanes_end(lanes);
}

static void store_statistic(struct norm *n, uint32_t output, struct ul_lane_var var)
{
    struct ul_lanes *lanes = &n->m.lanes;
    if (!ul_lower_has_output(lanes->lower, n->id, output))
        return;
    ul_lanes_begin(lanes);
    ul_kx index[UL_LIMIT_RANK];
    for (uint32_t d = 0; d < lanes->rank; d++)
        index[d] = (n->m.mask >> d & 1u) != 0 ? ul_kx_index_const(lanes->lower->kernel, 0)
                                              : lanes->index[d];
    ul_lower_store(lanes->lower, n->node->outputs[output], index, ul_lanes_get(lanes, var));
    ul_lanes_end(lanes);
}

void ul_lower_norm_gradient(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_type *type = ul_lower_input_type(lower, node, UL_NORM_X);
    struct norm n = {.node = ul_check_node(lower, node), .id = node};
    struct ul_lanes *lanes = &n.m.lanes;
    n.is_centred = ul_node_get_int(n.node, "centred", 1) != 0;
    ul_moments_open(&n.m, lower, node, type->rank, type->dims, ul_norm_mask(n.node, type->rank), 0);
    lanes->joined = 0; /* g and the scale are read at the same coordinates, but have other
                          layouts */
    form_statistics(&n);
    store_statistic(&n, UL_NORM_INVERSE, n.m.spread);
    if (n.is_centred)
        store_statistic(&n, UL_NORM_MEAN, n.m.mean);
    struct ul_lane_var plain = {0}, product = sum(&n, product_term);
    if (n.is_centred)
        plain = sum(&n, scaled_term);
    ul_kx share = ul_kx_float(k, n.m.dtype, 1.0 / (double)n.m.count);
    ul_lanes_loop(lanes, n.m.mask, UL_FOR_PARALLEL);
    ul_lanes_begin(lanes);
    ul_kx average = ul_kx_mul(k, load_normal(&n), ul_lanes_get(lanes, product));
    if (n.is_centred)
        average = ul_kx_add(k, average, ul_lanes_get(lanes, plain));
    ul_kx dx = ul_kx_sub(k, load_scaled(&n), ul_kx_mul(k, average, share));
    ul_lower_store(lower, n.node->outputs[UL_NORM_DX], lanes->index,
                   ul_kx_mul(k, dx, ul_lanes_get(lanes, n.m.spread)));
    ul_lanes_end(lanes);
    ul_lanes_loop_end(lanes, n.m.mask);
    ul_lanes_close(lanes);
}
