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
    if (inner.emitted != UL_NONE)
        ul_old_finish(node, UL_WITH({"y", ul_row_value(y)}), quantized);
    node->finished = true;
}

void ul_microsoft_qlinear_concat(struct ul_old_node *node)
{
    uint32_t count = (node->input_count - 2) / 3;
    ul_value_id *parts = UL_NEW_ARRAY(node->builder->scratch, ul_value_id, count);
    if ((node->input_count - 2) % 3 != 0) {
        ul_old_invalid(node, "each tensor must have a scale and a zero point");
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        parts[i] = ul_old_make(node,
                               UL_WITH({"part", ul_row_value(node->inputs[2 + 3 * i])},
                                       {"scale", ul_row_value(node->inputs[3 + 3 * i])},
                                       {"zero", ul_row_value(node->inputs[4 + 3 * i])}),
                               "DequantizeLinear(part, scale, zero) {axis=1}");
    ul_value_id y = ul_old_concat(node, parts, count, ul_old_int(node, "axis", 0));
    ul_old_finish(node, UL_WITH({"y", ul_row_value(y)}), quantized);
}
