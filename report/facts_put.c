/* SPDX-License-Identifier: Apache-2.0 */
/* Writes plan.json, and the files of a sweep, by the rows of facts.def. Tables are written as
 * columns, one to a line, so that a diff of two plans is readable. */
#include "report/facts.h"

#include <inttypes.h>
#include <string.h>

/* Objects and lists on one line, or with a line for each member that begins with this many
 * blanks. */
enum { IN_LINE = 0, TOP = 2, BLOCK = 4 };

static const void *at(const void *base, size_t place)
{
    return (const char *)base + place;
}

static uint64_t number_of(const struct ul_fact *fact, const void *object)
{
    const void *place = at(object, fact->place);
    return fact->type >= UL_FACT_COUNT && fact->type <= UL_FACT_NS ? *(const uint64_t *)place
           : fact->type == UL_FACT_FLAG                            ? *(const bool *)place
                                                                   : *(const uint32_t *)place;
}

/* Whether the fact is neither 0 nor empty. */
static bool says_something(const struct ul_fact *fact, const void *object)
{
    const char *text;
    if (fact->type == UL_FACT_RATIO)
        return *(const double *)at(object, fact->place) != 0;
    if (fact->type >= UL_FACT_PAIRS)
        return *(const bool *)at(object, fact->flag_place);
    if (fact->type < UL_FACT_TEXT || fact->type > UL_FACT_NAME)
        return number_of(fact, object) != 0;
    text = *(const char *const *)at(object, fact->place);
    return text != NULL && text[0] != '\0';
}

/* Whether the fact, or another one of its group, says something in any of the objects. */
static bool is_there(const struct ul_fact_class *class, uint32_t index, const char *objects,
                     uint32_t count)
{
    UL_ASSERT(index < class->count);
    const struct ul_fact *facts = class->facts;
    bool is_said = facts[index].when <= UL_FACT_LATER, is_alone = facts[index].when == UL_FACT_ALSO;
    for (; facts[index].when >= UL_FACT_TOO && !is_alone; index--)
        UL_ASSERT(index > 0); /* the first of a group has a row of its own */
    do {
        for (uint32_t i = 0; i < count && !is_said; i++)
            is_said = says_something(&facts[index], objects + i * class->size_bytes);
        index++;
    } while (!is_alone && index < class->count && facts[index].when >= UL_FACT_TOO);
    return is_said;
}

static void put_indexes(struct ul_text *text, const uint32_t *indexes, uint32_t count)
{
    ul_text_put(text, "[");
    for (uint32_t i = 0; i < count; i++)
        ul_text_printf(text, i == 0 ? "%" PRIu32 : ", %" PRIu32, indexes[i]);
    ul_text_put(text, "]");
}

static void put_texts(struct ul_text *text, const char *const *texts, uint32_t count)
{
    ul_text_put(text, "[");
    for (uint32_t i = 0; i < count; i++) {
        ul_text_put(text, i == 0 ? "" : ", ");
        ul_text_put_json(text, texts[i]);
    }
    ul_text_put(text, "]");
}

static void put_value(struct ul_text *text, const struct ul_fact *fact, const void *object)
{
    const void *place = at(object, fact->place);
    const char *line = NULL;
    switch ((int)fact->type) {
    case UL_FACT_FLAG:
        ul_text_put(text, *(const bool *)place ? "true" : "false");
        return;
    case UL_FACT_CHANGE:
        ul_text_printf(text, "%" PRId64, *(const int64_t *)place);
        return;
    case UL_FACT_RATIO:
        ul_text_printf(text, "%.9g", *(const double *)place);
        return;
    case UL_FACT_INDEXES:
        put_indexes(text, *(const uint32_t *const *)place,
                    *(const uint32_t *)at(object, fact->count_place));
        return;
    case UL_FACT_TEXTS:
        put_texts(text, *(const char *const *const *)place,
                  *(const uint32_t *)at(object, fact->count_place));
        return;
    case UL_FACT_TEXT:
    case UL_FACT_LINE:
    case UL_FACT_NAME:
        line = *(const char *const *)place;
        break;
    case UL_FACT_CLASS:
    case UL_FACT_KIND:
        line = fact->names->name(*(const uint32_t *)place);
        break;
    case UL_FACT_REFERENCE:
        if (*(const uint32_t *)place == UL_PLAN_NONE)
            break;
        /* fall through */
    default:
        ul_text_printf(text, "%" PRIu64, number_of(fact, object));
        return;
    }
    if (line != NULL)
        ul_text_put_json(text, line);
    else
        ul_text_put(text, fact->type == UL_FACT_TEXT ? "\"\"" : "null");
}

/* Writes the separator between two members, or before the first. */
static void put_break(struct ul_text *text, int indent, bool is_first)
{
    if (indent == IN_LINE)
        ul_text_put(text, is_first ? "" : ", ");
    else
        ul_text_printf(text, "%s\n%*s", is_first ? "" : ",", indent, "");
}

static void put_sums(struct ul_text *text, const struct ul_fact *fact, const void *object,
                     int indent)
{
    UL_ASSERT(fact->names != NULL);
    const uint64_t *sums = at(object, fact->place);
    bool is_first = true;
    ul_text_put(text, "{");
    for (uint32_t i = 0; i < fact->names->count; i++) {
        if (sums[i] == 0 && fact->names->is_sparse)
            continue;
        put_break(text, indent, is_first);
        ul_text_printf(text, "\"%s\": %" PRIu64, fact->names->name(i), sums[i]);
        is_first = false;
    }
    ul_text_put(text, indent == IN_LINE ? "}" : "\n  }");
}

static void put_set(struct ul_text *text, const struct ul_fact *fact, const void *object)
{
    UL_ASSERT(fact->names != NULL && fact->names->count <= 32);
    uint32_t set = *(const uint32_t *)at(object, fact->place), shown = 0;
    ul_text_put(text, "[");
    for (uint32_t i = 0; i < fact->names->count; i++)
        if ((set >> i & 1) != 0)
            ul_text_printf(text, "%s\"%s\"", shown++ > 0 ? ", " : "", fact->names->name(i));
    ul_text_put(text, "]");
}

static void put_pairs(struct ul_text *text, const struct ul_fact *fact, const void *object)
{
    const struct ul_report_option *options =
        *(const struct ul_report_option *const *)at(object, fact->place);
    uint32_t count = *(const uint32_t *)at(object, fact->count_place);
    ul_text_put(text, "[");
    for (uint32_t i = 0; i < count; i++) {
        ul_text_put(text, i == 0 ? "[" : ", [");
        ul_text_put_json(text, options[i].name);
        ul_text_put(text, ", ");
        ul_text_put_json(text, options[i].value);
        ul_text_put(text, "]");
    }
    ul_text_put(text, "]");
}

static void put_table(struct ul_text *text, const struct ul_fact_class *class, const char *records,
                      uint32_t count)
{
    bool is_first = true;
    ul_text_put(text, "{");
    for (uint32_t c = 0; c < class->count; c++) {
        if (!is_there(class, c, records, count))
            continue;
        put_break(text, BLOCK, is_first);
        ul_text_printf(text, "\"%s\": [", class->facts[c].key);
        for (uint32_t i = 0; i < count; i++) {
            ul_text_put(text, i == 0 ? "" : ", ");
            put_value(text, &class->facts[c], records + i * class->size_bytes);
        }
        ul_text_put(text, "]");
        is_first = false;
    }
    ul_text_put(text, "\n  }");
}

static void put_object(struct ul_text *text, const struct ul_fact_class *class, const void *object,
                       int indent, const char *size_key);

static void put_list(struct ul_text *text, const struct ul_fact *fact, const void *object,
                     const char *size_key)
{
    const char *records = *(const char *const *)at(object, fact->place);
    uint32_t count = *(const uint32_t *)at(object, fact->count_place);
    int indent = fact->type == UL_FACT_ROWS ? BLOCK : IN_LINE;
    ul_text_put(text, "[");
    for (uint32_t i = 0; i < count; i++) {
        put_break(text, indent, i == 0);
        put_object(text, fact->class(), records + i * fact->class()->size_bytes, IN_LINE, size_key);
    }
    ul_text_put(text, indent == IN_LINE || count == 0 ? "]" : "\n  ]");
}

static void put_member(struct ul_text *text, const struct ul_fact *fact, const void *object,
                       const char *size_key)
{
    ul_text_printf(text, "\"%s\": ", ul_fact_key(fact, size_key));
    switch ((int)fact->type) {
    case UL_FACT_PAIRS:
        put_pairs(text, fact, object);
        break;
    case UL_FACT_SET:
        put_set(text, fact, object);
        break;
    case UL_FACT_SUMS:
    case UL_FACT_SUMS_BLOCK:
        put_sums(text, fact, object, fact->type == UL_FACT_SUMS ? IN_LINE : BLOCK);
        break;
    case UL_FACT_OBJECT:
    case UL_FACT_BLOCK:
        put_object(text, fact->class(), at(object, fact->place),
                   fact->type == UL_FACT_OBJECT ? IN_LINE : BLOCK, fact->size_key);
        break;
    case UL_FACT_LIST:
    case UL_FACT_ROWS:
        put_list(text, fact, object, size_key);
        break;
    case UL_FACT_TABLE:
        put_table(text, fact->class(), *(const char *const *)at(object, fact->place),
                  *(const uint32_t *)at(object, fact->count_place));
        break;
    default:
        put_value(text, fact, object);
    }
}

static void put_object(struct ul_text *text, const struct ul_fact_class *class, const void *object,
                       int indent, const char *size_key)
{
    bool is_first = true;
    ul_text_put(text, "{");
    for (uint32_t i = 0; i < class->count; i++) {
        if (!is_there(class, i, object, 1))
            continue;
        put_break(text, indent, is_first);
        put_member(text, &class->facts[i], object, size_key);
        is_first = false;
    }
    ul_text_put(text, indent == BLOCK ? "\n  }" : indent == TOP ? "\n}" : "}");
}

void ul_facts_put(struct ul_text *text, const struct ul_fact_class *class, const void *object)
{
    put_object(text, class, object, TOP, NULL);
    ul_text_put(text, "\n");
}

/* ---- CSV ---- */

static void put_field(struct ul_text *text, const struct ul_fact *fact, const void *object)
{
    const void *place = at(object, fact->place);
    const char *line = "";
    switch ((int)fact->type) {
    case UL_FACT_FLAG:
        ul_text_put(text, *(const bool *)place ? "1" : "0");
        break;
    case UL_FACT_TEXTS:
        ul_text_printf(text, "%" PRIu32, *(const uint32_t *)at(object, fact->count_place));
        break;
    case UL_FACT_CLASS:
        ul_text_put_csv(text, fact->names->name(*(const uint32_t *)place));
        break;
    case UL_FACT_TEXT:
    case UL_FACT_NAME:
        line = *(const char *const *)place;
        ul_text_put_csv(text, line != NULL ? line : "");
        break;
    default:
        put_value(text, fact, object);
    }
}

/* Writes the member with that path: "method.order". */
static void put_path(struct ul_text *text, const struct ul_fact_class *class, const void *object,
                     const char *path)
{
    size_t length = strcspn(path, ".");
    const struct ul_fact *fact =
        ul_fact_find(class, ul_arena_printf(text->arena, "%.*s", (int)length, path));
    UL_ASSERT(fact != NULL);
    if (path[length] == '.')
        put_path(text, fact->class(), at(object, fact->place), path + length + 1);
    else
        put_field(text, fact, object);
}

void ul_facts_put_fields(struct ul_text *text, const struct ul_fact_class *class,
                         const void *object, const char *paths)
{
    for (const char *path = paths; *path != '\0';) {
        size_t length = strcspn(path, ",");
        if (length > 0)
            put_path(text, class, object, ul_arena_printf(text->arena, "%.*s", (int)length, path));
        path += length;
        if (*path == ',') {
            ul_text_put(text, ",");
            path++;
        }
    }
}
