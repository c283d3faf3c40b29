/* SPDX-License-Identifier: 0BSD */
/*
 * Floating-point formats narrower than float, kept as their bits: float16, bfloat16, the four
 * 8-bit formats of ONNX, E2M1, E2M3, E3M2 and E8M0. Conversions to float are exact; conversions
 * from float or double round to nearest, ties to even, once. NaN stays NaN, subnormals are kept.
 * The functions are free of branches or short, so that compilers vectorise them. Nothing fails.
 * Pure C99; also CUDA device code and C++17 (ul_scalar.h); a device converts 16 bits by its
 * instructions, which give the same but for the bits of a NaN.
 *
 * Formats: IEEE 754-2019 binary16; bfloat16 = the upper half of a float; "FP8 Formats for Deep
 * Learning" (Micikevicius et al. 2022) for E4M3FN and E5M2; "8-bit Numerical Formats for Deep
 * Neural Networks" (Noune et al. 2022) for the FNUZ variants (no infinities, no minus zero, NaN is
 * 0x80); "OCP Microscaling Formats 1.0" for E2M1, E2M3 and E3M2, of 4 and 6
 * bits at the low end of a byte, and E8M0.
 */
#ifndef UL_SMALL_FLOAT_H
#define UL_SMALL_FLOAT_H

#include "ul_scalar.h"

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

/* double -> float, rounded to odd: a later rounding to a format of at most 22 bits of precision
   then gives what one direct rounding would give (Boldo and Melquiond, 2008). */
UL_FUNCTION float ul_f64_to_f32_odd(double value)
{
    float near = (float)value;
    double back = (double)near;
    uint32_t bits = ul_f32_bits(near);
    if (back == value || value != value)
        return near;
    int away = value < 0.0 ? back < value : back > value;
    return ul_f32_from_bits((bits - (uint32_t)away) | 1u);
}

UL_FUNCTION float ul_f16_to_f32(uint16_t half)
{
#ifdef __CUDA_ARCH__
    return __half2float(__ushort_as_half(half));
#else
    uint32_t bits = (uint32_t)(half & 0x7fff) << 13;
    /* 2^112 moves the exponent from bias 15 to bias 127, and normalises subnormals. */
    bits = ul_f32_bits(ul_f32_from_bits(bits) * 5192296858534827628530496329220096.0f);
    bits |= (half & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u;
    return ul_f32_from_bits(bits | (uint32_t)(half & 0x8000) << 16);
#endif
}

UL_FUNCTION uint16_t ul_f32_to_f16(float value)
{
#ifdef __CUDA_ARCH__
    return __half_as_ushort(__float2half_rn(value));
#else
    uint32_t bits = ul_f32_bits(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    bits &= 0x7fffffffu;
    /* Normal results: exponent bias 127 -> 15, half of the last place less one, and the odd bit. */
    uint32_t normal = (bits - 0x38000000u + 0xfffu + (bits >> 13 & 1u)) >> 13;
    /* Subnormal results: adding 0.5 lets the addition round at 2^-24. */
    uint32_t tiny = ul_f32_bits(ul_f32_from_bits(bits) + 0.5f) - 0x3f000000u;
    uint32_t huge = bits > 0x7f800000u ? 0x7e00u | (bits >> 13 & 0x3ffu) : 0x7c00u;
    uint32_t half = bits < 0x38800000u ? tiny : normal;
    return (uint16_t)(sign | (bits >= 0x47800000u ? huge : half));
#endif
}

UL_FUNCTION uint16_t ul_f64_to_f16(double value)
{
    return ul_f32_to_f16(ul_f64_to_f32_odd(value));
}

UL_FUNCTION float ul_bf16_to_f32(uint16_t bf16)
{
    return ul_f32_from_bits((uint32_t)bf16 << 16);
}

UL_FUNCTION uint16_t ul_f32_to_bf16(float value)
{
#ifdef __CUDA_ARCH__
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
    uint32_t bits = ul_f32_bits(value);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16 | 0x40u) : rounded);
#endif
}

UL_FUNCTION uint16_t ul_f64_to_bf16(double value)
{
    return ul_f32_to_bf16(ul_f64_to_f32_odd(value));
}

/* An 8-bit format: `mantissa` explicit bits, exponent `bias`, the code of the largest finite value
   and what an overflow and a NaN become (without the sign for the IEEE-like formats). */
struct ul_f8_format {
    int mantissa;
    int bias;
    uint32_t largest;
    uint32_t overflow;
    uint32_t nan;
    int unsigned_zero; /* the FNUZ formats: 0x80 is NaN, not -0 */
};

UL_FUNCTION uint8_t ul_f8_encode(float value, struct ul_f8_format format, int saturate)
{
    uint32_t bits = ul_f32_bits(value);
    uint32_t sign = bits >> 24 & 0x80u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u)
        return (uint8_t)(format.unsigned_zero ? format.nan : sign | format.nan);
    int exponent = (int)(bits >> 23) - 127 + format.bias;
    int shift = 23 - format.mantissa;
    uint32_t fraction = (bits & 0x7fffffu) | 0x800000u;
    uint32_t code = 0;
    if (exponent < 1) /* subnormal: the leading one becomes explicit and moves down */
        shift += 1 - exponent;
    if (shift <= 24) {
        fraction += (1u << (shift - 1)) - 1u + (fraction >> shift & 1u);
        code = fraction >> shift;
        if (exponent >= 1) /* the leading one adds 1 to the exponent */
            code += (uint32_t)(exponent - 1) << format.mantissa;
    }
    if (code > format.largest) {
        code = saturate ? format.largest : format.overflow;
        if (code == 0x80u)
            return 0x80u;
    }
    return (uint8_t)(code == 0 && format.unsigned_zero ? 0u : sign | code);
}

UL_FUNCTION float ul_f8_decode(uint8_t code, struct ul_f8_format format)
{
    uint32_t magnitude = code & 0x7fu;
    uint32_t sign = (uint32_t)(code & 0x80) << 24;
    uint32_t exponent = magnitude >> format.mantissa;
    uint32_t fraction = magnitude & ((1u << format.mantissa) - 1u);
    uint32_t steps = exponent == 0 ? fraction : fraction | 1u << format.mantissa;
    int power = (exponent == 0 ? 1 : (int)exponent) - format.bias - format.mantissa;
    float scale = ul_f32_from_bits((uint32_t)(power + 127) << 23);
    if (format.unsigned_zero ? code == 0x80 : magnitude > format.largest) {
        uint32_t infinite =
            !format.unsigned_zero && magnitude != format.nan && magnitude == format.overflow;
        return ul_f32_from_bits(sign | (infinite ? 0x7f800000u : 0x7fc00000u));
    }
    return ul_f32_from_bits(ul_f32_bits((float)steps * scale) | sign);
}

UL_FUNCTION struct ul_f8_format ul_f8e4m3fn(void)
{
    const struct ul_f8_format format = {3, 7, 0x7e, 0x7f, 0x7f, 0};
    return format;
}

UL_FUNCTION struct ul_f8_format ul_f8e4m3fnuz(void)
{
    const struct ul_f8_format format = {3, 8, 0x7f, 0x80, 0x80, 1};
    return format;
}

UL_FUNCTION struct ul_f8_format ul_f8e5m2(void)
{
    const struct ul_f8_format format = {2, 15, 0x7b, 0x7c, 0x7e, 0};
    return format;
}

UL_FUNCTION struct ul_f8_format ul_f8e5m2fnuz(void)
{
    const struct ul_f8_format format = {2, 16, 0x7f, 0x80, 0x80, 1};
    return format;
}

UL_FUNCTION struct ul_f8_format ul_f4e2m1(void)
{
    const struct ul_f8_format format = {1, 1, 0x7, 0x7, 0, 0};
    return format;
}

/* The formats of 8 bits by name; `saturate` as in ONNX Cast: values too large (infinities too)
   become the largest finite one, else NaN, or infinity where the format has one. */
UL_FUNCTION uint8_t ul_f32_to_f8e4m3fn(float value, int saturate)
{
    return ul_f8_encode(value, ul_f8e4m3fn(), saturate);
}

UL_FUNCTION uint8_t ul_f32_to_f8e4m3fnuz(float value, int saturate)
{
    return ul_f8_encode(value, ul_f8e4m3fnuz(), saturate);
}

UL_FUNCTION uint8_t ul_f32_to_f8e5m2(float value, int saturate)
{
    return ul_f8_encode(value, ul_f8e5m2(), saturate);
}

UL_FUNCTION uint8_t ul_f32_to_f8e5m2fnuz(float value, int saturate)
{
    return ul_f8_encode(value, ul_f8e5m2fnuz(), saturate);
}

UL_FUNCTION float ul_f8e4m3fn_to_f32(uint8_t code)
{
    return ul_f8_decode(code, ul_f8e4m3fn());
}

UL_FUNCTION float ul_f8e4m3fnuz_to_f32(uint8_t code)
{
    return ul_f8_decode(code, ul_f8e4m3fnuz());
}

UL_FUNCTION float ul_f8e5m2_to_f32(uint8_t code)
{
    return ul_f8_decode(code, ul_f8e5m2());
}

UL_FUNCTION float ul_f8e5m2fnuz_to_f32(uint8_t code)
{
    return ul_f8_decode(code, ul_f8e5m2fnuz());
}

/* Neither infinity nor NaN: whatever `saturate` says, what is too large becomes 6, and NaN 0. */
UL_FUNCTION uint8_t ul_f32_to_f4e2m1(float value, int saturate)
{
    uint8_t code = ul_f8_encode(value, ul_f4e2m1(), saturate);
    return (uint8_t)((code & 7) | (code >> 4 & 8));
}

UL_FUNCTION float ul_f4e2m1_to_f32(uint8_t code)
{
    return ul_f8_decode((uint8_t)((code & 7) | (code & 8) << 4), ul_f4e2m1());
}

UL_FUNCTION struct ul_f8_format ul_f6e2m3(void)
{
    const struct ul_f8_format format = {3, 1, 0x1f, 0x1f, 0, 0};
    return format;
}

UL_FUNCTION struct ul_f8_format ul_f6e3m2(void)
{
    const struct ul_f8_format format = {2, 3, 0x1f, 0x1f, 0, 0};
    return format;
}

/* Like E2M1: what is too large becomes 7.5 or 28, and NaN 0. */
UL_FUNCTION uint8_t ul_f32_to_f6e2m3(float value, int saturate)
{
    uint8_t code = ul_f8_encode(value, ul_f6e2m3(), saturate);
    return (uint8_t)((code & 31) | (code >> 2 & 32));
}

UL_FUNCTION float ul_f6e2m3_to_f32(uint8_t code)
{
    return ul_f8_decode((uint8_t)((code & 31) | (code & 32) << 2), ul_f6e2m3());
}

UL_FUNCTION uint8_t ul_f32_to_f6e3m2(float value, int saturate)
{
    uint8_t code = ul_f8_encode(value, ul_f6e3m2(), saturate);
    return (uint8_t)((code & 31) | (code >> 2 & 32));
}

UL_FUNCTION float ul_f6e3m2_to_f32(uint8_t code)
{
    return ul_f8_decode((uint8_t)((code & 31) | (code & 32) << 2), ul_f6e3m2());
}

/* The next power of two of the magnitude: an exponent of 8 bits, 255 for NaN. 0 and what is too
   large have none: they become the smallest and the largest one with `saturate`, else NaN. */
UL_FUNCTION uint8_t ul_f32_to_f8e8m0(float value, int saturate)
{
    uint32_t bits = ul_f32_bits(value) & 0x7fffffffu;
    /* 2^-127, the smallest one, is a fraction in f32, whose exponent ends one above. */
    uint32_t code = (bits + (bits < 0x800000u ? 0x3fffffu : 0x7fffffu)) >> 23;
    if (bits > 0x7f800000u)
        return 0xffu;
    if (code > 0xfeu)
        return saturate ? 0xfeu : 0xffu;
    return (uint8_t)(bits == 0 && !saturate ? 0xffu : code);
}

UL_FUNCTION float ul_f8e8m0_to_f32(uint8_t code)
{
    return ul_f32_from_bits(code == 0xff ? 0x7fc00000u
                            : code == 0  ? 0x400000u
                                         : (uint32_t)code << 23);
}

#endif
