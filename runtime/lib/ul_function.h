/* SPDX-License-Identifier: 0BSD */
/*
 * How the functions that printed kernels call are declared, so that one text of them serves C99,
 * CUDA device code (and the host code beside it) and host C++.
 *
 * Invariants: no behaviour depends on the language; what is here is spelling alone.
 */
#ifndef UL_FUNCTION_H
#define UL_FUNCTION_H

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

#endif
