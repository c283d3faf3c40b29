/* What the recognisers of the pattern pass share.
 *
 * A recogniser is asked for one node, the root, and walks from it to the producers of its inputs.
 * Nodes that it passes are taken as members. When the shape is right and nothing else reads what
 * members make, the root becomes another operator, and the members go.
 * Ownership: new values, nodes and lists live in the graph; counts in the pass's scratch.
 */
#ifndef UL_PATTERN_INTERNAL_H
#define UL_PATTERN_INTERNAL_H

#include "passes/passes_internal.h"

enum { UL_PATTERN_MEMBERS = 32, UL_PATTERN_FACTORS = 6 };

struct ul_pattern {
    struct ul_pass *pass;
    struct ul_graph *graph;
    uint32_t *uses; /* per value that stood when the pass began or was counted since */
    uint32_t use_count, use_capacity;
    ul_node_id root;
    uint32_t member_count;
    ul_node_id members[UL_PATTERN_MEMBERS];
    bool is_full;        /* more members than there is room for: no match */
    bool only_less;      /* take no rewrite that may need more bytes */
    bool may_match_more; /* such a one was taken */
};

/* Rewrites the graph at `root` and returns true, or leaves everything as it is. */
typedef bool ul_pattern_fn(struct ul_pattern *pattern, ul_node_id root);

/* pattern.c */

/* Forgets the members. */
void ul_pattern_begin(struct ul_pattern *pattern, ul_node_id root);
/* The node of the root's block that makes `value`, when it is `op` with one output; else NULL. */
struct ul_node *ul_pattern_maker(const struct ul_pattern *pattern, ul_value_id value,
                                 enum ul_op op);
/* The same, and it becomes a member. */
struct ul_node *ul_pattern_match(struct ul_pattern *pattern, ul_value_id value, enum ul_op op);
/* Readers of a value, counting the block's own results. */
uint32_t ul_pattern_uses(const struct ul_pattern *pattern, ul_value_id value);
void ul_pattern_use(struct ul_pattern *pattern, ul_value_id value);
/* Nothing but the root and members reads what members make; these are not operands that the new
 * node would have. */
bool ul_pattern_is_closed(const struct ul_pattern *pattern, const ul_value_id *operands,
                          uint32_t operand_count);
/* The members go, and the root becomes a node without attributes that keeps its outputs: of the
 * type that the operator gives them. */
void ul_pattern_replace(struct ul_pattern *pattern, enum ul_op op, const ul_value_id *inputs,
                        uint32_t input_count);
/* Equal as far as constants are written: looser where the type has few digits. */
bool ul_pattern_near(const struct ul_pattern *pattern, double a, double b);
const struct ul_type *ul_pattern_type(const struct ul_pattern *pattern, ul_value_id value);
/* Operand `at` of a node with two is a number, and the other has the type of the result. */
bool ul_pattern_by(const struct ul_pattern *pattern, const struct ul_node *node, uint32_t at,
                   double *number);
/* One operand or the other is. */
bool ul_pattern_split(const struct ul_pattern *pattern, const struct ul_node *node,
                      ul_value_id *rest, double *number);
/* value = rest + number; its node becomes a member. */
bool ul_pattern_plus(struct ul_pattern *pattern, ul_value_id value, ul_value_id *rest,
                     double *number);

/* A value as a product: number * values[0] * values[1] ..., through Mul, Div, Neg and Pow. */
struct ul_pattern_product {
    double number;
    uint32_t count;
    ul_value_id values[UL_PATTERN_FACTORS]; /* each of the product's type */
};
/* Looks through nodes that nothing else reads; they become members. Where `value` is the root's
 * output the root is looked through. False: it has too many factors. */
bool ul_pattern_factors(struct ul_pattern *pattern, ul_value_id value,
                        struct ul_pattern_product *product);
/* The product is a number times `value`. */
bool ul_pattern_is_scaled(struct ul_pattern *pattern, ul_value_id of, ul_value_id value,
                          double *number);

/* pattern_activation.c, pattern_norm.c, pattern_rotary.c, pattern_attention.c */
ul_pattern_fn ul_pattern_gelu, ul_pattern_gate, ul_pattern_layer_norm, ul_pattern_softmax,
    ul_pattern_rotary, ul_pattern_rotary_halves, ul_pattern_attention;

#endif
