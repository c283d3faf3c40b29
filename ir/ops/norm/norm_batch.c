/* SPDX-License-Identifier: Apache-2.0 */
/* BatchNormalization. With given statistics it is a map; in training mode the statistics are those
 * of the batch, and the running ones are moved towards them. */
#include "ir/op_names.h"
#include "ir/ops/norm/norm.h"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/norm/norm_moments.h"

static uint32_t channel_dim(const struct ul_type *type)
{
    return type->rank == 1 ? UL_NONE : 1; /* a 1-d input has one channel */
}

enum ul_status ul_infer_batch_norm(struct ul_infer *infer)
{
    const struct ul_type *type = ul_infer_input(infer, 0);
    UL_TRY(ul_check_rank(infer, 0, 1, UL_LIMIT_RANK));
    for (uint32_t i = 0; i < 5; i++)
        UL_TRY(ul_check_dtype(infer, i, UL_CHECK_FLOATS));
    UL_TRY(ul_check_same_dtype(infer, 1, 2));
    UL_TRY(ul_check_same_dtype(infer, 3, 4));
    int64_t channels = channel_dim(type) == UL_NONE ? 1 : type->dims[1];
    for (uint32_t i = 1; i < 5; i++)
        UL_TRY(ul_check_shape(infer, i, 1, &channels));
    bool training = ul_node_get_int(infer->node, "training_mode", 0) != 0;
    if (!training && infer->node->output_count > 1)
        return ul_infer_invalid(infer, "running statistics are made in training mode only");
    if (training)
        infer->node->op = UL_OP_BatchNormalizationTraining;
    ul_infer_set_type(infer, 0, type);
    for (uint32_t i = 1; i < 3; i++)
        ul_infer_set(infer, i, ul_infer_input(infer, 3)->dtype, 1, &channels);
    return UL_OK;
}

static enum ul_dtype wide_dtype(const struct ul_lower *lower, ul_node_id node)
{
    return ul_compute_dtype(ul_lower_input_type(lower, node, 0)->dtype);
}

static ul_kx load_channel(struct ul_lower *lower, ul_node_id node, uint32_t input, ul_kx channel)
{
    ul_value_id value = ul_check_node(lower, node)->inputs[input];
    return ul_kx_cast(lower->kernel, wide_dtype(lower, node),
                      ul_lower_load(lower, value, &channel));
}

ul_kx ul_map_batch_norm(struct ul_lower *lower, ul_node_id node, uint32_t output,
                        const ul_kx *index)
{
    UL_ASSERT(output == 0);
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *data = ul_check_node(lower, node);
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    enum ul_dtype dtype = wide_dtype(lower, node);
    ul_kx channel = channel_dim(type) == UL_NONE ? ul_kx_index_const(k, 0) : index[1];
    ul_kx epsilon = ul_kx_float(k, dtype, ul_node_get_float(data, "epsilon", (double)1e-5f));
    ul_kx variance = ul_kx_add(k, load_channel(lower, node, 4, channel), epsilon);
    ul_kx scale = ul_kx_binary(k, UL_KX_DIV, load_channel(lower, node, 1, channel),
                               ul_kx_unary(k, UL_KX_SQRT, variance));
    ul_kx x = ul_kx_cast(k, dtype, ul_lower_load(lower, data->inputs[0], index));
    ul_kx centred = ul_kx_sub(k, x, load_channel(lower, node, 3, channel));
    return ul_kx_add(k, ul_kx_mul(k, centred, scale), load_channel(lower, node, 2, channel));
}

/* running = running * momentum + current * (1 - momentum), where it is asked for. */
static void store_running(struct ul_moments *m, ul_node_id node, uint32_t output, ul_kx channel,
                          ul_kx current)
{
    struct ul_lower *lower = m->lanes.lower;
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *data = ul_check_node(lower, node);
    if (!ul_lower_has_output(lower, node, output))
        return;
    double momentum = ul_node_get_float(data, "momentum", (double)0.9f);
    ul_kx old = load_channel(lower, node, output + 2, channel);
    ul_kx sum = ul_kx_add(k, ul_kx_mul(k, old, ul_kx_float(k, m->dtype, momentum)),
                          ul_kx_mul(k, current, ul_kx_float(k, m->dtype, 1.0 - momentum)));
    ul_lower_store(lower, data->outputs[output], &channel, sum);
}

void ul_lower_batch_norm_training(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *data = ul_check_node(lower, node);
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    uint32_t dim = channel_dim(type);
    uint32_t mask = ul_lanes_all(type->rank) & ~(dim == UL_NONE ? 0u : 1u << dim);
    struct ul_moments m;
    ul_moments_open(&m, lower, node, type->rank, type->dims, mask, 0);
    ul_moments_mean(&m);
    ul_moments_spread(&m, true);
    ul_lanes_begin(&m.lanes);
    ul_kx channel = dim == UL_NONE ? ul_kx_index_const(k, 0) : m.lanes.index[dim];
    store_running(&m, node, 1, channel, ul_lanes_get(&m.lanes, m.mean));
    store_running(&m, node, 2, channel, ul_lanes_get(&m.lanes, m.spread));
    ul_lanes_end(&m.lanes);
    ul_moments_invert(&m, ul_node_get_float(data, "epsilon", (double)1e-5f));
    ul_lanes_loop(&m.lanes, mask, UL_FOR_PARALLEL);
    ul_lanes_begin(&m.lanes);
    channel = dim == UL_NONE ? ul_kx_index_const(k, 0) : m.lanes.index[dim];
    ul_kx index[UL_LIMIT_RANK];
    ul_kx x = ul_kx_sub(k, ul_moments_load(&m, index), ul_lanes_get(&m.lanes, m.mean));
    x = ul_kx_mul(k, x, ul_lanes_get(&m.lanes, m.spread));
    x = ul_kx_mul(k, x, load_channel(lower, node, 1, channel));
    x = ul_kx_add(k, x, load_channel(lower, node, 2, channel));
    ul_lower_store(lower, data->outputs[0], index, x);
    ul_lanes_end(&m.lanes);
    ul_lanes_loop_end(&m.lanes, mask);
    ul_lanes_close(&m.lanes);
}
