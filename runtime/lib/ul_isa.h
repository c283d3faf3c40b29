/* SPDX-License-Identifier: 0BSD */
/*
 * Does this processor have what model.c was compiled for? Asked before anything else runs, so that
 * a program moved to an older machine says so instead of dying of an illegal instruction. Who asks
 * is compiled for a plain processor.
 */
#ifndef UL_ISA_H
#define UL_ISA_H

#include "ul_model.h"

/* The first feature of `isa` (UL_ISA_ of ul_model.h) that is not there, by name; NULL: all are. */
static inline const char *ul_isa_missing(uint32_t isa)
{
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
    __builtin_cpu_init();
#define UL_ISA_CHECK(bit, feature)                                                                 \
    if ((isa & (bit)) != 0 && !__builtin_cpu_supports(feature))                                    \
        return feature;
    UL_ISA_CHECK(UL_ISA_SSE3, "sse3")
    UL_ISA_CHECK(UL_ISA_SSSE3, "ssse3")
    UL_ISA_CHECK(UL_ISA_SSE41, "sse4.1")
    UL_ISA_CHECK(UL_ISA_SSE42, "sse4.2")
    UL_ISA_CHECK(UL_ISA_POPCNT, "popcnt")
    UL_ISA_CHECK(UL_ISA_AVX, "avx")
    UL_ISA_CHECK(UL_ISA_AVX2, "avx2")
    UL_ISA_CHECK(UL_ISA_FMA, "fma")
    UL_ISA_CHECK(UL_ISA_BMI, "bmi")
    UL_ISA_CHECK(UL_ISA_BMI2, "bmi2")
    UL_ISA_CHECK(UL_ISA_AVX512F, "avx512f")
    UL_ISA_CHECK(UL_ISA_AVX512VL, "avx512vl")
    UL_ISA_CHECK(UL_ISA_AVX512BW, "avx512bw")
    UL_ISA_CHECK(UL_ISA_AVX512DQ, "avx512dq")
    UL_ISA_CHECK(UL_ISA_AVX512CD, "avx512cd")
    UL_ISA_CHECK(UL_ISA_AVX512VNNI, "avx512vnni")
    UL_ISA_CHECK(UL_ISA_AVX512BF16, "avx512bf16")
    UL_ISA_CHECK(UL_ISA_AVX512VBMI, "avx512vbmi")
    UL_ISA_CHECK(UL_ISA_AVX512VBMI2, "avx512vbmi2")
    UL_ISA_CHECK(UL_ISA_AVX512IFMA, "avx512ifma")
    UL_ISA_CHECK(UL_ISA_AVX512BITALG, "avx512bitalg")
    UL_ISA_CHECK(UL_ISA_AVX512VPOPCNTDQ, "avx512vpopcntdq")
#undef UL_ISA_CHECK
    if (isa > UL_ISA_LAST * 2 - 1)
        return "a feature that is newer than this program's runtime";
#else
    (void)isa;
#endif
    return NULL;
}

#endif
