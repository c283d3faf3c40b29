/* SPDX-License-Identifier: Apache-2.0 */
/* What a caller can ask: a plan for a problem, a ladder of plans, a sequence for an abstract
 * graph. */
#ifndef UL_PLANNER_SOLVE_SOLVE_H
#define UL_PLANNER_SOLVE_SOLVE_H

#include "planner/model/graph.h"
#include "planner/model/plan.h"
#include "planner/transfer/transfer.h"

/* plan_within.c */

/* Plans `problem`; the plan has passed ul_plan_check. UL_INVALID: a malformed problem. */
enum ul_status ul_plan_solve(struct ul_arena *arena, const struct ul_problem *problem,
                             const struct ul_plan_options *options, struct ul_plan *plan,
                             struct ul_diag *diag) UL_MUST_CHECK;
/* Plans `problem` without a budget, in one buffer of any size: its capacity and its banks count
 * only for whether the plan fits. */
enum ul_status ul_plan_unlimited(struct ul_arena *arena, const struct ul_problem *problem,
                                 const struct ul_plan_options *options, struct ul_plan *plan,
                                 struct ul_diag *diag) UL_MUST_CHECK;

/* plan.c */

/* Turns a plan that ul_plan_check accepts into the one that computes the same bits as any plan with
 * its implementations: each step once, in the order of first runs, no byte of the arena used
 * twice. */
enum ul_status ul_plan_unfold(struct ul_arena *arena, const struct ul_problem *problem,
                              struct ul_plan *plan, struct ul_diag *diag) UL_MUST_CHECK;

/* spares.c */

/* Gives steps the spare alternatives whose scratch fits into free bytes; the plan stays as large as
 * it is, and has passed ul_plan_check. */
enum ul_status ul_plan_take_spares(struct ul_arena *arena, const struct ul_problem *problem,
                                   struct ul_plan *plan, struct ul_diag *diag) UL_MUST_CHECK;

/* gather.c */

/* The positions of a plan that may share a launch, and how many: those of one kind; 0: none. */
struct ul_plan_gathering {
    const uint32_t *kinds;
    uint32_t most;
};
/* Reorders a plan that has only runs, so that more positions that share launches follow one
 * another, and none of them touches bytes that another one writes. The plan reserves no more than
 * before, costs the same, and has passed ul_plan_check. */
enum ul_status ul_plan_gather(struct ul_arena *arena, const struct ul_problem *problem,
                              const struct ul_plan_options *options,
                              const struct ul_plan_gathering *gathering, struct ul_plan *plan,
                              struct ul_diag *diag) UL_MUST_CHECK;

/* streams.c */

/* Lets positions of a plan that has only runs run on stream 1, at the same time as others, where
 * that gains enough. The plan reserves no more than before, positions that share a launch still
 * may, and it has passed ul_plan_check. Proofs about its cost are dropped. */
enum ul_status ul_plan_stream(struct ul_arena *arena, const struct ul_problem *problem,
                              const struct ul_plan_options *options,
                              const struct ul_plan_streaming *streaming, struct ul_plan *plan,
                              struct ul_diag *diag) UL_MUST_CHECK;

/* ladder.c */

/* One plan of a ladder. Where the ladders of a program and of its rewritings are merged,
 * `alternative` says to which program it belongs. */
struct ul_plan_rung {
    struct ul_plan plan;
    uint32_t alternative;
    struct ul_process_overhead overhead; /* of the plan's program */
};
/* The bytes of the plan that a budget counts. */
uint64_t ul_rung_bytes(const struct ul_plan_rung *rung);

/* Plans with less and less memory and more and more cost. The first is the plan without a budget;
 * from the second on, the bytes that a budget counts fall and the cost rises with every rung. */
struct ul_plan_ladder {
    struct ul_plan_rung *rungs;
    uint32_t count;
    uint64_t room_bytes; /* where no rung is within the budget: the room in another space that makes
                            one fit; 0: none is known, or it was not asked for */
    const char *remat_name; /* the method of recomputation that was named, or NULL */
    const char *why_not;    /* why that method did not apply, or NULL */
};

/* The ladder of `problem`, with options->beside outside it. With options->budget_bytes, more rungs
 * are searched between the two around the budget, so that the first rung that fits a budget is
 * monotone in it. `base` is the result of ul_plan_solve without a budget, or NULL. Each plan has
 * passed ul_plan_check. */
enum ul_status ul_ladder_build(struct ul_arena *arena, const struct ul_problem *problem,
                               const struct ul_plan_options *options, const struct ul_plan *base,
                               struct ul_plan_ladder *ladder, struct ul_diag *diag) UL_MUST_CHECK;
/* Why the method of recomputation that options name does not apply to the problem at all, though
 * nothing has to run again in `plan`, which was made without a budget; else NULL, and the plan says
 * that the method was asked. */
const char *ul_ladder_refusal(struct ul_arena *arena, const struct ul_problem *problem,
                              const struct ul_plan_options *options, struct ul_plan *plan);
/* The ladder of `base`, each step once, and of the same order with fewer and fewer optional values,
 * without plans that are no better than a rung of `known` (NULL: there is none). */
enum ul_status ul_ladder_spread(struct ul_arena *arena, const struct ul_problem *problem,
                                const struct ul_plan_options *options, const struct ul_plan *base,
                                const struct ul_plan_ladder *known, struct ul_plan_ladder *ladder,
                                struct ul_diag *diag) UL_MUST_CHECK;
/* Adds the rungs of `other`, as plans of `alternative`, that are smaller than all that cost no
 * more, and drops those that became worse than one of them. */
void ul_ladder_merge(struct ul_arena *arena, struct ul_plan_ladder *ladder,
                     const struct ul_plan_ladder *other, uint32_t alternative);
/* The cheapest rung within the budget (0: any), or, where none is, the smallest. Sets its
 * `smallest_budget_bytes`, and `fits` with regard to the budget; a rung that does not fit names the
 * method of recomputation that was named. */
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
/* Replaces the first rung, which `rung` holds, by the cheapest one within the budget, unless the
 * first is within it. A ladder without rungs changes nothing. `problem`: of any alternative. */
void ul_plan_pick(const struct ul_problem *problem, const struct ul_plan_options *options,
                  const struct ul_plan_ladder *ladder, struct ul_plan_rung *rung);
/* Sets whether a plan of `problem` is within the budget, and, where there is one, the bound of the
 * cost of all plans. */
void ul_plan_finish(const struct ul_problem *problem, const struct ul_plan_options *options,
                    struct ul_plan_rung *rung);

/* Lays a plan that fits out in the banks of its problem, where there are any; it then has passed
 * ul_plan_check. Where that fails, *next_bytes is the number of bytes below which a next plan may
 * be tried (callers try this many times); else it is 0. */
enum { UL_LAY_OUT_TRIES = 8 };
enum ul_status ul_plan_lay_out(struct ul_arena *arena, const struct ul_problem *problem,
                               const struct ul_plan_options *options, struct ul_plan *plan,
                               uint64_t *next_bytes, struct ul_diag *diag) UL_MUST_CHECK;

/* bound.c */

/* Sets cost_bound of a plan made for a budget, and what follows from it: optimal, or optimal within
 * a rewriting of the program, and no narrower proof in addition to these. */
void ul_bound_cost(const struct ul_problem *problem, uint64_t budget_bytes, struct ul_plan *plan);

struct ul_solve_options {
    enum ul_plan_order order;
    enum ul_plan_remat remat;
    uint64_t budget_bytes; /* for the live sum; 0: none */
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
    const char *bound_method; /* where values may move: the method that proves more than base_cost,
                                 or NULL */
    bool optimal;             /* over the complete problem */
    const char *optimal_within; /* the scope of a narrower proof, or NULL */
    bool fits;
    bool proven;                    /* a misfit is certain */
    uint64_t smallest_budget_bytes; /* the smallest peak seen */
    uint32_t largest_step;          /* the step that needs lower_bound_bytes */
    bool stopped_by_time;
    const char *method;
    const char *why_not;       /* why the named method does not apply, or NULL */
    const char *order_why_not; /* the same for orders */
    /* Where values move to another space, all operations including runs: a step is a place in the
     * published order, a value is a node. Else NULL. */
    const struct ul_plan_position *positions;
    uint32_t position_count;
};

/* solve_json.c: planner/README.md describes the format. UL_INVALID with what is wrong. */
enum ul_status ul_solve_read_json(struct ul_arena *arena, const char *text, uint64_t size_bytes,
                                  struct ul_solve_graph *graph, struct ul_diag *diag) UL_MUST_CHECK;

/* solve.c */

/* The best order and recomputations found; never worse than the published order, unless another was
 * named. */
void ul_solve_run(struct ul_arena *arena, const struct ul_solve_graph *graph,
                  const struct ul_solve_options *options, struct ul_solve_result *result);

/* solve_transfers.c */

/* The same, and, where the graph has another space, with values that move there within the budget;
 * such a result has passed ul_plan_check. */
enum ul_status ul_solve_graph_run(struct ul_arena *arena, const struct ul_solve_graph *graph,
                                  const struct ul_solve_options *options,
                                  struct ul_solve_result *result,
                                  struct ul_diag *diag) UL_MUST_CHECK;

#endif
