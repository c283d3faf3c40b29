/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels are written with, for tests/cuda_emulation: qualifiers, vector types, built-in
 * variables, barriers, shuffles and votes, atomics, and the functions of device code that C++ does
 * not have. Includes the runtime API. C++17.
 *
 * Not here on purpose: __shared__ and <<<>>> (UL_SHARED, UL_LAUNCH), __noinline__ (a macro of that
 * name breaks the headers of libstdc++), atomic additions of floats (their sum depends on the order
 * of threads), shuffles and votes without a mask (gone from CUDA).
 * Failures: ul_emulate_fail, see ul_emulate.h.
 */
#ifndef CUDA_RUNTIME_H
#define CUDA_RUNTIME_H

#include "cuda_runtime_api.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __grid_constant__

/* ---- vectors ---- */

#define UL_EMULATE_VECTORS(type, name, size)                                                       \
    struct name##1                                                                                 \
    {                                                                                              \
        type x;                                                                                    \
    };                                                                                             \
    struct __align__(2 * size) name##2                                                             \
    {                                                                                              \
        type x, y;                                                                                 \
    };                                                                                             \
    struct name##3                                                                                 \
    {                                                                                              \
        type x, y, z;                                                                              \
    };                                                                                             \
    struct __align__(4 * size > 16 ? 16 : 4 * size) name##4                                        \
    {                                                                                              \
        type x, y, z, w;                                                                           \
    };                                                                                             \
    static inline name##1 make_##name##1(type x)                                                   \
    {                                                                                              \
        return {x};                                                                                \
    }                                                                                              \
    static inline name##2 make_##name##2(type x, type y)                                           \
    {                                                                                              \
        return {x, y};                                                                             \
    }                                                                                              \
    static inline name##3 make_##name##3(type x, type y, type z)                                   \
    {                                                                                              \
        return {x, y, z};                                                                          \
    }                                                                                              \
    static inline name##4 make_##name##4(type x, type y, type z, type w)                           \
    {                                                                                              \
        return {x, y, z, w};                                                                       \
    }
UL_EMULATE_VECTORS(signed char, char, 1)
UL_EMULATE_VECTORS(unsigned char, uchar, 1)
UL_EMULATE_VECTORS(short, short, 2)
UL_EMULATE_VECTORS(unsigned short, ushort, 2)
UL_EMULATE_VECTORS(int, int, 4)
UL_EMULATE_VECTORS(unsigned, uint, 4)
UL_EMULATE_VECTORS(long, long, 8)
UL_EMULATE_VECTORS(unsigned long, ulong, 8)
UL_EMULATE_VECTORS(long long, longlong, 8)
UL_EMULATE_VECTORS(unsigned long long, ulonglong, 8)
UL_EMULATE_VECTORS(float, float, 4)
UL_EMULATE_VECTORS(double, double, 8)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

/* The parameters of a launch that a node of a graph may get anew. */
struct cudaKernelNodeParams {
    void *func;
    dim3 gridDim, blockDim;
    unsigned sharedMemBytes;
    void **kernelParams;
    void **extra;
};
extern "C" cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                        const struct cudaKernelNodeParams *params);

/* ---- the running thread ---- */

/* Only x is ever other than 0 or 1: UL_LAUNCH has grids and blocks of one dimension. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
static const int warpSize = 32;

/* ---- barriers, shuffles, votes; fibers.cc ---- */

/* The calling line is known so that threads at different barriers are found out. */
void __syncthreads(int line = __builtin_LINE());
int __syncthreads_or(int predicate, int line = __builtin_LINE());
int __syncthreads_and(int predicate, int line = __builtin_LINE());
int __syncthreads_count(int predicate, int line = __builtin_LINE());
void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE());
/* What lane `from` of the warp gave, as bits; size_bytes at most 16. */
void ul_emulate_shuffle(unsigned mask, void *value, size_t size_bytes, int from, int line);
/* Where bits of lanes are set whose predicate is not 0. */
unsigned ul_emulate_vote(unsigned mask, int predicate, int line);
unsigned ul_emulate_reduce(unsigned mask, unsigned value, int how, int line);

/* Lanes of `mask` meet; the last one calls combine (NULL: nothing) with what each gave. `orders`:
   what they did in memory before is seen after. */
void ul_emulate_meet(unsigned mask, void *given, void (*combine)(unsigned mask, void *const *given),
                     bool orders, const char *what, int line);

static inline int ul_emulate_lane(void)
{
    return (int)(threadIdx.x % 32);
}

template <class T>
static inline T __shfl_sync(unsigned mask, T value, int from, int width = 32,
                            int line = __builtin_LINE())
{
    const int first = ul_emulate_lane() / width * width;
    ul_emulate_shuffle(mask, &value, sizeof value, first + (from & (width - 1)), line);
    return value;
}

template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                               int line = __builtin_LINE())
{
    const int lane = ul_emulate_lane(), from = lane - (int)delta;
    ul_emulate_shuffle(mask, &value, sizeof value, from < lane / width * width ? lane : from, line);
    return value;
}

template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                                 int line = __builtin_LINE())
{
    const int lane = ul_emulate_lane(), from = lane + (int)delta;
    const int end = lane / width * width + width;
    ul_emulate_shuffle(mask, &value, sizeof value, from >= end ? lane : from, line);
    return value;
}

template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int flip, int width = 32,
                                int line = __builtin_LINE())
{
    const int lane = ul_emulate_lane(), from = lane ^ flip;
    const int end = lane / width * width + width;
    ul_emulate_shuffle(mask, &value, sizeof value, from >= end ? lane : from, line);
    return value;
}

static inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
    return ul_emulate_vote(mask, predicate, line);
}

static inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
    return ul_emulate_vote(mask, predicate, line) != 0;
}

static inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
    return ul_emulate_vote(mask, predicate, line) == mask;
}

static inline unsigned __reduce_add_sync(unsigned mask, unsigned value, int line = __builtin_LINE())
{
    return ul_emulate_reduce(mask, value, '+', line);
}

static inline unsigned __reduce_max_sync(unsigned mask, unsigned value, int line = __builtin_LINE())
{
    return ul_emulate_reduce(mask, value, '>', line);
}

static inline unsigned __reduce_min_sync(unsigned mask, unsigned value, int line = __builtin_LINE())
{
    return ul_emulate_reduce(mask, value, '<', line);
}

/* One processor runs all threads. */
static inline void __threadfence(void)
{
    asm volatile("" ::: "memory");
}

static inline void __threadfence_block(void)
{
    asm volatile("" ::: "memory");
}

[[noreturn]] void __trap(void);

/* ---- atomics, of integers ---- */

#define UL_EMULATE_ATOMICS(type)                                                                   \
    static inline type atomicCAS(type *at, type expected, type desired)                            \
    {                                                                                              \
        __atomic_compare_exchange_n(at, &expected, desired, false, __ATOMIC_SEQ_CST,               \
                                    __ATOMIC_SEQ_CST);                                             \
        return expected;                                                                           \
    }                                                                                              \
    static inline type atomicExch(type *at, type value)                                            \
    {                                                                                              \
        return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                   \
    }                                                                                              \
    static inline type atomicAdd(type *at, type value)                                             \
    {                                                                                              \
        return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);                                    \
    }                                                                                              \
    static inline type atomicAnd(type *at, type value)                                             \
    {                                                                                              \
        return __atomic_fetch_and(at, value, __ATOMIC_SEQ_CST);                                    \
    }                                                                                              \
    static inline type atomicOr(type *at, type value)                                              \
    {                                                                                              \
        return __atomic_fetch_or(at, value, __ATOMIC_SEQ_CST);                                     \
    }                                                                                              \
    static inline type atomicMax(type *at, type value)                                             \
    {                                                                                              \
        type before = *at;                                                                         \
        while (before < value && !__atomic_compare_exchange_n(at, &before, value, false,           \
                                                              __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) \
            ;                                                                                      \
        return before;                                                                             \
    }                                                                                              \
    static inline type atomicMin(type *at, type value)                                             \
    {                                                                                              \
        type before = *at;                                                                         \
        while (before > value && !__atomic_compare_exchange_n(at, &before, value, false,           \
                                                              __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) \
            ;                                                                                      \
        return before;                                                                             \
    }
UL_EMULATE_ATOMICS(int)
UL_EMULATE_ATOMICS(unsigned)
UL_EMULATE_ATOMICS(long long)
UL_EMULATE_ATOMICS(unsigned long long)

/* ---- functions of device code ---- */

template <class T> static inline T __ldg(const T *at)
{
    return *at;
}

template <class TO, class FROM> static inline TO ul_emulate_bits(FROM from)
{
    static_assert(sizeof(TO) == sizeof(FROM), "the same bits");
    TO to;
    memcpy(&to, &from, sizeof to);
    return to;
}

/* Byte i of the result is that of the eight of x and y whose number is nibble i of the selector. */
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    const unsigned long long bytes = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++)
        result |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7u) & 0xffu) << 8 * i;
    return result;
}

static inline unsigned __float_as_uint(float x)
{
    return ul_emulate_bits<unsigned>(x);
}

static inline int __float_as_int(float x)
{
    return ul_emulate_bits<int>(x);
}

static inline float __uint_as_float(unsigned x)
{
    return ul_emulate_bits<float>(x);
}

static inline float __int_as_float(int x)
{
    return ul_emulate_bits<float>(x);
}

static inline long long __double_as_longlong(double x)
{
    return ul_emulate_bits<long long>(x);
}

static inline double __longlong_as_double(long long x)
{
    return ul_emulate_bits<double>(x);
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

static inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}

static inline int __clzll(long long x)
{
    return x == 0 ? 64 : __builtin_clzll((unsigned long long)x);
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((unsigned long long)a * b >> 32);
}

static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}

static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

static inline double rsqrt(double x)
{
    return 1.0 / sqrt(x);
}

#define UL_EMULATE_MIN_MAX(type)                                                                   \
    static inline type min(type a, type b)                                                         \
    {                                                                                              \
        return b < a ? b : a;                                                                      \
    }                                                                                              \
    static inline type max(type a, type b)                                                         \
    {                                                                                              \
        return a < b ? b : a;                                                                      \
    }
UL_EMULATE_MIN_MAX(int)
UL_EMULATE_MIN_MAX(unsigned)
UL_EMULATE_MIN_MAX(long)
UL_EMULATE_MIN_MAX(unsigned long)
UL_EMULATE_MIN_MAX(long long)
UL_EMULATE_MIN_MAX(unsigned long long)

static inline float min(float a, float b)
{
    return fminf(a, b);
}

static inline float max(float a, float b)
{
    return fmaxf(a, b);
}

#endif
