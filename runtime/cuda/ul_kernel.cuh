/* SPDX-License-Identifier: 0BSD */
/*
 * What printed kernels in CUDA are written with: which item a thread begins with, checked indexes,
 * and through ul_scalar.h all that expressions call. The counterpart of ul_kernel.h.
 *
 * Invariants: no function has undefined behaviour for any argument. The only failure is an index
 * out of range: clamped, and noted in the arena's fault record, whose content at the end of a run
 * does not depend on the order in which threads ran.
 * CUDA C++17; also host C++ with tests/cuda_emulation.
 */
#ifndef UL_KERNEL_CUH
#define UL_KERNEL_CUH

#include "ul_cuda.h"
#include "ul_scalar.h"

#include <stdint.h>

#ifdef __CUDACC__
#define UL_DEVICE static __device__ inline
#define UL_DEVICE_COLD [[maybe_unused]] static __device__ __noinline__
#else
#define UL_DEVICE static inline
#define UL_DEVICE_COLD __attribute__((cold, noinline, unused)) static
#endif

/* ---- items of a loop that the whole grid shares ---- */

UL_DEVICE int64_t ul_item_first(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

UL_DEVICE int64_t ul_item_stride(void)
{
    return (int64_t)gridDim.x * blockDim.x;
}

/* ---- data-dependent indexes ---- */

/* A word of the record that another thread may write meanwhile: what is read after it is no older,
   and who reads what was written here sees what was written before. */
template <typename Word> UL_DEVICE Word ul_fault_read(const Word *word)
{
#ifdef __CUDACC__
    Word value = *(const volatile Word *)word;
    __threadfence();
    return value;
#else
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
}

template <typename Word> UL_DEVICE void ul_fault_write(Word *word, Word value)
{
#ifdef __CUDACC__
    __threadfence();
    *(volatile Word *)word = value;
#else
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
#endif
}

/* Is what is noted less, or the same? In a run its (order, limit, value) only ever becomes less.
   Where the limit falls while this reads, it has fallen below the one that was read: the value is
   written before it. */
UL_DEVICE bool ul_fault_is_known(struct ul_where run, int64_t value, int64_t limit)
{
    uint32_t order = ul_fault_read(&run.fault->order);
    if (order != run.order)
        return order != 0 && order < run.order;
    int64_t min = ul_fault_read(&run.fault->limit);
    return min < limit || (min == limit && ul_fault_read(&run.fault->value) <= value);
}

/* What is noted is the least (order, limit, value) of all that is out of range. Threads take turns:
   since compute capability 7.0 those of a warp proceed independently, so they may wait for it. Few
   of a million wait: who finds less noted goes on. */
UL_DEVICE_COLD void ul_fault_note(struct ul_where run, enum ul_fault kind, int64_t value,
                                  int64_t limit)
{
    struct ul_cuda_fault *fault = run.fault;
    do {
        if (ul_fault_is_known(run, value, limit))
            return;
    } while (atomicCAS(&fault->lock, 0u, 1u) != 0u);
    __threadfence();
    if (!ul_fault_is_known(run, value, limit)) {
        ul_fault_write(&fault->kind, (uint32_t)kind);
        ul_fault_write(&fault->step, run.step);
        ul_fault_write(&fault->value, value);
        ul_fault_write(&fault->limit, limit);
        ul_fault_write(&fault->order, run.order);
    }
    __threadfence();
    atomicExch(&fault->lock, 0u);
}

/* index in [-limit, limit), negative ones counted from the end; else noted and clamped. A kernel
   must not call this for an empty axis (limit 0), where there is no index to give. */
UL_DEVICE int64_t ul_index(struct ul_where run, int64_t index, int64_t limit)
{
    int64_t wrapped = index < 0 ? index + limit : index;
    if (UL_LIKELY((uint64_t)wrapped < (uint64_t)limit))
        return wrapped;
    ul_fault_note(run, UL_FAULT_INDEX, index, limit);
    return wrapped < 0 ? 0 : limit - 1;
}

/* index in [0, limit); else noted and clamped: no index counts from the end. */
UL_DEVICE int64_t ul_bound(struct ul_where run, int64_t index, int64_t limit)
{
    if (UL_LIKELY((uint64_t)index < (uint64_t)limit))
        return index;
    ul_fault_note(run, UL_FAULT_PLACE, index, limit);
    return index < 0 ? 0 : limit - 1;
}

/* count in [0, limit]; else noted and clamped. */
UL_DEVICE int64_t ul_count(struct ul_where run, int64_t count, int64_t limit)
{
    if (UL_LIKELY(count >= 0 && count <= limit))
        return count;
    ul_fault_note(run, UL_FAULT_COUNT, count, limit);
    return count < 0 ? 0 : limit;
}

#endif
