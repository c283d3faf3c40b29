/* SPDX-License-Identifier: Apache-2.0 */
/* What models on rows of features have in common: rows, labels, and what scores become. */
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

ul_value_id ul_ml_const(struct ul_old_node *node, enum ul_dtype dtype, uint32_t rank,
                        const int64_t *dims, const double *values)
{
    struct ul_graph *graph = node->builder->graph;
    struct ul_type type = ul_type_make(dtype, rank, dims);
    uint64_t count = ul_type_elements(&type), size = ul_dtype_get(dtype)->size_bytes;
    UL_ASSERT(ul_dtype_get(dtype)->is_float);
    unsigned char *bytes = ul_arena_alloc(graph->arena, ul_type_bytes(&type));
    for (uint64_t i = 0; i < count; i++)
        ul_element_put_float(bytes + i * size, dtype, values[i]);
    return ul_graph_add_weight(graph, ul_ml_name(node, "constant"),
                               ul_tensor_new(graph->arena, &type, bytes));
}

ul_value_id ul_ml_const_ints(struct ul_old_node *node, int64_t count, const int64_t *values)
{
    UL_ASSERT(count > 0 && count <= UINT32_MAX);
    return ul_old_const_ints(node, values, (uint32_t)count);
}

ul_value_id ul_ml_emit(struct ul_old_node *node, enum ul_op op, const ul_value_id *inputs,
                       uint32_t input_count)
{
    return ul_build_value(ul_old_build(node), op, inputs, input_count, NULL);
}

ul_value_id ul_ml_rows(struct ul_old_node *node, enum ul_dtype dtype, struct ul_type *type)
{
    ul_value_id x = ul_old_input(node, 0);
    if (!ul_old_shape(node, 0, 1u << 1 | 1u << 2, type))
        return UL_NONE;
    const struct ul_dtype_info *info = ul_dtype_get(type->dtype);
    if (!info->is_float && !info->is_integer) {
        ul_old_problem(node, ul_arena_printf(node->builder->scratch, "takes no %s", info->name));
        return UL_NONE;
    }
    if (type->rank == 1) {
        *type = ul_type_make(type->dtype, 2, (int64_t[]){1, type->dims[0]});
        x = ul_old_emit_reshape(node, x, 2, type->dims);
    }
    if (type->dims[1] == 0) {
        ul_old_invalid(node, "input 0 has no features");
        return UL_NONE;
    }
    if (type->dtype != dtype)
        x = ul_old_emit_cast(node, x, dtype);
    type->dtype = dtype;
    return x;
}

/* Of the type of `x`. */
static ul_value_id number(struct ul_old_node *node, ul_value_id x, double value)
{
    enum ul_dtype dtype = ul_old_type(node, x).dtype;
    return ul_old_const_float(node, dtype == UL_DTYPE_NONE ? UL_F32 : dtype, value);
}

static ul_value_id reduce_columns(struct ul_old_node *node, const char *op, ul_value_id x)
{
    return ul_old_emit_two(node, op, x, ul_old_const_ints(node, (int64_t[]){1}, 1));
}

/* The softmax of what is not 0; zeros stay what they are, as if they were no scores. */
static ul_value_id softmax_zero(struct ul_old_node *node, ul_value_id x)
{
    ul_value_id largest = reduce_columns(node, "ReduceMax", x);
    ul_value_id counts =
        ul_old_emit_two(node, "Greater", ul_old_emit_one(node, "Abs", x), number(node, x, 1e-7f));
    ul_value_id weights = ul_old_emit_one(node, "Exp", ul_old_emit_two(node, "Sub", x, largest));
    ul_value_id summed[3] = {counts, weights, number(node, x, 0)};
    ul_value_id sum =
        reduce_columns(node, "ReduceSum", ul_old_emit(node, "Where", 3, summed, 0, NULL));
    ul_value_id small = ul_old_emit_two(
        node, "Mul", x, ul_old_emit_one(node, "Exp", ul_old_emit_one(node, "Neg", largest)));
    ul_value_id chosen[3] = {counts, weights, small};
    return ul_old_emit_two(node, "Div", ul_old_emit(node, "Where", 3, chosen, 0, NULL), sum);
}

/* sqrt(2) * erfinv(2 x - 1), with Winitzki's approximation of the inverse (A handy approximation
 * for the error function and its inverse, 2008), which onnxruntime takes. */
static ul_value_id probit(struct ul_old_node *node, ul_value_id x)
{
    const double a = 0.147f, pi = 3.14159f;
    ul_value_id one = number(node, x, 1), half = number(node, x, 0.5);
    ul_value_id y =
        ul_old_emit_two(node, "Sub", ul_old_emit_two(node, "Mul", x, number(node, x, 2)), one);
    ul_value_id log =
        ul_old_emit_one(node, "Log",
                        ul_old_emit_two(node, "Mul", ul_old_emit_two(node, "Sub", one, y),
                                        ul_old_emit_two(node, "Add", one, y)));
    ul_value_id v = ul_old_emit_two(node, "Add", number(node, x, 2 / (pi * a)),
                                    ul_old_emit_two(node, "Mul", half, log));
    ul_value_id root =
        ul_old_emit_one(node, "Sqrt",
                        ul_old_emit_two(node, "Sub", ul_old_emit_two(node, "Mul", v, v),
                                        ul_old_emit_two(node, "Mul", number(node, x, 1 / a), log)));
    ul_value_id size = ul_old_emit_one(node, "Sqrt", ul_old_emit_two(node, "Sub", root, v));
    ul_value_id scaled = ul_old_emit_two(node, "Mul", size, number(node, x, 1.41421356f));
    ul_value_id signs[3] = {ul_old_emit_two(node, "Less", y, number(node, x, 0)),
                            ul_old_emit_one(node, "Neg", scaled), scaled};
    return ul_old_emit(node, "Where", 3, signs, 0, NULL);
}

static const char *post_transform(const struct ul_old_node *node)
{
    return ul_old_string(node, "post_transform", "NONE");
}

ul_value_id ul_ml_transform(struct ul_old_node *node, ul_value_id scores)
{
    const char *post = post_transform(node);
    struct ul_int_attr axis = {"axis", -1};
    if (strcmp(post, "NONE") == 0)
        return scores;
    if (strcmp(post, "LOGISTIC") == 0)
        return ul_old_emit_one(node, "Sigmoid", scores);
    if (strcmp(post, "SOFTMAX") == 0)
        return ul_old_emit(node, "Softmax", 1, &scores, 1, &axis);
    if (strcmp(post, "SOFTMAX_ZERO") == 0)
        return softmax_zero(node, scores);
    if (strcmp(post, "PROBIT") == 0)
        return probit(node, scores);
    ul_old_invalid(node, ul_arena_printf(node->builder->scratch,
                                         "has post_transform %s, which "
                                         "there is not",
                                         ul_quote(node->builder->scratch, post)));
    return scores;
}

ul_value_id ul_ml_transform_one(struct ul_old_node *node, ul_value_id scores)
{
    return strcmp(post_transform(node), "PROBIT") == 0 ? probit(node, scores) : scores;
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
    ul_old_invalid(node, "has neither classlabels_ints nor classlabels_strings");
    return false;
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
    if (!is_range(labels))
        index = ul_old_emit_two(node, "Gather", ul_ml_const_ints(node, labels->count, labels->ints),
                                index);
    ul_old_set_result(node, 0, index);
}

void ul_ml_set_label_above(struct ul_old_node *node, const struct ul_ml_labels *labels,
                           ul_value_id score, double limit)
{
    if (labels->ints == NULL) {
        withhold_labels(node);
        return;
    }
    bool named = labels->count == 2;
    ul_value_id flat =
        ul_old_emit_two(node, "Squeeze", score, ul_old_const_ints(node, (int64_t[]){1}, 1));
    ul_value_id inputs[3] = {ul_old_emit_two(node, "Greater", flat, number(node, score, limit)),
                             ul_old_const_int(node, UL_I64, named ? labels->ints[1] : 1),
                             ul_old_const_int(node, UL_I64, named ? labels->ints[0] : 0)};
    ul_old_set_result(node, 0, ul_old_emit(node, "Where", 3, inputs, 0, NULL));
}

ul_value_id ul_ml_largest(struct ul_old_node *node, ul_value_id scores)
{
    struct ul_int_attr attrs[2] = {{"axis", 1}, {"keepdims", 0}};
    return ul_old_emit(node, "ArgMax", 1, &scores, 2, attrs);
}

ul_value_id ul_ml_both(struct ul_old_node *node, ul_value_id score, double sum)
{
    ul_value_id other = ul_old_emit_two(node, "Sub", number(node, score, sum), score);
    return ul_old_emit_concat(node, other, score, 1);
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
    return ul_ml_both(node, ul_old_emit_one(node, "Sigmoid", score), 1);
}
