/* SPDX-License-Identifier: 0BSD */
/*
 * Bytes of the arena hold values of other types from step to step, which a compiler may not take to
 * lie apart for that. gcc is told here; a compiler that can be told by its command line alone is
 * asked for that, and says so by an error. model.c includes it before all else.
 */
#ifndef UL_ALIASING_H
#define UL_ALIASING_H

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

#endif
