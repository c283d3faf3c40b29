/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of ai.onnx.ml in terms of ai.onnx, and of what ir/ops/ml.def has besides: the table.
 * Strings have no tensors here, so what makes or takes them is refused, or withheld. */
#include "frontend/upgrade_ml.h"

#include <string.h>

static const struct {
    const char *op;
    ul_upgrade_fn *upgrade;
} table[] = {
    {"ArrayFeatureExtractor", ul_ml_feature_extractor},
    {"Binarizer", ul_ml_binarizer},
    {"Imputer", ul_ml_imputer},
    {"LabelEncoder", ul_ml_label_encoder},
    {"LinearClassifier", ul_ml_linear_classifier},
    {"LinearRegressor", ul_ml_linear_regressor},
    {"Normalizer", ul_ml_normalizer},
    {"OneHotEncoder", ul_ml_one_hot_encoder},
    {"SVMClassifier", ul_ml_svm_classifier},
    {"SVMRegressor", ul_ml_svm_regressor},
    {"Scaler", ul_ml_scaler},
    {"TreeEnsemble", ul_ml_tree_ensemble},
    {"TreeEnsembleClassifier", ul_ml_tree_classifier},
    {"TreeEnsembleRegressor", ul_ml_tree_regressor},
    {"ZipMap", ul_ml_zip_map},
};

void ul_upgrade_ml(struct ul_old_node *node)
{
    size_t count = sizeof table / sizeof *table, row = 0;
    while (row < count && strcmp(node->op, table[row].op) != 0)
        row++;
    if (row == count)
        return;
    if (ul_old_has_input(node, 0))
        table[row].upgrade(node);
    else
        ul_old_invalid(node, "input 0 is required");
    node->finished = true;
}
