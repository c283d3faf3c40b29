/*
 * Attention of a block of queries of one head, for kernels of target cuda; the matrix of scores is
 * never stored, tiles of it come and go:
 *
 *     for tiles of keys:
 *         scores = queries keys^T, then what the kernel makes of each of them
 *         of each row: the largest so far, exponentials, their sum
 *         result = result * (what the rise of the largest takes back) + exponentials values
 *     result / sums
 *
 * (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al.,
 * "FlashAttention", 2022.)
 *
 * The printed kernel gives functions: read_q(query, element), read_k(key, element) and
 * read_v(element, key) with a pack of neighbours along the element, score(query, key, product) and
 * put(query, element, result), called exactly once for each. A query all of whose scores are -inf
 * gives NaN, as a softmax of the whole row does, or zeros where EMPTY_IS_ZERO. No query looks at
 * keys from query + reach + 1 on: tiles of which that is true of all queries are left out.
 *
 * Invariants: all threads of the block call a function together with the same arguments; shared
 * memory is the callee's until its return, where all threads are done with it. A sum over keys is
 * formed in an order that depends on the number of keys and the sizes alone.
 * CUDA C++, and host C++ under tests/cuda_emulation. Nothing fails.
 */
#ifndef UL_ATTENTION_CUH
#define UL_ATTENTION_CUH

#include "ul_contract.cuh"

#include <math.h>

/* e^x by the unit for powers of two. */
__device__ __forceinline__ float ul_attend_exp(float x)
{
    return exp2f(x * 1.44269504088896340736f);
}

/* A NaN may be lost here, but not in the exponentials. */
__device__ __forceinline__ float ul_attend_larger(float x, float y)
{
    return x < y ? y : x;
}

/* What exponents are taken relative to: while all scores are -inf nothing is subtracted. */
__device__ __forceinline__ float ul_attend_shift(float largest)
{
    return largest == -INFINITY ? 0.0f : largest;
}

template <bool EMPTY_IS_ZERO>
__device__ __forceinline__ float ul_attend_quotient(float x, float sum)
{
    if (EMPTY_IS_ZERO && !(sum > 0.0f))
        return 0.0f;
    return x / sum;
}

/* The first key that no query before `first_behind` sees. */
template <typename I> __device__ __forceinline__ I ul_attend_end(I keys, I first_behind, I reach)
{
    return reach < keys - first_behind ? first_behind + reach : keys;
}

/* 16 x TR queries, 32 keys at a time, heads of D and E elements (padded with zeros), 128 threads:
 * thread (y, x) of 16 x 8 has TR queries, 4 keys of each tile, and every 8th group of 4 elements of
 * the result. A query's threads are neighbours in one warp. */
template <int D_, int E_, int TR_> struct ul_attend_size {
    static constexpr int D = D_, E = E_, TR = TR_, BR = 16 * TR, BC = 32, threads = 128;
    static constexpr int pitch_r = BR + 4, pitch_c = BC + 4, pitch_e = E + 4;
    static constexpr int q = D * pitch_r, p = BC * pitch_r;
    static constexpr int kv = D * pitch_c > BC *pitch_e ? D *pitch_c : BC *pitch_e;
    static constexpr int out = BR * pitch_e;
    static constexpr int elements = q + kv + p > out ? q + kv + p : out;
    static_assert(E % 32 == 0 && D % 8 == 0, "padded");
};

/* scores = queries keys^T of this thread, of the tiles [element][query] and [element][key]. */
template <class SIZE>
__device__ __forceinline__ void ul_attend_scores(float (&scores)[SIZE::TR][4], const float *qs,
                                                 const float *ks, int tx, int ty)
{
    typedef ul_pack_of<float, SIZE::TR> rows;
    typedef ul_pack_of<float, 4> four;
    UL_UNROLLED
    for (int r = 0; r < SIZE::TR; r++) {
        UL_UNROLLED
        for (int c = 0; c < 4; c++)
            scores[r][c] = 0.0f;
    }
    UL_UNROLLED
    for (int d = 0; d < SIZE::D; d++) {
        rows a = *(const rows *)(const void *)(qs + d * SIZE::pitch_r + ty * SIZE::TR);
        four b = *(const four *)(const void *)(ks + d * SIZE::pitch_c + tx * 4);
        UL_UNROLLED
        for (int r = 0; r < SIZE::TR; r++) {
            UL_UNROLLED
            for (int c = 0; c < 4; c++)
                scores[r][c] += a.at[r] * b.at[c];
        }
    }
}

/* Exponentials in place of a row's scores, from key `key` on; gives what takes back the rise of the
 * largest. */
template <typename I, class SCORE>
__device__ __forceinline__ float ul_attend_row(float (&scores)[4], float &largest, float &total,
                                               I row, I queries, I key, I keys, const SCORE &score)
{
    float most = -INFINITY;
    UL_UNROLLED
    for (int c = 0; c < 4; c++) {
        const I at = key + c;
        scores[c] = at < keys && row < queries ? score(row, at, scores[c]) : -INFINITY;
        most = ul_attend_larger(most, scores[c]);
    }
    UL_UNROLLED
    for (int lane = 1; lane < 8; lane *= 2)
        most = ul_attend_larger(most, __shfl_xor_sync(0xffffffffu, most, lane));
    most = ul_attend_larger(largest, most);
    const float shift = ul_attend_shift(most), factor = ul_attend_exp(largest - shift);
    largest = most;
    total *= factor;
    UL_UNROLLED
    for (int c = 0; c < 4; c++) {
        scores[c] = ul_attend_exp(scores[c] - shift);
        total += scores[c];
    }
    return factor;
}

/* This thread's exponentials as part of the tile [key][query]. */
template <class SIZE>
__device__ __forceinline__ void ul_attend_keep(const float (&scores)[SIZE::TR][4], float *ps,
                                               int tx, int ty)
{
    typedef ul_pack_of<float, SIZE::TR> rows;
    UL_UNROLLED
    for (int c = 0; c < 4; c++) {
        rows x;
        UL_UNROLLED
        for (int r = 0; r < SIZE::TR; r++)
            x.at[r] = scores[r][c];
        *(rows *)(void *)(ps + (tx * 4 + c) * SIZE::pitch_r + ty * SIZE::TR) = x;
    }
}

/* result += exponentials values, of the tiles [key][query] and [key][element]. */
template <class SIZE>
__device__ __forceinline__ void ul_attend_values(float (&result)[SIZE::TR][SIZE::E / 8],
                                                 const float *ps, const float *vs, int tx, int ty)
{
    typedef ul_pack_of<float, SIZE::TR> rows;
    typedef ul_pack_of<float, 4> four;
    UL_UNROLLED
    for (int c = 0; c < SIZE::BC; c++) {
        rows a = *(const rows *)(const void *)(ps + c * SIZE::pitch_r + ty * SIZE::TR);
        UL_UNROLLED
        for (int g = 0; g < SIZE::E / 32; g++) {
            four b = *(const four *)(const void *)(vs + c * SIZE::pitch_e + g * 32 + tx * 4);
            UL_UNROLLED
            for (int r = 0; r < SIZE::TR; r++) {
                UL_UNROLLED
                for (int e = 0; e < 4; e++)
                    result[r][4 * g + e] += a.at[r] * b.at[e];
            }
        }
    }
}

/* Puts the quotients through shared memory, neighbours along the element. */
template <class SIZE, bool EMPTY_IS_ZERO, typename I, class PUT>
__device__ __forceinline__ void
ul_attend_put(const float (&result)[SIZE::TR][SIZE::E / 8], const float (&totals)[SIZE::TR],
              float *shared, int tx, int ty, I row0, I queries, I value_size, const PUT &put)
{
    UL_UNROLLED
    for (int r = 0; r < SIZE::TR; r++) {
        float total = totals[r];
        UL_UNROLLED
        for (int lane = 1; lane < 8; lane *= 2)
            total += __shfl_xor_sync(0xffffffffu, total, lane);
        UL_UNROLLED
        for (int e = 0; e < SIZE::E / 8; e++)
            shared[(ty * SIZE::TR + r) * SIZE::pitch_e + e / 4 * 32 + tx * 4 + e % 4] =
                ul_attend_quotient<EMPTY_IS_ZERO>(result[r][e], total);
    }
    __syncthreads();
    UL_ROLLED
    for (int e = (int)threadIdx.x; e < SIZE::BR * SIZE::E; e += SIZE::threads) {
        const I row = row0 + e / SIZE::E, element = e % SIZE::E;
        if (row < queries && element < value_size)
            put(row, element, shared[e / SIZE::E * SIZE::pitch_e + e % SIZE::E]);
    }
    __syncthreads();
}

/* Query block `tile`. Q, K, V: an ul_reading along the element. */
template <class SIZE, class Q, class K, class V, bool EMPTY_IS_ZERO, typename I, class READ_Q,
          class READ_K, class READ_V, class SCORE, class PUT>
__device__ __forceinline__ void ul_attend_tile(float *shared, int64_t tile, I queries, I keys,
                                               I reach, I size, I value_size, const READ_Q &read_q,
                                               const READ_K &read_k, const READ_V &read_v,
                                               const SCORE &score, const PUT &put)
{
    constexpr int TR = SIZE::TR, BC = SIZE::BC, elements = SIZE::E / 8;
    const int tx = (int)threadIdx.x % 8, ty = (int)threadIdx.x / 8;
    const I row0 = (I)(tile * SIZE::BR), end = ul_attend_end(keys, (I)(row0 + SIZE::BR), reach);
    float *qs = shared, *kvs = shared + SIZE::q, *ps = kvs + SIZE::kv;
    float largest[TR], total[TR], result[TR][elements], scores[TR][4];
    UL_UNROLLED
    for (int r = 0; r < TR; r++) {
        largest[r] = -INFINITY;
        total[r] = 0.0f;
        UL_UNROLLED
        for (int e = 0; e < elements; e++)
            result[r][e] = 0.0f;
    }
    {
        ul_tile_part<float, SIZE::BR, SIZE::D, SIZE::threads, Q> part_q;
        part_q.load(row0, queries, I(0), size, read_q);
        part_q.template store<SIZE::pitch_r>(qs);
    }
    ul_tile_part<float, BC, SIZE::D, SIZE::threads, K> part_k;
    ul_tile_part<float, SIZE::E, BC, SIZE::threads, V> part_v;
    part_k.load(I(0), keys, I(0), size, read_k);
    UL_ROLLED
    for (I key0 = 0; key0 < end; key0 += BC) {
        part_k.template store<SIZE::pitch_c>(kvs);
        __syncthreads();
        part_v.load(I(0), value_size, key0, keys, read_v);
        ul_attend_scores<SIZE>(scores, qs, kvs, tx, ty);
        __syncthreads(); /* values take the place of keys */
        part_v.template store<SIZE::pitch_e>(kvs);
        if (key0 + BC < end)
            part_k.load((I)(key0 + BC), keys, I(0), size, read_k);
        UL_UNROLLED
        for (int r = 0; r < TR; r++) {
            const float factor =
                ul_attend_row(scores[r], largest[r], total[r], (I)(row0 + ty * TR + r), queries,
                              (I)(key0 + tx * 4), keys, score);
            UL_UNROLLED
            for (int e = 0; e < elements; e++)
                result[r][e] *= factor;
        }
        ul_attend_keep<SIZE>(scores, ps, tx, ty);
        __syncthreads();
        ul_attend_values<SIZE>(result, ps, kvs, tx, ty);
        __syncthreads();
    }
    __syncthreads(); /* there may have been no key */
    ul_attend_put<SIZE, EMPTY_IS_ZERO>(result, total, shared, tx, ty, row0, queries, value_size,
                                       put);
}

/* The same on tensor cores: 64 queries, 16 to each of four warps, BC keys at a time. Queries stay
 * in fragments, so does the result; scores go through shared memory of their warp, where their
 * exponentials take their place: rounded to 16 bits, and what rounding left of them, so that
 * weights are as good as those of a softmax in f32. */
template <class KIND_, int D_, int E_, int BC_> struct ul_attend_mma {
    typedef KIND_ KIND;
    static constexpr int D = D_, E = E_, BC = BC_, BR = 64, threads = 128;
    static constexpr int pitch_d = D + 8, pitch_e = E + 8; /* of elements */
    static constexpr int pitch_s = BC + 8;                 /* of floats, a row of scores */
    static constexpr int k = BC * pitch_d, v = BC * pitch_e, q = BR * pitch_d;
    static constexpr int kv = k + v > q ? k + v : q;
    static constexpr int scores = 16 * pitch_s; /* of a warp */
    static constexpr int factors = 16 * 16;     /* of a warp */
    static constexpr int elements = kv + 4 * 2 * (scores + factors);
    static_assert(D % 16 == 0 && E % 16 == 0 && BC % 16 == 0, "padded");
};

/* Lane l has row l / 2 of its warp's scores, and every second group of 4 columns. */
template <class MMA, typename I, class SCORE>
__device__ __forceinline__ void ul_attend_softmax(float *scores, float *factors, float &largest,
                                                  float &total, I row, I queries, I key0, I keys,
                                                  const SCORE &score)
{
    typedef ul_pack_of<float, 4> four;
    typedef ul_pack_of<uint16_t, 4> four_rounded;
    constexpr int count = MMA::BC / 8;
    const int lane = (int)threadIdx.x % 32, y = lane / 2, x = lane % 2 * 4;
    four at[count];
    float most = -INFINITY;
    UL_UNROLLED
    for (int i = 0; i < count; i++) {
        at[i] = *(const four *)(const void *)(scores + y * MMA::pitch_s + 8 * i + x);
        UL_UNROLLED
        for (int e = 0; e < 4; e++) {
            const I key = key0 + 8 * i + x + e;
            at[i].at[e] = key < keys && row < queries ? score(row, key, at[i].at[e]) : -INFINITY;
            most = ul_attend_larger(most, at[i].at[e]);
        }
    }
    most = ul_attend_larger(most, __shfl_xor_sync(0xffffffffu, most, 1));
    most = ul_attend_larger(largest, most);
    const float shift = ul_attend_shift(most), factor = ul_attend_exp(largest - shift);
    largest = most;
    total *= factor;
    __syncwarp(); /* all have read their scores */
    uint16_t *rounded = (uint16_t *)(void *)scores;
    UL_UNROLLED
    for (int i = 0; i < count; i++) {
        four_rounded to, rest;
        UL_UNROLLED
        for (int e = 0; e < 4; e++) {
            const float weight = ul_attend_exp(at[i].at[e] - shift);
            total += weight;
            to.at[e] = MMA::KIND::round(weight);
            rest.at[e] = MMA::KIND::round(weight - MMA::KIND::value(to.at[e]));
        }
        uint16_t *row_of = rounded + y * 2 * MMA::pitch_s + 8 * i + x;
        *(four_rounded *)(void *)row_of = to;
        *(four_rounded *)(void *)(row_of + MMA::BC) = rest;
    }
    UL_UNROLLED
    for (int i = 0; i < 8; i++)
        factors[y * 16 + lane % 2 * 8 + i] = factor;
    __syncwarp();
}

/* Scores of this warp's queries with the tile's keys, [query][key]. */
template <class MMA, class FRAGMENT_Q>
__device__ __forceinline__ void
ul_attend_scores_mma(float *scores, const FRAGMENT_Q (&q)[MMA::D / 16], const uint16_t *ks)
{
    using namespace nvcuda;
    typedef typename MMA::KIND KIND;
    typename ul_fragment_of<wmma::matrix_b, KIND, false>::type k;
    UL_UNROLLED
    for (int c = 0; c < MMA::BC / 16; c++) {
        wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
        wmma::fill_fragment(sum, 0.0f);
        UL_UNROLLED
        for (int d = 0; d < MMA::D / 16; d++) {
            ul_fragment_load<KIND>(k, ks + 16 * c * MMA::pitch_d + 16 * d, MMA::pitch_d);
            wmma::mma_sync(sum, q[d], k, sum);
        }
        wmma::store_matrix_sync(scores + 16 * c, sum, MMA::pitch_s, wmma::mem_row_major);
    }
    __syncwarp();
}

/* result = result * factors + weights values, the weights in two parts. */
template <class MMA, class FRAGMENT>
__device__ __forceinline__ void ul_attend_values_mma(FRAGMENT (&result)[MMA::E / 16],
                                                     const float *factors, const uint16_t *weights,
                                                     const uint16_t *vs)
{
    using namespace nvcuda;
    typedef typename MMA::KIND KIND;
    typename ul_fragment_of<wmma::matrix_a, KIND, true>::type p, rest;
    typename ul_fragment_of<wmma::matrix_b, KIND, true>::type v;
    FRAGMENT factor;
    wmma::load_matrix_sync(factor, factors, 16, wmma::mem_row_major);
    UL_UNROLLED
    for (int e = 0; e < MMA::E / 16; e++) {
        UL_UNROLLED
        for (int i = 0; i < (int)factor.num_elements; i++)
            result[e].x[i] *= factor.x[i];
    }
    UL_ROLLED /* fragments of one round at a time, so that registers do */
        for (int c = 0; c < MMA::BC / 16; c++)
    {
        ul_fragment_load<KIND>(p, weights + 16 * c, 2 * MMA::pitch_s);
        ul_fragment_load<KIND>(rest, weights + MMA::BC + 16 * c, 2 * MMA::pitch_s);
        UL_UNROLLED
        for (int e = 0; e < MMA::E / 16; e++) {
            ul_fragment_load<KIND>(v, vs + 16 * c * MMA::pitch_e + 16 * e, MMA::pitch_e);
            wmma::mma_sync(result[e], rest, v, result[e]);
            wmma::mma_sync(result[e], p, v, result[e]);
        }
    }
    __syncwarp();
}

/* Puts the quotients of a warp's queries through `place`, one fragment after the other. */
template <class MMA, bool EMPTY_IS_ZERO, typename I, class FRAGMENT, class PUT>
__device__ __forceinline__ void ul_attend_put_mma(const FRAGMENT (&result)[MMA::E / 16],
                                                  float total, float *place, I row0, I queries,
                                                  I value_size, const PUT &put)
{
    using namespace nvcuda;
    const int lane = (int)threadIdx.x % 32;
    total += __shfl_xor_sync(0xffffffffu, total, 1);
    UL_ROLLED
    for (int e = 0; e < MMA::E / 16; e++) {
        UL_UNROLLED
        for (int i = 0; i < MMA::E / 16; i++) /* in registers: no index at run time */
            if (i == e)
                wmma::store_matrix_sync(place, result[i], 16, wmma::mem_row_major);
        __syncwarp();
        UL_UNROLLED
        for (int i = 0; i < 8; i++) {
            const int y = (lane + 32 * i) / 16, x = (lane + 32 * i) % 16;
            const float sum = __shfl_sync(0xffffffffu, total, 2 * y);
            const I to = row0 + y, element = 16 * e + x;
            if (to < queries && element < value_size)
                put(to, element, ul_attend_quotient<EMPTY_IS_ZERO>(place[y * 16 + x], sum));
        }
        __syncwarp();
    }
}

template <class MMA, class Q, class K, class V, bool EMPTY_IS_ZERO, typename I, class READ_Q,
          class READ_K, class READ_V, class SCORE, class PUT>
__device__ __forceinline__ void
ul_attend_tile_mma(uint16_t *shared, int64_t tile, I queries, I keys, I reach, I size, I value_size,
                   const READ_Q &read_q, const READ_K &read_k, const READ_V &read_v,
                   const SCORE &score, const PUT &put)
{
    using namespace nvcuda;
    typedef typename MMA::KIND KIND;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const I row0 = (I)(tile * MMA::BR), first = (I)(row0 + 16 * warp);
    const I end = ul_attend_end(keys, (I)(row0 + MMA::BR), reach);
    uint16_t *ks = shared, *vs = shared + MMA::k;
    float *scores = (float *)(void *)(shared + MMA::kv) + warp * MMA::scores;
    float *factors = (float *)(void *)(shared + MMA::kv) + 4 * MMA::scores + warp * MMA::factors;
    typename ul_fragment_of<wmma::matrix_a, KIND, true>::type q[MMA::D / 16];
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> result[MMA::E / 16];
    {
        ul_tile_part<uint16_t, MMA::BR, MMA::D, MMA::threads, Q> part_q;
        part_q.load(row0, queries, I(0), size, read_q);
        part_q.template store_as_read<MMA::pitch_d>(shared);
    }
    __syncthreads();
    UL_UNROLLED
    for (int d = 0; d < MMA::D / 16; d++)
        ul_fragment_load<KIND>(q[d], shared + 16 * warp * MMA::pitch_d + 16 * d, MMA::pitch_d);
    UL_UNROLLED
    for (int e = 0; e < MMA::E / 16; e++)
        wmma::fill_fragment(result[e], 0.0f);
    float largest = -INFINITY, total = 0.0f;
    ul_tile_part<uint16_t, MMA::BC, MMA::D, MMA::threads, K> part_k;
    ul_tile_part<uint16_t, MMA::E, MMA::BC, MMA::threads, V> part_v;
    part_k.load(I(0), keys, I(0), size, read_k);
    part_v.load(I(0), value_size, I(0), keys, read_v);
    UL_ROLLED
    for (I key0 = 0; key0 < end; key0 += MMA::BC) {
        const bool has_next = key0 + MMA::BC < end;
        const I next = key0 + MMA::BC;
        __syncthreads(); /* all are done with the last tile, and with what held the queries */
        part_k.template store_as_read<MMA::pitch_d>(ks);
        part_v.template store_as_read<MMA::pitch_e>(vs);
        __syncthreads();
        if (has_next)
            part_k.load(next, keys, I(0), size, read_k);
        ul_attend_scores_mma<MMA>(scores, q, ks);
        ul_attend_softmax<MMA>(scores, factors, largest, total, (I)(first + lane / 2), queries,
                               key0, keys, score);
        if (has_next)
            part_v.load(I(0), value_size, next, keys, read_v);
        ul_attend_values_mma<MMA>(result, factors, (const uint16_t *)(const void *)scores, vs);
    }
    ul_attend_put_mma<MMA, EMPTY_IS_ZERO>(result, total, factors, first, queries, value_size, put);
    __syncthreads();
}

#endif
