/* SPDX-License-Identifier: Apache-2.0 */
/* What a caller asks: a plan for a problem, a ladder of plans, a sequence for an abstract graph. */
#ifndef UL_PLANNER_SOLVE_SOLVE_H
#define UL_PLANNER_SOLVE_SOLVE_H

#include "planner/model/graph.h"
#include "planner/model/plan.h"

/* plan_within.c */

/* Plans `problem`; the plan has passed ul_plan_check. UL_INVALID: a malformed problem. */
enum ul_status ul_plan_solve(struct ul_arena *arena, const struct ul_problem *problem,
                             const struct ul_plan_options *options, struct ul_plan *plan,
                             struct ul_diag *diag) UL_MUST_CHECK;

/* plan.c */

/* Makes of a plan that ul_plan_check accepts the one that any plan of its implementations computes
 * the same bits as: each step once, in the order of first runs, no byte of the arena used twice. */
enum ul_status ul_plan_unfold(struct ul_arena *arena, const struct ul_problem *problem,
                              struct ul_plan *plan, struct ul_diag *diag) UL_MUST_CHECK;

/* spares.c */

/* Gives steps the spare alternatives whose scratch has a place in what lies free; the plan stays as
 * large as it is, and has passed ul_plan_check. */
enum ul_status ul_plan_take_spares(struct ul_arena *arena, const struct ul_problem *problem,
                                   struct ul_plan *plan, struct ul_diag *diag) UL_MUST_CHECK;

/* gather.c */

/* Says which positions of a plan may share a launch, and how many may share one: those of one kind;
 * 0: none. */
struct ul_plan_gathering {
    const uint32_t *kinds;
    uint32_t most;
};
/* Reorders a plan that has nothing but runs, so that more positions that share launches follow one
 * another, and none of them touches bytes that another one writes. The plan reserves no more than
 * before, costs the same, and has passed ul_plan_check. */
enum ul_status ul_plan_gather(struct ul_arena *arena, const struct ul_problem *problem,
                              const struct ul_plan_options *options,
                              const struct ul_plan_gathering *gathering, struct ul_plan *plan,
                              struct ul_diag *diag) UL_MUST_CHECK;

/* streams.c */

/* What two streams would gain of a plan, per position. */
struct ul_plan_streaming {
    const bool *may;            /* it may run beside others */
    const bool *counts;         /* no two of these may run beside each other; NULL: any may */
    const uint64_t *costs;      /* how long it takes, a launch that it shares counted once */
    const uint64_t *busy_costs; /* how long its work would take all of the device, at most that */
    const uint32_t *groups;     /* the first of those that share its launch, or itself */
    uint64_t fork_cost;         /* of two streams that part and meet again */
    uint32_t least_percent;     /* what must be gained of the cost of the plan */
};
/* Lets positions of a plan that has nothing but runs be done on stream 1, beside others, where that
 * gains so much. The plan reserves no more than before, positions that share a launch still may,
 * and it has passed ul_plan_check. Nothing is proven any more of its cost. */
enum ul_status ul_plan_stream(struct ul_arena *arena, const struct ul_problem *problem,
                              const struct ul_plan_options *options,
                              const struct ul_plan_streaming *streaming, struct ul_plan *plan,
                              struct ul_diag *diag) UL_MUST_CHECK;

/* ladder.c */

/* One plan of a ladder. Where the ladders of a program and of its rewritings are merged, `variant`
 * says whose plan it is. */
struct ul_plan_rung {
    struct ul_plan plan;
    uint32_t variant;
    struct ul_plan_beside beside; /* of the program that it is a plan of */
};
/* What a budget bounds of the plan. */
uint64_t ul_rung_bytes(const struct ul_plan_rung *rung);

/* Plans of ever less memory and ever more cost. The first is the plan without a budget; from the
 * second on, what a budget bounds falls and the cost rises with every rung. */
struct ul_plan_ladder {
    struct ul_plan_rung *rungs;
    uint32_t count;
    uint64_t room_bytes;    /* where no rung is within the budget: the room in another space with
                               which one is; 0: none is known, or not asked */
    const char *remat_name; /* the method of recomputation that was named, or NULL */
    const char *why_not;    /* where that one did not serve: why, or NULL */
};

/* The ladder of `problem`, by what options->beside is beside it. With options->budget_bytes, more
 * rungs are looked for between the two that the budget lies between, so that the first rung that
 * fits one is monotone in it. `base` is what ul_plan_solve made without a budget, or NULL. Each
 * plan has passed ul_plan_check. */
enum ul_status ul_ladder_build(struct ul_arena *arena, const struct ul_problem *problem,
                               const struct ul_plan_options *options, const struct ul_plan *base,
                               struct ul_plan_ladder *ladder, struct ul_diag *diag) UL_MUST_CHECK;
/* Why the method of recomputation that options name does not apply to the problem at all, though
 * nothing has to run again in `plan`, which was made without a budget; else NULL, and the plan says
 * that the method was asked. */
const char *ul_ladder_refusal(struct ul_arena *arena, const struct ul_problem *problem,
                              const struct ul_plan_options *options, struct ul_plan *plan);
/* The ladder of `base`, each step once, and of the same order with ever fewer optional values; but
 * for what is no better than a rung of `known` (NULL: there is none). */
enum ul_status ul_ladder_spread(struct ul_arena *arena, const struct ul_problem *problem,
                                const struct ul_plan_options *options, const struct ul_plan *base,
                                const struct ul_plan_ladder *known, struct ul_plan_ladder *ladder,
                                struct ul_diag *diag) UL_MUST_CHECK;
/* Takes over the rungs of `other`, as plans of `variant`, that are smaller than all that cost no
 * more, and drops those that became worse than one of them. */
void ul_ladder_merge(struct ul_arena *arena, struct ul_plan_ladder *ladder,
                     const struct ul_plan_ladder *other, uint32_t variant);
/* The cheapest rung within the budget (0: any), or, where none is, the smallest. Sets its
 * `smallest_budget_bytes`, and `fits` as far as the budget goes; what does not fit names the method
 * of recomputation that was named. */
void ul_ladder_pick(const struct ul_plan_ladder *ladder, uint64_t budget_bytes,
                    struct ul_plan_rung *rung);

/* plan_within.c: the policy of a budget, in three steps. A caller with other programs of the same
 * model merges their ladders between the first two. */

/* The plan without a budget, and the ladder that begins with it where that plan exceeds
 * options->budget_bytes or the capacity of space 0, or where the ladder is wanted anyway; else the
 * ladder has no rungs. */
enum ul_status ul_plan_front(struct ul_arena *arena, const struct ul_problem *problem,
                             const struct ul_plan_options *options, bool wants_ladder,
                             struct ul_plan_rung *first, struct ul_plan_ladder *ladder,
                             struct ul_diag *diag) UL_MUST_CHECK;
/* Puts the cheapest rung within the budget in the place of the first, which `rung` holds, unless
 * the first is within it. A ladder without rungs changes nothing. `problem`: of any variant. */
void ul_plan_pick(const struct ul_problem *problem, const struct ul_plan_options *options,
                  const struct ul_plan_ladder *ladder, struct ul_plan_rung *rung);
/* Says of a plan of `problem` whether it is within the budget, and, where there is one, what no
 * other costs less than. */
void ul_plan_finish(const struct ul_problem *problem, const struct ul_plan_options *options,
                    struct ul_plan_rung *rung);

/* Lays a plan that fits out in the banks of its problem, where there are any; it has passed
 * ul_plan_check then. Where that does not do, *next_bytes says below what a plan of fewer bytes may
 * be tried next, which callers do so many times; else it is 0. */
enum { UL_LAY_OUT_TRIES = 8 };
enum ul_status ul_plan_lay_out(struct ul_arena *arena, const struct ul_problem *problem,
                               const struct ul_plan_options *options, struct ul_plan *plan,
                               uint64_t *next_bytes, struct ul_diag *diag) UL_MUST_CHECK;

/* bound.c */

/* Sets cost_bound of a plan made for a budget, and what follows from it: optimal, or that within a
 * rewriting of the program, and no narrower proof beside these. */
void ul_bound_cost(const struct ul_problem *problem, uint64_t budget_bytes, struct ul_plan *plan);

struct ul_solve_options {
    enum ul_plan_order order;
    enum ul_plan_remat remat;
    uint64_t budget_bytes; /* of the live sum; 0: none */
    uint64_t seed;
    uint64_t work_limit;       /* counted node visits; 0: the default */
    double time_limit_seconds; /* 0: none */
};

struct ul_solve_result {
    uint32_t *order; /* with repeats */
    uint32_t order_count;
    uint64_t peak_bytes;
    uint64_t order_peak_bytes;  /* of the published order */
    uint64_t lower_bound_bytes; /* over all orders and recomputations */
    uint64_t cost, base_cost, cost_bound;
    uint32_t recomputes;
    const char *bound_method; /* where values may move: what proves more than base_cost, or NULL */
    bool optimal;             /* over the full problem */
    const char *optimal_within; /* what a narrower proof covers, or NULL */
    bool fits;
    bool proven;                    /* a misfit is certain */
    uint64_t smallest_budget_bytes; /* the smallest peak seen */
    uint32_t largest_step;          /* the step that needs lower_bound_bytes */
    bool stopped_by_time;
    const char *method;
    const char *why_not;       /* why the method that was named does not serve, or NULL */
    const char *order_why_not; /* the same of orders */
    /* Where values move to another space, all that is done, runs too: a step is a place in the
     * published order, a value a node. Else NULL. */
    const struct ul_plan_position *positions;
    uint32_t position_count;
};

/* solve_json.c: planner/README.md has the format. UL_INVALID with what is wrong. */
enum ul_status ul_solve_read_json(struct ul_arena *arena, const char *text, uint64_t size_bytes,
                                  struct ul_solve_graph *graph, struct ul_diag *diag) UL_MUST_CHECK;

/* solve.c */

/* The best order and recomputations found; never worse than the published order, unless another was
 * named. */
void ul_solve_run(struct ul_arena *arena, const struct ul_solve_graph *graph,
                  const struct ul_solve_options *options, struct ul_solve_result *result);

/* solve_transfers.c */

/* The same, and, where the graph has another space, values that move there within the budget; what
 * is found then has passed ul_plan_check. */
enum ul_status ul_solve_graph_run(struct ul_arena *arena, const struct ul_solve_graph *graph,
                                  const struct ul_solve_options *options,
                                  struct ul_solve_result *result,
                                  struct ul_diag *diag) UL_MUST_CHECK;

#endif
