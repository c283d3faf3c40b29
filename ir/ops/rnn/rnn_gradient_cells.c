/* SPDX-License-Identifier: Apache-2.0 */
/* The cells of LSTM, GRU and RNN in the gradient through time: a step forwards, which keeps the
 * gates before their functions, and a step backwards, elementwise except for the products with
 * R. */
#include "ir/ops/rnn/rnn_backward.h"

static ul_kx mul(const struct ul_rnn_backward *b, ul_kx x, ul_kx y)
{
    return ul_kx_mul(b->kernel, x, y);
}

/* 1 - x */
static ul_kx rest(const struct ul_rnn_backward *b, ul_kx x)
{
    return ul_kx_sub(b->kernel, ul_rnn_number(b, 1), x);
}

static ul_kx apply(const struct ul_rnn_backward *b, uint32_t function, ul_kx x)
{
    return ul_ks_let(b->kernel, ul_rnn_apply(b->kernel, &b->rnn, &b->functions[function], x));
}

static ul_kx slope(const struct ul_rnn_backward *b, uint32_t function, ul_kx x)
{
    return ul_rnn_slope(b->kernel, &b->rnn, &b->functions[function], x);
}

/* The cell's state passes its function unclipped. */
static struct ul_rnn unclipped(const struct ul_rnn_backward *b)
{
    struct ul_rnn rnn = b->rnn;
    rnn.clip = 0;
    return rnn;
}

static ul_kx peephole(const struct ul_rnn_backward *b, int64_t which)
{
    ul_kx index[] = {ul_rnn_constant(b, b->direction),
                     ul_kx_addi(b->kernel, b->unit, which * b->rnn.hidden)};
    return ul_lower_load(b->lower, b->node->inputs[UL_RNN_PEEPHOLE], index);
}

/* ---- Forwards ---- */

/* Adds its peephole to the gate, and keeps the result. */
static ul_kx peep(const struct ul_rnn_backward *b, int64_t gate, int64_t which, ul_kx state)
{
    ul_kx x = ul_rnn_load_gate(b, gate);
    if (!ul_rnn_has(b, UL_RNN_PEEPHOLE))
        return x;
    x = ul_ks_let(b->kernel, ul_rnn_add(b, x, mul(b, peephole(b, which), state)));
    ul_ks_store(b->kernel, b->gates, ul_rnn_gate_at(b, b->step, b->batch, ul_rnn_row_of(b, gate)),
                x);
    return x;
}

static ul_kx forget_gate(const struct ul_rnn_backward *b, ul_kx input, ul_kx gate)
{
    if (ul_node_get_int(b->node, "input_forget", 0) != 0)
        return rest(b, input);
    return apply(b, 0, gate);
}

static void forward_lstm(struct ul_rnn_backward *b)
{
    struct ul_kernel *k = b->kernel;
    struct ul_rnn open = unclipped(b);
    ul_rnn_add_recurrent(b, 0, 4, b->h,
                         ul_rnn_state_at(b, b->step, ul_rnn_constant(b, 0), ul_rnn_constant(b, 0)));
    ul_rnn_open_units(b);
    ul_kx valid = ul_rnn_lasts(b);
    ul_kx before =
        ul_ks_let(k, ul_kx_load(k, b->c, ul_rnn_state_at(b, b->step, b->batch, b->unit)));
    ul_kx input = apply(b, 0, peep(b, 0, 0, before));
    ul_kx forget = forget_gate(b, input, peep(b, 2, 2, before));
    ul_kx next =
        ul_rnn_add(b, mul(b, forget, before), mul(b, input, apply(b, 1, ul_rnn_load_gate(b, 3))));
    next = ul_ks_let(k, next);
    ul_kx output = apply(b, 0, peep(b, 1, 1, next));
    ul_rnn_store_next(b, b->c, valid, next);
    ul_rnn_store_next(b, b->h, valid,
                      mul(b, output, ul_rnn_apply(k, &open, &b->functions[2], next)));
    ul_rnn_close_units(b);
}

static void forward_gru(struct ul_rnn_backward *b)
{
    struct ul_kernel *k = b->kernel;
    ul_kx zero = ul_rnn_constant(b, 0), from = ul_rnn_state_at(b, b->step, zero, zero);
    ul_rnn_add_recurrent(b, 0, 2, b->h, from);
    if (b->is_linear)
        ul_rnn_add_recurrent(b, 2, 1, b->h, from);
    ul_rnn_open_units(b);
    ul_kx at = ul_rnn_state_at(b, b->step, b->batch, b->unit),
          reset = apply(b, 0, ul_rnn_load_gate(b, 1));
    if (b->is_linear) {
        ul_kx hidden =
            ul_rnn_add(b, ul_rnn_load_gate(b, 2), mul(b, reset, ul_kx_load(k, b->other, at)));
        ul_ks_store(k, b->gates, ul_rnn_gate_at(b, b->step, b->batch, ul_rnn_row_of(b, 2)), hidden);
    } else {
        ul_ks_store(k, b->other, at, mul(b, reset, ul_kx_load(k, b->h, at)));
    }
    ul_rnn_close_units(b);
    if (!b->is_linear)
        ul_rnn_add_recurrent(b, 2, 1, b->other, from);
    ul_rnn_open_units(b);
    ul_kx update = apply(b, 0, ul_rnn_load_gate(b, 0)),
          hidden = apply(b, 1, ul_rnn_load_gate(b, 2));
    ul_kx old = ul_kx_load(k, b->h, ul_rnn_state_at(b, b->step, b->batch, b->unit));
    ul_rnn_store_next(b, b->h, ul_rnn_lasts(b),
                      ul_rnn_add(b, mul(b, rest(b, update), hidden), mul(b, update, old)));
    ul_rnn_close_units(b);
}

static void forward_rnn(struct ul_rnn_backward *b)
{
    ul_rnn_add_recurrent(b, 0, 1, b->h,
                         ul_rnn_state_at(b, b->step, ul_rnn_constant(b, 0), ul_rnn_constant(b, 0)));
    ul_rnn_open_units(b);
    ul_rnn_store_next(b, b->h, ul_rnn_lasts(b), apply(b, 0, ul_rnn_load_gate(b, 0)));
    ul_rnn_close_units(b);
}

void ul_rnn_forward_cell(struct ul_rnn_backward *b)
{
    (b->is_lstm ? forward_lstm : b->is_gru ? forward_gru : forward_rnn)(b);
}

/* ---- Backwards ---- */

/* Stores what a step's peephole adds to its gradient: the gradient of its gate times the state that
 * it sees. */
static void store_peephole(const struct ul_rnn_backward *b, int64_t which, ul_kx valid, ul_kx gate,
                           ul_kx state)
{
    struct ul_kernel *k = b->kernel;
    ul_kx place[] = {ul_rnn_time_of(b, b->step), b->batch, ul_rnn_row_of(b, which)};
    if (ul_lower_has_output(b->lower, b->id, UL_RNN_OUT_PEEPHOLES))
        ul_lower_store(b->lower, b->node->outputs[UL_RNN_OUT_PEEPHOLES], place,
                       ul_kx_select(k, valid, mul(b, gate, state), ul_rnn_number(b, 0)));
}

static void backward_lstm(struct ul_rnn_backward *b)
{
    struct ul_kernel *k = b->kernel;
    struct ul_rnn open = unclipped(b);
    bool coupled = ul_node_get_int(b->node, "input_forget", 0) != 0;
    ul_rnn_open_units(b);
    ul_kx valid = ul_rnn_lasts(b), kept, zero = ul_rnn_number(b, 0), x[4];
    ul_kx dh = ul_rnn_load_dh(b, valid, &kept);
    for (int64_t gate = 0; gate < 4; gate++)
        x[gate] = ul_rnn_load_gate(b, gate);
    ul_kx old = ul_ks_let(k, ul_kx_load(k, b->c, ul_rnn_state_at(b, b->step, b->batch, b->unit)));
    ul_kx next = ul_rnn_state_at(b, ul_kx_addi(k, b->step, 1), b->batch, b->unit);
    next = ul_ks_let(k, ul_kx_load(k, b->c, next));
    ul_kx input = apply(b, 0, x[0]), output = apply(b, 0, x[1]), candidate = apply(b, 1, x[3]);
    ul_kx squashed = ul_rnn_apply(k, &open, &b->functions[2], next);
    ul_kx doutput = mul(b, mul(b, dh, squashed), slope(b, 0, x[1]));
    doutput = ul_ks_let(k, doutput);
    ul_kx dc = mul(b, mul(b, dh, output), ul_rnn_slope(k, &open, &b->functions[2], next));
    ul_kx last = ul_ks_let(k, ul_kx_load(k, b->dc, ul_rnn_own_at(b)));
    dc = ul_rnn_add(b, last, dc);
    if (ul_rnn_has(b, UL_RNN_PEEPHOLE))
        dc = ul_rnn_add(b, dc, mul(b, doutput, peephole(b, 1)));
    dc = ul_ks_let(k, dc);
    ul_kx taken = coupled ? ul_kx_sub(k, candidate, old) : candidate;
    ul_kx dinput = ul_ks_let(k, mul(b, mul(b, dc, taken), slope(b, 0, x[0])));
    ul_kx dforget = coupled ? zero : ul_ks_let(k, mul(b, mul(b, dc, old), slope(b, 0, x[2])));
    ul_kx before = mul(b, dc, forget_gate(b, input, x[2]));
    if (ul_rnn_has(b, UL_RNN_PEEPHOLE)) {
        before = ul_rnn_add(b, before, mul(b, dinput, peephole(b, 0)));
        before = ul_rnn_add(b, before, mul(b, dforget, peephole(b, 2)));
    }
    ul_rnn_store_gate(b, 0, valid, dinput, UL_NONE);
    ul_rnn_store_gate(b, 1, valid, doutput, UL_NONE);
    ul_rnn_store_gate(b, 2, valid, dforget, UL_NONE);
    ul_rnn_store_gate(b, 3, valid, mul(b, mul(b, dc, input), slope(b, 1, x[3])), UL_NONE);
    store_peephole(b, 0, valid, dinput, old);
    store_peephole(b, 1, valid, doutput, next);
    store_peephole(b, 2, valid, dforget, old);
    ul_ks_store(k, b->dc, ul_rnn_own_at(b), ul_kx_select(k, valid, before, last));
    ul_rnn_store_dh(b, valid, kept, zero);
    ul_rnn_close_units(b);
    ul_rnn_multiply_back(b, 0, 4, b->dh, true);
}

/* `other` becomes what the hidden gate's R sees, where that is not the gate's own gradient. */
static void backward_gru(struct ul_rnn_backward *b)
{
    struct ul_kernel *k = b->kernel;
    ul_rnn_open_units(b);
    ul_kx valid = ul_rnn_lasts(b), kept, dh = ul_rnn_load_dh(b, valid, &kept);
    ul_kx at = ul_rnn_state_at(b, b->step, b->batch, b->unit), z = ul_rnn_load_gate(b, 0),
          n = ul_rnn_load_gate(b, 2);
    ul_kx update = apply(b, 0, z), old = ul_ks_let(k, ul_kx_load(k, b->h, at));
    ul_kx gap = ul_kx_sub(k, old, apply(b, 1, n));
    ul_rnn_store_gate(b, 0, valid, mul(b, mul(b, dh, gap), slope(b, 0, z)), UL_NONE);
    ul_kx dhidden = ul_ks_let(k, mul(b, mul(b, dh, rest(b, update)), slope(b, 1, n)));
    ul_kx r = ul_rnn_load_gate(b, 1), reset = apply(b, 0, r), seen = UL_NONE;
    if (b->is_linear) {
        ul_kx state = ul_kx_load(k, b->other, at);
        ul_rnn_store_gate(b, 1, valid, mul(b, mul(b, dhidden, state), slope(b, 0, r)), UL_NONE);
        seen = ul_ks_let(k, mul(b, dhidden, reset));
        ul_ks_store(k, b->other, at, ul_kx_select(k, valid, seen, ul_rnn_number(b, 0)));
    }
    ul_rnn_store_gate(b, 2, valid, dhidden, seen);
    ul_rnn_store_dh(b, valid, kept, mul(b, dh, update));
    ul_rnn_close_units(b);
    if (b->is_linear) {
        ul_rnn_multiply_back(b, 0, 3, b->dh, true);
        return;
    }
    ul_rnn_multiply_back(b, 2, 1, b->dreset, false);
    ul_rnn_open_units(b);
    ul_kx dreset = ul_ks_let(k, ul_kx_load(k, b->dreset, ul_rnn_own_at(b)));
    r = ul_rnn_load_gate(b, 1);
    old = ul_kx_load(k, b->h, ul_rnn_state_at(b, b->step, b->batch, b->unit));
    ul_rnn_store_gate(b, 1, ul_rnn_lasts(b), mul(b, mul(b, dreset, old), slope(b, 0, r)), UL_NONE);
    ul_kx sum =
        ul_rnn_add(b, ul_kx_load(k, b->dh, ul_rnn_own_at(b)), mul(b, dreset, apply(b, 0, r)));
    ul_ks_store(k, b->dh, ul_rnn_own_at(b), sum);
    ul_rnn_close_units(b);
    ul_rnn_multiply_back(b, 0, 2, b->dh, true);
}

static void backward_rnn(struct ul_rnn_backward *b)
{
    ul_rnn_open_units(b);
    ul_kx valid = ul_rnn_lasts(b), kept, dh = ul_rnn_load_dh(b, valid, &kept);
    ul_rnn_store_gate(b, 0, valid, mul(b, dh, slope(b, 0, ul_rnn_load_gate(b, 0))), UL_NONE);
    ul_rnn_store_dh(b, valid, kept, ul_rnn_number(b, 0));
    ul_rnn_close_units(b);
    ul_rnn_multiply_back(b, 0, 1, b->dh, true);
}

void ul_rnn_backward_cell(struct ul_rnn_backward *b)
{
    (b->is_lstm ? backward_lstm : b->is_gru ? backward_gru : backward_rnn)(b);
}
