/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of models under other options as a table: for the terminal, as CSV and as JSON.
 * docs/plan-format.md documents the columns. */
#include "report/report.h"

#include <inttypes.h>
#include <string.h>

enum { VALUE_COLUMNS = 24, MIN_PEAK_COLUMNS = 16 };

static double milliseconds(uint64_t nanoseconds)
{
    return (double)nanoseconds * 1e-6;
}

static double samples_per_second(const struct ul_saved_table_plan *row)
{
    return row->cost == 0 ? 0 : 1e9 * (double)row->sample_count / (double)row->cost;
}

/* The value that a case has on an axis. */
static const char *table_value(const struct ul_saved_table *table, uint32_t index, uint32_t axis)
{
    UL_ASSERT(index < table->table_plan_count && axis < table->axis_count);
    for (uint32_t a = table->axis_count; a-- > axis + 1;)
        index /= table->axes[a].count;
    return table->axes[axis].values[index % table->axes[axis].count];
}

/* ns per sample; per run where a run has no samples. */
static double sample_time(const struct ul_saved_table_plan *row)
{
    return (double)row->cost / (double)(row->sample_count > 0 ? row->sample_count : 1);
}

/* Rows of one model are adjacent. */
static bool has_same_model(const struct ul_saved_table *table, uint32_t a, uint32_t b)
{
    UL_ASSERT(a < table->table_plan_count && b < table->table_plan_count);
    uint32_t count = table->model_sha256 == NULL ? table->axes[0].count : 1;
    uint32_t of_each = table->table_plan_count / count;
    return a / of_each == b / of_each;
}

/* Whether a budget bounds the same memory in both: two buffers, or two processes of the same
 * owner. */
static bool is_alike(const struct ul_saved_table_plan *a, const struct ul_saved_table_plan *b)
{
    return a->bounds_buffer == b->bounds_buffer &&
           (a->bounds_buffer || strcmp(a->process_of, b->process_of) == 0);
}

/* Whether no other case of the table is better both in bytes and in time per sample. */
static bool is_best_case(const struct ul_saved_table *table, uint32_t index)
{
    const struct ul_saved_table_plan *row = &table->plans[index];
    if (row->status != UL_OK)
        return false;
    for (uint32_t i = 0; i < table->table_plan_count; i++) {
        const struct ul_saved_table_plan *other = &table->plans[i];
        if (other->status != UL_OK || !has_same_model(table, i, index) || !is_alike(row, other))
            continue;
        bool is_no_worse =
            other->bounded_bytes <= row->bounded_bytes && sample_time(other) <= sample_time(row);
        bool is_less =
            other->bounded_bytes < row->bounded_bytes || sample_time(other) < sample_time(row);
        if (is_no_worse && (is_less || i < index))
            return false;
    }
    return true;
}

/* ---- text ---- */

/* Which columns this table needs, and how wide they are. */
struct layout {
    const struct ul_saved_table *table;
    size_t widths[64]; /* widths of axes */
    bool has_models, has_largest, has_overhead, has_repeats, has_rates;
    size_t peak_columns;
    struct ul_report_unit unit; /* the unit of the largest buffer */
};

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Makes a column as wide as its longest value where lines have room for that, else at most `limit`.
 * Returns the width of all. */
static size_t size_axes(struct ul_arena *arena, const struct ul_saved_table *table, size_t limit,
                        struct layout *layout)
{
    size_t used = 0;
    for (uint32_t a = 0; a < table->axis_count; a++) {
        const struct ul_saved_axis *axis = &table->axes[a];
        layout->widths[a] = ul_report_name_columns(arena, axis->label);
        for (uint32_t v = 0; v < axis->count; v++)
            layout->widths[a] =
                larger(layout->widths[a], ul_report_name_columns(arena, axis->values[v]));
        if (layout->widths[a] > limit)
            layout->widths[a] = limit;
        used += layout->widths[a] + 2;
    }
    return used;
}

static void lay_out(struct ul_arena *arena, const struct ul_saved_table *table, size_t columns,
                    struct layout *layout)
{
    size_t used = 2 + 16 + 10 + 15 + 10 + 10 + 2;
    uint64_t largest_bytes = 0;
    *layout = (struct layout){.table = table, .has_models = table->model_sha256 == NULL};
    UL_ASSERT(table->axis_count <= sizeof layout->widths / sizeof *layout->widths);
    for (uint32_t i = 0; i < table->table_plan_count; i++) {
        const struct ul_saved_table_plan *row = &table->plans[i];
        if (row->is_planned && row->reserved_bytes > largest_bytes)
            largest_bytes = row->reserved_bytes;
        layout->has_largest |= row->largest > 0;
        layout->has_overhead |= row->is_planned && row->overhead != 0;
        layout->has_repeats |= row->recomputed_steps > 0;
        layout->has_rates |= row->is_planned && row->sample_count != table->plans[0].sample_count;
    }
    used += (layout->has_models ? 11u : 0u) + (layout->has_largest ? 9u : 0u) +
            (layout->has_overhead ? 12u : 0u) + (layout->has_repeats ? 12u : 0u) +
            (layout->has_rates ? 12u : 0u);
    layout->unit = ul_report_unit_of(largest_bytes);
    size_t axes = size_axes(arena, table, columns, layout);
    if (used + axes + MIN_PEAK_COLUMNS > columns)
        axes = size_axes(arena, table, VALUE_COLUMNS, layout);
    used += axes;
    layout->peak_columns = columns > used + MIN_PEAK_COLUMNS ? columns - used : MIN_PEAK_COLUMNS;
}

static void put_value(struct ul_text *text, const char *value, size_t columns)
{
    const char *fitted = ul_report_fit_name(text->arena, value, columns);
    ul_text_printf(text, "%*s  ", ul_text_field(fitted, columns), fitted);
}

static void put_head(struct ul_text *text, const struct layout *layout)
{
    const struct ul_saved_table *table = layout->table;
    ul_text_put(text, "  ");
    for (uint32_t a = 0; a < table->axis_count; a++)
        put_value(text, table->axes[a].label, layout->widths[a]);
    ul_text_printf(
        text, "%s%s%16s%10s%15s%10s%10s%s%s%s  peak\n", layout->has_models ? "  M weights" : "",
        layout->has_largest ? "  largest" : "", "reserved bytes", layout->unit.name,
        "process bytes", layout->unit.name, "ms", layout->has_overhead ? "   more time" : "",
        layout->has_repeats ? "  recomputed" : "", layout->has_rates ? "   samples/s" : "");
}

static void put_plan(struct ul_text *text, const struct layout *layout,
                     const struct ul_saved_table_plan *row)
{
    if (layout->has_models)
        ul_text_printf(text, "%11.4g", (double)row->weight_elements * 1e-6);
    if (layout->has_largest)
        ul_text_printf(text, "%9" PRIu64, row->largest);
    ul_text_printf(text, "%16" PRIu64 "%10.2f%15" PRIu64 "%10.2f%10.4g", row->reserved_bytes,
                   (double)row->reserved_bytes / layout->unit.bytes, row->process_bytes,
                   (double)row->process_bytes / layout->unit.bytes, milliseconds(row->cost));
    if (layout->has_overhead)
        ul_text_printf(text, "%10.2f %%", 100.0 * row->overhead);
    if (layout->has_repeats)
        ul_text_printf(text, "%12" PRIu64, row->recomputed_steps);
    if (layout->has_rates)
        ul_text_printf(text, "%12.4g", samples_per_second(row));
    if (row->status == UL_NO_FIT)
        ul_text_printf(text, "  %s short\n",
                       ul_size_exact(text->arena, row->bounded_bytes - row->budget_bytes));
    else
        ul_text_printf(text, "  %s\n",
                       !row->has_peak
                           ? ""
                           : ul_report_fit_name(text->arena, row->peak.node, layout->peak_columns));
}

/* The number of the first case with the same reason for having no plan. */
static uint32_t find_reason(const struct ul_saved_table *table, uint32_t index)
{
    uint32_t number = 0;
    for (uint32_t i = 0; i <= index; i++) {
        uint32_t k = 0;
        if (table->plans[i].is_planned)
            continue;
        while (table->plans[k].is_planned ||
               strcmp(table->plans[k].message, table->plans[i].message) != 0)
            k++;
        number += k == i;
        if (i == index || strcmp(table->plans[i].message, table->plans[index].message) == 0)
            break;
    }
    return number;
}

static void put_reasons(struct ul_text *text, const struct ul_saved_table *table)
{
    uint32_t told = 0;
    for (uint32_t i = 0; i < table->table_plan_count; i++) {
        if (table->plans[i].is_planned || find_reason(table, i) <= told)
            continue;
        told++;
        ul_text_printf(text, "\n(%" PRIu32 ") %s", told, table->plans[i].message);
    }
    ul_text_put(text, told > 0 ? "\n" : "");
}

static const char *option_of(const struct ul_saved_table *table, const char *name)
{
    for (uint32_t i = 0; i < table->option_count; i++)
        if (strcmp(table->options[i].name, name) == 0)
            return table->options[i].value;
    return NULL;
}

static void put_title(struct ul_text *text, const struct ul_saved_table *table, size_t columns)
{
    const char *name =
        table->model_sha256 != NULL
            ? ul_quote(text->arena, table->model)
            : ul_arena_printf(text->arena, "%" PRIu32 " models", table->axes[0].count);
    ul_text_printf(text, "%" PRIu32 " plans of %s", table->table_plan_count, name);
    const char *target = option_of(table, "target");
    bool varies = false;
    for (uint32_t a = 0; a < table->axis_count; a++)
        varies = varies || strcmp(table->axes[a].option, "target") == 0;
    if (!varies)
        ul_text_printf(text, " (target %s)", target != NULL ? target : "cpu");
    uint32_t said = 0;
    for (uint32_t i = 0; i < table->option_count; i++)
        if (strcmp(table->options[i].name, "target") != 0)
            ul_text_printf(text, "%s--%s%s%s", said++ == 0 ? ", each with " : " ",
                           table->options[i].name, table->options[i].value[0] != '\0' ? " " : "",
                           ul_report_fit_name(text->arena, table->options[i].value, columns));
    ul_text_put(text, ":\n\n");
}

/* ---- text: the largest model that fits ---- */

/* The axis that gives the amount of memory, or the number of axes. */
static uint32_t find_room(const struct ul_saved_table *table)
{
    uint32_t axis = 0;
    while (axis < table->axis_count && strcmp(table->axes[axis].option, "device") != 0 &&
           strcmp(table->axes[axis].option, "budget") != 0)
        axis++;
    return axis;
}

/* Whether a case has that amount of memory: this value of that axis. */
static bool has_room(const struct ul_saved_table *table, uint32_t index, uint32_t axis,
                     uint32_t value)
{
    return axis == table->axis_count ||
           table_value(table, index, axis) == table->axes[axis].values[value];
}

/* The case of most weights, among these the fastest; the number of cases where none fits. */
static uint32_t find_largest(const struct ul_saved_table *table, uint32_t axis, uint32_t value)
{
    uint32_t found = table->table_plan_count;
    for (uint32_t i = 0; i < table->table_plan_count; i++) {
        const struct ul_saved_table_plan *row = &table->plans[i];
        const struct ul_saved_table_plan *best =
            found < table->table_plan_count ? &table->plans[found] : NULL;
        if (row->status != UL_OK || row->budget_bytes == 0 || !has_room(table, i, axis, value))
            continue;
        if (best == NULL || row->weight_elements > best->weight_elements ||
            (row->weight_elements == best->weight_elements && sample_time(row) < sample_time(best)))
            found = i;
    }
    return found;
}

/* Writes a line for each amount of memory: the largest model with a plan within it. */
static void put_largest(struct ul_text *text, const struct ul_saved_table *table)
{
    uint32_t axis = find_room(table);
    uint32_t count = axis < table->axis_count ? table->axes[axis].count : 1;
    bool has_budget = axis < table->axis_count || option_of(table, "budget") != NULL ||
                      option_of(table, "device") != NULL;
    if (table->model_sha256 != NULL || !has_budget)
        return;
    ul_text_put(text, "\n");
    for (uint32_t v = 0; v < count; v++) {
        uint32_t index = find_largest(table, axis, v);
        const char *where = axis < table->axis_count ? table->axes[axis].values[v] : NULL;
        ul_text_printf(text, "%s%s", where != NULL ? where : "", where != NULL ? ": " : "");
        if (index == table->table_plan_count) {
            ul_text_put(text, "none of these plans fits.\n");
            continue;
        }
        const struct ul_saved_table_plan *row = &table->plans[index];
        ul_text_printf(text, "the largest that fits is %s",
                       ul_quote(text->arena, table_value(table, index, 0)));
        for (uint32_t a = 1; a < table->axis_count; a++)
            if (a != axis)
                ul_text_printf(text, "%s%s %s", a == 1 || (a == 2 && axis == 1) ? ", with " : ", ",
                               table->axes[a].label, table_value(table, index, a));
        ul_text_printf(text, ": %.4g million weights, %s, %.4g ms.\n",
                       (double)row->weight_elements * 1e-6,
                       ul_size_exact(text->arena, row->bounded_bytes), milliseconds(row->cost));
    }
}

void ul_report_put_table_text(struct ul_text *text, const struct ul_saved_table *table,
                              uint32_t columns)
{
    struct layout layout;
    const struct ul_saved_table_plan *first = NULL;
    bool has_best = false, are_alike = true;
    lay_out(text->arena, table, columns, &layout);
    put_title(text, table, columns);
    put_head(text, &layout);
    for (uint32_t i = 0; i < table->table_plan_count; i++) {
        bool is_best = is_best_case(table, i);
        has_best = has_best || is_best;
        if (table->plans[i].is_planned) {
            first = first != NULL ? first : &table->plans[i];
            are_alike = are_alike && is_alike(first, &table->plans[i]);
        }
        ul_text_put(text, is_best ? "* " : "  ");
        for (uint32_t a = 0; a < table->axis_count; a++)
            put_value(text, table_value(table, i, a), layout.widths[a]);
        if (table->plans[i].is_planned)
            put_plan(text, &layout, &table->plans[i]);
        else
            ul_text_printf(text, "no plan (%" PRIu32 ")\n", find_reason(table, i));
    }
    if (has_best)
        ul_text_printf(text, "\n* No plan here%s takes both less memory and less time%s.\n",
                       are_alike ? "" : ", among those whose process is the same,",
                       layout.has_rates ? " for a sample" : "");
    put_largest(text, table);
    put_reasons(text, table);
}

/* ---- CSV and JSON ---- */

/* Adds what follows from the whole table to its plans. */
static struct ul_saved_table_plan *judge(const struct ul_saved_table *table, struct ul_arena *arena)
{
    struct ul_saved_table_plan *plans =
        ul_arena_copy(arena, table->plans, table->table_plan_count * sizeof *plans);
    for (uint32_t i = 0; i < table->table_plan_count; i++) {
        const char **values = UL_NEW_ARRAY(arena, const char *, table->axis_count);
        for (uint32_t a = 0; a < table->axis_count; a++)
            values[a] = table_value(table, i, a);
        plans[i].values = values;
        plans[i].values_count = table->axis_count;
        plans[i].fits = plans[i].status == UL_OK;
        plans[i].best = is_best_case(table, i);
        plans[i].samples_per_second = samples_per_second(&plans[i]);
    }
    return plans;
}

void ul_report_put_table_csv(struct ul_text *text, const struct ul_saved_table *table)
{
    const struct ul_saved_table_plan *plans = judge(table, text->arena);
    for (uint32_t a = 0; a < table->axis_count; a++) {
        ul_text_put_csv(text, table->axes[a].label);
        ul_text_put(text, ",");
    }
    ul_text_put(
        text,
        "status,weight_elements,reserved_bytes,process_bytes,process_of,largest,cost,overhead,"
        "samples_per_second,"
        "recomputed_steps,splits,row_major,inside,best,peak,message\r\n");
    for (uint32_t i = 0; i < table->table_plan_count; i++) {
        for (uint32_t a = 0; a < table->axis_count; a++) {
            ul_text_put_csv(text, plans[i].values[a]);
            ul_text_put(text, ",");
        }
        ul_facts_put_fields(text, ul_class_table_plan(), &plans[i],
                            plans[i].is_planned
                                ? "status,weight_elements,reserved_bytes,process_bytes,process_of,"
                                  "largest,cost,overhead,samples_per_second,recomputed_steps,"
                                  "splits,row_major,inside,best,peak.node,message"
                                : "status,,,,,,,,,,,,,,peak.node,message");
        ul_text_put(text, "\r\n");
    }
}

void ul_report_put_table_json(struct ul_text *text, const struct ul_saved_table *table)
{
    struct ul_saved_table judged = *table;
    judged.plans = judge(table, text->arena);
    ul_facts_put(text, ul_class_table(), &judged);
}
