/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that gradient rules are written with. */
#include "ir/gradient.h"
#include "ir/op_names.h"

#include "ir/infer.h"
#include "ir/op.h"

#include <ctype.h>
#include <string.h>

const struct ul_node *ul_gradient_node(const struct ul_gradient *gradient)
{
    return &gradient->graph->nodes[gradient->node];
}

ul_value_id ul_gradient_input(const struct ul_gradient *gradient, uint32_t input)
{
    const struct ul_node *node = ul_gradient_node(gradient);
    return input < node->input_count ? node->inputs[input] : UL_NONE;
}

ul_value_id ul_gradient_output(const struct ul_gradient *gradient, uint32_t output)
{
    const struct ul_node *node = ul_gradient_node(gradient);
    return output < node->output_count ? node->outputs[output] : UL_NONE;
}

struct ul_type ul_gradient_type(const struct ul_gradient *gradient, ul_value_id value)
{
    UL_ASSERT(value < gradient->graph->value_count);
    return gradient->graph->values[value].type;
}

ul_value_id ul_gradient_of(const struct ul_gradient *gradient, uint32_t output)
{
    ul_value_id value = ul_gradient_output(gradient, output);
    return value != UL_NONE ? gradient->get(gradient->context, value) : UL_NONE;
}

bool ul_gradient_wanted(const struct ul_gradient *gradient, uint32_t input)
{
    ul_value_id value = ul_gradient_input(gradient, input);
    return value != UL_NONE && gradient->is_wanted(gradient->context, value);
}

void ul_gradient_give(struct ul_gradient *gradient, uint32_t input, ul_value_id share)
{
    ul_value_id value = ul_gradient_input(gradient, input);
    UL_ASSERT(ul_gradient_wanted(gradient, input));
    UL_ASSERT(
        ul_type_equal(&gradient->graph->values[value].type, &gradient->graph->values[share].type));
    gradient->give(gradient->context, value, share);
}

void ul_gradient_give_broadcast(struct ul_gradient *gradient, uint32_t input, ul_value_id share)
{
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, input));
    struct ul_type from = ul_gradient_type(gradient, share);
    uint32_t skip = from.rank - type.rank, mask = 0;
    UL_ASSERT(from.rank >= type.rank);
    for (uint32_t d = 0; d < from.rank; d++) {
        int64_t own = d < skip ? 1 : type.dims[d - skip];
        UL_ASSERT(own == from.dims[d] || own == 1);
        mask |= own != from.dims[d] ? 1u << d : 0;
    }
    share = ul_build_sum(&gradient->build, share, mask);
    ul_gradient_give(gradient, input, ul_build_reshape_to(&gradient->build, share, &type));
}

enum ul_status ul_gradient_unsupported(const struct ul_gradient *gradient, const char *format, ...)
{
    char text[UL_LIMIT_DIAG_BYTES / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ul_diag_set(gradient->diag, UL_UNSUPPORTED, "%s: %s",
                       ul_node_describe(gradient->graph, gradient->node, gradient->scratch), text);
}

/* ---- Nodes ---- */

void ul_gradient_set_node(struct ul_gradient *gradient, ul_node_id node)
{
    gradient->node = node;
    gradient->build.source = gradient->graph->nodes[node].source;
}

void ul_gradient_set_place(struct ul_gradient *gradient, struct ul_build place)
{
    place.source = gradient->build.source;
    place.flags = gradient->build.flags;
    place.scratch = gradient->scratch;
    place.infers = true;
    gradient->build = place;
}

ul_node_id ul_gradient_begin_like(struct ul_gradient *gradient, ul_op_id op,
                                  const ul_value_id *inputs, uint32_t input_count,
                                  uint32_t output_count)
{
    const struct ul_node old = *ul_gradient_node(gradient); /* the array moves */
    ul_node_id node = ul_build_node(&gradient->build, op, inputs, input_count, output_count);
    for (uint32_t i = 0; i < old.attr_count; i++)
        ul_node_set_attr(gradient->graph, node, &old.attrs[i]);
    return node;
}

const struct ul_tensor *ul_gradient_tensor(const struct ul_gradient *gradient,
                                           const struct ul_type *type, const double *numbers)
{
    return ul_tensor_new_floats(gradient->scratch, type, numbers);
}

const struct ul_tensor *ul_gradient_evaluate(const struct ul_gradient *gradient,
                                             const struct ul_tensor *const *inputs,
                                             uint32_t input_count, const struct ul_attr *changes,
                                             uint32_t change_count)
{
    const struct ul_node *old = ul_gradient_node(gradient);
    struct ul_graph alone;
    ul_graph_init(&alone, gradient->scratch, "");
    ul_node_id node = ul_graph_add_node(&alone, 0, old->op, "", input_count, 1);
    for (uint32_t i = 0; i < input_count; i++)
        if (inputs[i] != NULL) {
            ul_value_id value = ul_graph_add_weight(&alone, "", inputs[i]);
            alone.nodes[node].inputs[i] = value;
        }
    for (uint32_t i = 0; i < old->attr_count; i++)
        ul_node_set_attr(&alone, node, &old->attrs[i]);
    for (uint32_t i = 0; i < change_count; i++)
        ul_node_set_attr(&alone, node, &changes[i]);
    enum ul_status status = ul_node_infer(&alone, node, gradient->scratch, gradient->diag);
    UL_ASSERT(status == UL_OK);
    if (!ul_node_fold(&alone, node, gradient->scratch))
        return NULL;
    return alone.values[alone.nodes[node].outputs[0]].tensor;
}

/* ---- Texts of elementwise rows ---- */

/* Whether the text has the operand `letter` after its list of attributes. */
static bool mentions(const char *text, char letter)
{
    const char *list_end = strchr(text, ']');
    for (const char *at = list_end != NULL ? list_end + 1 : text; *at != '\0';) {
        size_t length = 0;
        while (isalnum((unsigned char)at[length]) || at[length] == '_' || at[length] == '.')
            length++;
        if (length == 1 && *at == letter)
            return true;
        at += length != 0 ? length : 1;
    }
    return false;
}

/* Whether the row's text of a gradient, or what it asks of a mask, has the operand. */
static bool reads(const struct ul_op_info *row, uint32_t input, char letter)
{
    return mentions(row->gradients[input], letter) ||
           (row->masks[input] != NULL && mentions(row->masks[input], letter));
}

/* Inputs of ullage::Gradient: g, the output, the inputs; what the text does not read is absent, so
 * that nobody keeps it. */
ul_value_id ul_gradient_expression_of(struct ul_gradient *gradient, uint32_t input, ul_value_id g,
                                      ul_value_id y)
{
    struct ul_graph *graph = gradient->graph;
    const struct ul_node old = *ul_gradient_node(gradient); /* the array moves */
    const struct ul_op_info *row = ul_op_get(old.op);
    ul_value_id inputs[2 + UL_OP_GRADIENTS];
    uint32_t count = 2;
    UL_ASSERT(row->gradients[input] != NULL && old.input_count <= UL_OP_GRADIENTS);
    if (strcmp(row->gradients[input], "g") == 0)
        return g;
    inputs[0] = g;
    inputs[1] = reads(row, input, 'y') ? y : UL_NONE;
    for (uint32_t i = 0; i < old.input_count; i++) {
        inputs[2 + i] = reads(row, input, (char)('a' + i)) ? old.inputs[i] : UL_NONE;
        count = inputs[2 + i] != UL_NONE ? 3 + i : count;
    }
    ul_node_id made = ul_gradient_begin_like(gradient, UL_OP_Gradient, inputs, count, 1);
    ul_node_set_string(graph, made, "ul_of", row->name);
    if (row->domain != NULL)
        ul_node_set_string(graph, made, "ul_of_domain", row->domain);
    ul_node_set_int(graph, made, "ul_input", input);
    return ul_build_infer(&gradient->build, made);
}

ul_value_id ul_gradient_expression(struct ul_gradient *gradient, uint32_t input, ul_value_id g)
{
    return ul_gradient_expression_of(gradient, input, g, ul_gradient_output(gradient, 0));
}

/* ---- Masks ---- */

const struct ul_op_info *ul_gradient_row(const struct ul_node *node, uint32_t *input)
{
    ul_op_id op = ul_op_find(ul_node_get_string(node, "ul_of_domain", ""),
                             ul_node_get_string(node, "ul_of", ""));
    int64_t number = ul_node_get_int(node, "ul_input", -1);
    if (op == UL_OP_NONE || number < 0 || number >= UL_OP_GRADIENTS)
        return NULL;
    *input = (uint32_t)number;
    return ul_op_get(op);
}

bool ul_gradient_has_mask(const struct ul_graph *graph, const struct ul_node *node)
{
    return node->input_count > 1 && node->inputs[1] != UL_NONE &&
           graph->values[node->inputs[1]].type.dtype == UL_BOOL;
}

uint32_t ul_gradient_mask_inputs(const struct ul_graph *graph, ul_node_id id,
                                 ul_value_id inputs[1 + UL_OP_GRADIENTS])
{
    const struct ul_node *node = &graph->nodes[id];
    uint32_t of, count = 0;
    const struct ul_op_info *row = node->op == UL_OP_Gradient ? ul_gradient_row(node, &of) : NULL;
    if (row == NULL || row->masks[of] == NULL || ul_gradient_has_mask(graph, node))
        return 0;
    for (uint32_t i = 1; i < node->input_count; i++) {
        char letter = i == 1 ? 'y' : (char)('a' + (char)(i - 2));
        inputs[i - 1] = mentions(row->masks[of], letter) ? node->inputs[i] : UL_NONE;
        count = inputs[i - 1] != UL_NONE ? i : count;
    }
    return count;
}

void ul_gradient_set_mask(struct ul_graph *graph, ul_node_id id, ul_value_id mask)
{
    struct ul_node *node = &graph->nodes[id];
    uint32_t of;
    const struct ul_op_info *row = ul_gradient_row(node, &of);
    UL_ASSERT(row != NULL && row->masks[of] != NULL && node->input_count > 1);
    node->inputs[1] = mask;
    node->input_count = 2;
}
