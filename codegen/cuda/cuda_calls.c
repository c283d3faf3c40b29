/* SPDX-License-Identifier: Apache-2.0 */
/* Decides from the graph alone which calls of target cuda are cuBLASLt's and cuDNN's: the compiler
 * links neither, and machines that build need no GPU.
 *
 * Problem: a plan must run on every device, while the algorithms, and the workspace that they want,
 * depend on the device. Method: a call is planned where the libraries document that they compute
 * it, with a workspace that shapes justify, bounded by --workspace; at its start the program asks
 * for algorithms that need no more (runtime/cuda/ul_cublas.cu, ul_cudnn.cu). Where there are none,
 * a kernel of ours runs, which accompanies each call.
 *
 *      MatMul, Gemm, Conv 1x1   cuBLASLt   act(alpha * src * weights + residual + bias)
 *      gradients of a Conv 1x1  cuBLASLt   as the products that they are
 *      ... and Accumulate       cuBLASLt   sum + product where the sum of a step's runs lies
 *      ... and a bias' gradient cuBLASLt   sums of a factor with the product (program/sums.c)
 *      ... and that of a GELU   cuBLASLt   product * slopes of GELU by tanh (program/slopes.c)
 *      ... and what a GELU is of cuBLASLt  the product beside GELU by tanh of it
 *      MatMulInteger            cuBLASLt   only sums in i32
 *      Conv                     cuDNN      act(conv(src, weights) + residual + bias)
 *      ConvTranspose            cuDNN      the gradient of the source of a Conv
 *      ConvWeightGradient       cuDNN      that of its weights, in the type of its operands
 *      Attention, 16 bits       cuDNN      softmax(scale * q * k + masks) * v
 *      its gradient             cuDNN      those of q, k and v, from norms and result
 *
 * Matrices are given by strides. To cuBLASLt, which is column-major, a row-major result [m, n] is a
 * matrix of n rows, so its operands are given in reverse order, and the bias, one number for each
 * of our columns, is one for each of its rows. Its activations are ReLU and GELU by tanh; anything
 * else ends the group, and is a kernel of its own in the same place.
 *
 * A convolution of 1x1 over channels that lie innermost is a product of all pixels with the
 * weights: cuBLASLt takes it in any slice of a Concat, and it needs no cuDNN. cuDNN gets dense
 * tensors with channels innermost.
 *
 * Elements are f32, f16 or bf16, sums are f32; factors are of one type, and a bias is of the
 * result's, which for convolutions is that of the factors.
 *
 * Integers are multiplied where both factors have signs, terms of a sum lie side by side in both
 * (pass filters) and all sides are multiples of 4, as cuBLASLt documents for its tensor cores; what
 * is made of the sums is a kernel in their place. (What has no signs when the program runs gets
 * them by pass integers.) So only sums that stay 32 bits wide go there, and only large ones: a
 * kernel of ours, which adds bytes of any sign and rounds to 8 bits at once, saves a launch and two
 * passes over the sums, which at 3 TB/s take as long as half of 2^30 products at 200 T products a
 * second. Results of 8 bits are calls of neither library: neither says how it rounds, nor adds
 * integers before it scales; and sources of cuDNN's have signs, and 0 for padding.
 *
 * A gradient that is accumulated over the runs of a step is D = alpha * A * B + beta * C with C and
 * D in the place of the sum. The call sums the terms of a run in f32, and then adds that to the sum
 * once. In the first run of a step beta is 0, so that the library does not read the old sum. A
 * captured call cannot read the number of the run, so the first run has an entry point of its own
 * (program/entries.c).
 *
 * Attention is cuDNN's where its elements have 16 bits, heads have multiples of 8 up to 256
 * contiguous elements, and all other strides are multiples of 16 bytes: its engines for tensor
 * cores take such heads. They are compiled when the program starts, about a second for each shape,
 * so they pay off only for large attention: where a kernel of ours takes about as long as a launch,
 * it stays. For a query whose keys are all masked by -infinity the result may be other than NaN.
 *
 * The gradient of attention is cuDNN's where that may have the scratch that engines want: on most
 * devices slopes of all scores, on those of compute capability 10 only sums of queries.
 * passes/training/library.c decides which steps have room for it in every plan.
 *
 * Ours stay: products of few operations, batches of small matrices, sums of few terms, convolutions
 * of few channels in a group: a kernel of one launch computes them faster than a library, whose
 * tiles are made for more. So does the first layer of a network for images: its three channels
 * (four, with passes/graph/stem.c) are apart in memory, or else cuDNN pads them in a workspace,
 * where the largest values are (in f16, networks for mobiles took up to a third more memory for
 * it). Slices of a Concat stay ours too: cuDNN documents tensors with channels innermost only if
 * they are fully packed, and a copy after each call would be another launch. Other activations
 * after a convolution stay ours: cuDNN's engines for them compile when the program starts, for
 * seconds each.
 *
 * Gradients of weights in f32, from factors in 16 bits, stay ours: cuDNN has no deterministic
 * engine for them (asked of 9.19, for compute capability 8.0, 9.0, 10.0 and 12.0).
 *
 * Left undone: pooling; operators after a transposed convolution (where steps are as wide as the
 * kernel it is a product: passes/graph/transposed.c); convolutions of three axes of space; scaled
 * residuals. */
#include "codegen/cuda/cuda.h"
#include "codegen/program/library_internal.h"

#include <string.h>

/* What algorithms keep besides their sums: tables and counters. */
#define TABLE_BYTES ((uint64_t)64 << 10)

#define CUBLASLT "cublaslt"
#define CUDNN "cudnn"

/* Tests build a compiler that gives the libraries everything that they take. */
#ifndef UL_CUDA_CALLS_ALL
#define UL_CUDA_CALLS_ALL 0
#endif

enum { MIN_PART = 256 }; /* terms of each part, where a library cuts a sum */

enum {
    MIN_PRODUCTS = UL_CUDA_CALLS_ALL ? 1 : 1 << 15,        /* of a call */
    MIN_MATRIX_PRODUCTS = UL_CUDA_CALLS_ALL ? 1 : 1 << 12, /* of each matrix of a batch */
    MIN_DEPTH = UL_CUDA_CALLS_ALL ? 1 : 4,                 /* terms of a sum */
    MIN_SUMS_PRODUCTS = UL_CUDA_CALLS_ALL ? 1 : UL_CUDA_SUMS_PRODUCTS,
    SUMS_STEP = 4,
    MIN_ATTENTION_PRODUCTS = UL_CUDA_CALLS_ALL ? 1 : 1 << 26, /* 0.3 us at 500 T of operations */
    MIN_CHANNELS = UL_CUDA_CALLS_ALL ? 1 : 4,   /* of a group of a convolution, in and out */
    IMAGE_CHANNELS = UL_CUDA_CALLS_ALL ? 0 : 4, /* that an image has in 16 bits */
    KEPT_ALIGN_BYTES = 16,                      /* for results of which one is what a GELU is of */
    CALLERS_ALIGN_BYTES = 16                    /* for the buffers of --io caller */
};

struct context {
    const struct ul_program_options *options;
    const char *implementation; /* of its calls: the library that they are of */
};

/* ---- post-operations ---- */

/* alpha, then the residual, then one activation. A bias is added unscaled. */
static bool supports_posts(const struct ul_call *call, bool is_product)
{
    uint32_t i = 0;
    const struct ul_post *posts = call->posts;
    if (i < call->post_count && posts[i].kind == UL_POST_LINEAR && posts[i].beta == 0 &&
        call->bias.rank == 0 && is_product)
        i++;
    if (i < call->post_count && posts[i].kind == UL_POST_SUM)
        i++;
    if (i < call->post_count && posts[i].kind == UL_POST_RELU && posts[i].alpha == 0)
        i++;
    else if (i < call->post_count && posts[i].kind == UL_POST_GELU_TANH && is_product)
        i++;
    return i == call->post_count;
}

/* ---- matrix products ---- */

/* One of the last two axes must be contiguous, and the other step over it. */
static bool is_matrix(const struct ul_call_tensor *tensor)
{
    UL_ASSERT(tensor->rank >= 2);
    uint32_t r = tensor->rank - 2, c = tensor->rank - 1;
    const int64_t *dims = tensor->dims, *strides = tensor->strides;
    return (strides[c] == 1 && strides[r] >= dims[c]) || (strides[r] == 1 && strides[c] >= dims[r]);
}

static bool is_row_major(const struct ul_call_tensor *tensor)
{
    UL_ASSERT(tensor->rank >= 2);
    uint32_t r = tensor->rank - 2, c = tensor->rank - 1;
    return tensor->strides[c] == 1 && tensor->strides[r] >= tensor->dims[c];
}

static bool fits_int(const struct ul_call_tensor *tensor)
{
    for (uint32_t d = 0; d < tensor->rank; d++) {
        if (tensor->dims[d] > INT32_MAX)
            return false;
    }
    return true;
}

/* What a GELU is of is a result beside that of the GELU where both are alike: dense rows of
 * multiples of 8 elements of 16 bits. */
static bool supports_kept(const struct ul_call *call)
{
    enum { STEP = 8 };
    const struct ul_call_tensor *kept = ul_call_kept(call), *dst = &call->dst;
    return kept == NULL ||
           (dst->rank == 2 && call->post_count == 1 && dst->type != UL_CALL_F32 &&
            dst->type == call->src.type && kept->type == dst->type && dst->dims[1] % STEP == 0 &&
            dst->strides[0] == dst->dims[1] && dst->strides[1] == 1 &&
            kept->strides[0] == dst->dims[1] && kept->strides[1] == 1);
}

static bool supports_product(const struct ul_call *call, uint64_t product_count)
{
    uint32_t rank = call->dst.rank;
    uint64_t batch = rank == 3 ? (uint64_t)call->dst.dims[0] : 1;
    return (rank == 2 || rank == 3) && is_matrix(&call->src) && is_matrix(&call->weights) &&
           is_row_major(&call->dst) && fits_int(&call->src) && fits_int(&call->weights) &&
           fits_int(&call->dst) && product_count >= MIN_PRODUCTS &&
           call->src.dims[rank - 1] >= MIN_DEPTH &&
           (batch == 1 || product_count / batch >= MIN_MATRIX_PRODUCTS) &&
           (call->bias.rank == 0 || call->bias.strides[rank - 1] == 1);
}

static bool is_step(int64_t elements)
{
    return elements % SUMS_STEP == 0;
}

/* Sums of products of integers that cuBLASLt computes on tensor cores. */
static bool supports_sums(const struct ul_group_call *group)
{
    const struct ul_call *call = &group->call;
    return group->stays_wide && call->dst.type == UL_CALL_I32 && call->src.type == UL_CALL_I8 &&
           call->weights.type == UL_CALL_I8 && call->src_zero_kind == UL_ZERO_IS_0 &&
           call->bias.rank == 0 && call->post_count == 0 && !ul_call_is_scaled(call) &&
           call->dst.rank == 2 && is_row_major(&call->src) && is_row_major(&call->dst) &&
           call->weights.strides[0] == 1 && is_step(call->src.dims[1]) &&
           is_step(call->dst.dims[1]) && is_step(call->src.strides[0]) &&
           is_step(call->dst.strides[0]) && is_step(call->weights.strides[1]) &&
           fits_int(&call->src) && fits_int(&call->weights) && fits_int(&call->dst) &&
           group->product_count >= MIN_SUMS_PRODUCTS;
}

static uint64_t elements_of(const struct ul_call_tensor *tensor)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < tensor->rank; d++)
        count *= (uint64_t)tensor->dims[d];
    return count;
}

/* A product of few tiles is cut along its sums so that a device is filled, and each part is a
 * result in f32 of its own; nothing else in a product needs memory that grows with it. */
static uint64_t product_workspace(const struct ul_call *call)
{
    enum { TILE = 128, TILES = 256 };
    const int64_t *dims = &call->dst.dims[call->dst.rank - 2];
    uint64_t tiles = (uint64_t)((dims[0] + TILE - 1) / TILE * ((dims[1] + TILE - 1) / TILE));
    tiles *= call->dst.rank == 3 ? (uint64_t)call->dst.dims[0] : 1;
    UL_ASSERT(tiles > 0);
    uint64_t splits = tiles < TILES ? TILES / tiles : 1;
    uint64_t max = (uint64_t)call->src.dims[call->src.rank - 1] / MIN_PART;
    splits = splits < max ? splits : max;
    return splits > 1 ? splits * elements_of(&call->dst) * sizeof(float) : 0;
}

/* ---- convolution ---- */

/* The stride of images and their pixels as one axis, or 0 where there is none. */
static int64_t pixel_stride(const struct ul_call_tensor *tensor)
{
    int64_t stride = 0, count = 1;
    for (uint32_t i = tensor->rank; i-- > 1;) {
        uint32_t d = i == 1 ? 0 : i;
        if (tensor->dims[d] == 1)
            continue;
        if (stride == 0)
            stride = tensor->strides[d];
        else if (tensor->strides[d] != stride * count)
            return 0;
        count *= tensor->dims[d];
    }
    return stride == 0 ? tensor->dims[1] : stride;
}

/* Whether pixels of images are rows of a matrix. */
static bool has_rows(const struct ul_call_tensor *tensor)
{
    return (tensor->dims[1] == 1 || tensor->strides[1] == 1) &&
           pixel_stride(tensor) >= tensor->dims[1];
}

/* Whether the window is one pixel; `weights`: those of the product, or their gradient. */
static bool is_pointwise(const struct ul_call *call, const struct ul_call_tensor *weights)
{
    bool all = call->group_count == 1 && call->src.rank > 2;
    for (uint32_t d = 2; d < weights->rank; d++)
        all = all && weights->dims[d] == 1;
    for (uint32_t d = 0; d + 2 < call->src.rank; d++)
        all = all && call->steps[d] == 1 && call->pads[d] == 0 &&
              call->pads[call->src.rank - 2 + d] == 0;
    return all && has_rows(&call->src) &&
           has_rows(weights == &call->dst ? &call->weights : &call->dst);
}

static void make_rows(struct ul_call_tensor *tensor)
{
    UL_ASSERT(tensor->rank > 2 && tensor->dims[1] > 0);
    int64_t stride = pixel_stride(tensor), channels = tensor->dims[1];
    int64_t pixels = (int64_t)elements_of(tensor) / channels;
    struct ul_call_tensor rows = *tensor;
    memset(rows.dims, 0, sizeof rows.dims);
    memset(rows.strides, 0, sizeof rows.strides);
    rows.rank = 2;
    rows.dims[0] = pixels;
    rows.dims[1] = channels;
    rows.strides[0] = stride;
    rows.strides[1] = 1;
    *tensor = rows;
}

/* Makes the weights of a window of one pixel a matrix, with a row for each index of axis `row`. */
static void make_matrix(struct ul_call_tensor *weights, uint32_t row)
{
    struct ul_call_tensor matrix = *weights;
    UL_ASSERT(row < 2 && weights->rank > 2);
    memset(matrix.dims, 0, sizeof matrix.dims);
    memset(matrix.strides, 0, sizeof matrix.strides);
    matrix.rank = 2;
    for (uint32_t d = 0; d < 2; d++) {
        matrix.dims[d] = weights->dims[d == 0 ? row : 1 - row];
        matrix.strides[d] = weights->strides[d == 0 ? row : 1 - row];
    }
    *weights = matrix;
    ul_describe_finalize(weights, UL_CALL_MATMUL);
}

static void drop_window(struct ul_call *call)
{
    call->kind = UL_CALL_MATMUL;
    call->group_count = 0;
    memset(call->steps, 0, sizeof call->steps);
    memset(call->pads, 0, sizeof call->pads);
    for (uint32_t d = 0; d < 3; d++)
        call->dilations[d] = 1;
}

/* Makes a convolution of 1x1 the product of its pixels with its weights. */
static void make_product(struct ul_call *call)
{
    make_rows(&call->src);
    make_rows(&call->dst);
    make_matrix(&call->weights, 1);
    if (call->bias.rank > 0) {
        call->bias.rank = 2;
        call->bias.dims[1] = call->bias.dims[0];
        call->bias.dims[0] = 1;
        call->bias.strides[1] = 1;
        call->bias.strides[0] = call->bias.dims[1];
    }
    drop_window(call);
    UL_ASSERT(call->src.dims[0] == call->dst.dims[0]);
}

/* Makes the gradient of a convolution's weights the product of the turned pixels of the result's
 * gradient with those of the source. */
static void make_gradient_product(struct ul_group_call *group)
{
    struct ul_call *call = &group->call;
    struct ul_call_tensor rows = call->src;
    ul_value_id source = group->args[UL_CALL_SRC];
    make_rows(&rows);
    call->src = call->weights;
    make_rows(&call->src);
    int64_t pixels = call->src.dims[0], stride = call->src.strides[0];
    call->src.dims[0] = call->src.dims[1];
    call->src.strides[0] = call->src.strides[1];
    call->src.dims[1] = pixels;
    call->src.strides[1] = stride;
    call->weights = rows;
    make_matrix(&call->dst, 0);
    group->args[UL_CALL_SRC] = group->args[UL_CALL_WEIGHTS];
    group->args[UL_CALL_WEIGHTS] = source;
    drop_window(call);
    UL_ASSERT(call->src.dims[1] == call->weights.dims[0]);
}

/* Dense, with the axis `channels` innermost and the others in their order. */
static bool is_channels_last(const struct ul_call_tensor *tensor, uint32_t channels)
{
    int64_t count = tensor->dims[channels];
    bool dense = count == 1 || tensor->strides[channels] == 1;
    for (uint32_t d = tensor->rank; d-- > 0;) {
        if (d == channels)
            continue;
        dense = dense && (tensor->dims[d] == 1 || tensor->strides[d] == count);
        count *= tensor->dims[d];
    }
    return dense;
}

/* Places of a convolution's result along an axis of space, where the padding is the same at both
 * ends. */
static int64_t result_places(const struct ul_call *call, uint32_t d, int64_t in, int64_t kernel)
{
    int64_t reach = (kernel - 1) * call->dilations[d] + 1, span = in + 2 * call->pads[d] - reach;
    return span < 0 ? 0 : span / call->steps[d] + 1;
}

/* Whether the library takes a convolution, or one of its gradients, by the conditions that they
 * share. `src`, `weights` and `dst` are those of the forward convolution. */
static bool supports_windows(const struct ul_call *call, const struct ul_call_tensor *src,
                             const struct ul_call_tensor *weights, const struct ul_call_tensor *dst,
                             uint64_t product_count)
{
    uint32_t space = src->rank - 2, out = call->group_count > 1 ? 1 : 0; /* axis of the weights */
    bool turned = call->kind == UL_CALL_DECONVOLUTION, even = space == 1 || space == 2;
    uint32_t channels = turned ? out : out + 1; /* of the source, which are innermost */
    for (uint32_t d = 0; even && d < space; d++)
        even = call->pads[d] >= 0 && result_places(call, d, src->dims[2 + d],
                                                   weights->dims[out + 2 + d]) == dst->dims[2 + d];
    return even && dst->type == src->type && weights->type == src->type &&
           product_count >= MIN_PRODUCTS && weights->dims[out] >= MIN_CHANNELS &&
           weights->dims[out + 1] >= MIN_CHANNELS &&
           (src->type == UL_CALL_F32 || weights->dims[channels] > IMAGE_CHANNELS) &&
           is_channels_last(src, 1) && is_channels_last(dst, 1) &&
           is_channels_last(weights, channels) && fits_int(src) && fits_int(dst) &&
           fits_int(weights) && elements_of(src) <= INT32_MAX && elements_of(dst) <= INT32_MAX;
}

/* An activation or a residual needs a bias: without one cuDNN has no precompiled engines for them.
 * Nothing follows a gradient. */
static bool supports_convolution(const struct ul_call *call, uint64_t product_count)
{
    bool is_plain = call->post_count == 0 && call->bias.rank == 0;
    switch ((int)call->kind) {
    case UL_CALL_CONVOLUTION:
        return (call->post_count == 0 || call->bias.rank > 0) && supports_posts(call, false) &&
               supports_windows(call, &call->src, &call->weights, &call->dst, product_count);
    case UL_CALL_DECONVOLUTION:
        return is_plain &&
               supports_windows(call, &call->dst, &call->weights, &call->src, product_count);
    case UL_CALL_WEIGHT_GRADIENT:
        return is_plain &&
               supports_windows(call, &call->src, &call->dst, &call->weights, product_count);
    default:
        return false;
    }
}

/* Its tensors once more, in another layout or in parts. */
static uint64_t convolution_workspace(const struct ul_call *call)
{
    return (elements_of(&call->src) + elements_of(&call->weights) + elements_of(&call->dst)) *
           sizeof(float);
}

/* ---- attention ---- */

enum { MAX_HEAD = 256, MAX_GRADIENT_HEAD = 128, HEAD_STEP = 8 /* elements of 16 bytes */ };

/* Elements of heads must be contiguous, and all other strides multiples of 16 bytes. */
static bool is_heads(const struct ul_call_tensor *tensor, enum ul_call_type type)
{
    UL_ASSERT(tensor->rank == 4);
    bool steps = true;
    for (uint32_t d = 0; d < 3; d++)
        steps = steps && (tensor->dims[d] == 1 || tensor->strides[d] % HEAD_STEP == 0);
    return steps && tensor->type == type && tensor->strides[3] == 1 &&
           tensor->dims[3] % HEAD_STEP == 0 && tensor->dims[3] <= MAX_HEAD && fits_int(tensor);
}

static bool supports_attention(const struct ul_call *call, uint64_t product_count)
{
    const struct ul_call_attention *attention = &call->attention;
    enum ul_call_type type = call->src.type;
    bool masks = true;
    for (uint32_t i = 0; i < attention->mask_count; i++) {
        const struct ul_call_tensor *mask = &attention->masks[i];
        masks = masks && (mask->dims[3] == 1 || mask->strides[3] == 1) && fits_int(mask) &&
                (mask->type == type || mask->type == UL_CALL_F32);
    }
    return (type == UL_CALL_F16 || type == UL_CALL_BF16) && masks && is_heads(&call->src, type) &&
           is_heads(&call->weights, type) && is_heads(&attention->values, type) &&
           is_heads(&call->dst, type) && call->post_count == 0 &&
           product_count >= MIN_ATTENTION_PRODUCTS;
}

/* Engines for Hopper keep a counter in it. */
static uint64_t attention_workspace(void)
{
    return UL_CALL_WORKSPACE_ALIGN + UL_CALL_WORKSPACE_LOSS;
}

static bool supports_attention_gradient(const struct ul_call *call, uint64_t product_count)
{
    const struct ul_call_attention *attention = &call->attention;
    enum ul_call_type type = call->src.type;
    return supports_attention(call, product_count) && is_heads(&attention->result, type) &&
           is_heads(&attention->gradient, type) && is_heads(&attention->key_gradient, type) &&
           is_heads(&attention->value_gradient, type) && call->src.dims[3] <= MAX_GRADIENT_HEAD &&
           attention->values.dims[3] <= MAX_GRADIENT_HEAD;
}

/* Whether the profile's device has an engine that keeps no slopes. */
static bool spares_slopes(const struct context *context)
{
    enum { FIRST = 100, BEHIND = 110 };
    const struct ul_profile *profile = context->options->profile;
    int64_t capability = profile == NULL ? 0 : (int64_t)ul_profile_device(profile).capability;
    return capability >= FIRST && capability < BEHIND;
}

/* Sums of queries; slopes of all scores in 16 bits, in tiles of 64 queries and 128 keys; and two
 * counters (asked of cuDNN 9.19, tests/cuda/graphs.cu). */
static uint64_t gradient_workspace(const struct context *context, const struct ul_call *call)
{
    enum { QUERIES = 64, KEYS = 128, ELEMENT_BYTES = 2 };
    const int64_t *dims = call->src.dims;
    uint64_t fixed = UL_CALL_WORKSPACE_LOSS + ul_call_sums_bytes(call);
    uint64_t queries = (uint64_t)((dims[2] + QUERIES - 1) / QUERIES * QUERIES);
    uint64_t keys = (uint64_t)((call->weights.dims[2] + KEYS - 1) / KEYS * KEYS);
    uint64_t slopes = ul_size_mul_saturating(
        ul_size_mul_saturating((uint64_t)(dims[0] * dims[1]) * ELEMENT_BYTES, queries), keys);
    UL_ASSERT(call->kind == UL_CALL_ATTENTION_GRADIENT);
    return spares_slopes(context) ? fixed
                                  : ul_size_add_saturating(slopes, fixed + UL_CALL_WORKSPACE_ALIGN);
}

/* ---- answers ---- */

static uint64_t bounded(const struct context *context, uint64_t wanted_bytes, uint64_t max_bytes)
{
    /* The runtime expects scratch at multiples of 64 (UL_CALL_WORKSPACE_LOSS). */
    uint64_t align = context->options->align_bytes;
    bool lies_well = align == 0 || align >= UL_PLAN_ALIGN_BYTES;
    uint64_t max = lies_well ? max_bytes / 64 * 64 : 0;
    uint64_t bytes = (wanted_bytes + 63) / 64 * 64;
    UL_ASSERT(bytes % 64 == 0);
    return bytes < max ? bytes : max;
}

static uint64_t wanted(const struct context *context, const struct ul_call *call)
{
    if (call->kind == UL_CALL_ATTENTION)
        return attention_workspace();
    if (call->kind == UL_CALL_ATTENTION_GRADIENT)
        return gradient_workspace(context, call);
    return TABLE_BYTES +
           (call->kind == UL_CALL_MATMUL ? product_workspace(call) : convolution_workspace(call));
}

static uint64_t most(void *data, const struct ul_call *call)
{
    const struct context *context = data;
    UL_ASSERT(call->implementation != NULL);
    return bounded(context, wanted(context, call), context->options->workspace_free_bytes);
}

/* Bounds the scratch of a trained convolution of f32, so that training takes no more memory for the
 * library. The call gets the scratch that our own kernel would need, or 64 KiB for tables where its
 * tensors are much larger than that. On Hopper and newer, cuDNN 9 has 14 engines on tensor cores
 * with 64 KiB, none without, and no more of them with 4 MiB (tests/cuda/graphs.cu can ask it). */
static uint64_t trained(void *context, const struct ul_call *call, uint64_t own_bytes)
{
    enum { LITTLE = 16 };
    bool is_convolution = call->kind == UL_CALL_CONVOLUTION ||
                          call->kind == UL_CALL_DECONVOLUTION ||
                          call->kind == UL_CALL_WEIGHT_GRADIENT;
    bool has_tables = TABLE_BYTES <= convolution_workspace(call) / LITTLE;
    uint64_t bytes = own_bytes / 64 * 64;
    (void)context;
    UL_ASSERT(call->implementation != NULL);
    if (!is_convolution || call->src.type != UL_CALL_F32)
        return call->scratch_bytes;
    if (has_tables && bytes < TABLE_BYTES)
        bytes = TABLE_BYTES;
    return bytes < call->scratch_bytes ? bytes : call->scratch_bytes;
}

/* For budgets: first only tables, then nothing. The real cost depends on the device; this is what
 * each loses. A product of few tiles is not cut, and leaves a part of the device idle; a
 * convolution loses tensors in another layout, then its tables of offsets, or becomes a kernel of
 * ours; attention keeps its workspace. */
static double leaner(void *context, struct ul_call *call)
{
    UL_ASSERT(call->implementation != NULL);
    bool is_product = call->kind == UL_CALL_MATMUL, has_more = call->scratch_bytes > TABLE_BYTES;
    (void)context;
    if (call->scratch_bytes == 0)
        return 0;
    call->scratch_bytes = has_more ? TABLE_BYTES : 0;
    if (is_product)
        return has_more ? 2 : 1.02;
    return has_more ? 1.2 : 1.5;
}

static uint32_t align_of(const struct context *context, const struct ul_group_call *call)
{
    UL_ASSERT(call->align_bytes > 0);
    uint32_t align = call->align_bytes;
    while (context->options->align_bytes % align != 0)
        align /= 2;
    if (context->options->io_caller && call->at_edge && align > CALLERS_ALIGN_BYTES)
        align = CALLERS_ALIGN_BYTES;
    return align;
}

static bool supports(const struct context *context, const struct ul_group_call *group)
{
    const struct ul_call *call = &group->call;
    bool is_product = call->kind == UL_CALL_MATMUL;
    if (ul_call_is_integer(call))
        return is_product && supports_sums(group) && align_of(context, group) >= SUMS_STEP;
    if (is_product)
        return supports_posts(call, true) && supports_product(call, group->product_count) &&
               supports_kept(call) &&
               (ul_call_kept(call) == NULL || align_of(context, group) >= KEPT_ALIGN_BYTES);
    if (!context->options->has_cudnn)
        return false;
    if (call->kind == UL_CALL_ATTENTION)
        return supports_attention(call, group->product_count);
    if (call->kind == UL_CALL_ATTENTION_GRADIENT)
        return supports_attention_gradient(call, group->product_count);
    return supports_convolution(call, group->product_count);
}

static void turn_batch(struct ul_call_tensor *tensor)
{
    int64_t dim = tensor->dims[0], stride = tensor->strides[0];
    tensor->dims[0] = tensor->dims[1];
    tensor->strides[0] = tensor->strides[1];
    tensor->dims[1] = dim;
    tensor->strides[1] = stride;
}

/* Makes the longer of two axes the rows, where many matrices of few rows have the same weights: a
 * library has tiles of 64 rows or more (a transformer of images has [tokens, images]). */
static void make_rows_long(struct ul_call *call)
{
    const struct ul_call_tensor *dst = &call->dst;
    bool may = call->kind == UL_CALL_MATMUL && dst->rank == 3 && dst->dims[0] > dst->dims[1] &&
               call->weights.dims[0] == 1 && call->src.dims[0] == dst->dims[0];
    for (uint32_t i = 0; may && i < call->post_count; i++) {
        const struct ul_call_tensor *other = &call->posts[i].tensor;
        may = other->rank == 0 || (other->rank == 3 && other->dims[0] == dst->dims[0] &&
                                   other->dims[1] == dst->dims[1]);
    }
    if (!may)
        return;
    turn_batch(&call->src);
    turn_batch(&call->dst);
    for (uint32_t i = 0; i < call->post_count; i++)
        if (call->posts[i].tensor.rank > 0)
            turn_batch(&call->posts[i].tensor);
    UL_ASSERT(call->dst.dims[0] < call->dst.dims[1]);
}

static bool answer(void *data, struct ul_group_call *group, bool pack)
{
    const struct context *context = data;
    struct ul_call *call = &group->call;
    (void)pack; /* weights keep the graph's layout */
    call->tail_count = 0;
    if (call->bias.rank > 0 && call->bias.type != call->dst.type)
        return false;
    if (call->kind == UL_CALL_CONVOLUTION && is_pointwise(call, &call->weights))
        make_product(call);
    if (call->kind == UL_CALL_WEIGHT_GRADIENT && is_pointwise(call, &call->dst))
        make_gradient_product(group);
    make_rows_long(call);
    const char *taker = call->kind == UL_CALL_MATMUL ? CUBLASLT : CUDNN;
    if (strcmp(taker, context->implementation) != 0 || !supports(context, group))
        return false;
    UL_ASSERT(call->implementation == NULL);
    call->implementation = context->implementation;
    call->align_bytes = align_of(context, group);
    call->tf32 = context->options->tf32 && call->src.type == UL_CALL_F32;
    /* A gradient of attention raises no plan, and no engine works with less. */
    bool is_gradient = call->kind == UL_CALL_ATTENTION_GRADIENT;
    uint64_t wanted_bytes = wanted(context, call);
    call->scratch_bytes = bounded(context, wanted_bytes,
                                  is_gradient ? context->options->workspace_free_bytes
                                              : context->options->workspace_bytes);
    return !is_gradient || call->scratch_bytes >= wanted_bytes;
}

/* The product that a call is: for a convolution that of pixels with weights; for the gradient of
 * its weights that of channels, with all pixels as terms. */
static struct ul_work_product product_of(const struct ul_call *call)
{
    const struct ul_call_tensor *dst = &call->dst;
    const struct ul_call_tensor *pixels =
        call->kind == UL_CALL_WEIGHT_GRADIENT ? &call->weights : dst;
    uint64_t groups = call->group_count > 1 ? call->group_count : 1;
    uint64_t pixel_count = elements_of(pixels) / (uint64_t)pixels->dims[1];
    struct ul_work_product product = {.batch = groups};
    if (call->kind == UL_CALL_MATMUL) {
        product.m = (uint64_t)dst->dims[dst->rank - 2];
        product.n = (uint64_t)dst->dims[dst->rank - 1];
        product.k = (uint64_t)call->src.dims[call->src.rank - 1];
        product.batch = dst->rank == 3 ? (uint64_t)dst->dims[0] : 1;
    } else if (call->kind == UL_CALL_WEIGHT_GRADIENT) {
        product.m = (uint64_t)pixels->dims[1] / groups;
        product.n = elements_of(dst) / groups / product.m;
        product.k = pixel_count;
    } else {
        const struct ul_call_tensor *windows =
            call->kind == UL_CALL_DECONVOLUTION ? &call->src : dst;
        uint64_t window_count = elements_of(windows) / (uint64_t)windows->dims[1];
        product.m = pixel_count;
        product.n = (uint64_t)dst->dims[1] / groups;
        product.k = ul_size_div_up(elements_of(&call->weights) / groups / product.n * window_count,
                                   pixel_count);
    }
    return product;
}

/* Libraries cut the sums of a product into as many parts as the workspace holds. A call of
 * attention has a block for some queries of a head: 128, or 64 where a device then has more
 * blocks. */
static void spread(void *data, const struct ul_call *call, struct ul_work *work)
{
    enum { MAX_QUERIES = 128 };
    const struct context *context = data;
    const struct ul_call_tensor *dst = &call->dst;
    if (call->kind == UL_CALL_ATTENTION || call->kind == UL_CALL_ATTENTION_GRADIENT) {
        uint64_t heads = (uint64_t)(dst->dims[0] * dst->dims[1]), queries = (uint64_t)dst->dims[2];
        uint64_t processors = ul_profile_device(context->options->profile).processors;
        work->block_count = heads * ul_size_div_up(queries, MAX_QUERIES);
        work->longest_block = 1;
        if (work->block_count < processors)
            work->block_count = heads * ul_size_div_up(queries, MAX_QUERIES / 2);
        return;
    }
    work->product = product_of(call);
    work->product.element_bytes = ul_call_element_bytes(&call->src);
    if (call->kind == UL_CALL_MATMUL || call->kind == UL_CALL_WEIGHT_GRADIENT) {
        uint64_t parts = call->scratch_bytes / (elements_of(dst) * sizeof(float));
        uint64_t max = work->product.k / MIN_PART;
        work->product.max_parts = parts < max ? parts : max;
    }
}

/* A product followed by something that the library does not compute (GELU by erf) is either the
 * library's with a pass over its result, or ours with both in one launch. Ours is assumed to take
 * twice the time to multiply (not measured); where there is little to multiply, launches and passes
 * decide. */
static bool is_worth(void *data, const struct ul_group_call *group, uint64_t pass_bytes)
{
    const struct context *context = data;
    const struct ul_profile *profile = context->options->profile;
    const struct ul_call *call = &group->call;
    const double times = 2;
    if (UL_CUDA_CALLS_ALL || profile == NULL || call->kind != UL_CALL_MATMUL ||
        ul_call_is_integer(call))
        return true;
    UL_ASSERT(profile->level_count > 0);
    bool is_f32 = call->src.type == UL_CALL_F32;
    double operations = 2 * (double)group->product_count;
    double theirs = profile->rates[!is_f32      ? UL_WORK_MATMUL_F16
                                   : call->tf32 ? UL_WORK_MATMUL_TF32
                                                : UL_WORK_MATMUL_F32];
    double ours = profile->rates[is_f32 ? UL_WORK_MATMUL_F32 : UL_WORK_MATMUL_F16];
    double pass_ns =
        profile->overhead_ns + (double)pass_bytes / profile->levels[profile->level_count - 1].rate;
    return operations / theirs + pass_ns < times * operations / ours;
}

/* ---- the rows ---- */

static enum ul_status open(struct ul_arena *arena, const struct ul_program_options *options,
                           const char *implementation, struct ul_target_library *library)
{
    struct context *context = UL_NEW(arena, struct context);
    context->options = ul_arena_copy(arena, options, sizeof *options);
    context->implementation = implementation;
    library->context = context;
    return UL_OK;
}

static enum ul_status open_cublaslt(struct ul_arena *arena,
                                    const struct ul_program_options *options,
                                    struct ul_target_library *library, struct ul_diag *diag)
{
    (void)diag;
    return open(arena, options, CUBLASLT, library);
}

/* A program may find none, unless it needs one. */
static enum ul_status open_cudnn(struct ul_arena *arena, const struct ul_program_options *options,
                                 struct ul_target_library *library, struct ul_diag *diag)
{
    (void)diag;
    library->table = options->needs_cudnn ? "ul_cudnn" : "ul_cudnn_if_there";
    return open(arena, options, CUDNN, library);
}

static uint64_t cublaslt_bytes(void *data)
{
    const struct context *context = data;
    return ul_profile_device(context->options->profile).cublaslt_bytes;
}

static uint64_t cudnn_bytes(void *data)
{
    const struct context *context = data;
    return ul_profile_device(context->options->profile).cudnn_bytes;
}

static const struct ul_library_file cublas_files[] = {{.name = "ul_cuda_library.cu"},
                                                      {.name = "ul_cuda_library_choices.cu"},
                                                      {.name = "ul_cublas.cu"},
                                                      {.name = NULL}};
static const struct ul_library_file cudnn_files[] = {
    {.name = "ul_cuda_library.cu"}, {.name = "ul_cuda_library_choices.cu"}, {.name = "ul_cudnn.cu"},
    {.name = "ul_cudnn_graph.cu"},  {.name = "ul_cudnn_plan.cu"},           {.name = NULL}};

const struct ul_target_library ul_cublaslt_library = {.name = "cuBLASLt",
                                                      .adds_from_afar = true,
                                                      .accumulates = true,
                                                      .max_sums_bytes = TABLE_BYTES / 2,
                                                      .has_slopes = true,
                                                      .runs_always = true,
                                                      .chosen_at_start = true,
                                                      .symbol = "ul_cublas",
                                                      .table = "ul_cublas",
                                                      .files = cublas_files,
                                                      .open = open_cublaslt,
                                                      .answer = answer,
                                                      .is_worth = is_worth,
                                                      .leaner = leaner,
                                                      .spread = spread,
                                                      .most = most,
                                                      .trained = trained,
                                                      .device_bytes = cublaslt_bytes};

const struct ul_target_library ul_cudnn_library = {.name = "cuDNN",
                                                   .adds_from_afar = true,
                                                   .accumulates = true,
                                                   .runs_always = true,
                                                   .chosen_at_start = true,
                                                   .symbol = "ul_cudnn",
                                                   .files = cudnn_files,
                                                   .open = open_cudnn,
                                                   .answer = answer,
                                                   .leaner = leaner,
                                                   .spread = spread,
                                                   .most = most,
                                                   .trained = trained,
                                                   .device_bytes = cudnn_bytes};
