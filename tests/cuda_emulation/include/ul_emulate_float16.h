/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Floats of 16 bits of device code, for tests/cuda_emulation: storage, conversions, and arithmetic
 * that rounds each result. The conversions are the runtime's (ul_small_float.h); cuda_fp16.h and
 * cuda_bf16.h give the types and functions their names.
 */
#ifndef UL_EMULATE_FLOAT16_H
#define UL_EMULATE_FLOAT16_H

#include "cuda_runtime.h"
#include "ul_small_float.h"

/* `word` is what CUDA calls the type in the names of functions. */
#define UL_EMULATE_FLOAT16(type, word, from_float, to_float)                                       \
    struct __align__(2) type                                                                       \
    {                                                                                              \
        unsigned short bits;                                                                       \
                                                                                                   \
        type() = default;                                                                          \
        type(float x) : bits(from_float(x))                                                        \
        {                                                                                          \
        }                                                                                          \
        operator float() const                                                                     \
        {                                                                                          \
            return to_float(bits);                                                                 \
        }                                                                                          \
    };                                                                                             \
    struct __align__(4) type##2                                                                    \
    {                                                                                              \
        type x, y;                                                                                 \
    };                                                                                             \
    static inline type __float2##word(float x)                                                     \
    {                                                                                              \
        return type(x);                                                                            \
    }                                                                                              \
    static inline type __float2##word##_rn(float x)                                                \
    {                                                                                              \
        return type(x);                                                                            \
    }                                                                                              \
    static inline float __##word##2float(type x)                                                   \
    {                                                                                              \
        return to_float(x.bits);                                                                   \
    }                                                                                              \
    static inline unsigned short __##word##_as_ushort(type x)                                      \
    {                                                                                              \
        return x.bits;                                                                             \
    }                                                                                              \
    static inline type __ushort_as_##word(unsigned short bits)                                     \
    {                                                                                              \
        type x;                                                                                    \
        x.bits = bits;                                                                             \
        return x;                                                                                  \
    }                                                                                              \
    static inline type##2 __floats2##word##2_rn(float x, float y)                                  \
    {                                                                                              \
        return {type(x), type(y)};                                                                 \
    }                                                                                              \
    static inline float2 __##word##22float2(type##2 x)                                             \
    {                                                                                              \
        return make_float2(to_float(x.x.bits), to_float(x.y.bits));                                \
    }

#endif
