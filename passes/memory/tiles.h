/* SPDX-License-Identifier: Apache-2.0 */
/* What the tiles of gradients read: what passes/tiles*.c share. */
#ifndef UL_PASSES_TILES_H
#define UL_PASSES_TILES_H

#include "passes/passes_internal.h"

/* tiles_operand.c: gives the product its own copy of the light map that makes this operand, where
 * all that the map reads is kept until then. Gives the copy, or the product where there is no such
 * map. */
ul_node_id ul_tiles_own_operand(struct ul_graph *graph, ul_node_id product, uint32_t input);
/* Takes the copy `map` back: the product reads `value` again. */
void ul_tiles_drop_operand(struct ul_graph *graph, ul_node_id product, uint32_t input,
                           ul_node_id map, ul_value_id value);

#endif
