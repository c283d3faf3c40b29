/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as a trace for Perfetto (trace-event format, JSON). Complete slices of one track may not
 * overlap; values do, so each is a pair of asynchronous events with an id of its own. */
#include "report/saved.h"

#include <inttypes.h>

enum { PROCESS = 1, STEPS = 1 }; /* ids of the process and of the track of steps */

static void begin_event(struct ul_text *text, const char *phase, const char *name, uint64_t at)
{
    ul_text_printf(text, ",\n{\"ph\": \"%s\", \"pid\": %d, \"ts\": %" PRIu64 ", \"name\": ", phase,
                   PROCESS, at);
    ul_text_put_json(text, name);
}

static void put_names(struct ul_text *text, const struct ul_saved *saved)
{
    ul_text_printf(
        text,
        "{\"ph\": \"M\", \"pid\": %d, \"name\": \"process_name\", \"args\": {\"name\": ", PROCESS);
    ul_text_put_json(text, saved->model);
    ul_text_printf(text,
                   "}},\n{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"thread_name\", "
                   "\"args\": {\"name\": \"steps\"}}",
                   PROCESS, STEPS);
}

static void put_steps(struct ul_text *text, const struct ul_saved *saved)
{
    for (uint32_t i = 0; i < saved->step_count; i++) {
        const struct ul_saved_step *step = &saved->steps[i];
        begin_event(text, "X", step->name, i);
        ul_text_printf(text, ", \"tid\": %d, \"dur\": 1, \"args\": {\"op\": ", STEPS);
        ul_text_put_json(text, step->op);
        ul_text_put(text, ", \"implementation\": ");
        ul_text_put_json(text, step->implementation);
        ul_text_printf(text,
                       ", \"recomputation\": %" PRIu32 ", \"flops\": %" PRIu64
                       ", \"moved_bytes\": %" PRIu64 "}}",
                       step->copy, step->flops, step->moved_bytes);
    }
}

static void put_values(struct ul_text *text, const struct ul_saved *saved)
{
    for (uint32_t i = 0; i < saved->range_count; i++) {
        const struct ul_saved_range *range = &saved->ranges[i];
        const char *name = ul_saved_range_name(saved, text->arena, i);
        if (range->begin == range->end)
            continue;
        begin_event(text, "b", name, range->begin);
        ul_text_printf(text,
                       ", \"cat\": \"values\", \"id\": %" PRIu32 ", \"args\": {\"class\": ", i);
        ul_text_put_json(text, ul_report_row_name(range->class));
        ul_text_put(text, ", \"type\": ");
        ul_text_put_json(text, range->type);
        ul_text_printf(text,
                       ", \"space\": %" PRIu32 ", \"offset_bytes\": %" PRIu64
                       ", \"size_bytes\": %" PRIu64 "}}",
                       range->space, range->offset_bytes, range->size_bytes);
        begin_event(text, "e", name, range->end);
        ul_text_printf(text, ", \"cat\": \"values\", \"id\": %" PRIu32 "}", i);
    }
}

/* Writes one counter with a series for each class in use. */
static void put_counters(struct ul_text *text, const struct ul_saved *saved)
{
    uint64_t *curves[UL_SAVED_CURVES];
    bool is_there[UL_SAVED_CURVES] = {false};
    ul_saved_curves(saved, text->arena, curves);
    for (uint32_t c = 0; c < UL_SAVED_CURVES; c++)
        for (uint32_t p = 0; p < saved->step_count; p++)
            is_there[c] = is_there[c] || curves[c][p] > 0;
    for (uint32_t p = 0; p <= saved->step_count && saved->step_count > 0; p++) {
        bool is_first = true;
        begin_event(text, "C", "live bytes", p);
        ul_text_put(text, ", \"args\": {");
        for (uint32_t c = 0; c < UL_SAVED_CURVES; c++) {
            if (!is_there[c])
                continue;
            ul_text_put(text, is_first ? "" : ", ");
            ul_text_put_json(text, ul_report_row_name(c));
            ul_text_printf(text, ": %" PRIu64, p < saved->step_count ? curves[c][p] : 0);
            is_first = false;
        }
        ul_text_put(text, "}}");
    }
}

void ul_trace_put(struct ul_text *text, const struct ul_saved *saved)
{
    ul_text_put(text, "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n");
    put_names(text, saved);
    put_steps(text, saved);
    put_counters(text, saved);
    put_values(text, saved);
    ul_text_put(text, "\n]}\n");
}
