/* Recomputation within a budget: the engines, as the solvers call them. */
#ifndef UL_PLANNER_REMAT_REMAT_H
#define UL_PLANNER_REMAT_REMAT_H

#include "planner/model/effort.h"
#include "planner/model/graph.h"
#include "planner/model/plan.h"

/* remat.c */

struct ul_remat {
    const struct ul_solve_graph *graph;
    uint64_t budget_bytes;
    enum ul_plan_remat method; /* greedy: walks alone; search: sequences alone; best: both */
    uint64_t seed;
    struct ul_effort effort;
    bool first_ends; /* the first sequence within the budget ends the search */
    /* out; in: a sequence within the budget, if cost says so */
    uint32_t *sequence;
    uint32_t count, capacity;
    uint64_t cost; /* UINT64_MAX: none found */
    const char *found_by;
    const char *proven_within;    /* what a proof covers that nothing costs less, or NULL */
    uint64_t smallest_peak_bytes; /* in: a peak known to work */
};
/* The cheapest sequence found whose peak is within the budget, the first runs in one of `orders`;
 * improves on what `remat` already holds. */
void ul_remat_search(struct ul_remat *remat, const uint32_t *const *orders, uint32_t order_count);

/* remat_chain.c */

/* Offers the best checkpoints on the chain of blocks that `order` runs through, if it does;
 * otherwise nothing. */
void ul_remat_chain(struct ul_remat *remat, const uint32_t *order);

/* ilp_remat.c */

/* How much the programs may take. */
struct ul_remat_effort {
    uint64_t work;         /* of all of them, as planner/order/ilp.h counts it */
    uint32_t columns;      /* larger programs are not tried */
    uint64_t memory_bytes; /* of the solver */
    double cpu_seconds;    /* of each: a stop that should not be met; 0: none */
};
/* Improves on what `remat` holds by integer programs, its deadline being a limit of them all. */
void ul_remat_programs(struct ul_remat *remat, const struct ul_remat_effort *effort,
                       const uint32_t *const *orders, uint32_t order_count);

/* remat_exact.c: over all orders and recomputations. */

enum ul_remat_outcome {
    UL_REMAT_UNKNOWN,      /* out of states, or not served */
    UL_REMAT_IMPROVED,     /* out of states, with a schedule below repeat_limit */
    UL_REMAT_OPTIMAL,      /* the schedule is the cheapest of all */
    UL_REMAT_NONE_CHEAPER, /* proven: no schedule costs less than repeat_limit */
};
struct ul_remat_exact {
    const struct ul_solve_graph *graph;
    struct ul_arena *arena; /* gets the sequence */
    uint64_t budget_bytes;
    uint64_t repeat_limit; /* cost of the repeats of the best known; UINT64_MAX: none */
    uint32_t state_limit;
    struct ul_effort effort;
    /* out */
    enum ul_remat_outcome outcome;
    uint64_t repeat_bound; /* what the repeats cost at least */
    uint32_t *sequence;
    uint32_t count;
    uint64_t repeat_cost; /* of the sequence */
    uint32_t states, expanded;
};
/* The cheapest schedule within the budget, or the proof that there is none below the limit. */
void ul_remat_exact_run(struct ul_remat_exact *job);

/* remat_backward.c: the same, from the end. */
void ul_remat_backward_run(struct ul_remat_exact *job);

#endif
