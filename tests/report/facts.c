/* SPDX-License-Identifier: Apache-2.0 */
/* The schemas of plans, ladders and tables, the tables of docs/plan-format.md and
 * python/ullage/_facts.py say what the rows of report/facts.def say.
 *
 *     report_facts [--update] ROOT    --update writes them anew
 */
#include "report/facts.h"
#include "golden_files.h"

#include <string.h>

static bool is_required(const struct ul_fact *fact)
{
    return fact->when == UL_FACT_NEED || fact->when == UL_FACT_LATER;
}

static bool is_text(const struct ul_fact *fact)
{
    return fact->type >= UL_FACT_TEXT && fact->type <= UL_FACT_KIND;
}

/* ---- The schema ---- */

static void put_names(struct ul_text *text, const struct ul_fact_names *names, bool has_null)
{
    ul_text_put(text, "[");
    for (uint32_t i = 0; i < names->count; i++) {
        ul_text_put(text, i > 0 ? ", " : "");
        ul_text_put_json(text, names->name(i));
    }
    ul_text_put(text, has_null ? ", null]" : "]");
}

static void put_required(struct ul_text *text, const struct ul_fact_class *class,
                         const char *size_key)
{
    uint32_t shown = 0;
    ul_text_put(text, "\"required\": [");
    for (uint32_t i = 0; i < class->count; i++) {
        if (!is_required(&class->facts[i]))
            continue;
        ul_text_put(text, shown++ > 0 ? ", " : "");
        ul_text_put_json(text, ul_fact_key(&class->facts[i], size_key));
    }
    ul_text_put(text, "]");
}

/* What one value has to be, or each of a column. */
static void put_value(struct ul_text *text, const struct ul_fact *fact, bool is_column)
{
    bool is_optional = fact->type == UL_FACT_LINE || fact->type == UL_FACT_REFERENCE;
    const char *many = is_column ? "s" : "", *maybe = is_optional ? "optional_" : "";
    if (strcmp(fact->key, "version") == 0) {
        ul_text_put(text, "\"const\": 1");
    } else if (strcmp(fact->key, "model_sha256") == 0) {
        ul_text_put(text, "\"type\": \"string\", \"pattern\": \"^[0-9a-f]{64}$\"");
    } else if (is_text(fact) && fact->names->count > 0) {
        ul_text_put(text,
                    is_column ? "\"type\": \"array\", \"items\": { \"enum\": " : "\"enum\": ");
        put_names(text, fact->names, is_optional);
        ul_text_put(text, is_column ? " }" : "");
    } else if (is_text(fact)) {
        ul_text_printf(text, "\"$ref\": \"#/$defs/%stext%s\"", maybe, many);
    } else if (fact->type == UL_FACT_INDEXES) {
        ul_text_put(text, is_column
                              ? "\"type\": \"array\", \"items\": { \"$ref\": \"#/$defs/counts\" }"
                              : "\"$ref\": \"#/$defs/counts\"");
    } else if (fact->type == UL_FACT_TEXTS) {
        ul_text_put(text, "\"$ref\": \"#/$defs/texts\"");
    } else if (fact->type >= UL_FACT_COUNT && fact->type <= UL_FACT_REFERENCE) {
        ul_text_printf(text, "\"$ref\": \"#/$defs/%scount%s\"", maybe, many);
    } else {
        ul_text_printf(text, "\"type\": \"%s\"",
                       fact->type == UL_FACT_FLAG     ? "boolean"
                       : fact->type == UL_FACT_CHANGE ? "integer"
                                                      : "number");
    }
}

static void put_fact(struct ul_text *text, const struct ul_fact *fact, const char *size_key,
                     int indent, bool is_column);

static void put_members(struct ul_text *text, const struct ul_fact_class *class,
                        const char *size_key, int indent, bool is_table)
{
    ul_text_put(text, "\"type\": \"object\", ");
    put_required(text, class, size_key);
    ul_text_put(text, ", \"additionalProperties\": false, \"properties\": {");
    for (uint32_t i = 0; i < class->count; i++) {
        ul_text_put(text, i > 0 ? ",\n" : "\n");
        put_fact(text, &class->facts[i], size_key, indent, is_table);
    }
    ul_text_printf(text, "\n%*s}", indent - 2, "");
}

static void put_sums(struct ul_text *text, const struct ul_fact *fact)
{
    ul_text_put(text, "\"type\": \"object\", \"required\": ");
    if (fact->names->is_sparse)
        ul_text_put(text, "[]");
    else
        put_names(text, fact->names, false);
    ul_text_put(text, ", \"additionalProperties\": { \"$ref\": \"#/$defs/count\" }");
}

static void put_fact(struct ul_text *text, const struct ul_fact *fact, const char *size_key,
                     int indent, bool is_column)
{
    bool is_list = fact->type == UL_FACT_LIST || fact->type == UL_FACT_ROWS;
    const char *below = fact->size_key != NULL ? fact->size_key : is_list ? size_key : NULL;
    ul_text_printf(text, "%*s\"%s\": { \"description\": ", indent, "", ul_fact_key(fact, size_key));
    ul_text_put_json(text, fact->meaning);
    bool has_entries = fact->type == UL_FACT_ROWS && fact->when == UL_FACT_NEED;
    ul_text_put(text, is_list ? ", \"type\": \"array\", " : ", ");
    ul_text_put(text, has_entries ? "\"minItems\": 1, " : "");
    ul_text_put(text, is_list ? "\"items\": { " : "");
    if (fact->class != NULL) {
        put_members(text, fact->class(), below, indent + 2, fact->type == UL_FACT_TABLE);
    } else if (fact->type == UL_FACT_SUMS || fact->type == UL_FACT_SUMS_BLOCK) {
        put_sums(text, fact);
    } else if (fact->type == UL_FACT_PAIRS) {
        ul_text_put(text, "\"type\": \"array\", \"items\": { \"$ref\": \"#/$defs/texts\", "
                          "\"minItems\": 2, \"maxItems\": 2 }");
    } else if (fact->type == UL_FACT_SET) {
        ul_text_put(text, "\"type\": \"array\", \"items\": { \"enum\": ");
        put_names(text, fact->names, false);
        ul_text_put(text, " }");
    } else {
        put_value(text, fact, is_column);
    }
    ul_text_put(text, is_list ? " } }" : " }");
}

static void put_schema(struct ul_text *text, const struct ul_fact_class *class, const char *title)
{
    ul_text_printf(text,
                   "{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n"
                   "  \"title\": \"%s, version 1\",\n  ",
                   title);
    put_members(text, class, NULL, 4, false);
    ul_text_put(
        text,
        ",\n  \"$defs\": {\n"
        "    \"count\": { \"type\": \"integer\", \"minimum\": 0 },\n"
        "    \"counts\": { \"type\": \"array\", \"items\": { \"$ref\": \"#/$defs/count\" } },\n"
        "    \"optional_counts\": { \"type\": \"array\", \"items\": { \"type\": [\"integer\", "
        "\"null\"], \"minimum\": 0 } },\n"
        "    \"text\": { \"type\": \"string\" },\n"
        "    \"optional_text\": { \"type\": [\"string\", \"null\"] },\n"
        "    \"texts\": { \"type\": \"array\", \"items\": { \"type\": \"string\" } },\n"
        "    \"optional_texts\": { \"type\": \"array\", \"items\": { \"type\": [\"string\", "
        "\"null\"] } }\n  }\n}\n");
}

/* ---- The page ---- */

static const char *type_words(const struct ul_fact *fact)
{
    static const char *const words[] = {[UL_FACT_FLAG] = "true, false",
                                        [UL_FACT_COUNT] = "number",
                                        [UL_FACT_BYTES] = "bytes",
                                        [UL_FACT_NS] = "ns",
                                        [UL_FACT_INDEX] = "number",
                                        [UL_FACT_REFERENCE] = "number, null",
                                        [UL_FACT_CHANGE] = "signed number",
                                        [UL_FACT_RATIO] = "fraction",
                                        [UL_FACT_TEXT] = "text",
                                        [UL_FACT_LINE] = "text, null",
                                        [UL_FACT_NAME] = "text",
                                        [UL_FACT_CLASS] = "text",
                                        [UL_FACT_KIND] = "text",
                                        [UL_FACT_INDEXES] = "list of numbers",
                                        [UL_FACT_TEXTS] = "list of texts",
                                        [UL_FACT_PAIRS] = "list of pairs",
                                        [UL_FACT_SET] = "list of texts",
                                        [UL_FACT_SUMS] = "bytes by name",
                                        [UL_FACT_SUMS_BLOCK] = "bytes by name",
                                        [UL_FACT_OBJECT] = "object",
                                        [UL_FACT_BLOCK] = "object",
                                        [UL_FACT_LIST] = "list of objects",
                                        [UL_FACT_ROWS] = "list of objects",
                                        [UL_FACT_TABLE] = "columns"};
    return words[fact->type];
}

/* "`on`, `off`", where the meaning does not name them all. */
static void put_words(struct ul_text *text, const struct ul_fact *fact)
{
    bool is_named = !(is_text(fact) || fact->type == UL_FACT_SET) || fact->names->count < 2;
    for (uint32_t i = 0; !is_named && i < fact->names->count; i++)
        if (strstr(fact->meaning, ul_arena_printf(text->arena, "`%s`", fact->names->name(i))) ==
            NULL)
            break;
        else
            is_named = i + 1 == fact->names->count;
    for (uint32_t i = 0; !is_named && i < fact->names->count; i++)
        ul_text_printf(text, "%s`%s`", i == 0 ? ": " : ", ", fact->names->name(i));
}

/* "`batch`, `size`, `count`": what size is called in the searches. */
static void put_key(struct ul_text *text, const struct ul_fact *fact, bool is_search)
{
    const struct ul_fact_class *plan = ul_class_plan();
    uint32_t shown = 0;
    for (uint32_t i = 0; i < plan->count && is_search; i++) {
        const struct ul_fact *search = &plan->facts[i];
        if (search->class != NULL && ul_fact_find(search->class(), "planned") != NULL)
            ul_text_printf(text, "%s`%s`", shown++ > 0 ? ", " : "",
                           ul_fact_key(fact, search->size_key));
    }
    if (shown == 0)
        ul_text_printf(text, "`%s`", fact->key);
}

static void put_table(struct ul_text *text, const struct ul_fact_class *class)
{
    static const char *const there[] = {"always", "later", "some", "some", "some"};
    ul_text_put(text, "| key | type | there | what |\n|---|---|---|---|\n");
    for (uint32_t i = 0; i < class->count; i++) {
        const struct ul_fact *fact = &class->facts[i];
        ul_text_put(text, "| ");
        put_key(text, fact, strcmp(fact->key, "size") == 0);
        ul_text_printf(text, " | %s | %s | %s", type_words(fact), there[fact->when], fact->meaning);
        put_words(text, fact);
        ul_text_put(text, " |\n");
    }
}

/* A class that several facts have stands once, at the first, by the names of all. */
static void put_inner(struct ul_text *text, const struct ul_fact_class *class)
{
    for (uint32_t i = 0; i < class->count; i++) {
        const struct ul_fact *fact = &class->facts[i];
        bool is_first = fact->class != NULL;
        for (uint32_t k = 0; k < i && is_first; k++)
            is_first = class->facts[k].class != fact->class;
        if (!is_first)
            continue;
        ul_text_printf(text, "\n### `%s`", fact->key);
        for (uint32_t k = i + 1; k < class->count; k++)
            if (class->facts[k].class == fact->class)
                ul_text_printf(text, ", `%s`", class->facts[k].key);
        ul_text_put(text, "\n\n");
        put_table(text, fact->class());
        put_inner(text, fact->class());
    }
}

/* The page, with what stands between the first table's head and the next section written anew. */
static void put_page(struct ul_text *text, const char *page)
{
    const char *begin = strstr(page, "## plan.json, version 1");
    begin = begin != NULL ? strstr(begin, "| key |") : NULL;
    const char *end = begin != NULL ? strstr(begin, "\n## ") : NULL;
    UL_ASSERT(end != NULL);
    ul_text_put_bytes(text, page, (size_t)(begin - page));
    put_table(text, ul_class_plan());
    put_inner(text, ul_class_plan());
    ul_text_put(text, end);
}

/* ---- Python ---- */

static const char *python_type(enum ul_fact_type type)
{
    if (type == UL_FACT_TABLE || (type >= UL_FACT_SUMS && type <= UL_FACT_BLOCK))
        return "dict";
    if (type >= UL_FACT_INDEXES)
        return "list";
    return type == UL_FACT_FLAG    ? "bool"
           : type == UL_FACT_RATIO ? "float"
           : type >= UL_FACT_TEXT  ? "str"
                                   : "int";
}

static void put_annotations(struct ul_text *text, bool is_needed)
{
    const struct ul_fact_class *plan = ul_class_plan();
    for (uint32_t i = 0; i < plan->count; i++)
        if ((plan->facts[i].when == UL_FACT_NEED) == is_needed)
            ul_text_printf(text, "    %s: %s\n", plan->facts[i].key,
                           python_type(plan->facts[i].type));
}

static void put_python(struct ul_text *text)
{
    ul_text_put(text, "# SPDX-License-Identifier: Apache-2.0\n"
                      "\"\"\"What stands at the top of plan.json, written from report/facts.def by "
                      "report_facts --update.\"\"\"\n\n\n"
                      "class Needed:\n    \"\"\"In every plan.\"\"\"\n\n");
    put_annotations(text, true);
    ul_text_put(text, "\n\nclass Facts(Needed):\n"
                      "    \"\"\"In plans that have something to say of it.\"\"\"\n\n");
    put_annotations(text, false);
}

static void compare_schema(struct golden *golden, const char *name,
                           const struct ul_fact_class *class, const char *title)
{
    struct ul_text schema;
    ul_text_init(&schema, &golden->arena);
    put_schema(&schema, class, title);
    golden_compare(golden, ul_arena_printf(&golden->arena, "%s/report/%s", golden->root, name),
                   schema.data);
}

int main(int argc, char **argv)
{
    struct golden golden;
    struct ul_text page, python;
    if (!golden_init(&golden, argc, argv))
        return 2;
    const char *path = ul_arena_printf(&golden.arena, "%s/docs/plan-format.md", golden.root);
    ul_text_init(&page, &golden.arena);
    ul_text_init(&python, &golden.arena);
    put_python(&python);
    put_page(&page, golden_read(&golden, path));
    golden_compare(&golden, path, page.data);
    compare_schema(&golden, "plan.schema.json", ul_class_plan(), "Ullage plan");
    compare_schema(&golden, "ladder.schema.json", ul_class_ladder(), "Ullage ladder of plans");
    compare_schema(&golden, "table.schema.json", ul_class_table(),
                   "Ullage table of plans under other options");
    golden_compare(&golden,
                   ul_arena_printf(&golden.arena, "%s/python/ullage/_facts.py", golden.root),
                   python.data);
    return golden_done(&golden);
}
