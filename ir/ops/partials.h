/* SPDX-License-Identifier: Apache-2.0 */
/* Parts: long sums on a device, where a thread or a block for each output would leave most of the
 * device waiting.
 *
 * The terms of an output, in the order of memory, come in parts:
 *
 *     for part, output: sums[part, output] = sum of the part's terms
 *     for output: y[output] = sum of sums[., output]
 *
 * Where outputs are contiguous a part is summed one term after the other, many outputs side by
 * side; there are about as many parts as terms in each. Where terms are contiguous a part is some
 * rounds of partial results, which are folded. Outputs that fill the device walk all parts for
 * themselves:
 *
 *     ul_partials_init(&parts, lanes, mask, UL_KX_ADD, zero, term, context);
 *     ul_partials_store(&parts);
 *     ul_partials_open(&parts);
 *         x = ul_partials_total(&parts);
 *     ul_partials_close(&parts);
 *
 * Sums of several terms at the same places are formed side by side, in the same loops:
 *
 *     ul_partials_init(&parts, ..., first_term, context);
 *     ul_partials_add(&parts, second_term);
 *     ul_partials_store(&parts);
 *     ul_partials_open(&parts);
 *         ul_partials_totals(&parts, x);     x[0], x[1]
 *     ul_partials_close(&parts);
 *
 * What is more than a sum of its parts keeps scratch of its own, an element for each part of each
 * output:
 *
 *     ul_partials_open_parts(&parts);
 *         x = ul_partials_sum(&parts);   store at ul_partials_place(&parts, parts.part)
 *     ul_partials_close_parts(&parts);
 *
 * Invariants: the order of a sum depends on its terms' count and order in memory alone, not on how
 * many outputs there are, so that a part of a tensor has the same sums. Units: elements.
 * Ownership: the lanes stay the caller's. Nothing fails.
 */
#ifndef UL_OPS_PARTIALS_H
#define UL_OPS_PARTIALS_H

#include "ir/ops/lanes.h"

enum { UL_PARTIALS_SUMS = 2 }; /* side by side, at most */

struct ul_partials {
    struct ul_lanes *lanes; /* coordinates; no lane dimension */
    uint32_t mask;          /* dimensions of the terms */
    enum ul_kx_op combine;
    ul_kx first;
    ul_lanes_term_fn *term[UL_PARTIALS_SUMS];
    uint32_t sum_count;
    const void *context;
    int64_t terms, each, count; /* how many terms, terms in a part, and parts */
    int64_t width;              /* how many partial results a part has; 1: it is summed one term
                                   after the other */
    int64_t output_count;
    uint32_t sums[UL_PARTIALS_SUMS]; /* scratch, or UL_NONE */
    ul_kx output;                    /* its number, in the order of memory */
    ul_kx part;                      /* between open_parts and close_parts */
};

/* Whether sums over `mask` are taken in parts, or by partial results in one part. Asks the lanes'
 * dimensions, order and target. */
bool ul_partials_apply(const struct ul_lanes *lanes, uint32_t mask);
/* For loops over the lanes' dimensions in their order; none is open, except for total. */
void ul_partials_init(struct ul_partials *partials, struct ul_lanes *lanes, uint32_t mask,
                      enum ul_kx_op combine, ul_kx first, ul_lanes_term_fn *term,
                      const void *context);
/* Adds a sum of another term, which the same loops form. */
void ul_partials_add(struct ul_partials *partials, ul_lanes_term_fn *term);
/* Whether it is worth a launch of its own to sum the parts for these outputs. */
bool ul_partials_are_stored(const struct ul_partials *partials);
/* Sums the parts, if so. */
void ul_partials_store(struct ul_partials *partials);
/* Loops over the outputs. */
void ul_partials_open(struct ul_partials *partials);
void ul_partials_close(struct ul_partials *partials);
/* The sum of the output that the loops are at; _totals: all of them. */
ul_kx ul_partials_total(struct ul_partials *partials);
void ul_partials_totals(struct ul_partials *partials, ul_kx x[UL_PARTIALS_SUMS]);
/* Loops over the parts of all outputs. */
void ul_partials_open_parts(struct ul_partials *partials);
void ul_partials_close_parts(struct ul_partials *partials);
/* Gives the sum of the part that the loops are at; there is one term. */
ul_kx ul_partials_sum(const struct ul_partials *partials);
/* Gives the number of terms of a part, an i64. */
ul_kx ul_partials_part_terms(const struct ul_partials *partials, ul_kx part);
/* Gives the place in scratch for the part of the output that the loops are at. */
ul_kx ul_partials_place(const struct ul_partials *partials, ul_kx part);
/* Adds up one number for each part of the output that the loops are at; where there are many parts,
 * a team of threads does so. */
typedef ul_kx ul_partials_part_fn(const struct ul_partials *partials, ul_kx part,
                                  const void *context);
ul_kx ul_partials_combine(const struct ul_partials *partials, ul_partials_part_fn *of_part,
                          const void *context);

#endif
