/* SPDX-License-Identifier: Apache-2.0 */
/* plan.json, written: tables as columns, one column a line, so that a diff of two plans reads.
 * docs/plan-format.md documents every key. */
#include "ir/view.h"
#include "report/report.h"

#include <inttypes.h>
#include <string.h>

static void put_key_string(struct ul_text *text, const char *key, const char *value)
{
    ul_text_printf(text, "  \"%s\": ", key);
    ul_text_put_json(text, value);
    ul_text_put(text, ",\n");
}

static void put_key_number(struct ul_text *text, const char *key, uint64_t value)
{
    ul_text_printf(text, "  \"%s\": %" PRIu64 ",\n", key, value);
}

static void put_key_bool(struct ul_text *text, const char *key, bool value)
{
    ul_text_printf(text, "  \"%s\": %s,\n", key, value ? "true" : "false");
}

/* "key": [ ... ] with one element from each call of the column's function. */
struct column {
    const char *key;
    void (*put)(struct ul_text *text, const struct ul_report *report, uint32_t row);
};

static void put_columns(struct ul_text *text, const struct ul_report *report, const char *name,
                        const struct column *columns, uint32_t column_count, uint32_t row_count)
{
    ul_text_printf(text, "  \"%s\": {", name);
    for (uint32_t c = 0; c < column_count; c++) {
        ul_text_printf(text, "%s\n    \"%s\": [", c == 0 ? "" : ",", columns[c].key);
        for (uint32_t i = 0; i < row_count; i++) {
            if (i > 0)
                ul_text_put(text, ", ");
            columns[c].put(text, report, i);
        }
        ul_text_put(text, "]");
    }
    ul_text_put(text, "\n  }");
}

static void put_u64(struct ul_text *text, uint64_t number)
{
    ul_text_printf(text, "%" PRIu64, number);
}

static void put_optional(struct ul_text *text, uint32_t id)
{
    if (id == UL_PLAN_NONE)
        ul_text_put(text, "null");
    else
        put_u64(text, id);
}

static void step_id(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    const struct ul_plan_position *at = &report->plan->positions[i];
    put_optional(text, at->kind == UL_PLAN_RUN ? at->step : UL_PLAN_NONE);
}

static void step_name(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    ul_text_put_json(text, ul_report_step_at(report, i).name);
}

static void step_op(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    ul_text_put_json(text, ul_report_step_at(report, i).op);
}

static void step_node(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    ul_text_put_json(text, ul_report_step_at(report, i).node);
}

static void step_source(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    const char *source = ul_report_step_at(report, i).source;
    if (source == NULL)
        ul_text_put(text, "null");
    else
        ul_text_put_json(text, source);
}

/* Of a program that trains; what is not run is of neither pass. */
static void step_pass(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    uint32_t forward_count = report->readers->forward_count;
    const struct ul_plan_position *at = &report->plan->positions[i];
    if (forward_count == 0 || at->kind != UL_PLAN_RUN)
        ul_text_put(text, "null");
    else
        ul_text_put_json(text, at->step < forward_count ? "forward" : "backward");
}

static void step_alternative(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    put_u64(text, report->plan->positions[i].alternative);
}

static void step_implementation(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    const struct ul_plan_position *at = &report->plan->positions[i];
    const char *name = at->kind != UL_PLAN_RUN
                           ? NULL
                           : report->problem->steps[at->step].alternatives[at->alternative].name;
    ul_text_put_json(text, name != NULL ? name : "");
}

static void step_substep(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    put_u64(text, report->plan->positions[i].substep);
}

static void step_copy(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    put_u64(text, report->plan->positions[i].copy);
}

static void step_flops(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    put_u64(text, ul_report_step_at(report, i).flop_count);
}

static void step_moved(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    put_u64(text, ul_report_step_at(report, i).moved_bytes);
}

static void step_kind(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    ul_text_put_json(text, ul_plan_kind_name(report->plan->positions[i].kind));
}

static void step_stream(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    put_u64(text, report->plan->positions[i].stream);
}

static void step_value(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    put_u64(text, report->plan->positions[i].value);
}

static void step_space(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    put_u64(text, ul_report_space_index(report->problem, report->plan->positions[i].space));
}

static void step_awaited(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    put_u64(text, report->plan->positions[i].awaited);
}

static void step_region(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    put_u64(text, report->plan->positions[i].region);
}

static void range_value(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    put_optional(text, report->plan->ranges[i].value);
}

static void range_name(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    const struct ul_plan_range *range = &report->plan->ranges[i];
    if (range->value != UL_PLAN_NONE)
        ul_text_put_json(text, report->values[range->value].name);
    else
        ul_text_put_json(text, ul_report_step_at(report, range->begin).name);
}

static void range_type(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    struct ul_text type;
    const struct ul_plan_range *range = &report->plan->ranges[i];
    ul_text_init(&type, text->arena);
    if (range->value != UL_PLAN_NONE)
        ul_type_print(&type, &report->values[range->value].type);
    ul_text_put_json(text, type.data);
}

/* How the elements lie in memory. */
static void range_storage(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    const struct ul_plan_range *range = &report->plan->ranges[i];
    ul_text_put_json(text, range->value == UL_PLAN_NONE
                               ? ""
                               : ul_dtype_get(report->values[range->value].storage)->name);
}

static void range_copy(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    put_u64(text, report->plan->ranges[i].copy);
}

static void range_class(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    ul_text_put_json(text, ul_report_row_name((uint32_t)report->plan->ranges[i].class));
}

static void range_space(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    put_u64(text, ul_report_space_index(report->problem, report->plan->ranges[i].space));
}

static void range_alias(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    put_optional(text, report->plan->ranges[i].alias);
}

static void range_offset(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    put_u64(text, report->plan->ranges[i].offset_bytes);
}

static void range_size(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    put_u64(text, report->plan->ranges[i].size_bytes);
}

static void range_begin(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    put_u64(text, report->plan->ranges[i].begin);
}

static void range_end(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    put_u64(text, report->plan->ranges[i].end);
}

static void range_readers(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    const struct ul_report_readers *readers = report->readers;
    ul_text_put(text, "[");
    for (uint32_t r = readers->first[i]; r < readers->first[i + 1]; r++)
        ul_text_printf(text, r == readers->first[i] ? "%" PRIu32 : ", %" PRIu32,
                       readers->positions[r]);
    ul_text_put(text, "]");
}

static void space_name(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    ul_text_put_json(text, report->problem->spaces[ul_report_space_at(report->problem, i)].name);
}

static void space_reserved(struct ul_text *text, const struct ul_report *report, uint32_t i)
{
    put_u64(text, report->plan->reserved_bytes[ul_report_space_at(report->problem, i)]);
}

/* A process is no smaller than its buffer, but for rows that nobody looks up. */
static bool is_misfit_proven(const struct ul_report *report)
{
    uint64_t reserved = report->plan->reserved_bytes[0];
    uint64_t buffer = report->budget_of_arena ? reserved : report->process.buffer_bytes;
    uint64_t unread = buffer < reserved && !report->process.starts_larger ? reserved - buffer : 0;
    uint64_t floor_bytes = ul_report_floor_bytes(report);
    return floor_bytes > unread && report->budget_bytes < floor_bytes - unread;
}

/* "process_of": whose the bytes are. */
static void put_process(struct ul_text *text, const struct ul_report *report)
{
    const struct ul_report_process *process = &report->process;
    put_key_number(text, "process_bytes", process->total_bytes);
    ul_text_printf(text,
                   "  \"process\": {\"buffer\": %" PRIu64 ", \"library\": %" PRIu64
                   ", \"code\": %" PRIu64 ", \"stacks\": %" PRIu64 ", \"runtime\": %" PRIu64 "},\n",
                   process->buffer_bytes, process->library_bytes, process->code_bytes,
                   process->stack_bytes, process->runtime_bytes);
    put_key_string(text, "process_of", ul_report_owner_name(ul_report_owner_of(process)));
    if (process->starts_larger)
        put_key_bool(text, "process_peak_at_start", true);
    if (process->is_of_device)
        ul_text_printf(text, "  \"process_lacks\": [%s%s%s],\n",
                       process->lacks_context ? "\"context\"" : "",
                       process->lacks_context && process->lacks_library ? ", " : "",
                       process->lacks_library ? "\"libraries\"" : "");
}

static void put_libraries(struct ul_text *text, const struct ul_report *report)
{
    if (report->library != NULL)
        put_key_string(text, "library", report->library);
    if (report->cudnn != NULL)
        put_key_string(text, "cudnn", report->cudnn);
    if (report->flash.code_bytes > 0)
        ul_text_printf(text, "  \"flash\": {\"weights\": %" PRIu64 ", \"code\": %" PRIu64 "},\n",
                       report->flash.weight_bytes, report->flash.code_bytes);
}

static void put_largest(struct ul_text *text, const struct ul_report *report)
{
    const struct ul_report_largest *largest = &report->largest;
    const char *key = largest->dim != NULL ? "size" : "batch";
    if (largest->size == 0)
        return;
    ul_text_printf(text, "  \"%s\": {", largest->dim != NULL ? "max_dim" : "max_batch");
    if (largest->dim != NULL) {
        ul_text_put(text, "\"name\": ");
        ul_text_put_json(text, largest->dim);
        ul_text_put(text, ", ");
    }
    ul_text_printf(text, "\"%s\": %" PRIu64 ", \"planned\": [", key, largest->size);
    for (uint32_t i = 0; i < largest->tried_count; i++)
        ul_text_printf(text, "%s{\"%s\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"fits\": %s}",
                       i == 0 ? "" : ", ", key, largest->tried[i].size,
                       largest->tried[i].needed_bytes, largest->tried[i].fits ? "true" : "false");
    ul_text_put(text, "]");
    if (largest->reason != NULL) {
        ul_text_put(text, ", \"why_not_larger\": ");
        ul_text_put_json(text, largest->reason);
    }
    ul_text_put(text, "},\n");
}

static void put_parts(struct ul_text *text, const struct ul_report *report)
{
    const struct ul_report_parts *parts = &report->parts;
    if (parts->parts == 0)
        return;
    ul_text_printf(text, "  \"micro_batches\": {\"count\": %" PRIu64 ", \"planned\": [",
                   parts->parts);
    for (uint32_t i = 0; i < parts->tried_count; i++)
        ul_text_printf(text,
                       "%s{\"count\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"cost\": %" PRIu64
                       ", \"fits\": %s}",
                       i == 0 ? "" : ", ", parts->tried[i].parts, parts->tried[i].needed_bytes,
                       parts->tried[i].step_cost, parts->tried[i].fits ? "true" : "false");
    ul_text_put(text, "]},\n");
}

static void put_head(struct ul_text *text, const struct ul_report *report)
{
    const struct ul_plan *plan = report->plan;
    ul_text_put(text, "{\n");
    put_key_string(text, "format", "ullage-plan");
    put_key_number(text, "version", 1);
    put_key_string(text, "tool", "ullage " UL_VERSION);
    put_key_string(text, "model", report->model_name);
    put_key_string(text, "model_sha256", report->model_sha256);
    if (report->opset > 0)
        put_key_number(text, "opset", (uint64_t)report->opset);
    put_key_string(text, "target", report->target);
    put_process(text, report);
    put_key_number(text, "reserved_bytes", plan->reserved_bytes[0]);
    put_key_number(text, "order_lower_bound_bytes", plan->order_lower_bound_bytes);
    put_key_number(text, "orders_lower_bound_bytes", plan->orders_lower_bound_bytes);
    put_key_number(text, "lower_bound_bytes", plan->lower_bound_bytes);
    put_key_number(text, "alignment_bytes", plan->alignment_bytes);
    if (report->budget_bytes > 0)
        put_key_number(text, "budget_bytes", report->budget_bytes);
    if (report->device != NULL) {
        ul_text_put(text, "  \"device\": {\"name\": ");
        ul_text_put_json(text, report->device);
        ul_text_printf(text, ", \"memory_bytes\": %" PRIu64 "},\n", report->device_bytes);
    }
    put_key_string(text, "budget_of", report->budget_of_arena ? "arena" : "process");
    put_libraries(text, report);
    put_key_bool(text, "fits", plan->fits);
    /* Of what does not fit: that nothing does. */
    put_key_bool(text, "proven", plan->fits ? plan->packing_proven : is_misfit_proven(report));
    put_key_bool(text, "optimal", plan->optimal);
    if (plan->cost_bound > 0)
        put_key_number(text, "cost_bound", plan->cost_bound);
    if (plan->cost_bound_method != NULL)
        put_key_string(text, "cost_bound_method", plan->cost_bound_method);
    if (plan->optimal_within != NULL)
        put_key_string(text, "optimal_within", plan->optimal_within);
    put_key_bool(text, "stopped_by_time", plan->stopped_by_time);
    put_key_number(text, "smallest_budget_bytes", plan->smallest_budget_bytes);
    put_largest(text, report);
    put_parts(text, report);
    ul_report_put_training_json(text, report);
    put_key_number(text, "peak_step", plan->peak_position);
    put_key_number(text, "cost", plan->cost);
    if (report->step_cost != plan->cost)
        put_key_number(text, "step_cost", report->step_cost);
    put_key_number(text, "base_cost", plan->base_cost);
    ul_text_printf(text, "  \"overhead\": %.9g,\n", ul_plan_overhead(plan->cost, plan->base_cost));
    ul_text_put(text, "  \"method\": {\"order\": ");
    ul_text_put_json(text, plan->order_method);
    ul_text_put(text, ", \"remat\": ");
    ul_text_put_json(text, plan->remat_method);
    ul_text_put(text, ", \"pack\": ");
    ul_text_put_json(text, plan->pack_method);
    ul_text_put(text, "},\n");
}

void ul_report_put_options_json(struct ul_text *text, const struct ul_report_option *options,
                                uint32_t count)
{
    ul_text_put(text, "  \"options\": [");
    for (uint32_t i = 0; i < count; i++) {
        ul_text_put(text, i == 0 ? "[" : ", [");
        ul_text_put_json(text, options[i].name);
        ul_text_put(text, ", ");
        ul_text_put_json(text, options[i].value);
        ul_text_put(text, "]");
    }
    ul_text_put(text, "],\n");
}

/* What a quantized model's weights are, and which products are left in floats. */
static void put_types(struct ul_text *text, const struct ul_report *report)
{
    uint64_t bytes[UL_DTYPE_COUNT];
    bool any = false;
    if (ul_report_weight_bytes(report, bytes)) {
        ul_text_put(text, "  \"weights_by_type\": {");
        for (uint32_t t = 0; t < UL_DTYPE_COUNT; t++) {
            if (bytes[t] == 0)
                continue;
            ul_text_printf(text, "%s\"%s\": %" PRIu64, any ? ", " : "",
                           ul_dtype_get((enum ul_dtype)t)->name, bytes[t]);
            any = true;
        }
        ul_text_put(text, "},\n");
    }
    for (uint32_t i = 0; i < report->float_count; i++) {
        const struct ul_report_float *product = &report->floats[i];
        ul_text_put(text, i == 0 ? "  \"in_floats\": [" : ", ");
        ul_text_put(text, "{\"node\": ");
        ul_text_put_json(text, product->node);
        ul_text_put(text, ", \"op\": ");
        ul_text_put_json(text, product->op);
        ul_text_put(text, ", \"why\": ");
        ul_text_put_json(text, product->why);
        ul_text_put(text, i + 1 < report->float_count ? "}" : "}],\n");
    }
}

/* What is copied to another space and back, and how much longer that has a run take. */
static void put_transfers(struct ul_text *text, const struct ul_report *report)
{
    struct ul_report_transfers transfers;
    ul_report_count_transfers(report, &transfers);
    if (transfers.save_count + transfers.load_count == 0)
        return;
    ul_text_printf(text,
                   "  \"transfers\": {\n    \"saves\": %u,\n    \"loads\": %u,\n"
                   "    \"saved_bytes\": %" PRIu64 ",\n    \"loaded_bytes\": %" PRIu64
                   ",\n    \"exposed_cost\": %" PRIu64 "\n  },\n",
                   transfers.save_count, transfers.load_count, transfers.saved_bytes,
                   transfers.loaded_bytes, transfers.exposed_cost);
}

/* What is f32 where 16 bits are asked for. */
static void put_kept(struct ul_text *text, const struct ul_report *report)
{
    struct ul_report_kept kept[UL_KEPT_COUNT];
    uint32_t count = ul_report_list_kept(report, text->arena, kept);
    for (uint32_t i = 0; i < count; i++) {
        ul_text_printf(text,
                       "%s    {\"reason\": \"%s\", \"why\": \"%s\", \"count\": %u, "
                       "\"bytes\": %" PRIu64 ", \"values\": [",
                       i == 0 ? "  \"stays_f32\": [\n" : ",\n", ul_kept_get(kept[i].kept),
                       ul_report_kept_text(kept[i].kept), kept[i].value_count, kept[i].bytes);
        for (uint32_t v = 0; v < kept[i].value_count; v++)
            ul_text_printf(text, "%s%u", v == 0 ? "" : ", ", kept[i].values[v]);
        ul_text_put(text, i + 1 < count ? "]}" : "]}\n  ],\n");
    }
}

static void put_launches(struct ul_text *text, const struct ul_report_launches *launches)
{
    if (launches->launch_count == UINT64_MAX)
        return;
    ul_text_printf(text,
                   "  \"launches\": {\n    \"count\": %" PRIu64 ",\n    \"of_libraries\": %" PRIu64
                   ",\n    \"shared_ns\": %" PRIu64 ",\n    \"scalar_products\": %" PRIu64
                   ",\n    \"narrow_steps\": %" PRIu64 ",\n    \"idle_products\": %" PRIu64
                   ",\n    \"identity_steps\": %" PRIu64 ",\n    \"softmaxes\": %" PRIu64,
                   launches->launch_count, launches->call_count, launches->shared_ns,
                   launches->scalar_count, launches->narrow_count, launches->idle_count,
                   launches->identity_count, launches->softmax_count);
    if (launches->beside_count > 0)
        ul_text_printf(text,
                       ",\n    \"streams\": 2,\n    \"on_second_stream\": %" PRIu64
                       ",\n    \"waits\": %" PRIu64,
                       launches->beside_count, launches->wait_count);
    ul_text_put(text, "\n  },\n");
}

static void put_rows(struct ul_text *text, const struct ul_report *report)
{
    ul_text_put(text, "  \"rows\": {");
    for (uint32_t i = 0; i < UL_REPORT_ROW_COUNT; i++) {
        uint64_t bytes = ul_report_row_bytes(report, i);
        if (bytes > 0 || !ul_report_row_is_optional(i))
            ul_text_printf(text, "%s\n    \"%s\": %" PRIu64, i == 0 ? "" : ",",
                           ul_report_row_name(i), bytes);
    }
    ul_text_put(text, "\n  },\n");
    if (ul_report_has_calls(report))
        ul_text_printf(text,
                       "  \"for_library\": {\n    \"packing_bytes\": %" PRIu64
                       ",\n    \"operand_bytes\": %" PRIu64 "\n  },\n",
                       ul_report_packing_bytes(report),
                       ul_report_operand_bytes(report, text->arena));
    put_launches(text, &report->launches);
    put_types(text, report);
    put_transfers(text, report);
    if (ul_report_precision(report) != NULL)
        ul_text_printf(text,
                       "  \"for_precision\": {\n    \"saved_bytes\": %" PRIu64
                       ",\n    \"too_large_count\": %u,\n    \"uncalled_count\": %u\n  },\n",
                       ul_report_precision_bytes(report, text->arena), ul_report_too_large(report),
                       report->uncalled_count);
    put_kept(text, report);
}

static void put_tables(struct ul_text *text, const struct ul_report *report)
{
    static const struct column steps[] = {
        {"step", step_id},
        {"name", step_name},
        {"op", step_op},
        {"node", step_node},
        {"source", step_source},
        {"pass", step_pass},
        {"copy", step_copy},
        {"alternative", step_alternative},
        {"implementation", step_implementation},
        {"part", step_substep},
        {"flops", step_flops},
        {"moved_bytes", step_moved},
        {"kind", step_kind}, /* from here on: where not all is run on stream 0 */
        {"stream", step_stream},
        {"value", step_value},
        {"space", step_space},
        {"awaited", step_awaited},
        {"region", step_region},
    };
    enum { STEP_COLUMNS = sizeof steps / sizeof *steps, RUN_COLUMNS = 12 };
    static const struct column ranges[] = {
        {"value", range_value},     {"name", range_name},
        {"type", range_type},       {"copy", range_copy},
        {"class", range_class},     {"space", range_space},
        {"alias", range_alias},     {"offset_bytes", range_offset},
        {"size_bytes", range_size}, {"begin", range_begin},
        {"end", range_end},         {"readers", range_readers},
        {"storage", range_storage}, /* the last: precision.c */
    };
    bool rounds = ul_report_precision(report) != NULL;
    static const struct column spaces[] = {{"name", space_name},
                                           {"reserved_bytes", space_reserved}};
    put_columns(text, report, "spaces", spaces, sizeof spaces / sizeof *spaces,
                ul_report_space_index(report->problem, report->problem->space_count));
    ul_text_put(text, ",\n");
    put_columns(text, report, "steps", steps,
                ul_plan_only_runs(report->plan) ? RUN_COLUMNS : STEP_COLUMNS,
                report->plan->position_count);
    ul_text_put(text, ",\n");
    put_columns(text, report, "ranges", ranges, sizeof ranges / sizeof *ranges - (rounds ? 0 : 1),
                report->plan->range_count);
}

void ul_report_put_json(struct ul_text *text, const struct ul_report *report)
{
    struct ul_report_readers readers;
    struct ul_report own = *report;
    ul_report_find_readers(report, text->arena, &readers);
    own.readers = &readers;
    put_head(text, report);
    ul_report_put_options_json(text, report->options, report->option_count);
    put_rows(text, report);
    ul_report_put_advice_json(text, report);
    put_tables(text, &own);
    ul_text_put(text, "\n}\n");
}
