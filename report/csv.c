/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as tables. Fields are quoted where RFC 4180 asks for it; lines end with CR LF. A field
 * that a spreadsheet would take for a formula begins with ', which makes it text there. */
#include "report/saved.h"

#include <inttypes.h>

/* The memory of the arena that holds an offset. */
static const char *bank_name(const struct ul_saved *saved, uint64_t offset_bytes)
{
    uint32_t bank = saved->bank_count - 1;
    while (bank > 0 && (saved->banks[bank].reserved_bytes == 0 ||
                        offset_bytes < saved->banks[bank].begin_bytes))
        bank--;
    return saved->banks[bank].name;
}

void ul_csv_put_values(struct ul_text *text, const struct ul_saved *saved)
{
    ul_text_put(text, "name,type,class,copy,space,offset_bytes,size_bytes,begin_step,end_step,"
                      "alias_line,made_by,op");
    ul_text_put(text, saved->bank_count > 0 ? ",bank\r\n" : "\r\n");
    for (uint32_t i = 0; i < saved->range_count; i++) {
        const struct ul_saved_range *range = &saved->ranges[i];
        const struct ul_saved_step *maker = ul_saved_maker(saved, range);
        ul_text_put_csv(text, ul_saved_range_name(saved, text->arena, i));
        ul_text_put(text, ",");
        ul_facts_put_fields(text, ul_class_range(), range,
                            "type,class,copy,space,offset_bytes,size_bytes,begin,end");
        ul_text_put(text, ",");
        if (range->alias != UL_PLAN_NONE)
            ul_text_printf(text, "%" PRIu64, (uint64_t)range->alias + 2);
        ul_text_put(text, ",");
        ul_text_put_csv(text, maker != NULL ? maker->node : "");
        ul_text_put(text, ",");
        ul_text_put_csv(text, maker != NULL ? maker->op : "");
        if (saved->bank_count > 0) {
            ul_text_put(text, ",");
            ul_text_put_csv(text, range->space == 0 ? bank_name(saved, range->offset_bytes) : "");
        }
        ul_text_put(text, "\r\n");
    }
}

void ul_csv_put_steps(struct ul_text *text, const struct ul_saved *saved)
{
    uint64_t *curves[UL_SAVED_CURVES];
    const uint64_t *live = ul_saved_curves(saved, text->arena, curves);
    ul_text_put(text, "step,name,op,node,implementation,recomputation,flops,moved_bytes");
    for (uint32_t c = 0; c < UL_SAVED_CURVES; c++)
        ul_text_printf(text, ",%s_bytes", ul_report_row_name(c));
    ul_text_put(text, ",live_bytes\r\n");
    for (uint32_t i = 0; i < saved->step_count; i++) {
        ul_text_printf(text, "%" PRIu32 ",", i);
        ul_facts_put_fields(text, ul_class_step(), &saved->steps[i],
                            "name,op,node,implementation,copy,flops,moved_bytes");
        for (uint32_t c = 0; c < UL_SAVED_CURVES; c++)
            ul_text_printf(text, ",%" PRIu64, curves[c][i]);
        ul_text_printf(text, ",%" PRIu64 "\r\n", live[i]);
    }
}
