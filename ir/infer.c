/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that shape rules are written with, and the wrapper around a row's rule. Rules run
 * on models that nobody vouches for: everything odd is a message, never a crash. */
#include "ir/infer.h"
#include "ir/op.h"

#include <string.h>

static const struct ul_value *input_value(const struct ul_infer *infer, uint32_t input)
{
    if (input >= infer->node->input_count || infer->node->inputs[input] == UL_NONE)
        return NULL;
    return &infer->graph->values[infer->node->inputs[input]];
}

const struct ul_type *ul_infer_input(const struct ul_infer *infer, uint32_t input)
{
    const struct ul_value *value = input_value(infer, input);
    return value == NULL ? NULL : &value->type;
}

const struct ul_tensor *ul_infer_tensor(const struct ul_infer *infer, uint32_t input)
{
    bool is_there = input_value(infer, input) != NULL;
    return is_there ? ul_graph_get_constant(infer->graph, infer->node->inputs[input]) : NULL;
}

const char *ul_inputs_text(const struct ul_graph *graph, const ul_value_id *inputs, uint32_t count,
                           struct ul_arena *arena)
{
    enum { SHOWN = 8 };
    struct ul_text text;
    ul_text_init(&text, arena);
    for (uint32_t i = 0; i < count && i < SHOWN; i++) {
        ul_text_put(&text, i == 0 ? "; its inputs are " : ", ");
        if (inputs[i] >= graph->value_count)
            ul_text_put(&text, "-");
        else
            ul_type_print(&text, &graph->values[inputs[i]].type);
    }
    if (count > SHOWN)
        ul_text_put(&text, " and so on");
    return text.data;
}

static enum ul_status infer_fail(const struct ul_infer *infer, enum ul_status status,
                                 const char *format, va_list args)
{
    char text[UL_LIMIT_DIAG_BYTES / 2];
    vsnprintf(text, sizeof text, format, args);
    return ul_diag_set(infer->diag, status, "%s: %s%s",
                       ul_node_describe(infer->graph, infer->node_id, infer->scratch), text,
                       status == UL_INVALID
                           ? ul_inputs_text(infer->graph, infer->node->inputs,
                                            infer->node->input_count, infer->scratch)
                           : "");
}

enum ul_status ul_infer_invalid(const struct ul_infer *infer, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    enum ul_status status = infer_fail(infer, UL_INVALID, format, args);
    va_end(args);
    return status;
}

enum ul_status ul_infer_unsupported(const struct ul_infer *infer, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    enum ul_status status = infer_fail(infer, UL_UNSUPPORTED, format, args);
    va_end(args);
    return status;
}

/* Where a value comes from: which inputs of the model, and the first loop on the way. */
struct origin {
    const struct ul_graph *graph;
    bool *seen; /* per value */
    uint32_t input_count;
    ul_value_id inputs[4];
    bool has_more; /* there are more inputs */
    ul_node_id loop;
};

static void add_origin(struct origin *origin, ul_value_id value)
{
    if (origin->input_count == sizeof origin->inputs / sizeof *origin->inputs)
        origin->has_more = true;
    else
        origin->inputs[origin->input_count++] = value;
}

/* Walks back from `value`; `pending` has room for all values. What a loop makes is not followed
 * further: the loop itself says where it comes from. */
static void trace(struct origin *origin, ul_value_id value, ul_value_id *pending)
{
    const struct ul_graph *graph = origin->graph;
    uint32_t count = 0;
    pending[count++] = value;
    origin->seen[value] = true;
    while (count > 0) {
        ul_value_id at = pending[--count];
        const struct ul_value *info = &graph->values[at];
        ul_node_id producer = info->kind == UL_VALUE_NODE ? info->producer : UL_NONE;
        if (info->kind == UL_VALUE_INPUT)
            add_origin(origin, at);
        if (info->kind == UL_VALUE_ARGUMENT && origin->loop == UL_NONE)
            origin->loop = info->producer;
        if (producer == UL_NONE)
            continue;
        if (graph->nodes[producer].block_count == 1) { /* a branch has two */
            origin->loop = origin->loop == UL_NONE ? producer : origin->loop;
            continue;
        }
        for (uint32_t i = 0; i < graph->nodes[producer].input_count; i++) {
            ul_value_id input = graph->nodes[producer].inputs[i];
            if (input == UL_NONE || origin->seen[input])
                continue;
            origin->seen[input] = true;
            pending[count++] = input;
        }
    }
}

/* What a user may well fix: a few numbers, as shapes, axes and counts have, not the data itself. */
static bool is_setting(const struct ul_type *type)
{
    enum { MOST = 64 };
    return type->rank <= 1 && (!ul_type_known(type) || ul_type_elements(type) <= MOST);
}

static void put_origin(struct ul_text *text, const struct origin *origin)
{
    const struct ul_graph *graph = origin->graph;
    bool are_settings = origin->input_count > 0 && !origin->has_more && origin->loop == UL_NONE;
    for (uint32_t i = 0; i < origin->input_count; i++)
        are_settings = are_settings && is_setting(&graph->values[origin->inputs[i]].type);
    if (origin->loop != UL_NONE) {
        ul_text_printf(text, "it is what %s computes, of which no option says how much that is",
                       ul_node_describe(graph, origin->loop, text->arena));
        return;
    }
    if (!are_settings) {
        ul_text_put(text, "it depends on data");
        if (origin->input_count > 0)
            ul_text_printf(text, ", those of the model's input %s",
                           ul_quote(text->arena, graph->values[origin->inputs[0]].name));
        return;
    }
    ul_text_printf(text, "fix the model's input%s that it comes from with",
                   ul_plural(origin->input_count));
    for (uint32_t i = 0; i < origin->input_count; i++)
        ul_text_printf(text, " --const %s=FILE",
                       ul_word_quote(text->arena, graph->values[origin->inputs[i]].name));
}

const char *ul_node_remedy(const struct ul_graph *graph, ul_node_id node, uint32_t input,
                           struct ul_arena *arena)
{
    const struct ul_node *info = &graph->nodes[node];
    bool is_made = graph->values[info->inputs[input]].kind == UL_VALUE_NODE &&
                   ul_graph_is_root(graph, info->parent);
    bool is_first = true;
    struct origin origin = {.graph = graph, .loop = UL_NONE};
    struct ul_text text;
    ul_text_init(&text, arena);
    origin.seen = UL_NEW_ARRAY(arena, bool, graph->value_count);
    trace(&origin, info->inputs[input], UL_NEW_ARRAY(arena, ul_value_id, graph->value_count));
    put_origin(&text, &origin);
    for (uint32_t i = 0; i < info->input_count && is_made; i++) {
        ul_value_id value = info->inputs[i];
        if (value == UL_NONE || graph->values[value].kind != UL_VALUE_NODE ||
            ul_graph_get_constant(graph, value) != NULL)
            continue;
        ul_text_printf(&text, "%s --output %s",
                       is_first ? "; or end the model before the node with" : "",
                       ul_word_quote(arena, graph->values[value].name));
        is_first = false;
    }
    return text.data;
}

enum ul_status ul_infer_ints(const struct ul_infer *infer, uint32_t input, const int64_t **values,
                             uint32_t *count)
{
    *values = NULL;
    *count = 0;
    const struct ul_value *value = input_value(infer, input);
    if (value == NULL)
        return UL_OK;
    const char *name = ul_quote(infer->scratch, value->name);
    const struct ul_tensor *tensor = ul_infer_tensor(infer, input);
    if (tensor == NULL)
        return ul_infer_unsupported(
            infer,
            "input %u (%s) must be known at compile time, since a shape "
            "depends on it; %s",
            (unsigned)input, name,
            ul_node_remedy(infer->graph, infer->node_id, input, infer->scratch));
    const struct ul_type *type = &tensor->type;
    if (!ul_dtype_get(type->dtype)->is_integer)
        return ul_infer_invalid(infer, "input %u (%s) must hold integers, but is %s",
                                (unsigned)input, name, ul_dtype_get(type->dtype)->name);
    uint64_t elements = ul_type_elements(type);
    if (elements > UL_LIMIT_NODE_INPUTS)
        return ul_infer_invalid(infer, "input %u (%s) has %llu elements, more than %u",
                                (unsigned)input, name, (unsigned long long)elements,
                                (unsigned)UL_LIMIT_NODE_INPUTS);
    int64_t *out = UL_NEW_ARRAY(infer->scratch, int64_t, elements);
    for (uint64_t i = 0; i < elements; i++)
        out[i] = ul_tensor_get_int(tensor, i);
    *values = out;
    *count = (uint32_t)elements;
    return UL_OK;
}

void ul_infer_set_type(const struct ul_infer *infer, uint32_t output, const struct ul_type *type)
{
    if (output < infer->node->output_count)
        infer->graph->values[infer->node->outputs[output]].type = *type;
}

void ul_infer_set(const struct ul_infer *infer, uint32_t output, enum ul_dtype dtype, uint32_t rank,
                  const int64_t *dims)
{
    struct ul_type type = ul_type_make(dtype, rank, dims);
    ul_infer_set_type(infer, output, &type);
}

void ul_infer_set_ints(const struct ul_infer *infer, uint32_t output, uint32_t rank,
                       const int64_t *values, uint32_t count)
{
    UL_ASSERT(rank == 1 || (rank == 0 && count == 1));
    if (output >= infer->node->output_count)
        return;
    int64_t dims[1] = {count};
    struct ul_value *value = &infer->graph->values[infer->node->outputs[output]];
    value->tensor = ul_tensor_new_ints(infer->graph->arena, UL_I64, rank, dims, values);
    value->type = value->tensor->type;
}

bool ul_broadcast(const struct ul_type *a, const struct ul_type *b, struct ul_type *out)
{
    struct ul_type result = {.dtype = a->dtype, .rank = a->rank > b->rank ? a->rank : b->rank};
    for (uint32_t i = 0; i < result.rank; i++) {
        uint32_t from_end = result.rank - i;
        int64_t x = from_end <= a->rank ? a->dims[a->rank - from_end] : 1;
        int64_t y = from_end <= b->rank ? b->dims[b->rank - from_end] : 1;
        if (x != y && x != 1 && y != 1)
            return false;
        result.dims[i] = x == 1 ? y : x;
    }
    *out = result;
    return true;
}

enum ul_status ul_infer_axis(const struct ul_infer *infer, int64_t axis, uint32_t rank,
                             uint32_t *out)
{
    if (axis < -(int64_t)rank || axis >= (int64_t)rank)
        return ul_infer_invalid(infer, "axis %lld does not exist in a tensor of rank %u",
                                (long long)axis, (unsigned)rank);
    *out = (uint32_t)(axis < 0 ? axis + (int64_t)rank : axis);
    return UL_OK;
}

enum ul_status ul_infer_same(struct ul_infer *infer)
{
    ul_infer_set_type(infer, 0, ul_infer_input(infer, 0));
    return UL_OK;
}

/* All inputs broadcast together; they must agree in dtype. */
static enum ul_status infer_broadcast(struct ul_infer *infer, struct ul_type *out)
{
    *out = *ul_infer_input(infer, 0);
    for (uint32_t i = 1; i < infer->node->input_count; i++) {
        const struct ul_type *type = ul_infer_input(infer, i);
        if (type == NULL)
            continue;
        if (type->dtype != out->dtype)
            return ul_infer_invalid(infer, "inputs 0 and %u differ in type: %s and %s", (unsigned)i,
                                    ul_type_text(infer->scratch, out),
                                    ul_type_text(infer->scratch, type));
        if (!ul_broadcast(out, type, out))
            return ul_infer_invalid(infer, "input %u of shape %s cannot be broadcast with %s",
                                    (unsigned)i, ul_type_text(infer->scratch, type),
                                    ul_type_text(infer->scratch, out));
    }
    return UL_OK;
}

enum ul_status ul_infer_elementwise(struct ul_infer *infer)
{
    struct ul_type type;
    UL_TRY(infer_broadcast(infer, &type));
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

enum ul_status ul_infer_compare(struct ul_infer *infer)
{
    struct ul_type type;
    UL_TRY(infer_broadcast(infer, &type));
    type.dtype = UL_BOOL;
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

static enum ul_status check_arity(const struct ul_infer *infer, const struct ul_op_info *row)
{
    const struct ul_node *node = infer->node;
    if (node->input_count < row->min_inputs || node->input_count > row->max_inputs)
        return ul_infer_invalid(infer, "%u input%s given, %u to %u expected",
                                (unsigned)node->input_count, ul_plural(node->input_count),
                                (unsigned)row->min_inputs, (unsigned)row->max_inputs);
    if (node->output_count < row->min_outputs || node->output_count > row->max_outputs)
        return ul_infer_invalid(infer, "%u output%s asked for, %u to %u expected",
                                (unsigned)node->output_count, ul_plural(node->output_count),
                                (unsigned)row->min_outputs, (unsigned)row->max_outputs);
    for (uint32_t i = 0; i < row->min_inputs; i++) {
        if (node->inputs[i] == UL_NONE)
            return ul_infer_invalid(infer, "input %u is required", (unsigned)i);
    }
    return UL_OK;
}

static enum ul_status check_inputs(const struct ul_infer *infer)
{
    for (uint32_t i = 0; i < infer->node->input_count; i++) {
        const struct ul_value *value = input_value(infer, i);
        if (value == NULL)
            continue;
        if (!ul_type_known(&value->type))
            return ul_infer_unsupported(
                infer, "input %u (%s) has the unknown size %s; %s", (unsigned)i,
                ul_quote(infer->scratch, value->name), ul_type_text(infer->scratch, &value->type),
                value->kind == UL_VALUE_INPUT
                    ? "give it with --dim NAME=N or --shape INPUT=DIMS"
                    : ul_node_remedy(infer->graph, infer->node_id, i, infer->scratch));
        if (!ul_dtype_is_computed(value->type.dtype))
            return ul_infer_unsupported(
                infer, "input %u (%s) is of type %s, which nothing here computes with", (unsigned)i,
                ul_quote(infer->scratch, value->name), ul_dtype_get(value->type.dtype)->name);
    }
    return UL_OK;
}

static enum ul_status check_outputs(const struct ul_infer *infer)
{
    for (uint32_t i = 0; i < infer->node->output_count; i++) {
        const struct ul_value *value = &infer->graph->values[infer->node->outputs[i]];
        if (value->type.dtype != UL_DTYPE_NONE && !ul_dtype_is_computed(value->type.dtype))
            return ul_infer_unsupported(infer, "output %u would be of type %s", (unsigned)i,
                                        ul_dtype_get(value->type.dtype)->name);
        if (!ul_type_known(&value->type))
            return ul_infer_unsupported(infer, "the size of output %u cannot be known before run",
                                        (unsigned)i);
        if (!ul_type_in_limits(&value->type))
            return ul_infer_invalid(infer,
                                    "output %u would be %s, which is over the limit of "
                                    "2^40 elements a dimension and 2^46 bytes",
                                    (unsigned)i, ul_type_text(infer->scratch, &value->type));
    }
    return UL_OK;
}

enum ul_status ul_node_infer(struct ul_graph *graph, ul_node_id node, struct ul_arena *scratch,
                             struct ul_diag *diag)
{
    struct ul_infer infer = {
        .graph = graph,
        .node = &graph->nodes[node],
        .node_id = node,
        .scratch = scratch,
        .diag = diag,
    };
    const struct ul_op_info *row = ul_op_get(infer.node->op);
    UL_TRY(check_arity(&infer, row));
    UL_TRY(check_inputs(&infer));
    UL_ASSERT(row->infer != NULL);
    for (uint32_t i = 0; i < infer.node->output_count; i++) {
        struct ul_value *value = &graph->values[infer.node->outputs[i]];
        value->type = (struct ul_type){.rank = UL_RANK_UNKNOWN};
        value->tensor = NULL;
    }
    UL_TRY(row->infer(&infer));
    return check_outputs(&infer);
}
