/* SPDX-License-Identifier: Apache-2.0 */
/* Models that share an arena, run in the order of the command line: shared.py writes models.h, a
 * line MODEL(prefix) for each.
 *
 *     shared FOLDER NUMBER...        0 is the first model
 *
 * Each model is begun once, all in one arena; run r of model p reads FOLDER/p.in.r.i, writes
 * FOLDER/p.out.r.i, and leaves the arena as it was before and after in FOLDER/run.k.before, .after.
 */
#include "shared.h"

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
    handle at;
    int runs;
};

static unsigned char *arena;
static struct ul_failure failure;

static void die(const char *what)
{
    fprintf(stderr, "shared: %s: %s, needed %lu, available %lu\n", what,
            ul_result_text(failure.result), (unsigned long)failure.needed_bytes,
            (unsigned long)failure.available_bytes);
    exit(1);
}

static void *read_all(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        die(path);
    *size = (size_t)ftell(file);
    rewind(file);
    void *bytes = malloc(*size + 1);
    if (bytes == NULL || fread(bytes, 1, *size, file) != *size)
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
    unsigned char *copy = malloc(SHARED_ARENA_BYTES);
    if (copy == NULL ||
        cudaMemcpy(copy, arena, SHARED_ARENA_BYTES, cudaMemcpyDeviceToHost) != cudaSuccess)
        die(path);
    write_all(path, copy, SHARED_ARENA_BYTES);
    free(copy);
#else
    write_all(path, arena, SHARED_ARENA_BYTES);
#endif
}

static void run_model(struct entry *entry, const char *folder, int number)
{
    const void *inputs[MAX_TENSORS];
    void *outputs[MAX_TENSORS];
    char path[512];
    size_t size;
    for (uint32_t i = 0; i < entry->model->input_count; i++) {
        snprintf(path, sizeof path, "%s/%s.in.%d.%u", folder, entry->name, entry->runs, i);
        inputs[i] = read_all(path, &size);
        if (size != entry->model->inputs[i].size_bytes)
            die(path);
    }
    for (uint32_t i = 0; i < entry->model->output_count; i++)
        outputs[i] = malloc((size_t)entry->model->outputs[i].size_bytes);
    snapshot(folder, number, "before");
    if (entry->run(entry->at, inputs, outputs, &failure) != UL_OK)
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

static struct ul_weights_source weights_of(const char *folder, const char *name)
{
    char path[512];
    size_t size;
    struct ul_weights_source source;
    memset(&source, 0, sizeof source);
    snprintf(path, sizeof path, "%s/%s.weights", folder, name);
    source.memory = read_all(path, &size);
    source.size_bytes = size;
    return source;
}

static void make_arena(void)
{
#ifdef SHARED_CUDA
    if (cudaMalloc((void **)&arena, SHARED_ARENA_BYTES) != cudaSuccess)
        die("arena");
    cudaMemset(arena, 0xA5, SHARED_ARENA_BYTES);
#else
    unsigned char *block = malloc(SHARED_ARENA_BYTES + SHARED_ARENA_ALIGN);
    if (block == NULL)
        die("arena");
    arena = block + (SHARED_ARENA_ALIGN - (uintptr_t)block % SHARED_ARENA_ALIGN);
    memset(arena, 0xA5, SHARED_ARENA_BYTES);
#endif
}

#ifdef SHARED_CUDA
#define BEGIN(p) p##_open(&entries[count].at, arena, SHARED_ARENA_BYTES, NULL, &source, &failure)
#else
#define BEGIN(p) (entries[count].at = arena, p##_init(arena, SHARED_ARENA_BYTES, &source, &failure))
#endif

/* Of several models each answers what one by itself does; none brings its weights along. */
#if SHARED_MODEL_COUNT > 1
#define ANSWERS(p)                                                                                 \
    (p##_arena_bytes() == SHARED_ARENA_BYTES && p##_weights() == NULL &&                           \
     p##_input_count() == p##_model.input_count &&                                                 \
     strcmp(p##_input_name(0), p##_model.inputs[0].name) == 0 &&                                   \
     p##_output_bytes(0) == p##_model.outputs[0].size_bytes && p##_output_name(99) == NULL)
#else
#define ANSWERS(p) true
#endif

int main(int argc, char **argv)
{
    struct entry entries[SHARED_MODEL_COUNT];
    struct ul_weights_source source;
    int count = 0;
    if (argc < 2)
        return 1;
    memset(entries, 0, sizeof entries);
    make_arena();
#define MODEL(p)                                                                                   \
    source = weights_of(argv[1], #p);                                                              \
    entries[count].name = #p;                                                                      \
    entries[count].model = &p##_model;                                                             \
    entries[count].run = p##_run;                                                                  \
    if (!ANSWERS(p) || BEGIN(p) != UL_OK)                                                          \
        die(#p);                                                                                   \
    free((void *)(uintptr_t)source.memory);                                                        \
    count++;
#include "models.h"
    for (int i = 2; i < argc; i++)
        run_model(&entries[atoi(argv[i]) % count], argv[1], i - 2);
    return 0;
}
