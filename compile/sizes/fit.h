/* SPDX-License-Identifier: Apache-2.0 */
/* Finds formulas of sizes for numbers that are known at some points. */
#ifndef UL_COMPILE_SIZES_FIT_H
#define UL_COMPILE_SIZES_FIT_H

#include "codegen/program/formula.h"

/* A formula with its values at the points. */
struct ul_fit_term {
    const struct ul_formula *formula;
    const int64_t *values;
};

struct ul_fit_terms {
    struct ul_fit_term *items;
    uint32_t count, capacity;
};

/* `points` has the sizes of each point in turn. The terms are what formulas are made of: sizes, and
 * products and sums that round down. */
struct ul_fit {
    struct ul_arena *arena;
    uint32_t size_count, point_count;
    const int64_t *points;
    struct ul_fit_terms plain;   /* sizes, and dimensions that follow from one size */
    struct ul_fit_terms rounded; /* (size + r) / p for one size */
    struct ul_fit_terms products;
    struct ul_fit_terms rounded_products; /* made when they are needed */
    struct ul_fit_terms found;
};

/* `arena` and `points` must outlive it. */
void ul_fit_init(struct ul_fit *fit, struct ul_arena *arena, uint32_t size_count,
                 const int64_t *points, uint32_t point_count);
/* Takes the dimensions of another fit, at other points. */
void ul_fit_init_like(struct ul_fit *fit, const struct ul_fit *other, const int64_t *points,
                      uint32_t point_count);
/* The formula with these values at the points; NULL: none was found. A `simple` one is a number, or
 * has one product or one size that is rounded; the latter is noted as a dimension, which products
 * may have as a factor from then on. */
const struct ul_formula *ul_fit_find(struct ul_fit *fit, const int64_t *values, bool simple);

#endif
