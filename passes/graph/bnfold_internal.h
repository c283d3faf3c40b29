/* SPDX-License-Identifier: Apache-2.0 */
/* Folding factors into weights: what passes/bnfold*.c share. */
#ifndef UL_BNFOLD_INTERNAL_H
#define UL_BNFOLD_INTERNAL_H

#include "passes/passes_internal.h"

/* The least and the largest number of f16 with all of its digits. */
#define UL_BNFOLD_LEAST_F16 0x1p-14
#define UL_BNFOLD_MOST_F16 65504

/* A product whose result is multiplied by a constant along its last axis. */
struct ul_scaled_product {
    const uint32_t *uses; /* per value, of those that existed at the start */
    uint32_t known_count;
    ul_value_id x; /* what is multiplied */
    const struct ul_tensor *factors;
    ul_node_id product, bias; /* the Add of a constant between, or UL_NONE */
    uint32_t bias_input;      /* of that, the constant */
};

/* bnfold_product.c */

/* Fills in `found`, in which the caller sets uses and known_count. False: `id` multiplies no such
 * product, or its weights must stay. */
bool ul_bnfold_find_product(const struct ul_pass *pass, ul_node_id id,
                            struct ul_scaled_product *found);
void ul_bnfold_scale_product(struct ul_graph *graph, const struct ul_scaled_product *found);

#endif
