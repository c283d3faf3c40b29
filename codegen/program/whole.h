/* The program of a graph before chains of it were split. */
#ifndef UL_CODEGEN_PROGRAM_WHOLE_H
#define UL_CODEGEN_PROGRAM_WHOLE_H

#include "codegen/program/library.h"
#include "codegen/program/program.h"

/* The program of a graph before chains of it were split, and which of its steps a node is of. */
struct ul_whole {
    const struct ul_program *program;
    uint32_t *steps; /* by node of its graph, the last of a group; UL_NONE: of none */
};

void ul_whole_init(struct ul_whole *whole, struct ul_arena *arena,
                   const struct ul_program *program);

/* calls.c */

/* Whether pieces of calls among the nodes from `first` on are calls, as far as nothing speaks
 * against it: whether they have the bits of the whole is tried when a program is built. */
bool ul_calls_can_split(struct ul_arena *scratch, const struct ul_graph *graph, ul_node_id first,
                        const struct ul_target_library *library, const struct ul_whole *whole);

#endif
