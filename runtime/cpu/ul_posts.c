/* SPDX-License-Identifier: 0BSD */
/*
 * Functions after a call; ul_posts.h says which and why.
 *
 * Method: all are x / (1 + 2^t) for some t of x, with one division and no branch, so that loops
 * vectorise:
 *
 *      swish       t = -alpha x log2(e)
 *      gelu tanh   0.5 (1 + tanh u) = 1 / (1 + exp(-2 u))
 *      gelu        Phi(x) = 1 / (1 + 2^t), t = -log2(Phi(x) / Phi(-x)): an odd function, x times a
 *                  polynomial in x^2 for |x| <= 5.6, outside of which Phi is 0 or 1 to within 1e-8.
 *
 * Largest errors: swish and logistic relative 2^-24 (3 + |t|); both gelu absolute
 * 7e-7 for |x| up to 8, of which the last rounding is most.
 */
#include "ul_posts.h"

#include "ul_kernel.h"

#ifdef _OPENMP
#include <omp.h>
#endif

enum { BLOCK = 2048 }; /* elements; stays in the first cache while several functions pass */

/* 2^t; infinity from t = 128 on, and any value where t is NaN. The bounds are those of the float's
 * bits: comparing integers keeps compilers from making a case of each bound. */
static inline float power_of_two(float t)
{
    const int32_t max = 0x43000000;   /* 128: 2^0 with an exponent of infinity */
    const uint32_t min = 0xc2fc0000u; /* -126 */
    int32_t high = (int32_t)ul_f32_bits(t);
    uint32_t bits = (uint32_t)(high < max ? high : max);
    t = ul_f32_from_bits(bits < min ? bits : min);
    float shifted = t + 12582912.0f; /* the nearest integer in the low bits of 1.5 * 2^23 */
    float f = t - (shifted - 12582912.0f);
    float p = 1.326472725e-03f; /* 2^f for |f| <= 0.5, exactly 1 at 0 */
    p = p * f + 9.671512688e-03f;
    p = p * f + 5.550733744e-02f;
    p = p * f + 2.402224208e-01f;
    p = p * f + 6.931469776e-01f;
    p = p * f + 1.0f;
    return ul_f32_from_bits(ul_f32_bits(p) + (ul_f32_bits(shifted) << 23));
}

static inline float logistic(float x)
{
    float y = 1.0f / (1.0f + power_of_two(x * -1.44269504f));
    return x != x ? x : y;
}

static inline float gelu_tanh(float x)
{
    /* -2 log2(e) sqrt(2 / pi) (x + 0.044715 x^3) */
    return x / (1.0f + power_of_two(x * (-2.30220819f - 0.102943240f * x * x)));
}

static inline float gelu_erf(float x)
{
    const int32_t max = 0x41fae148; /* 5.6^2; squares have no sign, so that their bits compare */
    int32_t bits = (int32_t)ul_f32_bits(x * x);
    float square = ul_f32_from_bits((uint32_t)(bits < max ? bits : max));
    float p = -5.209901801e-09f;
    p = p * square + 3.850446848e-07f;
    p = p * square + -1.145242495e-05f;
    p = p * square + 1.593893768e-04f;
    p = p * square + 9.559304376e-05f;
    p = p * square + -1.048385814e-01f;
    p = p * square + -2.302207204e+00f;
    return x / (1.0f + power_of_two(x * p));
}

#define EACH(expression)                                                                           \
    for (int64_t i = 0; i < count; i++) {                                                          \
        const float x = y[i];                                                                      \
        y[i] = (expression);                                                                       \
    }                                                                                              \
    break

void ul_post_apply(const struct ul_post *post, float *y, int64_t count)
{
    const float alpha = post->alpha, beta = post->beta;
    const float scale = alpha * -1.44269504f;
    switch (post->kind) {
    case UL_POST_RELU:
        EACH(x < 0 ? (alpha == 0 ? 0 : alpha * x) : x); /* no 0 * infinity */
    case UL_POST_CLIP:
        EACH(x < alpha ? alpha : x > beta ? beta : x);
    case UL_POST_GELU_ERF:
        EACH(gelu_erf(x));
    case UL_POST_GELU_TANH:
        EACH(gelu_tanh(x));
    case UL_POST_SWISH:
        EACH(x / (1.0f + power_of_two(scale * x)));
    case UL_POST_HARD_SWISH:
        EACH(x * ul_min_f32(ul_max_f32(x * (1.0f / 6.0f) + 0.5f, 0.0f), 1.0f));
    case UL_POST_LOGISTIC:
        EACH(logistic(x));
    case UL_POST_TANH:
        EACH(ul_tanh_f32(x));
    case UL_POST_ELU:
        EACH(x < 0 ? alpha * (ul_exp_f32(x) - 1.0f) : x);
    case UL_POST_LINEAR:
        EACH(alpha * x + beta);
    case UL_POST_ROUND:
        EACH(ul_round_even_f32(x));
    case UL_POST_SUM:
    case UL_POST_ADD:
    case UL_POST_SUB:
    case UL_POST_MUL:
    case UL_POST_DIV:
    case UL_POST_MAX:
    case UL_POST_MIN:
        break;
    }
}

#undef EACH

/* Runs part `index` of `parts` of the result, block by block. */
static void run_part(const struct ul_call *call, float *dst, int64_t count, int64_t index,
                     int64_t parts)
{
    const int64_t blocks = (count + BLOCK - 1) / BLOCK;
    const int64_t end = blocks * (index + 1) / parts;
    for (int64_t block = blocks * index / parts; block < end; block++) {
        const int64_t begin = block * BLOCK;
        const int64_t size = count - begin < BLOCK ? count - begin : BLOCK;
        for (uint32_t i = call->post_count - call->tail_count; i < call->post_count; i++)
            ul_post_apply(&call->posts[i], dst + begin, size);
    }
}

void ul_posts_run(const struct ul_call *call, float *dst, uint32_t threads)
{
    int64_t count = 1;
    for (uint32_t d = 0; d < call->dst.rank; d++)
        count *= call->dst.dims[d];
#ifdef _OPENMP
    if (threads > 1 && count > 2 * BLOCK) {
#pragma omp parallel num_threads((int)threads)
        run_part(call, dst, count, omp_get_thread_num(), omp_get_num_threads());
        return;
    }
#endif
    (void)threads;
    run_part(call, dst, count, 0, 1);
}
