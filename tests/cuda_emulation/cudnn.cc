/*
 * cuDNN for tests/cuda_emulation: convolutions of dense tensors with channels innermost. What the
 * library refuses is refused, what is undefined ends the program, and the sums are formed by plain
 * loops when the stream gets there.
 *
 * The heuristic offers, the best first: one that is not deterministic, one with much workspace, one
 * with a little, one with none; a bias without ReLU is served by IMPLICIT_PRECOMP_GEMM alone, and
 * ReLU only where what is no number becomes 0. Operands at no multiple of 16 are refused. With
 * UL_EMULATE_NO_ALGORITHMS in the environment nothing is offered.
 */
#include "cudnn.h"
#include "library.h"
#include "product.h"

#include <stdlib.h>

struct ul_emulate_dnn {
    enum { ALIVE = 0x646E6E, HANDLE_BYTES = 8 << 20 };
    uint64_t alive;
    cudaStream_t stream;
};

struct ul_emulate_tensor {
    cudnnDataType_t type;
    int64_t n, c, h, w;
    int64_t strides[4];
};

struct ul_emulate_filter {
    cudnnDataType_t type;
    cudnnTensorFormat_t format;
    int64_t k, c, h, w;
};

struct ul_emulate_convolution {
    int64_t pads[2], steps[2], dilations[2];
    cudnnConvolutionMode_t mode;
    cudnnDataType_t compute;
    cudnnMathType_t math;
    int64_t groups;
};

struct ul_emulate_activation {
    cudnnActivationMode_t mode;
    cudnnNanPropagation_t nan;
};

namespace
{

enum { OPERAND_ALIGN = 16 };

struct job {
    struct ul_emulate_tensor x, y;
    struct ul_emulate_filter w;
    struct ul_emulate_convolution convolution;
    struct ul_emulate_activation activation;
    float alpha, residual_scale;
    const void *x_bytes, *w_bytes, *z_bytes, *bias_bytes;
    void *y_bytes, *workspace;
    size_t workspace_bytes;
};

enum element element_of(cudnnDataType_t type)
{
    return type == CUDNN_DATA_HALF       ? ELEMENT_F16
           : type == CUDNN_DATA_BFLOAT16 ? ELEMENT_BF16
                                         : ELEMENT_F32;
}

/* ---- what is served ---- */

bool is_packed(const struct ul_emulate_tensor *tensor)
{
    return tensor->strides[1] == 1 && tensor->strides[3] == tensor->c &&
           tensor->strides[2] == tensor->w * tensor->c &&
           tensor->strides[0] == tensor->h * tensor->w * tensor->c;
}

int64_t out_size(int64_t in, int64_t pad, int64_t kernel, int64_t step, int64_t dilation)
{
    int64_t span = in + 2 * pad - ((kernel - 1) * dilation + 1);
    return span < 0 ? 0 : span / step + 1;
}

cudnnStatus_t check_shapes(const struct ul_emulate_tensor *x, const struct ul_emulate_filter *w,
                           const struct ul_emulate_convolution *convolution,
                           const struct ul_emulate_tensor *y)
{
    const struct ul_emulate_convolution *c = convolution;
    if (x->c != w->c * c->groups || w->k % c->groups != 0 || y->c != w->k || y->n != x->n ||
        y->h != out_size(x->h, c->pads[0], w->h, c->steps[0], c->dilations[0]) ||
        y->w != out_size(x->w, c->pads[1], w->w, c->steps[1], c->dilations[1]))
        return CUDNN_STATUS_BAD_PARAM;
    bool layouts = is_packed(x) && is_packed(y) && w->format == CUDNN_TENSOR_NHWC;
    bool types = x->type == w->type && y->type == x->type && c->compute == CUDNN_DATA_FLOAT;
    return layouts && types && c->mode == CUDNN_CROSS_CORRELATION ? CUDNN_STATUS_SUCCESS
                                                                  : CUDNN_STATUS_NOT_SUPPORTED;
}

/* Bytes that an algorithm wants; false: it does not serve this. */
bool workspace_of(const struct ul_emulate_tensor *x, const struct ul_emulate_filter *w,
                  const struct ul_emulate_convolution *convolution,
                  const struct ul_emulate_tensor *y, cudnnConvolutionFwdAlgo_t algorithm,
                  size_t *size_bytes)
{
    bool plain = convolution->steps[0] == 1 && convolution->steps[1] == 1 &&
                 convolution->dilations[0] == 1 && convolution->dilations[1] == 1;
    switch (algorithm) {
    case CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM:
        *size_bytes = 0;
        return true;
    case CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM:
        *size_bytes = (size_t)(w->h * w->w * w->c) * sizeof(int64_t);
        return true;
    case CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED:
        *size_bytes =
            (size_t)((x->h * x->w * x->c + y->h * y->w * y->c) * x->n * 4 + w->k * w->c * 16) *
            sizeof(float);
        return plain && w->h == 3 && w->w == 3 && convolution->groups == 1;
    case CUDNN_CONVOLUTION_FWD_ALGO_FFT: /* stands for those that are not deterministic */
        *size_bytes = 0;
        return plain;
    case CUDNN_CONVOLUTION_FWD_ALGO_GEMM:
    case CUDNN_CONVOLUTION_FWD_ALGO_COUNT:
        break;
    }
    return false;
}

/* ---- running ---- */

struct term {
    int64_t r, s, c;
};

float load(const struct job &job, const void *base, int64_t at)
{
    float x = element_get(base, element_of(job.x.type), at);
    bool tf32 = job.x.type == CUDNN_DATA_FLOAT && job.convolution.math != CUDNN_FMA_MATH;
    return tf32 ? element_tf32(x) : x;
}

void finish(const struct job &job, int64_t at, int64_t channel, float sum)
{
    enum element type = element_of(job.y.type);
    float x = job.alpha * sum;
    if (job.residual_scale != 0)
        x += job.residual_scale * element_get(job.z_bytes, type, at);
    if (job.bias_bytes != NULL)
        x += element_get(job.bias_bytes, type, channel);
    if (job.activation.mode == CUDNN_ACTIVATION_RELU && !(x > 0))
        x = x != x && job.activation.nan == CUDNN_PROPAGATE_NAN ? x : 0;
    element_put(job.y_bytes, type, at, x);
}

void run_group(const struct job &job, int64_t group, const std::vector<struct term> &terms)
{
    const struct ul_emulate_convolution &convolution = job.convolution;
    int64_t outputs = job.w.k / convolution.groups, depth = (int64_t)terms.size();
    auto weight = [&](int64_t k, int64_t l) {
        return load(job, job.w_bytes, (group * outputs + k) * depth + l);
    };
    auto pixel = [&](int64_t j, float *out, int64_t stride) {
        int64_t n = j / (job.y.h * job.y.w), p = j / job.y.w % job.y.h, q = j % job.y.w;
        for (int64_t l = 0; l < depth; l++) {
            const struct term &term = terms[(size_t)l];
            int64_t h =
                p * convolution.steps[0] - convolution.pads[0] + term.r * convolution.dilations[0];
            int64_t w =
                q * convolution.steps[1] - convolution.pads[1] + term.s * convolution.dilations[1];
            bool inside = h >= 0 && h < job.x.h && w >= 0 && w < job.x.w;
            int64_t at = ((n * job.x.h + h) * job.x.w + w) * job.x.c + group * job.w.c + term.c;
            out[l * stride] = inside ? load(job, job.x_bytes, at) : 0;
        }
    };
    product(outputs, job.y.n * job.y.h * job.y.w, depth, weight, pixel,
            [&](int64_t k, int64_t j, float sum) {
                int64_t channel = group * outputs + k;
                finish(job, j * job.y.c + channel, channel, sum);
            });
}

void run_job(const void *arguments)
{
    const struct job &job = *(const struct job *)arguments;
    std::vector<struct term> terms;
    for (int64_t r = 0; r < job.w.h; r++) {
        for (int64_t s = 0; s < job.w.w; s++) {
            for (int64_t c = 0; c < job.w.c; c++)
                terms.push_back({r, s, c});
        }
    }
    if (job.workspace_bytes > 0)
        memset(job.workspace, 0xA5, job.workspace_bytes);
    for (int64_t group = 0; group < job.convolution.groups; group++)
        run_group(job, group, terms);
}

/* ---- checks ---- */

struct extent extent_of(const char *name, const struct ul_emulate_tensor &tensor, const void *base)
{
    return {name, base,
            (size_t)(tensor.n * tensor.c * tensor.h * tensor.w) *
                element_bytes(element_of(tensor.type))};
}

/* False: the engines of tensors with channels innermost do not take operands that lie there. */
bool check_memory(const struct job &job)
{
    size_t element = element_bytes(element_of(job.y.type));
    struct extent w = {"w", job.w_bytes, (size_t)(job.w.k * job.w.c * job.w.h * job.w.w) * element};
    struct extent bias = {"bias", job.bias_bytes,
                          job.bias_bytes != NULL ? (size_t)job.y.c * element : 0};
    struct extent z = extent_of("z", job.y, job.z_bytes);
    if (job.residual_scale == 0)
        z.size_bytes = 0;
    for (const void *operand :
         {job.x_bytes, job.w_bytes, job.z_bytes, job.bias_bytes, (const void *)job.y_bytes}) {
        if ((uintptr_t)operand % OPERAND_ALIGN != 0)
            return false;
    }
    need_memory("cuDNN", {extent_of("x", job.x, job.x_bytes), w, bias}, z,
                extent_of("y", job.y, job.y_bytes),
                {"the workspace", job.workspace, job.workspace_bytes});
    return true;
}

cudnnStatus_t enqueue(cudnnHandle_t handle, struct job *job, cudnnConvolutionFwdAlgo_t algorithm,
                      void *workspace, size_t workspace_bytes)
{
    cudnnStatus_t served = check_shapes(&job->x, &job->w, &job->convolution, &job->y);
    size_t needed = 0;
    if (served != CUDNN_STATUS_SUCCESS)
        return served;
    if (!workspace_of(&job->x, &job->w, &job->convolution, &job->y, algorithm, &needed))
        return CUDNN_STATUS_NOT_SUPPORTED;
    if (job->x_bytes == NULL || job->w_bytes == NULL || job->y_bytes == NULL ||
        needed > workspace_bytes || (needed > 0 && workspace == NULL))
        return CUDNN_STATUS_BAD_PARAM;
    job->workspace = workspace;
    job->workspace_bytes = needed;
    if (!check_memory(*job))
        return CUDNN_STATUS_NOT_SUPPORTED;
    return ul_emulate_enqueue(handle->stream, "cudnnConvolution", run_job, job, sizeof *job) ==
                   cudaSuccess
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_EXECUTION_FAILED;
}

template <class T> cudnnStatus_t make(T **descriptor)
{
    *descriptor = new T;
    memset(*descriptor, 0, sizeof **descriptor);
    return CUDNN_STATUS_SUCCESS;
}

template <class T> cudnnStatus_t destroy(T *descriptor)
{
    delete descriptor;
    return CUDNN_STATUS_SUCCESS;
}

} // namespace

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    handle_open(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    return handle_close(handle) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_INITIALIZED;
}

size_t cudnnGetVersion(void)
{
    return CUDNN_VERSION;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    if (!handle_is_alive(handle))
        return CUDNN_STATUS_NOT_INITIALIZED;
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- descriptors ---- */

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *tensor)
{
    return make(tensor);
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor)
{
    return destroy(tensor);
}

cudnnStatus_t cudnnSetTensor4dDescriptorEx(cudnnTensorDescriptor_t tensor, cudnnDataType_t type,
                                           int n, int c, int h, int w, int n_stride, int c_stride,
                                           int h_stride, int w_stride)
{
    if (n < 1 || c < 1 || h < 1 || w < 1)
        return CUDNN_STATUS_BAD_PARAM;
    *tensor = {type, n, c, h, w, {n_stride, c_stride, h_stride, w_stride}};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *filter)
{
    return make(filter);
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter)
{
    return destroy(filter);
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w)
{
    if (k < 1 || c < 1 || h < 1 || w < 1)
        return CUDNN_STATUS_BAD_PARAM;
    *filter = {type, format, k, c, h, w};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *convolution)
{
    return make(convolution);
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution)
{
    return destroy(convolution);
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h,
                                              int pad_w, int u, int v, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute)
{
    if (pad_h < 0 || pad_w < 0 || u < 1 || v < 1 || dilation_h < 1 || dilation_w < 1)
        return CUDNN_STATUS_BAD_PARAM;
    *convolution = {{pad_h, pad_w},     {u, v}, {dilation_h, dilation_w}, mode, compute,
                    CUDNN_DEFAULT_MATH, 1};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int count)
{
    convolution->groups = count;
    return count > 0 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution,
                                          cudnnMathType_t math)
{
    convolution->math = math;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t *activation)
{
    return make(activation);
}

cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t activation)
{
    return destroy(activation);
}

cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t activation,
                                           cudnnActivationMode_t mode, cudnnNanPropagation_t nan,
                                           double coefficient)
{
    (void)coefficient;
    *activation = {mode, nan};
    return CUDNN_STATUS_SUCCESS;
}

/* ---- algorithms ---- */

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
    cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t y,
    cudnnConvolutionFwdAlgo_t algorithm, size_t *size_bytes)
{
    if (!handle_is_alive(handle))
        return CUDNN_STATUS_NOT_INITIALIZED;
    cudnnStatus_t served = check_shapes(x, w, convolution, y);
    if (served != CUDNN_STATUS_SUCCESS)
        return served;
    return workspace_of(x, w, convolution, y, algorithm, size_bytes) ? CUDNN_STATUS_SUCCESS
                                                                     : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle,
                                                     cudnnTensorDescriptor_t x,
                                                     cudnnFilterDescriptor_t w,
                                                     cudnnConvolutionDescriptor_t convolution,
                                                     cudnnTensorDescriptor_t y, int max, int *count,
                                                     cudnnConvolutionFwdAlgoPerf_t *results)
{
    static const cudnnConvolutionFwdAlgo_t order[] = {
        CUDNN_CONVOLUTION_FWD_ALGO_FFT, CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED,
        CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
        CUDNN_CONVOLUTION_FWD_ALGO_GEMM};
    if (!handle_is_alive(handle))
        return CUDNN_STATUS_NOT_INITIALIZED;
    cudnnStatus_t served = getenv("UL_EMULATE_NO_ALGORITHMS") != NULL
                               ? CUDNN_STATUS_NOT_SUPPORTED
                               : check_shapes(x, w, convolution, y);
    *count = 0;
    for (cudnnConvolutionFwdAlgo_t algorithm : order) {
        size_t bytes = 0;
        if (*count == max)
            break;
        bool good =
            served == CUDNN_STATUS_SUCCESS && workspace_of(x, w, convolution, y, algorithm, &bytes);
        results[(*count)++] = {algorithm,
                               good ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED,
                               good ? 1.0f : -1.0f,
                               bytes,
                               algorithm == CUDNN_CONVOLUTION_FWD_ALGO_FFT ? CUDNN_NON_DETERMINISTIC
                                                                           : CUDNN_DETERMINISTIC,
                               convolution->math,
                               {0, 0, 0}};
    }
    return CUDNN_STATUS_SUCCESS;
}

/* ---- convolutions ---- */

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha,
                                      cudnnTensorDescriptor_t x_tensor, const void *x,
                                      cudnnFilterDescriptor_t w_filter, const void *w,
                                      cudnnConvolutionDescriptor_t convolution,
                                      cudnnConvolutionFwdAlgo_t algorithm, void *workspace,
                                      size_t workspace_bytes, const void *beta,
                                      cudnnTensorDescriptor_t y_tensor, void *y)
{
    struct job job;
    if (!handle_is_alive(handle))
        return CUDNN_STATUS_NOT_INITIALIZED;
    memset(&job, 0, sizeof job);
    job.x = *x_tensor;
    job.y = *y_tensor;
    job.w = *w_filter;
    job.convolution = *convolution;
    job.activation = {CUDNN_ACTIVATION_IDENTITY, CUDNN_PROPAGATE_NAN};
    memcpy(&job.alpha, alpha, sizeof job.alpha);
    memcpy(&job.residual_scale, beta, sizeof job.residual_scale);
    job.x_bytes = x;
    job.w_bytes = w;
    job.z_bytes = y;
    job.y_bytes = y;
    return enqueue(handle, &job, algorithm, workspace, workspace_bytes);
}

cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void *alpha1, cudnnTensorDescriptor_t x_tensor, const void *x,
    cudnnFilterDescriptor_t w_filter, const void *w, cudnnConvolutionDescriptor_t convolution,
    cudnnConvolutionFwdAlgo_t algorithm, void *workspace, size_t workspace_bytes,
    const void *alpha2, cudnnTensorDescriptor_t z_tensor, const void *z,
    cudnnTensorDescriptor_t bias_tensor, const void *bias, cudnnActivationDescriptor_t activation,
    cudnnTensorDescriptor_t y_tensor, void *y)
{
    struct job job;
    if (!handle_is_alive(handle))
        return CUDNN_STATUS_NOT_INITIALIZED;
    if (bias == NULL || z == NULL || bias_tensor->c != y_tensor->c || bias_tensor->n != 1 ||
        bias_tensor->h != 1 || bias_tensor->w != 1 || bias_tensor->type != y_tensor->type ||
        z_tensor->n != y_tensor->n || z_tensor->c != y_tensor->c || z_tensor->h != y_tensor->h ||
        z_tensor->w != y_tensor->w || z_tensor->type != y_tensor->type || !is_packed(z_tensor))
        return CUDNN_STATUS_BAD_PARAM;
    bool identity = activation->mode == CUDNN_ACTIVATION_IDENTITY;
    if ((!identity && activation->mode != CUDNN_ACTIVATION_RELU) ||
        (identity && algorithm != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) ||
        activation->nan != CUDNN_NOT_PROPAGATE_NAN || bias_tensor->strides[1] != 1)
        return CUDNN_STATUS_NOT_SUPPORTED;
    memset(&job, 0, sizeof job);
    job.x = *x_tensor;
    job.y = *y_tensor;
    job.w = *w_filter;
    job.convolution = *convolution;
    job.activation = *activation;
    memcpy(&job.alpha, alpha1, sizeof job.alpha);
    memcpy(&job.residual_scale, alpha2, sizeof job.residual_scale);
    job.x_bytes = x;
    job.w_bytes = w;
    job.z_bytes = z;
    job.bias_bytes = bias;
    job.y_bytes = y;
    return enqueue(handle, &job, algorithm, workspace, workspace_bytes);
}
}
