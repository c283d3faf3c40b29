/* SPDX-License-Identifier: 0BSD */
/*
 * Rows of floats as signed bytes, a scale for each block of them, and products of such bytes with
 * codes of 2, 4 or 8 bits: what ul_nbits.c multiplies with where a model lets it.
 *
 * A word holds 32 / bits codes of a column. Part p of it are the codes at bits p * bits of its four
 * bytes, so rows have side by side the four bytes that meet one part (ul_bytes_turn), and one
 * 32-bit lane of a vector takes in a part of a column by one instruction where machines have it
 * (ul_contract_int.h). Sums are exact: 255 * 127 for each of k, and so the same on every machine.
 * Units: counts in elements. Nothing fails. Pure C99 where there are no vectors; little-endian.
 */
#ifndef UL_NBITS_BYTES_H
#define UL_NBITS_BYTES_H

#include "ul_contract.h"
#include "ul_contract_int.h"
#include "ul_kernel.h"
#include "ul_nbits.h"
#include "ul_scalar.h"

/* Vectors of 32-bit sums, and of as many floats. */
#if UL_INT_VECTORS
typedef ul_iv ul_bv;
UL_VECTOR(ul_bv_ints, int32_t, UL_IV_LANES);
UL_VECTOR(ul_bv_words, uint32_t, UL_IV_LANES);
UL_VECTOR(ul_bv_floats, float, UL_IV_LANES);
UL_VECTOR_LOOSE(ul_bv_loose, float, UL_IV_LANES);
#define UL_BV_LANES UL_IV_LANES
#elif UL_VECTOR_BYTES > 0
typedef ul_i32v ul_bv;
typedef ul_f32v ul_bv_floats;
typedef ul_f32v_loose ul_bv_loose;
UL_VECTOR(ul_bv_words, uint32_t, UL_VECTOR_BYTES / 4);
#define UL_BV_LANES UL_LANES(int32_t)
#else
typedef int32_t ul_bv;
typedef float ul_bv_floats;
typedef float ul_bv_loose;
typedef uint32_t ul_bv_words;
#define UL_BV_LANES 1
#endif

/* ---- products ---- */

UL_INLINE ul_bv ul_bv_load(const uint32_t *from)
{
    ul_bv words;
    memcpy(&words, from, sizeof words);
    return words;
}

UL_INLINE ul_bv ul_bv_all(int32_t number)
{
#if UL_INT_VECTORS
    return ul_iv_all(number);
#elif UL_VECTOR_BYTES > 0
    return (ul_bv){0} + number;
#else
    return number;
#endif
}

/* A part of words: codes as unsigned bytes. */
UL_INLINE ul_bv ul_bv_part(ul_bv words, int part, int bits)
{
    return (ul_bv)((ul_bv_words)words >> part * bits & 0x01010101u * ((1u << bits) - 1));
}

/* sum + four signed bytes times the codes of each lane. Codes of less than 8 bits are signed bytes
 * as well; and pairs of products with them are below 2 * 15 * 127, so that nothing saturates where
 * bytes are multiplied to 16 bits. */
UL_INLINE ul_bv ul_bv_add(ul_bv sum, int32_t four, ul_bv codes, int bits)
{
#if UL_INT_VECTORS
    const ul_bv bytes = ul_iv_all(four);
#if !UL_INT_BYTES && defined(__SSSE3__)
    if (bits < 8)
        return ul_iv_add(
            sum, UL_IV(madd_epi16)(UL_IV(maddubs_epi16)(codes, bytes), UL_IV(set1_epi16)(1)));
#endif
    if (!UL_INT_IS_SHIFTED(UL_INT_i8, UL_INT_u8))
        return ul_iv_step(UL_INT_i8, UL_INT_u8, sum, bytes,
                          ul_iv_take(UL_INT_i8, UL_INT_u8, codes));
    if (bits < 8)
        return ul_iv_step(UL_INT_i8, UL_INT_i8, sum, bytes,
                          ul_iv_take(UL_INT_i8, UL_INT_i8, codes));
    const struct ul_iv_groups a = ul_iv_split(UL_INT_i8, bytes), b = ul_iv_split(UL_INT_u8, codes);
    return ul_iv_pairs(ul_iv_pairs(sum, a.even, b.even), a.odd, b.odd);
#else
    (void)bits;
    UL_UNROLL
    for (int j = 0; j < 4; j++)
        sum += (int8_t)(four >> 8 * j) * (ul_bv)((ul_bv_words)codes >> 8 * j & 255u);
    return sum;
#endif
}

UL_INLINE ul_bv_floats ul_bv_to_floats(ul_bv sums)
{
#if UL_INT_VECTORS
    return __builtin_convertvector((ul_bv_ints)sums, ul_bv_floats);
#elif UL_VECTOR_BYTES > 0
    return __builtin_convertvector(sums, ul_bv_floats);
#else
    return (float)sums;
#endif
}

/* ---- rows ---- */

/* As onnxruntime has it (MLAS, QuantizeARow_CompInt8): the largest size of a block becomes 127,
 * ties go to even. A block with something that is no finite number gets a scale that is none. */
static inline struct ul_bytes_block ul_bytes_take(unsigned char *to, const float *from,
                                                  int64_t count, int32_t zero)
{
    uint32_t largest = 0; /* of sizes' bits, which rise as sizes do; NaN's are above all */
    int32_t sum = 0;
    float most;
    for (int64_t k = 0; k < count; k++) {
        const uint32_t bits = ul_f32_bits(from[k]) & 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    memcpy(&most, &largest, sizeof most);
    const float factor = most > 0 ? 127.0f / most : 0;
    for (int64_t k = 0; k < count; k++) {
        const int32_t byte = ul_quantize_f32(from[k] * factor, -127, 127);
        to[k] = (unsigned char)byte;
        sum += byte;
    }
    return (struct ul_bytes_block){.scale = most / 127.0f, .sum = (float)sum, .first = -zero * sum};
}

/* Puts bytes side by side that meet one part of a word; whole words of them. */
UL_INLINE void ul_bytes_turn(unsigned char *row, int64_t count, int bits)
{
    const int parts = 8 / bits;
    unsigned char order[16], from[16];
    for (int i = 0; i < 16; i++)
        order[i] = (unsigned char)(i / (4 * parts) * 4 * parts + i % 4 * parts + i / 4 % parts);
    int64_t k = 0;
#if defined(__SSSE3__) && UL_INT_VECTORS
    const __m128i places = _mm_loadu_si128((const __m128i *)(const void *)order);
    for (; k + 16 <= count; k += 16) {
        __m128i *at = (__m128i *)(void *)(row + k);
        _mm_storeu_si128(at, _mm_shuffle_epi8(_mm_loadu_si128(at), places));
    }
#endif
    for (; k < count; k += 16) {
        const int64_t run = count - k < 16 ? count - k : 16;
        memcpy(from, row + k, (size_t)run);
        for (int64_t i = 0; i < run; i++)
            row[k + i] = from[order[i]];
    }
}

#endif
