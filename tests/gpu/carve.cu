/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Do kernels overlap by programmatic launch (ul_wait) where their shared memory is of other sizes?
 * A multiprocessor divides its memory between shared memory and cache by each kernel's wish, and
 * cannot divide it anew while one runs. One kernel with 40 KiB of shared memory and one with none,
 * in turn, in a graph: the time of a launch with each one's own wish, with the same for both, with
 * wishes as far apart as can be, and of the same launches without overlap.
 *
 * usage: carve     exit: 0 ok, 3 no device, 6 not
 */
#include "ul_kernel.cuh"

#include <stdio.h>
#include <string.h>

#ifdef __CUDACC__
enum { PAIRS = 64, ROUNDS = 30 };
#else
enum { PAIRS = 2, ROUNDS = 2 }; /* the emulation has no times */
#endif
enum { BLOCKS = 132, THREADS = 128, ELEMENTS = BLOCKS * THREADS };

static __global__ void tiled(const float *from, float *to, struct ul_where run)
{
    UL_ENTER(run);
    UL_SHARED(float, tile, 10240);
    int64_t i = ul_item_first();
    for (int64_t k = threadIdx.x; k < 10240; k += THREADS)
        tile[k] = from[i];
    __syncthreads();
    to[i] = tile[(threadIdx.x * 33) % 10240] + 1.0f;
}

static __global__ void plain(const float *from, float *to, struct ul_where run)
{
    UL_ENTER(run);
    int64_t i = ul_item_first();
    to[i] = from[i] + 1.0f;
}

static cudaGraphExec_t make_graph(struct ul_cuda_run *run, float *a, float *b)
{
    struct ul_cuda_step at = {run, {NULL, NULL, 0, 0}};
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    run->is_behind = 0;
    ul_cuda_note(run, cudaStreamBeginCapture(run->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < PAIRS; i++) {
        UL_LAUNCH(tiled, BLOCKS, THREADS, &at, (const float *)a, b);
        UL_LAUNCH(plain, BLOCKS, THREADS, &at, (const float *)b, a);
    }
    ul_cuda_note(run, cudaStreamEndCapture(run->stream, &graph));
    if (run->error == cudaSuccess)
        ul_cuda_note(run, cudaGraphInstantiate(&exec, graph, 0));
    if (graph != NULL)
        (void)cudaGraphDestroy(graph);
    return exec;
}

/* Gives the microseconds of a launch, the least of all rounds. `wishes` are in percent, of the
 * tiled kernel and of the plain one; -1: none. */
static double measure(struct ul_cuda_run *run, float *a, float *b, int overlaps,
                      const int wishes[2])
{
    cudaEvent_t begin = NULL, end = NULL;
    double least = 0;
    ul_cuda_note(run,
                 cudaFuncSetAttribute((const void *)tiled,
                                      cudaFuncAttributePreferredSharedMemoryCarveout, wishes[0]));
    ul_cuda_note(run,
                 cudaFuncSetAttribute((const void *)plain,
                                      cudaFuncAttributePreferredSharedMemoryCarveout, wishes[1]));
    run->overlaps = overlaps;
    cudaGraphExec_t exec = run->error == cudaSuccess ? make_graph(run, a, b) : NULL;
    ul_cuda_note(run, cudaEventCreate(&begin));
    ul_cuda_note(run, cudaEventCreate(&end));
    for (int i = 0; i < ROUNDS && run->error == cudaSuccess; i++) {
        float milliseconds = 0;
        ul_cuda_note(run, cudaEventRecord(begin, run->stream));
        ul_cuda_note(run, cudaGraphLaunch(exec, run->stream));
        ul_cuda_note(run, cudaEventRecord(end, run->stream));
        ul_cuda_note(run, cudaEventSynchronize(end));
        ul_cuda_note(run, cudaEventElapsedTime(&milliseconds, begin, end));
        double each = (double)milliseconds * 1e3 / (2 * PAIRS);
        if (i == 0 || each < least)
            least = each;
    }
    if (exec != NULL)
        (void)cudaGraphExecDestroy(exec);
    (void)cudaEventDestroy(begin);
    (void)cudaEventDestroy(end);
    return least;
}

int main(void)
{
    static const int own[2] = {-1, -1}, alike[2] = {100, 100}, apart[2] = {100, 0};
    struct ul_cuda_run run;
    struct cudaFuncAttributes attributes;
    float *a = NULL, *b = NULL, seen = 0;
    memset(&run, 0, sizeof run);
    run.launch_limit = UINT64_MAX;
    if (cudaMalloc(&a, ELEMENTS * sizeof *a) != cudaSuccess) {
        fprintf(stderr, "no CUDA device\n");
        return 3;
    }
    ul_cuda_note(&run, cudaMalloc(&b, ELEMENTS * sizeof *b));
    ul_cuda_note(&run, cudaMemset(a, 0, ELEMENTS * sizeof *a));
    ul_cuda_note(&run, cudaStreamCreateWithFlags(&run.stream, cudaStreamNonBlocking));
    ul_cuda_note(&run, cudaFuncGetAttributes(&attributes, (const void *)plain));
    int waits =
        run.error == cudaSuccess && attributes.ptxVersion >= 90 && attributes.binaryVersion >= 90;
    double by_own = measure(&run, a, b, waits, own), by_alike = measure(&run, a, b, waits, alike);
    double by_apart = measure(&run, a, b, waits, apart), alone = measure(&run, a, b, 0, own);
    ul_cuda_note(&run, cudaMemcpy(&seen, a, sizeof seen, cudaMemcpyDeviceToHost));
    if (run.error != cudaSuccess || seen != (float)(4 * ROUNDS * 2 * PAIRS)) {
        fprintf(stderr, "error: %s; %g is not %d\n", cudaGetErrorString(run.error), (double)seen,
                4 * ROUNDS * 2 * PAIRS);
        return 6;
    }
    printf("us a launch%s: carve-outs by each kernel %.2f, alike %.2f, apart %.2f; without overlap "
           "%.2f\n",
           waits ? "" : " (none overlaps: the device or the code is older than 9.0)", by_own,
           by_alike, by_apart, alone);
    return 0;
}
