/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about any plan. */
#include "planner/model/plan.h"
#include "planner/model/method.h"

void ul_plan_options_resolve(struct ul_plan_options *options)
{
    if (options->alignment_bytes == 0)
        options->alignment_bytes = UL_PLAN_ALIGN_BYTES;
}

const struct ul_plan_range *ul_plan_find_range(const struct ul_problem *problem,
                                               const struct ul_plan *plan, uint32_t value,
                                               uint32_t position)
{
    UL_ASSERT(plan->value_ranges != NULL && value < problem->value_count);
    for (uint32_t r = plan->value_ranges[value + 1]; r-- > plan->value_ranges[value];) {
        if (plan->ranges[r].space == problem->values[value].space &&
            plan->ranges[r].begin <= position && position < plan->ranges[r].end)
            return &plan->ranges[r];
    }
    return NULL;
}

const struct ul_plan_resource *ul_plan_resource_at(const struct ul_problem *problem,
                                                   const struct ul_plan_position *at)
{
    UL_ASSERT(at->kind != UL_PLAN_WAIT);
    if (at->kind == UL_PLAN_COPY)
        return ul_problem_engine(problem, at->space, at->loads);
    return &problem->resources[problem->steps[at->step].alternatives[at->alternative].resource];
}

uint64_t ul_plan_cost_at(const struct ul_problem *problem, const struct ul_plan_position *at)
{
    if (at->kind == UL_PLAN_COPY)
        return ul_resource_cost(ul_plan_resource_at(problem, at),
                                problem->values[at->value].size_bytes);
    return at->kind == UL_PLAN_RUN && at->substep == 0
               ? problem->steps[at->step].alternatives[at->alternative].cost
               : 0;
}

uint32_t ul_plan_find_bank(const struct ul_plan *plan, uint64_t offset_bytes, uint64_t size_bytes)
{
    for (uint32_t b = 0; b < plan->bank_count; b++) {
        const struct ul_plan_bank_place *bank = &plan->banks[b];
        if (offset_bytes >= bank->begin_bytes && size_bytes <= bank->size_bytes &&
            offset_bytes - bank->begin_bytes <= bank->size_bytes - size_bytes)
            return b;
    }
    return UL_PLAN_NONE;
}

bool ul_plan_only_runs(const struct ul_plan *plan)
{
    for (uint32_t p = 0; p < plan->position_count; p++) {
        if (plan->positions[p].kind != UL_PLAN_RUN || plan->positions[p].stream != 0)
            return false;
    }
    return true;
}

bool ul_plan_has_streams(const struct ul_plan *plan)
{
    for (uint32_t p = 0; p < plan->position_count; p++) {
        if (plan->positions[p].kind == UL_PLAN_RUN && plan->positions[p].stream != 0)
            return true;
    }
    return false;
}

bool ul_plan_has_transfers(const struct ul_plan *plan)
{
    for (uint32_t p = 0; p < plan->position_count; p++) {
        if (plan->positions[p].kind == UL_PLAN_COPY)
            return true;
    }
    return false;
}

enum ul_status ul_plan_index_ranges(struct ul_arena *arena, const struct ul_problem *problem,
                                    struct ul_plan *plan, struct ul_diag *diag)
{
    plan->value_ranges = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)problem->value_count + 1);
    uint32_t at = 0;
    for (uint32_t value = 0; value < problem->value_count; value++) {
        plan->value_ranges[value] = at;
        while (at < plan->range_count && plan->ranges[at].value == value)
            at++;
    }
    plan->value_ranges[problem->value_count] = at;
    for (; at < plan->range_count; at++) {
        uint32_t value = plan->ranges[at].value;
        bool is_known = value < problem->value_count && problem->values[value].name != NULL;
        if (value != UL_PLAN_NONE)
            return ul_diag_set(diag, UL_INVALID,
                               "range %u is of value %u%s%s: the ranges are in order of value, "
                               "copy, then scratch",
                               at, value, is_known ? ", " : "",
                               is_known ? ul_quote(arena, problem->values[value].name) : "");
    }
    return UL_OK;
}

struct ul_plan ul_plan_keep(struct ul_arena *arena, const struct ul_problem *problem,
                            const struct ul_plan *plan)
{
    struct ul_plan kept = *plan;
    UL_ASSERT(plan->space_count == problem->space_count);
    kept.positions =
        ul_arena_copy(arena, plan->positions, plan->position_count * sizeof *plan->positions);
    kept.ranges = ul_arena_copy(arena, plan->ranges, plan->range_count * sizeof *plan->ranges);
    kept.value_ranges = ul_arena_copy(arena, plan->value_ranges,
                                      ((size_t)problem->value_count + 1) * sizeof(uint32_t));
    kept.reserved_bytes =
        ul_arena_copy(arena, plan->reserved_bytes, plan->space_count * sizeof(uint64_t));
    if (plan->banks != NULL)
        kept.banks = ul_arena_copy(arena, plan->banks, plan->bank_count * sizeof *plan->banks);
    return kept;
}

double ul_plan_overhead(uint64_t cost, uint64_t base_cost)
{
    return base_cost == 0 ? 0.0 : ((double)cost - (double)base_cost) / (double)base_cost;
}

uint64_t ul_plan_limit_bytes(const struct ul_problem *problem, uint64_t budget_bytes)
{
    UL_ASSERT(problem->space_count > 0);
    uint64_t capacity = problem->spaces[0].capacity_bytes;
    return budget_bytes == 0 || (capacity != 0 && capacity < budget_bytes) ? capacity
                                                                           : budget_bytes;
}

/* Also for a plan that has not been checked yet. */
static uint64_t deepest_stack(const struct ul_problem *problem, const struct ul_plan *plan)
{
    uint64_t deepest = 0;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct ul_plan_position *at = &plan->positions[p];
        if (at->kind != UL_PLAN_RUN || at->step >= problem->step_count ||
            at->alternative >=
                problem->steps[at->step].alternative_count + problem->steps[at->step].spare_count)
            continue;
        uint64_t bytes = problem->steps[at->step].alternatives[at->alternative].stack_bytes;
        deepest = bytes > deepest ? bytes : deepest;
    }
    return deepest;
}

void ul_plan_sum_overhead(const struct ul_problem *problem, struct ul_plan *plan)
{
    plan->overhead_bytes = deepest_stack(problem, plan);
    for (uint32_t s = 1; s < plan->space_count && s < problem->space_count; s++)
        plan->overhead_bytes += problem->spaces[s].is_overhead ? plan->reserved_bytes[s] : 0;
}

/* A fraction below 1 lets the sum fall with the reserved bytes. A quarter leaves most of that
 * fall. */
uint64_t ul_plan_late_bytes(const struct ul_process_overhead *overhead, uint64_t reserved_bytes)
{
    enum { SHARE = 4 };
    UL_ASSERT(overhead->last_bytes <= overhead->run_bytes);
    uint64_t kept_bytes = overhead->unread_bytes + overhead->held_bytes;
    uint64_t bytes = reserved_bytes > kept_bytes ? (reserved_bytes - kept_bytes) / SHARE : 0;
    return bytes < overhead->last_bytes ? bytes : overhead->last_bytes;
}

/* With that many bytes of space 0, and what the plan, if there is one, has outside. */
static uint64_t bounded_bytes(const struct ul_process_overhead *overhead, uint64_t reserved_bytes,
                              const struct ul_plan *plan)
{
    uint64_t unread =
        overhead->unread_bytes < reserved_bytes ? overhead->unread_bytes : reserved_bytes;
    uint64_t tables = overhead->page_share == 0 ? 0 : reserved_bytes / overhead->page_share;
    uint64_t kept = plan != NULL && overhead->has_spaces ? plan->overhead_bytes : 0;
    uint64_t run = reserved_bytes - unread + tables + overhead->run_bytes + kept -
                   ul_plan_late_bytes(overhead, reserved_bytes);
    uint64_t first = reserved_bytes < overhead->start_page_bytes ? 0 : overhead->start_page_bytes;
    uint64_t start = first + overhead->start_bytes + kept;
    bool starts = plan != NULL && overhead->start_space < plan->space_count &&
                  overhead->start_space > 0 && plan->reserved_bytes[overhead->start_space] > 0;
    start = start > overhead->load_bytes ? start : overhead->load_bytes;
    return starts && start > run ? start : run;
}

uint64_t ul_plan_bounded_bytes(const struct ul_process_overhead *overhead,
                               const struct ul_plan *plan)
{
    return bounded_bytes(overhead, plan->reserved_bytes[0], plan);
}

/* By bisection: the bytes never fall as more is reserved. */
uint64_t ul_plan_space_budget(const struct ul_process_overhead *overhead,
                              const struct ul_plan *plan, uint64_t budget_bytes)
{
    uint64_t fits = 0, end;
    if (!ul_size_add(budget_bytes, overhead->unread_bytes, &end) || end == UINT64_MAX)
        return budget_bytes;
    for (end++; fits + 1 < end;) {
        uint64_t middle = fits + (end - fits) / 2;
        if (bounded_bytes(overhead, middle, plan) <= budget_bytes)
            fits = middle;
        else
            end = middle;
    }
    UL_ASSERT(fits == 0 || bounded_bytes(overhead, fits, plan) <= budget_bytes);
    return fits == 0 ? 1 : fits;
}

void ul_plan_judge(const struct ul_problem *problem, uint64_t budget_bytes,
                   const struct ul_process_overhead *overhead, struct ul_plan *plan)
{
    UL_ASSERT(plan->space_count == problem->space_count);
    plan->fits = budget_bytes == 0 ||
                 (overhead == NULL ? plan->reserved_bytes[0]
                                   : ul_plan_bounded_bytes(overhead, plan)) <= budget_bytes;
    for (uint32_t s = 0; s < problem->space_count; s++) {
        uint64_t capacity = problem->spaces[s].capacity_bytes;
        bool has_banks = s == 0 && plan->bank_count > 0; /* which have capacities each */
        if (capacity != 0 && plan->reserved_bytes[s] > capacity && !has_banks)
            plan->fits = false;
    }
    for (uint32_t b = 0; b < plan->bank_count; b++)
        plan->fits = plan->fits && plan->banks[b].size_bytes <= problem->banks[b].capacity_bytes;
    if (plan->order_why_not != NULL || plan->pack_why_not != NULL)
        plan->fits = false;
}

enum ul_status ul_plan_require_methods(const struct ul_plan_options *options,
                                       const struct ul_plan *plan, struct ul_diag *diag)
{
    static const char text[] = "--%s %s: %s. Nothing else took its place.";
    if (plan->order_why_not != NULL)
        return ul_diag_set(diag, UL_NO_FIT, text, "order",
                           ul_method_get(UL_METHOD_ORDER, options->order)->name,
                           plan->order_why_not);
    if (plan->pack_why_not != NULL)
        return ul_diag_set(diag, UL_NO_FIT, text, "pack",
                           ul_method_get(UL_METHOD_PACK, options->pack)->name, plan->pack_why_not);
    return UL_OK;
}

const char *ul_plan_remat_refusal(struct ul_arena *arena, const struct ul_plan_options *options,
                                  const struct ul_plan *plan)
{
    const struct ul_method *method = ul_method_get(UL_METHOD_REMAT, options->remat);
    UL_ASSERT(plan->remat_why_not != NULL);
    return ul_arena_printf(arena, "--remat %s: %s; it needs %s. Nothing else took its place.",
                           method->name, plan->remat_why_not,
                           method->needs != NULL ? method->needs : "a larger budget");
}
