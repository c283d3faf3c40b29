/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that prepare features and need more than a row of text: LabelEncoder and OneHotEncoder
 * of numbers; and ZipMap, which names scores. */
#include "frontend/upgrade_ml.h"

#include <stdlib.h>
#include <string.h>

static int by_integer(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* ---- OneHotEncoder ---- */

/* Makes a column for each category: 1 where x is it. An x that is none of them gives a row of
 * zeros, even where the attribute `zeros` asks for an error: a program always completes. */
void ul_ml_one_hot_encoder(struct ul_old_node *node)
{
    int64_t count = 0;
    const int64_t *categories = ul_ml_ints(node, "cats_int64s", &count);
    if (categories == NULL || count == 0) {
        ul_old_problem(node, "has no categories that are numbers; strings have no tensors here");
        return;
    }
    int64_t *sorted =
        ul_arena_copy(node->builder->scratch, categories, (uint64_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, by_integer);
    for (int64_t i = 1; i < count; i++) {
        if (sorted[i] == sorted[i - 1]) {
            ul_old_invalid(node, "has a category twice");
            return;
        }
    }
    ul_old_finish(node, NULL,
                  "Cast(Equal(Unsqueeze(Cast(x) {to=i64}, [-1]), cats_int64s)) {to=f32}");
}

/* LabelEncoder */

/* A table of keys or values: the tensor, whichever attribute holds it. */
static const struct ul_tensor *read_table(struct ul_old_node *node, const char *which)
{
    struct ul_arena *scratch = node->builder->scratch, *arena = node->builder->graph->arena;
    const struct ul_attr *tensor = ul_old_attr(node, ul_arena_printf(scratch, "%s_tensor", which));
    int64_t count;
    const int64_t *ints = ul_ml_ints(node, ul_arena_printf(scratch, "%s_int64s", which), &count);
    if (ints != NULL)
        return ul_tensor_new_ints(arena, UL_I64, 1, &count, ints);
    const double *floats = ul_ml_floats(node, ul_arena_printf(scratch, "%s_floats", which), &count);
    if (floats != NULL) {
        ul_value_id table = ul_ml_const(node, 1, &count, floats);
        return node->builder->graph->values[table].tensor;
    }
    return tensor != NULL && tensor->kind == UL_ATTR_TENSOR ? tensor->tensor : NULL;
}

/* A key, by its number or its place among sorted keys. */
struct key {
    double number; /* for floats */
    int64_t integer;
    int64_t place; /* its index in the table */
};

static int by_key(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->number < y->number || x->number > y->number)
        return x->number < y->number ? -1 : 1;
    if (x->integer != y->integer)
        return x->integer < y->integer ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

/* Sorts the keys, each once, at the first place that has it; the place of a NaN goes to *nan (else
 * -1). */
static int64_t sort_keys(const struct ul_tensor *keys, struct key *sorted, int64_t *nan)
{
    int64_t count = (int64_t)ul_type_elements(&keys->type), kept = 0, unique = 0;
    bool is_float = ul_dtype_get(keys->type.dtype)->is_float;
    *nan = -1;
    for (int64_t i = 0; i < count; i++) {
        struct key key = {.place = i};
        if (is_float)
            key.number = ul_tensor_get_float(keys, (uint64_t)i);
        else
            key.integer = ul_tensor_get_int(keys, (uint64_t)i);
        if (key.number == key.number)
            sorted[kept++] = key;
        else if (*nan < 0)
            *nan = i;
    }
    qsort(sorted, (size_t)kept, sizeof *sorted, by_key);
    for (int64_t i = 0; i < kept; i++)
        if (i == 0 || sorted[i].number > sorted[unique - 1].number ||
            sorted[i].integer > sorted[unique - 1].integer)
            sorted[unique++] = sorted[i];
    return unique;
}

static void put_element(unsigned char *bytes, int64_t at, const struct ul_tensor *from,
                        int64_t place)
{
    uint64_t size = ul_dtype_get(from->type.dtype)->size_bytes;
    ul_tensor_read(from, (uint64_t)place, 1, bytes + (uint64_t)at * size);
}

/* Reads into *element the value for missing keys, in the type of values. False: the default is not
 * a number. */
static bool read_default(const struct ul_old_node *node, enum ul_dtype dtype,
                         unsigned char *element)
{
    const struct ul_attr *tensor = ul_old_attr(node, "default_tensor");
    if (tensor != NULL && tensor->kind == UL_ATTR_TENSOR) {
        if (tensor->tensor->type.dtype != dtype || ul_type_elements(&tensor->tensor->type) != 1)
            return false;
        put_element(element, 0, tensor->tensor, 0);
    } else if (ul_dtype_get(dtype)->is_float) {
        ul_element_put_float(element, dtype, ul_old_float(node, "default_float", -0.0));
    } else {
        ul_element_put_int(element, dtype, ul_old_int(node, "default_int64", -1));
    }
    return true;
}

/* The sorted keys in the form that operator Find wants: padded with the last one to 2^k - 1. */
static ul_value_id const_keys(struct ul_old_node *node, const struct ul_tensor *keys,
                              const struct key *sorted, int64_t unique)
{
    struct ul_arena *arena = node->builder->graph->arena;
    int64_t padded = 1;
    while (padded < unique)
        padded = padded * 2 + 1;
    struct ul_type type = ul_type_make(keys->type.dtype, 1, &padded);
    unsigned char *bytes = ul_arena_alloc(arena, ul_type_bytes(&type));
    for (int64_t i = 0; i < padded; i++)
        put_element(bytes, i, keys, sorted[i < unique ? i : unique - 1].place);
    return ul_graph_add_weight(node->builder->graph, ul_ml_name(node, "keys"),
                               ul_tensor_new(arena, &type, bytes));
}

/* The values of the sorted keys, then the default, then the value of NaN. */
static ul_value_id const_values(struct ul_old_node *node, const struct ul_tensor *values,
                                const struct key *sorted, int64_t unique, int64_t nan)
{
    struct ul_arena *arena = node->builder->graph->arena;
    int64_t count = unique + (nan < 0 ? 1 : 2);
    uint64_t size = ul_dtype_get(values->type.dtype)->size_bytes;
    struct ul_type type = ul_type_make(values->type.dtype, 1, &count);
    unsigned char *bytes = ul_arena_alloc(arena, ul_type_bytes(&type));
    for (int64_t i = 0; i < unique; i++)
        put_element(bytes, i, values, sorted[i].place);
    if (!read_default(node, values->type.dtype, bytes + (uint64_t)unique * size)) {
        ul_old_invalid(node, "its default is no number of the type of its values");
        return UL_NONE;
    }
    if (nan >= 0)
        put_element(bytes, unique + 1, values, nan);
    return ul_graph_add_weight(node->builder->graph, ul_ml_name(node, "values"),
                               ul_tensor_new(arena, &type, bytes));
}

static const char *check_tables(struct ul_old_node *node, const struct ul_tensor *keys,
                                const struct ul_tensor *values)
{
    if (keys == NULL || values == NULL)
        return "has no keys or no values that are numbers; strings have no tensors here";
    if (ul_type_elements(&keys->type) != ul_type_elements(&values->type) ||
        ul_type_elements(&keys->type) == 0)
        return "has another number of keys than of values";
    if (!ul_dtype_is_computed(keys->type.dtype) || !ul_dtype_is_computed(values->type.dtype))
        return "has keys or values that are no numbers";
    if (ul_old_dtype(node, 0) != keys->type.dtype)
        return "has keys of another type than input 0";
    return NULL;
}

void ul_ml_label_encoder(struct ul_old_node *node)
{
    const struct ul_tensor *keys = read_table(node, "keys"), *values = read_table(node, "values");
    const char *wrong = check_tables(node, keys, values);
    if (wrong != NULL) {
        ul_old_problem(node, wrong);
        return;
    }
    uint64_t count = ul_type_elements(&keys->type);
    struct key *sorted = UL_NEW_ARRAY(node->builder->scratch, struct key, count);
    int64_t nan, unique = sort_keys(keys, sorted, &nan);
    ul_value_id table = const_values(node, values, sorted, unique, nan);
    if (table == UL_NONE)
        return;
    ul_value_id find = unique > 0 ? const_keys(node, keys, sorted, unique) : UL_NONE;
    ul_old_finish(node,
                  UL_WITH({"keys", ul_row_value(find)}, {"table", ul_row_value(table)},
                          {"count", ul_row_int(unique)}, {"has_nan", ul_row_int(nan >= 0)}),
                  "place = keys ? Find(x, keys) {missing=count} : count:i64; "
                  "place = has_nan ? Where(IsNaN(x), (count + 1):i64, place) : place; "
                  "Gather(table, place)");
}

/* ZipMap makes a map for each row, from names to scores; here the scores stay a tensor. */
void ul_ml_zip_map(struct ul_old_node *node)
{
    struct ul_model_builder *builder = node->builder;
    if (builder->model->notice == NULL)
        builder->model->notice = ul_arena_printf(
            builder->graph->arena,
            "%s is left out: its output is the tensor of scores, a column for each class",
            ul_builder_describe(builder, node->name, node->op));
    ul_old_finish(node, NULL, "Identity(x)");
}
