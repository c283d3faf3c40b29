/* SPDX-License-Identifier: 0BSD */
/*
 * Bytes looked up in tables of 256: to[i] = table[from[i]], a vector of them at once where the
 * machine looks up bytes (vpermi2b). `to` may be `from`; else the two share no byte. Nothing fails.
 * Pure C99 where there are no vectors. */
#ifndef UL_LOOKUP_H
#define UL_LOOKUP_H

#include "ul_kernel.h"

#include <stdint.h>

#if UL_VECTOR_BYTES == 64 && defined(__AVX512VBMI__)
#include <immintrin.h>

/* Looks up `count` of 64 bytes: bits 0 to 6 are a place in two vectors, bit 7 says in which two. */
UL_INLINE void ul_lookup_vector(void *to, const void *from, const __m512i table[4], int64_t count)
{
    const __mmask64 some = count >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << count) - 1;
    const __m512i x = _mm512_maskz_loadu_epi8(some, from);
    const __m512i low = _mm512_permutex2var_epi8(table[0], x, table[1]);
    const __m512i high = _mm512_permutex2var_epi8(table[2], x, table[3]);
    _mm512_mask_storeu_epi8(to, some, _mm512_mask_blend_epi8(_mm512_movepi8_mask(x), low, high));
}

/* Byte x stands for element x ^ flip of the table. */
static inline void ul_lookup_bytes(unsigned char *to, const unsigned char *from,
                                   const unsigned char *elements, int flip, int64_t count)
{
    const unsigned char *low = elements + flip, *high = elements + (128 - flip);
    const __m512i table[4] = {_mm512_loadu_si512(low), _mm512_loadu_si512(low + 64),
                              _mm512_loadu_si512(high), _mm512_loadu_si512(high + 64)};
    for (int64_t i = 0; i < count; i += 64)
        ul_lookup_vector(to + i, from + i, table, count - i);
}
#else
static inline void ul_lookup_bytes(unsigned char *to, const unsigned char *from,
                                   const unsigned char *elements, int flip, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = elements[from[i] ^ flip];
}
#endif

static inline void ul_lookup_u8(void *to, const void *from, const void *table, int64_t count)
{
    ul_lookup_bytes((unsigned char *)to, (const unsigned char *)from, (const unsigned char *)table,
                    0, count);
}

/* The table begins with what stands for -128. */
static inline void ul_lookup_i8(void *to, const void *from, const void *table, int64_t count)
{
    ul_lookup_bytes((unsigned char *)to, (const unsigned char *)from, (const unsigned char *)table,
                    128, count);
}

#endif
