/* SPDX-License-Identifier: Apache-2.0 */
/* A ladder of plans as a table, for terminals, as CSV and as JSON: what saving each byte costs.
 * docs/plan-format.md documents the columns. */
#include "report/saved.h"

#include <inttypes.h>
#include <string.h>

static const struct ul_plan *plan_at(const struct ul_plan_ladder *ladder, uint32_t i)
{
    return &ladder->rungs[i].plan;
}

static double overhead_at(const struct ul_plan_ladder *ladder, uint32_t i)
{
    UL_ASSERT(i < ladder->count);
    return ul_plan_overhead(plan_at(ladder, i)->cost, plan_at(ladder, 0)->base_cost);
}

static struct ul_report_alternative alternative_at(const struct ul_report *report,
                                                   const struct ul_plan_ladder *ladder, uint32_t i)
{
    if (report->alternatives == NULL)
        return (struct ul_report_alternative){.split_count = 0};
    return report->alternatives[ladder->rungs[i].alternative];
}

static uint64_t process_at(const struct ul_report *report, const struct ul_plan_ladder *ladder,
                           uint32_t i)
{
    const struct ul_process_overhead *overhead = &report->overhead;
    if (report->alternatives != NULL)
        overhead = &report->alternatives[ladder->rungs[i].alternative].process;
    UL_ASSERT(i < ladder->count);
    return ul_plan_bounded_bytes(overhead, plan_at(ladder, i));
}

/* The report of one of the plans; false where the plan is of another program, whose names are not
 * known. */
static bool report_at(const struct ul_report *report, const struct ul_plan_ladder *ladder,
                      uint32_t i, struct ul_report *own)
{
    const struct ul_report_alternative alternative = alternative_at(report, ladder, i);
    *own = *report;
    own->plan = plan_at(ladder, i);
    if (alternative.problem != NULL) {
        own->problem = alternative.problem;
        own->steps = alternative.steps;
        own->values = alternative.values;
    }
    return (ladder->rungs[i].alternative == 0 || alternative.problem != NULL) &&
           own->plan->position_count > 0;
}

/* The node of the step at the peak. */
static const char *peak_at(const struct ul_report *own)
{
    UL_ASSERT(own->plan->peak_position < own->plan->position_count);
    const struct ul_plan_position *peak = &own->plan->positions[own->plan->peak_position];
    return own->steps[peak->step].node;
}

static double milliseconds(uint64_t nanoseconds)
{
    return (double)nanoseconds * 1e-6;
}

/* Differences of plans of a ladder: the number of recomputed steps, of chains computed in pieces,
 * of regions laid out as in the model, of light results computed inside their readers. */
enum kind { RECOMPUTED, SPLITS, LAYOUTS, INSIDE, KIND_COUNT };
static const char *const way_names[KIND_COUNT] = {"recomputed", "splits", "layouts", "inside"};

static uint32_t count_of(const struct ul_report *report, const struct ul_plan_ladder *ladder,
                         uint32_t i, enum kind kind)
{
    const struct ul_report_alternative alternative = alternative_at(report, ladder, i);
    return kind == RECOMPUTED ? ul_report_recomputed(plan_at(ladder, i))
           : kind == SPLITS   ? alternative.split_count
           : kind == LAYOUTS  ? alternative.row_major_count
                              : alternative.inside_count;
}

/* Whether any plan uses the column; else it says nothing. */
static bool has_column(const struct ul_report *report, const struct ul_plan_ladder *ladder,
                       enum kind kind)
{
    for (uint32_t i = 0; i < ladder->count; i++)
        if (count_of(report, ladder, i, kind) > 0)
            return true;
    return false;
}

/* The unit of the largest buffer, for all rows. */
static struct ul_report_unit unit_of(const struct ul_plan_ladder *ladder)
{
    return ul_report_unit_of(plan_at(ladder, 0)->reserved_bytes[0]);
}

static void put_head(struct ul_text *text, const struct ul_report *report,
                     const struct ul_plan_ladder *ladder)
{
    const char *unit = unit_of(ladder).name;
    ul_text_printf(text, "  reserved bytes  %8s  process bytes  %8s          ms    more time", unit,
                   unit);
    for (enum kind kind = 0; kind < KIND_COUNT; kind++)
        if (has_column(report, ladder, kind))
            ul_text_printf(text, "  %s", way_names[kind]);
    ul_text_put(text, "\n");
}

static void put_row(struct ul_text *text, const struct ul_report *report,
                    const struct ul_plan_ladder *ladder, uint32_t i)
{
    const struct ul_plan *plan = plan_at(ladder, i);
    uint64_t reserved = plan->reserved_bytes[0], process = process_at(report, ladder, i);
    double unit = unit_of(ladder).bytes;
    ul_text_printf(text, "  %14" PRIu64 "  %8.2f  %13" PRIu64 "  %8.2f  %10.4g  %9.3f %%", reserved,
                   (double)reserved / unit, process, (double)process / unit,
                   milliseconds(plan->cost), 100.0 * overhead_at(ladder, i));
    for (enum kind kind = 0; kind < KIND_COUNT; kind++)
        if (has_column(report, ladder, kind))
            ul_text_printf(text, "  %*u", (int)strlen(way_names[kind]),
                           count_of(report, ladder, i, kind));
    ul_text_put(text, "\n");
}

/* Writes the first and the last row, and those between that are smaller by a hundredth of the
 * first. */
static uint32_t put_rows(struct ul_text *text, const struct ul_report *report,
                         const struct ul_plan_ladder *ladder)
{
    uint64_t step = process_at(report, ladder, 0) / 100, shown = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < ladder->count; i++) {
        uint64_t process = process_at(report, ladder, i);
        uint64_t reserved = plan_at(ladder, i)->reserved_bytes[0];
        uint64_t bytes =
            ul_saved_bounds_buffer(&report->facts) || process == 0 ? reserved : process;
        if (i > 0 && i + 1 < ladder->count && bytes + step > shown)
            continue;
        put_row(text, report, ladder, i);
        shown = bytes;
        count++;
    }
    return count;
}

/* Names the step at the peak of a plan. */
static void put_peak(struct ul_text *text, const struct ul_report *own, const char *which)
{
    enum { NAMED = 3 };
    uint32_t *alive;
    uint32_t count = ul_report_alive(own, text->arena, NAMED, &alive);
    ul_text_printf(text, "\nAt the peak of %s plan, %s:", which,
                   ul_quote(text->arena, peak_at(own)));
    for (uint32_t i = 0; i < count && i < NAMED; i++) {
        const struct ul_plan_range *range = &own->plan->ranges[alive[i]];
        ul_text_printf(text, "%s %s of %s", i == 0 ? "" : ",",
                       range->value == UL_PLAN_NONE
                           ? "scratch"
                           : ul_quote(text->arena, own->values[range->value].name),
                       ul_size_exact(text->arena, range->size_bytes));
    }
    if (count > NAMED)
        ul_text_printf(text, ", %u other%s", count - NAMED, ul_plural(count - NAMED));
    ul_text_put(text, ".");
}

static void put_peaks(struct ul_text *text, const struct ul_report *report,
                      const struct ul_plan_ladder *ladder)
{
    struct ul_report own;
    uint64_t need_bytes = 0;
    if (report->problem->step_count == 0)
        return;
    if (report_at(report, ladder, 0, &own))
        put_peak(text, &own, "the first");
    if (ladder->count > 1 && report_at(report, ladder, ladder->count - 1, &own))
        put_peak(text, &own, "the last");
    uint32_t step;
    (void)ul_report_blockers(report, text->arena, 1, &step, &need_bytes);
    ul_text_printf(
        text, "\nThe step that needs most by itself is %s: %s beside what always lives.\n",
        ul_quote(text->arena, report->steps[step].node), ul_size_exact(text->arena, need_bytes));
    ul_report_put_training(text, &report->facts.training,
                           ul_saved_option(&report->facts, "optimizer"),
                           report->plan->rows.class_bytes[UL_PLAN_GRADIENTS]);
}

void ul_report_put_ladder_text(struct ul_text *text, const struct ul_report *report,
                               const struct ul_plan_ladder *ladder)
{
    ul_text_printf(text,
                   "Plans of %s (target %s): without a budget, then each the cheapest known within "
                   "its bytes:\n\n",
                   ul_quote(text->arena, report->facts.model), report->facts.target);
    put_head(text, report, ladder);
    uint32_t left_out = ladder->count - put_rows(text, report, ladder);
    if (ul_saved_is_of_device(&report->facts))
        ul_text_put(text, "\nThe process bytes are of the device, as far as they are known.\n");
    if (ul_plan_has_streams(report->plan))
        ul_text_printf(
            text, "\nThese plans have one stream; with a second one the first takes %.4g ms.\n",
            milliseconds(report->plan->cost));
    if (left_out > 0)
        ul_text_printf(text, "\n%u more between these: --csv FILE and --json FILE have all.\n",
                       left_out);
    put_peaks(text, report, ladder);
    const struct ul_plan *last = plan_at(ladder, ladder->count - 1);
    uint64_t floor_bytes = ul_report_floor_bytes(report);
    if (last->lower_bound_bytes > floor_bytes)
        ul_text_printf(text, "\nProven: no plan of the last row's program reserves less than %s%s.",
                       ul_size_exact(text->arena, last->lower_bound_bytes),
                       last->optimal ? ", as the last does" : "");
    if (floor_bytes > 0)
        ul_text_printf(text, "\nProven: no program of this model reserves less than %s.",
                       ul_size_exact(text->arena, floor_bytes));
    ul_text_put(text, "\n");
}

void ul_report_put_ladder_csv(struct ul_text *text, const struct ul_report *report,
                              const struct ul_plan_ladder *ladder)
{
    ul_text_put(text,
                "reserved_bytes,lower_bound_bytes,cost,base_cost,overhead,"
                "recomputed_steps,splits,order,remat,pack,process_bytes,row_major,inside,peak\r\n");
    for (uint32_t i = 0; i < ladder->count; i++) {
        struct ul_report own;
        const struct ul_plan *plan = plan_at(ladder, i);
        const struct ul_report_alternative alternative = alternative_at(report, ladder, i);
        ul_text_printf(text, "%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.9g,%u,%u,",
                       plan->reserved_bytes[0], plan->lower_bound_bytes, plan->cost,
                       plan->base_cost, overhead_at(ladder, i), ul_report_recomputed(plan),
                       alternative.split_count);
        ul_text_put_csv(text, plan->order_method);
        ul_text_put(text, ",");
        ul_text_put_csv(text, plan->remat_method);
        ul_text_put(text, ",");
        ul_text_put_csv(text, plan->pack_method);
        ul_text_put(text, ",");
        ul_text_printf(text, "%" PRIu64 ",%u,%u,", process_at(report, ladder, i),
                       alternative.row_major_count, alternative.inside_count);
        if (report_at(report, ladder, i, &own))
            ul_text_put_csv(text, peak_at(&own));
        ul_text_put(text, "\r\n");
    }
}

void ul_report_save_ladder(const struct ul_report *report, struct ul_arena *arena,
                           struct ul_saved *saved)
{
    const struct ul_plan_ladder *ladder = report->ladder;
    saved->rung_count = ladder != NULL ? ladder->count : 0;
    saved->has_ladder = saved->rung_count > 0;
    saved->ladder = UL_NEW_ARRAY(arena, struct ul_saved_rung, saved->rung_count);
    for (uint32_t i = 0; i < saved->rung_count; i++) {
        const struct ul_plan *plan = plan_at(ladder, i);
        const struct ul_report_alternative alternative = alternative_at(report, ladder, i);
        saved->ladder[i] = (struct ul_saved_rung){.reserved_bytes = plan->reserved_bytes[0],
                                                  .process_bytes = process_at(report, ladder, i),
                                                  .cost = plan->cost,
                                                  .recomputed_steps = ul_report_recomputed(plan),
                                                  .splits = alternative.split_count,
                                                  .row_major = alternative.row_major_count,
                                                  .inside = alternative.inside_count};
    }
}

static void put_texts(struct ul_text *text, uint32_t count, const char *const *texts)
{
    for (uint32_t i = 0; i < count; i++) {
        ul_text_put(text, i == 0 ? "" : ", ");
        ul_text_put_json(text, texts[i]);
    }
}

static void put_peak_json(struct ul_text *text, const struct ul_report *report,
                          const struct ul_plan_ladder *ladder, uint32_t i)
{
    enum { NAMED = 3 };
    struct ul_report own;
    uint32_t *alive, repeats;
    if (!report_at(report, ladder, i, &own))
        return;
    uint32_t count = ul_report_alive(&own, text->arena, NAMED, &alive);
    ul_text_printf(text, ", \"repeated_operations\": %.9g", ul_report_repeated(&own, &repeats));
    ul_text_put(text, ", \"peak\": {\"node\": ");
    ul_text_put_json(text, peak_at(&own));
    ul_text_put(text, ", \"values\": [");
    for (uint32_t k = 0; k < count && k < NAMED; k++) {
        const struct ul_plan_range *range = &own.plan->ranges[alive[k]];
        ul_text_put(text, k == 0 ? "{\"name\": " : ", {\"name\": ");
        if (range->value == UL_PLAN_NONE)
            ul_text_put(text, "null");
        else
            ul_text_put_json(text, own.values[range->value].name);
        ul_text_printf(text, ", \"bytes\": %" PRIu64 "}", range->size_bytes);
    }
    ul_text_put(text, "]}");
}

void ul_report_put_ladder_json(struct ul_text *text, const struct ul_report *report,
                               const struct ul_plan_ladder *ladder)
{
    ul_text_put(text, "{\n  \"format\": \"ullage-ladder\",\n  \"version\": 1,\n  \"model\": ");
    ul_text_put_json(text, report->facts.model);
    ul_text_put(text, ",\n  \"model_sha256\": ");
    ul_text_put_json(text, report->facts.model_sha256);
    ul_text_put(text, ",\n  \"target\": ");
    ul_text_put_json(text, report->facts.target);
    ul_text_put(text, ",\n");
    if (report->facts.training.tensors > 0) {
        ul_text_put(text, "  ");
        ul_facts_put_one(text, &report->facts, "training");
        ul_text_put(text, ",\n");
    }
    ul_text_put(text, "  \"plans\": [");
    for (uint32_t i = 0; i < ladder->count; i++) {
        const struct ul_plan *plan = plan_at(ladder, i);
        ul_text_printf(text,
                       "%s\n    {\"reserved_bytes\": %" PRIu64 ", \"process_bytes\": %" PRIu64
                       ", \"lower_bound_bytes\": %" PRIu64 ", \"cost\": %" PRIu64
                       ", \"base_cost\": %" PRIu64
                       ", \"overhead\": %.9g, \"recomputed_steps\": %u, \"splits\": [",
                       i == 0 ? "" : ",", plan->reserved_bytes[0], process_at(report, ladder, i),
                       plan->lower_bound_bytes, plan->cost, plan->base_cost, overhead_at(ladder, i),
                       ul_report_recomputed(plan));
        struct ul_report_alternative alternative = alternative_at(report, ladder, i);
        put_texts(text, alternative.split_count, alternative.splits);
        ul_text_put(text, "], \"row_major\": [");
        put_texts(text, alternative.row_major_count, alternative.row_major);
        ul_text_put(text, "], \"inside\": [");
        put_texts(text, alternative.inside_count, alternative.inside);
        ul_text_put(text, "], \"method\": {\"order\": ");
        ul_text_put_json(text, plan->order_method);
        ul_text_put(text, ", \"remat\": ");
        ul_text_put_json(text, plan->remat_method);
        ul_text_put(text, ", \"pack\": ");
        ul_text_put_json(text, plan->pack_method);
        ul_text_put(text, "}");
        put_peak_json(text, report, ladder, i);
        ul_text_put(text, "}");
    }
    ul_text_put(text, "\n  ]\n}\n");
}
