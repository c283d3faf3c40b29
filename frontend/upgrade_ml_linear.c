/* SPDX-License-Identifier: Apache-2.0 */
/* LinearClassifier and LinearRegressor of ai.onnx.ml: a product, followed by the transformation of
 * its scores. */
#include "frontend/upgrade_ml.h"

/* x * coefficients^T + intercepts, [rows, *targets]. If *targets is 0, the coefficients say how
 * many. UL_NONE after an error. */
static ul_value_id emit_scores(struct ul_old_node *node, int64_t *targets)
{
    struct ul_type type;
    int64_t count, intercept_count;
    const double *coefficients = ul_ml_floats(node, "coefficients", &count);
    const double *intercepts = ul_ml_floats(node, "intercepts", &intercept_count);
    ul_value_id x = ul_ml_rows(node, UL_F32, &type);
    if (x == UL_NONE)
        return UL_NONE;
    if (*targets == 0)
        *targets = intercept_count > 0 ? intercept_count : count / type.dims[1];
    if (*targets <= 0 || count / type.dims[1] != *targets || count % type.dims[1] != 0 ||
        (intercept_count != 0 && intercept_count != *targets)) {
        ul_old_invalid(node, "its coefficients and intercepts do not fit its targets and the "
                             "features of input 0");
        return UL_NONE;
    }
    struct ul_int_attr turned = {"transB", 1};
    ul_value_id inputs[3] = {
        x, ul_ml_const(node, 2, (int64_t[]){*targets, type.dims[1]}, coefficients),
        intercepts == NULL ? UL_NONE : ul_ml_const(node, 1, targets, intercepts)};
    return ul_old_emit(node, "Gemm", intercepts == NULL ? 2 : 3, inputs, 1, &turned);
}

void ul_ml_linear_regressor(struct ul_old_node *node)
{
    int64_t targets = ul_old_int(node, "targets", 1);
    if (targets <= 0) {
        ul_old_invalid(node, "has no targets");
        return;
    }
    ul_value_id scores = emit_scores(node, &targets);
    if (scores == UL_NONE)
        return;
    ul_old_set_result(
        node, 0, targets > 1 ? ul_ml_transform(node, scores) : ul_ml_transform_one(node, scores));
}

/* Handles one score for two classes: its sign is the label, and the score of the other class is 1
 * minus it. */
static void finish_two(struct ul_old_node *node, const struct ul_ml_labels *labels,
                       ul_value_id score)
{
    ul_value_id both = ul_ml_both_transformed(node, score, 1);
    if (both == UL_NONE)
        return;
    ul_ml_set_label_above(node, labels, score, 0);
    ul_old_set_result(node, 1, both);
}

void ul_ml_linear_classifier(struct ul_old_node *node)
{
    struct ul_ml_labels labels;
    int64_t targets = 0;
    if (!ul_ml_get_labels(node, &labels))
        return;
    ul_value_id scores = emit_scores(node, &targets);
    if (scores == UL_NONE)
        return;
    if (labels.count != (targets > 1 ? targets : 2)) {
        ul_old_invalid(node, "has another number of labels than its scores are for");
        return;
    }
    if (targets == 1) {
        finish_two(node, &labels, scores);
        return;
    }
    ul_ml_set_labels(node, &labels, ul_ml_largest(node, scores));
    ul_old_set_result(node, 1, ul_ml_transform(node, scores));
}
