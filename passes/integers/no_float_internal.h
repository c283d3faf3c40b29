/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of pass no_float share: how a Quantize that ends a chain of floats is written with
 * integers. Each function takes the Quantize and says whether it has changed it. */
#ifndef UL_NO_FLOAT_INTERNAL_H
#define UL_NO_FLOAT_INTERNAL_H

#include "passes/integers/integers_internal.h"

/* no_float_scale.c */

/* The value as scaled integers of one scale. */
bool ul_no_float_find(const struct ul_integers *integers, ul_value_id value, struct ul_scaled *x);
/* The node becomes a Rescale of `sum` with a factor for each of its elements along the last
 * dimensions of `type`, or one. */
void ul_no_float_become_rescale(struct ul_integers *integers, ul_node_id id, ul_value_id sum,
                                const struct ul_scaled *y, const struct ul_type *type,
                                const double *factors);
/* A Rescale in floats becomes one in fixed point; false: its factors leave the range. */
bool ul_no_float_fix(struct ul_integers *integers, ul_node_id id);

/* no_float_product.c: products of two 8-bit values. */
bool ul_no_float_product(struct ul_integers *integers, ul_node_id id);

/* no_float_affine.c: one 8-bit value times constants, and constants added. */
bool ul_no_float_affine(struct ul_integers *integers, ul_node_id id);

/* no_float_rows.c */
bool ul_no_float_softmax(struct ul_integers *integers, ul_node_id id);
bool ul_no_float_layer_norm(struct ul_integers *integers, ul_node_id id);

/* no_float_resize.c */
bool ul_no_float_resize(struct ul_integers *integers, ul_node_id id);
/* Does the same for a Resize that moves integers, where it would find their places in floats. */
bool ul_no_float_nearest(struct ul_integers *integers, ul_node_id id);

#endif
