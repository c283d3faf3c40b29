/* SPDX-License-Identifier: Apache-2.0 */
/* What makes a plan smaller, and what stands in the way, as members of plan.json. */
#include "report/report.h"

#include <inttypes.h>

static void put_remedies(struct ul_text *text, const struct ul_report *report)
{
    const struct ul_report_advice *advice = &report->advice;
    enum ul_report_owner own = ul_report_owner_of(&report->process);
    if (!advice->is_made)
        return;
    ul_text_printf(text, "  \"remedies_tried\": %" PRIu32 ",\n  \"remedies\": [",
                   advice->tried_count);
    for (uint32_t i = 0; i < advice->remedy_count; i++) {
        const struct ul_report_remedy *remedy = &advice->remedies[i];
        ul_text_printf(text, "%s\n    {\"kind\": \"%s\", \"change\": ", i == 0 ? "" : ",",
                       remedy->kind);
        ul_text_put_json(text, remedy->change);
        ul_text_printf(
            text,
            ", \"applied\": %s, \"same_bits\": %s, \"fits\": %s, "
            "\"reserved_bytes\": %" PRIu64 ", \"process_bytes\": %" PRIu64 ", \"cost\": %" PRIu64
            ", \"saved_bytes\": %" PRId64 ", \"extra_cost\": %" PRId64,
            remedy->is_applied ? "true" : "false", remedy->keeps_bits ? "true" : "false",
            remedy->fits ? "true" : "false", remedy->reserved_bytes, remedy->process_bytes,
            remedy->cost, remedy->saved_bytes, remedy->extra_cost);
        if (remedy->owner != own)
            ul_text_printf(text, ", \"process_of\": \"%s\"", ul_report_owner_name(remedy->owner));
        ul_text_put(text, "}");
    }
    ul_text_put(text, advice->remedy_count > 0 ? "\n  ],\n" : "],\n");
}

/* The first run of a step; every step has one. */
static uint32_t position_of(const struct ul_plan *plan, uint32_t step)
{
    uint32_t p = 0;
    while (plan->positions[p].kind != UL_PLAN_RUN || plan->positions[p].step != step)
        p++;
    return p;
}

static void put_blockers(struct ul_text *text, const struct ul_report *report)
{
    enum { WANTED = 3 };
    uint32_t steps[WANTED];
    uint64_t need_bytes[WANTED];
    uint32_t count = report->plan->position_count == 0
                         ? 0
                         : ul_report_blockers(report, text->arena, WANTED, steps, need_bytes);
    ul_text_put(text, "  \"blockers\": [");
    for (uint32_t i = 0; i < count; i++)
        ul_text_printf(text, "%s{\"step\": %" PRIu32 ", \"bytes\": %" PRIu64 "}",
                       i == 0 ? "" : ", ", position_of(report->plan, steps[i]), need_bytes[i]);
    ul_text_put(text, "],\n");
}

void ul_report_put_advice_json(struct ul_text *text, const struct ul_report *report)
{
    put_blockers(text, report);
    put_remedies(text, report);
    if (report->ladder != NULL && report->ladder->count > 0)
        ul_report_put_rungs_json(text, report, report->ladder);
}
