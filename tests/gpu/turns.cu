/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model compiled with --io caller, run on two sets of buffers in turn, then on three: the results
 * have the bits that each set gives in a context of its own, and two in turn cost no capture once
 * each had its turns. It tells how often a run was captured, how often a graph was given other
 * buffers instead, and what a run takes on one set and on two. tests/cuda_emulation/caller.c looks
 * at graphs besides, which the emulation alone tells.
 *
 * usage: turns WEIGHTS     exit: 0 ok, 3 no device, 6 not
 */
#include "model.h"

#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ul_device.h"

enum { SETS = 3, PAIRS = 8, RUNS = 14, TIMED = 40, EXIT_NO_DEVICE = 3, EXIT_WRONG = 6 };

static void need(bool holds, const char *what)
{
    if (holds)
        return;
    cudaError_t error = cudaGetLastError();
    fprintf(stderr, "error: %s%s%s\n", what, error == cudaSuccess ? "" : ": ",
            error == cudaSuccess ? "" : cudaGetErrorString(error));
    exit(EXIT_WRONG);
}

/* What a run reads and writes: memory of the device where the model does so in place. */
struct set {
    void **inputs, **outputs;
};

static void *new_buffer(const struct ul_rt_tensor *tensor)
{
    void *buffer = NULL;
    if (ul_is_callers(tensor->space))
        need(cudaMalloc(&buffer, tensor->size_bytes + 16) == cudaSuccess, "cudaMalloc");
    else
        need((buffer = calloc(1, tensor->size_bytes + 1)) != NULL, "calloc");
    return buffer;
}

static float next_float(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / 8388608.0f - 1.0f;
}

/* Floats near 0, indexes that are 0. */
static void fill(const struct ul_rt_tensor *tensor, void *buffer, uint32_t seed)
{
    unsigned char *bytes = (unsigned char *)calloc(1, tensor->size_bytes + 8);
    need(bytes != NULL, "calloc");
    for (uint64_t i = 0; tensor->type == UL_TYPE_F32 && i + 4 <= tensor->size_bytes; i += 4) {
        float value = next_float(&seed);
        memcpy(bytes + i, &value, sizeof value);
    }
    need(cudaMemcpy(buffer, bytes, tensor->size_bytes, cudaMemcpyDefault) == cudaSuccess,
         "cudaMemcpy");
    free(bytes);
}

/* An output that overwrites an input is the same buffer. */
static struct set new_set(uint32_t seed)
{
    struct set set;
    set.inputs = (void **)calloc(model_model.input_count + 1, sizeof *set.inputs);
    set.outputs = (void **)calloc(model_model.output_count + 1, sizeof *set.outputs);
    need(set.inputs != NULL && set.outputs != NULL, "calloc");
    for (uint32_t i = 0; i < model_model.input_count; i++) {
        set.inputs[i] = new_buffer(&model_model.inputs[i]);
        fill(&model_model.inputs[i], set.inputs[i], seed + i);
    }
    for (uint32_t i = 0; i < model_model.output_count; i++) {
        const struct ul_rt_tensor *output = &model_model.outputs[i];
        bool shares = ul_is_callers(output->space) && output->donated != 0 &&
                      output->donated != UL_DONATED_WEIGHT;
        set.outputs[i] = shares ? set.inputs[output->donated - 1] : new_buffer(output);
    }
    return set;
}

static struct ul_context *open_model(const char *path)
{
    struct ul_context *context = NULL;
    struct ul_weights_source source = {};
    struct ul_failure failure = {};
    FILE *file = fopen(path, "rb");
    need(file != NULL && fseek(file, 0, SEEK_END) == 0, path);
    source.size_bytes = (uint64_t)ftell(file);
    void *bytes = malloc(source.size_bytes + 1);
    need(bytes != NULL && fseek(file, 0, SEEK_SET) == 0 &&
             fread(bytes, 1, source.size_bytes, file) == source.size_bytes,
         path);
    fclose(file);
    source.memory = bytes;
    need(model_open(&context, NULL, 0, NULL, &source, &failure) == UL_OK,
         ul_result_text(failure.result));
    free(bytes);
    return context;
}

static void run(struct ul_context *context, const struct set *set)
{
    struct ul_failure failure = {};
    int result = model_run(context, (const void *const *)set->inputs, set->outputs, &failure);
    need(result == UL_OK || result == UL_DATA_FAULT, ul_result_text(failure.result));
}

static void expect_same(const struct set *a, const struct set *b)
{
    for (uint32_t i = 0; i < model_model.output_count; i++) {
        uint64_t size_bytes = model_model.outputs[i].size_bytes;
        void *left = malloc(size_bytes + 1), *right = malloc(size_bytes + 1);
        need(left != NULL && right != NULL, "malloc");
        need(cudaMemcpy(left, a->outputs[i], size_bytes, cudaMemcpyDefault) == cudaSuccess,
             "cudaMemcpy");
        need(cudaMemcpy(right, b->outputs[i], size_bytes, cudaMemcpyDefault) == cudaSuccess,
             "cudaMemcpy");
        need(memcmp(left, right, size_bytes) == 0,
             "buffers in turn give other bits than buffers alone");
        free(left);
        free(right);
    }
}

/* Two in turn, then three. */
static int set_of(int run)
{
    return run % (run < PAIRS ? 2 : SETS);
}

static struct ul_device_memory memory_of(const struct ul_context *context)
{
    struct ul_device_memory memory;
    model_model.device->functions->memory(context, &memory);
    return memory;
}

/* Gives the microseconds of a run, on the sets in turn. */
static double measure(struct ul_context *context, const struct set *sets, int count)
{
    struct timespec begin, end;
    for (int i = 0; i < 2 * count; i++)
        run(context, &sets[i % count]);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < TIMED; i++)
        run(context, &sets[i % count]);
    clock_gettime(CLOCK_MONOTONIC, &end);
    return ((double)(end.tv_sec - begin.tv_sec) * 1e6 +
            (double)(end.tv_nsec - begin.tv_nsec) * 1e-3) /
           TIMED;
}

int main(int argc, char **argv)
{
    struct set sets[SETS], alone[SETS];
    size_t before = 0, after = 0, total = 0;
    uint64_t captured = 0;
    need(argc == 2, "usage: turns WEIGHTS");
    if (cudaMemGetInfo(&before, &total) != cudaSuccess) {
        fprintf(stderr, "no CUDA device\n");
        return EXIT_NO_DEVICE;
    }
    for (int k = 0; k < SETS; k++) {
        struct ul_context *context = open_model(argv[1]);
        alone[k] = new_set(100 * (uint32_t)k);
        for (int i = 0; i < RUNS; i++)
            if (set_of(i) == k)
                run(context, &alone[k]);
        model_close(context);
        sets[k] = new_set(100 * (uint32_t)k);
    }
    struct ul_context *context = open_model(argv[1]);
    for (int i = 0; i < RUNS; i++) {
        run(context, &sets[set_of(i)]);
        if (i == 3) { /* each had two turns */
            captured = memory_of(context).capture_count;
            need(cudaMemGetInfo(&before, &total) == cudaSuccess, "cudaMemGetInfo");
        }
        if (i == PAIRS - 1)
            need(memory_of(context).capture_count == captured &&
                     cudaMemGetInfo(&after, &total) == cudaSuccess,
                 "two sets of buffers in turn are captured again and again");
    }
    for (int k = 0; k < SETS; k++)
        expect_same(&sets[k], &alone[k]);
    struct ul_device_memory memory = memory_of(context);
    double one = measure(context, sets, 1), two = measure(context, sets, 2);
    printf("%d captures for two sets, %d for %d runs on %d, %d times given other buffers, %d runs "
           "replayed; one set %.1f us a run, "
           "two in turn %.1f us; free bytes %lld less at the end of two\n",
           (int)captured, (int)memory.capture_count, RUNS, SETS, (int)memory.given_count,
           (int)memory.replay_count, one, two, (long long)before - (long long)after);
    model_close(context);
    return 0;
}
