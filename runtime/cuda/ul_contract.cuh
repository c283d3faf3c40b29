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
 * neighbouring elements.
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

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

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

/* Elements of 16 bits that are moved and no more. Packs of them are whole registers: compilers
 * would take those to pieces where two ways of reading a pack meet. */
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
    /* In order of i. */
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
    if (is_aligned)
        return *(const ul_pack_of<T, COUNT> *)(const void *)from;
    ul_pack_of<T, COUNT> pack;
    UL_UNROLLED
    for (int i = 0; i < COUNT; i++)
        pack.put(i, from[i]);
    return pack;
}

__device__ __forceinline__ bool ul_is_aligned(const void *place)
{
    return (uintptr_t)place % 16 == 0;
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
    /* Rows of the tiles are a few elements longer than they must be, so that elements of one
     * column lie in different banks. */
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
    /* As [k][beside]. */
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
    /* As [beside][k] where neighbours are along k, else as [k][beside]: as it was read. */
    template <int PITCH, typename TO> __device__ __forceinline__ void store_as_read(TO *to) const
    {
        UL_UNROLLED
        for (int i = 0; i < count; i++)
            *(ul_pack_of<T, pack> *)(void *)(to + (HOW::ALONG_K ? beside(i) * PITCH + deep(i)
                                                                : deep(i) * PITCH + beside(i))) =
                values[i];
    }
    /* As [beside][k], however it was read. */
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

/* Adds the products of one tile of either operand, of this thread's split. */
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
 * i, i + 32 and so on of the products, and lanes are added in a fixed tree. */
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

/* All sums by a team of whole warps, of which this is thread `thread`. */
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

/* What the tiles below ask of an element of 16 bits, which they hold as its bits. */
struct ul_float16 {
    typedef __half type;
    static __device__ __forceinline__ uint16_t round(float x)
    {
        return __half_as_ushort(__float2half_rn(x));
    }
    static __device__ __forceinline__ float value(uint16_t bits)
    {
        return __half2float(__ushort_as_half(bits));
    }
};
struct ul_bfloat16 {
    typedef __nv_bfloat16 type;
    static __device__ __forceinline__ uint16_t round(float x)
    {
        return __bfloat16_as_ushort(__float2bfloat16_rn(x));
    }
    static __device__ __forceinline__ float value(uint16_t bits)
    {
        return __bfloat162float(__ushort_as_bfloat16(bits));
    }
};

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

/* Tiles of BM x BN sums, each of whose warps has WM x WN of them in fragments of 16 x 16. */
template <class KIND_, int BM_, int BN_, int BK_, int WM_, int WN_> struct ul_mma {
    typedef KIND_ KIND;
    static constexpr int BM = BM_, BN = BN_, BK = BK_, WM = WM_, WN = WN_;
    static constexpr int warps_n = BN / WN, warps = BM / WM * warps_n, threads = 32 * warps;
    static constexpr int down = WM / 16, across = WN / 16;
    /* Eight more than there must be, so that rows begin in different banks. */
    static constexpr int size_m = BM * (BK + 8) > BK *(BM + 8) ? BM *(BK + 8) : BK *(BM + 8);
    static constexpr int size_n = BN * (BK + 8) > BK *(BN + 8) ? BN *(BK + 8) : BK *(BN + 8);
    static constexpr int stage = size_m + size_n;
    static constexpr int out_pitch = WN + 4; /* of floats: 16 rows of a warp's sums */
    static constexpr int out = warps * 16 * out_pitch * 2;
    static constexpr int elements = 2 * stage > out ? 2 * stage : out;

    /* Of a row in shared memory, which holds an operand as it is read. */
    template <class A> static constexpr int pitch_a = (A::ALONG_K ? BK : BM) + 8;
    template <class B> static constexpr int pitch_b = (B::ALONG_K ? BK : BN) + 8;
};

/* The fragment at row i, column k of an operand that lies as [i][k] or as [k][i]. */
template <class USE, class KIND, bool IS_ROWS> struct ul_fragment_of {
    typedef nvcuda::wmma::fragment<
        USE, 16, 16, 16, typename KIND::type,
        typename std::conditional<IS_ROWS, nvcuda::wmma::row_major, nvcuda::wmma::col_major>::type>
        type;
};
template <class KIND, class FRAGMENT>
__device__ __forceinline__ void ul_fragment_load(FRAGMENT &fragment, const uint16_t *from,
                                                 unsigned pitch)
{
    nvcuda::wmma::load_matrix_sync(fragment, (const typename KIND::type *)(const void *)from,
                                   pitch);
}

/* Adds the products of one tile of either operand, of the warp's sums from row wm, column wn on. */
template <class MMA, class A, class B, class FRAGMENT>
__device__ __forceinline__ void ul_mma_multiply(FRAGMENT (&sums)[MMA::down][MMA::across],
                                                const uint16_t *as, const uint16_t *bs, int wm,
                                                int wn)
{
    using namespace nvcuda;
    typedef typename MMA::KIND KIND;
    constexpr int pitch_a = MMA::template pitch_a<A>, pitch_b = MMA::template pitch_b<B>;
    UL_UNROLLED
    for (int d = 0; d < MMA::BK; d += 16) {
        typename ul_fragment_of<wmma::matrix_a, KIND, A::ALONG_K>::type a[MMA::down];
        typename ul_fragment_of<wmma::matrix_b, KIND, !B::ALONG_K>::type b[MMA::across];
        UL_UNROLLED
        for (int i = 0; i < MMA::down; i++) {
            int row = wm + 16 * i;
            ul_fragment_load<KIND>(a[i], as + (A::ALONG_K ? row * pitch_a + d : d * pitch_a + row),
                                   pitch_a);
        }
        UL_UNROLLED
        for (int j = 0; j < MMA::across; j++) {
            int column = wn + 16 * j;
            ul_fragment_load<KIND>(
                b[j], bs + (B::ALONG_K ? column * pitch_b + d : d * pitch_b + column), pitch_b);
        }
        UL_UNROLLED
        for (int i = 0; i < MMA::down; i++) {
            UL_UNROLLED
            for (int j = 0; j < MMA::across; j++)
                wmma::mma_sync(sums[i][j], a[i], b[j], sums[i][j]);
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

/* Puts a warp's sums through `out`, 16 rows at a time. */
template <class MMA, bool PUT_ALONG_M, typename I, class FRAGMENT, class PUT>
__device__ __forceinline__ void ul_mma_put(const FRAGMENT (&sums)[MMA::down][MMA::across],
                                           float *out, I m0, I m, I n0, I n, const PUT &put)
{
    using namespace nvcuda;
    UL_UNROLLED
    for (int i = 0; i < MMA::down; i++) {
        UL_UNROLLED
        for (int j = 0; j < MMA::across; j++)
            wmma::store_matrix_sync(out + 16 * j, sums[i][j], MMA::out_pitch, wmma::mem_row_major);
        ul_mma_put_rows<MMA, PUT_ALONG_M>(out, (I)(m0 + 16 * i), m, n0, n, put);
    }
}

/* ul_contract_tile on tensor cores; reading gives bits of elements of 16 bits. */
template <class MMA, class A, class B, bool PUT_ALONG_M, typename I, class READ_A, class READ_B,
          class PUT>
__device__ __forceinline__ void ul_contract_mma(uint16_t *shared, int64_t tile, I m, I n, I k,
                                                const READ_A &read_a, const READ_B &read_b,
                                                const PUT &put)
{
    using namespace nvcuda;
    constexpr int pitch_a = MMA::template pitch_a<A>, pitch_b = MMA::template pitch_b<B>;
    const int warp = (int)threadIdx.x / 32;
    const int wm = warp / MMA::warps_n * MMA::WM, wn = warp % MMA::warps_n * MMA::WN;
    const int64_t tiles_n = ((int64_t)n + MMA::BN - 1) / MMA::BN;
    const I m0 = (I)(tile / tiles_n * MMA::BM), n0 = (I)(tile % tiles_n * MMA::BN);
    auto read_along = [&](I at, I deep) { return read_b(deep, at); };
    ul_tile_part<ul_bits16, MMA::BM, MMA::BK, MMA::threads, A> part_a;
    ul_tile_part<ul_bits16, MMA::BN, MMA::BK, MMA::threads, B> part_b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[MMA::down][MMA::across];
    UL_UNROLLED
    for (int i = 0; i < MMA::down; i++) {
        UL_UNROLLED
        for (int j = 0; j < MMA::across; j++)
            wmma::fill_fragment(sums[i][j], 0.0f);
    }
    uint16_t *as = shared, *bs = shared + MMA::size_m;
    ul_tiles_walk<MMA::BK, MMA::stage>(
        k,
        [&](I k0) {
            part_a.load(m0, m, k0, k, read_a);
            part_b.load(n0, n, k0, k, read_along);
        },
        [&](int at) {
            part_a.template store_as_read<pitch_a>(as + at);
            part_b.template store_as_read<pitch_b>(bs + at);
        },
        [&](int at) { ul_mma_multiply<MMA, A, B>(sums, as + at, bs + at, wm, wn); });
    float *out = (float *)(void *)shared + warp * 16 * MMA::out_pitch;
    ul_mma_put<MMA, PUT_ALONG_M>(sums, out, (I)(m0 + wm), m, (I)(n0 + wn), n, put);
    __syncthreads();
}

#endif
