/* SPDX-License-Identifier: Apache-2.0 */
/* What the cells of the rnn family share.
 *
 * Units: elements. Invariant of a struct ul_rnn: the shapes of all inputs fit together.
 */
#ifndef UL_OPS_RNN_H
#define UL_OPS_RNN_H

#include "ir/ops/rnn/rnn.def"

#define UL_RNN_FUNCTIONS 3 /* activation functions of one direction, at most */

enum ul_rnn_input {
    UL_RNN_X,
    UL_RNN_W,
    UL_RNN_R,
    UL_RNN_BIAS,
    UL_RNN_LENGTHS,
    UL_RNN_INITIAL_H,
    UL_RNN_INITIAL_C,
    UL_RNN_PEEPHOLE,
    /* for the gradient: W x + Wb of a direction; gradients of Y, Y_h and Y_c */
    UL_RNN_PRODUCTS,
    UL_RNN_G_ALL,
    UL_RNN_G_LAST_H,
    UL_RNN_G_LAST_C,
    UL_RNN_GRADIENT_INPUTS
};

enum { UL_RNN_OUT_PEEPHOLES = 4 }; /* of LSTMGradient, where these are wanted */

enum ul_rnn_kind {
    UL_RNN_RELU,
    UL_RNN_TANH,
    UL_RNN_SIGMOID,
    UL_RNN_AFFINE,
    UL_RNN_LEAKY_RELU,
    UL_RNN_THRESHOLDED_RELU,
    UL_RNN_SCALED_TANH,
    UL_RNN_HARD_SIGMOID,
    UL_RNN_ELU,
    UL_RNN_SOFTSIGN,
    UL_RNN_SOFTPLUS
};
struct ul_rnn_function {
    enum ul_rnn_kind kind;
    double alpha, beta;
};

struct ul_rnn {
    int64_t steps, batch, inputs, hidden, gates; /* gates of `hidden` rows each in W, R and B */
    int64_t directions;
    bool first_is_reverse;                                 /* the only direction runs backwards */
    bool is_lstm, is_gru;                                  /* or an RNN */
    bool batch_first;                                      /* layout 1 */
    double clip;                                           /* 0: none */
    struct ul_rnn_function functions[2][UL_RNN_FUNCTIONS]; /* by direction */
};

/* rnn_shape.c: NULL, or what is wrong. `types` are those of the inputs, NULL where absent. */
const char *ul_rnn_read(struct ul_rnn *rnn, const struct ul_node *node,
                        const struct ul_type *const types[8]);

/* rnn_shape.c: the type in which h and r * h are kept between steps, `dtype` being that of the
 * computation: the type in which R multiplies them (struct ul_op_info, factors). */
enum ul_dtype ul_rnn_factor_dtype(const struct ul_node *node, enum ul_dtype dtype);

/* rnn_function.c: function(clipped x). */
ul_kx ul_rnn_apply(struct ul_kernel *kernel, const struct ul_rnn *rnn,
                   const struct ul_rnn_function *function, ul_kx x);
/* The slope of that at x: none where it is clipped. */
ul_kx ul_rnn_slope(struct ul_kernel *kernel, const struct ul_rnn *rnn,
                   const struct ul_rnn_function *function, ul_kx x);

#endif
