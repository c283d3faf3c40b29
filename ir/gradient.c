/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that gradient rules are written with. */
#include "ir/gradient.h"

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
    share = ul_gradient_sum(gradient, share, mask);
    ul_gradient_give(gradient, input, ul_gradient_reshape(gradient, share, &type));
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

ul_node_id ul_gradient_begin(struct ul_gradient *gradient, enum ul_op op, const ul_value_id *inputs,
                             uint32_t input_count, uint32_t output_count)
{
    ul_node_id node = ul_build_node(&gradient->build, op, inputs, input_count, output_count);
    for (uint32_t i = 0; i < output_count; i++)
        gradient->graph->values[gradient->graph->nodes[node].outputs[i]].flags |= gradient->flags;
    gradient->graph->nodes[node].source = ul_gradient_node(gradient)->source;
    return node;
}

/* What rules build is right by construction: a failure is a defect, reported with its text. */
ul_value_id ul_gradient_infer(struct ul_gradient *gradient, ul_node_id node)
{
    enum ul_status status = ul_node_infer(gradient->graph, node, gradient->scratch, gradient->diag);
    if (status != UL_OK)
        fprintf(stderr, "%s\n", gradient->diag->text);
    UL_ASSERT(status == UL_OK);
    return gradient->graph->nodes[node].outputs[0];
}

ul_node_id ul_gradient_begin_like(struct ul_gradient *gradient, enum ul_op op,
                                  const ul_value_id *inputs, uint32_t input_count,
                                  uint32_t output_count)
{
    const struct ul_node old = *ul_gradient_node(gradient); /* the array moves */
    ul_node_id node = ul_gradient_begin(gradient, op, inputs, input_count, output_count);
    for (uint32_t i = 0; i < old.attr_count; i++)
        ul_node_set_attr(gradient->graph, node, &old.attrs[i]);
    return node;
}

ul_value_id ul_gradient_node_of(struct ul_gradient *gradient, enum ul_op op,
                                const ul_value_id *inputs, uint32_t input_count)
{
    return ul_gradient_infer(gradient, ul_gradient_begin(gradient, op, inputs, input_count, 1));
}

ul_value_id ul_gradient_unary(struct ul_gradient *gradient, enum ul_op op, ul_value_id a)
{
    return ul_gradient_node_of(gradient, op, &a, 1);
}

ul_value_id ul_gradient_binary(struct ul_gradient *gradient, enum ul_op op, ul_value_id a,
                               ul_value_id b)
{
    const ul_value_id inputs[2] = {a, b};
    return ul_gradient_node_of(gradient, op, inputs, 2);
}

ul_value_id ul_gradient_number(struct ul_gradient *gradient, ul_value_id like, double number)
{
    enum ul_dtype dtype = gradient->graph->values[like].type.dtype;
    return ul_build_number(gradient->graph, "", dtype, 0, number);
}

ul_value_id ul_gradient_scale(struct ul_gradient *gradient, ul_value_id a, double number)
{
    return ul_gradient_binary(gradient, UL_OP_Mul, a, ul_gradient_number(gradient, a, number));
}

ul_value_id ul_gradient_sum(struct ul_gradient *gradient, ul_value_id a, uint32_t mask)
{
    struct ul_type type = ul_gradient_type(gradient, a);
    int64_t axes[UL_LIMIT_RANK];
    uint32_t count = 0;
    for (uint32_t d = 0; d < type.rank; d++)
        if ((mask & 1u << d) != 0)
            axes[count++] = d;
    if (count == 0)
        return a;
    return ul_gradient_binary(gradient, UL_OP_ReduceSum, a,
                              ul_build_ints(gradient->graph, "axes", count, axes));
}

ul_value_id ul_gradient_expand(struct ul_gradient *gradient, ul_value_id a,
                               const struct ul_type *type)
{
    struct ul_type from = ul_gradient_type(gradient, a);
    if (ul_type_same_dims(&from, type))
        return a;
    ul_value_id shape = ul_build_ints(gradient->graph, "shape", type->rank, type->dims);
    return ul_gradient_binary(gradient, UL_OP_Expand, a, shape);
}

ul_value_id ul_gradient_reshape(struct ul_gradient *gradient, ul_value_id a,
                                const struct ul_type *type)
{
    struct ul_type from = ul_gradient_type(gradient, a);
    if (ul_type_same_dims(&from, type))
        return a;
    ul_value_id made = ul_build_reshape(&gradient->build, a, type->rank, type->dims);
    gradient->graph->values[made].flags |= gradient->flags;
    return made;
}

ul_value_id ul_gradient_transpose_of(struct ul_gradient *gradient, ul_value_id a,
                                     const int64_t *perm)
{
    ul_value_id made = ul_build_transpose(&gradient->build, a, perm);
    gradient->graph->values[made].flags |= gradient->flags;
    return made;
}

ul_value_id ul_gradient_slice(struct ul_gradient *gradient, ul_value_id a, uint32_t axis,
                              int64_t begin, int64_t end)
{
    ul_value_id made = ul_build_slice(&gradient->build, a, axis, begin, end);
    gradient->graph->values[made].flags |= gradient->flags;
    return made;
}

ul_value_id ul_gradient_pad(struct ul_gradient *gradient, ul_value_id a, const int64_t *begin,
                            const int64_t *end)
{
    uint32_t rank = ul_gradient_type(gradient, a).rank;
    int64_t pads[2 * UL_LIMIT_RANK];
    bool any = false;
    for (uint32_t d = 0; d < rank; d++) {
        pads[d] = begin[d];
        pads[rank + d] = end[d];
        any = any || begin[d] != 0 || end[d] != 0;
    }
    if (!any)
        return a;
    return ul_gradient_binary(gradient, UL_OP_Pad, a, ul_gradient_ints(gradient, 2 * rank, pads));
}

ul_value_id ul_gradient_concat(struct ul_gradient *gradient, const ul_value_id *values,
                               uint32_t count, uint32_t axis)
{
    if (count == 1)
        return values[0];
    ul_node_id node = ul_gradient_begin(gradient, UL_OP_Concat, values, count, 1);
    ul_node_set_int(gradient->graph, node, "axis", axis);
    return ul_gradient_infer(gradient, node);
}

ul_value_id ul_gradient_cast_to(struct ul_gradient *gradient, ul_value_id a, enum ul_dtype dtype)
{
    ul_node_id node = ul_gradient_begin(gradient, UL_OP_Cast, &a, 1, 1);
    ul_node_set_int(gradient->graph, node, "to", dtype);
    return ul_gradient_infer(gradient, node);
}

ul_value_id ul_gradient_choose(struct ul_gradient *gradient, ul_value_id condition, ul_value_id yes,
                               ul_value_id no)
{
    const ul_value_id inputs[3] = {condition, yes, no};
    return ul_gradient_node_of(gradient, UL_OP_Where, inputs, 3);
}

ul_value_id ul_gradient_zeros(struct ul_gradient *gradient, const struct ul_type *type)
{
    static const unsigned char zero[sizeof((struct ul_tensor *)0)->splat] = {0};
    struct ul_graph *graph = gradient->graph;
    return ul_graph_add_weight(graph, "zeros", ul_tensor_new_splat(graph->arena, type, zero));
}

ul_value_id ul_gradient_ints(struct ul_gradient *gradient, uint32_t count, const int64_t *values)
{
    return ul_build_ints(gradient->graph, "", count, values);
}

static const struct ul_tensor *make_tensor(struct ul_arena *arena, const struct ul_type *type,
                                           const double *numbers)
{
    uint64_t count = ul_type_elements(type), size_bytes = ul_dtype_get(type->dtype)->size_bytes;
    unsigned char *data = ul_arena_alloc(arena, ul_type_bytes(type));
    for (uint64_t i = 0; i < count; i++)
        ul_element_put_float(data + i * size_bytes, type->dtype, numbers[i]);
    return ul_tensor_new(arena, type, data);
}

ul_value_id ul_gradient_constant(struct ul_gradient *gradient, const struct ul_type *type,
                                 const double *numbers)
{
    struct ul_graph *graph = gradient->graph;
    return ul_graph_add_weight(graph, "", make_tensor(graph->arena, type, numbers));
}

const struct ul_tensor *ul_gradient_tensor(const struct ul_gradient *gradient,
                                           const struct ul_type *type, const double *numbers)
{
    return make_tensor(gradient->scratch, type, numbers);
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

ul_value_id ul_gradient_swap(struct ul_gradient *gradient, ul_value_id a)
{
    struct ul_type type = ul_gradient_type(gradient, a);
    int64_t perm[UL_LIMIT_RANK];
    UL_ASSERT(type.rank >= 2);
    for (uint32_t d = 0; d < type.rank; d++)
        perm[d] = d;
    perm[type.rank - 1] = type.rank - 2;
    perm[type.rank - 2] = type.rank - 1;
    return ul_gradient_transpose_of(gradient, a, perm);
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
    return ul_gradient_infer(gradient, made);
}

ul_value_id ul_gradient_expression(struct ul_gradient *gradient, uint32_t input, ul_value_id g)
{
    return ul_gradient_expression_of(gradient, input, g, ul_gradient_output(gradient, 0));
}

/* ---- Masks ---- */

const struct ul_op_info *ul_gradient_row(const struct ul_node *node, uint32_t *input)
{
    enum ul_op op = ul_op_find(ul_node_get_string(node, "ul_of_domain", ""),
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
