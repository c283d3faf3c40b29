/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model compiled with --io caller, run on two sets of buffers in turn: the results have the bits that
 * each set gives in a context of its own. tests/cuda_emulation/caller.c looks at graphs besides, which the
 * emulation alone tells.
 *
 * usage: turns WEIGHTS     exit: 0 ok, 3 no device, 6 not
 */
#include "model.h"

#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ul_device.h"

enum { SETS = 2, RUNS = 8, EXIT_NO_DEVICE = 3, EXIT_WRONG = 6 };

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
    need(cudaMemcpy(buffer, bytes, tensor->size_bytes, cudaMemcpyDefault) == cudaSuccess, "cudaMemcpy");
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
        bool shares = ul_is_callers(output->space) && output->donated != 0 && output->donated != UL_DONATED_WEIGHT;
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
    need(bytes != NULL && fseek(file, 0, SEEK_SET) == 0 && fread(bytes, 1, source.size_bytes, file) == source.size_bytes, path);
    fclose(file);
    source.memory = bytes;
    need(model_open(&context, NULL, 0, NULL, &source, &failure) == UL_OK, ul_result_text(failure.result));
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
        need(cudaMemcpy(left, a->outputs[i], size_bytes, cudaMemcpyDefault) == cudaSuccess, "cudaMemcpy");
        need(cudaMemcpy(right, b->outputs[i], size_bytes, cudaMemcpyDefault) == cudaSuccess, "cudaMemcpy");
        need(memcmp(left, right, size_bytes) == 0, "buffers in turn give other bits than buffers alone");
        free(left);
        free(right);
    }
}

int main(int argc, char **argv)
{
    struct set sets[SETS], alone[SETS];
    size_t before = 0, after = 0, total = 0;
    need(argc == 2, "usage: turns WEIGHTS");
    if (cudaMemGetInfo(&before, &total) != cudaSuccess) {
        fprintf(stderr, "no CUDA device\n");
        return EXIT_NO_DEVICE;
    }
    for (uint32_t k = 0; k < SETS; k++) {
        struct ul_context *context = open_model(argv[1]);
        alone[k] = new_set(100 * k);
        for (uint32_t i = 0; i < RUNS / SETS; i++)
            run(context, &alone[k]);
        model_close(context);
        sets[k] = new_set(100 * k);
    }
    struct ul_context *context = open_model(argv[1]);
    for (uint32_t i = 0; i < SETS; i++)
        run(context, &sets[i]);
    need(cudaMemGetInfo(&before, &total) == cudaSuccess, "cudaMemGetInfo");
    for (uint32_t i = SETS; i < RUNS; i++)
        run(context, &sets[i % SETS]);
    need(cudaMemGetInfo(&after, &total) == cudaSuccess, "cudaMemGetInfo");
    for (uint32_t k = 0; k < SETS; k++)
        expect_same(&sets[k], &alone[k]);
    struct ul_device_memory memory;
    model_model.device->functions->memory(context, &memory);
    printf("%d runs on %d sets of buffers, %llu replayed, free bytes %lld less at the end\n", RUNS, SETS,
           (unsigned long long)memory.replay_count, (long long)before - (long long)after);
    model_close(context);
    return 0;
}
