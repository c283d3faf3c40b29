/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes: how the families loop over outputs that each need an inner loop of their own.
 *
 * Loops follow the order in which a value that the caller names lies in memory. Outputs are visited
 * by PARALLEL loops over the kept dimensions. Where the contiguous dimension is a kept one, walking
 * an inner loop per output would stride through memory; then a block of outputs along that
 * dimension, the lanes, goes through the inner loops together, its carried state in small local
 * arrays. Code written with lanes reads the same with and without them:
 *
 *     ul_lanes_open(&lanes, lower, value, kept);
 *     acc = ul_lanes_var(&lanes, dtype, zero);
 *     ul_lanes_loop(&lanes, ~kept, 0);
 *         ul_lanes_begin(&lanes);
 *             ul_lanes_set(&lanes, acc, ul_kx_add(k, ul_lanes_get(&lanes, acc), load at index));
 *         ul_lanes_end(&lanes);
 *     ul_lanes_loop_end(&lanes, ~kept);
 *     ul_lanes_begin(&lanes);  store ul_lanes_get(&lanes, acc) at index  ul_lanes_end(&lanes);
 *     ul_lanes_close(&lanes);
 *
 * A sum like this one is written with ul_lanes_reduce, which, where the contiguous dimension is
 * the one that is summed over, keeps partial results in an array, one for every UL_LANES_MAX-th
 * element, and folds them at the end: such loops can be vectorised without leave to reorder floats,
 * and a long sum keeps more of its digits.
 *
 * Invariants: a lane variable is read and written between begin and end only; index[d] is valid
 * for kept dimensions between open and close (the lane dimension: between begin and end), for the
 * others inside their loop. Dimensions beyond `rank` do not exist in masks (bit d: dimension d).
 * Units: elements. Nothing fails.
 */
#ifndef UL_OPS_LANES_H
#define UL_OPS_LANES_H

#include "ir/lower.h"

#define UL_LANES_MAX 32 /* two cache lines of f32; a few such arrays fit on any stack */

struct ul_lanes {
    struct ul_lower *lower;
    uint32_t rank;
    int64_t dims[UL_LIMIT_RANK];
    uint32_t order[UL_LIMIT_RANK]; /* dimensions, the outermost in memory first */
    ul_kx index[UL_LIMIT_RANK];
    uint32_t lane_dim; /* UL_NONE: one output at a time */
    int64_t width;     /* lanes of a full block */
    ul_kx first;       /* coordinate of lane 0 */
    ul_kx count;       /* lanes of this block */
    ul_kx lane;        /* within begin/end */
    uint32_t open_loops;
    uint32_t joined; /* dimensions whose index may also run over the one before them in the order */
    bool in_parts;   /* long sums are formed as in partials.h, where the target asks for it */
};

/* State that is carried for each output. */
struct ul_lane_var {
    enum ul_dtype dtype;
    uint32_t id; /* a mutable variable, or a local array where there are lanes */
};

/* The bits [0, rank). */
uint32_t ul_lanes_all(uint32_t rank);
/* The product of the dimensions in `mask`. */
int64_t ul_lanes_product(const int64_t *dims, uint32_t rank, uint32_t mask);

/* Sets up coordinates, without loops or lanes yet. */
void ul_lanes_init(struct ul_lanes *lanes, struct ul_lower *lower, uint32_t rank,
                   const int64_t *dims, const uint32_t *order);
/* Loops over the dimensions of `value`, or over others in the order `order` (NULL: row-major).
 * Lanes are taken from the contiguous dimension if it is kept and inner loops are outside of it;
 * _along takes them from `lane_dim`, at most `most` at a time, or not at all where that is
 * UL_NONE. */
void ul_lanes_open(struct ul_lanes *lanes, struct ul_lower *lower, ul_value_id value,
                   uint32_t kept);
void ul_lanes_open_order(struct ul_lanes *lanes, struct ul_lower *lower, uint32_t rank,
                         const int64_t *dims, const uint32_t *order, uint32_t kept);
void ul_lanes_open_along(struct ul_lanes *lanes, struct ul_lower *lower, ul_value_id value,
                         uint32_t kept, uint32_t lane_dim, int64_t max);
void ul_lanes_close(struct ul_lanes *lanes);
/* Loops over the dimensions of `mask`, outer ones first. */
void ul_lanes_loop(struct ul_lanes *lanes, uint32_t mask, uint32_t flags);
void ul_lanes_loop_end(struct ul_lanes *lanes, uint32_t mask);
/* What is between these is done for each lane; _range: for lanes [low, high) within the block, both
 * i64 expressions; needs lanes. */
void ul_lanes_begin(struct ul_lanes *lanes);
void ul_lanes_begin_range(struct ul_lanes *lanes, ul_kx low, ul_kx high);
void ul_lanes_end(struct ul_lanes *lanes);

/* Outside of begin/end: makes a variable that is `first` in every lane. */
struct ul_lane_var ul_lanes_var(struct ul_lanes *lanes, enum ul_dtype dtype, ul_kx first);
/* Outside of begin/end: combines the terms of all indexes in `mask`, beginning with `first`, which
 * must not change a result. `term` gives the term at lanes->index, within begin and end; its
 * `context` is the caller's. */
typedef ul_kx ul_lanes_term_fn(struct ul_lanes *lanes, const void *context);
struct ul_lane_var ul_lanes_reduce(struct ul_lanes *lanes, uint32_t mask, enum ul_kx_op combine,
                                   ul_kx first, ul_lanes_term_fn *term, const void *context);
/* Halves an array of partial results until one is left, which it gives. */
ul_kx ul_lanes_fold(struct ul_kernel *kernel, uint32_t partial, int64_t count,
                    enum ul_kx_op combine);
ul_kx ul_lanes_get(const struct ul_lanes *lanes, struct ul_lane_var var);
void ul_lanes_set(const struct ul_lanes *lanes, struct ul_lane_var var, ul_kx value);

#endif
