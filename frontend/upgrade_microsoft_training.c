/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient operators of onnxruntime's training graphs. Most are the operator that they are the
 * gradient of and its derivative (gradient.c); where a result is given and not what it was made
 * of, a row of ir/ops that reads the result. Their outputs that nobody names are not made. */
#include "frontend/upgrade_microsoft.h"
#include "ir/build.h"
#include "ir/op.h"

#include <string.h>

/* A node of any row, with the attributes of the one at hand; its first output. */
static ul_value_id emit_row(struct ul_old_node *node, enum ul_op op, const ul_value_id *inputs,
                            uint32_t input_count)
{
    struct ul_builder *builder = node->builder;
    struct ul_build build =
        ul_build_last(builder->graph, builder->block, ul_builder_name(builder, node->name));
    ul_node_id id = ul_build_node(&build, op, inputs, input_count, 1);
    builder->graph->nodes[id].source = node->source;
    for (uint32_t i = 0; i < node->attr_count; i++)
        ul_node_set_attr(builder->graph, id, &node->attrs[i]);
    return builder->graph->nodes[id].outputs[0];
}

static ul_value_id emit_like(struct ul_old_node *node, const char *op, const ul_value_id *inputs,
                             uint32_t input_count)
{
    return emit_row(node, ul_op_find("", op), inputs, input_count);
}

/* Each output that is named is the derivative of y by one of `xs`. */
static void finish_derivative(struct ul_old_node *node, ul_value_id y, ul_value_id gradient,
                              const ul_value_id *xs, uint32_t count)
{
    ul_value_id wanted[UL_MICROSOFT_MAX_XS];
    uint32_t outputs[UL_MICROSOFT_MAX_XS], wanted_count = 0;
    UL_ASSERT(count <= UL_MICROSOFT_MAX_XS);
    for (uint32_t i = 0; i < count && i < node->output_count; i++) {
        if (node->outputs[i][0] == '\0')
            continue;
        outputs[wanted_count] = i;
        wanted[wanted_count++] = xs[i];
    }
    node->finished = true;
    if (wanted_count == 0)
        return;
    ul_node_id id = ul_old_emit_derivative(node, y, gradient, wanted, wanted_count, 0);
    for (uint32_t i = 0; i < wanted_count; i++)
        ul_old_set_result(node, outputs[i], node->builder->graph->nodes[id].outputs[i]);
}

static void finish(struct ul_old_node *node, ul_value_id value)
{
    ul_old_set_result(node, 0, value);
    node->finished = true;
}

/* ---- Elementwise ---- */

/* By the text of an operator's row, which reads the result (or only its sign) as both. */
static void by_result(struct ul_old_node *node, const char *of)
{
    const ul_value_id inputs[3] = {node->inputs[0], node->inputs[1], node->inputs[1]};
    ul_old_set_string(node, "ul_of", of);
    ul_old_set_int(node, "ul_input", 0);
    finish(node, emit_row(node, UL_OP_Gradient, inputs, 2));
}

void ul_microsoft_sigmoid_grad(struct ul_old_node *node)
{
    by_result(node, "Sigmoid");
}

void ul_microsoft_tanh_grad(struct ul_old_node *node)
{
    by_result(node, "Tanh");
}

/* Of x or of the result: both are positive where the other is. */
void ul_microsoft_relu_grad(struct ul_old_node *node)
{
    by_result(node, "Relu");
}

void ul_microsoft_leaky_relu_grad(struct ul_old_node *node)
{
    ul_value_id g = node->inputs[0], y = node->inputs[1];
    enum ul_dtype dtype = ul_old_dtype(node, 0);
    ul_value_id zero = ul_old_const_float(node, dtype, 0);
    ul_value_id alpha = ul_old_const_float(node, dtype, ul_old_float(node, "alpha", (double)0.01f));
    ul_value_id inputs[3] = {ul_old_emit_two(node, "Greater", y, zero), g,
                             ul_old_emit_two(node, "Mul", g, alpha)};
    finish(node, ul_old_emit(node, "Where", 3, inputs, 0, NULL));
}

static void by_operand(struct ul_old_node *node, const char *of, bool approximate)
{
    ul_value_id x = node->inputs[1];
    if (ul_old_has_input(node, 2))
        x = ul_old_emit_two(node, "Add", x, node->inputs[2]);
    if (approximate)
        ul_old_set_string(node, "approximate", "tanh");
    finish_derivative(node, emit_like(node, of, &x, 1), node->inputs[0], &x, 1);
}

void ul_microsoft_gelu_grad(struct ul_old_node *node)
{
    by_operand(node, "Gelu", false);
}

void ul_microsoft_fast_gelu_grad(struct ul_old_node *node)
{
    by_operand(node, "Gelu", true);
}

void ul_microsoft_quick_gelu_grad(struct ul_old_node *node)
{
    ul_value_id x = node->inputs[1];
    ul_value_id alpha = ul_old_const_float(node, ul_old_dtype(node, 1),
                                           ul_old_float(node, "alpha", (double)1.702f));
    ul_value_id gate = ul_old_emit_one(node, "Sigmoid", ul_old_emit_two(node, "Mul", x, alpha));
    finish_derivative(node, ul_old_emit_two(node, "Mul", x, gate), node->inputs[0], &x, 1);
}

void ul_microsoft_div_grad(struct ul_old_node *node)
{
    const ul_value_id *xs = node->inputs + 1;
    finish_derivative(node, ul_old_emit_two(node, "Div", xs[0], xs[1]), node->inputs[0], xs, 2);
}

/* g * mask / (1 - ratio); g itself where nothing was dropped. */
void ul_microsoft_dropout_grad(struct ul_old_node *node)
{
    ul_value_id g = node->inputs[0], mask = node->inputs[1], training = ul_old_input(node, 3);
    enum ul_dtype dtype = ul_old_dtype(node, 0);
    ul_value_id ratio = ul_old_has_input(node, 2) ? ul_old_emit_cast(node, node->inputs[2], dtype)
                                                  : ul_old_const_float(node, dtype, 0.5);
    ul_value_id kept = ul_old_emit_two(node, "Sub", ul_old_const_float(node, dtype, 1), ratio);
    ul_value_id inputs[3] = {mask, ul_old_emit_two(node, "Div", g, kept),
                             ul_old_const_float(node, dtype, 0)};
    ul_value_id share = ul_old_emit(node, "Where", 3, inputs, 0, NULL);
    if (training != UL_NONE) {
        const ul_value_id either[3] = {training, share, g};
        share = ul_old_emit(node, "Where", 3, either, 0, NULL);
    }
    finish(node, share);
}

/* ---- Softmax and losses ---- */

void ul_microsoft_softmax_grad(struct ul_old_node *node)
{
    bool logarithm = strncmp(node->op, "Log", 3) == 0, flat = strstr(node->op, "_13") == NULL;
    enum ul_op row = logarithm ? UL_OP_LogSoftmaxGradient : UL_OP_SoftmaxGradient;
    ul_value_id inputs[2] = {node->inputs[0], node->inputs[1]};
    struct ul_type type;
    if (!ul_old_shape(node, 0, UINT32_MAX, &type))
        return;
    int64_t axis = ul_old_int(node, "axis", flat ? 1 : -1);
    axis += axis < 0 ? type.rank : 0;
    if (axis < 0 || axis >= (int64_t)type.rank) {
        ul_old_invalid(node, "axis is out of range");
        return;
    }
    ul_old_set_int(node, "axis", flat ? 1 : axis);
    int64_t matrix[2] = {1, 1};
    for (uint32_t d = 0; d < type.rank; d++)
        matrix[d >= axis] *= type.dims[d];
    for (uint32_t i = 0; flat && i < 2; i++)
        inputs[i] = ul_old_emit_reshape(node, inputs[i], 2, matrix);
    ul_value_id dx = emit_row(node, row, inputs, 2);
    finish(node, flat ? ul_old_emit_reshape(node, dx, type.rank, type.dims) : dx);
}

/* The scores that a loss made its logarithms of probabilities of; else these themselves, whose
 * softmax is the same. */
static ul_value_id scores_of(const struct ul_graph *graph, ul_value_id log_prob)
{
    const struct ul_value *value = &graph->values[log_prob];
    if (value->kind != UL_VALUE_NODE || value->producer_output != 1 ||
        graph->nodes[value->producer].op != UL_OP_SoftmaxCrossEntropyLoss)
        return log_prob;
    return graph->nodes[value->producer].inputs[0];
}

/* An input of the operators with "Internal" in their names is the number of the attribute. */
static bool read_ignored(struct ul_old_node *node, uint32_t input)
{
    if (!ul_old_has_input(node, input))
        return true;
    const struct ul_tensor *tensor = ul_old_tensor(node, node->inputs[input]);
    if (tensor == NULL) {
        ul_old_problem(node, "needs ignore_index as a constant; fix it with --const");
        return false;
    }
    ul_old_set_int(node, "ignore_index", ul_tensor_get_int(tensor, 0));
    return true;
}

void ul_microsoft_loss(struct ul_old_node *node)
{
    if (!read_ignored(node, 3))
        return;
    ul_old_remove_attr(node, "output_type");
    node->input_count = node->input_count > 3 ? 3 : node->input_count;
    ul_old_become(node, "SoftmaxCrossEntropyLoss");
}

void ul_microsoft_loss_grad(struct ul_old_node *node)
{
    ul_value_id x = scores_of(node->builder->graph, node->inputs[1]), g = node->inputs[0];
    ul_value_id inputs[3] = {x, node->inputs[2], ul_old_input(node, 3)};
    bool reduces = strcmp(ul_old_string(node, "reduction", "mean"), "none") != 0;
    if (!read_ignored(node, 4))
        return;
    ul_old_remove_attr(node, "output_type");
    ul_value_id y =
        emit_like(node, "SoftmaxCrossEntropyLoss", inputs, inputs[2] == UL_NONE ? 2 : 3);
    if (reduces)
        g = ul_old_emit_reshape(node, g, 0, NULL);
    if (!ul_old_has_input(node, 5)) {
        finish_derivative(node, y, g, &x, 1);
        return;
    }
    ul_node_id id = ul_old_emit_derivative(node, y, g, &x, 1, 0);
    finish(node, ul_old_emit_two(node, "Add", node->builder->graph->nodes[id].outputs[0],
                                 node->inputs[5]));
}

/* ---- Normalization ---- */

/* A normalization by the statistics that are given, since the operator does not say which epsilon
 * is in them. With n = (x - mean) / deviation, or x / deviation where no mean is taken off,
 *
 *      dbias = sum g, dscale = sum g n, dx = (h - mean h - n mean (h n)) / deviation, h = g scale
 *
 * where sums are over what is not normalized, and means over the rest. */
struct layer_norm {
    struct ul_old_node *node;
    struct ul_type type;
    int64_t axis;        /* the first that is normalized */
    enum ul_dtype dtype; /* that is computed in, the statistics' */
    ul_value_id inverse; /* 1 / deviation */
    ul_value_id mean;    /* UL_NONE: none is taken off */
};

static bool read_layer_norm(struct ul_old_node *node, bool has_mean, struct layer_norm *norm)
{
    uint32_t last = has_mean ? 4 : 3;
    *norm = (struct layer_norm){.node = node,
                                .dtype = ul_old_dtype(node, last),
                                .inverse = node->inputs[last],
                                .mean = has_mean ? node->inputs[3] : UL_NONE};
    if (!ul_old_shape(node, 1, UINT32_MAX & ~1u, &norm->type))
        return false;
    norm->axis = ul_old_int(node, "axis", -1);
    norm->axis += norm->axis < 0 ? norm->type.rank : 0;
    if (norm->axis >= 0 && norm->axis < (int64_t)norm->type.rank)
        return true;
    ul_old_invalid(node, "axis is out of range");
    return false;
}

/* Means over what is normalized, which stays with size 1; sums over the rest. */
static ul_value_id norm_reduce(const struct layer_norm *norm, ul_value_id x, bool is_mean)
{
    int64_t axes[UL_LIMIT_RANK];
    struct ul_int_attr keep = {"keepdims", is_mean};
    uint32_t count = 0;
    for (uint32_t d = 0; d < norm->type.rank; d++)
        if (((int64_t)d >= norm->axis) == is_mean)
            axes[count++] = d;
    if (count == 0)
        return x;
    ul_value_id inputs[2] = {x, ul_old_const_ints(norm->node, axes, count)};
    return ul_old_emit(norm->node, is_mean ? "ReduceMean" : "ReduceSum", 2, inputs, 1, &keep);
}

static void set_norm_result(const struct layer_norm *norm, uint32_t output, ul_value_id value)
{
    struct ul_old_node *node = norm->node;
    if (output < node->output_count && node->outputs[output][0] != '\0')
        ul_old_set_result(node, output, ul_old_emit_cast(node, value, norm->type.dtype));
}

static void layer_norm_grad(struct ul_old_node *node, bool has_mean)
{
    struct layer_norm norm;
    if (!read_layer_norm(node, has_mean, &norm))
        return;
    ul_value_id g = ul_old_emit_cast(node, node->inputs[0], norm.dtype);
    ul_value_id n = ul_old_emit_cast(node, node->inputs[1], norm.dtype);
    ul_value_id scale = ul_old_emit_cast(node, node->inputs[2], norm.dtype);
    if (has_mean)
        n = ul_old_emit_two(node, "Sub", n, norm.mean);
    n = ul_old_emit_two(node, "Mul", n, norm.inverse);
    ul_value_id h = ul_old_emit_two(node, "Mul", g, scale);
    ul_value_id along = norm_reduce(&norm, ul_old_emit_two(node, "Mul", h, n), true);
    ul_value_id dx = ul_old_emit_two(node, "Sub", h, ul_old_emit_two(node, "Mul", n, along));
    if (has_mean) {
        dx = ul_old_emit_two(node, "Sub", dx, norm_reduce(&norm, h, true));
        set_norm_result(&norm, 2, norm_reduce(&norm, g, false));
    }
    set_norm_result(&norm, 0, ul_old_emit_two(node, "Mul", dx, norm.inverse));
    set_norm_result(&norm, 1, norm_reduce(&norm, ul_old_emit_two(node, "Mul", g, n), false));
    node->finished = true;
}

/* dY, X, scale, mean and 1 / deviation */
void ul_microsoft_layer_norm_grad(struct ul_old_node *node)
{
    layer_norm_grad(node, true);
}

/* dY, X, scale and 1 / deviation */
void ul_microsoft_rms_norm_grad(struct ul_old_node *node)
{
    layer_norm_grad(node, false);
}

/* Sums over all dimensions but the second, which stay with size 1. */
static ul_value_id channel_sums(struct ul_old_node *node, ul_value_id x, uint32_t rank,
                                const char *op)
{
    int64_t axes[UL_LIMIT_RANK];
    uint32_t count = 0;
    for (uint32_t d = 0; d < rank; d++)
        if (d != 1)
            axes[count++] = d;
    return ul_old_emit_two(node, op, x, ul_old_const_ints(node, axes, count));
}

static ul_value_id as_channels(struct ul_old_node *node, ul_value_id x, const struct ul_type *type)
{
    int64_t dims[UL_LIMIT_RANK];
    for (uint32_t d = 0; d < type->rank; d++)
        dims[d] = d == 1 ? type->dims[1] : 1;
    return ul_old_emit_reshape(node, x, type->rank, dims);
}

/* By the statistics of the batch; gives these, and running ones. */
void ul_microsoft_batch_norm(struct ul_old_node *node)
{
    struct ul_type type;
    if (ul_old_int(node, "training_mode", 0) == 0) {
        if (node->output_count > 1) {
            ul_old_problem(node, "gives statistics without training_mode");
            return;
        }
        ul_old_become(node, "BatchNormalization");
        return;
    }
    if (!ul_old_shape(node, 0, UINT32_MAX & ~3u, &type))
        return;
    enum ul_dtype dtype = type.dtype;
    ul_value_id x = node->inputs[0], keep = UL_NONE, take = UL_NONE;
    double epsilon = ul_old_float(node, "epsilon", (double)1e-5f);
    double momentum = ul_old_float(node, "momentum", (double)0.9f);
    ul_value_id mean = channel_sums(node, x, type.rank, "ReduceMean");
    ul_value_id centred = ul_old_emit_two(node, "Sub", x, mean);
    ul_value_id squares = ul_old_emit_two(node, "Mul", centred, centred);
    ul_value_id variance = channel_sums(node, squares, type.rank, "ReduceMean");
    ul_value_id shifted =
        ul_old_emit_two(node, "Add", variance, ul_old_const_float(node, dtype, epsilon));
    ul_value_id inverse =
        ul_old_emit_one(node, "Reciprocal", ul_old_emit_one(node, "Sqrt", shifted));
    ul_value_id factor =
        ul_old_emit_two(node, "Mul", inverse, as_channels(node, node->inputs[1], &type));
    ul_value_id y = ul_old_emit_two(node, "Mul", centred, factor);
    y = ul_old_emit_two(node, "Add", y, as_channels(node, node->inputs[2], &type));
    const ul_value_id made[4] = {mean, variance, mean, inverse};
    node->finished = true;
    ul_old_set_result(node, 0, y);
    for (uint32_t i = 1; i < node->output_count && i < 5; i++) {
        if (node->outputs[i][0] == '\0')
            continue;
        ul_value_id value = ul_old_emit_reshape(node, made[i - 1], 1, type.dims + 1);
        if (i <= 2) {
            keep = ul_old_emit_two(node, "Mul", node->inputs[2 + i],
                                   ul_old_const_float(node, dtype, momentum));
            take =
                ul_old_emit_two(node, "Mul", value, ul_old_const_float(node, dtype, 1 - momentum));
            value = ul_old_emit_two(node, "Add", keep, take);
        }
        ul_old_set_result(node, i, value);
    }
}

/* dY, X, scale, mean and 1 / deviation:
 *
 *      dbias = sum g, dscale = sum g n, dx = scale / deviation (g - mean g - n mean (g n))
 */
void ul_microsoft_batch_norm_grad(struct ul_old_node *node)
{
    struct ul_type type;
    if (!ul_old_shape(node, 1, UINT32_MAX & ~3u, &type))
        return;
    int64_t count = 1;
    for (uint32_t d = 0; d < type.rank; d++)
        count *= d == 1 ? 1 : type.dims[d];
    ul_value_id g = node->inputs[0], inverse = as_channels(node, node->inputs[4], &type);
    ul_value_id n =
        ul_old_emit_two(node, "Sub", node->inputs[1], as_channels(node, node->inputs[3], &type));
    n = ul_old_emit_two(node, "Mul", n, inverse);
    ul_value_id dscale =
        channel_sums(node, ul_old_emit_two(node, "Mul", g, n), type.rank, "ReduceSum");
    ul_value_id dbias = channel_sums(node, g, type.rank, "ReduceSum");
    ul_value_id part = ul_old_const_float(node, type.dtype, 1.0 / (double)(count > 0 ? count : 1));
    ul_value_id dx = ul_old_emit_two(node, "Sub", g, ul_old_emit_two(node, "Mul", dbias, part));
    ul_value_id along = ul_old_emit_two(node, "Mul", dscale, part);
    dx = ul_old_emit_two(node, "Sub", dx, ul_old_emit_two(node, "Mul", n, along));
    ul_value_id factor =
        ul_old_emit_two(node, "Mul", inverse, as_channels(node, node->inputs[2], &type));
    ul_old_set_result(node, 0, ul_old_emit_two(node, "Mul", dx, factor));
    ul_old_set_result(node, 1, ul_old_emit_reshape(node, dscale, 1, type.dims + 1));
    ul_old_set_result(node, 2, ul_old_emit_reshape(node, dbias, 1, type.dims + 1));
    node->finished = true;
}

/* ---- Convolution and pooling ---- */

static void conv_grad(struct ul_old_node *node, const char *op, uint32_t channels)
{
    struct ul_type w;
    if (!ul_old_shape(node, 2, UINT32_MAX & ~3u, &w))
        return;
    int64_t count = w.dims[channels], groups = channels == 1 ? ul_old_int(node, "group", 1) : 1;
    if (groups < 1 || groups > UL_LIMIT_DIM / (count > 0 ? count : 1)) {
        ul_old_invalid(node, "group is out of range");
        return;
    }
    count *= groups;
    struct ul_type bias = ul_type_make(w.dtype, 1, &count);
    const ul_value_id xs[3] = {node->inputs[1], node->inputs[2], ul_old_emit_unknown(node, &bias)};
    finish_derivative(node, emit_like(node, op, xs, 3), node->inputs[0], xs, 3);
}

void ul_microsoft_conv_grad(struct ul_old_node *node)
{
    conv_grad(node, "Conv", 0);
}

void ul_microsoft_conv_transpose_grad(struct ul_old_node *node)
{
    conv_grad(node, "ConvTranspose", 1);
}

void ul_microsoft_max_pool_grad(struct ul_old_node *node)
{
    const struct ul_graph *graph = node->builder->graph;
    if (!ul_old_has_input(node, 0) || !ul_old_has_input(node, 1)) {
        ul_old_invalid(node, "inputs are missing");
        return;
    }
    const struct ul_value *taps = &graph->values[node->inputs[1]];
    if (taps->kind != UL_VALUE_NODE || taps->producer_output != 1 ||
        graph->nodes[taps->producer].op != UL_OP_MaxPool) {
        ul_old_problem(node, "takes indices that no MaxPool of the model gives");
        return;
    }
    ul_value_id x = graph->nodes[taps->producer].inputs[0];
    ul_old_remove_attr(node, "storage_order");
    finish_derivative(node, emit_like(node, "MaxPool", &x, 1), node->inputs[0], &x, 1);
}

/* What was pooled: onnxruntime names the gradient of a value after it. */
void ul_microsoft_average_pool_grad(struct ul_old_node *node)
{
    struct ul_builder *builder = node->builder;
    if (!ul_old_has_input(node, 0) || node->output_count == 0) {
        ul_old_invalid(node, "has no input or no output");
        return;
    }
    size_t length = strlen(node->outputs[0]);
    const char *end = strstr(node->outputs[0], "_grad");
    for (const char *at = end; at != NULL; at = strstr(at + 1, "_grad"))
        end = at;
    const char *name = ul_arena_printf(
        builder->scratch, "%.*s", (int)(end == NULL ? length : (size_t)(end - node->outputs[0])),
        node->outputs[0]);
    ul_value_id of = ul_scope_find(builder->scope, name);
    struct ul_type type = {.rank = UL_RANK_UNKNOWN};
    if (end != NULL && of < UL_SEQUENCE_FIRST)
        type = ul_old_type(node, of);
    if (!ul_type_known(&type)) {
        ul_old_problem(node, "does not say the shape of what was pooled: its output has to be "
                             "called like that, with _grad behind it");
        return;
    }
    ul_value_id x = ul_old_emit_unknown(node, &type);
    finish_derivative(node, emit_like(node, "AveragePool", &x, 1), node->inputs[0], &x, 1);
}

/* ---- Movements ---- */

/* Of the operator over something of a shape that is an input: the other inputs follow it. */
static void moved_from_shape(struct ul_old_node *node, const char *op, uint32_t shape,
                             uint32_t gradient)
{
    const struct ul_tensor *tensor = ul_old_tensor(node, node->inputs[shape]);
    struct ul_type type = {.dtype = ul_old_dtype(node, gradient)};
    if (tensor == NULL || tensor->type.rank != 1 || tensor->type.dims[0] > UL_LIMIT_RANK) {
        ul_old_problem(node, "needs a shape that is known at compile time");
        return;
    }
    type.rank = (uint32_t)tensor->type.dims[0];
    for (uint32_t d = 0; d < type.rank; d++)
        type.dims[d] = ul_tensor_get_int(tensor, d);
    if (!ul_type_in_limits(&type)) {
        ul_old_invalid(node, "the shape is out of range");
        return;
    }
    ul_value_id inputs[8] = {ul_old_emit_unknown(node, &type)};
    uint32_t count = 1;
    for (uint32_t i = 0; i < node->input_count && count < 8; i++)
        if (i != shape && i != gradient)
            inputs[count++] = node->inputs[i];
    finish_derivative(node, emit_like(node, op, inputs, count), node->inputs[gradient], inputs, 1);
}

void ul_microsoft_gather_grad(struct ul_old_node *node)
{
    moved_from_shape(node, "Gather", 0, 2);
}

void ul_microsoft_gather_nd_grad(struct ul_old_node *node)
{
    moved_from_shape(node, "GatherND", 0, 2);
}

void ul_microsoft_gather_elements_grad(struct ul_old_node *node)
{
    moved_from_shape(node, "GatherElements", 1, 0);
}

void ul_microsoft_slice_grad(struct ul_old_node *node)
{
    moved_from_shape(node, "Slice", 1, 0);
}

void ul_microsoft_resize_grad(struct ul_old_node *node)
{
    const ul_value_id inputs[3] = {node->inputs[1], UL_NONE, ul_old_input(node, 3)};
    finish_derivative(node, emit_like(node, "Resize", inputs, 3), node->inputs[0], inputs, 1);
}

/* The second result has the sizes of the operands, which SplitTraining takes. */
void ul_microsoft_concat_training(struct ul_old_node *node)
{
    int64_t axis = ul_old_int(node, "axis", 0);
    int64_t *sizes = UL_NEW_ARRAY(node->builder->scratch, int64_t, node->input_count);
    bool wants_sizes = node->output_count > 1 && node->outputs[1][0] != '\0';
    for (uint32_t i = 0; wants_sizes && i < node->input_count; i++) {
        struct ul_type type;
        if (!ul_old_shape(node, i, UINT32_MAX, &type))
            return;
        int64_t at = axis < 0 ? axis + type.rank : axis;
        sizes[i] = at >= 0 && at < (int64_t)type.rank ? type.dims[at] : 0;
    }
    ul_value_id y = emit_like(node, "Concat", node->inputs, node->input_count);
    finish(node, y);
    if (wants_sizes)
        ul_old_set_result(node, 1, ul_old_const_ints(node, sizes, node->input_count));
}

void ul_microsoft_split_training(struct ul_old_node *node)
{
    ul_old_become(node, "Split");
}

/* Constants: the axes that each of two shapes was repeated along. */
void ul_microsoft_broadcast_axes(struct ul_old_node *node)
{
    const struct ul_tensor *shapes[2] = {ul_old_tensor(node, node->inputs[0]),
                                         ul_old_tensor(node, node->inputs[1])};
    if (shapes[0] == NULL || shapes[1] == NULL) {
        ul_old_problem(node, "needs shapes that are known at compile time");
        return;
    }
    uint64_t ranks[2] = {ul_type_elements(&shapes[0]->type), ul_type_elements(&shapes[1]->type)};
    uint64_t rank = ranks[0] > ranks[1] ? ranks[0] : ranks[1];
    int64_t axes[2][UL_LIMIT_RANK];
    uint32_t counts[2] = {0, 0};
    if (rank > UL_LIMIT_RANK) {
        ul_old_invalid(node, "the shapes have too many dimensions");
        return;
    }
    for (uint64_t d = rank; d-- > 0;) {
        int64_t sizes[2];
        for (uint32_t s = 0; s < 2; s++) {
            uint64_t skip = rank - ranks[s];
            sizes[s] = d < skip ? 1 : ul_tensor_get_int(shapes[s], d - skip);
        }
        for (uint32_t s = 0; s < 2; s++)
            if (sizes[s] == 1 && (sizes[1 - s] != 1 || d < rank - ranks[s]))
                axes[s][counts[s]++] = (int64_t)d;
    }
    for (uint32_t s = 0; s < 2; s++)
        ul_old_set_result(node, s, ul_old_const_ints(node, axes[s], counts[s]));
    node->finished = true;
}

void ul_microsoft_reduce_sum_training(struct ul_old_node *node)
{
    ul_old_become(node, "ReduceSum");
}

/* ---- Scales and sums ---- */

void ul_microsoft_scale(struct ul_old_node *node)
{
    bool down = ul_old_int(node, "scale_down", 0) != 0;
    ul_value_id scale = ul_old_emit_cast(node, node->inputs[1], ul_old_dtype(node, 0));
    scale = ul_old_emit_reshape(node, scale, 0, NULL);
    finish(node, ul_old_emit_two(node, down ? "Div" : "Mul", node->inputs[0], scale));
}

void ul_microsoft_mixed_precision_scale(struct ul_old_node *node)
{
    enum ul_dtype to = (enum ul_dtype)ul_old_int(node, "to", UL_F32);
    if (ul_old_int(node, "fuse_outputs", 0) != 0) {
        ul_old_problem(node, "with fuse_outputs is not supported");
        return;
    }
    for (uint32_t i = 1; i < node->input_count && i <= node->output_count; i++) {
        ul_value_id x = ul_old_emit_cast(node, node->inputs[i], UL_F32);
        ul_value_id scale = ul_old_emit_reshape(node, node->inputs[0], 0, NULL);
        ul_old_set_result(node, i - 1,
                          ul_old_emit_cast(node, ul_old_emit_two(node, "Mul", x, scale), to));
    }
    node->finished = true;
}

/* The sum of squares of all elements of all, as one number. */
ul_value_id ul_microsoft_square_sum(struct ul_old_node *node, const ul_value_id *values,
                                    uint32_t count)
{
    struct ul_int_attr no = {"keepdims", 0};
    ul_value_id sum = UL_NONE;
    for (uint32_t i = 0; i < count; i++) {
        ul_value_id x = ul_old_emit_cast(node, values[i], UL_F32);
        ul_value_id one = ul_old_emit(node, "ReduceSumSquare", 1, &x, 1, &no);
        sum = sum == UL_NONE ? one : ul_old_emit_two(node, "Add", sum, one);
    }
    return sum;
}

void ul_microsoft_reduce_all_l2(struct ul_old_node *node)
{
    finish(node, ul_old_emit_one(node, "Sqrt",
                                 ul_microsoft_square_sum(node, node->inputs, node->input_count)));
}

void ul_microsoft_pass_through(struct ul_old_node *node)
{
    for (uint32_t i = 0; i < node->output_count && i < node->input_count; i++)
        ul_old_set_result(node, i, ul_old_emit_one(node, "Identity", node->inputs[i]));
    node->finished = true;
}

void ul_microsoft_zero_gradient(struct ul_old_node *node)
{
    ul_value_id zero = ul_old_const_float(node, ul_old_dtype(node, 0), 0);
    finish(node, ul_old_emit_two(node, "Mul", node->inputs[0], zero));
}
