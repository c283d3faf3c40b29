/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that gradient rules are written with: reverse mode as a pass from graph to graph.
 *
 * A rule is called once for a node, when the gradients of all that read its outputs have been added
 * up. It asks for the gradients of the outputs, builds nodes after all others of the block, and
 * gives each wanted input its share. The caller adds the shares of several readers; the first share
 * is taken as it is: nothing is filled with zeros.
 *
 *     ul_value_id g = ul_gradient_of(gradient, 0);
 *     if (ul_gradient_wanted(gradient, 0))
 *         ul_gradient_give(gradient, 0, ul_build_scale(&gradient->build, g, 2));
 *
 * Invariants: what a rule builds has a type at once; a share has the type of its input (of an
 * input that was broadcast, ul_gradient_give_broadcast makes it so). A rule reads as little of the
 * forward pass as it can: what it reads is kept until then, or computed again.
 * Failure: UL_UNSUPPORTED with the node's name, by ul_gradient_unsupported.
 */
#ifndef UL_IR_GRADIENT_H
#define UL_IR_GRADIENT_H

#include "ir/build.h"
#include "ir/op.h"
#include "ir/traits.h"

struct ul_gradient {
    struct ul_graph *graph;
    struct ul_arena *scratch;
    struct ul_diag *diag;
    ul_node_id node; /* whose gradient is formed; the graph's arrays move while a rule builds */
    struct ul_build build; /* infers; its flags are UL_VALUE_BACKWARD in a backward pass */
    const struct ul_target_traits *traits; /* facts of the target */
    /* The caller's: where gradients are collected, and which are wanted. */
    void *context;
    ul_value_id (*get)(void *context, ul_value_id value);
    bool (*is_wanted)(void *context, ul_value_id value);
    void (*give)(void *context, ul_value_id value, ul_value_id share);
};

/* gradient.c: the node, its values, and what goes in and out. */

ul_value_id ul_gradient_input(const struct ul_gradient *gradient, uint32_t input); /* or UL_NONE */
ul_value_id ul_gradient_output(const struct ul_gradient *gradient, uint32_t output);
const struct ul_node *ul_gradient_node(const struct ul_gradient *gradient); /* valid until it
                                                                               builds */
/* A copy, since the values move. */
struct ul_type ul_gradient_type(const struct ul_gradient *gradient, ul_value_id value);
/* The gradient of an output; UL_NONE: the loss does not depend on it. */
ul_value_id ul_gradient_of(const struct ul_gradient *gradient, uint32_t output);
/* Whether anybody needs the gradient of an input: the input is there, is a float, and depends on
 * something trained. */
bool ul_gradient_wanted(const struct ul_gradient *gradient, uint32_t input);
void ul_gradient_give(struct ul_gradient *gradient, uint32_t input, ul_value_id share);
/* The same for an input that was broadcast: sums over what it was repeated along, and reshapes. */
void ul_gradient_give_broadcast(struct ul_gradient *gradient, uint32_t input, ul_value_id share);
enum ul_status ul_gradient_unsupported(const struct ul_gradient *gradient, const char *format, ...)
    UL_PRINTF(2, 3);

/* Where nodes go, and what they are called; whose gradient is formed, and the source of nodes. */
void ul_gradient_set_place(struct ul_gradient *gradient, struct ul_build place);
void ul_gradient_set_node(struct ul_gradient *gradient, ul_node_id node);

/* A node with the attributes of that whose gradient is formed. */
ul_node_id ul_gradient_begin_like(struct ul_gradient *gradient, ul_op_id op,
                                  const ul_value_id *inputs, uint32_t input_count,
                                  uint32_t output_count);
/* A tensor of these numbers that is no value: for ul_gradient_evaluate, until the pass ends. */
const struct ul_tensor *ul_gradient_tensor(const struct ul_gradient *gradient,
                                           const struct ul_type *type, const double *numbers);
/* What the node's operator makes of constants, with its attributes, some of them changed: that is
 * how rules learn what it does with indexes and weights. NULL: too much work. */
const struct ul_tensor *ul_gradient_evaluate(const struct ul_gradient *gradient,
                                             const struct ul_tensor *const *inputs,
                                             uint32_t input_count, const struct ul_attr *changes,
                                             uint32_t change_count);
/* The share of an input of an elementwise node by the text of its row, at the output's shape. */
ul_value_id ul_gradient_expression(struct ul_gradient *gradient, uint32_t input, ul_value_id g);
/* The same for a result that broadcasts to g, as reductions have. */
ul_value_id ul_gradient_expression_of(struct ul_gradient *gradient, uint32_t input, ul_value_id g,
                                      ul_value_id y);

/* The row that a node of ullage::Gradient or ullage::Mask is about, and the input whose share it
 * computes; NULL: its attributes name none. */
const struct ul_op_info *ul_gradient_row(const struct ul_node *node, uint32_t *input);
/* The inputs of a Mask of all that an ullage::Gradient asks of its operands; 0: it asks more, or
 * has a mask. */
uint32_t ul_gradient_mask_inputs(const struct ul_graph *graph, ul_node_id node,
                                 ul_value_id inputs[1 + UL_OP_GRADIENTS]);
/* Makes such a node read that Mask's result instead. */
void ul_gradient_set_mask(struct ul_graph *graph, ul_node_id node, ul_value_id mask);
/* Whether it does so. */
bool ul_gradient_has_mask(const struct ul_graph *graph, const struct ul_node *node);

#endif
