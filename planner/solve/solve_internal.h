/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the solvers share. */
#ifndef UL_PLANNER_SOLVE_SOLVE_INTERNAL_H
#define UL_PLANNER_SOLVE_SOLVE_INTERNAL_H

#include "planner/model/plan.h"

/* plan.c */

/* Ranges, offsets, sums and bounds for the positions that `plan` already has; of the ways to choose
 * aliases the one that packs best. The verdict on the budget is the caller's. */
enum ul_status ul_plan_complete(struct ul_arena *arena, const struct ul_problem *problem,
                                const struct ul_plan_options *options, struct ul_plan *plan,
                                struct ul_diag *diag) UL_MUST_CHECK;

/* Positions [begin, end) that may all run at once. */
struct ul_plan_span {
    uint32_t begin, end;
};
/* Makes ranges, offsets and sums for the positions of `plan`, and keeps its bounds and verdicts.
 * What a position touches shares no bytes with anything that lives in the span of the position. */
enum ul_status ul_plan_complete_spans(struct ul_arena *arena, const struct ul_problem *problem,
                                      const struct ul_plan_options *options,
                                      const struct ul_plan_span *spans, struct ul_plan *plan,
                                      struct ul_diag *diag) UL_MUST_CHECK;

/* A plan as ul_plan_solve makes it where no budget is given; options->budget_bytes says nothing. */
enum ul_status ul_plan_without_budget(struct ul_arena *arena, const struct ul_problem *problem,
                                      const struct ul_plan_options *options, struct ul_plan *plan,
                                      struct ul_diag *diag) UL_MUST_CHECK;

/* rearrange.c */

/* Gives `other`, a copy of a plan, other positions, whose live sums stay within the limit while all
 * positions of a span run, and returns the span of each. NULL: nothing is gained. */
typedef const struct ul_plan_span *ul_plan_arrange_fn(const void *context, struct ul_arena *arena,
                                                      uint64_t limit_bytes, struct ul_plan *other);
/* Gives a plan the positions that `arrange` chooses, in at most so many tries with ever lower
 * limits, where it then reserves no more than before. The caller checks a plan that is another. */
enum ul_status ul_plan_rearrange(struct ul_arena *arena, const struct ul_problem *problem,
                                 const struct ul_plan_options *options, uint32_t tries,
                                 ul_plan_arrange_fn *arrange, const void *context,
                                 struct ul_plan *plan, bool *is_other,
                                 struct ul_diag *diag) UL_MUST_CHECK;

/* ladder.c */

/* Makes of `plan`, one without recomputation, the one that keeps what options->kept says, by the
 * same order of first runs. */
enum ul_status ul_ladder_keep(struct ul_arena *arena, const struct ul_problem *problem,
                              const struct ul_plan_options *options, struct ul_plan *plan,
                              struct ul_diag *diag) UL_MUST_CHECK;

/* ladder_levels.c */

/* Per level a choice of optional values, from all that the cheapest ways read to the minimum that
 * steps can do with: of space 0, then of it and what is beside it. */
struct ul_ladder_level {
    uint64_t **needs; /* per step and alternative: of optional values, in shares; not of level 0 */
    uint64_t *most;   /* per step: of these, what an alternative may need */
};
struct ul_ladder_levels {
    uint32_t count; /* at least 1 */
    struct ul_ladder_level *items;
};
void ul_ladder_levels_make(struct ul_arena *arena, const struct ul_problem *problem,
                           uint64_t alignment_bytes, struct ul_ladder_levels *levels);
/* Fills `mapped`, per step, with the alternatives given or, where a level has no room for one, with
 * the cheapest that needs no more live bytes (`needs`, as ul_account_needs has them). */
void ul_ladder_level_map(const struct ul_problem *problem, const struct ul_ladder_levels *levels,
                         uint32_t level, uint64_t *const *needs, const uint32_t *alternatives,
                         uint32_t *mapped);

/* ladder_values.c */

/* Fills `to` with a rewriting of `from` (one alternative a step), of the same steps, in which no
 * value of the root sequence is written by several steps; false if there is nothing to rewrite. A
 * valid sequence of its steps need not be one of `from`: the checker decides. */
bool ul_ladder_values(struct ul_arena *arena, const struct ul_problem *from, struct ul_problem *to);

#endif
