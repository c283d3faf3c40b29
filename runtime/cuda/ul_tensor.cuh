/* SPDX-License-Identifier: 0BSD */
/*
 * What devices of compute capability 8.0 and later have as instructions, for the tiles of
 * ul_contract.cuh and ul_attention.cuh: copies from global to shared memory that nobody waits for
 * until the data is wanted, matrices from shared memory into the registers of a warp, and products
 * of these on tensor cores (PTX ISA: "cp.async", "ldmatrix", "Matrix Fragments for mma.m16n8k16
 * with floating point type").
 *
 * Copies. A thread begins copies, closes a group of them, and waits until all but the last N groups
 * have come; then they are there for that thread alone, and for others after a barrier:
 *
 *     ul_copy(to, from, true); ul_copies_close();       ul_copies_wait<0>(); __syncthreads();
 *
 * Matrices of 8 x 8 elements of 16 bits, rows of 16 bytes; lane l of a warp names row l % 8 of
 * matrix l / 8 of four. With r = lane / 4 and c = lane % 4 the lane gets of each matrix
 *
 *     ul_matrices_read      row r, columns 2c and 2c + 1
 *     ul_matrices_turn      column r, rows 2c and 2c + 1
 *
 * A product adds to 16 x 8 sums those of 16 x 16 by 16 x 8 elements. The lane holds
 *
 *     sums   rows r and r + 8, columns 2c and 2c + 1
 *     a      columns 2c and 2c + 1 of rows r and r + 8, then columns 2c + 8 and 2c + 9 of these
 *     b      rows 2c and 2c + 1, then rows 2c + 8 and 2c + 9 of column r
 *
 * so that sums, rounded, are an operand a of another product as they lie.
 *
 * Invariants: all lanes of a warp call what is about matrices together. Addresses are multiples of
 * what is moved at once. Nothing fails.
 * CUDA C++; tests/cuda_emulation has the same functions for the host.
 */
#ifndef UL_TENSOR_CUH
#define UL_TENSOR_CUH

#include "ul_cuda.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* An element of 16 bits, which is held as its bits. */
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

#ifdef __CUDACC__

/* Whether so many elements, more than one, are moved at once, or one by one because their place is
 * not aligned: tests/cuda_emulation counts it, a device does not. */
__device__ __forceinline__ void ul_note_pack(int, bool)
{
}

/* BYTES: 4, 8 or 16, from global memory to shared; zeros where it is not there, and then `from` is
 * not read. What goes around the nearest cache, 16 bytes, is not read again by this thread. */
template <int BYTES>
__device__ __forceinline__ void ul_copy(void *to, const void *from, bool is_there)
{
    const unsigned place = (unsigned)__cvta_generic_to_shared(to);
    const int bytes = is_there ? BYTES : 0;
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "what devices move at once");
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"(place), "l"(__cvta_generic_to_global(from)), "r"(bytes)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                     :
                     : "r"(place), "l"(__cvta_generic_to_global(from)), "n"(BYTES), "r"(bytes)
                     : "memory");
}

__device__ __forceinline__ void ul_copies_close(void)
{
    asm volatile("cp.async.commit_group;" : : : "memory");
}

/* Until at most the last LEFT groups are under way. */
template <int LEFT> __device__ __forceinline__ void ul_copies_wait(void)
{
    asm volatile("cp.async.wait_group %0;" : : "n"(LEFT) : "memory");
}

#define UL_MATRICES(name, how)                                                                     \
    __device__ __forceinline__ void name(uint32_t(&to)[4], const uint16_t *row)                    \
    {                                                                                              \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" how ".shared.b16 {%0, %1, %2, %3}, [%4];"     \
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])                          \
                     : "r"((unsigned)__cvta_generic_to_shared(row)));                              \
    }
UL_MATRICES(ul_matrices_read, "")
UL_MATRICES(ul_matrices_turn, ".trans")
#undef UL_MATRICES

/* 2^x, where results and arguments that are no normal numbers count as 0. */
__device__ __forceinline__ float ul_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* ul_round_pair: two elements side by side, x the first. */
#define UL_MULTIPLY(kind, type)                                                                    \
    __device__ __forceinline__ void ul_multiply(kind, float(&sums)[4], const uint32_t(&a)[4],      \
                                                uint32_t b0, uint32_t b1)                          \
    {                                                                                              \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                \
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"             \
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));              \
    }                                                                                              \
    __device__ __forceinline__ uint32_t ul_round_pair(kind, float x, float y)                      \
    {                                                                                              \
        uint32_t pair;                                                                             \
        asm("cvt.rn." type "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));                    \
        return pair;                                                                               \
    }
UL_MULTIPLY(ul_float16, "f16")
UL_MULTIPLY(ul_bfloat16, "bf16")
#undef UL_MULTIPLY

#else
#include "ul_emulate_tensor.h" /* tests/cuda_emulation */
#endif

#endif
