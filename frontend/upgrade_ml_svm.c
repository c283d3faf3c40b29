/* SPDX-License-Identifier: Apache-2.0 */
/* SVMClassifier and SVMRegressor of ai.onnx.ml: a kernel of rows and support vectors, products with
 * coefficients, and, in a classifier, votes of its pairs of classes.
 *
 * Pair p of classes i < j, in the order (0, 1), (0, 2) ... (1, 2) ..., uses the vectors of both:
 *
 *     score(p) = sum over vectors v of i: coefficients[j - 1, v] * kernel(v)
 *              + sum over vectors v of j: coefficients[i, v] * kernel(v) + rho[p]
 *
 * which is one product with a matrix that has zeros elsewhere. A vote goes to i where the score is
 * above 0, else to j. */
#include "frontend/upgrade_ml.h"

#include <string.h>

enum { MOST_NUMBERS = 1 << 27 }; /* in the product for all pairs */

struct svm {
    struct ul_old_node *node;
    ul_value_id x; /* [rows, features] */
    int64_t features, vectors, classes, pairs;
    const double *coefficients, *rho;
    int64_t coefficient_count, rho_count;
    const int64_t *per_class; /* number of vectors of each class; NULL: there are none */
};

/* The kernel of each row and vector, [rows, vectors]; UL_NONE after an error. */
static ul_value_id kernel(const struct svm *s)
{
    int64_t vector_numbers, param_count;
    const char *type = ul_old_string(s->node, "kernel_type", "LINEAR");
    const double *vectors = ul_ml_floats(s->node, "support_vectors", &vector_numbers);
    const double *params = ul_ml_floats(s->node, "kernel_params", &param_count);
    double gamma = param_count >= 3 ? params[0] : 0, added = param_count >= 3 ? params[1] : 0;
    double degree = param_count >= 3 ? params[2] : 0;
    if (vector_numbers / s->features != s->vectors || vector_numbers % s->features != 0) {
        ul_old_invalid(s->node, "its support_vectors do not fit the features of input 0");
        return UL_NONE;
    }
    if (strcmp(type, "RBF") != 0 && strcmp(type, "LINEAR") != 0 && strcmp(type, "POLY") != 0 &&
        strcmp(type, "SIGMOID") != 0) {
        ul_old_invalid(s->node, "its kernel_type must be LINEAR, POLY, RBF or SIGMOID");
        return UL_NONE;
    }
    const int64_t dims[2] = {s->vectors, s->features};
    ul_value_id matrix = ul_ml_const(s->node, 2, dims, vectors);
    /* Differences are computed directly: differences of products would lose small ones. */
    return ul_old_make(
        s->node,
        UL_WITH({"x", ul_row_value(s->x)}, {"type", ul_row_text(type)},
                {"vectors", ul_row_value(matrix)}, {"gamma", ul_row_float(gamma)},
                {"added", ul_row_float(added)}, {"degree", ul_row_float(degree)}),
        "is_rbf = type == 'RBF'; dots = is_rbf ? none : Gemm(x, vectors) {transB=1}; "
        "moved = is_rbf || type == 'LINEAR' ? dots : dots * gamma + added; "
        "is_rbf ? Exp(ReduceSumSquare(Unsqueeze(x, [1]) - vectors, [2]) {keepdims=0}"
        " * -gamma) : type == 'POLY' ? Pow(moved, degree) : "
        "type == 'SIGMOID' ? Tanh(moved) : moved");
}

static bool read_svm(struct svm *s, struct ul_old_node *node)
{
    *s = (struct svm){.node = node};
    s->coefficients = ul_ml_floats(node, "coefficients", &s->coefficient_count);
    s->rho = ul_ml_floats(node, "rho", &s->rho_count);
    s->x = ul_ml_rows(node, UL_F32, &s->features);
    if (s->x == UL_NONE)
        return false;
    if (s->coefficient_count > 0 && s->rho_count > 0)
        return true;
    return ul_old_invalid(node, "has no coefficients or no rho");
}

/* onnxruntime ignores post_transform here. */
void ul_ml_svm_regressor(struct ul_old_node *node)
{
    struct svm s;
    if (!read_svm(&s, node))
        return;
    s.vectors = ul_old_int(node, "n_supports", 0);
    int64_t columns = s.vectors > 0 ? s.vectors : s.features;
    if (s.vectors < 0 || s.coefficient_count != columns) {
        ul_old_invalid(node, "its coefficients do not fit its support vectors or features");
        return;
    }
    ul_value_id x = s.vectors > 0 ? kernel(&s) : s.x;
    if (x == UL_NONE)
        return;
    ul_value_id y = ul_ml_product(node, x, 1, columns, s.coefficients, 1, s.rho);
    ul_old_set_result(node, 0,
                      ul_old_make(node,
                                  UL_WITH({"y", ul_row_value(y)},
                                          {"one", ul_row_int(ul_old_int(node, "one_class", 0))}),
                                  "one ? Where(Greater(y, 0), 1:f32, -1:f32) : y"));
}

/* ---- Classes ---- */

static ul_value_id pair_scores(const struct svm *s, ul_value_id kernels)
{
    double *matrix = UL_NEW_ARRAY(s->node->builder->scratch, double,
                                  ul_size_mul_or_die((uint64_t)s->pairs, (uint64_t)s->vectors));
    double *row = matrix;
    int64_t first_i = 0;
    for (int64_t i = 0; i < s->classes; first_i += s->per_class[i++]) {
        int64_t first_j = first_i + s->per_class[i];
        for (int64_t j = i + 1; j < s->classes; first_j += s->per_class[j++], row += s->vectors) {
            for (int64_t v = first_i; v < first_i + s->per_class[i]; v++)
                row[v] = s->coefficients[(j - 1) * s->vectors + v];
            for (int64_t v = first_j; v < first_j + s->per_class[j]; v++)
                row[v] = s->coefficients[i * s->vectors + v];
        }
    }
    return ul_ml_product(s->node, kernels, s->pairs, s->vectors, matrix, s->pairs, s->rho);
}

/* The class with most votes, the first of several such. */
static ul_value_id vote(const struct svm *s, ul_value_id scores)
{
    struct ul_arena *scratch = s->node->builder->scratch;
    double *matrix = UL_NEW_ARRAY(scratch, double, (uint64_t)(s->classes * s->pairs));
    double *others = UL_NEW_ARRAY(scratch, double, (uint64_t)s->classes);
    int64_t pair = 0;
    for (int64_t i = 0; i < s->classes; i++) {
        for (int64_t j = i + 1; j < s->classes; j++, pair++) {
            matrix[i * s->pairs + pair] = 1;
            matrix[j * s->pairs + pair] = -1;
            others[j] += 1;
        }
    }
    ul_value_id wins =
        ul_old_make(s->node, UL_WITH({"s", ul_row_value(scores)}), "Cast(Greater(s, 0)) {to=f32}");
    return ul_ml_largest(
        s->node, ul_ml_product(s->node, wins, s->classes, s->pairs, matrix, s->classes, others));
}

/* The probability of each class from the scores of pairs: logistic functions, which have to be
 * reconciled. */
static ul_value_id probabilities(const struct svm *s, ul_value_id scores, const double *a,
                                 const double *b)
{
    return ul_old_make(
        s->node,
        UL_WITH({"scores", ul_row_value(scores)}, {"a", ul_row_floats((uint32_t)s->pairs, a)},
                {"b", ul_row_floats((uint32_t)s->pairs, b)}, {"classes", ul_row_int(s->classes)}),
        "first = 1 - Sigmoid(scores * a + b); "
        "CouplePairs(Clip(first, 1e-7f, 1.0 - 1e-7f)) {classes=classes}");
}

/* NULL, or what is wrong with a classifier that has support vectors. */
static const char *check_pairs(const struct svm *s, int64_t a_count, int64_t b_count)
{
    if (s->pairs > s->rho_count)
        return "has fewer rho than pairs of classes";
    if (s->coefficient_count / s->vectors < s->classes - 1)
        return "has fewer coefficients than its vectors and classes ask for";
    if ((double)s->pairs * (double)s->vectors > MOST_NUMBERS)
        return "has too many classes and vectors";
    if (a_count != b_count || (a_count > 0 && a_count < s->pairs))
        return "has fewer prob_a or prob_b than pairs of classes";
    return NULL;
}

static void classify_by_vectors(struct svm *s, const struct ul_ml_labels *labels)
{
    struct ul_old_node *node = s->node;
    int64_t a_count, b_count;
    const double *a = ul_ml_floats(node, "prob_a", &a_count);
    const double *b = ul_ml_floats(node, "prob_b", &b_count);
    bool is_plain = strcmp(ul_old_string(node, "post_transform", "NONE"), "NONE") == 0;
    s->pairs = s->classes * (s->classes - 1) / 2;
    const char *wrong = check_pairs(s, a_count, b_count);
    if (wrong != NULL) {
        ul_old_invalid(node, wrong);
        return;
    }
    ul_value_id kernels = kernel(s);
    if (kernels == UL_NONE)
        return;
    ul_value_id scores = pair_scores(s, kernels);
    ul_ml_set_labels(node, labels, vote(s, scores));
    if (a_count > 0)
        scores = ul_ml_transform(node, probabilities(s, scores, a, b));
    else if (s->classes > 2)
        scores = ul_ml_transform(node, scores);
    else
        scores = ul_ml_both_transformed(node, scores, is_plain ? 0 : 1);
    if (scores == UL_NONE)
        return;
    ul_old_set_result(node, 1, scores);
}

/* Without support vectors, each class has a product of its own. With two classes, the second is
 * taken where any score is above a limit, as in onnxruntime. */
static void classify_by_products(const struct svm *s, const struct ul_ml_labels *labels)
{
    struct ul_old_node *node = s->node;
    int64_t a_count;
    bool positive = true;
    if (s->coefficient_count / s->features != s->classes ||
        s->coefficient_count % s->features != 0) {
        ul_old_invalid(node, "its coefficients do not fit its classes and the features of input 0");
        return;
    }
    ul_value_id scores =
        ul_ml_product(node, s->x, s->classes, s->features, s->coefficients, 1, s->rho);
    ul_value_id index = ul_ml_largest(node, scores);
    for (int64_t i = 0; i < s->coefficient_count; i++)
        positive = positive && s->coefficients[i] >= 0;
    if (s->classes == 2 && ul_ml_floats(node, "prob_a", &a_count) == NULL)
        index =
            ul_old_make(node,
                        UL_WITH({"scores", ul_row_value(scores)}, {"index", ul_row_value(index)},
                                {"positive", ul_row_int(positive)}),
                        "largest = ReduceMax(scores, [1]) {keepdims=0}; "
                        "above = positive ? GreaterOrEqual(largest, 0.5) : Greater(largest, 0); "
                        "Where(above, 1, index)");
    ul_ml_set_labels(node, labels, index);
    ul_old_set_result(node, 1, ul_ml_transform(node, scores));
}

void ul_ml_svm_classifier(struct ul_old_node *node)
{
    enum { MAX_CLASSES = 256 }; /* 32,640 pairs */
    struct ul_ml_labels labels;
    struct svm s;
    int64_t count;
    if (!ul_ml_get_labels(node, &labels) || !read_svm(&s, node))
        return;
    s.classes = labels.count;
    s.per_class = ul_ml_ints(node, "vectors_per_class", &count);
    if (s.classes < 2 || s.classes > MAX_CLASSES) {
        ul_old_problem(node, "has fewer than two classes, or too many");
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        if (count != s.classes || s.per_class[i] < 0 || s.per_class[i] > INT32_MAX) {
            ul_old_invalid(node, "its vectors_per_class do not fit its classes");
            return;
        }
        s.vectors += s.per_class[i];
    }
    if (s.vectors > 0)
        classify_by_vectors(&s, &labels);
    else
        classify_by_products(&s, &labels);
}
