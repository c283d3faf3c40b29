/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What runtime/cuda/ul_cublas.cu says to cuBLASLt, said to the Toolkit's own cuBLASLt: descriptors
 * need no device, and the library refuses attributes that it does not know, of another size or of
 * values that it does not take. The runtime's functions are those of the file itself.
 * exit: 0 all was taken, 1 something was not, 77 the library is not there
 */
#include "ul_cublas.cu"

namespace
{

/* A matrix of a batch, its rows or its columns one after the other. */
struct ul_call_tensor matrix(enum ul_call_type type, int64_t batch, int64_t rows, int64_t columns,
                             bool turned)
{
    struct ul_call_tensor tensor;
    uint32_t r = batch > 0 ? 1 : 0;
    memset(&tensor, 0, sizeof tensor);
    tensor.rank = r + 2;
    tensor.type = type;
    tensor.dims[0] = batch;
    tensor.strides[0] = rows * columns;
    tensor.dims[r] = rows;
    tensor.dims[r + 1] = columns;
    tensor.strides[r] = turned ? 1 : columns;
    tensor.strides[r + 1] = turned ? rows : 1;
    return tensor;
}

/* Number `n` of all that the compiler plans: types, batches, operands' sides, what follows. */
struct ul_call make_call(uint32_t n)
{
    static const enum ul_call_type types[][2] = {{UL_CALL_F32, UL_CALL_F32},
                                                 {UL_CALL_F16, UL_CALL_F16},
                                                 {UL_CALL_F16, UL_CALL_F32},
                                                 {UL_CALL_BF16, UL_CALL_BF16},
                                                 {UL_CALL_BF16, UL_CALL_F32}};
    static const int64_t batches[][3] = {{0, 0, 0}, {5, 5, 5}, {1, 5, 5}, {5, 1, 5}};
    static const enum ul_post_kind posts[] = {UL_POST_LINEAR, UL_POST_SUM, UL_POST_RELU,
                                              UL_POST_GELU_TANH};
    const enum ul_call_type *type = types[n % 5];
    const int64_t *batch = batches[n / 5 % 4];
    struct ul_call call;
    memset(&call, 0, sizeof call);
    call.kind = UL_CALL_MATMUL;
    call.src = matrix(type[0], batch[0], 96, 64, n / 20 % 2 != 0);
    call.weights = matrix(type[0], batch[1], 64, 48, n / 40 % 2 != 0);
    call.dst = matrix(type[1], batch[2], 96, 48, false);
    if (n / 80 % 2 != 0)
        call.bias = matrix(type[1], batch[2] > 0 ? 1 : 0, 1, 48, false);
    call.post_count = 1;
    call.posts[0].kind = posts[n / 160 % 4];
    call.posts[0].alpha = call.posts[0].kind == UL_POST_LINEAR ? 0.5f : 0;
    call.tf32 = type[0] == UL_CALL_F32 && n / 640 != 0;
    call.align_bytes = n / 640 != 0 ? 64 : 16;
    call.scratch_bytes = 1 << 20;
    return call;
}

/* The gradient of a weight with sums of a factor, number `n` of FACTOR_SUMS: types, operands'
 * sides, whose sums. */
enum { FACTOR_SUMS = 24 };
struct ul_call make_factor_sums(uint32_t n)
{
    static const enum ul_call_type types[] = {UL_CALL_F32, UL_CALL_F16, UL_CALL_BF16};
    struct ul_call call;
    memset(&call, 0, sizeof call);
    call.kind = UL_CALL_MATMUL;
    call.src = matrix(types[n % 3], 0, 96, 64, n / 3 % 2 != 0);
    call.weights = matrix(types[n % 3], 0, 64, 48, n / 6 % 2 != 0);
    call.dst = matrix(UL_CALL_F32, 0, 96, 48, false);
    call.sums_of = n / 12 == 0 ? UL_SUMS_OF_SRC : UL_SUMS_OF_WEIGHTS;
    call.bias = matrix(UL_CALL_F32, 0, 1, n / 12 == 0 ? 96 : 48, false);
    call.align_bytes = 64;
    call.scratch_bytes = 1 << 16;
    return call;
}

/* A product that is multiplied by slopes, number `n` of SLOPES: types, operands' sides, whether of
 * a GELU or of a ReLU. */
enum { SLOPES = 16 };
struct ul_call make_slopes(uint32_t n)
{
    static const enum ul_call_type types[] = {UL_CALL_F16, UL_CALL_BF16};
    struct ul_call call;
    memset(&call, 0, sizeof call);
    call.kind = UL_CALL_MATMUL;
    call.src = matrix(types[n % 2], 0, 96, 64, n / 2 % 2 != 0);
    call.weights = matrix(types[n % 2], 0, 64, 48, n / 4 % 2 != 0);
    call.dst = matrix(types[n % 2], 0, 96, 48, false);
    call.bias = call.dst;
    call.slopes_of = n / 8 == 0 ? UL_SLOPES_OF_GELU : UL_SLOPES_OF_RELU;
    call.align_bytes = 64;
    call.scratch_bytes = 1 << 16;
    return call;
}

/* A GELU beside what it is of, number `n` of GELUS: types, with a bias or without. */
enum { GELUS = 4 };
struct ul_call make_gelu(uint32_t n)
{
    struct ul_call call = make_slopes(n % 2);
    memset(&call.bias, 0, sizeof call.bias);
    call.slopes_of = UL_SLOPES_OF_NONE;
    if (n / 2 != 0)
        call.bias = matrix(call.dst.type, 0, 1, 48, false);
    call.post_count = 1;
    call.posts[0].kind = UL_POST_GELU_TANH;
    call.posts[0].tensor = call.dst;
    return call;
}

/* Sums of integers. */
struct ul_call make_sums()
{
    struct ul_call call;
    memset(&call, 0, sizeof call);
    call.kind = UL_CALL_MATMUL;
    call.src = matrix(UL_CALL_I8, 0, 96, 64, false);
    call.weights = matrix(UL_CALL_I8, 0, 64, 48, true);
    call.dst = matrix(UL_CALL_I32, 0, 96, 48, false);
    call.align_bytes = 16;
    call.scratch_bytes = 1 << 20;
    return call;
}

bool is_taken(const struct handle *handle, const struct ul_call *call)
{
    struct product product;
    const void *bias = (const void *)(uintptr_t)(4096 + call->align_bytes);
    cublasLtMatmulPreference_t preference = NULL;
    memset(&product, 0, sizeof product);
    bool good = describe_product(handle, call, &product) &&
                set_bias(handle, &product, bias, bias) &&
                make_preference(handle, call, &preference) &&
                (!ul_call_may_do_more(call) || set_epilogue(handle, call, &product, false));
    if (preference != NULL)
        (void)handle->lt.MatmulPreferenceDestroy(preference);
    free_product(handle, &product);
    return good;
}

/* An algorithm of the form that the library writes has the attributes that are asked for. */
bool is_told(const struct handle *handle)
{
    static const cublasLtMatmulAlgoConfigAttributes_t attributes[] = {
        CUBLASLT_ALGO_CONFIG_ID, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
        CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME};
    cublasLtMatmulAlgo_t algorithm;
    bool good = true;
    memset(&algorithm, 0, sizeof algorithm);
    for (cublasLtMatmulAlgoConfigAttributes_t attribute : attributes) {
        uint32_t value = 0;
        size_t written = 0;
        good = good &&
               handle->lt.MatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value,
                                                       &written) == CUBLAS_STATUS_SUCCESS &&
               written == sizeof value;
    }
    return good && keeps_sums(handle, &algorithm);
}

} // namespace

int main()
{
    enum { PLAIN = 1280, MORE = PLAIN + FACTOR_SUMS, CALLS = MORE + SLOPES + GELUS + 1 };
    struct handle handle;
    int failed = 0;
    memset(&handle, 0, sizeof handle);
    if (!load(&handle)) {
        printf("skipped: there is no cuBLASLt with all functions\n");
        return handle.loaded == NULL ? 77 : 1;
    }
    for (uint32_t n = 0; n < CALLS; n++) {
        struct ul_call call = n < PLAIN           ? make_call(n)
                              : n < MORE          ? make_factor_sums(n - PLAIN)
                              : n < MORE + SLOPES ? make_slopes(n - MORE)
                              : n + 1 < CALLS     ? make_gelu(n - MORE - SLOPES)
                                                  : make_sums();
        if (is_taken(&handle, &call))
            continue;
        printf("FAIL product %u: cuBLASLt does not take its descriptors\n", n);
        failed++;
    }
    if (!is_told(&handle)) {
        printf("FAIL attributes of algorithms\n");
        failed++;
    }
    printf("cuBLASLt %zu: %d products, %d failed\n", handle.lt.GetVersion(), CALLS, failed);
    return failed > 0;
}
