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

/* The same in memory of the device. Of how the address came to be the compiler then knows nothing:
   where it does, it may not see that what it stores at constant distances is one store. */
template <typename Type, int count>
static __device__ inline void ul_pack_write(Type *to, const ul_pack_of<Type, count> &pack)
{
#ifdef __CUDACC__
    size_t place = __cvta_generic_to_global(to);
    asm("" : "+l"(place));
    ul_pack_put((Type *)__cvta_global_to_generic(place), pack);
#else
    ul_pack_put(to, pack);
#endif
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
