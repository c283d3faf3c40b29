/* SPDX-License-Identifier: 0BSD */
/*
 * What printed expressions are written with, in C and in CUDA alike: how functions are declared, so
 * that one text of them serves C99, CUDA device code (and the host code beside it) and host C++;
 * bits, minimum, maximum and remainder of floats; exp, log, tanh, sigmoid, erf and rounding,
 * written without calls, branches or tables so that a loop over them vectorises: those of libm are
 * correct too, but scalar. Integers are in ul_integer.h, small floats in ul_small_float.h, random
 * numbers in ul_random.h. What a kernel needs besides, and checked indexes: ul_kernel.h for C,
 * ul_kernel.cuh for CUDA.
 *
 * Method of exp and the like: range reduction, then a polynomial that minimises the largest
 * relative error (found by linear programming over Chebyshev nodes). The largest errors are what
 * tests/runtime/math_test.c measures: exp, log, sigmoid, tanh, erf stay below 2.5 units in the last
 * place where the result is normal. NaN gives NaN; infinities, zeros and subnormals give what C99
 * Annex F says. errno and the rounding mode are left alone; round-to-nearest is assumed.
 * Sums of products are rounded once where the processor can do that (ul_fma_f32): a compiler that
 * decided by itself would do so in one copy of a loop and not in another. C is compiled with
 * -ffp-contract=off therefore.
 *
 * Invariants: no function has undefined behaviour for any argument, none touches errno or static
 * data. Nothing fails. Functions that printed
 * expressions call under C's names (sinf, powf, erf, fmod ...) are libm's there, and CUDA's on a
 * device: without -use_fast_math at most 4 units in the last place for float (powf, tanf, acoshf;
 * the others 3 or less), 2 for double, fmod and rounding exact, special values as in Annex F
 * ("Mathematical Functions" in the CUDA C++ Programming Guide). Division and sqrt are IEEE's with
 * nvcc's defaults (-prec-div=true -prec-sqrt=true -ftz=false), which the exactness of
 * ul_small_float.h needs too.
 */
#ifndef UL_SCALAR_H
#define UL_SCALAR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* In front of a small function of a header. */
#if defined(__CUDACC__)
#define UL_FUNCTION static inline __host__ __device__
#else
#define UL_FUNCTION static inline
#endif

#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L
#define UL_RESTRICT restrict
#elif defined(__GNUC__) || defined(__CUDACC__)
#define UL_RESTRICT __restrict__
#else
#define UL_RESTRICT
#endif

#if defined(__GNUC__)
#define UL_LIKELY(condition) __builtin_expect((condition) != 0, 1)
#define UL_UNLIKELY(condition) __builtin_expect((condition) != 0, 0)
#else
#define UL_LIKELY(condition) ((condition) != 0)
#define UL_UNLIKELY(condition) ((condition) != 0)
#endif

/* Whether the processor has instructions that round a * b + c once, for float and for double. */
#if defined(__CUDACC__) || !defined(__GNUC__)
#define UL_HAS_FMA 0
#elif defined(__x86_64__) || defined(__i386__)
#if defined(__FMA__)
#define UL_HAS_FMA 2
#else
#define UL_HAS_FMA 0
#endif
#elif defined(__FP_FAST_FMA) || defined(__aarch64__) || defined(__powerpc__) ||                    \
    defined(__s390x__) || (defined(__riscv_flen) && __riscv_flen >= 64)
#define UL_HAS_FMA 2
#elif defined(__FP_FAST_FMAF) || defined(__ARM_FEATURE_FMA) || defined(__riscv_flen)
#define UL_HAS_FMA 1 /* for float alone */
#else
#define UL_HAS_FMA 0
#endif

UL_FUNCTION float ul_fma_f32(float a, float b, float c)
{
#if UL_HAS_FMA > 0
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

UL_FUNCTION double ul_fma_f64(double a, double b, double c)
{
#if UL_HAS_FMA > 1
    return __builtin_fma(a, b, c);
#else
    return a * b + c;
#endif
}

/* Define this before including the header to round each product, or none. */
#ifndef UL_ADD_PRODUCT
#define UL_ADD_PRODUCT(a, b, c) ul_fma_f32(a, b, c)
#endif

/* ---- indexes ---- */

UL_FUNCTION int64_t ul_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- bits ---- */

UL_FUNCTION uint32_t ul_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

UL_FUNCTION float ul_f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

UL_FUNCTION uint64_t ul_f64_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

UL_FUNCTION double ul_f64_from_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- minimum and maximum ---- */

/* As numpy.minimum and maximum: NaN if either is NaN. Written so that one operand order maps to the
   machine's instruction. */
UL_FUNCTION float ul_max_f32(float a, float b)
{
    float larger = a > b ? a : b;
    return a != a ? a : larger;
}

UL_FUNCTION float ul_min_f32(float a, float b)
{
    float smaller = a < b ? a : b;
    return a != a ? a : smaller;
}

UL_FUNCTION double ul_max_f64(double a, double b)
{
    double larger = a > b ? a : b;
    return a != a ? a : larger;
}

UL_FUNCTION double ul_min_f64(double a, double b)
{
    double smaller = a < b ? a : b;
    return a != a ? a : smaller;
}

/* ---- floating-point remainders ---- */

/* Sign of the divisor (ONNX Mod with fmod=0 on floats; numpy.mod). */
UL_FUNCTION float ul_mod_f32(float a, float b)
{
    float rest = fmodf(a, b);
    if (rest == 0.0f)
        return copysignf(rest, b);
    return (rest < 0.0f) != (b < 0.0f) ? rest + b : rest;
}

UL_FUNCTION double ul_mod_f64(double a, double b)
{
    double rest = fmod(a, b);
    if (rest == 0.0)
        return copysign(rest, b);
    return (rest < 0.0) != (b < 0.0) ? rest + b : rest;
}

/* ---- functions ---- */

/* To an integral value, ties to even (ONNX Round, QuantizeLinear). Adding 2^23 leaves no room for a
   fraction; larger values have none. */
UL_FUNCTION float ul_round_even_f32(float x)
{
    float magnitude = fabsf(x);
    float rounded = (magnitude + 8388608.0f) - 8388608.0f;
    return copysignf(magnitude < 8388608.0f ? rounded : magnitude, x);
}

UL_FUNCTION double ul_round_even_f64(double x)
{
    double magnitude = fabs(x);
    double rounded = (magnitude + 4503599627370496.0) - 4503599627370496.0;
    return copysign(magnitude < 4503599627370496.0 ? rounded : magnitude, x);
}

/* x = n ln 2 + r with |r| <= ln 2 / 2; exp(x) = 2^n exp(r). 2^n is applied in two halves, so that
   results near the ends of the range are rounded once. */
UL_FUNCTION float ul_exp_f32(float x)
{
    float bounded = x > 89.0f ? 89.0f : x;
    bounded = bounded < -104.0f ? -104.0f : bounded;
    float shifted =
        UL_ADD_PRODUCT(bounded, 1.44269504f, 12582912.0f); /* n in the low bits of 1.5 * 2^23 */
    float n = shifted - 12582912.0f;
    float r = UL_ADD_PRODUCT(-n, 0.693359375f, bounded);
    r = UL_ADD_PRODUCT(-n, -2.12194440e-4f, r);
    float p = 1.381458016e-03f;
    p = UL_ADD_PRODUCT(p, r, 8.368724957e-03f);
    p = UL_ADD_PRODUCT(p, r, 4.166838899e-02f);
    p = UL_ADD_PRODUCT(p, r, 1.666652113e-01f);
    p = UL_ADD_PRODUCT(p, r, 4.999999404e-01f);
    p = UL_ADD_PRODUCT(p, r * r, r) + 1.0f;
    uint32_t power = ul_f32_bits(shifted) - (0x4b400000u - 254); /* n + 254 */
    uint32_t half = power >> 1;
    float low = ul_f32_from_bits(half << 23);
    float high = ul_f32_from_bits((power - half) << 23);
    return p * low * high; /* NaN gives NaN: it passed both bounds */
}

/* x = 2^n m with m in [sqrt(1/2), sqrt(2)); log(x) = n ln 2 + log(m). */
UL_FUNCTION float ul_log_f32(float x)
{
    int small = x < 1.17549435e-38f;
    float scaled = small ? x * 8388608.0f : x;
    uint32_t bits = ul_f32_bits(scaled) - 0x3f3504f3u; /* sqrt(1/2) */
    int32_t power = (int32_t)(bits & 0xff800000u) / 8388608 - (small ? 23 : 0);
    float f = ul_f32_from_bits((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    float n = (float)power;
    float square = f * f;
    float p = 6.746633351e-02f;
    p = UL_ADD_PRODUCT(p, f, -1.167564541e-01f);
    p = UL_ADD_PRODUCT(p, f, 1.188816205e-01f);
    p = UL_ADD_PRODUCT(p, f, -1.240558997e-01f);
    p = UL_ADD_PRODUCT(p, f, 1.421955228e-01f);
    p = UL_ADD_PRODUCT(p, f, -1.666799635e-01f);
    p = UL_ADD_PRODUCT(p, f, 2.000211924e-01f);
    p = UL_ADD_PRODUCT(p, f, -2.500000894e-01f);
    p = UL_ADD_PRODUCT(p, f, 3.333331347e-01f);
    p = UL_ADD_PRODUCT(p, f, -0.5f);
    p = UL_ADD_PRODUCT(p, square, UL_ADD_PRODUCT(n, -2.12194440e-4f, f));
    float result = UL_ADD_PRODUCT(n, 0.693359375f, p);
    result = x > 3.4028234e38f ? x : result;
    result = x == 0.0f ? -HUGE_VALF : result;
    return x < 0.0f ? ul_f32_from_bits(0x7fc00000u) : x != x ? x : result;
}

UL_FUNCTION float ul_sigmoid_f32(float x)
{
    /* exp of the negative magnitude never overflows; the small side keeps its relative error. */
    float e = ul_exp_f32(-fabsf(x));
    float top = x < 0.0f ? e : 1.0f;
    return top / (1.0f + e);
}

UL_FUNCTION float ul_tanh_f32(float x)
{
    float magnitude = fabsf(x);
    float square = x * x;
    float p = -5.704991054e-03f;
    p = UL_ADD_PRODUCT(p, square, 2.063909173e-02f);
    p = UL_ADD_PRODUCT(p, square, -5.373971537e-02f);
    p = UL_ADD_PRODUCT(p, square, 1.333144158e-01f);
    p = UL_ADD_PRODUCT(p, square, -3.333328068e-01f);
    float near = UL_ADD_PRODUCT(p * square, magnitude, magnitude);
    float e = ul_exp_f32(-2.0f * magnitude);
    float far = (1.0f - e) / (1.0f + e);
    return copysignf(magnitude < 0.625f ? near : far, x);
}

/* Near 0 an odd polynomial; further out 1 - exp(-|x| P(|x|)), where P approximates
   -log(erfc(x)) / x on [0.875, 3.95]; beyond that the result rounds to 1. */
UL_FUNCTION float ul_erf_f32(float x)
{
    float magnitude = fabsf(x);
    float square = x * x;
    float near = -6.203256198e-04f;
    near = UL_ADD_PRODUCT(near, square, 5.032181274e-03f);
    near = UL_ADD_PRODUCT(near, square, -2.679146267e-02f);
    near = UL_ADD_PRODUCT(near, square, 1.128245518e-01f);
    near = UL_ADD_PRODUCT(near, square, -3.761255145e-01f);
    near = UL_ADD_PRODUCT(near, square, 1.283791512e-01f);
    near = UL_ADD_PRODUCT(near, magnitude, magnitude);
    float t = magnitude > 3.95f ? 3.95f : magnitude;
    float p = -2.152247616e-04f;
    p = UL_ADD_PRODUCT(p, t, 3.225122113e-03f);
    p = UL_ADD_PRODUCT(p, t, -2.292237803e-02f);
    p = UL_ADD_PRODUCT(p, t, 1.053120866e-01f);
    p = UL_ADD_PRODUCT(p, t, 6.356804371e-01f);
    p = UL_ADD_PRODUCT(p, t, 1.128525496e+00f);
    float far = 1.0f - ul_exp_f32(-t * p);
    float result = magnitude < 0.875f ? near : far;
    return x != x ? x : copysignf(result, x);
}

#endif
