/* SPDX-License-Identifier: Apache-2.0 */
#include "ir/ops/control/control.def"
#include "ir/infer.h"
#include "ir/kernel_build.h"
#include "ir/ops/require.h"

enum ul_status ul_infer_control(struct ul_infer *infer)
{
    return ul_infer_unsupported(infer, "its types follow from its blocks, which stand where no "
                                       "blocks are inferred");
}

/* The index by which runtime/lib/ul_model.h knows this failure, where one element is indexed. */
#define NO_BRANCH_INDEX (-INT64_C(0x4e6f4272616e6368))

enum ul_status ul_infer_no_branch(struct ul_infer *infer)
{
    enum ul_dtype dtype;
    uint32_t rank;
    const int64_t *dims = ul_node_get_ints(infer->node, "dims", &rank);
    UL_TRY(ul_require_dtype(infer, "dtype", UL_DTYPE_NONE, UL_SET_ANY, &dtype));
    if (rank > UL_LIMIT_RANK)
        return ul_infer_invalid(infer, "dims has too many entries");
    for (uint32_t d = 0; d < rank; d++)
        UL_TRY(ul_check_range(infer, "an entry of dims", dims[d], 0, UL_LIMIT_DIM));
    ul_infer_set(infer, 0, dtype, rank, dims);
    return UL_OK;
}

ul_kx ul_map_no_branch(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    enum ul_dtype dtype = ul_lower_output_type(lower, node, output)->dtype;
    ul_kx never = ul_kx_index_const(lower->kernel, NO_BRANCH_INDEX);
    (void)index;
    return ul_kx_cast(lower->kernel, ul_compute_dtype(dtype),
                      ul_kx_checked_index(lower->kernel, never, 1, false));
}
