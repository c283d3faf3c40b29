/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a plan.json by the rows of facts.def: every value is checked against its type, range and
 * names. A key that the rows do not know is ignored. */
#include "report/json_in.h"

#include <string.h>

/* so that sums and differences do not overflow */
static const uint64_t MAX_NUMBER = (uint64_t)1 << 60;

/* The place of a value, for messages. */
struct where {
    struct ul_json_reader *json;
    const char *list;     /* "\"remedies\": ", or "" */
    const char *size_key; /* the name of "size" there, or NULL */
};

enum ul_status ul_json_parse(struct ul_json_reader *json, const char *text, size_t length)
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

/* ---- One value ---- */

/* NULL, or what is wrong with the value, as the end of a sentence: "is no string". */
static const char *take_number(const json_t *item, uint64_t max, uint64_t *out)
{
    if (!json_is_integer(item) || json_integer_value(item) < 0 ||
        (uint64_t)json_integer_value(item) > max)
        return "no whole number, or out of range";
    *out = (uint64_t)json_integer_value(item);
    return NULL;
}

static const char *take_index(const json_t *item, uint32_t *out)
{
    uint64_t number = 0;
    const char *wrong = take_number(item, UINT32_MAX - 1, &number);
    *out = (uint32_t)number;
    return wrong;
}

static const char *take_change(const json_t *item, int64_t *out)
{
    json_int_t max = (json_int_t)MAX_NUMBER;
    *out = json_integer_value(item);
    return json_is_integer(item) && *out <= max && *out >= -max
               ? NULL
               : "no whole number, or out of range";
}

/* Finds which of the names it is. */
static const char *take_name(struct ul_json_reader *json, const struct ul_fact *fact,
                             const json_t *item, uint32_t *out)
{
    UL_ASSERT(fact->names != NULL);
    const char *text = json_string_value(item);
    for (*out = 0; text != NULL && *out < fact->names->count; ++*out)
        if (strcmp(text, fact->names->name(*out)) == 0)
            return NULL;
    return ul_arena_printf(json->arena, "no %s: %s", fact->key,
                           text != NULL ? ul_quote(json->arena, text) : "no text");
}

static const char *take_text(struct ul_json_reader *json, const struct ul_fact *fact,
                             const json_t *item, const char **out)
{
    uint32_t name;
    *out = "";
    if (fact->type == UL_FACT_LINE && json_is_null(item))
        return NULL;
    if (!json_is_string(item))
        return "no string";
    *out = ul_arena_copy_string(json->arena, json_string_value(item));
    return fact->type == UL_FACT_NAME ? take_name(json, fact, item, &name) : NULL;
}

static const char *take_indexes(struct ul_json_reader *json, const json_t *item,
                                const uint32_t **out, uint32_t *count)
{
    if (!json_is_array(item) || json_array_size(item) >= UINT32_MAX)
        return "no list";
    uint32_t *indexes = UL_NEW_ARRAY(json->arena, uint32_t, json_array_size(item) + 1);
    *out = indexes;
    *count = (uint32_t)json_array_size(item);
    for (uint32_t i = 0; i < *count; i++)
        if (take_index(json_array_get(item, i), &indexes[i]) != NULL)
            return "no list of whole numbers";
    return NULL;
}

static const char *take_value(struct ul_json_reader *json, const struct ul_fact *fact,
                              const json_t *item, char *object)
{
    void *place = object + fact->place;
    switch ((int)fact->type) {
    case UL_FACT_FLAG:
        *(bool *)place = json_is_true(item);
        return json_is_boolean(item) ? NULL : "neither true nor false";
    case UL_FACT_CHANGE:
        return take_change(item, place);
    case UL_FACT_RATIO:
        *(double *)place = json_number_value(item);
        return json_is_number(item) ? NULL : "no number";
    case UL_FACT_TEXT:
    case UL_FACT_LINE:
    case UL_FACT_NAME:
        return take_text(json, fact, item, place);
    case UL_FACT_CLASS:
    case UL_FACT_KIND:
        return take_name(json, fact, item, place);
    case UL_FACT_INDEXES:
        return take_indexes(json, item, place, (uint32_t *)(void *)(object + fact->count_place));
    case UL_FACT_INDEX:
        return take_index(item, place);
    case UL_FACT_REFERENCE:
        *(uint32_t *)place = UL_PLAN_NONE;
        return json_is_null(item) ? NULL : take_index(item, place);
    default:
        return take_number(item, MAX_NUMBER, place);
    }
}

/* ---- Objects, lists, tables ---- */

static enum ul_status fail(const struct where *where, const struct ul_fact *fact, const char *wrong)
{
    return ul_diag_set(where->json->diag, UL_INVALID, "%s\"%s\" is missing, or %s", where->list,
                       ul_fact_key(fact, where->size_key), wrong);
}

static enum ul_status read_sums(const struct where *where, const struct ul_fact *fact,
                                const json_t *item, uint64_t *sums)
{
    if (item != NULL && !json_is_object(item))
        return fail(where, fact, "no object");
    for (uint32_t i = 0; i < fact->names->count; i++) {
        const json_t *sum = json_object_get(item, fact->names->name(i));
        bool may_miss = fact->names->is_sparse && sum == NULL;
        const char *wrong = may_miss ? NULL : take_number(sum, MAX_NUMBER, &sums[i]);
        if (wrong != NULL)
            return ul_diag_set(where->json->diag, UL_INVALID, "\"%s\": \"%s\" is missing, or %s",
                               fact->key, fact->names->name(i), wrong);
    }
    return UL_OK;
}

/* A text that is not a name, or a name that appears twice, sets the bit above those of the
 * names. */
static enum ul_status read_set(const struct where *where, const struct ul_fact *fact,
                               const json_t *item, uint32_t *set)
{
    uint32_t name = 0;
    *set = 0;
    for (size_t i = 0; i < json_array_size(item); i++) {
        bool is_known = take_name(where->json, fact, json_array_get(item, i), &name) == NULL;
        *set |= 1u << (is_known && (*set >> name & 1) == 0 ? name : fact->names->count);
    }
    return json_is_array(item) ? UL_OK : fail(where, fact, "no list");
}

static enum ul_status read_pairs(const struct where *where, const json_t *list,
                                 const struct ul_report_option **out, uint32_t *option_count)
{
    struct ul_json_reader *json = where->json;
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count >= UINT32_MAX)
        return ul_diag_set(json->diag, UL_INVALID, "\"options\" is missing or no list");
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

/* Reads a column of a table: an entry for each of its records. */
static enum ul_status read_column(const struct where *where, const struct ul_fact *table,
                                  const struct ul_fact *fact, const json_t *item, char *records,
                                  uint32_t count)
{
    struct ul_json_reader *json = where->json;
    const json_t *names = json_object_get(json_object_get(json->root, table->key), "name");
    const json_t *column = json_object_get(item, fact->key);
    if (!json_is_array(column))
        return ul_diag_set(json->diag, UL_INVALID, "\"%s\": \"%s\" is missing or no list",
                           table->key, fact->key);
    if (json_array_size(column) != count)
        return ul_diag_set(json->diag, UL_INVALID,
                           "\"%s\": \"%s\" has %zu entries, other columns have %u", table->key,
                           fact->key, json_array_size(column), count);
    for (uint32_t i = 0; i < count; i++) {
        const char *wrong = take_value(json, fact, json_array_get(column, i),
                                       records + i * table->class()->size_bytes);
        const char *name = json_string_value(json_array_get(names, i));
        if (wrong != NULL)
            return ul_diag_set(
                json->diag, UL_INVALID, "\"%s\": entry %u of \"%s\"%s is %s", table->key, i,
                fact->key,
                name != NULL ? ul_arena_printf(json->arena, ", of %s,", ul_quote(json->arena, name))
                             : "",
                wrong);
    }
    return UL_OK;
}

/* Whether the fact must be there. */
static bool is_needed(const struct ul_fact_class *class, uint32_t index, const json_t *object)
{
    uint32_t first = index;
    for (; class->facts[first].when >= UL_FACT_TOO; first--)
        UL_ASSERT(first > 0);
    return class->facts[index].when == UL_FACT_NEED ||
           (class->facts[index].when == UL_FACT_TOO &&
            json_object_get(object, class->facts[first].key) != NULL);
}

/* Clears a missing fact; a missing text is an empty one. */
static void clear(const struct ul_fact *fact, char *object)
{
    bool is_object = fact->type == UL_FACT_OBJECT || fact->type == UL_FACT_BLOCK;
    if (fact->type >= UL_FACT_TEXT && fact->type <= UL_FACT_NAME)
        *(const char **)(void *)(object + fact->place) = "";
    for (uint32_t i = 0; is_object && i < fact->class()->count; i++)
        clear(&fact->class()->facts[i], object + fact->place);
}

/* Makes room for as many records as the list has entries; false where it is no list. */
static bool make_room(struct ul_json_reader *json, const struct ul_fact_class *class,
                      const json_t *list, char **records, uint32_t *count)
{
    *count = (uint32_t)json_array_size(list);
    *records = ul_arena_alloc(json->arena, ul_size_mul_or_die(*count, class->size_bytes));
    return json_is_array(list) && json_array_size(list) < UINT32_MAX;
}

static enum ul_status read_table(const struct where *where, const struct ul_fact *fact,
                                 const json_t *item, char **records, uint32_t *count)
{
    const struct ul_fact_class *class = fact->class();
    const json_t *first = json_object_get(item, class->facts[0].key);
    if (!make_room(where->json, class, first, records, count))
        return ul_diag_set(where->json->diag, UL_INVALID, "\"%s\": \"%s\" is missing or no list",
                           fact->key, class->facts[0].key);
    for (uint32_t c = 0; c < class->count; c++) {
        if (is_needed(class, c, item) || json_object_get(item, class->facts[c].key) != NULL)
            UL_TRY(read_column(where, fact, &class->facts[c], item, *records, *count));
        else
            for (uint32_t i = 0; i < *count; i++)
                clear(&class->facts[c], *records + i * class->size_bytes);
    }
    return UL_OK;
}

static enum ul_status read_object(const struct where *where, const struct ul_fact_class *class,
                                  const json_t *object, char *out);

static enum ul_status read_list(const struct where *where, const struct ul_fact *fact,
                                const json_t *item, char **records, uint32_t *count)
{
    const struct ul_fact_class *class = fact->class();
    struct where inner = *where;
    if (!make_room(where->json, class, item, records, count))
        return fail(where, fact, "no list");
    for (uint32_t i = 0; i < *count; i++) {
        inner.list =
            ul_arena_printf(where->json->arena, "%s\"%s\", entry %u: ", where->list, fact->key, i);
        UL_TRY(
            read_object(&inner, class, json_array_get(item, i), *records + i * class->size_bytes));
    }
    return UL_OK;
}

static enum ul_status read_inner(const struct where *where, const struct ul_fact *fact,
                                 const json_t *item, char *out)
{
    struct where inner = *where;
    if (!json_is_object(item))
        return fail(where, fact, "no object");
    inner.list = ul_arena_printf(where->json->arena, "\"%s\": ", fact->key);
    inner.size_key = fact->size_key;
    return read_object(&inner, fact->class(), item, out);
}

static enum ul_status read_member(const struct where *where, const struct ul_fact *fact,
                                  const json_t *item, char *object)
{
    void *place = object + fact->place;
    uint32_t *count = (uint32_t *)(void *)(object + fact->count_place);
    const char *wrong = NULL;
    if (fact->type >= UL_FACT_PAIRS)
        *(bool *)(object + fact->flag_place) = true;
    switch ((int)fact->type) {
    case UL_FACT_PAIRS:
        return read_pairs(where, item, place, count);
    case UL_FACT_SET:
        return read_set(where, fact, item, place);
    case UL_FACT_SUMS:
    case UL_FACT_SUMS_BLOCK:
        return read_sums(where, fact, item, place);
    case UL_FACT_OBJECT:
    case UL_FACT_BLOCK:
        return read_inner(where, fact, item, place);
    case UL_FACT_LIST:
    case UL_FACT_ROWS:
        return read_list(where, fact, item, place, count);
    case UL_FACT_TABLE:
        return read_table(where, fact, item, place, count);
    default:
        wrong = take_value(where->json, fact, item, object);
        return wrong == NULL ? UL_OK : fail(where, fact, wrong);
    }
}

static enum ul_status read_object(const struct where *where, const struct ul_fact_class *class,
                                  const json_t *object, char *out)
{
    for (uint32_t i = 0; i < class->count; i++) {
        const struct ul_fact *fact = &class->facts[i];
        const json_t *item = json_object_get(object, ul_fact_key(fact, where->size_key));
        if (item != NULL || is_needed(class, i, object))
            UL_TRY(read_member(where, fact, item, out));
        else
            clear(fact, out);
    }
    return UL_OK;
}

enum ul_status ul_facts_read(struct ul_json_reader *json, struct ul_saved *saved)
{
    struct where where = {.json = json, .list = ""};
    *saved = (struct ul_saved){.process_bytes = UINT64_MAX}; /* an older plan does not say */
    return read_object(&where, ul_class_plan(), json->root, (char *)saved);
}

enum ul_status ul_facts_read_text(struct ul_arena *arena, const char *text, size_t length,
                                  struct ul_saved *saved, struct ul_diag *diag)
{
    struct ul_json_reader json = {.arena = arena, .diag = diag};
    enum ul_status status = ul_json_parse(&json, text, length);
    if (status == UL_OK)
        status = ul_facts_read(&json, saved);
    json_decref(json.root);
    return status;
}
