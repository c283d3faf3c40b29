/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout as training computes it: what is dropped is a function of the step's key, the node's seed
 * and the element's position, so that no mask is stored, and the backward pass, or a forward pass
 * that runs again, drops the same. A step that evaluates has a key below 0, by which nothing is
 * dropped. */
#include "ir/op_names.h"
#include "ir/ops/random/random.h"
#include "ir/ops/training/training.def"

#include "ir/kernel_build.h"
#include "ir/ops/require.h"
#include "ir/training.h"

enum ul_status ul_infer_step_key(struct ul_infer *infer)
{
    const int64_t numbers = UL_STEP_NUMBERS;
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_BIT(UL_F64)));
    UL_TRY(ul_check_shape(infer, 0, 1, &numbers));
    ul_infer_set(infer, 0, UL_I64, 0, NULL);
    return UL_OK;
}

static ul_kx step_number(struct ul_lower *lower, ul_node_id node, uint32_t which)
{
    ul_kx at = ul_kx_index_const(lower->kernel, which);
    ul_kx number = ul_lower_load(lower, ul_check_node(lower, node)->inputs[0], &at);
    return ul_kx_cast(lower->kernel, UL_I64, number);
}

/* Random bits from the training's seed and the step's number, far apart from those of other steps:
 * 28 bits, above all positions. */
ul_kx ul_map_step_key(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    struct ul_kernel *k = lower->kernel;
    (void)output, (void)index;
    const int64_t above = (int64_t)1 << 32;
    ul_kx seed = ul_kx_random(k, step_number(lower, node, UL_STEP_SEED), 0);
    ul_kx high = ul_kx_muli(k, ul_kx_cast(k, UL_I64, seed), above / 2);
    ul_kx counter = ul_kx_add(k, high, step_number(lower, node, UL_STEP_COUNT));
    ul_kx key = ul_kx_cast(k, UL_I64, ul_kx_random(k, counter, 1));
    ul_kx evaluates = step_number(lower, node, UL_STEP_EVALUATES);
    ul_kx none = ul_kx_int(k, UL_I64, 0);
    return ul_kx_select(k, ul_kx_binary(k, UL_KX_EQ, evaluates, none),
                        ul_kx_muli(k, ul_kx_divi(k, key, 16), above), ul_kx_int(k, UL_I64, -1));
}

bool ul_random_is_ratio(double ratio)
{
    return ratio >= 0 && ratio < 1;
}

enum ul_status ul_infer_drop(struct ul_infer *infer)
{
    double ratio = ul_node_get_float(infer->node, "ratio", 0.5);
    UL_TRY(ul_check_dtype(infer, 0, UL_SET_FLOAT));
    UL_TRY(ul_check_dtype(infer, 1, UL_CHECK_BIT(UL_I64)));
    UL_TRY(ul_check_shape(infer, 1, 0, NULL));
    if (!ul_random_is_ratio(ratio))
        return ul_infer_invalid(infer, "ratio is %g; it must be at least 0 and below 1", ratio);
    return ul_infer_same(infer);
}

ul_kx ul_random_drop(struct ul_kernel *k, ul_kx x, ul_kx key, ul_kx position, int64_t seed,
                     double ratio)
{
    ul_kx bits = ul_kx_random(k, ul_kx_add(k, key, position), seed);
    /* As a number in [0, 1) with 24 bits, it is below the ratio. */
    uint64_t limit = (uint64_t)(ratio * 16777216.0 + 0.5);
    bits = ul_kx_binary(k, UL_KX_SHR, bits, ul_kx_int(k, ul_kx_dtype(k, bits), 8));
    ul_kx dropped =
        ul_kx_binary(k, UL_KX_LT, bits, ul_kx_int(k, ul_kx_dtype(k, bits), (int64_t)limit));
    enum ul_dtype dtype = ul_kx_dtype(k, x);
    ul_kx scaled = ul_kx_mul(k, x, ul_kx_float(k, dtype, 1 / (1 - ratio)));
    ul_kx drops = ul_kx_select(k, dropped, ul_kx_float(k, dtype, 0), scaled);
    return ul_kx_select(k, ul_kx_binary(k, UL_KX_LT, key, ul_kx_int(k, UL_I64, 0)), x, drops);
}

ul_kx ul_map_drop(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    const struct ul_node *info = ul_check_node(lower, node);
    struct ul_kernel *k = lower->kernel;
    const struct ul_type *type = ul_lower_output_type(lower, node, output);
    ul_kx key = ul_lower_load(lower, info->inputs[1], index);
    ul_kx position = ul_random_position(k, type, index);
    ul_kx x = ul_lower_load(lower, info->inputs[0], index);
    return ul_random_drop(k, x, key, position, ul_random_seed(lower->graph, info),
                          ul_node_get_float(info, "ratio", 0.5));
}

/* Drops the same elements of the gradient. */
enum ul_status ul_gradient_drop(struct ul_gradient *gradient)
{
    const struct ul_node old = *ul_gradient_node(gradient);
    const ul_value_id inputs[2] = {ul_gradient_of(gradient, 0), old.inputs[1]};
    ul_node_id node = ul_build_node(&gradient->build, UL_OP_Drop, inputs, 2, 1);
    ul_node_set_float(gradient->graph, node, "ratio", ul_node_get_float(&old, "ratio", 0.5));
    ul_op_copy_seed(gradient->graph, node, &old);
    ul_gradient_give(gradient, 0, ul_build_infer(&gradient->build, node));
    return UL_OK;
}
