/* SPDX-License-Identifier: Apache-2.0 */
/* Recomputation within a budget: the engines, as the solvers call them. */
#ifndef UL_PLANNER_REMAT_REMAT_H
#define UL_PLANNER_REMAT_REMAT_H

#include "planner/model/effort.h"
#include "planner/model/graph.h"
#include "planner/model/plan.h"

/* How much the integer programs may take. */
struct ul_remat_programs {
    uint64_t work;           /* of all of them, in units of planner/order/ilp.h */
    uint32_t nodes, columns; /* larger programs are not tried */
    uint64_t memory_bytes;   /* of the solver */
    double cpu_seconds;      /* of each: a stop that should not be reached; 0: none */
};

/* How much each method may do. */
struct ul_remat_limits {
    uint64_t search_work;
    uint64_t exact_work;      /* from the start, before the searches */
    uint64_t exact_more_work; /* and after them, or where it is named */
    uint32_t exact_states;
    uint64_t backward_work;
    uint32_t backward_states;
    struct ul_remat_programs programs;       /* together with other methods */
    struct ul_remat_programs named_programs; /* where they are named */
};

struct ul_remat {
    const struct ul_solve_graph *graph;
    uint64_t budget_bytes;
    enum ul_plan_remat method;
    const struct ul_remat_limits *limits;
    uint64_t programs_work; /* done by integer programs */
    bool keeps_order; /* an order was named: methods that choose their own do not run by themselves
                       */
    struct ul_effort effort;
    bool first_ends; /* the first sequence within the budget ends the search */
    /* By node: whether it is in the forward pass, and whether its value is kept; NULL: not
     * given. */
    const bool *is_forward, *is_kept;
    /* out; in: a sequence within the budget, if cost says so */
    uint32_t *sequence;
    uint32_t count, capacity;
    uint64_t cost;               /* UINT64_MAX: none found */
    enum ul_plan_remat found_by; /* the row that found it, */
    const char *found_how;       /* and its name for the result */
    const char *proven_within;   /* what a proof that nothing costs less covers, or NULL */
    uint64_t repeat_bound;       /* over all orders and recomputations: the least cost of repeats */
    bool misfit_proven;          /* no order and no recomputation is within the budget */
    const char *why_not;         /* the method that was named does not apply or finds nothing */
    uint64_t smallest_peak_bytes; /* in: a peak known to work */
};

/* Orders of every node once. */
struct ul_remat_orders {
    const uint32_t *const *orders;
    uint32_t count;
};

/* A method in one of its turns, or alone (UL_TURN_NONE); alone it says why it cannot be used. It
 * improves on the sequence in `remat`. True where that settles it: nothing costs less. */
typedef bool ul_remat_method(struct ul_remat *remat, const struct ul_remat_orders *orders,
                             enum ul_method_turn turn);
#define UL_REMAT_NO_PROTOTYPE(...)
#define UL_REMAT_PROTOTYPE(constant, name, run, ...) ul_remat_method run;
UL_REMAT_METHODS(UL_REMAT_NO_PROTOTYPE, UL_REMAT_PROTOTYPE)
#undef UL_REMAT_PROTOTYPE
#undef UL_REMAT_NO_PROTOTYPE

/* remat_run.c */

/* The limits for `ullage solve`, which has no other work. */
extern const struct ul_remat_limits ul_remat_limits_alone;
/* The limits for a rung of a ladder, which has many. */
extern const struct ul_remat_limits ul_remat_limits_rung;
/* And for one of the few rungs that are searched between two. */
extern const struct ul_remat_limits ul_remat_limits_between;
/* Lowers them to that much work for each method; an iteration of a program is a lot of it. */
void ul_remat_limits_cap(struct ul_remat_limits *limits, uint64_t work);
/* Which row found the sequence, and how. */
const char *ul_remat_found_by(struct ul_arena *arena, const struct ul_remat *remat);
/* Runs the methods that join in this turn; true where one settles it. */
bool ul_remat_run_turn(struct ul_remat *remat, const struct ul_remat_orders *orders,
                       enum ul_method_turn turn);
/* Runs the method that `remat` names, or all in their turns; the last one that ran sets why_not. */
void ul_remat_run(struct ul_remat *remat, const struct ul_remat_orders *orders);
/* Runs all methods on a rung. Both results are useful, since it is not known which packs better:
 * that of the searches, and a cheaper one of other methods, if they find one; where the forward
 * pass is given, also of searches that continue from these. */
void ul_remat_run_rung(struct ul_remat *searched, struct ul_remat *cheaper,
                       const struct ul_remat_orders *orders);

/* remat.c */

/* The cheapest sequence that walks and annealing find, with first runs in one of the orders. */
void ul_remat_search(struct ul_remat *remat, const struct ul_remat_orders *orders);

/* remat_exact.c: over all orders and recomputations. */

enum ul_remat_outcome {
    UL_REMAT_UNKNOWN,      /* out of states, or not usable */
    UL_REMAT_IMPROVED,     /* out of states, with a schedule below repeat_limit */
    UL_REMAT_OPTIMAL,      /* the schedule is the cheapest of all */
    UL_REMAT_NONE_CHEAPER, /* proven: no schedule costs less than repeat_limit */
};
struct ul_remat_exact {
    const struct ul_solve_graph *graph;
    struct ul_arena *arena; /* for the sequence */
    uint64_t budget_bytes;
    uint64_t repeat_limit; /* cost of the repeats of the best known; UINT64_MAX: none */
    uint32_t state_limit;
    struct ul_effort effort;
    /* out */
    enum ul_remat_outcome outcome;
    uint64_t repeat_bound;    /* the least cost of the repeats */
    const char *bound_method; /* that proved it, or NULL where it is 0 */
    uint32_t *sequence;
    uint32_t count;
    uint64_t repeat_cost; /* of the sequence */
};
/* The cheapest schedule within the budget, or the proof that there is none below the limit. */
void ul_remat_exact_run(struct ul_remat_exact *job);

/* remat_backward.c: the same, from the end. */
void ul_remat_backward_run(struct ul_remat_exact *job);

/* bound_transfers.c */

struct ul_bound_transfers {
    const struct ul_solve_graph *graph;
    const struct ul_plan_resource *engine; /* moves the values of all nodes */
    uint64_t alignment_bytes;              /* divides the sizes of nodes */
    uint64_t budget_bytes;
    uint64_t known_cost; /* of a schedule within the budget */
};
/* The least cost of every schedule of the graph, with repeats and transfers to the space; at most
 * the known cost. `method`: what proves that it is more than every node once, or NULL. */
uint64_t ul_bound_transfers(const struct ul_bound_transfers *job, const char **method);

#endif
