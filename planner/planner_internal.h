/* What the files of planner/ share. */
#ifndef UL_PLANNER_INTERNAL_H
#define UL_PLANNER_INTERNAL_H

#include "planner/planner.h"

/* Which in-place options the timeline takes. Aliases that shrink save bytes while both are live,
 * but tie a small range to a large one's place, which can cost the packing more. */
enum ul_alias_mode { UL_ALIAS_NONE, UL_ALIAS_EQUAL, UL_ALIAS_ALL };

/* timeline.c */

const struct ul_plan_part *ul_part_at(const struct ul_problem *problem,
                                      const struct ul_plan_position *position);
/* Fills ranges, value_ranges and alias decisions of `plan` from its positions. */
void ul_timeline_build(struct ul_arena *arena, const struct ul_problem *problem,
                       enum ul_alias_mode mode, struct ul_plan *plan);
/* The positions of every step once, in the order `steps`, each by its cheapest alternative. */
void ul_timeline_positions(struct ul_arena *arena, const struct ul_problem *problem,
                           const uint32_t *steps, struct ul_plan *plan);

/* account.c */

/* The live sums: peak_position, order_lower_bound_bytes and the class and alignment rows. */
void ul_account_live(struct ul_arena *arena, struct ul_plan *plan);
/* A bound over all orders, recomputations and packings: what one position needs by itself. */
uint64_t ul_account_bound(struct ul_arena *arena, const struct ul_problem *problem,
                          uint64_t alignment_bytes);

/* order_problem.c */

struct ul_order_choice {
    uint32_t *steps;
    uint64_t live_bytes; /* its largest live sum, in-place options taken */
    const char *method;
};
/* The order of the smallest live sum found; the file order unless another is strictly better. */
void ul_order_problem(struct ul_arena *arena, const struct ul_problem *problem,
                      const struct ul_plan_options *options, struct ul_order_choice *choice);

/* layout.c */

/* Offsets for every range of the plan, by `method`; sets reserved_bytes, pack_method and
 * packing_proven. */
enum ul_status ul_layout_ranges(struct ul_arena *arena, const struct ul_problem *problem,
                                const struct ul_plan_options *options, struct ul_plan *plan,
                                struct ul_diag *diag) UL_MUST_CHECK;

#endif
