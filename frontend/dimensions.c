/* SPDX-License-Identifier: Apache-2.0 */
/* The named dimensions of a model's inputs and what is known of their sizes.
 *
 * Problem: a name may be an expression of others (expression.c); some names get a size from --dim,
 * --shape, --const or test data. Method: names inside expressions are dimensions too. The sizes are
 * propagated until nothing changes: an expression whose names all have sizes gets its size, or is
 * compared with the size that it has; an expression that has a size determines the one name in it
 * that has none. A name that stands only inside expressions is asked for only where it would close
 * more dimensions than the expression itself. */
#include "frontend/frontend_internal.h"

#include <string.h>

static const char *quote(const struct ul_dimensions *dimensions, const char *text)
{
    return ul_quote(dimensions->builder->scratch, text);
}

uint32_t ul_dimensions_find(const struct ul_dimensions *dimensions, const char *name)
{
    return ul_names_find(&dimensions->names, name);
}

static uint32_t add(struct ul_dimensions *dimensions, const char *name)
{
    struct ul_arena *scratch = dimensions->builder->scratch;
    uint32_t index = ul_dimensions_find(dimensions, name);
    if (index != UL_NONE)
        return index;
    struct ul_dimension dimension = {
        .name = name, .size = -1, .expression = ul_expression_parse(scratch, name)};
    uint32_t count =
        dimension.expression == NULL ? 0 : ul_expression_name_count(dimension.expression);
    dimension.parts = UL_NEW_ARRAY(scratch, uint32_t, count);
    index = dimensions->count;
    (void)!ul_names_add(&dimensions->names, name, index);
    UL_GROW(scratch, dimensions->items, dimensions->count, dimensions->capacity);
    dimensions->items[dimensions->count++] = dimension;
    for (uint32_t i = 0; i < count; i++) { /* parts are plain names */
        dimension.parts[i] = add(dimensions, ul_expression_name(dimension.expression, i));
        dimensions->items[dimension.parts[i]].use_count++;
    }
    return index;
}

void ul_dimensions_init(struct ul_dimensions *dimensions, struct ul_model_builder *builder)
{
    const struct ul_onnx_model *model = builder->model;
    *dimensions = (struct ul_dimensions){.builder = builder};
    ul_names_init(&dimensions->names, builder->scratch);
    ul_names_init(&dimensions->hinted, builder->scratch);
    for (uint32_t i = 0; i < model->input_count; i++) {
        const struct ul_model_port *port = &model->inputs[i];
        for (uint32_t d = 0; port->rank != UL_RANK_UNKNOWN && d < port->rank; d++) {
            if (port->dims[d].symbol == NULL)
                continue;
            uint32_t index = add(dimensions, port->dims[d].symbol);
            struct ul_dimension *item = &dimensions->items[index];
            if (item->input == NULL) {
                item->input = port->name;
                item->axis = d;
            }
        }
    }
}

enum ul_status ul_dimensions_bind(struct ul_dimensions *dimensions, const char *name, int64_t size,
                                  const char *input)
{
    uint32_t index = ul_dimensions_find(dimensions, name);
    UL_ASSERT(index != UL_NONE && size >= 0);
    struct ul_dimension *item = &dimensions->items[index];
    if (item->size >= 0 && item->size != size)
        return ul_diag_set(dimensions->builder->diag, UL_USAGE,
                           "dimension %s is %lld, but input %s makes it %lld",
                           quote(dimensions, name), (long long)item->size, quote(dimensions, input),
                           (long long)size);
    item->size = size;
    return UL_OK;
}

/* ---- Sizes of expressions ---- */

/* Lists names that have sizes: "past=7, seq=1". */
static const char *list_parts(const struct ul_dimensions *dimensions,
                              const struct ul_dimension *item)
{
    struct ul_text text;
    ul_text_init(&text, dimensions->builder->scratch);
    for (uint32_t i = 0; i < ul_expression_name_count(item->expression); i++) {
        const struct ul_dimension *part = &dimensions->items[item->parts[i]];
        if (part->size >= 0)
            ul_text_printf(&text, "%s%s=%lld", text.length == 0 ? "" : ", ", part->name,
                           (long long)part->size);
    }
    return text.data;
}

/* Names a dimension for messages: dimension "past + seq" (axis 1 of input "mask"). */
static const char *describe(const struct ul_dimensions *dimensions, const struct ul_dimension *item)
{
    return ul_arena_printf(dimensions->builder->scratch, "dimension %s (axis %u of input %s)",
                           quote(dimensions, item->name), (unsigned)item->axis,
                           quote(dimensions, item->input));
}

static enum ul_status refuse_value(const struct ul_dimensions *dimensions,
                                   const struct ul_dimension *item, const char *what)
{
    return ul_diag_set(dimensions->builder->diag, UL_USAGE, "%s %s where %s",
                       describe(dimensions, item), what, list_parts(dimensions, item));
}

/* Computes the size of an expression; all names in it have one. */
static enum ul_status compute(struct ul_dimensions *dimensions, struct ul_dimension *item,
                              const int64_t *sizes, bool *changed)
{
    int64_t size;
    if (!ul_expression_size(item->expression, sizes, &size))
        return refuse_value(dimensions, item, "is no whole number in range");
    if (size < 0 || size > UL_LIMIT_DIM)
        return refuse_value(dimensions, item,
                            size < 0 ? "is below 0" : "is larger than a dimension may be");
    if (item->size >= 0 && dimensions->builder->options->takes_any_size)
        return UL_OK;
    if (item->size >= 0 && item->size != size)
        return ul_diag_set(dimensions->builder->diag, UL_USAGE,
                           "%s is %lld, but %s: that makes it %lld; leave one of them out",
                           describe(dimensions, item), (long long)item->size,
                           list_parts(dimensions, item), (long long)size);
    *changed = *changed || item->size < 0;
    item->size = size;
    return UL_OK;
}

/* Computes the one name in the expression that has no size, if the expression has one. */
static enum ul_status solve(struct ul_dimensions *dimensions, const struct ul_dimension *item,
                            const int64_t *sizes, uint32_t unknown, bool *changed)
{
    int64_t size;
    struct ul_dimension *part = &dimensions->items[item->parts[unknown]];
    if (item->size < 0 || !ul_expression_solve(item->expression, sizes, unknown, item->size, &size))
        return UL_OK;
    if (size < 0 || size > UL_LIMIT_DIM) {
        const char *others = list_parts(dimensions, item);
        return ul_diag_set(dimensions->builder->diag, UL_USAGE,
                           "%s cannot be %lld: no size of %s makes it that%s%s",
                           describe(dimensions, item), (long long)item->size,
                           quote(dimensions, part->name), others[0] == '\0' ? "" : " where ",
                           others);
    }
    part->size = size;
    *changed = true;
    return UL_OK;
}

static enum ul_status settle(struct ul_dimensions *dimensions, struct ul_dimension *item,
                             bool *changed)
{
    uint32_t count = ul_expression_name_count(item->expression), open_count = 0, open = 0;
    int64_t *sizes = UL_NEW_ARRAY(dimensions->builder->scratch, int64_t, count);
    for (uint32_t i = 0; i < count; i++) {
        sizes[i] = dimensions->items[item->parts[i]].size;
        if (sizes[i] < 0) {
            open = i;
            open_count++;
        }
    }
    if (open_count == 0)
        return compute(dimensions, item, sizes, changed);
    return open_count == 1 ? solve(dimensions, item, sizes, open, changed) : UL_OK;
}

enum ul_status ul_dimensions_settle(struct ul_dimensions *dimensions)
{
    bool changed = true;
    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < dimensions->count; i++) {
            if (dimensions->items[i].expression != NULL)
                UL_TRY(settle(dimensions, &dimensions->items[i], &changed));
        }
    }
    return UL_OK;
}

/* ---- Messages ---- */

const char *ul_dimensions_list(const struct ul_dimensions *dimensions)
{
    struct ul_text text;
    ul_text_init(&text, dimensions->builder->scratch);
    for (uint32_t i = 0; i < dimensions->count; i++)
        ul_text_printf(&text, "%s %s", i == 0 ? "" : ",",
                       quote(dimensions, dimensions->items[i].name));
    return dimensions->count == 0 ? " none" : text.data;
}

/* Whether to ask for the names in an expression rather than for its own size: where one of them is
 * asked for anyway, or where it is the only one. */
static bool asks_for_parts(const struct ul_dimensions *dimensions, const struct ul_dimension *item)
{
    uint32_t count = ul_expression_name_count(item->expression);
    bool asks = count == 1;
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_dimension *part = &dimensions->items[item->parts[i]];
        asks = asks || part->input != NULL || part->use_count > 1;
    }
    return asks && item->size < 0;
}

static void put_flag(struct ul_dimensions *dimensions, const struct ul_dimension *item,
                     struct ul_text *text)
{
    if (item->size >= 0 || !ul_names_add(&dimensions->hinted, item->name, 0))
        return;
    ul_text_put(text, text->length == 0 ? "--dim " : " --dim ");
    ul_text_put(text, ul_word_quote(text->arena, item->name));
    ul_text_put(text, "=SIZE");
}

const char *ul_dimensions_ask(struct ul_dimensions *dimensions, const char *name)
{
    const struct ul_dimension *item = &dimensions->items[ul_dimensions_find(dimensions, name)];
    struct ul_text text;
    ul_text_init(&text, dimensions->builder->scratch);
    if (item->expression == NULL || !asks_for_parts(dimensions, item)) {
        put_flag(dimensions, item, &text);
        return text.data;
    }
    for (uint32_t i = 0; i < ul_expression_name_count(item->expression); i++)
        put_flag(dimensions, &dimensions->items[item->parts[i]], &text);
    return text.data;
}

void ul_dimensions_describe(const struct ul_dimensions *dimensions)
{
    struct ul_arena *arena = dimensions->builder->graph->arena;
    struct ul_onnx_model *model = dimensions->builder->model;
    struct ul_model_dimension *rows =
        UL_NEW_ARRAY(arena, struct ul_model_dimension, dimensions->count);
    for (uint32_t i = 0; i < dimensions->count; i++) {
        const struct ul_dimension *item = &dimensions->items[i];
        uint32_t count = item->expression == NULL ? 0 : ul_expression_name_count(item->expression);
        const char **names = UL_NEW_ARRAY(arena, const char *, count);
        for (uint32_t k = 0; k < count; k++)
            names[k] = ul_arena_copy_string(arena, ul_expression_name(item->expression, k));
        rows[i] = (struct ul_model_dimension){.name = ul_arena_copy_string(arena, item->name),
                                              .size = item->size,
                                              .name_count = count,
                                              .names = names};
    }
    model->dimension_count = dimensions->count;
    model->dimensions = rows;
}
