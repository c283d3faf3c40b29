/* SPDX-License-Identifier: 0BSD */
/*
 * The gradient of attention, of a tile of rows of one head, for kernels of target cuda. Rows are
 * queries and columns keys, or the other way round where it is turned; no matrix of all scores is
 * stored, tiles of it come and go:
 *
 *     ul_gradient_statistics     of each query: log of the sum over keys of exp(score), and the
 *                                mean of second products by these exponentials
 *     ul_gradient_add_weights    sums(row, element) += sum over columns of weight * value
 *     ul_gradient_add_slopes     the same, the weight made of the second product too; and a second
 *                                sum by another weight of the same products
 *     ul_gradient_put            what became of the sums
 *     ul_gradient_add_each       sums(row, column) += score, for the gradient of a mask
 *
 * The first product of a row and a column is that of queries and keys, the second one that of the
 * result's gradient and values. The printed kernel gives functions: read_q(row, element),
 * read_k(column, element), read_g and read_w of the second product, read_v(element, column), each
 * with a pack of neighbours along the element; score(row, column, product[, second product[, the
 * other weight, which it sets]]); and put(row, element, sum), called exactly once for each; where
 * weights are dropped, statistics also get slope_factor(query, key), which second products are
 * multiplied by. Columns that none of the tile's rows sees are left out: a query looks at keys up
 * to query + reach.
 *
 * Invariants: all threads of the block call a function together with the same arguments; shared
 * memory is the callee's until its return, where all threads are done with it. A sum over columns
 * is formed in their order, in tiles of a size that the compiler chooses by the sizes alone.
 * CUDA C++, and host C++ under tests/cuda_emulation. Nothing fails.
 */
#ifndef UL_ATTENTION_GRADIENT_CUH
#define UL_ATTENTION_GRADIENT_CUH

#include "ul_attention.cuh"

/* 16 x TR rows, 8 x TC columns at a time, results of E elements (padded) and a second one of S, or
 * none, 128 threads: thread (y, x) of 16 x 8 has TR rows, TC columns of each tile, and every 8th
 * group of 4 elements of a result. A row's threads are neighbours in one warp. Products are formed
 * DEPTH elements at a time, and of values CHUNK elements are there at a time, so that heads of any
 * size take the same memory. */
template <int E_, int S_, int TR_, int TC_> struct ul_gradient_size {
    static constexpr int E = E_, S = S_, TR = TR_, TC = TC_, BR = 16 * TR, BC = 8 * TC;
    static constexpr int DEPTH = 16, CHUNK = 32, threads = 128;
    static constexpr int pitch_r = BR + 4, pitch_c = BC + 4, pitch_e = CHUNK + 4;
    static constexpr int rows = DEPTH * pitch_r, weights = BC * pitch_r;
    static constexpr int products = rows + DEPTH * pitch_c, sums = weights + BC * pitch_e;
    static constexpr int elements = products > sums ? products : sums;
    static_assert(E % CHUNK == 0 && S % CHUNK == 0, "padded");
};

/* A thread keeps the sums of its rows in registers. */
template <class SIZE> struct ul_gradient_sums {
    float at[SIZE::TR][SIZE::E / 8];
    float shares[SIZE::TR][SIZE::S > 0 ? SIZE::S / 8 : 1];
};

/* to = the products of this thread's rows and columns. A and B: an ul_reading along the element. */
template <class SIZE, class A, class B, typename I, class READ_A, class READ_B>
__device__ __forceinline__ void ul_gradient_products(float (&to)[SIZE::TR][SIZE::TC], float *shared,
                                                     I row0, I rows, I column0, I columns, I size,
                                                     const READ_A &read_a, const READ_B &read_b)
{
    typedef ul_pack_of<float, SIZE::TR> some_rows;
    typedef ul_pack_of<float, SIZE::TC> some_columns;
    const int tx = (int)threadIdx.x % 8, ty = (int)threadIdx.x / 8;
    float *as = shared, *bs = shared + SIZE::rows;
    ul_tile_part<float, SIZE::BR, SIZE::DEPTH, SIZE::threads, A> part_a;
    ul_tile_part<float, SIZE::BC, SIZE::DEPTH, SIZE::threads, B> part_b;
    UL_UNROLLED
    for (int r = 0; r < SIZE::TR; r++) {
        UL_UNROLLED
        for (int c = 0; c < SIZE::TC; c++)
            to[r][c] = 0.0f;
    }
    part_a.load(row0, rows, I(0), size, read_a);
    part_b.load(column0, columns, I(0), size, read_b);
    UL_ROLLED
    for (I d0 = 0; d0 < size; d0 += SIZE::DEPTH) {
        part_a.template store<SIZE::pitch_r>(as);
        part_b.template store<SIZE::pitch_c>(bs);
        __syncthreads();
        if (d0 + SIZE::DEPTH < size) {
            part_a.load(row0, rows, (I)(d0 + SIZE::DEPTH), size, read_a);
            part_b.load(column0, columns, (I)(d0 + SIZE::DEPTH), size, read_b);
        }
        UL_UNROLLED
        for (int d = 0; d < SIZE::DEPTH; d++) {
            const some_rows a =
                *(const some_rows *)(const void *)(as + d * SIZE::pitch_r + ty * SIZE::TR);
            const some_columns b =
                *(const some_columns *)(const void *)(bs + d * SIZE::pitch_c + tx * SIZE::TC);
            UL_UNROLLED
            for (int r = 0; r < SIZE::TR; r++) {
                UL_UNROLLED
                for (int c = 0; c < SIZE::TC; c++)
                    to[r][c] += a.at[r] * b.at[c];
            }
        }
        __syncthreads();
    }
}

/* Puts what is known of a query: its largest score, the sum of exponentials of scores less that,
 * and the sum of second products weighted by these. */
template <ul_attend_empty EMPTY, typename I, class PUT>
__device__ __forceinline__ void ul_gradient_put_query(I query, float largest, float total,
                                                      float sum, const PUT &put)
{
    bool is_zero = (EMPTY == UL_EMPTY_IS_ZERO && total == 0.0f) ||
                   (EMPTY == UL_NAN_IS_ZERO && !(total > 0.0f));
    put(query, I(0), ul_attend_norm<EMPTY>(largest, total));
    put(query, I(1), is_zero ? 0.0f : sum / total);
}

/* Takes in one row's scores of a tile, from key `key` on, and what goes with them. */
template <int TC, typename I, class SCORE, class FACTOR>
__device__ __forceinline__ void
ul_gradient_row(const float (&products)[TC], const float (&slopes)[TC], float &largest,
                float &total, float &sum, I row, I rows, I key, I keys, const SCORE &score,
                const FACTOR &slope_factor)
{
    float scores[TC], max = -INFINITY;
    UL_UNROLLED
    for (int c = 0; c < TC; c++) {
        const I at = key + c;
        scores[c] = at < keys && row < rows ? score(row, at, products[c], slopes[c]) : -INFINITY;
        max = ul_attend_larger(max, scores[c]);
    }
    UL_UNROLLED
    for (int lane = 1; lane < 8; lane *= 2)
        max = ul_attend_larger(max, __shfl_xor_sync(0xffffffffu, max, lane));
    max = ul_attend_larger(largest, max);
    const float shift = ul_attend_shift(max), factor = ul_attend_exp(largest - shift);
    largest = max;
    total *= factor;
    sum *= factor;
    UL_UNROLLED
    for (int c = 0; c < TC; c++) {
        const float weight = ul_attend_exp(scores[c] - shift);
        total += weight;
        sum += weight * (slopes[c] * slope_factor(row, (I)(key + c)));
    }
}

template <class SIZE, class Q, class K, class G, class W, ul_attend_empty EMPTY, typename I,
          class READ_Q, class READ_K, class READ_G, class READ_W, class SCORE, class PUT,
          class FACTOR = ul_attend_keeps>
__device__ __forceinline__ void
ul_gradient_statistics(float *shared, int64_t tile, I queries, I keys, I reach, I size,
                       I value_size, const READ_Q &read_q, const READ_K &read_k,
                       const READ_G &read_g, const READ_W &read_w, const SCORE &score,
                       const PUT &put, const FACTOR &slope_factor = FACTOR())
{
    constexpr int TR = SIZE::TR, TC = SIZE::TC;
    const int tx = (int)threadIdx.x % 8, ty = (int)threadIdx.x / 8;
    const I row0 = (I)(tile * SIZE::BR), end = ul_attend_end(keys, (I)(row0 + SIZE::BR), reach);
    float largest[TR], total[TR], sum[TR], products[TR][TC], slopes[TR][TC];
    UL_UNROLLED
    for (int r = 0; r < TR; r++) {
        largest[r] = -INFINITY;
        total[r] = sum[r] = 0.0f;
    }
    UL_ROLLED
    for (I key0 = 0; key0 < end; key0 += SIZE::BC) {
        ul_gradient_products<SIZE, Q, K>(products, shared, row0, queries, key0, keys, size, read_q,
                                         read_k);
        ul_gradient_products<SIZE, G, W>(slopes, shared, row0, queries, key0, keys, value_size,
                                         read_g, read_w);
        UL_UNROLLED
        for (int r = 0; r < TR; r++)
            ul_gradient_row<TC>(products[r], slopes[r], largest[r], total[r], sum[r],
                                (I)(row0 + ty * TR + r), queries, (I)(key0 + tx * TC), keys, score,
                                slope_factor);
    }
    UL_UNROLLED
    for (int r = 0; r < TR; r++) {
        const I row = row0 + ty * TR + r;
        UL_UNROLLED
        for (int lane = 1; lane < 8; lane *= 2) {
            total[r] += __shfl_xor_sync(0xffffffffu, total[r], lane);
            sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], lane);
        }
        if (tx == 0 && row < queries)
            ul_gradient_put_query<EMPTY>(row, largest[r], total[r], sum[r], put);
    }
}

/* sums += weights values, for the BC columns from `column0` on. V is an ul_reading along the
 * element. */
template <class SIZE, class V, int N, typename I, class READ_V>
__device__ __forceinline__ void
ul_gradient_values(float (&sums)[SIZE::TR][N], const float (&weights)[SIZE::TR][SIZE::TC],
                   float *shared, I column0, I columns, I value_size, const READ_V &read_v)
{
    typedef ul_pack_of<float, SIZE::TR> some_rows;
    typedef ul_pack_of<float, 4> four;
    const int tx = (int)threadIdx.x % 8, ty = (int)threadIdx.x / 8;
    float *ps = shared, *vs = shared + SIZE::weights;
    ul_attend_keep<SIZE>(weights, ps, tx, ty);
    UL_UNROLLED
    for (int g = 0; g < 8 * N / SIZE::CHUNK; g++) {
        ul_tile_part<float, SIZE::CHUNK, SIZE::BC, SIZE::threads, V> part;
        part.load((I)(g * SIZE::CHUNK), value_size, column0, columns, read_v);
        part.template store<SIZE::pitch_e>(vs);
        __syncthreads();
        UL_UNROLLED
        for (int c = 0; c < SIZE::BC; c++) {
            const some_rows a =
                *(const some_rows *)(const void *)(ps + c * SIZE::pitch_r + ty * SIZE::TR);
            const four b = *(const four *)(const void *)(vs + c * SIZE::pitch_e + tx * 4);
            UL_UNROLLED
            for (int r = 0; r < SIZE::TR; r++) {
                UL_UNROLLED
                for (int e = 0; e < 4; e++)
                    sums[r][4 * g + e] += a.at[r] * b.at[e];
            }
        }
        __syncthreads();
    }
}

/* The columns [begin, end) that the tile's rows see, from a multiple of BC on. */
template <class SIZE, bool IS_TURNED, typename I>
__device__ __forceinline__ void ul_gradient_range(I &begin, I &end, I row0, I columns, I reach)
{
    begin = IS_TURNED && row0 > reach ? (I)((row0 - reach) / SIZE::BC * SIZE::BC) : I(0);
    end = IS_TURNED ? columns : ul_attend_end(columns, (I)(row0 + SIZE::BR), reach);
}

template <class SIZE, class Q, class K, class V, bool IS_TURNED, typename I, class READ_Q,
          class READ_K, class READ_V, class SCORE>
__device__ __forceinline__ void
ul_gradient_add_weights(ul_gradient_sums<SIZE> &sums, float *shared, int64_t tile, I rows,
                        I columns, I reach, I size, I value_size, const READ_Q &read_q,
                        const READ_K &read_k, const READ_V &read_v, const SCORE &score)
{
    const I row0 = (I)(tile * SIZE::BR), row = row0 + (int)threadIdx.x / 8 * SIZE::TR;
    float products[SIZE::TR][SIZE::TC];
    I begin, end;
    ul_gradient_range<SIZE, IS_TURNED>(begin, end, row0, columns, reach);
    UL_ROLLED
    for (I column0 = begin; column0 < end; column0 += SIZE::BC) {
        const I column = column0 + (int)threadIdx.x % 8 * SIZE::TC;
        ul_gradient_products<SIZE, Q, K>(products, shared, row0, rows, column0, columns, size,
                                         read_q, read_k);
        UL_UNROLLED
        for (int r = 0; r < SIZE::TR; r++) {
            UL_UNROLLED
            for (int c = 0; c < SIZE::TC; c++)
                products[r][c] = row + r < rows && column + c < columns
                                     ? score((I)(row + r), (I)(column + c), products[r][c])
                                     : 0.0f;
        }
        ul_gradient_values<SIZE, V>(sums.at, products, shared, column0, columns, value_size,
                                    read_v);
    }
}

/* Gives the weight of a pair from its products. Stores the share for a second result in the slope's
 * place. */
template <bool HAS_SHARES, typename I, class SCORE>
__device__ __forceinline__ float ul_gradient_weight(float product, float &slope, I row, I column,
                                                    const SCORE &score)
{
    if constexpr (HAS_SHARES) {
        float share;
        product = score(row, column, product, slope, share);
        slope = share;
        return product;
    } else {
        return score(row, column, product, slope);
    }
}

/* The sums have `size` elements for each query or key. Values have another size. The sums of shares
 * have theirs too, and read_s reads their values. */
template <class SIZE, class Q, class K, class G, class W, class V, class S, bool IS_TURNED,
          typename I, class READ_Q, class READ_K, class READ_G, class READ_W, class READ_V,
          class READ_S, class SCORE>
__device__ __forceinline__ void
ul_gradient_add_slopes(ul_gradient_sums<SIZE> &sums, float *shared, int64_t tile, I rows, I columns,
                       I reach, I size, I value_size, const READ_Q &read_q, const READ_K &read_k,
                       const READ_G &read_g, const READ_W &read_w, const READ_V &read_v,
                       const READ_S &read_s, const SCORE &score)
{
    const I row0 = (I)(tile * SIZE::BR), row = row0 + (int)threadIdx.x / 8 * SIZE::TR;
    float products[SIZE::TR][SIZE::TC], slopes[SIZE::TR][SIZE::TC];
    I begin, end;
    ul_gradient_range<SIZE, IS_TURNED>(begin, end, row0, columns, reach);
    UL_ROLLED
    for (I column0 = begin; column0 < end; column0 += SIZE::BC) {
        const I column = column0 + (int)threadIdx.x % 8 * SIZE::TC;
        ul_gradient_products<SIZE, Q, K>(products, shared, row0, rows, column0, columns, size,
                                         read_q, read_k);
        ul_gradient_products<SIZE, G, W>(slopes, shared, row0, rows, column0, columns, value_size,
                                         read_g, read_w);
        UL_UNROLLED
        for (int r = 0; r < SIZE::TR; r++) {
            UL_UNROLLED
            for (int c = 0; c < SIZE::TC; c++) {
                const bool is_there = row + r < rows && column + c < columns;
                float &slope = slopes[r][c];
                products[r][c] =
                    is_there ? ul_gradient_weight<(SIZE::S > 0)>(
                                   products[r][c], slope, (I)(row + r), (I)(column + c), score)
                             : 0.0f;
                slope = is_there ? slope : 0.0f;
            }
        }
        ul_gradient_values<SIZE, V>(sums.at, products, shared, column0, columns, size, read_v);
        if constexpr (SIZE::S > 0)
            ul_gradient_values<SIZE, S>(sums.shares, slopes, shared, column0, columns, value_size,
                                        read_s);
    }
}

template <class SIZE, int N, typename I, class PUT>
__device__ __forceinline__ void ul_gradient_put(const float (&sums)[SIZE::TR][N], int64_t tile,
                                                I rows, I size, const PUT &put)
{
    const I row0 = (I)(tile * SIZE::BR) + (int)threadIdx.x / 8 * SIZE::TR;
    const I element0 = (int)threadIdx.x % 8 * 4;
    UL_UNROLLED
    for (int r = 0; r < SIZE::TR; r++) {
        UL_UNROLLED
        for (int e = 0; e < N; e++) {
            const I row = row0 + r, element = element0 + e / 4 * 32 + e % 4;
            if (row < rows && element < size)
                put(row, element, sums[r][e]);
        }
    }
}

/* ---- each score ---- */

/* Here a result is a score, not a sum over columns, so a block has one tile of rows and of
 * columns. */
template <class SIZE, typename I>
__device__ __forceinline__ void ul_gradient_corner(I &row0, I &column0, int64_t tile, I columns)
{
    const int64_t across = ((int64_t)columns + SIZE::BC - 1) / SIZE::BC;
    row0 = (I)(tile / across * SIZE::BR);
    column0 = (I)(tile % across * SIZE::BC);
}

template <class SIZE> struct ul_gradient_each_sums {
    float at[SIZE::TR][SIZE::TC];
};

/* sums(row, column) += score, over the tile. The parameters are those of ul_gradient_add_slopes. */
template <class SIZE, class Q, class K, class G, class W, bool IS_TURNED, typename I, class READ_Q,
          class READ_K, class READ_G, class READ_W, class SCORE>
__device__ __forceinline__ void
ul_gradient_add_each(ul_gradient_each_sums<SIZE> &sums, float *shared, int64_t tile, I rows,
                     I columns, I, I size, I value_size, const READ_Q &read_q, const READ_K &read_k,
                     const READ_G &read_g, const READ_W &read_w, const SCORE &score)
{
    float products[SIZE::TR][SIZE::TC], slopes[SIZE::TR][SIZE::TC];
    I row0, column0;
    ul_gradient_corner<SIZE>(row0, column0, tile, columns);
    ul_gradient_products<SIZE, Q, K>(products, shared, row0, rows, column0, columns, size, read_q,
                                     read_k);
    ul_gradient_products<SIZE, G, W>(slopes, shared, row0, rows, column0, columns, value_size,
                                     read_g, read_w);
    const I row = row0 + (int)threadIdx.x / 8 * SIZE::TR;
    const I column = column0 + (int)threadIdx.x % 8 * SIZE::TC;
    UL_UNROLLED
    for (int r = 0; r < SIZE::TR; r++) {
        UL_UNROLLED
        for (int c = 0; c < SIZE::TC; c++) {
            if (row + r < rows && column + c < columns)
                sums.at[r][c] += score((I)(row + r), (I)(column + c), products[r][c], slopes[r][c]);
        }
    }
}

template <class SIZE, typename I, class PUT>
__device__ __forceinline__ void ul_gradient_put_each(const float (&sums)[SIZE::TR][SIZE::TC],
                                                     int64_t tile, I rows, I columns,
                                                     const PUT &put)
{
    I row0, column0;
    ul_gradient_corner<SIZE>(row0, column0, tile, columns);
    UL_UNROLLED
    for (int r = 0; r < SIZE::TR; r++) {
        UL_UNROLLED
        for (int c = 0; c < SIZE::TC; c++) {
            const I row = row0 + (int)threadIdx.x / 8 * SIZE::TR + r;
            const I column = column0 + (int)threadIdx.x % 8 * SIZE::TC + c;
            if (row < rows && column < columns)
                put(row, column, sums[r][c]);
        }
    }
}

/* ---- tensor cores ---- */

/* ROWS warps, each of which has 16 rows, with BC columns at a time: products of D elements, and of
 * E where there are slopes; results of W elements, 0 for statistics. Rows of the first factors stay
 * in shared memory; of the second ones STAGES tiles are there at a time, which are multiplied one
 * after the other while the next ones come. What a sum is of are columns of the first product where
 * there are slopes, else a matrix of its own, of E elements. Where ROUNDS weights are rounded once;
 * else what rounding left of them is multiplied too, so that they are as good as those of float32.
 * A second result has S elements, or 0, and is a sum of columns of the second product. */
template <class KIND_, int D_, int E_, int W_, int S_, int BC_, int ROWS_, int STAGES_,
          bool HAS_SLOPES_, bool ROUNDS_>
struct ul_gradient_mma {
    typedef KIND_ KIND;
    static constexpr int D = D_, E = E_, W = W_, S = S_, BC = BC_, ROWS = ROWS_, STAGES = STAGES_;
    static constexpr bool HAS_SLOPES = HAS_SLOPES_, ROUNDS = ROUNDS_;
    static constexpr int threads = 32 * ROWS, BR = 16 * ROWS;
    typedef ul_spaced<D> first; /* rows of elements */
    typedef ul_spaced<E> second;
    typedef std::conditional_t<HAS_SLOPES, first, second> values;
    static constexpr int slopes = BR * first::PITCH; /* where rows of the second product lie */
    static constexpr int rows = slopes + (HAS_SLOPES ? BR * second::PITCH : 0);
    static constexpr int beside = BC * first::PITCH, stage = beside + BC * second::PITCH;
    static constexpr int elements = rows + STAGES * stage;
    static_assert(D % 16 == 0 && E % 16 == 0 && W % 16 == 0 && BC % 16 == 0, "padded");

    /* As in struct ul_attend_mma. */
    static __device__ __forceinline__ int row(int i)
    {
        return (int)threadIdx.x % 32 / 4 + 8 * i;
    }
    static __device__ __forceinline__ int column(int j)
    {
        return (int)threadIdx.x % 4 * 2 + 8 * j;
    }
};

template <class MMA> struct ul_gradient_mma_sums {
    float at[MMA::W / 8][4];
    float shares[MMA::S > 0 ? MMA::S / 8 : 1][4];
};

/* Begins to copy HEIGHT rows of WIDTH elements from row `row0` on into shared memory, without
 * closing the copies; zeros after the last row. */
template <class MMA, class LAYOUT, int HEIGHT, int WIDTH, int PACK, typename I, class PLACE>
__device__ __forceinline__ void ul_gradient_stage(uint16_t *to, bool is_aligned, I row0, I rows,
                                                  I size, const PLACE &place)
{
    ul_stage<HEIGHT, WIDTH, PACK, MMA::threads, LAYOUT> part;
    part.begin(to, is_aligned, [&](int row, int column) {
        ul_source source = place((I)(row0 + row), (I)column);
        source.is_there = source.is_there && row0 + row < rows && column < size;
        return source;
    });
    part.end(to);
}

/* Multiplies the warp's 16 rows from `as` on by the BC from `bs` on, DEPTH deep. */
template <class MMA, class LAYOUT, int DEPTH>
__device__ __forceinline__ void ul_gradient_products_mma(float (&to)[MMA::BC / 8][4],
                                                         const uint16_t *as, const uint16_t *bs)
{
    UL_UNROLLED
    for (int c = 0; c < MMA::BC / 8; c++) {
        UL_UNROLLED
        for (int i = 0; i < 4; i++)
            to[c][i] = 0.0f;
    }
    UL_UNROLLED
    for (int d = 0; d < DEPTH / 16; d++) {
        uint32_t a[4];
        ul_stage_read<LAYOUT, true, true>(a, as, 0, 0, 16 * d);
        UL_UNROLLED
        for (int c = 0; c < MMA::BC / 16; c++) {
            uint32_t b[4];
            ul_stage_read<LAYOUT, true, false>(b, bs, 0, 16 * c, 16 * d);
            UL_UNROLLED
            for (int h = 0; h < 2; h++)
                ul_multiply(typename MMA::KIND(), to[2 * c + h], a, b[2 * h], b[2 * h + 1]);
        }
    }
}

/* sums += weights values, of the BC values from `vs` on. */
template <class MMA, class LAYOUT, int N>
__device__ __forceinline__ void
ul_gradient_values_mma(float (&sums)[N][4], float (&weights)[MMA::BC / 8][4], const uint16_t *vs)
{
    constexpr int parts = MMA::ROUNDS ? 1 : 2;
    UL_UNROLLED
    for (int c = 0; c < MMA::BC / 16; c++) {
        uint32_t p[parts][4];
        UL_UNROLLED
        for (int part = 0; part < parts; part++)
            ul_attend_weights<MMA>(p[part], weights, c);
        UL_UNROLLED
        for (int e = 0; e < N / 2; e++) {
            uint32_t v[4];
            ul_stage_read<LAYOUT, false, false>(v, vs, 0, 16 * e, 16 * c);
            UL_UNROLLED
            for (int part = parts; part-- > 0;) {
                UL_UNROLLED
                for (int h = 0; h < 2; h++)
                    ul_multiply(typename MMA::KIND(), sums[2 * e + h], p[part], v[2 * h],
                                v[2 * h + 1]);
            }
        }
    }
}

/* Goes along the columns [begin, end): load(stage, column) begins copies of BC of them, use(column,
 * stage) takes them when they are there. */
template <class MMA, typename I, class LOAD, class USE>
__device__ __forceinline__ void ul_gradient_walk(uint16_t *shared, I begin, I end, const LOAD &load,
                                                 const USE &use)
{
    constexpr int STAGES = MMA::STAGES, ahead = STAGES * MMA::BC;
    int at = 0;
    UL_ROLLED
    for (int stage = 0; stage < STAGES; stage++) {
        if (begin + stage * MMA::BC < end)
            load(shared + MMA::rows + stage * MMA::stage, (I)(begin + stage * MMA::BC));
        ul_copies_close(); /* rows come with the first ones */
    }
    UL_ROLLED
    for (I column = begin; column < end; column += MMA::BC) {
        uint16_t *stage = shared + MMA::rows + at * MMA::stage;
        ul_copies_wait<STAGES - 1>();
        __syncthreads();
        use(column, stage);
        __syncthreads();
        if (end - column > ahead)
            load(stage, (I)(column + ahead));
        ul_copies_close();
        at = at == STAGES - 1 ? 0 : at + 1;
    }
    ul_copies_wait<0>();
    __syncthreads();
}

/* ul_gradient_statistics on tensor cores: place_q(query, element) and so on give an ul_source.
 * aligned: of the four. */
template <class MMA, class Q, class K, class G, class W, ul_attend_empty EMPTY, typename I,
          class PLACE_Q, class PLACE_K, class PLACE_G, class PLACE_W, class SCORE, class PUT,
          class FACTOR = ul_attend_keeps>
__device__ __forceinline__ void
ul_gradient_statistics_mma(uint16_t *shared, int64_t tile, I queries, I keys, I reach, I size,
                           I value_size, const bool (&aligned)[4], const PLACE_Q &place_q,
                           const PLACE_K &place_k, const PLACE_G &place_g, const PLACE_W &place_w,
                           const SCORE &score, const PUT &put,
                           const FACTOR &slope_factor = FACTOR())
{
    typedef typename MMA::first first;
    typedef typename MMA::second second;
    constexpr int BC = MMA::BC;
    const I row0 = (I)(tile * MMA::BR), end = ul_attend_end(keys, (I)(row0 + MMA::BR), reach);
    const int warp = (int)threadIdx.x / 32;
    const uint16_t *as = shared + 16 * warp * first::PITCH;
    const uint16_t *cs = shared + MMA::slopes + 16 * warp * second::PITCH;
    float largest[2], total[2], sum[2];
    UL_UNROLLED
    for (int i = 0; i < 2; i++) {
        largest[i] = -INFINITY;
        total[i] = sum[i] = 0.0f;
    }
    ul_gradient_stage<MMA, first, MMA::BR, MMA::D, Q::PACK>(shared, aligned[0], row0, queries, size,
                                                            place_q);
    ul_gradient_stage<MMA, second, MMA::BR, MMA::E, G::PACK>(shared + MMA::slopes, aligned[2], row0,
                                                             queries, value_size, place_g);
    const auto load = [&](uint16_t *to, I key0) {
        ul_gradient_stage<MMA, first, BC, MMA::D, K::PACK>(to, aligned[1], key0, keys, size,
                                                           place_k);
        ul_gradient_stage<MMA, second, BC, MMA::E, W::PACK>(to + MMA::beside, aligned[3], key0,
                                                            keys, value_size, place_w);
    };
    ul_gradient_walk<MMA>(shared, I(0), end, load, [&](I key0, const uint16_t *stage) {
        float products[BC / 8][4], slopes[BC / 8][4];
        ul_gradient_products_mma<MMA, first, MMA::D>(products, as, stage);
        ul_gradient_products_mma<MMA, second, MMA::E>(slopes, cs, stage + MMA::beside);
        UL_UNROLLED
        for (int i = 0; i < 2; i++) {
            const I row = row0 + 16 * warp + MMA::row(i);
            float max = -INFINITY;
            UL_UNROLLED
            for (int j = 0; j < BC / 8; j++) {
                UL_UNROLLED
                for (int e = 0; e < 2; e++) {
                    const I key = key0 + MMA::column(j) + e;
                    float &x = products[j][2 * i + e];
                    x = key < keys && row < queries ? score(row, key, x, slopes[j][2 * i + e])
                                                    : -INFINITY;
                    max = ul_attend_larger(max, x);
                }
            }
            UL_UNROLLED
            for (int lane = 1; lane < 4; lane *= 2)
                max = ul_attend_larger(max, __shfl_xor_sync(0xffffffffu, max, lane));
            max = ul_attend_larger(largest[i], max);
            const float shift = ul_attend_shift(max), factor = ul_attend_exp(largest[i] - shift);
            largest[i] = max;
            total[i] *= factor;
            sum[i] *= factor;
            UL_UNROLLED
            for (int j = 0; j < BC / 8; j++) {
                UL_UNROLLED
                for (int e = 0; e < 2; e++) {
                    const float weight = ul_attend_exp(products[j][2 * i + e] - shift);
                    const I key = key0 + MMA::column(j) + e;
                    total[i] += weight;
                    sum[i] += weight * (slopes[j][2 * i + e] * slope_factor(row, key));
                }
            }
        }
    });
    UL_UNROLLED
    for (int i = 0; i < 2; i++) {
        const I row = row0 + 16 * warp + MMA::row(i);
        UL_UNROLLED
        for (int lane = 1; lane < 4; lane *= 2) {
            total[i] += __shfl_xor_sync(0xffffffffu, total[i], lane);
            sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], lane);
        }
        if ((int)threadIdx.x % 4 == 0 && row < queries)
            ul_gradient_put_query<EMPTY>(row, largest[i], total[i], sum[i], put);
    }
}

/* Whether rows from `row0` on see a column from `column0` on, in a tile. */
template <class MMA, bool IS_TURNED, typename I>
__device__ __forceinline__ bool ul_gradient_sees(I row0, I column0, I reach)
{
    return IS_TURNED ? column0 + (MMA::BC - 1) >= row0 - reach : column0 <= row0 + 15 + reach;
}

/* Turns the products of all rows of the tile into weights, and slopes into shares. */
template <class MMA, typename I, class SCORE>
__device__ __forceinline__ void ul_gradient_turn(float (&products)[MMA::BC / 8][4],
                                                 float (&slopes)[MMA::BC / 8][4], I row0, I rows,
                                                 I column0, I columns, const SCORE &score)
{
    UL_UNROLLED
    for (int j = 0; j < MMA::BC / 8; j++) {
        UL_UNROLLED
        for (int i = 0; i < 4; i++) {
            const I row = row0 + MMA::row(i / 2), column = column0 + MMA::column(j) + i % 2;
            float x = 0.0f;
            const bool is_there = row < rows && column < columns;
            if (is_there) {
                if constexpr (MMA::HAS_SLOPES)
                    x = ul_gradient_weight<(MMA::S > 0)>(products[j][i], slopes[j][i], row, column,
                                                         score);
                else
                    x = score(row, column, products[j][i]);
            }
            products[j][i] = x;
            if constexpr (MMA::S > 0)
                slopes[j][i] = is_there ? slopes[j][i] : 0.0f;
        }
    }
}

/* ul_gradient_add_slopes on tensor cores, and, without slopes, ul_gradient_add_weights: then
 * place_g is not called, and place_w(element, column) says where values lie. */
template <class MMA, class Q, class K, class G, class W, bool IS_TURNED, typename I, class PLACE_Q,
          class PLACE_K, class PLACE_G, class PLACE_W, class SCORE>
__device__ __forceinline__ void
ul_gradient_add_mma(ul_gradient_mma_sums<MMA> &sums, uint16_t *shared, int64_t tile, I rows,
                    I columns, I reach, I size, I value_size, const bool (&aligned)[4],
                    const PLACE_Q &place_q, const PLACE_K &place_k, const PLACE_G &place_g,
                    const PLACE_W &place_w, const SCORE &score)
{
    typedef typename MMA::first first;
    typedef typename MMA::second second;
    const I row0 = (I)(tile * MMA::BR), own = (I)(row0 + (int)threadIdx.x / 32 * 16);
    const uint16_t *as = shared + (int)(own - row0) * first::PITCH;
    const uint16_t *cs = shared + MMA::slopes + (int)(own - row0) * second::PITCH;
    I begin, end;
    ul_gradient_range<MMA, IS_TURNED>(begin, end, row0, columns, reach);
    ul_gradient_stage<MMA, first, MMA::BR, MMA::D, Q::PACK>(shared, aligned[0], row0, rows, size,
                                                            place_q);
    if constexpr (MMA::HAS_SLOPES)
        ul_gradient_stage<MMA, second, MMA::BR, MMA::E, G::PACK>(shared + MMA::slopes, aligned[2],
                                                                 row0, rows, value_size, place_g);
    const auto load = [&](uint16_t *to, I column0) {
        ul_gradient_stage<MMA, first, MMA::BC, MMA::D, K::PACK>(to, aligned[1], column0, columns,
                                                                size, place_k);
        ul_gradient_stage<MMA, second, MMA::BC, MMA::E, W::PACK>(
            to + MMA::beside, aligned[3], column0, columns, value_size, [&](I column, I element) {
                if constexpr (MMA::HAS_SLOPES)
                    return place_w(column, element);
                else
                    return place_w(element, column);
            });
    };
    ul_gradient_walk<MMA>(shared, begin, end, load, [&](I column0, const uint16_t *stage) {
        float products[MMA::BC / 8][4], slopes[MMA::BC / 8][4];
        if (own >= rows || !ul_gradient_sees<MMA, IS_TURNED>(own, column0, reach))
            return;
        ul_gradient_products_mma<MMA, first, MMA::D>(products, as, stage);
        if constexpr (MMA::HAS_SLOPES)
            ul_gradient_products_mma<MMA, second, MMA::E>(slopes, cs, stage + MMA::beside);
        ul_gradient_turn<MMA>(products, slopes, own, rows, column0, columns, score);
        ul_gradient_values_mma<MMA, typename MMA::values>(
            sums.at, products, MMA::HAS_SLOPES ? stage : stage + MMA::beside);
        if constexpr (MMA::S > 0)
            ul_gradient_values_mma<MMA, second>(sums.shares, slopes, stage + MMA::beside);
    });
}

template <class MMA, int N, typename I, class PUT>
__device__ __forceinline__ void ul_gradient_put_mma(const float (&sums)[N][4], int64_t tile, I rows,
                                                    I size, const PUT &put)
{
    const I row0 = (I)(tile * MMA::BR) + (int)threadIdx.x / 32 * 16;
    UL_UNROLLED
    for (int j = 0; j < N; j++) {
        UL_UNROLLED
        for (int i = 0; i < 4; i++) {
            const I row = row0 + MMA::row(i / 2), element = MMA::column(j) + i % 2;
            if (row < rows && element < size)
                put(row, element, sums[j][i]);
        }
    }
}

/* ---- each score, on tensor cores ---- */

template <class MMA> struct ul_gradient_each_mma_sums {
    float at[MMA::BC / 8][4];
};

template <class MMA, class Q, class K, class G, class W, bool IS_TURNED, typename I, class PLACE_Q,
          class PLACE_K, class PLACE_G, class PLACE_W, class SCORE>
__device__ __forceinline__ void
ul_gradient_add_each_mma(ul_gradient_each_mma_sums<MMA> &sums, uint16_t *shared, int64_t tile,
                         I rows, I columns, I, I size, I value_size, const bool (&aligned)[4],
                         const PLACE_Q &place_q, const PLACE_K &place_k, const PLACE_G &place_g,
                         const PLACE_W &place_w, const SCORE &score)
{
    typedef typename MMA::first first;
    typedef typename MMA::second second;
    I row0, column0;
    ul_gradient_corner<MMA>(row0, column0, tile, columns);
    const I own = (I)(row0 + (int)threadIdx.x / 32 * 16);
    const uint16_t *as = shared + (int)(own - row0) * first::PITCH;
    const uint16_t *cs = shared + MMA::slopes + (int)(own - row0) * second::PITCH;
    ul_gradient_stage<MMA, first, MMA::BR, MMA::D, Q::PACK>(shared, aligned[0], row0, rows, size,
                                                            place_q);
    ul_gradient_stage<MMA, second, MMA::BR, MMA::E, G::PACK>(shared + MMA::slopes, aligned[2], row0,
                                                             rows, value_size, place_g);
    const auto load = [&](uint16_t *to, I from) {
        ul_gradient_stage<MMA, first, MMA::BC, MMA::D, K::PACK>(to, aligned[1], from, columns, size,
                                                                place_k);
        ul_gradient_stage<MMA, second, MMA::BC, MMA::E, W::PACK>(to + MMA::beside, aligned[3], from,
                                                                 columns, value_size, place_w);
    };
    const auto use = [&](I from, const uint16_t *stage) {
        float products[MMA::BC / 8][4], slopes[MMA::BC / 8][4];
        ul_gradient_products_mma<MMA, first, MMA::D>(products, as, stage);
        ul_gradient_products_mma<MMA, second, MMA::E>(slopes, cs, stage + MMA::beside);
        ul_gradient_turn<MMA>(products, slopes, own, rows, from, columns, score);
        UL_UNROLLED
        for (int j = 0; j < MMA::BC / 8; j++) {
            UL_UNROLLED
            for (int i = 0; i < 4; i++)
                sums.at[j][i] += products[j][i];
        }
    };
    ul_gradient_walk<MMA>(shared, column0, (I)(column0 + 1), load, use);
}

template <class MMA, typename I, class PUT>
__device__ __forceinline__ void ul_gradient_put_each_mma(const float (&sums)[MMA::BC / 8][4],
                                                         int64_t tile, I rows, I columns,
                                                         const PUT &put)
{
    I row0, column0;
    ul_gradient_corner<MMA>(row0, column0, tile, columns);
    row0 += (int)threadIdx.x / 32 * 16;
    UL_UNROLLED
    for (int j = 0; j < MMA::BC / 8; j++) {
        UL_UNROLLED
        for (int i = 0; i < 4; i++) {
            const I row = row0 + MMA::row(i / 2), column = column0 + MMA::column(j) + i % 2;
            if (row < rows && column < columns)
                put(row, column, sums[j][i]);
        }
    }
}

#endif
