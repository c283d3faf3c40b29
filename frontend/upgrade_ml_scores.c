/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by models on rows of features: rows, labels, and the transformation of scores. */
#include "frontend/upgrade_ml.h"
#include "ir/build.h"

#include <string.h>

const double *ul_ml_floats(const struct ul_old_node *node, const char *name, int64_t *count)
{
    const struct ul_attr *attr = ul_old_attr(node, name);
    *count = 0;
    if (attr == NULL || attr->kind != UL_ATTR_FLOATS || attr->count == 0)
        return NULL;
    *count = attr->count;
    return attr->floats;
}

const int64_t *ul_ml_ints(const struct ul_old_node *node, const char *name, int64_t *count)
{
    const struct ul_attr *attr = ul_old_attr(node, name);
    *count = 0;
    if (attr == NULL || attr->kind != UL_ATTR_INTS || attr->count == 0)
        return NULL;
    *count = attr->count;
    return attr->ints;
}

const char *ul_ml_name(const struct ul_old_node *node, const char *what)
{
    return ul_arena_printf(node->builder->scratch, "%s%s/%s", node->builder->prefix, node->name,
                           what);
}

ul_value_id ul_ml_const(struct ul_old_node *node, uint32_t rank, const int64_t *dims,
                        const double *values)
{
    struct ul_graph *graph = node->builder->graph;
    struct ul_type type = ul_type_make(UL_F32, rank, dims);
    uint64_t count = ul_type_elements(&type);
    unsigned char *bytes = ul_arena_alloc(graph->arena, ul_type_bytes(&type));
    for (uint64_t i = 0; i < count; i++)
        ul_element_put_float(bytes + i * sizeof(float), UL_F32, values[i]);
    return ul_graph_add_weight(graph, ul_ml_name(node, "constant"),
                               ul_tensor_new(graph->arena, &type, bytes));
}

ul_value_id ul_ml_product(struct ul_old_node *node, ul_value_id x, int64_t rows, int64_t columns,
                          const double *vectors, int64_t added_count, const double *added)
{
    ul_value_id matrix = ul_ml_const(node, 2, (int64_t[]){rows, columns}, vectors);
    ul_value_id more = added_count > 0 ? ul_ml_const(node, 1, &added_count, added) : UL_NONE;
    return ul_old_make(node,
                       UL_WITH({"x", ul_row_value(x)}, {"matrix", ul_row_value(matrix)},
                               {"added", ul_row_value(more)}),
                       "Gemm(x, matrix, added) {transB=1}");
}

ul_value_id ul_ml_of_scores(struct ul_old_node *node, ul_value_id scores, double number,
                            const char *body)
{
    return ul_old_make(node, UL_WITH({"s", ul_row_value(scores)}, {"n", ul_row_float(number)}),
                       body);
}

ul_value_id ul_ml_rows(struct ul_old_node *node, enum ul_dtype dtype, int64_t *features)
{
    const struct ul_type type = ul_old_type(node, node->inputs[0]);
    *features = type.dims[type.rank - 1];
    return ul_old_make(node, UL_WITH({"dtype", ul_row_int(dtype)}),
                       "invalid 'input 0 has no features' if x.-1 == 0; "
                       "y = x.rank == 1 ? Reshape(x, [1, x.0]) : x; "
                       "x.type == dtype ? y : Cast(y) {to=dtype}");
}

/* The softmax over scores that are not 0; zeros stay zeros, as if they were not scores. */
static const char softmax_zero[] =
    "largest = ReduceMax(s, [1]); counts = Greater(Abs(s), 1e-7f); weights = Exp(s - largest); "
    "sum = ReduceSum(Where(counts, weights, 0), [1]); "
    "Where(counts, weights, s * Exp(Neg(largest))) / sum";
/* sqrt(2) * erfinv(2 x - 1), with Winitzki's approximation of the inverse (A handy approximation
 * for the error function and its inverse, 2008), which onnxruntime uses. */
static const char probit[] =
    "y = s * 2 - 1; log = Log((1 - y) * (1 + y)); v = 2 / (3.14159f * 0.147f) + 0.5 * log; "
    "root = Sqrt(v * v - 1 / 0.147f * log); size = Sqrt(root - v) * 1.41421356f; "
    "Where(Less(y, 0), Neg(size), size)";

static const char *post_transform(const struct ul_old_node *node)
{
    return ul_old_string(node, "post_transform", "NONE");
}

ul_value_id ul_ml_transform(struct ul_old_node *node, ul_value_id scores)
{
    const char *post = post_transform(node);
    static const struct {
        const char *post, *body;
    } bodies[] = {{"NONE", "s"},
                  {"LOGISTIC", "Sigmoid(s)"},
                  {"SOFTMAX", "Softmax(s) {axis=-1}"},
                  {"SOFTMAX_ZERO", softmax_zero},
                  {"PROBIT", probit}};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        if (strcmp(post, bodies[i].post) == 0)
            return ul_ml_of_scores(node, scores, 0, bodies[i].body);
    ul_old_invalid(node, ul_arena_printf(node->builder->scratch,
                                         "has post_transform %s, which "
                                         "there is not",
                                         ul_quote(node->builder->scratch, post)));
    return scores;
}

ul_value_id ul_ml_transform_one(struct ul_old_node *node, ul_value_id scores)
{
    return strcmp(post_transform(node), "PROBIT") == 0 ? ul_ml_of_scores(node, scores, 0, probit)
                                                       : scores;
}

bool ul_ml_get_labels(struct ul_old_node *node, struct ul_ml_labels *labels)
{
    const struct ul_attr *strings = ul_old_attr(node, "classlabels_strings");
    *labels = (struct ul_ml_labels){0};
    labels->ints = ul_ml_ints(node, "classlabels_ints", &labels->count);
    if (labels->ints == NULL)
        labels->ints = ul_ml_ints(node, "classlabels_int64s", &labels->count);
    if (strings != NULL && strings->kind == UL_ATTR_STRINGS && strings->count > 0)
        *labels = (struct ul_ml_labels){.count = strings->count};
    if (labels->count > 0)
        return true;
    return ul_old_invalid(node, "has neither classlabels_ints nor classlabels_strings");
}

static void withhold_labels(struct ul_old_node *node)
{
    ul_old_withhold(node, 0,
                    "is a label that is a string (classlabels_strings), and there are no tensors "
                    "of strings; take the probabilities alone, by --output NAME");
}

static bool is_range(const struct ul_ml_labels *labels)
{
    for (int64_t i = 0; i < labels->count; i++)
        if (labels->ints[i] != i)
            return false;
    return true;
}

void ul_ml_set_labels(struct ul_old_node *node, const struct ul_ml_labels *labels,
                      ul_value_id index)
{
    if (labels->ints == NULL) {
        withhold_labels(node);
        return;
    }
    ul_old_set_result(
        node, 0,
        ul_old_make(node,
                    UL_WITH({"i", ul_row_value(index)}, {"plain", ul_row_int(is_range(labels))},
                            {"labels", ul_row_ints((uint32_t)labels->count, labels->ints)}),
                    "plain ? i : Gather(labels, i)"));
}

void ul_ml_set_label_above(struct ul_old_node *node, const struct ul_ml_labels *labels,
                           ul_value_id score, double limit)
{
    if (labels->ints == NULL) {
        withhold_labels(node);
        return;
    }
    bool named = labels->count == 2;
    ul_old_set_result(
        node, 0,
        ul_old_make(node,
                    UL_WITH({"s", ul_row_value(score)}, {"limit", ul_row_float(limit)},
                            {"second", ul_row_int(named ? labels->ints[1] : 1)},
                            {"first", ul_row_int(named ? labels->ints[0] : 0)}),
                    "Where(Greater(Squeeze(s, [1]), limit), second:i64, first:i64)"));
}

ul_value_id ul_ml_largest(struct ul_old_node *node, ul_value_id scores)
{
    return ul_ml_of_scores(node, scores, 0, "ArgMax(s) {axis=1, keepdims=0}");
}

ul_value_id ul_ml_both(struct ul_old_node *node, ul_value_id score, double sum)
{
    return ul_ml_of_scores(node, score, sum, "Concat(n - s, s) {axis=1}");
}

ul_value_id ul_ml_both_transformed(struct ul_old_node *node, ul_value_id score, double sum)
{
    const char *post = post_transform(node);
    if (strcmp(post, "PROBIT") == 0) {
        ul_old_problem(node, "has PROBIT of one score for two classes, which has no meaning");
        return UL_NONE;
    }
    if (strcmp(post, "LOGISTIC") != 0)
        return ul_ml_both(node, score, sum);
    return ul_ml_both(node, ul_ml_of_scores(node, score, 0, "Sigmoid(s)"), 1);
}
