/* A saved plan for the terminal, in 80 columns. */
#include "report/saved.h"

#include <inttypes.h>

enum { TOP_VALUES = 10, NAME_COLUMNS = 30, MAKER_COLUMNS = 22, MODEL_COLUMNS = 36 };
enum { PEAK_COLUMNS = 22, OP_COLUMNS = 12 }; /* beside two numbers of up to ten digits */

static double in_unit(const struct ul_saved *saved, uint64_t bytes)
{
    return (double)bytes / ul_report_unit_of(saved->reserved_bytes).bytes;
}

static void put_row(struct ul_text *text, const struct ul_saved *saved, const char *label,
                    uint64_t bytes)
{
    ul_text_printf(text, "  %-32s %12.3f %18" PRIu64 "\n", label, in_unit(saved, bytes), bytes);
}

static void put_values(struct ul_text *text, const struct ul_saved *saved)
{
    uint32_t *alive, count = ul_saved_alive(saved, text->arena, &alive);
    uint32_t shown = count < TOP_VALUES ? count : TOP_VALUES;
    uint64_t rest_bytes = 0, *sizes = UL_NEW_ARRAY(text->arena, uint64_t, saved->range_count);
    for (uint32_t i = 0; i < saved->range_count; i++)
        sizes[i] = saved->ranges[i].size_bytes;
    ul_report_biggest_first(sizes, alive, count, shown);
    ul_text_printf(text, "  %12s  %-*s  made by\n", ul_report_unit_of(saved->reserved_bytes).name,
                   NAME_COLUMNS, "value");
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_saved_range *range = &saved->ranges[alive[i]];
        const struct ul_saved_step *maker = ul_saved_maker(saved, range);
        if (i >= shown) {
            rest_bytes += range->size_bytes;
            continue;
        }
        const char *name = ul_saved_range_name(saved, text->arena, alive[i]);
        ul_text_printf(
            text, "  %12.3f  %-*s  %s\n", in_unit(saved, range->size_bytes), NAME_COLUMNS,
            ul_report_fit_name(text->arena, name, NAME_COLUMNS),
            ul_report_fit_name(text->arena, maker != NULL ? maker->node : "given", MAKER_COLUMNS));
    }
    if (count > shown)
        ul_text_printf(text, "  %12.3f  %" PRIu32 " others\n", in_unit(saved, rest_bytes),
                       count - shown);
}

void ul_saved_put_text(struct ul_text *text, const struct ul_saved *saved)
{
    ul_text_printf(text, "%s (target %s) needs %.2f %s = %" PRIu64 " bytes, all of it.\n\n",
                   ul_report_fit_name(text->arena, saved->model, MODEL_COLUMNS),
                   ul_report_fit_name(text->arena, saved->target, OP_COLUMNS),
                   in_unit(saved, saved->reserved_bytes),
                   ul_report_unit_of(saved->reserved_bytes).name, saved->reserved_bytes);
    ul_text_printf(text, "  %-32s %12s %18s\n", "at the peak",
                   ul_report_unit_of(saved->reserved_bytes).name, "bytes");
    for (uint32_t row = 0; row < UL_REPORT_ROW_COUNT; row++)
        if (saved->rows[row] > 0 || row == UL_REPORT_ROW_COUNT - 1)
            put_row(text, saved, ul_report_row_label(text->arena, row), saved->rows[row]);
    put_row(text, saved, "reserved", saved->reserved_bytes);
    if (saved->process_bytes != UINT64_MAX)
        put_row(text, saved, "process", saved->process_bytes);
    if (saved->step_count == 0)
        return;
    const struct ul_saved_step *step = &saved->steps[saved->peak_step];
    ul_text_printf(text, "\nThe peak is at step %" PRIu32 " (of 0 to %" PRIu32 "), %s (%s):\n",
                   saved->peak_step, saved->step_count - 1,
                   ul_report_fit_name(text->arena, step->node, PEAK_COLUMNS),
                   ul_report_fit_name(text->arena, step->op, OP_COLUMNS));
    put_values(text, saved);
}
