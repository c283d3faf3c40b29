/*
 * bfloat16 of device code, for tests/cuda_emulation: storage, conversions, and arithmetic
 * that rounds each result. The conversions are the runtime's (ul_small_float.h).
 */
#ifndef CUDA_BF16_H
#define CUDA_BF16_H

#include "cuda_runtime.h"
#include "ul_small_float.h"

struct __align__(2) __nv_bfloat16
{
    unsigned short bits;

    __nv_bfloat16() = default;
    __nv_bfloat16(float x) : bits(ul_f32_to_bf16(x))
    {
    }
    operator float() const
    {
        return ul_bf16_to_f32(bits);
    }
};
typedef __nv_bfloat16 nv_bfloat16;

struct __align__(4) __nv_bfloat162
{
    __nv_bfloat16 x, y;
};
typedef __nv_bfloat162 nv_bfloat162;

static inline __nv_bfloat16 __float2bfloat16(float x)
{
    return __nv_bfloat16(x);
}

static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    return __nv_bfloat16(x);
}

static inline float __bfloat162float(__nv_bfloat16 x)
{
    return ul_bf16_to_f32(x.bits);
}

static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x)
{
    return x.bits;
}

static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    __nv_bfloat16 x;
    x.bits = bits;
    return x;
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {__nv_bfloat16(x), __nv_bfloat16(y)};
}

static inline float2 __bfloat1622float2(__nv_bfloat162 x)
{
    return make_float2(__bfloat162float(x.x), __bfloat162float(x.y));
}

#endif
