/* SPDX-License-Identifier: Apache-2.0 */
/* Rewriting a graph: one value for another, one node for another.
 *
 * Method: values are forwarded in a map while a pass walks, nodes that it meets read through the
 * map, and all other uses follow when the map is applied. ul_graph_remove_node removes nodes, and
 * ul_graph_sweep takes them out of their block's order. Ownership: the map belongs to the arena
 * that ul_rewrite_init was given. */
#ifndef UL_IR_REWRITE_H
#define UL_IR_REWRITE_H

#include "ir/graph.h"

struct ul_rewrite {
    struct ul_graph *graph;
    struct ul_arena *arena;
    uint32_t known_count; /* values that existed when it began; later ones stand for themselves */
    ul_value_id *map;
};

/* rewrite.c */

void ul_rewrite_init(struct ul_rewrite *rewrite, struct ul_graph *graph, struct ul_arena *arena);
/* Every use of `value` becomes one of `with`. */
void ul_rewrite_replace(struct ul_rewrite *rewrite, ul_value_id value, ul_value_id with);
/* The same, unless the name of a model's output would be lost: then nothing changes, and the answer
 * is false. Where `with` can have the name, it takes it over. True: the node that makes `value` is
 * no longer needed for it. */
bool ul_rewrite_forward(struct ul_rewrite *rewrite, ul_value_id value, ul_value_id with);
/* The inputs of a node as replaced so far. */
void ul_rewrite_inputs(const struct ul_rewrite *rewrite, ul_node_id node);
/* Replaces all uses; the map may be used further. */
void ul_rewrite_apply(struct ul_rewrite *rewrite);

/* Marks a node removed (op NONE, outputs dead), and what is nested in it; ul_graph_sweep drops it
 * from its block. */
void ul_graph_remove_node(struct ul_graph *graph, ul_node_id node);
void ul_graph_sweep(struct ul_graph *graph);
/* Makes the node compute something else from now on, without attributes; its outputs stay. */
void ul_node_become(struct ul_graph *graph, ul_node_id node, ul_op_id op, const ul_value_id *inputs,
                    uint32_t input_count);
/* Exchanges two results of nodes: each becomes what the other one's node makes, at its place there;
 * readers and types stay the values' own. */
void ul_graph_exchange(struct ul_graph *graph, ul_value_id a, ul_value_id b);

#endif
