/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of com.microsoft that real models carry (onnxruntime's optimizer, quantizer and
 * training, and exporters of language models, write them) in terms of ai.onnx: the table. Their
 * meaning is that of onnxruntime's ContribOperators.md, and where that is silent, of its CPU
 * kernels. What is neither here nor in ir/ops stays an unsupported operator. */
#include "frontend/upgrade_microsoft.h"
#include "ir/op.h"

#include <string.h>

static void same(struct ul_old_node *node)
{
    ul_old_become(node, node->op);
}

static const struct {
    const char *op;
    uint32_t min_inputs; /* present ones, checked before the row's function runs */
    uint32_t absent;     /* bits of those among them that may be absent: zero points */
    ul_upgrade_fn *upgrade;
} table[] = {
    {"AdamWOptimizer", 6, 0, ul_microsoft_adamw},
    {"Attention", 2, 0, ul_microsoft_attention},
    {"BatchNormInternal", 5, 0, ul_microsoft_batch_norm},
    {"BatchNormalizationGrad", 5, 0, ul_microsoft_batch_norm_grad},
    {"BiasAdd", 3, 0, ul_microsoft_bias_add},
    {"BiasFastGeluGrad_dX", 3, 0, ul_microsoft_fast_gelu_grad},
    {"BiasGelu", 2, 0, ul_microsoft_bias_gelu},
    {"BiasGeluGrad_dX", 3, 0, ul_microsoft_gelu_grad},
    {"BroadcastGradientArgs", 2, 0, ul_microsoft_broadcast_axes},
    {"CDist", 2, 0, ul_microsoft_cdist},
    {"ConcatTraining", 1, 0, ul_microsoft_concat_training},
    {"ConvGrad", 3, 0, ul_microsoft_conv_grad},
    {"ConvTransposeGrad", 3, 0, ul_microsoft_conv_transpose_grad},
    {"DequantizeLinear", 2, 0, same},
    {"DivGrad", 3, 0, ul_microsoft_div_grad},
    {"DropoutGrad", 2, 0, ul_microsoft_dropout_grad},
    {"DynamicQuantizeLSTM", 12, 1u << 3 | 1u << 4 | 1u << 5 | 1u << 6 | 1u << 7,
     ul_microsoft_dynamic_lstm},
    {"DynamicQuantizeMatMul", 3, 0, ul_microsoft_dynamic_matmul},
    {"EmbedLayerNormalization", 7, 1u << 1 | 1u << 4, ul_microsoft_embed},
    {"FastGelu", 1, 0, ul_microsoft_fast_gelu},
    {"FastGeluGrad", 2, 0, ul_microsoft_fast_gelu_grad},
    {"FusedConv", 2, 0, ul_microsoft_fused_conv},
    {"FusedGemm", 2, 0, ul_microsoft_fused_gemm},
    {"FusedMatMul", 2, 0, ul_microsoft_fused_matmul},
    {"GatherElementsGrad", 3, 0, ul_microsoft_gather_elements_grad},
    {"GatherGrad", 3, 0, ul_microsoft_gather_grad},
    {"GatherND", 2, 0, same},
    {"GatherNDGrad", 3, 0, ul_microsoft_gather_nd_grad},
    {"Gelu", 1, 0, same},
    {"GeluGrad", 2, 0, ul_microsoft_gelu_grad},
    {"GridSample", 2, 0, ul_microsoft_grid_sample},
    {"GroupQueryAttention", 7, 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4, ul_microsoft_group_query},
    {"InPlaceAccumulator", 2, 0, ul_microsoft_accumulate_once},
    {"InPlaceAccumulatorV2", 2, 0, ul_microsoft_accumulate},
    {"InplaceClipGradNorm", 1, 0, ul_microsoft_clip_norm},
    {"LayerNormalizationGrad", 5, 0, ul_microsoft_layer_norm_grad},
    {"LeakyReluGrad", 2, 0, ul_microsoft_leaky_relu_grad},
    {"LogSoftmaxGrad", 2, 0, ul_microsoft_softmax_grad},
    {"LogSoftmaxGrad_13", 2, 0, ul_microsoft_softmax_grad},
    {"MatMulIntegerToFloat", 4, 0, ul_microsoft_integer_to_float},
    {"MixedPrecisionScale", 2, 0, ul_microsoft_mixed_precision_scale},
    {"MultiHeadAttention", 1, 0, ul_microsoft_multi_head},
    {"NhwcMaxPool", 1, 0, ul_microsoft_nhwc_max_pool},
    {"Pad", 2, 0, same},
    {"PassThrough", 1, 0, ul_microsoft_pass_through},
    {"QAttention", 5, 0, ul_microsoft_quantized_attention},
    {"QEmbedLayerNormalization", 18, 1u << 1 | 1u << 4 | 1u << 7 | 1u << 10 | 1u << 15,
     ul_microsoft_quantized_embed},
    {"QGemm", 6, 1u << 2 | 1u << 5, ul_microsoft_qgemm},
    {"QLinearAdd", 7, 1u << 2 | 1u << 5, ul_microsoft_qlinear_binary},
    {"QLinearAveragePool", 4, 1u << 2, ul_microsoft_qlinear_pool},
    {"QLinearConcat", 5, 1u << 1 | 1u << 4, ul_microsoft_qlinear_concat},
    {"QLinearConv", 8, 0, ul_microsoft_qlinear_conv},
    {"QLinearGlobalAveragePool", 4, 1u << 2, ul_microsoft_qlinear_pool},
    {"QLinearLeakyRelu", 4, 1u << 2, ul_microsoft_qlinear_unary},
    {"QLinearMul", 7, 1u << 2 | 1u << 5, ul_microsoft_qlinear_binary},
    {"QLinearReduceMean", 4, 1u << 2, ul_microsoft_qlinear_mean},
    {"QLinearSigmoid", 4, 1u << 2, ul_microsoft_qlinear_unary},
    {"QLinearSoftmax", 4, 1u << 2, ul_microsoft_qlinear_unary},
    {"QLinearWhere", 8, 1u << 3 | 1u << 6, ul_microsoft_qlinear_where},
    {"QuantizeLinear", 2, 0, same},
    {"QuickGelu", 1, 0, ul_microsoft_quick_gelu},
    {"QuickGeluGrad", 2, 0, ul_microsoft_quick_gelu_grad},
    {"Range", 3, 0, same},
    {"ReduceAllL2", 1, 0, ul_microsoft_reduce_all_l2},
    {"ReduceSumTraining", 2, 0, ul_microsoft_reduce_sum_training},
    {"ReluGrad", 2, 0, ul_microsoft_relu_grad},
    {"ResizeGrad", 2, 0, ul_microsoft_resize_grad},
    {"RotaryEmbedding", 4, 0, ul_microsoft_rotary},
    {"SGDOptimizerV2", 3, 0, ul_microsoft_sgd},
    {"Scale", 2, 0, ul_microsoft_scale},
    {"SigmoidGrad", 2, 0, ul_microsoft_sigmoid_grad},
    {"SimplifiedLayerNormalizationGrad", 4, 0, ul_microsoft_rms_norm_grad},
    {"SkipLayerNormalization", 3, 0, ul_microsoft_skip_layer_norm},
    {"SkipSimplifiedLayerNormalization", 3, 0, ul_microsoft_skip_rms_norm},
    {"SliceGrad", 4, 0, ul_microsoft_slice_grad},
    {"SoftmaxCrossEntropyLossGrad", 3, 0, ul_microsoft_loss_grad},
    {"SoftmaxCrossEntropyLossInternal", 2, 0, ul_microsoft_loss},
    {"SoftmaxCrossEntropyLossInternalGrad", 3, 0, ul_microsoft_loss_grad},
    {"SoftmaxGrad", 2, 0, ul_microsoft_softmax_grad},
    {"SoftmaxGrad_13", 2, 0, ul_microsoft_softmax_grad},
    {"SplitTraining", 2, 0, ul_microsoft_split_training},
    {"TanhGrad", 2, 0, ul_microsoft_tanh_grad},
    {"TransposeMatMul", 2, 0, ul_microsoft_fused_matmul},
    {"Trilu", 1, 0, same},
    {"ZeroGradient", 1, 0, ul_microsoft_zero_gradient},
};

/* Operators over sequences of tensors, and bits of those inputs. */
static const struct {
    const char *op;
    uint32_t inputs;
} of_sequences[] = {
    {"AdamWOptimizer", 1u << 2 | 1u << 3 | 1u << 4 | 1u << 5},
    {"InplaceClipGradNorm", 1u << 0},
    {"SGDOptimizerV2", 1u << 1 | 1u << 2},
};

static bool takes_sequence(const char *op, uint32_t input)
{
    for (size_t i = 0; i < sizeof of_sequences / sizeof *of_sequences; i++)
        if (strcmp(op, of_sequences[i].op) == 0)
            return input < 32 && (of_sequences[i].inputs >> input & 1u) != 0;
    return false;
}

/* Every other input of these operators is a tensor. */
static bool check_sequences(struct ul_old_node *node)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (!ul_sequence_is(node->inputs[i]) || takes_sequence(node->op, i))
            continue;
        ul_old_problem(node,
                       ul_arena_printf(node->builder->scratch,
                                       "takes a sequence as input %u, which has to be a tensor",
                                       (unsigned)i));
        return false;
    }
    return true;
}

static bool has_inputs(const struct ul_old_node *node, uint32_t wanted, uint32_t absent)
{
    if (node->input_count < wanted)
        return false;
    for (uint32_t i = 0; i < wanted; i++) {
        if (node->inputs[i] == UL_NONE && (absent >> i & 1u) == 0)
            return false;
    }
    return true;
}

void ul_upgrade_microsoft(struct ul_old_node *node)
{
    size_t count = sizeof table / sizeof *table, row = 0;
    while (row < count && strcmp(node->op, table[row].op) != 0)
        row++;
    bool is_known = row < count || ul_op_find(node->domain, node->op) != UL_OP_NONE;
    if (!is_known || !check_sequences(node) || row == count)
        return;
    if (has_inputs(node, table[row].min_inputs, table[row].absent))
        table[row].upgrade(node);
    else
        ul_old_invalid(node, "inputs are missing");
}

void ul_upgrade_microsoft_nchwc(struct ul_old_node *node)
{
    ul_old_problem(node, "is in onnxruntime's own blocked layout, which differs from machine to "
                         "machine; save the optimized model at the extended level "
                         "(graph_optimization_level ORT_ENABLE_EXTENDED)");
}
