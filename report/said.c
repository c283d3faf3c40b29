/* SPDX-License-Identifier: Apache-2.0 */
/* Compares what a plan.json says besides its positions and ranges with the same plan described
 * anew.
 *
 * Problem: nothing computes names, operations, implementations, trained tensors or process bytes
 * from a plan that is read, so a file may claim anything about them. Method: the reader has mapped
 * the plan onto the program of its model, and describes it as `plan` does; each value of the file
 * must equal the one in that description. What a search found, and what was asked for, is not
 * computed (facts.def); the planner's checker has added up bytes, costs and bounds. Unknown keys
 * are ignored, and so are keys that an older plan does not have. */
#include "report/json_in.h"

#include <math.h>
#include <string.h>

/* A value as JSON, short enough for a message. */
static const char *value_text(struct ul_json_reader *json, const json_t *value)
{
    char dumped[80];
    if (json_is_array(value))
        return ul_arena_printf(json->arena, "a list of %zu", json_array_size(value));
    if (json_is_object(value))
        return "an object";
    size_t length = json_dumpb(value, dumped, sizeof dumped, JSON_ENCODE_ANY);
    bool is_long = length > sizeof dumped;
    return ul_shown(json->arena,
                    ul_arena_printf(json->arena, "%.*s%s", (int)(is_long ? sizeof dumped : length),
                                    dumped, is_long ? "..." : ""));
}

struct holder {
    struct ul_json_reader *json;
    const json_t *names; /* names for the entries of the table's columns */
};

static enum ul_status fail(const struct holder *holder, const char *place, size_t entry,
                           const json_t *said, const json_t *own)
{
    struct ul_json_reader *json = holder->json;
    const char *name = json_string_value(json_array_get(holder->names, entry));
    const char *where = entry == SIZE_MAX ? "" : ul_arena_printf(json->arena, ", entry %zu", entry);
    if (name != NULL)
        where = ul_arena_printf(json->arena, "%s, of %s,", where, ul_quote(json->arena, name));
    if (own == NULL)
        return ul_diag_set(json->diag, UL_MISMATCH, "\"%s\"%s is said of a plan that has none",
                           place, where);
    return ul_diag_set(json->diag, UL_MISMATCH,
                       "\"%s\"%s is %s; by the model and the rest of the plan it is %s", place,
                       where, value_text(json, said), value_text(json, own));
}

static bool is_same(const json_t *said, const json_t *own)
{
    double other = json_number_value(own);
    if (json_is_real(own))
        return json_is_number(said) &&
               fabs(json_number_value(said) - other) <= 1e-8 * (1 + fabs(other));
    return json_equal(said, own) != 0;
}

static enum ul_status hold_list(const struct holder *holder, const char *place, const json_t *said,
                                const json_t *own)
{
    for (size_t i = 0; i < json_array_size(said); i++)
        if (!is_same(json_array_get(said, i), json_array_get(own, i)))
            return fail(holder, place, i, json_array_get(said, i), json_array_get(own, i));
    return UL_OK;
}

/* Compares the values of objects and the entries of lists one by one, and a list in a list as a
 * whole. `fact` describes the place, whose members are facts, or a number for each name. */
static enum ul_status hold(const struct holder *holder, const struct ul_fact *fact,
                           const char *place, const json_t *said, const json_t *own)
{
    const char *key;
    const json_t *item;
    if (json_is_array(said) && json_is_array(own) && json_array_size(said) == json_array_size(own))
        return hold_list(holder, place, said, own);
    if (!json_is_object(said) || !json_is_object(own))
        return is_same(said, own) ? UL_OK : fail(holder, place, SIZE_MAX, said, own);
    struct holder inner = {.json = holder->json, .names = json_object_get(own, "name")};
    const struct ul_fact_class *class = fact == NULL          ? ul_class_plan()
                                        : fact->class != NULL ? fact->class()
                                                              : NULL;
    json_object_foreach((json_t *)(uintptr_t)said, key, item)
    {
        const char *below =
            fact == NULL ? key : ul_arena_printf(holder->json->arena, "%s.%s", place, key);
        const struct ul_fact *member = class != NULL ? ul_fact_find(class, key) : fact;
        const json_t *other = json_object_get(own, key);
        if (member == NULL || (member->held & (UL_FACT_WORD | UL_FACT_GIVEN | UL_FACT_HELD)) != 0)
            continue;
        if (other == NULL)
            return fail(holder, below, SIZE_MAX, item, NULL);
        UL_TRY(hold(&inner, member, below, item, other));
    }
    return UL_OK;
}

/* Lists the plan's keys of that kind, including columns of tables: "proven, method". */
static void list_places(const struct ul_fact_class *class, const char *prefix, const json_t *object,
                        enum ul_fact_held kind, struct ul_text *list)
{
    for (uint32_t i = 0; i < class->count; i++) {
        const struct ul_fact *fact = &class->facts[i];
        const json_t *item = json_object_get(object, fact->key);
        if (item != NULL && (fact->held & kind) != 0)
            ul_text_printf(list, "%s%s%s", list->length == 0 ? "" : ", ", prefix, fact->key);
        if (item != NULL && fact->type == UL_FACT_TABLE)
            list_places(fact->class(), ul_arena_printf(list->arena, "%s.", fact->key), item, kind,
                        list);
    }
}

static const char *places(const struct ul_json_reader *file, enum ul_fact_held kind)
{
    struct ul_text list;
    ul_text_init(&list, file->arena);
    list_places(ul_class_plan(), "", file->root, kind, &list);
    return list.data;
}

enum ul_status ul_report_check_said(struct ul_arena *arena, const char *said, size_t said_length,
                                    const struct ul_text *own, uint64_t sample_count,
                                    struct ul_report_words *words, struct ul_diag *diag)
{
    struct ul_json_reader file = {.arena = arena, .diag = diag}, fresh = file;
    enum ul_status status = ul_json_parse(&file, said, said_length);
    if (status == UL_OK)
        status = ul_json_parse(&fresh, own->data, own->length);
    if (status == UL_OK)
        status = hold(&(struct holder){.json = &file}, NULL, "", file.root, fresh.root);
    if (status == UL_OK)
        status = ul_report_check_words(&file, sample_count);
    *words = (struct ul_report_words){.planners = places(&file, UL_FACT_WORD),
                                      .given = places(&file, UL_FACT_GIVEN),
                                      .chosen = places(&file, UL_FACT_CHOICE)};
    json_decref(file.root);
    json_decref(fresh.root);
    return status;
}
