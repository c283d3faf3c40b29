/* An optimizer's update of a parameter: one node, in place. */
#include "passes/update.h"

#include "ir/infer.h"
#include "ir/op.h"
#include "ir/training.h"

#include <string.h>

/* Of an optimizer: its operator and the names of its states in a checkpoint, as torch has them. */
struct row {
    enum ul_op op;
    uint32_t state_count;
    const char *states[2];
};
static const struct row rows[] = {
    [UL_OPTIMIZER_SGD] = {UL_OP_UpdateSGD, 0, {NULL, NULL}},
    [UL_OPTIMIZER_MOMENTUM] = {UL_OP_UpdateMomentum, 1, {"momentum", NULL}},
    [UL_OPTIMIZER_ADAM] = {UL_OP_UpdateAdam, 2, {"exp_avg", "exp_avg_sq"}},
    [UL_OPTIMIZER_ADAMW] = {UL_OP_UpdateAdam, 2, {"exp_avg", "exp_avg_sq"}},
    [UL_OPTIMIZER_LION] = {UL_OP_UpdateLion, 1, {"exp_avg", NULL}},
};

ul_value_id ul_update_step(struct ul_graph *graph)
{
    const int64_t dims[1] = {UL_STEP_NUMBERS};
    const struct ul_type type = ul_type_make(UL_F64, 1, dims);
    for (uint32_t i = 0; i < graph->blocks[0].input_count; i++)
        if (strcmp(graph->values[graph->blocks[0].inputs[i]].name, UL_TRAINING_STEP) == 0)
            return graph->blocks[0].inputs[i];
    ul_value_id step = ul_graph_add_value(graph, UL_TRAINING_STEP, UL_VALUE_INPUT, &type);
    ul_block_add_input(graph, 0, step);
    return step;
}

void ul_update_begin(struct ul_updates *updates, struct ul_pass *pass)
{
    *updates = (struct ul_updates){
        .pass = pass, .step = ul_update_step(pass->graph), .squares = UL_NONE, .factor = UL_NONE};
}

/* A state: zeros in the shape of the parameter. */
static ul_value_id add_state(struct ul_graph *graph, ul_value_id parameter, const char *name)
{
    const struct ul_value owner = graph->values[parameter];
    const unsigned char zero[sizeof((struct ul_tensor *)0)->splat] = {0};
    const char *full = ul_arena_printf(graph->arena, "%s/%s", owner.name, name);
    ul_value_id state =
        ul_graph_add_weight(graph, full, ul_tensor_new_splat(graph->arena, &owner.type, zero));
    graph->values[state].flags |= UL_VALUE_PERSISTENT | UL_VALUE_OPTIMIZER;
    return state;
}

static void set_attributes(struct ul_graph *graph, ul_node_id node,
                           const struct ul_training *training, bool decays)
{
    ul_node_set_float(graph, node, "clip_value", training->clip_value);
    ul_node_set_float(graph, node, "weight_decay", decays ? training->weight_decay : 0);
    switch (training->optimizer) {
    case UL_OPTIMIZER_SGD:
        break;
    case UL_OPTIMIZER_MOMENTUM:
        ul_node_set_float(graph, node, "momentum", training->momentum);
        ul_node_set_int(graph, node, "nesterov", training->nesterov);
        break;
    case UL_OPTIMIZER_ADAM:
    case UL_OPTIMIZER_ADAMW:
        ul_node_set_float(graph, node, "eps", training->eps);
        ul_node_set_int(graph, node, "decoupled", training->optimizer == UL_OPTIMIZER_ADAMW);
        ul_node_set_float(graph, node, "beta1", training->beta1);
        ul_node_set_float(graph, node, "beta2", training->beta2);
        break;
    case UL_OPTIMIZER_LION:
        ul_node_set_float(graph, node, "beta1", training->beta1);
        ul_node_set_float(graph, node, "beta2", training->beta2);
        break;
    }
}

static void add_update(struct ul_updates *updates, struct ul_build *build, ul_value_id parameter,
                       ul_value_id gradient)
{
    struct ul_graph *graph = updates->pass->graph;
    const struct ul_training *training = updates->pass->options->training;
    const struct row *row = &rows[training->optimizer];
    ul_value_id inputs[5] = {updates->step, parameter, gradient};
    for (uint32_t i = 0; i < row->state_count; i++)
        inputs[3 + i] = add_state(graph, parameter, row->states[i]);
    build->name = ul_arena_printf(graph->arena, "%s/update", graph->values[parameter].name);
    ul_node_id node =
        ul_build_node(build, row->op, inputs, 3 + row->state_count, 1 + row->state_count);
    bool decays = !training->no_decay_1d || graph->values[parameter].type.rank > 1;
    set_attributes(graph, node, training, decays);
    for (uint32_t i = 0; i <= row->state_count; i++) {
        ul_value_id made = graph->nodes[node].outputs[i];
        ul_value_id donor = i == 0 ? parameter : inputs[2 + i];
        graph->values[made].type = graph->values[donor].type;
        graph->values[made].donor = donor;
        graph->values[made].flags |= UL_VALUE_BACKWARD;
        graph->values[made].name =
            ul_arena_printf(graph->arena, "%s/next", graph->values[donor].name);
        ul_block_add_output(graph, 0, made);
    }
}

void ul_update_queue(struct ul_updates *updates, ul_value_id parameter, ul_value_id gradient)
{
    UL_GROW(updates->pass->scratch, updates->queue, updates->count, updates->capacity);
    updates->queue[updates->count++] = (struct ul_update){parameter, gradient};
}

static ul_value_id add_node(struct ul_updates *updates, struct ul_build *build, enum ul_op op,
                            ul_value_id a, ul_value_id b)
{
    const ul_value_id inputs[2] = {a, b};
    ul_node_id node = ul_build_node(build, op, inputs, b == UL_NONE ? 1 : 2, 1);
    struct ul_graph *graph = build->graph;
    if (op == UL_OP_ReduceSumSquare)
        ul_node_set_int(graph, node, "keepdims", 0);
    enum ul_status status = ul_node_infer(graph, node, updates->pass->scratch, updates->pass->diag);
    UL_ASSERT(status == UL_OK);
    graph->values[graph->nodes[node].outputs[0]].flags |= UL_VALUE_BACKWARD;
    return graph->nodes[node].outputs[0];
}

/* A number, in this type. */
static ul_value_id as_type(struct ul_updates *updates, struct ul_build *build, ul_value_id number,
                           enum ul_dtype dtype)
{
    struct ul_graph *graph = build->graph;
    if (graph->values[number].type.dtype == dtype)
        return number;
    ul_node_id node = ul_build_node(build, UL_OP_Cast, &number, 1, 1);
    ul_node_set_int(graph, node, "to", dtype);
    enum ul_status status = ul_node_infer(graph, node, updates->pass->scratch, updates->pass->diag);
    UL_ASSERT(status == UL_OK);
    graph->values[graph->nodes[node].outputs[0]].flags |= UL_VALUE_BACKWARD;
    return graph->nodes[node].outputs[0];
}

static void add_squares(struct ul_updates *updates, struct ul_build *build)
{
    struct ul_graph *graph = build->graph;
    build->name = "clip-norm";
    for (uint32_t i = 0; i < updates->count; i++) {
        ul_value_id square =
            add_node(updates, build, UL_OP_ReduceSumSquare, updates->queue[i].gradient, UL_NONE);
        ul_value_id sum = updates->squares;
        if (sum != UL_NONE)
            square = as_type(updates, build, square, graph->values[sum].type.dtype);
        updates->squares =
            sum == UL_NONE ? square : add_node(updates, build, UL_OP_Add, sum, square);
    }
}

/* limit / (norm of all gradients + 1e-6), at most 1, as torch.nn.utils.clip_grad_norm_ has it. */
static void add_factor(struct ul_updates *updates, struct ul_build *build)
{
    struct ul_graph *graph = build->graph;
    double limit = updates->pass->options->training->clip_norm;
    UL_ASSERT(updates->squares != UL_NONE && updates->factor == UL_NONE && limit > 0);
    enum ul_dtype dtype = graph->values[updates->squares].type.dtype;
    build->name = "clip-norm";
    ul_value_id norm = add_node(updates, build, UL_OP_Sqrt, updates->squares, UL_NONE);
    norm = add_node(updates, build, UL_OP_Add, norm, ul_build_number(graph, "", dtype, 0, 1e-6));
    ul_value_id factor =
        add_node(updates, build, UL_OP_Div, ul_build_number(graph, "", dtype, 0, limit), norm);
    updates->factor =
        add_node(updates, build, UL_OP_Min, factor, ul_build_number(graph, "", dtype, 0, 1));
}

/* The gradient as the optimizer takes it. */
static ul_value_id clipped(struct ul_updates *updates, struct ul_build *build, ul_value_id gradient)
{
    if (updates->factor == UL_NONE)
        return gradient;
    enum ul_dtype dtype = build->graph->values[gradient].type.dtype;
    build->name = "clip-norm";
    return add_node(updates, build, UL_OP_Mul, gradient,
                    as_type(updates, build, updates->factor, dtype));
}

bool ul_update_runs_twice(const struct ul_training *training)
{
    return training->clip_norm > 0 && training->clip_mode == UL_CLIP_TWICE;
}

void ul_update_flush(struct ul_updates *updates, struct ul_build *build)
{
    const struct ul_training *training = updates->pass->options->training;
    bool is_open = training->clip_norm > 0 && updates->factor == UL_NONE;
    if (is_open && training->clip_mode == UL_CLIP_KEEP)
        return; /* what all gradients together are is not known before the end */
    if (is_open)
        add_squares(updates, build);
    for (uint32_t i = 0; !is_open && i < updates->count; i++)
        add_update(updates, build, updates->queue[i].parameter,
                   clipped(updates, build, updates->queue[i].gradient));
    updates->count = 0;
}

/* Nothing that depends on the number is equal to what was computed before the norm was known: no
 * gradient of the first time is kept for the second. */
ul_value_id ul_update_begin_again(struct ul_updates *updates, struct ul_build *build,
                                  ul_value_id loss)
{
    struct ul_graph *graph = build->graph;
    const struct ul_type type = graph->values[loss].type;
    ul_update_flush(updates, build);
    if (updates->squares == UL_NONE)
        return UL_NONE;
    add_factor(updates, build);
    ul_value_id factor = as_type(updates, build, updates->factor, type.dtype);
    build->name = "clip-norm";
    ul_value_id zero = add_node(updates, build, UL_OP_Mul, factor,
                                ul_build_number(graph, "", type.dtype, type.rank, 0));
    return add_node(updates, build, UL_OP_Add, zero, ul_build_number(graph, "", type.dtype, 0, 1));
}

void ul_update_finish(struct ul_updates *updates, struct ul_build *build)
{
    if (updates->pass->options->training->clip_norm > 0 && updates->factor == UL_NONE &&
        updates->count > 0) {
        add_squares(updates, build);
        add_factor(updates, build);
    }
    ul_update_flush(updates, build);
}
