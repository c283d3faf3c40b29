/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of shape rules; see check.h. */
#include "ir/ops/check.h"

static const char *dtype_names(const struct ul_infer *infer, uint32_t allowed)
{
    struct ul_text text;
    ul_text_init(&text, infer->scratch);
    for (unsigned dtype = 1; dtype < UL_DTYPE_COUNT; dtype++) {
        if ((allowed >> dtype & 1u) == 0)
            continue;
        ul_text_printf(&text, "%s%s", text.length == 0 ? "" : ", ",
                       ul_dtype_get((enum ul_dtype)dtype)->name);
    }
    return text.data;
}

enum ul_status ul_check_dtype(const struct ul_infer *infer, uint32_t input, uint32_t allowed)
{
    const struct ul_type *type = ul_infer_input(infer, input);
    if (type == NULL || (allowed >> (unsigned)type->dtype & 1u) != 0)
        return UL_OK;
    return ul_infer_unsupported(infer, "input %u is of type %s; supported are %s", (unsigned)input,
                                ul_dtype_get(type->dtype)->name, dtype_names(infer, allowed));
}

enum ul_status ul_check_same_dtype(const struct ul_infer *infer, uint32_t a, uint32_t b)
{
    const struct ul_type *x = ul_infer_input(infer, a);
    const struct ul_type *y = ul_infer_input(infer, b);
    if (x == NULL || y == NULL || x->dtype == y->dtype)
        return UL_OK;
    return ul_infer_invalid(infer, "inputs %u and %u differ in type: %s and %s", (unsigned)a,
                            (unsigned)b, ul_type_text(infer->scratch, x),
                            ul_type_text(infer->scratch, y));
}

enum ul_status ul_check_shape(const struct ul_infer *infer, uint32_t input, uint32_t rank,
                              const int64_t *dims)
{
    const struct ul_type *type = ul_infer_input(infer, input);
    if (type == NULL)
        return UL_OK;
    struct ul_type wanted = ul_type_make(type->dtype, rank, dims);
    if (ul_type_equal(type, &wanted))
        return UL_OK;
    return ul_infer_invalid(infer, "input %u is %s, but %s is expected", (unsigned)input,
                            ul_type_text(infer->scratch, type),
                            ul_type_text(infer->scratch, &wanted));
}

enum ul_status ul_check_scalar(const struct ul_infer *infer, uint32_t input)
{
    const struct ul_type *type = ul_infer_input(infer, input);
    if (type == NULL || (type->rank <= 1 && ul_type_elements(type) == 1))
        return UL_OK;
    return ul_infer_invalid(infer, "input %u is %s, but one number is expected", (unsigned)input,
                            ul_type_text(infer->scratch, type));
}

enum ul_status ul_check_rank(const struct ul_infer *infer, uint32_t input, uint32_t min,
                             uint32_t max)
{
    const struct ul_type *type = ul_infer_input(infer, input);
    if (type == NULL || (type->rank >= min && type->rank <= max))
        return UL_OK;
    if (min == max)
        return ul_infer_invalid(infer, "input %u is of rank %u, but rank %u is expected",
                                (unsigned)input, (unsigned)type->rank, (unsigned)min);
    return ul_infer_invalid(infer, "input %u is of rank %u, but rank %u to %u is expected",
                            (unsigned)input, (unsigned)type->rank, (unsigned)min, (unsigned)max);
}

enum ul_status ul_check_range(const struct ul_infer *infer, const char *what, int64_t value,
                              int64_t low, int64_t high)
{
    if (value >= low && value <= high)
        return UL_OK;
    return ul_infer_invalid(infer, "%s is %lld, but must be from %lld to %lld", what,
                            (long long)value, (long long)low, (long long)high);
}

enum ul_status ul_check_int(const struct ul_infer *infer, uint32_t input, int64_t otherwise,
                            int64_t *value)
{
    *value = otherwise;
    if (ul_infer_input(infer, input) == NULL)
        return UL_OK;
    UL_TRY(ul_check_scalar(infer, input));
    const int64_t *values;
    uint32_t count;
    UL_TRY(ul_infer_ints(infer, input, &values, &count));
    *value = values[0];
    return UL_OK;
}

bool ul_check_read_ints(const struct ul_node *node, const char *name, uint32_t count,
                        int64_t otherwise, int64_t low, int64_t *out)
{
    uint32_t given;
    const int64_t *ints = ul_node_get_ints(node, name, &given);
    bool absent = ul_node_find_attr(node, name) == NULL;
    if (!absent && given != count)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        out[i] = absent ? otherwise : ints[i];
        if (out[i] < low || out[i] >= (int64_t)1 << 31)
            return false;
    }
    return true;
}

uint32_t ul_check_get_axis(int64_t axis, uint32_t rank)
{
    UL_ASSERT(axis >= -(int64_t)rank && axis < (int64_t)rank);
    return (uint32_t)(axis < 0 ? axis + (int64_t)rank : axis);
}

const struct ul_node *ul_check_node(const struct ul_lower *lower, ul_node_id node)
{
    return &lower->graph->nodes[node];
}

int64_t ul_check_get_int(const struct ul_lower *lower, ul_node_id node, uint32_t input, uint64_t at)
{
    const struct ul_node *data = ul_check_node(lower, node);
    UL_ASSERT(input < data->input_count && data->inputs[input] != UL_NONE);
    const struct ul_tensor *tensor = lower->graph->values[data->inputs[input]].tensor;
    UL_ASSERT(tensor != NULL);
    return ul_tensor_get_int(tensor, at);
}
