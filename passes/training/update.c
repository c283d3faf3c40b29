/* SPDX-License-Identifier: Apache-2.0 */
/* An optimizer's update of a parameter, in place: one node where it is a map. */
#include "passes/training/update.h"
#include "ir/op_names.h"

#include "ir/infer.h"
#include "ir/op.h"
#include "ir/training.h"

#include <string.h>

typedef void compose_fn(struct ul_updates *updates, ul_value_id parameter, ul_value_id gradient);

/* An optimizer: its operator and the names of its states in a checkpoint, as torch has them; or
 * what writes its update with several nodes. */
struct row {
    ul_op_id op, bytes_op; /* the one with states of 8 bits */
    uint32_t state_count;
    const char *states[2];
    compose_fn *compose;
};
static const struct row rows[] = {
    [UL_OPTIMIZER_SGD] = {UL_OP_UpdateSGD, UL_OP_NONE, 0, {NULL, NULL}, NULL},
    [UL_OPTIMIZER_MOMENTUM] = {UL_OP_UpdateMomentum, UL_OP_NONE, 1, {"momentum", NULL}, NULL},
    [UL_OPTIMIZER_ADAM] =
        {UL_OP_UpdateAdam, UL_OP_UpdateAdamBytes, 2, {"exp_avg", "exp_avg_sq"}, NULL},
    [UL_OPTIMIZER_ADAMW] =
        {UL_OP_UpdateAdam, UL_OP_UpdateAdamBytes, 2, {"exp_avg", "exp_avg_sq"}, NULL},
    [UL_OPTIMIZER_LION] = {UL_OP_UpdateLion, UL_OP_UpdateLionBytes, 1, {"exp_avg", NULL}, NULL},
    [UL_OPTIMIZER_ADAFACTOR] = {UL_OP_NONE, UL_OP_NONE, 0, {NULL, NULL}, ul_update_adafactor},
    [UL_OPTIMIZER_ADAM_MINI] = {UL_OP_NONE, UL_OP_NONE, 0, {NULL, NULL}, ul_update_adam_mini},
};

ul_value_id ul_update_step(struct ul_graph *graph)
{
    const int64_t dims[1] = {UL_STEP_NUMBERS};
    const struct ul_type type = ul_type_make(UL_F64, 1, dims);
    for (uint32_t i = 0; i < ul_graph_only_root(graph)->input_count; i++)
        if (strcmp(graph->values[ul_graph_only_root(graph)->inputs[i]].name, UL_TRAINING_STEP) == 0)
            return ul_graph_only_root(graph)->inputs[i];
    ul_value_id step = ul_graph_add_value(graph, UL_TRAINING_STEP, UL_VALUE_INPUT, &type);
    ul_block_add_input(graph, 0, step);
    return step;
}

ul_value_id ul_update_number(struct ul_gradient *make, uint32_t which)
{
    UL_ASSERT(which < UL_STEP_NUMBERS);
    const ul_value_id inputs[2] = {ul_update_step(make->graph),
                                   ul_build_number(make->graph, "", UL_I64, 0, which)};
    return ul_build_value(&make->build, UL_OP_Gather, inputs, 2, NULL);
}

/* Gives the number of the run in its step. It is made once, before every sum, so that a product can
 * be added to a sum where it is made. */
static ul_value_id find_part(struct ul_gradient *make)
{
    const struct ul_graph *graph = make->graph;
    ul_value_id step = ul_update_step(make->graph);
    for (ul_node_id id = 0; id < graph->node_count; id++) {
        const struct ul_node *node = &graph->nodes[id];
        double which;
        if (node->op == UL_OP_Gather && node->inputs[0] == step &&
            ul_graph_get_number(graph, node->inputs[1], &which) && which == UL_STEP_PART)
            return node->outputs[0];
    }
    return ul_update_number(make, UL_STEP_PART);
}

/* The value before its reshapes: the node that makes it can then add it to the sum itself. */
static ul_value_id before_reshapes(const struct ul_graph *graph, ul_value_id value)
{
    while (graph->values[value].kind == UL_VALUE_NODE &&
           ul_edit_is_reshape(graph->nodes[graph->values[value].producer].op))
        value = graph->nodes[graph->values[value].producer].inputs[0];
    return value;
}

ul_value_id ul_update_accumulate(struct ul_gradient *make, const char *name, ul_value_id value)
{
    struct ul_graph *graph = make->graph;
    const struct ul_type wanted = graph->values[value].type;
    value = before_reshapes(graph, value);
    const struct ul_type type = graph->values[value].type;
    UL_ASSERT(value != UL_NONE && ul_dtype_get(type.dtype)->is_float);
    make->build.name = name;
    ul_value_id state = ul_edit_add_state(graph, name, &type, UL_VALUE_GRADIENT, 0);
    const ul_value_id inputs[3] = {value, state, find_part(make)};
    ul_value_id made = ul_build_value(&make->build, UL_OP_Accumulate, inputs, 3, NULL);
    ul_edit_add_next(graph, made, state);
    return ul_build_reshape_to(&make->build, made, &wanted);
}

ul_value_id ul_update_pending(struct ul_gradient *make, const struct ul_training *training,
                              ul_value_id state, ul_value_id *pending)
{
    struct ul_graph *graph = make->graph;
    *pending = UL_NONE;
    if (!(training->loss_scale > 0) || training->micro_batches <= 1)
        return state;
    const struct ul_type type = graph->values[state].type;
    const char *name = ul_arena_printf(graph->arena, "%s/pending", graph->values[state].name);
    *pending = ul_edit_add_state(graph, name, &type, UL_VALUE_GRADIENT, 0);
    ul_value_id part = ul_update_number(make, UL_STEP_PART);
    ul_value_id first = ul_build_binary(&make->build, UL_OP_Equal, part,
                                        ul_build_number_like(&make->build, part, 0));
    return ul_build_choose(&make->build, first, state, *pending);
}

void ul_update_begin(struct ul_updates *updates, struct ul_pass *pass, struct ul_gradient *make)
{
    ul_value_id scale = ul_loss_scale(pass->graph, pass->options->training);
    make->build.name = UL_TRAINING_SCALE;
    *updates = (struct ul_updates){
        .pass = pass,
        .make = make,
        .step = ul_update_step(pass->graph),
        .number = UL_NONE,
        .mean = scale == UL_NONE ? UL_NONE : ul_build_unary(&make->build, UL_OP_Reciprocal, scale),
        .has_scale = scale != UL_NONE,
        .excess = UL_NONE,
        .key = UL_NONE,
        .squares = UL_NONE,
        .factor = UL_NONE,
        .tables = {UL_NONE, UL_NONE}};
}

/* Whether the state holds mean squares, or the largest magnitudes of blocks. */
static bool is_squares(const char *name)
{
    static const char *const names[] = {"exp_avg_sq", "row_var", "col_var", "variance", "vmean"};
    bool found = strchr(name, '/') != NULL; /* NAME/absmax */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        found = found || strcmp(name, names[i]) == 0;
    return found;
}

ul_value_id ul_update_add_state(struct ul_updates *updates, ul_value_id parameter, const char *name,
                                const struct ul_type *type)
{
    struct ul_graph *graph = updates->pass->graph;
    const char *owner = graph->values[parameter].name;
    const char *full = ul_arena_printf(graph->arena, "%s/%s", owner, name);
    uint32_t flags = UL_VALUE_OPTIMIZER | (is_squares(name) ? UL_VALUE_SQUARES : 0u);
    UL_ASSERT(ul_training_find_owner(full) == strlen(owner));
    return ul_edit_add_state(graph, full, type, flags, 0);
}

/* ---- states of 8 bits ---- */

enum { MIN_BYTES_ELEMENTS = 4096 };

/* What codes stand for: one constant for all states of a kind. */
static ul_value_id find_table(struct ul_updates *updates, bool is_signed)
{
    double numbers[UL_UPDATE_CODES];
    if (updates->tables[is_signed] != UL_NONE)
        return updates->tables[is_signed];
    ul_update_numbers(is_signed, numbers);
    updates->tables[is_signed] =
        ul_edit_add_numbers(updates->pass->graph, is_signed ? "codes/signed" : "codes/unsigned",
                            UL_F32, numbers, UL_UPDATE_CODES, 1);
    return updates->tables[is_signed];
}

/* Whether rows of the parameter are looked up. */
static bool is_embedding(const struct ul_graph *graph, ul_value_id parameter)
{
    for (ul_node_id id = 0; id < graph->node_count; id++) {
        const struct ul_node *node = &graph->nodes[id];
        if (node->op == UL_OP_Gather && node->inputs[0] == parameter)
            return true;
    }
    return false;
}

/* Whether the state has 8 bits: not where that would spoil it or hardly save anything. */
static bool has_bytes(const struct ul_updates *updates, ul_value_id parameter)
{
    const struct ul_graph *graph = updates->pass->graph;
    const struct ul_type *type = &graph->values[parameter].type;
    return updates->pass->options->training->state_bits == UL_STATE_8 && type->dtype == UL_F32 &&
           ul_type_elements(type) >= MIN_BYTES_ELEMENTS && !is_embedding(graph, parameter);
}

/* Adds the states, and what else the update reads of them; gives how many are states. */
static uint32_t add_states(struct ul_updates *updates, const struct row *row, ul_value_id parameter,
                           ul_value_id *inputs, uint32_t *count)
{
    struct ul_graph *graph = updates->pass->graph;
    struct ul_type type = graph->values[parameter].type;
    bool bytes = has_bytes(updates, parameter);
    uint32_t axis, state_count = 0;
    int64_t group;
    for (uint32_t i = 0; i < row->state_count; i++) {
        type.dtype = bytes ? UL_U8 : type.dtype;
        inputs[(*count)++] = ul_update_add_state(updates, parameter, row->states[i], &type);
        state_count++;
        if (!bytes)
            continue;
        const struct ul_type blocks = ul_update_blocks(&type, &axis, &group);
        const char *name = ul_arena_printf(graph->arena, "%s/absmax", row->states[i]);
        inputs[(*count)++] = ul_update_add_state(updates, parameter, name, &blocks);
        state_count++;
    }
    for (uint32_t i = 0; bytes && i < row->state_count; i++)
        inputs[(*count)++] = find_table(updates, i == 0); /* the other one is of squares */
    return state_count;
}

double ul_update_decay(const struct ul_updates *updates, ul_value_id parameter)
{
    const struct ul_training *training = updates->pass->options->training;
    bool decays = !training->no_decay_1d || updates->pass->graph->values[parameter].type.rank > 1;
    return decays ? training->weight_decay : 0;
}

static void set_attributes(struct ul_graph *graph, ul_node_id node,
                           const struct ul_training *training, double decay)
{
    ul_node_set_float(graph, node, "clip_value", training->clip_value);
    if (training->loss_scale > 0)
        ul_node_set_int(graph, node, "skips", 1);
    ul_node_set_float(graph, node, "weight_decay", decay);
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
    case UL_OPTIMIZER_ADAFACTOR:
    case UL_OPTIMIZER_ADAM_MINI:
        UL_ASSERT(false); /* these have several nodes */
    }
}

ul_value_id ul_update_scale(struct ul_updates *updates, enum ul_dtype dtype)
{
    struct ul_gradient *make = updates->make;
    ul_value_id mean = updates->mean, factor = updates->factor;
    if (mean != UL_NONE && factor != UL_NONE)
        return ul_build_binary(&make->build, UL_OP_Mul, ul_build_cast(&make->build, mean, dtype),
                               ul_build_cast(&make->build, factor, dtype));
    mean = mean != UL_NONE ? mean : factor;
    return mean == UL_NONE ? UL_NONE : ul_build_cast(&make->build, mean, dtype);
}

/* Whether it is a matrix or has more dimensions, and so is rounded by chance. */
static bool rounds_by_chance(const struct ul_updates *updates, ul_value_id parameter)
{
    const struct ul_type *type = &updates->pass->graph->values[parameter].type;
    return updates->pass->options->training->master == UL_MASTER_STOCHASTIC &&
           type->dtype == UL_F32 && !ul_edit_is_vector(type);
}

/* The key of the step's random numbers. */
static ul_value_id find_key(struct ul_updates *updates)
{
    struct ul_gradient *make = updates->make;
    const char *name = make->build.name;
    make->build.name = UL_TRAINING_STEP;
    if (updates->key == UL_NONE)
        updates->key = ul_build_unary(&make->build, UL_OP_StepKey, ul_update_step(make->graph));
    make->build.name = name;
    return updates->key;
}

static void add_update(struct ul_updates *updates, ul_value_id parameter, ul_value_id gradient)
{
    struct ul_graph *graph = updates->pass->graph;
    struct ul_build *build = &updates->make->build;
    const struct ul_training *training = updates->pass->options->training;
    const struct row *row = &rows[training->optimizer];
    uint32_t count = 3;
    ul_value_id inputs[12] = {updates->step, parameter, gradient};
    build->name = ul_arena_printf(graph->arena, "%s/update", graph->values[parameter].name);
    if (row->compose != NULL) {
        row->compose(updates, parameter, gradient);
        return;
    }
    uint32_t state_count = add_states(updates, row, parameter, inputs, &count);
    inputs[count] = ul_update_scale(updates, graph->values[parameter].type.dtype);
    if (rounds_by_chance(updates, parameter))
        inputs[++count] = find_key(updates);
    count += inputs[count] != UL_NONE;
    ul_node_id node = ul_build_node(build, state_count > row->state_count ? row->bytes_op : row->op,
                                    inputs, count, 1 + state_count);
    if (rounds_by_chance(updates, parameter))
        ul_node_set_int(graph, node, "rounds", 1);
    set_attributes(graph, node, training, ul_update_decay(updates, parameter));
    for (uint32_t i = 0; i <= state_count; i++) {
        ul_value_id made = graph->nodes[node].outputs[i];
        ul_value_id donor = i == 0 ? parameter : inputs[2 + i];
        graph->values[made].type = graph->values[donor].type;
        graph->values[made].flags |= UL_VALUE_BACKWARD;
        ul_edit_add_next(graph, made, donor);
    }
}

/* With several runs a step: the sum over the runs, whose mean is taken. */
static ul_value_id add_up(struct ul_updates *updates, ul_value_id parameter, ul_value_id gradient)
{
    const struct ul_training *training = updates->pass->options->training;
    struct ul_gradient *make = updates->make;
    if (training->micro_batches <= 1)
        return gradient;
    struct ul_graph *graph = make->graph;
    const char *name = ul_arena_printf(graph->arena, "%s/" UL_TRAINING_GRADIENT_STATE,
                                       graph->values[parameter].name);
    UL_ASSERT(graph->values[training->loss_weight].type.rank == 0);
    ul_value_id sum = ul_update_accumulate(make, name, gradient);
    if (updates->has_mean)
        return sum;
    ul_value_id mean = ul_build_unary(&make->build, UL_OP_Reciprocal, training->loss_weight);
    enum ul_dtype dtype = graph->values[mean].type.dtype;
    if (updates->has_scale)
        mean = ul_build_binary(&make->build, UL_OP_Mul, mean,
                               ul_build_cast(&make->build, updates->mean, dtype));
    updates->mean = mean;
    updates->has_mean = true;
    return sum;
}

void ul_update_queue(struct ul_updates *updates, ul_value_id parameter, ul_value_id gradient)
{
    UL_GROW(updates->pass->scratch, updates->queue, updates->count, updates->capacity);
    updates->queue[updates->count++] =
        (struct ul_update){parameter, add_up(updates, parameter, gradient)};
}

/* The gradient as the optimizer would take it if nothing bounded its norm. */
static ul_value_id mean_gradient(struct ul_updates *updates, ul_value_id gradient)
{
    enum ul_dtype dtype = updates->make->graph->values[gradient].type.dtype;
    if (updates->mean == UL_NONE)
        return gradient;
    return ul_build_binary(&updates->make->build, UL_OP_Mul, gradient,
                           ul_build_cast(&updates->make->build, updates->mean, dtype));
}

/* The sum of numbers of one element each, in the type of the first one. On a device each term of a
 * chain would be a launch, so the numbers are put side by side there, and one sum adds them up. */
static ul_value_id sum_numbers(struct ul_updates *updates, const ul_value_id *numbers,
                               uint32_t count)
{
    enum { CHAIN = 2 };
    struct ul_gradient *make = updates->make;
    enum ul_dtype dtype = make->graph->values[numbers[0]].type.dtype;
    const int64_t one = 1;
    const struct ul_type type = ul_type_make(dtype, 1, &one);
    bool is_chain = count <= CHAIN || !updates->pass->traits->steps_cost;
    ul_value_id *terms = UL_NEW_ARRAY(make->scratch, ul_value_id, count);
    for (uint32_t i = 0; i < count; i++) {
        terms[i] = make->graph->values[numbers[i]].type.dtype == dtype
                       ? numbers[i]
                       : ul_build_cast(&make->build, numbers[i], dtype);
        if (!is_chain)
            terms[i] = ul_build_reshape_to(&make->build, terms[i], &type);
    }
    if (!is_chain) {
        ul_value_id all = ul_build_concat(&make->build, terms, count, 0, NULL);
        ul_node_id node = ul_build_node(&make->build, UL_OP_ReduceSum, &all, 1, 1);
        ul_node_set_int(make->graph, node, "keepdims", 0);
        return ul_build_infer(&make->build, node);
    }
    ul_value_id sum = terms[0];
    for (uint32_t i = 1; i < count; i++)
        sum = ul_build_binary(&make->build, UL_OP_Add, sum, terms[i]);
    return sum;
}

static void add_squares(struct ul_updates *updates)
{
    struct ul_gradient *make = updates->make;
    ul_value_id *squares = UL_NEW_ARRAY(make->scratch, ul_value_id, (uint64_t)updates->count + 1);
    uint32_t count = 0;
    if (updates->squares != UL_NONE)
        squares[count++] = updates->squares;
    make->build.name = "clip-norm";
    for (uint32_t i = 0; i < updates->count; i++) {
        ul_value_id gradient = mean_gradient(updates, updates->queue[i].gradient);
        ul_node_id node = ul_build_node(&make->build, UL_OP_ReduceSumSquare, &gradient, 1, 1);
        ul_node_set_int(make->graph, node, "keepdims", 0);
        squares[count++] = ul_build_infer(&make->build, node);
    }
    if (count > 0)
        updates->squares = sum_numbers(updates, squares, count);
}

/* What all gradients say together: 0, or NaN where one is not finite. */
static void add_excess(struct ul_updates *updates)
{
    struct ul_gradient *make = updates->make;
    ul_value_id *excess = UL_NEW_ARRAY(make->scratch, ul_value_id, updates->count);
    for (uint32_t i = 0; i < updates->count; i++)
        excess[i] = ul_loss_scale_excess(updates, updates->queue[i].gradient);
    updates->excess = sum_numbers(updates, excess, updates->count);
}

/* limit / (norm of all gradients + 1e-6), at most 1, as torch.nn.utils.clip_grad_norm_ has it. */
static void add_factor(struct ul_updates *updates)
{
    struct ul_gradient *make = updates->make;
    double limit = updates->pass->options->training->clip_norm;
    UL_ASSERT(updates->squares != UL_NONE && updates->factor == UL_NONE && limit > 0);
    make->build.name = "clip-norm";
    ul_value_id norm = ul_build_unary(&make->build, UL_OP_Sqrt, updates->squares);
    norm = ul_build_binary(&make->build, UL_OP_Add, norm,
                           ul_build_number_like(&make->build, norm, 1e-6));
    ul_value_id factor = ul_build_binary(&make->build, UL_OP_Div,
                                         ul_build_number_like(&make->build, norm, limit), norm);
    updates->factor = ul_build_binary(&make->build, UL_OP_Min, factor,
                                      ul_build_number_like(&make->build, factor, 1));
}

bool ul_update_runs_twice(const struct ul_training *training)
{
    return training->clip_norm > 0 && training->clip_mode == UL_CLIP_TWICE;
}

/* Whether something asks for what all gradients are together, which is not known yet. */
static bool is_open(const struct ul_updates *updates)
{
    const struct ul_training *training = updates->pass->options->training;
    return (training->clip_norm > 0 && updates->factor == UL_NONE) ||
           (updates->has_scale && !updates->is_tested);
}

void ul_update_flush(struct ul_updates *updates)
{
    const struct ul_training *training = updates->pass->options->training;
    bool waits = is_open(updates);
    if (waits && training->clip_mode == UL_CLIP_KEEP)
        return; /* until the end */
    if (waits)
        add_squares(updates);
    for (uint32_t i = 0; !waits && i < updates->count; i++)
        add_update(updates, updates->queue[i].parameter, updates->queue[i].gradient);
    updates->count = 0;
}

/* Nothing that depends on this number equals what was computed before the norm was known: no
 * gradient of the first time is kept for the second. */
ul_value_id ul_update_begin_again(struct ul_updates *updates, ul_value_id loss)
{
    struct ul_gradient *make = updates->make;
    const struct ul_type type = make->graph->values[loss].type;
    ul_update_flush(updates);
    if (updates->squares == UL_NONE)
        return UL_NONE;
    add_factor(updates);
    ul_value_id factor = ul_build_cast(&make->build, updates->factor, type.dtype);
    make->build.name = "clip-norm";
    ul_value_id zero = ul_build_binary(&make->build, UL_OP_Mul, factor,
                                       ul_build_number(make->graph, "", type.dtype, type.rank, 0));
    return ul_build_binary(&make->build, UL_OP_Add, zero,
                           ul_build_number_like(&make->build, zero, 1));
}

void ul_update_finish(struct ul_updates *updates)
{
    bool waits = is_open(updates) && updates->count > 0;
    if (waits && updates->has_scale) {
        add_excess(updates);
        ul_loss_scale_finish(updates);
    }
    updates->is_tested = true;
    if (waits && updates->pass->options->training->clip_norm > 0) {
        add_squares(updates);
        add_factor(updates);
    }
    ul_update_flush(updates);
}
