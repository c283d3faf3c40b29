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

static enum ul_result refuse(struct ul_failure *failure, enum ul_result result, const char *detail)
{
    memset(failure, 0, sizeof *failure);
    failure->detail = detail;
    return failure->result = result;
}

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
    bool is_ready, is_fused, has_relu, adds;
    char name[48];
};

struct handle {
    void *library; /* NULL: cuDNN is not there */
    struct functions dnn;
    cudnnHandle_t cudnn;
    uint32_t call_count;
    struct convolution *convolutions; /* by call */
};

/* ---- open, close ---- */

static bool load(struct handle *handle)
{
    char name[64];
    (void)snprintf(name, sizeof name, "libcudnn.so.%d", CUDNN_MAJOR);
    handle->library = ul_cuda_load(name);
    if (handle->library == NULL)
        return false;
    bool whole = true;
#define UL_CUDNN_FIND(function)                                                                    \
    handle->dnn.function =                                                                         \
        (decltype(&cudnn##function))ul_cuda_symbol(handle->library, "cudnn" #function);            \
    whole = whole && handle->dnn.function != NULL;
    UL_CUDNN_FUNCTIONS(UL_CUDNN_FIND)
#undef UL_CUDNN_FIND
    return whole && handle->dnn.Create(&handle->cudnn) == CUDNN_STATUS_SUCCESS;
}

static void unload(struct handle *handle)
{
    if (handle->cudnn != NULL)
        (void)handle->dnn.Destroy(handle->cudnn);
    if (handle->library != NULL)
        ul_cuda_unload(handle->library);
    handle->cudnn = NULL;
    handle->library = NULL;
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
    for (uint32_t i = 0; i < handle->call_count; i++)
        free_convolution(&handle->dnn, &handle->convolutions[i]);
    unload(handle);
    free(handle->convolutions);
    free(handle);
}

static enum ul_result open_handle(void **opaque, struct ul_failure *failure)
{
    struct handle *handle = (struct handle *)calloc(1, sizeof *handle);
    if (handle == NULL)
        return refuse(failure, UL_LIBRARY_FAILED, "cuDNN: the host is out of memory");
    if (!load(handle))
        unload(handle);
    *opaque = handle;
    return UL_OK;
}

static enum ul_result open_needed(void **opaque, struct ul_failure *failure)
{
    enum ul_result result = open_handle(opaque, failure);
    if (result != UL_OK || ((struct handle *)*opaque)->library != NULL)
        return result;
    close_handle(*opaque);
    return refuse(failure, UL_LIBRARY_MISSING,
                  "cuDNN was not found (libcudnn.so." UL_TEXT_OF(
                      CUDNN_MAJOR) "); put its folder "
                                   "into LD_LIBRARY_PATH, or compile with --with-cudnn auto");
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

static bool describe_call(const struct functions *dnn, const struct ul_call *call,
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
                                        channels, 1, channels, channels) == CUDNN_STATUS_SUCCESS &&
           dnn->CreateActivationDescriptor(&convolution->activation) == CUDNN_STATUS_SUCCESS &&
           dnn->SetActivationDescriptor(convolution->activation,
                                        convolution->has_relu ? CUDNN_ACTIVATION_RELU
                                                              : CUDNN_ACTIVATION_IDENTITY,
                                        CUDNN_PROPAGATE_NAN, 0) == CUDNN_STATUS_SUCCESS;
}

/* ---- running ---- */

static bool enqueue(const struct handle *handle, const struct convolution *convolution,
                    const void *const *args, unsigned char *scratch, cudaStream_t stream)
{
    const float one = 1, zero = 0;
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

int ul_cudnn_run(const struct ul_cuda_step *at, uint32_t library, uint32_t call,
                 const void *const *args, unsigned char *scratch)
{
    const struct handle *handle = (const struct handle *)at->run->libraries[library];
    if (call >= handle->call_count || !handle->convolutions[call].is_ready)
        return 0;
    if (ul_cuda_may_launch(at->run) &&
        !enqueue(handle, &handle->convolutions[call], args, scratch, at->run->stream))
        ul_cuda_note(at->run, cudaErrorUnknown);
    return 1;
}

/* ---- choosing ---- */

struct timing {
    const struct handle *handle;
    const struct convolution *convolution;
    const struct ul_cuda_trial *trial;
    cudaStream_t stream;
};

static int run_trial(void *opaque)
{
    const struct timing *timing = (const struct timing *)opaque;
    return enqueue(timing->handle, timing->convolution, timing->trial->args, timing->trial->scratch,
                   timing->stream);
}

/* f32 keeps all its bits unless the call allows TF32. */
static cudnnMathType_t first_math(const struct ul_call *call)
{
    return call->src.type != UL_CALL_F32 ? CUDNN_TENSOR_OP_MATH
           : call->tf32                  ? CUDNN_DEFAULT_MATH
                                         : CUDNN_FMA_MATH;
}

/* Whether the algorithm does with the plan, and runs: some have no fused form. Then it is the
 * convolution's. */
static bool take(struct timing *timing, struct convolution *convolution,
                 const struct choice *choice, uint64_t most_bytes)
{
    const struct functions *dnn = &timing->handle->dnn;
    cudnnConvolutionFwdAlgo_t algorithm = (cudnnConvolutionFwdAlgo_t)choice->algorithm;
    size_t bytes = 0;
    if (dnn->SetConvolutionMathType(convolution->operation, (cudnnMathType_t)choice->math) !=
            CUDNN_STATUS_SUCCESS ||
        dnn->GetConvolutionForwardWorkspaceSize(
            timing->handle->cudnn, convolution->x, convolution->w, convolution->operation,
            convolution->y, algorithm, &bytes) != CUDNN_STATUS_SUCCESS ||
        bytes > most_bytes)
        return false;
    convolution->choice = *choice;
    convolution->workspace_bytes = bytes;
    return run_trial(timing) && cudaStreamSynchronize(timing->stream) == cudaSuccess;
}

/* Deterministic algorithms of the heuristic, the best first; their number. A bias without ReLU is
 * served by one of them alone. */
static int find_candidates(const struct handle *handle, const struct ul_call *call,
                           const struct convolution *convolution, struct choice *found)
{
    cudnnConvolutionFwdAlgoPerf_t offers[2 * CUDNN_CONVOLUTION_FWD_ALGO_COUNT];
    int count = 0, kept = 0;
    cudnnMathType_t math = first_math(call);
    if (handle->dnn.SetConvolutionMathType(convolution->operation, math) != CUDNN_STATUS_SUCCESS ||
        handle->dnn.GetConvolutionForwardAlgorithm_v7(
            handle->cudnn, convolution->x, convolution->w, convolution->operation, convolution->y,
            2 * CUDNN_CONVOLUTION_FWD_ALGO_COUNT, &count, offers) != CUDNN_STATUS_SUCCESS)
        return 0;
    for (int i = 0; i < count; i++) {
        bool served = !convolution->is_fused || convolution->has_relu ||
                      offers[i].algo == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
        if (offers[i].status != CUDNN_STATUS_SUCCESS ||
            offers[i].memory > ul_call_workspace_bytes(call) ||
            offers[i].determinism != CUDNN_DETERMINISTIC || !served)
            continue;
        found[kept].algorithm = (int32_t)offers[i].algo;
        found[kept++].math = (int32_t)(math == CUDNN_FMA_MATH ? math : offers[i].mathType);
    }
    return kept;
}

/* The candidate that takes the least time here, or, where nothing is measured, the first that does.
 */
static bool choose(struct timing *timing, struct convolution *convolution,
                   const struct ul_call *call, bool tunes)
{
    struct choice found[2 * CUDNN_CONVOLUTION_FWD_ALGO_COUNT];
    int count = find_candidates(timing->handle, call, convolution, found);
    double least = -1;
    int best = -1;
    for (int i = 0; i < count; i++) {
        if (!take(timing, convolution, &found[i], ul_call_workspace_bytes(call)))
            continue;
        if (!tunes)
            return true;
        double seconds = ul_cuda_measure(timing->stream, run_trial, timing);
        if (seconds >= 0 && (least < 0 || seconds < least)) {
            least = seconds;
            best = i;
        }
    }
    return best >= 0 && take(timing, convolution, &found[best], ul_call_workspace_bytes(call));
}

static void prepare_convolution(struct handle *handle, const struct ul_model *model, uint32_t index,
                                bool tunes, struct ul_cuda_choice *text, unsigned char *arena,
                                cudaStream_t stream)
{
    const struct ul_call *call = &model->device->calls[index];
    struct convolution *convolution = &handle->convolutions[index];
    struct ul_cuda_trial trial;
    struct choice choice;
    struct timing timing = {handle, convolution, &trial, stream};
    /* Untried, a call could fail in a run; the kernel beside it cannot. */
    if (!ul_cuda_trial_place(&trial, call, arena, model->arena_bytes) ||
        !describe_call(&handle->dnn, call, convolution))
        return;
    bool named = !tunes && text->text[0] != '\0' &&
                 ul_cuda_get_hex(text->text, &choice, sizeof choice) &&
                 take(&timing, convolution, &choice, ul_call_workspace_bytes(call));
    convolution->is_ready = named || choose(&timing, convolution, call, tunes);
    (void)cudaGetLastError(); /* of trials that failed */
    if (!convolution->is_ready)
        return;
    ul_cuda_put_hex(text->text, &convolution->choice, sizeof convolution->choice);
    (void)snprintf(convolution->name, sizeof convolution->name, "cudnn algorithm %d",
                   (int)convolution->choice.algorithm);
}

static enum ul_result prepare(void *opaque, const struct ul_model *model,
                              const struct ul_device_request *request, unsigned char *arena,
                              void *stream, struct ul_failure *failure)
{
    struct handle *handle = (struct handle *)opaque;
    const struct ul_device *device = model->device;
    const char *reason = NULL;
    bool tunes = request->choices != NULL && request->tune != 0;
    if (handle->library == NULL)
        return UL_OK;
    uint64_t version = handle->dnn.GetVersion();
    struct ul_cuda_choice *choices =
        (struct ul_cuda_choice *)calloc(device->call_count, sizeof *choices);
    handle->convolutions =
        (struct convolution *)calloc(device->call_count, sizeof *handle->convolutions);
    enum ul_result result = UL_OK;
    if (choices == NULL || handle->convolutions == NULL)
        result = refuse(failure, UL_LIBRARY_FAILED, "cuDNN: the host is out of memory");
    else
        handle->call_count = device->call_count;
    if (result == UL_OK && request->choices != NULL && !tunes &&
        !ul_cuda_read_choices(request->choices, model, "cudnn", version, choices, &reason))
        result = refuse(failure, UL_CHOICES_INVALID, reason);
    for (uint32_t i = 0; result == UL_OK && i < device->call_count; i++) {
        if (device->calls[i].kind == UL_CALL_CONVOLUTION)
            prepare_convolution(handle, model, i, tunes, &choices[i], arena, (cudaStream_t)stream);
    }
    if (result == UL_OK && tunes &&
        !ul_cuda_write_choices(request->choices, model, "cudnn", version, choices, &reason))
        result = refuse(failure, UL_CHOICES_UNWRITTEN, reason);
    free(choices);
    return result;
}

/* ---- the library ---- */

static void describe(const void *opaque, char text[UL_DEVICE_TEXT_BYTES])
{
    const struct handle *handle = (const struct handle *)opaque;
    if (handle != NULL && handle->library == NULL) {
        (void)snprintf(text, UL_DEVICE_TEXT_BYTES, "no cuDNN: kernels of the program run instead");
        return;
    }
    size_t version = handle != NULL ? handle->dnn.GetVersion() : CUDNN_VERSION;
    (void)snprintf(text, UL_DEVICE_TEXT_BYTES, "cuDNN %d.%d.%d", (int)(version / 10000),
                   (int)(version / 100 % 100), (int)(version % 100));
}

static const char *implementation(const void *opaque, uint32_t call)
{
    const struct handle *handle = (const struct handle *)opaque;
    bool ready = call < handle->call_count && handle->convolutions[call].is_ready;
    return ready ? handle->convolutions[call].name : NULL;
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
    return refuse(failure, UL_LIBRARY_MISSING, "cuDNN: the program was built without it");
}

static enum ul_result prepare(void *, const struct ul_model *, const struct ul_device_request *,
                              unsigned char *, void *, struct ul_failure *)
{
    return UL_OK;
}

static void close_handle(void *)
{
}

static void describe(const void *, char text[UL_DEVICE_TEXT_BYTES])
{
    (void)snprintf(text, UL_DEVICE_TEXT_BYTES, "built without cuDNN");
}

static const char *implementation(const void *, uint32_t)
{
    return NULL;
}

int ul_cudnn_run(const struct ul_cuda_step *, uint32_t, uint32_t, const void *const *,
                 unsigned char *)
{
    return 0;
}

#endif

const struct ul_device_library ul_cudnn = {"cuDNN",      open_needed, prepare,
                                           close_handle, describe,    implementation};
const struct ul_device_library ul_cudnn_if_there = {"cuDNN",      open_handle, prepare,
                                                    close_handle, describe,    implementation};
