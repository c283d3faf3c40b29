/* SPDX-License-Identifier: Apache-2.0 */
/* Two plans side by side.
 *
 * Values with the same name are one value; scratch has the name of its step's node. The peaks
 * differ in values that grew, shrank, came or went. With alignment, holes and bytes of alias
 * chains, these changes add up to the change of the reserved bytes. */
#include "report/saved.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { TOP_VALUES = 12, MARGIN = 26 };

/* ---- Live values at a peak, by name ---- */

struct entry {
    const char *name;
    const struct ul_saved_step *maker; /* NULL: an input or weight */
    uint64_t size_bytes;
};

static int by_name(const void *a, const void *b)
{
    const struct entry *first = a, *second = b;
    int order = strcmp(first->name, second->name);
    if (order != 0)
        return order;
    return first->size_bytes < second->size_bytes   ? 1
           : first->size_bytes > second->size_bytes ? -1
                                                    : 0;
}

/* Sorted by name, with one entry for each name. */
static struct entry *list_peak(struct ul_arena *arena, const struct ul_saved *saved,
                               uint32_t *count)
{
    uint32_t *alive, all = ul_saved_alive(saved, arena, &alive);
    struct entry *entries = UL_NEW_ARRAY(arena, struct entry, all);
    for (uint32_t i = 0; i < all; i++) {
        const struct ul_saved_range *range = &saved->ranges[alive[i]];
        entries[i] = (struct entry){.name = ul_saved_range_name(saved, arena, alive[i]),
                                    .maker = ul_saved_maker(saved, range),
                                    .size_bytes = range->size_bytes};
    }
    if (all > 0)
        qsort(entries, all, sizeof *entries, by_name);
    *count = 0;
    for (uint32_t i = 0; i < all; i++) {
        if (*count > 0 && strcmp(entries[*count - 1].name, entries[i].name) == 0)
            entries[*count - 1].size_bytes += entries[i].size_bytes;
        else
            entries[(*count)++] = entries[i];
    }
    UL_ASSERT(*count <= all);
    return entries;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

static int by_change(const void *a, const void *b)
{
    const struct ul_diff_value *first = a, *second = b;
    uint64_t x = distance(first->old_bytes, first->new_bytes);
    uint64_t y = distance(second->old_bytes, second->new_bytes);
    return x != y ? (x < y ? 1 : -1) : strcmp(first->name, second->name);
}

void ul_diff_make(struct ul_arena *arena, const struct ul_saved *old, const struct ul_saved *new,
                  struct ul_diff *diff)
{
    uint32_t old_count, new_count, i = 0, k = 0;
    const struct entry *before = list_peak(arena, old, &old_count);
    const struct entry *now = list_peak(arena, new, &new_count);
    struct ul_diff_value *values =
        UL_NEW_ARRAY(arena, struct ul_diff_value, (uint64_t)old_count + new_count);
    *diff = (struct ul_diff){.old = old, .new = new, .values = values};
    while (i < old_count || k < new_count) {
        int order = i == old_count ? 1 : k == new_count ? -1 : strcmp(before[i].name, now[k].name);
        const struct entry *a = order <= 0 ? &before[i++] : NULL;
        const struct entry *b = order >= 0 ? &now[k++] : NULL;
        const struct entry *shown = b != NULL ? b : a;
        struct ul_diff_value value = {.name = shown->name,
                                      .old_bytes = a != NULL ? a->size_bytes : 0,
                                      .new_bytes = b != NULL ? b->size_bytes : 0};
        value.op = shown->maker != NULL ? shown->maker->op : NULL;
        value.node = shown->maker != NULL ? shown->maker->node : NULL;
        if (value.old_bytes != value.new_bytes)
            values[diff->value_count++] = value;
    }
    UL_ASSERT(diff->value_count <= old_count + new_count);
    if (diff->value_count > 0)
        qsort(values, diff->value_count, sizeof *values, by_change);
    double bytes = old->reserved_bytes > 0 ? (double)old->reserved_bytes : 1.0;
    diff->growth = ((double)new->reserved_bytes - (double)old->reserved_bytes) / bytes;
}

/* ---- Text ---- */

static int64_t change(uint64_t old, uint64_t new)
{
    return (int64_t) new - (int64_t)old;
}

/* In the unit of the whole comparison. */
static double in_unit(const struct ul_diff *diff, int64_t bytes)
{
    return (double)bytes / ul_report_unit_of(diff->new->reserved_bytes).bytes;
}

static void put_row(struct ul_text *text, const struct ul_diff *diff, const char *label,
                    uint64_t old, uint64_t new)
{
    if (old > 0 || new > 0)
        ul_text_printf(text, "  %-29s %12" PRIu64 " %12" PRIu64 " %+12" PRId64 " %+9.2f\n", label,
                       old, new, change(old, new), in_unit(diff, change(old, new)));
}

static void put_rows(struct ul_text *text, const struct ul_diff *diff)
{
    ul_text_printf(text, "\n  %-29s %12s %12s %12s %9s\n", "at the peak, bytes", "old", "new",
                   "change", ul_report_unit_of(diff->new->reserved_bytes).name);
    for (uint32_t row = 0; row < UL_REPORT_ROW_COUNT; row++)
        put_row(text, diff, ul_report_row_label(text->arena, row), diff->old->rows[row],
                diff->new->rows[row]);
    put_row(text, diff, "reserved", diff->old->reserved_bytes, diff->new->reserved_bytes);
    if (diff->old->process_bytes != UINT64_MAX && diff->new->process_bytes != UINT64_MAX)
        put_row(text, diff, "process", diff->old->process_bytes, diff->new->process_bytes);
}

static void put_peak(struct ul_text *text, const char *when, const struct ul_saved *saved,
                     size_t columns)
{
    if (saved->step_count == 0)
        return;
    const struct ul_saved_step *step = &saved->steps[saved->peak_step];
    ul_text_printf(text, "The %s peak is at step %u, %s (%s).\n", when, saved->peak_step,
                   ul_report_fit_name(text->arena, step->node, columns / 2),
                   ul_report_fit_name(text->arena, step->op, columns / 4));
}

static void put_options(struct ul_text *text, const char *what, const struct ul_saved *of,
                        const struct ul_saved *other, size_t columns)
{
    for (uint32_t i = 0; i < of->option_count; i++) {
        const struct ul_report_option *option = &of->options[i];
        if (ul_saved_has_option(other, option->name, option->value))
            continue;
        const char *words = ul_arena_printf(text->arena, "--%s%s%s", option->name,
                                            *option->value != '\0' ? " " : "", option->value);
        ul_text_printf(text, "%s with %s\n", what,
                       ul_report_fit_name(text->arena, words, columns - MARGIN));
    }
}

static const char *describe_maker(struct ul_arena *arena, const struct ul_diff_value *value,
                                  size_t columns)
{
    if (value->op == NULL)
        return "given";
    const char *op = ul_report_fit_name(arena, value->op, columns / 2);
    return ul_arena_printf(
        arena, "%s %s", op,
        ul_report_fit_name(arena, value->node, columns - 1 - ul_text_columns(op)));
}

/* Half of the columns that numbers leave in a line, or the width of the longest name shown. */
static size_t name_columns(struct ul_arena *arena, const struct ul_diff *diff, uint32_t shown,
                           size_t columns)
{
    size_t longest = strlen("at the peaks"), half = (columns - MARGIN - 10) / 2;
    for (uint32_t i = 0; i < shown; i++) {
        size_t width = ul_report_name_columns(arena, diff->values[i].name);
        longest = width > longest ? width : longest;
    }
    return longest < half ? longest : half;
}

static void put_values(struct ul_text *text, const struct ul_diff *diff, size_t columns)
{
    int64_t rest = change(diff->old->reserved_bytes, diff->new->reserved_bytes);
    uint32_t shown = diff->value_count < TOP_VALUES ? diff->value_count : TOP_VALUES;
    if (diff->value_count == 0)
        return;
    size_t names = name_columns(text->arena, diff, shown, columns);
    size_t makers = columns - MARGIN - 10 - names;
    ul_text_printf(text, "\n  %13s %9s       %-*s  made by\n", "change, bytes",
                   ul_report_unit_of(diff->new->reserved_bytes).name, (int)names, "at the peaks");
    for (uint32_t i = 0; i < shown; i++) {
        const struct ul_diff_value *value = &diff->values[i];
        const char *kind = value->old_bytes == 0 ? "new" : value->new_bytes == 0 ? "gone" : "";
        int64_t bytes = change(value->old_bytes, value->new_bytes);
        const char *name = ul_report_fit_name(text->arena, value->name, names);
        rest -= bytes;
        ul_text_printf(text, "  %+13" PRId64 " %+9.2f %-4s  %-*s  %s\n", bytes,
                       in_unit(diff, bytes), kind, ul_text_field(name, names), name,
                       describe_maker(text->arena, value, makers));
    }
    ul_text_printf(text, "  %+13" PRId64 " %+9.2f       %salignment, holes\n", rest,
                   in_unit(diff, rest),
                   diff->value_count == shown
                       ? ""
                       : ul_arena_printf(text->arena, "%u others, ", diff->value_count - shown));
}

void ul_diff_put_text(struct ul_text *text, const struct ul_diff *diff, uint32_t columns)
{
    const struct ul_saved *old = diff->old, *new = diff->new;
    ul_text_printf(text, "%s (target %s) reserves %s:\n%+.2f %% against %s before.\n",
                   ul_report_fit_name(text->arena, new->model, columns - 62),
                   ul_report_fit_name(text->arena, new->target, 8),
                   ul_size_exact(text->arena, new->reserved_bytes), 100 * diff->growth,
                   ul_size_exact(text->arena, old->reserved_bytes));
    if (strcmp(old->model_sha256, new->model_sha256) != 0)
        ul_text_put(text, "The model file is another one.\n");
    if (strcmp(old->target, new->target) != 0)
        ul_text_printf(text, "The old plan is for target %s.\n",
                       ul_report_fit_name(text->arena, old->target, MARGIN));
    put_options(text, "The old plan was made", old, new, columns);
    put_options(text, "The new plan was made", new, old, columns);
    put_rows(text, diff);
    ul_text_put(text, "\n");
    put_peak(text, "old", old, columns);
    put_peak(text, "new", new, columns);
    put_values(text, diff, columns);
}

/* ---- JSON ---- */

static void put_pair(struct ul_text *text, const char *key, uint64_t old, uint64_t new,
                     const char *end)
{
    ul_text_put_json(text, key);
    ul_text_printf(text, ": [%" PRIu64 ", %" PRIu64 "]%s", old, new, end);
}

void ul_diff_put_json(struct ul_text *text, const struct ul_diff *diff)
{
    const struct ul_saved *old = diff->old, *new = diff->new;
    ul_text_put(text, "{\n\"format\": \"ullage-diff\",\n\"version\": 1,\n");
    put_pair(text, "reserved_bytes", old->reserved_bytes, new->reserved_bytes, ",\n");
    if (old->process_bytes != UINT64_MAX && new->process_bytes != UINT64_MAX)
        put_pair(text, "process_bytes", old->process_bytes, new->process_bytes, ",\n");
    ul_text_put(text, "\"growth\": ");
    ul_text_put_float(text, diff->growth, false);
    ul_text_printf(text, ",\n\"same_model\": %s,\n\"rows\": {",
                   strcmp(old->model_sha256, new->model_sha256) == 0 ? "true" : "false");
    for (uint32_t row = 0; row < UL_REPORT_ROW_COUNT; row++)
        put_pair(text, ul_report_row_name(row), old->rows[row], new->rows[row],
                 row + 1 < UL_REPORT_ROW_COUNT ? ", " : "");
    ul_text_put(text, "},\n\"values\": [");
    for (uint32_t i = 0; i < diff->value_count; i++) {
        const struct ul_diff_value *value = &diff->values[i];
        ul_text_put(text, i == 0 ? "\n{\"name\": " : ",\n{\"name\": ");
        ul_text_put_json(text, value->name);
        ul_text_put(text, ", ");
        put_pair(text, "bytes", value->old_bytes, value->new_bytes, ", \"op\": ");
        if (value->op == NULL) {
            ul_text_put(text, "null, \"node\": null}");
            continue;
        }
        ul_text_put_json(text, value->op);
        ul_text_put(text, ", \"node\": ");
        ul_text_put_json(text, value->node);
        ul_text_put(text, "}");
    }
    ul_text_put(text, "\n]\n}\n");
}
