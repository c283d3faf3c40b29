/* SPDX-License-Identifier: 0BSD */
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
 * read_v(element, key) with a pack of neighbours along the element (on tensor cores place_q and so
 * on, which say where it lies), score(query, key, product) and put(query, element, result), called
 * exactly once for each; where weights are dropped also weight_factor(query, key). A query all of
 * whose scores are -inf gives what EMPTY says. No query looks at keys from query + reach + 1 on:
 * tiles of which that is true of all queries are left out.
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

/* What a query that sees no key gives: NaN, as a softmax of the whole row does, or zeros; or zeros
 * wherever a weight is NaN. */
enum ul_attend_empty { UL_EMPTY_IS_NAN, UL_EMPTY_IS_ZERO, UL_NAN_IS_ZERO };

#define UL_ATTEND_LOG2E 1.44269504088896340736f

/* e^x by the unit for powers of two. */
__device__ __forceinline__ float ul_attend_exp(float x)
{
    return exp2f(x * UL_ATTEND_LOG2E);
}

/* A NaN may be lost here, but not in the exponentials. */
__device__ __forceinline__ float ul_attend_larger(float x, float y)
{
    return fmaxf(x, y);
}

/* What exponents are relative to: as long as all scores are -inf, nothing is subtracted. */
__device__ __forceinline__ float ul_attend_shift(float largest)
{
    return largest == -INFINITY ? 0.0f : largest;
}

/* The factor where no weight is dropped. A factor depends on a query and a key. */
struct ul_attend_keeps {
    __device__ __forceinline__ float operator()(int64_t, int64_t) const
    {
        return 1.0f;
    }
};

template <ul_attend_empty EMPTY>
__device__ __forceinline__ float ul_attend_quotient(float x, float sum)
{
    if (EMPTY == UL_NAN_IS_ZERO && !(sum > 0.0f))
        return 0.0f;
    if (EMPTY == UL_EMPTY_IS_ZERO && sum == 0.0f)
        return x;
    return x / sum;
}

/* The norm of a query, log of its sum of exp(score), from its largest score and the sum of
 * exp(score - largest). */
template <ul_attend_empty EMPTY>
__device__ __forceinline__ float ul_attend_norm(float largest, float total)
{
    if (EMPTY == UL_NAN_IS_ZERO && !(total > 0.0f))
        return INFINITY;
    if (EMPTY == UL_EMPTY_IS_ZERO && total == 0.0f)
        return 0.0f;
    return ul_attend_shift(largest) + logf(total);
}

/* The put_norm where norms are not wanted. */
struct ul_attend_no_norm {
    template <typename I> __device__ __forceinline__ void operator()(I, float) const
    {
    }
};

/* The first key that no query before `first_behind` sees. */
template <typename I> __device__ __forceinline__ I ul_attend_end(I keys, I first_behind, I reach)
{
    return reach < keys - first_behind ? first_behind + reach : keys;
}

/* 16 x TR queries, 8 x TC keys at a time, heads of D and E elements (padded with zeros), 128
 * threads: thread (y, x) of 16 x 8 has TR queries, TC keys of each tile, and every 8th group of 4
 * elements of the result. A query's threads are neighbours in one warp. */
template <int D_, int E_, int TR_, int TC_> struct ul_attend_size {
    static constexpr int D = D_, E = E_, TR = TR_, TC = TC_, BR = 16 * TR, BC = 8 * TC;
    static constexpr int threads = 128;
    static constexpr int pitch_r = BR + 4, pitch_c = BC + 4, pitch_e = E + 4;
    static constexpr int q = D * pitch_r, p = BC * pitch_r;
    static constexpr int kv = D * pitch_c > BC *pitch_e ? D *pitch_c : BC *pitch_e;
    static constexpr int out = BR * pitch_e;
    static constexpr int elements = q + kv + p > out ? q + kv + p : out;
    static_assert(E % 32 == 0 && D % 8 == 0, "padded");
};

/* Computes this thread's scores = queries keys^T from the tiles [element][query] and
 * [element][key]. */
template <class SIZE>
__device__ __forceinline__ void ul_attend_scores(float (&scores)[SIZE::TR][SIZE::TC],
                                                 const float *qs, const float *ks, int tx, int ty)
{
    typedef ul_pack_of<float, SIZE::TR> rows;
    typedef ul_pack_of<float, SIZE::TC> columns;
    UL_UNROLLED
    for (int r = 0; r < SIZE::TR; r++) {
        UL_UNROLLED
        for (int c = 0; c < SIZE::TC; c++)
            scores[r][c] = 0.0f;
    }
    UL_UNROLLED
    for (int d = 0; d < SIZE::D; d++) {
        rows a = *(const rows *)(const void *)(qs + d * SIZE::pitch_r + ty * SIZE::TR);
        columns b = *(const columns *)(const void *)(ks + d * SIZE::pitch_c + tx * SIZE::TC);
        UL_UNROLLED
        for (int r = 0; r < SIZE::TR; r++) {
            UL_UNROLLED
            for (int c = 0; c < SIZE::TC; c++)
                scores[r][c] += a.at[r] * b.at[c];
        }
    }
}

/* Replaces the scores of a row, from key `key` on, by their exponentials; multiplies these by their
 * factors once they are summed. Returns the factor for earlier sums, which corrects them for a new
 * largest score. */
template <int TC, typename I, class SCORE, class FACTOR>
__device__ __forceinline__ float ul_attend_row(float (&scores)[TC], float &largest, float &total,
                                               I row, I queries, I key, I keys, const SCORE &score,
                                               const FACTOR &weight_factor)
{
    float max = -INFINITY;
    UL_UNROLLED
    for (int c = 0; c < TC; c++) {
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
    for (int c = 0; c < TC; c++) {
        scores[c] = ul_attend_exp(scores[c] - shift);
        total += scores[c];
        scores[c] *= weight_factor(row, (I)(key + c));
    }
    return factor;
}

/* Puts this thread's exponentials into the tile [key][query]. */
template <class SIZE>
__device__ __forceinline__ void ul_attend_keep(const float (&scores)[SIZE::TR][SIZE::TC], float *ps,
                                               int tx, int ty)
{
    typedef ul_pack_of<float, SIZE::TR> rows;
    UL_UNROLLED
    for (int c = 0; c < SIZE::TC; c++) {
        rows x;
        UL_UNROLLED
        for (int r = 0; r < SIZE::TR; r++)
            x.at[r] = scores[r][c];
        *(rows *)(void *)(ps + (tx * SIZE::TC + c) * SIZE::pitch_r + ty * SIZE::TR) = x;
    }
}

/* result += exponentials values, from the tiles [key][query] and [key][element]. */
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
template <class SIZE, ul_attend_empty EMPTY, bool IS_PART, typename I, class PUT, class PUT_NORM>
__device__ __forceinline__ void
ul_attend_put(const float (&result)[SIZE::TR][SIZE::E / 8], const float (&largest)[SIZE::TR],
              const float (&totals)[SIZE::TR], float *shared, int tx, int ty, I row0, I queries,
              I value_size, const PUT &put, const PUT_NORM &put_norm)
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
                IS_PART ? result[r][e] : ul_attend_quotient<EMPTY>(result[r][e], total);
        const I row = row0 + ty * SIZE::TR + r;
        if (IS_PART && tx == 0 && row < queries) {
            put(row, value_size, largest[r]);
            put(row, (I)(value_size + 1), total);
        }
        if (!IS_PART && tx == 0 && row < queries)
            put_norm(row, ul_attend_norm<EMPTY>(largest[r], total));
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

/* Query block `tile`. Q, K, V: an ul_reading along the element. IS_PART: only the keys from `begin`
 * to `before`, and what is put is no quotient; after the elements come the largest score and the
 * sum. Else put_norm(query, norm) is called for each query as well. */
template <class SIZE, class Q, class K, class V, ul_attend_empty EMPTY, bool IS_PART, typename I,
          class READ_Q, class READ_K, class READ_V, class SCORE, class PUT,
          class PUT_NORM = ul_attend_no_norm, class FACTOR = ul_attend_keeps>
__device__ __forceinline__ void
ul_attend_tile(float *shared, int64_t tile, I queries, I keys, I begin, I before, I reach, I size,
               I value_size, const READ_Q &read_q, const READ_K &read_k, const READ_V &read_v,
               const SCORE &score, const PUT &put, const PUT_NORM &put_norm = PUT_NORM(),
               const FACTOR &weight_factor = FACTOR())
{
    constexpr int TR = SIZE::TR, BC = SIZE::BC, elements = SIZE::E / 8;
    const int tx = (int)threadIdx.x % 8, ty = (int)threadIdx.x / 8;
    const I row0 = (I)(tile * SIZE::BR), end = ul_attend_end(before, (I)(row0 + SIZE::BR), reach);
    float *qs = shared, *kvs = shared + SIZE::q, *ps = kvs + SIZE::kv;
    float largest[TR], total[TR], result[TR][elements], scores[TR][SIZE::TC];
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
            const float factor = ul_attend_row<SIZE::TC>(
                scores[r], largest[r], total[r], (I)(row0 + ty * TR + r), queries,
                (I)(key0 + tx * SIZE::TC), keys, score, weight_factor);
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
    ul_attend_put<SIZE, EMPTY, IS_PART>(result, largest, total, shared, tx, ty, row0, queries,
                                        value_size, put, put_norm);
}

/* ---- tensor cores ---- */

/* Each of ROWS x GROUPS warps has DOWN bands of 16 queries, and of each BK keys its group's part of
 * BC. Queries stay in registers, or, of more than 128 elements, in shared memory; so does the
 * result, and so do scores and what becomes of them: the sums of one product are, rounded, an
 * operand of the next as they lie (ul_tensor.cuh). Where ROUNDS their exponentials are rounded
 * once, and the rounded ones are summed, so that weights add up to one; else what rounding left of
 * them is multiplied too, so that weights are as good as those of a softmax in f32. At the end the
 * groups' results are added in order.
 *
 * Keys and values come into shared memory while others are multiplied, STAGES tiles of each; those
 * of a tile that is done with make room for the next ones:
 *
 *      keys 0     scores 0                keys 1     scores 1
 *                 values 0 are copied                values 1 are copied
 *                 weights 0               values 0   weights 1               values 1
 *                 keys 1 are copied                  keys 2 are copied
 */
template <class KIND_, int D_, int E_, int BC_, int DOWN_, int ROWS_, int GROUPS_, int STAGES_,
          bool ROUNDS_>
struct ul_attend_mma {
    typedef KIND_ KIND;
    static constexpr int D = D_, E = E_, BC = BC_, DOWN = DOWN_, ROWS = ROWS_, GROUPS = GROUPS_;
    static constexpr int STAGES = STAGES_;
    static constexpr bool ROUNDS = ROUNDS_;
    static constexpr int threads = 32 * ROWS * GROUPS, BR = 16 * DOWN * ROWS;
    static constexpr int BK = BC * GROUPS;
    static constexpr bool HOLDS_Q = D <= 128;
    typedef ul_spaced<D> keys;   /* rows of elements; so are queries */
    typedef ul_spaced<E> values; /* rows of elements, too */
    static constexpr int k = BK * keys::PITCH, stage = k + BK * values::PITCH;
    static constexpr int chunk = E % 32 == 0 ? 32 : 16; /* of the result, on its way out */
    static constexpr int pitch_o = chunk + 8;           /* of floats; as ul_mma::out_pitch */
    static constexpr int out = GROUPS * BR * pitch_o + (2 * GROUPS + 1) * BR;
    static constexpr int q = HOLDS_Q ? 0 : BR * keys::PITCH, in = q + STAGES * stage;
    static constexpr int elements = in > 2 * out ? in : 2 * out;
    static_assert(D % 16 == 0 && E % 16 == 0 && BC % 16 == 0, "padded");

    /* The i-th of a lane's two rows of a band. Four lanes have the same rows; each of them has
     * every fourth pair of columns. */
    static __device__ __forceinline__ int row(int i)
    {
        return (int)threadIdx.x % 32 / 4 + 8 * i;
    }
    static __device__ __forceinline__ int column(int j)
    {
        return (int)threadIdx.x % 4 * 2 + 8 * j;
    }
};

/* A lane's part of the queries of its bands, and what is known of their rows; the largest is the
 * same in all of a row's lanes, `total` is that of the lane's columns. */
template <class MMA> struct ul_attend_band {
    uint32_t q[MMA::HOLDS_Q ? MMA::D / 16 : 1][4];
    float result[MMA::E / 8][4];
    float largest[2], total[2];
};

/* Elements e and e + 1 of a row, where place(row, e) gives an ul_source. */
template <int PACK, typename I, class PLACE>
__device__ __forceinline__ uint32_t ul_attend_pair(bool is_aligned, I row, I e, I size,
                                                   const PLACE &place)
{
    const ul_source first = place(row, e);
    if (PACK > 1 && is_aligned) {
        ul_note_pack(PACK, true);
        return e < size && first.is_there ? *(const uint32_t *)(const void *)first.from : 0u;
    }
    ul_note_pack(PACK, false);
    const ul_source second = place(row, (I)(e + 1));
    const uint32_t low = e < size && first.is_there ? *first.from : 0u;
    return low | (e + 1 < size && second.is_there ? (uint32_t)*second.from << 16 : 0u);
}

/* Reads the queries from row `row0` on, and begins with nothing. */
template <class MMA, int PACK, typename I, class PLACE>
__device__ __forceinline__ void ul_attend_begin(ul_attend_band<MMA> &band, bool is_aligned, I row0,
                                                I queries, I size, const PLACE &place)
{
    UL_UNROLLED
    for (int d = 0; d < MMA::D / 16 && MMA::HOLDS_Q; d++) {
        UL_UNROLLED
        for (int i = 0; i < 4; i++) {
            const I row = row0 + MMA::row(i % 2), e = (I)MMA::column(2 * d + i / 2);
            band.q[d][i] =
                row < queries ? ul_attend_pair<PACK>(is_aligned, row, e, size, place) : 0u;
        }
    }
    UL_UNROLLED
    for (int e = 0; e < MMA::E / 8; e++) {
        UL_UNROLLED
        for (int i = 0; i < 4; i++)
            band.result[e][i] = 0.0f;
    }
    UL_UNROLLED
    for (int i = 0; i < 2; i++) {
        band.largest[i] = -INFINITY;
        band.total[i] = 0.0f;
    }
}

/* Computes the scores of all bands with the BC keys from `ks` on; the warp's queries are from `qs`
 * on. */
template <class MMA>
__device__ __forceinline__ void ul_attend_scores_mma(float (&scores)[MMA::DOWN][MMA::BC / 8][4],
                                                     const ul_attend_band<MMA> (&bands)[MMA::DOWN],
                                                     const uint16_t *qs, const uint16_t *ks)
{
    UL_UNROLLED
    for (int b = 0; b < MMA::DOWN; b++) {
        UL_UNROLLED
        for (int c = 0; c < MMA::BC / 8; c++) {
            UL_UNROLLED
            for (int i = 0; i < 4; i++)
                scores[b][c][i] = 0.0f;
        }
    }
    UL_UNROLLED
    for (int d = 0; d < MMA::D / 16; d++) {
        uint32_t q[MMA::DOWN][4];
        UL_UNROLLED
        for (int b = 0; b < MMA::DOWN; b++) {
            UL_UNROLLED
            for (int i = 0; i < 4 && MMA::HOLDS_Q; i++)
                q[b][i] = bands[b].q[MMA::HOLDS_Q ? d : 0][i];
            if constexpr (!MMA::HOLDS_Q)
                ul_stage_read<typename MMA::keys, true, true>(q[b], qs, 0, 16 * b, 16 * d);
        }
        UL_UNROLLED
        for (int c = 0; c < MMA::BC / 16; c++) {
            uint32_t k[4];
            ul_stage_read<typename MMA::keys, true, false>(k, ks, 0, 16 * c, 16 * d);
            UL_UNROLLED
            for (int b = 0; b < MMA::DOWN; b++) {
                UL_UNROLLED
                for (int h = 0; h < 2; h++)
                    ul_multiply(typename MMA::KIND(), scores[b][2 * c + h], q[b], k[2 * h],
                                k[2 * h + 1]);
            }
        }
    }
}

/* The finished scores of row i of a band, and the largest of all so far. */
template <class MMA, typename I, class SCORE>
__device__ __forceinline__ float ul_attend_finish(float (&scores)[MMA::BC / 8][4], float largest,
                                                  int i, I row0, I queries, I key0, I keys,
                                                  const SCORE &score)
{
    const bool is_full = keys % MMA::BC == 0;
    const I row = row0 + MMA::row(i) < queries ? row0 + MMA::row(i) : queries - 1;
    float max = -INFINITY;
    UL_UNROLLED
    for (int j = 0; j < MMA::BC / 8; j++) {
        UL_UNROLLED
        for (int e = 0; e < 2; e++) {
            const I key = key0 + MMA::column(j) + e;
            float &x = scores[j][2 * i + e];
            x = is_full || key < keys ? score(row, key, x) : -INFINITY;
            max = ul_attend_larger(max, x);
        }
    }
    UL_UNROLLED
    for (int lane = 1; lane < 4; lane *= 2)
        max = ul_attend_larger(max, __shfl_xor_sync(0xffffffffu, max, lane));
    return ul_attend_larger(largest, max);
}

/* Replaces the scores of a band, for keys from `key0` on, by weights; multiplies these by their
 * factors once they are summed. Scales the earlier sums down where the largest score has risen. */
template <class MMA, typename I, class SCORE, class FACTOR>
__device__ __forceinline__ void
ul_attend_softmax(float (&scores)[MMA::BC / 8][4], ul_attend_band<MMA> &band, I row0, I queries,
                  I key0, I keys, const SCORE &score, const FACTOR &weight_factor)
{
    typedef typename MMA::KIND KIND;
    float factors[2];
    UL_UNROLLED
    for (int i = 0; i < 2; i++) {
        const float max =
            ul_attend_finish<MMA>(scores, band.largest[i], i, row0, queries, key0, keys, score);
        /* Rounded by itself both times: a factor is 1 where nothing rises. */
        const float shift = __fmul_rn(UL_ATTEND_LOG2E, ul_attend_shift(max));
        factors[i] = ul_exp2(__fmul_rn(UL_ATTEND_LOG2E, band.largest[i]) - shift);
        band.largest[i] = max;
        band.total[i] *= factors[i];
        UL_UNROLLED
        for (int j = 0; j < MMA::BC / 8; j++) {
            float &x = scores[j][2 * i], &y = scores[j][2 * i + 1];
            x = ul_exp2(fmaf(x, UL_ATTEND_LOG2E, -shift));
            y = ul_exp2(fmaf(y, UL_ATTEND_LOG2E, -shift));
            if constexpr (MMA::ROUNDS) {
                const uint32_t pair = ul_round_pair(KIND(), x, y);
                x = KIND::value((uint16_t)pair);
                y = KIND::value((uint16_t)(pair >> 16));
            }
            band.total[i] += x;
            band.total[i] += y;
            const I row = (I)(row0 + MMA::row(i)), key = (I)(key0 + MMA::column(j));
            x *= weight_factor(row, key);
            y *= weight_factor(row, (I)(key + 1));
        }
    }
    if (!__any_sync(0xffffffffu, factors[0] != 1.0f || factors[1] != 1.0f))
        return;
    UL_UNROLLED
    for (int e = 0; e < MMA::E / 8; e++) {
        UL_UNROLLED
        for (int i = 0; i < 4; i++)
            band.result[e][i] *= factors[i / 2];
    }
}

/* The weights of keys 16 c and on as an operand; what rounding leaves of them takes their place. */
template <class MMA>
__device__ __forceinline__ void ul_attend_weights(uint32_t (&to)[4],
                                                  float (&weights)[MMA::BC / 8][4], int c)
{
    typedef typename MMA::KIND KIND;
    UL_UNROLLED
    for (int i = 0; i < 4; i++) {
        float &x = weights[2 * c + i / 2][i % 2 * 2], &y = weights[2 * c + i / 2][i % 2 * 2 + 1];
        to[i] = ul_round_pair(KIND(), x, y);
        if constexpr (!MMA::ROUNDS) {
            x -= KIND::value((uint16_t)to[i]);
            y -= KIND::value((uint16_t)(to[i] >> 16));
        }
    }
}

/* result = result + weights values, of the BC values from `vs` on. */
template <class MMA>
__device__ __forceinline__ void ul_attend_values_mma(ul_attend_band<MMA> (&bands)[MMA::DOWN],
                                                     float (&weights)[MMA::DOWN][MMA::BC / 8][4],
                                                     const uint16_t *vs)
{
    typedef typename MMA::KIND KIND;
    constexpr int parts = MMA::ROUNDS ? 1 : 2;
    UL_UNROLLED
    for (int c = 0; c < MMA::BC / 16; c++) {
        uint32_t p[MMA::DOWN][parts][4];
        UL_UNROLLED
        for (int b = 0; b < MMA::DOWN; b++) {
            UL_UNROLLED
            for (int part = 0; part < parts; part++)
                ul_attend_weights<MMA>(p[b][part], weights[b], c);
        }
        UL_UNROLLED
        for (int e = 0; e < MMA::E / 16; e++) {
            uint32_t v[4];
            ul_stage_read<typename MMA::values, false, false>(v, vs, 0, 16 * e, 16 * c);
            UL_UNROLLED
            for (int b = 0; b < MMA::DOWN; b++) {
                UL_UNROLLED
                for (int part = parts; part-- > 0;) {
                    UL_UNROLLED
                    for (int h = 0; h < 2; h++)
                        ul_multiply(KIND(), bands[b].result[2 * e + h], p[b][part], v[2 * h],
                                    v[2 * h + 1]);
                }
            }
        }
    }
}

/* The largest scores and sums of weights of each group and query; then the factor of each group's
 * result, the sums of all groups' weights, and, after the groups' numbers, the largest of all. */
template <class MMA>
__device__ __forceinline__ void ul_attend_join(float *norms,
                                               const ul_attend_band<MMA> (&bands)[MMA::DOWN])
{
    constexpr int BR = MMA::BR, GROUPS = MMA::GROUPS;
    const int warp = (int)threadIdx.x / 32;
    float *mine = norms + warp / MMA::ROWS * BR + warp % MMA::ROWS * 16 * MMA::DOWN;
    UL_UNROLLED
    for (int b = 0; b < MMA::DOWN; b++) {
        UL_UNROLLED
        for (int i = 0; i < 2; i++) {
            float total = bands[b].total[i];
            UL_UNROLLED
            for (int lane = 1; lane < 4; lane *= 2)
                total += __shfl_xor_sync(0xffffffffu, total, lane);
            if ((int)threadIdx.x % 4 == 0) {
                mine[16 * b + MMA::row(i)] = bands[b].largest[i];
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

/* Puts this lane's part of elements `e0` and on of its bands' results where its warp's rows are. */
template <class MMA>
__device__ __forceinline__ void ul_attend_out(const ul_attend_band<MMA> (&bands)[MMA::DOWN],
                                              float *mine, int e0)
{
    typedef ul_pack_of<float, 2> two;
    UL_UNROLLED
    for (int e = 0; e < MMA::E; e += 8) { /* in registers, which have no index at run time */
        UL_UNROLLED
        for (int b = 0; b < MMA::DOWN && e >= e0 && e < e0 + MMA::chunk; b++) {
            UL_UNROLLED
            for (int i = 0; i < 2; i++) {
                two pair;
                pair.at[0] = bands[b].result[e / 8][2 * i];
                pair.at[1] = bands[b].result[e / 8][2 * i + 1];
                *(two *)(void *)(mine + (16 * b + MMA::row(i)) * MMA::pitch_o + e % MMA::chunk +
                                 MMA::column(0)) = pair;
            }
        }
    }
}

/* PACK elements of row y from x on, among those in `place`. */
template <class MMA, int PACK, ul_attend_empty EMPTY, bool IS_PART>
__device__ __forceinline__ ul_pack_of<float, PACK> ul_attend_sums(const float *norms,
                                                                  const float *place, int y, int x)
{
    typedef ul_pack_of<float, PACK> pack;
    constexpr int BR = MMA::BR;
    pack sums = ul_pack_fill<float, PACK>(0.0f);
    UL_UNROLLED
    for (int g = 0; g < MMA::GROUPS; g++) {
        const pack own = *(const pack *)(const void *)(place + (g * BR + y) * MMA::pitch_o + x);
        UL_UNROLLED
        for (int e = 0; e < PACK; e++)
            sums.at[e] += norms[g * BR + y] * own.at[e];
    }
    UL_UNROLLED
    for (int e = 0; e < PACK && !IS_PART; e++)
        sums.at[e] = ul_attend_quotient<EMPTY>(sums.at[e], norms[MMA::GROUPS * BR + y]);
    return sums;
}

/* Puts the quotients through `place`, some elements of all queries at a time. */
template <class MMA, ul_attend_empty EMPTY, bool IS_PART, int PACK, typename I, class PUT,
          class PUT_PACK, class PUT_NORM>
__device__ __forceinline__ void
ul_attend_put_mma(const ul_attend_band<MMA> (&bands)[MMA::DOWN], const float *norms, float *place,
                  I row0, I queries, I value_size, const PUT &put, const PUT_PACK &put_pack,
                  const PUT_NORM &put_norm)
{
    constexpr int BR = MMA::BR, chunk = MMA::chunk, pitch = MMA::pitch_o;
    const int warp = (int)threadIdx.x / 32;
    float *mine = place + (warp / MMA::ROWS * BR + warp % MMA::ROWS * 16 * MMA::DOWN) * pitch;
    UL_ROLLED
    for (int e0 = 0; e0 < MMA::E; e0 += chunk) {
        ul_attend_out<MMA>(bands, mine, e0);
        __syncthreads();
        UL_ROLLED
        for (int i = (int)threadIdx.x; i < BR * chunk / PACK; i += MMA::threads) {
            const int y = i / (chunk / PACK), x = i % (chunk / PACK) * PACK;
            const I row = row0 + y, element = e0 + x;
            const auto sums = ul_attend_sums<MMA, PACK, EMPTY, IS_PART>(norms, place, y, x);
            if (row >= queries || element >= value_size)
                continue;
            if constexpr (PACK > 1)
                put_pack(row, element, sums);
            else
                put(row, element, sums.at[0]);
        }
        __syncthreads();
    }
    UL_ROLLED
    for (int y = (int)threadIdx.x; y < BR; y += MMA::threads) {
        const float largest = norms[2 * MMA::GROUPS * BR + y], total = norms[MMA::GROUPS * BR + y];
        const I row = row0 + y;
        if (row >= queries)
            break;
        if (IS_PART) {
            put(row, value_size, largest);
            put(row, (I)(value_size + 1), total);
        } else {
            put_norm(row, ul_attend_norm<EMPTY>(largest, total));
        }
    }
    __syncthreads();
}

/* By what a tile of keys or values is read. */
template <class LAYOUT, int WIDTH, class MMA, class HOW>
using ul_attend_stage = ul_stage<MMA::BK, WIDTH, HOW::PACK, MMA::threads, LAYOUT>;

/* ul_attend_tile on tensor cores; place_q(query, element), place_k(key, element) and
 * place_v(element, key) give an ul_source. aligned: of queries, keys and values. Where PACK is not
 * 1 put_pack(query, element, sums) takes so many, and value_size is a multiple of it. */
template <class MMA, class Q, class K, class V, ul_attend_empty EMPTY, bool IS_PART, int PACK,
          typename I, class PLACE_Q, class PLACE_K, class PLACE_V, class SCORE, class PUT,
          class PUT_PACK, class PUT_NORM = ul_attend_no_norm, class FACTOR = ul_attend_keeps>
__device__ __forceinline__ void
ul_attend_tile_mma(uint16_t *shared, int64_t tile, I queries, I keys, I begin, I before, I reach,
                   I size, I value_size, const bool (&aligned)[3], const PLACE_Q &place_q,
                   const PLACE_K &place_k, const PLACE_V &place_v, const SCORE &score,
                   const PUT &put, const PUT_PACK &put_pack, const PUT_NORM &put_norm = PUT_NORM(),
                   const FACTOR &weight_factor = FACTOR())
{
    constexpr int DOWN = MMA::DOWN, STAGES = MMA::STAGES, ahead = STAGES * MMA::BK;
    const int warp = (int)threadIdx.x / 32, part = warp / MMA::ROWS * MMA::BC;
    const I row0 = (I)(tile * MMA::BR), first = (I)(row0 + warp % MMA::ROWS * DOWN * 16);
    const I end = ul_attend_end(before, (I)(row0 + MMA::BR), reach);
    const I own_end = first < queries ? ul_attend_end(before, (I)(first + 16 * DOWN), reach) : 0;
    ul_attend_stage<typename MMA::keys, MMA::D, MMA, K> part_k;
    ul_attend_stage<typename MMA::values, MMA::E, MMA, V> part_v;
    ul_attend_band<MMA> bands[DOWN];
    const auto begin_k = [&](int stage, I key0) {
        part_k.begin(shared + stage * MMA::stage, aligned[1], [&](int row, int column) {
            ul_source source = place_k((I)(key0 + row), (I)column);
            source.is_there = source.is_there && key0 + row < keys && column < size;
            return source;
        });
    };
    const auto begin_v = [&](int stage, I key0) {
        part_v.begin(shared + stage * MMA::stage + MMA::k, aligned[2], [&](int row, int column) {
            ul_source source = place_v((I)column, (I)(key0 + row));
            source.is_there = source.is_there && key0 + row < keys && column < value_size;
            return source;
        });
    };
    uint16_t *qs = shared + STAGES * MMA::stage;
    if constexpr (!MMA::HOLDS_Q) { /* comes with the first keys */
        ul_stage<MMA::BR, MMA::D, Q::PACK, MMA::threads, typename MMA::keys> part_q;
        part_q.begin(qs, aligned[0], [&](int row, int column) {
            ul_source source = place_q((I)(row0 + row), (I)column);
            source.is_there = source.is_there && row0 + row < queries && column < size;
            return source;
        });
        part_q.end(qs);
        qs += warp % MMA::ROWS * DOWN * 16 * MMA::keys::PITCH;
    }
    UL_ROLLED
    for (int stage = 0; stage < STAGES; stage++) {
        const I key0 = begin + stage * MMA::BK;
        if (key0 < end) {
            begin_k(stage, key0);
            part_k.end(shared + stage * MMA::stage);
        }
        ul_copies_close();
        if (key0 < end) {
            begin_v(stage, key0);
            part_v.end(shared + stage * MMA::stage + MMA::k);
        }
        ul_copies_close();
    }
    UL_UNROLLED
    for (int b = 0; b < DOWN; b++)
        ul_attend_begin<MMA, Q::PACK>(bands[b], aligned[0], (I)(first + 16 * b), queries, size,
                                      place_q);
    int at = 0, last = STAGES - 1;
    UL_ROLLED
    for (I key0 = begin; key0 < end; key0 += MMA::BK) {
        uint16_t *ks = shared + at * MMA::stage, *vs = ks + MMA::k;
        const bool sees = key0 + part < own_end;
        const bool has_v = key0 > begin && end - key0 > ahead - MMA::BK;
        const bool has_k = end - key0 > ahead;
        float scores[DOWN][MMA::BC / 8][4];
        ul_copies_wait<2 * STAGES - 2>();
        __syncthreads(); /* keys are there, and all are done with the values before */
        if (has_v)
            begin_v(last, (I)(key0 + ahead - MMA::BK));
        if (key0 > begin)
            ul_copies_close();
        if (sees) {
            ul_attend_scores_mma<MMA>(scores, bands, qs, ks + part * MMA::keys::PITCH);
            UL_UNROLLED
            for (int b = 0; b < DOWN; b++)
                ul_attend_softmax<MMA>(scores[b], bands[b], (I)(first + 16 * b), queries,
                                       (I)(key0 + part), keys, score, weight_factor);
        }
        if (has_v)
            part_v.end(shared + last * MMA::stage + MMA::k);
        ul_copies_wait<2 * STAGES - 2>();
        __syncthreads(); /* values are there, and all are done with the keys */
        if (has_k)
            begin_k(at, (I)(key0 + ahead));
        ul_copies_close();
        if (sees)
            ul_attend_values_mma<MMA>(bands, scores, vs + part * MMA::values::PITCH);
        if (has_k)
            part_k.end(ks);
        last = at;
        at = at == STAGES - 1 ? 0 : at + 1;
    }
    ul_copies_wait<0>();
    __syncthreads(); /* what comes now is where keys were */
    float *place = (float *)(void *)shared;
    float *norms = place + MMA::GROUPS * MMA::BR * MMA::pitch_o;
    ul_attend_join<MMA>(norms, bands);
    ul_attend_put_mma<MMA, EMPTY, IS_PART, PACK>(bands, norms, place, row0, queries, value_size,
                                                 put, put_pack, put_norm);
}

#endif
