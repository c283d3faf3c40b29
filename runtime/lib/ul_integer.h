/* SPDX-License-Identifier: 0BSD */
/*
 * Integers of printed expressions, in C and in CUDA alike: arithmetic without undefined behaviour,
 * packed integers of 2 and 4 bits, casts from floats as ONNX wants them, quantisation.
 *
 * Invariants: no function has undefined behaviour for any argument, none touches errno or static
 * data. Nothing fails. Pure C99; also CUDA device code and C++17 (ul_scalar.h).
 */
#ifndef UL_INTEGER_H
#define UL_INTEGER_H

#include "ul_scalar.h"

#include <stddef.h>
#include <stdint.h>

/* ---- packed integers of 2 and 4 bits ---- */

/* The first of them lies in the lowest bits of a byte. `sign`: the highest bit, 0 where there is no
   sign. */
#define UL_FEW(name, bits, sign)                                                                   \
    UL_FUNCTION int32_t ul_few_part_##name(uint8_t byte, uint32_t part)                            \
    {                                                                                              \
        return (int32_t)((((uint32_t)byte >> (bits)*part) & ((1u << (bits)) - 1u)) ^ (sign)) -     \
               (int32_t)(sign);                                                                    \
    }                                                                                              \
    UL_FUNCTION int32_t ul_few_##name(const uint8_t *from, int64_t at)                             \
    {                                                                                              \
        return ul_few_part_##name(from[at / (8 / (bits))], (uint32_t)(at % (8 / (bits))));         \
    }
UL_FEW(i2, 2, 2u)
UL_FEW(u2, 2, 0u)
UL_FEW(i4, 4, 8u)
UL_FEW(u4, 4, 0u)

/* ---- integers ---- */

/*
 * For each type: div (towards zero, as ONNX Div), floor_div, mod (sign of the divisor, as ONNX Mod
 * with fmod=0 and Python's %), fmod (sign of the dividend, as C's %), abs, neg, add, sub, mul (all
 * wrap), min, max, pow (exponent by squaring, wraps; a negative exponent gives 0 but for base 1 and
 * -1), shl and shr (0 when all bits leave; of i64 shr alone, which rounds down). A zero divisor
 * gives 0, as numpy does.
 */
#define UL_INTEGER_COMMON(tag, type, wide)                                                         \
    UL_FUNCTION type ul_add_##tag(type a, type b)                                                  \
    {                                                                                              \
        return (type)((wide)a + (wide)b);                                                          \
    }                                                                                              \
    UL_FUNCTION type ul_sub_##tag(type a, type b)                                                  \
    {                                                                                              \
        return (type)((wide)a - (wide)b);                                                          \
    }                                                                                              \
    UL_FUNCTION type ul_mul_##tag(type a, type b)                                                  \
    {                                                                                              \
        return (type)((wide)a * (wide)b);                                                          \
    }                                                                                              \
    UL_FUNCTION type ul_min_##tag(type a, type b)                                                  \
    {                                                                                              \
        return a < b ? a : b;                                                                      \
    }                                                                                              \
    UL_FUNCTION type ul_max_##tag(type a, type b)                                                  \
    {                                                                                              \
        return a > b ? a : b;                                                                      \
    }                                                                                              \
    UL_FUNCTION type ul_neg_##tag(type a)                                                          \
    {                                                                                              \
        return (type)((wide)0 - (wide)a);                                                          \
    }                                                                                              \
    UL_FUNCTION type ul_ipow_##tag(type base, uint64_t exponent)                                   \
    {                                                                                              \
        wide result = 1, square = (wide)base;                                                      \
        for (; exponent != 0; exponent >>= 1, square = (wide)(square * square))                    \
            if ((exponent & 1u) != 0)                                                              \
                result = (wide)(result * square);                                                  \
        return (type)result;                                                                       \
    }

#define UL_INTEGER_SIGNED(tag, type, wide)                                                         \
    UL_INTEGER_COMMON(tag, type, wide)                                                             \
    UL_FUNCTION type ul_abs_##tag(type a)                                                          \
    {                                                                                              \
        return a < 0 ? ul_neg_##tag(a) : a;                                                        \
    }                                                                                              \
    UL_FUNCTION type ul_div_##tag(type a, type b)                                                  \
    {                                                                                              \
        if (b == 0)                                                                                \
            return 0;                                                                              \
        if (b == -1)                                                                               \
            return ul_neg_##tag(a);                                                                \
        return (type)(a / b);                                                                      \
    }                                                                                              \
    UL_FUNCTION type ul_fmod_##tag(type a, type b)                                                 \
    {                                                                                              \
        if (b == 0 || b == -1)                                                                     \
            return 0;                                                                              \
        return (type)(a % b);                                                                      \
    }                                                                                              \
    UL_FUNCTION type ul_mod_##tag(type a, type b)                                                  \
    {                                                                                              \
        type rest = ul_fmod_##tag(a, b);                                                           \
        if (rest != 0 && (rest < 0) != (b < 0))                                                    \
            return (type)(rest + b);                                                               \
        return rest;                                                                               \
    }                                                                                              \
    UL_FUNCTION type ul_floor_div_##tag(type a, type b)                                            \
    {                                                                                              \
        type rest = ul_fmod_##tag(a, b);                                                           \
        type quotient = ul_div_##tag(a, b);                                                        \
        if (rest != 0 && (rest < 0) != (b < 0))                                                    \
            return (type)(quotient - 1);                                                           \
        return quotient;                                                                           \
    }                                                                                              \
    UL_FUNCTION type ul_pow_##tag(type base, int64_t exponent)                                     \
    {                                                                                              \
        if (exponent >= 0)                                                                         \
            return ul_ipow_##tag(base, (uint64_t)exponent);                                        \
        return base == 1 || base == -1 ? ul_ipow_##tag(base, (uint64_t)exponent & 1u) : (type)0;   \
    }

/* A shift to the right rounds down, and so ends at 0 or -1; C leaves a shift of negative numbers to
   the compiler. A count below 0 is too many bits as well, as unsigned. */
#define UL_INTEGER_SHIFT(tag, type, wide)                                                          \
    UL_FUNCTION type ul_shl_##tag(type a, uint64_t count)                                          \
    {                                                                                              \
        return count >= sizeof(type) * 8 ? (type)0 : (type)((wide)a << count);                     \
    }                                                                                              \
    UL_FUNCTION type ul_shr_##tag(type a, uint64_t count)                                          \
    {                                                                                              \
        if (count >= sizeof(type) * 8)                                                             \
            return (type)(a < 0 ? -1 : 0);                                                         \
        return (type)(a < 0 ? ~(~a >> count) : a >> count);                                        \
    }

#define UL_INTEGER_UNSIGNED(tag, type, wide)                                                       \
    UL_INTEGER_COMMON(tag, type, wide)                                                             \
    UL_FUNCTION type ul_abs_##tag(type a)                                                          \
    {                                                                                              \
        return a;                                                                                  \
    }                                                                                              \
    UL_FUNCTION type ul_div_##tag(type a, type b)                                                  \
    {                                                                                              \
        if (b == 0)                                                                                \
            return 0;                                                                              \
        return (type)(a / b);                                                                      \
    }                                                                                              \
    UL_FUNCTION type ul_floor_div_##tag(type a, type b)                                            \
    {                                                                                              \
        return ul_div_##tag(a, b);                                                                 \
    }                                                                                              \
    UL_FUNCTION type ul_fmod_##tag(type a, type b)                                                 \
    {                                                                                              \
        if (b == 0)                                                                                \
            return 0;                                                                              \
        return (type)(a % b);                                                                      \
    }                                                                                              \
    UL_FUNCTION type ul_mod_##tag(type a, type b)                                                  \
    {                                                                                              \
        return ul_fmod_##tag(a, b);                                                                \
    }                                                                                              \
    UL_FUNCTION type ul_pow_##tag(type base, int64_t exponent)                                     \
    {                                                                                              \
        if (exponent >= 0)                                                                         \
            return ul_ipow_##tag(base, (uint64_t)exponent);                                        \
        return base == 1 ? (type)1 : (type)0;                                                      \
    }                                                                                              \
    UL_FUNCTION type ul_shl_##tag(type a, uint64_t count)                                          \
    {                                                                                              \
        if (count >= sizeof(type) * 8)                                                             \
            return 0;                                                                              \
        return (type)((wide)a << count);                                                           \
    }                                                                                              \
    UL_FUNCTION type ul_shr_##tag(type a, uint64_t count)                                          \
    {                                                                                              \
        if (count >= sizeof(type) * 8)                                                             \
            return 0;                                                                              \
        return (type)(a >> count);                                                                 \
    }

/* The arithmetic is done in unsigned types at least as wide as int, so that it wraps. */
UL_INTEGER_SIGNED(i8, int8_t, uint32_t)
UL_INTEGER_SIGNED(i16, int16_t, uint32_t)
UL_INTEGER_SIGNED(i32, int32_t, uint32_t)
UL_INTEGER_SIGNED(i64, int64_t, uint64_t)
UL_INTEGER_SHIFT(i32, int32_t, uint32_t)
UL_INTEGER_SHIFT(i64, int64_t, uint64_t)
UL_INTEGER_UNSIGNED(u8, uint8_t, uint32_t)
UL_INTEGER_UNSIGNED(u16, uint16_t, uint32_t)
UL_INTEGER_UNSIGNED(u32, uint32_t, uint32_t)
UL_INTEGER_UNSIGNED(u64, uint64_t, uint64_t)

/* ---- casts ---- */

/* Floats to integers: towards zero; too large values become the nearest end of the type, NaN 0. The
   bounds are powers of two, so they are exact in float as in double. */
#define UL_CAST(tag, type, low, low_value, above, high_value)                                      \
    UL_FUNCTION type ul_f64_to_##tag(double value)                                                 \
    {                                                                                              \
        if (!(value > (low)-1.0))                                                                  \
            return value != value ? (type)0 : (low_value);                                         \
        return value >= (above) ? (high_value) : (type)value;                                      \
    }                                                                                              \
    UL_FUNCTION type ul_f32_to_##tag(float value)                                                  \
    {                                                                                              \
        return ul_f64_to_##tag((double)value);                                                     \
    }

UL_CAST(i8, int8_t, -0x1p7, INT8_MIN, 0x1p7, INT8_MAX)
UL_CAST(i16, int16_t, -0x1p15, INT16_MIN, 0x1p15, INT16_MAX)
UL_CAST(i32, int32_t, -0x1p31, INT32_MIN, 0x1p31, INT32_MAX)
UL_CAST(u8, uint8_t, 0.0, 0, 0x1p8, UINT8_MAX)
UL_CAST(u16, uint16_t, 0.0, 0, 0x1p16, UINT16_MAX)
UL_CAST(u32, uint32_t, 0.0, 0, 0x1p32, UINT32_MAX)
UL_CAST(u64, uint64_t, 0.0, 0, 0x1p64, UINT64_MAX)
UL_CAST(i64, int64_t, -0x1p63, INT64_MIN, 0x1p63, INT64_MAX)

UL_FUNCTION uint8_t ul_f32_to_bool(float value)
{
    return value != 0.0f;
}

UL_FUNCTION uint8_t ul_f64_to_bool(double value)
{
    return value != 0.0;
}

/* x rounded to the nearest whole number, ties to even, and within [low, high]; NaN counts as 0. The
   bounds are whole numbers of at most 2^22, low the smaller: then the bits of the sum with 1.5 *
   2^23 are the number, and a loop of these is one of vectors. As signed integers, the bits of sums
   are in the order of the sums, and every vector unit has the minimum and maximum of integers; for
   floats a compiler would have to keep NaN and -0. */
UL_FUNCTION int32_t ul_quantize_f32(float x, float low, float high)
{
    const int32_t least = (int32_t)ul_f32_bits(low + 12582912.0f);
    const int32_t most = (int32_t)ul_f32_bits(high + 12582912.0f);
    const uint32_t is_number = x == x; /* a condition here would be a branch in front of the sum */
    const float number = ul_f32_from_bits(ul_f32_bits(x) & (0u - is_number));
    int32_t sum = (int32_t)ul_f32_bits(number + 12582912.0f);
    sum = sum < least ? least : sum;
    sum = sum > most ? most : sum;
    return sum - 0x4b400000;
}

#endif
