/* SPDX-License-Identifier: Apache-2.0 */
/* What patterns are recognised with.
 *
 * A row, or a recogniser in C, is asked for one node, the root, and walks from it to the producers
 * of its inputs. Nodes that it passes are taken as members. When the shape is right and nothing
 * else reads what members make, the root becomes another operator, and the members go.
 * Ownership: new values, nodes and lists live in the graph; counts in the pass's scratch.
 */
#ifndef UL_PATTERN_INTERNAL_H
#define UL_PATTERN_INTERNAL_H

#include "ir/row.h"
#include "passes/passes_internal.h"

enum { UL_PATTERN_MEMBERS = 32, UL_PATTERN_FACTORS = 6 };

struct ul_pattern {
    struct ul_pass *pass;
    struct ul_graph *graph;
    uint32_t *uses; /* per value that existed when the pass began or was counted since */
    uint32_t use_count, use_capacity;
    ul_node_id root;
    uint32_t member_count;
    ul_node_id members[UL_PATTERN_MEMBERS];
    bool is_full;                        /* more members than there is room for: no match */
    bool only_less;                      /* take no rewrite that may need more bytes */
    bool may_match_more;                 /* such a one was taken */
    const struct ul_pattern_rule *rules; /* one a row */
};

/* pattern_match.c */

/* Forgets the members. */
void ul_pattern_begin(struct ul_pattern *pattern, ul_node_id root);
/* The node of the root's block that makes `value`, if it is `op` with one output; else NULL. */
struct ul_node *ul_pattern_maker(const struct ul_pattern *pattern, ul_value_id value, ul_op_id op);
/* The same, and it becomes a member. */
struct ul_node *ul_pattern_match(struct ul_pattern *pattern, ul_value_id value, ul_op_id op);
/* The readers of a value; being the block's result counts as one. */
uint32_t ul_pattern_uses(const struct ul_pattern *pattern, ul_value_id value);
void ul_pattern_use(struct ul_pattern *pattern, ul_value_id value);
/* Nothing but the root and members reads what members make; these are not operands that the new
 * node would have. */
bool ul_pattern_is_closed(const struct ul_pattern *pattern, const ul_value_id *operands,
                          uint32_t operand_count);
/* The members go, and the root becomes a node without attributes. It keeps its outputs, with the
 * types that the operator gives them. */
void ul_pattern_replace(struct ul_pattern *pattern, ul_op_id op, const ul_value_id *inputs,
                        uint32_t input_count);
/* Whether numbers are equal as far as constants are written: the fewer digits the type has, the
 * looser. */
bool ul_pattern_near(const struct ul_pattern *pattern, double a, double b);
const struct ul_type *ul_pattern_type(const struct ul_pattern *pattern, ul_value_id value);
/* Where *value is a number times another value, or that value divided by it: makes *value the other
 * one, puts the number into *scale; the node becomes a member. */
bool ul_pattern_unscale(struct ul_pattern *pattern, ul_value_id *value, double *scale);

/* A value as a product: number * values[0] * values[1] ..., through Mul, Div, Neg and Pow. */
struct ul_pattern_product {
    double number;
    uint32_t count;
    ul_value_id values[UL_PATTERN_FACTORS]; /* each of the product's type */
};
/* Looks through nodes that nothing else reads, which become members. Where `value` is the root's
 * output, it looks through the root. False: there are too many factors. */
bool ul_pattern_factors(struct ul_pattern *pattern, ul_value_id value,
                        struct ul_pattern_product *product);
/* Each of these rewrites the graph at `root` and returns true, or leaves everything as it is. */

/* pattern_attention.c */
bool ul_pattern_attention(struct ul_pattern *pattern, ul_node_id root);

/* pattern_rows.c */

/* Reads the rows. */
void ul_pattern_begin_rows(struct ul_pattern *pattern);
/* Rewrites by the first row that can. */
bool ul_pattern_rows(struct ul_pattern *pattern, ul_node_id root);
/* What the rows and the recogniser of attention write, each of which has a gradient rule, since
 * graphs that are trained are fused too; UL_OP_NONE after the last. */
ul_op_id ul_pattern_makes(uint32_t index);
/* Where the term is a step, follows it from *value back through several nodes (UL_NONE: it does not
 * fit). False: it is none. */
bool ul_pattern_step(struct ul_pattern *pattern, const struct ul_term *term, ul_value_id *value);

/* pattern_text.c: patterns as rows of text, in the language of ir/term.h.
 *
 *      0.5 * x * (1 + Erf(0.70710678 * x)) -> Gelu(x)
 *      e = Exp(x); e / ReduceSum(e, [axis]) -> Softmax(x) {axis=axis}
 *
 *   row = body "->" Op "(" ... ")" ...       a body of one result
 *
 * The body is found, what stands behind "->" is built (ir/row.h). A name stands for a value, after
 * "$" for a number that all elements of a constant are, between brackets for an axis; the second
 * time for the same. The first time it is also what a statement says. Numbers are compared as
 * constants are written. "a + b" is an Add, "a - b" a Sub, "a / b" a Div; a product goes through
 * Mul, Div, Neg and Pow, and a number stands first. Operands of an operator that commutes are tried
 * either way. Operands that are not listed are constants. Where an operand is a number, the others
 * have the type of the result. */
enum { UL_PATTERN_SLOTS = 12 };
struct ul_pattern_slots {
    uint32_t count;
    struct ul_row_span list[UL_PATTERN_SLOTS];
};
struct ul_pattern_row {
    const char *text;
    /* Whether all that the text cannot say holds; NULL: it always does. */
    bool (*holds)(const struct ul_pattern *pattern, const struct ul_pattern_slots *slots);
};
struct ul_pattern_rule {
    const struct ul_pattern_row *row;
    const struct ul_term *body, *term, *result; /* all statements, what is found, what is built */
};
struct ul_pattern_rule ul_pattern_read(const struct ul_pattern_row *row, struct ul_arena *arena);
/* What a name stands for; NULL: nothing. */
const struct ul_row_item *ul_pattern_find(const struct ul_pattern_slots *slots, const char *name);
bool ul_pattern_rewrite(struct ul_pattern *pattern, const struct ul_pattern_rule *rule,
                        ul_node_id root);

#endif
