/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of facts.def as tables: the place of each fact in its struct, and the values that it may
 * have. */
#include "report/facts.h"
#include "ir/view.h"
#include "report/report.h"

#include <stddef.h>
#include <string.h>

/* ---- Names ---- */

#define UL_NAMES(set, ...)                                                                         \
    static const char *const set##_texts[] = {__VA_ARGS__};                                        \
    static const char *set##_name(uint32_t index)                                                  \
    {                                                                                              \
        return set##_texts[index];                                                                 \
    }                                                                                              \
    static const struct ul_fact_names set##_names = {                                              \
        .name = set##_name, .count = sizeof set##_texts / sizeof *set##_texts};

UL_NAMES(formats, "ullage-plan")
UL_NAMES(ladder_formats, "ullage-ladder")
UL_NAMES(table_formats, "ullage-table")
UL_NAMES(passes, "forward", "backward")
UL_NAMES(budgets, "process", "arena")
UL_NAMES(owners, "program", "caller", "device")
UL_NAMES(answers, "on", "found", "not found", "off")
UL_NAMES(lacks, "context", "libraries")
UL_NAMES(parts, "buffer", "library", "code", "stacks", "runtime")

static const char *class_name(uint32_t index)
{
    return ul_plan_class_name((enum ul_plan_class)index);
}

static const char *type_name(uint32_t index)
{
    return ul_dtype_get((enum ul_dtype)index)->name;
}

static const char *reason_name(uint32_t index)
{
    return ul_kept_get((enum ul_kept)(index + UL_KEPT_NOT + 1));
}

const char *ul_report_row_name(uint32_t row)
{
    static const char *const others[UL_REPORT_ROW_COUNT - UL_PLAN_CLASS_COUNT] = {
        "alignment", "holes", "unaccounted"};
    UL_ASSERT(row < UL_REPORT_ROW_COUNT);
    return row < UL_PLAN_CLASS_COUNT ? class_name(row) : others[row - UL_PLAN_CLASS_COUNT];
}

const char *ul_saved_part_name(uint32_t part)
{
    return parts_name(part);
}

static const struct ul_fact_names
    any_names = {.count = 0},
    classes_names = {.name = class_name, .count = UL_PLAN_CLASS_COUNT},
    kinds_names = {.name = ul_plan_word, .count = UL_PLAN_WORD_COUNT},
    reasons_names = {.name = reason_name, .count = UL_KEPT_COUNT - UL_KEPT_NOT - 1},
    types_names = {.name = type_name, .count = UL_DTYPE_COUNT, .is_sparse = true},
    rows_names = {.name = ul_report_row_name, .count = UL_REPORT_ROW_COUNT};

/* ---- Rows ---- */

#define UL_PLACE_FLAG(key, of) .names = &of##_names
#define UL_PLACE_COUNT UL_PLACE_FLAG
#define UL_PLACE_BYTES UL_PLACE_FLAG
#define UL_PLACE_NS UL_PLACE_FLAG
#define UL_PLACE_INDEX UL_PLACE_FLAG
#define UL_PLACE_REFERENCE UL_PLACE_FLAG
#define UL_PLACE_CHANGE UL_PLACE_FLAG
#define UL_PLACE_RATIO UL_PLACE_FLAG
#define UL_PLACE_TEXT UL_PLACE_FLAG
#define UL_PLACE_LINE UL_PLACE_FLAG
#define UL_PLACE_NAME UL_PLACE_FLAG
#define UL_PLACE_CLASS UL_PLACE_FLAG
#define UL_PLACE_KIND UL_PLACE_FLAG
#define UL_PLACE_INDEXES(key, of) .count_place = offsetof(own, key##_count)
#define UL_PLACE_TEXTS UL_PLACE_INDEXES
#define UL_PLACE_SET(key, of) UL_PLACE_FLAG(key, of), .flag_place = offsetof(own, has_##key)
#define UL_PLACE_SUMS UL_PLACE_SET
#define UL_PLACE_SUMS_BLOCK UL_PLACE_SET
#define UL_PLACE_PAIRS(key, of) UL_PLACE_SET(key, of), .count_place = offsetof(own, option_count)
#define UL_PLACE_OBJECT(key, of) .flag_place = offsetof(own, has_##key), .class = ul_class_##of
#define UL_PLACE_BLOCK UL_PLACE_OBJECT
#define UL_PLACE_LIST(key, of) UL_PLACE_OBJECT(key, of), .count_place = offsetof(own, of##_count)
#define UL_PLACE_ROWS UL_PLACE_LIST
#define UL_PLACE_TABLE UL_PLACE_LIST

#define UL_CLASS(name, tag)                                                                        \
    const struct ul_fact_class *ul_class_##name(void)                                              \
    {                                                                                              \
        typedef struct tag own;                                                                    \
        static const struct ul_fact facts[] = {
#define UL_CLASS_END                                                                               \
    }                                                                                              \
    ;                                                                                              \
    static const struct ul_fact_class class = {                                                    \
        .size_bytes = sizeof(own), .count = sizeof facts / sizeof *facts, .facts = facts};         \
    return &class;                                                                                 \
    }
#define UL_ROW(type_of, key_of, of, when_of, held_of, meaning_of, ...)                             \
    {.key = #key_of,                                                                               \
     .place = offsetof(own, key_of),                                                               \
     .size_bytes = sizeof((own *)NULL)->key_of,                                                    \
     .type = UL_FACT_##type_of,                                                                    \
     .when = UL_FACT_##when_of,                                                                    \
     .held = UL_FACT_##held_of,                                                                    \
     .meaning = meaning_of,                                                                        \
     UL_PLACE_##type_of(key_of, of),                                                               \
     __VA_ARGS__},
#define UL_FACT_OF(type, key, of, when, held, meaning)                                             \
    UL_ROW(type, key, of, when, held, meaning, .size_key = NULL)
#define UL_PLANNED(tag, type, key, of, when, held, meaning)                                        \
    UL_ROW(type, key, of, when, held, meaning, .planned_place = offsetof(struct tag, key),         \
           .planned_bytes = sizeof((struct tag *)NULL)->key)
#define UL_SEARCH(key, size, when, held, meaning)                                                  \
    UL_ROW(OBJECT, key, search, when, held, meaning, .size_key = size)
#define UL_OTHER(type, name)
#include "report/facts.def"

const struct ul_fact *ul_fact_find(const struct ul_fact_class *class, const char *key)
{
    for (uint32_t i = 0; i < class->count; i++)
        if (strcmp(class->facts[i].key, key) == 0)
            return &class->facts[i];
    return NULL;
}

const char *ul_fact_key(const struct ul_fact *fact, const char *size_key)
{
    return size_key != NULL && strcmp(fact->key, "size") == 0 ? size_key : fact->key;
}

void ul_facts_take(const struct ul_fact_class *class, const void *planned, void *object)
{
    for (uint32_t i = 0; i < class->count; i++) {
        const struct ul_fact *fact = &class->facts[i];
        UL_ASSERT(fact->planned_bytes == 0 || fact->planned_bytes == fact->size_bytes);
        memcpy((char *)object + fact->place, (const char *)planned + fact->planned_place,
               fact->planned_bytes);
    }
}

void ul_facts_give(const struct ul_fact_class *class, const void *object, void *planned)
{
    for (uint32_t i = 0; i < class->count; i++) {
        const struct ul_fact *fact = &class->facts[i];
        char *to = (char *)planned + fact->planned_place;
        UL_ASSERT(fact->planned_bytes == 0 || fact->planned_bytes == fact->size_bytes);
        memcpy(to, (const char *)object + fact->place, fact->planned_bytes);
        if (fact->planned_bytes > 0 && fact->type == UL_FACT_TEXT &&
            **(const char **)(void *)to == '\0')
            *(const char **)(void *)to = NULL;
    }
}
