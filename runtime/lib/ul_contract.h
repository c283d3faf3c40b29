/* SPDX-License-Identifier: 0BSD */
/*
 * Register tiles of printed contractions (sums over k of a[m, k] * b[k, n]).
 *
 * A block is UL_BLOCK_ROWS rows of m by UL_BLOCK_COLS(type) columns of n; these numbers do not
 * depend on the machine, so planned scratch does not either. `panel` holds b packed as
 * [k][block columns], `a` is read in place through its strides, `sums` receives the block as
 * [row][block columns]. How a block is cut into vectors and accumulators is chosen here from what
 * the C compiler targets. Each sum is formed in order of k with one accumulator, so it does not
 * depend on the cut, on addresses or on what is packed; ul_dot_<tag> adds a fixed number of
 * partial sums in a fixed tree.
 * Nothing fails. Pure C99 where there are no GNU vectors.
 */
#ifndef UL_CONTRACT_RUNTIME_H
#define UL_CONTRACT_RUNTIME_H

#include "ul_kernel.h"

#include <stdint.h>
#if defined(__aarch64__) && UL_VECTOR_BYTES > 0
#include <arm_neon.h>
#endif

/* The smaller one; and where in [0, run) 0 <= start + stride * i < extent holds: cuts [low,
 * high). */
static inline int64_t ul_run(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline void ul_clip_run(int64_t *low, int64_t *high, int64_t start, int64_t stride,
                               int64_t extent)
{
    if (stride < 0) { /* the same run of coordinates, counted from the far end */
        start = extent - 1 - start;
        stride = -stride;
    }
    int64_t first = start < 0 ? (stride - 1 - start) / stride : 0;
    int64_t end = start < extent ? (extent - start + stride - 1) / stride : 0;
    *low = *low > first ? *low : first;
    *high = *high < end ? *high : end;
}

/* a * b + c as contractions add it: floats are rounded as ul_fma_f32 says, in vectors too; _half is
   for vectors half as wide. */
#define ul_sum_f32(a, b, c) ul_fma_f32(a, b, c)
#define ul_sum_f64(a, b, c) ul_fma_f64(a, b, c)
#define ul_sum_u32(a, b, c) ((a) * (b) + (c))
#define ul_sum_u64(a, b, c) ((a) * (b) + (c))
#define ul_sum_u32_wide ul_sum_u32
#define ul_sum_u64_wide ul_sum_u64
#define ul_sum_u32_half ul_sum_u32
#define ul_sum_u64_half ul_sum_u64
#if defined(__clang__) && defined(__has_builtin)
#if !__has_builtin(__builtin_ia32_vfmaddps256)
#define UL_SUM_BY_LANES
#endif
#endif
#if UL_HAS_FMA == 0
#define ul_sum_f32_wide(a, b, c) ((a) * (b) + (c))
#define ul_sum_f64_wide(a, b, c) ((a) * (b) + (c))
#define ul_sum_f32_half(a, b, c) ((a) * (b) + (c))
#define ul_sum_f64_half(a, b, c) ((a) * (b) + (c))
#elif defined(__FMA__) && UL_VECTOR_BYTES == 64 && !defined(UL_SUM_BY_LANES)
/* By masks of all lanes; their types are the compiler's. */
#if defined(__clang__)
#define UL_SIXTEEN ((unsigned short)0xffff)
#else
#define UL_SIXTEEN ((short)-1)
#endif
#define ul_sum_f32_wide(a, b, c) __builtin_ia32_vfmaddps512_mask(a, b, c, UL_SIXTEEN, 4)
#define ul_sum_f64_wide(a, b, c) __builtin_ia32_vfmaddpd512_mask(a, b, c, (unsigned char)0xff, 4)
#define ul_sum_f32_half(a, b, c) __builtin_ia32_vfmaddps256(a, b, c)
#define ul_sum_f64_half(a, b, c) __builtin_ia32_vfmaddpd256(a, b, c)
#elif defined(__FMA__) && UL_VECTOR_BYTES == 32 && !defined(UL_SUM_BY_LANES)
#define ul_sum_f32_wide(a, b, c) __builtin_ia32_vfmaddps256(a, b, c)
#define ul_sum_f64_wide(a, b, c) __builtin_ia32_vfmaddpd256(a, b, c)
#define ul_sum_f32_half(a, b, c) __builtin_ia32_vfmaddps(a, b, c)
#define ul_sum_f64_half(a, b, c) __builtin_ia32_vfmaddpd(a, b, c)
#elif defined(__aarch64__) && UL_VECTOR_BYTES == 16
#define ul_sum_f32_wide(a, b, c)                                                                   \
    ((ul_f32v)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#define ul_sum_f64_wide(a, b, c)                                                                   \
    ((ul_f64v)vfmaq_f64((float64x2_t)(c), (float64x2_t)(a), (float64x2_t)(b)))
#elif UL_VECTOR_BYTES > 0
#define UL_SUM_LANES(tag, type, form, count)                                                       \
    UL_VECTOR(ul_sum_##tag##_##form##_v, type, count);                                             \
    UL_INLINE ul_sum_##tag##_##form##_v ul_sum_##tag##_##form(                                     \
        ul_sum_##tag##_##form##_v a, ul_sum_##tag##_##form##_v b, ul_sum_##tag##_##form##_v c)     \
    {                                                                                              \
        UL_UNROLL                                                                                  \
        for (int l = 0; l < (count); l++)                                                          \
            c[l] = ul_fma_##tag(a[l], b[l], c[l]);                                                 \
        return c;                                                                                  \
    }
UL_SUM_LANES(f32, float, wide, UL_LANES(float))
UL_SUM_LANES(f64, double, wide, UL_LANES(double))
#if UL_VECTOR_BYTES > 16
UL_SUM_LANES(f32, float, half, UL_LANES(float) / 2)
UL_SUM_LANES(f64, double, half, UL_LANES(double) / 2)
#endif
#endif

#define UL_BLOCK_ROWS 8
#define UL_BLOCK_BYTES 192 /* of one row of a block: three vectors of the widest machine */
#define UL_BLOCK_COLS(type) ((int)(UL_BLOCK_BYTES / sizeof(type)))

#if UL_VECTOR_BYTES > 0

/* Accumulators are TILE_ROWS x 3 vectors: 24 where there are 32 registers, else 12. */
#if defined(__AVX512F__) || defined(__aarch64__)
#define UL_TILE_ROWS 8
#else
#define UL_TILE_ROWS 4
#endif
#define UL_TILE_VECTORS 3

/* One function for each size of tile, whatever the number of kernels in the program. */
#define UL_TILE_OUTLINE static __attribute__((noinline, unused))

/* The same for columns that fill at most half a vector: half the work where a machine computes wide
   vectors in two steps. */
#if UL_VECTOR_BYTES > 16
#define UL_IS_NARROW(type, cols) (2 * (cols) <= UL_LANES(type))
#define UL_TILE_NARROW(tag, type)                                                                  \
    UL_INLINE void ul_tile_##tag##_narrow(type *sums, const type *a, int64_t a_row, int64_t a_k,   \
                                          const type *panel, int64_t pitch, int64_t k, int more,   \
                                          int rows)                                                \
    {                                                                                              \
        UL_VECTOR(half, type, UL_LANES(type) / 2);                                                 \
        UL_VECTOR_LOOSE(half_loose, type, UL_LANES(type) / 2);                                     \
        half acc[UL_TILE_ROWS];                                                                    \
        UL_UNROLL                                                                                  \
        for (int r = 0; r < rows; r++)                                                             \
            if (more)                                                                              \
                acc[r] = *(const half_loose *)(sums + r * UL_BLOCK_COLS(type));                    \
            else                                                                                   \
                acc[r] = (half){0};                                                                \
        for (int64_t i = 0; i < k; i++, panel += pitch, a += a_k) {                                \
            const half b = *(const half_loose *)panel;                                             \
            UL_UNROLL                                                                              \
            for (int r = 0; r < rows; r++)                                                         \
                acc[r] = ul_sum_##tag##_half(b, a[r * a_row] - (half){0}, acc[r]);                 \
        }                                                                                          \
        UL_UNROLL                                                                                  \
        for (int r = 0; r < rows; r++)                                                             \
            *(half_loose *)(sums + r * UL_BLOCK_COLS(type)) = acc[r];                              \
    }
#define UL_TILE_NARROW_CASE(tag, r)                                                                \
    case (r)*4:                                                                                    \
        if ((r) <= UL_TILE_ROWS)                                                                   \
            ul_tile_##tag##_narrow(sums, a, a_row, a_k, panel, pitch, k, more,                     \
                                   (r) <= UL_TILE_ROWS ? (r) : 1);                                 \
        break;
#else
#define UL_IS_NARROW(type, cols) 0
#define UL_TILE_NARROW(tag, type)
#define UL_TILE_NARROW_CASE(tag, r)
#endif

/* rows x vectors accumulators over all of k. All counts are constants at each call, so that the
   loops unroll and the accumulators stay in registers. */
#define UL_TILE(tag, type, vec, loose)                                                             \
    UL_INLINE void ul_tile_##tag(type *sums, const type *a, int64_t a_row, int64_t a_k,            \
                                 const type *panel, int64_t pitch, int64_t k, int more, int rows,  \
                                 int vectors)                                                      \
    {                                                                                              \
        vec acc[UL_TILE_ROWS][UL_TILE_VECTORS];                                                    \
        UL_UNROLL                                                                                  \
        for (int r = 0; r < rows; r++) {                                                           \
            UL_UNROLL                                                                              \
            for (int v = 0; v < vectors; v++)                                                      \
                if (more)                                                                          \
                    acc[r][v] =                                                                    \
                        *(const loose *)(sums + r * UL_BLOCK_COLS(type) + v * UL_LANES(type));     \
                else                                                                               \
                    acc[r][v] = (vec){0};                                                          \
        }                                                                                          \
        for (int64_t i = 0; i < k; i++, panel += pitch, a += a_k) {                                \
            vec b[UL_TILE_VECTORS];                                                                \
            UL_UNROLL                                                                              \
            for (int v = 0; v < vectors; v++)                                                      \
                b[v] = *(const loose *)(panel + v * UL_LANES(type));                               \
            UL_UNROLL                                                                              \
            for (int r = 0; r < rows; r++) {                                                       \
                const vec factor = a[r * a_row] - (vec){0};                                        \
                UL_UNROLL                                                                          \
                for (int v = 0; v < vectors; v++)                                                  \
                    acc[r][v] = ul_sum_##tag##_wide(b[v], factor, acc[r][v]);                      \
            }                                                                                      \
        }                                                                                          \
        UL_UNROLL                                                                                  \
        for (int r = 0; r < rows; r++) {                                                           \
            UL_UNROLL                                                                              \
            for (int v = 0; v < vectors; v++)                                                      \
                *(loose *)(sums + r * UL_BLOCK_COLS(type) + v * UL_LANES(type)) = acc[r][v];       \
        }                                                                                          \
    }                                                                                              \
    UL_TILE_NARROW(tag, type)                                                                      \
    UL_TILE_OUTLINE void ul_tile_##tag##_full(type *sums, const type *a, int64_t a_row,            \
                                              int64_t a_k, const type *panel, int64_t pitch,       \
                                              int64_t k, int more)                                 \
    {                                                                                              \
        ul_tile_##tag(sums, a, a_row, a_k, panel, pitch, k, more, UL_TILE_ROWS, UL_TILE_VECTORS);  \
    }                                                                                              \
    UL_TILE_OUTLINE void ul_tile_##tag##_edge(type *sums, const type *a, int64_t a_row,            \
                                              int64_t a_k, const type *panel, int64_t pitch,       \
                                              int64_t k, int more, int rows, int vectors)          \
    {                                                                                              \
        switch (rows * 4 + vectors) {                                                              \
            UL_TILE_NARROW_CASE(tag, 8)                                                            \
            UL_TILE_NARROW_CASE(tag, 4)                                                            \
            UL_TILE_NARROW_CASE(tag, 2)                                                            \
            UL_TILE_NARROW_CASE(tag, 1)                                                            \
            UL_TILE_CASE(tag, 8, 1)                                                                \
            UL_TILE_CASE(tag, 8, 2)                                                                \
            UL_TILE_CASE(tag, 4, 1)                                                                \
            UL_TILE_CASE(tag, 4, 2)                                                                \
            UL_TILE_CASE(tag, 4, 3)                                                                \
            UL_TILE_CASE(tag, 2, 1)                                                                \
            UL_TILE_CASE(tag, 2, 2)                                                                \
            UL_TILE_CASE(tag, 2, 3)                                                                \
            UL_TILE_CASE(tag, 1, 1)                                                                \
            UL_TILE_CASE(tag, 1, 2)                                                                \
            UL_TILE_CASE(tag, 1, 3)                                                                \
        default:                                                                                   \
            break;                                                                                 \
        }                                                                                          \
    }

#define UL_TILE_CASE(tag, r, v)                                                                    \
    case (r)*4 + (v):                                                                              \
        if ((r) <= UL_TILE_ROWS)                                                                   \
            ul_tile_##tag(sums, a, a_row, a_k, panel, pitch, k, more,                              \
                          (r) <= UL_TILE_ROWS ? (r) : 1, v);                                       \
        break;

/* One block: rows in [1, UL_BLOCK_ROWS], cols in [1, UL_BLOCK_COLS]. Columns are rounded up to
   whole vectors, so the panel must be defined that far. `more` adds to what is in `sums`. */
#define UL_BLOCK(tag, type)                                                                        \
    static inline void ul_block_##tag(type *sums, const type *a, int64_t a_row, int64_t a_k,       \
                                      const type *panel, int64_t pitch, int64_t k, int more,       \
                                      int rows, int cols)                                          \
    {                                                                                              \
        for (int r = 0; r < rows;) {                                                               \
            int take = rows - r;                                                                   \
            take = take >= UL_TILE_ROWS ? UL_TILE_ROWS : take >= 4 ? 4 : take >= 2 ? 2 : 1;        \
            for (int c = 0; c < cols; c += UL_TILE_VECTORS * UL_LANES(type)) {                     \
                int vectors = (cols - c + UL_LANES(type) - 1) / UL_LANES(type);                    \
                vectors = UL_IS_NARROW(type, cols - c) ? 0 : vectors;                              \
                type *to = sums + r * UL_BLOCK_COLS(type) + c;                                     \
                const type *from = a + r * a_row;                                                  \
                if (take == UL_TILE_ROWS && vectors >= UL_TILE_VECTORS)                            \
                    ul_tile_##tag##_full(to, from, a_row, a_k, panel + c, pitch, k, more);         \
                else                                                                               \
                    ul_tile_##tag##_edge(to, from, a_row, a_k, panel + c, pitch, k, more, take,    \
                                         vectors < UL_TILE_VECTORS ? vectors : UL_TILE_VECTORS);   \
            }                                                                                      \
            r += take;                                                                             \
        }                                                                                          \
    }

#else

#define UL_TILE(tag, type, vec, loose)

#define UL_BLOCK(tag, type)                                                                        \
    static inline void ul_block_##tag(type *sums, const type *a, int64_t a_row, int64_t a_k,       \
                                      const type *panel, int64_t pitch, int64_t k, int more,       \
                                      int rows, int cols)                                          \
    {                                                                                              \
        for (int r = 0; r < rows; r++) {                                                           \
            type *UL_RESTRICT to = sums + r * UL_BLOCK_COLS(type);                                 \
            for (int c = 0; !more && c < cols; c++)                                                \
                to[c] = 0;                                                                         \
            for (int64_t i = 0; i < k; i++) {                                                      \
                const type factor = a[r * a_row + i * a_k];                                        \
                const type *UL_RESTRICT from = panel + i * pitch;                                  \
                for (int c = 0; c < cols; c++)                                                     \
                    to[c] = ul_sum_##tag(factor, from[c], to[c]);                                  \
            }                                                                                      \
        }                                                                                          \
    }

#endif

/* Copies count elements. Where the source's buffer has `room` elements from there on, it copies
   whole vectors, so up to a vector more may be written: what comes after it is written later. */
#if UL_VECTOR_BYTES > 0
#define UL_PACK(tag, type, vec, loose)                                                             \
    UL_INLINE void ul_pack_##tag(type *to, const type *from, int64_t count, int64_t room)          \
    {                                                                                              \
        int64_t i = 0;                                                                             \
        if (room < count + UL_LANES(type)) {                                                       \
            for (; i < count; i++)                                                                 \
                to[i] = from[i];                                                                   \
            return;                                                                                \
        }                                                                                          \
        do {                                                                                       \
            *(loose *)(to + i) = *(const loose *)(from + i);                                       \
            i += UL_LANES(type);                                                                   \
        } while (i < count);                                                                       \
    }
#else
#define UL_PACK(tag, type, vec, loose)                                                             \
    UL_INLINE void ul_pack_##tag(type *to, const type *from, int64_t count, int64_t room)          \
    {                                                                                              \
        (void)room;                                                                                \
        for (int64_t i = 0; i < count; i++)                                                        \
            to[i] = from[i];                                                                       \
    }
#endif

#if UL_VECTOR_BYTES > 0
#if defined(__clang__)
#define UL_PAIRS(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define UL_PAIRS(a, b, i, j, k, l) __builtin_shuffle(a, b, (ul_square){i, j, k, l})
#endif
typedef uint32_t ul_square __attribute__((vector_size(16)));
typedef uint32_t ul_square_loose __attribute__((vector_size(16), aligned(4), may_alias));

/* Squares of 4 x 4, transposed in registers: the first cols / 4 * 4 columns. */
static inline void ul_pack_squares_u32(uint32_t *to, const uint32_t *from, int64_t k, int64_t cols,
                                       int64_t stride)
{
    const int64_t pitch = UL_BLOCK_COLS(uint32_t);
    for (int64_t c = 0; c + 4 <= cols; c += 4, from += 4 * stride) {
        int64_t i = 0;
        for (; i + 4 <= k; i += 4) {
            ul_square r0 = *(const ul_square_loose *)(from + i);
            ul_square r1 = *(const ul_square_loose *)(from + stride + i);
            ul_square r2 = *(const ul_square_loose *)(from + 2 * stride + i);
            ul_square r3 = *(const ul_square_loose *)(from + 3 * stride + i);
            ul_square a = UL_PAIRS(r0, r1, 0, 4, 1, 5), b = UL_PAIRS(r2, r3, 0, 4, 1, 5);
            ul_square d = UL_PAIRS(r0, r1, 2, 6, 3, 7), e = UL_PAIRS(r2, r3, 2, 6, 3, 7);
            uint32_t *at = to + i * pitch + c;
            *(ul_square_loose *)at = UL_PAIRS(a, b, 0, 1, 4, 5);
            *(ul_square_loose *)(at + pitch) = UL_PAIRS(a, b, 2, 3, 6, 7);
            *(ul_square_loose *)(at + 2 * pitch) = UL_PAIRS(d, e, 0, 1, 4, 5);
            *(ul_square_loose *)(at + 3 * pitch) = UL_PAIRS(d, e, 2, 3, 6, 7);
        }
        uint32_t *at = to + i * pitch + c;
        const uint32_t *rest = from + i;
        for (int64_t left = k % 4; left > 0; left--, at += pitch, rest++)
            for (int64_t j = 0; j < 4; j++)
                at[j] = rest[j * stride];
    }
}
#define UL_SQUARE_u32(cols) ((cols) / 4 * 4)
#else
#define ul_pack_squares_u32(to, from, k, cols, stride) ((void)0)
#define UL_SQUARE_u32(cols) 0
#endif
#define ul_pack_squares_f32(to, from, k, cols, stride)                                             \
    ul_pack_squares_u32((uint32_t *)(void *)(to), (const uint32_t *)(const void *)(from), k, cols, \
                        stride)
#define ul_pack_squares_f64(to, from, k, cols, stride) ((void)0)
#define ul_pack_squares_u64(to, from, k, cols, stride) ((void)0)
#define UL_SQUARE_f32(cols) UL_SQUARE_u32(cols)
#define UL_SQUARE_f64(cols) 0
#define UL_SQUARE_u64(cols) 0

/* A panel from columns that lie along k: to[i][c] = from[c * stride + i] for c below cols, and 0
   for the other columns of the block. */
#define UL_PACK_ACROSS(tag, type)                                                                  \
    static inline void ul_pack_across_##tag(type *to, const type *from, int64_t k, int64_t cols,   \
                                            int64_t stride)                                        \
    {                                                                                              \
        int64_t first = UL_SQUARE_##tag(cols);                                                     \
        ul_pack_squares_##tag(to, from, k, cols, stride);                                          \
        for (int64_t i = 0; i < k; i++, to += UL_BLOCK_COLS(type)) {                               \
            const type *at = from + first * stride + i;                                            \
            for (int64_t c = first; c < cols; c++, at += stride)                                   \
                to[c] = *at;                                                                       \
            for (int64_t c = cols; c < UL_BLOCK_COLS(type); c++)                                   \
                to[c] = 0;                                                                         \
        }                                                                                          \
    }

/* sums[r * row + c] += a[r * a_row + i * a_k] * b[i * pitch + c], one i after the other, so that b
   streams; four rows of b at a time. */
#define UL_ADD_ROWS(tag, type)                                                                     \
    UL_INLINE void ul_add_four_##tag(type *UL_RESTRICT sums, const type *a, int64_t a_k,           \
                                     const type *UL_RESTRICT b, int64_t pitch, int64_t cols)       \
    {                                                                                              \
        const type a0 = a[0], a1 = a[a_k], a2 = a[2 * a_k], a3 = a[3 * a_k];                       \
        for (int64_t c = 0; c < cols; c++) {                                                       \
            type sum = ul_sum_##tag(a0, b[c], sums[c]);                                            \
            sum = ul_sum_##tag(a1, b[pitch + c], sum);                                             \
            sum = ul_sum_##tag(a2, b[2 * pitch + c], sum);                                         \
            sums[c] = ul_sum_##tag(a3, b[3 * pitch + c], sum);                                     \
        }                                                                                          \
    }                                                                                              \
    static inline void ul_add_rows_##tag(type *sums, int64_t row, const type *a, int64_t a_row,    \
                                         int64_t a_k, const type *b, int64_t pitch, int64_t k,     \
                                         int64_t rows, int64_t cols)                               \
    {                                                                                              \
        for (int64_t four = k / 4; four > 0; four--, a += 4 * a_k, b += 4 * pitch)                 \
            for (int64_t r = 0; r < rows; r++)                                                     \
                ul_add_four_##tag(sums + r * row, a + r * a_row, a_k, b, pitch, cols);             \
        for (int64_t rest = k % 4; rest > 0; rest--, a += a_k, b += pitch) {                       \
            for (int64_t r = 0; r < rows; r++) {                                                   \
                type *UL_RESTRICT to = sums + r * row;                                             \
                const type factor = a[r * a_row];                                                  \
                for (int64_t c = 0; c < cols; c++)                                                 \
                    to[c] = ul_sum_##tag(factor, b[c], to[c]);                                     \
            }                                                                                      \
        }                                                                                          \
    }

/* Every second element, four at a time: to[i] = from[2 * i] from i on; gives the first i that is
   left. One more element is always left, so that nothing after the last one is read. */
#if UL_VECTOR_BYTES > 0
static inline int64_t ul_pack_even_u32(uint32_t *to, const uint32_t *from, int64_t i, int64_t high)
{
    for (; i + 4 < high; i += 4) {
        ul_square a = *(const ul_square_loose *)(from + 2 * i);
        ul_square b = *(const ul_square_loose *)(from + 2 * i + 4);
        *(ul_square_loose *)(to + i) = UL_PAIRS(a, b, 0, 2, 4, 6);
    }
    return i;
}
#else
#define ul_pack_even_u32(to, from, i, high) (i)
#endif
#define ul_pack_even_f32(to, from, i, high)                                                        \
    ul_pack_even_u32((uint32_t *)(void *)(to), (const uint32_t *)(const void *)(from), i, high)
#define ul_pack_even_f64(to, from, i, high) (i)
#define ul_pack_even_u64(to, from, i, high) (i)

/* to[i] = from[at + i * step] for i in [low, high), and 0 for the others below cols. */
#define UL_PACK_ROW(tag, type)                                                                     \
    UL_INLINE void ul_pack_row_##tag(type *UL_RESTRICT to, const type *UL_RESTRICT from,           \
                                     int64_t at, int64_t step, int64_t low, int64_t high,          \
                                     int64_t cols)                                                 \
    {                                                                                              \
        int64_t i = 0;                                                                             \
        low = low < high ? low : high;                                                             \
        for (; i < low; i++)                                                                       \
            to[i] = 0;                                                                             \
        if (step == 1 && i < high) {                                                               \
            memcpy(to + i, from + at + i, (size_t)(high - i) * sizeof(type));                      \
            i = high;                                                                              \
        }                                                                                          \
        if (step == 2)                                                                             \
            i = ul_pack_even_##tag(to, from + at, i, high);                                        \
        for (; i < high; i++)                                                                      \
            to[i] = from[at + i * step];                                                           \
        for (; i < cols; i++)                                                                      \
            to[i] = 0;                                                                             \
    }

/* sums[i] = the sum of weights[t] * from[i + taps[t]], one t after the other, for i below cols and
   up to four vectors more. */
#if UL_VECTOR_BYTES > 0
#define UL_TAPS(tag, type, vec, loose)                                                             \
    static inline void ul_taps_##tag(type *sums, const type *from, const int32_t *taps,            \
                                     const type *weights, int64_t count, int64_t cols)             \
    {                                                                                              \
        for (int64_t i = 0; i < cols; i += 4 * UL_LANES(type)) {                                   \
            vec s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};                                            \
            for (int64_t t = 0; t < count; t++) {                                                  \
                const type *at = from + i + taps[t];                                               \
                const vec factor = weights[t] - (vec){0};                                          \
                s0 = ul_sum_##tag##_wide(*(const loose *)at, factor, s0);                          \
                s1 = ul_sum_##tag##_wide(*(const loose *)(at + UL_LANES(type)), factor, s1);       \
                s2 = ul_sum_##tag##_wide(*(const loose *)(at + 2 * UL_LANES(type)), factor, s2);   \
                s3 = ul_sum_##tag##_wide(*(const loose *)(at + 3 * UL_LANES(type)), factor, s3);   \
            }                                                                                      \
            *(loose *)(sums + i) = s0;                                                             \
            *(loose *)(sums + i + UL_LANES(type)) = s1;                                            \
            *(loose *)(sums + i + 2 * UL_LANES(type)) = s2;                                        \
            *(loose *)(sums + i + 3 * UL_LANES(type)) = s3;                                        \
        }                                                                                          \
    }
#else
#define UL_TAPS(tag, type, vec, loose)                                                             \
    static inline void ul_taps_##tag(type *UL_RESTRICT sums, const type *UL_RESTRICT from,         \
                                     const int32_t *taps, const type *weights, int64_t count,      \
                                     int64_t cols)                                                 \
    {                                                                                              \
        for (int64_t i = 0; i < cols; i++)                                                         \
            sums[i] = 0;                                                                           \
        for (int64_t t = 0; t < count; t++) {                                                      \
            const type *UL_RESTRICT at = from + taps[t];                                           \
            const type factor = weights[t];                                                        \
            for (int64_t i = 0; i < cols; i++)                                                     \
                sums[i] = ul_sum_##tag(at[i], factor, sums[i]);                                    \
        }                                                                                          \
    }
#endif

/* The sum of a[i] * b[i]: partial sums for i modulo 4 vectors, added in a fixed tree. */
#if UL_VECTOR_BYTES > 0
#define UL_DOT(tag, type, vec, loose)                                                              \
    static inline type ul_dot_##tag(const type *a, const type *b, int64_t k)                       \
    {                                                                                              \
        vec s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};                                                \
        int64_t i = 0;                                                                             \
        for (; i + 4 * UL_LANES(type) <= k; i += 4 * UL_LANES(type)) {                             \
            s0 = ul_sum_##tag##_wide(*(const loose *)(a + i), *(const loose *)(b + i), s0);        \
            s1 = ul_sum_##tag##_wide(*(const loose *)(a + i + UL_LANES(type)),                     \
                                     *(const loose *)(b + i + UL_LANES(type)), s1);                \
            s2 = ul_sum_##tag##_wide(*(const loose *)(a + i + 2 * UL_LANES(type)),                 \
                                     *(const loose *)(b + i + 2 * UL_LANES(type)), s2);            \
            s3 = ul_sum_##tag##_wide(*(const loose *)(a + i + 3 * UL_LANES(type)),                 \
                                     *(const loose *)(b + i + 3 * UL_LANES(type)), s3);            \
        }                                                                                          \
        for (; i + UL_LANES(type) <= k; i += UL_LANES(type))                                       \
            s0 = ul_sum_##tag##_wide(*(const loose *)(a + i), *(const loose *)(b + i), s0);        \
        s0 = (s0 + s1) + (s2 + s3);                                                                \
        type rest = 0;                                                                             \
        for (i = k - k % UL_LANES(type); i < k; i++) /* a start that gcc can follow */             \
            rest = ul_sum_##tag(a[i], b[i], rest);                                                 \
        type lanes[UL_LANES(type)];                                                                \
        memcpy(lanes, &s0, sizeof lanes);                                                          \
        for (int half = UL_LANES(type) / 2; half > 0; half /= 2)                                   \
            for (int l = 0; l < half; l++)                                                         \
                lanes[l] += lanes[l + half];                                                       \
        return lanes[0] + rest;                                                                    \
    }
#else
#define UL_DOT(tag, type, vec, loose)                                                              \
    static inline type ul_dot_##tag(const type *a, const type *b, int64_t k)                       \
    {                                                                                              \
        type s[4] = {0, 0, 0, 0};                                                                  \
        int64_t i = 0;                                                                             \
        for (; i + 4 <= k; i += 4)                                                                 \
            for (int l = 0; l < 4; l++)                                                            \
                s[l] = ul_sum_##tag(a[i + l], b[i + l], s[l]);                                     \
        for (; i < k; i++)                                                                         \
            s[0] = ul_sum_##tag(a[i], b[i], s[0]);                                                 \
        return (s[0] + s[1]) + (s[2] + s[3]);                                                      \
    }
#endif

/* sums[r] = the dot product of a and the row at b + r * pitch, for `rows` rows: added as
   ul_dot_<tag> does, but four rows at a time, since one row alone waits for its own sums. */
#if UL_VECTOR_BYTES > 0
#define UL_DOTS(tag, type, vec, loose)                                                             \
    UL_INLINE void ul_four_dots_##tag(type *sums, const type *a, const type *b, int64_t pitch,     \
                                      int64_t k)                                                   \
    {                                                                                              \
        vec s[4][4] = {{{0}}};                                                                     \
        type lanes[4][UL_LANES(type)];                                                             \
        int64_t i = 0;                                                                             \
        for (; i + 4 * UL_LANES(type) <= k; i += 4 * UL_LANES(type)) {                             \
            UL_UNROLL                                                                              \
            for (int v = 0; v < 4; v++) {                                                          \
                const vec x = *(const loose *)(a + i + v * UL_LANES(type));                        \
                UL_UNROLL                                                                          \
                for (int r = 0; r < 4; r++)                                                        \
                    s[r][v] = ul_sum_##tag##_wide(                                                 \
                        x, *(const loose *)(b + r * pitch + i + v * UL_LANES(type)), s[r][v]);     \
            }                                                                                      \
        }                                                                                          \
        for (; i + UL_LANES(type) <= k; i += UL_LANES(type)) {                                     \
            UL_UNROLL                                                                              \
            for (int r = 0; r < 4; r++)                                                            \
                s[r][0] = ul_sum_##tag##_wide(*(const loose *)(a + i),                             \
                                              *(const loose *)(b + r * pitch + i), s[r][0]);       \
        }                                                                                          \
        UL_UNROLL                                                                                  \
        for (int r = 0; r < 4; r++) {                                                              \
            s[r][0] = (s[r][0] + s[r][1]) + (s[r][2] + s[r][3]);                                   \
            memcpy(lanes[r], &s[r][0], sizeof lanes[r]);                                           \
        }                                                                                          \
        UL_UNROLL                                                                                  \
        for (int half = UL_LANES(type) / 2; half > 0; half /= 2) {                                 \
            UL_UNROLL                                                                              \
            for (int r = 0; r < 4; r++)                                                            \
                for (int l = 0; l < half; l++)                                                     \
                    lanes[r][l] += lanes[r][l + half];                                             \
        }                                                                                          \
        for (int r = 0; r < 4; r++) {                                                              \
            type rest = 0;                                                                         \
            for (int64_t j = k - k % UL_LANES(type); j < k; j++)                                   \
                rest = ul_sum_##tag(a[j], b[r * pitch + j], rest);                                 \
            sums[r] = lanes[r][0] + rest;                                                          \
        }                                                                                          \
    }
#else
#define UL_DOTS(tag, type, vec, loose)                                                             \
    UL_INLINE void ul_four_dots_##tag(type *sums, const type *a, const type *b, int64_t pitch,     \
                                      int64_t k)                                                   \
    {                                                                                              \
        for (int64_t r = 0; r < 4; r++)                                                            \
            sums[r] = ul_dot_##tag(a, b + r * pitch, k);                                           \
    }
#endif
#define UL_DOT_ROWS(tag, type)                                                                     \
    static inline void ul_dots_##tag(type *sums, const type *a, const type *b, int64_t pitch,      \
                                     int64_t k, int64_t rows)                                      \
    {                                                                                              \
        for (; rows >= 4; rows -= 4, sums += 4, b += 4 * pitch)                                    \
            ul_four_dots_##tag(sums, a, b, pitch, k);                                              \
        for (; rows > 0; rows--, sums++, b += pitch)                                               \
            *sums = ul_dot_##tag(a, b, k);                                                         \
    }

#if UL_VECTOR_BYTES > 0
UL_VECTOR(ul_f64v, double, UL_VECTOR_BYTES / 8);
UL_VECTOR_LOOSE(ul_f64v_loose, double, UL_VECTOR_BYTES / 8);
UL_VECTOR(ul_u32v, uint32_t, UL_VECTOR_BYTES / 4);
UL_VECTOR_LOOSE(ul_u32v_loose, uint32_t, UL_VECTOR_BYTES / 4);
UL_VECTOR(ul_u64v, uint64_t, UL_VECTOR_BYTES / 8);
UL_VECTOR_LOOSE(ul_u64v_loose, uint64_t, UL_VECTOR_BYTES / 8);
#endif

#define UL_CONTRACTIONS(tag, type)                                                                 \
    UL_TILE(tag, type, ul_##tag##v, ul_##tag##v_loose)                                             \
    UL_BLOCK(tag, type)                                                                            \
    UL_PACK(tag, type, ul_##tag##v, ul_##tag##v_loose)                                             \
    UL_PACK_ACROSS(tag, type)                                                                      \
    UL_ADD_ROWS(tag, type)                                                                         \
    UL_PACK_ROW(tag, type)                                                                         \
    UL_TAPS(tag, type, ul_##tag##v, ul_##tag##v_loose)                                             \
    UL_DOT(tag, type, ul_##tag##v, ul_##tag##v_loose)                                              \
    UL_DOTS(tag, type, ul_##tag##v, ul_##tag##v_loose)                                             \
    UL_DOT_ROWS(tag, type)

/* Integers are summed unsigned, where overflow wraps. */
UL_CONTRACTIONS(f32, float)
UL_CONTRACTIONS(f64, double)
UL_CONTRACTIONS(u32, uint32_t)
UL_CONTRACTIONS(u64, uint64_t)

#endif
