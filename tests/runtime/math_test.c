/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of ul_scalar.h against libm's double ones: the largest error in units in the last
   place, and the special values. Every 257th float; with "more", every 7th (a minute or two). */
#include "ul_scalar.h"

#include "test.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct function {
    const char *name;
    float (*ours)(float);
    double (*reference)(double);
    double limit_ulp;
};

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* Rounds ties to even by definition, for |x| small enough. */
static double round_even(double x)
{
    double low = floor(x);
    double rest = x - low;
    if (fabs(x) >= 0x1p52 || rest == 0.0 || isnan(x))
        return x;
    if (rest != 0.5)
        return copysign(rest < 0.5 ? low : low + 1.0, x);
    return copysign(fmod(low, 2.0) == 0.0 ? low : low + 1.0, x);
}

static const struct function functions[] = {
    {"exp", ul_exp_f32, exp, 1.5},    {"log", ul_log_f32, log, 1.5},
    {"tanh", ul_tanh_f32, tanh, 2.0}, {"sigmoid", ul_sigmoid_f32, sigmoid, 2.5},
    {"erf", ul_erf_f32, erf, 2.0},    {"round", ul_round_even_f32, round_even, 0.0},
};

/* The error of one value in units of the last place of the right one; -1 for a wrong kind. */
static double error_of(const struct function *function, float x)
{
    float got = function->ours(x);
    double want = function->reference((double)x);
    float rounded = (float)want;
    if (isnan(want))
        return isnan(got) ? 0.0 : -1.0;
    if (isinf(rounded) || want == 0.0)
        return got == rounded ? 0.0 : -1.0;
    int exponent = ilogb(want);
    double unit = ldexp(1.0, (exponent < -126 ? -126 : exponent) - 23);
    return isnan(got) ? -1.0 : fabs((double)got - want) / unit;
}

static void test_function(const struct function *function, uint64_t step)
{
    double worst = 0.0;
    float worst_at = 0.0f;
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += step) {
        float x = ul_f32_from_bits((uint32_t)bits);
        double error = error_of(function, x);
        if (error < 0.0 && ++test_failures < 20)
            fprintf(stderr, "%s(%a) = %a\n", function->name, (double)x, (double)function->ours(x));
        if (error > worst) {
            worst = error;
            worst_at = x;
        }
    }
    printf("%-8s largest error %.3f ulp at %a\n", function->name, worst, (double)worst_at);
    CHECK(worst <= function->limit_ulp);
}

static void test_special(void)
{
    float inf = HUGE_VALF, nan = (float)NAN;
    CHECK(isnan(ul_exp_f32(nan)) && ul_exp_f32(inf) == inf && ul_exp_f32(-inf) == 0.0f);
    CHECK(ul_exp_f32(0.0f) == 1.0f && ul_exp_f32(-0.0f) == 1.0f);
    CHECK(ul_log_f32(inf) == inf && ul_log_f32(0.0f) == -inf && ul_log_f32(-0.0f) == -inf);
    CHECK(isnan(ul_log_f32(-1.0f)) && isnan(ul_log_f32(nan)) && ul_log_f32(1.0f) == 0.0f);
    CHECK(ul_tanh_f32(inf) == 1.0f && ul_tanh_f32(-inf) == -1.0f && isnan(ul_tanh_f32(nan)));
    CHECK(signbit(ul_tanh_f32(-0.0f)) && signbit(ul_erf_f32(-0.0f)));
    CHECK(ul_erf_f32(inf) == 1.0f && ul_erf_f32(-inf) == -1.0f && isnan(ul_erf_f32(nan)));
    CHECK(ul_sigmoid_f32(inf) == 1.0f && ul_sigmoid_f32(-inf) == 0.0f);
    CHECK(isnan(ul_sigmoid_f32(nan)) && ul_sigmoid_f32(0.0f) == 0.5f);
    CHECK(ul_round_even_f32(2.5f) == 2.0f && ul_round_even_f32(-3.5f) == -4.0f);
    CHECK(signbit(ul_round_even_f32(-0.4f)) && isnan(ul_round_even_f32(nan)));
    CHECK(ul_round_even_f64(0.5) == 0.0 && ul_round_even_f64(1.5) == 2.0);
    CHECK(ul_round_even_f64(-HUGE_VAL) == -HUGE_VAL && ul_round_even_f64(1e300) == 1e300);
}

int main(int argc, char **argv)
{
    uint64_t step = argc == 2 && strcmp(argv[1], "more") == 0 ? 7 : 257;
    test_special();
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        test_function(&functions[i], step);
    return TEST_RESULT();
}
