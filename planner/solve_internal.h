/* What the files behind `ullage solve` share. */
#ifndef UL_SOLVE_INTERNAL_H
#define UL_SOLVE_INTERNAL_H

#include "planner/planner.h"

/* order_greedy.c: orders of every node once, in near-linear time. */

/* Always the ready node that frees most and allocates least. */
void ul_order_greedy(struct ul_arena *scratch, const struct ul_solve_graph *graph, uint32_t *order);
/* Each node as late as its first user allows, the largest input of a user first. */
void ul_order_depth_first(struct ul_arena *scratch, const struct ul_solve_graph *graph,
                          uint32_t *order);

/* order_downsets.c */

enum ul_order_outcome { UL_ORDER_UNKNOWN, UL_ORDER_PROVEN, UL_ORDER_IMPROVED };
/* Searches the sets of nodes that are done for the order of the smallest peak below
 * `upper_bytes`. Raises *lower_bytes to what every order without recomputation is proven to need.
 * PROVEN: nothing is below upper_bytes; IMPROVED: `order` is optimal; UNKNOWN: out of states. */
enum ul_order_outcome ul_order_downsets(struct ul_arena *scratch,
                                        const struct ul_solve_graph *graph, uint64_t upper_bytes,
                                        uint32_t state_limit, uint64_t *lower_bytes,
                                        uint32_t *order);

/* order_beam.c */

/* The best order among those that keep within the `width` most promising sets at every length. */
bool ul_order_beam(struct ul_arena *scratch, const struct ul_solve_graph *graph, uint32_t width,
                   uint64_t upper_bytes, uint32_t *order);

/* remat.c */

struct ul_remat {
    const struct ul_solve_graph *graph;
    uint64_t budget_bytes;
    enum ul_plan_remat method; /* greedy: walks alone; search: sequences alone; best: both */
    uint64_t seed;
    uint64_t work_limit;
    double deadline_seconds; /* 0: none */
    /* out; in: a sequence within the budget, if cost says so */
    uint32_t *sequence;
    uint32_t count, capacity;
    uint64_t cost; /* UINT64_MAX: none found */
    const char *found_by;
    uint64_t smallest_peak_bytes; /* in: a peak known to work */
    uint64_t work;
    bool stopped_by_time;
};
/* The cheapest sequence found whose peak is within the budget, the first runs in one of `orders`;
 * improves on what `remat` already holds. */
void ul_remat_search(struct ul_remat *remat, const uint32_t *const *orders, uint32_t order_count);

/* remat_ilp.c */

struct ul_ilp_limits;
struct ul_remat_ilp {
    const struct ul_solve_graph *graph;
    const uint32_t *order; /* of the first runs, which is kept */
    uint64_t budget_bytes;
    uint64_t cutoff_cost;  /* only sequences that cost less are sought; UINT64_MAX: any */
    uint32_t column_limit; /* larger models are not tried */
    const struct ul_ilp_limits *limits;
    /* out */
    uint32_t *sequence; /* NULL: none found */
    uint32_t count;
    bool proven; /* in the reduced form nothing costs less than the sequence, or the cutoff */
    uint64_t work;
    bool stopped_by_time;
};
/* Solves the reduced integer program; false if it is too large to try. */
bool ul_remat_ilp(struct ul_arena *arena, struct ul_remat_ilp *task);

#endif
