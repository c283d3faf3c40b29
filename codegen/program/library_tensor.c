/* SPDX-License-Identifier: Apache-2.0 */
/* A value as a tensor of a call. */
#include "codegen/program/library_internal.h"

#include "ir/view.h"

#include <string.h>

/* The type of the elements in memory; false: no library takes it. */
static bool find_type(const struct ul_graph *graph, ul_value_id value, enum ul_call_type *type)
{
    static const struct {
        enum ul_dtype dtype;
        enum ul_call_type type;
    } types[] = {{UL_F32, UL_CALL_F32}, {UL_F16, UL_CALL_F16}, {UL_BF16, UL_CALL_BF16},
                 {UL_U8, UL_CALL_U8},   {UL_I8, UL_CALL_I8},   {UL_I32, UL_CALL_I32}};
    enum ul_dtype dtype = graph->values[value].type.dtype;
    enum ul_dtype storage = ul_value_storage(graph, value);
    bool is_float = dtype == UL_F32, found = false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].dtype != storage || is_float != (types[i].type <= UL_CALL_BF16))
            continue;
        *type = types[i].type;
        found = is_float || storage == dtype;
    }
    return found;
}

bool ul_describe_numbers(const struct ul_graph *graph, ul_value_id value,
                         struct ul_call_tensor *tensor)
{
    const struct ul_value *info = &graph->values[value];
    enum ul_call_type type;
    if (!find_type(graph, value, &type) || info->type.rank > UL_CALL_RANK ||
        info->view.base == UL_NONE || ul_type_elements(&info->type) == 0)
        return false;
    memset(tensor, 0, sizeof *tensor);
    tensor->rank = info->type.rank;
    tensor->type = type;
    for (uint32_t d = 0; d < tensor->rank; d++) {
        tensor->dims[d] = info->type.dims[d];
        tensor->strides[d] = info->view.strides[d];
        if (tensor->dims[d] > 1 && tensor->strides[d] < 1)
            return false;
    }
    return true;
}

bool ul_describe_tensor(const struct ul_graph *graph, ul_value_id value,
                        struct ul_call_tensor *tensor)
{
    const struct ul_type *type = &graph->values[value].type;
    return type->dtype == UL_F32 && type->rank > 0 && ul_describe_numbers(graph, value, tensor);
}

/* Whether the strides of all axes with more than one element are those of a dense tensor whose axes
 * nest in `order`, outermost first; then all strides are set so. */
static bool finalize_as(struct ul_call_tensor *tensor, const uint32_t *order)
{
    int64_t strides[UL_CALL_RANK];
    int64_t count = 1;
    for (uint32_t i = tensor->rank; i-- > 0;) {
        uint32_t d = order[i];
        if (tensor->dims[d] > 1 && tensor->strides[d] != count)
            return false;
        strides[d] = count;
        count *= tensor->dims[d];
    }
    memcpy(tensor->strides, strides, tensor->rank * sizeof *strides);
    return true;
}

void ul_describe_finalize(struct ul_call_tensor *tensor, enum ul_call_kind kind)
{
    uint32_t order[UL_CALL_RANK] = {0};
    uint32_t rank = tensor->rank;
    bool is_row_major =
        kind == UL_CALL_MATMUL || kind == UL_CALL_ATTENTION || kind == UL_CALL_ATTENTION_GRADIENT;
    for (uint32_t d = 0; d < rank; d++)
        order[d] = d == 0 || is_row_major || rank < 3 ? d : d + 1 == rank ? 1 : d + 1;
    if (finalize_as(tensor, order))
        return;
    for (uint32_t d = 0; d < rank; d++)
        order[d] = d;
    if (finalize_as(tensor, order))
        return;
    int64_t reach = 1;
    for (uint32_t d = rank; d-- > 0;) {
        if (tensor->dims[d] == 1)
            tensor->strides[d] = reach;
        if (tensor->strides[d] * tensor->dims[d] > reach)
            reach = tensor->strides[d] * tensor->dims[d];
    }
}

uint64_t ul_describe_products(uint64_t count, uint32_t rank, const int64_t *dims)
{
    const uint64_t max = UINT64_MAX / 4; /* room for two operations for each product */
    for (uint32_t d = 0; d < rank; d++) {
        UL_ASSERT(dims[d] >= 0);
        count = ul_size_mul_saturating(count, (uint64_t)dims[d]);
    }
    return count < max ? count : max;
}
