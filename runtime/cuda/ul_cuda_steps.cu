/* SPDX-License-Identifier: 0BSD */
/*
 * Kernels that every program has: copies, the counters of loops, the bytes that say which regions
 * of the program run, and weights that are all one number.
 *
 * Invariants: those of the kernels in kernels.cu (ul_cuda.h). */
#include "ul_cuda_internal.h"

#include <stdlib.h>

#define COPY_THREADS 256
#define COPY_BLOCKS 2048 /* more do not make a copy faster */

/* Copies so many words of 16 bytes, and the bytes from `first` on that come after them. */
static __global__ void copy_all(const unsigned char *from, unsigned char *to, int64_t words,
                                int64_t first, int64_t count, struct ul_where run)
{
    UL_ENTER(run);
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    int64_t begin = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t i = begin; i < words; i += stride)
        ((uint4 *)(void *)to)[i] = ((const uint4 *)(const void *)from)[i];
    for (int64_t i = first + begin; i < count; i += stride)
        to[i] = from[i];
}

static __global__ void put_counter(int64_t *to, int64_t value, struct ul_where run)
{
    UL_ENTER(run);
    *to = value;
}

/* These two always run: a region that is not entered must say so. */
static __global__ void enter_region(uint8_t *region, const uint8_t *parent,
                                    const uint8_t *condition, int negated, struct ul_where run)
{
    (void)run;
    ul_wait();
    int enters = parent == NULL || *parent != 0;
    if (enters && condition != NULL)
        enters = (*condition != 0) != (negated != 0);
    *region = (uint8_t)enters;
}

static __global__ void test_region(uint8_t *region, const uint8_t *condition, struct ul_where run)
{
    (void)run;
    ul_wait();
    if (*region != 0 && *condition == 0)
        *region = 0;
}

/* Writes `pattern` over and over: byte i of it goes to each multiple of 8 plus i. */
static __global__ void fill_bytes(unsigned char *to, uint64_t pattern, int64_t count,
                                  struct ul_where run)
{
    UL_ENTER(run);
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        to[i] = (unsigned char)(pattern >> i % 8 * 8);
}

static __global__ void fill_words(uint64_t *to, uint64_t pattern, int64_t count,
                                  struct ul_where run)
{
    UL_ENTER(run);
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        to[i] = pattern;
}

static __global__ void exchange_bytes(unsigned char *bytes, unsigned char pattern, int64_t count,
                                      struct ul_where run)
{
    UL_ENTER(run);
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        bytes[i] = (unsigned char)(bytes[i] ^ pattern);
}

static __global__ void exchange_words(uint64_t *words, uint64_t pattern, int64_t count,
                                      struct ul_where run)
{
    UL_ENTER(run);
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        words[i] ^= pattern;
}

static int64_t blocks_for(int64_t item_count)
{
    int64_t blocks = (item_count + COPY_THREADS - 1) / COPY_THREADS;
    return blocks < COPY_BLOCKS ? blocks : COPY_BLOCKS;
}

void ul_cuda_copy(const struct ul_cuda_step *at, const void *from, void *to, uint64_t size_bytes)
{
    bool aligned = (((uintptr_t)from | (uintptr_t)to) & 15) == 0;
    int64_t words = aligned ? (int64_t)(size_bytes / 16) : 0;
    int64_t count = (int64_t)size_bytes;
    if (count != 0)
        UL_LAUNCH(copy_all, blocks_for(aligned ? words + 1 : count), COPY_THREADS, at,
                  (const unsigned char *)from, (unsigned char *)to, words, words * 16, count);
}

void ul_cuda_move(const struct ul_cuda_step *at, enum ul_direction direction, uint32_t stream,
                  uint32_t number, uint64_t offset_bytes, unsigned char *bytes, uint64_t size_bytes)
{
    struct ul_cuda_run *run = at->run;
    unsigned char *there = run->offload + offset_bytes;
    bool saves = direction == UL_OFFLOAD_SAVE;
    cudaStream_t mover = stream == 0 ? run->stream : run->movers[(stream - 1) % UL_CUDA_MOVERS];
    if (!ul_cuda_may_launch(run))
        return;
    if (mover != run->stream) {
        ul_cuda_note(run, cudaEventRecord(run->moves[number].begun, run->stream));
        ul_cuda_note(run, cudaStreamWaitEvent(mover, run->moves[number].begun, 0));
    }
    ul_cuda_note(run,
                 saves ? cudaMemcpyAsync(there, bytes, size_bytes, cudaMemcpyDeviceToHost, mover)
                       : cudaMemcpyAsync(bytes, there, size_bytes, cudaMemcpyHostToDevice, mover));
    ul_cuda_note(run, cudaEventRecord(run->moves[number].done, mover));
}

void ul_cuda_await(struct ul_cuda_run *run, uint32_t number)
{
    run->is_behind = 0;
    if (run->error == cudaSuccess && run->launch_count < run->launch_limit)
        ul_cuda_note(run, cudaStreamWaitEvent(run->stream, run->moves[number].done, 0));
}

void ul_cuda_put_counter(const struct ul_cuda_step *at, int64_t *to, int64_t value)
{
    UL_LAUNCH(put_counter, 1, 1, at, to, value);
}

void ul_cuda_enter_region(const struct ul_cuda_step *at, uint32_t region, uint32_t parent,
                          const uint8_t *condition, int negated)
{
    uint8_t *regions = at->run->regions;
    const uint8_t *outer = parent == UL_CUDA_ALWAYS ? NULL : regions + parent;
    UL_LAUNCH(enter_region, 1, 1, at, regions + region, outer, condition, negated);
}

void ul_cuda_test(const struct ul_cuda_step *at, uint32_t region, const uint8_t *condition)
{
    UL_LAUNCH(test_region, 1, 1, at, at->run->regions + region, condition);
}

/* Writes element_count elements, each the low element_bytes of value, little-endian. The target is
   aligned to the element, so a pattern of 8 bytes that begins with an element serves all of it. */
void ul_cuda_fill_splat(const struct ul_cuda_step *at, const struct ul_splat *splat)
{
    unsigned char *to = at->run->arena + splat->offset_bytes;
    int64_t size_bytes = (int64_t)(splat->element_count * splat->element_bytes);
    uint64_t pattern = splat->value;
    for (uint32_t bytes = splat->element_bytes; bytes < 8; bytes *= 2) {
        pattern &= UINT64_MAX >> (64 - bytes * 8);
        pattern |= pattern << bytes * 8;
    }
    int64_t words = ((uintptr_t)to & 7) == 0 ? size_bytes / 8 : 0;
    int64_t rest = size_bytes - words * 8;
    if (words != 0)
        UL_LAUNCH(fill_words, blocks_for(words), COPY_THREADS, at, (uint64_t *)(void *)to, pattern,
                  words);
    if (rest != 0)
        UL_LAUNCH(fill_bytes, blocks_for(rest), COPY_THREADS, at, to + words * 8, pattern, rest);
}

void ul_cuda_exchange_bits(struct ul_cuda_run *run, int64_t offset_bytes, unsigned char pattern,
                           uint64_t size_bytes)
{
    struct ul_cuda_step at = {run, {&run->state->fault, NULL, 0, 0}};
    unsigned char *bytes = run->arena + offset_bytes;
    int64_t words = ((uintptr_t)bytes & 7) == 0 ? (int64_t)(size_bytes / 8) : 0;
    int64_t rest = (int64_t)size_bytes - words * 8;
    if (words != 0)
        UL_LAUNCH(exchange_words, blocks_for(words), COPY_THREADS, &at, (uint64_t *)(void *)bytes,
                  pattern * (UINT64_MAX / 0xff), words);
    if (rest != 0)
        UL_LAUNCH(exchange_bytes, blocks_for(rest), COPY_THREADS, &at, bytes + words * 8, pattern,
                  rest);
}

/* Gives the last node of the stream, the only one that its next node would depend on. */
static cudaGraphNode_t last_node(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaGraphNode_t *nodes = NULL;
    size_t count = 0;
#if CUDART_VERSION >= 13000
    const cudaGraphEdgeData *edges = NULL;
    cudaError_t error =
        cudaStreamGetCaptureInfo(stream, &status, NULL, NULL, &nodes, &edges, &count);
#else
    cudaError_t error = cudaStreamGetCaptureInfo_v2(stream, &status, NULL, NULL, &nodes, &count);
#endif
    return error == cudaSuccess && count == 1 ? nodes[0] : NULL;
}

static bool grow(struct ul_cuda_nodes *nodes)
{
    if (nodes->count < nodes->room)
        return true;
    uint32_t room = nodes->room == 0 ? 8 : 2 * nodes->room;
    struct ul_cuda_node *all =
        (struct ul_cuda_node *)realloc(nodes->all, (size_t)room * sizeof *all);
    if (all == NULL)
        return false;
    nodes->all = all;
    nodes->room = room;
    return true;
}

void ul_cuda_keep_node(struct ul_cuda_run *run, const void *kernel)
{
    struct ul_cuda_nodes *nodes = run->nodes;
    if (!nodes->is_whole || run->error != cudaSuccess)
        return;
    cudaGraphNode_t node = last_node(run->stream);
    nodes->is_whole = node != NULL && grow(nodes);
    if (nodes->is_whole) {
        struct ul_cuda_node kept = {node, kernel};
        nodes->all[nodes->count++] = kept;
    }
}

bool ul_cuda_is_resident(const struct ul_cuda_step *at, const void *kernel, uint32_t blocks,
                         uint32_t threads, uint64_t rest_bytes)
{
    if (ul_cuda_is_apart(at))
        return false;
    int device = 0, together = 0, processors = 0, each = 0;
    cudaError_t error = cudaGetDevice(&device);
    error = ul_cuda_first(error,
                          cudaDeviceGetAttribute(&together, cudaDevAttrCooperativeLaunch, device));
    error = ul_cuda_first(
        error, cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    error = ul_cuda_first(
        error,
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)rest_bytes));
    error = ul_cuda_first(error, cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                                     &each, kernel, (int)threads, (size_t)rest_bytes));
    bool is_resident =
        error == cudaSuccess && together != 0 && (uint64_t)each * (uint64_t)processors >= blocks;
    if (!is_resident) {
        at->run->apart[at->where.step] = 1;
        (void)cudaGetLastError();
    }
    return is_resident;
}

UL_PROBE

/* Devices also run older code, which does not wait. */
static bool code_waits(const struct cudaFuncAttributes *attributes)
{
    return attributes->ptxVersion >= 90 && attributes->binaryVersion >= 90;
}

cudaError_t ul_cuda_probe(const struct ul_cuda_code *code, bool *waits)
{
    struct cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, (const void *)ul_probe);
    *waits = error == cudaSuccess && code_waits(&attributes) && code->probe != NULL;
    if (*waits) {
        error = cudaFuncGetAttributes(&attributes, code->probe);
        *waits = error == cudaSuccess && code_waits(&attributes);
    }
    return error;
}
