/* SPDX-License-Identifier: Apache-2.0 */
/* Operators in terms of others, as rows of text (ir/row.h): the node, and what it becomes.
 *
 *      QuickGelu(x) {alpha=1.702} -> x * Sigmoid(alpha * x)
 *      CDist(a:2, b:2) {metric='sqeuclidean'} -> problem 'has another metric' if ...; ...
 *
 *   row   = Op "(" input { "," input } ")" [ "{" name "=" default { "," ... } "}" ] [ "->" body ]
 *   input = name [ "?" ] [ ":" ranks ] | "..."
 *   ranks = { DIGIT [ "+" ] } [ "n" ] | "*" | "s"
 *
 * An input with "?" may be absent. Where ranks are given, its shape must be known and its rank be
 * one of the digits ("+": or more; "*": any). "n" wants integers or floats; "s" is a sequence.
 * "..." stands for more inputs, which a function in C reads. Attributes have the type of their
 * default ([]: a list of integers or of floats; none: any type). Results go to the outputs in
 * order; outputs that the node does not name are not built. A row with a function, which checks or
 * computes more than text can say, has at most statements, which come first. */
#ifndef UL_FRONTEND_ROWS_H
#define UL_FRONTEND_ROWS_H

#include "frontend/frontend_internal.h"
#include "ir/row.h"

/* The int64 numbers 0, 1, ... count - 1. */
#define UL_ROW_RANGE(count) "Range(0:i64, (" count "):i64, 1:i64)"

struct ul_upgrade_row {
    const char *text;
    ul_upgrade_fn *upgrade; /* NULL: the body says it */
    const char *rest; /* the second part of a body that is too long for one literal, or NULL */
};
/* clang-format off */
#define UL_ROW(text) {(text), NULL, NULL}
#define UL_ROW_LONG(text, rest) {(text), NULL, (rest)}
#define UL_ROW_BY(head, function) {(head), (function), NULL}
/* clang-format on */

/* The first row for that operator, or NULL. */
const struct ul_upgrade_row *ul_rows_find(const struct ul_upgrade_row *rows, size_t count,
                                          const char *op);
/* Checks what the row says of the node, and applies it. The node is finished then, unless a
 * function has left it unfinished. */
void ul_rows_upgrade(struct ul_old_node *node, const struct ul_upgrade_row *row);
/* Finishes a node whose operator has no row, unless all its inputs are tensors. */
void ul_rows_refuse_sequences(struct ul_old_node *node);
/* For functions: makes the results of a body, which may use the names of the node's row and those
 * of UL_WITH, or NULL. Returns false, with the node finished, where something is wrong. */
#define UL_WITH(...) ((const struct ul_row_name[]){__VA_ARGS__, {NULL, {0}}})
bool ul_old_run(struct ul_old_node *node, const struct ul_row_name *names, const char *body,
                uint32_t count, ul_value_id *results);
/* Makes the one result; UL_NONE where something is wrong. */
ul_value_id ul_old_make(struct ul_old_node *node, const struct ul_row_name *names,
                        const char *body);
/* Makes a constant: a list, or a number of that type. */
ul_value_id ul_old_const(struct ul_old_node *node, enum ul_dtype dtype, struct ul_row_item item);
/* Makes the results of the node, and finishes it. */
void ul_old_finish(struct ul_old_node *node, const struct ul_row_name *names, const char *body);

#endif
