/*
 * Convolutions of a program for CUDA by cuDNN (ul_cuda_library.h): dense tensors with channels
 * innermost, y = act(conv(x, w) + residual + bias).
 *
 * cuDNN need not be there, neither where the program is built nor where it runs, and may have
 * nothing for a call that does with the planned workspace and gives the same bits every time: then
 * ul_cudnn_run says 0, and the program runs a kernel of its own. So a call that is refused here is
 * no failure.
 *
 * The functions are those of cuDNN 7 and later, not the graph interface of cuDNN 8: they have all
 * that is fused here for f32, their algorithms are compiled beforehand (engines that are compiled
 * at run time compute f32 by TF32 alone and take seconds to start), and one question answers with
 * all algorithms, their workspaces and whether they are deterministic.
 */
#include "ul_cuda_library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_include)
#if __has_include(<cudnn.h>)
#include <cudnn.h>
#define UL_HAS_CUDNN 1
#endif
#endif
#ifndef UL_HAS_CUDNN
#define UL_HAS_CUDNN 0
#endif

#if UL_HAS_CUDNN

/* The functions that are called, by their names without cudnn. */
#define UL_CUDNN_FUNCTIONS(X)                                                                      \
    X(Create)                                                                                      \
    X(Destroy)                                                                                     \
    X(GetVersion)                                                                                  \
    X(SetStream)                                                                                   \
    X(CreateTensorDescriptor)                                                                      \
    X(DestroyTensorDescriptor)                                                                     \
    X(SetTensor4dDescriptorEx)                                                                     \
    X(CreateFilterDescriptor)                                                                      \
    X(DestroyFilterDescriptor)                                                                     \
    X(SetFilter4dDescriptor)                                                                       \
    X(CreateConvolutionDescriptor)                                                                 \
    X(DestroyConvolutionDescriptor)                                                                \
    X(SetConvolution2dDescriptor)                                                                  \
    X(SetConvolutionGroupCount)                                                                    \
    X(SetConvolutionMathType)                                                                      \
    X(CreateActivationDescriptor)                                                                  \
    X(DestroyActivationDescriptor)                                                                 \
    X(SetActivationDescriptor)                                                                     \
    X(GetConvolutionForwardAlgorithm_v7)                                                           \
    X(GetConvolutionForwardWorkspaceSize)                                                          \
    X(ConvolutionForward)                                                                          \
    X(ConvolutionBiasActivationForward)

struct functions {
#define UL_CUDNN_MEMBER(name) decltype(&cudnn##name) name;
    UL_CUDNN_FUNCTIONS(UL_CUDNN_MEMBER)
#undef UL_CUDNN_MEMBER
};

/* Which algorithm, and in which units it computes. */
struct choice {
    int32_t algorithm, math;
};

/* One call, ready to run. */
struct convolution {
    cudnnTensorDescriptor_t x, y, bias;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t operation;
    cudnnActivationDescriptor_t activation;
    struct choice choice;
    uint64_t workspace_bytes;
    bool is_fused, has_relu, adds;
};

struct handle {
    struct ul_cuda_calls calls;
    void *loaded;  /* NULL: cuDNN is not there */
    bool is_found; /* 1: without `loaded`, it did not start */
    struct functions dnn;
    cudnnHandle_t cudnn;
    struct convolution *convolutions; /* by call */
};

/* ---- open, close ---- */

static bool load(struct handle *handle)
{
    char name[64];
    (void)snprintf(name, sizeof name, "libcudnn.so.%d", CUDNN_MAJOR);
    handle->loaded = ul_cuda_load(name);
    if (handle->loaded == NULL)
        return false;
    handle->is_found = true;
    bool whole = true;
#define UL_CUDNN_FIND(function)                                                                    \
    handle->dnn.function =                                                                         \
        (decltype(&cudnn##function))ul_cuda_symbol(handle->loaded, "cudnn" #function);             \
    whole = whole && handle->dnn.function != NULL;
    UL_CUDNN_FUNCTIONS(UL_CUDNN_FIND)
#undef UL_CUDNN_FIND
    return whole;
}

static void unload(struct handle *handle)
{
    if (handle->cudnn != NULL)
        (void)handle->dnn.Destroy(handle->cudnn);
    if (handle->loaded != NULL)
        ul_cuda_unload(handle->loaded);
    handle->cudnn = NULL;
    handle->loaded = NULL;
}

static void free_convolution(const struct functions *dnn, const struct convolution *convolution)
{
    if (convolution->x != NULL)
        (void)dnn->DestroyTensorDescriptor(convolution->x);
    if (convolution->y != NULL)
        (void)dnn->DestroyTensorDescriptor(convolution->y);
    if (convolution->bias != NULL)
        (void)dnn->DestroyTensorDescriptor(convolution->bias);
    if (convolution->w != NULL)
        (void)dnn->DestroyFilterDescriptor(convolution->w);
    if (convolution->operation != NULL)
        (void)dnn->DestroyConvolutionDescriptor(convolution->operation);
    if (convolution->activation != NULL)
        (void)dnn->DestroyActivationDescriptor(convolution->activation);
}

static void close_handle(void *opaque)
{
    struct handle *handle = (struct handle *)opaque;
    for (uint32_t i = 0; i < handle->calls.call_count; i++)
        free_convolution(&handle->dnn, &handle->convolutions[i]);
    unload(handle);
    free(handle->convolutions);
    ul_cuda_free_calls(&handle->calls);
    free(handle);
}

static enum ul_result open_handle(void **opaque, struct ul_failure *failure)
{
    struct handle *handle = (struct handle *)calloc(1, sizeof *handle);
    if (handle == NULL)
        return ul_cuda_refuse(failure, UL_LIBRARY_FAILED, "cuDNN: the host is out of memory");
    if (!load(handle) || handle->dnn.Create(&handle->cudnn) != CUDNN_STATUS_SUCCESS)
        unload(handle);
    *opaque = handle;
    return UL_OK;
}

#define NOT_FOUND                                                                                  \
    "cuDNN was not found (libcudnn.so." UL_TEXT_OF(                                                \
        CUDNN_MAJOR) "); put its folder into LD_LIBRARY_PATH"
#define NOT_STARTED                                                                                \
    "cuDNN was found but did not start (cudnnCreate); its version must fit the driver's and the "  \
    "device's"

static enum ul_result open_needed(void **opaque, struct ul_failure *failure)
{
    enum ul_result result = open_handle(opaque, failure);
    if (result != UL_OK || ((struct handle *)*opaque)->loaded != NULL)
        return result;
    bool is_found = ((struct handle *)*opaque)->is_found;
    close_handle(*opaque);
    return ul_cuda_refuse(failure, UL_LIBRARY_MISSING,
                          is_found ? NOT_STARTED ", or compile with --with-cudnn auto"
                                   : NOT_FOUND ", or compile with --with-cudnn auto");
}

/* ---- descriptors ---- */

static cudnnDataType_t type_of(const struct ul_call_tensor *tensor)
{
    return tensor->type == UL_CALL_F16    ? CUDNN_DATA_HALF
           : tensor->type == UL_CALL_BF16 ? CUDNN_DATA_BFLOAT16
                                          : CUDNN_DATA_FLOAT;
}

/* Of a tensor of one axis of space, the other one has one element. */
static int rows_of(const struct ul_call_tensor *tensor)
{
    return tensor->rank == 4 ? (int)tensor->dims[2] : 1;
}

static bool make_tensor(const struct functions *dnn, const struct ul_call_tensor *tensor,
                        cudnnTensorDescriptor_t *descriptor)
{
    int n = (int)tensor->dims[0], c = (int)tensor->dims[1], h = rows_of(tensor);
    int w = (int)tensor->dims[tensor->rank - 1];
    return dnn->CreateTensorDescriptor(descriptor) == CUDNN_STATUS_SUCCESS &&
           dnn->SetTensor4dDescriptorEx(*descriptor, type_of(tensor), n, c, h, w, h * w * c, 1,
                                        w * c, c) == CUDNN_STATUS_SUCCESS;
}

static bool make_weights(const struct functions *dnn, const struct ul_call *call,
                         cudnnFilterDescriptor_t *descriptor)
{
    const struct ul_call_tensor *weights = &call->weights;
    uint32_t out = call->group_count > 1 ? 1 : 0;
    bool flat = call->src.rank == 3;
    return dnn->CreateFilterDescriptor(descriptor) == CUDNN_STATUS_SUCCESS &&
           dnn->SetFilter4dDescriptor(
               *descriptor, type_of(weights), CUDNN_TENSOR_NHWC,
               (int)(weights->dims[out] * (call->group_count > 1 ? call->group_count : 1)),
               (int)weights->dims[out + 1], flat ? 1 : (int)weights->dims[out + 2],
               (int)weights->dims[weights->rank - 1]) == CUDNN_STATUS_SUCCESS;
}

static bool make_operation(const struct functions *dnn, const struct ul_call *call,
                           cudnnConvolutionDescriptor_t *descriptor)
{
    uint32_t last = call->src.rank - 3; /* of the axes of space */
    bool flat = last == 0;
    return dnn->CreateConvolutionDescriptor(descriptor) == CUDNN_STATUS_SUCCESS &&
           dnn->SetConvolution2dDescriptor(
               *descriptor, flat ? 0 : (int)call->pads[0], (int)call->pads[last],
               flat ? 1 : (int)call->steps[0], (int)call->steps[last],
               flat ? 1 : (int)call->dilations[0], (int)call->dilations[last],
               CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT) == CUDNN_STATUS_SUCCESS &&
           dnn->SetConvolutionGroupCount(*descriptor,
                                         call->group_count > 1 ? (int)call->group_count : 1) ==
               CUDNN_STATUS_SUCCESS;
}

/* With an activation cuDNN documents a bias of one number a channel, and ReLU that makes 0 of what
 * is no number. */
static bool describe_convolution(const struct functions *dnn, const struct ul_call *call,
                                 struct convolution *convolution)
{
    struct ul_cuda_posts posts;
    ul_cuda_read_posts(call, &posts);
    convolution->adds = posts.adds != 0;
    convolution->is_fused = call->bias.rank > 0;
    convolution->has_relu = posts.activation == UL_CUDA_RELU;
    int channels = (int)call->dst.dims[1];
    return make_tensor(dnn, &call->src, &convolution->x) &&
           make_tensor(dnn, &call->dst, &convolution->y) &&
           make_weights(dnn, call, &convolution->w) &&
           make_operation(dnn, call, &convolution->operation) &&
           dnn->CreateTensorDescriptor(&convolution->bias) == CUDNN_STATUS_SUCCESS &&
           dnn->SetTensor4dDescriptorEx(convolution->bias, type_of(&call->bias), 1, channels, 1, 1,
                                        channels, 1, 1, 1) == CUDNN_STATUS_SUCCESS &&
           dnn->CreateActivationDescriptor(&convolution->activation) == CUDNN_STATUS_SUCCESS &&
           dnn->SetActivationDescriptor(convolution->activation,
                                        convolution->has_relu ? CUDNN_ACTIVATION_RELU
                                                              : CUDNN_ACTIVATION_IDENTITY,
                                        CUDNN_NOT_PROPAGATE_NAN, 0) == CUDNN_STATUS_SUCCESS;
}

static int reserve(void *opaque, uint32_t call_count)
{
    struct handle *handle = (struct handle *)opaque;
    handle->convolutions = (struct convolution *)calloc(call_count, sizeof *handle->convolutions);
    return handle->convolutions != NULL;
}

static int describe_call(void *opaque, uint32_t index, const struct ul_call *call, const void *)
{
    struct handle *handle = (struct handle *)opaque;
    return describe_convolution(&handle->dnn, call, &handle->convolutions[index]);
}

/* ---- running ---- */

static int enqueue(void *opaque, uint32_t index, const void *const *args, unsigned char *scratch,
                   cudaStream_t stream)
{
    const float one = 1, zero = 0;
    const struct handle *handle = (const struct handle *)opaque;
    const struct convolution *convolution = &handle->convolutions[index];
    const struct functions *dnn = &handle->dnn;
    void *dst = (void *)args[3], *workspace = ul_cuda_workspace(scratch);
    cudnnConvolutionFwdAlgo_t algorithm = (cudnnConvolutionFwdAlgo_t)convolution->choice.algorithm;
    if (dnn->SetStream(handle->cudnn, stream) != CUDNN_STATUS_SUCCESS)
        return false;
    if (!convolution->is_fused)
        return dnn->ConvolutionForward(handle->cudnn, &one, convolution->x, args[0], convolution->w,
                                       args[1], convolution->operation, algorithm, workspace,
                                       convolution->workspace_bytes, &zero, convolution->y,
                                       dst) == CUDNN_STATUS_SUCCESS;
    return dnn->ConvolutionBiasActivationForward(
               handle->cudnn, &one, convolution->x, args[0], convolution->w, args[1],
               convolution->operation, algorithm, workspace, convolution->workspace_bytes,
               convolution->adds ? &one : &zero, convolution->y, convolution->adds ? args[4] : dst,
               convolution->bias, args[2], convolution->activation, convolution->y,
               dst) == CUDNN_STATUS_SUCCESS;
}

/* ---- choosing ---- */

/* f32 keeps all its bits unless the call allows TF32. */
static cudnnMathType_t first_math(const struct ul_call *call)
{
    return call->src.type != UL_CALL_F32 ? CUDNN_TENSOR_OP_MATH
           : call->tf32                  ? CUDNN_DEFAULT_MATH
                                         : CUDNN_FMA_MATH;
}

/* Deterministic algorithms of the heuristic. A bias without ReLU is served by one of them alone. */
static int find(void *opaque, uint32_t index, const struct ul_call *call,
                struct ul_cuda_choice *choices)
{
    enum { MAX = UL_CUDA_CANDIDATES };
    const struct handle *handle = (const struct handle *)opaque;
    const struct convolution *convolution = &handle->convolutions[index];
    cudnnConvolutionFwdAlgoPerf_t offers[MAX];
    int count = 0, kept = 0;
    cudnnMathType_t math = first_math(call);
    if (handle->dnn.SetConvolutionMathType(convolution->operation, math) != CUDNN_STATUS_SUCCESS ||
        handle->dnn.GetConvolutionForwardAlgorithm_v7(handle->cudnn, convolution->x, convolution->w,
                                                      convolution->operation, convolution->y, MAX,
                                                      &count, offers) != CUDNN_STATUS_SUCCESS)
        return 0;
    for (int i = 0; i < count; i++) {
        bool served = !convolution->is_fused || convolution->has_relu ||
                      offers[i].algo == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
        struct choice choice = {(int32_t)offers[i].algo,
                                (int32_t)(math == CUDNN_FMA_MATH ? math : offers[i].mathType)};
        if (offers[i].status != CUDNN_STATUS_SUCCESS ||
            offers[i].determinism != CUDNN_DETERMINISTIC || !served)
            continue;
        choices[kept].size_bytes = sizeof choice;
        memcpy(choices[kept++].bytes, &choice, sizeof choice);
    }
    return kept;
}

static int take(void *opaque, uint32_t index, const struct ul_call *call,
                const struct ul_cuda_choice *choice)
{
    const struct handle *handle = (const struct handle *)opaque;
    struct convolution *convolution = &handle->convolutions[index];
    struct choice taken;
    size_t bytes = 0;
    if (choice->size_bytes != sizeof taken)
        return 0;
    memcpy(&taken, choice->bytes, sizeof taken);
    if (taken.math == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION ||
        (first_math(call) == CUDNN_FMA_MATH && taken.math != CUDNN_FMA_MATH))
        return 0; /* a file of choices may not take bits that the plan keeps */
    if (handle->dnn.SetConvolutionMathType(convolution->operation, (cudnnMathType_t)taken.math) !=
            CUDNN_STATUS_SUCCESS ||
        handle->dnn.GetConvolutionForwardWorkspaceSize(
            handle->cudnn, convolution->x, convolution->w, convolution->operation, convolution->y,
            (cudnnConvolutionFwdAlgo_t)taken.algorithm, &bytes) != CUDNN_STATUS_SUCCESS ||
        bytes > ul_call_workspace_bytes(call))
        return 0;
    convolution->choice = taken;
    convolution->workspace_bytes = bytes;
    return 1;
}

static void tell(const void *opaque, uint32_t index, char name[UL_CUDA_NAME_BYTES])
{
    const struct handle *handle = (const struct handle *)opaque;
    (void)snprintf(name, UL_CUDA_NAME_BYTES, "cudnn algorithm %d",
                   (int)handle->convolutions[index].choice.algorithm);
}

/* ---- the library ---- */

static uint64_t version_of(const void *opaque)
{
    return ((const struct handle *)opaque)->dnn.GetVersion();
}

/* Of NHWC tensors: what its engines read and write at once. */
enum { OPERAND_ALIGN = 16 };

static const struct ul_cuda_library library = {
    "cudnn",    "cuDNN", UL_CALL_CONVOLUTION, OPERAND_ALIGN, 0,
    version_of, reserve, describe_call,       find,          take,
    enqueue,    tell};

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
    (void)snprintf(text, UL_DEVICE_TEXT_BYTES, "%s; kernels of the program run its calls",
                   handle->is_found ? NOT_STARTED : NOT_FOUND);
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
    return ul_cuda_refuse(failure, UL_LIBRARY_MISSING, "cuDNN: the program was built without it");
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
    (void)snprintf(text, UL_DEVICE_TEXT_BYTES, "built without cuDNN");
}

static int note(const void *, char text[UL_DEVICE_TEXT_BYTES])
{
    (void)snprintf(text, UL_DEVICE_TEXT_BYTES,
                   "the program was built without cuDNN; kernels of the program run its calls");
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
