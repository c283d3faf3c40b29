/* SPDX-License-Identifier: Apache-2.0 */
/* Cheap maps that lead to a value: what passes share that compute light results again, or elsewhere
 * (again.c, inside.c, split_chain.c).
 *
 * Invariants: each map comes after those that it reads; together they read one value of about the
 * result's size, and small ones. Ownership: copies are the graph's. Nothing fails. */
#ifndef UL_PASSES_MAPS_H
#define UL_PASSES_MAPS_H

#include "passes/passes_internal.h"

enum { UL_MAPS_MAX = 4 }; /* that are computed again for one operand */

struct ul_maps {
    ul_node_id nodes[UL_MAPS_MAX];
    uint32_t count;
    ul_value_id large; /* what they are made from */
};

/* An elementwise node worth computing again for each load. */
bool ul_maps_is_map(const struct ul_node *node);
/* What the node makes has the same bits in memory as on its way into a sum of the same kernel: it
 * does not end in a product, which a compiler could fuse with that sum. */
bool ul_maps_is_closed(const struct ul_node *node);
/* Finds the maps that make a value, which is a map's result; false: there are too many, or they
 * read no large value or several. */
bool ul_maps_find(const struct ul_graph *graph, ul_value_id value, struct ul_maps *maps);
/* Copies them in front of the reader, as part of the backward pass; gives the last one's result. */
ul_value_id ul_maps_copy(struct ul_graph *graph, const struct ul_maps *maps, ul_node_id reader);

#endif
