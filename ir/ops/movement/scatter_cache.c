/* SPDX-License-Identifier: Apache-2.0 */
/* TensorScatter, the update of a key-value cache: a map, since where the update lies is one window
 * per sample. An element is either the cache's own at the same index, which makes it in place, or
 * the update's. */
#include "ir/ops/movement/scatter.def"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"

#include <string.h>

enum { CACHE, UPDATE, WRITE_INDEXES };

static bool is_circular(const struct ul_node *node)
{
    return strcmp(ul_node_get_string(node, "mode", "linear"), "circular") == 0;
}

enum ul_status ul_infer_tensor_scatter(struct ul_infer *infer)
{
    const struct ul_type *cache = ul_infer_input(infer, CACHE);
    const struct ul_type *update = ul_infer_input(infer, UPDATE);
    const char *mode = ul_node_get_string(infer->node, "mode", "linear");
    if (!is_circular(infer->node) && strcmp(mode, "linear") != 0)
        return ul_infer_invalid(infer, "mode %s; known are linear and circular",
                                ul_quote(infer->scratch, mode));
    UL_TRY(ul_check_same_dtype(infer, CACHE, UPDATE));
    UL_TRY(ul_check_rank(infer, CACHE, 2, UL_LIMIT_RANK));
    UL_TRY(ul_check_rank(infer, UPDATE, cache->rank, cache->rank));
    uint32_t axis;
    UL_TRY(ul_infer_axis(infer, ul_node_get_int(infer->node, "axis", -2), cache->rank, &axis));
    if (axis == 0)
        return ul_infer_invalid(infer, "axis 0 is that of the batch");
    struct ul_type wanted = *cache;
    wanted.dims[axis] = update->dims[axis];
    UL_TRY(ul_check_shape(infer, UPDATE, wanted.rank, wanted.dims));
    UL_TRY(ul_check_range(infer, "the length of the update", update->dims[axis], 0,
                          cache->dims[axis]));
    UL_TRY(ul_check_dtype(infer, WRITE_INDEXES, UL_CHECK_INDEXES));
    UL_TRY(ul_check_shape(infer, WRITE_INDEXES, 1, &cache->dims[0]));
    ul_infer_set_type(infer, 0, cache);
    return UL_OK;
}

/* How far after the first written element `at` is; it is in the update if that is below the
 * update's length. */
static ul_kx update_position(struct ul_lower *lower, ul_node_id node, ul_kx batch, ul_kx at,
                             int64_t length, int64_t update_length)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *info = ul_check_node(lower, node);
    if (!ul_lower_has_input(lower, node, WRITE_INDEXES))
        return at;
    ul_kx first = ul_kx_cast(k, UL_I64, ul_lower_load(lower, info->inputs[WRITE_INDEXES], &batch));
    if (is_circular(info)) {
        first = ul_kx_modi(k, first, length);
        return ul_kx_modi(k, ul_kx_sub(k, at, first), length);
    }
    return ul_kx_sub(k, at, ul_kx_checked_index(k, first, length - update_length + 1, false));
}

ul_kx ul_map_tensor_scatter(struct ul_lower *lower, ul_node_id node, uint32_t output,
                            const ul_kx *index)
{
    UL_ASSERT(output == 0);
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *info = ul_check_node(lower, node);
    const struct ul_type *cache = ul_lower_input_type(lower, node, CACHE);
    int64_t requested = ul_node_get_int(info, "axis", -2);
    uint32_t axis = ul_check_get_axis(requested, cache->rank);
    int64_t update_length = ul_lower_input_type(lower, node, UPDATE)->dims[axis];
    ul_kx old = ul_lower_load(lower, info->inputs[CACHE], index);
    if (update_length == 0)
        return old;
    ul_kx position =
        update_position(lower, node, index[0], index[axis], cache->dims[axis], update_length);
    ul_kx inside =
        ul_kx_binary(k, UL_KX_AND, ul_kx_binary(k, UL_KX_LE, ul_kx_index_const(k, 0), position),
                     ul_kx_binary(k, UL_KX_LT, position, ul_kx_index_const(k, update_length)));
    ul_kx update_index[UL_LIMIT_RANK];
    memcpy(update_index, index, cache->rank * sizeof *index);
    update_index[axis] = ul_kx_clamp(k, position, update_length - 1);
    ul_kx update = ul_lower_load(lower, info->inputs[UPDATE], update_index);
    return ul_kx_select(k, inside, update, old);
}
