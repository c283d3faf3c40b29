/* SPDX-License-Identifier: Apache-2.0 */
/* Gives the ranges of a plan to the packer, one buffer for each alias chain.
 *
 * A chain's members follow each other and never grow, so the chain is one buffer that is live from
 * the first member's begin to the last one's end, and whose bytes get fewer:
 *
 *     bytes |xxxxxx          |
 *           |xxxxxxyyyyy     |      a gap [end of x, end of y) with window [0, |y|)
 *           |xxxxxxyyyyyzzzz |
 *
 * Nothing else ever uses the bytes of values that always live, above all weights; so a packing
 * stays valid when they are moved below everything else. They are put there from the beginning, and
 * the packer gets only the others. */
#include "planner/pack/placement.h"
#include "planner/model/timeline.h"

#include <string.h>

static uint64_t padded(const struct ul_plan *plan, uint64_t size_bytes)
{
    return ul_size_align_or_die(size_bytes, plan->alignment_bytes);
}

uint64_t ul_range_alignment(const struct ul_problem *problem, const struct ul_plan *plan,
                            const struct ul_plan_range *range)
{
    uint64_t wanted = 0;
    if (range->value != UL_PLAN_NONE)
        wanted = problem->values[range->value].alignment_bytes;
    /* A range of scratch belongs to one of the positions through which it lives. */
    for (uint32_t p = range->begin; range->value == UL_PLAN_NONE && p < range->end; p++) {
        const struct ul_plan_position *at = &plan->positions[p];
        uint64_t own =
            at->kind == UL_PLAN_RUN ? ul_substep_at(problem, at)->scratch_alignment_bytes : 0;
        wanted = own > wanted ? own : wanted;
    }
    return wanted > plan->alignment_bytes ? wanted : plan->alignment_bytes;
}

static void chain_gaps(struct ul_placement *l, struct ul_pack_buffer *buffer, uint32_t head)
{
    const struct ul_plan_range *ranges = l->plan->ranges;
    uint32_t count = 0;
    for (uint32_t r = l->next[head]; r != UL_PLAN_NONE; r = l->next[r])
        count++;
    if (count == 0)
        return;
    struct ul_pack_gap *gaps = UL_NEW_ARRAY(l->arena, struct ul_pack_gap, count);
    uint64_t size = padded(l->plan, ranges[head].size_bytes);
    for (uint32_t r = l->next[head]; r != UL_PLAN_NONE; r = l->next[r]) {
        const struct ul_plan_range *range = &ranges[r];
        uint64_t alignment = ul_range_alignment(l->problem, l->plan, range);
        if (alignment > buffer->alignment_bytes)
            buffer->alignment_bytes = alignment;
        uint64_t window = padded(l->plan, range->size_bytes);
        if (window < size && range->begin + 1 < range->end)
            gaps[buffer->gap_count++] = (struct ul_pack_gap){
                .begin = range->begin + 1, .end = range->end, .window_upper_bytes = window};
        buffer->end = range->end;
    }
    buffer->gaps = gaps;
}

void ul_placement_take(struct ul_placement *l, uint32_t space)
{
    const struct ul_plan *plan = l->plan;
    l->buffer_count = 0;
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *range = &plan->ranges[r];
        if (range->space != space || range->alias != UL_PLAN_NONE)
            continue;
        struct ul_pack_buffer *buffer = &l->buffers[l->buffer_count];
        *buffer = (struct ul_pack_buffer){.begin = range->begin,
                                          .end = range->end,
                                          .size_bytes = padded(plan, range->size_bytes),
                                          .alignment_bytes =
                                              ul_range_alignment(l->problem, l->plan, range)};
        if (range->value != UL_PLAN_NONE && l->problem->values[range->value].pinned) {
            buffer->pinned = true;
            buffer->offset_bytes = l->problem->values[range->value].pinned_offset_bytes;
        }
        chain_gaps(l, buffer, r);
        l->heads[l->buffer_count++] = r;
    }
}

/* Puts values that always live at the bottom, moves the others to the front of the list, and
 * returns the bytes below them. Only where any multiple of the common alignment is as good as
 * another. */
static uint64_t bottom_fill(struct ul_placement *l, uint32_t *other_count)
{
    static const uint64_t max = (uint64_t)1 << 60; /* the packer reports what is too much */
    uint32_t begin = UINT32_MAX;
    uint32_t end = 0;
    uint64_t bottom = 0;
    uint64_t sum = 0;
    bool plain = true;
    *other_count = l->buffer_count;
    for (uint32_t i = 0; i < l->buffer_count; i++) {
        const struct ul_pack_buffer *buffer = &l->buffers[i];
        begin = buffer->begin < begin ? buffer->begin : begin;
        end = buffer->end > end ? buffer->end : end;
        plain = plain && !buffer->pinned && buffer->alignment_bytes == l->plan->alignment_bytes;
        plain = plain && ul_size_add(sum, buffer->size_bytes, &sum) && sum < max;
    }
    if (!plain)
        return 0;
    struct ul_pack_buffer *whole = UL_NEW_ARRAY(l->arena, struct ul_pack_buffer, l->buffer_count);
    uint32_t *whole_heads = UL_NEW_ARRAY(l->arena, uint32_t, l->buffer_count);
    uint32_t whole_count = 0;
    *other_count = 0;
    for (uint32_t i = 0; i < l->buffer_count; i++) {
        struct ul_pack_buffer buffer = l->buffers[i];
        if (buffer.begin == begin && buffer.end == end && buffer.gap_count == 0) {
            buffer.offset_bytes = bottom;
            bottom += buffer.size_bytes;
            whole_heads[whole_count] = l->heads[i];
            whole[whole_count++] = buffer;
        } else {
            l->heads[*other_count] = l->heads[i];
            l->buffers[(*other_count)++] = buffer;
        }
    }
    memcpy(l->buffers + *other_count, whole, whole_count * sizeof *whole);
    memcpy(l->heads + *other_count, whole_heads, whole_count * sizeof *whole_heads);
    return bottom;
}

/* Gives the ranges these offsets, and returns the highest end. */
static uint64_t store(const struct ul_placement *l)
{
    uint64_t reserved = 0;
    for (uint32_t i = 0; i < l->buffer_count; i++) {
        const struct ul_pack_buffer *buffer = &l->buffers[i];
        for (uint32_t r = l->heads[i]; r != UL_PLAN_NONE; r = l->next[r])
            l->plan->ranges[r].offset_bytes = buffer->offset_bytes;
        uint64_t end = ul_size_add_or_die(buffer->offset_bytes, buffer->size_bytes);
        reserved = end > reserved ? end : reserved;
    }
    return reserved;
}

enum ul_status ul_placement_pack(struct ul_placement *l, enum ul_plan_pack method,
                                 struct ul_pack_options *pack, struct ul_pack_result *result,
                                 struct ul_diag *diag)
{
    uint32_t other_count;
    if (method == UL_PACK_NONE) {
        /* Everything lives for ever: the packer then gives each buffer its own bytes. */
        for (uint32_t i = 0; i < l->buffer_count; i++) {
            l->buffers[i].begin = 0;
            l->buffers[i].end = 1;
        }
    }
    pack->method = method;
    uint64_t bottom = bottom_fill(l, &other_count);
    if (pack->capacity_bytes > 0 && l->holds_all)
        pack->capacity_bytes = pack->capacity_bytes > bottom ? pack->capacity_bytes - bottom : 1;
    UL_TRY(ul_pack_solve(l->arena, l->buffers, other_count, pack, result, diag));
    for (uint32_t i = 0; i < other_count; i++)
        l->buffers[i].offset_bytes += bottom;
    return UL_OK;
}

static enum ul_status space_place(struct ul_placement *l, const struct ul_plan_options *options,
                                  uint32_t space, struct ul_diag *diag)
{
    struct ul_plan *plan = l->plan;
    ul_placement_take(l, space);
    struct ul_pack_options pack = {.work_limit = options->work_limit,
                                   .time_limit_seconds = options->time_limit_seconds};
    if (ul_problem_engine(l->problem, space, false) != NULL) { /* less is useless */
        enum { OTHER_WORK = 1 << 16 };
        uint64_t capacity = l->problem->spaces[space].capacity_bytes;
        pack.capacity_bytes = capacity;
        pack.work_limit = capacity == 0 ? OTHER_WORK : pack.work_limit;
    }
    struct ul_pack_result result;
    UL_TRY(ul_placement_pack(l, options->pack, &pack, &result, diag));
    plan->reserved_bytes[space] = store(l);
    if (space == 0) {
        plan->pack_method = options->pack == UL_PACK_NONE ? "none" : result.method;
        plan->pack_why_not = result.why_not;
        plan->packing_proven = result.optimal && options->pack != UL_PACK_NONE;
        plan->stopped_by_time = plan->stopped_by_time || result.stopped_by_time;
    }
    return UL_OK;
}

void ul_placement_begin(struct ul_placement *l, struct ul_arena *arena,
                        const struct ul_problem *problem, struct ul_plan *plan)
{
    *l = (struct ul_placement){.arena = arena, .problem = problem, .plan = plan};
    l->next = UL_NEW_ARRAY(arena, uint32_t, plan->range_count);
    l->heads = UL_NEW_ARRAY(arena, uint32_t, plan->range_count);
    l->buffers = UL_NEW_ARRAY(arena, struct ul_pack_buffer, plan->range_count);
    for (uint32_t r = 0; r < plan->range_count; r++)
        l->next[r] = UL_PLAN_NONE;
    for (uint32_t r = 0; r < plan->range_count; r++) {
        if (plan->ranges[r].alias != UL_PLAN_NONE)
            l->next[plan->ranges[r].alias] = r;
    }
}

enum ul_status ul_place_ranges(struct ul_arena *arena, const struct ul_problem *problem,
                               const struct ul_plan_options *options, struct ul_plan *plan,
                               struct ul_diag *diag)
{
    struct ul_placement l;
    ul_placement_begin(&l, arena, problem, plan);
    for (uint32_t space = 0; space < problem->space_count; space++)
        UL_TRY(space_place(&l, options, space, diag));
    return UL_OK;
}
