/* SPDX-License-Identifier: 0BSD */
/*
 * The threads of printed kernels: OpenMP's, where model.c is compiled for it. model.c includes this
 * before ul_kernel.h, which notes which thread met a bad index. Nothing fails. Pure C99 without
 * OpenMP. */
#ifndef UL_THREADS_H
#define UL_THREADS_H

#include "ul_model.h"

#include <stdint.h>

#if defined(_OPENMP)
#include <omp.h>
#endif

/*
 *     UL_PARALLEL(run)
 *     {
 *         const struct ul_share t_share = ul_share(1000, 4);
 *         for (int64_t i = t_share.begin; i < t_share.end; i++) ...
 *     }
 *
 * All threads of the run enter; the first ones, as many as there is work for, get a contiguous run
 * of items each. Always starting all of them keeps the threads of OpenMP waiting for the next
 * region. Without OpenMP the block is a plain block, and the share is everything. */
#if defined(_OPENMP)
#define UL_PRAGMA(text) _Pragma(#text)
#define UL_PARALLEL(run) UL_PRAGMA(omp parallel num_threads(ul_team(run)))
#define UL_CRITICAL UL_PRAGMA(omp critical(ul_kernel))
#else
#define UL_PARALLEL(run)
#define UL_CRITICAL
#endif

/* This thread of a region, and its items. */
struct ul_share {
    int64_t thread;
    int64_t begin, end;
};

/* The threads that start a region together. What was noted before it is older than what will be. */
static inline int ul_team(struct ul_run *run)
{
    run->fault_thread = 0;
    return run->threads > 1 ? (int)run->threads : 1;
}

/* This thread's number in a region; outside of any, one that is larger than all of them. */
static inline uint32_t ul_thread(void)
{
#if defined(_OPENMP)
    return omp_in_parallel() ? (uint32_t)omp_get_thread_num() : UINT32_MAX;
#else
    return UINT32_MAX;
#endif
}

/* This thread's share of [0, items) among at most `most` threads. */
static inline struct ul_share ul_share(int64_t items, int64_t max)
{
    struct ul_share share = {0, 0, items};
#if defined(_OPENMP)
    int64_t count = omp_get_num_threads();
    count = count < max ? count : max;
    share.thread = omp_get_thread_num();
    share.begin = share.thread < count ? items / count * share.thread : items;
    share.begin += share.thread < count ? items % count * share.thread / count : 0;
    share.end = share.thread + 1 < count ? items / count * (share.thread + 1) : items;
    share.end += share.thread + 1 < count ? items % count * (share.thread + 1) / count : 0;
#else
    (void)max;
#endif
    return share;
}

/* ul_model's thread_limit where model.c was compiled with OpenMP: OMP_NUM_THREADS, what the caller
   set by omp_set_num_threads, or the processors of this process; 1 inside of a parallel region,
   whose other threads have work of their own. */
#if defined(_OPENMP)
static inline uint32_t ul_thread_limit(void)
{
    return omp_in_parallel() ? 1 : (uint32_t)omp_get_max_threads();
}

/* ul_model's start_threads: a team of OpenMP's lives on after its first region, stacks included. */
static inline void ul_threads_start(uint32_t threads)
{
#pragma omp parallel num_threads((int)threads)
    {
#pragma omp barrier
    }
}
#endif

#include "ul_kernel.h"

#endif
