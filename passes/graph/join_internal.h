/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that join products share. */
#ifndef UL_JOIN_INTERNAL_H
#define UL_JOIN_INTERNAL_H

#include "passes/shared/steps.h"

enum { UL_JOIN_MEMBERS = 16 }; /* of a set, at most */

/* A product that others may be joined with: MatMul, with an Add of a bias where there is one, or
 * Gemm. */
struct ul_join_member {
    ul_node_id product, sum; /* sum: the Add, or UL_NONE */
    ul_value_id src, result;
    ul_value_id weight, bias; /* bias: UL_NONE where there is none */
    int64_t depth, columns;
    bool is_turned; /* the weight is stored [columns, depth] */
    bool leaves;    /* costs something in company */
};

/* Products of one operand, in the order of their block, and what they became. */
struct ul_join_set {
    uint32_t count;
    struct ul_join_member members[UL_JOIN_MEMBERS];
    uint32_t tensor_count; /* members that the tensors below were made from */
    const struct ul_tensor *weight_tensor, *bias_tensor;
    ul_node_id product, sum, split;
    ul_value_id weight, bias, result;
};

struct ul_join {
    struct ul_pass *pass;
    struct ul_graph *graph;
    uint32_t set_count, set_capacity;
    struct ul_join_set *sets;
};

/* join_judge.c */

/* What the passes after this one do to a graph. */
struct ul_join_future {
    struct ul_graph graph;
    struct ul_steps steps;
    struct ul_live *live; /* with the scratch of the library's calls */
    uint64_t peak_bytes;
    uint32_t call_count;
};
enum ul_status ul_join_dry_run(const struct ul_join *join,
                               struct ul_join_future *future) UL_MUST_CHECK;
/* Marks the members that must leave their sets; true where there are none. `node_count` is that of
 * the graph before the join. */
bool ul_join_judge(struct ul_join *join, uint32_t node_count, const struct ul_join_future *before,
                   const struct ul_join_future *after);

#endif
