/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that describe calls. */
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
    /* the source's zero point, for an integer product; UL_NONE: it is no argument */
    ul_value_id zero;
    ul_value_id scales; /* one for each channel, likewise */
};

/* library_tensor.c */

/* Describes an f32 value as a tensor, by its view; false where the library could not take it: other
 * types, too many axes, no elements, axes with negative strides. */
bool ul_describe_tensor(const struct ul_graph *graph, ul_value_id value,
                        struct ul_call_tensor *tensor);
/* The same, also for integers of 8 bits, sums of 32, and single numbers, which have no axes. */
bool ul_describe_numbers(const struct ul_graph *graph, ul_value_id value,
                         struct ul_call_tensor *tensor);
/* Sets strides of axes with one element as in a dense tensor; with three axes and more, as in dense
 * channels-last if it is that, else as in dense row-major. */
void ul_describe_finalize(struct ul_call_tensor *tensor, enum ul_call_kind kind);
/* `count` times all the dimensions, bounded so that twice the result does not overflow. */
uint64_t ul_describe_products(uint64_t count, uint32_t rank, const int64_t *dims);

/* library_matmul.c: false: no call */
bool ul_describe_matmul(struct ul_describer *describer, const struct ul_node *node);
bool ul_describe_gemm(struct ul_describer *describer, const struct ul_node *node);
/* Joins axes of the batch, after all post-operations are known. */
void ul_describe_join_batch(struct ul_call *call);

/* library_nbits.c: the same for weights of a few bits */
bool ul_describe_nbits(struct ul_describer *describer, const struct ul_node *node);
/* How many nodes at the beginning of the list make the weights of the convolution after them. */
uint32_t ul_describe_front(const struct ul_graph *graph, const ul_node_id *nodes, uint32_t count);
/* Makes the call of a convolution, which is described already, read that constant: the first
 * `front` nodes make its weights. False: no call. */
bool ul_describe_stored(struct ul_describer *describer, const ul_node_id *nodes, uint32_t front,
                        const struct ul_node *node);
/* Ends this, once the result of the nodes after it is described. */
void ul_describe_stored_end(struct ul_call *call);

/* library_attention.c: describes attention without a cache; false: the library has no such call. */
bool ul_describe_attention(struct ul_describer *describer, const struct ul_node *node);
/* Describes the gradient of attention, where the result is an operand (passes/training/library.c).
 * Returns false where the library has no such call. */
bool ul_describe_attention_gradient(struct ul_describer *describer, const struct ul_node *node);

/* library_operands.c */

/* Adds a post-operation; false where the call can have no more, or not that one. Constants that are
 * not finite are left to our kernels. */
bool ul_describe_post(struct ul_describer *describer, enum ul_post_kind kind, double alpha,
                      double beta);
/* dst = alpha * dst + beta */
bool ul_describe_linear(struct ul_describer *describer, double alpha, double beta);
/* dst = dst * value: the scale of sums of integers where there is one for each channel and it is
 * the first. */
bool ul_describe_factor(struct ul_describer *describer, ul_value_id value);
/* dst = dst op operand, for floats that broadcast over dst. */
bool ul_describe_binary(struct ul_describer *describer, enum ul_post_kind kind, ul_value_id value);
/* Whether the operand has the result's layout, so that the result may overwrite it. */
bool ul_describe_is_residual(const struct ul_describer *describer, ul_value_id value);
/* Sets the operand that UL_POST_SUM adds to; the caller adds the post-operation. */
void ul_describe_residual(struct ul_describer *describer, ul_value_id operand);
/* Has the call write the value too: the input of the GELU by tanh that was described last. */
bool ul_describe_kept(struct ul_describer *describer, ul_value_id value);
/* dst = dst + operand, as bias where there is one for each channel and it is the first. */
bool ul_describe_add(struct ul_describer *describer, ul_value_id operand);

/* library_integer.c: products of integers */

/* ConvInteger and MatMulInteger: zero points of source and weights. False: no call. */
bool ul_describe_zeros(struct ul_describer *describer, const struct ul_node *node);
/* Whether all readers of sums of 32 bits make as many results, floats or other sums. */
bool ul_describe_stays_wide(const struct ul_graph *graph, ul_value_id sums);
/* Whether the node casts sums to floats, or is a Rescale. */
bool ul_describe_is_conversion(const struct ul_describer *describer, const struct ul_node *node);
bool ul_describe_conversion(struct ul_describer *describer, const struct ul_node *node);
/* Adds the arguments for the source's zero point and the scales, after all others. */
void ul_describe_last_args(struct ul_describer *describer);

/* libraries.c: what the runtime's own libraries know of a compile, and its functions of struct
 * ul_target_library. */
struct ul_own {
    struct ul_arena *arena;
    uint32_t thread_count;
};
enum ul_status ul_own_open(struct ul_arena *arena, const struct ul_program_options *options,
                           struct ul_target_library *library, struct ul_diag *diag) UL_MUST_CHECK;
bool ul_own_reopen(void *own, const struct ul_program_options *options);

/* library_posts.c: what follows the anchor */
bool ul_describe_posts(struct ul_describer *describer);
/* Decides which post-operations the program does itself, after the library's. */
void ul_describe_tail(struct ul_call *call);

#endif
