/* SPDX-License-Identifier: Apache-2.0 */
/* Seeded random problems for the planner's tests. */
#ifndef UL_TESTS_PLANNER_RANDOM_H
#define UL_TESTS_PLANNER_RANDOM_H

#include "planner/model/plan.h"
#include "planner/pack/pack.h"

/* A small generator of our own: the same numbers with every C library. */
uint32_t random_next(uint64_t *state);
uint32_t random_below(uint64_t *state, uint32_t limit);

/* One of the two ends moves by one position, either way. */
void random_shift_range(uint64_t *state, struct ul_plan_range *range);

/* Up to `max_steps` steps with inputs, outputs, weights, in-place options, slices, updates,
 * scratch, splits, a loop and branches, as the seed has it. */
struct ul_problem *random_problem(struct ul_arena *arena, uint64_t seed, uint32_t max_steps);
/* The same, where an input may go to either of two outputs. */
struct ul_problem *random_problem_more(struct ul_arena *arena, uint64_t seed, uint32_t max_steps);

/* The same in regions in others, entries among them. */
struct ul_problem *random_problem_nested(struct ul_arena *arena, uint64_t seed, uint32_t max_steps);

/* Buffers with lifetimes in [0, span); `features`: alignment and pins too. */
struct ul_pack_buffer *random_buffers(struct ul_arena *arena, uint64_t seed, uint32_t count,
                                      uint32_t span, bool features);

/* A step with one alternative of one substep. */
uint32_t add_simple_step(struct ul_problem *problem, const char *name, uint32_t region,
                         uint64_t cost, const struct ul_plan_substep *substep);

#endif
