/* SPDX-License-Identifier: Apache-2.0 */
/* The order with the smallest peak, for an abstract graph and for a problem. */
#ifndef UL_PLANNER_ORDER_ORDER_H
#define UL_PLANNER_ORDER_ORDER_H

#include "planner/model/effort.h"
#include "planner/model/graph.h"
#include "planner/model/plan.h"

/* order_run.c */

/* A search for the order of every node once with the smallest peak. */
struct ul_order_run {
    const struct ul_solve_graph *graph;
    enum ul_plan_order method;
    struct ul_effort effort; /* work in visits of nodes; a limit of 0: the default */
    uint64_t enough_bytes;   /* an order within this ends the search */
    /* out */
    uint32_t *order; /* the published one unless another is better, or one that was named */
    uint64_t peak_bytes;
    uint64_t lower_bytes; /* in: known; out: proven for every order */
    const char *method_name;
    const char *why_not;  /* why the method that was named finds no order, or NULL */
    bool stopped_by_time; /* before the peak was proven */
};
void ul_order_run(struct ul_arena *arena, struct ul_order_run *run);

/* order_memo.c */

/* Results of runs, for others with equal graphs and limits. Lives in the arena. */
struct ul_order_memo;
struct ul_order_memo *ul_order_memo_new(struct ul_arena *arena);
/* ul_order_run, or the result of the same run before. Runs with a deadline are not kept; `memo` may
 * be NULL. */
void ul_order_memo_run(struct ul_order_memo *memo, struct ul_arena *arena,
                       struct ul_order_run *run);

/* order_problem.c */

struct ul_order_choice {
    uint32_t *steps;
    uint64_t live_bytes;         /* its largest live sum, with in-place options taken */
    uint64_t orders_lower_bytes; /* no order can have a smaller one */
    const char *method;
    const char *why_not; /* why the method that was named finds no order, or NULL */
    bool is_file;        /* the file order */
    bool stopped_by_time;
};
/* The order with the smallest live sum found; the file order unless another is strictly better, or
 * comes from a method that was named. */
void ul_order_problem(struct ul_arena *arena, const struct ul_problem *problem,
                      const struct ul_plan_options *options, struct ul_order_choice *choice);

#endif
