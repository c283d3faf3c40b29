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
/* The alternative of the least cost, the first of several. */
uint32_t ul_step_cheapest(const struct ul_plan_step *step);
/* The positions of `steps`, which may name a step more than once: every run after the first is a
 * recomputation. Per step the alternative, or NULL: the cheapest. */
void ul_timeline_sequence(struct ul_arena *arena, const struct ul_problem *problem,
                          const uint32_t *steps, uint32_t step_count, const uint32_t *alternatives,
                          struct ul_plan *plan);
/* The positions of every step once, in the order `steps`, each by its cheapest alternative. */
void ul_timeline_positions(struct ul_arena *arena, const struct ul_problem *problem,
                           const uint32_t *steps, struct ul_plan *plan);

/* account.c */

/* The live sums: peak_position, order_lower_bound_bytes and the class and alignment rows. */
void ul_account_live(struct ul_arena *arena, struct ul_plan *plan);
/* A bound over all orders, recomputations and packings: what one position needs by itself. */
uint64_t ul_account_bound(struct ul_arena *arena, const struct ul_problem *problem,
                          uint64_t alignment_bytes);

/* Per step and alternative: what its neediest part touches, beside what is persistent. */
uint64_t **ul_account_needs(struct ul_arena *arena, const struct ul_problem *problem,
                            uint64_t alignment_bytes);

/* problem_graph.c */

enum ul_problem_graph_form {
    UL_PROBLEM_GRAPH_REPEATABLE, /* a step's values are one: to be run again, or not, together */
    UL_PROBLEM_GRAPH_SEPARATE    /* each value dies by itself; for orders without repeats */
};
/* A problem as an abstract graph; its `order` is the file order, and ids ascend with it. A valid
 * sequence of nodes is a valid sequence of steps, of at most its peak (but for values there from
 * the start that nobody reads) as long as in-place options are taken where they can be. */
struct ul_problem_graph {
    struct ul_solve_graph graph;
    uint32_t *step_first; /* per node: its steps, node_count + 1 entries; some have none */
    uint32_t *steps;
    bool exact; /* no order of the steps has a smaller live sum than all orders of the nodes */
};
void ul_problem_graph_make(struct ul_arena *arena, const struct ul_problem *problem,
                           uint64_t alignment_bytes, enum ul_problem_graph_form form,
                           struct ul_problem_graph *out);
/* The steps of a sequence of nodes, repeats included. */
uint32_t *ul_problem_graph_steps(struct ul_arena *arena, const struct ul_problem_graph *graph,
                                 const uint32_t *nodes, uint32_t count, uint32_t *step_count);

/* order_problem.c */

struct ul_order_choice {
    uint32_t *steps;
    uint64_t live_bytes;         /* its largest live sum, in-place options taken */
    uint64_t orders_lower_bytes; /* no order is proven to have a smaller one than this */
    const char *method;
    bool stopped_by_time;
};
/* The order of the smallest live sum found; the file order unless another is strictly better. */
void ul_order_problem(struct ul_arena *arena, const struct ul_problem *problem,
                      const struct ul_plan_options *options, struct ul_order_choice *choice);

/* plan.c */

/* Ranges, offsets, sums and bounds for the positions that `plan` already has; of the ways to choose
 * aliases the one that packs best. The verdict on the budget is the caller's. */
enum ul_status ul_plan_complete(struct ul_arena *arena, const struct ul_problem *problem,
                                const struct ul_plan_options *options, struct ul_plan *plan,
                                struct ul_diag *diag) UL_MUST_CHECK;

/* ladder_values.c */

/* Fills `to` with a rewriting of `from` (one alternative a step), of the same steps, in which no
 * value of the root sequence is written by several steps; false if there is nothing to rewrite. A
 * valid sequence of its steps need not be one of `from`: the checker decides. */
bool ul_ladder_values(struct ul_arena *arena, const struct ul_problem *from, struct ul_problem *to);

/* layout.c */

/* Offsets for every range of the plan, by `method`; sets reserved_bytes, pack_method and
 * packing_proven. */
enum ul_status ul_layout_ranges(struct ul_arena *arena, const struct ul_problem *problem,
                                const struct ul_plan_options *options, struct ul_plan *plan,
                                struct ul_diag *diag) UL_MUST_CHECK;

#endif
