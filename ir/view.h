/* SPDX-License-Identifier: Apache-2.0 */
/* Where the elements of values lie in memory. */
#ifndef UL_IR_VIEW_H
#define UL_IR_VIEW_H

#include "ir/graph.h"

/* view.c */

/* The type in which a value's elements are in memory; only a value with bytes of its own, or one
 * inside of such, has any. Kernels compute with type.dtype all the same: loads widen, stores
 * round. */
enum ul_dtype ul_value_storage(const struct ul_graph *graph, ul_value_id value);
/* The type of an input or output of the model as its caller has it. */
struct ul_type ul_value_edge_type(const struct ul_graph *graph, ul_value_id value);
/* The word for a reason in the text form. */
const char *ul_kept_get(enum ul_kept kept);
/* Stores the value as `like` is stored, for the same reason. */
void ul_value_store_as(struct ul_graph *graph, ul_value_id value, ul_value_id like);
uint32_t ul_value_element_bytes(const struct ul_graph *graph, ul_value_id value);
/* The bytes of all of its elements. */
uint64_t ul_value_bytes(const struct ul_graph *graph, ul_value_id value);
/* The dense view of a value on itself. */
struct ul_view ul_view_own(const struct ul_graph *graph, ul_value_id value);
/* Elements follow each other in row-major order without gaps; strides of dimensions of size 1 do
 * not matter. */
bool ul_view_is_dense(const struct ul_type *type, const struct ul_view *view);
/* The dimensions from the outermost to the innermost in memory, by their strides; those of size 1
 * keep their places. Row-major where a stride is 0 or nothing is known yet. `order` has rank
 * entries. */
void ul_view_order(const struct ul_type *type, const struct ul_view *view, uint32_t *order);
/* True when the views pass left nothing to do for the node: its outputs are views of input 0, or
 * (Concat) its inputs lie in the output already. Such a node gets no kernel. */
bool ul_node_is_view(const struct ul_graph *graph, ul_node_id node);
/* Where an operand of a Concat belongs in the output. */
struct ul_view ul_concat_slice(const struct ul_graph *graph, const struct ul_node *node,
                               uint32_t input);
/* Whether the concat pass has had an operand of a Concat produced in its slice of the output. */
bool ul_concat_is_placed(const struct ul_graph *graph, const struct ul_node *node, uint32_t input);
/* Per value: whether anything outside of its group needs it: a node of another group, a view of it,
 * or a block. */
bool *ul_graph_escapes(const struct ul_graph *graph, struct ul_arena *arena);

#endif
