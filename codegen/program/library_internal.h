/* What the files that describe calls share. */
#ifndef UL_LIBRARY_INTERNAL_H
#define UL_LIBRARY_INTERNAL_H

#include "codegen/program/calls_internal.h"

/* A call that is being described. */
struct ul_describer {
    const struct ul_graph *graph;
    const ul_node_id *nodes;
    uint32_t node_count;
    const bool *escapes;
    bool sums;
    struct ul_group_call *out;
    ul_value_id result; /* of the nodes so far */
};

/* library_tensor.c */

/* An f32 value as a tensor, by its view; false where the library could not take it: other types,
 * too many axes, no elements, axes that do not go forward. */
bool ul_describe_tensor(const struct ul_graph *graph, ul_value_id value,
                        struct ul_call_tensor *tensor);
/* Strides of axes with one element as a dense tensor has them; of three axes and more, dense
 * channels-last where it is that, or dense row-major. */
void ul_describe_finalize(struct ul_call_tensor *tensor, enum ul_call_kind kind);
/* `count` times all the dimensions, bounded so that twice as much
 * still counts. */
uint64_t ul_describe_products(uint64_t count, uint32_t rank, const int64_t *dims);

/* library_matmul.c: false: no call */
bool ul_describe_matmul(struct ul_describer *describer, const struct ul_node *node);
bool ul_describe_gemm(struct ul_describer *describer, const struct ul_node *node);
/* Joins axes of the batch, after all post-operations are known. */
void ul_describe_join_batch(struct ul_call *call);

/* library_posts.c: what follows the anchor */
bool ul_describe_posts(struct ul_describer *describer);
/* dst = dst + operand, as bias where it is one per channel and the first. */
bool ul_describe_add(struct ul_describer *describer, ul_value_id operand);
bool ul_describe_linear(struct ul_describer *describer, double alpha, double beta);
/* Which post-operations the program does itself, behind the library's. */
void ul_describe_tail(struct ul_call *call);

#endif
