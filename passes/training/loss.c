/* SPDX-License-Identifier: Apache-2.0 */
/* The loss of a training graph: nodes after the model's output, which is no output any more.
 *
 * Labels are an input. For classes they have the shape of the logits less the class axis: axis 1 if
 * that shape could be meant (as in ONNX), else the last; a shape that serves both is decided by
 * --class-axis. Means are over all elements; for classes, over the labels that are not ignored. */
#include "ir/infer.h"
#include "ir/op.h"
#include "ir/op_names.h"
#include "passes/training/loss_internal.h"
#include "passes/training/reverse.h"

#include <string.h>

static ul_value_id add_labels(struct ul_loss_job *loss, const struct ul_type *type)
{
    ul_value_id labels = ul_graph_add_value(loss->graph, UL_TRAINING_LABELS, UL_VALUE_INPUT, type);
    ul_block_add_input(loss->graph, 0, labels);
    return labels;
}

/* ---- Losses of numbers ---- */

/* How many rows of the output one sample has, since one dimension may hold samples and places. 0:
 * its first dimension counts no samples. */
static int64_t rows_of_sample(const struct ul_loss_job *loss, const struct ul_type *type)
{
    const struct ul_graph *graph = loss->graph;
    const struct ul_type *data = &graph->values[ul_graph_only_root(graph)->inputs[0]].type;
    if (type->rank == 0 || data->rank == 0 || data->dims[0] < 1 ||
        type->dims[0] % data->dims[0] != 0)
        return 0;
    return type->dims[0] / data->dims[0];
}

/* The mean over the elements of the samples that count; others fill the batch up. */
static void add_mean(struct ul_loss_job *loss, ul_value_id each)
{
    struct ul_gradient *make = &loss->make;
    const struct ul_type type = ul_gradient_type(make, each);
    struct ul_type row = ul_type_make(UL_F64, type.rank, type.dims);
    int64_t rows = rows_of_sample(loss, &type);
    double elements = (double)ul_type_elements(&type);
    if (rows == 0) {
        loss->sum = ul_loss_sum(make, each);
        loss->weight = ul_build_number_like(&make->build, loss->sum, elements);
        return;
    }
    for (uint32_t d = 1; d < row.rank; d++)
        row.dims[d] = 1;
    double *numbers = UL_NEW_ARRAY(make->scratch, double, (uint64_t)row.dims[0]);
    for (int64_t i = 0; i < row.dims[0]; i++)
        numbers[i] = (double)(i / rows);
    ul_value_id samples = ul_update_number(make, UL_STEP_SAMPLES);
    ul_value_id counts = ul_build_binary(&make->build, UL_OP_Less,
                                         ul_build_numbers(&make->build, &row, numbers), samples);
    each = ul_build_choose(&make->build, counts, each, ul_build_number_like(&make->build, each, 0));
    loss->sum = ul_loss_sum(make, each);
    loss->weight = ul_build_cast(
        &make->build,
        ul_build_scale(&make->build, samples, elements * (double)rows / (double)type.dims[0]),
        type.dtype);
}

static void add_mse(struct ul_loss_job *loss, ul_value_id output)
{
    struct ul_gradient *make = &loss->make;
    const struct ul_type type = ul_gradient_type(make, output);
    ul_value_id error = ul_build_binary(&make->build, UL_OP_Sub, output, add_labels(loss, &type));
    add_mean(loss, ul_build_binary(&make->build, UL_OP_Mul, error, error));
}

/* log(1 + exp(x)) - x t, with logits x and labels t. */
static void add_bce(struct ul_loss_job *loss, ul_value_id output)
{
    struct ul_gradient *make = &loss->make;
    const struct ul_type type = ul_gradient_type(make, output);
    ul_value_id labels = add_labels(loss, &type);
    ul_value_id softplus = ul_build_unary(&make->build, UL_OP_Softplus, output);
    ul_value_id product = ul_build_binary(&make->build, UL_OP_Mul, output, labels);
    add_mean(loss, ul_build_binary(&make->build, UL_OP_Sub, softplus, product));
}

/* ---- Losses of classes ---- */

/* "[4,6]": the labels of such logits. */
static const char *labels_shape(const struct ul_loss_job *loss, const struct ul_type *type,
                                uint32_t axis)
{
    struct ul_text text;
    ul_text_init(&text, loss->pass->scratch);
    for (uint32_t d = 0; d < type->rank; d++)
        if (d != axis)
            ul_text_printf(&text, "%s%lld", d == 0 ? "[" : ",", (long long)type->dims[d]);
    ul_text_put(&text, "]");
    return text.data;
}

static enum ul_status ask_class_axis(const struct ul_loss_job *loss, const struct ul_type *type)
{
    uint32_t last = type->rank - 1;
    return ul_diag_set(loss->pass->diag, UL_USAGE,
                       "--loss softmax-cross-entropy: the output has %u dimensions; say which one "
                       "the classes are: --class-axis 1, as ONNX has images (%lld classes, labels "
                       "%s), or --class-axis -1, as text has tokens (%lld classes, labels %s)",
                       (unsigned)type->rank, (long long)type->dims[1], labels_shape(loss, type, 1),
                       (long long)type->dims[last], labels_shape(loss, type, last));
}

/* Where the caller does not say it: dimension 1, or the last where that has one element alone.
 * UL_TRAINING_AXIS_OPEN: either makes sense, and means something else. */
static int64_t default_class_axis(const struct ul_type *type)
{
    uint32_t last = type->rank - 1;
    if (last == 1 || type->dims[last] == 1)
        return 1;
    return type->dims[1] == 1 ? (int64_t)last : UL_TRAINING_AXIS_OPEN;
}

/* Which dimension of the logits are the classes. */
static enum ul_status find_class_axis(const struct ul_loss_job *loss, const struct ul_type *type,
                                      uint32_t *axis)
{
    int64_t asked = loss->training->class_axis;
    if (type->rank < 2)
        return ul_diag_set(loss->pass->diag, UL_USAGE,
                           "--loss softmax-cross-entropy: the output has %u dimensions; it needs "
                           "samples and classes",
                           (unsigned)type->rank);
    if (asked == UL_TRAINING_AXIS_OPEN)
        asked = default_class_axis(type);
    if (asked == UL_TRAINING_AXIS_OPEN)
        return ask_class_axis(loss, type);
    if (asked < 0)
        asked += type->rank;
    if (asked < 1 || asked >= (int64_t)type->rank)
        return ul_diag_set(loss->pass->diag, UL_USAGE,
                           "--class-axis: the output has dimensions 1 to %u beside its samples",
                           (unsigned)type->rank - 1);
    *axis = (uint32_t)asked;
    return UL_OK;
}

/* A softmax of a softmax trains, slowly; nobody means it. */
static enum ul_status check_logits(const struct ul_loss_job *loss, ul_value_id output)
{
    const struct ul_graph *graph = loss->graph;
    const struct ul_node *node = &graph->nodes[graph->values[output].producer];
    if (node->op != UL_OP_Softmax)
        return UL_OK;
    return ul_diag_set(loss->pass->diag, UL_USAGE,
                       "--loss softmax-cross-entropy takes logits, and the output %s is a Softmax "
                       "of %s already; cut the model there: --output %s",
                       ul_quote(loss->pass->scratch, graph->values[output].name),
                       ul_quote(loss->pass->scratch, graph->values[node->inputs[0]].name),
                       ul_quote(loss->pass->scratch, graph->values[node->inputs[0]].name));
}

/* The weights of classes in the type of the scores; UL_NONE: there are none. */
static enum ul_status add_class_weights(struct ul_loss_job *loss, enum ul_dtype dtype,
                                        int64_t classes, ul_value_id *weights)
{
    const struct ul_tensor *given = loss->training->class_weights;
    struct ul_graph *graph = loss->graph;
    uint32_t size_bytes = ul_dtype_get(dtype)->size_bytes;
    *weights = UL_NONE;
    if (given == NULL)
        return UL_OK;
    if (given->type.dims[0] != classes)
        return ul_diag_set(loss->pass->diag, UL_USAGE,
                           "--class-weights: %lld numbers for %lld classes",
                           (long long)given->type.dims[0], (long long)classes);
    unsigned char *data = UL_NEW_ARRAY(graph->arena, unsigned char, (uint64_t)classes *size_bytes);
    for (int64_t i = 0; i < classes; i++)
        ul_element_put_float(data + (uint64_t)i * size_bytes, dtype,
                             ul_tensor_get_float(given, (uint64_t)i));
    const struct ul_type type = ul_type_make(dtype, 1, &classes);
    *weights =
        ul_graph_add_weight(graph, "class weights", ul_tensor_new(graph->arena, &type, data));
    return UL_OK;
}

/* One node makes the mean; where runs of a step are added up, their sum. */
static void add_whole(struct ul_loss_job *loss, const ul_value_id inputs[3])
{
    struct ul_gradient *make = &loss->make;
    bool has_parts = loss->training->micro_batches > 1;
    enum ul_dtype dtype = ul_gradient_type(make, inputs[0]).dtype;
    ul_node_id node = ul_loss_begin_cross_entropy(loss, UL_OP_SoftmaxCrossEntropyLoss, inputs,
                                                  inputs[2] != UL_NONE ? 3 : 2);
    if (has_parts)
        ul_node_set_string(loss->graph, node, "reduction", "sum");
    loss->sum = ul_build_infer(&make->build, node);
    if (has_parts)
        loss->weight = ul_loss_weigh(loss, inputs[1], inputs[2], dtype);
    loss->correct = ul_loss_count_correct(loss, inputs[0], inputs[1]);
}

/* Classes last, samples in all dimensions before: [samples, classes] and [samples]. */
static enum ul_status add_cross_entropy(struct ul_loss_job *loss, ul_value_id output)
{
    struct ul_graph *graph = loss->graph;
    struct ul_type type = graph->values[output].type, labels_type = type;
    ul_value_id inputs[3] = {output};
    uint32_t axis = 0;
    UL_TRY(check_logits(loss, output));
    UL_TRY(find_class_axis(loss, &type, &axis));
    loss->training->class_count = (uint32_t)type.dims[axis];
    labels_type.dtype = UL_I64;
    labels_type.rank = type.rank - 1;
    for (uint32_t d = axis; d < labels_type.rank; d++)
        labels_type.dims[d] = type.dims[d + 1];
    inputs[1] = add_labels(loss, &labels_type);
    if (axis != 1 && axis + 1 != type.rank)
        return ul_diag_set(loss->pass->diag, UL_UNSUPPORTED,
                           "--class-axis %u: classes are dimension 1 or the last one; transpose "
                           "the output",
                           (unsigned)axis);
    const int64_t flat[2] = {(int64_t)ul_type_elements(&labels_type), type.dims[axis]};
    bool is_last = axis + 1 == type.rank;
    if (is_last && type.rank > 2)
        inputs[1] = ul_build_reshape(&loss->make.build, inputs[1], 1, flat);
    UL_TRY(add_class_weights(loss, type.dtype, type.dims[axis], &inputs[2]));
    if (is_last && inputs[2] == UL_NONE && ul_loss_add_tiles(loss, output, inputs[1]))
        return UL_OK;
    if (is_last && ul_loss_add_pieces(loss, output, inputs[1], inputs[2]))
        return UL_OK;
    if (is_last && type.rank > 2)
        inputs[0] = ul_build_reshape(&loss->make.build, output, 2, flat);
    add_whole(loss, inputs);
    return UL_OK;
}

/* The output that the loss takes: the only one, or the one that is named. */
static enum ul_status find_output(const struct ul_loss_job *loss, ul_value_id *found)
{
    const struct ul_block *block = ul_graph_only_root(loss->graph);
    const char *name = loss->training->loss_output;
    struct ul_text list;
    uint32_t count = 0; /* but states, which are no results */
    ul_text_init(&list, loss->pass->scratch);
    for (uint32_t i = 0; i < block->output_count; i++)
        count += loss->graph->values[block->outputs[i]].donor == UL_NONE;
    for (uint32_t i = 0; i < block->output_count; i++) {
        const char *own = loss->graph->values[block->outputs[i]].name;
        if (loss->graph->values[block->outputs[i]].donor != UL_NONE)
            continue;
        *found = block->outputs[i];
        if (name != NULL ? strcmp(own, name) == 0 : count == 1)
            return UL_OK;
        ul_text_printf(&list, "%s%s", i == 0 ? "" : ", ", ul_quote(loss->pass->scratch, own));
    }
    if (name != NULL)
        return ul_diag_set(loss->pass->diag, UL_USAGE,
                           "--loss output:%s: there is no such output; there are %s", name,
                           list.data);
    return ul_diag_set(loss->pass->diag, UL_USAGE,
                       "--loss takes the model's only output, and there are %s; cut the model at "
                       "one with --output NAME",
                       list.data);
}

/* Where a chain of first inputs in front of the output is a float still, for messages; NULL:
 * nowhere.
 */
static const char *find_float(const struct ul_loss_job *loss, ul_value_id value)
{
    const struct ul_graph *graph = loss->graph;
    while (graph->values[value].kind == UL_VALUE_NODE) {
        const struct ul_node *node = &graph->nodes[graph->values[value].producer];
        if (node->input_count == 0 || node->inputs[0] == UL_NONE)
            return NULL;
        value = node->inputs[0];
        if (graph->values[value].kind == UL_VALUE_NODE &&
            ul_reverse_takes(graph->values[value].type.dtype))
            return graph->values[value].name;
    }
    return NULL;
}

/* A loss is of floats, and of some. */
static enum ul_status check_output(const struct ul_loss_job *loss, ul_value_id output)
{
    const struct ul_value *value = &loss->graph->values[output];
    const char *name = ul_quote(loss->pass->scratch, value->name), *other;
    const char *type = ul_type_text(loss->pass->scratch, &value->type);
    if (ul_type_elements(&value->type) == 0)
        return ul_diag_set(loss->pass->diag, UL_USAGE,
                           "--loss: the output %s is %s, which has no elements: nothing can be "
                           "learned of it; give its dimensions other sizes, or name another output "
                           "with --output NAME",
                           name, type);
    if (ul_reverse_takes(value->type.dtype))
        return UL_OK;
    other = find_float(loss, output);
    return ul_diag_set(loss->pass->diag, UL_USAGE,
                       "--loss: the output %s is %s, and gradients are of floats of 16 bits or "
                       "more; cut the model in front of what makes it so: --output %s",
                       name, type, other != NULL ? ul_quote(loss->pass->scratch, other) : "NAME");
}

static void add_result(struct ul_training *training, uint32_t output)
{
    UL_ASSERT(training->result_count < sizeof training->results / sizeof *training->results);
    training->results[training->result_count++] = output;
}

/* The outputs become the loss, what counts right answers, and the states: those of the model, and
 * from output `first_sum` on the sums that the loss is of. */
static void keep_states(struct ul_loss_job *job, ul_value_id loss, uint32_t first_sum)
{
    struct ul_graph *graph = job->graph;
    struct ul_block *block = ul_graph_only_root(graph);
    uint32_t count = block->output_count;
    ul_value_id *outputs = block->outputs;
    block->outputs = NULL;
    block->output_count = block->output_capacity = 0;
    ul_block_add_output(graph, 0, loss);
    if (job->correct != UL_NONE)
        ul_block_add_output(graph, 0, job->correct);
    job->training->result_count = 0;
    for (uint32_t i = 0; i < block->output_count; i++)
        add_result(job->training, i);
    for (uint32_t i = 0; i < count; i++) {
        if (graph->values[outputs[i]].donor == UL_NONE)
            continue;
        if (i >= first_sum)
            add_result(job->training, block->output_count);
        ul_block_add_output(graph, 0, outputs[i]);
    }
}

/* The sum over its weight. With micro-batches, both of all runs of the step so far: sums are what
 * gradients are of, until the update divides them by the weight of all. */
static ul_value_id add_quotient(struct ul_loss_job *loss)
{
    struct ul_training *training = loss->training;
    struct ul_gradient *make = &loss->make;
    const struct ul_type type = ul_gradient_type(make, loss->sum);
    training->loss_sum = loss->sum;
    if (training->micro_batches > 1 && ul_dtype_get(type.dtype)->is_float) {
        if (loss->weight == UL_NONE)
            loss->weight = ul_build_number_like(&make->build, loss->sum, 1);
        loss->sum = ul_update_accumulate(make, UL_TRAINING_LOSS_SUM, loss->sum);
        loss->weight = ul_update_accumulate(make, UL_TRAINING_LOSS_WEIGHT, loss->weight);
        training->loss_weight = loss->weight;
    }
    if (loss->weight == UL_NONE)
        return loss->sum;
    make->build.name = UL_TRAINING_LOSS;
    return ul_build_binary(&make->build, UL_OP_Div, loss->sum, loss->weight);
}

enum ul_status ul_pass_loss(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    struct ul_loss_job loss = {
        .pass = pass,
        .graph = graph,
        .training = pass->options->training,
        .make = {.graph = graph, .scratch = pass->scratch, .diag = pass->diag},
        .sum = UL_NONE,
        .weight = UL_NONE,
        .correct = UL_NONE};
    ul_value_id output = UL_NONE;
    ul_gradient_set_place(&loss.make, ul_build_last(graph, 0, UL_TRAINING_LOSS));
    loss.training->piece_count = 0;
    UL_TRY(find_output(&loss, &output));
    if (graph->values[output].kind != UL_VALUE_NODE || graph->values[output].donor != UL_NONE)
        return ul_diag_set(pass->diag, UL_USAGE, "--loss: the output %s is computed from nothing",
                           ul_quote(pass->scratch, graph->values[output].name));
    UL_TRY(check_output(&loss, output));
    ul_gradient_set_node(&loss.make, graph->values[output].producer);
    switch (loss.training->loss) {
    case UL_LOSS_CROSS_ENTROPY:
        UL_TRY(add_cross_entropy(&loss, output));
        break;
    case UL_LOSS_MSE:
        add_mse(&loss, output);
        break;
    case UL_LOSS_BCE:
        add_bce(&loss, output);
        break;
    case UL_LOSS_OUTPUT:
        loss.sum = output;
        break;
    }
    UL_ASSERT(loss.sum != UL_NONE);
    uint32_t first_sum = ul_graph_only_root(graph)->output_count;
    ul_value_id made = add_quotient(&loss);
    graph->values[made].name = UL_TRAINING_LOSS;
    if (loss.correct != UL_NONE)
        graph->values[loss.correct].name = UL_TRAINING_CORRECT;
    keep_states(&loss, made, first_sum);
    return UL_OK;
}
