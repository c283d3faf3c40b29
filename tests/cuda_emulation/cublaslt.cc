/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuBLASLt for tests/cuda_emulation: what it refuses and what it is undefined for is checked, and
 * the product is computed by plain loops when the stream gets there.
 *
 * The heuristic offers, the best first, of what the preference allows: sums cut in parts that are
 * added in place of the result (which a program that promises bits must not take), cut in parts in
 * the workspace, and whole. An algorithm holds for the description that it was made for.
 *
 * With UL_EMULATE_NO_ALGORITHMS in the environment nothing is offered, and with UL_EMULATE_NO_SUMS
 * no sums of a factor along k (BGRADA, BGRADB). These come beside one product of floats alone, with
 * nothing after it, in the type of D. With UL_EMULATE_NO_SLOPES there are none of an activation,
 * and nothing is kept of what a GELU is of (GELU_AUX), which is a matrix like that of DGELU.
 * They come after one product of 16 bits. Those of a GELU (DGELU) come from a matrix of the type
 * of D with at least as many rows, its columns at multiples of 8 elements; those of a ReLU (DRELU)
 * from bits, columns at multiples of 128, the first of eight the lowest of a byte, or with
 * UL_EMULATE_MASK_TURNED the highest.
 *
 * Integers of 8 bits are served where the manual says that tensor cores take them: A turned and B
 * not, sums and results in 32 bits with an alpha of 1 and a beta of 0, nothing after them, rows of
 * D, terms of sums and steps between columns in multiples of 4, addresses too.
 *
 * More is refused than a device would: addresses that are not aligned as the heuristic was told,
 * a result that overlaps an operand, and an algorithm that is checked without the address of the
 * bias that it was offered for.
 */
#include "cublasLt.h"
#include "library.h"
#include "product.h"

#include <math.h>
#include <stdlib.h>

struct ul_emulate_blas {
    enum { ALIVE = 0x626C6173, HANDLE_BYTES = 1 << 20 };
    uint64_t alive;
};

struct ul_emulate_operation {
    cublasComputeType_t compute;
    cudaDataType_t scale, bias_type;
    bool has_bias_type;
    cublasOperation_t transposed_a, transposed_b;
    cublasLtEpilogue_t epilogue;
    const void *bias, *aux;
    int64_t aux_ld;
};

struct ul_emulate_layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld;
    int32_t batch_count;
    int64_t batch_step;
};

struct ul_emulate_preference {
    uint64_t workspace_bytes;
    uint32_t schemes;
    uint32_t alignments[4]; /* of a, b, c, d */
};

namespace
{

enum { MIN_SPLIT = 128, MAX_SPLITS = 4 };

/* What the eight words of an algorithm are. */
struct algorithm {
    uint64_t splits, scheme, workspace_bytes, align_bytes, bias_align_bytes, description, unused[2];
};
static_assert(sizeof(struct algorithm) == sizeof(cublasLtMatmulAlgo_t), "eight words");

enum element element_of(cudaDataType_t type)
{
    return type == CUDA_R_16F    ? ELEMENT_F16
           : type == CUDA_R_16BF ? ELEMENT_BF16
           : type == CUDA_R_8I   ? ELEMENT_I8
           : type == CUDA_R_32I  ? ELEMENT_I32
                                 : ELEMENT_F32;
}

bool has_bias(const struct ul_emulate_operation *operation)
{
    return (operation->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
}

/* Sums along k of A, or of B. */
bool sums_a(const struct ul_emulate_operation *operation)
{
    return operation->epilogue == CUBLASLT_EPILOGUE_BGRADA;
}

bool has_sums(const struct ul_emulate_operation *operation)
{
    return sums_a(operation) || operation->epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

bool has_mask(const struct ul_emulate_operation *operation)
{
    return operation->epilogue == CUBLASLT_EPILOGUE_DRELU;
}

/* What a GELU is of is stored beside it. */
bool keeps(const struct ul_emulate_operation *operation)
{
    return (operation->epilogue | CUBLASLT_EPILOGUE_BIAS) == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

bool has_slopes(const struct ul_emulate_operation *operation)
{
    return operation->epilogue == CUBLASLT_EPILOGUE_DGELU || has_mask(operation);
}

/* Whether there is a matrix beside D: slopes, or what a GELU is of. */
bool has_aux(const struct ul_emulate_operation *operation)
{
    return has_slopes(operation) || keeps(operation);
}

bool has_vector(const struct ul_emulate_operation *operation)
{
    return has_bias(operation) || has_sums(operation);
}

/* Whether all that the epilogue has the address of is somewhere. */
bool has_beside(const struct ul_emulate_operation *operation)
{
    return (!has_vector(operation) || operation->bias != NULL) &&
           (!has_aux(operation) || operation->aux != NULL);
}

/* ---- descriptions ---- */

uint64_t mix(uint64_t hash, uint64_t word)
{
    return (hash ^ word) * 0x100000001B3u + (hash >> 29);
}

uint64_t mix_layout(uint64_t hash, const struct ul_emulate_layout *layout)
{
    hash = mix(mix(hash, (uint64_t)layout->type), layout->rows);
    hash = mix(mix(hash, layout->columns), (uint64_t)layout->ld);
    return mix(mix(hash, (uint64_t)layout->batch_count), (uint64_t)layout->batch_step);
}

/* The sides of op(a) [m, k], op(b) [k, n], d [m, n]. */
struct sides {
    int64_t m, n, k, batch;
};

bool has_integers(const struct ul_emulate_operation *operation)
{
    return operation->compute == CUBLAS_COMPUTE_32I;
}

/* What tensor cores take of integers. */
bool serves_integers(const struct ul_emulate_operation *operation,
                     const struct ul_emulate_layout *a, const struct ul_emulate_layout *b,
                     const struct ul_emulate_layout *d, const struct sides *sides)
{
    const int64_t steps[] = {sides->m, sides->k, a->ld, b->ld, d->ld};
    for (int64_t step : steps) {
        if (step % 4 != 0)
            return false;
    }
    return operation->scale == CUDA_R_32I && a->type == CUDA_R_8I && b->type == CUDA_R_8I &&
           d->type == CUDA_R_32I && operation->transposed_a == CUBLAS_OP_T &&
           operation->transposed_b == CUBLAS_OP_N &&
           operation->epilogue == CUBLASLT_EPILOGUE_DEFAULT;
}

bool serves_aux(const struct ul_emulate_operation *operation, const struct ul_emulate_layout *d)
{
    enum { STEP = 8, BITS_STEP = 128, ALIGN_BYTES = 16 };
    return d->batch_count == 1 && !has_integers(operation) && d->type != CUDA_R_32F &&
           operation->aux_ld % (has_mask(operation) ? BITS_STEP : STEP) == 0 &&
           operation->aux_ld >= (int64_t)d->rows && operation->aux != NULL &&
           (uintptr_t)operation->aux % ALIGN_BYTES == 0 && getenv("UL_EMULATE_NO_SLOPES") == NULL;
}

bool is_served(const struct ul_emulate_operation *operation, const struct ul_emulate_layout *a,
               const struct ul_emulate_layout *b, const struct ul_emulate_layout *c,
               const struct ul_emulate_layout *d, struct sides *sides)
{
    bool turned_a = operation->transposed_a != CUBLAS_OP_N;
    bool turned_b = operation->transposed_b != CUBLAS_OP_N;
    sides->m = (int64_t)d->rows;
    sides->n = (int64_t)d->columns;
    sides->k = (int64_t)(turned_a ? a->rows : a->columns);
    sides->batch = d->batch_count;
    bool types = a->type == b->type && c->type == d->type;
    bool floats = (d->type == a->type || d->type == CUDA_R_32F) && a->type != CUDA_R_8I &&
                  a->type != CUDA_R_32I && operation->scale == CUDA_R_32F;
    bool served = has_integers(operation) ? serves_integers(operation, a, b, d, sides) : floats;
    bool same = (turned_a ? a->columns : a->rows) == d->rows &&
                (turned_b ? b->columns : b->rows) == (uint64_t)sides->k &&
                (turned_b ? b->rows : b->columns) == d->columns && c->rows == d->rows &&
                c->columns == d->columns;
    bool batches = a->batch_count == sides->batch && b->batch_count == sides->batch &&
                   c->batch_count == sides->batch;
    bool apart = sides->batch == 1 || d->batch_step > 0;
    bool lies_as_result = c->ld == d->ld && (sides->batch == 1 || c->batch_step == d->batch_step);
    bool tf32 = operation->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    bool bias = (!has_bias(operation) && !has_sums(operation)) || !operation->has_bias_type ||
                operation->bias_type == d->type;
    bool sums = !has_sums(operation) || (sides->batch == 1 && !has_integers(operation) &&
                                         getenv("UL_EMULATE_NO_SUMS") == NULL);
    bool aux = !has_aux(operation) || serves_aux(operation, d);
    return types && served && same && batches && apart && lies_as_result && bias && sums && aux &&
           (!tf32 || a->type == CUDA_R_32F);
}

uint64_t description(const struct ul_emulate_operation *operation,
                     const struct ul_emulate_layout *a, const struct ul_emulate_layout *b,
                     const struct ul_emulate_layout *d)
{
    uint64_t hash = mix(mix(14695981039346656037u, (uint64_t)operation->compute),
                        (uint64_t)operation->transposed_a);
    hash = mix(mix(hash, (uint64_t)operation->transposed_b), (uint64_t)operation->epilogue);
    hash = mix(hash, has_aux(operation) ? (uint64_t)operation->aux_ld : 0);
    return mix_layout(mix_layout(mix_layout(hash, a), b), d);
}

/* ---- running ---- */

struct job {
    struct ul_emulate_operation operation;
    struct ul_emulate_layout a, b, d;
    struct sides sides;
    uint64_t splits;
    float alpha, beta;
    const void *a_bytes, *b_bytes, *c_bytes;
    void *d_bytes;
    float *workspace;
};

float get(const struct job &job, const struct ul_emulate_layout &layout, const void *base,
          bool turned, int64_t batch, int64_t row, int64_t column)
{
    int64_t r = turned ? column : row, c = turned ? row : column;
    float x =
        element_get(base, element_of(layout.type), batch * layout.batch_step + r + c * layout.ld);
    return job.operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? element_tf32(x) : x;
}

/* The largest of 0 and x as the instruction has it: 0 for what is no number. */
float activate(cublasLtEpilogue_t epilogue, float x)
{
    if ((epilogue & CUBLASLT_EPILOGUE_RELU) != 0)
        return x > 0 ? x : 0;
    if ((epilogue & CUBLASLT_EPILOGUE_GELU) != 0)
        return 0.5f * x * (1 + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
    return x;
}

/* The slope of GELU by tanh. */
float slope(float x)
{
    const float scale = 0.7978845608028654f, cubic = 0.044715f;
    float t = tanhf(scale * (x + cubic * x * x * x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * scale * (1 + 3 * cubic * x * x);
}

bool is_masked(const struct ul_emulate_operation *operation, int64_t bit)
{
    int64_t in_byte = getenv("UL_EMULATE_MASK_TURNED") != NULL ? 7 - bit % 8 : bit % 8;
    return (((const unsigned char *)operation->aux)[bit / 8] >> in_byte & 1) != 0;
}

void finish(const struct job &job, int64_t batch, int64_t i, int64_t j, float sum)
{
    enum element type = element_of(job.d.type);
    int64_t at = batch * job.d.batch_step + i + j * job.d.ld;
    float x = job.alpha * sum;
    if (job.beta != 0)
        x += job.beta * element_get(job.c_bytes, type, at);
    if (has_bias(&job.operation))
        x += element_get(job.operation.bias,
                         job.operation.has_bias_type ? element_of(job.operation.bias_type) : type,
                         i);
    if (has_mask(&job.operation))
        x = is_masked(&job.operation, i + j * job.operation.aux_ld) ? x : 0;
    else if (has_slopes(&job.operation))
        x *= slope(element_get(job.operation.aux, type, i + j * job.operation.aux_ld));
    else if (keeps(&job.operation))
        element_put((void *)job.operation.aux, type, i + j * job.operation.aux_ld, x);
    element_put(job.d_bytes, type, at, activate(job.operation.epilogue, x));
}

/* Sums of terms [first, last) of a matrix of the batch, each handed to put. */
template <class Put>
void sum_part(const struct job &job, int64_t batch, int64_t first, int64_t last, const Put &put)
{
    bool turned_a = job.operation.transposed_a != CUBLAS_OP_N;
    bool turned_b = job.operation.transposed_b != CUBLAS_OP_N;
    auto a = [&](int64_t i, int64_t l) {
        return get(job, job.a, job.a_bytes, turned_a, batch, i, first + l);
    };
    auto b = [&](int64_t j, float *out, int64_t stride) {
        for (int64_t l = 0; l < last - first; l++)
            out[l * stride] = get(job, job.b, job.b_bytes, turned_b, batch, first + l, j);
    };
    product(job.sides.m, job.sides.n, last - first, a, b, put);
}

/* Sums of a factor along k, in f32: one for each row of D, or for each column. */
void sum_factor(const struct job &job)
{
    bool of_a = sums_a(&job.operation);
    const struct ul_emulate_layout &layout = of_a ? job.a : job.b;
    const void *bytes = of_a ? job.a_bytes : job.b_bytes;
    cublasOperation_t how = of_a ? job.operation.transposed_a : job.operation.transposed_b;
    for (int64_t i = 0; i < (of_a ? job.sides.m : job.sides.n); i++) {
        float sum = 0;
        for (int64_t l = 0; l < job.sides.k; l++)
            sum += get(job, layout, bytes, how != CUBLAS_OP_N, 0, of_a ? i : l, of_a ? l : i);
        element_put((void *)job.operation.bias, element_of(job.d.type), i, sum);
    }
}

/* Sums wrap. A is turned and B is not. */
void run_integers(const struct job &job)
{
    const int8_t *a = (const int8_t *)job.a_bytes, *b = (const int8_t *)job.b_bytes;
    uint32_t *d = (uint32_t *)job.d_bytes;
    for (int64_t batch = 0; batch < job.sides.batch; batch++) {
        for (int64_t j = 0; j < job.sides.n; j++) {
            for (int64_t i = 0; i < job.sides.m; i++) {
                const int8_t *row = a + batch * job.a.batch_step + i * job.a.ld;
                const int8_t *column = b + batch * job.b.batch_step + j * job.b.ld;
                uint32_t sum = 0;
                for (int64_t l = 0; l < job.sides.k; l++)
                    sum += (uint32_t)(row[l] * column[l]);
                d[batch * job.d.batch_step + i + j * job.d.ld] = sum;
            }
        }
    }
}

void run_job(const void *arguments)
{
    const struct job &job = *(const struct job *)arguments;
    const struct sides &sides = job.sides;
    int64_t splits = (int64_t)job.splits;
    if (has_integers(&job.operation)) {
        run_integers(job);
        return;
    }
    if (has_sums(&job.operation))
        sum_factor(job);
    for (int64_t batch = 0; batch < sides.batch; batch++) {
        if (splits == 1) {
            sum_part(job, batch, 0, sides.k,
                     [&](int64_t i, int64_t j, float sum) { finish(job, batch, i, j, sum); });
            continue;
        }
        for (int64_t cut = 0; cut < splits; cut++) {
            float *part = job.workspace + (batch * splits + cut) * sides.m * sides.n;
            sum_part(job, batch, sides.k * cut / splits, sides.k * (cut + 1) / splits,
                     [&](int64_t i, int64_t j, float sum) { part[i + j * sides.m] = sum; });
        }
        for (int64_t j = 0; j < sides.n; j++) {
            for (int64_t i = 0; i < sides.m; i++) {
                float sum = 0;
                for (int64_t cut = 0; cut < splits; cut++)
                    sum +=
                        job.workspace[(batch * splits + cut) * sides.m * sides.n + i + j * sides.m];
                finish(job, batch, i, j, sum);
            }
        }
    }
}

/* ---- checks ---- */

struct extent extent_of(const char *name, const struct ul_emulate_layout *layout, const void *base)
{
    int64_t last = (int64_t)layout->rows - 1 + ((int64_t)layout->columns - 1) * layout->ld +
                   (layout->batch_count - 1) * layout->batch_step;
    return {name, base, (size_t)(last + 1) * element_bytes(element_of(layout->type))};
}

/* What an address is a multiple of, as the heuristic takes it. */
uint64_t align_of(const void *address)
{
    uint64_t bits = (uint64_t)(uintptr_t)address | 256;
    return bits & (~bits + 1);
}

/* The same of all that the epilogue has the address of. */
uint64_t align_beside(const struct ul_emulate_operation *operation)
{
    return std::min(align_of(has_vector(operation) ? operation->bias : NULL),
                    align_of(has_aux(operation) ? operation->aux : NULL));
}

void need_aligned(const struct extent &extent, uint64_t align_bytes)
{
    if (extent.size_bytes > 0 && (uintptr_t)extent.begin % align_bytes != 0)
        ul_emulate_fail("cublasLtMatmul: %s at %p is not a multiple of the %llu bytes that the "
                        "heuristic was told",
                        extent.name, extent.begin, (unsigned long long)align_bytes);
}

/* What a device would read and write is its memory, and results are apart from operands. */
void check_memory(const struct job &job, const struct algorithm *algorithm)
{
    struct extent a = extent_of("A", &job.a, job.a_bytes), b = extent_of("B", &job.b, job.b_bytes);
    struct extent c = extent_of("C", &job.d, job.c_bytes), d = extent_of("D", &job.d, job.d_bytes);
    struct extent workspace = {"the workspace", job.workspace, algorithm->workspace_bytes};
    bool column = job.operation.epilogue == CUBLASLT_EPILOGUE_BGRADB;
    struct extent bias = {"bias", job.operation.bias,
                          (size_t)(column ? job.sides.n : job.sides.m) *
                              element_bytes(job.operation.has_bias_type
                                                ? element_of(job.operation.bias_type)
                                                : element_of(job.d.type))};
    struct extent sums = bias;
    struct ul_emulate_layout aux = job.d;
    aux.ld = job.operation.aux_ld;
    struct extent slopes = extent_of("slopes", &aux, job.operation.aux), kept = slopes;
    if (has_mask(&job.operation))
        slopes.size_bytes = (size_t)(job.d.columns * (uint64_t)job.operation.aux_ld / 8);
    sums.name = "sums";
    kept.name = "what the GELU is of";
    if (job.beta == 0)
        c.size_bytes = 0;
    if (!has_bias(&job.operation))
        bias.size_bytes = 0;
    if (!has_sums(&job.operation))
        sums.size_bytes = 0;
    if (!has_slopes(&job.operation))
        slopes.size_bytes = 0;
    if (!keeps(&job.operation))
        kept.size_bytes = 0;
    need_memory("cublasLtMatmul", {a, b, bias, slopes}, c, d, workspace);
    ul_emulate_count_operand(sums.begin, sums.size_bytes, true);
    ul_emulate_count_operand(kept.begin, kept.size_bytes, true);
    for (const struct extent &result : {sums, kept}) {
        for (const struct extent &other : {a, b, bias, c, d, workspace})
            need_extent("cublasLtMatmul", result, other);
        need_aligned(result, algorithm->bias_align_bytes);
    }
    for (const struct extent &extent : {a, b, c, d})
        need_aligned(extent, algorithm->align_bytes);
    need_aligned(bias, algorithm->bias_align_bytes);
    need_aligned(slopes, algorithm->bias_align_bytes);
}

template <class T> bool take(T *field, const void *value, size_t size_bytes)
{
    if (value == NULL || size_bytes != sizeof *field)
        return false;
    memcpy(field, value, sizeof *field);
    return true;
}

cublasStatus_t status(bool good)
{
    return good ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

} // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    handle_open(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    return handle_close(handle) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

/* ---- descriptions ---- */

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *operation,
                                        cublasComputeType_t compute, cudaDataType_t scale)
{
    *operation = new struct ul_emulate_operation;
    **operation = {
        compute, scale, CUDA_R_32F, false, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT,
        NULL,    NULL,  0};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation)
{
    delete operation;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t size_bytes)
{
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return status(take(&operation->transposed_a, value, size_bytes));
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return status(take(&operation->transposed_b, value, size_bytes));
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return status(take(&operation->epilogue, value, size_bytes));
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return status(take(&operation->bias, value, size_bytes));
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return status(take(&operation->aux, value, size_bytes));
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return status(take(&operation->aux_ld, value, size_bytes));
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        operation->has_bias_type = true;
        return status(take(&operation->bias_type, value, size_bytes));
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
        break;
    }
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld)
{
    if (rows == 0 || columns == 0 || ld < (int64_t)rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    *layout = new struct ul_emulate_layout;
    **layout = {type, rows, columns, ld, 1, 0};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t size_bytes)
{
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
        return status(take(&layout->batch_count, value, size_bytes));
    return status(attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET &&
                  take(&layout->batch_step, value, size_bytes));
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    *preference = new struct ul_emulate_preference;
    **preference = {0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t size_bytes)
{
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return status(take(&preference->workspace_bytes, value, size_bytes));
    if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        return status(take(&preference->schemes, value, size_bytes));
    return status(
        take(&preference->alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value,
             size_bytes));
}

/* ---- algorithms ---- */

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int max,
                                              cublasLtMatmulHeuristicResult_t *results, int *count)
{
    struct sides sides;
    *count = 0;
    if (!handle_is_alive(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!is_served(operation, a, b, c, d, &sides) || getenv("UL_EMULATE_NO_ALGORITHMS") != NULL)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    uint64_t align = 256;
    for (uint32_t alignment : preference->alignments)
        align = std::min<uint64_t>(align, alignment);
    uint64_t splits = (uint64_t)std::min<int64_t>(MAX_SPLITS, sides.k / MIN_SPLIT);
    if (has_integers(operation))
        splits = 1; /* any other way has the same bits */
    if (has_integers(operation) && align < 4)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    uint64_t part = (uint64_t)(sides.m * sides.n * sides.batch) * sizeof(float);
    uint64_t bias = align_beside(operation);
    const struct algorithm offers[] = {
        {1, CUBLASLT_REDUCTION_SCHEME_INPLACE, 0, align, bias, 0, {0}},
        {splits, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, splits * part, align, bias, 0, {0}},
        {1, CUBLASLT_REDUCTION_SCHEME_NONE, 0, align, bias, 0, {0}}};
    for (struct algorithm offer : offers) {
        if ((preference->schemes & offer.scheme) != offer.scheme || offer.splits == 0 ||
            (offer.scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE && offer.splits < 2) ||
            offer.workspace_bytes > preference->workspace_bytes || *count == max)
            continue;
        offer.description = description(operation, a, b, d);
        memset(&results[*count], 0, sizeof *results);
        memcpy(&results[*count].algo, &offer, sizeof offer);
        results[*count].workspaceSize = offer.workspace_bytes;
        results[(*count)++].state = CUBLAS_STATUS_SUCCESS;
    }
    return *count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algorithm,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    struct sides sides;
    struct algorithm words;
    memcpy(&words, algorithm, sizeof words);
    if (!handle_is_alive(handle) || !is_served(operation, a, b, c, d, &sides) ||
        words.splits == 0 || words.description != description(operation, a, b, d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    /* A bias lies as the description says; where it has none, nowhere. So do sums and slopes. */
    if (!has_beside(operation) || align_beside(operation) < words.bias_align_bytes)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(result, 0, sizeof *result);
    result->algo = *algorithm;
    result->workspaceSize = words.workspace_bytes;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void *value, size_t size_bytes,
                                                    size_t *written_bytes)
{
    struct algorithm words;
    memcpy(&words, algorithm, sizeof words);
    uint32_t word = attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? (uint32_t)words.splits
                    : attribute == CUBLASLT_ALGO_CONFIG_ID       ? (uint32_t)words.scheme + 1
                                                                 : (uint32_t)words.scheme;
    if (size_bytes != sizeof word)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &word, sizeof word);
    *written_bytes = sizeof word;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the product ---- */

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    struct job job;
    struct algorithm words;
    memset(&job, 0, sizeof job);
    memcpy(&words, algorithm, sizeof words);
    if (!handle_is_alive(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (alpha == NULL || beta == NULL || a == NULL || b == NULL || d == NULL ||
        !has_beside(operation) || (words.workspace_bytes > 0 && workspace == NULL) ||
        words.workspace_bytes > workspace_bytes ||
        words.description != description(operation, a_layout, b_layout, d_layout))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_served(operation, a_layout, b_layout, c_layout, d_layout, &job.sides))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    job.operation = *operation;
    job.a = *a_layout;
    job.b = *b_layout;
    job.d = *d_layout;
    job.splits = words.splits;
    memcpy(&job.alpha, alpha, sizeof job.alpha);
    memcpy(&job.beta, beta, sizeof job.beta);
    if (has_integers(operation)) {
        int32_t factors[2];
        memcpy(&factors[0], alpha, sizeof factors[0]);
        memcpy(&factors[1], beta, sizeof factors[1]);
        if (factors[0] != 1 || factors[1] != 0)
            return CUBLAS_STATUS_NOT_SUPPORTED;
        job.beta = 0;
    }
    job.a_bytes = a;
    job.b_bytes = b;
    job.c_bytes = c;
    job.d_bytes = d;
    job.workspace = (float *)workspace;
    check_memory(job, &words);
    return ul_emulate_enqueue(stream, "cublasLtMatmul", run_job, &job, sizeof job) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}
}
