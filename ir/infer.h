/* SPDX-License-Identifier: Apache-2.0 */
/* Shape inference and constant folding of one node; what shape rules are written with. */
#ifndef UL_IR_INFER_H
#define UL_IR_INFER_H

#include "ir/graph.h"

/* infer.c: the functions that shape rules are written with. */

struct ul_infer {
    struct ul_graph *graph;
    struct ul_node *node;
    ul_node_id node_id;
    struct ul_arena *scratch;
    struct ul_diag *diag;
};

/* Infers one node (block-owning nodes: see ul_infer_blocks in passes); wraps the row's rule with
 * arity checks, limits on sizes and the node's name in messages. */
enum ul_status ul_node_infer(struct ul_graph *graph, ul_node_id node, struct ul_arena *scratch,
                             struct ul_diag *diag) UL_MUST_CHECK;

/* NULL when the optional input is absent. */
const struct ul_type *ul_infer_input(const struct ul_infer *infer, uint32_t input);
const struct ul_tensor *ul_infer_tensor(const struct ul_infer *infer, uint32_t input);
/* The constant integers of an input: UL_UNSUPPORTED, naming the input and --const, when it is not
 * constant. Absent input: *values NULL, count 0. */
enum ul_status ul_infer_ints(const struct ul_infer *infer, uint32_t input, const int64_t **values,
                             uint32_t *count) UL_MUST_CHECK;
/* What to do about an operand that must be constant and is not: --const, or --output with the
 * values that the node is made from. */
const char *ul_node_remedy(const struct ul_graph *graph, ul_node_id node, uint32_t input,
                           struct ul_arena *arena);
void ul_infer_set(const struct ul_infer *infer, uint32_t output, enum ul_dtype dtype, uint32_t rank,
                  const int64_t *dims);
void ul_infer_set_type(const struct ul_infer *infer, uint32_t output, const struct ul_type *type);
/* Also fixes the value itself: a 1-d or 0-d int64 constant. */
void ul_infer_set_ints(const struct ul_infer *infer, uint32_t output, uint32_t rank,
                       const int64_t *values, uint32_t count);
/* "; its inputs are f32[2,3], -, i64[2]": what a message says was found; "-": none, or a sequence.
 */
const char *ul_inputs_text(const struct ul_graph *graph, const ul_value_id *inputs, uint32_t count,
                           struct ul_arena *arena);
/* Sets the message, with the node named, and returns UL_INVALID / UL_UNSUPPORTED. */
enum ul_status ul_infer_invalid(const struct ul_infer *infer, const char *format, ...)
    UL_PRINTF(2, 3);
enum ul_status ul_infer_unsupported(const struct ul_infer *infer, const char *format, ...)
    UL_PRINTF(2, 3);
/* Multidirectional broadcast of two shapes into `out`; false when they do not match. */
bool ul_broadcast(const struct ul_type *a, const struct ul_type *b, struct ul_type *out);
/* Makes an axis non-negative and checks it against `rank`. */
enum ul_status ul_infer_axis(const struct ul_infer *infer, int64_t axis, uint32_t rank,
                             uint32_t *out) UL_MUST_CHECK;
/* Common rules. */
enum ul_status ul_infer_same(struct ul_infer *infer);        /* output 0 = type of input 0 */
enum ul_status ul_infer_elementwise(struct ul_infer *infer); /* broadcast, dtype of input 0 */
enum ul_status ul_infer_compare(struct ul_infer *infer);     /* broadcast, bool */

/* fold.c */

/* Evaluates a node whose inputs are all constant through the kernel IR's interpreter and gives
 * its outputs their tensors. False when it is too big (limits.h) or is not foldable. */
bool ul_node_fold(struct ul_graph *graph, ul_node_id node, struct ul_arena *scratch);
/* Evaluates it within limits of the caller's; `keep` owns the tensors. */
struct ul_fold {
    struct ul_arena *keep;
    uint64_t max_elements; /* for each output */
    uint64_t work_left;    /* interpreter steps; those that are used are subtracted */
};
bool ul_node_fold_within(struct ul_graph *graph, ul_node_id node, struct ul_fold *fold,
                         struct ul_arena *scratch);

#endif
