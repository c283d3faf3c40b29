/*
 * 16-bit floats of device code, for tests/cuda_emulation: storage, conversions, and arithmetic
 * that rounds each result. The conversions are the runtime's (ul_small_float.h).
 */
#ifndef CUDA_FP16_H
#define CUDA_FP16_H

#include "cuda_runtime.h"
#include "ul_small_float.h"

struct __align__(2) __half
{
    unsigned short bits;

    __half() = default;
    __half(float x) : bits(ul_f32_to_f16(x))
    {
    }
    operator float() const
    {
        return ul_f16_to_f32(bits);
    }
};
typedef __half half;

struct __align__(4) __half2
{
    __half x, y;
};
typedef __half2 half2;

static inline __half __float2half(float x)
{
    return __half(x);
}

static inline __half __float2half_rn(float x)
{
    return __half(x);
}

static inline float __half2float(__half x)
{
    return ul_f16_to_f32(x.bits);
}

static inline unsigned short __half_as_ushort(__half x)
{
    return x.bits;
}

static inline __half __ushort_as_half(unsigned short bits)
{
    __half x;
    x.bits = bits;
    return x;
}

static inline __half2 __floats2half2_rn(float x, float y)
{
    return {__half(x), __half(y)};
}

static inline float2 __half22float2(__half2 x)
{
    return make_float2(__half2float(x.x), __half2float(x.y));
}

#endif
