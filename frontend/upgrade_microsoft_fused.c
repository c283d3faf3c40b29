/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of com.microsoft with an activation after a product or a convolution, which
 * onnxruntime's optimizer fuses. */
#include "frontend/upgrade_microsoft.h"

#include <string.h>

/* Applies the activation of a fused node, with its parameters in the order of its attributes. */
static ul_value_id activate(struct ul_old_node *node, ul_value_id x, const char *activation,
                            const double *params, uint32_t param_count)
{
    static const struct {
        const char *name, *first, *second;
    } known[] = {{"Relu", NULL, NULL},
                 {"Tanh", NULL, NULL},
                 {"Sigmoid", NULL, NULL},
                 {"LeakyRelu", "alpha", NULL},
                 {"HardSigmoid", "alpha", "beta"}};
    if (strcmp(activation, "Clip") == 0 && param_count >= 2) {
        enum ul_dtype dtype = ul_old_dtype(node, 0);
        ul_value_id inputs[3] = {x, ul_old_const_float(node, dtype, params[0]),
                                 ul_old_const_float(node, dtype, params[1])};
        return ul_old_emit(node, "Clip", 3, inputs, 0, NULL);
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(activation, known[i].name) != 0)
            continue;
        ul_value_id y = ul_old_emit(node, activation, 1, &x, 0, NULL);
        if (known[i].first != NULL && param_count > 0)
            ul_old_emitted_float(node, y, known[i].first, params[0]);
        if (known[i].second != NULL && param_count > 1)
            ul_old_emitted_float(node, y, known[i].second, params[1]);
        return y;
    }
    return UL_NONE;
}

/* Makes the result of `body`, followed by the activation. */
static void finish(struct ul_old_node *node, const char *body, const char *activation,
                   const double *params, uint32_t param_count)
{
    ul_value_id y = ul_old_make(node, NULL, body);
    if (y != UL_NONE && activation[0] != '\0') {
        y = activate(node, y, activation, params, param_count);
        if (y == UL_NONE)
            ul_old_problem(node, "with this activation is not supported");
    }
    if (!node->finished)
        ul_old_set_result(node, 0, y);
    node->finished = true;
}

void ul_microsoft_fused_conv(struct ul_old_node *node)
{
    const struct ul_attr *attr = ul_old_attr(node, "activation_params");
    bool has_params = attr != NULL && attr->kind == UL_ATTR_FLOATS;
    finish(node, "Conv(x, w, b) {*} + residual", ul_old_string(node, "activation", ""),
           has_params ? attr->floats : NULL, has_params ? attr->count : 0);
}

void ul_microsoft_fused_gemm(struct ul_old_node *node)
{
    double params[2] = {ul_old_float(node, "activation_alpha", 0),
                        ul_old_float(node, "activation_beta", 0)};
    uint32_t param_count = ul_old_attr(node, "activation_beta") != NULL    ? 2
                           : ul_old_attr(node, "activation_alpha") != NULL ? 1
                                                                           : 0;
    finish(node, "Gemm(a, b, c) {*}", ul_old_string(node, "activation", ""), params, param_count);
}

/* It is as in ai.onnx 16. */
void ul_microsoft_grid_sample(struct ul_old_node *node)
{
    ul_upgrade_grid_sample(node);
    ul_old_become(node, "GridSample");
}
