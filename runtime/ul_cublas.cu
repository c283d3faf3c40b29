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
 * Sums of f32 are in f32 with all bits, unless the call allows TF32; f16 and bf16 are summed in
 * f32. Algorithms that add parts of a sum in the order in which they are done (in place of the
 * result) are left out, so that the same choice gives the same bits.
 */
#include "ul_cuda_library.h"

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
    cublasLtMatrixLayout_t a, b, d; /* the residual lies as the result does */
    cublasLtMatmulAlgo_t algorithm;
    float alpha, beta;
    uint64_t workspace_bytes;
    bool has_bias, is_ready;
    char name[48];
};

struct handle {
    void *library;
    struct functions lt;
    cublasLtHandle_t cublas;
    uint32_t call_count;
    struct product *products; /* by call */
};

enum { MOST_CANDIDATES = 16 };

static enum ul_result refuse(struct ul_failure *failure, enum ul_result result, uint32_t call,
                             const char *detail)
{
    memset(failure, 0, sizeof *failure);
    failure->tensor = call;
    failure->detail = detail;
    return failure->result = result;
}

/* ---- open, close ---- */

static bool load(struct handle *handle)
{
    char name[64];
    (void)snprintf(name, sizeof name, "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
    handle->library = ul_cuda_load(name);
    if (handle->library == NULL)
        return false;
    bool whole = true;
#define UL_CUBLAS_FIND(function)                                                                   \
    handle->lt.function =                                                                          \
        (decltype(&cublasLt##function))ul_cuda_symbol(handle->library, "cublasLt" #function);      \
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
    for (uint32_t i = 0; i < handle->call_count; i++)
        free_product(handle, &handle->products[i]);
    if (handle->cublas != NULL)
        (void)handle->lt.Destroy(handle->cublas);
    if (handle->library != NULL)
        ul_cuda_unload(handle->library);
    free(handle->products);
    free(handle);
}

static enum ul_result open_handle(void **opaque, struct ul_failure *failure)
{
    struct handle *handle = (struct handle *)calloc(1, sizeof *handle);
    if (handle == NULL)
        return refuse(failure, UL_LIBRARY_FAILED, 0, "cuBLASLt: the host is out of memory");
    if (!load(handle)) {
        close_handle(handle);
        return refuse(failure, UL_LIBRARY_MISSING, 0,
                      "cuBLASLt of the CUDA Toolkit that the program was built with was not found "
                      "(libcublasLt.so." UL_TEXT_OF(CUBLAS_VER_MAJOR) "); put its folder into "
                                                                      "LD_LIBRARY_PATH");
    }
    if (handle->lt.Create(&handle->cublas) != CUBLAS_STATUS_SUCCESS) {
        close_handle(handle);
        return refuse(failure, UL_LIBRARY_FAILED, 0, "cublasLtCreate");
    }
    *opaque = handle;
    return UL_OK;
}

/* ---- descriptors ---- */

static cudaDataType type_of(const struct ul_call_tensor *tensor)
{
    return tensor->type == UL_CALL_F16    ? CUDA_R_16F
           : tensor->type == UL_CALL_BF16 ? CUDA_R_16BF
                                          : CUDA_R_32F;
}

static bool is_row_major(const struct ul_call_tensor *tensor)
{
    uint32_t r = tensor->rank - 2, c = tensor->rank - 1;
    return tensor->strides[c] == 1 && tensor->strides[r] >= tensor->dims[c];
}

/* A matrix as cuBLASLt sees its memory: row-major ones are turned. */
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

static cublasLtEpilogue_t epilogue_of(const struct ul_cuda_posts *posts, bool has_bias)
{
    switch (posts->activation) {
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

static bool describe_product(const struct handle *handle, const struct ul_call *call,
                             struct product *product)
{
    struct ul_cuda_posts posts;
    int64_t batch_count = call->dst.rank == 3 ? call->dst.dims[0] : 1;
    cublasComputeType_t compute = call->tf32 && call->src.type == UL_CALL_F32
                                      ? CUBLAS_COMPUTE_32F_FAST_TF32
                                      : CUBLAS_COMPUTE_32F;
    cublasOperation_t a = is_row_major(&call->weights) ? CUBLAS_OP_N : CUBLAS_OP_T;
    cublasOperation_t b = is_row_major(&call->src) ? CUBLAS_OP_N : CUBLAS_OP_T;
    ul_cuda_read_posts(call, &posts);
    product->alpha = posts.alpha;
    product->beta = posts.adds ? 1.0f : 0.0f;
    product->has_bias = call->bias.rank > 0;
    cublasLtEpilogue_t epilogue = epilogue_of(&posts, product->has_bias);
    cudaDataType bias_type = type_of(&call->bias);
    return handle->lt.MatmulDescCreate(&product->operation, compute, CUDA_R_32F) ==
               CUBLAS_STATUS_SUCCESS &&
           set(handle, product, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a) &&
           set(handle, product, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b) &&
           set(handle, product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) &&
           (!product->has_bias || set(handle, product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                                      &bias_type, sizeof bias_type)) &&
           make_layout(handle, &call->weights, batch_count, &product->a) &&
           make_layout(handle, &call->src, batch_count, &product->b) &&
           make_layout(handle, &call->dst, batch_count, &product->d);
}

/* ---- running ---- */

static bool enqueue(const struct handle *handle, struct product *product, const void *const *args,
                    unsigned char *scratch, cudaStream_t stream)
{
    const void *bias = args[2];
    void *dst = (void *)args[3];
    const void *residual = product->beta != 0 ? args[4] : dst;
    if (product->has_bias &&
        !set(handle, product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias))
        return false;
    return handle->lt.Matmul(handle->cublas, product->operation, &product->alpha, args[1],
                             product->a, args[0], product->b, &product->beta, residual, product->d,
                             dst, product->d, &product->algorithm, ul_cuda_workspace(scratch),
                             product->workspace_bytes, stream) == CUBLAS_STATUS_SUCCESS;
}

int ul_cublas_run(const struct ul_cuda_step *at, uint32_t library, uint32_t call,
                  const void *const *args, unsigned char *scratch)
{
    struct handle *handle = (struct handle *)at->run->libraries[library];
    if (!handle->products[call].is_ready)
        return 0;
    if (ul_cuda_may_launch(at->run) &&
        !enqueue(handle, &handle->products[call], args, scratch, at->run->stream))
        ul_cuda_note(at->run, cudaErrorUnknown);
    return 1;
}

/* ---- choosing ---- */

/* Sums whose parts are added in the order in which they are done. */
static bool keeps_order(const struct handle *handle, const cublasLtMatmulAlgo_t *algorithm)
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

/* What the heuristic offers within the plan, the best first; their number. */
static int find_candidates(const struct handle *handle, const struct ul_call *call,
                           const struct product *product, cublasLtMatmulHeuristicResult_t *found)
{
    cublasLtMatmulPreference_t preference = NULL;
    int count = 0, kept = 0;
    if (!make_preference(handle, call, &preference) ||
        handle->lt.MatmulAlgoGetHeuristic(handle->cublas, product->operation, product->a,
                                          product->b, product->d, product->d, preference,
                                          MOST_CANDIDATES, found, &count) != CUBLAS_STATUS_SUCCESS)
        count = 0;
    if (preference != NULL)
        (void)handle->lt.MatmulPreferenceDestroy(preference);
    for (int i = 0; i < count; i++) {
        if (found[i].state == CUBLAS_STATUS_SUCCESS &&
            found[i].workspaceSize <= ul_call_workspace_bytes(call) &&
            keeps_order(handle, &found[i].algo))
            found[kept++] = found[i];
    }
    return kept;
}

static void name_product(const struct handle *handle, struct product *product)
{
    int32_t id = 0, split = 1;
    size_t written = 0;
    (void)handle->lt.MatmulAlgoConfigGetAttribute(&product->algorithm, CUBLASLT_ALGO_CONFIG_ID, &id,
                                                  sizeof id, &written);
    (void)handle->lt.MatmulAlgoConfigGetAttribute(
        &product->algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split, &written);
    (void)snprintf(product->name, sizeof product->name, "cublaslt algorithm %d, split %d", (int)id,
                   (int)split);
}

/* The algorithm that a file names, if the library takes it for this call. */
static bool take_choice(const struct handle *handle, const struct ul_call *call,
                        struct product *product, const struct ul_cuda_choice *choice)
{
    cublasLtMatmulAlgo_t algorithm;
    cublasLtMatmulHeuristicResult_t result;
    if (choice->text[0] == '\0' || !ul_cuda_get_hex(choice->text, &algorithm, sizeof algorithm) ||
        handle->lt.MatmulAlgoCheck(handle->cublas, product->operation, product->a, product->b,
                                   product->d, product->d, &algorithm,
                                   &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > ul_call_workspace_bytes(call) || !keeps_order(handle, &algorithm))
        return false;
    product->algorithm = algorithm;
    return true;
}

struct timing {
    const struct handle *handle;
    struct product *product;
    const struct ul_cuda_trial *trial;
    cudaStream_t stream;
};

static int run_trial(void *opaque)
{
    const struct timing *timing = (const struct timing *)opaque;
    return enqueue(timing->handle, timing->product, timing->trial->args, timing->trial->scratch,
                   timing->stream);
}

/* Runs it once: the library loads what it needs, and says what it does not compute after all. */
static bool runs(struct timing *timing)
{
    return timing->trial == NULL ||
           (run_trial(timing) && cudaStreamSynchronize(timing->stream) == cudaSuccess);
}

/* The candidate that takes the least time here, or, where nothing is measured, the first that runs.
 */
static bool choose(struct timing *timing, const struct ul_call *call, bool tunes)
{
    cublasLtMatmulHeuristicResult_t found[MOST_CANDIDATES];
    int count = find_candidates(timing->handle, call, timing->product, found);
    double least = -1;
    int best = -1;
    for (int i = 0; i < count; i++) {
        timing->product->algorithm = found[i].algo;
        if (!runs(timing))
            continue;
        if (!tunes || timing->trial == NULL)
            return true;
        double seconds = ul_cuda_measure(timing->stream, run_trial, timing);
        if (seconds >= 0 && (least < 0 || seconds < least)) {
            least = seconds;
            best = i;
        }
    }
    if (best >= 0)
        timing->product->algorithm = found[best].algo;
    return best >= 0;
}

/* Chooses for one call, unless the library has nothing for it: then the kernel beside it runs. An
 * address that is only as aligned as the plan promises stands for the bias'. */
static void prepare_product(struct handle *handle, const struct ul_model *model, uint32_t index,
                            bool tunes, struct ul_cuda_choice *choice, unsigned char *arena,
                            cudaStream_t stream)
{
    const struct ul_call *call = &model->device->calls[index];
    struct product *product = &handle->products[index];
    struct ul_cuda_trial trial;
    bool fits = ul_cuda_trial_place(&trial, call, arena, model->arena_bytes) != 0;
    struct timing timing = {handle, product, fits ? &trial : NULL, stream};
    const void *bias = arena + call->align_bytes;
    product->workspace_bytes = ul_call_workspace_bytes(call);
    if (!describe_product(handle, call, product) ||
        (product->has_bias &&
         !set(handle, product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias)))
        return;
    bool named = !tunes && take_choice(handle, call, product, choice) && runs(&timing);
    product->is_ready = named || choose(&timing, call, tunes);
    if (!product->is_ready)
        return;
    ul_cuda_put_hex(choice->text, &product->algorithm, sizeof product->algorithm);
    name_product(handle, product);
}

static enum ul_result prepare(void *opaque, const struct ul_model *model,
                              const struct ul_device_request *request, unsigned char *arena,
                              void *stream, struct ul_failure *failure)
{
    struct handle *handle = (struct handle *)opaque;
    const struct ul_device *device = model->device;
    const char *reason = NULL;
    bool tunes = request->choices != NULL && request->tune != 0;
    struct ul_cuda_choice *choices =
        (struct ul_cuda_choice *)calloc(device->call_count, sizeof *choices);
    handle->products = (struct product *)calloc(device->call_count, sizeof *handle->products);
    enum ul_result result = UL_OK;
    if (choices == NULL || handle->products == NULL)
        result = refuse(failure, UL_LIBRARY_FAILED, 0, "cuBLASLt: the host is out of memory");
    else
        handle->call_count = device->call_count;
    if (result == UL_OK && request->choices != NULL && !tunes &&
        !ul_cuda_read_choices(request->choices, model, "cublaslt", handle->lt.GetVersion(), choices,
                              &reason))
        result = refuse(failure, UL_CHOICES_INVALID, 0, reason);
    for (uint32_t i = 0; result == UL_OK && i < device->call_count; i++) {
        if (device->calls[i].kind == UL_CALL_MATMUL)
            prepare_product(handle, model, i, tunes, &choices[i], arena, (cudaStream_t)stream);
    }
    (void)cudaGetLastError(); /* of trials that failed */
    if (result == UL_OK && tunes &&
        !ul_cuda_write_choices(request->choices, model, "cublaslt", handle->lt.GetVersion(),
                               choices, &reason))
        result = refuse(failure, UL_CHOICES_UNWRITTEN, 0, reason);
    free(choices);
    return result;
}

/* ---- the library ---- */

static void describe(const void *opaque, char text[UL_DEVICE_TEXT_BYTES])
{
    const struct handle *handle = (const struct handle *)opaque;
    size_t version = handle != NULL ? handle->lt.GetVersion() : CUBLAS_VERSION;
    (void)snprintf(text, UL_DEVICE_TEXT_BYTES, "cuBLASLt %d.%d.%d", (int)(version / 10000),
                   (int)(version / 100 % 100), (int)(version % 100));
}

static const char *implementation(const void *opaque, uint32_t call)
{
    const struct handle *handle = (const struct handle *)opaque;
    const char *name = call < handle->call_count ? handle->products[call].name : "";
    return name[0] != '\0' ? name : NULL;
}

const struct ul_device_library ul_cublas = {"cuBLASLt",   open_handle, prepare,
                                            close_handle, describe,    implementation};
