/* SPDX-License-Identifier: 0BSD */
/*
 * Calls as graphs of cuDNN (ul_cudnn_graph.h).
 *
 * Convolutions are of two axes of space, the first of one element where the call has one; tensors
 * have channels innermost, by their strides, and groups are what the channels of the source are
 * more than those of the weights.
 *
 * Attention is spelled out as cuDNN's engines know it: two products, between them softmax by its
 * largest score and its sum, and the logarithm of that sum, without which they do not know it again
 * even where nobody reads it. Scores are in f32, the weights of values in the type of these.
 *
 * Its gradient is spelled out likewise, in the form of which cudnn-frontend says that it gives the
 * same bits every time: the gradient of queries is a product, and no sum in memory. Engines want
 * the sums of queries formed here, from the result, and multiplied by a number, which is 1.
 */
#include "ul_cudnn_graph.h"

#if UL_HAS_CUDNN

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- descriptors ---- */

cudnnBackendDescriptor_t ul_cudnn_new(const struct ul_cudnn *dnn, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t descriptor = NULL;
    return dnn->BackendCreateDescriptor(type, &descriptor) == CUDNN_STATUS_SUCCESS ? descriptor
                                                                                   : NULL;
}

void ul_cudnn_free(const struct ul_cudnn *dnn, cudnnBackendDescriptor_t descriptor)
{
    if (descriptor != NULL)
        (void)dnn->BackendDestroyDescriptor(descriptor);
}

bool ul_cudnn_finalize(const struct ul_cudnn *dnn, cudnnBackendDescriptor_t descriptor)
{
    return dnn->BackendFinalize(descriptor) == CUDNN_STATUS_SUCCESS;
}

bool ul_cudnn_set(const struct ul_cudnn *dnn, cudnnBackendDescriptor_t descriptor,
                  cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                  const void *values)
{
    return dnn->BackendSetAttribute(descriptor, name, type, count, values) == CUDNN_STATUS_SUCCESS;
}

bool ul_cudnn_set_one(const struct ul_cudnn *dnn, cudnnBackendDescriptor_t descriptor,
                      cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
    return ul_cudnn_set(dnn, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

bool ul_cudnn_get(const struct ul_cudnn *dnn, cudnnBackendDescriptor_t descriptor,
                  cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t max,
                  int64_t *count, void *values)
{
    *count = 0;
    return dnn->BackendGetAttribute(descriptor, name, type, max, count, values) ==
           CUDNN_STATUS_SUCCESS;
}

/* ---- a graph that grows ---- */

enum { RANK = 4, FIRST_VIRTUAL = 100, MAX_OPERATIONS = 24 };

/* `good` stays false once anything has failed, so that only the end is tested. */
struct builder {
    const struct ul_cudnn *dnn;
    struct ul_cudnn_graph *graph;
    bool good;
    int64_t next_virtual;
    int64_t operation_count;
    cudnnBackendDescriptor_t operations[MAX_OPERATIONS];
};

static cudnnBackendDescriptor_t begin(struct builder *to, cudnnBackendDescriptorType_t type)
{
    struct ul_cudnn_graph *graph = to->graph;
    cudnnBackendDescriptor_t made = NULL;
    to->good = to->good && graph->descriptor_count < UL_CUDNN_DESCRIPTORS;
    if (to->good)
        made = ul_cudnn_new(to->dnn, type);
    to->good = made != NULL;
    if (to->good)
        graph->descriptors[graph->descriptor_count++] = made;
    return made;
}

static void put(struct builder *to, cudnnBackendDescriptor_t descriptor,
                cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                const void *values)
{
    to->good = to->good && ul_cudnn_set(to->dnn, descriptor, name, type, count, values);
}

static void put_one(struct builder *to, cudnnBackendDescriptor_t descriptor,
                    cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
    to->good = to->good && ul_cudnn_set_one(to->dnn, descriptor, name, value);
}

static void end(struct builder *to, cudnnBackendDescriptor_t descriptor)
{
    to->good = to->good && ul_cudnn_finalize(to->dnn, descriptor);
}

static void end_operation(struct builder *to, cudnnBackendDescriptor_t descriptor)
{
    end(to, descriptor);
    to->good = to->good && to->operation_count < MAX_OPERATIONS;
    if (to->good)
        to->operations[to->operation_count++] = descriptor;
}

/* ---- tensors ---- */

struct shape {
    cudnnDataType_t type;
    int64_t dims[RANK], strides[RANK];
};

static cudnnDataType_t type_of(const struct ul_call_tensor *tensor)
{
    return tensor->type == UL_CALL_F16    ? CUDNN_DATA_HALF
           : tensor->type == UL_CALL_BF16 ? CUDNN_DATA_BFLOAT16
                                          : CUDNN_DATA_FLOAT;
}

/* A dense tensor with the second axis innermost. */
static struct shape image(cudnnDataType_t type, int64_t count, int64_t channels, int64_t rows,
                          int64_t columns)
{
    struct shape shape = {type,
                          {count, channels, rows, columns},
                          {rows * columns * channels, 1, columns * channels, channels}};
    return shape;
}

/* A tensor of one axis of space gets a second one, of one element. */
static struct shape image_of(const struct ul_call_tensor *tensor)
{
    return image(type_of(tensor), tensor->dims[0], tensor->dims[1],
                 tensor->rank == 4 ? tensor->dims[2] : 1, tensor->dims[tensor->rank - 1]);
}

/* Gives the library's shape of weights, or of their gradient, whose first axis holds the groups. A
 * transposed convolution has the weights of the convolution that it turns around. */
static struct shape weights_of(const struct ul_call *call, const struct ul_call_tensor *weights)
{
    bool grouped = call->group_count > 1, turned = call->kind == UL_CALL_DECONVOLUTION;
    const int64_t *dims = weights->dims + (grouped ? 1 : 0);
    return image(type_of(weights), dims[turned ? 1 : 0] * (grouped ? call->group_count : 1),
                 dims[turned ? 0 : 1], call->src.rank == 3 ? 1 : dims[2],
                 weights->dims[weights->rank - 1]);
}

enum where { IN_MEMORY, NOWHERE, BY_VALUE };

static cudnnBackendDescriptor_t put_tensor(struct builder *to, int64_t uid,
                                           const struct shape *shape, enum where where)
{
    const int64_t align = UL_CUDNN_ALIGN_BYTES;
    const bool yes = true;
    cudnnBackendDescriptor_t tensor = begin(to, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    put(to, tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    put(to, tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &shape->type);
    put(to, tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, RANK, shape->dims);
    put(to, tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, RANK, shape->strides);
    put(to, tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    if (where != IN_MEMORY)
        put(to, tensor,
            where == NOWHERE ? CUDNN_ATTR_TENSOR_IS_VIRTUAL : CUDNN_ATTR_TENSOR_IS_BY_VALUE,
            CUDNN_TYPE_BOOLEAN, 1, &yes);
    end(to, tensor);
    return tensor;
}

/* A tensor that a run gives a place. */
static cudnnBackendDescriptor_t put_given(struct builder *to, uint32_t number,
                                          const struct shape *shape, enum where where)
{
    struct ul_cudnn_graph *graph = to->graph;
    int64_t uid = 1 + (int64_t)number;
    graph->uids[graph->tensor_count++] = uid;
    return put_tensor(to, uid, shape, where);
}

static cudnnBackendDescriptor_t put_argument(struct builder *to, uint32_t argument,
                                             const struct shape *shape)
{
    return put_given(to, argument, shape, IN_MEMORY);
}

static cudnnBackendDescriptor_t put_number(struct builder *to, uint32_t number, float value)
{
    const struct shape one = {CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}};
    to->graph->numbers[number] = value;
    return put_given(to, UL_CALL_ARGS + number, &one, BY_VALUE);
}

/* What an operation hands to the next one, nowhere in memory. */
static cudnnBackendDescriptor_t put_between(struct builder *to, const struct shape *like,
                                            cudnnDataType_t type)
{
    struct shape shape = *like;
    shape.type = type;
    return put_tensor(to, FIRST_VIRTUAL + to->next_virtual++, &shape, NOWHERE);
}

/* ---- operations ---- */

/* y = mode(x), mode(x, b) or mode(x, b, condition): b is broadcast. */
struct pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t type; /* the type it is computed in */
    cudnnBackendDescriptor_t x, b, condition, y;
    int64_t axis; /* for CUDNN_POINTWISE_GEN_INDEX */
};

/* ReLU turns NaN into 0 unless told otherwise. */
static void put_pointwise(struct builder *to, const struct pointwise *pointwise)
{
    cudnnBackendDescriptor_t function = begin(to, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    put(to, function, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &pointwise->mode);
    put(to, function, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &pointwise->type);
    if (pointwise->mode == CUDNN_POINTWISE_GEN_INDEX)
        put(to, function, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &pointwise->axis);
    end(to, function);
    cudnnBackendDescriptor_t operation = begin(to, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    put_one(to, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function);
    put_one(to, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, pointwise->x);
    if (pointwise->b != NULL)
        put_one(to, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, pointwise->b);
    if (pointwise->condition != NULL)
        put_one(to, operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, pointwise->condition);
    put_one(to, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, pointwise->y);
    end_operation(to, operation);
}

/* A function in f32. `b` NULL: there is none. */
static void put_function(struct builder *to, cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t x,
                         cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t y)
{
    const struct pointwise pointwise = {mode, CUDNN_DATA_FLOAT, x, b, NULL, y, 0};
    put_pointwise(to, &pointwise);
}

/* An axis has as much padding at its end as at its beginning: codegen/cuda/cuda_calls.c takes no
 * other. */
static cudnnBackendDescriptor_t put_window(struct builder *to, const struct ul_call *call)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    bool flat = call->src.rank == 3;
    const int64_t space = 2;
    uint32_t last = flat ? 0 : 1;
    int64_t begins[] = {flat ? 0 : call->pads[0], call->pads[last]};
    int64_t steps[] = {flat ? 1 : call->steps[0], call->steps[last]};
    int64_t dilations[] = {flat ? 1 : call->dilations[0], call->dilations[last]};
    cudnnBackendDescriptor_t window = begin(to, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    put(to, window, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    put(to, window, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    put(to, window, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &space);
    put(to, window, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, space, begins);
    put(to, window, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, space, begins);
    put(to, window, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, space, steps);
    put(to, window, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, space, dilations);
    end(to, window);
    return window;
}

/* The names that the library has for a convolution, or for one of its two gradients. */
struct convolution {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t window, alpha, beta;
    cudnnBackendAttributeName_t src, weights, dst; /* what the call's arguments are to it */
};

#define UL_CUDNN_CONVOLUTION(operation, name, src, weights, dst)                                   \
    {                                                                                              \
        CUDNN_BACKEND_OPERATION_CONVOLUTION_##operation##_DESCRIPTOR,                              \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_CONV_DESC,                                   \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_ALPHA,                                       \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_BETA,                                        \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##src,                                       \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##weights,                                   \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##dst                                        \
    }
static const struct convolution forward = UL_CUDNN_CONVOLUTION(FORWARD, FORWARD, X, W, Y);
static const struct convolution of_data = UL_CUDNN_CONVOLUTION(BACKWARD_DATA, BWD_DATA, DY, W, DX);
static const struct convolution of_weights =
    UL_CUDNN_CONVOLUTION(BACKWARD_FILTER, BWD_FILTER, X, DY, DW);

static void put_windows(struct builder *to, const struct ul_call *call,
                        const struct convolution *names, cudnnBackendDescriptor_t src,
                        cudnnBackendDescriptor_t weights, cudnnBackendDescriptor_t dst)
{
    const float one = 1, zero = 0;
    cudnnBackendDescriptor_t window = put_window(to, call);
    cudnnBackendDescriptor_t operation = begin(to, names->type);
    put_one(to, operation, names->window, window);
    put_one(to, operation, names->src, src);
    put_one(to, operation, names->weights, weights);
    put_one(to, operation, names->dst, dst);
    put(to, operation, names->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    put(to, operation, names->beta, CUDNN_TYPE_FLOAT, 1, &zero);
    end_operation(to, operation);
}

/* ---- convolution ---- */

/* Engines that are compiled beforehand know the sum, then a residual, then a bias, then ReLU. */
static void put_convolution(struct builder *to, const struct ul_call *call)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    struct ul_cuda_posts posts;
    ul_cuda_read_posts(call, &posts);
    struct shape src = image_of(&call->src), dst = image_of(&call->dst);
    struct shape weights = weights_of(call, &call->weights);
    struct shape bias = image(type_of(&call->bias), 1, call->dst.dims[1], 1, 1);
    cudnnBackendDescriptor_t x = put_argument(to, 0, &src), w = put_argument(to, 1, &weights);
    cudnnBackendDescriptor_t y = put_argument(to, 3, &dst);
    bool has_bias = call->bias.rank > 0, has_relu = posts.activation == UL_CUDA_RELU;
    cudnnBackendDescriptor_t sum =
        posts.adds || has_bias || has_relu ? put_between(to, &dst, f32) : y;
    put_windows(to, call, &forward, x, w, sum);
    if (posts.adds) {
        cudnnBackendDescriptor_t next = has_bias || has_relu ? put_between(to, &dst, f32) : y;
        put_function(to, CUDNN_POINTWISE_ADD, sum, put_argument(to, 4, &dst), next);
        sum = next;
    }
    if (has_bias) {
        cudnnBackendDescriptor_t next = has_relu ? put_between(to, &dst, f32) : y;
        put_function(to, CUDNN_POINTWISE_ADD, sum, put_argument(to, 2, &bias), next);
        sum = next;
    }
    if (has_relu)
        put_function(to, CUDNN_POINTWISE_RELU_FWD, sum, NULL, y);
}

/* Puts the gradient of a convolution's source or of its weights. No operation follows it. */
static void put_gradient(struct builder *to, const struct ul_call *call)
{
    bool is_of_data = call->kind == UL_CALL_DECONVOLUTION;
    struct shape src = image_of(&call->src);
    struct shape weights = is_of_data ? weights_of(call, &call->weights) : image_of(&call->weights);
    struct shape dst = is_of_data ? image_of(&call->dst) : weights_of(call, &call->dst);
    put_windows(to, call, is_of_data ? &of_data : &of_weights, put_argument(to, 0, &src),
                put_argument(to, 1, &weights), put_argument(to, 3, &dst));
}

/* ---- attention ---- */

static struct shape heads_of(const struct ul_call_tensor *tensor)
{
    struct shape shape;
    shape.type = type_of(tensor);
    memcpy(shape.dims, tensor->dims, sizeof shape.dims);
    memcpy(shape.strides, tensor->strides, sizeof shape.strides);
    return shape;
}

static struct shape turned(struct shape shape)
{
    int64_t dim = shape.dims[2], stride = shape.strides[2];
    shape.dims[2] = shape.dims[3];
    shape.strides[2] = shape.strides[3];
    shape.dims[3] = dim;
    shape.strides[3] = stride;
    return shape;
}

/* The shape of scores, or of one number for each row of them. */
static struct shape rows_of(const struct ul_call *call, int64_t columns)
{
    const int64_t *dims = call->src.dims;
    struct shape shape = {CUDNN_DATA_FLOAT,
                          {dims[0], dims[1], dims[2], columns},
                          {dims[1] * dims[2] * columns, dims[2] * columns, columns, 1}};
    return shape;
}

static void put_product(struct builder *to, cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b,
                        cudnnBackendDescriptor_t c)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t product = begin(to, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    put(to, product, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    end(to, product);
    cudnnBackendDescriptor_t operation = begin(to, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    put_one(to, operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, product);
    put_one(to, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    put_one(to, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    put_one(to, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    end_operation(to, operation);
}

static void put_reduction(struct builder *to, cudnnReduceTensorOp_t mode,
                          cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t reduction = begin(to, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    put(to, reduction, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
    put(to, reduction, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    end(to, reduction);
    cudnnBackendDescriptor_t operation = begin(to, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    put_one(to, operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction);
    put_one(to, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    put_one(to, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    end_operation(to, operation);
}

/* Scores of keys after the query become -infinity. */
static cudnnBackendDescriptor_t put_causal(struct builder *to, const struct shape *shape,
                                           cudnnBackendDescriptor_t scores)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT, truth = CUDNN_DATA_BOOLEAN;
    cudnnBackendDescriptor_t query = put_between(to, shape, CUDNN_DATA_INT32);
    cudnnBackendDescriptor_t key = put_between(to, shape, CUDNN_DATA_INT32);
    cudnnBackendDescriptor_t sees = put_between(to, shape, truth);
    cudnnBackendDescriptor_t seen = put_between(to, shape, f32);
    cudnnBackendDescriptor_t never = put_number(to, 1, -INFINITY);
    const struct pointwise steps[] = {
        {CUDNN_POINTWISE_GEN_INDEX, f32, scores, NULL, NULL, query, 2},
        {CUDNN_POINTWISE_GEN_INDEX, f32, scores, NULL, NULL, key, 3},
        {CUDNN_POINTWISE_CMP_GE, truth, query, key, NULL, sees, 0},
        {CUDNN_POINTWISE_BINARY_SELECT, f32, scores, never, sees, seen, 0}};
    for (uint32_t i = 0; i < sizeof steps / sizeof *steps; i++)
        put_pointwise(to, &steps[i]);
    return seen;
}

/* Weights of values, in the type of these. */
static cudnnBackendDescriptor_t put_softmax(struct builder *to, const struct ul_call *call,
                                            const struct shape *shape,
                                            cudnnBackendDescriptor_t scores)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    struct shape row = rows_of(call, 1);
    cudnnBackendDescriptor_t largest = put_between(to, &row, f32);
    cudnnBackendDescriptor_t below = put_between(to, shape, f32);
    cudnnBackendDescriptor_t weights = put_between(to, shape, f32);
    cudnnBackendDescriptor_t sum = put_between(to, &row, f32);
    cudnnBackendDescriptor_t logarithm = put_between(to, &row, f32);
    const struct ul_call_tensor *norms = &call->attention.norms;
    struct shape kept = norms->rank > 0 ? heads_of(norms) : row;
    cudnnBackendDescriptor_t statistic =
        norms->rank > 0 ? put_argument(to, UL_CALL_ARG_NORMS, &kept) : put_between(to, &row, f32);
    cudnnBackendDescriptor_t result = put_between(to, shape, type_of(&call->attention.values));
    put_reduction(to, CUDNN_REDUCE_TENSOR_MAX, scores, largest);
    put_function(to, CUDNN_POINTWISE_SUB, scores, largest, below);
    put_function(to, CUDNN_POINTWISE_EXP, below, NULL, weights);
    put_reduction(to, CUDNN_REDUCE_TENSOR_ADD, weights, sum);
    put_function(to, CUDNN_POINTWISE_LOG, sum, NULL, logarithm);
    put_function(to, CUDNN_POINTWISE_ADD, largest, logarithm, statistic);
    put_function(to, CUDNN_POINTWISE_DIV, weights, sum, result);
    return result;
}

/* Scores with their scale and masks, of queries and turned keys. */
static cudnnBackendDescriptor_t
put_scores(struct builder *to, const struct ul_call *call, cudnnBackendDescriptor_t queries,
           cudnnBackendDescriptor_t keys, cudnnBackendDescriptor_t scale, const struct shape *shape)
{
    const struct ul_call_attention *attention = &call->attention;
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t scores = put_between(to, shape, f32);
    cudnnBackendDescriptor_t scaled = put_between(to, shape, f32);
    put_product(to, queries, keys, scores);
    put_function(to, CUDNN_POINTWISE_MUL, scores, scale, scaled);
    for (uint32_t i = 0; i < attention->mask_count; i++) {
        struct shape mask = heads_of(&attention->masks[i]);
        cudnnBackendDescriptor_t masked = put_between(to, shape, f32);
        put_function(to, CUDNN_POINTWISE_ADD, scaled,
                     put_argument(to, UL_CALL_ARG_MASKS + i, &mask), masked);
        scaled = masked;
    }
    return scaled;
}

static void put_attention(struct builder *to, const struct ul_call *call)
{
    const struct ul_call_attention *attention = &call->attention;
    struct shape src = heads_of(&call->src), keys = turned(heads_of(&call->weights));
    struct shape values = heads_of(&attention->values), dst = heads_of(&call->dst);
    struct shape shape = rows_of(call, call->weights.dims[2]);
    cudnnBackendDescriptor_t q = put_argument(to, 0, &src), k = put_argument(to, 1, &keys);
    cudnnBackendDescriptor_t v = put_argument(to, UL_CALL_ARG_VALUES, &values);
    cudnnBackendDescriptor_t o = put_argument(to, 3, &dst);
    cudnnBackendDescriptor_t scaled =
        put_scores(to, call, q, k, put_number(to, 0, attention->scale), &shape);
    if (attention->is_causal)
        scaled = put_causal(to, &shape, scaled);
    put_product(to, put_softmax(to, call, &shape, scaled), v, o);
}

/* ---- the gradient of attention ---- */

/* Turns a matrix around, in that type. */
static cudnnBackendDescriptor_t put_turn(struct builder *to, cudnnBackendDescriptor_t x,
                                         const struct shape *shape, cudnnDataType_t type)
{
    struct shape other = turned(*shape);
    cudnnBackendDescriptor_t y = put_between(to, &other, type);
    cudnnBackendDescriptor_t operation = begin(to, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    put_one(to, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    put_one(to, operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    end_operation(to, operation);
    return y;
}

/* Gives the sums of the result times its gradient, which lie in memory. */
static cudnnBackendDescriptor_t put_sums(struct builder *to, const struct ul_call *call,
                                         cudnnBackendDescriptor_t gradient)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    struct shape result = heads_of(&call->attention.result), row = rows_of(call, 1);
    cudnnBackendDescriptor_t product = put_between(to, &result, f32);
    cudnnBackendDescriptor_t sum = put_between(to, &row, f32);
    cudnnBackendDescriptor_t sums = put_argument(to, UL_CALL_ARG_SUMS, &row);
    put_function(to, CUDNN_POINTWISE_MUL, gradient, put_argument(to, UL_CALL_ARG_RESULT, &result),
                 product);
    put_reduction(to, CUDNN_REDUCE_TENSOR_ADD, product, sum);
    put_function(to, CUDNN_POINTWISE_MUL, sum, put_number(to, 2, 1), sums);
    return sums;
}

/* Gives the weights of values by the norms of queries, in f32. */
static cudnnBackendDescriptor_t put_weights(struct builder *to, const struct ul_call *call,
                                            const struct shape *shape,
                                            cudnnBackendDescriptor_t scores)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    struct shape norms = heads_of(&call->attention.norms);
    cudnnBackendDescriptor_t below = put_between(to, shape, f32);
    cudnnBackendDescriptor_t weights = put_between(to, shape, f32);
    put_function(to, CUDNN_POINTWISE_SUB, scores, put_argument(to, UL_CALL_ARG_NORMS, &norms),
                 below);
    if (call->attention.is_causal)
        below = put_causal(to, shape, below);
    put_function(to, CUDNN_POINTWISE_EXP, below, NULL, weights);
    return weights;
}

/* Gives the slopes of products of queries and keys, from those of weights. */
static cudnnBackendDescriptor_t put_slopes(struct builder *to, const struct shape *shape,
                                           cudnnBackendDescriptor_t weights,
                                           cudnnBackendDescriptor_t slopes,
                                           cudnnBackendDescriptor_t sums,
                                           cudnnBackendDescriptor_t scale)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t apart = put_between(to, shape, f32);
    cudnnBackendDescriptor_t weighted = put_between(to, shape, f32);
    cudnnBackendDescriptor_t scaled = put_between(to, shape, f32);
    put_function(to, CUDNN_POINTWISE_SUB, slopes, sums, apart);
    put_function(to, CUDNN_POINTWISE_MUL, apart, weights, weighted);
    put_function(to, CUDNN_POINTWISE_MUL, weighted, scale, scaled);
    return scaled;
}

static void put_attention_gradient(struct builder *to, const struct ul_call *call)
{
    const struct ul_call_attention *attention = &call->attention;
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT, type = type_of(&call->src);
    struct shape src = heads_of(&call->src), keys = turned(heads_of(&call->weights));
    struct shape values = turned(heads_of(&attention->values)), dst = heads_of(&call->dst);
    struct shape of_result = heads_of(&attention->gradient);
    struct shape of_keys = heads_of(&attention->key_gradient);
    struct shape of_values = heads_of(&attention->value_gradient);
    struct shape shape = rows_of(call, call->weights.dims[2]);
    cudnnBackendDescriptor_t q = put_argument(to, 0, &src), k = put_argument(to, 1, &keys);
    cudnnBackendDescriptor_t v = put_argument(to, UL_CALL_ARG_VALUES, &values);
    cudnnBackendDescriptor_t g = put_argument(to, UL_CALL_ARG_GRADIENT, &of_result);
    cudnnBackendDescriptor_t scale = put_number(to, 0, attention->scale);
    cudnnBackendDescriptor_t sums = put_sums(to, call, g);
    cudnnBackendDescriptor_t weights =
        put_weights(to, call, &shape, put_scores(to, call, q, k, scale, &shape));
    put_product(to, put_turn(to, weights, &shape, type), g,
                put_argument(to, UL_CALL_ARG_VALUE_GRADIENT, &of_values));
    cudnnBackendDescriptor_t slopes = put_between(to, &shape, f32);
    put_product(to, g, v, slopes);
    slopes = put_slopes(to, &shape, weights, slopes, sums, scale);
    put_product(to, put_turn(to, slopes, &shape, type), q,
                put_argument(to, UL_CALL_ARG_KEY_GRADIENT, &of_keys));
    put_product(to, slopes, put_turn(to, k, &keys, type), put_argument(to, 3, &dst));
}

/* ---- entries ---- */

bool ul_cudnn_make_graph(const struct ul_cudnn *dnn, const struct ul_call *call,
                         struct ul_cudnn_graph *graph)
{
    struct builder to = {dnn, graph, true, 0, 0, {NULL}};
    if (call->kind == UL_CALL_ATTENTION)
        put_attention(&to, call);
    else if (call->kind == UL_CALL_ATTENTION_GRADIENT)
        put_attention_gradient(&to, call);
    else if (call->kind == UL_CALL_CONVOLUTION)
        put_convolution(&to, call);
    else
        put_gradient(&to, call);
    cudnnBackendDescriptor_t operations = begin(&to, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (dnn->handle != NULL)
        put(&to, operations, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &dnn->handle);
    put(&to, operations, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        to.operation_count, to.operations);
    end(&to, operations);
    graph->operations = operations;
    return to.good;
}

void ul_cudnn_free_graph(const struct ul_cudnn *dnn, struct ul_cudnn_graph *graph)
{
    ul_cudnn_drop_plan(dnn, graph);
    ul_cudnn_free(dnn, graph->pack);
    while (graph->descriptor_count > 0)
        ul_cudnn_free(dnn, graph->descriptors[--graph->descriptor_count]);
    memset(graph, 0, sizeof *graph);
}

#endif
