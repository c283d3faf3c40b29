/* SPDX-License-Identifier: 0BSD */
/*
 * The last block of a launch, or of a group of its blocks, that is done: it goes on alone with what
 * all of them wrote.
 *
 *     ... each block its part of a sum
 *     if (ul_is_last<8>(counters, group, blocks)) {
 *         ... the parts are added up, in their order
 *     }
 *
 * No block waits for another one, so blocks need not be there at once. What a block wrote before it
 * asks, the last one sees: barriers order the threads of a block, and the counter is added to with
 * acquire and release at the device's scope, which is cumulative (PTX ISA, Memory Consistency
 * Model: causality order). The last block sets its counter back, so that launches and replays find
 * zeros, whatever the number of blocks.
 *
 * Invariants: all threads of a block ask alike; nothing that blocks write for each other is read
 * through the read-only cache; launches that run beside each other have counters of their own.
 * Nothing fails.
 * CUDA C++17; also host C++ with tests/cuda_emulation.
 */
#ifndef UL_LAST_CUH
#define UL_LAST_CUH

#include "ul_cuda.h"

#include <stdint.h>

/* Adds to a word; gives what was there. */
static __device__ __forceinline__ uint32_t ul_arrive(uint32_t *word, uint32_t count)
{
#ifdef __CUDACC__
    uint32_t before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(word), "r"(count)
                 : "memory");
    return before;
#else
    return __atomic_fetch_add(word, count, __ATOMIC_ACQ_REL);
#endif
}

/* Whether this block is the last one of a group of so many, which `bits` are enough to count: 4, 8,
 * 16 or 32. */
template <int bits>
static __device__ inline bool ul_is_last(uint32_t *counters, uint32_t group, uint32_t blocks)
{
    UL_SHARED(uint32_t, t_is_last, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t *const word = counters + group / (32 / bits);
        const uint32_t shift = group % (32 / bits) * bits;
        const uint32_t before = ul_arrive(word, 1u << shift) >> shift & (0xffffffffu >> (32 - bits));
        t_is_last[0] = before == blocks - 1;
        if (before == blocks - 1)
            (void)ul_arrive(word, 0u - (blocks << shift));
    }
    __syncthreads();
    return t_is_last[0] != 0;
}

/* The item of this thread, of items in rows, where block number `block` has those of a group:
 * `width` side by side in as many rows as it has threads for. */
static __device__ inline int64_t ul_item_of_group(uint32_t block, uint32_t width, uint32_t row)
{
    const uint32_t groups = row / width;
    return (int64_t)(block / groups * (blockDim.x / width) + threadIdx.x / width) * row +
           (block % groups * width + threadIdx.x % width);
}

#endif
