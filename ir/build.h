/* SPDX-License-Identifier: Apache-2.0 */
/* Adding nodes to a graph, one after the other, at a place in a block's order.
 *
 * Invariants: what is added stands before what stood at the place; its first output bears the name
 * of the node, further ones `name:k`. No type is inferred: the caller says it, or inference will.
 * Ownership: everything is the graph's; a struct ul_build is the caller's, and stays good until
 * others add to or remove from the block. Failure: none; breaking an invariant is a defect. */
#ifndef UL_IR_BUILD_H
#define UL_IR_BUILD_H

#include "ir/graph.h"

/* Where the next node goes, and what it is called. */
struct ul_build {
    struct ul_graph *graph;
    ul_block_id block;
    uint32_t at; /* a position in the block's order; each node moves it on */
    const char *name;
};

/* build.c */

/* In front of `node`, after it, or after all nodes of a block. Names are the node's. */
struct ul_build ul_build_before(struct ul_graph *graph, ul_node_id node);
struct ul_build ul_build_after(struct ul_graph *graph, ul_node_id node);
struct ul_build ul_build_last(struct ul_graph *graph, ul_block_id block, const char *name);

ul_node_id ul_build_node(struct ul_build *build, enum ul_op op, const ul_value_id *inputs,
                         uint32_t input_count, uint32_t output_count);
/* A node with the operator, attributes, name and source of `like`, over other inputs (as many). */
ul_node_id ul_build_like(struct ul_build *build, ul_node_id like, const ul_value_id *inputs);
/* The output of a node with one output. `type` NULL: not known yet. */
ul_value_id ul_build_value(struct ul_build *build, enum ul_op op, const ul_value_id *inputs,
                           uint32_t input_count, const struct ul_type *type);
/* The elements of `value` with other dimensions. */
ul_value_id ul_build_reshape(struct ul_build *build, ul_value_id value, uint32_t rank,
                             const int64_t *dims);
/* Dimension d of the result is dimension perm[d] of `value`. */
ul_value_id ul_build_transpose(struct ul_build *build, ul_value_id value, const int64_t *perm);
/* Elements [begin, end) of `value` along an axis. */
ul_value_id ul_build_slice(struct ul_build *build, ul_value_id value, uint32_t axis, int64_t begin,
                           int64_t end);
/* `type`: as ul_build_value has it. */
ul_value_id ul_build_concat(struct ul_build *build, const ul_value_id *values, uint32_t count,
                            int64_t axis, const struct ul_type *type);
ul_value_id ul_build_copy(struct ul_build *build, ul_value_id value);

/* Constants: a vector of i64, and `rank` dimensions of one element that is `number`. */
ul_value_id ul_build_ints(struct ul_graph *graph, const char *name, uint32_t count,
                          const int64_t *values);
ul_value_id ul_build_number(struct ul_graph *graph, const char *name, enum ul_dtype dtype,
                            uint32_t rank, double number);

#endif
