/* SPDX-License-Identifier: Apache-2.0 */
/* Models in one arena, run in the order of the command line: shared.py writes models.h, which
 * includes the library's header and names the library and its models.
 *
 *     shared FOLDER NUMBER...        0 is the first model
 *
 * The library is begun once; run r of model p reads FOLDER/p.in.r.i, or gives NULL where there is
 * no such file, writes FOLDER/p.out.r.i, and leaves the arena as it was before and after in
 * FOLDER/run.k.before, .after.
 */
#include "models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef SHARED_CUDA
#include "ul_device.h"
#include <cuda_runtime.h>
typedef struct ul_context *handle;
#else
typedef void *handle;
#endif

enum { MAX_TENSORS = 8, MAX_RUNS = 64 };

struct entry {
    const char *name;
    const struct ul_model *model;
    int (*run)(handle at, const void *const *inputs, void *const *outputs,
               struct ul_failure *failure);
    uint32_t (*input_count)(void);
    const char *(*input_name)(uint32_t number);
    uint64_t (*output_bytes)(uint32_t number);
    int runs;
};

#define MODEL(p)                                                                                   \
    {                                                                                              \
#p, &p##_model, p##_run, p##_input_count, p##_input_name, p##_output_bytes, 0              \
    }
static struct entry entries[] = {MODELS};
enum { MODEL_COUNT = sizeof entries / sizeof *entries };

static unsigned char *arena;
static void *at;
static uint64_t arena_bytes;
static struct ul_failure failure;

static void die(const char *what)
{
    fprintf(stderr, "shared: %s: %s, needed %lu, available %lu\n", what,
            ul_result_text(failure.result), (unsigned long)failure.needed_bytes,
            (unsigned long)failure.available_bytes);
    exit(1);
}

/* NULL: there is no such file. */
static void *read_all(const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    void *bytes = malloc(size + 1);
    if (bytes == NULL || fread(bytes, 1, size + 1, file) != size)
        die(path);
    fclose(file);
    return bytes;
}

static void write_all(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, size, file) != size || fclose(file) != 0)
        die(path);
}

static void snapshot(const char *folder, int number, const char *when)
{
    char path[512];
    snprintf(path, sizeof path, "%s/run.%d.%s", folder, number, when);
#ifdef SHARED_CUDA
    unsigned char *copy = malloc(arena_bytes);
    if (copy == NULL || cudaMemcpy(copy, arena, arena_bytes, cudaMemcpyDeviceToHost) != cudaSuccess)
        die(path);
    write_all(path, copy, arena_bytes);
    free(copy);
#else
    write_all(path, arena, arena_bytes);
#endif
}

static void run_model(struct entry *entry, const char *folder, int number)
{
    const void *inputs[MAX_TENSORS];
    void *outputs[MAX_TENSORS];
    char path[512];
    for (uint32_t i = 0; i < entry->model->input_count; i++) {
        snprintf(path, sizeof path, "%s/%s.in.%d.%u", folder, entry->name, entry->runs, i);
        inputs[i] = read_all(path, (size_t)entry->model->inputs[i].size_bytes);
    }
    for (uint32_t i = 0; i < entry->model->output_count; i++)
        outputs[i] = malloc((size_t)entry->model->outputs[i].size_bytes);
    snapshot(folder, number, "before");
    if (entry->run((handle)at, inputs, outputs, &failure) != UL_OK)
        die(entry->name);
    snapshot(folder, number, "after");
    for (uint32_t i = 0; i < entry->model->output_count; i++) {
        snprintf(path, sizeof path, "%s/%s.out.%d.%u", folder, entry->name, entry->runs, i);
        write_all(path, outputs[i], (size_t)entry->model->outputs[i].size_bytes);
        free(outputs[i]);
    }
    for (uint32_t i = 0; i < entry->model->input_count; i++)
        free((void *)(uintptr_t)inputs[i]);
    entry->runs++;
}

static void make_arena(void)
{
    uint64_t align = LIBRARY(arena_align)();
    arena_bytes = LIBRARY(arena_bytes)();
#ifdef SHARED_CUDA
    (void)align;
    if (cudaMalloc((void **)&arena, arena_bytes) != cudaSuccess)
        die("arena");
    cudaMemset(arena, 0xA5, arena_bytes);
#else
    unsigned char *block = malloc(arena_bytes + align);
    if (block == NULL)
        die("arena");
    arena = block + (align - (uintptr_t)block % align);
    memset(arena, 0xA5, arena_bytes);
#endif
}

/* What is asked by name is what the description says. */
static void check_answers(const struct entry *entry)
{
    const struct ul_model *model = entry->model;
    if (entry->input_count() != model->input_count || model->arena_bytes != arena_bytes ||
        strcmp(entry->input_name(0), model->inputs[0].name) != 0 ||
        strchr(entry->input_name(0), '/') != NULL || entry->input_name(99) != NULL ||
        entry->output_bytes(0) != model->outputs[0].size_bytes)
        die(entry->name);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 1;
    make_arena();
    for (int i = 0; i < MODEL_COUNT; i++)
        check_answers(&entries[i]);
    if (LIBRARY(begin)(&at, arena, arena_bytes, NULL, 0, NULL, &failure) != UL_OK)
        die("begin");
    for (int i = 2; i < argc; i++)
        run_model(&entries[atoi(argv[i]) % MODEL_COUNT], argv[1], i - 2);
    LIBRARY(end)(at);
    return 0;
}
