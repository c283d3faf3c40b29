/* SPDX-License-Identifier: Apache-2.0 */
/* Upgrades nodes from the file's operator set to the newest one.
 *
 * The graph holds only the newest semantics. Most versions of an operator differ only in the
 * element types that they admit; those that changed a meaning have a row here, taken from ONNX's
 * Changelog.md. Rows are applied in order, so a node climbs from version to version. */
#include "frontend/rows.h"

#include <string.h>

static const struct {
    const char *op;
    int64_t below; /* the version that changed the meaning */
    ul_upgrade_fn *upgrade;
} table[] = {
    /* Below operator set 7, only what is easily said in today's terms is upgraded; the rest is
     * refused. */
    {"Add", 7, ul_upgrade_broadcast},
    {"And", 7, ul_upgrade_broadcast},
    {"BatchNormalization", 7, ul_upgrade_batch_normalization_6},
    {"Cast", 6, ul_upgrade_too_old},
    {"Concat", 4, ul_upgrade_too_old},
    {"Div", 7, ul_upgrade_broadcast},
    {"Dropout", 7, ul_upgrade_too_old},
    {"Equal", 7, ul_upgrade_broadcast},
    {"GRU", 7, ul_upgrade_too_old},
    {"Gemm", 7, ul_upgrade_gemm_6},
    {"Greater", 7, ul_upgrade_broadcast},
    {"LSTM", 7, ul_upgrade_too_old},
    {"Less", 7, ul_upgrade_broadcast},
    {"LpPool", 2, ul_upgrade_too_old},
    {"GlobalLpPool", 2, ul_upgrade_too_old},
    {"Mul", 7, ul_upgrade_broadcast},
    {"Or", 7, ul_upgrade_broadcast},
    {"PRelu", 7, ul_upgrade_prelu_6},
    {"Pad", 2, ul_upgrade_too_old},
    {"Pow", 7, ul_upgrade_broadcast},
    {"RNN", 7, ul_upgrade_too_old},
    {"Reshape", 5, ul_upgrade_too_old},
    {"Split", 2, ul_upgrade_too_old},
    {"Sub", 7, ul_upgrade_broadcast},
    {"Tile", 6, ul_upgrade_too_old},
    {"Upsample", 7, ul_upgrade_too_old},
    {"Xor", 7, ul_upgrade_broadcast},
    /* From 7 on. */
    {"Attention", INT64_MAX, ul_upgrade_attention_window},
    {"AveragePoolGrad", INT64_MAX, ul_microsoft_average_pool_grad},
    {"BatchNormalization", 14, ul_upgrade_batch_normalization},
    {"Clip", 11, ul_upgrade_clip},
    {"Compress", INT64_MAX, ul_upgrade_compress},
    {"DFT", 20, ul_upgrade_dft},
    {"Dropout", 12, ul_upgrade_dropout},
    {"GridSample", 20, ul_upgrade_grid_sample},
    {"GroupNormalization", 21, ul_upgrade_group_normalization},
    {"Hardmax", 13, ul_upgrade_softmax},
    {"LogSoftmax", 13, ul_upgrade_softmax},
    {"NonMaxSuppression", INT64_MAX, ul_upgrade_non_max_suppression},
    {"NonZero", INT64_MAX, ul_upgrade_non_zero},
    {"OneHot", 11, ul_upgrade_one_hot},
    {"MaxPoolGrad", INT64_MAX, ul_microsoft_max_pool_grad},
    {"Pad", 11, ul_upgrade_pad},
    {"ReduceL1", 18, ul_upgrade_axes},
    {"ReduceL2", 18, ul_upgrade_axes},
    {"ReduceLogSum", 18, ul_upgrade_axes},
    {"ReduceLogSumExp", 18, ul_upgrade_axes},
    {"ReduceMax", 18, ul_upgrade_axes},
    {"ReduceMean", 18, ul_upgrade_axes},
    {"ReduceMin", 18, ul_upgrade_axes},
    {"ReduceProd", 18, ul_upgrade_axes},
    {"ReduceSum", 13, ul_upgrade_axes},
    {"ReduceSumSquare", 18, ul_upgrade_axes},
    {"Resize", 11, ul_upgrade_resize_10},
    {"Resize", INT64_MAX, ul_upgrade_resize},
    {"RoiAlign", 16, ul_upgrade_roi_align},
    {"Scan", 9, ul_upgrade_scan_8},
    {"Scatter", INT64_MAX, ul_upgrade_scatter},
    {"SimplifiedLayerNormalization", INT64_MAX, ul_upgrade_simplified_layer_norm},
    {"Slice", 10, ul_upgrade_slice},
    {"Softmax", 13, ul_upgrade_softmax},
    {"Split", 13, ul_upgrade_split},
    {"Split", 18, ul_upgrade_split_equal},
    {"STFT", INT64_MAX, ul_upgrade_stft},
    {"Squeeze", 13, ul_upgrade_axes},
    {"SwiGLU", INT64_MAX, ul_upgrade_swiglu},
    {"TfIdfVectorizer", INT64_MAX, ul_upgrade_tfidf},
    {"TopK", 10, ul_upgrade_topk},
    {"Unique", INT64_MAX, ul_upgrade_unique},
    {"Unsqueeze", 13, ul_upgrade_axes},
    {"Upsample", 9, ul_upgrade_upsample_scales},
    {"Upsample", INT64_MAX, ul_upgrade_upsample},
};

/* The rows apply in every operator set. */
static const struct ul_upgrade_row rows[] = {
#include "frontend/onnx.def"
};

/* Operators of other domains in terms of ai.onnx; NULL: all of the domain. */
static const struct {
    const char *domain;
    const char *op;
    ul_upgrade_fn *upgrade;
} domains[] = {
    {"ai.onnx.ml", NULL, ul_upgrade_ml},
    {"ai.onnx.preview", "FlexAttention", ul_upgrade_flex_attention},
    {"ai.onnx.preview.training", "Gradient", ul_upgrade_gradient},
    {"com.microsoft", NULL, ul_upgrade_microsoft},
    {"com.microsoft.nchwc", NULL, ul_upgrade_microsoft_nchwc},
    {"com.ms.internal.nhwc", NULL, ul_upgrade_microsoft_nchwc},
};

static enum ul_status build_block(struct ul_model_builder *builder, const struct ul_old_node *node,
                                  const Onnx__GraphProto *proto)
{
    struct ul_model_builder saved = *builder;
    struct ul_scope scope = {.outer = saved.scope};
    ul_names_init(&scope.names, builder->scratch);
    if (builder->depth >= UL_LIMIT_NESTING)
        return ul_diag_set(builder->diag, UL_INVALID, "%s: graphs are nested more than %d deep",
                           ul_builder_describe(builder, node->name, node->op), UL_LIMIT_NESTING);
    builder->depth++;
    builder->block = ul_graph_add_block(builder->graph, node->emitted);
    UL_TRY(ul_build_graph(builder, proto, &scope));
    builder->depth = saved.depth;
    builder->block = saved.block;
    builder->scope = saved.scope;
    return UL_OK;
}

enum ul_status ul_upgrade_node(struct ul_old_node *node)
{
    if (node->output_count == 0 && node->declared_count > 0)
        return UL_OK; /* nobody can see what it does */
    for (size_t i = 0; i < sizeof table / sizeof *table && !node->finished; i++) {
        if (node->domain[0] == '\0' && node->version < table[i].below &&
            strcmp(node->op, table[i].op) == 0)
            table[i].upgrade(node);
    }
    const struct ul_upgrade_row *row = NULL;
    if (node->domain[0] == '\0' && !node->finished)
        row = ul_rows_find(rows, sizeof rows / sizeof *rows, node->op);
    if (row != NULL)
        ul_rows_upgrade(node, row);
    for (size_t i = 0; i < sizeof domains / sizeof *domains && !node->finished; i++) {
        if (strcmp(node->domain, domains[i].domain) == 0 &&
            (domains[i].op == NULL || strcmp(node->op, domains[i].op) == 0))
            domains[i].upgrade(node);
    }
    if (!node->finished)
        ul_old_emit_self(node);
    if (node->builder->diag->status != UL_OK)
        return node->builder->diag->status;
    if (node->emitted == UL_NONE)
        return UL_OK;
    for (uint32_t i = 0; i < 2; i++) {
        if (node->graphs[i] != NULL)
            UL_TRY(build_block(node->builder, node, node->graphs[i]));
    }
    return UL_OK;
}
