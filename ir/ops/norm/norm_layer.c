/* SPDX-License-Identifier: Apache-2.0 */
/* Normalisation by the moments of a part of the input: instance, layer, group, root mean square,
 * and mean-variance over given axes. They differ in which dimensions form a set and in what scale
 * and bias are indexed by. */
#include "ir/ops/norm/norm.h"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/norm/norm_moments.h"

#define DEFAULT_EPSILON ((double)1e-5f)

/* Shapes */

enum ul_status ul_infer_instance_norm(struct ul_infer *infer)
{
    const struct ul_type *type = ul_infer_input(infer, 0);
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_FLOATS));
    UL_TRY(ul_check_rank(infer, 0, 2, UL_LIMIT_RANK));
    for (uint32_t i = 1; i < 3; i++) {
        UL_TRY(ul_check_same_dtype(infer, 0, i));
        UL_TRY(ul_check_shape(infer, i, 1, &type->dims[1]));
    }
    ul_infer_set_type(infer, 0, type);
    return UL_OK;
}

/* Scale and bias must broadcast to the input's shape, not beyond it. */
static enum ul_status check_affine(struct ul_infer *infer, uint32_t input)
{
    const struct ul_type *type = ul_infer_input(infer, 0);
    const struct ul_type *affine = ul_infer_input(infer, input);
    if (affine == NULL)
        return UL_OK;
    UL_TRY(ul_check_dtype(infer, input, UL_CHECK_FLOATS));
    struct ul_type both;
    if (ul_broadcast(type, affine, &both) && ul_type_equal(&both, type))
        return UL_OK;
    return ul_infer_invalid(infer, "input %u does not broadcast to the shape of input 0",
                            (unsigned)input);
}

static enum ul_status stash_dtype(const struct ul_infer *infer, enum ul_dtype *dtype)
{
    int64_t stash = ul_node_get_int(infer->node, "stash_type", UL_F32);
    if (stash < 0 || stash >= UL_DTYPE_COUNT || (UL_CHECK_FLOATS >> stash & 1) == 0)
        return ul_infer_unsupported(infer, "stash_type %lld; supported are f32, f16, bf16, f64",
                                    (long long)stash);
    *dtype = (enum ul_dtype)stash;
    return UL_OK;
}

enum ul_status ul_infer_layer_norm(struct ul_infer *infer)
{
    const struct ul_type *type = ul_infer_input(infer, 0);
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_FLOATS));
    uint32_t axis;
    UL_TRY(ul_infer_axis(infer, ul_node_get_int(infer->node, "axis", -1), type->rank, &axis));
    UL_TRY(check_affine(infer, 1));
    UL_TRY(check_affine(infer, 2));
    enum ul_dtype stash = UL_F32;
    UL_TRY(stash_dtype(infer, &stash));
    ul_infer_set_type(infer, 0, type);
    struct ul_type moment = *type;
    moment.dtype = stash;
    for (uint32_t d = axis; d < type->rank; d++)
        moment.dims[d] = 1;
    ul_infer_set_type(infer, 1, &moment);
    ul_infer_set_type(infer, 2, &moment);
    return UL_OK;
}

enum ul_status ul_infer_rms_norm(struct ul_infer *infer)
{
    const struct ul_type *type = ul_infer_input(infer, 0);
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_FLOATS));
    uint32_t axis;
    UL_TRY(ul_infer_axis(infer, ul_node_get_int(infer->node, "axis", -1), type->rank, &axis));
    UL_TRY(check_affine(infer, 1));
    enum ul_dtype stash = UL_F32;
    UL_TRY(stash_dtype(infer, &stash));
    ul_infer_set(infer, 0, ul_infer_input(infer, 1)->dtype, type->rank, type->dims);
    return UL_OK;
}

/* Scale and bias count channels since opset 21, and groups before it; both are accepted. */
enum ul_status ul_infer_group_norm(struct ul_infer *infer)
{
    const struct ul_type *type = ul_infer_input(infer, 0);
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_FLOATS));
    UL_TRY(ul_check_rank(infer, 0, 2, UL_LIMIT_RANK - 1));
    enum ul_dtype stash = UL_F32;
    UL_TRY(stash_dtype(infer, &stash));
    int64_t groups = ul_node_get_int(infer->node, "num_groups", 0);
    UL_TRY(ul_check_range(infer, "num_groups", groups, 1, UL_LIMIT_DIM));
    if (type->dims[1] % groups != 0)
        return ul_infer_invalid(infer, "%lld channels do not divide into %lld groups",
                                (long long)type->dims[1], (long long)groups);
    for (uint32_t i = 1; i < 3; i++) {
        const struct ul_type *affine = ul_infer_input(infer, i);
        UL_TRY(ul_check_same_dtype(infer, 0, i));
        bool per_group = affine->rank == 1 && affine->dims[0] == groups;
        UL_TRY(ul_check_shape(infer, i, 1, per_group ? &groups : &type->dims[1]));
    }
    ul_infer_set_type(infer, 0, type);
    return UL_OK;
}

bool ul_mean_variance_mask(const struct ul_node *node, uint32_t rank, uint32_t *mask)
{
    static const int64_t usual[] = {0, 2, 3};
    uint32_t count;
    const int64_t *axes = ul_node_get_ints(node, "axes", &count);
    if (ul_node_find_attr(node, "axes") == NULL) {
        axes = usual;
        count = 3;
    }
    *mask = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (axes[i] < -(int64_t)rank || axes[i] >= (int64_t)rank)
            return false;
        *mask |= 1u << (axes[i] < 0 ? axes[i] + (int64_t)rank : axes[i]);
    }
    return true;
}

enum ul_status ul_infer_mean_variance_norm(struct ul_infer *infer)
{
    const struct ul_type *type = ul_infer_input(infer, 0);
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_FLOATS));
    uint32_t mask;
    if (!ul_mean_variance_mask(infer->node, type->rank, &mask))
        return ul_infer_invalid(infer, "an axis does not exist in a tensor of rank %u",
                                (unsigned)type->rank);
    ul_infer_set_type(infer, 0, type);
    return UL_OK;
}

/* Loops */

/* The last pass: (x - mean) * inverse, then scale and bias, which `affine` loads. */
typedef ul_kx affine_fn(struct ul_moments *m, ul_node_id node, uint32_t input, const ul_kx *index);

static void store_normalised(struct ul_moments *m, ul_node_id node, bool centred, affine_fn *affine)
{
    struct ul_lower *lower = m->lanes.lower;
    struct ul_kernel *k = lower->kernel;
    ul_lanes_loop(&m->lanes, m->mask, UL_FOR_PARALLEL);
    ul_lanes_begin(&m->lanes);
    ul_kx index[UL_LIMIT_RANK];
    ul_kx x = ul_moments_load(m, index);
    if (centred)
        x = ul_kx_sub(k, x, ul_lanes_get(&m->lanes, m->mean));
    x = ul_kx_mul(k, x, ul_lanes_get(&m->lanes, m->spread));
    if (affine != NULL && ul_lower_has_input(lower, node, 1))
        x = ul_kx_mul(k, x, ul_kx_cast(k, m->dtype, affine(m, node, 1, index)));
    if (affine != NULL && ul_lower_has_input(lower, node, 2))
        x = ul_kx_add(k, x, ul_kx_cast(k, m->dtype, affine(m, node, 2, index)));
    ul_lower_store(lower, ul_check_node(lower, node)->outputs[0], index, x);
    ul_lanes_end(&m->lanes);
    ul_lanes_loop_end(&m->lanes, m->mask);
}

static ul_kx affine_channel(struct ul_moments *m, ul_node_id node, uint32_t input,
                            const ul_kx *index)
{
    struct ul_lower *lower = m->lanes.lower;
    bool per_group =
        m->group > 0 && ul_lower_input_type(lower, node, input)->dims[0] == m->lanes.dims[1];
    return ul_lower_load(lower, ul_check_node(lower, node)->inputs[input],
                         per_group ? &m->lanes.index[1] : &index[1]);
}

static ul_kx affine_trailing(struct ul_moments *m, ul_node_id node, uint32_t input,
                             const ul_kx *index)
{
    return ul_lower_load_broadcast(
        m->lanes.lower, ul_check_node(m->lanes.lower, node)->inputs[input], index, m->lanes.rank);
}

static double node_epsilon(const struct ul_lower *lower, ul_node_id node)
{
    return ul_node_get_float(ul_check_node(lower, node), "epsilon", DEFAULT_EPSILON);
}

void ul_lower_instance_norm(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    if (ul_lower_group_norm_steps(lower, node, type->dims[1])) /* each channel is a group */
        return;
    struct ul_moments m;
    ul_moments_open(&m, lower, node, type->rank, type->dims, ul_lanes_all(type->rank) & ~3u, 0);
    ul_moments_mean(&m);
    ul_moments_spread(&m, true);
    ul_moments_invert(&m, node_epsilon(lower, node));
    store_normalised(&m, node, true, affine_channel);
    ul_lanes_close(&m.lanes);
}

void ul_lower_group_norm(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    int64_t groups = ul_node_get_int(ul_check_node(lower, node), "num_groups", 1);
    if (ul_lower_group_norm_steps(lower, node, groups))
        return;
    int64_t dims[UL_LIMIT_RANK] = {type->dims[0], groups, type->dims[1] / groups};
    for (uint32_t d = 2; d < type->rank; d++)
        dims[d + 1] = type->dims[d];
    uint32_t rank = type->rank + 1;
    struct ul_moments m;
    ul_moments_open(&m, lower, node, rank, dims, ul_lanes_all(rank) & ~3u, dims[2]);
    ul_moments_mean(&m);
    ul_moments_spread(&m, true);
    ul_moments_invert(&m, node_epsilon(lower, node));
    store_normalised(&m, node, true, affine_channel);
    ul_lanes_close(&m.lanes);
}

static uint32_t trailing_mask(const struct ul_lower *lower, ul_node_id node)
{
    uint32_t rank = ul_lower_input_type(lower, node, 0)->rank;
    int64_t axis = ul_node_get_int(ul_check_node(lower, node), "axis", -1);
    return ul_lanes_all(rank) & ~ul_lanes_all(ul_check_get_axis(axis, rank));
}

static void store_moment(struct ul_moments *m, ul_node_id node, uint32_t output,
                         struct ul_lane_var var)
{
    struct ul_lanes *lanes = &m->lanes;
    if (!ul_lower_has_output(lanes->lower, node, output))
        return;
    ul_lanes_begin(lanes);
    ul_kx index[UL_LIMIT_RANK];
    for (uint32_t d = 0; d < lanes->rank; d++)
        index[d] =
            (m->mask >> d & 1u) != 0 ? ul_kx_index_const(lanes->lower->kernel, 0) : lanes->index[d];
    ul_lower_store(lanes->lower, ul_check_node(lanes->lower, node)->outputs[output], index,
                   ul_lanes_get(lanes, var));
    ul_lanes_end(lanes);
}

void ul_lower_layer_norm(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    struct ul_moments m;
    ul_moments_open(&m, lower, node, type->rank, type->dims, trailing_mask(lower, node), 0);
    ul_moments_mean(&m);
    ul_moments_spread(&m, true);
    ul_moments_invert(&m, node_epsilon(lower, node));
    store_moment(&m, node, 1, m.mean);
    store_moment(&m, node, 2, m.spread);
    store_normalised(&m, node, true, affine_trailing);
    ul_lanes_close(&m.lanes);
}

void ul_lower_rms_norm(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    struct ul_moments m;
    ul_moments_open(&m, lower, node, type->rank, type->dims, trailing_mask(lower, node), 0);
    ul_moments_spread(&m, false);
    ul_moments_invert(&m, node_epsilon(lower, node));
    store_normalised(&m, node, false, affine_trailing);
    ul_lanes_close(&m.lanes);
}

/* Divides by the deviation plus 1e-9, as the operator's function body does. */
void ul_lower_mean_variance_norm(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    uint32_t mask;
    bool valid = ul_mean_variance_mask(ul_check_node(lower, node), type->rank, &mask);
    UL_ASSERT(valid);
    struct ul_moments m;
    ul_moments_open(&m, lower, node, type->rank, type->dims, mask, 0);
    ul_moments_mean(&m);
    ul_moments_spread(&m, true);
    ul_lanes_begin(&m.lanes);
    ul_kx deviation = ul_kx_unary(k, UL_KX_SQRT, ul_lanes_get(&m.lanes, m.spread));
    ul_kx inverse = ul_kx_binary(k, UL_KX_DIV, ul_kx_float(k, m.dtype, 1.0),
                                 ul_kx_add(k, deviation, ul_kx_float(k, m.dtype, 1e-9)));
    ul_lanes_set(&m.lanes, m.spread, inverse);
    ul_lanes_end(&m.lanes);
    store_normalised(&m, node, true, NULL);
    ul_lanes_close(&m.lanes);
}
