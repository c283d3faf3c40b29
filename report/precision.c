/* What storing f32 in 16 bits (--precision) saves: by how much more the very values that lie in the
 * arena at the peak would be larger. Another plan might be found for those, and what kernels and
 * calls take for themselves could differ: this is no second plan. */
#include "report/report.h"

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
