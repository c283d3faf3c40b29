/* SPDX-License-Identifier: Apache-2.0 */
/* Lowering: from one group of nodes to one kernel.
 *
 * A group has at most one node that is not a map (the anchor). Map nodes before it are computed
 * inside its loads, map nodes after it inside its stores; a group of maps alone becomes one loop
 * nest over the shape of its results. What leaves the group is stored; the rest never has bytes. An
 * operator's hook sees none of this: it loads inputs and stores outputs at coordinates.
 *
 * Invariants: a hook stores every element of each of its outputs exactly once (UL_OP_COMBINES:
 * first all of them, then some again, in statements of their own at the top), and stores an element
 * of an output only after its last load of inputs that may lie under it (in-place facts are taken
 * from what the kernel loads, see ul_lower_result.in_place).
 */
#ifndef UL_IR_LOWER_H
#define UL_IR_LOWER_H

#include "ir/lower_group.h"

struct ul_lower {
    const struct ul_graph *graph;
    const struct ul_target_traits *traits;
    struct ul_kernel *kernel;
    struct ul_arena *arena;
    struct ul_lower_state *state; /* private to lower.c */
};

/* The element of `value` at `index` (one i64 expression per dimension) in its compute type:
 * a load through the value's view, an inlined producer, or an immediate for small constants.
 * Dimensions of size 1 ignore their index, so a broadcast input is loaded with the last `rank`
 * entries of the output's index (ul_lower_load_broadcast does that). */
ul_kx ul_lower_load(struct ul_lower *lower, ul_value_id value, const ul_kx *index);
ul_kx ul_lower_load_broadcast(struct ul_lower *lower, ul_value_id value, const ul_kx *index,
                              uint32_t index_rank);
/* Stores an output element and everything that is fused after it. `x` is in the compute type. */
void ul_lower_store(struct ul_lower *lower, ul_value_id value, const ul_kx *index, ul_kx x);
/* True when the output is stored as it is computed, and nothing is fused after it: the iteration
 * that has its row may then store it, read it back and store it again. */
bool ul_lower_is_final(const struct ul_lower *lower, ul_value_id value);
/* An element that was stored before; for final outputs and operators with UL_OP_COMBINES. */
ul_kx ul_lower_load_output(struct ul_lower *lower, ul_value_id value, const ul_kx *index);
/* Opens one PARALLEL loop per dimension of `dims` and fills `index`; close with
 * ul_lower_close(lower, rank). */
void ul_lower_open(struct ul_lower *lower, uint32_t rank, const int64_t *dims, ul_kx *index);
/* The same in the order in which the elements of `value`, which has that rank, are in memory. */
void ul_lower_open_as(struct ul_lower *lower, ul_value_id value, const int64_t *dims, ul_kx *index);
void ul_lower_close(struct ul_lower *lower, uint32_t rank);
/* The dimensions of a value from the outermost to the innermost in memory. */
void ul_lower_order(const struct ul_lower *lower, ul_value_id value, uint32_t *order);
/* The dimensions (bit d) that memory runs through, together with the one before them in `order`, as
 * through one: the inner index may run over both while the outer one is 0. */
uint32_t ul_lower_joined(const struct ul_lower *lower, ul_value_id value, const uint32_t *order);
/* The same for a value that is broadcast to these dimensions; also one that elementwise operators
 * of the group make. */
uint32_t ul_lower_joined_to(const struct ul_lower *lower, ul_value_id value, uint32_t rank,
                            const int64_t *dims, const uint32_t *order);
/* Shape and dtype of a node's input or output. */
const struct ul_type *ul_lower_input_type(const struct ul_lower *lower, ul_node_id node,
                                          uint32_t input);
const struct ul_type *ul_lower_output_type(const struct ul_lower *lower, ul_node_id node,
                                           uint32_t output);
/* False for an absent optional input, or one past the end. */
bool ul_lower_has_input(const struct ul_lower *lower, ul_node_id node, uint32_t input);
/* True when the output is used by something (optional outputs need no work otherwise). */
bool ul_lower_has_output(const struct ul_lower *lower, ul_node_id node, uint32_t output);
/* A scratch array of the step (planned bytes), or a small local one. */
uint32_t ul_lower_scratch(struct ul_lower *lower, enum ul_dtype dtype, uint64_t element_count);
uint32_t ul_lower_local(struct ul_lower *lower, enum ul_dtype dtype, uint64_t element_count);
/* Fills a contraction's operand for `value`: at(index) where index[d] = sum of coefficients[d][v] *
 * v + base[d] over the contraction's variables. Dimensions whose coordinate can leave [0, dim) are
 * listed in `checked` (bit d) and read `outside` there. A producer fused in front becomes the
 * operand's transform; only elementwise ones are. The sum is formed over the operand cast to the
 * contraction's acc_dtype. */
void ul_lower_operand(struct ul_lower *lower, struct ul_contraction *contraction,
                      struct ul_operand *operand, ul_value_id value, const ul_kx *base,
                      int64_t (*coefficients)[UL_CONTRACT_DIMS], uint32_t checked, double outside);

/* expression.c: parses a row's expression text and builds it over loaded operands. */
ul_kx ul_expression_build(struct ul_lower *lower, ul_node_id node, const char *text,
                          const ul_kx *operands, uint32_t operand_count, enum ul_dtype dtype);

#endif
