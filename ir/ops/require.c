/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of shape rules; see require.h. */
#include "ir/ops/require.h"

#include <string.h>

enum ul_status ul_require_inputs(const struct ul_infer *infer)
{
    for (uint32_t i = 0; i < infer->node->input_count; i++) {
        if (infer->node->inputs[i] == UL_NONE)
            return ul_infer_invalid(infer, "input %u is required", (unsigned)i);
    }
    return UL_OK;
}

enum ul_status ul_require_dtype(const struct ul_infer *infer, const char *name,
                                enum ul_dtype otherwise, uint32_t set, enum ul_dtype *out)
{
    int64_t dtype = ul_node_get_int(infer->node, name, (int64_t)otherwise);
    if (dtype > 0 && dtype < UL_DTYPE_COUNT && (set >> dtype & 1u) != 0) {
        *out = (enum ul_dtype)dtype;
        return UL_OK;
    }
    struct ul_text text;
    ul_text_init(&text, infer->scratch);
    for (unsigned i = 1; i < UL_DTYPE_COUNT; i++) {
        if ((set >> i & 1u) != 0)
            ul_text_printf(&text, "%s%s (%u)", text.length == 0 ? "" : ", ",
                           ul_dtype_get((enum ul_dtype)i)->name, i);
    }
    return ul_infer_unsupported(infer, "%s asks for the element type %lld; supported are %s", name,
                                (long long)dtype, text.data);
}

enum ul_status ul_require_dims(const struct ul_infer *infer, const int64_t *dims, uint32_t count)
{
    if (count > UL_LIMIT_RANK)
        return ul_infer_unsupported(infer, "the shape has %u dimensions, more than %u",
                                    (unsigned)count, (unsigned)UL_LIMIT_RANK);
    for (uint32_t d = 0; d < count; d++)
        UL_TRY(ul_check_range(infer, "an entry of the shape", dims[d], 0, UL_LIMIT_DIM));
    return UL_OK;
}

enum ul_status ul_require_axes(const struct ul_infer *infer, const int64_t *axes, uint32_t count,
                               uint32_t rank, uint32_t *set)
{
    *set = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t axis;
        UL_TRY(ul_infer_axis(infer, axes[i], rank, &axis));
        if ((*set >> axis & 1u) != 0)
            return ul_infer_invalid(infer, "axis %u is named twice", (unsigned)axis);
        *set |= 1u << axis;
    }
    return UL_OK;
}

uint32_t ul_node_choice(const struct ul_node *node, const char *name, const char *const *choices)
{
    const char *text = ul_node_get_string(node, name, choices[0]);
    uint32_t i = 0;
    while (choices[i] != NULL && strcmp(choices[i], text) != 0)
        i++;
    return i;
}

enum ul_status ul_require_choice(const struct ul_infer *infer, const char *name,
                                 const char *const *choices, uint32_t *index)
{
    *index = ul_node_choice(infer->node, name, choices);
    if (choices[*index] != NULL)
        return UL_OK;
    struct ul_text text;
    ul_text_init(&text, infer->scratch);
    for (uint32_t i = 0; choices[i] != NULL; i++)
        ul_text_printf(&text, "%s\"%s\"", i == 0 ? "" : ", ", choices[i]);
    return ul_infer_invalid(infer, "%s is %s; there are %s", name,
                            ul_quote(infer->scratch, ul_node_get_string(infer->node, name, "")),
                            text.data);
}

enum ul_status ul_require_constant(const struct ul_infer *infer, uint32_t input)
{
    if (ul_infer_input(infer, input) == NULL || ul_infer_tensor(infer, input) != NULL)
        return UL_OK;
    const struct ul_value *value = &infer->graph->values[infer->node->inputs[input]];
    return ul_infer_unsupported(
        infer, "input %u (%s) must be known at compile time; %s", (unsigned)input,
        ul_quote(infer->scratch, value->name),
        ul_node_remedy(infer->graph, infer->node_id, input, infer->scratch));
}
