/* SPDX-License-Identifier: Apache-2.0 */
/* IntegerSqrt: a root without floats, bit by bit. */
#include "ir/kernel_build.h"
#include "ir/ops/quant/quant.h"

enum { TOP_BIT = 30 }; /* squares stay below 2^62 */

enum ul_status ul_infer_integer_sqrt(struct ul_infer *infer)
{
    if (ul_infer_input(infer, 0)->dtype != UL_I64)
        return ul_infer_invalid(infer, "its operand must be i64");
    return ul_infer_same(infer);
}

ul_kx ul_map_integer_sqrt(struct ul_lower *lower, ul_node_id node, uint32_t output,
                          const ul_kx *index)
{
    struct ul_kernel *kernel = lower->kernel;
    ul_kx x = ul_lower_load(lower, lower->graph->nodes[node].inputs[0], index);
    ul_kx root = ul_kx_int(kernel, UL_I64, 0);
    UL_ASSERT(output == 0 && ul_kx_dtype(kernel, x) == UL_I64);
    for (int bit = TOP_BIT; bit >= 0; bit--) {
        ul_kx next = ul_kx_addi(kernel, root, (int64_t)1 << bit);
        ul_kx square = ul_kx_binary(kernel, UL_KX_MUL, next, next);
        ul_kx fits = ul_kx_binary(kernel, UL_KX_LE, square, x);
        root = ul_ks_let(kernel, ul_kx_select(kernel, fits, next, root));
    }
    return root;
}
