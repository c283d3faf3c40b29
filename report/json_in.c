/* SPDX-License-Identifier: Apache-2.0 */
/* Typed and bounded values out of a plan.json. */
#include "report/json_in.h"

#include <string.h>

enum ul_status ul_json_parse(struct ul_json *json, const char *text, size_t length)
{
    json_error_t error;
    json->root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (json->root == NULL)
        return ul_diag_set(
            json->diag, UL_INVALID,
            "no JSON (line %d: %s); ullage plan MODEL.onnx --json FILE writes a plan", error.line,
            ul_shown(json->arena, error.text));
    const char *format = json_string_value(json_object_get(json->root, "format"));
    if (format != NULL && strcmp(format, "ullage-shared") == 0)
        return ul_diag_set(json->diag, UL_INVALID,
                           "it holds the plans of several models: give one of them, \"plan\" of an "
                           "entry of \"models\", or plan.json from the folder of compile --shared");
    if (format == NULL || strcmp(format, "ullage-plan") != 0)
        return ul_diag_set(json->diag, UL_INVALID, "\"format\" is not \"ullage-plan\"");
    if (json_integer_value(json_object_get(json->root, "version")) != 1)
        return ul_diag_set(json->diag, UL_UNSUPPORTED,
                           "\"version\" is not 1, the one that this ullage reads");
    return UL_OK;
}

enum ul_status ul_json_string(struct ul_json *json, const json_t *object, const char *key,
                              const char **out)
{
    const char *value = json_string_value(json_object_get(object, key));
    if (value == NULL)
        return ul_diag_set(json->diag, UL_INVALID, "\"%s\" is missing or no string", key);
    *out = ul_arena_copy_string(json->arena, value);
    return UL_OK;
}

/* False where it is no whole number up to `max`. */
static bool number_of(const json_t *item, bool optional, uint64_t max, uint64_t *out)
{
    *out = UL_PLAN_NONE;
    if (optional && json_is_null(item))
        return true;
    if (!json_is_integer(item) || json_integer_value(item) < 0 ||
        (uint64_t)json_integer_value(item) > max)
        return false;
    *out = (uint64_t)json_integer_value(item);
    return true;
}

enum ul_status ul_json_number(struct ul_json *json, const json_t *object, const char *key,
                              uint64_t max, uint64_t *out)
{
    if (number_of(json_object_get(object, key), false, max, out))
        return UL_OK;
    return ul_diag_set(json->diag, UL_INVALID,
                       "\"%s\" is missing, no whole number, or out of range", key);
}

/* What an entry of a table is of, for messages: its name, where it has one. */
static const char *entry_name(struct ul_json *json, const char *table, size_t entry)
{
    const json_t *names = json_object_get(json_object_get(json->root, table), "name");
    const char *name = json_string_value(json_array_get(names, entry));
    return name != NULL ? ul_arena_printf(json->arena, ", of %s,", ul_quote(json->arena, name))
                        : "";
}

enum ul_status ul_json_row(struct ul_json *json, const json_t *rows, uint32_t row, uint64_t max,
                           uint64_t *out)
{
    const char *name = ul_report_row_name(row);
    *out = 0;
    if (ul_report_row_is_optional(row) && json_object_get(rows, name) == NULL)
        return UL_OK;
    return ul_json_number(json, rows, name, max, out);
}

enum ul_status ul_json_column(struct ul_json *json, const char *table, const char *key,
                              bool optional, uint64_t max, uint64_t **out, uint32_t *count,
                              bool first)
{
    const json_t *column = json_object_get(json_object_get(json->root, table), key);
    if (!json_is_array(column) || json_array_size(column) >= UINT32_MAX)
        return ul_diag_set(json->diag, UL_INVALID, "\"%s\": \"%s\" is missing or no list", table,
                           key);
    size_t size = json_array_size(column);
    if (first)
        *count = (uint32_t)size;
    if (size != *count)
        return ul_diag_set(json->diag, UL_INVALID,
                           "\"%s\": \"%s\" has %zu entries, other columns have %u", table, key,
                           size, *count);
    *out = UL_NEW_ARRAY(json->arena, uint64_t, size);
    for (size_t i = 0; i < size; i++) {
        if (!number_of(json_array_get(column, i), optional, max, &(*out)[i]))
            return ul_diag_set(json->diag, UL_INVALID,
                               "\"%s\": entry %zu of \"%s\"%s is no whole number, or out of range",
                               table, i, key, entry_name(json, table, i));
    }
    return UL_OK;
}

enum ul_status ul_json_texts(struct ul_json *json, const char *table, const char *key,
                             const char ***out, uint32_t count)
{
    const json_t *column = json_object_get(json_object_get(json->root, table), key);
    if (!json_is_array(column) || json_array_size(column) != count)
        return ul_diag_set(json->diag, UL_INVALID,
                           "\"%s\": \"%s\" is missing, no list, or not as long as other columns",
                           table, key);
    *out = UL_NEW_ARRAY(json->arena, const char *, count);
    for (uint32_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(column, i);
        if (!json_is_string(item) && !json_is_null(item))
            return ul_diag_set(json->diag, UL_INVALID, "\"%s\": \"%s\" %u is no string", table, key,
                               i);
        (*out)[i] =
            json_is_null(item) ? "" : ul_arena_copy_string(json->arena, json_string_value(item));
    }
    return UL_OK;
}

enum ul_status ul_json_class(struct ul_json *json, const char *name, uint32_t range,
                             enum ul_plan_class *class)
{
    for (uint32_t row = 0; name != NULL && row < UL_PLAN_CLASS_COUNT; row++) {
        *class = (enum ul_plan_class)row;
        if (strcmp(name, ul_report_row_name(row)) == 0)
            return UL_OK;
    }
    return ul_diag_set(
        json->diag, UL_INVALID, "\"ranges\": entry %u of \"class\"%s is no class: %s", range,
        entry_name(json, "ranges", range), name != NULL ? ul_quote(json->arena, name) : "no text");
}

enum ul_status ul_json_options(struct ul_json *json, const struct ul_report_option **out,
                               uint32_t *option_count)
{
    const json_t *list = json_object_get(json->root, "options");
    if (!json_is_array(list))
        return ul_diag_set(json->diag, UL_INVALID, "\"options\" is missing or no list");
    size_t count = json_array_size(list);
    struct ul_report_option *options = UL_NEW_ARRAY(json->arena, struct ul_report_option, count);
    for (size_t i = 0; i < count; i++) {
        const json_t *pair = json_array_get(list, i);
        const char *name = json_string_value(json_array_get(pair, 0));
        const char *value = json_string_value(json_array_get(pair, 1));
        if (json_array_size(pair) != 2 || name == NULL || value == NULL)
            return ul_diag_set(json->diag, UL_INVALID, "\"options\": entry %zu is no pair", i);
        options[i].name = ul_arena_copy_string(json->arena, name);
        options[i].value = ul_arena_copy_string(json->arena, value);
    }
    *out = options;
    *option_count = (uint32_t)count;
    return UL_OK;
}
