/* SPDX-License-Identifier: 0BSD */
/*
 * Contractions of narrow integers: sums of 32 bits of products of 8-bit integers, or of 16-bit
 * ones.
 *
 * A panel holds b packed as [k / group][block columns][group], four bytes for each column and
 * group: four of k where both operands have 8 bits, two where they have 16. A row of a holds its k
 * side by side, filled up with zeros to whole groups. So one 32-bit lane of a vector takes in one
 * group of one column, which is what machines have instructions for (ul_int_vector.h);
 * what is printed and planned does not depend on which of them there is.
 *
 * Tags are the types of a and b: i8u8 is signed a by unsigned b. All sums wrap at 32 bits and are
 * exact below that; nothing here saturates between (pmaddubsw does, and is not used). Where the
 * machine has no instruction for bytes of these signs, 128 is added to b, or taken off, and
 * 128 * (sum of a) taken off again, or added. Sums are the same on every machine.
 * Nothing fails. Pure C99 where there are no vectors.
 */
#ifndef UL_CONTRACT_INT_H
#define UL_CONTRACT_INT_H

#include "ul_contract.h"
#include "ul_int_vector.h"
#include "ul_integer.h"

#include <stdint.h>
#include <string.h>

/* Weaves lines into a group of a panel: one for each of its k. */
#define UL_LINE_BYTES 128 /* for a block's columns, and what whole vectors write after them */

/* Four bytes of a row of a; the last group of a row that is read in place may have fewer. */
UL_INLINE int32_t ul_int_group(const unsigned char *a)
{
    int32_t group;
    memcpy(&group, a, sizeof group);
    return group;
}

UL_INLINE int32_t ul_int_rest(const unsigned char *a, int64_t count)
{
    int32_t group = 0;
    memcpy(&group, a, (size_t)count);
    return group;
}

UL_INLINE int32_t ul_int_element(int kind, const unsigned char *from, int64_t i)
{
    if (kind == UL_INT_u8)
        return from[i];
    if (kind == UL_INT_i8)
        return (int8_t)from[i];
    int16_t wide;
    memcpy(&wide, from + 2 * i, sizeof wide);
    return wide;
}

#if UL_INT_VECTORS
UL_INLINE struct ul_iv_groups ul_iv_take(int a_kind, int b_kind, ul_iv b)
{
    if (UL_INT_IS_SHIFTED(a_kind, b_kind))
        b = ul_iv_flip(b);
    if (a_kind == UL_INT_i16 || UL_INT_BY_BYTES(a_kind, b_kind))
        return (struct ul_iv_groups){b, b};
    return ul_iv_split(b_kind, b);
}

/* acc + a group of a by the groups of b; a is in all lanes. */
UL_INLINE ul_iv ul_iv_step(int a_kind, int b_kind, ul_iv acc, ul_iv a, struct ul_iv_groups b)
{
    if (a_kind == UL_INT_i16)
        return ul_iv_pairs(acc, a, b.even);
    if (UL_INT_BY_BYTES(a_kind, b_kind))
        return ul_iv_dot(a_kind, b_kind, acc, a, b.even);
    struct ul_iv_groups of_a = ul_iv_split(a_kind, a);
    return ul_iv_pairs(ul_iv_pairs(acc, of_a.even, b.even), of_a.odd, b.odd);
}

/* The start of a sum whose b was shifted. */
UL_INLINE int32_t ul_int_shift(int a_kind, int b_kind, int32_t group)
{
    if (!UL_INT_IS_SHIFTED(a_kind, b_kind))
        return 0;
    return UL_INT_SHIFT *
           ((int8_t)group + (int8_t)(group >> 8) + (int8_t)(group >> 16) + (group >> 24));
}

UL_INLINE int32_t ul_int_shift_row(int a_kind, int b_kind, const unsigned char *a, int64_t bytes)
{
    int32_t sum = 0;
    if (!UL_INT_IS_SHIFTED(a_kind, b_kind))
        return 0;
    for (int64_t i = 0; i < bytes; i++)
        sum += (int8_t)a[i];
    return UL_INT_SHIFT * sum;
}

/* Accumulators of a tile: as many as stay in registers, beside two of a and two for each vector of
   b where bytes are taken apart. */
#if UL_IV_REGISTERS == 32
#define UL_INT_TILE_ROWS(a, b) ((a) == UL_INT_i16 || UL_INT_BY_BYTES(a, b) ? 8 : 4)
#define UL_INT_TILE_VECTORS(a, b) 3
#else
#define UL_INT_TILE_ROWS(a, b) 4
#define UL_INT_TILE_VECTORS(a, b) ((a) == UL_INT_i16 || UL_INT_BY_BYTES(a, b) ? 3 : 2)
#endif

UL_INLINE void ul_int_tile(int a_kind, int b_kind, uint32_t *sums, const unsigned char *a,
                           int64_t a_row, const unsigned char *panel, int64_t groups, int more,
                           int rows, int vectors)
{
    ul_iv acc[8][3];
    UL_UNROLL
    for (int r = 0; r < rows; r++) {
        const ul_iv first = ul_iv_all(ul_int_shift_row(a_kind, b_kind, a + r * a_row, 4 * groups));
        UL_UNROLL
        for (int v = 0; v < vectors; v++) {
            acc[r][v] = first;
            if (more)
                acc[r][v] =
                    ul_iv_add(first, ul_iv_load(sums + r * (UL_BLOCK_BYTES / 4) + v * UL_IV_LANES));
        }
    }
    for (int64_t i = 0; i < groups; i++, panel += UL_BLOCK_BYTES, a += 4) {
        struct ul_iv_groups b[3];
        UL_UNROLL
        for (int v = 0; v < vectors; v++)
            b[v] = ul_iv_take(a_kind, b_kind, ul_iv_load(panel + v * UL_IV_BYTES));
        UL_UNROLL
        for (int r = 0; r < rows; r++) {
            const ul_iv of_a = ul_iv_all(ul_int_group(a + r * a_row));
            UL_UNROLL
            for (int v = 0; v < vectors; v++)
                acc[r][v] = ul_iv_step(a_kind, b_kind, acc[r][v], of_a, b[v]);
        }
    }
    UL_UNROLL
    for (int r = 0; r < rows; r++) {
        UL_UNROLL
        for (int v = 0; v < vectors; v++)
            ul_iv_store(sums + r * (UL_BLOCK_BYTES / 4) + v * UL_IV_LANES, acc[r][v]);
    }
}

#define UL_INT_TILE_CASE(tag, ak, bk, r, v)                                                        \
    case (r)*4 + (v):                                                                              \
        if ((r) <= UL_INT_TILE_ROWS(ak, bk) && (v) <= UL_INT_TILE_VECTORS(ak, bk))                 \
            ul_int_tile(ak, bk, sums, a, a_row, panel, groups, more,                               \
                        (r) <= UL_INT_TILE_ROWS(ak, bk) ? (r) : 1,                                 \
                        (v) <= UL_INT_TILE_VECTORS(ak, bk) ? (v) : 1);                             \
        break;

/* One block: `rows` rows of sums from `groups` groups of a, `a_row` bytes a row, and the panel. */
#define UL_INT_BLOCK(tag, ak, bk)                                                                  \
    static __attribute__((noinline, unused)) void ul_int_tile_##tag(                               \
        uint32_t *sums, const unsigned char *a, int64_t a_row, const unsigned char *panel,         \
        int64_t groups, int more, int rows, int vectors)                                           \
    {                                                                                              \
        switch (rows * 4 + vectors) {                                                              \
            UL_INT_TILE_CASE(tag, ak, bk, 8, 1)                                                    \
            UL_INT_TILE_CASE(tag, ak, bk, 8, 2)                                                    \
            UL_INT_TILE_CASE(tag, ak, bk, 8, 3)                                                    \
            UL_INT_TILE_CASE(tag, ak, bk, 4, 1)                                                    \
            UL_INT_TILE_CASE(tag, ak, bk, 4, 2)                                                    \
            UL_INT_TILE_CASE(tag, ak, bk, 4, 3)                                                    \
            UL_INT_TILE_CASE(tag, ak, bk, 2, 1)                                                    \
            UL_INT_TILE_CASE(tag, ak, bk, 2, 2)                                                    \
            UL_INT_TILE_CASE(tag, ak, bk, 2, 3)                                                    \
            UL_INT_TILE_CASE(tag, ak, bk, 1, 1)                                                    \
            UL_INT_TILE_CASE(tag, ak, bk, 1, 2)                                                    \
            UL_INT_TILE_CASE(tag, ak, bk, 1, 3)                                                    \
        default:                                                                                   \
            break;                                                                                 \
        }                                                                                          \
    }                                                                                              \
    static inline void ul_block_##tag(uint32_t *sums, const void *a, int64_t a_row,                \
                                      const unsigned char *panel, int64_t groups, int more,        \
                                      int rows, int cols)                                          \
    {                                                                                              \
        const int max_rows = UL_INT_TILE_ROWS(ak, bk), max = UL_INT_TILE_VECTORS(ak, bk);          \
        for (int r = 0, take; r < rows; r += take) {                                               \
            take = rows - r;                                                                       \
            take = take >= max_rows ? max_rows : take >= 4 ? 4 : take >= 2 ? 2 : 1;                \
            for (int c = 0; c < cols; c += max * UL_IV_LANES) {                                    \
                const int vectors = (cols - c + UL_IV_LANES - 1) / UL_IV_LANES;                    \
                ul_int_tile_##tag(sums + r * (UL_BLOCK_BYTES / 4) + c,                             \
                                  (const unsigned char *)a + r * a_row, a_row, panel + 4 * c,      \
                                  groups, more, take, vectors < max ? vectors : max);              \
            }                                                                                      \
        }                                                                                          \
    }

/* Adds the products of up to four rows of b with the groups of `rows` rows of a to sums, a vector
   of bytes at a time; gives the first column that is left. */
UL_INLINE int64_t ul_int_add_four(int a_kind, int b_kind, uint32_t *sums, int64_t row,
                                  const int32_t *groups, const unsigned char *const from[4],
                                  int64_t rows, int64_t cols)
{
    int64_t c = 0;
    for (; c + UL_IV_BYTES <= cols; c += UL_IV_BYTES) {
        ul_iv b[4];
        struct ul_iv_groups of_b[4];
        ul_iv_weave(b, ul_iv_load(from[0] + c), ul_iv_load(from[1] + c), ul_iv_load(from[2] + c),
                    ul_iv_load(from[3] + c));
        ul_iv_turn(b);
        UL_UNROLL
        for (int v = 0; v < 4; v++)
            of_b[v] = ul_iv_take(a_kind, b_kind, b[v]);
        for (int64_t r = 0; r < rows; r++) {
            const ul_iv a = ul_iv_all(groups[r]);
            const ul_iv first = ul_iv_all(ul_int_shift(a_kind, b_kind, groups[r]));
            UL_UNROLL
            for (int v = 0; v < 4; v++) {
                uint32_t *to = sums + r * row + c + v * UL_IV_LANES;
                ul_iv acc = ul_iv_add(first, ul_iv_load(to));
                ul_iv_store(to, ul_iv_step(a_kind, b_kind, acc, a, of_b[v]));
            }
        }
    }
    return c;
}

/* The sum of the lanes. */
UL_INLINE uint32_t ul_iv_total(ul_iv x)
{
    uint32_t lanes[UL_IV_LANES], sum = 0;
    memcpy(lanes, &x, sizeof lanes);
    for (int i = 0; i < UL_IV_LANES; i++)
        sum += lanes[i];
    return sum;
}

UL_INLINE uint32_t ul_int_dot(int a_kind, int b_kind, const unsigned char *a,
                              const unsigned char *b, int64_t k)
{
    const ul_iv zero = ul_iv_all(0);
    ul_iv acc[4] = {zero, zero, zero, zero}, of_a = zero;
    int64_t i = 0;
    for (; i + 4 * UL_IV_BYTES <= k; i += 4 * UL_IV_BYTES) {
        UL_UNROLL
        for (int v = 0; v < 4; v++) {
            const ul_iv x = ul_iv_load(a + i + v * UL_IV_BYTES);
            acc[v] = ul_iv_step(a_kind, b_kind, acc[v], x,
                                ul_iv_take(a_kind, b_kind, ul_iv_load(b + i + v * UL_IV_BYTES)));
            if (UL_INT_IS_SHIFTED(a_kind, b_kind))
                of_a = ul_iv_sum_bytes(of_a, x);
        }
    }
    for (; i + UL_IV_BYTES <= k; i += UL_IV_BYTES) {
        const ul_iv x = ul_iv_load(a + i);
        acc[0] =
            ul_iv_step(a_kind, b_kind, acc[0], x, ul_iv_take(a_kind, b_kind, ul_iv_load(b + i)));
        if (UL_INT_IS_SHIFTED(a_kind, b_kind))
            of_a = ul_iv_sum_bytes(of_a, x);
    }
    uint32_t sum = ul_iv_total(ul_iv_add(ul_iv_add(acc[0], acc[1]), ul_iv_add(acc[2], acc[3])));
    if (UL_INT_IS_SHIFTED(a_kind, b_kind))
        sum += (uint32_t)UL_INT_SHIFT * ul_iv_total(of_a);
    for (; i < k; i++)
        sum += (uint32_t)(ul_int_element(a_kind, a, i) * ul_int_element(b_kind, b, i));
    return sum;
}

/* sums[i] = the sum of weights[t] * from[i + taps[t]] for i below cols and up to a vector of bytes
   more. */
UL_INLINE void ul_int_taps(int a_kind, int b_kind, uint32_t *sums, const unsigned char *from,
                           const int32_t *taps, const unsigned char *weights, int64_t count,
                           int64_t cols)
{
    const ul_iv zero = ul_iv_all(0);
    const ul_iv first = ul_iv_all(ul_int_shift_row(a_kind, b_kind, weights, count));
    for (int64_t i = 0; i < cols; i += UL_IV_BYTES, from += UL_IV_BYTES) {
        ul_iv acc[4] = {first, first, first, first}, b[4];
        for (int64_t t = 0; t < count; t += 4) {
            const int64_t left = count - t;
            const ul_iv a =
                ul_iv_all(left >= 4 ? ul_int_group(weights + t) : ul_int_rest(weights + t, left));
            ul_iv_weave(b, ul_iv_load(from + taps[t]),
                        left > 1 ? ul_iv_load(from + taps[t + 1]) : zero,
                        left > 2 ? ul_iv_load(from + taps[t + 2]) : zero,
                        left > 3 ? ul_iv_load(from + taps[t + 3]) : zero);
            UL_UNROLL
            for (int v = 0; v < 4; v++)
                acc[v] = ul_iv_step(a_kind, b_kind, acc[v], a, ul_iv_take(a_kind, b_kind, b[v]));
        }
        ul_iv_turn(acc);
        UL_UNROLL
        for (int v = 0; v < 4; v++)
            ul_iv_store(sums + i + v * UL_IV_LANES, acc[v]);
    }
}

/* Weaves lines of bytes into a group of a panel. */
static inline void ul_weave_u8(unsigned char *to, const void *lines)
{
    const unsigned char *from = lines;
    for (int c = 0; c < UL_BLOCK_BYTES / 4; c += 16, from += 16, to += 64) {
        const ul_q r0 = ul_q_load(from), r1 = ul_q_load(from + UL_LINE_BYTES);
        const ul_q r2 = ul_q_load(from + 2 * UL_LINE_BYTES);
        const ul_q r3 = ul_q_load(from + 3 * UL_LINE_BYTES);
        const ul_q a = ul_q_low(8, r0, r1), b = ul_q_high(8, r0, r1);
        const ul_q d = ul_q_low(8, r2, r3), e = ul_q_high(8, r2, r3);
        ul_q_store(to, ul_q_low(16, a, d));
        ul_q_store(to + 16, ul_q_high(16, a, d));
        ul_q_store(to + 32, ul_q_low(16, b, e));
        ul_q_store(to + 48, ul_q_high(16, b, e));
    }
}

/* Every second byte, a vector of 16 at a time; see ul_pack_even_u32. */
static inline int64_t ul_pack_even_u8(uint8_t *to, const uint8_t *from, int64_t i, int64_t high)
{
    for (; i + 16 < high; i += 16)
        ul_q_store(to + i, ul_q_even(ul_q_load(from + 2 * i), ul_q_load(from + 2 * i + 16)));
    return i;
}

/* Packs groups of columns that lie along k, in squares of four by four: the first cols / 4 * 4
   columns of all whole groups; the group that is left is not written. */
static inline int64_t ul_pack_int_squares(unsigned char *to, const unsigned char *from, int64_t k,
                                          int64_t cols, int64_t stride)
{
    int64_t c = 0;
    for (; c + 4 <= cols; c += 4, from += 4 * stride) {
        for (int64_t i = 0; i + 16 <= k; i += 16) {
            const ul_q r0 = ul_q_load(from + i), r1 = ul_q_load(from + stride + i);
            const ul_q r2 = ul_q_load(from + 2 * stride + i);
            const ul_q r3 = ul_q_load(from + 3 * stride + i);
            const ul_q a = ul_q_low(32, r0, r1), b = ul_q_low(32, r2, r3);
            const ul_q d = ul_q_high(32, r0, r1), e = ul_q_high(32, r2, r3);
            unsigned char *at = to + i / 4 * UL_BLOCK_BYTES + 4 * c;
            ul_q_store(at, ul_q_low(64, a, b));
            ul_q_store(at + UL_BLOCK_BYTES, ul_q_high(64, a, b));
            ul_q_store(at + 2 * UL_BLOCK_BYTES, ul_q_low(64, d, e));
            ul_q_store(at + 3 * UL_BLOCK_BYTES, ul_q_high(64, d, e));
        }
    }
    return c;
}

#else
#define UL_INT_BLOCK(tag, ak, bk)                                                                  \
    static inline void ul_block_##tag(uint32_t *sums, const void *a, int64_t a_row,                \
                                      const unsigned char *panel, int64_t groups, int more,        \
                                      int rows, int cols)                                          \
    {                                                                                              \
        const int group = (ak) == UL_INT_i16 ? 2 : 4;                                              \
        for (int r = 0; r < rows; r++) {                                                           \
            const unsigned char *const row = (const unsigned char *)a + r * a_row;                 \
            uint32_t *const to = sums + r * (UL_BLOCK_BYTES / 4);                                  \
            for (int c = 0; c < cols; c++) {                                                       \
                const unsigned char *of_a = row, *of_b = panel + 4 * c;                            \
                uint32_t sum = more ? to[c] : 0;                                                   \
                for (int64_t i = 0; i < groups; i++, of_a += 4, of_b += UL_BLOCK_BYTES)            \
                    for (int j = 0; j < group; j++)                                                \
                        sum +=                                                                     \
                            (uint32_t)(ul_int_element(ak, of_a, j) * ul_int_element(bk, of_b, j)); \
                to[c] = sum;                                                                       \
            }                                                                                      \
        }                                                                                          \
    }

#define ul_int_add_four(a_kind, b_kind, sums, row, groups, from, rows, cols) 0

UL_INLINE uint32_t ul_int_dot(int a_kind, int b_kind, const unsigned char *a,
                              const unsigned char *b, int64_t k)
{
    uint32_t sum = 0;
    for (int64_t i = 0; i < k; i++)
        sum += (uint32_t)(ul_int_element(a_kind, a, i) * ul_int_element(b_kind, b, i));
    return sum;
}

UL_INLINE void ul_int_taps(int a_kind, int b_kind, uint32_t *UL_RESTRICT sums,
                           const unsigned char *UL_RESTRICT from, const int32_t *taps,
                           const unsigned char *weights, int64_t count, int64_t cols)
{
    for (int64_t i = 0; i < cols; i++)
        sums[i] = 0;
    for (int64_t t = 0; t < count; t++) {
        const int32_t factor = ul_int_element(a_kind, weights, t);
        for (int64_t i = 0; i < cols; i++)
            sums[i] += (uint32_t)(factor * ul_int_element(b_kind, from + taps[t], i));
    }
}

static inline void ul_weave_u8(unsigned char *to, const void *lines)
{
    const unsigned char *from = lines;
    for (int c = 0; c < UL_BLOCK_BYTES / 4; c++)
        for (int j = 0; j < 4; j++)
            to[4 * c + j] = from[j * UL_LINE_BYTES + c];
}

#define ul_pack_even_u8(to, from, i, high) (i)
#define ul_pack_int_squares(to, from, k, cols, stride) 0
#endif

static inline void ul_weave_i16(unsigned char *to, const void *lines)
{
    const unsigned char *from = lines;
    uint16_t pair[2];
    for (int c = 0; c < UL_BLOCK_BYTES / 4; c++) {
        memcpy(pair, from + 2 * c, sizeof *pair);
        memcpy(pair + 1, from + UL_LINE_BYTES + 2 * c, sizeof *pair);
        memcpy(to + 4 * c, pair, sizeof pair);
    }
}

/* Weaves the last group of a panel, whose k fills `count` of its lines; 0: there is none. */
#define UL_WEAVE_REST(tag, group)                                                                  \
    static inline void ul_weave_rest_##tag(unsigned char *to, void *lines, int64_t count)          \
    {                                                                                              \
        if (count == 0)                                                                            \
            return;                                                                                \
        memset((unsigned char *)lines + count * UL_LINE_BYTES, 0,                                  \
               (size_t)((group)-count) * UL_LINE_BYTES);                                           \
        ul_weave_##tag(to, lines);                                                                 \
    }
UL_WEAVE_REST(u8, 4)
UL_WEAVE_REST(i16, 2)

/* A panel from columns of bytes that lie along k; see ul_pack_across_u32. */
static inline void ul_pack_across_u8(unsigned char *to, const void *columns, int64_t k,
                                     int64_t cols, int64_t stride)
{
    const unsigned char *from = columns;
    const int64_t first = ul_pack_int_squares(to, from, k, cols, stride);
    const int64_t done = UL_INT_VECTORS ? k / 16 * 16 : 0; /* of the columns below `first` */
    for (int64_t i = 0; i < k; i += 4, to += UL_BLOCK_BYTES) {
        const size_t count = (size_t)ul_min(k - i, 4);
        for (int64_t c = i < done ? first : 0; c < cols; c++) {
            memset(to + 4 * c, 0, 4);
            memcpy(to + 4 * c, from + c * stride + i, count);
        }
        memset(to + 4 * cols, 0, (size_t)(UL_BLOCK_BYTES - 4 * cols));
    }
}

/* Unpacks integers of 2 and 4 bits (ul_scalar.h) to bytes; `sign` is their highest bit, or 0. Does
   so for all whole vectors of 16 bytes of them; returns how many bytes these took. */
#if UL_INT_VECTORS
typedef uint8_t ul_q_bytes __attribute__((vector_size(16)));

UL_INLINE ul_q ul_unpack_part(ul_q_bytes from, int bits, int part, uint8_t sign)
{
    return (ul_q)((((from >> bits * part) & (uint8_t)((1 << bits) - 1)) ^ sign) - sign);
}

UL_INLINE int64_t ul_unpack_vectors(int8_t *to, const uint8_t *from, int64_t count, int bits,
                                    uint8_t sign)
{
    int64_t b = 0;
    for (; b + 16 <= count; b += 16, to += 128 / bits) {
        const ul_q_bytes x = (ul_q_bytes)ul_q_load(from + b);
        const ul_q p0 = ul_unpack_part(x, bits, 0, sign), p1 = ul_unpack_part(x, bits, 1, sign);
        const ul_q low = ul_q_low(8, p0, p1), high = ul_q_high(8, p0, p1);
        if (bits == 4) {
            ul_q_store(to, low);
            ul_q_store(to + 16, high);
            continue;
        }
        const ul_q p2 = ul_unpack_part(x, bits, 2, sign), p3 = ul_unpack_part(x, bits, 3, sign);
        const ul_q other_low = ul_q_low(8, p2, p3), other_high = ul_q_high(8, p2, p3);
        ul_q_store(to, ul_q_low(16, low, other_low));
        ul_q_store(to + 16, ul_q_high(16, low, other_low));
        ul_q_store(to + 32, ul_q_low(16, high, other_high));
        ul_q_store(to + 48, ul_q_high(16, high, other_high));
    }
    return b;
}
#else
#define ul_unpack_vectors(to, from, count, bits, sign) 0
#endif

/* Unpacks those from `first` on. */
#define UL_UNPACK(name, bits, sign)                                                                \
    static inline void ul_unpack_##name(int8_t *to, const uint8_t *from, int64_t first,            \
                                        int64_t count)                                             \
    {                                                                                              \
        enum { PER = 8 / (bits) };                                                                 \
        int64_t i = 0;                                                                             \
        for (; i < count && (first + i) % PER != 0; i++)                                           \
            to[i] = (int8_t)ul_few_##name(from, first + i);                                        \
        i += PER *                                                                                 \
             ul_unpack_vectors(to + i, from + (first + i) / PER, (count - i) / PER, bits, sign);   \
        for (; i < count; i++)                                                                     \
            to[i] = (int8_t)ul_few_##name(from, first + i);                                        \
    }
UL_UNPACK(i2, 2, 2)
UL_UNPACK(u2, 2, 0)
UL_UNPACK(i4, 4, 8)
UL_UNPACK(u4, 4, 0)

/* A row of a: count elements side by side, and zeros up to whole groups. */
static inline void ul_pack_line(void *to, const void *from, int64_t count, int64_t pitch)
{
    memcpy(to, from, (size_t)count);
    memset((unsigned char *)to + count, 0, (size_t)(pitch - count));
}

/* Copies bytes as ul_pack_u32 copies words. */
UL_INLINE void ul_pack_u8(uint8_t *to, const uint8_t *from, int64_t count, int64_t room)
{
    if (room < 64 || count > 64) {
        memcpy(to, from, (size_t)count);
        return;
    }
    memcpy(to, from, 64); /* for a block's columns; what comes after it is written later */
}

/* Copies a few bytes, for which a call would cost more than the copy: pieces of a power of two, the
   last of which may begin in the one before. */
UL_INLINE void ul_copy_u8(uint8_t *UL_RESTRICT to, const uint8_t *UL_RESTRICT from, int64_t count)
{
    int64_t i = 0;
    if (count >= 16) {
        for (; i + 16 <= count; i += 16)
            memcpy(to + i, from + i, 16);
        memcpy(to + count - 16, from + count - 16, 16);
    } else if (count >= 8) {
        memcpy(to, from, 8);
        memcpy(to + count - 8, from + count - 8, 8);
    } else if (count >= 4) {
        memcpy(to, from, 4);
        memcpy(to + count - 4, from + count - 4, 4);
    } else {
        for (; i < count; i++)
            to[i] = from[i];
    }
}

/* to[i] = from[at + i * step] for i in [low, high). */
UL_INLINE void ul_pack_inside_u8(uint8_t *UL_RESTRICT to, const uint8_t *UL_RESTRICT from,
                                 int64_t at, int64_t step, int64_t low, int64_t high)
{
    int64_t i = low;
    if (step == 1 && low < high) {
        ul_copy_u8(to + low, from + at + low, high - low);
        return;
    }
    if (step == 2)
        i = ul_pack_even_u8(to, from + at, i, high);
    for (; i < high; i++)
        to[i] = from[at + i * step];
}

/* Moves rows of `cols` sums that are `pitch` apart side by side. */
static inline void ul_close_rows_u32(uint32_t *sums, int64_t rows, int64_t cols, int64_t pitch)
{
    for (int64_t r = 1; r < rows; r++) {
        const uint32_t *const from = sums + r * pitch;
        uint32_t *const to = sums + r * cols;
        int64_t i = 0;
        for (; i + 4 <= cols; i += 4) { /* read before anything after it is written */
            uint32_t four[4];
            memcpy(four, from + i, sizeof four);
            memcpy(to + i, four, sizeof four);
        }
        memmove(to + i, from + i, (size_t)(cols - i) * sizeof *to);
    }
}

/* sums[r * row + c] += the sum of a[r * a_row + i] * b[i * pitch + c] over i, rows of b four at a
   time, so that b streams; at most UL_BLOCK_ROWS rows of a. */
UL_INLINE void ul_int_add_rows(int a_kind, int b_kind, uint32_t *sums, int64_t row,
                               const unsigned char *a, int64_t a_row, const unsigned char *b,
                               int64_t pitch, int64_t k, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < k; i += 4, a += 4, b += 4 * pitch) {
        const int64_t count = ul_min(k - i, 4);
        int32_t groups[UL_BLOCK_ROWS];
        const unsigned char *from[4]; /* after the end of k, any row times zero */
        for (int64_t j = 0; j < 4; j++)
            from[j] = b + (j < count ? j : 0) * pitch;
        for (int64_t r = 0; r < rows; r++)
            groups[r] = ul_int_rest(a + r * a_row, count);
        const int64_t first = ul_int_add_four(a_kind, b_kind, sums, row, groups, from, rows, cols);
        (void)groups;
        (void)from;
        const int64_t rest = cols - first;
        for (int64_t r = 0; r < rows && rest > 0; r++) {
            uint32_t *UL_RESTRICT to = sums + r * row + first;
            for (int64_t j = 0; j < count; j++) {
                const int32_t factor = ul_int_element(a_kind, a + r * a_row, j);
                const unsigned char *UL_RESTRICT of_b = b + j * pitch + first;
                for (int64_t c = 0; c < rest; c++)
                    to[c] += (uint32_t)(factor * ul_int_element(b_kind, of_b, c));
            }
        }
    }
}

#define UL_INT_ROWS(tag, ak, bk)                                                                   \
    static inline void ul_add_rows_##tag(uint32_t *sums, int64_t row, const void *a,               \
                                         int64_t a_row, const void *b, int64_t pitch, int64_t k,   \
                                         int64_t rows, int64_t cols)                               \
    {                                                                                              \
        ul_int_add_rows(ak, bk, sums, row, (const unsigned char *)a, a_row,                        \
                        (const unsigned char *)b, pitch, k, rows, cols);                           \
    }                                                                                              \
    static inline uint32_t ul_dot_##tag(const void *a, const void *b, int64_t k)                   \
    {                                                                                              \
        return ul_int_dot(ak, bk, (const unsigned char *)a, (const unsigned char *)b, k);          \
    }                                                                                              \
    static inline void ul_dots_##tag(uint32_t *sums, const void *a, const void *b, int64_t pitch,  \
                                     int64_t k, int64_t rows)                                      \
    {                                                                                              \
        const unsigned char *row = (const unsigned char *)b;                                       \
        for (int64_t r = 0; r < rows; r++, row += pitch)                                           \
            sums[r] = ul_int_dot(ak, bk, (const unsigned char *)a, row, k);                        \
    }                                                                                              \
    static inline void ul_taps_##tag(uint32_t *sums, const void *from, const int32_t *taps,        \
                                     const void *weights, int64_t count, int64_t cols)             \
    {                                                                                              \
        ul_int_taps(ak, bk, sums, (const unsigned char *)from, taps,                               \
                    (const unsigned char *)weights, count, cols);                                  \
    }

#define UL_INT_CONTRACTIONS(tag, ak, bk)                                                           \
    UL_INT_BLOCK(tag, ak, bk)                                                                      \
    UL_INT_ROWS(tag, ak, bk)

UL_INT_CONTRACTIONS(u8u8, UL_INT_u8, UL_INT_u8)
UL_INT_CONTRACTIONS(u8i8, UL_INT_u8, UL_INT_i8)
UL_INT_CONTRACTIONS(i8u8, UL_INT_i8, UL_INT_u8)
UL_INT_CONTRACTIONS(i8i8, UL_INT_i8, UL_INT_i8)
UL_INT_BLOCK(i16, UL_INT_i16, UL_INT_i16)

#endif
