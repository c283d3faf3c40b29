/* SPDX-License-Identifier: Apache-2.0 */
/* The lock of ul_fault_note (ul_kernel.cuh), wanted at once by all threads of a warp with different
 * bad indices: each must go on in the end, the least of (limit, value) be noted, the lock be free.
 * A warp whose threads cannot pass each other would never end.
 *
 * usage: lock     exit: 0 ok, 6 something else was noted, 3 no device */
#include "ul_kernel.cuh"

#include <stdio.h>

enum { ROUNDS = 64, THREADS = 32 };

/* Which of 32 a lane is in a round: another order each time. */
static __device__ int64_t rank_of(int64_t lane, int64_t round)
{
    return (lane * (2 * round + 1) + round) % THREADS;
}

/* Some lanes miss an axis of 7, the others one of 9; all by another index. */
static __global__ void miss(int64_t *out, int64_t round, struct ul_where run)
{
    UL_ENTER(run);
    int64_t lane = ul_item_first() % THREADS;
    int64_t rank = rank_of(lane, round), limit = rank % 3 == 1 ? 7 : 9;
    out[ul_item_first()] = ul_bound(run, rank < 16 ? -1 - rank : 100 + rank, limit);
}

/* Only some lanes of the warp come to the lock. */
static __global__ void miss_some(int64_t *out, int64_t round, struct ul_where run)
{
    UL_ENTER(run);
    int64_t lane = ul_item_first() % THREADS;
    int64_t rank = rank_of(lane, round);
    out[ul_item_first()] = ul_bound(run, rank % 4 == 3 ? -1 - rank : 0, 5);
}

static int failed;

static void expect(const struct ul_cuda_fault *fault, const char *what, int round, int64_t value,
                   int64_t limit)
{
    struct ul_cuda_fault seen;
    if (cudaMemcpy(&seen, fault, sizeof seen, cudaMemcpyDeviceToHost) == cudaSuccess &&
        seen.lock == 0 && seen.kind == UL_FAULT_PLACE && seen.order == 5 && seen.step == 2 &&
        seen.value == value && seen.limit == limit)
        return;
    printf("%s, round %d: lock %u, kind %u, order %u, step %u, value %lld, limit %lld\n", what,
           round, seen.lock, seen.kind, seen.order, seen.step, (long long)seen.value,
           (long long)seen.limit);
    failed = 6;
}

static void run_rounds(struct ul_cuda_step *at, struct ul_cuda_fault *fault, int64_t *out,
                       int blocks)
{
    for (int64_t round = 0; round < ROUNDS; round++) {
        ul_cuda_note(at->run, cudaMemsetAsync(fault, 0, sizeof *fault, at->run->stream));
        UL_LAUNCH(miss, blocks, THREADS, at, out, round);
        ul_cuda_note(at->run, cudaStreamSynchronize(at->run->stream));
        expect(fault, "all lanes", (int)round, -14, 7); /* rank 13 is the last below 16 */
        ul_cuda_note(at->run, cudaMemsetAsync(fault, 0, sizeof *fault, at->run->stream));
        UL_LAUNCH(miss_some, blocks, THREADS, at, out, round);
        ul_cuda_note(at->run, cudaStreamSynchronize(at->run->stream));
        expect(fault, "some lanes", (int)round, -32, 5);
    }
}

int main(void)
{
    struct ul_cuda_run run = {};
    struct ul_cuda_step at = {};
    struct ul_cuda_fault *fault = NULL;
    int64_t *out = NULL;
    int blocks_max = 256;
    run.launch_limit = UINT64_MAX;
    at.run = &run;
    at.where.order = 5;
    at.where.step = 2;
    if (cudaMalloc(&fault, sizeof *fault) != cudaSuccess ||
        cudaMalloc(&out, (size_t)blocks_max * THREADS * sizeof *out) != cudaSuccess ||
        cudaStreamCreateWithFlags(&run.stream, cudaStreamNonBlocking) != cudaSuccess) {
        printf("no CUDA device\n");
        return 3;
    }
    at.where.fault = fault;
    cudaError_t error = cudaDeviceSynchronize();
    run_rounds(&at, fault, out, 1);
    run_rounds(&at, fault, out, blocks_max);
    error = run.error != cudaSuccess ? run.error : error;
    if (error != cudaSuccess)
        printf("%s\n", cudaGetErrorString(error));
    (void)cudaFree(fault);
    (void)cudaFree(out);
    (void)cudaStreamDestroy(run.stream);
    if (failed == 0 && error == cudaSuccess)
        printf("ok: %d launches\n", 4 * ROUNDS);
    return error != cudaSuccess ? 6 : failed;
}
