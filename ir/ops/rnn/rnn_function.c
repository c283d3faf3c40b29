/* SPDX-License-Identifier: Apache-2.0 */
/* The activation functions that recurrent cells name. */
#include "ir/kernel_build.h"
#include "ir/ops/rnn/rnn.h"

static ul_kx binary(struct ul_kernel *kernel, enum ul_kx_op op, ul_kx a, double b)
{
    return ul_kx_binary(kernel, op, a, ul_kx_number(kernel, ul_kx_dtype(kernel, a), b));
}

/* 1 / (1 + exp(-x)) */
static ul_kx sigmoid(struct ul_kernel *kernel, ul_kx x)
{
    ul_kx e = ul_kx_unary(kernel, UL_KX_EXP, ul_kx_unary(kernel, UL_KX_NEG, x));
    ul_kx one = ul_kx_number(kernel, ul_kx_dtype(kernel, x), 1);
    return ul_kx_binary(kernel, UL_KX_DIV, one, ul_kx_binary(kernel, UL_KX_ADD, one, e));
}

/* max(x, 0) + log1p(exp(-|x|)), which does not overflow */
static ul_kx softplus(struct ul_kernel *kernel, ul_kx x)
{
    ul_kx minus = ul_kx_unary(kernel, UL_KX_NEG, ul_kx_unary(kernel, UL_KX_ABS, x));
    ul_kx tail = ul_kx_unary(kernel, UL_KX_LOG1P, ul_kx_unary(kernel, UL_KX_EXP, minus));
    return ul_kx_binary(kernel, UL_KX_ADD, binary(kernel, UL_KX_MAX, x, 0), tail);
}

static ul_kx apply(struct ul_kernel *kernel, const struct ul_rnn_function *function, ul_kx x)
{
    double alpha = function->alpha, beta = function->beta;
    ul_kx negative = binary(kernel, UL_KX_LT, x, 0);
    switch (function->kind) {
    case UL_RNN_RELU:
        return binary(kernel, UL_KX_MAX, x, 0);
    case UL_RNN_TANH:
        return ul_kx_unary(kernel, UL_KX_TANH, x);
    case UL_RNN_SIGMOID:
        return sigmoid(kernel, x);
    case UL_RNN_AFFINE:
        return binary(kernel, UL_KX_ADD, binary(kernel, UL_KX_MUL, x, alpha), beta);
    case UL_RNN_LEAKY_RELU:
        return ul_kx_select(kernel, negative, binary(kernel, UL_KX_MUL, x, alpha), x);
    case UL_RNN_THRESHOLDED_RELU:
        return ul_kx_select(kernel, binary(kernel, UL_KX_LT, x, alpha),
                            binary(kernel, UL_KX_MUL, x, 0), x);
    case UL_RNN_SCALED_TANH:
        x = ul_kx_unary(kernel, UL_KX_TANH, binary(kernel, UL_KX_MUL, x, beta));
        return binary(kernel, UL_KX_MUL, x, alpha);
    case UL_RNN_HARD_SIGMOID:
        x = binary(kernel, UL_KX_ADD, binary(kernel, UL_KX_MUL, x, alpha), beta);
        return binary(kernel, UL_KX_MIN, binary(kernel, UL_KX_MAX, x, 0), 1);
    case UL_RNN_ELU:
        return ul_kx_select(kernel, negative,
                            binary(kernel, UL_KX_MUL, ul_kx_unary(kernel, UL_KX_EXPM1, x), alpha),
                            x);
    case UL_RNN_SOFTSIGN:
        return ul_kx_binary(kernel, UL_KX_DIV, x,
                            binary(kernel, UL_KX_ADD, ul_kx_unary(kernel, UL_KX_ABS, x), 1));
    case UL_RNN_SOFTPLUS:
        return softplus(kernel, x);
    }
    UL_ASSERT(false);
    return x;
}

ul_kx ul_rnn_apply(struct ul_kernel *kernel, const struct ul_rnn *rnn,
                   const struct ul_rnn_function *function, ul_kx x)
{
    if (rnn->clip > 0) {
        x = binary(kernel, UL_KX_MAX, x, -rnn->clip);
        x = binary(kernel, UL_KX_MIN, x, rnn->clip);
    }
    return apply(kernel, function, ul_ks_let(kernel, x));
}

/* 1 where the condition holds, else 0; times a number. */
static ul_kx either(struct ul_kernel *kernel, ul_kx condition, ul_kx like, double yes, double no)
{
    enum ul_dtype dtype = ul_kx_dtype(kernel, like);
    return ul_kx_select(kernel, condition, ul_kx_number(kernel, dtype, yes),
                        ul_kx_number(kernel, dtype, no));
}

/* factor * (1 - tanh(x)^2) */
static ul_kx tanh_slope(struct ul_kernel *kernel, ul_kx x, double factor)
{
    ul_kx y = ul_ks_let(kernel, ul_kx_unary(kernel, UL_KX_TANH, x));
    ul_kx one = ul_kx_number(kernel, ul_kx_dtype(kernel, x), 1);
    return binary(kernel, UL_KX_MUL, ul_kx_sub(kernel, one, ul_kx_mul(kernel, y, y)), factor);
}

static ul_kx slope(struct ul_kernel *kernel, const struct ul_rnn_function *function, ul_kx x)
{
    double alpha = function->alpha, beta = function->beta;
    ul_kx one = ul_kx_number(kernel, ul_kx_dtype(kernel, x), 1), y;
    ul_kx positive = binary(kernel, UL_KX_LT, ul_kx_unary(kernel, UL_KX_NEG, x), 0);
    switch (function->kind) {
    case UL_RNN_RELU:
        return either(kernel, positive, x, 1, 0);
    case UL_RNN_TANH:
        return tanh_slope(kernel, x, 1);
    case UL_RNN_SIGMOID:
        y = ul_ks_let(kernel, sigmoid(kernel, x));
        return ul_kx_mul(kernel, y, ul_kx_sub(kernel, one, y));
    case UL_RNN_AFFINE:
        return binary(kernel, UL_KX_MUL, one, alpha);
    case UL_RNN_LEAKY_RELU:
        return either(kernel, positive, x, 1, alpha);
    case UL_RNN_THRESHOLDED_RELU:
        return either(kernel, binary(kernel, UL_KX_LT, x, alpha), x, 0, 1);
    case UL_RNN_SCALED_TANH:
        return tanh_slope(kernel, binary(kernel, UL_KX_MUL, x, beta), alpha * beta);
    case UL_RNN_HARD_SIGMOID:
        y = binary(kernel, UL_KX_ADD, binary(kernel, UL_KX_MUL, x, alpha), beta);
        y = ul_kx_binary(kernel, UL_KX_AND, binary(kernel, UL_KX_LT, y, 1),
                         ul_kx_binary(kernel, UL_KX_LT, binary(kernel, UL_KX_MUL, one, 0), y));
        return either(kernel, y, x, alpha, 0);
    case UL_RNN_ELU:
        y = binary(kernel, UL_KX_MUL, ul_kx_unary(kernel, UL_KX_EXP, x), alpha);
        return ul_kx_select(kernel, positive, one, y);
    case UL_RNN_SOFTSIGN:
        y = ul_ks_let(kernel, binary(kernel, UL_KX_ADD, ul_kx_unary(kernel, UL_KX_ABS, x), 1));
        return ul_kx_binary(kernel, UL_KX_DIV, one, ul_kx_mul(kernel, y, y));
    case UL_RNN_SOFTPLUS:
        return sigmoid(kernel, x);
    }
    UL_ASSERT(false);
    return x;
}

ul_kx ul_rnn_slope(struct ul_kernel *kernel, const struct ul_rnn *rnn,
                   const struct ul_rnn_function *function, ul_kx x)
{
    ul_kx own = slope(kernel, function, x);
    if (!(rnn->clip > 0))
        return ul_ks_let(kernel, own);
    ul_kx size = ul_kx_unary(kernel, UL_KX_ABS, x);
    ul_kx zero = ul_kx_number(kernel, ul_kx_dtype(kernel, x), 0);
    return ul_ks_let(kernel,
                     ul_kx_select(kernel, binary(kernel, UL_KX_LT, size, rnn->clip), own, zero));
}
