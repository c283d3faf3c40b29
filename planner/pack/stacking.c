/* SPDX-License-Identifier: Apache-2.0 */
/* Who lies below whom in a plan, and offsets for other sizes. */
#include "planner/pack/stacking.h"
#include "planner/pack/placement.h"

#include <inttypes.h>
#include <string.h>

static bool is_placed(const struct ul_plan_range *range)
{
    return range->space == 0 && range->size_bytes > 0;
}

static bool always_lives(const struct ul_problem *problem, const struct ul_plan_range *range)
{
    return range->value != UL_PLAN_NONE && problem->values[range->value].persistent;
}

static bool live_together(const struct ul_plan_range *a, const struct ul_plan_range *b)
{
    return a->begin < b->end && b->begin < a->end;
}

/* ---- slots ---- */

/* The first of the ranges that take over each other's bytes. */
static uint32_t head_of(const struct ul_plan *plan, uint32_t range)
{
    while (plan->ranges[range].alias != UL_PLAN_NONE)
        range = plan->ranges[range].alias;
    return range;
}

/* Numbers slots by their offsets. */
static void number_slots(struct ul_arena *arena, const struct ul_problem *problem,
                         const struct ul_plan *plan, struct ul_plan_stacking *stacking)
{
    struct ul_ranked *heads = UL_NEW_ARRAY(arena, struct ul_ranked, plan->range_count);
    stacking->slots = UL_NEW_ARRAY(arena, uint32_t, plan->range_count);
    for (uint32_t i = 0; i < plan->range_count; i++) {
        const struct ul_plan_range *range = &plan->ranges[i];
        stacking->slots[i] = UL_PLAN_NONE;
        if (is_placed(range) && head_of(plan, i) == i && !always_lives(problem, range))
            heads[stacking->slot_count++] =
                (struct ul_ranked){.rank = range->offset_bytes, .index = i};
    }
    ul_ranked_sort(heads, stacking->slot_count);
    for (uint32_t s = 0; s < stacking->slot_count; s++)
        stacking->slots[heads[s].index] = s;
    stacking->alignments = UL_NEW_ARRAY(arena, uint64_t, stacking->slot_count);
    for (uint32_t i = 0; i < plan->range_count; i++) {
        uint32_t slot =
            is_placed(&plan->ranges[i]) ? stacking->slots[head_of(plan, i)] : UL_PLAN_NONE;
        uint64_t alignment = ul_range_alignment(problem, plan, &plan->ranges[i]);
        stacking->slots[i] = slot;
        if (slot != UL_PLAN_NONE && alignment > stacking->alignments[slot])
            stacking->alignments[slot] = alignment;
    }
}

/* ---- pairs ---- */

/* The ranges of each slot. */
struct members {
    uint32_t *begins; /* by slot, and the end */
    uint32_t *ranges;
};

static struct members list_members(struct ul_arena *arena, const struct ul_plan *plan,
                                   const struct ul_plan_stacking *stacking)
{
    struct members members = {.begins =
                                  UL_NEW_ARRAY(arena, uint32_t, (uint64_t)stacking->slot_count + 2),
                              .ranges = UL_NEW_ARRAY(arena, uint32_t, plan->range_count)};
    for (uint32_t i = 0; i < plan->range_count; i++)
        if (stacking->slots[i] != UL_PLAN_NONE)
            members.begins[stacking->slots[i] + 2]++;
    for (uint32_t s = 2; s < stacking->slot_count + 2; s++)
        members.begins[s] += members.begins[s - 1];
    for (uint32_t i = 0; i < plan->range_count; i++)
        if (stacking->slots[i] != UL_PLAN_NONE)
            members.ranges[members.begins[stacking->slots[i] + 1]++] = i;
    return members;
}

static bool meets(const struct ul_plan *plan, const struct members *members, uint32_t range,
                  uint32_t slot)
{
    for (uint32_t m = members->begins[slot]; m < members->begins[slot + 1]; m++)
        if (live_together(&plan->ranges[range], &plan->ranges[members->ranges[m]]))
            return true;
    return false;
}

struct stacker {
    struct ul_arena *arena;
    const struct ul_plan *plan;
    struct ul_plan_stacking *stacking;
    struct members members;
    uint32_t pair_capacity;
};

/* Whether one of the slot's pairs, from `first` on, has a range of a slot above this one: then that
 * pair is enough. */
static bool follows(const struct stacker *stacker, uint32_t range, uint32_t first)
{
    const struct ul_plan_stacking *stacking = stacker->stacking;
    for (uint32_t p = first; p < stacking->pair_count; p++) {
        uint32_t between = stacking->slots[stacking->pairs[p].range];
        if (between > stacking->slots[range] &&
            meets(stacker->plan, &stacker->members, range, between))
            return true;
    }
    return false;
}

/* Adds what lies below a slot, from the top down. */
static void add_pairs(struct stacker *stacker, uint32_t slot)
{
    struct ul_plan_stacking *stacking = stacker->stacking;
    const struct members *members = &stacker->members;
    uint32_t first = stacking->pair_count;
    for (uint32_t below = slot; below-- > 0;)
        for (uint32_t m = members->begins[below]; m < members->begins[below + 1]; m++) {
            uint32_t range = members->ranges[m];
            if (!meets(stacker->plan, members, range, slot) || follows(stacker, range, first))
                continue;
            UL_GROW(stacker->arena, stacking->pairs, stacking->pair_count, stacker->pair_capacity);
            stacking->pairs[stacking->pair_count++] =
                (struct ul_plan_below){.range = range, .slot = slot};
        }
}

/* Slots and pairs; the floor is the caller's. */
static void stack(struct ul_arena *arena, const struct ul_problem *problem,
                  const struct ul_plan *plan, struct ul_plan_stacking *stacking)
{
    *stacking = (struct ul_plan_stacking){.floor_bytes = 0};
    number_slots(arena, problem, plan, stacking);
    struct stacker stacker = {.arena = arena,
                              .plan = plan,
                              .stacking = stacking,
                              .members = list_members(arena, plan, stacking)};
    for (uint32_t slot = 0; slot < stacking->slot_count; slot++)
        add_pairs(&stacker, slot);
}

enum ul_status ul_plan_stack(struct ul_arena *arena, const struct ul_problem *problem,
                             const struct ul_plan *plan, struct ul_plan_stacking *stacking,
                             struct ul_diag *diag)
{
    stack(arena, problem, plan, stacking);
    for (uint32_t i = 0; i < plan->range_count; i++) {
        const struct ul_plan_range *range = &plan->ranges[i];
        uint64_t end =
            range->offset_bytes + ul_size_align_or_die(range->size_bytes, plan->alignment_bytes);
        if (is_placed(range) && always_lives(problem, range) && end > stacking->floor_bytes)
            stacking->floor_bytes = end;
    }
    for (uint32_t i = 0; i < plan->range_count; i++)
        if (stacking->slots[i] != UL_PLAN_NONE &&
            plan->ranges[i].offset_bytes < stacking->floor_bytes)
            return ul_diag_set(diag, UL_MISMATCH,
                               "%s lies below what stays in the buffer, so that its offset cannot "
                               "follow from sizes",
                               plan->ranges[i].value == UL_PLAN_NONE
                                   ? "scratch"
                                   : ul_quote(arena, problem->values[plan->ranges[i].value].name));
    return UL_OK;
}

/* ---- offsets ---- */

uint64_t ul_plan_unstack(const struct ul_plan_stacking *stacking, const struct ul_plan *plan,
                         const uint64_t *bytes, uint64_t *offsets)
{
    uint64_t reserved = stacking->floor_bytes;
    for (uint32_t s = 0; s < stacking->slot_count; s++)
        offsets[s] = ul_size_align_or_die(stacking->floor_bytes, stacking->alignments[s]);
    for (uint32_t p = 0; p < stacking->pair_count; p++) {
        const struct ul_plan_below *pair = &stacking->pairs[p];
        uint64_t top = ul_size_align_or_die(
            ul_size_add_or_die(offsets[stacking->slots[pair->range]], bytes[pair->range]),
            stacking->alignments[pair->slot]);
        if (top > offsets[pair->slot])
            offsets[pair->slot] = top;
    }
    for (uint32_t i = 0; i < plan->range_count; i++) {
        if (stacking->slots[i] == UL_PLAN_NONE)
            continue;
        uint64_t top = ul_size_add_or_die(offsets[stacking->slots[i]], bytes[i]);
        reserved = top > reserved ? top : reserved;
    }
    return reserved;
}

/* Puts what always lives one behind the other; returns where it ends. */
static uint64_t lay_floor(struct ul_arena *arena, const struct ul_problem *problem,
                          struct ul_plan *plan)
{
    struct ul_ranked *heads = UL_NEW_ARRAY(arena, struct ul_ranked, plan->range_count);
    uint32_t count = 0;
    uint64_t end = 0;
    for (uint32_t i = 0; i < plan->range_count; i++)
        if (is_placed(&plan->ranges[i]) && always_lives(problem, &plan->ranges[i]) &&
            head_of(plan, i) == i)
            heads[count++] = (struct ul_ranked){.rank = plan->ranges[i].offset_bytes, .index = i};
    ul_ranked_sort(heads, count);
    for (uint32_t h = 0; h < count; h++) {
        struct ul_plan_range *range = &plan->ranges[heads[h].index];
        end = ul_size_align_or_die(end, ul_range_alignment(problem, plan, range));
        range->offset_bytes = end;
        end =
            ul_size_add_or_die(end, ul_size_align_or_die(range->size_bytes, plan->alignment_bytes));
    }
    return end;
}

void ul_plan_restack(struct ul_arena *arena, const struct ul_problem *problem, struct ul_plan *plan)
{
    struct ul_plan_stacking stacking;
    uint64_t before = plan->reserved_bytes[0];
    stack(arena, problem, plan, &stacking);
    stacking.floor_bytes = lay_floor(arena, problem, plan);
    uint64_t *bytes = UL_NEW_ARRAY(arena, uint64_t, plan->range_count);
    uint64_t *offsets = UL_NEW_ARRAY(arena, uint64_t, stacking.slot_count);
    for (uint32_t i = 0; i < plan->range_count; i++)
        bytes[i] = ul_size_align_or_die(plan->ranges[i].size_bytes, plan->alignment_bytes);
    plan->reserved_bytes[0] = ul_plan_unstack(&stacking, plan, bytes, offsets);
    for (uint32_t i = 0; i < plan->range_count; i++) {
        struct ul_plan_range *range = &plan->ranges[i];
        if (stacking.slots[i] != UL_PLAN_NONE)
            range->offset_bytes = offsets[stacking.slots[i]];
        else if (is_placed(range))
            range->offset_bytes = plan->ranges[head_of(plan, i)].offset_bytes;
    }
    uint64_t change = plan->reserved_bytes[0] - before; /* modulo 2^64 where it is below 0 */
    plan->rows.holes_bytes += change;
    plan->bounded_bytes += plan->bounded_bytes > 0 ? change : 0;
    plan->smallest_budget_bytes += change;
    plan->packing_proven = plan->reserved_bytes[0] == plan->order_lower_bound_bytes;
    plan->optimal = plan->reserved_bytes[0] == plan->lower_bound_bytes;
}

/* ---- the proof ---- */

/* For each slot, the ranges that pairs put below it, one bit for each. */
static uint64_t *reach(struct ul_arena *scratch, const struct ul_plan *plan,
                       const struct ul_plan_stacking *stacking, uint32_t words)
{
    uint64_t *below = UL_NEW_ARRAY(scratch, uint64_t, (uint64_t)words * stacking->slot_count);
    for (uint32_t p = 0; p < stacking->pair_count; p++) {
        const struct ul_plan_below *pair = &stacking->pairs[p];
        uint64_t *own = below + (size_t)pair->slot * words;
        UL_ASSERT(pair->range < plan->range_count && pair->slot < stacking->slot_count);
        const uint64_t *under = below + (size_t)stacking->slots[pair->range] * words;
        for (uint32_t w = 0; w < words; w++)
            own[w] |= under[w];
        ul_bits_add(own, pair->range);
    }
    return below;
}

static bool is_below(const uint64_t *below, uint32_t words, uint32_t range, uint32_t slot)
{
    return ul_bits_have(below + (size_t)slot * words, range);
}

static const char *name_of(struct ul_arena *arena, const struct ul_problem *problem,
                           const struct ul_plan_range *range)
{
    return range->value == UL_PLAN_NONE
               ? ul_arena_printf(arena, "scratch of position %" PRIu32, range->begin)
               : ul_quote(arena, problem->values[range->value].name);
}

enum ul_status ul_plan_check_stacking(struct ul_arena *scratch, const struct ul_problem *problem,
                                      const struct ul_plan *plan,
                                      const struct ul_plan_stacking *stacking, struct ul_diag *diag)
{
    uint32_t words = (plan->range_count + 63) / 64;
    for (uint32_t p = 1; p < stacking->pair_count; p++)
        if (stacking->pairs[p].slot < stacking->pairs[p - 1].slot)
            return ul_diag_set(diag, UL_MISMATCH, "pairs of ranges are not in order");
    const uint64_t *below = reach(scratch, plan, stacking, words);
    for (uint32_t i = 0; i < plan->range_count; i++)
        for (uint32_t k = 0; k < i; k++) {
            const struct ul_plan_range *a = &plan->ranges[i], *b = &plan->ranges[k];
            uint32_t s = stacking->slots[i], t = stacking->slots[k];
            if (s == UL_PLAN_NONE || t == UL_PLAN_NONE || s == t || !live_together(a, b) ||
                is_below(below, words, i, t) || is_below(below, words, k, s))
                continue;
            return ul_diag_set(diag, UL_MISMATCH,
                               "%s and %s live at the same time, and neither lies below the other",
                               name_of(scratch, problem, b), name_of(scratch, problem, a));
        }
    return UL_OK;
}
