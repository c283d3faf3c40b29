/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model compiled with --io caller, run on buffers that change from run to run: the results are
 * those of the same buffers on a context of their own. A run is captured once. Where a library call
 * reads or writes some of the buffers, it is captured once for each of two sets, and again for a
 * third. The other entry points of a model that trains do the same. ways.sh links this with the
 * model.c of a model.
 *
 * usage: UL_EMULATE_LOG=FILE caller WEIGHTS [once]     exit: 0 ok, 6 not
 *   once: no library call has any of the buffers
 */
#include "model.h"

#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ul_device.h"

/* Two sets in turn, then three. */
enum { SETS = 3, PAIRS = 6, RUNS = 12 };

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "caller.c:%d: %s\n", __LINE__, #condition);                            \
            exit(6);                                                                               \
        }                                                                                          \
    } while (0)

/* What a run reads and writes: memory of the device where the model does so in place. */
struct set {
    void **inputs, **outputs;
};

static void *new_buffer(const struct ul_rt_tensor *tensor)
{
    void *buffer = NULL;
    if (ul_is_callers(tensor->space))
        NEED(cudaMalloc(&buffer, tensor->size_bytes + 16) == cudaSuccess);
    else
        NEED((buffer = calloc(1, tensor->size_bytes + 1)) != NULL);
    return buffer;
}

/* Indexes are small, floats near 0. */
static void fill(const struct ul_rt_tensor *tensor, void *buffer, uint32_t seed)
{
    uint64_t count = tensor->size_bytes;
    unsigned char *bytes = calloc(1, count + 8);
    NEED(bytes != NULL);
    for (uint64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        if (tensor->type == UL_TYPE_F32 && i % 4 == 0 && i + 4 <= count) {
            float value = (float)(seed >> 8) / 8388608.0f - 1.0f;
            memcpy(bytes + i, &value, sizeof value);
        } else if ((tensor->type == UL_TYPE_I64 && i % 8 == 0) ||
                   (tensor->type == UL_TYPE_I32 && i % 4 == 0) || tensor->type == UL_TYPE_BOOL) {
            bytes[i] = (unsigned char)(seed >> 30 & (tensor->type == UL_TYPE_BOOL ? 1 : 3));
        }
    }
    NEED(cudaMemcpy(buffer, bytes, count, cudaMemcpyDefault) == cudaSuccess);
    free(bytes);
}

/* An output that overwrites an input is the same buffer. */
static struct set new_set(uint32_t seed)
{
    struct set set;
    set.inputs = calloc(model_model.input_count + 1, sizeof *set.inputs);
    set.outputs = calloc(model_model.output_count + 1, sizeof *set.outputs);
    NEED(set.inputs != NULL && set.outputs != NULL);
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

static uint32_t set_of(uint32_t run)
{
    return run % (run < PAIRS ? 2 : SETS);
}

/* All entry points except the set-up, the last first: the update comes after them. */
static void run(struct ul_context *context, const struct set *set)
{
    for (uint32_t entry = model_model.entry_count; entry-- > UL_ENTRY_RUN;) {
        struct ul_failure failure;
        enum ul_result result = model_model.device->functions->run(
            context, entry, (const void *const *)set->inputs, set->outputs, NULL, NULL, &failure);
        NEED(result == UL_OK || result == UL_DATA_FAULT);
    }
}

static void expect_same(const struct set *a, const struct set *b)
{
    for (uint32_t i = 0; i < model_model.output_count; i++) {
        uint64_t size_bytes = model_model.outputs[i].size_bytes;
        unsigned char *left = malloc(size_bytes + 1), *right = malloc(size_bytes + 1);
        NEED(left != NULL && right != NULL);
        NEED(cudaMemcpy(left, a->outputs[i], size_bytes, cudaMemcpyDefault) == cudaSuccess);
        NEED(cudaMemcpy(right, b->outputs[i], size_bytes, cudaMemcpyDefault) == cudaSuccess);
        NEED(memcmp(left, right, size_bytes) == 0);
        free(left);
        free(right);
    }
}

static int logged(const char *word)
{
    char line[128];
    int count = 0;
    FILE *log = fopen(getenv("UL_EMULATE_LOG"), "r");
    NEED(log != NULL);
    while (fgets(line, sizeof line, log) != NULL)
        count += strncmp(line, word, strlen(word)) == 0;
    fclose(log);
    return count;
}

static struct ul_context *open_model(const char *path)
{
    struct ul_context *context = NULL;
    struct ul_weights_source source = {0};
    struct ul_failure failure = {0};
    FILE *file = fopen(path, "rb");
    NEED(file != NULL && fseek(file, 0, SEEK_END) == 0);
    source.size_bytes = (uint64_t)ftell(file);
    void *bytes = malloc(source.size_bytes + 1);
    NEED(bytes != NULL && fseek(file, 0, SEEK_SET) == 0 &&
         fread(bytes, 1, source.size_bytes, file) == source.size_bytes);
    fclose(file);
    source.memory = bytes;
    NEED(model_open(&context, NULL, 0, NULL, &source, &failure) == UL_OK);
    free(bytes);
    return context;
}

/* How many runs this context has captured since `before`. */
static uint64_t captured(const struct ul_context *context, int before)
{
    struct ul_device_memory memory;
    model_model.device->functions->memory(context, &memory);
    NEED(memory.capture_count == (uint64_t)(logged("capture") - before));
    return memory.capture_count;
}

static bool is_given(const struct ul_context *context)
{
    struct ul_device_memory memory;
    model_model.device->functions->memory(context, &memory);
    return memory.given_count > 0;
}

int main(int argc, char **argv)
{
    struct set sets[SETS], alone[SETS];
    NEED(argc >= 2 && getenv("UL_EMULATE_LOG") != NULL);
    /* Each set in a context of its own, as often as below. */
    for (uint32_t k = 0; k < SETS; k++) {
        struct ul_context *context = open_model(argv[1]);
        alone[k] = new_set(100 * k);
        for (uint32_t i = 0; i < RUNS; i++)
            if (set_of(i) == k)
                run(context, &alone[k]);
        model_close(context);
        sets[k] = new_set(100 * k);
    }
    struct ul_context *context = open_model(argv[1]);
    uint64_t entries = model_model.entry_count - UL_ENTRY_RUN;
    int before = logged("capture"), made = logged("instantiate");
    for (uint32_t i = 0; i < RUNS; i++) {
        run(context, &sets[set_of(i)]);
        NEED(i >= PAIRS || captured(context, before) <= 2 * entries);
    }
    uint64_t captures = captured(context, before);
    NEED(argc == 2 || (captures == entries && is_given(context)));
    NEED(logged("instantiate") <= made + 2 * (int)entries);
    for (uint32_t k = 0; k < SETS; k++)
        expect_same(&sets[k], &alone[k]);
    model_close(context);
    printf("%d runs on %d sets of buffers, %d captures for %d entry points\n", RUNS, SETS,
           (int)captures, (int)entries);
    return 0;
}
