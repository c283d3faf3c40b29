/* SPDX-License-Identifier: Apache-2.0 */
/* A graph along an order, and integer programs over its stages. */
#ifndef UL_PLANNER_REMAT_REMAT_STAGES_H
#define UL_PLANNER_REMAT_REMAT_STAGES_H

#include "planner/model/graph.h"

/* remat_stages.c */

/* A graph by the positions of an order, which index all arrays: stage t runs node t first. */
struct ul_stages {
    uint32_t count;
    uint64_t *size_bytes, *working_bytes, *cost;
    uint32_t *place; /* by node of the graph: its position */
    uint32_t *input_first, *inputs;
    uint32_t *reader_first, *readers; /* ascending */
    uint32_t *touch; /* the end of the consecutive stages from its own that touch the value */
    uint32_t gap;    /* the first stage to read what the stage before did not touch, or count */
};
void ul_stages_init(struct ul_arena *arena, const struct ul_solve_graph *graph,
                    const uint32_t *order, struct ul_stages *stages);

/* remat_ilp.c */

struct ul_ilp_limits;
/* A known sequence, with the task's order of first runs. */
struct ul_remat_hint {
    const uint32_t *sequence;
    uint32_t count;
};
struct ul_remat_ilp {
    const struct ul_solve_graph *graph;
    const uint32_t *order; /* of the first runs, which is kept */
    uint64_t budget_bytes;
    uint64_t cutoff_cost; /* only sequences that cost less are searched; UINT64_MAX: any */
    uint32_t node_limit, column_limit; /* larger programs are not tried */
    const struct ul_remat_hint *hints; /* if any: only their repeats, and what is near */
    uint32_t hint_count;
    uint32_t hint_radius; /* stages */
    const struct ul_ilp_limits *limits;
    /* out */
    uint32_t *sequence; /* NULL: none found */
    uint32_t count;
    uint64_t cost;
    double bound_units;
    bool proven; /* in the reduced form nothing costs less than the sequence, or the cutoff */
    uint64_t work;
    bool stopped_by_time;
};
/* Solves the reduced integer program; false if it is too large to try. */
bool ul_remat_ilp(struct ul_arena *arena, struct ul_remat_ilp *task);

#endif
