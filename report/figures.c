/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of a plan that all forms of a report share. */
#include "planner/model/timeline.h"
#include "report/saved.h"

#include <string.h>

const char *ul_report_row_label(struct ul_arena *arena, uint32_t row)
{
    char *label = ul_arena_copy_string(arena, ul_report_row_name(row));
    for (char *at = strchr(label, '_'); at != NULL; at = strchr(at, '_'))
        *at = ' ';
    return label;
}

struct ul_report_unit ul_report_unit_of(uint64_t reserved_bytes)
{
    if (reserved_bytes < 1024 * 1024) /* as in ul_size_format */
        return (struct ul_report_unit){.name = "KiB", .bytes = 1024.0};
    return (struct ul_report_unit){.name = "MiB", .bytes = 1024.0 * 1024.0};
}

/* How many bytes of the name fit into that many columns. */
static size_t bytes_within(const char *name, size_t columns)
{
    size_t bytes = 0;
    while (name[bytes] != '\0') {
        size_t width, length = ul_text_character(name + bytes, &width);
        if (width > columns)
            break;
        columns -= width;
        bytes += length;
    }
    return bytes;
}

size_t ul_report_name_columns(struct ul_arena *arena, const char *name)
{
    return ul_text_columns(ul_shown(arena, name));
}

const char *ul_report_fit_name(struct ul_arena *arena, const char *name, size_t columns)
{
    enum { LEAST = 4 };
    const char *shown = ul_shown(arena, name);
    size_t count = ul_text_columns(shown);
    columns = columns < LEAST ? LEAST : columns;
    if (count <= columns)
        return shown;
    size_t head = columns / 2 - 1, tail = columns - head - 2;
    const char *rest = shown + bytes_within(shown, count - tail);
    while (ul_text_columns(rest) > tail) { /* a wide character crosses the boundary */
        size_t width;
        rest += ul_text_character(rest, &width);
    }
    return ul_arena_printf(arena, "%.*s..%s", (int)bytes_within(shown, head), shown, rest);
}

uint64_t ul_report_floor_bytes(const struct ul_report *report)
{
    const struct ul_problem *problem = report->problem;
    /* whether there were no other programs, with steps computed in pieces, to choose from */
    bool is_only_program = ul_saved_has_option(&report->facts, "no-pass", "split");
    return is_only_program
               ? report->plan->lower_bound_bytes
               : ul_account_ends_bound(problem->arena, problem, report->plan->alignment_bytes);
}

uint64_t ul_report_limit_bytes(const struct ul_problem *problem, const struct ul_saved *facts)
{
    bool has_banks = facts->budget_bytes == 0 && problem->bank_count > 0;
    return has_banks ? problem->spaces[0].capacity_bytes : facts->budget_bytes;
}

uint32_t ul_report_space_index(const struct ul_problem *problem, uint32_t space)
{
    uint32_t index = 0;
    UL_ASSERT(space <= problem->space_count);
    for (uint32_t s = 0; s < space; s++)
        index += !problem->spaces[s].is_overhead;
    return index;
}

uint32_t ul_report_space_at(const struct ul_problem *problem, uint32_t index)
{
    uint32_t space = 0;
    for (; space < problem->space_count; space++) {
        if (!problem->spaces[space].is_overhead && index-- == 0)
            break;
    }
    return space; /* an invalid index stays invalid */
}

struct ul_report_step ul_report_step_at(const struct ul_report *report, uint32_t position)
{
    const struct ul_plan_position *at = &report->plan->positions[position];
    const char *kind = ul_plan_word(ul_plan_word_of(at->kind, at->loads));
    if (at->kind == UL_PLAN_RUN)
        return report->steps[at->step];
    if (at->kind == UL_PLAN_WAIT)
        return (struct ul_report_step){.name = kind, .op = kind, .node = ""};
    const char *name = report->values[at->value].name;
    return (struct ul_report_step){.name = name,
                                   .op = kind,
                                   .node = name,
                                   .moved_bytes = report->problem->values[at->value].size_bytes};
}

void ul_report_biggest_first(const uint64_t *sizes, uint32_t *alive, uint32_t count,
                             uint32_t wanted)
{
    for (uint32_t place = 0; place < count && place < wanted; place++) {
        uint32_t best = place;
        for (uint32_t i = place + 1; i < count; i++) {
            if (sizes[alive[i]] > sizes[alive[best]])
                best = i;
        }
        uint32_t chosen = alive[best];
        memmove(alive + place + 1, alive + place, (best - place) * sizeof *alive);
        alive[place] = chosen;
    }
}

uint32_t ul_report_blockers(const struct ul_report *report, struct ul_arena *arena, uint32_t wanted,
                            uint32_t *steps, uint64_t *need_bytes)
{
    const struct ul_problem *problem = report->problem;
    uint64_t **needs = ul_account_needs(arena, problem, report->plan->alignment_bytes);
    uint32_t count = 0;
    for (uint32_t s = 0; s < problem->step_count; s++) {
        uint64_t least = UINT64_MAX;
        for (uint32_t a = 0; a < problem->steps[s].alternative_count; a++)
            least = needs[s][a] < least ? needs[s][a] : least;
        uint32_t at = count < wanted ? count++ : wanted;
        for (; at > 0 && need_bytes[at - 1] < least; at--) {
            if (at == wanted)
                continue;
            steps[at] = steps[at - 1];
            need_bytes[at] = need_bytes[at - 1];
        }
        if (at < wanted) {
            steps[at] = s;
            need_bytes[at] = least;
        }
    }
    return count;
}

uint32_t ul_report_recomputed(const struct ul_plan *plan)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < plan->position_count; p++)
        count += plan->positions[p].copy > 0 && plan->positions[p].substep == 0;
    return count;
}

double ul_report_repeated(const struct ul_report *report)
{
    const struct ul_plan *plan = report->plan;
    double all = 0, repeated = 0;
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct ul_plan_position *at = &plan->positions[p];
        if (at->kind == UL_PLAN_RUN && at->substep == 0)
            *(at->copy > 0 ? &repeated : &all) += (double)report->steps[at->step].flop_count;
    }
    return all > 0 ? repeated / all : 0;
}

uint32_t ul_report_alive(const struct ul_report *report, struct ul_arena *arena, uint32_t wanted,
                         uint32_t **alive)
{
    const struct ul_plan *plan = report->plan;
    bool *taken_over = UL_NEW_ARRAY(arena, bool, plan->range_count);
    uint64_t *sizes = UL_NEW_ARRAY(arena, uint64_t, plan->range_count);
    uint32_t count = 0;
    *alive = UL_NEW_ARRAY(arena, uint32_t, plan->range_count);
    for (uint32_t i = 0; i < plan->range_count; i++) {
        sizes[i] = plan->ranges[i].size_bytes;
        if (plan->ranges[i].alias != UL_PLAN_NONE && plan->ranges[i].begin <= plan->peak_position)
            taken_over[plan->ranges[i].alias] = true;
    }
    for (uint32_t i = 0; i < plan->range_count; i++) {
        const struct ul_plan_range *range = &plan->ranges[i];
        if (range->begin <= plan->peak_position && plan->peak_position < range->end &&
            range->space == 0 && range->class != UL_PLAN_WEIGHTS &&
            range->class != UL_PLAN_OPTIMIZER && !taken_over[i])
            (*alive)[count++] = i;
    }
    ul_report_biggest_first(sizes, *alive, count, wanted);
    return count;
}
