/* SPDX-License-Identifier: Apache-2.0 */
/* The message where a plan does not fit its budget: by how much, which budgets are known to work or
 * not to, what lives at the peak, and what makes a plan smaller. */
#include "report/report.h"

/* Says what would help other than a larger budget, where offloaded values are bounded. */
static void put_room(struct ul_text *text, const struct ul_report *report,
                     const struct ul_refusal *refusal)
{
    uint64_t room = report->plan->sufficient_room_bytes;
    if (refusal->offload_budget_bytes == 0)
        return;
    if (room > 0)
        ul_text_printf(
            text,
            "\nThat is with --offload-budget %llu: with --offload-budget %llu (%s) a plan "
            "is within the budget.",
            (unsigned long long)refusal->offload_budget_bytes, (unsigned long long)room,
            ul_size_format(text->arena, room));
    else
        ul_text_printf(text,
                       "\nThat is with --offload-budget %llu: no more of it is known to meet the "
                       "budget.",
                       (unsigned long long)refusal->offload_budget_bytes);
}

/* Says how far the plan is from fitting, and which budgets are known to work or not to work. */
static void put_shortfall(struct ul_text *text, const struct ul_report *report,
                          const struct ul_refusal *refusal)
{
    struct ul_arena *keep = text->arena;
    uint64_t budget = refusal->budget_bytes, needed = refusal->needed_bytes;
    uint64_t reserved = report->plan->reserved_bytes[0];
    uint64_t floor_bytes = ul_report_floor_bytes(report);
    ul_text_printf(text, "%s does not fit the budget of %s: it needs %s, %s more.\n",
                   report->facts.model, ul_size_exact(keep, budget), ul_size_exact(keep, needed),
                   ul_size_exact(keep, needed - budget));
    if (needed != reserved)
        ul_text_printf(text, "The buffer is %s of these (--budget-of arena bounds only that).\n",
                       ul_size_exact(keep, reserved));
    ul_text_printf(text, "The smallest budget known to work is %s",
                   ul_size_exact(keep, report->plan->smallest_budget_bytes));
    if (budget < floor_bytes) {
        ul_text_printf(text, "; it is proven that at least %s are needed.",
                       ul_size_exact(keep, floor_bytes));
    } else {
        /* The report can only say that no plan of this program is smaller. */
        ul_text_put(text, "; whether a smaller one works, with steps split or laid out otherwise, "
                          "is not known");
        if (floor_bytes > 0)
            ul_text_printf(text, ", but none below %s does", ul_size_exact(keep, floor_bytes));
        ul_text_put(text, ".");
    }
}

/* "    12.34 MiB      12939428 bytes  what" */
static void put_size(struct ul_text *text, uint64_t bytes, const char *what)
{
    ul_text_printf(text, "\n  %10s %13llu bytes  %s", ul_size_format(text->arena, bytes),
                   (unsigned long long)bytes, what);
}

static void put_alive(struct ul_text *text, const struct ul_report *report)
{
    enum { MAX_NAMED = 6 };
    const struct ul_plan *plan = report->plan;
    uint32_t *alive;
    uint64_t others = 0;
    uint32_t count = ul_report_alive(report, text->arena, MAX_NAMED, &alive);
    if (plan->position_count == 0)
        return;
    const struct ul_report_step *peak = &report->steps[plan->positions[plan->peak_position].step];
    uint64_t state_bytes = plan->rows.class_bytes[UL_PLAN_OPTIMIZER];
    uint64_t always_bytes = plan->rows.class_bytes[UL_PLAN_WEIGHTS] + state_bytes;
    ul_text_printf(text, "\nIts peak is at step %u, %s; alive there", plan->peak_position,
                   ul_quote(text->arena, peak->node));
    if (always_bytes > 0)
        ul_text_printf(text, " beside %s of weights%s", ul_size_exact(text->arena, always_bytes),
                       state_bytes > 0 ? " and optimizer's state" : "");
    ul_text_put(text, ":");
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_plan_range *range = &plan->ranges[alive[i]];
        const char *name = range->value == UL_PLAN_NONE
                               ? "scratch"
                               : ul_quote(text->arena, report->values[range->value].name);
        if (i < MAX_NAMED)
            put_size(text, range->size_bytes, name);
        else
            others += range->size_bytes;
    }
    if (count > MAX_NAMED)
        put_size(text, others, ul_arena_printf(text->arena, "in %u more", count - MAX_NAMED));
}

static void put_remedies(struct ul_text *text, const struct ul_refusal *refusal)
{
    uint32_t count = refusal->remedy_count;
    ul_text_put(text, "\nA smaller batch or shape");
    for (uint32_t i = 0; i < count; i++)
        ul_text_printf(text, "%s%s", i + 1 == count ? " and " : ", ", refusal->remedies[i]);
    ul_text_put(text, count > 0 ? " make it smaller." : " makes it smaller.");
}

const char *ul_report_refusal(const struct ul_report *report, const struct ul_refusal *refusal,
                              struct ul_arena *arena)
{
    struct ul_text text;
    UL_ASSERT(refusal->needed_bytes > refusal->budget_bytes);
    ul_text_init(&text, arena);
    put_shortfall(&text, report, refusal);
    put_room(&text, report, refusal);
    if (refusal->method != NULL)
        ul_text_printf(&text, "\n%s", refusal->method);
    if (refusal->keeps)
        ul_text_put(&text,
                    "\nThat is with what --checkpoint keeps: without it the planner chooses.");
    put_alive(&text, report);
    put_remedies(&text, refusal);
    return text.data;
}

/* The largest space that may hold a range. */
static uint64_t room_for(const struct ul_problem *problem, const struct ul_plan_range *range)
{
    uint64_t room = problem->banks[0].capacity_bytes;
    bool is_first = range->value != UL_PLAN_NONE && (problem->values[range->value].in_first_bank ||
                                                     problem->values[range->value].pinned);
    for (uint32_t b = 1; b < problem->bank_count && !is_first; b++)
        if ((range->class == UL_PLAN_WEIGHTS || !problem->banks[b].weights) &&
            problem->banks[b].capacity_bytes > room)
            room = problem->banks[b].capacity_bytes;
    return room;
}

/* Why a plan does not fit spaces that together have room for it, or for a part of it. */
static void put_lack(struct ul_text *text, const struct ul_report *report)
{
    const struct ul_problem *problem = report->problem;
    const struct ul_plan *plan = report->plan;
    struct ul_arena *arena = text->arena;
    const struct ul_plan_range *largest = NULL;
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *range = &plan->ranges[r];
        uint64_t bytes = ul_size_align_or_die(range->size_bytes, plan->alignment_bytes);
        if (range->space == 0 && bytes > room_for(problem, range) &&
            (largest == NULL || range->size_bytes > largest->size_bytes))
            largest = range;
    }
    if (largest == NULL) {
        if (plan->reserved_bytes[0] <= problem->spaces[0].capacity_bytes)
            ul_text_put(text, "\nNo way was found to divide its values among them.");
        return;
    }
    uint32_t value = largest->value;
    const char *name =
        value == UL_PLAN_NONE
            ? ul_arena_printf(
                  arena, "the scratch of %s",
                  ul_quote(arena, report->steps[plan->positions[largest->begin].step].node))
            : ul_quote(arena, report->values[value].name);
    const char *takes =
        ul_size_exact(arena, ul_size_align_or_die(largest->size_bytes, plan->alignment_bytes));
    const char *room = ul_size_exact(arena, room_for(problem, largest));
    if (value != UL_PLAN_NONE && problem->values[value].in_first_bank)
        ul_text_printf(text,
                       "\nThe first space must hold %s, where a program finds the others: that "
                       "takes %s, and %s has %s.",
                       name, takes, problem->banks[0].name, room);
    else
        ul_text_printf(text,
                       "\nOne space must hold all of %s: that takes %s, and none that may hold it "
                       "has more than %s.",
                       name, takes, room);
}

const char *ul_report_bank_refusal(const struct ul_report *report, const struct ul_refusal *refusal,
                                   const uint64_t *capacities, struct ul_arena *arena)
{
    const struct ul_problem *problem = report->problem;
    struct ul_text text;
    bool is_any = false;
    ul_text_init(&text, arena);
    ul_text_printf(&text,
                   "%s does not fit its spaces, which together have %s: the smallest plan found "
                   "takes %s, each value in one of them.",
                   report->facts.model, ul_size_exact(arena, problem->spaces[0].capacity_bytes),
                   ul_size_exact(arena, report->plan->reserved_bytes[0]));
    put_lack(&text, report);
    for (uint32_t b = 0; b < problem->bank_count; b++) {
        if (capacities[b] == 0)
            continue;
        ul_text_printf(&text, "%s --space %s=%llu (%s)", is_any ? ", or with" : "\nIt fits with",
                       problem->banks[b].name, (unsigned long long)capacities[b],
                       ul_size_format(arena, capacities[b]));
        is_any = true;
    }
    ul_text_put(&text, is_any ? ", with all else as it is." : "");
    put_alive(&text, report);
    put_remedies(&text, refusal);
    return text.data;
}

const char *ul_report_offload_refusal(const struct ul_report *report, uint64_t reserved_bytes,
                                      uint64_t capacity_bytes, struct ul_arena *arena)
{
    UL_ASSERT(reserved_bytes > capacity_bytes);
    return ul_arena_printf(arena, "%s does not fit: it offloads %s, %s more than --offload-budget",
                           report->facts.model, ul_size_exact(arena, reserved_bytes),
                           ul_size_exact(arena, reserved_bytes - capacity_bytes));
}
