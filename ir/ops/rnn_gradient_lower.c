/* The gradient of one direction of RNN, GRU or LSTM, backwards through time. A pass forwards forms
 * the gates again and keeps them, with the states, in scratch; the pass backwards has for each
 * step, from the gradients of its states, those of its gates before their functions:
 *
 *     for steps, last first:
 *         dh += gradient of Y          (while the sequence lasts; else dh and dc stay)
 *         dgates, dc = of the cell     elementwise
 *         dh = of the cell + R^T dgates
 *
 * Weights, biases and X get theirs from dgates by ordinary products (rnn_gradient.c). */
#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/rnn.h"

#include <string.h>

struct backward {
    struct ul_lower *lower;
    struct ul_kernel *kernel;
    const struct ul_node *node;
    ul_node_id id;
    struct ul_rnn rnn;
    enum ul_dtype dtype;
    const struct ul_rnn_function *functions;
    int64_t direction;
    bool is_lstm, is_gru, is_linear, is_reverse;
    /* Scratch: [step][batch][rows]; states [step][batch][hidden] before each step and behind the
     * last; of a GRU R h + Rb, or the reset state; [batch][rows]; [batch][hidden]. */
    uint32_t gates, h, c, other, slopes, dh, dc, dreset;
    ul_kx step, batch, unit;
};

static ul_kx constant(const struct backward *b, int64_t value)
{
    return ul_kx_index_const(b->kernel, value);
}

static ul_kx number(const struct backward *b, double value)
{
    return ul_kx_number(b->kernel, b->dtype, value);
}

static bool has(const struct backward *b, uint32_t input)
{
    return ul_lower_has_input(b->lower, b->id, input);
}

static ul_kx mul(const struct backward *b, ul_kx x, ul_kx y)
{
    return ul_kx_mul(b->kernel, x, y);
}

static ul_kx add(const struct backward *b, ul_kx x, ul_kx y)
{
    return ul_kx_add(b->kernel, x, y);
}

/* 1 - x */
static ul_kx rest(const struct backward *b, ul_kx x)
{
    return ul_kx_sub(b->kernel, number(b, 1), x);
}

/* ---- Places ---- */

static ul_kx time_of(const struct backward *b, ul_kx step)
{
    return b->is_reverse ? ul_kx_sub(b->kernel, constant(b, b->rnn.steps - 1), step) : step;
}

static ul_kx gate_at(const struct backward *b, ul_kx step, ul_kx batch, ul_kx row)
{
    struct ul_kernel *k = b->kernel;
    ul_kx column = ul_kx_add(k, ul_kx_muli(k, step, b->rnn.batch), batch);
    return ul_kx_add(k, ul_kx_muli(k, column, b->rnn.gates * b->rnn.hidden), row);
}

static ul_kx state_at(const struct backward *b, ul_kx step, ul_kx batch, ul_kx unit)
{
    struct ul_kernel *k = b->kernel;
    ul_kx column = ul_kx_add(k, ul_kx_muli(k, step, b->rnn.batch), batch);
    return ul_kx_add(k, ul_kx_muli(k, column, b->rnn.hidden), unit);
}

static ul_kx row_of(const struct backward *b, int64_t gate)
{
    return ul_kx_addi(b->kernel, b->unit, gate * b->rnn.hidden);
}

static ul_kx own_at(const struct backward *b)
{
    return state_at(b, constant(b, 0), b->batch, b->unit);
}

static void open_units(struct backward *b)
{
    b->batch = ul_ks_for(b->kernel, b->rnn.batch, UL_FOR_PARALLEL);
    b->unit = ul_ks_for(b->kernel, b->rnn.hidden, UL_FOR_PARALLEL);
}

static void close_units(const struct backward *b)
{
    ul_ks_end(b->kernel);
    ul_ks_end(b->kernel);
}

static ul_kx load_gate(const struct backward *b, int64_t gate)
{
    return ul_ks_let(
        b->kernel, ul_kx_load(b->kernel, b->gates, gate_at(b, b->step, b->batch, row_of(b, gate))));
}

static ul_kx apply(const struct backward *b, uint32_t function, ul_kx x)
{
    return ul_ks_let(b->kernel, ul_rnn_apply(b->kernel, &b->rnn, &b->functions[function], x));
}

static ul_kx slope(const struct backward *b, uint32_t function, ul_kx x)
{
    return ul_rnn_slope(b->kernel, &b->rnn, &b->functions[function], x);
}

/* The cell's state passes its function unclipped. */
static struct ul_rnn unclipped(const struct backward *b)
{
    struct ul_rnn rnn = b->rnn;
    rnn.clip = 0;
    return rnn;
}

static ul_kx peephole(const struct backward *b, int64_t which)
{
    ul_kx index[] = {constant(b, b->direction),
                     ul_kx_addi(b->kernel, b->unit, which * b->rnn.hidden)};
    return ul_lower_load(b->lower, b->node->inputs[UL_RNN_PEEPHOLE], index);
}

static ul_kx lasts(const struct backward *b)
{
    if (!has(b, UL_RNN_LENGTHS))
        return ul_kx_int(b->kernel, UL_BOOL, 1);
    ul_kx length = ul_lower_load(b->lower, b->node->inputs[UL_RNN_LENGTHS], &b->batch);
    return ul_ks_let(b->kernel, ul_kx_binary(b->kernel, UL_KX_LT, time_of(b, b->step),
                                             ul_kx_cast(b->kernel, UL_I64, length)));
}

/* A state of the model at the unit: an initial one, or the gradient of a last one; else 0. */
static ul_kx load_state(const struct backward *b, uint32_t input)
{
    ul_kx first = constant(b, b->direction), second = b->batch;
    ul_kx index[] = {b->rnn.batch_first ? second : first, b->rnn.batch_first ? first : second,
                     b->unit};
    if (!has(b, input))
        return number(b, 0);
    return ul_kx_cast(b->kernel, b->dtype, ul_lower_load(b->lower, b->node->inputs[input], index));
}

/* ---- Forwards ---- */

/* gates of the step += R source + Rb, for `count` gates from `first` on; those of a hidden gate
 * that meets its reset behind R go to `other`. */
static void add_recurrent(const struct backward *b, int64_t first, int64_t count, uint32_t source,
                          ul_kx from)
{
    struct ul_kernel *k = b->kernel;
    int64_t hidden = b->rnn.hidden, rows = count * hidden, at[3][UL_CONTRACT_DIMS] = {{0}};
    bool is_apart = b->is_gru && b->is_linear && first == 2;
    struct ul_contraction c;
    ul_contraction_init(k, &c, b->dtype, &rows, 1, &b->rnn.batch, 1, &hidden, 1);
    ul_kx base[] = {constant(b, b->direction), constant(b, first * hidden), constant(b, 0)};
    at[1][0] = at[2][2] = 1;
    ul_lower_operand(b->lower, &c, &c.a, b->node->inputs[UL_RNN_R], base, at, 0, 0);
    c.b.buffer = source;
    c.b.at.base = from;
    c.b.at.strides[1] = hidden;
    c.b.at.strides[2] = 1;
    ul_ks_contract(k, &c);
    ul_kx local = ul_kx_var(k, c.vars[0]), batch = ul_kx_var(k, c.vars[1]);
    ul_kx row = ul_kx_addi(k, local, first * hidden), sum = ul_kx_var(k, c.acc);
    if (has(b, UL_RNN_BIAS)) {
        ul_kx index[] = {constant(b, b->direction), ul_kx_addi(k, row, b->rnn.gates * hidden)};
        sum = add(b, sum, ul_lower_load(b->lower, b->node->inputs[UL_RNN_BIAS], index));
    }
    ul_kx place[] = {time_of(b, b->step), batch, row};
    ul_kx pre = ul_lower_load(b->lower, b->node->inputs[UL_RNN_PRODUCTS], place);
    if (is_apart)
        ul_ks_store(k, b->other, state_at(b, b->step, batch, local), sum);
    ul_ks_store(k, b->gates, gate_at(b, b->step, batch, row), is_apart ? pre : add(b, pre, sum));
    ul_ks_end(k);
}

static void store_next(const struct backward *b, uint32_t state, ul_kx valid, ul_kx next)
{
    struct ul_kernel *k = b->kernel;
    ul_kx old = ul_kx_load(k, state, state_at(b, b->step, b->batch, b->unit));
    ul_kx behind = state_at(b, ul_kx_addi(k, b->step, 1), b->batch, b->unit);
    ul_ks_store(k, state, behind, ul_kx_select(k, valid, next, old));
}

/* The gate with its peephole, kept so. */
static ul_kx peep(const struct backward *b, int64_t gate, int64_t which, ul_kx state)
{
    ul_kx x = load_gate(b, gate);
    if (!has(b, UL_RNN_PEEPHOLE))
        return x;
    x = ul_ks_let(b->kernel, add(b, x, mul(b, peephole(b, which), state)));
    ul_ks_store(b->kernel, b->gates, gate_at(b, b->step, b->batch, row_of(b, gate)), x);
    return x;
}

static ul_kx forget_gate(const struct backward *b, ul_kx input, ul_kx gate)
{
    if (ul_node_get_int(b->node, "input_forget", 0) != 0)
        return rest(b, input);
    return apply(b, 0, gate);
}

static void forward_lstm(struct backward *b)
{
    struct ul_kernel *k = b->kernel;
    struct ul_rnn open = unclipped(b);
    add_recurrent(b, 0, 4, b->h, state_at(b, b->step, constant(b, 0), constant(b, 0)));
    open_units(b);
    ul_kx valid = lasts(b);
    ul_kx before = ul_ks_let(k, ul_kx_load(k, b->c, state_at(b, b->step, b->batch, b->unit)));
    ul_kx input = apply(b, 0, peep(b, 0, 0, before));
    ul_kx forget = forget_gate(b, input, peep(b, 2, 2, before));
    ul_kx next = add(b, mul(b, forget, before), mul(b, input, apply(b, 1, load_gate(b, 3))));
    next = ul_ks_let(k, next);
    ul_kx output = apply(b, 0, peep(b, 1, 1, next));
    store_next(b, b->c, valid, next);
    store_next(b, b->h, valid, mul(b, output, ul_rnn_apply(k, &open, &b->functions[2], next)));
    close_units(b);
}

static void forward_gru(struct backward *b)
{
    struct ul_kernel *k = b->kernel;
    ul_kx zero = constant(b, 0), from = state_at(b, b->step, zero, zero);
    add_recurrent(b, 0, 2, b->h, from);
    if (b->is_linear)
        add_recurrent(b, 2, 1, b->h, from);
    open_units(b);
    ul_kx at = state_at(b, b->step, b->batch, b->unit), reset = apply(b, 0, load_gate(b, 1));
    if (b->is_linear) {
        ul_kx hidden = add(b, load_gate(b, 2), mul(b, reset, ul_kx_load(k, b->other, at)));
        ul_ks_store(k, b->gates, gate_at(b, b->step, b->batch, row_of(b, 2)), hidden);
    } else {
        ul_ks_store(k, b->other, at, mul(b, reset, ul_kx_load(k, b->h, at)));
    }
    close_units(b);
    if (!b->is_linear)
        add_recurrent(b, 2, 1, b->other, from);
    open_units(b);
    ul_kx update = apply(b, 0, load_gate(b, 0)), hidden = apply(b, 1, load_gate(b, 2));
    ul_kx old = ul_kx_load(k, b->h, state_at(b, b->step, b->batch, b->unit));
    store_next(b, b->h, lasts(b), add(b, mul(b, rest(b, update), hidden), mul(b, update, old)));
    close_units(b);
}

static void forward_rnn(struct backward *b)
{
    add_recurrent(b, 0, 1, b->h, state_at(b, b->step, constant(b, 0), constant(b, 0)));
    open_units(b);
    store_next(b, b->h, lasts(b), apply(b, 0, load_gate(b, 0)));
    close_units(b);
}

/* ---- Backwards ---- */

/* to = base + R^T slopes, for `count` gates from `first` on; `adds`: base is what is there. */
static void multiply_back(const struct backward *b, int64_t first, int64_t count, uint32_t to,
                          bool adds)
{
    struct ul_kernel *k = b->kernel;
    int64_t hidden = b->rnn.hidden, rows = count * hidden, at[3][UL_CONTRACT_DIMS] = {{0}};
    struct ul_contraction c;
    ul_contraction_init(k, &c, b->dtype, &hidden, 1, &b->rnn.batch, 1, &rows, 1);
    ul_kx base[] = {constant(b, b->direction), constant(b, first * hidden), constant(b, 0)};
    at[1][2] = at[2][0] = 1;
    ul_lower_operand(b->lower, &c, &c.a, b->node->inputs[UL_RNN_R], base, at, 0, 0);
    c.b.buffer = b->slopes;
    c.b.at.base = constant(b, first * hidden);
    c.b.at.strides[1] = b->rnn.gates * hidden;
    c.b.at.strides[2] = 1;
    ul_ks_contract(k, &c);
    ul_kx place = state_at(b, constant(b, 0), ul_kx_var(k, c.vars[1]), ul_kx_var(k, c.vars[0]));
    ul_kx sum = ul_kx_var(k, c.acc);
    ul_ks_store(k, to, place, adds ? add(b, ul_kx_load(k, to, place), sum) : sum);
    ul_ks_end(k);
}

/* The gradient of a gate: none where the sequence has ended. What R sees may be another. */
static void store_gate(const struct backward *b, int64_t gate, ul_kx valid, ul_kx x, ul_kx seen)
{
    struct ul_kernel *k = b->kernel;
    ul_kx row = row_of(b, gate), zero = number(b, 0);
    ul_kx place[] = {time_of(b, b->step), b->batch, row};
    x = ul_ks_let(k, ul_kx_select(k, valid, x, zero));
    if (seen != UL_NONE)
        seen = ul_ks_let(k, ul_kx_select(k, valid, seen, zero));
    ul_lower_store(b->lower, b->node->outputs[0], place, x);
    ul_ks_store(k, b->slopes, gate_at(b, constant(b, 0), b->batch, row),
                seen != UL_NONE ? seen : x);
}

/* dh with the gradient of the step's result. */
static ul_kx load_dh(const struct backward *b, ul_kx valid, ul_kx *before)
{
    struct ul_kernel *k = b->kernel;
    *before = ul_ks_let(k, ul_kx_load(k, b->dh, own_at(b)));
    if (!has(b, UL_RNN_G_ALL))
        return *before;
    ul_kx time = time_of(b, b->step), side = constant(b, b->direction);
    ul_kx index[] = {time, side, b->batch, b->unit};
    if (b->rnn.batch_first)
        index[0] = b->batch, index[1] = time, index[2] = side;
    ul_kx g = ul_lower_load(b->lower, b->node->inputs[UL_RNN_G_ALL], index);
    g = ul_kx_select(k, valid, ul_kx_cast(k, b->dtype, g), number(b, 0));
    return ul_ks_let(k, add(b, *before, g));
}

static void store_dh(const struct backward *b, ul_kx valid, ul_kx before, ul_kx x)
{
    ul_ks_store(b->kernel, b->dh, own_at(b), ul_kx_select(b->kernel, valid, x, before));
}

/* What a step's peephole has: the gradient of its gate times the state that it sees. */
static void store_peephole(const struct backward *b, int64_t which, ul_kx valid, ul_kx gate,
                           ul_kx state)
{
    struct ul_kernel *k = b->kernel;
    ul_kx place[] = {time_of(b, b->step), b->batch, row_of(b, which)};
    if (ul_lower_has_output(b->lower, b->id, UL_RNN_OUT_PEEPHOLES))
        ul_lower_store(b->lower, b->node->outputs[UL_RNN_OUT_PEEPHOLES], place,
                       ul_kx_select(k, valid, mul(b, gate, state), number(b, 0)));
}

static void backward_lstm(struct backward *b)
{
    struct ul_kernel *k = b->kernel;
    struct ul_rnn open = unclipped(b);
    bool coupled = ul_node_get_int(b->node, "input_forget", 0) != 0;
    open_units(b);
    ul_kx valid = lasts(b), kept, zero = number(b, 0), x[4];
    ul_kx dh = load_dh(b, valid, &kept);
    for (int64_t gate = 0; gate < 4; gate++)
        x[gate] = load_gate(b, gate);
    ul_kx old = ul_ks_let(k, ul_kx_load(k, b->c, state_at(b, b->step, b->batch, b->unit)));
    ul_kx next = state_at(b, ul_kx_addi(k, b->step, 1), b->batch, b->unit);
    next = ul_ks_let(k, ul_kx_load(k, b->c, next));
    ul_kx input = apply(b, 0, x[0]), output = apply(b, 0, x[1]), candidate = apply(b, 1, x[3]);
    ul_kx squashed = ul_rnn_apply(k, &open, &b->functions[2], next);
    ul_kx doutput = mul(b, mul(b, dh, squashed), slope(b, 0, x[1]));
    doutput = ul_ks_let(k, doutput);
    ul_kx dc = mul(b, mul(b, dh, output), ul_rnn_slope(k, &open, &b->functions[2], next));
    ul_kx last = ul_ks_let(k, ul_kx_load(k, b->dc, own_at(b)));
    dc = add(b, last, dc);
    if (has(b, UL_RNN_PEEPHOLE))
        dc = add(b, dc, mul(b, doutput, peephole(b, 1)));
    dc = ul_ks_let(k, dc);
    ul_kx taken = coupled ? ul_kx_sub(k, candidate, old) : candidate;
    ul_kx dinput = ul_ks_let(k, mul(b, mul(b, dc, taken), slope(b, 0, x[0])));
    ul_kx dforget = coupled ? zero : ul_ks_let(k, mul(b, mul(b, dc, old), slope(b, 0, x[2])));
    ul_kx before = mul(b, dc, forget_gate(b, input, x[2]));
    if (has(b, UL_RNN_PEEPHOLE)) {
        before = add(b, before, mul(b, dinput, peephole(b, 0)));
        before = add(b, before, mul(b, dforget, peephole(b, 2)));
    }
    store_gate(b, 0, valid, dinput, UL_NONE);
    store_gate(b, 1, valid, doutput, UL_NONE);
    store_gate(b, 2, valid, dforget, UL_NONE);
    store_gate(b, 3, valid, mul(b, mul(b, dc, input), slope(b, 1, x[3])), UL_NONE);
    store_peephole(b, 0, valid, dinput, old);
    store_peephole(b, 1, valid, doutput, next);
    store_peephole(b, 2, valid, dforget, old);
    ul_ks_store(k, b->dc, own_at(b), ul_kx_select(k, valid, before, last));
    store_dh(b, valid, kept, zero);
    close_units(b);
    multiply_back(b, 0, 4, b->dh, true);
}

/* `other` becomes what the hidden gate's R sees, where that is not the gate's own gradient. */
static void backward_gru(struct backward *b)
{
    struct ul_kernel *k = b->kernel;
    open_units(b);
    ul_kx valid = lasts(b), kept, dh = load_dh(b, valid, &kept);
    ul_kx at = state_at(b, b->step, b->batch, b->unit), z = load_gate(b, 0), n = load_gate(b, 2);
    ul_kx update = apply(b, 0, z), old = ul_ks_let(k, ul_kx_load(k, b->h, at));
    ul_kx gap = ul_kx_sub(k, old, apply(b, 1, n));
    store_gate(b, 0, valid, mul(b, mul(b, dh, gap), slope(b, 0, z)), UL_NONE);
    ul_kx dhidden = ul_ks_let(k, mul(b, mul(b, dh, rest(b, update)), slope(b, 1, n)));
    ul_kx r = load_gate(b, 1), reset = apply(b, 0, r), seen = UL_NONE;
    if (b->is_linear) {
        ul_kx state = ul_kx_load(k, b->other, at);
        store_gate(b, 1, valid, mul(b, mul(b, dhidden, state), slope(b, 0, r)), UL_NONE);
        seen = ul_ks_let(k, mul(b, dhidden, reset));
        ul_ks_store(k, b->other, at, ul_kx_select(k, valid, seen, number(b, 0)));
    }
    store_gate(b, 2, valid, dhidden, seen);
    store_dh(b, valid, kept, mul(b, dh, update));
    close_units(b);
    if (b->is_linear) {
        multiply_back(b, 0, 3, b->dh, true);
        return;
    }
    multiply_back(b, 2, 1, b->dreset, false);
    open_units(b);
    ul_kx dreset = ul_ks_let(k, ul_kx_load(k, b->dreset, own_at(b)));
    r = load_gate(b, 1);
    old = ul_kx_load(k, b->h, state_at(b, b->step, b->batch, b->unit));
    store_gate(b, 1, lasts(b), mul(b, mul(b, dreset, old), slope(b, 0, r)), UL_NONE);
    ul_kx sum = add(b, ul_kx_load(k, b->dh, own_at(b)), mul(b, dreset, apply(b, 0, r)));
    ul_ks_store(k, b->dh, own_at(b), sum);
    close_units(b);
    multiply_back(b, 0, 2, b->dh, true);
}

static void backward_rnn(struct backward *b)
{
    open_units(b);
    ul_kx valid = lasts(b), kept, dh = load_dh(b, valid, &kept);
    store_gate(b, 0, valid, mul(b, dh, slope(b, 0, load_gate(b, 0))), UL_NONE);
    store_dh(b, valid, kept, number(b, 0));
    close_units(b);
    multiply_back(b, 0, 1, b->dh, true);
}

/* ---- All of it ---- */

/* [time][batch][unit] of the sequence of states. */
static void store_sequence(struct backward *b, uint32_t output, uint32_t state)
{
    b->step = ul_ks_for(b->kernel, b->rnn.steps, UL_FOR_PARALLEL);
    open_units(b);
    ul_kx place[] = {time_of(b, b->step), b->batch, b->unit};
    ul_lower_store(b->lower, b->node->outputs[output], place,
                   ul_kx_load(b->kernel, state, state_at(b, b->step, b->batch, b->unit)));
    close_units(b);
    ul_ks_end(b->kernel);
}

static void store_state(struct backward *b, uint32_t output, uint32_t state)
{
    open_units(b);
    ul_kx place[] = {b->batch, b->unit};
    ul_lower_store(b->lower, b->node->outputs[output], place,
                   ul_kx_load(b->kernel, state, own_at(b)));
    close_units(b);
}

static void set_state(struct backward *b, uint32_t state, uint32_t input)
{
    open_units(b);
    ul_ks_store(b->kernel, state, own_at(b), load_state(b, input));
    close_units(b);
}

static void make_room(struct backward *b)
{
    const struct ul_rnn *rnn = &b->rnn;
    uint64_t state = (uint64_t)(rnn->batch * rnn->hidden), rows = state * (uint64_t)rnn->gates;
    uint64_t steps = (uint64_t)rnn->steps;
    b->gates = ul_lower_scratch(b->lower, b->dtype, steps * rows);
    b->h = ul_lower_scratch(b->lower, b->dtype, (steps + 1) * state);
    b->slopes = ul_lower_scratch(b->lower, b->dtype, rows);
    b->dh = ul_lower_scratch(b->lower, b->dtype, state);
    if (b->is_lstm) {
        b->c = ul_lower_scratch(b->lower, b->dtype, (steps + 1) * state);
        b->dc = ul_lower_scratch(b->lower, b->dtype, state);
    }
    if (b->is_gru)
        b->other = ul_lower_scratch(b->lower, b->dtype, steps * state);
    if (b->is_gru && !b->is_linear)
        b->dreset = ul_lower_scratch(b->lower, b->dtype, state);
}

static void run_through(struct backward *b)
{
    struct ul_kernel *k = b->kernel;
    set_state(b, b->h, UL_RNN_INITIAL_H);
    if (b->is_lstm)
        set_state(b, b->c, UL_RNN_INITIAL_C);
    b->step = ul_ks_for(k, b->rnn.steps, 0);
    (b->is_lstm ? forward_lstm : b->is_gru ? forward_gru : forward_rnn)(b);
    ul_ks_end(k);
    set_state(b, b->dh, UL_RNN_G_LAST_H);
    if (b->is_lstm)
        set_state(b, b->dc, UL_RNN_G_LAST_C);
    ul_kx turn = ul_ks_for(k, b->rnn.steps, 0);
    b->step = ul_ks_let(k, ul_kx_sub(k, constant(b, b->rnn.steps - 1), turn));
    (b->is_lstm ? backward_lstm : b->is_gru ? backward_gru : backward_rnn)(b);
    ul_ks_end(k);
}

void ul_lower_rnn_gradient(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_type *types[8] = {NULL};
    struct backward b = {.lower = lower, .kernel = lower->kernel, .id = node};
    b.node = ul_check_node(lower, node);
    for (uint32_t i = 0; i < 8; i++)
        if (ul_lower_has_input(lower, node, i))
            types[i] = ul_lower_input_type(lower, node, i);
    const char *wrong = ul_rnn_read(&b.rnn, b.node, types);
    UL_ASSERT(wrong == NULL);
    b.dtype = ul_compute_dtype(types[UL_RNN_X]->dtype);
    b.direction = ul_node_get_int(b.node, "ul_direction", 0);
    b.functions = b.rnn.functions[b.direction];
    b.is_lstm = b.node->op == UL_OP_LSTMGradient;
    b.is_gru = b.node->op == UL_OP_GRUGradient;
    b.is_linear = ul_node_get_int(b.node, "linear_before_reset", 0) != 0;
    b.is_reverse = b.rnn.first_is_reverse || b.direction == 1;
    make_room(&b);
    run_through(&b);
    store_sequence(&b, 1, b.h);
    store_state(&b, 2, b.dh);
    if (b.is_lstm)
        store_state(&b, 3, b.dc);
    if (b.is_gru)
        store_sequence(&b, 3, b.other);
}
