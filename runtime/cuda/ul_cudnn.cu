/* SPDX-License-Identifier: 0BSD */
/*
 * Convolutions and attention of a program for CUDA by cuDNN (ul_cuda_library.h): of dense tensors
 * with channels innermost, y = act(conv(x, w) + residual + bias), and the gradients of x and of w;
 * of heads by strides, softmax(scale * q * k + masks) * v, and the gradients of q, k and v.
 *
 * cuDNN need not be there, neither where the program is built nor where it runs, and may have
 * nothing for a call that does with the planned workspace and gives the same bits every time: then
 * ul_cudnn_run says 0, and the program runs a kernel of its own. So a call that is refused here is
 * no failure.
 *
 * A call is a graph of cuDNN (ul_cudnn_graph.h). In a file of choices it is the number of an engine
 * and of its knobs, which say how its kernel is cut.
 */
#include "ul_cudnn_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if UL_HAS_CUDNN

struct missing;
struct handle {
    struct ul_cuda_calls calls;
    void *loaded;                  /* NULL: cuDNN is not there */
    const struct missing *missing; /* then, why */
    struct ul_cudnn dnn;
    struct ul_cudnn_graph *graphs; /* by call */
};

/* ---- open, close ---- */

/* What a call is told about a cuDNN that is not there. */
struct missing {
    const char *refusal, *note;
};
#define MISSING(text)                                                                              \
    {                                                                                              \
        text ", or compile with --with-cudnn auto", text "; kernels of the program run its calls"  \
    }
static const struct missing not_found = MISSING("cuDNN was not found (libcudnn.so." UL_TEXT_OF(
    CUDNN_MAJOR) "); put its folder into LD_LIBRARY_PATH");
static const struct missing not_whole = MISSING("cuDNN was found but lacks functions of 9.8; put "
                                                "the folder of a newer one into LD_LIBRARY_PATH");
static const struct missing not_started =
    MISSING("cuDNN was found but did not start (cudnnCreate); its version must fit the driver's "
            "and the device's");

static bool load(struct handle *handle)
{
    char name[64];
    (void)snprintf(name, sizeof name, "libcudnn.so.%d", CUDNN_MAJOR);
    handle->loaded = ul_cuda_load(name);
    handle->missing = &not_found;
    if (handle->loaded == NULL)
        return false;
    handle->missing = &not_started;
    bool whole = true;
#define UL_CUDNN_FIND(function)                                                                    \
    handle->dnn.function =                                                                         \
        (decltype(&cudnn##function))ul_cuda_symbol(handle->loaded, "cudnn" #function);             \
    whole = whole && handle->dnn.function != NULL;
    UL_CUDNN_FUNCTIONS(UL_CUDNN_FIND)
#undef UL_CUDNN_FIND
    if (!whole)
        handle->missing = &not_whole;
    return whole;
}

static void unload(struct handle *handle)
{
    if (handle->dnn.handle != NULL)
        (void)handle->dnn.Destroy(handle->dnn.handle);
    if (handle->loaded != NULL)
        ul_cuda_unload(handle->loaded);
    handle->dnn.handle = NULL;
    handle->loaded = NULL;
}

static void close_handle(void *opaque)
{
    struct handle *handle = (struct handle *)opaque;
    /* Plans go first: one that several calls share belongs to the first one's graph. */
    for (uint32_t i = 0; i < handle->calls.call_count; i++)
        ul_cudnn_drop_plan(&handle->dnn, &handle->graphs[i]);
    for (uint32_t i = 0; i < handle->calls.call_count; i++)
        ul_cudnn_free_graph(&handle->dnn, &handle->graphs[i]);
    unload(handle);
    free(handle->graphs);
    ul_cuda_free_calls(&handle->calls);
    free(handle);
}

static enum ul_result open_handle(void **opaque, struct ul_failure *failure)
{
    struct handle *handle = (struct handle *)calloc(1, sizeof *handle);
    if (handle == NULL)
        return ul_cuda_refuse(failure, UL_LIBRARY_FAILED, "cuDNN: the host is out of memory");
    if (!load(handle) || handle->dnn.Create(&handle->dnn.handle) != CUDNN_STATUS_SUCCESS)
        unload(handle);
    *opaque = handle;
    return UL_OK;
}

static enum ul_result open_needed(void **opaque, struct ul_failure *failure)
{
    enum ul_result result = open_handle(opaque, failure);
    if (result != UL_OK || ((struct handle *)*opaque)->loaded != NULL)
        return result;
    const char *refusal = ((struct handle *)*opaque)->missing->refusal;
    close_handle(*opaque);
    return ul_cuda_refuse(failure, UL_LIBRARY_MISSING, refusal);
}

/* ---- calls ---- */

static int reserve(void *opaque, uint32_t call_count)
{
    struct handle *handle = (struct handle *)opaque;
    handle->graphs = (struct ul_cudnn_graph *)calloc(call_count, sizeof *handle->graphs);
    return handle->graphs != NULL;
}

static int describe_call(void *opaque, uint32_t index, const struct ul_call *call, const void *)
{
    struct handle *handle = (struct handle *)opaque;
    return ul_cudnn_make_graph(&handle->dnn, call, &handle->graphs[index]);
}

static int find(void *opaque, uint32_t index, const struct ul_call *call,
                struct ul_cuda_choice *choices)
{
    const struct handle *handle = (const struct handle *)opaque;
    return ul_cudnn_find(&handle->dnn, &handle->graphs[index], call, choices);
}

/* A network's layers have calls that are alike, and a plan that is compiled is made once for all of
 * them. */
static struct ul_cudnn_plan *find_plan(const struct handle *handle, uint32_t index,
                                       const struct ul_call *call,
                                       const struct ul_cuda_choice *choice)
{
    for (uint32_t i = 0; i < handle->calls.call_count; i++) {
        struct ul_cudnn_plan *plan = handle->graphs[i].plan;
        if (i != index && plan != NULL &&
            memcmp(&handle->calls.calls[i], call, sizeof *call) == 0 &&
            plan->choice.size_bytes == choice->size_bytes &&
            memcmp(plan->choice.bytes, choice->bytes, choice->size_bytes) == 0)
            return plan;
    }
    return NULL;
}

static int take(void *opaque, uint32_t index, const struct ul_call *call,
                const struct ul_cuda_choice *choice)
{
    const struct handle *handle = (const struct handle *)opaque;
    struct ul_cudnn_plan *plan = find_plan(handle, index, call, choice);
    if (plan != NULL) {
        ul_cudnn_share(&handle->dnn, &handle->graphs[index], plan);
        return 1;
    }
    return ul_cudnn_take(&handle->dnn, &handle->graphs[index], call, choice);
}

static int enqueue(void *opaque, uint32_t index, const void *const *args, unsigned char *scratch,
                   const struct ul_cuda_step *at)
{
    struct handle *handle = (struct handle *)opaque;
    const struct ul_cudnn *dnn = &handle->dnn;
    unsigned char *workspace = ul_cuda_workspace(scratch);
    uint64_t sums_bytes = ul_call_sums_bytes(&handle->calls.calls[index]);
    const void *all[UL_CALL_ARGS];
    if (sums_bytes > 0) {
        memcpy(all, args, UL_CALL_ARG_SUMS * sizeof *all);
        all[UL_CALL_ARG_SUMS] = workspace;
        args = all;
    }
    return dnn->SetStream(dnn->handle, at->run->stream) == CUDNN_STATUS_SUCCESS &&
           ul_cudnn_execute(dnn, &handle->graphs[index], args, workspace + sums_bytes);
}

static void tell(const void *opaque, uint32_t index, char name[UL_CUDA_NAME_BYTES])
{
    const struct handle *handle = (const struct handle *)opaque;
    (void)snprintf(name, UL_CUDA_NAME_BYTES, "cudnn engine %d",
                   (int)handle->graphs[index].plan->engine_index);
}

/* ---- the library ---- */

static uint64_t version_of(const void *opaque)
{
    return ((const struct handle *)opaque)->dnn.GetVersion();
}

#define UL_CUDNN_KINDS                                                                             \
    (1u << UL_CALL_CONVOLUTION | 1u << UL_CALL_DECONVOLUTION | 1u << UL_CALL_WEIGHT_GRADIENT |     \
     1u << UL_CALL_ATTENTION | 1u << UL_CALL_ATTENTION_GRADIENT)
static const struct ul_cuda_library library = {
    "cudnn", "cuDNN",    UL_CUDNN_KINDS, UL_CUDNN_ALIGN_BYTES,
    0,       version_of, reserve,        describe_call,
    find,    NULL,       take,           NULL,
    enqueue, tell};

int ul_cudnn_run(const struct ul_cuda_step *at, uint32_t place, uint32_t call,
                 const void *const *args, unsigned char *scratch)
{
    return ul_cuda_run_call(&library, at, place, call, args, scratch);
}

static enum ul_result prepare(void *opaque, const struct ul_model *model,
                              const struct ul_device_request *request, unsigned char *arena,
                              void *stream, struct ul_failure *failure)
{
    if (((const struct handle *)opaque)->loaded == NULL)
        return UL_OK;
    return ul_cuda_prepare(&library, opaque, model, request, arena, (cudaStream_t)stream, failure);
}

static void describe(char text[UL_DEVICE_TEXT_BYTES])
{
    (void)snprintf(text, UL_DEVICE_TEXT_BYTES, "cuDNN %d.%d.%d", CUDNN_MAJOR,
                   CUDNN_VERSION / 100 % 100, CUDNN_VERSION % 100);
}

static int note(const void *opaque, char text[UL_DEVICE_TEXT_BYTES])
{
    const struct handle *handle = (const struct handle *)opaque;
    if (handle->loaded != NULL)
        return ul_cuda_note_unused(&library, handle, text);
    (void)snprintf(text, UL_DEVICE_TEXT_BYTES, "%s", handle->missing->note);
    return 1;
}

#else /* built where there is no cuDNN */

static enum ul_result open_handle(void **opaque, struct ul_failure *failure)
{
    (void)failure;
    *opaque = NULL;
    return UL_OK;
}

static enum ul_result open_needed(void **opaque, struct ul_failure *failure)
{
    *opaque = NULL;
    return ul_cuda_refuse(
        failure, UL_LIBRARY_MISSING,
        "cuDNN: the program was built without one of 9.8 or later; build it where "
        "nvcc finds cudnn.h of one, or compile with --with-cudnn auto");
}

static enum ul_result prepare(void *, const struct ul_model *, const struct ul_device_request *,
                              unsigned char *, void *, struct ul_failure *)
{
    return UL_OK;
}

static void close_handle(void *)
{
}

static void describe(char text[UL_DEVICE_TEXT_BYTES])
{
    (void)snprintf(text, UL_DEVICE_TEXT_BYTES, "built without cuDNN of 9.8 or later");
}

static int note(const void *, char text[UL_DEVICE_TEXT_BYTES])
{
    (void)snprintf(
        text, UL_DEVICE_TEXT_BYTES,
        "the program was built without cuDNN of 9.8 or later; kernels of the program run "
        "its calls");
    return 1;
}

int ul_cudnn_run(const struct ul_cuda_step *, uint32_t, uint32_t, const void *const *,
                 unsigned char *)
{
    return 0;
}

#endif

const struct ul_device_library ul_cudnn = {"cuDNN",
                                           open_needed,
                                           prepare,
                                           close_handle,
                                           describe,
                                           note,
                                           ul_cuda_count_calls,
                                           ul_cuda_implementation};
const struct ul_device_library ul_cudnn_if_there = {"cuDNN",
                                                    open_handle,
                                                    prepare,
                                                    close_handle,
                                                    describe,
                                                    note,
                                                    ul_cuda_count_calls,
                                                    ul_cuda_implementation};
