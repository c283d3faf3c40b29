/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the kernels that contract_emit printed for target cuda on the operands in argv[1], and
 * compares with the interpreter's results. What lies around every buffer is checked, and the
 * results must be the same bits at another alignment. */
#include "case.h"
#include "compare.h"

#include <stdlib.h>

#include KERNELS

#define GUARD_BYTES 4096

#define OK(call)                                                                                   \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess) {                                                               \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error_));                        \
            exit(5);                                                                               \
        }                                                                                          \
    } while (0)

/* Device memory with guards, and its copy on the host. */
struct place {
    unsigned char *device, *host;
    size_t bytes, shift;
};

static size_t whole(const struct place *place)
{
    return place->bytes + place->shift + 2 * GUARD_BYTES;
}

static struct place place_new(const unsigned char *from, size_t bytes, size_t shift)
{
    struct place place = {NULL, NULL, bytes, shift};
    place.host = (unsigned char *)malloc(whole(&place));
    if (place.host == NULL)
        exit(70);
    memset(place.host, 0xa5, whole(&place));
    if (from != NULL)
        memcpy(place.host + GUARD_BYTES + shift, from, bytes);
    OK(cudaMalloc(&place.device, whole(&place)));
    OK(cudaMemcpy(place.device, place.host, whole(&place), cudaMemcpyHostToDevice));
    return place;
}

static bool place_holds(struct place *place)
{
    OK(cudaMemcpy(place->host, place->device, whole(place), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < whole(place); i++) {
        bool is_inside =
            i >= GUARD_BYTES + place->shift && i < GUARD_BYTES + place->shift + place->bytes;
        if (!is_inside && place->host[i] != 0xa5)
            return false;
    }
    return true;
}

static void place_done(struct place *place)
{
    OK(cudaFree(place->device));
    free(place->host);
}

static void launch(const struct kernel_case *c, struct place *places, int count,
                   unsigned char *scratch)
{
    struct ul_cuda_run run;
    struct ul_cuda_state *state = NULL;
    void *buffers[8];
    memset(&run, 0, sizeof run);
    run.launch_limit = UINT64_MAX;
    OK(cudaMalloc(&state, sizeof *state));
    OK(cudaMemset(state, 0, sizeof *state));
    OK(cudaStreamCreateWithFlags(&run.stream, cudaStreamNonBlocking));
    OK(cudaStreamSynchronize(NULL));
    run.state = state;
    for (int b = 0; b < count; b++)
        buffers[b] = places[b].device + GUARD_BYTES + places[b].shift;
    const struct ul_cuda_step at = ul_cuda_at(&run, 0, UL_CUDA_ALWAYS);
    c->call(buffers, scratch, &at);
    OK(run.error);
    OK(cudaStreamSynchronize(run.stream));
    OK(cudaStreamDestroy(run.stream));
    OK(cudaFree(state));
}

/* Results go to `results`, one after the other. */
static bool run_case(const struct kernel_case *c, unsigned char *const *data, size_t shift,
                     unsigned char *results)
{
    struct place places[8], scratch = place_new(NULL, c->scratch_bytes, 0);
    int count = 0;
    bool ok = true;
    for (; c->buffers[count].element_count > 0; count++) {
        size_t element = size_of(c->buffers[count].dtype);
        places[count] = place_new(c->buffers[count].is_output ? NULL : data[count],
                                  element * c->buffers[count].element_count, shift * element);
    }
    launch(c, places, count, scratch.device + GUARD_BYTES);
    for (int b = 0; b < count; b++) {
        if (!place_holds(&places[b])) {
            fprintf(stderr, "%s: wrote outside of buffer %d\n", c->name, b);
            ok = false;
        }
        const unsigned char *got =
            places[b].host + GUARD_BYTES + shift * size_of(c->buffers[b].dtype);
        if (c->buffers[b].is_output) {
            ok = compare(c->name, got, data[b], &c->buffers[b]) == 0 && ok;
            memcpy(results, got, places[b].bytes);
            results += places[b].bytes;
        }
        place_done(&places[b]);
    }
    if (!place_holds(&scratch)) {
        fprintf(stderr, "%s: wrote outside of its scratch\n", c->name);
        ok = false;
    }
    place_done(&scratch);
    return ok;
}

static bool test_case(const struct kernel_case *c, unsigned char *const *data)
{
    size_t bytes = 0;
    for (int b = 0; c->buffers[b].element_count > 0; b++)
        if (c->buffers[b].is_output)
            bytes += size_of(c->buffers[b].dtype) * c->buffers[b].element_count;
    unsigned char *first = (unsigned char *)malloc(bytes), *second = (unsigned char *)malloc(bytes);
    if (first == NULL || second == NULL)
        exit(70);
    bool ok = run_case(c, data, 0, first) && run_case(c, data, 3, second);
    if (ok && memcmp(first, second, bytes) != 0) {
        fprintf(stderr, "%s: other bits at another place\n", c->name);
        ok = false;
    }
    free(first);
    free(second);
    return ok;
}

int main(int argc, char **argv)
{
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL)
        return 1;
    size_t count = sizeof cases / sizeof cases[0], agree = 0;
    for (size_t i = 0; i < count; i++) {
        unsigned char *data[8];
        int buffers = 0;
        for (; cases[i].buffers[buffers].element_count > 0; buffers++) {
            const struct kernel_buffer *b = &cases[i].buffers[buffers];
            data[buffers] = (unsigned char *)malloc(size_of(b->dtype) * b->element_count);
            if (data[buffers] == NULL ||
                fread(data[buffers], size_of(b->dtype), b->element_count, file) != b->element_count)
                return 5;
        }
        agree += test_case(&cases[i], data);
        for (int b = 0; b < buffers; b++)
            free(data[b]);
    }
    fclose(file);
    printf("%zu of %zu kernels agree\n", agree, count);
    return agree != count;
}
