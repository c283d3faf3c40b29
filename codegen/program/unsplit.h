/* SPDX-License-Identifier: Apache-2.0 */
/* The program of a graph before chains of it were split. */
#ifndef UL_CODEGEN_PROGRAM_WHOLE_H
#define UL_CODEGEN_PROGRAM_WHOLE_H

#include "codegen/program/library.h"
#include "codegen/program/program.h"

/* The program of a graph before its chains were split, and the step of it to which a node
 * belongs. */
struct ul_unsplit {
    const struct ul_program *program;
    uint32_t *steps; /* by node of its graph, the last of a group; UL_NONE: none */
};

void ul_unsplit_init(struct ul_unsplit *unsplit, struct ul_arena *arena,
                     const struct ul_program *program);

/* The step of the whole that a node of the split graph computes, or computes in part; UL_NONE:
 * there is none. `whole` NULL: nothing was split. */
uint32_t ul_unsplit_step(const struct ul_unsplit *unsplit, const struct ul_graph *graph,
                         ul_node_id node);
/* Whether a kernel that forms its sums in these orders surely has the bits of that step's kernel:
 * its order is the one that the text leaves no doubt about. Where the step's first alternative is a
 * call, its kernel is among the others. */
bool ul_unsplit_has_orders(const struct ul_unsplit *unsplit, const struct ul_graph *graph,
                           ul_node_id node, uint32_t orders);

/* calls.c */

/* Whether pieces of calls among the nodes from `first` on are calls, as far as nothing speaks
 * against it: building a program tries whether they have the bits of the whole. */
bool ul_calls_can_split(struct ul_arena *scratch, const struct ul_graph *graph, ul_node_id first,
                        const struct ul_libraries *libraries, const struct ul_unsplit *unsplit);

#endif
