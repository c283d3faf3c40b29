/* SPDX-License-Identifier: Apache-2.0 */
/* Partial execution: what passes/split*.c share. For these files alone.
 *
 * A chain is what lies on the paths from one step to another; a step is a node or a group of nodes
 * that one kernel computes. Its results are split along one axis into pieces, and the chain is
 * copied once for each piece:
 *
 *      a -> F -> .. -> L -> b        Slice(a) -> F1 -> .. -> L1 --+
 *                                    Slice(a) -> F2 -> .. -> L2 --+-> Concat = b
 *
 * Slices are views, and each piece's results are written into their place in b, so that the Concat
 * is no step. Ownership: all lives in the graph's arena or in the pass's scratch. Failure: UL_USAGE
 * for a text that names no chain, UL_UNSUPPORTED for a chain that cannot be computed in pieces. */
#ifndef UL_SPLIT_H
#define UL_SPLIT_H

#include "ir/split_rule.h"
#include "passes/shared/steps.h"

/* "FIRST..LAST:AXIS:COUNT" as it was read. */
struct ul_split {
    const char *text;
    ul_node_id first, last;
    const char *axis; /* "batch", "rows" or a number */
    int64_t piece_count;
    bool defines; /* every program has these pieces: they need not have the bits of a whole, and
                     results may overwrite what is donated to them */
};

/* The chain: whole steps, in one block. */
struct ul_split_chain {
    const struct ul_split *split;
    ul_block_id block;
    uint32_t node_count;
    ul_node_id *nodes;    /* in execution order */
    bool *inside;         /* per node of the graph */
    uint32_t value_count; /* of the graph before anything was copied */
    uint32_t output_count;
    ul_value_id *outputs; /* of the last step: what is needed outside */
    uint32_t axis;        /* of the outputs */
    int64_t extent;       /* of the outputs along it */
};

/* split_chain.c */

/* The neck of the step [begin, end) of a block: the position of the node that makes less than the
 * step does, and all that the rest of the step needs of it. UL_NONE: there is none. */
/* Says of a chain's node why it cannot be computed in pieces: UL_UNSUPPORTED. */
enum ul_status ul_split_fail(struct ul_pass *pass, const struct ul_split_chain *chain,
                             ul_node_id node, const char *why);
uint32_t ul_split_find_neck(const struct ul_graph *graph, const ul_node_id *nodes, uint32_t begin,
                            uint32_t end);
/* Chains may end at a neck, or begin after one: there the step becomes two. */
void ul_split_cut_ends(struct ul_graph *graph, const struct ul_split *split);
/* The chain without its axis. */
enum ul_status ul_split_find_chain(struct ul_pass *pass, const struct ul_split *split,
                                   struct ul_split_chain *chain) UL_MUST_CHECK;
/* Reads the split's axis and compares the number of pieces with the extent along it. */
enum ul_status ul_split_set_axis(struct ul_pass *pass, struct ul_split_chain *chain) UL_MUST_CHECK;

/* split_needed.c */

/* What one piece computes of each value of the graph. */
struct ul_split_needed {
    const struct ul_split_chain *chain;
    struct ul_slice *needed; /* per value; of the chain's: axis UL_NONE where nothing is needed */
};
void ul_split_needed_init(struct ul_pass *pass, const struct ul_split_chain *chain,
                          struct ul_split_needed *needed);
/* The slices of all of the chain's values that outputs [begin, end) need. */
enum ul_status ul_split_find_needed(struct ul_pass *pass, int64_t begin, int64_t end,
                                    struct ul_split_needed *needed) UL_MUST_CHECK;
/* Asks the node's row about its slice; room for the answer comes from `arena`. */
bool ul_split_apply_rule(const struct ul_graph *graph, const struct ul_split_needed *needed,
                         ul_node_id node, struct ul_arena *arena, struct ul_split_rule *rule);

/* split_build.c */

/* Puts the pieces in the chain's place. */
enum ul_status ul_split_build(struct ul_pass *pass,
                              const struct ul_split_chain *chain) UL_MUST_CHECK;

#endif
