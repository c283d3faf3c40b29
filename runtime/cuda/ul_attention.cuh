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
 * formed in an order that depends on the number of keys, the sizes and the shape of a block alone,
 * which the compiler chooses by the number of queries and heads.
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
    return fmaxf(x, y);
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
    float max = -INFINITY;
    UL_UNROLLED
    for (int c = 0; c < 4; c++) {
        const I at = key + c;
        scores[c] = at < keys && row < queries ? score(row, at, scores[c]) : -INFINITY;
        max = ul_attend_larger(max, scores[c]);
    }
    UL_UNROLLED
    for (int lane = 1; lane < 8; lane *= 2)
        max = ul_attend_larger(max, __shfl_xor_sync(0xffffffffu, max, lane));
    max = ul_attend_larger(largest, max);
    const float shift = ul_attend_shift(max), factor = ul_attend_exp(largest - shift);
    largest = max;
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
template <class SIZE, bool EMPTY_IS_ZERO, bool IS_PART, typename I, class PUT>
__device__ __forceinline__ void
ul_attend_put(const float (&result)[SIZE::TR][SIZE::E / 8], const float (&largest)[SIZE::TR],
              const float (&totals)[SIZE::TR], float *shared, int tx, int ty, I row0, I queries,
              I value_size, const PUT &put)
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
                IS_PART ? result[r][e] : ul_attend_quotient<EMPTY_IS_ZERO>(result[r][e], total);
        const I row = row0 + ty * SIZE::TR + r;
        if (IS_PART && tx == 0 && row < queries) {
            put(row, value_size, largest[r]);
            put(row, (I)(value_size + 1), total);
        }
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

/* Query block `tile`. Q, K, V: an ul_reading along the element. IS_PART: of keys `begin` to
 * `before` alone, and what is put is no quotient; behind the elements come the largest score and
 * the sum. */
template <class SIZE, class Q, class K, class V, bool EMPTY_IS_ZERO, bool IS_PART, typename I,
          class READ_Q, class READ_K, class READ_V, class SCORE, class PUT>
__device__ __forceinline__ void
ul_attend_tile(float *shared, int64_t tile, I queries, I keys, I begin, I before, I reach, I size,
               I value_size, const READ_Q &read_q, const READ_K &read_k, const READ_V &read_v,
               const SCORE &score, const PUT &put)
{
    constexpr int TR = SIZE::TR, BC = SIZE::BC, elements = SIZE::E / 8;
    const int tx = (int)threadIdx.x % 8, ty = (int)threadIdx.x / 8;
    const I row0 = (I)(tile * SIZE::BR), end = ul_attend_end(before, (I)(row0 + SIZE::BR), reach);
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
    part_k.load(begin, keys, I(0), size, read_k);
    UL_ROLLED
    for (I key0 = begin; key0 < end; key0 += BC) {
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
    ul_attend_put<SIZE, EMPTY_IS_ZERO, IS_PART>(result, largest, total, shared, tx, ty, row0,
                                                queries, value_size, put);
}

/* The same on tensor cores. Each of ROWS x GROUPS warps has DOWN bands of 16 queries, and of each
 * BK keys that lie in shared memory its group's part, BC keys at a time; queries stay in fragments,
 * so does the result. Scores go through shared memory of their warp, where their exponentials take
 * their place, rounded to 16 bits: where ROUNDS no more than that, and the rounded ones are summed,
 * so that weights add up to one; else also what rounding left of them, so that weights are as good
 * as those of a softmax in f32. At the end the groups' results are added in order.
 *
 * What bounds it is shared memory (128 bytes a cycle of a processor): for 16 queries and 16 keys,
 * scores come and go with 3 KiB, and fragments of keys and values with 16 (D + E) bytes a band, or
 * half of that where a warp has two bands.
 *
 * Eight elements more than there must be let 8 rows of fragments begin in different banks, and let
 * 4 rows two apart lie side by side in them: these are what lanes read and write at a time. */
template <class KIND_, int D_, int E_, int BC_, int DOWN_, int ROWS_, int GROUPS_, int STEPS_,
          bool ROUNDS_>
struct ul_attend_mma {
    typedef KIND_ KIND;
    static constexpr int D = D_, E = E_, BC = BC_, DOWN = DOWN_, ROWS = ROWS_, GROUPS = GROUPS_;
    static constexpr int STEPS = STEPS_; /* of BC keys, of a group */
    static constexpr bool ROUNDS = ROUNDS_;
    static constexpr int threads = 32 * ROWS * GROUPS, BR = 16 * DOWN * ROWS;
    static constexpr int part = BC * STEPS, BK = part * GROUPS;
    static constexpr int pitch_d = D + 8, pitch_e = E + 8; /* of elements */
    static constexpr int pitch_s = BC + 8;                 /* of floats; of elements for weights */
    static constexpr int k = BK * pitch_d, v = BK * pitch_e, q = BR * pitch_d;
    static constexpr int kv = k + v > q ? k + v : q;
    static constexpr int weights = 8 * pitch_s, factors = 16 * 16; /* of a band, as floats */
    static constexpr int factors_at = ROUNDS ? weights : 2 * weights;
    static constexpr int band =
        factors_at + factors > 2 * weights ? factors_at + factors : 2 * weights;
    static constexpr int chunk = E % 32 == 0 ? 32 : 16; /* of the result, on its way out */
    static constexpr int pitch_o = chunk + 8;
    static constexpr int out = GROUPS * BR * pitch_o + (2 * GROUPS + 1) * BR;
    static constexpr int in = kv + 2 * ROWS * GROUPS * DOWN * band;
    static constexpr int elements = in > 2 * out ? in : 2 * out;
    static_assert(D % 16 == 0 && E % 16 == 0 && BC % 16 == 0, "padded");

    /* The i-th of a lane's four rows of a band. Eight lanes have the same, and of these each has
     * every eighth pair of columns. */
    static __device__ __forceinline__ int row(int i)
    {
        return (int)threadIdx.x % 32 / 8 * 2 + i % 2 + i / 2 * 8;
    }
    static __device__ __forceinline__ int column(int j)
    {
        return (int)threadIdx.x % 8 * 2 + 16 * j;
    }
};

/* What is known of a lane's rows of a band: the same in all of a row's lanes but for `total`, which
 * is of the lane's columns. */
struct ul_attend_rows {
    float largest[4], total[4];
};

/* Weights in place of a band's scores, and behind them what takes back the rise of the largest;
 * false where nothing rose. */
template <class MMA, typename I, class SCORE>
__device__ __forceinline__ bool ul_attend_softmax(float *band, ul_attend_rows &rows, I row0,
                                                  I queries, I key0, I keys, const SCORE &score)
{
    typedef ul_pack_of<float, 2> two;
    typedef typename MMA::KIND KIND;
    constexpr int count = MMA::BC / 16;
    const bool is_full = keys % MMA::BC == 0;
    two at[4][count];
    float factors[4];
    bool rises = false;
    UL_UNROLLED
    for (int i = 0; i < 4; i++) {
        const I row = row0 + MMA::row(i) < queries ? row0 + MMA::row(i) : queries - 1;
        float max = -INFINITY;
        UL_UNROLLED
        for (int j = 0; j < count; j++) {
            at[i][j] =
                *(const two *)(const void *)(band + MMA::row(i) * MMA::pitch_s + MMA::column(j));
            UL_UNROLLED
            for (int e = 0; e < 2; e++) {
                const I key = key0 + MMA::column(j) + e;
                float &x = at[i][j].at[e];
                x = is_full || key < keys ? score(row, key, x) : -INFINITY;
                max = ul_attend_larger(max, x);
            }
        }
        UL_UNROLLED
        for (int lane = 1; lane < 8; lane *= 2)
            max = ul_attend_larger(max, __shfl_xor_sync(0xffffffffu, max, lane));
        max = ul_attend_larger(rows.largest[i], max);
        const float shift = ul_attend_shift(max);
        factors[i] = ul_attend_exp(rows.largest[i] - shift);
        rises = rises || factors[i] != 1.0f;
        rows.largest[i] = max;
        rows.total[i] *= factors[i];
        UL_UNROLLED
        for (int j = 0; j < count; j++) {
            UL_UNROLLED
            for (int e = 0; e < 2; e++)
                at[i][j].at[e] = ul_attend_exp(at[i][j].at[e] - shift);
        }
    }
    __syncwarp(); /* all have read their scores */
    UL_UNROLLED
    for (int i = 0; i < 4; i++) {
        UL_UNROLLED
        for (int j = 0; j < count; j++) {
            ul_pack_of<ul_bits16, 2> to, rest;
            UL_UNROLLED
            for (int e = 0; e < 2; e++) {
                const float weight = at[i][j].at[e];
                const uint16_t rounded = KIND::round(weight);
                const float left = weight - KIND::value(rounded);
                rows.total[i] += MMA::ROUNDS ? KIND::value(rounded) : weight;
                to.put(e, rounded);
                rest.put(e, KIND::round(left));
            }
            uint16_t *place = (uint16_t *)(void *)band + MMA::row(i) * MMA::pitch_s;
            *(ul_pack_of<ul_bits16, 2> *)(void *)(place + MMA::column(j)) = to;
            if constexpr (!MMA::ROUNDS)
                *(ul_pack_of<ul_bits16, 2> *)(void *)(place + 2 * MMA::weights + MMA::column(j)) =
                    rest;
        }
        two factor;
        factor.at[0] = factor.at[1] = factors[i];
        *(two *)(void *)(band + MMA::factors_at + MMA::row(i) * 16 + MMA::column(0)) = factor;
    }
    __syncwarp();
    return __any_sync(0xffffffffu, rises);
}

/* Scores of this warp's queries with BC keys, [query][key] in each of its bands. */
template <class MMA, class FRAGMENT_Q>
__device__ __forceinline__ void ul_attend_scores_mma(float *bands,
                                                     const FRAGMENT_Q (&q)[MMA::DOWN][MMA::D / 16],
                                                     const uint16_t *ks)
{
    using namespace nvcuda;
    typedef typename MMA::KIND KIND;
    typename ul_fragment_of<wmma::matrix_b, KIND, false>::type k;
    UL_UNROLLED
    for (int c = 0; c < MMA::BC / 16; c++) {
        wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[MMA::DOWN];
        UL_UNROLLED
        for (int b = 0; b < MMA::DOWN; b++)
            wmma::fill_fragment(sums[b], 0.0f);
        UL_UNROLLED
        for (int d = 0; d < MMA::D / 16; d++) {
            ul_fragment_load<KIND>(k, ks + 16 * c * MMA::pitch_d + 16 * d, MMA::pitch_d);
            UL_UNROLLED
            for (int b = 0; b < MMA::DOWN; b++)
                wmma::mma_sync(sums[b], q[b][d], k, sums[b]);
        }
        UL_UNROLLED
        for (int b = 0; b < MMA::DOWN; b++)
            wmma::store_matrix_sync(bands + b * MMA::band + 16 * c, sums[b], MMA::pitch_s,
                                    wmma::mem_row_major);
    }
    __syncwarp();
}

/* result = result * factors, of a band. */
template <class MMA, class FRAGMENT>
__device__ __forceinline__ void ul_attend_rescale(FRAGMENT (&result)[MMA::E / 16],
                                                    const float *band)
{
    FRAGMENT factor;
    nvcuda::wmma::load_matrix_sync(factor, band + MMA::factors_at, 16, nvcuda::wmma::mem_row_major);
    UL_UNROLLED
    for (int e = 0; e < MMA::E / 16; e++) {
        UL_UNROLLED
        for (int i = 0; i < (int)factor.num_elements; i++)
            result[e].x[i] *= factor.x[i];
    }
}

/* result = result + weights values, the weights in one part or in two. */
template <class MMA, class FRAGMENT>
__device__ __forceinline__ void ul_attend_values_mma(FRAGMENT (&result)[MMA::DOWN][MMA::E / 16],
                                                     const float *bands, const uint16_t *vs)
{
    using namespace nvcuda;
    typedef typename MMA::KIND KIND;
    typename ul_fragment_of<wmma::matrix_a, KIND, true>::type p[MMA::DOWN], rest[MMA::DOWN];
    typename ul_fragment_of<wmma::matrix_b, KIND, true>::type v;
    UL_UNROLLED
    for (int c = 0; c < MMA::BC / 16; c++) {
        UL_UNROLLED
        for (int b = 0; b < MMA::DOWN; b++) {
            const uint16_t *weights =
                (const uint16_t *)(const void *)(bands + b * MMA::band) + 16 * c;
            ul_fragment_load<KIND>(p[b], weights, MMA::pitch_s);
            if constexpr (!MMA::ROUNDS)
                ul_fragment_load<KIND>(rest[b], weights + 2 * MMA::weights, MMA::pitch_s);
        }
        UL_UNROLLED
        for (int e = 0; e < MMA::E / 16; e++) {
            ul_fragment_load<KIND>(v, vs + 16 * c * MMA::pitch_e + 16 * e, MMA::pitch_e);
            UL_UNROLLED
            for (int b = 0; b < MMA::DOWN; b++) {
                if constexpr (!MMA::ROUNDS)
                    wmma::mma_sync(result[b][e], rest[b], v, result[b][e]);
                wmma::mma_sync(result[b][e], p[b], v, result[b][e]);
            }
        }
    }
    __syncwarp();
}

/* The block's largest scores and sums of weights, of each group and query; then what each group's
 * result is multiplied by, the sums of all groups' weights, and, behind what the groups have, the
 * largest of all. */
template <class MMA>
__device__ __forceinline__ void ul_attend_join(float *norms, ul_attend_rows (&rows)[MMA::DOWN])
{
    constexpr int BR = MMA::BR, GROUPS = MMA::GROUPS;
    const int warp = (int)threadIdx.x / 32;
    float *mine = norms + warp / MMA::ROWS * BR + warp % MMA::ROWS * 16 * MMA::DOWN;
    UL_UNROLLED
    for (int b = 0; b < MMA::DOWN; b++) {
        UL_UNROLLED
        for (int i = 0; i < 4; i++) {
            float total = rows[b].total[i];
            UL_UNROLLED
            for (int lane = 1; lane < 8; lane *= 2)
                total += __shfl_xor_sync(0xffffffffu, total, lane);
            if ((int)threadIdx.x % 8 == 0) {
                mine[16 * b + MMA::row(i)] = rows[b].largest[i];
                mine[16 * b + MMA::row(i) + GROUPS * BR] = total;
            }
        }
    }
    __syncthreads();
    UL_ROLLED
    for (int y = (int)threadIdx.x; y < BR; y += MMA::threads) {
        float max = norms[y], total = 0.0f;
        UL_UNROLLED
        for (int g = 1; g < GROUPS; g++)
            max = ul_attend_larger(max, norms[g * BR + y]);
        const float shift = ul_attend_shift(max);
        UL_UNROLLED
        for (int g = 0; g < GROUPS; g++) {
            const float factor = ul_attend_exp(norms[g * BR + y] - shift);
            total += factor * norms[(GROUPS + g) * BR + y];
            norms[g * BR + y] = factor;
        }
        norms[GROUPS * BR + y] = total;
        norms[2 * GROUPS * BR + y] = max;
    }
    __syncthreads();
}

/* Puts the quotients through `place`, some elements of all queries after the other. */
template <class MMA, bool EMPTY_IS_ZERO, bool IS_PART, typename I, class FRAGMENT, class PUT>
__device__ __forceinline__ void ul_attend_put_mma(const FRAGMENT (&result)[MMA::DOWN][MMA::E / 16],
                                                  const float *norms, float *place, I row0,
                                                  I queries, I value_size, const PUT &put)
{
    constexpr int BR = MMA::BR, chunk = MMA::chunk, pitch = MMA::pitch_o;
    const int warp = (int)threadIdx.x / 32;
    float *mine = place + (warp / MMA::ROWS * BR + warp % MMA::ROWS * 16 * MMA::DOWN) * pitch;
    UL_ROLLED
    for (int e0 = 0; e0 < MMA::E; e0 += chunk) {
        UL_UNROLLED
        for (int b = 0; b < MMA::DOWN; b++) {
            UL_UNROLLED
            for (int e = 0; e < MMA::E; e += 16) /* in registers: no index at run time */
                if (e >= e0 && e < e0 + chunk)
                    nvcuda::wmma::store_matrix_sync(mine + 16 * b * pitch + e % chunk,
                                                    result[b][e / 16], pitch,
                                                    nvcuda::wmma::mem_row_major);
        }
        __syncthreads();
        UL_ROLLED
        for (int i = (int)threadIdx.x; i < BR * chunk; i += MMA::threads) {
            const int y = i / chunk, x = i % chunk;
            const I row = row0 + y, element = e0 + x;
            float sum = 0.0f;
            UL_UNROLLED
            for (int g = 0; g < MMA::GROUPS; g++)
                sum += norms[g * BR + y] * place[(g * BR + y) * pitch + x];
            if (row < queries && element < value_size)
                put(row, element,
                    IS_PART ? sum
                            : ul_attend_quotient<EMPTY_IS_ZERO>(sum, norms[MMA::GROUPS * BR + y]));
        }
        __syncthreads();
    }
    UL_ROLLED
    for (int y = (int)threadIdx.x; IS_PART && y < BR; y += MMA::threads) {
        const I row = row0 + y;
        if (row < queries) {
            put(row, value_size, norms[2 * MMA::GROUPS * BR + y]);
            put(row, (I)(value_size + 1), norms[MMA::GROUPS * BR + y]);
        }
    }
    __syncthreads();
}

template <class MMA, class Q, class K, class V, bool EMPTY_IS_ZERO, bool IS_PART, typename I,
          class READ_Q, class READ_K, class READ_V, class SCORE, class PUT>
__device__ __forceinline__ void
ul_attend_tile_mma(uint16_t *shared, int64_t tile, I queries, I keys, I begin, I before, I reach,
                   I size, I value_size, const READ_Q &read_q, const READ_K &read_k,
                   const READ_V &read_v, const SCORE &score, const PUT &put)
{
    using namespace nvcuda;
    typedef typename MMA::KIND KIND;
    constexpr int DOWN = MMA::DOWN;
    const int warp = (int)threadIdx.x / 32, band = warp % MMA::ROWS * DOWN * 16;
    const int part = warp / MMA::ROWS * MMA::part;
    const I row0 = (I)(tile * MMA::BR), first = (I)(row0 + band);
    const I end = ul_attend_end(before, (I)(row0 + MMA::BR), reach);
    const I own_end = first < queries ? ul_attend_end(before, (I)(first + 16 * DOWN), reach) : 0;
    uint16_t *ks = shared, *vs = shared + MMA::k;
    float *bands = (float *)(void *)(shared + MMA::kv) + warp * DOWN * MMA::band;
    typename ul_fragment_of<wmma::matrix_a, KIND, true>::type q[DOWN][MMA::D / 16];
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> result[DOWN][MMA::E / 16];
    ul_tile_part<ul_bits16, MMA::BK, MMA::D, MMA::threads, K> part_k;
    ul_tile_part<ul_bits16, MMA::E, MMA::BK, MMA::threads, V> part_v;
    {
        ul_tile_part<ul_bits16, MMA::BR, MMA::D, MMA::threads, Q> part_q;
        part_q.load(row0, queries, I(0), size, read_q);
        part_k.load(begin, keys, I(0), size, read_k);
        part_v.load(I(0), value_size, begin, keys, read_v);
        part_q.template store_as_read<MMA::pitch_d>(shared);
    }
    __syncthreads();
    ul_attend_rows rows[DOWN];
    UL_UNROLLED
    for (int b = 0; b < DOWN; b++) {
        UL_UNROLLED
        for (int d = 0; d < MMA::D / 16; d++)
            ul_fragment_load<KIND>(q[b][d], shared + (band + 16 * b) * MMA::pitch_d + 16 * d,
                                   MMA::pitch_d);
        UL_UNROLLED
        for (int e = 0; e < MMA::E / 16; e++)
            wmma::fill_fragment(result[b][e], 0.0f);
        UL_UNROLLED
        for (int i = 0; i < 4; i++) {
            rows[b].largest[i] = -INFINITY;
            rows[b].total[i] = 0.0f;
        }
    }
    UL_ROLLED
    for (I key0 = begin; key0 < end; key0 += MMA::BK) {
        const I next = key0 + MMA::BK;
        __syncthreads(); /* all are done with the last tile, and with what held the queries */
        part_k.template store_as_read<MMA::pitch_d>(ks);
        part_v.template store_as_read<MMA::pitch_e>(vs);
        __syncthreads();
        if (next < end)
            part_k.load(next, keys, I(0), size, read_k);
        UL_ROLLED
        for (int s = 0; s < MMA::STEPS; s++) {
            const int at = part + s * MMA::BC;
            const bool sees = key0 + at < own_end;
            if (sees) {
                ul_attend_scores_mma<MMA>(bands, q, ks + at * MMA::pitch_d);
                UL_UNROLLED
                for (int b = 0; b < DOWN; b++)
                    if (ul_attend_softmax<MMA>(bands + b * MMA::band, rows[b], (I)(first + 16 * b),
                                               queries, (I)(key0 + at), keys, score))
                        ul_attend_rescale<MMA>(result[b], bands + b * MMA::band);
            }
            if (s == MMA::STEPS - 1 && next < end)
                part_v.load(I(0), value_size, next, keys, read_v);
            if (sees)
                ul_attend_values_mma<MMA>(result, bands, vs + at * MMA::pitch_e);
        }
    }
    __syncthreads(); /* what comes now lies where keys did */
    float *norms = (float *)(void *)shared, *place = norms;
    norms += MMA::GROUPS * MMA::BR * MMA::pitch_o;
    ul_attend_join<MMA>(norms, rows);
    ul_attend_put_mma<MMA, EMPTY_IS_ZERO, IS_PART>(result, norms, place, row0, queries, value_size,
                                                   put);
}

#endif
