/* SPDX-License-Identifier: Apache-2.0 */
/* What storing f32 in 16 bits (--precision) saves: how much larger the values in the arena at the
 * peak would be in f32. This is no second plan: another plan might be found for larger values, and
 * kernels and calls might take other bytes for themselves. It also says what stays f32, by
 * reason. */
#include "ir/view.h"
#include "report/saved.h"

/* Weights whose numbers 16 bits cannot hold. */
static uint32_t count_too_large(const struct ul_report *report)
{
    uint32_t count = 0;
    for (uint32_t v = 0; v < report->problem->value_count; v++)
        count += report->values[v].is_too_large;
    return count;
}

static uint64_t saved_by(const struct ul_report_value *value)
{
    uint64_t elements = ul_type_elements(&value->type);
    uint32_t more =
        ul_dtype_get(value->type.dtype)->size_bytes - ul_dtype_get(value->storage)->size_bytes;
    return ul_size_mul_or_die(elements, more);
}

/* At the peak. */
static uint64_t saved_bytes_of(const struct ul_report *report, struct ul_arena *arena)
{
    const struct ul_plan *plan = report->plan;
    uint64_t saved_bytes = 0;
    uint32_t *alive;
    uint32_t count = ul_report_alive(report, arena, 0, &alive);
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_plan_range *range = &plan->ranges[alive[i]];
        if (range->space == 0 && range->value != UL_PLAN_NONE)
            saved_bytes += saved_by(&report->values[range->value]);
    }
    for (uint32_t i = 0; i < plan->range_count; i++) {
        const struct ul_plan_range *range = &plan->ranges[i];
        if (range->space == 0 && range->class == UL_PLAN_WEIGHTS && range->value != UL_PLAN_NONE)
            saved_bytes += saved_by(&report->values[range->value]);
    }
    return saved_bytes;
}

static const char *kept_text(enum ul_kept kept)
{
    static const char *const texts[UL_KEPT_COUNT] = {
        [UL_KEPT_EDGE] = "inputs and outputs of the model",
        [UL_KEPT_STATE] = "what stays from run to run: parameters, state",
        [UL_KEPT_GRADIENT] = "gradients, as updates read them",
        [UL_KEPT_RANGE] = "beyond the range of 16 bits, or computed with it",
        [UL_KEPT_EXACT] = "reductions, losses, statistics, scales, updates",
        [UL_KEPT_DECIDES] = "what integers or booleans are made of",
        [UL_KEPT_VECTOR] = "constant vectors: biases, scales",
        [UL_KEPT_ELEMENT] = "values of one element",
        [UL_KEPT_SUMS] = "sums that are added up in memory",
        [UL_KEPT_BLOCK] = "edges of nested blocks, copied as bytes",
        [UL_KEPT_DECLARED] = "what the model of 16 bits has in f32"};
    UL_ASSERT(kept != UL_KEPT_NOT && kept < UL_KEPT_COUNT);
    return texts[kept];
}

/* Counts each value with that reason that has a place in the plan. */
static struct ul_saved_kept count_kept(const struct ul_report *report, struct ul_arena *arena,
                                       const bool *lies, enum ul_kept why)
{
    uint32_t count = report->problem->value_count;
    uint32_t *values = UL_NEW_ARRAY(arena, uint32_t, count);
    struct ul_saved_kept row = {
        .reason = ul_kept_get(why), .why = kept_text(why), .values = values};
    for (uint32_t v = 0; v < count; v++) {
        if (!lies[v] || report->values[v].kept != why)
            continue;
        values[row.values_count++] = v;
        row.bytes = ul_size_add_or_die(row.bytes, report->problem->values[v].size_bytes);
    }
    row.count = row.values_count;
    return row;
}

/* Most bytes first. Each value counts once, however often it has a place in the plan. */
static void save_kept(const struct ul_report *report, struct ul_arena *arena,
                      struct ul_saved *saved)
{
    bool *lies = UL_NEW_ARRAY(arena, bool, report->problem->value_count);
    struct ul_saved_kept *rows = UL_NEW_ARRAY(arena, struct ul_saved_kept, UL_KEPT_COUNT);
    for (uint32_t i = 0; i < report->plan->range_count; i++)
        if (report->plan->ranges[i].value != UL_PLAN_NONE)
            lies[report->plan->ranges[i].value] = true;
    saved->stays_f32 = rows;
    saved->kept_count = 0;
    for (int why = UL_KEPT_NOT + 1; why < UL_KEPT_COUNT; why++) {
        struct ul_saved_kept row = count_kept(report, arena, lies, (enum ul_kept)why);
        if (row.count == 0)
            continue;
        uint32_t at = saved->kept_count++;
        for (; at > 0 && rows[at - 1].bytes < row.bytes; at--)
            rows[at] = rows[at - 1];
        rows[at] = row;
    }
    saved->has_stays_f32 = saved->kept_count > 0;
}

void ul_report_save_precision(const struct ul_report *report, struct ul_arena *arena,
                              struct ul_saved *saved)
{
    saved->has_for_precision = ul_saved_option(&report->facts, "precision") != NULL;
    if (!saved->has_for_precision)
        return;
    saved->for_precision.saved_bytes = saved_bytes_of(report, arena);
    saved->for_precision.too_large_count = count_too_large(report);
    save_kept(report, arena, saved);
}
