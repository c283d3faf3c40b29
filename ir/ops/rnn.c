/* RNN, GRU and LSTM: contractions inside a sequential loop over time.
 *
 * For each direction:
 *
 *     h, c = initial states                               scratch, [batch][hidden]
 *     for chunks of time:
 *         gates[step][batch][row] = W x + Wb              one contraction for the chunk
 *         for steps of the chunk:
 *             gates += R h + Rb                           a contraction
 *             h, c, Y = cell(gates, h, c)                 elementwise
 *     Y_h, Y_c = h, c
 *
 * A chunk is as many steps as give about 8 columns, so that W is read once for them; gates is
 * planned scratch of that size. The weights are the contraction's rows and are read in place. A
 * sequence shorter than the batch's longest keeps its state, and gives zeros, from its end on;
 * backwards, it keeps its initial state until its end is reached.
 */
#include "ir/ops/rnn.h"

#include <string.h>

#define COLUMNS 8 /* of one chunk: steps x batch, about */

struct cell {
    struct ul_lower *lower;
    struct ul_kernel *kernel;
    const struct ul_node *node;
    ul_node_id node_id;
    struct ul_rnn rnn;
    enum ul_dtype dtype;         /* computed in */
    int64_t chunk;               /* steps */
    uint32_t gates, h, c, extra; /* scratch: [chunk][batch][rows]; [batch][hidden] */
    /* of the direction being lowered */
    int64_t direction;
    bool is_reverse;
    ul_kx step; /* of the chunk */
    ul_kx time; /* the step's position in X and Y */
};

static ul_kx constant(const struct cell *cell, int64_t value)
{
    return ul_kx_index_const(cell->kernel, value);
}

static bool has(const struct cell *cell, enum ul_rnn_input input)
{
    return ul_lower_has_input(cell->lower, cell->node_id, input);
}

/* [direction, row] of B or P. */
static ul_kx load_row(const struct cell *cell, enum ul_rnn_input input, ul_kx row)
{
    ul_kx index[] = {constant(cell, cell->direction), row};
    return ul_lower_load(cell->lower, cell->node->inputs[input], index);
}

static void state_index(const struct cell *cell, ul_kx batch, ul_kx unit, ul_kx index[3])
{
    index[0] = cell->rnn.batch_first ? batch : constant(cell, cell->direction);
    index[1] = cell->rnn.batch_first ? constant(cell, cell->direction) : batch;
    index[2] = unit;
}

/* batch * hidden + unit */
static ul_kx state_at(const struct cell *cell, ul_kx batch, ul_kx unit)
{
    return ul_kx_add(cell->kernel, ul_kx_muli(cell->kernel, batch, cell->rnn.hidden), unit);
}

/* The place of `row` in gates. */
static ul_kx gate_at(const struct cell *cell, ul_kx step, ul_kx batch, ul_kx row)
{
    ul_kx column = ul_kx_add(cell->kernel, ul_kx_muli(cell->kernel, step, cell->rnn.batch), batch);
    return ul_kx_add(cell->kernel,
                     ul_kx_muli(cell->kernel, column, cell->rnn.gates * cell->rnn.hidden), row);
}

static void open_units(const struct cell *cell, ul_kx *batch, ul_kx *unit)
{
    *batch = ul_ks_for(cell->kernel, cell->rnn.batch, UL_FOR_PARALLEL);
    *unit = ul_ks_for(cell->kernel, cell->rnn.hidden, UL_FOR_PARALLEL);
}

static void close_units(const struct cell *cell)
{
    ul_ks_end(cell->kernel);
    ul_ks_end(cell->kernel);
}

static void set_initial(const struct cell *cell, uint32_t state, enum ul_rnn_input input)
{
    ul_kx batch, unit, index[3];
    open_units(cell, &batch, &unit);
    ul_kx value = ul_kx_number(cell->kernel, cell->dtype, 0);
    state_index(cell, batch, unit, index);
    if (has(cell, input))
        value = ul_lower_load(cell->lower, cell->node->inputs[input], index);
    ul_ks_store(cell->kernel, state, state_at(cell, batch, unit), value);
    close_units(cell);
}

static void store_last(const struct cell *cell, uint32_t state, uint32_t output)
{
    if (!ul_lower_has_output(cell->lower, cell->node_id, output))
        return;
    ul_kx batch, unit, index[3];
    open_units(cell, &batch, &unit);
    state_index(cell, batch, unit, index);
    ul_lower_store(cell->lower, cell->node->outputs[output], index,
                   ul_kx_load(cell->kernel, state, state_at(cell, batch, unit)));
    close_units(cell);
}

/* gates[step][batch][row] = W x (+ Wb) for the steps of chunk `chunk`; m = rows, n = (step,
 * batch), k = inputs. */
static void lower_inputs(const struct cell *cell, ul_kx chunk)
{
    struct ul_kernel *kernel = cell->kernel;
    const struct ul_rnn *rnn = &cell->rnn;
    int64_t rows = rnn->gates * rnn->hidden, columns[] = {cell->chunk, rnn->batch};
    int64_t w_at[3][UL_CONTRACT_DIMS] = {{0}}, x_at[3][UL_CONTRACT_DIMS] = {{0}};
    uint32_t time = rnn->batch_first ? 1 : 0;
    struct ul_contraction contraction;
    ul_contraction_init(kernel, &contraction, cell->dtype, &rows, 1, columns, 2, &rnn->inputs, 1);
    ul_kx first = ul_kx_muli(kernel, chunk, cell->chunk);
    if (cell->is_reverse)
        first = ul_kx_sub(kernel, constant(cell, rnn->steps - 1), first);
    ul_kx zero = constant(cell, 0);
    ul_kx w_base[] = {constant(cell, cell->direction), zero, zero};
    ul_kx x_base[] = {zero, zero, zero};
    x_base[time] = first;
    w_at[1][0] = w_at[2][3] = 1;
    x_at[time][1] = cell->is_reverse ? -1 : 1;
    x_at[1 - time][2] = x_at[2][3] = 1;
    uint32_t checked = rnn->steps % cell->chunk != 0 ? 1u << time : 0;
    ul_lower_operand(cell->lower, &contraction, &contraction.a, cell->node->inputs[UL_RNN_W],
                     w_base, w_at, 0, 0);
    ul_lower_operand(cell->lower, &contraction, &contraction.b, cell->node->inputs[UL_RNN_X],
                     x_base, x_at, checked, 0);
    ul_ks_contract(kernel, &contraction);
    ul_kx row = ul_kx_var(kernel, contraction.vars[0]), sum = ul_kx_var(kernel, contraction.acc);
    if (has(cell, UL_RNN_BIAS))
        sum = ul_kx_binary(kernel, UL_KX_ADD, sum, load_row(cell, UL_RNN_BIAS, row));
    ul_ks_store(kernel, cell->gates,
                gate_at(cell, ul_kx_var(kernel, contraction.vars[1]),
                        ul_kx_var(kernel, contraction.vars[2]), row),
                sum);
    ul_ks_end(kernel);
}

/* R source + Rb for `count` gates from `gate` on, source being [batch][hidden]; added to the
 * step's gates, or stored in `to` ([batch][count * hidden]) when that is no UL_NONE. */
static void lower_state(const struct cell *cell, int64_t gate, int64_t count, uint32_t source,
                        uint32_t to)
{
    struct ul_kernel *kernel = cell->kernel;
    const struct ul_rnn *rnn = &cell->rnn;
    int64_t rows = count * rnn->hidden, r_at[3][UL_CONTRACT_DIMS] = {{0}};
    struct ul_contraction contraction;
    ul_contraction_init(kernel, &contraction, cell->dtype, &rows, 1, &rnn->batch, 1, &rnn->hidden,
                        1);
    ul_kx base[] = {constant(cell, cell->direction), constant(cell, gate * rnn->hidden),
                    constant(cell, 0)};
    r_at[1][0] = r_at[2][2] = 1;
    ul_lower_operand(cell->lower, &contraction, &contraction.a, cell->node->inputs[UL_RNN_R], base,
                     r_at, 0, 0);
    contraction.b.buffer = source;
    contraction.b.at.base = constant(cell, 0);
    contraction.b.at.strides[1] = rnn->hidden;
    contraction.b.at.strides[2] = 1;
    ul_ks_contract(kernel, &contraction);
    ul_kx row = ul_kx_addi(kernel, ul_kx_var(kernel, contraction.vars[0]), gate * rnn->hidden);
    ul_kx batch = ul_kx_var(kernel, contraction.vars[1]);
    ul_kx sum = ul_kx_var(kernel, contraction.acc);
    if (has(cell, UL_RNN_BIAS)) {
        ul_kx bias = ul_kx_addi(kernel, row, rnn->gates * rnn->hidden);
        sum = ul_kx_binary(kernel, UL_KX_ADD, sum, load_row(cell, UL_RNN_BIAS, bias));
    }
    ul_kx at = gate_at(cell, cell->step, batch, row);
    if (to == UL_NONE)
        ul_ks_store(kernel, cell->gates, at,
                    ul_kx_binary(kernel, UL_KX_ADD, sum, ul_kx_load(kernel, cell->gates, at)));
    else
        ul_ks_store(kernel, to,
                    ul_kx_add(kernel, ul_kx_muli(kernel, batch, rows),
                              ul_kx_var(kernel, contraction.vars[0])),
                    sum);
    ul_ks_end(kernel);
}

/* Gate `gate` of one unit, before its function. */
static ul_kx load_gate(const struct cell *cell, ul_kx batch, int64_t gate, ul_kx unit)
{
    ul_kx row = ul_kx_addi(cell->kernel, unit, gate * cell->rnn.hidden);
    return ul_kx_load(cell->kernel, cell->gates, gate_at(cell, cell->step, batch, row));
}

static ul_kx apply(const struct cell *cell, uint32_t function, ul_kx x)
{
    const struct ul_rnn_function *functions = cell->rnn.functions[cell->direction];
    return ul_ks_let(cell->kernel, ul_rnn_apply(cell->kernel, &cell->rnn, &functions[function], x));
}

/* True while the sequence lasts; UL_NONE when all are as long as X. */
static ul_kx lasts(const struct cell *cell, ul_kx batch)
{
    if (!has(cell, UL_RNN_LENGTHS))
        return UL_NONE;
    ul_kx length = ul_lower_load(cell->lower, cell->node->inputs[UL_RNN_LENGTHS], &batch);
    return ul_kx_binary(cell->kernel, UL_KX_LT, cell->time,
                        ul_kx_cast(cell->kernel, UL_I64, length));
}

static void keep_state(const struct cell *cell, uint32_t state, ul_kx at, ul_kx valid, ul_kx next)
{
    if (valid != UL_NONE)
        next = ul_kx_select(cell->kernel, valid, next, ul_kx_load(cell->kernel, state, at));
    ul_ks_store(cell->kernel, state, at, next);
}

/* Stores the new h of one unit as state and in Y. */
static void finish_unit(const struct cell *cell, ul_kx batch, ul_kx unit, ul_kx valid, ul_kx next)
{
    struct ul_kernel *kernel = cell->kernel;
    next = ul_ks_let(kernel, next);
    keep_state(cell, cell->h, state_at(cell, batch, unit), valid, next);
    if (!ul_lower_has_output(cell->lower, cell->node_id, 0))
        return;
    ul_kx direction = constant(cell, cell->direction);
    ul_kx index[] = {cell->time, direction, batch, unit};
    if (cell->rnn.batch_first)
        index[0] = batch, index[1] = cell->time, index[2] = direction;
    if (valid != UL_NONE)
        next = ul_kx_select(kernel, valid, next, ul_kx_number(kernel, cell->dtype, 0));
    ul_lower_store(cell->lower, cell->node->outputs[0], index, next);
}

static void step_rnn(const struct cell *cell)
{
    lower_state(cell, 0, 1, cell->h, UL_NONE);
    ul_kx batch, unit;
    open_units(cell, &batch, &unit);
    finish_unit(cell, batch, unit, lasts(cell, batch),
                apply(cell, 0, load_gate(cell, batch, 0, unit)));
    close_units(cell);
}

/* Gates z, r, h. The state meets the reset gate before R (linear_before_reset 0) or behind it;
 * `extra` holds r * h in the first case, R h + Rb in the second. */
static void step_gru(const struct cell *cell)
{
    struct ul_kernel *kernel = cell->kernel;
    bool linear = ul_node_get_int(cell->node, "linear_before_reset", 0) != 0;
    ul_kx batch, unit;
    lower_state(cell, 0, 2, cell->h, UL_NONE);
    if (linear) {
        lower_state(cell, 2, 1, cell->h, cell->extra);
    } else {
        open_units(cell, &batch, &unit);
        ul_kx at = state_at(cell, batch, unit);
        ul_kx reset = apply(cell, 0, load_gate(cell, batch, 1, unit));
        ul_ks_store(kernel, cell->extra, at,
                    ul_kx_binary(kernel, UL_KX_MUL, reset, ul_kx_load(kernel, cell->h, at)));
        close_units(cell);
        lower_state(cell, 2, 1, cell->extra, UL_NONE);
    }
    open_units(cell, &batch, &unit);
    ul_kx at = state_at(cell, batch, unit), hidden = load_gate(cell, batch, 2, unit);
    if (linear) {
        ul_kx reset = apply(cell, 0, load_gate(cell, batch, 1, unit));
        ul_kx part = ul_kx_binary(kernel, UL_KX_MUL, reset, ul_kx_load(kernel, cell->extra, at));
        hidden = ul_kx_binary(kernel, UL_KX_ADD, hidden, part);
    }
    hidden = apply(cell, 1, hidden);
    ul_kx update = apply(cell, 0, load_gate(cell, batch, 0, unit));
    /* (1 - z) * h' + z * h */
    ul_kx rest = ul_kx_binary(kernel, UL_KX_SUB, ul_kx_number(kernel, cell->dtype, 1), update);
    ul_kx next =
        ul_kx_binary(kernel, UL_KX_ADD, ul_kx_binary(kernel, UL_KX_MUL, rest, hidden),
                     ul_kx_binary(kernel, UL_KX_MUL, update, ul_kx_load(kernel, cell->h, at)));
    finish_unit(cell, batch, unit, lasts(cell, batch), next);
    close_units(cell);
}

/* x + P[which] * state, where there are peepholes; their order is i, o, f. */
static ul_kx peep(const struct cell *cell, int64_t which, ul_kx unit, ul_kx state, ul_kx x)
{
    struct ul_kernel *kernel = cell->kernel;
    if (!has(cell, UL_RNN_PEEPHOLE))
        return x;
    ul_kx factor =
        load_row(cell, UL_RNN_PEEPHOLE, ul_kx_addi(kernel, unit, which * cell->rnn.hidden));
    return ul_kx_binary(kernel, UL_KX_ADD, x, ul_kx_binary(kernel, UL_KX_MUL, factor, state));
}

/* Gates i, o, f, c. */
static void step_lstm(const struct cell *cell)
{
    struct ul_kernel *kernel = cell->kernel;
    lower_state(cell, 0, 4, cell->h, UL_NONE);
    ul_kx batch, unit;
    open_units(cell, &batch, &unit);
    ul_kx at = state_at(cell, batch, unit);
    ul_kx before = ul_ks_let(kernel, ul_kx_load(kernel, cell->c, at));
    ul_kx input = apply(cell, 0, peep(cell, 0, unit, before, load_gate(cell, batch, 0, unit)));
    ul_kx forget = ul_kx_binary(kernel, UL_KX_SUB, ul_kx_number(kernel, cell->dtype, 1), input);
    if (ul_node_get_int(cell->node, "input_forget", 0) == 0)
        forget = apply(cell, 0, peep(cell, 2, unit, before, load_gate(cell, batch, 2, unit)));
    ul_kx candidate = apply(cell, 1, load_gate(cell, batch, 3, unit));
    ul_kx next = ul_kx_binary(kernel, UL_KX_ADD, ul_kx_binary(kernel, UL_KX_MUL, forget, before),
                              ul_kx_binary(kernel, UL_KX_MUL, input, candidate));
    next = ul_ks_let(kernel, next);
    ul_kx output = apply(cell, 0, peep(cell, 1, unit, next, load_gate(cell, batch, 1, unit)));
    ul_kx valid = lasts(cell, batch);
    /* Clipping is of the gates: the state itself passes its function as it is. */
    struct ul_rnn unclipped = cell->rnn;
    unclipped.clip = 0;
    ul_kx squashed =
        ul_rnn_apply(kernel, &unclipped, &cell->rnn.functions[cell->direction][2], next);
    keep_state(cell, cell->c, at, valid, next);
    finish_unit(cell, batch, unit, valid, ul_kx_binary(kernel, UL_KX_MUL, output, squashed));
    close_units(cell);
}

static void lower_direction(struct cell *cell, void step(const struct cell *cell))
{
    struct ul_kernel *kernel = cell->kernel;
    int64_t steps = cell->rnn.steps, chunks = (steps + cell->chunk - 1) / cell->chunk;
    set_initial(cell, cell->h, UL_RNN_INITIAL_H);
    if (cell->c != UL_NONE)
        set_initial(cell, cell->c, UL_RNN_INITIAL_C);
    ul_kx chunk = ul_ks_for(kernel, chunks, 0);
    lower_inputs(cell, chunk);
    ul_kx first = ul_kx_muli(kernel, chunk, cell->chunk), count = constant(cell, cell->chunk);
    if (steps % cell->chunk != 0)
        count =
            ul_kx_binary(kernel, UL_KX_MIN, count, ul_kx_sub(kernel, constant(cell, steps), first));
    cell->step = ul_ks_for_expr(kernel, count, cell->chunk, 0);
    cell->time = ul_kx_add(kernel, first, cell->step);
    if (cell->is_reverse)
        cell->time = ul_kx_sub(kernel, constant(cell, steps - 1), cell->time);
    step(cell);
    ul_ks_end(kernel);
    ul_ks_end(kernel);
    store_last(cell, cell->h, 1);
    if (cell->c != UL_NONE)
        store_last(cell, cell->c, 2);
}

static void lower_cell(struct ul_lower *lower, ul_node_id node, void step(const struct cell *cell))
{
    const struct ul_type *types[8] = {NULL};
    struct cell cell = {.lower = lower,
                        .kernel = lower->kernel,
                        .node = &lower->graph->nodes[node],
                        .node_id = node};
    for (uint32_t i = 0; i < 8; i++)
        if (ul_lower_has_input(lower, node, i))
            types[i] = ul_lower_input_type(lower, node, i);
    const char *wrong = ul_rnn_read(&cell.rnn, cell.node, types);
    UL_ASSERT(wrong == NULL);
    cell.dtype = ul_compute_dtype(types[UL_RNN_X]->dtype);
    int64_t batch = cell.rnn.batch, hidden = cell.rnn.hidden;
    cell.chunk = batch == 0 || batch > COLUMNS ? 1 : COLUMNS / batch;
    if (cell.chunk > cell.rnn.steps)
        cell.chunk = cell.rnn.steps > 0 ? cell.rnn.steps : 1;
    cell.gates = ul_lower_scratch(lower, cell.dtype,
                                  (uint64_t)(cell.chunk * batch * cell.rnn.gates * hidden));
    cell.h = ul_lower_scratch(lower, cell.dtype, (uint64_t)(batch * hidden));
    bool has_c = cell.node->op == UL_OP_LSTM, has_extra = cell.node->op == UL_OP_GRU;
    cell.c = has_c ? ul_lower_scratch(lower, cell.dtype, (uint64_t)(batch * hidden)) : UL_NONE;
    cell.extra =
        has_extra ? ul_lower_scratch(lower, cell.dtype, (uint64_t)(batch * hidden)) : UL_NONE;
    for (cell.direction = 0; cell.direction < cell.rnn.directions; cell.direction++) {
        cell.is_reverse = cell.rnn.first_is_reverse || cell.direction == 1;
        lower_direction(&cell, step);
    }
}

void ul_lower_rnn(struct ul_lower *lower, ul_node_id node)
{
    lower_cell(lower, node, step_rnn);
}

void ul_lower_gru(struct ul_lower *lower, ul_node_id node)
{
    lower_cell(lower, node, step_gru);
}

void ul_lower_lstm(struct ul_lower *lower, ul_node_id node)
{
    lower_cell(lower, node, step_lstm);
}
