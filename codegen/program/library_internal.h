/* SPDX-License-Identifier: Apache-2.0 */
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
    ul_value_id zero; /* the source's zero point, of an integer product; UL_NONE: not by argument */
    ul_value_id scales; /* one per channel, likewise */
};

/* library_tensor.c */

/* An f32 value as a tensor, by its view; false where the library could not take it: other types,
 * too many axes, no elements, axes that do not go forward. */
bool ul_describe_tensor(const struct ul_graph *graph, ul_value_id value,
                        struct ul_call_tensor *tensor);
/* Integers of 8 bits and sums of 32 too, and single numbers, which have no axes. */
bool ul_describe_numbers(const struct ul_graph *graph, ul_value_id value,
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

/* library_nbits.c: the same of weights of a few bits */
bool ul_describe_nbits(struct ul_describer *describer, const struct ul_node *node);
/* How many nodes at the beginning of the list make the weights of the convolution behind them. */
uint32_t ul_describe_front(const struct ul_graph *graph, const ul_node_id *nodes, uint32_t count);
/* Has the call of a convolution, which is described already, read that constant: the first `front`
 * nodes make the weights of it. False: no call. */
bool ul_describe_stored(struct ul_describer *describer, const ul_node_id *nodes, uint32_t front,
                        const struct ul_node *node);
/* Ends that: the result of the nodes behind is described as well. */
void ul_describe_stored_end(struct ul_call *call);

/* library_attention.c: describes attention without a cache; false: the library has no such call. */
bool ul_describe_attention(struct ul_describer *describer, const struct ul_node *node);
/* Describes the gradient of attention, where the result is an operand (passes/attention.c). Returns
 * false where the library has no such call. */
bool ul_describe_attention_gradient(struct ul_describer *describer, const struct ul_node *node);

/* library_operands.c */

/* One more post-operation; false where the call can have none, or not that one. Constants that are
 * no numbers are left to our kernels. */
bool ul_describe_post(struct ul_describer *describer, enum ul_post_kind kind, double alpha,
                      double beta);
/* dst = alpha * dst + beta */
bool ul_describe_linear(struct ul_describer *describer, double alpha, double beta);
/* dst = dst * value: the scale of sums of integers where it is one per channel and the first. */
bool ul_describe_factor(struct ul_describer *describer, ul_value_id value);
/* dst = dst op operand, floats that broadcast over dst. */
bool ul_describe_binary(struct ul_describer *describer, enum ul_post_kind kind, ul_value_id value);
/* The operand lies as the result will, so that the one may be written over the other. */
bool ul_describe_is_residual(const struct ul_describer *describer, ul_value_id value);
/* That operand is what UL_POST_SUM adds to; the post-operation is the caller's to add. */
void ul_describe_residual(struct ul_describer *describer, ul_value_id operand);
/* The call writes the value, too: what the GELU by tanh that was described last is of. */
bool ul_describe_kept(struct ul_describer *describer, ul_value_id value);
/* dst = dst + operand, as bias where it is one per channel and the first. */
bool ul_describe_add(struct ul_describer *describer, ul_value_id operand);

/* library_integer.c: products of integers */

/* ConvInteger and MatMulInteger: zero points of source and weights. False: no call. */
bool ul_describe_zeros(struct ul_describer *describer, const struct ul_node *node);
/* Whether all that reads sums of 32 bits has as many of them, floats or other sums. */
bool ul_describe_stays_wide(const struct ul_graph *graph, ul_value_id sums);
/* Cast of sums to floats, Rescale. */
bool ul_describe_is_conversion(const struct ul_describer *describer, const struct ul_node *node);
bool ul_describe_conversion(struct ul_describer *describer, const struct ul_node *node);
/* The arguments that the source's zero point and the scales are, behind all others. */
void ul_describe_last_args(struct ul_describer *describer);

/* library_posts.c: what follows the anchor */
bool ul_describe_posts(struct ul_describer *describer);
/* Which post-operations the program does itself, behind the library's. */
void ul_describe_tail(struct ul_call *call);

#endif
