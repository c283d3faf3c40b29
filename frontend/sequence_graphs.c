/* SPDX-License-Identifier: Apache-2.0 */
/* Operators with graphs of their own that take or make sequences of tensors.
 *
 * Problem: a sequence is a list of values while the model is built (sequence.c), and a nested graph
 * has only tensors. Method: the graph is built in place of its node, as the body of a function is.
 * The graph of a SequenceMap is built once for each tensor, the body of a Loop once for each
 * iteration, and an If becomes the branch that it takes. So the number of iterations and the
 * condition must be known when the model is compiled. Left undone: optionals that a graph makes.
 * ONNX has no Scan over sequences. */
#include "frontend/rows.h"

#include <string.h>

/* Finds the inputs of a SequenceMap's graph for item `index`: an item of each sequence, and
 * tensors. */
static bool find_arguments(struct ul_old_node *node, uint32_t index, ul_value_id *arguments)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        arguments[i] = ul_old_input(node, i);
        if (!ul_sequence_is(arguments[i]))
            continue;
        const struct ul_sequence *sequence = ul_sequence_get(node->builder, arguments[i]);
        if (index >= sequence->count)
            return false;
        arguments[i] = sequence->items[index];
    }
    return true;
}

static enum ul_status sequence_map(struct ul_old_node *node)
{
    struct ul_model_builder *builder = node->builder;
    if (!ul_sequence_is(ul_old_input(node, 0)) || node->graphs[0] == NULL) {
        ul_old_not_known(node, ul_old_input(node, 0),
                         "needs a sequence whose tensors are known, and a graph");
        return UL_OK;
    }
    uint32_t count = ul_sequence_get(builder, node->inputs[0])->count;
    uint32_t width = node->output_count;
    ul_value_id *arguments = UL_NEW_ARRAY(builder->scratch, ul_value_id, node->input_count);
    ul_value_id *made = UL_NEW_ARRAY(builder->scratch, ul_value_id, width);
    ul_value_id *items = UL_NEW_ARRAY(builder->scratch, ul_value_id, (uint64_t)width * count);
    for (uint32_t i = 0; i < count; i++) {
        struct ul_graph_call call = {i, false, node->input_count, width, arguments, made};
        if (!find_arguments(node, i, arguments)) {
            ul_old_problem(node, "has a sequence that is shorter than its first");
            return UL_OK;
        }
        UL_TRY(ul_build_called(node, node->graphs[0], &call));
        for (uint32_t k = 0; k < width; k++)
            items[(uint64_t)k * count + i] = made[k];
    }
    for (uint32_t k = 0; k < width; k++)
        node->results[k] = ul_builder_add_sequence(builder, items + (uint64_t)k * count, count);
    node->finished = true;
    return UL_OK;
}

/* ---- Loop ---- */

/* Reads a constant that is one number or truth value; false where it is none. */
static bool read_constant(struct ul_old_node *node, ul_value_id value, int64_t *number)
{
    if (value >= UL_SEQUENCE_FIRST) /* also none at all */
        return false;
    const struct ul_tensor *tensor = ul_old_tensor(node, value);
    if (tensor == NULL || ul_type_elements(&tensor->type) != 1 ||
        ul_dtype_get(tensor->type.dtype)->is_float)
        return false;
    *number = ul_tensor_get_int(tensor, 0);
    return true;
}

/* Reads the first two inputs, which may be missing. Returns one that is no constant, or UL_NONE. */
static ul_value_id read_trip(struct ul_old_node *node, int64_t *limit, int64_t *goes_on)
{
    ul_value_id trip = ul_old_input(node, 0), condition = ul_old_input(node, 1);
    *limit = INT64_MAX;
    *goes_on = 1;
    if (trip != UL_NONE && !read_constant(node, trip, limit))
        return trip;
    return condition == UL_NONE || read_constant(node, condition, goes_on) ? UL_NONE : condition;
}

/* Runs the Loop's iterations: `carried` holds the values that they carry, and in the end those of
 * the last one. *unknown is a value that would have to be a constant, or UL_NONE. */
static enum ul_status run_loop(struct ul_old_node *node, ul_value_id *carried, uint32_t width,
                               ul_value_id *unknown)
{
    struct ul_model_builder *builder = node->builder;
    ul_value_id *arguments = UL_NEW_ARRAY(builder->scratch, ul_value_id, (uint64_t)width + 2);
    ul_value_id *made = UL_NEW_ARRAY(builder->scratch, ul_value_id, (uint64_t)width + 1);
    int64_t limit, goes_on;
    *unknown = read_trip(node, &limit, &goes_on);
    for (uint32_t i = 0; *unknown == UL_NONE && goes_on != 0 && i < limit; i++) {
        struct ul_graph_call call = {i, true, width + 2, width + 1, arguments, made};
        arguments[0] = ul_old_const(node, UL_I64, ul_row_int(i));
        arguments[1] = ul_old_const(node, UL_BOOL, ul_row_int(1));
        memcpy(arguments + 2, carried, sizeof *carried * width);
        UL_TRY(ul_build_called(node, node->graphs[0], &call));
        memcpy(carried, made + 1, sizeof *carried * width);
        *unknown = read_constant(node, made[0], &goes_on) ? UL_NONE : made[0];
    }
    return UL_OK;
}

static enum ul_status loop_over_sequences(struct ul_old_node *node)
{
    uint32_t width = node->input_count - 2;
    ul_value_id *carried = UL_NEW_ARRAY(node->builder->scratch, ul_value_id, width);
    ul_value_id unknown = UL_NONE;
    if (node->graphs[0] == NULL || node->graphs[0]->n_output != (size_t)width + 1 ||
        node->output_count > width) {
        ul_old_problem(node, "carries a sequence, and also stacks what its iterations make; insert "
                             "that into a sequence instead");
        return UL_OK;
    }
    memcpy(carried, node->inputs + 2, sizeof *carried * width);
    UL_TRY(run_loop(node, carried, width, &unknown));
    if (unknown != UL_NONE) {
        ul_old_not_known(node, unknown,
                         "carries a sequence, so that the number of its iterations has to be "
                         "known: its first two inputs, and the condition that its graph makes, "
                         "must be constants");
        return UL_OK;
    }
    memcpy(node->results, carried, sizeof *carried * node->output_count);
    node->finished = true;
    return UL_OK;
}

/* ---- If ---- */

static enum ul_status branch_with_sequences(struct ul_old_node *node)
{
    int64_t truth;
    if (!read_constant(node, ul_old_input(node, 0), &truth)) {
        ul_old_not_known(node, ul_old_input(node, 0),
                         "makes a sequence, so that the branch has to be known: its condition "
                         "must be a constant");
        return UL_OK;
    }
    const Onnx__GraphProto *branch = node->graphs[truth != 0 ? 0 : 1];
    struct ul_graph_call call = {.makes_sequences = true, .output_count = node->output_count};
    call.outputs = node->results;
    if (branch == NULL) {
        ul_old_problem(node, "lacks a branch");
        return UL_OK;
    }
    UL_TRY(ul_build_called(node, branch, &call));
    node->finished = true;
    return UL_OK;
}

/* Whether a graph declares an output as a sequence. */
static bool makes_sequence(const Onnx__GraphProto *graph)
{
    for (size_t i = 0; graph != NULL && i < graph->n_output; i++) {
        const Onnx__TypeProto *type = graph->output[i]->type;
        if (type != NULL && type->value_case == ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE)
            return true;
    }
    return false;
}

/* An input of the Loop that is no known sequence though its graph declares one; UL_NONE: there is
 * none. */
static ul_value_id find_unknown_sequence(const struct ul_old_node *node)
{
    const Onnx__GraphProto *body = node->graphs[0];
    for (uint32_t i = 2; body != NULL && i < node->input_count && i < body->n_input; i++) {
        const Onnx__TypeProto *type = body->input[i]->type;
        if (type != NULL && type->value_case == ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE &&
            !ul_sequence_is(node->inputs[i]))
            return node->inputs[i];
    }
    return UL_NONE;
}

enum ul_status ul_sequence_graphs(struct ul_old_node *node)
{
    bool takes_sequence = false;
    for (uint32_t i = 0; i < node->input_count; i++)
        takes_sequence |= ul_sequence_is(node->inputs[i]);
    if (strcmp(node->op, "SequenceMap") == 0)
        return sequence_map(node);
    if (strcmp(node->op, "Loop") == 0 && find_unknown_sequence(node) != UL_NONE) {
        ul_old_not_known(node, find_unknown_sequence(node),
                         "carries a sequence whose tensors are not known");
        return UL_OK;
    }
    if (strcmp(node->op, "Loop") == 0 && takes_sequence && node->input_count > 2)
        return loop_over_sequences(node);
    if (strcmp(node->op, "If") == 0 && makes_sequence(node->graphs[0]))
        return branch_with_sequences(node);
    return UL_OK;
}
