/* Operators of com.microsoft that real models carry (onnxruntime's optimizer and quantizer, and
 * exporters of language models, write them) in terms of ai.onnx: the table. Their meaning is that
 * of onnxruntime's ContribOperators.md, and where that is silent, of its CPU kernels.
 * What is neither here nor in ir/ops stays an unsupported operator. */
#include "frontend/upgrade_microsoft.h"

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
    {"Attention", 2, 0, ul_microsoft_attention},
    {"BiasAdd", 3, 0, ul_microsoft_bias_add},
    {"BiasGelu", 2, 0, ul_microsoft_bias_gelu},
    {"DequantizeLinear", 2, 0, same},
    {"DynamicQuantizeLSTM", 12, 1u << 3 | 1u << 4 | 1u << 5 | 1u << 6 | 1u << 7,
     ul_microsoft_dynamic_lstm},
    {"DynamicQuantizeMatMul", 3, 0, ul_microsoft_dynamic_matmul},
    {"EmbedLayerNormalization", 7, 1u << 1 | 1u << 4, ul_microsoft_embed},
    {"FastGelu", 1, 0, ul_microsoft_fast_gelu},
    {"FusedConv", 2, 0, ul_microsoft_fused_conv},
    {"FusedGemm", 2, 0, ul_microsoft_fused_gemm},
    {"FusedMatMul", 2, 0, ul_microsoft_fused_matmul},
    {"GatherND", 2, 0, same},
    {"Gelu", 1, 0, same},
    {"GroupQueryAttention", 7, 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4, ul_microsoft_group_query},
    {"MatMulIntegerToFloat", 4, 0, ul_microsoft_integer_to_float},
    {"MultiHeadAttention", 1, 0, ul_microsoft_multi_head},
    {"NhwcMaxPool", 1, 0, ul_microsoft_nhwc_max_pool},
    {"Pad", 2, 0, same},
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
    {"Range", 3, 0, same},
    {"RotaryEmbedding", 4, 0, ul_microsoft_rotary},
    {"SkipLayerNormalization", 3, 0, ul_microsoft_skip_layer_norm},
    {"SkipSimplifiedLayerNormalization", 3, 0, ul_microsoft_skip_rms_norm},
    {"TransposeMatMul", 2, 0, ul_microsoft_fused_matmul},
    {"Trilu", 1, 0, same},
};

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
    for (size_t i = 0; i < sizeof table / sizeof *table && !node->finished; i++) {
        if (strcmp(node->op, table[i].op) != 0)
            continue;
        if (!has_inputs(node, table[i].min_inputs, table[i].absent))
            ul_old_invalid(node, "inputs are missing");
        else
            table[i].upgrade(node);
        return;
    }
}

void ul_upgrade_microsoft_nchwc(struct ul_old_node *node)
{
    ul_old_problem(node, "is in onnxruntime's own blocked layout, which differs from machine to "
                         "machine; save the optimized model at the extended level "
                         "(graph_optimization_level ORT_ENABLE_EXTENDED)");
}
