/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout: a copy when it is not training or its ratio is 0 (and then a view), else elements are
 * kept with the probability 1 - ratio and scaled by its inverse. Data and mask come from the same
 * draw. */
#include "ir/ops/random/random.h"

#include "ir/kernel_build.h"
#include "ir/ops/require.h"

enum training { TRAINING_NEVER, TRAINING_ALWAYS, TRAINING_BY_INPUT };

static enum training training_mode(const struct ul_graph *graph, const struct ul_node *node)
{
    double ratio;
    if (node->input_count < 3 || node->inputs[2] == UL_NONE)
        return TRAINING_NEVER;
    if (node->inputs[1] != UL_NONE && ul_graph_get_number(graph, node->inputs[1], &ratio) &&
        ratio == 0)
        return TRAINING_NEVER;
    const struct ul_tensor *tensor = graph->values[node->inputs[2]].tensor;
    if (tensor == NULL)
        return TRAINING_BY_INPUT;
    return ul_tensor_get_int(tensor, 0) != 0 ? TRAINING_ALWAYS : TRAINING_NEVER;
}

enum ul_status ul_infer_dropout(struct ul_infer *infer)
{
    struct ul_type mask = *ul_infer_input(infer, 0);
    UL_TRY(ul_check_dtype(infer, 0, UL_SET_FLOAT | UL_SET_FLOAT8));
    UL_TRY(ul_check_dtype(infer, 1, UL_SET_FLOAT | UL_SET_FLOAT8));
    UL_TRY(ul_check_scalar(infer, 1));
    UL_TRY(ul_check_dtype(infer, 2, UL_SET_BOOL));
    UL_TRY(ul_check_scalar(infer, 2));
    mask.dtype = UL_BOOL;
    ul_infer_set_type(infer, 1, &mask);
    return ul_infer_same(infer);
}

/* Whether the element is kept. It is computed in f32 whatever the data's type, so that both outputs
 * agree. */
static ul_kx keep(struct ul_lower *lower, ul_node_id node, enum training training, ul_kx ratio,
                  const ul_kx *index)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    ul_kx zero = ul_kx_index_const(kernel, 0);
    ul_kx unit = ul_random_unit(kernel, UL_F32, ul_random_position(kernel, type, index), 0,
                                ul_random_seed(lower->graph, info));
    ul_kx kept = ul_kx_binary(kernel, UL_KX_LE, ratio, unit);
    if (training == TRAINING_ALWAYS)
        return kept;
    ul_kx trains = ul_lower_load(lower, info->inputs[2], &zero);
    return ul_kx_binary(kernel, UL_KX_OR, ul_kx_unary(kernel, UL_KX_NOT, trains), kept);
}

ul_kx ul_map_dropout(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    enum training training = training_mode(lower->graph, info);
    ul_kx zero = ul_kx_index_const(kernel, 0);
    if (training == TRAINING_NEVER)
        return output == 1 ? ul_kx_int(kernel, UL_BOOL, 1)
                           : ul_lower_load(lower, info->inputs[0], index);
    ul_kx ratio = ul_kx_float(kernel, UL_F32, 0.5);
    if (ul_lower_has_input(lower, node, 1))
        ratio = ul_kx_cast(kernel, UL_F32, ul_lower_load(lower, info->inputs[1], &zero));
    ul_kx kept = keep(lower, node, training, ratio, index);
    if (output == 1)
        return kept;
    ul_kx x = ul_lower_load(lower, info->inputs[0], index);
    enum ul_dtype dtype = ul_kx_dtype(kernel, x);
    ul_kx one = ul_kx_float(kernel, UL_F32, 1);
    ul_kx scale = ul_kx_binary(kernel, UL_KX_DIV, one, ul_kx_sub(kernel, one, ratio));
    if (training == TRAINING_BY_INPUT)
        scale = ul_kx_select(kernel, ul_lower_load(lower, info->inputs[2], &zero), scale, one);
    ul_kx scaled = ul_kx_mul(kernel, x, ul_kx_cast(kernel, dtype, scale));
    return ul_kx_select(kernel, kept, scaled, ul_kx_float(kernel, dtype, 0));
}

bool ul_view_dropout(const struct ul_graph *graph, const struct ul_node *node, uint32_t output,
                     const struct ul_view *input, struct ul_view *view)
{
    if (output != 0 || training_mode(graph, node) != TRAINING_NEVER)
        return false;
    *view = *input;
    return true;
}
