/* SPDX-License-Identifier: Apache-2.0 */
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
 *
 * Where a target wants steps spread (ir/traits.h), a step is one nest of independent units, of
 * both directions where their functions are the same, so that one launch does for it:
 *
 *     for direction, unit:
 *         sums[gate][batch] = R h of this unit alone      a contraction
 *         for batch: h', c, Y = cell(gates + sums + Rb, h, c)
 *
 * A chunk is then all steps, as far as their gates are few bytes: a target that holds R in its
 * processors (codegen/device/grid_together.c) runs all of it at once.
 *
 * h' being another half of h (which lies in 16 bits where its factors are rounded), for all units
 * read the whole of h. (A GRU whose reset gate comes before R takes two nests.)
 */
#include "ir/ops/rnn/rnn.h"
#include "ir/kernel_build.h"
#include "ir/lower.h"

#include <string.h>

enum {
    COLUMNS = 8,            /* of one chunk: steps x batch, about */
    SPREAD_COLUMNS = 32,    /* at least, where a chunk is a launch */
    SPREAD_GATES = 4 << 20, /* bytes of a chunk's gates, where that is more */
    SPREAD_BATCH = 8,       /* at most: a larger one is worth tiles */
    MAX_GATES = 4
};

struct cell {
    struct ul_lower *lower;
    struct ul_kernel *kernel;
    const struct ul_node *node;
    ul_node_id node_id;
    struct ul_rnn rnn;
    enum ul_dtype dtype; /* computed in */
    bool is_spread;
    int64_t chunk;      /* steps in a chunk */
    int64_t side_count; /* directions that are lowered together */
    /* Scratch: gates [side][chunk][batch][rows], the others [side][batch][hidden]; h twice where
     * steps are spread. */
    uint32_t gates, h, c, extra;
    /* of the directions being lowered */
    const struct ul_rnn_function *functions;
    bool is_reverse; /* whether the first of them is */
    ul_kx side, direction;
    ul_kx step;        /* of the chunk */
    ul_kx at;          /* steps before this one */
    ul_kx h_now, h_to; /* where the step reads h, and where it stores it */
    /* of a unit, where steps are spread */
    uint32_t sums; /* [gate - first_gate][batch] */
    int64_t first_gate, gate_end;
    ul_kx ahead[2][MAX_GATES]; /* loaded before the product: gates and Rb, or UL_NONE */
};

static ul_kx constant(const struct cell *cell, int64_t value)
{
    return ul_kx_index_const(cell->kernel, value);
}

static bool has(const struct cell *cell, enum ul_rnn_input input)
{
    return ul_lower_has_input(cell->lower, cell->node_id, input);
}

/* Loads [direction, row] of B or P. */
static ul_kx load_row(const struct cell *cell, enum ul_rnn_input input, ul_kx row)
{
    ul_kx index[] = {cell->direction, row};
    return ul_lower_load(cell->lower, cell->node->inputs[input], index);
}

static void state_index(const struct cell *cell, ul_kx batch, ul_kx unit, ul_kx index[3])
{
    index[0] = cell->rnn.batch_first ? batch : cell->direction;
    index[1] = cell->rnn.batch_first ? cell->direction : batch;
    index[2] = unit;
}

/* [side][batch][unit] */
static ul_kx state_at(const struct cell *cell, ul_kx batch, ul_kx unit)
{
    struct ul_kernel *kernel = cell->kernel;
    ul_kx row = ul_kx_add(kernel, ul_kx_muli(kernel, cell->side, cell->rnn.batch), batch);
    return ul_kx_add(kernel, ul_kx_muli(kernel, row, cell->rnn.hidden), unit);
}

/* The step's position in X and Y; with two directions, the second one runs backwards. */
static ul_kx time_of(const struct cell *cell)
{
    struct ul_kernel *kernel = cell->kernel;
    ul_kx back = ul_kx_sub(kernel, constant(cell, cell->rnn.steps - 1), cell->at);
    if (cell->side_count > 1)
        return ul_kx_add(kernel, cell->at,
                         ul_kx_mul(kernel, cell->side, ul_kx_sub(kernel, back, cell->at)));
    return cell->is_reverse ? back : cell->at;
}

/* The place of `row` in gates. */
static ul_kx gate_at(const struct cell *cell, ul_kx step, ul_kx batch, ul_kx row)
{
    struct ul_kernel *kernel = cell->kernel;
    step = ul_kx_add(kernel, ul_kx_muli(kernel, cell->side, cell->chunk), step);
    ul_kx column = ul_kx_add(kernel, ul_kx_muli(kernel, step, cell->rnn.batch), batch);
    return ul_kx_add(kernel, ul_kx_muli(kernel, column, cell->rnn.gates * cell->rnn.hidden), row);
}

static void open_sides(struct cell *cell)
{
    if (cell->side_count > 1)
        cell->side = cell->direction = ul_ks_for(cell->kernel, cell->side_count, UL_FOR_PARALLEL);
}

static void open_units(struct cell *cell, ul_kx *batch, ul_kx *unit)
{
    open_sides(cell);
    *batch = ul_ks_for(cell->kernel, cell->rnn.batch, UL_FOR_PARALLEL);
    *unit = ul_ks_for(cell->kernel, cell->rnn.hidden, UL_FOR_PARALLEL);
}

static void close_units(const struct cell *cell)
{
    for (int64_t i = 0; i < 2 + (cell->side_count > 1); i++)
        ul_ks_end(cell->kernel);
}

static void set_initial(struct cell *cell, uint32_t state, enum ul_rnn_input input)
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

/* `place` is that of the state in the scratch. */
static void store_last(struct cell *cell, uint32_t state, int64_t place, uint32_t output)
{
    if (!ul_lower_has_output(cell->lower, cell->node_id, output))
        return;
    ul_kx batch, unit, index[3];
    open_units(cell, &batch, &unit);
    state_index(cell, batch, unit, index);
    ul_lower_store(cell->lower, cell->node->outputs[output], index,
                   ul_kx_load(cell->kernel, state,
                              ul_kx_addi(cell->kernel, state_at(cell, batch, unit), place)));
    close_units(cell);
}

/* gates[step][batch][row] = W x (+ Wb) for the steps of chunk `chunk`; m = rows, n = (step,
 * batch), k = inputs. */
static void lower_inputs(const struct cell *cell, ul_kx chunk, bool is_reverse)
{
    struct ul_kernel *kernel = cell->kernel;
    const struct ul_rnn *rnn = &cell->rnn;
    int64_t rows = rnn->gates * rnn->hidden, columns[] = {cell->chunk, rnn->batch};
    int64_t w_at[3][UL_CONTRACT_DIMS] = {{0}}, x_at[3][UL_CONTRACT_DIMS] = {{0}};
    uint32_t time = rnn->batch_first ? 1 : 0;
    struct ul_contraction contraction;
    ul_contraction_init(kernel, &contraction, cell->dtype, &rows, 1, columns, 2, &rnn->inputs, 1);
    ul_kx first = ul_kx_muli(kernel, chunk, cell->chunk);
    if (is_reverse)
        first = ul_kx_sub(kernel, constant(cell, rnn->steps - 1), first);
    ul_kx zero = constant(cell, 0);
    ul_kx w_base[] = {cell->direction, zero, zero};
    ul_kx x_base[] = {zero, zero, zero};
    x_base[time] = first;
    w_at[1][0] = w_at[2][3] = 1;
    x_at[time][1] = is_reverse ? -1 : 1;
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
    ul_kx base[] = {cell->direction, constant(cell, gate * rnn->hidden), constant(cell, 0)};
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

/* sums[gate - first][batch] = R source for one unit, for `count` gates from `first` on. */
static void lower_unit(struct cell *cell, int64_t first, int64_t count, ul_kx unit, uint32_t source,
                       ul_kx place)
{
    struct ul_kernel *kernel = cell->kernel;
    const struct ul_rnn *rnn = &cell->rnn;
    int64_t r_at[3][UL_CONTRACT_DIMS] = {{0}};
    struct ul_contraction contraction;
    ul_contraction_init(kernel, &contraction, cell->dtype, &count, 1, &rnn->batch, 1, &rnn->hidden,
                        1);
    ul_kx base[] = {cell->direction, ul_kx_addi(kernel, unit, first * rnn->hidden),
                    constant(cell, 0)};
    r_at[1][0] = rnn->hidden;
    r_at[2][2] = 1;
    ul_lower_operand(cell->lower, &contraction, &contraction.a, cell->node->inputs[UL_RNN_R], base,
                     r_at, 0, 0);
    contraction.b.buffer = source;
    contraction.b.at.base = place;
    contraction.b.at.strides[1] = rnn->hidden;
    contraction.b.at.strides[2] = 1;
    cell->sums = ul_lower_local(cell->lower, cell->dtype, (uint64_t)(count * rnn->batch));
    cell->first_gate = first;
    cell->gate_end = first + count;
    ul_ks_contract(kernel, &contraction);
    ul_ks_store(kernel, cell->sums,
                ul_kx_add(kernel,
                          ul_kx_muli(kernel, ul_kx_var(kernel, contraction.vars[0]), rnn->batch),
                          ul_kx_var(kernel, contraction.vars[1])),
                ul_kx_var(kernel, contraction.acc));
    ul_ks_end(kernel);
}

/* Loads the step's W x + Wb. */
static ul_kx load_input_gate(const struct cell *cell, ul_kx batch, int64_t gate, ul_kx unit)
{
    ul_kx row = ul_kx_addi(cell->kernel, unit, gate * cell->rnn.hidden);
    if (cell->ahead[0][gate] != UL_NONE)
        return cell->ahead[0][gate];
    return ul_kx_load(cell->kernel, cell->gates, gate_at(cell, cell->step, batch, row));
}

static ul_kx load_recurrent_bias(const struct cell *cell, int64_t gate, ul_kx unit)
{
    int64_t rows = cell->rnn.gates * cell->rnn.hidden;
    if (cell->ahead[1][gate] != UL_NONE)
        return cell->ahead[1][gate];
    return load_row(cell, UL_RNN_BIAS,
                    ul_kx_addi(cell->kernel, unit, gate * cell->rnn.hidden + rows));
}

/* R h + Rb for a unit, where steps are spread. */
static ul_kx load_recurrent(const struct cell *cell, ul_kx batch, int64_t gate, ul_kx unit)
{
    struct ul_kernel *kernel = cell->kernel;
    int64_t row = (gate - cell->first_gate) * cell->rnn.batch;
    ul_kx sum = ul_kx_load(kernel, cell->sums, ul_kx_addi(kernel, batch, row));
    if (!has(cell, UL_RNN_BIAS))
        return sum;
    return ul_kx_binary(kernel, UL_KX_ADD, sum, load_recurrent_bias(cell, gate, unit));
}

/* Gate `gate` of one unit, before its function. */
static ul_kx load_gate(const struct cell *cell, ul_kx batch, int64_t gate, ul_kx unit)
{
    ul_kx input = load_input_gate(cell, batch, gate, unit);
    if (!cell->is_spread || gate < cell->first_gate || gate >= cell->gate_end)
        return input;
    return ul_kx_binary(cell->kernel, UL_KX_ADD, load_recurrent(cell, batch, gate, unit), input);
}

/* Loads what one unit of one sequence needs before its product, so as not to wait twice. */
static void load_ahead(struct cell *cell, ul_kx batch, ul_kx unit, int64_t first, int64_t count)
{
    ul_kx ahead[2][MAX_GATES];
    for (int64_t gate = first; gate < first + count; gate++) {
        ahead[0][gate] = ul_ks_let(cell->kernel, load_input_gate(cell, batch, gate, unit));
        ahead[1][gate] = UL_NONE;
        if (has(cell, UL_RNN_BIAS))
            ahead[1][gate] = ul_ks_let(cell->kernel, load_recurrent_bias(cell, gate, unit));
    }
    for (int64_t gate = first; gate < first + count; gate++)
        for (int i = 0; i < 2; i++)
            cell->ahead[i][gate] = ahead[i][gate];
}

/* Forms R source for `count` gates from `first` on, and opens the loops over units, inside which
 * these gates are available. `place` is that of the source in its scratch. */
static void open_cells(struct cell *cell, int64_t first, int64_t count, uint32_t source,
                       ul_kx place, ul_kx *batch, ul_kx *unit)
{
    struct ul_kernel *kernel = cell->kernel;
    if (!cell->is_spread) {
        lower_state(cell, first, count, source, UL_NONE);
        open_units(cell, batch, unit);
        return;
    }
    open_sides(cell);
    *unit = ul_ks_for(kernel, cell->rnn.hidden, UL_FOR_PARALLEL);
    *batch = constant(cell, 0);
    if (cell->rnn.batch == 1)
        load_ahead(cell, *batch, *unit, first, count);
    ul_kx side = ul_kx_muli(kernel, cell->side, cell->rnn.batch * cell->rnn.hidden);
    lower_unit(cell, first, count, *unit, source, ul_kx_add(kernel, place, side));
    if (cell->rnn.batch > 1)
        *batch = ul_ks_for(kernel, cell->rnn.batch, UL_FOR_PARALLEL);
}

static void close_cells(struct cell *cell)
{
    int64_t loops = 2 + (cell->side_count > 1) - (cell->is_spread && cell->rnn.batch == 1);
    for (int64_t i = 0; i < loops; i++)
        ul_ks_end(cell->kernel);
    memset(cell->ahead, 0xff, sizeof cell->ahead); /* UL_NONE */
}

static ul_kx apply(const struct cell *cell, uint32_t function, ul_kx x)
{
    return ul_ks_let(cell->kernel,
                     ul_rnn_apply(cell->kernel, &cell->rnn, &cell->functions[function], x));
}

/* True while the sequence lasts; UL_NONE when all are as long as X. */
static ul_kx lasts(const struct cell *cell, ul_kx batch)
{
    if (!has(cell, UL_RNN_LENGTHS))
        return UL_NONE;
    ul_kx length = ul_lower_load(cell->lower, cell->node->inputs[UL_RNN_LENGTHS], &batch);
    return ul_kx_binary(cell->kernel, UL_KX_LT, time_of(cell),
                        ul_kx_cast(cell->kernel, UL_I64, length));
}

/* Loads the step's h. */
static ul_kx load_h(const struct cell *cell, ul_kx at)
{
    return ul_kx_load(cell->kernel, cell->h, ul_kx_add(cell->kernel, cell->h_now, at));
}

static ul_kx or_before(const struct cell *cell, ul_kx valid, ul_kx next, ul_kx before)
{
    return valid == UL_NONE ? next : ul_kx_select(cell->kernel, valid, next, before);
}

/* Stores the new h of one unit as state and in Y. */
static void finish_unit(const struct cell *cell, ul_kx batch, ul_kx unit, ul_kx valid, ul_kx next)
{
    struct ul_kernel *kernel = cell->kernel;
    ul_kx at = state_at(cell, batch, unit);
    next = ul_ks_let(kernel, next);
    ul_ks_store(kernel, cell->h, ul_kx_add(kernel, cell->h_to, at),
                or_before(cell, valid, next, load_h(cell, at)));
    if (!ul_lower_has_output(cell->lower, cell->node_id, 0))
        return;
    ul_kx time = time_of(cell), index[] = {time, cell->direction, batch, unit};
    if (cell->rnn.batch_first)
        index[0] = batch, index[1] = time, index[2] = cell->direction;
    if (valid != UL_NONE)
        next = ul_kx_select(kernel, valid, next, ul_kx_number(kernel, cell->dtype, 0));
    ul_lower_store(cell->lower, cell->node->outputs[0], index, next);
}

static void step_rnn(struct cell *cell)
{
    ul_kx batch, unit;
    open_cells(cell, 0, 1, cell->h, cell->h_now, &batch, &unit);
    finish_unit(cell, batch, unit, lasts(cell, batch),
                apply(cell, 0, load_gate(cell, batch, 0, unit)));
    close_cells(cell);
}

/* The hidden gate of a unit, before its function; the state meets the reset gate after R. */
static ul_kx reset_behind(const struct cell *cell, ul_kx batch, ul_kx unit)
{
    struct ul_kernel *kernel = cell->kernel;
    ul_kx reset = apply(cell, 0, load_gate(cell, batch, 1, unit));
    ul_kx state = cell->is_spread ? load_recurrent(cell, batch, 2, unit)
                                  : ul_kx_load(kernel, cell->extra, state_at(cell, batch, unit));
    return ul_kx_binary(kernel, UL_KX_ADD, load_input_gate(cell, batch, 2, unit),
                        ul_kx_binary(kernel, UL_KX_MUL, reset, state));
}

/* Forms the update gate, and stores reset * h in `extra`. */
static void reset_before(struct cell *cell)
{
    struct ul_kernel *kernel = cell->kernel;
    ul_kx batch, unit;
    open_cells(cell, 0, 2, cell->h, cell->h_now, &batch, &unit);
    ul_kx at = state_at(cell, batch, unit);
    ul_kx reset = apply(cell, 0, load_gate(cell, batch, 1, unit));
    ul_ks_store(kernel, cell->extra, at, ul_kx_binary(kernel, UL_KX_MUL, reset, load_h(cell, at)));
    if (cell->is_spread)
        ul_ks_store(kernel, cell->gates, gate_at(cell, cell->step, batch, unit),
                    load_gate(cell, batch, 0, unit));
    close_cells(cell);
}

/* Gates z, r, h. The state meets the reset gate before R (linear_before_reset 0) or after it;
 * `extra` holds r * h in the first case, R h + Rb in the second. */
static void step_gru(struct cell *cell)
{
    struct ul_kernel *kernel = cell->kernel;
    bool linear = ul_node_get_int(cell->node, "linear_before_reset", 0) != 0;
    ul_kx batch, unit, hidden;
    if (!linear) {
        reset_before(cell);
        open_cells(cell, 2, 1, cell->extra, constant(cell, 0), &batch, &unit);
        hidden = load_gate(cell, batch, 2, unit);
    } else {
        if (!cell->is_spread)
            lower_state(cell, 2, 1, cell->h, cell->extra);
        open_cells(cell, 0, cell->is_spread ? 3 : 2, cell->h, cell->h_now, &batch, &unit);
        hidden = reset_behind(cell, batch, unit);
    }
    ul_kx at = state_at(cell, batch, unit);
    hidden = apply(cell, 1, hidden);
    ul_kx update = apply(cell, 0, load_gate(cell, batch, 0, unit));
    /* (1 - z) * h' + z * h */
    ul_kx rest = ul_kx_binary(kernel, UL_KX_SUB, ul_kx_number(kernel, cell->dtype, 1), update);
    ul_kx next = ul_kx_binary(kernel, UL_KX_ADD, ul_kx_binary(kernel, UL_KX_MUL, rest, hidden),
                              ul_kx_binary(kernel, UL_KX_MUL, update, load_h(cell, at)));
    finish_unit(cell, batch, unit, lasts(cell, batch), next);
    close_cells(cell);
}

/* x + P[which] * state, where there are peepholes; they are in the order i, o, f. */
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
static void step_lstm(struct cell *cell)
{
    struct ul_kernel *kernel = cell->kernel;
    ul_kx batch, unit;
    open_cells(cell, 0, 4, cell->h, cell->h_now, &batch, &unit);
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
    /* Only gates are clipped: the state itself passes its function as it is. */
    struct ul_rnn unclipped = cell->rnn;
    unclipped.clip = 0;
    ul_kx squashed = ul_rnn_apply(kernel, &unclipped, &cell->functions[2], next);
    ul_ks_store(kernel, cell->c, at, or_before(cell, valid, next, before));
    finish_unit(cell, batch, unit, valid, ul_kx_binary(kernel, UL_KX_MUL, output, squashed));
    close_cells(cell);
}

/* Sets the step's place in time, and its halves of h. */
static void begin_step(struct cell *cell, ul_kx first)
{
    struct ul_kernel *kernel = cell->kernel;
    int64_t half = cell->side_count * cell->rnn.batch * cell->rnn.hidden;
    cell->at = ul_kx_add(kernel, first, cell->step);
    cell->h_now = cell->h_to = constant(cell, 0);
    if (!cell->is_spread)
        return;
    cell->h_now = ul_kx_muli(kernel, ul_kx_modi(kernel, cell->at, 2), half);
    cell->h_to = ul_kx_sub(kernel, constant(cell, half), cell->h_now);
}

/* Forms W x for the chunk, in each direction. */
static void lower_all_inputs(struct cell *cell, ul_kx chunk)
{
    for (int64_t side = 0; side < cell->side_count; side++) {
        if (cell->side_count > 1)
            cell->side = cell->direction = constant(cell, side);
        lower_inputs(cell, chunk, cell->is_reverse || side > 0);
    }
}

static void lower_directions(struct cell *cell, void step(struct cell *cell))
{
    struct ul_kernel *kernel = cell->kernel;
    int64_t steps = cell->rnn.steps, chunks = (steps + cell->chunk - 1) / cell->chunk;
    int64_t half = cell->side_count * cell->rnn.batch * cell->rnn.hidden;
    uint32_t launched = cell->is_spread ? UL_FOR_LAUNCHED : 0;
    set_initial(cell, cell->h, UL_RNN_INITIAL_H);
    if (cell->c != UL_NONE)
        set_initial(cell, cell->c, UL_RNN_INITIAL_C);
    ul_kx chunk = ul_ks_for(kernel, chunks, launched);
    lower_all_inputs(cell, chunk);
    ul_kx first = ul_kx_muli(kernel, chunk, cell->chunk), count = constant(cell, cell->chunk);
    if (steps % cell->chunk != 0)
        count =
            ul_kx_binary(kernel, UL_KX_MIN, count, ul_kx_sub(kernel, constant(cell, steps), first));
    cell->step = ul_ks_for_expr(kernel, count, cell->chunk, launched);
    begin_step(cell, first);
    step(cell);
    ul_ks_end(kernel);
    ul_ks_end(kernel);
    store_last(cell, cell->h, cell->is_spread ? steps % 2 * half : 0, 1);
    if (cell->c != UL_NONE)
        store_last(cell, cell->c, 0, 2);
}

static bool same_functions(const struct ul_rnn *rnn)
{
    for (uint32_t i = 0; i < UL_RNN_FUNCTIONS; i++) {
        const struct ul_rnn_function *a = &rnn->functions[0][i], *b = &rnn->functions[1][i];
        bool is_other =
            a->alpha < b->alpha || a->alpha > b->alpha || a->beta < b->beta || a->beta > b->beta;
        if (a->kind != b->kind || is_other)
            return false;
    }
    return true;
}

/* The number of steps in a chunk. */
static int64_t chunk_of(const struct cell *cell)
{
    const struct ul_rnn *rnn = &cell->rnn;
    int64_t columns = cell->is_spread ? SPREAD_COLUMNS : COLUMNS;
    int64_t chunk = rnn->batch == 0 || rnn->batch > columns ? 1 : columns / rnn->batch;
    if (cell->is_spread) {
        int64_t element = (int64_t)ul_dtype_get(cell->dtype)->size_bytes;
        int64_t step = cell->side_count * rnn->batch * rnn->gates * rnn->hidden * element;
        chunk = SPREAD_GATES / step > chunk ? SPREAD_GATES / step : chunk;
    }
    if (chunk > rnn->steps)
        chunk = rnn->steps > 0 ? rnn->steps : 1;
    return chunk;
}

/* Chooses how the node is lowered, and makes its scratch. */
static void choose(struct cell *cell)
{
    const struct ul_rnn *rnn = &cell->rnn;
    int64_t min = cell->lower->traits->spread_products;
    int64_t products = rnn->gates * rnn->hidden * rnn->hidden;
    cell->is_spread = min > 0 && products >= min && rnn->batch > 0 && rnn->batch <= SPREAD_BATCH;
    cell->side_count = cell->is_spread && rnn->directions == 2 && same_functions(rnn) ? 2 : 1;
    cell->chunk = chunk_of(cell);
    uint64_t states = (uint64_t)(cell->side_count * rnn->batch * rnn->hidden);
    bool has_c = rnn->is_lstm, has_extra = rnn->is_gru;
    uint64_t steps = (uint64_t)(cell->chunk * rnn->gates);
    cell->gates = ul_lower_scratch(cell->lower, cell->dtype, states * steps);
    enum ul_dtype factor = ul_rnn_factor_dtype(cell->node, cell->dtype);
    bool is_linear = ul_node_get_int(cell->node, "linear_before_reset", 0) != 0;
    enum ul_dtype extra = is_linear ? cell->dtype : factor;
    cell->h = ul_lower_scratch(cell->lower, factor, states * (cell->is_spread ? 2 : 1));
    cell->c = has_c ? ul_lower_scratch(cell->lower, cell->dtype, states) : UL_NONE;
    cell->extra = has_extra ? ul_lower_scratch(cell->lower, extra, states) : UL_NONE;
    memset(cell->ahead, 0xff, sizeof cell->ahead); /* UL_NONE */
}

static void lower_cell(struct ul_lower *lower, ul_node_id node, void step(struct cell *cell))
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
    choose(&cell);
    for (int64_t d = 0; d < cell.rnn.directions; d += cell.side_count) {
        cell.functions = cell.rnn.functions[d];
        cell.is_reverse = cell.rnn.first_is_reverse || d == 1;
        cell.direction = constant(&cell, d);
        cell.side = constant(&cell, 0);
        lower_directions(&cell, step);
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
