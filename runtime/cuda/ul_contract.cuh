/* SPDX-License-Identifier: 0BSD */
/*
 * Tiled contractions for kernels of target cuda: sums over k of a(m, k) * b(k, n), then what is to
 * be done with each sum. The printed kernel gives three functions (lambdas): read_a(m, k) and
 * read_b(k, n) with what an operand holds at flat coordinates inside of the problem, as a pack of
 * some neighbours along k or beside it, and put(m, n, sum), called exactly once for each sum of the
 * tile that exists.
 *
 * A tile is BM x BN sums of a block of threads, each of which keeps TM x TN of them in registers.
 * Tiles of the operands, BK deep, lie in shared memory twice, so that the next one is read while
 * the last one is multiplied. Small tiles are computed by SPLITS groups of threads, each of which
 * takes a part of every BK. Sums leave through shared memory too, so that neighbouring threads put
 * neighbouring elements. On tensor cores several tiles of operands are on their way at a time,
 * which nobody waits for (ul_tensor.cuh), and place_a and place_b say where packs lie.
 *
 *              n                                       t: a thread's sums, in groups of up to
 *        +-----------+     +---+ BN                       four neighbours, so that a group is
 *     m  | t t . t t |  =  | a | x  [ b ] BK              one load from shared memory
 *        | . . . . . |  BM |   |
 *        +-----------+     +---+
 *                           BK
 *
 * Each sum is formed in order of k with one accumulator for each split, the splits being added in
 * order at the end; ul_contract_dot adds one accumulator for each lane of a warp in a fixed tree.
 *
 * Invariants: all threads of the block call a function together with the same arguments; shared
 * memory is the callee's from the call until its return, where all threads are done with it.
 * CUDA C++, and host C++ under tests/cuda_emulation. Nothing fails.
 */
#ifndef UL_CONTRACT_CUH
#define UL_CONTRACT_CUH

#include "ul_cuda.h"
#include "ul_tensor.cuh"

#include <type_traits>

#ifdef __CUDACC__
#define UL_UNROLLED _Pragma("unroll")
#define UL_ROLLED _Pragma("unroll 1")
#define UL_UNROLLED_BY(count) _Pragma(UL_TEXT(unroll count))
#define UL_TEXT(words) #words
#else
#define UL_UNROLLED
#define UL_ROLLED
#define UL_UNROLLED_BY(count)
#endif

/* Neighbours that are read and written at once, or 16 bytes at a time. */
template <typename T, int COUNT>
struct alignas(sizeof(T) * COUNT > 16 ? 16 : sizeof(T) * COUNT) ul_pack_of {
    T at[COUNT];
    __device__ __forceinline__ void put(int i, T x)
    {
        at[i] = x;
    }
};

/* Elements of 16 bits that are only moved. Packs of them are whole registers: compilers would take
 * these to pieces where two ways of reading a pack meet. */
struct ul_bits16 {
    uint16_t bits;
    ul_bits16() = default;
    __device__ __forceinline__ ul_bits16(int x) : bits((uint16_t)x)
    {
    }
};
template <int COUNT> struct alignas(2 * COUNT > 16 ? 16 : 2 * COUNT) ul_pack_of<ul_bits16, COUNT> {
    typedef typename std::conditional<COUNT == 1, uint16_t, uint32_t>::type word;
    word words[(COUNT + 1) / 2];
    /* Puts elements in order of i. */
    __device__ __forceinline__ void put(int i, ul_bits16 x)
    {
        words[i / 2] = (word)(i % 2 == 0 ? x.bits : words[i / 2] | (uint32_t)x.bits << 16);
    }
};

template <typename T> constexpr int ul_pack_max()
{
    return 16 / (int)sizeof(T);
}

constexpr int ul_min(int a, int b)
{
    return a < b ? a : b;
}

template <typename T, int COUNT> __device__ __forceinline__ ul_pack_of<T, COUNT> ul_pack_fill(T x)
{
    ul_pack_of<T, COUNT> pack;
    UL_UNROLLED
    for (int i = 0; i < COUNT; i++)
        pack.put(i, x);
    return pack;
}

/* COUNT elements from `from` on; `is_aligned`: to as many bytes, at most 16. */
template <int COUNT, typename T>
__device__ __forceinline__ ul_pack_of<T, COUNT> ul_pack_read(const T *from, bool is_aligned)
{
    if (is_aligned) {
        ul_note_pack(COUNT, true);
        return *(const ul_pack_of<T, COUNT> *)(const void *)from;
    }
    ul_note_pack(COUNT, false);
    ul_pack_of<T, COUNT> pack;
    UL_UNROLLED
    for (int i = 0; i < COUNT; i++)
        pack.put(i, from[i]);
    return pack;
}

/* Whether it is aligned as packs of COUNT elements want it, at most to 16 bytes. */
template <int COUNT = 16, typename T> __device__ __forceinline__ bool ul_is_aligned(const T *place)
{
    constexpr size_t bytes = COUNT * sizeof(T) > 16 ? 16 : COUNT * sizeof(T);
    const bool is_aligned = (uintptr_t)place % bytes == 0;
    if (!is_aligned)
        ul_note_pack(COUNT, false);
    return is_aligned;
}

/* How an operand is read: PACK neighbours at once, along k or beside it. */
template <int PACK_, bool ALONG_K_> struct ul_reading {
    static constexpr int PACK = PACK_;
    static constexpr bool ALONG_K = ALONG_K_;
};

/* What is added for two elements. */
template <typename T> struct ul_product {
    static __device__ __forceinline__ void add(T &sum, T a, T b)
    {
        sum += a * b;
    }
};

/* The sizes of a tile. */
template <typename T, int BM_, int BN_, int BK_, int TM_, int TN_, int SPLITS_,
          class PRODUCT_ = ul_product<T>>
struct ul_tile {
    typedef T type;
    typedef PRODUCT_ PRODUCT;
    static constexpr int BM = BM_, BN = BN_, BK = BK_, TM = TM_, TN = TN_, SPLITS = SPLITS_;
    static constexpr int across = BN / TN, down = BM / TM, group = across * down;
    static constexpr int threads = group * SPLITS;
    static constexpr int run_m = ul_min(TM, ul_pack_max<T>());
    static constexpr int run_n = ul_min(TN, ul_pack_max<T>());
    /* Rows of the tiles are a few elements longer than they must be, so that elements of one column
     * are in different banks. */
    static constexpr int pitch_m = BM + ul_pack_max<T>(), pitch_n = BN + ul_pack_max<T>();
    static constexpr int stage = BK * (pitch_m + pitch_n);
    static constexpr int out_n = SPLITS > 1 ? SPLITS *BM *pitch_n : down *pitch_n;
    static constexpr int out_m = SPLITS > 1 ? SPLITS *BM *pitch_n : across *pitch_m;
    static constexpr int out = out_n > out_m ? out_n : out_m;
    static constexpr int elements = 2 * stage > out ? 2 * stage : out;
    static_assert(BM * BK % threads == 0 && BN * BK % threads == 0, "a tile is read evenly");
    static_assert(BK % SPLITS == 0, "splits take equal parts");

    /* The i-th of a thread's rows, and the j-th of its columns. */
    static __device__ __forceinline__ int row(int ty, int i)
    {
        return i / run_m * (BM / (TM / run_m)) + ty * run_m + i % run_m;
    }
    static __device__ __forceinline__ int column(int tx, int j)
    {
        return j / run_n * (BN / (TN / run_n)) + tx * run_n + j % run_n;
    }
};

/* A thread's part of one operand's tile, on its way to shared memory. Neighbouring threads read
 * neighbours in memory: a run of 32 bytes along k, then the next row; or all beside k. */
template <typename T, int WIDTH, int BK, int THREADS, class HOW> struct ul_tile_part {
    static constexpr int wanted = WIDTH * BK / THREADS;
    static constexpr int pack = HOW::PACK;
    static constexpr int count = wanted / pack;
    static constexpr int line = ul_min(BK, 32 / (int)sizeof(T)) / pack; /* packs of a run */
    static_assert(wanted % pack == 0 && line > 0, "threads read whole packs");
    ul_pack_of<T, pack> values[count];

    static __device__ __forceinline__ int beside(int i)
    {
        int e = (int)threadIdx.x + i * THREADS;
        return HOW::ALONG_K ? e / line % WIDTH : e % (WIDTH / pack) * pack;
    }
    static __device__ __forceinline__ int deep(int i)
    {
        int e = (int)threadIdx.x + i * THREADS;
        return HOW::ALONG_K ? (e % line + e / (line * WIDTH) * line) * pack : e / (WIDTH / pack);
    }
    /* read(at, k, pack) for at in first + [0, WIDTH) below limit, k in k0 + [0, BK) below depth. */
    template <typename I, class READ>
    __device__ __forceinline__ void load(I first, I limit, I k0, I depth, const READ &read)
    {
        UL_UNROLLED
        for (int i = 0; i < count; i++) {
            I at = first + beside(i), k = k0 + deep(i);
            if (at < limit && k < depth)
                values[i] = read(at, k);
            else
                values[i] = ul_pack_fill<T, pack>(T(0));
        }
    }
    /* Stored as [k][beside]. */
    template <int PITCH> __device__ __forceinline__ void store(T *to) const
    {
        UL_UNROLLED
        for (int i = 0; i < count; i++) {
            if constexpr (HOW::ALONG_K) {
                UL_UNROLLED
                for (int e = 0; e < pack; e++)
                    to[(deep(i) + e) * PITCH + beside(i)] = values[i].at[e];
            } else {
                *(ul_pack_of<T, pack> *)(void *)(to + deep(i) * PITCH + beside(i)) = values[i];
            }
        }
    }
    /* Stored as it was read: as [beside][k] where neighbours are along k, else as [k][beside]. */
    template <int PITCH, typename TO> __device__ __forceinline__ void store_as_read(TO *to) const
    {
        UL_UNROLLED
        for (int i = 0; i < count; i++)
            *(ul_pack_of<T, pack> *)(void *)(to + (HOW::ALONG_K ? beside(i) * PITCH + deep(i)
                                                                : deep(i) * PITCH + beside(i))) =
                values[i];
    }
    /* Stored as [beside][k], however it was read. */
    template <int PITCH> __device__ __forceinline__ void store_along_k(T *to) const
    {
        UL_UNROLLED
        for (int i = 0; i < count; i++) {
            if constexpr (HOW::ALONG_K) {
                *(ul_pack_of<T, pack> *)(void *)(to + beside(i) * PITCH + deep(i)) = values[i];
            } else {
                UL_UNROLLED
                for (int e = 0; e < pack; e++)
                    to[(beside(i) + e) * PITCH + deep(i)] = values[i].at[e];
            }
        }
    }
};

/* Goes along k by tiles of BK: load(k0) reads those of the operands, store(at) puts what was read
 * into shared memory from element `at` on, multiply(at) adds their products. Each is multiplied
 * while the next one is on its way, so that there are two places, STAGE apart. */
template <int BK, int STAGE, typename I, class LOAD, class STORE, class MULTIPLY>
__device__ __forceinline__ void ul_tiles_walk(I k, const LOAD &load, const STORE &store,
                                              const MULTIPLY &multiply)
{
    int at = 0;
    load(I(0));
    store(at);
    __syncthreads();
    UL_ROLLED
    for (I k0 = 0; k0 < k; k0 += BK) {
        bool is_last = k - k0 <= BK;
        if (!is_last)
            load((I)(k0 + BK));
        multiply(at);
        at = STAGE - at;
        if (!is_last)
            store(at);
        __syncthreads();
    }
}

/* Adds the products of one tile of each operand, for this thread's split. */
template <class TILE>
__device__ __forceinline__ void ul_tile_multiply(typename TILE::type (&sums)[TILE::TM][TILE::TN],
                                                 const typename TILE::type *as,
                                                 const typename TILE::type *bs, int tx, int ty)
{
    typedef typename TILE::type T;
    typedef ul_pack_of<T, TILE::run_m> run_m;
    typedef ul_pack_of<T, TILE::run_n> run_n;
    UL_UNROLLED
    for (int k = 0; k < TILE::BK / TILE::SPLITS; k++) {
        T a[TILE::TM], b[TILE::TN];
        UL_UNROLLED
        for (int i = 0; i < TILE::TM; i += TILE::run_m) {
            run_m x = *(const run_m *)(const void *)(as + k * TILE::pitch_m + TILE::row(ty, i));
            UL_UNROLLED
            for (int e = 0; e < TILE::run_m; e++)
                a[i + e] = x.at[e];
        }
        UL_UNROLLED
        for (int j = 0; j < TILE::TN; j += TILE::run_n) {
            run_n x = *(const run_n *)(const void *)(bs + k * TILE::pitch_n + TILE::column(tx, j));
            UL_UNROLLED
            for (int e = 0; e < TILE::run_n; e++)
                b[j + e] = x.at[e];
        }
        UL_UNROLLED
        for (int i = 0; i < TILE::TM; i++) {
            UL_UNROLLED
            for (int j = 0; j < TILE::TN; j++)
                TILE::PRODUCT::add(sums[i][j], a[i], b[j]);
        }
    }
}

/* Puts the sums, one of each thread's rows after the other, neighbours along n. */
template <class TILE, typename I, class PUT>
__device__ __forceinline__ void
ul_tile_put_rows(const typename TILE::type (&sums)[TILE::TM][TILE::TN], typename TILE::type *shared,
                 int tx, int ty, I m0, I m, I n0, I n, const PUT &put)
{
    UL_UNROLLED
    for (int i = 0; i < TILE::TM; i++) {
        UL_UNROLLED
        for (int j = 0; j < TILE::TN; j++)
            shared[ty * TILE::pitch_n + TILE::column(tx, j)] = sums[i][j];
        __syncthreads();
        UL_ROLLED
        for (int e = (int)threadIdx.x; e < TILE::down * TILE::BN; e += TILE::threads) {
            int y = e / TILE::BN, x = e % TILE::BN;
            I row = m0 + TILE::row(y, i), column = n0 + x;
            if (row < m && column < n)
                put(row, column, shared[y * TILE::pitch_n + x]);
        }
        __syncthreads();
    }
}

/* The same, one of each thread's columns after the other, neighbours along m. */
template <class TILE, typename I, class PUT>
__device__ __forceinline__ void
ul_tile_put_columns(const typename TILE::type (&sums)[TILE::TM][TILE::TN],
                    typename TILE::type *shared, int tx, int ty, I m0, I m, I n0, I n,
                    const PUT &put)
{
    UL_UNROLLED
    for (int j = 0; j < TILE::TN; j++) {
        UL_UNROLLED
        for (int i = 0; i < TILE::TM; i++)
            shared[tx * TILE::pitch_m + TILE::row(ty, i)] = sums[i][j];
        __syncthreads();
        UL_ROLLED
        for (int e = (int)threadIdx.x; e < TILE::across * TILE::BM; e += TILE::threads) {
            int x = e / TILE::BM, y = e % TILE::BM;
            I row = m0 + y, column = n0 + TILE::column(x, j);
            if (row < m && column < n)
                put(row, column, shared[x * TILE::pitch_m + y]);
        }
        __syncthreads();
    }
}

/* The sums of all splits, added in order. */
template <class TILE, bool PUT_ALONG_M, typename I, class PUT>
__device__ __forceinline__ void
ul_tile_put_splits(const typename TILE::type (&sums)[TILE::TM][TILE::TN],
                   typename TILE::type *shared, int tx, int ty, int split, I m0, I m, I n0, I n,
                   const PUT &put)
{
    typedef typename TILE::type T;
    UL_UNROLLED
    for (int i = 0; i < TILE::TM; i++) {
        UL_UNROLLED
        for (int j = 0; j < TILE::TN; j++)
            shared[(split * TILE::BM + TILE::row(ty, i)) * TILE::pitch_n + TILE::column(tx, j)] =
                sums[i][j];
    }
    __syncthreads();
    UL_ROLLED
    for (int e = (int)threadIdx.x; e < TILE::BM * TILE::BN; e += TILE::threads) {
        int y = PUT_ALONG_M ? e % TILE::BM : e / TILE::BN;
        int x = PUT_ALONG_M ? e / TILE::BM : e % TILE::BN;
        I row = m0 + y, column = n0 + x;
        if (row >= m || column >= n)
            continue;
        T sum = shared[y * TILE::pitch_n + x];
        UL_UNROLLED
        for (int s = 1; s < TILE::SPLITS; s++)
            sum += shared[(s * TILE::BM + y) * TILE::pitch_n + x];
        put(row, column, sum);
    }
    __syncthreads();
}

/* Tile `tile` of m x n sums of k products; tiles are numbered along n first. A, B: an ul_reading;
 * PUT_ALONG_M: neighbours in the result are along m. */
template <class TILE, class A, class B, bool PUT_ALONG_M, typename I, class READ_A, class READ_B,
          class PUT>
__device__ __forceinline__ void ul_contract_tile(typename TILE::type *shared, int64_t tile, I m,
                                                 I n, I k, const READ_A &read_a,
                                                 const READ_B &read_b, const PUT &put)
{
    typedef typename TILE::type T;
    constexpr int part = TILE::BK / TILE::SPLITS;
    const int split = (int)threadIdx.x / TILE::group, thread = (int)threadIdx.x % TILE::group;
    const int tx = thread % TILE::across, ty = thread / TILE::across;
    const int64_t tiles_n = ((int64_t)n + TILE::BN - 1) / TILE::BN;
    const I m0 = (I)(tile / tiles_n * TILE::BM), n0 = (I)(tile % tiles_n * TILE::BN);
    auto read_along = [&](I at, I deep) { return read_b(deep, at); };
    ul_tile_part<T, TILE::BM, TILE::BK, TILE::threads, A> part_a;
    ul_tile_part<T, TILE::BN, TILE::BK, TILE::threads, B> part_b;
    T sums[TILE::TM][TILE::TN];
    UL_UNROLLED
    for (int i = 0; i < TILE::TM; i++) {
        UL_UNROLLED
        for (int j = 0; j < TILE::TN; j++)
            sums[i][j] = T(0);
    }
    T *as = shared, *bs = shared + TILE::BK * TILE::pitch_m;
    ul_tiles_walk<TILE::BK, TILE::stage>(
        k,
        [&](I k0) {
            part_a.load(m0, m, k0, k, read_a);
            part_b.load(n0, n, k0, k, read_along);
        },
        [&](int at) {
            part_a.template store<TILE::pitch_m>(as + at);
            part_b.template store<TILE::pitch_n>(bs + at);
        },
        [&](int at) {
            ul_tile_multiply<TILE>(sums, as + at + split * part * TILE::pitch_m,
                                   bs + at + split * part * TILE::pitch_n, tx, ty);
        });
    if constexpr (TILE::SPLITS > 1)
        ul_tile_put_splits<TILE, PUT_ALONG_M>(sums, shared, tx, ty, split, m0, m, n0, n, put);
    else if constexpr (PUT_ALONG_M)
        ul_tile_put_columns<TILE>(sums, shared, tx, ty, m0, m, n0, n, put);
    else
        ul_tile_put_rows<TILE>(sums, shared, tx, ty, m0, m, n0, n, put);
}

/* Sums `at` and on, SUMS of them, of m x n (numbered along n first), by a warp: lane i adds packs
 * i, i + 32 and so on of the products, and the lanes are added in a fixed tree. */
template <typename T, int PACK, int SUMS, class PRODUCT = ul_product<T>, typename I, class READ_A,
          class READ_B, class PUT>
__device__ __forceinline__ void ul_contract_dots(int64_t at, I m, I n, I k, const READ_A &read_a,
                                                 const READ_B &read_b, const PUT &put)
{
    const int lane = (int)threadIdx.x % 32;
    const int64_t last = (int64_t)m * n - 1;
    I rows[SUMS], columns[SUMS];
    T sums[SUMS], own = T(0);
    UL_UNROLLED
    for (int s = 0; s < SUMS; s++) {
        const int64_t which = at + s < last ? at + s : last;
        rows[s] = (I)(which / n);
        columns[s] = (I)(which % n);
        sums[s] = T(0);
    }
    UL_UNROLLED_BY(4)
    for (I k0 = (I)(lane * PACK); k0 < k; k0 += 32 * PACK) {
        UL_UNROLLED
        for (int s = 0; s < SUMS; s++) {
            const ul_pack_of<T, PACK> a = read_a(rows[s], k0), b = read_b(k0, columns[s]);
            UL_UNROLLED
            for (int e = 0; e < PACK; e++)
                PRODUCT::add(sums[s], a.at[e], b.at[e]);
        }
    }
    UL_UNROLLED
    for (int s = 0; s < SUMS; s++) {
        UL_UNROLLED
        for (int half = 16; half > 0; half /= 2)
            sums[s] += __shfl_xor_sync(0xffffffffu, sums[s], half);
        own = lane == s ? sums[s] : own;
    }
    if (lane < SUMS && at + lane <= last)
        put((I)((at + lane) / n), (I)((at + lane) % n), own);
}

/* SUMS sums for each warp of a block. */
template <typename T, int PACK, int SUMS, class PRODUCT = ul_product<T>, typename I, class READ_A,
          class READ_B, class PUT>
__device__ __forceinline__ void ul_contract_dot(int64_t tile, I m, I n, I k, const READ_A &read_a,
                                                const READ_B &read_b, const PUT &put)
{
    const int64_t at = (tile * (int)(blockDim.x / 32) + (int)threadIdx.x / 32) * SUMS;
    if (at < (int64_t)m * n)
        ul_contract_dots<T, PACK, SUMS, PRODUCT>(at, m, n, k, read_a, read_b, put);
}

/* Forms all sums by a team of whole warps, of which this is thread `thread`. */
template <typename T, int PACK, int SUMS, class PRODUCT = ul_product<T>, typename I, class READ_A,
          class READ_B, class PUT>
__device__ __forceinline__ void ul_contract_team(int64_t thread, int64_t threads, I m, I n, I k,
                                                 const READ_A &read_a, const READ_B &read_b,
                                                 const PUT &put)
{
    UL_ROLLED
    for (int64_t at = thread / 32 * SUMS; at < (int64_t)m * n; at += threads / 32 * SUMS)
        ul_contract_dots<T, PACK, SUMS, PRODUCT>(at, m, n, k, read_a, read_b, put);
}

/* ---- tensor cores ---- */

/* The values of a pack of such elements. */
template <class KIND, int COUNT>
__device__ __forceinline__ ul_pack_of<float, COUNT>
ul_pack_widen(const ul_pack_of<ul_bits16, COUNT> &pack)
{
    ul_pack_of<float, COUNT> values;
    UL_UNROLLED
    for (int i = 0; i < COUNT; i++)
        values.at[i] = KIND::value((uint16_t)(pack.words[i / 2] >> (i % 2 * 16)));
    return values;
}

/* Where a pack of elements is; is_there: inside of the operand's bounds, else all are 0. */
struct ul_source {
    const uint16_t *from;
    bool is_there;
};

/* How a matrix of rows of WIDTH elements lies in shared memory, so that pieces of 16 bytes at one
 * place of eight rows, which ul_matrices_read takes at a time, lie in different banks. PERIOD: rows
 * so far apart are PITCH elements apart for each.
 *
 * Without gaps pieces are exchanged within a row, and neighbours of a row lie in different banks
 * too:
 *
 *      row 0   0 1 2 3 4 5 6 7        row 0   0 1 2 3   row 1   0 1 2 3
 *      row 1   1 0 3 2 5 4 7 6        row 2   1 0 3 2   row 3   1 0 3 2
 *      row 2   2 3 0 1 6 7 4 5        row 4   2 3 0 1   row 5   2 3 0 1
 */
template <int WIDTH> struct ul_exchanged {
    static constexpr int PITCH = WIDTH, PERIOD = 8;
    static constexpr int pieces = WIDTH == 32 ? 4 : 8, rows = 8 / pieces;
    static_assert(WIDTH == 32 || WIDTH % 64 == 0, "whole pieces change places");
    static __device__ __forceinline__ int at(int row, int column)
    {
        return row * WIDTH + (column ^ row / rows % pieces * 8);
    }
};
/* For a WIDTH of any multiple of 16: rows are an odd number of pieces long. */
template <int WIDTH> struct ul_spaced {
    static constexpr int PITCH = WIDTH + 8, PERIOD = 1;
    static_assert(WIDTH % 16 == 0, "pitches are odd multiples of a piece");
    static __device__ __forceinline__ int at(int row, int column)
    {
        return row * PITCH + column;
    }
};

/* A thread's part of matrices of ROWS x WIDTH elements that come from global memory to shared.
 * Packs of 4, 8 and 16 bytes are copied while nobody waits; single elements, and all where the
 * operand is not aligned, go through registers. */
template <int ROWS, int WIDTH, int PACK, int THREADS, class LAYOUT> struct ul_stage {
    static constexpr int line = WIDTH / PACK, total = ROWS * line;
    static constexpr int count = (total + THREADS - 1) / THREADS;
    static constexpr bool is_even = THREADS % line == 0; /* a thread has one column */
    static constexpr int step = is_even ? THREADS / line : 1;
    static constexpr bool is_held = PACK == 1 && count <= 32; /* until the others are multiplied */
    static_assert(WIDTH % PACK == 0, "whole packs");
    uint16_t held[is_held ? count : 1];

    static __device__ __forceinline__ int row(int i)
    {
        return is_even ? (int)threadIdx.x / line + i * step
                       : ((int)threadIdx.x + i * THREADS) / line;
    }
    static __device__ __forceinline__ int column(int i)
    {
        return (is_even ? (int)threadIdx.x % line : ((int)threadIdx.x + i * THREADS) % line) * PACK;
    }
    static __device__ __forceinline__ int place(int i)
    {
        if constexpr (is_even && step % LAYOUT::PERIOD == 0)
            return LAYOUT::at(row(0), column(0)) + i * step * LAYOUT::PITCH;
        else
            return LAYOUT::at(row(i), column(i));
    }
    static __device__ __forceinline__ bool has(int i)
    {
        return (i + 1) * THREADS <= total || (int)threadIdx.x + i * THREADS < total;
    }
    /* source(row, column) gives an ul_source. */
    template <class SOURCE>
    __device__ __forceinline__ void begin(uint16_t *to, bool is_aligned, const SOURCE &source)
    {
        if constexpr (is_held) {
            UL_UNROLLED
            for (int i = 0; i < count; i++) {
                const ul_source found = source(row(i), column(i));
                held[i] = found.is_there && has(i) ? *found.from : (uint16_t)0;
            }
        } else if (PACK > 1 && is_aligned) {
            UL_UNROLLED_BY(8) /* more would not leave registers */
            for (int i = 0; i < count; i++) {
                const ul_source found = source(row(i), column(i));
                if constexpr (PACK > 1) {
                    ul_note_pack(PACK, true);
                    if (has(i))
                        ul_copy<2 * PACK>(to + place(i), found.from, found.is_there);
                }
            }
        } else {
            ul_note_pack(PACK, false);
            UL_ROLLED
            for (int i = 0; i < count; i++) {
                const ul_source found = source(row(i), column(i));
                UL_ROLLED
                for (int e = 0; has(i) && e < PACK; e++)
                    to[place(i) + e] = found.is_there ? found.from[e] : (uint16_t)0;
            }
        }
    }
    __device__ __forceinline__ void end(uint16_t *to) const
    {
        if constexpr (is_held) {
            UL_UNROLLED
            for (int i = 0; i < count; i++)
                if (has(i))
                    to[place(i)] = held[i];
        }
    }
};

/* Reads this lane's part for ul_multiply of 16 rows from `row` + `more` and 16 columns of k from `k`
 * on: operand a, or two of b side by side. ALONG_K: rows lie beside k, and columns along it. `more` and
 * `k` are multiples of 16 that the compiler knows: what they move by whole rows of memory it puts
 * into the instructions, so that reads of a tile share their addresses. */
template <class LAYOUT, bool ALONG_K, bool IS_A>
__device__ __forceinline__ void ul_stage_read(uint32_t (&to)[4], const uint16_t *from, int row,
                                              int more, int k)
{
    const int lane = (int)threadIdx.x % 32, middle = 8 * (lane / 8 % 2), high = 8 * (lane / 16);
    const int beside = IS_A ? middle : high, along = IS_A ? high : middle;
    static_assert(16 % LAYOUT::PERIOD == 0, "16 rows further all lies alike");
    if constexpr (ALONG_K)
        ul_matrices_read(to, from + LAYOUT::at(row + beside + lane % 8, k + along) +
                                 more * LAYOUT::PITCH);
    else
        ul_matrices_turn(to, from + LAYOUT::at(along + lane % 8, row + more + beside) +
                                 k * LAYOUT::PITCH);
}

/* Tiles of BM x BN sums, each of whose warps has WM x WN of them in pieces of 16 x 8. STAGES tiles
 * of the operands lie in shared memory: one is multiplied, the others are on their way. */
template <class KIND_, int BM_, int BN_, int BK_, int WM_, int WN_, int STAGES_> struct ul_mma {
    typedef KIND_ KIND;
    static constexpr int BM = BM_, BN = BN_, BK = BK_, WM = WM_, WN = WN_, STAGES = STAGES_;
    static constexpr int warps_n = BN / WN, warps = BM / WM * warps_n, threads = 32 * warps;
    static constexpr int down = WM / 16, across = WN / 8;
    static constexpr int size_m = BM * BK, stage = (BM + BN) * BK;
    /* In floats, for 16 rows of a warp's sums: lanes write pairs, and four rows of these lie in
     * different banks. */
    static constexpr int out_pitch = WN + 8;
    static constexpr int out = warps * 16 * out_pitch * 2;
    static constexpr int elements = STAGES * stage > out ? STAGES *stage : out;
    static_assert(STAGES >= 2 && WM % 16 == 0 && WN % 16 == 0 && BK % 32 == 0, "whole pieces");

    /* For an operand of BESIDE rows or columns, which lies as it is read. */
    template <class HOW, int BESIDE> using layout = ul_exchanged<HOW::ALONG_K ? BK : BESIDE>;
    template <class HOW, int BESIDE>
    using part = ul_stage<HOW::ALONG_K ? BESIDE : BK, HOW::ALONG_K ? BK : BESIDE, HOW::PACK,
                          threads, layout<HOW, BESIDE>>;
};

/* Adds the products of one tile of each operand, for the warp's sums from row wm, column wn on. */
template <class MMA, class A, class B>
__device__ __forceinline__ void ul_mma_multiply(float (&sums)[MMA::down][MMA::across][4],
                                                const uint16_t *as, const uint16_t *bs, int wm,
                                                int wn)
{
    typedef typename MMA::template layout<A, MMA::BM> layout_a;
    typedef typename MMA::template layout<B, MMA::BN> layout_b;
    UL_UNROLLED
    for (int d = 0; d < MMA::BK; d += 16) {
        uint32_t a[MMA::down][4], b[MMA::across / 2][4];
        UL_UNROLLED
        for (int i = 0; i < MMA::down; i++)
            ul_stage_read<layout_a, A::ALONG_K, true>(a[i], as, wm, 16 * i, d);
        UL_UNROLLED
        for (int j = 0; j < MMA::across / 2; j++)
            ul_stage_read<layout_b, B::ALONG_K, false>(b[j], bs, wn, 16 * j, d);
        UL_UNROLLED
        for (int i = 0; i < MMA::down; i++) {
            UL_UNROLLED
            for (int j = 0; j < MMA::across; j++)
                ul_multiply(typename MMA::KIND(), sums[i][j], a[i], b[j / 2][j % 2 * 2],
                            b[j / 2][j % 2 * 2 + 1]);
        }
    }
}

/* Puts the 16 rows of a warp's sums that lie in `out`; the first one is row m0, column n0. */
template <class MMA, bool PUT_ALONG_M, typename T, typename I, class PUT>
__device__ __forceinline__ void ul_mma_put_rows(const T *out, I m0, I m, I n0, I n, const PUT &put)
{
    __syncwarp();
    UL_ROLLED
    for (int e = (int)threadIdx.x % 32; e < 16 * MMA::WN; e += 32) {
        int y = PUT_ALONG_M ? e % 16 : e / MMA::WN, x = PUT_ALONG_M ? e / 16 : e % MMA::WN;
        I row = m0 + y, column = n0 + x;
        if (row < m && column < n)
            put(row, column, out[y * MMA::out_pitch + x]);
    }
    __syncwarp();
}

/* The same, PACK neighbours of a row at a time. */
template <class MMA, int PACK, typename I, class PUT_PACK>
__device__ __forceinline__ void ul_mma_put_packs(const float *out, I m0, I m, I n0, I n,
                                                 const PUT_PACK &put_pack)
{
    typedef ul_pack_of<float, PACK> pack;
    constexpr int line = MMA::WN / PACK;
    __syncwarp();
    UL_ROLLED
    for (int e = (int)threadIdx.x % 32; e < 16 * line; e += 32) {
        const int y = e / line, x = e % line * PACK;
        const I row = m0 + y, column = n0 + x;
        if (row < m && column < n)
            put_pack(row, column, *(const pack *)(const void *)(out + y * MMA::out_pitch + x));
    }
    __syncwarp();
}

/* Puts a warp's sums through `out`, 16 rows at a time. */
template <class MMA, int PACK, typename I, class PUT, class PUT_PACK>
__device__ __forceinline__ void ul_mma_put(const float (&sums)[MMA::down][MMA::across][4],
                                           float *out, I m0, I m, I n0, I n, const PUT &put,
                                           const PUT_PACK &put_pack)
{
    typedef ul_pack_of<float, 2> two;
    const int r = (int)threadIdx.x % 32 / 4, c = (int)threadIdx.x % 4 * 2;
    UL_UNROLLED
    for (int i = 0; i < MMA::down; i++) {
        UL_UNROLLED
        for (int j = 0; j < MMA::across; j++) {
            UL_UNROLLED
            for (int h = 0; h < 2; h++) {
                two pair;
                pair.at[0] = sums[i][j][2 * h];
                pair.at[1] = sums[i][j][2 * h + 1];
                *(two *)(void *)(out + (r + 8 * h) * MMA::out_pitch + 8 * j + c) = pair;
            }
        }
        if constexpr (PACK > 1)
            ul_mma_put_packs<MMA, PACK>(out, (I)(m0 + 16 * i), m, n0, n, put_pack);
        else
            ul_mma_put_rows<MMA, false>(out, (I)(m0 + 16 * i), m, n0, n, put);
    }
}

/* The pack at a row and column of an operand's tile, for at in first + [0, ..) below limit and k in
 * k0 + [0, ..) below depth. */
template <class HOW, typename I, class PLACE>
__device__ __forceinline__ ul_source ul_mma_source(int row, int column, I first, I limit, I k0,
                                                   I depth, const PLACE &place)
{
    const I at = first + (HOW::ALONG_K ? row : column), k = k0 + (HOW::ALONG_K ? column : row);
    ul_source source = place(at, k);
    source.is_there = at < limit && k < depth && source.is_there;
    return source;
}

/* Tile `tile` of m x n sums of k products on tensor cores, as ul_contract_tile has them, but that
 * neighbours in the result are along n. place_a(m, k) and place_b(n, k) give an ul_source. */
template <class MMA, class A, class B, int PACK, typename I, class PLACE_A, class PLACE_B,
          class PUT, class PUT_PACK>
__device__ __forceinline__ void ul_contract_mma_rows(uint16_t *shared, int64_t tile, I m, I n, I k,
                                                     bool a_aligned, bool b_aligned,
                                                     const PLACE_A &place_a, const PLACE_B &place_b,
                                                     const PUT &put, const PUT_PACK &put_pack)
{
    constexpr int STAGES = MMA::STAGES, ahead = (STAGES - 1) * MMA::BK;
    const int warp = (int)threadIdx.x / 32;
    const int wm = warp / MMA::warps_n * MMA::WM, wn = warp % MMA::warps_n * MMA::WN;
    const int64_t tiles_n = ((int64_t)n + MMA::BN - 1) / MMA::BN;
    const I m0 = (I)(tile / tiles_n * MMA::BM), n0 = (I)(tile % tiles_n * MMA::BN);
    uint16_t *as = shared, *bs = shared + MMA::size_m;
    typename MMA::template part<A, MMA::BM> part_a;
    typename MMA::template part<B, MMA::BN> part_b;
    float sums[MMA::down][MMA::across][4] = {};
    const auto begin = [&](int stage, I k0) {
        part_a.begin(as + stage * MMA::stage, a_aligned, [&](int row, int column) {
            return ul_mma_source<A>(row, column, m0, m, k0, k, place_a);
        });
        part_b.begin(bs + stage * MMA::stage, b_aligned, [&](int row, int column) {
            return ul_mma_source<B>(row, column, n0, n, k0, k, place_b);
        });
    };
    const auto end = [&](int stage) {
        part_a.end(as + stage * MMA::stage);
        part_b.end(bs + stage * MMA::stage);
    };
    UL_ROLLED
    for (int stage = 0; stage < STAGES - 1; stage++) {
        if (stage * MMA::BK < k) {
            begin(stage, (I)(stage * MMA::BK));
            end(stage);
        }
        ul_copies_close();
    }
    int at = 0;
    UL_ROLLED
    for (I k0 = 0; k0 < k; k0 += MMA::BK) {
        const int to = at == 0 ? STAGES - 1 : at - 1; /* it was multiplied before this one */
        const bool has_next = k - k0 > ahead;
        ul_copies_wait<STAGES - 2>();
        __syncthreads();
        if (has_next)
            begin(to, (I)(k0 + ahead));
        ul_copies_close();
        ul_mma_multiply<MMA, A, B>(sums, as + at * MMA::stage, bs + at * MMA::stage, wm, wn);
        if (has_next)
            end(to);
        at = at == STAGES - 1 ? 0 : at + 1;
    }
    ul_copies_wait<0>();
    __syncthreads();
    float *out = (float *)(void *)shared + warp * 16 * MMA::out_pitch;
    ul_mma_put<MMA, PACK>(sums, out, (I)(m0 + wm), m, (I)(n0 + wn), n, put, put_pack);
    __syncthreads();
}

/* The same where neighbours in the result may be along m: operands then change places. Sums go to
 * put_pack(m, n, sums), PACK of them that are neighbours in the result, where PACK is not 1; then
 * m, or n, is a multiple of PACK. */
template <class MMA, class A, class B, bool PUT_ALONG_M, int PACK, typename I, class PLACE_A,
          class PLACE_B, class PUT, class PUT_PACK>
__device__ __forceinline__ void ul_contract_mma(uint16_t *shared, int64_t tile, I m, I n, I k,
                                                bool a_aligned, bool b_aligned,
                                                const PLACE_A &place_a, const PLACE_B &place_b,
                                                const PUT &put, const PUT_PACK &put_pack)
{
    if constexpr (PUT_ALONG_M) {
        typedef ul_mma<typename MMA::KIND, MMA::BN, MMA::BM, MMA::BK, MMA::WN, MMA::WM, MMA::STAGES>
            turned;
        ul_contract_mma_rows<turned, B, A, PACK>(
            shared, tile, n, m, k, b_aligned, a_aligned, place_b, place_a,
            [&](I row, I column, float sum) { put(column, row, sum); },
            [&](I row, I column, const auto &sums) { put_pack(column, row, sums); });
    } else {
        ul_contract_mma_rows<MMA, A, B, PACK>(shared, tile, m, n, k, a_aligned, b_aligned, place_a,
                                              place_b, put, put_pack);
    }
}

#endif
