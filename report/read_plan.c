/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a plan.json for `check` and `--plan`. The file may have been edited by hand: its facts must
 * agree with each other here; the planner's checker judges the plan. */
#include "report/json_in.h"

#include <math.h>
#include <string.h>

/* ---- The header ---- */

bool ul_saved_is_whole(const struct ul_saved *saved)
{
    return saved->process[UL_SAVED_CODE] > 0 || saved->process[UL_SAVED_RUNTIME] > 0 ||
           (saved->process_lacks & UL_LACKS_CONTEXT) != 0;
}

/* The owner of the process follows from its parts and the target. */
static enum ul_status check_owner(const struct ul_saved *said, struct ul_diag *diag)
{
    const char *owner = ul_saved_is_of_device(said) ? "device"
                        : ul_saved_is_whole(said)   ? "program"
                                                    : "caller";
    if (said->process_of[0] == '\0' || strcmp(said->process_of, owner) == 0)
        return UL_OK;
    return ul_diag_set(diag, UL_MISMATCH, "\"process_of\" is not \"%s\", whose its \"process\" is",
                       owner);
}

/* The parts of the process must add up; only a device has parts that are not in the sum. */
static enum ul_status check_process(const struct ul_saved *said, struct ul_diag *diag)
{
    uint64_t sum = 0;
    if (said->process_bytes == UINT64_MAX)
        return UL_OK;
    if (!said->has_process)
        return ul_diag_set(diag, UL_INVALID, "\"process\" is missing beside \"process_bytes\"");
    for (uint32_t i = 0; i < UL_SAVED_PART_COUNT; i++)
        sum = ul_size_add_saturating(sum, said->process[i]);
    if ((said->process_lacks & UL_LACKS_UNKNOWN) != 0 ||
        (said->has_process_lacks && !ul_saved_is_of_device(said)))
        return ul_diag_set(
            diag, UL_INVALID,
            "\"process_lacks\" of target cuda may name \"context\" and \"libraries\"");
    if (sum != said->process_bytes)
        return ul_diag_set(diag, UL_MISMATCH,
                           "\"process_bytes\" is %llu, and the parts of \"process\" are %llu",
                           (unsigned long long)said->process_bytes, (unsigned long long)sum);
    return check_owner(said, diag);
}

/* Sizes are rounded up to the alignment long before the checker sees it. */
static enum ul_status check_alignment(uint64_t alignment_bytes, struct ul_diag *diag)
{
    const uint64_t max = (uint64_t)1 << 30;
    if (alignment_bytes > 0 && alignment_bytes <= max &&
        (alignment_bytes & (alignment_bytes - 1)) == 0)
        return UL_OK;
    return ul_diag_set(diag, UL_MISMATCH,
                       "\"alignment_bytes\" is %llu, and no power of two up to 2^30",
                       (unsigned long long)alignment_bytes);
}

enum ul_status ul_report_read_header(struct ul_arena *arena, const char *json, size_t length,
                                     struct ul_saved *header, struct ul_diag *diag)
{
    UL_TRY(ul_facts_read_text(arena, json, length, header, diag));
    UL_TRY(check_alignment(header->alignment_bytes, diag));
    return check_process(header, diag);
}

/* ---- The tables ---- */

/* A position has 0 in fields that its kind does not use. */
static bool is_of_kind(const struct ul_saved_step *at, enum ul_plan_kind kind)
{
    bool moves = kind == UL_PLAN_COPY, runs = kind == UL_PLAN_RUN;
    return (runs || (at->alternative == 0 && at->part == 0 && at->copy == 0)) &&
           (moves || (at->value == 0 && at->space == 0)) &&
           (kind == UL_PLAN_WAIT ? at->stream == 0 : at->awaited == 0) &&
           (!runs || at->region == 0);
}

static enum ul_status place_steps(const struct ul_saved *said, struct ul_arena *arena,
                                  const struct ul_problem *problem, struct ul_plan *plan,
                                  struct ul_diag *diag)
{
    plan->position_count = said->step_count;
    plan->positions = UL_NEW_ARRAY(arena, struct ul_plan_position, said->step_count);
    for (uint32_t i = 0; i < said->step_count; i++) {
        const struct ul_saved_step *at = &said->steps[i];
        struct ul_plan_position *to = &plan->positions[i];
        ul_plan_set_word(to, at->kind);
        if (at->step != UL_PLAN_NONE && at->step >= problem->step_count)
            return ul_diag_set(diag, UL_INVALID,
                               "\"steps\": entry %u of \"step\", of %s, is no step of %u", i,
                               ul_quote(arena, at->name), problem->step_count);
        if (!is_of_kind(at, to->kind))
            return ul_diag_set(diag, UL_MISMATCH,
                               "\"steps\": entry %u says something that a \"%s\" has none of", i,
                               ul_plan_word(at->kind));
        *to = (struct ul_plan_position){
            .kind = to->kind,
            .loads = to->loads,
            .step = to->kind == UL_PLAN_RUN ? at->step : 0,
            .substep = at->part,
            .space = to->kind == UL_PLAN_COPY ? ul_report_space_at(problem, at->space) : 0};
        ul_facts_give(ul_class_step(), at, to);
    }
    return UL_OK;
}

static enum ul_status place_ranges(const struct ul_saved *said, struct ul_arena *arena,
                                   const struct ul_problem *problem, struct ul_plan *plan,
                                   struct ul_diag *diag)
{
    plan->range_count = said->range_count;
    plan->ranges = UL_NEW_ARRAY(arena, struct ul_plan_range, said->range_count);
    for (uint32_t i = 0; i < said->range_count; i++) {
        const struct ul_saved_range *range = &said->ranges[i];
        if (range->value != UL_PLAN_NONE && range->value >= problem->value_count)
            return ul_diag_set(diag, UL_INVALID,
                               "\"ranges\": entry %u of \"value\", of %s, is no value of %u", i,
                               ul_quote(arena, range->name), problem->value_count);
        ul_facts_give(ul_class_range(), range, &plan->ranges[i]);
        plan->ranges[i].space = ul_report_space_at(problem, range->space);
    }
    return UL_OK;
}

/* The file does not list spaces that are parts of the process. */
static enum ul_status place_spaces(const struct ul_saved *said, struct ul_arena *arena,
                                   const struct ul_problem *problem, struct ul_plan *plan,
                                   struct ul_diag *diag)
{
    uint32_t count = ul_report_space_index(problem, problem->space_count);
    if (said->space_count != count)
        return ul_diag_set(diag, UL_INVALID, "\"spaces\": expected %u of them", count);
    plan->space_count = problem->space_count;
    plan->reserved_bytes = UL_NEW_ARRAY(arena, uint64_t, problem->space_count);
    for (uint32_t i = 0; i < count; i++)
        plan->reserved_bytes[ul_report_space_at(problem, i)] = said->spaces[i].reserved_bytes;
    /* The headline and the arena's entry must be the same number. */
    if (said->reserved_bytes != plan->reserved_bytes[0])
        return ul_diag_set(diag, UL_MISMATCH,
                           "\"reserved_bytes\" differs from that of the first space");
    return UL_OK;
}

/* A plan that does not fit is not laid out. */
static enum ul_status place_banks(const struct ul_saved *said, struct ul_arena *arena,
                                  const struct ul_problem *problem, struct ul_plan *plan,
                                  struct ul_diag *diag)
{
    plan->bank_count = said->bank_count;
    if (said->bank_count != problem->bank_count && (said->fits || said->bank_count > 0))
        return ul_diag_set(diag, UL_MISMATCH, "\"banks\": %u of them, and --space gives %u",
                           said->bank_count, problem->bank_count);
    if (said->bank_count == 0)
        return UL_OK;
    plan->banks = UL_NEW_ARRAY(arena, struct ul_plan_bank_place, said->bank_count);
    for (uint32_t b = 0; b < said->bank_count; b++)
        plan->banks[b] = (struct ul_plan_bank_place){.begin_bytes = said->banks[b].begin_bytes,
                                                     .size_bytes = said->banks[b].reserved_bytes};
    return UL_OK;
}

/* ---- Claims ---- */

/* Claims about costs follow from the costs, to the nine digits that are written. */
static enum ul_status check_overhead(const struct ul_saved *said, struct ul_diag *diag)
{
    double overhead = ul_plan_overhead(said->cost, said->base_cost);
    double slack = 1e-8 * (1 + fabs(overhead));
    if (fabs(said->overhead - overhead) <= slack)
        return UL_OK;
    return ul_diag_set(diag, UL_MISMATCH,
                       "\"overhead\" does not follow from \"cost\" and \"base_cost\"");
}

/* Whether the budget bounds the process. An older plan does not say so; its budget bounds the
 * buffer. */
static bool is_of_process(const struct ul_saved *said)
{
    return strcmp(said->budget_of, "process") == 0;
}

/* The least budget that any plan of any program of this model could fit. The process needs less
 * than the buffer where a table has rows that are never looked up, since they are never read into
 * memory. */
static uint64_t floor_of(const struct ul_saved *said, const struct ul_problem *problem,
                         const struct ul_plan *plan)
{
    const struct ul_report report = {.problem = problem, .plan = plan, .facts = *said};
    bool may_be_less = is_of_process(said) && said->has_process && !said->process_peak_at_start;
    uint64_t buffer = may_be_less ? said->process[UL_SAVED_BUFFER] : said->reserved_bytes;
    uint64_t unread = buffer < said->reserved_bytes ? said->reserved_bytes - buffer : 0;
    uint64_t floor_bytes = ul_report_floor_bytes(&report);
    return floor_bytes > unread ? floor_bytes - unread : 0;
}

/* No program of the model takes less than the floor, so no budget below it can work. Where the plan
 * does not fit, "proven" says whether the budget is below the floor; where it fits, that its
 * packing takes no more bytes than live at once. */
static enum ul_status check_floor(const struct ul_saved *said, const struct ul_problem *problem,
                                  const struct ul_plan *plan, struct ul_diag *diag)
{
    uint64_t budget = ul_report_limit_bytes(problem, said);
    uint64_t floor_bytes = floor_of(said, problem, plan);
    bool is_least =
        plan->reserved_bytes[0] == plan->order_lower_bound_bytes &&
        strcmp(plan->pack_method, ul_method_get(UL_METHOD_PACK, UL_PACK_NONE)->name) != 0;
    if (!plan->fits && said->proven && budget >= floor_bytes)
        return ul_diag_set(diag, UL_MISMATCH,
                           "\"proven\": that nothing is within the budget does not follow");
    if (!said->proven && (plan->fits ? is_least : budget < floor_bytes))
        return ul_diag_set(diag, UL_MISMATCH, "\"proven\" is false, and it is proven: %s",
                           plan->fits ? "no packing is below \"order_lower_bound_bytes\""
                                      : "nothing is within the budget");
    if (plan->smallest_budget_bytes < floor_bytes)
        return ul_diag_set(diag, UL_MISMATCH,
                           "\"smallest_budget_bytes\" is below what always lives, with inputs or "
                           "outputs");
    return UL_OK;
}

/* The budget is the device's memory, unless a smaller one was given. */
static enum ul_status check_device(const struct ul_saved *said, struct ul_diag *diag)
{
    uint64_t budget = said->budget_bytes, memory_bytes = said->device.memory_bytes;
    if (!said->has_device || (budget > 0 && budget <= memory_bytes))
        return UL_OK;
    return ul_diag_set(diag, UL_MISMATCH,
                       "\"budget_bytes\" is %llu, and the device has %llu bytes of memory",
                       (unsigned long long)budget, (unsigned long long)memory_bytes);
}

/* The file's claims must agree with each other; the planner's checker does the rest. */
static enum ul_status check_claims(const struct ul_saved *said, const struct ul_problem *problem,
                                   const struct ul_plan *plan, struct ul_diag *diag)
{
    uint64_t budget = said->budget_bytes, reserved = said->reserved_bytes;
    bool is_process = is_of_process(said);
    UL_TRY(check_overhead(said, diag));
    UL_TRY(check_device(said, diag));
    if (said->rows[UL_REPORT_ROW_COUNT - 1] != 0)
        return ul_diag_set(diag, UL_MISMATCH, "\"unaccounted\" is not 0");
    if (plan->lower_bound_bytes > plan->order_lower_bound_bytes ||
        plan->order_lower_bound_bytes > reserved)
        return ul_diag_set(diag, UL_MISMATCH,
                           "\"lower_bound_bytes\", \"order_lower_bound_bytes\" and "
                           "\"reserved_bytes\" are not in ascending order");
    if (plan->lower_bound_bytes > plan->orders_lower_bound_bytes)
        return ul_diag_set(diag, UL_MISMATCH,
                           "\"lower_bound_bytes\" is above \"orders_lower_bound_bytes\"");
    if (plan->cost_bound > 0 && budget == 0)
        return ul_diag_set(diag, UL_MISMATCH, "\"cost_bound\" without a budget");
    if (plan->optimal_within != NULL && (plan->optimal || plan->cost_bound == 0))
        return ul_diag_set(diag, UL_MISMATCH,
                           "\"optimal_within\" beside \"optimal\", or without \"cost_bound\"");
    if (plan->cost_bound == 0 && plan->optimal != (reserved == plan->lower_bound_bytes))
        return ul_diag_set(diag, UL_MISMATCH,
                           "\"optimal\" contradicts the lower bound and the bytes reserved");
    if (budget == 0 && !is_process && plan->smallest_budget_bytes < plan->lower_bound_bytes)
        return ul_diag_set(diag, UL_MISMATCH,
                           "\"smallest_budget_bytes\" is below \"lower_bound_bytes\"");
    bool is_laid_out = problem->bank_count == 0 || plan->bank_count > 0;
    if (plan->fits != (is_laid_out && (budget == 0 || plan->bounded_bytes <= budget)))
        return ul_diag_set(diag, UL_MISMATCH, "\"fits\" contradicts the budget and the bytes %s",
                           is_process ? "of the process" : "reserved");
    return check_floor(said, problem, plan, diag);
}

enum ul_status ul_report_read_plan(struct ul_arena *arena, const struct ul_saved *said,
                                   const struct ul_problem *problem, struct ul_plan *plan,
                                   struct ul_diag *diag)
{
    bool is_process = is_of_process(said) && said->process_bytes != UINT64_MAX;
    *plan =
        (struct ul_plan){.bounded_bytes = is_process ? said->process_bytes : said->reserved_bytes,
                         .peak_position = said->peak_step,
                         .packing_proven = said->fits && said->proven,
                         .order_method = said->method.order,
                         .remat_method = said->method.remat,
                         .pack_method = said->method.pack,
                         .rows.alignment_bytes = said->rows[UL_PLAN_CLASS_COUNT],
                         .rows.holes_bytes = said->rows[UL_PLAN_CLASS_COUNT + 1]};
    ul_facts_give(ul_class_plan(), said, plan);
    memcpy(plan->rows.class_bytes, said->rows, sizeof plan->rows.class_bytes);
    UL_TRY(place_spaces(said, arena, problem, plan, diag));
    UL_TRY(place_banks(said, arena, problem, plan, diag));
    UL_TRY(check_claims(said, problem, plan, diag));
    UL_TRY(place_steps(said, arena, problem, plan, diag));
    UL_TRY(place_ranges(said, arena, problem, plan, diag));
    UL_TRY(ul_plan_index_ranges(arena, problem, plan, diag));
    ul_plan_place_overhead(arena, problem, plan);
    return UL_OK;
}
