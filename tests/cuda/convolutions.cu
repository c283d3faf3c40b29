/*
 * What runtime/cuda/ul_cudnn.cu says to cuDNN, said to an installed cuDNN: descriptors need no device.
 * The library must take them, and see the result that the compiler planned.
 * exit: 0 all was taken, 1 something was not, 77 the library is not there
 */
#include "ul_cudnn.cu"

#if UL_HAS_CUDNN

namespace
{

struct ul_call_tensor image(enum ul_call_type type, bool flat, int64_t count, int64_t channels,
                            int64_t rows, int64_t columns)
{
    struct ul_call_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.rank = flat ? 3 : 4;
    tensor.type = type;
    tensor.dims[0] = count;
    tensor.dims[1] = channels;
    tensor.dims[2] = rows;
    tensor.dims[tensor.rank - 1] = columns;
    return tensor;
}

int64_t out_size(int64_t in, int64_t pad, int64_t kernel, int64_t step, int64_t dilation)
{
    return (in + 2 * pad - (kernel - 1) * dilation - 1) / step + 1;
}

/* Number `n` of: types, one axis or two, steps, dilations, groups, ReLU. */
struct ul_call make_call(uint32_t n)
{
    enum { ROWS = 14, COLUMNS = 15, HIGH = 3, WIDE = 5, IN = 16, OUT = 32 };
    enum ul_call_type type = (enum ul_call_type)(n % 3);
    bool flat = n / 3 % 2 != 0;
    uint32_t space = flat ? 1 : 2, groups = n / 24 % 2 != 0 ? 4 : 1;
    int64_t step = 1 + n / 6 % 2, dilation = 1 + n / 12 % 2;
    struct ul_call call;
    memset(&call, 0, sizeof call);
    call.kind = UL_CALL_CONVOLUTION;
    call.group_count = groups;
    for (uint32_t d = 0; d < space; d++) {
        call.steps[d] = step;
        call.dilations[d] = dilation;
        call.pads[d] = call.pads[space + d] = flat || d == 1 ? 2 : 1;
    }
    call.src = image(type, flat, 2, IN, ROWS, COLUMNS);
    call.dst = image(type, flat, 2, OUT, out_size(ROWS, 1, HIGH, step, dilation),
                     out_size(COLUMNS, 2, WIDE, step, dilation));
    call.weights = image(type, flat, OUT / groups, IN / groups, HIGH, WIDE);
    if (groups > 1) {
        memmove(call.weights.dims + 1, call.weights.dims, 5 * sizeof *call.weights.dims);
        call.weights.dims[0] = groups;
        call.weights.rank++;
    }
    call.bias.rank = 1;
    call.bias.type = type;
    call.bias.dims[0] = OUT;
    call.post_count = n / 48 % 2;
    call.posts[0].kind = UL_POST_RELU;
    return call;
}

typedef decltype(&cudnnGetConvolution2dForwardOutputDim) size_function;

bool is_taken(const struct functions *dnn, size_function size, const struct ul_call *call)
{
    static const cudnnMathType_t maths[] = {CUDNN_DEFAULT_MATH, CUDNN_TENSOR_OP_MATH,
                                            CUDNN_FMA_MATH};
    struct convolution convolution;
    int n = 0, c = 0, h = 0, w = 0;
    memset(&convolution, 0, sizeof convolution);
    bool good = describe_convolution(dnn, call, &convolution) &&
                size(convolution.operation, convolution.x, convolution.w, &n, &c, &h, &w) ==
                    CUDNN_STATUS_SUCCESS &&
                n == call->dst.dims[0] && c == call->dst.dims[1] && h == rows_of(&call->dst) &&
                w == call->dst.dims[call->dst.rank - 1];
    for (cudnnMathType_t math : maths)
        good = good &&
               dnn->SetConvolutionMathType(convolution.operation, math) == CUDNN_STATUS_SUCCESS;
    free_convolution(dnn, &convolution);
    return good;
}

} // namespace

int main()
{
    enum { CALLS = 96 };
    struct handle handle;
    int failed = 0;
    memset(&handle, 0, sizeof handle);
    if (!load(&handle)) {
        printf("skipped: there is no cuDNN with all functions\n");
        return handle.loaded == NULL ? 77 : 1;
    }
    size_function size =
        (size_function)ul_cuda_symbol(handle.loaded, "cudnnGetConvolution2dForwardOutputDim");
    for (uint32_t n = 0; n < CALLS; n++) {
        struct ul_call call = make_call(n);
        if (is_taken(&handle.dnn, size, &call))
            continue;
        printf("FAIL convolution %u: cuDNN does not take its descriptors\n", n);
        failed++;
    }
    printf("cuDNN %zu: %d convolutions, %d failed\n", handle.dnn.GetVersion(), CALLS, failed);
    return failed > 0;
}

#else

#include <stdio.h>

int main()
{
    printf("skipped: there is no cudnn.h\n");
    return 77;
}

#endif
