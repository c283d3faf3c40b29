/* SPDX-License-Identifier: Apache-2.0 */
/* One-node graphs for tests of operators, written in a line.
 *
 * `inputs` are separated by ';': a type ("f32[2,3]"), a type with its constant
 * ("i64[1] = [7]"), or "-" for an absent one. Outputs are given by their number. */
#ifndef UL_OPS_UNIT_CASE_H
#define UL_OPS_UNIT_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ir/graph.h"

/* The graph in `arena`, not inferred. */
void case_parse(struct ul_graph *graph, struct ul_arena *arena, const char *op, const char *inputs,
                const char *attributes, uint32_t outputs);
/* The same with node 0 inferred; fails the test when that fails. */
void case_graph(struct ul_graph *graph, struct ul_arena *arena, const char *op, const char *inputs,
                const char *attributes, uint32_t outputs);
/* Runs node 0 as it is, random or not, and gives all outputs their tensors; true when an index of
 * the data was out of range. */
bool case_run(struct ul_graph *graph, struct ul_arena *arena);

#endif
