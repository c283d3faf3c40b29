/* SPDX-License-Identifier: Apache-2.0 */
/* The facts of a plan, from the plan and its description. docs/plan-format.md documents each. */
#include "planner/model/timeline.h"
#include "report/saved.h"

#include <string.h>

/* ---- Tables ---- */

/* The layout of elements in memory is saved only where that is asked for. */
static void save_range(const struct ul_report *report, struct ul_arena *arena,
                       const struct ul_report_readers *readers, uint32_t i,
                       struct ul_saved_range *saved)
{
    const struct ul_plan_range *range = &report->plan->ranges[i];
    bool is_value = range->value != UL_PLAN_NONE,
         has_storage = ul_saved_option(&report->facts, "precision") != NULL;
    ul_facts_take(ul_class_range(), range, saved);
    saved->name =
        is_value ? report->values[range->value].name : ul_report_step_at(report, range->begin).name;
    saved->type = is_value ? ul_type_text(arena, &report->values[range->value].type) : "";
    saved->space = ul_report_space_index(report->problem, range->space);
    saved->readers = readers->positions + readers->first[i];
    saved->readers_count = readers->first[i + 1] - readers->first[i];
    if (is_value && has_storage)
        saved->storage = ul_dtype_get(report->values[range->value].storage)->name;
}

/* Something that does not run has neither a number nor a pass. */
static void save_step(const struct ul_report *report, const struct ul_report_readers *readers,
                      uint32_t i, struct ul_saved_step *saved)
{
    const struct ul_plan_position *at = &report->plan->positions[i];
    const struct ul_report_step step = ul_report_step_at(report, i);
    bool is_run = at->kind == UL_PLAN_RUN, trains = readers->forward_count > 0;
    *saved = (struct ul_saved_step){
        .step = is_run ? at->step : UL_PLAN_NONE,
        .name = step.name,
        .op = step.op,
        .node = step.node,
        .source = step.source,
        .pass = !is_run || !trains                  ? NULL
                : at->step < readers->forward_count ? "forward"
                                                    : "backward",
        .implementation =
            is_run ? report->problem->steps[at->step].alternatives[at->alternative].name : "",
        .part = at->substep,
        .flops = step.flop_count,
        .moved_bytes = step.moved_bytes,
        .kind = ul_plan_word_of(at->kind, at->loads),
        .space = ul_report_space_index(report->problem, at->space)};
    ul_facts_take(ul_class_step(), at, saved);
}

static void save_tables(const struct ul_report *report, struct ul_arena *arena,
                        struct ul_saved *saved)
{
    const struct ul_plan *plan = report->plan;
    struct ul_report_readers readers;
    ul_report_find_readers(report, arena, &readers);
    saved->space_count = ul_report_space_index(report->problem, report->problem->space_count);
    saved->step_count = plan->position_count;
    saved->range_count = plan->range_count;
    saved->spaces = UL_NEW_ARRAY(arena, struct ul_saved_space, saved->space_count);
    saved->steps = UL_NEW_ARRAY(arena, struct ul_saved_step, saved->step_count);
    saved->ranges = UL_NEW_ARRAY(arena, struct ul_saved_range, saved->range_count);
    for (uint32_t i = 0; i < saved->space_count; i++) {
        uint32_t space = ul_report_space_at(report->problem, i);
        saved->spaces[i] = (struct ul_saved_space){.name = report->problem->spaces[space].name,
                                                   .reserved_bytes = plan->reserved_bytes[space]};
    }
    for (uint32_t i = 0; i < saved->step_count; i++)
        save_step(report, &readers, i, &saved->steps[i]);
    for (uint32_t i = 0; i < saved->range_count; i++)
        save_range(report, arena, &readers, i, &saved->ranges[i]);
}

/* The largest live sum of the ranges in a bank. */
static uint64_t live_in_bank(const struct ul_plan *plan, struct ul_arena *arena, uint32_t bank)
{
    uint32_t length = plan->position_count > 0 ? plan->position_count : 1;
    uint64_t *change = UL_NEW_ARRAY(arena, uint64_t, (uint64_t)length + 1), live = 0, most = 0;
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *range = &plan->ranges[r];
        uint64_t bytes = ul_size_align_or_die(range->size_bytes, plan->alignment_bytes);
        uint32_t begin = range->begin + (range->alias != UL_PLAN_NONE);
        if (range->space != 0 || begin >= range->end ||
            ul_plan_find_bank(plan, range->offset_bytes, bytes) != bank)
            continue;
        change[begin] += bytes;
        change[range->end] -= bytes;
    }
    for (uint32_t p = 0; p < length; p++) {
        live += change[p];
        most = live > most ? live : most;
    }
    return most;
}

static void save_banks(const struct ul_report *report, struct ul_arena *arena,
                       struct ul_saved *saved)
{
    const struct ul_plan *plan = report->plan;
    const uint64_t *moved = ul_account_moved(arena, report->problem, plan);
    struct ul_saved_bank *banks = UL_NEW_ARRAY(arena, struct ul_saved_bank, plan->bank_count);
    for (uint32_t b = 0; b < plan->bank_count; b++) {
        const struct ul_plan_bank *bank = &report->problem->banks[b];
        banks[b] = (struct ul_saved_bank){.name = bank->name,
                                          .capacity_bytes = bank->capacity_bytes,
                                          .bandwidth_mb = bank->bandwidth_mb,
                                          .weights = bank->weights,
                                          .begin_bytes = plan->banks[b].begin_bytes,
                                          .reserved_bytes = plan->banks[b].size_bytes,
                                          .live_bytes = live_in_bank(plan, arena, b)};
    }
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *range = &plan->ranges[r];
        uint32_t b = range->space == 0 && range->size_bytes > 0
                         ? ul_plan_find_bank(plan, range->offset_bytes, range->size_bytes)
                         : UL_PLAN_NONE;
        if (b != UL_PLAN_NONE)
            banks[b].moved_bytes = ul_size_add_saturating(banks[b].moved_bytes, moved[r]);
    }
    saved->banks = banks;
    saved->bank_count = plan->bank_count;
}

/* A process is no smaller than its buffer, except for rows that are never looked up. */
static bool is_misfit_proven(const struct ul_report *report)
{
    uint64_t reserved = report->plan->reserved_bytes[0];
    uint64_t buffer =
        ul_saved_bounds_buffer(&report->facts) ? reserved : report->facts.process[UL_SAVED_BUFFER];
    uint64_t unread =
        buffer < reserved && !report->facts.process_peak_at_start ? reserved - buffer : 0;
    uint64_t floor_bytes = ul_report_floor_bytes(report);
    return floor_bytes > unread &&
           ul_report_limit_bytes(report->problem, &report->facts) < floor_bytes - unread;
}

static void save_plan(const struct ul_report *report, struct ul_saved *saved)
{
    const struct ul_plan *plan = report->plan;
    saved->reserved_bytes = plan->reserved_bytes[0];
    ul_facts_take(ul_class_plan(), plan, saved);
    /* where the plan does not fit, whether that is proven for all */
    saved->proven = plan->fits ? plan->packing_proven : is_misfit_proven(report);
    saved->peak_step = plan->peak_position;
    saved->step_cost = saved->step_cost != plan->cost ? saved->step_cost : 0;
    saved->overhead = ul_plan_overhead(plan->cost, plan->base_cost);
    saved->method = (struct ul_saved_method){
        .order = plan->order_method, .remat = plan->remat_method, .pack = plan->pack_method};
}

/* ---- Facts that follow from the tables ---- */

/* What no other row has is the last. */
static void save_rows(const struct ul_plan *plan, uint64_t rows[UL_REPORT_ROW_COUNT])
{
    enum { LAST = UL_REPORT_ROW_COUNT - 1 };
    memcpy(rows, plan->rows.class_bytes, sizeof plan->rows.class_bytes);
    rows[UL_PLAN_CLASS_COUNT] = plan->rows.alignment_bytes;
    rows[UL_PLAN_CLASS_COUNT + 1] = plan->rows.holes_bytes;
    rows[LAST] = plan->reserved_bytes[0];
    for (uint32_t i = 0; i < LAST; i++)
        rows[LAST] -= rows[i];
}

/* Counts what the plan copies between spaces; the cost that nothing hides is part of the plan's. */
static void save_transfers(const struct ul_report *report, struct ul_saved *saved)
{
    const struct ul_plan *plan = report->plan;
    struct ul_saved_transfers *transfers = &saved->transfers;
    uint64_t runs_cost = 0;
    *transfers = (struct ul_saved_transfers){.saves = 0};
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct ul_plan_position *at = &plan->positions[p];
        if (at->kind == UL_PLAN_RUN && at->substep == 0)
            runs_cost = ul_size_add_saturating(
                runs_cost, report->problem->steps[at->step].alternatives[at->alternative].cost);
        if (at->kind == UL_PLAN_COPY && !at->loads) {
            transfers->saves++;
            transfers->saved_bytes += report->problem->values[at->value].size_bytes;
        } else if (at->kind == UL_PLAN_COPY) {
            transfers->loads++;
            transfers->loaded_bytes += report->problem->values[at->value].size_bytes;
        }
    }
    saved->has_transfers = transfers->saves + transfers->loads > 0;
    transfers->exposed_cost = plan->cost > runs_cost ? plan->cost - runs_cost : 0;
}

/* ---- Models ---- */

/* The model that a region belongs to. */
static uint32_t model_of(const struct ul_report *report, uint32_t region)
{
    const struct ul_plan_region *regions = report->problem->regions;
    while (regions[region].parent != 0)
        region = regions[region].parent;
    uint32_t model = 0;
    while (report->model_regions[model] != region)
        model++;
    UL_ASSERT(model < report->facts.model_count + report->facts.piece_count);
    return model;
}

/* Marks values that a position reads by the bit of its model. */
static void mark_readers(const struct ul_report *report, uint32_t position, uint64_t bit,
                         uint64_t *readers)
{
    const struct ul_plan_substep *substep =
        ul_substep_at(report->problem, &report->plan->positions[position]);
    for (uint32_t i = 0; i < substep->read_count; i++)
        readers[substep->reads[i]] |= bit;
}

static void add_weights(const struct ul_report *report, const uint64_t *readers,
                        struct ul_saved *saved)
{
    for (uint32_t v = 0; v < report->problem->value_count; v++) {
        const struct ul_plan_value *value = &report->problem->values[v];
        for (uint32_t m = 0; value->class == UL_PLAN_WEIGHTS && m < saved->model_count; m++) {
            uint64_t bit = (uint64_t)1 << m;
            if ((readers[v] & bit) != 0)
                saved->models[m].weight_bytes += value->size_bytes;
            if (readers[v] == bit)
                saved->models[m].own_weight_bytes += value->size_bytes;
        }
    }
}

/* Where the largest live sum and the cost of a model, or of a piece, are to be put. */
struct weighed {
    uint64_t *peak_bytes, *cost;
};

/* Weighs each model or piece; notes the models that read each value where `readers` is no NULL. */
static void weigh(const struct ul_report *report, struct ul_arena *arena,
                  const struct ul_saved *saved, const struct weighed *weighed, uint64_t *readers)
{
    uint64_t *curves[UL_SAVED_CURVES];
    UL_ASSERT(report->model_regions != NULL);
    const uint64_t *live = ul_saved_curves(saved, arena, curves);
    for (uint32_t p = 0; p < saved->step_count; p++) {
        const struct ul_plan_position *at = &report->plan->positions[p];
        bool is_run = at->kind == UL_PLAN_RUN;
        const struct ul_plan_step *step = is_run ? &report->problem->steps[at->step] : NULL;
        uint32_t m = model_of(report, is_run ? step->region : at->region);
        uint64_t *peak_bytes = weighed[m].peak_bytes;
        *peak_bytes = live[p] > *peak_bytes ? live[p] : *peak_bytes;
        if (!is_run)
            continue;
        *weighed[m].cost += at->substep == 0 ? step->alternatives[at->alternative].cost : 0;
        if (readers != NULL)
            mark_readers(report, p, (uint64_t)1 << m, readers);
    }
}

static void save_models(const struct ul_report *report, struct ul_arena *arena,
                        struct ul_saved *saved)
{
    uint64_t *readers = UL_NEW_ARRAY(arena, uint64_t, report->problem->value_count);
    struct weighed weighed[64];
    if (saved->model_count == 0)
        return;
    UL_ASSERT(saved->model_count <= sizeof weighed / sizeof *weighed);
    saved->models = ul_arena_copy(arena, saved->models, saved->model_count * sizeof *saved->models);
    for (uint32_t m = 0; m < saved->model_count; m++)
        weighed[m] = (struct weighed){&saved->models[m].peak_bytes, &saved->models[m].cost};
    weigh(report, arena, saved, weighed, readers);
    add_weights(report, readers, saved);
}

static void save_pieces(const struct ul_report *report, struct ul_arena *arena,
                        struct ul_saved *saved)
{
    struct weighed *weighed = UL_NEW_ARRAY(arena, struct weighed, saved->piece_count);
    if (saved->piece_count == 0)
        return;
    saved->pieces = ul_arena_copy(arena, saved->pieces, saved->piece_count * sizeof *saved->pieces);
    for (uint32_t p = 0; p < saved->piece_count; p++)
        weighed[p] = (struct weighed){&saved->pieces[p].peak_bytes, &saved->pieces[p].cost};
    weigh(report, arena, saved, weighed, NULL);
}

/* ---- Remedies ---- */

/* The first run of a step; every step has one. */
static uint32_t position_of(const struct ul_plan *plan, uint32_t step)
{
    uint32_t p = 0;
    while (plan->positions[p].kind != UL_PLAN_RUN || plan->positions[p].step != step)
        p++;
    return p;
}

static void save_blockers(const struct ul_report *report, struct ul_arena *arena,
                          struct ul_saved *saved)
{
    enum { WANTED = 3 };
    uint32_t steps[WANTED];
    uint64_t need_bytes[WANTED];
    uint32_t count = report->plan->position_count == 0
                         ? 0
                         : ul_report_blockers(report, arena, WANTED, steps, need_bytes);
    saved->blocker_count = count;
    saved->blockers = UL_NEW_ARRAY(arena, struct ul_saved_blocker, count);
    for (uint32_t i = 0; i < count; i++)
        saved->blockers[i] = (struct ul_saved_blocker){.step = position_of(report->plan, steps[i]),
                                                       .bytes = need_bytes[i]};
}

/* The owner of a remedy's process is saved only where it is not this plan's. */
static void save_remedies(struct ul_arena *arena, struct ul_saved *saved)
{
    struct ul_saved_remedy *remedies =
        UL_NEW_ARRAY(arena, struct ul_saved_remedy, saved->remedy_count);
    for (uint32_t i = 0; i < saved->remedy_count; i++) {
        remedies[i] = saved->remedies[i];
        if (strcmp(remedies[i].process_of, saved->process_of) == 0)
            remedies[i].process_of = "";
    }
    saved->remedies = remedies;
}

static void save(const struct ul_report *report, struct ul_arena *arena, struct ul_saved *saved)
{
    *saved = report->facts;
    saved->format = "ullage-plan";
    saved->version = 1;
    saved->tool = "ullage " UL_VERSION;
    save_plan(report, saved);
    if (report->plan->bank_count > 0)
        save_banks(report, arena, saved);
    save_rows(report->plan, saved->rows);
    save_transfers(report, saved);
    ul_report_save_calls(report, arena, saved);
    ul_report_save_precision(report, arena, saved);
    save_blockers(report, arena, saved);
    save_remedies(arena, saved);
    ul_report_save_ladder(report, arena, saved);
    save_tables(report, arena, saved);
    save_models(report, arena, saved);
    save_pieces(report, arena, saved);
}

void ul_report_put_json(struct ul_text *text, const struct ul_report *report)
{
    struct ul_saved saved;
    save(report, text->arena, &saved);
    ul_facts_put(text, ul_class_plan(), &saved);
}
