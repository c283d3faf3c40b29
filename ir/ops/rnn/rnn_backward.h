/* SPDX-License-Identifier: Apache-2.0 */
/* What the files share that lower the gradient of one direction of RNN, GRU or LSTM: a kernel that
 * runs forwards and then backwards through time (rnn_gradient_lower.c), in steps made of the same
 * parts (rnn_gradient_steps.c), and a cell of each kind (rnn_gradient_cells.c). */
#ifndef UL_OPS_RNN_BACKWARD_H
#define UL_OPS_RNN_BACKWARD_H

#include "ir/kernel_build.h"
#include "ir/ops/rnn/rnn.h"

struct ul_rnn_backward {
    struct ul_lower *lower;
    struct ul_kernel *kernel;
    const struct ul_node *node;
    ul_node_id id;
    struct ul_rnn rnn;
    enum ul_dtype dtype;
    const struct ul_rnn_function *functions;
    int64_t direction;
    bool is_lstm, is_gru, is_linear, is_reverse;
    /* Scratch: [step][batch][rows]; states [step][batch][hidden] before each step and after the
     * last; for a GRU R h + Rb, or the reset state; [batch][rows]; [batch][hidden]. */
    uint32_t gates, h, c, other, slopes, dh, dc, dreset;
    ul_kx step, batch, unit;
};

/* Short forms for what all three files write often. */
static inline ul_kx ul_rnn_constant(const struct ul_rnn_backward *b, int64_t value)
{
    return ul_kx_index_const(b->kernel, value);
}

static inline ul_kx ul_rnn_number(const struct ul_rnn_backward *b, double value)
{
    return ul_kx_number(b->kernel, b->dtype, value);
}

static inline ul_kx ul_rnn_add(const struct ul_rnn_backward *b, ul_kx x, ul_kx y)
{
    return ul_kx_add(b->kernel, x, y);
}

static inline bool ul_rnn_has(const struct ul_rnn_backward *b, uint32_t input)
{
    return ul_lower_has_input(b->lower, b->id, input);
}

/* rnn_gradient_steps.c */

/* Places: the time of a step; in scratch, [step][batch][rows] and [step][batch][hidden]; the row of
 * a gate's unit; the unit's own place in what has no steps. */
ul_kx ul_rnn_time_of(const struct ul_rnn_backward *b, ul_kx step);
ul_kx ul_rnn_gate_at(const struct ul_rnn_backward *b, ul_kx step, ul_kx batch, ul_kx row);
ul_kx ul_rnn_state_at(const struct ul_rnn_backward *b, ul_kx step, ul_kx batch, ul_kx unit);
ul_kx ul_rnn_row_of(const struct ul_rnn_backward *b, int64_t gate);
ul_kx ul_rnn_own_at(const struct ul_rnn_backward *b);

/* Loops over all units of all sequences. */
void ul_rnn_open_units(struct ul_rnn_backward *b);
void ul_rnn_close_units(const struct ul_rnn_backward *b);

/* Whether the sequence lasts at the step. */
ul_kx ul_rnn_lasts(const struct ul_rnn_backward *b);
ul_kx ul_rnn_load_gate(const struct ul_rnn_backward *b, int64_t gate);

/* A state of the model at the unit: an initial one, or the gradient of a last one; else 0. */
ul_kx ul_rnn_load_state(const struct ul_rnn_backward *b, uint32_t input);

/* Forwards: gates of the step += R source + Rb, for `count` gates from `first` on; those of a
 * hidden gate that meets its reset after R go to `other`. The second gives the state after the
 * step. */
void ul_rnn_add_recurrent(const struct ul_rnn_backward *b, int64_t first, int64_t count,
                          uint32_t source, ul_kx from);
void ul_rnn_store_next(const struct ul_rnn_backward *b, uint32_t state, ul_kx valid, ul_kx next);

/* Backwards: to = base + R^T slopes, for `count` gates from `first` on; `adds`: base is what is
 * there. The gradient of a gate: none where the sequence has ended; what R sees may be another. dh
 * with the gradient of the step's result, and without. */
void ul_rnn_multiply_back(const struct ul_rnn_backward *b, int64_t first, int64_t count,
                          uint32_t to, bool adds);
void ul_rnn_store_gate(const struct ul_rnn_backward *b, int64_t gate, ul_kx valid, ul_kx x,
                       ul_kx seen);
ul_kx ul_rnn_load_dh(const struct ul_rnn_backward *b, ul_kx valid, ul_kx *before);
void ul_rnn_store_dh(const struct ul_rnn_backward *b, ul_kx valid, ul_kx before, ul_kx x);

/* rnn_gradient_cells.c: a step of the cell. */
void ul_rnn_forward_cell(struct ul_rnn_backward *b);
void ul_rnn_backward_cell(struct ul_rnn_backward *b);

#endif
