/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers between the arena and the place of offloaded values: the bytes that each moves, and the
 * wait for it, in an entry point that may leave some out.
 *
 *     position   run   save a   save b   run   wait for b   load a   wait for a
 *     number           0        1                           2
 *     emitted          begin 0  begin 1        until 1      begin 2  until 2
 *
 * A transfer that is left out is not waited for: the wait is for the last one before it that is
 * not. */
#include "codegen/emit/emit_internal.h"

#include <inttypes.h>

/* The newest range of a value in a space that begins at a position or before it. */
static const struct ul_plan_range *newest(const struct ul_plan *plan, uint32_t value,
                                          uint32_t space, uint32_t position)
{
    for (uint32_t r = plan->value_ranges[value + 1]; r-- > plan->value_ranges[value];) {
        if (plan->ranges[r].space == space && plan->ranges[r].begin <= position)
            return &plan->ranges[r];
    }
    UL_ASSERT(false); /* the plan was checked */
    return NULL;
}

void ul_emit_find_transfers(struct ul_emitter *emitter)
{
    const struct ul_plan *plan = emitter->plan;
    uint32_t count = plan->position_count;
    emitter->transfers = UL_NEW_ARRAY(emitter->arena, struct ul_emit_transfer, (uint64_t)count + 1);
    for (uint32_t p = 0; p < count; p++) {
        const struct ul_plan_position *at = &plan->positions[p];
        if (at->kind != UL_PLAN_COPY)
            continue;
        const struct ul_plan_range *inside = newest(plan, at->value, UL_PROGRAM_ARENA, p);
        const struct ul_plan_range *outside = newest(plan, at->value, at->space, p);
        UL_ASSERT(inside->size_bytes == outside->size_bytes);
        emitter->transfers[p] =
            (struct ul_emit_transfer){.number = emitter->transfer_count++,
                                      .range = (uint32_t)(inside - plan->ranges),
                                      .arena_offset_bytes = inside->offset_bytes,
                                      .offload_offset_bytes = outside->offset_bytes,
                                      .size_bytes = inside->size_bytes,
                                      .done = at->stream == 0 ? p : UL_PLAN_NONE};
    }
    for (uint32_t w = 0; w < count; w++) {
        if (plan->positions[w].kind != UL_PLAN_WAIT)
            continue;
        uint32_t last = plan->positions[w].awaited;
        for (uint32_t p = 0; p <= last; p++) {
            if (plan->positions[p].kind == UL_PLAN_COPY &&
                emitter->transfers[p].done == UL_PLAN_NONE &&
                plan->positions[p].stream == plan->positions[last].stream)
                emitter->transfers[p].done = w;
        }
    }
}

/* The last transfer of a stream before a position that the entry runs, or NONE. */
static uint32_t last_before(const struct ul_emitter *emitter, uint32_t entry, uint32_t end,
                            uint32_t stream)
{
    const struct ul_plan_position *positions = emitter->plan->positions;
    for (uint32_t p = end; p-- > 0;) {
        if (emitter->entry_runs[entry][p] && positions[p].kind == UL_PLAN_COPY &&
            positions[p].stream == stream)
            return p;
    }
    return UL_PLAN_NONE;
}

void ul_emit_transfer(struct ul_emitter *emitter, uint32_t entry, uint32_t position)
{
    const struct ul_plan_position *at = &emitter->plan->positions[position];
    const struct ul_emit_language *language = emitter->language;
    if (at->kind == UL_PLAN_WAIT) {
        const struct ul_plan_position *awaited = &emitter->plan->positions[at->awaited];
        if (awaited->kind == UL_PLAN_RUN) {
            language->put_join(emitter, position, awaited->stream != 0);
            return;
        }
        uint32_t stream = awaited->stream;
        uint32_t last = last_before(emitter, entry, at->awaited + 1, stream);
        UL_ASSERT(last != UL_PLAN_NONE);
        language->put_wait(emitter, position, emitter->transfers[last].number);
        return;
    }
    language->put_transfer(emitter, position);
    if (at->stream == 0)
        language->put_wait(emitter, UL_PLAN_NONE, emitter->transfers[position].number);
}

void ul_emit_last_waits(struct ul_emitter *emitter, uint32_t entry)
{
    uint32_t end = emitter->plan->position_count;
    for (uint32_t stream = 1; stream < UL_LIMIT_STREAMS; stream++) {
        uint32_t last = last_before(emitter, entry, end, stream);
        if (last == UL_PLAN_NONE)
            continue;
        uint32_t done = emitter->transfers[last].done;
        if (done == UL_PLAN_NONE || !emitter->entry_runs[entry][done])
            emitter->language->put_wait(emitter, UL_PLAN_NONE, emitter->transfers[last].number);
    }
}

const char *ul_emit_transfer_name(const struct ul_emitter *emitter, uint32_t position)
{
    const struct ul_plan_position *at = &emitter->plan->positions[position];
    uint32_t moved = at->kind == UL_PLAN_WAIT ? at->awaited : position;
    const struct ul_plan_position *awaited = &emitter->plan->positions[moved];
    uint32_t value = awaited->value;
    const char *word = ul_plan_word(ul_plan_word_of(at->kind, at->loads));
    if (awaited->kind == UL_PLAN_RUN)
        return ul_arena_printf(emitter->arena, "%s %s #%u", word,
                               ul_program_step_at(emitter->program, awaited)->name, position);
    return ul_arena_printf(emitter->arena, "%s %s #%u", word,
                           emitter->program->problem->values[value].name, position);
}
