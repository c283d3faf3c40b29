/* SPDX-License-Identifier: Apache-2.0 */
/* Joins steps into one launch on a device.
 *
 * Problem: a launch takes as long as some hundred thousand elements, and a program that trains has
 * hundreds of smaller steps: updates of biases, casts of weights, sums of a channel. Method: steps
 * that follow one another in the plan's order each have some blocks of one launch, as long as none
 * of them touches bytes that another one writes, by the plan's places. So order and places stay,
 * and no plan takes more bytes.
 *
 *      cast w | cast b | product          1 launch, 1 call
 *      update w | update b | gradient     1 launch; 2 if the gradient overwrites what the update
 *                                         of b reads
 *
 * Steps with several launches join in each of them. planner/solve/gather.c brings steps together
 * that could join. A kernel that gives each item a whole block joins kernels that can use blocks of
 * that size. Left undone: kernels with shared memory of their own, and products. */
#include "codegen/program/program.h"
#include "planner/model/plan.h"

/* Steps that join, by their positions. */
struct joined {
    const struct ul_program *program;
    const struct ul_plan *plan;
    uint32_t count, region, stream;
    uint32_t counter_words;            /* of all of them */
    uint32_t min_threads, max_threads; /* the threads of blocks that suit all of them */
    uint32_t positions[UL_PROGRAM_JOINED];
};

static const struct ul_plan_substep *substep_at(const struct joined *joined, uint32_t position)
{
    const struct ul_plan_position *at = &joined->plan->positions[position];
    const struct ul_plan_step *step = &joined->program->problem->steps[at->step];
    return &step->alternatives[at->alternative].substeps[at->substep];
}

static const struct ul_plan_range *range_of(const struct joined *joined, uint32_t value,
                                            uint32_t position)
{
    return ul_plan_find_range(joined->program->problem, joined->plan, value, position);
}

/* The scratch of a position, or NULL. Scratch comes after all values, ordered by position. */
static const struct ul_plan_range *scratch_of(const struct joined *joined, uint32_t position)
{
    const struct ul_plan *plan = joined->plan;
    uint32_t low = plan->value_ranges[joined->program->problem->value_count];
    uint32_t high = plan->range_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (plan->ranges[middle].begin < position)
            low = middle + 1;
        else
            high = middle;
    }
    return low < plan->range_count && plan->ranges[low].begin == position ? &plan->ranges[low]
                                                                          : NULL;
}

/* Whether two ranges share bytes. Two buffers of a caller may be one buffer. */
static bool overlap(const struct ul_plan_range *x, const struct ul_plan_range *y)
{
    if (x == NULL || y == NULL || x->space != y->space)
        return false;
    return x->space == UL_PROGRAM_CALLER || (x->offset_bytes < y->offset_bytes + y->size_bytes &&
                                             y->offset_bytes < x->offset_bytes + x->size_bytes);
}

/* Whether a step touches bytes of a range. */
static bool touches(const struct joined *joined, uint32_t position,
                    const struct ul_plan_range *range)
{
    const struct ul_plan_substep *substep = substep_at(joined, position);
    bool touches = overlap(range, scratch_of(joined, position));
    for (uint32_t i = 0; !touches && i < substep->read_count; i++)
        touches = overlap(range, range_of(joined, substep->reads[i], position));
    for (uint32_t i = 0; !touches && i < substep->write_count; i++)
        touches = overlap(range, range_of(joined, substep->writes[i], position));
    return touches;
}

/* Whether one step writes what the other one touches. */
static bool writes_of(const struct joined *joined, uint32_t writer, uint32_t other)
{
    const struct ul_plan_substep *substep = substep_at(joined, writer);
    bool writes = touches(joined, other, scratch_of(joined, writer));
    for (uint32_t i = 0; !writes && i < substep->write_count; i++)
        writes = touches(joined, other, range_of(joined, substep->writes[i], writer));
    return writes;
}

/* The kernel of a step that launches one. NULL: the position runs something else, or something that
 * a call before it may have done. */
static const struct ul_kernel_printed *printed_at(const struct ul_program *program,
                                                  const struct ul_plan_position *at)
{
    if (at->kind != UL_PLAN_RUN)
        return NULL;
    const struct ul_program_step *step = ul_program_step_at(program, at);
    return step->kind == UL_STEP_KERNEL && !step->is_spared
               ? &program->kernels[step->kernel].printed
               : NULL;
}

uint32_t ul_program_join_kind(const struct ul_program *program, const struct ul_plan_position *at,
                              bool teams)
{
    enum { USUAL_THREADS = 128 };
    const struct ul_kernel_printed *printed = printed_at(program, at);
    if (printed == NULL || !printed->joins || (printed->has_teams && !teams))
        return 0;
    return printed->min_threads <= USUAL_THREADS && printed->max_threads >= USUAL_THREADS
               ? USUAL_THREADS
               : printed->max_threads;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Adds a step that may join. */
static void add(struct joined *joined, uint32_t position)
{
    const struct ul_kernel_printed *printed =
        printed_at(joined->program, &joined->plan->positions[position]);
    bool is_first = joined->count == 0;
    joined->counter_words = printed->counter_words + (is_first ? 0 : joined->counter_words);
    joined->min_threads = larger(printed->min_threads, is_first ? 0 : joined->min_threads);
    joined->max_threads =
        smaller(printed->max_threads, is_first ? UINT32_MAX : joined->max_threads);
    joined->positions[joined->count++] = position;
}

/* Whether the step can be launched with those that have joined. */
static bool can_join(const struct joined *joined, uint32_t position)
{
    const struct ul_plan_position *at = &joined->plan->positions[position];
    const struct ul_kernel_printed *printed = printed_at(joined->program, at);
    bool can = joined->count > 0 && joined->count < UL_PROGRAM_JOINED &&
               joined->region == ul_program_region_at(joined->program, at) &&
               joined->stream == at->stream &&
               joined->counter_words + printed->counter_words <= UL_PROGRAM_COUNTER_WORDS &&
               larger(joined->min_threads, printed->min_threads) <=
                   smaller(joined->max_threads, printed->max_threads);
    for (uint32_t i = 0; can && i < joined->count; i++)
        can = !writes_of(joined, joined->positions[i], position) &&
              !writes_of(joined, position, joined->positions[i]);
    return can;
}

void ul_program_find_joined(const struct ul_program *program, const struct ul_plan *plan,
                            const bool *runs, uint32_t *counts)
{
    struct joined joined = {.program = program, .plan = plan};
    for (uint32_t p = 0; p < plan->position_count; p++) {
        counts[p] = 1;
        if (runs != NULL && !runs[p])
            continue;
        bool may = ul_program_join_kind(program, &plan->positions[p], true) != 0;
        if (may && can_join(&joined, p)) {
            counts[joined.positions[0]]++;
            counts[p] = 0;
        } else {
            joined.count = 0;
            joined.region = ul_program_region_at(program, &plan->positions[p]);
            joined.stream = plan->positions[p].stream;
        }
        if (may)
            add(&joined, p);
    }
    UL_ASSERT(joined.count <= UL_PROGRAM_JOINED);
}
