/* SPDX-License-Identifier: 0BSD */
/*
 * Vectors of narrow integers: the instructions by which machines multiply bytes and bring them side
 * by side.
 *
 * A vector is UL_IV_BYTES of groups, four bytes for each 32-bit lane. For each machine: ul_iv_all
 * (one group in all lanes), ul_iv_add, ul_iv_flip (128 more, or less, in each byte), ul_iv_split
 * (bytes as 16-bit integers), ul_iv_pairs and ul_iv_dot (sums of products, onto a sum),
 * ul_iv_sum_bytes, ul_iv_low and ul_iv_high (elements of both in turn, of each 128 bits),
 * ul_iv_turn; ul_q is 128 bits. UL_INT_VECTORS is 0 where there are none: then ul_contract_int.h
 * has loops. Machines: x86 from SSE2 to AVX-512 VNNI (vpdpbusd, vpdpwssd, pmaddwd), and ARM of 64
 * bits with sdot, udot, usdot or without. Nothing saturates.
 */
#ifndef UL_INT_VECTOR_H
#define UL_INT_VECTOR_H

#include "ul_kernel.h"

#include <stdint.h>
#include <string.h>

enum { UL_INT_u8, UL_INT_i8, UL_INT_i16 };

/* ---- x86 ---- */

#if UL_VECTOR_BYTES > 0 && defined(__SSE2__)
#define UL_INT_VECTORS 1
#include <immintrin.h>

#if defined(__AVX512BW__)
typedef __m512i ul_iv;
#define UL_IV(name) _mm512_##name
#define UL_IV_BITS(name) _mm512_##name##_si512
#define UL_IV_BYTES 64
#define UL_IV_REGISTERS 32
#elif defined(__AVX2__)
typedef __m256i ul_iv;
#define UL_IV(name) _mm256_##name
#define UL_IV_BITS(name) _mm256_##name##_si256
#define UL_IV_BYTES 32
#define UL_IV_REGISTERS 16
#else
typedef __m128i ul_iv;
#define UL_IV(name) _mm_##name
#define UL_IV_BITS(name) _mm_##name##_si128
#define UL_IV_BYTES 16
#define UL_IV_REGISTERS 16
#endif
#define ul_iv_all(x) UL_IV(set1_epi32)(x)
#define ul_iv_add(a, b) UL_IV(add_epi32)(a, b)
#define ul_iv_flip(x) UL_IV_BITS (xor)(x, UL_IV(set1_epi8)(-128))
#define ul_iv_low(bits, a, b) UL_IV(unpacklo_epi##bits)(a, b)
#define ul_iv_high(bits, a, b) UL_IV(unpackhi_epi##bits)(a, b)

/* acc + the sum of unsigned by signed bytes, and of pairs of 16-bit integers, in each lane. gcc 12
 * copies accumulators before and after the intrinsics, which is half the time of a loop, and stores
 * some. */
#if defined(__AVX512VNNI__) && UL_IV_BYTES == 64 && !defined(__clang__)
#define UL_INT_BYTES 1
UL_INLINE ul_iv ul_iv_bytes(ul_iv acc, ul_iv u, ul_iv s)
{
    __asm__("vpdpbusd {%2, %1, %0|%0, %1, %2}" : "+v"(acc) : "v"(u), "v"(s));
    return acc;
}
UL_INLINE ul_iv ul_iv_pairs(ul_iv acc, ul_iv a, ul_iv b)
{
    __asm__("vpdpwssd {%2, %1, %0|%0, %1, %2}" : "+v"(acc) : "v"(a), "v"(b));
    return acc;
}
#elif defined(__AVX512VNNI__) && UL_IV_BYTES == 64
#define UL_INT_BYTES 1
#define ul_iv_bytes(acc, u, s) _mm512_dpbusd_epi32(acc, u, s)
#define ul_iv_pairs(acc, a, b) _mm512_dpwssd_epi32(acc, a, b)
#elif defined(__AVXVNNI__) && UL_IV_BYTES == 32
#define UL_INT_BYTES 1
#define ul_iv_bytes(acc, u, s) _mm256_dpbusd_avx_epi32(acc, u, s)
#define ul_iv_pairs(acc, a, b) _mm256_dpwssd_avx_epi32(acc, a, b)
#else
#define UL_INT_BYTES 0
#define ul_iv_bytes(acc, u, s) ((void)(u), (void)(s), (acc))
#define ul_iv_pairs(acc, a, b) UL_IV(add_epi32)(acc, UL_IV(madd_epi16)(a, b))
#endif

/* Whether the machine has an instruction for bytes of these kinds, and whether that is for signed b
 * + 128. */
#define UL_INT_BY_BYTES(a, b) (UL_INT_BYTES && (a) != UL_INT_i16 && (a) + (b) != 2 * UL_INT_u8)
#define UL_INT_IS_SHIFTED(a, b) (UL_INT_BY_BYTES(a, b) && (a) == UL_INT_i8 && (b) == UL_INT_i8)
#define UL_INT_SHIFT (-128) /* times the sum of a: what that adds to the result */

UL_INLINE ul_iv ul_iv_dot(int a_kind, int b_kind, ul_iv acc, ul_iv a, ul_iv b)
{
    (void)b_kind;
    return a_kind == UL_INT_u8 ? ul_iv_bytes(acc, a, b) : ul_iv_bytes(acc, b, a);
}

UL_INLINE ul_iv ul_iv_sum_bytes(ul_iv acc, ul_iv x)
{
    return ul_iv_bytes(acc, UL_IV(set1_epi8)(1), x);
}

/* A vector of groups as the products want it: as it is, or bytes 0 and 2 of each group and bytes 1
   and 3 as 16-bit integers. */
struct ul_iv_groups {
    ul_iv even, odd;
};

UL_INLINE struct ul_iv_groups ul_iv_split(int kind, ul_iv x)
{
    struct ul_iv_groups groups;
    if (kind == UL_INT_u8) {
        groups.even = UL_IV_BITS(and)(x, UL_IV(set1_epi16)(255));
        groups.odd = UL_IV(srli_epi16)(x, 8);
    } else {
        groups.even = UL_IV(srai_epi16)(UL_IV(slli_epi16)(x, 8), 8);
        groups.odd = UL_IV(srai_epi16)(x, 8);
    }
    return groups;
}

/* Brings sums in that order into the order of columns: four squares of 128 bits, transposed. */
UL_INLINE void ul_iv_turn(ul_iv sums[4])
{
#if UL_IV_BYTES == 64
    const ul_iv a = _mm512_shuffle_i32x4(sums[0], sums[1], 0x44);
    const ul_iv b = _mm512_shuffle_i32x4(sums[2], sums[3], 0x44);
    const ul_iv c = _mm512_shuffle_i32x4(sums[0], sums[1], 0xee);
    const ul_iv d = _mm512_shuffle_i32x4(sums[2], sums[3], 0xee);
    sums[0] = _mm512_shuffle_i32x4(a, b, 0x88);
    sums[1] = _mm512_shuffle_i32x4(a, b, 0xdd);
    sums[2] = _mm512_shuffle_i32x4(c, d, 0x88);
    sums[3] = _mm512_shuffle_i32x4(c, d, 0xdd);
#elif UL_IV_BYTES == 32
    const ul_iv a = _mm256_permute2x128_si256(sums[0], sums[1], 0x20);
    const ul_iv b = _mm256_permute2x128_si256(sums[2], sums[3], 0x20);
    const ul_iv c = _mm256_permute2x128_si256(sums[0], sums[1], 0x31);
    const ul_iv d = _mm256_permute2x128_si256(sums[2], sums[3], 0x31);
    sums[0] = a;
    sums[1] = b;
    sums[2] = c;
    sums[3] = d;
#else
    (void)sums;
#endif
}

typedef __m128i ul_q;
#define ul_q_low(bits, a, b) _mm_unpacklo_epi##bits(a, b)
#define ul_q_high(bits, a, b) _mm_unpackhi_epi##bits(a, b)

/* Every second byte of both, from the first on. */
UL_INLINE ul_q ul_q_even(ul_q a, ul_q b)
{
    const ul_q low = _mm_set1_epi16(255);
    return _mm_packus_epi16(_mm_and_si128(a, low), _mm_and_si128(b, low));
}

/* ---- ARM of 64 bits ---- */

#elif UL_VECTOR_BYTES > 0 && defined(__aarch64__) && !defined(__AARCH64EB__)
#define UL_INT_VECTORS 1
#include <arm_neon.h>

typedef int32x4_t ul_iv, ul_q;
#define UL_IV_BYTES 16
#define UL_IV_REGISTERS 32
#define ul_iv_all(x) vdupq_n_s32(x)
#define ul_iv_add(a, b) vaddq_s32(a, b)
#define UL_IV_AS(type, x) vreinterpretq_##type##_s32(x)
#define UL_IV_OF(type, x) vreinterpretq_s32_##type(x)
#define ul_iv_flip(x) UL_IV_OF(u8, veorq_u8(UL_IV_AS(u8, x), vdupq_n_u8(128)))
#define ul_iv_low(bits, a, b)                                                                      \
    UL_IV_OF(u##bits, vzip1q_u##bits(UL_IV_AS(u##bits, a), UL_IV_AS(u##bits, b)))
#define ul_iv_high(bits, a, b)                                                                     \
    UL_IV_OF(u##bits, vzip2q_u##bits(UL_IV_AS(u##bits, a), UL_IV_AS(u##bits, b)))

#if defined(__ARM_FEATURE_DOTPROD)
#define UL_INT_BYTES 1
#else
#define UL_INT_BYTES 0
#endif
#if UL_INT_BYTES && defined(__ARM_FEATURE_MATMUL_INT8)
#define UL_INT_MIXES 1
#else
#define UL_INT_MIXES 0
#endif

/* Bytes of both signs without an instruction for them: unsigned b less 128 becomes signed. */
#define UL_INT_BY_BYTES(a, b)                                                                      \
    (UL_INT_BYTES && (a) != UL_INT_i16 && (UL_INT_MIXES || (a) == UL_INT_i8 || (b) == UL_INT_u8))
#define UL_INT_IS_SHIFTED(a, b)                                                                    \
    (UL_INT_BYTES && !UL_INT_MIXES && (a) == UL_INT_i8 && (b) == UL_INT_u8)
#define UL_INT_SHIFT 128

UL_INLINE ul_iv ul_iv_pairs(ul_iv acc, ul_iv a, ul_iv b)
{
    const int16x8_t x = UL_IV_AS(s16, a), y = UL_IV_AS(s16, b);
    const int32x4_t low = vmull_s16(vget_low_s16(x), vget_low_s16(y));
    return vaddq_s32(acc, vpaddq_s32(low, vmull_high_s16(x, y)));
}

UL_INLINE ul_iv ul_iv_dot(int a_kind, int b_kind, ul_iv acc, ul_iv a, ul_iv b)
{
#if UL_INT_MIXES
    if (a_kind == UL_INT_u8 && b_kind == UL_INT_i8)
        return vusdotq_s32(acc, UL_IV_AS(u8, a), UL_IV_AS(s8, b));
    if (a_kind == UL_INT_i8 && b_kind == UL_INT_u8)
        return vusdotq_s32(acc, UL_IV_AS(u8, b), UL_IV_AS(s8, a));
#endif
#if UL_INT_BYTES
    if (a_kind == UL_INT_u8)
        return UL_IV_OF(u32, vdotq_u32(UL_IV_AS(u32, acc), UL_IV_AS(u8, a), UL_IV_AS(u8, b)));
    acc = vdotq_s32(acc, UL_IV_AS(s8, a), UL_IV_AS(s8, b));
#endif
    (void)a_kind;
    (void)b_kind;
    (void)a;
    (void)b;
    return acc;
}

UL_INLINE ul_iv ul_iv_sum_bytes(ul_iv acc, ul_iv x)
{
    return ul_iv_dot(UL_INT_i8, UL_INT_i8, acc, x, UL_IV_OF(s8, vdupq_n_s8(1)));
}

struct ul_iv_groups {
    ul_iv even, odd;
};

UL_INLINE struct ul_iv_groups ul_iv_split(int kind, ul_iv x)
{
    struct ul_iv_groups groups;
    if (kind == UL_INT_u8) {
        groups.even = UL_IV_OF(u16, vandq_u16(UL_IV_AS(u16, x), vdupq_n_u16(255)));
        groups.odd = UL_IV_OF(u16, vshrq_n_u16(UL_IV_AS(u16, x), 8));
    } else {
        groups.even = UL_IV_OF(s16, vshrq_n_s16(vshlq_n_s16(UL_IV_AS(s16, x), 8), 8));
        groups.odd = UL_IV_OF(s16, vshrq_n_s16(UL_IV_AS(s16, x), 8));
    }
    return groups;
}

UL_INLINE void ul_iv_turn(ul_iv sums[4])
{
    (void)sums;
}

#define ul_q_low(bits, a, b) ul_iv_low(bits, a, b)
#define ul_q_high(bits, a, b) ul_iv_high(bits, a, b)
#define ul_q_even(a, b) UL_IV_OF(u8, vuzp1q_u8(UL_IV_AS(u8, a), UL_IV_AS(u8, b)))

#else
#define UL_INT_VECTORS 0
#endif

/* ---- all ---- */

#if UL_INT_VECTORS
#define UL_IV_LANES (UL_IV_BYTES / 4)

UL_INLINE ul_iv ul_iv_load(const void *from)
{
    ul_iv x;
    memcpy(&x, from, sizeof x);
    return x;
}

UL_INLINE void ul_iv_store(void *to, ul_iv x)
{
    memcpy(to, &x, sizeof x);
}

UL_INLINE ul_q ul_q_load(const void *from)
{
    ul_q x;
    memcpy(&x, from, sizeof x);
    return x;
}

UL_INLINE void ul_q_store(void *to, ul_q x)
{
    memcpy(to, &x, sizeof x);
}

/* Four lines of bytes as groups, in the order that taking elements in turn gives: vector v has
   lanes 4 * v + [0, 4) of each 16 columns; ul_iv_turn brings sums of these into the order of
   columns. */
UL_INLINE void ul_iv_weave(ul_iv groups[4], ul_iv r0, ul_iv r1, ul_iv r2, ul_iv r3)
{
    const ul_iv a = ul_iv_low(8, r0, r1), b = ul_iv_high(8, r0, r1);
    const ul_iv c = ul_iv_low(8, r2, r3), d = ul_iv_high(8, r2, r3);
    groups[0] = ul_iv_low(16, a, c);
    groups[1] = ul_iv_high(16, a, c);
    groups[2] = ul_iv_low(16, b, d);
    groups[3] = ul_iv_high(16, b, d);
}
#endif

#endif
