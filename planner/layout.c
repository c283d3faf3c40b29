/* Hands the ranges of a plan to the packer, one buffer for each alias chain.
 *
 * A chain's members follow each other and never grow, so that the chain is one buffer that is
 * live from the first member's begin to the last one's end, with its bytes narrowing on the way:
 *
 *     bytes |xxxxxx          |
 *           |xxxxxxyyyyy     |      a gap [end of x, end of y) with window [0, |y|)
 *           |xxxxxxyyyyyzzzz |
 */
#include "planner/planner_internal.h"

struct layout {
    struct ul_arena *arena;
    const struct ul_problem *problem;
    struct ul_plan *plan;
    uint32_t *next;  /* per range: the range that takes its bytes over, or UL_PLAN_NONE */
    uint32_t *heads; /* per buffer: the first range of its chain */
    struct ul_pack_buffer *buffers;
    uint32_t buffer_count;
};

static uint64_t padded(const struct ul_plan *plan, uint64_t size_bytes)
{
    return ul_size_align_or_die(size_bytes, plan->alignment_bytes);
}

static uint64_t range_alignment(const struct layout *l, const struct ul_plan_range *range)
{
    uint64_t wanted;
    if (range->value == UL_PLAN_NONE)
        wanted = ul_part_at(l->problem, &l->plan->positions[range->begin])->scratch_alignment_bytes;
    else
        wanted = l->problem->values[range->value].alignment_bytes;
    return wanted > l->plan->alignment_bytes ? wanted : l->plan->alignment_bytes;
}

static void chain_gaps(struct layout *l, struct ul_pack_buffer *buffer, uint32_t head)
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
        uint64_t alignment = range_alignment(l, range);
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

static void buffers_make(struct layout *l, uint32_t space)
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
                                          .alignment_bytes = range_alignment(l, range)};
        if (range->value != UL_PLAN_NONE && l->problem->values[range->value].pinned) {
            buffer->pinned = true;
            buffer->offset_bytes = l->problem->values[range->value].pinned_offset_bytes;
        }
        chain_gaps(l, buffer, r);
        l->heads[l->buffer_count++] = r;
    }
}

static void offsets_store(struct layout *l, uint32_t space)
{
    struct ul_plan *plan = l->plan;
    uint64_t reserved = 0;
    for (uint32_t i = 0; i < l->buffer_count; i++) {
        const struct ul_pack_buffer *buffer = &l->buffers[i];
        for (uint32_t r = l->heads[i]; r != UL_PLAN_NONE; r = l->next[r])
            plan->ranges[r].offset_bytes = buffer->offset_bytes;
        uint64_t end = ul_size_add_or_die(buffer->offset_bytes, buffer->size_bytes);
        reserved = end > reserved ? end : reserved;
    }
    plan->reserved_bytes[space] = reserved;
}

static enum ul_status space_layout(struct layout *l, const struct ul_plan_options *options,
                                   uint32_t space, struct ul_diag *diag)
{
    struct ul_plan *plan = l->plan;
    buffers_make(l, space);
    if (options->pack == UL_PACK_NONE) {
        /* Everything lives for ever: the packer then gives each buffer its own bytes. */
        for (uint32_t i = 0; i < l->buffer_count; i++) {
            l->buffers[i].begin = 0;
            l->buffers[i].end = 1;
        }
    }
    struct ul_pack_options pack = {.method = options->pack,
                                   .work_limit = options->work_limit,
                                   .time_limit_seconds = options->time_limit_seconds,
                                   .seed = options->seed};
    struct ul_pack_result result;
    UL_TRY(ul_pack_solve(l->arena, l->buffers, l->buffer_count, &pack, &result, diag));
    offsets_store(l, space);
    if (space == 0) {
        plan->pack_method = options->pack == UL_PACK_NONE ? "none" : result.method;
        plan->packing_proven = result.optimal && options->pack != UL_PACK_NONE;
        plan->stopped_by_time = plan->stopped_by_time || result.stopped_by_time;
    }
    return UL_OK;
}

enum ul_status ul_layout_ranges(struct ul_arena *arena, const struct ul_problem *problem,
                                const struct ul_plan_options *options, struct ul_plan *plan,
                                struct ul_diag *diag)
{
    struct layout l = {.arena = arena, .problem = problem, .plan = plan};
    l.next = UL_NEW_ARRAY(arena, uint32_t, plan->range_count);
    l.heads = UL_NEW_ARRAY(arena, uint32_t, plan->range_count);
    l.buffers = UL_NEW_ARRAY(arena, struct ul_pack_buffer, plan->range_count);
    for (uint32_t r = 0; r < plan->range_count; r++)
        l.next[r] = UL_PLAN_NONE;
    for (uint32_t r = 0; r < plan->range_count; r++) {
        if (plan->ranges[r].alias != UL_PLAN_NONE)
            l.next[plan->ranges[r].alias] = r;
    }
    for (uint32_t space = 0; space < problem->space_count; space++)
        UL_TRY(space_layout(&l, options, space, diag));
    return UL_OK;
}
