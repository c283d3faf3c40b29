/* SPDX-License-Identifier: Apache-2.0 */
/* The plan as data for the script: columns, with frequent texts once, in a pool. It has no '<', so
 * that nothing in a name ends the block. */
#include "report/html/html.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Writes a readable string as JSON, with '<', '>' and '&' as escapes. */
static void put_string(struct ul_page *page, const char *string)
{
    struct ul_text quoted;
    ul_text_init(&quoted, page->arena);
    ul_text_put_json(&quoted, ul_shown(page->arena, string));
    for (const char *at = quoted.data; *at != '\0';) {
        size_t plain = strcspn(at, "<>&");
        ul_text_put_bytes(page->text, at, plain);
        at += plain;
        if (*at != '\0')
            ul_page_printf(page, "\\u%04x", (unsigned)*at++);
    }
}

struct entry {
    const char *string;
    uint32_t index;
};

static int by_string(const void *a, const void *b)
{
    const struct entry *first = a, *second = b;
    int order = strcmp(first->string, second->string);
    if (order != 0)
        return order;
    return first->index < second->index ? -1 : first->index > second->index;
}

/* "key": {"texts": [...], "at": [...]} */
static void put_pool(struct ul_page *page, const char *key, const char *const *strings,
                     uint32_t count)
{
    struct entry *entries = UL_NEW_ARRAY(page->arena, struct entry, count);
    uint32_t *at = UL_NEW_ARRAY(page->arena, uint32_t, count), texts = 0;
    for (uint32_t i = 0; i < count; i++)
        entries[i] = (struct entry){.string = strings[i], .index = i};
    if (count > 0)
        qsort(entries, count, sizeof *entries, by_string);
    ul_page_printf(page, "\"%s\":{\"texts\":[", key);
    for (uint32_t i = 0; i < count; i++) {
        if (i == 0 || strcmp(entries[i].string, entries[i - 1].string) != 0) {
            ul_page_put(page, texts > 0 ? "," : "");
            put_string(page, entries[i].string);
            texts++;
        }
        at[entries[i].index] = texts - 1;
    }
    ul_page_put(page, "],\"at\":[");
    for (uint32_t i = 0; i < count; i++)
        ul_page_printf(page, i > 0 ? ",%" PRIu32 : "%" PRIu32, at[i]);
    ul_page_put(page, "]}");
}

static void put_steps(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    const char **columns[3];
    static const char *const keys[3] = {"node", "op", "source"};
    for (uint32_t k = 0; k < 3; k++)
        columns[k] = UL_NEW_ARRAY(page->arena, const char *, saved->step_count);
    for (uint32_t i = 0; i < saved->step_count; i++) {
        columns[0][i] = saved->steps[i].node;
        columns[1][i] = saved->steps[i].op;
        columns[2][i] = saved->steps[i].source;
    }
    ul_page_put(page, "\"steps\":{");
    for (uint32_t k = 0; k < 3; k++) {
        ul_page_put(page, k > 0 ? ",\n" : "");
        put_pool(page, keys[k], columns[k], saved->step_count);
    }
    ul_page_put(page, "},\n");
}

enum column { CLASS, SPACE, COPY, ALIAS, OFFSET, SIZE, BEGIN, END, COLUMN_COUNT };

static uint64_t number_at(const struct ul_saved_range *range, enum column column)
{
    const uint64_t numbers[COLUMN_COUNT] = {
        [CLASS] = range->class,         [SPACE] = range->space,
        [COPY] = range->copy,           [ALIAS] = range->alias,
        [OFFSET] = range->offset_bytes, [SIZE] = range->size_bytes,
        [BEGIN] = range->begin,         [END] = range->end};
    return numbers[column];
}

static void put_numbers(struct ul_page *page)
{
    static const char *const keys[COLUMN_COUNT] = {"class",  "space", "copy",  "alias",
                                                   "offset", "size",  "begin", "end"};
    const struct ul_saved *saved = page->saved;
    for (uint32_t c = 0; c < COLUMN_COUNT; c++) {
        ul_page_printf(page, ",\n\"%s\":[", keys[c]);
        for (uint32_t i = 0; i < saved->range_count; i++) {
            uint64_t number = number_at(&saved->ranges[i], (enum column)c);
            if (c == ALIAS && number == UL_PLAN_NONE)
                ul_page_put(page, i > 0 ? ",-1" : "-1");
            else
                ul_page_printf(page, i > 0 ? ",%" PRIu64 : "%" PRIu64, number);
        }
        ul_page_put(page, "]");
    }
}

static void put_ranges(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    const char **names = UL_NEW_ARRAY(page->arena, const char *, saved->range_count);
    const char **types = UL_NEW_ARRAY(page->arena, const char *, saved->range_count);
    for (uint32_t i = 0; i < saved->range_count; i++) {
        names[i] = ul_saved_range_name(saved, page->arena, i);
        types[i] = saved->ranges[i].type;
    }
    ul_page_put(page, "\"ranges\":{");
    put_pool(page, "name", names, saved->range_count);
    ul_page_put(page, ",\n");
    put_pool(page, "type", types, saved->range_count);
    put_numbers(page);
    ul_page_put(page, ",\n\"readers\":[");
    for (uint32_t i = 0; i < saved->range_count; i++) {
        const struct ul_saved_range *range = &saved->ranges[i];
        ul_page_put(page, i > 0 ? ",[" : "[");
        for (uint32_t r = 0; r < range->readers_count; r++)
            ul_page_printf(page, r > 0 ? ",%" PRIu32 : "%" PRIu32, range->readers[r]);
        ul_page_put(page, "]");
    }
    ul_page_put(page, "]}");
}

void ul_page_data(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    ul_page_printf(
        page,
        "<script type=\"application/json\" id=\"plan\">{\"unit\":\"%s\",\"unit_bytes\":%.0f,"
        "\"reserved\":%" PRIu64 ",\"top\":%" PRIu64 ",\"alignment\":%" PRIu64 ",\"peak\":%" PRIu32
        ",\"length\":%" PRIu32 ",\"classes\":[",
        page->unit.name, page->unit.bytes, saved->reserved_bytes, page->top_bytes,
        saved->alignment_bytes, saved->peak_step, page->length);
    for (uint32_t c = 0; c < UL_SAVED_CURVES; c++)
        ul_page_printf(page, "%s\"%s\"", c > 0 ? "," : "", ul_page_label(page, c));
    ul_page_put(page, "],\"given\":[");
    for (uint32_t c = 0; c < UL_PLAN_CLASS_COUNT; c++) {
        const struct ul_saved_range range = {.class = (enum ul_plan_class)c};
        ul_page_printf(page, "%s%d", c > 0 ? "," : "", ul_saved_maker(saved, &range) == NULL);
    }
    ul_page_put(page, "],\n");
    put_steps(page);
    put_ranges(page);
    ul_page_put(page, "}</script>\n");
}
