/* SPDX-License-Identifier: Apache-2.0 */
/* The text form of a graph. */
#ifndef UL_IR_TEXT_H
#define UL_IR_TEXT_H

#include "ir/graph.h"

/* print.c, parse.c: the text form (grammar in ir/README.md). Constants above 64 bytes print as
 * pool=K; `pool` gives the parser those tensors back, in the order of their values. */
void ul_graph_print(struct ul_text *text, const struct ul_graph *graph);
enum ul_status ul_graph_parse(struct ul_graph *graph, struct ul_arena *arena, const char *text,
                              const struct ul_graph *pool, struct ul_diag *diag) UL_MUST_CHECK;

#endif
