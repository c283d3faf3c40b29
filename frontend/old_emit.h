/* SPDX-License-Identifier: Apache-2.0 */
/* For rewrites that take several nodes, beyond frontend_internal.h: common nodes of ai.onnx and
 * their parts. A rewrite first checks what it needs. After a problem or an error it returns, and
 * the nodes that it emitted until then are never used. */
#ifndef UL_FRONTEND_OLD_EMIT_H
#define UL_FRONTEND_OLD_EMIT_H

#include "frontend/frontend_internal.h"

/* The node becomes one of ai.onnx's newest operators. */
void ul_old_become(struct ul_old_node *node, const char *op);
double ul_old_float(const struct ul_old_node *node, const char *name, double otherwise);
bool ul_old_has_input(const struct ul_old_node *node, uint32_t index);
/* Reports an error in the file that names the node; returns false. */
bool ul_old_invalid(struct ul_old_node *node, const char *reason);
/* Gets the type of an input whose shape must be known. Returns false, with a problem or an error,
 * where the shape is not known or the rank is none of these bits. */
bool ul_old_shape(struct ul_old_node *node, uint32_t index, uint32_t ranks, struct ul_type *type);

/* Why the shape of a value is not known though those of the inputs are. */
const char *ul_old_why_unknown(struct ul_old_node *node, ul_value_id value);

/* A Concat, which one value has too. */
ul_value_id ul_old_concat(struct ul_old_node *node, const ul_value_id *values, uint32_t count,
                          int64_t axis);
/* gradient.c: emits the node that gives the derivative of y, whose own gradient may be UL_NONE
 * (ones), by the first of `xs`, which are made before it, as in ir/ops/training/training.def. The
 * second function makes a value of that type of which nothing is known, for operators of which only
 * the derivative is wanted. */
ul_node_id ul_old_emit_derivative(struct ul_old_node *node, ul_value_id y, ul_value_id gradient,
                                  const ul_value_id *xs, uint32_t x_count, uint32_t more_count);
ul_value_id ul_old_emit_unknown(struct ul_old_node *node, const struct ul_type *type);

#endif
