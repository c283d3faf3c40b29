/* SPDX-License-Identifier: Apache-2.0 */
/* TreeEnsemble, TreeEnsembleRegressor and TreeEnsembleClassifier of ai.onnx.ml, and what becomes of
 * the sums of their trees. */
#include "frontend/upgrade_ml_forest.h"

#include <math.h>
#include <string.h>

static ul_value_id average(struct ul_old_node *node, const struct ul_ml_forest *forest,
                           ul_value_id scores)
{
    return ul_ml_of_scores(node, scores, forest->tree_count,
                           forest->aggregate == UL_ML_AVERAGE ? "s / n" : "s");
}

static ul_value_id add_all(struct ul_old_node *node, int64_t count, const double *numbers,
                           ul_value_id scores)
{
    return ul_old_make(
        node,
        UL_WITH({"s", ul_row_value(scores)}, {"numbers", ul_row_floats((uint32_t)count, numbers)}),
        "numbers ? s + numbers : s");
}

static ul_value_id transform(struct ul_old_node *node, const struct ul_ml_forest *forest,
                             ul_value_id scores)
{
    return forest->target_count > 1 ? ul_ml_transform(node, scores)
                                    : ul_ml_transform_one(node, scores);
}

static void set_scores(struct ul_old_node *node, uint32_t output, const struct ul_ml_forest *forest,
                       ul_value_id scores)
{
    bool is_single = forest->dtype == UL_F32;
    ul_old_set_result(node, output,
                      ul_ml_of_scores(node, scores, is_single, "n ? s : Cast(s) {to=f32}"));
}

/* The type in which a forest over this input computes. */
static enum ul_dtype type_of(struct ul_old_node *node)
{
    return ul_old_dtype(node, 0) == UL_F64 ? UL_F64 : UL_F32;
}

static bool read_aggregate(struct ul_old_node *node, struct ul_ml_forest *forest)
{
    static const char *const names[] = {"AVERAGE", "SUM", "MIN", "MAX"};
    const char *name = ul_old_string(node, "aggregate_function", "SUM");
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) != 0)
            continue;
        forest->aggregate = (enum ul_ml_aggregate)i;
        return true;
    }
    return ul_old_invalid(node, "its aggregate_function must be SUM, AVERAGE, MIN or MAX");
}

void ul_ml_tree_regressor(struct ul_old_node *node)
{
    struct ul_ml_forest forest = {.dtype = type_of(node),
                                  .target_count = ul_old_int(node, "n_targets", 1)};
    int64_t features;
    struct ul_ml_list base;
    ul_value_id x = ul_ml_rows(node, forest.dtype, &features);
    if (x == UL_NONE || !read_aggregate(node, &forest) ||
        !ul_ml_read_old(node, "target", &forest) ||
        !ul_ml_read_floats(node, "base_values", forest.dtype, &base))
        return;
    if (base.count != 0 && base.count != forest.target_count) {
        ul_old_invalid(node, "has another number of base_values than of targets");
        return;
    }
    ul_value_id scores = ul_ml_emit_forest(node, x, features, &forest);
    if (scores == UL_NONE)
        return;
    scores = add_all(node, base.count, base.floats, average(node, &forest, scores));
    set_scores(node, 0, &forest, transform(node, &forest, scores));
}

void ul_ml_tree_ensemble(struct ul_old_node *node)
{
    static const char *const posts[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
    struct ul_ml_forest forest = {.dtype = type_of(node),
                                  .target_count = ul_old_int(node, "n_targets", 1)};
    int64_t features;
    ul_value_id x = ul_ml_rows(node, forest.dtype, &features);
    if (x == UL_NONE)
        return;
    forest.aggregate = (enum ul_ml_aggregate)ul_old_int(node, "aggregate_function", UL_ML_SUM);
    ul_old_set_string(node, "post_transform", posts[ul_old_int(node, "post_transform", 0)]);
    ul_value_id scores =
        ul_ml_read_new(node, &forest) ? ul_ml_emit_forest(node, x, features, &forest) : UL_NONE;
    if (scores != UL_NONE)
        ul_old_set_result(node, 0, transform(node, &forest, average(node, &forest, scores)));
}

/* ---- Classes ---- */

/* Whether all paths through some tree end at a weight for `target`. The forest was emitted, so that
 * its trees are trees. */
static bool always_has(const struct ul_old_node *node, const struct ul_ml_forest *forest,
                       int64_t target)
{
    uint32_t *stack =
        UL_NEW_ARRAY(node->builder->scratch, uint32_t, (uint64_t)forest->node_count + 1);
    for (uint32_t t = 0; t < forest->tree_count; t++) {
        uint32_t count = 1;
        bool is_sure = true;
        stack[0] = forest->roots[t];
        while (count > 0 && is_sure) {
            const struct ul_ml_node *at = &forest->nodes[stack[--count]];
            bool is_found = at->mode != UL_ML_LEAF;
            for (uint32_t i = 0; !is_found && i < at->count; i++)
                is_found = forest->entries[at->first + i].target == target;
            is_sure = is_found;
            if (at->mode == UL_ML_LEAF)
                continue;
            stack[count++] = at->yes;
            stack[count++] = at->no;
        }
        if (is_sure)
            return true;
    }
    return false;
}

/* Bits for the first two classes: which have weights. */
static uint32_t classes_of(const struct ul_ml_forest *forest)
{
    uint32_t classes = 0;
    for (uint32_t i = 0; i < forest->entry_count; i++)
        classes |= forest->entries[i].target == 0 ? 1u : forest->entries[i].target == 1 ? 2u : 0u;
    return classes;
}

static bool is_positive(const struct ul_ml_forest *forest)
{
    for (uint32_t i = 0; i < forest->entry_count; i++)
        if (forest->entries[i].weight < 0)
            return false;
    return true;
}

/* The score of one class next to a 0 for the other. */
static ul_value_id beside_zero(struct ul_old_node *node, ul_value_id score, bool is_second)
{
    return ul_ml_of_scores(node, score, 0,
                           is_second ? "Concat(Expand(0:s, s.dims), s) {axis=1}"
                                     : "Concat(s, Expand(0:s, s.dims)) {axis=1}");
}

/* For two classes of which one has weights: `score` decides, at 1/2 where all weights are positive,
 * as probabilities are, else at 0. */
static void finish_one_of_two(struct ul_old_node *node, const struct ul_ml_forest *forest,
                              const struct ul_ml_labels *labels, const struct ul_ml_list *base,
                              bool is_second, ul_value_id score)
{
    double limit = is_positive(forest) ? 0.5 : 0;
    if (is_second && base->count == 2) {
        ul_old_problem(node, "has base_values for two classes, the second of which alone has "
                             "weights");
        return;
    }
    if (base->count > 0 && !is_second)
        score = ul_ml_of_scores(node, score, base->floats[0], "s + n");
    ul_value_id both = is_second || base->count == 2
                           ? ul_ml_transform(node, beside_zero(node, score, is_second))
                           : ul_ml_both_transformed(node, score, 2 * limit);
    if (both == UL_NONE)
        return;
    ul_ml_set_label_above(node, labels, score, limit);
    set_scores(node, 1, forest, both);
}

/* For two classes that both have weights: the second is taken where its score is above 0, and has
 * label 1, whatever the labels are, as in onnxruntime. */
static void finish_two(struct ul_old_node *node, const struct ul_ml_forest *forest,
                       const struct ul_ml_labels *labels, const struct ul_ml_list *base,
                       ul_value_id scores)
{
    struct ul_ml_labels numbers = {.count = 0, .ints = labels->ints};
    if (!always_has(node, forest, 1)) {
        ul_old_problem(node,
                       "has rows with weights for the first of two classes alone, and others");
        return;
    }
    if (base->count == 2) {
        ul_value_id first =
            ul_ml_of_scores(node, scores, base->floats[1], "Slice(s, [0], [1], [1]) + n");
        scores = ul_ml_both(node, first, 0);
    } else if (base->count == 1) {
        const double values[2] = {base->floats[0], 0};
        scores = add_all(node, 2, values, scores);
    }
    ul_ml_set_label_above(node, &numbers,
                          ul_ml_of_scores(node, scores, 0, "Slice(s, [1], [2], [1])"), 0);
    set_scores(node, 1, forest, ul_ml_transform(node, scores));
}

/* Classes without any weight or base value are never the label. */
static void finish_many(struct ul_old_node *node, const struct ul_ml_forest *forest,
                        const struct ul_ml_labels *labels, const struct ul_ml_list *base,
                        ul_value_id scores)
{
    int64_t count = forest->target_count;
    double *bases = UL_NEW_ARRAY(node->builder->scratch, double, (uint64_t)count);
    double *absent = UL_NEW_ARRAY(node->builder->scratch, double, (uint64_t)count);
    bool all = true;
    for (int64_t j = 0; j < count; j++)
        absent[j] = j < base->count ? 0 : -(double)INFINITY;
    for (uint32_t i = 0; i < forest->entry_count; i++)
        absent[forest->entries[i].target] = 0;
    for (int64_t j = 0; j < count; j++) {
        bases[j] = j < base->count ? base->floats[j] : 0;
        all = all && !isinf(absent[j]);
    }
    if (base->count > 0)
        scores = add_all(node, count, bases, scores);
    ul_value_id ranked = all ? scores : add_all(node, count, absent, scores);
    ul_ml_set_labels(node, labels, ul_ml_largest(node, ranked));
    set_scores(node, 1, forest, ul_ml_transform(node, scores));
}

void ul_ml_tree_classifier(struct ul_old_node *node)
{
    struct ul_ml_forest forest = {.dtype = type_of(node), .aggregate = UL_ML_SUM};
    struct ul_ml_labels labels;
    int64_t features;
    struct ul_ml_list base;
    if (!ul_ml_get_labels(node, &labels))
        return;
    forest.target_count = labels.count;
    ul_value_id x = ul_ml_rows(node, forest.dtype, &features);
    if (x == UL_NONE || !ul_ml_read_old(node, "class", &forest) ||
        !ul_ml_read_floats(node, "base_values", forest.dtype, &base))
        return;
    if (labels.count < 2 || base.count > labels.count) {
        ul_old_problem(node, "has fewer than two classes, or more base_values than classes");
        return;
    }
    uint32_t classes = labels.count == 2 ? classes_of(&forest) : 0;
    bool is_one = classes == 1 || classes == 2;
    if (is_one)
        forest.target_count = 1;
    for (uint32_t i = 0; i < forest.entry_count && is_one; i++)
        forest.entries[i].target = 0;
    ul_value_id scores = ul_ml_emit_forest(node, x, features, &forest);
    if (scores == UL_NONE)
        return;
    if (is_one)
        finish_one_of_two(node, &forest, &labels, &base, classes == 2, scores);
    else if (labels.count == 2)
        finish_two(node, &forest, &labels, &base, scores);
    else
        finish_many(node, &forest, &labels, &base, scores);
}
