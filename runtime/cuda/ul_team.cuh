/* SPDX-License-Identifier: 0BSD */
/*
 * What a team of threads does together: a warp, or a block, that runs one item of a printed kernel.
 *
 * Invariants: every function is called by all threads of the team; what it gives does not depend
 * on the order in which they run. Nothing fails.
 * CUDA C++17; also host C++ with tests/cuda_emulation.
 */
#ifndef UL_TEAM_CUH
#define UL_TEAM_CUH

#include "ul_contract.cuh"
#include "ul_kernel.cuh"

#ifdef __CUDACC__
#define UL_EACH_OF_PACK _Pragma("unroll")
#else
#define UL_EACH_OF_PACK
#endif

/* An array of `Type` at an offset in memory without one. */
template <typename Type> static __device__ inline Type *ul_at(unsigned char *bytes, int64_t offset)
{
    return reinterpret_cast<Type *>(bytes + offset);
}

/* At an address that is a multiple of the pack's size, or of 16. */
template <typename Type, int count>
static __device__ inline void ul_pack_put(Type *to, const ul_pack_of<Type, count> &pack)
{
    ul_note_pack(count, true);
    *reinterpret_cast<ul_pack_of<Type, count> *>(to) = pack;
}

#ifdef __CUDACC__
/* Four or two words from `place` on, an address in memory of the device, as one store. */
static __device__ __forceinline__ void ul_store(size_t place, const uint32_t (&words)[4])
{
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(place), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
}
static __device__ __forceinline__ void ul_store(size_t place, const uint32_t (&words)[2])
{
    asm volatile("st.global.v2.b32 [%0], {%1, %2};"
                 :
                 : "l"(place), "r"(words[0]), "r"(words[1])
                 : "memory");
}
#endif

/* The same in memory of the device. The compiler merges stores where it can prove their distance
   and they are of one type; here it need not. */
template <typename Type, int count>
static __device__ inline void ul_pack_write(Type *to, const ul_pack_of<Type, count> &pack)
{
#ifdef __CUDACC__
    constexpr int bytes = (int)sizeof pack, piece = bytes % 16 == 0 ? 16 : 8;
    if constexpr (bytes % 8 == 0) {
        UL_EACH_OF_PACK
        for (int i = 0; i < bytes; i += piece) {
            uint32_t words[piece / 4];
            memcpy(words, (const unsigned char *)&pack + i, piece);
            ul_store(__cvta_generic_to_global(to) + i, words);
        }
    } else
#endif
        ul_pack_put(to, pack);
}

/* The value that thread 0 has. */
template <typename Type> static __device__ inline Type ul_warp_first(Type value)
{
    return __shfl_sync(0xffffffffu, value, 0);
}

template <typename Type> static __device__ inline Type ul_block_first(Type value)
{
    UL_SHARED(Type, slot, 1);
    __syncthreads();
    if (threadIdx.x == 0)
        slot[0] = value;
    __syncthreads();
    return slot[0];
}

/* The values of all threads as one, which each of them gets: a tree of `operation`, which does not
   care for order. `threads`: of the team, a power of two; the whole block where it is no warp. */
template <int threads, typename Type, typename Operation>
static __device__ inline Type ul_fold(Type value, Operation operation)
{
    constexpr int warps = threads / 32;
    for (int half = 16; half > 0; half /= 2)
        value = operation(value, __shfl_xor_sync(0xffffffffu, value, half));
    if constexpr (warps > 1) {
        UL_SHARED(Type, slots, warps);
        __syncthreads();
        if (threadIdx.x % 32 == 0)
            slots[threadIdx.x / 32] = value;
        __syncthreads();
        value = slots[threadIdx.x % warps];
        for (int half = warps / 2; half > 0; half /= 2)
            value = operation(value, __shfl_xor_sync(0xffffffffu, value, half));
    }
    return value;
}

#endif
