/* SPDX-License-Identifier: Apache-2.0 */
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
#include "ir/ops/backward.def"
#include "ir/ops/check.h"
#include "ir/ops/rnn/rnn_backward.h"

/* [time][batch][unit] of the sequence of states. */
static void store_sequence(struct ul_rnn_backward *b, uint32_t output, uint32_t state)
{
    b->step = ul_ks_for(b->kernel, b->rnn.steps, UL_FOR_PARALLEL);
    ul_rnn_open_units(b);
    ul_kx place[] = {ul_rnn_time_of(b, b->step), b->batch, b->unit};
    ul_lower_store(b->lower, b->node->outputs[output], place,
                   ul_kx_load(b->kernel, state, ul_rnn_state_at(b, b->step, b->batch, b->unit)));
    ul_rnn_close_units(b);
    ul_ks_end(b->kernel);
}

static void store_state(struct ul_rnn_backward *b, uint32_t output, uint32_t state)
{
    ul_rnn_open_units(b);
    ul_kx place[] = {b->batch, b->unit};
    ul_lower_store(b->lower, b->node->outputs[output], place,
                   ul_kx_load(b->kernel, state, ul_rnn_own_at(b)));
    ul_rnn_close_units(b);
}

static void set_state(struct ul_rnn_backward *b, uint32_t state, uint32_t input)
{
    ul_rnn_open_units(b);
    ul_ks_store(b->kernel, state, ul_rnn_own_at(b), ul_rnn_load_state(b, input));
    ul_rnn_close_units(b);
}

static void make_room(struct ul_rnn_backward *b)
{
    const struct ul_rnn *rnn = &b->rnn;
    uint64_t state = (uint64_t)(rnn->batch * rnn->hidden), rows = state * (uint64_t)rnn->gates;
    uint64_t steps = (uint64_t)rnn->steps;
    enum ul_dtype factor = ul_rnn_factor_dtype(b->node, b->dtype);
    b->gates = ul_lower_scratch(b->lower, b->dtype, steps * rows);
    b->h = ul_lower_scratch(b->lower, factor, (steps + 1) * state);
    b->slopes = ul_lower_scratch(b->lower, factor, rows);
    b->dh = ul_lower_scratch(b->lower, b->dtype, state);
    if (b->is_lstm) {
        b->c = ul_lower_scratch(b->lower, b->dtype, (steps + 1) * state);
        b->dc = ul_lower_scratch(b->lower, b->dtype, state);
    }
    if (b->is_gru)
        b->other = ul_lower_scratch(b->lower, b->is_linear ? b->dtype : factor, steps * state);
    if (b->is_gru && !b->is_linear)
        b->dreset = ul_lower_scratch(b->lower, b->dtype, state);
}

static void run_through(struct ul_rnn_backward *b)
{
    struct ul_kernel *k = b->kernel;
    set_state(b, b->h, UL_RNN_INITIAL_H);
    if (b->is_lstm)
        set_state(b, b->c, UL_RNN_INITIAL_C);
    b->step = ul_ks_for(k, b->rnn.steps, 0);
    ul_rnn_forward_cell(b);
    ul_ks_end(k);
    set_state(b, b->dh, UL_RNN_G_LAST_H);
    if (b->is_lstm)
        set_state(b, b->dc, UL_RNN_G_LAST_C);
    ul_kx turn = ul_ks_for(k, b->rnn.steps, 0);
    b->step = ul_ks_let(k, ul_kx_sub(k, ul_rnn_constant(b, b->rnn.steps - 1), turn));
    ul_rnn_backward_cell(b);
    ul_ks_end(k);
}

void ul_lower_rnn_gradient(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_type *types[8] = {NULL};
    struct ul_rnn_backward b = {.lower = lower, .kernel = lower->kernel, .id = node};
    b.node = ul_check_node(lower, node);
    for (uint32_t i = 0; i < 8; i++)
        if (ul_lower_has_input(lower, node, i))
            types[i] = ul_lower_input_type(lower, node, i);
    const char *wrong = ul_rnn_read(&b.rnn, b.node, types);
    UL_ASSERT(wrong == NULL);
    b.dtype = ul_compute_dtype(types[UL_RNN_X]->dtype);
    b.direction = ul_node_get_int(b.node, "ul_direction", 0);
    b.functions = b.rnn.functions[b.direction];
    b.is_lstm = b.rnn.is_lstm;
    b.is_gru = b.rnn.is_gru;
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
