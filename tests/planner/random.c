/* SPDX-License-Identifier: Apache-2.0 */
#include "random.h"

#include <string.h>

uint32_t random_next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t x = *state ^ (*state >> 29);
    return (uint32_t)(x * UINT64_C(0xBF58476D1CE4E5B9) >> 32);
}

uint32_t random_below(uint64_t *state, uint32_t limit)
{
    return random_next(state) % limit;
}

void random_shift_range(uint64_t *state, struct ul_plan_range *range)
{
    uint32_t *end = random_below(state, 2) == 0 ? &range->begin : &range->end;
    *end += random_below(state, 2) == 0 ? 1 : UINT32_MAX;
}

struct maker {
    struct ul_problem *problem;
    uint64_t state;
    uint32_t *live; /* values that may be read */
    uint32_t live_count;
    bool more;
};

static uint32_t make_value(struct maker *m, enum ul_plan_class class)
{
    struct ul_plan_value value = ul_plan_value_make("v", class, 1 + random_below(&m->state, 700));
    if (random_below(&m->state, 10) == 0)
        value.alignment_bytes = 256;
    value.live_from_start = class == UL_PLAN_INPUTS;
    value.persistent = class == UL_PLAN_WEIGHTS;
    if (random_below(&m->state, 12) == 0 && class == UL_PLAN_ACTIVATIONS) {
        value.live_to_end = true;
        value.class = UL_PLAN_OUTPUTS;
    }
    uint32_t id = ul_problem_add_value(m->problem, &value);
    return id;
}

static void make_step(struct maker *m, uint32_t region)
{
    enum { MAX_READS = 4 };
    uint32_t reads[MAX_READS];
    uint32_t writes[2];
    struct ul_plan_in_place in_place[2 * MAX_READS];
    struct ul_plan_substep substep = {.reads = reads, .writes = writes, .in_place = in_place};
    for (uint32_t i = random_below(&m->state, MAX_READS); i > 0 && m->live_count > 0; i--) {
        uint32_t back = random_below(&m->state, m->live_count < 8 ? m->live_count : 8);
        reads[substep.read_count++] = m->live[m->live_count - 1 - back];
    }
    writes[substep.write_count++] = make_value(m, UL_PLAN_ACTIVATIONS);
    if (random_below(&m->state, 6) == 0)
        writes[substep.write_count++] = make_value(m, UL_PLAN_ACTIVATIONS);
    if (random_below(&m->state, 12) == 0 && m->live_count > 0) { /* a slice or an update */
        m->problem->values[writes[substep.write_count - 1]].live_to_end = false;
        writes[substep.write_count - 1] = m->live[m->live_count - 1];
    }
    for (uint32_t i = 0; i < substep.read_count && random_below(&m->state, 2) == 0; i++) {
        uint32_t takers = m->more ? substep.write_count : 1; /* one of them may */
        for (uint32_t w = 0; w < takers; w++)
            in_place[substep.in_place_count++] = (struct ul_plan_in_place){writes[w], reads[i]};
    }
    if (random_below(&m->state, 3) == 0)
        substep.scratch_bytes = random_below(&m->state, 900);
    struct ul_plan_substep substeps[2] = {substep, substep};
    struct ul_plan_substep lean = substep; /* slower, with less scratch */
    lean.scratch_bytes = substep.scratch_bytes / 4;
    struct ul_plan_alternative alternatives[3] = {{.name = "whole",
                                                   .substeps = substeps,
                                                   .substep_count = 1,
                                                   .cost = random_below(&m->state, 100)},
                                                  {.name = "split",
                                                   .substeps = substeps,
                                                   .substep_count = 2,
                                                   .cost = random_below(&m->state, 100)}};
    alternatives[2] = (struct ul_plan_alternative){
        .name = "lean", .substeps = &lean, .substep_count = 1, .cost = alternatives[0].cost + 5};
    uint32_t kinds = random_below(&m->state, 8);
    struct ul_plan_step step = {.name = "s",
                                .region = region,
                                .alternatives = alternatives,
                                .alternative_count = kinds == 0   ? 2
                                                     : kinds == 1 ? 3
                                                                  : 1};
    ul_problem_add_step(m->problem, &step);
    for (uint32_t i = 0; i < substep.write_count; i++) {
        if (m->live_count == 0 || writes[i] != m->live[m->live_count - 1])
            m->live[m->live_count++] = writes[i];
    }
}

/* Where the next step goes: into a loop or a branch, or outside of them. */
static uint32_t next_region(struct maker *m, uint64_t seed, uint32_t region)
{
    if (seed % 2 == 0 && region == 0 && random_below(&m->state, 8) == 0)
        return ul_problem_add_region(
            m->problem, random_below(&m->state, 2) == 0 ? UL_PLAN_LOOP : UL_PLAN_BRANCH, 0);
    return random_below(&m->state, 4) == 0 ? 0 : region;
}

/* Or into nested regions, of which the outermost may be an entry. */
static uint32_t next_inner_region(struct maker *m, uint32_t region)
{
    static const enum ul_plan_region_kind kinds[] = {UL_PLAN_SEQUENCE, UL_PLAN_BRANCH, UL_PLAN_LOOP,
                                                     UL_PLAN_ENTRY};
    uint32_t draw = random_below(&m->state, 6);
    if (draw == 0)
        return ul_problem_add_region(m->problem,
                                     kinds[random_below(&m->state, region == 0 ? 4 : 3)], region);
    return draw == 1 && region != 0 ? m->problem->regions[region].parent : region;
}

static struct ul_problem *problem_make(struct ul_arena *arena, uint64_t seed, uint32_t max_steps,
                                       bool more, bool nests)
{
    struct maker m = {.problem = ul_problem_new(arena), .state = seed * 77 + 5, .more = more};
    uint32_t steps = random_below(&m.state, max_steps + 1);
    m.live = UL_NEW_ARRAY(arena, uint32_t, 3 * (uint64_t)max_steps + 8);
    for (uint32_t i = random_below(&m.state, 3); i > 0; i--)
        m.live[m.live_count++] = make_value(&m, UL_PLAN_INPUTS);
    for (uint32_t i = random_below(&m.state, 3); i > 0; i--)
        m.live[m.live_count++] = make_value(&m, UL_PLAN_WEIGHTS);
    uint32_t region = 0;
    for (uint32_t i = 0; i < steps; i++) {
        region = nests ? next_inner_region(&m, region) : next_region(&m, seed, region);
        make_step(&m, region);
    }
    return m.problem;
}

struct ul_problem *random_problem(struct ul_arena *arena, uint64_t seed, uint32_t max_steps)
{
    return problem_make(arena, seed, max_steps, false, false);
}

struct ul_problem *random_problem_more(struct ul_arena *arena, uint64_t seed, uint32_t max_steps)
{
    return problem_make(arena, seed, max_steps, true, false);
}

struct ul_problem *random_problem_nested(struct ul_arena *arena, uint64_t seed, uint32_t max_steps)
{
    return problem_make(arena, seed, max_steps, false, true);
}

struct ul_pack_buffer *random_buffers(struct ul_arena *arena, uint64_t seed, uint32_t count,
                                      uint32_t span, bool features)
{
    uint64_t state = seed * 31 + 7;
    struct ul_pack_buffer *buffers = UL_NEW_ARRAY(arena, struct ul_pack_buffer, count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t begin = random_below(&state, span);
        buffers[i].begin = begin;
        buffers[i].end = begin + 1 + random_below(&state, span - begin);
        buffers[i].size_bytes = 1 + random_below(&state, 12);
        if (!features)
            continue;
        if (random_below(&state, 4) == 0)
            buffers[i].alignment_bytes = 1 + random_below(&state, 4);
        if (i == 0 && random_below(&state, 3) == 0) {
            buffers[i].pinned = true;
            buffers[i].alignment_bytes = 0;
            buffers[i].offset_bytes = random_below(&state, 5);
        }
    }
    return buffers;
}

uint32_t add_simple_step(struct ul_problem *problem, const char *name, uint32_t region,
                         uint64_t cost, const struct ul_plan_substep *substep)
{
    struct ul_plan_alternative alternative = {
        .substeps = substep, .substep_count = 1, .cost = cost};
    struct ul_plan_step step = {
        .name = name, .region = region, .alternatives = &alternative, .alternative_count = 1};
    return ul_problem_add_step(problem, &step);
}
