/* SPDX-License-Identifier: Apache-2.0 */
/* Find: places of keys in a sorted table, by a search that halves it without a branch. */
#include "ir/ops/ml/ml.def"

#include "ir/kernel_build.h"
#include "ir/ops/require.h"

enum ul_status ul_infer_find(struct ul_infer *infer)
{
    const struct ul_type *keys = ul_infer_input(infer, 1);
    UL_TRY(ul_check_dtype(infer, 0, UL_SET_NUMBER | UL_SET_BOOL));
    UL_TRY(ul_check_same_dtype(infer, 0, 1));
    UL_TRY(ul_check_rank(infer, 1, 1, 1));
    UL_TRY(ul_check_range(infer, "missing", ul_node_get_int(infer->node, "missing", 0), 1,
                          UL_LIMIT_DIM));
    if (keys->dims[0] < 1 || (keys->dims[0] & (keys->dims[0] + 1)) != 0)
        return ul_infer_invalid(infer, "input 1 must have 2^k - 1 keys");
    struct ul_type type = *ul_infer_input(infer, 0);
    type.dtype = UL_I64;
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

/* `at` counts the keys below x; it grows by half of what is left, as long as that many keys are
 * below x. */
ul_kx ul_map_find(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_node *info = &lower->graph->nodes[node];
    int64_t count = ul_lower_input_type(lower, node, 1)->dims[0];
    ul_kx x = ul_ks_let(kernel, ul_lower_load(lower, info->inputs[0], index));
    ul_kx at = ul_kx_index_const(kernel, 0);
    UL_ASSERT(output == 0 && count > 0);
    for (int64_t half = (count + 1) / 2; half > 0; half /= 2) {
        ul_kx last = ul_kx_addi(kernel, at, half - 1);
        ul_kx below =
            ul_kx_binary(kernel, UL_KX_LT, ul_lower_load(lower, info->inputs[1], &last), x);
        at = ul_ks_let(kernel, ul_kx_select(kernel, below, ul_kx_addi(kernel, at, half), at));
    }
    ul_kx place = ul_kx_clamp(kernel, at, count - 1);
    ul_kx found = ul_kx_binary(kernel, UL_KX_EQ, ul_lower_load(lower, info->inputs[1], &place), x);
    ul_kx missing = ul_kx_index_const(kernel, ul_node_get_int(info, "missing", 0));
    return ul_kx_select(kernel, found, at, missing);
}
