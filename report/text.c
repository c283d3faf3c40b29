/* The summary of a plan for a terminal: what is reserved, of which kinds, which step makes the
 * peak and which values lie there, and how far from the bounds that is. ASCII, 80 columns. */
#include "planner/solve/solve.h"
#include "report/report.h"

#include <inttypes.h>
#include <string.h>

enum { TOP_VALUES = 10, NAME_COLUMNS = 36 };

static struct ul_report_unit unit_of(const struct ul_report *report)
{
    return ul_report_unit_of(report->plan->reserved_bytes[0]);
}

static double in_unit(const struct ul_report *report, uint64_t bytes)
{
    return (double)bytes / unit_of(report).bytes;
}

static void put_verdict(struct ul_text *text, const struct ul_report *report)
{
    const struct ul_plan *plan = report->plan;
    const char *unit = unit_of(report).name;
    uint64_t reserved = plan->reserved_bytes[0];
    ul_text_printf(text, "%s (target %s) needs %.2f %s = %" PRIu64 " bytes, all of it.\n",
                   ul_report_fit_name(text->arena, report->model_name, NAME_COLUMNS),
                   report->target, in_unit(report, reserved), unit, reserved);
    if (report->budget_bytes == 0)
        return;
    uint64_t needed = report->budget_of_arena ? reserved : report->process.total_bytes;
    const char *of = report->budget_of_arena        ? "for the buffer alone"
                     : report->process.is_of_device ? "of the device, as far as it is known,"
                     : report->process.is_whole     ? "for the process"
                                                    : "for buffer, library and stacks";
    if (plan->fits)
        ul_text_printf(text, "It fits the budget of %" PRIu64 " bytes %s with %.2f %s to spare.\n",
                       report->budget_bytes, of, in_unit(report, report->budget_bytes - needed),
                       unit);
    else
        ul_text_printf(
            text, "It does not fit the budget of %" PRIu64 " bytes %s: %" PRIu64 " bytes short.\n",
            report->budget_bytes, of, needed - report->budget_bytes);
}

/* That it is the largest is shown by the next one. */
static void put_largest(struct ul_text *text, const struct ul_report *report)
{
    const struct ul_report_largest *largest = &report->largest;
    if (largest->size == 0)
        return;
    if (largest->dim == NULL)
        ul_text_printf(text, "A batch of %" PRIu64 " fits; ", largest->size);
    else
        ul_text_printf(text, "%s = %" PRIu64 " fits; ",
                       ul_report_fit_name(text->arena, largest->dim, NAME_COLUMNS), largest->size);
    if (largest->reason != NULL)
        ul_text_printf(text, "%" PRIu64 " the model does not take: %s", largest->refused,
                       largest->reason);
    for (uint32_t i = 0; i < largest->tried_count; i++)
        if (largest->tried[i].size == largest->size + largest->unit)
            ul_text_printf(text, "the smallest plan known for %" PRIu64 " takes %" PRIu64 " bytes",
                           largest->tried[i].size, largest->tried[i].needed_bytes);
    ul_text_put(text, ".\nPlanned:");
    for (uint32_t i = 0; i < largest->tried_count; i++)
        ul_text_printf(text, "%s %" PRIu64 "%s", i == 0 ? "" : ",", largest->tried[i].size,
                       largest->tried[i].fits ? "" : " (no)");
    ul_text_put(text, ".\n");
}

static void put_parts(struct ul_text *text, const struct ul_report *report)
{
    const struct ul_report_parts *parts = &report->parts;
    if (parts->parts == 0)
        return;
    ul_text_printf(text, "A step takes the least time as %" PRIu64 " micro-batch%s. Planned:",
                   parts->parts, parts->parts == 1 ? "" : "es");
    for (uint32_t i = 0; i < parts->tried_count; i++)
        ul_text_printf(text, "%s %" PRIu64 " (%s%.4g ms)", i == 0 ? "" : ",", parts->tried[i].parts,
                       parts->tried[i].fits ? "" : "does not fit, ",
                       (double)parts->tried[i].step_cost * 1e-6);
    ul_text_put(text, ".\n");
}

/* A part of the row above it. */
static void put_part(struct ul_text *text, const struct ul_report *report, const char *label,
                     uint64_t bytes)
{
    if (bytes > 0)
        ul_text_printf(text, "    %-27s %8.2f %18" PRIu64 "\n", label, in_unit(report, bytes),
                       bytes);
}

static void put_rows(struct ul_text *text, const struct ul_report *report)
{
    ul_text_printf(text, "\n  at the peak                        %s              bytes\n",
                   unit_of(report).name);
    for (uint32_t row = 0; row < UL_REPORT_ROW_COUNT; row++) {
        uint64_t bytes = ul_report_row_bytes(report, row);
        /* Rows of training are no news in a plan for inference; sums must still add up. */
        bool optional = row == UL_PLAN_OPTIMIZER || row == UL_PLAN_GRADIENTS ||
                        row == UL_PLAN_SAVED || ul_report_row_is_optional(row);
        if (!optional || bytes > 0)
            ul_text_printf(text, "  %-29s %8.2f %18" PRIu64 "\n",
                           ul_report_row_label(text->arena, row), in_unit(report, bytes), bytes);
        if (row == UL_PLAN_WEIGHTS)
            put_part(text, report, "of it the library's packing", ul_report_packing_bytes(report));
        if (row == UL_PLAN_ACTIVATIONS)
            put_part(text, report, "of it operands of its calls",
                     ul_report_operand_bytes(report, text->arena));
    }
    ul_text_printf(text, "  %-29s %8.2f %18" PRIu64 "\n", "reserved",
                   in_unit(report, report->plan->reserved_bytes[0]),
                   report->plan->reserved_bytes[0]);
}

static void put_row(struct ul_text *text, const struct ul_report *report, const char *label,
                    uint64_t bytes)
{
    ul_text_printf(text, "  %-29s %8.2f %18" PRIu64 "\n", label, in_unit(report, bytes), bytes);
}

/* What lies in none of the program's memory that is written: what a microcontroller has in flash,
 * and buffers of the caller, which are none of the plan's. */
static void put_others(struct ul_text *text, const struct ul_report *report)
{
    const struct ul_report_flash *flash = &report->flash;
    const struct ul_plan *plan = report->plan;
    bool has_flash = flash->code_bytes > 0;
    if (has_flash) {
        put_row(text, report, "flash", flash->weight_bytes + flash->code_bytes);
        put_part(text, report, "of it read-only weights", flash->weight_bytes);
        put_part(text, report, "of it code, by gcc -O2", flash->code_bytes);
    }
    for (uint32_t s = 1; s < plan->space_count; s++) {
        bool is_flash = has_flash && s == UL_REPORT_READ_ONLY;
        if (plan->reserved_bytes[s] > 0 && !is_flash && !report->problem->spaces[s].beside)
            put_row(text, report, report->problem->spaces[s].name, plan->reserved_bytes[s]);
    }
}

/* Of a device's memory, and what of it is not known. */
static void put_device(struct ul_text *text, const struct ul_report *report)
{
    const struct ul_report_process *process = &report->process;
    if (process->library_bytes > 0)
        put_row(text, report, "libraries' own, by profile", process->library_bytes);
    if (process->runtime_bytes > 0)
        put_row(text, report, "context, by profile", process->runtime_bytes);
    put_row(text, report, "device, as far as it is known", process->total_bytes);
    ul_text_printf(text,
                   "  Not known before it runs: %s%sthe captured run,\n"
                   "  and what CUDA rounds up; the program's --memory measures all of it.\n",
                   process->lacks_context ? "the context, " : "",
                   process->lacks_library ? "what libraries keep, " : "");
}

/* Beside the buffer; what stands in rows of reserved bytes but is never there has one of its own.
 */
static void put_process(struct ul_text *text, const struct ul_report *report)
{
    const struct ul_report_process *process = &report->process;
    uint64_t reserved = report->plan->reserved_bytes[0];
    if (process->is_of_device) {
        put_device(text, report);
        return;
    }
    if (process->starts_larger)
        put_part(text, report, "at set-up, which needs most", process->buffer_bytes);
    else if (process->buffer_bytes < reserved)
        put_part(text, report, "of it rows never looked up", reserved - process->buffer_bytes);
    if (report->library != NULL)
        put_row(text, report, "library's own", process->library_bytes);
    if (process->is_whole)
        put_row(text, report, "code", process->code_bytes);
    put_row(text, report, "stacks", process->stack_bytes);
    put_part(text, report, "of it libraries', a guess", process->library_stack_bytes);
    if (process->is_whole)
        put_row(text, report, "runtime", process->runtime_bytes);
    put_row(text, report, process->is_whole ? "process" : "RAM of the caller's process",
            process->total_bytes);
    put_others(text, report);
}

/* What another storage saves of these very values, and what it could not be had for. */
static void put_precision(struct ul_text *text, const struct ul_report *report)
{
    const char *precision = ul_report_precision(report);
    const char *name = "";
    if (precision == NULL)
        return;
    uint64_t bytes = ul_report_precision_bytes(report, text->arena);
    uint32_t uncalled = report->uncalled_count;
    uint32_t too_large = ul_report_too_large(report, &name);
    ul_text_printf(text,
                   "\nThe same values at the peak would be %.2f %s = %" PRIu64
                   " bytes more in f32;\n"
                   "a plan without --precision %s has other kernels and scratch as well.\n",
                   in_unit(report, bytes), unit_of(report).name, bytes, precision);
    if (uncalled > 0)
        ul_text_printf(text, "%u %s of %s by kernels of ours, not by %s.\n", uncalled,
                       uncalled == 1 ? "product" : "products", precision, report->library);
    if (too_large > 0)
        ul_text_printf(text, "%u %s f32: %s has numbers that are infinite in %s.\n", too_large,
                       too_large == 1 ? "weight stays" : "weights stay",
                       ul_report_fit_name(text->arena, name, NAME_COLUMNS), precision);
}

static void put_peak(struct ul_text *text, const struct ul_report *report)
{
    const struct ul_plan *plan = report->plan;
    if (plan->position_count == 0)
        return;
    uint32_t *alive;
    uint32_t count = ul_report_alive(report, text->arena, TOP_VALUES, &alive);
    struct ul_report_step step = ul_report_step_at(report, plan->peak_position);
    ul_text_printf(text,
                   "\nThe peak is at step %u (of 0 to %u), %s (%.24s).\n"
                   "Beside the weights%s there live:\n",
                   plan->peak_position, plan->position_count - 1,
                   ul_report_fit_name(text->arena, step.node, NAME_COLUMNS), step.op,
                   plan->rows.class_bytes[UL_PLAN_OPTIMIZER] > 0 ? " and the optimizer's state"
                                                                 : "");
    uint64_t others = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_plan_range *range = &plan->ranges[alive[i]];
        if (i >= TOP_VALUES) {
            others += range->size_bytes;
            continue;
        }
        bool scratch = range->value == UL_PLAN_NONE;
        ul_text_printf(text, "  %8.2f %s  %-36s steps %u to %u\n",
                       in_unit(report, range->size_bytes), unit_of(report).name,
                       scratch ? "(scratch)"
                               : ul_report_fit_name(text->arena, report->values[range->value].name,
                                                    NAME_COLUMNS),
                       range->begin, range->end - 1);
    }
    if (count > TOP_VALUES)
        ul_text_printf(text, "  %8.2f %s  %u others\n", in_unit(report, others),
                       unit_of(report).name, count - TOP_VALUES);
}

static void put_time(struct ul_text *text, const struct ul_report *report)
{
    const struct ul_plan *plan = report->plan;
    const char *profile = ul_report_option(report, "profile");
    double more = 100.0 * ul_plan_overhead(plan->cost, plan->base_cost);
    if (profile == NULL)
        return;
    ul_text_printf(text, "Predicted: %.4g ms a run on %s", (double)plan->cost * 1e-6,
                   ul_report_fit_name(text->arena, profile, NAME_COLUMNS));
    if (plan->cost != plan->base_cost)
        ul_text_printf(text, ", %.2f %% %s time for less memory", more < 0 ? -more : more,
                       more < 0 ? "less" : "more");
    ul_text_put(text, ".\n");
}

/* What the libraries of a device were planned with. */
static void put_libraries(struct ul_text *text, const struct ul_report *report)
{
    const char *workspace = ul_report_option(report, "workspace");
    uint64_t bytes;
    if (workspace == NULL || report->cudnn == NULL || !ul_size_parse(workspace, &bytes))
        return;
    ul_text_printf(text, "Library calls: at most %s of workspace each, cuDNN %s%s.\n",
                   ul_size_format(text->arena, bytes), report->cudnn,
                   ul_report_option(report, "tf32") != NULL ? ", factors in TF32" : "");
}

/* What an option that may be repeated names: the first, and how many more. */
static void put_named(struct ul_text *text, const struct ul_report *report, const char *option,
                      const char *title)
{
    enum { MAX_NAMED = 6 };
    uint32_t count = 0;
    for (uint32_t i = 0; i < report->option_count; i++) {
        if (strcmp(report->options[i].name, option) != 0)
            continue;
        if (count == 0)
            ul_text_printf(text, "\n%s:\n", title);
        if (count++ < MAX_NAMED)
            ul_text_printf(text, "      %s\n", ul_quote(text->arena, report->options[i].value));
    }
    if (count > MAX_NAMED)
        ul_text_printf(text, "      and %u more\n", count - MAX_NAMED);
}

/* How the program differs from the one that is built without a budget. */
static void put_variant(struct ul_text *text, const struct ul_report *report)
{
    put_named(text, report, "split", "In pieces, FIRST..LAST:AXIS:PIECES");
    put_named(text, report, "inside", "Computed by what reads it in the backward pass");
    put_named(text, report, "row-major", "Laid out as in the model, with what is laid out alike");
}

/* Under a budget: how much of the time has to be, and who says so. */
static void put_cost_bound(struct ul_text *text, const struct ul_report *report)
{
    const struct ul_plan *plan = report->plan;
    const char *method = plan->cost_bound_method;
    if (plan->cost_bound == 0 || !plan->fits)
        return;
    double gap = 100.0 * (double)(plan->cost - plan->cost_bound) / (double)plan->cost_bound;
    ul_text_put(text, "No plan of these kernels within the budget takes less time than this");
    if (plan->cost > plan->cost_bound)
        ul_text_printf(text, " less %.2f %%", gap);
    if (plan->cost_bound <= ul_problem_min_cost(report->problem))
        ul_text_put(text, " (every step once, the fastest way: checked).\n");
    else
        ul_text_printf(text, " (%s: the planner's word).\n",
                       method != NULL ? method : "no method is named");
    if (plan->optimal_within != NULL)
        ul_text_printf(text, "Least time (the planner's word) within: %s.\n", plan->optimal_within);
}

static void put_bounds(struct ul_text *text, const struct ul_report *report)
{
    const struct ul_plan *plan = report->plan;
    uint64_t reserved = plan->reserved_bytes[0];
    uint64_t bound = plan->order_lower_bound_bytes;
    double gap = bound == 0 ? 0 : 100.0 * (double)(reserved - bound) / (double)bound;
    ul_text_printf(text, "\nNo packing of this order is below %" PRIu64 " bytes (gap %.2f %%%s);\n",
                   bound, gap, plan->packing_proven && reserved == bound ? ", proven least" : "");
    if (plan->packing_proven && reserved > bound)
        ul_text_put(text, "nor below this one: proven least (the planner's word);\n");
    if (plan->orders_lower_bound_bytes > plan->lower_bound_bytes &&
        plan->orders_lower_bound_bytes <= bound)
        ul_text_printf(text, "no order without recomputation is below %" PRIu64 " bytes%s;\n",
                       plan->orders_lower_bound_bytes,
                       plan->orders_lower_bound_bytes == reserved ? ": none is better" : "");
    ul_text_printf(text, "no order of these kernels is below %" PRIu64 " bytes%s.\n",
                   plan->lower_bound_bytes,
                   reserved == plan->lower_bound_bytes ? ": none is smaller" : "");
    put_cost_bound(text, report);
    uint32_t again;
    double operations = ul_report_repeated(report, &again);
    if (again > 0)
        ul_text_printf(text, "%u %s again, %.2f %% more operations. ", again,
                       again == 1 ? "step runs" : "steps run", 100 * operations);
    ul_text_printf(text, "Order: %s. Recompute: %s.%sPacking: %s. Checked independently.\n",
                   plan->order_method, plan->remat_method, again > 0 ? "\n" : " ",
                   plan->pack_method);
    put_libraries(text, report);
    put_time(text, report);
    ul_report_put_training(text, report);
}

void ul_report_put_text(struct ul_text *text, const struct ul_report *report)
{
    put_verdict(text, report);
    put_largest(text, report);
    put_parts(text, report);
    put_rows(text, report);
    put_process(text, report);
    put_precision(text, report);
    put_peak(text, report);
    put_variant(text, report);
    put_bounds(text, report);
}
