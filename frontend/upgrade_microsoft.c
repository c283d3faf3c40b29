/* Operators of com.microsoft that real models carry (onnxruntime's optimizer and quantizer write
 * them) in terms of ai.onnx. Their meaning is that of onnxruntime's ContribOperators.md. What is
 * not here stays an unsupported operator. */
#include "frontend/frontend_internal.h"

#include <string.h>

/* The node goes on as one of ai.onnx. */
static void become(struct ul_old_node *node, const char *op)
{
    node->domain = "";
    node->op = op;
    node->version = UL_FRONTEND_OPSET_MAX;
}

static ul_value_id emit_two(struct ul_old_node *node, const char *op, ul_value_id a, ul_value_id b)
{
    ul_value_id inputs[2] = {a, b};
    return ul_old_emit(node, op, 2, inputs, 0, NULL);
}

static void drop_inputs(struct ul_old_node *node, uint32_t kept)
{
    if (node->input_count > kept)
        node->input_count = kept;
}

static void set_float(struct ul_old_node *node, ul_value_id value, const char *name, double number)
{
    struct ul_graph *graph = node->builder->graph;
    if (graph->values[value].producer != UL_NONE) /* a placeholder has none */
        ul_node_set_float(graph, graph->values[value].producer, name, number);
}

static double get_float(const struct ul_old_node *node, const char *name, double otherwise)
{
    const struct ul_attr *attr = ul_old_attr(node, name);
    return attr != NULL && attr->kind == UL_ATTR_FLOAT ? attr->f : otherwise;
}

static void same(struct ul_old_node *node)
{
    become(node, node->op);
}

/* x + bias, then the activation. */
static void add_bias(struct ul_old_node *node)
{
    if (ul_old_input(node, 1) != UL_NONE)
        ul_old_set_input(node, 0, emit_two(node, "Add", node->inputs[0], node->inputs[1]));
    drop_inputs(node, 1);
}

static void bias_gelu(struct ul_old_node *node)
{
    add_bias(node);
    become(node, "Gelu");
}

static void fast_gelu(struct ul_old_node *node)
{
    bias_gelu(node);
    ul_old_set_string(node, "approximate", "tanh");
}

static void quick_gelu(struct ul_old_node *node)
{
    ul_value_id x = ul_old_input(node, 0);
    enum ul_dtype dtype = ul_old_dtype(node, 0);
    ul_value_id scaled =
        emit_two(node, "Mul", x, ul_old_const_float(node, dtype, get_float(node, "alpha", 1.702)));
    ul_value_id gate = ul_old_emit(node, "Sigmoid", 1, &scaled, 0, NULL);
    ul_old_set_result(node, 0, emit_two(node, "Mul", x, gate));
    node->finished = true;
}

/* Swaps the last two dimensions of an input; false when its rank is not known here. */
static bool transpose_last(struct ul_old_node *node, uint32_t index)
{
    struct ul_type type = ul_old_type(node, ul_old_input(node, index));
    int64_t perm[UL_LIMIT_RANK];
    if (!ul_type_known(&type) || type.rank < 2)
        return false;
    for (uint32_t i = 0; i < type.rank; i++)
        perm[i] = i;
    perm[type.rank - 1] = type.rank - 2;
    perm[type.rank - 2] = type.rank - 1;
    struct ul_graph *graph = node->builder->graph;
    ul_value_id turned = ul_old_emit(node, "Transpose", 1, &node->inputs[index], 0, NULL);
    if (graph->values[turned].producer != UL_NONE)
        ul_node_set_ints(graph, graph->values[turned].producer, "perm", perm, type.rank);
    ul_old_set_input(node, index, turned);
    return true;
}

static void fused_matmul(struct ul_old_node *node)
{
    double alpha = get_float(node, "alpha", 1);
    bool batch = ul_old_int(node, "transBatchA", 0) != 0 || ul_old_int(node, "transBatchB", 0) != 0;
    bool good = !batch;
    if (ul_old_int(node, "transA", 0) != 0)
        good = good && transpose_last(node, 0);
    if (ul_old_int(node, "transB", 0) != 0)
        good = good && transpose_last(node, 1);
    if (!good) {
        ul_old_problem(node, "with these transpositions is not supported");
        return;
    }
    node->attr_count = 0;
    become(node, "MatMul");
    ul_old_emit_self(node);
    if (alpha != 1 && node->emitted != UL_NONE)
        ul_old_set_result(node, 0,
                          emit_two(node, "Mul", node->results[0],
                                   ul_old_const_float(node, ul_old_dtype(node, 0), alpha)));
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
            set_float(node, y, known[i].first, params[0]);
        if (known[i].second != NULL && param_count > 1)
            set_float(node, y, known[i].second, params[1]);
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

static void fused_conv(struct ul_old_node *node)
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
    become(node, "Conv");
    ul_old_emit_self(node);
    if (residual != UL_NONE && node->emitted != UL_NONE)
        ul_old_set_result(node, 0, emit_two(node, "Add", node->results[0], residual));
    finish_activation(node, activation, params, param_count);
}

static void fused_gemm(struct ul_old_node *node)
{
    const char *activation = ul_old_string(node, "activation", "");
    double params[2] = {get_float(node, "activation_alpha", 0),
                        get_float(node, "activation_beta", 0)};
    uint32_t param_count = ul_old_attr(node, "activation_beta") != NULL    ? 2
                           : ul_old_attr(node, "activation_alpha") != NULL ? 1
                                                                           : 0;
    ul_old_remove_attr(node, "activation");
    ul_old_remove_attr(node, "activation_alpha");
    ul_old_remove_attr(node, "activation_beta");
    ul_old_remove_attr(node, "activation_gamma");
    become(node, "Gemm");
    ul_old_emit_self(node);
    finish_activation(node, activation, params, param_count);
}

/* Normalises input + skip (+ bias); the sum is the fourth output. The second and third are
 * statistics of training. */
static void skip_norm(struct ul_old_node *node, const char *op, uint32_t scale_count)
{
    ul_value_id bias = ul_old_input(node, 2 + scale_count);
    ul_value_id sum = emit_two(node, "Add", ul_old_input(node, 0), ul_old_input(node, 1));
    if (bias != UL_NONE)
        sum = emit_two(node, "Add", sum, bias);
    ul_value_id inputs[3] = {sum, ul_old_input(node, 2), ul_old_input(node, 3)};
    uint32_t count = scale_count == 2 && inputs[2] != UL_NONE ? 3 : 2;
    /* onnxruntime's default epsilon, for both kinds */
    double epsilon = get_float(node, "epsilon", (double)1e-12f);
    struct ul_int_attr axis = {"axis", -1};
    ul_value_id y = ul_old_emit(node, op, count, inputs, 1, &axis);
    set_float(node, y, "epsilon", epsilon);
    ul_old_set_result(node, 0, y);
    ul_old_set_result(node, 3, sum);
    node->finished = true;
}

static void skip_layer_norm(struct ul_old_node *node)
{
    skip_norm(node, "LayerNormalization", 2);
}

static void skip_rms_norm(struct ul_old_node *node)
{
    skip_norm(node, "RMSNormalization", 1);
}

/* The tensor at `first` with scale and zero point behind it, as floats. */
static ul_value_id dequantize(struct ul_old_node *node, uint32_t first)
{
    ul_value_id inputs[3] = {ul_old_input(node, first), ul_old_input(node, first + 1),
                             ul_old_input(node, first + 2)};
    uint32_t count = inputs[2] == UL_NONE ? 2 : 3;
    return ul_old_emit(node, "DequantizeLinear", count, inputs, 0, NULL);
}

static void quantize(struct ul_old_node *node, ul_value_id x, uint32_t scale)
{
    ul_value_id inputs[3] = {x, ul_old_input(node, scale), ul_old_input(node, scale + 1)};
    uint32_t count = inputs[2] == UL_NONE ? 2 : 3;
    ul_old_set_result(node, 0, ul_old_emit(node, "QuantizeLinear", count, inputs, 0, NULL));
    node->finished = true;
}

static void qlinear_binary(struct ul_old_node *node)
{
    const char *op = strcmp(node->op, "QLinearAdd") == 0 ? "Add" : "Mul";
    quantize(node, emit_two(node, op, dequantize(node, 0), dequantize(node, 3)), 6);
}

/* Operators of one quantized tensor, which do to its floats what the operator of ai.onnx does. */
static void qlinear_unary(struct ul_old_node *node)
{
    struct ul_builder *builder = node->builder;
    int64_t opset = ul_old_int(node, "opset", UL_FRONTEND_OPSET_MAX);
    if (ul_old_int(node, "channels_last", 0) != 0) {
        ul_old_problem(node, "with channels last is not supported");
        return;
    }
    ul_value_id x = dequantize(node, 0);
    struct ul_old_node inner = *node;
    inner.inputs = NULL;
    inner.input_count = inner.input_capacity = 0;
    inner.results = UL_NEW_ARRAY(builder->scratch, ul_value_id, node->declared_count);
    for (uint32_t i = 0; i < node->declared_count; i++)
        inner.results[i] = UL_NONE;
    become(&inner, node->op + strlen("QLinear"));
    ul_old_remove_attr(&inner, "channels_last");
    ul_old_remove_attr(&inner, "opset");
    node->attr_count = inner.attr_count;
    ul_old_set_input(&inner, 0, x);
    if (strcmp(inner.op, "Softmax") == 0 && opset < 13)
        ul_upgrade_softmax(&inner);
    if (!inner.finished)
        ul_old_emit_self(&inner);
    node->finished = true;
    if (inner.emitted != UL_NONE)
        quantize(node, inner.results[0], 3);
}

static void qlinear_concat(struct ul_old_node *node)
{
    uint32_t count = node->input_count < 2 ? 0 : (node->input_count - 2) / 3;
    ul_value_id *parts = UL_NEW_ARRAY(node->builder->scratch, ul_value_id, count);
    struct ul_int_attr axis = {"axis", ul_old_int(node, "axis", 0)};
    for (uint32_t i = 0; i < count; i++)
        parts[i] = dequantize(node, 2 + 3 * i);
    quantize(node, ul_old_emit(node, "Concat", count, parts, 1, &axis), 0);
}

static const struct {
    const char *op;
    uint32_t min_inputs; /* present ones, checked before the row's function runs */
    ul_upgrade_fn *upgrade;
} table[] = {
    {"BiasGelu", 2, bias_gelu},
    {"DequantizeLinear", 2, same},
    {"FastGelu", 1, fast_gelu},
    {"FusedConv", 2, fused_conv},
    {"FusedGemm", 2, fused_gemm},
    {"FusedMatMul", 2, fused_matmul},
    {"GatherND", 2, same},
    {"Gelu", 1, same},
    {"Pad", 2, same},
    {"QLinearAdd", 7, qlinear_binary},
    {"QLinearAveragePool", 4, qlinear_unary},
    {"QLinearConcat", 5, qlinear_concat},
    {"QLinearGlobalAveragePool", 4, qlinear_unary},
    {"QLinearLeakyRelu", 4, qlinear_unary},
    {"QLinearMul", 7, qlinear_binary},
    {"QLinearSigmoid", 4, qlinear_unary},
    {"QLinearSoftmax", 4, qlinear_unary},
    {"QuantizeLinear", 2, same},
    {"QuickGelu", 1, quick_gelu},
    {"Range", 3, same},
    {"SkipLayerNormalization", 3, skip_layer_norm},
    {"SkipSimplifiedLayerNormalization", 3, skip_rms_norm},
    {"TransposeMatMul", 2, fused_matmul},
    {"Trilu", 1, same},
};

/* Inputs must be present; zero points may be absent, which stand behind what they belong to. */
static bool has_inputs(const struct ul_old_node *node, uint32_t wanted)
{
    bool quantized = strncmp(node->op, "QLinear", strlen("QLinear")) == 0;
    if (node->input_count < wanted)
        return false;
    for (uint32_t i = 0; i < wanted; i++) {
        if (node->inputs[i] == UL_NONE && !(quantized && i % 3 == 2))
            return false;
    }
    return true;
}

void ul_upgrade_microsoft(struct ul_old_node *node)
{
    for (size_t i = 0; i < sizeof table / sizeof *table && !node->finished; i++) {
        if (strcmp(node->op, table[i].op) != 0)
            continue;
        if (!has_inputs(node, table[i].min_inputs)) {
            (void)!ul_diag_set(node->builder->diag, UL_INVALID, "%s: inputs are missing",
                               ul_builder_describe(node->builder, node->name, node->op));
            node->finished = true;
            return;
        }
        table[i].upgrade(node);
        return;
    }
}
