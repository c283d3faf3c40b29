/* SPDX-License-Identifier: Apache-2.0 */
/* From positions to live ranges, and their sums. */
#ifndef UL_PLANNER_MODEL_TIMELINE_H
#define UL_PLANNER_MODEL_TIMELINE_H

#include "planner/model/plan.h"

/* The in-place options that the timeline takes. Aliases that shrink save bytes while both are live,
 * but tie a small range to a large one's place, which can cost the packing more. */
enum ul_alias_mode { UL_ALIAS_NONE, UL_ALIAS_EQUAL, UL_ALIAS_ALL };

/* timeline.c */

const struct ul_plan_substep *ul_substep_at(const struct ul_problem *problem,
                                            const struct ul_plan_position *position);
/* Fills ranges, value_ranges and alias decisions of `plan` from its positions. */
void ul_timeline_build(struct ul_arena *arena, const struct ul_problem *problem,
                       enum ul_alias_mode mode, struct ul_plan *plan);
/* By value: whether some position reads it. Positions that are not the problem's read nothing. */
bool *ul_plan_reads(struct ul_arena *arena, const struct ul_problem *problem,
                    const struct ul_plan *plan);
/* The positions of `steps`, which may name a step more than once: every run after the first is a
 * recomputation. `alternatives` by step; NULL: the cheapest. */
void ul_timeline_sequence(struct ul_arena *arena, const struct ul_problem *problem,
                          const uint32_t *steps, uint32_t step_count, const uint32_t *alternatives,
                          struct ul_plan *plan);
/* The positions of every step once, in the order `steps`, each by its cheapest alternative. */
void ul_timeline_positions(struct ul_arena *arena, const struct ul_problem *problem,
                           const uint32_t *steps, struct ul_plan *plan);

/* dependences.c */

/* Positions or ranges of a plan, by their numbers. */
struct ul_plan_list {
    uint32_t *items;
    uint32_t count, capacity;
};
void ul_plan_list_add(struct ul_arena *arena, struct ul_plan_list *list, uint32_t item);
/* Adds to `before`, by position, the earlier ones that it depends on by values and steps, without
 * waits. */
void ul_plan_find_before(struct ul_arena *arena, const struct ul_problem *problem,
                         const struct ul_plan *plan, struct ul_plan_list *before);

/* account.c */

/* By position, the bytes of space 0 that live there, each range up to a multiple of the alignment.
 * A range that takes over another's bytes counts from the next position on. */
uint64_t *ul_account_live_sums(struct ul_arena *arena, const struct ul_plan *plan);
/* The live sums: peak_position, order_lower_bound_bytes and the class and alignment rows. */
void ul_account_live(struct ul_arena *arena, struct ul_plan *plan);
/* By position, when it begins and is done, on the clock of its stream: a run or a transfer takes
 * its cost; a wait lasts until what it waits for is done, plus, for a run, the cost of waiting. */
struct ul_account_span {
    uint64_t begin, end;
};
struct ul_account_span *ul_account_spans(struct ul_arena *arena, const struct ul_problem *problem,
                                         const struct ul_plan *plan);
/* Per range of space 0: the bytes that positions move to and from it, in an array of the arena. */
uint64_t *ul_account_moved(struct ul_arena *arena, const struct ul_problem *problem,
                           const struct ul_plan *plan);
/* The cost of the plan's positions, without that of banks, and the base cost. */
void ul_account_cost(struct ul_arena *arena, const struct ul_problem *problem,
                     struct ul_plan *plan);
/* A bound over all orders, recomputations and packings: what one position needs by itself. */
uint64_t ul_account_bound(struct ul_arena *arena, const struct ul_problem *problem,
                          uint64_t alignment_bytes);
/* The part of it that rewritings of the program do not change: what is live before and after
 * entries. */
uint64_t ul_account_ends_bound(struct ul_arena *arena, const struct ul_problem *problem,
                               uint64_t alignment_bytes);

/* By step and alternative: what its neediest substep touches, besides persistent values. */
uint64_t **ul_account_needs(struct ul_arena *arena, const struct ul_problem *problem,
                            uint64_t alignment_bytes);

#endif
