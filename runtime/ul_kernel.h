/*
 * What printed kernels are written with: integer arithmetic without undefined behaviour, casts as
 * ONNX wants them, minimum and maximum that keep NaN, checked indexes, packed 4-bit integers,
 * vectors. Small floats are in ul_small_float.h, functions such as exp and erf in ul_math.h, random
 * numbers in ul_random.h.
 *
 * Invariants: no function has undefined behaviour for any argument, none touches errno or static
 * data. The only failure is an index out of range: clamped, and noted in the run.
 * Pure C99; GNU extensions (vectors, loop pragmas) stand behind #ifdef with a plain path beside.
 * Compile kernels with -fno-strict-aliasing: the arena holds values of different types in turn.
 */
#ifndef UL_KERNEL_H
#define UL_KERNEL_H

#include "ul_math.h"
#include "ul_model.h"
#include "ul_random.h"
#include "ul_small_float.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(_OPENMP)
#include <omp.h>
#endif

#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L
#define UL_RESTRICT restrict
#elif defined(__GNUC__)
#define UL_RESTRICT __restrict__
#else
#define UL_RESTRICT
#endif

/* In front of a loop whose iterations do not depend on each other. */
#if defined(__clang__)
#define UL_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#define UL_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define UL_IVDEP _Pragma("GCC ivdep")
#define UL_UNROLL _Pragma("GCC unroll 64")
#else
#define UL_IVDEP
#define UL_UNROLL
#endif

#if defined(__GNUC__)
#define UL_INLINE static inline __attribute__((always_inline))
#define UL_COLD static __attribute__((cold, noinline, unused))
#define UL_LIKELY(condition) __builtin_expect((condition) != 0, 1)
#define UL_UNLIKELY(condition) __builtin_expect((condition) != 0, 0)
#else
#define UL_INLINE static inline
#define UL_COLD static inline
#define UL_LIKELY(condition) ((condition) != 0)
#define UL_UNLIKELY(condition) ((condition) != 0)
#endif

/*
 * Vectors, where the compiler has them (UL_VECTOR_BYTES > 0) and UL_NO_VECTOR does not forbid them.
 * UL_VECTOR_BYTES is what the machine compiled for handles at once, UL_LANES(type) the elements of
 * that. UL_VECTOR(name, type, lanes) declares a vector type; the one declared by UL_VECTOR_LOOSE
 * may be loaded and stored at any address that suits one element, and aliases everything.
 */
#if defined(__GNUC__) && !defined(UL_NO_VECTOR)
#if defined(__AVX512F__)
#define UL_VECTOR_BYTES 64
#elif defined(__AVX__)
#define UL_VECTOR_BYTES 32
#else
#define UL_VECTOR_BYTES 16
#endif
#define UL_VECTOR(name, type, lanes)                                                               \
    typedef type name __attribute__((vector_size((lanes) * sizeof(type))))
#define UL_VECTOR_LOOSE(name, type, lanes)                                                         \
    typedef type name                                                                              \
        __attribute__((vector_size((lanes) * sizeof(type)), aligned(sizeof(type)), may_alias))
#define UL_LANES(type) ((int)(UL_VECTOR_BYTES / sizeof(type)))
UL_VECTOR(ul_f32v, float, UL_VECTOR_BYTES / 4);
UL_VECTOR_LOOSE(ul_f32v_loose, float, UL_VECTOR_BYTES / 4);
UL_VECTOR(ul_i32v, int32_t, UL_VECTOR_BYTES / 4);
UL_VECTOR_LOOSE(ul_i32v_loose, int32_t, UL_VECTOR_BYTES / 4);
#else
#define UL_VECTOR_BYTES 0
#define UL_LANES(type) 1
#endif

/* ---- threads ---- */

/*
 *     UL_PARALLEL(run)
 *     {
 *         const struct ul_part t_part = ul_part(1000, 4);
 *         for (int64_t i = t_part.begin; i < t_part.end; i++) ...
 *     }
 *
 * All threads of the run enter; the first ones, as many as there is work for, get a contiguous run
 * of items each. Always starting all of them keeps the threads of OpenMP waiting for the next
 * region. Without OpenMP the block is a block, and the part is everything.
 */
#if defined(_OPENMP)
#define UL_PRAGMA(text) _Pragma(#text)
#define UL_PARALLEL(run) UL_PRAGMA(omp parallel num_threads(ul_team(run)))
#define UL_CRITICAL UL_PRAGMA(omp critical(ul_kernel))
#else
#define UL_PARALLEL(run)
#define UL_CRITICAL
#endif

/* Of a region: this thread, and its items. */
struct ul_part {
    int64_t thread;
    int64_t begin, end;
};

/* The threads that start a region together. What was noted before it is older than what will be. */
static inline int ul_team(struct ul_run *run)
{
    run->fault_thread = 0;
    return run->threads > 1 ? (int)run->threads : 1;
}

/* In a region this thread's number; outside of any, one that is behind all of them. */
static inline uint32_t ul_thread(void)
{
#if defined(_OPENMP)
    return omp_in_parallel() ? (uint32_t)omp_get_thread_num() : UINT32_MAX;
#else
    return UINT32_MAX;
#endif
}

/* This thread's share of [0, items) among at most `most` threads. */
static inline struct ul_part ul_part(int64_t items, int64_t most)
{
    struct ul_part part = {0, 0, items};
#if defined(_OPENMP)
    int64_t count = omp_get_num_threads();
    count = count < most ? count : most;
    part.thread = omp_get_thread_num();
    part.begin = part.thread < count ? items / count * part.thread : items;
    part.begin += part.thread < count ? items % count * part.thread / count : 0;
    part.end = part.thread + 1 < count ? items / count * (part.thread + 1) : items;
    part.end += part.thread + 1 < count ? items % count * (part.thread + 1) / count : 0;
#else
    (void)most;
#endif
    return part;
}

static inline int64_t ul_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- data-dependent indexes ---- */

/* Notes the first bad value of a run; called at most once per element, and never in good runs. A
   thread's items are before those of later threads, so within a region the earliest thread counts:
   what is noted is the same for every number of threads. */
UL_COLD void ul_fault_note(struct ul_run *run, enum ul_fault fault, int64_t value, int64_t limit)
{
    const uint32_t thread = ul_thread();
    UL_CRITICAL
    {
        if (run->fault == UL_FAULT_NONE || thread < run->fault_thread) {
            run->fault = fault;
            run->fault_step = run->step;
            run->fault_thread = thread;
            run->fault_value = value;
            run->fault_limit = limit;
        }
    }
}

/* index in [-limit, limit), negative ones counted from the end; else noted and clamped. A kernel
   must not call this for an empty axis (limit 0), where there is no index to give. */
static inline int64_t ul_index(struct ul_run *run, int64_t index, int64_t limit)
{
    int64_t wrapped = index < 0 ? index + limit : index;
    if (UL_LIKELY((uint64_t)wrapped < (uint64_t)limit))
        return wrapped;
    ul_fault_note(run, UL_FAULT_INDEX, index, limit);
    return wrapped < 0 ? 0 : limit - 1;
}

/* index in [0, limit); else noted and clamped: for indexes that were wrapped before. */
static inline int64_t ul_bound(struct ul_run *run, int64_t index, int64_t limit)
{
    if (UL_LIKELY((uint64_t)index < (uint64_t)limit))
        return index;
    ul_fault_note(run, UL_FAULT_INDEX, index, limit);
    return index < 0 ? 0 : limit - 1;
}

/* count in [0, limit]; else noted and clamped. */
static inline int64_t ul_count(struct ul_run *run, int64_t count, int64_t limit)
{
    if (UL_LIKELY(count >= 0 && count <= limit))
        return count;
    ul_fault_note(run, UL_FAULT_COUNT, count, limit);
    return count < 0 ? 0 : limit;
}

static inline int64_t ul_clamp_i64(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* ---- minimum and maximum ---- */

/* As numpy.minimum and maximum: NaN if either is NaN. Written so that one operand order maps to the
   machine's instruction. */
static inline float ul_max_f32(float a, float b)
{
    float larger = a > b ? a : b;
    return a != a ? a : larger;
}

static inline float ul_min_f32(float a, float b)
{
    float smaller = a < b ? a : b;
    return a != a ? a : smaller;
}

static inline double ul_max_f64(double a, double b)
{
    double larger = a > b ? a : b;
    return a != a ? a : larger;
}

static inline double ul_min_f64(double a, double b)
{
    double smaller = a < b ? a : b;
    return a != a ? a : smaller;
}

/* ---- integers ---- */

/*
 * For each type: div (towards zero, as ONNX Div), floor_div, mod (sign of the divisor, as ONNX Mod
 * with fmod=0 and Python's %), fmod (sign of the dividend, as C's %), abs, neg, add, sub, mul (all
 * wrap), min, max, pow (exponent by squaring, wraps; a negative exponent gives 0 but for base 1 and
 * -1), shl and shr (0 when all bits leave). A zero divisor gives 0, as numpy does.
 */
#define UL_INTEGER_COMMON(tag, type, wide)                                                         \
    static inline type ul_add_##tag(type a, type b)                                                \
    {                                                                                              \
        return (type)((wide)a + (wide)b);                                                          \
    }                                                                                              \
    static inline type ul_sub_##tag(type a, type b)                                                \
    {                                                                                              \
        return (type)((wide)a - (wide)b);                                                          \
    }                                                                                              \
    static inline type ul_mul_##tag(type a, type b)                                                \
    {                                                                                              \
        return (type)((wide)a * (wide)b);                                                          \
    }                                                                                              \
    static inline type ul_min_##tag(type a, type b)                                                \
    {                                                                                              \
        return a < b ? a : b;                                                                      \
    }                                                                                              \
    static inline type ul_max_##tag(type a, type b)                                                \
    {                                                                                              \
        return a > b ? a : b;                                                                      \
    }                                                                                              \
    static inline type ul_ipow_##tag(type base, uint64_t exponent)                                 \
    {                                                                                              \
        wide result = 1, square = (wide)base;                                                      \
        for (; exponent != 0; exponent >>= 1, square = (wide)(square * square))                    \
            if ((exponent & 1u) != 0)                                                              \
                result = (wide)(result * square);                                                  \
        return (type)result;                                                                       \
    }

#define UL_INTEGER_SIGNED(tag, type, wide)                                                         \
    UL_INTEGER_COMMON(tag, type, wide)                                                             \
    static inline type ul_neg_##tag(type a)                                                        \
    {                                                                                              \
        return (type)((wide)0 - (wide)a);                                                          \
    }                                                                                              \
    static inline type ul_abs_##tag(type a)                                                        \
    {                                                                                              \
        return a < 0 ? ul_neg_##tag(a) : a;                                                        \
    }                                                                                              \
    static inline type ul_div_##tag(type a, type b)                                                \
    {                                                                                              \
        if (b == 0)                                                                                \
            return 0;                                                                              \
        if (b == -1)                                                                               \
            return ul_neg_##tag(a);                                                                \
        return (type)(a / b);                                                                      \
    }                                                                                              \
    static inline type ul_fmod_##tag(type a, type b)                                               \
    {                                                                                              \
        if (b == 0 || b == -1)                                                                     \
            return 0;                                                                              \
        return (type)(a % b);                                                                      \
    }                                                                                              \
    static inline type ul_mod_##tag(type a, type b)                                                \
    {                                                                                              \
        type rest = ul_fmod_##tag(a, b);                                                           \
        if (rest != 0 && (rest < 0) != (b < 0))                                                    \
            return (type)(rest + b);                                                               \
        return rest;                                                                               \
    }                                                                                              \
    static inline type ul_floor_div_##tag(type a, type b)                                          \
    {                                                                                              \
        type rest = ul_fmod_##tag(a, b);                                                           \
        type quotient = ul_div_##tag(a, b);                                                        \
        if (rest != 0 && (rest < 0) != (b < 0))                                                    \
            return (type)(quotient - 1);                                                           \
        return quotient;                                                                           \
    }                                                                                              \
    static inline type ul_pow_##tag(type base, int64_t exponent)                                   \
    {                                                                                              \
        if (exponent >= 0)                                                                         \
            return ul_ipow_##tag(base, (uint64_t)exponent);                                        \
        return base == 1 || base == -1 ? ul_ipow_##tag(base, (uint64_t)exponent & 1u) : (type)0;   \
    }

#define UL_INTEGER_UNSIGNED(tag, type, wide)                                                       \
    UL_INTEGER_COMMON(tag, type, wide)                                                             \
    static inline type ul_neg_##tag(type a)                                                        \
    {                                                                                              \
        return (type)((wide)0 - (wide)a);                                                          \
    }                                                                                              \
    static inline type ul_abs_##tag(type a)                                                        \
    {                                                                                              \
        return a;                                                                                  \
    }                                                                                              \
    static inline type ul_div_##tag(type a, type b)                                                \
    {                                                                                              \
        if (b == 0)                                                                                \
            return 0;                                                                              \
        return (type)(a / b);                                                                      \
    }                                                                                              \
    static inline type ul_floor_div_##tag(type a, type b)                                          \
    {                                                                                              \
        return ul_div_##tag(a, b);                                                                 \
    }                                                                                              \
    static inline type ul_fmod_##tag(type a, type b)                                               \
    {                                                                                              \
        if (b == 0)                                                                                \
            return 0;                                                                              \
        return (type)(a % b);                                                                      \
    }                                                                                              \
    static inline type ul_mod_##tag(type a, type b)                                                \
    {                                                                                              \
        return ul_fmod_##tag(a, b);                                                                \
    }                                                                                              \
    static inline type ul_pow_##tag(type base, int64_t exponent)                                   \
    {                                                                                              \
        if (exponent >= 0)                                                                         \
            return ul_ipow_##tag(base, (uint64_t)exponent);                                        \
        return base == 1 ? (type)1 : (type)0;                                                      \
    }                                                                                              \
    static inline type ul_shl_##tag(type a, uint64_t count)                                        \
    {                                                                                              \
        if (count >= sizeof(type) * 8)                                                             \
            return 0;                                                                              \
        return (type)((wide)a << count);                                                           \
    }                                                                                              \
    static inline type ul_shr_##tag(type a, uint64_t count)                                        \
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
UL_INTEGER_UNSIGNED(u8, uint8_t, uint32_t)
UL_INTEGER_UNSIGNED(u16, uint16_t, uint32_t)
UL_INTEGER_UNSIGNED(u32, uint32_t, uint32_t)
UL_INTEGER_UNSIGNED(u64, uint64_t, uint64_t)

/* ---- floating-point remainders ---- */

/* Sign of the divisor (ONNX Mod with fmod=0 on floats; numpy.mod). */
static inline float ul_mod_f32(float a, float b)
{
    float rest = fmodf(a, b);
    if (rest == 0.0f)
        return copysignf(rest, b);
    return (rest < 0.0f) != (b < 0.0f) ? rest + b : rest;
}

static inline double ul_mod_f64(double a, double b)
{
    double rest = fmod(a, b);
    if (rest == 0.0)
        return copysign(rest, b);
    return (rest < 0.0) != (b < 0.0) ? rest + b : rest;
}

/* ---- casts ---- */

/* Floats to integers: towards zero; too large values become the nearest end of the type, NaN 0. The
   bounds are powers of two, so they are exact in float as in double. */
#define UL_CAST(tag, type, low, low_value, above, high_value)                                      \
    static inline type ul_f64_to_##tag(double value)                                               \
    {                                                                                              \
        if (!(value > (low)-1.0))                                                                  \
            return value != value ? (type)0 : (low_value);                                         \
        return value >= (above) ? (high_value) : (type)value;                                      \
    }                                                                                              \
    static inline type ul_f32_to_##tag(float value)                                                \
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

static inline uint8_t ul_f32_to_bool(float value)
{
    return value != 0.0f;
}

static inline uint8_t ul_f64_to_bool(double value)
{
    return value != 0.0;
}

/* An integer into the range of a narrower one, as quantisation wants it. */
static inline int8_t ul_saturate_i8(int64_t value)
{
    return (int8_t)ul_clamp_i64(value, INT8_MIN, INT8_MAX);
}

static inline uint8_t ul_saturate_u8(int64_t value)
{
    return (uint8_t)ul_clamp_i64(value, 0, UINT8_MAX);
}

static inline int16_t ul_saturate_i16(int64_t value)
{
    return (int16_t)ul_clamp_i64(value, INT16_MIN, INT16_MAX);
}

static inline uint16_t ul_saturate_u16(int64_t value)
{
    return (uint16_t)ul_clamp_i64(value, 0, UINT16_MAX);
}

static inline int32_t ul_saturate_i32(int64_t value)
{
    return (int32_t)ul_clamp_i64(value, INT32_MIN, INT32_MAX);
}

/* ---- packed 4-bit integers: two to a byte, the even element in the low half ---- */

static inline uint8_t ul_u4_get(const uint8_t *packed, uint64_t element)
{
    return (uint8_t)(packed[element / 2] >> 4 * (element % 2) & 0xf);
}

static inline int8_t ul_i4_get(const uint8_t *packed, uint64_t element)
{
    return (int8_t)((ul_u4_get(packed, element) ^ 8) - 8);
}

/* Stores the low four bits of value; the other half of the byte stays. */
static inline void ul_4bit_set(uint8_t *packed, uint64_t element, int value)
{
    unsigned shift = 4 * (unsigned)(element % 2);
    unsigned kept = packed[element / 2] & (0xf0u >> shift);
    packed[element / 2] = (uint8_t)(kept | ((unsigned)value & 0xfu) << shift);
}

#endif
