/* SPDX-License-Identifier: Apache-2.0 */
/* What steps of the gradient through time are made from, whatever the cell: where things are,
 * products with R forwards and backwards, and states and gradients that stop where a sequence
 * ends. */
#include "ir/ops/rnn/rnn_backward.h"

/* ---- Places ---- */

ul_kx ul_rnn_time_of(const struct ul_rnn_backward *b, ul_kx step)
{
    return b->is_reverse ? ul_kx_sub(b->kernel, ul_rnn_constant(b, b->rnn.steps - 1), step) : step;
}

ul_kx ul_rnn_gate_at(const struct ul_rnn_backward *b, ul_kx step, ul_kx batch, ul_kx row)
{
    struct ul_kernel *k = b->kernel;
    ul_kx column = ul_kx_add(k, ul_kx_muli(k, step, b->rnn.batch), batch);
    return ul_kx_add(k, ul_kx_muli(k, column, b->rnn.gates * b->rnn.hidden), row);
}

ul_kx ul_rnn_state_at(const struct ul_rnn_backward *b, ul_kx step, ul_kx batch, ul_kx unit)
{
    struct ul_kernel *k = b->kernel;
    ul_kx column = ul_kx_add(k, ul_kx_muli(k, step, b->rnn.batch), batch);
    return ul_kx_add(k, ul_kx_muli(k, column, b->rnn.hidden), unit);
}

ul_kx ul_rnn_row_of(const struct ul_rnn_backward *b, int64_t gate)
{
    return ul_kx_addi(b->kernel, b->unit, gate * b->rnn.hidden);
}

ul_kx ul_rnn_own_at(const struct ul_rnn_backward *b)
{
    return ul_rnn_state_at(b, ul_rnn_constant(b, 0), b->batch, b->unit);
}

void ul_rnn_open_units(struct ul_rnn_backward *b)
{
    b->batch = ul_ks_for(b->kernel, b->rnn.batch, UL_FOR_PARALLEL);
    b->unit = ul_ks_for(b->kernel, b->rnn.hidden, UL_FOR_PARALLEL);
}

void ul_rnn_close_units(const struct ul_rnn_backward *b)
{
    ul_ks_end(b->kernel);
    ul_ks_end(b->kernel);
}

ul_kx ul_rnn_lasts(const struct ul_rnn_backward *b)
{
    if (!ul_rnn_has(b, UL_RNN_LENGTHS))
        return ul_kx_int(b->kernel, UL_BOOL, 1);
    ul_kx length = ul_lower_load(b->lower, b->node->inputs[UL_RNN_LENGTHS], &b->batch);
    return ul_ks_let(b->kernel, ul_kx_binary(b->kernel, UL_KX_LT, ul_rnn_time_of(b, b->step),
                                             ul_kx_cast(b->kernel, UL_I64, length)));
}

ul_kx ul_rnn_load_gate(const struct ul_rnn_backward *b, int64_t gate)
{
    return ul_ks_let(b->kernel,
                     ul_kx_load(b->kernel, b->gates,
                                ul_rnn_gate_at(b, b->step, b->batch, ul_rnn_row_of(b, gate))));
}

ul_kx ul_rnn_load_state(const struct ul_rnn_backward *b, uint32_t input)
{
    ul_kx first = ul_rnn_constant(b, b->direction), second = b->batch;
    ul_kx index[] = {b->rnn.batch_first ? second : first, b->rnn.batch_first ? first : second,
                     b->unit};
    if (!ul_rnn_has(b, input))
        return ul_rnn_number(b, 0);
    return ul_kx_cast(b->kernel, b->dtype, ul_lower_load(b->lower, b->node->inputs[input], index));
}

/* ---- Forwards ---- */

void ul_rnn_add_recurrent(const struct ul_rnn_backward *b, int64_t first, int64_t count,
                          uint32_t source, ul_kx from)
{
    struct ul_kernel *k = b->kernel;
    int64_t hidden = b->rnn.hidden, rows = count * hidden, at[3][UL_CONTRACT_DIMS] = {{0}};
    bool is_apart = b->is_gru && b->is_linear && first == 2;
    struct ul_contraction c;
    ul_contraction_init(k, &c, b->dtype, &rows, 1, &b->rnn.batch, 1, &hidden, 1);
    ul_kx base[] = {ul_rnn_constant(b, b->direction), ul_rnn_constant(b, first * hidden),
                    ul_rnn_constant(b, 0)};
    at[1][0] = at[2][2] = 1;
    ul_lower_operand(b->lower, &c, &c.a, b->node->inputs[UL_RNN_R], base, at, 0, 0);
    c.b.buffer = source;
    c.b.at.base = from;
    c.b.at.strides[1] = hidden;
    c.b.at.strides[2] = 1;
    ul_ks_contract(k, &c);
    ul_kx local = ul_kx_var(k, c.vars[0]), batch = ul_kx_var(k, c.vars[1]);
    ul_kx row = ul_kx_addi(k, local, first * hidden), sum = ul_kx_var(k, c.acc);
    if (ul_rnn_has(b, UL_RNN_BIAS)) {
        ul_kx index[] = {ul_rnn_constant(b, b->direction),
                         ul_kx_addi(k, row, b->rnn.gates * hidden)};
        sum = ul_rnn_add(b, sum, ul_lower_load(b->lower, b->node->inputs[UL_RNN_BIAS], index));
    }
    ul_kx place[] = {ul_rnn_time_of(b, b->step), batch, row};
    ul_kx pre = ul_lower_load(b->lower, b->node->inputs[UL_RNN_PRODUCTS], place);
    if (is_apart)
        ul_ks_store(k, b->other, ul_rnn_state_at(b, b->step, batch, local), sum);
    ul_ks_store(k, b->gates, ul_rnn_gate_at(b, b->step, batch, row),
                is_apart ? pre : ul_rnn_add(b, pre, sum));
    ul_ks_end(k);
}

void ul_rnn_store_next(const struct ul_rnn_backward *b, uint32_t state, ul_kx valid, ul_kx next)
{
    struct ul_kernel *k = b->kernel;
    ul_kx old = ul_kx_load(k, state, ul_rnn_state_at(b, b->step, b->batch, b->unit));
    ul_kx behind = ul_rnn_state_at(b, ul_kx_addi(k, b->step, 1), b->batch, b->unit);
    ul_ks_store(k, state, behind, ul_kx_select(k, valid, next, old));
}

/* ---- Backwards ---- */

void ul_rnn_multiply_back(const struct ul_rnn_backward *b, int64_t first, int64_t count,
                          uint32_t to, bool adds)
{
    struct ul_kernel *k = b->kernel;
    int64_t hidden = b->rnn.hidden, rows = count * hidden, at[3][UL_CONTRACT_DIMS] = {{0}};
    struct ul_contraction c;
    ul_contraction_init(k, &c, b->dtype, &hidden, 1, &b->rnn.batch, 1, &rows, 1);
    ul_kx base[] = {ul_rnn_constant(b, b->direction), ul_rnn_constant(b, first * hidden),
                    ul_rnn_constant(b, 0)};
    at[1][2] = at[2][0] = 1;
    ul_lower_operand(b->lower, &c, &c.a, b->node->inputs[UL_RNN_R], base, at, 0, 0);
    c.b.buffer = b->slopes;
    c.b.at.base = ul_rnn_constant(b, first * hidden);
    c.b.at.strides[1] = b->rnn.gates * hidden;
    c.b.at.strides[2] = 1;
    ul_ks_contract(k, &c);
    ul_kx place =
        ul_rnn_state_at(b, ul_rnn_constant(b, 0), ul_kx_var(k, c.vars[1]), ul_kx_var(k, c.vars[0]));
    ul_kx sum = ul_kx_var(k, c.acc);
    ul_ks_store(k, to, place, adds ? ul_rnn_add(b, ul_kx_load(k, to, place), sum) : sum);
    ul_ks_end(k);
}

void ul_rnn_store_gate(const struct ul_rnn_backward *b, int64_t gate, ul_kx valid, ul_kx x,
                       ul_kx seen)
{
    struct ul_kernel *k = b->kernel;
    ul_kx row = ul_rnn_row_of(b, gate), zero = ul_rnn_number(b, 0);
    ul_kx place[] = {ul_rnn_time_of(b, b->step), b->batch, row};
    x = ul_ks_let(k, ul_kx_select(k, valid, x, zero));
    if (seen != UL_NONE)
        seen = ul_ks_let(k, ul_kx_select(k, valid, seen, zero));
    ul_lower_store(b->lower, b->node->outputs[0], place, x);
    ul_ks_store(k, b->slopes, ul_rnn_gate_at(b, ul_rnn_constant(b, 0), b->batch, row),
                seen != UL_NONE ? seen : x);
}

ul_kx ul_rnn_load_dh(const struct ul_rnn_backward *b, ul_kx valid, ul_kx *before)
{
    struct ul_kernel *k = b->kernel;
    *before = ul_ks_let(k, ul_kx_load(k, b->dh, ul_rnn_own_at(b)));
    if (!ul_rnn_has(b, UL_RNN_G_ALL))
        return *before;
    ul_kx time = ul_rnn_time_of(b, b->step), side = ul_rnn_constant(b, b->direction);
    ul_kx index[] = {time, side, b->batch, b->unit};
    if (b->rnn.batch_first)
        index[0] = b->batch, index[1] = time, index[2] = side;
    ul_kx g = ul_lower_load(b->lower, b->node->inputs[UL_RNN_G_ALL], index);
    g = ul_kx_select(k, valid, ul_kx_cast(k, b->dtype, g), ul_rnn_number(b, 0));
    return ul_ks_let(k, ul_rnn_add(b, *before, g));
}

void ul_rnn_store_dh(const struct ul_rnn_backward *b, ul_kx valid, ul_kx before, ul_kx x)
{
    ul_ks_store(b->kernel, b->dh, ul_rnn_own_at(b), ul_kx_select(b->kernel, valid, x, before));
}
