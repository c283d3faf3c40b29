/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of nodes as calls of a numerical library.
 *
 * library.c says what a group would be as one call, from the graph alone; the target's libraries
 * are asked in turn whether they have an implementation that a plan can hold, and the first that
 * has completes the call: dnnl.c asks oneDNN itself, cuda_calls.c knows what cuBLASLt and cuDNN
 * take. A call is an anchor (convolution, matrix product, mean pooling) of f32, however it is
 * stored, or of 8-bit integers, and what follows it as post-operations; everything else is a kernel
 * of our own.
 *
 *      Conv -> Add (residual) -> Relu            convolution, bias, sum, relu
 *      MatMul -> Add (constant) -> Gelu          product, bias, gelu
 *
 * Invariants: a call that was answered is complete: struct ul_call is the entry of the program's
 * table, from which the runtime makes a primitive. Unused bytes of it are zero, so that equal calls
 * compare equal. Ownership: calls borrow names and layouts from the library's arena. Units: dims
 * and strides in elements. Failure: a group that is no call gives false, not an error. */
#ifndef UL_CALLS_INTERNAL_H
#define UL_CALLS_INTERNAL_H

#include "codegen/program/unsplit.h"
#include "runtime/lib/ul_call.h"

enum { UL_CALL_SRC, UL_CALL_WEIGHTS, UL_CALL_BIAS, UL_CALL_DST, UL_CALL_FIRST_POST };

/* library.c */

struct ul_group_call {
    struct ul_call call;
    const struct ul_target_library *library; /* that answered */
    uint32_t arg_count;
    ul_value_id args[UL_CALL_ARGS]; /* as ul_library_run takes them; UL_NONE: absent */
    ul_value_id residual;           /* the value that UL_POST_SUM adds to, or UL_NONE */
    bool may_pack;                  /* the weights are constant and fill their base */
    bool copies_residual;           /* its own place is needed for something else too */
    uint64_t product_count;         /* multiplications of the anchor; for pooling, elements read */
    uint32_t align_bytes;           /* all addresses are multiples of it, by the views */
    bool stays_wide;                /* sums of integers that nothing converts to fewer bits */
    bool at_edge;                   /* some argument is an input or output of the model */
};

/* Describes the nodes of a group (in execution order) as one call, not yet answered. `escapes` has
 * value_count entries. `sums`: a residual may become UL_POST_SUM, where its place and the result's
 * are alike; otherwise it is an operand. */
bool ul_group_call_make(const struct ul_graph *graph, const ul_node_id *nodes, uint32_t count,
                        const bool *escapes, bool sums, struct ul_group_call *call);
/* For an answered call with sums in i32: whether its results equal the operators' to the bit. The
 * library adds to them in f32 wherever anything follows, and in most implementations always. Ask
 * for the whole of a group that goes on after them. */
bool ul_group_call_is_exact(const struct ul_group_call *call);
/* How a constant weight is packed for the library, from the plain layout to the one that it
 * answered; call->may_pack holds. */
void ul_group_call_pack(const struct ul_group_call *call, struct ul_pack *pack);

/* unsplit.c */

/* Where a call may be a piece of another one: some rows of its result. */
struct ul_piece {
    const struct ul_call *unsplit;
    uint64_t unsplit_product_count;
    int64_t offset; /* of the first result from that of the whole, in elements */
    bool unproven;  /* it is enough that nothing speaks against it: nothing is computed */
    const struct ul_graph *graph; /* that the piece is a node of */
    ul_node_id node;
};
/* Whether that step has an alternative, behind the first, by the library. */
bool ul_unsplit_has_other(const struct ul_unsplit *unsplit, const struct ul_graph *graph,
                          ul_node_id node, const struct ul_target_library *library);
/* The call of that step, as its first alternative; NULL: it is none. */
const struct ul_program_call *ul_unsplit_call(const struct ul_unsplit *unsplit,
                                              const struct ul_graph *graph, ul_node_id node);
bool ul_node_is_piece(const struct ul_graph *graph, ul_node_id node);
/* Has the library complete the call of a node of the split graph, so that it has the bits of that
 * of the whole, where the whole has any that are known (chosen_at_start). False: it is not shown
 * to, or the whole is another library's. `unproven` as in struct ul_piece. */
bool ul_unsplit_answer(const struct ul_unsplit *unsplit, const struct ul_target_library *library,
                       const struct ul_graph *graph, ul_node_id node, bool unproven,
                       struct ul_group_call *call);

/* calls.c */

/* The nodes of the group at position *at of a block, without views; *at moves past it. Returns 0
 * where there is only a view. `nodes` has room for all of the block. */
uint32_t ul_group_next(const struct ul_graph *graph, const struct ul_block *block, uint32_t *at,
                       ul_node_id *nodes);

struct ul_calls {
    struct ul_group_call **by_node; /* by the last node of a group; NULL: no call */
    struct ul_group_call **faster;  /* the same by another library, in the next place; or NULL */
    const struct ul_pack **packs;   /* by value: how a weight's calls want it; NULL: plain */
    uint32_t *positions;            /* by node, as they run */
    ul_node_id *spares;    /* by the last node of a call: the node whose result it may form,
                              too; or UL_NONE */
    ul_node_id *reader_of; /* by such a call: what reads its sums, and stands before it in
                              the graph; or UL_NONE */
    bool *is_spared;       /* by node: a call may form its result */
    bool *is_behind;       /* by node: it becomes a step after such a call */
    bool changed;
};
/* kept.c: takes back the calls for which a library keeps too much beside the buffer. */
void ul_calls_bound_kept(struct ul_arena *arena, const struct ul_graph *graph,
                         struct ul_calls *calls);

/* Whether the number of its rounds does not depend on data. */
bool ul_loop_is_counted(const struct ul_graph *graph, const struct ul_node *loop);
/* Chooses the calls of a graph with groups; `libraries` NULL: none. `whole`: of the graph before it
 * was split, whose choice stands; or NULL. UL_UNSUPPORTED where an axis is longer than the library
 * can count. */
enum ul_status ul_calls_choose(struct ul_arena *arena, const struct ul_graph *graph,
                               const bool *escapes, const struct ul_libraries *libraries,
                               const struct ul_unsplit *unsplit, struct ul_calls *calls,
                               struct ul_diag *diag) UL_MUST_CHECK;

/* sums.c: finds the sums of a factor that a product's call may form, of at most `max_bytes`. The
 * node that forms them becomes a step directly after the call, and their readers come after
 * that. */
void ul_calls_find_sums(struct ul_arena *arena, const struct ul_graph *graph, uint64_t max_bytes,
                        struct ul_calls *calls);

/* slopes.c: called after that, finds the gradients of a GELU that a product's call may form. */
void ul_calls_find_slopes(struct ul_arena *arena, const struct ul_graph *graph,
                          struct ul_calls *calls);

#endif
