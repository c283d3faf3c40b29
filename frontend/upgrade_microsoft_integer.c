/* SPDX-License-Identifier: Apache-2.0 */
/* Products of integers that onnxruntime gives as floats: of inputs that are quantized before, or
 * by the operator itself. The sums stay integers: MatMulInteger, and a scale behind it. */
#include "frontend/upgrade_microsoft.h"

ul_value_id ul_microsoft_multiply(struct ul_old_node *node,
                                  const struct ul_microsoft_product *product)
{
    ul_value_id inputs[4] = {product->a, product->b, product->a_zero, product->b_zero};
    uint32_t count = inputs[3] != UL_NONE ? 4 : inputs[2] != UL_NONE ? 3 : 2;
    ul_value_id sums = ul_old_emit(node, "MatMulInteger", count, inputs, 0, NULL);
    ul_value_id scale = ul_old_emit_two(node, "Mul", product->a_scale, product->b_scale);
    ul_value_id y = ul_old_emit_two(node, "Mul", ul_old_emit_cast(node, sums, UL_F32), scale);
    return product->bias == UL_NONE ? y : ul_old_emit_two(node, "Add", y, product->bias);
}

void ul_microsoft_integer_to_float(struct ul_old_node *node)
{
    struct ul_microsoft_product product = {.a = ul_old_input(node, 0),
                                           .b = ul_old_input(node, 1),
                                           .a_scale = ul_old_input(node, 2),
                                           .b_scale = ul_old_input(node, 3),
                                           .a_zero = ul_old_input(node, 4),
                                           .b_zero = ul_old_input(node, 5),
                                           .bias = ul_old_input(node, 6)};
    ul_old_set_result(node, 0, ul_microsoft_multiply(node, &product));
    node->finished = true;
}

void ul_microsoft_dynamic_matmul(struct ul_old_node *node)
{
    ul_node_id quantized = ul_old_emit_node(node, "DynamicQuantizeLinear", 1, node->inputs, 3);
    const ul_value_id *of = node->builder->graph->nodes[quantized].outputs;
    struct ul_microsoft_product product = {.a = of[0],
                                           .b = ul_old_input(node, 1),
                                           .a_scale = of[1],
                                           .a_zero = of[2],
                                           .b_scale = ul_old_input(node, 2),
                                           .b_zero = ul_old_input(node, 3),
                                           .bias = ul_old_input(node, 4)};
    ul_old_set_result(node, 0, ul_microsoft_multiply(node, &product));
    node->finished = true;
}
