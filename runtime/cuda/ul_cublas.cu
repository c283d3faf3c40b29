/* SPDX-License-Identifier: 0BSD */
/*
 * Matrix products of a program for CUDA by cuBLASLt (ul_cuda_library.h).
 *
 * cuBLASLt's matrices have their columns one after the other. A row-major result [m, n] is to it
 * one of n rows, so that its A is our weights, its B our source, and a bias with a number for each
 * of our columns is one for each of its rows:
 *
 *      ours          dst [m, n]   =  src [m, k]    x  weights [k, n]
 *      cuBLASLt's    D  (n x m)   =  A (n x k)     x  B (k x m)        A = weights, B = src
 *
 * A residual is C, in the place of D or in its own; where it is a sum over the runs of a step, the
 * first of these comes without it, and C is not read.
 *
 * Sums of a factor along k, the gradient of a bias beside that of a weight, are an epilogue: BGRADA
 * has one for each row of D, summed from A, and BGRADB one for each column, from B. Where it has no
 * algorithm that does with the plan, the call is the plain product, and a kernel of the program
 * forms the sums. A choice says by one byte more that it is one that does more.
 *
 * Slopes of an activation, which the result is multiplied by, are one likewise. DGELU reads what a
 * GELU by tanh was of as a matrix in the layout and of the type of D, with columns at multiples of
 * 8 elements. DRELU reads a bit for each element, of which a column has a multiple of 128: they are
 * formed from what the ReLU made in front of the workspace, by a kernel that the call enqueues
 * before the product. Where there is no algorithm, a kernel of the program updates the plain
 * product.
 *
 * A GELU by tanh may leave what it is of as well: D is the GELU, and a matrix in the layout and of
 * the type of D beside it what GELU_AUX made that from, before either is rounded. Where there is no
 * algorithm, D is the plain product, and a kernel that the call enqueues forms the GELU from it.
 *
 * Sums of f32 are in f32 with all bits, unless the call allows TF32; f16 and bf16 are summed in
 * f32, i8 in i32, where alpha is 1 and beta 0. Algorithms that add parts of a sum in place of the
 * result are left out: they round each to the result's type, and one part has to wait for another.
 */
#include "ul_cuda_library.h"
#include "ul_scalar.h"
#include "ul_small_float.h"

#include <cublasLt.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The functions that are called, by their names without cublasLt. */
#define UL_CUBLAS_FUNCTIONS(X)                                                                     \
    X(Create)                                                                                      \
    X(Destroy)                                                                                     \
    X(GetVersion)                                                                                  \
    X(MatmulDescCreate)                                                                            \
    X(MatmulDescDestroy)                                                                           \
    X(MatmulDescSetAttribute)                                                                      \
    X(MatrixLayoutCreate)                                                                          \
    X(MatrixLayoutDestroy)                                                                         \
    X(MatrixLayoutSetAttribute)                                                                    \
    X(MatmulPreferenceCreate)                                                                      \
    X(MatmulPreferenceDestroy)                                                                     \
    X(MatmulPreferenceSetAttribute)                                                                \
    X(MatmulAlgoGetHeuristic)                                                                      \
    X(MatmulAlgoCheck)                                                                             \
    X(MatmulAlgoConfigGetAttribute)                                                                \
    X(Matmul)

struct functions {
#define UL_CUBLAS_MEMBER(name) decltype(&cublasLt##name) name;
    UL_CUBLAS_FUNCTIONS(UL_CUBLAS_MEMBER)
#undef UL_CUBLAS_MEMBER
};

/* One call, ready to run. */
struct product {
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d; /* the residual is laid out like the result */
    cublasLtMatmulAlgo_t algorithm;
    float alpha, beta;
    uint64_t workspace_bytes;
    bool has_bias;                 /* or sums in its place */
    enum ul_call_slopes slopes_of; /* their matrix is in the place of a bias */
    bool keeps;                    /* what the GELU is of, by the epilogue that is set */
    bool does_more;                /* that, sums or slopes, likewise */
    bool asks_for_more;            /* algorithms are found for that epilogue */
    bool has_integers;
    const void *told_bias; /* an address that is no better aligned than the bias will be, nor
                              what lies beside the result */
};

struct handle {
    struct ul_cuda_calls calls;
    void *loaded;
    struct functions lt;
    cublasLtHandle_t cublas;
    struct product *products; /* by call */
};

/* ---- open, close ---- */

static bool load(struct handle *handle)
{
    char name[64];
    (void)snprintf(name, sizeof name, "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
    handle->loaded = ul_cuda_load(name);
    if (handle->loaded == NULL)
        return false;
    bool whole = true;
#define UL_CUBLAS_FIND(function)                                                                   \
    handle->lt.function =                                                                          \
        (decltype(&cublasLt##function))ul_cuda_symbol(handle->loaded, "cublasLt" #function);       \
    whole = whole && handle->lt.function != NULL;
    UL_CUBLAS_FUNCTIONS(UL_CUBLAS_FIND)
#undef UL_CUBLAS_FIND
    return whole;
}

static void free_product(const struct handle *handle, const struct product *product)
{
    if (product->operation != NULL)
        (void)handle->lt.MatmulDescDestroy(product->operation);
    if (product->a != NULL)
        (void)handle->lt.MatrixLayoutDestroy(product->a);
    if (product->b != NULL)
        (void)handle->lt.MatrixLayoutDestroy(product->b);
    if (product->d != NULL)
        (void)handle->lt.MatrixLayoutDestroy(product->d);
}

static void close_handle(void *opaque)
{
    struct handle *handle = (struct handle *)opaque;
    for (uint32_t i = 0; i < handle->calls.call_count; i++)
        free_product(handle, &handle->products[i]);
    if (handle->cublas != NULL)
        (void)handle->lt.Destroy(handle->cublas);
    if (handle->loaded != NULL)
        ul_cuda_unload(handle->loaded);
    free(handle->products);
    ul_cuda_free_calls(&handle->calls);
    free(handle);
}

static enum ul_result open_handle(void **opaque, struct ul_failure *failure)
{
    struct handle *handle = (struct handle *)calloc(1, sizeof *handle);
    if (handle == NULL)
        return ul_cuda_refuse(failure, UL_LIBRARY_FAILED, "cuBLASLt: the host is out of memory");
    if (!load(handle)) {
        close_handle(handle);
        return ul_cuda_refuse(
            failure, UL_LIBRARY_MISSING,
            "cuBLASLt of the CUDA Toolkit that the program was built with was not found "
            "(libcublasLt.so." UL_TEXT_OF(CUBLAS_VER_MAJOR) "); put its folder into "
                                                            "LD_LIBRARY_PATH");
    }
    if (handle->lt.Create(&handle->cublas) != CUBLAS_STATUS_SUCCESS) {
        close_handle(handle);
        return ul_cuda_refuse(failure, UL_LIBRARY_FAILED, "cublasLtCreate");
    }
    *opaque = handle;
    return UL_OK;
}

/* ---- descriptors ---- */

static cudaDataType type_of(const struct ul_call_tensor *tensor)
{
    return tensor->type == UL_CALL_F16    ? CUDA_R_16F
           : tensor->type == UL_CALL_BF16 ? CUDA_R_16BF
           : tensor->type == UL_CALL_I8   ? CUDA_R_8I
           : tensor->type == UL_CALL_I32  ? CUDA_R_32I
                                          : CUDA_R_32F;
}

static bool is_row_major(const struct ul_call_tensor *tensor)
{
    uint32_t r = tensor->rank - 2, c = tensor->rank - 1;
    return tensor->strides[c] == 1 && tensor->strides[r] >= tensor->dims[c];
}

/* A matrix as cuBLASLt sees its memory: row-major ones are transposed. */
static bool make_layout(const struct handle *handle, const struct ul_call_tensor *tensor,
                        int64_t batch_count, cublasLtMatrixLayout_t *layout)
{
    uint32_t r = tensor->rank - 2, c = tensor->rank - 1;
    bool turned = is_row_major(tensor);
    uint64_t rows = (uint64_t)tensor->dims[turned ? c : r];
    uint64_t columns = (uint64_t)tensor->dims[turned ? r : c];
    int64_t stride = tensor->strides[turned ? r : c];
    if (handle->lt.MatrixLayoutCreate(layout, type_of(tensor), rows, columns, stride) !=
        CUBLAS_STATUS_SUCCESS)
        return false;
    if (batch_count == 1)
        return true;
    int32_t count = (int32_t)batch_count;
    int64_t step = tensor->dims[0] == 1 ? 0 : tensor->strides[0];
    return handle->lt.MatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                               sizeof count) == CUBLAS_STATUS_SUCCESS &&
           handle->lt.MatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                               &step, sizeof step) == CUBLAS_STATUS_SUCCESS;
}

static cublasLtEpilogue_t epilogue_of(const struct ul_call *call, bool does_more)
{
    struct ul_cuda_posts posts;
    bool has_bias = call->bias.rank > 0 && call->sums_of == UL_SUMS_OF_NONE &&
                    call->slopes_of == UL_SLOPES_OF_NONE;
    if (ul_call_kept(call) != NULL && does_more)
        return has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    if (ul_call_kept(call) != NULL)
        return has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    if (does_more && call->slopes_of != UL_SLOPES_OF_NONE)
        return call->slopes_of == UL_SLOPES_OF_GELU ? CUBLASLT_EPILOGUE_DGELU
                                                    : CUBLASLT_EPILOGUE_DRELU;
    if (does_more)
        return call->sums_of == UL_SUMS_OF_WEIGHTS ? CUBLASLT_EPILOGUE_BGRADA
                                                   : CUBLASLT_EPILOGUE_BGRADB;
    ul_cuda_read_posts(call, &posts);
    switch (posts.activation) {
    case UL_CUDA_RELU:
        return has_bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case UL_CUDA_GELU_TANH:
        return has_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case UL_CUDA_IDENTITY:
        break;
    }
    return has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static bool set(const struct handle *handle, struct product *product,
                cublasLtMatmulDescAttributes_t attribute, const void *value, size_t size_bytes)
{
    return handle->lt.MatmulDescSetAttribute(product->operation, attribute, value, size_bytes) ==
           CUBLAS_STATUS_SUCCESS;
}

/* How far apart columns of the matrix beside D are: in elements of the result's type, or in bits.
 */
static int64_t columns_beside(const struct ul_call *call, const struct product *product)
{
    const int64_t byte_bits = 8;
    enum ul_call_slopes slopes_of = product->slopes_of;
    return product->keeps                   ? ul_call_kept(call)->strides[0]
           : slopes_of == UL_SLOPES_OF_GELU ? call->bias.strides[0]
           : slopes_of == UL_SLOPES_OF_RELU
               ? byte_bits * (int64_t)ul_call_mask_row_bytes(call->dst.dims[1])
               : 0;
}

/* The matrix beside D has the result's type unless another one is set; without it the description
 * is as new. */
static bool set_beside(const struct handle *handle, const struct ul_call *call,
                       struct product *product)
{
    int64_t columns_apart = columns_beside(call, product);
    const void *nowhere = NULL;
    return set(handle, product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &columns_apart,
               sizeof columns_apart) &&
           set(handle, product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &nowhere,
               sizeof nowhere);
}

/* Sets the epilogue: with sums of a factor, slopes or what a GELU is of, where the call may have
 * them, or without. */
static bool set_epilogue(const struct handle *handle, const struct ul_call *call,
                         struct product *product, bool does_more)
{
    cublasLtEpilogue_t epilogue = epilogue_of(call, does_more);
    cudaDataType bias_type = type_of(&call->bias);
    bool has_beside = call->slopes_of != UL_SLOPES_OF_NONE || ul_call_kept(call) != NULL;
    product->does_more = does_more;
    product->keeps = does_more && ul_call_kept(call) != NULL;
    product->slopes_of = does_more ? call->slopes_of : UL_SLOPES_OF_NONE;
    product->has_bias = call->bias.rank > 0 && call->slopes_of == UL_SLOPES_OF_NONE &&
                        (call->sums_of == UL_SUMS_OF_NONE || does_more);
    return set(handle, product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) &&
           (!has_beside || set_beside(handle, call, product)) &&
           (!product->has_bias || set(handle, product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                                      &bias_type, sizeof bias_type));
}

static bool describe_product(const struct handle *handle, const struct ul_call *call,
                             struct product *product)
{
    struct ul_cuda_posts posts;
    int64_t batch_count = call->dst.rank == 3 ? call->dst.dims[0] : 1;
    bool has_integers = ul_call_is_integer(call) != 0;
    cublasComputeType_t compute = has_integers ? CUBLAS_COMPUTE_32I
                                  : call->tf32 && call->src.type == UL_CALL_F32
                                      ? CUBLAS_COMPUTE_32F_FAST_TF32
                                      : CUBLAS_COMPUTE_32F;
    cublasOperation_t a = is_row_major(&call->weights) ? CUBLAS_OP_N : CUBLAS_OP_T;
    cublasOperation_t b = is_row_major(&call->src) ? CUBLAS_OP_N : CUBLAS_OP_T;
    ul_cuda_read_posts(call, &posts);
    product->alpha = posts.alpha;
    product->beta = posts.adds ? 1.0f : 0.0f;
    product->has_integers = has_integers;
    product->asks_for_more = ul_call_may_do_more(call) != 0;
    return handle->lt.MatmulDescCreate(&product->operation, compute,
                                       has_integers ? CUDA_R_32I : CUDA_R_32F) ==
               CUBLAS_STATUS_SUCCESS &&
           set(handle, product, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a) &&
           set(handle, product, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b) &&
           set_epilogue(handle, call, product, product->asks_for_more) &&
           make_layout(handle, &call->weights, batch_count, &product->a) &&
           make_layout(handle, &call->src, batch_count, &product->b) &&
           make_layout(handle, &call->dst, batch_count, &product->d);
}

static int reserve(void *opaque, uint32_t call_count)
{
    struct handle *handle = (struct handle *)opaque;
    handle->products = (struct product *)calloc(call_count, sizeof *handle->products);
    return handle->products != NULL;
}

static int describe_call(void *opaque, uint32_t index, const struct ul_call *call, const void *bias)
{
    struct handle *handle = (struct handle *)opaque;
    struct product *product = &handle->products[index];
    product->workspace_bytes = ul_call_workspace_bytes(call);
    product->told_bias = bias;
    return describe_product(handle, call, product);
}

/* Sets the bias and what a GELU is of, or the matrix of slopes. */
static bool set_bias(const struct handle *handle, struct product *product, const void *bias,
                     const void *kept)
{
    const void *beside = product->keeps ? kept : bias;
    bool has_slopes = product->slopes_of != UL_SLOPES_OF_NONE;
    return ((!has_slopes && !product->keeps) ||
            set(handle, product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &beside,
                sizeof beside)) &&
           (!product->has_bias ||
            set(handle, product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
}

/* ---- running ---- */

/* Eight elements of 16 bits. */
struct alignas(16) eight {
    uint32_t words[4];
};

/* Bits of the elements in a word that are not at most 0: NaN lets a slope pass. */
static __device__ uint32_t positive_bits(uint32_t word, uint32_t infinity)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t x = word >> 16 * i & 0xffffu;
        uint32_t is_positive = (x & 0x8000u) == 0 ? x != 0 : (x & 0x7fffu) > infinity;
        bits |= is_positive << i;
    }
    return bits;
}

/* Fills in a mask of `count` bytes, row_bytes a row, from rows of `columns` elements of 16 bits:
 * the first of eight is the lowest bit. Rows are multiples of 16 bytes. */
static __global__ void mask_slopes(const uint16_t *from, unsigned char *mask, int64_t columns,
                                   int64_t row_bytes, int64_t count, uint32_t infinity,
                                   struct ul_where run)
{
    UL_ENTER(run);
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        const int64_t row = i / row_bytes, column = i % row_bytes * 8;
        uint32_t bits = 0;
        if (column < columns) {
            const struct eight eight =
                *(const struct eight *)(const void *)(from + row * columns + column);
            for (uint32_t w = 0; w < 4; w++)
                bits |= positive_bits(eight.words[w], infinity) << 2 * w;
        }
        mask[i] = (unsigned char)bits;
    }
}

static void put_mask(const struct ul_cuda_step *at, const struct ul_call *call, const void *from,
                     unsigned char *mask)
{
    enum { THREADS = 256, F16_INFINITY = 0x7c00, BF16_INFINITY = 0x7f80 };
    const int64_t max_blocks = 1024;
    int64_t row_bytes = (int64_t)ul_call_mask_row_bytes(call->dst.dims[1]);
    int64_t count = call->dst.dims[0] * row_bytes, blocks = (count + THREADS - 1) / THREADS;
    uint32_t infinity = call->dst.type == UL_CALL_F16 ? F16_INFINITY : BF16_INFINITY;
    UL_LAUNCH(mask_slopes, blocks < max_blocks ? blocks : max_blocks, THREADS, at,
              (const uint16_t *)from, mask, call->dst.dims[1], row_bytes, count, infinity);
}

static __device__ float gelu(float x)
{
    const float scale = 0.7978845608028654f, cubic = 0.044715f;
    return 0.5f * x * (1 + ul_tanh_f32(scale * (x + cubic * x * x * x)));
}

static __global__ void make_gelus(const uint16_t *from, uint16_t *to, bool is_half, int64_t count,
                                  struct ul_where run)
{
    UL_ENTER(run);
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        float y = gelu(is_half ? ul_f16_to_f32(from[i]) : ul_bf16_to_f32(from[i]));
        to[i] = is_half ? ul_f32_to_f16(y) : ul_f32_to_bf16(y);
    }
}

/* Makes the GELU of the product, behind the library's kernel. */
static void put_gelu(const struct ul_cuda_step *at, const struct ul_call *call, const void *from,
                     void *to)
{
    enum { THREADS = 256 };
    const int64_t max_blocks = 4096;
    int64_t count = call->dst.dims[0] * call->dst.dims[1];
    int64_t blocks = (count + THREADS - 1) / THREADS;
    at->run->is_behind = 0;
    UL_LAUNCH(make_gelus, blocks < max_blocks ? blocks : max_blocks, THREADS, at,
              (const uint16_t *)from, (uint16_t *)to, call->dst.type == UL_CALL_F16, count);
}

static int enqueue(void *opaque, uint32_t index, const void *const *args, unsigned char *scratch,
                   const struct ul_cuda_step *at)
{
    const struct handle *handle = (const struct handle *)opaque;
    const struct ul_call *call = &handle->calls.calls[index];
    struct product *product = &handle->products[index];
    unsigned char *front = ul_cuda_workspace(scratch);
    bool makes_gelu = ul_call_kept(call) != NULL && !product->keeps;
    void *dst = (void *)args[makes_gelu ? 4 : 3];
    bool adds = product->beta != 0 && args[4] != NULL;
    const void *residual = adds ? args[4] : dst;
    const float none = 0;
    const int32_t one = 1, zero = 0;
    const void *alpha = product->has_integers ? (const void *)&one : &product->alpha;
    const void *beta = product->has_integers ? (const void *)&zero : adds ? &product->beta : &none;
    bool is_masked = product->slopes_of == UL_SLOPES_OF_RELU;
    if (is_masked)
        put_mask(at, call, args[2], front);
    if (!set_bias(handle, product, is_masked ? front : args[2], args[4]) ||
        handle->lt.Matmul(handle->cublas, product->operation, alpha, args[1], product->a, args[0],
                          product->b, beta, residual, product->d, dst, product->d,
                          &product->algorithm, front + ul_call_front_bytes(call),
                          product->workspace_bytes, at->run->stream) != CUBLAS_STATUS_SUCCESS)
        return 0;
    if (makes_gelu)
        put_gelu(at, call, dst, (void *)args[3]);
    return 1;
}

/* ---- choosing ---- */

/* Whether no part of a sum is added in place of the result. */
static bool keeps_sums(const struct handle *handle, const cublasLtMatmulAlgo_t *algorithm)
{
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
    size_t written = 0;
    bool known = handle->lt.MatmulAlgoConfigGetAttribute(
                     algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme,
                     &written) == CUBLAS_STATUS_SUCCESS;
    return !known || (scheme & CUBLASLT_REDUCTION_SCHEME_INPLACE) == 0;
}

static bool make_preference(const struct handle *handle, const struct ul_call *call,
                            cublasLtMatmulPreference_t *preference)
{
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint64_t workspace_bytes = ul_call_workspace_bytes(call);
    bool good = handle->lt.MatmulPreferenceCreate(preference) == CUBLAS_STATUS_SUCCESS &&
                handle->lt.MatmulPreferenceSetAttribute(
                    *preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                    sizeof workspace_bytes) == CUBLAS_STATUS_SUCCESS &&
                handle->lt.MatmulPreferenceSetAttribute(
                    *preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                    sizeof schemes) == CUBLAS_STATUS_SUCCESS;
    for (int i = 0; good && i < 4; i++)
        good = handle->lt.MatmulPreferenceSetAttribute(
                   *preference, alignments[i], &call->align_bytes, sizeof call->align_bytes) ==
               CUBLAS_STATUS_SUCCESS;
    return good;
}

static uint32_t size_of_choice(bool does_more)
{
    static_assert(sizeof(cublasLtMatmulAlgo_t) + 1 <= UL_CUDA_CHOICE_BYTES, "it is one");
    return (uint32_t)sizeof(cublasLtMatmulAlgo_t) + (does_more ? 1 : 0);
}

static int find(void *opaque, uint32_t index, const struct ul_call *call,
                struct ul_cuda_choice *choices)
{
    const struct handle *handle = (const struct handle *)opaque;
    struct product *product = &handle->products[index];
    cublasLtMatmulHeuristicResult_t found[UL_CUDA_CANDIDATES];
    cublasLtMatmulPreference_t preference = NULL;
    int count = 0, kept = 0;
    if (!set_epilogue(handle, call, product, product->asks_for_more) ||
        !set_bias(handle, product, product->told_bias, product->told_bias) ||
        !make_preference(handle, call, &preference) ||
        handle->lt.MatmulAlgoGetHeuristic(
            handle->cublas, product->operation, product->a, product->b, product->d, product->d,
            preference, UL_CUDA_CANDIDATES, found, &count) != CUBLAS_STATUS_SUCCESS)
        count = 0;
    if (preference != NULL)
        (void)handle->lt.MatmulPreferenceDestroy(preference);
    for (int i = 0; i < count; i++) {
        if (found[i].state != CUBLAS_STATUS_SUCCESS)
            continue;
        choices[kept].size_bytes = size_of_choice(product->asks_for_more);
        choices[kept].bytes[sizeof found[i].algo] = 1;
        memcpy(choices[kept++].bytes, &found[i].algo, sizeof found[i].algo);
    }
    return kept;
}

static int lessen(void *opaque, uint32_t index)
{
    struct product *product = &((const struct handle *)opaque)->products[index];
    bool asked = product->asks_for_more;
    product->asks_for_more = false;
    return asked;
}

static int take(void *opaque, uint32_t index, const struct ul_call *call,
                const struct ul_cuda_choice *choice)
{
    const struct handle *handle = (const struct handle *)opaque;
    struct product *product = &handle->products[index];
    cublasLtMatmulAlgo_t algorithm;
    cublasLtMatmulHeuristicResult_t result;
    bool does_more = ul_call_may_do_more(call) && choice->size_bytes == size_of_choice(true);
    bool has_room = call->scratch_bytes >= UL_CALL_WORKSPACE_LOSS + ul_call_front_bytes(call);
    if (choice->size_bytes != size_of_choice(does_more) ||
        (does_more && ul_call_has_mask(call) && !has_room) ||
        !set_epilogue(handle, call, product, does_more))
        return 0;
    memcpy(&algorithm, choice->bytes, sizeof algorithm);
    /* The description holds the address by which alignment is judged; it may still be another
     * call's, or none. */
    if (!set_bias(handle, product, product->told_bias, product->told_bias) ||
        handle->lt.MatmulAlgoCheck(handle->cublas, product->operation, product->a, product->b,
                                   product->d, product->d, &algorithm,
                                   &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > ul_call_workspace_bytes(call) || !keeps_sums(handle, &algorithm))
        return 0;
    product->algorithm = algorithm;
    return 1;
}

static int has_mask(const void *opaque, uint32_t index)
{
    return ((const struct handle *)opaque)->products[index].slopes_of == UL_SLOPES_OF_RELU;
}

static void tell(const void *opaque, uint32_t index, char name[UL_CUDA_NAME_BYTES])
{
    const struct handle *handle = (const struct handle *)opaque;
    const struct product *product = &handle->products[index];
    int32_t id = 0, split = 1;
    size_t written = 0;
    (void)handle->lt.MatmulAlgoConfigGetAttribute(&product->algorithm, CUBLASLT_ALGO_CONFIG_ID, &id,
                                                  sizeof id, &written);
    (void)handle->lt.MatmulAlgoConfigGetAttribute(
        &product->algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split, &written);
    (void)snprintf(name, UL_CUDA_NAME_BYTES, "cublaslt algorithm %d, split %d%s", (int)id,
                   (int)split,
                   !product->does_more                       ? ""
                   : product->keeps                          ? ", both"
                   : product->slopes_of != UL_SLOPES_OF_NONE ? ", slopes"
                                                             : ", sums");
}

/* ---- the library ---- */

static uint64_t version_of(const void *opaque)
{
    return ((const struct handle *)opaque)->lt.GetVersion();
}

static const struct ul_cuda_library library = {"cublaslt",
                                               "cuBLASLt",
                                               1u << UL_CALL_MATMUL,
                                               1,
                                               1,
                                               version_of,
                                               reserve,
                                               describe_call,
                                               find,
                                               lessen,
                                               take,
                                               has_mask,
                                               enqueue,
                                               tell};

int ul_cublas_did_more(const struct ul_cuda_step *at, uint32_t place, uint32_t call)
{
    const struct handle *handle = (const struct handle *)at->run->libraries[place];
    return handle != NULL && call < handle->calls.call_count &&
           handle->calls.names[call][0] != '\0' && handle->products[call].does_more;
}

/* Whoever is told of each step looks at what it leaves, sums included, which must be the same in
 * every run. */
static void clear_sums(const struct ul_cuda_step *at, uint32_t place, uint32_t call,
                       const void *const *args)
{
    const struct handle *handle = (const struct handle *)at->run->libraries[place];
    if (at->run->announce == NULL || handle == NULL || call >= handle->calls.call_count ||
        ul_cublas_did_more(at, place, call))
        return;
    const struct ul_call *planned = &handle->calls.calls[call];
    if (planned->sums_of != UL_SUMS_OF_NONE)
        ul_cuda_note(at->run, cudaMemsetAsync((void *)args[2], 0,
                                              (size_t)planned->bias.dims[1] * sizeof(float),
                                              at->run->stream));
}

int ul_cublas_run(const struct ul_cuda_step *at, uint32_t place, uint32_t call,
                  const void *const *args, unsigned char *scratch)
{
    clear_sums(at, place, call, args);
    return ul_cuda_run_call(&library, at, place, call, args, scratch);
}

static enum ul_result prepare(void *handle, const struct ul_model *model,
                              const struct ul_device_request *request, unsigned char *arena,
                              void *stream, struct ul_failure *failure)
{
    return ul_cuda_prepare(&library, handle, model, request, arena, (cudaStream_t)stream, failure);
}

static void describe(char text[UL_DEVICE_TEXT_BYTES])
{
    (void)snprintf(text, UL_DEVICE_TEXT_BYTES, "cuBLASLt %d.%d.%d", CUBLAS_VER_MAJOR,
                   CUBLAS_VERSION / 100 % 100, CUBLAS_VERSION % 100);
}

static int note(const void *handle, char text[UL_DEVICE_TEXT_BYTES])
{
    return ul_cuda_note_unused(&library, handle, text);
}

const struct ul_device_library ul_cublas = {
    "cuBLASLt",          open_handle,           prepare, close_handle, describe, note,
    ul_cuda_count_calls, ul_cuda_implementation};
