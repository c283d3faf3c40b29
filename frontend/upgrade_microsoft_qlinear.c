/* SPDX-License-Identifier: Apache-2.0 */
/* com.microsoft's operators on quantized tensors that need more than a row of text. */
#include "frontend/upgrade_microsoft.h"

static const char quantized[] = "QuantizeLinear(y, y_scale, y_zero ? y_zero : 0:x)";

/* Before operator set 13 of ai.onnx it worked on two dimensions. */
void ul_microsoft_qlinear_softmax(struct ul_old_node *node)
{
    struct ul_old_node inner = *node;
    ul_value_id y = UL_NONE;
    const ul_value_id x = ul_old_make(node, NULL, "DequantizeLinear(x, x_scale, x_zero) {axis=1}");
    int64_t opset = ul_old_int(node, "opset", UL_FRONTEND_OPSET_MAX);
    inner.inputs = NULL;
    inner.input_count = inner.input_capacity = 0;
    inner.results = &y;
    inner.output_count = 1;
    ul_old_become(&inner, "Softmax");
    ul_old_remove_attr(&inner, "opset");
    ul_old_set_input(&inner, 0, x);
    if (opset < 13)
        ul_upgrade_softmax(&inner);
    if (!inner.finished)
        ul_old_emit_self(&inner);
    const struct ul_row_name names[] = {{"y", ul_row_value(y)}, {NULL, {0}}};
    if (inner.emitted != UL_NONE)
        ul_old_finish(node, names, quantized);
    node->finished = true;
}

void ul_microsoft_qlinear_concat(struct ul_old_node *node)
{
    uint32_t count = (node->input_count - 2) / 3;
    ul_value_id *parts = UL_NEW_ARRAY(node->builder->scratch, ul_value_id, count);
    struct ul_int_attr axis = {"axis", ul_old_int(node, "axis", 0)};
    if ((node->input_count - 2) % 3 != 0) {
        ul_old_invalid(node, "each tensor must have a scale and a zero point");
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_row_name names[] = {{"part", ul_row_value(node->inputs[2 + 3 * i])},
                                            {"scale", ul_row_value(node->inputs[3 + 3 * i])},
                                            {"zero", ul_row_value(node->inputs[4 + 3 * i])},
                                            {NULL, {0}}};
        parts[i] = ul_old_make(node, names, "DequantizeLinear(part, scale, zero) {axis=1}");
    }
    ul_value_id y = ul_old_emit(node, "Concat", count, parts, 1, &axis);
    const struct ul_row_name names[] = {{"y", ul_row_value(y)}, {NULL, {0}}};
    ul_old_finish(node, names, quantized);
}
