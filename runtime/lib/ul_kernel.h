/* SPDX-License-Identifier: 0BSD */
/*
 * What printed kernels and steps in C are written with: addresses in the arena, vectors,
 * checked indexes, and through ul_scalar.h what expressions of floats call.
 *
 * Invariants: no function has undefined behaviour for any argument, none touches errno or static
 * data. The only failure is an index out of range: clamped, and noted in the run. Pure C99; GNU
 * extensions (vectors, loop pragmas) are inside #ifdef, with a plain path beside them.
 *
 * Bytes of the arena hold values of other types from step to step, so a compiler must not assume
 * that different types lie apart; and NaN and infinities have a meaning. gcc is told the first
 * here; a compiler that can be told by its command line alone is asked for that, and says so by an
 * error. model.c includes this before all else. */
#ifndef UL_KERNEL_H
#define UL_KERNEL_H

#if defined(UL_MAY_ALIAS) /* it was told */
#elif defined(__clang__)
#if defined(__OPTIMIZE__)
#error "compile this file with -fno-strict-aliasing -DUL_MAY_ALIAS"
#endif
#elif defined(__GNUC__)
#pragma GCC optimize("no-strict-aliasing")
#else
#error "have the compiler take objects of different types as overlapping; then -DUL_MAY_ALIAS"
#endif

#if defined(__FAST_MATH__)
#error "compile this file without -ffast-math, which takes NaN and infinities for impossible"
#endif

#include "ul_model.h"
#include "ul_scalar.h"

#include <stddef.h>
#include <stdint.h>

/* UL_IVDEP stands in front of a loop whose iterations do not depend on each other, UL_NO_UNROLL in
 * front of one that must not be unrolled, UL_IVDEP_ROLLED where both hold. gcc unrolls loops of few
 * rounds before it looks for vectors, and then branches in them. gcc 12 also miscompiles sums of
 * integers in such a loop: what is added to them after the loop reaches only some of the vectors'
 * lanes. */
#if defined(__clang__)
#define UL_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#define UL_IVDEP_ROLLED UL_IVDEP
#define UL_NO_UNROLL
#define UL_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define UL_IVDEP _Pragma("GCC ivdep")
#define UL_IVDEP_ROLLED _Pragma("GCC ivdep") _Pragma("GCC unroll 1")
#define UL_NO_UNROLL _Pragma("GCC unroll 1")
#define UL_UNROLL _Pragma("GCC unroll 64")
#else
#define UL_IVDEP
#define UL_IVDEP_ROLLED
#define UL_NO_UNROLL
#define UL_UNROLL
#endif

#if defined(__GNUC__)
#define UL_KERNEL static __attribute__((noinline))
#define UL_INLINE static inline __attribute__((always_inline))
#define UL_COLD static __attribute__((cold, noinline, unused))
#else
#define UL_KERNEL static
#define UL_INLINE static inline
#define UL_COLD static inline
#endif
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

/* Announces step `number` of a generated run function. */
#define UL_STEP(run, number)                                                                       \
    do {                                                                                           \
        (run)->step = (number);                                                                    \
        if ((run)->hook != NULL)                                                                   \
            (run)->hook((run)->hook_context, (number));                                            \
    } while (0)

/* The object of `type` at an offset of the arena, of a caller's input, or of an output. */
#define UL_AT(type, arena, offset_bytes) ((type *)(void *)((arena) + (offset_bytes)))
#define UL_IN(type, run, number, offset_bytes)                                                     \
    ((const type *)(const void *)((const unsigned char *)(run)->inputs[number] + (offset_bytes)))
#define UL_OUT(type, run, number, offset_bytes)                                                    \
    ((type *)(void *)((unsigned char *)(run)->outputs[number] + (offset_bytes)))

/* Put it in front of a kernel's own array. In functions that call nothing, gcc 12 keeps such arrays
 * below the stack pointer and stores whole vectors to them, although neither is aligned; arrays
 * that ask for more alignment than the stack has are aligned. */
#if defined(__GNUC__) && defined(__x86_64__)
#define UL_LOCAL __attribute__((aligned(32)))
#else
#define UL_LOCAL
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

/* ---- data-dependent indexes ---- */

/* ul_threads.h has these, and comes before this where kernels share their work. */
#ifndef UL_CRITICAL
#define UL_CRITICAL
#define ul_thread() UINT32_MAX
#endif

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

/* index in [0, limit); else noted and clamped: no index counts from the end. */
static inline int64_t ul_bound(struct ul_run *run, int64_t index, int64_t limit)
{
    if (UL_LIKELY((uint64_t)index < (uint64_t)limit))
        return index;
    ul_fault_note(run, UL_FAULT_PLACE, index, limit);
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

#endif
