/* The activation functions that recurrent cells name. */
#include "ir/kernel_build.h"
#include "ir/ops/rnn.h"

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
