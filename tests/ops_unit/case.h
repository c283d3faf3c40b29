/* One-node graphs for tests of operators, written in a line.
 *
 * `inputs` are separated by ';': a type ("f32[2,3]"), a type with its constant
 * ("i64[1] = [7]"), or "-" for an absent one. Outputs are given by their number. A case whose
 * status is UL_OK wants the outputs' types in `part`, separated by spaces; another one a piece of
 * the message. */
#ifndef UL_OPS_UNIT_CASE_H
#define UL_OPS_UNIT_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ir/graph.h"

struct op_case {
    const char *op, *inputs, *attributes; /* attributes as in IR text, without braces */
    uint32_t outputs;
    enum ul_status status;
    const char *part;
};

/* The graph in `arena`, not inferred. */
void case_parse(struct ul_graph *graph, struct ul_arena *arena, const char *op, const char *inputs,
                const char *attributes, uint32_t outputs);
/* The same with node 0 inferred; fails the test when that fails. */
void case_graph(struct ul_graph *graph, struct ul_arena *arena, const char *op, const char *inputs,
                const char *attributes, uint32_t outputs);
/* Runs each case's shape rule. */
void case_infer_all(const struct op_case *cases, size_t count);
/* Folds node 0 of a graph of constants and compares output 0's elements, as numbers. */
void case_fold(const char *op, const char *inputs, const char *attributes, const double *wanted,
               uint64_t count);
/* Runs node 0 as it stands, random or not, and gives all outputs their tensors; true when an
 * index of the data was out of range. */
bool case_run(struct ul_graph *graph, struct ul_arena *arena);

#endif
