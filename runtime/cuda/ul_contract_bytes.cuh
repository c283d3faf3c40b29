/* SPDX-License-Identifier: 0BSD */
/*
 * Contractions of bytes for kernels of target cuda: operands of 8 bits, sums in 32. Four neighbours
 * of k are a word, the first one its lowest byte, and tiles of ul_contract.cuh have words for
 * elements, so that one instruction adds four products, or on tensor cores 4096.
 *
 * The printed kernel gives functions as there, whose packs are of bytes. How they become words:
 *
 *      along k                  k0 k1 k2 k3 | k4 k5 k6 k7 ..     as they lie
 *      beside k, four of n      k0: n0 n1 n2 n3                  n0: k0 k1 k2 k3
 *      and of k at a time       k1: n0 n1 n2 n3          ->      n1: k0 k1 k2 k3
 *                               k2: ..   k3: ..                  n2: ..   n3: ..
 *      else                     byte by byte
 *
 * Bytes after the last k are 0. Sums wrap, so that every order of them has the same bits.
 *
 * Invariants, failures: as in ul_contract.cuh. Devices of compute capability 8.0 and later.
 */
#ifndef UL_CONTRACT_BYTES_CUH
#define UL_CONTRACT_BYTES_CUH

#include "ul_contract.cuh"

/* Bytes that are only moved; as ul_bits16. */
struct ul_byte {
    uint8_t bits;
    ul_byte() = default;
    __device__ __forceinline__ ul_byte(uint32_t x) : bits((uint8_t)x)
    {
    }
};
template <int COUNT> struct alignas(COUNT) ul_pack_of<ul_byte, COUNT> {
    typedef typename std::conditional<COUNT == 1, uint8_t, uint32_t>::type word;
    word words[(COUNT + 3) / 4];
    /* Puts bytes in order of i. */
    __device__ __forceinline__ void put(int i, ul_byte x)
    {
        words[i / 4] = (word)(i % 4 == 0 ? x.bits : words[i / 4] | (uint32_t)x.bits << 8 * (i % 4));
    }
};

/* ---- instructions ---- */

/* Products of signed or unsigned bytes, added to sums of 32 bits.
 *
 * add: sum + the four products of two words. multiply: 16 x 8 sums of 32 products, of which a lane
 * of a warp, r = lane / 4 and c = lane % 4, holds
 *
 *      sums   rows r and r + 8, columns 2c and 2c + 1
 *      a      words c of rows r and r + 8, then words c + 4 of these
 *      b      words c and c + 4 of column r */
#ifdef __CUDACC__
#define UL_BYTES(a_signed, b_signed, a_type, b_type)                                               \
    template <> struct ul_bytes<a_signed, b_signed> {                                              \
        static __device__ __forceinline__ void add(uint32_t &sum, uint32_t a, uint32_t b)          \
        {                                                                                          \
            asm("dp4a." a_type "32." b_type "32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));    \
        }                                                                                          \
        static __device__ __forceinline__ void                                                     \
        multiply(uint32_t (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])              \
        {                                                                                          \
            asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." a_type "8." b_type "8.s32 "      \
                         "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"         \
                         : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])              \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));      \
        }                                                                                          \
    };
template <bool A_SIGNED, bool B_SIGNED> struct ul_bytes;
UL_BYTES(false, false, "u", "u")
UL_BYTES(false, true, "u", "s")
UL_BYTES(true, false, "s", "u")
UL_BYTES(true, true, "s", "s")
#undef UL_BYTES
#else
#include "ul_emulate_bytes.h" /* tests/cuda_emulation */
#endif

/* ---- words ---- */

/* How an operand is read: BYTES neighbours at once, 1 or a multiple of 4; PACK: words of these. */
template <int BYTES_, bool ALONG_K_> struct ul_reading_bytes {
    static constexpr int BYTES = BYTES_;
    static constexpr bool ALONG_K = ALONG_K_;
    static constexpr int PACK = BYTES == 1 ? 1 : ALONG_K ? BYTES / 4 : 4;
    static_assert(BYTES == 1 || (ALONG_K ? BYTES % 4 == 0 : BYTES == 4), "packs are whole words");
};

/* Rows of four bytes become columns. */
__device__ __forceinline__ ul_pack_of<uint32_t, 4> ul_words_turn(const uint32_t (&rows)[4])
{
    uint32_t low01 = __byte_perm(rows[0], rows[1], 0x5140);
    uint32_t low23 = __byte_perm(rows[2], rows[3], 0x5140);
    uint32_t high01 = __byte_perm(rows[0], rows[1], 0x7362);
    uint32_t high23 = __byte_perm(rows[2], rows[3], 0x7362);
    ul_pack_of<uint32_t, 4> words;
    words.at[0] = __byte_perm(low01, low23, 0x5410);
    words.at[1] = __byte_perm(low01, low23, 0x7632);
    words.at[2] = __byte_perm(high01, high23, 0x5410);
    words.at[3] = __byte_perm(high01, high23, 0x7632);
    return words;
}

/* Words from number `word` of k on, where read(k) gives a pack of bytes, of k below depth. */
template <class HOW, typename I, class READ>
__device__ __forceinline__ ul_pack_of<uint32_t, HOW::PACK> ul_words_read(I word, I depth,
                                                                         const READ &read)
{
    ul_pack_of<uint32_t, HOW::PACK> words;
    const I k = 4 * word;
    if constexpr (HOW::BYTES > 1 && HOW::ALONG_K) {
        const ul_pack_of<ul_byte, HOW::BYTES> bytes = read(k);
        UL_UNROLLED
        for (int i = 0; i < HOW::PACK; i++)
            words.at[i] = bytes.words[i];
    } else {
        uint32_t rows[4];
        UL_UNROLLED
        for (int i = 0; i < 4; i++)
            rows[i] = k + i < depth ? (uint32_t)read(k + i).words[0] : 0u;
        if constexpr (HOW::BYTES > 1)
            words = ul_words_turn(rows);
        else
            words.at[0] = rows[0] | rows[1] << 8 | rows[2] << 16 | rows[3] << 24;
    }
    return words;
}

/* ---- contractions ---- */

/* The operands of a function `call` of ul_contract.cuh as words. */
template <class A, class B, typename I, class READ_A, class READ_B, class CALL>
__device__ __forceinline__ void ul_contract_words(I k, const READ_A &read_a, const READ_B &read_b,
                                                  const CALL &call)
{
    const auto words_a = [&](I at, I word) {
        return ul_words_read<A>(word, k, [&](I deep) { return read_a(at, deep); });
    };
    const auto words_b = [&](I word, I at) {
        return ul_words_read<B>(word, k, [&](I deep) { return read_b(deep, at); });
    };
    call((k + 3) / 4, words_a, words_b);
}

/* ul_contract_tile; TILE: an ul_tile of uint32_t whose PRODUCT is an ul_bytes. */
template <class TILE, class A, class B, bool PUT_ALONG_M, typename I, class READ_A, class READ_B,
          class PUT>
__device__ __forceinline__ void ul_contract_tile_bytes(uint32_t *shared, int64_t tile, I m, I n,
                                                       I k, const READ_A &read_a,
                                                       const READ_B &read_b, const PUT &put)
{
    ul_contract_words<A, B>(k, read_a, read_b, [&](I words, const auto &a, const auto &b) {
        ul_contract_tile<TILE, A, B, PUT_ALONG_M>(shared, tile, m, n, words, a, b, put);
    });
}

/* ul_contract_dot for packs of BYTES; PRODUCT: an ul_bytes. */
template <class PRODUCT, int BYTES, int SUMS, typename I, class READ_A, class READ_B, class PUT>
__device__ __forceinline__ void ul_contract_dot_bytes(int64_t tile, I m, I n, I k,
                                                      const READ_A &read_a, const READ_B &read_b,
                                                      const PUT &put)
{
    typedef ul_reading_bytes<BYTES, true> how;
    ul_contract_words<how, how>(k, read_a, read_b, [&](I words, const auto &a, const auto &b) {
        ul_contract_dot<uint32_t, how::PACK, SUMS, PRODUCT>(tile, m, n, words, a, b, put);
    });
}

/* The same for ul_contract_team. */
template <class PRODUCT, int BYTES, int SUMS, typename I, class READ_A, class READ_B, class PUT>
__device__ __forceinline__ void ul_contract_team_bytes(int64_t thread, int64_t threads, I m, I n,
                                                       I k, const READ_A &read_a,
                                                       const READ_B &read_b, const PUT &put)
{
    typedef ul_reading_bytes<BYTES, true> how;
    ul_contract_words<how, how>(k, read_a, read_b, [&](I words, const auto &a, const auto &b) {
        ul_contract_team<uint32_t, how::PACK, SUMS, PRODUCT>(thread, threads, m, n, words, a, b,
                                                             put);
    });
}

/* ---- tensor cores ---- */

/* Tiles of BM x BN sums, each of whose warps has WM x WN of them in pieces of 16 x 8; BK: words. */
template <class PRODUCT_, int BM_, int BN_, int BK_, int WM_, int WN_> struct ul_mma_bytes {
    typedef PRODUCT_ PRODUCT;
    static constexpr int BM = BM_, BN = BN_, BK = BK_, WM = WM_, WN = WN_;
    static constexpr int warps_n = BN / WN, warps = BM / WM * warps_n, threads = 32 * warps;
    static constexpr int down = WM / 16, across = WN / 8;
    /* Words of a row or column of an operand: the eight that a warp reads at once begin four banks
     * apart from each other. */
    static constexpr int pitch = BK + 4;
    static constexpr int stage = (BM + BN) * pitch;
    static constexpr int out_pitch = WN + 4; /* of 16 rows of a warp's sums */
    static constexpr int out = warps * 16 * out_pitch;
    static constexpr int elements = 2 * stage > out ? 2 * stage : out;
    static_assert(BK % 16 == 0, "pitches are odd multiples of four");
};

/* Adds the products of one tile of each operand, for the warp's sums from row wm, column wn on. */
template <class MMA>
__device__ __forceinline__ void ul_mma_bytes_multiply(uint32_t (&sums)[MMA::down][MMA::across][4],
                                                      const uint32_t *as, const uint32_t *bs,
                                                      int wm, int wn)
{
    constexpr int pitch = MMA::pitch;
    const int r = (int)threadIdx.x % 32 / 4, c = (int)threadIdx.x % 4;
    as += (wm + r) * pitch + c;
    bs += (wn + r) * pitch + c;
    UL_UNROLLED
    for (int d = 0; d < MMA::BK; d += 8) {
        uint32_t a[MMA::down][4], b[MMA::across][2];
        UL_UNROLLED
        for (int i = 0; i < MMA::down; i++) {
            UL_UNROLLED
            for (int e = 0; e < 4; e++)
                a[i][e] = as[(16 * i + 8 * (e % 2)) * pitch + d + 4 * (e / 2)];
        }
        UL_UNROLLED
        for (int j = 0; j < MMA::across; j++) {
            b[j][0] = bs[8 * j * pitch + d];
            b[j][1] = bs[8 * j * pitch + d + 4];
        }
        UL_UNROLLED
        for (int i = 0; i < MMA::down; i++) {
            UL_UNROLLED
            for (int j = 0; j < MMA::across; j++)
                MMA::PRODUCT::multiply(sums[i][j], a[i], b[j]);
        }
    }
}

/* Puts a warp's sums through `out`, 16 rows at a time; the first one is row m0, column n0. */
template <class MMA, bool PUT_ALONG_M, typename I, class PUT>
__device__ __forceinline__ void ul_mma_bytes_put(const uint32_t (&sums)[MMA::down][MMA::across][4],
                                                 uint32_t *out, I m0, I m, I n0, I n,
                                                 const PUT &put)
{
    const int r = (int)threadIdx.x % 32 / 4, c = (int)threadIdx.x % 4;
    UL_UNROLLED
    for (int i = 0; i < MMA::down; i++) {
        UL_UNROLLED
        for (int j = 0; j < MMA::across; j++) {
            UL_UNROLLED
            for (int e = 0; e < 4; e++)
                out[(r + 8 * (e / 2)) * MMA::out_pitch + 8 * j + 2 * c + e % 2] = sums[i][j][e];
        }
        ul_mma_put_rows<MMA, PUT_ALONG_M>(out, (I)(m0 + 16 * i), m, n0, n, put);
    }
}

/* ul_contract_mma for words; k counts these. */
template <class MMA, class A, class B, bool PUT_ALONG_M, typename I, class READ_A, class READ_B,
          class PUT>
__device__ __forceinline__ void ul_contract_mma_words(uint32_t *shared, int64_t tile, I m, I n, I k,
                                                      const READ_A &read_a, const READ_B &read_b,
                                                      const PUT &put)
{
    const int warp = (int)threadIdx.x / 32;
    const int wm = warp / MMA::warps_n * MMA::WM, wn = warp % MMA::warps_n * MMA::WN;
    const int64_t tiles_n = ((int64_t)n + MMA::BN - 1) / MMA::BN;
    const I m0 = (I)(tile / tiles_n * MMA::BM), n0 = (I)(tile % tiles_n * MMA::BN);
    auto read_along = [&](I at, I deep) { return read_b(deep, at); };
    ul_tile_part<uint32_t, MMA::BM, MMA::BK, MMA::threads, A> part_a;
    ul_tile_part<uint32_t, MMA::BN, MMA::BK, MMA::threads, B> part_b;
    uint32_t sums[MMA::down][MMA::across][4] = {};
    uint32_t *as = shared, *bs = shared + MMA::BM * MMA::pitch;
    ul_tiles_walk<MMA::BK, MMA::stage>(
        k,
        [&](I k0) {
            part_a.load(m0, m, k0, k, read_a);
            part_b.load(n0, n, k0, k, read_along);
        },
        [&](int at) {
            part_a.template store_along_k<MMA::pitch>(as + at);
            part_b.template store_along_k<MMA::pitch>(bs + at);
        },
        [&](int at) { ul_mma_bytes_multiply<MMA>(sums, as + at, bs + at, wm, wn); });
    uint32_t *out = shared + warp * 16 * MMA::out_pitch;
    ul_mma_bytes_put<MMA, PUT_ALONG_M>(sums, out, (I)(m0 + wm), m, (I)(n0 + wn), n, put);
    __syncthreads();
}

/* ul_contract_tile_bytes on tensor cores; MMA: an ul_mma_bytes. */
template <class MMA, class A, class B, bool PUT_ALONG_M, typename I, class READ_A, class READ_B,
          class PUT>
__device__ __forceinline__ void ul_contract_mma_bytes(uint32_t *shared, int64_t tile, I m, I n, I k,
                                                      const READ_A &read_a, const READ_B &read_b,
                                                      const PUT &put)
{
    ul_contract_words<A, B>(k, read_a, read_b, [&](I words, const auto &a, const auto &b) {
        ul_contract_mma_words<MMA, A, B, PUT_ALONG_M>(shared, tile, m, n, words, a, b, put);
    });
}

#endif
