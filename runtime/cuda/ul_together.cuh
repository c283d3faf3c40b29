/* SPDX-License-Identifier: 0BSD */
/*
 * Blocks of one launch that wait for each other, for kernels that UL_LAUNCH_TOGETHER launches: a
 * loop of the program inside of one launch, what its rounds read kept in shared memory.
 *
 *     for (round ...) {
 *         ... each block its part, from what others wrote in the round before
 *         ul_meet(meeting);
 *     }
 *
 * What any thread wrote before the meeting, all threads see after it: barriers order the threads
 * of a block, and the counters are read and written with acquire and release at the device's scope,
 * which is cumulative (PTX ISA, Memory Consistency Model: causality order). The last block to come
 * clears the count and begins the next round, so that launches and replays find the counters as
 * they need them, whatever the number of blocks.
 *
 * Invariants: all threads of all blocks meet alike; nothing that blocks write for each other is
 * read through the read-only cache. Nothing fails.
 * CUDA C++17; also host C++ with tests/cuda_emulation.
 */
#ifndef UL_TOGETHER_CUH
#define UL_TOGETHER_CUH

#include "ul_contract.cuh"
#include "ul_cuda.h"
#include "ul_last.cuh"

#include <stdint.h>

/* What another block wrote before it released the word is seen after. */
static __device__ __forceinline__ uint32_t ul_acquire(const uint32_t *word)
{
#ifdef __CUDACC__
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
#else
    ul_emulate_spin();
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
}

static __device__ __forceinline__ void ul_release(uint32_t *word, uint32_t value)
{
#ifdef __CUDACC__
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
#else
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
#endif
}

/* All threads of all blocks of the launch. */
static __device__ inline void ul_meet(struct ul_meeting *meeting)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        const uint32_t round = ul_acquire(&meeting->round);
        if (ul_arrive(&meeting->arrived, 1) == gridDim.x - 1) {
            ul_release(&meeting->arrived, 0);
            ul_release(&meeting->round, round + 1);
        } else {
            while (ul_acquire(&meeting->round) == round)
                ;
        }
    }
    __syncthreads();
}

/* A warp's copy of an operand of a contraction, rows of k side by side: `read` gives packs. */
template <typename Type, int PACK, typename I, class READ>
static __device__ __forceinline__ void ul_hold(unsigned char *to, I rows, I k, const READ &read)
{
    Type *const place = reinterpret_cast<Type *>(to);
    for (I row = 0; row < rows; row++) {
        UL_UNROLLED_BY(4)
        for (I at = (I)(threadIdx.x % 32 * PACK); at < k; at += 32 * PACK)
            *reinterpret_cast<ul_pack_of<Type, PACK> *>(place + row * k + at) = read(row, at);
    }
    __syncwarp();
}

template <typename Type, int PACK, typename I>
static __device__ __forceinline__ ul_pack_of<Type, PACK> ul_held(const unsigned char *from, I at)
{
    return *reinterpret_cast<const ul_pack_of<Type, PACK> *>(reinterpret_cast<const Type *>(from) +
                                                             at);
}

#endif
