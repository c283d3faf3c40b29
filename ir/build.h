/* SPDX-License-Identifier: Apache-2.0 */
/* Adding nodes to a graph, one after the other, at a place in a block's order.
 *
 * Invariants: what is added stands before what stood at the place; its first output bears the name
 * of the node, further ones `name:k`. The type of an output is what the caller says, or is inferred
 * at once where the builder does that (failing is a defect), or is not known yet.
 * Ownership: everything is the graph's; a struct ul_build is the caller's, and stays good until
 * others add to or remove from the block. Failure: none; breaking an invariant is a defect. */
#ifndef UL_IR_BUILD_H
#define UL_IR_BUILD_H

#include "ir/graph.h"

enum { UL_BUILD_LAST = UINT32_MAX };

/* Where the next node goes, and what it is called. */
struct ul_build {
    struct ul_graph *graph;
    ul_block_id block;
    uint32_t at; /* a position in the block's order, moves on with each node; UL_BUILD_LAST: behind
                    all that the block has then */
    const char *name;
    const char *source;       /* of nodes; NULL: they have none */
    struct ul_arena *scratch; /* where either is asked for: */
    bool infers;              /* types, at once */
    bool names_op;            /* nodes are called name/Op */
    uint32_t flags;           /* of the values that nodes make */
};

/* build.c */

/* At a position; in front of `node`, behind it, or behind all nodes of a block. Names are the
 * node's, unless given. */
struct ul_build ul_build_at(struct ul_graph *graph, ul_block_id block, uint32_t at,
                            const char *name);
struct ul_build ul_build_before(struct ul_graph *graph, ul_node_id node);
struct ul_build ul_build_after(struct ul_graph *graph, ul_node_id node);
struct ul_build ul_build_last(struct ul_graph *graph, ul_block_id block, const char *name);

ul_node_id ul_build_node(struct ul_build *build, ul_op_id op, const ul_value_id *inputs,
                         uint32_t input_count, uint32_t output_count);
/* Output 0 of a node that has its attributes now, with its type where the builder infers. */
ul_value_id ul_build_infer(struct ul_build *build, ul_node_id node);
/* One of the same operator, attributes, name and source as `like`, over other inputs (as many). */
ul_node_id ul_build_like(struct ul_build *build, ul_node_id like, const ul_value_id *inputs);
/* The output of a node that has one. `type` NULL: ul_build_infer. */
ul_value_id ul_build_value(struct ul_build *build, ul_op_id op, const ul_value_id *inputs,
                           uint32_t input_count, const struct ul_type *type);
ul_value_id ul_build_unary(struct ul_build *build, ul_op_id op, ul_value_id a);
ul_value_id ul_build_binary(struct ul_build *build, ul_op_id op, ul_value_id a, ul_value_id b);
ul_value_id ul_build_add(struct ul_build *build, ul_value_id a, ul_value_id b);
ul_value_id ul_build_mul(struct ul_build *build, ul_value_id a, ul_value_id b);
/* a * number */
ul_value_id ul_build_scale(struct ul_build *build, ul_value_id a, double number);
ul_value_id ul_build_cast(struct ul_build *build, ul_value_id a, enum ul_dtype dtype);
/* yes where the condition holds, else no. */
ul_value_id ul_build_choose(struct ul_build *build, ul_value_id condition, ul_value_id yes,
                            ul_value_id no);
/* Sums over the dimensions of `mask` (bit d: dimension d), which stay with size 1. */
ul_value_id ul_build_sum(struct ul_build *build, ul_value_id a, uint32_t mask);
/* `a`, repeated to these dimensions. */
ul_value_id ul_build_expand(struct ul_build *build, ul_value_id a, const struct ul_type *type);
/* The elements of `value` with other dimensions; those of `type`: value itself where it has them.
 */
ul_value_id ul_build_reshape(struct ul_build *build, ul_value_id value, uint32_t rank,
                             const int64_t *dims);
ul_value_id ul_build_reshape_to(struct ul_build *build, ul_value_id value,
                                const struct ul_type *type);
/* Dimension d of the result is dimension perm[d] of `value`; the last two change places. */
ul_value_id ul_build_transpose(struct ul_build *build, ul_value_id value, const int64_t *perm);
ul_value_id ul_build_swap(struct ul_build *build, ul_value_id value);
/* Elements [begin, end) of `value` along an axis. */
ul_value_id ul_build_slice(struct ul_build *build, ul_value_id value, uint32_t axis, int64_t begin,
                           int64_t end);
/* With so many zeros around, or (negative) so many elements less: a number per dimension. */
ul_value_id ul_build_pad(struct ul_build *build, ul_value_id value, const int64_t *begin,
                         const int64_t *end);
/* `type`: as ul_build_value has it. One value alone is that value itself. */
ul_value_id ul_build_concat(struct ul_build *build, const ul_value_id *values, uint32_t count,
                            int64_t axis, const struct ul_type *type);
ul_value_id ul_build_copy(struct ul_build *build, ul_value_id value);

/* Constants: a vector of i64, and `rank` dimensions of one element that is `number`; one number in
 * the type of `like`, of rank 0; zeros; these numbers, in order. */
ul_value_id ul_build_ints(struct ul_graph *graph, const char *name, uint32_t count,
                          const int64_t *values);
ul_value_id ul_build_number(struct ul_graph *graph, const char *name, enum ul_dtype dtype,
                            uint32_t rank, double number);
ul_value_id ul_build_number_like(struct ul_build *build, ul_value_id like, double number);
ul_value_id ul_build_zeros(struct ul_build *build, const struct ul_type *type);
ul_value_id ul_build_numbers(struct ul_build *build, const struct ul_type *type,
                             const double *numbers);

#endif
