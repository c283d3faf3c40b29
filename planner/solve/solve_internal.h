/* SPDX-License-Identifier: Apache-2.0 */
/* Functions shared by the solvers' files. */
#ifndef UL_PLANNER_SOLVE_SOLVE_INTERNAL_H
#define UL_PLANNER_SOLVE_SOLVE_INTERNAL_H

#include "planner/model/plan.h"

/* plan.c */

/* Makes ranges, offsets, sums and bounds for the positions that `plan` already has; among the ways
 * to choose aliases, the one that packs best wins. The caller decides on the budget. */
enum ul_status ul_plan_complete(struct ul_arena *arena, const struct ul_problem *problem,
                                const struct ul_plan_options *options, struct ul_plan *plan,
                                struct ul_diag *diag) UL_MUST_CHECK;

/* Positions [begin, end) that may all run at the same time. */
struct ul_plan_span {
    uint32_t begin, end;
};
/* Makes ranges, offsets and sums for the positions of `plan`, and keeps its bounds and verdicts.
 * The values that a position touches share no bytes with anything that lives in the span of the
 * position. */
enum ul_status ul_plan_complete_spans(struct ul_arena *arena, const struct ul_problem *problem,
                                      const struct ul_plan_options *options,
                                      const struct ul_plan_span *spans, struct ul_plan *plan,
                                      struct ul_diag *diag) UL_MUST_CHECK;

/* A plan as ul_plan_solve makes it without a budget; options->budget_bytes is ignored. */
enum ul_status ul_plan_without_budget(struct ul_arena *arena, const struct ul_problem *problem,
                                      const struct ul_plan_options *options, struct ul_plan *plan,
                                      struct ul_diag *diag) UL_MUST_CHECK;

/* rearrange.c */

/* Gives `other`, a copy of a plan, other positions, whose live sums stay within the limit while all
 * positions of a span run, and returns the span of each. NULL: nothing is gained. */
typedef const struct ul_plan_span *ul_plan_arrange_fn(const void *context, struct ul_arena *arena,
                                                      uint64_t limit_bytes, struct ul_plan *other);
/* Gives a plan the positions that `arrange` chooses, in at most that many tries with lower and
 * lower limits, if it then reserves no more than before, and sets the bytes that a budget bounds.
 * The caller checks a changed plan. */
enum ul_status ul_plan_rearrange(struct ul_arena *arena, const struct ul_problem *problem,
                                 const struct ul_plan_options *options, uint32_t tries,
                                 ul_plan_arrange_fn *arrange, const void *context,
                                 struct ul_plan *plan, bool *is_other,
                                 struct ul_diag *diag) UL_MUST_CHECK;

/* ladder.c */

/* Turns `plan`, one without recomputation, into the one that keeps the values of options->kept,
 * with the same order of first runs. */
enum ul_status ul_ladder_keep(struct ul_arena *arena, const struct ul_problem *problem,
                              const struct ul_plan_options *options, struct ul_plan *plan,
                              struct ul_diag *diag) UL_MUST_CHECK;

/* ladder_levels.c */

/* By level, a choice of optional values, from all that the cheapest ways read to the minimum that
 * steps need: for space 0, then for it and the bytes outside it. */
struct ul_ladder_level {
    uint64_t **needs; /* by step and alternative: optional values, in shares; not in level 0 */
    uint64_t *most;   /* by step: how much of these an alternative may need */
};
struct ul_ladder_levels {
    uint32_t count; /* at least 1 */
    struct ul_ladder_level *items;
};
void ul_ladder_levels_make(struct ul_arena *arena, const struct ul_problem *problem,
                           uint64_t alignment_bytes, struct ul_ladder_levels *levels);
/* Fills `mapped`, by step, with the given alternatives or, where a level has no room for one, with
 * the cheapest that needs no more live bytes (`needs`, as in ul_account_needs). */
void ul_ladder_level_map(const struct ul_problem *problem, const struct ul_ladder_levels *levels,
                         uint32_t level, uint64_t *const *needs, const uint32_t *alternatives,
                         uint32_t *mapped);

/* ladder_values.c */

/* Fills `to` with a rewriting of `from` (one alternative a step), with the same steps, in which no
 * value of the root sequence is written by several steps; false if there is nothing to rewrite. A
 * valid sequence of its steps need not be one of `from`: the checker decides. */
bool ul_ladder_values(struct ul_arena *arena, const struct ul_problem *from, struct ul_problem *to);

#endif
