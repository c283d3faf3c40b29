/*
 * What calls of cuBLASLt and cuDNN have in common (ul_cuda_library.h): loading, trials, and the
 * file of choices that --tune writes:
 *
 *      ullage choices 1
 *      model 3f0c...                       SHA-256
 *      device NVIDIA H100 80GB HBM3
 *      cublaslt 130100 12 0000004200...    library, version, call, choice
 *
 * A choice is the library's own description of an algorithm, which only the same version of it
 * reads. Lines for another version are passed over.
 */
#include "ul_cuda_library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __CUDACC__
#include <dlfcn.h>
#else
#include "ul_emulate_libraries.h"
#endif

/* ---- loading ---- */

#ifdef __CUDACC__
void *ul_cuda_load(const char *name)
{
    char path[256];
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL && strlen(name) < 128) {
        (void)snprintf(path, sizeof path, "/usr/local/cuda/lib64/%s", name);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

void *ul_cuda_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}

void ul_cuda_unload(void *library)
{
    (void)dlclose(library);
}
#else
void *ul_cuda_load(const char *name)
{
    return ul_emulate_load(name);
}

void *ul_cuda_symbol(void *library, const char *name)
{
    return ul_emulate_symbol(library, name);
}

void ul_cuda_unload(void *library)
{
    (void)library;
}
#endif

/* ---- post-operations ---- */

void ul_cuda_read_posts(const struct ul_call *call, struct ul_cuda_posts *posts)
{
    posts->alpha = 1;
    posts->adds = 0;
    posts->activation = UL_CUDA_IDENTITY;
    for (uint32_t i = 0; i < call->post_count; i++) {
        const struct ul_post *post = &call->posts[i];
        if (post->kind == UL_POST_LINEAR)
            posts->alpha = post->alpha;
        if (post->kind == UL_POST_SUM)
            posts->adds = 1;
        if (post->kind == UL_POST_RELU)
            posts->activation = UL_CUDA_RELU;
        if (post->kind == UL_POST_GELU_TANH)
            posts->activation = UL_CUDA_GELU_TANH;
    }
}

/* ---- trials ---- */

enum { UL_CUDA_TRIAL_ALIGN = 256 };

/* From the first element to the last, by strides. */
static uint64_t reach_bytes(const struct ul_call_tensor *tensor)
{
    uint64_t last = 0;
    for (uint32_t d = 0; d < tensor->rank; d++)
        last += (uint64_t)((tensor->dims[d] - 1) * tensor->strides[d]);
    return (last + 1) * ul_call_element_bytes(tensor);
}

/* The next place; NULL where the arena ends. */
static unsigned char *place(unsigned char *arena, uint64_t arena_bytes, uint64_t *used_bytes,
                            uint64_t size_bytes)
{
    uint64_t begin = (*used_bytes + UL_CUDA_TRIAL_ALIGN - 1) / UL_CUDA_TRIAL_ALIGN;
    begin *= UL_CUDA_TRIAL_ALIGN;
    if (begin > arena_bytes || size_bytes > arena_bytes - begin)
        return NULL;
    *used_bytes = begin + size_bytes;
    return arena + begin;
}

int ul_cuda_trial_place(struct ul_cuda_trial *trial, const struct ul_call *call,
                        unsigned char *arena, uint64_t arena_bytes)
{
    const struct ul_call_tensor *tensors[] = {&call->src, &call->weights, &call->bias, &call->dst};
    uint64_t used = 0;
    memset(trial, 0, sizeof *trial);
    for (int i = 0; i < 4; i++) {
        if (tensors[i]->rank == 0)
            continue;
        trial->args[i] = place(arena, arena_bytes, &used, reach_bytes(tensors[i]));
        if (trial->args[i] == NULL)
            return 0;
    }
    trial->args[4] = trial->args[3]; /* the residual */
    if (call->scratch_bytes > 0)
        trial->scratch = place(arena, arena_bytes, &used, call->scratch_bytes);
    return call->scratch_bytes == 0 || trial->scratch != NULL;
}

double ul_cuda_measure(cudaStream_t stream, int (*run)(void *context), void *context)
{
    enum { WARM_UPS = 2, ROUNDS = 5, RUNS = 4 };
    cudaEvent_t begin = NULL, end = NULL;
    double least = -1;
    int good = cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess;
    for (int i = 0; good && i < WARM_UPS; i++)
        good = run(context);
    for (int round = 0; good && round < ROUNDS; round++) {
        float milliseconds = 0;
        good = cudaEventRecord(begin, stream) == cudaSuccess;
        for (int i = 0; good && i < RUNS; i++)
            good = run(context);
        good = good && cudaEventRecord(end, stream) == cudaSuccess &&
               cudaEventSynchronize(end) == cudaSuccess &&
               cudaEventElapsedTime(&milliseconds, begin, end) == cudaSuccess;
        double seconds = (double)milliseconds / 1e3 / RUNS;
        if (good && (least < 0 || seconds < least))
            least = seconds;
    }
    if (begin != NULL)
        (void)cudaEventDestroy(begin);
    if (end != NULL)
        (void)cudaEventDestroy(end);
    return good ? least : -1;
}

/* ---- choices ---- */

enum { LINE_BYTES = 512, HEAD_LINES = 3 };

void ul_cuda_put_hex(char *text, const void *bytes, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", ((const unsigned char *)bytes)[i]);
}

int ul_cuda_get_hex(const char *text, void *bytes, size_t size_bytes)
{
    if (strlen(text) != 2 * size_bytes || strspn(text, "0123456789abcdef") != 2 * size_bytes)
        return 0;
    for (size_t i = 0; i < size_bytes; i++) {
        char digits[3] = {text[2 * i], text[2 * i + 1], '\0'};
        ((unsigned char *)bytes)[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    return 1;
}

/* The lines that say what a file is of, into head[0..HEAD_LINES - 1]. */
static int make_head(const struct ul_model *model, char head[HEAD_LINES][LINE_BYTES])
{
    struct cudaDeviceProp properties;
    int device = 0;
    char hash[65];
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaGetDeviceProperties(&properties, device) != cudaSuccess)
        return 0;
    ul_cuda_put_hex(hash, model->model_sha256, sizeof model->model_sha256);
    (void)snprintf(head[0], LINE_BYTES, "ullage choices 1\n");
    (void)snprintf(head[1], LINE_BYTES, "model %s\n", hash);
    (void)snprintf(head[2], LINE_BYTES, "device %s\n", properties.name);
    return 1;
}

/* Opens the file behind its head; NULL where it has another one. */
static FILE *open_choices(const char *path, const struct ul_model *model, const char **reason)
{
    char head[HEAD_LINES][LINE_BYTES], line[LINE_BYTES];
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        *reason = "the file of choices (--choices) cannot be read";
        return NULL;
    }
    *reason = "the device does not say its name";
    int good = make_head(model, head);
    for (int i = 0; good && i < HEAD_LINES; i++) {
        static const char *const reasons[HEAD_LINES] = {"that is no file of choices",
                                                        "the file of choices is of another model",
                                                        "the file of choices is of another device"};
        good = fgets(line, sizeof line, file) != NULL && strcmp(line, head[i]) == 0;
        *reason = reasons[i];
    }
    if (good)
        return file;
    (void)fclose(file);
    return NULL;
}

int ul_cuda_read_choices(const char *path, const struct ul_model *model, const char *library,
                         uint64_t version, struct ul_cuda_choice *choices, const char **reason)
{
    char line[LINE_BYTES], name[32], text[UL_CUDA_CHOICE_BYTES];
    FILE *file = open_choices(path, model, reason);
    if (file == NULL)
        return 0;
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned long long found = 0;
        unsigned call = 0;
        if (sscanf(line, "%31s %llu %u %159s", name, &found, &call, text) == 4 &&
            strcmp(name, library) == 0 && found == version && call < model->device->call_count)
            memcpy(choices[call].text, text, sizeof text);
    }
    (void)fclose(file);
    return 1;
}

/* What the old file, if it is of the same model and device, says of other libraries. */
static void keep_others(const char *path, const struct ul_model *model, const char *library,
                        FILE *out)
{
    char line[LINE_BYTES], name[32];
    const char *reason;
    FILE *file = open_choices(path, model, &reason);
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%31s", name) == 1 && strcmp(name, library) != 0)
            (void)fputs(line, out);
    }
    if (file != NULL)
        (void)fclose(file);
}

int ul_cuda_write_choices(const char *path, const struct ul_model *model, const char *library,
                          uint64_t version, const struct ul_cuda_choice *choices,
                          const char **reason)
{
    char head[HEAD_LINES][LINE_BYTES], beside[4096];
    *reason = "the device does not say its name, or the name of the file of choices is too long";
    if (!make_head(model, head) ||
        snprintf(beside, sizeof beside, "%s.new", path) >= (int)sizeof beside)
        return 0;
    FILE *file = fopen(beside, "w");
    for (int i = 0; file != NULL && i < HEAD_LINES; i++)
        (void)fputs(head[i], file);
    if (file != NULL)
        keep_others(path, model, library, file);
    for (uint32_t i = 0; file != NULL && i < model->device->call_count; i++) {
        if (choices[i].text[0] != '\0')
            (void)fprintf(file, "%s %llu %u %s\n", library, (unsigned long long)version, i,
                          choices[i].text);
    }
    int good = file != NULL && ferror(file) == 0;
    if (file != NULL && fclose(file) != 0)
        good = 0;
    if (good && rename(beside, path) == 0)
        return 1;
    *reason = "the file of choices (--tune) cannot be written";
    (void)remove(beside);
    return 0;
}
