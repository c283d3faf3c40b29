/* SPDX-License-Identifier: Apache-2.0 */
/* Rewrites of ai.onnx.ml's operators on numbers, by family; ml.def has the rows. Where ONNX's text
 * leaves anything open, their meaning is that of onnxruntime's CPU kernels. */
#ifndef UL_FRONTEND_UPGRADE_ML_H
#define UL_FRONTEND_UPGRADE_ML_H

#include "frontend/old_emit.h"
#include "frontend/rows.h"
#include "ir/op.h"

/* upgrade_ml_features.c: operators that prepare features, and ZipMap. */
ul_upgrade_fn ul_ml_one_hot_encoder, ul_ml_label_encoder, ul_ml_zip_map;
/* upgrade_ml_linear.c */
ul_upgrade_fn ul_ml_linear_classifier, ul_ml_linear_regressor;
/* upgrade_ml_svm.c */
ul_upgrade_fn ul_ml_svm_classifier, ul_ml_svm_regressor;
/* upgrade_ml_trees.c */
ul_upgrade_fn ul_ml_tree_ensemble, ul_ml_tree_regressor, ul_ml_tree_classifier;

/* upgrade_ml_scores.c: shared by models on rows of features. After a problem or an error
 * node->finished is set. */

/* The numbers of an attribute, owned by the node; NULL and 0 where it has none. */
const double *ul_ml_floats(const struct ul_old_node *node, const char *name, int64_t *count);
const int64_t *ul_ml_ints(const struct ul_old_node *node, const char *name, int64_t *count);
/* A name for a part of the node. */
const char *ul_ml_name(const struct ul_old_node *node, const char *what);
/* A constant of f32. */
ul_value_id ul_ml_const(struct ul_old_node *node, uint32_t rank, const int64_t *dims,
                        const double *values);
/* x times the transpose of `rows` vectors, plus `added`, if there are such, in f32. */
ul_value_id ul_ml_product(struct ul_old_node *node, ul_value_id x, int64_t rows, int64_t columns,
                          const double *vectors, int64_t added_count, const double *added);
/* A body of scores s and a number n. */
ul_value_id ul_ml_of_scores(struct ul_old_node *node, ul_value_id scores, double number,
                            const char *body);
/* Input x, [features] or [rows, features] of numbers, as `dtype` [rows, features]; UL_NONE after a
 * problem. */
ul_value_id ul_ml_rows(struct ul_old_node *node, enum ul_dtype dtype, int64_t *features);
/* Applies post_transform to scores [rows, columns], where there are several columns. */
ul_value_id ul_ml_transform(struct ul_old_node *node, ul_value_id scores);
/* The same for one column. */
ul_value_id ul_ml_transform_one(struct ul_old_node *node, ul_value_id scores);
/* The labels of a classifier's classes. */
struct ul_ml_labels {
    int64_t count;
    const int64_t *ints; /* NULL: strings */
};
/* Returns false after an error: there are no labels, or the node's attributes are not lists. */
bool ul_ml_get_labels(struct ul_old_node *node, struct ul_ml_labels *labels);
/* Sets output 0 from the numbers of classes, i64 [rows]. Labels that are strings are withheld. */
void ul_ml_set_labels(struct ul_old_node *node, const struct ul_ml_labels *labels,
                      ul_value_id index);
/* The same where a score [rows, 1] above `limit` means the second of two classes; where there are
 * not two labels, they are 0 and 1. */
void ul_ml_set_label_above(struct ul_old_node *node, const struct ul_ml_labels *labels,
                           ul_value_id score, double limit);
/* The index of the first largest of scores [rows, columns], i64 [rows]. */
ul_value_id ul_ml_largest(struct ul_old_node *node, ul_value_id scores);
/* Makes [sum - score, score] from scores [rows, 1]. */
ul_value_id ul_ml_both(struct ul_old_node *node, ul_value_id score, double sum);
/* The same with post_transform. onnxruntime knows only LOGISTIC here, by which both sum to 1;
 * UL_NONE after a problem. */
ul_value_id ul_ml_both_transformed(struct ul_old_node *node, ul_value_id score, double sum);

#endif
