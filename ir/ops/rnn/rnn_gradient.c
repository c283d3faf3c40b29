/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of RNN, GRU and LSTM: of each direction a kernel gives those of the gates, from which
 * products give those of the weights and of X:
 *
 *     dW = dgates^T X     dX = dgates W     dR = dgates^T H     dB = sums of dgates
 *     dP = sums of dgates C
 *
 * H being the states before each step, C those of the cell that gates peep at. What R sees of a
 * GRU's hidden gate is another gradient, or another state, where it meets the reset gate. */
#include "ir/op_names.h"
#include "ir/ops/backward.def"
#include "ir/ops/check.h"
#include "ir/ops/rnn/rnn.h"

#include <string.h>

enum ul_status ul_infer_rnn_gradient(struct ul_infer *infer)
{
    const struct ul_type *types[8];
    struct ul_rnn rnn;
    for (uint32_t i = 0; i < 8; i++)
        types[i] = ul_infer_input(infer, i);
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_FLOATS));
    const char *wrong = ul_rnn_read(&rnn, infer->node, types);
    if (wrong != NULL)
        return ul_infer_invalid(infer, "%s", wrong);
    const int64_t rows[] = {rnn.steps, rnn.batch, rnn.gates * rnn.hidden};
    const int64_t states[] = {rnn.steps, rnn.batch, rnn.hidden};
    const int64_t state[] = {rnn.batch, rnn.hidden};
    const int64_t peepholes[] = {rnn.steps, rnn.batch, 3 * rnn.hidden};
    UL_TRY(ul_check_shape(infer, UL_RNN_PRODUCTS, 3, rows));
    ul_infer_set(infer, 0, types[0]->dtype, 3, rows);
    ul_infer_set(infer, 1, types[0]->dtype, 3, states);
    ul_infer_set(infer, 2, types[0]->dtype, 2, state);
    if (infer->node->op == UL_OP_LSTMGradient)
        ul_infer_set(infer, 3, types[0]->dtype, 2, state);
    else
        ul_infer_set(infer, 3, types[0]->dtype, 3, states);
    if (infer->node->output_count > UL_RNN_OUT_PEEPHOLES)
        ul_infer_set(infer, UL_RNN_OUT_PEEPHOLES, types[0]->dtype, 3, peepholes);
    return UL_OK;
}

/* What the directions add to each input's gradient, to be put side by side. */
struct shares {
    struct ul_gradient *gradient;
    struct ul_rnn rnn;
    ul_op_id op;
    ul_value_id x;        /* [steps * batch, inputs], steps first */
    ul_value_id of_x;     /* the sum of the directions */
    ul_value_id of[8][2]; /* by input and direction */
    bool is_linear;       /* whether a GRU's reset gate comes after R */
};

static ul_value_id shape(struct shares *s, ul_value_id value, uint32_t rank, int64_t a, int64_t b,
                         int64_t c)
{
    struct ul_type type = {.dtype = ul_gradient_type(s->gradient, value).dtype, .rank = rank};
    type.dims[0] = a;
    type.dims[1] = b;
    type.dims[2] = c;
    return ul_build_reshape_to(&s->gradient->build, value, &type);
}

static ul_value_id product(struct shares *s, ul_value_id a, ul_value_id b)
{
    return ul_build_binary(&s->gradient->build, UL_OP_MatMul, a, b);
}

/* W for a direction: [rows, inputs]. */
static ul_value_id weight_of(struct shares *s, int64_t d)
{
    const struct ul_rnn *rnn = &s->rnn;
    ul_value_id w = ul_gradient_input(s->gradient, UL_RNN_W);
    if (rnn->directions > 1)
        w = ul_build_slice(&s->gradient->build, w, 0, d, d + 1);
    return shape(s, w, 2, rnn->gates * rnn->hidden, rnn->inputs, 0);
}

/* W x + Wb for all steps. */
static ul_value_id products(struct shares *s, int64_t d)
{
    const struct ul_rnn *rnn = &s->rnn;
    int64_t rows = rnn->gates * rnn->hidden;
    ul_value_id made = product(s, s->x, ul_build_swap(&s->gradient->build, weight_of(s, d)));
    ul_value_id bias = ul_gradient_input(s->gradient, UL_RNN_BIAS);
    if (bias != UL_NONE) {
        if (rnn->directions > 1)
            bias = ul_build_slice(&s->gradient->build, bias, 0, d, d + 1);
        bias = ul_build_slice(&s->gradient->build, bias, 1, 0, rows);
        made = ul_build_binary(&s->gradient->build, UL_OP_Add, made, bias);
    }
    return shape(s, made, 3, rnn->steps, rnn->batch, rows);
}

static ul_node_id begin_kernel(struct shares *s, int64_t d)
{
    struct ul_gradient *gradient = s->gradient;
    ul_value_id inputs[UL_RNN_GRADIENT_INPUTS];
    for (uint32_t i = 0; i < 8; i++)
        inputs[i] = ul_gradient_input(gradient, i);
    inputs[UL_RNN_PRODUCTS] = products(s, d);
    for (uint32_t i = 0; i < 3; i++)
        inputs[UL_RNN_G_ALL + i] = ul_gradient_of(gradient, i);
    ul_op_id op = s->op == UL_OP_LSTM  ? UL_OP_LSTMGradient
                  : s->op == UL_OP_GRU ? UL_OP_GRUGradient
                                       : UL_OP_RNNGradient;
    uint32_t outputs = s->op == UL_OP_RNN ? 3 : 4;
    if (ul_gradient_wanted(gradient, UL_RNN_PEEPHOLE))
        outputs = UL_RNN_OUT_PEEPHOLES + 1;
    ul_node_id node = ul_gradient_begin_like(gradient, op, inputs, UL_RNN_GRADIENT_INPUTS, outputs);
    ul_node_set_int(gradient->graph, node, "ul_direction", d);
    (void)ul_build_infer(&gradient->build, node);
    return node;
}

/* The gradients of the gates that R sees, [steps * batch, rows]. */
static ul_value_id seen_by_r(struct shares *s, ul_value_id gates, ul_value_id other)
{
    int64_t hidden = s->rnn.hidden, count = s->rnn.steps * s->rnn.batch;
    if (s->op != UL_OP_GRU || !s->is_linear)
        return gates;
    const ul_value_id parts[2] = {ul_build_slice(&s->gradient->build, gates, 1, 0, 2 * hidden),
                                  shape(s, other, 2, count, hidden, 0)};
    return ul_build_concat(&s->gradient->build, parts, 2, 1, NULL);
}

/* [rows, hidden] */
static ul_value_id recurrent_share(struct shares *s, ul_value_id seen, ul_value_id states,
                                   ul_value_id other)
{
    int64_t hidden = s->rnn.hidden, count = s->rnn.steps * s->rnn.batch;
    states = shape(s, states, 2, count, hidden, 0);
    seen = ul_build_swap(&s->gradient->build, seen);
    if (s->op != UL_OP_GRU || s->is_linear)
        return product(s, seen, states);
    const ul_value_id parts[2] = {
        product(s, ul_build_slice(&s->gradient->build, seen, 0, 0, 2 * hidden), states),
        product(s, ul_build_slice(&s->gradient->build, seen, 0, 2 * hidden, 3 * hidden),
                shape(s, other, 2, count, hidden, 0))};
    return ul_build_concat(&s->gradient->build, parts, 2, 0, NULL);
}

static void form_direction(struct shares *s, int64_t d)
{
    struct ul_gradient *gradient = s->gradient;
    const struct ul_rnn *rnn = &s->rnn;
    int64_t rows = rnn->gates * rnn->hidden;
    ul_node_id node = begin_kernel(s, d);
    ul_value_id made[] = {UL_NONE, UL_NONE, UL_NONE, UL_NONE, UL_NONE};
    memcpy(made, gradient->graph->nodes[node].outputs,
           gradient->graph->nodes[node].output_count * sizeof *made);
    ul_value_id gates = shape(s, made[0], 2, rnn->steps * rnn->batch, rows, 0);
    ul_value_id seen = seen_by_r(s, gates, made[3]);
    if (ul_gradient_wanted(gradient, UL_RNN_X)) {
        ul_value_id share = product(s, gates, weight_of(s, d));
        s->of_x = d == 0 ? share : ul_build_binary(&gradient->build, UL_OP_Add, s->of_x, share);
    }
    if (ul_gradient_wanted(gradient, UL_RNN_W))
        s->of[UL_RNN_W][d] = product(s, ul_build_swap(&gradient->build, gates), s->x);
    if (ul_gradient_wanted(gradient, UL_RNN_R))
        s->of[UL_RNN_R][d] = recurrent_share(s, seen, made[1], made[3]);
    if (ul_gradient_wanted(gradient, UL_RNN_BIAS)) {
        const ul_value_id parts[2] = {ul_build_sum(&gradient->build, gates, 1),
                                      ul_build_sum(&gradient->build, seen, 1)};
        s->of[UL_RNN_BIAS][d] = ul_build_concat(&gradient->build, parts, 2, 1, NULL);
    }
    if (ul_gradient_wanted(gradient, UL_RNN_PEEPHOLE)) {
        ul_value_id peepholes = made[UL_RNN_OUT_PEEPHOLES];
        peepholes = shape(s, peepholes, 2, rnn->steps * rnn->batch, 3 * rnn->hidden, 0);
        s->of[UL_RNN_PEEPHOLE][d] = ul_build_sum(&gradient->build, peepholes, 1);
    }
    s->of[UL_RNN_INITIAL_H][d] = made[2];
    s->of[UL_RNN_INITIAL_C][d] = made[3];
}

/* Puts directions side by side along an axis of the input's type. */
static void give_directions(struct shares *s, uint32_t input, uint32_t axis)
{
    struct ul_gradient *gradient = s->gradient;
    struct ul_type one;
    if (!ul_gradient_wanted(gradient, input))
        return;
    one = ul_gradient_type(gradient, ul_gradient_input(gradient, input));
    one.dims[axis] = 1;
    for (int64_t d = 0; d < s->rnn.directions; d++)
        s->of[input][d] = ul_build_reshape_to(&gradient->build, s->of[input][d], &one);
    ul_gradient_give(
        gradient, input,
        ul_build_concat(&gradient->build, s->of[input], (uint32_t)s->rnn.directions, axis, NULL));
}

static void give_all(struct shares *s)
{
    static const int64_t turned[3] = {1, 0, 2};
    const struct ul_rnn *rnn = &s->rnn;
    if (ul_gradient_wanted(s->gradient, UL_RNN_X)) {
        ul_value_id x = shape(s, s->of_x, 3, rnn->steps, rnn->batch, rnn->inputs);
        if (rnn->batch_first)
            x = ul_build_transpose(&s->gradient->build, x, turned);
        ul_gradient_give(s->gradient, UL_RNN_X, x);
    }
    give_directions(s, UL_RNN_W, 0);
    give_directions(s, UL_RNN_R, 0);
    give_directions(s, UL_RNN_BIAS, 0);
    give_directions(s, UL_RNN_PEEPHOLE, 0);
    give_directions(s, UL_RNN_INITIAL_H, rnn->batch_first ? 1 : 0);
    give_directions(s, UL_RNN_INITIAL_C, rnn->batch_first ? 1 : 0);
}

enum ul_status ul_gradient_rnn(struct ul_gradient *gradient)
{
    static const int64_t turned[3] = {1, 0, 2};
    const struct ul_node *node = ul_gradient_node(gradient);
    struct shares s = {.gradient = gradient, .op = node->op};
    const struct ul_type *types[8] = {NULL};
    for (uint32_t i = 0; i < node->input_count && i < 8; i++)
        if (node->inputs[i] != UL_NONE)
            types[i] = &gradient->graph->values[node->inputs[i]].type;
    const char *wrong = ul_rnn_read(&s.rnn, node, types);
    UL_ASSERT(wrong == NULL);
    s.is_linear = ul_node_get_int(node, "linear_before_reset", 0) != 0;
    if (s.rnn.steps == 0 || s.rnn.batch == 0)
        return ul_gradient_unsupported(gradient, "has no steps or no sequences");
    s.x = node->inputs[UL_RNN_X];
    if (s.rnn.batch_first)
        s.x = ul_build_transpose(&gradient->build, s.x, turned);
    s.x = shape(&s, s.x, 2, s.rnn.steps * s.rnn.batch, s.rnn.inputs, 0);
    for (int64_t d = 0; d < s.rnn.directions; d++)
        form_direction(&s, d);
    give_all(&s);
    return UL_OK;
}
