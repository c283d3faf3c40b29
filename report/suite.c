/* SPDX-License-Identifier: Apache-2.0 */
/* Several models in one arena: a table for terminals, and "ullage-shared" with the plans in it.
 *
 *     reserved = what all keep between their runs + the largest of their runs */
#include "report/report.h"

#include <inttypes.h>
#include <string.h>

enum { LABEL_COLUMNS = 40 };

static const struct ul_plan *plan_of(const struct ul_report_suite *suite, uint32_t member)
{
    return suite->members[member].report->plan;
}

uint64_t ul_report_suite_reserved(const struct ul_report_suite *suite)
{
    UL_ASSERT(suite->count > 0);
    return plan_of(suite, 0)->reserved_bytes[0];
}

static uint64_t all_kept(const struct ul_report_suite *suite)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < suite->count; i++)
        bytes += suite->members[i].kept_bytes;
    return bytes;
}

/* What a run takes beside what is kept, which is below: as its ranges lie. */
static uint64_t run_bytes(const struct ul_report_suite *suite, uint32_t member)
{
    const struct ul_plan *plan = plan_of(suite, member);
    uint64_t kept = all_kept(suite), top = kept;
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *range = &plan->ranges[r];
        uint64_t end =
            range->offset_bytes + ul_size_align_or_die(range->size_bytes, plan->alignment_bytes);
        if (range->space == 0 && range->class != UL_PLAN_OTHERS && end > top)
            top = end;
    }
    return top - kept;
}

/* The arena of the same plan for itself. */
static uint64_t alone_bytes(const struct ul_report_suite *suite, uint32_t member)
{
    return suite->members[member].kept_bytes + run_bytes(suite, member);
}

static uint64_t separate_bytes(const struct ul_report_suite *suite)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < suite->count; i++)
        bytes += alone_bytes(suite, i);
    return bytes;
}

uint32_t ul_report_suite_largest(const struct ul_report_suite *suite)
{
    uint32_t largest = 0;
    for (uint32_t i = 1; i < suite->count; i++) {
        if (run_bytes(suite, i) > run_bytes(suite, largest))
            largest = i;
    }
    return largest;
}

/* No packing of these orders is smaller: what all keep, and the largest live sum of a run. */
static uint64_t bound_bytes(const struct ul_report_suite *suite)
{
    uint64_t max = 0;
    for (uint32_t i = 0; i < suite->count; i++) {
        uint64_t bytes = plan_of(suite, i)->order_lower_bound_bytes - suite->members[i].room_bytes;
        max = bytes > max ? bytes : max;
    }
    return max;
}

/* ---- Text ---- */

static double in_unit(const struct ul_report_suite *suite, uint64_t bytes)
{
    return (double)bytes / ul_report_unit_of(ul_report_suite_reserved(suite)).bytes;
}

static void put_row(struct ul_text *text, const struct ul_report_suite *suite, const char *label,
                    uint64_t bytes)
{
    ul_text_printf(text, "  %-*s %12.2f %18" PRIu64 "\n", LABEL_COLUMNS, label,
                   in_unit(suite, bytes), bytes);
}

static void put_verdict(struct ul_text *text, const struct ul_report_suite *suite)
{
    const struct ul_report *report = suite->members[0].report;
    uint64_t reserved = ul_report_suite_reserved(suite);
    const char *unit = ul_report_unit_of(reserved).name;
    ul_text_printf(
        text, "%u models in turn (target %s) share one arena of %.2f %s = %" PRIu64 " bytes.\n",
        suite->count, report->target, in_unit(suite, reserved), unit, reserved);
    if (report->budget_bytes == 0)
        return;
    const char *of = report->budget_of_arena        ? "for the buffer alone"
                     : report->process.is_of_device ? "of the device, as far as it is known"
                                                    : "for buffer, libraries and stacks";
    uint64_t budget = report->budget_bytes, needed = suite->needed_bytes;
    if (suite->fits)
        ul_text_printf(text, "They fit the budget of %s\n%s: %s to spare.\n",
                       ul_size_exact(text->arena, budget), of,
                       ul_size_exact(text->arena, budget - needed));
    else
        ul_text_printf(text, "They do not fit the budget of %s\n%s: %s short.\n",
                       ul_size_exact(text->arena, budget), of,
                       ul_size_exact(text->arena, needed - budget));
}

/* Names whole, where a line of so many columns has room for them beside `used`. */
static size_t name_columns(struct ul_arena *arena, const struct ul_report_suite *suite,
                           size_t columns, size_t used)
{
    size_t longest = strlen("bytes");
    for (uint32_t i = 0; i < suite->count; i++) {
        size_t width = ul_report_name_columns(arena, suite->members[i].prefix);
        longest = width > longest ? width : longest;
    }
    return longest < columns - used ? longest : columns - used;
}

static void put_members(struct ul_text *text, const struct ul_report_suite *suite, size_t columns)
{
    size_t names = name_columns(text->arena, suite, columns, 62);
    const char *unit = ul_report_unit_of(ul_report_suite_reserved(suite)).name;
    ul_text_printf(text, "\n  %-*s %11s %7s %11s %7s %11s %7s\n", (int)names, "bytes", "kept", unit,
                   "its runs", unit, "alone", unit);
    for (uint32_t i = 0; i < suite->count; i++) {
        const uint64_t sizes[] = {suite->members[i].kept_bytes, run_bytes(suite, i),
                                  alone_bytes(suite, i)};
        const char *name = ul_report_fit_name(text->arena, suite->members[i].prefix, names);
        ul_text_printf(text, "  %-*s", ul_text_field(name, names), name);
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            ul_text_printf(text, " %11" PRIu64 " %7.2f", sizes[k], in_unit(suite, sizes[k]));
        ul_text_put(text, "\n");
    }
}

static void put_sums(struct ul_text *text, const struct ul_report_suite *suite, size_t columns)
{
    uint64_t reserved = ul_report_suite_reserved(suite), separate = separate_bytes(suite);
    uint32_t largest = ul_report_suite_largest(suite);
    const char *unit = ul_report_unit_of(reserved).name;
    ul_text_printf(text, "\n  %-40s %12s %18s\n", "in one arena", unit, "bytes");
    put_row(text, suite, "kept by all between their runs", all_kept(suite));
    put_row(text, suite,
            ul_arena_printf(text->arena, "the largest run, %s",
                            ul_report_fit_name(text->arena, suite->members[largest].prefix,
                                               name_columns(text->arena, suite, columns, 52))),
            run_bytes(suite, largest));
    put_row(text, suite, "unaccounted", reserved - all_kept(suite) - run_bytes(suite, largest));
    put_row(text, suite, "reserved", reserved);
    put_row(text, suite, "arenas of their own would be", separate);
    put_row(text, suite, "saved", separate - reserved);
}

static void put_peak(struct ul_text *text, const struct ul_report_suite *suite, size_t columns)
{
    uint32_t largest = ul_report_suite_largest(suite);
    const struct ul_report *report = suite->members[largest].report;
    const struct ul_plan *plan = report->plan;
    uint64_t reserved = ul_report_suite_reserved(suite), bound = bound_bytes(suite);
    if (plan->position_count > 0) {
        struct ul_report_step step = ul_report_step_at(report, plan->peak_position);
        ul_text_printf(
            text, "\nThe peak is in %s, at step %u (of 0 to %u),\n%s (%s).\n",
            ul_report_fit_name(text->arena, suite->members[largest].prefix, columns - 44),
            plan->peak_position, plan->position_count - 1,
            ul_report_fit_name(text->arena, step.node, columns / 2),
            ul_report_fit_name(text->arena, step.op, columns / 3));
    }
    if (reserved == bound)
        ul_text_put(text, "Proven (checked): no packing of these orders is smaller.\n");
    else
        ul_text_printf(text,
                       "Proven (checked): no packing of these orders is below %s;\n"
                       "this one is %.2f %% above that.\n",
                       ul_size_exact(text->arena, bound),
                       bound == 0 ? 0.0 : 100.0 * (double)(reserved - bound) / (double)bound);
    ul_text_put(text, "Each plan is checked independently, and so is that none touches what\n"
                      "another keeps.\n");
}

void ul_report_put_suite_text(struct ul_text *text, const struct ul_report_suite *suite,
                              uint32_t columns)
{
    UL_ASSERT(columns >= 80);
    put_verdict(text, suite);
    put_members(text, suite, columns);
    put_sums(text, suite, columns);
    put_peak(text, suite, columns);
}

/* ---- JSON ---- */

static void put_number(struct ul_text *text, const char *key, uint64_t value)
{
    ul_text_printf(text, "  \"%s\": %" PRIu64 ",\n", key, value);
}

static void put_member(struct ul_text *text, const struct ul_report_suite *suite, uint32_t i)
{
    const struct ul_report_member *member = &suite->members[i];
    ul_text_put(text, i == 0 ? "\n{\n  \"prefix\": " : ",\n{\n  \"prefix\": ");
    ul_text_put_json(text, member->prefix);
    ul_text_put(text, ",\n  \"model\": ");
    ul_text_put_json(text, member->report->model_name);
    ul_text_put(text, ",\n");
    put_number(text, "kept_bytes", member->kept_bytes);
    put_number(text, "run_bytes", run_bytes(suite, i));
    put_number(text, "alone_bytes", alone_bytes(suite, i));
    ul_text_printf(text, "  \"plan\": %s}", member->plan_json);
}

void ul_report_put_suite_json(struct ul_text *text, const struct ul_report_suite *suite)
{
    const struct ul_report *first = suite->members[0].report;
    uint64_t reserved = ul_report_suite_reserved(suite), separate = separate_bytes(suite);
    ul_text_put(text, "{\n  \"format\": \"ullage-shared\",\n  \"version\": 1,\n"
                      "  \"tool\": \"ullage " UL_VERSION "\",\n  \"target\": ");
    ul_text_put_json(text, first->target);
    ul_text_put(text, ",\n");
    put_number(text, "reserved_bytes", reserved);
    put_number(text, "order_lower_bound_bytes", bound_bytes(suite));
    put_number(text, "alignment_bytes", first->plan->alignment_bytes);
    put_number(text, "kept_bytes", all_kept(suite));
    put_number(text, "run_bytes", run_bytes(suite, ul_report_suite_largest(suite)));
    put_number(text, "separate_bytes", separate);
    put_number(text, "saved_bytes", separate - reserved);
    put_number(text, "largest_run", ul_report_suite_largest(suite));
    if (first->budget_bytes > 0)
        put_number(text, "budget_bytes", first->budget_bytes);
    ul_text_printf(text, "  \"budget_of\": \"%s\",\n",
                   first->budget_of_arena ? "arena" : "process");
    put_number(text, "needed_bytes", suite->needed_bytes);
    ul_text_printf(text, "  \"fits\": %s,\n", suite->fits ? "true" : "false");
    put_number(text, "smallest_budget_bytes", suite->smallest_budget_bytes);
    ul_text_put(text, "  \"models\": [");
    for (uint32_t i = 0; i < suite->count; i++)
        put_member(text, suite, i);
    ul_text_put(text, "\n]\n}\n");
}
