/* SPDX-License-Identifier: Apache-2.0 */
/* A small model of columns and rows, minimised by GLPK in a process of its own.
 *
 * Invariants: columns and rows are added in order and never removed; terms go to the row added
 * last, and those of one column add up. Every integer column has bounds. Ownership: a model lives
 * in the arena it was made in; so does the result's `values`. Units: `work`, which limits the
 * search, counts simplex iterations by the size of the model, and branchings as a number of
 * iterations; seconds are a stop that makes the outcome depend on the machine, and set
 * stopped_by_time. Failure: GLPK ends its process on an error; that, a process that cannot be
 * started, lack of memory and any limit give UNKNOWN. What was found until then is kept. */
#ifndef UL_ILP_H
#define UL_ILP_H

#include "base/base.h"

enum {
    UL_ILP_BRANCH_WORK = 500, /* iterations as which a branching counts */
    UL_ILP_TERMS = 1 << 15    /* an iteration counts once more for this many terms of the model */
};

struct ul_ilp_column {
    double cost;
    double lower, upper;
    uint32_t newest_term; /* of this column */
    bool integer;
};

struct ul_ilp_row {
    double lower, upper; /* -INFINITY, INFINITY: none */
    uint32_t first;      /* its terms: up to the first of the next row */
};

struct ul_ilp {
    struct ul_arena *arena;
    struct ul_ilp_column *columns;
    struct ul_ilp_row *rows;
    uint32_t *term_columns;
    double *term_factors;
    uint32_t column_count, column_capacity;
    uint32_t row_count, row_capacity;
    uint32_t term_count, term_capacity, factor_capacity;
};

struct ul_ilp_limits {
    uint64_t work;         /* 0: none */
    uint64_t memory_bytes; /* of GLPK's process, without the copy of ours */
    double cpu_seconds;    /* 0: none */
    double wall_seconds;   /* 0: none */
};

enum ul_ilp_outcome {
    UL_ILP_UNKNOWN,    /* a limit was reached, perhaps with `values` */
    UL_ILP_OPTIMAL,    /* `values` is a solution of minimum cost */
    UL_ILP_INFEASIBLE, /* there is none */
};

struct ul_ilp_result {
    double *values;        /* by column, of the best solution found; NULL: none */
    double *reduced_costs; /* by column, of a relaxation */
    double cost;           /* of `values` */
    double bound;          /* no solution costs less; -INFINITY: not known */
    uint64_t work;
    bool stopped_by_time;
};

/* ilp.c */

struct ul_ilp *ul_ilp_new(struct ul_arena *arena);
uint32_t ul_ilp_add_column(struct ul_ilp *ilp, double cost, double lower, double upper,
                           bool integer);
uint32_t ul_ilp_add_row(struct ul_ilp *ilp, double lower, double upper);
void ul_ilp_add_term(struct ul_ilp *ilp, uint32_t column, double factor);
/* Only the relaxation, with every column continuous. */
enum ul_ilp_outcome ul_ilp_relax(struct ul_ilp *ilp, const struct ul_ilp_limits *limits,
                                 struct ul_ilp_result *result);
enum ul_ilp_outcome ul_ilp_solve(struct ul_ilp *ilp, const struct ul_ilp_limits *limits,
                                 struct ul_ilp_result *result);

#endif
