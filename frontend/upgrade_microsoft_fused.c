/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of com.microsoft that are an activation, a product or a convolution with something in
 * front of it or behind it (onnxruntime's optimizer fuses them), and those that exporters wrote
 * before ai.onnx could say them. */
#include "frontend/upgrade_microsoft.h"

#include <string.h>

static void drop_inputs(struct ul_old_node *node, uint32_t kept)
{
    if (node->input_count > kept)
        node->input_count = kept;
}

/* x + bias, then the activation. */
static void add_bias(struct ul_old_node *node)
{
    if (ul_old_input(node, 1) != UL_NONE)
        ul_old_set_input(node, 0, ul_old_emit_two(node, "Add", node->inputs[0], node->inputs[1]));
    drop_inputs(node, 1);
}

void ul_microsoft_bias_gelu(struct ul_old_node *node)
{
    add_bias(node);
    ul_old_become(node, "Gelu");
}

void ul_microsoft_fast_gelu(struct ul_old_node *node)
{
    ul_microsoft_bias_gelu(node);
    ul_old_set_string(node, "approximate", "tanh");
}

void ul_microsoft_quick_gelu(struct ul_old_node *node)
{
    ul_value_id x = ul_old_input(node, 0);
    enum ul_dtype dtype = ul_old_dtype(node, 0);
    ul_value_id scaled = ul_old_emit_two(
        node, "Mul", x, ul_old_const_float(node, dtype, ul_old_float(node, "alpha", 1.702)));
    ul_value_id gate = ul_old_emit(node, "Sigmoid", 1, &scaled, 0, NULL);
    ul_old_set_result(node, 0, ul_old_emit_two(node, "Mul", x, gate));
    node->finished = true;
}

/* x + bias + skip. */
void ul_microsoft_bias_add(struct ul_old_node *node)
{
    ul_old_set_input(node, 0, ul_old_emit_two(node, "Add", node->inputs[0], node->inputs[1]));
    ul_old_set_input(node, 1, node->inputs[2]);
    drop_inputs(node, 2);
    ul_old_become(node, "Add");
}

/* Transposes an operand: `batch` moves the first dimension behind those of the batch, `matrix`
 * swaps the last two of what is then there. Vectors have nothing to swap. */
static bool turn_operand(struct ul_old_node *node, uint32_t index, bool batch, bool matrix)
{
    struct ul_type type;
    int64_t perm[UL_LIMIT_RANK];
    if (!batch && !matrix)
        return true;
    if (!ul_old_shape(node, index, UINT32_MAX, &type))
        return false;
    if (type.rank < 2 || (batch && type.rank < 3)) {
        ul_old_invalid(node, "an operand has no dimensions to transpose");
        return false;
    }
    for (uint32_t d = 0; d < type.rank; d++)
        perm[d] = d;
    for (uint32_t d = 0; batch && d + 2 < type.rank; d++)
        perm[d] = d + 1;
    if (batch)
        perm[type.rank - 2] = 0;
    int64_t row = perm[type.rank - 2];
    if (matrix) {
        perm[type.rank - 2] = perm[type.rank - 1];
        perm[type.rank - 1] = row;
    }
    ul_old_set_input(node, index,
                     ul_old_emit_transpose(node, node->inputs[index], type.rank, perm));
    return true;
}

void ul_microsoft_fused_matmul(struct ul_old_node *node)
{
    double alpha = ul_old_float(node, "alpha", 1);
    bool a = ul_old_int(node, "transA", 0) != 0, b = ul_old_int(node, "transB", 0) != 0;
    bool batch_a = ul_old_int(node, "transBatchA", 0) != 0;
    bool batch_b = ul_old_int(node, "transBatchB", 0) != 0;
    if (!turn_operand(node, 0, batch_a, a) || !turn_operand(node, 1, batch_b, b))
        return;
    node->attr_count = 0;
    ul_old_become(node, "MatMul");
    ul_old_emit_self(node);
    if (alpha == 1 || node->emitted == UL_NONE)
        return;
    ul_value_id factor = ul_old_const_float(node, ul_old_dtype(node, 0), alpha);
    ul_old_set_result(node, 0, ul_old_emit_two(node, "Mul", node->results[0], factor));
}

/* The activation behind a fused node, with its parameters in the order of its attributes. */
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

static void finish_activation(struct ul_old_node *node, const char *activation,
                              const double *params, uint32_t param_count)
{
    if (activation[0] == '\0' || node->emitted == UL_NONE)
        return;
    ul_value_id y = activate(node, node->results[0], activation, params, param_count);
    if (y == UL_NONE)
        ul_old_problem(node, "with this activation is not supported");
    else
        ul_old_set_result(node, 0, y);
}

void ul_microsoft_fused_conv(struct ul_old_node *node)
{
    const char *activation = ul_old_string(node, "activation", "");
    const struct ul_attr *attr = ul_old_attr(node, "activation_params");
    bool has_params = attr != NULL && attr->kind == UL_ATTR_FLOATS;
    const double *params = has_params ? attr->floats : NULL;
    uint32_t param_count = has_params ? attr->count : 0;
    ul_value_id residual = ul_old_input(node, 3);
    drop_inputs(node, 3);
    ul_old_remove_attr(node, "activation");
    ul_old_remove_attr(node, "activation_params");
    ul_old_become(node, "Conv");
    ul_old_emit_self(node);
    if (residual != UL_NONE && node->emitted != UL_NONE)
        ul_old_set_result(node, 0, ul_old_emit_two(node, "Add", node->results[0], residual));
    finish_activation(node, activation, params, param_count);
}

void ul_microsoft_fused_gemm(struct ul_old_node *node)
{
    const char *activation = ul_old_string(node, "activation", "");
    double params[2] = {ul_old_float(node, "activation_alpha", 0),
                        ul_old_float(node, "activation_beta", 0)};
    uint32_t param_count = ul_old_attr(node, "activation_beta") != NULL    ? 2
                           : ul_old_attr(node, "activation_alpha") != NULL ? 1
                                                                           : 0;
    ul_old_remove_attr(node, "activation");
    ul_old_remove_attr(node, "activation_alpha");
    ul_old_remove_attr(node, "activation_beta");
    ul_old_remove_attr(node, "activation_gamma");
    ul_old_become(node, "Gemm");
    ul_old_emit_self(node);
    finish_activation(node, activation, params, param_count);
}

/* Of each row of a from each row of b. The differences stand in the kernel that adds them up; a
 * product of both, with their squares, would cancel. */
void ul_microsoft_cdist(struct ul_old_node *node)
{
    const char *metric = ul_old_string(node, "metric", "sqeuclidean");
    bool is_root = strcmp(metric, "euclidean") == 0;
    if (!is_root && strcmp(metric, "sqeuclidean") != 0) {
        ul_old_problem(node, "has a metric other than euclidean and sqeuclidean");
        return;
    }
    struct ul_type unused;
    if (!ul_old_shape(node, 0, 1u << 2, &unused) || !ul_old_shape(node, 1, 1u << 2, &unused))
        return;
    ul_value_id a = ul_old_emit_two(node, "Unsqueeze", ul_old_input(node, 0),
                                    ul_old_const_ints(node, (int64_t[]){1}, 1));
    ul_value_id b = ul_old_emit_two(node, "Unsqueeze", ul_old_input(node, 1),
                                    ul_old_const_ints(node, (int64_t[]){0}, 1));
    ul_value_id last = ul_old_const_ints(node, (int64_t[]){-1}, 1);
    ul_value_id sums =
        ul_old_emit_two(node, "ReduceSumSquare", ul_old_emit_two(node, "Sub", a, b), last);
    ul_value_id distances = ul_old_emit_two(node, "Squeeze", sums, last);
    ul_old_set_result(node, 0, is_root ? ul_old_emit_one(node, "Sqrt", distances) : distances);
    node->finished = true;
}

/* As ai.onnx 16 has it. */
void ul_microsoft_grid_sample(struct ul_old_node *node)
{
    ul_upgrade_grid_sample(node);
    ul_old_become(node, "GridSample");
}
