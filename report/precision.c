/* SPDX-License-Identifier: Apache-2.0 */
/* What storing f32 in 16 bits (--precision) saves: by how much more the very values that lie in the
 * arena at the peak would be larger. Another plan might be found for those, and what kernels and
 * calls take for themselves could differ: this is no second plan. And what stays f32, by reason. */
#include "report/report.h"

#include <stdlib.h>

const char *ul_report_precision(const struct ul_report *report)
{
    return ul_report_option(report, "precision");
}

uint32_t ul_report_too_large(const struct ul_report *report)
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

uint64_t ul_report_precision_bytes(const struct ul_report *report, struct ul_arena *arena)
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

const char *ul_report_kept_text(enum ul_kept kept)
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

static int compare_kept(const void *a, const void *b)
{
    const struct ul_report_kept *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return (int)x->kept - (int)y->kept;
}

uint32_t ul_report_list_kept(const struct ul_report *report, struct ul_arena *arena,
                             struct ul_report_kept kept[UL_KEPT_COUNT])
{
    uint32_t count = report->problem->value_count, rows = 0;
    bool *lies = UL_NEW_ARRAY(arena, bool, count);
    for (uint32_t i = 0; i < report->plan->range_count; i++)
        if (report->plan->ranges[i].value != UL_PLAN_NONE)
            lies[report->plan->ranges[i].value] = true;
    for (int why = UL_KEPT_NOT + 1; why < UL_KEPT_COUNT; why++) {
        struct ul_report_kept *row = &kept[rows];
        uint32_t *values = UL_NEW_ARRAY(arena, uint32_t, count);
        *row = (struct ul_report_kept){.kept = (enum ul_kept)why, .values = values};
        for (uint32_t v = 0; v < count; v++) {
            if (!lies[v] || report->values[v].kept != row->kept)
                continue;
            values[row->value_count++] = v;
            row->bytes = ul_size_add_or_die(row->bytes, report->problem->values[v].size_bytes);
        }
        rows += row->value_count > 0;
    }
    qsort(kept, rows, sizeof *kept, compare_kept);
    return rows;
}
