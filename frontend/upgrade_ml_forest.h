/* SPDX-License-Identifier: Apache-2.0 */
/* Forests of ai.onnx.ml's files after their attributes are read. upgrade_ml_trees_read.c reads
 * them; upgrade_ml_forest.c makes the tables of operator Trees (ir/trees.h) from them. */
#ifndef UL_FRONTEND_UPGRADE_ML_FOREST_H
#define UL_FRONTEND_UPGRADE_ML_FOREST_H

#include "frontend/upgrade_ml.h"

/* Numbered as TreeEnsemble's nodes_modes; a leaf has none of them. */
enum ul_ml_mode {
    UL_ML_LEQ,
    UL_ML_LT,
    UL_ML_GTE,
    UL_ML_GT,
    UL_ML_EQ,
    UL_ML_NEQ,
    UL_ML_MEMBER,
    UL_ML_LEAF
};

struct ul_ml_node {
    enum ul_ml_mode mode;
    bool missing_is_true; /* a NaN counts as true */
    bool is_reached;      /* set by the walk that makes tables */
    int64_t feature;
    double limit;
    uint32_t yes, no;      /* indexes of nodes */
    uint32_t first, count; /* for a leaf: its entries; for a member test: its numbers */
};

struct ul_ml_entry {
    uint32_t leaf; /* its node */
    int64_t target;
    double weight;
};

/* Numbered as TreeEnsemble's aggregate_function. */
enum ul_ml_aggregate { UL_ML_AVERAGE, UL_ML_SUM, UL_ML_MIN, UL_ML_MAX };

struct ul_ml_forest {
    enum ul_dtype dtype; /* of limits, weights and sums */
    uint32_t node_count;
    struct ul_ml_node *nodes;
    uint32_t tree_count;
    uint32_t *roots; /* indexes of nodes, in the order of trees */
    uint32_t entry_count;
    struct ul_ml_entry *entries; /* sorted by leaf */
    const double *numbers;       /* for member tests */
    int64_t target_count;
    enum ul_ml_aggregate aggregate;
};

/* upgrade_ml_trees_read.c; false after a problem or an error. */

/* A list of numbers, whichever attribute holds it. */
struct ul_ml_list {
    int64_t count;
    const double *floats;
    const int64_t *ints;
};
/* Reads the floats `name`, or the tensor `name`_as_tensor, or, in the newer form, the tensor
 * `name`. Doubles in a forest of floats are a problem. */
bool ul_ml_read_floats(struct ul_old_node *node, const char *name, enum ul_dtype dtype,
                       struct ul_ml_list *list);
/* Reads a forest in the older form, whose attributes of weights begin with `kind`, or in the newer
 * form; type and targets are set. */
bool ul_ml_read_old(struct ul_old_node *node, const char *kind, struct ul_ml_forest *forest);
bool ul_ml_read_new(struct ul_old_node *node, struct ul_ml_forest *forest);

/* upgrade_ml_forest.c */

/* Emits the sums of the trees for each row of x [rows, features]: [rows, targets] of the forest's
 * type, which is that of x. UL_NONE after a problem or an error. */
ul_value_id ul_ml_emit_forest(struct ul_old_node *node, ul_value_id x, int64_t features,
                              struct ul_ml_forest *forest);

#endif
