/* SPDX-License-Identifier: Apache-2.0 */
/* A ladder of plans as a table, for terminals, as CSV and as JSON: what saving each byte costs.
 * docs/plan-format.md documents the columns. */
#include "report/saved.h"

#include <inttypes.h>
#include <string.h>

enum { NAMED = 3 }; /* values at a peak */

static const struct ul_plan *plan_at(const struct ul_plan_ladder *ladder, uint32_t i)
{
    return &ladder->rungs[i].plan;
}

static struct ul_report_alternative alternative_at(const struct ul_report *report,
                                                   const struct ul_plan_ladder *ladder, uint32_t i)
{
    UL_ASSERT(i < ladder->count);
    if (report->alternatives == NULL)
        return (struct ul_report_alternative){.process = report->overhead};
    return report->alternatives[ladder->rungs[i].alternative];
}

/* Without its peak. */
static struct ul_saved_ladder_plan rung_at(const struct ul_report *report,
                                           const struct ul_plan_ladder *ladder, uint32_t i)
{
    const struct ul_plan *plan = plan_at(ladder, i);
    const struct ul_report_alternative alternative = alternative_at(report, ladder, i);
    return (struct ul_saved_ladder_plan){
        .reserved_bytes = plan->reserved_bytes[0],
        .process_bytes = ul_plan_bounded_bytes(&alternative.process, plan),
        .lower_bound_bytes = plan->lower_bound_bytes,
        .cost = plan->cost,
        .base_cost = plan->base_cost,
        .overhead = ul_plan_overhead(plan->cost, plan_at(ladder, 0)->base_cost),
        .recomputed_steps = ul_report_recomputed(plan),
        .splits = alternative.splits,
        .splits_count = alternative.split_count,
        .row_major = alternative.row_major,
        .row_major_count = alternative.row_major_count,
        .inside = alternative.inside,
        .inside_count = alternative.inside_count,
        .method = {plan->order_method, plan->remat_method, plan->pack_method}};
}

/* Describes the peak, unless the plan is of another program, whose names are not known. */
static void describe_peak(const struct ul_report *report, const struct ul_plan_ladder *ladder,
                          uint32_t i, struct ul_arena *arena, struct ul_saved_ladder_plan *rung)
{
    const struct ul_report_alternative alternative = alternative_at(report, ladder, i);
    struct ul_report own = *report;
    uint32_t *alive;
    own.plan = plan_at(ladder, i);
    if (alternative.problem != NULL) {
        own.problem = alternative.problem;
        own.steps = alternative.steps;
        own.values = alternative.values;
    }
    if ((ladder->rungs[i].alternative > 0 && alternative.problem == NULL) ||
        own.plan->position_count == 0)
        return;
    struct ul_saved_ladder_peak *peak = &rung->peak;
    peak->node = own.steps[own.plan->positions[own.plan->peak_position].step].node;
    peak->alive_count = ul_report_alive(&own, arena, NAMED, &alive);
    peak->ladder_value_count = peak->alive_count < NAMED ? peak->alive_count : NAMED;
    peak->values = UL_NEW_ARRAY(arena, struct ul_saved_ladder_value, peak->ladder_value_count);
    for (uint32_t k = 0; k < peak->ladder_value_count; k++) {
        const struct ul_plan_range *range = &own.plan->ranges[alive[k]];
        bool is_scratch = range->value == UL_PLAN_NONE;
        peak->values[k].name = is_scratch ? NULL : own.values[range->value].name;
        peak->values[k].bytes = range->size_bytes;
    }
    rung->has_peak = true;
    rung->repeated_operations = ul_report_repeated(&own);
}

static struct ul_saved_ladder describe(const struct ul_report *report,
                                       const struct ul_plan_ladder *ladder, struct ul_arena *arena)
{
    struct ul_saved_ladder sweep = {.format = "ullage-ladder",
                                    .version = 1,
                                    .model = report->facts.model,
                                    .model_sha256 = report->facts.model_sha256,
                                    .target = report->facts.target,
                                    .training = report->facts.training,
                                    .has_training = report->facts.training.tensors > 0,
                                    .ladder_plan_count = ladder->count};
    sweep.plans = UL_NEW_ARRAY(arena, struct ul_saved_ladder_plan, ladder->count);
    for (uint32_t i = 0; i < ladder->count; i++) {
        sweep.plans[i] = rung_at(report, ladder, i);
        describe_peak(report, ladder, i, arena, &sweep.plans[i]);
    }
    UL_ASSERT(sweep.ladder_plan_count > 0);
    return sweep;
}

/* ---- Text ---- */

/* Differences of plans of a ladder: the number of recomputed steps, of chains computed in pieces,
 * of regions laid out as in the model, of light results computed inside their readers. */
enum kind { RECOMPUTED, SPLITS, LAYOUTS, INSIDE, KIND_COUNT };
static const char *const kind_names[KIND_COUNT] = {"recomputed", "splits", "layouts", "inside"};

static uint64_t count_of(const struct ul_saved_ladder_plan *rung, enum kind kind)
{
    return kind == RECOMPUTED ? rung->recomputed_steps
           : kind == SPLITS   ? rung->splits_count
           : kind == LAYOUTS  ? rung->row_major_count
                              : rung->inside_count;
}

/* Whether any plan uses the column; else it says nothing. */
static bool has_column(const struct ul_saved_ladder *sweep, enum kind kind)
{
    for (uint32_t i = 0; i < sweep->ladder_plan_count; i++)
        if (count_of(&sweep->plans[i], kind) > 0)
            return true;
    return false;
}

/* The unit of the largest buffer, for all rows. */
static struct ul_report_unit unit_of(const struct ul_saved_ladder *sweep)
{
    return ul_report_unit_of(sweep->plans[0].reserved_bytes);
}

static void put_head(struct ul_text *text, const struct ul_saved_ladder *sweep)
{
    const char *unit = unit_of(sweep).name;
    ul_text_printf(text, "  reserved bytes  %8s  process bytes  %8s          ms    more time", unit,
                   unit);
    for (enum kind kind = 0; kind < KIND_COUNT; kind++)
        if (has_column(sweep, kind))
            ul_text_printf(text, "  %s", kind_names[kind]);
    ul_text_put(text, "\n");
}

static void put_row(struct ul_text *text, const struct ul_saved_ladder *sweep, uint32_t i)
{
    const struct ul_saved_ladder_plan *rung = &sweep->plans[i];
    double unit = unit_of(sweep).bytes;
    ul_text_printf(text, "  %14" PRIu64 "  %8.2f  %13" PRIu64 "  %8.2f  %10.4g  %9.3f %%",
                   rung->reserved_bytes, (double)rung->reserved_bytes / unit, rung->process_bytes,
                   (double)rung->process_bytes / unit, (double)rung->cost * 1e-6,
                   100.0 * rung->overhead);
    for (enum kind kind = 0; kind < KIND_COUNT; kind++)
        if (has_column(sweep, kind))
            ul_text_printf(text, "  %*" PRIu64, (int)strlen(kind_names[kind]),
                           count_of(rung, kind));
    ul_text_put(text, "\n");
}

/* Writes the first and the last row, and those between that are smaller by a hundredth of the
 * first. */
static uint32_t put_rows(struct ul_text *text, const struct ul_saved_ladder *sweep,
                         bool bounds_buffer)
{
    uint64_t step = sweep->plans[0].process_bytes / 100, shown = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < sweep->ladder_plan_count; i++) {
        uint64_t process = sweep->plans[i].process_bytes;
        uint64_t bytes = bounds_buffer || process == 0 ? sweep->plans[i].reserved_bytes : process;
        if (i > 0 && i + 1 < sweep->ladder_plan_count && bytes + step > shown)
            continue;
        put_row(text, sweep, i);
        shown = bytes;
        count++;
    }
    return count;
}

/* Names the step at the peak of a plan. */
static void put_peak(struct ul_text *text, const struct ul_saved_ladder_peak *peak,
                     const char *which)
{
    uint32_t others = peak->alive_count - peak->ladder_value_count;
    ul_text_printf(text, "\nAt the peak of %s plan, %s:", which, ul_quote(text->arena, peak->node));
    for (uint32_t i = 0; i < peak->ladder_value_count; i++) {
        const char *name = peak->values[i].name;
        ul_text_printf(text, "%s %s of %s", i == 0 ? "" : ",",
                       name == NULL ? "scratch" : ul_quote(text->arena, name),
                       ul_size_exact(text->arena, peak->values[i].bytes));
    }
    if (others > 0)
        ul_text_printf(text, ", %u other%s", others, ul_plural(others));
    ul_text_put(text, ".");
}

static void put_peaks(struct ul_text *text, const struct ul_report *report,
                      const struct ul_saved_ladder *sweep)
{
    const struct ul_saved_ladder_plan *last = &sweep->plans[sweep->ladder_plan_count - 1];
    uint64_t need_bytes = 0;
    if (report->problem->step_count == 0)
        return;
    if (sweep->plans[0].has_peak)
        put_peak(text, &sweep->plans[0].peak, "the first");
    if (sweep->ladder_plan_count > 1 && last->has_peak)
        put_peak(text, &last->peak, "the last");
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
    const struct ul_saved_ladder sweep = describe(report, ladder, text->arena);
    bool bounds_buffer = ul_saved_bounds_buffer(&report->facts);
    ul_text_printf(text,
                   "Plans of %s (target %s): without a budget, then each the cheapest known within "
                   "its bytes:\n\n",
                   ul_quote(text->arena, report->facts.model), report->facts.target);
    put_head(text, &sweep);
    uint32_t left_out = ladder->count - put_rows(text, &sweep, bounds_buffer);
    if (ul_saved_is_of_device(&report->facts))
        ul_text_put(text, "\nThe process bytes are of the device, as far as they are known.\n");
    if (ul_plan_has_streams(report->plan))
        ul_text_printf(
            text, "\nThese plans have one stream; with a second one the first takes %.4g ms.\n",
            (double)report->plan->cost * 1e-6);
    if (left_out > 0)
        ul_text_printf(text, "\n%u more between these: --csv FILE and --json FILE have all.\n",
                       left_out);
    put_peaks(text, report, &sweep);
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
    const struct ul_saved_ladder sweep = describe(report, ladder, text->arena);
    ul_text_put(text,
                "reserved_bytes,lower_bound_bytes,cost,base_cost,overhead,"
                "recomputed_steps,splits,order,remat,pack,process_bytes,row_major,inside,peak\r\n");
    for (uint32_t i = 0; i < sweep.ladder_plan_count; i++) {
        ul_facts_put_fields(text, ul_class_ladder_plan(), &sweep.plans[i],
                            "reserved_bytes,lower_bound_bytes,cost,base_cost,overhead,"
                            "recomputed_steps,splits,method.order,method.remat,method.pack,"
                            "process_bytes,row_major,inside,peak.node");
        ul_text_put(text, "\r\n");
    }
}

void ul_report_put_ladder_json(struct ul_text *text, const struct ul_report *report,
                               const struct ul_plan_ladder *ladder)
{
    const struct ul_saved_ladder sweep = describe(report, ladder, text->arena);
    ul_facts_put(text, ul_class_ladder(), &sweep);
}

/* ---- In plan.json ---- */

void ul_report_save_ladder(const struct ul_report *report, struct ul_arena *arena,
                           struct ul_saved *saved)
{
    const struct ul_plan_ladder *ladder = report->ladder;
    saved->rung_count = ladder != NULL ? ladder->count : 0;
    saved->has_ladder = saved->rung_count > 0;
    saved->ladder = UL_NEW_ARRAY(arena, struct ul_saved_rung, saved->rung_count);
    for (uint32_t i = 0; i < saved->rung_count; i++) {
        const struct ul_saved_ladder_plan rung = rung_at(report, ladder, i);
        saved->ladder[i] = (struct ul_saved_rung){.reserved_bytes = rung.reserved_bytes,
                                                  .process_bytes = rung.process_bytes,
                                                  .cost = rung.cost,
                                                  .recomputed_steps = rung.recomputed_steps,
                                                  .splits = rung.splits_count,
                                                  .row_major = rung.row_major_count,
                                                  .inside = rung.inside_count};
    }
}
