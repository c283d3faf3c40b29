/* SPDX-License-Identifier: Apache-2.0 */
/* BatchNormalization, Dropout and random tensors as training computes them. The first
 * takes statistics of the batch, and keeps running ones that are written once a step.
 *
 *      y = BatchNormalization(x, scale, bias, running_mean, running_var)
 *
 *      mean, variance = Moments(x)       the running ones where the step evaluates
 *      y = Normalize(x, mean, scale / sqrt(variance + epsilon), bias)
 *      running_mean' = momentum running_mean + (1 - momentum) mean       overwrites running_mean
 *      running_var' = momentum running_var + (1 - momentum) variance n / (n - 1)
 *
 * The running variance is the unbiased one, as torch has it. Nodes that were exported for inference
 * stay so where nothing of them is trained; else --train-mode turns them back, or the model is to
 * be exported anew.
 *
 * Dropout and random tensors are drawn anew in each step, by the step's key (ir/ops/random/drop.c).
 */
#include "ir/op.h"
#include "ir/op_names.h"
#include "passes/passes_internal.h"
#include "passes/training/update.h"

#include <stdlib.h>

struct modes {
    struct ul_pass *pass;
    struct ul_graph *graph;
    struct ul_gradient make; /* what nodes are built with */
    const uint32_t *uses;    /* per value */
    ul_value_id key;         /* of the step's random numbers; UL_NONE: not made yet */
};

static void build_before(struct modes *modes, ul_node_id node)
{
    ul_gradient_set_node(&modes->make, node);
    ul_gradient_set_place(&modes->make, ul_build_before(modes->graph, node));
}

/* A running statistic is a state of its own: no other node may read it and see it change, or change
 * it too. */
static enum ul_status own_state(const struct modes *modes, ul_node_id node, uint32_t input,
                                ul_value_id *state)
{
    struct ul_graph *graph = modes->graph;
    *state = graph->nodes[node].inputs[input];
    if (modes->uses[*state] > 1)
        return ul_diag_set(modes->pass->diag, UL_UNSUPPORTED,
                           "%s: other nodes read its running statistic %s too; give each "
                           "BatchNormalization an initializer of its own",
                           ul_node_describe(graph, node, modes->pass->scratch),
                           ul_quote(modes->pass->scratch, graph->values[*state].name));
    graph->values[*state].flags |= UL_VALUE_PERSISTENT;
    return UL_OK;
}

/* The running statistic follows `current`, which has the same shape, except for dimensions of 1. */
static enum ul_status add_running(struct modes *modes, ul_node_id node, uint32_t input,
                                  ul_value_id current, double momentum, double correction)
{
    struct ul_graph *graph = modes->graph;
    struct ul_gradient *make = &modes->make;
    if (graph->values[graph->nodes[node].inputs[input]].kind != UL_VALUE_WEIGHT)
        return UL_OK; /* computed by the model: nothing to keep */
    ul_value_id state, pending = UL_NONE;
    UL_TRY(own_state(modes, node, input, &state));
    if (input == 4)
        graph->values[state].flags |= UL_VALUE_SQUARES;
    const struct ul_type type = graph->values[state].type;
    current = ul_build_reshape(&make->build, current, type.rank, type.dims);
    ul_value_id old = ul_update_pending(make, modes->pass->options->training, state, &pending);
    ul_value_id kept = ul_build_scale(&make->build, old, momentum);
    ul_value_id moved = ul_build_scale(&make->build, current, (1 - momentum) * correction);
    ul_value_id next = ul_build_binary(&make->build, UL_OP_Add, kept, moved);
    if (pending != UL_NONE)
        ul_edit_add_next(graph, next, pending);
    ul_edit_add_next(graph,
                     pending != UL_NONE ? ul_build_unary(&make->build, UL_OP_Identity, next) : next,
                     state);
    return UL_OK;
}

/* A vector with a number for each channel, in a shape that broadcasts with x. */
static ul_value_id along_channels(struct modes *modes, ul_value_id vector, const struct ul_type *x)
{
    struct ul_type type = *x;
    for (uint32_t d = 0; d < type.rank; d++)
        type.dims[d] = d == 1 ? x->dims[d] : 1;
    return ul_build_reshape(&modes->make.build, vector, type.rank, type.dims);
}

/* The number that somebody wrote where ONNX has a float: the shortest decimal that rounds to it. */
static double decimal_of(double number)
{
    char text[32];
    double decimal = number;
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        decimal = strtod(text, NULL);
        if ((float)decimal >= (float)number && (float)decimal <= (float)number)
            break;
    }
    return decimal;
}

/* Removes the value from the model's outputs; gives how often it was one. */
static uint32_t take_output(struct ul_block *block, ul_value_id value)
{
    uint32_t kept = 0, count = block->output_count;
    for (uint32_t i = 0; i < count; i++)
        if (block->outputs[i] != value)
            block->outputs[kept++] = block->outputs[i];
    block->output_count = kept;
    return count - kept;
}

/* Running statistics are states, so they are no outputs of the model; nothing else may read
 * them. */
static enum ul_status drop_outputs(struct modes *modes, ul_node_id id)
{
    struct ul_graph *graph = modes->graph;
    struct ul_node *node = &graph->nodes[id];
    for (uint32_t i = 1; i < node->output_count; i++) {
        ul_value_id value = node->outputs[i];
        if (value == UL_NONE)
            continue;
        if (modes->uses[value] > take_output(ul_graph_only_root(graph), value))
            return ul_diag_set(modes->pass->diag, UL_UNSUPPORTED,
                               "%s: its running statistics are read by other nodes, which training "
                               "does not support",
                               ul_node_describe(graph, id, modes->pass->scratch));
        graph->values[value].kind = UL_VALUE_DEAD;
    }
    node->output_count = 1;
    return UL_OK;
}

static enum ul_status rewrite(struct modes *modes, ul_node_id id)
{
    struct ul_graph *graph = modes->graph;
    if (!ul_graph_is_root(graph, graph->nodes[id].parent))
        return ul_diag_set(modes->pass->diag, UL_UNSUPPORTED,
                           "%s is in a branch or the body of a loop, where training does not write "
                           "running statistics; export the model for inference and --freeze its "
                           "scale and bias",
                           ul_node_describe(graph, id, modes->pass->scratch));
    UL_TRY(drop_outputs(modes, id));
    const struct ul_node old = graph->nodes[id];
    const struct ul_type type = graph->values[old.inputs[0]].type;
    double momentum = decimal_of(ul_node_get_float(&old, "momentum", 0.9));
    double epsilon = decimal_of(ul_node_get_float(&old, "epsilon", 1e-5));
    double count = (double)ul_type_elements(&type) / (double)type.dims[1];
    if (!(count > 1))
        return ul_diag_set(modes->pass->diag, UL_USAGE,
                           "%s: a channel has fewer than two values in a batch, of which there is "
                           "no variance; compile the model for more samples",
                           ul_node_describe(graph, id, modes->pass->scratch));
    build_before(modes, id);
    const ul_value_id given[4] = {old.inputs[0], old.inputs[3], old.inputs[4],
                                  ul_update_step(graph)};
    struct ul_gradient *make = &modes->make;
    ul_node_id moments = ul_build_node(&make->build, UL_OP_Moments, given, 4, 2);
    ul_value_id mean = ul_build_infer(&make->build, moments);
    ul_value_id variance = graph->nodes[moments].outputs[1];
    ul_value_id spread = ul_build_binary(&make->build, UL_OP_Add, variance,
                                         ul_build_number(graph, "epsilon", type.dtype, 0, epsilon));
    spread = ul_build_unary(&make->build, UL_OP_Sqrt, spread);
    ul_value_id factor = ul_build_binary(&make->build, UL_OP_Div,
                                         along_channels(modes, old.inputs[1], &type), spread);
    const ul_value_id inputs[4] = {old.inputs[0], mean, factor,
                                   along_channels(modes, old.inputs[2], &type)};
    UL_TRY(add_running(modes, id, 3, mean, momentum, 1));
    UL_TRY(add_running(modes, id, 4, variance, momentum, count / (count - 1)));
    modes->pass->options->training->has_batch_statistics = true;
    ul_node_become(graph, id, UL_OP_Normalize, inputs, 4);
    return UL_OK;
}

static bool is_trained(const struct ul_graph *graph, const struct ul_node *node, uint32_t input)
{
    return (graph->values[node->inputs[input]].flags & UL_VALUE_TRAINED) != 0;
}

static enum ul_status refuse(const struct modes *modes, ul_node_id node)
{
    return ul_diag_set(modes->pass->diag, UL_USAGE,
                       "%s normalizes by running statistics, as in inference, and its scale and "
                       "bias are to be trained; give --train-mode to use statistics of the batch "
                       "(also of what torch writes by " UL_TRAINING_RECIPE
                       "), or --freeze its parameters to keep it as it is",
                       ul_node_describe(modes->graph, node, modes->pass->scratch));
}

/* ---- Dropout ---- */

/* The key of the step's random numbers. It is made before all nodes, since branches and bodies may
 * draw too. */
static ul_value_id step_key(struct modes *modes, ul_node_id before)
{
    if (modes->key == UL_NONE) {
        build_before(modes, ul_graph_only_root(modes->graph)->nodes[0]);
        modes->key =
            ul_build_unary(&modes->make.build, UL_OP_StepKey, ul_update_step(modes->graph));
    }
    build_before(modes, before);
    return modes->key;
}

/* The one number of an input, where it is known. */
static bool is_constant(const struct ul_graph *graph, const struct ul_node *node, uint32_t input,
                        double otherwise, double *number)
{
    const struct ul_tensor *tensor = NULL;
    *number = otherwise;
    if (node->input_count <= input || node->inputs[input] == UL_NONE)
        return true;
    tensor = ul_graph_get_constant(graph, node->inputs[input]);
    if (tensor != NULL)
        *number = tensor->type.dtype == UL_BOOL ? (double)ul_tensor_get_int(tensor, 0)
                                                : ul_tensor_get_float(tensor, 0);
    return tensor != NULL;
}

static enum ul_status refuse_dropout(const struct modes *modes, ul_node_id node)
{
    return ul_diag_set(modes->pass->diag, UL_USAGE,
                       "%s was exported for inference, or by an input that says so; give "
                       "--train-mode, or export the model as it is trained (" UL_TRAINING_RECIPE
                       ")",
                       ul_node_describe(modes->graph, node, modes->pass->scratch));
}

static enum ul_status rewrite_dropout(struct modes *modes, ul_node_id id)
{
    struct ul_graph *graph = modes->graph;
    const struct ul_node old = graph->nodes[id];
    double ratio, trains = 0;
    if (!is_constant(graph, &old, 1, 0.5, &ratio) || old.output_count > 1)
        return ul_diag_set(modes->pass->diag, UL_UNSUPPORTED,
                           "%s: its ratio must be a constant, and its mask unused, to train it",
                           ul_node_describe(graph, id, modes->pass->scratch));
    bool known = is_constant(graph, &old, 2, 0, &trains);
    if ((!known || !(trains > 0)) && !modes->pass->options->training->train_mode)
        return refuse_dropout(modes, id);
    const ul_value_id inputs[2] = {old.inputs[0], step_key(modes, id)};
    ul_node_become(graph, id, UL_OP_Drop, inputs, 2);
    ul_node_set_float(graph, id, "ratio", ratio);
    return UL_OK;
}

/* ---- random tensors ---- */

/* The operator that draws by the step's key what `op` draws; UL_OP_NONE: it draws nothing. */
static ul_op_id draw_of(ul_op_id op)
{
    if (op == UL_OP_RandomUniform || op == UL_OP_RandomUniformLike)
        return UL_OP_DrawUniform;
    if (op == UL_OP_RandomNormal || op == UL_OP_RandomNormalLike)
        return UL_OP_DrawNormal;
    return UL_OP_NONE;
}

/* 1 where a uniform number is below the probability. */
static void rewrite_bernoulli(struct modes *modes, ul_node_id id)
{
    struct ul_graph *graph = modes->graph;
    struct ul_gradient *make = &modes->make;
    const struct ul_node old = graph->nodes[id];
    const struct ul_type type = graph->values[old.inputs[0]].type;
    enum ul_dtype to = graph->values[old.outputs[0]].type.dtype;
    const ul_value_id key = step_key(modes, id);
    make->build.name = graph->values[old.outputs[0]].name; /* which the seed follows from */
    ul_node_id draw = ul_build_node(&make->build, UL_OP_DrawUniform, &key, 1, 1);
    ul_node_set_ints(graph, draw, "shape", type.dims, type.rank);
    ul_node_set_int(graph, draw, "dtype", (int64_t)type.dtype);
    ul_value_id below = ul_build_binary(&make->build, UL_OP_Less,
                                        ul_build_infer(&make->build, draw), old.inputs[0]);
    ul_node_become(graph, id, UL_OP_Cast, &below, 1);
    ul_node_set_int(graph, id, "to", (int64_t)to);
}

/* The attributes stay; what is drawn like another value is told its type. */
static void rewrite_draw(struct modes *modes, ul_node_id id, ul_op_id draw)
{
    struct ul_graph *graph = modes->graph;
    const struct ul_node old = graph->nodes[id];
    const struct ul_type type = graph->values[old.outputs[0]].type;
    const ul_value_id key = step_key(modes, id);
    ul_node_become(graph, id, draw, &key, 1);
    graph->nodes[id].attrs = old.attrs;
    graph->nodes[id].attr_count = old.attr_count;
    ul_node_set_ints(graph, id, "shape", type.dims, type.rank);
    ul_node_set_int(graph, id, "dtype", (int64_t)type.dtype);
}

/* The attributes stay. */
static void rewrite_multinomial(struct modes *modes, ul_node_id id)
{
    struct ul_graph *graph = modes->graph;
    const struct ul_node old = graph->nodes[id];
    const ul_value_id inputs[2] = {old.inputs[0], step_key(modes, id)};
    ul_node_become(graph, id, UL_OP_DrawMultinomial, inputs, 2);
    graph->nodes[id].attrs = old.attrs;
    graph->nodes[id].attr_count = old.attr_count;
}

/* A node as training computes it. */
static enum ul_status rewrite_node(struct modes *modes, ul_node_id id)
{
    const struct ul_node node = modes->graph->nodes[id]; /* the array moves */
    bool turns = modes->pass->options->training->train_mode;
    if (node.op == UL_OP_Dropout)
        return rewrite_dropout(modes, id);
    if (node.op == UL_OP_Bernoulli)
        rewrite_bernoulli(modes, id);
    if (node.op == UL_OP_Multinomial)
        rewrite_multinomial(modes, id);
    if (draw_of(node.op) != UL_OP_NONE)
        rewrite_draw(modes, id, draw_of(node.op));
    bool trains = node.op == UL_OP_BatchNormalizationTraining;
    if (!trains && node.op != UL_OP_BatchNormalization)
        return UL_OK;
    bool trained = is_trained(modes->graph, &node, 1) || is_trained(modes->graph, &node, 2);
    if (!trains && trained && !turns)
        return refuse(modes, id);
    return trains || trained ? rewrite(modes, id) : UL_OK;
}

enum ul_status ul_pass_modes(struct ul_pass *pass)
{
    struct modes modes = {
        .pass = pass,
        .graph = pass->graph,
        .make = {.graph = pass->graph, .scratch = pass->scratch, .diag = pass->diag},
        .key = UL_NONE};
    const struct ul_node_list nodes = ul_edit_all_nodes(pass->graph, pass->scratch);
    modes.uses = ul_graph_count_uses(pass->graph, pass->scratch);
    for (uint32_t i = 0; i < nodes.count; i++)
        UL_TRY(rewrite_node(&modes, nodes.nodes[i]));
    return UL_OK;
}
